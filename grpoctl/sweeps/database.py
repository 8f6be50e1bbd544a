"""Where a study's database is, how it is opened, and what it says when it refuses.

What is here: a SQLite file or the URL of any database that Optuna takes, and one line for each refusal, without its
password. What is not: what stands in the study (storage).
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import StorageError, UserError
from grpoctl.credentials import masked, mistyped, without_credentials
from grpoctl.runs.locks import hold_lock

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

OPENING = 30  # seconds for another process to make the tables
PATIENCE = 3  # seconds that SQLite waits for another writer; Optuna asks up to five times

_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///(?P<path>[^?]+)")
_EXPECTED = "expected a URL like postgresql+psycopg://HOST/NAME or sqlite:///FILE"
# Drivers that are packaged under another name than they are imported by.
_PACKAGES = {"psycopg2": "psycopg2-binary", "psycopg": "psycopg[binary]", "MySQLdb": "mysqlclient"}


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
        make_url(where).get_dialect().import_dbapi()
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
        return str(where)
    url = URL.create("sqlite", database=str(Path(where).absolute()))
    return url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")


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
    how: dict[str, Any] = {"timeout": PATIENCE} if url.startswith("sqlite") else {}
    if not _is_url(where):
        how["factory"] = _Unhurried
    return RDBStorage(url, engine_kwargs={"connect_args": how} if how else {})


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
    said = str(_causes(error)[-1]).strip() or type(error).__name__
    return without_credentials(said.replace(where, masked(where)), where).splitlines()[0]


def _advice(error: BaseException) -> str:
    said = " ".join(str(cause) for cause in _causes(error))
    if "disk is full" in said or "disk I/O" in said:
        return "; free some space, then continue with --resume"
    if "malformed" in said or "not a database" in said:
        return "; move it away: --resume writes a new one from sweep.json"
    if "locked" in said:
        return "; another process writes to it; then continue with --resume"
    return ""
