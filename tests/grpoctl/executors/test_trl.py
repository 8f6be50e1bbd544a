"""A run's own process beside TRL's: what it answers to what is said, and what it starts. No TRL is needed here."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from core.training.outcome import Ending
from grpoctl.config import dump, load
from grpoctl.executors.recorder import Recorder
from grpoctl.executors.trl import (
    STEP_NOTE,
    Around,
    Channel,
    Loop,
    error_in,
    launch_command,
    name_evaluation,
    newest_checkpoint,
)
from grpoctl.files import read_rows, replace_json
from grpoctl.runs.run_dir import RunDir

SPEC = ["trainer.kind=trl", "max_steps=4", "evaluation.eval_steps=2", "checkpoints.save_steps=3"]
SAID = {"kind": "row", "completions": 16, "tokens": 100, "seconds": 1.0}
EVALUATED = {"kind": "evaluated", "rewards": [0.5, 0.25], "seconds": 1.0}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(path=tmp_path)


class Told:
    """A Loop and what it was told and answered."""

    def __init__(
        self,
        run: RunDir,
        recorder: Recorder,
        overrides: list[str],
        ask: Any = lambda step: None,
        ending: Any = lambda row: None,
    ) -> None:
        given = {text.partition("=")[0] for text in overrides}
        own = [text for text in SPEC if text.partition("=")[0] not in given]
        shape = [] if "lr_scheduler_type" in given else ["lr_scheduler_type=constant"]
        self.spec = load("p31", profile="tiny", overrides=[*own, *shape, *overrides]).spec
        run.spec.write_text(dump(self.spec))
        self.loop = Loop(self.spec, run, recorder, ask, ending)
        self.step = 0

    def begin(self, reward: float = 0.4) -> dict[str, Any]:
        assert self.loop.answer({"kind": "ready", "step": 0, "processes": 1}) == {"do": "evaluate"}
        return self.evaluated(reward)

    def row(self, **metrics: float) -> dict[str, Any]:
        self.step += 1
        row = {"update": 1.0, "reward/mean": 0.5, "completions/valid": 1.0, **metrics}
        samples = [{"step": self.step, "row": 0}]
        return self.loop.answer({**SAID, "step": self.step, "row": row, "samples": samples})

    def evaluated(self, reward: float) -> dict[str, Any]:
        problems = [{"step": self.step, "place": 0, "reward": reward}]
        said = {**EVALUATED, "step": self.step, "metrics": {"eval/reward": reward}, "problems": problems}
        return self.loop.answer(said)


@pytest.fixture
def recorder(run: RunDir) -> Iterator[Recorder]:
    with Recorder(run, lambda row: None) as recorder:
        yield recorder


def test_a_callback_of_the_users_ends_the_run(run: RunDir, recorder: Recorder) -> None:
    ends = Ending(status="STOPPED_EARLY", message="enough")
    told = Told(run, recorder, [], ending=lambda row: ends if row["step"] == 1 else None)
    told.begin()
    assert told.row()["do"] == "end"
    assert told.loop.ending == ends


def test_a_run_from_its_first_evaluation_to_its_end(run: RunDir, recorder: Recorder) -> None:
    told = Told(run, recorder, [])
    assert told.begin()["do"] == "step"
    first = told.row()
    assert (first["do"], first["save"], first["values"]["learning_rate"]) == ("step", False, 5e-4)
    assert told.row() == {"do": "evaluate"}
    second = told.evaluated(0.6)
    assert (second["do"], second["save"]) == ("step", True)  # the best evaluation so far
    assert told.row()["save"]  # every third step
    assert told.row() == {"do": "evaluate"}
    assert told.evaluated(0.5) == {"do": "end", "save": True}
    assert told.loop.ending == Ending(status="COMPLETED", message="all 4 steps done")
    rows = read_rows(run.metrics)
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert [(row["completions"], row["tokens"]) for row in rows[1:]] == [(16 * n, 100 * n) for n in range(1, 5)]
    assert [row.get("eval/reward") for row in rows] == [0.4, None, 0.6, None, 0.5]
    assert "eval/gain_se/grpo" in rows[2]


@pytest.mark.parametrize(
    ("overrides", "metrics", "status"),
    [
        (["guards.patience=1"], {"completions/valid": 0.0}, "COLLAPSED"),
        ([], {"rollout/logprob_gap": 0.5, "temperature": 1.0}, "INVALID_ROLLOUT"),
        (["budget={completions: 16}"], {}, "COMPLETED"),
    ],
)
def test_who_ends_a_run(run: RunDir, recorder: Recorder, overrides: list[str], metrics: Any, status: str) -> None:
    told = Told(run, recorder, overrides)
    told.begin()
    answer = told.row(**metrics)
    if answer["do"] == "evaluate":  # a spent budget is evaluated
        answer = told.evaluated(0.5)
    assert answer == {"do": "end", "save": True}
    assert told.loop.ending is not None
    assert told.loop.ending.status == status


def test_its_parent_prunes_it_at_an_evaluation(run: RunDir, recorder: Recorder) -> None:
    asked: list[int] = []

    def ask(step: int) -> Ending:
        asked.append(step)
        return Ending(status="PRUNED", message="worse than the others")

    told = Told(run, recorder, [], ask)
    told.begin()
    assert told.row()["do"] == "step"
    told.row()
    assert told.evaluated(0.3)["do"] == "end"
    assert asked == [2]
    assert told.loop.ending == Ending(status="PRUNED", message="worse than the others")


def test_a_run_stops_early(run: RunDir, recorder: Recorder) -> None:
    told = Told(run, recorder, ["early_stopping={patience: 1}", "evaluation.eval_steps=1"])
    told.begin(0.5)
    told.row()
    assert told.evaluated(0.4)["do"] == "end"
    assert told.loop.ending is not None
    assert told.loop.ending.status == "STOPPED_EARLY"


def test_schedules_are_followed_step_by_step(run: RunDir, recorder: Recorder) -> None:
    schedule = "stages.grpo.temperature={start: 1.0, end: 0.6, steps: 4}"
    told = Told(run, recorder, [schedule, "lr_scheduler_type=linear", "lr_scheduler_steps=null", "beta=0.1"])
    values = [told.begin()["values"], told.row()["values"]]
    # a schedule's start is before the first step: step 1 is at a quarter of the way, step 2 at half of it
    assert [one["temperature"] for one in values] == pytest.approx([0.9, 0.8])
    assert [one["learning_rate"] for one in values] == pytest.approx([5e-4, 3.75e-4])
    assert (values[0]["beta"], values[0]["epsilon"], values[0]["epsilon_high"]) == (0.1, 0.2, 0.28)
    cispo = Told(run, recorder, ["method=cispo", "cispo_max_weight=4.0"])
    assert cispo.loop.answer({"kind": "ready", "step": 0, "processes": 1})["do"] in ("step", "evaluate")


def checkpoint(run: RunDir, step: int | None) -> Path:
    folder = run.path / "trl" / f"checkpoint-{step or 99}"
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    (folder / "optimizer.pt").write_bytes(b"state")
    if step is not None:
        replace_json(folder / STEP_NOTE, {"schema": 1, "step": step})
    return folder


def test_the_newest_whole_checkpoint_whose_rows_are_there(run: RunDir, recorder: Recorder) -> None:
    assert newest_checkpoint(run) == (-1, None)
    told = Told(run, recorder, [])
    told.begin()
    told.row()
    told.row()
    told.evaluated(0.6)
    folders = {step: checkpoint(run, step) for step in (1, 2, 3)}
    checkpoint(run, None)  # half written
    assert newest_checkpoint(run) == (2, folders[2])
    assert not folders[3].exists()  # its row was never recorded


def test_the_last_and_the_best_checkpoints_are_kept_and_the_best_is_exported(run: RunDir, recorder: Recorder) -> None:
    told = Told(run, recorder, ["evaluation.eval_steps=1", "max_steps=6"])
    told.begin()
    for reward in (0.9, 0.1, 0.2, 0.3):
        told.row()
        told.evaluated(reward)
    folders = {step: checkpoint(run, step) for step in range(1, 5)}
    told.loop.rotate()
    assert [step for step, folder in folders.items() if folder.exists()] == [1, 3, 4]
    assert told.loop.export() == []
    assert {file.name for file in run.adapter.iterdir()} == {"adapter_model.safetensors", "grpoctl.json"}
    (folders[1] / "adapter_model.safetensors").unlink()
    assert "in pieces" in told.loop.export()[0]


def test_each_line_is_answered_before_the_next_is_said(run: RunDir) -> None:
    (run.path / "trl").mkdir()
    own, answers = Channel(run), list[Mapping[str, Any]]()

    def follow() -> None:
        channel = Channel(run, follower=True)
        answers.extend(channel.say_and_wait({"kind": "row", "step": step}) for step in (1, 2))

    thread = threading.Thread(target=follow)
    thread.start()
    heard = []
    while thread.is_alive():
        if (said := own.heard()) is not None:
            heard.append(said["step"])
            own.ask("step", values={"learning_rate": float(said["step"])})
    thread.join()
    assert heard == [1, 2]
    assert [answer["values"]["learning_rate"] for answer in answers] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("overrides", "cuda", "there", "absent"),
    [
        ([], False, ["--cpu", "--num_processes", "1"], ["--multi_gpu", "--config_file"]),
        ([], True, ["--num_processes", "1"], ["--cpu"]),
        (["trainer.processes=2"], True, ["--multi_gpu", "2"], ["--cpu"]),
        (["trainer.accelerate_config=/x y/fsdp.yaml"], True, ["--config_file", "/x y/fsdp.yaml"], ["--multi_gpu"]),
    ],
)
def test_what_accelerate_is_asked(
    run: RunDir, overrides: list[str], cuda: bool, there: list[str], absent: list[str]
) -> None:
    spec = load("p31", profile="tiny", overrides=[*SPEC, *overrides]).spec
    command = launch_command(spec, run, Path("/c"), cuda=cuda)
    assert [word for word in there if word not in command] == []
    assert [word for word in absent if word in command] == []
    assert command[-4:] == ["--module", "grpoctl.executors.trl_process", str(run.path), "/c"]


def test_the_error_of_a_process_is_found_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "trainer.log"
    assert error_in(log) == ""
    log.write_text("a\nTraceback\n  x\ntorch.OutOfMemoryError: no room\nRoot Cause\n=====\n")
    assert error_in(log) == "torch.OutOfMemoryError: no room"
    log.write_text("a\nb\n")
    assert error_in(log) == "b"
    quoted = "Traceback (most recent call last):\n  x\nValueError: boom\n"  # what the reward itself raised
    log.write_text(f"{quoted}[rank0]:core.errors.TaskError: reward r (r.py:r) gave no value; mend it\n{quoted}")
    assert error_in(log) == "reward r (r.py:r) gave no value; mend it"
    earlier = log.stat().st_size
    log.write_text(f"{log.read_text()}torch.OutOfMemoryError: no room\n")
    assert error_in(log, earlier) == "torch.OutOfMemoryError: no room"


def test_who_watches_a_run_is_told_which_evaluation_comes() -> None:
    told: list[object] = []

    def evaluating(ended: int, token: int) -> None:
        told.append((ended, token))

    around = Around(
        ask=lambda _: None, row=lambda _: None, ending=lambda _: None, waiting=lambda: None, stage=told.append,
        evaluating=evaluating,
    )  # fmt: skip
    name_evaluation(around, {"kind": "ready", "step": 0})
    name_evaluation(around, {"kind": "row", "step": 4})
    assert told == [(0, 0), "evaluating after step 4"]
