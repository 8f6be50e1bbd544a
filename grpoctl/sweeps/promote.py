"""A study's winner -> a new experiment of the user's own, checked before it is written.

What is here: which trial, which settings make it what it ran as, and the file. What is not: what the file looks like
(promoted), and which trial is best (grpoctl.analysis).
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.config import RunSpec
from core.config.run import check_fit
from core.errors import NotFoundError, SpecError, UserError
from core.tasks import registry
from grpoctl.config import Library, load, plain, read_resolved
from grpoctl.config.layers import leaves
from grpoctl.config.new_file import create, new_file
from grpoctl.files import read_json
from grpoctl.runs.liveness import study_status
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir, find_study
from grpoctl.sweeps.loading import read_sweep
from grpoctl.sweeps.promoted import Winner, not_apart, text_of
from grpoctl.sweeps.space import EXPERIMENT

# What a promoted spec says for itself; `recorded` tells of a historical run, which this is not.
OWN = ("name", "revision", "title", "question", "source", "expects", "recorded", "seed")
ROUNDS = 4  # settings that take away others (a method its axes, a task its keys) need a second look


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What the user asked for: a study (id, path, sweep's name), the new name, and a trial where not the best."""

    study: str
    name: str
    trial: int | None = None
    library: Library = field(default_factory=Library)


@dataclass(frozen=True, kw_only=True, slots=True)
class Promoted:
    """The new experiment. `notes`: what one should know before trusting it."""

    name: str
    file: Path
    winner: Winner
    notes: tuple[str, ...]


def promote(wanted: Wanted, home: Home) -> Promoted:
    """Write ./experiments/NAME.yaml: under the study's profile exactly what the trial ran as.

    Raises UserError (a name that is taken or no name, a trial that did not come to its end, a base that is gone),
    NotFoundError, and StorageError where the file cannot be written. Nothing is left behind then.
    """
    file = new_file(wanted.name, wanted.library)
    study = find_study(home, wanted.study)
    winner = _winner(study, wanted.trial)
    text = settled(winner, wanted.name, wanted.library)
    create(file, text)
    notes = []
    if winner.status == "RUNNING":
        notes.append(f"{study.id} is still running: this is its best so far")
    if (said := not_apart(winner)) is not None:
        notes.append(said)
    return Promoted(name=wanted.name, file=file, winner=winner, notes=tuple(notes))


def _winner(study: StudyDir, number: int | None) -> Winner:
    """The trial that is promoted: the best, or the one of this number. Raises UserError, NotFoundError."""
    document = read_json(study.state)
    if document is None:
        raise NotFoundError(f"{study.id} has no sweep.json: it has not begun")
    trials = {int(trial["number"]): trial for trial in document.get("trials", [])}
    chosen = number if number is not None else (document.get("best") or {}).get("number")
    if chosen is None:
        raise UserError(f"{study.id} has no finished trial to promote ({document.get('status')})")
    if chosen not in trials:
        raise NotFoundError(f"{study.id} has no trial {chosen}; it has {len(trials)}, from 0")
    trial = trials[chosen]
    if trial.get("status") != "COMPLETED":
        sound = [one for one in document.get("ranking", []) if trials[one]["status"] == "COMPLETED"]
        instead = f"; the best that did is --trial {sound[0]}" if sound else ""
        raise UserError(f"trial {chosen} is {trial.get('status')}: all its seeds must come to their end{instead}")
    sweep = read_sweep(study.spec)
    settings = {key: value for key, value in {**sweep.settings, **trial["params"]}.items() if key != EXPERIMENT}
    return Winner(
        study=study.id,
        status=study_status(study)[0],
        document=document,
        trial=trial,
        spec=_spec_of(study, trial),
        settings=tuple(settings),
        sweep=sweep,
    )


def _spec_of(study: StudyDir, trial: Mapping[str, Any]) -> RunSpec:
    """What the trial ran as, by the first of its runs that is still there."""
    for seed in trial["seeds"]:
        run = study.run(int(trial["number"]), int(seed))
        if run.spec.is_file():
            return read_resolved(run.spec)
    raise NotFoundError(f"the runs of trial {trial['number']} are gone from {study.path}: what it ran as is not known")


def settled(winner: Winner, name: str, library: Library) -> str:
    """The text of the new spec. It has been loaded: under the study's profile it is what the trial ran as.

    Raises UserError where no file on top of today's base experiment can be that.
    """
    base, profile = winner.spec.name, winner.spec.profile
    if base not in library.files():
        raise UserError(f"the base experiment {base} is neither in ./experiments nor shipped; put it back first")
    with tempfile.TemporaryDirectory(prefix="grpoctl-") as folder:
        draft = _Draft(winner=winner, file=Path(folder) / f"{name}.yaml", library=library)
        target = draft.target
        chosen = {key for key in target if _states(winner.settings, key)}
        for _ in range(ROUNDS):
            found = draft.load(chosen)
            if found == target:
                break
            chosen |= {key for key, value in target.items() if key not in found or found[key] != value}
        else:
            strange = sorted(key for key in {**found, **target} if found.get(key) != target.get(key))
            raise UserError(f"trial {winner.number} cannot be written on top of today's {base}: {', '.join(strange)}")
        said = {key for key in chosen if target[key] is not None or _states(winner.settings, key)}
        with suppress(SpecError):
            chosen = said if draft.load(said) == target else chosen  # a part that is new needs no nulls in it
        draft.load(chosen)
        return draft.text(chosen, _unsound(draft.file, profile, library))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Draft:
    """The new spec in a folder that nobody sees, where it can be loaded."""

    winner: Winner
    file: Path
    library: Library

    def text(self, chosen: Collection[str], dropped: Sequence[str] = ()) -> str:
        """The file with these keys of the trial's spec in it."""
        target = self.target
        whole = {key for key in chosen if key.endswith(".epochs") and target[key] is None}
        steps = {f"{key.removesuffix('epochs')}max_steps" for key in whole}  # one of the two says how long
        return text_of(
            self.winner, self.file.stem, {key: target[key] for key in target if key in {*chosen, *steps}}, dropped
        )

    def load(self, chosen: Collection[str]) -> dict[str, object]:
        """What the file with these keys is under the trial's profile. Raises SpecError."""
        self.file.write_text(self.text(chosen), encoding="utf-8")
        return self._comparable(load(self.file, profile=self.winner.spec.profile, library=self.library).spec)

    @property
    def target(self) -> dict[str, object]:
        """What the file must come to."""
        return self._comparable(self.winner.spec)

    def _comparable(self, spec: RunSpec) -> dict[str, object]:
        """Dotted key -> value of everything that must be as it was."""
        found = leaves({key: value for key, value in plain(spec).items() if key not in OWN})
        return {key: value for key, value in found.items() if key not in self.winner.only_warned}


def _states(settings: tuple[str, ...], key: str) -> bool:
    """Whether the sweep itself names this leaf, a part above it or one below it."""
    return any(key == one or key.startswith(f"{one}.") or one.startswith(f"{key}.") for one in settings)


def _unsound(draft: Path, profile: str, library: Library) -> tuple[str, ...]:
    """The base's other profiles that make no valid run together with the winner's settings."""
    found = []
    for other in load(draft, profile=profile, library=library).profiles:
        try:
            spec = load(draft, profile=other, library=library).spec
            check_fit(spec)
            registry.build(spec.task)
        except SpecError:
            if other in (profile, "full"):
                raise
            found.append(other)
    return tuple(found)
