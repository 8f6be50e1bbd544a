"""The run once more: with which command it was started, and what to change in it. Pure but for reading the base spec.

A rule sees no faults, and its decider asks about settings; so where the experiment injects a fault on purpose, the
deciding experiment runs without it.
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
from grpoctl.config.layers import merge
from grpoctl.credentials import without_credentials
from grpoctl.diagnose.diagnosis import Diagnosis
from grpoctl.diagnose.qualified import qualified
from grpoctl.diagnose.readers.base import Read

UNKNOWN = "NAME"  # stands for an experiment that a foreign log does not have
NO_FAULTS = "faults=[]"


def command(read: Read, overrides: Sequence[str]) -> str:
    """`grpoctl run p30 -p tiny num_generations=8`: the run once more with these settings, to be pasted into a shell."""
    changes = qualified(overrides, _tree(read), read.case.settings.stage)
    own = started_with(read, changes)
    words = ["grpoctl", "run", base_name(read) or UNKNOWN, *_profile(read), *own, *changes]
    return " ".join(shlex.quote(word) for word in words)


def decider_command(read: Read, decider: Decider) -> str:
    """The command of the deciding experiment; empty where it is none that overrides could make."""
    return command(read, deciding_overrides(read, decider)) if decider.overrides else ""


def deciding_overrides(read: Read, decider: Decider) -> tuple[str, ...]:
    """The decider's overrides, and no injected fault where the run had one."""
    asked = [text.partition("=")[0].strip() for text in decider.overrides]
    return (*decider.overrides, *([NO_FAULTS] if "faults" not in asked and _faulted(read) else []))


def next_step(diagnosis: Diagnosis) -> tuple[str, str] | None:
    """The next command and what it does: runs the deciding experiment, or writes it where it is not written yet.

    None where no finding has one.
    """
    if diagnosis.proposed:
        return diagnosis.proposed, "runs the deciding experiment"
    if deciding(diagnosis) is None:
        return None
    source = shlex.quote(without_credentials(diagnosis.asked))
    return f"grpoctl diagnose {source} --propose {UNKNOWN}", "writes the deciding experiment"


def deciding(diagnosis: Diagnosis) -> tuple[Finding, Decider] | None:
    """The first finding that an experiment would decide, and that experiment."""
    found = ((one, one.decider) for one in diagnosis.findings if one.decider and one.decider.overrides)
    return next(found, None)


def base_name(read: Read) -> str | None:
    """The experiment that the run was of, without its revision; None of a run that is not ours."""
    return None if read.spec is None else read.spec.partition("@")[0]


def profile_of(read: Read) -> str | None:
    """The profile it ran under; None where that is not known, or the spec as it is written."""
    profile = _told(read).get("profile")
    return None if profile in (None, "full") else str(profile)


def started_with(read: Read, overrides: Sequence[str] = ()) -> list[str]:
    """The overrides that the run was started with, without those that `overrides` set anew."""
    keys = [text.partition("=")[0].strip() for text in overrides]
    own = [str(text) for text in _told(read).get("overrides") or ()]
    return [text for text in own if not any(_same(text.partition("=")[0].strip(), key) for key in keys)]


def _same(a: str, b: str) -> bool:
    """Whether two keys may mean one setting, or one a part of the other: a key may be written as any ending of it."""
    one, two = a.split("."), b.split(".")
    return _joins(one, two) or _joins(two, one)


def _joins(left: Sequence[str], right: Sequence[str]) -> bool:
    """Whether an ending of the left key is a beginning of the right one, or holds it whole."""
    return any(left[at : at + len(right)] == right[: len(left) - at] for at in range(len(left)))


def _told(read: Read) -> Mapping[str, Any]:
    return (read.document or {}) if read.spec is not None else {}


def _profile(read: Read) -> list[str]:
    profile = profile_of(read)
    return [] if profile is None else ["-p", profile]


def tree_of(authored: Authored, profile: str | None) -> Mapping[str, object]:
    """The document that overrides of a run are put on: with what its profile says, which may have stages of its own."""
    layer = None if profile is None else authored.profile(profile)
    return (authored.base if layer is None else merge(authored.base, layer)).tree


def _tree(read: Read) -> Mapping[str, object]:
    """The document of the run's experiment under its profile, as it is today; {} where there is none."""
    base, library = base_name(read), Library()
    if base is None:
        return {}
    with suppress(UserError):
        return tree_of(read_authored(library.find(base), library), profile_of(read))
    return {}


def _faulted(read: Read) -> bool:
    """Whether the run's experiment injects a fault; False where that cannot be known any more."""
    base = base_name(read)
    if base is None:
        return False
    with suppress(UserError):
        return bool(load(base, profile=profile_of(read) or "full", overrides=started_with(read)).spec.faults)
    return False
