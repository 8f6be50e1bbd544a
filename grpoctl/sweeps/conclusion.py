"""The end of a driver: how the study stands then, what can be said of it, and a database that was away made up for."""

from __future__ import annotations

import dataclasses
import os
import time
import traceback
from contextlib import suppress
from pathlib import Path

from core.errors import BusyError, GrpoError, StorageError, in_words
from grpoctl.analysis.sweeps.figures.drawing import draw
from grpoctl.analysis.sweeps.findings import study_findings
from grpoctl.credentials import STORAGE_VARIABLE, masked, without_credentials
from grpoctl.files import read_json
from grpoctl.runs.run_dir import Home
from grpoctl.runs.status import TrialStatus
from grpoctl.runs.study_dir import studies
from grpoctl.sweeps.driver import Driver
from grpoctl.sweeps.importances import importances
from grpoctl.sweeps.loading import sweep_sha
from grpoctl.sweeps.opening import Opened, Terms, check_terms, kept_in, reopened
from grpoctl.sweeps.state import Book
from grpoctl.sweeps.storage import BEHIND, StudyStorage, project

GO_ON = "continue with --resume"


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
            log.write(without_credentials(traceback.format_exc()))
        return f"the report is incomplete: {in_words(error)} (traceback in {driver.plan.study.log})"
    return None


def make_up_all(home: Home) -> dict[str, str]:
    """`make_up` of each study whose database is known to be behind, or whose driver died: what it gave, by study.

    Those that are driven now are left to their drivers. A database elsewhere is found by GRPOCTL_STORAGE where the
    study's URL has a password.
    """
    done: dict[str, str] = {}
    given = os.environ.get(STORAGE_VARIABLE, "")
    for study in studies(home):
        with suppress(StorageError):  # a damaged sweep.json: whoever names the study is told
            header = read_json(study.state) or {}
            own = isinstance(kept_in(study, header), Path)
            if study.is_held() or not (
                header.get(BEHIND) or (own and header.get("status") in ("RUNNING", "INTERRUPTED"))
            ):
                continue
            url = given if given and masked(given) == header.get("storage") else None
            terms = Terms(masked=masked(url) if url else "")
            try:
                with study.hold(patience=0):
                    done[study.id] = make_up(reopened(study, terms), terms, url)
            except BusyError:
                continue
            except GrpoError as error:
                done[study.id] = str(error)
    return done


def make_up(opened: Opened, terms: Terms, url: str | None) -> str:
    """Bring Optuna's database to what the book of a study that is held says: why that could not be done, else "".

    The book says the same from then on. `url` is where the database is, None for where the book says. Raises
    StorageError where the book cannot be written.
    """
    study, sweep, book = opened.study, opened.sweep, opened.book
    known = book.header.get(BEHIND)
    try:
        check_terms(book.header, terms)
        where = url or kept_in(study, book.header)
        storage = StudyStorage.open(where, study.id, sweep, create=False, sweep_sha=sweep_sha(sweep))
        try:
            behind = project(storage, book)
        finally:
            storage.close()
    except GrpoError as error:  # it could not even be opened: what is known of it stands
        return str(error)
    if behind != (known or ""):
        book.save()
    return behind
