"""The pattern of the log-prob gap: noise from the start, a mode that heals, weights that stay behind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from core.health.case import Case, Settings
from core.health.finding import Finding, Row
from core.health.rules.integrity import gaps, integrity, rank_correlation

SOUND = 1e-7  # the limit in float32 at temperature 1 is 1e-4


def rows_of(updates: Sequence[int], measured: Sequence[float | None], start: float = SOUND, **more: float) -> list[Row]:
    """The evaluation before step 1, then a step for each update mark and gap."""
    first: Row = {"step": 0, "eval/logprob_gap": start, "eval/temperature": 1.0}
    steps: list[Row] = [
        {"step": i, "update": u, "rollout/logprob_gap": g, "temperature": 1.0, "completions/valid": 1.0, **more}
        for i, (u, g) in enumerate(zip(updates, measured, strict=True), start=1)
    ]
    return [first, *steps]


def found(rows: list[Row], dtype: str | None = "float32", **settings: object) -> Finding | None:
    case = Case(rows=rows, settings=Settings(dtype=dtype, **settings))  # type: ignore[arg-type]
    findings = integrity(case)
    assert len(findings) <= 1
    return findings[0] if findings else None


# Step 3 makes no update, so that step 4 follows none. Gaps are of the rollout, before the step's own update.
UPDATES = [1, 1, 0, 1, 1, 0, 1, 1, 1, 1]
GROWING = [SOUND, 1e-3, 2e-3, 3e-3, 3.5e-3, 4e-3, 6e-3, 7e-3, 8e-3, 9e-3]
HEALING = [SOUND, 2.5, 3.0, SOUND, 2.0, 4.0, SOUND, 2.0, 3.0, 2.0]


def test_a_gap_that_rounding_explains_is_none() -> None:
    assert found(rows_of(UPDATES, [SOUND] * 10)) is None
    assert found([]) is None


def test_old_weights_show_after_the_first_update_and_more_with_each() -> None:
    finding = found(rows_of(UPDATES, GROWING))
    assert finding is not None
    assert (finding.id, finding.severity) == ("stale-sampler", "error")
    # Nine gaps after an update: thirds of 3, medians 2e-3 and 8e-3. Updates before them: 1 2 2 3 4 4 5 6 7, so gaps are
    # in their order but for two ties: rho = 1 - 6 * (4 * 0.25) / (9 * 80) = 0.9917 without the correction for ties.
    assert finding.evidence["first_third"] == 2e-3
    assert finding.evidence["last_third"] == 8e-3
    assert finding.evidence["rank_correlation"] == pytest.approx(0.9917, abs=1e-4)
    assert finding.evidence["broken_after_skip"] == 2  # steps 4 and 7
    assert {"rollout-mode", "scoring-noise"} == {one.id for one in finding.rules_out}


STAYING = [SOUND, *[2e-3] * 9]


def test_a_gap_that_stays_without_an_update_is_of_weights_that_are_so_many_updates_old() -> None:
    finding = found(rows_of(UPDATES, STAYING))
    assert finding is not None
    assert (finding.id, finding.confidence) == ("stale-sampler", "strong")
    assert "on 2 of 2 after a skipped update too" in finding.summary


@pytest.mark.parametrize("gaps_", [GROWING[:1] + GROWING[:0:-1], STAYING])
def test_a_gap_that_shrinks_or_stays_proves_no_old_weights_where_every_step_made_an_update(gaps_: list[float]) -> None:
    finding = found(rows_of([1] * 10, gaps_))
    assert finding is not None
    assert finding.id == "rollout-integrity"


def test_a_single_step_without_update_needs_some_growth_beside_it() -> None:
    # Ranks of 2 1 4 3 6 5 (updates 1 1 2 3 4 5: 1.5 1.5 3 4 5 6) differ by 0.5 -0.5 1 -1 1 -1: about 1 - 6 * 4.5 / 210.
    once = [1, 0, 1, 1, 1, 1, 1]
    rising = [SOUND, 2e-3, 1e-3, 4e-3, 3e-3, 6e-3, 5e-3]
    finding = found(rows_of(once, rising))
    assert finding is not None
    assert (finding.id, finding.confidence) == ("stale-sampler", "moderate")
    assert finding.evidence["rank_correlation"] == pytest.approx(0.87, abs=0.02)
    plain = found(rows_of(once, [SOUND, *[2e-3] * 6]))
    assert plain is not None
    assert plain.id == "rollout-integrity"


def test_growth_is_measured_in_units_of_the_entropy() -> None:
    # Alone the gaps fall; each is its step's number of updates times 1e-3 times the entropy.
    entropies = [1.0, 0.9, 0.8, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05]
    rows = rows_of([1] * 10, [SOUND, *(1e-3 * i * entropies[i] for i in range(1, 10))])
    told = [{**row, "entropy": h} for row, h in zip(rows[1:], entropies, strict=True)]
    finding, plain = found([rows[0], *told]), found(rows)
    assert finding is not None
    assert plain is not None
    assert (finding.id, plain.id) == ("stale-sampler", "rollout-integrity")


def test_where_the_updates_forward_agrees_with_the_sampler_its_weights_are_not_old() -> None:
    rows = [{**row, "policy/ratio_max": 1.0} for row in rows_of(UPDATES, GROWING)]
    finding = found(rows, updates_per_rollout=1, lora_dropout=0.0)
    assert finding is not None
    assert finding.id == "rollout-integrity"


@pytest.mark.parametrize(
    ("first", "last", "severity"),
    [
        (2.0e-4, 5.6e-4, "warning"),  # thirds' medians 2.45e-4 and 5.15e-4: 5 times the limit, and grown 2.1 times
        (2.0e-4, 10.8e-4, "error"),  # 3.1e-4 and 9.7e-4: grown 3.1 times
        (6.0e-4, 12.0e-4, "error"),  # 6.75e-4 and 11.25e-4: more than 10 times the limit
    ],
)
def test_a_smooth_drift_near_the_limit_is_a_warning(first: float, last: float, severity: str) -> None:
    drift = [SOUND, *(first + (last - first) * i / 8 for i in range(9))]
    finding = found(rows_of([1] * 10, drift))
    assert finding is not None
    assert (finding.id, finding.severity) == ("stale-sampler", severity)
    assert (finding.confidence == "strong") == (severity == "error")
    assert ("near the limit" in finding.summary) == (severity == "warning")


def test_where_the_dtype_is_not_known_the_coarsest_limit_holds() -> None:
    assert found(rows_of(UPDATES, [0.02] * 10, start=0.02), dtype=None) is None
    assert found(rows_of(UPDATES, GROWING), dtype=None) is None
    for gaps_, start, id_ in (
        ([1.0] * 10, 1.0, "scoring-noise"),
        ([SOUND, *[0.7 * i for i in range(1, 10)]], SOUND, "stale-sampler"),
        (HEALING, SOUND, "rollout-integrity"),
    ):
        finding, known = found(rows_of(UPDATES, gaps_, start), dtype=None), found(rows_of(UPDATES, gaps_, start))
        assert finding is not None
        assert known is not None
        assert (finding.id, finding.confidence, known.confidence) == (id_, "moderate", "strong")


def test_one_of_many_gaps_just_above_the_limit_is_a_warning() -> None:
    finding = found(rows_of([1] * 100, [*[2e-6] * 49, 1.1e-4, *[2e-6] * 50]))
    assert finding is not None
    assert (finding.id, finding.severity, finding.confidence) == ("rollout-integrity", "warning", "moderate")
    assert "on 1 of 100 steps" in finding.summary


def test_a_gap_that_a_step_without_update_heals_is_a_mode() -> None:
    finding = found(rows_of(UPDATES, HEALING))
    assert finding is not None
    assert finding.id == "rollout-integrity"
    assert finding.evidence["broken_after_update"] == finding.evidence["after_update"] == 7
    assert (finding.evidence["after_skip"], finding.evidence["broken_after_skip"]) == (2, 0)
    assert "stale-sampler" in {one.id for one in finding.rules_out}
    assert "on 0 of 2 after a skipped one" in finding.summary


def test_noise_is_there_before_any_update() -> None:
    finding = found(rows_of(UPDATES, [1e-2] * 10, start=1e-2))
    assert finding is not None
    assert finding.id == "scoring-noise"
    assert finding.confidence == "strong"  # the evaluation and step 1
    assert {"stale-sampler", "rollout-mode"} <= {one.id for one in finding.rules_out}


def test_noise_near_the_limit_is_a_warning() -> None:
    finding = found(rows_of(UPDATES, [1.5e-4] * 10, start=1.5e-4))
    assert finding is not None
    assert (finding.id, finding.severity, finding.confidence) == ("scoring-noise", "warning", "moderate")


def test_a_sound_start_and_noise_later_is_no_noise_of_the_scoring() -> None:
    finding = found(rows_of(UPDATES, [1e-2] * 10))  # the evaluation agreed, step 1 did not
    assert finding is not None
    assert finding.id == "rollout-integrity"


def test_collapsed_text_from_the_start_is_no_noise() -> None:
    finding = found(rows_of(UPDATES, [3.0] * 10, start=3.0, **{"completions/valid": 0.0}))
    assert finding is not None
    assert finding.id == "rollout-integrity"


@pytest.mark.parametrize(
    ("ratio", "dropout", "said"),
    [
        (1.0, 0.0, "it is the clean scoring that is noisy"),
        (1.3, 0.0, "the update's forward does not agree"),
        (1.0, 0.05, "the scoring is noisy (dropout), or"),  # dropout moves the update's ratio by itself
    ],
)
def test_the_updates_ratio_tells_whose_noise_it_is(ratio: float, dropout: float, said: str) -> None:
    rows = rows_of(UPDATES, [1e-2] * 10, start=1e-2, **{"policy/ratio_max": ratio})
    finding = found(rows, updates_per_rollout=1, lora_dropout=dropout)
    assert finding is not None
    assert said in finding.summary


def test_what_is_no_number_is_broken_and_nothing_more_is_read_into_it() -> None:
    finding = found(rows_of(UPDATES, [SOUND, *[None] * 9]))
    assert finding is not None
    assert (finding.id, finding.evidence["logprob_gap"]) == ("rollout-integrity", "NaN")


def test_gaps_know_what_had_happened_before_them() -> None:
    seen = gaps(Case(rows=rows_of([1, 0, 1], [SOUND, 1.0, SOUND]), settings=Settings(dtype="float32")))
    assert [(one.step, one.updates, one.after_update, one.broken) for one in seen] == [
        (0, 0, False, False),
        (1, 0, False, False),
        (2, 1, True, True),
        (3, 1, False, False),
    ]


@pytest.mark.parametrize(
    ("xs", "ys", "rho"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [30, 20, 10], -1.0),
        ([1, 2, 3], [10, 30, 20], 0.5),  # 1 - 6 * (0 + 1 + 1) / (3 * 8)
        ([1, 1, 1], [1, 2, 3], 0.0),
    ],
)
def test_rank_correlation(xs: list[float], ys: list[float], rho: float) -> None:
    assert rank_correlation(xs, ys) == pytest.approx(rho)
