"""How much of the winner's score is luck, and what fresh seeds say of it.

The candidate that is ranked first was picked by the noisy numbers that its score is the mean of, so that its score lies
above its true mean on average. What is here: pure functions from a ranking to numbers. What is not: running fresh seeds
(grpoctl.cli.promote).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.health.statistics import Interval, clipped, mean, mean_interval, sample_sd
from grpoctl.analysis.sweeps.ranking import Noise, Ranking

METHOD = "parametric bootstrap"
CONTENDERS = 4.0  # standard errors of a difference behind the best; what lies further away is not picked by luck
INTERVAL_KIND = "95 % t interval over the fresh seeds alone, on the study's prompts"

_DRAWS = 2000
_MOST_NUMBERS = 100_000  # draws x contenders: a study of thousands is shown as quickly as one of dozens
_FEWEST_DRAWS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionBias:
    """What picking the best of noisy means adds to its score: `value`, in the direction of the sweep, 0 or more.

    `corrected` is the score to expect on fresh seeds and the same prompts. `spread` is the estimated standard deviation
    of the contenders' true means, `contenders` how many candidates could have been picked instead, the winner included,
    `error` the standard error of the score over seeds. `noisier`: the standard deviation of the winner's own seeds over
    that of the others; None where one of them is not known. Well above 1 the pooled noise understates its luck.
    """

    number: int
    score: float
    value: float
    corrected: float
    candidates: int
    contenders: int
    error: float
    spread: float
    draws: int
    noisier: float | None = None
    method: str = METHOD

    def document(self) -> dict[str, Any]:
        """What sweep.json has of it."""
        return asdict(self)


def selection_bias(ranking: Ranking, *, sign: float, seeds: Sequence[float] = ()) -> SelectionBias | None:
    """By how much the first of a ranking is too good by chance; None where no noise is known or a guard stopped it.

    `seeds` are the values of the first one's seeds.

    A parametric bootstrap. The contenders are the sound candidates less than CONTENDERS standard errors behind the
    best. Candidate i of n_i seeds has the mean y_i ~ N(theta_i, s^2 / n_i) with the study's pooled s, and the true
    means spread with a variance tau^2, estimated by moments: the variance of the y_i less the mean of s^2 / n_i. The
    bootstrap's true means are the y_i drawn together until they spread as much as that; how far the largest of means
    drawn around them lies above its own true mean, on average, is the bias.

    Assumed: seeds are normal, independent, and equally noisy for all contenders. What pruned candidates would have
    reached is left out. Only contenders count, since a few collapsed candidates would make any spread look large.
    """
    noise, best = ranking.noise, ranking.best
    if noise is None or noise.sd == 0 or best is None or best in ranking.flagged or len(ranking.order) < 2:
        return None
    variances = {index: noise.sd**2 / ranking.sizes[index] for index in ranking.order}
    top = ranking.scores[best]
    contenders = [
        index
        for index in ranking.order
        if index not in ranking.flagged
        and abs(top - ranking.scores[index]) <= CONTENDERS * math.sqrt(variances[best] + variances[index])
    ]
    scores = [sign * ranking.scores[index] for index in contenders]
    noises = [variances[index] for index in contenders]
    centre = mean(scores)
    spread = max(0.0, (sample_sd(scores) or 0.0) ** 2 - mean(noises))
    truths = [
        centre + math.sqrt(spread / (spread + variance)) * (score - centre)
        for score, variance in zip(scores, noises, strict=True)
    ]
    draws = max(_FEWEST_DRAWS, min(_DRAWS, _MOST_NUMBERS // len(contenders)))
    alone = len(contenders) == 1
    value = 0.0 if alone else max(0.0, _luck(truths, [math.sqrt(variance) for variance in noises], draws))
    return SelectionBias(
        number=best,
        score=top,
        value=value,
        corrected=clipped((top - sign * value,) * 2, *noise.limits)[0],
        candidates=len(ranking.order),
        contenders=len(contenders),
        error=math.sqrt(variances[best]),
        spread=math.sqrt(spread),
        draws=draws,
        noisier=_noisier(noise, seeds),
    )


def _noisier(noise: Noise, seeds: Sequence[float]) -> float | None:
    """The standard deviation of these seeds over that of all the others in the pool; None where one is not known."""
    own, df = sample_sd(seeds), noise.df - (len(seeds) - 1)
    if own is None or df < 1:
        return None
    others = noise.sd**2 * noise.df - own**2 * (len(seeds) - 1)
    return own / math.sqrt(others / df) if others > 1e-9 * own**2 else None


def _luck(truths: Sequence[float], errors: Sequence[float], draws: int) -> float:
    """How far the largest of values drawn around the truths lies above its own truth, the mean over the draws."""
    dice = random.Random(0)  # the same study gives the same number
    luck = []
    for _ in range(draws):
        drawn = [(truth + error * dice.gauss(0, 1), truth) for truth, error in zip(truths, errors, strict=True)]
        value, truth = max(drawn)
        luck.append(value - truth)
    return mean(luck)


@dataclass(frozen=True, kw_only=True, slots=True)
class Confirmation:
    """A candidate's score in the study beside its mean on fresh seeds.

    `observed_bias` is how much better the study's score was, in the direction of the sweep. `inside` says whether the
    estimate that the study gave (`corrected`) is in the interval; None where one of them is missing.
    """

    values: tuple[float, ...]
    mean: float
    interval: Interval | None
    score: float
    observed_bias: float
    corrected: float | None
    inside: bool | None
    stopped: int  # runs that a guard stopped: they count as `worst`

    def document(self) -> dict[str, Any]:
        """The part of `confirm` that is computed."""
        plain = asdict(self)
        return plain | {
            "values": list(self.values),
            "interval": None if self.interval is None else list(self.interval),
            "interval_kind": INTERVAL_KIND,
        }


def fresh_seeds(document: Mapping[str, Any], count: int) -> tuple[int, ...]:
    """The smallest non-negative integers that no trial of the study ran with."""
    used = {int(seed) for seed in document.get("seeds") or ()}
    used |= {int(seed) for trial in document.get("trials") or () for seed in trial.get("seeds") or ()}
    return tuple([seed for seed in range(len(used) + count) if seed not in used][:count])


def confirmation(
    values: Sequence[float], *, score: float, corrected: float | None, sign: float, stopped: int = 0
) -> Confirmation:
    """What fresh seeds say of a score. The interval is over these seeds alone. Raises ValueError without values."""
    estimate = mean_interval(values)
    interval = estimate.interval
    return Confirmation(
        values=tuple(values),
        mean=estimate.mean,
        interval=interval,
        score=score,
        observed_bias=sign * (score - estimate.mean),
        corrected=corrected,
        inside=None if interval is None or corrected is None else interval[0] <= corrected <= interval[1],
        stopped=stopped,
    )
