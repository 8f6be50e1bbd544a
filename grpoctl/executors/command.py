"""A run that another program trains (`trainer.kind: command`): started, read while it runs, and ended where need be.

Its rows come from what it prints, or from the file or folder that `trainer.metrics` names, through the readers of
`grpoctl diagnose`; a row is recorded once a later one is there, since a log may tell of one step in several lines.
Nothing is known of its samples and its rollouts, and no row says so. What is not here: how processes are ended
(supervisor), what a log means (grpoctl.diagnose.readers), and how the command's words are made (core.config.trainer).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from core.config import GrpoStage, RunSpec
from core.config.trainer import words
from core.errors import GrpoError, NotFoundError, RunError
from core.health.rules.numerical import NEEDED
from grpoctl.children import child_environment, last_line, python_module
from grpoctl.config import plain
from grpoctl.executors.hooks import Hooks
from grpoctl.executors.recorder import Recorder, last_recorded, rewind
from grpoctl.files import Row, read_rows, replace_bytes, storage_errors
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import Status

if TYPE_CHECKING:
    from core.training.callbacks import Callback
    from core.training.outcome import Ending

LOG = "trainer.log"  # what the program prints
LOOK = 0.2  # seconds between two looks at its log
SHARE = 0.1  # of the time, at most, that looking may take: a log is read from its start each time
KNOWN = "MLFLOW_RUN_ID"  # a program that logs to MLflow by itself must not write into our run


def train_by_command(
    spec: RunSpec,
    run: RunDir,
    *,
    ask: Callable[[int], Ending | None],
    hooks: Hooks,
    waiting: Callable[[], None],
    notes: list[str],
) -> tuple[Status, str]:
    """Start the program, record its rows, end it where its parent or a guard says so; gives how the run ended.

    `ask` is its parent, the hooks see each recorded row, and `waiting` is called at each look at the log. An unfinished
    run goes on by `resume_command`, else it begins again. Raises RunError where the program fails.
    """
    from core.training.callbacks import CollapseGuard, EarlyStopping, ParentControl, RowControl

    last = last_recorded(run)
    goes_on = last >= 0 and spec.trainer.resume_command is not None
    if not goes_on:
        if last >= 0:
            notes.append("trainer.resume_command is not set: the command begins again")
        rewind(run, last := -1)
    callbacks: list[Callback] = [CollapseGuard(spec.guards), ParentControl(ask)]
    if spec.early_stopping is not None:
        callbacks.append(EarlyStopping(spec.early_stopping))
    callbacks.append(RowControl(hooks.ending))
    log = Log(spec, run, after=last)
    with Recorder(run, hooks.row) as recorder, program(spec, run, goes_on=goes_on) as started:
        ended = False
        table = log.recorded()
        while not ended:
            ended = started.poll() is not None
            for step in log.new_rows(all_of_it=ended):
                table.append(step)
                recorder.step_done(step, [], log.timings())
                ending = next((end for callback in callbacks if (end := callback.after_step(table)) is not None), None)
                ending = ending or _spent(spec, step)
                if ending is not None:
                    return Status(ending.status), ending.message
            if not ended:
                waiting()
                log.pause()
    notes += log.notes
    code = started.returncode
    if code:
        how = f"ended with exit code {code}" if code < 128 else f"was ended by signal {code - 128}"
        said = last_line(run.path / LOG)
        raise RunError(f"the command {how}{f': {said}' if said else ''} (its output: {run.path / LOG})")
    if not table:
        where = spec.trainer.metrics or "what it printed"
        raise RunError(f"the command ended and no metrics were found in {where}; {log.problem or 'see trainer.map'}")
    return Status.COMPLETED, f"the command ended after step {int(table[-1]['step'] or 0)}"


def _spent(spec: RunSpec, row: Mapping[str, float | None]) -> Ending | None:
    """The end of a run whose budget is spent: the program does not know of it."""
    from core.training.outcome import Ending

    budget = spec.budget
    if budget is None or (row.get(budget.unit) or 0) < budget.amount:
        return None
    return Ending(status="COMPLETED", message=f"the budget of {budget.amount} {budget.unit} is spent")


@contextmanager
def program(spec: RunSpec, run: RunDir, *, goes_on: bool) -> Iterator[subprocess.Popen[bytes]]:
    """The program under its supervisor; whoever leaves, however, ends it with all of its children."""
    template = spec.trainer.resume_command if goes_on else spec.trainer.command
    command = words(template or "", plain(spec), str(run.path))
    with supervised(command, run, spec.trainer.grace, goes_on) as started:
        yield started


@contextmanager
def supervised(
    command: Sequence[str], run: RunDir, grace: float, goes_on: bool, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A command under the supervisor, its output in RUN/trainer.log (behind what is there where the run goes on).

    Whoever leaves, however, ends it with all of its children.
    """
    log = run.path / LOG
    inherited = {name: value for name, value in child_environment().items() if name != KNOWN}
    # A new file each time: what an earlier program still writes into the old one is not of this attempt.
    replace_bytes(log, log.read_bytes() if goes_on and log.exists() else b"")
    with storage_errors("start a process that writes", log), log.open("ab") as output:
        started = subprocess.Popen(
            python_module("grpoctl.executors.supervisor", str(grace), *command),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**inherited, "PYTHONUNBUFFERED": "1", "GRPOCTL_RUN_DIR": str(run.path), **(environment or {})},
            start_new_session=True,  # Ctrl-C reaches us, and we end it
        )
    assert started.stdin is not None
    try:
        yield started
    finally:
        started.stdin.close()
        started.wait()


class Log:
    """The rows of a program's log as rows of ours, each once and in order."""

    def __init__(self, spec: RunSpec, run: RunDir, *, after: int) -> None:
        self._spec, self._run, self._after = spec, run, after
        metrics = spec.trainer.metrics
        place = run.path / LOG if metrics is None else Path(words(metrics, plain(spec), str(run.path))[0])
        self._place = place
        self._seen: object = None
        self._rows: list[Row] = []
        self._took = 0.0
        self._noted = time.perf_counter()
        self.notes: list[str] = []
        self.problem = ""

    def recorded(self) -> list[dict[str, float | None]]:
        """What the run has of an earlier attempt."""
        return read_rows(self._run.metrics)

    def new_rows(self, *, all_of_it: bool) -> Iterator[dict[str, float | None]]:
        """Rows not given yet, but for the last one, which may still grow, unless `all_of_it` is there."""
        if (state := self._state()) != self._seen or all_of_it:
            self._seen = state
            self._rows = self._read()
        for row in self._rows if all_of_it else self._rows[:-1]:
            if int(row["step"]) > self._after:
                self._after = int(row["step"])
                yield row

    def pause(self) -> None:
        """Wait until the next look is due."""
        time.sleep(max(LOOK, self._took * (1 - SHARE) / SHARE))

    def timings(self) -> dict[str, float]:
        """Seconds since the row before, as far as a reader of its log can tell."""
        now = time.perf_counter()
        passed, self._noted = now - self._noted, now
        return {"total": passed}

    def _read(self) -> list[Row]:
        """The rows that the log has now, one for each step, in their order; none while it cannot be read."""
        from grpoctl.diagnose.readers.base import Source
        from grpoctl.diagnose.readers.registry import open_source

        begun = time.perf_counter()
        try:
            source = Source(name=str(self._place), path=self._place, columns=dict(self._spec.trainer.map), live=True)
            reading = open_source(source)
        except GrpoError as error:
            self.problem = str(error)
            if not isinstance(error, NotFoundError):
                self.notes = [f"its log could not be read: {error}"]
            return []
        finally:
            self._took = time.perf_counter() - begun
        self.notes = list(reading.notes)
        return list(self._counted(_by_step(reading.case.rows)))

    def _counted(self, rows: dict[int, Row]) -> Iterator[Row]:
        """Rows with what a run of ours counts: stage, completions and tokens up to the step."""
        stage = next((stage for stage in self._spec.stages.values() if isinstance(stage, GrpoStage)), None)
        each = 0 if stage is None else int(stage.num_generations) * stage.prompts_per_step
        tokens = 0.0
        measured: set[str] = set(NEEDED)  # another column that never was a number was not measured (core's `numerical`)
        for step in sorted(rows):
            measured.update(name for name, value in rows[step].items() if value is not None)
            row = {name: value for name, value in rows[step].items() if name in measured}
            if row.get("loss", row.get("policy/loss")) is not None and row.get("grad_norm", 0) is None:
                del row["grad_norm"]  # a float16 scaler's search; one that was applied takes the loss with it
            drawn = row.get("completions")
            completions = step * each if drawn is None else drawn
            tokens = row.get("tokens") or tokens
            counted = {"completions": completions, **({"tokens": tokens} if tokens else {})}
            yield {**row, "step": step, "stage": 0, **counted}

    def _state(self) -> object:
        """What changes when the log grows."""
        try:
            files = [self._place] if self._place.is_file() else sorted(self._place.rglob("*"))
            return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        except OSError:
            return None


def _by_step(rows: object) -> dict[int, Row]:
    """step -> everything that rows of that step say; rows without a step are numbered as they come.

    None is a value that is no finite number: it stands where no row of the step has a number.
    """
    known: dict[int, Row] = {}
    for number, row in enumerate(rows, 1):  # type: ignore[arg-type,var-annotated]
        step = row.get("step")
        of_step = known.setdefault(number if step is None else int(step), {})
        of_step.update({name: value for name, value in row.items() if value is not None or name not in of_step})
    return known
