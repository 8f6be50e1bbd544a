"""The reward by hand, and equal to scikit-image where it measures the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from core.tasks.restoration.reward import MOST_PSNR, clipped, likeness

DICE = np.random.default_rng(0)
CLEAN = DICE.random((32, 32, 3), dtype=np.float32)
OTHER = np.clip(CLEAN + DICE.normal(0, 0.2, CLEAN.shape), 0, 1).astype(np.float32)


def flat(value: float) -> np.ndarray:
    return np.full((16, 16, 3), value)


def test_a_constant_offset_of_a_tenth_is_20_db() -> None:
    """MSE = .1^2 = .01: 10 log10(1 / .01) = 20 dB, and the term is 10 log10(1 / .010001) / 40 = .49998914."""
    like = likeness(flat(0.4), flat(0.5))
    assert like.psnr == pytest.approx(20)
    assert like.psnr_term == pytest.approx(0.49998914, abs=1e-8)
    # of flat pictures only the means differ: SSIM = (2 x .4 x .5 + .0001) / (.4^2 + .5^2 + .0001)
    assert like.ssim == like.ssim_term == pytest.approx(0.4001 / 0.4101)


def test_equal_pictures_have_the_most_there_is() -> None:
    """The term's PSNR ends at 10 log10(1 / 1e-6) = 60 dB, above the 40 that count; what is measured has no end."""
    like = likeness(CLEAN, CLEAN)
    assert (like.psnr_term, like.psnr) == (1, MOST_PSNR)
    assert like.ssim == pytest.approx(1)


def test_the_epsilon_of_the_document_counts_where_pictures_are_nearly_equal() -> None:
    """An offset of .001: MSE 1e-6, measured 60 dB; 10 log10(1 / 2e-6) = 56.99. Both are above 40: the term is 1.

    An offset of .01: MSE 1e-4, 10 log10(1 / 1.01e-4) = 39.957 dB of 40.
    """
    assert likeness(flat(0.5), flat(0.501)).psnr_term == 1
    near = likeness(flat(0.5), flat(0.51))
    assert near.psnr == pytest.approx(40)
    assert near.psnr_term == pytest.approx(39.956786 / 40)


def test_the_terms_end_at_0() -> None:
    """Black for white: MSE 1, 10 log10(1 / 1.000001) < 0. A negative picture's SSIM is negative."""
    assert likeness(flat(0.0), flat(1.0)).psnr_term == 0
    negative = likeness(CLEAN, 1 - CLEAN)
    assert negative.ssim < 0 == negative.ssim_term


def test_what_is_measured_is_what_scikit_image_measures() -> None:
    like = likeness(CLEAN, OTHER)
    assert like.psnr == pytest.approx(peak_signal_noise_ratio(CLEAN, OTHER, data_range=1), rel=1e-12)
    ssim = structural_similarity(
        CLEAN, OTHER, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1, channel_axis=-1
    )
    assert like.ssim == like.ssim_term == ssim
    assert like.psnr_term == pytest.approx(like.psnr / 40, abs=1e-4)


def test_ssim_by_its_definition() -> None:
    """One 11 x 11 window with Gaussian weights of sigma 1.5; C1 = .01^2, C2 = .03^2.

    scikit-image leaves out a border of 5, so of 11 x 11 pixels only the middle one counts.
    """
    clean, other = CLEAN[:11, :11, 0].astype(np.float64), OTHER[:11, :11, 0].astype(np.float64)
    bell = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
    weights = np.outer(bell, bell) / bell.sum() ** 2

    def mean(values: np.ndarray) -> float:
        return float((weights * values).sum())

    a, b = mean(clean), mean(other)
    var_a, var_b, both = mean(clean**2) - a**2, mean(other**2) - b**2, mean(clean * other) - a * b
    expected = (2 * a * b + 1e-4) * (2 * both + 9e-4) / ((a**2 + b**2 + 1e-4) * (var_a + var_b + 9e-4))
    like = likeness(*(np.repeat(grey[..., None], 3, -1) for grey in (clean, other)))
    assert like.ssim == pytest.approx(expected)


def test_an_output_is_clipped_and_what_is_no_number_stays_so() -> None:
    assert clipped([[-0.5, 0.25, 1.5]]).tolist() == [[0, 0.25, 1]]
    assert math.isnan(clipped([math.nan])[0])
