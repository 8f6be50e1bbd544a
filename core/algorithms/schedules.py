"""Numbers that move with training: pure functions of an index, of the evaluations so far, or of a measurement.

State in, state out. Not here: what is measured, and where the state is saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, assert_never

Shape = Literal["constant", "linear", "cosine", "exponential"]
MovingShape = Literal["linear", "cosine", "exponential", "step"]

LAST_EXPONENTIAL = 0.01  # an exponential cannot reach 0: it ends at 1% of the base


def value(shape: Shape | MovingShape, start: float, end: float, steps: int, index: float) -> float:
    """The value at 0-based `index` between start (index 0) and end (from index = steps on; at once where steps is 0).

    With x = index / steps: constant: start for ever. linear: start + (end - start) x. cosine: end + (start - end)
    (1 + cos(pi x)) / 2. exponential: start (end / start)^x. step: start up to index = steps, end behind it.
    Raises: ValueError where the two ends of an exponential are not positive.
    """
    if shape == "exponential" and not (start > 0 and end > 0):
        raise ValueError(f"an exponential schedule needs two positive ends, got {start} and {end}")
    if shape == "step":
        return start if index <= steps else end
    if shape != "constant" and index >= steps:
        return end
    match shape:
        case "constant":
            return start
        case "linear":
            return start + (end - start) * (index / steps)
        case "cosine":
            return end + (start - end) * (1.0 + math.cos(math.pi * (index / steps))) / 2.0
        case "exponential":
            return start * math.pow(end / start, index / steps)
        case _:
            assert_never(shape)


def linear(start: float, end: float, steps: int, index: float) -> float:
    """start + (end - start) * index / steps, and `end` from index = steps on (at once where steps is 0)."""
    return value("linear", start, end, steps, index)


def learning_rate(
    base: float, kind: Shape, *, index: float, warmup_steps: int, total_steps: int, floor_ratio: float = 0.0
) -> float:
    """The learning rate at 0-based `index`: linear warm-up from 0 to base, then `kind` down to floor_ratio * base.

    An exponential with floor_ratio 0 goes down to 1% of base. The indices are those of transformers'
    get_cosine_schedule_with_warmup: with a warm-up, index 0 gives exactly 0. P30's first update moved no weight for
    this reason.
    """
    if index < warmup_steps:
        return base * index / max(1, warmup_steps)
    floor = LAST_EXPONENTIAL if kind == "exponential" and floor_ratio == 0 else floor_ratio
    return base * value(kind, 1.0, floor, max(1, total_steps - warmup_steps), index - warmup_steps)


def plateau_factor(values: Sequence[float], *, patience: int, factor: float, min_delta: float) -> float:
    """factor ** cuts, from the evaluations so far (higher is better): what a number is multiplied by.

    A cut falls where `patience` evaluations in a row brought no improvement by more than min_delta over the best; the
    wait starts again after it. A NaN is no improvement. Raises: ValueError where patience is below 1.
    """
    if patience < 1:
        raise ValueError(f"patience must be at least 1 evaluation, got {patience}")
    best, waited, cuts = -math.inf, 0, 0
    for score in values:
        if score > best + min_delta:
            best, waited = score, 0
            continue
        waited += 1
        if waited == patience:
            waited, cuts = 0, cuts + 1
    return factor**cuts


def proportional_beta(beta: float, kl: float, *, target: float, horizon: float, samples: int) -> float:
    """The next KL weight: beta * (1 + clip(kl / target - 1, -0.2, 0.2) * samples / horizon) (arXiv 1909.08593, 2.2).

    kl, target: nats. samples: completions since the last update, in the unit of horizon (10,000 there).
    """
    error = min(0.2, max(-0.2, kl / target - 1.0))
    return beta * (1.0 + error * samples / horizon)


def bounded(weight: float, least: float, most: float | None) -> float:
    """The weight, no less than `least` and no more than `most` (None: no bound)."""
    return max(least, weight if most is None else min(weight, most))


def threshold_beta(beta: float, kl: float, *, high: float = 0.1, low: float = 0.01, factor: float = 1.5) -> float:
    """The next KL weight: beta * factor above `high` nats, beta / factor below `low`, else beta."""
    if kl > high:
        return beta * factor
    if kl < low:
        return beta / factor
    return beta


def adaptive_entropy_coef(
    coef: float, entropy: float, *, target: float, delta: float, low: float, high: float
) -> float:
    """The next entropy coefficient: + delta at or below the target entropy (nats), - delta above, within [low, high].

    Skywork-OR1 (arXiv 2505.22312, 4.2), as TRL 1.16 has it.
    """
    if entropy <= target:
        return max(low, min(coef + delta, high))
    return min(high, max(coef - delta, low))


def applied_entropy_coef(coef: float, entropy: float | None, *, target: float) -> float:
    """The coefficient that enters the loss: coef while the last step's entropy is at or below the target, else 0.

    entropy: nats per token of the step before; None where there was none: then 0, as TRL has it.
    """
    return coef if entropy is not None and entropy <= target else 0.0
