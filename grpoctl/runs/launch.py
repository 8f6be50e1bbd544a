"""From a loaded spec to a run directory that is ready to be executed, new or resumed.

What is here: which directory, and what stands in it before the first step. What is not: training (grpoctl.executors).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import NotFoundError
from grpoctl.runs import provenance, status
from grpoctl.runs.initial import source_of
from grpoctl.runs.records import read_json, replace_text
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.specs import Loaded, Revisions, dump, run_stem, spec_sha


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """What was asked for: a spec, and whether an unfinished run of it is to go on."""

    loaded: Loaded
    overrides: Sequence[str] = ()
    resume: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A run directory with its resolved spec. `finished`: it had ended before, there is nothing to execute."""

    run: RunDir
    notes: tuple[str, ...] = ()
    finished: bool = False


def revisions_of(home: Home) -> Revisions:
    """What each revision was when it first ran in this home."""
    return Revisions(home.path / "revisions")


def prepare(launch: Launch, home: Home) -> Prepared:
    """The directory to run in: a new one, or with `resume` the newest unfinished one of this very spec and seed.

    A resumed run that had ended already is handed back as `finished`; where none was started a new one is made, so that
    `--resume` may be repeated until it is done. Raises StorageError, BusyError.
    """
    spec = launch.loaded.spec
    stem = run_stem(spec)
    notes: list[str] = []
    if launch.resume:
        unfinished = home.newest_unfinished(stem)
        if unfinished is not None:
            return Prepared(run=unfinished)
        if (newest := _newest(home, stem)) is not None:
            return Prepared(run=newest, finished=True, notes=(f"{newest.id} had ended already: nothing to resume",))
        notes.append(f"no run of {stem} to resume: starting a new one")
    source = source_of(spec, home)
    recorded = revisions_of(home).recorded_as(launch.loaded)
    if recorded.changed:
        first = f"{spec.name}@{spec.revision}"
        notes.append(
            f"{spec.name} has changed since it first ran as {first}: recorded as {recorded.label}; "
            f"raise its revision, or run {first} for the first one"
        )
    run = home.create_run(stem)
    identity = {
        "experiment": spec.name,
        "revision": spec.revision,
        "recorded_as": recorded.label,
        "spec_sha": spec_sha(spec),
        "profile": spec.profile,
        "seed": spec.seed,
        "overrides": list(launch.overrides),
        **({} if source is None else {"init_from": source}),
    }
    provenance.start(run, identity)
    replace_text(run.spec, dump(spec))  # last: a directory with a spec is a run
    return Prepared(run=run, notes=tuple(notes))


def identity_of(run: RunDir) -> dict[str, object]:
    """What a run is: experiment, revision, recorded_as, spec_sha, profile, seed. Raises NotFoundError, StorageError."""
    document = read_json(run.provenance)
    keys = ("experiment", "revision", "recorded_as", "spec_sha", "profile", "seed")
    if document is None or not document.keys() >= set(keys):
        raise NotFoundError(f"{run.provenance} does not say what the run is; without it the run cannot go on")
    return {**{key: document[key] for key in keys}, "overrides": document.get("overrides", [])}


def _newest(home: Home, stem: str) -> RunDir | None:
    """The newest finished run of the stem."""
    runs = [run for run in home.runs() if run.id.rpartition("-")[0] == stem]
    ended = [run for run in runs if (record := status.read(run.status)) is not None and record.status.ended]
    return ended[0] if ended else None
