"""Are the intervals of `grpoctl compare` right, and its verdicts? Simulated, with differences that are known.

    python benchmarks/compare_coverage.py [--pairs 2000] [--families 300] [--sides 2 20]

Two sides of S seeds answer the same M problems with two draws each. What a side does differs by seed (`seed`), by
problem (`problem`: B is better at some problems and worse at others) and by draw (standard deviation 1 in each answer);
`shared` is the part of a seed's effect that both sides have in common. `gauss` answers are normal, `binary` ones right
or wrong. The difference that an interval should contain is that of other seeds and other problems.

First the share of 95 % intervals that contain it, for every way of making one that was considered; then how often a
verdict calls one of 2 to 20 equal sides better than another.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.health.statistics import t_quantile
from grpoctl.analysis.contrasts import Family, Outcomes, noise

Floats = NDArray[np.float64]
Pair = tuple[Floats, Floats]
SEEDS, PROBLEMS = (3, 5, 10), (16, 64, 200)
DRAWS = 2
RESAMPLES = 400
TRUTH = 400_000  # draws of the difference of binary answers, whose mean has no formula
# Standard deviations beside that of a single answer, 1. `measured` is what p30-sound and p31 have (docs/benchmarks.md).
SCENES = {
    "measured": (0.18, 0.34),
    "seeds only": (0.5, 0.0),
    "problems only": (0.0, 0.5),
    "both": (0.5, 1.0),
    "little": (0.05, 0.1),
    "draws only": (0.0, 0.0),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """How two sides differ."""

    name: str
    kind: str
    seed: float
    problem: float
    shared: float

    @property
    def resampled(self) -> bool:
        """True where the bootstraps, which take a hundred times as long, are tried."""
        return self.name in ("measured", "both") and self.kind == "gauss" and not self.shared

    def pairs(
        self, count: int, s: int, m: int, dice: np.random.Generator
    ) -> tuple[float, Iterator[tuple[Floats, Floats]]]:
        """The true difference, and so many pairs of (S, M) answers of A and of B."""
        gap = 0.3
        if self.kind == "gauss":
            return gap, (self._gauss(s, m, gap, dice) for _ in range(count))
        truth = np.random.default_rng(7)
        base = 1.5 * truth.normal(size=TRUTH)
        of_b = base + gap + self.problem * truth.normal(size=TRUTH) + self.seed * truth.normal(size=TRUTH)
        known = float((_chance(of_b) - _chance(base + self.seed * truth.normal(size=TRUTH))).mean())
        return known, (self._binary(s, m, gap, dice) for _ in range(count))

    def _gauss(self, s: int, m: int, gap: float, dice: np.random.Generator) -> Pair:
        seeds = self._seeds(s, dice)
        hard, turn = dice.normal(size=(1, m)), self.problem * dice.normal(size=(1, m))
        same = np.sqrt(0.3 / DRAWS) * dice.normal(size=(s, m))  # what common random numbers do to both
        own = np.sqrt(0.7 / DRAWS) * dice.normal(size=(2, s, m))
        return hard + seeds[0] + same + own[0], hard + turn + gap + seeds[1] + same + own[1]

    def _binary(self, s: int, m: int, gap: float, dice: np.random.Generator) -> Pair:
        seeds = self._seeds(s, dice)
        hard, turn = 1.5 * dice.normal(size=(1, m)), self.problem * dice.normal(size=(1, m))
        uniforms = dice.random((DRAWS, s, m))  # the same ones for both
        a, b = ((uniforms < _chance(logits)).mean(0) for logits in (hard + seeds[0], hard + turn + gap + seeds[1]))
        return a, b

    def _seeds(self, s: int, dice: np.random.Generator) -> Floats:
        common, own = dice.normal(size=(1, s, 1)), dice.normal(size=(2, s, 1))
        effects: Floats = self.seed * (np.sqrt(self.shared) * common + np.sqrt(1 - self.shared) * own)
        return effects


def _chance(logit: Floats) -> Floats:
    chances: Floats = 1 / (1 + np.exp(-logit))
    return chances


def outcomes(answers_SM: Floats) -> Outcomes:
    """A side as `compare` has it."""
    values = dict(enumerate(answers_SM.mean(1).tolist()))
    names = tuple(map(str, range(answers_SM.shape[1])))
    return Outcomes(values=values, problems=names, answers_SM=answers_SM)


def ours(a: Floats, b: Floats, _: np.random.Generator) -> float:
    """Half of the interval that `compare` gives."""
    made = noise(outcomes(a), outcomes(b))
    assert made is not None
    return t_quantile(0.975, made.df) * float(np.sqrt(made.variance))


def over_seeds(a: Floats, b: Floats, _: np.random.Generator) -> float:
    """Student's t of the seeds' differences: problems are taken for the only ones there are."""
    gaps_S = (b - a).mean(1)
    return t_quantile(0.975, len(gaps_S) - 1) * float(gaps_S.std(ddof=1)) / float(np.sqrt(len(gaps_S)))


def two_levels(a: Floats, b: Floats, dice: np.random.Generator) -> float:
    """Half of a percentile bootstrap that draws seeds and problems again."""
    gaps_SM = b - a
    means_R = [mean for mean, _ in _resampled(gaps_SM, dice)]
    low, high = np.quantile(means_R, (0.025, 0.975))
    return float(high - low) / 2


def bootstrap_t(a: Floats, b: Floats, dice: np.random.Generator) -> float:
    """Half of a bootstrap-t over seeds and problems, each resample studentised by its own two-way variance."""
    gaps_SM = b - a
    centre, error = float(gaps_SM.mean()), _error(gaps_SM)
    ts = [abs(mean - centre) / of if of > 0 else np.inf for mean, of in _resampled(gaps_SM, dice)]
    return float(np.quantile(ts, 0.95)) * error


def _resampled(gaps_SM: Floats, dice: np.random.Generator) -> Iterator[tuple[float, float]]:
    s, m = gaps_SM.shape
    for _ in range(RESAMPLES):
        drawn = gaps_SM[dice.integers(s, size=s)][:, dice.integers(m, size=m)]
        yield float(drawn.mean()), _error(drawn)


def _error(gaps_SM: Floats) -> float:
    s, m = gaps_SM.shape
    by_seed, by_problem = gaps_SM.mean(1).var(ddof=1) / s, gaps_SM.mean(0).var(ddof=1) / m
    rest = gaps_SM - gaps_SM.mean(1, keepdims=True) - gaps_SM.mean(0, keepdims=True) + gaps_SM.mean()
    within = (rest**2).sum() / ((s - 1) * (m - 1)) / (s * m)
    return float(np.sqrt(max(by_problem + by_seed - within, by_problem)))


METHODS: dict[str, Callable[[Floats, Floats, np.random.Generator], float]] = {
    "ours": ours,
    "t over seeds": over_seeds,
    "two-level bootstrap": two_levels,
    "bootstrap-t": bootstrap_t,
}


def coverage(pairs: int, slow: int) -> None:
    """Coverage and width of every method; the bootstraps, which take long, on `slow` pairs."""
    print(f"share of 95 % intervals with the true difference in them, of {pairs:,} pairs ({slow} of the bootstraps)")
    print(f"{'scene':<16}{'answers':<9}{'shared':>7}{'seeds':>6} | " + " | ".join(f"{name:^23}" for name in METHODS))
    print(" " * 40 + " | ".join(f"{'16':>5}{'64':>5}{'200':>5} {'width':>6} " for _ in METHODS))
    scenes = [
        Scene(name=name, kind=kind, seed=seed, problem=problem, shared=shared)
        for kind in ("gauss", "binary")
        for name, (seed, problem) in SCENES.items()
        for shared in ((0.0, 0.5) if seed >= 0.1 else (0.0,))
    ]
    lowest: dict[int, list[float]] = {s: [] for s in SEEDS}
    for scene in scenes:
        for s in SEEDS:
            cells = []
            widths: dict[str, float] = {}
            for name, method in METHODS.items():
                shares = []
                if "bootstrap" in name and not scene.resampled:
                    cells.append(f"{'':22}")
                    continue
                for m in PROBLEMS:
                    dice = np.random.default_rng([s, m])
                    count = slow if "bootstrap" in name else pairs
                    gap, drawn = scene.pairs(count, s, m, dice)
                    halves = [(abs(float((b - a).mean()) - gap), method(a, b, dice)) for a, b in drawn]
                    shares.append(sum(off <= half for off, half in halves) / len(halves))
                    if m == 64:
                        widths[name] = float(np.median([half for _, half in halves]))
                    if name == "ours":
                        lowest[s].append(shares[-1])
                text = "".join(f"{100 * share:5.1f}" for share in shares)
                cells.append(f"{text} {widths[name] / widths['ours']:6.2f} ")
            shared = f"{scene.name:<16}{scene.kind:<9}{scene.shared:7.1f}{s:6}"
            print(f"{shared} | " + " | ".join(cells), flush=True)
    for s, of in lowest.items():
        inside = sum(0.93 <= share <= 0.97 for share in of)
        print(
            f"ours, {s} seeds: {100 * min(of):.1f} to {100 * max(of):.1f} %, 93 to 97 % in {inside} of {len(of)} cells"
        )


def false_claims(families: int, counts: Sequence[int]) -> None:
    """How often the best of equal sides is called better than another one."""
    print(f"\nverdicts that call one of equal sides better than another, of {families} families, in percent")
    print(f"{'noise':<28}{'seeds':>6} | " + "".join(f"{sides:>7} sides" for sides in counts))
    for label, spread in (("equal", 1.0), ("up to three times another's", 3.0)):
        for s in SEEDS:
            shares = []
            for many in counts:
                dice = np.random.default_rng([s, many])
                noises_K = np.linspace(1.0, spread, many)[:, None, None]
                wrong = 0
                for _ in range(families):
                    hard = dice.normal(size=(1, 1, 64))
                    turn = 0.34 * dice.normal(size=(many, 1, 64))
                    own = np.sqrt(1 / DRAWS) * dice.normal(size=(many, s, 64))
                    answers = hard + turn + 0.18 * noises_K * dice.normal(size=(many, s, 1)) + own
                    sides = [outcomes(of_side) for of_side in answers]
                    family = Family.of(sides)
                    best = max(range(many), key=lambda at: sides[at].mean)
                    wrong += any(
                        abs(sides[a].mean - sides[b].mean) > family.half_widths(of_pair)[1]
                        for (a, b), of_pair in family.noises.items()
                        if best in (a, b) and of_pair is not None
                    )
                shares.append(wrong / families)
            print(f"{label:<28}{s:6} | " + "".join(f"{100 * share:13.1f}" for share in shares), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--slow", type=int, default=300, help="pairs for the bootstraps")
    parser.add_argument("--families", type=int, default=1000)
    parser.add_argument("--sides", type=int, nargs="+", default=(2, 3, 5, 10, 20), help="of the families")
    arguments = parser.parse_args()
    started = time.perf_counter()
    if arguments.pairs:
        coverage(arguments.pairs, arguments.slow)
    false_claims(arguments.families, arguments.sides)
    print(f"{time.perf_counter() - started:.0f} s")
