"""A study as a command line means it: a new one, or one to continue; and its database brought up to date.

What is here: finding or making the directory, its spec and its book, and writing to the database what it
missed. What is not: driving it (driver).
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import BusyError, GrpoError, NotFoundError, StorageError, UserError
from grpoctl.config import plain
from grpoctl.credentials import STORAGE_VARIABLE, masked
from grpoctl.files import read_json, replace_text
from grpoctl.runs.liveness import study_status
from grpoctl.runs.run_dir import Home
from grpoctl.runs.status import TrialStatus
from grpoctl.runs.study_dir import StudyDir, create_study, find_study, studies
from grpoctl.sweeps.candidates import size
from grpoctl.sweeps.edits import requests
from grpoctl.sweeps.loading import dump_sweep, read_sweep, study_stem, sweep_sha
from grpoctl.sweeps.samplers import startup_of
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import Book, TrialRecord, read_book
from grpoctl.sweeps.storage import BEHIND, StudyStorage, project


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """How far a study goes and where it is kept: what may differ each time it is gone on with."""

    trials: int | None = None
    slots: int = 1
    masked: str = ""  # the URL of the database, its password not in it; empty for the study's own file
    retry_failed: bool = False
    above: int = 0  # studies of the sweep with numbers up to this are in the database, of other homes perhaps
    asked: Mapping[str, Any] = field(default_factory=dict)  # what the command line said, for those that repeat it


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenStudy:
    """A study to drive. `fresh`: nothing of it was run before; `over`: it has all it was asked for."""

    study: StudyDir
    sweep: SweepSpec
    book: Book
    fresh: bool
    over: bool = False
    notes: tuple[str, ...] = ()


def new_study(sweep: SweepSpec, home: Home, notes: Sequence[str], terms: Terms) -> OpenStudy:
    """A new study of the sweep, its spec and book written. Raises BusyError while another of the same is driven."""
    stem = study_stem(sweep)
    for other in studies(home):
        if other.id.rpartition("-")[0] == stem and other.is_held():
            raise BusyError(f"{other.id}, the same sweep, is running; wait until it ends, or: grpoctl stop {other.id}")
    study = create_study(home, stem, terms.above)
    book = Book(study.state, _header(study, sweep, notes, terms))
    book.save()
    replace_text(study.spec, dump_sweep(sweep))  # last: a directory with a spec is a study
    return OpenStudy(study=study, sweep=sweep, book=book, fresh=True)


def unfinished(sweep: SweepSpec, home: Home) -> StudyDir | None:
    """The newest study of this very sweep; None where there is none.

    Raises UserError where there are studies of the sweep's name and profile, but all under other settings.
    """
    stem = study_stem(sweep)
    known = studies(home)
    same = [study for study in known if study.id.rpartition("-")[0] == stem]
    if same:
        open_ones = [study for study in same if not study_status(study)[0].ended]
        return (open_ones or same)[0]
    alike = [study for study in known if study.id.rsplit("-", 2)[0] == f"{sweep.name}-{sweep.profile}"]
    if alike:
        raise UserError(
            f"{alike[0].id} was begun with other settings than {sweep.name} has now; to continue it unchanged: "
            f"grpoctl sweep {alike[0].id} --resume; to start a new study leave --resume out"
        )
    return None


def named_study(home: Home, name: str) -> StudyDir | None:
    """The study of this id or path; None where the name is none of a study (a sweep's name is none)."""
    try:
        study = find_study(home, name)
    except NotFoundError:
        return None
    return study if study.id == name.lower() or "/" in name else None


def reopened(study: StudyDir, terms: Terms) -> OpenStudy:
    """The study as it stands, to be gone on with. Raises StorageError where its files are damaged."""
    sweep, book = read_sweep(study.spec), read_book(study.state)
    notes: list[str] = []
    header = book.header
    before = header["total"]
    total, note = gone_on_with(study, sweep, book, terms.trials)
    header["total"] = total
    if note:
        notes.append(note)
    if terms.trials is not None and "asked" in header:
        header["asked"] = {**header["asked"], "trials": total}
    lag = header.get("lag")
    if lag is not None and lag != terms.slots:
        notes.append(
            f"{study.id} began with {lag} workers; suggestions still assume {lag}, so that the study is reproducible"
        )
    if terms.retry_failed:
        again = {trial.number: _retried(trial) for trial in book.ordered() if trial.status is TrialStatus.FAILED}
        book.trials |= again
        for job in header.get("jobs", ()):  # of an adaptive study: what showed nothing is lined up again
            if int(job["trial"]) in again and job.get("seen") == []:
                del job["seen"]
    waiting = any(not trial.status.ended for trial in book.trials.values())
    # an adaptive study that has ended did so for good, unless it is given more
    enough = total == before if sweep.allocation == "adaptive" else len(book.trials) >= _reachable(sweep, total)
    asked = len(requests(study)) > len(header.get("edits", ()))  # of trials, since it ended
    over = header["status"] == "COMPLETED" and not waiting and not asked and enough
    return OpenStudy(study=study, sweep=sweep, book=book, fresh=False, over=over, notes=tuple(notes))


def lag_of(sweep: SweepSpec, slots: int) -> int | None:
    """How many trials may be at work when one is asked for; None where no trial learns from another."""
    if sweep.ladder:
        return 1
    if sweep.allocation == "adaptive":  # a round follows from those before it, however many are at work
        return None
    return slots if sweep.sampler == "tpe" or sweep.pruner.name != "none" else None


def total_of(sweep: SweepSpec, trials: int | None) -> int:
    """The trials of a study: `trials`, else as the sweep says, or every point there is, and never more than those.

    Raises UserError where neither says so and the points cannot be counted.
    """
    wanted, there = trials if trials is not None else sweep.trials, size(sweep)
    if wanted is None and there is None:
        raise UserError(f"{sweep.name} does not say how many trials: write trials in its file, or give --trials N")
    return min(number for number in (wanted, there) if number is not None)


def gone_on_with(study: StudyDir, sweep: SweepSpec, book: Book, trials: int | None) -> tuple[int, str]:
    """How many trials a study has that is gone on with, and what to say of that: `trials`, else as many as before.

    What was begun comes to its end. "" where nothing changes.
    """
    before, begun = int(book.header["total"]), len(book.trials)
    if trials is None:
        return before, ""
    if trials < begun:
        return begun, f"{study.id}: {begun} trials were begun and none is taken back; got {trials}, so it has {begun}"
    total = max(_reachable(sweep, trials), begun)  # a clone may be beyond what can be reached
    return total, "" if total == before else f"{study.id}: {total} trials instead of {before}"


def _reachable(sweep: SweepSpec, total: int) -> int:
    number = size(sweep)
    return total if number is None else min(total, number)


def _retried(trial: TrialRecord) -> TrialRecord:
    """A failed trial that is under way again, its runs gone on with from their checkpoints."""
    return dataclasses.replace(
        trial, status=TrialStatus.RUNNING, attempts=trial.attempts + 1, message="", score=None, values=()
    )


def _header(study: StudyDir, sweep: SweepSpec, notes: Sequence[str], terms: Terms) -> dict[str, Any]:
    budget, lag = sweep.budget, lag_of(sweep, terms.slots)
    return {
        "study": study.id,
        "sweep": sweep.name,
        "revision": sweep.revision,
        "sweep_sha": sweep_sha(sweep),
        "profile": sweep.profile,
        "experiment": sweep.experiment,
        **({"asked": dict(terms.asked)} if terms.asked else {}),
        "title": sweep.title,
        "question": sweep.question,
        "source": sweep.source,
        "status": "RUNNING",
        "message": "",
        "started": time.time(),
        "ended": None,
        "seconds": 0.0,
        "metric": sweep.metric,
        "direction": sweep.direction,
        "worst": sweep.worst,
        "take": sweep.take,
        "sampler": sweep.sampler,
        "pruner": {key: value for key, value in plain(sweep.pruner).items() if value is not None},
        "lag": lag,
        "startup": startup_of(sweep, lag),
        "points": size(sweep),
        "study_seed": sweep.study_seed,
        "seeds": list(sweep.seeds),
        "budget": {"completions": budget.completions, "tokens": budget.tokens},
        "total": total_of(sweep, terms.trials),
        "storage": terms.masked or str(study.storage),
        "axes": {key: plain(axis) for key, axis in sweep.axes.items()},
        "notes": list(notes),
        "failures": 0,
        **({} if sweep.allocation == "fixed" else _of_a_search(sweep)),
    }


def _of_a_search(sweep: SweepSpec) -> dict[str, Any]:
    """What the header of an adaptive study has besides."""
    keys = ("allocation", "stop", "confidence", "tolerance")
    return {**{key: getattr(sweep, key) for key in keys}, "jobs": []}


def kept_in(study: StudyDir, header: Mapping[str, Any]) -> str | Path:
    """Where the book says that the study's database is; its own file is in the study, wherever that was moved to."""
    storage = str(header.get("storage") or "")
    return storage if "://" in storage else study.storage


def check_terms(header: dict[str, Any], terms: Terms) -> None:
    """Raises StorageError where the study is kept in another database than the one that is given now."""
    kept, url = str(header.get("storage") or ""), terms.masked
    if url and url != kept:
        raise StorageError(f"this study is kept in {kept}, got --storage {url}")
    if not url and "***" in kept:
        raise StorageError(
            f"this study is kept in {kept}; give it with its password by --storage or {STORAGE_VARIABLE}"
        )


def make_up_all(home: Home) -> dict[str, str]:
    """`make_up` of each study whose database is known to be behind, or whose driver died: what it gave, by study.

    Those that are driven now are left to their drivers. A database elsewhere is found by GRPOCTL_STORAGE where the
    study's URL has a password.
    """
    done: dict[str, str] = {}
    variable = os.environ.get(STORAGE_VARIABLE, "")
    for study in studies(home):
        with suppress(StorageError):  # a damaged sweep.json: whoever names the study is told
            header = read_json(study.state) or {}
            own = isinstance(kept_in(study, header), Path)
            if study.is_held() or not (
                header.get(BEHIND) or (own and header.get("status") in ("RUNNING", "INTERRUPTED"))
            ):
                continue
            url = variable if variable and masked(variable) == header.get("storage") else None
            terms = Terms(masked=masked(url) if url else "")
            try:
                with study.hold(patience=0):
                    done[study.id] = make_up(reopened(study, terms), terms, url)
            except BusyError:
                continue
            except GrpoError as error:
                done[study.id] = str(error)
    return done


def make_up(opened: OpenStudy, terms: Terms, url: str | None) -> str:
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
