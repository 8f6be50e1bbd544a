"""What `grpoctl sweep` does besides running: its plan, its trials, asking one to stop, and starting one apart."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from core.errors import RunError, UserError
from grpoctl import console
from grpoctl.analysis.sweeps.wording import random_search_text
from grpoctl.children import spawn
from grpoctl.cli import sweeping
from grpoctl.cli.sweeping import Asked
from grpoctl.credentials import STORAGE_VARIABLE
from grpoctl.executors.terminal import wait_until_held
from grpoctl.files import replace_json
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir, find_study
from grpoctl.sweeps.candidates import Candidates, identity, points
from grpoctl.sweeps.loading import read_sweep
from grpoctl.sweeps.preview import cost_of, notes
from grpoctl.sweeps.samplers import Suggester, startup
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import read_book
from grpoctl.sweeps.study import lag_of, named_study, total_of, unfinished
from grpoctl.wording import plural


def ask_to_stop(asked: Asked) -> None:
    """Ask the driver of a study for no more trials: running ones go on to their end.

    Raises NotFoundError where there is no such study, UserError where nobody drives it.
    """
    study = find_study(Home.locate(), asked.name)
    if not study.is_held():
        raise UserError(f"{study.id} is not running; there is nothing to stop")
    replace_json(study.control, {"schema": 1, "stop": True})
    if asked.json:
        console.print_json({"schema": 1, "study": study.id, "stop": True})
    else:
        console.print_text(f"{study.id} starts no more trials; running ones end first (at once: grpoctl stop)")


def print_trials(asked: Asked) -> None:
    """The trials that are known by now: those of the study that would be continued, else those of a new one."""
    home = Home.locate()
    study, sweep = _study(asked, home)
    if study is not None:
        book = read_book(study.state)
        rows = [(t.number, t.name, t.params, str(t.status)) for t in book.ordered()]
        total = int(book.header["total"])
    else:
        total = total_of(sweep, asked.trials)
        rows = [(n, name, params, "") for n, name, params in known_trials(sweep, total, _slots(asked, sweep))]
    if asked.json:
        described = [{"number": n, "name": name, "params": params, "status": how} for n, name, params, how in rows]
        console.print_json({"schema": 1, "sweep": sweep.name, "total": total, "trials": described})
        return
    keys = list(dict.fromkeys(key for _, _, params, _ in rows for key in params))
    table = [
        (str(n), *([name] if name else []), *(_text(params, key) for key in keys), *([how] if how else []))
        for n, name, params, how in rows
    ]
    named = ["name"] if any(name for _, name, _, _ in rows) else []
    columns = ["trial", *named, *keys, *(["status"] if study is not None else [])]
    console.print_table(f"Trials of {sweep.name}, profile {sweep.profile}", columns, table)
    if len(rows) < total:
        console.print_text(f"{plural(total - len(rows), 'more trial')} will be chosen from the results of these")


def known_trials(sweep: SweepSpec, total: int, slots: int) -> list[tuple[int, str | None, Mapping[str, Any]]]:
    """(number, name, params) of the trials that depend on no result, assuming that none fails."""
    if sweep.ladder or sweep.candidates:
        names = [*sweep.candidates, *(rung.name for rung in sweep.ladder)]
        named = zip(names, points(sweep), strict=True)
        return [(number, name, point) for number, (name, point) in enumerate(islice(named, total))]
    drawn = startup(sweep.sampler, lag_of(sweep, slots))
    first = total if drawn is None else min(total, drawn)
    suggester, taken = Suggester(sweep), set[str]()
    found: list[tuple[int, str | None, Mapping[str, Any]]] = []
    for number in range(first):
        params = suggester.suggest(number, (), taken)
        if params is None:
            break
        taken.add(identity(params))
        found.append((number, None, params))
    return found


def print_plan(asked: Asked) -> None:
    """Trials, runs, completions, and hours where anything like it was run here before. Writes nothing."""
    home = Home.locate()
    study, sweep = _study(asked, home)
    slots = _slots(asked, sweep)
    total = total_of(sweep, asked.trials)
    first = known_trials(sweep, 1, slots)
    spec = Candidates.of(sweep).spec(first[0][2])
    cost = cost_of(sweep, spec, home, trials=total, slots=slots)
    # a study that is continued learns as if it still had as many at a time as it began with
    drawn = startup(sweep.sampler, lag_of(sweep, slots) if study is None else read_book(study.state).header["lag"])
    random_search = random_search_text(total, drawn)
    remarks = [*([random_search] if random_search else []), *notes(sweep)]
    if asked.json:
        planned = {**cost.document(), "startup": drawn, "notes": remarks}
        console.print_json({"schema": 1, "sweep": sweep.name, "study": None if study is None else study.id, **planned})
        return
    for line in (*cost.lines(), *(f"note: {remark}" for remark in remarks)):
        console.print_text(line)
    if study is not None:
        done = sum(trial.status.ended for trial in read_book(study.state).trials.values())
        console.print_text(f"{study.id} would be continued: {done} of these trials have ended")
    console.print_text("nothing was written")


def detach(asked: Asked) -> None:
    """Start the sweep as a process of its own session, and return once that drives it.

    Everything that can be wrong with what was asked is said here, before it is started.
    """
    home = Home.locate()
    with sweeping.opened_study(asked, home) as opened:
        for note in opened.notes:
            console.print_note(note)
        if opened.over:
            sweeping.say_made_up(asked, opened)
        else:
            sweeping.opened_storage(asked, opened).close()
    if opened.over:
        console.print_text(f"{opened.study.id} is complete")
        return
    study = opened.study
    process = spawn(
        ["grpoctl.app", "sweep", str(study.path), "--resume", *_again(asked)], study.log, _environment(asked)
    )
    try:
        wait_until_held(study.lock, process, study.log)
    except RunError as error:
        raise RunError(f"{study.id} was not started in the background: {error}") from error
    if asked.json:
        document = {"schema": 1, "study": study.id, "study_dir": str(study.path), "pid": process.pid}
        console.print_json({**document, "log": str(study.log)})
        return
    console.print_text(f"{study.id} runs in the background (process {process.pid})")
    console.print_text(f"follow it: grpoctl logs -f {study.id}\nstop it:   grpoctl stop {study.id}")


def _study(asked: Asked, home: Home) -> tuple[StudyDir | None, SweepSpec]:
    """The study that would be continued, if that was asked for, and the sweep."""
    if asked.resume and (named := named_study(home, asked.name)) is not None:
        return named, read_sweep(named.spec)
    sweep = sweeping.resolve(asked, home)
    return (unfinished(sweep, home) if asked.resume else None), sweep


def _slots(asked: Asked, sweep: SweepSpec) -> int:
    return max(1, len(asked.workers.slots(sweep)))


def _again(asked: Asked) -> list[str]:
    """The options that the process apart needs, too."""
    workers = asked.workers
    given: list[tuple[str, object]] = [
        ("--trials", asked.trials), ("--parallel", workers.parallel), ("--gpus", workers.gpus),
        ("--per-gpu", workers.per_gpu if workers.gpus else None), ("--executor", workers.executor),
    ]  # fmt: skip
    flags = [("--inline", workers.inline), ("--retry-failed", asked.retry_failed), ("--quiet", asked.quiet),
             ("--fail-on-trial-error", asked.fail_on_trial_error)]  # fmt: skip
    options = [word for name, value in given if value is not None for word in (name, str(value))]
    return options + [name for name, on in flags if on]


def _environment(asked: Asked) -> dict[str, str]:
    """The storage's URL travels in the environment: whoever lists processes must not read its password."""
    from grpoctl.children import child_environment

    return {**child_environment(), **({STORAGE_VARIABLE: asked.storage} if asked.storage else {})}


def _text(params: Mapping[str, Any], key: str) -> str:
    return "-" if key not in params else f"{params[key]}"
