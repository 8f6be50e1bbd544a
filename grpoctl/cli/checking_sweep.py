"""How `grpoctl check` says what a sweep compares: as text of 80 columns, or as a JSON document. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpoctl import console
from grpoctl.analysis.sweeps.wording import random_search_text
from grpoctl.cli.checking import wrapped
from grpoctl.config import canonical
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.sweeps.candidates import points
from grpoctl.sweeps.loading import load_sweep, sweep_sha
from grpoctl.sweeps.preview import described, notes
from grpoctl.sweeps.samplers import startup
from grpoctl.sweeps.spec import Axis, SweepSpec
from grpoctl.wording import plural


def check(name: str, profile: str, overrides: Sequence[str], *, json: bool) -> dict[str, Any]:
    """The JSON document of a sweep; printed as text unless `json`. Raises what loading raises."""
    sweep = load_sweep(name, profile=profile, overrides=overrides, revisions=revisions_of(Home.locate())).spec
    found = document(sweep)
    if not json:
        say(sweep, found)
    return found


def document(sweep: SweepSpec) -> dict[str, Any]:
    """The JSON document: name, profile, sweep_sha, experiment, what `described` says, sampler, pruner, notes.

    `startup` is that of one worker; with more, as many more trials are drawn before the first result is looked at.
    """
    numbers, drawn = described(sweep), startup(sweep.sampler, 1)
    random_search = random_search_text(numbers["trials"], drawn)
    return {
        "name": sweep.name,
        "profile": sweep.profile,
        "sweep_sha": sweep_sha(sweep),
        "experiment": sweep.experiment,
        **numbers,
        "sampler": sweep.sampler,
        "startup": drawn,
        "pruner": sweep.pruner.name,
        "metric": sweep.metric,
        "notes": [*([random_search] if random_search else []), *notes(sweep)],
    }


def say(sweep: SweepSpec, found: dict[str, Any]) -> None:
    """The same as text on standard output."""
    sha = found["sweep_sha"][:8]
    console.print_text(
        f"{sweep.name}@{sweep.revision}, profile {sweep.profile}, sha {sha}: a sweep over {sweep.experiment}\n"
    )
    console.print_table(*_space(sweep))
    console.print_text(wrapped("", _cost(sweep, found)))
    console.print_text("\nNotes" + ("" if found["notes"] else ": none"))
    for note in found["notes"]:
        console.print_text(wrapped("  ", f"{note}."))


def _space(sweep: SweepSpec) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    if sweep.axes:
        rows: list[tuple[str, ...]] = [(key, _values(axis), _when(axis)) for key, axis in sweep.axes.items()]
        return "Axes", ("key", "values", "when"), rows
    kind = "Candidates" if sweep.candidates else "Rungs, in order until one meets its expectations"
    names = [*sweep.candidates, *(rung.name for rung in sweep.ladder)]
    named = zip(names, points(sweep), strict=True)
    return kind, ("name", "settings"), [(name, _settings(point)) for name, point in named]


def _settings(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={canonical(value)}" for key, value in point.items())


def _values(axis: Axis) -> str:
    if axis.values is not None:
        return ", ".join(canonical(value) for value in axis.values)
    how = ", log" if axis.log else f", step {axis.step}" if axis.step is not None else ""
    return f"{axis.low} to {axis.high} ({axis.type}{how})"


def _when(axis: Axis) -> str:
    return "; ".join(f"{key} is {' or '.join(map(canonical, values))}" for key, values in axis.when.items())


def _cost(sweep: SweepSpec, found: dict[str, Any]) -> str:
    """Trials, runs and budget in one paragraph."""
    budget = found["budget"]
    unit = "completions" if budget["completions"] else "tokens"
    each = budget[unit]
    whole = f"{each:,} {unit} per run, {each * found['runs']:,} in total" if each else "no budget"
    low, high = found["evaluations"]
    looks = str(low) if low == high else f"{low} to {high}"
    of = "a continuous space" if found["points"] is None else plural(found["points"], "point")
    drawn = f", first {found['startup']} trials random, +1 per additional worker" if found["startup"] else ""
    return (
        f"{plural(found['trials'], 'trial')} from {of} ({sweep.sampler}{drawn}, pruner {sweep.pruner.name}) x "
        f"{plural(len(sweep.seeds), 'seed')} = {plural(found['runs'], 'run')}: {whole}; {looks} evaluations after the "
        f"start; score: {sweep.take} {sweep.metric} ({sweep.direction}); a collapsed run scores {sweep.worst:g}."
    )
