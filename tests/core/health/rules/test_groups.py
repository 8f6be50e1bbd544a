"""Groups out of samples, dead groups against chance, and groups whose size alone decides the advantages."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from core.health.case import Case, Sample, Settings
from core.health.dataset import PassRates
from core.health.examine import examine
from core.health.finding import Finding, Row
from core.health.rules.groups import (
    Contrast,
    Group,
    batch_std,
    contrast,
    dead_groups,
    dead_share,
    dealt,
    groups_of,
    level_shares,
    likeness_of,
    small_groups,
    yes_or_no,
)


def group(*levels: float, step: int = 1) -> Group:
    return Group(step=step, levels=levels, texts=0)


def sample(step: int, of: str | None, reward: float | None, text: str | None = None) -> Sample:
    return Sample(step=step, group=of, reward=reward, text=text)


def test_groups_of_samples() -> None:
    samples = [
        *(sample(1, "a", reward, text) for reward, text in ((0.1 + 0.2, "x"), (0.3, "y"))),  # equal to nine digits
        *(sample(1, "b", reward, "z") for reward in (0.0, 1.0)),
        *(sample(2, "a", reward) for reward in (1.0, 1.0)),  # the prompt again: another group
        *(sample(2, "c", reward) for reward in (1.0, None)),  # a reward is missing
        *(sample(3, "d", reward) for reward in (1.0, 1.0, 1.0)),  # of another size
        sample(3, None, 1.0),
    ]
    found = groups_of(samples)
    assert [(one.step, one.levels, one.texts, one.dead) for one in found] == [
        (1, (0.3, 0.3), 2, True),
        (1, (0.0, 1.0), 1, False),
        (2, (1.0, 1.0), 0, True),
    ]
    assert level_shares(found) == {0.3: 2 / 6, 0.0: 1 / 6, 1.0: 3 / 6}
    assert groups_of([]) == []


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        # Two groups of two out of 1 1 0 0: C(2, 2) + C(2, 2) of the C(4, 2) = 6 pairs are equal.
        ([group(1, 1), group(0, 0)], 2 / 6),
        ([group(1, 0), group(1, 0)], 2 / 6),  # how they were dealt does not matter
        ([group(1, 1), group(1, 1)], 1.0),
        ([group(1, 1), group(1, 0)], 3 / 6),  # C(3, 2)
        ([group(1, 0.5), group(0.2, 0)], 0.0),
        ([group(1, 1)], 1.0),  # one group alone says nothing
    ],
)
def test_the_share_that_dealing_gives(groups: list[Group], expected: float) -> None:
    assert dealt(groups) == pytest.approx(expected)


def test_prompts_that_are_alike_have_as_many_as_dealing_gives() -> None:
    """Unbiased whatever the pass rate of a step: the mean of dead - dealt over steps is 0."""
    drawn, more = random.Random(0), []
    for _ in range(4000):
        rate = drawn.choice([0.1, 0.5, 0.9])  # steps differ, prompts of a step do not
        step = [group(*(float(drawn.random() < rate) for _ in range(4))) for _ in range(3)]
        more.append(sum(one.dead for one in step) / 3 - dealt(step))
    assert sum(more) / len(more) == pytest.approx(0.0, abs=0.012)  # sd 0.24 over sqrt(4000), three of them


@pytest.mark.parametrize(
    ("shares", "size", "likeness", "expected"),
    [
        ([0.5, 0.5], 2, 0.0, 0.5),  # p^2 + (1 - p)^2
        ([0.5, 0.5], 8, 0.0, 2 / 256),
        ([0.2, 0.3, 0.5], 2, 0.0, 0.04 + 0.09 + 0.25),
        ([0.5, 0.5], 2, 0.5, 0.75),  # the pair is of one mind half of the time: 0.5 + 0.5 x 0.5
        ([1.0], 8, 0.5, 1.0),
    ],
)
def test_dead_share(shares: list[float], size: int, likeness: float, expected: float) -> None:
    assert dead_share(shares, size, likeness) == pytest.approx(expected)


def test_of_two_levels_it_is_the_beta_law() -> None:
    assert dead_share([0.3, 0.7], 8, 0.4) == pytest.approx(PassRates(mean=0.3, correlation=0.4).dead(8))


def test_likeness_is_found_again() -> None:
    shares = [0.2, 0.3, 0.5]
    for likeness in (0.05, 0.4, 0.9):
        assert likeness_of(shares, 8, dead_share(shares, 8, likeness)) == pytest.approx(likeness, abs=1e-6)
    assert likeness_of(shares, 8, dead_share(shares, 8)) == 0.0
    assert likeness_of(shares, 8, 0.0) == 0.0  # fewer than chance gives


def dead(*shares: float | None) -> list[Row]:
    return [{"step": 0, "groups/dead": 1.0}, *({"step": i, "groups/dead": s} for i, s in enumerate(shares, 1))]


@pytest.mark.parametrize(
    ("shares", "found"),
    [
        ([0.0] * 10, None),
        ([0.5] * 10, None),  # half of them is P = p^K + (1-p)^K at K = 2: not yet "most"
        ([1.0] * 6 + [0.0] * 4, 0.6),
        ([0.51] * 20, 0.51),
        ([1.0] * 9 + [0.0], 0.9),
        ([1.0, 0.9, 0.0], None),  # three steps, one of them live: chance
        ([0.8], None),
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


@pytest.mark.parametrize(
    ("shares", "confidence"),
    [
        ([0.9, 0.8, 0.9, 1.0, 0.9], "moderate"),  # all five have most of their groups dead
        ([0.6] * 3, "moderate"),
        ([0.9, 1.0], "weak"),
        ([0.9, 0.9, 0.5], None),
        ([0.89], None),
    ],
)
def test_few_rows_say_it_where_all_of_them_do(shares: list[float | None], confidence: str | None) -> None:
    findings = dead_groups(Case(rows=dead(*shares)))
    assert [(one.severity, one.confidence) for one in findings] == ([("warning", confidence)] if confidence else [])


@pytest.mark.parametrize(
    ("k", "share", "found"), [(8, 0.46, True), (8, 0.35, False), (4, 0.46, True), (3, 0.46, False), (None, 0.46, False)]
)
def test_large_groups_are_not_dead_by_chance(k: int | None, share: float, found: bool) -> None:
    case = Case(rows=dead(*[share] * 20), settings=Settings(num_generations=k))
    assert [one.severity for one in dead_groups(case)] == (["info"] if found else [])
    ours = Case(rows=case.rows, settings=case.settings, stages={"rl": "grpo"})
    assert dead_groups(ours) == ()


@pytest.mark.parametrize("column", ["reward/group_std", "reward/std", "advantage/std_all", "advantage/max_abs"])
def test_a_spread_of_0_tells_of_dead_groups(column: str) -> None:
    """Six rows of ten without any spread: 0.6 of the groups at least."""
    rows: list[Row] = [{"step": i, column: 0.0 if i <= 6 else 0.4} for i in range(1, 11)]
    (finding,) = dead_groups(Case(rows=rows))
    assert finding.evidence["share"] == pytest.approx(0.6)
    assert dead_groups(Case(rows=[{**row, column: 0.4} for row in rows])) == ()


def batch(std: float, **columns: float) -> list[Row]:
    return [{"step": i, "reward/std": std, **columns} for i in range(1, 4)]


def test_a_batch_deviation_beside_dead_groups() -> None:
    for columns in ({"groups/dead": 1.0}, {"reward/group_std": 0.0}):
        (finding,) = batch_std(Case(rows=batch(0.4, **columns)))
        assert (finding.id, finding.severity, finding.confidence) == ("batch-std", "info", "certain")
        assert finding.evidence["reward_std_max"] == 0.4
    assert batch_std(Case(rows=batch(0.0, **{"groups/dead": 1.0}))) == ()
    assert batch_std(Case(rows=batch(0.4, **{"groups/dead": 0.9}))) == ()  # some groups live: nothing is odd
    assert batch_std(Case(rows=batch(0.4, **{"groups/dead": 1.0}), settings=Settings(baseline="batch"))) == ()
    assert "dead-groups" in {one.id for one in examine(Case(rows=batch(0.4, **{"groups/dead": 1.0})))}


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


Z_SCORE = Settings(num_generations=2, baseline="group", scale_rewards="group", ddof=0, eps=1e-8)


def case(settings: Settings, *steps: Row) -> Case:
    return Case(rows=[{"step": i, **row} for i, row in enumerate(steps, 1)], settings=settings)


STEPS: tuple[Row, ...] = ({"groups/dead": 0.5}, {"groups/dead": 1.0}, {})


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({}, "warning"),
        ({"ddof": 1}, "warning"),
        ({"ddof": None}, "warning"),
        ({"eps": 1e-4}, "warning"),  # TRL's and ours
        ({"transform": "rank"}, "warning"),  # the ranks of two, z-scored
        ({"num_generations": 3}, "info"),
        ({"num_generations": 4}, None),
        ({"num_generations": 8}, None),
        ({"num_generations": None}, None),
        ({"scale_rewards": "none"}, None),
        ({"scale_rewards": "batch"}, None),
        ({"scale_rewards": None}, None),  # nothing is known of it
        ({"baseline": "leave_one_out"}, None),
        ({"std_floor": 0.1}, None),  # a small difference has a small advantage again
        ({"eps": 0.1}, None),
    ],
)
def test_when(change: dict[str, object], severity: str | None) -> None:
    found = small_groups(case(replace(Z_SCORE, **change), *STEPS))  # type: ignore[arg-type]
    assert [(one.id, one.severity, one.confidence) for one in found] == (
        [("small-groups", severity, "certain")] if severity else []
    )


@pytest.mark.parametrize(
    ("ddof", "size", "words"),
    [
        # rewards 1 and 0: mean 0.5, deviations 0.5; std sqrt((0.25 + 0.25) / 2) = 0.5, or sqrt(0.5 / 1) = 0.7071
        (0, 1.0, "0 or ±1,"),
        (1, 0.7071, "0 or ±0.7071,"),
        (None, None, "0 or ±1 (or ±0.7071),"),
    ],
)
def test_the_size_of_an_advantage_of_two(ddof: int | None, size: float | None, words: str) -> None:
    (found,) = small_groups(case(replace(Z_SCORE, ddof=ddof), *STEPS))
    assert found.evidence.get("size") == (None if size is None else pytest.approx(size, abs=1e-4))
    assert words in found.summary
    assert found.evidence["dead"] == 0.75  # of the two steps that say it
    assert found.evidence["dead_at_pass_rate_half"] == 0.5  # both right or both wrong: 1/4 + 1/4
    assert found.suggest == ("num_generations=8",)
    assert found.decider is not None
    assert found.decider.expects == ("groups/dead < 0.75",)


@pytest.mark.parametrize(("seen", "found"), [(1.0, True), (0.99, True), (0.0, True), (0.6, False), (1.2, False)])
def test_advantages_of_another_size_were_made_otherwise(seen: float, found: bool) -> None:
    assert bool(small_groups(case(Z_SCORE, {"advantage/max_abs": 0.0}, {"advantage/max_abs": seen}))) == found


def test_a_run_without_a_step_has_no_advantages() -> None:
    assert small_groups(case(Z_SCORE)) == ()


def test_it_is_not_the_cause_where_the_rollout_is() -> None:
    """An update, the collapse it leaves, and so on: steps heal without an update (test_rollout_mode)."""
    tied: tuple[Row, ...] = ({"update": 1, "completions/valid": 0.8}, {"update": 0, "completions/valid": 0.0}) * 20
    (found,) = small_groups(case(Z_SCORE, *tied, {"update": 0, "completions/valid": 0.8}))
    assert "not what made the steps collapse" in found.summary
    assert found.evidence["explains_the_collapse"] == "no: see rollout-mode"
    (alone,) = small_groups(case(Z_SCORE, *STEPS))
    assert "collapse" not in alone.summary
    assert "explains_the_collapse" not in alone.evidence


def test_one_report_asks_for_one_size() -> None:
    # Pass rate 0.95, alike: 90.5 % of the pairs are dead. 0.95^8 + 0.05^8 = 66 %, 0.95^16 = 44 %: half teach at 16.
    row: Row = {"groups/dead": 0.905, "reward/mean": 0.95, "reward/std": (0.95 * 0.05) ** 0.5}
    both = case(Z_SCORE, *[row] * 20)
    (dead,), (small,) = dead_groups(both), small_groups(both)
    assert small.suggest == dead.suggest == ("num_generations=16",)
    assert small.decider is not None
    assert small.decider.overrides == small.suggest
    assert (dead.severity, small.severity) == ("warning", "info")  # one warning for what is one weakness
    (alone,) = small_groups(case(Z_SCORE, *STEPS))
    assert alone.suggest == ("num_generations=8",)
    assert alone.severity == "warning"


def test_a_share_that_grows_over_a_few_rows_is_a_hint() -> None:
    (finding,) = dead_groups(Case(rows=dead(0.0, 0.625, 0.75, 0.75)))
    assert (finding.severity, finding.confidence) == ("info", "weak")
    assert dead_groups(Case(rows=dead(0.75, 0.75, 0.7, 0.0))) == ()


@pytest.mark.parametrize(
    ("norms", "found"),
    [
        ([0.0006] * 8 + [0.2] * 4, True),  # the KL's gradient, and now and then a live group's
        ([0.2] * 8 + [30.0] * 4, False),  # spikes beside a usual gradient
        ([0.0006] * 12, False),  # all small: another scale
        ([0.004] * 8 + [0.02] * 4, False),  # hardly apart
    ],
)
def test_gradients_of_next_to_nothing_beside_usual_ones(norms: list[float], found: bool) -> None:
    rows: list[Row] = [{"step": i, "grad_norm": norm, "reward/mean": 0.2} for i, norm in enumerate(norms, 1)]
    assert [one.severity for one in dead_groups(Case(rows=rows))] == ["info"] * found


def test_rows_of_which_only_equal_rewards_are_known_tell_nothing_of_the_others() -> None:
    rows: list[Row] = [{"step": i, "reward/mean": 0.3} for i in range(1, 31)]
    for row in rows[:3]:
        row["groups/dead"] = 1.0
    assert dead_groups(Case(rows=rows)) == ()
    assert dead_groups(Case(rows=[{**row, "groups/dead": 1.0} for row in rows]))


def test_groups_without_any_reward_are_not_called_equal() -> None:
    rows = [{"step": n, "groups/dead": 1.0, "reward/mean": None, "reward/missing": 1.0} for n in range(1, 31)]
    told = {finding.id for finding in examine(Case(rows=rows))}
    assert "missing-rewards" in told
    assert "dead-groups" not in told
    some = [{**row, "reward/missing": 0.1, "reward/mean": 0.25 * (at % 3)} for at, row in enumerate(rows)]
    assert "dead-groups" in {finding.id for finding in examine(Case(rows=some))}


def test_dead_groups_of_solved_prompts_waste_nothing() -> None:
    row: Row = {"groups/dead": 0.9, "reward/mean": 0.99}
    (finding,) = dead_groups(Case(rows=[{**row, "step": i} for i in range(1, 21)]))
    assert finding.severity == "info"
    assert "the prompts are solved" in finding.summary
    for other in ({"reward/mean": 0.5}, {"reward/mean": 0.0}, {"reward/mean": 2.0}, {"reward/max": 2.0}):
        (finding,) = dead_groups(Case(rows=[{**row, "step": i, **other} for i in range(1, 21)]))
        assert (finding.severity, "solved" in finding.summary) == ("warning", False)


def test_prompts_whose_answers_went_with_the_reward_at_its_best_are_not_solved() -> None:
    """The sum is the most there is, as one part is all of it; the other fell to nothing."""
    rows: list[Row] = [
        {"step": i, "groups/dead": 0.9, "reward/mean": 0.99, "rewards/short": min(1.0, 0.5 + 0.05 * i),
         "rewards/right": max(0.0, 0.5 - 0.05 * i)}
        for i in range(1, 41)
    ]  # fmt: skip
    (finding,) = dead_groups(Case(rows=rows))
    assert "solved" not in finding.summary
    assert "harder prompts" not in finding.advice


def test_equal_rewards_have_an_advantage_under_a_value_function() -> None:
    rows: list[Row] = [{"step": step, "groups/dead": 0.9, "reward/mean": 0.1} for step in range(1, 21)]
    assert dead_groups(Case(rows=rows))
    assert dead_groups(Case(rows=rows, settings=Settings(baseline="none"))) == ()
    assert dead_groups(Case(rows=rows, settings=Settings(baseline="none"), stages={"grpo": "grpo"}))  # ours says so
