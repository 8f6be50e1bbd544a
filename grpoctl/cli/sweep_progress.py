"""The progress of a sweep: a redrawn table in a terminal, one plain line per ended trial elsewhere.

What is here: drawing. What is not: the numbers (grpoctl.analysis.sweeps) and the progress of one run (progress).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from grpoctl.analysis.collect import number
from grpoctl.analysis.sweeps.budget import Account, account, spent_by
from grpoctl.analysis.sweeps.report import how_text
from grpoctl.analysis.sweeps.wording import score_text, short_keys, trial_text
from grpoctl.cli.progress import range_text
from grpoctl.console import console_on, is_terminal, print_note, rich_text, write, write_wrapped
from grpoctl.credentials import without_credentials
from grpoctl.runs.pace import spread
from grpoctl.runs.status import UNDER_WAY
from grpoctl.wording import clock_text, count_text, plural

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

Document = Mapping[str, Any]
Shares = Mapping[int, float]

_REDRAW = 0.25  # seconds: each drawing takes the interpreter away from the driver
_MOST_ROWS = 12  # running trials shown; a table higher than the terminal cannot be redrawn
_TROUBLE = ("FAILED", "COLLAPSED", "INVALID_ROLLOUT", "PRUNED", "INTERRUPTED")


class SweepProgress:
    """The progress of a sweep. `json` sends it to standard error, `quiet` shows nothing.

    `update` is cheap: it may be called at every event. `finish` may be called at any time and more than once.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if json else sys.stdout
        self._quiet = quiet
        self._clock = clock
        self._live: Live | None = None
        self._document: Document = {}
        self._running: Shares = {}
        self._printed: set[int] = set()
        self._names: dict[str, str] = {}
        self._started = 0.0
        self._begun: tuple[float, float] | None = None  # when something was first seen to be spent, and how much
        self._before: float | None = None  # spent when it started: a resumed sweep has done something already
        self._drawn = float("-inf")

    def start(self, document: Document) -> None:
        """Show what is run; trials, or jobs, that ended before this attempt are not printed again."""
        self._document = document
        self._names = short_keys(document.get("axes") or {})
        self._printed = {trial["number"] for trial in _ended(document)}
        if document.get("allocation") == "adaptive":
            self._printed = {place for place, job in enumerate(document.get("jobs") or ()) if "seen" in job}
        self._started = self._clock()
        if self._quiet:
            return
        write_wrapped(header(document), self._stream)
        if is_terminal(self._stream):
            self._live = _live(self._stream)
            self._live.start()
            self._draw()

    def update(self, document: Document, running: Shares) -> None:
        """Show how it stands; `running` maps the number of a running trial to the share of its budget spent."""
        self._document, self._running = document, dict(running)
        if self._quiet:
            return
        spent = account(document, self._running).spent
        if self._before is None:
            self._before = spent
        elif self._begun is None and spent > self._before:
            self._begun = (self._clock(), spent)
        if self._live is not None:
            if self._clock() - self._drawn >= _REDRAW:
                self._draw()
            return
        if document.get("allocation") == "adaptive":
            self._print_jobs(document)
            return
        # A trial that is retried ends a second time.
        self._printed &= {trial["number"] for trial in _ended(document)}
        for trial in _ended(document):
            if trial["number"] not in self._printed:
                self._printed.add(trial["number"])
                write(self._line(trial), self._stream)

    def _print_jobs(self, document: Document) -> None:
        """A line for each job that has ended since the last look."""
        trials = {trial["number"]: trial for trial in document.get("trials") or ()}
        search = document.get("search") or {}
        choice = search.get("choice")
        believed = "" if choice is None else f"best #{choice}, right with {search.get('right', 0.0):.0%}  "
        for number_, job in enumerate(document.get("jobs") or ()):
            if number_ in self._printed or "seen" not in job:
                continue
            self._printed.add(number_)
            budget = account(document, self._running)
            shown = job["seen"][-1][1] if job["seen"] else None
            write(
                f"job {number_}  {trial_text(trials[job['trial']], self._names)}  seed {job['seed']} to "
                f"{job['share']:.0%}: {score_text(str(document.get('metric')), shown, None)}  {believed}"
                f"eta {self.left_text(budget)} if all is spent",
                self._stream,
            )

    def note(self, text: str) -> None:
        """Print a sentence the user should see; with `quiet`, too, on standard error."""
        if self._live is not None:
            self._live.console.print(rich_text(without_credentials(text)), soft_wrap=True)
        else:
            print_note(text)

    def finish(self) -> None:
        """Leave the last state standing and give the terminal back; nothing is shown any more."""
        if self._live is not None:
            self._draw()
            self._live.stop()
            self._live = None
        self._quiet = True

    def remaining(self, budget: Account) -> float | None:
        """Seconds until the budget is spent at the pace since something was first seen to be; None before that.

        What comes before is importing and loading, which comes once; it counts until as long again has passed: of
        several workers the first ones end almost together, which would look like a pace.
        """
        now, since, before = self._clock(), self._started, self._before or 0.0
        if self._begun is not None and now - self._begun[0] >= self._begun[0] - since:
            since, before = self._begun
        done, passed = budget.spent - before, now - since
        if self._before is None or done <= 0 or passed <= 0 or not budget.total:
            return None
        return budget.likely / done * passed

    def left_text(self, budget: Account) -> str:
        """The time left as a range: trials differ in what a completion takes, and few say little of the others."""
        seconds = self.remaining(budget)
        if seconds is None:
            return clock_text(None)
        known = ((number(t.get("seconds")), spent_by(t, budget.unit)) for t in _ended(self._document))
        logs = [math.log(took / spent) for took, spent in known if took and spent]
        factor = spread(logs, ahead=max(budget.total - budget.ended, 1))
        return range_text((seconds / factor, seconds * factor))

    def _line(self, trial: Mapping[str, Any]) -> str:
        budget = account(self._document, self._running)
        score = score_text(str(self._document.get("metric")), trial.get("score"), trial.get("interval"))
        count = f"{budget.ended}/{budget.total}" if budget.total else str(budget.ended)
        return (
            f"{count}  {trial_text(trial, self._names)}  {trial['status']}  {score}  best {self._best()}"
            f"  eta {self.left_text(budget)}"
        )

    def _best(self) -> str:
        best = self._document.get("best")
        if not best:
            return "-"
        metric = str(self._document.get("metric"))
        return f"#{best['number']} {score_text(metric, best.get('score'), best.get('interval'))}"

    def _draw(self) -> None:
        self._drawn = self._clock()
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)

    def _picture(self) -> Group:
        """Running trials with bars, then the sentences below them."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(no_wrap=True, ratio=4, overflow="ellipsis")
        table.add_column(ratio=1)
        table.add_column(justify="right", no_wrap=True, width=5)
        trials = {trial["number"]: trial for trial in self._document.get("trials") or ()}
        for number_, share in sorted(self._running.items())[:_MOST_ROWS]:
            text = trial_text(trials.get(number_, {"number": number_}), self._names)
            table.add_row(rich_text(text), ProgressBar(total=1.0, completed=share), rich_text(f"{share:.0%}"))
        hidden = len(self._running) - _MOST_ROWS
        if hidden > 0:
            table.add_row(rich_text(f"and {plural(hidden, 'more running trial')}"), "", "")
        return Group(table, *(rich_text(line, one_line=True) for line in self._sentences()))

    def _sentences(self) -> list[str]:
        budget = account(self._document, self._running)
        trouble = [f"{budget.by_status[name]} {name}" for name in _TROUBLE if budget.by_status.get(name)]
        of = f" of {budget.total}" if budget.total else ""
        ended = f"ended {budget.ended}{of}"
        if self._document.get("allocation") == "adaptive":  # its trials are paused until it is over
            jobs = sum("seen" in job for job in self._document.get("jobs") or ())
            ended = f"{plural(jobs, 'job')} ended, {len(self._document.get('trials') or ())}{of} candidates begun"
        ended += f" ({', '.join(trouble)})" if trouble else ""
        left = f"left {count_text(budget.left)} {budget.unit}"
        time = self.left_text(budget)
        # An adaptive sweep ends once it is decided, and nobody knows when that is: the time is that of what is left.
        adaptive = self._document.get("allocation") == "adaptive"
        lines = [f"{ended}   {left} ({time})" if adaptive else f"{ended}   {left}   time left {time}"]
        if best := self._document.get("best"):
            metric = str(self._document.get("metric"))
            score = score_text(metric, best.get("score"), best.get("interval"))
            lines.append(f"best {metric} {score}  {trial_text(best, self._names)}")
        failed = [trial for trial in _ended(self._document) if trial["status"] == "FAILED"]
        if failed:
            lines.append(f"last failure #{failed[-1]['number']}: {failed[-1].get('message')}")
        return lines


def header(document: Document) -> str:
    """The study, what it looks for and how much it may spend, in two lines."""
    budget = account(document)
    seeds = document.get("seeds") or ()
    each = ", ".join(
        f"{count_text(value)} {unit} per run" for unit, value in (document.get("budget") or {}).items() if value
    )
    return (
        f"{document['study']}: {document.get('title') or document.get('sweep')}\n"
        f"{document.get('direction', 'maximize')} {document.get('metric')}, {plural(budget.total, 'trial')} x "
        f"{plural(len(seeds), 'seed')}{', ' if each else ''}{each}, {how_text(document)}"
    )


def _ended(document: Document) -> list[Mapping[str, Any]]:
    return [trial for trial in document.get("trials") or () if trial["status"] not in UNDER_WAY]


def _live(stream: Any) -> Live:
    from rich.live import Live

    return Live(console=console_on(stream), auto_refresh=False, transient=False)
