"""`grpoctl run` where nothing trains: a dry run, and resuming what has ended or is held."""

from __future__ import annotations

from core.models import precision
from grpoctl.config import load, spec_sha
from grpoctl.files import read_json, replace_json
from grpoctl.runs.run_dir import Home
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl


def test_a_dtype_of_auto_is_settled_and_said_before_a_run_has_a_name(grpoctl: Grpoctl) -> None:
    fastest = "bfloat16" if precision.machine_facts().bfloat16 else "float32"
    asked = ("run", "p31", "--dry-run", "--profile", "small", "--json")
    said, stated = (grpoctl(*asked, f"model.dtype={dtype}") for dtype in ("auto", fastest))
    assert said.document == stated.document  # the same run, whoever chose
    assert said.document["spec"]["model"]["dtype"] == fastest
    assert said.err.count(f"dtype {fastest} (auto: this ") == 1
    assert len(said.err.splitlines()) == 1
    assert "dtype" not in stated.err
    assert "dtype" not in grpoctl(*asked, "model.dtype=auto", "model.lora=null").err  # it could be nothing else


def test_a_dry_run_resolves_and_writes_nothing(grpoctl: Grpoctl, home: Home) -> None:
    document = grpoctl("run", "p31", "--dry-run", "--profile", "tiny", "--seeds", "4,2", "--json").document
    assert document["dry_run"]
    assert [run["seed"] for run in document["runs"]] == [4, 2]
    spec = load("p31", profile="tiny").spec
    assert (document["spec_sha"], document["experiment"]) == (spec_sha(spec), "p31")
    spent = grpoctl("run", "p31", "--dry-run", "--profile", "tiny", "budget.tokens=5000").out
    assert "steps x 16 completions until 5000 tokens are spent" in spent
    words = grpoctl("run", "p31", "--dry-run", "--profile", "tiny").out
    assert f"p31-tiny-s0-{spec_sha(spec)[:8]}-N" in words
    assert "96 steps x 16 completions" in words
    assert not home.path.exists()


def test_a_models_folder_that_is_not_there_is_refused_before_a_run_has_a_directory(
    grpoctl: Grpoctl, home: Home
) -> None:
    for dry in ((), ("--dry-run",)):
        said = grpoctl("run", "p31", "-p", "small", "model.source=./nothere", *dry)
        assert (said.code, len(said.err.splitlines()), "no directory" in said.err) == (2, 1, True)
    assert home.runs() == []


def test_a_dry_run_ends_with_what_is_run_how_long_it_takes_and_its_command(
    grpoctl: Grpoctl, home: Home, recorded: Recorded
) -> None:
    asked = ("run", "p31", "--dry-run", "-p", "tiny", "--seeds", "0,1")
    what, how_much, command = grpoctl(*asked).out.splitlines()[-3:]
    assert ("p31-tiny-s0-" in what, "p31-tiny-s1-" in what, str(home.runs_folder) in what) == (True,) * 3
    assert ("96 steps x 16 completions" in how_much, "time unknown" in how_much) == (True, True)
    assert command == "nothing was written; start it: grpoctl run p31 -p tiny --seeds 0,1"
    run = recorded()  # 1000 s from its start to its end
    result = read_json(run.result)
    assert result is not None
    replace_json(run.result, {**result, "final": {"completions": 96 * 16}})
    # Both seeds run in one process, which starts once: 999 s, 1 s of training each; a quarter to four times of that.
    assert "about 17 minutes (4.2 to 66; 95 %, by the clock of 1 run here" in grpoctl(*asked).out


def test_resuming_what_has_ended_gives_its_result(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(ended="STOPPED_EARLY")
    said = grpoctl("run", "p31", "--resume", "--profile", "tiny", "--json")
    assert said.code == 0
    assert said.document["run_id"] == run.id
    assert "nothing to resume" in said.err


def test_resuming_a_guards_stop_has_its_exit_code(grpoctl: Grpoctl, recorded: Recorded) -> None:
    recorded(ended="COLLAPSED")
    assert grpoctl("run", "p31", "--resume", "--profile", "tiny").code == 4


def test_resuming_a_run_that_is_held_is_refused(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(ended="RUNNING")
    with run.hold():
        said = grpoctl("run", "p31", "--resume", "--profile", "tiny", "--json")
    assert (said.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert run.id in line
