"""What is advised after a study, from each finding, the most useful first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import pytest

from grpoctl.analysis.sweeps.advice import next_steps
from grpoctl.analysis.sweeps.document import digest
from tests.studies import LR, K, axis, study, trial

CLEAR = ([0.50, 0.51], [0.60, 0.61], [0.90, 0.91])  # the third is the best
NEAR = ([0.50, 0.52], [0.505, 0.525], [0.10, 0.12])  # the second and the first differ by 0.005


def advised(
    scores: Sequence[Sequence[float]], rates: Sequence[float], spec: Any, **more: Any
) -> list[tuple[str, list[str]]]:
    """(id, words of the command) of each step after a study over learning rates."""
    trials = [trial(n, list(values), params={LR: rate}, **more.get("of", {}).get(n, {}))
              for n, (values, rate) in enumerate(zip(scores, rates, strict=True))]  # fmt: skip
    document = study(trials, axes={LR: spec}, **{key: value for key, value in more.items() if key != "of"})
    return [(step.id, shlex.split(step.command)) for step in next_steps(digest(document))]


def test_a_clear_winner_is_confirmed() -> None:
    ((kind, command),) = advised(CLEAR, [1, 3, 2], axis([1, 2, 3]))
    assert kind == "confirm"
    assert command[:3] == ["grpoctl", "promote", "advantage-study-tiny-1a2b3c4d-1"]
    assert command[3:] == ["--as", "advantage-study-best", "--confirm", "5"]


@pytest.mark.parametrize(
    ("rates", "spec", "wider"),
    [
        ([1e-4, 1e-3, 1e-2], axis([1e-4, 1e-3, 1e-2]), "[0.001, 0.01, 0.1, 1]"),  # a factor of 10 each
        ([3e-3, 2e-3, 1e-3], axis([1e-3, 2e-3, 3e-3]), "[0.00025, 0.0005, 0.001, 0.002]"),  # by half
        ([1, 2, 3], axis([1, 2, 3]), "[2, 3, 4, 5]"),  # whole numbers by one
        ([2, 4, 8], axis([2, 4, 8]), "[4, 8, 16, 32]"),
        ([1e-4, 1e-3, 1e-2], axis(low=1e-4, high=1e-2, log=True), "{low: 0.0032, high: 0.1, log: true, type: float}"),
        ([1.0, 2.0, 5.0], axis(low=1.0, high=5.0), "{low: 4, high: 9, type: float}"),
    ],
)  # fmt: skip
def test_an_axis_is_widened_where_the_best_stands_at_its_end(rates: list[float], spec: Any, wider: str) -> None:
    kind, command = advised(CLEAR, rates, spec)[0]
    assert kind == "widen"
    assert command == [
        "grpoctl", "sweep", "advantage-study", "-p", "tiny", "budget.completions=1024", f"axes.{LR}={wider}",
    ]  # fmt: skip


ASKED = {
    "name": "other/resp.yaml", "seeds": "0,1", "trials": 5,
    "overrides": [
        "beta=0.02", "study_seed=7", "axes.learning_rate=[1, 2, 3]", "budget={completions: 1024}", "seeds=[0]",
    ],
}  # fmt: skip


def test_a_command_repeats_what_was_asked_for_with_one_thing_changed() -> None:
    """Its path, its settings, its trials; an axis or a budget that is changed is not set a second time."""
    first, rest = ["grpoctl", "sweep", "other/resp.yaml", "-p", "tiny", "beta=0.02", "study_seed=7"], ["--trials", "5"]
    kind, command = advised(CLEAR, [1, 2, 3], axis([1, 2, 3]), asked=ASKED)[0]
    assert kind == "widen"
    assert command == [*first, "budget.completions=1024", f"axes.{LR}=[2, 3, 4, 5]", *rest, "--seeds", "0,1"]
    steps = dict(advised(CLEAR, [1, 3, 2], axis([1, 2, 3]), asked=ASKED, of={2: rising([0.05, 0.051], 0.5)}))
    longer = [*first, "axes.learning_rate=[1, 2, 3]", "budget.completions=2048", *rest, "--seeds", "0,1"]
    assert steps["longer"] == longer
    flat = dict(advised(CLEAR, [1, 3, 2], axis([1, 2, 3]), asked=ASKED, of={2: rising([0.0005, -0.0005], 0.5)}))
    assert flat["shorter"] == [word.replace("2048", "640") for word in longer]
    ((_, command),) = advised(([0.5], [0.6], [0.9]), [1, 3, 2], axis([1, 2, 3]), asked=ASKED)
    assert command == [*first, "axes.learning_rate=[1, 2, 3]", "budget.completions=1024", *rest, "--seeds", "0,1,2"]
    tied = ([0.50, 0.52], [0.52, 0.54], [0.10, 0.12])
    ((kind, command),) = advised(tied, [2, 3, 1], axis([0.5, 1, 2, 3, 4]), asked=ASKED)
    assert kind == "tie"
    assert command[:-1] == [
        *first,
        "budget.completions=1024",
        f"axes.{LR}=[2, 3]",
        "--seeds",
    ]  # both, so no fewer trials


def test_all_axes_in_one_override_are_taken_apart_before_one_is_changed() -> None:
    asked = {"name": "t", "overrides": [f'axes={{learning_rate: [1, 2, 3], {K}: [2, 8], beta: ["1", null]}}']}
    _, command = advised(CLEAR, [1, 2, 3], axis([1, 2, 3]), asked=asked)[0]
    assert command[5:] == [
        f"axes.{K}=[2, 8]", 'axes.beta=["1", null]', "budget.completions=1024", f"axes.{LR}=[2, 3, 4, 5]",
    ]  # fmt: skip


def test_a_tie_gets_as_many_seeds_as_would_tell() -> None:
    """sd 0.01414 and a gap of 0.02 between the first and the second, with a third far away."""
    ((kind, command),) = advised(([0.50, 0.52], [0.52, 0.54], [0.10, 0.12]), [2, 3, 1], axis([0.5, 1, 2, 3, 4]))
    assert kind == "tie"
    seeds = command[command.index("--seeds") + 1].split(",")
    # Sidak over 3 pairs, t two-sided at 0.95^(1/3), and t at 0.8 beyond it, so that 4 of 5 studies find it: of 12 seeds
    # t(33) = 2.515 + 0.853, times 0.01414 x sqrt(2 / 12) = 0.0194; of 11: 3.382 x 0.01414 x sqrt(2 / 11) = 0.0204
    assert seeds == [str(seed) for seed in range(12)]
    assert f"axes.{LR}=[2, 3]" in command


def test_a_tie_that_takes_too_many_seeds_is_left_alone() -> None:
    ((kind, command),) = advised(NEAR, [2, 3, 1], axis([0.5, 1, 2, 3, 4]))
    assert (kind, command[1]) == ("confirm", "promote")


def rising(gains: Sequence[float], early: float) -> dict[str, Any]:
    """A curve that stands at `early` of its way until half, and gains so much over its last quarter."""
    ends = [0.9, 0.91]
    return {"curve": [[seed, share, end * early if share < 0.5 else end - (gain if share < 1 else 0)]
                      for seed, (end, gain) in enumerate(zip(ends, gains, strict=True))
                      for share in (0.25, 0.5, 0.75, 1.0)]}  # fmt: skip


def test_runs_that_still_rise_get_longer_and_flat_ones_shorter() -> None:
    spec = axis([1, 2, 3])
    steps = dict(advised(CLEAR, [1, 3, 2], spec, of={2: rising([0.05, 0.051], 0.5)}))
    assert steps["longer"][-1] == "budget.completions=2048"
    little = dict(advised(CLEAR, [1, 3, 2], spec, of={2: rising([0.010, 0.011], 0.5)}))  # beyond noise, and about 1 %
    assert "longer" not in little
    flat = dict(advised(CLEAR, [1, 3, 2], spec, of={2: rising([0.0005, -0.0005], 0.5)}))
    assert "longer" not in flat
    assert flat["shorter"][-1] == "budget.completions=640"  # within 2 % at half of 1,024, and a quarter more
    assert list(flat) == ["confirm", "shorter"]


def test_one_seed_comes_before_everything_else() -> None:
    ((kind, command),) = advised(([0.5], [0.6], [0.9]), [1, 3, 2], axis([1, 2, 3]))
    assert (kind, command[-2:]) == ("seeds", ["--seeds", "0,1,2"])


def test_a_study_under_way_is_not_advised_on() -> None:
    assert advised(CLEAR, [1, 3, 2], axis([1, 2, 3]), status="INTERRUPTED") == []
    assert next_steps(digest(study([]))) == []
