"""The deciding experiment of a diagnosis as a spec of the user's own, checked before it is written.

What is here: which experiment it extends, where each setting stands, and the file's text with the reason beside each
value. What is not: which experiment would decide (the rules).
"""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from core.config import GrpoStage
from core.config.run import check_fit
from core.errors import SpecError, UserError
from core.health.case import OF_STAGE
from core.health.finding import Decider, Finding
from core.tasks import registry
from grpoctl.config import Library, load, plain
from grpoctl.config.authored import Authored, read_authored
from grpoctl.config.layers import leaves
from grpoctl.config.loading import resolve
from grpoctl.config.new_file import COMMENT_WIDTH, commented, create, fact_lines, nested, new_file, one_line
from grpoctl.config.overrides import override_layer
from grpoctl.config.resolved import block_yaml
from grpoctl.diagnose import rerun
from grpoctl.diagnose.diagnosis import Diagnosis

FOREIGN_BASE, OF_UNKNOWN_K = "p30-sound", "p31"  # what a foreign log does not say is as there; the second has K=8
_LONGEST_TITLE = 100
_WITHOUT_GPU = "tiny"  # the profile that `auto` takes where there is no GPU; else full


@dataclass(frozen=True, kw_only=True, slots=True)
class NewExperiment:
    """The experiment that was written. `profile`: the one to name; None where `auto` will do."""

    name: str
    file: Path
    finding: str
    profile: str | None

    @property
    def command(self) -> str:
        """What runs it."""
        return f"grpoctl run {self.name}{'' if self.profile is None else f' -p {self.profile}'}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """What is to be written: `own` are the run's settings as dotted keys, `changes` the decider's."""

    name: str
    base: str
    source: str
    finding: Finding
    decider: Decider
    foreign: bool  # the run is not ours: model and task are the base's
    profile: str | None  # the run's
    scaled: frozenset[str]  # keys that the run's profile sets: there they are scaled, so a change of them belongs there
    own: Mapping[str, object]
    changes: Mapping[str, object]
    elsewhere: tuple[str, ...]  # profiles that set themselves what the decider changes
    left_out: tuple[str, ...] = ()  # settings of the run that a spec on this base cannot hold

    @property
    def under(self) -> str | None:
        """The profile to name when it is started; None where the one that a machine gets by itself will do."""
        return self.profile or ("full" if _WITHOUT_GPU in self.elsewhere else None)


def propose(diagnosis: Diagnosis, name: str, library: Library | None = None) -> NewExperiment:
    """Write ./experiments/NAME.yaml: the run's settings, changed as the first finding with a decider asks.

    Raises UserError (no such finding, a name that is taken or no name, a base experiment that is gone, settings that
    make no run) and StorageError. Nothing is left behind then.
    """
    library = library or Library()
    reading = diagnosis.reading
    deciding = rerun.deciding(diagnosis)
    if deciding is None:
        raise UserError(f"no finding of {reading.source} has an experiment that decides it; nothing is written")
    finding, decider = deciding
    file = new_file(name, library)
    base = _base(diagnosis, library)
    profile = rerun.profile_of(reading)
    if profile is not None and profile not in base.profiles:
        raise UserError(f"the run's profile {profile} is not one of {base.file.stem} any more; put it back first")
    tree = rerun.document_under(base, profile)
    overrides = rerun.qualified(rerun.deciding_overrides(reading, decider), tree, reading.case.settings.stage)
    changes = _full_keys(overrides, tree)
    proposal = Proposal(
        name=name,
        base=base.file.stem.lower(),
        source=reading.source,
        finding=finding,
        decider=decider,
        foreign=rerun.base_name(reading) is None,
        profile=profile,
        scaled=_keys_of(base, profile),
        own=_own_settings(diagnosis, base, tree, overrides),
        changes=changes,
        elsewhere=tuple(p for p in base.profiles[1:] if p != profile and _keys_of(base, p) & changes.keys()),
    )
    create(file, _loadable_text(proposal, library))
    return NewExperiment(name=name, file=file, finding=finding.id, profile=proposal.under)


def _base(diagnosis: Diagnosis, library: Library) -> Authored:
    """The experiment the run was of, as it is today; for a foreign log the one that stands for it."""
    foreign = OF_UNKNOWN_K if diagnosis.reading.case.settings.num_generations is None else FOREIGN_BASE
    base = rerun.base_name(diagnosis.reading) or foreign
    if base.lower() not in library.files():
        raise UserError(f"the run's experiment {base} is neither in ./experiments nor shipped; put it back first")
    return read_authored(library.find(base), library)


def _keys_of(base: Authored, profile: str | None) -> frozenset[str]:
    """The keys that a profile sets."""
    layer = None if profile is None else base.profile(profile)
    return frozenset() if layer is None else frozenset(leaves(layer.tree))


def _full_keys(overrides: Sequence[str], tree: Mapping[str, object]) -> dict[str, object]:
    """The overrides as full dotted keys. Raises SpecError."""
    return leaves(override_layer(overrides, tree).tree) if overrides else {}


def _own_settings(
    diagnosis: Diagnosis, base: Authored, tree: Mapping[str, object], changed: Sequence[str]
) -> Mapping[str, object]:
    """What the run departs from the base by: the overrides it was started with, or what a foreign log says of it."""
    if rerun.base_name(diagnosis.reading) is not None:
        return _full_keys(rerun.own_overrides(diagnosis.reading, changed), tree)
    # Of these two parts of a stage a log says only whether they are there.
    of_stage = set(GrpoStage.model_fields) - {"dynamic_sampling", "overlong"}
    known = {name: value for name, value in diagnosis.settings.items() if name in OF_STAGE or name in of_stage}
    own = {f"stages.grpo.{OF_STAGE.get(name, name).removesuffix('.start')}": value for name, value in known.items()}
    of_base = leaves(plain(resolve(base).spec))
    changes = _full_keys(changed, tree)

    def differs(key: str, value: object) -> bool:
        """Whether the base has another value; of a schedule a log knows where it starts."""
        there = of_base.get(key)
        return (there["start"] if isinstance(there, Mapping) else there) != value

    return {key: value for key, value in own.items() if key not in changes and differs(key, value)}


def _loadable_text(proposal: Proposal, library: Library) -> str:
    """The text, which has been loaded under every profile; what a foreign log says and a spec cannot hold is left out.

    Raises UserError where the deciding settings themselves make no run.
    """
    with tempfile.TemporaryDirectory(prefix="grpoctl-") as folder:  # nobody sees it there
        draft = Path(folder) / f"{proposal.name}.yaml"
        try:
            try:
                return _tried_text(proposal, draft, library)
            except SpecError:
                if not proposal.foreign or not proposal.own:
                    raise
            kept: dict[str, object] = {}
            for key, value in proposal.own.items():
                with suppress(SpecError):
                    _tried_text(replace(proposal, own={**kept, key: value}), draft, library)
                    kept[key] = value
            left_out = tuple(key for key in proposal.own if key not in kept)
            return _tried_text(replace(proposal, own=kept, left_out=left_out), draft, library)
        except SpecError as error:
            raise UserError(f"the deciding experiment makes no run on top of {proposal.base}: {error}") from None


def _tried_text(proposal: Proposal, draft: Path, library: Library) -> str:
    """The text, less the profiles that make no run with these settings. Raises SpecError where the main one is."""
    draft.write_text(_text(proposal), encoding="utf-8")
    unsound = []
    for profile in load(draft, library=library).profiles:
        try:
            spec = load(draft, profile=profile, library=library).spec
            check_fit(spec)
            registry.build(spec.task)
        except SpecError:
            if profile in ("full", proposal.profile):
                raise
            unsound.append(profile)
    return _text(proposal, unsound)


def _text(proposal: Proposal, dropped: Sequence[str] = ()) -> str:
    """The file. Settings that the run's profile scales stand there; `dropped` profiles are taken away."""
    settings = {**proposal.own, **proposal.changes}
    reasons = dict.fromkeys(proposal.own, "as in the run") | dict.fromkeys(proposal.changes, "what decides")
    of_profile = {key: value for key, value in settings.items() if key in proposal.scaled}
    of_spec = {key: value for key, value in settings.items() if key not in proposal.scaled}
    title = one_line(f"Decides {proposal.finding.id} of {proposal.source}")
    about = {
        "name": proposal.name,
        "revision": 1,
        "extends": proposal.base,
        "title": textwrap.shorten(title, _LONGEST_TITLE, placeholder="…"),
        "question": one_line(proposal.decider.question),
        "source": one_line(f"grpoctl diagnose {proposal.source}"),
    }
    lines = [*_header(proposal), *block_yaml(about).splitlines(), ""]
    lines += block_yaml({"expects": list(proposal.decider.expects)}).splitlines()
    lines += ["", *commented(nested(of_spec), "", reasons, 0)] if of_spec else []
    if of_profile or dropped:
        lines += ["", "profiles:"]
    if of_profile:
        lines += [f"  {proposal.profile}:", *commented(nested(of_profile), "", reasons, 2)]
    lines += [f"  {profile}: null  # {proposal.base}'s own does not fit these settings" for profile in dropped]
    return "\n".join(lines) + "\n"


def _header(proposal: Proposal) -> list[str]:
    """Comment lines: what it decides, from which finding, and what it cannot say."""
    finding, decider = proposal.finding, proposal.decider
    if proposal.profile is not None:
        under = f"profile {proposal.profile}, as the run was"
    elif proposal.elsewhere:
        under = f"any profile but {', '.join(proposal.elsewhere)}: there what decides is set otherwise"
    else:
        under = "any profile"
    facts = {
        "from": proposal.source,
        "finding": f"{finding.severity} {finding.id} ({finding.confidence}): {finding.summary}",
        "decides": decider.question,
        "if it is right": ", ".join(decider.expects) or "nothing that a metric could say",
        "run under": under,
    }
    if proposal.left_out:
        keys = ", ".join(proposal.left_out)
        facts["left out"] = f"{keys}: known of the run, but no setting that fits {proposal.base}"
    lines = ["Written by grpoctl diagnose --propose. Yours to change; raise the revision when you do.", ""]
    lines += fact_lines(facts, 16)
    if proposal.foreign:
        foreign = (
            f"Model and task are {proposal.base}'s: change them to your own before you run it. Its profiles scale some "
            "settings (a learning rate of a large model is none for a small one) and keep their own values of those."
        )
        lines += ["", *textwrap.wrap(foreign, COMMENT_WIDTH)]
    return [f"# {line}".rstrip() for line in lines]
