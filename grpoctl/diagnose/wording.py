"""What the report says in all its forms: the verdict, and numbers and evidence as short lines.

What is not here: how a form looks (report, markdown, html), and the commands to continue with (rerun).
"""

from __future__ import annotations

from core.health.finding import Finding, steps_of
from grpoctl.diagnose.diagnosis import Diagnosis
from grpoctl.wording import plural, setting_text

_LONG = 160  # characters of a text of the evidence that a report shows; the JSON has it whole
_MOST = 8  # texts under one key
_REWARD = tuple(f"reward/{end}" for end in ("first", "last"))
_FIRST = ("steps", "updates", "samples", "valid", *_REWARD, "collapsed_after_update", "followed_updates",
          "collapsed_after_skip", "followed_skips", "collapsed_and_skipped", "healed")  # fmt: skip


def verdict(diagnosis: Diagnosis) -> str:
    """`1 error, 2 warnings; most severe: rollout-mode (strong)`, or what was looked at."""
    counts = diagnosis.counts()
    notes = [f"{one.id} ({one.confidence})" for one in diagnosis.findings]
    if set(counts) - {"info"}:
        listed = ", ".join(f"{count} info" if name == "info" else plural(count, name) for name, count in counts.items())
        return f"{listed}; most severe: {notes[0]}"
    rows = diagnosis.read.case.rows
    if not steps_of(rows):
        return "no training step in this source"
    columns = {name for row in rows for name, value in row.items() if value is not None}
    checked = f"{plural(len(rows), 'row')}, {plural(len(columns), 'column')}"
    return f"no rule found a problem ({checked})" + (f"; info: {', '.join(notes)}" if notes else "")


def worst(diagnosis: Diagnosis) -> str:
    """The gravest severity that is something wrong; else `ok`, or `unknown` where there was no step to look at."""
    fine = "ok" if steps_of(diagnosis.read.case.rows) else "unknown"
    return next((severity for severity in diagnosis.counts() if severity != "info"), fine)


def number_text(value: float) -> str:
    """A number in four digits, whole ones as they are."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (abs(value) < 1e15 and value == int(value)):
        return str(int(value))
    return f"{value:.4g}"


def fact_rows(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """(name, number) of every fact, those that say most first."""
    names = [*(name for name in _FIRST if name in diagnosis.facts), *(n for n in diagnosis.facts if n not in _FIRST)]
    return [(name, number_text(diagnosis.facts[name])) for name in names]


def main_facts(diagnosis: Diagnosis) -> str:
    """The facts that say most, on one line."""
    return ", ".join(f"{name} {text}" for name, text in fact_rows(diagnosis) if name in _FIRST)


def setting_rows(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """(name, value) of every known setting."""
    return [(name, setting_text(value)) for name, value in diagnosis.settings.items()]


def numbers(finding: Finding) -> str:
    """The evidence that is numbers or a word, on one line."""
    parts = [
        f"{key} {value if isinstance(value, str) else number_text(value)}"
        for key, value in finding.evidence.items()
        if isinstance(value, (int, float)) or (isinstance(value, str) and " " not in value)
    ]
    return ", ".join(parts)


def texts(finding: Finding) -> list[tuple[str, list[str]]]:
    """(key, texts) of the evidence that is text: log lines above all. Long ones are cut, and many."""
    found = []
    for key, value in finding.evidence.items():
        if isinstance(value, str) and " " in value:
            found.append((key, [_cut(value)]))
        elif not isinstance(value, (str, int, float)) and value:
            more = [f"and {len(value) - _MOST} more"] if len(value) > _MOST else []
            found.append((key, [*(_cut(str(one)) for one in value[:_MOST]), *more]))
    return found


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONG else f"{flat[: _LONG - 1]}…"
