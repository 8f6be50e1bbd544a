"""A sweep of the test's own, written to ./sweeps/mine.yaml and loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpoctl.config import Library, Loaded
from grpoctl.sweeps.candidates import Candidates
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


def specs(
    sweep: SweepSpec, params: Mapping[str, Any], *, seeds: Sequence[int] | None = None, library: Library | None = None
) -> list[Loaded]:
    """The runs of a point, one per seed, as a study's driver resolves them."""
    candidates = Candidates.of(sweep, library=library)
    overrides = candidates.overrides(params)
    return [candidates.loaded(params, overrides, seed=seed) for seed in (sweep.seeds if seeds is None else seeds)]
