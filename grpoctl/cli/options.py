"""Arguments that several commands share, as typer annotations."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else on standard output.")]
Profile = Annotated[
    str, typer.Option("--profile", "-p", help="auto, or a profile of the spec (tiny, full, ...).", metavar="NAME")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings to override, e.g. stages.grpo.learning_rate=1e-4"),
]
