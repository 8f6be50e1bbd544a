"""One study directory to MLflow: a parent run for the study, and each of its runs as a child.

What is here: `SweepWriter.catch_up`, which can be repeated at any time and after any failure. What is not: when it is
called (mirror, sync), and what is written of a run (writer) and of the study (payload).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import StorageError
from grpoctl.files import read_json, read_resolved_yaml
from grpoctl.runs.liveness import study_status
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import StudyStatus
from grpoctl.runs.study_dir import StudyDir
from grpoctl.tracking import payload
from grpoctl.tracking.attachments import describe_experiment, note_tags
from grpoctl.tracking.description import experiment_note, owner, study_note
from grpoctl.tracking.mirror_state import MirrorState, one_line, read_state, write_state
from grpoctl.tracking.writer import (
    DELETED,
    NewRun,
    Parent,
    RunWriter,
    describe,
    experiment_id,
    find_or_create,
    is_complete,
    is_stored,
    noted_run,
    state_with_run,
)

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

Signature = tuple[tuple[int, int], ...]


class SweepWriter:
    """Writes one study to MLflow. After an exception make a new one: MLflow may have taken more than it confirmed.

    `still` is called before each run that is looked at: a study of thousands takes its time. A `thorough` writer asks
    the store for each run whether it is still there; another one believes the runs' notes.
    """

    def __init__(
        self, study: StudyDir, client: MlflowClient, *, still: Callable[[], object] = int, thorough: bool = False
    ) -> None:
        self._study, self._client = study, client
        self._still, self._thorough = still, thorough
        self._state = read_state(study) or MirrorState()
        self._parent: Parent | None = None
        self._standing: tuple[str, Mapping[str, str]] = ("", {})  # MLflow's status of the parent, our tags
        self._points: dict[tuple[str, int], float] = {}
        self._scores: dict[str, float] = {}  # of child runs, as they were written or found
        self._writers: dict[str, RunWriter] = {}
        self._settled: dict[str, Signature] = {}  # what a finished run's files were when all of it had been written
        self._bad: dict[str, str] = {}
        self.attended: dict[str, str | None] = {}  # run that there was something to write of -> why it could not be

    def catch_up(self) -> MirrorState:
        """Write what is new, and say how far it got. Raises what MLflow raises, and StorageError for damaged files."""
        # The status first: what is read after an ending is all there is.
        status, message = study_status(self._study)
        document = read_json(self._study.state)
        if document is None:
            return self._state
        ended = status is not StudyStatus.RUNNING
        parent = self._parent or self._open(document)
        if self._state.error == DELETED:
            return self._state
        before = self._state
        all_there = self._write_runs(parent, again=ended)
        self._write_points(parent, document)
        self._write_scores(document)
        self._write_standing(parent, document, (status, message))
        files = self._upload(parent) if ended else self._state.synced_files
        self._state = dataclasses.replace(
            self._state,
            state="behind" if self._bad else "done" if ended and all_there else "live",
            error=self._error(),
            synced_status=status,
            synced_ended=ended_at(self._study, document) if ended else None,
            synced_files=files,
        )
        if self._state != before:
            write_state(self._study, self._state)
        return self._state

    def _error(self) -> str | None:
        count = len(self._bad)
        first = next(iter(self._bad.values()), "")
        return f"{count} run{'s' if count > 1 else ''} cannot be written; {first}" if count else None

    def _open(self, document: Mapping[str, Any]) -> Parent:
        """Find the MLflow run of this study, or create it, and learn what it already has."""
        token = payload.study_token(document)
        stored = noted_run(self._client, self._study, self._state)
        if stored is None:
            self._thorough = True  # a store that has lost the parent may have lost its runs, too
            name = str(document.get("sweep") or "grpoctl")
            new_run = NewRun(
                experiment_id=experiment_id(self._client, self._study, name),
                token=token,
                name=self._study.id,
                started=float(document.get("started") or time.time()),
                user=owner(self._study.path),
            )
            stored = find_or_create(self._client, new_run)
        self._state = state_with_run(self._study, self._state, stored)
        write_state(self._study, self._state)
        if self._state.error != DELETED:
            sweep = read_resolved_yaml(self._study.spec)
            describe_experiment(self._client, stored.info.experiment_id, experiment_note(sweep))
            tags = {**payload.identity_tags(document), payload.USER_TAG: owner(self._study.path)}
            describe(self._client, stored, tags, sweep)
            self._standing = (stored.info.status, dict(stored.data.tags))
            for key in stored.data.metrics:
                history = self._client.get_metric_history(stored.info.run_id, key)
                points = sorted(history, key=lambda point: point.timestamp)
                self._points |= {(key, point.step): point.value for point in points}
        self._parent = Parent(mlflow_run_id=stored.info.run_id, experiment_id=stored.info.experiment_id, token=token)
        return self._parent

    def _write_runs(self, parent: Parent, *, again: bool) -> bool:
        """Whether each run that has begun is over and all of it written; `again`: those that could not be, too."""
        if again:
            self._settled = {run: seen for run, seen in self._settled.items() if run not in self._bad}
        all_there = True
        for run in self._study.runs():
            seen = _signature(run)
            if self._settled.get(run.id) == seen:
                continue
            self._still()
            if self._child(run, parent):
                self._settled[run.id] = seen
                self._writers.pop(run.id, None)
            else:
                all_there = False
        return all_there

    def _child(self, run: RunDir, parent: Parent) -> bool:
        """Whether nothing is left to write of a run until its files change; a run that cannot be written is noted."""
        try:
            state = read_state(run)
            if run.id not in self._writers:
                there = not self._thorough or state is None or is_stored(self._client, run, state)
                if is_complete(run, state) and there:
                    return True
                self._writers[run.id] = RunWriter(run, self._client, parent)
            state = self._writers[run.id].catch_up()
        except Exception as error:  # noqa: BLE001  the boundary around the tracker: one bad run keeps no other back
            self._writers.pop(run.id, None)
            self._client.search_experiments(max_results=1)  # raises where it is not the run, but the store
            self._bad[run.id] = f"{run.id}: {one_line(error)}"
            self.attended[run.id] = one_line(error)
            with suppress(StorageError):
                behind = dataclasses.replace(read_state(run) or MirrorState(), state="behind", error=one_line(error))
                write_state(run, behind)
            return True
        self._bad.pop(run.id, None)
        self.attended[run.id] = None
        return state.done

    def _write_points(self, parent: Parent, document: Mapping[str, Any]) -> None:
        """The points that MLflow lacks, or has otherwise: a failed trial that is retried gets its score late."""
        from mlflow.entities import Metric

        new = [p for p in payload.study_points(document) if self._points.get((p.key, p.step)) != p.value]
        now = round(time.time() * 1000)
        for batch in payload.batches(new, payload.METRICS_PER_BATCH):
            metrics = [Metric(point.key, point.value, now, point.step) for point in batch]
            self._client.log_batch(parent.mlflow_run_id, metrics=metrics)
            self._points |= {(point.key, point.step): point.value for point in batch}
        if new:
            newest = max(step for _, step in self._points)
            self._state = dataclasses.replace(self._state, synced_step=newest)

    def _write_scores(self, document: Mapping[str, Any]) -> None:
        """Give each child run what its trial is ranked by, of its seed: MLflow's pages can then sort by it."""
        for run_id, trial, score in payload.child_scores(document):
            if self._scores.get(run_id) == score:
                continue
            state = read_state(RunDir(path=self._study.path / "runs" / run_id))
            if state is None or state.mlflow_run_id is None or state.error == DELETED:
                continue
            stored = self._client.get_run(state.mlflow_run_id)
            if stored.data.metrics.get(payload.SCORE) != score:  # a trial that failed and is retried has another one
                self._client.log_metric(state.mlflow_run_id, payload.SCORE, score, step=trial)
            self._scores[run_id] = score

    def _write_standing(self, parent: Parent, document: Mapping[str, Any], standing: tuple[StudyStatus, str]) -> None:
        """How the study stands, in tags and in MLflow's own word."""
        from mlflow.entities import RunTag

        wanted = payload.mlflow_study_status(standing[0])
        written_status, before = self._standing
        tags = payload.standing_tags(document, *standing)
        tags |= note_tags(study_note(document, read_resolved_yaml(self._study.spec)), before)
        new = {key: value for key, value in tags.items() if before.get(key) != value}
        if new:
            self._client.log_batch(parent.mlflow_run_id, tags=[RunTag(key, value) for key, value in new.items()])
        ended = None if wanted == "RUNNING" else ended_at(self._study, document)
        if ended is not None and (written_status, self._state.synced_ended) != (wanted, ended):
            self._client.set_terminated(parent.mlflow_run_id, wanted, end_time=round(ended * 1000))
        elif ended is None and written_status != wanted:
            self._client.update_run(parent.mlflow_run_id, status=wanted)
        self._standing = (wanted, {**before, **tags})

    def _upload(self, parent: Parent) -> str:
        """Log the study's files as artifacts where they are not those that were sent; gives what stands for them."""
        stamp = files_stamp(self._study)
        if stamp != self._state.synced_files:
            for file, folder in _files(self._study):
                self._client.log_artifact(parent.mlflow_run_id, str(file), folder)
        return stamp


def ended_at(study: StudyDir, document: Mapping[str, Any]) -> float:
    """When the study ended, in seconds since the epoch; where its driver died, when that last wrote sweep.json."""
    ended = document.get("ended")
    if ended is not None:
        return float(ended)
    return max(float(document.get("started") or 0.0), study.state.stat().st_mtime)


def files_stamp(study: StudyDir) -> str:
    """What stands for the artifacts of a study as they are now: names, sizes and ages."""
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file, _ in _files(study)]
    return payload.digest(stats)


def _files(study: StudyDir) -> list[tuple[Path, str | None]]:
    """(file, folder in MLflow) of the artifacts there are."""
    figures: list[tuple[Path, str | None]] = [(file, "figures") for file in sorted(study.figures.glob("*.png"))]
    return [*((file, None) for file in (study.spec, study.state) if file.exists()), *figures]


def _signature(run: RunDir) -> Signature:
    """Size and age of the files that say whether there is something to write."""
    signature = []
    for file in (run.status, run.metrics):
        with suppress(FileNotFoundError):
            stat = file.stat()
            signature.append((stat.st_size, stat.st_mtime_ns))
    return tuple(signature)
