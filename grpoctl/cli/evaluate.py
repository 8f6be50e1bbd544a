"""`grpoctl eval`: how well a model, or what a run made of it, does a task."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from core.config import ModelSpec, RunSpec
from core.errors import NotFoundError, SpecError, UserError
from core.tasks import registry
from core.tasks.base import Example, Split, Task
from grpoctl import console
from grpoctl.analysis.evaluation import Scored, summary
from grpoctl.cli import exits
from grpoctl.cli.lookup import Weights, checkpoint_weights, find_weights, print_choice
from grpoctl.cli.options import Json
from grpoctl.config import load, read_resolved
from grpoctl.files import RowWriter
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.wording import metric_text, plural

if TYPE_CHECKING:
    from core.policies.base import Sampling
    from core.training.requests import Groups

SPLITS = get_args(Split)

Rest = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SPEC] [KEY=VALUE]...",
        help="Experiment whose task is measured (default for a run: its own), and settings.",
    ),
]
Samples = Annotated[Path | None, typer.Option(help="Write every completion to this JSONL file.", metavar="FILE")]


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL|RUN", help="Run, builtin:tiny, small, folder, hub id.")],
    rest: Rest = None,
    step: Annotated[
        int | None,
        typer.Option(help="Use a run's checkpoint of step N instead of its best weights.", min=0, metavar="N"),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", help="Profile of SPEC; default: the one that fits the model.", metavar="NAME"),
    ] = None,
    split: Annotated[str, typer.Option(help="eval, test or train.", metavar="SPLIT")] = "eval",
    prompts: Annotated[int | None, typer.Option(help="Only the first N prompts.", min=1)] = None,
    num_generations: Annotated[int | None, typer.Option(help="Completions per prompt.", min=1)] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature; 0 = greedy.", min=0)] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Greedy decoding, as --temperature 0.")] = False,
    seed: Annotated[int | None, typer.Option(help="Sampling seed; default: the spec's.", min=0)] = None,
    samples: Samples = None,
    json: Json = False,
) -> None:
    request = EvalRequest(
        model=model, arguments=rest or (), profile=profile, split=split, prompts=prompts, k=num_generations,
        temperature=temperature, greedy=greedy, seed=seed, samples=samples, step=step,
    )  # fmt: skip
    document = measure(request)
    if json:
        console.print_json(document)
    else:
        print_measurement(document)
    if document["reward"]["mean"] is None:  # nothing was measured: a script must not take it for a result
        raise typer.Exit(exits.FAILED)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalRequest:
    """The arguments of the command; None where one was not given."""

    model: str
    arguments: Sequence[str] = ()  # [SPEC] [KEY=VALUE]...
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
class EvalPlan:
    """The weights, the spec whose task and settings count, and how many completions are drawn in which way."""

    weights: Weights
    model: ModelSpec | None  # None: the policy is no language model
    spec: RunSpec
    split: Split
    k: int
    temperature: float  # 0: greedy
    seed: int

    @property
    def sampling(self) -> Sampling:
        """The settings of the sampler."""
        from core.policies.base import Sampling

        return Sampling.at(self.temperature, self.spec.max_completion_length, self.spec.stop_strings)


def measure(request: EvalRequest) -> dict[str, Any]:
    """The JSON document of a measurement. Raises UserError before anything heavy is loaded, later RunError."""
    plan = plan_of(request, Home.locate())
    spec, weights = plan.spec, plan.weights
    task = registry.build(spec.task)
    with closing(task), ExitStack() as stack:
        examples = _examples(plan, task, request.prompts)
        task.make_ready()
        writer = stack.enter_context(_new_file(request.samples)) if request.samples is not None else None
        policy = weights.trained() if plan.model is None else weights.language_model(plan.model)
        started = time.perf_counter()
        rows: list[Scored] = []
        for groups, first in _groups(plan, task, examples, policy):
            scored, samples = _scored(groups, first, plan, task)
            rows += scored
            if writer is not None:
                writer.append(*samples)
        seconds = time.perf_counter() - started
    outcome = summary(rows, spec.task.reward_range)
    if not spec.policy.tokens:
        outcome |= {"length": None, "truncated": None}
    return {
        "schema": 1,
        "model": weights.source,
        "adapter": None if weights.adapter is None else str(weights.adapter),
        "run_id": weights.run_id,
        "step": None if weights.exported is None else weights.exported.step,
        "experiment": spec.name,
        "profile": spec.profile,
        "task": spec.task.name,
        "split": plan.split,
        "prompts": len(examples),
        "completions": len(rows),
        "num_generations": plan.k,
        "temperature": plan.temperature,
        "max_completion_length": spec.max_completion_length,
        "seed": plan.seed,
        **outcome,
        "seconds": round(seconds, 3),
    }


def plan_of(request: EvalRequest, home: Home) -> EvalPlan:
    """The request with every name and default resolved. Raises NotFoundError, SpecError, UserError."""
    overrides = [text for text in request.arguments if "=" in text and not text.lower().endswith(".yaml")]
    names = [text for text in request.arguments if text not in overrides]
    if len(names) > 1:
        raise UserError(f"got {len(names)} specs ({', '.join(names)}); allowed: one MODEL or RUN, then one SPEC")
    if request.split not in SPLITS:
        raise UserError(f"got --split {request.split}; allowed: eval, test, train")
    weights = (
        find_weights(home, request.model)
        if request.step is None
        else checkpoint_weights(home, request.model, request.step)
    )
    if weights.exported is not None:
        print_choice(home, request.model, weights.exported.run)
    _check_overrides(weights, bool(names), overrides)
    spec = _spec(weights, names[0] if names else None, request.profile, overrides, home)
    temperature = _temperature(request, spec.evaluation.temperature)
    if temperature == 0 and not spec.policy.greedy:
        raise UserError(f"got greedy decoding, and the policy {spec.policy.kind} can only draw; give --temperature")
    if temperature == 0 and (request.k or 1) > 1:
        raise UserError(f"got --num-generations {request.k} of greedy decoding, which gives one; leave one of them out")
    k = 1 if temperature == 0 else request.k or spec.evaluation.num_generations_eval
    seed = spec.seed if request.seed is None else request.seed
    settings = _model_settings(weights, spec, named=bool(names))
    model = None if settings is None else weights.model(settings)
    split = cast(Split, request.split)
    return EvalPlan(weights=weights, model=model, spec=spec, split=split, k=k, temperature=temperature, seed=seed)


def _model_settings(weights: Weights, spec: RunSpec, *, named: bool) -> ModelSpec | None:
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


def _check_overrides(weights: Weights, has_spec: bool, overrides: Sequence[str]) -> None:
    """Raises UserError for a setting of the model that the first argument says already: it would do nothing."""
    of_a_run = weights.exported is not None and has_spec
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key == "model.source" or (of_a_run and key.startswith("model.")):
            raise UserError(f"got {text}, but what is evaluated is {weights.name}; leave {key} out, or name that model")


def _temperature(request: EvalRequest, default: float) -> float:
    temperature = request.temperature
    if temperature is not None and not math.isfinite(temperature):
        raise UserError(f"got --temperature {temperature}; allowed: 0 (greedy) or more")
    if request.greedy and temperature:
        raise UserError(f"got --greedy and --temperature {temperature:g}; leave one of them out")
    return 0.0 if request.greedy else default if temperature is None else temperature


def _spec(weights: Weights, name: str | None, profile: str | None, overrides: Sequence[str], home: Home) -> RunSpec:
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
        profile = _fitting_profile(weights, name, home)
    return load(name, profile=profile, overrides=overrides, revisions=revisions).spec


def _fitting_profile(weights: Weights, name: str, home: Home) -> str:
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


def _examples(plan: EvalPlan, task: Task, count: int | None) -> Sequence[Example]:
    examples = task.examples(plan.split)
    if not examples:
        others = ", ".join(split for split in SPLITS if task.examples(split))
        raise NotFoundError(f"{plan.spec.task.name} has no {plan.split} problems here; allowed: {others}")
    name = plan.spec.evaluation.slice_by
    if name is not None:
        registry.check_cut(examples[0], name)
    if count is not None and count > len(examples):
        console.print_note(f"{plan.spec.task.name} has {plural(len(examples), f'{plan.split} problem')}, not {count}")
    return examples[:count]


@contextmanager
def _new_file(path: Path) -> Iterator[RowWriter]:
    """A writer of a file that was not there, nor is it afterwards where that fails. Raises UserError, StorageError."""
    if os.path.lexists(path):
        raise UserError(f"{path} is there already; remove it, or name another file")
    if not path.absolute().parent.is_dir():
        raise UserError(f"there is no folder {path.absolute().parent} to write {path.name} to; make it first")
    whole = False
    try:
        with RowWriter(path) as writer:
            yield writer
        whole = True
    finally:
        if not whole:
            path.unlink(missing_ok=True)


def _groups(plan: EvalPlan, task: Task, examples: Sequence[Example], policy: Any) -> Iterator[tuple[Groups, int]]:
    """(scored groups, number of their first prompt), a bounded number of groups at a time.

    Progress is shown where standard error is a terminal.
    """
    from core.training.requests import GroupSampling, sample_groups

    draws, first = GroupSampling(k=plan.k, how=plan.sampling, seed=plan.seed), 0
    shown = console.is_terminal(sys.stderr)
    for groups in sample_groups(policy, task, examples, draws):
        yield groups, first
        first += len(groups.rollout.prompts)
        if shown:
            end = "\n" if first == len(examples) else ""
            console.write_part(f"\r{first}/{len(examples)} prompts{end}", sys.stderr)


def _scored(groups: Groups, first: int, plan: EvalPlan, task: Task) -> tuple[list[Scored], list[dict[str, object]]]:
    """The rows of the groups, as numbers and as --samples writes them."""
    rollout, rows, samples = groups.rollout, list[Scored](), list[dict[str, object]]()
    slice_by, fact = plan.spec.evaluation.slice_by, plan.spec.task.clusters
    lengths, truncated = rollout.mask_NT.sum(-1).tolist(), rollout.truncated_N.tolist()
    for row, (prompt, outcome) in enumerate(zip(rollout.prompt_N.tolist(), groups.outcomes, strict=True)):
        example = rollout.prompts[prompt]
        scored = Scored(
            prompt=first + prompt,
            reward=outcome.expected,
            valid=outcome.valid,
            parts=outcome.parts,
            measured=outcome.measured,
            slice=None if slice_by is None else str(example.facts.get(slice_by)),
            cluster=None if fact is None else str(example.facts.get(fact)),
            length=lengths[row],
            truncated=truncated[row],
        )
        rows.append(scored)
        sample: dict[str, object] = {"prompt_id": example.id, "prompt": task.shown(example)}
        sample |= task.record(rollout.outputs[row])
        sample |= {"reward": outcome.reward, "expected": outcome.expected, "valid": outcome.valid}
        sample |= {"rewards": dict(outcome.parts)} if outcome.parts else {}
        sample |= {"measured": dict(outcome.measured)} if outcome.measured else {}
        sample |= {"slice": scored.slice} if scored.slice is not None else {}
        sample |= {"tokens": scored.length, "truncated": scored.truncated} if rollout.tokens else {}
        samples.append(sample)
    return rows, samples


def print_measurement(document: Mapping[str, Any]) -> None:
    """Print the document as text."""
    run = document["run_id"]
    weights = f"{run}, weights of step {document['step']}," if run else document["adapter"] or document["model"]
    draws = "greedy" if document["temperature"] == 0 else f"temperature {document['temperature']:g}"
    count = f"{plural(document['prompts'], 'prompt')} x {document['num_generations']}"
    task = f"{document['experiment']} ({document['task']}), profile {document['profile']}, split {document['split']}"
    console.print_text(f"{weights} on {task}: {count}, {draws}, {document['seconds']:.1f} s\n")
    rows = [_row("reward", document["reward"]), _row("valid", document["valid"])]
    rows += [_row(f"rewards/{name}", part) for name, part in document["parts"].items()]
    rows += [_row(name, part) for name, part in document["measured"].items()]
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
    clusters = part.get("clusters")
    prompts = f"{part['prompts']} in {plural(clusters, 'cluster')}" if clusters else str(part["prompts"])
    return (name, metric_text("eval/reward", part["mean"]), interval, prompts)
