"""What the spec's model earns on a few training problems before it is trained: is there anything to learn from?

Not here: the arithmetic of pass rates (core.health.dataset).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from core.config import GrpoStage, RceStage, RunSpec
from core.health.before.advantages import dead_group
from core.health.dataset import ENOUGH, SIZES, fitted, highest_unseen
from core.health.finding import Finding
from core.health.statistics import wilson
from core.tasks.base import Example, Outcome, Task
from grpoctl.analysis.evaluation import quantity

if TYPE_CHECKING:
    from core.policies.base import Policy

K = 8  # where no stage samples


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
    max_completion_length: int
    positive_above: float  # a reward above this counts as positive


def planned(spec: RunSpec, prompts: int) -> Plan:
    """The plan of a spec; the stage's temperature as it starts."""
    name, stage = next(
        ((name, one) for name, one in spec.stages.items() if isinstance(one, (GrpoStage, RceStage))), (None, None)
    )
    grpo = stage if isinstance(stage, GrpoStage) else None
    wanted = None if stage is None else stage.positive_reward
    names = [*spec.stages]
    return Plan(
        stage=name,
        stages_before=() if name is None else tuple(names[: names.index(name)]),
        prompts=min(prompts, spec.task.train_prompts),
        num_generations=K if stage is None else stage.num_generations,
        temperature=spec.evaluation.temperature if stage is None else stage.temperature.start,
        top_p=grpo.top_p if grpo else 1.0,
        top_k=grpo.top_k if grpo else 0,
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
    )
    begun = time.monotonic()
    groups = list(sample_groups(policy, task, chosen, GroupSampling(k=plan.num_generations, how=how, seed=spec.seed)))
    outcomes = [one for part in groups for one in part.outcomes]
    rollouts = [part.rollout for part in groups]
    return {
        **asdict(plan),
        "prompts": len(chosen),
        "seconds": time.monotonic() - begun,
        "length": fmean(n for one in rollouts for n in one.mask_NT.sum(-1).tolist()),
        "truncated": fmean(float(cut) for one in rollouts for cut in one.truncated_N.tolist()),
        **earned(outcomes, plan),
        "samples": _samples(chosen, [text for one in rollouts for text in one.outputs], outcomes, plan),
    }


def earned(outcomes: Sequence[Outcome], plan: Plan) -> dict[str, Any]:
    """Rewards, groups and pass rates of the outcomes; the K of a prompt adjacent."""
    k = plan.num_generations
    groups = [_present(outcomes[start : start + k]) for start in range(0, len(outcomes), k)]
    rewards = [reward for group in groups for reward in group]
    counts = [(sum(reward > plan.positive_above for reward in group), len(group)) for group in groups if group]
    names = dict.fromkeys(name for one in outcomes for name in one.parts)
    return {
        "missing": 1.0 - len(rewards) / len(outcomes),
        "valid": fmean(one.valid for one in outcomes),
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
        **needs(counts),
    }


def needs(counts: Sequence[tuple[int, int]]) -> dict[str, Any]:
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


def findings(seen: Mapping[str, Any]) -> list[Finding]:
    """What of a sampling is worth a warning."""
    if seen["reward"]["mean"] is None:
        return [_warning("no-rewards", "not one of the sampled rewards could be computed", missing=1.0)]
    found = []
    if seen["missing"] > 0:
        share = f"{100 * seen['missing']:.0f}%"
        found.append(_warning("missing-rewards", f"{share} of the sampled completions have no reward"))
    before = ", ".join(seen["stages_before"])
    if not seen["positive"]["share"] and before:
        text = f"no sampled completion is positive before stage {before}: GRPO depends on what that leaves"
        found.append(Finding(id="nothing-positive-yet", severity="info", summary=text))
    elif not seen["positive"]["share"]:
        text = "no sampled completion is positive: GRPO has nothing to reinforce; begin with a supervised stage"
        found.append(_warning("nothing-positive", text))
    elif seen["all_positive"]["share"] == 1.0:
        text = "every sampled completion is positive: the problems are too easy, or the reward does not distinguish "
        text += "answers"
        found.append(_warning("all-positive", text))
    elif seen["dead"] > ENOUGH:
        wanted = seen["num_generations_needed"]
        advice = f"num_generations = {wanted} would leave half of them alive" if wanted else "no K up to 128 helps"
        text = f"{100 * seen['dead']:.0f}% of the sampled groups have equal rewards and teach nothing; {advice}"
        found.append(_warning("dead-groups", text, share=seen["dead"]))
    if seen["truncated"] > ENOUGH:
        share = f"{100 * seen['truncated']:.0f}%"
        text = f"{share} of the sampled completions are cut off at max_completion_length"
        found.append(_warning("truncated", f"{text} = {seen['max_completion_length']}", share=seen["truncated"]))
    return found


def _warning(name: str, text: str, **evidence: float) -> Finding:
    return Finding(id=name, severity="warning", summary=text, evidence=evidence)


def _share(count: int, n: int) -> dict[str, float | None]:
    low, high = wilson(count / n, n) if n else (None, None)
    return {"share": count / n if n else None, "low": low, "high": high}


def _part(outcomes: Sequence[Outcome], name: str, k: int) -> dict[str, float | None]:
    """Mean of one of the task's scores, and the share of prompts with a sample of it above 0."""
    values = [one.parts.get(name, math.nan) for one in outcomes]
    present = [value for value in values if not math.isnan(value)]
    prompts = [values[start : start + k] for start in range(0, len(values), k)]
    return {
        "mean": fmean(present) if present else None,
        "positive": fmean(any(value > 0 for value in group) for group in prompts),
    }


def _present(outcomes: Sequence[Outcome]) -> list[float]:
    return [one.reward for one in outcomes if not math.isnan(one.reward)]


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
