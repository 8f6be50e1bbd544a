"""The environment of a process of ours: it runs this very code. Starting processes is not here."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path


def child_environment() -> dict[str, str]:
    """Ours, with this very code in the path where it is not installed."""
    root = str(Path(__file__).resolve().parents[2])
    if root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return dict(os.environ)  # in front of the standard library, site-packages could replace parts of it
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root + (os.pathsep + path if path else "")}
