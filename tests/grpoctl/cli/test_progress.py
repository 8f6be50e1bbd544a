"""The progress of a run: a bar of one line in a terminal, about twenty lines elsewhere."""

from __future__ import annotations

import os
import re
import sys
import threading
from typing import TextIO

import pytest

from grpoctl.cli import progress as progress_module
from grpoctl.cli.progress import LiveProgress, progress_text, range_text, time_left
from grpoctl.cli.verdict import print_result
from tests.grpoctl.printed import Capture, Terminal, plain, result, terminal

pytestmark = pytest.mark.usefixtures("plain_environment")


def train(progress: LiveProgress, total: int, last: int | None = None, first: int = 0) -> None:
    progress.start(total, "p31@1, profile tiny, seed 0")
    for step in range(first, (total if last is None else last) + 1):
        row: dict[str, object] = {"step": step, "reward/mean": 0.5, "kl": 0.0123, "completions/valid": 0.875}
        progress.update(row | ({"eval/reward": 0.4} if step == first else {}), "ok")
    progress.finish()
    progress.finish()


@pytest.mark.parametrize("total", [1, 5, 20, 96, 200, 1999])
def test_plain_progress_is_about_twenty_lines(capsys: Capture, total: int) -> None:
    train(LiveProgress(), total)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 23  # the header, step 0, at most 20 and the last step
    assert lines[0] == "p31@1, profile tiny, seed 0"
    assert re.fullmatch(
        rf"step {total}/{total}  reward 0.500 eval 0.400 kl 0.012 valid  88%  eta 0:00  guards ok", lines[-1]
    )


def test_a_run_with_a_budget_shows_how_much_of_it_is_spent(capsys: Capture) -> None:
    # Steps of 30 of 1000: a line whenever a twentieth, 50, was passed; the last step takes it beyond.
    progress = LiveProgress()
    progress.start(1000, "header", "completions")
    for step in range(35):
        progress.update({"step": step, "completions": 30 * step}, "ok")
    progress.finish()
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split("  reward")[0] for line in lines[:4]] == [
        f"completions {spent:>4}/1000" for spent in (0, 60, 120, 150)
    ]
    assert len(lines) == 21
    assert lines[-1].startswith("completions 1020/1000  reward")
    assert "eta 0:00" in lines[-1]


def test_the_time_left_is_the_pace_since_the_first_row(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    # Resumed at step 100; a second per step from there: 100 seconds left at once, 75 after 25 steps.
    clock = iter(float(second) for second in range(1000))
    monkeypatch.setattr("grpoctl.cli.progress.time.monotonic", lambda: next(clock))
    train(LiveProgress(), 200, first=100, last=125)
    lines = capsys.readouterr().out.splitlines()
    assert "eta -:--" in lines[1]
    assert lines[-1].startswith("step 125/200 ")
    assert "eta 1:15" in lines[-1]


def test_the_evaluation_before_the_first_step_is_told_sparingly(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second per token: one line at once, then one every 30 seconds, and the first row as ever.
    now = iter(float(second) for second in range(1000))
    monkeypatch.setattr("grpoctl.cli.progress.time.monotonic", lambda: next(now))
    progress = LiveProgress()
    progress.start(96, "header")
    for token in range(65):
        progress.evaluating(2 * token, 256, token, 512)
    progress.update({"step": 0, "eval/reward": 0.4}, "ok")
    lines = capsys.readouterr().out.splitlines()[1:]
    assert ["before step 1" in line for line in lines] == [True, True, True, False]
    assert "256 completions" in lines[0]
    assert ("60/256" in lines[1], "30/512" in lines[1]) == (True, True)
    assert lines[-1].startswith("step  0/96")


def test_the_bar_shows_how_far_the_first_evaluation_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    progress = LiveProgress()
    progress.start(96, "header")
    progress.evaluating(37, 256, 210, 512)
    progress.finish()
    lines = plain(re.sub(r"\x1b\[[?0-9;]*[A-KhlJ]|\r", "\n", stream.getvalue()))
    (line, *_) = [line for line in lines if "before step 1" in line]
    assert ("37/256" in line, "210/512" in line) == (True, True)
    assert len(line) <= 80


def test_a_run_that_ends_early_shows_its_last_step(capsys: Capture) -> None:
    train(LiveProgress(), 200, last=37)
    assert capsys.readouterr().out.splitlines()[-1].startswith("step  37/200 ")


def test_progress_keeps_standard_output_clean_for_json(capsys: Capture) -> None:
    train(LiveProgress(json=True), 10)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "step 10/10" in captured.err


def test_quiet_progress(capsys: Capture) -> None:
    train(LiveProgress(quiet=True), 10)
    assert capsys.readouterr() == ("", "")


def test_progress_without_rows_prints_its_header_only(capsys: Capture) -> None:
    progress = LiveProgress()
    progress.finish()
    progress.start(10, "header")
    progress.finish()
    assert capsys.readouterr().out == "header\n"


def test_the_bar_is_one_line_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    progress = LiveProgress()
    progress.start(2000, "header")
    progress.update(
        {"step": 1234, "reward/mean": -0.51234, "kl": 3e-5, "completions/valid": 1.0}, "rollout-integrity 4/5"
    )
    progress.finish()
    last = plain(re.sub(r"\x1b\[[?0-9;]*[A-KhlJ]|\r", "\n", stream.getvalue()))
    bars = [line for line in last if "1234/2000" in line]
    assert bars
    assert all(len(line) <= 80 for line in bars)
    assert "reward -0.51 eval     - kl 3e-05 valid 100% rollout-integri…" in bars[-1]


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ({}, "reward     - eval     - kl     - valid    -"),
        ({"reward/mean": 0.4, "kl": 12.345}, "reward 0.400 eval     - kl 12.34 valid    -"),
        ({"reward/mean": 345.6, "completions/valid": 0.0}, "reward   3e2 eval     - kl     - valid   0%"),
        ({"kl": 0.0, "eval/reward": None}, "reward     - eval     - kl 0.000 valid    -"),
    ],
)
def test_progress_text_keeps_its_places(shown: dict[str, float | None], text: str) -> None:
    assert progress_text(shown) == text
    assert len(text) == 43


def test_a_reader_that_has_gone_does_not_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        train(LiveProgress(), 10)
        print_result(result(), {"updates": 38})


def drawn(stream: Terminal) -> list[str]:
    """Every line that was ever drawn."""
    return plain(re.sub(r"\x1b\[[?0-9;]*[A-KhlJ]|\r", "\n", stream.getvalue()))


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_bar_names_what_is_done_and_the_stage_at_any_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    progress = LiveProgress()
    progress.start(120, "header", stages=["supervised", "grpo"])
    done = ["importing torch", "building builtin:tiny, once on this machine", "downloading org/name"]
    for text in done:
        progress.stage(text)
    progress.update({"step": 0, "eval/reward": 0.4}, "ok")
    progress.update({"step": 31, "stage": 1, "reward/mean": 0.5}, "ok")
    progress.finish()
    lines = drawn(stream)
    for text in done:
        assert any(f"{text} 0:0" in line for line in lines)  # with its seconds
    assert any("grpo 31/120" in line and "reward 0.500 eval 0.400" in line for line in lines)
    assert max(len(line) for line in lines) <= columns


def test_a_long_stage_is_told_where_there_is_no_terminal(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpoctl.cli.progress.SILENT", 0.01)
    monkeypatch.setattr("grpoctl.cli.progress.EVALUATING", 0.01)
    printed = threading.Semaphore(0)
    write = progress_module.write

    def counted(text: str, stream: TextIO) -> None:
        write(text, stream)
        printed.release()

    monkeypatch.setattr("grpoctl.cli.progress.write", counted)
    progress = LiveProgress()
    progress.start(96, "header")
    progress.stage("downloading org/name")
    assert all(printed.acquire(timeout=20) for _ in range(3))  # the header, and two lines while it goes on
    progress.update({"step": 0}, "ok")
    progress.finish()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "downloading" in line][:2] == ["downloading org/name: 0:00 so far"] * 2
    assert lines[-1].startswith("step  0/96")


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([], None),
        ([(0, 0.0)], None),
        ([(0, 0.0), (10, 10.0)], (90.0, 90.0)),  # one row of 10: nothing is known of how they differ
        ([(0, 0.0), (50, 50.0), (100, 100.0)], (0.0, 0.0)),
        # Rows of 1 and 3 seconds, 2 more to come: 4 s, and 2 sd sqrt(2 + 4 / 2) = 2 x 1.414 x 2 around it, not below 0.
        ([(0, 0.0), (25, 1.0), (50, 4.0)], (0.0, 4 + 4 * 2**0.5)),
    ],
)
def test_the_time_left_is_a_range(rows: list[tuple[int, float]], left: tuple[float, float] | None) -> None:
    assert time_left(rows, 100) == (None if left is None else pytest.approx(left))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-:--"),
        ((75, 75.3), "1:15"),
        ((40, 55), "0:40-0:55"),
        ((3600, 4320), "1.0-1.2 h"),
        ((7200, 7201), "2.0 h"),
    ],
)
def test_a_range_in_words(seconds: tuple[float, float] | None, text: str) -> None:
    assert range_text(seconds) == text
