"""A name on the command line -> the run or the study it means, for commands that take both."""

from __future__ import annotations

import re
from contextlib import suppress

from core.errors import NotFoundError
from grpoctl import console
from grpoctl.runs.run_dir import Home, RunDir, choose
from grpoctl.runs.study_dir import StudyDir, choose_study, find_study, studies


def driven_study(place: RunDir | StudyDir) -> StudyDir | None:
    """The study under way that a run belongs to; None for a run of its own, and for a study."""
    study = StudyDir(path=place.path.parent.parent)
    inside = isinstance(place, RunDir) and study.spec.exists()
    return study if inside and study.is_held() else None


def run_or_study(home: Home, name: str, *, running_first: bool = False) -> RunDir | StudyDir:
    """The run, else the study, else the run inside a study, that the name means as `find` and `find_study` have it.

    With `running_first`, of several that a name may mean those under way come before those that have ended.
    Raises NotFoundError, naming what fits where several do.
    """
    if running_first and (under_way := _under_way(home, name)) is not None:
        return under_way
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


def print_choice(home: Home, name: str, place: RunDir | StudyDir) -> None:
    """Say which of several runs and studies a name stood for; nothing where it fits one alone, or is a directory."""
    fitting = [one for one in (*home.runs(), *studies(home)) if one.id.startswith(name.lower())]
    if len(fitting) > 1 and name.lower() != place.id:
        standing = "it is running" if place.is_held() else "the newest, none is running"
        console.print_note(f"{name} matches {len(fitting)}; using {place.id} ({standing})")


def _under_way(home: Home, name: str) -> RunDir | StudyDir | None:
    """The held run, else the held study, that the name means among those; None for an id or a directory."""
    known: list[RunDir | StudyDir] = [*home.runs(), *studies(home)]
    if "/" in name or any(name.lower() == place.id for place in known):
        return None
    held = [place for place in known if place.is_held()]
    with suppress(NotFoundError):
        return choose(name, [place for place in held if isinstance(place, RunDir)], home.path)
    with suppress(NotFoundError):
        return choose_study(name, [place for place in held if isinstance(place, StudyDir)], home)
    return None
