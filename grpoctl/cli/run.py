"""`grpoctl run`: train an experiment."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from grpoctl.cli.options import Json, Overrides, Profile

Seeds = Annotated[
    str | None, typer.Option("--seeds", help="One run per seed, one after another, e.g. 0,1,2", metavar="N,N,...")
]
Gpus = Annotated[str | None, typer.Option("--gpus", help="One process per GPU, e.g. 0,1", metavar="N,N,...")]
Processes = Annotated[
    int | None, typer.Option("--processes", help="Number of processes sharing the CPU cores.", min=1, metavar="N")
]


def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Experiment, recorded revision (p31@1) or .yaml file.")],
    overrides: Overrides = None,
    profile: Profile = "auto",
    seed: Annotated[int | None, typer.Option(help="Seed of the run.", min=0)] = None,
    seeds: Seeds = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the newest unfinished run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run; write nothing.")] = False,
    gpus: Gpus = None,
    processes: Processes = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run in the background: logs -f follows, stop ends it.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    json: Json = False,
) -> None:
    """Train an experiment and report the result."""
    from grpoctl import console
    from grpoctl.cli import exits, session
    from grpoctl.cli.run_slots import slots_of
    from grpoctl.cli.seeds import seeds_of

    asked = session.Asked(
        name=name, overrides=overrides or (), profile=profile, seeds=seeds_of(seed, seeds), resume=resume,
        json=json, quiet=quiet, argv=sys.argv, slots=slots_of(gpus, processes),
    )  # fmt: skip
    if dry_run:
        from grpoctl.cli.dry_run import print_plan

        print_plan(asked)
        return
    if detach:
        from grpoctl.cli.detaching import detach as start

        document = start(asked)
        if json:
            console.print_json(document)
        return
    results = session.run_all(asked)
    if json:
        console.print_json({"schema": 1, "runs": results} if seeds is not None else results[0])
    raise typer.Exit(exits.worst_exit_code(result["status"] for result in results))
