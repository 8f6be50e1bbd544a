"""A run is its stages in order: each with its own clocks, optimiser and end, over one stream of prompts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch

from core.algorithms.schedules import learning_rate
from core.config import CheckpointSpec
from core.health.case import case_of
from core.health.finding import StepTable
from core.health.rules.gains import Ruler, gain_since, no_gain, stage_gains
from core.training.callbacks import Callback, Checkpointing
from core.training.checkpoint import Checkpoints, Snapshot
from core.training.outcome import Ending
from core.training.requests import Learn, Replay, StepDone
from core.training.trainer import Trainer, drive
from tests.fakes import PricedTask, Recorder, ScriptedPolicy, TabularPolicy, asked, ran, run_spec, trainer_of

BEST_IS_2 = PricedTask(lambda prompt, output: 1.0 if output == "2" else 0.0)
FLAT = PricedTask(lambda prompt, output: 0.5)
PLAIN = {"prompts_per_step": 2, "learning_rate": 0.1, "lr_scheduler_type": "constant"}
GROUPS = {**PLAIN, "num_generations": 4}


def stages(**parts: dict[str, object]) -> dict[str, Any]:
    """Stages by name; the name says the kind, but for what follows an underscore."""
    return {
        name: {"kind": name.partition("_")[0], **(PLAIN if name.startswith("sft") else GROUPS), **changes}
        for name, changes in parts.items()
    }


THREE = stages(sft={"max_steps": 3}, rce={"max_steps": 2}, grpo={"max_steps": 4})


def three(**changes: object) -> Trainer:
    return trainer_of(ScriptedPolicy(), BEST_IS_2, **{"stages": THREE, "evaluation": {"eval_steps": 99}, **changes})


def test_they_come_in_order_and_each_ends_with_an_evaluation() -> None:
    trainer = three()
    recorder = ran(trainer)
    assert recorder.column("stage") == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert [row["step"] for row in recorder.rows] == list(range(10))
    assert [row["step"] for row in recorder.rows if "eval/reward" in row] == [0, 3, 5, 9]
    assert "stage" not in recorder.rows[0]
    kinds = [[name for name in ("supervised/loss", "rce/loss", "policy/loss") if name in row] for row in recorder.rows]
    assert kinds == [[], *[["supervised/loss"]] * 3, *[["rce/loss"]] * 2, *[["policy/loss"]] * 4]
    # A supervised step samples nothing; the others 2 x 4.
    assert recorder.column("completions") == [0, 0, 0, 8, 16, 24, 32, 40, 48]
    progress = trainer.progress
    assert (progress.stage, progress.stage_step, progress.stage_updates, progress.updates) == (3, 0, 0, 9)


@pytest.mark.parametrize("seed", range(20))
def test_a_stage_that_moves_nothing_gained_nothing_and_gains_add_up(seed: int) -> None:
    """Imitating `2` makes all of it; the GRPO stage after it has a learning rate of 0."""
    both = stages(sft={"max_steps": 3}, grpo={"max_steps": 3, "learning_rate": 0.0})
    task = PricedTask(lambda prompt, output: 1.0 if output == "2" else 0.1 * prompt, prompts=16, answer="2")
    trainer = trainer_of(TabularPolicy(), task, stages=both, seed=seed, evaluation={"eval_steps": 99})
    rows = ran(trainer).rows
    ruler = Ruler(prompts=16)
    gains = stage_gains(rows, list(both), ruler)
    whole = gain_since(rows, list(both), "sft", ruler)
    assert gains["sft"].paired
    assert whole.paired
    assert gains["grpo"].gain == 0.0  # the same weights and the same draws
    assert sum(one.gain or 0.0 for one in gains.values()) == pytest.approx(whole.gain)
    assert [one.evidence["stage"] for one in no_gain(case_of(trainer.spec, rows))] == ["grpo"]


def unanswered(trainer: Trainer) -> Iterator[Any]:
    """What a run asks for, each before the answer is looked for."""
    steps, answer = trainer.steps(), None
    while True:
        try:
            request: Any = steps.send(answer)
        except StopIteration:
            return
        answer = None if isinstance(request, StepDone) else request.run()
        yield request


def test_each_stage_has_an_optimiser_of_its_own() -> None:
    trainer = three()
    used: list[tuple[object, list[int]]] = []  # an update and its steps; kept alive, so no later one is at its address
    moved: list[float] = []
    counts: list[float] = []
    before = torch.zeros(4)
    for request in unanswered(trainer):
        if isinstance(request, Learn):
            if not used or used[-1][0] is not request.update:
                used.append((request.update, []))
            used[-1][1].append(request.key.step)
        if isinstance(request, StepDone) and request.row["step"]:
            counts.append(float(trainer.update.state().get("logits.step", 0)))
            assert isinstance(trainer.policy, TabularPolicy)
            now = trainer.policy.logits.detach().clone()
            moved, before = [*moved, float((now - before).abs().max())], now
    assert [steps for _, steps in used] == [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
    assert len({id(update) for update, _ in used}) == 3
    assert counts == [1, 2, 0, 1, 0, 1, 2, 3, 4]  # nothing of it goes on to the next stage
    # AdamW's first step is the learning rate times the sign, whatever came before.
    assert [moved[index] for index in (0, 3, 5)] == [pytest.approx(0.1, rel=1e-3)] * 3


def test_each_stages_learning_rate_runs_on_its_own_clock() -> None:
    shapes = stages(
        sft={"max_steps": 3, "lr_scheduler_type": "cosine"},
        rce={"max_steps": 2, "lr_scheduler_type": "linear", "warmup_steps": 1, "learning_rate": 0.2},
        grpo={"max_steps": 4, "lr_scheduler_type": "cosine", "lr_clock": "updates"},
    )
    expected = [
        *(learning_rate(0.1, "cosine", index=i, warmup_steps=0, total_steps=3) for i in range(3)),
        *(learning_rate(0.2, "linear", index=i, warmup_steps=1, total_steps=2) for i in range(2)),
        *(learning_rate(0.1, "cosine", index=i, warmup_steps=0, total_steps=4) for i in range(4)),
    ]
    assert ran(three(stages=shapes)).column("learning_rate") == expected


def test_schedules_and_carried_numbers_start_anew() -> None:
    moving = {"max_steps": 2, "temperature": {"start": 1.5, "end": 0.5, "steps": 2}}
    adaptive = {"adaptive_beta": {"rule": "threshold", "high": 1e-9, "low": 1e-12, "factor": 2.0}, "beta": 0.01}
    running = {"advantage": {"baseline": "running", "scale_rewards": "running"}}
    both = {**moving, **adaptive, **running}
    trainer = three(stages=stages(grpo_a=both, grpo_b=both))
    carried = [sorted(trainer.progress.carried) for asks in unanswered(trainer) if isinstance(asks, StepDone)]
    names = ["beta", *(f"running.{name}" for name in ("count", "mean", "rewards", "variance", "weight"))]
    assert carried == [[], names, [], names, []]  # handed on inside a stage and not beyond it
    recorder = ran(three(stages=stages(grpo_a=both, grpo_b=both)))
    assert recorder.column("temperature") == [1.0, 0.5, 1.0, 0.5]
    assert recorder.column("beta")[0] == recorder.column("beta")[2] == 0.01


def prompts_of(recorder: Recorder) -> list[str]:
    """The prompts in the order they were sampled, each group once."""
    found = []
    for _, step in groupby(recorder.samples, key=lambda sample: sample["step"]):
        found += [str(sample["prompt_id"]) for sample in list(step)[::4]]
    return found


def test_stages_go_on_in_one_order_of_prompts() -> None:
    task = PricedTask(lambda prompt, output: float(output), prompts=6)
    order = stages(rce={"max_steps": 2}, sft={"max_steps": 1}, grpo_a={"max_steps": 2}, grpo_b={"max_steps": 5})
    trainer = trainer_of(ScriptedPolicy(), task, stages=order)
    drawn = prompts_of(ran(trainer))
    assert len(drawn) == trainer.progress.prompts == 18
    for start in (0, 6, 12):
        assert sorted(drawn[start : start + 6]) == [f"train-{i}" for i in range(6)]


def test_epochs_are_passes_over_the_prompts() -> None:
    # 4 prompts, 2 a step: 1.5 epochs are 3 steps; 0.3 epochs are begun, so 1 step.
    spec = run_spec(stages=stages(sft={"epochs": 1.5}, grpo={"epochs": 0.3}))
    assert [stage.max_steps for stage in spec.stages.values()] == [3, 1]
    trainer = three(stages=stages(sft={"epochs": 1.5}, grpo={"epochs": 0.3}))
    assert ran(trainer).column("stage") == [0, 0, 0, 1]


def test_supervised_examples_come_once_an_epoch() -> None:
    trainer = trainer_of(TabularPolicy(), PricedTask(lambda p, o: 0.0, prompts=6), stages=stages(sft={"max_steps": 6}))
    given = [prompt.id for request, _ in asked(trainer) if isinstance(request, Replay) for prompt in request.prompts]
    assert [sorted(given[start : start + 6]) for start in (0, 6)] == [[f"train-{i}" for i in range(6)]] * 2
    assert given[:6] != given[6:]


PATIENT = {"early_stopping": {"patience": 2}}


def flat_run(**parts: dict[str, object]) -> tuple[Any, Recorder, Trainer]:
    """A run whose evaluations never move, evaluated every step."""
    trainer = trainer_of(TabularPolicy(), FLAT, stages=stages(**parts), evaluation={"eval_steps": 1})
    recorder = Recorder()
    return drive(trainer.steps(), recorder), recorder, trainer


def test_a_stage_that_stops_early_makes_way_for_the_next() -> None:
    # The stage's first evaluation is what it is measured by; two more without an improvement end it: step 3.
    ending, recorder, _ = flat_run(grpo_a={"max_steps": 9, **PATIENT}, rce={"max_steps": 2})
    assert recorder.column("stage") == [0, 0, 0, 1, 1]
    assert (ending.status, ending.message) == ("COMPLETED", "all 5 steps done")


def test_the_wait_of_a_stage_starts_with_the_stage() -> None:
    ending, recorder, _ = flat_run(grpo_a={"max_steps": 9, **PATIENT}, grpo_b={"max_steps": 9, **PATIENT})
    assert recorder.column("stage") == [0, 0, 0, 1, 1, 1]
    assert (ending.status, ending.message) == ("STOPPED_EARLY", "stage grpo_b stopped improving")


def test_a_stage_that_gets_better_is_not_stopped() -> None:
    steady = stages(grpo={"max_steps": 8, "num_generations": 32, "early_stopping": {"patience": 1}})
    often = {"eval_steps": 2, "num_generations_eval": 50}
    trainer = trainer_of(TabularPolicy(), BEST_IS_2, stages=steady, evaluation=often)
    assert drive(trainer.steps(), Recorder()).status == "COMPLETED"
    assert trainer.progress.step == 8


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ({"grpo": {"max_steps": 9, **PATIENT}}, "STOPPED_EARLY"),
        ({"grpo_a": {"max_steps": 9, **PATIENT}, "grpo_b": {"max_steps": 2}}, "COMPLETED"),
        ({"grpo": {"max_steps": 3, **PATIENT}}, "COMPLETED"),  # flat only at its last step
    ],
)
def test_a_run_that_was_over_says_the_same_when_resumed(parts: Any, status: str) -> None:
    ending, recorder, first = flat_run(**parts)
    assert ending.status == status
    again = trainer_of(TabularPolicy(), FLAT, stages=stages(**parts), evaluation={"eval_steps": 1})
    again.restore(first.snapshot(), recorder.rows)
    nothing = Recorder()
    assert drive(again.steps(), nothing) == ending
    assert nothing.rows == []


def test_the_last_step_of_all_has_a_checkpoint_also_where_a_stage_ended_early(tmp_path: Path) -> None:
    order = stages(grpo_a={"max_steps": 9, **PATIENT}, rce={"max_steps": 2})
    trainer = trainer_of(TabularPolicy(), FLAT, stages=order, evaluation={"eval_steps": 1})
    checkpoints = Checkpoints(tmp_path, keep=9)
    saving = Checkpointing(checkpoints, CheckpointSpec(save_steps=99), trainer.snapshot, trainer.over)
    trainer.callbacks = [saving]
    drive(trainer.steps(), Recorder())
    assert trainer.progress.step == 5
    assert 5 in checkpoints.steps()


class Between(Callback):
    """Keeps where the run stood between two stages, and ends it after `last`."""

    def __init__(self, last: int = 99) -> None:
        self.stood: list[tuple[int, Snapshot]] = []
        self._last = last

    def after_stage(self, stages: int, snapshot: Callable[[], Snapshot]) -> None:
        self.stood.append((stages, snapshot()))

    def after_step(self, table: StepTable) -> Ending | None:
        return Ending(status="PRUNED", message="enough") if table[-1]["step"] == self._last else None


@pytest.mark.parametrize(
    ("last", "stood"),
    [
        (99, [(1, 3), (2, 5)]),  # not after the last stage: the run is over
        (5, [(1, 3)]),  # a run that ends where a stage does goes on with none
        (3, []),
    ],
)
def test_callbacks_hear_where_a_run_stands_between_two_stages(last: int, stood: list[tuple[int, int]]) -> None:
    trainer, between = three(), Between(last)
    trainer.callbacks = [between]
    drive(trainer.steps(), Recorder())
    assert [(stages, at.progress.step) for stages, at in between.stood] == stood
    assert all(not at.optimizer and at.progress.stage_step == 0 for _, at in between.stood)


def test_a_run_that_goes_on_between_two_stages_says_so_again_and_may_leave_out_its_calibration() -> None:
    first, between = three(), Between()
    first.callbacks = [between]
    whole = ran(first)
    stages, at = between.stood[0]
    for recalibrates in (True, False):
        trainer, again = three(), Between()
        trainer.callbacks, trainer.recalibrates = [again], recalibrates
        trainer.restore(at, whole.rows[:4])
        names = [request.name for request, _ in asked(trainer) if not isinstance(request, StepDone)]
        assert ("calibrate" in names) == recalibrates
        assert again.stood[0][0] == stages == 1
        assert trainer.table == whole.rows


def test_the_learning_rate_falls_on_the_stages_own_plateau() -> None:
    # Flat evaluations at every step. The first is the best so far, each two more without an improvement are a cut,
    # which is felt on the step after it. The second stage has an evaluation of its own to start from.
    plateau = {"lr_plateau": {"patience": 2, "factor": 0.5}, "skip_without_signal": False}
    _, recorder, _ = flat_run(grpo_a={"max_steps": 6, **plateau}, grpo_b={"max_steps": 4, **plateau})
    whole = [0.1, 0.1, 0.1, 0.05, 0.05, 0.025]
    assert recorder.column("learning_rate") == [pytest.approx(rate) for rate in [*whole, *whole[:4]]]


def test_a_supervised_table_says_what_it_was_told() -> None:
    policy = TabularPolicy()
    task = PricedTask(lambda prompt, output: 0.0, answer="3")
    recorder = ran(trainer_of(policy, task, stages=stages(sft={"max_steps": 40})))
    assert policy.chance(3) > 0.9
    losses = recorder.column("supervised/loss")
    assert losses[0] == pytest.approx(math.log(4))  # uniform over four arms
    assert losses[-1] == pytest.approx(-math.log(policy.chance(3)), abs=0.05)
    assert recorder.column("completions") == [0] * 40
    assert recorder.samples == []


def test_a_blended_stage_learns_from_answers_until_their_weight_is_gone() -> None:
    # The task pays for arm 2, its answers are arm 0. start is the weight before step 1: 0.75, 0.5, 0.25, 0, 0.
    weight = {"start": 1.0, "end": 0.0, "steps": 4}
    trainer = trainer_of(ScriptedPolicy(), BEST_IS_2, stages=stages(grpo={"max_steps": 5, "supervised_weight": weight}))
    requests = asked(trainer)
    learned = [request for request, _ in requests if isinstance(request, Learn)]
    scales = [[batch.loss.scale for batch in request.batches[1:]] for request in learned]  # type: ignore[attr-defined]
    assert scales == [[0.75], [0.5], [0.25], [], []]
    rows = [request.row for request, _ in requests if isinstance(request, StepDone)][1:]
    assert ["supervised/loss" in row for row in rows] == [True, True, True, False, False]
    # The metric is the cross-entropy itself, the loss has it times the weight; the surrogate is 0 at ratio 1.
    assert rows[0]["supervised/loss"] == pytest.approx(math.log(4))
    assert rows[0]["loss"] == pytest.approx(0.75 * math.log(4), abs=1e-6)
