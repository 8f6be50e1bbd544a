"""Where a page may be written: a new file, or the place of an older page. What is read is never written over."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from core.errors import UserError
from grpoctl.diagnose.readers.registry import STANDARD_INPUT

_EXAMPLE = "e.g. --html report.html"
_PAGES = (".html", ".htm")
_BEGINS = (b"<!doctype html", b"<html")
_SHOWN = 60  # characters of a name that an error shows


def place(html: str | None) -> Path | None:
    """The file that the page is to be, links followed; None where none was asked for.

    Raises UserError where it can be none: no name, `-`, a folder, a device, a file that is there and is no page.
    """
    if html is None:
        return None
    if html == "-":
        raise UserError(f"--html: the page goes to a file, not to standard output; {_EXAMPLE}")
    try:
        return _checked(html)
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a link that leads to itself
        why = getattr(error, "strerror", None) or error
        raise UserError(f"--html: {_short(html)} can be no file: {why}; {_EXAMPLE}") from None


def keeps(file: Path, source: str) -> None:
    """Nothing, where the page leaves the source as it is. Raises UserError where it would be written over it."""
    same = False
    with suppress(OSError, ValueError, RuntimeError):
        read = os.fstat(0) if source == STANDARD_INPUT else Path(source).expanduser().stat()  # `- < FILE` reads a file
        same = os.path.samestat(file.stat(), read)
    if same:
        raise UserError(f"--html: {file} is what is to be diagnosed; the page would replace it")


def _checked(html: str) -> Path:
    """The file. Raises UserError, and what the file system says of an impossible name."""
    named = Path(html)
    if not html or not named.name or named.is_dir():
        raise UserError(f"--html: got {html!r}, expected a file's name, {_EXAMPLE}")
    if not named.parent.is_dir():
        raise UserError(f"--html: there is no folder {_short(str(named.parent))}")
    with suppress(FileNotFoundError):  # of a name that is too long, whatever this Python's `exists` makes of it
        named.lstat()
    file = named.resolve() if named.is_symlink() else named
    if file.is_symlink():
        raise UserError(f"--html: {_short(html)} is a link that leads to itself")
    if not file.parent.is_dir():
        raise UserError(f"--html: {_short(html)} is a link into a folder that is not there")
    if Path("/dev") in named.absolute().parents or (file.exists() and not file.is_file()):
        raise UserError(f"--html: {_short(html)} is no regular file, {_EXAMPLE}")
    if file.exists() and not _may_go(file):
        raise UserError(f"--html: {_short(html)} is there and is no page of HTML; name another file, {_EXAMPLE}")
    return file


def _may_go(file: Path) -> bool:
    """Whether a page may take the place of the file: it is empty, called a page, or one."""
    if file.suffix.lower() in _PAGES or file.stat().st_size == 0:
        return True
    with file.open("rb") as page:
        return page.read(64).lstrip().lower().startswith(_BEGINS)


def _short(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
