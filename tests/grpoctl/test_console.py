"""What is printed, where it goes, and that it fits."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from typing import Any

import pytest

from core.errors import StorageError
from grpoctl import console
from grpoctl.analysis.collect import RunRecord
from grpoctl.analysis.compare import Comparison, compare
from grpoctl.cli.compare import print_comparison
from grpoctl.cli.progress import LiveProgress, progress_text
from grpoctl.cli.verdict import print_result
from grpoctl.sections import Line, Section

Capture = pytest.CaptureFixture[str]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard output as an 80-column terminal. No fixture: pytest puts its own stream back before the test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("COLUMNS", "80")
    return stream


def result(**changes: Any) -> dict[str, Any]:
    return {
        "recorded_as": "p30@1",
        "spec_sha": "aaaa",
        "profile": "tiny",
        "seed": 0,
        "run_id": "p30-tiny-s0-aaaa-1",
        "run_dir": "/home/ada/a-rather-long-folder-name/workflows/.grpoctl/runs/p30-tiny-s0-aaaaaaaa-1",
        "status": "COMPLETED",
        "steps": 96,
        "updates": 39,
        "seconds": 5.0,
        "start": {"eval/reward": 0.4, "eval/reward_se": 0.03},
        "final": {"eval/reward": 0.6, "eval/reward_se": 0.04, "collapse_rate": 1.0},
        "best": {"eval/reward": 0.61},
        "expects": [{"expectation": "collapse_rate < 0.05", "observed": 1.0, "met": False}],
        "findings": [
            {"id": "rollout-mode", "severity": "error", "summary": "samples [B, K] come from train mode. " * 4}
        ],
    } | changes


def comparison() -> Comparison:
    """Three seeds of K=2 against three of K=8, the reward 0.1 higher."""

    def run(seed: int, k: int, gain: float) -> RunRecord:
        rewards = [0.4 + 0.01 * seed, 0.5 + 0.01 * seed + gain]
        rows = tuple({"completions": 30 * at, "eval/reward": reward} for at, reward in enumerate(rewards))
        document = result(seed=seed, run_id=f"k{k}-s{seed}", final={"eval/reward": rewards[1]})
        return RunRecord(result=document, spec={"stages.grpo.num_generations": k, "faults": []}, rows=rows)

    return compare([run(seed, 2, 0.0) for seed in range(3)], [run(seed, 8, 0.1) for seed in range(3)])


def plain(text: str) -> list[str]:
    return COLOUR.sub("", text).splitlines()


def test_result(capsys: Capture) -> None:
    print_result(result(), {"updates": 38, "collapse_rate": 0.974})
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "Run       COMPLETED: p30@1, profile tiny, seed 0: 96 steps, 39 updates, 5.0 s",
        "Reached   eval/reward 0.400 -> 0.600, +0.200 ± 0.098: a significant gain",
        "",
        "               start           final    best",
        "─────────────────────────────────────────────",
        " eval/reward   0.400   0.600 ± 0.078   0.610",
        "  ±, [ ]: 95 % t interval over prompts; gains not paired",
        "",
        "Expected  refuted: collapse_rate < 0.05 (observed 1.000)",
        "Finding   ERROR: rollout-mode: " + " ".join(["samples [B, K] come from train mode."] * 4),
        "Evidence  grpoctl diagnose p30-tiny-s0-aaaa-1",
        "",
        "The record and this run",
        "                 record   this run",
        "───────────────────────────────────",
        " updates             38         39",
        " collapse_rate    0.974      1.000",
        "",
        "Files     /home/ada/a-rather-long-folder-name/workflows/.grpoctl/runs/p30-tiny-s0-aaaaaaaa-1",
    ]


def test_a_run_that_never_got_anywhere(capsys: Capture) -> None:
    bare = result(
        status="FAILED", steps=0, updates=0, seconds=None, start={}, final={}, best={}, expects=[], findings=[]
    )
    print_result(bare, {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Run       FAILED: p30@1, profile tiny, seed 0: 0 steps, 0 updates"
    assert lines[1] == "Reached   no eval/reward at the start: nothing to compare"
    assert len(lines) == 3


def test_in_a_terminal_nothing_but_a_path_is_wider_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    print_result(result(), {"updates": 38})
    print_comparison(comparison())
    text = stream.getvalue()
    assert "\x1b[" in text
    wide = [line for line in plain(text) if len(line) > 80]
    assert [line.split()[-1] for line in wide] == [result()["run_dir"]]


def test_a_sentence_drives_no_terminal_and_a_command_is_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    command = "grpoctl run p31 " + " ".join(f"stages.grpo.beta_{i}=0.1" for i in range(6))
    lines = (Line(label="Note", text="a\x1b[2Jb\u202ec [red]d[/red]"), Line(label="Try", text=command, verbatim=True))
    console.print_sections([Section(lines=lines)])
    assert plain(stream.getvalue()) == ["Note      a\\x1b[2Jb\\u202ec [red]d[/red]", f"Try       {command}"]


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    print_result(result(), {})
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", stream.getvalue())


def test_comparison(capsys: Capture) -> None:
    print_comparison(comparison())
    lines = capsys.readouterr().out.splitlines()
    assert lines[:8] == [
        "A         p30@1, profile tiny, seeds 0, 1, 2 (3 COMPLETED)",
        "B         p30@1, profile tiny, seeds 0, 1, 2 (3 COMPLETED)",
        "",
        "Changed settings",
        "                               A   B",
        "─────────────────────────────────────",
        " stages.grpo.num_generations   2   8",
        "",
    ]
    # Rewards 0.50, 0.51, 0.52: sd 0.01, half 4.302653 * 0.01 / sqrt(3) = 0.025; the difference is 0.1 for every seed.
    assert "eval/reward 0.510 ± 0.025 0.610 ± 0.025 +0.100 ± 0.000 *" in [" ".join(line.split()) for line in lines]
    assert any("━" in line and "┤" in line for line in lines)
    assert lines[-1] == "Verdict   B (p30@1) is better by 0.100 [0.100, 0.100] on eval/reward (paired, n=3 seeds)"


def test_a_table_is_text_not_markup_and_harmless(capsys: Capture) -> None:
    console.print_table("Samples [1]", ("text", "reward"), [("[bold]A[/bold]\x1b[2J", "0.5"), ("two\nlines", "-")])
    assert capsys.readouterr().out.splitlines() == [
        "Samples [1]",
        " text                    reward",
        "────────────────────────────────",
        " [bold]A[/bold]\\x1b[2J      0.5",
        " two                          -",
        " lines",
        "",
    ]


def test_an_empty_table_says_so(capsys: Capture) -> None:
    console.print_table("Runs", ("run",), [])
    assert capsys.readouterr().out == "Runs\n  none\n\n"


def test_a_pipe_is_not_squeezed(capsys: Capture) -> None:
    console.print_table("", ("run", "title"), [("p30", "long " * 40)])
    assert max(map(len, capsys.readouterr().out.splitlines())) > 200


def test_errors_go_to_standard_error(capsys: Capture) -> None:
    console.print_error("p31.yaml: line 3: unknown key 'kl_loss_coef' [x]; did you mean beta?")
    console.print_note("profile tiny: no CUDA device")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "error: p31.yaml: line 3: unknown key 'kl_loss_coef' [x]; did you mean beta?",
        "note: profile tiny: no CUDA device",
    ]


def test_json_is_one_document_without_nan(capsys: Capture) -> None:
    console.print_json({"a": float("nan"), "b": [1.5, float("inf")], "c": {"d": "训练"}, "e": (1, 2)})
    out = capsys.readouterr().out
    assert json.loads(out) == {"a": None, "b": [1.5, None], "c": {"d": "训练"}, "e": [1, 2]}
    assert "训练" in out


@pytest.mark.parametrize(("name", "is_one"), [("xterm", True), ("dumb", False)])
def test_is_terminal(monkeypatch: pytest.MonkeyPatch, name: str, is_one: bool) -> None:
    monkeypatch.setenv("TERM", name)
    assert console.is_terminal(Terminal()) is is_one
    assert console.is_terminal(io.StringIO()) is False


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
    assert "reward -0.51 eval     - kl 3e-05 valid 100% rollout-inte…" in bars[-1]


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


def test_a_stream_that_lacks_a_character_gets_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    print_result(result(), {})
    print_comparison(comparison())
    sys.stdout.flush()
    assert b"0.600 ? 0.078" in raw.getvalue()


HOSTILE = "\x1b]0;owned\x07\x1b[31mred\u202eliver\x9b31m\u200b"
SPELLED = "\\x1b]0;owned\\x07\\x1b[31mred\\u202eliver\\x9b31m\\u200b"


def test_whatever_is_printed_drives_no_terminal_and_keeps_our_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "1000")
    shown = (
        lambda: console.print_text(HOSTILE),
        lambda: console.print_data(HOSTILE),
        lambda: console.write(HOSTILE),
        lambda: console.print_error(HOSTILE),
        lambda: console.print_error(f"Traceback\n  {HOSTILE}"),
        lambda: console.print_note(HOSTILE),
        lambda: console.print_table(HOSTILE, (HOSTILE,), [(HOSTILE,)], note=HOSTILE),
        lambda: console.print_sections([Section(lines=(Line(label=HOSTILE, mark=HOSTILE, text=HOSTILE),))]),
        lambda: LiveProgress(json=True).start(3, HOSTILE),
        lambda: console.print_uncaught(ValueError, ValueError(HOSTILE), None),
    )
    for show in shown:
        before = len(stream.getvalue())
        show()
        text = re.sub(r"\x1b\[([0-9;]*m|[?0-9]*[A-Klh])|\r", "", stream.getvalue()[before:])  # colours, and a bar
        assert SPELLED in text
        assert [char for char in text if not char.isprintable() and char != "\n"] == []
    assert "\x1b[1;31merror" in stream.getvalue()


def test_json_drives_no_terminal_and_reads_back(capsys: Capture) -> None:
    console.print_json({HOSTILE: HOSTILE})
    out = capsys.readouterr().out
    assert json.loads(out) == {HOSTILE: HOSTILE}
    assert out.replace("\n", "").isprintable()


def test_data_in_a_pipe_are_as_they_were(capsys: Capture) -> None:
    console.print_data(HOSTILE)
    assert capsys.readouterr().out == f"{HOSTILE}\n"


def test_errors_and_notes_hide_passwords(capsys: Capture) -> None:
    console.print_error("cannot lock http//u:geheim@host/.x.lock\n  and http://v:geheim@host")
    console.print_note("http:/u:geheim@host is away")
    console.print_uncaught(OSError, OSError("http://u:geheim@host"), None)
    err = capsys.readouterr().err
    assert "geheim" not in err
    assert err.count("***@host") == 4


@pytest.mark.parametrize("columns", ["0", "-1", "", "abc", "²", "١٢", "1e3", "1", "7", "39", "00080", "9" * 5000])
def test_columns_that_are_no_width_cost_nothing(columns: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "LINES"):
        monkeypatch.setenv(name, columns)
    cells = [("p31-tiny-s0-9b63e748-1", "COMPLETED", "96", "0.568", "a title of some words")] * 2
    console.print_table("Runs", ("run", "status", "step", "eval/reward", "title"), cells)
    print_result(result(), {"updates": 38})
    print_comparison(comparison())
    console.print_error("no experiment 'p13'")
    captured = capsys.readouterr()
    assert captured.err.split() == ["error:", "no", "experiment", "'p13'"]
    table = captured.out.partition("Run       ")[0]
    digits = "".join(cell for row in cells for cell in row)
    assert sum(map(str.isdigit, table)) == sum(map(str.isdigit, digits))


def test_a_stream_of_the_c_locale_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", errors="surrogateescape"))
    print_result(result(), {})
    console.print_json({"a": "±"})
    sys.stdout.flush()
    assert b"0.600 ? 0.078" in raw.getvalue()
    assert b'"\\u00b1"' in raw.getvalue()


def test_a_full_disk_behind_standard_output_is_named() -> None:
    with open("/dev/full", "w", encoding="utf-8") as stream, pytest.raises(StorageError, match="standard output"):
        console.write("text", stream)
    assert os.path.exists("/dev/full")
