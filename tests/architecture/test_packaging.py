"""What is declared, what is pinned and what is imported agree."""

from __future__ import annotations

import re
import sys
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.architecture.source import PACKAGES, ROOT, imports, modules, pyproject

PROJECT = pyproject()["project"]
RUNTIME = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = [
    Requirement(line) for name, lines in PROJECT["optional-dependencies"].items() if name != "dev" for line in lines
]
DEV = [Requirement(line) for line in PROJECT["optional-dependencies"]["dev"]]
# What the issue this house was built from asks for; some are used by commands that are still to come.
ASKED_FOR = {"accelerate", "matplotlib", "mlflow", "optuna", "peft", "pydantic", "rich", "ruamel-yaml", "safetensors",
             "torch", "transformers", "typer"}  # fmt: skip
COMES_WITH = "pydantic_core"  # pydantic pins its version and documents importing errors from it
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[0-9][A-Za-z0-9.]*)")


def pins() -> dict[str, str]:
    """Canonical name -> version; a line that is neither a comment nor a bare pin fails."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            match = PIN.fullmatch(line)  # no local suffix (+cpu), marker, path or index: they belong to one machine
            assert match is not None, f"constraints.txt: {line}"
            found[canonicalize_name(match["name"])] = match["version"]
    return found


@pytest.mark.parametrize("requirement", [*RUNTIME, *EXTRAS, *DEV], ids=str)
def test_a_declared_dependency_is_pinned_to_a_version_it_allows(requirement: Requirement) -> None:
    pinned = pins().get(canonicalize_name(requirement.name))
    assert pinned is not None, f"constraints.txt does not pin {requirement.name}"
    assert Version(pinned) in requirement.specifier


def test_the_dependencies_are_those_asked_for_and_those_imported() -> None:
    top_level = {one.target.split(".")[0] for name in modules() for one in imports(name)}
    others = top_level - set(PACKAGES) - set(sys.stdlib_module_names) - {"__future__", ""}
    distributions = packages_distributions()  # a name may come in several: mlflow is in mlflow and in mlflow-skinny
    # One that is not installed (an extra that only service tests take) is of the distribution of its own name.
    named = {name: distributions.get(name, [name]) for name in others - {COMES_WITH}}
    offered = {name: {canonicalize_name(one) for one in by} for name, by in named.items()}
    declared = {canonicalize_name(requirement.name) for requirement in RUNTIME}
    extras = {canonicalize_name(requirement.name) for requirement in EXTRAS}
    assert {name for name, by in offered.items() if not by & (declared | extras)} == set(), "imported, not declared"
    assert declared - ASKED_FOR - set().union(*offered.values()) == set(), "declared, neither asked for nor imported"
    assert declared >= ASKED_FOR
    assert "trl" in extras - declared  # whoever does not need it has none of it


def test_the_version_stands_in_two_places_and_is_the_same() -> None:
    source = modules()["grpoctl.version"].text
    assert f'__version__ = "{PROJECT["version"]}"' in source


def test_both_packages_say_that_they_are_typed() -> None:
    assert all((ROOT / package / "py.typed").is_file() for package in PACKAGES)


def test_everything_is_installed_with_the_pins() -> None:
    """Whoever installs without constraints.txt tests something else each week."""
    installs = [
        line.strip()
        for file in ("Makefile", ".ci/run", "README.md", "CONTRIBUTING.md")
        for line in (ROOT / file).read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install|PIP_INSTALL\) ", line) and "-e" in line
    ]
    assert len(installs) >= 2
    assert [line for line in installs if "-c constraints.txt" not in line] == []


def test_ci_runs_the_test_command_and_then_what_it_leaves_out() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = [f'make {target} VENV="$nothing/venv"' for target in ("test", "slow", "services")]
    assert re.findall(r"^ *make .*$", script, flags=re.MULTILINE) == commands
    assert "set -euo pipefail" in script
