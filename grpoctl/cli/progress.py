"""The progress of a run: one redrawn line in a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import itertools
import math
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from core.health.statistics import sample_sd
from grpoctl.analysis.collect import number
from grpoctl.console import console_on, is_terminal, rich_text, short, write, write_wrapped
from grpoctl.wording import clock_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress

EVALUATING = 30.0  # seconds between two lines about one evaluation, or one stage, where there is no terminal
SILENT = 5.0  # seconds after which a stage, or a step, is worth a word
_PLAIN_LINES = 20  # progress lines of a whole run where there is no terminal
_BAR = 4  # columns of the bar, at least
_NARROW = 72  # columns below which there is room for half of the numbers only


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
        self._stages: Sequence[str] = ()
        self._every = 1
        self._rows: list[tuple[int, float]] = []  # (count, time) since the first row: a resumed run starts late
        self._printed = -1
        self._shown: dict[str, float | None] = {}
        self._unprinted = ""
        self._reminder: _Reminder | None = None

    def start(self, total: int, header: str, counted: str = "step", *, stages: Sequence[str] = ()) -> None:
        """Print the header and show 0 of `total`; `counted` is the metric that says how far a row is.

        `stages` are the names of a run's stages where it has several.
        """
        self._total, self._every, self._counted = total, math.ceil(total / _PLAIN_LINES) or 1, counted
        self._stages = stages
        if self._quiet:
            return
        write_wrapped(header, self._stream)
        if is_terminal(self._stream):
            self._bar = _progress_bar(console_on(self._stream), total)
            self._bar.start()

    def stage(self, text: str) -> None:
        """Show what is done before the first step, or an evaluation after one: in a terminal with its seconds, moving.

        Elsewhere it is a line once it has taken SILENT seconds, and another every EVALUATING.
        """
        if self._quiet:
            return
        if self._bar is not None:
            self._show(doing=text)
            return
        self._end_reminder()
        self._reminder = _Reminder(text, self._stream)
        self._reminder.start()

    def evaluating(self, ended: int, count: int, token: int, limit: int) -> None:
        """Show how far the evaluation before step 1 is: completions that have ended, and the token being drawn.

        Without a terminal it is a line at once, and another every EVALUATING seconds.
        """
        if self._quiet:
            return
        self._end_reminder()
        far = f"{ended}/{count} ended, token {token}/{limit}" if token else f"{count} completions"
        text = f"evaluating before step 1: {far}"
        if self._bar is not None:
            narrow = self._bar.console.width < _NARROW
            self._show(doing=f"evaluating: {ended}/{count}, token {token}" if narrow else text, afresh=not token)
        elif (now := time.monotonic()) - self._evaluation_printed >= EVALUATING:
            self._evaluation_printed = now
            write(text, self._stream)

    def update(self, row: Mapping[str, object], guards: str) -> None:
        """Show a metrics row; `guards` is their state in a word or two. What a row lacks keeps its last value."""
        if self._quiet:
            return
        self._end_reminder()
        done = int(number(row.get(self._counted)) or 0)
        for name in ("reward/mean", "eval/reward", "kl", "completions/valid"):
            if name in row:
                self._shown[name] = number(row[name])
        self._rows.append((done, time.monotonic()))
        left = range_text(time_left(self._rows, self._total))
        at = number(row.get("stage"))
        stage = f"{self._stages[int(at)]} " if at is not None and int(at) < len(self._stages) else ""
        if self._bar is not None:
            width = self._bar.console.width
            text = progress_text(self._shown, narrow=width < _NARROW)
            count = f"{stage}{done}/{self._total}"
            room = max(width - _BAR - len(f" {count} {left} {text} "), 6)
            state = guards if len(guards) <= room else f"{guards[: room - 1]}…"
            self._show(doing="", count=count, left=left, stats=f"{text} {state}", completed=done)
            return
        at_text = f"{stage}{self._counted} {done:>{len(str(self._total))}}/{self._total}"
        self._unprinted = f"{at_text}  {progress_text(self._shown)}  eta {left}  guards {guards}"
        if done // self._every > self._printed // self._every or done >= self._total:
            self._printed = done
            self._print_line()

    def finish(self) -> None:
        """Leave the last state standing and give the terminal back."""
        self._end_reminder()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._unprinted:
            self._print_line()

    def _show(self, *, afresh: bool = True, completed: int | None = None, **fields: str) -> None:
        """Change what the bar shows; `afresh`: what is counted in seconds begins now."""
        if self._bar is not None:
            shown: dict[str, Any] = {**fields, "since": time.monotonic()} if afresh else {**fields}
            at_once = afresh and bool(fields.get("doing"))  # what comes now may not let the drawing thread run
            self._bar.update(self._bar.task_ids[0], completed=completed, refresh=at_once, **shown)

    def _print_line(self) -> None:
        write(self._unprinted, self._stream)
        self._unprinted = ""

    def _end_reminder(self) -> None:
        if self._reminder is not None:
            self._reminder.over.set()
            self._reminder.join()
            self._reminder = None


class _Reminder(threading.Thread):
    """Writes what is done, and for how long by now, where nobody redraws a line; until `over`."""

    def __init__(self, text: str, stream: TextIO) -> None:
        super().__init__(daemon=True)
        self._text, self._stream = text, stream
        self.over = threading.Event()

    def run(self) -> None:
        """A line after SILENT seconds, and after each EVALUATING further ones."""
        begun, pause = time.monotonic(), SILENT
        while not self.over.wait(pause):
            write(f"{self._text}: {clock_text(time.monotonic() - begun)} so far", self._stream)
            pause = EVALUATING


def time_left(rows: Sequence[tuple[int, float]], total: int) -> tuple[float, float] | None:
    """The 95 % range of the seconds until the count is `total`, by the rows (count, time) so far; None for too few.

    Each row to come takes as long as one so far; how much these differ, and how few they are, widens the range.
    """
    spent = [later[1] - earlier[1] for earlier, later in itertools.pairwise(rows)]
    counted = rows[-1][0] - rows[0][0] if rows else 0
    if not spent or counted <= 0:
        return None
    ahead = max(total - rows[-1][0], 0) / (counted / len(spent))  # rows
    middle = sum(spent) / len(spent) * ahead
    sd = sample_sd(spent) or 0.0
    half = 2 * sd * math.sqrt(ahead + ahead**2 / len(spent))
    return max(middle - half, 0.0), middle + half


def range_text(seconds: tuple[float, float] | None) -> str:
    """`0:40-0:55`, `1:15` where both ends are that, `1.0-1.2 h`; `-:--` where it is not known."""
    if seconds is None:
        return clock_text(None)
    if seconds[1] >= 3600:
        low, high = (f"{end / 3600:.1f}" for end in seconds)
        return f"{low} h" if low == high else f"{low}-{high} h"
    low, high = map(clock_text, seconds)
    return low if low == high else f"{low}-{high}"


def progress_text(shown: Mapping[str, float | None], *, narrow: bool = False) -> str:
    """The numbers of a progress line in fixed places, so that nothing jumps while it is redrawn."""
    reward, evaluated, kl = (short(shown.get(name)) for name in ("reward/mean", "eval/reward", "kl"))
    valid = shown.get("completions/valid")
    share = "-" if valid is None else f"{valid:.0%}"
    scores = f"reward {reward:>5} eval {evaluated:>5}"
    return scores if narrow else f"{scores} kl {kl:>5} valid {share:>4}"


def _progress_bar(console: Console, total: int) -> Progress:
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.table import Column

    class Stats(ProgressColumn):
        """What is done now and for how long; else the numbers, and how long the step has taken, once that is long."""

        def render(self, task: Task) -> RenderableType:
            passed = time.monotonic() - task.fields["since"]
            if doing := task.fields["doing"]:
                return rich_text(f"{doing} {clock_text(passed)}", one_line=True)
            waiting = f" +{clock_text(passed)}" if passed > SILENT and not task.finished else ""
            return rich_text(f"{task.fields['stats']}{waiting}", one_line=True)

    progress = Progress(
        BarColumn(bar_width=None),
        TextColumn("{task.fields[count]}", markup=False, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[left]}", markup=False, table_column=Column(no_wrap=True)),
        Stats(table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=console,
        expand=True,
        refresh_per_second=4,  # each drawing takes the interpreter away from the run
    )
    narrow = console.width < _NARROW
    progress.add_task(
        "", total=total, doing="", since=time.monotonic(), count=f"0/{total}", left=clock_text(None),
        stats=progress_text({}, narrow=narrow),
    )  # fmt: skip
    return progress
