"""Document 001's number, from advantages that are computed: floored z-scores give it two ways, ranks never."""

from __future__ import annotations

import pytest
import torch

from benchmarks.lever_plus import COMPARED, LOGGED, normalised
from core.health.rules.gains import difference_se


def test_what_gives_the_logged_number() -> None:
    torch.set_num_threads(1)  # threads cost more than they give on rows this short
    made = list(normalised())
    assert [case.ranks for case in made] == pytest.approx([0.5**0.5] * 5)
    near = [case.rewards for case in made if abs(case.z_score - LOGGED) < 0.1 * LOGGED]
    assert near == ["std 0.00062 inside groups", "0 or 1 in 0.74 % of the groups, equal in the others (0.69 % live)"]


def test_none_of_the_comparisons_is_clear() -> None:
    for _, before, after, n in COMPARED:
        assert abs(after - before) / 100 < 1.5 * difference_se(before / 100, after / 100, n)
