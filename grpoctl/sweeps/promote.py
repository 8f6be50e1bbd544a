"""A study's winner -> a new experiment of the user's own, checked before it is written.

What is here: which trial, which settings make it what it ran as, and the file: where it comes from, and each value
beside what the study tried. What is not: which trial is best (grpoctl.analysis).
"""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.config import RunSpec
from core.config.run import check_fit
from core.errors import NotFoundError, SpecError, UserError
from core.health.rules.gains import gain_metric
from core.tasks import registry
from grpoctl.analysis.sweeps.document import digest, upgraded
from grpoctl.analysis.sweeps.wording import score_text, trials_text, value_text
from grpoctl.config import Library, load, plain, read_resolved
from grpoctl.config.authored import FULL
from grpoctl.config.layers import leaves
from grpoctl.config.new_file import COMMENT_WIDTH, commented, create, fact_lines, nested, new_file
from grpoctl.config.resolved import block_yaml
from grpoctl.files import read_json
from grpoctl.runs.liveness import study_status
from grpoctl.runs.run_dir import Home
from grpoctl.runs.status import FINISHED
from grpoctl.runs.study_dir import StudyDir, find_study
from grpoctl.sweeps.candidates import EXPERIMENT
from grpoctl.sweeps.loading import read_sweep
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.trial import yardstick
from grpoctl.wording import gain_text

# What a promoted spec says for itself; `recorded` tells of a historical run, which this is not.
OWN = ("name", "revision", "title", "question", "source", "expects", "recorded", "seed")
ROUNDS = 4  # settings that take away others (a method its axes, a task its keys) need a second look
GUARDS = tuple(f"guards.{name}" for name in ("rollout_integrity", "collapse"))  # what they do: warn or stop
_INDENT = "  "


@dataclass(frozen=True, kw_only=True, slots=True)
class PromotionRequest:
    """What the user asked for: a study (id, path, sweep's name), the new name, and a trial where not the best.

    `again`: an experiment of this name that this very trial was promoted to before is taken as it stands.
    """

    study: str
    name: str
    trial: int | None = None
    again: bool = False
    library: Library = field(default_factory=Library)


@dataclass(frozen=True, kw_only=True, slots=True)
class Promotion:
    """The new experiment. `notes`: what one should know before trusting it."""

    name: str
    file: Path
    winner: Winner
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Winner:
    """The trial that is promoted: its study as sweep.json has it, what it ran as, and the keys its sweep sets."""

    study: str
    status: str  # of the study
    document: Mapping[str, Any]
    trial: Mapping[str, Any]
    spec: RunSpec
    settings: tuple[str, ...]
    sweep: SweepSpec

    @property
    def number(self) -> int:
        """The trial's."""
        return int(self.trial["number"])

    @property
    def score(self) -> str:
        """`eval/reward 0.612 ± 0.020`; of one seed without an interval, which would know nothing of others."""
        metric = str(self.document["metric"])
        return f"{metric} {score_text(metric, self.trial.get('score'), self.interval)}"

    @property
    def interval(self) -> Sequence[float] | None:
        """The interval of the trial's mean over its seeds; None where it has one seed."""
        return None if len(self.trial["seeds"]) < 2 else self.trial.get("interval")

    @property
    def interval_kind(self) -> str:
        """What the intervals of the trial are, in one line."""
        if len(self.trial["seeds"]) < 2:
            return "±, [ ]: over the prompts of one run alone; how far seeds differ is not known"
        return "±, [ ]: 95 % t interval; of the score as in the sweep, of gains over seeds and over prompts"

    @property
    def only_warned(self) -> tuple[str, ...]:
        """The guards that the sweep itself set to `warn`, so that a collapse is measured: no setting of a winner."""
        settings = leaves(self.sweep.settings)
        return tuple(key for key in GUARDS if settings.get(key) == "warn" and key not in self.trial["params"])

    @property
    def gain_metric(self) -> str:
        """What the gains of its stages are of."""
        return gain_metric(str(self.document["metric"]))

    @property
    def alike(self) -> tuple[int, ...]:
        """The other trials that the study cannot tell apart from its best, where this is one of them."""
        together = [int(number) for number in self.document.get("indistinguishable") or []]
        return tuple(number for number in together if number != self.number) if self.number in together else ()

    @property
    def corrected(self) -> float | None:
        """The score less what its having been picked adds; None where that is not known, or this is not the best."""
        bias = digest(upgraded(self.document)).selection
        return bias.corrected if bias is not None and bias.number == self.number else None

    def value(self, result: Mapping[str, Any]) -> float | None:
        """What the study would make of a run: its metric, or `worst` where a guard stopped it; None of a failed one."""
        ended = result.get("status") in FINISHED
        return yardstick(self.sweep, self.spec).value(result) if ended else None

    @property
    def is_best(self) -> bool:
        """True where the trial ranks first."""
        return bool((self.document.get("best") or {}).get("number") == self.number)


def promote(request: PromotionRequest, home: Home) -> Promotion:
    """Write ./experiments/NAME.yaml: under the study's profile exactly what the trial ran as.

    Raises UserError (a name that is taken or no name, a trial that did not come to its end, a base that is gone),
    NotFoundError, and StorageError where the file cannot be written. Nothing is left behind then.
    """
    if not request.again:
        new_file(request.name, request.library)  # a name that is taken is said first
    study = find_study(home, request.study)
    winner = _winner(study, request.trial)
    file = _promoted_before(request, winner) if request.again else None
    if file is None:
        file = new_file(request.name, request.library)
        create(file, settled(winner, request.name, request.library))
    notes = []
    if winner.status == "RUNNING":
        notes.append(f"{study.id} is still running: this is its best so far")
    if (doubt := not_apart(winner)) is not None:
        notes.append(doubt)
    return Promotion(name=request.name, file=file, winner=winner, notes=tuple(notes))


def _promoted_before(request: PromotionRequest, winner: Winner) -> Path | None:
    """The experiment's file where this trial was promoted to it before; None where there is none of it.

    Raises UserError where the file is no longer what the trial ran as.
    """
    name, library = request.name, request.library
    if name not in library.files():
        return None
    file, _ = library.files()[name]
    spec = load(name, profile=winner.spec.profile, library=library).spec
    if spec.source != _source(winner):
        return None
    draft = _Draft(winner=winner, file=file, library=library)
    if draft.comparable(spec) != draft.target:
        raise UserError(f"{file} is no longer what trial {winner.number} ran as; put it back, or give another --as")
    return file


def _source(winner: Winner) -> str:
    """What a promoted experiment says of where it comes from."""
    return f"study {winner.study}, trial {winner.number}"


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
        sound = [number for number in document.get("ranking", []) if trials[number]["status"] == "COMPLETED"]
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
            loaded = draft.load(chosen)
            if loaded == target:
                break
            chosen |= {key for key, value in target.items() if key not in loaded or loaded[key] != value}
        else:
            strange = sorted(key for key in {**loaded, **target} if loaded.get(key) != target.get(key))
            raise UserError(f"trial {winner.number} cannot be written on top of today's {base}: {', '.join(strange)}")
        stated = {key for key in chosen if target[key] is not None or _states(winner.settings, key)}
        with suppress(SpecError):
            chosen = stated if draft.load(stated) == target else chosen  # a part that is new needs no nulls in it
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
        return self.comparable(load(self.file, profile=self.winner.spec.profile, library=self.library).spec)

    @property
    def target(self) -> dict[str, object]:
        """What the file must come to."""
        return self.comparable(self.winner.spec)

    def comparable(self, spec: RunSpec) -> dict[str, object]:
        """Dotted key -> value of everything that must be as it was."""
        settings = leaves({key: value for key, value in plain(spec).items() if key not in OWN})
        return {key: value for key, value in settings.items() if key not in self.winner.only_warned}


def _states(settings: tuple[str, ...], key: str) -> bool:
    """True where the sweep itself sets this leaf, a part above it or one below it."""
    return any(key == own or key.startswith(f"{own}.") or own.startswith(f"{key}.") for own in settings)


def _unsound(draft: Path, profile: str, library: Library) -> tuple[str, ...]:
    """The base's other profiles that make no valid run together with the winner's settings."""
    unsound = []
    for other in load(draft, profile=profile, library=library).profiles:
        try:
            spec = load(draft, profile=other, library=library).spec
            check_fit(spec)
            registry.build(spec.task)
        except SpecError:
            if other in (profile, "full"):
                raise
            unsound.append(other)
    return tuple(unsound)


def not_apart(winner: Winner) -> str | None:
    """One sentence where the study does not say that this trial is better than all others; None where it does."""
    best = winner.document.get("best") or {}
    if len(winner.trial["seeds"]) < 2:
        return f"trial {winner.number} has one seed: no significance test"
    if winner.document.get("indistinguishable", ()) is None:
        return "the study had no noise to tell its candidates apart by: no significance test"
    if winner.alike:
        return f"trial {winner.number} is not significantly different from {trials_text(winner.alike)}"
    if not winner.is_best and best:
        better = score_text(winner.document["metric"], best.get("score"), best.get("interval"))
        return f"trial {winner.number} is not the study's best: that is {trials_text([best['number']])} with {better}"
    return None


def _apart(document: Mapping[str, Any]) -> str:
    """What the best trial is different from: trials that are not ranked were not tested."""
    ranked, trials = len(document.get("ranking") or ()), len(document["trials"])
    which = " that was ranked" if ranked < trials else ""
    if ranked < 2:
        return f"the only trial{which}: no significance test"
    return f"different from all others{which.replace('was', 'were')} at 95 %"


def text_of(winner: Winner, name: str, chosen: Mapping[str, object], dropped: Sequence[str] = ()) -> str:
    """The file: `chosen` are dotted keys and values that stand under the study's profile; `dropped` profiles go."""
    profile, base = winner.spec.profile, winner.spec.name
    comments = _comments(winner, chosen)
    what = "The winner" if winner.is_best else f"Trial {winner.number}"
    seeds = ", ".join(map(str, winner.trial["seeds"]))
    own = {
        "name": name,
        "revision": 1,
        "extends": base,
        "title": f"{what} of {winner.document['sweep']}: {winner.score} under profile {profile}",
        "question": f"Does what {winner.document['sweep']} found on seeds {seeds} hold on others?",
        "source": _source(winner),
    }
    lines = [*_header(winner), *block_yaml(own).splitlines(), ""]
    if expects := [check["expectation"] for check in winner.trial.get("expects") or []]:
        lines += [*block_yaml({"expects": expects}).splitlines(), ""]
    tree = nested(chosen)
    if profile == FULL:
        lines += commented(tree, "", comments, 0)
        if dropped:
            lines += ["", "profiles:"]
    else:
        start = f"{_INDENT}{profile}:" if tree else f"{_INDENT}{profile}: {{}}"  # a profile of null is none
        lines += ["profiles:", start, *commented(tree, "", comments, 2)]
    lines += [f"{_INDENT}{other}: null  # {base}'s own does not fit these settings" for other in dropped]
    return "\n".join(lines) + "\n"


def _header(winner: Winner) -> list[str]:
    """Comment lines: the evidence, what was searched, and what was not."""
    document, trial, profile, base = winner.document, winner.trial, winner.spec.profile, winner.spec.name
    ended = document.get("ended")
    when = datetime.fromtimestamp(ended, UTC).date().isoformat() if ended else "not ended"
    named = f" ({trial['name']})" if trial.get("name") else ""
    unit = next((key for key, value in (document.get("budget") or {}).items() if value), None)
    spent = f"{document['budget'][unit]} {unit} for each run" if unit else "the steps of each run"
    searched = ", ".join(document.get("axes") or ()) or "named candidates"
    facts = {
        "study": f"{winner.study}, {winner.status}, {when} (UTC)",
        "trial": f"{winner.number}{named} of {len(document['trials'])}: {winner.score}"
        f" ({'no interval' if winner.interval is None else '95 % interval of the mean'})",
        "seeds": ", ".join(map(str, trial["seeds"])),
        **{f"stage {name}": gain_text(gain, winner.gain_metric) for name, gain in (trial.get("stages") or {}).items()},
        **({"intervals": winner.interval_kind.partition(": ")[2]} if trial.get("stages") else {}),
        "budget": spent,
        "searched": searched,
        "not searched": f"everything else: it is {base}'s, and its values below are the same in every trial",
        "significance": not_apart(winner) or _apart(document),
    }
    if winner.only_warned:
        facts["guards"] = f"{base}'s own: that {', '.join(winner.only_warned)} only warn was the study's, to measure"
    lines = ["Written by grpoctl promote. Yours to change; raise the revision when you do.", "", *fact_lines(facts, 14)]
    return [f"# {line}".rstrip() for line in [*lines, "", *_untested(profile, base)]]


def _untested(profile: str, base: str) -> list[str]:
    if profile == FULL:
        return [f"Found under profile full. {base}'s other profiles still scale it, and are untested."]
    text = (
        f"Found under profile {profile}, where the values stand. Profile full is {base}'s own: nothing of this was "
        "tried there, and a learning rate found on a small model is none for a large one."
    )
    return textwrap.wrap(text, COMMENT_WIDTH)


def _comments(winner: Winner, chosen: Mapping[str, object]) -> dict[str, str]:
    """Dotted key, of a leaf or of a part that is varied as a whole -> what the study says of it."""
    params, axes = winner.trial["params"], winner.document.get("axes") or {}
    comments = {key: _of_axis(axes[key]) if key in axes else _of_point(winner) for key in params}
    comments |= {key: "in every trial" for key in winner.settings if key not in comments}
    for key in chosen:
        if not any(key == known or key.startswith(f"{known}.") for known in comments):
            comments[key] = _of_rest(winner, key)
    return comments


def _of_axis(axis: Mapping[str, Any]) -> str:
    if axis.get("values") is not None:
        words = "of " + ", ".join(value_text(value) for value in axis["values"])
    else:
        how = " (log)" if axis.get("log") else f" by {value_text(axis['step'])}" if axis.get("step") else ""
        words = f"searched from {value_text(axis['low'])} to {value_text(axis['high'])}{how}"
    when = axis.get("when") or {}
    conditions = [f"{key} is {', '.join(value_text(value) for value in values)}" for key, values in when.items()]
    return f"{words}; only where {' and '.join(conditions)}" if conditions else words


def _of_point(winner: Winner) -> str:
    name = winner.trial.get("name")
    return f"what {name} stands for" if name else "the trial's own"


def _of_rest(winner: Winner, key: str) -> str:
    last = key.rsplit(".", 1)[-1]
    if key.startswith("budget"):
        return "what every run could spend"
    if last == "prompts_per_step":
        return "from num_generations, so that every trial samples as much in a step"
    if last in ("max_steps", "epochs"):
        return "from the budget"
    return f"as the trial ran; {winner.spec.name} says otherwise today"
