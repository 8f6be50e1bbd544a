"""Adaptive allocation on paper: real files, a real Optuna database, and runs that are arithmetic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from core.config import RunSpec
from grpoctl.executors.base import Died, Ended, Event, JobDone
from grpoctl.files import replace_json
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status
from grpoctl.runs.study_dir import StudyDir, studies
from grpoctl.sweeps.adaptive import AdaptiveDriver, rungs_of
from grpoctl.sweeps.driver import Plan, Progress, conclude, end_status
from grpoctl.sweeps.loading import sweep_sha
from grpoctl.sweeps.samplers import pool_of
from grpoctl.sweeps.storage import StudyStorage
from grpoctl.sweeps.study import Terms, new_study, reopened
from tests.grpoctl.sweeps.paper import Killed, PaperExecutor
from tests.grpoctl.sweeps.test_driver import Silent, document, home, in_optuna, loaded, metrics

__all__ = ["home"]  # a fixture

SWEEP = """\
name: paper-study
title: A sweep on paper
experiment: p31
settings: {evaluation.eval_steps: 1}
axes:
  stages.grpo.num_generations: [2, 4, 8]
  stages.grpo.learning_rate: [1.0e-6, 1.0e-5, 1.0e-4, 1.0e-3]
allocation: adaptive
seeds: [0, 1]
budget: {completions: 80, generation_batch_size: 16}
trials: 8
"""


def drive(
    home: Home,
    executor: PaperExecutor,
    *,
    text: str = SWEEP,
    resume: bool = False,
    progress: Progress | None = None,
    **terms: Any,
) -> StudyDir:
    """Drive the study of the text, new or gone on with, until it ends or the executor stops everything."""
    asked = Terms(slots=executor.slots, **terms)
    opened = reopened(studies(home)[0], asked) if resume else new_study(loaded(text), home, (), asked)
    study, book, sweep = opened.study, opened.book, opened.sweep
    storage = StudyStorage.open(study.storage, study.id, sweep, create=opened.fresh, sweep_sha=sweep_sha(sweep))
    plan = Plan(sweep=sweep, study=study, total=int(book.header["total"]), lag=book.header["lag"])
    driver = AdaptiveDriver(plan, book=book, storage=storage, executor=executor, progress=progress or Silent())
    book.header["status"] = "RUNNING"
    try:
        driver.run()
        conclude(book, driver, end_status(driver))
        driver.save()
    finally:
        storage.close()
    return study


def told(study: StudyDir) -> dict[str, Any]:
    """Everything of a study that must not depend on when anything happened, nor on how it came about."""
    found = document(study)
    for trial in found["trials"]:
        for key in ("attempts", "runs", "seconds"):
            del trial[key]
    keys = ("status", "message", "jobs", "trials", "ranking", "indistinguishable", "search")
    return {key: found[key] for key in keys}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], dict[str, bytes], Any]]:
    """The study left alone: what is told, the rows, and what Optuna has."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("reference")
        patch.chdir(folder)
        study = drive(Home(path=folder / ".grpoctl"), PaperExecutor())
        yield told(study), metrics(study), in_optuna(study)


def test_the_budget_is_spent_on_the_contenders(reference: Any) -> None:
    """Eight trials of two seeds are sixteen runs' budgets; the best rate is 1e-3, whatever K is."""
    found, _, stored = reference
    spent = sum(job["share"] - job["from"] for job in found["jobs"])
    assert 15 < spent <= 16
    assert len(found["trials"]) == 8
    best = found["trials"][found["ranking"][0]]
    rates = [trial["params"]["stages.grpo.learning_rate"] for trial in found["trials"]]
    assert best["params"]["stages.grpo.learning_rate"] == max(rates)
    assert found["search"]["choice"] == best["number"]
    whole = [sum(value is not None for value in trial["values"]) for trial in found["trials"]]
    assert whole[best["number"]] == max(whole) > 2
    assert [state for _, state, *_ in stored] == [
        {"COMPLETED": "COMPLETE", "PRUNED": "PRUNED"}[trial["status"]] for trial in found["trials"]
    ]


def test_a_trial_without_a_whole_run_is_pruned_and_has_no_score(reference: Any) -> None:
    for trial in reference[0]["trials"]:
        whole = [value for value in trial["values"] if value is not None]
        assert trial["status"] == ("COMPLETED" if whole else "PRUNED")
        assert trial["score"] == (pytest.approx(sum(whole) / len(whole)) if whole else None)
        assert len(trial["seeds"]) == len(trial["values"]) == len(trial["statuses"])
        assert set(trial["statuses"]) <= {"COMPLETED", "PRUNED"}


def test_seeds_are_begun_in_their_order(reference: Any) -> None:
    """So that all candidates have the same ones: their runs are compared as pairs."""
    for trial in reference[0]["trials"]:
        assert trial["seeds"] == list(range(len(trial["seeds"])))


@pytest.mark.parametrize("order", [1, 3])
def test_whose_turn_it_is_changes_nothing(home: Home, reference: Any, order: int) -> None:
    study = drive(home, PaperExecutor(order=order))
    assert (told(study), metrics(study), in_optuna(study)) == reference


@pytest.mark.parametrize("every", [*(pytest.param(every, marks=pytest.mark.slow) for every in (5, 11, 23)), 31])
def test_a_study_killed_again_and_again_is_the_study_left_alone(home: Home, reference: Any, every: int) -> None:
    study, times = None, 0
    while study is None:
        with suppress(Killed):
            study = drive(home, PaperExecutor(order=times, stop_after=every + times), resume=times > 0)
        times += 1
        assert times < 60
    assert times > 1
    assert (told(study), metrics(study), in_optuna(study)) == reference


def test_the_next_job_is_ready_before_a_worker_is_free(home: Home) -> None:
    with suppress(Killed):
        drive(home, PaperExecutor(slots=2, stop_after=1))  # its workers have the first two jobs
    study = studies(home)[0]
    assert len(document(study)["jobs"]) == 3
    assert len(list(study.path.glob("runs/*/spec.yaml"))) == 3


def test_what_a_job_showed_is_in_the_book_before_anything_else_happens(home: Home) -> None:
    ended: list[int] = []

    class Comparing(PaperExecutor):
        def events(self, timeout: float) -> list[Event]:
            if self.began:
                jobs = document(studies(home)[0])["jobs"]
                assert sum("seen" in job for job in jobs) == len(ended)
            events = super().events(timeout)
            ended.extend(event.job for event in events if isinstance(event, JobDone))
            return events

    drive(home, Comparing())
    assert len(ended) > 10


def test_a_study_asked_to_stop_begins_nothing_more_and_is_gone_on_with(
    home: Home, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpoctl.sweeps.driver.LOOK", 0.0)

    def ask(run: RunDir, step: int) -> None:
        if "-t0003-" in run.id:
            replace_json(studies(home)[0].control, {"schema": 1, "stop": True})

    executor = PaperExecutor(accident=ask)
    study = drive(home, executor)
    stopped = told(study)
    assert (stopped["status"], len(executor.began)) == ("STOPPED", 4)  # the fourth run asked, and ended its job
    assert ["seen" in job for job in stopped["jobs"]] == [True] * 4 + [False]
    study.control.unlink()
    assert told(drive(home, PaperExecutor(), resume=True)) == reference[0]


def test_a_study_may_be_given_more(home: Home) -> None:
    """More candidates and more budget; what is there is not run again."""
    study = drive(home, PaperExecutor(), trials=4)
    first = document(study)["jobs"]
    assert sum(job["share"] - job["from"] for job in first) <= 8
    drive(home, PaperExecutor(), resume=True, trials=8)
    found = document(study)
    assert found["jobs"][: len(first)] == first
    assert len(found["trials"]) == 8
    assert 15 < sum(job["share"] - job["from"] for job in found["jobs"]) <= 16
    steps = [(job["trial"], job["seed"], job["share"]) for job in found["jobs"]]
    assert len(set(steps)) == len(steps)


def test_a_decided_study_ends_before_its_budget(home: Home) -> None:
    """One rate is better than all others by far, and seeds agree: there is nothing left to decide."""

    def clear(spec: RunSpec, share: float) -> float:
        stage: Any = spec.stages["grpo"]
        return 0.3 + (0.4 * share if stage.learning_rate == 1e-3 else 0.0) + 0.001 * spec.seed

    text = SWEEP.replace("allocation: adaptive", "allocation: adaptive\nstop: decided").replace(
        "trials: 8", "trials: 12"
    )
    found = document(drive(home, PaperExecutor(slots=1, reward=clear), text=text))
    assert (found["status"], found["search"]["decided"]) == ("COMPLETED", True)
    assert "decided" in found["message"]
    assert found["search"]["right"] >= 0.9
    assert sum(job["share"] - job["from"] for job in found["jobs"]) < 24
    assert found["trials"][found["search"]["choice"]]["params"]["stages.grpo.learning_rate"] == 1e-3


def test_less_is_better_where_the_sweep_says_so(home: Home) -> None:
    text = SWEEP.replace("allocation: adaptive", "allocation: adaptive\ndirection: minimize\nworst: 1")
    found = document(drive(home, PaperExecutor(), text=text))
    best = found["trials"][found["search"]["choice"]]
    rates = [trial["params"]["stages.grpo.learning_rate"] for trial in found["trials"]]
    assert best["params"]["stages.grpo.learning_rate"] == min(rates)
    believed = {number: worth for number, (worth, _, _) in found["search"]["believed"].items()}
    assert min(believed, key=lambda number: believed[number]) == str(best["number"])


def fails(trial: int, times: int, kind: type) -> Any:
    """The runs of that trial die or fail before their third step, so many times in all."""
    left = [times]

    def accident(run: RunDir, step: int) -> Event | None:
        if f"-t{trial:04d}-" not in run.id or step != 3 or not left[0]:
            return None
        left[0] -= 1
        number = next(
            place
            for place, job in enumerate(document(studies(run.home)[0])["jobs"])
            if job["trial"] == trial and "seen" not in job
        )
        if kind is Died:
            return Died(job=number, run=run.path, message="killed")
        return Ended(job=number, run=run.path, status="FAILED", message="boom", error="ModelError")

    return accident


@pytest.mark.parametrize(("kind", "times"), [(Died, 1), (Died, 3), (Ended, 1)])
def test_a_run_that_is_lost_goes_on_and_the_search_decides_the_same(
    home: Home, reference: Any, kind: type, times: int
) -> None:
    """Of three deaths before the same step two are without progress."""
    study = drive(home, PaperExecutor(accident=fails(1, times, kind)))
    assert (told(study), metrics(study), in_optuna(study)) == reference
    assert document(study)["failures"] == times
    assert [trial["attempts"] for trial in document(study)["trials"]].count(1 + times) == 1


@pytest.mark.parametrize(("kind", "times"), [(Died, 4), (Ended, 2)])
def test_a_candidate_that_fails_again_and_again_gets_no_more_jobs(home: Home, kind: type, times: int) -> None:
    found = document(drive(home, PaperExecutor(accident=fails(1, times, kind))))
    assert (found["status"], found["trials"][1]["status"]) == ("COMPLETED", "FAILED")
    assert ("boom" if kind is Ended else "killed") in found["trials"][1]["message"]
    last = max(place for place, job in enumerate(found["jobs"]) if job["trial"] == 1)
    assert last < len(found["jobs"]) - 1


def test_a_candidate_that_failed_is_gone_on_with_where_that_is_wanted(home: Home) -> None:
    study = drive(home, PaperExecutor(accident=fails(1, 2, Ended)))
    before = document(study)
    (job,) = [place for place, job in enumerate(before["jobs"]) if job["trial"] == 1 and job["seen"] == []]
    drive(home, PaperExecutor(), resume=True, retry_failed=True)
    found = document(study)
    assert found["trials"][1]["status"] in ("COMPLETED", "PRUNED")
    assert [share for share, *_ in found["jobs"][job]["seen"]][-1] == found["jobs"][job]["share"]
    others = [place for place in range(len(before["jobs"])) if place != job]
    assert [found["jobs"][place] for place in others] == [before["jobs"][place] for place in others]


def test_a_run_that_collapses_counts_as_the_worst(home: Home) -> None:
    """What collapses early is known at its end, and is not gone on with."""

    def own(run: RunDir, step: int) -> Status | None:
        return Status.COLLAPSED if "-t0000-" in run.id and step == 2 else None

    found = document(drive(home, PaperExecutor(own=own)))
    trial = found["trials"][0]
    assert trial["status"] == "COLLAPSED"
    assert set(trial["values"]) == {0.0}
    shown = [job["seen"][-1][:2] for job in found["jobs"] if job["trial"] == 0]
    assert shown[-1] == [1.0, 0.0]


def test_what_a_search_has_spent_stands_in_the_book(reference: Any) -> None:
    search = reference[0]["search"]
    assert search["runs"] == pytest.approx(sum(job["share"] - job["from"] for job in reference[0]["jobs"]))
    assert search["of"] == 16
    assert search["candidates"] == 8


def test_runs_pause_at_evaluations_of_their_last_stage(home: Home) -> None:
    """p31 on paper has five steps, each evaluated: an eighth is within the first, three eighths within the second."""
    from grpoctl.sweeps.candidates import Candidates

    sweep = loaded(SWEEP)
    candidates = Candidates.of(sweep)
    point = pool_of(sweep, 8)[0]
    assert rungs_of(candidates.spec(point)) == pytest.approx((0.2, 0.4, 1.0))
    overrides = [text.replace("eval_steps=1", "eval_steps=4") for text in candidates.overrides(point)]
    assert rungs_of(candidates.loaded(point, overrides).spec) == pytest.approx((0.8, 1.0))


def test_a_space_without_end_is_searched_among_points_that_are_always_the_same(home: Home) -> None:
    text = SWEEP.replace("[1.0e-6, 1.0e-5, 1.0e-4, 1.0e-3]", "{low: 1.0e-6, high: 1.0e-2, log: true}")
    pool = pool_of(loaded(text), 200)
    assert len({json.dumps(point) for point in pool}) == len(pool) == 200
    assert pool[:50] == pool_of(loaded(text), 50)
    rates = sorted(point["stages.grpo.learning_rate"] for point in pool)
    assert rates[0] < 1e-5
    assert 5e-5 < rates[len(rates) // 2] < 2e-4  # the middle of the range, by its logarithm
    study = drive(home, PaperExecutor(), text=text)
    assert len(document(study)["trials"]) <= 8


def test_the_trials_told_beforehand_are_those_it_tries(reference: Any) -> None:
    from grpoctl.cli.sweep import known_trials

    told_before = [(number, dict(params)) for number, _, params in known_trials(loaded(SWEEP), 8, 2)]
    assert told_before == [(trial["number"], trial["params"]) for trial in reference[0]["trials"]]


def test_the_book_is_read_again_as_it_was(home: Home) -> None:
    with pytest.raises(Killed):
        drive(home, PaperExecutor(stop_after=20))
    study = studies(home)[0]
    before = document(study)
    opened = reopened(study, Terms(slots=2))
    opened.book.save()
    assert document(study)["jobs"] == before["jobs"]
    assert Path(study.state).read_text(encoding="utf-8").count('"jobs"') >= 1


def test_the_last_job_is_shown_too(home: Home) -> None:
    """It is taken in where the driver looks for another one: whoever shows how it goes is told of that as well."""
    told_of: list[int] = []

    class Counting(Silent):
        def update(self, document: Any, running: object) -> None:
            told_of.append(sum("seen" in job for job in document["jobs"]))

    study = drive(home, PaperExecutor(), progress=Counting())
    assert told_of[-1] == len(document(study)["jobs"])
