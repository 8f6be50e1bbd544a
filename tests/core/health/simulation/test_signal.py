"""A step's expectations: by hand, exact against every way in which a step can go, and draws against both.

Signal and noise: closed forms, and a softmax bandit whose every step is taken with autograd.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from core.algorithms.advantages import advantages
from core.config import AdvantageSpec, GrpoStage
from core.health.simulation import signal as module
from core.health.simulation.rewards import RewardModel, of_pass_rates
from core.health.simulation.signal import (
    Bandit,
    Groups,
    Population,
    StepMeans,
    all_counts,
    by_groups,
    by_steps,
    expected,
    how_many,
    of_group,
    signal,
    signal_of,
)
from tests.core.health.before.conftest import STAGE

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


ALL_SHARED = Bandit(ways=3, sharing=1.0)


@pytest.mark.parametrize("pass_rate", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
def test_mean_only_wastes_one_completion_of_each_group(size: int, pass_rate: float) -> None:
    """Noise of answers alone: signal^2 / noise^2 of a completion is p (1 - p) (1 - 1/K) times a constant."""
    one = stage(num_generations=size, prompts_per_step=1, advantage={"scale_rewards": "none"})
    found = signal_of(one, of_pass_rates([pass_rate]), Bandit())
    # signal: sqrt(2) p (1 - p) (1 - 1/K); across: p (1 - p) (1 - 1/K) / K; a completion: / K; a thousand of them
    assert found.answers == pytest.approx(2000 * pass_rate * (1 - pass_rate) * (1 - 1 / size))


def test_two_against_eight() -> None:
    two, eight = (
        signal_of(stage(num_generations=k, advantage={"scale_rewards": "none"}), of_pass_rates([0.5]), Bandit())
        for k in (2, 8)
    )
    assert two.answers / eight.answers == pytest.approx((1 / 2) / (7 / 8))
    assert (two.dead, eight.dead) == (0.5, pytest.approx(2 / 256))
    # noise of prompts alone, K = 2: a group is 1/4 or 0, half and half: mean^2 / mean square = 1/2; 250 such in 500
    assert two.prompts == pytest.approx(500 * 0.5)
    assert two.prompts > eight.prompts


def test_k_2_knows_no_normaliser() -> None:
    """Live advantages are +-a whatever the std: only a, a learning rate, differs."""
    ways = ({}, {"scale_rewards": "none"}, {"scale_rewards": "none", "baseline": "leave_one_out"}, {"ddof": 1})
    found = [signal_of(stage(num_generations=2, advantage=how), of_pass_rates([0.2]), Bandit()) for how in ways]
    assert [one.snr for one in found] == pytest.approx([found[0].snr] * 4)
    assert [one.cosine for one in found] == pytest.approx([found[0].cosine] * 4)
    assert found[0].signal > found[1].signal


def test_it_grows_with_the_root_of_completions() -> None:
    one, four = (signal(4, prompts, 0.3, Bandit()) for prompts in (1, 4))
    assert four.snr == pytest.approx(2 * one.snr)
    assert four.per_1000 == pytest.approx(one.per_1000) == pytest.approx(one.snr * math.sqrt(1000 / 4))
    assert (four.live, four.completions) == (pytest.approx(16 * (1 - 0.3**4 - 0.7**4)), 16)


def test_dynamic_sampling_costs_what_it_gains() -> None:
    plain = stage(num_generations=4, advantage={"scale_rewards": "none"})
    more = plain.model_validate({**plain.model_dump(), "dynamic_sampling": {"max_attempts": 50}})
    one, other = (signal_of(which, of_pass_rates([0.1]), Bandit()) for which in (plain, more))
    assert other.completions == pytest.approx(one.completions / (1 - one.dead))
    assert other.snr > 1.5 * one.snr
    assert other.per_1000 == pytest.approx(one.per_1000, rel=0.05)
    assert other.silent < 1e-9 < one.silent


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_nothing_to_learn(rate: float) -> None:
    found = signal_of(stage(), of_pass_rates([rate]), Bandit())
    assert (found.snr, found.cosine, found.per_1000, found.aim, found.dead, found.silent) == (0, 0, 0, None, 1, 1)


def test_against_the_rewards() -> None:
    """A clip that flattens what is good makes nothing negative; a virtual best above all rewards does."""
    found = signal_of(stage(advantage={"virtual_best": 9.0, "scale_rewards": "none"}), of_pass_rates([0.5]), Bandit())
    assert found.signal > 0  # what all completions lack is no direction


@pytest.mark.parametrize("how", [{}, {"scale_rewards": "none"}, {"baseline": "none", "scale_rewards": "none"},
                                 {"transform": "rank"}, {"virtual_best": 1.0}], ids=str)  # fmt: skip
@pytest.mark.parametrize("levels", [(0.0, 1.0), (0.0, 0.3, 1.0)], ids=len)
def test_a_softmax_bandit_by_autograd(levels: tuple[float, ...], how: dict[str, Any]) -> None:
    """Every group of two, in a policy of `ways` equally likely answers for each level: exact, no formula of ours."""
    chances = (0.7, 0.3) if len(levels) == 2 else (0.5, 0.2, 0.3)
    ways, one = ALL_SHARED.ways, stage(num_generations=2, prompts_per_step=1, advantage=how)
    found = signal_of(one, RewardModel(levels=levels, prompts=(chances,), source=""), ALL_SHARED)
    gradients, weights, truth = every_group(levels, chances, ways, how)
    mean = (gradients * weights.unsqueeze(-1)).sum(0)
    second = float((gradients.square().sum(-1) * weights).sum())
    along = float(mean @ truth / truth.norm())
    scale = math.sqrt(ways)  # our lengths are those of a level with one answer
    assert found.signal == pytest.approx(along * scale)
    assert found.noise == pytest.approx(math.sqrt(second - float(mean @ mean)) * scale)
    assert found.cosine == pytest.approx(along / math.sqrt(second))


def every_group(
    levels: tuple[float, ...], chances: tuple[float, ...], ways: int, how: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of every group of two answers, its chance, and the gradient of the expected reward."""
    logits = torch.tensor(chances, dtype=torch.float64).div(ways).log().repeat_interleave(ways).requires_grad_()
    rewards = torch.tensor(levels, dtype=torch.float64).repeat_interleave(ways)
    (truth,) = torch.autograd.grad((logits.softmax(-1) * rewards).sum(), logits)
    probabilities = logits.softmax(-1).detach()
    normaliser = AdvantageSpec.model_validate({"ddof": 0, "eps": 1e-12, **how})
    gradients, weights = [], []
    for pair in itertools.product(range(len(rewards)), repeat=2):
        drawn = list(pair)
        credit = torch.from_numpy(advantages(rewards[drawn].unsqueeze(0), normaliser)[0])
        (gradient,) = torch.autograd.grad((logits.log_softmax(-1)[drawn] * credit).mean(), logits)
        gradients.append(gradient)
        weights.append(probabilities[drawn].prod())
    return torch.stack(gradients), torch.stack(weights), truth


def test_prompts_with_policies_of_their_own() -> None:
    """Two prompts' gradients of cosine s: the common part adds up over B, the rest adds as noise."""
    rewards = of_pass_rates([0.5])
    alone, shared = (
        signal_of(stage(num_generations=2, prompts_per_step=4), rewards, Bandit(ways=1, sharing=s)) for s in (0.25, 1.0)
    )
    # a group's gradient has length 0 or sqrt(1/2): mean square 1/4, squared mean 1/8
    assert shared.noise**2 == pytest.approx((1 / 4 - 1 / 8) / 4)
    assert shared.signal == pytest.approx(math.sqrt(1 / 8))
    assert alone.signal == pytest.approx(math.sqrt(1 / 8) / 2)
    assert alone.noise**2 == pytest.approx(1 / 16 - 1 / 4 / 8 / 4)


def test_a_drawn_one_says_how_sure_it_is() -> None:
    found = signal_of(stage(advantage={"scale_rewards": "batch"}), of_pass_rates([0.5]), Bandit())
    assert found.groups > 0
    assert 0 < found.se < 0.05 * found.per_1000
    assert signal_of(stage(), of_pass_rates([0.5]), Bandit()).se == 0


def test_its_standard_error_is_the_spread_over_seeds() -> None:
    one = stage(num_generations=8, prompts_per_step=4, advantage={"scale_rewards": "batch"})
    found = [signal_of(one, of_pass_rates([0.1]), Bandit(), seed=seed) for seed in range(12)]
    mean = sum(each.per_1000 for each in found) / 12
    spread = math.sqrt(sum((each.per_1000 - mean) ** 2 for each in found) / 11)
    said = sum(each.se for each in found) / 12
    assert 0.5 * said < spread < 1.8 * said  # the root of chi square over 11: 0.59 to 1.41 in 95 of 100
