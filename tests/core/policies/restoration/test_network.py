"""The restoration network: its sizes, its frequency box, and that each of its twelve factors acts."""

from __future__ import annotations

import pytest
import torch

from core.faults import dead_masks
from core.policies.restoration.network import FACTORS, OF_MODULE, RestorationNetwork, low_pass
from core.policies.restoration.policy import GATES, RATES
from tests.core.policies.restoration.pictures import policy_of, settings

ONE = torch.zeros(1, dtype=torch.long)


def change(network: RestorationNetwork, size: int, factor: int) -> float:
    """How far the output moves when this factor goes from .2 to .8, the others at a half."""
    pixels = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    factors_2T = torch.full((2, FACTORS), 0.5)
    factors_2T[:, factor] = torch.tensor([0.2, 0.8])
    with torch.no_grad():
        ends, _, _ = network(
            pixels, ONE.expand(2), lambda _, module: factors_2T[:, module * OF_MODULE : (module + 1) * OF_MODULE]
        )
    assert ends is not None
    assert ends.shape == (2, *pixels.shape[1:])
    return float((ends[1] - ends[0]).abs().max())


@pytest.mark.parametrize("size", [64, 128, 256])
def test_every_factor_acts_at_every_resolution_and_with_dead_masks_no_rate_does(size: int) -> None:
    policy = policy_of(width=2, heads=[1, 1, 1, 1])
    assert min(change(policy.network, size, factor) for factor in range(FACTORS)) > 1e-5
    dead_masks(policy)
    assert [change(policy.network, size, factor) for factor in RATES] == [0.0] * len(RATES)
    assert min(change(policy.network, size, factor) for factor in GATES) > 1e-5


def test_the_box_covers_the_plane_at_1_and_grows_with_its_rates() -> None:
    for height, width in ((8, 8), (16, 12), (5, 7)):
        one = torch.ones(1, 1, 1, 1)
        assert torch.equal(low_pass(one, one, height, width), torch.ones(1, 1, height, width // 2 + 1))
        shares = [float(low_pass(one * rate, one, height, width).mean()) for rate in (0.1, 0.3, 0.5, 0.7, 0.9)]
        assert sorted(set(shares)) == shares
        assert float(low_pass(one * 0.2, one * 0.2, height, width)[0, 0, 0, 0]) == 1  # the mean is always inside


def test_a_box_of_8_bins_by_hand() -> None:
    one = torch.ones(1, 1, 1, 1)
    # Half of 4.5 bins: |k| of 0 and 1 inside, 2 to three quarters, 3 and 4 outside.
    rows = low_pass(0.5 * one, one, 8, 8)[0, 0, :, 0]
    assert rows.tolist() == pytest.approx([1, 1, 0.75, 0, 0, 0, 0.75, 1])


def test_a_head_begins_near_a_bell_over_the_middle() -> None:
    torch.manual_seed(0)
    network = RestorationNetwork(settings())
    with torch.no_grad():
        _, _, betas = network(torch.rand(1, 3, 16, 16), ONE, lambda betas, _: torch.full((len(betas), 4), 0.5), 3)
    assert betas.shape == (1, FACTORS, 2)
    assert 1.2 < float(betas.min()) < float(betas.max()) < 3


def test_one_picture_for_several_rows_is_as_several_pictures() -> None:
    torch.manual_seed(0)
    network = RestorationNetwork(settings())
    pixels = torch.rand(2, 3, 16, 16)
    half = torch.full((4,), 0.5)
    with torch.no_grad():
        rows, _, _ = network(pixels, torch.tensor([0, 1, 1]), lambda betas, _: half.expand(len(betas), -1))
        alone, _, _ = network(pixels[1:], ONE, lambda betas, _: half.expand(len(betas), -1))
    assert rows is not None
    assert alone is not None
    assert torch.allclose(rows[1:], alone.expand(2, -1, -1, -1), atol=1e-6)
