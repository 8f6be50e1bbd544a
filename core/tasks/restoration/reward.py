"""The reward of a restored patch (document 003), and PSNR and SSIM as scikit-image measures them.

    psnr_term = clamp(10 log10(1 / (MSE + 1e-6)) / 40, 0, 1)          reward = w_psnr psnr_term + w_ssim ssim_term
    ssim_term = clamp(SSIM, 0, 1)

SSIM with a Gaussian window of sigma 1.5 (11 pixels), K1 = .01, K2 = .03, without the sample covariance's ddof. The
document's third term, LPIPS, needs pretrained weights: its share of the weights is spread over these two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from skimage.metrics import mean_squared_error, structural_similarity

if TYPE_CHECKING:
    from core.tasks.restoration.pictures import Floats

EPSILON = 1e-6  # of the document, so that the term of two equal pictures is finite: its PSNR ends at 60 dB
MOST_PSNR = 100.0  # dB that are measured: equal pictures have infinitely many, and no mean could be taken


@dataclass(frozen=True, kw_only=True, slots=True)
class Likeness:
    """How like two pictures are: the terms of the reward in [0, 1], and what is measured."""

    psnr_term: float
    ssim_term: float
    psnr: float  # dB
    ssim: float


def likeness(clean_HWC: Floats, restored_HWC: Floats) -> Likeness:
    """Of a clean picture and one that is clipped to [0, 1]."""
    mse = float(mean_squared_error(clean_HWC, restored_HWC))
    ssim = float(
        structural_similarity(
            clean_HWC, restored_HWC, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1.0,
            channel_axis=-1,
        )
    )  # fmt: skip
    return Likeness(
        psnr_term=min(max(10 * math.log10(1 / (mse + EPSILON)) / 40, 0.0), 1.0),
        ssim_term=min(max(ssim, 0.0), 1.0),
        psnr=MOST_PSNR if mse == 0 else min(10 * math.log10(1 / mse), MOST_PSNR),
        ssim=ssim,
    )


def clipped(output: object) -> Floats:
    """A network's output as a picture: float32 in [0, 1]; what is no number stays that."""
    picture: Floats = np.clip(np.asarray(output, dtype=np.float32), 0, 1)
    return picture
