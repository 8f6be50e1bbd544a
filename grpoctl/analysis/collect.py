"""Finished runs, read from plain paths into records, and the choice of the runs that stand for one side.

What is here: reading the result, spec and rows of a run and choosing among runs. What is not: where runs and their
files are (grpoctl.runs), and anything that is said about them (compare).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.config.policy import LM
from core.errors import AmbiguousNameError, NotFoundError, StorageError
from grpoctl.config import Library, experiments, sweep_library
from grpoctl.files import read_json, read_resolved_yaml, read_rows
from grpoctl.runs import status
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import FINISHED
from grpoctl.runs.study_dir import find_study

Leaves = Mapping[str, object]
_CUSTOM = "custom"  # the task whose problems and rewards are the user's
# A run id without its seed and number, or its end alone: `p31-tiny-5707c461`, `p31-5707c461`, `5707c461`.
_DIGITS = 6  # of a hash that are enough
_OF_A_SPEC = re.compile(rf"(?:(.+)-)?([0-9a-f]{{{_DIGITS},64}})")
_TOO_SHORT = re.compile(rf"(?:(.+)-)?([0-9a-f]{{1,{_DIGITS - 1}}})")
_OF_A_TRIAL = re.compile(r"(.+)-t(\d+)")
_RUN_OF_A_TRIAL = re.compile(r"(.+-t\d+)-s\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """One run: result.json, the leaves of spec.yaml under dotted keys, the rows of metrics.jsonl, when it ended."""

    result: Mapping[str, object]
    spec: Leaves
    rows: tuple[Mapping[str, object], ...]
    ended: float = 0.0  # seconds since the epoch; tells the newest of several runs
    path: Path | None = None  # its directory, where its other files are

    @property
    def run_id(self) -> str:
        """The run's own name."""
        return str(self.result["run_id"])

    @property
    def trial(self) -> str | None:
        """The trial of a study that it is of (`STUDY-t0007`); None for a run of its own."""
        match = _RUN_OF_A_TRIAL.fullmatch(self.run_id)
        return None if match is None else match[1]

    @property
    def seed(self) -> int:
        """The seed it ran with."""
        return int(str(self.result["seed"]))

    @property
    def task(self) -> str:
        """The name of its task."""
        return str(self.spec.get("task.name"))

    def is_of_task(self, other: RunRecord) -> bool:
        """Whether both runs are of one task: by its name, and of `custom` not with other data and other rewards."""
        if self.task != other.task or self.task != _CUSTOM:
            return self.task == other.task
        data = [{key: run.spec[key] for key in run.spec if key.startswith("task.data.")} for run in (self, other)]
        rewards = [run.spec.get("task.rewards") for run in (self, other)]
        return data[0] == data[1] or rewards[0] == rewards[1]

    @property
    def policy(self) -> str:
        """The kind of its policy."""
        return str(self.spec.get("policy.kind", LM))

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of its stages, in their order."""
        listed = self.spec.get("stages")
        if isinstance(listed, (list, tuple)):
            return tuple(str(name) for name in listed)
        return tuple(dict.fromkeys(key.split(".")[1] for key in self.spec if key.startswith("stages.")))

    @property
    def status(self) -> str:
        """How it ended."""
        return str(self.result["status"])

    def value(self, name: str, part: str = "final") -> float | None:
        """A metric of `part` (start, final or best), or for `final` of the run itself; None where it is missing."""
        within = self.result.get(part)
        places = [within] if isinstance(within, Mapping) else []
        if part == "final":
            # Counts over the whole run may stand beside `final`; completions are counted up in the rows.
            places += [self.result, *self.rows[-1:]]
        return next((number(place[name]) for place in places if place.get(name) is not None), None)


def number(value: object) -> float | None:
    """The value as a float; None for what is missing, not a number or not finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def load_run(path: Path) -> RunRecord:
    """The record of a run that has ended.

    Raises NotFoundError where there is no result (yet), StorageError where a file is damaged.
    """
    run = RunDir(path=path)
    result = read_json(run.result)
    if result is None:
        raise NotFoundError(f"{path} has no result; its run has not ended, or there is none (see: grpoctl ls)")
    settings = _settings(run, read_resolved_yaml(run.spec))
    return RunRecord(result=result, spec=settings, rows=tuple(read_rows(run.metrics)), ended=_ended(run), path=path)


def _settings(run: RunDir, spec: Mapping[str, object]) -> dict[str, object]:
    """The leaves of the spec, the order of its stages where there are several, and the run that init_from came to."""
    leaves = flatten(spec)
    stages = spec.get("stages")
    if isinstance(stages, Mapping) and len(stages) > 1:
        leaves["stages"] = list(stages)
    source = (read_json(run.provenance) or {}).get("init_from")
    return {**leaves, "init_from": Path(source).name} if isinstance(source, str) else leaves


def side(paths: Iterable[Path], experiment: str, *, profile: str | None = None) -> tuple[RunRecord, ...]:
    """The runs that stand for an experiment: its newest spec's, one per seed (the newest finished), by seed.

    `experiment` is a name (`p31`), a recorded revision (`p31@1`) or the hash of a spec, as run ids have it
    (`p31-tiny-5707c461`, `5707c461`). Without a profile the newest run's is taken. Raises NotFoundError where no such
    run has finished, AmbiguousNameError where a hash is the beginning of several.
    """
    results = _results(paths)
    finished = _finished(results, experiment, profile)
    if not finished:
        raise NotFoundError(_why_none(results, experiment, profile))
    # A name means the experiment as its file states it: runs with overrides stand for it only where all have some.
    plain = [(path, result) for path, result in finished if not result.get("overrides")]
    newest = (plain or finished)[0][1]["spec_sha"]  # the profile is part of what is hashed
    chosen: dict[object, Path] = {}
    for path, result in finished:
        if result["spec_sha"] == newest:
            chosen.setdefault(result["seed"], path)
    return tuple(sorted((load_run(path) for path in chosen.values()), key=lambda run: run.seed))


def _why_none(results: Results, name: str, profile: str | None) -> str:
    """Why there is no finished run of this name, and a command that can be run as it stands, or the nearest names."""
    wanted = name.lower()
    base = wanted.partition("@")[0]
    others = sorted({str(of["profile"]) for _, of in _finished(results, name, None)})
    entry = next((one for one in experiments() if one.name == base), None)
    if entry is None and not others:
        if wanted in sweep_library().files():
            return f"{name} is a sweep: grpoctl sweep {name} makes a study, and its trials are named STUDY-t0000"
        there = [*{str(of["experiment"]) for _, of in results}, *(str(of["run_id"]) for _, of in results)]
        near = difflib.get_close_matches(wanted, there, n=1) or difflib.get_close_matches(
            wanted, Library().files(), n=1
        )
        hint = f"did you mean {near[0]}?" if near else "grpoctl ls shows what there is"
        short = _TOO_SHORT.fullmatch(wanted)
        if short is not None and any(_is_of_spec(of, short[1], short[2]) for _, of in results):
            hint = f"{short[2]} begins a spec's hash, of which {_DIGITS} digits or more are needed"
        return f"no experiment, run or trial {name!r}; {hint}"
    under = f" under profile {profile}" if profile else ""
    text = f"no finished run of {name}{under}"
    if others:
        text += f"; there are finished ones under {', '.join(others)}"
    if entry is None:
        return text
    if profile is not None and profile not in entry.profiles:
        return f"{text}; profiles of {entry.name}: {', '.join(entry.profiles)}"
    return f"{text}; start one with: grpoctl run {name}{f' -p {profile}' if profile else ''}"


def shared_profile(paths: Iterable[Path], names: Sequence[str]) -> str | None:
    """The profile of the last name's newest run that all names have finished runs of; None where they share none."""
    results = _results(paths)
    of_names = [[str(result["profile"]) for _, result in _finished(results, name, None)] for name in names]
    return next((profile for profile in of_names[-1] if all(profile in known for known in of_names)), None)


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """The leaves of nested mappings under dotted keys; a list is a leaf, an empty mapping has none."""
    leaves: dict[str, object] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= flatten(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


Results = list[tuple[Path, Mapping[str, object]]]


def _finished(results: Results, name: str, profile: str | None) -> Results:
    """The finished runs of an experiment or recorded revision, else those of the spec whose hash begins so."""
    wanted = name.lower()
    ended = [(path, of) for path, of in results if of["status"] in FINISHED and profile in (None, of["profile"])]
    named = [
        (path, of) for path, of in ended if wanted in (str(of["experiment"]).lower(), str(of["recorded_as"]).lower())
    ]
    match = _OF_A_SPEC.fullmatch(wanted)
    if named or match is None:
        return named
    stem, sha = match.groups()
    fitting = [(path, of) for path, of in ended if _is_of_spec(of, stem, sha)]
    specs = {str(of["spec_sha"]): f"{of['experiment']}-{of['profile']}-{str(of['spec_sha'])[:16]}" for _, of in fitting}
    if len(specs) > 1:
        some = ", ".join(sorted(specs.values()))
        raise AmbiguousNameError(f"{name!r} fits {len(specs)} specs ({some}); give more of the hash")
    return fitting


def _is_of_spec(result: Mapping[str, object], stem: str | None, sha: str) -> bool:
    """Whether a run is of a hash that begins so, and of what stands before it: an experiment, its profile, nothing."""
    experiment = str(result["experiment"]).lower()
    stems = (None, experiment, f"{experiment}-{result['profile']}".lower())
    return stem in stems and str(result["spec_sha"]).startswith(sha)


def _results(paths: Iterable[Path]) -> Results:
    """The results there are, that of the run which ended last first; a damaged one stands for nothing."""
    results = []
    for path in paths:
        run = RunDir(path=path)
        try:
            result = read_json(run.result)
        except StorageError:  # one broken run must not hide the others; naming it says what is wrong with it
            continue
        if result is not None:
            results.append((_ended(run), path, result))
    results.sort(key=lambda entry: entry[:2], reverse=True)
    return [(path, result) for _, path, result in results]


def _ended(run: RunDir) -> float:
    """When the run ended, by its status; by the age of its result where the status does not say."""
    try:
        record = status.read(run.status)
    except StorageError:
        record = None
    return record.ended if record is not None and record.ended is not None else run.result.stat().st_mtime


Side = tuple[RunRecord, ...]


def experiment_name(name: str) -> str:
    """The experiment of a spec's file; any other name as it is."""
    return Path(name).stem if name.lower().endswith(".yaml") else name


def sides(home: Home, names: Sequence[str], profile: str | None) -> list[Side]:
    """The records of each side: an experiment, a spec's hash, a study's trial or a run.

    Without a profile, it is the newest one that all experiments have runs of. Raises NotFoundError where a side has no
    finished run.
    """
    paths = [run.path for run in home.runs()]
    names = [experiment_name(name) for name in names]
    asked, profile = profile, profile or shared_profile(paths, names)

    def resolve(name: str) -> Side:
        try:
            return side(paths, name, profile=profile)
        except AmbiguousNameError:
            raise
        except NotFoundError as error:
            if (trial := trial_side(home, name)) is not None:
                return trial
            try:
                run = home.find(name)
            except NotFoundError:
                raise _a_study(home, name) or error from None
            found = load_run(run.path)
            if asked is not None and found.result["profile"] != asked:
                raise error from None
            return (found,)

    return [resolve(name) for name in names]


def _a_study(home: Home, name: str) -> NotFoundError | None:
    """What to name instead of a study; None where the name is of none."""
    try:
        study = find_study(home, name)
    except (NotFoundError, AmbiguousNameError):
        return None
    return NotFoundError(
        f"{name} is a study ({study.id}), and a side is one of its trials: {study.id}-t0000; "
        f"all of them: grpoctl show {study.id}"
    )


def trial_side(home: Home, name: str) -> Side | None:
    """The finished runs of a study's trial (`lr-study-tiny-1f3a9c2e-1-t0007`), one per seed; None for other names.

    Raises NotFoundError where none of them has finished.
    """
    match = _OF_A_TRIAL.fullmatch(name.lower())
    if match is None:
        return None
    try:
        study = find_study(home, match[1])
    except NotFoundError:
        return None
    number = int(match[2])
    runs = [run for run in study.runs() if run.id.startswith(f"{study.id}-t{number:04d}-s")]
    records = [load_run(run.path) for run in runs if (read_json(run.result) or {}).get("status") in FINISHED]
    if not records:
        raise NotFoundError(f"no run of trial {number} of {study.id} has finished; grpoctl show {study.id} has them")
    return tuple(sorted(records, key=lambda run: run.seed))
