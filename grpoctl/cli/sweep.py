"""`grpoctl sweep`: which configuration is best on a fair budget?

What is here: the command's options, and what it does besides running: its plan, its trials, asking a study for no more
of them, and starting a sweep in the background. What is not: running one (sweep_session).
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

import typer

from core.errors import RunError, UserError
from grpoctl import console
from grpoctl.analysis.sweeps.wording import random_search_text
from grpoctl.children import child_environment, spawn
from grpoctl.cli import notify, sweep_session
from grpoctl.cli.options import Json, Overrides, Profile, wet
from grpoctl.cli.sweep_session import SweepRequest, Workers
from grpoctl.credentials import STORAGE_VARIABLE
from grpoctl.executors.slurm import SlurmJobs
from grpoctl.executors.terminal import wait_until_held
from grpoctl.files import replace_json
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir, find_study
from grpoctl.sweeps.candidates import Candidates, identity, name_of, points, size
from grpoctl.sweeps.loading import read_sweep
from grpoctl.sweeps.preview import cost_of, notes
from grpoctl.sweeps.samplers import Suggester, pool_of, startup, startup_of
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import read_book
from grpoctl.sweeps.storage import check_url
from grpoctl.sweeps.study import gone_on_with, lag_of, named_study, total_of, unfinished
from grpoctl.wording import plural

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
    typer.Option("--executor", help="How trials run: pool, inline, ray, slurm, or a package's.", metavar="NAME"),
]
SlurmPartition = Annotated[
    str | None, typer.Option("--slurm-partition", help="SLURM partition of the workers' jobs.", metavar="P")
]
SlurmGpus = Annotated[int | None, typer.Option("--slurm-gpus", help="GPUs of each worker's job.", min=0, metavar="N")]
SlurmTime = Annotated[
    str | None, typer.Option("--slurm-time", help="Time limit of each job, e.g. 4:00:00", metavar="LIMIT")
]
SlurmAccount = Annotated[str | None, typer.Option("--slurm-account", help="Account of the jobs.", metavar="A")]
SlurmQos = Annotated[str | None, typer.Option("--slurm-qos", help="QoS of the jobs.", metavar="Q")]
SlurmArgs = Annotated[
    str | None, typer.Option("--slurm-args", help="More options of sbatch, e.g. '--mem=16G'", metavar="ARGS")
]
Address = Annotated[
    str | None, typer.Option("--address", help="Of the Ray cluster; default: RAY_ADDRESS.", metavar="HOST:PORT")
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
    slurm_partition: SlurmPartition = None,
    slurm_gpus: SlurmGpus = None,
    slurm_time: SlurmTime = None,
    slurm_account: SlurmAccount = None,
    slurm_qos: SlurmQos = None,
    slurm_args: SlurmArgs = None,
    address: Address = None,
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
    notify_command: notify.AtTheEnd = None,
    json: Json = False,
) -> None:
    command = notify.words_of(notify_command)
    slurm = SlurmJobs(
        partition=slurm_partition, gpus=slurm_gpus, time=slurm_time, account=slurm_account, qos=slurm_qos,
        arguments=slurm_words(slurm_args),
    )  # fmt: skip
    request = SweepRequest(
        name=name, overrides=tuple(overrides or ()), profile=profile, trials=trials, seeds=seeds,
        storage=storage or os.environ.get(STORAGE_VARIABLE),
        workers=Workers(
            parallel=parallel, gpus=gpus, per_gpu=per_gpu, inline=inline, executor=executor, address=address,
            slurm=slurm,
        ),
        resume=resume or retry_failed, retry_failed=retry_failed, fail_on_trial_error=fail_on_trial_error,
        json=json, quiet=quiet, argv=tuple(sys.argv),
    )  # fmt: skip
    if stop:
        request_stop(request)
    elif print_trials:
        print_known_trials(request)
    elif dry_run:
        print_plan(request)
    elif detach:
        start_detached(request, command)
    else:
        begun = threading.Event()
        code = notify.telling(command, "sweep_ended", lambda: sweep_session.run(request, begun.set), begun.is_set)
        raise typer.Exit(code)


def slurm_words(text: str | None) -> tuple[str, ...]:
    """The words of --slurm-args as a shell divides them. Raises UserError where a quote is missing."""
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        raise UserError(f"got --slurm-args {text!r}: {error}") from None


def request_stop(request: SweepRequest) -> None:
    """Ask the driver of a study for no more trials: running ones go on to their end.

    Raises NotFoundError where there is no such study, UserError where nobody drives it.
    """
    study = find_study(Home.locate(), request.name)
    if not study.is_held():
        raise UserError(f"{study.id} is not running; there is nothing to stop")
    replace_json(study.control, {"schema": 1, "stop": True})
    if request.json:
        console.print_json({"schema": 1, "study": study.id, "stop": True})
    else:
        console.print_text(f"{study.id} starts no more trials; running ones end first (at once: grpoctl stop)")


def print_known_trials(request: SweepRequest) -> None:
    """The trials that are known by now: those of the study that would be continued, else those of a new one."""
    home = Home.locate()
    study, sweep = _study(request, home)
    if study is not None:
        book = read_book(study.state)
        rows = [(t.number, t.name, t.params, str(t.status)) for t in book.ordered()]
        total, _ = gone_on_with(study, sweep, book, request.trials)
    else:
        total = total_of(sweep, request.trials)
        rows = [(n, name, params, "") for n, name, params in known_trials(sweep, total, _slots(request, sweep))]
    if request.json:
        documents = [{"number": n, "name": name, "params": params, "status": how} for n, name, params, how in rows]
        console.print_json({"schema": 1, "sweep": sweep.name, "total": total, "trials": documents})
        return
    keys = list(dict.fromkeys(key for _, _, params, _ in rows for key in params))
    table = [
        (str(n), *([name] if name else []), *(_text(params, key) for key in keys), *([how] if how else []))
        for n, name, params, how in rows
    ]
    name_column = ["name"] if any(name for _, name, _, _ in rows) else []
    columns = ["trial", *name_column, *keys, *(["status"] if study is not None else [])]
    console.print_table(f"Trials of {sweep.name}, profile {sweep.profile}", columns, table)
    if len(rows) < total:
        console.print_text(f"{plural(total - len(rows), 'more trial')} will be chosen from the results of these")


def known_trials(sweep: SweepSpec, total: int, slots: int) -> list[tuple[int, str | None, Mapping[str, Any]]]:
    """(number, name, params) of the trials that depend on no result, assuming that none fails."""
    if sweep.allocation == "adaptive":  # it screens every candidate, in this order
        return [(number, name_of(sweep, point), point) for number, point in enumerate(pool_of(sweep, total))]
    if sweep.ladder or sweep.candidates:
        names = [*sweep.candidates, *(rung.name for rung in sweep.ladder)]
        named = zip(names, points(sweep), strict=True)
        return [(number, name, point) for number, (name, point) in enumerate(islice(named, total))]
    drawn = startup(sweep.sampler, lag_of(sweep, slots))
    first = total if drawn is None else min(total, drawn)
    suggester, taken = Suggester(sweep), set[str]()
    trials: list[tuple[int, str | None, Mapping[str, Any]]] = []
    for number in range(first):
        params = suggester.suggest(number, (), taken)
        if params is None:
            break
        taken.add(identity(params))
        trials.append((number, None, params))
    return trials


def print_plan(request: SweepRequest) -> None:
    """Notes, then what would be run, how long anything like it took here, and how to start it. Writes nothing."""
    home = Home.locate()
    if request.storage:
        check_url(request.storage)
    study, sweep = _study(request, home)
    request.workers.check()
    slots = _slots(request, sweep)
    book = None if study is None else read_book(study.state)
    if study is None or book is None:
        total, changed = total_of(sweep, request.trials), ""
    else:
        total, changed = gone_on_with(study, sweep, book, request.trials)
    first = known_trials(sweep, 1, slots)
    spec = Candidates.of(sweep).spec(first[0][2])
    cost = cost_of(sweep, spec, home, trials=total, slots=slots)
    # a study that is continued learns as if it still had as many at a time as it began with
    drawn = startup_of(sweep, lag_of(sweep, slots) if book is None else book.header["lag"])
    random_search = random_search_text(total, drawn, size(sweep))
    remarks = [*([changed] if changed else []), *([random_search] if random_search else []), *notes(sweep)]
    if request.json:
        planned = {**cost.document(), "startup": drawn, "notes": remarks}
        console.print_json({"schema": 1, "sweep": sweep.name, "study": None if study is None else study.id, **planned})
        return
    for line in (*(f"note: {remark}" for remark in remarks), *cost.lines()):
        console.print_text(line)
    command = wet(sweep_session.masked_argv(request))
    which = f"start it: {command}"
    if study is not None and book is not None:
        done = sum(trial.status.ended for trial in book.trials.values())
        which = f"{study.id} would be continued, {done} of these trials have ended: {command}"
    console.print_text(f"nothing was written; {which}")


def start_detached(request: SweepRequest, notify_command: Sequence[str] | None) -> None:
    """Start the sweep in a process of its own, and return once that drives the study.

    Whatever can be wrong with the request is refused here, before it is started.
    """
    home = Home.locate()
    with sweep_session.opened_study(request, home) as opened:
        for note in opened.notes:
            console.print_note(note)
        if opened.over:
            sweep_session.bring_up_to_date(request, opened)
        else:
            sweep_session.open_storage(request, opened).close()
    if opened.over:
        console.print_text(f"{opened.study.id} is complete")
        return
    study = opened.study
    told = [] if notify_command is None else ["--notify", shlex.join(notify_command)]
    arguments = ["grpoctl.app", "sweep", str(study.path), "--resume", *_options(request), *told]
    process = spawn(arguments, study.log, _environment(request))
    try:
        wait_until_held(study.lock, process, study.log)
    except RunError as error:
        raise RunError(f"{study.id} was not started in the background: {error}") from error
    if request.json:
        document = {"schema": 1, "study": study.id, "study_dir": str(study.path), "pid": process.pid}
        console.print_json({**document, "log": str(study.log)})
        return
    console.print_text(f"{study.id} runs in the background (process {process.pid})")
    console.print_text(f"follow it: grpoctl logs -f {study.id}\nstop it:   grpoctl stop {study.id}")


def _study(request: SweepRequest, home: Home) -> tuple[StudyDir | None, SweepSpec]:
    """The study that `--resume` would continue, and the sweep."""
    if request.resume and (study := named_study(home, request.name)) is not None:
        return study, read_sweep(study.spec)
    sweep = sweep_session.resolve(request, home)
    return (unfinished(sweep, home) if request.resume else None), sweep


def _slots(request: SweepRequest, sweep: SweepSpec) -> int:
    return max(1, len(request.workers.slots(sweep)))


def _options(request: SweepRequest) -> list[str]:
    """The options of the command line that the process in the background needs, too."""
    workers = request.workers
    values: list[tuple[str, object]] = [
        ("--trials", request.trials), ("--parallel", workers.parallel), ("--gpus", workers.gpus),
        ("--per-gpu", workers.per_gpu if workers.per_gpu != 1 else None), ("--executor", workers.executor),
        ("--address", workers.address),
        ("--slurm-partition", workers.slurm.partition), ("--slurm-gpus", workers.slurm.gpus),
        ("--slurm-time", workers.slurm.time), ("--slurm-account", workers.slurm.account),
        ("--slurm-qos", workers.slurm.qos), ("--slurm-args", shlex.join(workers.slurm.arguments) or None),
    ]  # fmt: skip
    flags = [("--inline", workers.inline), ("--retry-failed", request.retry_failed), ("--quiet", request.quiet),
             ("--fail-on-trial-error", request.fail_on_trial_error)]  # fmt: skip
    options = [word for name, value in values if value is not None for word in (name, str(value))]
    return options + [name for name, on in flags if on]


def _environment(request: SweepRequest) -> dict[str, str]:
    """The storage's URL travels in the environment: whoever lists processes must not read its password."""
    return {**child_environment(), **({STORAGE_VARIABLE: request.storage} if request.storage else {})}


def _text(params: Mapping[str, Any], key: str) -> str:
    return "-" if key not in params else f"{params[key]}"
