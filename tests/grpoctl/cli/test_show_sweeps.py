"""`show SWEEP`, `show --csv` and the studies in `ls`."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import NotFoundError
from grpoctl.cli.lookup import spec_or_run
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir
from tests.architecture.source import ROOT
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl
from tests.studies import advantage_study, collapse_study, study, trial, write

KEYS = {"schema", "study", "status", "trials", "best", "importances", "findings"}
TRIAL = {"number", "params", "status", "score", "interval", "seeds", "attempts", "runs"}


def test_show_a_sweep_is_its_newest_study(grpoctl: Grpoctl, home: Home) -> None:
    older, newer = advantage_study(6), advantage_study(8)
    newer["study"] = "advantage-study-tiny-1a2b3c4d-2"
    os.utime(write(home, older).spec, (1, 1))
    write(home, newer)
    document = grpoctl("show", "advantage-study", "--json").document
    assert document["study"] == newer["study"]
    assert document.keys() >= KEYS
    assert document["trials"][0].keys() >= TRIAL
    assert document["best"] == newer["best"]
    assert document["findings"][0]["id"] == "best"
    assert grpoctl("show", older["study"], "--json").document["study"] == older["study"]


def test_show_a_study_in_words_with_its_figures(grpoctl: Grpoctl, home: Home) -> None:
    found = write(home, collapse_study())
    found.figures.mkdir()
    (found.figures / "scores.png").touch()
    words = grpoctl("show", found.id).out
    assert "faults" in words
    assert "12/12 with [rollout-in-train-mode], 0/12 with []" in words
    assert "runs that collapsed, of all" in words
    assert str(found.figures / "scores.png") in words
    assert grpoctl("show", str(found.path)).out == words


def test_the_runs_of_a_study_that_was_moved_are_named_where_they_are(grpoctl: Grpoctl, home: Home) -> None:
    """Of the two runs of the trial one is gone: its old place is all that is known of it."""
    old = [f"/gone/sweeps/x/runs/x-t0000-s{seed}" for seed in (0, 1)]
    found = write(home, study([trial(0, (0.5, 0.6), runs=old)]))
    here = found.path / "runs" / "x-t0000-s0"
    here.mkdir(parents=True)
    document = grpoctl("show", found.id, "--json").document
    assert document["trials"][0]["runs"] == [str(here), old[1]]
    assert document["best"]["runs"] == [str(here), old[1]]
    (row,) = csv.DictReader(io.StringIO(grpoctl("show", found.id, "--csv").out))
    assert row["runs"] == f"{here} {old[1]}"


@pytest.mark.parametrize("extra", [("trials=3",), ("-p", "full")])
def test_what_would_change_a_study_is_refused_and_of_its_sweep_is_what_it_would_run(
    grpoctl: Grpoctl, home: Home, extra: tuple[str, ...]
) -> None:
    found = write(home, advantage_study(6))
    said = grpoctl("show", found.id, *extra)
    assert (said.code, said.out, f"{found.id} is shown as it was run" in said.err) == (2, "", True)
    assert "spec" in grpoctl("show", "advantage-study", *extra, "--json").document


def test_show_csv_has_one_line_per_trial(grpoctl: Grpoctl, home: Home) -> None:
    write(home, advantage_study())
    rows = list(csv.DictReader(io.StringIO(grpoctl("show", "advantage-study", "--csv").out)))
    assert [row["number"] for row in rows] == [str(number) for number in range(24)]
    assert rows[1]["stages.grpo.num_generations"] == "8"
    said = grpoctl("show", "p31", "--csv")
    assert (said.code, said.out) == (2, "")


def test_a_study_whose_driver_died_says_so(grpoctl: Grpoctl, home: Home) -> None:
    found = write(home, study([trial(0, [0.5]), trial(1, [], "RUNNING")], status="RUNNING", total=3))
    document = grpoctl("show", found.id, "--json").document
    assert (document["status"], document["trials"][1]["status"]) == ("INTERRUPTED", "INTERRUPTED")
    assert "--resume" in grpoctl("show", found.id).out
    with found.hold():
        assert grpoctl("show", found.id, "--json").document["status"] == "RUNNING"
    (listed,) = grpoctl("ls", "--json").document["studies"]
    assert (listed["study"], listed["status"], listed["ended"], listed["total"]) == (found.id, "INTERRUPTED", 1, 3)


def test_a_sweep_that_was_not_run_shows_what_it_would_run(grpoctl: Grpoctl, home: Home) -> None:
    document = grpoctl("show", "collapse-study", "--profile", "tiny", "--json").document
    assert (document["sweep"], document["spec"]["profile"]) == ("collapse-study", "tiny")
    words = grpoctl("show", "collapse-study").out
    assert "grpoctl sweep collapse-study" in words
    assert "rollout-in-train-mode" in words
    assert grpoctl("show", "collapse-study", "--csv").code == 2
    assert not home.path.exists()


def test_overrides_ask_for_the_spec(grpoctl: Grpoctl, home: Home) -> None:
    write(home, advantage_study())
    assert "spec" in grpoctl("show", "advantage-study", "trials=3", "--json").document


def test_ls_lists_studies(grpoctl: Grpoctl, home: Home) -> None:
    write(home, advantage_study())
    words = grpoctl("ls").out
    assert re.search(r"advantage-study-tiny-1a2b3c4d-1 +COMPLETED +24/24", words)
    assert "eval/reward 0.614 ± 0.015 (#1)" in words
    assert words.index("Sweeps") < words.index("Studies") < words.index("Runs")


def test_what_a_name_means(grpoctl: Grpoctl, home: Home, recorded: Recorded, tmp_path: Path) -> None:
    run, found = recorded(), write(home, advantage_study())
    inside = found.run(1, 0)
    inside.path.mkdir(parents=True)
    inside.spec.touch()
    assert [spec_or_run(home, name) for name in ("p31", "P31", "p31@1")] == ["experiment"] * 3
    assert [spec_or_run(home, name) for name in ("advantage-study", "collapse-study")] == ["sweep"] * 2
    assert spec_or_run(home, run.id) == run
    assert spec_or_run(home, found.id) == StudyDir(path=found.path)
    assert spec_or_run(home, inside.id) == inside
    with pytest.raises(NotFoundError, match="no experiment, sweep or run 'nothing'"):
        spec_or_run(home, "nothing")
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "p31.yaml").touch()
    assert spec_or_run(home, "p31") == "experiment"  # an experiment comes before a sweep of the same name


def test_samples_are_a_runs(grpoctl: Grpoctl, home: Home) -> None:
    found = write(home, advantage_study())
    said = grpoctl("show", found.id, "--samples")
    assert (said.code, said.out) == (2, "")
    assert f"{found.id}-t0000-s0" in said.err


@pytest.fixture(scope="module")
def large_homes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Home]:
    """Homes with a study each, by its number of trials."""
    homes = {trials: Home(path=tmp_path_factory.mktemp(f"home-{trials}")) for trials in (20, 2000)}
    for trials, home in homes.items():
        write(home, advantage_study(trials))
    return homes


def shown(argv: tuple[str, ...], home: Home, folder: Path) -> tuple[str, float]:
    """What the command prints of the study in the home, and the CPU seconds its process took."""
    code = "import sys; from grpoctl.app import main\ntry:\n    main()\nfinally:\n    heavy = {'torch', 'optuna', "
    code += "'numpy', 'pandas', 'matplotlib', 'mlflow'} & set(sys.modules)\n    assert not heavy, heavy"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.run(
        [sys.executable, "-P", "-c", code, *argv], cwd=folder, capture_output=True, text=True, check=False,
        timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT), "GRPOCTL_HOME": str(home.path)},
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.returncode == 0, process.stderr
    assert process.stdout
    return process.stdout, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.process
@pytest.mark.parametrize(
    "argv",
    [("ls",), pytest.param(("show", "advantage-study"), marks=pytest.mark.slow), ("show", "advantage-study", "--json")],
)
def test_a_study_of_2000_trials_costs_hardly_more_than_one_of_20(
    argv: tuple[str, ...], large_homes: dict[int, Home], tmp_path: Path
) -> None:
    """The seconds depend on the machine (benchmarks/startup.py prints them), and so does half of their ratio."""
    _, few = shown(argv, large_homes[20], tmp_path)
    said, many = shown(argv, large_homes[2000], tmp_path)
    assert many < 10 * few  # 1.3 to 3.1 measured; a hundred times the trials, so anything quadratic is minutes
    if "--json" in argv:
        assert len(json.loads(said)["trials"]) == 2000
