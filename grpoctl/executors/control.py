"""RUN/control.json: what a parent asks of a run, which looks at each evaluation.

What is here: reading it, and waiting for it. What is not: what the parent decides (grpoctl.sweeps), and when the run
asks (core.training.callbacks).

    {"schema": 1, "wait": bool, "seen": step, "end": null | {"status": "PRUNED", "message": "...", "step": step}}

`wait`: after an evaluation the run goes on only once the parent has seen that step. `end`: the step it was decided
for is `step`, or `seen` where that is missing; a run gone on with from an earlier checkpoint ends at that step again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from core.errors import StorageError
from core.training.outcome import Ending, EndStatus
from grpoctl.files import read_json
from grpoctl.runs.run_dir import RunDir

if TYPE_CHECKING:
    from core.training.parallel import World

SCHEMA = 1
LOOK_AGAIN = 0.005  # seconds; the parent answers within milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """The content of the file. `since` is the first step at which `end` holds."""

    wait: bool
    seen: int
    end: Ending | None
    since: int


def read_order(path: Path) -> Order | None:
    """What the file says; None where there is none, or where it is damaged or of another schema."""
    try:
        document = read_json(path)
        if document is None or document["schema"] != SCHEMA:
            return None
        wait, seen, asked = bool(document["wait"]), int(document["seen"]), document["end"]
        if asked is None:
            return Order(wait=wait, seen=seen, end=None, since=seen)
        if asked["status"] not in get_args(EndStatus):
            return None
        ending = Ending(status=asked["status"], message=str(asked["message"]))
        return Order(wait=wait, seen=seen, end=ending, since=int(asked.get("step", seen)))
    except (StorageError, KeyError, TypeError, ValueError, AttributeError):
        return None


def asking(run: RunDir, waiting: Callable[[], None]) -> Callable[[int], Ending | None]:
    """What a run asks after each evaluation: step -> how it shall end now, or None.

    Waits for the parent where the file says so, and calls `waiting` at each look: what that raises ends the run, as a
    signal does.
    """

    def ask(step: int) -> Ending | None:
        while (order := read_order(run.control)) is not None:
            if order.end is not None and step >= order.since:
                return order.end
            if not order.wait or order.seen >= step:
                break
            waiting()
            time.sleep(LOOK_AGAIN)
        return None

    return ask


def asked_together(ask: Callable[[int], Ending | None], worlds: Sequence[World]) -> Callable[[int], Ending | None]:
    """`ask` on rank 0 alone, whose answer all ranks get. `worlds` is looked at only then: empty for a run of one."""

    def ask_once(step: int) -> Ending | None:
        return worlds[0].from_rank_0(lambda: ask(step)) if worlds else ask(step)

    return ask_once
