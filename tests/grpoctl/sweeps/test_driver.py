"""The driver on paper: real files, a real Optuna database, and runs that are arithmetic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from core.config import RunSpec
from core.errors import StorageError
from grpoctl.config import canonical, dump, plain, read_resolved
from grpoctl.executors.base import Died, Ended, Event
from grpoctl.files import replace_json
from grpoctl.runs import launch
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status, TrialStatus
from grpoctl.runs.study_dir import StudyDir, studies
from grpoctl.sweeps import driver
from grpoctl.sweeps.driver import Driver, Plan, TrialProposer, conclude, end_status
from grpoctl.sweeps.importances import importances
from grpoctl.sweeps.loading import load_sweep, sweep_sha
from grpoctl.sweeps.pruning import decide
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import Book, Point, TrialRecord
from grpoctl.sweeps.storage import StudyStorage
from grpoctl.sweeps.study import Terms, new_study, reopened
from tests.grpoctl.sweeps.paper import Killed, PaperExecutor, learning_curve

SWEEP = """\
name: paper-study
title: A sweep on paper
experiment: p31
settings: {evaluation.eval_steps: 1}
axes:
  stages.grpo.num_generations: [2, 4, 8]
  stages.grpo.learning_rate: {low: 1.0e-6, high: 1.0e-2, log: true}
pruner: {name: patient-median, patience: 2, warmup: 0.2, min_trials: 2}
seeds: [0, 1]
budget: {completions: 80, generation_batch_size: 16}
trials: 10
"""


class Silent:
    """Shows nothing, and keeps what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def update(self, document: object, running: object) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home beside a folder with the sweep, on a disk that nobody waits for; a study's figures are not drawn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # a power cut is not among what is tried here
    monkeypatch.setattr(driver, "draw", lambda document, folder: [])
    monkeypatch.setattr(launch, "dump", written)
    monkeypatch.setattr(driver, "importances", weighed)
    return Home(path=tmp_path / ".grpoctl")


_WRITTEN: dict[str, str] = {}


def written(spec: RunSpec) -> str:
    """The spec as YAML, made once: these tests have the same few runs again and again."""
    key = f"{spec.seed} {canonical(plain(spec))}"
    if key not in _WRITTEN:
        _WRITTEN[key] = dump(spec)
    return _WRITTEN[key]


_WEIGHED: dict[str, dict[str, float]] = {}


def weighed(sweep: SweepSpec, trials: Sequence[TrialRecord]) -> dict[str, float]:
    """The importances, computed once: most of these studies must come to the very same trials."""
    shown = [(one.number, one.params, one.seeds, one.status, one.score, one.values, one.curve) for one in trials]
    key = f"{sweep} {shown}"
    if key not in _WEIGHED:
        _WEIGHED[key] = importances(sweep, trials)
    return _WEIGHED[key]


@cache
def loaded(text: str) -> SweepSpec:
    """The sweep of the text."""
    file = Path("paper-study.yaml")
    file.write_text(text, encoding="utf-8")
    return load_sweep(str(file), profile="tiny").spec


def drive(home: Home, executor: PaperExecutor, *, text: str = SWEEP, resume: bool = False, **terms: Any) -> StudyDir:
    """Drive the study of the text, new or gone on with, until it ends or the executor stops everything."""
    asked = Terms(slots=executor.slots, **terms)
    opened = reopened(studies(home)[0], asked) if resume else new_study(loaded(text), home, (), asked)
    study, book, sweep = opened.study, opened.book, opened.sweep
    storage = StudyStorage.open(study.storage, study.id, sweep, create=opened.fresh, sweep_sha=sweep_sha(sweep))
    plan = Plan(sweep=sweep, study=study, total=int(book.header["total"]), lag=book.header["lag"])
    driver = Driver(plan, book=book, storage=storage, executor=executor, progress=Silent())
    try:
        driver.run()
        conclude(book, driver, end_status(driver))
        driver.save()
    finally:
        storage.close()
    return study


def document(study: StudyDir) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(study.state.read_text(encoding="utf-8"))
    return found


def told(study: StudyDir) -> dict[str, Any]:
    """Everything of a study that must not depend on when anything happened, nor on how it came about."""
    found = document(study)
    for trial in found["trials"]:
        for key in ("attempts", "runs"):
            del trial[key]
    keys = ("status", "trials", "ranking", "indistinguishable", "importances", "best")
    best = {**found["best"], "runs": None}
    return {**{key: found[key] for key in keys}, "best": best}


def metrics(study: StudyDir) -> dict[str, bytes]:
    """The rows of each run, by the part of its id that does not name the study."""
    return {run.id.removeprefix(study.id): run.metrics.read_bytes() for run in study.runs()}


def in_optuna(study: StudyDir) -> list[tuple[Any, ...]]:
    import optuna

    storage = f"sqlite:///{study.storage}"
    trials = optuna.load_study(study_name=study.id, storage=storage).trials
    newest = {trial.user_attrs["number"]: trial for trial in trials}
    return [(n, t.state.name, t.values, t.params, t.intermediate_values) for n, t in sorted(newest.items())]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], dict[str, bytes], Any]]:
    """The study left alone: what is told, the rows, and what Optuna has."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("reference")
        patch.chdir(folder)
        study = drive(Home(path=folder / ".grpoctl"), PaperExecutor())
        assert list(study.figures.glob("*.png"))
        yield told(study), metrics(study), in_optuna(study)


def test_a_study_ends_with_all_its_trials_and_some_are_pruned(reference: Any) -> None:
    found, _, stored = reference
    statuses = [trial["status"] for trial in found["trials"]]
    assert len(statuses) == 10
    assert set(statuses) == {"COMPLETED", "PRUNED"}
    assert [state for _, state, *_ in stored] == ["PRUNED" if s == "PRUNED" else "COMPLETE" for s in statuses]
    best = found["trials"][found["best"]["number"]]
    assert best["score"] == max(t["score"] for t in found["trials"] if t["status"] == "COMPLETED")
    pruned = next(trial for trial in found["trials"] if trial["status"] == "PRUNED")
    seed, share, _ = pruned["curve"][-1]
    assert (seed, share) < (pruned["seeds"][-1], 1.0)  # it did not spend its budget
    assert "median" in pruned["message"]


@pytest.mark.parametrize("order", [1, 3])
def test_whose_turn_it_is_changes_nothing(home: Home, reference: Any, order: int) -> None:
    study = drive(home, PaperExecutor(order=order))
    assert (told(study), metrics(study), in_optuna(study)) == reference


@pytest.mark.parametrize("every", [*(pytest.param(every, marks=pytest.mark.slow) for every in (7, 23)), 41])
def test_a_study_killed_again_and_again_is_the_study_left_alone(home: Home, reference: Any, every: int) -> None:
    """Killed after each `every` events, between a run's end and the tell included, by the way events fall."""
    study, times = None, 0
    while study is None:
        with suppress(Killed):
            study = drive(home, PaperExecutor(order=times, stop_after=every), resume=times > 0)
        times += 1
        assert times < 60
    assert times > 1
    assert (told(study), metrics(study), in_optuna(study)) == reference


def stops_early(run: RunDir, step: int) -> Status | None:
    """Seed 0 of each trial ends by itself at the third of its five evaluations, where it could be pruned first."""
    return Status.STOPPED_EARLY if run.id.endswith("-s0") and step == 3 else None


def crossing(spec: RunSpec, share: float) -> float:
    """Arms of a small learning rate are the worst by their first run and the best by their second."""
    stage: Any = spec.stages["grpo"]
    return learning_curve(spec, share) + ((0.4 if spec.seed else -0.2) if stage.learning_rate < 1e-4 else 0.0)


def test_a_run_that_ends_where_it_would_be_pruned_does_not_prune_its_trial(home: Home) -> None:
    """By the files nobody could know of such a decision: left alone and killed must come to the same."""
    text = SWEEP.replace("patience: 2, warmup: 0.2", "patience: 1, warmup: 0.5")
    left_alone = drive(home, PaperExecutor(own=stops_early, reward=crossing), text=text)
    trials = document(left_alone)["trials"]
    for trial in trials:
        assert trial["status"] == ("PRUNED" if "PRUNED" in trial["statuses"] else "COMPLETED")
    assert trials[3]["params"]["stages.grpo.learning_rate"] < 1e-4  # the worst of three where its first run ended
    assert trials[3]["status"] == "COMPLETED"
    study, times = None, 0
    while study is None:
        with suppress(Killed):
            executor = PaperExecutor(own=stops_early, reward=crossing, stop_after=25 + times)
            study = drive(home, executor, text=text, resume=times > 0)
        times += 1
    assert (told(study), metrics(study)) == (told(left_alone), metrics(left_alone))


def test_nothing_is_run_twice_that_had_ended(home: Home) -> None:
    first = PaperExecutor(stop_after=60)
    with pytest.raises(Killed):
        drive(home, first)
    ended = {Path(run) for trial in document(studies(home)[0])["trials"] for run in trial["runs"]}
    assert ended  # of trials that were told
    second = PaperExecutor()
    drive(home, second, resume=True)
    assert ended.isdisjoint(second.began)


def test_every_suggested_value_stands_in_the_spec_of_the_trial(home: Home) -> None:
    study = drive(home, PaperExecutor())
    for trial in document(study)["trials"]:
        for run, seed in zip(trial["runs"], trial["seeds"], strict=False):
            spec = read_resolved(Path(run) / "spec.yaml")
            stage: Any = spec.stages["grpo"]
            assert spec.seed == seed
            assert stage.num_generations == trial["params"]["stages.grpo.num_generations"]
            assert stage.learning_rate == trial["params"]["stages.grpo.learning_rate"]
            assert stage.num_generations * stage.prompts_per_step == 16
            assert spec.budget is not None
            assert spec.budget.completions == 80


def dies(run_part: str, times: int, kind: type, at: int = 3) -> Any:
    """The runs whose id has `run_part` die or fail before that step, so many times in all."""
    left = [times]

    def accident(run: RunDir, step: int) -> Event | None:
        if run_part not in run.id or step != at or not left[0]:
            return None
        left[0] -= 1
        number = int(run.id.split("-t")[-1].split("-")[0])
        if kind is Died:
            return Died(job=number, run=run.path, message="killed")
        return Ended(job=number, run=run.path, status="FAILED", message="boom", error="ModelError")

    return accident


@pytest.mark.parametrize("kind", [Died, Ended])
def test_a_worker_that_dies_or_a_run_that_fails_once_costs_an_attempt_and_nothing_else(
    home: Home, reference: Any, kind: type
) -> None:
    study = drive(home, PaperExecutor(accident=dies("t0002-s0", 1, kind)))
    assert (told(study), metrics(study), in_optuna(study)) == reference
    assert [trial["attempts"] for trial in document(study)["trials"]] == [1, 1, 2, 1, 1, 1, 1, 1, 1, 1]
    assert document(study)["failures"] == 1


def killed_before(*steps: int) -> Any:
    """Trial 2's first run loses its worker before each of these steps, in turn."""
    left = list(steps)

    def accident(run: RunDir, step: int) -> Event | None:
        if "t0002-s0" not in run.id or not left or step != left[0]:
            return None
        left.pop(0)
        return Died(job=2, run=run.path, message="killed")

    return accident


def test_workers_may_die_again_and_again_while_their_run_gets_further(home: Home, reference: Any) -> None:
    study = drive(home, PaperExecutor(accident=killed_before(2, 3, 4, 5)))
    assert (told(study), metrics(study), in_optuna(study)) == reference
    assert document(study)["trials"][2]["attempts"] == 5


def test_a_run_that_gets_no_further_has_failed_in_the_end(home: Home) -> None:
    trial = document(drive(home, PaperExecutor(accident=killed_before(4, 3, 4, 3))))["trials"][2]
    assert (trial["status"], trial["attempts"]) == ("FAILED", 4)  # the first death is new ground, the others are not


def test_two_deaths_without_a_step_cost_nothing_but_attempts(home: Home, reference: Any) -> None:
    study = drive(home, PaperExecutor(accident=killed_before(4, 3, 4)))
    assert (told(study), metrics(study), in_optuna(study)) == reference
    assert document(study)["trials"][2]["attempts"] == 4


def test_a_trial_that_fails_twice_has_failed_and_can_be_retried(home: Home) -> None:
    study = drive(home, PaperExecutor(accident=dies("t0002-s0", 2, Ended)))
    trial = document(study)["trials"][2]
    assert (trial["status"], trial["score"], trial["attempts"]) == ("FAILED", None, 2)
    assert "boom" in trial["message"]
    assert in_optuna(study)[2][1] == "FAIL"
    assert len(document(study)["trials"]) == 10
    drive(home, PaperExecutor(), resume=True, retry_failed=True)
    again = document(study)["trials"][2]
    assert (again["number"], again["status"], again["attempts"]) == (2, "COMPLETED", 3)
    assert in_optuna(study)[2][1] == "COMPLETE"
    assert len(document(study)["trials"]) == 10


def test_a_sweep_in_which_everything_fails_ends_soon(home: Home) -> None:
    study = drive(home, PaperExecutor(accident=dies("-t0", 99, Ended, at=1)))
    found = document(study)
    assert found["status"] == "FAILED"
    assert "first 3 trials failed" in found["message"]
    assert len(found["trials"]) <= 4  # two were under way


def test_one_trial_that_fails_while_others_run_is_not_three(home: Home) -> None:
    study = drive(home, PaperExecutor(slots=3, order=3, accident=dies("-t0000", 2, Ended, at=1)))
    found = document(study)
    assert [trial["status"] for trial in found["trials"]].count("FAILED") == 1
    assert (found["status"], len(found["trials"])) == ("COMPLETED", 10)


def test_the_disk_that_is_full_is_no_fault_of_the_trial(home: Home, reference: Any) -> None:
    full = [True]

    def accident(run: RunDir, step: int) -> Event | None:
        if not full[0] or "t0001" not in run.id or step != 2:
            return None
        full[0] = False
        return Ended(job=1, run=run.path, status="FAILED", message="no space left", error="StorageError")

    with pytest.raises(StorageError, match="no space left"):
        drive(home, PaperExecutor(accident=accident))
    study = drive(home, PaperExecutor(), resume=True)
    assert (told(study), metrics(study), in_optuna(study)) == reference
    assert {trial["attempts"] for trial in document(study)["trials"]} == {1}


@pytest.mark.parametrize(
    "file",
    [
        "spec.yaml",
        "metrics.jsonl",
        *(pytest.param(f"{name}.json", marks=pytest.mark.slow) for name in ("status", "provenance", "result")),
    ],
)
def test_a_trial_directory_that_is_damaged_is_made_anew(home: Home, reference: Any, file: str) -> None:
    with pytest.raises(Killed):
        drive(home, PaperExecutor(stop_after=31))
    under_way = next(trial for trial in document(studies(home)[0])["trials"] if trial["status"] == "RUNNING")
    run = studies(home)[0].run(under_way["number"], 0)
    (run.path / file).write_text("{ no\nnothing\n", encoding="utf-8")
    study = drive(home, PaperExecutor(), resume=True)
    assert (told(study), in_optuna(study)) == (reference[0], reference[2])
    assert [entry.name for entry in run.path.parent.iterdir() if ".damaged-" in entry.name] == [f"{run.id}.damaged-1"]


def test_trials_is_the_total_and_may_be_raised_later(home: Home, reference: Any) -> None:
    study = drive(home, PaperExecutor(), trials=6)
    assert len(document(study)["trials"]) == 6
    drive(home, PaperExecutor(), resume=True, trials=10)
    assert told(study)["trials"] == reference[0]["trials"]


def test_a_study_asked_to_stop_before_it_asked_for_anything_has_no_trial(home: Home, reference: Any) -> None:
    study = new_study(loaded(SWEEP), home, (), Terms(slots=2)).study
    replace_json(study.control, {"schema": 1, "stop": True})
    drive(home, PaperExecutor(), resume=True)
    assert (document(study)["status"], document(study)["trials"]) == ("STOPPED", [])
    study.control.unlink()
    drive(home, PaperExecutor(), resume=True)
    assert told(study)["trials"] == reference[0]["trials"]


def test_a_study_asked_to_stop_when_nothing_is_left_to_ask_for_is_completed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpoctl.sweeps.driver.LOOK", 0.0)

    def accident(run: RunDir, step: int) -> None:
        if "t0009" in run.id:
            replace_json(studies(home)[0].control, {"schema": 1, "stop": True})

    study = drive(home, PaperExecutor(accident=accident))
    assert (document(study)["status"], len(document(study)["trials"])) == ("COMPLETED", 10)


def test_a_study_whose_time_is_over_goes_on_as_long_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpoctl.sweeps.driver.LOOK", 0.0)
    clock = iter(range(10**6))
    monkeypatch.setattr("grpoctl.sweeps.driver.time.monotonic", lambda: float(next(clock)))
    text = f"{SWEEP}max_hours: 0.02\n"  # 72 looks at the clock
    counts = [len(document(drive(home, PaperExecutor(), text=text, resume=again))["trials"]) for again in (False, True)]
    assert 0 < counts[0] < counts[1]


def test_trials_are_never_fewer_than_were_begun_nor_more_than_there_are(home: Home) -> None:
    text = SWEEP.replace("{low: 1.0e-6, high: 1.0e-2, log: true}", "[1.0e-4, 1.0e-3]")
    study = drive(home, PaperExecutor(), text=text, trials=4)
    fewer = f"{study.id}: 4 trials were begun and none is taken back; got 2, so it has 4"
    said = {2: (fewer,), 4: (), 5: (f"{study.id}: 5 trials instead of 4",), 99: (f"{study.id}: 6 trials instead of 4",)}
    for asked, total in ((2, 4), (4, 4), (5, 5), (99, 6)):
        opened = reopened(study, Terms(slots=2, trials=asked))
        assert opened.book.header["total"] == total
        assert opened.over == (total == 4)
        assert opened.notes == said[asked]


def test_no_two_trials_are_the_same(home: Home) -> None:
    text = SWEEP.replace("{low: 1.0e-6, high: 1.0e-2, log: true}", "[1.0e-4, 1.0e-3]").replace("10\n", "6\n")
    points = [json.dumps(trial["params"]) for trial in document(drive(home, PaperExecutor(), text=text))["trials"]]
    assert len(set(points)) == 6


def counted_projections(monkeypatch: pytest.MonkeyPatch, locked: range = range(0)) -> list[int]:
    """[how often the database is brought up]; the calls of those numbers find it locked."""
    project, calls = StudyStorage.project, [0]

    def counted(self: StudyStorage, trials: Any) -> None:
        calls[0] += 1
        if calls[0] in locked:
            raise StorageError("database is locked")
        project(self, trials)

    monkeypatch.setattr(StudyStorage, "project", counted)
    return calls


def test_a_database_that_is_locked_for_a_while_does_not_end_the_sweep(
    home: Home, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted_projections(monkeypatch, locked=range(4, 10))
    monkeypatch.setattr(driver, "STORAGE_PACE", 0.0)
    study = drive(home, PaperExecutor())
    assert calls[0] > 9
    assert (told(study), metrics(study), in_optuna(study)) == reference


def test_the_database_is_brought_up_now_and_then_and_has_everything_at_the_end(
    home: Home, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted_projections(monkeypatch)
    monkeypatch.setattr(driver, "STORAGE_PACE", 3600.0)
    study = drive(home, PaperExecutor())
    assert calls[0] <= 3  # of ten trials: at the beginning and at the end
    assert in_optuna(study) == reference[2]


def test_a_trial_that_was_interrupted_says_how_far_it_is(home: Home) -> None:
    file = Path("paper-study.yaml")
    file.write_text(SWEEP, encoding="utf-8")
    sweep = load_sweep(str(file), profile="tiny").spec
    opened = new_study(sweep, home, (), Terms(slots=2))
    storage = StudyStorage.open(opened.study.storage, opened.study.id, sweep, create=True)
    plan = Plan(sweep=sweep, study=opened.study, total=10, lag=2)
    executor = PaperExecutor(stop_after=9)
    driver = Driver(plan, book=opened.book, storage=storage, executor=executor, progress=Silent())
    with pytest.raises(Killed):
        driver.run()
    conclude(opened.book, driver, ("INTERRUPTED", ""))
    driver.save()
    storage.close()
    first, second = document(opened.study)["trials"]
    assert {first["status"], second["status"]} == {"INTERRUPTED"}
    spent = {
        run.id[-8:]: json.loads(run.metrics.read_text().splitlines()[-1])
        for run in opened.study.runs()
        if run.metrics.exists()
    }
    assert sum(row["completions"] for row in spent.values()) == first["completions"] + second["completions"] > 0
    assert all(Path(run).is_dir() for run in first["runs"] + second["runs"])


def test_an_open_dtype_is_settled_once_for_the_study(home: Home) -> None:
    settings = "settings: {evaluation.eval_steps: 1, model.source: some/model, model.dtype: auto}"
    study = drive(home, PaperExecutor(), text=SWEEP.replace("settings: {evaluation.eval_steps: 1}", settings))
    kept = document(study)["dtype"]
    assert kept in ("bfloat16", "float32")
    assert {read_resolved(run.spec).model.dtype for run in study.runs()} == {kept}


LR = "stages.grpo.learning_rate"
NOISY = SweepSpec.model_validate(
    {
        "name": "mine", "title": "t", "experiment": "p31", "axes": {LR: {"low": 1e-4, "high": 1e-2, "log": True}},
        "seeds": [0], "pruner": {"name": "patient-median", "patience": 1, "warmup": 0, "min_trials": 1},
        "direction": "minimize", "worst": 1,
    }
)  # fmt: skip


def trial(number: int, status: str = "COMPLETED", value: float = 0.5) -> TrialRecord:
    """Its one run came to `value`."""
    return TrialRecord(
        number=number, params={LR: 1e-4 * (number + 1)}, seeds=(0,), status=TrialStatus(status), score=value,
        values=(value,), curve=(Point(0, 0.5, value), Point(0, 1.0, value)),
    )  # fmt: skip


def asking(trials: list[TrialRecord], lag: int | None) -> TrialProposer:
    return TrialProposer(NOISY, Book(Path("no-such-file"), {}, {one.number: one for one in trials}), lag)


@pytest.mark.parametrize(
    ("lag", "under_way", "ready"),
    [
        (1, {3}, False),  # one at a time: of trials 0 to 3
        (2, {3}, True),  # two: of 0 to 2
        (2, {2}, False),
        (3, {2, 3}, True),  # three: of 0 and 1
        (3, {1}, False),
        (9, {0, 1, 2, 3}, True),  # of none
        (None, {0, 1, 2, 3}, True),
    ],
)
def test_a_trial_waits_for_those_it_learns_from_and_for_no_others(
    lag: int | None, under_way: set[int], ready: bool
) -> None:
    trials = [trial(number, "RUNNING" if number in under_way else "COMPLETED") for number in range(4)]
    assert asking(trials, lag).ready(4) is ready


def test_what_is_pruned_is_decided_by_the_same_trials_in_the_studys_direction() -> None:
    """Values are to be small. Against trial 0 alone (0.5) a 0.6 is worse, against 0 to 3 (median 0.7) it is better."""
    trials = [trial(0, value=0.5), *(trial(number, value=0.8) for number in (1, 2)), trial(3, value=0.6)]
    curve = (Point(0, 0.5, 0.65),)
    for lag, pruned in ((4, True), (3, False), (1, False)):
        decider = asking(trials, lag).decider(4)
        assert decider is not None
        others = [one.curve for one in trials[: 4 - lag + 1]]
        assert (
            (decider(curve) is not None) is pruned is (decide(NOISY.pruner, curve, others, [0], "minimize") is not None)
        )


def test_a_suggestion_is_of_those_trials_and_avoids_all_of_them() -> None:
    """Two trials that nothing is learned from may have any value; their points are not drawn again."""
    known = [trial(number, value=0.5 - 0.01 * number) for number in range(12)]
    one, other = ([*known, trial(12, value=value), trial(13, value=value)] for value in (0.0, 1.0))
    assert asking(one, 3).choose(14) == asking(other, 3).choose(14)
    assert asking(one, 1).choose(14) != asking(other, 1).choose(14)
