"""How often a run may be lost before its job has failed."""

from __future__ import annotations

import os
from collections import Counter

from grpoctl.executors.base import Died, Ended
from grpoctl.runs.claims import newest_claim
from grpoctl.runs.run_dir import RunDir
from grpoctl.sweeps.trial import read_sound_rows

FAILURES = 2  # of a job: the second one is its end
DEATHS = 3  # of workers at one run, in a row and without a further step: fewer may be somebody else's doing
STILLBORN = 10  # workers, in a row, that died before they had begun a run: of that no run is the cause


class Losses:
    """The losses that one driver has seen."""

    def __init__(self) -> None:
        self._failures: Counter[int] = Counter()  # by job
        self._deaths: Counter[str] = Counter()  # by run, since its last step
        self._furthest: dict[str, int] = {}  # the step at which each run lost a worker
        self._begun: dict[str, int] = {}  # each run's newest attempt by a worker
        self._stillborn = 0

    def too_many(self, event: Ended | Died) -> bool:
        """Count a run that failed, or whose worker died; True where its job is not to be gone on with.

        Workers may die any number of times while their run gets further: there are only so many steps.
        """
        if isinstance(event, Ended):
            self._failures[event.job] += 1
            return self._failures[event.job] >= FAILURES
        run = RunDir(path=event.run)
        if not self._was_begun(run):
            self._stillborn += 1
            return self._stillborn >= STILLBORN
        self._stillborn = 0
        rows = read_sound_rows(run)
        step, before = int(rows[-1]["step"]) if rows else -1, self._furthest.get(run.id, -1)
        self._furthest[run.id] = max(step, before)
        self._deaths[run.id] = 0 if step > before else self._deaths[run.id] + 1
        return self._deaths[run.id] >= DEATHS

    def _was_begun(self, run: RunDir) -> bool:
        """Whether a worker had begun the run since it was last lost: who begins one claims it."""
        claim = newest_claim(run.path)
        ours = claim is not None and claim.here and claim.pid == os.getpid()
        if claim is None or ours or claim.attempt == self._begun.get(run.id):
            return False
        self._begun[run.id] = claim.attempt
        return True


def reason(event: Ended | Died) -> str:
    """Why a run was lost, in words."""
    return event.message or "interrupted"
