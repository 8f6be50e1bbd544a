"""Every reward mode on four rows that can be worked on paper."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from core.config.task import ExampleSelectionTaskSpec
from core.tasks.selection.queries import Scores
from core.tasks.selection.rewards import rewards

# wrong | right, .6 | right, 1 | wrong, and very unlikely
H, S = np.array([0.0, 1, 1, 0]), np.array([0.0, 0.6, 1, 0])
G, R, BEAM = np.array([0.0, 0.5, 1, 0.5]), np.array([0.5, 0.5, 0.0, 1]), np.array([-1.0, -2, -3, -100])
SCORES = Scores(correct_N=H, accuracy_N=S, gt_prob_N=G, rel_N=R, beam_score_N=BEAM, expected_N=S)


def spec(mode: str, **changes: Any) -> ExampleSelectionTaskSpec:
    return ExampleSelectionTaskSpec.model_validate({"name": "example-selection", "reward_mode": mode, **changes})


@pytest.mark.parametrize(
    ("mode", "changes", "expected"),
    [
        ("hard_plus_soft", {}, [0, 1.6, 2, 0]),
        ("hard_plus_soft", {"hard_weight": 0.5, "soft_weight": 2.0}, [0, 0.5 + 1.2, 2.5, 0]),
        ("hard_plus_soft_v2", {}, [0, 2.6, 3, 0]),
        ("separated", {}, [0, 2.6, 3, 0]),
        ("hard_only", {"hard_weight": 3.0}, [0, 3, 3, 0]),
        ("soft_only", {"soft_weight": 2.0}, [0, 1.2, 2, 0]),
        # h + .5 g + .3 (1 - h) r: .3 x .5 | 1 + .25 | 1 + .5 | .25 + .3
        ("hard_plus_gtprob_plus_rel", {"soft_weight": 0.5}, [0.15, 1.25, 1.5, 0.55]),
        # .2 beam + c: -.2 - 1 | -.4 + 1 | -.6 + 1 | -20 - 1, clipped
        ("alpha_beta", {}, [-1.2, 0.6, 0.4, -5]),
        ("alpha_beta", {"wrong_value": 0}, [-0.2, 0.6, 0.4, -5]),
        ("alpha_beta", {"reward_alpha": 0.5, "reward_beta": 0.8, "reward_clip": 1.0}, [-1, -0.2, -0.7, -1]),
        ("alpha_beta", {"reward_alpha": 0.0}, [-1, 1, 1, -1]),
        ("separated", {"hard_weight": 4.0}, [0, 5, 5, 0]),
    ],
)
def test_each_mode(mode: str, changes: dict[str, Any], expected: list[float]) -> None:
    settings = spec(mode, **changes)
    assert rewards(SCORES, settings).tolist() == pytest.approx(expected)
    limits = settings.reward_range
    assert limits is not None
    assert all(limits[0] <= reward <= limits[1] for reward in expected)


@pytest.mark.parametrize("weights", [{}, {"hard_weight": 0.3, "soft_weight": 1.7}])
def test_separated_is_hard_plus_soft_v2(weights: dict[str, float]) -> None:
    both = (rewards(SCORES, spec(mode, **weights)).tolist() for mode in ("separated", "hard_plus_soft_v2"))
    assert next(both) == pytest.approx(next(both))


def test_a_score_that_is_missing_matters_where_it_is_asked_for_alone() -> None:
    nothing = np.full(4, math.nan)
    partial = Scores(correct_N=H, accuracy_N=S, gt_prob_N=nothing, rel_N=nothing, beam_score_N=nothing, expected_N=S)
    assert np.isnan(rewards(partial, spec("alpha_beta"))).all()
    assert rewards(partial, spec("alpha_beta", reward_alpha=0.0)).tolist() == [-1, 1, 1, -1]
    unscored = Scores(
        correct_N=nothing, accuracy_N=nothing, gt_prob_N=nothing, rel_N=nothing, beam_score_N=BEAM, expected_N=nothing
    )
    for mode in ("hard_plus_soft", "separated", "alpha_beta"):
        assert np.isnan(rewards(unscored, spec(mode))).all()
