"""`grpoctl check --simulate`: what K, B, normaliser and filter of each GRPO stage are worth, in a bandit. No torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from core.algorithms.names import TRANSFORMS
from core.config import GrpoStage, RunSpec
from core.errors import UserError
from core.health.case import Sample
from core.health.simulation.report import PASS_RATES, Row, Simulation, per, simulate, worth_text
from core.health.simulation.rewards import RewardModel, measured, of_pass_rates
from grpoctl import console


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """`--simulate` and the options that belong to it, as the command line has them."""

    simulate: bool
    pass_rates: Sequence[float]
    rewards: str | None


def reward_model(arguments: Arguments, kinds: Collection[str], name: str) -> RewardModel | None:
    """The rewards that completions earn in the simulation, None without `--simulate`.

    Raises UserError for what cannot be, and what reading a run's or a log's rewards raises.
    """
    rates, source = list(arguments.pass_rates), arguments.rewards
    if not arguments.simulate:
        if rates or source is not None:
            raise UserError("got --pass-rate or --rewards by itself; they belong to --simulate: add it")
        return None
    if "experiment" not in kinds:
        raise UserError(f"--simulate looks at an experiment, and {name!r} is a sweep; check the one it is over")
    if rates and source is not None:
        raise UserError("got --pass-rate and --rewards; what completions earn is said once: leave one of them out")
    if source is not None:
        return _rewards_of(source)
    if bad := [rate for rate in rates if not 0.0 < rate < 1.0]:
        raise UserError(f"got --pass-rate {bad[0]:g}; allowed: a number above 0 and below 1")
    if rates:
        return of_pass_rates(rates)
    by_default = ", ".join(f"{rate:g}" for rate in PASS_RATES)
    return of_pass_rates(PASS_RATES, f"prompts of pass rate {by_default}, by default (--pass-rate, --rewards)")


def require_simulable(spec: RunSpec) -> None:
    """Raises UserError for a spec without a GRPO stage, and for one of which the bandit would say what is not so."""
    stages = {name: stage for name, stage in spec.stages.items() if isinstance(stage, GrpoStage)}
    if not stages:
        raise UserError(f"--simulate looks at GRPO stages, and {spec.name} has none")
    if spec.policy.density:
        of_actions = f"the {spec.policy.kind} policy draws continuous actions"
        raise UserError(f"--simulate has a bandit of 70 answers for a policy, and {of_actions}; leave it out")
    if not any(map(_learns_from_rewards, stages.values())):
        raise UserError("--simulate is about the policy gradient, and every GRPO stage has policy_weight: 0")
    for name, stage in stages.items():
        transform = stage.advantage.transform
        if stage.groups == "offline":
            why = f"stage {name} learns from stored outputs; check --data counts their live groups"
            raise UserError(f"--simulate draws completions anew, and {why}")
        if stage.keep_candidates is not None and stage.candidate_choice != "best":
            got = f"stage {name} has candidate_choice {stage.candidate_choice}"
            raise UserError(f"--simulate keeps the best candidates, and {got}; candidate_choice: best is simulated")
        if TRANSFORMS[transform].by_place:
            instead = "transform: rank is simulated"
            if spec.task.stores_outputs:
                instead = "check --data counts the live groups of stored outputs"
            raise UserError(
                f"--simulate takes equal rewards for one, and {transform} of stage {name} does not; {instead}"
            )


def _learns_from_rewards(stage: GrpoStage) -> bool:
    """Whether the policy gradient acts on any step of the stage."""
    return stage.policy_weight.start != 0 or stage.policy_weight.end != 0


def check(spec: RunSpec, rewards: RewardModel, *, json: bool) -> dict[str, Any]:
    """The key `simulation` of the JSON document, by GRPO stage; printed as text unless `json`."""
    document = {}
    for name, stage in spec.stages.items():
        if isinstance(stage, GrpoStage) and _learns_from_rewards(stage):
            simulation = simulate(stage, rewards)
            document[name] = _document(name, simulation)
            if not json:
                _print(name, simulation)
    return document


def groups_of(samples: Iterable[Sample]) -> list[list[float]]:
    """The rewards of each group of a run: of one prompt on one step. A sample of no known prompt is a group alone."""
    groups: dict[object, list[float]] = {}
    for index, sample in enumerate(samples):
        if sample.reward is not None and math.isfinite(sample.reward):
            key = index if sample.group is None else (sample.step, sample.group)
            groups.setdefault(key, []).append(sample.reward)
    return list(groups.values())


def _print(stage: str, simulation: Simulation) -> None:
    """Print the simulation of one stage."""
    signal, rewards = simulation.own.signal, simulation.rewards
    text = f"Stage {stage}, simulated: {rewards.source}: mean reward {rewards.mean:.3f}, std {rewards.std:.3f}"
    console.print_paragraph("; ".join([text, *rewards.notes]) + ".")
    sizes = [row for row in simulation.rows if row.kind in ("own", "size")]
    console.print_text("")
    console.print_table(
        f"K at about equal completions, {simulation.own.label}",
        ("K", "B", "sampled", "dead", "live", "silent", "SNR/1000", "worth", "(prompts)"),
        [_size(row) for row in sorted(sizes, key=lambda row: row.signal.num_generations)],
    )
    others = [row for row in simulation.rows if row.kind in ("normaliser", "filter")]
    console.print_table(
        f"With K={signal.num_generations} and B={signal.prompts_per_step}",
        ("", "sampled", "SNR/1000", "aim", "worth", "(prompts)"),
        [_other(row) for row in [simulation.own, *others]],
    )
    console.print_paragraph(f"{simulation.conclusion}.")
    console.print_text("")
    bandit = simulation.bandit
    console.print_paragraph(
        f"SNR/1000: signal-to-noise ratio of the gradient's direction for 1,000 completions. worth: how many "
        f"completions of the stage's own setting one completion replaces at equal SNR. (prompts): the worth if only "
        f"prompts were noise. live: completions of a step in groups with signal. silent: probability of a step without "
        f"signal. aim: cosine to the true gradient after endless sampling. Model: a bandit of {bandit.ways} answers "
        f"for each reward whose prompts' gradients have cosine {bandit.sharing:g} (measured on builtin:tiny). It says "
        f"nothing about learning rates: gradient lengths are not compared, and it is one update at fixed weights."
    )


def _size(row: Row) -> tuple[str, ...]:
    signal, worth = row.signal, row.worth
    return (
        str(signal.num_generations), str(signal.prompts_per_step), f"{signal.completions:.1f}", f"{signal.dead:.3f}",
        f"{signal.live:.1f}", f"{signal.silent:.3f}", _tight(per(signal)), _tight(worth_text(worth)),
        _number(worth.prompts),
    )  # fmt: skip


def _other(row: Row) -> tuple[str, ...]:
    signal, worth = row.signal, row.worth
    return (
        row.label, f"{signal.completions:.1f}", _tight(per(signal)),
        "-" if signal.aim is None else f"{signal.aim:.3f}", _tight(worth_text(worth)), _number(worth.prompts),
    )  # fmt: skip


def _tight(text: str) -> str:
    return text.replace(" ± ", " ±")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _document(stage: str, simulation: Simulation) -> dict[str, Any]:
    """The simulation with overrides as they are pasted after the experiment's name."""
    document = simulation.as_json()
    for row in document["settings"]:
        row["overrides"] = [f"stages.{stage}.{override}" for override in row["overrides"]]
    return document


def _rewards_of(source: str) -> RewardModel:
    """The rewards of a run or a log, by group. Raises what reading it raises, and UserError where it has no rewards."""
    from grpoctl.diagnose.readers.base import Source
    from grpoctl.diagnose.readers.registry import open_source

    read = open_source(Source(name=source, path=None))
    groups = groups_of(read.case.samples)
    if not groups:
        raise UserError(f"{read.source} has no rewards of single completions ({read.kind}); --rewards needs them")
    many = sum(map(len, groups))
    return measured(groups, f"{read.source}, {many} rewards in {len(groups)} groups")
