"""Runs of ours, by path and by name; whole, under way, torn, failed; and studies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.errors import NotFoundError, StorageError
from core.health.case import Case
from core.health.examine import OF_WHOLE_RUNS
from grpoctl.diagnose.diagnosis import diagnose
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import open_source
from grpoctl.diagnose.readers.run_dir import READER, case_of_run
from grpoctl.files import encode, replace_json
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import create_study

Recorded = Callable[..., RunDir]


@pytest.fixture
def at_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The home that names are looked up in."""
    monkeypatch.setenv("GRPOCTL_HOME", str(home.path))
    return home


def asked(name: object) -> Source:
    path = Path(str(name))
    return Source(name=str(name), path=path if path.exists() else None)


def test_a_run_is_a_case(recorded: Recorded) -> None:
    run = recorded(steps=3)
    case = case_of_run(run)
    assert [row["step"] for row in case.rows] == [0, 1, 2, 3]
    assert [(one.step, one.row, one.group, one.reward, one.valid) for one in case.samples[:2]] == [
        (1, 0, "train-0", 0.0, True), (1, 1, "train-0", 0.1, True)
    ]  # fmt: skip
    assert case.settings.num_generations == 8
    assert "eval-00000" in case.eval_groups
    assert case.notices == ()


def test_a_planted_fault_is_not_seen(recorded: Recorded) -> None:
    sound, planted = recorded(), recorded(seed=1, faults="[rollout-in-train-mode]")
    assert case_of_run(planted).settings == case_of_run(sound).settings


def test_it_is_found_by_path_file_id_and_experiment(recorded: Recorded, at_home: Home) -> None:
    run = recorded()
    for name in (run.path, run.metrics, run.result, run.id, run.id[:-2], "p31"):
        read = READER.read(asked(name)) if READER.knows(asked(name)) else None
        assert read is not None, name
        assert (read.kind, read.source, read.spec) == ("grpoctl", str(run.path), "p31")
        assert read.document is not None
        assert read.document["run_id"] == run.id


def test_a_folder_that_is_called_as_an_experiment_is_not_in_the_way(
    recorded: Recorded, at_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p31").mkdir()
    assert READER.read(asked("p31")).spec == "p31"


@pytest.mark.parametrize(("ended", "whole"), [("COMPLETED", True), ("INTERRUPTED", False), ("FAILED", False)])
def test_what_only_a_whole_run_can_show(recorded: Recorded, ended: str, whole: bool) -> None:
    run = recorded(ended=ended)
    reading = open_source(Source(name=str(run.path), path=run.path))
    assert any("did not come to its end" in note for note in reading.notes) is not whole
    stood: list[dict[str, float | None]] = [{"step": at, "reward/mean": 0.5 + 0.01 * (at % 3)} for at in range(1, 61)]
    judged = replace(reading, case=Case(rows=stood))
    ids = {finding.id for finding in diagnose(judged, with_hints=False).findings}
    assert (reading.whole, not ids.isdisjoint(OF_WHOLE_RUNS)) == (whole, whole)


def test_a_run_under_way_with_a_torn_line(recorded: Recorded) -> None:
    run = recorded(steps=2, ended="RUNNING")
    with run.metrics.open("ab") as file:
        file.write(b'{"step": 3, "rew')
    with run.samples.open("ab") as file:
        file.write(b'{"step": 3')
    with run.hold():
        read = READER.read(asked(run.path))
    assert [row["step"] for row in read.case.rows] == [0, 1, 2]
    assert len(read.case.samples) == 4
    assert read.document is not None
    assert "status" not in read.document  # no result yet, but what it was started as
    assert read.document["profile"] == "tiny"
    assert any("has not ended (RUNNING): read to step 2" in note for note in read.notes)


def test_a_run_without_rows_or_samples(recorded: Recorded) -> None:
    run = recorded(steps=0, ended="FAILED")
    run.metrics.unlink()
    run.samples.unlink()
    read = READER.read(asked(run.path))
    assert (read.case.rows, read.case.samples) == ([], ())
    assert any("ended before its first step" in note for note in read.notes)


@pytest.mark.parametrize("gone", [True, False])
def test_rows_that_are_gone_are_not_rows_that_never_were(recorded: Recorded, gone: bool) -> None:
    run = recorded(steps=3)
    run.metrics.unlink() if gone else run.metrics.write_text("")
    (note,) = READER.read(asked(run.path)).notes
    facts = ("metrics.jsonl", "result.json", "COMPLETED", "3 steps", "gone")
    assert [fact for fact in facts if fact not in note] == []


def test_a_run_that_has_just_begun(recorded: Recorded) -> None:
    run = recorded(steps=0, ended="RUNNING")
    run.metrics.unlink()
    with run.hold():
        (running,) = READER.read(asked(run.path)).notes
    (ended,) = READER.read(asked(run.path)).notes
    assert ("no rows" in running, "RUNNING" in running) == (True, True)
    assert ("no rows" in ended, "RUNNING" in ended, "before its first step" in ended) == (True, False, True)


def test_damage_in_the_middle_is_one_line(recorded: Recorded) -> None:
    run = recorded()
    run.metrics.write_bytes(b"{}\nhalf\n{}\n")
    with pytest.raises(StorageError, match="row 2 is damaged"):
        READER.read(asked(run.path))


def test_library_warnings_in_its_log_are_notices(recorded: Recorded) -> None:
    run = recorded()
    run.log.write_text("2026 INFO begun\nCaching is incompatible with gradient checkpointing in Qwen2. Setting None\n")
    (notice,) = case_of_run(run).notices
    assert (notice.kind, notice.line) == ("cache-dropped-by-checkpointing", 2)


def test_a_study_names_its_worst_run(recorded: Recorded, at_home: Home) -> None:
    study = create_study(at_home, "demo-tiny-1a2b3c4d")
    study.spec.write_text("name: demo\n")
    template = recorded()
    results: list[dict[str, Any]] = [
        {"status": "COMPLETED", "final": {"eval/reward": 0.7}}, {"status": "COMPLETED", "final": {"eval/reward": 0.4}}
    ]  # fmt: skip
    for number, result in enumerate(results):
        run = study.run(number, 0)
        run.path.mkdir(parents=True)
        run.spec.write_bytes(template.spec.read_bytes())
        replace_json(run.result, result)
    for name in (study.path, study.id, "demo"):
        with pytest.raises(NotFoundError, match=rf"is a study; its 2 runs .* diagnose {study.run(1, 0).id}"):
            open_source(asked(name))
    replace_json(study.run(0, 0).result, {"status": "COLLAPSED", "final": {"eval/reward": 0.7}})
    with pytest.raises(NotFoundError, match=study.run(0, 0).id):
        open_source(asked(study.id))


def test_names_that_fit_several_or_none_say_so(recorded: Recorded, at_home: Home) -> None:
    recorded(seed=0)
    recorded(seed=1)
    with pytest.raises(NotFoundError, match="fits 2 runs"):
        open_source(asked("p31-ti"))
    with pytest.raises(NotFoundError, match="did you mean 'p31'"):
        open_source(asked("p31x"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"reward": "x"}, 'row 5: reward: got "x"; a number belongs there'),
        ({"advantage": [1]}, r"row 5: advantage: got \[1\]"),
        ({"text": 3}, "row 5: text: got 3; str belongs there"),
        ({"valid": 1}, "row 5: valid: got 1; bool belongs there"),
    ],
)
def test_a_sample_of_another_kind_is_one_line(row: dict[str, object], message: str, recorded: Recorded) -> None:
    run = recorded(steps=2)
    with run.samples.open("ab") as file:
        file.write(encode({"step": 2, **row}))
    with pytest.raises(StorageError, match=message):
        READER.read(asked(run.path))


def test_a_row_with_text_or_without_step_is_one_line_and_a_nan_is_none(recorded: Recorded) -> None:
    run = recorded(steps=2)
    rows = run.metrics.read_bytes()
    for more, message in ((b'{"step": 3, "loss": "x"}', "row 4: loss: got"), (b'{"loss": 1}', "row 4 has no step")):
        run.metrics.write_bytes(rows + more + b"\n")
        with pytest.raises(StorageError, match=message):
            READER.read(asked(run.path))
    run.metrics.write_bytes(rows + b'{"step": 3, "loss": NaN}\n')
    assert case_of_run(run).rows[-1] == {"step": 3, "loss": None}


def test_a_torn_row_and_a_damaged_result_are_told(recorded: Recorded) -> None:
    run = recorded(steps=2)
    assert not any("cut off" in note for note in READER.read(asked(run.path)).notes)
    for torn in (b'{"step": 3, "rew', b'{"step": 3, "rew\n'):
        whole = run.metrics.read_bytes()
        run.metrics.write_bytes(whole + torn)
        assert any("last row of metrics.jsonl is cut off" in note for note in READER.read(asked(run.path)).notes)
        run.metrics.write_bytes(whole)
    run.result.write_text('{"status": ')
    notes = READER.read(asked(run.path)).notes
    assert any("result.json is damaged" in note for note in notes)
    assert not any("no result.json" in note for note in notes)
