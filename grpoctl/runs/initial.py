"""Which run and which checkpoint `init_from` means. The run is fixed when this one is prepared, not on resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.config import RunSpec
from core.errors import CheckpointError, NotFoundError
from grpoctl.files import read_json
from grpoctl.runs.listing import summary
from grpoctl.runs.run_dir import Home, RunDir

if TYPE_CHECKING:
    from core.training.checkpoint import Snapshot


def source_of(spec: RunSpec, home: Home) -> str | None:
    """The directory of the run that `init_from` names (id, its beginning, experiment, or directory), or None.

    Of an experiment it is the newest run that has a checkpoint.

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
    of_name = [one for one in home.runs() if summary(one).get("experiment") == spec.init_from.lower()]
    older = next((one for one in of_name if _has_checkpoint(one)), None)
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
