"""What a policy measured of itself: draws that do nothing, that leak a gradient, that inference does not use."""

from __future__ import annotations

import pytest

from core.health.case import Case
from core.health.rules.self_probe import self_probe

SOUND = {"rate_effect": 4e-4, "gate_effect": 2e-3, "greedy_gap": 0.0, "score_z": 2.8}


def ids(**probed: float) -> list[str]:
    row = {"step": 0.0, **{f"probe/{name}": value for name, value in {**SOUND, **probed}.items()}}
    return [finding.id for finding in self_probe(Case(rows=[row]))]


@pytest.mark.parametrize(
    ("probed", "expected"),
    [
        ({}, []),
        ({"rate_effect": 0.0}, ["dead-masks"]),
        ({"rate_effect": 0.0, "gate_effect": 0.0}, []),  # a branch that is switched off: para1 is 0
        ({"rate_effect": 1e-9}, []),  # it acts, little as it is
        ({"score_z": 8.1}, ["leaking-samples"]),
        ({"score_z": 4.9}, []),  # chance
        ({"greedy_gap": 0.04}, ["unused-heads"]),
        ({"greedy_gap": 2e-7}, []),  # frozen heads whose means are the constants: only rounding is between them
        ({"rate_effect": 0.0, "greedy_gap": 0.04}, ["dead-masks", "unused-heads"]),
    ],
)
def test_what_a_policy_measured_of_itself(probed: dict[str, float], expected: list[str]) -> None:
    assert ids(**probed) == expected


def test_a_policy_that_measures_nothing_is_not_accused() -> None:
    assert self_probe(Case(rows=[{"step": 0, "eval/reward": 0.5}])) == []
    assert self_probe(Case(rows=[])) == []
