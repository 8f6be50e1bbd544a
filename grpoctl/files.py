"""What a run writes: rows appended to JSONL files, and whole documents replaced in one stroke.

What is here: the bytes of those files, and what a full or read-only disk says. What is not: which files there are
(grpoctl.runs.run_dir), and what stands in a row (core.metrics).

A row is one line, written by one append and ended by its newline. A line without newline is torn: its writer died or
the disk filled up. Readers leave it out, writers remove it. Steps never go down inside a file, so that everything after
a step is the end of the file. Dropping it puts a shorter file in the place of the old one, which somebody may still
have open: done or not done, never half.

In a directory that this process holds everything goes through its fence (grpoctl.fence): whoever lost the directory to
another process gets a SupersededError, and has changed nothing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from core.errors import StorageError
from grpoctl.fence import discard, fence_of
from grpoctl.host import host_tag

Row = dict[str, Any]

_BLOCK = 1 << 16
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)


class RowWriter:
    """Appends rows to one JSONL file; what `append` returned from survives the death of the process.

    Not-a-number and infinities are written as null (JSON has none), every other float so that it reads back exactly.
    Raises StorageError where the disk is full or read-only; the file then ends with its last whole row. In a directory
    that this process holds it writes into a new file, which it puts in the old one's place: nobody else has it open.
    Raises SupersededError where another process takes the directory over; what `append` returned from that one has.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._fence = path, fence_of(path)
        with storage_errors("write", path):
            if self._fence is None:
                self._descriptor = self._open(path)
                return
            with _in_place_of(path) as draft:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(path, draft)
                self._descriptor = self._open(draft)

    def _open(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # A row appended to a torn line would be lost with it, and make the damage look like one in the middle.
        os.ftruncate(descriptor, _whole_length(descriptor))
        return descriptor

    def append(self, *rows: Mapping[str, object]) -> None:
        """Write the rows, all of them or none."""
        if self._fence is not None:
            self._fence.check()
        data = memoryview(b"".join(map(encode, rows)))
        with storage_errors("write", self._path):
            before = os.fstat(self._descriptor).st_size
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, before)
                raise
        if self._fence is not None:
            self._fence.check()  # a successor that came meanwhile may have copied the file without these rows

    def sync(self) -> None:
        """Wait until everything appended has reached the disk: for what must survive a power cut (checkpoints)."""
        with storage_errors("write", self._path):
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def encode(row: Mapping[str, object]) -> bytes:
    """The row as one line of UTF-8 JSON."""
    return _json(row) + b"\n"


def read_rows(path: Path) -> list[Row]:
    """Every whole row; none where there is no file. Raises StorageError for damage anywhere but in the last line."""
    return [row for row, _ in _scan(path)]


def read_new(path: Path, offset: int) -> tuple[list[Row], int]:
    """The whole rows from `offset` on, and the offset to go on from: for a reader that follows a growing file.

    A file that has become shorter than `offset`, or does not have a line starting there, was cut by a resumed run: it
    is read from its start again, so a reader must tell rows it has seen by their step.
    """
    try:
        shorter = path.stat().st_size < offset
        rows = list(_scan(path, 0 if shorter else offset))
    except FileNotFoundError:
        return [], 0
    except StorageError:
        if offset == 0:
            raise
        return read_new(path, 0)
    return [row for row, _ in rows], rows[-1][1] if rows else (0 if shorter else offset)


def truncate_after(path: Path, step: int) -> None:
    """Drop every row of a step after `step`, and a torn last line. A kill leaves the file untouched or cut, never half.

    Raises StorageError for a damaged file or a row without a step.
    """
    keep = 0
    for row, end in _scan(path):
        if not isinstance(row.get("step"), int):
            raise StorageError(f"{path}: a row without a step; the run cannot be resumed from this file")
        if row["step"] > step:
            break
        keep = end
    if not path.exists():
        return
    with storage_errors("write", path), _in_place_of(path) as draft, path.open("rb") as old, draft.open("wb") as new:
        left = keep
        while left and (block := old.read(min(left, _BLOCK))):
            left -= len(block)
            new.write(block)
        new.flush()
        os.fsync(new.fileno())


def replace_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Put `text` in the place of the file, in one stroke: a reader sees the old document or the new one.

    `durable` waits for the disk, so that a power cut cannot leave an empty file; a killed process never does.
    """
    _replace(path, text.encode("utf-8"), durable)


def replace_bytes(path: Path, data: bytes) -> None:
    """Make `data` the content of the file, whole or not at all; its folder is made where it is missing."""
    with storage_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, data, durable=False)


def replace_json(path: Path, document: Mapping[str, object], *, durable: bool = True) -> None:
    """`replace_text` with the document as indented JSON."""
    _replace(path, _json(document, indent=1) + b"\n", durable)


def replace_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """`replace_text` with rows, one a line, as a `RowWriter` would have written them."""
    _replace(path, b"".join(map(encode, rows)), durable=True)


def create_text(path: Path, text: str) -> bool:
    """Put `text` into a new file, whole or not at all; False where there is one already, which stays as it is.

    Of two processes that create it at once, one does. Raises StorageError where the disk is full or read-only.
    """
    draft = _draft(path)
    with storage_errors("write", path):
        try:
            _write(draft, text.encode("utf-8"), durable=True)
            os.link(draft, path)  # fails where the file exists, unlike a rename
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
    return True


def read_json(path: Path) -> Row | None:
    """The JSON object in the file; None where there is no file. Raises StorageError where it is damaged."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise StorageError(f"{path}: damaged ({error}); move that run away") from error
    if not isinstance(document, dict):
        raise StorageError(f"{path}: damaged (an object belongs here, got {type(document).__name__})")
    return document


def read_resolved_yaml(path: Path) -> Row:
    """The mapping of a resolved spec or sweep as plain values, unchecked. Raises StorageError where it is damaged."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        with storage_errors("read", path):
            document = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, YAMLError, RecursionError) as error:
        raise StorageError(f"{path}: damaged ({str(error).splitlines()[0]}); move that run away") from error
    if not isinstance(document, dict):
        raise StorageError(f"{path}: damaged (a mapping belongs here, got {type(document).__name__})")
    return document


@contextlib.contextmanager
def storage_errors(verb: str, path: Path) -> Iterator[None]:
    """Turns the OSError of a full, read-only or missing disk into a StorageError of one line."""
    try:
        yield
    except OSError as error:
        advice = ""
        if error.errno in _FULL:
            advice = f"; free some space, then {'continue with --resume' if _is_of_home(path) else 'try again'}"
        elif error.errno in _CLOSED:
            advice = "; make it accessible" + (", or set GRPOCTL_HOME to a folder that is" if _is_of_home(path) else "")
        raise StorageError(f"cannot {verb} {path}: {error.strerror or error}{advice}") from error


def _is_of_home(path: Path) -> bool:
    """Whether a path is where runs and studies are kept, which GRPOCTL_HOME decides, and no place of the user's."""
    home = os.environ.get("GRPOCTL_HOME")
    return ".grpoctl" in path.absolute().parts or bool(home and path.absolute().is_relative_to(Path(home).absolute()))


def remove(path: Path) -> None:
    """Take a file or folder away, whole or not at all; nothing where there is none. Raises StorageError."""
    with storage_errors("remove", path):
        if (fence := fence_of(path)) is not None:
            fence.remove(path)
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def move(path: Path, target: Path) -> None:
    """Rename a file or folder. Raises StorageError."""
    with storage_errors("move", path):
        if (fence := fence_of(path)) is not None:
            fence.move(path, target)
        else:
            path.rename(target)


@contextlib.contextmanager
def folder_in_place_of(target: Path) -> Iterator[Path]:
    """An empty folder that takes the target's place at the end, or leaves nothing behind where that fails.

    Raises StorageError where the disk is full or read-only.
    """
    with storage_errors("write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        fence, draft = fence_of(target), _draft(target)
        shutil.rmtree(draft, ignore_errors=True)
        whole = False
        try:
            draft.mkdir()
            yield draft
            remove(target)
            if fence is not None:
                fence.adopt(draft, target)
            else:
                draft.rename(target)
            whole = True
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            if fence is not None and not whole:
                fence.check()  # the draft may have gone with the right to write


def _replace(path: Path, data: bytes, durable: bool) -> None:
    with storage_errors("write", path), _in_place_of(path) as draft:
        _write(draft, data, durable=durable)


@contextlib.contextmanager
def _in_place_of(path: Path) -> Iterator[Path]:
    """A path to write to; what is there at the end takes the place of the file, or nothing is left behind."""
    fence, draft = fence_of(path), _draft(path)
    if fence is not None:
        fence.check()
    whole = False
    try:
        yield draft
        if fence is not None:
            fence.adopt(draft, path)
        else:
            draft.replace(path)
        whole = True
    finally:
        if not whole:
            discard(draft)
            if fence is not None:
                fence.check()  # the draft may have gone with the right to write


def _draft(path: Path) -> Path:
    """Where a file is put together: in the folder of this process's claim, else beside it, by host and process."""
    if (fence := fence_of(path)) is not None:
        return fence.draft(path.name)
    return path.with_name(f".{path.name}.{host_tag()}.{os.getpid()}.tmp")


def _write(draft: Path, data: bytes, *, durable: bool) -> None:
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def _scan(path: Path, offset: int = 0) -> Iterator[tuple[Row, int]]:
    """(row, offset of its end) of every whole row from `offset` on."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    with file:
        end = file.seek(offset)
        # Lines end at \n only: str.splitlines would also break at the U+2028 a completion may contain.
        for number, line in enumerate(file, start=1):
            end += len(line)
            row = _decode(line)
            if row is not None:
                yield row, end
            elif line.endswith(b"\n") and file.read(1):
                where = f"row {number}" if offset == 0 else f"the row {number} rows after byte {offset}"
                raise StorageError(f"{path}: {where} is damaged; only a torn last line can be mended")


def _decode(line: bytes) -> Row | None:
    """The row of a line; None for a torn or damaged one."""
    if not line.endswith(b"\n"):
        return None
    try:
        row = json.loads(line.decode())  # of bytes it would guess the encoding first, line by line
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _whole_length(descriptor: int) -> int:
    """The length of the file without a torn last line."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _json(value: Mapping[str, object], indent: int | None = None) -> bytes:
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, indent=indent)
    # Half a surrogate pair is no UTF-8; written as \ud83d, which JSON allows, it reads back as itself.
    return text.encode("utf-8", "backslashreplace")


def finite(value: object) -> object:
    """The value with null in the place of every number JSON cannot write."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(part) for part in value]
    return value
