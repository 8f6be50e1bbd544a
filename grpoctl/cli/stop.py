"""`grpoctl stop`: stop a running run or study."""

from __future__ import annotations

from typing import Annotated

import typer

from grpoctl.cli.options import Json

PATIENCE = 60.0  # seconds: a step of a large model, or the workers of a sweep


def stop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Run or study: id, its beginning, name or directory.")],
    json: Json = False,
) -> None:
    """Stop a running run or study; --resume continues it."""
    from core.errors import UserError
    from grpoctl import console
    from grpoctl.cli.following import followed
    from grpoctl.cli.places import driven_study, print_choice, run_or_study
    from grpoctl.runs import liveness
    from grpoctl.runs.locks import end_holder
    from grpoctl.runs.run_dir import Home

    home = Home.locate()
    liveness.reconcile(home)
    place = run_or_study(home, name, running_first=True)
    print_choice(home, name, place)
    if (study := driven_study(place)) is not None:
        raise UserError(f"{place.id} belongs to a sweep that would start it again; stop that: grpoctl stop {study.id}")
    pid = end_holder(place.lock, PATIENCE)
    liveness.reconcile(home)
    ended, message = followed(place).standing()
    if pid is None:
        raise UserError(f"{place.id} is not running ({ended}{f': {message}' if message else ''}); nothing to stop")
    if json:
        console.print_json({"schema": 1, "name": place.id, "pid": pid, "status": ended, "message": message})
    else:
        console.print_text(f"{place.id}: {ended}{f', {message}' if message else ''}")
