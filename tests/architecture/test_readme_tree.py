"""The README's tree is the tree: every file with the first sentence of its docstring."""

from __future__ import annotations

import importlib.util
from pathlib import Path

HERE = Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("readme_tree", HERE / "readme_tree.py")
assert _spec is not None
assert _spec.loader is not None
readme_tree = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(readme_tree)


def test_the_readme_prints_the_tree_as_it_is() -> None:
    readme = (readme_tree.ROOT / "README.md").read_text(encoding="utf-8")
    assert readme_tree.current(readme) == readme_tree.tree(), "run: python tests/architecture/readme_tree.py"


def test_every_module_says_what_it_is() -> None:
    files = [*(readme_tree.ROOT / "core").rglob("*.py"), *(readme_tree.ROOT / "grpoctl").rglob("*.py")]
    assert [str(file) for file in files if not readme_tree.first_sentence(file)] == []
