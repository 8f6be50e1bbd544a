"""Runs with a budget, on the rows they record: where nothing is discarded, those of the run without one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.algorithms.schedules import learning_rate
from core.training.outcome import Ending
from core.training.trainer import Trainer, drive
from tests.fakes import LongPolicy, PricedTask, Recorder, ScriptedPolicy, TabularPolicy, grpo_stage, ran, trainer_of

# Prompts 1 and 2 of five pay by the arm, the others the same for any: their groups are dead.
TASK = PricedTask(lambda prompt, output: float(output) / 3 if prompt in (1, 2) else 0.5, prompts=5)
FLAT = PricedTask(lambda prompt, output: 0.5)
MOVING = {
    "max_steps": 10, "num_generations": 4, "prompts_per_step": 2, "learning_rate": 0.1, "warmup_steps": 2,
    "lr_scheduler_type": "cosine", "temperature": {"start": 1.5, "end": 0.5, "steps": 10, "shape": "cosine"},
    "beta": {"start": 0.1, "end": 0.01, "steps": 6, "warmup": 3}, "lr_plateau": {"patience": 1},
    "supervised_weight": {"start": 0.3, "end": 0.0, "steps": 5},
}  # fmt: skip
FALLING = {"start": 1.5, "end": 0.5, "steps": 10}
SFT = {"kind": "sft", "max_steps": 3, "prompts_per_step": 2, "learning_rate": 0.1}
RCE = {"kind": "rce", "max_steps": 4, "prompts_per_step": 1, "num_generations": 3, "learning_rate": 0.1}


def driven(trainer: Trainer) -> tuple[Ending, Recorder]:
    recorder = Recorder()
    return drive(trainer.steps(), recorder), recorder


def evaluated(recorder: Recorder, metric: str) -> list[float | None]:
    """A metric over the rows that have an evaluation, the start left out."""
    return [row[metric] for row in recorder.rows if "eval/reward" in row and row["step"]]


@pytest.mark.parametrize("unit", ["completions", "tokens"])  # an output of the table is one token
@pytest.mark.parametrize(
    ("stages", "amount"),
    [
        ({"grpo": MOVING}, 80),
        ({"grpo": {**MOVING, "lr_clock": "updates"}}, 80),
        ({"warm": SFT, "grpo": MOVING}, 80),
        ({"warm": SFT, "rce": RCE, "grpo": MOVING}, 92),
        ({"grpo": MOVING, "rce": {**RCE, "tau": {"start": 2.0, "end": 0.1, "steps": 4}}}, 92),
    ],
)
def test_where_nothing_is_discarded_it_is_the_run_without_one(unit: str, stages: Any, amount: int) -> None:
    (_, plain), (ending, budgeted) = (
        driven(trainer_of(TabularPolicy(), TASK, stages=stages, evaluation={"eval_steps": 3}, budget=budget))
        for budget in (None, {unit: amount})
    )
    assert [json.dumps(row) for row in budgeted.rows] == [json.dumps(row) for row in plain.rows]
    assert budgeted.samples == plain.samples
    assert any("grad_share/policy" in row or "grad_share/rce" in row for row in plain.rows)  # measured where evaluated
    steps = len(plain.rows) - 1
    assert (ending.status, ending.message) == (
        "COMPLETED", f"the budget of {amount} {unit} is spent, after {steps} steps"
    )  # fmt: skip


def test_dynamic_sampling_ends_when_the_budget_is_spent_and_is_annealed_to_its_end() -> None:
    """Two live prompts of five, two groups of 4 wanted a step: about five groups are sampled for two."""
    stage = grpo_stage(
        max_steps=10, learning_rate=0.1, lr_scheduler_type="linear", temperature=FALLING,
        dynamic_sampling={"max_attempts": 10},
    )  # fmt: skip
    trainer = trainer_of(ScriptedPolicy(), TASK, stage, budget={"completions": 240}, evaluation={"eval_steps": 2})
    recorder = ran(trainer)
    spent = [0.0, *(float(value or 0) for value in recorder.column("completions"))]
    assert spent[-2] < 240 <= spent[-1]  # over after the step that spends it, and no sooner
    steps = len(spent) - 1
    assert sum(float(value or 0) for value in recorder.column("groups/discarded")) * 4 + steps * 2 * 4 == spent[-1]
    assert steps not in (10, 30)  # neither max_steps nor 240 / 8: refills were paid for
    # Ticks before a step: 10 x spent / 240. The rate falls with them, the temperature to where the step ends by plan.
    ticks = [10 * before / 240 for before in spent[:-1]]
    rates = [learning_rate(0.1, "linear", index=tick, warmup_steps=0, total_steps=10) for tick in ticks]
    assert recorder.column("learning_rate") == rates
    assert recorder.column("temperature") == [pytest.approx(1.5 - (tick + 8 * 10 / 240) / 10) for tick in ticks]
    assert rates[-1] < 0.1 * 0.2
    # Evaluated after 48, 96, 144 and 192, or as soon as they were passed, and at the end.
    passed = [next(value for value in spent if value >= share) for share in (48, 96, 144, 192, 240)]
    assert evaluated(recorder, "completions") == sorted(set(passed))


def test_every_number_of_generations_is_evaluated_at_equal_shares_of_the_budget() -> None:
    rates, found = {}, {}
    for k in (2, 8):
        stage = grpo_stage(max_steps=10, num_generations=k, lr_scheduler_type="linear", skip_without_signal=False)
        trainer = trainer_of(
            TabularPolicy(), TASK, stage, budget={"completions": 160}, evaluation={"eval_steps": 2, "temperature": 1}
        )
        recorder = ran(trainer)
        found[k] = evaluated(recorder, "completions")
        rates[k] = dict(zip([0, *recorder.column("completions")], recorder.column("learning_rate"), strict=False))
    assert found[2] == found[8] == [32, 64, 96, 128, 160]
    # 40 steps of 4 and 10 of 16; where both have spent the same, they learn at one rate.
    assert (len(rates[2]), len(rates[8])) == (40, 10)
    assert rates[8] == {spent: pytest.approx(rates[2][spent]) for spent in rates[8]}
    assert min(float(rate or 0) for rate in rates[2].values()) == pytest.approx(0.05 / 40)


def test_a_budget_of_tokens_counts_the_tokens() -> None:
    """Arms 0 to 3 in turn are 1 to 4 tokens: 10 a group, 20 a step."""
    stage = grpo_stage(
        max_steps=10, max_completion_length=4, temperature=FALLING, lr_scheduler_type="linear",
        skip_without_signal=False,
    )  # fmt: skip
    trainer = trainer_of(LongPolicy(), TASK, stage, budget={"tokens": 100}, evaluation={"eval_steps": 4})
    recorder = ran(trainer)
    assert recorder.column("tokens") == [20, 40, 60, 80, 100]
    assert recorder.column("completions") == [8, 16, 24, 32, 40]
    # Five steps of two ticks; the first is planned as one, for its length is not known.
    assert recorder.column("temperature") == [pytest.approx(value) for value in (1.4, 1.1, 0.9, 0.7, 0.5)]
    assert recorder.column("learning_rate") == [pytest.approx(0.05 * left / 5) for left in (5, 4, 3, 2, 1)]
    assert evaluated(recorder, "tokens") == [40, 80, 100]


def test_the_last_stage_has_what_the_first_left() -> None:
    """3 completions a step for 4 steps, then 4 x 2 a step until 52 are spent: (52 - 12) / 8 = 5 steps over 10 ticks."""
    last = grpo_stage(max_steps=10, temperature=FALLING)
    trainer = trainer_of(
        TabularPolicy(), TASK, stages={"rce": RCE, "grpo": last}, budget={"completions": 52},
        evaluation={"eval_steps": 4},
    )  # fmt: skip
    recorder = ran(trainer)
    assert recorder.column("stage") == [0] * 4 + [1] * 5
    assert recorder.column("completions") == [3, 6, 9, 12, 20, 28, 36, 44, 52]
    assert recorder.column("temperature")[4:] == [pytest.approx(value) for value in (1.3, 1.1, 0.9, 0.7, 0.5)]
    # The rhythm is that of 4 + 10 ticks: 4, 8 and 12 of them, and the end.
    assert evaluated(recorder, "completions") == [12, 28, 44, 52]


def test_a_stage_that_spends_it_all_ends_the_run() -> None:
    stages = {"rce": RCE, "grpo": grpo_stage()}
    ending, recorder = driven(trainer_of(TabularPolicy(), TASK, stages=stages, budget={"completions": 8}))
    assert ending.status == "COMPLETED"
    assert [fact for fact in ("8 completions", "3 steps") if fact not in ending.message] == []
    assert (recorder.column("stage"), recorder.column("completions")) == ([0] * 3, [3, 6, 9])
    assert "eval/reward" in recorder.rows[-1]


def test_the_last_stage_may_still_stop_early() -> None:
    stage = grpo_stage(max_steps=10, early_stopping={"patience": 2})
    often = {"evaluation": {"eval_steps": 1}}
    ending, recorder = driven(trainer_of(TabularPolicy(), FLAT, stage, budget={"completions": 800}, **often))
    assert ending == Ending(status="STOPPED_EARLY", message="stage grpo stopped improving")
    # Evaluated every tick, 80 completions; the first, then two that are no better.
    assert evaluated(recorder, "completions") == [80, 160, 240]
    # Every 4 of 10 ticks: the second that is no better is at the end, where the budget is spent as well.
    seldom = {"evaluation": {"eval_steps": 4}}
    ending, recorder = driven(trainer_of(TabularPolicy(), FLAT, stage, budget={"completions": 80}, **seldom))
    assert (ending.status, evaluated(recorder, "completions")) == ("COMPLETED", [32, 64, 80])
