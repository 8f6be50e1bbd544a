"""The run once more: with which command it was started, and what to change in it. Pure but for reading the base spec.

A rule knows one stage's rows and sees no faults. So the short key that a rule writes (`learning_rate=1e-6`) means the
one of that stage, and where the experiment injects a fault on purpose, the deciding experiment runs without it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from core.errors import UserError
from core.health.finding import Decider, Finding
from grpoctl.config import Library, load
from grpoctl.config.authored import Authored, read_authored
from grpoctl.config.layers import Keys, dotted, merge
from grpoctl.config.schema import fields
from grpoctl.credentials import without_credentials
from grpoctl.diagnose.diagnosis import Diagnosis
from grpoctl.diagnose.readers.base import Reading

UNKNOWN = "NAME"  # stands for an experiment that a foreign log does not have
NO_FAULTS = "faults=[]"


def command(reading: Reading, overrides: Sequence[str]) -> str:
    """`grpoctl run p30 -p tiny num_generations=8`: the run once more with these settings, to be pasted into a shell."""
    changes = qualified(overrides, _current_document(reading), reading.case.settings.stage)
    profile = profile_of(reading)
    words = ["grpoctl", "run", base_name(reading) or UNKNOWN, *([] if profile is None else ["-p", profile])]
    return " ".join(shlex.quote(word) for word in [*words, *own_overrides(reading, changes), *changes])


def decider_command(reading: Reading, decider: Decider) -> str:
    """The command of the deciding experiment; empty where it is none that overrides could make."""
    return command(reading, deciding_overrides(reading, decider)) if decider.overrides else ""


def deciding_overrides(reading: Reading, decider: Decider) -> tuple[str, ...]:
    """The decider's overrides, and no injected fault where the run had one."""
    changes_faults = any(_key(text) == "faults" for text in decider.overrides)
    return (*decider.overrides, *([NO_FAULTS] if not changes_faults and _injects_faults(reading) else []))


def next_step(diagnosis: Diagnosis) -> tuple[str, str] | None:
    """The next command and what it does: runs the deciding experiment, or writes it where it is not written yet.

    None where no finding has one.
    """
    if diagnosis.proposed:
        return diagnosis.proposed, "runs the deciding experiment"
    if deciding(diagnosis) is None:
        return None
    source = shlex.quote(without_credentials(diagnosis.name))
    return f"grpoctl diagnose {source} --propose {UNKNOWN}", "writes the deciding experiment"


def deciding(diagnosis: Diagnosis) -> tuple[Finding, Decider] | None:
    """The first finding that an experiment would decide, and that experiment."""
    for finding in diagnosis.findings:
        if finding.decider is not None and finding.decider.overrides:
            return finding, finding.decider
    return None


def base_name(reading: Reading) -> str | None:
    """The experiment that the run was of, without its revision; None of a run that is not ours."""
    return None if reading.spec is None else reading.spec.partition("@")[0]


def profile_of(reading: Reading) -> str | None:
    """The profile it ran under; None where that is not known, or the spec as it is written."""
    profile = _own_document(reading).get("profile")
    return None if profile in (None, "full") else str(profile)


def own_overrides(reading: Reading, replaced_by: Sequence[str] = ()) -> list[str]:
    """The overrides that the run was started with, without those that `replaced_by` sets anew."""
    new = [_key(text) for text in replaced_by]
    own = [str(text) for text in _own_document(reading).get("overrides") or ()]
    return [text for text in own if not any(_may_overlap(_key(text), key) for key in new)]


def document_under(authored: Authored, profile: str | None) -> Mapping[str, object]:
    """The document that overrides of a run are put on: with what its profile says, which may have stages of its own."""
    layer = None if profile is None else authored.profile(profile)
    return (authored.base if layer is None else merge(authored.base, layer)).tree


def qualified(overrides: Sequence[str], tree: Mapping[str, object], stage: int | None) -> tuple[str, ...]:
    """The overrides as a document of several stages takes them; `stage` is the index of the rules' stage among those.

    A key that is clear, or unknown, or that no single key of the stage ends in stays as it is.
    """
    stages = tree.get("stages")
    names = [name for name, below in stages.items() if below is not None] if isinstance(stages, Mapping) else []
    if stage is None or stage >= len(names):
        return tuple(overrides)
    known = fields(tree)

    def spelled_out(text: str) -> str:
        key, equals, value = text.partition("=")
        parts: Keys = tuple(key.strip().split("."))
        alike = [path for path in known if path[-len(parts) :] == parts]
        own = [path for path in alike if path[:2] == ("stages", names[stage])]
        if parts in known or len(alike) < 2 or len(own) != 1:
            return text
        return f"{dotted(own[0])}{equals}{value}"

    return tuple(spelled_out(text) for text in overrides)


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def _may_overlap(a: str, b: str) -> bool:
    """Whether two keys may mean one setting, or one a part of the other: a key may be written as any ending of it."""

    def continues(left: Sequence[str], right: Sequence[str]) -> bool:
        """Whether an ending of the left key is a beginning of the right one, or holds it whole."""
        return any(left[at : at + len(right)] == right[: len(left) - at] for at in range(len(left)))

    first, second = a.split("."), b.split(".")
    return continues(first, second) or continues(second, first)


def _own_document(reading: Reading) -> Mapping[str, Any]:
    """What a run of ours was started as; {} for every other run."""
    return (reading.document or {}) if reading.spec is not None else {}


def _current_document(reading: Reading) -> Mapping[str, object]:
    """The document of the run's experiment under its profile, as it is today; {} where there is none."""
    base, library = base_name(reading), Library()
    if base is None:
        return {}
    with suppress(UserError):
        return document_under(read_authored(library.find(base), library), profile_of(reading))
    return {}


def _injects_faults(reading: Reading) -> bool:
    """Whether the run's experiment injects a fault; False where that cannot be known any more."""
    base = base_name(reading)
    if base is None:
        return False
    with suppress(UserError):
        return bool(load(base, profile=profile_of(reading) or "full", overrides=own_overrides(reading)).spec.faults)
    return False
