"""What is printed, where it goes, and that it fits."""

from __future__ import annotations

import io
import json
import os
import re
import sys

import pytest

from core.errors import StorageError
from grpoctl import console
from grpoctl.cli.compare import print_comparison
from grpoctl.cli.progress import LiveProgress
from grpoctl.cli.verdict import print_result
from grpoctl.sections import Line, Section
from tests.grpoctl.printed import Capture, Terminal, comparison, plain, result, terminal

pytestmark = pytest.mark.usefixtures("plain_environment")


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


def test_a_header_is_wrapped_before_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    cell = "p31 from the start " * 3
    console.print_table("", ("name", "runs below it"), [(cell + "and again", "0.5 ± 1")])
    header, below, _, row = (line.split() for line in plain(stream.getvalue())[:4])
    assert (header, below) == (["runs"], ["name", "below", "it"])
    assert " ".join(row) == f"{cell}and again 0.5 ± 1"
