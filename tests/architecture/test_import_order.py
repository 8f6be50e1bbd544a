"""Which part may import which. Read from the source: nothing is imported here."""

from __future__ import annotations

import ast
import graphlib
import sys

import pytest

from tests.architecture.source import Import, imports, imports_of, inside, loaded_with, modules

# core's parts, lowest first: each has a rank of its own and imports lower ones only.
CORE = (
    "errors", "text", "metrics", "plugins", "algorithms", "config", "health",  # names, maths and rules
    "randomness", "models", "tasks", "policies",  # what is trained, and on what
    "training", "faults", "assemble",
)  # fmt: skip
# grpoctl's parts likewise (docs/decisions/0017-ranks.md).
GRPOCTL = (
    "version", "wording", "sections", "host", "fence", "files", "children", "credentials", "console",  # of no run
    "config", "resources", "runs", "tracking",  # a spec, what it needs, its directory, the copy in MLflow
    "analysis", "dataset", "diagnose", "report", "exports",  # what is said of runs and data, from files
    "stored_outputs",
    "executors", "sweeps",  # what runs them, and says at their end what came out
    "scaffold", "cli", "api", "app",  # Python access runs what the commands run
)  # fmt: skip
ORDER = {"core": CORE, "grpoctl": GRPOCTL}
# Who alone may import what.
OWNERS = {
    "mlflow": ("grpoctl.tracking",),
    "optuna": ("grpoctl.sweeps",),
    "ray": ("grpoctl.executors",),
    "peft": ("core.models", "core.policies.lm.fast"),
    "trl": ("core.training.trl_trainer", "grpoctl.executors.trl_process"),  # an extra: nobody else may need it
    "typer": ("grpoctl.app", "grpoctl.cli"),
    "rich": ("grpoctl.console", "grpoctl.cli.progress", "grpoctl.cli.sweep_progress"),
}
# Whatever costs seconds to import; only these parts may have it loaded with them.
HEAVY = ("torch", "transformers", "peft", "accelerate", "mlflow", "optuna", "pandas", "matplotlib", "scipy", "numpy",
         "safetensors", "tokenizers", "huggingface_hub", "PIL", "skimage", "sklearn", "ray")  # fmt: skip
MAY_BE_HEAVY = ("core.algorithms", "core.randomness", "core.policies", "core.models", "core.training", "core.faults",
                "core.assemble", "grpoctl.tracking", "core.tasks.selection.files", "core.tasks.selection.rewards",
                "core.tasks.selection.world", "core.tasks.restoration.degradations", "core.tasks.restoration.reward",
                "core.tasks.restoration.sheets", "grpoctl.sweeps.allocation", "grpoctl.sweeps.belief",
                "grpoctl.sweeps.adaptive", "grpoctl.executors.trl_process")  # fmt: skip


def part(name: str) -> str:
    """core.health.rules.rewards -> health."""
    return name.split(".")[1]


def of(package: str) -> list[str]:
    """The modules of core, or of grpoctl."""
    return [name for name in modules() if name.startswith(f"{package}.")]


@pytest.mark.parametrize("package", ORDER)
def test_every_part_has_a_rank_of_its_own(package: str) -> None:
    assert sorted({part(name) for name in of(package)}) == sorted(ORDER[package])


def test_core_knows_nothing_of_what_stands_around_it() -> None:
    around = ("grpoctl", "typer", "click", "rich", "optuna", "mlflow")
    known = [f"{m} line {i.line}: {i.target}" for m in of("core") for i in imports(m) if inside(i.target, *around)]
    assert known == []


@pytest.mark.parametrize("package", ORDER)
def test_imports_run_down_only(package: str) -> None:
    """Inside functions and for type checkers, too. Nobody imports the package itself, which is above all of them."""
    order = ORDER[package]
    upwards = [
        f"{name} line {one.line}: {one.target}"
        for name in of(package)
        for one in imports(name)
        if inside(one.target, package)
        and (one.target == package or order.index(part(one.target)) > order.index(part(name)))
    ]
    assert upwards == []


def test_algorithms_import_arrays_and_each_other_and_nothing_else() -> None:
    allowed = {"numpy", "torch", "__future__", *sys.stdlib_module_names}
    strangers = [
        f"{name} line {one.line}: {one.target}"
        for name in of("core")
        if inside(name, "core.algorithms")
        for one in imports(name)
        if one.target.split(".")[0] not in allowed and not inside(one.target, "core.algorithms")
    ]
    assert strangers == []


@pytest.mark.parametrize("package", OWNERS)
def test_one_folder_alone_imports(package: str) -> None:
    importers = {name for name in modules() for one in imports(name) if inside(one.target, package)}
    assert {name for name in importers if not inside(name, *OWNERS[package])} == set()


def test_what_is_not_meant_to_be_heavy_loads_nothing_heavy() -> None:
    loads = {name: loaded_with(name) for name in modules() if not inside(name, *MAY_BE_HEAVY)}
    heavy = [
        f"{name} loads {target} through {who}"
        for name, loaded in loads.items()
        for target, who in loaded.items()
        if inside(target, *HEAVY)
    ]
    assert heavy == []


def test_what_check_computes_with_loads_no_torch() -> None:
    loaded = loaded_with("core.algorithms.advantages")
    assert "numpy" in loaded
    assert [target for target in loaded if inside(target, *HEAVY) and not inside(target, "numpy")] == []


def test_what_may_be_heavy_is_seen_to_be() -> None:
    """The rule above can see: a language model loads torch and transformers through others, and never MLflow."""
    loaded = loaded_with("core.policies.lm.build")
    assert {"torch", "transformers", "core.config", "core"} <= set(loaded)
    assert not any(inside(name, "mlflow", "grpoctl") for name in loaded)


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions and for type checkers count: a reader follows them as well."""
    graph = {name: {one.target for one in imports(name)} & set(modules()) for name in modules()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"import cycle: {' <- '.join(error.args[1])}")


def test_imports_are_absolute() -> None:
    assert [f"{m} line {i.line}" for m in modules() for i in imports(m) if i.target.startswith(".")] == []


@pytest.mark.parametrize(
    ("source", "target", "at_load"),
    [
        ("import torch.nn as nn", "torch.nn", True),
        ("from core import metrics", "core.metrics", True),  # a module of ours
        ("from core.metrics import METRICS", "core.metrics", True),  # a name in one
        ("def f():\n    import torch", "torch", False),
        ("class A:\n    import torch", "torch", True),  # a class body runs at once
        ("try:\n    import torch\nexcept ImportError:\n    pass", "torch", True),
        ("class A:\n    def f(self):\n        if x:\n            import torch", "torch", False),
        ("if TYPE_CHECKING:\n    import torch", "torch", False),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import torch", "torch", True),
        ("from . import metrics", ".", True),
    ],
)
def test_how_an_import_is_read(source: str, target: str, at_load: bool) -> None:
    line = 1 + source[: source.index("import ")].count("\n")
    found = list(imports_of(ast.parse(source), frozenset({"core", "core.metrics"})))
    assert found == [Import(target=target, line=line, at_load=at_load)]
