"""What may watch a run from Python: three small protocols, and the hooks that ask them while it runs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from core.config import RunSpec
from core.errors import UserError
from core.health.rules.gains import HEADLINE
from core.training.outcome import Ending
from grpoctl.api.loaded import LoadedRun
from grpoctl.executors.hooks import Hooks
from grpoctl.runs.run_dir import RunDir

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


# An object with any of the three methods, or a function that is called as `on_step` is.
Callback = OnStep | OnEvaluation | OnEnd | Callable[[Row], str | None]
METHODS = ("on_step", "on_evaluation", "on_end")


def checked(callbacks: Callback | Sequence[Callback]) -> tuple[Callback, ...]:
    """The callbacks in their order. Raises UserError for an object that would never be called."""
    several = tuple(callbacks) if isinstance(callbacks, Sequence) else (callbacks,)
    for callback in several:
        if isinstance(callback, type):
            raise UserError(f"got the class {callback.__name__} as a callback; expected an object of it")
        names = [name for name in dir(callback) if name.startswith("on_")]
        unknown = [name for name in names if name not in METHODS]
        if unknown:
            near = difflib.get_close_matches(unknown[0], METHODS, n=1, cutoff=0)[0]
            raise UserError(f"got a callback with {unknown[0]}; there are {', '.join(METHODS)}: did you mean {near}?")
        if not names and not callable(callback):
            raise UserError(f"got {callback!r} as a callback; expected a function, or an object with {_listed()}")
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
    texts = []
    for name, call in calls:
        answer = call(row)
        if answer is not None and not isinstance(answer, str):
            raise UserError(
                f"got {answer!r} from {name} of {callback!r}; expected None to go on, or a text that says why to end"
            )
        if answer is not None:
            texts.append(answer)
    return texts


def _has_methods(callback: Callback) -> bool:
    return any(hasattr(callback, name) for name in METHODS)


def tell_end(callbacks: Sequence[Callback], run: LoadedRun) -> None:
    """Tell the callbacks that a run has ended."""
    for callback in callbacks:
        if (on_end := getattr(callback, "on_end", None)) is not None:
            on_end(run)


def _listed() -> str:
    return f"{', '.join(METHODS[:-1])} or {METHODS[-1]}"
