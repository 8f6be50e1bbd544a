"""Sentences that libraries print, word for word, and those that only look like them."""

from __future__ import annotations

import pytest

from grpoctl.diagnose.readers.notices import KEPT, Notices, notice_of

DROPPED = "Caching is incompatible with gradient checkpointing in LlamaDecoderLayer. Setting `past_key_values=None`."


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.", "cache-disabled"),
        ("WARNING: use_cache=True is incompatible with gradient checkpointing.", "cache-disabled"),
        (DROPPED, "cache-dropped"),
        (f"[W 12:00] {DROPPED}", "cache-dropped"),
        ("checkpoint.py:85: UserWarning: None of the inputs have requires_grad=True. Gradients will be None",
         "checkpointing-without"),
        ("gradient checkpointing enabled", None),
        ("tensors with requires_grad=True: 12", None),
        ("", None),
    ],
)  # fmt: skip
def test_what_a_line_is(text: str, kind: str | None) -> None:
    found = notice_of(text, line=3, step=2)
    if kind is None:
        assert found is None
    else:
        assert found is not None
        assert found.kind.startswith(kind)
        assert (found.line, found.step) == (3, 2)


def test_a_citation_begins_where_the_sentence_does() -> None:
    found = notice_of(f"[W 12:00] {DROPPED}")
    assert found is not None
    assert found.text == DROPPED


def test_the_first_few_of_a_kind_are_kept() -> None:
    notices = Notices()
    for line in range(1, 100):
        notices.look(DROPPED, line, None)
    assert [one.line for one in notices.all()] == list(range(1, KEPT + 1))
