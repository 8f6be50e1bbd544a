"""Catching up: every run and study that MLflow does not have completely, written there now.

Following a live run is not here.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from core.errors import StorageError
from grpoctl.runs import liveness
from grpoctl.runs.locks import hold_lock
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir, studies
from grpoctl.tracking.mirror_state import MirrorState, one_line, read_state, write_state
from grpoctl.tracking.store import open_client, store_name
from grpoctl.tracking.sweep_writer import SweepWriter
from grpoctl.tracking.writer import RunWriter, is_complete, is_stored

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

SyncOutcome = Literal["written", "unchanged", "live", "behind"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Synced:
    """What became of one run or study: a `live` one has a mirror at work, `error` says why one is `behind`."""

    run_id: str
    outcome: SyncOutcome
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncReport:
    """`store` is the address without credentials; one entry per run and study, a study after its runs."""

    store: str
    runs: tuple[Synced, ...]

    def of(self, outcome: SyncOutcome) -> tuple[str, ...]:
        """The ids of the runs with that outcome."""
        return tuple(entry.run_id for entry in self.runs if entry.outcome == outcome)


def sync(home: Home, run_dirs: Sequence[RunDir] | None = None) -> SyncReport:
    """Bring MLflow up to date with these runs (default: all, and all studies), also where processes or copies died.

    Raises StorageError where the store cannot be reached; a run that cannot be written is `behind` in the report.
    """
    liveness.reconcile(home)
    runs = home.runs() if run_dirs is None else run_dirs
    client = _reachable(home)
    done: list[Synced] = []
    for of in (*runs, *(studies(home) if run_dirs is None else ())):
        done += _sync_one(of, client)
        if done[-1].outcome == "behind":
            _reachable(home, client)  # else each of the others would wait for the same silence
    return SyncReport(store=store_name(home), runs=tuple(done))


def _sync_one(of: RunDir | StudyDir, client: MlflowClient) -> list[Synced]:
    """What became of a run, or of a study and of its runs, the study last."""
    try:
        with hold_lock(of.mirror_lock, patience=0) as holder:
            if holder is not None or of.lives_elsewhere():  # its mirror is there
                return [Synced(run_id=of.id, outcome="live")]
            return _sync_study(of, client) if isinstance(of, StudyDir) else [_sync_run(of, client)]
    except Exception as error:  # noqa: BLE001  the boundary around the tracker: one bad run must not keep the others back
        text = one_line(error)
        with contextlib.suppress(StorageError):
            state = read_state(of) or MirrorState()
            write_state(of, dataclasses.replace(state, state="behind", error=text))
        return [Synced(run_id=of.id, outcome="behind", error=text)]


def _sync_run(run: RunDir, client: MlflowClient) -> Synced:
    state = read_state(run)
    if is_complete(run, state) and (state is None or is_stored(client, run, state)):
        return Synced(run_id=run.id, outcome="unchanged")
    RunWriter(run, client).catch_up()
    return Synced(run_id=run.id, outcome="written")


def _sync_study(study: StudyDir, client: MlflowClient) -> list[Synced]:
    before = read_state(study)
    writer = SweepWriter(study, client, thorough=True)
    state = writer.catch_up()
    done = []
    for run in study.runs():
        error = writer.attended.get(run.id)
        outcome: SyncOutcome = "behind" if error else "written" if run.id in writer.attended else "unchanged"
        done.append(Synced(run_id=run.id, outcome=outcome, error=error))
    if state.state == "behind":
        return [*done, Synced(run_id=study.id, outcome="behind", error=state.error)]
    unchanged = before == state and not writer.attended
    return [*done, Synced(run_id=study.id, outcome="unchanged" if unchanged else "written")]


def _reachable(home: Home, client: MlflowClient | None = None) -> MlflowClient:
    """A client whose store has answered. Raises StorageError with the reason, without credentials."""
    try:
        client = client or open_client(home)
        client.search_experiments(max_results=1)
    except Exception as error:  # noqa: BLE001  the boundary around the tracker
        advice = "start it or correct MLFLOW_TRACKING_URI, then run: grpoctl sync"
        raise StorageError(f"MLflow at {store_name(home)} cannot be used ({one_line(error)}); {advice}") from None
    return client
