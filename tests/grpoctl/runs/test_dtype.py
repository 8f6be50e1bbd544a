"""Whose dtype a run has where its spec says `auto`: an unfinished run's, its study's, this machine's."""

from __future__ import annotations

from typing import Any

import pytest

from core.models.precision import MachineFacts
from grpoctl.config import Loaded, load, read_resolved, run_stem, spec_sha
from grpoctl.runs import dtype
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.run_dir import Home

HAS_IT, LACKS_IT = MachineFacts(cpu={"avx512_bf16": True}), MachineFacts()
SAID = "dtype bfloat16 (auto: this CPU has it)"


def small(value: str = "auto", *overrides: str) -> Loaded:
    return load("p31", profile="small", overrides=[f"model.dtype={value}", *overrides])


def nobody() -> MachineFacts:
    pytest.fail("no machine has to be asked")


@pytest.mark.parametrize(("facts", "expected"), [(HAS_IT, "bfloat16"), (LACKS_IT, "float32")])
def test_a_new_run_is_recorded_with_this_machines(home: Home, facts: MachineFacts, expected: str) -> None:
    loaded = dtype.settled_run(small(), lambda: facts)
    run = prepare(Launch(loaded=loaded), home).run
    spec = read_resolved(run.spec)
    assert (spec.model.dtype, spec.model.computes_in) == (expected, expected)
    assert spec == small(expected).spec  # what is recorded does not tell who chose it
    assert spec_sha(spec) == spec_sha(small(expected).spec)


def test_a_dtype_that_is_stated_is_left_alone() -> None:
    loaded = small("float32")
    assert dtype.settled_run(loaded, nobody) is loaded
    assert dtype.settled(loaded.spec, nobody) is loaded.spec
    assert dtype.why(loaded.spec, loaded.spec, nobody) is None


@pytest.mark.parametrize("overrides", [("model.source=builtin:tiny",), ("model.lora=null",)])
def test_no_machine_is_asked_where_only_float32_will_do(overrides: tuple[str, ...]) -> None:
    loaded = small("auto", *overrides)
    assert loaded.spec.model.dtype == "float32"
    assert dtype.settled_run(loaded, nobody) is loaded


@pytest.mark.parametrize(("begun", "facts"), [("float32", HAS_IT), ("bfloat16", LACKS_IT)])
def test_a_resumed_run_keeps_the_one_it_was_started_with(home: Home, begun: str, facts: MachineFacts) -> None:
    run = prepare(Launch(loaded=small(begun)), home).run
    loaded = dtype.settled_run(small(), lambda: facts, resume=home)
    assert prepare(Launch(loaded=loaded, resume=True), home).run == run
    said = dtype.why(small().spec, loaded.spec, lambda: facts)
    assert said == f"dtype {begun} (auto: the run was started with it)"
    anew = dtype.settled_run(small(), lambda: facts)  # not resumed: this machine's
    assert run_stem(anew.spec) != run_stem(loaded.spec)


def test_with_nothing_to_resume_it_is_this_machines(home: Home) -> None:
    loaded = dtype.settled_run(small(), lambda: HAS_IT, resume=home)
    assert loaded.spec.model.dtype == "bfloat16"
    assert dtype.why(small().spec, loaded.spec, lambda: HAS_IT) == SAID


def test_all_trials_of_a_study_have_one_dtype_on_whatever_machine_it_goes_on() -> None:
    header: dict[str, Any] = {}
    said: list[str] = []
    first = dtype.settled_trial(small(), header, said.append, lambda: HAS_IT)
    later = dtype.settled_trial(small("auto", "beta=0.1"), header, said.append, lambda: LACKS_IT)
    assert [one.spec.model.dtype for one in (first, later)] == ["bfloat16", "bfloat16"]
    assert header == {"dtype": "bfloat16"}
    assert said == [SAID]


def test_a_study_that_leaves_nothing_open_keeps_no_dtype() -> None:
    header: dict[str, Any] = {}
    loaded = small("float32")
    assert dtype.settled_trial(loaded, header, pytest.fail, nobody) is loaded
    assert header == {}
