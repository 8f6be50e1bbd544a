"""`grpoctl show`: an experiment as it would run, or a run as it went."""

from __future__ import annotations

from typing import Annotated

import typer

from grpoctl.commands.options import Json, Overrides, Profile


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Experiment, or run (id, its beginning, or directory).")],
    overrides: Overrides = None,
    profile: Profile = "full",
    samples: Annotated[bool, typer.Option("--samples", help="What the run wrote, in tables.")] = False,
    step: Annotated[int | None, typer.Option(help="The samples of one step of the run.", min=1)] = None,
    worst: Annotated[int | None, typer.Option(help="Of that step, only the N worst rewarded.", min=1)] = None,
    json: Json = False,
) -> None:
    """Show an experiment as it would run, or a run."""
    from grpoctl.commands import showing
    from grpoctl.runs import status
    from grpoctl.runs.run_dir import Home

    home = Home.locate()
    status.reconcile(home)
    if step is not None or worst is not None:
        showing.step_samples(home, name, step, worst, json=json)
    elif samples:
        showing.sample_tables(home, name, json=json)
    elif showing.is_experiment(home, name):
        showing.experiment(home, name, profile, overrides or (), json=json)
    else:
        showing.run(home, name, json=json)
