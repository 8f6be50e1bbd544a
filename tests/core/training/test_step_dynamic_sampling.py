"""Groups without signal are replaced by groups of further prompts: which, how often, and what is counted."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from core.health.finding import Row, StepTable
from core.randomness import ORDER, RowKey, permutation
from core.training.callbacks import Callback
from core.training.outcome import Ending
from core.training.requests import Learn, Sample, StepDone
from core.training.trainer import drive
from tests.fakes import LongPolicy, PricedTask, Recorder, ScriptedPolicy, asked, grpo_stage, ran, trainer_of

PROMPTS, K = 8, 4
LIVE = {1, 4, 6}  # the prompts whose completions (arms 0 to 3, always) are paid differently
TASK = PricedTask(lambda prompt, output: float(output) if prompt in LIVE else 0.3, prompts=PROMPTS)
ALL_DEAD = PricedTask(lambda prompt, output: 0.3, prompts=PROMPTS)
DYNAMIC = {"max_completion_length": 8, "num_generations": K, "prompts_per_step": 2, "learning_rate": 0.01}
WORLD = {"task": {"name": "arithmetic", "train_prompts": PROMPTS, "eval_prompts": 4}}


def stage_of(attempts: int = 10, **changes: object) -> Any:
    return grpo_stage(**{**DYNAMIC, "dynamic_sampling": {"max_attempts": attempts}, **changes})


def number(sample: Any) -> int:
    return int(str(sample["prompt_id"]).rpartition("-")[2])


def prompts_by_step(samples: Any) -> list[list[int]]:
    """The prompts of each step in the order they were sampled; each stands for its K completions."""
    found = []
    for _, step in groupby(samples, key=lambda sample: sample["step"]):
        rows = [number(sample) for sample in step]
        assert rows == [prompt for prompt in rows[::K] for _ in range(K)]
        found.append(rows[::K])
    return found


def simulated(steps: int, attempts: int, live: set[int], size: int = 2) -> list[list[int]]:
    """What each step must draw: the prompts in their order, as many as are missing, until none is or the cap."""
    order = [p for epoch in range(20) for p in permutation(RowKey(0, ORDER, epoch, 0, 0), PROMPTS)]
    found = []
    for _ in range(steps):
        drawn: list[int] = []
        for _ in range(attempts):
            missing = size - sum(prompt in live for prompt in drawn)
            drawn, order = drawn + order[:missing], order[missing:]
        found.append(drawn)
    return found


@pytest.mark.parametrize("attempts", [2, 3, 10])
def test_dead_groups_are_replaced_by_the_next_prompts_in_order_up_to_the_cap(attempts: int) -> None:
    trainer = trainer_of(ScriptedPolicy(), TASK, stage_of(attempts), **WORLD)
    recorder = ran(trainer)
    drawn = prompts_by_step(recorder.samples)
    assert drawn == simulated(10, attempts, LIVE)
    assert any(len(step) > 2 for step in drawn)  # it was needed
    assert trainer.progress.prompts == sum(map(len, drawn))  # so the next step goes on where this one ended
    live = [sum(prompt in LIVE for prompt in step) for step in drawn]
    assert recorder.column("groups/discarded") == [len(step) - n for step, n in zip(drawn, live, strict=True)]
    assert recorder.column("groups/dead") == [
        pytest.approx(1 - n / len(step)) for step, n in zip(drawn, live, strict=True)
    ]
    sampled = [sum(len(step) for step in drawn[: index + 1]) * K for index in range(10)]
    assert recorder.column("completions") == sampled
    assert recorder.column("update") == [int(n > 0) for n in live]
    if attempts == 10:
        assert live == [2] * 10
    else:
        assert 1 in live  # at the cap a step learns from what there is


def test_only_live_groups_are_learned_from_and_every_attempt_draws_with_its_own_keys() -> None:
    requests = [request for request, _ in asked(trainer_of(ScriptedPolicy(), TASK, stage_of(max_steps=4), **WORLD))]
    steps: list[list[Any]] = [[]]
    for request in requests:
        steps[-1].append(request)
        if isinstance(request, StepDone):
            steps.append([])
    for step in steps[1:-1]:
        (learn,) = [request for request in step if isinstance(request, Learn)]
        (batch,) = learn.batches
        places = [int(batch.rollout.prompt_N[row]) for row in batch.rows]
        assert len(places) == 2 * K
        assert len(set(places)) == 2
        assert {int(batch.rollout.prompts[place].id.rpartition("-")[2]) for place in places} <= LIVE
        keys = [key for request in step if isinstance(request, Sample) and request.name == "sample"
                for key in request.keys]  # fmt: skip
        assert len(set(keys)) == len(keys) == len(batch.rollout)


def test_an_overlong_penalty_does_not_make_a_dead_group_live() -> None:
    # Arms 2 and 3 are 3 and 4 factors of at most 4: their rewards are shaped, so the shaped ones differ in EVERY group.
    shaped = stage_of(3, max_completion_length=4, overlong={"buffer": 0.5})
    recorder = ran(trainer_of(LongPolicy(), TASK, shaped, **WORLD))
    assert prompts_by_step(recorder.samples) == simulated(10, 3, LIVE)
    assert {number(sample) for sample in recorder.samples if sample["advantage"]} <= LIVE
    unfiltered = ran(trainer_of(LongPolicy(), TASK, grpo_stage(**DYNAMIC | shaped_only(shaped)), **WORLD))
    assert {number(sample) for sample in unfiltered.samples if sample["advantage"]} == set(range(PROMPTS))


def shaped_only(stage: Any) -> dict[str, object]:
    return {"max_completion_length": stage.max_completion_length, "overlong": stage.overlong.model_dump()}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"advantage": {"scale_rewards": "batch"}},
        {"method": "reinforce_pp", "beta": 0.1},
        {"advantage": {"baseline": "running", "scale_rewards": "running"}},
        {"method": "gtpo"},
        {"minibatches": 2, "num_iterations": 2, "skip_without_signal": False},
    ],
)
def test_where_all_are_dead_nothing_is_learned_and_all_is_counted(changes: dict[str, object]) -> None:
    trainer = trainer_of(ScriptedPolicy(), ALL_DEAD, stage_of(3, max_steps=2, **changes), **WORLD)
    recorder = ran(trainer)
    assert recorder.column("update") == [0, 0]
    assert recorder.column("groups/discarded") == [6, 6]
    assert recorder.column("completions") == [24, 48]
    assert trainer.update.state() == {}


class Stop(Callback):
    """Ends the run at its first look at a rollout."""

    def before_update(self, row: Row, table: StepTable) -> Ending | None:
        return Ending(status="INVALID_ROLLOUT", message="stop")


def test_a_guard_that_stops_is_asked_before_anything_is_sampled_again() -> None:
    trainer, recorder = trainer_of(ScriptedPolicy(), ALL_DEAD, stage_of(), **WORLD), Recorder()
    trainer.callbacks = [Stop()]
    assert drive(trainer.steps(), recorder).status == "INVALID_ROLLOUT"
    assert prompts_by_step(recorder.samples) == simulated(1, 1, set())
    assert (recorder.column("completions"), recorder.column("update")) == ([2 * K], [0])


def test_without_it_dead_groups_stay_and_none_is_discarded() -> None:
    recorder = ran(trainer_of(ScriptedPolicy(), TASK, grpo_stage(**DYNAMIC), **WORLD))
    assert prompts_by_step(recorder.samples) == simulated(10, 1, LIVE)
    assert recorder.column("groups/discarded") == [0] * 10
    assert recorder.column("completions") == [8 * step for step in range(1, 11)]


def test_a_virtual_best_sample_makes_an_all_wrong_group_live() -> None:
    # Dead prompts pay 0.3 for all: with a virtual 1.0 beside them they have a signal, so nothing is replaced.
    stage = stage_of(method="ngrpo", max_steps=4)
    recorder = ran(trainer_of(ScriptedPolicy(), ALL_DEAD, stage, **WORLD))
    assert recorder.column("groups/discarded") == recorder.column("groups/dead") == [0] * 4
    assert {sample["advantage"] for sample in recorder.samples if float(str(sample["advantage"])) >= 0} == set()


def test_the_curriculum_learns_from_groups_with_a_positive_sample_only() -> None:
    # Prompts 1, 4 and 6 pay up to 3; the others always 0.3, which is below 1.
    raw = {"baseline": "none", "scale_rewards": "none"}
    changes = {"prompts_per_step": 3, "max_steps": 20, "positive_reward": 1.0, "advantage": raw}
    curriculum = grpo_stage(**DYNAMIC | changes)
    recorder = ran(trainer_of(ScriptedPolicy(), TASK, curriculum, **WORLD))
    drawn = prompts_by_step(recorder.samples)
    assert drawn == simulated(20, 1, LIVE, size=3)
    useful = [sum(prompt in LIVE for prompt in step) for step in drawn]
    assert set(useful) == {0, 1, 2}
    assert recorder.column("groups/discarded") == [3 - n for n in useful]
    assert recorder.column("update") == [int(n > 0) for n in useful]
    assert recorder.column("completions") == [12 * step for step in range(1, 21)]
    assert {number(sample) for sample in recorder.samples if sample["advantage"]} <= LIVE


def test_both_filters_together_refill_what_either_leaves_out() -> None:
    # Live are 1, 4 and 6; but of 4's completions none reaches 2.
    task = PricedTask(
        lambda prompt, output: float(output) / (2 if prompt == 4 else 1) if prompt in LIVE else 0.3, prompts=PROMPTS
    )
    recorder = ran(trainer_of(ScriptedPolicy(), task, stage_of(positive_reward=2.0), **WORLD))
    assert prompts_by_step(recorder.samples) == simulated(10, 10, LIVE - {4})


def test_a_group_whose_kept_candidates_are_equal_is_not_live() -> None:
    """Rewards 1 1 0 0 of which the best two are kept: nothing differs among what is learned from."""
    task = PricedTask(lambda problem, output: float(int(output) < 2))
    stage = grpo_stage(max_steps=1, keep_candidates=2, dynamic_sampling={"max_attempts": 2})
    (row,) = ran(trainer_of(ScriptedPolicy(), task, stage)).rows[1:]
    assert row["groups/discarded"] == 4  # two at each of two attempts
    assert row["update"] == 0
