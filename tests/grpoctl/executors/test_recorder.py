"""The order in which a step is written, and cutting a run back to a step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from core.training.requests import Evaluated
from grpoctl.executors.recorder import Recorder, last_recorded, rewind
from grpoctl.files import read_rows
from grpoctl.runs.run_dir import RunDir
from tests.conftest import Recorded, metrics, sample


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(path=tmp_path)


def test_the_watcher_sees_a_step_that_stands_in_the_files(run: RunDir) -> None:
    seen = []

    def watch(row: Mapping[str, float | None]) -> None:
        seen.append([row["step"], *(len(read_rows(path)) for path in (run.metrics, run.samples, run.timings))])

    with Recorder(run, watch) as recorder:
        recorder.step_done(metrics(0), [], {"total": 1.0})
        recorder.step_done(metrics(1), [sample(1, 0), sample(1, 1)], {"sample": 0.25, "total": 0.5})
    assert seen == [[0, 1, 0, 1], [1, 2, 2, 2]]
    assert read_rows(run.metrics) == [metrics(0), metrics(1)]
    assert read_rows(run.samples) == [sample(1, 0), sample(1, 1)]
    assert read_rows(run.timings)[1] == {"step": 1, "sample": 0.25, "total": 0.5}


def test_a_metrics_row_means_that_the_samples_are_there(run: RunDir) -> None:
    """Where writing the metrics fails, the samples were written before: never the other way round."""
    recorder = Recorder(run, lambda row: None)
    recorder.step_done(metrics(0), [], {"total": 1.0})
    with pytest.raises(TypeError):
        recorder.step_done({"step": 1, "loss": object()}, [sample(1, 0)], {"total": 1.0})  # type: ignore[dict-item]
    recorder.__exit__(None, None, None)
    assert [row["step"] for row in read_rows(run.metrics)] == [0]
    assert [row["step"] for row in read_rows(run.samples)] == [1]


@pytest.mark.parametrize(("step", "kept"), [(-1, []), (0, [0]), (2, [0, 1, 2]), (3, [0, 1, 2, 3]), (9, [0, 1, 2, 3])])
def test_rewind_keeps_the_rows_up_to_a_step(recorded: Recorded, step: int, kept: list[int]) -> None:
    run = recorded(steps=3)
    rewind(run, step)
    assert [row["step"] for row in read_rows(run.metrics)] == kept
    assert [row["step"] for row in read_rows(run.timings)] == kept
    assert sorted({row["step"] for row in read_rows(run.samples)}) == [one for one in kept if one]


def test_what_is_written_after_a_rewind_equals_what_was_there(recorded: Recorded) -> None:
    run = recorded(steps=3)
    before = [path.read_bytes() for path in (run.metrics, run.samples)]
    rewind(run, 1)
    with Recorder(run, lambda row: None) as recorder:
        for step in (2, 3):
            recorder.step_done(metrics(step), [sample(step, 0), sample(step, 1)], {"total": 0.5})
    assert [path.read_bytes() for path in (run.metrics, run.samples)] == before


def test_the_last_step_is_one_that_both_files_have(recorded: Recorded) -> None:
    run = recorded(steps=3)
    assert last_recorded(run) == 3
    whole = run.samples.read_bytes().splitlines(keepends=True)
    run.samples.write_bytes(b"".join(whole[:4]))  # two completions a step
    assert last_recorded(run) == 2
    run.metrics.write_bytes(b"".join(run.metrics.read_bytes().splitlines(keepends=True)[:2]) + b'{"step": 2, "los')
    assert last_recorded(run) == 1


def test_before_the_first_step_there_is_none_or_its_evaluation(run: RunDir) -> None:
    assert last_recorded(run) == -1
    with Recorder(run, lambda row: None) as recorder:
        recorder.step_done(metrics(0), [], {"total": 1.0})
    assert last_recorded(run) == 0


def test_a_step_that_draws_nothing_needs_no_samples(run: RunDir) -> None:
    """Supervised steps have none; a step with a rollout whose samples are lost does not count, nor what follows it."""
    drawn = {"completions/valid": 1.0}
    with Recorder(run, lambda row: None) as recorder:
        for step in (1, 2):
            recorder.step_done({"step": float(step)}, [], {"total": 1.0})
        assert last_recorded(run) == 2
        recorder.step_done({"step": 3, **drawn}, [{"step": 3, "row": 0}], {"total": 1.0})
        recorder.step_done({"step": 4}, [], {"total": 1.0})
        assert last_recorded(run) == 4
        recorder.step_done({"step": 5, **drawn}, [], {"total": 1.0})
        recorder.step_done({"step": 6}, [], {"total": 1.0})
    assert last_recorded(run) == 4


def test_pictures_are_kept_whole_and_rewound_with_their_steps(run: RunDir) -> None:
    with Recorder(run, lambda row: None) as recorder:
        for step, picture in enumerate((b"start", None, b"second", b"third")):
            kept = None if picture is None else Evaluated(problems=[], picture=picture)
            recorder.step_done(metrics(step), [], {"total": 1.0}, kept)
    assert [file.name for file in sorted(run.pictures.iterdir())] == [f"step-00000{step}.png" for step in (0, 2, 3)]
    assert run.picture(2).read_bytes() == b"second"
    rewind(run, 2)
    assert [file.name for file in sorted(run.pictures.iterdir())] == ["step-000000.png", "step-000002.png"]
