"""`grpoctl sync`: bring MLflow, and databases of studies that were away, up to date with the run directories."""

from __future__ import annotations

import typer

from grpoctl import console
from grpoctl.cli import exits
from grpoctl.cli.options import Json
from grpoctl.runs.run_dir import Home


def sync(json: Json = False) -> None:
    from grpoctl.sweeps.study import make_up_all
    from grpoctl.tracking.sync import sync as catch_up

    home = Home.locate()
    databases = make_up_all(home)  # first: it may change a sweep.json, which MLflow has, too
    if not json:
        for study, error in databases.items():
            if error:
                console.print_error(f"{study}: {error}")
            else:
                console.print_text(f"{study}: Optuna's database is complete")
    report = catch_up(home)
    behind = [run for run in report.runs if run.outcome == "behind"]
    if json:
        runs = [{"run_id": run.run_id, "outcome": run.outcome, "error": run.error} for run in report.runs]
        made_up = [
            {"study": study, "outcome": "behind" if error else "written", "error": error or None}
            for study, error in databases.items()
        ]
        document = {"schema": 1, "store": report.store, "runs": runs}
        console.print_json(document | ({"databases": made_up} if made_up else {}))
    else:
        for run in behind:
            console.print_error(f"{run.run_id}: {run.error}")
        counts = ", ".join(f"{len(report.of(kind))} {kind}" for kind in ("written", "unchanged", "live", "behind"))
        console.print_text(f"{report.store}: {counts}")
    raise typer.Exit(exits.FAILED if behind or any(databases.values()) else exits.OK)
