"""Runs reward functions: a line of JSON asks, a line answers. In a process of its own, which may die of it.

What is here: finding the function that `package.module:function` or `path/file.py:function` names, one call of it, and
reading what it returned as one number for each row. What is not: who watches this process (child), what a lost call
costs and what becomes of rows without a value (judge).

    {"call": 1, "resolve": ["pkg.mod:f", "dir/file.py:g"], "base": "dir"}   -> {"call": 1, "functions": [...]}
    {"call": 2, "function": 0, "rows": 8, "step": 3, "arguments": {...}, "extras": ["log_metric"]}
        -> {"call": 2, "values": [...], "refused": {"3": "why"}}  or  {"call": 2, "error": "traceback"}
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import faulthandler
import hashlib
import importlib
import importlib.util
import inspect
import json
import math
import os
import reprlib
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Set, Sized
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.machinery import PathFinder, SourceFileLoader
from itertools import islice
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any, NoReturn, TextIO

Function = Callable[..., Any]


class NotFound(Exception):  # noqa: N818  it is an answer
    """No such file, module or function: one line that says what was looked for, where, and what is near."""


def is_file(place: str) -> bool:
    """Whether the part before the colon names a file: it ends in .py, or has a slash in it."""
    return place.endswith(".py") or "/" in place


def resolve(reference: str, base: Path, *, classes: bool = False) -> Function:
    """The function (or class, where they are meant) of a reference. Raises NotFound, or what importing it raises."""
    place, _, name = reference.rpartition(":")
    module = _from_file(base / Path(os.path.expanduser(place))) if is_file(place) else _from_path(place, base)
    function = getattr(module, name, None)
    where = getattr(module, "__file__", None) or place
    if function is None:
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise NotFound(f"{where} has no {name}; {_near(name, functions, 'callables in it')}")
    if inspect.isclass(function) and not classes:
        raise NotFound(f"{name} in {where} is a class; allowed: a function, or an instance that can be called")
    if not callable(function):
        raise NotFound(f"{name} in {where} is of type {type(function).__name__}; allowed: a function")
    return function  # type: ignore[no-any-return]


def check_file(path: Path) -> None:
    """Raises NotFound where there is no such file, naming what is near."""
    if path.is_file():
        return
    folder = path.parent
    there = [f.name for f in folder.glob("*.py")] if folder.is_dir() else []
    what = "is a folder" if path.is_dir() else "no such file"
    raise NotFound(f"{path}: {what}; {_near(path.name, there, f'Python files in {folder}')}")


def check_reference(reference: str, base: Path) -> None:
    """Raises NotFound where the file, the module or the name in it is missing. Reads alone: no module is imported."""
    place, _, name = reference.rpartition(":")
    if is_file(place):
        path = (base / Path(os.path.expanduser(place))).resolve()
        check_file(path)
    else:
        path = _source_of(place, base)
        if path.suffix != ".py":  # compiled, or a package without a file: nobody can read what is in it
            return
    try:
        names = _top_names(ast.parse(path.read_bytes(), str(path)).body)
    except (SyntaxError, ValueError) as error:
        raise NotFound(f"{path} is no Python: {error}") from None
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from None
    if name not in names and not {"*", "__getattr__"} & names:
        public = [one for one in names if not one.startswith("_")]
        raise NotFound(f"{path} has no {name}; {_near(name, public, 'names in it')}")


def _source_of(dotted: str, base: Path) -> Path:
    """The file of a module, which is not imported, nor is what it is in. Raises NotFound."""
    folders: Iterable[str] = [str(base), *sys.path]
    found = None
    for number, part in enumerate(parts := dotted.split("."), 1):
        found = PathFinder.find_spec(part, list(folders))
        if found is None and number == 1:  # of those that no folder has: built in, or found by a hook
            found = importlib.util.find_spec(part) if part.isidentifier() else None
        if found is None:
            missing = ".".join(parts[:number])
            of = "" if missing == dotted else f" (of {dotted})"
            near = _near(part, _modules_in(base.joinpath(*parts[: number - 1])), f"modules in {base}")
            raise NotFound(f"no module {missing}{of}: neither installed nor in {base}; {near}")
        folders = found.submodule_search_locations or ()
    return Path((found.origin if found is not None else None) or "")


def _top_names(body: Iterable[ast.stmt]) -> set[str]:
    """The names that a module's statements bind at its top; `*` where it takes all of another's."""
    names: set[str] = set()
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(statement.name)
            case ast.Import() | ast.ImportFrom():
                names |= {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
            case _:
                inside = [one for one in ast.iter_child_nodes(statement) if isinstance(one, ast.stmt)]
                handlers = getattr(statement, "handlers", ())
                names |= _top_names([*inside, *(one for handler in handlers for one in handler.body)])
                stored = (one for one in ast.walk(statement) if isinstance(one, ast.Name))
                names |= {one.id for one in stored if isinstance(one.ctx, ast.Store)}
    return names


def signature_facts(function: Function) -> dict[str, object]:
    """What the parent needs to know: `named` parameters, those `required`, `anything` (**kwargs), `file`, its `sha256`.

    Raises NotFound where it cannot be called with names alone.
    """
    file = getattr(sys.modules.get(getattr(function, "__module__", None) or ""), "__file__", None)
    facts: dict[str, object] = {"file": file, "sha256": _sha256(file)}
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some callables written in C have none
        return {**facts, "named": [], "required": [], "anything": True}
    nameless = [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.POSITIONAL_ONLY]
    if nameless:
        raise NotFound(f"{nameless[0]} is positional-only (before a `/`); allowed: rewards are called with names alone")
    rest = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    named = [parameter for parameter in parameters if parameter.kind not in rest]
    return {
        **facts,
        "named": [parameter.name for parameter in named],
        "required": [parameter.name for parameter in named if parameter.default is inspect.Parameter.empty],
        "anything": any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters),
    }


def put_first(folder: Path) -> None:
    """From now on modules are looked for in this folder first, as Python does for a script in it."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _from_path(dotted: str, base: Path) -> ModuleType:
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if not (dotted == missing or dotted.startswith(f"{missing}.")):
            raise  # something that it imports itself
        *above, last = missing.split(".")
        folder = base.joinpath(*above)
        raise NotFound(
            f"no module {missing}{'' if missing == dotted else f' (of {dotted})'}: neither installed nor in {base}; "
            f"{_near(last, _modules_in(folder), f'modules in {folder}')}; a file is given as ./path/file.py:function"
        ) from error


class _Source(SourceFileLoader):
    """Compiles the file as it is: byte code beside it counts as new for a second after a change of the same length."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the file's text."""
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _from_file(path: Path) -> ModuleType:
    """The module of a file: once, whatever number of functions are taken from it."""
    path = path.resolve()
    check_file(path)
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path):
            return module
    name = _name_of(path)
    spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, str(path)))
    if spec is None or spec.loader is None or path.suffix != ".py":
        raise NotFound(f"{path}: not a Python file; allowed: one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    with ExitStack() as undo:
        sys.modules[name] = module  # before it runs: dataclasses and pickle look their module up
        undo.callback(sys.modules.pop, name, None)
        spec.loader.exec_module(module)
        undo.pop_all()
    return module


def _name_of(path: Path) -> str:
    """The name under which a file is imported; what it imports from beside itself is found.

    A file inside a package (`__init__.py` beside it) is a module of that package, so relative imports work in it.
    """
    put_first(path.parent)
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file() and root.name.isidentifier():
        parts.insert(0, root.name)
        root = root.parent
    if len(parts) > 1:
        put_first(root)
        importlib.import_module(".".join(parts[:-1]))
        return ".".join(parts)
    name = path.stem.replace(".", "_")
    taken = name in sys.modules or name in sys.stdlib_module_names
    return f"{name}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}" if taken else name


def _modules_in(base: Path) -> list[str]:
    packages = [folder.parent.name for folder in base.glob("*/__init__.py")]
    return sorted({*packages, *(file.stem for file in base.glob("*.py"))})


def _near(name: str, names: Iterable[str], what: str) -> str:
    """`did you mean x?`, or which there are."""
    there = sorted(names)
    if near := difflib.get_close_matches(name, there, n=1):
        return f"did you mean {near[0]}?"
    return f"{what}: {', '.join(there[:8])}{', ...' if len(there) > 8 else ''}" if there else f"{what}: none"


def _sha256(file: str | None) -> str | None:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
    except OSError:
        return None


LARGEST = 1e30  # in size: rewards are weighted, added, squared and then float32, which ends at 3.4e38


class UnusableError(Exception):
    """What was returned is no list of one value for each row: what it is, and what is allowed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Returned:
    """`values` of the rows; those in `refused` (row -> why) have None, and are lost."""

    values: list[float | None]
    refused: dict[int, str]


def numbers_of(returned: object, rows: int) -> Returned:
    """The values of a list, a tuple, an array, a tensor or a generator of numbers; bools are 0 and 1.

    Raises UnusableError where it is none of these, or where their number is not `rows`.
    """
    allowed = f"allowed: a list of a number or None for each of the {rows} completion(s)"
    if isinstance(returned, (str, bytes, Mapping, Set)) or not isinstance(returned, Iterable):
        raise UnusableError(f"returned {_described(returned)}; {allowed}")
    items = list(islice(returned, rows + 1))  # a generator may never end
    if len(items) != rows:
        count = str(len(returned)) if isinstance(returned, Sized) else f"{len(items)}{'+' if len(items) > rows else ''}"
        raise UnusableError(f"returned {count} value(s); {allowed}")
    values: list[float | None] = []
    refused: dict[int, str] = {}
    for row, value in enumerate(items):
        number, why = _number(value)
        values.append(number)
        if why:
            refused[row] = f"returned {why}; allowed: a finite number, or None where the reward does not apply"
    return Returned(values=values, refused=refused)


def _number(value: object) -> tuple[float | None, str]:
    """The value as a float, or None and why it is refused; None itself is fine."""
    if value is None:
        return None, ""
    if isinstance(value, (str, bytes)):  # float("1.5") would be taken silently
        return None, _described(value)
    try:
        number = float(value)  # type: ignore[arg-type]  # numpy's and torch's scalars too
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None, _described(value)
    if math.isfinite(number) and abs(number) > LARGEST:
        return None, f"{number}, beyond {LARGEST:.0e}"
    return (number, "") if math.isfinite(number) else (None, str(number))


def _described(value: object) -> str:
    return f"{type(value).__name__} {reprlib.repr(value)}"


ERROR_LIMIT = 6000  # characters of a traceback that are sent: its beginning and its end
WHERE_ARE_YOU = signal.SIGUSR2  # prints the stack, whatever the process is busy with

_NOT_THEIRS = ("core.tasks.rewards.", "importlib", "asyncio.")  # modules between us and a user's own frames
_as_main = sys.modules["__main__"]  # kept alive: this very code may be in it


def work(requests: int, replies: int) -> NoReturn:
    """Answer every line until there are no more. The descriptors are for this process only. Never returns."""
    _begin()
    worker = _Worker()
    me = os.getpid()
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            answer = worker.answer(json.loads(line))
            if os.getpid() != me:  # a reward forked, and this is the copy, which must not speak
                break
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(ValueError, OSError, AttributeError):
                    stream.flush()
            _write(replies, json.dumps(answer).encode() + b"\n")
    os._exit(0)


class _Worker:
    """The functions, and the one event loop that those which are `async` share, as they would in TRL."""

    def __init__(self) -> None:
        self._functions: list[Function | None] = []
        self._loop: Any = None

    def answer(self, order: Mapping[str, Any]) -> dict[str, Any]:
        if "resolve" in order:
            base = Path(order["base"])
            put_first(base)
            functions = [self._resolve(reference, base) for reference in order["resolve"]]
            return {"call": order["call"], "functions": functions}
        signal.alarm(0)  # one that an earlier call left behind
        result, error = caught(lambda: self._call(order))
        return {"call": order["call"], **(result if error is None else {"error": error})}

    def _resolve(self, reference: str, base: Path) -> dict[str, object]:
        function, error = caught(lambda: resolve(reference, base))
        self._functions.append(function)
        if error is None:
            facts, error = caught(lambda: signature_facts(function))
            if error is None:
                return facts  # type: ignore[no-any-return]
        return {"error": error}

    def _call(self, order: Mapping[str, Any]) -> dict[str, Any]:
        function = self._functions[order["function"]]
        assert function is not None
        extras = {name: _EXTRAS[name](order["step"]) for name in order["extras"]}
        returned = function(**order["arguments"], **extras)
        if inspect.isawaitable(returned):
            returned = self._awaited(returned)
        numbers = numbers_of(returned, order["rows"])
        return {"values": numbers.values, "refused": numbers.refused}

    def _awaited(self, awaitable: Any) -> object:
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(awaitable)


def caught(action: Callable[[], Any]) -> tuple[Any, str | None]:
    """What the action returns, or how it failed: SystemExit and KeyboardInterrupt are failures as others are."""
    try:
        return action(), None
    except (NotFound, UnusableError) as error:
        return None, str(error)
    except BaseException as error:  # noqa: BLE001  the boundary around one call of a user's code
        return None, _traceback_text(error)


def _traceback_text(error: BaseException) -> str:
    """The traceback without our own frames, cut in its middle where it is long."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_globals.get("__name__", "").startswith(_NOT_THEIRS):
        place = place.tb_next
    text = "".join(traceback.format_exception(type(error), error, place)).rstrip()
    if place is None:  # no frame of theirs is in it: a file that cannot even be parsed
        text = f"Traceback (most recent call last):\n{text}"
    if len(text) <= ERROR_LIMIT:
        return text
    half = ERROR_LIMIT // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _trainer_state(step: int) -> SimpleNamespace:
    """What transformers' TrainerState has, as far as it means anything here."""
    return SimpleNamespace(
        global_step=step, max_steps=0, epoch=0.0, num_train_epochs=0, log_history=[], best_metric=None,
        is_local_process_zero=True, is_world_process_zero=True,
    )  # fmt: skip


def _log_extra(_step: int) -> Callable[[str, Any], None]:
    """Takes columns for TRL's table of completions: there is none here."""
    return lambda _column, _values: None


def _log_metric(_step: int) -> Callable[[str, float], None]:
    """Prints a metric, so that it stands where all that rewards print stands."""
    return lambda name, value: print(f"log_metric {name} = {value}")


_EXTRAS: dict[str, Callable[[int], Any]] = {
    "trainer_state": _trainer_state,
    "log_extra": _log_extra,
    "log_metric": _log_metric,
}


def _begin() -> None:
    """Make this process look to a user's code like one of its own."""
    sys.argv = ["rewards"]
    # New ones: those made when Python started wrote into a file, and these write into a pipe, line by line.
    sys.stdout = sys.__stdout__ = _lines_to(1)  # type: ignore[misc, assignment]
    sys.stderr = sys.__stderr__ = _lines_to(2)  # type: ignore[misc, assignment]
    faulthandler.enable(sys.stderr)
    faulthandler.register(WHERE_ARE_YOU, sys.stderr, all_threads=True)
    with contextlib.suppress(OSError):  # where memory runs out, the kernel takes this process and not the training
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    # A user's own package may be called `core`, and its processes must not begin with our __main__.
    for name in [name for name in sys.modules if name == "core" or name.startswith("core.")]:
        del sys.modules[name]
    sys.modules["__main__"] = ModuleType("__main__")


def _lines_to(descriptor: int) -> TextIO:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
