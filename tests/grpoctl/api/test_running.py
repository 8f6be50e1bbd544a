"""Running and comparing from Python: the arguments, and runs that end otherwise than well."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import grpoctl
from core.errors import NotFoundError, RunError, SpecError, UserError
from grpoctl.api.running import override_texts
from grpoctl.executors import execution
from grpoctl.runs.run_dir import Home
from grpoctl.tracking.mirror import MirrorHandle
from tests.conftest import Recorded

SHORT = {"max_steps": 2, "eval_prompts": 4, "num_generations_eval": 1, "num_generations": 2, "prompts_per_step": 1}


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPOCTL_HOME", raising=False)
    home.path.mkdir()
    monkeypatch.chdir(home.path.parent)
    # MLflow's copy is another process's business, and of other tests
    monkeypatch.setattr(execution, "start_mirror", lambda run: MirrorHandle(run, None, "away"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-4, "0.0001"), (2e-6, "2e-06"), (True, "true"), (None, "null"), ("a b", '"a b"'), ([1, 2], "[1, 2]"),
        ({"low": 0.5}, '{"low": 0.5}'), (Path("x/y"), '"x/y"'),
    ],
)  # fmt: skip
def test_a_value_is_written_as_yaml_reads_it(value: object, text: str) -> None:
    assert override_texts({"key": value}) == [f"key={text}"]


def test_a_number_of_numpy_is_a_number() -> None:
    import numpy as np

    assert override_texts({"a": np.float64(0.5), "b": np.int64(3)}) == ["a=0.5", "b=3"]


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}])
def test_a_value_that_yaml_has_no_words_for_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match="learning_rate"):
        override_texts({"learning_rate": value})


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"name": "p99"}, NotFoundError, "p99"),
        ({"overrides": {"learning_rat": 1}}, SpecError, "learning_rate"),
        ({"overrides": ["learning_rate=1"]}, UserError, "expected a mapping"),
        ({"seeds": [0, 0]}, UserError, "each seed once"),
        ({"seeds": [0, -1]}, UserError, "whole numbers from 0"),
        ({"seeds": []}, UserError, "whole numbers from 0"),
        ({"seed": 1, "seeds": [2]}, UserError, "give one of them"),
        ({"callbacks": 3}, UserError, "callback"),
        ({"profile": "huge"}, SpecError, "huge"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_written(
    arguments: dict[str, Any], error: type[Exception], says: str, home: Home
) -> None:
    with pytest.raises(error, match=says):
        grpoctl.run(**{"name": "p31", "profile": "tiny", "quiet": True, **arguments})
    assert list(home.path.iterdir()) == []


def test_runs_end_in_the_recorded_way_whatever_their_callbacks_do(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(callback: Any, **more: Any) -> grpoctl.LoadedRun:
        return grpoctl.run("p31", SHORT, profile="tiny", callbacks=callback, quiet=True, **more)

    def fails(row: grpoctl.Row) -> None:
        raise ValueError("of mine")

    with pytest.raises(ValueError, match="of mine"):
        run(fails, seed=1)
    failed = grpoctl.load("p31", "run")
    assert (failed.status, list(failed.metrics.index)) == ("FAILED", [0, 1])
    assert "of mine" in failed.result["message"]
    assert "Traceback" in failed.run.log.read_text()

    def interrupts(row: grpoctl.Row) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(interrupts, seed=2)
    assert grpoctl.load("p31", "run").status == "INTERRUPTED"

    resumed = run((), seed=2, resume=True)
    assert (resumed.status, list(resumed.metrics.index)) == ("COMPLETED", [0, 1, 2])

    stopped = run(lambda row: "enough", seed=3)
    assert (stopped.status, stopped.result["message"]) == ("STOPPED_EARLY", "enough")
    assert list(stopped.metrics.index) == [0, 1]
    assert capsys.readouterr().out == ""  # quiet

    several = grpoctl.run("p31", {**SHORT, "eval_prompts": 5}, profile="tiny", seeds=[5, 4], quiet=True)
    assert several.seeds == (4, 5)
    assert several == grpoctl.load("p31-" + several.runs[0].id.split("-")[-2], "experiment")


def test_a_run_that_fails_is_an_error(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "_begun", lambda *_: 1 / 0)
    with pytest.raises(RunError, match="FAILED: ZeroDivisionError"):
        grpoctl.run("p31", SHORT, profile="tiny", quiet=True)


def test_sides_are_names_runs_and_experiments(recorded: Recorded) -> None:
    for seed in (0, 1):
        recorded(seed=seed)
        recorded(seed=seed, learning_rate=5e-3)
    base = grpoctl.load("p31", "experiment")
    sha = grpoctl.load("p31", "run").id.split("-")[-2]
    named = grpoctl.compare("p31", f"p31-{sha}")
    changed = grpoctl.load(sha, "experiment")
    assert [side.seeds for side in named.sides] == [(0, 1), (0, 1)]
    assert list(named.changed) == ["stages.grpo.learning_rate"]
    for sides in ((base, changed), ("p31", changed), (base, f"p31-{sha}"), (list(base.runs), changed)):
        assert grpoctl.compare(*sides).document() == named.document()
    assert grpoctl.compare(base.runs[0], changed.runs[0]).sides[1].seeds == (0,)
    with pytest.raises(UserError, match="mixes runs"):
        grpoctl.compare(base, [base.runs[0], changed.runs[1]])
    with pytest.raises(UserError, match="2 to 26"):
        grpoctl.compare(base)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: grpoctl.run(None), "name=None"),  # type: ignore[call-overload]
        (lambda: grpoctl.run("p31", seeds=3), "seeds=3"),  # type: ignore[call-overload]
        (lambda: grpoctl.run("p31", seed="a"), "'a'"),  # type: ignore[call-overload]
        (lambda: grpoctl.sweep(None), "name=None"),  # type: ignore[arg-type]
        (lambda: grpoctl.sweep("lr-study", trials="two"), "trials='two'"),  # type: ignore[arg-type]
        (lambda: grpoctl.compare("p31", 3), "3 as a side"),  # type: ignore[arg-type]
        (lambda: grpoctl.load("p31", home=3), "home=3"),  # type: ignore[call-overload]
    ],
)
def test_an_argument_of_the_wrong_type_is_named(home: Home, recorded: Recorded, call: Any, argument: str) -> None:
    recorded()
    with pytest.raises(UserError, match=re.escape(argument)):
        call()
