"""`grpoctl run`: train an experiment, here or in the background, or print what would run.

What is here: the command's options and `--dry-run`. What is not: running (run_session) and `--detach` (background).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from core.config import RunSpec, StageBase
from core.errors import UserError
from grpoctl import console
from grpoctl.cli import background, exits, notify, run_session
from grpoctl.cli.options import Json, Overrides, Profile, parse_seeds, wet
from grpoctl.cli.run_session import RunRequest
from grpoctl.config import dump, plain, run_stem, spec_sha
from grpoctl.executors.slots import Slot, check_devices, cpu_slots, gpu_slots, usable_cores
from grpoctl.runs.pace import Like, budget_of, duration, rates_of_runs
from grpoctl.runs.run_dir import Home

PER_CORE = 4  # processes; each holds a model, and more only wait for each other

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
    notify_command: notify.AtTheEnd = None,
    json: Json = False,
) -> None:
    command = notify.words_of(notify_command)
    if seed is not None and seeds is not None:
        raise UserError(f"got --seed {seed} and --seeds {seeds}; give one of them")
    request = RunRequest(
        name=name, overrides=overrides or (), profile=profile, seeds=[seed] if seeds is None else parse_seeds(seeds),
        resume=resume, json=json, quiet=quiet, argv=sys.argv, slots=run_slots(gpus, processes),
    )  # fmt: skip
    if dry_run:
        print_plan(request)
    elif detach:
        document = background.detach(request, command)
        if json:
            console.print_json(document)
    else:
        begun = threading.Event()
        code = notify.telling(
            command, "run_ended", lambda: _run_all(request, begun, several=seeds is not None), begun.is_set
        )
        raise typer.Exit(code)


def _run_all(request: RunRequest, begun: threading.Event, *, several: bool) -> tuple[int, dict[str, Any]]:
    """The exit code, and what is told of the end, of runs that are run here; `begun` is set once one has run."""
    results = run_session.run_all(request, begun.set)
    if request.json:
        console.print_json({"schema": 1, "runs": results} if several else results[0])
    return exits.worst_exit_code(result["status"] for result in results), run_session.told(results)


def run_slots(gpus: str | None, processes: int | None) -> tuple[Slot, ...]:
    """A slot for each process of a run (`--gpus 0,1` or `--processes 2`), none where neither option is there.

    Raises UserError for both, for GPUs that are not there, and for far more processes than cores.
    """
    if gpus is None:
        most = PER_CORE * (cores := usable_cores())
        if processes is not None and processes > most:
            raise UserError(f"got --processes {processes} on {cores} core(s); allowed: at most {most} here")
        return () if processes is None else tuple(replace(slot, device="") for slot in cpu_slots(processes))
    if processes is not None:
        raise UserError("got --gpus and --processes; --gpus runs one process on each GPU, --processes uses none")
    try:
        numbers = parse_seeds(gpus)
    except UserError:
        raise UserError(f"got --gpus {gpus!r}; expected numbers from 0, each once, separated by commas: 0,1") from None
    check_devices(numbers, "--processes N shares the cores")
    return gpu_slots(numbers)


def print_plan(request: RunRequest) -> None:
    """Print the runs there would be and the resolved spec, as text or JSON. Writes nothing.

    Raises SpecError, NotFoundError, UserError.
    """
    home = Home.locate()
    loaded, why = run_session.resolve(request, home)
    spec = loaded[0].spec
    if request.json:
        runs = [{"run": run_stem(entry.spec), "seed": entry.spec.seed} for entry in loaded]
        document = {"schema": 1, "experiment": spec.name, "profile": spec.profile, "spec_sha": spec_sha(spec)}
        console.print_json({**document, "dry_run": True, "home": str(home.path), "runs": runs, "spec": plain(spec)})
        return
    console.write(dump(spec))
    print_end_of_plan(request, home, [entry.spec for entry in loaded], why)


def drawn_text(stage: StageBase) -> str:
    """What each step of a stage draws, behind the number of its steps."""
    if stage.rows_per_step:
        return f" x {stage.rows_per_step} completions"
    return " on stored outputs" if getattr(stage, "groups", "online") == "offline" else ""


def print_end_of_plan(request: RunRequest, home: Home, specs: Sequence[RunSpec], why: str) -> None:
    """Print the three lines that matter: what would be run, how much and how long that is, and how to start it."""
    spec = specs[0]
    names = ", ".join(f"{run_stem(each)}-N" for each in specs)
    console.print_text(f"would run {names} in {home.runs_folder}; profile {spec.profile} ({why})")
    stages = []
    for name, stage in spec.stages.items():
        label = f"stage {name}: " if len(spec.stages) > 1 else ""
        text = f"{stage.max_steps} steps{drawn_text(stage)}"
        if spec.budget is not None and name == [*spec.stages][-1]:
            text = f"steps x {stage.rows_per_step} completions until {spec.budget.amount} {spec.budget.unit} are spent"
        stages.append(f"{label}{text}")
    _, each = budget_of(spec)
    time = duration(rates_of_runs(home, Like.of(spec)), each * len(specs))
    by = "" if spec.trainer.kind == "grpoctl" else f" by trainer.kind {spec.trainer.kind}"
    unknown = f"time unknown: no run of {spec.name} under profile {spec.profile}{by} was measured here yet"
    console.print_text(f"{', '.join(stages)}; {unknown if time is None else time.text}")
    console.print_text(f"nothing was written; start it: {wet(request.argv)}")
