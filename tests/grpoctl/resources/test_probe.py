"""The probe in a process of its own: what it measures is what was foretold, within a quarter."""

from __future__ import annotations

import os
from typing import Any

import pytest

from core.config import RunSpec
from core.health.before.resources.memory import Place, Tokens, phases
from grpoctl.config import load
from grpoctl.resources.model import known_model
from grpoctl.resources.probe import Probe, measure, reason_of_failure

PLACE = Place(device="cpu", memory=2**40)


def spec(*overrides: str) -> RunSpec:
    return load("p31", profile="tiny", overrides=overrides).spec


def compared(one: RunSpec, probe: Probe) -> dict[str, float]:
    """Phase -> estimated over measured, at the probe's own lengths."""
    assert probe.why is None
    step = probe.step("grpo", full=True)
    shape, tokens = known_model(one.model).shape, Tokens(prompt=step["prompt_tokens"], answer=0)
    found = [phase for phase in phases(one, shape, tokens, PLACE) if phase.stage]
    return {phase.name: phase.bytes / step["peaks"][phase.name] for phase in found}


@pytest.mark.process
def test_the_built_in_model_is_measured() -> None:
    one = spec("max_completion_length=24")
    probe = measure(one, 4)
    ratios = compared(one, probe)
    assert set(ratios) == {"sample", "score", "learn"}
    assert all(0.75 < ratio < 1.25 for ratio in ratios.values()), ratios
    loaded, full = probe.first("loaded"), probe.step("grpo", full=True)
    # r=16 on q, k, v, o of the one block: 16 * (256 + 192 + 192 + 256) fp32 elements
    assert (loaded["frozen"], loaded["trainable"]) == (4 * 199_296, 4 * 14_336)
    assert (full["rows"], full["completion_tokens"], full["drawn"]) == (16, 24, 16 * 24)  # nobody ended early
    assert full["moments"] >= 2 * loaded["trainable"]
    assert probe.first("evaluated")["rows"] == 8
    assert set(full["seconds"]) >= {"sample", "score", "learn", "total"}
    assert probe.peak is not None
    assert probe.peak >= max(full["peaks"].values())


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="peaks cannot be reset on this system")
def test_smollm2_needs_what_was_foretold(small_model: tuple[Any, Any]) -> None:
    model, _ = small_model
    one = spec(f"model.source={model.name_or_path}", "num_generations=2", "max_completion_length=8")
    ratios = compared(one, measure(one, 1))
    assert all(0.75 < ratio < 1.25 for ratio in ratios.values()), ratios


@pytest.mark.process
@pytest.mark.slow
def test_every_stage_makes_its_steps() -> None:
    one = load("staged", profile="tiny").spec
    probe = measure(one, 2)
    assert probe.why is None
    for name, stage in one.stages.items():
        full = probe.step(name, full=True)
        assert full["completion_tokens"] == stage.max_completion_length if stage.rows_per_step else full["rows"] > 0
    steps = [event for event in probe.events if event["event"] == "step"]
    assert not any("calibrate" in event["seconds"] for event in steps)  # a run makes it once


@pytest.mark.process
@pytest.mark.slow  # a second process that imports torch, for its last words; the words are in the test below
def test_a_probe_that_cannot_run_says_why(tmp_path: Any) -> None:
    probe = measure(spec(f"model.source={tmp_path}"), 1)
    assert probe.why is not None
    assert str(tmp_path) in probe.why
    assert probe.peak is None


@pytest.mark.parametrize(
    ("code", "said", "why"),
    [
        (0, ["a warning"], None),
        (-9, [], "it was killed, perhaps because memory ran out"),
        (-15, [], "it was ended by SIGTERM"),
        (1, ["Traceback", "ValueError: odd", ""], "ValueError: odd"),
        (3, [], "code 3"),
    ],
)
def test_how_a_probe_ended_in_words(code: int, said: list[str], why: str | None) -> None:
    assert reason_of_failure(code, said) == why


def test_of_several_steps_the_last_counts() -> None:
    steps = [{"event": "step", "stage": "a", "full": full, "n": n} for n, full in enumerate((False, False, True))]
    probe = Probe(events=steps)
    assert (probe.step("a", full=False)["n"], probe.step("a", full=True)["n"], probe.step("b", full=True)) == (1, 2, {})
