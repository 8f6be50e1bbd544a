"""The tree in the README: one line per file, from the first line of each module's docstring or file's comment.

python tests/architecture/readme_tree.py     rewrites the README's tree
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START, END = "<!-- tree:", "<!-- end of tree -->"
LIMIT = 100
OTHERS = {
    "benchmarks": "scripts that measure; each prints what it measured",
    "docs": "see the table above",
    "experiments": "p29 to p39, p30-sound, staged, rce-only, g10 to g12: data only",
    "sweeps": "sweep specs: data only",
    "tests": "mirrors the source, plus architecture/, invariants/ and end_to_end/",
    "constraints.txt": "the tested versions",
    "Makefile": "make run, test, lint, clean",
    "pyproject.toml": "package, tools and house rules",
    ".ci/run": "exactly what `make test` does, from nothing",
}


def tree() -> list[str]:
    """The lines of the tree: packages first, a folder's own files before its subfolders."""
    lines = [line for package in ("core", "grpoctl") for line in _folder(ROOT / package, depth=0)]
    return [*lines, *(_line(name, text, depth=0) for name, text in OTHERS.items())]


def _folder(folder: Path, depth: int) -> list[str]:
    own = folder / "__init__.py"
    if not own.exists():
        return []
    files = [file for file in sorted(folder.glob("*.py")) if file != own]
    lines = [_line(f"{folder.name}/", first_sentence(own), depth)]
    lines += [_line(file.name, first_sentence(file), depth + 1) for file in files]
    return lines + [line for sub in sorted(folder.iterdir()) if sub.is_dir() for line in _folder(sub, depth + 1)]


def first_sentence(file: Path) -> str:
    """The first sentence of a module's docstring, cut at a word where it is long."""
    text = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n\n")[0].replace("\n", " ")
    sentence = text.split(". ")[0].rstrip(".")
    if len(sentence) <= LIMIT:
        return sentence
    return sentence[:LIMIT].rsplit(" ", 1)[0].rstrip(",;:") + " ..."


def _line(name: str, text: str, depth: int) -> str:
    return f"{'  ' * depth}{name}".ljust(30) + f" {text}"


def current(readme: str) -> list[str]:
    """The tree as the README has it."""
    body = readme.split(START)[1].split(END, maxsplit=1)[0]
    return body.split("```text\n")[1].split("```")[0].splitlines()


def main() -> None:
    """Rewrite the README's tree."""
    path = ROOT / "README.md"
    readme = path.read_text(encoding="utf-8")
    start = readme.index("```text\n", readme.index(START)) + len("```text\n")
    end = readme.index("```", start)
    path.write_text(readme[:start] + "\n".join(tree()) + "\n" + readme[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
