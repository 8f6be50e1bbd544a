"""Stop strings: a completion ends with the token that completes the first of them, as in transformers' generation.

That token is drawn, counted and learned from like any other; no end token follows, and the row is not truncated. Its
text ends behind the stop string, also where the token goes on. What stands in the prompt is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MARGIN = 8  # tokens before the longest stop string: what of them is decoded in halves stays outside of it


class StopStrings:
    """Finds the first token of a completion with which its text has one of the strings."""

    def __init__(self, tokenizer: Any, strings: Sequence[str]) -> None:
        self._tokenizer, self._strings = tokenizer, strings
        self._window = max(len(string.encode()) for string in strings) + MARGIN  # a token has a byte at least

    def first(self, ids: Sequence[int], start: int) -> int | None:
        """The place of that token, None where no text has one; nothing before `start` completed any."""
        if not self._within(ids, start, len(ids)):
            return None
        return next((end for end in range(start, len(ids)) if self._within(ids, end, end + 1)), None)

    def _within(self, ids: Sequence[int], first: int, end: int) -> bool:
        """True when the text up to `end` has a stop string that may have been completed from `first` on."""
        window = ids[max(0, first - self._window) : end]
        (text,) = self._tokenizer.batch_decode([window], skip_special_tokens=False)
        return any(string in text for string in self._strings)


def text_to_stop(text: str, strings: Sequence[str]) -> str:
    """The text up to the end of the stop string that is completed first; all of it where there is none."""
    ends = [at + len(string) for string in strings if (at := text.find(string)) >= 0]
    return text[: min(ends)] if ends else text


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """What ends a completion: a token of these (a tensor on the CPU), and a stop string where there are any."""

    ids: Tensor
    strings: StopStrings | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnStep:
    """One token of every row that was still in the batch; which rows those are is known on the CPU."""

    numbers_R: Tensor
    tokens_R: Tensor
    logprobs_R: Tensor


class StopWatch:
    """Which rows of a batch have stopped: `stopped` has the place of their last token by the row's number."""

    def __init__(self, ends: Ends, rows: int) -> None:
        self._strings, self._end_ids = ends.strings, frozenset(ends.ids.tolist())
        self._ids: list[list[int]] = [[] for _ in range(rows)]
        self._over: set[int] = set()
        self._looked = 0  # tokens of the longest row
        self.stopped: dict[int, int] = {}

    def also_stopped(self, over: Sequence[bool], steps: Sequence[DrawnStep]) -> list[bool]:
        """For each row that draws, whether it is over or has stopped.

        Of the steps so far those are looked at that are new. They are all of the same rows: rows leave after a look.
        """
        if self._strings is None or self._looked == len(steps):
            return list(over)
        numbers: list[int] = steps[-1].numbers_R.tolist()
        new = torch.stack([step.tokens_R for step in steps[self._looked :]], dim=-1).tolist()
        self._looked = len(steps)
        for number, further in zip(numbers, new, strict=True):
            if number not in self._over:
                self._look(self._strings, number, further)
        return [ended or number in self.stopped for ended, number in zip(over, numbers, strict=False)]

    def _look(self, strings: StopStrings, number: int, further: Sequence[int]) -> None:
        """Further tokens of a row; what follows its end is not looked at."""
        ids = self._ids[number]
        begun = len(ids)
        end = next((place for place, token in enumerate(further) if token in self._end_ids), None)
        ids.extend(further if end is None else further[: end + 1])
        if (place := strings.first(ids, begun)) is not None:
            self.stopped[number] = place
        if place is not None or end is not None:
            self._over.add(number)
