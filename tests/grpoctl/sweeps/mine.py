"""A sweep of the test's own, written to ./sweeps/mine.yaml and loaded."""

from __future__ import annotations

from pathlib import Path

from grpoctl.sweeps.loading import LoadedSweep, load_sweep
from grpoctl.sweeps.spec import SweepSpec

HEAD = "name: mine\ntitle: Mine\nexperiment: p31\n"


def write(text: str, head: str = HEAD) -> Path:
    """The file, in the working directory's ./sweeps."""
    Path("sweeps").mkdir(exist_ok=True)
    file = Path("sweeps/mine.yaml")
    file.write_text(head + text, encoding="utf-8")
    return file


def loaded(text: str, *overrides: str, profile: str = "tiny") -> LoadedSweep:
    """The sweep that the text makes of p31."""
    write(text)
    return load_sweep("mine", profile=profile, overrides=overrides)


def sweep(text: str, *overrides: str, profile: str = "tiny") -> SweepSpec:
    """Its resolved spec."""
    return loaded(text, *overrides, profile=profile).spec
