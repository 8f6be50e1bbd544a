"""A study as titled sections: sentences, then tables. Colour, wrapping and printing are in grpoctl.console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpoctl.analysis.sweeps import tables
from grpoctl.analysis.sweeps.advice import next_steps
from grpoctl.analysis.sweeps.budget import account
from grpoctl.analysis.sweeps.document import Digest, digest
from grpoctl.analysis.sweeps.findings import NOT_TESTED, NOTHING_LEARNED, StudyFinding, findings_of
from grpoctl.analysis.sweeps.wording import random_search_text, trials_text
from grpoctl.sections import Line, Section, Tone
from grpoctl.wording import clock_text, count_text, plural

_TONES: Mapping[str, Tone] = {"COMPLETED": "good", "RUNNING": "plain", "FAILED": "bad"}
_LABELS = {
    NOTHING_LEARNED: "Learning", "no-better-than-start": "Learning", NOT_TESTED: "Learning", "best": "Best",
    "selection-bias": "Winner", "stages": "Stages", "axes": "Axes", "more-budget": "Budget",
    "noise": "Noise", "ladder": "Ladder", "collapse": "Collapse", "invalid-rollout": "Invalid", "no-updates": "Signal",
    "importances": "PED-ANOVA", "edge": "Edge", "cost": "Cost", "pruned": "Pruned", "failed": "Failed", "runs": "Runs",
}  # fmt: skip
_DETAILS = frozenset({"importances", "noise", "cost", "pruned"})  # of the whole report, not of its head
_GRAVE = frozenset({NOTHING_LEARNED, "collapse", "invalid-rollout", "no-updates", "failed"})


def text_report(document: Mapping[str, Any], figures: Sequence[str] = ()) -> list[Section]:
    """The whole report: head, ranking, baselines, what was not ranked, marginals, two-way table, health by region."""
    of = digest(document)
    return [
        *_head(of),
        *_details(of),
        *tables.ranking(of),
        *tables.baselines(of),
        *tables.unranked(of),
        *tables.rungs(of),
        *tables.importances(of),
        *tables.effects(of),
        *tables.marginal(of),
        *tables.pair(of),
        *tables.health(of),
        *tables.crossing(of),
        *_figures(figures),
    ]


def head(document: Mapping[str, Any]) -> list[Section]:
    """What was asked, how it stands and what came out, in sentences; the best, baselines, where runs collapse."""
    of = digest(document)
    return [*_head(of), *tables.ranking(of, most=10), *tables.baselines(of), *tables.crossing(of)]


def _head(of: Digest) -> list[Section]:
    document = of.document
    status = str(document.get("status"))
    title = f"{document.get('study')}: {document.get('title') or document.get('sweep')}"
    if document.get("message"):
        title += f" ({document['message']})"
    findings = findings_of(of)
    first = [_line(finding) for finding in findings if finding.id == NOTHING_LEARNED]
    lines = [
        *first,
        Line(label="Study", mark=status, tone=_TONES.get(status, "warn"), text=title),
        *([Line(label="Question", text=str(document["question"]))] if document.get("question") else []),
        Line(label="Setup", text=setup_text(document)),
        Line(label="Done", text=progress_text(document)),
        *([Line(label="Shared", text=shared_text(shared))] if (shared := document.get("shared")) else []),
        *_search(document),
        *(_line(finding) for finding in findings[len(first) :] if finding.id not in _DETAILS),
        *(
            Line(label="Note", text=str(note))
            for note in [*_random_search(document), *(document.get("notes") or ()), *_old_curves(of)]
        ),
    ]
    if behind := document.get("database_behind"):
        text = f"Optuna's copy of this study is incomplete ({behind}); grpoctl sync writes the rest"
        lines.append(Line(label="Database", mark="WARNING", tone="warn", text=text))
    if status == "INTERRUPTED":
        lines.append(Line(label="Next", text=f"continue with: grpoctl sweep {document.get('study')} --resume"))
    lines += [Line(label="Next", text=step.text, verbatim=bool(step.command)) for step in next_steps(of)]
    return [Section(lines=tuple(lines))]


def _details(of: Digest) -> list[Section]:
    """The sentences that the head leaves out: noise, importance, cost, what pruning saved."""
    lines = tuple(_line(finding) for finding in findings_of(of) if finding.id in _DETAILS)
    return [Section(lines=lines)] if lines else []


def _old_curves(of: Digest) -> list[str]:
    """What to know of curves that an older version wrote."""
    old = [number for number, trial in of.trials.items() if trial.get("curve_possibly_wrong")]
    if not old:
        return []
    return [
        f"the curves of {plural(len(old), 'trial')} ({trials_text(old)}) are from an older version and may be "
        "wrong: where stages sample nothing, one seed's evaluations replaced another's; scores are not affected"
    ]


def _random_search(document: Mapping[str, Any]) -> list[str]:
    """That no result guided the trials of the study, where that is so."""
    if document.get("allocation") == "adaptive":
        return []  # its candidates are drawn at random, whatever the sampler
    text = random_search_text(int(document.get("total") or 0), document.get("startup"), document.get("points"))
    return [text] if text else []


def setup_text(document: Mapping[str, Any]) -> str:
    """`maximize eval/reward over 24 trials x 3 seeds, 1,024 completions per run; ...`."""
    seeds = list(document.get("seeds") or ())
    budget = [f"{count_text(value)} {unit} per run" for unit, value in (document.get("budget") or {}).items() if value]
    trials = plural(int(document.get("total") or 0), "trial")
    over = ", ".join([f"{trials} x {plural(len(seeds), 'seed')}", *budget])
    taken = "" if document.get("take") == "final" else f" ({document.get('take')})"
    return (
        f"{document.get('direction')} {document.get('metric')}{taken} over {over}; {how_text(document)}; "
        f"on {document.get('experiment')}, profile {document.get('profile')}"
    )


def how_text(document: Mapping[str, Any]) -> str:
    """`sampler tpe (first 11 trials random), pruner patient-median`, or `allocation adaptive, until decided at 90%`."""
    if document.get("allocation") == "adaptive":
        decided = f", until decided at {document.get('confidence') or 0.0:.0%}"
        return f"allocation adaptive{decided if document.get('stop') == 'decided' else ''}"
    startup = document.get("startup")
    drawn = f" (first {startup} trials random)" if startup else ""
    pruner = (document.get("pruner") or {}).get("name") or "none"
    return f"sampler {document.get('sampler')}{drawn}, pruner {pruner}"


def _search(document: Mapping[str, Any]) -> list[Line]:
    """What an adaptive search holds of its choice, and what that took."""
    search = document.get("search") or {}
    if search.get("choice") is None:
        return []
    others = plural(max(0, len(search["believed"]) - 1), "other")
    near = f"#{search['choice']} is within {search['tolerance']:g} of the best with probability {search['right']:.2f}"
    spent = f"{search['runs']:.1f} of {search['of']:g} runs' budgets spent among {search['candidates']} candidates"
    text = f"{near}, by its {plural(int(search['seeds']), 'seed')} in common with {others}; {spent}"
    return [Line(label="Search", text=text)]


def progress_text(document: Mapping[str, Any]) -> str:
    """`24 of 24 trials (17 COMPLETED, 6 PRUNED, 1 FAILED); 57,216 completions in 5:30 min`."""
    stands = account(document)
    statuses = ", ".join(f"{count} {status}" for status, count in stands.by_status.items())
    text = f"{stands.ended} of {stands.total} trials" + (f" ({statuses})" if statuses else "")
    spent = "" if stands.unit == "trials" else f"{count_text(stands.spent)} {stands.unit} in "
    text += f"; {spent}{_lasted(float(document.get('seconds') or 0.0))}"
    failed = document.get("failures") or 0
    failures = len(failed) if isinstance(failed, list) else int(failed)
    return text + (f"; {plural(failures, 'failure')} of runs, retried ones included" if failures else "")


def shared_text(shared: Mapping[str, Any]) -> str:
    """`6 runs began after a stage that another had run: saved 41.2 s, 960 completions`."""
    completions = int(shared.get("completions") or 0)
    sampled = f", {plural(completions, 'completion')}" if completions else ""
    runs = plural(int(shared.get("runs") or 0), "run")
    return f"{runs} began after a stage that another had run: saved {float(shared.get('seconds') or 0):.1f} s{sampled}"


def _lasted(seconds: float) -> str:
    return f"{clock_text(seconds)} {'h' if seconds >= 3600 else 'min'}"


def _line(finding: StudyFinding) -> Line:
    tone: Tone = "warn" if finding.id in _GRAVE else "plain"
    mark = "WARNING" if finding.id in _GRAVE else ""
    return Line(label=_LABELS[finding.id], mark=mark, tone=tone, text=finding.text)


def _figures(figures: Sequence[str]) -> list[Section]:
    return [Section(lines=tuple(Line(label="Figure", text=path) for path in figures))] if figures else []
