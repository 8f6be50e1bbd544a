"""`grpoctl show`: an experiment or sweep as it would run, a run or study as it went."""

from __future__ import annotations

from typing import Annotated

import typer

from grpoctl.cli.options import Json, Overrides, Profile


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Experiment, sweep, or run or study (id, path).")],
    overrides: Overrides = None,
    profile: Profile = "auto",
    samples: Annotated[bool, typer.Option("--samples", help="Tables of the run's samples.")] = False,
    step: Annotated[int | None, typer.Option(help="The samples of one step of the run.", min=1)] = None,
    worst: Annotated[int | None, typer.Option(help="Only the N lowest rewards of that step.", min=1)] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Of a sweep: one line per trial.")] = False,
    json: Json = False,
) -> None:
    """Show a spec as it would run, or the result of a run or sweep."""
    from core.errors import UserError
    from grpoctl.cli import showing, showing_sweep
    from grpoctl.runs import liveness
    from grpoctl.runs.run_dir import Home, RunDir
    from grpoctl.runs.study_dir import StudyDir

    home = Home.locate()
    liveness.reconcile(home)
    if step is not None or worst is not None:
        showing.step_samples(home, name, step, worst, json=json)
        return
    if samples:
        showing.sample_tables(home, name, json=json)
        return
    found = showing.meant(home, name)
    if found == "sweep" and not overrides:
        found = showing_sweep.newest_study(home, name) or "sweep"
    if isinstance(found, StudyDir):
        showing_sweep.study(found, json=json, as_csv=as_csv)
    elif found == "sweep":
        showing_sweep.spec(home, name, profile, overrides or (), json=json, as_csv=as_csv)
    elif as_csv:
        raise UserError(f"{name} is no sweep; --csv lists a sweep's trials")
    elif isinstance(found, RunDir):
        showing.run(found, json=json)
    else:
        showing.experiment(home, name, profile, overrides or (), json=json)
