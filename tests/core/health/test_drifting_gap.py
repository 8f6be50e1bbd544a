"""A gap that grows with the updates, below the limit of rounding."""

from __future__ import annotations

from collections.abc import Callable

from core.health.case import Case, Settings
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.integrity import drifting_gap


def case(gap: Callable[[int], float], *, entropy: Callable[[int], float] = lambda _: 0.4, steps: int = 40) -> Case:
    rows: list[Row] = [
        {"step": i, "update": 1, "rollout/logprob_gap": gap(i), "entropy": entropy(i)} for i in range(1, steps + 1)
    ]
    return Case(rows=rows, settings=Settings(dtype="bfloat16"))


def test_weights_that_never_arrive() -> None:
    # 0.0067 more with each update: 0.027 to 0.288, under the 0.3 that rounding explains in bfloat16.
    (found,) = drifting_gap(case(lambda step: 0.02 + 0.0067 * step))
    assert (found.id, found.severity, found.confidence) == ("stale-sampler", "warning", "moderate")
    # Medians of 13 steps each: steps 2 to 14 have 0.02 + 0.0067 * 8, steps 28 to 40 0.02 + 0.0067 * 34.
    assert "from 0.074 to 0.25 nats" in found.summary
    assert "or rounding grows" in found.summary


def test_what_stays_or_hardly_grows_is_rounding() -> None:
    assert drifting_gap(case(lambda step: 0.02 + 0.01 * (step % 2))) == ()
    assert drifting_gap(case(lambda step: 0.02 * (1 + step / 20))) == ()  # 1.4 to 2.7: twice
    assert drifting_gap(case(lambda step: 1e-4 * step)) == ()  # to 0.004: a hundredth of the limit
    assert drifting_gap(case(lambda step: 0.003 * step, steps=10)) == ()


def test_what_goes_with_the_entropy_is_no_old_weights() -> None:
    assert drifting_gap(case(lambda step: 0.006 * step, entropy=lambda step: 0.1 * step)) == ()
    assert drifting_gap(case(lambda _: 0.2, entropy=lambda step: 4 / step)) == ()  # surer, and the gap as it was


def test_beyond_the_limit_it_is_another_finding() -> None:
    assert drifting_gap(case(lambda step: 0.01 * step)) == ()
    ids = [one.id for one in examine(case(lambda step: 0.001 * step**1.5))]
    assert ids.count("stale-sampler") == 1
