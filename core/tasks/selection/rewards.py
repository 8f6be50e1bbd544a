"""The scores of picks -> their training reward, in the seven modes of documents 001 and 004."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import numpy as np

from core.config.task import ExampleSelectionTaskSpec
from core.tasks.selection.queries import Scores

if TYPE_CHECKING:
    from core.tasks.selection.queries import Floats


def rewards(scores: Scores, spec: ExampleSelectionTaskSpec) -> Floats:
    """(N,) rewards by `reward_mode`, clipped to +-`reward_clip`, before any z-score; NaN where a score is missing.

    `separated` and `hard_plus_soft_v2` are the same function: h is 0 or 1, so the branch on it is a product with it.
    """
    h, s = scores.correct_N, scores.accuracy_N
    match spec.reward_mode:
        case "hard_plus_soft":
            reward_N = spec.hard_weight * h + spec.soft_weight * s
        case "hard_plus_soft_v2":
            reward_N = spec.soft_weight * s + 2 * spec.hard_weight * h
        case "separated":
            reward_N = np.where(h == 1, 2 * spec.hard_weight + spec.soft_weight * s, spec.soft_weight * s)
        case "hard_only":
            reward_N = spec.hard_weight * h
        case "soft_only":
            reward_N = spec.soft_weight * s
        case "hard_plus_gtprob_plus_rel":
            g, r = scores.gt_prob_N, scores.rel_N
            reward_N = spec.hard_weight * h + _weighted(spec.soft_weight, g) + _weighted(spec.rel_weight, (1 - h) * r)
        case "alpha_beta":
            c = np.where(h == 1, 1.0, np.where(h == 0, float(spec.wrong_value), np.nan))
            reward_N = _weighted(spec.reward_alpha, scores.beam_score_N) + spec.reward_beta * c
        case _:
            assert_never(spec.reward_mode)
    return np.clip(reward_N, -spec.reward_clip, spec.reward_clip)


def _weighted(weight: float, score_N: Floats) -> Floats:
    """weight * score; 0 where the weight is, so that a score nobody wants may be missing."""
    return weight * score_N if weight else np.zeros_like(score_N)
