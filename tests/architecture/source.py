"""The project's own source, read and never imported: its modules, what each imports, and its functions.

What is here: reading. What is not: any rule; each rule is a test beside this file.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "grpoctl")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """One imported name: a module of ours, or a dotted name of somebody else's."""

    target: str
    line: int
    at_load: bool  # executed when the module is imported: not inside a function, not for type checkers only


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """One file. `name` is its dotted name, `file` its path from the root."""

    name: str
    file: str
    text: str
    tree: ast.Module

    def within(self, *packages: str) -> bool:
        """Whether it is one of these modules or inside one of these packages."""
        return inside(self.name, *packages)


def inside(name: str, *packages: str) -> bool:
    """Whether a dotted name is one of these, or below one of them."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@cache
def modules() -> Mapping[str, Module]:
    """Every module of core and grpoctl by its dotted name."""
    found = {}
    for file in sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        path = file.relative_to(ROOT)
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        text = file.read_text(encoding="utf-8")
        found[name] = Module(name=name, file=path.as_posix(), text=text, tree=ast.parse(text))
    assert len(found) > 50, f"only {len(found)} modules in {ROOT}: this looks at the wrong folder"
    return found


@cache
def imports(name: str) -> tuple[Import, ...]:
    """What a module imports."""
    return tuple(imports_of(modules()[name].tree, frozenset(modules())))


def imports_of(tree: ast.Module, ours: frozenset[str]) -> Iterator[Import]:
    """The imports of a syntax tree; `from a import b` means a.b where that is a module of ours, else a."""
    for node, at_load in _statements(tree, at_load=True):
        if isinstance(node, ast.Import):
            yield from (Import(target=name.name, line=node.lineno, at_load=at_load) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = f"{'.' * node.level}{node.module or ''}"
            for name in node.names:
                target = f"{package}.{name.name}"
                yield Import(target=target if target in ours else package, line=node.lineno, at_load=at_load)


def _statements(node: ast.AST, *, at_load: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node below, and whether it is executed when the module is imported."""
    for child in ast.iter_child_nodes(node):
        yield child, at_load
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for part in child.body:
                yield part, False
            for part in child.orelse:
                yield part, at_load
        else:
            later = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from _statements(child, at_load=at_load and not later)


def loaded_with(name: str) -> dict[str, str]:
    """Everything that importing a module imports, as far as our source says: name -> who imports it.

    Packages above a module are loaded with it. Names of others are kept, not followed.
    """
    who = {name: "itself"}
    todo = [name]
    while todo:
        current = todo.pop()
        if current not in modules():
            continue
        above = [current.rpartition(".")[0]] if "." in current else []
        for target in [*above, *(one.target for one in imports(current) if one.at_load)]:
            if target not in who:
                who[target] = current
                todo.append(target)
    return who


def functions(module: Module) -> Iterator[tuple[str, Function]]:
    """(qualified name, function) of every function and method, nested ones too."""
    yield from ((name, node) for name, node in definitions(module.tree) if not isinstance(node, ast.ClassDef))


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """(qualified name, node) of every function and class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield f"{prefix}{node.name}", node
            yield from definitions(node, f"{prefix}{node.name}.")
        else:
            yield from definitions(node, prefix)


@cache
def pyproject() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def house() -> dict[str, Any]:
    """The house rules' numbers and exceptions."""
    section: dict[str, Any] = pyproject()["tool"]["grpoctl"]["house"]
    return section
