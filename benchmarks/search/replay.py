"""Replays searches on the records of `record.py`: how many completions each takes to choose right.

    python benchmarks/search/replay.py [RECORD ...] [--half odd] [--replays 300] [--strategies NAME,...]
                                       [--json FILE] [--figure FILE] [--decided 0.9]

A record has every candidate of a sweep with 20 seeds at full budget. A replay lets a strategy ask for runs and gives it
the recorded evaluations; it is charged the completions of what it asks for that was not run before. The seeds of a half
come in an order of their own in each replay (a strategy's seed 0 is the same recorded seed for every candidate).

*Right*: the chosen candidate's mean over the seeds of the half is within .01 of the best one's. Even seeds are for
choosing a strategy, odd ones for reporting. `.8 at`: from which completions on the share of replays that would choose
right stays at .8 or above. The Monte Carlo error of a share is below .03 at 300 replays.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import strategies
from benchmarks.search.record import RECORDS, candidates, names, recorded
from benchmarks.search.strategies import Make, Space
from grpoctl.sweeps.adaptive import rungs_of

TOLERANCE = 0.01
WANTED = 0.8
GRID = 400  # costs at which the curves are read
FEW = "smol"  # of few points and seeds, for reporting: replayed only where it is named, with --half all

OURS_NOW, OURS_BEFORE, ORACLE = (
    "grpoctl adaptive",
    "grpoctl fixed (TPE, patient median, 3 seeds)",
    "oracle (told the ten best)",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """The curves of a sweep: values (candidates, seeds, evaluations), and the share at each evaluation."""

    space: Space
    values: np.ndarray[Any, np.dtype[np.float64]]
    errors: np.ndarray[Any, np.dtype[np.float64]]  # (candidates, seeds): over the prompts of an evaluation
    unit: str
    budget: int

    @property
    def truth(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Each candidate's mean over the seeds at full budget."""
        mean: np.ndarray[Any, np.dtype[np.float64]] = self.values[:, :, -1].mean(axis=1)
        return mean


@cache
def load(name: str, half: str) -> Record:
    """A record's half of the seeds; those that every candidate has."""
    head, *lines = recorded(RECORDS / f"{name}.jsonl")
    count = len(head["points"])
    there = [{line["point"] for line in lines if line["seed"] == seed} for seed in range(100)]
    seeds = [seed for seed, of_seed in enumerate(there) if len(of_seed) == count]
    seeds = {"even": seeds[0::2], "odd": seeds[1::2], "all": seeds}[half]
    whole = max((line["curve"] for line in lines), key=len)
    shares = tuple(share for share, _ in whole if share > 0)
    values, errors = np.full((count, len(seeds), len(shares)), math.nan), np.zeros((count, len(seeds)))
    for line in lines:
        if line["seed"] in seeds:
            curve = [value for share, value in line["curve"] if share > 0]
            stopped = line["status"] in ("COLLAPSED", "INVALID_ROLLOUT")
            curve += [head["worst"] if stopped else curve[-1]] * (len(shares) - len(curve))
            errors[line["point"], seeds.index(line["seed"])] = line["se"] or 0.0
            values[line["point"], seeds.index(line["seed"])] = [*curve[:-1], head["worst"] if stopped else curve[-1]]
    known = candidates(name)
    space = Space(
        axes=head["axes"],
        points=head["points"],
        shares=shares,
        rungs=rungs_of(known.spec(head["points"][0])),
        seeds=len(seeds),
        sweep=known.sweep,
    )
    return Record(space=space, values=values, errors=errors, unit=head["unit"], budget=head["budget"])


def makers(record: Record, wanted: Sequence[str] = ()) -> dict[str, Make]:
    """Every strategy by name."""
    pruners = {
        "MedianPruner": lambda p: p.MedianPruner(),
        "PatientPruner": lambda p: p.PatientPruner(p.MedianPruner(), patience=3),
        "SuccessiveHalving": lambda p: p.SuccessiveHalvingPruner(),
        "Hyperband": lambda p: p.HyperbandPruner(),
    }
    made: dict[str, Make] = {}
    for seeds in (1, 2, 3):
        made[f"random, {seeds} seeds"] = partial(strategies.at_random, seeds=seeds)
        for name, pruner in pruners.items():
            made[f"Optuna TPE + {name}, {seeds} seeds"] = partial(
                strategies.optuna_search, seeds=seeds, sampler="tpe", pruner=pruner
            )
        made[f"Ray Tune ASHA, {seeds} seeds"] = partial(strategies.asha, seeds=seeds, reduction=4)
    made[OURS_BEFORE] = strategies.before
    made[ORACLE] = partial(strategies.oracle, truth=tuple(record.truth))
    made[OURS_NOW] = strategies.now
    return {name: make for name, make in made.items() if not wanted or any(word in name for word in wanted)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """One replay: what was spent when a choice was made, the choice's regret, and its believed probability."""

    spent: Sequence[float]  # in runs
    regret: Sequence[float]
    believed: Sequence[float]


def play(name: str, half: str, strategy: str, number: int, runs: float) -> Played:
    """One replay of a strategy, until it ends or has spent so many runs."""
    record = load(name, half)
    truth, space = record.truth, record.space
    order = np.random.default_rng([zlib.crc32(name.encode()), number]).permutation(space.seeds)
    reached: dict[tuple[int, int], float] = {}
    spent, worst = 0.0, float(truth.max() - truth.min())
    seen = Played(spent=(at := []), regret=(regret := []), believed=(believed := []))
    search = makers(record)[strategy](space, number)
    request = next(search)
    while True:
        candidate, seed, share, choice, probability = request
        at.append(spent)
        regret.append(worst if choice is None else float(truth.max() - truth[choice]))
        believed.append(probability)
        if candidate < 0 or spent >= runs:
            return seen
        before = reached.get((candidate, seed), 0.0)
        new = [
            (one, float(record.values[candidate, order[seed], at_share]), float(record.errors[candidate, order[seed]]))
            for at_share, one in enumerate(space.shares)
            if before < one <= share + 1e-9
        ]
        spent += max(0.0, share - before)
        reached[candidate, seed] = max(before, share)
        try:
            request = search.send(new)
        except StopIteration:
            return seen


def summary(played: Sequence[Played], record: Record, runs: float) -> dict[str, Any]:
    """Share of right choices and mean regret at each cost, and where WANTED is reached for good."""
    grid = np.linspace(0, runs, GRID + 1)
    right, regret = np.zeros(len(grid)), np.zeros(len(grid))
    for one in played:
        at = np.searchsorted(np.asarray(one.spent), grid + 1e-9, side="right") - 1
        regrets = np.asarray(one.regret)[at]
        right += regrets <= TOLERANCE + 1e-12
        regret += regrets
    right, regret = right / len(played), regret / len(played)
    below = np.flatnonzero(right < WANTED)
    reached = 0.0 if not len(below) else grid[below[-1] + 1] if below[-1] + 1 < len(grid) else math.nan
    return {
        "reached": None if math.isnan(reached) else round(reached * record.budget),
        "completions": [round(float(cost) * record.budget) for cost in grid],
        "right": [round(float(value), 4) for value in right],
        "regret": [round(float(value), 5) for value in regret],
    }


def decided(played: Sequence[Played], confidence: float) -> dict[str, Any]:
    """Of the replays that would have stopped as decided: how many there are, how many are right, at what cost."""
    stops = []
    for one in played:
        at = next((i for i, value in enumerate(one.believed) if value >= confidence), None)
        if at is not None:
            stops.append((one.regret[at] <= TOLERANCE + 1e-12, one.spent[at]))
    return {
        "replays": len(played),
        "decided": len(stops),
        "right": statistics.fmean(right for right, _ in stops) if stops else None,
        "runs": statistics.fmean(cost for _, cost in stops) if stops else None,
    }


def replay(
    name: str, half: str, wanted: Sequence[str], replays: int, confidence: float, workers: int
) -> dict[str, Any]:
    """Every strategy on a record."""
    record = load(name, half)
    runs = 3.0 * len(record.space.points)
    close = int((record.truth >= record.truth.max() - TOLERANCE).sum())
    result: dict[str, Any] = {
        "record": name, "half": half, "candidates": len(record.space.points), "right": close,
        "seeds": record.space.seeds, "unit": record.unit, "budget": record.budget, "replays": replays,
        "paired": worth_of_pairs(record), "strategies": {},
    }  # fmt: skip
    print(
        f"\n{name}, {half} seeds: {close} of {result['candidates']} candidates are right; seeds do the same to all: "
        f"{result['paired']:.0%} of the variance between runs of one candidate"
    )
    with ProcessPoolExecutor(workers) as pool:
        for strategy in makers(record, wanted):
            numbers = range(replays)
            jobs = partial(play, name, half, strategy, runs=runs)
            played = list(pool.map(jobs, numbers, chunksize=max(1, replays // 32)))
            found = summary(played, record, runs)
            if any(value > 0 for one in played for value in one.believed):
                found["decided"] = decided(played, confidence)
            result["strategies"][strategy] = found
            print(f"  {strategy:46} {told(found, record.unit, confidence)}", flush=True)
    return result


def told(found: Mapping[str, Any], unit: str, confidence: float) -> str:
    """What became of a strategy, in a line."""
    text = ".8 not reached" if found["reached"] is None else f".8 at {found['reached']:>9,} {unit}"
    more = found.get("decided")
    if not more or not more["decided"]:
        return text
    stops = f"{more['decided']} of {more['replays']} after {more['runs']:.1f} runs, {more['right']:.1%} right"
    return f"{text}; decided at {confidence:.0%}: {stops}"


def worth_of_pairs(record: Record) -> float:
    """The share of the variance between runs of one candidate that is its seed's, the same for all candidates.

    Of a two-way table without repeats: (MS_seed - MS_rest) / C against that plus MS_rest.
    """
    final = record.values[:, :, -1]
    count, seeds = final.shape
    if seeds < 2:
        return math.nan
    rest = final - final.mean(axis=1, keepdims=True) - final.mean(axis=0, keepdims=True) + final.mean()
    within = float((rest**2).sum() / ((count - 1) * (seeds - 1)))
    between = float(count * ((final.mean(axis=0) - final.mean()) ** 2).sum() / (seeds - 1))
    of_seed = max(0.0, (between - within) / count)
    return of_seed / (of_seed + within) if of_seed + within else 0.0


def draw(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Probability of right against completions, a panel for each record: the best of each family of strategies."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(results), figsize=(4.6 * len(results), 3.9), squeeze=False)
    for panel, result in zip(panels[0], results, strict=True):
        for (family, colour, style), found in families(result).items():
            panel.plot(found["completions"], found["right"], style, color=colour, label=family, linewidth=1.8)
        panel.axhline(WANTED, color="0.75", linewidth=0.8, zorder=0)
        panel.set(
            title=f"{result['record']}: {result['candidates']} candidates, {result['right']} right",
            xlabel=f"{result['unit']} spent",
            ylim=(0, 1.02),
            xlim=(0, 2.0 * result["candidates"] * result["budget"]),
        )
        panel.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
    panels[0][0].set_ylabel("probability of choosing right")
    panels[0][-1].legend(loc="lower right", fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


FAMILIES = (
    ("random", "tab:gray", "-"), ("Optuna", "tab:orange", "-"), ("Ray Tune", "tab:green", "-"),
    ("grpoctl fixed", "tab:blue", "--"), ("grpoctl adaptive", "tab:blue", "-"), ("oracle", "0.3", ":"),
)  # fmt: skip


def families(result: Mapping[str, Any]) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    """The best strategy of each family: the one that reaches WANTED first, else with the least mean regret."""
    best = {}
    for family in FAMILIES:
        of_it = {name: found for name, found in result["strategies"].items() if name.startswith(family[0])}
        if of_it:
            name = min(of_it, key=lambda one: (of_it[one]["reached"] or math.inf, sum(of_it[one]["regret"])))
            best[(name if family[0] in ("random", "Optuna", "Ray Tune") else family[0], *family[1:])] = of_it[name]
    return best


def main() -> None:
    """Print a table for each record; write all of it as JSON, and the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=", ".join(names()))
    parser.add_argument("--half", choices=["even", "odd", "all"], default="odd")
    parser.add_argument("--replays", type=int, default=300)
    parser.add_argument("--strategies", default="", help="parts of names, with commas between")
    parser.add_argument("--decided", type=float, default=0.9)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    asked = parser.parse_args()
    wanted = [word for word in asked.strategies.split(",") if word]
    wanted_names = asked.names or [name for name in names() if name != FEW]
    there = [name for name in wanted_names if (RECORDS / f"{name}.jsonl").exists()]
    results = [replay(name, asked.half, wanted, asked.replays, asked.decided, asked.workers) for name in there]
    if asked.json:
        asked.json.write_text(json.dumps(results) + "\n", encoding="utf-8")
    if asked.figure:
        draw(results, asked.figure)


if __name__ == "__main__":
    main()
