"""What the runs of a study share, as its driver sees it: which prefixes several runs have, and who makes one now.

Runs take and make prefixes themselves (grpoctl.executors.shared_stages), so that nothing here decides what a run
computes: a job that is held back is only begun later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from core.config import RunSpec
from core.errors import StorageError
from grpoctl.config import canonical, plain
from grpoctl.files import read_json, remove
from grpoctl.runs.launch import source_of
from grpoctl.runs.prefixes import Prefixes, shas_of, surroundings
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sweeps.candidates import Candidates, identity
from grpoctl.sweeps.validation import point_runs

Use = tuple[str, int]  # a point's identity and a seed: one run of the study


Settle = Callable[[RunSpec], RunSpec]  # a point's spec -> with what the study settles for all of its runs


class SharedPrefixes:
    """The prefixes of a study: which runs that have not ended have each of them, and who makes it."""

    def __init__(self, study: StudyDir, settle: Settle = lambda spec: spec) -> None:
        self._study, self._there, self._settle = study, Prefixes(folder=study.prefixes), settle
        self._uses: dict[str, set[Use]] = {}
        self._shas: defaultdict[Use, list[str]] = defaultdict(list)
        self._makers: dict[str, RunDir] = {}
        self._of_run: dict[RunDir, Use] = {}
        self._around: dict[str, Mapping[str, object]] = {}

    @classmethod
    def of(cls, candidates: Candidates, study: StudyDir, settle: Settle = lambda spec: spec) -> SharedPrefixes:
        """Those of every point, or of as many drawn ones where there are too many to list: a stage that two of them
        have in common. Nothing where the sweep says so, or where no run has a stage before its last.
        """
        sweep, shared = candidates.sweep, cls(study, settle)
        if not sweep.share_stages or not (sweep.candidates or sweep.ladder or len(candidates.reference({}).stages) > 1):
            return shared
        for point in point_runs(candidates):
            for seed in sweep.seeds:
                shared._use(point.params, point.spec.model_copy(update={"seed": seed}))
        return shared

    def begin(self, ended: Iterable[tuple[Mapping[str, Any], Sequence[int]]]) -> list[str]:
        """Tell the runs which prefixes are wanted; `ended` are params and seeds of the trials that are over.

        Takes away what is damaged, and gives a note for each. Raises StorageError.
        """
        notes: list[str] = []
        for sha in self._there.shas():
            try:
                self._there.read(sha)
            except StorageError as error:
                notes.append(f"{error}: it is computed again")
                self._there.remove(sha)
        for params, seeds in ended:
            self._forget(params, seeds)
        if self._wanted or self._there.folder.exists():
            self._there.want(self._wanted)
        return notes

    def add(self, run: RunDir, params: Mapping[str, Any], spec: RunSpec) -> None:
        """A run of the study that may be given to a worker; its point need not be among those that were listed."""
        self._of_run[run] = (identity(params), spec.seed)
        if self._uses and self._of_run[run] not in self._shas:
            self._use(params, spec)

    def submitted(self, runs: Sequence[RunDir]) -> None:
        """A worker has these runs: what they want and nobody has made, they make."""
        for run in runs:
            for sha in self._missing(run):
                self._makers.setdefault(sha, run)

    def being_made(self, runs: Sequence[RunDir]) -> bool:
        """True while another run makes what the first of these needs: begun now, it would only wait."""
        return any(self._makers.get(sha, runs[0]) != runs[0] for sha in self._missing(runs[0]))

    def ended(self, run: RunDir) -> None:
        """However it ended, it makes nothing any more."""
        self._makers = {sha: maker for sha, maker in self._makers.items() if maker != run}

    def trial_ended(self, params: Mapping[str, Any], seeds: Sequence[int]) -> None:
        """Its runs need nothing any more; what no other run needs is taken away. Raises StorageError."""
        if self._forget(params, seeds):
            self._there.want(self._wanted)

    def close(self) -> None:
        """Take all of it away: the study has all it was asked for."""
        remove(self._there.folder)

    @property
    def _wanted(self) -> list[str]:
        return [sha for sha, uses in self._uses.items() if len(uses) > 1]

    def _missing(self, run: RunDir) -> list[str]:
        """What the run has in common with others, and nobody has made."""
        shas = self._shas.get(self._of_run.get(run, ("", 0)), [])
        return [sha for sha in shas if len(self._uses[sha]) > 1 and not self._there.there(sha)]

    def _use(self, params: Mapping[str, Any], spec: RunSpec) -> None:
        """Note what the run of a point and a seed could share."""
        spec, use = self._settle(spec), (identity(params), spec.seed)
        tree = plain(spec)
        key = canonical({name: tree.get(name) for name in ("task", "model", "policy", "init_from")})
        if key not in self._around:  # read once for all runs that have the same files
            self._around[key] = surroundings(spec, source_of(spec, self._study.home))
        self._shas[use] = list(shas_of(spec, self._around[key]).values())
        for sha in self._shas[use]:
            self._uses.setdefault(sha, set()).add(use)

    def _forget(self, params: Mapping[str, Any], seeds: Sequence[int]) -> bool:
        """True where these runs were among those that have something in common."""
        known = False
        for seed in seeds:
            use = (identity(params), seed)
            for sha in self._shas.get(use, ()):
                known = True
                self._uses[sha].discard(use)
                if not self._uses[sha]:
                    self._there.remove(sha)
        return known


def saved(study: StudyDir) -> dict[str, float]:
    """`runs` of the study that took a prefix of another, and what they did not compute: `seconds`, `completions`.

    The seconds are those that the steps took where they were computed.
    """
    taken = [entry for run in study.runs() if (entry := _shared(run)) is not None]
    return {
        "runs": len(taken),
        "seconds": round(sum(float(entry["seconds"]) for entry in taken), 3),
        "completions": sum(int(entry["completions"]) for entry in taken),
    }


def _shared(run: RunDir) -> Mapping[str, Any] | None:
    try:
        entry = (read_json(run.provenance) or {}).get("shared")
    except StorageError:  # damaged: whoever goes on with the run says so
        return None
    return entry if isinstance(entry, dict) and {"seconds", "completions"} <= entry.keys() else None
