"""How `grpoctl check` says what it foresees: as text of 80 columns, or as a JSON document. Imports no torch."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from core.algorithms.schedules import learning_rate
from core.config import RunSpec, StageBase
from core.config.run import check_fit
from core.health.before.advantages import AdvantageRow, DeadGroups, kept
from core.health.before.report import K_PASS_RATES, Foresight, StageForesight, foresee
from core.tasks import registry
from grpoctl import console
from grpoctl.config import load, spec_sha
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.wording import plural, setting_text

_WIDTH = 80
_ROWS = 9  # of the table of advantages: a K of 64 has 65


def check(name: str, profile: str, overrides: Sequence[str], *, json: bool) -> dict[str, Any]:
    """The JSON document of an experiment; printed as text unless `json`. Raises what loading raises."""
    spec = load(name, profile=profile, overrides=overrides, revisions=revisions_of(Home.locate())).spec
    check_fit(spec)
    registry.build(spec.task)  # a task can refuse what a type cannot: more problems than there are
    seen = foresee(spec)
    if not json:
        say(spec, seen)
    return document(spec, seen)


def document(spec: RunSpec, seen: Foresight) -> dict[str, Any]:
    """The JSON document: schema, experiment, profile, spec_sha, stages, inert, warnings."""
    return {
        "schema": 1,
        "experiment": spec.name,
        "profile": spec.profile,
        "spec_sha": spec_sha(spec),
        "stages": {stage.view.name: _stage_document(stage) for stage in seen.stages},
        "inert": [asdict(knob) for knob in seen.inert],
        "warnings": [finding.as_json() for finding in seen.warnings],
    }


def say(spec: RunSpec, seen: Foresight) -> None:
    """The same as text on standard output."""
    console.print_text(f"{spec.name}@{spec.revision}, profile {spec.profile}, sha {spec_sha(spec)[:8]}\n")
    for stage in seen.stages:
        _say_stage(stage)
    console.print_text("Settings without effect" + ("" if seen.inert else ": none"))
    for knob in seen.inert:
        value = "" if isinstance(knob.value, dict) else f" = {setting_text(knob.value)}"
        console.print_text(wrapped("  ", f"{knob.key}{value}: {knob.reason}. To make it act: {knob.acts}."))
    console.print_text("\nWarnings")
    for finding in seen.warnings:
        console.print_text(wrapped("  ", f"{finding.severity}: {finding.summary}."))


def rates(stage: StageBase, first: float, last: float) -> tuple[float, float]:
    """The learning rates of two ticks of the stage's clock, plateaus left out."""
    one, other = (
        learning_rate(
            stage.learning_rate,
            stage.lr_scheduler_type,
            index=index,
            warmup_steps=stage.warmup_steps,
            total_steps=stage.lr_horizon,
        )
        for index in (first, last)
    )
    return one, other


def _stage_document(seen: StageForesight) -> dict[str, Any]:
    view, budget = seen.view, asdict(seen.budget)
    first, last = rates(view.stage, budget.pop("first_tick"), budget.pop("last_tick"))
    common = {"kind": getattr(view.stage, "kind", "grpo"), **budget, "learning_rate": {"first": first, "last": last}}
    if view.num_generations:
        common["num_generations"] = view.num_generations
    if view.grpo is None:
        return common
    return {
        "method": view.grpo.method,
        **common,
        "advantages": [asdict(row) for row in seen.advantages],
        "advantages_note": seen.note,
        "max_advantage": seen.largest_advantage,
        "dead_groups": [
            {key: value for key, value in asdict(row).items() if value is not None or key == "step"}
            for row in seen.dead_groups
        ],
        "group_sizes": [
            {**asdict(row), "dead_groups": [{"pass_rate": rate, "group": dead} for rate, dead in row.dead_groups]}
            for row in seen.group_sizes
        ],
    }


def _say_stage(seen: StageForesight) -> None:
    view = seen.view
    what = f"method {view.grpo.method}" if view.grpo else str(getattr(view.stage, "kind", ""))
    console.print_text(wrapped("", f"Stage {view.name}: {what}. {_budget(seen)}"))
    console.print_text("")
    if view.grpo is None:
        return
    rows = [(str(row.successes), _signed(row.success), _signed(row.failure)) for row in _some(seen.advantages)]
    console.print_table(
        f"Advantages, rewards 1 and 0, K={view.num_generations}", ("correct", "advantage if correct", "if wrong"), rows
    )
    most = "unbounded" if seen.largest_advantage is None else f"at most {seen.largest_advantage:.4f}"
    console.print_text(wrapped("  ", f"|advantage| for any rewards: {most}{'; ' if seen.note else ''}{seen.note}"))
    console.print_text("")
    columns: tuple[str, ...] = ("pass rate", "dead group", "dead step")
    if view.grpo.dynamic_sampling is not None:
        columns = (*columns, "samplings", "completions", "groups missing")
    few = kept(view.grpo)
    kept_only = f" (best {few} kept)" if few < view.num_generations else ""
    console.print_table(
        f"Probability of a dead group{kept_only}, and of a step without signal",
        columns,
        [_dead(row) for row in seen.dead_groups],
    )
    sizes = [
        (
            str(row.num_generations),
            *(_chance(dead) for _, dead in row.dead_groups),
            "unbounded" if row.max_advantage is None else f"{row.max_advantage:.4f}",
            "; ".join(filter(None, ["here" * (row.num_generations == view.num_generations), row.said])),
        )
        for row in seen.group_sizes
    ]
    console.print_table(
        "Other K: dead groups at pass rate p, largest |advantage|",
        ("K", *(f"p = {rate:g}" for rate in K_PASS_RATES), "largest", "advice (document 000)"),
        sizes,
    )


def _budget(seen: StageForesight) -> str:
    """Effective batch, updates, completions, tokens and learning rate in one paragraph."""
    view, b = seen.view, seen.budget
    each = f"{plural(b.prompts_per_step, 'prompt')} x {view.num_generations} = " if view.num_generations else ""
    per = b.completions_per_step or b.prompts_per_step
    noun = "completion" if view.num_generations else "answer"
    first, last = rates(view.stage, b.first_tick, b.last_tick)
    refills = f" ({b.max_completions_with_refills} with refills)" * (b.max_completions_with_refills > b.max_completions)
    sampled = (
        f", {b.max_completions} completions{refills}, {b.max_tokens:,} tokens at most" if view.num_generations else ""
    )
    few = f"{b.min_steps} to " * (b.min_steps < b.max_steps)
    return (
        f"A step: {each}{plural(per, noun)}, {plural(b.updates_per_step, 'update')} of "
        f"{b.completions_per_update:g} (micro-batch {b.micro_batch}). {few}{plural(b.max_steps, 'step')}: at "
        f"most {plural(b.max_updates, 'update')}{sampled}, {b.passes:.3g} epochs. Learning rate "
        f"{first:.3g} at the first update, {last:.3g} at the last."
    )


def _some(rows: Sequence[AdvantageRow]) -> list[AdvantageRow]:
    """At most nine rows, spread evenly, both ends and their neighbours among them."""
    last = len(rows) - 1
    if len(rows) <= _ROWS:
        return list(rows)
    chosen = {0, 1, last - 1, last} | {round(last * part / 6) for part in range(1, 6)}
    return [rows[index] for index in sorted(chosen)]


def _dead(row: DeadGroups) -> tuple[str, ...]:
    cells: tuple[str, ...] = (f"{row.pass_rate:g}", _chance(row.group), _chance(row.step))
    if row.attempts is None or row.samples is None or row.short is None:
        return cells
    return (*cells, f"{row.attempts:.2f}", f"{row.samples:.1f}", _chance(row.short))


def _chance(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 1e-9:  # never, and below what the sums behind it resolve
        return "0"
    return f"{value:.4f}" if value >= 1e-4 else f"{value:.0e}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value + 0.0:+.4f}" if abs(value) > 5e-5 else "0"


def wrapped(indent: str, text: str) -> str:
    return textwrap.fill(
        text, width=_WIDTH, initial_indent=indent, subsequent_indent=indent + "  " * bool(indent),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
