"""Parts that measure: our step beside TRL's and the floors, with the shape of Qwen2.5-0.5B; ours with that of 7B."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.parts import Outcome, Place
from benchmarks.trl_step.floors import BF16, SHAPES

BESIDE = 8 * 2**30  # bytes besides the 7B weights: adapter, cache and activations of 64 rows
QUICK = ("--steps", "3", "--without-memory")
REHEARSAL = ("--rehearse", "--new-tokens", "12", "--groups", "2", "--steps", "1")


def beside_trl(place: Place) -> Outcome:
    """Our step and TRL's in turn, which must be the same step; without TRL ours alone."""
    if importlib.util.find_spec("trl") is None:
        own = _measured(place, "Qwen2.5-0.5B", alone=True)
        return Outcome(status="SKIP", figure=f"TRL is not installed; {_figure(place, own)}", details=own)
    shape = _measured(place, "Qwen2.5-0.5B", alone=False)
    if shape is None:
        return Outcome(status="FAIL", figure="the two tools do not take the same step")
    return Outcome(status="PASS", figure=_figure(place, shape), details=shape)


def seven_billion(place: Place) -> Outcome:
    """Our step alone; where the device or the disk has no room for such weights, why not."""
    if not place.rehearsed and (why := _no_room(place.folder)) is not None:
        return Outcome(status="SKIP", figure=why)
    shape = _measured(place, "Qwen2.5-7B", alone=True)
    return Outcome(status="PASS", figure=_figure(place, shape), details=shape)


def _measured(place: Place, name: str, *, alone: bool) -> Any:
    """What benchmarks/gpu.py finds for one shape; None where the two tools do not take the same step."""
    from benchmarks import gpu

    file = place.folder / "gpu.json"
    how = REHEARSAL if place.rehearsed else ("--shapes", name, *QUICK)
    if gpu.main([*how, *(["--ours-alone"] if alone else []), "--json", str(file)]) != 0:
        return None
    (shape,) = json.loads(file.read_text(encoding="utf-8"))["shapes"].values()
    return shape


def _figure(place: Place, shape: dict[str, Any]) -> str:
    run, floors, own = shape["run"], shape["floors"], shape["run"]["ours"][0]
    theirs = run["theirs"]
    trl = "" if theirs is None else f", TRL {theirs['seconds']:.3f} s (ours / TRL {run['ratios'][own['how']]:.2f})"
    tiny = "a tiny shape: " if place.rehearsed else ""
    return (
        f"{tiny}step {own['seconds']:.3f} s{trl}, at least {floors['step']:.3f} s "
        f"by arithmetic; sampling {own['parts']['sample']:.3f} s, at least {floors['decoding']:.3f} s by memory traffic"
    )


def _no_room(folder: Path) -> str | None:
    import torch

    weights = SHAPES["Qwen2.5-7B"].parameters * BF16
    free, disk = torch.cuda.mem_get_info()[0], shutil.disk_usage(folder).free
    if free < weights + BESIDE:
        return f"{free / 2**30:.0f} GiB free on the device, {(weights + BESIDE) / 2**30:.0f} GiB needed"
    if disk < 1.1 * weights:
        return f"{disk / 2**30:.0f} GiB free on the disk, {weights * 1.1 / 2**30:.0f} GiB needed"
    return None
