"""What a study's driver knows of shared stages: which several runs have, who makes one now, and when it may go."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpoctl.executors.base import Died, Event, Job
from grpoctl.runs import provenance
from grpoctl.runs.prefixes import Made, Prefixes
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sweeps.candidates import Candidates, Params, points
from grpoctl.sweeps.driver import Driver, Plan, end_status
from grpoctl.sweeps.loading import load_sweep, sweep_sha
from grpoctl.sweeps.prefixes import SharedPrefixes, saved
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import read_book
from grpoctl.sweeps.storage import StudyStorage
from grpoctl.sweeps.study import Terms, new_study
from tests.grpoctl.sweeps.mine import write
from tests.grpoctl.sweeps.paper import PaperExecutor

SUPERVISED, BLENDED, FULL = (f"stages.{name}.learning_rate" for name in ("supervised", "blended", "full"))
TWO, RANGE = "[1.0e-4, 1.0e-3]", "{low: 1.0e-4, high: 1.0e-3}"
HEAD = "name: mine\ntitle: Mine\n"
STAGED = f"{HEAD}experiment: staged\nsettings: {{stages.full.early_stopping: null}}\n"
RATES = f"{STAGED}seeds: [0]\nsampler: grid\naxes: {{{SUPERVISED}: {TWO}, {FULL}: {TWO}}}\n"
MADE = Made(stages=2, step=60, completions=96, tokens=0, seconds=4.25, device="cpu", run="r")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def study(tmp_path: Path) -> StudyDir:
    path = tmp_path / ".grpoctl" / "sweeps" / "mine-1"
    path.mkdir(parents=True)
    return StudyDir(path=path)


def mine(text: str) -> SweepSpec:
    write(text, head="")
    return load_sweep("mine", profile="tiny").spec


DRAWN = "sampler: random\ntrials: 4\nseeds: [0]\n"
SWEEPS = {  # what is swept -> how many stages' ends several runs have
    "two rates of the first stage, each with two ends": (RATES, 4),
    "the same of two seeds": (RATES.replace("seeds: [0]", "seeds: [0, 1]"), 8),
    "one first stage, two second ones": (RATES.replace(SUPERVISED, BLENDED), 3),
    "nothing in common": (f"{STAGED}sampler: grid\naxes: {{{SUPERVISED}: {TWO}}}\n", 0),
    "two first rates, any last one": (f"{STAGED}{DRAWN}axes: {{{SUPERVISED}: {TWO}, {FULL}: {RANGE}}}\n", 4),
    "candidates": (f"{STAGED}candidates: {{a: {{}}, b: {{stages.full.beta: 0.0}}}}\nseeds: [0]\n", 2),
    "switched off": (f"{RATES}share_stages: false\n", 0),
    "one stage": (f"{HEAD}experiment: p31\nsampler: grid\naxes: {{learning_rate: {TWO}}}\n", 0),
}


@pytest.mark.parametrize(("text", "shared"), SWEEPS.values(), ids=SWEEPS)
def test_what_several_runs_have_in_common_is_wanted(study: StudyDir, text: str, shared: int) -> None:
    prefixes = SharedPrefixes.of(Candidates.of(mine(text)), study)
    assert prefixes.begin([]) == []
    assert len(Prefixes(folder=study.prefixes).wanted()) == shared
    assert study.prefixes.exists() == (shared > 0)


class Paper:
    """The two by two points of RATES: t0 and t1 have one supervised rate, t2 and t3 the other."""

    def __init__(self, study: StudyDir) -> None:
        self.there = Prefixes(folder=study.prefixes)
        self.points: list[Params] = points(mine(RATES))
        self.runs = [study.run(number, 0) for number in range(4)]
        self.prefixes = SharedPrefixes.of(Candidates.of(mine(RATES)), study)
        self.prefixes.begin([])
        candidates = Candidates.of(mine(RATES))
        for run, params in zip(self.runs, self.points, strict=True):
            self.prefixes.add(run, params, candidates.spec(params))

    def publish_all(self) -> None:
        for sha in self.there.wanted():
            (self.there.path(sha)).mkdir()

    @property
    def held_back(self) -> list[int]:
        return [number for number, run in enumerate(self.runs) if self.prefixes.being_made([run])]


def test_a_run_is_held_back_while_another_makes_what_it_needs(study: StudyDir) -> None:
    paper = Paper(study)
    assert paper.held_back == []
    paper.prefixes.submitted([paper.runs[0]])
    assert paper.held_back == [1]
    paper.prefixes.submitted([paper.runs[3]])
    assert paper.held_back == [1, 2]
    paper.prefixes.ended(paper.runs[0])  # however it ended: another makes it
    assert paper.held_back == [2]
    paper.prefixes.submitted([paper.runs[1]])
    assert paper.held_back == [0, 2]
    paper.publish_all()
    assert paper.held_back == []


def test_a_prefix_goes_when_no_run_can_need_it(study: StudyDir) -> None:
    paper = Paper(study)
    paper.publish_all()
    paper.prefixes.trial_ended(paper.points[0], [0])
    assert (len(paper.there.shas()), len(paper.there.wanted())) == (4, 2)  # t1 takes it, and nobody makes it again
    paper.prefixes.trial_ended(paper.points[1], [0])
    assert set(paper.there.shas()) == paper.there.wanted()
    paper.prefixes.close()
    assert not study.prefixes.exists()


def test_a_study_that_goes_on_keeps_what_is_intact_and_says_what_is_not(study: StudyDir) -> None:
    paper = Paper(study)
    first, second = sorted(paper.there.wanted())[:2]
    for sha in (first, second):
        paper.there.publish(sha, paper.there.draft(sha), MADE)
    (paper.there.path(first) / "prefix.json").write_text("{")
    again = SharedPrefixes.of(Candidates.of(mine(RATES)), study)
    (note,) = again.begin([(paper.points[2], [0]), (paper.points[3], [0])])
    assert first in note
    assert first not in paper.there.shas()
    assert len(paper.there.wanted()) == 2  # t0's and t1's


def test_what_was_saved_is_the_sum_over_the_runs_that_took_something(study: StudyDir) -> None:
    for number in range(3):
        run = study.run(number, 0)
        run.path.mkdir(parents=True)
        run.spec.write_text("")
        provenance.start(run, {"seed": 0})
        if number:
            provenance.note(run, "shared", {"seconds": 4.25, "completions": 96})
    assert saved(study) == {"runs": 2, "seconds": 8.5, "completions": 192}


class Handing(PaperExecutor):
    """Notes which trial it was handed when."""

    def submit(self, job: Job) -> None:
        self.handed = [*getattr(self, "handed", []), job.number]
        super().submit(job)


def dies_once(run: RunDir, step: int) -> Event | None:
    """The maker of the first prefix dies before its first stage is over, whenever it is tried."""
    return Died(job=0, run=run.path, message="gone") if "-t0000-" in run.id and step == 1 else None


@pytest.mark.parametrize(
    ("slots", "dies", "handed"),
    [
        (1, False, [0, 1, 2, 3]),
        (3, False, [0, 2, 1, 3]),  # t1 needs what t0 makes; t2 does not
        (2, True, [0, 1, 0, 0, 0, 2, 3]),  # nobody waits for ever for a maker that dies
    ],
)
def test_idle_workers_get_what_need_not_wait(tmp_path: Path, slots: int, dies: bool, handed: list[int]) -> None:
    executor = Handing(slots=slots, accident=dies_once) if dies else Handing(slots=slots)
    sweep = mine(RATES)
    opened = new_study(sweep, Home(path=tmp_path / ".grpoctl"), (), Terms(slots=slots))
    study, book = opened.study, opened.book
    storage = StudyStorage.open(study.storage, study.id, sweep, create=True, sweep_sha=sweep_sha(sweep))
    plan = Plan(sweep=sweep, study=study, total=4, lag=None)

    class Silent:
        def update(self, document: object, running: object) -> None: ...
        def note(self, text: str) -> None: ...

    driver = Driver(plan, book=book, storage=storage, executor=executor, progress=Silent())
    driver.run()
    storage.close()
    assert sorted(executor.handed) == sorted(handed)
    if not dies:
        assert executor.handed == handed
    assert end_status(driver)[0] == "COMPLETED"
    assert [trial.status for trial in read_book(study.state).ordered()] == [
        "FAILED" if dies and number == 0 else "COMPLETED" for number in range(4)
    ]
