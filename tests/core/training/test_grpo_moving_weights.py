"""Numbers that move: schedules at the right step, and weights that follow what was measured."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from core.config import Schedule
from core.training.clock import at
from core.training.requests import Learn, Sample, StepDone
from tests.fakes import ConsistentPolicy, PricedTask, TabularPolicy, asked, grpo_stage, ran, trainer_of

BEST_IS_2 = PricedTask(lambda prompt, output: 1.0 if output == "2" else 0.0)
FLAT = PricedTask(lambda prompt, output: 0.5)


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        # The values on steps 1, 2, 3, 4, 5; `start` is before step 1.
        (0.3, [0.3] * 5),
        ({"start": 1.0, "end": 0.0, "steps": 4}, [0.75, 0.5, 0.25, 0.0, 0.0]),
        ({"start": 0.0, "end": 1.0, "steps": 2}, [0.5, 1.0, 1.0, 1.0, 1.0]),
        ({"start": 1.0, "end": 3.0, "steps": 1}, [3.0] * 5),
        # Cosine: 1 + (3 - 1)(1 + cos(pi x)) / 2 downwards at x = 1/4, 1/2, 3/4, 1.
        ({"start": 3.0, "end": 1.0, "steps": 4, "shape": "cosine"}, [2 + 0.5**0.5, 2.0, 2 - 0.5**0.5, 1.0, 1.0]),
        ({"start": 8.0, "end": 0.5, "steps": 4, "shape": "exponential"}, [4.0, 2.0, 1.0, 0.5, 0.5]),
        # A rise from 0 to start over two steps comes first: 1/2, then `start` itself, then down over two.
        ({"start": 1.0, "end": 0.0, "steps": 2, "warmup": 2}, [0.5, 1.0, 0.5, 0.0, 0.0]),
        ({"start": 0.6, "end": 0.6, "warmup": 3}, [0.2, 0.4, 0.6, 0.6, 0.6]),
    ],
)
def test_a_schedule_on_the_first_five_steps(schedule: object, values: list[float]) -> None:
    spec = Schedule.model_validate(schedule)
    assert [at(spec, step) for step in range(1, 6)] == [pytest.approx(value) for value in values]


def learned(trainer: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """The policy losses of a run's updates and its training rows."""
    found = asked(trainer)
    losses = [request.batches[0].loss for request, _ in found if isinstance(request, Learn)]
    return losses, [dict(request.row) for request, _ in found if isinstance(request, StepDone)][1:]


def test_every_schedule_is_read_at_the_stages_step() -> None:
    falling = {"start": 1.0, "end": 0.5, "steps": 2}
    stage = {
        "max_steps": 3, "num_generations": 16, "prompts_per_step": 2, "learning_rate": 0.05,
        "temperature": falling, "beta": falling, "entropy_coef": falling, "epsilon": falling, "policy_weight": falling,
        "supervised_weight": falling, "consistency_weight": falling, "surrogate": "dppo",
    }  # fmt: skip
    trainer = trainer_of(ConsistentPolicy(), BEST_IS_2, stages={"a": stage, "b": stage})
    found = asked(trainer)
    values = [0.75, 0.5, 0.5] * 2
    sampled = [request.how.temperature for request, _ in found if isinstance(request, Sample)]
    assert [value for value in sampled if value != 1.0] == values  # evaluations are at 1
    learn = [request for request, _ in found if isinstance(request, Learn)]
    losses: list[Any] = [request.batches[0].loss for request in learn]
    for name in ("beta", "entropy_coef", "epsilon", "epsilon_high", "policy_weight"):
        assert [getattr(loss.numbers, name) for loss in losses] == values, name
    assert [loss.numbers.own_losses for loss in losses] == [{"consistency": value} for value in values]
    assert [request.batches[1].loss.scale for request in learn] == values  # type: ignore[attr-defined]
    rows = [request.row for request, _ in found if isinstance(request, StepDone)][1:]
    assert [row["beta"] for row in rows] == [row["temperature"] for row in rows] == values
    for term in ("policy", "supervised", "entropy", "consistency"):
        assert [row[f"weight/{term}"] for row in rows] == values, term


def test_a_weight_is_in_the_row_where_its_term_acts() -> None:
    stage = grpo_stage(
        max_steps=3, policy_weight={"start": 0.0, "end": 1.0, "steps": 2},
        supervised_weight={"start": 0.4, "end": 0.0, "steps": 2},
    )  # fmt: skip
    _, rows = learned(trainer_of(TabularPolicy(), BEST_IS_2, stage))
    assert [row["weight/policy"] for row in rows] == [0.5, 1.0, 1.0]
    assert [row.get("weight/supervised") for row in rows] == [pytest.approx(0.2), None, None]
    assert not any({"weight/entropy", "weight/consistency", "weight/rce"} & row.keys() for row in rows)
    _, dead = learned(trainer_of(TabularPolicy(), FLAT, grpo_stage(max_steps=1, supervised_weight=0.5)))
    assert (dead[0]["weight/supervised"], "weight/policy" in dead[0]) == (0.5, False)  # no group teaches
    _, none = learned(trainer_of(TabularPolicy(), FLAT, grpo_stage(max_steps=1)))
    assert not [name for name in none[0] if name.startswith("weight/")]  # nothing is learned from
    plain = {"max_steps": 1, "prompts_per_step": 2, "learning_rate": 0.05}
    for kind, term in (("sft", "supervised"), ("rce", "rce")):
        more = {"num_generations": 4} if kind == "rce" else {}
        row = ran(trainer_of(TabularPolicy(), BEST_IS_2, stages={"a": {"kind": kind, **plain, **more}})).rows[1]
        assert {name for name in row if name.startswith("weight/")} == {f"weight/{term}"}
        assert row[f"weight/{term}"] == 1


def test_an_adaptive_entropy_bonus_is_recorded_as_it_is_applied() -> None:
    adaptive = {"target": 99.0, "delta": 0.1, "min": 0.0, "max": 1.0}  # always below the target: 0.1 more each step
    stage = grpo_stage(max_steps=3, entropy_coef=0.2, adaptive_entropy=adaptive)
    losses, rows = learned(trainer_of(TabularPolicy(), BEST_IS_2, stage))
    assert [row["weight/entropy"] for row in rows] == [loss.numbers.entropy_coef for loss in losses]
    assert [row["weight/entropy"] for row in rows] == pytest.approx([0.2, 0.3, 0.4])


def test_a_penalty_that_is_scheduled_away_is_not_computed() -> None:
    stage = grpo_stage(max_steps=3, num_generations=16, beta={"start": 0.2, "end": 0.0, "steps": 2})
    losses, rows = learned(trainer_of(TabularPolicy(), BEST_IS_2, stage))
    assert [loss.reference_NT is not None for loss in losses] == [True, False, False]
    assert [row.get("beta") for row in rows] == [0.1, None, None]
    assert ["kl" in row for row in rows] == [True, False, False]


@pytest.mark.parametrize(("coefficient", "rises"), [(0.2, True), (0.0, False)])
def test_an_entropy_bonus_raises_the_entropy(coefficient: float, rises: bool) -> None:
    policy = TabularPolicy()
    with torch.no_grad():
        policy.logits.copy_(torch.tensor([2.0, 0.0, 0.0, 0.0]))
    stage = grpo_stage(max_steps=20, entropy_coef=coefficient, skip_without_signal=False)
    entropies = [float(value or 0) for value in ran(trainer_of(policy, FLAT, stage)).column("entropy")]
    assert (entropies == sorted(set(entropies))) == rises
    if rises:
        assert entropies[-1] > entropies[0] + 0.2
    else:
        assert len(set(entropies)) == 1  # nothing else pulls here


def kl_run(rule: dict[str, object]) -> list[dict[str, Any]]:
    stage = grpo_stage(max_steps=12, num_generations=16, learning_rate=0.1, beta=0.1, adaptive_beta=rule)
    return learned(trainer_of(TabularPolicy(), BEST_IS_2, stage))[1]


def test_beta_follows_the_kl_by_the_threshold_rule() -> None:
    rows = kl_run({"rule": "threshold", "high": 0.05, "low": 0.01, "factor": 1.5})
    assert rows[0]["beta"] == 0.1  # where it starts
    grown, shrunk, kept = 0, 0, 0
    for before, after in pairwise(rows):
        factor = 1.5 if before["kl"] > 0.05 else 1 / 1.5 if before["kl"] < 0.01 else 1.0
        assert after["beta"] == pytest.approx(before["beta"] * factor)
        grown, shrunk, kept = grown + (factor > 1), shrunk + (factor < 1), kept + (factor == 1)
    assert min(grown, shrunk, kept) > 0


def test_beta_follows_the_kl_by_the_proportional_rule() -> None:
    # 2 prompts x 16 completions a step, over a horizon of 64: a factor of 1 + error / 2, the error within +-0.2.
    rows = kl_run({"rule": "proportional", "target": 0.05, "horizon": 64})
    factors = [after["beta"] / before["beta"] for before, after in pairwise(rows)]
    expected = [1 + min(0.2, max(-0.2, row["kl"] / 0.05 - 1)) / 2 for row in rows[:-1]]
    assert factors == [pytest.approx(factor) for factor in expected]
    assert min(factors) == pytest.approx(0.9)  # no KL at the start
    assert max(factors) == pytest.approx(1.1)


def test_beta_stands_still_on_a_step_that_learns_nothing() -> None:
    rule = {"rule": "threshold", "high": 0.1, "low": 0.01, "factor": 1.5}
    stage = grpo_stage(beta=0.1, adaptive_beta=rule, max_steps=3)
    trainer = trainer_of(TabularPolicy(), FLAT, stage)
    assert learned(trainer)[0] == []
    assert dict(trainer.progress.carried) == {}


def test_an_adaptive_entropy_bonus_acts_at_or_below_its_target_only() -> None:
    aim = {"target": 1.2, "delta": 0.01, "min": 0.0, "max": 0.03}
    stage = grpo_stage(
        max_steps=20, num_generations=16, learning_rate=0.2, entropy_coef=0.015, adaptive_entropy=aim,
        skip_without_signal=False,
    )  # fmt: skip
    losses, rows = learned(trainer_of(TabularPolicy(), BEST_IS_2, stage))
    coefficient, expected = 0.015, []
    for row in rows:
        low = row["entropy"] <= 1.2
        expected.append(coefficient if low else 0.0)
        coefficient = min(coefficient + 0.01, 0.03) if low else max(coefficient - 0.01, 0.0)
    got = [loss.numbers.entropy_coef for loss in losses]
    assert got == [pytest.approx(value) for value in expected]
    assert got[0] == 0.0  # log 4 is above the target
    assert max(got) == 0.03  # it came down, the bonus grew to its bound
    assert rows[0]["entropy"] > 1.2 > rows[-1]["entropy"]
