"""Which runs two names stand for in a comparison: an experiment's seeds, or one run."""

from __future__ import annotations

from pathlib import Path

from core.errors import NotFoundError
from grpoctl.analysis.collect import RunRecord, load_run, shared_profile, side
from grpoctl.runs.run_dir import Home

Side = tuple[RunRecord, ...]


def sides(home: Home, a: str, b: str, profile: str | None) -> tuple[Side, Side]:
    """The records of both sides; without a profile, the newest one that both have runs of.

    Raises NotFoundError where a side has no finished run.
    """
    paths = [run.path for run in home.runs()]
    a, b = (Path(name).stem if name.lower().endswith(".yaml") else name for name in (a, b))
    profile = profile or shared_profile(paths, a, b)

    def resolve(name: str) -> Side:
        try:
            return side(paths, name, profile=profile)
        except NotFoundError as error:
            try:
                run = home.find(name)
            except NotFoundError:
                raise error from None
            return (load_run(run.path),)

    return resolve(a), resolve(b)
