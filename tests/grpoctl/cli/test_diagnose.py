"""`grpoctl diagnose`: its forms, its files, its exit codes, and what it refuses. The rules have tests of their own."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import UserError
from grpoctl.cli.diagnose import check_keeps
from grpoctl.files import replace_json
from grpoctl.runs.run_dir import RunDir
from tests.architecture.test_lightness import HEAVY, RUN, started
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl

TABLE = "step,update,reward/mean\n" + "".join(f"{step},1,0.5\n" for step in range(1, 13))
KEYS = [
    "schema", "source", "kind", "verdict", "looked_at", "not_looked_at", "open_questions", "not_understood", "facts",
    "settings", "notes", "findings",
]  # fmt: skip


@pytest.fixture
def sick(tmp_path: Path) -> str:
    """A CSV of 40 steps; every second makes an update, and the step after it has no valid completion (p = 1.5e-11).

    The first update is at a learning rate of 0, and a collapse follows it all the same.
    """
    lines = ["step,update,completions/valid,reward/mean,learning_rate"]
    lines += [
        f"{step},{step % 2},{step % 2},{0.5 + 0.01 * (step % 3)},{0 if step == 1 else 1e-6}" for step in range(1, 41)
    ]
    (tmp_path / "sick.csv").write_text("\n".join(lines) + "\n")
    return "sick.csv"


@pytest.fixture
def sound(tmp_path: Path) -> str:
    """Twelve sound steps."""
    lines = ["step,update,completions/valid,reward/mean", *(f"{step},1,1,0.{step % 3 + 4}" for step in range(1, 13))]
    (tmp_path / "sound.csv").write_text("\n".join(lines) + "\n")
    return "sound.csv"


def test_the_report(grpoctl: Grpoctl, sick: str) -> None:
    said = grpoctl("diagnose", sick)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0].startswith("Verdict   ERROR: 1 error")
    assert lines[1] == "Source    sick.csv (csv)"
    first = next(line for line in lines if line.startswith("Finding"))
    assert first.startswith("Finding   ERROR: rollout-mode (strong)")
    assert any(line.startswith("Ruled out policy-collapse") for line in lines)


def test_one_document_on_standard_output(grpoctl: Grpoctl, sick: str) -> None:
    document = grpoctl("diagnose", sick, "--json", "--set", "num_generations=2", "--set", "beta=0").document
    assert list(document) == KEYS
    assert (document["schema"], document["kind"]) == (2, "csv")
    assert document["settings"] == {"num_generations": 2, "beta": 0.0}
    assert (document["facts"]["steps"], document["facts"]["updates"]) == (40, 20)
    first = document["findings"][0]
    assert (first["id"], first["severity"]) == ("rollout-mode", "error")
    assert {"summary", "evidence", "rules_out", "suggest", "advice", "confidence"} <= set(first)


def test_markdown(grpoctl: Grpoctl, sick: str) -> None:
    out = grpoctl("diagnose", sick, "--md").out
    assert out.startswith("# Diagnosis of sick.csv\n")
    assert "## ERROR: rollout-mode" in out


def test_columns_of_another_name(grpoctl: Grpoctl, tmp_path: Path, sick: str) -> None:
    text = (tmp_path / sick).read_text().replace("completions/valid", "ok = yes", 1)
    (tmp_path / sick).write_text(text)
    assert "rollout-mode (strong)" not in grpoctl("diagnose", sick).out
    assert "rollout-mode (strong)" in grpoctl("diagnose", sick, "--map", "ok = yes=completions/valid").out


@pytest.mark.parametrize(
    ("source", "limit", "code"),
    [
        ("sick", "error", 1),
        ("sick", "warning", 1),
        ("sick", "never", 0),
        ("sound", "error", 0),
        ("sound", "warning", 0),
    ],
)
def test_fail_on(grpoctl: Grpoctl, sick: str, sound: str, source: str, limit: str, code: int) -> None:
    said = grpoctl("diagnose", f"{source}.csv", "--fail-on", limit)
    assert said.code == code
    assert said.out.startswith("Verdict")  # whatever the code is
    assert grpoctl("diagnose", f"{source}.csv", "--fail-on", limit, "--json").code == code


def test_a_page_and_a_proposal_besides(grpoctl: Grpoctl, tmp_path: Path, sick: str) -> None:
    said = grpoctl("diagnose", sick, "--json", "--html", "a.html", "--propose", "next-one")
    assert said.document["proposed"] == {
        "name": "next-one", "file": "experiments/next-one.yaml", "finding": "rollout-mode",
    }  # fmt: skip
    notes = said.err.splitlines()
    assert notes[0] == "note: wrote a.html"
    assert notes[1].startswith("note: wrote experiments/next-one.yaml, which decides rollout-mode; next: grpoctl run")
    assert (tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    assert "--propose" not in (tmp_path / "a.html").read_text()  # it is written: what is left is to run it
    assert grpoctl("validate", "next-one").code == 0
    assert grpoctl("check", "next-one").code == 0
    again = grpoctl("diagnose", sick, "--propose", "next-one")
    assert (again.code, again.out) == (2, "")
    assert "there is an experiment next-one already" in again.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--json", "--md"), "--json and --md exclude each other"),
        (("--fail-on", "info"), "--fail-on: got 'info'; allowed: error, warning, never"),
        (("--map", "reward"), "--map: got 'reward', expected COLUMN=METRIC, e.g. --map 'Mean reward=reward/mean'"),
        (("--set", "beta="), "--set: got 'beta=', expected KEY=VALUE"),
        (("--set", "beta=1", "--set", "beta=2"), "--set: beta is given twice"),
        (("--propose", "P31"), "there is an experiment p31 already"),
        (("--html", "."), "--html: got '.', expected a file's name"),
        (("--html", ""), "--html: got '', expected a file's name"),
        (("--html", "no/such/folder/a.html"), "--html: there is no folder no/such/folder"),
    ],
)
def test_bad_usage_is_one_line_and_writes_nothing(
    grpoctl: Grpoctl, tmp_path: Path, sick: str, arguments: tuple[str, ...], message: str
) -> None:
    said = grpoctl("diagnose", sick, "--html", "a.html", *arguments)
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert len(said.err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == [sick]


@pytest.mark.parametrize("form", [(), ("--md",)])
def test_what_was_proposed_is_run_next(grpoctl: Grpoctl, sick: str, form: tuple[str, ...]) -> None:
    """The report ends with the command that runs it, not with the one that has just been given."""
    assert "--propose NAME" in grpoctl("diagnose", sick, *form).out
    said = grpoctl("diagnose", sick, "--propose", "next-one", *form)
    assert "--propose" not in said.out
    assert "grpoctl run next-one" in said.out


def test_nothing_to_decide(grpoctl: Grpoctl, tmp_path: Path, sound: str) -> None:
    said = grpoctl("diagnose", sound, "--propose", "mine")
    assert (said.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert line.startswith("error: ")
    assert "sound.csv" in line
    assert not (tmp_path / "experiments").exists()


def test_a_page_that_cannot_be_written_is_one_line(
    grpoctl: Grpoctl, sick: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full; what a run is advised to do then is no advice here."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    said = grpoctl("diagnose", sick, "--html", "a.html")
    assert (said.code, said.out) == (3, "")
    (line,) = said.err.splitlines()
    assert ("a.html" in line, "No space left on device" in line) == (True, True)


def test_a_run_of_ours(grpoctl: Grpoctl, recorded: Recorded) -> None:
    """By id and by experiment; its suggestions start the experiment in the profile it had."""
    run: RunDir = recorded(steps=12, num_generations=2)
    document = grpoctl("diagnose", run.id, "--json").document
    assert (document["kind"], document["facts"]["steps"]) == ("grpoctl", 12)
    assert document["settings"]["num_generations"] == 2
    assert grpoctl("diagnose", "p31", "--json").document["facts"] == document["facts"]
    assert "grpoctl run p31 -p tiny" in grpoctl("diagnose", "p31").out
    run.result.unlink()  # as while it runs
    assert "grpoctl run p31 -p tiny" in grpoctl("diagnose", run.id).out


def test_what_a_run_ends_with_is_what_diagnose_says_of_it(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run: RunDir = recorded(steps=12)
    findings = grpoctl("diagnose", run.id, "--json").document["findings"]
    replace_json(run.result, {**json.loads(run.result.read_text()), "findings": findings})
    shown = grpoctl("show", run.id).out
    assert all(f"{one['id']} ({one['confidence']})" in shown for one in findings)
    if any(one["severity"] != "info" for one in findings):
        assert f"Evidence  grpoctl diagnose {run.id}" in shown


@pytest.mark.process
def test_it_loads_nothing_heavy(sick: str, tmp_path: Path) -> None:
    process = started(RUN, json.dumps([["diagnose", sick, "--json", "--propose", "mine"]]), cwd=tmp_path)
    said = json.loads(process.stdout)
    assert said["code"] == 0, said["errors"]
    assert json.loads(said["printed"])["schema"] == 2
    assert [name for name in said["loaded"] if name in HEAVY] == []


@pytest.mark.process
def test_standard_input(sick: str, tmp_path: Path) -> None:
    """A log of a trainer through a pipe; what is not text of a known format is said to be none, in one line."""
    text = "\n".join(str({"loss": 0.1, "reward": 0.5, "reward_std": 0.1, "kl": 0.01 * step}) for step in range(1, 6))
    command = [sys.executable, "-P", "-m", "grpoctl.app", "diagnose", "-", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    done = subprocess.run(
        command,
        input=text + "\n",
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["source"], document["facts"]["steps"]) == ("standard input", 5)


def test_a_trl_log_whose_completions_are_cut_off(grpoctl: Grpoctl, tmp_path: Path) -> None:
    """Half of them, at 64 tokens; those that end take 16. The log tells no reward of one kind alone."""
    row = {"loss": 0.1, "reward": 0.5, "frac_reward_zero_std": 0.0, "completions/clipped_ratio": 0.5}
    rows = [{**row, "step": step, "completions/mean_length": 40.0} for step in range(1, 13)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    told = grpoctl("diagnose", "log.jsonl", "--json", "--set", "max_completion_length=64")
    (found,) = [one for one in told.document["findings"] if one["id"] == "truncation"]
    assert (found["severity"], found["evidence"]["truncated"], found["evidence"]["tokens"]) == ("warning", 0.5, 0.8)
    assert "reward_cut" not in found["evidence"]
    assert found["suggest"] == ["overlong.weight=1"]


@pytest.fixture
def log(grpoctl: Grpoctl, tmp_path: Path) -> Path:
    """A readable source in the folder that commands run in."""
    file = tmp_path / "a.csv"
    file.write_text(TABLE)
    return file


def refused(grpoctl: Grpoctl, *arguments: str) -> str:
    """The one line of an exit code 2."""
    said = grpoctl("diagnose", *arguments)
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
    return said.err


def test_the_source_is_never_written_over(grpoctl: Grpoctl, log: Path, tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to(log)
    (tmp_path / "log.html").write_text(TABLE)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "trainer_state.json").write_text('{"log_history": [{"step": 1, "loss": 0.1, "reward": 0.5}]}')
    whole = {path: path.read_bytes() for path in (log, tmp_path / "log.html", folder / "trainer_state.json")}
    assert "a.csv is there and is no page" in refused(grpoctl, "a.csv", "--html", "a.csv")
    assert "a.csv is there and is no page" in refused(grpoctl, "log.html", "--map", "loss=loss", "--html", "a.csv")
    assert "is there and is no page" in refused(grpoctl, "a.csv", "--html", "link.html")
    assert "would replace it" in refused(grpoctl, "log.html", "--html", "./log.html")
    assert "is no page" in refused(grpoctl, "out", "--html", "out/trainer_state.json")
    assert {path: path.read_bytes() for path in whole} == whole
    assert (tmp_path / "link.html").is_symlink()


def test_a_page_does_not_replace_what_standard_input_reads(grpoctl: Grpoctl, tmp_path: Path) -> None:
    file = tmp_path / "x.html"
    file.write_text("{'loss': 0.5, 'reward': 0.25}\n")
    kept, read = os.dup(0), os.open(file, os.O_RDONLY)
    os.dup2(read, 0)  # grpoctl diagnose - --html x.html < x.html
    try:
        assert "would replace it" in refused(grpoctl, "-", "--html", "x.html")
        check_keeps(tmp_path, "-")  # another file
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(read)
    assert file.read_text() == "{'loss': 0.5, 'reward': 0.25}\n"


def test_only_a_regular_file_is_replaced(grpoctl: Grpoctl, log: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.html")
    (tmp_path / "loop.html").symlink_to("loop.html")
    (tmp_path / "null.html").symlink_to("/dev/null")
    for name in ("/dev/null", "/dev/stdout", "pipe.html", "null.html"):
        assert "is no regular file" in refused(grpoctl, "a.csv", "--html", name)
    assert "--html: loop.html" in refused(grpoctl, "a.csv", "--html", "loop.html")
    assert "not to standard output" in refused(grpoctl, "a.csv", "--html", "-")
    assert not (tmp_path / "-").exists()
    assert (tmp_path / "pipe.html").is_fifo()


def test_a_name_that_no_file_can_have_is_one_line(grpoctl: Grpoctl, log: Path) -> None:
    for name in ("x" * 300, "x" * 300 + "/a.html", "a\0b"):
        line = refused(grpoctl, "a.csv", "--html", name)
        assert line.startswith("error: --html: ")
        assert "Errno" not in line
        assert len(line) < 150


def test_a_link_is_followed_and_an_older_page_replaced(grpoctl: Grpoctl, log: Path, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    for name, before in {"page": "<!DOCTYPE html>", "empty": "", "old.html": "old", "new.html": None}.items():
        file, link = tmp_path / "pages" / name, tmp_path / f"to-{name}"
        link.symlink_to(file)
        if before is not None:
            file.write_text(before)
        assert grpoctl("diagnose", "a.csv", "--html", link.name).code == 0
        assert link.is_symlink()
        assert "<svg" in file.read_text() or "No figure" in file.read_text()


def test_a_source_that_is_no_file_is_no_page_either(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("")
    check_keeps(page, "mlflow:1234")
    check_keeps(page, "-")
    with pytest.raises(UserError, match="is what is to be diagnosed"):
        check_keeps(page, str(tmp_path / "." / "a.html"))


def test_the_run_that_a_name_was_taken_for_is_said(grpoctl: Grpoctl, recorded: Recorded) -> None:
    first = recorded(seed=0)
    assert grpoctl("diagnose", "p31").err == ""
    newest = recorded(seed=1)
    (note,) = grpoctl("diagnose", "p31").err.splitlines()
    assert newest.id in note
    assert grpoctl("diagnose", first.id).err == ""


def test_an_mlflow_address_without_a_run_is_one_line(grpoctl: Grpoctl) -> None:
    said = grpoctl("diagnose", "mlflow:http://127.0.0.1:1")
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "mlflow:http://127.0.0.1:1#RUN_ID" in said.err
