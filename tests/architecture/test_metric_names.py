"""What a run writes is what core/metrics.py declares, both ways; and every name anyone mentions is a declared one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import get_args

import pytest

from core.health.collapse import policy_collapse
from core.health.integrity import rollout_integrity
from core.metrics import EVAL, METRICS, RUN, STEP, Metric
from core.spec import EarlyStoppingSpec, GuardSpec
from core.training.drive import drive
from core.training.outcome import run_metrics
from tests.architecture.source import modules
from tests.fakes import PricedTask, Recorder, TabularPolicy, grpo_stage, trainer_of

FAMILIES = sorted({name.partition("/")[0] for name in METRICS if "/" in name})
LOOKS_LIKE_ONE = re.compile(rf"(?:{'|'.join(FAMILIES)})/[a-z_]+")


def recorded_rows() -> list[dict[str, float | None]]:
    """The rows of a small real run in which everything that can be measured is: rewards differ, beta is not 0."""
    stage = grpo_stage(max_steps=3, beta=0.1)
    task = PricedTask(lambda problem, output: float(int(output) == problem % 4))
    recorder = Recorder()
    drive(trainer_of(TabularPolicy(), task, stage).steps(), recorder)
    return recorder.rows


ROWS = recorded_rows()
STEPS = [row for row in ROWS if row["step"]]


def names(*metrics: Metric) -> set[str]:
    return {metric.name for metric in metrics}


def test_what_a_run_writes_is_declared() -> None:
    assert set().union(*ROWS) - names(*STEP, *EVAL) == set()


def test_what_is_declared_is_written() -> None:
    assert names(*STEP, *EVAL) - set().union(*ROWS) == set()
    assert any(row["update"] == 1 for row in STEPS)


def test_the_row_before_the_first_step_has_only_evaluations() -> None:
    assert set(ROWS[0]) == {"step", "completions"} | names(*EVAL)


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
    assert [f"{where}: {name}" for where, name in found if name not in METRICS] == []


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
    assert policy_collapse([sound], guards) is None
    assert policy_collapse([{**sound, metric: broken}], guards) is not None


def test_the_integrity_guard_reads_a_name_that_is_written() -> None:
    assert rollout_integrity(STEPS[0], dtype="float32") is None
    assert rollout_integrity({**STEPS[0], "rollout/logprob_gap": 1.0}, dtype="float32") is not None


def test_early_stopping_watches_declared_evaluations() -> None:
    watched = set(get_args(EarlyStoppingSpec.model_fields["metric"].annotation))
    assert watched
    assert watched <= names(*EVAL)
