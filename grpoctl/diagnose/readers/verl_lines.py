"""verl's console lines, `step:1 - key:value - key:value - ...`, read quickly: a long run prints gigabytes of them.

What is not here: other forms of metrics (console_lines), and which line is which step (console).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from grpoctl.diagnose.readers.metric_names import name_of
from grpoctl.diagnose.readers.respelled import value_of

_LINE = re.compile(r"\bstep:\s*(\d{1,15})\s+-\s+(?=[\w@/.-]+:)")
_VALUE, _OF_NUMPY = "([^ ]*)", r"np\.\w+\(([^ )]*)\)"  # np.float64(0.5), as some versions print it
_ROUNDED = ("0.00", "0.000", "0.0000")
_SMALL = ("learning_rate", "grad_norm", "beta")
_SETTLED = 50  # lines of one layout: from then on a pattern of it pays
_MOST_PARTS = 2000  # of such a layout
_LOOKED_AT = 100  # of so many lines one is looked at for a metric that took another part's place


class VerlLines:
    """Reads such lines of one log; a line mostly has its metrics where the last one had."""

    def __init__(self, is_known: Callable[[str], bool], note_unknown: Callable[[Iterable[str]], None]) -> None:
        self._is_known, self._note_unknown = is_known, note_unknown
        self._called: list[str] = []  # what a line's parts are called
        self._parts: list[str] = []  # these, up to its last metric
        self._names: list[str] = []  # of the metrics
        self._places: list[int] = []  # of these among the parts
        self._prefixes: list[str] = []  # "name:"
        self._small: list[int] = []  # metrics that may be too small for three decimals
        self._colons = 0  # that such a line has
        self._lines = 0  # of this layout
        self._pattern: re.Pattern[str] | None = None  # of it, once it is settled

    def cells_of(self, text: str) -> dict[str, float | None] | None:
        """The line's metrics and its step; None for lines of another form."""
        at = text.find("step:")  # what Ray puts before it is short; a line of text with that word is looked through
        if (match := _LINE.match(text, at) or _LINE.search(text, at)) is None:
            return None
        begin = match.end()
        texts = self._settled(text, begin) or self._values_of(text[begin:])
        try:
            values: list[float | None] = list(map(float, texts))
        except ValueError:  # np.float64(0.5), None
            values = list(map(value_of, texts))
        cells = dict(zip(self._names, values, strict=True))
        cells["step"] = float(match[1])
        for place in self._small:
            if values[place] == 0.0 and texts[place] in _ROUNDED:
                cells.pop(self._names[place], None)  # older versions print three decimals: 0.000 may be 1e-06
        return cells

    def _settled(self, text: str, begin: int) -> Sequence[str]:
        """The values behind `begin` as they are written, where many lines before had their parts as this one."""
        self._lines += 1
        match = None if self._pattern is None else self._pattern.match(text, begin)
        if match is None or self._lines % _LOOKED_AT == 0 or text.count(":", begin) != self._colons:
            return ()
        return match.groups()

    def _values_of(self, line: str) -> Sequence[str]:
        """The values as they are written."""
        if line.count(":") != self._colons or (  # one a part, and quickly counted
            self._lines % _LOOKED_AT == 0 and _called(line) != self._called
        ):
            self._learn(line)
        texts = self._at_places(line)
        if "" in texts or any(":" in text for text in texts):  # a name is still before what stands elsewhere
            self._learn(line)
            texts = self._at_places(line)
        if self._lines == _SETTLED and len(self._parts) <= _MOST_PARTS:
            self._pattern = self._pattern_of(texts)
        return texts

    def _at_places(self, line: str) -> Sequence[str]:
        """What stands at the metrics' places, "" for each where the line has too few; a name of another part stays."""
        parts = line.split(" - ", len(self._parts))  # timings stand behind the metrics
        if len(parts) < len(self._parts):
            return [""] * len(self._places)
        return list(map(str.removeprefix, map(parts.__getitem__, self._places), self._prefixes))

    def _learn(self, line: str) -> None:
        """Which parts of a line are metrics, for the lines to come."""
        self._called = names = _called(line)
        known = [(place, name) for place, name in enumerate(names) if name and self._is_known(name)]
        self._places = [place for place, _ in known]
        self._names = [name for _, name in known]
        self._parts = names[: self._places[-1] + 1] if known else []
        self._prefixes = [f"{name}:" for name in self._names]
        self._small = [at for at, name in enumerate(self._names) if name_of(name) in _SMALL]
        self._colons = line.count(":")
        self._lines, self._pattern = 0, None
        self._note_unknown(name for name in names if name and not self._is_known(name))

    def _pattern_of(self, texts: Sequence[str]) -> re.Pattern[str]:
        """Of a line's parts up to its last metric, with each metric's value as a group; written as those of a line."""
        values = ["[^ ]*"] * len(self._parts)
        for place, text in zip(self._places, texts, strict=True):
            values[place] = _OF_NUMPY if text.startswith("np.") else _VALUE
        parts = (f"{re.escape(name)}:{one}" for name, one in zip(self._parts, values, strict=True))
        return re.compile(" - ".join(parts) + r"(?= - |$)")


def _called(line: str) -> list[str]:
    """What the line's parts are called."""
    return [part.rpartition(":")[0] for part in line.split(" - ")]
