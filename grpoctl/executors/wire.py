r"""Jobs and events as lines of JSON, for the pipes between a pool and its workers.

A message begins with a newline as well as ending with one: where a writer was interrupted in the middle of the one
before, only that one is lost. So there are empty lines, and lines that say nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpoctl.executors.base import Died, Ended, Event, Job, JobDone, Row, Step
from grpoctl.files import encode

_KINDS: Mapping[str, type[Event]] = {kind.__name__: kind for kind in (Row, Step, Ended, Died, JobDone)}


def job_line(job: Job) -> bytes:
    """The job as a message."""
    return b"\n" + encode({"number": job.number, "runs": [str(run) for run in job.runs]})


def job_of(line: bytes) -> Job | None:
    """The job of a line; None where it holds none."""
    document = _object(line)
    if document is None:
        return None
    return Job(number=document["number"], runs=tuple(Path(run) for run in document["runs"]))


def event_line(event: Event) -> bytes:
    """The event as a message; numbers JSON cannot write become null."""
    fields = {name: getattr(event, name) for name in event.__slots__}
    if "run" in fields:
        fields["run"] = str(fields["run"])
    return b"\n" + encode({"kind": type(event).__name__, **fields})


def event_of(line: bytes) -> Event | None:
    """The event of a line; None where it holds none."""
    document = _object(line)
    if document is None:
        return None
    kind = _KINDS[document.pop("kind")]
    if "run" in document:
        document["run"] = Path(document["run"])
    return kind(**document)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
