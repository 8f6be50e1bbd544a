"""What is known of a run that was read: facts, settings and findings, as JSON and in the words of every report.

What is not here: how a report looks (report, markdown, html), and the commands to continue with (rerun).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from core.errors import in_words
from core.health.case import Case, Settings, bounded, huge
from core.health.coverage import Coverage, coverage, pooled
from core.health.examine import OF_WHOLE_RUNS, RULES, Rule, facts, importance, name_of_rule
from core.health.finding import SEVERITIES, Finding, Severity
from core.health.hints import hints
from core.health.likeness import LEADS, Chances, PublicRun, chances, leads
from core.health.pooled import examine_runs
from core.health.statistics import HUGE
from core.text import harmless
from grpoctl.diagnose.public_runs import public_runs
from grpoctl.diagnose.readers.base import Reading
from grpoctl.files import finite
from grpoctl.wording import plural, setting_text

Outcome = Literal["findings", "sound", "unknown"]
_LONGEST_TEXT = 160  # characters of a text of the evidence that a report shows; the JSON has it whole
_MOST_RULES = 4  # that could not run and are named by a report; the JSON has all
_MOST_UNREAD = 3  # kinds of lines that were not understood and are shown by a report; the same
_WEIGHTS = {"rule": 3.0, "hint": 2.0, "lead": 1.0}  # of the odds of an info, by what says it
_LEAST_ODDS = {"rule": 1.0, "hint": 0.0, "lead": 0.0}  # a rule that speaks is right in half of its cases, at least
_DOUBTS = ("no-gain", "proxy-reward", "reward-hacking", "overfitting", "kl-runaway", "learning-rate", "dead-groups")
_OF_ONE_LOG = ("first_update_lr", "stage", "max_steps")  # settings that another run of the setup need not have
_MOST_TEXTS = 8  # under one key of the evidence
_MAIN_FACTS = (
    "steps", "updates", "samples", "valid", *(f"reward/{end}" for end in ("first", "last")),
    "collapsed_after_update", "followed_updates", "collapsed_after_skip", "followed_skips", "collapsed_and_skipped",
    "healed",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """A run that was read, its numbers (flat name -> number) and its findings, the gravest and most certain first."""

    name: str  # the source as the user named it
    reading: Reading
    facts: Mapping[str, float]
    findings: tuple[Finding, ...]
    others: tuple[Reading, ...] = ()  # further runs of the same setup
    proposed: str = ""  # the command that runs the deciding experiment, where it was written

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run that are known."""
        return {name: value for name, value in asdict(self.reading.case.settings).items() if value is not None}

    @property
    def coverage(self) -> Coverage:
        """What of the runs could be looked at."""
        return pooled([one.case.once(_covered) for one in self.readings])

    def counts(self) -> dict[Severity, int]:
        """How many findings there are of each severity, the gravest first; severities without one are left out."""
        counts = {severity: sum(finding.severity == severity for finding in self.findings) for severity in SEVERITIES}
        return {severity: count for severity, count in counts.items() if count}

    @property
    def worst(self) -> str:
        """The gravest severity that is something wrong; else `ok`, or `unknown` where too little was looked at."""
        fine = "ok" if self.coverage.is_enough and not self._doubts() else "unknown"
        return next((severity for severity in self.counts() if severity != "info"), fine)

    def _doubts(self) -> list[str]:
        """Infos that are too weak for a warning and too much for an all-clear."""
        return [
            finding.id
            for finding in self.findings
            if finding.id in _DOUBTS and finding.severity == "info" and finding.confidence in ("weak", "moderate")
        ]

    @property
    def outcome(self) -> Outcome:
        """What the whole diagnosis comes to: something is wrong, nothing is, or that cannot be told."""
        match self.worst:
            case "ok":
                return "sound"
            case "unknown":
                return "unknown"
            case _:
                return "findings"

    @property
    def verdict(self) -> str:
        """`1 error, 2 warnings; most severe: rollout-mode (strong)`, or how much was looked at without a finding."""
        counts = self.counts()
        names = [f"{finding.id} ({finding.certainty})" for finding in self.findings]
        if set(counts) - {"info"}:
            listed = ", ".join(
                f"{count} info" if severity == "info" else plural(count, severity) for severity, count in counts.items()
            )
            return f"{listed}; most severe: {names[0]}"
        seen = self.coverage
        if not seen.rows:
            return "not enough to judge: no training step in this source"
        checked = (
            f"{plural(seen.rows, 'row')}, {plural(len(seen.columns), 'column')}, {plural(len(seen.rules), 'rule')}"
        )
        info = f"; info: {', '.join(names)}" if names else ""
        if seen.is_enough and not self._doubts():
            return f"no rule found a problem ({checked}){info}"
        why = seen.open_questions or (f"look at {', '.join(self._doubts())} first",)
        return f"not enough to judge ({checked}): {'; '.join(why)}{info}"

    @property
    def not_looked_at(self) -> str:
        """Some of the rules that could not run, and what they lack, on one line; empty where all ran."""
        lacking = [f"{rule} ({', '.join(what)})" for rule, what in self.coverage.missing.items()]
        more = f"; and {len(lacking) - _MOST_RULES} more rules" if len(lacking) > _MOST_RULES else ""
        return "; ".join(lacking[:_MOST_RULES]) + more

    @property
    def readings(self) -> tuple[Reading, ...]:
        """All that was read: the run, and further ones of its setup."""
        return (self.reading, *self.others)

    def told_by(self, finding: Finding) -> Reading:
        """What the finding's numbers are of."""
        source = finding.evidence.get("shown_by")
        return next((one for one in self.readings if one.source == source), self.reading)

    @property
    def not_understood(self) -> list[str]:
        """Lines that look like metrics and were not read, the first kinds of them, and how many more there are."""
        unread = [str(kind) for one in self.readings for kind in one.not_understood]
        more = len(unread) - _MOST_UNREAD
        return [*unread[:_MOST_UNREAD], *([f"and {more} more kinds of lines"] if more > 0 else [])]

    @property
    def notes(self) -> list[str]:
        """What the readers left out or took for granted."""
        whose: dict[str, list[str]] = {}
        for one in self.readings:
            for note in one.notes:
                whose.setdefault(note, []).append(one.run)
        return [
            note if len(runs) == len(self.readings) or "" in runs else f"{note} ({', '.join(runs)})"
            for note, runs in whose.items()
        ]

    def fact_rows(self) -> list[tuple[str, str]]:
        """(name, number) of every fact of the first source, those that say most first."""
        return _fact_rows(self.facts)

    def facts_by_source(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """(source, its facts) of each source."""
        others = [(one.source, _fact_rows({**facts(one.case), **one.extra})) for one in self.others]
        return [(self.reading.source, self.fact_rows()), *others]

    def main_facts(self) -> str:
        """The facts that say most, on one line."""
        return ", ".join(f"{name} {text}" for name, text in self.fact_rows() if name in _MAIN_FACTS)

    def setting_rows(self) -> list[tuple[str, str]]:
        """(name, value) of every known setting."""
        return [(name, setting_text(value)) for name, value in self.settings.items()]

    def as_json(self) -> dict[str, Any]:
        """The document of `grpoctl diagnose --json` (docs/cli.md); a number that is not finite is null in it."""
        document = {
            "schema": 2,
            "source": self.reading.source,
            "kind": self.reading.kind,
            "verdict": self.outcome,
            "looked_at": {
                "rows": self.coverage.rows,
                "columns": list(self.coverage.columns),
                "rules": list(self.coverage.rules),
            },
            "not_looked_at": [{"rule": rule, "lacks": list(what)} for rule, what in self.coverage.missing.items()],
            "open_questions": list(self.coverage.open_questions),
            "not_understood": [str(unread) for one in self.readings for unread in one.not_understood],
            **({"runs": [_run_json(one) for one in self.readings]} if self.others else {}),
            "facts": dict(self.facts),
            "settings": self.settings,
            "notes": self.notes,
            "findings": [finding.as_json() for finding in self.findings],
        }
        plain = finite(document)
        assert isinstance(plain, dict)
        return plain


def diagnose(
    reading: Reading,
    name: str = "",
    others: Sequence[Reading] = (),
    *,
    with_hints: bool = True,
    public: Sequence[PublicRun] | None = None,
) -> Diagnosis:
    """All that the rules say about a case, and its facts: those of every source, then those of its format.

    `name` is how the user named the source, where that is not how the report names it; `others` are further runs of the
    same setup, whose evidence is pooled with this one's. Hints and leads are of a whole log that is not ours; leads are
    drawn from `public` runs, the shipped ones by default.
    """
    readings = [_bounded(one) for one in _each_run((reading, *others))]
    readings = readings if any(one.run for one in readings) else _tables_of_one_run(readings)
    if len(readings) > 1:
        readings = _of_one_setup(readings)
    first, *rest = readings
    cases = [one.case for one in readings]
    findings = examine_runs(cases, ask_or_say, [one.source for one in readings])
    if not any(one.whole for one in readings):  # a run that goes on may still make progress
        findings = [finding for finding in findings if finding.id not in OF_WHOLE_RUNS]
    findings += hints(cases, findings, ask_or_say) if with_hints else []
    diagnosis = Diagnosis(
        name=name or reading.source,
        reading=first,
        facts={**facts(first.case), **first.extra},
        findings=tuple(sorted(findings, key=importance)),
        others=tuple(rest),
    )
    if not with_hints or first.case.stages or not first.case.stage_rows or diagnosis.outcome == "sound":
        return diagnosis
    if diagnosis.counts().get("error"):
        return diagnosis  # that it failed, and of what, is known
    suspected = [one.case for one in readings if not rest or diagnose(one, with_hints=False).outcome != "sound"]
    if not suspected:
        return diagnosis
    runs = public_runs() if public is None else public
    like = [chances(case, runs) for case in suspected]
    led, *elsewhere = [leads(case, of_case, findings) for case, of_case in zip(suspected, like, strict=True)]
    shared = [lead for lead in led if all(lead.id in {one.id for one in others} for others in elsewhere)]
    return replace(diagnosis, findings=tuple(_in_order([*findings, *shared], like[0])))


def _in_order(findings: Sequence[Finding], like: Chances) -> list[Finding]:
    """By importance; of equal infos the likeliest cause first, whose odds count more where a rule or a hint says it.

    Leads are shown only among the first two.
    """

    def odds(one: Finding) -> float:
        if one.severity != "info":
            return 0.0
        return max(_WEIGHTS[one.basis] * like.odds(one.id), _LEAST_ODDS[one.basis])

    ordered = sorted(findings, key=lambda one: (*importance(one), -odds(one)))
    return [one for at, one in enumerate(ordered) if one.basis != "lead" or at < LEADS]


def ask_or_say(rule: Rule, case: Case, note: Callable[[str], None] | None = None) -> Sequence[Finding]:
    """What the rule says. One that fails must not cost what the others say: a finding says so, `note` the traceback."""
    try:
        return rule(case)
    except Exception as error:  # noqa: BLE001  the boundary around one rule
        if note is not None:
            note(traceback.format_exc())
        where = traceback.extract_tb(error.__traceback__)[-1]
        why = f"the rule {name_of_rule(rule)} failed on this log ({in_words(error)}); the others were asked"
        place = f"{Path(where.filename).name}:{where.lineno}"
        evidence = {"error": type(error).__name__, "at": place}
        return (
            Finding(id="diagnosis-failed", severity="warning", summary=why, evidence=evidence, confidence="certain"),
        )


def _covered(case: Case) -> Coverage:
    return coverage(case, tuple(RULES))


def _run_json(reading: Reading) -> dict[str, Any]:
    return {"source": reading.source, "kind": reading.kind, "facts": {**facts(reading.case), **reading.extra}}


def _bounded(reading: Reading) -> Reading:
    """The reading without numbers that no training computes in, and a note on them."""
    if not (count := reading.case.once(huge)):
        return reading
    note = f"{count} numbers are of {HUGE:g} or more: no training computes in such, each counts as no number"
    return replace(reading, case=bounded(reading.case), notes=(*reading.notes, note))


def _each_run(readings: Sequence[Reading]) -> list[Reading]:
    """The readings, one for each run: a source that holds several is several, with a note on it."""
    runs: list[Reading] = []
    for reading in readings:
        if not reading.further:
            runs.append(reading)
            continue
        first, *further = (replace(reading, further=()), *reading.further)
        names = ", ".join(harmless(one.run) for one in (first, *further))
        note = f"{1 + len(further)} runs ({names}), each judged by itself: shown_by says whose numbers a finding tells"
        runs += [replace(one, notes=(note, *one.notes)) for one in (first, *further)]
    return runs


def _tables_of_one_run(readings: Sequence[Reading]) -> list[Reading]:
    """The readings; as one where no two tell the same metric: tables of one run (rewards here, evaluations there)."""
    names = [name for one in readings for name in {name for row in one.case.rows for name in row} - {"step", "update"}]
    apart = len(set(names)) == len(names) and all(one.case.numbered and not one.case.samples for one in readings)
    if len(readings) == 1 or not apart:
        return list(readings)
    by_step: dict[float, dict[str, float | None]] = {}
    for one in readings:
        for row in one.case.rows:
            by_step.setdefault(row["step"] or 0.0, {}).update(row)
    first = readings[0]
    settings = _of_one_setup(readings)[0].case.settings
    rows = [by_step[step] for step in sorted(by_step)]
    shortest = min(one.case.averaged_over for one in readings)
    note = f"{len(readings)} sources tell different metrics: they are read as tables of one run"
    return [
        replace(
            first,
            case=replace(first.case, rows=rows, settings=settings, averaged_over=shortest),
            notes=tuple(dict.fromkeys([note, *(note for one in readings for note in one.notes)])),
            not_understood=tuple(unread for one in readings for unread in one.not_understood),
        )
    ]


def _of_one_setup(readings: Sequence[Reading]) -> list[Reading]:
    """The readings with the settings that only some of them state, where those agree."""
    shared: dict[str, Any] = {}
    for field in fields(Settings):
        values = {getattr(one.case.settings, field.name) for one in readings} - {None}
        if len(values) == 1 and field.name not in _OF_ONE_LOG:
            shared[field.name] = values.pop()
    return [replace(one, case=replace(one.case, settings=replace(one.case.settings, **shared))) for one in readings]


def _fact_rows(facts: Mapping[str, float]) -> list[tuple[str, str]]:
    names = [*(name for name in _MAIN_FACTS if name in facts), *(name for name in facts if name not in _MAIN_FACTS)]
    return [(name, number_text(facts[name])) for name in names]


def number_text(value: float) -> str:
    """A number in four digits, whole ones as they are."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (abs(value) < 1e15 and value == int(value)):
        return str(int(value))
    return f"{value:.4g}"


def evidence_numbers(finding: Finding) -> str:
    """The evidence that is numbers or a word, on one line."""
    return ", ".join(
        f"{key} {value if isinstance(value, str) else number_text(value)}"
        for key, value in finding.evidence.items()
        if isinstance(value, (int, float)) or (isinstance(value, str) and " " not in value)
    )


def evidence_texts(finding: Finding) -> list[tuple[str, list[str]]]:
    """(key, texts) of the evidence that is text: log lines above all. Long ones are cut, and many."""
    rows: list[tuple[str, list[str]]] = []
    for key, value in finding.evidence.items():
        if isinstance(value, str) and " " in value:
            rows.append((key, [_shortened(value)]))
        elif not isinstance(value, (str, int, float)) and value:
            more = [f"and {len(value) - _MOST_TEXTS} more"] if len(value) > _MOST_TEXTS else []
            rows.append((key, [*(_shortened(str(text)) for text in value[:_MOST_TEXTS]), *more]))
    return rows


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST_TEXT else f"{flat[: _LONGEST_TEXT - 1]}…"
