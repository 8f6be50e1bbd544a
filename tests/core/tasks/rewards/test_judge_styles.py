"""Functions written for TRL, unchanged: how they are called, what they are handed, what they may do around it."""

from __future__ import annotations

import asyncio
import logging
import math
from pathlib import Path

import pytest

from core.config.task import RewardSpec
from core.tasks.rewards.judge import Judge
from tests.core.tasks.rewards.judging import Judging, values
from tests.logs import Logged

pytestmark = pytest.mark.process

CONVERSATIONAL = """
    import re

    def reward_func(completions, **kwargs):
        pattern = r"^<think>.*?</think><answer>.*?</answer>$"
        contents = [completion[0]["content"] for completion in completions]
        return [1.0 if re.match(pattern, content) else 0.0 for content in contents]
"""
PLAIN = """
    def reward_func(completions, **kwargs):
        return [float(len(completion)) for completion in completions]
"""
COLUMNS = r"""
    import re

    def reward_func(completions, ground_truth, **kwargs):
        matches = [re.search(r"\\boxed\{(.*?)\}", completion) for completion in completions]
        contents = [match.group(1) if match else "" for match in matches]
        return [1.0 if c == gt else 0.0 for c, gt in zip(contents, ground_truth)]
"""


def test_conversational(judging: Judging) -> None:
    said = [[{"role": "assistant", "content": text}] for text in ("<think>a</think><answer>b</answer>", "b")]
    assert values(judging(CONVERSATIONAL, "reward_func"), said) == [1.0, 0.0]


def test_plain(judging: Judging) -> None:
    assert values(judging(PLAIN, "reward_func"), ["four", ""]) == [4.0, 0.0]


def test_extra_columns(judging: Judging) -> None:
    judge = judging(COLUMNS, "reward_func")
    assert values(judge, [r"so \boxed{4}", "4"], ground_truth=["4", "4"]) == [1.0, 0.0]


@pytest.mark.slow  # TRL itself; its styles of functions are in the tests around
def test_trl_ships_one_that_runs_as_it_is() -> None:
    judge = Judge([RewardSpec(function="trl.rewards:think_format_reward", timeout=120)])
    try:
        said: list[object] = [[{"content": "<think>\na\n</think>\nb"}], [{"content": "b"}]]
        assert values(judge, said) == [1.0, 0.0]
    finally:
        judge.close()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "async def f(completions, **kw):\n  await asyncio.sleep(0)\n  return [len(c) for c in completions]",
            [1.0, 2.0],
        ),
        ("def f(completions): return [len(c) for c in completions]", [1.0, 2.0]),
        ("def f(*, completions): return [len(c) for c in completions]", [1.0, 2.0]),
        ("def f(prompts): return [int(p[1:]) for p in prompts]", [0.0, 1.0]),
        ("def f(completion_ids, **kw): return [sum(ids) for ids in completion_ids]", [0.0, 1.0]),
        ("def f(**kw): return [sorted(kw).index('prompts'), len(kw)]", [5.0, 7.0]),
        ("def f(completions, missing='d', **kw): return [len(missing)] * 2", [1.0, 1.0]),
        ("def f(completions, n): return [v['deep'][0] for v in n]", [3.0, 4.0]),
        ("def f(completions, **kw): return np.array([len(c) for c in completions]) / 2", [0.5, 1.0]),
        ("def f(completions, **kw): return [None, True]", [None, 1.0]),
        ("f = functools.partial(lambda completions, by, **kw: [by] * 2, by=3)", [3.0, 3.0]),
        ("class F:\n  def __call__(self, completions, **kw): return [2, 2]\nf = F()", [2.0, 2.0]),
        ("class F:\n  async def __call__(self, completions, **kw): return [2, 2]\nf = F()", [2.0, 2.0]),
        ("def f(completions, **kw): return asyncio.run(g())\nasync def g(): return [1, 2]", [1.0, 2.0]),
        ("f = lambda completions, trainer_state: [trainer_state.global_step] * 2", [7.0, 7.0]),
        (
            "def f(completions, log_extra, log_metric):\n  log_extra('a', [1])\n  log_metric('b', 2)\n  return [1, 1]",
            [1, 1],
        ),
        ("def f(completions, **kw): return [__name__ == '__main__', __file__.endswith('mine.py')]", [0.0, 1.0]),
        ("CALLS = []\ndef f(completions, **kw): CALLS.append(1); return [len(CALLS)] * 2", [1.0, 1.0]),
        ("@dataclasses.dataclass\nclass A:\n  x: 'int'\ndef f(completions, **kw): return [A(1).x, 1]", [1.0, 1.0]),
        ("def f(completions, **kw): return [len(sys.argv), sys.stdin.read() == '']", [1.0, 1.0]),
    ],
)
def test_what_a_function_may_look_like(judging: Judging, source: str, expected: list[float | None]) -> None:
    judge = judging(f"import asyncio, dataclasses, functools, sys\nimport numpy as np\n{source}")
    columns = {"n": [{"deep": [3]}, {"deep": [4]}]}
    verdict = judge.judge(["p0", "p1"], ["a", "bb"], [[0], [1]], columns, step=7)["f"]
    assert [None if math.isnan(value) else value for value in verdict.values] == expected
    assert (verdict.failed, verdict.first_error) == (0, None)


def test_a_module_keeps_its_globals_and_async_functions_their_loop(judging: Judging) -> None:
    judge = judging("""
        import asyncio
        seen = []
        async def f(completions):
            seen.append(asyncio.get_running_loop())
            return [len(set(map(id, seen))) + len(seen) / 10] * len(completions)
        def g(completions):
            return [len(seen)]
    """, "f", "g")  # fmt: skip
    for call in (1, 2):
        both = judge.judge(["p"], ["c"], [], {})
        assert [both["f"].values, both["g"].values] == [[1 + call / 10], [call]]


def test_each_function_has_its_own_copies(judging: Judging) -> None:
    judge = judging("""
        def first(prompts, completions, completion_ids, meta, **kwargs):
            prompts.clear(); completion_ids[0].append(5); meta[0]["a"] = 9
            completions[0][0]["content"] = "gone"
            return [1.0]
        def second(prompts, completions, completion_ids, meta):
            return [float((prompts, completions, completion_ids, meta) ==
                          (["p"], [[{"content": "c"}]], [[1]], [{"a": 1}]))]
    """, "first", "second")  # fmt: skip
    prompts, completions, ids, columns = ["p"], [[{"content": "c"}]], [[1]], {"meta": [{"a": 1}]}
    for _ in range(2):
        assert judge.judge(prompts, completions, ids, columns)["second"].values == [1.0]
    assert (prompts, completions, ids, columns) == (["p"], [[{"content": "c"}]], [[1]], {"meta": [{"a": 1}]})


def test_two_files_of_one_name_and_what_lies_beside_them(tmp_path: Path) -> None:
    """Also names of the standard library, and a folder `core` of the user's own."""
    for place, number in (("a", 1), ("b", 2)):
        (tmp_path / place).mkdir()
        (tmp_path / place / "json.py").write_text(
            f"import beside_{place}, pathlib\nhere = (pathlib.Path(__file__).parent / 'n.txt').read_text()\n"
            f"def f(completions): return [beside_{place}.N + int(here)]\n"
        )
        (tmp_path / place / f"beside_{place}.py").write_text(f"N = {number}")
        (tmp_path / place / "n.txt").write_text(str(number * 10))
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("")
    (tmp_path / "core" / "words.py").write_text(
        "from .more import N\nfrom core import more\ndef f(prompts): return [N]\n"
    )
    (tmp_path / "core" / "more.py").write_text("N = 5")
    rewards = [
        RewardSpec(function="a/json.py:f", name="a"),
        RewardSpec(function=f"{tmp_path}/b/json.py:f", name="b"),
        RewardSpec(function="core.words:f", name="module"),
        RewardSpec(function="./core/words.py:f", name="file"),
    ]
    judge = Judge(rewards, base=tmp_path)
    try:
        found = judge.judge(["p"], ["c"], [], {})
        assert {name: verdict.values for name, verdict in found.items()} == {
            "a": [11.0],
            "b": [22.0],
            "module": [5.0],
            "file": [5.0],
        }
    finally:
        judge.close()


def test_a_function_may_use_processes_and_threads(judging: Judging) -> None:
    judge = judging("""
        import concurrent.futures as cf, multiprocessing, subprocess, sys, threading

        def square(text): return len(text) ** 2

        def f(completions, **kwargs):
            with cf.ThreadPoolExecutor(2) as pool:
                one = list(pool.map(square, completions))
            with cf.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                two = list(pool.map(square, completions))
            with multiprocessing.get_context("fork").Pool(1) as pool:
                three = pool.map(square, completions)
            out = subprocess.run([sys.executable, "-c", "print(3)"], capture_output=True, text=True, check=True)
            return [a + b + c + int(out.stdout) for a, b, c in zip(one, two, three)]
    """, timeout=60)  # fmt: skip
    assert values(judge, ["aa", "b"]) == [15.0, 6.0]  # 3 x 4 + 3, 3 x 1 + 3


def test_large_and_odd_arguments_arrive(judging: Judging) -> None:
    """10 MB, half a surrogate pair, nulls, line ends; more than a pipe holds goes in both directions."""
    judge = judging("""
        def f(completions, **kwargs):
            if len(completions) > 2: return [float(i) for i in range(len(completions))]
            return [len(completions[0]), completions[1] == "\\ud800\\n\\x00\\u2028" and kwargs["my col"] == [None, 1.5]]
    """)
    assert values(judge, ["x" * 10_000_000, "\ud800\n\x00\u2028"], **{"my col": [None, 1.5]}) == [1e7, 1.0]
    assert values(judge, ["y"] * 50_000) == [float(i) for i in range(50_000)]


def test_what_it_prints_is_in_the_log(judging: Judging, logged: Logged) -> None:
    judge = judging("""
        import os, sys
        print("at import")
        def f(completions, log_metric, **kwargs):
            print("hello"); print("there", file=sys.stderr); os.system("echo from below"); log_metric("depth", 2)
            return [1.0]
    """)
    with logged.at_level(logging.INFO, logger="core.tasks.rewards"):
        assert values(judge, ["c"]) == [1.0]
    texts = logged.messages
    first, second = texts
    assert first.endswith("at import")
    assert second.endswith("hello\nthere\nfrom below\nlog_metric depth = 2")


def test_judges_have_processes_of_their_own(judging: Judging) -> None:
    source = "import os\ndef f(completions): return [os.getpid()]"
    pids = {tuple(values(judging(source, file=name), ["c"])) for name in ("a.py", "b.py")}
    assert len(pids) == 2


def test_none_is_no_loss(judging: Judging) -> None:
    judge = judging("def f(completions): return [None] * len(completions)")
    for _ in range(5):
        verdict = judge.judge(["p", "p"], ["a", "b"], [], {})["f"]
        assert (all(map(math.isnan, verdict.values)), verdict.failed, verdict.first_error) == (True, 0, None)


def test_it_can_be_used_inside_a_running_event_loop(judging: Judging) -> None:
    judge = judging("async def f(completions): return [1.0]")

    async def inside() -> list[float | None]:
        return values(judge, ["c"])

    assert asyncio.run(inside()) == [1.0]


def test_no_rows_are_no_call(judging: Judging) -> None:
    assert judging("raise SystemExit").judge([], [], [], {})["f"].values == ()


def test_a_step_that_nobody_tells_is_noted_once(judging: Judging, logged: Logged) -> None:
    judge = judging(
        "def f(completions, trainer_state): return [trainer_state.global_step]\ndef g(**kw): return [1]", "f", "g"
    )
    for _ in range(2):
        assert judge.judge(["p"], ["c"], [], {})["f"].values == [0.0]
    assert judge.judge(["p"], ["c"], [], {}, step=3)["f"].values == [3.0]
    (record,) = logged.records
    assert record.getMessage().startswith("reward f: asks for trainer_state, whose global_step is 0 here")
