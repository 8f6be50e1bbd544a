"""The document of `check --resources` from a made-up probe: the measured stands beside the estimated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.health.before.resources.memory import Place, Tokens
from core.health.before.resources.shapes import PUBLISHED
from grpoctl.cli.check_resources import size, span
from grpoctl.config import load
from grpoctl.resources.model import KnownModel, Lengths
from grpoctl.resources.probe import Probe
from grpoctl.resources.report import Inputs, document

MIB = 2**20
TINY = "builtin:tiny"


def step(*, full: bool, seconds: float, learn: int) -> dict[str, Any]:
    return {
        "event": "step",
        "stage": "grpo",
        "full": full,
        "moments": 7,
        "seconds": {"sample": seconds / 2, "learn": seconds / 2, "total": seconds},
        "peaks": {"sample": 400 * MIB, "score": 410 * MIB, "learn": learn * MIB},
        "rows": 16,
        "prompt_tokens": 20,
        "completion_tokens": 48 if full else 30,
        "drawn": 768 if full else 320,
    }


LOADED = {"event": "loaded", "device": "cpu", "process": 390 * MIB, "frozen": 5, "trainable": 3, "reference": 0}
EVENTS = [LOADED, {"event": "evaluated", "seconds": {"total": 9.0}, "rows": 8, "peaks": {"evaluate": 405 * MIB}}]
EVENTS += [step(full=False, seconds=2.0, learn=420), step(full=True, seconds=3.0, learn=450)]


def told(probe: Probe, memory: int = 1024 * MIB) -> dict[str, Any]:
    return document(
        Inputs(
            spec=load("p31", profile="tiny").spec,
            model=KnownModel(source=TINY, shape=PUBLISHED[TINY], whence="its published shapes", folder=None),
            lengths=Lengths(tokens=Tokens(prompt=27, answer=1), whence="the model's tokenizer"),
            place=Place(device="cpu", memory=memory),
            memory_given=False,
            profiles={},
            probe=probe,
            home=Path(),
        )
    )


def test_what_is_measured_stands_beside_the_estimate() -> None:
    found = told(Probe(events=EVENTS))
    measured = {part["name"]: part["measured_bytes"] for part in found["parts"]}
    assert measured["process"] == 390 * MIB
    assert (measured["weights"], measured["adapter"], measured["moments"]) == (5, 3, 7)
    assert measured["activations"] is None
    phases = {phase["name"]: phase["measured_bytes"] for phase in found["phases"]}
    assert phases == {"sample": 400 * MIB, "score": 410 * MIB, "learn": 450 * MIB, "evaluate": None}
    assert (found["measured_peak_bytes"], found["probe"]["ran"]) == (450 * MIB, True)


def test_hours_are_of_steps_as_drawn_and_at_full_length() -> None:
    found = told(Probe(events=EVENTS))
    # 96 steps; 11 evaluations of 64 x 2 rows, at 1 s for the 16 rows that a step samples: 8 s each
    assert found["evaluation"] == {
        "times": 11,
        "completions": 128,
        "estimated_seconds": found["evaluation"]["estimated_seconds"],
        "measured_seconds": 8.0,
    }
    assert found["hours"]["least"] == pytest.approx((96 * 2 + 11 * 8) / 3600)
    assert found["hours"]["most"] == pytest.approx((96 * 3 + 11 * 8) / 3600)
    assert found["stages"]["grpo"]["completion_tokens"] == 20.0


def test_a_step_that_draws_nothing_has_no_length_of_completions() -> None:
    """A supervised stage has rows and no `drawn`: every experiment of `grpoctl new` begins with one."""
    supervised = [{name: value for name, value in event.items() if name != "drawn"} for event in EVENTS]
    assert told(Probe(events=supervised))["stages"]["grpo"]["completion_tokens"] is None


def test_the_measured_peak_decides_whether_it_fits() -> None:
    # The estimate is below 430 MiB and something; what was measured is 450.
    assert told(Probe(events=EVENTS), memory=449 * MIB)["fits"] is False
    assert told(Probe(events=EVENTS), memory=450 * MIB)["fits"] is True
    assert told(Probe(events=EVENTS), memory=450 * MIB)["close"] is False


def test_an_estimate_near_the_limit_is_said_to_be_near() -> None:
    peak = told(Probe(why="--no-probe"))["peak_bytes"]
    found = {share: told(Probe(why="--no-probe"), memory=int(peak * share)) for share in (0.5, 0.9, 1.1, 2.0)}
    assert [one["fits"] for one in found.values()] == [False, False, True, True]
    assert [one["close"] for one in found.values()] == [False, True, True, False]
    assert found[2.0]["hours"] == {"least": None, "most": found[2.0]["hours"]["most"], "measured": False}


def test_a_probe_that_was_killed_measured_no_peak() -> None:
    found = told(Probe(events=EVENTS[:3], why="it was killed, perhaps because memory ran out"))
    assert (found["measured_peak_bytes"], found["hours"]["measured"]) == (None, False)
    assert found["probe"]["why_not"].startswith("it was killed")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (2**19, "0.5 MiB"), (12 * MIB, "12 MiB"), (999 * MIB, "999 MiB"), (1500 * MIB, "1.5 GiB")],
)
def test_sizes_in_words(value: int | None, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.051, "0.051 s"), (12.4, "12 s"), (210.0, "3.5 min"), (7560.0, "2.1 h")]
)
def test_seconds_in_words(value: float | None, text: str) -> None:
    assert span(value) == text
