"""What a proposed spec looks like: the finding it decides, and why each value stands there. Pure text from records."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from core.health.finding import Decider, Finding
from grpoctl.config.commented import commented, nested, one_line
from grpoctl.config.resolved import block_yaml

_WIDTH = 112
_TITLE = 100  # characters
_BY_ITSELF = "tiny"  # what `auto` takes where there is no GPU; else full


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """What is written: `own` are the run's settings as dotted keys, `changes` the decider's; `profile` is the run's."""

    name: str
    base: str
    source: str
    finding: Finding
    decider: Decider
    foreign: bool  # the run is not ours: model and task are the base's
    profile: str | None
    own: Mapping[str, object]
    changes: Mapping[str, object]
    elsewhere: tuple[str, ...] = ()  # profiles that set themselves what the decider changes
    left_out: tuple[str, ...] = ()  # settings of the run that a spec on this base cannot hold

    @property
    def under(self) -> str | None:
        """The profile to name when it is started; None where the one that a machine gets by itself will do."""
        return self.profile or ("full" if _BY_ITSELF in self.elsewhere else None)

    def with_own(self, own: Mapping[str, object], left_out: tuple[str, ...] = ()) -> Proposal:
        """The same with other settings of the run."""
        return replace(self, own=own, left_out=left_out)


def text_of(proposal: Proposal, scaled: Collection[str], dropped: Sequence[str] = ()) -> str:
    """The file. Settings that the run's profile scales (`scaled`) stand there; `dropped` profiles are taken away."""
    chosen = {**proposal.own, **proposal.changes}
    said = dict.fromkeys(proposal.own, "as in the run") | dict.fromkeys(proposal.changes, "what decides")
    there = {key: value for key, value in chosen.items() if key in scaled}
    here = {key: value for key, value in chosen.items() if key not in scaled}
    own = {
        "name": proposal.name,
        "revision": 1,
        "extends": proposal.base,
        "title": _title(proposal),
        "question": one_line(proposal.decider.question),
        "source": one_line(f"grpoctl diagnose {proposal.source}"),
    }
    lines = [*_header(proposal), *block_yaml(own).splitlines(), ""]
    lines += block_yaml({"expects": list(proposal.decider.expects)}).splitlines()
    lines += ["", *commented(nested(here), "", said, 0)] if here else []
    if there or dropped:
        lines += ["", "profiles:"]
    if there:
        lines += [f"  {proposal.profile}:", *commented(nested(there), "", said, 2)]
    lines += [f"  {one}: null  # {proposal.base}'s own does not fit these settings" for one in dropped]
    return "\n".join(lines) + "\n"


def _title(proposal: Proposal) -> str:
    return textwrap.shorten(one_line(f"Decides {proposal.finding.id} of {proposal.source}"), _TITLE, placeholder="…")


def _header(proposal: Proposal) -> list[str]:
    """Comment lines: what it decides, from which finding, and what it cannot say."""
    finding, decider = proposal.finding, proposal.decider
    expects = ", ".join(decider.expects) or "nothing that a metric could say"
    facts = {
        "from": proposal.source,
        "finding": f"{finding.severity} {finding.id} ({finding.confidence}): {finding.summary}",
        "decides": decider.question,
        "if it is right": expects,
        "run under": _under(proposal),
    }
    if proposal.left_out:
        facts["left out"] = (
            f"{', '.join(proposal.left_out)}: known of the run, but no setting that fits {proposal.base}"
        )
    lines = ["Written by grpoctl diagnose --propose. Yours to change; raise the revision when you do.", ""]
    for label, text in facts.items():
        lines += textwrap.wrap(
            f"{label:<16}{one_line(text)}", _WIDTH, subsequent_indent=" " * 16, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
    if proposal.foreign:
        lines += ["", *textwrap.wrap(_foreign(proposal), _WIDTH)]
    return [f"# {line}".rstrip() for line in lines]


def _under(proposal: Proposal) -> str:
    if proposal.profile is not None:
        return f"profile {proposal.profile}, as the run was"
    if proposal.elsewhere:
        return f"any profile but {', '.join(proposal.elsewhere)}: there what decides is set otherwise"
    return "any profile"


def _foreign(proposal: Proposal) -> str:
    return (
        f"Model and task are {proposal.base}'s: change them to your own before you run it. Its profiles scale some "
        "settings (a learning rate of a large model is none for a small one) and keep their own values of those."
    )
