"""What to try next after a study: up to three commands or edits, each with its reason, the most useful first."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from core.health.statistics import mean
from grpoctl.analysis.sweeps.axes import is_range
from grpoctl.analysis.sweeps.budget import NEAR, unit_of
from grpoctl.analysis.sweeps.document import Digest
from grpoctl.analysis.sweeps.outlook import MOST_SEEDS
from grpoctl.analysis.sweeps.wording import params_text, trials_text, value_text
from grpoctl.config.documents import read_value
from grpoctl.wording import metric_text

MOST = 3
FRESH = 5  # seeds that tell what a winner is worth

_MANY = 20  # seeds of a candidate: a difference that takes more is hardly worth them
_EARLY = 0.6  # of its budget: a flat run that had come near its end by then had budget to spare
_ROOM = 1.25  # of what it took to come near


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One thing to do: `command` can be copied; where it is empty, `edit` says what to change in the sweep's file."""

    id: str
    reason: str
    command: str = ""
    edit: str = ""

    @property
    def text(self) -> str:
        """One line, which a shell takes as it stands where it is a command."""
        return f"{self.command}  # {self.reason}" if self.command else f"{self.edit}: {self.reason}"

    def document(self) -> dict[str, Any]:
        """What sweep.json has of it."""
        return asdict(self)


def next_steps(of: Digest) -> list[Step]:
    """What the findings suggest. Where nothing was learned that is all: more of the same would measure noise."""
    best = of.ranking.best
    if best is None or of.document.get("status") in ("RUNNING", "INTERRUPTED"):
        return []
    if of.nothing_learned:
        return [_resume(of) if of.so_far else _stop(of, best)]
    if of.document.get("sampler") == "ladder":
        return []
    rules: list[Callable[[Digest], list[Step]]] = [_more_seeds_first, _widen, _longer, _confirm, _tie, _shorter]
    return [step for rule in rules for step in rule(of)][:MOST]


def _stop(of: Digest, best: int) -> Step:
    runs = of.trials[best].get("runs") or ()
    run = str(runs[0]).rpartition("/")[2] if runs else str(of.document.get("study"))
    reason = "stop here: no candidate beats its start, so find out why before any further trial"
    return Step(id="stop", reason=reason, command=shlex.join(["grpoctl", "diagnose", run]))


def _resume(of: Digest) -> Step:
    """A study that ended before its trials did: what it has not tried may gain what the others did not."""
    command = shlex.join(["grpoctl", "sweep", str(of.document.get("study")), "--resume"])
    return Step(id="resume", reason=f"no candidate beats its start {of.so_far}", command=command)


def _more_seeds_first(of: Digest) -> list[Step]:
    """Of a study of one seed per candidate nothing else can be said; more of seeds that do nothing say nothing."""
    untested = of.learned is not None and not of.learned.tested
    if of.ranking.noise is not None or of.ranking.seeds_alike or (len(of.ranking.order) < 2 and not untested):
        return []
    what = "gain or difference" if untested else "difference"
    reason = f"with one seed per candidate no {what} can be told from noise"
    return [Step(id="seeds", reason=reason, command=_again(of, seeds="0,1,2"))]


def _widen(of: Digest) -> list[Step]:
    """The best set stands at one end of an axis of numbers: try what lies beyond."""
    steps = []
    for key, end, word in of.edges:
        spec = (of.document.get("axes") or {})[key]
        if (beyond := _beyond(spec, upper=word == "upper")) is not None:
            reason = f"the best {of.names[key]} is at the {word} end of what was tried, {value_text(end)}"
            steps.append(Step(id="widen", reason=reason, command=_again(of, {f"axes.{key}": beyond})))
    return steps


def _beyond(spec: Mapping[str, Any], *, upper: bool) -> str | None:
    """The axis moved beyond that end, as an override has it: as far again as it goes. None where it cannot go there."""
    if is_range(spec):
        low, high = float(spec["low"]), float(spec["high"])
        if spec.get("log"):
            factor = min(10.0, high / low)
            ends = (high / factor**0.5, high * factor) if upper else (low / factor, low * factor**0.5)
        else:
            ends = (high - (high - low) / 4, high + (high - low)) if upper else (low / 4, low + (high - low) / 4)
        whole = spec.get("type") == "int"
        more = [f"{key}: {value_text(spec[key])}" for key in ("step", "log", "type") if spec.get(key)]
        return "{" + ", ".join([f"low: {_two(ends[0], whole)}", f"high: {_two(ends[1], whole)}", *more]) + "}"
    values = sorted(float(value) for value in spec.get("values") or ())
    if len(values) < 3:
        return None
    whole = all(value == int(value) for value in values)
    third, near, end = (values[-3], values[-2], values[-1]) if upper else (values[2], values[1], values[0])
    even = math.isclose(near - third, end - near)
    beyond = _sound([end + (end - near), end + 2 * (end - near)], whole=whole) if even else []
    if not beyond and end * near > 0:
        beyond = _sound([end * end / near, end * (end / near) ** 2], whole=whole)
    listed = sorted([near, end, *beyond])
    return f"[{', '.join(_two(value, whole) for value in listed)}]" if beyond else None


def _sound(values: list[float], *, whole: bool) -> list[float]:
    """Those that are above 0, and whole numbers where all of the axis are."""
    return [value for value in values if value > 0 and (not whole or value == int(value))]


def _two(value: float, whole: bool) -> str:
    """A number as a setting, with two digits where it is none of its own making."""
    return str(round(value)) if whole else f"{float(f'{value:.2g}'):g}"


def _longer(of: Digest) -> list[Step]:
    rise = of.longer
    unit, each = unit_of(of.document)
    if rise.trend != "rising" or rise.gain is None or unit == "trials" or of.ranking.best is None:
        return []
    if rise.gain < NEAR * abs(of.ranking.scores[of.ranking.best]):
        return []  # told from nothing, and not worth as much again
    gain = metric_text(of.metric, rise.gain)
    reason = f"the best set still gained {gain} over the last quarter of its budget"
    return [Step(id="longer", reason=reason, command=_again(of, {f"budget.{unit}": f"{2 * each:.0f}"}))]


def _confirm(of: Digest) -> list[Step]:
    """A winner: what is it worth on seeds that did not pick it?"""
    if of.ranking.noise is None or len(of.ranking.indistinguishable) != 1 or len(of.ranking.order) < 2:
        return []
    return [_promotion(of, "a clear winner: what is it worth on seeds that did not pick it?")]


def _promotion(of: Digest, reason: str) -> Step:
    document = of.document
    words = ["grpoctl", "promote", str(document.get("study")), "--as", f"{document.get('sweep')}-best"]
    return Step(id="confirm", reason=reason, command=f"{shlex.join(words)} --confirm {FRESH}")


def _tie(of: Digest) -> list[Step]:
    """The first and the second cannot be told apart: seeds that would do it, or that it is not worth them."""
    more, chosen = of.more_seeds, of.ranking.indistinguishable
    if more is None or more.significant or len(chosen) < 2:
        return []
    gap = metric_text(of.metric, more.gap)
    pair = f"#{more.first} and #{more.second} differ by {gap}"
    pair += f" (#{more.second} is ahead over all its seeds)" if more.second in of.higher else ""
    if more.needed is None or more.needed > _MANY:
        takes = f"about {more.needed} seeds each" if more.needed else f"more than {MOST_SEEDS} seeds each"
        return [_promotion(of, f"{pair}, which takes {takes} to tell: take the first, or the cheapest of the best set")]
    reason = f"{pair}: {more.needed} seeds each would show a difference of that size in 4 of 5 such studies"
    seeds = ",".join(map(str, range(more.needed)))
    axes = of.document.get("axes") or {}
    if len(axes) == 1 and (key := next(iter(axes))) in of.trials[more.first]["params"] and len(chosen) <= 8:
        values = ", ".join(value_text(of.trials[index]["params"][key]) for index in sorted(chosen))
        command = _again(of, {f"axes.{key}": f"[{values}]", "trials": None}, seeds)
        return [Step(id="tie", reason=reason, command=command)]
    named = trials_text([more.first, more.second])
    first = params_text(of.trials[more.first].get("params") or {}, of.names)
    edit = f"name {named} ({first}; ...) as `candidates` of a sweep with seeds [{seeds}]"
    return [Step(id="tie", reason=reason, edit=edit)]


def _shorter(of: Digest) -> list[Step]:
    """The best set was near its end long before its budget was spent."""
    unit, each = unit_of(of.document)
    reached = of.reached
    if of.longer.trend != "flat" or reached is None or unit == "trials":
        return []
    costs = [reached.per_run.get(index) for index in of.ranking.indistinguishable]
    known = [cost for cost in costs if cost is not None]
    if not known or len(known) < len(costs) or max(known) > _EARLY * each:
        return []
    reason = f"flat at the end, and within 2 % of the best after {mean(known) / each:.0%} of the budget"
    return [Step(id="shorter", reason=reason, command=_again(of, {f"budget.{unit}": f"{max(known) * _ROOM:.0f}"}))]


def again(
    document: Mapping[str, Any], changes: Mapping[str, str | None] | None = None, seeds: str | None = None
) -> list[str]:
    """The words of the command that runs this sweep once more: as it was asked for, but for what is changed.

    `changes` are keys of the sweep with their new values, None for what is left out. Of an older study, which does not
    say what was asked for, the command has its profile and budget alone.
    """
    asked, (unit, each) = document.get("asked") or {}, unit_of(document)
    changes = {**({} if unit == "trials" else {f"budget.{unit}": f"{each:.0f}"}), **(changes or {})}
    own = [part for written in asked.get("overrides") or () for part in _single(str(written))]
    kept = [text for text in own if not any(_is_of(text, key) for key in (*changes, "seeds"))]
    words = ["grpoctl", "sweep", str(asked.get("name") or document.get("sweep"))]
    words += [] if document.get("profile") is None else ["-p", str(document["profile"])]
    words += [*kept, *(f"{key}={value}" for key, value in changes.items() if value is not None)]
    if asked.get("trials") is not None and "trials" not in changes:
        words += ["--trials", str(asked["trials"])]
    chosen = seeds or asked.get("seeds")
    return [*words, "--seeds", str(chosen)] if chosen else words


def _again(of: Digest, changes: Mapping[str, str | None] | None = None, seeds: str | None = None) -> str:
    """The command that runs this sweep once more with these changes."""
    return shlex.join(again(of.document, changes, seeds))


def _single(override: str) -> list[str]:
    """An override of all axes or of the whole budget as one for each key in it, so that a key of it can be changed."""
    key, _, written = override.partition("=")
    value = read_value(written) if key.strip() in ("axes", "budget") else None
    if not isinstance(value, Mapping):
        return [override]
    return [f"{key.strip()}.{name}={json.dumps(entry, ensure_ascii=False)}" for name, entry in value.items()]


def _is_of(override: str, key: str) -> bool:
    """True where an override sets this key of the sweep; an axis may go by an ending of its key."""
    own = override.partition("=")[0].strip()
    axis, named = key.removeprefix("axes."), own.removeprefix("axes.")
    return own == key or (own != named and axis != key and axis.endswith(f".{named}"))
