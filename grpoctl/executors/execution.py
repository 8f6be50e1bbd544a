"""Executes a run in this process: hold it, train, write down how it ended; and what it asks its parent meanwhile.

One of the places that catch whatever is raised: a run that fails must still say so in its own files. What is not
here: what a parent decides (grpoctl.sweeps), and when the run asks (core.training.callbacks).
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from core.config import RunSpec
from core.errors import GrpoError, SpecError, StorageError, SupersededError, in_words
from core.training.outcome import Ending, EndStatus
from grpoctl.config import canonical, read_resolved, spec_sha
from grpoctl.executors.command import train_by_command
from grpoctl.executors.hooks import Hooks
from grpoctl.executors.ranks import OtherRanks, ask_together, other_ranks
from grpoctl.executors.recorder import Recorder, last_recorded, rewind
from grpoctl.executors.shared_stages import SharedStages, device, publishing, shared_stages
from grpoctl.executors.slots import Slot
from grpoctl.executors.terminal import Terminated, signals_as_interrupts
from grpoctl.executors.trl import Around, train_by_trl
from grpoctl.exports import weights
from grpoctl.fence import Fence
from grpoctl.files import Row, read_json, read_rows, remove, replace_json, replace_rows
from grpoctl.host import host_tag
from grpoctl.runs import provenance, status
from grpoctl.runs.launch import identity_of, initial_snapshot
from grpoctl.runs.log import add_text, logged
from grpoctl.runs.prefixes import machine
from grpoctl.runs.problems import drop_rows, write_problems
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import Status, StatusRecord
from grpoctl.tracking.mirror import ADVICE, MirrorHandle, start_mirror

if TYPE_CHECKING:
    from core.health.finding import Finding, StepTable
    from core.training.callbacks import Callback
    from core.training.checkpoint import Checkpoints, Snapshot
    from core.training.parallel import World
    from core.training.trainer import Trainer

Watcher = Callable[[Mapping[str, float | None]], None]

MIRROR_PATIENCE = 30.0  # seconds to wait for MLflow after the run; it is written by another process meanwhile
CONTROL_SCHEMA = 1
CONTROL_PAUSE = 0.005  # seconds between two looks at control.json, at most; the parent answers within milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Executed:
    """How an execution ended: the result document, and what the user should be told besides."""

    result: dict[str, Any]
    notes: tuple[str, ...] = ()
    error: str | None = None  # the GrpoError's name where one ended it: StorageError, ...


def execute(
    run: RunDir, hooks: Hooks, *, argv: Sequence[str] = (), mirror: bool = True, slots: Sequence[Slot] = ()
) -> Executed:
    """Train what RUN/spec.yaml says, from its newest sound checkpoint; the files say how it ended before this returns.

    `mirror`: with a process of its own that copies the run to MLflow. `slots`: where the run's processes are, this one
    being the first; how many there are changes nothing about the run. A process that had the run and was not heard of
    for a while, here or on another machine, is taken over from. Raises BusyError where another process holds the run,
    SupersededError where one has taken this run over (nothing was written since), SpecError where its spec was changed
    since it started, NotFoundError where it lost its provenance, StorageError where not even its status can be written.
    """
    with (
        provenance.AskedGit(Path.cwd()) as git,  # it answers while the spec is read
        nullcontext(_unchanged_spec(run)) as spec,
        run.hold(attempt=True) as fence,
        signals_as_interrupts(),
        logged(run),
    ):
        provenance.record(run, argv, git)
        _set_status(run, Status.RUNNING, "")
        remove(run.result)  # it told of an earlier attempt
        copy = start_mirror(run) if mirror else None
        notes = provenance.record_inputs(run, spec)
        cause: str | None = None
        try:
            attempt = _Attempt(run=run, fence=fence, hooks=hooks, notes=notes)
            own = spec.trainer.kind == "grpoctl"  # another trainer has processes of its own
            with other_ranks(run, slots if own else ()) as others, shared_stages(run, spec) as shared:
                if spec.trainer.kind == "command":
                    ended, message = _by_command(spec, attempt)
                elif spec.trainer.kind == "trl":
                    ended, message = _by_trl(spec, attempt, slots)
                else:
                    ended, message = _train(spec, attempt, others, shared)
        except KeyboardInterrupt as error:
            why = "terminated" if isinstance(error, Terminated) else "interrupted"
            ended, message = Status.INTERRUPTED, f"{why}; continue with --resume"
        except SupersededError:
            raise  # the run is another process's: nothing may be said of it here
        except GrpoError as error:
            ended, message, cause = Status.FAILED, str(error), type(error).__name__
        except Exception as error:  # noqa: BLE001  the boundary around one run
            ended, message = Status.FAILED, f"{in_words(error)} (traceback in {run.log})"
            add_text(run, traceback.format_exc())
        finally:
            hooks.finished()
        rows = read_rows(run.metrics)
        result = _result(spec, run, ended, message, rows)
        with suppress(StorageError):  # a full disk must not hide how the run ended: it is still printed
            replace_json(run.result, result)
            if not ended.resumable:
                write_problems(run)
        if not ended.resumable:
            _write_cards(run)
        _set_status(run, ended, message, rows)
        if not ended.resumable:  # nobody goes on with the run any more
            drop_rows(run)
    return Executed(result=result, notes=(*notes, *_mirror_notes(copy)), error=cause)


def _unchanged_spec(run: RunDir) -> RunSpec:
    """The run's spec, which is still the one that it was started with: else one run would be of two settings."""
    spec, identity = read_resolved(run.spec), identity_of(run)
    if (spec_sha(spec), spec.seed) != (identity["spec_sha"], identity["seed"]):
        raise SpecError("changed since this run started; restore it, or start a new run", file=run.spec)
    return spec


@dataclass(frozen=True, kw_only=True, slots=True)
class _Attempt:
    """One execution of a run: the right to write into it, who watches, and what the user should be told at its end."""

    run: RunDir
    fence: Fence
    hooks: Hooks
    notes: list[str]

    def waiting(self) -> None:
        """Called at each look while the run waits for somebody; what it raises ends the run."""
        self.fence.check()
        self.hooks.waiting()


def _train(
    spec: RunSpec, attempt: _Attempt, others: OtherRanks | None, shared: SharedStages | None
) -> tuple[Status, str]:
    """Rewind to the newest sound checkpoint, or take a prefix of another run; assemble, drive to the end, export."""
    run, hooks, notes = attempt.run, attempt.hooks, attempt.notes
    hooks.started(spec, run)  # before the seconds of importing torch and building a model
    hooks.stage("importing torch")
    from core.assemble import assemble, open_checkpoints
    from core.models.messages import on_stage
    from core.training.callbacks import RowControl
    from core.training.checkpoint import fit

    checkpoints = open_checkpoints(spec, run.checkpoints, attempt.fence)
    ask = parent_control(run, attempt.waiting)
    restart = _begun(run, checkpoints, notes)
    here = _computed_on()
    elsewhere = restart is not None and provenance.paused_on(run) != here  # its own checkpoint, of another machine
    if shared is not None:
        restart = _taken(attempt, checkpoints, shared, ask) if restart is None else shared.resume(restart)
        notes += shared.notes
    if others is not None:
        others.begin(-1 if restart is None else restart.progress.step)
    initial, whence = initial_snapshot(spec, run) if restart is None else (None, "")
    theirs = None if initial is None else initial.weights
    worlds: list[World] = []
    control = ask_together(ask, worlds)
    table = read_rows(run.metrics)
    hooks.stage("making the problems ready")
    with on_stage(hooks.stage):
        trainer = assemble(spec, checkpoints, restart=restart, table=table, initial=theirs, control=control)
    trainer.callbacks = [*trainer.callbacks, RowControl(hooks.ending)]
    if shared is not None:
        trainer.callbacks = [*trainer.callbacks, publishing(shared)]
    # A prefix is of this machine and of this version, as a run is that paused here. Other ranks ask in any case.
    trainer.recalibrates = elsewhere or others is not None
    # Of several processes each would have to leave at the same step: those stay.
    leaving = hooks if others is None else Hooks()
    trainer.callbacks = [*trainer.callbacks, departing(leaving, checkpoints, trainer)]
    if trainer.origin is not None:
        provenance.note_model(run, trainer.origin.as_json())
    if theirs is not None:
        notes += [whence, *fit(trainer.policy.state(), theirs).lines()]
    watching = _Watching(hooks, -1 if restart is None else restart.progress.step)
    with closing(trainer.task), Recorder(run, watching.row) as recorder, watching.first:
        if restart is None:
            watching.first.enter_context(_first_evaluation(spec, hooks))
        ending = _driven(trainer, recorder, others, worlds, watching.begins)
        if ending.status == Status.INTERRUPTED:  # paused: there is a checkpoint, and more to come
            provenance.note_pause(run, here)
        else:
            notes += _leave(trainer, checkpoints, run)
    return Status(ending.status), ending.message


def _computed_on() -> str:
    """sha256 of what rounding follows from: this boot of this machine, its device, threads, packages and our code.

    Where a run pauses and goes on under the same, its sampler and trainer agree as they did.
    """
    import torch

    here = {**machine(), "boot": host_tag(), "device": device(), "threads": torch.get_num_threads()}
    return hashlib.sha256(canonical(here).encode()).hexdigest()


class _Watching:
    """Tells the hooks of each row, and of each evaluation after the first, which `first` is held for."""

    def __init__(self, hooks: Hooks, recorded: int) -> None:
        self._hooks = hooks
        self._recorded = self._named = recorded  # the last step that has a row; -1: none has
        self.first = ExitStack()

    def row(self, row: Mapping[str, float | None]) -> None:
        """Called with each row once it is written; the first one is the first evaluation's."""
        self.first.close()
        self._recorded = int(row["step"] or 0)
        self._hooks.row(row)

    def begins(self, what: str) -> None:
        """Called with the kind of each request of the trainer before it is computed."""
        if (
            what == "evaluate" and self._recorded >= 0 and self._named <= self._recorded
        ):  # its samples, then their scores
            self._named = self._recorded + 1
            self._hooks.stage(f"evaluating after step {self._named}")


@contextmanager
def _first_evaluation(spec: RunSpec, hooks: Hooks) -> Iterator[None]:
    """Inside, the hooks see how far the evaluation is that comes before any step: it is of many prompts."""
    hooks.evaluating(0, 0)
    if not spec.policy.tokens:  # others draw in no time, and need not load transformers
        yield
        return
    from core.policies.lm.decoding import on_progress

    with on_progress(hooks.evaluating):
        yield


def departing(hooks: Hooks, checkpoints: Checkpoints, trainer: Trainer) -> Callback:
    """The callback that ends a run where it is to leave its machine. It comes last: by then the step may be saved."""
    from core.training.callbacks import Callback

    class Departing(Callback):
        """Pauses the run after any step, unlike its parent, which is asked at evaluations."""

        def after_step(self, table: StepTable) -> Ending | None:
            """Ends the run, with a checkpoint; a run that has done all it had to ends by itself."""
            step = int(table[-1]["step"] or 0)
            if step == 0 or trainer.over() or not (why := hooks.leaving()):
                return None
            if step not in checkpoints.steps():
                checkpoints.save(trainer.snapshot())
            return Ending(status="INTERRUPTED", message=why)

    return Departing()


def _by_command(spec: RunSpec, attempt: _Attempt) -> tuple[Status, str]:
    """Train by the program that the spec names."""
    run, hooks = attempt.run, attempt.hooks
    hooks.started(spec, run)
    ask = parent_control(run, attempt.waiting)
    return train_by_command(spec, run, ask=ask, hooks=hooks, waiting=attempt.waiting, notes=attempt.notes)


def _by_trl(spec: RunSpec, attempt: _Attempt, slots: Sequence[Slot]) -> tuple[Status, str]:
    """Train by TRL, in processes of its own; merged weights where they are wanted."""
    run, hooks = attempt.run, attempt.hooks
    hooks.started(spec, run)
    devices = [slot.device for slot in slots if slot.device is not None]
    around = Around(
        ask=parent_control(run, attempt.waiting),
        row=hooks.row,
        ending=hooks.ending,
        waiting=attempt.waiting,
        stage=hooks.stage,
        evaluating=hooks.evaluating,
        devices=",".join(devices) or None,
    )
    ended = train_by_trl(spec, run, around, attempt.notes)
    attempt.notes.extend(_merged(spec, run))
    return ended


def _leave(trainer: Trainer, checkpoints: Checkpoints, run: RunDir) -> list[str]:
    """What a run leaves at its end: greedy answers, where they cost little, and weights. Gives notes."""
    spec = trainer.spec
    if spec.model is None and spec.policy.greedy:  # a language model's would cost an evaluation more
        replace_rows(run.greedy, trainer.greedy_records())
    return _export(trainer, checkpoints, run)


def _begun(run: RunDir, checkpoints: Checkpoints, notes: list[str]) -> Snapshot | None:
    """The newest sound checkpoint, None where the run begins anew; nothing is left of what came after it."""
    checkpoints.drop_after(last_recorded(run))
    restart, refused = checkpoints.newest_sound()
    notes += refused
    step = restart.progress.step if restart is not None else -1
    checkpoints.drop_after(step)
    rewind(run, step)
    return restart


def _taken(
    attempt: _Attempt, checkpoints: Checkpoints, shared: SharedStages, ask: Callable[[int], Ending | None]
) -> Snapshot | None:
    """What the run, which has nothing, takes of another run of its study; None where there is nothing to take."""
    run = attempt.run
    with Recorder(run, attempt.hooks.row) as recorder:
        restart = shared.take(checkpoints, recorder, ask, attempt.waiting)
    if restart is None:
        rewind(run, -1)
    return restart


def _driven(
    trainer: Trainer,
    recorder: Recorder,
    others: OtherRanks | None,
    worlds: list[World],
    begins: Callable[[str], None],
) -> Ending:
    """How the run ended, alone or as rank 0 of several; `worlds` is then given the one they have joined."""
    from core.training.parallel import Machine, same_start
    from core.training.trainer import drive

    if others is None:
        return drive(trainer.steps(), recorder, begins=begins)
    with others.joined() as world:
        worlds.append(world)
        same_start(trainer.policy, world)
        return drive(trainer.steps(), recorder, Machine(world=world), begins=begins)


def _export(trainer: Trainer, checkpoints: Checkpoints, run: RunDir) -> list[str]:
    """The weights of the best evaluation that has a checkpoint, else of the last step; grpoctl.json says which."""
    best, step = trainer.progress.best_step, trainer.progress.step
    if best in checkpoints.steps():
        step = best
        trainer.policy.load(checkpoints.load(best).weights)
    with weights.whole_folder(run.adapter) as draft:
        trainer.policy.export(draft)
        weights.note(draft, run, step)
    return _merged(trainer.spec, run)


def _merged(spec: RunSpec, run: RunDir) -> list[str]:
    """Merged weights beside the adapter, where the spec wants them; a note where they cannot be had."""
    export = weights.exported(run)
    if not spec.export.merged or export is None or export.format != "peft":
        return []
    try:
        weights.merge(export, run.merged)
    except GrpoError as error:
        return [f"no merged weights: {error}"]
    return []


def _write_cards(run: RunDir) -> None:
    """The model cards of what was exported: they tell how the run ended, so they come after its result."""
    for folder in (run.adapter, run.merged):
        with suppress(StorageError):
            if (folder / weights.NOTE).is_file():
                weights.write_card(run, folder, merged=folder == run.merged)


def _result(spec: RunSpec, run: RunDir, ended: Status, message: str, rows: Sequence[Row]) -> dict[str, Any]:
    """result.json: what was reached, by the rows of metrics.jsonl; also for a run that failed before its first step."""
    from core.health.before.pitfalls import deviations
    from core.health.rules.gains import Ruler, gain_since, stage_gains
    from core.training.outcome import baselines, check_expectations, outcome, trends

    reached = outcome(rows)
    ruler, names = Ruler.of(spec), list(spec.stages)
    beside = baselines(rows, [stage.kind for stage in spec.stages.values()])
    whole, stages = gain_since(rows, names, names[0], ruler), stage_gains(rows, names, ruler)
    return {
        "schema": 1,
        **identity_of(run),
        "run_id": run.id,
        "run_dir": str(run.path),
        "status": str(ended),
        "message": message,
        **({} if spec.trainer.kind == "grpoctl" else {"trainer": spec.trainer.kind}),
        "steps": int(reached.final.get("steps", 0)),
        "updates": int(reached.final.get("updates", 0)),
        "seconds": round(sum(row["total"] for row in read_rows(run.timings)), 3),
        **({"shared": taken} if (taken := (read_json(run.provenance) or {}).get("shared")) else {}),
        "start": reached.start,
        "final": reached.final,
        "best": reached.best,
        **({"baselines": beside} if beside else {}),
        "gain": whole.document(),
        "stages": {name: gain.document() for name, gain in stages.items()},
        "eval_prompts": spec.task.eval_prompts,
        **({} if spec.task.clusters is None else {"eval_clusters": spec.task.independent_eval_prompts}),
        "reward_range": spec.task.reward_range,
        "expects": check_expectations(spec.expects, reached.final, whole, stages, trends(rows, names)),
        "findings": [finding.as_json() for finding in (*_findings(run, rows, ended), *deviations(spec))],
    }


def _findings(run: RunDir, rows: Sequence[Row], ended: Status) -> Sequence[Finding]:
    """What the rules make of the run. What fails there must not cost the result: a finding says so, the log where.

    What only a whole run can show is left out of one that did not come to an end of its own.
    """
    from core.health.examine import OF_WHOLE_RUNS, examine
    from core.health.finding import Finding
    from grpoctl.diagnose.diagnosis import ask_or_say
    from grpoctl.diagnose.readers.run_dir import case_of_run

    try:
        found = examine(case_of_run(run, rows), partial(ask_or_say, note=partial(add_text, run)))
        return [finding for finding in found if not ended.resumable or finding.id not in OF_WHOLE_RUNS]
    except Exception as error:  # noqa: BLE001  the boundary around what is said of a run
        add_text(run, traceback.format_exc())
        why = f"the run could not be diagnosed: {in_words(error)} (traceback in {run.log})"
        return [Finding(id="diagnosis-failed", severity="warning", summary=why, confidence="certain")]


def _set_status(run: RunDir, now: Status, message: str, rows: Sequence[Row] | None = None) -> None:
    """`rows` are those of metrics.jsonl, where they were read already."""
    before = status.read(run.status)
    rows = read_rows(run.metrics) if rows is None else rows
    fresh = StatusRecord(status=now, pid=os.getpid(), started=before.started if before else time.time())
    status.write(
        run.status,
        dataclasses.replace(
            fresh,
            ended=max(fresh.started, time.time()) if now.ended else None,  # a clock may be set back
            step=int(rows[-1]["step"]) if rows else 0,
            message=message,
        ),
    )


def _mirror_notes(mirror: MirrorHandle | None) -> list[str]:
    if mirror is None:
        return []
    try:
        state = mirror.wait(MIRROR_PATIENCE)
    except KeyboardInterrupt:  # the run is over; whoever does not want to wait still gets its verdict
        return [f"MLflow is behind: not waited for; {ADVICE}"]
    if state.done:
        return []
    why = str(state.error).removesuffix(f"; {ADVICE}")
    return [f"MLflow is behind: {why}; {ADVICE}"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlFile:
    """RUN/control.json: what a parent asks of a run, which looks at each evaluation.

        {"schema": 1, "wait": bool, "seen": step, "end": null | {"status": "PRUNED", "message": "...", "step": step}}

    `wait`: after an evaluation the run goes on only once the parent has seen that step. `end`: how the run is to end,
    from the step `since` on: its own `step`, or `seen` where that is missing. A run that is resumed from an earlier
    checkpoint ends at that step again.
    """

    wait: bool
    seen: int
    end: Ending | None
    since: int


def read_control(path: Path) -> ControlFile | None:
    """The content of a control.json; None where there is none, or where it is damaged or of another schema."""
    try:
        document = read_json(path)
        if document is None or document["schema"] != CONTROL_SCHEMA:
            return None
        wait, seen, end = bool(document["wait"]), int(document["seen"]), document["end"]
        if end is None:
            return ControlFile(wait=wait, seen=seen, end=None, since=seen)
        if end["status"] not in get_args(EndStatus):
            return None
        ending = Ending(status=end["status"], message=str(end["message"]))
        return ControlFile(wait=wait, seen=seen, end=ending, since=int(end.get("step", seen)))
    except (StorageError, KeyError, TypeError, ValueError, AttributeError):
        return None


def parent_control(run: RunDir, waiting: Callable[[], None]) -> Callable[[int], Ending | None]:
    """A function that a run calls after each evaluation: step -> how it is to end now, or None.

    It waits for the parent where control.json says so, and calls `waiting` at each look: what that raises ends the run,
    as a signal does.
    """

    def ask(step: int) -> Ending | None:
        pause = 0.0
        while (control := read_control(run.control)) is not None:
            if control.end is not None and step >= control.since:
                return control.end
            if not control.wait or control.seen >= step:
                break
            waiting()
            pause = min(CONTROL_PAUSE, pause + CONTROL_PAUSE / 10)
            time.sleep(pause)
        return None

    return ask
