"""`grpoctl check --data`: a task's problems, and what the model earns on some. Heavy imports inside functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from core.config import RunSpec
from core.errors import UserError
from core.health.finding import Finding
from core.tasks import registry
from core.tasks.base import Example, Task
from grpoctl import console, dataset
from grpoctl.cli.checking import wrapped
from grpoctl.config import load
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.wording import plural

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
        why = why or dataset.why_absent(spec.language_model)
        policy = None if why else _policy(spec, asked.probe)
        tokenizer = dataset.tokenizer_of(spec.language_model) if policy is None else policy.tokenizer
        document = _texts(spec, task, tokenizer)
        findings: list[Finding] = document.pop("findings")
        seen: dict[str, Any] = {"skipped": why}
        if policy is not None:
            task.make_ready()
            seen = dataset.sample(spec, task, policy, dataset.sampling_plan(spec, asked.probe))
            findings += dataset.sampling_findings(seen)
        if not asked.samples:
            seen.pop("samples", None)
    return {**document, "sampling": seen, "warnings": [finding.as_json() for finding in findings]}


def _policy(spec: RunSpec, prompts: int) -> Any:
    from core.policies.lm.build import build_sampler

    plan = dataset.sampling_plan(spec, prompts)
    what = f"{plan.prompts} problems x {plan.num_generations} completions of {spec.language_model.source}"
    console.print_note(f"samples {what}; {ADVICE}")
    return build_sampler(spec.language_model)


def _texts(spec: RunSpec, task: Task, tokenizer: Any | None) -> dict[str, Any]:
    """Splits, leakage and lengths, in tokens where there is a tokenizer, and what of it to warn of (`findings`)."""
    prompts, answers = _measures(tokenizer)
    document = dataset.look(task, prompts=prompts, answers=answers)
    unit, too_long = "characters", None
    if tokenizer is not None:
        unit = "tokens"
        sizes = answers(dataset.targets(task, task.examples("train")))
        too_long = sum(size > spec.max_completion_length for size in sizes) / len(sizes) if sizes else None
    return {
        "unit": unit,
        **document,
        "answers_too_long": too_long,
        "findings": dataset.problem_findings(spec, document, too_long),
    }


def _measures(tokenizer: Any | None) -> tuple[Callable[[Sequence[Example]], list[int]], dataset.Measure]:
    """Lengths of prompts as the model is given them, and of answers with their end token."""
    if tokenizer is None:
        return lambda examples: dataset.characters([dataset.text_of(one) for one in examples]), dataset.characters
    from core.policies.lm.causal_lm import prompt_text

    def counted(texts: Sequence[str], more: int) -> list[int]:
        if not texts:
            return []
        return [len(ids) + more for ids in tokenizer(list(texts), add_special_tokens=False)["input_ids"]]

    return (
        lambda examples: counted([prompt_text(tokenizer, one) for one in examples[: dataset.COMPARED]], 0),
        lambda texts: counted(texts, 1),
    )


def say(found: Mapping[str, Any]) -> None:
    """The `data` of the document as tables and sentences on standard output."""
    console.print_table(
        f"\nProblems; lengths in {found['unit']}, median and longest",
        ("split", "problems", "repeats", "near", "prompt", "answer"),
        [_split_row(name, seen) for name, seen in found["splits"].items() if seen["problems"]],
    )
    if found["absent"]:
        _line(f"No test problems: {found['why_absent']}.")
    for split, seen in found["leakage"].items():
        if found["splits"][split]["problems"]:
            _line(_leak(split, seen))
    if found["answers_too_long"] is not None:
        _line(f"{_percent(found['answers_too_long'])} of the task's own answers are longer than a completion may be.")
    _say_sampling(found["sampling"])
    console.print_text("\nWarnings about the data" + ("" if found["warnings"] else ": none"))
    for warning in found["warnings"]:
        _line(f"{warning['severity']}: {warning['summary']}.")


def _split_row(name: str, seen: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (str(seen[key]) for key in ("problems", "duplicates", "near_duplicates"))
    sizes = (f"{seen[what]['median']}, {seen[what]['max']}" if seen[what] else "-" for what in ("prompt", "answer"))
    return (name, *counts, *sizes)


def _leak(split: str, seen: Mapping[str, Any]) -> str:
    text = f"{split}: {plural(seen['duplicates'], 'problem')} also in train, {seen['near_duplicates']} nearly so"
    pairs = ", ".join(f"{one['id']} and {one['other']} ({one['likeness']:.2f})" for one in seen["examples"])
    return f"{text}: {pairs}." if pairs else f"{text}."


def _say_sampling(seen: Mapping[str, Any]) -> None:
    if seen.get("skipped"):
        _line(f"Reward before training not sampled: {seen['skipped']}.")
        return
    k = seen["num_generations"]
    console.print_text("")
    stages = f", stage {', '.join(seen['stages_before'])} included" if seen["stages_before"] else ""
    console.print_text(
        wrapped(
            "",
            f"Before training{stages}: {plural(seen['prompts'], 'problem')} x {k} completions at temperature "
            f"{seen['temperature']:g}, {seen['seconds']:.0f} s",
        )
    )
    reward, positive, rate = seen["reward"], seen["positive"], seen["pass_rate"]
    if reward["mean"] is not None:
        text = f"reward {reward['mean']:.4f}, standard deviation {reward['std']:.4f}, inside groups"
        _line(f"{text} {reward['group_std']:.4f}; valid {_percent(seen['valid'])}.")
        share = f"{_percent(positive['share'])} ({_percent(positive['low'])} to {_percent(positive['high'])})"
        _line(
            f"Problems with a positive sample: {share}; only positive: {_percent(seen['all_positive']['share'])}. "
            f"Pass rate {_percent(rate['mean'])} ({_percent(rate['low'])} to {_percent(rate['high'])})."
        )
        _line(f"Dead groups (equal rewards): {_percent(seen['dead'])}.")
    cut, length = _percent(seen["truncated"]), seen["length"]
    missing = f"; rewards missing {_percent(seen['missing'])}" if seen["missing"] else ""
    _line(f"Mean length {length:.1f} tokens, cut off {cut}{missing}.")
    if seen["parts"]:
        rows = [(name, _number(part["mean"]), _percent(part["positive"])) for name, part in seen["parts"].items()]
        console.print_table("", ("score", "mean", "problems with one above 0"), rows)
    _say_needs(seen)


def _say_needs(seen: Mapping[str, Any]) -> None:
    """Groups that teach nothing, by K, for samples that are positive or not."""
    title = "Groups all positive or all not, by num_generations"
    if seen["needs_is"] == "at least":
        title += ", at the best"
    rows = [(str(row["num_generations"]), _percent(row["dead"])) for row in seen["needs"]]
    console.print_table(title, ("K", "dead"), rows)


def _line(text: str) -> None:
    console.print_text(wrapped("  ", text))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
