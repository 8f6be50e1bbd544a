"""Nothing that runs code when it is read: no pickle, in any of its clothes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("core/**/*.py"), *ROOT.glob("grpoctl/**/*.py")])
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {"torch.load", "torch.save", "np.load", "numpy.load", "yaml.load", "torch.jit.load", "pandas.read_pickle"}


def offences(source: str) -> list[str]:
    """What of a module reads or writes pickles."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module] if node.module.split(".")[0] in MODULES else []
            found += [f"{node.module}.{a.name}" for a in node.names if f"{node.module}.{a.name}" in CALLS]
        elif isinstance(node, ast.Attribute):
            found += [ast.unparse(node)] if ast.unparse(node) in CALLS else []
            found += [ast.unparse(node)] if node.attr in ("read_pickle", "to_pickle") else []
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle", ["pickle"]),
        ("from joblib import load", ["joblib"]),
        ("import torch\ntorch.load('x', weights_only=True)", ["torch.load"]),
        ("from torch import load", ["torch.load"]),
        ("frame.read_pickle('x')", ["frame.read_pickle"]),
        ("from safetensors.torch import load_file\nload_file('x')", []),
    ],
)
def test_an_offence_is_seen(source: str, found: list[str]) -> None:
    assert offences(source) == found


def test_there_is_none() -> None:
    assert len(SOURCES) > 50
    assert {str(path.relative_to(ROOT)): seen for path in SOURCES if (seen := offences(path.read_text()))} == {}
