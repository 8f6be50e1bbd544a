"""A task's own problems and what the spec's model earns on a few of them, untrained: `grpoctl check SPEC --data`.

First the problems as texts: how many, which repeat, which leak into the held-out ones, how long they are, and the
tokenizer and the model, where they are on this machine: a check downloads nothing. Then a few completions of training
problems: is there anything to learn from? Not here: the arithmetic (core.health.dataset), and how it is printed.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from core.config import GrpoStage, ModelSpec, RceStage, RunSpec
from core.errors import SpecError, TaskError
from core.health.before.advantages import dead_group
from core.health.dataset import ENOUGH, SIZES, Nearness, Overlap, fitted, highest_unseen, leaks, lengths, repeats
from core.health.finding import Finding
from core.health.statistics import wilson
from core.tasks.base import Example, Outcome, Split, Task
from core.tasks.text import prompt_of
from grpoctl.analysis.evaluation import quantity
from grpoctl.wording import plural

if TYPE_CHECKING:
    from core.policies.base import Policy

SPLITS: tuple[Split, ...] = ("train", "eval", "test")
COMPARED = 20_000  # problems of a split whose likeness is looked for: it takes a millisecond each
SHOWN = 5  # pairs of ids
DEFAULT_K = 8  # completions of a problem where no stage samples
Measure = Callable[[Sequence[str]], list[int]]  # the lengths of some texts


def characters(texts: Sequence[str]) -> list[int]:
    """Lengths where no tokenizer is at hand."""
    return [len(text) for text in texts]


def look(task: Task, *, prompts: Callable[[Sequence[Example]], list[int]], answers: Measure) -> dict[str, Any]:
    """`splits` and `leakage` of the document; `prompts` and `answers` measure lengths.

    Raises SpecError where the training or held-out problems cannot be had; without a test file there are none to test.
    """
    examples, absent = _examples(task)
    texts = {split: {problem.id: text_of(problem) for problem in problems} for split, problems in examples.items()}
    compared = {split: dict(islice(part.items(), COMPARED)) for split, part in texts.items()}
    nearness = Nearness(text for part in compared.values() for text in part.values())
    splits = {}
    for split, problems in examples.items():
        same, near = repeats(texts[split]), nearness.near(compared[split])
        splits[split] = {
            "problems": len(problems),
            "duplicates": len(same),
            "near_duplicates": len(near),
            "examples": _shown([*same, *near]),
            "prompt": _lengths(prompts(problems)),
            "answer": _lengths(answers(targets(task, problems))),
        }
    leakage = {}
    for split in ("eval", "test"):
        same, near = leaks(texts[split], texts["train"]), nearness.near(compared[split], compared["train"])
        repeated = {pair.id for pair in same}
        near = [pair for pair in near if pair.id not in repeated]
        leakage[split] = {"duplicates": len(same), "near_duplicates": len(near), "examples": _shown([*same, *near])}
    return {
        "splits": splits,
        "leakage": leakage,
        "compared": {split: len(part) for split, part in compared.items()},
        "absent": absent,
    }


def _examples(task: Task) -> tuple[dict[Split, Sequence[Example]], str | None]:
    """The problems of each split, and why there are none to test where their file is at fault."""
    problems: dict[Split, Sequence[Example]] = {split: task.examples(split) for split in ("train", "eval")}
    try:
        return {**problems, "test": task.examples("test")}, None
    except SpecError as error:
        return {**problems, "test": ()}, str(error)


def text_of(example: Example) -> str:
    """What a problem says: its prompt, or all messages of its conversation."""
    return prompt_of(example).words


def targets(task: Task, examples: Sequence[Example]) -> list[str]:
    """The task's own answers to the first so many; none where it has none."""
    try:
        return [task.target(example) for example in examples[:COMPARED]]
    except TaskError:
        return []


def problem_findings(spec: RunSpec, document: Mapping[str, Any], too_long: float | None) -> list[Finding]:
    """What of this is worth a warning; `too_long` is the share of answers above the run's completion length."""
    warnings = []
    for split, overlap in document["leakage"].items():
        if overlap["duplicates"]:
            text = f"{plural(overlap['duplicates'], 'problem')} of {split} also in train"
            warnings.append(_overlap_finding("leakage", text, overlap))
        if overlap["near_duplicates"]:
            text = f"{plural(overlap['near_duplicates'], 'problem')} of {split} nearly the same as one in train"
            warnings.append(_overlap_finding("near-leakage", text, overlap))
    repeated = document["splits"]["train"]["duplicates"]
    if repeated:
        text = f"{plural(repeated, 'problem')} of {document['splits']['train']['problems']} in train are duplicates"
        warnings.append(_overlap_finding("duplicates", text, document["splits"]["train"]))
    if too_long is not None and too_long > 0.05:
        text = (
            f"{100 * too_long:.0f}% of the task's own answers are longer than max_completion_length = "
            f"{spec.max_completion_length}"
        )
        warnings.append(Finding(id="answers-cut", severity="warning", summary=text, evidence={"share": too_long}))
    return warnings


def _overlap_finding(name: str, text: str, overlap: Mapping[str, Any]) -> Finding:
    example = overlap["examples"][0]
    return Finding(
        id=name, severity="warning", summary=f"{text} (e.g. {example['id']} and {example['other']})",
        evidence={"duplicates": overlap["duplicates"], "near_duplicates": overlap["near_duplicates"]},
    )  # fmt: skip


def _lengths(values: Sequence[int]) -> dict[str, int] | None:
    quantiles = lengths(values)
    return None if quantiles is None else asdict(quantiles)


def _shown(overlaps: Sequence[Overlap]) -> list[dict[str, object]]:
    return [{"id": pair.id, "other": pair.other, "likeness": round(pair.likeness, 3)} for pair in overlaps[:SHOWN]]


def why_absent(spec: ModelSpec) -> str | None:
    """Why the model is not to be tried here; None where it is at hand, built here, or a path that loading judges."""
    from core.models.catalogue import local_folder

    path = Path(os.path.expanduser(spec.source))
    named = spec.source.startswith((".", "/", "~", "builtin:")) or path.exists()
    if named or local_folder(spec.source, spec.revision) is not None:
        return None
    return f"{spec.source} is not on this machine; choose another --profile, or give model.source=FOLDER"


def tokenizer_of(spec: ModelSpec) -> Any | None:
    """The model's tokenizer; None where it is not at hand, or cannot be read."""
    from core.models.catalogue import local_folder

    folder = local_folder(spec.source, spec.revision)
    if folder is None:
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=spec.trust_remote_code)
    except (OSError, ValueError, KeyError):
        return None  # lengths are then counted in characters, and the report says so


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What is sampled: `prompts` problems, K completions each, as the first stage that samples would."""

    stage: str | None
    stages_before: tuple[str, ...]  # which will have trained the model by then, and have not now
    prompts: int
    num_generations: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    stop_strings: tuple[str, ...]
    max_completion_length: int
    positive_above: float  # a reward above this counts as positive


def sampling_plan(spec: RunSpec, prompts: int) -> Plan:
    """The plan of a spec; the stage's temperature as it starts."""
    name, stage = next(
        ((name, stage) for name, stage in spec.stages.items() if isinstance(stage, (GrpoStage, RceStage))), (None, None)
    )
    grpo = stage if isinstance(stage, GrpoStage) else None
    wanted = None if stage is None else stage.positive_reward
    names = [*spec.stages]
    return Plan(
        stage=name,
        stages_before=() if name is None else tuple(names[: names.index(name)]),
        prompts=min(prompts, spec.task.train_prompts),
        num_generations=DEFAULT_K if stage is None else stage.num_generations,
        temperature=spec.evaluation.temperature if stage is None else stage.temperature.start,
        top_p=grpo.top_p if grpo else 1.0,
        top_k=grpo.top_k if grpo else 0,
        min_p=grpo.min_p if grpo else 0.0,
        repetition_penalty=grpo.repetition_penalty if grpo else 1.0,
        stop_strings=() if stage is None else stage.stop_strings,
        max_completion_length=(stage or spec).max_completion_length,
        positive_above=0.0 if wanted is None else math.nextafter(wanted, -math.inf),  # at least so much
    )


def sample(spec: RunSpec, task: Task, policy: Policy, plan: Plan) -> dict[str, Any]:
    """The `sampling` of the document. Raises TaskError where the rewards cannot go on."""
    from core.policies.base import Sampling
    from core.randomness import PREVIEW, RowKey, permutation
    from core.training.requests import GroupSampling, sample_groups

    pool = task.examples("train")
    order = permutation(RowKey(spec.seed, PREVIEW, 0, 0, 0), len(pool))
    chosen = [pool[index] for index in order[: plan.prompts]]
    how = Sampling(
        temperature=plan.temperature,
        max_completion_length=plan.max_completion_length,
        top_p=plan.top_p,
        top_k=plan.top_k,
        min_p=plan.min_p,
        repetition_penalty=plan.repetition_penalty,
        stop_strings=plan.stop_strings,
    )
    begun = time.monotonic()
    groups = list(sample_groups(policy, task, chosen, GroupSampling(k=plan.num_generations, how=how, seed=spec.seed)))
    outcomes = [outcome for part in groups for outcome in part.outcomes]
    rollouts = [part.rollout for part in groups]
    return {
        **asdict(plan),
        "prompts": len(chosen),
        "seconds": time.monotonic() - begun,
        "length": fmean(n for rollout in rollouts for n in rollout.mask_NT.sum(-1).tolist()),
        "truncated": fmean(float(cut) for rollout in rollouts for cut in rollout.truncated_N.tolist()),
        **reward_summary(outcomes, plan),
        "samples": _samples(chosen, [text for rollout in rollouts for text in rollout.outputs], outcomes, plan),
    }


def reward_summary(outcomes: Sequence[Outcome], plan: Plan) -> dict[str, Any]:
    """Rewards, groups and pass rates of the outcomes; the K of a prompt adjacent."""
    k = plan.num_generations
    groups = [_present(outcomes[start : start + k]) for start in range(0, len(outcomes), k)]
    rewards = [reward for group in groups for reward in group]
    counts = [(sum(reward > plan.positive_above for reward in group), len(group)) for group in groups if group]
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.parts)
    return {
        "missing": 1.0 - len(rewards) / len(outcomes),
        "valid": fmean(outcome.valid for outcome in outcomes),
        "reward": {
            "mean": fmean(rewards) if rewards else None,
            "std": pstdev(rewards) if rewards else None,
            "group_std": fmean(pstdev(group) for group in groups if group) if rewards else None,
        },
        "dead": fmean(len(set(group)) == 1 for group in groups if group) if rewards else None,
        "positive": _share(sum(good > 0 for good, _ in counts), len(counts)),
        "all_positive": _share(sum(good == n for good, n in counts), len(counts)),
        "pass_rate": asdict(
            quantity([(i, float(r > plan.positive_above)) for i, group in enumerate(groups) for r in group])
        ),
        "parts": {name: _part(outcomes, name, k) for name in names},
        **dead_groups_by_size(counts),
    }


def dead_groups_by_size(counts: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """`needs`: the share of dead groups at each size; `num_generations_needed`: the first that leaves half alive.

    Without a single positive sample the sizes are those of the highest pass rate that this is no surprise at, so more
    may be needed; where all samples are positive likewise.
    """
    rates, total = fitted(counts), sum(n for _, n in counts)
    if not total:
        return {"needs": [], "num_generations_needed": None, "needs_is": "unknown"}
    if rates is not None:
        table = {size: rates.dead(size) for size in SIZES}
    else:
        table = {size: dead_group(highest_unseen(total), size) for size in SIZES}
    return {
        "needs": [{"num_generations": size, "dead": dead} for size, dead in table.items()],
        "num_generations_needed": next((size for size, dead in table.items() if dead <= ENOUGH), None),
        "needs_is": "estimated" if rates is not None else "at least",
    }


def sampling_findings(sampling: Mapping[str, Any]) -> list[Finding]:
    """What of a sampling is worth a warning."""
    if sampling["reward"]["mean"] is None:
        return [_warning("no-rewards", "not one of the sampled rewards could be computed", missing=1.0)]
    warnings = []
    if sampling["missing"] > 0:
        share = f"{100 * sampling['missing']:.0f}%"
        warnings.append(_warning("missing-rewards", f"{share} of the sampled completions have no reward"))
    before = ", ".join(sampling["stages_before"])
    if not sampling["positive"]["share"] and before:
        text = f"no sampled completion is positive before stage {before}: GRPO depends on what that leaves"
        warnings.append(Finding(id="nothing-positive-yet", severity="info", summary=text))
    elif not sampling["positive"]["share"]:
        text = "no sampled completion is positive: GRPO has nothing to reinforce; begin with a supervised stage"
        warnings.append(_warning("nothing-positive", text))
    elif sampling["all_positive"]["share"] == 1.0 and sampling["dead"] <= ENOUGH:
        text = (
            f"every sampled completion earns more than {sampling['positive_above']:g}, though rewards differ in "
            f"{100 * (1 - sampling['dead']):.0f}% of the groups: the pass rate counts a part that all of them earn; "
            "give right answers alone more than task.valid_above, or read the parts"
        )
        warnings.append(Finding(id="all-positive", severity="info", summary=text))
    elif sampling["all_positive"]["share"] == 1.0:
        text = "every sampled completion is positive: the problems are too easy, or the reward does not distinguish "
        text += "answers"
        warnings.append(_warning("all-positive", text))
    elif sampling["dead"] > ENOUGH:
        wanted = sampling["num_generations_needed"]
        advice = f"num_generations = {wanted} would leave half of them alive" if wanted else "no K up to 128 helps"
        text = f"{100 * sampling['dead']:.0f}% of the sampled groups have equal rewards and teach nothing; {advice}"
        warnings.append(_warning("dead-groups", text, share=sampling["dead"]))
    if sampling["truncated"] > ENOUGH:
        share = f"{100 * sampling['truncated']:.0f}%"
        limit = f"max_completion_length = {sampling['max_completion_length']}"
        text = f"{share} of the sampled completions are cut off at {limit}"
        warnings.append(_warning("truncated", text, share=sampling["truncated"]))
    return warnings


def _warning(name: str, text: str, **evidence: float) -> Finding:
    return Finding(id=name, severity="warning", summary=text, evidence=evidence)


def _share(count: int, n: int) -> dict[str, float | None]:
    low, high = wilson(count / n, n) if n else (None, None)
    return {"share": count / n if n else None, "low": low, "high": high}


def _part(outcomes: Sequence[Outcome], name: str, k: int) -> dict[str, float | None]:
    """Mean of one of the task's scores, and the share of prompts with a sample of it above 0."""
    values = [outcome.parts.get(name, math.nan) for outcome in outcomes]
    present = [value for value in values if not math.isnan(value)]
    prompts = [values[start : start + k] for start in range(0, len(values), k)]
    return {
        "mean": fmean(present) if present else None,
        "positive": fmean(any(value > 0 for value in group) for group in prompts),
    }


def _present(outcomes: Sequence[Outcome]) -> list[float]:
    return [outcome.reward for outcome in outcomes if not math.isnan(outcome.reward)]


def _samples(
    prompts: Sequence[Example], texts: Sequence[str], outcomes: Sequence[Outcome], plan: Plan
) -> list[dict[str, object]]:
    rows = zip(texts, outcomes, strict=True)
    return [
        {
            "prompt_id": prompts[row // plan.num_generations].id,
            "text": text,
            "reward": None if math.isnan(outcome.reward) else outcome.reward,
            "rewards": dict(outcome.parts),
        }
        for row, (text, outcome) in enumerate(rows)
    ]
