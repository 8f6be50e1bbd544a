"""grpoctl finds a GRPO configuration that works on your task, and tells you, with evidence, why the others did not.

    import grpoctl
    run = grpoctl.run("p31", {"learning_rate": 1e-4}, seed=1)    # trains, as the command does
    run.spec, run.result, run.metrics, run.samples, run.problems, run.findings
    grpoctl.load("p31")           # an experiment with its finished runs; a run id, a directory, a study likewise
    study = grpoctl.sweep("lr-study")
    study.trials[0].runs[0].metrics
    grpoctl.compare("p30-sound", "p31").verdict

docs/python.md has all of it. Importing this imports no torch, transformers, mlflow, optuna or pandas.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from grpoctl.version import __version__ as __version__

if TYPE_CHECKING:
    from grpoctl.api import Callback as Callback
    from grpoctl.api import LoadedExperiment as LoadedExperiment
    from grpoctl.api import LoadedRun as LoadedRun
    from grpoctl.api import LoadedStudy as LoadedStudy
    from grpoctl.api import LoadedTrial as LoadedTrial
    from grpoctl.api import OnEnd as OnEnd
    from grpoctl.api import OnEvaluation as OnEvaluation
    from grpoctl.api import OnStep as OnStep
    from grpoctl.api import Row as Row
    from grpoctl.api import compare as compare
    from grpoctl.api import load as load
    from grpoctl.api import run as run
    from grpoctl.api import sweep as sweep

__all__ = [
    "Callback", "LoadedExperiment", "LoadedRun", "LoadedStudy", "LoadedTrial", "OnEnd", "OnEvaluation", "OnStep",
    "Row", "compare", "load", "run", "sweep",
]  # fmt: skip

_ours = Path(__file__).resolve().parents[1] / "core"
_found = importlib.util.find_spec("core")
if _found is None or _found.origin is None or Path(_found.origin).resolve().parent != _ours:
    raise ImportError(
        f"another package called 'core' ({_found.origin if _found else 'none'}) hides grpoctl's own ({_ours}); "
        "start Python from another folder, or with: python -P"
    )


if not TYPE_CHECKING:  # a type checker sees the imports above, and refuses other names

    def __getattr__(name: str) -> object:
        """What `__all__` names, imported when it is first used."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from grpoctl import api

        return getattr(api, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
