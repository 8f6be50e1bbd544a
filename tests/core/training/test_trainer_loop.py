"""The loop with a table for a policy: what it asks for, what it learns, what it counts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from math import nan

import pytest

from core.algorithms.schedules import learning_rate
from core.config import GrpoStage
from core.errors import ModelError, TaskError
from core.randomness import DROPOUT
from core.training.requests import Learn, Score, StepDone
from core.training.trainer import Trainer, drive
from tests.fakes import PricedTask, Recorder, TabularPolicy, asked, grpo_stage, ran, trainer_of

BEST_IS_2 = PricedTask(lambda prompt, output: 1.0 if output == "2" else 0.0)
WORST_IS_2 = PricedTask(lambda prompt, output: -1.0 if output == "2" else 0.0)
NO_SIGNAL = PricedTask(lambda prompt, output: 0.3)


def half_dead() -> PricedTask:
    """Two of four prompts pay for the arm, the other two always pay 0.3."""
    return PricedTask(lambda prompt, output: float(output) if prompt % 2 else 0.3)


LONG = grpo_stage(max_steps=60, num_generations=8)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"advantage": {"scale_rewards": "none"}},
        {"beta": 0.01},
        {"temperature": {"start": 1.5, "end": 0.7, "steps": 30}},
        {"gradient_accumulation_steps": 3, "reduction": "sequence_mean"},
    ],
)
def test_it_learns_the_best_arm(changes: dict[str, object]) -> None:
    policy = TabularPolicy()
    recorder = ran(trainer_of(policy, BEST_IS_2, GrpoStage.model_validate(LONG.model_dump() | changes)))
    assert policy.chance(2) > 0.75  # it started at 0.25
    start, final = recorder.rows[0]["eval/reward"], recorder.rows[-1]["eval/reward"]
    assert start is not None
    assert final is not None
    assert final > start


def test_it_learns_from_the_sign_of_the_reward() -> None:
    policy = TabularPolicy()
    ran(trainer_of(policy, WORST_IS_2, LONG))
    assert policy.chance(2) < 0.1
    assert policy.chance(0) > 0.2


def test_a_strong_penalty_holds_it_at_the_reference() -> None:
    # The reference is uniform. Without the penalty, arm 2 ends above 0.75.
    policy = TabularPolicy()
    ran(trainer_of(policy, BEST_IS_2, grpo_stage(max_steps=60, num_generations=8, beta=5.0)))
    assert 0.2 < policy.chance(2) < 0.4


def test_a_run_that_rewards_nothing_ends_after_ten_steps() -> None:
    """One reward in ten steps is enough to go on: the count begins anew."""
    with pytest.raises(TaskError, match="no completion had a reward, 10 steps in a row: the task"):
        ran(trainer_of(TabularPolicy(), PricedTask(lambda prompt, output: nan), grpo_stage(max_steps=11)))
    scored = itertools.count()

    def price(prompt: int, output: str) -> float:
        return 1.0 if next(scored) % 70 == 69 else nan  # steps and evaluations have 8 completions each

    stage = grpo_stage(max_steps=30, num_generations=4, prompts_per_step=2)
    recorder = ran(trainer_of(TabularPolicy(), PricedTask(price), stage, evaluation={"eval_steps": 99}))
    assert recorder.column("reward/missing").count(1.0) > 20


def test_a_run_that_rewarded_nothing_goes_on_where_that_is_mended() -> None:
    trainer = trainer_of(TabularPolicy(), PricedTask(lambda prompt, output: nan), grpo_stage(max_steps=12))
    recorder = Recorder()
    with pytest.raises(TaskError):
        drive(trainer.steps(), recorder)
    mended = trainer_of(TabularPolicy(), BEST_IS_2, grpo_stage(max_steps=12))
    mended.restore(trainer.snapshot(), recorder.rows)
    assert drive(mended.steps(), Recorder()).status == "COMPLETED"


def test_a_policy_that_gives_no_entropies_though_it_has_them_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = TabularPolicy()
    score = policy.score
    monkeypatch.setattr(policy, "score", lambda *args, **named: replace(score(*args, **named), entropies_NT=None))
    with pytest.raises(ModelError, match="policy lm says that it has entropies and scored without them"):
        ran(trainer_of(policy, BEST_IS_2, grpo_stage(max_steps=2)))


def test_a_missing_reward_is_no_bad_reward() -> None:
    # Arm 3 cannot be scored. As 0 it would be as good as 0 and 1 and lose to 2; left out, nothing is said about it.
    policy = TabularPolicy()
    prices = {"0": 0.0, "1": 0.0, "2": 1.0, "3": nan}
    recorder = ran(trainer_of(policy, PricedTask(lambda prompt, output: prices[output]), LONG))
    assert policy.chance(2) > 3 * policy.chance(3) > 6 * policy.chance(0)
    shares = [share for share in recorder.column("reward/missing") if share]
    assert shares
    missing = [sample for sample in recorder.samples if sample["text"] == "3"]
    assert missing
    assert {sample["advantage"] for sample in missing} == {0.0}


def test_without_signal_the_update_is_skipped() -> None:
    policy = TabularPolicy()
    recorder = ran(trainer_of(policy, NO_SIGNAL, grpo_stage()))
    assert recorder.column("update") == [0] * 10
    assert recorder.column("groups/dead") == [1.0] * 10
    assert recorder.column("loss") == [None] * 10
    assert policy.logits.tolist() == [0.0] * 4


def test_where_the_spec_says_so_an_update_without_signal_is_made() -> None:
    trainer = trainer_of(TabularPolicy(), NO_SIGNAL, grpo_stage(skip_without_signal=False))
    assert ran(trainer).column("update") == [1] * 10
    assert trainer.progress.updates == 10


def test_updates_are_the_steps_with_a_live_group() -> None:
    trainer = trainer_of(TabularPolicy(), half_dead(), grpo_stage(max_steps=40, num_generations=2))
    recorder = ran(trainer)
    dead, update = recorder.column("groups/dead"), recorder.column("update")
    assert set(dead) == {0.0, 0.5, 1.0}
    assert update == [int(share != 1.0) for share in dead]
    assert trainer.progress.updates == sum(int(u or 0) for u in update)


def kinds(trainer: Trainer) -> list[list[str]]:
    """The names of all requests, cut after each finished step."""
    steps: list[list[str]] = [[]]
    for request, _ in asked(trainer):
        if isinstance(request, StepDone):
            steps.append([])
        else:
            weights = getattr(request, "weights", "current")
            steps[-1].append(request.name if weights == "current" else f"{request.name} {weights}")
    return steps[:-1]


SAMPLE, REWARD, CLEAN, REFERENCE, LEARN = "sample", "reward", "score", "score reference", "learn"
EVALUATE = ["evaluate", "evaluate", "evaluate"]  # sampled, scored, and looked at: an evaluation must be sound, too
START = [*EVALUATE, *["calibrate"] * 5, "probe"]  # the four held-out prompts scored together, and each alone


@pytest.mark.parametrize(
    ("task", "beta", "expected"),
    [
        (
            BEST_IS_2,
            0.0,
            [
                [SAMPLE, REWARD, CLEAN, LEARN],
                [SAMPLE, REWARD, CLEAN, LEARN, *EVALUATE],
                [SAMPLE, REWARD, CLEAN, LEARN, *EVALUATE],
            ],
        ),
        (
            BEST_IS_2,
            0.1,
            [
                [SAMPLE, REWARD, CLEAN, REFERENCE, LEARN],
                [SAMPLE, REWARD, CLEAN, REFERENCE, LEARN, *EVALUATE],
                [SAMPLE, REWARD, CLEAN, REFERENCE, LEARN, *EVALUATE],
            ],
        ),
        # Without signal nothing is learned, but integrity is still looked at.
        (
            NO_SIGNAL,
            0.1,
            [[SAMPLE, REWARD, CLEAN], [SAMPLE, REWARD, CLEAN, *EVALUATE], [SAMPLE, REWARD, CLEAN, *EVALUATE]],
        ),
    ],
)
def test_what_a_step_asks_for(task: PricedTask, beta: float, expected: list[list[str]]) -> None:
    stage = grpo_stage(max_steps=3, beta=beta, num_generations=16)
    assert kinds(trainer_of(TabularPolicy(), task, stage, evaluation={"eval_steps": 2})) == [START, *expected]


def test_each_group_takes_its_turn_at_the_integrity_check_and_each_update_has_its_own_dropout() -> None:
    trainer = trainer_of(TabularPolicy(), BEST_IS_2, grpo_stage(max_steps=3, num_generations=16), seed=5)
    requests = [request for request, _ in asked(trainer)]
    checked = [list(request.rows) for request in requests if isinstance(request, Score) and request.name == "score"]
    keys = [request.key for request in requests if isinstance(request, Learn)]
    assert checked == [list(range(16)), list(range(16, 32)), list(range(16))]
    assert keys == [(5, DROPOUT, step, 0, 0) for step in (1, 2, 3)]


@pytest.mark.parametrize(
    ("max_steps", "eval_steps", "evaluated"),
    [(10, 4, [0, 4, 8, 10]), (10, 5, [0, 5, 10]), (3, 10, [0, 3]), (4, 1, [0, 1, 2, 3, 4])],
)
def test_it_evaluates_before_every_n_steps_and_at_the_end(
    max_steps: int, eval_steps: int, evaluated: list[int]
) -> None:
    stage = grpo_stage(max_steps=max_steps)
    recorder = ran(trainer_of(TabularPolicy(), BEST_IS_2, stage, evaluation={"eval_steps": eval_steps}))
    assert [row["step"] for row in recorder.rows if "eval/reward" in row] == evaluated


def test_row_0_is_the_evaluation_before_training() -> None:
    recorder = ran(trainer_of(TabularPolicy(), BEST_IS_2, grpo_stage()))
    assert set(recorder.rows[0]) - {"step", "completions", "tokens"} == {
        "eval/reward",
        "eval/reward_se",
        "eval/temperature",
        "eval/logprob_gap",
        "rollout/noise",
        "rollout/noise_mean",
        "rollout/rescoring_gap",
        "eval/valid",
        "eval/length",
        "eval/truncated",
    }
    assert (recorder.rows[0]["step"], recorder.rows[0]["completions"]) == (0, 0)
    assert [sample["step"] for sample in recorder.samples] == [step for step in range(1, 11) for _ in range(8)]


class Compared(PricedTask):
    """A task that knows what an output at random would earn."""

    def baselines(self) -> Mapping[str, Mapping[str, float]]:
        return {"random": {"eval/reward": 0.25, "eval/rewards/short": 0.5}}


def test_baselines_of_the_task_stand_in_row_0_alone() -> None:
    recorder = ran(trainer_of(TabularPolicy(), Compared(lambda *_: 1.0), grpo_stage(max_steps=2)))
    assert recorder.rows[0] | {"baseline/random": 0.25, "baseline/random.short": 0.5} == recorder.rows[0]
    assert not any(name.startswith("baseline/") for row in recorder.rows[1:] for name in row)


def test_greedy_outputs_are_those_of_the_weights_as_they_are() -> None:
    policy = TabularPolicy()
    trainer = trainer_of(policy, PricedTask(lambda *_: 1.0))
    records = trainer.greedy_records()
    assert [record["prompt_id"] for record in records] == [example.id for example in trainer.task.examples("eval")]
    assert len({record["problem"] for record in records}) == len(records)  # other inputs, another problem
    assert policy.samplings[-1].top_k == 1


def test_evaluations_draw_the_same_numbers_at_their_own_temperature() -> None:
    policy = TabularPolicy()
    stage = grpo_stage(max_steps=4, temperature=0.3, top_k=2, top_p=0.5, max_completion_length=8, min_p=0.1,
                       repetition_penalty=1.2, stop_strings=["b", "a"])  # fmt: skip
    task = PricedTask(lambda prompt, output: 0.3, valid=lambda output: output == "2")  # nothing to learn from
    recorder = ran(trainer_of(policy, task, stage, evaluation={"eval_steps": 1, "temperature": 0.7}))
    assert len({row["eval/valid"] for row in recorder.rows}) == 1  # so the same draws give the same shares
    evaluations = [how for how in policy.samplings if how.temperature == 0.7]
    assert len(evaluations) == 5
    assert {(how.top_k, how.top_p, how.max_completion_length) for how in evaluations} == {(0, 1.0, 8)}
    assert {(how.min_p, how.repetition_penalty, how.stop_strings) for how in evaluations} == {(0.0, 1.0, ("b", "a"))}
    training = [how for how in policy.samplings if how.temperature == 0.3]
    assert {(how.top_k, how.top_p, how.min_p, how.repetition_penalty) for how in training} == {(2, 0.5, 0.1, 1.2)}
    assert {how.stop_strings for how in training} == {("b", "a")}


def test_the_best_evaluation_is_remembered() -> None:
    trainer = trainer_of(TabularPolicy(), BEST_IS_2, LONG, evaluation={"eval_steps": 5, "num_generations_eval": 3})
    values = {int(row["step"] or 0): row["eval/reward"] for row in ran(trainer).rows if "eval/reward" in row}
    best = max(value for value in values.values() if value is not None)
    assert trainer.progress.best_value == best
    assert trainer.progress.best_step == next(step for step, value in values.items() if value == best)  # the first
    assert best > (values[0] or 0)


def test_temperature_moves_with_the_step() -> None:
    stage = grpo_stage(max_steps=4, temperature={"start": 0.3, "end": 0.1, "steps": 2})
    recorder = ran(trainer_of(TabularPolicy(), BEST_IS_2, stage))
    # start stands before step 1: 0.3 - 0.2 * 1/2, then the end.
    assert recorder.column("temperature") == [pytest.approx(value) for value in (0.2, 0.1, 0.1, 0.1)]


def rates(stage: GrpoStage, indices: list[int]) -> list[float]:
    return [
        learning_rate(0.05, "cosine", index=i, warmup_steps=3, total_steps=stage.lr_scheduler_steps or 40)
        for i in indices
    ]


@pytest.mark.parametrize("horizon", [None, 20])
@pytest.mark.parametrize("clock", ["steps", "updates"])
def test_the_clock_of_the_learning_rate(clock: str, horizon: int | None) -> None:
    stage = grpo_stage(
        max_steps=40,
        num_generations=2,
        lr_scheduler_type="cosine",
        warmup_steps=3,
        lr_clock=clock,
        lr_scheduler_steps=horizon,
    )
    recorder = ran(trainer_of(TabularPolicy(), half_dead(), stage))
    updated = [row for row in recorder.rows if row.get("update") == 1]
    assert 5 < len(updated) < 35  # both kinds of steps happen, so the two clocks differ
    ticks = [int(row["step"] or 0) - 1 for row in updated] if clock == "steps" else list(range(len(updated)))
    assert [row["learning_rate"] for row in updated] == rates(stage, ticks)


def test_with_a_warm_up_the_first_update_moves_nothing() -> None:
    policy = TabularPolicy()
    stage = grpo_stage(max_steps=1, warmup_steps=1, lr_clock="updates", lr_scheduler_steps=10, num_generations=16)
    recorder = ran(trainer_of(policy, BEST_IS_2, stage))
    assert (recorder.column("update"), recorder.column("learning_rate")) == ([1], [0.0])
    assert policy.logits.tolist() == [0.0] * 4
    again = grpo_stage(max_steps=2, warmup_steps=1, lr_clock="updates", lr_scheduler_steps=10, num_generations=16)
    ran(trainer_of(policy, BEST_IS_2, again))
    assert policy.logits.tolist() != [0.0] * 4


def prompts_by_step(recorder: Recorder) -> list[list[object]]:
    """The prompt ids of each step, each group once."""
    steps = groupby(recorder.samples, key=lambda sample: sample["step"])
    return [[prompt for prompt, _ in groupby(sample["prompt_id"] for sample in step)] for _, step in steps]


def test_every_prompt_comes_once_an_epoch_in_another_order() -> None:
    stage = grpo_stage(max_steps=9, prompts_per_step=2, num_generations=2)
    task = PricedTask(lambda prompt, output: 0.0, prompts=6)
    drawn = [prompt for step in prompts_by_step(ran(trainer_of(TabularPolicy(), task, stage))) for prompt in step]
    epochs = [drawn[start : start + 6] for start in (0, 6, 12)]
    assert all(sorted(map(str, epoch)) == [f"train-{i}" for i in range(6)] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    again = [p for step in prompts_by_step(ran(trainer_of(TabularPolicy(), task, stage, seed=1))) for p in step]
    assert again != drawn  # the order belongs to the seed


def test_steps_and_seeds_draw_differently() -> None:
    texts = {}
    for seed in (0, 1):
        recorder = ran(trainer_of(TabularPolicy(), NO_SIGNAL, grpo_stage(num_generations=16), seed=seed))
        texts[seed] = [tuple(s["text"] for s in recorder.samples if s["step"] == step) for step in range(1, 11)]
    assert len(set(texts[0] + texts[1])) == 20


def test_what_was_drawn_is_written_down() -> None:
    recorder = ran(trainer_of(TabularPolicy(), half_dead(), grpo_stage(max_steps=3)))
    first = [sample for sample in recorder.samples if sample["step"] == 1]
    assert [sample["row"] for sample in first] == list(range(8))
    for sample in recorder.samples:
        assert set(sample) == {"step", "row", "prompt_id", "text", "valid", "reward", "advantage"}
        number = int(str(sample["prompt_id"]).rpartition("-")[2])
        assert sample["reward"] == (float(str(sample["text"])) if number % 2 else 0.3)
    assert recorder.column("completions") == [8, 16, 24]
