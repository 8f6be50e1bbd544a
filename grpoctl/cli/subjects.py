"""What `grpoctl eval` and `grpoctl sample` are asked about: a run's exported weights, or a model. Imports no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.config import ModelSpec, RunSpec
from core.errors import NotFoundError, UserError
from core.models import precision
from grpoctl.cli.places import run_or_study
from grpoctl.exports.weights import Exported, find_exported, kept, newest_kept, noted_source
from grpoctl.runs.run_dir import Home, RunDir, path_of
from grpoctl.runs.study_dir import StudyDir

if TYPE_CHECKING:
    from core.policies.base import Policy
    from core.policies.lm.causal_lm import CausalLMPolicy

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_SORTS = "a model is builtin:tiny, small, a folder, a .gguf file or a hub id (org/name)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """Weights to draw from: those of a run (`exported`), or of `source`, under the adapter of a folder where given.

    `root` is the model they started from, where that is known.
    """

    name: str
    source: str
    adapter: Path | None = None
    exported: Exported | None = None
    root: str | None = None

    @property
    def run_id(self) -> str | None:
        """The run whose weights these are."""
        return None if self.exported is None else self.exported.run.id

    @property
    def spec(self) -> RunSpec | None:
        """The spec of that run."""
        return None if self.exported is None else self.exported.spec

    def model(self, like: ModelSpec) -> ModelSpec:
        """The model to load, as `like` loads its own; of a run, `like` is what the run's own spec says.

        A model that is no run's takes a revision only where `like` is of that very model, and is never in 4 bits.
        """
        if self.exported is not None:
            return self.exported.model(like)
        revision = like.revision if like.source == self.source else None
        # The dtype before the adapter is left out: nothing is trained here that would need float32.
        like = precision.resolve_dtype(like.model_copy(update={"source": self.source, "revision": revision}))
        own = {"lora": None, "trainable": None}
        return like.model_copy(update={**own, "load_in_4bit": "never", "gradient_checkpointing": False})

    def trained(self) -> Policy:
        """The run's policy, of whatever kind, with its exported or kept weights. Raises ModelError, CheckpointError."""
        from core.assemble import open_checkpoints
        from core.policies import registry
        from core.policies.base import WEIGHTS, read_weights

        of = self.exported
        assert of is not None
        policy, _ = registry.build(of.spec)
        if of.kept and of.step is not None:
            policy.load(open_checkpoints(of.spec, of.folder.parent).load(of.step).weights)
        else:
            policy.load(read_weights(of.folder / WEIGHTS))
        return policy

    def language_model(self, model: ModelSpec) -> CausalLMPolicy:
        """The weights of a language model, loaded as `model` says. Raises ModelError, CheckpointError."""
        from core.assemble import open_checkpoints
        from core.policies.lm.build import build_kept, build_sampler

        of = self.exported
        if of is not None and of.kept and of.step is not None:
            return build_kept(model, open_checkpoints(of.spec, of.folder.parent).load(of.step).weights)
        adapter = self.adapter if self.exported is None else self.exported.adapter
        return build_sampler(model, adapter)


def subject(home: Home, name: str, *, running_first: bool = False) -> Subject:
    """What the name means: a run's directory, a known model's name, a folder or file of a model, a run (id, its
    beginning, experiment), a hub id; the first that fits. `running_first`: as for `exported_run`.

    Raises NotFoundError where it is nothing of these, UserError where it is no model.
    """
    from core.models.catalogue import resolve_alias

    path = path_of(name)
    if not RunDir(path=path).spec.is_file():
        if (source := resolve_alias(name)) != name or name.startswith("builtin:"):
            return Subject(name=name, source=source, root=source)
        if (found := _of_path(name, path)) is not None:
            return found
    try:
        exported = exported_run(home, name, running_first=running_first)
    except NotFoundError as error:
        if not str(error).startswith("no run and no study"):
            raise
        if _HUB_ID.fullmatch(name):
            return Subject(name=name, source=name, root=name)
        raise NotFoundError(f"no run and no model {name!r}; {_SORTS}, grpoctl ls shows the runs") from error
    return Subject(name=exported.run.id, source=exported.spec.starts_from, exported=exported)


def checkpoint_of(home: Home, name: str, step: int) -> Subject:
    """The weights of a run's checkpoint. Raises NotFoundError, with the steps that were kept; UserError for a model."""
    try:
        found = run_or_study(home, name)
    except NotFoundError as error:
        if not str(error).startswith("no run and no study"):
            raise
        raise UserError(f"got --step {step}, but {name} is no run: only a run keeps weights of its steps") from error
    if isinstance(found, StudyDir):
        raise UserError(f"{found.id} is a sweep; name one of its runs, for instance {found.run(0, 0).id}")
    weights = kept(found, step)
    return Subject(name=found.id, source=weights.spec.starts_from, exported=weights)


def exported_run(home: Home, name: str, *, running_first: bool = False) -> Exported:
    """The exported weights of a run; with `running_first`, of one under way those of its newest checkpoint.

    Raises NotFoundError, and UserError where the name means a sweep.
    """
    found = run_or_study(home, name, running_first=running_first)
    if isinstance(found, StudyDir):
        raise UserError(f"{found.id} is a sweep; name one of its runs, for instance {found.run(0, 0).id}")
    if running_first and found.is_held() and (newest := newest_kept(found)) is not None:
        return newest
    return find_exported(home, found, name)


def _of_path(name: str, path: Path) -> Subject | None:
    """A model's or adapter's folder, or a file; None where the name may mean something else."""
    meant = name.startswith((".", "/", "~")) or name.lower().endswith(".gguf")
    if path.is_file() and not path.name.lower().endswith(".gguf"):
        raise UserError(f"{name} is a file and no .gguf; {_SORTS}")
    if (path / "adapter_config.json").is_file():
        source = noted_source(path) or _base_of(path)
        return Subject(name=name, source=source, adapter=path.resolve(), root=source)
    if (path / "config.json").is_file() or path.is_file():
        return Subject(name=name, source=str(path.resolve()), root=noted_source(path))
    if not meant:
        return None
    if path.is_dir():
        raise UserError(f"{name} holds neither a run nor a model: no spec.yaml, config.json or adapter_config.json")
    raise NotFoundError(f"there is no {name}; {_SORTS}")


def _base_of(folder: Path) -> str:
    from core.models.adapters import base_model_of

    return base_model_of(folder)
