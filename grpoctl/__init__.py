"""grpoctl finds a GRPO configuration that works on your task, and tells you, with evidence, why the others did not.

    import grpoctl
    run = grpoctl.load("p31")        # the newest run of p31, a run id, or a run's directory
    run.spec, run.result, run.metrics
    study = grpoctl.load("lr-study")  # the newest study of a sweep, a study's id, or its directory
    study.spec, study.document, study.trials[0].runs[0].metrics

Importing this imports no torch, transformers, mlflow, optuna or pandas.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from grpoctl.version import __version__ as __version__

if TYPE_CHECKING:
    from grpoctl.api import LoadedRun, LoadedStudy

_ours = Path(__file__).resolve().parents[1] / "core"
_found = importlib.util.find_spec("core")
if _found is None or _found.origin is None or Path(_found.origin).resolve().parent != _ours:
    raise ImportError(
        f"another package called 'core' ({_found.origin if _found else 'none'}) hides grpoctl's own ({_ours}); "
        "start Python from another folder, or with: python -P"
    )


def load(name: str) -> LoadedRun | LoadedStudy:
    """The run of that name (an experiment's newest run, a run id, or a run's directory), else the study.

    Raises core.errors.NotFoundError where there is neither.
    """
    from grpoctl.api import load as load_named

    return load_named(name)
