"""Rewards of groups -> advantages, in float64: transform -> centre -> scale -> clip, each an axis of its own.

Also here: which of a prompt's candidates take part, and their weights in reward-weighted cross-entropy (RCE).

The only implementation: the trainer, `check`, `check --simulate` and the rules of health call it. It is numpy, so that
none of them but the trainer loads torch.

Why float64: in fp32 the mean of K equal rewards such as 0.3 is not 0.3, and a z-score over that rounding error gave
advantages up to 477 for groups that carry no signal at all. Here a group is dead by one rule (`dead_groups`), its
advantages are exactly 0, and the same flag feeds the metric and every filter.

Shape suffixes: P prompts, C columns of a group. A column is one completion, or all that earned one reward: `counts_PC`
says how many they are, so a group of 1,024 completions and 3 different rewards takes 3 columns. A missing reward is NaN
or has count 0: left out of every statistic, advantage 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import assert_never

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.algorithms.names import BASELINES, Baseline, CandidateChoice, Normaliser, RunningRule

RELATIVE_TOLERANCE = 1e-9

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """Mean and standard deviation of the rewards of the steps before: what `running` subtracts and divides by."""

    mean: float
    std: float


def advantages(
    rewards_PC: ArrayLike,
    how: Normaliser,
    *,
    counts_PC: ArrayLike | None = None,
    lengths_PC: ArrayLike | None = None,
    before: Level | None = None,
) -> Array:
    """Advantages of columns: (P, C) -> (P, C), A = clip((f(r) - baseline) / (max(std, floor) + eps)).

    Args: rewards_PC: NaN where missing. counts_PC: completions of a column; None: one each. lengths_PC: the drawn
        tokens of each of a column's completions, for weighting tokens. before: running statistics; None: the batch's
        own mean and std (divisor n), as on the first step.
    Exactly 0: missing rewards; dead groups under a baseline of the group; a dead batch under one of the batch; and
    where the std and its floor are both 0, since nothing can be measured in units of eps.
    Raises: ValueError where rewards are infinite, or weighting is tokens and lengths_PC is missing.
    Source: DeepSeekMath, arXiv 2402.03300, eq. 4 (group/group); Dr. GRPO, 2503.20783 (group/none); RLOO, 2402.14740
    (leave_one_out/none); REINFORCE++, 2501.03262 (batch/batch).
    """
    groups = _groups(rewards_PC, counts_PC, how, lengths_PC)
    centred_PC = _centred(groups, how.baseline, before)
    scale = _scale(groups, centred_PC, how, before)
    if scale is not None:
        scale = np.maximum(scale, how.std_floor)
        centred_PC = np.divide(centred_PC, scale + how.eps, out=np.zeros_like(centred_PC), where=scale > 0)
    if how.clip is not None:
        centred_PC = np.clip(centred_PC, -how.clip, how.clip)
    silent_PC = _without_signal(groups, how.baseline) | (groups.counts_PC == 0)
    return np.where(silent_PC, 0.0, centred_PC)[:, : groups.columns]


def dead_groups(
    rewards_PC: ArrayLike, virtual_best: float | None = None, *, counts_PC: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """True where a group's present rewards are all equal within 1e-9 * max(1, max|r|), or fewer than 2: (P, C) -> (P,).

    Args: rewards_PC: NaN where missing. virtual_best counts as one more present reward where any is.
    """
    return _equal(*_with_virtual(*_present(rewards_PC, counts_PC), virtual_best))[:, 0]


def group_std(rewards_PC: ArrayLike, ddof: int) -> Array:
    """Standard deviation of a group's present rewards with divisor n - ddof, kept as a column: (P, C) -> (P, 1).

    0 where fewer than ddof + 1 rewards are present.
    """
    return moments(*_present(rewards_PC, None), ddof)[1]


def moments(values: Array, weights: Array, ddof: int) -> tuple[Array, Array]:
    """Mean and std of each line, kept as columns; weights are frequencies, so the divisor is sum(w) - ddof.

    values: finite; what stands at weight 0 does not matter. 0 where there is no weight; the std also where there is
    not more of it than ddof.
    """
    total = line_sum(weights)
    mean = line_sum(values * weights) / np.maximum(total, 1.0)  # a weight counts rows or tokens: 0, or >= 1
    squares = line_sum((values - mean) ** 2 * weights)
    return mean, np.sqrt(np.divide(squares, total - ddof, out=np.zeros_like(squares), where=total > ddof))


def centred_ranks(rewards_PC: Array, counts_PC: Array) -> Array:
    """rank - (n + 1) / 2 inside each group, the best largest, ties the average of their ranks: (P, C) -> (P, C).

    That is (members below - members above) / 2, which needs no sort and sums to exactly 0. Equal means: within the
    tolerance of `dead_groups`, so 0.1 + 0.2 ties with 0.3.
    """
    gap_PCC = rewards_PC[:, :, None] - rewards_PC[:, None, :]  # [p, i, j] = r_i - r_j
    tolerance_P11 = _tolerance(rewards_PC, counts_PC)[:, :, None]
    beats_PCC = (gap_PCC > tolerance_P11).astype(np.float64) - (gap_PCC < -tolerance_P11)
    wins_PC: Array = (beats_PCC * counts_PC[:, None, :]).sum(-1) / 2
    return wins_PC


def ranks_by_order(rewards_PC: Array, counts_PC: Array) -> Array:
    """1 - 2 rank / (n - 1) inside each group, rank 0 the best, of equal rewards the earlier one: (P, C) -> (P, C).

    So a group of equal rewards has the values 1 to -1 too, by its order alone. Of the members of one column the mean;
    0 in a group of one, and what is missing is 0.
    """
    gap_PCC = rewards_PC[:, None, :] - rewards_PC[:, :, None]  # [p, i, j] = r_j - r_i
    tolerance_P11 = _tolerance(rewards_PC, counts_PC)[:, :, None]
    earlier_CC = np.tri(rewards_PC.shape[-1], k=-1, dtype=np.bool_)
    above_PCC = (gap_PCC > tolerance_P11) | ((np.abs(gap_PCC) <= tolerance_P11) & earlier_CC)
    rank_PC = (above_PCC * counts_PC[:, None, :]).sum(-1) + (counts_PC - 1) / 2
    others_P1 = counts_PC.sum(-1, keepdims=True) - 1
    ranked: Array = np.where((counts_PC > 0) & (others_P1 > 0), 1 - 2 * rank_PC / np.maximum(others_P1, 1.0), 0.0)
    return ranked


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """Moving averages of each step's mean and variance, raw, after `count` updates with `rewards` rewards in all.

    A plain average started at 0 is too small for the first 1 / (1 - decay) steps; `weight` is the same average of the
    constant 1, 1 - decay ** count, and dividing by it removes exactly that.
    """

    count: int = 0
    rewards: int = 0
    weight: float = 0.0
    mean: float = 0.0
    variance: float = 0.0

    @property
    def level(self) -> Level | None:
        """The bias-corrected mean and the root of the bias-corrected variance; None before the first update."""
        if self.count == 0:
            return None
        return Level(mean=self.mean / self.weight, std=sqrt(self.variance / self.weight))


MOST_COUNTED = 0.1  # of a step under the rule `count`: document 003's bound, which acts on the first 9 rewards


def updated(running: Running, rewards_PC: ArrayLike, decay: float, rule: RunningRule = "decay") -> Running:
    """The state after one more step: x <- (1 - w) * x + w * batch, for mean and variance (divisor n).

    A step's advantages are made with the state from BEFORE it. Under the rule `decay` w is 1 - decay, and the batch's
    variance is taken about the mean of the steps before it (the first one's about its own): the spread between steps
    belongs to it. With one prompt a step, the variance inside each step is far too small, and every advantage ends at
    its clip. The rule `count` is document 003's, which has it that way: the variance about the batch's own mean, and
    w = min(0.1, 1 / rewards so far), so that the statistics stand ever stiller. A step without a present reward changes
    nothing.
    """
    rewards_1N, counts_1N = (line.reshape(1, -1) for line in _present(rewards_PC, None))
    if not counts_1N.any():
        return running
    mean, counted = float(moments(rewards_1N, counts_1N, 0)[0].item()), running.rewards + int(counts_1N.sum())
    match rule:
        case "decay":
            about = mean if running.level is None else running.level.mean
        case "count":
            about, decay = mean, 1.0 - min(MOST_COUNTED, 1.0 / counted)
        case _:
            assert_never(rule)
    variance = float((line_sum((rewards_1N - about) ** 2 * counts_1N) / counts_1N.sum()).item())
    return Running(
        count=running.count + 1,
        rewards=counted,
        weight=decay * running.weight + (1.0 - decay),
        mean=decay * running.mean + (1.0 - decay) * mean,
        variance=decay * running.variance + (1.0 - decay) * variance,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Groups:
    """A step's groups with their virtual members, the last column where there are any; 0 at what is missing.

    values_PC: rewards after the transform. counts_PC: members of a column. weights_PC: how often they count in
    statistics of the batch. columns: without the virtual one.
    """

    rewards_PC: Array
    values_PC: Array
    counts_PC: Array
    weights_PC: Array
    columns: int


def _groups(
    rewards_PC: ArrayLike, counts_PC: ArrayLike | None, how: Normaliser, lengths_PC: ArrayLike | None
) -> _Groups:
    rewards_PC, counts_PC = _present(rewards_PC, counts_PC)
    if np.isinf(rewards_PC).any():
        raise ValueError("got an infinite reward; rewards are finite, or NaN where one could not be computed")
    columns = rewards_PC.shape[-1]
    rewards_PC, counts_PC = _with_virtual(rewards_PC, counts_PC, how.virtual_best)
    match how.transform:
        case "none":
            values_PC = rewards_PC
        case "rank":
            values_PC = centred_ranks(rewards_PC, counts_PC)
        case "rank_by_order":
            values_PC = ranks_by_order(rewards_PC, counts_PC)
        case _:
            assert_never(how.transform)
    match how.weighting:
        case "rows":
            weights_PC = counts_PC
        case "tokens":
            if lengths_PC is None:
                raise ValueError("weighting 'tokens' needs lengths_PC, the drawn tokens of every completion")
            weights_PC = counts_PC.copy()
            weights_PC[:, :columns] *= np.asarray(lengths_PC, dtype=np.float64)
            weights_PC[:, columns:] = 0.0  # a virtual member drew no token
        case _:
            assert_never(how.weighting)
    return _Groups(
        rewards_PC=rewards_PC, values_PC=values_PC, counts_PC=counts_PC, weights_PC=weights_PC, columns=columns
    )


def _centred(groups: _Groups, baseline: Baseline, before: Level | None) -> Array:
    """The values less their baseline."""
    values_PC, counts_PC = groups.values_PC, groups.counts_PC
    match baseline:
        case "none":
            return values_PC
        case "group":
            return values_PC - moments(values_PC, counts_PC, 0)[0]
        case "leave_one_out":  # r - mean of the others = n / (n - 1) * (r - mean of all)
            n_P1 = line_sum(counts_PC)
            return (values_PC - moments(values_PC, counts_PC, 0)[0]) * n_P1 / np.maximum(n_P1 - 1.0, 1.0)
        case "batch":
            return values_PC - moments(_line(values_PC), _line(groups.weights_PC), 0)[0]
        case "running":
            return values_PC - _level(groups, before).mean
        case _:
            assert_never(baseline)


def _without_signal(groups: _Groups, baseline: Baseline) -> NDArray[np.bool_]:
    """Where (P, 1) or (1, 1) rewards do not differ among those that the baseline is of."""
    match scope := BASELINES[baseline].scope:
        case "group":
            return _equal(groups.rewards_PC, groups.counts_PC)
        case "batch":
            return _equal(_line(groups.rewards_PC), _line(groups.counts_PC))
        case "history" | "none":
            return np.zeros((1, 1), dtype=np.bool_)
        case _:
            assert_never(scope)


def _scale(groups: _Groups, centred_PC: Array, how: Normaliser, before: Level | None) -> Array | None:
    """What `scale_rewards` divides by, as a column; exactly 0 where what it measures has no spread; None: nothing."""
    match how.scale_rewards:
        case "none":
            return None
        case "group":
            return _spread(groups.values_PC, groups.counts_PC, how.ddof)
        case "batch":
            return _spread(_line(groups.values_PC), _line(groups.weights_PC), how.ddof)
        case "batch_centred":
            return _spread(_line(centred_PC), _line(groups.weights_PC), how.ddof)
        case "running":
            return np.array([[_level(groups, before).std]])
        case _:
            assert_never(how.scale_rewards)


def _level(groups: _Groups, before: Level | None) -> Level:
    """Mean and std from before this step, the std 0 where it is rounding; the batch's own where nothing was before."""
    if before is not None:
        equal = before.std <= RELATIVE_TOLERANCE * max(1.0, abs(before.mean))  # every reward so far was the same
        return Level(mean=before.mean, std=0.0 if equal else before.std)
    values, counts = _line(groups.values_PC), _line(groups.counts_PC)
    return Level(mean=moments(values, counts, 0)[0].item(), std=_spread(values, counts, 0).item())


def _spread(values: Array, weights: Array, ddof: int) -> Array:
    """The std of each line, as a column; exactly 0 where all values of any weight are equal."""
    return np.where(_equal(values, weights), 0.0, moments(values, weights, ddof)[1])


def _equal(values: Array, weights: Array) -> NDArray[np.bool_]:
    """Whether a line's values of any weight lie within the tolerance, as a column; also where there is none."""
    high = np.where(weights > 0, values, -np.inf).max(-1, keepdims=True)
    low = np.where(weights > 0, values, np.inf).min(-1, keepdims=True)
    equal: NDArray[np.bool_] = high - low <= _tolerance(values, weights)
    return equal


def _tolerance(values: Array, weights: Array) -> Array:
    largest: Array = np.where(weights > 0, np.abs(values), 0.0).max(-1, keepdims=True)
    return RELATIVE_TOLERANCE * np.maximum(largest, 1.0)


def _present(rewards_PC: ArrayLike, counts_PC: ArrayLike | None) -> tuple[Array, Array]:
    """The rewards, 0 where missing, and how many completions earned each, 0 where missing."""
    rewards_PC = np.asarray(rewards_PC, dtype=np.float64)
    given_PC = np.ones_like(rewards_PC) if counts_PC is None else np.asarray(counts_PC, dtype=np.float64)
    counts_PC = np.where(np.isnan(rewards_PC), 0.0, given_PC)
    return np.where(counts_PC > 0, rewards_PC, 0.0), counts_PC


def _with_virtual(rewards_PC: Array, counts_PC: Array, virtual_best: float | None) -> tuple[Array, Array]:
    """Rewards and counts with the virtual member as a last column; it is missing where every reward is."""
    if virtual_best is None:
        return rewards_PC, counts_PC
    there_P1 = (counts_PC > 0).any(-1, keepdims=True)
    rewards_PC = np.concatenate([rewards_PC, np.where(there_P1, virtual_best, 0.0)], axis=-1)
    return rewards_PC, np.concatenate([counts_PC, there_P1.astype(np.float64)], axis=-1)


def _line(values_PC: Array) -> Array:
    """All groups as one."""
    return values_PC.reshape(1, -1)


def line_sum(values: Array) -> Array:
    """The sum of each line, as a column: four partial sums of every fourth value, then those from left to right.

    The order is written out: numpy's own depends on the shape of the array. This one is torch's for up to 16 values.
    """
    lines, columns = values.shape
    padded = np.zeros((lines, columns + -columns % 4), dtype=values.dtype)  # np.pad takes several times as long
    padded[:, :columns] = values
    quarters = padded.reshape(lines, -1, 4)
    return np.add.accumulate(np.add.accumulate(quarters, axis=1)[:, -1], axis=-1)[:, -1:]


def kept_counts(scores_PC: ArrayLike, keep: int, *, counts_PC: ArrayLike | None = None) -> Array:
    """How many of each column's candidates are among the best `keep` of their group: (P, C) -> (P, C), whole numbers.

    counts_PC: the candidates of a column; None: one each. Of equal scores the earlier ones stay, missing ones never do.
    Raises: ValueError where keep is below 1.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    scores_PC = np.asarray(scores_PC, dtype=np.float64)
    given_PC = np.ones_like(scores_PC) if counts_PC is None else np.asarray(counts_PC, dtype=np.float64)
    present_PC = np.where(np.isnan(scores_PC), 0.0, given_PC)
    order_PC = np.argsort(np.where(np.isnan(scores_PC), np.inf, -scores_PC), axis=-1, kind="stable")
    best_first_PC = np.take_along_axis(present_PC, order_PC, axis=-1)
    before_PC = np.add.accumulate(best_first_PC, axis=-1) - best_first_PC
    kept_PC = np.zeros_like(present_PC)
    np.put_along_axis(kept_PC, order_PC, np.clip(keep - before_PC, 0.0, best_first_PC), axis=-1)
    return kept_PC


def choice_scores(
    rewards_PK: ArrayLike,
    choice: CandidateChoice,
    *,
    orders_PK: ArrayLike | None = None,
    right_PK: ArrayLike | None = None,
) -> Array:
    """What `kept_counts` is to rank candidates by: (P, K) rewards -> (P, K), missing ones stay missing.

    best: the rewards. random: places in a random order (`orders_PK`, a permutation of 0 to K - 1 for each group), the
    first in front. stratified: the same, but the first right and the first wrong candidate (`right_PK`) before all.
    Raises: ValueError where an order or what is right is needed and missing.
    """
    rewards_PK = np.asarray(rewards_PK, dtype=np.float64)
    if choice == "best":
        return rewards_PK
    if orders_PK is None or (choice == "stratified" and right_PK is None):
        raise ValueError(f"the choice {choice} needs orders, and a stratified one what is right")
    scores_PK = np.where(np.isnan(rewards_PK), np.nan, -np.asarray(orders_PK, dtype=np.float64))
    match choice:
        case "random":
            return scores_PK
        case "stratified":
            right = np.asarray(right_PK, dtype=np.bool_)
            first_PK = np.zeros_like(right)
            for stratum_PK in (right, ~right):
                inside_PK = np.where(stratum_PK & ~np.isnan(scores_PK), scores_PK, -np.inf)
                first_PK |= (inside_PK == inside_PK.max(-1, keepdims=True)) & (inside_PK > -np.inf)
            return np.where(first_PK, scores_PK + rewards_PK.shape[-1], scores_PK)
        case _:
            assert_never(choice)


def candidate_weights(scores_PK: ArrayLike, *, tau: float, keep: int | None = None) -> Array:
    """softmax(score / tau) over each prompt's `keep` best present candidates, else 0: (P, K) -> (P, K), float64.

    A row sums to 1, or to 0 where nothing is present. Among equal scores at the edge the earlier candidate is kept.
    Raises: ValueError where tau is not positive, keep is below 1, or a score is infinite.
    """
    if tau <= 0:
        raise ValueError(f"tau must be positive, got {tau}")
    scores_PK = np.asarray(scores_PK, dtype=np.float64)
    if np.isinf(scores_PK).any():
        raise ValueError("got an infinite score; scores are finite, or NaN where one could not be computed")
    kept_PK = kept_counts(scores_PK, scores_PK.shape[-1] if keep is None else keep) > 0
    best_P1 = np.where(kept_PK, scores_PK, -np.inf).max(-1, keepdims=True)
    # The scores of others may be NaN, and where a row has none its best is infinite.
    gaps_PK = np.subtract(scores_PK, best_P1, out=np.zeros_like(scores_PK), where=kept_PK)
    powers_PK = np.where(kept_PK, np.exp(gaps_PK / tau), 0.0)
    return powers_PK / np.maximum(line_sum(powers_PK), 1.0)  # the best one's power is 1


def whole(keep: float) -> int:
    """The candidates of a group that take part, from the value of a schedule: rounded, at least one."""
    return max(1, round(keep))
