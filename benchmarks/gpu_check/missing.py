"""What a Python lacks, or has in too old a version: of pyproject.toml's dependencies, or of the names it is given.

    python benchmarks/gpu_check/missing.py [NAME ...]

Run by start.sh with a Python that may have nothing installed yet, so by its standard library alone.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:>=([0-9.]+))?")
PARTS = 2  # of a version that are compared


def missing(requirements: Sequence[str]) -> list[str]:
    """Those that are not met here, as pip takes them. Raises ValueError for one whose form is not known."""
    return [text for text in map(_without_marker, requirements) if not _is_met(text)]


def _without_marker(requirement: str) -> str:
    """`name>=1.2`; what stands behind a semicolon says for which Pythons, and is taken to say this one."""
    return requirement.partition(";")[0].strip()


def _is_met(requirement: str) -> bool:
    match = REQUIREMENT.fullmatch(requirement)
    if match is None:
        raise ValueError(f"{requirement!r}: allowed is NAME or NAME>=VERSION")
    name, least = match.groups()
    try:
        here = version(name)
    except PackageNotFoundError:
        return False
    return _numbers(here) >= _numbers(least or "0")


def _numbers(text: str) -> list[int]:
    own = [int(part) for part in text.split(".")[:PARTS] if part.isdigit()]
    return own + [0] * (PARTS - len(own))


if __name__ == "__main__":
    with open("pyproject.toml", "rb") as file:
        own = tomllib.load(file)["project"]["dependencies"]
    print(" ".join(missing(sys.argv[1:] or own)))
