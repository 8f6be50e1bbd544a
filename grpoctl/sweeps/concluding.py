"""The end of a driver: how the study stands then, and what can be said of it."""

from __future__ import annotations

import dataclasses
import time

from grpoctl.analysis.sweeps.findings import study_findings
from grpoctl.sweeps.driver import Driver
from grpoctl.sweeps.importances import importances
from grpoctl.sweeps.state import Book, TrialStatus

GO_ON = "go on with --resume"


def how_it_ended(driver: Driver) -> tuple[str, str]:
    """(status, message) of a study whose driver came to its end: COMPLETED, STOPPED or FAILED."""
    if driver.hopeless:
        return "FAILED", driver.stopped
    if driver.stopped:
        return "STOPPED", f"{driver.stopped}; {GO_ON}"
    if not any(trial.score is not None for trial in driver.book.trials.values()):
        return "FAILED", "no trial has a score"
    if driver.plan.sweep.ladder:
        return "COMPLETED", f"rung {driver.met} met its expectations" if driver.met else "no rung met its expectations"
    return "COMPLETED", ""


def conclude(book: Book, driver: Driver, how: tuple[str, str]) -> None:
    """Put the ending into the book, with importances and findings. Raises StorageError where it cannot be written."""
    status, message = how
    book.header |= {"status": status, "message": message, "ended": time.time(), "seconds": round(driver.worked, 3)}
    for trial in book.ordered():
        if trial.status is TrialStatus.RUNNING:
            book.trials[trial.number] = dataclasses.replace(trial, status=TrialStatus.INTERRUPTED)
    book.said["importances"] = importances(driver.plan.sweep, book.ordered())
    book.changed()
    book.said["findings"] = study_findings(book.document())
    book.changed()
