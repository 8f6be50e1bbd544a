"""Which axes decided whether a trial was among the better ones: shares by PED-ANOVA, as Optuna has it, beyond chance.

What is here: the shares. What is not: the mean score per value of an axis (grpoctl.analysis). PED-ANOVA
(arXiv 2304.10255) compares how the values of an axis are spread among the best trials and among all; it needs no
scikit-learn, and does not care how much worse a collapsed trial is. With a few dozen trials an axis of many values is
spread unevenly by chance alone, and more so than one of two; so what the same trials give with their scores dealt out
anew is taken off.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never

from grpoctl.sweeps.candidates import is_point
from grpoctl.sweeps.optuna_conversion import distribution, optuna_state, quiet, to_optuna
from grpoctl.sweeps.pruning import sign, standing
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import TrialRecord

if TYPE_CHECKING:
    from optuna.importance import BaseImportanceEvaluator
    from optuna.study import Study
    from optuna.trial import FrozenTrial

FEWEST = 10  # trials; with fewer the order of the shares is luck
BEST = 0.4  # of the trials. Optuna's tenth is two or three trials of a sweep, too few to be compared with the rest
DEALS = 20  # how often the scores are dealt out anew; from fixed seeds

# What Optuna raises, in one version or another, for studies it can say nothing of; a report does without the shares.
_REFUSALS = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)


def importances(sweep: SweepSpec, trials: Sequence[TrialRecord]) -> dict[str, float]:
    """The share of each axis by dotted key, the largest first; they sum to 1. Empty where nothing can be said.

    That is for named candidates and ladders, for fewer than FEWEST trials with a value, and where all values are the
    same. A pruned trial counts with the value it had when it was given up: it is not among the best.
    """
    values = {trial.number: _value(trial) for trial in trials}
    known = [trial for trial in trials if values[trial.number] is not None and is_point(sweep, trial.params)]
    if not sweep.axes or len(known) < FEWEST or len({values[trial.number] for trial in known}) < 2:
        return {}
    varied = [key for key in sweep.axes if len({repr(trial.params.get(key)) for trial in known}) > 1]
    if not varied:
        return {}
    try:
        shares = _beyond_chance(sweep, known, [values[trial.number] or 0.0 for trial in known])
    except _REFUSALS:
        return {}
    total = math.fsum(shares.get(key, 0.0) for key in varied)
    if not math.isfinite(total) or total <= 0:
        return {}
    normalised = {key: shares[key] / total for key in varied if key in shares}
    return dict(sorted(normalised.items(), key=lambda item: -item[1]))


def _beyond_chance(sweep: SweepSpec, trials: Sequence[TrialRecord], values: Sequence[float]) -> dict[str, float]:
    """Optuna's divergence by key, less its mean where the values belong to other trials; at least 0.

    A conditional axis has one where this Optuna can give it one.
    """
    import optuna

    kinds = {key: distribution(axis) for key, axis in sweep.axes.items()}
    losses = [-sign(sweep.direction) * value for value in values]
    with quiet():
        study = optuna.create_study()
        for trial, loss in zip(trials, losses, strict=True):
            params = {key: to_optuna(sweep.axes[key], value) for key, value in trial.params.items()}
            own = {key: kinds[key] for key in params}
            study.add_trial(optuna.trial.create_trial(value=loss, params=params, distributions=own))
        observed = _divergence(study, losses)
        by_chance = [_divergence(study, random.Random(deal).sample(losses, len(losses))) for deal in range(DEALS)]
    return {
        key: max(0.0, divergence - math.fsum(deal[key] for deal in by_chance) / DEALS)
        for key, divergence in observed.items()
    }


def _divergence(study: Study, losses: Sequence[float]) -> dict[str, float]:
    """What PED-ANOVA finds where the trials have these losses."""
    from optuna.importance import get_param_importances

    def loss(trial: FrozenTrial) -> float:
        return losses[int(trial.number)]

    return dict(get_param_importances(study, evaluator=_evaluator(), target=loss, normalize=False))


def _evaluator() -> BaseImportanceEvaluator:
    """PED-ANOVA against the best BEST; the option's name is another before Optuna 5."""
    from optuna.importance import PedAnovaImportanceEvaluator

    known = inspect.signature(PedAnovaImportanceEvaluator).parameters
    option: dict[str, Any] = {"target_quantile" if "target_quantile" in known else "baseline_quantile": BEST}
    return PedAnovaImportanceEvaluator(**option)


def _value(trial: TrialRecord) -> float | None:
    match state := optuna_state(trial):
        case "COMPLETE":
            return trial.score
        case "PRUNED":
            return standing(trial.curve, (len(trial.seeds), 0.0), trial.seeds) if trial.curve else None
        case "FAIL" | None:
            return None
        case _:
            assert_never(state)
