"""The progress of a sweep where there is no terminal, and in one that is a file."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from grpoctl.analysis.sweeps.budget import account
from grpoctl.cli.sweep_progress import SweepProgress
from tests.studies import advantage_study, study, trial

pytestmark = pytest.mark.usefixtures("plain_environment")


class Clock:
    """Stands where it is put."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def under_way(ended: int, total: int = 4) -> dict[str, Any]:
    """A study of single seeds and 1,024 completions each with so many trials ended and one running."""
    trials = [trial(number, [0.5 + number / 100]) for number in range(ended)]
    return study([*trials, trial(ended, [None], "RUNNING", completions=0)], status="RUNNING", total=total, seeds=[0])


def test_elsewhere_each_ended_trial_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = SweepProgress(clock=clock)
    progress.start(under_way(0))
    progress.update(under_way(0), {0: 0.0})
    clock.now = 10.0
    for _ in range(3):
        progress.update(under_way(1), {1: 0.0})
    progress.finish()
    progress.update(under_way(2), {})  # after the end nothing is said
    head, what, line = capsys.readouterr().out.splitlines()
    assert head.startswith("advantage-study-tiny-1a2b3c4d-1")
    assert "4 trials x 1 seed, 1,024 completions per run" in what
    # 1,024 completions in 10 s, 3 x 1,024 to come: about 0:30, and one trial says little of how others differ
    told, low, high = re.fullmatch(r"(.*)  eta 0:(\d\d)-(\d):\d\d", line).groups()  # type: ignore[union-attr]
    assert told == "1/4  #0  COMPLETED  0.500  best #0 0.500"
    assert (int(low) < 30, int(high) >= 1) == (True, True)


def test_the_pace_is_that_since_something_is_spent() -> None:
    """Half a minute of importing says nothing of how long 4,096 completions take, of which 512 take forty seconds."""
    clock = Clock()
    progress = SweepProgress(clock=clock)
    progress.start(under_way(0))
    seen = {}
    for now, share in ((0.0, 0.0), (30.0, 0.0), (31.0, 0.05), (32.0, 0.5), (71.0, 0.55)):
        clock.now = now
        progress.update(under_way(0), {0: share})
        seen[now] = progress.remaining(account(under_way(0), {0: share}))
    assert (seen[0.0], seen[30.0]) == (None, None)
    assert seen[31.0] == pytest.approx(3.95 / 0.05 * 31)  # nothing else is known
    assert seen[32.0] == pytest.approx(3.5 / 0.5 * 32)  # a burst is no pace
    assert seen[71.0] == pytest.approx(3.45 / 0.5 * 40)


def test_an_adaptive_sweep_names_the_time_of_what_is_left_not_of_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    document = {
        **under_way(1),
        "allocation": "adaptive",
        "jobs": [{"trial": 0, "seed": 0, "from": 0.0, "share": 1.0, "seen": []}],
    }
    progress = SweepProgress()
    progress.start({**document, "jobs": []})
    progress.update(document, {1: 0.5})
    assert capsys.readouterr().out.splitlines()[-1].endswith(" if all is spent")
    again = SweepProgress()
    again.start(document)
    again.update(document, {1: 0.5})
    assert "job 0" not in capsys.readouterr().out  # it had ended before


def test_a_resumed_sweep_tells_only_what_is_new_and_a_retried_trial_again(capsys: pytest.CaptureFixture[str]) -> None:
    progress = SweepProgress()
    failed = study([trial(0, [0.5]), trial(1, [None], "FAILED")], status="RUNNING", total=2)
    retried = study([trial(0, [0.5]), trial(1, [None], "RUNNING")], status="RUNNING", total=2)
    progress.start(failed)
    for document in (failed, retried, failed):
        progress.update(document, {})
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]] == ["#1"]


def test_json_leaves_standard_output_alone_and_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for how, lines in (({"json": True}, 3), ({"quiet": True}, 0)):
        progress = SweepProgress(**how)
        progress.start(under_way(0))
        progress.update(under_way(1), {1: 0.5})
        progress.finish()
        said = capsys.readouterr()
        assert (said.out, len(said.err.splitlines())) == ("", lines)


class Terminal(io.StringIO):
    """Says it is a terminal, and keeps what is drawn."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard output is a terminal of 120 columns from now on."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    monkeypatch.setattr("sys.stdout", stream)
    return stream


def test_a_terminal_shows_bars_the_best_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = terminal(monkeypatch)
    clock = Clock()
    progress = SweepProgress(clock=clock)
    progress.start(under_way(1))
    progress.update(under_way(2), {2: 0.25})  # within a quarter of a second of the first drawing: not drawn
    clock.now = 1.0
    progress.update(under_way(2), {2: 0.25})
    progress.note("a worker died")
    progress.finish()
    text = drawn.getvalue()
    assert "ended 1 of 4" in text
    assert text.count("ended 2 of 4") >= 2
    assert "left 1,792 completions" in text  # 2 x 1,024 less a quarter of one
    assert "best eval/reward 0.510" in text
    assert "25%" in text
    assert "a worker died" in text


def test_drawing_a_large_study_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = terminal(monkeypatch)
    clock = Clock()
    document = advantage_study(500)
    progress = SweepProgress(clock=clock)
    progress.start(document)
    for step in range(10):
        clock.now = step * 0.01
        progress.update(document, {7: 0.5})
    assert drawn.getvalue().count("ended 500") == 1
    progress.finish()


def test_an_adaptive_sweep_counts_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = terminal(monkeypatch)
    jobs = [{"trial": 0, "seed": 0, "from": 0.0, "share": 0.125, "seen": [[0.125, 0.5]]}] * 2
    waiting = {"trial": 1, "seed": 0, "from": 0.0, "share": 0.125}
    document = {**under_way(1, 24), "allocation": "adaptive", "jobs": [*jobs, waiting]}
    progress = SweepProgress(clock=Clock())
    progress.start(document)
    progress.update(document, {1: 0.1})
    progress.finish()
    assert "2 jobs ended, 2 of 24 candidates begun" in drawn.getvalue()
    assert "time left" not in drawn.getvalue()
    assert "ended 0 of 24" not in drawn.getvalue()
