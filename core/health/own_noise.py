"""The run's own noise: by how much sampler and trainer differ while they are known to agree, and limits that follow.

A limit for every model must allow the rounding of the worst one: 0.3 nats in bf16, where weights one update old differ
by 0.01 to 0.2. A run's own noise is measured before its first update, on held-out prompts, and later gaps are judged
against it. Gaps are taken per unit of doubt (1 - the token's probability), where rounding has about the same size
whatever the policy is sure of: they are distances of logits.

A policy that gets surer leaves fewer tokens in doubt, and a mean of few varies more. In two completions of nine tokens
there may be doubt of one alone: its rounding is then the group's, where at the start each prompt had some twenty. So
noise depends on the effective number of tokens (Kish's effective sample size, weighted by doubt), see `Noise.of`.

An unsound start must not become its own noise. The trainer scores the same rows twice, together and each alone: that
differs by rounding only, whatever the sampler does, so the sampler's gap counts as noise up to RESCORED times that one.
Rounding may also grow while the policy changes. A step whose gap is beyond its limit therefore has its rows scored
again by the trainer, and by how much that differs is noise, too: a fault of the sampler does not touch it.
Not here: how gaps are measured (core.training), what a pattern of gaps means (core.health.rules.integrity).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from core.config import GuardSpec
from core.health.finding import Row

# Logit gaps that are rounding in any run: of fp32 what its longest sums lose, of bf16 the rounding of one number.
FLOOR = {"float32": 1e-4, "bfloat16": 2.0**-8}
# Times what the trainer's two scorings differ by: the prompt that differs most, and a sampler of other kernels, which
# rounds otherwise but not by orders of magnitude.
RESCORED = 10.0
# Times the mean, divided by the root of the tokens, that a mean of them may be above it. A token's logit gap has a
# standard deviation like its mean (0.97 of it over SmolLM2's tokens in doubt; a half-normal one's is 0.76).
FEW = 2.5
# Times the limit of groups, of the canary: none of its tokens is certain, and surprising ones round more (SmolLM2 in
# bf16: sound ones came to 1.6 times the noise on average of two).
CANARY = 1.5


def noise_factor(guards: GuardSpec) -> float | None:
    """How many times its own noise a run's gaps may be; None where `max_logprob_gap` says what is allowed."""
    return guards.noise_factor if guards.max_logprob_gap is None else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """The logit gaps of the calibration's prompts, in nats at `temperature`: the largest, and that of all together.

    No more than `most` is noise, by the trainer's scores alone; `factor` times the noise is allowed.
    """

    largest: float
    mean: float
    most: float
    temperature: float
    factor: float

    def at_least(self, rescored: float) -> Noise:
        """The noise of a step on which two scorings of its rows by the trainer differ by so much."""
        return replace(self, largest=max(self.largest, rescored), mean=max(self.mean, rescored))

    def of(self, tokens: float) -> float:
        """How large the logit gap of so many effective tokens may be by rounding: the largest prompt's, more of few."""
        return min(self.most, max(self.largest, self.mean * (1 + FEW / math.sqrt(tokens))))

    def limit(self, temperature: float, tokens: float) -> float:
        """The largest logit gap that is noise, at another temperature: log-probs are of logits over it."""
        return self.factor * self.of(tokens) * max(1.0, self.temperature / temperature)

    def canary_limit(self, temperature: float, tokens: float) -> float:
        """The largest logit gap of the canary that is noise, at another temperature."""
        return CANARY * self.limit(temperature, tokens)


def noise_of(start: Row | None, dtype: str | None, factor: float | None) -> Noise | None:
    """The noise by a run's row before step 1; None where it was not measured there, or is not judged by (no factor)."""
    names = ("rollout/noise", "rollout/noise_mean", "rollout/rescoring_gap")
    largest, mean, rescored = (None if start is None else start.get(name) for name in names)
    if factor is None or largest is None or mean is None or rescored is None:
        return None
    floor = FLOOR.get(dtype or "", max(FLOOR.values()))
    most = RESCORED * max(rescored, floor)
    return Noise(
        largest=min(max(largest, floor), most),
        mean=mean,
        most=most,
        temperature=(start or {}).get("eval/temperature") or 1.0,
        factor=factor,
    )


GROUP_COLUMNS = ("rollout/logprob_gap", "rollout/detectable_gap")  # a gap, and the smallest that is no noise
CANARY_COLUMNS = ("canary/logit_gap", "canary/detectable_gap")


@dataclass(frozen=True, kw_only=True, slots=True)
class Excess:
    """A gap beyond the run's own noise: the last step's and the one measured before it, on average."""

    step: int
    metric: str
    gap: float  # the last step's
    limit: float
    times: float  # of the limit, both on average


def excess(rows: Sequence[Row]) -> Excess | None:
    """What the last row exceeds the run's own noise by; None where it does not, or only a little and for once.

    Its gap and the one measured before it are averaged in units of their limits (without one before it counts half): a
    group is one prompt, whose rounding is large by chance now and then, and on the next step it is another's turn.
    """
    if not rows:
        return None
    for metric, limit_name in (GROUP_COLUMNS, CANARY_COLUMNS):
        over = times(rows[-1], metric, limit_name)
        if over is None:
            continue
        before = next((past for row in reversed(rows[:-1]) if (past := times(row, metric, limit_name)) is not None), 0)
        if over + before > 2:
            gap, limit = (float(rows[-1][name] or 0.0) for name in (metric, limit_name))
            step = int(rows[-1].get("step") or 0)
            return Excess(step=step, metric=metric, gap=gap, limit=limit, times=(over + before) / 2)
    return None


def times(row: Mapping[str, float | None], metric: str, limit_name: str) -> float | None:
    """A gap in units of its limit; None where the row has no such gap."""
    gap, limit = row.get(metric), row.get(limit_name)
    return None if gap is None or not limit else gap / limit
