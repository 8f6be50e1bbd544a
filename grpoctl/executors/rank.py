"""One of a run's other processes: `python -P -m grpoctl.executors.rank RUN RANK SIZE FOLDER THREADS`.

It runs the same trainer as rank 0 and writes nothing: no row, no checkpoint, no status. Its stdin says which checkpoint
to start from, then nothing more; when it ends, so does this process. What is not here: starting it (ranks).
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from core.errors import GrpoError
from grpoctl.config import read_resolved
from grpoctl.files import read_rows
from grpoctl.runs.run_dir import RunDir


class Silent:
    """The observer of a rank that is not the first."""

    def step_done(
        self,
        row: Mapping[str, float | None],
        samples: Sequence[Mapping[str, object]],
        timings: Mapping[str, float],
    ) -> None:
        """Rank 0 records it."""


def work(run: RunDir, rank: int, size: int, folder: Path, step: int) -> None:
    """Everything rank 0 computes, on this rank's share; returns when the run has ended."""
    from core.assemble import assemble, open_checkpoints
    from core.training.callbacks import Checkpointing, Watching
    from core.training.parallel import Machine, World, joined_ranks, same_start
    from core.training.trainer import drive
    from grpoctl.executors.control import asked_together
    from grpoctl.runs.launch import initial_snapshot

    spec = read_resolved(run.spec)
    checkpoints = open_checkpoints(spec, run.checkpoints)
    restart = None if step < 0 else checkpoints.load(step)
    initial = initial_snapshot(spec, run)[0] if restart is None else None
    joined: list[World] = []
    trainer = assemble(
        spec,
        checkpoints,
        restart=restart,
        table=read_rows(run.metrics),
        initial=None if initial is None else initial.weights,
        control=asked_together(lambda _: None, joined),
    )
    with closing(trainer.task):
        pass  # rank 0 asks for rewards: what was started here to check them (a judge's model, perhaps) is ended again
    trainer.callbacks = [
        callback for callback in trainer.callbacks if not isinstance(callback, (Checkpointing, Watching))
    ]
    (folder / f"ready-{rank}").touch()
    with joined_ranks(rank, size, folder / "meeting") as world:
        joined.append(world)
        same_start(trainer.policy, world)
        drive(trainer.steps(), Silent(), Machine(world=world))
        # Rank 0 still writes: whoever left now would look dead to it.
        threading.Event().wait()


def main(argv: list[str]) -> int:
    """The exit code of a rank that failed: one that did not is ended by rank 0's hanging up."""
    run, (rank, size), folder = RunDir(path=Path(argv[1])), map(int, argv[2:4]), Path(argv[4])
    pipe = sys.stdin.buffer
    said = pipe.readline()
    if not said:
        return 0
    threading.Thread(target=_end_with, args=(pipe.fileno(),), daemon=True).start()
    import torch

    torch.set_num_threads(int(argv[5]))
    try:
        work(run, rank, size, folder, int(json.loads(said)["step"]))
    except GrpoError as error:
        print(f"error: {error}", file=sys.stderr)
    return 3


def _end_with(descriptor: int) -> None:
    """End this process, whatever it is at, when rank 0 hangs up or is gone."""
    while os.read(descriptor, 1 << 12):
        pass
    os._exit(0)


if __name__ == "__main__":
    code = main(sys.argv)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
