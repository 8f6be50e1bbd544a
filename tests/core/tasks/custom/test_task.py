"""CustomTask with real functions in a real process."""

from __future__ import annotations

import math
import os
from contextlib import closing
from pathlib import Path

import pytest

from core.config.task import CustomTaskSpec
from core.errors import SpecError, TaskError
from core.tasks.custom.task import CustomTask, sample_tables
from core.tasks.registry import build, build_without_data, check_slices
from tests.core.tasks.custom.conftest import Spec

pytestmark = pytest.mark.process
ROWS = "".join(f'{{"q": "{n}+1", "answer": {n + 1}, "kind": "{"odd" if n % 2 else "even"}"}}\n' for n in range(8))
FUNCTIONS = """
import os
def right(completions, answer, **kwargs):
    return [float(text == str(wanted)) for text, wanted in zip(completions, answer, strict=True)]
def seen(prompts, completions, completion_ids, q, kind):
    return [100 * len(prompts) + 10 * len(ids) + (prompt == one + "?") + 2 * (what == "odd")
            for prompt, ids, one, what in zip(prompts, completion_ids, q, kind, strict=True)]
def chatty(prompts, completions, **kwargs):
    return [float(prompt[-1]["role"] == "user" and text[0]["role"] == "assistant" and len(text) == 1)
            + len(text[0]["content"]) for prompt, text in zip(prompts, completions)]
def only_even(completions, kind, **kwargs):
    return [1.0 if what == "even" else None for what in kind]
def picky(completions, **kwargs):
    return [1 / (text != "bad") for text in completions]
def pid(completions, **kwargs):
    return [os.getpid()] * len(completions)
def needs(completions, colour):
    return [0] * len(completions)
"""


def functions(tmp_path: Path, *names: str) -> list[dict[str, object]]:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    return [{"function": f"{tmp_path / 'functions.py'}:{name}"} for name in names]


@pytest.fixture
def task(spec: Spec, tmp_path: Path) -> CustomTask:
    told = {"rewards": functions(tmp_path, "right", "seen"), "answer": "{answer}", "gold": {"completion": "={answer}"}}
    return CustomTask(spec(ROWS, train_prompts=4, eval_prompts=4, **told))


def test_functions_get_prompts_tokens_and_columns(task: CustomTask) -> None:
    examples = list(task.examples("train")[:2])
    with closing(task):
        outcomes = task.score(examples, [str(examples[0].facts["answer"]), "no"], [[5, 6], [7]])
        assert task.score([], []) == []
    assert [outcome.parts["right"] for outcome in outcomes] == [1.0, 0.0]
    odd = [2.0 * (example.facts["kind"] == "odd") for example in examples]
    # 2 rows: 200; 2 and 1 tokens: 20 and 10; the prompt is the row's: 1
    assert [outcome.parts["seen"] for outcome in outcomes] == [221 + odd[0], 211 + odd[1]]
    assert [outcome.reward for outcome in outcomes] == [222 + odd[0], 211 + odd[1]]


def test_conversational_functions_get_messages(spec: Spec, tmp_path: Path) -> None:
    rows = '{"chat": [{"role": "user", "content": "a"}]}\n{"chat": [{"role": "user", "content": "b"}]}\n'
    told = {"prompt": None, "messages": "chat", "system": "Be brief."}
    task = CustomTask(spec(rows, rewards=functions(tmp_path, "chatty"), **told))
    with closing(task):
        (outcome,) = task.score(task.examples("eval"), ["four"])
    assert outcome.reward == 1 + 4


def test_none_is_left_out_and_a_lost_row_is_missing(spec: Spec, tmp_path: Path) -> None:
    task = CustomTask(spec(ROWS, train_prompts=7, rewards=functions(tmp_path, "picky", "only_even")))
    examples = sorted(task.examples("train"), key=lambda example: str(example.facts["kind"]))[::6][:2]  # even, odd
    with closing(task):
        even, odd, bad = task.score([*examples, examples[0]], ["x", "x", "bad"])
    assert (even.reward, odd.reward) == (2.0, 1.0)
    assert math.isnan(odd.parts["only_even"])
    assert math.isnan(bad.reward)  # picky raised: lost, though only_even gave 1
    assert bad.parts["only_even"] == 1.0


def test_its_process_ends_with_its_work(spec: Spec, tmp_path: Path) -> None:
    task = CustomTask(spec(ROWS, rewards=functions(tmp_path, "pid")))
    with closing(task):
        (outcome,) = task.score(task.examples("eval"), ["x"])
        os.kill(int(outcome.reward), 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(outcome.reward), 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [("rigth", "has no rigth; did you mean right?"), ("needs", "needs an argument `colour`")],
)
def test_a_function_that_cannot_be_used_is_refused_before_the_run(
    name: str, message: str, spec: Spec, tmp_path: Path
) -> None:
    task = build(spec(ROWS, rewards=functions(tmp_path, name)))
    with closing(task), pytest.raises(SpecError, match=message):
        task.make_ready()


def test_targets_and_gold_answers(task: CustomTask, spec: Spec) -> None:
    example = task.examples("train")[0]
    assert (task.target(example), task.gold(example)) == (str(example.facts["answer"]), f"={example.facts['answer']}")
    bare = CustomTask(spec(ROWS))
    assert bare.gold(example) is None
    with pytest.raises(TaskError, match=r"no answers to imitate; set task\.answer"):
        bare.target(example)


def test_building_it_reads_the_data_and_runs_no_function(spec: Spec, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    told = spec(ROWS, rewards=[{"function": f"{tmp_path / 'loud.py'}:f"}])
    assert isinstance(build(told), CustomTask)
    assert not (tmp_path / "ran").exists()
    (tmp_path / "rows.jsonl").unlink()
    with pytest.raises(SpecError, match="there is no such file"):
        build(told)
    assert build_without_data(told).tables([{"step": 1, "text": "x", "valid": True, "reward": None}])


def test_a_dataset_of_the_hub_is_not_asked_before_a_run_needs_it(spec: Spec) -> None:
    told = spec(ROWS).model_dump() | {"data": {"hub": "nobody/nothing-there"}}
    assert isinstance(build(CustomTaskSpec.model_validate(told)), CustomTask)


def test_an_evaluation_is_cut_by_a_column_that_problems_share(task: CustomTask) -> None:
    check_slices(task, None)
    check_slices(task, "kind")
    with pytest.raises(SpecError, match="got 'knid'; this task's problems have: q, answer, kind"):
        check_slices(task, "knid")


def test_more_slices_than_anyone_reads_are_refused(spec: Spec) -> None:
    rows = "".join(f'{{"q": "{n}"}}\n' for n in range(60))
    with pytest.raises(SpecError, match="has 51 values among 51 problems; allowed: at most 50"):
        check_slices(CustomTask(spec(rows, eval_prompts=51)), "q")


def test_tables_of_samples() -> None:
    def sample(step: int, text: str, reward: float | None, right: float | None) -> dict[str, object]:
        return {"step": step, "text": text, "valid": True, "reward": reward, "rewards": {"right": right}}

    samples = [sample(1, "a", 1.0, 0.0), sample(2, "a", None, None), sample(3, "b\nb", 3.0, 1.0)]
    rewards, commonest = sample_tables(samples)
    assert rewards.rows == (
        ("reward", "1", "-", "3"),  # a third of three steps is a step
        ("right", "0", "-", "1"),
        ("valid", "1", "1", "1"),
        ("rewards missing", "0", "1", "0"),
    )
    assert commonest.rows == (("a", "2", "1"), ("b b", "1", "3"))
