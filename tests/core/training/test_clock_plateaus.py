"""Scheduled numbers that fall where evaluations no longer get better: by hand, and in runs."""

from __future__ import annotations

from itertools import groupby
from math import exp
from typing import Any

import pytest

from core.config import Schedule
from core.health.finding import Row
from core.training.clock import at
from core.training.requests import Learn, Sample
from core.training.trainer import Trainer, drive
from tests.fakes import ConsistentPolicy, PricedTask, Recorder, ScriptedPolicy, asked, grpo_stage, trainer_of

# Every output is valid, so eval/valid never gets better: the first evaluation is the best, each two more are a cut.
BY_ARM = PricedTask(lambda prompt, output: float(output))
FLAT = {"metric": "eval/valid", "patience": 2, "factor": 0.5}
CUTS = [1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25]  # before the steps 1, 2, ... where every step is evaluated
OFTEN = {"evaluation": {"eval_steps": 1, "temperature": 9.0}}


def evaluated(*values: float | None) -> list[Row]:
    """Rows of a stage with these values of eval/reward; None: not evaluated. eval/valid falls all the time."""
    return [{"step": i} if v is None else {"eval/reward": v, "eval/valid": -i} for i, v in enumerate(values, start=1)]


@pytest.mark.parametrize(
    ("rule", "values", "expected"),
    [
        ({"patience": 1}, [], 8.0),
        ({"patience": 1}, [0.5], 8.0),  # the first is what the others are held against
        ({"patience": 1}, [0.5, 0.5], 4.0),
        ({"patience": 1}, [0.5, 0.6, 0.7], 8.0),
        ({"patience": 1}, [0.5, 0.4, 0.45, 0.6], 2.0),
        ({"patience": 1}, [0.5, None, None, 0.4, None], 4.0),
        ({"patience": 2}, [0.5, 0.4], 8.0),
        ({"patience": 2}, [0.5, 0.4, 0.4], 4.0),
        ({"patience": 2}, [0.5, 0.4, 0.6, 0.4], 8.0),  # it waits anew after a better one
        ({"patience": 2}, [0.5, 0.4, 0.4, 0.4, 0.4], 2.0),
        ({"patience": 1, "factor": 0.75}, [0.5, 0.5, 0.5], 4.5),
        ({"patience": 1, "min_delta": 0.1}, [0.5, 0.55], 4.0),
        ({"patience": 1, "min_delta": 0.1}, [0.5, 0.65], 8.0),
        ({"patience": 1, "metric": "eval/valid"}, [0.5, 0.6, 0.7], 2.0),
    ],
)
def test_each_plateau_takes_its_factor_off(rule: dict[str, Any], values: list[float | None], expected: float) -> None:
    still = Schedule.model_validate({"start": 8, "end": 8, "plateau": rule})
    assert at(still, 1, evaluated(*values)) == pytest.approx(expected)
    # Of a number that moves, what it would be: 6 after two ticks from 8 to 4 over four.
    moving = Schedule.model_validate({"start": 8, "end": 4, "steps": 4, "plateau": rule})
    assert at(moving, 2, evaluated(*values)) == pytest.approx(expected * 6 / 8)
    rising = Schedule.model_validate({"start": 8, "end": 8, "warmup": 4, "plateau": rule})
    assert at(rising, 1, evaluated(*values)) == pytest.approx(expected / 4)


def falling(value: float, **more: object) -> dict[str, object]:
    return {"start": value, "end": value, "plateau": FLAT, **more}


# The numbers a loss is given -> where they start.
IN_THE_LOSS = {
    "epsilon": 0.4, "epsilon_high": 0.8, "beta": 0.2, "entropy_coef": 0.1, "policy_weight": 2.0,
    "consistency_weight": 0.6,
}  # fmt: skip


def test_every_scheduled_number_of_a_grpo_stage_falls_on_its_plateau() -> None:
    moved = {
        name: falling(value) for name, value in {**IN_THE_LOSS, "temperature": 1.5, "supervised_weight": 0.3}.items()
    }
    stage = grpo_stage(max_steps=7, **moved)
    requests = [request for request, _ in asked(trainer_of(ConsistentPolicy(), BY_ARM, stage, **OFTEN))]
    sampled = [request.how.temperature for request in requests if isinstance(request, Sample)]
    assert [value for value in sampled if value != 9.0] == [pytest.approx(1.5 * cut) for cut in CUTS]
    learned: list[Any] = [request.batches for request in requests if isinstance(request, Learn)]
    for name, start in IN_THE_LOSS.items():
        numbers = [batches[0].loss.numbers for batches in learned]
        own = name == "consistency_weight"
        got = [one.own_losses["consistency"] if own else getattr(one, name) for one in numbers]
        assert got == [pytest.approx(start * cut) for cut in CUTS], name
    assert [batches[1].loss.scale for batches in learned] == [pytest.approx(0.3 * cut) for cut in CUTS]


def test_fewer_candidates_are_kept_after_a_plateau_and_one_at_least() -> None:
    """Of the arms 0 to 3 the best 4, then 2, then 1 and never none; of one alone no advantage is left."""
    raw = {"baseline": "none", "scale_rewards": "none"}
    stage = grpo_stage(max_steps=9, prompts_per_step=1, keep_candidates=falling(4), advantage=raw)
    recorder = recorded(trainer_of(ScriptedPolicy(), BY_ARM, stage, **OFTEN))
    kept = [[sample["advantage"] for sample in step] for step in steps_of(recorder)]
    assert kept == [[0, 1, 2, 3]] * 3 + [[0, 0, 2, 3]] * 2 + [[0, 0, 0, 3]] * 4


def test_the_weights_of_imitation_sharpen_after_a_plateau() -> None:
    """softmax(r / tau) over the arms 0 to 3, times 4, less 1."""
    stage = {
        "kind": "rce", "max_steps": 7, "num_generations": 4, "prompts_per_step": 1, "learning_rate": 0.1,
        "tau": falling(2.0),
    }  # fmt: skip
    recorder = recorded(trainer_of(ScriptedPolicy(), BY_ARM, stages={"rce": stage}, **OFTEN))
    for cut, step in zip(CUTS, steps_of(recorder), strict=True):
        powers = [exp(arm / (2.0 * cut)) for arm in range(4)]
        assert [sample["advantage"] for sample in step] == [pytest.approx(4 * p / sum(powers) - 1) for p in powers]


def test_each_stage_waits_for_a_plateau_of_its_own() -> None:
    stage = grpo_stage(max_steps=4, temperature=falling(1.0))
    recorder = recorded(trainer_of(ScriptedPolicy(), BY_ARM, stages={"a": stage, "b": stage}, **OFTEN))
    assert recorder.column("temperature") == [1.0, 1.0, 1.0, 0.5] * 2


def test_with_a_budget_the_evaluations_are_those_of_its_clock() -> None:
    # 160 completions over 5 ticks are 4 steps of 8 a tick: evaluated after the steps 4, 8, 12, 16 and 20.
    stage = grpo_stage(max_steps=5, temperature=falling(1.0))
    recorder = recorded(trainer_of(ScriptedPolicy(), BY_ARM, stage, budget={"completions": 160}, **OFTEN))
    assert recorder.column("temperature") == [1.0] * 12 + [0.5] * 8


def recorded(trainer: Trainer) -> Recorder:
    recorder = Recorder()
    assert drive(trainer.steps(), recorder).status == "COMPLETED"
    return recorder


def steps_of(recorder: Recorder) -> list[list[dict[str, object]]]:
    return [list(step) for _, step in groupby(recorder.samples, key=lambda sample: sample["step"])]
