"""Homes, run ids and who is found under which name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import BusyError, NotFoundError, StorageError
from grpoctl.files import replace_json
from grpoctl.runs import status
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status, StatusRecord
from grpoctl.runs.study_dir import StudyDir

ROOT = Path(__file__).resolve().parents[3]
P30, SOUND = "p30-tiny-s0-aaaaaaaa", "p30-sound-tiny-s0-bbbbbbbb"


def add_run(home: Home, stem: str, *, started: float, state: Status = Status.COMPLETED) -> RunDir:
    run = home.create_run(stem)
    run.spec.write_text("name: any\n")
    replace_json(run.provenance, {"experiment": "p30-sound" if stem == SOUND else "p30"})
    status.write(run.status, StatusRecord(status=state, pid=1, started=started))
    return run


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(path=tmp_path / ".grpoctl")


def test_the_home_is_the_nearest_one_upwards(tmp_path: Path) -> None:
    below = tmp_path / "project" / "deep"
    below.mkdir(parents=True)
    assert Home.locate(below, {}).path == below / ".grpoctl"  # none anywhere: here, but not created
    assert not (below / ".grpoctl").exists()
    (tmp_path / ".grpoctl").mkdir()
    assert Home.locate(below, {}).path == tmp_path / ".grpoctl"
    (tmp_path / "project" / ".grpoctl").mkdir()
    assert Home.locate(below, {}).path == tmp_path / "project" / ".grpoctl"


@pytest.mark.parametrize(
    ("named", "expected"), [("/somewhere/else", "/somewhere/else"), ("runs-here", "{start}/runs-here")]
)
def test_the_variable_comes_first(tmp_path: Path, named: str, expected: str) -> None:
    (tmp_path / ".grpoctl").mkdir()
    assert str(Home.locate(tmp_path, {"GRPOCTL_HOME": named}).path) == expected.format(start=tmp_path)


def test_run_numbers_go_up_and_are_not_used_again(home: Home) -> None:
    assert [home.create_run("p31-tiny-s0-abc").id for _ in range(2)] == ["p31-tiny-s0-abc-1", "p31-tiny-s0-abc-2"]
    home.create_run("p31-tiny-s0-abcd")  # another stem that begins alike counts for itself
    (home.runs_folder / "p31-tiny-s0-abc-1").rmdir()
    assert home.create_run("p31-tiny-s0-abc").id == "p31-tiny-s0-abc-3"


def test_the_home_keeps_itself_out_of_git(home: Home) -> None:
    home.create_run("a")
    assert (home.path / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("place", ["/dev/null/home", "/proc/home", "/sys/home"])
def test_a_home_that_cannot_be_written_is_one_line(place: str) -> None:
    with pytest.raises(StorageError, match=rf"^cannot create a run in {place}: [^\n]+$"):
        Home(path=Path(place)).create_run("a")


def test_a_home_that_is_no_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(StorageError, match="cannot read"):
        Home(path=tmp_path).runs()


def test_runs_are_listed_by_their_start_and_need_a_spec(home: Home) -> None:
    assert home.runs() == []
    first, second = add_run(home, P30, started=200.0), add_run(home, SOUND, started=100.0)
    home.create_run("killed-before-its-spec")
    assert home.runs() == [first, second]


# started: p30 #1 at 1, p30-sound #1 at 2, p30 #2 at 3. `p30` is an experiment, though it begins all three ids.
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("p30", f"{P30}-2"),
        ("P30", f"{P30}-2"),
        ("p30-sound", f"{SOUND}-1"),
        (f"{P30}-1", f"{P30}-1"),
        (f"{P30.upper()}-1", f"{P30}-1"),
        ("p30-s", f"{SOUND}-1"),
    ],
)
def test_find_by_name_id_or_unique_beginning(home: Home, name: str, found: str) -> None:
    add_run(home, P30, started=1.0)
    add_run(home, SOUND, started=2.0)
    add_run(home, P30, started=3.0)
    assert home.find(name).id == found


def test_an_experiments_name_means_no_other_ones_runs(home: Home) -> None:
    add_run(home, SOUND, started=1.0)
    assert home.find("p30-s").id == f"{SOUND}-1"  # a beginning
    with pytest.raises(NotFoundError, match=rf"no run of 'p30' .* by its id \({SOUND}-1\)"):
        home.find("p30")


@pytest.mark.parametrize("told", [{}, {"experiment": ""}, {"experiment": "P30"}, {"experiment": "/x/p30.yaml"}])
def test_a_run_that_names_no_other_experiment_is_found(home: Home, told: dict[str, str]) -> None:
    run = add_run(home, P30, started=1.0)
    replace_json(run.provenance, told)
    assert home.find("p30") == run


def test_what_never_recorded_a_step_is_passed_over_where_steps_are_wanted(home: Home) -> None:
    older, newer = add_run(home, P30, started=1.0), add_run(home, P30, started=2.0, state=Status.FAILED)
    assert home.find("p30", begun=True) == newer  # none has
    older.metrics.write_text("{}\n")
    assert (home.find("p30", begun=True), home.find("p30")) == (older, newer)
    assert home.find(newer.id, begun=True) == newer  # named itself


def test_find_by_path(home: Home) -> None:
    run = add_run(home, P30, started=1.0)
    assert home.find(str(run.path)) == run
    assert home.find(os.path.relpath(run.path)) == run


@pytest.mark.parametrize(
    ("name", "message"),
    [("p30-t", "fits 2 runs"), ("p30-sond", "did you mean 'p30-sound'"), ("zzz", "grpoctl ls"), ("", "empty name")],
)
def test_find_says_what_fits_or_is_near(home: Home, name: str, message: str) -> None:
    for stem, started in ((P30, 1.0), (P30, 2.0), (SOUND, 3.0)):
        add_run(home, stem, started=started)
    with pytest.raises(NotFoundError, match=message):
        home.find(name)


@pytest.mark.parametrize(
    ("states", "newest"),
    [
        ([Status.INTERRUPTED, Status.COMPLETED], 1),
        ([Status.INTERRUPTED, Status.RUNNING, Status.COLLAPSED], 2),
        ([Status.FAILED], 1),
        ([Status.COMPLETED, Status.STOPPED_EARLY, Status.PRUNED, Status.COLLAPSED, Status.INVALID_ROLLOUT], None),
        ([Status.INTERRUPTED] * 11, 11),  # by number: as text, 9 would come after 11
    ],
)
def test_the_newest_unfinished_run_of_a_stem(home: Home, states: list[Status], newest: int | None) -> None:
    for state in states:
        add_run(home, P30, started=0.0, state=state)
    found = home.newest_unfinished(P30)
    assert (found.id if found else None) == (f"{P30}-{newest}" if newest else None)


def test_a_run_killed_before_its_status_is_unfinished(home: Home) -> None:
    run = home.create_run(P30)
    assert home.newest_unfinished(P30) is None  # not even a spec: nothing to go on with
    run.spec.write_text("name: p30\n")
    assert home.newest_unfinished(P30) == run


def test_a_run_is_held_by_one(home: Home) -> None:
    run = home.create_run("a")
    assert not run.is_held()
    with run.hold():
        assert run.is_held()
        with pytest.raises(BusyError, match=rf"^a-1 is in use by process {os.getpid()};[^\n]+$"), run.hold(patience=0):
            pass
        assert run.is_held()  # neither looking nor trying takes it away
    assert not run.is_held()
    with run.hold(patience=0):
        pass


CREATOR = """
import sys
from pathlib import Path
from grpoctl.runs.run_dir import Home
sys.stdin.readline()
for _ in range(25):
    print(Home(path=Path(sys.argv[1])).create_run("a").id)
"""


@pytest.mark.process
def test_processes_at_once_get_different_runs(home: Home) -> None:
    command = [sys.executable, "-c", CREATOR, str(home.path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen(command, cwd=ROOT, text=True, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    for process in processes:  # all are waiting: now they go together
        process.stdin.write("\n")
        process.stdin.flush()
    ids = [line for process in processes for line in process.communicate()[0].split()]
    assert len(ids) == len(set(ids)) == 75
    assert {run.name for run in home.runs_folder.iterdir()} == set(ids)


STUDY = "advantage-study-tiny-1a2b3c4d-1"


def add_study_run(home: Home, number: int, seed: int) -> RunDir:
    study = StudyDir(path=home.path / "sweeps" / STUDY)
    study.path.mkdir(parents=True, exist_ok=True)
    study.spec.write_text("name: advantage-study\n")
    run = study.run(number, seed)
    run.path.mkdir(parents=True)
    run.spec.write_text("name: p31\n")
    replace_json(run.provenance, {"experiment": "p31"})
    return run


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (f"{STUDY}-t0007-s0", (7, 0)),
        (f"{STUDY}-t0007-s0".upper(), (7, 0)),
        (f"{STUDY}-t0012", (12, 1)),  # its only run
        (f"{STUDY}-t0012-s", (12, 1)),
    ],
)
def test_a_run_of_a_study_is_found_by_its_id(home: Home, name: str, found: tuple[int, int]) -> None:
    add_run(home, P30, started=1.0)
    runs = {key: add_study_run(home, *key) for key in ((7, 0), (7, 1), (12, 1))}
    run = home.find(name)
    assert run == runs[found]
    assert run.home == home


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{STUDY}-t0007", "fits 2 runs"),
        (f"{STUDY}-t", "fits 3 runs"),
        (f"{STUDY}-t0008-s0", "no run"),
        (STUDY, "no run"),
        ("p31", "no run"),
    ],
)
def test_a_studys_runs_stand_for_nothing_but_their_id(home: Home, name: str, message: str) -> None:
    for key in ((7, 0), (7, 1), (12, 1)):
        add_study_run(home, *key)
    assert home.runs() == []  # they are not listed one by one
    with pytest.raises(NotFoundError, match=message):
        home.find(name)
