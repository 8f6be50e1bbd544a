"""Catching up: every run that MLflow does not have completely, written there now. Following a live run is not here."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from core.errors import StorageError
from grpoctl.runs import status
from grpoctl.runs.locks import hold_lock
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.tracking.mirror_state import MirrorState, one_line, read_state, write_state
from grpoctl.tracking.store import open_client, store_name
from grpoctl.tracking.writer import DELETED, RunWriter

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

Outcome = Literal["written", "unchanged", "live", "behind"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Synced:
    """What became of one run: `live` ones have a mirror of their own at work, `error` says why one is `behind`."""

    run_id: str
    outcome: Outcome
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncReport:
    """`store` is the address without credentials; one entry per run, in the order given."""

    store: str
    runs: tuple[Synced, ...]

    def of(self, outcome: Outcome) -> tuple[str, ...]:
        """The ids of the runs with that outcome."""
        return tuple(entry.run_id for entry in self.runs if entry.outcome == outcome)


def sync(home: Home, run_dirs: Sequence[RunDir] | None = None) -> SyncReport:
    """Bring MLflow up to date with these runs (default: all), also those whose process died or whose copy was lost.

    Raises StorageError where the store cannot be reached; a run that cannot be written is `behind` in the report.
    """
    status.reconcile(home)
    runs = home.runs() if run_dirs is None else run_dirs
    client = _reachable(home)
    done: list[Synced] = []
    for run in runs:
        done.append(_sync_one(run, client))
        if done[-1].outcome == "behind":
            _reachable(home, client)  # else each of the others would wait for the same silence
    return SyncReport(store=store_name(home), runs=tuple(done))


def _sync_one(run: RunDir, client: MlflowClient) -> Synced:
    try:
        with hold_lock(run.mirror_lock, patience=0) as holder:
            if holder is not None:
                return Synced(run_id=run.id, outcome="live")
            before = read_state(run)
            if before is not None and _is_settled(run, before, client):
                return Synced(run_id=run.id, outcome="unchanged")
            RunWriter(run, client).catch_up()
            return Synced(run_id=run.id, outcome="written")
    except Exception as error:  # noqa: BLE001  the boundary around the tracker: one bad run must not keep the others back
        text = one_line(error)
        with contextlib.suppress(StorageError):
            state = read_state(run) or MirrorState()
            write_state(run, dataclasses.replace(state, state="behind", error=text))
        return Synced(run_id=run.id, outcome="behind", error=text)


def _is_settled(run: RunDir, state: MirrorState, client: MlflowClient) -> bool:
    """Whether this store has all of the run, and still has it."""
    from mlflow.exceptions import MlflowException

    record = status.read(run.status)
    if record is None:
        return True
    told = (record.status.value, record.ended) == (state.synced_status, state.synced_ended)
    if not (state.done and told and state.store == store_name(run.home)):
        return False
    try:
        found = client.get_run(state.mlflow_run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False
    return bool((found.info.lifecycle_stage == "deleted") == (state.error == DELETED))


def _reachable(home: Home, client: MlflowClient | None = None) -> MlflowClient:
    """A client whose store has answered. Raises StorageError with the reason, without credentials."""
    try:
        client = client or open_client(home)
        client.search_experiments(max_results=1)
    except Exception as error:  # noqa: BLE001  the boundary around the tracker
        advice = "start it or correct MLFLOW_TRACKING_URI, then run: grpoctl sync"
        raise StorageError(f"MLflow at {store_name(home)} cannot be used ({one_line(error)}); {advice}") from None
    return client
