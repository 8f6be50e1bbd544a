"""`grpoctl check --simulate`: what K, B, normaliser and filter of each GRPO stage are worth, in a bandit. No torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from core.config import GrpoStage
from core.errors import UserError
from core.health.case import Sample
from core.health.simulation.report import PASS_RATES, Row, Simulation, per, said, simulate
from core.health.simulation.rewards import RewardModel, measured, of_pass_rates
from grpoctl import console
from grpoctl.cli.checking import wrapped
from grpoctl.config import load
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the command line says: whether `--simulate` is there, and the two that belong to it."""

    asked: bool
    pass_rates: Sequence[float]
    rewards: str | None


def wanted(options: Options, kinds: Collection[str], name: str) -> RewardModel | None:
    """What completions earn; None where nothing is asked. Raises UserError, before anything is said."""
    rates, source = list(options.pass_rates), options.rewards
    if not options.asked:
        if rates or source is not None:
            raise UserError("got --pass-rate or --rewards by itself; they belong to --simulate: add it")
        return None
    if "experiment" not in kinds:
        raise UserError(f"--simulate looks at an experiment, and {name!r} is a sweep; check the one it is over")
    if rates and source is not None:
        raise UserError("got --pass-rate and --rewards; what completions earn is said once: leave one of them out")
    if source is not None:
        return _read(source)
    if bad := [rate for rate in rates if not 0.0 < rate < 1.0]:
        raise UserError(f"got --pass-rate {bad[0]:g}; allowed: a number above 0 and below 1")
    taken = "prompts of pass rate {}, by default (--pass-rate, --rewards)"
    default = taken.format(", ".join(f"{rate:g}" for rate in PASS_RATES))
    return of_pass_rates(rates) if rates else of_pass_rates(PASS_RATES, default)


def check(name: str, profile: str, overrides: Sequence[str], rewards: RewardModel, *, json: bool) -> dict[str, Any]:
    """The key `simulation` of the JSON document, by stage; printed as text unless `json`. Raises what `load` does."""
    spec = load(name, profile=profile, overrides=overrides, revisions=revisions_of(Home.locate())).spec
    stages = {key: stage for key, stage in spec.stages.items() if isinstance(stage, GrpoStage)}
    if not stages:
        raise UserError(f"--simulate looks at GRPO stages, and {spec.name} has none")
    document = {}
    for key, stage in stages.items():
        found = simulate(stage, rewards)
        document[key] = _document(key, found)
        if not json:
            say(key, found)
    return document


def groups_of(samples: Iterable[Sample]) -> list[list[float]]:
    """The rewards of each group of a run: of one prompt on one step. A sample of no known prompt is a group alone."""
    groups: dict[object, list[float]] = {}
    for index, sample in enumerate(samples):
        if sample.reward is not None and math.isfinite(sample.reward):
            key = index if sample.group is None else (sample.step, sample.group)
            groups.setdefault(key, []).append(sample.reward)
    return list(groups.values())


def say(stage: str, found: Simulation) -> None:
    """The simulation of one stage, as text on standard output."""
    own, rewards = found.own.signal, found.rewards
    text = f"Stage {stage}, simulated: {rewards.source}: mean reward {rewards.mean:.3f}, std {rewards.std:.3f}"
    console.print_text(wrapped("", "; ".join([text, *rewards.notes]) + "."))
    sizes = sorted(
        (row for row in found.rows if row.kind in ("own", "size")), key=lambda row: row.signal.num_generations
    )
    console.print_text("")
    console.print_table(
        f"K at about equal completions, {found.own.label}",
        ("K", "B", "sampled", "dead", "live", "silent", "SNR/1000", "worth", "(prompts)"),
        [_size(row) for row in sizes],
    )
    others = [row for row in found.rows if row.kind in ("normaliser", "filter")]
    console.print_table(
        f"With K={own.num_generations} and B={own.prompts_per_step}",
        ("", "sampled", "SNR/1000", "aim", "worth", "(prompts)"),
        [_other(row) for row in [found.own, *others]],
    )
    console.print_text(wrapped("", found.conclusion + "."))
    console.print_text("\n" + wrapped("", _legend(found)))


def _legend(found: Simulation) -> str:
    bandit = found.bandit
    return (
        f"SNR/1000: signal-to-noise ratio of the gradient's direction for 1,000 completions. worth: how many "
        f"completions of the stage's own setting one completion replaces at equal SNR. (prompts): the worth if only "
        f"prompts were noise. live: completions of a step in groups with signal. silent: probability of a step without "
        f"signal. aim: cosine to the true gradient after endless sampling. Model: a bandit of {bandit.ways} answers "
        f"for each reward whose prompts' gradients have cosine {bandit.sharing:g} (measured on builtin:tiny). It says "
        f"nothing about learning rates: gradient lengths are not compared, and it is one update at fixed weights."
    )


def _size(row: Row) -> tuple[str, ...]:
    one = row.signal
    return (
        str(one.num_generations), str(one.prompts_per_step), f"{one.completions:.1f}", f"{one.dead:.3f}",
        f"{one.live:.1f}", f"{one.silent:.3f}", _tight(per(one)), _tight(said(row.worth)), _number(row.worth.prompts),
    )  # fmt: skip


def _other(row: Row) -> tuple[str, ...]:
    one = row.signal
    return (
        row.label, f"{one.completions:.1f}", _tight(per(one)),
        "-" if one.aim is None else f"{one.aim:.3f}", _tight(said(row.worth)), _number(row.worth.prompts),
    )  # fmt: skip


def _tight(text: str) -> str:
    return text.replace(" ± ", " ±")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _document(stage: str, found: Simulation) -> dict[str, Any]:
    """The simulation with overrides as they are pasted after the experiment's name."""
    document = found.as_json()
    for row in document["settings"]:
        row["overrides"] = [f"stages.{stage}.{one}" for one in row["overrides"]]
    return document


def _read(source: str) -> RewardModel:
    """What a run earned. Raises what reading it raises, and UserError where it has no rewards."""
    from grpoctl.diagnose.readers.base import Source
    from grpoctl.diagnose.readers.registry import open_source

    read = open_source(Source(name=source, path=None))
    groups = groups_of(read.case.samples)
    if not groups:
        raise UserError(f"{read.source} has no rewards of single completions ({read.kind}); --rewards needs them")
    many = sum(map(len, groups))
    return measured(groups, f"{read.source}, {many} rewards in {len(groups)} groups")
