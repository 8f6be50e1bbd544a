"""What one run reached, as labelled sentences and table rows. Colour, wrapping and printing are in grpoctl.console."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.metrics import EVAL
from grpoctl.analysis.collect import RunRecord, number
from grpoctl.analysis.wording import label, metric_text, plural

Tone = Literal["plain", "good", "bad", "warn"]

_HEADLINE = "eval/reward"
_TONES: Mapping[str, Tone] = {"COMPLETED": "good", "STOPPED_EARLY": "good", "PRUNED": "warn", "INTERRUPTED": "warn"}
_MET: Mapping[bool | None, tuple[str, Tone]] = {
    True: ("met", "good"),
    False: ("refuted", "bad"),
    None: ("untested", "warn"),
}
_UNEXPLAINED = frozenset({"STOPPED_EARLY", "PRUNED", "FAILED", "INTERRUPTED"})  # what no finding explains
_SEVERITIES: Mapping[str, Tone] = {"error": "bad", "critical": "bad", "info": "plain"}
_CLEAR = 2.0  # a change of this many standard errors is told from noise


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One labelled sentence; `mark` is the word that carries the tone. `verbatim`: a command, to be copied whole."""

    label: str
    mark: str = ""
    tone: Tone = "plain"
    text: str
    verbatim: bool = False


def sentences(result: Mapping[str, Any]) -> list[Line]:
    """How the run ended, what it reached against its start, its expectations and its findings, in this order.

    Where a finding is more than information: also the command that tells the evidence.
    """
    return [
        _ending(result),
        Line(label="Reached", text=reached(result)),
        *(_expectation(entry) for entry in result.get("expects", ())),
        *(_finding(entry) for entry in result.get("findings", ())),
        *_evidence(result),
    ]


def reached(result: Mapping[str, Any]) -> str:
    """The final eval/reward against the start, in units of its standard error.

    Both evaluations use the same held-out prompts; their errors are added as if independent, which errs on the
    careful side.
    """
    run = RunRecord(result=result, spec={}, rows=())
    start, final = run.value(_HEADLINE, "start"), run.value(_HEADLINE)
    if start is None or final is None:
        return f"no {_HEADLINE} at the {'start' if start is None else 'end'}: nothing to compare"
    change = final - start
    text = f"{_HEADLINE} {metric_text(_HEADLINE, start)} -> {metric_text(_HEADLINE, final)}"
    text += f", {'up' if change >= 0 else 'down'} by {metric_text(_HEADLINE, abs(change))}"
    errors = [run.value(f"{_HEADLINE}_se", part) for part in ("start", "final")]
    noise = math.hypot(*(error or 0.0 for error in errors))
    if None in errors or noise == 0:
        return text
    standard = f"standard error {metric_text(_HEADLINE, noise)}"
    if abs(change) < _CLEAR * noise:
        return f"{text}: within noise ({standard})"
    return f"{text}: {abs(change) / noise:.1f} times its noise ({standard})"


def evaluations(result: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Rows (metric, start, final, best) of the evaluations; the reward's final one with its standard error."""
    run = RunRecord(result=result, spec={}, rows=())
    rows = []
    for metric in EVAL:
        values = [run.value(metric.name, part) for part in ("start", "final", "best")]
        if metric.name == f"{_HEADLINE}_se" or values == [None] * 3:
            continue
        start, final, best = (metric_text(metric.name, value) for value in values)
        error = run.value(f"{metric.name}_se")
        if error is not None and values[1] is not None:
            final += f" ± {metric_text(metric.name, error)}"
        rows.append((metric.name, start, final, best))
    return rows


def beside_the_record(result: Mapping[str, Any], recorded: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Rows (metric, what the document says, what this run has) of a historical record."""
    run = RunRecord(result=result, spec={}, rows=())
    return [(name, metric_text(name, said), metric_text(name, run.value(name))) for name, said in recorded.items()]


def _ending(result: Mapping[str, Any]) -> Line:
    seconds = number(result.get("seconds"))
    done = [plural(int(result["steps"]), "step"), plural(int(result["updates"]), "update")]
    done += [f"{seconds:.1f} s"] if seconds is not None else []
    status = str(result["status"])
    what = f"{label(result)}, profile {result['profile']}, seed {result['seed']}: {', '.join(done)}"
    if status in _UNEXPLAINED and result.get("message"):
        what += f"; {str(result['message']).splitlines()[0]}"  # a traceback may follow: said as the error
    return Line(label="Run", mark=status, tone=_TONES.get(status, "bad"), text=what)


def _expectation(entry: Mapping[str, Any]) -> Line:
    metric = str(entry["expectation"]).split()[0]
    mark, tone = _MET[entry["met"]]
    observed = number(entry["observed"])
    seen = "not observed" if observed is None else f"observed {metric_text(metric, observed)}"
    return Line(label="Expected", mark=mark, tone=tone, text=f"{entry['expectation']} ({seen})")


def _finding(entry: Mapping[str, Any]) -> Line:
    severity = str(entry["severity"])
    tone = _SEVERITIES.get(severity.lower(), "warn")
    sure = f" ({entry['confidence']})" if entry.get("confidence") else ""
    ruled = ", ".join(str(cause).partition(":")[0] for cause in entry.get("rules_out") or ())
    text = f"{entry['id']}{sure}: {entry['summary']}" + (f"; ruled out: {ruled}" if ruled else "")
    return Line(label="Finding", mark=severity.upper(), tone=tone, text=text)


def _evidence(result: Mapping[str, Any]) -> list[Line]:
    """The command that tells the evidence, if a finding is worth it."""
    if all(str(entry["severity"]).lower() == "info" for entry in result.get("findings", ())):
        return []
    return [Line(label="Evidence", text=f"grpoctl diagnose {result['run_id']}", verbatim=True)]
