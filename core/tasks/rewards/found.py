"""A reward function as the process found it: what is passed to it, and what it needs.

What is here: names of arguments. What is not: finding it (resolving, in the process) and calling it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from core.config.task import RewardSpec

EXTRAS = ("trainer_state", "log_extra", "log_metric")  # what TRL hands to functions besides rows
ROWS = ("prompts", "completions", "completion_ids")
_NO_COLUMNS = frozenset({"prompt", "completion", "completion_ids"})  # of a dataset: TRL does not pass these on


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """One function. `named` are its parameters, `required` those without a default; `anything`: it has **kwargs."""

    spec: RewardSpec
    number: int
    named: frozenset[str]
    required: tuple[str, ...]
    anything: bool
    file: str | None
    sha256: str | None

    def wants(self, name: str) -> bool:
        """Whether a column or an extra of this name is passed to it."""
        return name in self.named or (self.anything and name not in _NO_COLUMNS - set(ROWS))

    def lacks(self, columns: Collection[str]) -> str | None:
        """What to say of the first argument that it requires and nobody gives; None where it has all."""
        there = {*columns, *ROWS, *EXTRAS}
        for name in self.required:
            if name not in there:
                near = difflib.get_close_matches(name, sorted(there), n=1)
                columns_told = ", ".join(sorted(columns)[:12]) + (", ..." if len(columns) > 12 else "")
                return (
                    f"reward {self.spec.label}: {self.spec.function} needs an argument `{name}`, which is no column of "
                    f"the data (columns: {columns_told or 'none'}); "
                    f"{f'did you mean {near[0]}? ' if near else ''}rename one of them, or give the argument a default"
                )
        return None


def found(spec: RewardSpec, number: int, facts: Mapping[str, Any]) -> Reward:
    """The record of what the process tells of function `number`."""
    return Reward(
        spec=spec,
        number=number,
        named=frozenset(facts["named"]),
        required=tuple(facts["required"]),
        anything=facts["anything"],
        file=facts["file"],
        sha256=facts["sha256"],
    )
