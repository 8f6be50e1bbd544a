"""What must not stand in the repository: paths of one machine, and ways to run code out of a data file."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.source import ROOT, modules

FOLDERS = ("core", "grpoctl", "experiments", "sweeps", "docs", "benchmarks", ".ci")
LOOSE = ("*.md", "*.toml", "*.txt", "Makefile", ".gitignore")
FILES = [
    *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*")),
    *(f for p in LOOSE for f in ROOT.glob(p)),
]
TEXTS = sorted(file for file in FILES if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".png")
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:work|tmp|root|home|opt|mnt|Users)(?:/|\b)")
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}
FORBIDDEN_CALLS = {"torch.load", "torch.save", "eval", "exec", "np.load", "numpy.load"}


def test_the_texts_are_seen() -> None:
    seen = {file.relative_to(ROOT).as_posix() for file in TEXTS}
    assert {"core/errors.py", "pyproject.toml", "Makefile", ".ci/run", "experiments/p31.yaml", "README.md"} <= seen


def test_no_text_names_a_path_of_one_machine() -> None:
    found = [
        f"{file.relative_to(ROOT)} line {number}: {line.strip()}"
        for file in TEXTS
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see /work/main", True),
        ('Path("/tmp")', True),
        ("cd /root", True),
        ("(/home/me/x)", True),
        ("tests/tmp/x", False),
        ("/proc/driver", False),
        ("https://host/work/x", False),
        ("~/work", False),
        ("/workflow", False),
    ],
)
def test_what_a_machine_path_looks_like(text: str, found: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) == found


def unsafe(tree: ast.AST) -> list[str]:
    """Imports and calls that can execute what a data file says."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            kinds = [ast.unparse(word.value) for word in node.keywords if word.arg == "typ"]
            unsafe_yaml = called.endswith("YAML") and kinds not in (["'safe'"], ["'rt'"], [])
            trusts = [ast.unparse(w.value) for w in node.keywords if w.arg == "trust_remote_code"]
            trusting = any(
                one not in ("False", "spec.trust_remote_code") for one in trusts
            )  # off unless a spec says so
            found += [called] if called in FORBIDDEN_CALLS or unsafe_yaml or trusting else []
    return found


def test_nothing_loads_a_file_that_can_run_code() -> None:
    assert [f"{module.file}: {one}" for module in modules().values() for one in unsafe(module.tree)] == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import pickle", 1),
        ("from yaml import safe_load", 1),
        ("torch.load(f)", 1),
        ("from safetensors.torch import load_file", 0),
        ("YAML(typ='unsafe')", 1),
        ("YAML(typ='safe', pure=True)", 0),
        ("YAML()", 0),
        ("M.from_pretrained(s, trust_remote_code=True)", 1),
        ("M.from_pretrained(s, trust_remote_code=False)", 0),
        ("M.from_pretrained(s, trust_remote_code=spec.trust_remote_code)", 0),
        ("model.eval()", 0),
        ("eval(text)", 1),
    ],
)
def test_what_counts_as_unsafe(source: str, count: int) -> None:
    assert len(unsafe(ast.parse(source))) == count
