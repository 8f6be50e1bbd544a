"""From a loaded spec to a run directory that is ready to be executed, new or resumed.

What is here: which directory, what stands in it before the first step, and which run and checkpoint `init_from` means.
What is not: training (grpoctl.executors).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.config import RunSpec
from core.errors import BusyError, CheckpointError, GrpoError, NotFoundError
from grpoctl.config import Loaded, Revisions, dump, read_resolved, run_stem, spec_sha
from grpoctl.files import move, read_json, read_rows, replace_text, storage_errors
from grpoctl.runs import provenance, status
from grpoctl.runs.listing import summary
from grpoctl.runs.problems import tidy
from grpoctl.runs.run_dir import Home, RunDir

if TYPE_CHECKING:
    from core.training.checkpoint import Snapshot


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
            tidy(newest)
            return Prepared(run=newest, finished=True, notes=(f"{newest.id} had ended already: nothing to resume",))
        notes.append(f"no run of {stem} to resume: starting a new one")
    notes += [f"{run.id} is under way with this very spec and seed: this one repeats it" for run in _held(home, stem)]
    source = source_of(spec, home)
    recorded = revisions_of(home).recorded_as(spec, launch.loaded.authored)
    if recorded.changed:
        first = f"{spec.name}@{spec.revision}"
        notes.append(
            f"{spec.name} has changed since it first ran as {first}: recorded as {recorded.label}; "
            f"raise its revision, or run {first} for the first one"
        )
    run = home.create_run(stem)
    _fill(run, spec, {"recorded_as": recorded.label, "overrides": list(launch.overrides)}, source)
    return Prepared(run=run, notes=tuple(notes))


def prepare_in(run: RunDir, loaded: Loaded, *, study: str, trial: int, overrides: Sequence[str]) -> str | None:
    """Make this directory of a study a run of this spec, which may be one already: then it is left alone.

    One that is damaged, or of another spec, is moved aside to `<name>.damaged-<k>` and made anew; gives a note that
    says so and why, else None. Raises StorageError, NotFoundError (`init_from`), BusyError where a process holds it.
    """
    damage = _damage(run, loaded.spec)
    if damage is None and run.spec.exists():
        return None
    if run.path.is_dir() and run.is_held(hung=True):
        raise BusyError(f"{run.id} is in use by another process; wait until it ends")
    source = source_of(loaded.spec, run.home)
    aside = None if damage is None else _move_aside(run.path)
    with storage_errors("create", run.path):
        run.path.mkdir(parents=True, exist_ok=True)
    label = revisions_of(run.home).recorded_as(loaded.spec, loaded.authored).label
    more = {"recorded_as": label, "overrides": list(overrides), "study": study, "trial": trial}
    _fill(run, loaded.spec, more, source)
    return None if aside is None else f"{run.id} was restarted: {damage}; the old directory is now {aside.name}"


def _damage(run: RunDir, spec: RunSpec) -> str | None:
    """Why a run cannot go on as a run of this spec; None where it can, or has hardly begun to be made."""
    if not os.path.lexists(run.path):
        return None
    try:
        if not run.spec.exists():
            empty = run.path.is_dir() and not any(path.exists() for path in (run.status, run.metrics, run.checkpoints))
            return None if empty else "it has no spec"
        if read_resolved(run.spec) != spec:
            return "its spec is not the trial's"
        if identity_of(run)["spec_sha"] != spec_sha(spec):
            return "its provenance is of another spec"
        status.read(run.status)
        read_json(run.result)
        for rows in (run.metrics, run.timings, run.samples):
            read_rows(rows)
    except GrpoError as error:
        return str(error)
    return None


def _move_aside(path: Path) -> Path:
    """Where the directory is now: the first `<name>.damaged-<k>` that was free."""
    taken = (path.with_name(f"{path.name}.damaged-{number}") for number in itertools.count(1))
    aside = next(free for free in taken if not os.path.lexists(free))
    move(path, aside)
    return aside


def _fill(run: RunDir, spec: RunSpec, more: Mapping[str, object], source: str | None) -> None:
    """Write what the run is, then its spec: a directory with a spec is a run."""
    identity = {
        "experiment": spec.name,
        "revision": spec.revision,
        "spec_sha": spec_sha(spec),
        "profile": spec.profile,
        "seed": spec.seed,
        **more,
        **({} if source is None else {"init_from": source}),
    }
    provenance.start(run, identity)
    replace_text(run.spec, dump(spec))


def identity_of(run: RunDir) -> dict[str, object]:
    """What a run is: experiment, revision, recorded_as, spec_sha, profile, seed. Raises NotFoundError, StorageError."""
    document = read_json(run.provenance)
    keys = ("experiment", "revision", "recorded_as", "spec_sha", "profile", "seed")
    if document is None or not document.keys() >= set(keys):
        raise NotFoundError(f"{run.provenance} does not say what the run is; without it the run cannot go on")
    return {**{key: document[key] for key in keys}, "overrides": document.get("overrides", [])}


def _held(home: Home, stem: str) -> list[RunDir]:
    """The run of the stem that a process trains now, the newest of several; [] where none is trained."""
    return [run for run in _runs_of(home, stem) if run.is_held()][:1]


def _runs_of(home: Home, stem: str) -> list[RunDir]:
    return [run for run in home.runs() if run.id.rpartition("-")[0] == stem]


def _newest(home: Home, stem: str) -> RunDir | None:
    """The newest finished run of the stem."""
    runs = _runs_of(home, stem)
    ended = [run for run in runs if (record := status.read(run.status)) is not None and record.status.ended]
    return ended[0] if ended else None


def source_of(spec: RunSpec, home: Home) -> str | None:
    """The directory of the run that `init_from` names (id, its beginning, experiment, or directory), or None.

    Of an experiment it is the newest run that has a checkpoint. It is fixed when a run is prepared, not on resume.
    Raises NotFoundError where there is no such run, or where it has no checkpoint.
    """
    if spec.init_from is None:
        return None
    try:
        run = home.find(spec.init_from)
    except NotFoundError as error:
        raise NotFoundError(f"init_from: {error}") from None
    if _has_checkpoint(run):
        return str(run.path)
    of_name = [other for other in home.runs() if summary(other).get("experiment") == spec.init_from.lower()]
    older = next((other for other in of_name if _has_checkpoint(other)), None)
    if older is None:
        raise NotFoundError(f"init_from: {run.id} has no checkpoint to start from; let it reach its first one")
    return str(older.path)


def _has_checkpoint(run: RunDir) -> bool:
    return any(run.checkpoints.glob("step-*"))


def initial_snapshot(spec: RunSpec, run: RunDir) -> tuple[Snapshot | None, str]:
    """The best checkpoint of the run fixed at the start, else its newest sound one, and a line that says which.

    Raises CheckpointError where none is sound.
    """
    from core.assemble import open_checkpoints

    if spec.init_from is None:
        return None, ""
    from_path = (read_json(run.provenance) or {}).get("init_from")
    source = run.home.find(str(from_path or spec.init_from))
    checkpoints = open_checkpoints(spec, source.checkpoints)
    newest, _ = checkpoints.newest_sound()
    if newest is None:
        raise CheckpointError(f"init_from: no checkpoint of {source.id} is intact")
    best = newest.progress.best_step
    chosen = checkpoints.load(best) if best in checkpoints.steps() else newest
    kind = "best" if chosen.progress.step == best else "newest"
    return chosen, f"starts from {source.id}, {kind} checkpoint, step {chosen.progress.step}"
