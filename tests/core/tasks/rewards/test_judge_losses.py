"""What hostile functions cost: rows are asked for again one by one, those that still fail are missing and counted."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest

from core.errors import TaskError
from tests.core.tasks.rewards.judging import STUCK, Judging, values
from tests.logs import Logged

pytestmark = pytest.mark.process

# Each of these is done for the completion "bad" alone, or for a batch with it: one row of three is lost.
HOSTILE = {
    "raise ValueError('no')": "ValueError: no",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "raise BaseException('odd')": "BaseException: odd",
    "raise Rude": "Rude: <exception str() failed>",
    "sys.exit('bye')": "SystemExit: bye",
    "os._exit(0)": "its process ended with exit code 0",
    "os._exit(3)": "its process ended with exit code 3",
    "os.abort()": "its process was killed by SIGABRT",
    "os.kill(os.getpid(), signal.SIGKILL)": "killed by SIGKILL, perhaps because memory ran out",
    "os.kill(os.getppid(), signal.SIGKILL); threading.Event().wait()": "its process ended",
    "ctypes.string_at(0)": "its process was killed by SIGSEGV",
    "signal.setitimer(signal.ITIMER_REAL, 0.01); threading.Event().wait()": "its process was killed by SIGALRM",
    "os.closerange(0, 256)": "its process ended with exit code 70",
    "f(completions)": "RecursionError",
    "raise MemoryError": "MemoryError",
    "return 1.0": "returned float 1.0; allowed: a list of a number or None for each",
    "return None": "returned NoneType None",
    "return 'a' * len(completions)": "returned str 'a",
    "return []": "returned 0 value(s)",
    "return [1.0] * 7": "returned 7 value(s)",
    "return iter(lambda: 1.0, 2.0)": "+ value(s)",
    "return [math.nan] * len(completions)": "returned nan; allowed: a finite number, or None",
    "return ['1'] * len(completions)": "returned str '1'",
    "return (1 / (1 - i) for i in range(1, 9))": "ZeroDivisionError",
}
SOURCE = """
    import ctypes, math, os, re, signal, sys, threading, time

    class Rude(Exception):
        def __str__(self): raise ValueError

    def f(completions, **kwargs):
        if "bad" in completions:
            {deed}
        return [float(len(one)) for one in completions]
"""


@pytest.mark.parametrize("deed", HOSTILE)
def test_the_other_rows_keep_their_values(judging: Judging, deed: str) -> None:
    judge = judging(SOURCE.format(deed=deed))
    verdict = judge.judge(["p"] * 3, ["a", "bad", "cc"], [], {})["f"]
    assert [verdict.values[0], verdict.values[2]] == [1.0, 2.0]
    assert math.isnan(verdict.values[1])
    assert (verdict.failed, verdict.lost) == (1, frozenset({1}))
    assert HOSTILE[deed] in str(verdict.first_error)
    assert values(judge, ["four", "a"]) == [4.0, 1.0]


HANGS = {
    STUCK: "mine.py line 9",
    "os.kill(os.getpid(), signal.SIGSTOP)": "no answer within 1 s",
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); threading.Event().wait()": "no answer within 1 s",
}


@pytest.mark.parametrize("deed", HANGS)
def test_a_hang_ends_at_its_timeout(judging: Judging, deed: str, logged: Logged) -> None:
    judge = judging(SOURCE.format(deed=deed), timeout=1)
    assert values(judge, ["a", "bad", "cc"]) == [1.0, None, 2.0]
    text = logged.records[0].getMessage()
    assert "no answer within 1 s" in text
    assert HANGS[deed] in text


def test_an_async_function_hangs_as_others_do(judging: Judging) -> None:
    judge = judging("""
        import asyncio
        async def f(completions):
            await asyncio.gather(*(asyncio.Event().wait() for one in completions if one == "bad"))
            return [1.0] * len(completions)
    """, timeout=1)  # fmt: skip
    assert values(judge, ["a", "bad"]) == [1.0, None]


def test_values_that_were_fine_are_not_asked_for_again(judging: Judging) -> None:
    """Rows 1 and 3 come with nan and inf in the batch; alone, 1 gets its value and 3 does not."""
    judge = judging("""
        import math
        calls = []
        def f(completions, **kwargs):
            calls.append(list(completions))
            if len(completions) > 1: return [0.0, math.nan, None, math.inf]
            return [10.0] if completions == ["b"] else [math.nan]
        def asked(completions):
            return [float(calls == [["a", "b", "c", "d"], ["b"], ["d"]])] * len(completions)
    """, "f", "asked")  # fmt: skip
    found = judge.judge(["p"] * 4, ["a", "b", "c", "d"], [], {})
    verdict = found["f"]
    assert [None if math.isnan(value) else value for value in verdict.values] == [0.0, 10.0, None, None]
    assert verdict.lost == frozenset({3})  # row 2 returned None: missing, not lost
    assert set(found["asked"].values) == {1.0}


def test_one_function_does_not_cost_the_others(judging: Judging) -> None:
    judge = judging("""
        import os
        def dies(completions, **kwargs): os._exit(1)
        def lives(completions, **kwargs): return [1.0] * len(completions)
    """, "dies", "lives")  # fmt: skip
    found = judge.judge(["p", "p"], ["a", "b"], [], {})
    assert (found["dies"].failed, found["lives"].failed, list(found["lives"].values)) == (2, 0, [1.0, 1.0])


def test_megabytes_of_output_stay_out_of_the_answers(judging: Judging, logged: Logged) -> None:
    judge = judging("""
        import os, subprocess, sys
        def f(completions, **kwargs):
            print("x" * 20_000_000)
            sys.stderr.write('{"call": 2, "values": [9.0], "refused": {}}\\n' * 1000)
            for fd in (1, 2): os.write(fd, b"\\xff\\x00" * 100_000)
            subprocess.run(["head", "-c", "20000000", "/dev/zero"])
            return [1.0]
    """)
    with logged.at_level(logging.INFO, logger="core.tasks.rewards"):
        assert [values(judge, ["c"]) for _ in range(2)] == [[1.0], [1.0]]
    assert all("(the end of 40" in record.getMessage() for record in logged.records)
    assert sum(len(record.getMessage()) for record in logged.records) < 20_000


def test_a_long_traceback_is_cut(judging: Judging) -> None:
    judge = judging("def f(completions):\n  raise ValueError('y' * 10_000_000)")
    error = judge.judge(["p"], ["c"], [], {})["f"].first_error
    assert error is not None
    assert 1000 < len(error) < 10_000


def test_the_traceback_shows_nothing_of_ours(judging: Judging) -> None:
    judge = judging(
        "import asyncio\nasync def f(completions):\n  await g()\nasync def g():\n  raise ValueError('deep')"
    )
    error = str(judge.judge(["p"], ["c"], [], {})["f"].first_error)
    assert error.splitlines()[0].startswith("Traceback")
    assert "mine.py" in error.splitlines()[1]
    assert "worker.py" not in error


def test_asking_again_has_an_end(judging: Judging, tmp_path: Path) -> None:
    """Of 50 hanging rows, the call and two rows are waited for: 1.5 s, where 51 timeouts would be 25 s."""
    judge = judging("""
        import signal
        def f(completions):
            with open("calls.txt", "a") as calls: calls.write(f"{len(completions)} ")
            signal.pause()
    """, timeout=0.5)  # fmt: skip
    verdict = judge.judge(["p"] * 50, ["c"] * 50, [], {})["f"]
    assert verdict.failed == 50
    assert "no answer" in str(verdict.first_error)
    assert (tmp_path / "calls.txt").read_text() == "50 1 1 "


def test_rows_that_hang_among_others_are_waited_for_within_five_timeouts(judging: Judging) -> None:
    """Even rows hang. Begun while no more than 4 timeouts are spent, so 4 or 5 of them are tried; row 1 is saved."""
    judge = judging("""
        import signal
        def f(completions):
            while len(completions) > 1 or completions[0] % 2 == 0: signal.pause()
            return [1.0]
    """, timeout=0.4)  # fmt: skip
    verdict = judge.judge(["p"] * 40, list(range(40)), [], {})["f"]
    assert {0, 2, *range(12, 40)} <= verdict.lost
    assert verdict.values[1] == 1.0


def test_three_lost_scorings_in_a_row_end_the_run(judging: Judging) -> None:
    judge = judging("def f(completions):\n  raise ValueError('never')")
    for _ in range(2):
        assert judge.judge(["p", "p"], ["a", "b"], [], {})["f"].failed == 2
    with pytest.raises(TaskError) as caught:
        judge.judge(["p", "p"], ["a", "b"], [], {})
    first, *rest = str(caught.value).splitlines()
    assert first.startswith("reward f (")
    assert "gave no value to any completion, 3 times in a row: ValueError: never (" in first
    assert rest[0].startswith("Traceback")
    assert rest[-1] == "ValueError: never"


def test_a_function_that_only_works_for_one_completion_is_told_once(judging: Judging, logged: Logged) -> None:
    judge = judging("def f(completions): return [1.0]")
    for batch in (["a", "b"], ["a", "b"], ["a"], ["a", "b"], ["a", "b"]):  # the third one is sound
        assert judge.judge(["p"] * len(batch), batch, [], {})["f"].failed == 0
    assert not [line for line in logged.messages if "calls in a row" in line]
    for _ in range(3):
        judge.judge(["p", "p"], ["a", "b"], [], {})
    (told,) = [line for line in logged.messages if "calls in a row" in line]
    assert "3 calls in a row for all completions failed" in told
    assert "returned 1 value(s)" in told


def test_a_scoring_that_keeps_a_row_begins_the_count_anew(judging: Judging) -> None:
    judge = judging("def f(completions):\n  return [{'a': 1.0}[one] for one in completions]")
    for batch in (["b", "b"], ["b", "b"], ["b", "a"], ["b"], ["b"]):
        judge.judge(["p"] * len(batch), batch, [], {})
    with pytest.raises(TaskError, match="3 times in a row: KeyError: 'b'"):
        judge.judge(["p"], ["b"], [], {})


def test_each_function_is_counted_by_itself(judging: Judging) -> None:
    """f is lost three times, but g has no value then: only a function that raises counts, one that returns None not."""
    judge = judging("def f(completions): return [None]\ndef g(completions):\n  raise ValueError('g')", "f", "g")
    for _ in range(2):
        judge.judge(["p"], ["a"], [], {})
    with pytest.raises(TaskError, match=r"reward g \("):
        judge.judge(["p"], ["a"], [], {})


def test_a_file_that_breaks_while_the_run_goes_on(judging: Judging, tmp_path: Path, logged: Logged) -> None:
    """The process dies, and the file it comes back with has changed, then cannot be imported: losses, not errors."""
    judge = judging(
        "import os\ndef f(completions):\n  if 'bad' in completions: os._exit(1)\n  return [1.0] * len(completions)"
    )
    assert values(judge, ["a"]) == [1.0]
    source = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(source.replace("[1.0]", "[2.0]"))
    assert values(judge, ["a", "bad"]) == [2.0, None]
    assert "mine.py has changed since the run began; the new content counts from now on" in "\n".join(logged.messages)
    (tmp_path / "mine.py").write_text("def f(")
    assert values(judge, ["bad"]) == [None]
    assert values(judge, ["a"]) == [None]
    with pytest.raises(TaskError, match="SyntaxError"):
        values(judge, ["a"])
    (tmp_path / "mine.py").write_text(source)


def test_a_copy_that_a_fork_made_neither_answers_nor_goes_on(judging: Judging) -> None:
    judge = judging("""
        import os
        def f(completions):
            if (copy := os.fork()) == 0: return [9.0]
            os.waitpid(copy, 0)
            return [1.0]
        def g(completions): return [5.0]
    """, "f", "g", timeout=5)  # fmt: skip
    for _ in range(3):
        found = judge.judge(["p"], ["c"], [], {})
        assert (found["f"].values, found["g"].values) == ([1.0], [5.0])
