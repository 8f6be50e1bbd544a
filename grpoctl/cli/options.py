"""Arguments that several commands share, as typer annotations, and lists of numbers such as `--seeds 0,1,2`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from core.errors import UserError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else on standard output.")]
Columns = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="COLUMN=METRIC", help="Read this column or name of the log as that metric."),
]
KnownSettings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting that the log does not contain.")
]
Profile = Annotated[
    str, typer.Option("--profile", "-p", help="auto, or a profile of the spec (tiny, full, ...).", metavar="NAME")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings to override, e.g. stages.grpo.learning_rate=1e-4"),
]


def wet(argv: Sequence[str]) -> str:
    """The command line without --dry-run, as a shell takes it."""
    return shlex.join(["grpoctl", *(word for word in argv[1:] if word != "--dry-run")])


def parse_seeds(text: str) -> list[int]:
    """The seeds of `0,1,2`, or the numbers of GPUs. Raises UserError for anything else, and for a number twice."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UserError(f"got --seeds {text!r}; expected whole numbers from 0 separated by commas, e.g. 0,1,2")
    numbers = [int(part) for part in parts]
    if len(set(numbers)) != len(numbers):
        raise UserError(f"got --seeds {text!r}; each seed once: the same seed gives the same run")
    return numbers
