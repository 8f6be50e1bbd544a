"""A GRPO step, readable top to bottom: sample -> reward -> advantages -> loss -> update."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, assert_never

import torch
from torch import Tensor

from core.algorithms.advantages import Running, advantages, updated
from core.algorithms.entropy_weights import sequence_weights, token_weights
from core.algorithms.kl import kl_penalty
from core.algorithms.normalisers import BASELINES, SCALES, scopes
from core.algorithms.schedules import adaptive_entropy_coef, applied_entropy_coef, proportional_beta, threshold_beta
from core.algorithms.shaping import overlong_penalty
from core.algorithms.surrogates import truncated_weights
from core.config import AdvantageSpec, GrpoStage
from core.policies.base import ENTROPY, Rollout, Sampling
from core.training.grpo_loss import GrpoLoss, numbers
from core.training.imitation import ImitationLoss
from core.training.metrics import sample_rows
from core.training.requests import Groups, Request
from core.training.step import StepContext, StepGroups, StepRun, averaged, gather, kept_candidates, rows_of
from core.training.update import Batch


def grpo_step(context: StepContext) -> StepRun:
    """One rollout, and num_iterations x minibatches optimiser steps on it."""
    stage: GrpoStage = context.stage
    how = Sampling(
        temperature=context.now(stage.temperature),
        max_completion_length=stage.max_completion_length,
        top_p=stage.top_p,
        top_k=stage.top_k,
    )
    step_groups = yield from gather(context, how)
    groups, chosen = step_groups.groups, step_groups.chosen
    rows = rows_of(chosen, stage.num_generations)
    signals = yield from _signals(context, groups.rollout, rows if step_groups.ending is None else [])
    rewards_PK = shaped_rewards(context, groups, signals)
    running = _running(context)
    advantages_PK = torch.zeros_like(rewards_PK)  # stays 0 where nothing is learned from a group
    if chosen:
        lengths_PK = groups.rollout.mask_NT.sum(-1).view(rewards_PK.shape)
        chosen_advantages = advantages(
            rewards_PK[chosen].numpy(),
            stage.advantage,
            lengths_PC=lengths_PK[chosen].numpy(),
            before=running.level,
        )
        advantages_PK[chosen] = torch.from_numpy(chosen_advantages)
    carried = _carried(context, updated(running, rewards_PK[chosen].numpy(), stage.advantage.running_decay))
    row = {
        **step_groups.row(advantages_PK),
        **_running_metrics(stage.advantage, running),
        "temperature": how.temperature,
    }
    batches = _optimiser_batches(context, step_groups, advantages_PK)
    if step_groups.ending is None and batches:
        row |= yield from _learn(context, step_groups, batches, advantages_PK, signals)
        carried |= _adapted(context, row, len(rows))
    return step_groups.done(row, sample_rows(context.task, groups, advantages_PK, context.step), carried)


@dataclass(frozen=True, kw_only=True, slots=True)
class Signals:
    """What was scored before the rewards are put together: (N, T) each, None where nothing needs it."""

    beta: float = 0.0
    reference_NT: Tensor | None = None
    own_NT: Tensor | None = None  # the trainer's own log-probs before the update, not the sampler's
    entropies_NT: Tensor | None = None


def _signals(context: StepContext, rollout: Rollout, rows: Sequence[int]) -> Generator[Request, Any, Signals]:
    """What must be scored before rewards are known: the reference's log-probs, the trainer's own, entropies."""
    stage: GrpoStage = context.stage
    signals = Signals(beta=_beta(context))
    if not rows:
        return signals

    if stage.kl_in == "reward" and signals.beta > 0:
        scores = yield context.score(rollout, rows, "reference")
        signals = replace(signals, reference_NT=_spread(scores.logprobs_NT, rollout, rows))
    if signals.reference_NT is not None or stage.importance_sampling_cap is not None:
        scores = yield context.score(rollout, rows, "current")
        signals = replace(signals, own_NT=_spread(scores.logprobs_NT, rollout, rows))
    if stage.entropy_weighting != "none":
        scores = yield context.score(rollout, rows, "current", frozenset({ENTROPY}))
        signals = replace(signals, entropies_NT=_spread(scores.entropies_NT, rollout, rows))
    return signals


def _spread(values_RT: Tensor, rollout: Rollout, rows: Sequence[int]) -> Tensor:
    """What was scored of these rows in a tensor of all, (N, T), 0 elsewhere."""
    values_NT = torch.zeros_like(rollout.mask_NT, dtype=torch.float32)
    values_NT[list(rows)] = values_RT.to(values_NT)
    return values_NT


def shaped_rewards(context: StepContext, groups: Groups, signals: Signals) -> Tensor:
    """(P, K) float64: the task's rewards less the overlong penalty and the KL, candidates that do not take part NaN."""
    stage: GrpoStage = context.stage
    rewards_PK, rollout = groups.rewards_PK, groups.rollout
    if stage.overlong is not None:
        buffer = max(1, math.ceil(round(stage.overlong.buffer * stage.max_completion_length, 6)))  # 0.07 * 100 is 7
        lengths_N = rollout.mask_NT.sum(-1)
        penalty_N = overlong_penalty(lengths_N, max_length=stage.max_completion_length, buffer=buffer)
        rewards_PK = rewards_PK + stage.overlong.weight * penalty_N.to(rewards_PK).view(rewards_PK.shape)
    if stage.kl_in == "reward" and signals.reference_NT is not None and signals.own_NT is not None:
        # Not the sampler's log-probs: their rounding against the reference's would be whitened into advantages of 1.5.
        kl_N = kl_penalty(signals.own_NT, signals.reference_NT, rollout.mask_NT, stage.kl_estimator)
        rewards_PK = rewards_PK - signals.beta * kl_N.to(rewards_PK).view(rewards_PK.shape)
    return kept_candidates(context, rewards_PK)


def token_advantages(context: StepContext, rollout: Rollout, advantages_PK: Tensor, signals: Signals) -> Tensor:
    """(N,), or (N, T) where each token's reward is weighted by its entropy."""
    stage: GrpoStage = context.stage
    advantages_N = advantages_PK.flatten()
    if signals.entropies_NT is None:
        return advantages_N
    entropies_NT, share = signals.entropies_NT.double(), stage.entropy_share
    match stage.entropy_weighting:
        case "none":
            return advantages_N
        case "token":
            weights_NT = token_weights(entropies_NT, rollout.mask_NT, advantages_PK, share=share)
            return advantages_N.unsqueeze(-1) * weights_NT
        case "sequence":
            return advantages_N * sequence_weights(entropies_NT, rollout.mask_NT, advantages_PK, share=share)
        case _:
            assert_never(stage.entropy_weighting)


def _learnable(stage: GrpoStage, rollout: Rollout) -> Tensor:
    """(N, T): the factors that a loss may learn from."""
    if not stage.mask_truncated_completions:
        return rollout.mask_NT
    return rollout.mask_NT & ~rollout.truncated_N.unsqueeze(-1)


def _learn(
    context: StepContext,
    step_groups: StepGroups,
    batches: Sequence[Sequence[int]],
    advantages_PK: Tensor,
    signals: Signals,
) -> Generator[Request, Any, dict[str, float]]:
    """The optimiser steps of one rollout. On-policy, the old log-probs are those recorded while sampling.

    Where none were recorded, they are the trainer's own, scored before the first update. A blended step without a group
    to learn from makes one optimiser step of its supervised part.
    """
    stage: GrpoStage = context.stage
    rollout, k = step_groups.groups.rollout, stage.num_generations
    reference_NT = signals.reference_NT
    used = rows_of(sorted({group for part in batches for group in part}), k)
    if reference_NT is None and signals.beta > 0 and used:
        scores = yield context.score(rollout, used, "reference")
        reference_NT = _spread(scores.logprobs_NT, rollout, used)
    old_NT, importance_NT, mask_NT = rollout.drawn_NT, None, _learnable(stage, rollout)
    if old_NT is None:
        scores = yield context.score(rollout, used, "current")
        old_NT = _spread(scores.logprobs_NT, rollout, used)
    elif signals.own_NT is not None and stage.importance_sampling_cap is not None:
        importance_NT = truncated_weights(signals.own_NT, old_NT, stage.importance_sampling_cap)
        old_NT = signals.own_NT
    entropy_coef = _entropy_coef(context, step_groups.integrity.get("entropy"))
    loss = GrpoLoss(
        stage=stage,
        mask_NT=mask_NT,
        old_NT=old_NT,
        advantages=token_advantages(context, rollout, advantages_PK, signals),
        reference_NT=reference_NT,
        importance_NT=importance_NT,
        numbers=numbers(
            stage,
            context.now,
            beta=signals.beta,
            entropy_coef=entropy_coef,
        ),
    )
    supervised, spent = (yield from _supervised(context)), step_groups.spent
    learned: list[Mapping[str, float]] = []
    for index, part in enumerate(batches):
        rows = rows_of(part, k)
        run = loss.pulling(rows) if context.savings.pulling_rows else rows
        own = Batch(
            rollout=rollout,
            rows=run,
            loss=replace(loss, rows=rows),
            micro_rows=context.micro_rows(len(rows)),
            wants=loss.wants,
        )
        counted = {"policy/tokens_drawn": _drawn_tokens(stage, rollout, run)} if rows else {}
        metrics = yield context.learn([own, *supervised] if rows else supervised, index, spent=spent)
        learned.append({**metrics, **counted})
    weight = context.now(stage.supervised_weight) if supervised else 0.0
    return {**averaged(learned), **_weights_used(loss, weight, used)}


def _drawn_tokens(stage: GrpoStage, rollout: Rollout, rows: Sequence[int]) -> float:
    """How many tokens of these rows a loss should learn from: by what was drawn, not by the loss's own mask."""
    lengths, cut = rollout.mask_NT.sum(-1).tolist(), rollout.truncated_N.tolist()
    return float(sum(lengths[row] for row in rows if not (cut[row] and stage.mask_truncated_completions)))


def _supervised(context: StepContext) -> Generator[Request, Any, list[Batch]]:
    """The supervised part of a blended step; none where its weight is 0."""
    stage: GrpoStage = context.stage
    if not (weight := context.now(stage.supervised_weight)):
        return []
    answers = yield context.supervised(stage.prompts_per_step)
    loss = ImitationLoss(mask_NT=answers.mask_NT, scale=weight)
    return [Batch(rollout=answers, rows=range(len(answers)), loss=loss, micro_rows=context.micro_rows(len(answers)))]


def _optimiser_batches(context: StepContext, step_groups: StepGroups, advantages_PK: Tensor) -> list[Sequence[int]]:
    """The groups of each optimiser step: the chosen ones in `minibatches` runs of about one size, num_iterations times.

    Groups are not split, so there are never more minibatches than groups. One without signal is left out where the
    stage says so: its gradient is 0, but the optimiser's momentum would move the weights. A supervised part comes with
    each, and where none is left, with an empty one.
    """
    stage: GrpoStage = context.stage
    parts = min(stage.minibatches, len(step_groups.chosen))
    cuts = [len(step_groups.chosen) * part // parts for part in range(parts + 1)] if parts else []
    batches = [step_groups.chosen[start:end] for start, end in pairwise(cuts)]
    if stage.skip_without_signal:
        learnable_PK = _learnable(stage, step_groups.groups.rollout).any(-1).view(advantages_PK.shape)
        signal_P = ((advantages_PK != 0) & learnable_PK).any(-1)
        batches = [batch for batch in batches if bool(signal_P[list(batch)].any())]
    if not batches:
        return [[]] if context.now(stage.supervised_weight) else []
    return batches * stage.num_iterations


def _running(context: StepContext) -> Running:
    """The running statistics as they stood before this step."""
    carried = context.progress.carried
    return Running(
        count=int(carried.get("running.count", 0)),
        weight=carried.get("running.weight", 0.0),
        mean=carried.get("running.mean", 0.0),
        variance=carried.get("running.variance", 0.0),
    )


def _running_metrics(spec: AdvantageSpec, running: Running) -> dict[str, float]:
    """The running statistics that this step's advantages are made with; the first step has its own batch's."""
    if (level := running.level) is None:
        return {}
    row = {"reward/running_mean": level.mean} if BASELINES[spec.baseline].scope == "history" else {}
    return row | ({"reward/running_std": level.std} if SCALES[spec.scale_rewards].scope == "history" else {})


def _carried(context: StepContext, running: Running) -> dict[str, float]:
    """What the next step is handed: nothing that the stage does not use."""
    if "history" not in scopes(context.stage.advantage):
        return dict(context.progress.carried)
    state = {"count": running.count, "weight": running.weight, "mean": running.mean, "variance": running.variance}
    return {**context.progress.carried, **{f"running.{name}": value for name, value in state.items()}}


def _beta(context: StepContext) -> float:
    """The KL weight of this step: scheduled, or where the adaptive rule has moved it."""
    stage: GrpoStage = context.stage
    scheduled = context.now(stage.beta)
    return context.progress.carried.get("beta", scheduled) if stage.adaptive_beta is not None else scheduled


def _entropy_coef(context: StepContext, entropy: float | None) -> float:
    """The entropy weight of this step; an adaptive one acts only while the entropy is not above its target."""
    stage: GrpoStage = context.stage
    scheduled = context.now(stage.entropy_coef)
    if stage.adaptive_entropy is None:
        return scheduled
    coefficient = context.progress.carried.get("entropy_coef", scheduled)
    return applied_entropy_coef(coefficient, entropy, target=stage.adaptive_entropy.target)


def _adapted(context: StepContext, row: Mapping[str, float], samples: int) -> dict[str, float]:
    """The adaptive weights after a step with these metrics."""
    stage: GrpoStage = context.stage
    moved: dict[str, float] = {}
    if (rule := stage.adaptive_beta) is not None and "kl" in row:
        beta, kl = _beta(context), row["kl"]
        match rule.rule:
            case "proportional":
                moved["beta"] = proportional_beta(beta, kl, target=rule.target, horizon=rule.horizon, samples=samples)
            case "threshold":
                moved["beta"] = threshold_beta(beta, kl, high=rule.high, low=rule.low, factor=rule.factor)
            case _:
                assert_never(rule.rule)
    if (aim := stage.adaptive_entropy) is not None and "entropy" in row:
        coefficient = context.progress.carried.get("entropy_coef", context.now(stage.entropy_coef))
        moved["entropy_coef"] = adaptive_entropy_coef(
            coefficient, row["entropy"], target=aim.target, delta=aim.delta, low=aim.min, high=aim.max
        )
    return moved


def _weights_used(loss: GrpoLoss, supervised: float, rows: Sequence[int]) -> dict[str, float]:
    """The weights of the terms that the step learned from, and those of truncated importance sampling.

    `rows` are those of the rollout: none where only the supervised part, of weight `supervised`, is learned from.
    """
    now, cap = loss.numbers, loss.stage.importance_sampling_cap
    of_rows = {
        "beta": now.beta,
        "weight/policy": now.policy_weight,
        "weight/entropy": now.entropy_coef,
        **{f"weight/{name}": weight for name, weight in now.own_losses.items()},
    }
    weights = {**(of_rows if rows else {}), "weight/supervised": supervised}
    row = {name: weight for name, weight in weights.items() if weight > 0}
    if rows and loss.importance_NT is not None and cap is not None:
        drawn = loss.importance_NT[rows][loss.mask_NT[rows]].double()
        row["importance/weight_mean"] = float(drawn.mean())
        row["importance/capped"] = float((drawn >= cap).double().mean())
    return row
