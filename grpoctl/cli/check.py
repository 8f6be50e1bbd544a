"""`grpoctl check`: what a configuration can and cannot do, before it runs.

What is here: an experiment's stages, advantages, dead groups and settings without effect. What is not: the task's data
(check_data), memory, time and disk (check_resources), the bandit (check_simulation) and sweeps (check_sweep).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from core.algorithms.schedules import learning_rate
from core.config import RunSpec, StageBase
from core.config.run import check_fit
from core.health.before.advantages import AdvantageRow, DeadGroups, kept
from core.health.before.budget import Budget
from core.health.before.inert import Inert
from core.health.before.report import K_PASS_RATES, StageForesight, foresee
from core.health.before.view import StageView
from core.health.finding import Finding
from core.tasks.registry import check_task
from grpoctl import console
from grpoctl.cli import check_data, check_resources, check_simulation, check_sweep
from grpoctl.cli.options import Json, Overrides, Profile
from grpoctl.config import load, spec_sha
from grpoctl.config.loading import Loaded
from grpoctl.executors.needs import check_trainer
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.profile import full_of, resolve_or_full
from grpoctl.runs.run_dir import Home
from grpoctl.sweeps.loading import base_of, kinds_of
from grpoctl.wording import plural, setting_text

_ROWS = 9  # of the table of advantages: a K of 64 has 65


def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Experiment, sweep or .yaml file.")],
    overrides: Overrides = None,
    profile: Profile = "full",
    json: Json = False,
    data: Annotated[
        bool, typer.Option("--data", help="Inspect the task's problems, and sample the model on some.")
    ] = False,
    probe: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="With --data: problems to sample.  [default: 16]")
    ] = None,
    no_model: Annotated[bool, typer.Option("--no-model", help="With --data: do not load the model.")] = False,
    model_samples: Annotated[
        bool, typer.Option("--model-samples", help="With --data --json: include the model's completions.")
    ] = False,
    resources: Annotated[
        bool, typer.Option("--resources", help="Estimate memory, time and disk, and measure a step.")
    ] = False,
    memory: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="With --resources: memory to fit into; default: what is free here."),
    ] = None,
    no_probe: Annotated[
        bool, typer.Option("--no-probe", help="With --resources: estimate only, load no model.")
    ] = False,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Compare K, B, normaliser and filter in a simulated bandit.")
    ] = False,
    pass_rate: Annotated[
        list[float] | None, typer.Option(metavar="P", help="With --simulate: a prompt pass rate; may be repeated.")
    ] = None,
    rewards: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="With --simulate: rewards from a run or log that diagnose reads."),
    ] = None,
) -> None:
    settings, kinds = tuple(overrides or ()), kinds_of(name)
    revisions = revisions_of(Home.locate())
    base = full_of if "experiment" in kinds else base_of
    profile, _ = resolve_or_full(profile, lambda: base(name, settings, revisions))
    of_data = check_data.options(
        check_data.Arguments(data=data, probe=probe, no_model=no_model, model_samples=model_samples), kinds, name
    )
    of_resources = check_resources.options(
        check_resources.Arguments(resources=resources, memory=memory, no_probe=no_probe), kinds, name
    )
    reward_model = check_simulation.reward_model(
        check_simulation.Arguments(simulate=simulate, pass_rates=pass_rate or (), rewards=rewards), kinds, name
    )
    document: dict[str, Any] = {}
    if "experiment" in kinds:
        loaded = load(name, profile=profile, overrides=settings, revisions=revisions)
        spec = loaded.spec
        # What a part cannot look at is refused before the first part is printed.
        if of_data is not None:
            check_data.require_data(spec, of_data)
        if of_resources is not None:
            check_resources.require_language_model(spec)
        if reward_model is not None:
            check_simulation.require_simulable(spec)
        document = check_experiment(spec, restated(loaded), json=json)
        if of_data is not None:
            document["data"] = check_data.check(spec, of_data, json=json)
            document["verdict"] = _with_data(document["verdict"], document["data"]["warnings"], json=json)
        if of_resources is not None:
            document["resources"] = check_resources.check(name, loaded, settings, of_resources, json=json)
        if reward_model is not None:
            document["simulation"] = check_simulation.check(spec, reward_model, json=json)
    if "sweep" in kinds:
        document = {"schema": 1, **document, "sweep": check_sweep.check(name, profile, settings, json=json)}
    if json:
        console.print_json(document)


def restated(loaded: Loaded) -> list[Inert]:
    """The settings that the experiment's file names and its parents have already: they change nothing."""
    if len(loaded.chain) < 2:
        return []
    parent = loaded.chain[1].stem
    return [
        Inert(
            key=key,
            value=value,
            reason=f"{parent}, which this extends, has the same value",
            acts="another value than its",
            exact=True,
        )
        for key, value in loaded.restated.items()
    ]


def check_experiment(spec: RunSpec, restated: Sequence[Inert] = (), *, json: bool) -> dict[str, Any]:
    """The JSON document of an experiment; printed as text unless `json`. Raises what the task and its data raise."""
    check_fit(spec)
    check_task(spec)  # a task can refuse what a type cannot: more problems than there are
    check_trainer(spec)
    foresight, sha = foresee(spec), spec_sha(spec)
    named = {knob.key for knob in foresight.inert}
    without_effect = [*foresight.inert, *(knob for knob in restated if knob.key not in named)]
    verdict = _verdict(spec, foresight.warnings)
    if not json:
        console.print_text(f"{spec.name}@{spec.revision}, profile {spec.profile}, sha {sha[:8]}\n")
        for stage in foresight.stages:
            _print_stage(stage)
        console.print_text("Settings without effect" + ("" if without_effect else ": none"))
        for knob in without_effect:
            value = "" if isinstance(knob.value, dict) else f" = {setting_text(knob.value)}"
            console.print_paragraph(f"{knob.key}{value}: {knob.reason}. To make it act: {knob.acts}.", "  ")
        console.print_text("\nWarnings")
        for finding in foresight.warnings:
            console.print_paragraph(f"{finding.severity}: {finding.summary}.", "  ")
        console.print_text("\nVerdict")
        console.print_paragraph(f"{verdict}.", "  ")
    return {
        "schema": 1,
        "verdict": verdict,
        "experiment": spec.name,
        "profile": spec.profile,
        "spec_sha": sha,
        "stages": {stage.view.name: _stage_document(stage) for stage in foresight.stages},
        "inert": [asdict(knob) for knob in without_effect],
        "warnings": [finding.as_json() for finding in foresight.warnings],
    }


def _verdict(spec: RunSpec, warnings: Sequence[Finding]) -> str:
    """Whether the spec can learn at all, as far as arithmetic tells, under which profile, and how many warnings."""
    counts = Counter(finding.severity for finding in warnings)
    under = f"under profile {spec.profile}"
    if counts["error"]:
        return f"no: {plural(counts['error'], 'error')} {under}"
    if spec.faults:
        return f"no: {under} a fault is injected ({', '.join(spec.faults)}), and rewards reflect it, not the method"
    weaker = f"; {plural(counts['warning'], 'warning')} above" if counts["warning"] else ""
    return f"yes, {under} nothing here rules out a learning signal{weaker} (another profile: -p NAME)"


def _with_data(verdict: str, warnings: Sequence[Mapping[str, Any]], *, json: bool) -> str:
    """The verdict where the data counts, too; printed again where they say no, unless `json`."""
    errors = sum(warning["severity"] == "error" for warning in warnings)
    if not errors or verdict.startswith("no"):
        return verdict
    of_both = f"no: {plural(errors, 'error')} about the data"
    if not json:
        console.print_text("\nVerdict, the data counted")
        console.print_paragraph(f"{of_both}.", "  ")
    return of_both


def _stage_document(foresight: StageForesight) -> dict[str, Any]:
    view, budget = foresight.view, asdict(foresight.budget)
    first, last = rates(view.stage, budget.pop("first_tick"), budget.pop("last_tick"))
    common = {"kind": getattr(view.stage, "kind", "grpo"), **budget, "learning_rate": {"first": first, "last": last}}
    if view.num_generations:
        common["num_generations"] = view.num_generations
    if view.grpo is None:
        return common
    return {
        "method": view.grpo.method,
        **common,
        "advantages": [asdict(row) for row in foresight.advantages],
        "advantages_note": foresight.note,
        "max_advantage": foresight.largest_advantage,
        "dead_groups": [
            {key: value for key, value in asdict(row).items() if value is not None or key == "step"}
            for row in foresight.dead_groups
        ],
        "group_sizes": [
            {**asdict(row), "dead_groups": [{"pass_rate": rate, "group": dead} for rate, dead in row.dead_groups]}
            for row in foresight.group_sizes
        ],
    }


def rates(stage: StageBase, first: float, last: float) -> tuple[float, float]:
    """The learning rates of two ticks of the stage's clock, plateaus left out."""
    at_first, at_last = (
        learning_rate(
            stage.learning_rate,
            stage.lr_scheduler_type,
            index=tick,
            warmup_steps=stage.warmup_steps,
            total_steps=stage.lr_horizon,
        )
        for tick in (first, last)
    )
    return at_first, at_last


def _print_stage(foresight: StageForesight) -> None:
    view = foresight.view
    kind = f"method {view.grpo.method}" if view.grpo else str(getattr(view.stage, "kind", ""))
    console.print_paragraph(f"Stage {view.name}: {kind}. {_budget(foresight)}")
    console.print_text("")
    if view.grpo is None:
        return
    advantages = [
        (str(row.successes), _signed(row.success), _signed(row.failure)) for row in _spread(foresight.advantages)
    ]
    title = f"Advantages, rewards 1 and 0, K={len(foresight.advantages) - 1}"
    console.print_table(title, ("correct", "advantage if correct", "if wrong"), advantages)
    largest, note = foresight.largest_advantage, foresight.note
    most = "unbounded" if largest is None else f"at most {largest:.4f}"
    console.print_paragraph(f"|advantage| for any rewards: {most}{'; ' if note else ''}{note}", "  ")
    console.print_text("")
    if not foresight.dead_groups:
        stored = view.grpo.groups == "offline"
        why = "groups are of stored outputs; --data counts those with signal" if stored else "not known of this choice"
        console.print_paragraph(f"Chance of a dead group: {why}.", "  ")
        console.print_text("")
        return
    columns: tuple[str, ...] = ("pass rate", "dead group", "dead step")
    if view.grpo.dynamic_sampling is not None:
        columns = (*columns, "samplings", "completions", "groups missing")
    best = kept(view.grpo)
    kept_only = f" (best {best} kept)" if best < view.num_generations else ""
    console.print_table(
        f"Probability of a dead group{kept_only}, and of a step without signal",
        columns,
        [_dead(row) for row in foresight.dead_groups],
    )
    sizes = [
        (
            str(row.num_generations),
            *(_probability(dead) for _, dead in row.dead_groups),
            "unbounded" if row.max_advantage is None else f"{row.max_advantage:.4f}",
            "; ".join(filter(None, ["here" * (row.num_generations == view.num_generations), row.said])),
        )
        for row in foresight.group_sizes
    ]
    console.print_table(
        "Other K: dead groups at pass rate p, largest |advantage|",
        ("K", *(f"p = {rate:g}" for rate in K_PASS_RATES), "largest", "advice (document 000)"),
        sizes,
    )


def _budget(foresight: StageForesight) -> str:
    """Effective batch, updates, completions, tokens and learning rate in one paragraph."""
    view, b = foresight.view, foresight.budget
    stored = view.num_generations > 0 and not view.stage.rows_per_step
    first, last = rates(view.stage, b.first_tick, b.last_tick)
    refills = f" ({b.max_completions_with_refills} with refills)" * (b.max_completions_with_refills > b.max_completions)
    tokens = f", {b.max_tokens:,} tokens at most" if view.spec.policy.tokens else ""
    sampled = f", {b.max_completions} completions{refills}{tokens}" if view.stage.rows_per_step else ""
    few = f"{b.min_steps} to " * (b.min_steps < b.max_steps)
    return (
        f"A step: {_rows_text(view, b)}, {plural(b.updates_per_step, 'update')} of {'at most ' * stored}"
        f"{b.completions_per_update:g} (micro-batch {b.micro_batch}). {few}{plural(b.max_steps, 'step')}: at "
        f"most {plural(b.max_updates, 'update')}{sampled}, {b.passes:.3g} epochs. Learning rate "
        f"{first:.3g} at the first update, {last:.3g} at the last."
    )


def _rows_text(view: StageView, b: Budget) -> str:
    """What a step learns from: completions that it samples, outputs that are stored, or the task's answers."""
    prompts = plural(b.prompts_per_step, "prompt")
    if not view.num_generations:
        return plural(b.prompts_per_step, "answer")
    if not b.completions_per_step:
        return f"{prompts} with at most {view.num_generations} stored outputs each, none drawn"
    return f"{prompts} x {view.num_generations} = {plural(b.completions_per_step, 'completion')}"


def _spread(rows: Sequence[AdvantageRow]) -> list[AdvantageRow]:
    """At most nine rows, spread evenly, both ends and their neighbours among them."""
    last = len(rows) - 1
    if len(rows) <= _ROWS:
        return list(rows)
    chosen = {0, 1, last - 1, last} | {round(last * part / 6) for part in range(1, 6)}
    return [rows[index] for index in sorted(chosen)]


def _dead(row: DeadGroups) -> tuple[str, ...]:
    cells: tuple[str, ...] = (f"{row.pass_rate:g}", _probability(row.group), _probability(row.step))
    if row.attempts is None or row.samples is None or row.short is None:
        return cells
    return (*cells, f"{row.attempts:.2f}", f"{row.samples:.1f}", _probability(row.short))


def _probability(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 1e-9:  # never, and below what the sums behind it resolve
        return "0"
    return f"{value:.4f}" if value >= 1e-4 else f"{value:.0e}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value + 0.0:+.4f}" if abs(value) > 5e-5 else "0"
