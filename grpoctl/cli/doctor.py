"""`grpoctl doctor`: what is installed, which devices there are, and whether the store and the cache are in order."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import Any

import typer

from core.errors import StorageError
from grpoctl import console
from grpoctl.cli import exits
from grpoctl.cli.options import Json
from grpoctl.resources import machine, verified
from grpoctl.resources.verified import CudaDevice
from grpoctl.runs.provenance import PACKAGES, versions
from grpoctl.runs.run_dir import Home

_NO_BYTECODE = (
    "packages are not compiled and what is compiled is not kept (PYTHONDONTWRITEBYTECODE, -B, or a folder that cannot "
    "be written), so every start takes some seconds longer: have it kept, in PYTHONPYCACHEPREFIX=FOLDER if need be"
)


def doctor(json: Json = False) -> None:
    checks = examination()
    ok = all(check["ok"] for check in checks)
    if json:
        console.print_json({"schema": 1, "ok": ok, "checks": checks, "cuda": cuda_document(verified.cuda_devices())})
    else:
        rows = [("ok" if check["ok"] else "PROBLEM", check["name"], check["detail"]) for check in checks]
        console.print_table("", ("", "", ""), rows)
    raise typer.Exit(exits.OK if ok else exits.FAILED)


def examination() -> list[dict[str, Any]]:
    """Every check, in the order of a first look: its name, `ok`, and a line of detail."""
    home = Home.locate()
    devices = verified.cuda_devices()
    return [
        _python(), *_packages(), _devices(devices), *_cuda_paths(devices), _home(home), _disk(home), _store(home),
        _cache(),
    ]  # fmt: skip


def cuda_document(devices: Sequence[CudaDevice]) -> dict[str, Any]:
    """`verified`: whether `make gpu` has passed on each device's kind (null without CUDA); the devices and records."""
    records = [verified.record_of(device) for device in devices]
    known = [{**asdict(device), "verified": record} for device, record in zip(devices, records, strict=True)]
    return {"verified": all(record is not None for record in records) if records else None, "devices": known}


def _check(name: str, ok: bool, detail: str) -> dict[str, Any]:
    return {"name": name, "ok": ok, "detail": detail}


def _python() -> dict[str, Any]:
    detail = f"{platform.python_version()} ({sys.executable})"
    return _check("python", sys.version_info >= (3, 11), detail + ("" if keeps_bytecode() else f"; {_NO_BYTECODE}"))


def keeps_bytecode() -> bool:
    """Whether a start finds torch compiled, or leaves it so for the next one. Many container images do neither."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return True
    compiled = Path(cache_from_source(torch.origin))
    nearest = next(folder for folder in compiled.parents if folder.exists())
    return compiled.exists() or (not sys.dont_write_bytecode and os.access(nearest, os.W_OK))


def _packages() -> list[dict[str, Any]]:
    return [
        _check(name, version is not None, version or "not installed") for name, version in versions(PACKAGES).items()
    ]


def _devices(devices: Sequence[CudaDevice]) -> dict[str, Any]:
    names = ", ".join(device.name for device in devices)
    return _check("devices", True, f"{f'CUDA: {names}' if names else 'no CUDA device'}; {machine.cores()} CPU cores")


def _cuda_paths(devices: Sequence[CudaDevice]) -> list[dict[str, Any]]:
    """Not a problem where they are not verified: they may well work. No line without CUDA."""
    if not devices:
        return []
    records = {device.name: verified.record_of(device) for device in devices}
    dates = [f"verified on {name}, {record['date']}" for name, record in records.items() if record is not None]
    unverified = verified.unverified_text(devices)
    return [_check("cuda paths", True, "; ".join(dates) if unverified is None else unverified)]


def _home(home: Home) -> dict[str, Any]:
    place = _nearest(home)
    if place != home.path and not place.is_dir():
        return _check("home", False, f"{home.path} ({place} is no folder; set GRPOCTL_HOME to another)")
    writable = os.access(place, os.W_OK)
    try:
        state = f"{len(home.runs())} runs" if home.path.exists() else "not there yet, made by the first run"
    except StorageError as error:
        return _check("home", False, f"{home.path} ({error})")
    return _check("home", writable, f"{home.path} ({state if writable else 'not writable'})")


def _nearest(home: Home) -> Path:
    """The home, or the folder above it that exists."""
    return next(path for path in (home.path, *home.path.parents) if path.exists())


def _disk(home: Home) -> dict[str, Any]:
    place = _nearest(home)
    free = shutil.disk_usage(place).free
    return _check("disk", free > 2**30, f"{free / 2**30:.1f} GiB free at {place}")


def _store(home: Home) -> dict[str, Any]:
    from grpoctl.tracking.store import check_store

    store = check_store(home)
    what = {"ok": "answers", "absent": "not there yet, made by the first run"}.get(store.state, store.error or "")
    return _check("mlflow store", store.state != "unreachable", f"{store.store}: {what}")


def _cache() -> dict[str, Any]:
    from core.models.cache import cache_root, intact

    root = cache_root()
    made = sorted(path.name for path in root.glob("[!.]*-*") if path.is_dir() and "." not in path.name)
    damaged = [name for name in made if not intact(root / name)]
    state = ", ".join(made) or "empty: the built-in model is built by the first run"
    if damaged:
        state += f"; damaged, made again when used: {', '.join(damaged)}"
    return _check("model cache", True, f"{root} ({state})")
