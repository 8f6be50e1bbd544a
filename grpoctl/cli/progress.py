"""The progress of a run: one redrawn line in a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from grpoctl.analysis.collect import number
from grpoctl.console import console_on, is_terminal, short, write
from grpoctl.wording import clock_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

EVALUATING = 30.0  # seconds between two lines about one evaluation where there is no terminal
_PLAIN_LINES = 20  # progress lines of a whole run where there is no terminal
_BESIDE_GUARDS = 67  # columns of a progress line without the guards: a bar of 4, step, time left, numbers


class LiveProgress:
    """The progress of a run: one redrawn line in a terminal, at most about 20 plain lines elsewhere, or nothing.

    `json` sends it to standard error. `finish` may be called at any time and more than once, so that a caller can do
    it in a `finally`.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self._evaluation_printed = float("-inf")  # when a line about an evaluation was last printed
        self._stream = sys.stderr if json else sys.stdout
        self._quiet = quiet
        self._bar: Progress | None = None
        self._total, self._counted = 0, "step"
        self._every = 1
        self._first: tuple[int, float] | None = None  # count and time of the first row: a resumed run starts late
        self._printed = -1
        self._shown: dict[str, float | None] = {}
        self._unprinted = ""

    def start(self, total: int, header: str, counted: str = "step") -> None:
        """Print the header and show 0 of `total`; `counted` is the metric that says how far a row is."""
        self._total, self._every, self._counted = total, math.ceil(total / _PLAIN_LINES) or 1, counted
        if self._quiet:
            return
        write(header, self._stream)
        if is_terminal(self._stream):
            self._bar = _progress_bar(console_on(self._stream), total)
            self._bar.start()

    def evaluating(self, ended: int, count: int, token: int, limit: int) -> None:
        """Show how far the evaluation before step 1 is: completions that have ended, and the token being drawn.

        Without a terminal it is a line at once, and another every EVALUATING seconds.
        """
        if self._quiet:
            return
        far = f"{ended}/{count} ended, token {token}/{limit}" if token else f"{count} completions"
        text = f"evaluating before step 1: {far}"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], stats=text)
        elif (now := time.monotonic()) - self._evaluation_printed >= EVALUATING:
            self._evaluation_printed = now
            write(text, self._stream)

    def update(self, row: Mapping[str, object], guards: str) -> None:
        """Show a metrics row; `guards` is their state in a word or two. What a row lacks keeps its last value."""
        if self._quiet:
            return
        done = int(number(row.get(self._counted)) or 0)
        for name in ("reward/mean", "eval/reward", "kl", "completions/valid"):
            if name in row:
                self._shown[name] = number(row[name])
        text = progress_text(self._shown)
        if self._bar is not None:
            room = max(self._bar.console.width - _BESIDE_GUARDS, 6)
            state = guards if len(guards) <= room else f"{guards[: room - 1]}…"
            self._bar.update(self._bar.task_ids[0], completed=done, stats=f"{text} {state}")
            return
        at = f"{self._counted} {done:>{len(str(self._total))}}/{self._total}"
        self._unprinted = f"{at}  {text}  eta {self._remaining(done)}  guards {guards}"
        if done // self._every > self._printed // self._every or done >= self._total:
            self._printed = done
            self._print_line()

    def finish(self) -> None:
        """Leave the last state standing and give the terminal back."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._unprinted:
            self._print_line()

    def _print_line(self) -> None:
        write(self._unprinted, self._stream)
        self._unprinted = ""

    def _remaining(self, done: int) -> str:
        """Time left at the pace since the first row."""
        now = time.monotonic()
        if self._first is None:
            self._first = (done, now)
        first, first_time = self._first
        return clock_text(None if done == first else (now - first_time) / (done - first) * (self._total - done))


def progress_text(shown: Mapping[str, float | None]) -> str:
    """The numbers of a progress line in fixed places, so that nothing jumps while it is redrawn."""
    reward, evaluated, kl = (short(shown.get(name)) for name in ("reward/mean", "eval/reward", "kl"))
    valid = shown.get("completions/valid")
    share = "-" if valid is None else f"{valid:.0%}"
    return f"reward {reward:>5} eval {evaluated:>5} kl {kl:>5} valid {share:>4}"


def _progress_bar(console: Console, total: int) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    progress = Progress(
        BarColumn(bar_width=None),
        TextColumn("{task.completed:.0f}/{task.total:.0f}", table_column=Column(no_wrap=True), markup=False),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[stats]}", table_column=Column(no_wrap=True, overflow="ellipsis"), markup=False),
        console=console,
        expand=True,
        refresh_per_second=4,  # each drawing takes the interpreter away from the run
    )
    progress.add_task("", total=total, stats=progress_text({}))
    return progress
