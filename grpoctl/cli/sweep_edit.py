"""`grpoctl sweep-edit`: end a trial of a running study, or add a changed copy of one."""

from __future__ import annotations

from typing import Annotated

import typer

from core.errors import UserError
from grpoctl import console
from grpoctl.cli.options import Json
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import find_study
from grpoctl.sweeps.edits import request_clone, request_end


def sweep_edit(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Study, or sweep (its newest study).")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="With --clone: what is changed.")
    ] = None,
    stop_trial: Annotated[int | None, typer.Option(help="End this trial at its next evaluation.", min=0)] = None,
    clone: Annotated[int | None, typer.Option(help="Add a copy of this trial with other settings.", min=0)] = None,
    json: Json = False,
) -> None:
    if (stop_trial is None) == (clone is None):
        got = "neither of" if clone is None else "both"
        raise UserError(f"got {got} --stop-trial and --clone; give one of them")
    if clone is None and overrides:
        raise UserError(f"got {overrides[0]} with --stop-trial; settings belong to --clone")
    found = find_study(Home.locate(), study)
    document: dict[str, object] = {"schema": 1, "study": found.id, "running": found.is_held()}
    if stop_trial is not None:
        request_end(found, stop_trial)
        document |= {"stop_trial": stop_trial}
        text = f"trial {stop_trial} of {found.id} ends at its next evaluation"
    else:
        assert clone is not None
        params = request_clone(found, clone, overrides or ())
        document |= {"clone": clone, "params": params}
        text = f"a copy of trial {clone} with {', '.join(overrides or ())} is added to {found.id}"
    if json:
        console.print_json(document)
        return
    later = "" if document["running"] else f", once the study goes on: grpoctl sweep {found.id} --resume"
    console.print_text(text + later)
