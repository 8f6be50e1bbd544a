"""What an execution refuses before it touches anything, and the result that it writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from core.config import RunSpec
from core.errors import BusyError, NotFoundError, RunError, SpecError
from core.health import examine
from core.health.finding import Finding
from grpoctl import files
from grpoctl.config import load
from grpoctl.executors.execution import execute, parent_control, read_control
from grpoctl.executors.hooks import Hooks
from grpoctl.executors.terminal import Terminated
from grpoctl.files import _scan, read_json, replace_json
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.run_dir import Home, RunDir
from tests.conftest import Recorded


def content(run: RunDir) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file() and path != run.lock}


@pytest.mark.parametrize(("old", "new"), [("beta: 0.005", "beta: 0.5"), ("seed: 0", "seed: 1")])
def test_a_spec_that_was_changed_since_is_refused(recorded: Recorded, old: str, new: str) -> None:
    run = recorded(ended="INTERRUPTED")
    text = run.spec.read_text()
    assert old in text
    run.spec.write_text(text.replace(old, new, 1))
    before = content(run)
    with pytest.raises(SpecError, match=r"spec\.yaml: changed since this run started"):
        execute(run, Hooks())
    assert content(run) == before


def test_a_spec_that_was_only_written_otherwise_is_the_same(recorded: Recorded) -> None:
    run = recorded(ended="INTERRUPTED")
    run.spec.write_text("# looked at\n" + run.spec.read_text().replace("beta: 0.005", "beta: 5.0e-3"))
    with run.hold(), pytest.raises(BusyError):  # so it got as far as asking for the run
        execute(run, Hooks())


@pytest.mark.parametrize("left", [None, {"schema": 1, "attempts": []}])
def test_a_run_that_lost_its_provenance_is_refused(recorded: Recorded, left: dict[str, object] | None) -> None:
    run = recorded(ended="INTERRUPTED")
    run.provenance.unlink()
    if left is not None:
        replace_json(run.provenance, left)
    before = content(run)
    with pytest.raises(NotFoundError, match="provenance"):
        execute(run, Hooks())
    assert content(run) == before


def test_a_run_that_another_holds_is_refused(recorded: Recorded) -> None:
    run = recorded(ended="RUNNING")
    before = content(run)
    with run.hold(), pytest.raises(BusyError, match=f"{run.id} is in use by process {os.getpid()}"):
        execute(run, Hooks())
    assert content(run) == before


class Failing(Hooks):
    """Ends an execution before anything is loaded: what was recorded stays as it was."""

    def started(self, spec: RunSpec, run: RunDir) -> None:
        raise RunError("no model")


def result_of(run: RunDir) -> dict[str, Any]:
    """What stands in result.json after an execution that failed at once."""
    execute(run, Failing(), mirror=False)
    result = read_json(run.result)
    assert result is not None
    return result


def test_the_result_is_read_from_the_files(recorded: Recorded) -> None:
    run = recorded(steps=3)
    result = result_of(run)
    assert (result["run_id"], result["run_dir"], result["experiment"]) == (run.id, str(run.path), "p31")
    assert (result["status"], result["message"]) == ("FAILED", "no model")
    assert (result["steps"], result["updates"]) == (3, 3)
    assert result["seconds"] == 2.0  # four rows of 0.5 s: steps 0 to 3
    assert result["start"] == {"eval/reward": 0.5, "eval/reward_se": 0.01}
    assert result["final"]["reward/mean"] == pytest.approx(0.2)  # mean of 0.1, 0.2 and 0.3
    assert result["best"]["step"] == 0
    met = {entry["expectation"]: entry["met"] for entry in result["expects"]}
    assert met == {"collapse_rate < 0.05": True, "advantage/std > 0.5": None, "eval/reward gain of grpo > 0": None}


def test_a_run_that_ends_reads_its_rows_once(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    run, read = recorded(), []
    monkeypatch.setattr(files, "_scan", lambda path, *start: read.append(path) or _scan(path, *start))
    assert result_of(run)["updates"] == 3
    assert read.count(run.metrics) == 2  # where it begins, for its status, and where it ends


def test_a_run_that_failed_before_its_first_step_has_a_result_too(home: Home) -> None:
    run = prepare(Launch(loaded=load("p31", profile="tiny")), home).run
    result = result_of(run)
    assert (result["status"], result["message"], result["steps"], result["seconds"]) == ("FAILED", "no model", 0, 0)
    assert (result["start"], result["best"], result["findings"]) == ({}, {}, [])
    assert result["final"] == {"completions": 0, "tokens": 0}  # what was spent
    assert {entry["met"] for entry in result["expects"]} == {None}


def test_a_result_is_judged_by_the_samples_too(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = recorded(), []
    monkeypatch.setattr(examine, "RULES", {"seen": lambda case: seen.append(case) or ()})
    assert result_of(run)["findings"] == []
    assert (len(seen[0].rows), len(seen[0].samples)) == (4, 6)


def test_a_rule_that_fails_does_not_cost_the_result(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what the other rules say."""
    run = recorded()
    other = Finding(id="other", severity="warning", summary="something else", confidence="moderate")
    monkeypatch.setattr(examine, "RULES", {"broken": lambda case: [1 / 0], "other": lambda case: [other]})
    result = result_of(run)
    assert result["steps"] == 3
    finding, second = result["findings"]
    assert (finding["id"], finding["severity"], second["id"]) == ("diagnosis-failed", "warning", "other")
    assert "ZeroDivisionError" in finding["summary"]
    assert "ZeroDivisionError" in run.log.read_text()


PRUNED = {"status": "PRUNED", "message": "below the median"}


def never() -> None:
    pytest.fail("it waited")


def order(seen: int, *, wait: bool = True, end: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"schema": 1, "wait": wait, "seen": seen, "end": end}


@pytest.mark.parametrize(
    ("document", "step", "ends"),
    [
        (None, 8, False),
        (order(8), 8, False),
        (order(0, wait=False), 8, False),  # not told to wait
        (order(8, end=PRUNED), 8, True),
        (order(8, end=PRUNED), 12, True),
        (order(8, end=PRUNED), 4, False),  # gone on with from a checkpoint before: it ends where it would have
        (order(12, end={**PRUNED, "step": 8}), 8, True),  # the decision says its own step
        (order(12, end={**PRUNED, "step": 8}), 4, False),
        (order(4, wait=False, end=PRUNED), 8, True),
    ],
)
def test_when_a_run_is_to_end(tmp_path: Path, document: dict[str, Any] | None, step: int, ends: bool) -> None:
    run = RunDir(path=tmp_path)
    if document is not None:
        replace_json(run.control, document)
    ending = parent_control(run, never)(step)
    assert (ending is not None) == ends
    if ending is not None:
        assert (ending.status, ending.message) == ("PRUNED", "below the median")


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "{}", '{"schema": 2, "wait": true, "seen": 0, "end": null}', '{"schema": 1, "wait": true}',
        '{"schema": 1, "wait": true, "seen": null, "end": null}', '{"schema": 1, "wait": true, "seen": 0, "end": 3}',
        '{"schema": 1, "wait": true, "seen": 0, "end": {"status": "BORED", "message": ""}}',
        '{"schema": 1, "wait": true, "seen": 0, "end": {"status": "PRUNED"}}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_like_none(tmp_path: Path, text: str) -> None:
    run = RunDir(path=tmp_path)
    run.control.write_text(text)
    assert read_control(run.control) is None
    assert parent_control(run, never)(8) is None


def test_a_run_waits_until_the_parent_has_seen_its_step(tmp_path: Path) -> None:
    run, looks = RunDir(path=tmp_path), []
    replace_json(run.control, order(4))

    def answer() -> None:
        looks.append(1)
        if len(looks) == 3:
            replace_json(run.control, order(8, end=PRUNED))

    ending = parent_control(run, answer)(8)
    assert ending is not None
    assert len(looks) == 3


def test_an_interruption_ends_the_wait(tmp_path: Path) -> None:
    run = RunDir(path=tmp_path)
    replace_json(run.control, order(0))

    def interrupted() -> None:
        raise Terminated

    with pytest.raises(Terminated):
        parent_control(run, interrupted)(4)


class Stages(Hooks):
    """Notes what is done, and the rows between."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def stage(self, text: str) -> None:
        self.told.append(text)

    def row(self, row: Any) -> None:
        self.told.append(f"row {row['step']:g}")


def test_later_evaluations_are_named_by_their_step(home: Home) -> None:
    settings = ["max_steps=3", "eval_steps=2", "eval_prompts=2", "num_generations_eval=1", "num_generations=2",
                "prompts_per_step=1", "max_completion_length=4"]  # fmt: skip
    loaded = load("p31", profile="tiny", overrides=settings)
    hooks = Stages()
    execute(prepare(Launch(loaded=loaded), home).run, hooks, mirror=False)
    first = hooks.told.index("row 0")
    assert hooks.told[first:] == [
        "row 0", "row 1", "evaluating after step 2", "row 2", "evaluating after step 3", "row 3",
    ]  # fmt: skip


def test_a_run_that_paused_here_goes_on_without_another_calibration_and_elsewhere_with_one(home: Home) -> None:
    settings = ["max_steps=6", "eval_steps=2", "eval_prompts=2", "num_generations_eval=1", "num_generations=2",
                "prompts_per_step=1", "max_completion_length=4"]  # fmt: skip
    loaded = load("p31", profile="tiny", overrides=settings)
    whole, run = (prepare(Launch(loaded=loaded), home).run for _ in range(2))
    execute(whole, Hooks(), mirror=False)
    pause = {"status": "INTERRUPTED", "message": "paused"}
    for until in (2, 4):
        replace_json(run.control, order(until, end={**pause, "step": until}))
        assert execute(run, Hooks(), mirror=False).result["status"] == "INTERRUPTED"
    document = read_json(run.provenance) or {}
    document["attempts"][-1]["paused_on"] = "another machine"
    replace_json(run.provenance, document)
    run.control.unlink()
    execute(run, Hooks(), mirror=False)
    assert run.metrics.read_bytes() == whole.metrics.read_bytes()
    calibrated = [row["step"] for row in files.read_rows(run.timings) if "calibrate" in row]
    assert calibrated == [0, 5]  # at its start, and where it went on elsewhere; not where it went on here, at 3
