"""How a run ends: who is asked, when, and what has happened to the weights by then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pytest

from core.assemble import callbacks
from core.config import EarlyStoppingSpec, GuardSpec
from core.health.finding import Row, StepTable
from core.policies.base import Rollout, Sampling, Scores, Weights
from core.randomness import RowKey
from core.tasks.base import Example
from core.training.callbacks import (
    Callback,
    Checkpointing,
    CollapseGuard,
    EarlyStopping,
    ParentControl,
    RolloutIntegrity,
)
from core.training.checkpoint import Checkpoints
from core.training.outcome import Ending
from core.training.trainer import Trainer, drive
from tests.fakes import PricedTask, Recorder, TabularPolicy, grpo_stage, trainer_of
from tests.logs import Logged

TASK = PricedTask(lambda prompt, output: float(output))
GUARDS = GuardSpec(patience=3, min_length=None)  # a table's outputs are one factor long
STOP = Ending(status="PRUNED", message="enough")


class LyingPolicy(TabularPolicy):
    """Records other log-probs than those it drew with, from its second training rollout on."""

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        rollout = super().sample(prompts, k, how, keys)
        assert rollout.drawn_NT is not None
        return replace(rollout, drawn_NT=rollout.drawn_NT + 1e-3) if keys[0].step >= 2 else rollout


class BlindPolicy(TabularPolicy):
    """Its forward for an update gives no numbers from the third step on."""

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        scores = super().score(rollout, rows, wants=wants, weights=weights)
        if wants or len(self.samplings) < 4:  # the evaluation, and the rollouts of steps 1 and 2
            return scores
        return replace(scores, logprobs_NT=scores.logprobs_NT * nan)


class Asked(Callback):
    """Writes down when it is asked; ends the run where told."""

    def __init__(self, name: str, log: list[str], *, before: int = 0, after: int = 0) -> None:
        self._name, self._log, self._before, self._after = name, log, before, after

    def before_update(self, row: Row, table: StepTable) -> Ending | None:
        self._log.append(f"{self._name} before {row['step']}")
        return replace(STOP, message=self._name) if row["step"] == self._before else None

    def after_step(self, table: StepTable) -> Ending | None:
        self._log.append(f"{self._name} after {table[-1]['step']}")
        return replace(STOP, message=self._name) if table[-1]["step"] == self._after else None


def ended(policy: Any, callbacks: Sequence[Callback], **stage: object) -> tuple[Ending, Recorder]:
    trainer = trainer_of(policy, TASK, grpo_stage(**stage))
    trainer.callbacks = callbacks
    recorder = Recorder()
    return drive(trainer.steps(), recorder), recorder


def test_all_are_asked_in_order_and_the_first_verdict_counts() -> None:
    log: list[str] = []
    callbacks = [Asked("a", log), Asked("b", log, after=2), Asked("c", log, after=2)]
    ending, recorder = ended(TabularPolicy(), callbacks)
    assert log == [
        *("a after 0", "b after 0", "c after 0"),
        *("a before 1", "b before 1", "c before 1", "a after 1", "b after 1", "c after 1"),
        *("a before 2", "b before 2", "c before 2", "a after 2", "b after 2", "c after 2"),
    ]
    assert ending == replace(STOP, message="b")
    assert [row["step"] for row in recorder.rows] == [0, 1, 2]


def test_who_stops_before_the_update_stops_the_update_and_the_step_is_recorded() -> None:
    log: list[str] = []
    policy = TabularPolicy()
    ending, recorder = ended(policy, [Asked("a", log, before=1), Asked("b", log)], max_steps=1)
    assert ending.message == "a"
    assert "b before 1" in log
    assert policy.logits.tolist() == [0.0] * 4
    assert recorder.column("update") == [0]
    assert "eval/reward" not in recorder.rows[-1]  # nor is it evaluated
    assert len(recorder.samples) == 8


def test_a_run_to_the_end_says_so() -> None:
    ending, _ = ended(TabularPolicy(), [])
    assert (ending.status, ending.message, ending.finding) == ("COMPLETED", "all 10 steps done", None)


def test_a_sampler_that_lies_is_stopped_before_it_is_learned_from() -> None:
    policy = LyingPolicy()
    ending, recorder = ended(policy, [RolloutIntegrity(GUARDS, "float32")])
    assert ending.status == "INVALID_ROLLOUT"
    assert ending.finding is not None
    assert ending.finding.id == "rollout-integrity"
    assert recorder.column("update") == [1, 0]
    gap = recorder.rows[-1]["rollout/logprob_gap"]
    assert gap == pytest.approx(1e-3, rel=0.01)
    one_step = TabularPolicy()
    ended(one_step, [], max_steps=1)
    assert policy.logits.tolist() == one_step.logits.tolist()  # as after the first step


@pytest.mark.parametrize("action", ["warn", "off"])
def test_told_only_to_warn_a_guard_lets_the_run_go_on(action: str) -> None:
    guards = GUARDS.model_copy(update={"rollout_integrity": action, "collapse": action})
    callbacks = [RolloutIntegrity(guards, "float32"), CollapseGuard(guards)]
    trainer = trainer_of(LyingPolicy(), PricedTask(lambda p, o: float(o), valid=lambda o: False), grpo_stage())
    trainer.callbacks = callbacks
    assert drive(trainer.steps(), Recorder()).status == "COMPLETED"


def test_told_to_warn_a_guard_logs_the_first_of_each_kind(logged: Logged) -> None:
    guards = GUARDS.model_copy(update={"rollout_integrity": "warn"})
    guard = RolloutIntegrity(guards, "float32")
    for step in (1, 2, 3):
        assert guard.before_update({"step": step, "rollout/logprob_gap": 0.5}, []) is None
    assert [record.levelname for record in logged.records] == ["WARNING"]
    assert "rollout-integrity" in logged.records[0].getMessage()


# In bf16 a gap of 0.02 is far below what any model may round (0.3), and twice what this run measured of itself.
BEYOND = {"rollout/logprob_gap": 0.02, "rollout/detectable_gap": 0.01}


@pytest.mark.parametrize(
    ("changes", "status"),
    [({}, "INVALID_ROLLOUT"), ({"noise_factor": None}, None), ({"max_logprob_gap": 0.3}, None)],
)
def test_the_guard_judges_by_the_runs_own_noise(changes: dict[str, Any], status: str | None) -> None:
    guard = RolloutIntegrity(GUARDS.model_copy(update=changes), "bfloat16")
    assert guard.before_update({"step": 4, **BEYOND}, [{"step": 3, "rollout/logprob_gap": 0.001}]) is None
    ending = guard.before_update({"step": 5, **BEYOND}, [{"step": 4, **BEYOND}])
    assert (ending.status if ending is not None else None) == status


def test_a_run_that_is_resumed_where_sampler_and_trainer_disagree_makes_no_step() -> None:
    def lying(prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        rollout = TabularPolicy.sample(second.policy, prompts, k, how, keys)
        assert rollout.drawn_NT is not None
        return replace(rollout, drawn_NT=rollout.drawn_NT + 1e-2)

    first = trainer_of(TabularPolicy(), TASK, grpo_stage(max_steps=4))
    killed = Recorder(stop_at=2)
    with pytest.raises(KeyboardInterrupt):
        drive(first.steps(), killed)
    second = trainer_of(TabularPolicy(), TASK, grpo_stage(max_steps=4))
    second.restore(first.snapshot(), killed.rows)
    second.policy.sample = lying  # type: ignore[method-assign]
    second.callbacks = [RolloutIntegrity(GUARDS, "float32")]
    recorder = Recorder()
    assert drive(second.steps(), recorder).status == "INVALID_ROLLOUT"
    assert recorder.rows == []


def test_the_limit_of_the_spec_overrides_the_table() -> None:
    guards = GUARDS.model_copy(update={"max_logprob_gap": 0.01})
    assert ended(LyingPolicy(), [RolloutIntegrity(guards, "float32")])[0].status == "COMPLETED"


@pytest.mark.parametrize(("patience", "last"), [(1, 1), (3, 3), (10, 10), (11, None)])
def test_nothing_valid_for_a_while_is_a_collapse(patience: int, last: int | None) -> None:
    guards = GUARDS.model_copy(update={"patience": patience})
    trainer = trainer_of(TabularPolicy(), PricedTask(lambda p, o: float(o), valid=lambda o: False), grpo_stage())
    trainer.callbacks = [CollapseGuard(guards)]
    recorder = Recorder()
    ending = drive(trainer.steps(), recorder)
    if last is None:
        assert ending.status == "COMPLETED"
    else:
        assert ending.status == "COLLAPSED"
        assert ending.finding is not None
        assert ending.message == ending.finding.summary
        assert recorder.rows[-1]["step"] == last


def test_a_loss_that_is_no_number_ends_the_run_at_once_and_moves_nothing() -> None:
    policy = BlindPolicy()
    ending, recorder = ended(policy, [CollapseGuard(GUARDS)])
    assert ending.status == "COLLAPSED"
    assert "step 3: loss is not a finite number; the update was not applied" in ending.message
    assert recorder.column("update") == [1, 1, 0]
    assert recorder.rows[-1]["loss"] is None  # what is no number is recorded as none
    two_steps = TabularPolicy()
    ended(two_steps, [], max_steps=2)
    assert policy.logits.tolist() == two_steps.logits.tolist()


def stopped_at(spec: EarlyStoppingSpec, values: Mapping[int, float | None]) -> int | None:
    """The step at which early stopping ends a run with these evaluations; other steps have none."""
    rows: list[Row] = []
    for step in range(max(values) + 1):
        rows.append({"step": step, **({spec.metric: values[step]} if step in values else {})})
        ending = EarlyStopping(spec).after_step(rows)
        if ending is not None:
            assert ending.status == "STOPPED_EARLY"
            return step
    return None


@pytest.mark.parametrize(
    ("patience", "min_delta", "values", "last"),
    [
        # Two evaluations in a row without an improvement on the best.
        (2, 0.0, {0: 0.5, 10: 0.6, 20: 0.6, 30: 0.55}, 30),
        (2, 0.0, {0: 0.5, 10: 0.6, 20: 0.6, 30: 0.61, 40: 0.6, 50: 0.6}, 50),
        (2, 0.0, {0: 0.5, 10: 0.4, 20: 0.3}, 20),  # the start counts as an evaluation
        (1, 0.0, {0: 0.5, 10: 0.5}, 10),
        (3, 0.0, {0: 0.5, 10: 0.4, 20: 0.4}, None),
        # An improvement must be MORE than min_delta, and small ones do not add up unless they beat the best by it.
        (1, 0.125, {0: 0.5, 10: 0.625}, 10),
        (1, 0.125, {0: 0.5, 10: 0.626}, None),
        (2, 0.125, {0: 0.5, 10: 0.6, 20: 0.62}, 20),
        (2, 0.125, {0: 0.5, 10: 0.6, 20: 0.63}, None),
        # An evaluation that gave no number is none.
        (2, 0.0, {0: 0.5, 10: 0.4, 20: None, 30: 0.4}, 30),
        (1, 0.0, {0: None, 10: 0.4}, None),
    ],
)
def test_early_stopping(patience: int, min_delta: float, values: dict[int, float | None], last: int | None) -> None:
    assert stopped_at(EarlyStoppingSpec(patience=patience, min_delta=min_delta), values) == last


def test_early_stopping_watches_the_metric_it_is_told() -> None:
    spec = EarlyStoppingSpec(patience=1, metric="eval/valid")
    assert stopped_at(spec, {0: 0.5, 10: 0.5}) == 10
    assert EarlyStopping(spec).after_step([{"step": 0, "eval/reward": 0.5}, {"step": 1, "eval/reward": 0.1}]) is None


def test_early_stopping_says_what_was_best() -> None:
    rows: list[Row] = [{"step": s, "eval/reward": v} for s, v in ((0, 0.1), (10, 0.7), (20, 0.6), (30, 0.5))]
    ending = EarlyStopping(EarlyStoppingSpec(patience=2)).after_step(rows)
    assert ending is not None
    facts = ("eval/reward", "0.7000", "step 10", "2 evaluations")
    assert [fact for fact in facts if fact not in ending.message] == []


ENOUGH = Ending(status="PRUNED", message="the median was better")


def trainer() -> Trainer:
    return trainer_of(TabularPolicy(), TASK, grpo_stage(), evaluation={"eval_steps": 3})


def test_it_is_asked_after_each_evaluated_step_when_that_is_recorded() -> None:
    run, recorder, asked = trainer(), Recorder(), []

    def ask(step: int) -> Ending | None:
        asked.append((step, recorder.rows[-1]["step"]))
        return None

    run.callbacks = [ParentControl(ask)]
    assert drive(run.steps(), recorder).status == "COMPLETED"
    assert asked == [(3, 3), (6, 6), (9, 9), (10, 10)]  # not before the first step


@pytest.mark.parametrize(("at", "end"), [(3, 3), (4, None), (6, 6), (0, None)])
def test_what_it_says_ends_the_run_there(at: int, end: int | None) -> None:
    run, recorder = trainer(), Recorder()
    run.callbacks = [ParentControl(lambda step: ENOUGH if step == at else None)]
    ending = drive(run.steps(), recorder)
    assert (ending == ENOUGH) == (end is not None)
    assert recorder.rows[-1]["step"] == (end or 10)


def test_it_is_asked_before_checkpoints_are_written_and_only_where_there_is_one(tmp_path: Path) -> None:
    run, checkpoints = trainer(), Checkpoints(tmp_path, 2)
    found = callbacks(run.spec, run, checkpoints, lambda step: ENOUGH)
    assert [type(one) for one in found[-2:]] == [ParentControl, Checkpointing]
    assert not any(isinstance(one, ParentControl) for one in callbacks(run.spec, run, checkpoints))
    run.callbacks = found
    assert drive(run.steps(), Recorder()) == ENOUGH
    assert checkpoints.steps() == [3]  # the first evaluation is the best so far
