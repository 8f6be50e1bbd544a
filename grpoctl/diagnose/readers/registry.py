"""The list of readers, and which of them reads what the user named.

What is here: the order of the readers, standard input and pipes, and the message where nobody knows a source. What is
not: any format (the readers' own files) and what --set means (user_settings).
"""

from __future__ import annotations

import gc
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from core import plugins
from core.errors import GrpoError, NotFoundError, SpecError, StorageError, UserError, in_words
from core.health.finding import StepTable
from core.text import harmless
from grpoctl.diagnose.readers import (
    console,
    csv_table,
    json_document,
    mlflow_runs,
    run_dir,
    seed_log,
    tensorboard_events,
    trainer_state,
)
from grpoctl.diagnose.readers.base import Reader, Reading, Source, without_impossible
from grpoctl.diagnose.readers.metric_names import proposed
from grpoctl.diagnose.readers.several_runs import words_of
from grpoctl.diagnose.readers.trainer_log import NO_REWARDS, with_dead_groups
from grpoctl.diagnose.readers.user_settings import columns_of, typed_settings
from grpoctl.files import storage_errors
from grpoctl.runs.run_dir import Home

STANDARD_INPUT = "-"
_OF_TEXTS = (".json", ".jsonl", ".log", ".csv", ".tsv", ".txt", ".gz")
_OF_FILES = (*_OF_TEXTS, ".db")
_OF_LOGS = (*_OF_TEXTS, ".out", ".err", ".ipynb", ".html")
_OF_A_MODEL = re.compile(
    r"^(?:.*_)?config\.json$|^(?:(?:all|train|eval)_results|vocab|added_tokens|special_tokens_map|.*\.index|tokenizer.*)\.json$"
    r"|^(?:merges|requirements)\.txt$"
)
_MOST_FILES, _NAMED = 200, 6  # files of a folder that are looked at, and logs that a message names
_OTHER_PARTS = frozenset({
    "accuracy", "acc", "correctness", "format", "penalty", "punishment", "cost", "kl", "length", "chosen", "rejected",
    "margins", "accuracies",
})  # fmt: skip
_LONGEST = 255  # characters of a name
_BESIDE = "the folder has other logs, which are not read with it: {}; give one by its name to read it"
_YOUNG = 50_000  # objects between two searches for cycles; 700 by default

# The most specific first: the first that knows a source reads it. A table or a log may be anybody's, so readers that
# packages add are asked before those two.
SPECIFIC: tuple[Reader, ...] = (mlflow_runs.READER, trainer_state.READER, run_dir.READER, tensorboard_events.READER)
GENERAL: tuple[Reader, ...] = (csv_table.READER, seed_log.READER, json_document.READER, console.READER)
READERS = (*SPECIFIC, *GENERAL)
MAPPED: tuple[Reader, ...] = (csv_table.READER, console.READER)  # that take --map
_LOGS: tuple[Reader, ...] = (seed_log.READER, console.READER)


class AddedReader:
    """A reader of a package, as `Reader` has it: one that fails to look at a source does not know it."""

    def __init__(self, called: str, reader: Reader) -> None:
        self.called, self.reader = called, reader
        self.name = str(getattr(reader, "name", called))
        self.looks_for = str(getattr(reader, "looks_for", "it does not say what"))

    def knows(self, source: Source) -> bool:
        """Whether it says that the source is of its format."""
        return self._looked(source)[0]

    def failure(self, source: Source) -> str:
        """Why it could not look at the source; "" where it could."""
        return self._looked(source)[1]

    def _looked(self, source: Source) -> tuple[bool, str]:
        try:
            return bool(self.reader.knows(source)), ""
        except Exception as error:  # noqa: BLE001  the boundary around a package's reader
            return False, f"the reader {self.called} failed to look at this ({in_words(error)}); the others were asked"

    def read(self, source: Source) -> Reading:
        """What it reads. Raises UserError where it fails, and where it gives something else."""
        try:
            reading: object = self.reader.read(source)
        except GrpoError:
            raise
        except Exception as error:
            raise UserError(f"the reader {self.called} failed on {_called(source)} ({in_words(error)})") from error
        if not isinstance(reading, Reading):
            what = f"gave {reading!r:.60}; allowed: a grpoctl.diagnose.readers.base.Reading"
            raise UserError(f"the reader {self.called} failed on {_called(source)}: it {what}")
        return reading


@cache
def _added_readers() -> Sequence[AddedReader]:
    added = plugins.load_all("grpoctl.readers", [reader.name for reader in READERS])
    return tuple(AddedReader(called=one.called, reader=one.plugin) for one in added)


def readers() -> Sequence[Reader]:
    """Ours, and before the general ones those that packages add. Raises SpecError where a name is there twice."""
    return (*SPECIFIC, *_added_readers(), *GENERAL)


def _failures(source: Source) -> list[str]:
    """What packages' readers could not say of the source."""
    return [why for reader in _added_readers() if (why := reader.failure(source))]


def open_source(source: Source) -> Reading:
    """The source as a case, with what the user says of its settings put over what was read.

    Raises NotFoundError for a source that is not there or that no reader knows (it says what each looks for), SpecError
    for a setting that there is not, and what a reader raises where its format is broken.
    """
    if not source.name.strip():
        raise NotFoundError("the source has no name: give a run, a file, mlflow:RUN_ID, or - for standard input")
    settings = typed_settings(source.settings)
    source = replace(source, columns=columns_of(source.columns, source.mapped_by))
    with _as_file(source) as named:
        place = _only_log(named)
        with _seldom_collecting():
            reader = _reader_of(place)
            reading = reader.read(place)
        if reader not in SPECIFIC and (failures := _failures(place)):
            reading = replace(reading, notes=(*reading.notes, *failures))
        if reader is trainer_state.READER and (others := _logs_beside(place)):
            reading = replace(reading, notes=(*reading.notes, _BESIDE.format(others)))
    if place.path is not None and not place.path.exists():  # it was a stream, and its file is gone
        reading = _renamed(reading, str(place.path), _called(source))
    return _completed(reading, settings)


def _renamed(reading: Reading, file: str, name: str) -> Reading:
    further = tuple(_renamed(one, file, name) for one in reading.further)
    return replace(reading, source=reading.source.replace(file, name), further=further)


def _completed(reading: Reading, settings: Mapping[str, Any]) -> Reading:
    """The reading without impossible values, with the user's settings and what follows from them; each of its runs."""
    rows, notes = without_impossible(reading.case.rows)
    rows, more = _with_the_only_reward(rows)
    told = tuple(note for note in reading.notes if not (more and note == NO_REWARDS))
    notes = [*notes, *more]
    known = replace(reading.case.settings, **settings)
    if known.baseline is None and _has_a_value_function(rows):
        known = replace(known, baseline="none")
        notes = [*notes, "a value function is trained: advantages are taken to be by it, and not by groups"]
    case = replace(reading.case, rows=with_dead_groups(rows, known.prompts_per_step), settings=known)
    further = tuple(_completed(one, settings) for one in reading.further)
    return replace(reading, case=case, notes=(*told, *notes), further=further)


def _with_the_only_reward(rows: StepTable) -> tuple[StepTable, list[str]]:
    """The rows with the only part of a reward as the reward, where a log tells no other; a note on it.

    Not of accuracy and form: most logs that have these alone measure them beside a reward that they do not tell. Nor of
    penalties, and of what DPO calls rewards.
    """
    if any("reward/mean" in row for row in rows):
        return rows, []
    names = {name for row in rows for name in row}
    part, *others = sorted(name for name in names if name.startswith("rewards/")) or [""]
    other_words = not _OTHER_PARTS.isdisjoint(words_of(part))
    if not part or others or other_words or "eval/reward" in names:
        return rows, []
    renamed = [{"reward/mean" if name == part else name: value for name, value in row.items()} for row in rows]
    return renamed, [f"{part.partition('/')[2]} is the only reward: it is taken for the whole of it"]


def _has_a_value_function(rows: StepTable) -> bool:
    """Whether one is trained: its loss is not 0, or what it explains is told, and nothing is told of groups."""
    of_groups = any("groups/dead" in row or "reward/group_std" in row for row in rows)
    return not of_groups and any(row.get("critic/loss") or row.get("critic/explained") is not None for row in rows)


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Fewer searches for cycles meanwhile: a log's rows are none, and would be gone through again and again."""
    before = gc.get_threshold()
    if not 0 < before[0] < _YOUNG:  # off, or another thread reads a log
        yield
        return
    gc.set_threshold(_YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _as_file(source: Source) -> Iterator[Source]:
    """The source with its path where there is one; standard input and pipes are a file while they are read."""
    path = None if source.name == STANDARD_INPUT else source.path or _path(source.name)
    if source.name != STANDARD_INPUT and (path is None or not path.is_fifo()):
        yield replace(source, path=path)
        return
    name = _called(source)
    with tempfile.TemporaryDirectory(prefix="grpoctl-") as folder:
        file = Path(folder) / "standard-input"
        with (
            storage_errors("write", file),
            file.open("wb") as out,
            nullcontext(sys.stdin.buffer) if path is None else path.open("rb") as stream,
        ):
            for block in _blocks(stream, name):
                out.write(block)
        try:
            yield replace(source, path=file)
        except GrpoError as error:  # the file is ours, and gone before anybody could look at it
            raise type(error)(str(error).replace(str(file), name)) from None


def _blocks(stream: BinaryIO, name: str) -> Iterator[bytes]:
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


def _reader_of(source: Source) -> Reader:
    """The first that knows the source. Raises NotFoundError, and SpecError for --map on what has no columns."""
    unmapped = replace(source, columns={})
    reader = next((reader for reader in readers() if reader.knows(unmapped)), None)
    if reader is csv_table.READER and not source.columns and not csv_table.has_known_header(source):
        reader = next((log for log in _LOGS if log.knows(unmapped)), reader)  # what a file is goes before its name
    if reader is not None and source.columns and reader not in MAPPED:
        what = f"{source.mapped_by} names columns of a table or a log"
        raise SpecError(f"{what}; {_called(source)} is read as {reader.name}")
    if reader is None and source.columns:
        reader = next((reader for reader in readers() if reader.knows(source)), None)
    if reader is None:
        raise NotFoundError(_nobody_knows(source))
    return reader


def _only_log(source: Source) -> Source:
    """The one log of a folder that no reader knows as a whole; the source itself where it is no such folder.

    Raises NotFoundError where a folder has several logs, or none.
    """
    folder = source.path
    if folder is None or not folder.is_dir() or any(reader.knows(source) for reader in readers()):
        return source
    found = _logs_in(folder, source)
    if len(found.logs) == 1 and found.all_seen:
        return replace(found.logs[0], glance=False)
    if not found.logs:
        kinds = "a run of ours, or one with trainer_state.json, event files, mlflow.db or one log"
        among = "" if found.all_seen else f" among its first {_MOST_FILES} files"
        raise NotFoundError(f"{source.name} is a folder without a log{among}; what is read is {kinds}")
    raise NotFoundError(f"{source.name} is a folder with several logs; name one of them: {found.names}")


class _Logs(NamedTuple):
    """The logs in a folder, and whether all of its files were looked at."""

    logs: list[Source]
    all_seen: bool

    @property
    def names(self) -> str:
        """The first of their names, for a message."""
        names = [harmless(" ".join(Path(one.name).name.split())) for one in self.logs[:_NAMED]]
        return ", ".join(names) + (" and more" if len(self.logs) > _NAMED or not self.all_seen else "")


def _logs_in(folder: Path, source: Source) -> _Logs:
    """The logs in a folder, by what is in its files, without hidden ones and those of a model; a glance at each."""
    with storage_errors("read", folder):
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _OF_LOGS and path.is_file())
    files = [path for path in files if not path.name.startswith(".") and not _OF_A_MODEL.search(path.name)]
    inside = [replace(source, name=str(path), path=path, glance=True) for path in files[:_MOST_FILES]]
    return _Logs([one for one in inside if _is_log(one)], all_seen=len(files) == len(inside))


def _logs_beside(source: Source) -> str:
    """The names of a trainer's folder's other logs, which its state goes before; "" for a file, and where none is."""
    if source.path is None or not source.path.is_dir():
        return ""
    found = _logs_in(source.path, source)
    others = [one for one in found.logs if Path(one.name).name != trainer_state.FILE]
    return found._replace(logs=others).names if others else ""


def _is_log(source: Source) -> bool:
    """Whether a reader knows the file by what is in it, rather than by its name."""
    by_name = csv_table.READER.knows(source) and not csv_table.has_known_header(source)
    of_content = [reader for reader in readers() if not (by_name and reader is csv_table.READER)]
    return any(reader.knows(source) for reader in of_content)


def _nobody_knows(source: Source) -> str:
    """One line: what was looked for, or which run may have been meant."""
    if source.path is None:
        if len(source.name) > _LONGEST or "/" in source.name or Path(source.name).suffix in _OF_FILES:
            return f"no such file: {source.name[:_LONGEST]}"
        try:
            Home.locate().find(source.name)
        except (NotFoundError, StorageError) as error:
            return f"{error}; and there is no file of that name"
        except (OSError, ValueError, RuntimeError):  # what no path can be called
            pass
        return f"no run and no file {source.name!r}"
    with suppress(OSError):
        if source.path.is_file() and source.path.stat().st_size == 0:
            return f"{_called(source)} is empty"
    formats = ", ".join(f"{reader.name} ({reader.looks_for})" for reader in readers())
    unknown = f"{_called(source)}: no metric of a training run is known in it{_names_in(source)}; looked for: {formats}"
    return "; ".join([unknown, *_failures(source)])


def _names_in(source: Source) -> str:
    """What stands before numbers in a text that nobody knows, and how the user says which metric it is."""
    names = console.unknown_names(source) if source.path is not None and source.path.is_file() else []
    if not names:
        return ""
    near = next((f"{metric}={name}" for name in names if (metric := proposed(name)) is not None), "NAME=METRIC")
    return f" (numbers are called {', '.join(names[:_NAMED])}: --map {near} takes one in)"


def _called(source: Source) -> str:
    return "standard input" if source.name == STANDARD_INPUT else source.name
