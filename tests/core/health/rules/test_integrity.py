"""Rollout integrity: what rounding explains, and what the pattern of the gaps says."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import inf, nan

import pytest

from core.health.case import Case, Settings
from core.health.examine import examine
from core.health.finding import Finding, Row
from core.health.rules.integrity import (
    drifting_gap,
    evaluation_integrity,
    gaps,
    integrity,
    max_gap,
    rank_correlation,
    rollout_integrity,
    worst_integrity,
)


@pytest.mark.parametrize(
    ("dtype", "temperature", "override", "limit"),
    [
        ("float32", 1.0, None, 1e-4),
        ("float32", 0.25, None, 2e-4),  # 1 / sqrt(T)
        ("float32", 2.0, None, 1e-4),  # but does not shrink above 1
        ("bfloat16", 1.0, None, 0.3),
        ("bfloat16", 0.09, None, 1.0),
        ("bfloat16", 0.15, 0.5, 0.5),
        ("float32", 0.1, 1e-5, 1e-5),
        (None, 1.0, None, 0.3),  # not known, or one that was never measured: the coarsest
        ("float16", 0.09, None, 1.0),
        (None, 1.0, 1e-5, 1e-5),
    ],
)
def test_limits(dtype: str | None, temperature: float, override: float | None, limit: float) -> None:
    assert max_gap(dtype, temperature, override) == pytest.approx(limit)


@pytest.mark.parametrize(
    ("gap", "temperature", "dtype", "found"),
    [
        (3.4e-6, 1.0, "float32", False),  # measured, sound
        (1e-4, 1.0, "float32", False),  # at the limit
        (1.01e-4, 1.0, "float32", True),
        (1.9e-4, 0.25, "float32", False),
        (2.1e-4, 0.25, "float32", True),
        (3.4e-6 / 0.15, 0.15, "float32", False),  # even if rounding grew as 1 / T
        (0.045, 1.0, "bfloat16", False),  # measured, sound
        (0.045 / 0.15, 0.15, "bfloat16", False),
        (2.7, 0.3, "bfloat16", True),  # measured, P30's fault where it is smallest
        (0.31, 1.0, "bfloat16", True),
        (3.0, 1.0, "float32", True),  # measured, P30's fault
        (3.0, 0.15, "bfloat16", True),
        (None, 1.0, "float32", True),  # recorded as "no number"
        (nan, 1.0, "float32", True),
        (inf, 1.0, "float32", True),
    ],
)
def test_thresholds(gap: float | None, temperature: float, dtype: str, found: bool) -> None:
    row = {"step": 5, "rollout/logprob_gap": gap, "temperature": temperature}
    finding = rollout_integrity(row, dtype=dtype)
    assert (finding is not None) == found
    if finding is not None:
        assert (finding.id, finding.severity) == ("rollout-integrity", "error")
        assert finding.evidence["step"] == 5
        json.dumps(finding.as_json(), allow_nan=False)  # what is no number is written in words


def test_no_gap_no_finding() -> None:
    assert rollout_integrity({"step": 1, "temperature": 1.0}, dtype="float32") is None


def test_over_a_table_the_first_is_told_and_the_others_counted() -> None:
    gaps = [9.0, 1e-6, 3.0, 4.0, 1e-6, 5.0]  # row 0 is the evaluation before training: no step
    table = [{"step": step, "rollout/logprob_gap": gap, "temperature": 1.0} for step, gap in enumerate(gaps)]
    finding = worst_integrity(table, dtype="float32")
    assert finding is not None
    assert finding.evidence == {"step": 2, "logprob_gap": 3.0, "limit": 1e-4, "steps": 3}
    assert "2 more of 5 steps" in finding.summary
    assert worst_integrity(table[:2], dtype="float32") is None
    assert worst_integrity(table, dtype="float32", override=6.0) is None


@pytest.mark.parametrize(
    ("above", "sound", "severity"),
    [
        ([1.1e-4], 99, "warning"),  # one of 100, and just above 1e-4
        ([2.1e-4], 1, "error"),  # every other step: not isolated
        ([2.1e-4] * 2, 28, "warning"),
        ([2.1e-4] * 3, 27, "error"),  # three, and a tenth of all
        ([2.1e-4] * 3, 97, "warning"),  # three, but less than a twentieth
        ([2.1e-4] * 5, 95, "error"),
        ([1.9e-4] * 99, 1, "warning"),  # many, but less than twice the limit
        ([1.2e-4, 2.1e-4, 2.2e-4], 0, "error"),  # by their median
        ([0.9e-3], 99, "warning"),
        ([1.1e-3], 99, "error"),  # more than 10 times the limit
        ([None], 99, "error"),
    ],
)
def test_gaps_that_are_few_or_near_the_limit_are_a_warning(
    above: list[float | None], sound: int, severity: str
) -> None:
    values = [*[1e-7] * sound, *above]
    table = [{"step": i, "rollout/logprob_gap": gap, "temperature": 1.0} for i, gap in enumerate(values, start=1)]
    finding = worst_integrity(table, dtype="float32")
    assert finding is not None
    assert (finding.severity, finding.confidence) == (severity, "strong" if severity == "error" else "moderate")
    live = rollout_integrity(table[-1], dtype="float32")  # a guard sees one step alone
    assert live is not None
    assert (live.severity, live.confidence) == ("error", "strong")


def test_of_an_unknown_dtype_the_coarsest_limit_holds_and_nothing_is_strong() -> None:
    table = [{"step": i, "rollout/logprob_gap": gap} for i, gap in enumerate((0.02, 0.29, 0.02), start=1)]
    assert worst_integrity(table, dtype=None) is None
    broken = [{**row, "rollout/logprob_gap": 4.0} for row in table]
    finding, told = worst_integrity(broken, dtype=None), worst_integrity(broken, dtype=None, override=1.0)
    assert finding is not None
    assert (finding.severity, finding.confidence) == ("error", "moderate")
    assert told is not None
    assert told.confidence == "strong"  # who sets the limit knows it


@pytest.mark.parametrize(
    ("gap", "temperature", "found"),
    [(1e-7, 1.0, False), (2e-4, 1.0, True), (1.8e-4, 0.3, False), (None, 1.0, True)],  # 1e-4 / sqrt(0.3) = 1.83e-4
)
def test_an_evaluation_is_looked_at_with_its_own_temperature(
    gap: float | None, temperature: float, found: bool
) -> None:
    row = {"step": 10, "temperature": 1.0, "eval/temperature": temperature, "eval/logprob_gap": gap}
    finding = evaluation_integrity(row, dtype="float32")
    assert (finding is not None) == found
    assert rollout_integrity(row, dtype="float32") is None  # this row says nothing of a training rollout
    assert (worst_integrity([row], dtype="float32") is not None) == found


def test_where_the_clean_forward_is_no_number_either_the_sampler_is_not_blamed() -> None:
    row = {"step": 3, "rollout/logprob_gap": nan, "entropy": nan}
    assert rollout_integrity(row, dtype="float32") is None
    assert rollout_integrity({**row, "entropy": None}, dtype="float32") is None
    assert rollout_integrity({**row, "entropy": 0.3}, dtype="float32") is not None
    assert rollout_integrity({**row, "rollout/logprob_gap": inf, "entropy": 0.3}, dtype="float32") is not None


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


def case(gap: Callable[[int], float], *, entropy: Callable[[int], float] = lambda _: 0.4, steps: int = 40) -> Case:
    rows: list[Row] = [
        {"step": i, "update": 1, "rollout/logprob_gap": gap(i), "entropy": entropy(i)} for i in range(1, steps + 1)
    ]
    return Case(rows=rows, settings=Settings(dtype="bfloat16"))


def test_weights_that_never_arrive() -> None:
    # 0.0067 more with each update: 0.027 to 0.288, under the 0.3 that rounding explains in bfloat16.
    (found,) = drifting_gap(case(lambda step: 0.02 + 0.0067 * step))
    assert (found.id, found.severity, found.confidence) == ("stale-sampler", "warning", "moderate")
    # Medians of 13 steps each: steps 2 to 14 have 0.02 + 0.0067 * 8, steps 28 to 40 0.02 + 0.0067 * 34.
    assert "from 0.074 to 0.25 nats" in found.summary
    assert "or rounding grows" in found.summary


def test_what_stays_or_hardly_grows_is_rounding() -> None:
    assert drifting_gap(case(lambda step: 0.02 + 0.01 * (step % 2))) == ()
    assert drifting_gap(case(lambda step: 0.02 * (1 + step / 20))) == ()  # 1.4 to 2.7: twice
    assert drifting_gap(case(lambda step: 1e-4 * step)) == ()  # to 0.004: a hundredth of the limit
    assert drifting_gap(case(lambda step: 0.003 * step, steps=10)) == ()


def test_what_goes_with_the_entropy_is_no_old_weights() -> None:
    assert drifting_gap(case(lambda step: 0.006 * step, entropy=lambda step: 0.1 * step)) == ()
    assert drifting_gap(case(lambda _: 0.2, entropy=lambda step: 4 / step)) == ()  # surer, and the gap as it was


def test_beyond_the_limit_it_is_another_finding() -> None:
    assert drifting_gap(case(lambda step: 0.01 * step)) == ()
    ids = [one.id for one in examine(case(lambda step: 0.001 * step**1.5))]
    assert ids.count("stale-sampler") == 1
