"""One `grpoctl run`: resolve the profile, prepare each seed's directory, execute, and say how it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.config import RunSpec
from core.config.run import check_fit
from core.health.finding import Row
from core.health.rules.breaks import LOOK_BACK, policy_collapse
from core.health.rules.integrity import rollout_integrity
from core.models import precision
from core.tasks.registry import check_task
from grpoctl import console
from grpoctl.cli.live_warnings import LiveWarnings
from grpoctl.cli.progress import LiveProgress
from grpoctl.cli.run_slots import take_first
from grpoctl.cli.verdicts import print_result
from grpoctl.config import Loaded, load
from grpoctl.executors.inline import Executed, Hooks, execute
from grpoctl.executors.slots import Slot
from grpoctl.files import read_json
from grpoctl.runs import dtype, liveness
from grpoctl.runs import profile as profiles
from grpoctl.runs.launch import Launch, prepare, revisions_of
from grpoctl.runs.run_dir import Home, RunDir


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the command line asked for."""

    name: str
    overrides: Sequence[str] = ()
    profile: str = profiles.AUTO
    seeds: Sequence[int | None] = (None,)
    resume: bool = False
    json: bool = False
    quiet: bool = False
    argv: Sequence[str] = ()
    slots: Sequence[Slot] = ()  # where the processes of each run are; none: this one, as it is


class Live(Hooks):
    """Shows the progress of one run."""

    def __init__(self, asked: Asked, why: str) -> None:
        self._progress = LiveProgress(json=asked.json, quiet=asked.quiet)
        self._warnings = LiveWarnings(quiet=asked.quiet)
        self._why = why
        self._processes = max(1, len(asked.slots))
        self._spec: RunSpec | None = None
        self._recent: list[Row] = []

    def started(self, spec: RunSpec, run: RunDir) -> None:
        """The header and an empty bar."""
        self._spec = spec
        self._warnings.start(run)
        header = f"{spec.name}, profile {spec.profile} ({self._why}), seed {spec.seed}: {spec.title}\n{run.path}"
        if spec.budget is None:
            self._progress.start(spec.max_steps, header)
        else:
            self._progress.start(spec.budget.amount, header, spec.budget.unit)

    def evaluating(self, ended: int, token: int) -> None:
        """How far the evaluation before step 1 is; where several processes share it, this one's part."""
        assert self._spec is not None
        if not self._recent:
            rows = self._spec.task.eval_prompts * self._spec.evaluation.num_generations_eval
            self._progress.evaluating(ended, -(-rows // self._processes), token, self._spec.max_completion_length)

    def row(self, row: Mapping[str, float | None]) -> None:
        """The bar moved on."""
        assert self._spec is not None
        self._recent = [*self._recent, row][-LOOK_BACK * self._spec.guards.patience :]
        self._progress.update(row, guard_state(self._spec, self._recent))

    def finished(self) -> None:
        """The terminal given back."""
        self._progress.finish()
        self._warnings.finish()


def guard_state(spec: RunSpec, recent: Sequence[Row]) -> str:
    """The guards in a word: what they say of the last rows."""
    if rollout_integrity(recent[-1], dtype=spec.computes_in, override=spec.guards.max_logprob_gap):
        return "integrity!"
    return "collapse!" if policy_collapse(recent, spec.guards) else "ok"


def resolve(asked: Asked, home: Home) -> tuple[list[Loaded], str]:
    """The spec once for each seed, its dtype settled, and why it has its profile.

    Raises SpecError, NotFoundError, UserError.
    """
    name, revisions = asked.name, revisions_of(home)
    profile, why = profiles.asked_or_chosen(asked.profile, lambda: profiles.full_of(name, asked.overrides, revisions))
    loaded = [
        load(name, profile=profile, overrides=asked.overrides, seed=seed, revisions=revisions) for seed in asked.seeds
    ]
    for one in loaded:
        check_fit(one.spec)
        if not asked.resume:  # a run that has ended is only told of, whatever has become of its data
            check_task(one.spec)
    return _settled(asked, home, loaded), why


def _settled(asked: Asked, home: Home, loaded: Sequence[Loaded]) -> list[Loaded]:
    """The specs with a dtype of their own, and said where they left it to the machine."""
    on_cpu = bool(asked.slots) and asked.slots[0].device == ""  # --processes hides the GPUs, and so may --detach later
    ask = partial(precision.machine_facts, cuda=not on_cpu)
    found = [dtype.settled_run(one, ask, resume=home if asked.resume else None) for one in loaded]
    for text in dict.fromkeys(dtype.why(one.spec, new.spec, ask) for one, new in zip(loaded, found, strict=True)):
        if text:
            console.print_note(text)
    return found


def run_all(asked: Asked) -> list[dict[str, Any]]:
    """The result of each seed's run, in order; progress and verdicts are printed on the way.

    Every spec is resolved before the first run starts. An interrupted run ends the list.
    """
    home = Home.locate()
    liveness.reconcile(home)
    take_first(asked.slots)
    loaded, why = resolve(asked, home)
    results: list[dict[str, Any]] = []
    for one in loaded:
        done = _run_one(asked, home, one, why)
        results.append(done.result)
        say(done, one.spec, json=asked.json)
        if done.result["status"] == "INTERRUPTED":
            break
    return results


def say(done: Executed, spec: RunSpec, *, json: bool) -> None:
    """Print the notes of an execution and, where the document does not say it all, its verdict."""
    for note in done.notes:
        console.print_note(note)
    if not json:
        print_result(done.result, spec.recorded)
    if done.result["status"] == "FAILED":
        console.print_error(str(done.result.get("message")))


def _run_one(asked: Asked, home: Home, loaded: Loaded, why: str) -> Executed:
    prepared = prepare(Launch(loaded=loaded, overrides=asked.overrides, resume=asked.resume), home)
    for note in prepared.notes:
        console.print_note(note)
    if prepared.finished and (result := read_json(prepared.run.result)) is not None:
        return Executed(result=result)
    return execute(prepared.run, Live(asked, why), argv=asked.argv, slots=asked.slots)
