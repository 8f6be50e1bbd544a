"""Which setting decides whether runs collapse, are invalid or learn nothing: in words, from the counts.

What is here: sentences. What is not: the counts (regions), tables (report).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpoctl.analysis.sweeps.axes import varied
from grpoctl.analysis.sweeps.digest import Digest
from grpoctl.analysis.sweeps.finding import StudyFinding
from grpoctl.analysis.sweeps.regions import EVENTS, Event, Separation, separations
from grpoctl.wording import plural

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
_MOST_LEVELS = 4  # counts are listed for all levels up to so many


def sentences(of: Digest) -> list[StudyFinding]:
    """One finding for each event that some run shows."""
    return [found for event in EVENTS if (found := _sentence(of, event)) is not None]


def _sentence(of: Digest, event: Event) -> StudyFinding | None:
    hits = sum(event in fact.events for fact in of.facts)
    runs = len(of.facts)
    if hits == 0:
        return None
    numbers: dict[str, object] = {"runs": runs, "hits": hits}
    found = separations(event, varied(of.axes), of.facts)
    if not found:
        text = f"all {plural(runs, 'run')} {_DID[event]}" if hits == runs else f"{hits} of {runs} runs {_DID[event]}"
        return StudyFinding(id=_id(event), text=text, numbers=numbers)
    numbers["counts"] = {one.axis.key: _counts(one) for one in found}
    deciding = [one for one in found if one.perfect]
    numbers["decides"] = [one.axis.key for one in deciding]
    text = _decided(event, deciding, found) if deciding else _undecided(event, found, hits, runs)
    return StudyFinding(id=_id(event), text=text, numbers=numbers)


def _decided(event: Event, deciding: Sequence[Separation], found: Sequence[Separation]) -> str:
    """An axis (or several that go together) separates the runs perfectly; the others, with their counts, do not."""
    first = deciding[0]
    with_it = [label for label, share in zip(first.labels, first.shares, strict=True) if share == 1]
    without = [label for label, share in zip(first.labels, first.shares, strict=True) if share == 0]
    hits = sum(hit for hit, _ in first.counts)
    rest = sum(runs for _, runs in first.counts) - hits
    text = f"`{first.axis.name}` determines {_WHICH[event]}: {hits}/{hits} with {_either(with_it)}, "
    text += f"0/{rest} with {_either(without)}"
    if len(deciding) > 1:
        text += f"; so does {', '.join(f'`{one.axis.name}`' for one in deciding[1:])}, which varies with it"
    others = [one for one in found if not one.perfect]
    return text + "".join(f"; {one.axis.name} {_does_not(one)}" for one in others)


def _undecided(event: Event, found: Sequence[Separation], hits: int, runs: int) -> str:
    first = found[0]
    text = f"{hits} of {runs} runs {_DID[event]}; no single setting determines it"
    if first.even:
        return f"{text}; rates do not differ"
    return f"{text}; strongest association: {first.axis.name} ({_listed(first)})"


def _does_not(one: Separation) -> str:
    return f"does not ({_listed(one)})" if one.even else f"does not alone ({_listed(one)})"


def _listed(one: Separation) -> str:
    """`2: 6/12, 8: 6/12`; of many levels the one with the largest and the one with the smallest share."""
    entries = list(zip(one.labels, one.counts, one.shares, strict=True))
    if len(entries) > _MOST_LEVELS:
        ordered = sorted(entries, key=lambda entry: entry[2])
        entries = [ordered[-1], ordered[0]]
    return ", ".join(f"{label}: {hit}/{runs}" for label, (hit, runs), _ in entries)


def _counts(one: Separation) -> dict[str, list[int]]:
    return {label: list(count) for label, count in zip(one.labels, one.counts, strict=True)}


def _either(labels: Sequence[str]) -> str:
    return " or ".join(labels)


def _id(event: Event) -> str:
    return {"collapsed": "collapse", "invalid": "invalid-rollout", "learned nothing": "no-updates"}[event]
