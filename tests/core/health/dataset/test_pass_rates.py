"""Pass rates that differ between prompts, and the groups that teach nothing because of it."""

from __future__ import annotations

import pytest

from core.health.dataset import Lengths, PassRates, fitted, highest_unseen, lengths


def test_one_pass_rate_for_all() -> None:
    # p = 1/2, K = 2: 1/4 + 1/4
    assert PassRates(mean=0.5, correlation=0.0).dead(2) == pytest.approx(0.5)


def test_a_flat_beta() -> None:
    # a = b = 1: correlation 1 / (a + b + 1) = 1/3, and E[p^K] = 1 / (K + 1), so dead(K) = 2 / (K + 1)
    flat = PassRates(mean=0.5, correlation=1 / 3)
    assert [flat.dead(size) for size in (2, 4, 8)] == pytest.approx([2 / 3, 2 / 5, 2 / 9])
    assert flat.size_needed() == 4


def test_a_beta_that_leans() -> None:
    # a = 1, b = 3: mean 1/4, correlation 1/5. E[p^2] = 1*2 / (4*5) = 0.1, E[(1 - p)^2] = 3*4 / (4*5) = 0.6
    assert PassRates(mean=0.25, correlation=0.2).dead(2) == pytest.approx(0.7)


def test_prompts_that_differ_have_more_dead_groups() -> None:
    assert PassRates(mean=0.3, correlation=0.5).dead(8) > PassRates(mean=0.3, correlation=0.0).dead(8)


def test_no_size_helps_where_prompts_are_all_or_nothing() -> None:
    assert PassRates(mean=0.5, correlation=0.95).size_needed() is None


def test_fitted_on_paper() -> None:
    # Two prompts, 2 of 4 and 0 of 4. Mean 1/4. Pairs: 2*1/(4*3) = 1/6 and 0, mean 1/12. Across: 1/2 * 0 = 0.
    # Correlation (1/12 - 0) / (3/16) = 4/9.
    found = fitted([(2, 4), (0, 4)])
    assert found is not None
    assert (found.mean, found.correlation) == (0.25, pytest.approx(4 / 9))


def test_prompts_alike_have_no_correlation() -> None:
    found = fitted([(2, 4)] * 5)  # pairs 1/6 < across 1/4: less than chance, so none
    assert found == PassRates(mean=0.5, correlation=0.0)


@pytest.mark.parametrize("counts", [[], [(0, 0)], [(0, 4), (0, 4)], [(4, 4)]])
def test_nothing_to_fit(counts: list[tuple[int, int]]) -> None:
    assert fitted(counts) is None


def test_one_sample_each_tells_no_difference() -> None:
    assert fitted([(1, 1), (0, 1)]) == PassRates(mean=0.5, correlation=0.0)


def test_what_none_among_n_rules_out() -> None:
    assert highest_unseen(59) == pytest.approx(0.0495, abs=1e-4)  # 0.95^59 = 0.0485: about 5 %
    assert (1 - highest_unseen(100)) ** 100 == pytest.approx(0.05)


def test_lengths() -> None:
    assert lengths([]) is None
    assert lengths([7]) == Lengths(min=7, median=7, p90=7, max=7)
    assert lengths(range(11, 0, -1)) == Lengths(min=1, median=6, p90=10, max=11)
