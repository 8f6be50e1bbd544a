"""The parts of the check, and how one is run: in a process of its own, within its time, whatever became of others."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from grpoctl.children import child_environment, last_line

ROOT = Path(__file__).resolve().parents[2]
GRACE = 5.0  # seconds between SIGTERM, at which a run ends its workers, and SIGKILL
OUTCOME, LOG, WEIGHTS = "outcome.json", "log.txt", "weights"
RAISED = re.compile(r"(?:\[rank\d+\]: )?[\w.]*(?:Error|Exception|SystemExit|KeyboardInterrupt)(?:: |$)")
Status = Literal["PASS", "FAIL", "SKIP"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One part: what it shows, its time limit in seconds, and whether a device is verified only where it passes."""

    name: str
    title: str
    seconds: float
    needed: bool = True

    def limit(self, *, rehearsed: bool) -> float:
        """Seconds: a rehearsal has twice as many, for a machine of two cores that others use, too."""
        return self.seconds * (2 if rehearsed else 1)


DEVICE = Part(name="device", title="the device", seconds=25)  # before them all: it says what the page is about
# The limits, the device's among them, add up to 10 minutes. They are an H100's times and room for processes that import
# for some seconds longer (resume starts three). p31 comes first to the built-in model and makes it.
PARTS = (
    Part(name="graphs", title="recorded CUDA graphs equal steps run anew", seconds=25),
    Part(name="cpu", title="equal to the CPU's numbers, fp32", seconds=25),
    Part(name="p31", title="p31 `tiny` by the command line", seconds=60),
    Part(name="smollm2", title="SmolLM2-135M in bf16, rollout integrity on", seconds=105),
    Part(name="workers", title="two workers on one device", seconds=40),
    Part(name="memory", title="out of memory: fewer rows at once, the same result", seconds=35),
    Part(name="resume", title="kill -9 and --resume: the same rows", seconds=65),
    Part(name="trl", title="Qwen2.5-0.5B's shape beside TRL and the floors", seconds=145, needed=False),
    Part(name="7b", title="Qwen2.5-7B's shape", seconds=75, needed=False),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a part ended: in a line, and in numbers."""

    status: Status
    figure: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a part works: `folder` is its own; in a rehearsal the CPU is in the device's place, and all is tiny."""

    folder: Path
    rehearsed: bool

    @property
    def weights(self) -> Path:
        """A folder for weights, removed when the part has ended."""
        return self.folder / WEIGHTS


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """A part that has ended, and the seconds that it took."""

    part: Part
    outcome: Outcome
    seconds: float


def part_command(name: str, place: Place) -> list[str]:
    """The process that runs one part and writes its outcome."""
    rehearsal = ["--rehearse"] if place.rehearsed else []
    return [sys.executable, "-m", "benchmarks.gpu_check.part", name, str(place.folder), *rehearsal]


def run_part(part: Part, place: Place, command: Sequence[str] | None = None) -> Done:
    """Run one part to its end or to its limit. A part that dies or says nothing has failed.

    So has one that is needed and reaches its limit; one that only measures has then measured nothing.
    """
    place.folder.mkdir(parents=True)
    log = place.folder / LOG
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command or part_command(part.name, place), cwd=ROOT, env=_environment(place), stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            code: int | None = process.wait(part.limit(rehearsed=place.rehearsed))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    shutil.rmtree(place.weights, ignore_errors=True)
    return Done(part=part, outcome=_outcome(part, place, code), seconds=time.monotonic() - began)


def _environment(place: Place) -> dict[str, str]:
    """This process's, with runs of the part's own, no hub, and in a rehearsal no CUDA device."""
    own = {"GRPOCTL_HOME": str(place.folder / "home"), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    return {**child_environment(), **own, **({"CUDA_VISIBLE_DEVICES": ""} if place.rehearsed else {})}


def _outcome(part: Part, place: Place, code: int | None) -> Outcome:
    log = place.folder / LOG
    where = log.relative_to(ROOT) if log.is_relative_to(ROOT) else log
    if code is None:
        why = f"ran out of its {part.limit(rehearsed=place.rehearsed):.0f} s; {where}"
        if part.needed:
            return Outcome(status="FAIL", figure=why)
        return Outcome(status="SKIP", figure=f"not measured: {why}")
    try:
        document = json.loads((place.folder / OUTCOME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        document = None
    if code != 0 or document is None:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Outcome(status="FAIL", figure=f"{_error(log) or last_line(log) or 'said nothing'} ({how}); {where}")
    return Outcome(status=document["status"], figure=document["figure"], details=document["details"])


def _error(log: Path) -> str:
    """The last line that names what was raised: CUDA's errors have lines of advice behind it. Empty where none does."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line for line in reversed(lines) if RAISED.match(line)), "")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the part and what it left behind in its session, with time for a run to end its own workers."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + GRACE
        try:
            os.killpg(process.pid, number)
            while time.monotonic() < until:
                process.poll()  # a process that nobody has waited for still counts
                os.killpg(process.pid, 0)
                time.sleep(0.02)
        except ProcessLookupError:
            break
    process.wait()
