"""A GRPO step, readable top to bottom: sample -> reward -> advantages -> loss -> update. And the loss it learns from.

The loss of one rollout is a policy surrogate, a KL to the reference and an entropy bonus, cut into micro-batches. A
micro-batch divides by the denominators of the whole optimiser batch and not by its own, so the gradient does not
depend on how the batch is cut.

Shape suffixes: P prompts, K completions of each, N = P * K rows, T factors, R some of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, assert_never

import torch
from torch import Tensor

from core.algorithms.advantages import Running, advantages, updated
from core.algorithms.kl import forward_k3, k3, kl_loss, kl_penalty
from core.algorithms.names import BASELINES, SCALES, Reduction, scopes
from core.algorithms.reductions import token_weights, weighted_sum
from core.algorithms.schedules import (
    adaptive_entropy_coef,
    applied_entropy_coef,
    bounded,
    proportional_beta,
    threshold_beta,
)
from core.algorithms.shaping import entropy_sequence_weights, entropy_token_weights, overlong_penalty
from core.algorithms.surrogates import Trust, surrogate, truncated_weights
from core.config import AdvantageSpec, GrpoStage, Schedule
from core.models.devices import to_device
from core.policies.base import ENTROPY, Rollout, Sampling, Scores
from core.training.imitation import ImitationLoss
from core.training.requests import Groups, Request
from core.training.step import StepContext, StepGroups, StepRun, kept_candidates, rows_of, sample_and_score
from core.training.update import Batch, LossParts, add_own_losses, own_losses


def grpo_step(context: StepContext) -> StepRun:
    """One rollout, and num_iterations x minibatches optimiser steps on it."""
    stage: GrpoStage = context.stage
    if stage.old_policy == "start_of_epoch" and context.begins_epoch:
        context.policy.keep("epoch")
    carried = dict(context.progress.carried)
    beta = context.now(stage.beta)
    if stage.adaptive_beta is not None:
        beta = carried.get("beta", beta)

    # Sample K completions of each prompt and score them.
    how = Sampling(
        temperature=context.now(stage.temperature),
        max_completion_length=stage.max_completion_length,
        top_p=stage.top_p,
        top_k=stage.top_k,
        min_p=stage.min_p,
        repetition_penalty=stage.repetition_penalty,
        stop_strings=stage.stop_strings,
    )
    step_groups = yield from sample_and_score(context, how)
    groups, chosen = step_groups.groups, step_groups.chosen
    rows = rows_of(chosen, stage.num_generations)
    scores = yield from _score_for_rewards(context, groups.rollout, rows if step_groups.ending is None else [], beta)
    rewards_PK = shaped_rewards(context, groups, scores, beta)

    # Advantages inside each group, by the running statistics as they stood before this step.
    before: dict[str, Any] = {name: carried.get(f"running.{name}", start) for name, start in asdict(Running()).items()}
    running = Running(**before)
    normaliser = _normaliser(stage, running.rewards)
    advantages_PK = torch.zeros_like(rewards_PK)  # stays 0 where nothing is learned from a group
    if chosen:
        lengths_PK = groups.rollout.mask_NT.sum(-1).view(rewards_PK.shape)
        of_chosen = advantages(
            rewards_PK[chosen].numpy(),
            normaliser,
            lengths_PC=lengths_PK[chosen].numpy(),
            before=running.level,
        )
        advantages_PK[chosen] = torch.from_numpy(of_chosen)
    row = step_groups.row(advantages_PK, ~rewards_PK.isnan())
    if "history" in scopes(stage.advantage):
        if (level := running.level) is not None and BASELINES[normaliser.baseline].scope == "history":
            row["reward/running_mean"] = level.mean
        if level is not None and SCALES[normaliser.scale_rewards].scope == "history":
            row["reward/running_std"] = level.std
        how_far, rule = stage.advantage.running_decay, stage.advantage.running_rule
        after = updated(running, rewards_PK[chosen].numpy(), how_far, rule)
        carried |= {f"running.{name}": value for name, value in asdict(after).items()}
    row["temperature"] = how.temperature

    # Learn from the groups that have a signal.
    batches = _optimiser_batches(context, step_groups, advantages_PK)
    if step_groups.ending is None and batches:
        row |= yield from _learn(context, step_groups, batches, advantages_PK, scores, beta)
        carried |= _adapted(context, row, beta, len(rows))
    if stage.sync_ref_model and (context.progress.stage_step + 1) % stage.ref_model_sync_steps == 0:
        context.policy.sync_reference(stage.ref_model_mixup_alpha)
    return step_groups.result(context, row, advantages_PK, carried)


def _normaliser(stage: GrpoStage, rewards: int) -> AdvantageSpec:
    """The stage's, or the group's z-score where running statistics have seen too few rewards before this step."""
    settings = stage.advantage
    if rewards >= settings.running_after or "history" not in scopes(settings):
        return settings
    return settings.model_copy(update={"baseline": "group", "scale_rewards": "group"})


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutScores:
    """The trainer's own scores of a rollout from before the update: (N, T) each, None where nothing needs them."""

    reference_NT: Tensor | None = None
    own_NT: Tensor | None = None  # log-probs of the weights that are trained, not the sampler's record of them
    entropies_NT: Tensor | None = None


def _score_for_rewards(
    context: StepContext, rollout: Rollout, rows: Sequence[int], beta: float
) -> Generator[Request, Any, RolloutScores]:
    """What must be scored of these rows before rewards are known: a KL in the reward and entropy weights need it."""
    stage: GrpoStage = context.stage
    scores = RolloutScores()
    if not rows:
        return scores
    if stage.kl_in == "reward" and beta > 0:
        reference = yield from context.score(rollout, rows, "reference")
        scores = replace(scores, reference_NT=reference.logprobs_NT)
    if scores.reference_NT is not None or stage.importance_sampling_cap is not None:
        own = yield from context.score(rollout, rows, "current")
        scores = replace(scores, own_NT=own.logprobs_NT)
    if stage.entropy_weighting != "none":
        own = yield from context.score(rollout, rows, "current", frozenset({ENTROPY}))
        scores = replace(scores, entropies_NT=own.entropies_NT)
    return scores


def shaped_rewards(context: StepContext, groups: Groups, scores: RolloutScores, beta: float) -> Tensor:
    """(P, K) float64: the task's rewards less the overlong penalty and the KL, candidates that do not take part NaN."""
    stage: GrpoStage = context.stage
    rewards_PK, rollout = groups.rewards_PK, groups.rollout
    if stage.overlong is not None:
        buffer = max(1, math.ceil(round(stage.overlong.buffer * stage.max_completion_length, 6)))  # 0.07 * 100 is 7
        lengths_N = rollout.mask_NT.sum(-1)
        penalty_N = overlong_penalty(lengths_N, max_length=stage.max_completion_length, buffer=buffer)
        rewards_PK = rewards_PK + stage.overlong.weight * penalty_N.to(rewards_PK).view(rewards_PK.shape)
    if stage.kl_in == "reward" and scores.reference_NT is not None and scores.own_NT is not None:
        # Not the sampler's log-probs: their rounding against the reference's would be whitened into advantages of 1.5.
        kl_N = kl_penalty(scores.own_NT, scores.reference_NT, rollout.mask_NT, stage.kl_estimator)
        rewards_PK = rewards_PK - beta * kl_N.to(rewards_PK).view(rewards_PK.shape)
    return kept_candidates(context, rewards_PK, groups)


def _learnable(stage: GrpoStage, rollout: Rollout) -> Tensor:
    """(N, T): the factors that a loss may learn from."""
    if not stage.mask_truncated_completions:
        return rollout.mask_NT
    return rollout.mask_NT & ~rollout.truncated_N.unsqueeze(-1)


def _optimiser_batches(context: StepContext, step_groups: StepGroups, advantages_PK: Tensor) -> list[Sequence[int]]:
    """The groups of each optimiser step: the chosen ones in `minibatches` runs of about one size, num_iterations times.

    Groups are not split, so there are never more minibatches than groups. One without signal is left out where the
    stage says so: its gradient is 0, but the optimiser's momentum would move the weights. It is not where the policy's
    own losses are learned from, which need no advantage. A supervised part comes with each, and where none is left,
    with an empty one.
    """
    stage: GrpoStage = context.stage
    parts = min(stage.minibatches, len(step_groups.chosen))
    cuts = [len(step_groups.chosen) * part // parts for part in range(parts + 1)] if parts else []
    batches = [step_groups.chosen[start:end] for start, end in pairwise(cuts)]
    if stage.skip_without_signal and not own_losses(stage, context.now):
        learnable_PK = _learnable(stage, step_groups.groups.rollout).any(-1).view(advantages_PK.shape)
        signal_P = ((advantages_PK != 0) & learnable_PK).any(-1)
        batches = [batch for batch in batches if bool(signal_P[list(batch)].any())]
    if not batches:
        return [[]] if context.now(stage.supervised_weight) else []
    return batches * stage.num_iterations


def _learn(
    context: StepContext,
    step_groups: StepGroups,
    batches: Sequence[Sequence[int]],
    advantages_PK: Tensor,
    scores: RolloutScores,
    beta: float,
) -> Generator[Request, Any, dict[str, float]]:
    """The optimiser steps of one rollout. On-policy, the old log-probs are those recorded while sampling.

    Where none were recorded, they are the trainer's own, scored before the first update; a stage may name another old
    policy. A blended step without a group
    to learn from makes one optimiser step of its supervised part.
    """
    stage: GrpoStage = context.stage
    rollout, k = step_groups.groups.rollout, stage.num_generations
    used = rows_of(sorted({group for batch in batches for group in batch}), k)
    reference_NT, old_NT, importance_NT = scores.reference_NT, rollout.drawn_NT, None
    if reference_NT is None and beta > 0 and used:
        reference_NT = (yield from context.score(rollout, used, "reference")).logprobs_NT
    if stage.old_policy != "sampler" and used:
        old_NT = yield from _old_log_probs(context, rollout, used, reference_NT)
    elif old_NT is None:
        old_NT = (yield from context.score(rollout, used, "current")).logprobs_NT
    elif scores.own_NT is not None and stage.importance_sampling_cap is not None:
        importance_NT = truncated_weights(scores.own_NT, old_NT, stage.importance_sampling_cap)
        old_NT = scores.own_NT
    entropy_coef = context.now(stage.entropy_coef)
    if (aim := stage.adaptive_entropy) is not None:  # it acts only while the entropy is not above its target
        coefficient = context.progress.carried.get("entropy_coef", entropy_coef)
        entropy_coef = applied_entropy_coef(coefficient, step_groups.integrity.get("entropy"), target=aim.target)
    loss = GrpoLoss(
        stage=stage,
        numbers=numbers(stage, context.now, beta=beta, entropy_coef=entropy_coef),
        mask_NT=_learnable(stage, rollout),
        old_NT=old_NT,
        advantages=_token_advantages(stage, rollout, advantages_PK, scores.entropies_NT),
        reference_NT=reference_NT,
        importance_NT=importance_NT,
        counted_N=_rows_of_own_losses(stage, step_groups.groups),
    )
    supervised: list[Batch] = []
    if supervised_weight := context.now(stage.supervised_weight):
        answers = yield context.supervised()
        imitation, count = ImitationLoss(mask_NT=answers.mask_NT, scale=supervised_weight), len(answers)
        micro_rows = context.micro_rows(count)
        supervised.append(Batch(rollout=answers, rows=range(count), loss=imitation, micro_rows=micro_rows))
    # Counted by what was drawn, not by the loss's mask: a rule of health compares the two.
    drawn_N = rollout.mask_NT.sum(-1)
    if stage.mask_truncated_completions:
        drawn_N = drawn_N.masked_fill(rollout.truncated_N, 0)
    updates: list[Mapping[str, float]] = []
    for index, batch in enumerate(batches):
        rows = rows_of(batch, k)
        pulling = loss.rows_with_gradient(rows) if context.savings.pulling_rows else rows
        sampled = Batch(
            rollout=rollout,
            rows=pulling,
            loss=replace(loss, rows=rows),
            micro_rows=context.micro_rows(len(rows)),
            wants=loss.wants,
        )
        drawn = {"policy/tokens_drawn": float(drawn_N[pulling].sum())} if rows else {}
        metrics = yield context.learn([sampled, *supervised] if rows else supervised, index, spent=step_groups.spent)
        updates.append({**metrics, **drawn})
    return {**averaged(updates), **_weights_used(loss, supervised_weight, used)}


def _old_log_probs(
    context: StepContext, rollout: Rollout, rows: Sequence[int], reference_NT: Tensor | None
) -> Generator[Request, Any, Tensor]:
    """(N, T) of the old policy that the stage names; the reference's are scored once."""
    stage: GrpoStage = context.stage
    match stage.old_policy:
        case "sampler":
            raise AssertionError("a sampler's log-probs are recorded")
        case "reference":
            if reference_NT is None:
                reference_NT = (yield from context.score(rollout, rows, "reference")).logprobs_NT
            return reference_NT
        case "start_of_epoch":
            return (yield from context.score(rollout, rows, "epoch")).logprobs_NT
        case _:
            assert_never(stage.old_policy)


def _rows_of_own_losses(stage: GrpoStage, groups: Groups) -> Tensor | None:
    """(N,) bool, the rows that the policy's own losses are of; None for all."""
    match stage.loss_rows:
        case "all":
            return None
        case "best":  # the first of equal rewards; none of a group whose rewards are all missing
            rewards_PK = groups.rewards_PK.nan_to_num(-math.inf)
            best_P = rewards_PK.argmax(-1, keepdim=True)
            best_PK = torch.zeros_like(rewards_PK, dtype=torch.bool).scatter(-1, best_P, True)
            return (best_PK & (rewards_PK > -math.inf)).flatten()
        case _:
            assert_never(stage.loss_rows)


def _token_advantages(stage: GrpoStage, rollout: Rollout, advantages_PK: Tensor, entropies_NT: Tensor | None) -> Tensor:
    """(N,), or (N, T) where each token's advantage is weighted by its entropy."""
    advantages_N = advantages_PK.flatten()
    if entropies_NT is None:
        return advantages_N
    entropies_NT, share = entropies_NT.double(), stage.entropy_share
    match stage.entropy_weighting:
        case "none":
            return advantages_N
        case "token":
            weights_NT = entropy_token_weights(entropies_NT, rollout.mask_NT, advantages_PK, share=share)
            return advantages_N.unsqueeze(-1) * weights_NT
        case "sequence":
            return advantages_N * entropy_sequence_weights(entropies_NT, rollout.mask_NT, advantages_PK, share=share)
        case _:
            assert_never(stage.entropy_weighting)


def averaged(learned: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metrics of several optimiser steps as one step's: means, but the largest of maxima and `update` if any was."""
    names = dict.fromkeys(name for metrics in learned for name in metrics)
    row = {}
    for name in names:
        values = [metrics[name] for metrics in learned if name in metrics]
        largest = name in ("update", "policy/ratio_max")
        row[name] = max(values) if largest else sum(values) / len(values)
    return row


def _adapted(context: StepContext, row: Mapping[str, float], beta: float, samples: int) -> dict[str, float]:
    """The adaptive weights after a step with these metrics, `beta` its KL weight."""
    stage: GrpoStage = context.stage
    after: dict[str, float] = {}
    if (rule := stage.adaptive_beta) is not None and "kl" in row:
        kl = row.get("kl/whole", row["kl"])
        match rule.rule:
            case "proportional":
                moved = proportional_beta(beta, kl, target=rule.target, horizon=rule.horizon, samples=samples)
            case "threshold":
                moved = threshold_beta(beta, kl, high=rule.high, low=rule.low, factor=rule.factor)
            case _:
                assert_never(rule.rule)
        after["beta"] = bounded(moved, rule.min_beta, rule.max_beta)
    if (aim := stage.adaptive_entropy) is not None and "entropy" in row:
        coefficient = context.progress.carried.get("entropy_coef", context.now(stage.entropy_coef))
        after["entropy_coef"] = adaptive_entropy_coef(
            coefficient, row["entropy"], target=aim.target, delta=aim.delta, low=aim.min, high=aim.max
        )
    return after


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
    weights = of_rows if rows else {}
    weights.setdefault("weight/supervised", supervised)  # the policy's own loss of that name, or the imitated answers
    row = {name: weight for name, weight in weights.items() if weight > 0}
    if rows and loss.importance_NT is not None and cap is not None:
        drawn = loss.importance_NT[rows][loss.mask_NT[rows]].double()
        row["importance/weight_mean"] = float(drawn.mean())
        row["importance/capped"] = float((drawn >= cap).double().mean())
    return row


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """The stage's numbers that may move from step to step, as they stand on this one."""

    epsilon: float
    epsilon_high: float
    policy_weight: float
    beta: float
    entropy_coef: float
    own_losses: Mapping[str, float]  # weights of the policy's own losses, those of weight 0 left out


def numbers(stage: GrpoStage, now: Callable[[Schedule], float], *, beta: float, entropy_coef: float) -> Numbers:
    """The numbers of a step where a schedule's value is `now(schedule)`; the two that rules may move are given."""
    return Numbers(
        epsilon=now(stage.epsilon),
        epsilon_high=now(stage.epsilon if stage.epsilon_high is None else stage.epsilon_high),
        policy_weight=now(stage.policy_weight),
        beta=beta,
        entropy_coef=entropy_coef,
        own_losses=own_losses(stage, now),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class GrpoLoss:
    """What the loss needs of the whole rollout, on the CPU whatever the policy runs on: N rows, T factors.

    `rows` are those of the optimiser batch (None: all). `advantages` is (N,), or (N, T) where the factors of a row
    differ. `old_NT` are the log-probs recorded while sampling (or scored before the update, then `importance_NT` says
    how far the sampler was from them). `reference_NT` is None where there is no KL. Of the stage only what never moves
    is read: the rest is in `numbers`.
    """

    stage: GrpoStage
    numbers: Numbers
    mask_NT: Tensor
    old_NT: Tensor
    advantages: Tensor
    reference_NT: Tensor | None = None
    importance_NT: Tensor | None = None
    rows: Sequence[int] | None = None
    counted_N: Tensor | None = None  # bool: the rows that the policy's own losses are means over; None: all

    @property
    def wants(self) -> frozenset[str]:
        """What the update's forward must give besides log-probs."""
        return frozenset(self.numbers.own_losses) | ({ENTROPY} if self.numbers.entropy_coef else set())

    def rows_with_gradient(self, rows: Sequence[int]) -> list[int]:
        """Those of the rows whose gradient is not 0 by their numbers; one at least, where there are any.

        A row without an advantage pulls by no surrogate. Where a KL is measured, or a term other than the policy's is
        learned from, all rows count.
        """
        others = self.numbers.entropy_coef or self.numbers.own_losses or self.reference_NT is not None
        if others or not rows:
            return list(rows)
        learns_N = ((_columns(self.advantages) != 0) & self.mask_NT).any(-1).tolist()
        return [row for row in rows if learns_N[row]] or [rows[0]]

    def __call__(self, scores: Scores, rows: Sequence[int]) -> LossParts:
        """The rows' share of the batch loss and of its metrics; shares add up to the batch's."""
        index, stage, now, device = list(rows), self.stage, self.numbers, scores.logprobs_NT.device
        # Zeroed before any formula: under k2's square, 0 * NaN would carry a NaN of the padding into the gradient.
        outside_NT = to_device(~self.mask_NT[index], device)
        new_NT = scores.logprobs_NT.masked_fill(outside_NT, 0.0)
        old_NT = to_device(self.old_NT[index], device).masked_fill(outside_NT, 0.0)
        weights_NT = to_device(self._weights(index, stage.reduction), device)
        fraction_NT = to_device(self._weights(index, "token_mean"), device)
        ratios = surrogate(
            new_NT,
            old_NT,
            to_device(_columns(self.advantages)[index], device).to(new_NT.dtype),
            ~outside_NT,
            Trust(
                kind=stage.surrogate,
                epsilon=now.epsilon,
                epsilon_high=now.epsilon_high,
                dual_clip=stage.dual_clip,
                cispo_max_weight=stage.cispo_max_weight,
                sapo_temperature_pos=stage.sapo_temperature_pos,
                sapo_temperature_neg=stage.sapo_temperature_neg,
                dppo_delta=stage.dppo_delta,
            ),
        )
        values_NT = ratios.values_NT
        if self.importance_NT is not None:
            values_NT = values_NT * to_device(self.importance_NT[index], device).masked_fill(outside_NT, 1.0)
        policy = -weighted_sum(values_NT, weights_NT)
        terms = {"policy": now.policy_weight * policy}
        sums = {
            "policy/loss": policy.detach(),
            "policy/tokens": (~outside_NT).sum().double(),
            "policy/clip_low": weighted_sum(ratios.low_NT.double(), fraction_NT),
            "policy/clip_high": weighted_sum(ratios.high_NT.double(), fraction_NT),
        }
        maxima = {"policy/ratio_max": ratios.ratio_NT.masked_fill(outside_NT, 0.0).amax()}
        if self.reference_NT is not None:
            reference_NT = to_device(self.reference_NT[index], device).masked_fill(outside_NT, 0.0)
            sums["kl"] = weighted_sum(k3(new_NT.detach(), reference_NT), fraction_NT)
            match stage.kl_in:
                case "loss":
                    if stage.kl_estimator == "forward_k3":
                        rows_NT = to_device(self._weights(index, "sequence_mean"), device)
                        sums["kl/whole"] = weighted_sum(forward_k3(new_NT.detach(), reference_NT), rows_NT)
                    kl_NT = kl_loss(new_NT, reference_NT, stage.kl_estimator, old_NT=old_NT)
                    terms["kl"] = now.beta * weighted_sum(kl_NT, weights_NT)
                case "reward":  # it is in the advantages
                    pass
                case _:
                    assert_never(stage.kl_in)
        if now.entropy_coef and scores.entropies_NT is not None:
            entropies_NT = scores.entropies_NT.masked_fill(outside_NT, 0.0)
            terms["entropy"] = -now.entropy_coef * weighted_sum(entropies_NT, weights_NT)
        parts = LossParts(total=torch.stack(list(terms.values())).sum(), sums=sums, maxima=maxima, terms=terms)
        if self.counted_N is None:
            return add_own_losses(parts, scores, now.own_losses, len(self._batch()))
        counted = int(self.counted_N[self._batch()].sum())
        return add_own_losses(parts, scores, now.own_losses, counted, self.counted_N[index])

    def _batch(self) -> list[int]:
        return list(range(len(self.mask_NT))) if self.rows is None else list(self.rows)

    def _weights(self, index: list[int], reduction: Reduction) -> Tensor:
        """The weights of these rows' factors in the optimiser batch."""
        batch = self._batch()
        weights_NT = torch.zeros_like(self.mask_NT, dtype=torch.float64)
        weights_NT[batch] = token_weights(self.mask_NT[batch], reduction, self.stage.max_completion_length)
        return weights_NT[index]


def _columns(advantages: Tensor) -> Tensor:
    """(N,) or (N, T) -> (N, 1) or (N, T)."""
    return advantages.unsqueeze(-1) if advantages.dim() == 1 else advantages
