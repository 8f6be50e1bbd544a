"""One `grpoctl eval`: what is asked, which task and weights that means, the measurement, and how it is said."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from core.config import ModelSpec, RunSpec
from core.errors import NotFoundError, SpecError, UserError
from core.tasks import registry
from core.tasks.base import Example, Split, Task
from grpoctl import console
from grpoctl.analysis.evaluation import Scored, summary
from grpoctl.cli.subjects import Subject, checkpoint_of, subject
from grpoctl.config import load, read_resolved
from grpoctl.files import RowWriter
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.wording import metric_text, plural

if TYPE_CHECKING:
    from core.policies.base import Sampling
    from core.training.requests import Groups

SPLITS = get_args(Split)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the command line asked for; None where it did not say."""

    model: str
    rest: Sequence[str] = ()
    profile: str | None = None
    split: str = "eval"
    prompts: int | None = None
    k: int | None = None
    temperature: float | None = None
    greedy: bool = False
    seed: int | None = None
    samples: Path | None = None
    step: int | None = None  # of a run's checkpoint; None: its exported weights


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What is measured: the weights, the spec whose task and settings count, and how many are drawn how."""

    subject: Subject
    model: ModelSpec | None  # None: the policy is no language model
    spec: RunSpec
    split: Split
    k: int
    temperature: float  # 0: greedy
    seed: int

    @property
    def how(self) -> Sampling:
        """How completions are drawn; greedy is to leave only the likeliest token."""
        return sampling(self.temperature, self.spec.max_completion_length)


def sampling(temperature: float, limit: int) -> Sampling:
    """Draws at a temperature, of at most `limit` tokens; at 0 the likeliest token each time."""
    from core.policies.base import Sampling

    if temperature == 0:
        return Sampling(temperature=1.0, max_completion_length=limit, top_k=1)
    return Sampling(temperature=temperature, max_completion_length=limit)


def evaluate(asked: Asked) -> dict[str, Any]:
    """The JSON document of a measurement. Raises UserError before anything heavy is loaded, later RunError."""
    found = plan(asked, Home.locate())
    task = registry.build(found.spec.task)
    with closing(task), ExitStack() as stack:
        examples = _examples(found, task, asked.prompts)
        task.make_ready()
        writer = stack.enter_context(_new_file(asked.samples)) if asked.samples is not None else None
        policy = found.subject.trained() if found.model is None else found.subject.language_model(found.model)
        started = time.perf_counter()
        rows = []
        for batch in _batches(found, task, examples, policy):
            rows += batch.rows
            if writer is not None:
                writer.append(*batch.samples)
        seconds = time.perf_counter() - started
    return _document(found, len(examples), rows, seconds)


def plan(asked: Asked, home: Home) -> Plan:
    """What is asked, resolved. Raises NotFoundError, SpecError, UserError."""
    overrides = [text for text in asked.rest if "=" in text and not text.lower().endswith(".yaml")]
    names = [text for text in asked.rest if text not in overrides]
    if len(names) > 1:
        raise UserError(f"got {len(names)} specs ({', '.join(names)}); allowed: one MODEL or RUN, then one SPEC")
    if asked.split not in SPLITS:
        raise UserError(f"got --split {asked.split}; allowed: eval, test, train")
    weights = subject(home, asked.model) if asked.step is None else checkpoint_of(home, asked.model, asked.step)
    _check_overrides(weights, bool(names), overrides)
    spec = _spec(weights, names[0] if names else None, asked.profile, overrides, home)
    temperature = _temperature(asked, spec.evaluation.temperature)
    if temperature == 0 and not spec.policy.tokens:
        raise UserError(f"got greedy decoding, and the policy {spec.policy.kind} draws no tokens; give --temperature")
    if temperature == 0 and (asked.k or 1) > 1:
        raise UserError(f"got --num-generations {asked.k} of greedy decoding, which gives one; leave one of them out")
    k = 1 if temperature == 0 else asked.k or spec.evaluation.num_generations_eval
    seed = spec.seed if asked.seed is None else asked.seed
    like = _model_like(weights, spec, named=bool(names))
    model = None if like is None else weights.model(like)
    return Plan(
        subject=weights, model=model, spec=spec, split=cast(Split, asked.split), k=k, temperature=temperature, seed=seed
    )


def _model_like(weights: Subject, spec: RunSpec, *, named: bool) -> ModelSpec | None:
    """The model's settings that loading follows: of a run those it had; None where no language model is evaluated.

    Raises UserError where the weights are of another kind of policy than the spec's task is for.
    """
    own = weights.spec if weights.spec is not None and named else spec
    if own.policy.output != spec.task.scores:
        gives = f"{weights.name} gives {own.policy.output}"
        raise UserError(f"{gives}, and the task {spec.task.name} of {spec.name} scores {spec.task.scores}")
    if own.model is None and weights.spec is None:
        raise UserError(f"{weights.name} is a model, and the policy of {spec.name} is {spec.policy.kind}; name a run")
    return own.model


def _check_overrides(weights: Subject, has_spec: bool, overrides: Sequence[str]) -> None:
    """Raises UserError for a setting of the model that the first argument says already: it would do nothing."""
    of_a_run = weights.exported is not None and has_spec
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key == "model.source" or (of_a_run and key.startswith("model.")):
            raise UserError(f"got {text}, but what is evaluated is {weights.name}; leave {key} out, or name that model")


def _temperature(asked: Asked, default: float) -> float:
    given = asked.temperature
    if given is not None and not math.isfinite(given):
        raise UserError(f"got --temperature {given}; allowed: 0 (greedy) or more")
    if asked.greedy and given:
        raise UserError(f"got --greedy and --temperature {given:g}; leave one of them out")
    return 0.0 if asked.greedy else default if given is None else given


def _spec(weights: Subject, name: str | None, profile: str | None, overrides: Sequence[str], home: Home) -> RunSpec:
    """The spec whose task counts: SPEC under the profile that is asked for or fits, else the run's own."""
    if name is None:
        if weights.exported is None:
            raise UserError(
                f"{weights.name} is a model; say on which experiment's task: grpoctl eval {weights.name} p31"
            )
        if profile is not None:
            raise UserError(f"got --profile {profile} without SPEC; a run's own spec has the profile that it ran with")
        return read_resolved(weights.exported.run.spec, overrides)
    revisions = revisions_of(home)
    if profile is None or profile == "auto":
        profile = _fitting(weights, name, home)
    return load(name, profile=profile, overrides=overrides, revisions=revisions).spec


def _fitting(weights: Subject, name: str, home: Home) -> str:
    """The spec's profile that the run had, else the first that starts from the same model, else `full`."""
    revisions = revisions_of(home)
    profiles = load(name, revisions=revisions).profiles
    if weights.spec is not None and weights.spec.profile in profiles:
        return weights.spec.profile
    for profile in profiles:
        try:
            source = load(name, profile=profile, revisions=revisions).spec.starts_from
        except SpecError:
            continue
        if source == weights.root:
            return profile
    return "full"


def _examples(found: Plan, task: Task, count: int | None) -> Sequence[Example]:
    examples = task.examples(found.split)
    if not examples:
        others = ", ".join(split for split in SPLITS if task.examples(split))
        raise NotFoundError(f"{found.spec.task.name} has no {found.split} problems here; allowed: {others}")
    name = found.spec.evaluation.slice_by
    if name is not None and name not in examples[0].facts:
        raise SpecError(f"got {name!r}; these problems have: {', '.join(examples[0].facts)}", key="evaluation.slice_by")
    if count is not None and count > len(examples):
        console.print_note(f"{found.spec.task.name} has {plural(len(examples), f'{found.split} problem')}, not {count}")
    return examples[:count]


@contextmanager
def _new_file(path: Path) -> Iterator[RowWriter]:
    """A writer of a file that was not there. Raises UserError, StorageError."""
    if os.path.lexists(path):
        raise UserError(f"{path} is there already; remove it, or name another file")
    if not path.absolute().parent.is_dir():
        raise UserError(f"there is no folder {path.absolute().parent} to write {path.name} to; make it first")
    with RowWriter(path) as writer:
        yield writer


@dataclass(frozen=True, kw_only=True, slots=True)
class _Batch:
    """What is kept of scored groups."""

    rows: list[Scored]
    samples: list[dict[str, object]]


def _batches(found: Plan, task: Task, examples: Sequence[Example], policy: Any) -> Iterator[_Batch]:
    """The groups of all examples, a bounded number at a time; progress where standard error is a terminal."""
    from core.training.requests import GroupSampling, sample_groups

    draws, first = GroupSampling(k=found.k, how=found.how, seed=found.seed), 0
    shown = console.is_terminal(sys.stderr)
    for groups in sample_groups(policy, task, examples, draws):
        yield _kept(groups, first, found, task)
        first += len(groups.rollout.prompts)
        if shown:
            end = "\n" if first == len(examples) else ""
            console.write_part(f"\r{first}/{len(examples)} prompts{end}", sys.stderr)


def _kept(groups: Groups, first: int, found: Plan, task: Task) -> _Batch:
    """The rows of the groups; `first` is the number of their first prompt."""
    rollout, rows, samples = groups.rollout, [], []
    lengths, cut = rollout.mask_NT.sum(-1).tolist(), rollout.truncated_N.tolist()
    for row, (at, outcome) in enumerate(zip(rollout.prompt_N.tolist(), groups.outcomes, strict=True)):
        example = rollout.prompts[at]
        value = example.facts.get(found.spec.evaluation.slice_by or "")
        scored = Scored(
            prompt=first + at,
            reward=outcome.expected,
            valid=outcome.valid,
            parts=outcome.parts,
            slice=None if found.spec.evaluation.slice_by is None else str(value),
            length=lengths[row],
            truncated=cut[row],
        )
        rows.append(scored)
        told: dict[str, object] = {"prompt_id": example.id, "prompt": task.shown(example)}
        told |= task.record(rollout.outputs[row])
        told |= {"reward": outcome.reward, "expected": outcome.expected, "valid": outcome.valid}
        told |= {"rewards": dict(outcome.parts)} if outcome.parts else {}
        told |= {"slice": scored.slice} if scored.slice is not None else {}
        told |= {"tokens": scored.length, "truncated": scored.truncated} if rollout.tokens else {}
        samples.append(told)
    return _Batch(rows=rows, samples=samples)


def _document(found: Plan, prompts: int, rows: Sequence[Scored], seconds: float) -> dict[str, Any]:
    weights, spec = found.subject, found.spec
    return {
        "schema": 1,
        "model": weights.source,
        "adapter": None if weights.adapter is None else str(weights.adapter),
        "run_id": weights.run_id,
        "step": None if weights.exported is None else weights.exported.step,
        "experiment": spec.name,
        "profile": spec.profile,
        "task": spec.task.name,
        "split": found.split,
        "prompts": prompts,
        "completions": len(rows),
        "num_generations": found.k,
        "temperature": found.temperature,
        "max_completion_length": spec.max_completion_length,
        "seed": found.seed,
        **_summary(rows, spec),
        "seconds": round(seconds, 3),
    }


def _summary(rows: Sequence[Scored], spec: RunSpec) -> dict[str, Any]:
    """What the rows come to; lengths only where the policy draws tokens."""
    document = summary(rows, spec.task.reward_range)
    return document if spec.policy.tokens else {**document, "length": None, "truncated": None}


def say(document: Mapping[str, Any]) -> None:
    """The same as text on standard output."""
    run = document["run_id"]
    of = f"{run}, weights of step {document['step']}," if run else document["adapter"] or document["model"]
    how = "greedy" if document["temperature"] == 0 else f"temperature {document['temperature']:g}"
    count = f"{plural(document['prompts'], 'prompt')} x {document['num_generations']}"
    where = f"{document['experiment']} ({document['task']}), profile {document['profile']}, split {document['split']}"
    console.print_text(f"{of} on {where}: {count}, {how}, {document['seconds']:.1f} s\n")
    rows = [_row("reward", document["reward"]), _row("valid", document["valid"])]
    rows += [_row(f"rewards/{name}", part) for name, part in document["parts"].items()]
    rows += [_row(f"slice {name}", part) for name, part in document["slices"].items()]
    console.print_table("", ("", "mean", "95 % interval", "prompts"), rows)
    missing = document["missing"]
    lost = f"; {missing} of {plural(document['completions'], 'completion')} could not be scored" if missing else ""
    if document["length"] is None:
        console.print_text(lost.removeprefix("; "))
        return
    cut = f"{100 * document['truncated']:.1f} % cut off at {document['max_completion_length']}"
    console.print_text(f"mean length {document['length']:.1f} tokens, {cut}{lost}")


def _row(name: str, part: Mapping[str, Any]) -> tuple[str, str, str, str]:
    low, high = part["low"], part["high"]
    interval = "-" if low is None else f"{metric_text('eval/reward', low)} to {metric_text('eval/reward', high)}"
    return (name, metric_text("eval/reward", part["mean"]), interval, str(part["prompts"]))
