"""Where MLflow's store is, opening it (created and migrated once, under a lock), and MLflow's own pages on it.

What is here: the store's address, whether it answers, and a ready client. What is not: what is written (writer) and
read (reading). mlflow is imported inside functions: it costs a second and 170 MB, and those who only ask for the
address pay nothing.
"""

from __future__ import annotations

import logging
import os
import shlex
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from core.errors import StorageError, UserError
from grpoctl.children import python_module
from grpoctl.credentials import TRACKING_VARIABLE, masked, mistyped
from grpoctl.files import replace_text, storage_errors
from grpoctl.runs.locks import hold_lock
from grpoctl.runs.run_dir import Home
from grpoctl.tracking.mirror_state import one_line

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

# A server that does not answer is tried again by us, when there is time; MLflow's own seven retries of two minutes each
# would hold up the end of a run. Nothing is sent to anybody but the store.
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_CONFIGURE_LOGGING": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}
_ADDRESS = "MLFLOW_BACKEND_STORE_URI"  # mlflow's own name for --backend-store-uri
_ADDRESSES = (  # (table, column) of a SQLite store that have whole addresses of artifacts
    ("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"),
    ("model_versions", "source"), ("model_versions", "storage_location"),
)  # fmt: skip
# Two processes instead of fourteen: four workers and seven job queues are more than one person's pages need.
_PAGES = {"MLFLOW_WORKERS": "1", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def store_uri(home: Home) -> str:
    """MLFLOW_TRACKING_URI, else the SQLite store of the home. May hold credentials: print `store_name` instead."""
    if named := os.environ.get(TRACKING_VARIABLE, "").strip():
        return named
    return sqlite_uri(home.mlflow_store)


def check_typed(uri: str) -> None:
    """Raises StorageError for a mistyped URL: MLflow would take it for a folder, and quote it."""
    if mistyped(uri):
        raise StorageError(f"{TRACKING_VARIABLE} is no URL: expected one like http://HOST:PORT or sqlite:///FILE")


def store_name(home: Home) -> str:
    """The store's URI without credentials."""
    return masked(store_uri(home), user=False)


def artifact_location(home: Home) -> str | None:
    """Where a new experiment's artifacts go; None where that is the server's business.

    Without a server MLflow would take `./mlruns` of whatever directory the command was given in.
    """
    return None if _has_server(store_uri(home)) else home.mlflow_artifacts.as_uri()


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite store; None for every other store."""
    scheme, _, rest = uri.partition("://")
    if not scheme.startswith("sqlite"):
        return None
    name = unquote(rest.removeprefix("/").partition("?")[0])
    return Path(name).absolute() if name and name != ":memory:" else None


def prepare_environment() -> None:
    """Short timeouts, no telemetry and no chatter for every mlflow imported after this; what the user set stands."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Not for the user to choose: MLflow would print the address of each run on stdout, password included.
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)


def open_client(home: Home) -> MlflowClient:
    """A client of the store, which exists and is of this MLflow's version.

    Raises StorageError where the store cannot be created or migrated, and what MLflow raises where it cannot be opened.
    A server is not contacted yet.
    """
    prepare_environment()
    from mlflow.tracking import MlflowClient

    uri = store_uri(home)
    check_typed(uri)
    if _has_server(uri):
        return MlflowClient(tracking_uri=uri)
    import mlflow

    file = sqlite_file(uri)
    if file is None:
        return client_of(uri)
    ours = file == home.mlflow_store
    with storage_errors("create", file):
        file.parent.mkdir(parents=True, exist_ok=True)
    # MLflow's own creation fails, and leaves a broken store, when six processes open a fresh one together.
    with hold_lock(home.mlflow_lock if ours else file.with_name(f"{file.name}.grpoctl-lock"), patience=None):
        if not file.exists():
            _create(file, home)
        elif ours and _last_version(home) != mlflow.__version__:
            _migrate(home, uri)
        if ours and _last_version(home) != mlflow.__version__:
            replace_text(home.mlflow_version, mlflow.__version__)
        if ours:
            _follow_home(home)
        return client_of(uri)


def client_of(uri: str) -> MlflowClient:
    """A client of a store as it stands: nothing is created or migrated."""
    prepare_environment()
    import mlflow.store.db.utils
    from mlflow.tracking import MlflowClient

    mlflow.store.db.utils.MAX_RETRY_COUNT = 1  # its ten retries take 100 s to say that a database is not there
    return MlflowClient(tracking_uri=uri)


def _has_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://", "databricks"))


def _create(file: Path, home: Home) -> None:
    """Create the store beside its place and move it there: one whose creator was killed half-way is never seen."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    with storage_errors("create", file):
        for leftover in file.parent.glob(f".{file.name}.*.tmp*"):
            leftover.unlink()
    draft = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    SqlAlchemyStore(sqlite_uri(draft), home.mlflow_artifacts.as_uri()).engine.dispose()
    with storage_errors("create", file):
        draft.replace(file)


def _migrate(home: Home, uri: str) -> None:
    """Bring our own store to this MLflow's schema, keeping a copy of the old one. Raises StorageError."""
    file, copy = home.mlflow_store, home.mlflow_store.with_suffix(".db.before-migration")
    try:
        with closing(sqlite3.connect(file)) as old, closing(sqlite3.connect(copy)) as new:
            old.backup(new)  # a plain copy could be torn: runs that are under way go on writing
    except sqlite3.Error as error:
        raise StorageError(f"{file} cannot be copied before its migration ({error})") from error
    command = python_module("mlflow", "db", "upgrade", uri)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        with storage_errors("restore", file):
            copy.replace(file)
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise StorageError(f"{file} cannot be migrated to this MLflow ({why}); move it away, then: grpoctl sync")


def _follow_home(home: Home) -> None:
    """Have the store's artifacts where the home is now: MLflow keeps whole addresses, and homes are moved and copied.

    Raises StorageError.
    """
    now = home.mlflow_artifacts.as_uri()
    try:
        with closing(sqlite3.connect(home.mlflow_store)) as store, store:
            told = store.execute("SELECT artifact_location FROM experiments WHERE experiment_id = 0").fetchone()
            before = _base_of((told or [""])[0] or "", home.mlflow_artifacts.name)  # of MLflow's own experiment
            if before and before != now:
                for table, column in _ADDRESSES:
                    if column in {row[1] for row in store.execute(f"PRAGMA table_info({table})")}:
                        change = f"UPDATE {table} SET {column} = ? || substr({column}, ?)"
                        where = f"WHERE {column} = ? OR substr({column}, 1, ?) = ?"
                        values = (now, len(before) + 1, before, len(before) + 1, f"{before}/")
                        store.execute(f"{change} {where}", values)
    except sqlite3.Error as error:
        raise StorageError(f"{home.mlflow_store} cannot be moved to where its home is now ({error})") from error


def _base_of(address: str, name: str) -> str:
    """The folder of that name in which artifacts are, of an address of a file; "" for any other address."""
    base, found, rest = address.rpartition(f"/{name}")
    return f"{base}{found}" if found and rest[:1] in ("", "/") and address.startswith("file:") else ""


def _last_version(home: Home) -> str:
    return home.mlflow_version.read_text(encoding="utf-8") if home.mlflow_version.exists() else ""


def sqlite_uri(file: Path) -> str:
    """The URI of a SQLite store; a % or ? of the path would be read as an escape or as the start of options."""
    return f"sqlite:///{str(file).replace('%', '%25').replace('?', '%3F')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreCheck:
    """`state`: ok, absent (nothing was recorded yet) or unreachable; `store` is the address without credentials."""

    store: str
    state: Literal["ok", "absent", "unreachable"]
    error: str | None = None


def check_store(home: Home) -> StoreCheck:
    """Whether the store answers; creates nothing."""
    name = store_name(home)
    file = sqlite_file(store_uri(home))
    if file is not None and not file.exists():
        return StoreCheck(store=name, state="absent")
    try:
        open_client(home).search_experiments(max_results=1)
    except Exception as error:  # noqa: BLE001  the boundary around the tracker
        return StoreCheck(store=name, state="unreachable", error=one_line(error))
    return StoreCheck(store=name, state="ok")


def pages_command(host: str, port: int) -> list[str]:
    """The process to become: `mlflow ui` with this interpreter (-P: nothing is imported from the current folder)."""
    return python_module("mlflow", "ui", "--host", host, "--port", str(port))


def pages_shell_line(home: Home, host: str, port: int) -> str:
    """What a shell takes to do the same, its environment included; a store that was named keeps its secrets in there.

    Raises UserError where the store is a server.
    """
    _check_pages(home)
    variables = {name: value for name, value in _PAGES.items() if name not in os.environ}
    named = bool(os.environ.get(TRACKING_VARIABLE, "").strip())
    address = f'"${TRACKING_VARIABLE}"' if named else shlex.quote(store_uri(home))
    words = [*(f"{name}={value}" for name, value in variables.items()), f"{_ADDRESS}={address}"]
    return " ".join(["env", *words, shlex.join(pages_command(host, port))])


def pages_environment(home: Home) -> dict[str, str]:
    """The environment it needs; creates or migrates the store first, so that the server does not race a run for it.

    Raises UserError where the store is a server: that has pages of its own. Raises StorageError.
    """
    _check_pages(home)
    open_client(home)
    return {**_PAGES, **os.environ, _ADDRESS: store_uri(home)}


def _check_pages(home: Home) -> None:
    check_typed(store_uri(home))
    if _has_server(store_uri(home)):
        raise UserError(f"the runs are in a tracking server: open {store_name(home)} in a browser")
