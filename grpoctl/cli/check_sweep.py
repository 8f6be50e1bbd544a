"""`grpoctl check` of a sweep: what it compares and what that costs, as text of 80 columns or JSON. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpoctl import console
from grpoctl.analysis.sweeps.wording import random_search_text
from grpoctl.config import canonical
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.sweeps.candidates import Candidates, points
from grpoctl.sweeps.loading import load_sweep, sweep_sha
from grpoctl.sweeps.preview import described, notes, search_text
from grpoctl.sweeps.samplers import startup_of
from grpoctl.sweeps.spec import Axis, SweepSpec
from grpoctl.sweeps.validation import check_trainers
from grpoctl.wording import plural


def check(name: str, profile: str, overrides: Sequence[str], *, json: bool) -> dict[str, Any]:
    """The JSON document of a sweep; printed as text unless `json`. Raises what loading raises."""
    revisions = revisions_of(Home.locate())
    sweep = load_sweep(name, profile=profile, overrides=overrides, revisions=revisions).spec
    check_trainers(Candidates.of(sweep, revisions=revisions))
    sweep_document = document(sweep)
    if not json:
        print_sweep(sweep, sweep_document)
    return sweep_document


def document(sweep: SweepSpec) -> dict[str, Any]:
    """The JSON document: the sweep, what `described` says, allocation, sampler, pruner, metric, notes.

    `startup` is that of one worker; with more, as many more trials are drawn before the first result is looked at.
    """
    numbers, drawn = described(sweep), startup_of(sweep, 1)
    random_search = random_search_text(numbers["trials"], drawn, numbers["points"])
    return {
        "name": sweep.name,
        "profile": sweep.profile,
        "sweep_sha": sweep_sha(sweep),
        "experiment": sweep.experiment,
        **numbers,
        "allocation": sweep.allocation,
        "sampler": sweep.sampler,
        "startup": drawn,
        "pruner": sweep.pruner.name,
        "metric": sweep.metric,
        "notes": [*([random_search] if random_search else []), *notes(sweep)],
    }


def print_sweep(sweep: SweepSpec, document: Mapping[str, Any]) -> None:
    """Print the document as text."""
    sha = document["sweep_sha"][:8]
    console.print_text(
        f"{sweep.name}@{sweep.revision}, profile {sweep.profile}, sha {sha}: a sweep over {sweep.experiment}\n"
    )
    console.print_table(*_space(sweep))
    console.print_paragraph(_cost(sweep, document))
    console.print_text("\nNotes" + ("" if document["notes"] else ": none"))
    for note in document["notes"]:
        console.print_paragraph(f"{note}.", "  ")


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


def _cost(sweep: SweepSpec, document: Mapping[str, Any]) -> str:
    """Trials, runs and budget in one paragraph."""
    budget = document["budget"]
    unit = "completions" if budget["completions"] else "tokens"
    each = budget[unit]
    drawn = document["drawn_per_run"]
    more = f" (a run may draw {drawn:,})" if each and drawn > each else ""
    most = " at most" if more or sweep.allocation == "adaptive" else ""
    whole = f"{each:,} {unit} per run{more}, {drawn * document['runs']:,} in total{most}" if each else "no budget"
    low, high = document["evaluations"]
    looks = str(low) if low == high else f"{low} to {high}"
    of = "a continuous space" if document["points"] is None else plural(document["points"], "point")
    first = f", first {document['startup']} trials random, +1 per additional worker" if document["startup"] else ""
    how = search_text(sweep) or f"{sweep.sampler}{first}, pruner {sweep.pruner.name}"
    return (
        f"{plural(document['trials'], 'trial')} from {of} ({how}) x {plural(len(sweep.seeds), 'seed')} = "
        f"{plural(document['runs'], 'run')}: {whole}; {looks} evaluations after "
        f"the start; score: {sweep.take} {sweep.metric} ({sweep.direction}); a collapsed run scores {sweep.worst:g}."
    )
