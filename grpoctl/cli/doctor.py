"""`grpoctl doctor`: what is installed, which devices there are, and whether the store and the cache are in order."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import typer

from core.errors import StorageError
from grpoctl import console
from grpoctl.cli import exits
from grpoctl.cli.options import Json
from grpoctl.runs.provenance import PACKAGES, versions
from grpoctl.runs.run_dir import Home


def doctor(json: Json = False) -> None:
    checks = examination()
    ok = all(check["ok"] for check in checks)
    if json:
        console.print_json({"schema": 1, "ok": ok, "checks": checks})
    else:
        rows = [("ok" if check["ok"] else "PROBLEM", check["name"], check["detail"]) for check in checks]
        console.print_table("", ("", "", ""), rows)
    raise typer.Exit(exits.OK if ok else exits.FAILED)


def examination() -> list[dict[str, Any]]:
    """Every check, in the order of a first look: its name, `ok`, and a line of detail."""
    home = Home.locate()
    return [_python(), *_packages(), _devices(), _home(home), _disk(home), _store(home), _cache()]


def _check(name: str, ok: bool, detail: str) -> dict[str, Any]:
    return {"name": name, "ok": ok, "detail": detail}


def _python() -> dict[str, Any]:
    return _check("python", sys.version_info >= (3, 11), f"{platform.python_version()} ({sys.executable})")


def _packages() -> list[dict[str, Any]]:
    return [
        _check(name, version is not None, version or "not installed") for name, version in versions(PACKAGES).items()
    ]


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
