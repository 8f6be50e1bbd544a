"""The kinds of CUDA device on which `make gpu` has passed: those that ship with this version, and this machine's own.

A kind is the device's name as CUDA tells it, with its compute capability. What passed here is written into the user's
cache, not into a home: it is of the machine, whatever project is worked on. Not here: the check itself
(benchmarks/gpu_check). torch is loaded only where there may be a CUDA device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import StorageError
from core.models.cache import cache_root
from grpoctl.files import read_json, replace_json, storage_errors
from grpoctl.resources.machine import has_cuda_driver

SHIPPED = Path(__file__).with_name("verified.json")
CHECK = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_check"  # where this is a checkout
SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaDevice:
    """A kind of device."""

    name: str
    capability: str  # as in 9.0

    def is_of(self, record: Mapping[str, Any]) -> bool:
        """True when a record of a passed check is of this kind."""
        return (record.get("name"), record.get("capability")) == (self.name, self.capability)


def cuda_devices() -> list[CudaDevice]:
    """The CUDA devices that torch sees here, in its order."""
    if not has_cuda_driver():
        return []
    import torch

    devices = []
    for number in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(number)
        devices.append(CudaDevice(name=torch.cuda.get_device_name(number), capability=f"{major}.{minor}"))
    return devices


def own_records() -> Path:
    """The file with what passed on this machine."""
    return cache_root() / "verified-gpus.json"


def record_of(device: CudaDevice) -> Mapping[str, Any] | None:
    """The newest record of a passed check on this kind of device: name, capability, date, commit, versions."""
    records = [*_records(SHIPPED), *_records(own_records())]
    return next((record for record in reversed(records) if device.is_of(record)), None)


def unverified_text(devices: Sequence[CudaDevice]) -> str | None:
    """The sentence on devices of which a kind is not verified; None where all are, or there is none."""
    if all(record_of(device) is not None for device in devices):
        return None
    where = "" if CHECK.exists() else " in a clone of grpoctl's repository"
    return f"CUDA paths: not verified on this kind of device; `make gpu`{where} verifies them in 10 minutes"


def write_record(record: Mapping[str, Any], file: Path) -> None:
    """Add a passed check to a list, in place of an older one of this kind. Raises StorageError."""
    kept = _without(_records(file), record)
    with storage_errors("write", file):
        file.parent.mkdir(parents=True, exist_ok=True)
    replace_json(file, {"schema": SCHEMA, "devices": [*kept, dict(record)]})


def withdraw_record(record: Mapping[str, Any], file: Path) -> None:
    """Take this kind out of a list: a check on it has failed. Raises StorageError."""
    if len(kept := _without(_records(file), record)) < len(_records(file)):
        replace_json(file, {"schema": SCHEMA, "devices": kept})


def _without(records: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    kind = CudaDevice(name=record["name"], capability=record["capability"])
    return [other for other in records if not kind.is_of(other)]


def _records(file: Path) -> list[Mapping[str, Any]]:
    """What stands in a list; nothing where it is not there or cannot be read."""
    try:
        document = read_json(file) or {}
    except StorageError:
        return []
    devices = document.get("devices")
    return [record for record in devices if isinstance(record, dict)] if isinstance(devices, list) else []
