"""A diagnosis as Markdown. What comes from logs stays text there: nothing of it becomes a heading, a mark or HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.health.finding import Finding
from core.text import harmless
from grpoctl.diagnose import rerun, wording
from grpoctl.diagnose.diagnosis import Diagnosis
from grpoctl.diagnose.readers.base import Read

_SPECIAL = re.compile(r"[\\`*\[\]<>|~&]|(?<!\w)_|_(?!\w)|^[#+=-]")
_CODE = re.compile(r"(`[^`]+`)")


def markdown(diagnosis: Diagnosis) -> str:
    """The whole report: verdict, findings, facts, settings and notes."""
    read = diagnosis.read
    parts = [
        f"# Diagnosis of {plain(read.source)}",
        f"**{plain(wording.verdict(diagnosis))}** (read as {plain(read.kind)})",
        *(part for finding in diagnosis.findings for part in _finding(read, finding)),
        "## Facts",
        table(("fact", "value"), wording.fact_rows(diagnosis)) or "None.",
    ]
    if settings := wording.setting_rows(diagnosis):
        parts += ["## Settings", table(("setting", "value"), settings)]
    if read.notes:
        parts += ["## Notes", "\n".join(f"- {plain(note)}" for note in read.notes)]
    if step := rerun.next_step(diagnosis):
        command, does = step
        parts += ["## Next", f"This {does}:\n\n{block(command)}"]
    return "\n\n".join(parts)


def plain(text: str) -> str:
    """The text on one line, with what Markdown would read as marks escaped; what is in backquotes stays code."""
    parts = _CODE.split(" ".join(harmless(text).split()))
    return "".join(
        part if _CODE.fullmatch(part) else _SPECIAL.sub(lambda found: f"\\{found[0]}", part) for part in parts
    )


def code(text: str) -> str:
    """The text in backquotes, on one line."""
    flat = " ".join(harmless(text).split())
    longest = max((len(run) for run in re.findall("`+", flat)), default=0)
    mark = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{mark}{space}{flat}{space}{mark}"


def block(text: str) -> str:
    """The text as a fenced block of shell commands."""
    return f"```sh\n{harmless(text)}\n```"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; empty where there are no rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *([plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _finding(read: Read, finding: Finding) -> list[str]:
    parts = [f"## {finding.severity.upper()}: {plain(finding.id)}", plain(finding.summary)]
    parts.append(f"Confidence: {finding.confidence}.")
    said = [plain(numbers)] if (numbers := wording.numbers(finding)) else []
    for key, lines in wording.texts(finding):
        said.append(f"{plain(key)}:" + "".join(f"\n  - {code(line)}" for line in lines))
    if said:
        parts.append(_listed("Evidence:", said))
    if finding.rules_out:
        parts.append(_listed("Ruled out:", [f"**{plain(one.id)}**: {plain(one.why)}" for one in finding.rules_out]))
    if finding.suggest:
        parts.append(f"Try:\n\n{block(rerun.command(read, finding.suggest))}")
    if finding.advice:
        parts.append(plain(finding.advice))
    if (decider := finding.decider) is not None:
        parts.append(f"What would decide it: {plain(decider.question)}")
        parts += [block(rerun.decider_command(read, decider))] if decider.overrides else []
        expects = ", ".join(map(code, decider.expects))
        parts += [f"If the finding is right: {expects}."] if expects else []
    return parts


def _listed(title: str, said: Sequence[str]) -> str:
    return "\n".join([title, "", *(f"- {text}" for text in said)])
