"""From what the user named to a case: the list of readers, and which of them a source belongs to.

What is here: the order of the readers, standard input, and what is said of a source that nobody knows. What is not: any
format (the readers' own files) and what --set means (said).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO

from core import plugins
from core.errors import GrpoError, NotFoundError, SpecError, StorageError
from grpoctl.diagnose.readers import console, csv_table, mlflow_runs, run_dir, seed_log, trainer_state
from grpoctl.diagnose.readers.base import Asked, Read, Reader
from grpoctl.diagnose.readers.ranges import possible
from grpoctl.diagnose.readers.user_settings import settings_said
from grpoctl.files import storage_errors
from grpoctl.runs.run_dir import Home

STANDARD_INPUT = "-"
_OF_FILES = (".json", ".jsonl", ".log", ".csv", ".tsv", ".txt", ".gz", ".db")
_LONGEST = 255  # characters of a name

# The most specific first: the first that knows a source reads it.
READERS: tuple[Reader, ...] = (
    mlflow_runs.READER,
    trainer_state.READER,
    run_dir.READER,
    csv_table.READER,
    seed_log.READER,
    console.READER,
)


@cache
def readers() -> Sequence[Reader]:
    """Ours, then those that installed packages add. Raises SpecError where a name is there twice."""
    return (*READERS, *plugins.load_all("grpoctl.readers", [reader.name for reader in READERS]))


_LOGS: tuple[Reader, ...] = (seed_log.READER, console.READER)


def open_source(asked: Asked) -> Read:
    """The source as a case, with what the user said of its settings put over what was found.

    Raises NotFoundError for a source that is not there or that no reader knows (it says what each looks for), SpecError
    for a setting that there is not, and what a reader raises where its format is broken.
    """
    if not asked.name.strip():
        raise NotFoundError("the source has no name: give a run, a file, mlflow:RUN_ID, or - for standard input")
    said = settings_said(asked.settings)
    with _placed(asked) as placed:
        reader = _reader(placed)
        read = _within_ranges(reader.read(placed))
    if placed.path is not None and not placed.path.exists():  # a file for standard input is gone by now
        read = replace(read, source="standard input" if asked.name == STANDARD_INPUT else asked.name)
    return replace(read, case=replace(read.case, settings=replace(read.case.settings, **said))) if said else read


@contextmanager
def _placed(asked: Asked) -> Iterator[Asked]:
    """What was asked for, with its path where there is one; standard input and pipes are a file while they are read."""
    path = None if asked.name == STANDARD_INPUT else asked.path or _path(asked.name)
    if asked.name != STANDARD_INPUT and (path is None or not path.is_fifo()):
        yield replace(asked, path=path)
        return
    with tempfile.TemporaryDirectory(prefix="grpoctl-") as folder:
        file = Path(folder) / "standard-input"
        with storage_errors("write", file), file.open("wb") as out, _stream(path) as stream:
            for block in _blocks(stream, _called(asked)):
                out.write(block)
        try:
            yield replace(asked, path=file)
        except GrpoError as error:  # the file is ours, and gone before anybody could look at it
            raise type(error)(str(error).replace(str(file), _called(asked))) from None


def _within_ranges(read: Read) -> Read:
    """What was read, without values that there cannot be."""
    rows, notes = possible(read.case.rows)
    return replace(read, case=replace(read.case, rows=rows), notes=(*read.notes, *notes)) if notes else read


def _reader(asked: Asked) -> Reader:
    """The first that knows the source. Raises NotFoundError, and SpecError for --map on what has no columns."""
    plain = replace(asked, columns={})
    reader = next((one for one in readers() if one.knows(plain)), None)
    if reader is csv_table.READER and not asked.columns and not csv_table.has_known_header(asked):
        reader = next((one for one in _LOGS if one.knows(plain)), reader)  # what a file is goes before its name
    if reader is not None and asked.columns and reader is not csv_table.READER:
        raise SpecError(f"--map names the columns of a CSV; {_called(asked)} is read as {reader.name}")
    reader = reader or next((one for one in readers() if one.knows(asked)), None)
    if reader is None:
        raise NotFoundError(_nobody_knows(asked))
    return reader


@contextmanager
def _stream(fifo: Path | None) -> Iterator[IO[bytes]]:
    """What can be read only once: a pipe with a name, as a shell's <(command) has, else standard input."""
    if fifo is None:
        yield sys.stdin.buffer
        return
    with fifo.open("rb") as stream:
        yield stream


def _blocks(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """What the stream holds, to its end."""
    with storage_errors("read", Path(name)):
        while block := stream.read(1 << 20):
            yield block


def _path(name: str) -> Path | None:
    """The path of that name, where there is something; a name that no path can have has none."""
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(name).expanduser()
        return path if path.exists() else None
    return None


def _nobody_knows(asked: Asked) -> str:
    """One line: what was looked for, or which run may have been meant."""
    looked = "; ".join(f"{one.name}: {one.looks_for}" for one in readers())
    if asked.path is None:
        if len(asked.name) > _LONGEST or "/" in asked.name or Path(asked.name).suffix in _OF_FILES:
            return f"no such file: {asked.name[:_LONGEST]}"
        try:
            Home.locate().find(asked.name)
        except (NotFoundError, StorageError) as error:
            return f"{error}; and there is no file of that name"
        except (OSError, ValueError, RuntimeError):  # what no path can be called
            pass
        return f"no run and no file {asked.name!r}"
    with suppress(OSError):
        if asked.path.is_file() and asked.path.stat().st_size == 0:
            return f"{_called(asked)} is empty"
    return f"{_called(asked)} has no format that grpoctl reads; looked for: {looked}"


def _called(asked: Asked) -> str:
    return "standard input" if asked.name == STANDARD_INPUT else asked.name
