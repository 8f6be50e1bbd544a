"""What a name on the command line means: a spec, a run, a study, or weights to draw from. Imports no torch.

`logs` and `stop` ask only for runs and studies: what weights need is imported where weights are meant.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from core.config import ModelSpec, RunSpec
from core.errors import AmbiguousNameError, NotFoundError, UnknownRunError, UserError
from core.models import precision
from grpoctl import console
from grpoctl.config import Library, sweep_library
from grpoctl.config.library import SUFFIX
from grpoctl.runs.run_dir import Home, RunDir, choose, of_experiment, path_of
from grpoctl.runs.study_dir import StudyDir, choose_study, find_study, studies
from grpoctl.sweeps.loading import kinds_of

if TYPE_CHECKING:
    from core.policies.base import Policy
    from core.policies.lm.causal_lm import CausalLMPolicy
    from grpoctl.exports.weights import Exported

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_MODELS = "a model is builtin:tiny, small, a folder, a .gguf file or a hub id (org/name)"


def spec_or_run(home: Home, name: str) -> Literal["experiment", "sweep"] | RunDir | StudyDir:
    """The kind of spec that the name is of, else the run or study. An experiment comes before a sweep.

    Raises NotFoundError where it is nothing, or fits several.
    """
    path = path_of(name)
    if not RunDir(path=path).spec.is_file() and not StudyDir(path=path).spec.is_file():
        if name.lower().endswith(SUFFIX) or "@" in name:
            return "experiment" if "experiment" in kinds_of(name) else "sweep"
        if name.lower() in Library().files():
            return "experiment"
        if name.lower() in sweep_library().files():
            return "sweep"
    try:
        return run_or_study(home, name)
    except UnknownRunError as error:
        raise NotFoundError(f"no experiment, sweep or run {name!r}; grpoctl ls shows what there is") from error


def run_or_study(home: Home, name: str, *, running_first: bool = False, begun: bool = False) -> RunDir | StudyDir:
    """The run, else the study, else the run inside a study, that the name means as `find` and `find_study` have it.

    With `running_first`, of several that a name may mean those under way come before those that have ended; with
    `begun`, an experiment's newest run that has recorded a step.
    Raises UnknownRunError, and AmbiguousNameError naming what fits where several do.
    """
    if running_first and (under_way := _held(home, name)) is not None:
        return under_way
    try:
        return home.find(name, begun=begun)
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
    several = next((error for error in (no_run, no_study) if isinstance(error, AmbiguousNameError)), None)
    raise several or UnknownRunError(f"no run and no study {name!r} in {home.path}; grpoctl ls shows what there is")


def _held(home: Home, name: str) -> RunDir | StudyDir | None:
    """The held run, else the held study, that the name means among those; None for an id or a directory."""
    runs, known_studies = home.runs(), studies(home)
    if "/" in name or any(name.lower() == entry.id for entry in (*runs, *known_studies)):
        return None
    with suppress(NotFoundError):
        return choose(name, [run for run in runs if run.is_held()], home.path)
    with suppress(NotFoundError):
        return choose_study(name, [study for study in known_studies if study.is_held()], home)
    return None


def print_choice(home: Home, name: str, chosen: RunDir | StudyDir) -> None:
    """Note which of several runs and studies a name was taken for; nothing where it fits one, or is a directory."""
    runs = home.runs()
    own: list[RunDir | StudyDir] = [*of_experiment(name.lower(), runs)]
    matches = own if chosen in own else [one for one in (*runs, *studies(home)) if one.id.startswith(name.lower())]
    if len(matches) > 1 and name.lower() != chosen.id:
        newest = "the newest" if chosen == matches[0] else "the newest that has weights"
        under_way = any(entry.is_held() for entry in matches)
        reason = "it is running" if chosen.is_held() else newest if under_way else f"{newest}, none is running"
        console.print_note(f"{name} matches {len(matches)}; using {chosen.id} ({reason})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
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

        export = self.exported
        assert export is not None
        policy, _ = registry.build(export.spec)
        if export.kept and export.step is not None:
            policy.load(open_checkpoints(export.spec, export.folder.parent).load(export.step).weights)
        else:
            policy.load(read_weights(export.folder / WEIGHTS))
        return policy

    def language_model(self, model: ModelSpec) -> CausalLMPolicy:
        """The weights of a language model, loaded as `model` says. Raises ModelError, CheckpointError."""
        from core.assemble import open_checkpoints
        from core.policies.lm.build import build_kept, build_sampler

        export = self.exported
        if export is not None and export.kept and export.step is not None:
            return build_kept(model, open_checkpoints(export.spec, export.folder.parent).load(export.step).weights)
        return build_sampler(model, self.adapter if export is None else export.adapter)


def find_weights(home: Home, name: str, *, running_first: bool = False) -> Weights:
    """The weights of a name: a run's directory, a known model's name, a model's folder or file, a run (id, its
    beginning, experiment), a hub id; the first that fits. `running_first`: as for `exported_run`.

    Raises NotFoundError where it is nothing of these, UserError where it is no model.
    """
    from core.models.catalogue import resolve_alias

    path = path_of(name)
    if not RunDir(path=path).spec.is_file():
        if (source := resolve_alias(name)) != name or name.startswith("builtin:"):
            return Weights(name=name, source=source, root=source)
        if (weights := _weights_at(name, path)) is not None:
            return weights
    try:
        exported = exported_run(home, name, running_first=running_first)
    except UnknownRunError as error:
        _check_no_policys(name, path)
        if _HUB_ID.fullmatch(name):
            return Weights(name=name, source=name, root=name)
        raise NotFoundError(f"no run and no model {name!r}; {_MODELS}, grpoctl ls shows the runs") from error
    return Weights(name=exported.run.id, source=exported.spec.starts_from, exported=exported)


def checkpoint_weights(home: Home, name: str, step: int) -> Weights:
    """The weights of a run's checkpoint. Raises NotFoundError, with the steps that were kept; UserError for a model."""
    from grpoctl.exports.weights import kept

    try:
        run = run_of(home, name)
    except UnknownRunError as error:
        raise UserError(f"got --step {step}, but {name} is no run: only a run keeps weights of its steps") from error
    export = kept(run, step)
    return Weights(name=run.id, source=export.spec.starts_from, exported=export)


def exported_run(home: Home, name: str, *, running_first: bool = False) -> Exported:
    """The exported weights of a run; with `running_first`, of one under way those of its newest checkpoint.

    Raises NotFoundError, and UserError where the name means a sweep.
    """
    from grpoctl.exports.weights import find_exported, newest_kept

    run = run_of(home, name, running_first=running_first)
    if running_first and run.is_held() and (newest := newest_kept(run)) is not None:
        return newest
    return find_exported(home, run, name)


def run_of(home: Home, name: str, *, running_first: bool = False) -> RunDir:
    """The run that the name means, for commands that take no study. Raises NotFoundError, and UserError for a study."""
    entry = run_or_study(home, name, running_first=running_first)
    if isinstance(entry, StudyDir):
        raise UserError(f"{entry.id} is a sweep; name one of its runs, for instance {entry.run(0, 0).id}")
    return entry


def _weights_at(name: str, path: Path) -> Weights | None:
    """A model's or adapter's folder, or a file; None where the name may mean something else."""
    from grpoctl.exports.weights import noted_source

    if path.is_file() and not path.name.lower().endswith(".gguf"):
        raise UserError(f"{name} is a file and no .gguf; {_MODELS}")
    if (path / "adapter_config.json").is_file():
        from core.models.adapters import base_model_of

        source = noted_source(path) or base_model_of(path)
        return Weights(name=name, source=source, adapter=path.resolve(), root=source)
    if (path / "config.json").is_file() or path.is_file():
        return Weights(name=name, source=str(path.resolve()), root=noted_source(path))
    if not name.startswith((".", "/", "~")) and not name.lower().endswith(".gguf"):
        return None
    if path.is_dir():
        _check_no_policys(name, path)
        raise UserError(f"{name} holds neither a run nor a model: no spec.yaml, config.json or adapter_config.json")
    raise NotFoundError(f"there is no {name}; {_MODELS}")


def _check_no_policys(name: str, path: Path) -> None:
    """Raises UserError where a folder has the exported weights of a policy that is no language model."""
    from grpoctl.exports.weights import noted_run

    if (run := noted_run(path)) is not None:
        what = f"{name} holds weights of {run}, whose policy is no language model"
        raise UserError(f"{what}: they are read with that run's spec only; name the run itself, {run}")
