"""A GRPO step, readable top to bottom: sample -> reward -> advantages -> loss -> update."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, assert_never

import torch
from torch import Tensor

from core.algorithms.advantages import Running, advantages, updated
from core.algorithms.controllers import adaptive_entropy_coef, applied_entropy_coef, proportional_beta, threshold_beta
from core.algorithms.importance import truncated_weights
from core.algorithms.normalisers import BASELINES, SCALES, scopes
from core.config import AdvantageSpec, GrpoStage
from core.policies.base import ENTROPY, Rollout, Sampling
from core.training.grpo_loss import GrpoLoss, numbers
from core.training.imitation_loss import ImitationLoss
from core.training.requests import Request
from core.training.stages.base import Here, StepRun, averaged
from core.training.stages.rewards import Signals, shaped_rewards, token_advantages
from core.training.stages.sampling import Gathered, gather, rows_of
from core.training.step_metrics import sample_rows
from core.training.update import Batch


def grpo_step(here: Here) -> StepRun:
    """One rollout, and num_iterations x minibatches optimiser steps on it."""
    stage: GrpoStage = here.stage
    how = Sampling(
        temperature=here.now(stage.temperature),
        max_completion_length=stage.max_completion_length,
        top_p=stage.top_p,
        top_k=stage.top_k,
    )
    found = yield from gather(here, how)
    rows = rows_of(found.chosen, stage.num_generations)
    signals = yield from _before_rewards(here, found.groups.rollout, rows if found.ending is None else [])
    rewards_PK = shaped_rewards(here, found.groups, signals)
    running = _running(here)
    advantages_PK = _advantages(here, found, rewards_PK, running)
    seen = updated(running, rewards_PK[found.chosen].numpy(), stage.advantage.running_decay)
    carried = _carried(here, seen)
    row = {**found.row(advantages_PK), **_running_metrics(stage.advantage, running), "temperature": how.temperature}
    batches = _optimiser_batches(here, found, advantages_PK)
    if found.ending is None and batches:
        row |= yield from _learn(here, found, batches, advantages_PK, signals)
        carried |= _adapted(here, row, len(rows))
    return found.done(row, sample_rows(here.task, found.groups, advantages_PK, here.step), carried)


def _advantages(here: Here, found: Gathered, rewards_PK: Tensor, running: Running) -> Tensor:
    """(P, K): of the groups that are learned from, 0 of the others."""
    stage: GrpoStage = here.stage
    advantages_PK = torch.zeros_like(rewards_PK)
    if found.chosen:
        lengths_PK = found.groups.rollout.mask_NT.sum(-1).view(rewards_PK.shape)
        made = advantages(
            rewards_PK[found.chosen].numpy(),
            stage.advantage,
            lengths_PC=lengths_PK[found.chosen].numpy(),
            before=running.level,
        )
        advantages_PK[found.chosen] = torch.from_numpy(made)
    return advantages_PK


def _before_rewards(here: Here, rollout: Rollout, rows: Sequence[int]) -> Generator[Request, Any, Signals]:
    """What must be scored before rewards are known: the reference's log-probs, the trainer's own, entropies."""
    stage: GrpoStage = here.stage
    signals = Signals(beta=_beta(here))
    if not rows:
        return signals

    if stage.kl_in == "reward" and signals.beta > 0:
        scores = yield here.score(rollout, rows, "reference")
        signals = replace(signals, reference_NT=_spread(scores.logprobs_NT, rollout, rows))
    if signals.reference_NT is not None or stage.importance_sampling_cap is not None:
        scores = yield here.score(rollout, rows, "current")
        signals = replace(signals, own_NT=_spread(scores.logprobs_NT, rollout, rows))
    if stage.entropy_weighting != "none":
        scores = yield here.score(rollout, rows, "current", frozenset({ENTROPY}))
        signals = replace(signals, entropies_NT=_spread(scores.entropies_NT, rollout, rows))
    return signals


def _spread(values_RT: Tensor, rollout: Rollout, rows: Sequence[int]) -> Tensor:
    """What was scored of these rows in a tensor of all, (N, T), 0 elsewhere."""
    values_NT = torch.zeros_like(rollout.mask_NT, dtype=torch.float32)
    values_NT[list(rows)] = values_RT.to(values_NT)
    return values_NT


def _learnable(stage: GrpoStage, rollout: Rollout) -> Tensor:
    """(N, T): the factors that a loss may learn from."""
    if not stage.mask_truncated_completions:
        return rollout.mask_NT
    return rollout.mask_NT & ~rollout.truncated_N.unsqueeze(-1)


def _learn(
    here: Here, found: Gathered, batches: Sequence[Sequence[int]], advantages_PK: Tensor, signals: Signals
) -> Generator[Request, Any, dict[str, float]]:
    """The optimiser steps of one rollout. On-policy, the old log-probs are those recorded while sampling.

    Where none were recorded, they are the trainer's own, scored before the first update. A blended step without a group
    to learn from makes one optimiser step of its supervised part.
    """
    stage: GrpoStage = here.stage
    rollout, k = found.groups.rollout, stage.num_generations
    reference_NT = signals.reference_NT
    used = rows_of(sorted({group for part in batches for group in part}), k)
    if reference_NT is None and signals.beta > 0 and used:
        scores = yield here.score(rollout, used, "reference")
        reference_NT = _spread(scores.logprobs_NT, rollout, used)
    old_NT, importance_NT, mask_NT = rollout.drawn_NT, None, _learnable(stage, rollout)
    if old_NT is None:
        scores = yield here.score(rollout, used, "current")
        old_NT = _spread(scores.logprobs_NT, rollout, used)
    elif signals.own_NT is not None and stage.importance_sampling_cap is not None:
        importance_NT = truncated_weights(signals.own_NT, old_NT, stage.importance_sampling_cap)
        old_NT = signals.own_NT
    loss = GrpoLoss(
        stage=stage,
        mask_NT=mask_NT,
        old_NT=old_NT,
        advantages=token_advantages(here, rollout, advantages_PK, signals),
        reference_NT=reference_NT,
        importance_NT=importance_NT,
        numbers=numbers(
            stage, here.now, beta=signals.beta, entropy_coef=_entropy_coef(here, found.integrity.get("entropy"))
        ),
    )
    supervised, spent = (yield from _supervised(here)), found.spent
    learned: list[Mapping[str, float]] = []
    for index, part in enumerate(batches):
        rows = rows_of(part, k)
        run = loss.pulling(rows) if here.savings.pulling_rows else rows
        own = Batch(
            rollout=rollout,
            rows=run,
            loss=replace(loss, rows=rows),
            micro_rows=here.micro_rows(len(rows)),
            wants=loss.wants,
        )
        counted = {"policy/tokens_drawn": _drawn_tokens(stage, rollout, run)} if rows else {}
        metrics = yield here.learn([own, *supervised] if rows else supervised, index, spent=spent)
        learned.append({**metrics, **counted})
    weight = here.now(stage.supervised_weight) if supervised else 0.0
    return {**averaged(learned), **_weights_used(loss, weight, used)}


def _drawn_tokens(stage: GrpoStage, rollout: Rollout, rows: Sequence[int]) -> float:
    """How many tokens of these rows a loss should learn from: by what was drawn, not by the loss's own mask."""
    lengths, cut = rollout.mask_NT.sum(-1).tolist(), rollout.truncated_N.tolist()
    return float(sum(lengths[row] for row in rows if not (cut[row] and stage.mask_truncated_completions)))


def _supervised(here: Here) -> Generator[Request, Any, list[Batch]]:
    """The supervised part of a blended step; none where its weight is 0."""
    stage: GrpoStage = here.stage
    if not (weight := here.now(stage.supervised_weight)):
        return []
    answers = yield here.supervised(stage.prompts_per_step)
    loss = ImitationLoss(mask_NT=answers.mask_NT, scale=weight)
    return [Batch(rollout=answers, rows=range(len(answers)), loss=loss, micro_rows=here.micro_rows(len(answers)))]


def _optimiser_batches(here: Here, found: Gathered, advantages_PK: Tensor) -> list[Sequence[int]]:
    """The groups of each optimiser step: the chosen ones in `minibatches` runs of about one size, num_iterations times.

    Groups are not split, so there are never more minibatches than groups. One without signal is left out where the
    stage says so: its gradient is 0, but the optimiser's momentum would move the weights. A supervised part comes with
    each, and where none is left, with an empty one.
    """
    stage: GrpoStage = here.stage
    parts = min(stage.minibatches, len(found.chosen))
    cuts = [len(found.chosen) * part // parts for part in range(parts + 1)] if parts else []
    batches = [found.chosen[start:end] for start, end in pairwise(cuts)]
    if stage.skip_without_signal:
        learnable_PK = _learnable(stage, found.groups.rollout).any(-1).view(advantages_PK.shape)
        signal_P = ((advantages_PK != 0) & learnable_PK).any(-1)
        batches = [batch for batch in batches if bool(signal_P[list(batch)].any())]
    if not batches:
        return [[]] if here.now(stage.supervised_weight) else []
    return batches * stage.num_iterations


def _running(here: Here) -> Running:
    """The running statistics as they stood before this step."""
    carried = here.progress.carried
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


def _carried(here: Here, running: Running) -> dict[str, float]:
    """What the next step is handed: nothing that the stage does not use."""
    if "history" not in scopes(here.stage.advantage):
        return dict(here.progress.carried)
    state = {"count": running.count, "weight": running.weight, "mean": running.mean, "variance": running.variance}
    return {**here.progress.carried, **{f"running.{name}": value for name, value in state.items()}}


def _beta(here: Here) -> float:
    """The KL weight of this step: scheduled, or where the adaptive rule has moved it."""
    stage: GrpoStage = here.stage
    scheduled = here.now(stage.beta)
    return here.progress.carried.get("beta", scheduled) if stage.adaptive_beta is not None else scheduled


def _entropy_coef(here: Here, entropy: float | None) -> float:
    """The entropy weight of this step; an adaptive one acts only while the entropy is not above its target."""
    stage: GrpoStage = here.stage
    scheduled = here.now(stage.entropy_coef)
    if stage.adaptive_entropy is None:
        return scheduled
    coefficient = here.progress.carried.get("entropy_coef", scheduled)
    return applied_entropy_coef(coefficient, entropy, target=stage.adaptive_entropy.target)


def _adapted(here: Here, row: Mapping[str, float], samples: int) -> dict[str, float]:
    """The adaptive weights after a step with these metrics."""
    stage: GrpoStage = here.stage
    moved: dict[str, float] = {}
    if (rule := stage.adaptive_beta) is not None and "kl" in row:
        beta, kl = _beta(here), row["kl"]
        match rule.rule:
            case "proportional":
                moved["beta"] = proportional_beta(beta, kl, target=rule.target, horizon=rule.horizon, samples=samples)
            case "threshold":
                moved["beta"] = threshold_beta(beta, kl, high=rule.high, low=rule.low, factor=rule.factor)
            case _:
                assert_never(rule.rule)
    if (aim := stage.adaptive_entropy) is not None and "entropy" in row:
        coefficient = here.progress.carried.get("entropy_coef", here.now(stage.entropy_coef))
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
