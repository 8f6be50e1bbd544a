"""Lines of a log that are one: a tensor printed over several lines, verl's `step:1 - ...` that a terminal wrapped, and
a list's item for a step that goes on in the next line.

What is not here: dictionaries over several lines, and what the lines say (console_lines).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_OPEN_TENSOR = re.compile(
    r"(?:\b|_)(?:reward|advantage)s?\s{0,9}(?:[=:]|is)?\s{0,9}(?:tensor|array)\(\s{0,9}\[[^\[\]]*\Z"
)
_OF_VERL = re.compile(r"\bstep:\d+ - [\w@/.-]+:")
_IN_TENSOR = re.compile(r"\s*(?:[-+\d.\[\],)]|nan|inf|device|grad_fn|dtype)")
_PART = r"[\w@/.-]*[A-Za-z_@][\w@/.-]*:(?:np\.\w+\()?[-+\w.]*\)?"  # of verl: a name and its value
_GOES_ON = re.compile(rf" ?(?:- )?[\w./@:+()-]*(?P<more>(?: - {_PART})*)(?: - [\w@/.-]*)? ?-? ?")
_CUT = re.compile(r"(?: - |\A)[\w@/.-]*\Z|[-:. ]\Z")  # a line of verl that ends in a name, or before its value
_NARROWEST, _WIDEST = 60, 300  # characters of a terminal's line
_OPEN_ITEM = re.compile(r"\s*[-*•]\s+\W{0,4}(?:step|iter(?:ation)?|epoch)\b.*\d.*,\s*\Z", re.IGNORECASE)
_OF_A_STEP = re.compile(r"\b(?:step|iter(?:ation)?|epoch)\b\s?[=:#]?\s?\d", re.IGNORECASE)
_IN_ITEM = re.compile(r"\s{2,}(?![-*•]\s)\S")
_MOST_LINES, _MOST_CHARACTERS = 200, 20_000


class JoinedLines:
    """Puts together what belongs together, line by line; all other lines are given as they come."""

    def __init__(self) -> None:
        self._held = ""
        self._number = 0  # of the first line that is held
        self._lines = 0
        self._width = 0  # of the lines that the terminal wrapped; 0 for a tensor, and for an item
        self._item = False

    @property
    def is_open(self) -> bool:
        """Whether something is held."""
        return bool(self._held)

    def feed(self, number: int, text: str) -> Iterator[tuple[int, str]]:
        """The lines that are whole now, each with its first line's number."""
        if self._held and self._goes_on(text):
            self._held += text if self._width else f" {text.strip()}"
            self._lines += 1
            if self._is_whole(text):
                yield from self.rest()
            return
        yield from self.rest()
        if self._begins(text):
            self._held, self._number, self._lines = text, number, 1
        else:
            yield number, text

    def rest(self) -> Iterator[tuple[int, str]]:
        """What is held, where the log ends or something else begins."""
        held, self._held = self._held, ""
        if held:
            yield self._number, held

    def _begins(self, text: str) -> bool:
        self._item = text.endswith(",") and len(text) <= _WIDEST and _OPEN_ITEM.match(text) is not None
        if self._item:
            self._width = 0
            return True
        if ("tensor(" in text or "array(" in text) and _OPEN_TENSOR.search(text) is not None:
            self._width = 0
            return True
        self._width = len(text) if len(text) <= _WIDEST and "step:" in text and _OF_VERL.search(text) else 0
        return self._width >= _NARROWEST

    def _goes_on(self, text: str) -> bool:
        if self._lines >= _MOST_LINES or len(self._held) > _MOST_CHARACTERS:
            return False
        if self._item:
            return len(text) <= _WIDEST and _IN_ITEM.match(text) is not None and _OF_A_STEP.search(text) is None
        if not self._width:
            return _IN_TENSOR.match(text) is not None
        match = _GOES_ON.fullmatch(text) if 0 < len(text) <= self._width else None
        if match is None or _OF_VERL.search(text) is not None:
            return False
        told = ":" in text and any(map(str.isdigit, text))
        return bool(match["more"]) or (told and _CUT.search(self._held) is not None)

    def _is_whole(self, text: str) -> bool:
        """Whether the line that was added is the last: it closes the tensor, is shorter than the terminal, or does not
        end in a comma.
        """
        if self._item:
            return not text.rstrip().endswith(",")
        return len(text) < self._width if self._width else "]" in text
