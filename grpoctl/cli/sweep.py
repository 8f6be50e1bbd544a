"""`grpoctl sweep`: which configuration is best on a fair budget?"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from grpoctl.cli.options import Json, Overrides, Profile

Number = Annotated[
    int | None, typer.Option("--trials", help="Total number of trials, including those already done.", min=1)
]
Parallel = Annotated[
    int | None, typer.Option("--parallel", help="Number of runs at the same time.", min=1, metavar="N")
]
Gpus = Annotated[str | None, typer.Option("--gpus", help="Workers on these GPUs, e.g. 0,1", metavar="N,N,...")]
PerGpu = Annotated[int, typer.Option("--per-gpu", help="Workers on each of --gpus.", min=1, metavar="M")]
Executor = Annotated[
    str | None,
    typer.Option("--executor", help="How trials run: pool, inline, or a package's executor.", metavar="NAME"),
]
Seeds = Annotated[str | None, typer.Option("--seeds", help="Seeds of each trial, e.g. 0,1,2", metavar="N,N,...")]
Storage = Annotated[str | None, typer.Option("--storage", help="Optuna RDB URL; default: SQLite.", metavar="URL")]
Strict = Annotated[
    bool, typer.Option("--fail-on-trial-error", help="Stop at the first failed trial, with exit code 3.")
]


def sweep(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Sweep, .yaml file, or with --resume a study's id.")],
    overrides: Overrides = None,
    profile: Profile = "auto",
    trials: Number = None,
    seeds: Seeds = None,
    parallel: Parallel = None,
    gpus: Gpus = None,
    per_gpu: PerGpu = 1,
    inline: Annotated[bool, typer.Option("--inline", help="Run in this process, one run after another.")] = False,
    executor: Executor = None,
    storage: Storage = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the newest unfinished study.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Resume, and retry failed trials.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Start no more trials in a running study.")] = False,
    print_trials: Annotated[
        bool, typer.Option("--print-trials", help="Print the trials determined so far; run nothing.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run, and its cost; write nothing.")
    ] = False,
    fail_on_trial_error: Strict = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run in the background: logs -f follows, stop ends it.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    json: Json = False,
) -> None:
    """Try many configurations on a fair budget and rank them."""
    import os

    from grpoctl.cli import planning, sweeping
    from grpoctl.credentials import STORAGE_VARIABLE

    storage = storage or os.environ.get(STORAGE_VARIABLE)
    asked = sweeping.Asked(
        name=name, overrides=tuple(overrides or ()), profile=profile, trials=trials, seeds=seeds, storage=storage,
        workers=sweeping.Workers(parallel=parallel, gpus=gpus, per_gpu=per_gpu, inline=inline, executor=executor),
        resume=resume or retry_failed, retry_failed=retry_failed, fail_on_trial_error=fail_on_trial_error,
        json=json, quiet=quiet, argv=tuple(sys.argv),
    )  # fmt: skip
    if stop:
        planning.ask_to_stop(asked)
    elif print_trials:
        planning.print_trials(asked)
    elif dry_run:
        planning.print_plan(asked)
    elif detach:
        planning.detach(asked)
    else:
        raise typer.Exit(sweeping.run(asked))
