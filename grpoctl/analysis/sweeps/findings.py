"""What can be said about a study, in sentences with the numbers behind them.

What is here: the choice of sentences. What is not: the numbers (ranking, regions, budget), tables, printing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.health.rules.gains import gain_metric
from core.health.statistics import CONFIDENCE
from grpoctl.analysis.sweeps.advice import next_steps
from grpoctl.analysis.sweeps.axes import Axis, varied
from grpoctl.analysis.sweeps.budget import account, unit_of
from grpoctl.analysis.sweeps.document import Digest, digest
from grpoctl.analysis.sweeps.effects import AxisEffect
from grpoctl.analysis.sweeps.outlook import MOST_SEEDS
from grpoctl.analysis.sweeps.ranking import LearnedGain
from grpoctl.analysis.sweeps.regions import EVENTS, Event, Separation, separations
from grpoctl.analysis.sweeps.wording import score_text, trial_text, trials_text, value_text
from grpoctl.wording import count_text, estimate_text, gain_text, metric_text, plural

NOTHING_LEARNED = "nothing-learned"
NOT_TESTED = "gain-not-tested"

_DID: Mapping[Event, str] = {
    "collapsed": "collapsed",
    "invalid": "had unsound rollouts",
    "learned nothing": "made no update and learned nothing",
}
_WHICH: Mapping[Event, str] = {
    "collapsed": "collapse",
    "invalid": "unsound rollouts",
    "learned nothing": "which runs make no update",
}
_EVENT_IDS: Mapping[Event, str] = {
    "collapsed": "collapse",
    "invalid": "invalid-rollout",
    "learned nothing": "no-updates",
}
NOISIER = 2.0  # times the others' standard deviation: the pooled one is no measure of the winner's luck
SMALL = 0.05  # standard errors of a score: a selection bias that is not worth a number

_MOST_LEVELS = 4  # counts are listed for all levels up to so many


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyFinding:
    """One sentence about a study, and the numbers behind it."""

    id: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        return {"id": self.id, "text": self.text, "numbers": dict(self.numbers)}


def study_conclusions(document: Mapping[str, Any]) -> dict[str, Any]:
    """What sweep.json keeps: `findings`, the most telling first, and what is concluded under `document.CONCLUSIONS`.

    A finding is an object of `id`, `text` and the numbers behind the text.
    """
    of = digest(document)
    learned = of.learned
    return {
        "findings": [finding.document() for finding in findings_of(of)],
        "selection_bias": None if of.selection is None else of.selection.document(),
        "gain_over_start": None
        if learned is None
        else {
            "start": learned.start,
            "supervised": list(of.supervised),
            "beaten": not of.nothing_learned if learned.tested else None,
            "unproven": list(learned.unproven) if learned.tested else None,
            "detectable": learned.detectable,
            "seeds": learned.seeds,
        },
        "axis_effects": {effect.key: effect.document() for effect in of.effects},
        "more_budget": {
            "longer": of.longer.document(),
            "seeds": None if of.more_seeds is None else of.more_seeds.document(),
        },
        "next": [step.document() for step in next_steps(of)],
    }


def findings_of(of: Digest) -> list[StudyFinding]:
    """The findings of a digested study, the most telling first."""
    rules: list[Callable[[Digest], list[StudyFinding]]] = [
        _ladder, _best, _winner, _stages, _noise, _events, _effects, _importances, _edges, _no_better, _more, _cost,
        _pruned, _failed, _of_runs,
    ]  # fmt: skip
    findings = [finding for rule in rules for finding in rule(of)]
    return sorted(findings, key=lambda finding: finding.id != NOTHING_LEARNED)  # it goes before what is best of nothing


def _ladder(of: Digest) -> list[StudyFinding]:
    """Which rung ended the climb."""
    if of.document.get("sampler") != "ladder" or not of.trials:
        return []
    for trial in of.trials.values():
        checks = trial.get("expects") or ()
        if trial["status"] == "COMPLETED" and checks and all(check.get("met") for check in checks):
            left = max(int(of.document.get("total") or 0) - int(trial["number"]) - 1, 0)
            rest = f"; {plural(left, 'further rung')} not needed" if left else ""
            text = f"rung {trial['name']} met all its expectations and ends the ladder{rest}"
            return [StudyFinding(id="ladder", text=text, numbers={"met": trial["name"], "left": left})]
    tried = ", ".join(str(trial["name"]) for trial in of.trials.values())
    text = f"no rung so far met all its expectations (tried: {tried})"
    return [StudyFinding(id="ladder", text=text, numbers={"met": None})]


def _best(of: Digest) -> list[StudyFinding]:
    ranking = of.ranking
    if ranking.best is None:
        return [StudyFinding(id="best", text="no trial has finished: nothing to rank", numbers={})]
    best = of.trials[ranking.best]
    score = score_text(of.metric, ranking.scores[ranking.best], ranking.intervals[ranking.best])
    text = f"{trial_text(best, of.names)} is best: {of.metric} {score}, {_mean_of(best)}"
    if ranking.best in ranking.flagged:
        text += f"; but it is {best['status']}: a guard stopped some of its runs"
    others = [index for index in ranking.indistinguishable if index != ranking.best]
    if ranking.noise is None and len(ranking.order) > 1:
        text += f"; {ranking.why_untested}: no significance test"
    elif others:
        text += f"; not significantly different: {trials_text(others)}"
    elif len(ranking.order) > 1:
        rest = len(ranking.order) - 1
        text += f"; the {'other is' if rest == 1 else f'{rest} others are'} significantly worse"
    if of.higher:
        text += f"; a better mean, but over other seeds than those in common: {trials_text(of.higher)}"
    numbers: dict[str, Any] = {"number": ranking.best, "score": ranking.scores[ranking.best]}
    numbers["indistinguishable"] = others if ranking.tested else None
    return [StudyFinding(id="best", text=text, numbers=numbers)]


def _winner(of: Digest) -> list[StudyFinding]:
    """How much of the best one's score is due to its having been picked."""
    ranked, bias = len(of.ranking.order), of.selection
    if ranked < 2 or of.ranking.best is None:
        return []
    score = metric_text(of.metric, of.ranking.scores[of.ranking.best])
    if bias is None:
        if of.ranking.noise is not None or of.ranking.seeds_alike:
            return []
        text = f"{score} is the best of {ranked} single runs: how much of it is luck takes more seeds to say"
        return [StudyFinding(id="selection-bias", text=text, numbers={"candidates": ranked})]
    if bias.contenders == 1:
        text = f"{score} is the best of {ranked} noisy means by far: no other could have been picked, so no luck in it"
    else:
        near = "" if bias.contenders == ranked else f", {bias.contenders} of them near the best"
        luck = f"about {metric_text(of.metric, bias.value)}" if bias.value > SMALL * bias.error else "hardly any"
        text = (
            f"{score} is the best of {ranked} noisy means{near}: {luck} of it is luck ({bias.method}); "
            f"expect {metric_text(of.metric, bias.corrected)} on fresh seeds"
        )
        if bias.noisier is not None and bias.noisier > NOISIER:
            text += f", or worse: its own seeds differ {bias.noisier:.1f} times as much as the others'"
    return [StudyFinding(id="selection-bias", text=text, numbers=bias.document())]


def _stages(of: Digest) -> list[StudyFinding]:
    """What each stage of the best candidate gained, where there are several: the score is not the last one's alone."""
    if of.ranking.best is None:
        return []
    stages = of.trials[of.ranking.best].get("stages") or {}
    if len(stages) < 2:
        return []
    metric = gain_metric(of.metric)
    sign = of.sign if metric == of.metric else 1.0
    gains = "; ".join(f"{name}: {gain_text(gain, metric)}" for name, gain in stages.items())
    made = [name for name, gain in stages.items() if _clear(gain, sign)]
    first = f"gain of #{of.ranking.best} comes from {' and '.join(made)}" if made else "no stage has a significant gain"
    if made and len(made) < len(stages):
        first += f", not shown of {' and '.join(name for name in stages if name not in made)}"
    numbers = {
        "number": of.ranking.best,
        "stages": {name: dict(gain) for name, gain in stages.items()},
        "gained": made,
    }
    return [StudyFinding(id="stages", text=f"{first} ({gains})", numbers=numbers)]


def _clear(gain: Mapping[str, Any], sign: float) -> bool:
    """True where the interval of a stage's gain lies wholly on the better side of 0."""
    interval = gain.get("interval")
    return bool(interval) and min(sign * float(end) for end in interval or ()) > 0


def _noise(of: Digest) -> list[StudyFinding]:
    noise, critical = of.ranking.noise, of.ranking.critical
    if of.ranking.seeds_alike:
        text = f"{of.ranking.why_untested}: no noise estimate"
        return [StudyFinding(id="noise", text=text, numbers={"sd": 0.0})]
    if noise is None or critical is None:
        return []
    seeds = len(of.document.get("seeds") or ()) or 1
    least = critical * noise.apart(seeds, seeds)
    numbers = {"sd": noise.sd, "df": noise.df, "evaluation": noise.evaluation, "t": critical, "least": least}
    text = f"seed standard deviation {metric_text(of.metric, noise.sd)} (pooled, {noise.df} df)"
    if noise.evaluation:
        text += f"; standard error of one evaluation {metric_text(of.metric, noise.evaluation)} (over prompts)"
    pairs = plural(len(of.ranking.order) * (len(of.ranking.order) - 1) // 2, "pair")
    text += (
        f"; least significant difference {metric_text(of.metric, least)} (t = {critical:.2f}, Sidak over {pairs}, "
        f"family-wise error {100 * (1 - CONFIDENCE):.0f} %)"
    )
    return [StudyFinding(id="noise", text=text, numbers=numbers)]


def _events(of: Digest) -> list[StudyFinding]:
    """What happened to some runs (collapse, unsound rollouts, no update), and which setting decides it."""
    return [finding for event in EVENTS if (finding := _event(of, event)) is not None]


def _event(of: Digest, event: Event) -> StudyFinding | None:
    """One event as a finding; None where no run shows it."""
    hits = sum(event in fact.events for fact in of.facts)
    runs = len(of.facts)
    if hits == 0:
        return None
    numbers: dict[str, object] = {"runs": runs, "hits": hits}
    by_axis = separations(event, varied(of.axes), of.facts)
    if not by_axis:
        text = f"all {plural(runs, 'run')} {_DID[event]}" if hits == runs else f"{hits} of {runs} runs {_DID[event]}"
        return StudyFinding(id=_EVENT_IDS[event], text=text, numbers=numbers)
    numbers["counts"] = {
        of_axis.axis.key: {label: list(count) for label, count in zip(of_axis.labels, of_axis.counts, strict=True)}
        for of_axis in by_axis
    }
    perfect = [of_axis for of_axis in by_axis if of_axis.perfect]
    numbers["decides"] = [of_axis.axis.key for of_axis in perfect]
    if perfect:
        text = _decided(event, perfect, [of_axis for of_axis in by_axis if not of_axis.perfect])
    else:
        first = by_axis[0]
        rates = "rates do not differ" if first.even else f"strongest association: {first.axis.name} ({_rates(first)})"
        text = f"{hits} of {runs} runs {_DID[event]}; no single setting determines it; {rates}"
    return StudyFinding(id=_EVENT_IDS[event], text=text, numbers=numbers)


def _decided(event: Event, perfect: Sequence[Separation], others: Sequence[Separation]) -> str:
    """That an axis (or several that go together) separates the runs perfectly, and the others do not."""
    first = perfect[0]
    with_it = [label for label, share in zip(first.labels, first.shares, strict=True) if share == 1]
    without = [label for label, share in zip(first.labels, first.shares, strict=True) if share == 0]
    hits = sum(hit for hit, _ in first.counts)
    rest = sum(runs for _, runs in first.counts) - hits
    chance = min(1.0, (len(perfect) + len(others)) / math.comb(hits + rest, hits))  # that some axis splits them so
    verb = "determines" if chance < 1 - CONFIDENCE else "goes with"
    text = f"`{first.axis.name}` {verb} {_WHICH[event]}: {hits}/{hits} with {' or '.join(with_it)}, "
    text += f"0/{rest} with {' or '.join(without)}"
    if verb != "determines":
        text += f" (too few runs to say more: an axis splits them like that by chance with probability {chance:.2g})"
    if len(perfect) > 1:
        text += f"; so does {', '.join(f'`{other.axis.name}`' for other in perfect[1:])}, which varies with it"
    for other in others:
        text += f"; {other.axis.name} {'does not' if other.even else 'does not alone'} ({_rates(other)})"
    return text


def _rates(of_axis: Separation) -> str:
    """`2: 6/12, 8: 6/12`; of many levels the one with the largest and the one with the smallest share."""
    entries = list(zip(of_axis.labels, of_axis.counts, of_axis.shares, strict=True))
    if len(entries) > _MOST_LEVELS:
        ordered = sorted(entries, key=lambda entry: entry[2])
        entries = [ordered[-1], ordered[0]]
    return ", ".join(f"{label}: {hit}/{runs}" for label, (hit, runs), _ in entries)


def _importances(of: Digest) -> list[StudyFinding]:
    shares = {str(key): float(share) for key, share in (of.document.get("importances") or {}).items() if share}
    if len(shares) < 2:
        return []
    listed = sorted(shares.items(), key=lambda entry: -entry[1])
    words = ", ".join(f"{of.names.get(key, key)} {share:.0%}" for key, share in listed)
    text = f"importance for being in the best 40 % (PED-ANOVA): {words}"
    return [StudyFinding(id="importances", text=text, numbers={"first": listed[0][0], "share": listed[0][1]})]


def _effects(of: Digest) -> list[StudyFinding]:
    """What each axis does to the mean score, by a model of main effects, or why there is none; nothing without axes."""
    if not of.effects:
        return []
    judged = [effect for effect in of.effects if effect.share is not None]
    if not judged:
        text = f"{of.effects[0].judgement}: {of.effects[0].why}"
        return [StudyFinding(id="axes", text=text, numbers={effect.key: None for effect in of.effects})]
    parts = [f"all together {judged[0].together or 0.0:.0%} of the variance between candidates"]
    if shown := [_share(of, effect) for effect in judged if effect.judgement == "effect"]:
        parts.append(f"alone {', '.join(shown)}")
    for judgement in ("not enough to judge", "no effect seen"):
        names = [of.names.get(effect.key, effect.key) for effect in judged if effect.judgement == judgement]
        parts += [f"{', '.join(names)}: {judgement}"] if names else []
    text = "; ".join(parts) + f" (main effects over {plural(judged[0].candidates, 'candidate')}, 95 % bootstrap)"
    return [StudyFinding(id="axes", text=text, numbers={effect.key: effect.share for effect in judged})]


def _share(of: Digest, effect: AxisEffect) -> str:
    """`learning_rate 71 % [52, 88]`."""
    low, high = effect.interval or (0.0, 1.0)
    return f"{of.names.get(effect.key, effect.key)} {effect.share or 0.0:.0%} [{100 * low:.0f}, {100 * high:.0f}]"


def _edges(of: Digest) -> list[StudyFinding]:
    """Axes of numbers on whose end every candidate of the best set stands."""
    return [
        StudyFinding(
            id="edge",
            text=f"the best {of.names[key]} is at the {word} bound, {value_text(end)}: the optimum may lie beyond",
            numbers={"key": key, "end": end},
        )
        for key, end, word in of.edges
    ]


def _no_better(of: Digest) -> list[StudyFinding]:
    """Candidates without a significant gain over the model that GRPO starts from."""
    learned = of.learned
    if learned is not None and not learned.tested:
        return [_not_tested(of, learned)]
    if learned is None or not learned.unproven:
        return []
    bad, ranked = learned.unproven, of.ranking.order
    numbers = {"start": learned.start, "trials": list(bad), "detectable": learned.detectable}
    start = f"{of.metric} {metric_text(of.metric, learned.start)}"
    missed = ""
    if learned.detectable is not None:
        missed = f"; a true gain of {metric_text(of.metric, learned.detectable)} would show in 4 of 5 such studies"
    if of.nothing_learned:
        few = (
            "the one ranked candidate has no" if len(ranked) == 1 else f"none of {len(ranked)} ranked candidates has a"
        )
        what = "the supervised start" if of.supervised else "the start"
        if of.so_far:  # what has not run yet may still gain
            text = f"{of.so_far} {few} significant gain over {what} ({start}){missed}"
            return [StudyFinding(id="no-better-than-start", text=text, numbers=numbers)]
        text = f"nothing beats {what} ({start}): stop, do not spend more on this sweep; {few} significant gain{missed}"
        return [StudyFinding(id=NOTHING_LEARNED, text=text, numbers=numbers)]
    whole = [_where(axis, set(bad), of) for axis in of.axes]
    where = f"; no candidate with {' or '.join(words for words in whole if words)} gained" if any(whole) else ""
    few = f"{of.so_far} {len(bad)}".lstrip()
    text = f"{few} of {len(ranked)} ranked candidates show no significant gain over their start ({start}): "
    text += f"{trials_text(bad)}{where}{missed}"
    return [StudyFinding(id="no-better-than-start", text=text, numbers=numbers)]


def _not_tested(of: Digest, learned: LearnedGain) -> StudyFinding:
    """Why nothing can be said of a gain (one seed per candidate), and what each run shows by its own prompts."""
    start = f"{of.metric} {metric_text(of.metric, learned.start)}"
    text = f"{of.ranking.why_untested}: no test of a gain over the start ({start})"
    if learned.alone is not None:
        ranked, gained = len(of.ranking.order), len(learned.alone)
        count = f"{gained or 'none'} of {plural(ranked, 'run')}" if ranked > 1 else "the run" if gained else "no run"
        named = f": {trials_text(learned.alone)}" if gained and ranked > 1 else ""
        text += f"; by prompts alone, which says nothing of other seeds, {count} gained{named}"
    alone = None if learned.alone is None else list(learned.alone)
    return StudyFinding(id=NOT_TESTED, text=text, numbers={"start": learned.start, "alone": alone})


def _more(of: Digest) -> list[StudyFinding]:
    """What more budget would buy, as far as the record shows: longer runs, more seeds; of nothing learned, no word."""
    if of.ranking.best is None or of.nothing_learned:
        return []
    rise, seeds = of.longer, of.more_seeds
    parts = []
    if rise.gain is not None and rise.interval is not None:
        moved = estimate_text(of.metric, rise.gain, rise.interval, signed=True)
        words = {
            "rising": f"the best set still rises, {moved}",
            "falling": f"the best set falls, {moved}",
            "flat": f"the best set is flat, {moved}",
            "unclear": f"not enough to judge, {moved}",
        }
        parts.append(f"longer runs: {words[rise.trend]} in the last quarter (95 % t over seeds)")
    elif any(trial.get("curve") for trial in of.trials.values()):
        parts.append("longer runs: not enough evaluations to judge")
    if seeds is not None and not seeds.significant:
        takes = str(seeds.needed) if seeds.needed else f"more than {MOST_SEEDS}"
        gap, least = metric_text(of.metric, seeds.gap), metric_text(of.metric, seeds.least)
        pair, now = f"#{seeds.first} and #{seeds.second}", plural(seeds.now, "seed")
        found = f"{takes} would show {gap} in 4 of 5 such studies"
        parts.append(f"more seeds: {pair} differ by {gap}; with {now} {least} is significant, {found}")
    if not parts:
        return []
    numbers = {"longer": rise.document(), "seeds": None if seeds is None else seeds.document()}
    return [StudyFinding(id="more-budget", text="; ".join(parts), numbers=numbers)]


def _cost(of: Digest) -> list[StudyFinding]:
    reached = of.reached
    if reached is None or not any(trial.get("curve") for trial in of.trials.values()):
        return []
    text = f"trial #{reached.first} was the first within 2 % of the best score, "
    text += f"after {count_text(reached.spent)} of {count_text(reached.total)} {reached.unit}"
    numbers: dict[str, Any] = {"trial": reached.first, "spent": reached.spent, "total": reached.total}
    if reached.per_run and reached.unit != "trials":
        cheapest = min(reached.per_run, key=lambda index: (reached.per_run[index], index))
        each = unit_of(of.document)[1]
        cost = reached.per_run[cheapest]
        text += f"; the fastest run is #{cheapest}'s, after {count_text(cost)} of {count_text(each)}"
        numbers |= {"quickest": cheapest, "run": cost}
    return [StudyFinding(id="cost", text=text, numbers=numbers)]


def _pruned(of: Digest) -> list[StudyFinding]:
    pruned = of.of_status("PRUNED")
    unit, each = unit_of(of.document)
    if not pruned or unit == "trials":
        return []
    whole = each * (len(of.document.get("seeds") or ()) or 1)
    saved = max(whole * len(pruned) - sum(float(trial.get(unit) or 0.0) for trial in pruned), 0.0)
    share = saved / (account(of.document).spent + saved)
    text = f"{plural(len(pruned), 'trial')} pruned: saved {count_text(saved)} {unit} ({share:.0%} of the budget)"
    return [StudyFinding(id="pruned", text=text, numbers={"trials": len(pruned), "saved": saved, "share": share})]


def _failed(of: Digest) -> list[StudyFinding]:
    failed = of.of_status("FAILED")
    if not failed:
        return []
    last = failed[-1]
    text = f"{plural(len(failed), 'trial')} failed; #{last['number']}: {last.get('message')}"
    return [StudyFinding(id="failed", text=text, numbers={"trials": [trial["number"] for trial in failed]})]


def _mean_of(trial: Mapping[str, Any]) -> str:
    values = [value for value in trial.get("values") or () if value is not None]
    return f"mean of {plural(len(values), 'seed')}" if len(values) > 1 else "one seed"


def _where(axis: Axis, bad: set[int], of: Digest) -> str:
    """The levels of an axis all of whose ranked candidates are bad, where others' are not."""
    ranked = {level.label: set(level.numbers) & set(of.ranking.order) for level in axis.levels}
    whole = [label for label, numbers in ranked.items() if len(numbers) > 1 and numbers <= bad]
    return f"{axis.name}={' and '.join(whole)}" if whole and len(whole) < len(ranked) else ""


def _of_runs(of: Digest) -> list[StudyFinding]:
    """How many of the runs that ended have a finding of each rule."""
    counts = Counter(rule for fact in of.facts for rule in dict.fromkeys(fact.rules))
    if not counts:
        return []
    listed = ", ".join(f"{rule} in {count}" for rule, count in counts.most_common())
    worst = max(of.facts, key=lambda fact: (len(fact.events), len(fact.rules)))
    example = f"grpoctl diagnose {of.document.get('study')}-t{worst.trial:04d}-s{worst.seed}"
    text = f"findings of {plural(len(of.facts), 'finished run')}: {listed}; evidence: {example}"
    return [StudyFinding(id="runs", text=text, numbers={"runs": len(of.facts), "rules": dict(counts.most_common())})]
