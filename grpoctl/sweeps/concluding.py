"""The end of a driver: how the study stands then, and what can be said of it."""

from __future__ import annotations

import dataclasses
import time
import traceback
from contextlib import suppress

from grpoctl.analysis.sweeps.figures import draw
from grpoctl.analysis.sweeps.findings import study_findings
from grpoctl.sweeps.driver import Driver
from grpoctl.sweeps.importances import importances
from grpoctl.sweeps.state import Book, TrialStatus

GO_ON = "go on with --resume"


def how_it_ended(driver: Driver) -> tuple[str, str]:
    """(status, message) of a study whose driver came to its end: COMPLETED, STOPPED or FAILED."""
    if driver.hopeless:
        return "FAILED", driver.stopped
    if driver.stopped and not driver.met and len(driver.book.trials) < driver.plan.total:
        return "STOPPED", f"{driver.stopped}; {GO_ON}"
    if not any(trial.score is not None for trial in driver.book.trials.values()):
        return "FAILED", "no trial has a score"
    if driver.plan.sweep.ladder:
        return "COMPLETED", f"rung {driver.met} met its expectations" if driver.met else "no rung met its expectations"
    return "COMPLETED", ""


def conclude(book: Book, driver: Driver, how: tuple[str, str]) -> str | None:
    """Put the ending into the book, with importances and findings, and draw the figures; gives what went wrong there.

    How a study ended must not depend on what can be said of it: a fault in a report leaves the report out.
    """
    status, message = how
    ended = max(float(book.header.get("started") or 0.0), time.time())  # a clock may be set back
    book.header |= {"status": status, "message": message, "ended": ended, "seconds": round(driver.worked, 3)}
    driver.interrupt()
    for trial in book.ordered():
        if trial.status is TrialStatus.RUNNING:  # asked for, and not begun
            book.trials[trial.number] = dataclasses.replace(trial, status=TrialStatus.INTERRUPTED)
    book.changed()
    try:
        book.said["importances"] = importances(driver.plan.sweep, book.ordered())
        book.changed()
        book.said["findings"] = study_findings(book.document())
        if status != "INTERRUPTED":
            draw(book.document(), driver.plan.study.figures)
    except Exception as error:  # noqa: BLE001  the boundary around what is said of a study
        with suppress(OSError), driver.plan.study.log.open("a", encoding="utf-8") as log:
            log.write(traceback.format_exc())
        return f"the report is incomplete: {type(error).__name__}: {error} (traceback in {driver.plan.study.log})"
    return None
