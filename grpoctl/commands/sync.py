"""`grpoctl sync`: bring MLflow up to date with the run directories."""

from __future__ import annotations

import typer

from grpoctl.commands.options import Json


def sync(json: Json = False) -> None:
    """Write to MLflow whatever it does not have yet."""
    from grpoctl import console, exits
    from grpoctl.runs.run_dir import Home
    from grpoctl.tracking.sync import sync as catch_up

    report = catch_up(Home.locate())
    behind = [run for run in report.runs if run.outcome == "behind"]
    if json:
        runs = [{"run_id": run.run_id, "outcome": run.outcome, "error": run.error} for run in report.runs]
        console.print_json({"schema": 1, "store": report.store, "runs": runs})
    else:
        for run in behind:
            console.print_error(f"{run.run_id}: {run.error}")
        counts = ", ".join(f"{len(report.of(kind))} {kind}" for kind in ("written", "unchanged", "live", "behind"))
        console.print_text(f"{report.store}: {counts}")
    raise typer.Exit(exits.FAILED if behind else exits.OK)
