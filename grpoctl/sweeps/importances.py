"""Which axes decided whether a trial was among the best: shares by PED-ANOVA, as Optuna computes it.

What is here: the shares. What is not: the mean score per value of an axis (grpoctl.analysis). PED-ANOVA
(arXiv 2304.10255) compares how the values of an axis are spread among the best trials and among all; it needs no
scikit-learn, and does not care how much worse a collapsed trial is.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grpoctl.sweeps.pruning import standing
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import TrialRecord
from grpoctl.sweeps.vocabulary import distribution, quiet, to_optuna, told

if TYPE_CHECKING:
    from optuna.importance import BaseImportanceEvaluator

FEWEST = 10  # trials; with fewer the order of the shares is luck
BEST = 0.3  # of the trials. Optuna's tenth is two or three trials of a sweep, too few to be compared with the rest


def importances(sweep: SweepSpec, trials: Sequence[TrialRecord]) -> dict[str, float]:
    """The share of each axis by dotted key, the largest first; they sum to 1. Empty where nothing can be said.

    That is for named candidates and ladders, for fewer than FEWEST trials with a value, and where all values are the
    same. A pruned trial counts with the value it had when it was given up: it is not among the best.
    """
    values = {trial.number: _value(trial) for trial in trials}
    known = [trial for trial in trials if values[trial.number] is not None and trial.params]
    if not sweep.axes or len(known) < FEWEST or len({values[trial.number] for trial in known}) < 2:
        return {}
    varied = [key for key in sweep.axes if len({repr(trial.params.get(key)) for trial in known}) > 1]
    if not varied:
        return {}
    shares = _ped_anova(sweep, known, values)
    total = math.fsum(shares.get(key, 0.0) for key in varied)
    if not math.isfinite(total) or total <= 0:
        return {}
    found = {key: shares[key] / total for key in varied if key in shares}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _ped_anova(
    sweep: SweepSpec, trials: Sequence[TrialRecord], values: Mapping[int, float | None]
) -> Mapping[str, float]:
    """Optuna's shares by key; a conditional axis has one where this Optuna can give it one."""
    import optuna

    kinds = {key: distribution(axis) for key, axis in sweep.axes.items()}
    with quiet():
        study = optuna.create_study(direction=sweep.direction)
        for trial in trials:
            params = {key: to_optuna(sweep.axes[key], value) for key, value in trial.params.items()}
            study.add_trial(
                optuna.trial.create_trial(
                    value=values[trial.number], params=params, distributions={key: kinds[key] for key in params}
                )
            )
        try:
            return dict(optuna.importance.get_param_importances(study, evaluator=_evaluator()))
        except (ValueError, RuntimeError, ZeroDivisionError):  # what Optuna raises where it cannot say
            return {}


def _evaluator() -> BaseImportanceEvaluator:
    """PED-ANOVA against the best BEST; the option's name is another before Optuna 5."""
    from optuna.importance import PedAnovaImportanceEvaluator

    known = inspect.signature(PedAnovaImportanceEvaluator).parameters
    option: dict[str, Any] = {"target_quantile" if "target_quantile" in known else "baseline_quantile": BEST}
    return PedAnovaImportanceEvaluator(**option)


def _value(trial: TrialRecord) -> float | None:
    state = told(trial)
    if state == "PRUNED" and trial.curve:
        return standing(trial.curve, trial.curve[-1][0])
    return trial.score if state == "COMPLETE" else None
