"""`grpoctl logs` and `grpoctl stop` of what has ended, by names of every kind. Nothing runs here."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import shutil
import subprocess
import sys
import threading

import pytest

from core.errors import NotFoundError
from grpoctl.cli.logs import exit_code, lines_until_the_end, log_source
from grpoctl.cli.lookup import run_or_study
from grpoctl.files import replace_json
from grpoctl.runs import status
from grpoctl.runs.listing import summary
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl


@pytest.fixture
def study(home: Home) -> StudyDir:
    """A study of two trials that has ended; nothing but its sweep.json and one empty run."""
    study = StudyDir(path=home.path / "sweeps" / "lr-study-tiny-0123abcd-1")
    run = study.run(1, 0)
    run.path.mkdir(parents=True)
    study.spec.write_text("")
    run.spec.write_text("")
    trials = [
        {"number": 0, "status": "COMPLETED", "score": 0.51234, "params": {"lr": 1}},
        {"number": 1, "status": "FAILED", "score": None, "params": {"lr": 2}},
        {"number": 2, "status": "RUNNING", "score": None, "params": {"lr": 3}},
    ]
    replace_json(study.state, {"schema": 1, "status": "STOPPED", "message": "as asked", "trials": trials})
    return study


def test_a_name_is_a_runs_or_a_studys(home: Home, recorded: Recorded, study: StudyDir) -> None:
    run = recorded()
    inside = study.run(1, 0)
    for name in ("p31", run.id, run.id.upper(), str(run.path), run.id[:14]):
        assert run_or_study(home, name) == run
    for name in ("lr-study", study.id, str(study.path), "lr-s"):
        assert run_or_study(home, name) == study
    for name in (inside.id, str(inside.path), "lr-study-t0001-s0"):
        assert run_or_study(home, name) == inside
    recorded(seed=1)
    with pytest.raises(NotFoundError, match="'p31-' fits 2 runs"):
        run_or_study(home, "p31-")
    for name in ("p32", "lr-study-t0009-s0"):
        with pytest.raises(NotFoundError, match=f"no run and no study '{name}'"):
            run_or_study(home, name)


def test_one_that_is_running_comes_before_newer_ones_that_have_ended(
    grpoctl: Grpoctl, home: Home, recorded: Recorded, study: StudyDir
) -> None:
    """By the experiment, by a beginning and against a study of that name; an id and a directory mean themselves."""
    older, newer = recorded(ended="RUNNING"), recorded(seed=1)
    older.log.write_text("older\n")
    newer.log.write_text("newer\n")
    assert grpoctl("logs", "p31").out == "newer\n"
    with older.hold():
        said = grpoctl("logs", "p31")
        assert (said.out, older.id in said.err, "running" in said.err) == ("older\n", True, True)
        assert grpoctl("logs", "p31-").out == "older\n"  # fits both, and one of them runs
        assert (grpoctl("logs", newer.id).out, grpoctl("logs", str(newer.path)).out) == ("newer\n", "newer\n")
        assert grpoctl("logs", older.id).err == ""
        assert run_or_study(home, "p31") == newer  # only what looks at what goes on prefers it
    twin = StudyDir(path=home.path / "sweeps" / "p31-tiny-0123abcd-1")
    twin.path.mkdir()
    twin.spec.write_text("")
    with twin.hold():
        assert run_or_study(home, "p31", running_first=True) == twin
    assert run_or_study(home, "p31", running_first=True) == newer


def test_a_running_one_of_another_experiment_is_left_alone(grpoctl: Grpoctl, recorded: Recorded) -> None:
    """p31 and p31-sound: the one's name begins the other's ids."""
    idle = recorded()
    running = RunDir(path=idle.path.with_name("p31-sound-tiny-s0-01234567-1"))
    shutil.copytree(idle.path, running.path)
    provenance = json.loads(running.provenance.read_text())
    running.provenance.write_text(json.dumps({**provenance, "experiment": "p31-sound"}))
    with running.hold():
        stopped = grpoctl("stop", "p31")
        assert (stopped.code, f"{idle.id} is not running" in stopped.err, "matches" in stopped.err) == (2, True, False)


HOLDS = """
import signal, sys
from pathlib import Path
from grpoctl.runs.locks import hold_lock
with hold_lock(Path(sys.argv[1]), 0.5):
    print("held", flush=True)
    signal.pause()
"""


@pytest.mark.process
def test_stop_ends_the_one_that_is_running(grpoctl: Grpoctl, recorded: Recorded) -> None:
    older, newer = recorded(ended="RUNNING"), recorded(seed=1)
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(older.lock)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        said = grpoctl("stop", "p31", "--json")
    assert (said.code, said.document["name"], said.document["pid"]) == (0, older.id, process.pid)
    assert older.id in said.err
    said = grpoctl("stop", "p31")
    assert (said.code, newer.id in said.err) == (2, True)


def test_a_log_is_printed(grpoctl: Grpoctl, recorded: Recorded) -> None:
    recorded().log.write_text("one\ntwo\u2028still two\nthree, not whole")
    assert grpoctl("logs", "p31").out == "one\ntwo\\u2028still two\n"
    assert grpoctl("logs", "p31", "-n", "1").out == "two\\u2028still two\n"
    assert grpoctl("logs", "p31", "-n", "0").out == ""
    assert grpoctl("logs", "p31", "-n", "9").out == "one\ntwo\\u2028still two\n"


def test_a_run_without_a_log_shows_its_steps(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(steps=2)
    said = grpoctl("logs", "p31", "-n", "2")
    (note,) = said.err.splitlines()
    assert [fact for fact in (run.id, "has no log", "metrics.jsonl") if fact not in note] == []
    assert [line.split()[:4] for line in said.out.splitlines()] == [
        ["step", "1", "reward", "0.100"],
        ["step", "2", "reward", "0.200"],
    ]
    assert "eval 0.500" in said.out  # of step 0; what a row lacks keeps its last value


@pytest.mark.parametrize("words", [["grpoctl", "run", "p31"], ["grpoctl", "run", "p31", "--detach"]])
def test_a_log_of_findings_alone_does_not_hide_the_progress(
    grpoctl: Grpoctl, recorded: Recorded, words: list[str]
) -> None:
    """Only what `run --detach` starts prints its progress into the log."""
    run = recorded(steps=2)
    replace_json(run.provenance, {**json.loads(run.provenance.read_text()), "attempts": [{"argv": words}]})
    run.log.write_text("a finding\n")
    said = grpoctl("logs", run.id)
    beside = [] if "--detach" in words else [0, 1, 2]
    assert said.out.splitlines()[0] == "a finding"
    assert [int(line.split()[1]) for line in said.out.splitlines()[1:]] == beside
    assert ("was not started with --detach" in said.err) == bool(beside)


def test_a_log_that_begins_while_it_is_followed_is_seen(recorded: Recorded) -> None:
    run = recorded(steps=1)
    replace_json(run.provenance, {**json.loads(run.provenance.read_text()), "attempts": [{"argv": ["grpoctl"]}]})
    source = log_source(run)
    assert (len(source.new_lines()), "has no log" in source.note) == (2, True)
    run.log.write_text("a finding\n")
    assert source.new_lines() == ["a finding"]


def test_a_study_without_a_log_shows_its_trials(grpoctl: Grpoctl, study: StudyDir) -> None:
    said = grpoctl("logs", "lr-study", "-f")
    assert said.out.splitlines() == [
        "trial    0  COMPLETED  score 0.5123  {'lr': 1}",
        "trial    1  FAILED  score -  {'lr': 2}",
        f"{study.id}: STOPPED, as asked",
    ]
    assert (said.code, "sweep.json" in said.err) == (0, True)
    study.log.write_text("said\n")
    assert grpoctl("logs", "lr-study").out == "said\n"


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("COMPLETED", 0),
        ("STOPPED", 0),
        ("COLLAPSED", 4),
        ("INTERRUPTED", 130),
        ("FAILED", 3),
        ("DAMAGED", 3),
        ("RUNNING", 3),
    ],
)
def test_following_ends_with_the_exit_code_of_the_status(ending: str, code: int) -> None:
    assert exit_code(ending) == code


def test_following_one_whose_process_died_says_so(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(ended="RUNNING")
    said = grpoctl("logs", "p31", "-f", "-n", "0")
    assert (said.code, said.out) == (130, f"{run.id}: INTERRUPTED, its process died\n")


def test_what_is_written_while_it_is_followed_is_seen_up_to_the_last_word(recorded: Recorded) -> None:
    run = recorded(ended="RUNNING")
    run.log.write_text("one\n")
    source = log_source(run)
    assert source.new_lines() == ["one"]
    going_on = threading.Event()
    going_on.set()
    lines = lines_until_the_end(dataclasses.replace(source, under_way=going_on.is_set))
    with run.log.open("a") as log:
        log.write("two\nthr")
        log.flush()
        assert next(lines) == "two"
        log.write("ee\n")
        log.flush()
        assert next(lines) == "three"
        log.write("last\n")
    going_on.clear()
    assert list(lines) == ["last"]


def test_a_held_run_is_under_way_and_so_is_one_that_still_prints(recorded: Recorded) -> None:
    run = recorded(ended="RUNNING")
    with run.hold():
        assert log_source(run).under_way()
    assert not log_source(run).under_way()
    with run.log.open("w") as log:
        fcntl.flock(log, fcntl.LOCK_EX)  # as whoever prints into it does
        assert log_source(run).under_way()
    assert not log_source(run).under_way()


def test_a_run_that_waits_for_its_turn_is_not_called_dead(recorded: Recorded) -> None:
    run = recorded()
    run.status.unlink()
    with run.hold():
        assert (summary(run)["status"], summary(run)["message"]) == ("RUNNING", "waits for its turn")
    assert summary(run)["status"] == "INTERRUPTED"


def test_what_does_not_run_cannot_be_stopped(grpoctl: Grpoctl, recorded: Recorded, study: StudyDir) -> None:
    run = recorded(ended="COMPLETED")
    for name, why in ((run.id, "COMPLETED"), (study.id, "STOPPED: as asked")):
        said = grpoctl("stop", name)
        assert (said.code, said.out) == (2, "")
        assert said.err == f"error: {name} is not running ({why}); nothing to stop\n"
    assert status.read(run.status) is not None


@pytest.mark.parametrize("command", ["logs", "stop"])
def test_a_name_that_nothing_has(grpoctl: Grpoctl, command: str) -> None:
    said = grpoctl(command, "nothing")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: no run and no study 'nothing' in ")


@pytest.mark.parametrize(
    "arguments", [("p99",), ("p31", "num_generation=8"), ("p31", "--profile", "giant"), ("p31", "--seeds", "0,0"),
                  ("p31", "stages.grpo.prompts_per_step=1000000")],
)  # fmt: skip
def test_detaching_what_cannot_run_starts_and_writes_nothing(
    grpoctl: Grpoctl, home: Home, arguments: tuple[str, ...]
) -> None:
    said = grpoctl("run", *arguments, "--detach")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ")
    assert not home.runs_folder.exists()
