"""Starts the probe in a process of its own and reads what it tells; what kills it does not kill the asker."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from core.config import RunSpec
from grpoctl.children import child_environment, python_module
from grpoctl.config.resolved import plain

_LONGEST = 300  # characters of a failed probe's last words


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """What a probe told: `events` in order (see probing); `why` it did not run, or not to its end."""

    events: Sequence[Mapping[str, Any]] = ()
    why: str | None = None

    def first(self, kind: str) -> Mapping[str, Any]:
        """The first event of a kind; empty where there is none."""
        return next((event for event in self.events if event["event"] == kind), {})

    def step(self, stage: str, *, full: bool) -> Mapping[str, Any]:
        """The stage's last step as drawn, or at full length; empty where it was not made."""
        steps = [e for e in self.events if e["event"] == "step" and (e["stage"], e["full"]) == (stage, full)]
        return steps[-1] if steps else {}

    @property
    def peak(self) -> int | None:
        """The most that any phase held; None where not every stage made its step at full length."""
        if self.why is not None or not self.events:
            return None
        return max((size for event in self.events for size in event.get("peaks", {}).values()), default=None)


def measure(spec: RunSpec, prompts: int) -> Probe:
    """Run the probe on `prompts` held-out prompts and two steps or more of each stage; seconds to minutes."""
    command = python_module("grpoctl.resources.probing")
    environment = child_environment()
    with tempfile.TemporaryFile("w+b") as log:
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
            )
        except OSError as error:
            return Probe(why=f"it could not be started: {error.strerror}")
        with child:
            try:
                events = _told(child, {"spec": plain(spec), "prompts": prompts})
                code = child.wait()
            finally:
                child.kill()  # where this process is interrupted; one that has ended is left alone
        log.seek(0)
        said = log.read().decode("utf-8", "replace").splitlines()
    failed = [str(event["error"]) for event in events if event["event"] == "failed"]
    return Probe(events=events, why=failed[0] if failed else obituary(code, said))


def _told(child: subprocess.Popen[bytes], asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events until there will be no more. Its standard input stays open: it ends where that closes."""
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(OSError):
        child.stdin.write(json.dumps(asked).encode() + b"\n")
        child.stdin.flush()
    return [event for line in child.stdout if (event := _event(line)) is not None]


def _event(line: bytes) -> dict[str, Any] | None:
    """None for a line that was cut off when its writer was killed."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "event" in found else None


def obituary(code: int, said: Sequence[str]) -> str | None:
    """How a probe ended that told no error, from its exit code and last words; None where all was well."""
    if code == 0:
        return None
    if code == -signal.SIGKILL:
        return "it was killed, perhaps because memory ran out"
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    last = next((line.strip() for line in reversed(said) if line.strip()), f"code {code}")
    return last[:_LONGEST]
