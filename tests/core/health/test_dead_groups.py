"""Dead groups: how many, against chance, of which kind, and what would find live ones."""

from __future__ import annotations

import random

import pytest

from core.health.case import Case, Sample, Settings
from core.health.finding import Finding, Row
from core.health.rules.groups import Contrast, contrast, dead_groups, groups_of, yes_or_no


def dead(*shares: float | None) -> list[Row]:
    return [{"step": 0, "groups/dead": 1.0}, *({"step": i, "groups/dead": s} for i, s in enumerate(shares, 1))]


@pytest.mark.parametrize(
    ("shares", "found"),
    [
        ([0.0] * 10, None),
        ([0.5] * 10, None),  # half of them is P = p^K + (1-p)^K at K = 2: not yet "most"
        ([1.0] * 6 + [0.0] * 4, 0.6),
        ([0.51] * 20, 0.51),
        ([1.0] * 9, None),  # nine steps say nothing
        ([1.0] * 9 + [None] * 5, None),
        ([], None),
    ],
)
def test_dead_groups(shares: list[float | None], found: float | None) -> None:
    findings = dead_groups(Case(rows=dead(*shares)))
    if found is None:
        assert findings == ()
    else:
        (finding,) = findings
        assert (finding.id, finding.severity) == ("dead-groups", "warning")
        assert finding.evidence == {"share": pytest.approx(found), "steps": len(shares)}


def test_a_row_that_stands_for_ten_steps() -> None:
    (finding,) = dead_groups(Case(rows=dead(0.8, 0.6), averaged_over=10))
    assert finding.evidence == {"share": pytest.approx(0.7), "steps": 20}


def samples(rates: list[float], *, steps: int, prompts: int, size: int, seed: int = 0) -> tuple[Sample, ...]:
    """Rewards of 0 and 1, each prompt with a pass rate drawn from `rates`."""
    drawn = random.Random(seed)
    found = []
    for step in range(1, steps + 1):
        for prompt in range(prompts):
            rate = drawn.choice(rates)
            found += [
                Sample(step=step, group=f"p{step}-{prompt}", reward=float(drawn.random() < rate)) for _ in range(size)
            ]
    return tuple(found)


def of(rates: list[float], *, steps: int = 60, prompts: int = 4, size: int = 4, **settings: object) -> Finding | None:
    drawn = samples(rates, steps=steps, prompts=prompts, size=size)
    found = dead_groups(Case(rows=[], samples=drawn, settings=Settings(num_generations=size, **settings)))  # type: ignore[arg-type]
    return found[0] if found else None


def test_prompts_that_are_alike_have_the_dead_groups_of_chance() -> None:
    # Pass rate 0.9, K = 4: 0.9^4 + 0.1^4 = 65.6 % dead, all right.
    finding = of([0.9])
    assert finding is not None
    assert finding.evidence["share"] == pytest.approx(0.656, abs=0.07)  # 240 groups: se 0.03
    assert finding.evidence["expected"] == pytest.approx(0.656, abs=0.07)
    assert abs(float(finding.evidence["excess"])) < 0.04  # type: ignore[arg-type]
    assert float(finding.evidence["p"]) > 0.001  # type: ignore[arg-type]


def test_prompts_that_are_always_or_never_solved_are_no_chance() -> None:
    # Half always, half never: all groups dead; dealt at random 4 of 16 equal ones would be rare.
    finding = of([1.0, 0.0])
    assert finding is not None
    assert finding.evidence["share"] == 1.0
    assert float(finding.evidence["p"]) < 1e-9  # type: ignore[arg-type]
    assert float(finding.evidence["excess"]) > 0.5  # type: ignore[arg-type]
    assert finding.evidence["dead_right"] == pytest.approx(0.5, abs=0.12)
    assert "too easy or too hard" in finding.advice
    assert finding.suggest == ()  # likeness 1: no size helps, nor do refills


@pytest.mark.parametrize(("rate", "word"), [(0.95, "leave solved prompts out"), (0.05, "easier prompts")])
def test_all_right_and_all_wrong_are_told_apart(rate: float, word: str) -> None:
    finding = of([rate])
    assert finding is not None
    assert word in finding.advice
    right = float(finding.evidence["dead_right"]) / float(finding.evidence["share"])  # type: ignore[arg-type]
    assert right > 0.9 if rate > 0.5 else right < 0.1


def test_one_text_over_and_over_is_no_matter_of_prompts() -> None:
    texts = ("same", "same")
    same = tuple(
        Sample(step=step, group="p", text=text, reward=float(step % 2)) for step in range(1, 41) for text in texts
    )
    (finding,) = dead_groups(Case(rows=[], samples=same))
    assert finding.evidence["one_text"] == 1.0
    assert "temperature" in finding.advice
    different = tuple(Sample(step=one.step, group="p", text=str(i), reward=one.reward) for i, one in enumerate(same))
    (finding,) = dead_groups(Case(rows=[], samples=different))
    assert finding.evidence["one_text"] == 0.0
    assert "temperature" not in finding.advice
    # Texts of every second group are known: half of all groups are one text over and over, not two thirds.
    half = tuple(
        Sample(step=one.step, group="p", text=one.text if one.step % 4 < 2 else None, reward=one.reward) for one in same
    )
    (finding,) = dead_groups(Case(rows=[], samples=half))
    assert finding.evidence["one_text"] == 0.5
    assert "temperature" not in finding.advice


def test_what_larger_groups_and_refills_would_give() -> None:
    # Pass rate 0.9: K = 8 has 0.43 dead groups, so that half of them teach; at 0.656 dead, 1 / 0.344 = 2.9 samplings.
    # Refills are not suggested: they make steps alike, and a completion teaches no more.
    finding = of([0.9])
    assert finding is not None
    assert finding.evidence["dead_at_8"] == pytest.approx(0.43, abs=0.12)
    assert finding.evidence["samplings_per_live_group"] == pytest.approx(2.9, abs=0.7)
    assert finding.evidence["dead_at_pass_rate_half"] == pytest.approx(2 / 16)
    assert finding.suggest == ("num_generations=8",)
    drawn_in_advance = of([0.9], offline=True)
    assert drawn_in_advance is not None
    assert drawn_in_advance.suggest == ()


def test_prompts_that_differ_are_an_info_where_fewer_than_half_are_dead() -> None:
    finding = of([1.0, 0.5, 0.5, 0.5], size=8)  # a quarter always solved: 25 % dead, 0.8 % of the rest
    assert finding is not None
    assert finding.severity == "info"
    assert of([0.5], size=8) is None
    assert of([0.6], size=4) is None  # 15 % dead, all of it chance


def test_refilled_groups_only_cost_samples() -> None:
    finding = of([0.9], dynamic_sampling=True)
    assert finding is not None
    assert finding.severity == "info"
    assert "p" not in finding.evidence  # a step ends when enough groups are live: chance would deal otherwise
    assert finding.suggest == ()
    assert of([1.0, 0.5, 0.5, 0.5], size=8, dynamic_sampling=True) is None


def test_no_size_is_suggested_where_prompts_are_at_fault() -> None:
    # Two thirds of the prompts always or never solved, the others half of the time, K = 2: 83 % dead, half by chance.
    # No size makes a live group of a prompt that is always or never solved: the advice is which prompts to ask.
    finding = of([1.0, 0.0, 0.5], size=2)
    assert finding is not None
    assert (finding.severity, finding.suggest) == ("warning", ())
    assert "choose them by their pass rate" in finding.advice
    assert of([0.9], size=4).suggest == ("num_generations=8",)  # type: ignore[union-attr]


def test_a_policy_without_entropy_is_not_the_prompts_fault() -> None:
    rows: list[Row] = [
        {"step": i, "groups/dead": 0.9, "reward/mean": 0.5, "entropy": 0.4 if i <= 5 else 0.02} for i in range(1, 31)
    ]
    (finding,) = dead_groups(Case(rows=rows))
    assert (finding.evidence["entropy_start"], finding.evidence["entropy_last"]) == (pytest.approx(0.4), 0.02)
    assert "entropy fell from 0.4 to 0.02" in finding.summary
    assert "temperature" in finding.advice
    (finding,) = dead_groups(Case(rows=[{**row, "entropy": 0.05} for row in rows]))
    assert "entropy" not in finding.summary


def test_only_the_stage_that_the_settings_are_of() -> None:
    rows: list[Row] = [{"step": i, "stage": i > 20, "groups/dead": float(i <= 20)} for i in range(1, 41)]
    assert dead_groups(Case(rows=rows, settings=Settings(stage=1))) == ()
    assert dead_groups(Case(rows=rows, settings=Settings(stage=0)))[0].evidence["share"] == 1.0
    pairs = [Sample(step=i, group=str(i), reward=float(i > 20 and n)) for i in range(1, 41) for n in range(2)]
    assert dead_groups(Case(rows=rows, samples=tuple(pairs), settings=Settings(stage=1))) == ()


def test_one_group_a_step_is_looked_at_over_steps() -> None:
    alike = contrast(Case(rows=[]), [], groups_of(samples([0.7], steps=100, prompts=1, size=4)))
    differ = contrast(Case(rows=[]), [], groups_of(samples([1.0, 0.2], steps=100, prompts=1, size=4)))
    assert alike is not None
    assert differ is not None
    assert (alike.units, differ.units) == (20, 20)  # five steps together
    assert alike.p > 0.001
    assert differ.p < 1e-6


def test_p_grows_the_other_way() -> None:
    assert Contrast(expected=0.5, excess=0.1, se=0.05, units=50).p == pytest.approx(0.02275, abs=1e-5)  # two se
    assert Contrast(expected=0.5, excess=-0.1, se=0.05, units=50).p == pytest.approx(0.97725, abs=1e-5)
    assert Contrast(expected=0.5, excess=0.1, se=0.0, units=50).p == 0.0
    assert Contrast(expected=1.0, excess=0.0, se=0.0, units=50).p == 1.0


def trl_rows(mean: float, dead_share: float, std: float | None = None) -> list[Row]:
    spread = (mean * (1 - mean)) ** 0.5 if std is None else std
    return [
        {"step": step, "reward/mean": mean, "reward/std": spread, "groups/dead": dead_share + (0.01 if step % 2 else 0)}
        for step in range(1, 31)
    ]


def test_rows_of_yes_or_no_rewards_are_enough() -> None:
    # p = 0.5, K = 8: chance has 0.8 %, and 70 % are dead. At most 15 of 100 groups are live and half right each:
    # right = 0.5 - 0.3 / 2 = 0.35 of all groups, the other 0.35 wrong.
    (finding,) = dead_groups(Case(rows=trl_rows(0.5, 0.7), settings=Settings(num_generations=8)))
    assert finding.evidence["expected"] == pytest.approx(2 / 256)
    assert float(finding.evidence["p"]) < 1e-9  # type: ignore[arg-type]
    assert finding.evidence["dead_right"] == pytest.approx(0.35, abs=0.01)
    # p = 0.1: 0.9^8 + 0.1^8 = 43 % are chance; of 60 % dead at most none is right.
    (finding,) = dead_groups(Case(rows=trl_rows(0.1, 0.6), settings=Settings(num_generations=8)))
    assert finding.evidence["expected"] == pytest.approx(0.430, abs=1e-3)
    assert finding.evidence["dead_right"] == 0.0


def test_rewards_in_between_are_not_taken_for_yes_or_no() -> None:
    assert yes_or_no(trl_rows(0.5, 0.7))
    assert yes_or_no(trl_rows(0.5, 0.7, std=0.5 * (16 / 15) ** 0.5))  # divided by n - 1 of 16
    assert not yes_or_no(trl_rows(0.5, 0.7, std=0.3))  # 0.09 against 0.25
    assert not yes_or_no(trl_rows(1.5, 0.7, std=0.3))
    assert not yes_or_no(trl_rows(0.0, 1.0))  # all equal: of how many levels nobody knows
    (finding,) = dead_groups(Case(rows=trl_rows(0.5, 0.7, std=0.3), settings=Settings(num_generations=8)))
    assert set(finding.evidence) == {"share", "steps"}
