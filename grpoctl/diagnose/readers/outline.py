"""Which headings an indented line of a log stands below: `critic:`, `  score:`, `    mean: 0.5`, as YAML is printed.

What is not here: which names are metrics (metric_names), and the values (console_lines).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEADING = re.compile(r"\s*(?:[^\w\s]+\s*)?(?P<name>[A-Za-z][\w /.()-]{0,60}?)\s*:\s*")
_LONGEST = 200  # characters of a heading, or of a line below one


class Outline:
    """The headings above the line that was seen last, the outermost first."""

    def __init__(self) -> None:
        self._above: list[tuple[int, str]] = []  # (indentation, name)

    @property
    def headings(self) -> list[str]:
        """Their names."""
        return [name for _, name in self._above]

    def see(self, text: str) -> None:
        """A line of the log. An empty one ends nothing."""
        if len(text) > _LONGEST:
            self._above.clear()
            return
        line = text.rstrip()
        if not line or not (self._above or line.endswith(":")):
            return
        indentation = len(line) - len(line.lstrip())
        while self._above and self._above[-1][0] >= indentation:
            self._above.pop()
        if line.endswith(":") and (match := _HEADING.fullmatch(line)) is not None:
            self._above.append((indentation, match["name"]))

    def names_of(self, name: str) -> Iterator[str]:
        """What a line's name may be with the headings above it: with all of them, then without the outermost."""
        headings = self.headings
        for begin in range(len(headings)):
            yield "/".join([*headings[begin:], name])
