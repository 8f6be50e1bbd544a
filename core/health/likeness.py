"""What failed public runs with the looks of a log failed by, as their authors said: a chance for each cause.

Rules look for a cause; this asks what runs of the same looks died of. A run's looks are its signs, some sixty
observations by round limits (the reward is flat, a KL above 0.1, groups of two, no evaluations), and which causes it
looks like first (looks). The chance of a cause is naive Bayes' of the signs that the log has and those that it has not,
with a quarter of their evidence, since signs are not independent, and of the cause's place among the looks, with half.
What is said of it is a bet, and only for whoever knows that the run failed: sound runs look like failed ones, too. How
often such bets are right is in docs/diagnosing.md, that a chance is what it says in decision 35.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from core.health.case import Case, Settings
from core.health.finding import Finding
from core.health.looks import looks_like
from core.health.statistics import series, thirds, trend
from core.health.steps import held_out_rose, learns_from_samples, values_of

SMOOTHED = 5.0  # runs that are added, with each sign as often as among all
WEIGHED = 0.25  # of what signs say
WEIGHED_LOOKS = 0.5  # of what the place among the looks says
PLACES = 3  # of the looks that count
CERTAIN = 1e-3  # from a share of 0 or 1, at least
SELDOM = 0.05  # a chance: less is no lead
LEADS = 2  # findings that are worth a look, those of rules and hints included
SHOWN = 3  # signs that a lead names


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicRun:
    """A run that failed: the causes that its author told, as ids of findings, and its signs."""

    source: str
    causes: frozenset[str]
    signs: frozenset[str]
    looks: tuple[str, ...] = ()  # the causes that it looks like, the first of them


@dataclass(frozen=True, kw_only=True, slots=True)
class Thirds:
    """A column's values, and the means of the first and the last third of them."""

    values: Sequence[float]
    early: float
    late: float

    @property
    def mean(self) -> float:
        """Over all rows."""
        return fmean(self.values)


Sign = Callable[[Thirds], bool]
_IN_UNIT: Sign = lambda c: min(c.values) >= 0 and max(c.values) <= 1  # noqa: E731
# column -> sign -> whether its course has it; that there is such a column is a sign, too
OF_COLUMNS: Mapping[str, Mapping[str, Sign]] = {
    "reward/mean": {
        "between 0 and 1": _IN_UNIT,
        "low": lambda c: _IN_UNIT(c) and c.mean < 0.1,
        "middle": lambda c: _IN_UNIT(c) and c.mean >= 0.1 and c.late <= 0.9,
        "high at the end": lambda c: _IN_UNIT(c) and c.late > 0.9,
        "negative": lambda c: min(c.values) < 0,
        "0 at the end": lambda c: c.late == 0,
        "0 throughout": lambda c: max(map(abs, c.values)) == 0,
    },
    "kl": {
        "negative": lambda c: min(c.values) < 0,
        "below 0.001": lambda c: c.late < 1e-3,
        "above 0.1": lambda c: c.late >= 0.1,
        "above 1": lambda c: c.late >= 1,
    },
    "entropy": {
        "below 0.1": lambda c: c.late < 0.1,
        "fell": lambda c: c.late < 0.4 * c.early,
        "rose": lambda c: c.late > 1.5 * c.early,
    },
    "grad_norm": {
        "0": lambda c: max(c.values) == 0,
        "above 50": lambda c: median(c.values) > 50,
        "rose": lambda c: c.late > 3 * c.early,
    },
    "groups/dead": {
        "a fifth": lambda c: c.mean >= 0.2,
        "half": lambda c: c.mean >= 0.5,
        "rose": lambda c: c.late > c.early + 0.15,
    },
    "completions/truncated": {
        "a tenth": lambda c: c.mean >= 0.1,
        "half": lambda c: c.mean >= 0.5,
        "rose": lambda c: c.late > c.early + 0.1,
    },
    "completions/length": {"rose": lambda c: c.late > 1.5 * c.early, "fell": lambda c: c.late < 0.6 * c.early},
    "completions/valid": {},
    "eval/reward": {
        "rose": lambda c: held_out_rose(c.values[0], c.values[-1]),
        "fell": lambda c: c.values[-1] < c.values[0] - 0.02,
    },
    "rewards/accuracy": {"0": lambda c: max(c.values) < 0.02, "fell": lambda c: c.late < 0.8 * c.early},
    "rewards/format": {},
    "loss": {},
    "policy/clip_share": {},
}
OF_SETTINGS: Mapping[str, Callable[[Settings], bool]] = {
    "groups of 1 or 2": lambda s: s.num_generations is not None and s.num_generations <= 2,
    "groups of 3 or 4": lambda s: s.num_generations is not None and 2 < s.num_generations <= 4,
    "groups of 8 or more": lambda s: s.num_generations is not None and s.num_generations >= 8,
    "learning rate 2e-5 or more": lambda s: s.learning_rate is not None and s.learning_rate >= 2e-5,
    "learning rate 1e-6 or less": lambda s: s.learning_rate is not None and s.learning_rate <= 1e-6,
}


# cause -> the column that would show it, and the signs of which it then has one: without them it is no lead.
SHOWN_BY: Mapping[str, tuple[str, frozenset[str]]] = {
    cause: (column, frozenset(f"{column}: {name}" for name in names))
    for cause, column, *names in (
        ("dead-groups", "groups/dead", "a fifth", "rose"),
        ("dead-run", "reward/mean", "0 at the end", "0 throughout"),
        ("constant-reward", "reward/mean", "0 at the end", "0 throughout", "flat"),
        ("kl-runaway", "kl", "above 0.1", "negative"),
        ("negative-kl", "kl", "negative"),
        ("entropy-collapse", "entropy", "fell", "below 0.1"),
        ("truncation", "completions/truncated", "a tenth", "rose"),
        ("no-gradient", "grad_norm", "0"),
        ("grad-explosion", "grad_norm", "above 50", "rose"),
    )
}
RISES = "reward/mean: rises"
NOT_BESIDE: Mapping[str, frozenset[str]] = {  # cause -> signs against it
    "policy-collapse": frozenset({RISES, "reward/mean: rose in few rows"}),
    "noise": frozenset({RISES}),
    "no-gain": frozenset({"eval/reward: rose", "reward/mean: high at the end"}),
}
BY_RULES = ("numerical",)  # what is seen where it is


def speaks_against(cause: str, has: frozenset[str], case: Case) -> bool:
    """Whether the log itself shows that this was not its cause."""
    column, shown = SHOWN_BY.get(cause, ("", frozenset()))
    return (
        cause in BY_RULES
        or (cause == "dead-groups" and case.settings.beyond_the_group)
        or bool(NOT_BESIDE.get(cause, frozenset()) & has)
        or (column in has and not shown & has)
    )


def signs(case: Case) -> frozenset[str]:
    """The signs that the case has."""
    rows = case.stage_rows
    found = {f"{count} rows or fewer" for count in (3, 8, 20) if len(rows) <= count}
    found |= {"100 rows or more"} if len(rows) >= 100 else set()
    parts = {name for row in rows for name in row if name.startswith("rewards/")}
    found |= {"several parts of a reward"} if len(parts) > 1 else set()
    found |= {name for name, holds in OF_SETTINGS.items() if holds(case.settings)}
    for column, of_column in OF_COLUMNS.items():
        values = values_of(case.rows if column.startswith("eval/") else rows, column)
        if not values:
            found |= {"no reward"} if column == "reward/mean" else set()
            continue
        early, late = thirds(values)
        told = Thirds(values=values, early=early, late=late)
        found |= {column} | {f"{column}: {name}" for name, holds in of_column.items() if holds(told)}
    return frozenset(found | _way_of_the_reward(case))


def _way_of_the_reward(case: Case) -> set[str]:
    """Whether the reward rises, by a line's standard errors, or of few rows by a tenth."""
    points = series(case.stage_rows, "reward/mean")
    if not points:
        return set()
    line, (early, late) = trend(points), thirds([value for _, value in points])
    if line is None:
        felt = 0.1 * abs(early)
        way = "rose" if late - early > felt else "fell" if early - late > felt else "stood"
        return {f"reward/mean: {way} in few rows"}
    ways = {"flat": abs(line.z) < 2, "rises": line.z >= 3.5, "falls": line.z <= -3.5}
    return {f"reward/mean: {way}" for way, holds in ways.items() if holds}


@dataclass(frozen=True, kw_only=True, slots=True)
class Chances:
    """How often failed runs with a log's signs failed by each cause."""

    of: Mapping[str, float]  # cause -> chance
    by: Mapping[str, Sequence[str]]  # cause -> the log's signs that speak for it, of each column the clearest, in order
    usual: Counter[str]  # cause -> how many of all runs had it
    runs: int  # of all

    def odds(self, cause: str) -> float:
        """Of a cause that no run had: 0."""
        chance = min(self.of.get(cause, 0.0), 1 - CERTAIN)
        return chance / (1 - chance)


def chances(case: Case, runs: Sequence[PublicRun]) -> Chances:
    """The chance of each cause that the runs had; none where the log is of no policy that learns from its own samples.

    Odds of a cause times, for each sign, its share among runs of that cause over its share among the others (of a sign
    that the log has not: of the shares that lack it), to the power of WEIGHED; likewise for its place among the looks.
    """
    looks = looks_like(case)[:PLACES]
    usual = Counter(cause for run in runs for cause in run.causes)
    spread = Counter(sign for run in runs for sign in run.signs)
    has = signs(case)
    of: dict[str, float] = {}
    by: dict[str, Sequence[str]] = {}
    for cause, count in usual.items() if learns_from_samples(case.rows) else ():
        among = Counter(sign for run in runs if cause in run.causes for sign in run.signs)
        says = {sign: _says(among[sign], count, spread[sign], len(runs), is_there=sign in has) for sign in spread}
        log_odds = math.log((count + 0.5) / (len(runs) - count + 0.5)) + WEIGHED * math.fsum(says.values())
        log_odds += WEIGHED_LOOKS * _place_says(cause, count, looks, runs)
        of[cause] = 1 / (1 + math.exp(-log_odds))
        clearest = sorted((sign for sign in has if says.get(sign, 0.0) > 0), key=lambda sign: (-says[sign], sign))
        of_column: dict[str, str] = {}
        for sign in clearest:
            of_column.setdefault(sign.partition(":")[0], sign)
        by[cause] = list(of_column.values())
    return Chances(of=of, by=by, usual=usual, runs=len(runs))


def _place_says(cause: str, count: int, looks: Sequence[str], runs: Sequence[PublicRun]) -> float:
    """What it says for a cause that the log looks like it first, second, third, or less."""
    place = _place(cause, looks)
    there = [cause in run.causes for run in runs if _place(cause, run.looks) == place]
    return _says(sum(there), count, len(there), len(runs), is_there=True)


def _place(cause: str, looks: Sequence[str]) -> int:
    return looks.index(cause) if cause in looks else PLACES


def _says(among: int, causes: int, spread: int, runs: int, *, is_there: bool) -> float:
    """What one sign says for a cause: the log of how much more usual it is (or its lack) among runs with that cause."""
    share = spread / runs
    with_it = _share(among + SMOOTHED * share, causes + SMOOTHED)
    without = _share(spread - among + SMOOTHED * share, runs - causes + SMOOTHED)
    return math.log(with_it / without) if is_there else math.log((1 - with_it) / (1 - without))


def _share(count: float, of: float) -> float:
    return min(max(count / of, CERTAIN), 1 - CERTAIN)


def leads(case: Case, like: Chances, findings: Sequence[Finding]) -> list[Finding]:
    """What runs like this one failed by, as infos, the likeliest LEADS of them.

    No lead is of what a finding has or rules out, of what the log itself speaks against, or seldom.
    """
    settled = {one.id for one in findings} | {cause.id for one in findings for cause in one.rules_out}
    has = signs(case)
    open_ = [
        cause
        for cause in sorted(like.of, key=lambda cause: (-like.of[cause], -like.usual[cause], cause))
        if like.of[cause] >= SELDOM and cause not in settled and not speaks_against(cause, has, case)
    ]
    return [_lead(cause, like, rises=RISES in has) for cause in open_[:LEADS]]


def _lead(cause: str, like: Chances, *, rises: bool) -> Finding:
    chance, usual = like.of[cause], like.usual[cause]
    usually = usual / like.runs
    where = " (the training reward rises: it would be on held-out prompts)" if cause == "no-gain" and rises else ""
    signs_for = like.by[cause][:SHOWN] if chance > usually else []
    for_it = f"; what speaks most for it: {', '.join(signs_for)}" if signs_for else ""
    rarer = "" if chance > usually else ", so no more often than usual"
    return Finding(
        id=cause,
        severity="info",
        summary=(
            f"if this run failed{where}: about {chance:.0%} of failed public runs with such a log had this cause by "
            f"what their authors say ({usual} of all {like.runs}, {usually:.0%}{rarer}){for_it}; nothing in this log "
            "says so itself"
        ),
        evidence={"chance": round(chance, 3), "runs": like.runs, "runs_with_this_cause": usual},
        advice=f"log what would show it: docs/rules.md, {cause}",
        confidence="weak",
        basis="lead",
    )
