"""How often hints and leads name a cause of the kept public cases, and how often a blind reader of the same logs does.

    python -m benchmarks.wild_hints [FOLDER]

FOLDER (benchmarks/wild_cases) has the cases, and read_blind.csv: what a reader (a language model without any tool of
this project) bet on who saw a log's numbers and settings, or its text, and neither its source nor its label: failed or
healthy, and two causes. A bet counts as `wild` counts findings: one of two is a cause that the author told.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.public_runs import runs_of
from benchmarks.wild import WildCase, cases_of, elsewhere, outcome, readings_of
from core.health.finding import Finding
from core.health.likeness import LEADS, PublicRun, chances, leads
from core.health.statistics import wilson
from grpoctl.diagnose.diagnosis import diagnose
from grpoctl.diagnose.readers.base import Reading

FOLDER = Path(__file__).parent / "wild_cases"
BETS = "read_blind.csv"
CHANCES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6)  # where a line of the table of chances begins


@dataclass(frozen=True, kw_only=True, slots=True)
class Bet:
    """What a blind reader said of a case; `text`: of its raw log rather than of its numbers."""

    file: str
    text: bool
    failed: bool
    causes: tuple[str, ...]


def bets_of(table: Path) -> list[Bet]:
    """The rows of read_blind.csv."""
    with table.open(newline="", encoding="utf-8") as file:
        return [
            Bet(
                file=row["file"],
                text=row["read"] == "text",
                failed=row["verdict"] == "failed",
                causes=tuple(filter(None, (row["first"], row["second"]))),
            )
            for row in csv.DictReader(file)
        ]


def hinted(case: WildCase, folder: Path) -> list[str]:
    """The hints that the diagnosis gives of the case."""
    first, *others = readings_of(case, folder)
    return [one.id for one in diagnose(first, others=others, public=()).findings if one.basis == "hint"]


def led(case: WildCase, folder: Path) -> list[str]:
    """What the runs most like it failed by, asked of nothing else and of no run of its own repository."""
    first = readings_of(case, folder)[0].case
    return [lead.id for lead in leads(first, chances(first, elsewhere(case)), [])]


def lead_table(cases: Sequence[WildCase], folder: Path) -> Iterator[str]:
    """How often one of two leads is a cause that was told, beside the two causes that are told the most."""
    failed = [case for case in cases if not case.healthy]
    told = Counter(cause for case in failed for cause in set(case.causes))
    always = {cause for cause, _ in told.most_common(LEADS)}
    right = sum(not set(led(case, folder)).isdisjoint(case.causes) for case in failed)
    fixed = sum(not always.isdisjoint(case.causes) for case in failed)
    yield "| failed cases | one of two leads is a cause | one of the two usual ones is |"
    yield "|---|---|---|"
    usual = f"{_share(fixed, len(failed))} ({', '.join(sorted(always))})"
    yield f"| {len(failed)} | {_share(right, len(failed))} | {usual} |"


def _share(count: int, of: int) -> str:
    low, high = wilson(count / of, of)
    return f"{count} ({count / of:.0%}, Wilson 95 % {low:.0%} to {high:.0%})"


def earlier_table(cases: Sequence[WildCase], folder: Path) -> Iterator[str]:
    """What leads drawn from earlier sets name of a set, behind today's rules and hints, and behind warnings alone.

    Rules and hints were written by who had seen the older sets; no lead is drawn from what comes later.
    """
    yield "| set | failed | named | named without hints and infos |"
    yield "|---|---|---|---|"
    sets = [half for half in dict.fromkeys(case.half for case in cases) if half.startswith("measured")]
    for half in sets[1:]:
        failed = [case for case in cases if case.half == half and not case.healthy]
        first = next(at for at, case in enumerate(cases) if case.half == half)
        before = list(runs_of(cases[:first], folder))
        readings = [readings_of(case, folder) for case in failed]
        whole = [diagnose(first, others=others, public=before).findings for first, *others in readings]
        bare = [_bare(first, others, before) for first, *others in readings]
        named = [sum(map(_is_named, failed, found)) for found in (whole, bare)]
        yield f"| {half} | {len(failed)} | {named[0]} | {named[1]} |"


def _bare(first: Reading, others: Sequence[Reading], runs: Sequence[PublicRun]) -> Sequence[Finding]:
    """Errors and warnings, and leads."""
    found = diagnose(first, others=others, with_hints=False).findings
    grave = [one for one in found if one.severity != "info"]
    return [*grave, *leads(first.case, chances(first.case, runs), grave)]


def _is_named(case: WildCase, findings: Sequence[Finding]) -> bool:
    return outcome(case, "unknown", tuple((one.id, one.severity) for one in findings)).startswith("named")


def chance_table(cases: Sequence[WildCase], folder: Path) -> Iterator[str]:
    """What share of the causes that are given a chance were told, by the chance; own repositories are left out."""
    told: dict[float, list[tuple[float, bool]]] = {}
    for case in cases:
        if case.healthy:
            continue
        like = chances(readings_of(case, folder)[0].case, elsewhere(case))
        for cause, chance in like.of.items():
            limit = max(limit for limit in CHANCES if limit <= chance)
            told.setdefault(limit, []).append((chance, cause in case.causes))
    yield "| chance | causes | mean chance | share that was told |"
    yield "|---|---|---|---|"
    for limit in sorted(told):
        pairs = told[limit]
        mean, right = fmean(chance for chance, _ in pairs), fmean(right for _, right in pairs)
        yield f"| from {limit:.0%} | {len(pairs)} | {mean:.1%} | {right:.1%} |"


def hint_table(cases: Sequence[WildCase], folder: Path) -> Iterator[str]:
    """A line for each hint: failed cases that have it, those of them whose cause it is, healthy ones that have it."""
    given, right, healthy = Counter[str](), Counter[str](), Counter[str]()
    for case in cases:
        ids = hinted(case, folder)
        (healthy if case.healthy else given).update(ids)
        right.update(id_ for id_ in ids if id_ in case.causes)
    yield "| hint | failed cases that have it | it is a cause that was told | healthy cases that have it |"
    yield "|---|---|---|---|"
    for id_ in sorted({*given, *healthy}):
        yield f"| {id_} | {given[id_]} | {right[id_]} | {healthy[id_]} |"


def bet_table(cases: Sequence[WildCase], bets: Sequence[Bet]) -> Iterator[str]:
    """How often the blind reader was right, by what was read."""
    by_file = {";".join(case.files): case for case in cases}
    yield "| read | failed | a cause of two bets | healthy | bet on failed |"
    yield "|---|---|---|---|---|"
    for text, what in ((False, "numbers and settings"), (True, "the raw log")):
        read = [(by_file[bet.file], bet) for bet in bets if bet.text == text and bet.file in by_file]
        failed = [(case, bet) for case, bet in read if not case.healthy]
        named = sum(not set(bet.causes).isdisjoint(case.causes) for case, bet in failed)
        suspected = sum(bet.failed for case, bet in read if case.healthy)
        share = _share(named, len(failed)) if failed else "0"
        yield f"| {what} | {len(failed)} | {share} | {len(read) - len(failed)} | {suspected} |"


def main() -> None:
    """Print the tables."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    cases = cases_of(folder / "cases.csv")
    print("\n".join(hint_table(cases, folder)), end="\n\n")
    print("\n".join(lead_table(cases, folder)), end="\n\n")
    print("\n".join(chance_table(cases, folder)), end="\n\n")
    print("\n".join(earlier_table(cases, folder)), end="\n\n")
    print("\n".join(bet_table(cases, bets_of(folder / BETS))))


if __name__ == "__main__":
    main()
