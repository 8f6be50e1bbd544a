"""How often each pruner loses the best arm, and what it saves, on synthetic noisy crossing curves.

    python benchmarks/pruning.py [--studies 200] [--arms 24] [--json]

The model. Each study has `arms` arms. An arm ends at a true final value, uniform in 0.3 to 0.7, on which it closes in
at a rate that is log-uniform in 0.5 to 10, u being the share of the run that is spent:

    value(u) = 0.2 + (final - 0.2) (1 - exp(-rate u)) / (1 - exp(-rate))

So all arms start alike, and a slow good one is overtaken by quick bad ones for a while. Each run's final value differs
from its arm's by a normal number of sd 0.02 (the seed), each report by one of sd `noise`. A trial is 3 runs of 8
reports or 1 run of 24; trial n sees the trials up to n - 2, as with two workers. The arm that is chosen is the one with
the best mean of its runs' last reports among those that were not given up.

`lost`: the arm of the best true value was given up. `within 2 %`: the chosen arm's true value is at least 98 % of the
best. `saved`: share of all reports that were not needed. Everything follows from the fixed seed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from grpoctl.sweeps.pruning import Curve, decide
from grpoctl.sweeps.spec import PrunerSpec

SEED = 1
LAG = 2
SEED_SD = 0.02
SETTINGS = [(3, 8), (1, 24)]  # seeds, reports of each run
NOISES = [0.0, 0.05, 0.1]

Judge = Callable[[Curve, Sequence[Curve], int], bool]  # (curve so far, ended ones, seeds) -> give it up


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One candidate: what it is truly worth, and the reports it will make."""

    final: float
    curve: Curve


def study(rng: random.Random, arms: int, setting: tuple[int, int], noise: float) -> list[Arm]:
    """The arms of one study, in the order they are tried."""
    seeds, reports = setting
    found = []
    for _ in range(arms):
        final, rate = rng.uniform(0.3, 0.7), math.exp(rng.uniform(math.log(0.5), math.log(10)))
        points = []
        for seed in range(seeds):
            end = final + rng.gauss(0, SEED_SD)
            for report in range(1, reports + 1):
                risen = (1 - math.exp(-rate * report / reports)) / (1 - math.exp(-rate))
                points.append((seed, report / reports, 0.2 + (end - 0.2) * risen + rng.gauss(0, noise)))
        found.append(Arm(final=final, curve=tuple(points)))
    return found


def ours(**options: Any) -> Callable[[int], Judge]:
    """A rule of grpoctl; options left out are the defaults."""
    rule = PrunerSpec.model_validate(options)
    return lambda _: lambda curve, others, seeds: decide(rule, curve, others, range(seeds)) is not None


def optunas(make: Callable[[Any], Any]) -> Callable[[int], Judge]:
    """A pruner of Optuna, on a study in memory. Trials it has not seen the end of stay running in it."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")

    def begin(number: int) -> Judge:
        # Hyperband takes its brackets from the study's name
        there = optuna.create_study(study_name=str(number), direction="maximize", pruner=make(optuna.pruners))
        trials: list[Any] = []
        told = 0

        def judge(curve: Curve, others: Sequence[Curve], seeds: int) -> bool:
            nonlocal told
            if len(curve) == 1:
                trials.append(there.ask())
                while told < len(others):
                    whole = others[told][-1][:2] == (seeds - 1, 1.0)
                    value = others[told][-1][2] if whole else None
                    state = optuna.trial.TrialState.COMPLETE if whole else optuna.trial.TrialState.PRUNED
                    there.tell(trials[told], value, state=state)
                    told += 1
            seed, share, value = curve[-1]
            trials[-1].report(value, round(1000 * (seed + share)))
            return bool(trials[-1].should_prune())

        return judge

    return begin


RULES: dict[str, Callable[[int], Judge]] = {
    "none": ours(name="none"),
    "patient-median, patience 2, warmup 0.25": ours(patience=2, warmup=0.25),
    "patient-median, patience 3, warmup 0": ours(patience=3, warmup=0.0),
    "patient-median, patience 3, warmup 0.25": ours(patience=3, warmup=0.25),
    "patient-median (the default: 3, 0.5)": ours(name="patient-median"),
    "successive-halving, warmup 0.25": ours(name="successive-halving", warmup=0.25),
    "successive-halving (the default: 0.5)": ours(name="successive-halving"),
    "Optuna MedianPruner()": optunas(lambda p: p.MedianPruner()),
    "Optuna MedianPruner(n_warmup_steps=half)": optunas(lambda p: p.MedianPruner(n_warmup_steps=500)),
    "Optuna PatientPruner(MedianPruner(), 3)": optunas(lambda p: p.PatientPruner(p.MedianPruner(), patience=3)),
    "Optuna SuccessiveHalvingPruner()": optunas(lambda p: p.SuccessiveHalvingPruner()),
    "Optuna HyperbandPruner()": optunas(lambda p: p.HyperbandPruner()),
}


def replay(arms: Sequence[Arm], judge: Judge, setting: tuple[int, int]) -> tuple[list[float | None], float]:
    """Each arm's score, None where it was given up, and the share of the reports that was made."""
    seeds, reports = setting
    ended: list[Curve] = []
    scores: list[float | None] = []
    for number, arm in enumerate(arms):
        others = ended[: max(0, number - LAG + 1)]
        made = next((n for n in range(1, len(arm.curve)) if judge(arm.curve[:n], others, seeds)), len(arm.curve))
        ended.append(arm.curve[:made])
        last = [value for _, _, value in arm.curve[reports - 1 :: reports]]
        scores.append(sum(last) / seeds if made == len(arm.curve) else None)
    return scores, sum(map(len, ended)) / sum(len(arm.curve) for arm in arms)


def measure(
    rule: Callable[[int], Judge], setting: tuple[int, int], noise: float, size: tuple[int, int]
) -> dict[str, float]:
    """`lost`, `near` and `saved` over all studies."""
    studies, arms = size
    rng = random.Random(SEED)
    lost = near = spent = 0.0
    for number in range(studies):
        drawn = study(rng, arms, setting, noise)
        scores, share = replay(drawn, rule(number), setting)
        best = max(drawn, key=lambda arm: arm.final)
        chosen = max(zip(scores, drawn, strict=True), key=lambda pair: -math.inf if pair[0] is None else pair[0])[1]
        lost += scores[drawn.index(best)] is None
        near += chosen.final >= 0.98 * best.final
        spent += share
    return {"lost": lost / studies, "near": near / studies, "saved": 1 - spent / studies}


def row(name: str, setting: tuple[int, int], size: tuple[int, int]) -> list[dict[str, Any]]:
    """What was measured of one rule, by noise."""
    seen = [(noise, measure(RULES[name], setting, noise, size)) for noise in NOISES]
    return [{"rule": name, "seeds": setting[0], "noise": noise, **found} for noise, found in seen]


def main() -> None:
    """Print a table per number of seeds, or all of it as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--arms", type=int, default=24)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    size = (asked.studies, asked.arms)
    with ProcessPoolExecutor() as pool:
        under_way = {(setting, name): pool.submit(row, name, setting, size) for setting in SETTINGS for name in RULES}
        if asked.json:
            rows = [line for one in under_way.values() for line in one.result()]
            print(json.dumps({"studies": asked.studies, "arms": asked.arms, "seed": SEED, "rows": rows}, indent=1))
            return
        for ((seeds, reports), name), one in under_way.items():
            if name == next(iter(RULES)):
                print(f"\n{seeds} x {reports} reports, % lost / within 2 % / saved, at noise {NOISES}")
            texts = (
                " / ".join(f"{100 * line[key]:4.1f}" for key in ("lost", "near", "saved")) for line in one.result()
            )
            print(f"{name:42}{'    '.join(texts)}", flush=True)


if __name__ == "__main__":
    main()
