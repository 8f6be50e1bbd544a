"""What a trial's runs add up to: bad is told from failed, and a decision counts where a run ended by it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.health.rules.gains import Ruler
from grpoctl.executors.execution import read_control
from grpoctl.files import RowWriter, read_json, replace_json
from grpoctl.runs import status
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import Status, StatusRecord, TrialStatus
from grpoctl.sweeps.optuna_conversion import optuna_state
from grpoctl.sweeps.state import Curve, TrialRecord
from grpoctl.sweeps.trial import ActiveTrial, Yardstick

YARDSTICK = Yardstick(metric="eval/reward", take="final", worst=0.0, unit="completions", budget=100.0)


def below_half(curve: Curve) -> str | None:
    """A rule that can be read: the last report says."""
    return "too low" if curve[-1].value < 0.5 else None


def flying(folder: Path, seeds: int = 2, **more: Any) -> ActiveTrial:
    runs = tuple(RunDir(path=folder / f"study-t0000-s{seed}") for seed in range(seeds))
    for run in runs:
        run.path.mkdir()
    return ActiveTrial(
        TrialRecord(number=0, params={}, seeds=tuple(range(seeds))), runs, YARDSTICK, more.get("decide", below_half)
    )


def ended(run: RunDir, how: str, value: float | None = 0.6) -> None:
    """The run's files as its end leaves them; None: no evaluation."""
    final = {"completions": 100, "tokens": 900, **({} if value is None else {"eval/reward": value})}
    replace_json(run.result, {"status": how, "message": "as told", "final": final, "findings": []})
    status.write(run.status, StatusRecord(status=Status(how), pid=1, started=1.0, ended=2.0))


def reported(trial: ActiveTrial, seed: int, *rows: tuple[int, float | None]) -> list[Any]:
    """Each (completions, value) recorded and told in turn; what the run reads after each: (seen, end)."""
    run, orders = trial.runs[seed], []
    with RowWriter(run.metrics) as writer:
        for step, (completions, value) in enumerate(rows, start=1):
            row = {"step": step, "completions": completions, "eval/reward": value}
            writer.append(row)
            trial.report(run, json.loads(json.dumps(row)))
            order = read_control(run.control)
            assert order is not None
            orders.append((order.seen, None if order.end is None else order.since))
    return orders


@pytest.mark.parametrize(
    ("ways", "found", "state", "score"),
    [
        ([("COMPLETED", 0.6), ("COMPLETED", 0.4)], TrialStatus.COMPLETED, "COMPLETE", 0.5),
        ([("COMPLETED", 0.6), ("STOPPED_EARLY", 0.4)], TrialStatus.COMPLETED, "COMPLETE", 0.5),
        ([("COMPLETED", 0.6), ("COLLAPSED", 0.4)], TrialStatus.COLLAPSED, "COMPLETE", 0.3),  # (0.6 + worst) / 2
        ([("COLLAPSED", 0.6), ("COLLAPSED", None)], TrialStatus.COLLAPSED, "COMPLETE", 0.0),
        ([("INVALID_ROLLOUT", None), ("COLLAPSED", 0.4)], TrialStatus.INVALID_ROLLOUT, "COMPLETE", 0.0),
        ([("COMPLETED", 0.6), ("PRUNED", 0.4)], TrialStatus.PRUNED, "PRUNED", 0.5),
        ([("COLLAPSED", 0.6), ("PRUNED", 0.4)], TrialStatus.COLLAPSED, "COMPLETE", 0.0),  # half a budget has no say
        ([("COMPLETED", 0.6), ("COMPLETED", None)], TrialStatus.FAILED, "FAIL", None),  # its metric is missing
        ([("COMPLETED", 0.6), ("FAILED", 0.4)], TrialStatus.FAILED, "FAIL", None),
        ([("COMPLETED", 0.6)], TrialStatus.FAILED, "FAIL", None),  # a seed was never run
    ],
)
def test_bad_is_told_from_failed(
    tmp_path: Path, ways: Sequence[tuple[str, float | None]], found: TrialStatus, state: str, score: float | None
) -> None:
    trial = flying(tmp_path)
    for run, (how, value) in zip(trial.runs, ways, strict=False):
        ended(run, how, value)
        if how == "PRUNED":
            trial.give_up(run)
    record = trial.ended()
    assert (record.status, optuna_state(record)) == (found, state)
    assert record.score == (None if score is None else pytest.approx(score))
    assert record.completions == 100 * len(ways)


def test_a_run_is_told_at_each_evaluation_and_ends_at_the_first_that_is_too_low(tmp_path: Path) -> None:
    trial = flying(tmp_path)
    assert reported(trial, 0, (25, 0.6), (50, 0.4), (75, 0.7)) == [(1, None), (2, 2), (3, 2)]
    assert trial.curve == ((0, 0.25, 0.6), (0, 0.5, 0.4), (0, 0.75, 0.7))


def test_at_its_end_a_run_needs_no_word_and_a_report_without_a_number_is_only_seen(tmp_path: Path) -> None:
    trial = flying(tmp_path)
    assert reported(trial, 0, (50, None), (100, 0.4)) == [(1, None), (2, None)]
    assert trial.curve == ((0, 1.0, 0.4),)
    assert reported(trial, 1, (25, 0.4)) == [(1, 1)]  # the next seed's first one decides


def test_an_evaluation_before_anything_is_spent_replaces_nothing(tmp_path: Path) -> None:
    """Seed 3 begins with supervised steps, at share 0 of its budget: seed 7's end, at share 1, stays what it was."""
    trial = flying(tmp_path)
    trial.record = dataclasses.replace(trial.record, seeds=(7, 3))
    reported(trial, 0, (0, 0.5), (0, 0.55), (50, 0.6), (100, 0.7))
    reported(trial, 1, (0, 0.51), (100, 0.8))
    assert trial.curve == (
        (7, 0.0, 0.5), (7, 0.0, 0.55), (7, 0.5, 0.6), (7, 1.0, 0.7), (3, 0.0, 0.51), (3, 1.0, 0.8),
    )  # fmt: skip


def test_a_run_is_read_again_without_a_point_twice(tmp_path: Path) -> None:
    trial = flying(tmp_path)
    reported(trial, 0, (50, 0.6), (100, 0.7))
    again = ActiveTrial(trial.record, trial.runs, YARDSTICK, None)
    again.enqueue()
    again.report(trial.runs[0], {"step": 2, "completions": 100, "eval/reward": 0.7})
    assert again.curve == trial.curve == ((0, 0.5, 0.6), (0, 1.0, 0.7))


def test_a_trial_has_the_means_of_what_its_runs_reached_beside_baselines(tmp_path: Path) -> None:
    trial = flying(tmp_path)
    for run, reward in zip(trial.runs, (0.5, 0.7), strict=True):
        ended(run, "COMPLETED", reward)
        reached = {"final": {"eval/reward": reward}, "random": {"eval/reward": 0.25}}
        replace_json(run.result, {**(read_json(run.result) or {}), "baselines": reached})
    means = trial.ended().baselines
    assert means["final"]["eval/reward"] == pytest.approx(0.6)
    assert means["random"] == {"eval/reward": 0.25}


def test_only_a_run_that_ended_by_it_prunes_its_trial(tmp_path: Path) -> None:
    trial = flying(tmp_path)
    trial.waiting = [(trial.runs[1],)]
    reported(trial, 0, (50, 0.4))
    assert (trial.pruned, len(trial.waiting)) == ("", 1)
    ended(trial.runs[0], "PRUNED")
    trial.give_up(trial.runs[0])
    assert (trial.pruned, trial.waiting) == ("as told", [])
    assert trial.ended().message == "as told"


def test_what_is_left_after_a_kill_is_what_has_no_result(tmp_path: Path) -> None:
    trial = flying(tmp_path, seeds=3)
    ended(trial.runs[0], "COMPLETED")
    status.write(trial.runs[1].status, StatusRecord(status=Status.COMPLETED, pid=1, started=1.0, ended=2.0))
    trial.enqueue()
    assert trial.waiting == [trial.runs[1:]]  # in one job: each next seed only while the trial is not pruned
    alone = ActiveTrial(trial.record, trial.runs, YARDSTICK, None)
    alone.enqueue()
    assert alone.waiting == [(run,) for run in trial.runs[1:]]


STAGED = Yardstick(
    metric="eval/reward", take="final", worst=0.0, unit="completions", budget=100.0,
    ruler=Ruler(prompts=65, reward_range=(0.0, 1.0)), stages={"warm": "sft", "grpo": "grpo"},
)  # fmt: skip
ROWS = [
    {"step": 0, "eval/reward": 0.1, "eval/reward_se": 0.01},
    {"step": 1, "stage": 0, "completions": 0, "eval/reward": 0.5, "eval/reward_se": 0.02, "eval/gain_se/warm": 0.03},
    {"step": 2, "stage": 1, "completions": 100, "eval/reward": 0.6, "eval/reward_se": 0.02, "eval/gain_se/grpo": 0.01},
]


@pytest.mark.parametrize("metric", ["eval/reward", "collapse_rate"])
def test_a_trial_knows_where_grpo_began_and_what_each_stage_gained(tmp_path: Path, metric: str) -> None:
    trial = flying(tmp_path, seeds=1, decide=None)
    trial.yardstick = dataclasses.replace(STAGED, metric=metric)
    with RowWriter(trial.runs[0].metrics) as writer:
        writer.append(*ROWS)
    ended(trial.runs[0], "COMPLETED")
    record = trial.ended()
    assert [(name, gain["start"], gain["end"]) for name, gain in record.stages.items()] == [
        ("warm", 0.1, 0.5), ("grpo", 0.5, 0.6),
    ]  # fmt: skip
    of_the_score = (0.5,), (0.01,)  # not the model before the supervised stage, and paired by prompt
    unknown = (None,), (None,)  # a collapse rate has no value where GRPO begins
    assert (record.starts, record.gain_errors) == (of_the_score if metric == "eval/reward" else unknown)
