"""Running and comparing from Python, by what the commands use: the same files, the same errors."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

from core.errors import GrpoError, RunError, SpecError, UserError
from grpoctl import console
from grpoctl.analysis import compare as comparison_of
from grpoctl.analysis.collect import RunRecord, load_run, sides
from grpoctl.analysis.compare import Comparison
from grpoctl.analysis.sweeps.report import head
from grpoctl.api.callbacks import (
    Callback,
    SweepCallback,
    Watched,
    WatchedStudy,
    checked,
    checked_of_sweep,
    tell_end,
)
from grpoctl.api.loaded import LoadedExperiment, LoadedRun, LoadedStudy, LoadedTrial, Place, home_at, name_text
from grpoctl.cli import run_session, sweep_session
from grpoctl.cli.run_session import RunRequest
from grpoctl.cli.sweep_session import SweepRequest, Workers
from grpoctl.executors.hooks import Hooks
from grpoctl.runs import liveness
from grpoctl.runs.profile import AUTO
from grpoctl.runs.study_dir import StudyDir

Overrides = Mapping[str, Any]
Side = str | LoadedRun | LoadedExperiment | LoadedTrial | Sequence[LoadedRun]


@overload
def run(
    name: Place,
    overrides: Overrides | None = None,
    *,
    profile: str = AUTO,
    seed: int | None = None,
    seeds: None = None,
    resume: bool = False,
    callbacks: Callback | Sequence[Callback] = (),
    home: Place | None = None,
    quiet: bool = False,
) -> LoadedRun: ...
@overload
def run(
    name: Place,
    overrides: Overrides | None = None,
    *,
    profile: str = AUTO,
    seed: None = None,
    seeds: Sequence[int],
    resume: bool = False,
    callbacks: Callback | Sequence[Callback] = (),
    home: Place | None = None,
    quiet: bool = False,
) -> LoadedExperiment: ...
def run(
    name: Place,
    overrides: Overrides | None = None,
    *,
    profile: str = AUTO,
    seed: int | None = None,
    seeds: Sequence[int] | None = None,
    resume: bool = False,
    callbacks: Callback | Sequence[Callback] = (),
    home: Place | None = None,
    quiet: bool = False,
) -> LoadedRun | LoadedExperiment:
    """Train an experiment as `grpoctl run` does; with `seeds` once for each, one after another.

    `overrides`: dotted keys, or unique endings of them, -> values. A run that a guard stopped is a result like others:
    its `status` says so. Raises UserError (SpecError, NotFoundError, ...) before anything is started, RunError for a
    run that FAILED, what a callback raised, and KeyboardInterrupt after Ctrl-C; the run's files say by then how it
    ended, and `resume` goes on with it.
    """
    if seed is not None and seeds is not None:
        raise UserError(f"got seed={seed} and seeds={list(seeds)}; give one of them")
    text = name_text(name)
    several = _seeds(seeds) if seeds is not None else [None] if seed is None else _seeds([seed])
    watching, watched = checked(callbacks), list[Watched]()
    request = RunRequest(
        name=text, overrides=override_texts(overrides or {}), profile=profile, seeds=several,
        resume=resume, json=quiet, quiet=quiet, argv=sys.argv,
    )  # fmt: skip

    def hooks(live: Hooks) -> Hooks:
        watched.append(Watched(live, watching))
        return watched[-1]

    runs: list[LoadedRun] = []
    specs = []
    for done in run_session.executions(request, home_at(home), hooks):
        runs.append(LoadedRun(run=done.run))
        specs.append(done.spec)
        if watched and watched[-1].error is not None:
            raise watched[-1].error
        _check_ended(runs[-1].id, done.executed.result)
        if not quiet:
            run_session.print_outcome(done.executed, done.spec, json=False)
        tell_end(watching, runs[-1])
    if seeds is None:
        return runs[0]
    in_order = sorted(zip(specs, runs, strict=True), key=lambda entry: entry[0].seed)
    return LoadedExperiment(
        name=specs[0].name, spec=in_order[-1][0], runs=tuple(loaded for _, loaded in in_order)
    )  # fmt: skip


def sweep(
    name: Place,
    overrides: Overrides | None = None,
    *,
    profile: str = AUTO,
    trials: int | None = None,
    seeds: Sequence[int] | None = None,
    parallel: int | None = None,
    inline: bool = False,
    storage: str | None = None,
    resume: bool = False,
    callbacks: SweepCallback | Sequence[SweepCallback] = (),
    home: Place | None = None,
    quiet: bool = False,
) -> LoadedStudy:
    """Run a sweep to its end as `grpoctl sweep` does, or with `resume` go on with its newest unfinished study.

    `overrides` are of the sweep (`budget.completions`); `parallel` runs at a time by worker processes, or `inline` in
    this one. `callbacks` are told, in this process, of each run and each trial that has ended. Raises as `run` does.
    """
    text = name_text(name)
    for argument, count in (("trials", trials), ("parallel", parallel)):
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise UserError(f"got {argument}={count!r}; allowed: a whole number, 1 or more")
    request = SweepRequest(
        name=text, overrides=tuple(override_texts(overrides or {})), profile=profile, trials=trials,
        seeds=None if seeds is None else ",".join(str(seed) for seed in _seeds(seeds)), storage=storage,
        workers=Workers(parallel=parallel, inline=inline), resume=resume, json=quiet, quiet=quiet,
        argv=tuple(sys.argv),
    )  # fmt: skip
    watching, watched = checked_of_sweep(callbacks), list[WatchedStudy]()

    def watcher(study: StudyDir) -> WatchedStudy:
        watched.append(WatchedStudy(study, watching))
        return watched[-1]

    try:
        study, document = sweep_session.run_to_end(request, home_at(home), watcher)
        _check_ended(study.id, document)
        if not quiet:
            console.print_sections(head(document))
        for one in watched:
            one.study_ended()
    except GrpoError:
        if watched and watched[-1].error is not None:
            raise watched[-1].error from None
        raise
    return LoadedStudy(study=study)


def compare(*of: Side, profile: str | None = None, home: Place | None = None) -> Comparison:
    """The comparison that `grpoctl compare` prints: `.verdict`, `.sides`, `.metrics`, `.document()`.

    A side is a name as the command takes it, an experiment, a trial of a study, a run, or runs of one spec, one per
    seed. Without a profile, names mean runs of the newest one that they share. Raises NotFoundError, UserError.
    """
    place = home_at(home)
    liveness.reconcile(place)
    names = [side for side in of if isinstance(side, str)]
    named = iter(sides(place, names, profile) if names else ())
    return comparison_of.compare(*(next(named) if isinstance(side, str) else _records(side) for side in of))


def _records(side: LoadedRun | LoadedExperiment | LoadedTrial | Sequence[LoadedRun]) -> tuple[RunRecord, ...]:
    match side:
        case LoadedRun():
            runs: Sequence[LoadedRun] = (side,)
        case LoadedExperiment() | LoadedTrial():
            runs = side.runs
        case LoadedStudy():
            raise UserError(f"got the study {side.id} as a side; a side is one of its trials, e.g. study.best")
        case _:
            runs = side
            if not isinstance(runs, Sequence) or not all(isinstance(run, LoadedRun) for run in runs):
                raise UserError(f"got {side!r} as a side; expected a name, or what grpoctl.load gives")
    return tuple(load_run(entry.path) for entry in runs)


def override_texts(overrides: Overrides) -> list[str]:
    """`key=value` texts as the command line takes them. Raises SpecError for a value that YAML has no words for."""
    if not isinstance(overrides, Mapping):
        raise UserError(f"got overrides {overrides!r}; expected a mapping: {{'learning_rate': 1e-4}}")
    texts = []
    for key, value in overrides.items():
        try:
            texts.append(f"{key}={json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)}")
        except (TypeError, ValueError):
            raise SpecError(
                f"got {value!r}; expected text, a number, true, false, null, or lists of them", key=key
            ) from None
    return texts


def _plain(value: object) -> object:
    """A path as its text, a number of numpy or torch as Python's own. Raises TypeError for others."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(value)
    return item()


def _seeds(seeds: Sequence[int]) -> list[int]:
    """The seeds, each once. Raises UserError."""
    numbers = list(seeds) if isinstance(seeds, Iterable) else []
    if not numbers or any(isinstance(seed, bool) or not isinstance(seed, int) or seed < 0 for seed in numbers):
        raise UserError(f"got seeds={seeds!r}; expected whole numbers from 0, e.g. [0, 1, 2]")
    if len(set(numbers)) < len(numbers):
        raise UserError(f"got seeds={seeds!r}; each seed once: the same seed gives the same run")
    return numbers


def _check_ended(name: str, document: Mapping[str, Any]) -> None:
    """Raises KeyboardInterrupt for what was interrupted, RunError for what FAILED."""
    if document["status"] == "INTERRUPTED":
        raise KeyboardInterrupt(f"{name}: {document['message']}")
    if document["status"] == "FAILED":
        raise RunError(f"{name} FAILED: {document['message']}")
