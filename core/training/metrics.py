"""Scored groups -> metrics: of a training step (rollout, advantages, clean scores, sample rows), and of an evaluation.

The draws are the same at every evaluation, so differences are the policy's.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import torch
from torch import Tensor

from core.algorithms.advantages import dead_groups, group_std
from core.algorithms.reductions import token_mean
from core.errors import TaskError
from core.health.own_noise import Noise
from core.health.statistics import clustered_se
from core.policies.base import Rollout, Scores
from core.tasks.base import Example, Outcome, Task, names_of
from core.training.requests import Groups


def rollout_metrics(
    groups: Groups,
    advantages_PK: Tensor,
    *,
    records: Sequence[Mapping[str, object]],
    members_PK: Tensor | None = None,
    tokens: bool = True,
    virtual_best: float | None = None,
) -> dict[str, float]:
    """Rewards, groups, advantages and completions of a step; statistics over present rewards, ddof 0.

    `records` are what the task records of each output: outputs are different where these are. `members_PK` are those
    that advantages are of, as far as they are there. Without `tokens` there is nothing to say of length and truncation.
    A virtual best sample, where the stage has one, makes a group of equal rewards below it a live one.
    """
    rewards_PK, rollout, there_PK = groups.rewards_PK, groups.rollout, groups.present
    outputs = [row for row, there in enumerate(there_PK.flatten().tolist()) if there]
    outcomes = [groups.outcomes[row] for row in outputs]
    present = rewards_PK[~rewards_PK.isnan()]
    dead_P = torch.from_numpy(dead_groups(rewards_PK.numpy(), virtual_best))
    live = advantages_PK[~dead_P][there_PK[~dead_P]]
    return {
        "reward/mean": float(present.mean()) if len(present) else math.nan,
        "reward/std": float(present.std(correction=0)) if len(present) else math.nan,
        "reward/group_std": float(group_std(rewards_PK.numpy(), ddof=0).mean()),
        **(_cut_reward(rewards_PK.flatten()[rollout.truncated_N.to(rewards_PK.device)]) if tokens else {}),
        "reward/missing": float(rewards_PK[there_PK].isnan().double().mean()),
        "groups/dead": float(dead_P.double().mean()),
        "advantage/mean": float(advantages_PK[there_PK].mean()),
        **({"advantage/std": float(live.std(correction=0))} if len(live) else {}),
        "advantage/max_abs": float(advantages_PK.abs().amax()),
        **({} if members_PK is None else _of_each_group(advantages_PK, members_PK & there_PK)),
        "completions/valid": fmean(outcome.valid for outcome in outcomes),
        **(lengths("completions", rollout) if tokens else {}),
        "completions/distinct": len({json.dumps(records[row], sort_keys=True) for row in outputs}) / len(outputs),
        **_part_means(outcomes),
    }


def _of_each_group(advantages_PK: Tensor, members_PK: Tensor) -> dict[str, float]:
    """Means over groups, dead ones 0, of the std of their members' advantages (ddof 1) and of the largest absolute one.

    So under a z-score `advantage/group_std` is the share of live groups and says nothing of how large advantages are.
    """
    inside_PK = advantages_PK.masked_fill(~members_PK, math.nan).numpy()
    return {
        "advantage/group_std": float(group_std(inside_PK, ddof=1).mean()),
        "advantage/group_max": float(advantages_PK.masked_fill(~members_PK, 0.0).abs().amax(-1).mean()),
    }


def lengths(prefix: str, rollout: Rollout) -> dict[str, float]:
    """`<prefix>/length` and `<prefix>/truncated` of texts made of tokens."""
    return {
        f"{prefix}/length": float(rollout.mask_NT.sum(-1).double().mean()),
        f"{prefix}/truncated": float(rollout.truncated_N.double().mean()),
    }


def _cut_reward(rewards_C: Tensor) -> dict[str, float]:
    """`reward/truncated` of the rewards of the completions that were cut off: absent where none has one."""
    present = rewards_C[~rewards_C.isnan()]
    return {"reward/truncated": float(present.mean())} if len(present) else {}


def _part_means(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """`rewards/<name>` of every part that outcomes have: its mean over those where it is there."""
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.parts)
    parts = {name: [outcome.parts.get(name, math.nan) for outcome in outcomes] for name in names}
    present = {name: [value for value in values if not math.isnan(value)] for name, values in parts.items()}
    return {f"rewards/{name}": fmean(values) if values else math.nan for name, values in present.items()}


def integrity_metrics(
    rollout: Rollout, rows: list[int], clean: Scores, *, density: bool = False, noise: Noise | None = None
) -> dict[str, float]:
    """Gap between recorded and clean log-probs, and the (differential) entropy, over the rows that were scored.

    Without recorded log-probs there is no gap. The entropy of a `density` may be below 0 and goes by another name: the
    limits and rules of `entropy` are of choices. With the run's own `noise` also the smallest log-prob gap beyond it.
    """
    mask_NT, metrics = rollout.mask_NT[rows], {}
    if rollout.drawn_NT is not None:
        gap_NT = (rollout.drawn_NT[rows] - clean.logprobs_NT).abs().double()
        metrics["rollout/logprob_gap"] = float(token_mean(gap_NT, mask_NT))
        metrics["rollout/logprob_gap_max"] = float(gap_NT.masked_fill(~mask_NT, 0.0).amax())
        doubt_NT = doubts(clean.logprobs_NT, density=density)
        early_NT = mask_NT & (torch.arange(mask_NT.shape[1]) < (mask_NT.sum(-1, keepdim=True) + 1) // 2)
        metrics["rollout/logit_gap"] = logit_gap(gap_NT, doubt_NT, mask_NT)
        metrics["rollout/logit_gap_early"] = logit_gap(gap_NT, doubt_NT, early_NT)
        if noise is not None:
            limit = noise.limit(rollout.how.temperature, effective_tokens(doubt_NT[mask_NT]))
            metrics["rollout/detectable_gap"] = limit * float(token_mean(doubt_NT, mask_NT))
        if bool((mask_NT & ~early_NT).any()):
            metrics["rollout/logit_gap_late"] = logit_gap(gap_NT, doubt_NT, mask_NT & ~early_NT)
    if clean.entropies_NT is not None:
        name = "differential_entropy" if density else "entropy"
        metrics[name] = float(token_mean(clean.entropies_NT.double(), mask_NT))
    return metrics


LEAST_DOUBT = 0.01  # of a token that is certain: what is left of its gap is the rounding of the sum over all tokens


def doubts(logprobs_NT: Tensor, *, density: bool) -> Tensor:
    """1 - the probability of each factor, LEAST_DOUBT at least; 1 of a `density`, which has no probability."""
    return torch.ones_like(logprobs_NT).double() if density else (1 - logprobs_NT.double().exp()).clamp(min=LEAST_DOUBT)


def logit_gap(gap_NT: Tensor, doubt_NT: Tensor, mask_NT: Tensor) -> float:
    """The gaps of these factors over their doubt: a logit that is wrong by x moves a log-prob by x * (1 - p)."""
    return float(gap_NT[mask_NT].sum() / doubt_NT[mask_NT].sum())


def effective_tokens(doubt_M: Tensor) -> float:
    """Kish's effective sample size of these doubts: as many equal ones have a mean that varies as much."""
    return float(doubt_M.sum() ** 2 / doubt_M.square().sum())


def noise_metrics(
    rollout: Rollout, rows: Sequence[int], together: Scores, alone: Sequence[Scores], *, density: bool
) -> dict[str, float]:
    """`rollout/noise` and its kin: logit gaps of these rows, one of each prompt, while sampler and trainer agree.

    `together` are the trainer's scores of all of them, `alone` those of each by itself. Nothing where the sampler
    recorded nothing.
    """
    if rollout.drawn_NT is None:
        return {}
    mask_NT, scored_NT = rollout.mask_NT[list(rows)], together.logprobs_NT
    doubt_NT = doubts(scored_NT, density=density)
    gap_NT = (rollout.drawn_NT[list(rows)] - scored_NT).abs().double()
    return {
        "rollout/noise": max(
            logit_gap(*of_row) for of_row in zip(gap_NT, doubt_NT, mask_NT, strict=True) if of_row[2].any()
        ),
        "rollout/noise_mean": logit_gap(gap_NT, doubt_NT, mask_NT),
        "rollout/rescoring_gap": rescoring_gap(mask_NT, together, alone, density=density),
    }


def rescoring_gap(mask_NT: Tensor, together: Scores, alone: Sequence[Scores], *, density: bool) -> float:
    """The logit gap between the trainer's scores of rows together and each alone, which no sampler has a part in."""
    again_NT = torch.cat([scores.logprobs_NT for scores in alone])
    gap_NT = (again_NT - together.logprobs_NT).abs().double()
    return logit_gap(gap_NT, doubts(together.logprobs_NT, density=density), mask_NT)


def canary_metrics(
    canary_T: Tensor, scored_T: Tensor, temperature: float, *, density: bool, noise: Noise | None
) -> dict[str, float]:
    """The logit gap of the canary's factors between sampler and trainer; with `noise` the smallest that exceeds it."""
    gap_T, doubt_T = (canary_T - scored_T).abs().double(), doubts(scored_T, density=density)
    metrics = {"canary/logit_gap": logit_gap(gap_T, doubt_T, torch.ones_like(gap_T, dtype=torch.bool))}
    if noise is not None:
        metrics["canary/detectable_gap"] = noise.canary_limit(temperature, effective_tokens(doubt_T))
    return metrics


OF_A_SAMPLE = ("step", "row", "prompt_id", "valid", "reward", "rewards", "measured", "advantage")  # keys of its line


def sample_rows(
    groups: Groups, records: Sequence[Mapping[str, object]], advantages_PK: Tensor, step: int
) -> list[dict[str, object]]:
    """The step's lines of samples.jsonl; `records` are what the task records of each output.

    Raises TaskError for a record with a key that is the line's own.
    """
    taken = sorted({key for record in records for key in record if key in OF_A_SAMPLE})
    if taken:
        raise TaskError(
            f"the task records {', '.join(taken)} of an output, which each line of samples.jsonl has of its own; "
            "call it otherwise in `record`"
        )
    rollout, advantages, present = groups.rollout, advantages_PK.flatten().tolist(), groups.rollout.present.tolist()
    return [
        {
            "step": step,
            "row": row,
            "prompt_id": rollout.prompts[prompt].id,
            **records[row],
            "valid": outcome.valid,
            "reward": outcome.reward,
            **({"rewards": dict(outcome.parts)} if outcome.parts else {}),
            **({"measured": dict(outcome.measured)} if outcome.measured else {}),
            "advantage": advantages[row],
        }
        for row, (prompt, outcome) in enumerate(zip(rollout.prompt_N.tolist(), groups.outcomes, strict=True))
        if present[row]
    ]


def problem_sha(example: Example) -> str:
    """A hash (16 hex digits) that is equal where id and inputs are: other data under the same ids have other ones."""
    return hashlib.sha256(" ".join(names_of(example)).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutNames:
    """What held-out problems are known by, each in its place: a hash, and its cluster where not all are independent."""

    shas: Sequence[str]
    clusters: Sequence[str] | None

    @property
    def count(self) -> int | None:
        """How many clusters there are; None where all problems are independent."""
        return None if self.clusters is None else len(set(self.clusters))

    @classmethod
    def of(cls, examples: Sequence[Example], fact: str | None) -> HeldOutNames:
        """Those of the problems; `fact` is what the problems of a cluster share, None where there are no clusters."""
        clusters = None if fact is None else [str(example.facts.get(fact)) for example in examples]
        return cls(shas=[problem_sha(example) for example in examples], clusters=clusters)


def problem_rows(
    groups: Groups,
    task: Task,
    *,
    asked: HeldOutNames,
    step: int,
    reward_range: tuple[float, float] | None,
    tokens: bool,
) -> list[dict[str, object]]:
    """The rows of problems.parquet of the evaluation after `step`: one for each completion of each held-out problem.

    `reward` is the expected one. `right`, where the task does not say it, means the best reward there is, None where
    no reward is known to be the best. The problem itself stands in the rows of the first evaluation only.
    """
    rollout, k = groups.rollout, groups.rewards_PK.shape[1]
    lengths_N, cut_N = rollout.mask_NT.sum(-1).tolist(), rollout.truncated_N.tolist()
    rows = []
    for row, outcome in enumerate(groups.outcomes):
        place, draw = divmod(row, k)
        example = rollout.prompts[place]
        best = None if reward_range is None or math.isnan(outcome.expected) else outcome.expected >= reward_range[1]
        sample = {**task.record(rollout.outputs[row]), "valid": outcome.valid, "reward": outcome.reward}
        sample |= {"measured": dict(outcome.measured)} if outcome.measured else {}
        rows.append(
            {
                "step": step,
                "place": place,
                "draw": draw,
                "prompt_id": example.id,
                "problem": asked.shas[place],
                **({} if asked.clusters is None else {"cluster": asked.clusters[place]}),
                "reward": outcome.expected,
                "valid": outcome.valid,
                "right": best if outcome.right is None else outcome.right,
                **({"length": lengths_N[row], "truncated": cut_N[row]} if tokens else {}),
                **{f"rewards/{name}": value for name, value in outcome.parts.items()},
                **{f"measured/{name}": value for name, value in outcome.measured.items()},
                "output": task.shown_output(sample),
                **({"prompt": task.shown(example)} if step == 0 else {}),
            }
        )
    return rows


SLUG = re.compile(r"[^\w.-]+")  # what a of a slice may not stand in a metric's name


def evaluation_metrics(
    groups: Groups, slice_by: str | None = None, *, tokens: bool = True, clusters: Sequence[str] | None = None
) -> dict[str, float]:
    """`eval/*` of one evaluation: expected reward with its standard error over prompts (not over completions).

    `clusters` names each prompt's, where prompts are independent between clusters only; 0 stands for an error that one
    prompt, or one cluster, cannot tell. Lengths only where outputs are made of `tokens`. Parts and what is measured,
    too, are means over prompts. `slice_by` is a fact of the prompts; `eval/slices/<value>` is then the mean reward over
    the prompts with that value, and `eval/<measured>/<value>` that of what is measured.
    """
    k = groups.rewards_PK.shape[1]
    rewards = prompt_rewards(groups)
    means = [reward for reward in rewards if reward is not None]
    return {
        "eval/reward": fmean(means) if means else math.nan,
        "eval/reward_se": _error_of(rewards, clusters) or 0.0,
        "eval/valid": fmean(outcome.valid for outcome in groups.outcomes),
        **(lengths("eval", groups.rollout) if tokens else {}),
        **_over_prompts("eval/rewards/", [outcome.parts for outcome in groups.outcomes], k),
        **_over_prompts("eval/", [outcome.measured for outcome in groups.outcomes], k),
        **(_slices(groups, slice_by) if slice_by is not None else {}),
    }


def prompt_rewards(groups: Groups) -> list[float | None]:
    """The mean expected reward of each held-out prompt, in their order; None for one whose rewards are all missing."""
    return _by_prompt([outcome.expected for outcome in groups.outcomes], groups.rewards_PK.shape[1])


def gain_errors(
    begun: Mapping[str, Sequence[float | None]],
    now: Sequence[float | None],
    clusters: Sequence[str] | None = None,
) -> dict[str, float]:
    """`eval/gain_se/<stage>`: the standard error over prompts, or `clusters` of them, of the change since it began.

    Paired by prompt: both evaluations ask the same prompts with the same draws, so what makes a prompt hard cancels.
    """
    errors = {}
    for stage, before in begun.items():
        pairs = zip(before, now, strict=True)
        changes = [None if old is None or new is None else new - old for old, new in pairs]
        if (error := _error_of(changes, clusters)) is not None:
            errors[f"eval/gain_se/{stage}"] = error
    return errors


def _error_of(values: Sequence[float | None], clusters: Sequence[str] | None) -> float | None:
    """The standard error of the mean of the values that there are; None where one prompt or cluster tells none."""
    known = [value for value in values if value is not None]
    if clusters is None:
        return stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
    own = [cluster for cluster, value in zip(clusters, values, strict=True) if value is not None]
    return clustered_se(known, own) if known else None


def _slices(groups: Groups, slice_by: str) -> dict[str, float]:
    """Means over the prompts with each value of the fact: of the expected reward, and of whatever is measured."""
    k = groups.rewards_PK.shape[1]
    of_value: dict[str, list[Outcome]] = {}
    for index, example in enumerate(groups.rollout.prompts):
        name = SLUG.sub("_", str(example.facts.get(slice_by)))
        of_value.setdefault(name, []).extend(groups.outcomes[index * k : (index + 1) * k])
    sliced = {}
    for name, outcomes in sorted(of_value.items()):
        means = _prompt_means([outcome.expected for outcome in outcomes], k)
        sliced[f"eval/slices/{name}"] = fmean(means) if means else math.nan
        measured = _over_prompts("eval/", [outcome.measured for outcome in outcomes], k)
        sliced |= {f"{metric}/{name}": value for metric, value in measured.items()}
    return sliced


def _over_prompts(prefix: str, of_outcomes: Sequence[Mapping[str, float]], k: int) -> dict[str, float]:
    """`<prefix><name>` of every name that k outcomes a prompt have values under: means over prompts."""
    names = dict.fromkeys(name for values in of_outcomes for name in values)
    columns = {name: _prompt_means([values.get(name, math.nan) for values in of_outcomes], k) for name in names}
    return {f"{prefix}{name}": fmean(means) if means else math.nan for name, means in columns.items()}


def _prompt_means(values: Sequence[float], k: int) -> list[float]:
    """The mean of each prompt's k values, a prompt that lacks them all left out."""
    return [mean for mean in _by_prompt(values, k) if mean is not None]


def _by_prompt(values: Sequence[float], k: int) -> list[float | None]:
    """The mean of each prompt's k values; what is missing is left out, and None stands for a prompt without any."""
    present = ([v for v in values[start : start + k] if not math.isnan(v)] for start in range(0, len(values), k))
    return [fmean(group) if group else None for group in present]
