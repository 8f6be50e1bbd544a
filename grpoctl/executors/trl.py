"""A run that TRL trains (`trainer.kind: trl`): started by accelerate, told what to do after each step, recorded here.

TRL's processes (trl_process) compute; this one keeps the run's clock and its schedules, records every row, asks the
guards, the parent and early stopping, and says when to evaluate, to save and to end. So a run of TRL has the files of
any other, and is pruned, stopped and continued like one. Its checkpoints are TRL's, in RUN/trl.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.config import GrpoStage, RunSpec
from core.errors import RunError
from grpoctl.children import last_line
from grpoctl.executors.command import LOG, supervised
from grpoctl.executors.recorder import Recorder, Watcher, last_recorded, rewind
from grpoctl.executors.slots import VISIBLE
from grpoctl.exports import weights
from grpoctl.files import Row, RowWriter, read_json, read_new, read_rows, replace_json, storage_errors
from grpoctl.runs import provenance
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import Status

if TYPE_CHECKING:
    from core.training.callbacks import Callback
    from core.training.checkpoint import Progress
    from core.training.outcome import Ending

FOLDER, SAID, ASKED = "trl", "said.jsonl", "asked.json"
STEP_NOTE = "grpoctl.json"  # in a checkpoint: which step it is of; without it, it is not whole
MOST_STEPS = 20_000  # whose prompts are laid out before a run: of a budget in tokens nobody knows the steps
LOOK = 0.005  # seconds between two looks at the other's file
_NOT_WEIGHTS = ("optimizer", "scheduler", "rng_state", "trainer_state", "training_args", "README", STEP_NOTE, "scaler")


class Channel:
    """The two files between a run's own process and the first of TRL's: each line answered before the next is said."""

    def __init__(self, run: RunDir, *, follower: bool = False) -> None:
        self._said, self._asked = run.path / FOLDER / SAID, run.path / FOLDER / ASKED
        self._number = 0
        self._read = 0
        self._writer = RowWriter(self._said) if follower else None

    def say_and_wait(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell the run's own process this; its answer."""
        assert self._writer is not None
        self._number += 1
        self._writer.append({"number": self._number, **said})
        while True:
            asked = read_json(self._asked)
            if asked is not None and asked.get("number") == self._number:
                return asked
            time.sleep(LOOK)

    def heard(self) -> Mapping[str, Any] | None:
        """What TRL's process said next; None where it has said nothing new."""
        if not self._said.exists():
            return None
        rows, self._read = read_new(self._said, self._read)
        if not rows:
            return None
        (row,) = rows  # it waits for an answer
        self._number = int(row["number"])
        return row

    def ask(self, do: str, **more: Any) -> None:
        """Answer what was heard last."""
        replace_json(self._asked, {"number": self._number, "do": do, **more}, durable=False)


def launch_command(spec: RunSpec, run: RunDir, checkpoint: Path | None, *, cuda: bool) -> list[str]:
    """`accelerate launch` of the run's processes."""
    trainer = spec.trainer
    command = [sys.executable, "-P", "-m", "accelerate.commands.launch", "--quiet"]
    if trainer.accelerate_config is not None:
        command += ["--config_file", trainer.accelerate_config]
    elif trainer.processes > 1:
        command += ["--multi_gpu", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    else:
        command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
        command += [] if cuda else ["--cpu"]
    command += ["--num_processes", str(trainer.processes)]
    if trainer.processes > 1 and trainer.accelerate_config is None:
        command += ["--main_process_port", "0"]
    arguments = [str(run.path), *([] if checkpoint is None else [str(checkpoint)])]
    return [*command, "--module", "grpoctl.executors.trl_process", *arguments]


@dataclass(frozen=True, kw_only=True, slots=True)
class Around:
    """Who watches a run: its parent (`ask`), who sees each row, may end it there, and is called while TRL computes.

    `stage` is called with what is done beside steps, `evaluating` before the evaluation before step 1. `devices` are
    the GPUs of the run, as CUDA_VISIBLE_DEVICES has them; None leaves that as it is.
    """

    ask: Callable[[int], Ending | None]
    row: Watcher
    ending: Callable[[Mapping[str, float | None]], Ending | None]
    waiting: Callable[[], None]
    stage: Callable[[str], None]
    evaluating: Callable[[int, int], None]
    devices: str | None = None


def train_by_trl(spec: RunSpec, run: RunDir, around: Around, notes: list[str]) -> tuple[Status, str]:
    """Train by TRL from its newest whole checkpoint; gives how the run ended. Raises RunError where TRL fails."""
    import torch

    step, checkpoint = newest_checkpoint(run)
    rewind(run, step)
    folder = run.path / FOLDER
    with storage_errors("write", folder):
        folder.mkdir(exist_ok=True)
        for name in (SAID, ASKED):
            (folder / name).unlink(missing_ok=True)
    command = launch_command(spec, run, checkpoint, cuda=torch.cuda.is_available())
    environment = {"TOKENIZERS_PARALLELISM": "false", "ACCELERATE_USE_CPU": str(not torch.cuda.is_available()).lower()}
    if around.devices is not None:
        environment[VISIBLE] = around.devices
    channel, log = Channel(run), run.path / LOG
    earlier = log.stat().st_size if step >= 0 and log.exists() else 0  # bytes of an attempt that this one goes on from
    with (
        Recorder(run, around.row) as recorder,
        supervised(command, run, spec.trainer.grace, step >= 0, environment) as started,
    ):
        around.stage("starting TRL")
        loop = Loop(spec, run, recorder, around.ask, around.ending)
        while True:
            heard = channel.heard()
            if heard is not None:
                answer = loop.answer(heard)
                if answer["do"] == "evaluate":
                    name_evaluation(around, heard)
                channel.ask(**answer)
                continue
            if started.poll() is not None:
                break
            around.waiting()
            time.sleep(LOOK)
    loop.rotate()
    if loop.ending is None:
        code = started.returncode
        how = f"with exit code {code}" if code < 128 else f"by signal {code - 128}"
        said = error_in(log, earlier)
        raise RunError(f"TRL ended {how}{f': {said}' if said else ''} (its output: {log})")
    if loop.ending.status != "INTERRUPTED":
        notes += loop.export()
    return Status(loop.ending.status), loop.ending.message


def name_evaluation(around: Around, said: Mapping[str, Any]) -> None:
    """Tell who watches the run which evaluation comes now."""
    if said["kind"] == "row":
        around.stage(f"evaluating after step {said['step']}")
    else:
        around.evaluating(0, 0)


_ERROR = re.compile(r"^(?:\[\w+\]:)?((?:\w+\.)*\w*(?:Error|Exception)): (.+)$")


def error_in(log: Path, begin: int = 0) -> str:
    """The last exception that a process of TRL printed, else the last line; launchers print their own behind it.

    One of ours is preferred: it says what to do, and may quote a traceback behind its first line. Exceptions before
    the byte `begin` are those of an earlier attempt.
    """
    try:
        lines = log.read_bytes()[begin:].decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    raised = [found for line in lines if (found := _ERROR.match(line.strip())) and "ChildFailedError" not in line]
    own = [found[2] for found in raised if found[1].startswith("core.errors.")]
    return own[-1] if own else raised[-1][0] if raised else last_line(log)


def newest_checkpoint(run: RunDir) -> tuple[int, Path | None]:
    """(step, checkpoint) of the newest whole checkpoint whose rows are recorded; (-1, None) where there is none."""
    last, known = last_recorded(run), _checkpoints(run)
    for step, folder in known.items():
        if step > last:  # its row was lost
            shutil.rmtree(folder, ignore_errors=True)
    whole = [step for step in known if step <= last]
    return (whole[-1], known[whole[-1]]) if whole else (-1, None)


def _checkpoints(run: RunDir) -> dict[int, Path]:
    """step -> folder of each whole checkpoint."""
    found = {}
    for folder in (run.path / FOLDER).glob("checkpoint-*"):
        note = read_json(folder / STEP_NOTE)
        if note is not None:
            found[int(note["step"])] = folder
    return dict(sorted(found.items()))


class Loop:
    """What a run's own process does between TRL's steps: the clock, the record, and who may end it."""

    def __init__(
        self,
        spec: RunSpec,
        run: RunDir,
        recorder: Recorder,
        ask: Callable[[int], Ending | None],
        ending: Callable[[Mapping[str, float | None]], Ending | None],
    ) -> None:
        from core.health.guard import watched_guards
        from core.training.callbacks import (
            CollapseGuard,
            EarlyStopping,
            ParentControl,
            RolloutIntegrity,
            RowControl,
            Watching,
        )

        self._spec, self._run, self._recorder = spec, run, recorder
        self._name, self._stage = next(
            (name, stage) for name, stage in spec.stages.items() if isinstance(stage, GrpoStage)
        )
        self.table: list[Row] = read_rows(run.metrics)
        self.ending: Ending | None = None
        self._integrity = RolloutIntegrity(spec.guards, spec.computes_in)
        self._parent = ParentControl(ask)
        self._callbacks: list[Callback] = [self._integrity, CollapseGuard(watched_guards(spec)), Watching(spec)]
        if spec.early_stopping is not None:
            self._callbacks.append(EarlyStopping(spec.early_stopping))
        self._callbacks += [self._parent, RowControl(ending)]
        self._pending: Mapping[str, Any] | None = None
        self._begun = _rewards_at_start(run)

    def answer(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """What TRL's process is to do after what it said."""
        match said["kind"]:
            case "ready":
                if said.get("model") is not None:
                    provenance.note_model(self._run, said["model"])
                if not self.table:
                    self._pending = {"row": {"step": 0, "completions": 0, "tokens": 0}, "samples": [], "seconds": 0.0}
                    return {"do": "evaluate"}
                again = self._ask()  # it had ended at its last checkpoint, and was killed before it could say so
                return self._next(again, save=False)
            case "row":
                self._pending = self._with_counts(said)
                return {"do": "evaluate"} if self._due() else self._recorded(None)
            case "evaluated":
                return self._recorded(said)
            case other:
                raise RunError(f"TRL's process said {other!r}, which is nothing known")

    def _with_counts(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row with what our own trainer's have: step, stage and what was spent so far."""
        before = self.table[-1]
        row = {
            "step": int(said["step"]),
            "update": 0,
            "stage": 0,
            "completions": int(before["completions"] or 0) + int(said["completions"]),
            "tokens": int(before["tokens"] or 0) + int(said["tokens"]),
            **said["row"],
        }
        return {**said, "row": {**row, "update": int(row["update"] or 0)}}

    def _progress(self) -> Progress:
        """Where the run stands by its rows."""
        from core.training.checkpoint import Progress

        last, updates = self.table[-1], sum(row.get("update") == 1 for row in self.table)
        step = int(last["step"])
        return Progress(
            step=step, updates=updates, completions=int(last["completions"] or 0), stage_step=step,
            stage_updates=updates, best_step=self._best(),
        )  # fmt: skip

    def _best(self) -> int | None:
        """The step of the best evaluation of training; None before the first one."""
        scored = [(float(row["eval/reward"] or 0), -int(row["step"])) for row in self.table[1:]
                  if row.get("eval/reward") is not None]  # fmt: skip
        return -max(scored)[1] if scored else None

    def _spent(self) -> Any:
        from core.training.clock import Spent

        assert self._pending is not None
        return Spent(completions=int(self._pending["completions"]), tokens=int(self._pending["tokens"]))

    def _due(self) -> bool:
        """Whether an evaluation follows the step that was told of, which is not in the table yet."""
        from core.training.clock import clock

        return clock(self._spec, self._progress(), self.table).due(self._spent())

    def _recorded(self, evaluated: Mapping[str, Any] | None) -> dict[str, Any]:
        """Record the step that was told of, and say how it goes on."""
        from core.training.requests import Evaluated

        assert self._pending is not None
        said, self._pending = self._pending, None
        row = dict(said["row"])
        timings = {"train": float(said["seconds"]), "total": float(said["seconds"])}
        found = None
        if evaluated is not None:
            row |= evaluated["metrics"] | self._gains(evaluated["rewards"])
            found = Evaluated(problems=evaluated["problems"], picture=None)
            timings |= {"evaluate": float(evaluated["seconds"])}
            timings["total"] += float(evaluated["seconds"])
            if not self.table:
                self._begun = evaluated["rewards"]
        kept = {name: value if value is None or math.isfinite(value) else None for name, value in row.items()}
        before = self.table
        self.table = [*before, kept]
        self._recorder.step_done(kept, said["samples"], timings, found)
        ending = self._integrity.before_update(kept, before) if kept["step"] else None
        ending = ending or self._ask() or self._over()
        step = int(row["step"])
        due = step % self._spec.checkpoints.save_steps == 0 or ending is not None or self._best() == step
        self.rotate()
        return self._next(ending, save=step > 0 and due)

    def _ask(self) -> Ending | None:
        """Everybody who may end the run; the first one's word counts."""
        endings = [callback.after_step(self.table) for callback in self._callbacks]
        return next((ending for ending in endings if ending is not None), None) or self._over()

    def _over(self) -> Ending | None:
        from core.training.clock import clock
        from core.training.outcome import Ending

        progress = self._progress()
        now = clock(self._spec, progress, self.table)
        if not now.ended:
            return None
        budget, steps = self._spec.budget, progress.step
        if budget is not None:
            message = f"the budget of {budget.amount} {budget.unit} is spent, after {steps} steps"
            return Ending(status="COMPLETED", message=message)
        return Ending(status="COMPLETED", message=f"all {steps} steps done")

    def _next(self, ending: Ending | None, *, save: bool) -> dict[str, Any]:
        if ending is not None:
            self.ending = ending
            return {"do": "end", "save": save}
        return {"do": "step", "save": save, "values": self._values()}

    def _values(self) -> dict[str, float]:
        """What the schedules give for the next step."""
        from core.training.clock import at, clock, stage_learning_rate

        stage, rows = self._stage, self.table[1:]
        now = clock(self._spec, self._progress(), self.table)
        high = stage.epsilon if stage.epsilon_high is None else stage.epsilon_high
        return {
            "learning_rate": stage_learning_rate(stage, now, rows),
            "temperature": at(stage.temperature, now.position, rows),
            "beta": at(stage.beta, now.position, rows),
            "epsilon": at(stage.epsilon, now.position, rows),
            "epsilon_high": stage.cispo_max_weight if stage.surrogate == "cispo" else at(high, now.position, rows),
        }

    def _gains(self, rewards: list[float | None]) -> dict[str, float]:
        from core.training.metrics import gain_errors

        return gain_errors({self._name: self._begun}, rewards) if self._begun else {}

    def rotate(self) -> None:
        """Keep the last checkpoints and the best one."""
        known = list(_checkpoints(self._run).items())
        kept = {step for step, _ in known[-self._spec.checkpoints.save_total_limit :]} | {self._best()}
        for step, folder in known:
            if step not in kept:
                with suppress(OSError):
                    shutil.rmtree(folder)

    def export(self) -> list[str]:
        """The weights of the best evaluation's checkpoint, else of the last one, as RUN/adapter; notes."""
        known = _checkpoints(self._run)
        best = self._best()
        step = best if best in known else next(reversed(known), None)
        if step is None:
            return ["no weights were exported: TRL wrote no checkpoint"]
        files = [file for file in known[step].iterdir() if file.is_file() and not file.name.startswith(_NOT_WEIGHTS)]
        if not any(file.suffix == ".safetensors" for file in files):
            return [f"no weights were exported: those of {known[step]} are in pieces (accelerate merge-weights)"]
        with weights.whole_folder(self._run.adapter) as draft:
            for file in files:
                shutil.copy2(file, draft / file.name)
            weights.note(draft, self._run, step)
        return []


def _rewards_at_start(run: RunDir) -> list[float | None]:
    """Each held-out prompt's mean reward of the evaluation before step 1; [] where none was recorded."""
    of_prompt: dict[int, list[float]] = {}
    for row in read_rows(run.problem_rows):
        if row["step"] == 0:
            values = of_prompt.setdefault(int(row["place"]), [])
            if row["reward"] is not None:
                values.append(float(row["reward"]))
    return [sum(values) / len(values) if values else None for _, values in sorted(of_prompt.items())]
