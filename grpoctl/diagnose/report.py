"""A diagnosis as labelled sentences for a terminal. Colour, wrapping and printing are in grpoctl.console."""

from __future__ import annotations

from collections.abc import Mapping

from core.health.finding import Finding
from grpoctl.diagnose import rerun, wording
from grpoctl.diagnose.diagnosis import Diagnosis
from grpoctl.diagnose.readers.base import Read
from grpoctl.sections import Line, Section, Tone

_TONES: Mapping[str, Tone] = {"error": "bad", "warning": "warn", "info": "plain", "ok": "good", "unknown": "warn"}
_UNDER = " "  # a label of its own line under another's


def report(diagnosis: Diagnosis) -> list[Section]:
    """Source, facts and verdict; then the findings, the gravest and most certain first; then how to go on."""
    findings = [_finding(diagnosis.read, finding) for finding in diagnosis.findings]
    return [_head(diagnosis), *findings, *_next(diagnosis)]


def _head(diagnosis: Diagnosis) -> Section:
    read = diagnosis.read
    worst = wording.worst(diagnosis)
    facts = wording.main_facts(diagnosis)
    lines = [
        Line(label="Source", text=f"{read.source} ({read.kind})"),
        *([Line(label="Facts", text=facts)] if facts else []),
        *(Line(label="Note", text=note) for note in read.notes),
        Line(label="Verdict", tone=_TONES[worst], mark=worst.upper(), text=wording.verdict(diagnosis)),
    ]
    return Section(lines=tuple(lines))


def _finding(read: Read, finding: Finding) -> Section:
    """One finding: what, the numbers and lines behind it, what it rules out, what to change, what would decide."""
    what = f"{finding.id} ({finding.confidence}): {finding.summary}"
    lines = [Line(label="Finding", mark=finding.severity.upper(), tone=_TONES[finding.severity], text=what)]
    said = [numbers] if (numbers := wording.numbers(finding)) else []
    for key, (first, *rest) in wording.texts(finding):
        said += [f"{key}: {first}", *rest]
    lines += _listed("Evidence", said)
    lines += _listed("Ruled out", [f"{ruled.id} - {ruled.why}" for ruled in finding.rules_out])
    if finding.suggest:
        lines.append(Line(label="Try", text=rerun.command(read, finding.suggest), verbatim=True))
    if finding.advice:
        lines.append(Line(label="Advice", text=finding.advice))
    if (decider := finding.decider) is not None:
        lines.append(Line(label="Decides", text=decider.question))
        if decider.overrides:
            lines.append(Line(label=_UNDER, text=rerun.decider_command(read, decider), verbatim=True))
        if decider.expects:
            lines.append(Line(label=_UNDER, text=f"if it is right: {', '.join(decider.expects)}"))
    return Section(lines=tuple(lines))


def _listed(label: str, said: list[str]) -> list[Line]:
    return [Line(label=_UNDER if index else label, text=text) for index, text in enumerate(said)]


def _next(diagnosis: Diagnosis) -> list[Section]:
    if (step := rerun.next_step(diagnosis)) is None:
        return []
    command, does = step
    lines = [Line(label="Next", text=f"{command}   # {does}", verbatim=True)]
    if not diagnosis.proposed and rerun.base_name(diagnosis.read) is None:
        text = f"{rerun.UNKNOWN} above: an experiment of yours with this run's settings; that command writes one"
        lines.append(Line(label="Note", text=text))
    return [Section(lines=tuple(lines))]
