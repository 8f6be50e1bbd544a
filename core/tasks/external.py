"""The task of a run that a command trains: its problems and rewards are known to that program alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import TaskError
from core.tasks.base import Example, Outcome, Split, Task


class ExternalTask(Task):
    """No problems, and no score of anything."""

    def examples(self, split: Split) -> Sequence[Example]:
        """None that are known here."""
        return ()

    def score(
        self, examples: Sequence[Example], outputs: Sequence[Any], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """Raises TaskError: whoever trains scores."""
        raise TaskError("the task is external: only the command that trains can score")

    def record(self, output: Any) -> Mapping[str, object]:
        """The output as text."""
        return {"text": str(output)}

    def shown(self, example: Example) -> str:
        """Its id."""
        return example.id

    def shown_output(self, sample: Mapping[str, object]) -> str:
        """The text."""
        return str(sample["text"])
