"""Is a sweep's report right about luck and about axes? Simulated studies whose truth is known.

    python benchmarks/sweep_statistics.py [--studies 300] [--json]

Winners. Candidates of three seeds each whose true means are given in standard errors of such a mean; the error is the
winner's score less its true mean, as it is and as `selection_bias` corrects it, on average over the studies, with its
root mean square.

Axes. Candidates at random points of three axes: one of three values, one of two that does nothing, and a range on a log
scale; with normal rest. `covered` is how often the interval of an axis's share holds the true share, `shown` how often
it is said to have an effect. Everything follows from the fixed seed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.health.statistics import mean
from grpoctl.analysis.sweeps.effects import axis_effects
from grpoctl.analysis.sweeps.ranking import ranked
from grpoctl.analysis.sweeps.selection import selection_bias

SEED = 1
SEEDS = 3
COUNTS = (5, 12, 24)
TRUTHS: Mapping[str, Callable[[random.Random, int], list[float]]] = {
    "all equal": lambda _, k: [0.0] * k,
    "spread by 1": lambda dice, k: [dice.gauss(0, 1) for _ in range(k)],
    "spread by 5": lambda dice, k: [dice.gauss(0, 5) for _ in range(k)],
    "half collapsed, the others equal": lambda _, k: [-40.0] * (k // 2) + [0.0] * (k - k // 2),
    "evenly from 0 to 10": lambda _, k: [10 * n / (k - 1) for n in range(k)],
    "one 3 above equal ones": lambda _, k: [3.0, *[0.0] * (k - 1)],
    "one 10 above equal ones": lambda _, k: [10.0, *[0.0] * (k - 1)],
}
CASES = [(24, 0.0, 0.0), (24, 0.1, 0.0), (24, 0.1, 0.1), (60, 0.1, 0.05), (12, 0.1, 0.0)]  # candidates, sd by two axes
REST = 0.1  # sd of what no axis explains
NOISE = 0.01  # of a seed
CHOICE: Mapping[str, Any] = {"values": [2, 4, 8]}
IDLE: Mapping[str, Any] = {"values": ["x", "y"]}
RANGE: Mapping[str, Any] = {"low": 1e-4, "high": 1e-2, "log": True}


def a_trial(number: int, truth: float, noise: float, dice: random.Random, params: Mapping[str, Any]) -> dict[str, Any]:
    """A completed candidate."""
    values = [truth + dice.gauss(0, noise) for _ in range(SEEDS)]
    return {"number": number, "status": "COMPLETED", "values": values, "params": params}


def winners(studies: int) -> list[dict[str, Any]]:
    """One row per number of candidates and kind of truth."""
    dice, rows = random.Random(SEED), []
    for k in COUNTS:
        for name, draw in TRUTHS.items():
            raw, corrected = [], []
            for _ in range(studies):
                truths = draw(dice, k)
                trials = [a_trial(n, truth, math.sqrt(SEEDS), dice, {}) for n, truth in enumerate(truths)]
                bias = selection_bias(ranked(trials), sign=1)
                assert bias is not None
                raw.append(bias.score - truths[bias.number])
                corrected.append(bias.corrected - truths[bias.number])
            rows.append({"candidates": k, "truth": name, **_errors("raw", raw), **_errors("corrected", corrected)})
    return rows


def _errors(name: str, errors: Sequence[float]) -> dict[str, float]:
    return {name: mean(errors), f"{name}_rms": math.sqrt(mean([error**2 for error in errors]))}


def axes(studies: int) -> list[dict[str, Any]]:
    """One row per case and axis."""
    dice, rows = random.Random(SEED), []
    for candidates, choice, curve in CASES:
        total = choice**2 + curve**2 + REST**2 + NOISE**2 / SEEDS
        true = {"choice": choice**2 / total, "idle": 0.0, "range": curve**2 / total}
        seen: dict[str, list[tuple[bool, bool]]] = {name: [] for name in true}
        for _ in range(studies):
            trials = []
            for n in range(candidates):
                place = dice.random()
                params = {"choice": dice.choice([2, 4, 8]), "idle": dice.choice("xy"), "range": 1e-4 * 100**place}
                truth = choice * math.sqrt(1.5) * {2: -1, 4: 0, 8: 1}[params["choice"]]
                truth += curve * math.sqrt(5) / 2 * (1 - 12 * (place - 0.5) ** 2) + dice.gauss(0, REST)
                trials.append(a_trial(n, truth, NOISE, dice, params))
            document = {"trials": trials, "axes": {"choice": CHOICE, "idle": IDLE, "range": RANGE}}
            for effect in axis_effects(document, ranked(trials)):
                low, high = effect.interval or (0.0, 1.0)
                seen[effect.key].append((low <= true[effect.key] <= high, effect.judgement == "effect"))
        for name, outcomes in seen.items():
            covered, shown = (mean([float(entry[at]) for entry in outcomes]) for at in (0, 1))
            case = {"candidates": candidates, "axis": name, "share": true[name]}
            rows.append({**case, "covered": covered, "shown": shown})
    return rows


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--studies", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tables = {"winners": winners(options.studies), "axes": axes(options.studies)}
    if options.json:
        print(json.dumps(tables, indent=2))
        return
    for name, rows in tables.items():
        print(f"{name}\n" + "  ".join(rows[0]))
        for row in rows:
            print("  ".join(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))


if __name__ == "__main__":
    main()
