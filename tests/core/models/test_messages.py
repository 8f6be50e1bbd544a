"""What is said while a model is loaded: each note once, and of an error its first line."""

from __future__ import annotations

import io
import logging

import pytest

from core.models.messages import first_line, log_through_root, note


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such file."), "no such file"),
        (ValueError("\n  one   two\t three.\nand more"), "one two three"),
        (ValueError(""), "ValueError"),
        (KeyError(), "KeyError"),
    ],
)
def test_the_first_line_of_an_error(error: Exception, text: str) -> None:
    assert first_line(error) == text


def test_a_note_is_printed_once_in_a_process(capsys: pytest.CaptureFixture[str]) -> None:
    note.cache_clear()
    for text in ("a model", "a model", "another\x1b[2J"):
        note(text)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "note: a model"
    assert "\x1b" not in second  # what clears a terminal is spelled out


def test_a_reader_that_has_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    note.cache_clear()
    monkeypatch.setattr("sys.stderr", Gone())
    note("to nobody")


def test_a_library_logs_to_the_root_and_into_its_files_only() -> None:
    logger = logging.getLogger("a library of this test")
    logger.propagate = False
    kept = logging.NullHandler()
    logger.handlers = [logging.StreamHandler(), kept]
    log_through_root(logger.name)
    assert (logger.handlers, logger.propagate) == ([kept], True)
