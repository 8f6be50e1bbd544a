"""The KL's level: away from the reference at the start, running away, below zero; and what looks alike and is sound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.health.case import Case, Settings
from core.health.examine import examine
from core.health.finding import Finding
from core.health.rules.kl_level import kl_level


def table(kl: Sequence[float], **columns: Sequence[float]) -> Case:
    rows = [
        {
            "step": float(step),
            "update": 1.0,
            "kl": value,
            **{name: values[step - 1] for name, values in columns.items()},
        }
        for step, value in enumerate(kl, 1)
    ]
    return Case(rows=rows)


def named(case: Case) -> dict[str, Finding]:
    return {finding.id: finding for finding in kl_level(case)}


def test_a_start_away_from_the_reference() -> None:
    case = table([1.2, 1.24, 1.22, 1.2])
    (finding,) = kl_level(case)
    assert (finding.id, finding.severity) == ("reference-mismatch", "error")
    assert finding.evidence["kl"] == pytest.approx(1.22)
    trained_before = named(table([0.6, 0.62, 0.61, 0.6]))["reference-mismatch"]
    assert (trained_before.severity, trained_before.confidence) == (
        "info",
        "moderate",
    )  # as far as an adapter that was trained before may be
    assert "learning-rate" in {cause.id for cause in finding.rules_out}
    assert "reference-mismatch" in {one.id for one in examine(case)}
    assert named(table([0.15]))["reference-mismatch"].confidence == "moderate"  # one row decides


def test_only_a_kl_of_the_first_step_was_there_before_any_update() -> None:
    later = table([math.nan, 1.24, 1.22, 1.2])
    rows = [{**later.rows[0], "kl": None}, *later.rows[1:]]
    (finding,) = kl_level(Case(rows=rows))
    assert (finding.id, finding.rules_out) == ("reference-mismatch", ())


def test_a_kl_that_no_two_models_have_may_be_a_few_tokens() -> None:
    (finding,) = kl_level(table([90.0, 120.0, 44.0, 330.0]))
    assert (finding.id, "a few tokens" in finding.summary) == ("reference-mismatch", True)
    assert "a few tokens" not in named(table([1.2, 1.24, 1.22, 1.2]))["reference-mismatch"].summary


def test_filters_that_are_known_are_named() -> None:
    known = Settings(top_p=1.0, top_k=0, min_p=0.1, repetition_penalty=1.2)
    for case in (table([0.6, 0.62, 0.61, 0.6]), averaged(table([0.5, 0.55, 0.5]))):
        plain, filtered = (named(one)["reference-mismatch"] for one in (case, replace(case, settings=known)))
        assert "min_p 0.1, repetition_penalty 1.2" in filtered.summary
        assert "top_p" not in filtered.summary
        assert "min_p" not in plain.summary
        assert filtered.decider is not None
        assert {"top_p=1", "top_k=0", "min_p=0", "repetition_penalty=1"} == set(filtered.decider.overrides)


def averaged(case: Case) -> Case:
    return replace(case, averaged_over=25)


def test_rows_of_many_steps_hint_by_a_kl_that_never_grew() -> None:
    finding = named(averaged(table([0.5, 0.55, 0.5])))["reference-mismatch"]
    assert (finding.severity, finding.confidence) == ("info", "weak")
    assert named(averaged(table([0.1, 0.3, 0.5]))) == {}  # it grew
    assert named(averaged(table([0.1, 0.12, 0.1]))) == {}  # where many sound runs end
    forced = named(averaged(table([3.0, 3.2, 3.1], **{"completions/truncated": [1.0] * 3})))["constrained-sampling"]
    assert (forced.severity, forced.confidence) == ("warning", "moderate")


def test_the_first_and_the_last_value_of_a_kl() -> None:
    finding = named(table([0.002, 8.0]))["kl-runaway"]
    assert (finding.severity, finding.confidence) == ("warning", "weak")
    paid = {"reward/mean": [0.2, 0.6]}
    assert named(table([0.002, 8.0], **paid)) == {}  # the policy was paid for it
    assert named(table([0.01, 0.09])) == {}
    assert named(table([0.002, 8.0, 0.6])) == {}  # a spike


def test_without_step_numbers_the_first_row_need_not_be_the_runs() -> None:
    case = replace(table([0.6, 0.62]), numbered=False)
    finding = named(case)["reference-mismatch"]
    assert (finding.severity, finding.confidence) == ("info", "weak")


@pytest.mark.parametrize(
    "case",
    [
        table([0.0, 0.001, 0.002]),  # begins at its reference
        table([0.0, 0.3, 0.4], learning_rate=[1e-3] * 3),  # a rate that moves so far in two updates
        Case(rows=[{"step": 40.0 + i, "kl": 0.6, "update": 1.0} for i in range(5)]),  # the log begins late
        Case(rows=[{"step": 1.0, "kl": 0.6, "update": 1.0}], averaged_over=10),
    ],
)
def test_no_mismatch(case: Case) -> None:
    assert "reference-mismatch" not in named(case)


def test_constraints_and_cut_off_completions() -> None:
    cut = table([8.0, 8.1, 7.9], **{"completions/truncated": [1.0, 1.0, 0.95]})
    finding = named(cut)["constrained-sampling"]
    assert finding.severity == "error"
    assert "other weights" in finding.summary  # what no column tells apart is named, too
    usual = named(table([8.0, 8.1, 7.9], **{"completions/truncated": [0.1, 0.0, 0.1]}))
    assert set(usual) == {"reference-mismatch"}


GROWING = [0.001, 0.01, 0.05, 0.2, 0.5, 1.0, 2.0, 3.0, 3.5, 4.0]


def test_a_runaway_is_one_that_nothing_pays_for() -> None:
    flat = named(table(GROWING, **{"reward/mean": [0.3] * 10}))["kl-runaway"]
    assert (flat.severity, flat.confidence) == ("warning", "strong")
    assert flat.evidence["late"] == 3.5  # the middle of 3.0, 3.5 and 4.0
    fell = named(table(GROWING, **{"reward/mean": [0.4, 0.4, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1]}))["kl-runaway"]
    assert fell.severity == "error"
    rose = table(GROWING, **{"reward/mean": [0.3, 0.3, 0.35, 0.4, 0.5, 0.5, 0.6, 0.6, 0.7, 0.7]})
    assert named(rose)["kl-runaway"].severity == "info"  # four of ten rows are a nat away: a price, and no fault
    little = [value / 4 for value in GROWING]
    assert "kl-runaway" not in named(
        table(little, **{"reward/mean": [0.3, 0.3, 0.35, 0.4, 0.5, 0.5, 0.6, 0.6, 0.7, 0.7]})
    )


@pytest.mark.parametrize(
    "kl",
    [
        [0.0, 0.0001, 0.001, 0.002, 0.005, 0.01, 0.02, 0.02, 0.02, 0.02],  # grown a thousandfold, and small
        [0.001, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 30.0],  # a spike
        [0.001, 0.01, 0.01, 0.01, 30.0, 0.01, 0.01, 0.01, 0.01, 0.01],
        [0.001, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 4.0, 0.1, 4.0],  # two spikes
        [0.4, 0.4, 0.5, 0.5, 0.5, 0.5, 0.6, 0.6, 0.6, 0.6],  # high, and it stays
    ],
)
def test_no_runaway(kl: list[float]) -> None:
    assert "kl-runaway" not in named(table(kl, **{"reward/mean": [0.3] * 10}))


def test_below_zero() -> None:
    sure = Case(rows=[{"step": 1.0, "kl": -0.01, "update": 1.0}], settings=Settings(kl_estimator="k3"))
    assert (named(sure)["negative-kl"].severity, named(sure)["negative-kl"].confidence) == ("error", "certain")
    unknown = named(table([-0.5, -0.7, -0.6, -0.8]))["negative-kl"]
    assert (unknown.severity, unknown.confidence) == ("warning", "moderate")
    # k1 around zero: -.01, .02, -.02, .015, -.005 has the mean 0 and scatters by .015
    assert named(table([-0.01, 0.02, -0.02, 0.015, -0.005])) == {}
    # the same with a mean of -0.003 and a standard error of 0.009
    assert named(table([-0.02, 0.015, -0.02, 0.02, -0.01])) == {}
    assert named(table([-1e-9, 1e-4, 2e-4])) == {}


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0.34, 0.35, 0.33, 0.36, 0.35, 0.39], "warning strong"),  # 0.05 of the 0.66 that are left to earn
        ([0.34, 0.36, 0.40, 0.45, 0.48, 0.52], None),  # a gain that pays
    ],
)
def test_a_gain_has_to_be_worth_the_price(rewards: list[float], expected: str | None) -> None:
    finding = named(table([0.01, 0.02, 0.1, 0.6, 0.9, 1.1], **{"reward/mean": rewards})).get("kl-runaway")
    assert (f"{finding.severity} {finding.confidence}" if finding else None) == expected


def test_a_shorter_way_counts_where_the_reward_is_no_higher() -> None:
    kl = [0.002, 0.005, 0.02, 0.22, 0.25, 0.3]
    flat, risen = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5, 0.5, 0.51]
    assert named(table(kl, **{"reward/mean": flat}))["kl-runaway"].confidence == "weak"
    assert "kl-runaway" not in named(table([0.005, 0.002, *kl[2:]], **{"reward/mean": risen}))
    assert "kl-runaway" not in named(table(kl))


@pytest.mark.parametrize(
    ("kl", "confidence"),
    [
        ([-0.06, -0.09], "weak"),
        ([-0.002, -0.02, -0.1], "moderate"),
        ([-0.01, -0.02], None),
        ([0.0, -0.0096, -0.0194], "weak"),  # it begins where it has to, and sinks
        ([0.0, -0.0194, -0.0096], None),
        ([0.0, -0.001, -0.002], None),
        ([0.001, -0.0096, -0.0194], None),
        ([-0.002, 0.02, -0.1], None),
    ],
)
def test_few_rows_below_zero(kl: list[float], confidence: str | None) -> None:
    finding = named(table(kl)).get("negative-kl")
    assert (finding.confidence if finding else None) == confidence


SPIKES = [0.0007, 10.98, 0.006, 0.011, 0.003, 0.0027, 25.81, 0.0029, 0.0288, 0.03]


def test_a_kl_that_goes_far_and_comes_back_is_not_of_the_weights() -> None:
    case = table(SPIKES, **{"reward/mean": [0.31, 0.19, 0.41, 0.56, 0.56, 0.53, 0.5, 0.31, 0.44, 0.4]})
    (finding,) = kl_level(case)
    assert (finding.id, finding.severity, finding.confidence) == ("sampler-mismatch", "warning", "moderate")
    assert (finding.evidence["jumps"], finding.evidence["first_step"]) == (2, 2)
    assert "learning-rate" not in {one.id for one in examine(case)}  # it was far after one update, and came back


@pytest.mark.parametrize(
    "kl",
    [
        [0.001, 5.0, 0.002, 0.003, 0.002, 0.001, 0.002, 0.003],  # one spike: the estimator's tail
        [0.001, 0.002, 5.0, 6.0, 0.002, 0.003, 0.002, 0.001, 0.002],  # it stayed for a while
        [0.001, 5.0, 0.002, 0.003, 0.002, 0.001, 0.002, 6.0],  # nothing tells that it came back
        [0.001, 5.0, *[0.002] * 20, 6.0, *[0.002] * 20],  # two of many
        [0.3, 5.0, 0.4, 0.3, 0.3, 6.0, 0.4, 0.3],  # a policy that is far already
    ],
)
def test_spikes_that_say_nothing_of_a_sampler(kl: list[float]) -> None:
    assert "sampler-mismatch" not in named(table(kl))


def test_so_far_away_no_reward_pays() -> None:
    rising = [0.1 + 0.05 * i for i in range(12)]
    near, far = [0.01, 0.05, *[0.8] * 10], [0.01, 0.05, 0.5, 1.0, *[6.0] * 8]
    assert named(table(near, **{"reward/mean": rising})) == {}
    finding = named(table(far, **{"reward/mean": rising}))["kl-runaway"]
    assert (finding.severity, finding.confidence) == ("warning", "moderate")


DOUBLING = [2.0, 2.3, 2.9, 3.5, 4.4, 5.0, 4.6, 5.0]


def test_a_log_that_begins_far_away_and_goes_further_while_the_reward_falls() -> None:
    fell = averaged(table(DOUBLING, **{"reward/mean": [0.7, 1.1, 0.2, -0.2, -0.2, -0.1, -0.3, -0.3]}))
    assert named(fell)["kl-runaway"].severity == "error"  # less than half is left
    for reward in ([0.3] * 8, [0.1 * i for i in range(8)], [0.5, 0.1, 0.6, 0.2, 0.5, 0.1, 0.6, 0.4]):
        assert "kl-runaway" not in named(averaged(table(DOUBLING, **{"reward/mean": reward})))
    near = averaged(table([0.2 * value for value in DOUBLING], **{"reward/mean": [0.7, 0.7, 0.5, 0.3, 0.2, 0.1, 0, 0]}))
    assert "kl-runaway" not in named(near)


SCATTERED = [
    0.0, 0.008, 0.01, 0.04, 0.006, 0.144, 2.05, 0.35, 2.47, 5.19, 0.3, 2.2, 1.3, 0.2, 0.32, 3.5, 0.125, 1.9, 0.5, 0.04,
]  # fmt: skip
STANDS = [0.8, 0.9, 0.85, 0.88] * 5


def test_a_kl_that_scatters_far_away_has_run_away() -> None:
    found = named(table(SCATTERED, **{"reward/mean": STANDS}))
    assert found["kl-runaway"].severity == "warning"
    assert "44% of the rows" in found["kl-runaway"].summary
    (paid,) = kl_level(table(SCATTERED, **{"reward/mean": [0.1 + 0.04 * i for i in range(20)]}))
    assert (paid.severity, paid.confidence) == ("info", "moderate")
    assert "given up for it" in paid.summary


@pytest.mark.parametrize(
    ("kl", "reward"),
    [
        ([value / 3 for value in SCATTERED], STANDS),  # rarely a nat away
        ([0.02, 0.4, 0.5, 0.6, *SCATTERED[4:]], STANDS),  # not at home when it began
        ([*SCATTERED[:8], 0.04], STANDS[:9]),  # too few rows
        ([*SCATTERED, *[0.02] * 10], STANDS * 2),  # and back for good
    ],
)
def test_a_scattered_kl_that_says_little(kl: list[float], reward: list[float]) -> None:
    assert "kl-runaway" not in named(table(kl, **{"reward/mean": reward}))


EXTREME = [0.0, 0.01, 0.02, 0.3, 18.4, 28.3, 48.5, 406.0, 2.3, 0.3, 0.2, 0.7, 2.0, 0.3, 0.7, 1.3]


def test_a_kl_that_no_text_has_is_a_finding_whatever_was_paid() -> None:
    rewards = {"reward/mean": [0.1 + 0.05 * i for i in range(16)]}
    found = named(table(EXTREME, **rewards))["kl-runaway"]
    assert (found.severity, found.confidence) == ("warning", "moderate")
    assert "4 of 16 rows, up to 406" in found.summary
    far = [min(value, 9.0) for value in EXTREME]
    apart = [0.5 if place in (5, 7) else value for place, value in enumerate(EXTREME)]  # as one token can do it
    for paid in (far, apart):
        assert {one.severity for one in kl_level(table(paid, **rewards))} <= {"info"}


@pytest.mark.parametrize(
    ("kl", "reward", "found"),
    [
        ([0.001, 0.025, 0.059, 0.199, 0.458], [0.39, 0.45, 0.45, 0.42, 0.40], True),
        ([0.001, 0.025, 0.199, 0.059, 0.458], [0.39, 0.45, 0.45, 0.42, 0.40], False),  # not in order
        ([0.001, 0.025, 0.059, 0.099, 0.158], [0.39, 0.45, 0.45, 0.42, 0.40], False),  # not far
        ([0.1, 0.12, 0.2, 0.3, 0.458], [0.39, 0.45, 0.45, 0.42, 0.40], False),  # not ten times
        ([0.001, 0.025, 0.059, 0.199, 0.458], [0.39, 0.45, 0.50, 0.60, 0.70], False),  # it was paid
        ([0.001, 0.025, 0.059, 0.199, 0.258], [0.85, 0.87, 0.89, 0.91, 0.93], False),  # a little, step by step
        ([0.001, 0.002, 0.003, 0.004, 0.600], [0.39, 0.45, 0.45, 0.42, 0.39], False),  # one row, which a token can do
        ([0.001, 0.025, 0.059, 0.199, 0.958], [0.39, 0.45, 0.45, 0.42, 0.39], True),
    ],
)
def test_a_kl_that_climbs_over_a_few_rows(kl: list[float], reward: list[float], found: bool) -> None:
    findings = named(replace(table(kl, **{"reward/mean": reward}), averaged_over=25))
    assert ("kl-runaway" in findings) == found
    if found:
        assert (findings["kl-runaway"].severity, findings["kl-runaway"].confidence) == ("warning", "weak")


def test_a_kl_that_no_text_has_on_every_row() -> None:
    rewards = [0.3, 0.3, 0.3, 0.3, 0.3]
    (finding,) = kl_level(replace(table([79.2, 131.2, 45.1, 24.4, 10.0], **{"reward/mean": rewards}), averaged_over=9))
    assert (finding.id, finding.severity) == ("kl-runaway", "warning")
    assert "on 5 of 5 rows, up to 131.2 while" in finding.summary
    some = replace(table([79.2, 131.2, 45.1, 24.4, 1.0], **{"reward/mean": rewards}), averaged_over=9)
    assert "kl-runaway" not in named(some)


@pytest.mark.parametrize(
    ("first", "kls", "excerpt", "found"),
    [
        (200, [1.2, 1.1, 1.3], False, ["kl-runaway"]),
        (1, [1.2, 1.1, 1.3], True, ["kl-runaway"]),
        (200, [1.2, 0.9, 1.3], False, []),
        (200, [1.2], False, ["kl-runaway"]),
        (10, [1.2], False, []),  # a lone row of step 10 may be the mean of the first ten
        (1, [1.2, 1.1, 1.3], False, ["reference-mismatch"]),
    ],
)
def test_a_log_that_begins_far_away(first: int, kls: list[float], excerpt: bool, found: list[str]) -> None:
    """How it came there is not in it: an info, unless the log begins where the run does."""
    told = kl_level(Case(rows=[{"step": first + i, "kl": kl} for i, kl in enumerate(kls)], excerpt=excerpt))
    assert [one.id for one in told] == found
    assert all(one.severity == "info" for one in told if one.id == "kl-runaway")


def test_a_log_that_begins_where_the_run_does_is_no_excerpt() -> None:
    """Stored samples are far from the policy from the start on, by design."""
    rows = [{"step": step, "kl": 1.2} for step in (1, 2, 3)]
    stored = Settings(offline=True)
    assert list(kl_level(Case(rows=rows, settings=stored))) == []
    assert [one.id for one in kl_level(Case(rows=rows, settings=stored, excerpt=True))] == ["kl-runaway"]


def test_three_last_values_around_half_a_nat_are_a_runaway_where_nothing_was_paid() -> None:
    """The lowest of them decides which limit holds: 0.45 is above the one for a reward that stood."""
    kls = [0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.48, 0.55]
    assert "kl-runaway" in named(table(kls, **{"reward/mean": [0.3] * 10}))
