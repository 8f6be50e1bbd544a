"""`grpoctl check`: what a configuration can and cannot do, before it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from grpoctl.commands.options import Json, Overrides, Profile


def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Experiment or .yaml file.")],
    overrides: Overrides = None,
    profile: Profile = "full",
    json: Json = False,
) -> None:
    """Say what a spec can and cannot do: advantages, dead groups, knobs that do nothing."""
    from core.health.foresight.report import foresee
    from core.spec.fit import check_fit
    from core.tasks import registry
    from grpoctl import console
    from grpoctl.commands import checking
    from grpoctl.runs.launch import revisions_of
    from grpoctl.runs.run_dir import Home
    from grpoctl.specs import load

    profile = "full" if profile == "auto" else profile
    spec = load(name, profile=profile, overrides=overrides or (), revisions=revisions_of(Home.locate())).spec
    check_fit(spec)
    registry.build(spec.task)  # a task can refuse what a type cannot: more problems than there are
    if json:
        console.print_json(checking.document(spec, foresee(spec)))
    else:
        checking.say(spec, foresee(spec))
