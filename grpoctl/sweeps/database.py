"""Where a study's database is, how it is opened, and what it says when it refuses.

What is here: a SQLite file or the URL of any database that Optuna takes, and one line for each refusal, without the
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
from grpoctl.runs.locks import hold_lock

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

OPENING = 30  # seconds for another process to make the tables
PATIENCE = 3  # seconds that SQLite waits for another writer; Optuna asks up to five times

_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///(?P<path>[^?]+)")
# As SQLAlchemy reads them, a user's name may hold an @ and a password slashes; it is taken to end at the last @.
_PASSWORD = re.compile(r"(?<=://)([^/:]*):(?:\S*|[^@]*)@")
_SECRET = re.compile(r"([?&](?:password|passwd|pwd|sslpassword|sslkey)=)[^&]*", re.IGNORECASE)


def masked(url: str) -> str:
    """The URL with *** for its password."""
    return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


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
    return masked(said.splitlines()[0].replace(where, masked(where)))


def _advice(error: BaseException) -> str:
    said = " ".join(str(cause) for cause in _causes(error))
    if "disk is full" in said or "disk I/O" in said:
        return "; free some space, then go on with --resume"
    if "malformed" in said or "not a database" in said:
        return "; move it away: with --resume it is made anew from sweep.json"
    if "locked" in said:
        return "; another process writes to it; then go on with --resume"
    return ""
