"""Another forward in the place of some modules' own, for a while; and again where backward runs layers anew.

Gradient checkpointing runs a layer a second time in backward, when whatever it ran in the first time is over. What
must hold both times is therefore given as something that can be entered again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any

from torch import Tensor

Way = Callable[[], AbstractContextManager[None]]  # what can be entered as often as is wanted

_now: ContextVar[Way] = ContextVar("the way layers run now", default=nullcontext)


def instead(modules: Sequence[Any], forward: Callable[[Any, Tensor], Tensor]) -> Way:
    """Each module runs `forward(module, x)`, afterwards its class's own again; it must not have one of its own now."""
    return partial(_instead, modules, forward)


@contextmanager
def _instead(modules: Sequence[Any], forward: Callable[[Any, Tensor], Tensor]) -> Iterator[None]:
    for module in modules:
        vars(module)["forward"] = partial(forward, module)  # setattr of a module takes ten times as long
    try:
        yield
    finally:
        for module in modules:
            del vars(module)["forward"]


@contextmanager
def also_again(ways: Sequence[Way]) -> Iterator[None]:
    """All of these, and once more for each layer in it that backward runs again."""
    way = partial(_all, ways)
    token = _now.set(way)
    try:
        with way():
            yield
    finally:
        _now.reset(token)


def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """What torch's `checkpoint` asks for as `context_fn`: what a layer runs in beside, and what it is run again in."""
    return nullcontext(), _Again(_now.get())


@contextmanager
def _all(ways: Sequence[Way]) -> Iterator[None]:
    with ExitStack() as stack:
        for way in ways:
            stack.enter_context(way())
        yield


class _Again(AbstractContextManager[None]):
    """A way that is entered when it is wanted, twice where a graph is gone back through twice."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        entered = self._way()
        entered.__enter__()
        self._entered.append(entered)

    def __exit__(self, *error: Any) -> bool | None:
        return self._entered.pop().__exit__(*error)
