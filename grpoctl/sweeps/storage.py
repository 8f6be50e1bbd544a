"""The study in Optuna's database: a picture of sweep.json, for optuna-dashboard and whoever reads Optuna studies.

What is here: where it is (a SQLite file, or the URL of any database that Optuna takes), opening it, bringing it to what
the records say, and one line without a password for each refusal. What is not: deciding anything by it. sweep.json is
written first and is the truth; whatever the database misses after a kill is made up for at the next call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from core.errors import GrpoError, StorageError, UserError
from grpoctl.credentials import masked, mistyped, without_credentials
from grpoctl.runs.locks import hold_lock
from grpoctl.sweeps.candidates import is_point
from grpoctl.sweeps.optuna_conversion import distribution, names, optuna_state, quiet, steps, to_optuna
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import Book, TrialRecord

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

OPENING = 30  # seconds for another process to make the tables
PATIENCE = 3  # seconds that SQLite waits for another writer; Optuna asks up to five times
ANSWER = 15.0  # seconds that a sweep waits for a server before it goes on without it
# A server that is cut off says nothing: without these a connection to it waits for hours. In seconds, but the last.
_LIBPQ = {
    "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}  # fmt: skip

_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///(?P<path>[^?]+)")
_EXPECTED = "expected a URL like postgresql://USER@HOST/NAME or sqlite:///FILE"
# Drivers that are packaged under another name than they are imported by.
_PACKAGES = {"psycopg2": "psycopg2-binary", "psycopg": "grpoctl[postgres]", "MySQLdb": "mysqlclient"}


def check_url(where: str) -> None:
    """Raises UserError for what is no URL of a database, or of one whose driver is not installed; connects nowhere."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    shown = f"--storage {masked(where)}"
    if not _is_url(where):
        if mistyped(where) or ":" in where or "//" in where:
            raise UserError(f"{shown} is no URL: {_EXPECTED}")
        return
    try:
        make_url(_with_driver(where)).get_dialect().import_dbapi()
    except ImportError as error:
        package = _PACKAGES.get(str(error.name), str(error.name))
        raise UserError(f"{shown}: its driver {error.name} is not installed; pip install '{package}'") from None
    except NoSuchModuleError as error:
        raise UserError(f"{shown}: {_line(error, where)}; install what has it, or name another dialect") from None
    except (ArgumentError, ValueError):  # SQLAlchemy turns the port into a number
        advice = "write %40 for @ and %2F for / in a password, and brackets around an IPv6 host"
        raise UserError(f"{shown} cannot be read: {_EXPECTED}; {advice}") from None


def _url(where: str | Path) -> str:
    """The URL itself, or that of a SQLite file. Optuna fills in {SCHEMA_VERSION}, so that braces of a path double."""
    from sqlalchemy.engine import URL

    if _is_url(where):
        return _with_driver(str(where))
    url = URL.create("sqlite", database=str(Path(where).absolute()))
    return url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")


def _with_driver(url: str) -> str:
    """A URL that leaves PostgreSQL's driver open names ours: SQLAlchemy 2.0 would take psycopg2, 2.1 takes psycopg.

    Where somebody has psycopg2 and not psycopg it stays as it is, for SQLAlchemy 2.0.
    """
    scheme, marks, rest = url.partition("://")
    if scheme != "postgresql" or (find_spec("psycopg") is None and find_spec("psycopg2") is not None):
        return url
    return f"postgresql+psycopg{marks}{rest}"


def _is_url(where: str | Path) -> bool:
    return isinstance(where, str) and "://" in where


def _file(where: str | Path) -> Path | None:
    """The SQLite file that is meant; None for a server."""
    if not _is_url(where):
        return Path(where).absolute()
    match = _SQLITE.match(str(where))
    return None if match is None else Path(match["path"])


def connect(where: str | Path) -> RDBStorage:
    """Optuna's storage there, its tables made where they are missing. Call it inside `refusals` and `alone`."""
    from optuna.storages import RDBStorage

    url = _url(where)
    if _file(where) is None:
        # A server that was away leaves dead connections behind: each is tried before it is used.
        return RDBStorage(url, engine_kwargs={"pool_pre_ping": True, "connect_args": _patience(url)})
    how: dict[str, Any] = {"timeout": PATIENCE} if url.startswith("sqlite") else {}
    if not _is_url(where):
        how["factory"] = _Unhurried
    return RDBStorage(url, engine_kwargs={"connect_args": how} if how else {})


def _patience(url: str) -> dict[str, int]:
    """How long the driver waits for a server that is silent, where the URL does not say it."""
    from sqlalchemy.engine import make_url

    parsed = make_url(url)
    if parsed.get_dialect().driver not in ("psycopg", "psycopg2"):
        return {}
    return {key: value for key, value in _LIBPQ.items() if key not in parsed.query}


class _Unhurried(sqlite3.Connection):
    """A connection whose commits do not wait for the disk. A killed process loses nothing by that.

    A power cut can damage the file: a study's own is made anew from sweep.json, a named one may hold other studies.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.execute("PRAGMA synchronous = OFF").close()


@contextlib.contextmanager
def alone(where: str | Path) -> Iterator[None]:
    """Inside, no other process opens the same SQLite file: of two that make its tables at once, one fails."""
    file = _file(where)
    if file is None:
        yield
        return
    with hold_lock(file.with_name(f".{file.name}.lock"), OPENING) as holder:
        if holder is not None:
            raise StorageError(f"{file} is being opened by process {holder or 'unknown'} for over {OPENING} seconds")
        yield


@contextlib.contextmanager
def refusals(where: str) -> Iterator[None]:
    """Turns what database, driver and Optuna raise into one line each, without the password."""
    import sqlalchemy.exc
    from optuna.exceptions import OptunaError

    try:
        yield
    except (ImportError, sqlalchemy.exc.ArgumentError) as error:
        raise UserError(f"--storage {masked(where)}: {_line(error, where)}") from error
    except (OptunaError, sqlalchemy.exc.SQLAlchemyError, OSError, RuntimeError) as error:
        raise StorageError(f"the study's database {masked(where)}: {_line(error, where)}{_advice(error)}") from error


def _causes(error: BaseException | None) -> Sequence[BaseException]:
    return [] if error is None else [error, *_causes(error.__cause__)]


def _line(error: BaseException, where: str) -> str:
    """What the database itself said: the innermost cause's first line."""
    text = str(_causes(error)[-1]).strip() or type(error).__name__
    return without_credentials(text.replace(where, masked(where)), where).splitlines()[0]


def _advice(error: BaseException) -> str:
    text = " ".join(str(cause) for cause in _causes(error))
    if "disk is full" in text or "disk I/O" in text:
        return "; free some space, then continue with --resume"
    if "malformed" in text or "not a database" in text:
        return "; move it away: --resume writes a new one from sweep.json"
    if "locked" in text:
        return "; another process writes to it; then continue with --resume"
    return ""


BEHIND = "database_behind"  # in sweep.json, why the database lacks something; not there where it lacks nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """A trial as the database has it."""

    id: int
    state: str
    value: float | None
    attrs: dict[str, Any]
    steps: dict[int, float]


class StudyStorage:
    """One study in one database. Everything raises StorageError of one line where the database refuses."""

    def __init__(self, storage: RDBStorage, study_id: int, sweep: SweepSpec, where: str) -> None:
        self._storage, self._study_id, self._sweep, self._where = storage, study_id, sweep, where
        self._words = _Words(sweep)
        self._rows: dict[int, _Row] | None = None  # by our number, the newest where a trial was retried
        self._done: dict[int, TrialRecord] = {}  # as last projected
        self._server = _file(where) is None
        self._unanswered: _Call | None = None  # the last call of a server

    @classmethod
    def open(cls, where: str | Path, name: str, sweep: SweepSpec, *, create: bool, sweep_sha: str = "") -> StudyStorage:
        """The study `name` in the SQLite file or at the URL; made where it is missing.

        With `create` a study that is there already is refused, without it one of another sweep is. Raises UserError
        for that, a URL that is none or has no driver, and StorageError for a database that cannot be reached.
        """
        shown = masked(str(where))
        with refusals(str(where)), alone(where), quiet():
            storage = connect(where)
            study_id = _find(storage, name)
            if study_id is not None and create:
                raise UserError(f"{shown} has a study {name} already, begun in another home; take another --storage")
            if study_id is None:
                study_id = _make(storage, name, sweep.direction)
            opened = cls(storage, study_id, sweep, str(where))
            opened._describe(name, sweep_sha)
        return opened

    @staticmethod
    def highest(where: str | Path, stem: str) -> int:
        """The highest n of the studies `<stem>-<n>` there, of any home; 0 where there is none. Raises as `open`."""
        with refusals(str(where)), alone(where), quiet():
            storage = connect(where)
            names = [study.study_name for study in storage.get_all_studies()]
            storage.remove_session()
            storage.engine.dispose()
        numbers = [re.fullmatch(re.escape(stem) + r"-(\d+)", name) for name in names]
        return max((int(match[1]) for match in numbers if match), default=0)

    def project(self, trials: Iterable[TrialRecord]) -> None:
        """Bring the database to what the records say: trials added in order, reports, states. Twice is like once.

        A record that is the very object that was projected last costs nothing, an equal one no access; a new process
        reads the study once. A trial that ended in the database and did not in the records was retried: Optuna cannot
        open it again, so that another one of the same user attribute `number` is added.

        Raises StorageError where the database refuses, and where a server says nothing for some seconds: it is asked
        again once it has answered.
        """
        records = list(trials)
        if not self._server:
            self._bring(records)
            return
        if self._unanswered is None or not self._unanswered.is_alive():
            self._unanswered = _Call(lambda: self._bring(records))
            self._unanswered.start()
            self._unanswered.join(ANSWER)
        if self._unanswered.is_alive():
            raise StorageError(f"the study's database {masked(self._where)}: no answer for {ANSWER:g} seconds")
        self._unanswered.check()

    def _bring(self, trials: Sequence[TrialRecord]) -> None:
        """Add and tell what is new."""
        rows, self._rows = self._rows, None  # read again where the database refuses half-way
        with refusals(self._where), quiet():
            if rows is None:
                rows = {row.attrs["number"]: row for row in self._read()}
            for trial in trials:
                if self._done.get(trial.number) is not trial:
                    self._project(trial, rows)
                    self._done[trial.number] = trial
        self._rows = rows

    def close(self) -> None:
        """Let go of the connections."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def _project(self, trial: TrialRecord, rows: dict[int, _Row]) -> None:
        row, state = rows.get(trial.number), optuna_state(trial) or "RUNNING"
        if row is not None and row.state != "RUNNING":
            same = row.state == state and (state != "COMPLETE" or row.value == trial.score)
            row = row if same else None
            if same:
                return
        if row is None:
            rows[trial.number] = self._add(trial, state)
            return
        for key, value in self._words.attrs(trial).items():
            if row.attrs.get(key) != value:
                self._storage.set_trial_user_attr(row.id, key, value)
                row.attrs[key] = value
        for step, value in steps(trial.curve, trial.seeds).items():
            if row.steps.get(step) != value:
                self._storage.set_trial_intermediate_value(row.id, step, value)
                row.steps[step] = value
        if state != "RUNNING":
            rows[trial.number] = self._tell(row, trial, state)

    def _add(self, trial: TrialRecord, state: str) -> _Row:
        """The trial as a new one, whole, in one transaction."""
        frozen = self._words.frozen(trial, state)
        return _Row(
            id=self._storage.create_new_trial(self._study_id, frozen),
            state=state,
            value=frozen.value,
            attrs=dict(frozen.user_attrs),
            steps=dict(frozen.intermediate_values),
        )

    def _tell(self, row: _Row, trial: TrialRecord, state: str) -> _Row:
        from optuna.trial import TrialState

        value = _value(trial)
        self._storage.set_trial_state_values(row.id, TrialState[state], None if value is None else [value])
        return dataclasses.replace(row, state=state, value=value)

    def _read(self) -> Iterator[_Row]:
        """The trials of ours that the database has, in the order they were added."""
        for trial in self._storage.get_all_trials(self._study_id, deepcopy=False):
            if isinstance(trial.user_attrs.get("number"), int):
                yield _Row(
                    id=trial._trial_id,
                    state=trial.state.name,
                    value=trial.values[0] if trial.values else None,
                    attrs=dict(trial.user_attrs),
                    steps=dict(trial.intermediate_values),
                )

    def _describe(self, name: str, sweep_sha: str) -> None:
        """Say whose study it is. Raises UserError for one of another sweep."""
        there = self._storage.get_study_user_attrs(self._study_id)
        theirs = there.get("sweep_sha", sweep_sha)
        way = self._storage.get_study_directions(self._study_id)[0].name.lower()
        if theirs != sweep_sha or way != self._sweep.direction:
            whose = f"of another sweep ({theirs}, {way})"
            raise UserError(f"the study {name} in {masked(self._where)} is {whose}; take another --storage")
        attrs = {"sweep": self._sweep.name, "metric": self._sweep.metric, "sweep_sha": sweep_sha}
        for key, value in attrs.items():
            if there.get(key) != value:
                self._storage.set_study_user_attr(self._study_id, key, value)
        # what study.set_metric_names writes: the dashboard then names the objective
        if "study:metric_names" not in self._storage.get_study_system_attrs(self._study_id):
            self._storage.set_study_system_attr(self._study_id, "study:metric_names", [self._sweep.metric])


class _Call(threading.Thread):
    """A call of a server beside the sweep, which must not hang with it; it dies with this process."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work, self._done = work, False
        self._error: GrpoError | None = None

    def run(self) -> None:
        """The call, in its thread."""
        try:
            self._work()
        except GrpoError as error:
            self._error = error
        self._done = True

    def check(self) -> None:
        """Raises what the call raised."""
        if self._error is not None:
            raise self._error
        if not self._done:
            raise RuntimeError("the call failed; its traceback was printed by its thread")


def project(storage: StudyStorage, book: Book) -> str:
    """Bring the database to what the book says, and the book's header to whether that could be done: why not, or ""."""
    try:
        storage.project(book.ordered())
    except StorageError as error:
        book.header[BEHIND] = str(error)
        return str(error)
    book.header.pop(BEHIND, None)
    return ""


class _Words:
    """What a trial of the sweep is called in the database."""

    def __init__(self, sweep: SweepSpec) -> None:
        self._sweep, self._axes = sweep, sweep.axes
        self._names = names(sweep.axes)
        self._listed = [*sweep.candidates, *(rung.name for rung in sweep.ladder)]
        self._kind = "candidate" if sweep.candidates else "rung"

    def frozen(self, trial: TrialRecord, state: str) -> FrozenTrial:
        """The trial as Optuna's record."""
        from optuna.trial import FrozenTrial, TrialState

        now = datetime.datetime.now()
        params, distributions = self._params(trial)
        return FrozenTrial(
            number=-1,  # given by the database
            state=TrialState[state],
            value=_value(trial),
            datetime_start=now - datetime.timedelta(seconds=trial.seconds),
            datetime_complete=now if state != "RUNNING" else None,
            params=params,
            distributions=distributions,
            user_attrs=self.attrs(trial),
            system_attrs={},
            intermediate_values=steps(trial.curve, trial.seeds),
            trial_id=-1,
        )

    def attrs(self, trial: TrialRecord) -> dict[str, Any]:
        """What else the dashboard shows of a trial."""
        attrs: dict[str, Any] = {
            "number": trial.number,
            "status": str(trial.status),
            "seeds": list(trial.seeds),
            "values": list(trial.values),
            "runs": list(trial.runs),
            "attempts": trial.attempts,
            "message": trial.message,
        }
        if self._listed or trial.origin:
            attrs["settings"] = dict(trial.params)
        return attrs

    def _params(self, trial: TrialRecord) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """Values and distributions by name. Named points differ in what they set: theirs is one choice among names."""
        from optuna.distributions import CategoricalDistribution

        if trial.origin and not is_point(self._sweep, trial.params):
            return {}, {}  # a clone beside the axes: its settings are among the attributes
        if self._listed:
            return {self._kind: trial.name}, {self._kind: CategoricalDistribution(self._listed)}
        axes = {key: self._axes[key] for key in trial.params}
        params = {self._names[key]: to_optuna(axis, trial.params[key]) for key, axis in axes.items()}
        return params, {self._names[key]: distribution(axis) for key, axis in axes.items()}


def _value(trial: TrialRecord) -> float | None:
    """The value a trial is told with: the score, of a pruned one its last report, of a failed or open one none."""
    match state := optuna_state(trial):
        case "COMPLETE":
            return trial.score
        case "PRUNED":
            reports = steps(trial.curve, trial.seeds)
            return reports[max(reports)] if reports else None
        case "FAIL" | None:
            return None
        case _:
            assert_never(state)


def _find(storage: RDBStorage, name: str) -> int | None:
    try:
        return int(storage.get_study_id_from_name(name))
    except KeyError:
        return None


def _make(storage: RDBStorage, name: str, direction: str) -> int:
    """A new study; the one there is where another process was faster."""
    from optuna.exceptions import DuplicatedStudyError
    from optuna.study import StudyDirection

    try:
        return int(storage.create_new_study([StudyDirection[direction.upper()]], name))
    except DuplicatedStudyError:
        return int(storage.get_study_id_from_name(name))
