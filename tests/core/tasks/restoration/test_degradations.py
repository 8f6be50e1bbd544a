"""Each degradation: what it does to a patch, and that its dice alone decide."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from core.config.task import Degradation
from core.tasks.restoration.degradations import degrade

GREY = np.full((64, 64, 3), 0.5, dtype=np.float32)
ALL: tuple[Degradation, ...] = get_args(Degradation)
RAMP = np.repeat(np.linspace(0, 1, 64, dtype=np.float32)[None, :, None], 64, axis=0).repeat(3, axis=2)


@pytest.mark.parametrize("name", ALL)
def test_a_patch_stays_a_picture_and_its_dice_alone_decide(name: Degradation) -> None:
    before = RAMP.copy()
    one, same, other = (degrade(RAMP, name, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (one.shape, one.dtype) == ((64, 64, 3), np.float32)
    assert 0 <= one.min() < one.max() <= 1
    assert one.tobytes() == same.tobytes() != other.tobytes()
    assert np.array_equal(RAMP, before)


@pytest.mark.parametrize(("name", "sigma"), [("noise-15", 15), ("noise-25", 25), ("noise-50", 50)])
def test_noise_has_its_sigma_in_256_levels(name: Degradation, sigma: int) -> None:
    noise = degrade(GREY, name, np.random.default_rng(0)) - GREY
    assert noise.mean() == pytest.approx(0, abs=0.006)  # 12,288 values: a standard error of 0.0018 at sigma 50
    assert 255 * noise.std() == pytest.approx(sigma, rel=0.03)


def test_blur_moves_light_and_loses_none() -> None:
    point = np.zeros((65, 65, 3), dtype=np.float32)
    point[32, 32] = 1
    for seed in range(6):
        blurred = degrade(point, "blur", np.random.default_rng(seed))
        assert blurred.sum() == pytest.approx(3, rel=1e-4)
        assert blurred[32, 32, 0] == blurred.max() < 0.2  # it stays where it was


def test_rain_and_haze_add_light_and_low_light_takes_it() -> None:
    rain, haze, low = (degrade(GREY, name, np.random.default_rng(3)) for name in ("rain", "haze", "low-light"))
    assert (rain >= GREY).all()
    assert 0.02 < (rain > GREY).mean() < 0.5
    assert (rain[..., 0] == rain[..., 2]).all()  # streaks have no colour
    assert haze.mean() > 0.5
    assert haze[:16].mean() > haze[-16:].mean()  # more of it far away, which is above
    assert low.mean() < 0.25
    assert low.std() < 0.05
