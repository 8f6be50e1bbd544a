"""The runs of one `grpoctl run`: resolve the spec of each seed, prepare its directory, execute, print how it went."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.config import RunSpec
from core.config.run import check_fit
from core.config.trainer import unused_seed
from core.health.finding import Row
from core.health.guard import LOOK_BACK, collapse_finding, watched_guards
from core.health.own_noise import noise_factor
from core.health.rules.gains import HEADLINE
from core.health.rules.integrity import noise_integrity, rollout_integrity
from core.models import precision
from core.policies.registry import check_policy
from core.tasks.registry import check_task
from grpoctl import console
from grpoctl.analysis.outcome import sentences
from grpoctl.cli.progress import LiveProgress
from grpoctl.cli.verdict import print_result
from grpoctl.config import Loaded, load, run_stem
from grpoctl.executors.execution import Executed, execute
from grpoctl.executors.hooks import Hooks
from grpoctl.executors.needs import check_trainer
from grpoctl.executors.slots import Slot
from grpoctl.resources import verified
from grpoctl.runs import dtype, liveness
from grpoctl.runs import profile as profiles
from grpoctl.runs.launch import Launch, prepare, revisions_of
from grpoctl.runs.listing import result_of
from grpoctl.runs.run_dir import Home, RunDir

# Loggers, by name: to import the first one's module would load torch too early.
CALLBACKS, REWARDS = "core.training.callbacks", "core.tasks.rewards.told"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """The arguments of `grpoctl run`."""

    name: str
    overrides: Sequence[str] = ()
    profile: str = profiles.AUTO
    seeds: Sequence[int | None] = (None,)  # None: the spec's own
    resume: bool = False
    json: bool = False
    quiet: bool = False
    argv: Sequence[str] = ()
    brief: bool = False  # two lines on each run in place of its verdict; `resume` then goes on only with what was begun
    slots: Sequence[Slot] = ()  # where the processes of each run are; none: this one, as it is


def run_all(request: RunRequest, begun: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    """The result of each seed's run, in order; progress and verdicts are printed on the way.

    Every spec is resolved before the first run starts. An interrupted run ends the list. `begun` is called once one
    has run: what is refused before that had started nothing.
    """
    results: list[dict[str, Any]] = []
    for done in executions(request, Home.locate()):
        results.append(done.executed.result)
        begun()
        print_outcome(done.executed, done.spec, json=request.json, brief=request.brief)
    return results


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """One run of a request: where it is, what was run and how that went."""

    run: RunDir
    spec: RunSpec
    executed: Executed


def executions(
    request: RunRequest, home: Home, hooks: Callable[[Hooks], Hooks] = lambda live: live
) -> Iterator[Execution]:
    """Each seed's run as it ends; progress is printed meanwhile. An interrupted run is the last.

    Every spec is resolved before the first run starts. `hooks` may put others around those that show the progress.
    """
    liveness.reconcile(home)
    take_first(request.slots)
    on_cpu = bool(request.slots) and request.slots[0].device == ""
    if not on_cpu and (unverified := verified.unverified_text(verified.cuda_devices())) is not None:
        console.print_note(unverified)
    resolved, why = resolve(request, home)
    for loaded in resolved:
        resume = request.resume and (not request.brief or _begun(loaded, home))
        prepared = prepare(Launch(loaded=loaded, overrides=request.overrides, resume=resume), home)
        for note in () if request.brief and prepared.finished else prepared.notes:
            console.print_note(note)
        if prepared.finished and (result := result_of(prepared.run)) is not None:
            executed = Executed(result=result)
        else:
            executed = execute(prepared.run, hooks(Live(request, why)), argv=request.argv, slots=request.slots)
        yield Execution(run=prepared.run, spec=loaded.spec, executed=executed)
        if executed.result["status"] == "INTERRUPTED":
            return


def told(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What `--notify` is told of the end of these runs; `status` is the last one's."""
    keys = ("run_id", "run_dir", "experiment", "profile", "seed", "status", "message", "gain")
    runs = [
        {key: result.get(key) for key in keys} | {HEADLINE: (result.get("final") or {}).get(HEADLINE)}
        for result in results
    ]
    last = runs[-1] if runs else {}
    return {"status": last.get("status"), "message": last.get("message"), "runs": runs}


def resolve(request: RunRequest, home: Home) -> tuple[list[Loaded], str]:
    """The spec of each seed with the dtype it will run with, and why it has its profile.

    Raises SpecError, NotFoundError, UserError.
    """
    name, overrides, revisions = request.name, request.overrides, revisions_of(home)
    profile, why = profiles.resolve(request.profile, lambda: profiles.full_of(name, overrides, revisions))
    authored = [load(name, profile=profile, overrides=overrides, seed=s, revisions=revisions) for s in request.seeds]
    for loaded in authored:
        check_fit(loaded.spec)
        if not request.resume:  # a run that has ended is only shown again, whatever has become of its data
            check_policy(loaded.spec)
            check_task(loaded.spec)
            check_trainer(loaded.spec)
    # --processes hides the GPUs, and with --detach only later
    on_cpu = bool(request.slots) and request.slots[0].device == ""
    facts = partial(precision.machine_facts, cuda=not on_cpu)
    settled = [dtype.settled_run(loaded, facts, resume=home if request.resume else None) for loaded in authored]
    for text in dict.fromkeys(dtype.why(a.spec, s.spec, facts) for a, s in zip(authored, settled, strict=True)):
        if text:
            console.print_note(text)
    if (note := unused_seed(settled[0].spec.trainer, len(request.seeds))) is not None:
        console.print_note(note)
    return settled, why


def take_first(slots: Sequence[Slot]) -> None:
    """Give this process the GPU and the cores of the first slot. Whatever is imported later finds them."""
    if not slots:
        return
    os.environ.update(slots[0].environment(os.environ))
    if "torch" in sys.modules:  # it read the variable when it was imported
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def _begun(loaded: Loaded, home: Home) -> bool:
    """True where there is a run of this very spec and seed."""
    stem = run_stem(loaded.spec)
    return any(run.id.rpartition("-")[0] == stem for run in home.runs())


def print_outcome(executed: Executed, spec: RunSpec, *, json: bool, brief: bool = False) -> None:
    """Print the notes of an execution and, unless a JSON document will say it, the verdict on the run.

    `brief`: only how the run ended and what it reached.
    """
    for note in executed.notes:
        console.print_note(note)
    if brief and not json:
        for line in sentences(executed.result)[:2]:
            console.print_line(line)
    elif not json:
        print_result(executed.result, spec.recorded)
    if executed.result["status"] == "FAILED":
        console.print_error(str(executed.result.get("message")))


class Live(Hooks):
    """Shows the progress of one run, and its warnings while it goes on; `why` says why it has its profile."""

    def __init__(self, request: RunRequest, why: str) -> None:
        self._progress = LiveProgress(json=request.json, quiet=request.quiet)
        self._warnings = LiveWarnings(quiet=request.quiet)
        self._why = why
        self._processes = max(1, len(request.slots))
        self._spec: RunSpec | None = None
        self._recent: list[Row] = []

    def started(self, spec: RunSpec, run: RunDir) -> None:
        """Print the header and an empty bar."""
        self._spec = spec
        self._warnings.start(run)
        header = f"{spec.name}, profile {spec.profile} ({self._why}), seed {spec.seed}: {spec.title}\n{run.path}"
        stages = [*spec.stages] if len(spec.stages) > 1 else []
        if spec.budget is None:
            self._progress.start(spec.max_steps, header, stages=stages)
        else:
            self._progress.start(spec.budget.amount, header, spec.budget.unit, stages=stages)

    def stage(self, text: str) -> None:
        """Show what is done before the first step."""
        self._progress.stage(text)

    def evaluating(self, ended: int, token: int) -> None:
        """Show how far the evaluation before step 1 is; where several processes share it, this one's part."""
        assert self._spec is not None
        if not self._recent:
            rows = self._spec.task.eval_prompts * self._spec.evaluation.num_generations_eval
            self._progress.evaluating(ended, -(-rows // self._processes), token, self._spec.max_completion_length)

    def row(self, row: Mapping[str, float | None]) -> None:
        """Move the bar on."""
        assert self._spec is not None
        self._recent = [*self._recent, row][-LOOK_BACK * self._spec.guards.patience :]
        self._progress.update(row, guard_state(self._spec, self._recent))

    def finished(self) -> None:
        """Give the terminal back."""
        self._progress.finish()
        self._warnings.finish()


def guard_state(spec: RunSpec, recent: Sequence[Row]) -> str:
    """The state of the guards in a word, from the last rows."""
    unsound = rollout_integrity(recent[-1], dtype=spec.computes_in, override=spec.guards.max_logprob_gap)
    if unsound or (noise_factor(spec.guards) is not None and noise_integrity(recent)):
        return "integrity!"
    return "collapse!" if collapse_finding(recent, watched_guards(spec)) else "ok"


class LiveWarnings(logging.Handler):
    """Prints what rules and rewards warn of during a run as notes, from `start` to `finish`; nothing where quiet.

    `finish` may be called more than once. RUN/log.txt has the warnings in any case (grpoctl.runs.log), so a detached
    run, whose standard error goes there too, does not print them a second time.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(logging.WARNING)
        self._quiet = quiet

    def start(self, run: RunDir) -> None:
        """Print the warnings of this run from now on."""
        in_log = False
        with suppress(OSError, ValueError):
            in_log = os.path.samestat(os.fstat(sys.stderr.fileno()), run.log.stat())
        if not self._quiet and not in_log:
            for name in (CALLBACKS, REWARDS):
                logging.getLogger(name).addHandler(self)

    def finish(self) -> None:
        """Print no more of them."""
        for name in (CALLBACKS, REWARDS):
            logging.getLogger(name).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Print one warning as a note."""
        console.print_note(record.getMessage())
