"""One part in a process of its own: `python -m benchmarks.gpu_check.part NAME FOLDER [--rehearse]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from benchmarks.gpu_check.parts import OUTCOME, Outcome, Place

WORK = {
    "device": ("device", "device_facts"),
    "graphs": ("numbers", "recorded_graphs"),
    "cpu": ("numbers", "against_cpu"),
    "p31": ("commands", "p31"),
    "smollm2": ("commands", "smollm2"),
    "workers": ("commands", "two_workers"),
    "memory": ("numbers", "out_of_memory"),
    "resume": ("commands", "kill_and_resume"),
    "trl": ("speed", "beside_trl"),
    "7b": ("speed", "seven_billion"),
}


def main() -> None:
    """Run the part and write its outcome, or what the device is. What it raises is its last line, and its failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=WORK)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    outcome = work_of(arguments.name)(Place(folder=arguments.folder, rehearsed=arguments.rehearse))
    text = json.dumps(asdict(outcome), indent=1)
    (arguments.folder / OUTCOME).write_text(text + "\n", encoding="utf-8")


def work_of(name: str) -> Callable[[Place], Outcome]:
    """What a part does. Imported only now: a part loads what it needs, and one whose imports fail fails alone."""
    module, function = WORK[name]
    work: Callable[[Place], Outcome] = getattr(import_module(f"benchmarks.gpu_check.{module}"), function)
    return work


if __name__ == "__main__":
    main()
