"""What a run writes is what core/metrics.py declares, both ways; and every name anyone mentions is a declared one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch

from core.config import EarlyStoppingSpec, GuardSpec
from core.health.case import FOREIGN
from core.health.guard import collapse_finding
from core.health.rules.integrity import rollout_integrity
from core.metrics import EVAL, FAMILIES, MEASURED, METRICS, RUN, START, STEP, Metric, declared
from core.training.checkpoint import initial_weights
from core.training.outcome import run_metrics
from core.training.trainer import Parts, Trainer, drive
from tests.architecture.source import modules
from tests.fakes import ConsistentPolicy, PricedTask, Recorder, grpo_stage, run_spec, small_policy

PREFIXES = {family.name.removesuffix("/*") for family in FAMILIES}
FIRSTS = sorted({name.partition("/")[0] for name in METRICS if "/" in name})
LOOKS_LIKE_ONE = re.compile(rf"(?:{'|'.join(FIRSTS)})/[a-z_]+")


class Measured(PricedTask):
    """A task whose outputs have everything that can be measured beside a reward."""

    def score(self, *given: Any, **more: Any) -> Any:
        measured = {name.removeprefix("eval/"): 1.0 for name in MEASURED}
        return [replace(outcome, measured=measured) for outcome in super().score(*given, **more)]


def recorded_rows() -> list[dict[str, float | None]]:
    """The rows of a small real run in which everything that can be measured is: every term weighs, rewards differ."""
    plain = {"prompts_per_step": 2, "learning_rate": 0.05}
    group = {**plain, "num_generations": 4, "max_steps": 2}
    stages = {
        "grpo": {
            **group, "beta": 0.1, "entropy_coef": 0.01, "supervised_weight": 0.1, "consistency_weight": 0.1,
            "importance_sampling_cap": 2.0, "dynamic_sampling": {"max_attempts": 3}, "num_iterations": 2,
            "advantage": {"baseline": "running", "scale_rewards": "running"},
        },
        "sft": {**plain, "kind": "sft", "max_steps": 1},
        "stored": {**group, "beta": 0.1, "kl_estimator": "forward_k3", "old_policy": "reference", "max_steps": 1},
        "rce": {**group, "kind": "rce", "max_completion_length": 1},  # all are cut off
    }  # fmt: skip
    task = Measured(lambda problem, output: float(int(output) == problem % 4))
    policy, recorder = ConsistentPolicy(), Recorder()
    start = initial_weights(policy, {"logits": torch.tensor([0.1, 0.0, 0.0, 0.0])})
    parts = Parts(spec=run_spec(stages=stages), policy=policy, task=task, start=start)
    drive(Trainer(parts).steps(), recorder)
    return recorder.rows


def rows_of_texts() -> list[dict[str, float | None]]:
    """The rows of a language model, whose rows have several factors and which has a canary."""
    task, recorder = PricedTask(lambda problem, output: float(len(output))), Recorder()
    drive(Trainer(Parts(spec=run_spec(grpo_stage(max_steps=1)), policy=small_policy(), task=task)).steps(), recorder)
    return recorder.rows


ROWS = recorded_rows()
STEPS = [row for row in ROWS if row["step"]]
DECLARED = (*START, *STEP, *EVAL)


def names(*metrics: Metric) -> set[str]:
    return {metric.name for metric in metrics}


def test_what_a_run_writes_is_declared() -> None:
    assert {name for name in set().union(*ROWS) if declared(name) is None} == set()


class Compared(PricedTask):
    """A task with a baseline."""

    def baselines(self) -> dict[str, dict[str, float]]:
        return {"random": {"eval/reward": 0.25, "eval/rewards/short": 0.5}}


def test_baselines_are_written_under_names_of_their_family() -> None:
    task, recorder = Compared(lambda *_: 1.0), Recorder()
    parts = Parts(spec=run_spec(grpo_stage(max_steps=1)), policy=ConsistentPolicy(), task=task)
    drive(Trainer(parts).steps(), recorder)
    written = [declared(name) for name in recorder.rows[0] if name.startswith("baseline/")]
    assert [metric.kind for metric in written if metric is not None] == ["start", "start"]


def test_what_is_declared_is_written() -> None:
    continuous = {"differential_entropy"}  # tests/core/training/test_trainer_other_policies.py writes it
    assert names(*DECLARED) - set().union(*ROWS, *rows_of_texts()) == continuous
    assert {row["stage"] for row in STEPS} == {0, 1, 2, 3}
    assert any(row["update"] == 1 for row in STEPS)


def test_the_row_before_the_first_step_has_only_evaluations_and_what_it_started_from() -> None:
    assert set(ROWS[0]) == {"step", "completions", "tokens"} | names(*START, *EVAL)
    assert not any(names(*START) & set(row) for row in STEPS)


def test_a_share_of_the_gradient_is_declared_for_every_term_of_every_loss() -> None:
    # Terms get their names where losses are made: the strings that index `terms`, and the names of imitation losses.
    measured = {name for row in STEPS for name in row if name.startswith("grad_share/")}
    assert measured == {name for name in METRICS if name.startswith("grad_share/")}
    for row in STEPS:
        if shares := [float(row[name] or 0) for name in measured & set(row)]:
            assert sum(shares) == pytest.approx(1.0)


def test_the_metrics_of_a_whole_run_are_the_declared_ones() -> None:
    assert set(run_metrics(ROWS)) == names(*RUN)


def mentioned() -> Iterator[tuple[str, str]]:
    """(where, name) of every string in the source that is nothing but a metric's name with a slash."""
    for module in modules().values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and LOOKS_LIKE_ONE.fullmatch(node.value):
                yield f"{module.file} line {node.lineno}", node.value


def test_every_mention_is_of_a_declared_metric() -> None:
    found = list(mentioned())
    assert len(found) > 20
    known = {*PREFIXES, *FOREIGN}
    assert [f"{where}: {name}" for where, name in found if declared(name) is None and name not in known] == []


def test_a_foreign_column_is_none_of_ours() -> None:
    assert [name for name in FOREIGN if declared(name) is not None] == []


# A limit of the collapse guard -> the metric it watches, and a value that breaks it.
LIMITS = {
    "min_valid": ("completions/valid", 0.0),
    "min_entropy": ("entropy", 0.0),
    "max_truncated": ("completions/truncated", 1.0),
    "min_length": ("completions/length", 1.0),
    "max_kl": ("kl", 99.0),
}


def test_every_limit_of_the_guards_is_in_the_table() -> None:
    limits = {name for name in GuardSpec.model_fields if name.startswith(("min_", "max_"))}
    assert set(LIMITS) == limits - {"max_logprob_gap"}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_guard_reads_a_name_that_is_written(limit: str) -> None:
    """A rule that reads a name nobody writes would never trip: this one trips on its own metric and on nothing else."""
    metric, broken = LIMITS[limit]
    guards = GuardSpec.model_validate({"patience": 1, **{name: None for name in LIMITS if name != limit}})
    sound = {**STEPS[0], "completions/length": 5.0}
    assert metric in STEPS[0]
    assert collapse_finding([sound], guards) is None
    assert collapse_finding([{**sound, metric: broken}], guards) is not None


def test_the_integrity_guard_reads_a_name_that_is_written() -> None:
    assert rollout_integrity(STEPS[0], dtype="float32") is None
    assert rollout_integrity({**STEPS[0], "rollout/logprob_gap": 1.0}, dtype="float32") is not None


def test_early_stopping_watches_declared_evaluations() -> None:
    watched = set(get_args(EarlyStoppingSpec.model_fields["metric"].annotation))
    assert watched
    assert watched <= names(*EVAL)
