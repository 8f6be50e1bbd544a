"""Runs every point of a finite sweep at full budget with 20 seeds, and keeps the evaluation curves.

    python benchmarks/search/record.py [NAME ...] [--workers 2] [--seeds 20]

NAME is a sweep of `benchmarks/search/sweeps` (all of them where none is named), run under the profile that it lists.
Its record is `benchmarks/search/records/NAME.jsonl`: a first line with the points, then one line for each run. What is
there is not run again, so that the command can be ended and repeated. Runs of a seed that agree in all stages but the
last go on from the same end of those, which a worker computes once. `replay.py` replays searches on a record.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML

from grpoctl.config import Library, shipped_folder
from grpoctl.runs.prefixes import shas_of, surroundings
from grpoctl.sweeps.candidates import Candidates, points
from grpoctl.sweeps.loading import load_sweep
from grpoctl.sweeps.spec import SweepSpec

if TYPE_CHECKING:
    from core.training.checkpoint import Snapshot
    from core.training.trainer import Trainer

HERE = Path(__file__).parent
RECORDS = HERE / "records"
WORST = "COLLAPSED", "INVALID_ROLLOUT"  # endings that a sweep counts as its worst value


class Silent:
    """The observer of a run whose rows the trainer itself keeps."""

    def step_done(
        self,
        row: Mapping[str, float | None],
        samples: Sequence[Mapping[str, object]],
        timings: Mapping[str, float],
        evaluated: object = None,
    ) -> None:
        """Nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageEnd:
    """Where a run stood when all its stages but the last were over, and its rows up to there."""

    sha: str  # of all that led there
    snapshot: Snapshot
    rows: list[Mapping[str, float | None]]


_newest: list[StageEnd] = []  # of this process, at most one: the points of a seed come one after another


def names() -> list[str]:
    """The sweeps that can be recorded."""
    return sorted(path.stem for path in (HERE / "sweeps").glob("*.yaml"))


@cache
def candidates(name: str) -> Candidates:
    """The points of a sweep and the runs they stand for, under the one profile that its file lists."""
    experiments = Library(user=HERE / "experiments", shipped=shipped_folder())
    sweeps = Library(user=HERE / "sweeps", shipped=HERE / "sweeps", kind="sweep")
    (profile,) = YAML(typ="safe").load(HERE / "sweeps" / f"{name}.yaml")["profiles"]
    sweep = load_sweep(name, profile=profile, library=sweeps, experiments=experiments).spec
    return Candidates.of(sweep, library=experiments)


def recorded(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a record; one that was cut off is left out."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def run(name: str, point: int, seed: int) -> dict[str, Any]:
    """Train one point with one seed: how it ended, and [share of the budget, eval/reward] of each evaluation."""
    import torch

    from core.assemble import assemble, open_checkpoints
    from core.training.trainer import drive
    from grpoctl.sweeps.trial import yardstick

    torch.set_num_threads(1)
    known = candidates(name)
    params = points(known.sweep)[point]
    spec = known.loaded(params, known.overrides(params), seed=seed).spec
    began = time.process_time()
    sha = shas_of(spec, surroundings(spec, None)).get(len(spec.stages) - 1)
    start = next((end for end in _newest if end.sha == sha), None)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = open_checkpoints(spec, Path(folder))
        if start is None:
            trainer = assemble(spec, checkpoints)
        else:
            trainer = assemble(spec, checkpoints, restart=start.snapshot, table=start.rows)
            trainer.recalibrates = False  # it is the same machine
        trainer.callbacks = trainer.callbacks[:-1]  # no checkpoints: nobody resumes it
        if sha is not None and start is None:
            trainer.callbacks = [*trainer.callbacks, _keeping(trainer, sha)]
        ending = drive(trainer.steps(), Silent())
        trainer.task.close()
    measure = yardstick(known.sweep, spec)
    rows = [row for row in trainer.table if row.get("eval/reward") is not None]
    curve = [[round(measure.share(row), 4), round(float(row["eval/reward"] or 0.0), 5)] for row in rows]
    error = rows[-1].get("eval/reward_se")
    return {
        "point": point,
        "seed": seed,
        "status": str(ending.status),
        "se": None if error is None else round(error, 4),
        "seconds": round(time.process_time() - began, 2),
        "curve": curve,
    }


def _keeping(trainer: Trainer, sha: str) -> Any:
    """The callback that keeps where the run stands before its last stage."""
    from core.training.callbacks import Callback

    class Keeping(Callback):
        """Keeps it for the runs that come next in this process."""

        def after_stage(self, stages: int, snapshot: Callable[[], Snapshot]) -> None:
            if stages == len(trainer.spec.stages) - 1:
                _newest[:] = [StageEnd(sha=sha, snapshot=snapshot(), rows=list(trainer.table))]

    return Keeping()


def head(sweep: SweepSpec) -> dict[str, Any]:
    """The first line of a record."""
    known = candidates(sweep.name)
    spec = known.spec(points(sweep)[0])
    unit, amount = "steps", spec.max_steps
    if spec.budget is not None and spec.budget.completions:
        unit, amount = "completions", spec.budget.completions
    return {
        "sweep": sweep.name,
        "revision": sweep.revision,
        "title": sweep.title,
        "axes": {key: list(axis.values or ()) for key, axis in sweep.axes.items()},
        "points": points(sweep),
        "unit": unit,
        "budget": amount,
        "direction": sweep.direction,
        "worst": sweep.worst,
    }


def record(name: str, *, seeds: int, workers: int) -> None:
    """Run what the record of a sweep lacks."""
    path = RECORDS / f"{name}.jsonl"
    sweep = candidates(name).sweep
    expected = head(sweep)
    lines = list(recorded(path))
    if lines and lines[0] != json.loads(json.dumps(expected)):
        raise SystemExit(f"{path} is of another sweep than {name} is now; move it away")
    there = {(line["point"], line["seed"]) for line in lines[1:]}
    left = [(p, s) for s in sweep.seeds[:seeds] for p in range(len(points(sweep))) if (p, s) not in there]
    print(f"{name}: {len(there)} runs there, {len(left)} left", flush=True)
    with path.open("a", encoding="utf-8") as file, ProcessPoolExecutor(workers) as pool:
        if not lines:
            file.write(json.dumps(expected) + "\n")
        elif path.read_bytes()[-1:] != b"\n":
            file.write("\n")
        began = time.monotonic()
        for done, future in enumerate(as_completed([pool.submit(run, name, p, s) for p, s in left]), start=1):
            file.write(json.dumps(future.result(), allow_nan=False) + "\n")
            file.flush()
            if done % 48 == 0:
                rest = (time.monotonic() - began) / done * (len(left) - done)
                print(f"{name}: {done} of {len(left)}, {math.ceil(rest / 60)} min left", flush=True)


def main() -> None:
    """Record the sweeps that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=", ".join(names()))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    RECORDS.mkdir(exist_ok=True)
    for name in asked.names or names():
        record(name, seeds=asked.seeds, workers=asked.workers)


if __name__ == "__main__":
    main()
