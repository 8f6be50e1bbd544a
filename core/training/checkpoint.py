"""Checkpoints on disk: atomic, checksummed, versioned; safetensors and JSON, so that no pickle is ever loaded.

    checkpoints/step-000040/   weights.safetensors  optimizer.safetensors  state.json (version, step, best, checksums)

A folder is complete or not there: it is written under another name, synced and renamed. Where it is written, and who
may still rename it, is for the caller to say (`Drafts`).

Also here: starting from another run's weights. What fits is taken, what does not is counted, never ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from core.errors import CheckpointError, StorageError
from core.policies.base import Policy

VERSION = 2
_WEIGHTS, _OPTIMIZER, _STATE = "weights.safetensors", "optimizer.safetensors", "state.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a run is. Everything else that a step depends on follows from this, the weights, the spec and the rows.

    `stage` counts the stages that are over; `stage_step` and `stage_updates` count inside the stage, `prompts` the
    training prompts drawn so far. `carried` are the numbers a stage hands from step to step (running statistics,
    an adaptive weight); a stage starts with none. `begun` has, for each stage that has begun, the held-out reward of
    each prompt where it began (None for one without): what its gain is measured against, prompt by prompt.
    """

    step: int = 0
    updates: int = 0
    completions: int = 0
    best_step: int | None = None
    best_value: float | None = None
    stage: int = 0
    stage_step: int = 0
    stage_updates: int = 0
    prompts: int = 0
    carried: Mapping[str, float] = field(default_factory=dict)
    begun: Mapping[str, Sequence[float | None]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """What a checkpoint holds."""

    progress: Progress
    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]


class Drafts(Protocol):
    """Where checkpoints are written before they are one, and how they come and go.

    What a writer may no longer do raises the caller's own error, which passes through.
    """

    def place(self, target: Path) -> Path:
        """Where to write what will be `target`."""
        ...

    def adopt(self, draft: Path, target: Path) -> None:
        """Put it in its place, in one stroke. Raises OSError."""
        ...

    def remove(self, path: Path) -> None:
        """Take a checkpoint away, in one stroke as far as readers see. Raises OSError."""
        ...

    def check(self) -> None:
        """Raises where this writer may not write any more."""
        ...


class Beside:
    """The drafts of a folder that has one writer: they stand beside the checkpoints."""

    def place(self, target: Path) -> Path:
        """`writing-step-000040` for step-000040."""
        return target.with_name(f"writing-{target.name}")

    def adopt(self, draft: Path, target: Path) -> None:
        """Rename it."""
        draft.rename(target)

    def remove(self, path: Path) -> None:
        """Delete it."""
        shutil.rmtree(path, ignore_errors=True)

    def check(self) -> None:
        """There is no other writer."""


class Checkpoints:
    """The checkpoints of one run: the last `keep` and the best one stay."""

    def __init__(self, folder: Path, keep: int, drafts: Drafts | None = None) -> None:
        self.folder = folder
        self._keep = keep
        self._drafts = drafts or Beside()

    def save(self, snapshot: Snapshot) -> Path:
        """Write a checkpoint and drop those no longer kept. Raises StorageError where the disk refuses."""
        target = self.path(snapshot.progress.step)
        work = self._drafts.place(target)
        self._drafts.check()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            save_file(dict(snapshot.weights), work / _WEIGHTS)
            save_file(dict(snapshot.optimizer), work / _OPTIMIZER)
            progress = asdict(snapshot.progress)
            state = {"version": VERSION, "progress": progress, "sha256": _checksums(work, progress)}
            (work / _STATE).write_text(json.dumps(state, indent=1))
            for name in (_WEIGHTS, _OPTIMIZER, _STATE):
                (work / name).chmod((work / _STATE).stat().st_mode)  # safetensors' files are for their maker alone
                _sync(work / name)
            if target.exists():
                self._drafts.remove(target)
            self._drafts.adopt(work, target)
            _sync(self.folder)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(work, ignore_errors=True)
            self._drafts.check()  # the draft may be gone because the right to write is
            raise StorageError(
                f"cannot write checkpoint {target}: {_reason(error)}; free some space, then --resume"
            ) from error
        self._retain(snapshot.progress)
        return target

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is, or would be."""
        return self.folder / f"step-{step:06d}"

    def steps(self) -> list[int]:
        """Steps that have a checkpoint folder, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(int(path.name[5:]) for path in self.folder.glob("step-*") if path.name[5:].isdigit())

    def load(self, step: int) -> Snapshot:
        """The checkpoint of a step. Raises CheckpointError naming it where it is damaged or of another version."""
        folder = self.path(step)
        try:
            state = json.loads((folder / _STATE).read_text())
            if state.get("version") != VERSION:
                raise CheckpointError(
                    f"checkpoint {folder} has version {state.get('version')!r}, this grpoctl reads {VERSION}"
                )
            for name, checksum in _checksums(folder, state["progress"]).items():
                if state["sha256"][name] != checksum:
                    raise CheckpointError(f"checkpoint {folder} is damaged: {name} does not match its checksum")
            return Snapshot(
                progress=Progress(**state["progress"]),
                weights=load_file(folder / _WEIGHTS),
                optimizer=load_file(folder / _OPTIMIZER),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise CheckpointError(f"checkpoint {folder} is damaged: {_reason(error)}") from error

    def newest_sound(self) -> tuple[Snapshot | None, list[str]]:
        """The newest checkpoint that is intact (None: start over), and a line for each damaged one passed over."""
        refused: list[str] = []
        for step in reversed(self.steps()):
            try:
                return self.load(step), refused
            except CheckpointError as error:
                refused.append(str(error))
        return None, refused

    def drop_after(self, step: int) -> None:
        """Remove checkpoints newer than the step a resumed run starts from, and what a killed writer left."""
        for stale in [*(self.path(s) for s in self.steps() if s > step), *self.folder.glob("writing-*")]:
            with suppress(OSError):
                self._drafts.remove(stale)

    def _retain(self, progress: Progress) -> None:
        last = [step for step in self.steps() if step <= progress.step][-self._keep :]
        for step in self.steps():
            if step not in last and step != progress.best_step:
                with suppress(OSError):
                    self._drafts.remove(self.path(step))


def _checksums(folder: Path, progress: Mapping[str, object]) -> dict[str, str]:
    """Of the tensor files as they lie on the disk, and of what state.json says of the progress."""
    progress_json = json.dumps(progress, sort_keys=True).encode()
    files = {name: _sha256(folder / name) for name in (_WEIGHTS, _OPTIMIZER)}
    return {**files, _STATE: hashlib.sha256(progress_json).hexdigest()}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: BaseException) -> Any:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


SHOWN = 4  # names of weights in a line


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """Names of another run's weights: those that fit, are missing there, have another shape, or are unknown here."""

    taken: Sequence[str]
    missing: Sequence[str]
    odd_shape: Sequence[str]
    unknown: Sequence[str]

    def lines(self) -> list[str]:
        """What did not fit, a line for each way, with the first names; [] where all did."""
        odd = {
            "not there": self.missing,
            "there in another shape": self.odd_shape,
            "there, but not in this model": self.unknown,
        }
        return [
            f"init_from: {len(names)} weights {why}: {', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''}"
            for why, names in odd.items()
            if names
        ]


def fit(mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> Fit:
    """How the weights of another run fit."""
    shared = sorted(set(mine) & set(theirs))
    return Fit(
        taken=[name for name in shared if mine[name].shape == theirs[name].shape],
        missing=sorted(set(mine) - set(theirs)),
        odd_shape=[name for name in shared if mine[name].shape != theirs[name].shape],
        unknown=sorted(set(theirs) - set(mine)),
    )


def initial_weights(policy: Policy, theirs: Mapping[str, Tensor]) -> dict[str, float]:
    """Load what fits; counts for the row before step 1. Raises CheckpointError where nothing fits."""
    mine = policy.state()
    match = fit(mine, theirs)
    if not match.taken:
        raise CheckpointError(
            f"init_from: none of the {len(theirs)} weights fits this model: {_why(match, mine, theirs)}"
        )
    policy.load({name: theirs[name] if name in set(match.taken) else value for name, value in mine.items()})
    return {
        "init/taken": len(match.taken),
        "init/missing": len(match.missing),
        "init/odd_shape": len(match.odd_shape),
        "init/unknown": len(match.unknown),
    }


def _why(match: Fit, mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> str:
    """What is different, by the first example."""
    if match.odd_shape:
        name = match.odd_shape[0]
        return f"{name!r} has the shape {tuple(theirs[name].shape)} there and {tuple(mine[name].shape)} here"
    return f"that run has {min(theirs, default='none')!r}, this one {min(mine, default='none')!r}"
