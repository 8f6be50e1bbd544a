"""The deciding experiment of a diagnosis as a spec of the user's own, checked before it is written.

What is here: which experiment it extends, and where each setting stands. What is not: the file's text (proposed), and
which experiment would decide (the rules).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.config import GrpoStage
from core.config.run import check_fit
from core.errors import SpecError, UserError
from core.health.case import OF_STAGE
from core.tasks import registry
from grpoctl.config import Library, load, plain
from grpoctl.config.authored import Authored, read_authored
from grpoctl.config.layers import Layer, leaves
from grpoctl.config.loading import resolve
from grpoctl.config.new_file import create, new_file
from grpoctl.config.overrides import override_layer
from grpoctl.diagnose import rerun
from grpoctl.diagnose.diagnosis import Diagnosis
from grpoctl.diagnose.proposed import Proposal, text_of
from grpoctl.diagnose.qualified import qualified

FOREIGN_BASE, OF_UNKNOWN_K = "p30-sound", "p31"  # what a foreign log does not say is as there; the second has K=8


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposed:
    """The experiment that was written. `profile`: the one to name; None where `auto` will do."""

    name: str
    file: Path
    finding: str
    profile: str | None

    @property
    def command(self) -> str:
        """What runs it."""
        return f"grpoctl run {self.name}{'' if self.profile is None else f' -p {self.profile}'}"


def propose(diagnosis: Diagnosis, name: str, library: Library | None = None) -> Proposed:
    """Write ./experiments/NAME.yaml: the run's settings, changed as the first finding with a decider asks.

    Raises UserError (no such finding, a name that is taken or no name, a base experiment that is gone, settings that
    make no run) and StorageError. Nothing is left behind then.
    """
    library = library or Library()
    found = rerun.deciding(diagnosis)
    if found is None:
        raise UserError(f"no finding of {diagnosis.read.source} has an experiment that decides it; nothing is written")
    file = new_file(name, library)
    base = _base(diagnosis, library)
    finding, decider = found
    profile = _profile(diagnosis, base)
    tree = rerun.tree_of(base, profile)
    asked = rerun.deciding_overrides(diagnosis.read, decider)
    overrides = qualified(asked, tree, diagnosis.read.case.settings.stage)
    proposal = Proposal(
        name=name,
        base=base.file.stem.lower(),
        source=diagnosis.read.source,
        finding=finding,
        decider=decider,
        foreign=rerun.base_name(diagnosis.read) is None,
        profile=profile,
        own=_own(diagnosis, base, tree, overrides),
        changes=_keys(overrides, tree),
    )
    proposal = replace(proposal, elsewhere=_elsewhere(base, proposal))
    create(file, _settled(proposal, base, library))
    return Proposed(name=name, file=file, finding=finding.id, profile=proposal.under)


def _base(diagnosis: Diagnosis, library: Library) -> Authored:
    """The experiment the run was of, as it is today; for a foreign log the one that stands for it."""
    foreign = OF_UNKNOWN_K if diagnosis.read.case.settings.num_generations is None else FOREIGN_BASE
    base = rerun.base_name(diagnosis.read) or foreign
    if base.lower() not in library.files():
        raise UserError(f"the run's experiment {base} is neither in ./experiments nor shipped; put it back first")
    return read_authored(library.find(base), library)


def _profile(diagnosis: Diagnosis, base: Authored) -> str | None:
    profile = rerun.profile_of(diagnosis.read)
    if profile is not None and profile not in base.profiles:
        raise UserError(f"the run's profile {profile} is not one of {base.file.stem} any more; put it back first")
    return profile


def _elsewhere(base: Authored, proposal: Proposal) -> tuple[str, ...]:
    """The profiles that would undo what decides: they set it themselves, and are not the run's."""
    others = [name for name in base.profiles[1:] if name != proposal.profile]
    return tuple(name for name in others if _scaled(base, name) & proposal.changes.keys())


def _own(
    diagnosis: Diagnosis, base: Authored, tree: Mapping[str, object], changed: Sequence[str]
) -> Mapping[str, object]:
    """What the run departs from the base by: the overrides it was started with, or what a foreign log says of it."""
    if rerun.base_name(diagnosis.read) is not None:
        return _keys(rerun.started_with(diagnosis.read, changed), tree)
    known = {name: value for name, value in diagnosis.settings.items() if name in OF_STAGE or name in _of_stage()}
    texts = {OF_STAGE.get(name, name).removesuffix(".start"): value for name, value in known.items()}
    own = {f"stages.grpo.{key}": value for key, value in texts.items()}
    there = leaves(plain(resolve(base).spec))
    anew = _keys(changed, tree)
    return {key: value for key, value in own.items() if key not in anew and _start(there.get(key)) != value}


def _start(value: object) -> object:
    """A setting as a log knows it: where a schedule starts."""
    return value["start"] if isinstance(value, Mapping) else value


def _of_stage() -> set[str]:
    """The settings of a GRPO stage that are a number or a word; two parts are known only as yes or no."""
    return set(GrpoStage.model_fields) - {"dynamic_sampling", "overlong"}


def _keys(overrides: Sequence[str], tree: Mapping[str, object]) -> dict[str, object]:
    """The overrides as full dotted keys. Raises SpecError."""
    return leaves(override_layer(overrides, tree).tree) if overrides else {}


def _settled(proposal: Proposal, base: Authored, library: Library) -> str:
    """The text, which has been loaded under every profile; what a foreign log says and a spec cannot hold is left out.

    Raises UserError where the deciding settings themselves make no run.
    """
    scaled = _scaled(base, proposal.profile)
    with tempfile.TemporaryDirectory(prefix="grpoctl-") as folder:
        draft = _Draft(file=Path(folder) / f"{proposal.name}.yaml", library=library, scaled=scaled)
        try:
            return draft.text_that_loads(proposal)
        except SpecError as error:
            if not proposal.foreign or not proposal.own:
                raise UserError(f"the deciding experiment makes no run on top of {proposal.base}: {error}") from None
        kept: dict[str, object] = {}
        for key, value in proposal.own.items():
            with suppress(SpecError):
                draft.text_that_loads(proposal.with_own({**kept, key: value}))
                kept[key] = value
        left_out = tuple(key for key in proposal.own if key not in kept)
        try:
            return draft.text_that_loads(proposal.with_own(kept, left_out))
        except SpecError as error:
            raise UserError(f"the deciding experiment makes no run on top of {proposal.base}: {error}") from None


def _scaled(base: Authored, profile: str | None) -> frozenset[str]:
    """The keys that the run's profile sets: there they are scaled, so a change of them belongs there."""
    layer: Layer | None = None if profile is None else base.profile(profile)
    return frozenset() if layer is None else frozenset(leaves(layer.tree))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Draft:
    """The new spec in a folder that nobody sees, where it can be loaded."""

    file: Path
    library: Library
    scaled: frozenset[str] = field(default_factory=frozenset)

    def text_that_loads(self, proposal: Proposal) -> str:
        """The text, less the profiles that make no run with these settings. Raises SpecError where the main one is."""
        text = text_of(proposal, self.scaled)
        self.file.write_text(text, encoding="utf-8")
        unsound = []
        for profile in load(self.file, library=self.library).profiles:
            try:
                spec = load(self.file, profile=profile, library=self.library).spec
                check_fit(spec)
                registry.build(spec.task)
            except SpecError:
                if profile in ("full", proposal.profile):
                    raise
                unsound.append(profile)
        return text_of(proposal, self.scaled, unsound)
