"""`grpoctl ls`: runs that ended, run, died or are damaged. It changes nothing but a status that was untrue."""

from __future__ import annotations

import pytest

from grpoctl.runs.run_dir import Home
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl


def test_ls_lists_experiments_sweeps_and_runs(grpoctl: Grpoctl, recorded: Recorded, home: Home) -> None:
    first, second = recorded(seed=0), recorded(seed=1, ended="COLLAPSED")
    document = grpoctl("ls", "--json").document
    assert document.keys() == {"schema", "home", "experiments", "sweeps", "studies", "runs"}
    assert document["home"] == str(home.path)
    assert {"p30", "p30-sound", "p31"} <= {entry["name"] for entry in document["experiments"]}
    runs = [(entry["run_id"], entry["status"], entry["step"], entry["eval/reward"]) for entry in document["runs"]]
    assert runs == [(second.id, "COLLAPSED", 3, 0.6), (first.id, "COMPLETED", 3, 0.6)]
    words = grpoctl("ls").out
    assert words.index("Experiments") < words.index("Sweeps") < words.index("Runs")
    assert first.id in words


def test_a_run_whose_process_died_is_interrupted_at_its_last_step(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(steps=3, ended="RUNNING")
    (entry,) = grpoctl("ls", "--json").document["runs"]
    assert (entry["status"], entry["step"]) == ("INTERRUPTED", 3)
    assert '"INTERRUPTED"' in run.status.read_text()


def test_a_run_that_is_held_is_left_alone(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(ended="RUNNING")
    with run.hold():
        (entry,) = grpoctl("ls", "--json").document["runs"]
        shown = grpoctl("show", run.id, "--json").document
    assert entry["status"] == shown["status"] == "RUNNING"
    assert shown["metrics"]["reward/mean"] == 0.3


@pytest.mark.parametrize("name", ["status.json", "provenance.json", "result.json"])
def test_a_damaged_run_does_not_hide_the_others(grpoctl: Grpoctl, recorded: Recorded, name: str) -> None:
    sound, damaged = recorded(seed=0), recorded(seed=1)
    (damaged.path / name).write_text('{"schema": 1, ')
    listed = {entry["run_id"]: entry["status"] for entry in grpoctl("ls", "--json").document["runs"]}
    assert listed == {sound.id: "COMPLETED", damaged.id: "DAMAGED"}
    assert grpoctl("ls").code == grpoctl("show", "p31").code == 0
    assert sound.id in [entry["run_id"] for entry in grpoctl("show", "p31", "--json").document["runs"]]
