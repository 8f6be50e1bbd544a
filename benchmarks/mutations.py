"""Are the tests awake? Makes one small mistake at a time in a copy of the project and runs the tests for it.

`python benchmarks/mutations.py [PART OF A FILE NAME]` goes through mutations.yaml (some minutes) and exits with 1 where
a mistake was seen by no test. Not a test itself: too long.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".yaml")
COPIED = ("core", "grpoctl", "tests", "experiments", "sweeps", "benchmarks", "docs", "pyproject.toml", "README.md")


_PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m")
_NO_TESTS = 5  # pytest's exit code


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutation:
    """One mistake: `before` stands once in the file, `after` would stand there instead; `tests` must then fail."""

    file: str
    before: str
    after: str
    tests: str


def mutations(part: str = "") -> list[Mutation]:
    """Those of the table whose file's name contains `part`."""
    rows = YAML(typ="safe", pure=True).load(TABLE.read_text(encoding="utf-8"))
    table = [Mutation(file=file, before=before, after=after, tests=tests) for file, before, after, tests in rows]
    return [mutation for mutation in table if part in mutation.file]


def is_seen(mutation: Mutation, copy: Path) -> bool:
    """True where a test fails with the mistake; the copy is afterwards what it was."""
    file = copy / mutation.file
    sound = file.read_text(encoding="utf-8")
    assert sound.count(mutation.before) == 1, f"{mutation.file} has {sound.count(mutation.before)}: {mutation.before}"
    _write(file, sound.replace(mutation.before, mutation.after))
    try:
        for kind in ("not process and not slow", "process and not slow"):  # a file of processes has no other tests
            done = subprocess.run(
                [*_PYTEST, kind, mutation.tests],
                cwd=copy,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                check=False,
            )
            if done.returncode != _NO_TESTS:
                break
    finally:
        _write(file, sound)
    # 2: the mistake breaks an import; less than 0: it breaks Python
    assert done.returncode <= 2, done.stdout.decode()[-2000:]
    return done.returncode != 0


def _write(file: Path, text: str) -> None:
    """The file anew, without what was compiled of it: of two mistakes in one second that are as long, Python would run
    the first one twice.
    """
    file.write_text(text, encoding="utf-8")
    shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)


def main(part: str = "") -> int:
    """Try each mutation; the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, copy / name, ignore=ignored) if source.is_dir() else shutil.copy(
                source, copy / name
            )
        table = mutations(part)
        missed = []
        for number, mutation in enumerate(table, 1):
            seen = is_seen(mutation, copy)
            print(
                f"{number}/{len(table)} {'seen  ' if seen else 'MISSED'} {mutation.file}: {mutation.after.strip()}",
                flush=True,
            )
            missed += [] if seen else [mutation]
    print(f"{len(table) - len(missed)} of {len(table)} mistakes were seen by a test")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
