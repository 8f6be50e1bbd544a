"""A step's expectations: by hand, exact against every way in which a step can go, and draws against both."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from core.config import GrpoStage
from core.health.simulation import signal as module
from core.health.simulation.outcomes import Groups, Population, StepMeans, all_counts, how_many, of_group
from core.health.simulation.rewards import RewardModel, of_pass_rates
from core.health.simulation.signal import by_groups, by_steps, expected
from tests.core.health.foresight.conftest import STAGE

MIXED = RewardModel(levels=(0.0, 0.4, 1.0), prompts=((0.5, 0.3, 0.2), (0.1, 0.1, 0.8)), source="")


def stage(**changed: Any) -> GrpoStage:
    how = {"ddof": 0, "eps": 1e-12, **changed.pop("advantage", {})}
    return GrpoStage.model_validate({**STAGE, "advantage": how, **changed})


def every_step(one: GrpoStage, rewards: RewardModel) -> StepMeans:
    """The sum over all prompts and all outcomes of a step without refills, each by its chance."""
    groups, size, n = Groups(one, rewards), one.num_generations, one.prompts_per_step
    counts = list(all_counts(size, len(rewards.levels)))
    ways = [(chances, c, multinomial(chances, c) / len(rewards.prompts)) for chances in rewards.prompts for c in counts]
    sums = [0.0] * 6
    vector = [0.0] * len(rewards.levels)
    for step in itertools.product(ways, repeat=n):
        chance = math.prod(way[2] for way in step)
        found = groups.together(tuple(way[1] for way in step))
        each = [of_group(outcome, way[0], size) for outcome, way in zip(found, step, strict=True)]
        mean = [sum(column) / n for column in zip(*(one.vector for one in each), strict=True)]
        vector = [total + chance * part for total, part in zip(vector, mean, strict=True)]
        values = (
            sum(g.dead for g in each) / n,
            sum(g.live for g in each),
            float(all(g.silent for g in each)),
            sum(part * part for part in mean),
            sum(g.squares for g in each) / n**2,
            sum(g.across for g in each) / n**2,
        )
        sums = [total + chance * value for total, value in zip(sums, values, strict=True)]
    names = ("dead", "live", "silent", "together", "apart", "across")
    return StepMeans(completions=float(n * size), vector=tuple(vector), **dict(zip(names, sums, strict=True)))


def multinomial(chances: tuple[float, ...], counts: tuple[int, ...]) -> float:
    ways = math.factorial(sum(counts)) / math.prod(map(math.factorial, counts))
    return ways * math.prod(chance**count for chance, count in zip(chances, counts, strict=True))


def flat(step: StepMeans) -> list[float]:
    return [step.completions, step.dead, step.live, step.silent, *step.vector, step.together, step.apart, step.across]


@pytest.mark.parametrize(("ddof", "advantage"), [(0, 1.0), (1, 1 / math.sqrt(2))])
def test_two_of_pass_rate_one_half_by_hand(ddof: int, advantage: float) -> None:
    """Half of the groups are dead. A live one's advantages are +-a: its gradient (-a, a) / 2, and squares 2 a^2."""
    step = expected(stage(num_generations=2, prompts_per_step=1, advantage={"ddof": ddof}), of_pass_rates([0.5])).step
    assert (step.completions, step.dead, step.silent) == (2, pytest.approx(0.5), pytest.approx(0.5))
    assert step.live == pytest.approx(0.5)
    assert step.vector == pytest.approx((-advantage / 4, advantage / 4))  # towards the right answer
    assert step.together == pytest.approx(0.5 * 2 * (advantage / 2) ** 2)
    assert step.across == pytest.approx(0.5 * 2 * advantage**2 / 4)


@pytest.mark.parametrize(
    "rewards", [of_pass_rates([0.3]), of_pass_rates([0.1, 0.8]), MIXED], ids=["one", "two", "three"]
)
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"scale_rewards": "none"},
        {"scale_rewards": "none", "baseline": "leave_one_out"},
        {"transform": "rank"},
        {"virtual_best": 1.0},
        {"clip": 0.5},
        {"std_floor": 0.6},
        {"baseline": "running", "scale_rewards": "running"},
        {"baseline": "none", "scale_rewards": "none"},
    ],
    ids=str,
)
def test_exact_is_every_way_a_step_can_go(how: dict[str, Any], rewards: RewardModel) -> None:
    one = stage(num_generations=3, prompts_per_step=2, advantage=how)
    found = expected(one, rewards)
    assert (found.without, found.groups) == ((), 0)
    assert flat(found.step) == pytest.approx(flat(every_step(one, rewards)), abs=1e-9)


def test_only_the_best_take_part() -> None:
    # of three the best two: dead where they are equal. p = 1/2: 0 or 1 wrong or all wrong = 1 - P(one right) = 5/8
    step = expected(stage(num_generations=3, prompts_per_step=1, keep_candidates=2.0), of_pass_rates([0.5])).step
    assert step.dead == pytest.approx(5 / 8)
    assert step.across == pytest.approx(3 / 8 * 2 / 9)


@pytest.mark.parametrize("scale", ["batch", "batch_centred"])
@pytest.mark.parametrize("baseline", ["group", "batch"])
def test_draws_of_what_depends_on_the_batch(baseline: str, scale: str) -> None:
    one = stage(num_generations=2, prompts_per_step=2, advantage={"baseline": baseline, "scale_rewards": scale})
    found = expected(one, of_pass_rates([0.3, 0.6]))
    agree(found, every_step(one, of_pass_rates([0.3, 0.6])))
    assert found.groups >= 1000
    assert found.aim is None


def test_draws_of_groups_and_of_steps_agree_with_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    one = stage(
        num_generations=3, prompts_per_step=3, positive_reward=0.5, dynamic_sampling={"max_attempts": 2},
        advantage={"virtual_best": 0.4},
    )  # fmt: skip
    groups, exact = Groups(one, MIXED), expected(one, MIXED)
    agree(by_groups(groups, Population(MIXED, 3, 1), 4000), exact.step)
    agree(by_steps(groups, Population(MIXED, 3, 11), 2000), exact.step)
    monkeypatch.setattr(module, "EXACT", 0)
    drawn = expected(one, MIXED)
    assert (drawn.aim, len(drawn.without)) == (None, module.BLOCKS)
    agree(drawn, exact.step)


def agree(found: module.Expected, exact: StepMeans) -> None:
    """Every number within a few standard errors, and these are small and not 0."""
    each = zip(flat(found.step), flat(exact), *map(flat, found.without), strict=True)
    for value, truth, *without in each:
        n, mean = len(without), sum(without) / len(without)
        error = math.sqrt((n - 1) / n * sum((other - mean) ** 2 for other in without))
        assert abs(value - truth) <= 4.5 * error + 1e-3, (found.step, exact)  # a rare event may never be drawn
        assert error < 0.1 * abs(value) + 0.05


def test_the_same_seed_gives_the_same() -> None:
    groups = Groups(stage(advantage={"scale_rewards": "batch"}), MIXED)
    found = [by_steps(groups, Population(MIXED, 4, seed), 20) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]


def test_mean_only_aims_at_the_expected_reward_and_a_z_score_beside_it() -> None:
    rewards = of_pass_rates([0.02, 0.5])
    aims = [expected(stage(num_generations=32, advantage={"scale_rewards": s}), rewards).aim for s in ("none", "group")]
    assert aims[0] == pytest.approx(1.0)
    # the gradient weighs the prompts by p (1 - p), 0.0196 and 0.25; the z-score by about its root
    assert aims[1] is not None
    assert aims[1] < 0.995


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_every_count_once(levels: int) -> None:
    found = list(all_counts(5, levels))
    assert len(found) == len(set(found)) == how_many(5, levels)
    assert {sum(counts) for counts in found} == {5}
