"""Whether one configuration is really better than another, or whether that is noise: a `Comparison` of sides.

A side is the runs of one spec, one per seed. What is here: the numbers of each side, their differences at equal
completions and at the end, and the verdict with what would change it. What is not: intervals (contrasts), what must be
said besides (caveats), reading and choosing runs (collect), printing (grpoctl.cli.compare).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from string import ascii_uppercase
from typing import Any

from core.errors import UserError
from core.health.rules.gains import HEADLINE, Gain, Ruler, gain_since, mean_gain, stage_gains
from core.health.statistics import Difference, Estimate, clipped, mean_interval
from core.metrics import EVAL, RUN, limits
from grpoctl.analysis.agreement import Agreement, agreement
from grpoctl.analysis.baselines import Reached, means_over_seeds
from grpoctl.analysis.caveats import (
    Changed,
    Runs,
    changed_settings,
    findings_of,
    inert_settings,
    measured_by,
    notes,
    unsound,
)
from grpoctl.analysis.collect import RunRecord, number
from grpoctl.analysis.contrasts import Contrast, Outcomes, clip, contrasts
from grpoctl.analysis.curves import Curve, axis_of, curve_value, mean_curve
from grpoctl.analysis.outcome import ruler_of
from grpoctl.analysis.problems import Answers, outcomes, passes
from grpoctl.wording import BEST, label, metric_text, plural

_EVAL = tuple(metric.name for metric in EVAL if metric.name != "eval/reward_se")  # a precision, not an outcome
_RUN = tuple(dict.fromkeys([*(metric.name for metric in RUN), "completions", "seconds"]))
MOST_SIDES = len(ascii_uppercase)
SAME_BUDGET = 0.01  # budgets that differ by no more are equal
SEEDS_ALIKE = "the seeds of each side gave the same numbers"


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """The sound runs of one side, in the order of their seeds; all of its runs where none is sound."""

    letter: str
    name: str  # the recorded revision, e.g. p31@1, or the trial
    profile: str
    seeds: tuple[int, ...]
    run_ids: tuple[str, ...]
    statuses: tuple[str, ...]
    curve: Curve
    excluded: Mapping[str, str] = field(default_factory=dict)  # id of an unsound run -> why
    sound: bool = True  # False: no run is, and its numbers are its sampler's
    completions: float | None = None  # that a run of it drew at most
    fewest: float | None = None  # that any of its runs drew

    @property
    def key(self) -> str:
        """What it goes by in documents: a, b, ..."""
        return self.letter.lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One metric on every side, by its key; None where none of a side's runs has it.

    Of two sides that have it also the difference.
    """

    estimates: Mapping[str, Estimate | None]
    difference: Difference | None

    def document(self) -> dict[str, object]:
        """The row as JSON has it: every side with `mean`, `interval` and `n`, null where it has no value."""
        empty: dict[str, object] = {"mean": None, "interval": None, "n": 0}
        no_difference: dict[str, object] = {"mean": None, "interval": None, "method": "none"}
        rows: dict[str, object] = {key: asdict(of) if of else empty for key, of in self.estimates.items()}
        if len(rows) > 2:
            return rows
        return {**rows, "difference": asdict(self.difference) if self.difference else no_difference}


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The headline metric where the sides are compared: at equal completions, or at the end of each run.

    A side that the others are judged without has no mean and no contrast.
    """

    completions: float | None  # None: at the end
    means: tuple[float | None, ...]  # of each side
    contrasts: Mapping[tuple[int, int], Contrast]  # (place of A, place of B) -> B minus A

    @property
    def best(self) -> int | None:
        """The side with the highest mean."""
        known = [(value, -place) for place, value in enumerate(self.means) if value is not None]
        return -max(known)[1] if known else None

    def over(self, best: int, other: int) -> Contrast:
        """How much `best` is above `other`."""
        return self.contrasts[other, best] if other < best else _turned(self.contrasts[best, other])

    def document(self) -> dict[str, Any]:
        """As JSON has it: a contrast is of the first key against the second, `b-a`."""
        return {
            "at": "end" if self.completions is None else "equal_completions",
            "completions": self.completions,
            "means": {ascii_uppercase[place].lower(): value for place, value in enumerate(self.means)},
            "contrasts": {
                f"{ascii_uppercase[b]}-{ascii_uppercase[a]}".lower(): made.document()
                for (a, b), made in self.contrasts.items()
            },
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Everything that can be said of the sides; a metric's plain name means its final value, `best/` its best."""

    sides: tuple[Side, ...]
    changed: Changed
    inert: Mapping[str, str]
    metrics: Mapping[str, Row]
    places: tuple[Place, ...]  # that of the verdict first
    notes: tuple[str, ...]
    verdict: str
    would_change: tuple[str, ...]
    findings: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(
        default_factory=dict
    )  # side -> id -> severity and runs
    stages: Mapping[str, Mapping[str, Gain]] = field(default_factory=dict)  # side -> stage -> mean gain over its runs
    baselines: Mapping[str, Reached] = field(default_factory=dict)  # side -> what it reached beside baselines
    agreement: Agreement = field(default_factory=Agreement)
    axis: str = "completions"  # what the curves are over
    left_out: Mapping[str, str] = field(default_factory=dict)  # side -> why the others are judged without it

    def document(self) -> dict[str, object]:
        """The JSON document of `grpoctl compare --json`."""
        return {
            "schema": 1,
            "verdict": self.verdict,
            "would_change": list(self.would_change),
            "left_out": dict(self.left_out),
            "sides": {
                side.key: {
                    "name": side.name,
                    "profile": side.profile,
                    "seeds": list(side.seeds),
                    "statuses": list(side.statuses),
                    "sound": side.sound,
                    "excluded": dict(side.excluded),
                    "completions": side.completions,
                }
                for side in self.sides
            },
            "changed": {key: list(values) for key, values in self.changed.items()},
            "inert": dict(self.inert),
            "places": [place.document() for place in self.places],
            "metrics": {name: row.document() for name, row in self.metrics.items()},
            "runs": {side.key: list(side.run_ids) for side in self.sides},
            "stages": {
                key: {name: gain.document() for name, gain in gains.items()} for key, gains in self.stages.items()
            },
            "findings": {key: dict(counts) for key, counts in self.findings.items()},
            "baselines": {key: dict(reached) for key, reached in self.baselines.items()},
            **self.agreement.document(),
            "notes": list(self.notes),
        }


def compare(*sides: Runs) -> Comparison:
    """The comparison of two or more sides, each the runs of one spec, one per seed.

    Raises UserError for an empty side, for sides of different profiles or tasks, and for a side that mixes specs.
    """
    if not 2 <= len(sides) <= MOST_SIDES:
        raise UserError(f"got {plural(len(sides), 'side')}; 2 to {MOST_SIDES} can be compared")
    kept = [_kept(letter, runs) for letter, runs in zip(ascii_uppercase, sides, strict=False)]
    axis = axis_of([run for runs in kept for run in runs])
    described = [
        _side(letter, runs, every, axis) for letter, runs, every in zip(ascii_uppercase, kept, sides, strict=False)
    ]
    _refuse_unlike(described, kept)
    changed = changed_settings(*(runs[0].spec for runs in kept))
    inert = inert_settings(kept, changed)
    answers = [[Answers(run) for run in runs] for runs in kept]
    left_out = _without(described, kept)
    judged = [place for place, side in enumerate(described) if side.key not in left_out]
    places = _places(kept, answers, judged)
    keyed = [(side.key, runs) for side, runs in zip(described, kept, strict=True)]
    return Comparison(
        sides=tuple(described),
        changed=changed,
        inert=inert,
        metrics=_metrics(kept, answers),
        places=places,
        notes=(*_unsound_runs(described, left_out), *notes(kept, changed, inert, judged)),
        findings={side.key: findings_of(every) for side, every in zip(described, sides, strict=True)},
        stages={key: _stage_gains(runs) for key, runs in keyed},
        baselines={key: means_over_seeds([run.result for run in runs]) for key, runs in keyed},
        agreement=agreement(*kept) if len(kept) == 2 else Agreement(),
        axis=axis,
        left_out=left_out,
        verdict=_with_measure(_verdict(described, places, left_out), changed),
        would_change=tuple(_would_change(described, places, judged)),
    )


def _kept(letter: str, runs: Runs) -> list[RunRecord]:
    """The sound runs of a side by their seeds, or all of them where none is sound."""
    if not runs:
        raise UserError(f"side {letter} has no runs; name an experiment or runs that have ended (see: grpoctl ls)")
    for key in ("profile", "spec_sha"):
        kinds = sorted({str(run.result[key]) for run in runs})
        if len(kinds) > 1:
            raise UserError(f"side {letter} mixes runs of different {key} ({', '.join(kinds)}); name runs of one spec")
    runs = sorted(runs, key=lambda run: run.seed)
    seeds = [run.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        raise UserError(f"side {letter} has a seed twice ({', '.join(map(str, seeds))}); name one run per seed")
    return [run for run in runs if unsound(run) is None] or list(runs)


def _side(letter: str, runs: Runs, every: Runs, axis: str) -> Side:
    why = {run.run_id: reason for run in every if (reason := unsound(run)) is not None}
    sound = len(why) < len(every)
    first = runs[0].result
    drawn = [count for run in runs if (count := run.value("completions")) is not None]
    name = runs[0].trial or label(first)  # a trial's overrides are the sweep's and would be a line of their own
    return Side(
        letter=letter,
        name=name,
        profile=str(first["profile"]),
        seeds=tuple(run.seed for run in runs),
        run_ids=tuple(run.run_id for run in runs),
        statuses=tuple(run.status for run in runs),
        curve=Curve(label=f"{letter} {name}", points=mean_curve(runs, HEADLINE, axis)),
        excluded=why,
        sound=sound,
        completions=max(drawn, default=None),
        fewest=min(drawn, default=None),
    )


def _refuse_unlike(sides: Sequence[Side], runs: Sequence[Runs]) -> None:
    first, task = sides[0], runs[0][0]
    for side, of_side in zip(sides[1:], runs[1:], strict=True):
        if side.profile != first.profile:
            raise UserError(
                f"A ran under profile {first.profile}, {side.letter} under {side.profile}: profiles are not mixed; "
                f"run one again with --profile {first.profile}"
            )
        if not (other := of_side[0]).is_of_task(task):
            names = task.task, other.task
            if names[0] == names[1]:
                names = f"{names[0]} data and rewards", "other data and rewards"
            raise UserError(
                f"A was trained on {names[0]}, {side.letter} on {names[1]}: rewards of different tasks are not "
                "comparable; compare runs of one task"
            )


def _without(sides: Sequence[Side], runs: Sequence[Runs]) -> dict[str, str]:
    """Side -> why the others are judged without it; none where fewer than two others would be left."""
    why = {side.key: f"no run of {side.letter} is sound" for side in sides if not side.sound}
    for side, of_side in zip(sides, runs, strict=True):
        if side.sound and not _by_seed(of_side, HEADLINE, "final"):
            why[side.key] = f"{side.letter} has no {HEADLINE}"
    return why if len(sides) - len(why) >= 2 else {}


def _drawn(side: Side) -> str:
    """The completions of each run of a side; of runs that drew unlike many the fewest and the most."""
    fewest, most = (metric_text("completions", count) for count in (side.fewest, side.completions))
    return most if fewest == most else f"{fewest} to {most}"


def _unsound_runs(sides: Sequence[Side], left_out: Mapping[str, str]) -> Iterator[str]:
    """The runs that are not in the numbers, and sides none of whose runs is sound."""
    for side in sides:
        shown = ", ".join(f"{run} ({why})" for run, why in side.excluded.items())
        if not side.sound:
            so = f"it is left out of the verdict: {shown}" if side.key in left_out else "there is no verdict"
            yield (
                f"every run of {side.letter} is unsound: its numbers are of its sampler, not of what it trained, and "
                f"{so}"
            )
        elif side.excluded:
            yield f"{side.letter}: {plural(len(side.excluded), 'unsound run')} left out: {shown}"


def run_gain(runs: Sequence[RunRecord]) -> Gain:
    """The mean gain over runs of one spec, from their first evaluation to their last."""
    ruler = _ruler(runs)
    return mean_gain([gain_since(_rows(run), run.stages, run.stages[0], ruler) for run in runs if run.stages], ruler)


def _stage_gains(runs: Sequence[RunRecord]) -> dict[str, Gain]:
    """The mean gain of each stage over the runs of a side, by their rows."""
    names, ruler = runs[0].stages, _ruler(runs)
    gains = [stage_gains(_rows(run), names, ruler) for run in runs]
    return {name: mean_gain([of_run[name] for of_run in gains], ruler) for name in names}


def _ruler(runs: Sequence[RunRecord]) -> Ruler:
    """How the gains of runs of one spec are measured."""
    of_result, prompts = ruler_of(runs[0].result), number(runs[0].spec.get("task.eval_prompts"))
    if runs[0].result.get("eval_clusters") or prompts is None:
        return of_result
    return replace(of_result, prompts=int(prompts))


def _rows(run: RunRecord) -> list[dict[str, float | None]]:
    return [{key: number(value) for key, value in row.items()} for row in run.rows]


def _metrics(sides: Sequence[Runs], answers: Sequence[Sequence[Answers]]) -> dict[str, Row]:
    """Every metric that a side has: final evaluations, pass@k, best evaluations, then the whole run's."""
    rows = {name: _row(sides, answers, name, "final") for name in _EVAL}
    most = min((of.last.draws for side in answers for of in side if of.last is not None), default=0)
    k = 1
    while most > 1 and k <= most:
        known = [made for side in answers if (made := passes(side, k)) is not None]
        if len(known) == len(answers) and any(made.mean > 0 for made in known):  # else nothing was right on any side
            rows[f"eval/pass@{k}"] = _row_of(known, (0.0, 1.0))
        k *= 2
    rows |= {BEST + name: _row(sides, answers, name, "best") for name in _EVAL}
    rows |= {name: _row(sides, answers, name, "final") for name in _RUN}
    return {name: row for name, row in rows.items() if any(row.estimates.values())}


def _row(sides: Sequence[Runs], answers: Sequence[Sequence[Answers]], name: str, part: str) -> Row:
    """A metric by its value in each run, and by what its final evaluation came to problem by problem."""
    found = []
    for side, of_side in zip(sides, answers, strict=True):
        values = _by_seed(side, name, part)
        recorded = part == "final" and name.startswith("eval/")
        found.append(outcomes(of_side, name, values) if recorded else Outcomes(values=values))
    return _row_of(found, limits(name, ruler_of(sides[0][0].result).reward_range))


def _row_of(found: Sequence[Outcomes], bounds: tuple[float | None, float | None]) -> Row:
    low, high = bounds
    estimates: dict[str, Estimate | None] = {}
    for letter, of_side in zip(ascii_uppercase, found, strict=False):
        estimate = mean_interval(list(of_side.values.values())) if of_side.n else None
        if estimate is not None and estimate.interval is not None:
            within = None if of_side.seeds_alike else clipped(estimate.interval, low, high)
            estimate = replace(estimate, interval=within)
        estimates[letter.lower()] = estimate
    difference = None
    if len(found) == 2 and all(of_side.n for of_side in found):
        made = clip(contrasts(found)[0, 1], low, high)
        difference = Difference(mean=made.mean, interval=made.interval, method=made.method)
    return Row(estimates=estimates, difference=difference)


def _by_seed(runs: Runs, name: str, part: str) -> dict[int, float]:
    values = {run.seed: run.value(name, part) for run in runs}
    return {seed: value for seed, value in values.items() if value is not None}


def _places(runs: Sequence[Runs], answers: Sequence[Sequence[Answers]], judged: Sequence[int]) -> tuple[Place, ...]:
    """Where the sides are compared: at equal completions where runs were given unlike many, and at the end."""
    end = _place(runs, answers, [_by_seed(of_side, HEADLINE, "final") for of_side in runs], None, judged)
    budgets = [run.value("completions") for place in judged for run in _of_full_budget(runs[place])]
    known = [budget for budget in budgets if budget]
    if len(known) < len(budgets) or max(known) - min(known) <= SAME_BUDGET * max(known):
        return (end,)
    common = min(known)
    values = [
        {run.seed: value for run in of_side if (value := curve_value(run, HEADLINE, common)) is not None}
        for of_side in runs
    ]
    return (_place(runs, answers, values, common, judged), end)


def _of_full_budget(runs: Runs) -> Runs:
    """The runs of a side that spent what they were given, one that was pruned too; all where each ended of itself."""
    whole = [run for run in runs if run.status in ("COMPLETED", "PRUNED")]
    return whole or runs


def _place(
    runs: Sequence[Runs],
    answers: Sequence[Sequence[Answers]],
    values: Sequence[Mapping[int, float]],
    completions: float | None,
    judged: Sequence[int],
) -> Place:
    found = [
        outcomes(of_side, HEADLINE, of if place in judged else {}, completions)
        for place, (of_side, of) in enumerate(zip(answers, values, strict=True))
    ]
    low, high = limits(HEADLINE, ruler_of(runs[0][0].result).reward_range)
    made = {pair: clip(one, low, high) for pair, one in contrasts(found).items()}
    return Place(completions=completions, means=tuple(of.mean if of.n else None for of in found), contrasts=made)


def _turned(made: Contrast) -> Contrast:
    """A minus B."""
    odds = made.improvement
    flipped = replace(
        odds,
        value=1 - odds.value,
        interval=None if odds.interval is None else (1 - odds.interval[1], 1 - odds.interval[0]),
    )
    turned = {
        name: None if bounds is None else (-bounds[1], -bounds[0])
        for name, bounds in (("interval", made.interval), ("family", made.family))
    }
    return replace(
        made,
        mean=-made.mean,
        improvement=flipped,
        seeds=(made.seeds[1], made.seeds[0]),
        **turned,  # type: ignore[arg-type]
    )


def _verdict(sides: Sequence[Side], places: Sequence[Place], left_out: Mapping[str, str]) -> str:
    """Which side is better on the headline metric, with the interval, or why that cannot be said."""
    judged = [place for place, side in enumerate(sides) if side.key not in left_out]
    bad = [sides[place].letter for place in judged if not sides[place].sound]
    if bad:
        return f"no verdict: no run of {' and '.join(bad)} is sound; compare a side that is"
    first = places[0]
    missing = [sides[place].letter for place in judged if first.means[place] is None]
    if missing:
        verb = "has" if len(missing) == 1 else "have"
        return f"no verdict: {' and '.join(missing)} {verb} no {HEADLINE}"
    texts = [_two(sides, place, judged) if len(judged) == 2 else _many(sides, place, judged) for place in places]
    text = texts[0]
    if len(places) > 1:
        shown = ", ".join(f"{sides[at].letter} {_drawn(sides[at])}" for at in judged)
        common = metric_text("completions", first.completions)
        text = f"at {common} completions each: {texts[0]}; at the end ({shown}): {texts[1]}"
    return f"{text}; left out: {', '.join(left_out.values())}" if left_out else text


def _with_measure(verdict: str, changed: Changed) -> str:
    """The verdict, behind what it is worth where the sides' problems or rewards differ."""
    keys = measured_by(changed)
    if not keys or verdict.startswith("no verdict"):
        return verdict
    return f"{HEADLINE} is not the same measure on the sides ({', '.join(keys)}); as it stands: {verdict}"


def _two(sides: Sequence[Side], place: Place, judged: Sequence[int]) -> str:
    a, b = judged
    gap = place.contrasts[a, b]
    seeds, minus = _seeds_text(gap), f"{sides[b].letter} - {sides[a].letter}"
    if gap.seeds_alike:
        return f"no significance test ({seeds}): {minus} is {_signed(gap.mean)} on {HEADLINE}, and {SEEDS_ALIKE}"
    if gap.family is None:
        return (
            f"no significance test ({seeds.replace('n=1 seeds', 'n=1 seed')}): {minus} is {_signed(gap.mean)} on "
            f"{HEADLINE}, without an interval; run more seeds, e.g. with --seeds 0,1,2"
        )
    low, high = gap.family
    if not gap.clear:
        span = f"[{_signed(low)}, {_signed(high)}]"
        return f"no significant difference: {minus} is {_signed(gap.mean)} {span} on {HEADLINE} ({_how(gap)}, {seeds})"
    better = sides[b] if low > 0 else sides[a]
    smaller, larger = sorted((abs(low), abs(high)))
    span = f"[{metric_text(HEADLINE, smaller)}, {metric_text(HEADLINE, larger)}]"
    size = metric_text(HEADLINE, abs(gap.mean))
    return f"{better.letter} ({better.name}) is better by {size} {span} on {HEADLINE} ({_how(gap)}, {seeds})"


def _many(sides: Sequence[Side], place: Place, judged: Sequence[int]) -> str:
    """The best side, those it beats, and those that it cannot be told apart from."""
    best = place.best
    assert best is not None
    name = f"{sides[best].letter} ({sides[best].name})"
    every = {other: place.over(best, other) for other in judged if other != best}
    over = {other: gap for other, gap in every.items() if gap.family is not None}
    few = {other: gap for other, gap in every.items() if gap.family is None and not gap.seeds_alike}
    if not over and not few:
        return f"no significance test: {SEEDS_ALIKE}; {name} has the highest {HEADLINE}"
    untested = _one_seed(sides, few, best) if few else f"against some sides {SEEDS_ALIKE}"
    if not over:
        return f"no significance test: {untested}; {name} has the highest {HEADLINE}; run more seeds"
    rest = f"; not tested: {untested}" if len(over) < len(every) else ""
    beaten = [sides[other].letter for other, gap in over.items() if gap.clear]
    alike = [sides[other].letter for other, gap in over.items() if not gap.clear]
    nearest = min(over.values(), key=lambda gap: gap.mean)
    pairs = (len(over) + 1) * len(over) // 2
    at_once = f"95 % for all {pairs} differences at once" if pairs > 1 else "95 %"
    how = f"({at_once}, {_how(nearest)}, {_seeds_text(nearest)}){rest}"
    if not beaten:
        others = "none of the others is ruled out" if len(alike) > 1 else f"{alike[0]} is not ruled out"
        return f"no significant difference: {name} has the highest {HEADLINE}, and {others} {how}"
    text = f"{name} is better on {HEADLINE} than {', '.join(beaten)}"
    if alike:
        return f"{text}, and not told apart from {', '.join(alike)} {how}"
    assert nearest.family is not None
    span = ", ".join(metric_text(HEADLINE, bound) for bound in nearest.family)
    return f"{text}: than the nearest by {metric_text(HEADLINE, nearest.mean)} [{span}] {how}"


def _one_seed(sides: Sequence[Side], over: Mapping[int, Contrast], best: int) -> str:
    """Which sides have one value to compare, so that nothing tells how other seeds would do."""
    few = {place for place, gap in over.items() if gap.seeds[0] < 2} | {
        best for gap in over.values() if gap.seeds[1] < 2
    }
    letters = [sides[place].letter for place in sorted(few)]
    return f"{', '.join(letters)} {'has' if len(letters) == 1 else 'have'} one seed"


def _how(gap: Contrast) -> str:
    if gap.problems is None:
        return gap.method
    return "paired by seed and problem" if gap.method == "paired" else "welch over seeds, paired by problem"


def _seeds_text(gap: Contrast) -> str:
    a, b = gap.seeds
    seeds = f"n={a} seeds" if a == b else f"n={a} and {b} seeds"
    what = "clusters of problems" if gap.clustered else "problems"
    return seeds if gap.problems is None else f"{seeds} x {gap.problems} {what}"


def _would_change(sides: Sequence[Side], places: Sequence[Place], judged: Sequence[int]) -> Iterator[str]:
    """What would make the verdict another one."""
    place = places[0]
    best = place.best
    if best is None or any(not sides[at].sound or place.means[at] is None for at in judged):
        return
    over = {other: place.over(best, other) for other in judged if other != best}
    tested = [gap for gap in over.values() if gap.family is not None]
    if any(gap.seeds_alike for gap in over.values()):
        yield "seeds that act: a command gets its seed by {seed} in trainer.command"
    elif len(tested) < len(over):
        yield "more seeds: with one a side nothing is known of what another seed does"
    if not tested:
        return
    yield from _of_the_nearest(min(tested, key=lambda gap: abs(gap.mean) / (gap.smallest or 1.0)))
    if len(judged) > 2:
        yield from (
            _alone(sides[best].letter, sides[other].letter, gap) for other, gap in over.items() if _is_hidden(gap)
        )
    if len(places) > 1 and places[1].best not in (None, best):
        end = sides[places[1].best or 0]
        yield f"more completions: at the end {end.letter} has the higher {HEADLINE}"


def _of_the_nearest(gap: Contrast) -> Iterator[str]:
    """What would change what is said of the side that is hardest to tell from the best."""
    if not gap.clear and gap.mean == gap.error == 0.0:
        yield "the runs came to the same, one by one: more seeds show no difference, only other settings can"
    elif not gap.clear:
        shown, size = metric_text(HEADLINE, gap.smallest), metric_text(HEADLINE, abs(gap.mean))
        needed, enough = gap.seeds_to_show, "no number of seeds alone would"
        if needed is not None:
            enough = f"about {needed} seeds a side would"
        yield f"these data show a difference of {shown} in 4 of 5 tries, and this one is {size}: {enough} show it"
    elif gap.rests_on:
        which = " or ".join(map(str, gap.rests_on))
        yield f"it is narrow: without seed {which} it would not be clear"
    if gap.problems is None:
        yield "the interval is over seeds alone (no problems recorded, or one cluster): others may say otherwise"


def _is_hidden(gap: Contrast) -> bool:
    """Whether two of several sides are told apart by their own noise, and not by that of all pairs at once."""
    return gap.interval is not None and not gap.clear and not gap.interval[0] <= 0 <= gap.interval[1]


def _alone(best: str, other: str, gap: Contrast) -> str:
    """What two of several sides come to where nothing but these two is asked."""
    low, high = (metric_text(HEADLINE, bound) for bound in gap.interval or ())
    return (
        f"{best} and {other} alone: [{low}, {high}] excludes 0, and the wider one for all pairs of sides, in which the "
        "noise of each counts, does not; compare the two where that was the question before the runs were seen"
    )


def _signed(value: float) -> str:
    return f"{value:+.3f}"
