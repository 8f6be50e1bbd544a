"""The house rules, by machine. Numbers and named exceptions stand in pyproject.toml under [tool.grpoctl.house]."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest

from tests.architecture.source import Function, Module, definitions, functions, house, modules

FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Match)
Breach = tuple[str, str]  # what broke the rule, as exceptions name it; how


def parameter_names(node: Function) -> list[str]:
    """Every parameter but self and cls."""
    a = node.args
    extra = [one for one in (a.vararg, a.kwarg) if one is not None]
    return [one.arg for one in [*a.posonlyargs, *a.args, *a.kwonlyargs, *extra] if one.arg not in ("self", "cls")]


def nesting(node: ast.AST) -> int:
    """Decisions and loops inside each other; an `elif` is as deep as its `if`, `with` and `try` do not count."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue  # measured by itself
        elif_of = isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
        deeper = isinstance(child, BRANCHES) and not elif_of
        deepest = max(deepest, nesting(child) + deeper)
    return deepest


def is_broad(handler: ast.ExceptHandler) -> bool:
    """`except:`, `except Exception`, `except BaseException`, alone or among others."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or ast.unparse(kind) in ("Exception", "BaseException") for kind in kinds)


def is_record(decorator: ast.expr) -> bool | None:
    """Whether a dataclass decorator asks for frozen, keyword-only and slotted; None for another decorator."""
    name, words = (decorator.func, decorator.keywords) if isinstance(decorator, ast.Call) else (decorator, [])
    if ast.unparse(name).rpartition(".")[2] != "dataclass":
        return None
    return {"frozen", "kw_only", "slots"} <= {word.arg for word in words if ast.unparse(word.value) == "True"}


def many_parameters(module: Module, limit: int) -> Iterator[Breach]:
    for name, node in functions(module):
        if (count := len(parameter_names(node))) > limit:
            yield f"{module.file}:{name}", f"{count} parameters"


def deep_nesting(module: Module, limit: int) -> Iterator[Breach]:
    for name, node in functions(module):
        if (count := nesting(node)) > limit:
            yield f"{module.file}:{name}", f"{count} deep"


def loose_records(module: Module, _: int) -> Iterator[Breach]:
    for name, node in definitions(module.tree):
        if isinstance(node, ast.ClassDef) and any(is_record(one) is False for one in node.decorator_list):
            yield f"{module.file}:{name}", "not frozen, kw_only and slots"


def broad_excepts(module: Module, _: int) -> Iterator[Breach]:
    for name, node in functions(module):
        nested = {handler for _, inner in definitions(node) for handler in ast.walk(inner)}
        for handler in set(ast.walk(node)) - nested:
            if isinstance(handler, ast.ExceptHandler) and is_broad(handler):
                yield f"{module.file}:{name}", f"line {handler.lineno}"


RULES: dict[str, Callable[[Module, int], Iterator[Breach]]] = {
    "parameters": many_parameters,
    "nesting": deep_nesting,
    "records": loose_records,
    "broad_except": broad_excepts,
}


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_holds_but_for_named_exceptions(rule: str) -> None:
    limit, exceptions = house().get(rule, 0), house()["exceptions"][rule]
    breaches = [breach for module in modules().values() for breach in RULES[rule](module, limit)]
    assert [f"{what}: {how}" for what, how in breaches if what not in exceptions] == []
    unneeded = set(exceptions) - {what for what, _ in breaches}
    assert unneeded == set(), "these exceptions in pyproject.toml are no longer needed"


def test_every_exception_has_a_rule_and_a_reason() -> None:
    assert set(house()["exceptions"]) == set(RULES)
    reasons = [reason for table in house()["exceptions"].values() for reason in table.values()]
    assert all(len(reason.split()) > 3 for reason in reasons)


def test_every_file_says_what_is_in_it() -> None:
    assert [module.file for module in modules().values() if not ast.get_docstring(module.tree)] == []


def is_open(node: ast.Match) -> bool:
    """Whether a match chooses among names and lets another name fall through."""
    last, patterns = node.cases[-1], [case.pattern for case in node.cases]
    flat = [
        one for pattern in patterns for one in (pattern.patterns if isinstance(pattern, ast.MatchOr) else [pattern])
    ]
    names = any(isinstance(one, ast.MatchValue) and isinstance(one.value, ast.Constant) for one in flat)
    ends = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
    return names and not ends


def test_a_match_over_names_says_what_happens_to_any_other() -> None:
    assert [
        f"{module.file} line {node.lineno}"
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Match) and is_open(node)
    ] == []


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ("case 'a': x\n case 'b' | None: y", True),
        ("case 'a': x\n case _: never(name)", False),
        ("case 'a': x\n case _ if y: z", True),
        ("case A(): x\n case B(): y", False),  # types: mypy sees what is missing
    ],
)
def test_a_name_that_falls_through_is_seen(cases: str, expected: bool) -> None:
    (node,) = ast.parse(f"match name:\n {cases}").body
    assert isinstance(node, ast.Match)
    assert is_open(node) == expected


def test_no_file_or_folder_is_a_drawer_for_everything() -> None:
    assert [name for name in modules() if FORBIDDEN_NAMES & set(name.split("."))] == []


def test_nothing_broad_is_caught_outside_a_function() -> None:
    at_top = [
        module.file
        for module in modules().values()
        for statement in module.tree.body
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef))
        for node in ast.walk(statement)
        if isinstance(node, ast.ExceptHandler) and is_broad(node)
    ]
    assert at_top == []


def function(source: str) -> Function:
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


@pytest.mark.parametrize(
    ("source", "parameters", "depth"),
    [
        ("def f(): ...", 0, 0),
        ('def f(self, a, *b, c=1, **d):\n    """Doc."""', 4, 0),
        ('def f(a, /, b):\n    """Doc,\n    longer."""\n    x = 1\n    # why\n\n    return x', 2, 0),
        ("def f():\n  for a in b:\n    if a:\n      x\n    elif b:\n      y\n    else:\n      z", 0, 2),
        (
            "def f():\n  while a:\n    with b:\n      try:\n        x\n      finally:\n        if c:\n          y",
            0,
            2,
        ),
        ("def f():\n  if a:\n    def g():\n      if b:\n        x", 0, 1),  # g is measured by itself
        ("def f():\n  if a:\n    x\n  else:\n    y\n    if b:\n      z", 0, 2),  # an if in an else is deeper
    ],
)
def test_how_functions_are_measured(source: str, parameters: int, depth: int) -> None:
    node = function(source)
    assert (len(parameter_names(node)), nesting(node)) == (parameters, depth)


@pytest.mark.parametrize(
    ("clause", "broad"),
    [
        ("except:", True),
        ("except Exception:", True),
        ("except (ValueError, BaseException) as e:", True),
        ("except ValueError:", False),
        ("except (OSError, ValueError):", False),
    ],
)
def test_what_counts_as_broad(clause: str, broad: bool) -> None:
    handlers = [n for n in ast.walk(ast.parse(f"try:\n  x\n{clause}\n  y")) if isinstance(n, ast.ExceptHandler)]
    assert [is_broad(handler) for handler in handlers] == [broad]


@pytest.mark.parametrize(
    ("decorator", "answer"),
    [
        ("dataclass", False),
        ("dataclass(frozen=True)", False),
        ("dataclasses.dataclass(slots=True, frozen=True, kw_only=True)", True),
        ("dataclass(frozen=True, kw_only=True, slots=False)", False),
        ("cache", None),
        ("field(frozen=True)", None),
    ],
)
def test_what_counts_as_a_record(decorator: str, answer: bool | None) -> None:
    assert is_record(ast.parse(decorator, mode="eval").body) is answer
