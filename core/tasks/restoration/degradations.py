"""What is done to a clean patch: noise, blur, rain, haze, low light, each with parameters drawn for that patch alone.

| degradation | |
|---|---|
| `noise-S` | + N(0, S / 255) |
| `blur` | by evens a Gaussian of sigma 1 to 3 pixels, or a straight motion of 7 to 15 pixels in any direction |
| `rain` | + streaks: one pixel in 80 to 250 a drop, drawn out over 9 to 21 pixels within 30 degrees of the vertical |
| `haze` | J t + A (1 - t), t = exp(-b d): light A .7 to 1, b .6 to 1.8, depth d in [0, 1] rises upwards, with hills |
| `low-light` | gain .2 to .5 of the patch to the power 1.2 to 2.2, + N(0, 2 to 8 / 255) |

Clipped to [0, 1]. Noise as in the literature; the ranges of the others are stated, and fitted to no data set.

Shape suffixes: H, W pixels; C the three colours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import numpy as np
from scipy import ndimage

from core.config.task import Degradation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from core.tasks.restoration.pictures import Floats


def degrade(clean_HWC: Floats, degradation: Degradation, dice: np.random.Generator) -> Floats:
    """The patch as it is given to be restored: float32 in [0, 1]."""
    match degradation:
        case "noise-15" | "noise-25" | "noise-50":
            degraded: NDArray[np.floating] = _noisy(clean_HWC, int(degradation.removeprefix("noise-")), dice)
        case "blur":
            degraded = _blurred(clean_HWC, dice)
        case "rain":
            degraded = _rained_on(clean_HWC, dice)
        case "haze":
            degraded = _hazy(clean_HWC, dice)
        case "low-light":
            dark = dice.uniform(0.2, 0.5) * clean_HWC ** dice.uniform(1.2, 2.2)
            degraded = _noisy(dark, dice.uniform(2, 8), dice)
        case _:
            assert_never(degradation)
    clipped: Floats = np.clip(degraded, 0, 1).astype(np.float32)
    return clipped


def _noisy(image_HWC: NDArray[np.floating], sigma: float, dice: np.random.Generator) -> NDArray[np.float64]:
    return image_HWC + sigma / 255 * dice.standard_normal(image_HWC.shape)


def _blurred(clean_HWC: Floats, dice: np.random.Generator) -> NDArray[np.floating]:
    if dice.random() < 0.5:
        sigma = dice.uniform(1, 3)
        blurred: NDArray[np.floating] = ndimage.gaussian_filter(clean_HWC, (sigma, sigma, 0))
        return blurred
    line = _line(int(dice.integers(7, 16)), dice.uniform(0, 180))
    moved: NDArray[np.floating] = ndimage.convolve(clean_HWC, line[..., None])
    return moved


def _rained_on(clean_HWC: Floats, dice: np.random.Generator) -> NDArray[np.floating]:
    """Streaks of one direction, each as bright as another of its length."""
    length = int(dice.integers(9, 22))
    drops_HW = (dice.random(clean_HWC.shape[:2]) < dice.uniform(0.004, 0.012)) * dice.uniform(
        0.5, 1, clean_HWC.shape[:2]
    )
    line = _line(length, 90 + dice.uniform(-30, 30))
    streaks_HW = ndimage.convolve(drops_HW, line * (dice.uniform(0.3, 0.7) / line.max()))
    rained: NDArray[np.floating] = clean_HWC + np.minimum(streaks_HW, 0.8)[..., None]
    return rained


def _hazy(clean_HWC: Floats, dice: np.random.Generator) -> NDArray[np.floating]:
    """The atmospheric scattering model; depth is a slope from below to above plus smooth noise, scaled to [0, 1]."""
    height, width = clean_HWC.shape[:2]
    hills_HW = ndimage.zoom(dice.standard_normal((4, 4)), (height / 4, width / 4), order=3)
    depth_HW = np.linspace(1, 0, height)[:, None] + 0.2 * hills_HW / hills_HW.std()
    depth_HW = (depth_HW - depth_HW.min()) / (depth_HW.max() - depth_HW.min())
    through_HW = np.exp(-dice.uniform(0.6, 1.8) * depth_HW)[..., None]
    hazy: NDArray[np.floating] = clean_HWC * through_HW + dice.uniform(0.7, 1) * (1 - through_HW)
    return hazy


def _line(length: int, degrees: float) -> NDArray[np.float64]:
    """A line through the middle of a square of odd sides, smooth at its edges; it sums to 1."""
    side = length | 1
    line = np.zeros((side, side))
    line[side // 2, (side - length) // 2 : (side + length) // 2] = 1.0
    turned: NDArray[np.float64] = np.maximum(ndimage.rotate(line, degrees, reshape=False, order=1), 0)
    turned /= turned.sum()
    return turned
