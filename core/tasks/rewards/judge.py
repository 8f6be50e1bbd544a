"""Judge: the values that a task's reward functions give to completions, and what was lost of them.

What is here: the arguments a function is passed, which rows are asked for again, what is counted and logged, and when a
run can no longer go on. What is not: the process that runs the functions (process), and how values become one reward
(the task).
"""

from __future__ import annotations

import difflib
import logging
import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.config.task import RewardSpec
from core.errors import SpecError, TaskError
from core.tasks.rewards.process import LostError, RewardProcess

PRINTED = 1 << 18  # bytes of what functions print that are noted, over the whole run
DIFFERENT = 50  # errors that are noted in full
_LINE = 300  # characters of an error's own line
_PLACE = re.compile(r'^  +File "(.+?)", line (\d+)', re.MULTILINE)
_LIBRARY = ("/site-packages/", "/lib/python", "<frozen ")

_log = logging.getLogger("core.tasks.rewards")
_told = logging.getLogger("core.tasks.rewards.told")  # what is shown while a run goes on, too


class Notes:
    """Writes to the logger `core.tasks.rewards`: warnings of losses, each error in full once; a bounded amount."""

    def __init__(self) -> None:
        self._logged: set[str] = set()
        self._stepless: set[str] = set()
        self._split: set[str] = set()
        self._printed = 0

    def losses(self, reward: Reward, count: int, lost: Mapping[int, str], first: str) -> None:
        """A call for `count` completions failed with `first`; `lost` are the rows that stayed without a value."""
        _log.warning(
            "reward %s: the call for %d completions failed: %s; asked for one by one, %d of them got no value",
            reward.spec.label, count, gist(first), len(lost),
        )  # fmt: skip
        for error in (first, *list(lost.values())[:1]):
            if "\n" in error and gist(error) not in self._logged and len(self._logged) < DIFFERENT:
                self._logged.add(gist(error))
                _log.warning("reward %s: in full:\n%s", reward.spec.label, error)

    def only_one_by_one(self, reward: Reward, error: str) -> None:
        """Every value came from a call for one completion alone. Told once."""
        if reward.spec.label not in self._split:
            self._split.add(reward.spec.label)
            _told.warning(
                "reward %s (%s): %d calls in a row for all completions failed (%s), and its values are from calls for "
                "one completion each; try it by grpoctl validate NAME --rewards",
                reward.spec.label, reward.spec.function, LOST_IN_A_ROW, gist(error),
            )  # fmt: skip

    def printed(self, text: str, count: int) -> None:
        """The end of what functions printed, of `count` bytes in all."""
        if self._printed >= PRINTED:
            return
        cut = f"(the end of {count} bytes) " if count > len(text.encode()) else ""
        _log.info("printed by rewards: %s%s", cut, text.rstrip())
        self._printed += len(text)
        if self._printed >= PRINTED:
            _log.info("printed by rewards: more than %d bytes; the rest is not noted", PRINTED)

    def not_imported(self, what: str, error: str) -> None:
        """The traceback of an import."""
        _log.error("importing %s failed:\n%s", what, error)

    def no_step(self, rewards: Sequence[Reward]) -> None:
        """Nobody says which step it is, and a function asks for it by name. Noted once."""
        for reward in rewards:
            if "trainer_state" in reward.named and reward.spec.label not in self._stepless:
                self._stepless.add(reward.spec.label)
                text = "reward %s: asks for trainer_state, whose global_step is 0 here at every step"
                _log.warning(text, reward.spec.label)

    def changes(self, before: Sequence[Reward], now: Sequence[Reward]) -> None:
        """Files that are not what they were when the process was started before."""
        for old, new in zip(before, now, strict=False):
            if old.sha256 != new.sha256:
                text = "reward %s: %s has changed since the run began; the new content counts from now on"
                _log.warning(text, new.spec.label, new.file)


def gist(error: str) -> str:
    """One line of it: what a traceback ends in and the user's place in it, else the first line and where it hung."""
    lines = error.strip().splitlines() or [""]
    places = [place for place in _PLACE.findall(error) if not any(part in place[0] for part in _LIBRARY)]
    if lines[0].startswith("Traceback"):
        last = _raised(lines)
        place = places[-1:]
    else:
        last, place = lines[0], places[:1]  # a hung process tells the innermost call first
    return last[:_LINE] + "".join(f" ({file} line {number})" for file, number in place)


def _raised(lines: Sequence[str]) -> str:
    """The line that names the exception: the first one after the last frame; its message may go on for more."""
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    after = lines[max(frames, default=0) + 1 :]
    return next((line for line in after if not line.startswith((" ", "... "))), lines[-1])


EXTRAS = ("trainer_state", "log_extra", "log_metric")  # what TRL hands to functions besides rows
ROWS = ("prompts", "completions", "completion_ids")
_NO_COLUMNS = frozenset({"prompt", "completion", "completion_ids"})  # of a dataset: TRL does not pass these on


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """One function. `named` are its parameters, `required` those without a default; `anything`: it has **kwargs."""

    spec: RewardSpec
    number: int
    named: frozenset[str]
    required: tuple[str, ...]
    anything: bool
    file: str | None
    sha256: str | None

    def wants(self, name: str) -> bool:
        """Whether a column or an extra of this name is passed to it."""
        return name in self.named or (self.anything and name not in _NO_COLUMNS - set(ROWS))

    def lacks(self, columns: Collection[str]) -> str | None:
        """What to say of the first argument that it requires and nobody gives; None where it has all."""
        there = {*columns, *ROWS, *EXTRAS}
        for name in self.required:
            if name not in there:
                near = difflib.get_close_matches(name, sorted(there), n=1)
                column_list = ", ".join(sorted(columns)[:12]) + (", ..." if len(columns) > 12 else "")
                return (
                    f"reward {self.spec.label}: {self.spec.function} needs an argument `{name}`, which is no column of "
                    f"the data (columns: {column_list or 'none'}); "
                    f"{f'did you mean {near[0]}? ' if near else ''}rename one of them, or give the argument a default"
                )
        return None


LOST_IN_A_ROW = 3  # scorings that may lose every row of a function: then the run ends
RETRIES = 5.0  # timeouts that asking for single rows again may take in all
HUNG = 2  # rows that may hang while none has got a value: then the others are not asked for again
IMPORTS = 120.0  # seconds that importing may take; the longest timeout, where that is longer


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What one function said: a value for each row, NaN where it gave none (None, or the row is in `lost`)."""

    values: Sequence[float]
    lost: frozenset[int] = frozenset()  # rows it raised or hung on, or returned something unusable for
    first_error: str | None = None
    call_error: str | None = None  # why the call for all rows failed, also where each row by itself then had a value

    @property
    def failed(self) -> int:
        """How many rows were lost; a row for which the function returned None is not."""
        return len(self.lost)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer:
    """What came of one call: `values` of its rows, None for those not applicable or `refused`; or an `error`."""

    values: Sequence[float | None] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    error: str | None = None
    hung: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rows:
    """The arguments of one scoring, a value for each row."""

    columns: Mapping[str, Sequence[object]]
    count: int
    step: int

    def only(self, row: int) -> _Rows:
        """One row of it."""
        return _Rows(columns={name: [values[row]] for name, values in self.columns.items()}, count=1, step=self.step)


class Judge:
    """All reward functions of a task, in one child process, started at the first use. Of one thread.

    `base` is the folder the process works in, from which modules and relative files are taken: the current one where
    it is None. Raises SpecError where two rewards have one name.
    """

    def __init__(self, rewards: Sequence[RewardSpec], *, base: Path | None = None) -> None:
        names = [reward.label for reward in rewards]
        for name in names:
            if names.count(name) > 1:
                raise SpecError(f"two rewards are called {name}; give one of them a `name`", key="task.rewards")
        self._specs = tuple(rewards)
        self._base = (base or Path.cwd()).resolve()
        self._process: RewardProcess | None = None
        self._rewards: tuple[Reward, ...] = ()
        self._in_a_row = dict.fromkeys(names, 0)
        self._split_in_a_row = dict.fromkeys(names, 0)
        self._notes = Notes()

    def judge(
        self,
        prompts: Sequence[object],
        completions: Sequence[object],
        completion_ids: Sequence[Sequence[int]],
        columns: Mapping[str, Sequence[object]],
        step: int | None = None,
    ) -> Mapping[str, Verdict]:
        """What each function says of each row, by the reward's name; all sequences have one value per row.

        `completion_ids` may be empty. `step` is what `trainer_state.global_step` says, 0 where it is None. Raises
        SpecError where a function cannot be found at the first use, TaskError where one needs an argument that nobody
        gives, or lost every row of three scorings in a row.
        """
        count = len(completions)
        ids = completion_ids if len(completion_ids) else [[] for _ in completions]
        arguments = {**columns, "prompts": prompts, "completions": completions, "completion_ids": ids}
        if uneven := [name for name, values in arguments.items() if len(values) != count]:
            raise ValueError(f"{uneven[0]} has {len(arguments[uneven[0]])} rows, completions {count}")
        if count == 0:
            return {spec.label: Verdict(values=()) for spec in self._specs}
        if not self._rewards:  # later the process may be lost and started again, which is a call's matter
            self._ready()
        self._check_arguments(columns, TaskError)
        if step is None:
            self._notes.no_step(self._rewards)
        rows = _Rows(columns=arguments, count=count, step=step or 0)
        return {reward.spec.label: self._verdict(reward, rows) for reward in self._rewards}

    def check(self, columns: Collection[str] | None = None) -> None:
        """Import every function. Raises SpecError: file or module, what is missing, near names.

        `columns` are those of the data: a function that needs another one is refused too.
        """
        self._ready()
        if columns is not None:
            self._check_arguments(columns, SpecError)

    def close(self) -> None:
        """End the process, and all that functions started in it. The next use starts another one."""
        if self._process is not None:
            self._process.end()

    def _ready(self) -> None:
        """Have a process with all functions. Raises SpecError where one cannot be had for the first time."""
        if self._process is not None and self._process.alive:
            return
        self._process = RewardProcess(self._base, self._notes.printed)
        references = [spec.function for spec in self._specs]
        limit = max([IMPORTS, *(spec.timeout for spec in self._specs)])
        try:
            answer = self._process.ask({"resolve": references, "base": str(self._base)}, limit)
        except LostError as error:
            self._notes.not_imported(", ".join(references), str(error))
            raise SpecError(f"importing {', '.join(references)}: {gist(str(error))}", key="task.rewards") from error
        rewards = []
        for number, (spec, facts) in enumerate(zip(self._specs, answer["functions"], strict=True)):
            if "error" in facts:
                self.close()
                if "\n" in facts["error"]:
                    self._notes.not_imported(spec.function, facts["error"])
                raise SpecError(f"{spec.function}: {gist(facts['error'])}", key=f"task.rewards.{number}.function")
            reward = Reward(
                spec=spec,
                number=number,
                named=frozenset(facts["named"]),
                required=tuple(facts["required"]),
                anything=facts["anything"],
                file=facts["file"],
                sha256=facts["sha256"],
            )
            rewards.append(reward)
        self._notes.changes(self._rewards, rewards)
        self._rewards = tuple(rewards)

    def _check_arguments(self, columns: Collection[str], kind: type[SpecError] | type[TaskError]) -> None:
        for reward in self._rewards:
            if (lacking := reward.lacks(columns)) is not None:
                raise kind(lacking)

    def _verdict(self, reward: Reward, rows: _Rows) -> Verdict:
        reply = self._call(reward, rows, reward.spec.timeout)
        values = dict(enumerate(reply.values))
        errors = dict(reply.refused) if reply.error is None else dict.fromkeys(range(rows.count), reply.error)
        first = next(iter(errors.values()), None)
        if errors:
            errors = self._one_by_one(reward, rows, errors, values)
        if first is not None:
            self._notes.losses(reward, rows.count, errors, first)
        verdict = Verdict(
            values=[math.nan if (value := values.get(row)) is None else value for row in range(rows.count)],
            lost=frozenset(errors),
            first_error=next(iter(errors.values()), None),
            call_error=first,
        )
        self._count(reward, rows.count, verdict)
        self._count_split(reward, verdict)
        return verdict

    def _one_by_one(
        self, reward: Reward, rows: _Rows, errors: Mapping[int, str], values: dict[int, float | None]
    ) -> dict[int, str]:
        """Ask again for each row with an error: `values` gets what comes, and what stays without is handed back."""
        lost: dict[int, str] = {}
        begun, hung, saved = time.monotonic(), 0, 0
        for row, before in errors.items():
            # The last row begun has its whole timeout, and all together take no longer than RETRIES of them.
            late = time.monotonic() - begun > (RETRIES - 1) * reward.spec.timeout
            if late or (hung >= HUNG and not saved):
                lost[row] = f"{gist(before)} (not asked for again: that took too long)"
                continue
            reply = self._call(reward, rows.only(row), reward.spec.timeout)
            hung += reply.hung
            if reply.error is None and not reply.refused:
                values[row], saved = reply.values[0], saved + 1
            else:
                lost[row] = reply.error or reply.refused[0]
        return lost

    def _call(self, reward: Reward, rows: _Rows, seconds: float) -> _Answer:
        """One call of one function. A process that is gone is started again; where that fails, so has the call."""
        try:
            self._ready()
            assert self._process is not None
            return _answer(self._process.ask(_question(reward, rows), seconds))
        except LostError as error:
            return _Answer(error=str(error), hung=error.hung)
        except SpecError as error:
            return _Answer(error=str(error))

    def _count(self, reward: Reward, count: int, verdict: Verdict) -> None:
        name = reward.spec.label
        self._in_a_row[name] = self._in_a_row[name] + 1 if verdict.failed == count else 0
        if self._in_a_row[name] >= LOST_IN_A_ROW:
            raise TaskError(
                f"reward {name} ({reward.spec.function}) gave no value to any completion, {LOST_IN_A_ROW} times in a "
                f"row: {gist(verdict.first_error or '')}; mend it, then continue with --resume\n{verdict.first_error}"
            )

    def _count_split(self, reward: Reward, verdict: Verdict) -> None:
        name = reward.spec.label
        split = verdict.call_error is not None and not verdict.lost
        self._split_in_a_row[name] = self._split_in_a_row[name] + 1 if split else 0
        if self._split_in_a_row[name] >= LOST_IN_A_ROW:
            self._notes.only_one_by_one(reward, verdict.call_error or "")


def _question(reward: Reward, rows: _Rows) -> dict[str, Any]:
    return {
        "function": reward.number,
        "rows": rows.count,
        "step": rows.step,
        "arguments": {
            name: list(rows.columns[name]) for name in rows.columns if name not in EXTRAS and reward.wants(name)
        },
        "extras": [name for name in EXTRAS if reward.wants(name)],
    }


def _answer(answer: Mapping[str, Any]) -> _Answer:
    if "error" in answer:
        return _Answer(error=answer["error"])
    refused = {int(row): why for row, why in answer["refused"].items()}
    return _Answer(values=answer["values"], refused=refused)
