"""`model.dtype: auto` of a spec -> the dtype its run has, before it is recorded: what is recorded is never `auto`.

Here: whose answer counts (an unfinished run's, a study's, this machine's), for specs as they were loaded. Not here:
what is fastest (core.models.precision). torch is imported only where a spec leaves the dtype to the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from core.config import Dtype, RunSpec
from core.models import precision
from grpoctl.config import Loaded, run_stem
from grpoctl.runs.run_dir import Home

DTYPES: tuple[Dtype, ...] = ("bfloat16", "float32")
Say = Callable[[str], None]


def settled(spec: RunSpec, ask: precision.AskMachine = precision.machine_facts) -> RunSpec:
    """The spec with this machine's dtype where it left that open; any other as it is."""
    if spec.model is None:
        return spec
    model = precision.resolve_dtype(spec.model, ask)
    return spec if model is spec.model else spec.model_copy(update={"model": model})


def settled_run(
    loaded: Loaded, ask: precision.AskMachine = precision.machine_facts, *, resume: Home | None = None
) -> Loaded:
    """The loaded spec with a dtype of its own; where a run of it in `resume` is not finished yet, with that run's."""
    if not _is_open(loaded.spec):
        return loaded
    spec = settled(loaded.spec, ask)
    if resume is not None:
        begun = [
            dtyped for dtyped in _both(loaded.spec, spec) if resume.newest_unfinished(run_stem(dtyped)) is not None
        ]
        spec = begun[0] if begun else spec
    return replace(loaded, spec=spec)


def settled_trial(
    loaded: Loaded, header: dict[str, Any], say: Say, ask: precision.AskMachine = precision.machine_facts
) -> Loaded:
    """The loaded spec with the dtype of its study."""
    spec = settled_in(loaded.spec, header, say, ask)
    return loaded if spec is loaded.spec else replace(loaded, spec=spec)


def settled_in(
    spec: RunSpec, header: dict[str, Any], say: Say, ask: precision.AskMachine = precision.machine_facts
) -> RunSpec:
    """The spec with the dtype of its study, which `header` keeps: this machine's when it was first asked for."""
    if not _is_open(spec):
        return spec
    if header.get("dtype") not in DTYPES:
        facts = ask()
        header["dtype"] = precision.fastest_dtype(spec.language_model, facts)
        say(precision.explain_dtype(facts))
    return _with(spec, header["dtype"])


def why(loaded: RunSpec, settled_as: RunSpec, ask: precision.AskMachine = precision.machine_facts) -> str | None:
    """One short line on the dtype, where the spec as it was loaded left it open; None where it did not."""
    if not _is_open(loaded):
        return None
    facts, dtype = ask(), settled_as.language_model.dtype
    own = dtype == precision.fastest_dtype(loaded.language_model, facts)
    return precision.explain_dtype(facts) if own else f"dtype {dtype} (auto: the run was started with it)"


def _is_open(spec: RunSpec) -> bool:
    """True where a language model leaves its dtype to the machine."""
    return spec.model is not None and spec.model.dtype == "auto"


def _both(spec: RunSpec, first: RunSpec) -> list[RunSpec]:
    """The spec in either dtype, this machine's first."""
    return [first, *(_with(spec, dtype) for dtype in DTYPES if dtype != first.language_model.dtype)]


def _with(spec: RunSpec, dtype: Dtype) -> RunSpec:
    return spec.model_copy(update={"model": spec.language_model.model_copy(update={"dtype": dtype})})
