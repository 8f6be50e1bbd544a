"""Ended studies with run directories as the driver makes them, without training: something to promote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from core.config import RunSpec
from grpoctl.config import Library, shipped_folder
from grpoctl.runs.launch import prepare_in
from grpoctl.runs.run_dir import Home
from grpoctl.runs.status import TrialStatus
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sweeps.candidates import Candidates, name_of
from grpoctl.sweeps.loading import load_sweep
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import TrialRecord
from grpoctl.sweeps.study import Terms, new_study

SHIPPED = sorted(Library(user=Path("none"), shipped=shipped_folder("sweeps"), kind="sweep").files())
K, LR, BETA = "stages.grpo.num_generations", "stages.grpo.learning_rate", "stages.grpo.beta"
SCALE = "stages.grpo.advantage.scale_rewards"
WINNER = {K: 4, SCALE: "none", LR: 0.0009530000000000001, BETA: 0.02}


@cache
def swept(name: str, profile: str) -> SweepSpec:
    """A shipped sweep; reading one tries hundreds of its points."""
    return load_sweep(name, profile=profile).spec


def ran(sweep: SweepSpec, params: Mapping[str, Any], seed: int = 0) -> RunSpec:
    """What a trial at this point runs."""
    made = Candidates.of(sweep)
    return made.loaded(params, made.overrides(params), seed=seed).spec


def ended_study(
    home: Home, sweep: SweepSpec, trials: Sequence[Mapping[str, Any]] = (WINNER,), **header: Any
) -> StudyDir:
    """A study whose trials are these points, scored 0.5, 0.6, ...: the last is the best. One run of each is there."""
    candidates = Candidates.of(sweep)
    made = new_study(sweep, home, [], Terms())
    book = made.book
    for number, params in enumerate(trials):
        overrides = candidates.overrides(params)
        loaded = candidates.loaded(params, overrides, seed=sweep.seeds[0])
        run = made.study.run(number, sweep.seeds[0])
        prepare_in(run, loaded, study=made.study.id, trial=number, overrides=overrides)
        score = 0.5 + number / 10
        book.trials[number] = TrialRecord(
            number=number, params=params, seeds=tuple(sweep.seeds), status=TrialStatus.COMPLETED, score=score,
            values=(score,) * len(sweep.seeds), name=name_of(sweep, params),
        )  # fmt: skip
    best = len(book.trials) - 1
    book.intervals = {number: (0.45 + number / 10, 0.55 + number / 10) for number in book.trials}
    order = sorted(book.trials, reverse=True)
    winner = {"number": best, "score": 0.5 + best / 10, "interval": [0.45 + best / 10, 0.55 + best / 10]}
    book.analysis = {"best": winner if book.trials else None, "ranking": order, "indistinguishable": order[:1]}
    book.header |= {"status": "COMPLETED", "ended": 1_700_000_000.0, **header}
    book.save()
    return made.study
