"""The weights that a run leaves: RUN/adapter and RUN/merged, copies of them elsewhere, and which weights a name means.

What is here: folders, whole or not there. What is not: the files in them (core.models.adapters) and the words about
them (model_card).
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from core.config import ModelSpec, RunSpec
from core.errors import NotFoundError, StorageError, UserError
from grpoctl.config import read_resolved
from grpoctl.exports.model_card import hub_id, model_card
from grpoctl.files import folder_in_place_of, read_json, replace_json, replace_text, storage_errors
from grpoctl.runs.listing import summary
from grpoctl.runs.run_dir import Home, RunDir

Format = Literal["peft", "transformers", "weights"]
NOTE = "grpoctl.json"  # in an exported folder: which run and step it is of
CARD = "README.md"
ADAPTER = "adapter_config.json"  # peft's


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """A run's exported weights, or what its checkpoint of a step `kept`. `step` is the step they are of."""

    run: RunDir
    folder: Path
    step: int | None
    spec: RunSpec
    kept: bool = False

    @property
    def format(self) -> Format:
        """`peft`: an adapter for the base model; `transformers`: a model of its own; `weights`: no language model's."""
        if self.spec.model is None:
            return "weights"
        return "peft" if self.spec.model.lora is not None else "transformers"

    @property
    def adapter(self) -> Path | None:
        """The adapter's folder; None where the weights are a model of their own, or a checkpoint's."""
        return self.folder if self.format == "peft" and not self.kept else None

    def model(self, base: ModelSpec | None = None) -> ModelSpec:
        """What is loaded: the base that the adapter or the checkpoint is for, else the folder itself; as `base` says,
        else as the run did.
        """
        base = base or self.spec.language_model
        if self.kept or self.format == "peft":
            return base
        own = {"source": str(self.folder), "revision": None, "trainable": None}
        return base.model_copy(update=own)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A folder to write into that takes the target's place at the end, or leaves nothing behind where that fails.

    Raises StorageError where the disk is full or read-only.
    """
    with folder_in_place_of(target) as draft:
        yield draft
        _set_modes(draft)


def _set_modes(folder: Path) -> None:
    """Give the files of a folder the mode that a new file gets here: those of safetensors are for their maker alone."""
    probe = folder / ".mode"
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(mode)


def note(folder: Path, run: RunDir, step: int | None) -> None:
    """Write which run and step the folder is of, and the model it started from, in an adapter's own settings too.

    Raises StorageError.
    """
    spec = read_resolved(run.spec)
    name = {"run_id": run.id, "experiment": spec.name, "profile": spec.profile, "step": step}
    source, model = spec.starts_from, spec.model
    public = model is None or source.startswith("builtin:") or hub_id(model) is not None  # a path may name its user
    replace_json(folder / NOTE, {"schema": 1, **name, "source": source if public else None})
    if (settings := read_json(folder / ADAPTER)) is not None:  # peft names what was loaded: a path in a cache
        base = {"base_model_name_or_path": source, "revision": None if model is None else model.revision}
        replace_json(folder / ADAPTER, {**settings, **base})


def noted_source(folder: Path) -> str | None:
    """The built-in model or hub id that the exported weights in a folder started from; None where it does not say."""
    try:
        source = (read_json(folder / NOTE) or {}).get("source")
    except StorageError:
        return None
    return source if isinstance(source, str) else None


def noted_run(folder: Path) -> str | None:
    """The id of the run that a folder's exported weights are of; None where it does not say."""
    try:
        run = (read_json(folder / NOTE) or {}).get("run_id")
    except StorageError:
        return None
    return run if isinstance(run, str) else None


def exported(run: RunDir) -> Exported | None:
    """What the run has exported; None where it has nothing."""
    export_note = read_json(run.adapter / NOTE) if run.adapter.is_dir() else None
    if export_note is None:
        return None
    step = export_note.get("step")
    return Exported(
        run=run, folder=run.adapter, step=step if isinstance(step, int) else None, spec=read_resolved(run.spec)
    )


def find_exported(home: Home, run: RunDir, name: str) -> Exported:
    """The weights of the run that `name` means; where it is an experiment's, those of its newest run that has some.

    Raises NotFoundError where there are none.
    """
    if (weights := exported(run)) is not None:
        return weights
    for other in home.runs():
        if summary(other).get("experiment") == name.lower() and (weights := exported(other)) is not None:
            return weights
    how = summary(run)["status"]
    instead = "wait until it ends" if how == "RUNNING" else "let it reach its end (grpoctl run ... --resume)"
    raise NotFoundError(f"{run.id} ({how}) has exported no weights; {instead}, or name another run")


def kept(run: RunDir, step: int) -> Exported:
    """The weights of the run's checkpoint of that step. Raises NotFoundError with the steps that were kept."""
    steps = _kept_steps(run)
    if step not in steps:
        there = f"it kept those of {', '.join(map(str, steps))}" if steps else "it kept none"
        more = "checkpoints.save_total_limit says how many are kept"
        raise NotFoundError(f"{run.id} has no checkpoint of step {step}; {there} ({more})")
    folder = run.checkpoints / f"step-{step:06d}"
    return Exported(run=run, folder=folder, step=step, spec=read_resolved(run.spec), kept=True)


def newest_kept(run: RunDir) -> Exported | None:
    """The weights of the newest checkpoint of a run under way, copied: the run itself drops it soon.

    None where it has none. The copy goes with this process. Raises StorageError where it cannot be written.
    """
    folder = Path(tempfile.mkdtemp(prefix="grpoctl-checkpoint-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    while steps := _kept_steps(run):
        checkpoint = kept(run, steps[-1])
        copy = folder / checkpoint.folder.name
        with storage_errors("copy", checkpoint.folder), suppress(FileNotFoundError):
            copy.mkdir()
            for file in checkpoint.folder.iterdir():
                shutil.copy2(file, copy / file.name)
            return replace(checkpoint, folder=copy)
        shutil.rmtree(copy, ignore_errors=True)  # dropped meanwhile: there is a newer one
    return None


def _kept_steps(run: RunDir) -> list[int]:
    return sorted(int(folder.name[5:]) for folder in run.checkpoints.glob("step-*") if folder.name[5:].isdigit())


def write_card(run: RunDir, folder: Path, *, merged: bool) -> None:
    """Write the model card of a language model's weights; other policies have none. Raises StorageError."""
    spec = read_resolved(run.spec)
    if spec.model is None:
        return
    result, provenance = read_json(run.result) or {}, read_json(run.provenance) or {}
    step = (read_json(folder / NOTE) or {}).get("step")
    card = model_card(spec, result, provenance, step=step, merged=merged)
    replace_text(folder / CARD, card)


def check_target(folder: Path) -> None:
    """Raises UserError where an export to this folder would touch something that is there."""
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} is there already; give a folder that is not, or an empty one")


def copy(weights: Exported, folder: Path) -> None:
    """The exported weights as they are, in another folder. Raises StorageError."""
    with whole_folder(folder) as draft:
        for file in sorted(weights.folder.rglob("*")):  # copytree's error is a list of its own, not the system's
            place = draft / file.relative_to(weights.folder)
            if file.is_dir():
                place.mkdir()
            else:
                shutil.copy2(file, place)


def merge(weights: Exported, folder: Path) -> None:
    """The adapter added into its base's weights, as a model of its own with tokenizer and card.

    Raises ModelError where the base is held in 4 bits or cannot be loaded, StorageError.
    """
    from core.policies.lm.build import write_merged

    with whole_folder(folder) as draft:
        write_merged(weights.spec.language_model, weights.folder, draft)
        note(draft, weights.run, weights.step)
        write_card(weights.run, draft, merged=True)
