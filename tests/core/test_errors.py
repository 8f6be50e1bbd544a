"""Where a spec is wrong, in the order file, line, key; and errors that are none of ours in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import RunError, SpecError, StorageError, UserError, in_words


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({}, "got 3"),
        ({"key": "seed"}, "seed: got 3"),
        ({"file": Path("a.yaml"), "key": "seed"}, "a.yaml: seed: got 3"),
        ({"file": Path("a.yaml"), "line": 7, "key": "seed"}, "a.yaml: line 7: seed: got 3"),
        ({"line": 0}, "line 0: got 3"),
    ],
)
def test_a_spec_error_says_where(where: dict[str, object], text: str) -> None:
    error = SpecError("got 3", **where)  # type: ignore[arg-type]
    assert (str(error), error.message) == (text, "got 3")


def test_what_the_user_can_mend_is_no_failed_run() -> None:
    assert not issubclass(UserError, RunError)
    assert not issubclass(StorageError, UserError)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("a"), "KeyError: 'a'"),
        (OSError(28, "No space left on device", "/tmp/x"), "cannot use /tmp/x: No space left on device"),
        (OSError(5, "Input/output error"), "Input/output error"),  # of no file, and the current folder is there
        (OSError("odd"), "OSError: odd"),  # nothing of the system's
    ],
)
def test_an_error_that_is_none_of_ours(error: BaseException, text: str) -> None:
    assert in_words(error) == text
