"""`grpoctl check`: what a configuration can and cannot do, before it runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from grpoctl.commands.options import Json, Overrides, Profile


def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Experiment, sweep or .yaml file.")],
    overrides: Overrides = None,
    profile: Profile = "full",
    json: Json = False,
) -> None:
    """Say what a spec can and cannot do: advantages, dead groups, knobs that do nothing."""
    from grpoctl import console
    from grpoctl.commands import checking, checking_sweep
    from grpoctl.sweeps.loading import kinds_of

    profile, given = "full" if profile == "auto" else profile, tuple(overrides or ())
    kinds = kinds_of(name)
    found: dict[str, Any] = {}
    if "experiment" in kinds:
        found = checking.check(name, profile, given, json=json)
    if "sweep" in kinds:
        found = {"schema": 1, **found, "sweep": checking_sweep.check(name, profile, given, json=json)}
    if json:
        console.print_json(found)
