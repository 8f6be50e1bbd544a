"""What may watch a run or a sweep from Python: small protocols, and who asks them while it runs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from core.config import RunSpec
from core.errors import RunError, UserError
from core.health.rules.gains import HEADLINE
from core.training.outcome import Ending
from grpoctl.api.loaded import LoadedRun, LoadedStudy, LoadedTrial
from grpoctl.executors.hooks import Hooks
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import TrialStatus
from grpoctl.runs.study_dir import StudyDir

Row = Mapping[str, float | None]


class OnStep(Protocol):
    """Called after each recorded training step, with its row of metrics.jsonl."""

    def on_step(self, row: Row, /) -> str | None:
        """A text ends the run: STOPPED_EARLY, with that text as its message. None lets it go on."""
        ...


class OnEvaluation(Protocol):
    """Called after each recorded evaluation, the one before the first step included, with the row that it is in."""

    def on_evaluation(self, row: Row, /) -> str | None:
        """A text ends the run: STOPPED_EARLY, with that text as its message. None lets it go on."""
        ...


class OnEnd(Protocol):
    """Called once the run has ended by itself and its files say how."""

    def on_end(self, run: LoadedRun, /) -> None:
        """Nothing can be changed about the run any more."""
        ...


class OnRun(Protocol):
    """Called in a sweep after each run that came to an end of its own (one that an adaptive sweep pauses has not)."""

    def on_run(self, run: LoadedRun, /) -> str | None:
        """A text ends the sweep: nothing new is started, and the text is its message. None lets it go on."""
        ...


class OnTrial(Protocol):
    """Called in a sweep after each trial, once its study says how it ended; of an adaptive sweep all at its end."""

    def on_trial(self, trial: LoadedTrial, /) -> str | None:
        """A text ends the sweep: nothing new is started, and the text is its message. None lets it go on."""
        ...


class OnStudyEnd(Protocol):
    """Called once the sweep has ended by itself and its files say how."""

    def on_end(self, study: LoadedStudy, /) -> None:
        """Nothing can be changed about the sweep any more."""
        ...


# An object with any of the three methods, or a function that is called as `on_step` is.
Callback = OnStep | OnEvaluation | OnEnd | Callable[[Row], str | None]
METHODS = ("on_step", "on_evaluation", "on_end")
# The same of a sweep; a function is called as `on_run` is.
SweepCallback = OnRun | OnTrial | OnStudyEnd | Callable[[LoadedRun], str | None]
OF_SWEEPS = ("on_run", "on_trial", "on_end")


def checked(callbacks: Callback | Sequence[Callback]) -> tuple[Callback, ...]:
    """The callbacks of a run in their order. Raises UserError for an object that would never be called."""
    return _checked(callbacks, METHODS)


def checked_of_sweep(callbacks: SweepCallback | Sequence[SweepCallback]) -> tuple[SweepCallback, ...]:
    """The callbacks of a sweep in their order. Raises UserError for an object that would never be called."""
    return _checked(callbacks, OF_SWEEPS)


def _checked(callbacks: Any, methods: Sequence[str]) -> tuple[Any, ...]:
    several = tuple(callbacks) if isinstance(callbacks, Sequence) else (callbacks,)
    for callback in several:
        if isinstance(callback, type):
            raise UserError(f"got the class {callback.__name__} as a callback; expected an object of it")
        names = [name for name in dir(callback) if name.startswith("on_")]
        unknown = [name for name in names if name not in methods]
        if unknown:
            near = difflib.get_close_matches(unknown[0], methods, n=1, cutoff=0)[0]
            raise UserError(f"got a callback with {unknown[0]}; there are {', '.join(methods)}: did you mean {near}?")
        if not names and not callable(callback):
            listed = f"{', '.join(methods[:-1])} or {methods[-1]}"
            raise UserError(f"got {callback!r} as a callback; expected a function, or an object with {listed}")
    return several


class Watched(Hooks):
    """The hooks `inner`, and the callbacks beside them; `error` is what a callback raised, which ended the run."""

    def __init__(self, inner: Hooks, callbacks: Sequence[Callback]) -> None:
        self._inner = inner
        self._callbacks = callbacks
        self.error: Exception | None = None

    def started(self, spec: RunSpec, run: RunDir) -> None:
        """As the inner hooks."""
        self._inner.started(spec, run)

    def stage(self, text: str) -> None:
        """As the inner hooks."""
        self._inner.stage(text)

    def row(self, row: Row) -> None:
        """As the inner hooks."""
        self._inner.row(row)

    def evaluating(self, ended: int, token: int) -> None:
        """As the inner hooks."""
        self._inner.evaluating(ended, token)

    def waiting(self) -> None:
        """As the inner hooks."""
        self._inner.waiting()

    def finished(self) -> None:
        """As the inner hooks."""
        self._inner.finished()

    def ending(self, row: Row) -> Ending | None:
        """Ask every callback about a recorded row; the first text that one gives ends the run."""
        try:
            texts = [text for callback in self._callbacks for text in _answers(callback, row)]
        except Exception as error:
            self.error = error
            raise
        return Ending(status="STOPPED_EARLY", message=texts[0]) if texts else None


def _answers(callback: Callback, row: Row) -> list[str]:
    """The texts that a callback gives to a row. Raises UserError for an answer that is none."""
    calls: list[tuple[str, Callable[[Row], str | None]]] = []
    if row.get("step"):
        on_step: Any = getattr(callback, "on_step", None if _has_methods(callback) else callback)
        calls += [("on_step", on_step)] if on_step is not None else []
    if row.get(HEADLINE) is not None and (on_evaluation := getattr(callback, "on_evaluation", None)) is not None:
        calls.append(("on_evaluation", on_evaluation))
    answers = [_answer(callback, name, call, row) for name, call in calls]
    return [answer for answer in answers if answer is not None]


def _answer(callback: object, name: str, call: Callable[[Any], Any], argument: object) -> str | None:
    """What a callback says to a row, run or trial. Raises UserError for an answer that is none."""
    answer = call(argument)
    if answer is not None and not isinstance(answer, str):
        raise UserError(
            f"got {answer!r} from {name} of {callback!r}; expected None to go on, or a text that says why to end"
        )
    blank = answer is not None and not answer.strip()
    return f"a callback ({name}) ended it and did not say why" if blank else answer


def _has_methods(callback: object, methods: Sequence[str] = METHODS) -> bool:
    return any(hasattr(callback, name) for name in methods)


def tell_end(callbacks: Sequence[Callback], run: LoadedRun) -> None:
    """Tell the callbacks that a run has ended."""
    for callback in callbacks:
        if (on_end := getattr(callback, "on_end", None)) is not None:
            on_end(run)


class WatchedStudy:
    """Who tells callbacks what has ended in a study under way; `error` is what one of them raised, which ends it."""

    def __init__(self, study: StudyDir, callbacks: Sequence[SweepCallback]) -> None:
        self._study = LoadedStudy(study=study)
        self._callbacks = callbacks
        self._told = {trial.number for trial in self._ended()}  # by an earlier attempt
        self.error: Exception | None = None

    def run_ended(self, run: RunDir) -> str | None:
        """Tell of a run; the first text that comes back ends the study. Raises RunError for what was raised."""
        calls = [
            (call, getattr(call, "on_run", None if _has_methods(call, OF_SWEEPS) else call)) for call in self._callbacks
        ]
        return self._tell("on_run", calls, LoadedRun(run=run))

    def trial_ended(self, number: int) -> str | None:
        """Tell of a trial, once; the first text that comes back ends the study. Raises RunError for what was raised."""
        trial = next(trial for trial in self._study.trials if trial.number == number)
        self._told.add(number)
        calls = [(call, getattr(call, "on_trial", None)) for call in self._callbacks]
        return self._tell("on_trial", calls, trial)

    def study_ended(self) -> None:
        """Tell of the trials that are over only now, and of the end. Raises what a callback raised."""
        for trial in self._ended():
            if trial.number not in self._told:
                self.trial_ended(trial.number)
        for callback in self._callbacks:
            if (on_end := getattr(callback, "on_end", None)) is not None:
                on_end(self._study)

    def _ended(self) -> list[LoadedTrial]:
        return [trial for trial in self._study.trials if TrialStatus(trial.status).ended]

    def _tell(self, name: str, calls: Sequence[tuple[object, Any]], what: LoadedRun | LoadedTrial) -> str | None:
        try:
            texts = [_answer(callback, name, call, what) for callback, call in calls if call is not None]
        except Exception as error:
            self.error = error
            raise RunError(f"a callback raised {type(error).__name__}: {error}") from error
        return next((text for text in texts if text is not None), None)
