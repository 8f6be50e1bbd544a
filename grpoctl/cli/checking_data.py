"""How `grpoctl check --data` puts together and says what a task's problems are like. Heavy imports inside functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from core.config import RunSpec
from core.errors import UserError
from core.health.finding import Finding
from core.tasks import registry
from core.tasks.base import Example, Task
from grpoctl import console
from grpoctl.cli.saying_data import say
from grpoctl.config import load
from grpoctl.dataset import looking, sampling
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home

ADVICE = "--no-model leaves this out"
PROBE = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What of `--data` was asked for."""

    probe: int = PROBE  # prompts that the model is tried on
    model: bool = True
    samples: bool = False  # the completions in the document too


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the command line says."""

    asked: bool
    probe: int | None
    no_model: bool
    model_samples: bool


def wanted(options: Options, kinds: Collection[str], name: str) -> Wanted | None:
    """What to look at; None where nothing is asked. Raises UserError, before anything is said."""
    if not options.asked:
        if options.probe is not None or options.no_model or options.model_samples:
            raise UserError("got --probe, --no-model or --model-samples by itself; they belong to --data: add it")
        return None
    if "experiment" not in kinds:
        raise UserError(f"--data looks at an experiment, and {name!r} is a sweep; check the one it is over")
    if options.no_model and (options.probe is not None or options.model_samples):
        raise UserError("got --no-model with --probe or --model-samples, which try the model; leave one of them out")
    return Wanted(probe=options.probe or PROBE, model=not options.no_model, samples=options.model_samples)


def check(name: str, profile: str, overrides: Sequence[str], asked: Wanted, *, json: bool) -> dict[str, Any]:
    """The `data` of an experiment's JSON document; printed as text unless `json`. Raises what `look` raises."""
    spec = load(name, profile=profile, overrides=overrides, revisions=revisions_of(Home.locate())).spec
    found = look(spec, asked)
    if not json:
        say(found)
    return found


def look(spec: RunSpec, asked: Wanted) -> dict[str, Any]:
    """The `data` of the JSON document. Raises what the task, its data and its rewards raise, and ModelError."""
    if spec.task.scores != "text":
        raise UserError(f"--data looks at texts, and the task {spec.task.name} scores {spec.task.scores}; leave it out")
    task = registry.build(spec.task)
    with closing(task):
        task.examples("train")  # a fault of the data is told before seconds of loading a model
        why = None if asked.model else f"not asked for ({ADVICE})"
        why = why or looking.absent(spec.language_model)
        policy = None if why else _policy(spec, asked.probe)
        tokenizer = looking.tokenizer_of(spec.language_model) if policy is None else policy.tokenizer
        document = _texts(spec, task, tokenizer)
        findings: list[Finding] = document.pop("findings")
        seen: dict[str, Any] = {"skipped": why}
        if policy is not None:
            task.make_ready()
            seen = sampling.sample(spec, task, policy, sampling.planned(spec, asked.probe))
            findings += sampling.findings(seen)
        if not asked.samples:
            seen.pop("samples", None)
    return {**document, "sampling": seen, "warnings": [finding.as_json() for finding in findings]}


def _policy(spec: RunSpec, prompts: int) -> Any:
    from core.policies.lm.build import build_sampler

    plan = sampling.planned(spec, prompts)
    what = f"{plan.prompts} problems x {plan.num_generations} completions of {spec.language_model.source}"
    console.print_note(f"samples {what}; {ADVICE}")
    return build_sampler(spec.language_model)


def _texts(spec: RunSpec, task: Task, tokenizer: Any | None) -> dict[str, Any]:
    """Splits, leakage and lengths, in tokens where there is a tokenizer, and what of it to warn of (`findings`)."""
    prompts, answers = _measures(tokenizer)
    document = looking.look(task, prompts=prompts, answers=answers)
    unit, too_long = "characters", None
    if tokenizer is not None:
        unit = "tokens"
        sizes = answers(looking.targets(task, task.examples("train")))
        too_long = sum(size > spec.max_completion_length for size in sizes) / len(sizes) if sizes else None
    return {
        "unit": unit,
        **document,
        "answers_too_long": too_long,
        "findings": looking.findings(spec, document, too_long),
    }


def _measures(tokenizer: Any | None) -> tuple[Callable[[Sequence[Example]], list[int]], looking.Measure]:
    """Lengths of prompts as the model is given them, and of answers with their end token."""
    if tokenizer is None:
        return lambda examples: looking.characters([looking.text_of(one) for one in examples]), looking.characters
    from core.policies.lm.causal_lm import prompt_text

    def counted(texts: Sequence[str], more: int) -> list[int]:
        if not texts:
            return []
        return [len(ids) + more for ids in tokenizer(list(texts), add_special_tokens=False)["input_ids"]]

    return (
        lambda examples: counted([prompt_text(tokenizer, one) for one in examples[: looking.COMPARED]], 0),
        lambda texts: counted(texts, 1),
    )
