"""The process that copies one study and its runs to MLflow: `python -P -m grpoctl.tracking.sweep_mirror STUDY_DIR`.

What is here: how a study is followed; a run's mirror does the rest (mirror). What is not: what is written
(sweep_writer). One process for all runs: importing mlflow costs two seconds, and a sweep has a run every few seconds.
"""

from __future__ import annotations

import gc
import signal
import sys
from pathlib import Path

from grpoctl.runs.liveness import study_ended, unfinished_runs
from grpoctl.runs.study_dir import StudyDir
from grpoctl.tracking.mirror import PASS_LIMIT, Followed, end, has_ended, mirror
from grpoctl.tracking.store import open_client
from grpoctl.tracking.sweep_writer import SweepWriter

POLL = 3.0  # seconds between two passes: rows go in batches of some size, which is what makes them cheap
LOOK = 0.5  # seconds between two looks whether the study has ended


class FollowedStudy:
    """When a study is over, asked twice a second: its file is read only where it has changed, or nobody drives it."""

    def __init__(self, study: StudyDir) -> None:
        self._study = study
        self._seen: tuple[int, int] | None = None

    def ended(self) -> bool:
        """Whether study and runs are over; a run whose process died is first given its true status, INTERRUPTED."""
        try:
            now = self._study.state.stat()
            seen = (now.st_size, now.st_mtime_ns)
        except OSError:
            seen = None
        if seen is not None and seen == self._seen and self._study.is_held():
            return False
        if study_ended(self._study):
            under_way = [run for run in unfinished_runs(self._study) if not has_ended(run)]
            return not under_way
        self._seen = seen
        return False


def followed_study(study: StudyDir) -> Followed:
    """A study as something to follow."""

    def writer() -> SweepWriter:
        client = open_client(study.home)
        # A hundred thousand points are as many short-lived objects, and mlflow's thousand modules stay: a quarter of
        # the time went into looking at these again and again for garbage.
        gc.freeze()
        gc.set_threshold(50_000)
        return SweepWriter(study, client, still=lambda: signal.alarm(PASS_LIMIT))

    return Followed(of=study, ended=FollowedStudy(study).ended, writer=writer, poll=POLL, look=LOOK)


if __name__ == "__main__":
    end(mirror(followed_study(StudyDir(path=Path(sys.argv[1]).resolve())), niceness=10))
