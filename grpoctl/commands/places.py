"""A name on the command line -> the run or the study it means, for commands that take both."""

from __future__ import annotations

import re
from contextlib import suppress

from core.errors import NotFoundError
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir, find_study


def driven_study(place: RunDir | StudyDir) -> StudyDir | None:
    """The study under way that a run belongs to; None for a run of its own, and for a study."""
    study = StudyDir(path=place.path.parent.parent)
    inside = isinstance(place, RunDir) and study.spec.exists()
    return study if inside and study.is_held() else None


def run_or_study(home: Home, name: str) -> RunDir | StudyDir:
    """The run, else the study, else the run inside a study, that the name means as `find` and `find_study` have it.

    Raises NotFoundError, naming what fits where several do.
    """
    try:
        return home.find(name)
    except NotFoundError as error:
        no_run = error
    try:
        return find_study(home, name)
    except NotFoundError as error:
        no_study = error
    if match := re.fullmatch(r"(.+)-t(\d+)-s(\d+)", name.lower()):
        with suppress(NotFoundError):
            run = find_study(home, match[1]).run(int(match[2]), int(match[3]))
            if run.spec.exists():
                return run
    several = next((error for error in (no_run, no_study) if " fits " in str(error)), None)
    raise several or NotFoundError(f"no run and no study {name!r} in {home.path}; grpoctl ls shows what there is")
