"""What a run reads in its control.json: whether to wait, and whether to end. Decided on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpoctl.executors.control import asking, read_order
from grpoctl.executors.interrupts import Terminated
from grpoctl.files import replace_json
from grpoctl.runs.run_dir import RunDir

PRUNED = {"status": "PRUNED", "message": "below the median"}


def never() -> None:
    pytest.fail("it waited")


def order(seen: int, *, wait: bool = True, end: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"schema": 1, "wait": wait, "seen": seen, "end": end}


@pytest.mark.parametrize(
    ("document", "step", "ends"),
    [
        (None, 8, False),
        (order(8), 8, False),
        (order(0, wait=False), 8, False),  # not told to wait
        (order(8, end=PRUNED), 8, True),
        (order(8, end=PRUNED), 12, True),
        (order(8, end=PRUNED), 4, False),  # gone on with from a checkpoint before: it ends where it would have
        (order(12, end={**PRUNED, "step": 8}), 8, True),  # the decision says its own step
        (order(12, end={**PRUNED, "step": 8}), 4, False),
        (order(4, wait=False, end=PRUNED), 8, True),
    ],
)
def test_when_a_run_is_to_end(tmp_path: Path, document: dict[str, Any] | None, step: int, ends: bool) -> None:
    run = RunDir(path=tmp_path)
    if document is not None:
        replace_json(run.control, document)
    ending = asking(run, never)(step)
    assert (ending is not None) == ends
    if ending is not None:
        assert (ending.status, ending.message) == ("PRUNED", "below the median")


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "{}", '{"schema": 2, "wait": true, "seen": 0, "end": null}', '{"schema": 1, "wait": true}',
        '{"schema": 1, "wait": true, "seen": null, "end": null}', '{"schema": 1, "wait": true, "seen": 0, "end": 3}',
        '{"schema": 1, "wait": true, "seen": 0, "end": {"status": "BORED", "message": ""}}',
        '{"schema": 1, "wait": true, "seen": 0, "end": {"status": "PRUNED"}}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_like_none(tmp_path: Path, text: str) -> None:
    run = RunDir(path=tmp_path)
    run.control.write_text(text)
    assert read_order(run.control) is None
    assert asking(run, never)(8) is None


def test_a_run_waits_until_the_parent_has_seen_its_step(tmp_path: Path) -> None:
    run, looks = RunDir(path=tmp_path), []
    replace_json(run.control, order(4))

    def answer() -> None:
        looks.append(1)
        if len(looks) == 3:
            replace_json(run.control, order(8, end=PRUNED))

    ending = asking(run, answer)(8)
    assert ending is not None
    assert len(looks) == 3


def test_an_interruption_ends_the_wait(tmp_path: Path) -> None:
    run = RunDir(path=tmp_path)
    replace_json(run.control, order(0))

    def interrupted() -> None:
        raise Terminated

    with pytest.raises(Terminated):
        asking(run, interrupted)(4)
