"""What `grpoctl doctor` looks at; each check is a name, whether it is in order, and a line."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from core.errors import StorageError
from grpoctl.runs.provenance import PACKAGES, versions
from grpoctl.runs.run_dir import Home


def examination() -> list[dict[str, Any]]:
    """Every check, in the order of a first look."""
    home = Home.locate()
    return [_python(), *_packages(), _devices(), _home(home), _disk(home), _store(home), _cache()]


def _check(name: str, ok: bool, detail: str) -> dict[str, Any]:
    return {"name": name, "ok": ok, "detail": detail}


def _python() -> dict[str, Any]:
    return _check("python", sys.version_info >= (3, 11), f"{platform.python_version()} ({sys.executable})")


def _packages() -> list[dict[str, Any]]:
    return [_check(name, found is not None, found or "not installed") for name, found in versions(PACKAGES).items()]


def _devices() -> dict[str, Any]:
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    devices = f"CUDA: {', '.join(names)}; " if names else "no CUDA device; "
    return _check("devices", True, f"{devices}{len(os.sched_getaffinity(0))} CPU cores")


def _home(home: Home) -> dict[str, Any]:
    place = _nearest(home)
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

    checked = check_store(home)
    what = {"ok": "answers", "absent": "not there yet, made by the first run"}.get(checked.state, checked.error or "")
    return _check("mlflow store", checked.state != "unreachable", f"{checked.store}: {what}")


def _cache() -> dict[str, Any]:
    from core.models.cache import cache_root, intact

    root = cache_root()
    made = sorted(path.name for path in root.glob("[!.]*-*") if path.is_dir() and "." not in path.name)
    damaged = [name for name in made if not intact(root / name)]
    state = ", ".join(made) or "empty: the built-in model is built by the first run"
    if damaged:
        state += f"; damaged, made again when used: {', '.join(damaged)}"
    return _check("model cache", True, f"{root} ({state})")
