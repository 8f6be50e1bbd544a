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
from grpoctl import console, dataset, stored_outputs
from grpoctl.wording import plural

ADVICE = "--no-model leaves this out"
PROBE = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """`--data` and the options that belong to it, as the command line has them."""

    data: bool
    probe: int | None
    no_model: bool
    model_samples: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DataOptions:
    """The settings of `--data`."""

    probe: int = PROBE  # problems that the model is tried on
    model: bool = True
    samples: bool = False  # the model's completions stand in the document, too


def options(arguments: Arguments, kinds: Collection[str], name: str) -> DataOptions | None:
    """The options of `--data`, None without it. Raises UserError for options that contradict each other."""
    probe, no_model, samples = arguments.probe, arguments.no_model, arguments.model_samples
    if not arguments.data:
        if probe is not None or no_model or samples:
            raise UserError("got --probe, --no-model or --model-samples by itself; they belong to --data: add it")
        return None
    if "experiment" not in kinds:
        raise UserError(f"--data looks at an experiment, and {name!r} is a sweep; check the one it is over")
    if no_model and (probe is not None or samples):
        raise UserError("got --no-model with --probe or --model-samples, which try the model; leave one of them out")
    return DataOptions(probe=probe or PROBE, model=not no_model, samples=samples)


def require_data(spec: RunSpec, options: DataOptions) -> None:
    """Raises UserError where there are neither stored outputs nor texts of a language model to look at."""
    if spec.task.stores_outputs:
        if options.samples or options.probe != PROBE:
            has = f"the task {spec.task.name} has stored outputs"
            raise UserError(f"got --probe or --model-samples, which try a language model, and {has}; leave it out")
    elif spec.task.scores != "text":
        what = f"the task {spec.task.name} scores {spec.task.scores} and stores none"
        raise UserError(f"--data looks at texts or at stored outputs, and {what}; leave it out")
    elif spec.model is None:
        raise UserError(f"--data tries a language model, and the policy is {spec.policy.kind}; leave it out")


def check(spec: RunSpec, options: DataOptions, *, json: bool) -> dict[str, Any]:
    """The key `data` of the JSON document; printed as text unless `json`.

    Raises what the task, its data and its rewards raise, and ModelError.
    """
    task = registry.build(spec.task)
    if spec.task.stores_outputs:
        return _check_stored(spec, task, json=json)
    with closing(task):
        task.examples("train")  # a fault of the data is told before seconds of loading a model
        skipped = None if options.model else f"not asked for ({ADVICE})"
        skipped = skipped or dataset.why_absent(spec.language_model)
        policy = None if skipped else _policy(spec, options.probe)
        tokenizer = dataset.tokenizer_of(spec.language_model) if policy is None else policy.tokenizer
        texts = _texts(spec, task, tokenizer)
        findings: list[Finding] = texts.pop("findings")
        rewards: dict[str, Any] = {"skipped": skipped}
        if policy is not None:
            task.make_ready()
            rewards = dataset.sample(spec, task, policy, dataset.sampling_plan(spec, options.probe))
            findings += dataset.sampling_findings(rewards)
        if not options.samples:
            rewards.pop("samples", None)
    document = {**texts, "sampling": rewards, "warnings": [finding.as_json() for finding in findings]}
    if not json:
        _print(document)
    return document


def _check_stored(spec: RunSpec, task: Task, *, json: bool) -> dict[str, Any]:
    """`check` of a task that has stored outputs."""
    with closing(task):
        document = stored_outputs.look(spec, task)
    document["warnings"] = [finding.as_json() for finding in stored_outputs.findings(spec, document)]
    if not json:
        _print_stored(document)
    return document


def _policy(spec: RunSpec, prompts: int) -> Any:
    from core.policies.lm.build import build_sampler

    plan = dataset.sampling_plan(spec, prompts)
    size = f"{plan.prompts} problems x {plan.num_generations} completions"
    console.print_note(f"samples {size} of {spec.language_model.source}; {ADVICE}")
    return build_sampler(spec.language_model)


def _texts(spec: RunSpec, task: Task, tokenizer: Any | None) -> dict[str, Any]:
    """Splits, leakage and lengths, in tokens where there is a tokenizer, and what of it to warn of (`findings`)."""
    prompts, answers = _measures(tokenizer, {} if spec.model is None else spec.model.chat_template_kwargs)
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


def _measures(
    tokenizer: Any | None, variables: Mapping[str, object]
) -> tuple[Callable[[Sequence[Example]], list[int]], dataset.Measure]:
    """Lengths of prompts as the model is given them, and of answers with their end token."""
    if tokenizer is None:
        return lambda examples: dataset.characters(list(map(dataset.text_of, examples))), dataset.characters
    from core.policies.lm.causal_lm import prompt_text

    def token_counts(texts: Sequence[str], more: int) -> list[int]:
        if not texts:
            return []
        return [len(ids) + more for ids in tokenizer(list(texts), add_special_tokens=False)["input_ids"]]

    return (
        lambda examples: token_counts(
            [prompt_text(tokenizer, example, variables) for example in examples[: dataset.COMPARED]], 0
        ),
        lambda texts: token_counts(texts, 1),
    )


def _print(document: Mapping[str, Any]) -> None:
    """Print the document as tables and sentences."""
    splits = document["splits"]
    console.print_table(
        f"\nProblems; lengths in {document['unit']}, median and longest",
        ("split", "problems", "repeats", "near", "prompt", "answer"),
        [_split_row(name, split) for name, split in splits.items() if split["problems"]],
    )
    if document["absent"]:
        _line(f"No test problems: {document['absent']}.")
    for name, leak in document["leakage"].items():
        if splits[name]["problems"]:
            _line(_leak(name, leak))
    if document["answers_too_long"] is not None:
        share = _percent(document["answers_too_long"])
        _line(f"{share} of the task's own answers are longer than a completion may be.")
    _print_rewards(document["sampling"])
    console.print_text("\nWarnings about the data" + ("" if document["warnings"] else ": none"))
    for warning in document["warnings"]:
        _line(f"{warning['severity']}: {warning['summary']}.")


def _print_stored(document: Mapping[str, Any]) -> None:
    """Print what is stored for the training queries, and how many of their groups are live."""
    splits, candidates, right = document["splits"], document["candidates"], document["right"]
    queries = splits["train"]["problems"]
    console.print_text("")
    columns = ("split", "queries", "same id", "same inputs", "id in train", "inputs in train")
    rows = [_query_row(name, split, document["leakage"].get(name)) for name, split in splits.items()]
    console.print_table("Queries", columns, [row for row in rows if row[1] != "0"])
    console.print_paragraph(
        f"Candidates of the {queries} training queries: {candidates['total']}, "
        f"{candidates['min']} to {candidates['max']} a query, median {candidates['median']:g}."
    )
    if candidates["sources"] is not None:
        sources = ", ".join(f"{name} {count}" for name, count in candidates["sources"].items())
        dropped = f"{candidates['duplicates']} of {candidates['proposed']} dropped as duplicates"
        _line(f"{dropped}, {candidates['filtered']} by drop_wrong_below; {sources}.")
    if right is not None:
        share, positive = _percent(right["share"]), _percent(right["queries_with_right"])
        _line(f"Right: {share} of the candidates; {positive} of the queries have one.")
        counts = f"{right['all_right']} all right, {right['all_wrong']} all wrong, {right['mixed']} mixed"
        _line(f"Queries: {counts} ({_percent(right['mixed_share'])}).")
    for name, score in document["scores"].items():
        _line(f"{name}: {_distribution(score)}.")
    _print_live(document, queries)
    for sentence in document["conclusions"]:
        console.print_paragraph(f"{sentence[0].upper()}{sentence[1:]}.")
    if document["baselines"]:
        values = ", ".join(f"{name} {value:.4f}" for name, value in document["baselines"].items())
        console.print_paragraph(f"Accuracy on held-out queries without training: {values}.")
    console.print_text("\nWarnings about the data" + ("" if document["warnings"] else ": none"))
    for warning in document["warnings"]:
        _line(f"{warning['severity']}: {warning['summary']}.")


def _query_row(name: str, split: Mapping[str, Any], leak: Mapping[str, Any] | None) -> tuple[str, ...]:
    own = (str(split["problems"]), str(split["same_id"]), str(split["same_inputs"]))
    return (name, *own, *(("-", "-") if leak is None else (str(leak["same_id"]), str(leak["same_inputs"]))))


def _distribution(score: Mapping[str, Any]) -> str:
    missing = f"; {_percent(score['missing'])} missing" if score["missing"] else ""
    if score["values"] is not None:
        values = ", ".join(f"{row['value']:g} {_percent(row['share'])}" for row in score["values"])
        return (values or "none known") + missing
    marks = ", ".join(f"{row['value']:.4g}" for row in score["quantiles"])
    return f"{marks} (least, 10 %, median, 90 %, most){missing}"


def _print_live(document: Mapping[str, Any], queries: int) -> None:
    """A line for each reward mode and choice; the spec's own cells have a star."""
    cells = {(row["reward_mode"], row["choice"], row["keep"]): row for row in document["live_groups"]}
    modes = dict.fromkeys(mode for mode, _, _ in cells)
    keeps = sorted({keep for _, _, keep in cells if keep is not None})
    lines = []
    for mode in modes:
        choices = dict.fromkeys(choice for of, choice, _ in cells if of == mode and choice is not None) or {"all": None}
        for place, choice in enumerate(choices):
            name = (mode or "reward") if place == 0 else ""
            kept = [_live(cells[mode, choice, keep]) for keep in keeps]
            lines.append((name, choice, *kept, _live(cells[mode, None, None]) if place == 0 else ""))
    console.print_text("")
    console.print_table(
        f"Live groups of {queries}, and the mean std of advantages inside a group",
        ("reward", "candidates", *map(str, keeps), "all"),
        lines,
    )
    means = f" random and stratified: means over {document['draws']} draws, seed {document['seed']}." if keeps else ""
    console.print_paragraph(f"Live: rewards differ. *: the spec's own.{means}", "  ")


def _live(row: Mapping[str, Any]) -> str:
    if row["missing"] == 1:
        return "unknown"
    deviation = row["advantage_std"]
    small = "" if deviation is None else f" {deviation:.3f}".replace(" 0.", " .")[:5]
    star = "*" if row["stages"] else ""
    return f"{stored_outputs.number(row['live'])}{star}{small}"


def _split_row(name: str, split: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (str(split[key]) for key in ("problems", "duplicates", "near_duplicates"))
    lengths = (f"{split[key]['median']}, {split[key]['max']}" if split[key] else "-" for key in ("prompt", "answer"))
    return (name, *counts, *lengths)


def _leak(name: str, leak: Mapping[str, Any]) -> str:
    text = f"{name}: {plural(leak['duplicates'], 'problem')} also in train, {leak['near_duplicates']} nearly so"
    pairs = ", ".join(f"{pair['id']} and {pair['other']} ({pair['likeness']:.2f})" for pair in leak["examples"])
    return f"{text}: {pairs}." if pairs else f"{text}."


def _print_rewards(rewards: Mapping[str, Any]) -> None:
    """Print what the untrained model earns, and how many groups teach nothing at each K."""
    if rewards.get("skipped"):
        _line(f"Reward before training not sampled: {rewards['skipped']}.")
        return
    k = rewards["num_generations"]
    console.print_text("")
    stages = f", stage {', '.join(rewards['stages_before'])} included" if rewards["stages_before"] else ""
    console.print_paragraph(
        f"Before training{stages}: {plural(rewards['prompts'], 'problem')} x {k} completions at temperature "
        f"{rewards['temperature']:g}, {rewards['seconds']:.0f} s"
    )
    reward, positive, rate = rewards["reward"], rewards["positive"], rewards["pass_rate"]
    if reward["mean"] is not None:
        text = f"reward {reward['mean']:.4f}, standard deviation {reward['std']:.4f}, inside groups"
        _line(f"{text} {reward['group_std']:.4f}; valid {_percent(rewards['valid'])}.")
        share = f"{_percent(positive['share'])} ({_percent(positive['low'])} to {_percent(positive['high'])})"
        _line(
            f"Problems with a positive sample: {share}; only positive: {_percent(rewards['all_positive']['share'])}. "
            f"Pass rate {_percent(rate['mean'])} ({_percent(rate['low'])} to {_percent(rate['high'])})."
        )
        _line(f"Dead groups (equal rewards): {_percent(rewards['dead'])}.")
    missing = f"; rewards missing {_percent(rewards['missing'])}" if rewards["missing"] else ""
    _line(f"Mean length {rewards['length']:.1f} tokens, cut off {_percent(rewards['truncated'])}{missing}.")
    if rewards["parts"]:
        parts = [(name, _number(part["mean"]), _percent(part["positive"])) for name, part in rewards["parts"].items()]
        console.print_table("", ("score", "mean", "problems with one above 0"), parts)
    at_best = ", at the best" if rewards["needs_is"] == "at least" else ""
    dead = [(str(row["num_generations"]), _percent(row["dead"])) for row in rewards["needs"]]
    console.print_table(f"Groups all positive or all not, by num_generations{at_best}", ("K", "dead"), dead)


def _line(text: str) -> None:
    console.print_paragraph(text, "  ")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
