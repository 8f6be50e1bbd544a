"""An engine that does not draw from the policy that is trained, by what other trainers log of it."""

from __future__ import annotations

import pytest

from core.health.case import Case
from core.health.finding import Row
from core.health.rules.sampler_mismatch import sampler_mismatch


def case(**columns: float) -> Case:
    return Case(rows=[{"step": float(step), "update": 1.0, **columns} for step in range(1, 8)])


@pytest.mark.parametrize(
    ("columns", "severity"),
    [
        ({"sampler/prob_gap": 0.06}, "warning"),
        ({"sampler/prob_gap": 0.2}, "error"),
        ({"sampler/correlation": 0.9}, "warning"),
        ({"sampler/correlation": 0.5}, "error"),
        ({"sampler/kl": 0.5}, "error"),
        ({"sampler/masked": 0.9}, "error"),
        ({"sampler/ratio_mean": 0.01}, "warning"),  # of sequences it may be: alone it is no error
        ({"sampler/ratio_mean": 0.01, "sampler/kl": 0.06}, "error"),
        ({"sampler/ratio_mean": 30.0, "sampler/kl": 0.06}, "error"),
    ],
)
def test_two_policies(columns: dict[str, float], severity: str) -> None:
    (finding,) = sampler_mismatch(case(**columns))
    assert (finding.id, finding.severity) == ("sampler-mismatch", severity)
    assert finding.confidence == ("strong" if len(columns) > 1 else "moderate")
    assert all(finding.evidence[name] == value for name, value in columns.items())


def test_two_engines_in_bf16_are_sound() -> None:
    sound = {"sampler/prob_gap": 0.015, "sampler/correlation": 0.995, "sampler/kl": 0.004, "sampler/ratio_mean": 1.01}
    assert sampler_mismatch(case(**sound, **{"sampler/masked": 0.01})) == ()
    assert sampler_mismatch(case(**{"reward/mean": 0.5})) == ()


def test_a_gap_that_grew_is_not_of_the_start() -> None:
    rows = [{"step": float(step), "update": 1.0, "sampler/kl": 0.05 * step} for step in range(1, 12)]
    (grown,) = sampler_mismatch(Case(rows=rows))
    assert grown.rules_out == ()
    (always,) = sampler_mismatch(case(**{"sampler/kl": 0.5}))
    assert [cause.id for cause in always.rules_out] == ["learning-rate"]


@pytest.mark.parametrize(("gaps", "found"), [((0.005, 0.02, 0.1), True), ((0.1, 0.02, 0.005), False)])
def test_of_few_rows_the_last_count(gaps: tuple[float, ...], found: bool) -> None:
    rows = [{"step": float(i), "sampler/prob_gap": gap} for i, gap in enumerate(gaps, 1)]
    assert bool(sampler_mismatch(Case(rows=rows))) == found


def surrogate(losses: list[float], *, kl: float = 0.002, reward: float = 0.15, column: str = "policy/loss") -> Case:
    rows: list[Row] = [
        {"step": float(step), "update": 1.0, column: loss, "kl": kl, "reward/mean": reward}
        for step, loss in enumerate(losses, 1)
    ]
    return Case(rows=rows)


def test_a_policy_loss_that_no_ratio_around_one_gives() -> None:
    spikes = [7.3, 0.01, 0.06, 0.04, 80.4, 0.01, 17.8, 0.4, 32.7, 0.02]
    for column in ("policy/loss", "loss"):
        (finding,) = sampler_mismatch(surrogate(spikes, column=column))
        assert (finding.id, finding.severity, finding.confidence) == ("sampler-mismatch", "warning", "moderate")
        assert (finding.evidence["beyond"], finding.evidence["first_step"]) == (4, 1)
    summed = [loss * (-1) ** (at // 2) for at, loss in enumerate(spikes)]  # over tokens: as large below 0
    assert sampler_mismatch(surrogate(summed)) == ()
    assert sampler_mismatch(surrogate(spikes, reward=25.0)) == ()  # advantages may be as large
    assert sampler_mismatch(surrogate(spikes, kl=0.4)) == ()  # the policy itself moved
    assert sampler_mismatch(surrogate([0.3 * loss for loss in spikes][:6])) == ()  # two rows of six
    assert sampler_mismatch(surrogate([min(loss, 3.0) for loss in spikes])) == ()
