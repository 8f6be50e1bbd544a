"""`grpoctl report`: where the page goes, what stands on standard output, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from grpoctl.files import read_json, replace_json
from tests import reported, studies
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl
from tests.promotable import ended_study, swept


def test_the_page_is_report_html_here(grpoctl: Grpoctl, recorded: Recorded, tmp_path: Path) -> None:
    run = reported.run(recorded)
    said = grpoctl("report", run.id)
    assert said.code == 0, said.err
    assert "0.500 -> 0.475" in said.out  # the verdict
    assert "report.html" in said.err
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert grpoctl("report", run.id).code == 0  # an older page is replaced


def test_markdown_and_json_come_without_a_page_unless_one_is_named(
    grpoctl: Grpoctl, recorded: Recorded, tmp_path: Path
) -> None:
    run = reported.run(recorded)
    said = grpoctl("report", run.id, "--md")
    assert said.out.startswith("# Report on ")
    said = grpoctl("report", run.id, "--json")
    assert said.document["schema"] == 1
    assert not list(tmp_path.glob("*.html"))
    said = grpoctl("report", "p31", "--json", "--html", "elsewhere.html")
    assert said.document["parts"][0]["runs"][0]["run_id"] == run.id
    text = (tmp_path / "elsewhere.html").read_text(encoding="utf-8")
    assert json.loads(text.split('id="report-data">')[1].split("</script>")[0])["parts"] == said.document["parts"]


def test_runs_experiments_and_studies_in_one_report(grpoctl: Grpoctl, recorded: Recorded) -> None:
    first, second = reported.run(recorded, 0, k=2), reported.run(recorded, 0)
    studies.write(second.home, studies.advantage_study())
    said = grpoctl("report", str(first.path), "p31", "advantage-study", "--json")
    assert said.code == 0, said.err
    assert [part["kind"] for part in said.document["parts"]] == ["comparison", "study"]


def test_a_trial_is_its_runs(grpoctl: Grpoctl, recorded: Recorded) -> None:
    """As `compare` has it: all seeds of the trial that have ended, one side."""
    runs = [reported.run(recorded, seed) for seed in (0, 1)]
    study = ended_study(runs[0].home, swept("advantage-study", "tiny"))
    for trial, run in enumerate(runs):
        for seed in (0, 1):
            inside = study.run(trial, seed)
            shutil.copytree(run.path, inside.path, dirs_exist_ok=True)
            result = {**(read_json(run.result) or {}), "run_id": inside.id, "seed": seed, "spec_sha": f"{trial}" * 64}
            replace_json(inside.result, result)
    asked = ("report", f"{study.id}-t0001", f"{study.id}-t0000")
    said = grpoctl(*asked, "--json")
    assert said.code == 0, said.err
    (part,) = said.document["parts"]
    assert part["kind"] == "comparison"
    ids = [f"{study.id}-t{trial:04d}-s{seed}" for trial in (1, 0) for seed in (0, 1)]
    assert [run["run_id"] for run in part["runs"]] == ids
    assert f"{study.id}-t0001 is a trial of profile tiny, got --profile full" in grpoctl(*asked, "-p", "full").err
    assert "no run of trial 7" in grpoctl("report", f"{study.id}-t0007").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], ["nonsense", "grpoctl ls"]),
        (["p32"], ["no finished run", "grpoctl run p32"]),
        (["lr-study"], ["no study", "grpoctl sweep lr-study"]),
        (["p31", "--json", "--md"], ["--json", "--md"]),
        (["p31", "--html", "absent/page.html"], ["absent"]),
        (["p31", "--html", "notes.txt"], ["notes.txt"]),
        (["p31", "--html", "-"], ["standard output"]),
        (["p31", "-p", "full"], ["no finished run", "full", "grpoctl run p31 -p full"]),
        (["p31", "-p", "nonsense"], ["no finished run", "nonsense", "small-memory"]),
        (["p3l"], ["did you mean p31"]),
        ([], ["WHAT"]),
    ],
)
def test_what_it_refuses(
    grpoctl: Grpoctl, recorded: Recorded, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    reported.run(recorded)
    (tmp_path / "notes.txt").write_text("not a page", encoding="utf-8")
    said = grpoctl("report", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert [word for word in words if word not in said.err] == []
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "not a page"
    assert not (tmp_path / "report.html").exists()


def test_a_run_that_goes_on_has_nothing_to_report(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(ended="INTERRUPTED")
    run.result.unlink()
    said = grpoctl("report", run.id)
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "no result" in said.err


def test_a_damaged_run_is_one_line(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = reported.run(recorded)
    run.problems.write_bytes(b"no parquet")
    said = grpoctl("report", run.id)
    assert (said.code, len(said.err.splitlines())) == (3, 1)
    assert "problems.parquet" in said.err


def test_a_study_of_another_profile_is_refused(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = reported.run(recorded)
    studies.write(run.home, studies.advantage_study())
    for name in ("advantage-study", run.id):
        said = grpoctl("report", name, "-p", "full", "--json")
        assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
        assert [word for word in ("tiny", "--profile full") if word not in said.err] == []
        assert grpoctl("report", name, "-p", "tiny", "--json").code == 0
