"""How often a run may be lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpoctl.executors.base import Died, Ended
from grpoctl.runs.run_dir import RunDir
from grpoctl.sweeps.losses import DEATHS, FAILURES, STILLBORN, Losses
from tests.grpoctl.sweeps.paper import claim_as


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    (tmp_path / "a-run").mkdir()
    return RunDir(path=tmp_path / "a-run")


def died(run: RunDir) -> Died:
    return Died(job=0, run=run.path, message="killed")


def came_to(run: RunDir, step: int) -> None:
    run.metrics.write_text("".join(f'{{"step": {one}}}\n' for one in range(step + 1)), encoding="utf-8")


def test_a_worker_that_had_not_begun_the_run_says_nothing_of_it(run: RunDir) -> None:
    """Whoever begins a run claims it; what the driver claims to prepare it is no beginning."""
    losses = Losses()
    claim_as(1, run)
    for _ in range(DEATHS - 1):
        claim_as(1, run)
        assert not losses.too_many(died(run))
    for _ in range(2 * DEATHS):
        claim_as(os.getpid(), run)
        assert not losses.too_many(died(run))
    claim_as(1, run)
    assert losses.too_many(died(run))


def test_workers_that_never_begin_anything_are_not_started_for_ever(run: RunDir) -> None:
    losses = Losses()
    assert [losses.too_many(died(run)) for _ in range(STILLBORN)] == [False] * (STILLBORN - 1) + [True]


def test_deaths_count_anew_after_a_step(run: RunDir) -> None:
    losses = Losses()
    for step in (1, 1, 1, 2, 2, 2):  # two without a further step after each first one
        came_to(run, step)
        claim_as(1, run)
        assert not losses.too_many(died(run))
    claim_as(1, run)
    assert losses.too_many(died(run))


def test_a_step_that_is_lost_and_made_again_is_no_progress(run: RunDir) -> None:
    losses = Losses()
    told = []
    for step in (4, 2, 3, 4):
        came_to(run, step)
        claim_as(1, run)
        told.append(losses.too_many(died(run)))
    assert told == [False, False, False, True]


def test_failures_count_by_job(run: RunDir) -> None:
    losses = Losses()
    for job in (0, 1):
        failed = Ended(job=job, run=run.path, status="FAILED", message="boom", error="ModelError")
        assert [losses.too_many(failed) for _ in range(FAILURES)] == [False, True]
