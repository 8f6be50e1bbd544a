"""Our own runs: a run directory -> a case. `case_of_run` is also what a run's own result.json is judged by.

What is here: rows, samples and the log of one run. What is not: where runs are (grpoctl.runs). A study is refused: its
trials are diagnosed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from core.config import RunSpec
from core.errors import GrpoError, NotFoundError
from core.health.case import Case, Notice, case_of
from grpoctl.config import read_resolved
from grpoctl.diagnose.readers.base import Asked, Read
from grpoctl.diagnose.readers.notices import Notices
from grpoctl.diagnose.readers.own_rows import metric_rows, sample_rows, torn
from grpoctl.diagnose.readers.text import text_lines
from grpoctl.files import Row, read_json
from grpoctl.runs import liveness, status
from grpoctl.runs.launch import identity_of
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import UNDISTURBED
from grpoctl.runs.study_dir import StudyDir, find_study

MOST = 100_000  # samples that are looked at, the newest
_LINES = 10_000  # of log.txt
_FILES = ("metrics.jsonl", "samples.jsonl", "result.json", "spec.yaml")  # a run may be named by one of them


def case_of_run(run: RunDir, rows: Sequence[Row] | None = None) -> Case:
    """The run as far as it has come; torn last lines are left out. `rows` are metrics.jsonl's where they were read.

    Raises StorageError for a damaged file, SpecError for a spec of another version.
    """
    spec = read_resolved(run.spec)
    case = case_of(spec, metric_rows(run.metrics, rows), sample_rows(run.samples, MOST))
    return replace(case, notices=_notices(run), eval_groups=_held_out(spec))


class _RunDirectory:
    """A run of ours by its directory, a file in it, its id or its experiment's name."""

    name = "grpoctl"
    looks_for = "a run directory of ours (spec.yaml, metrics.jsonl), or a run's id or experiment"

    def knows(self, asked: Asked) -> bool:
        """By its spec.yaml; a name is looked up in the home."""
        with suppress(GrpoError, OSError, ValueError, RuntimeError):
            return _place(asked) is not None
        return False

    def read(self, asked: Asked) -> Read:
        """The case; a run that has not ended is read as far as it is."""
        place = _place(asked)
        if isinstance(place, StudyDir):
            raise NotFoundError(_study_line(place))
        assert place is not None  # knows() was asked
        case = case_of_run(place)
        document = None
        with suppress(GrpoError):
            document = read_json(place.result)
        return Read(
            case=case,
            kind=self.name,
            source=str(place.path),
            spec=_experiment(place),
            notes=tuple(_notes(place, case, document)),
            document=document or _identity(place),
        )


READER = _RunDirectory()


def _identity(run: RunDir) -> dict[str, object] | None:
    """What a run that has no result yet was started as."""
    with suppress(GrpoError):
        return identity_of(run)
    return None


def _place(asked: Asked) -> RunDir | StudyDir | None:
    """The run or study that was named; None where there is none. Raises GrpoError where a name fits several."""
    if asked.path is not None:
        folder = (asked.path.parent if asked.path.name in _FILES else asked.path).resolve()
        by_path: list[RunDir | StudyDir] = [RunDir(path=folder), StudyDir(path=folder)]
        found = next((place for place in by_path if place.spec.is_file()), None)
        if found is not None or not asked.path.is_dir():
            return found
    return None if "/" in asked.name or asked.name.startswith("-") else _by_name(asked.name)


def _by_name(name: str) -> RunDir | StudyDir | None:
    home = Home.locate()
    with suppress(NotFoundError):
        return home.find(name)
    with suppress(NotFoundError):
        return find_study(home, name)
    return None


def _notices(run: RunDir) -> tuple[Notice, ...]:
    """What libraries said in the run's log."""
    if not run.log.is_file():
        return ()
    notices = Notices()
    for line in islice(text_lines(run.log), _LINES):
        notices.look(line.text, line.number, None)
    return notices.all()


def _held_out(spec: RunSpec) -> frozenset[str]:
    """The ids that every task gives its prompts of evaluation."""
    return frozenset(f"eval-{number:05d}" for number in range(spec.task.eval_prompts))


def _experiment(run: RunDir) -> str | None:
    with suppress(GrpoError):
        name = (read_json(run.provenance) or {}).get("experiment")
        return str(name) if name else None
    return None


def _notes(run: RunDir, case: Case, document: dict[str, Any] | None) -> list[str]:
    notes = []
    with suppress(GrpoError):
        record = liveness.standing(run)
        step = int(case.rows[-1].get("step") or 0) if case.rows else 0
        if not case.rows:
            notes.append(_no_rows(record, document))
        elif record is not None and not record.status.ended:
            notes.append(f"the run has not ended ({record.status}): read to step {step}")
        elif document is None and run.result.is_file():
            notes.append(f"result.json is damaged: read from its rows, to step {step}")
        elif document is None:
            notes.append(f"the run has no result.json: read from its rows, to step {step}")
    notes += [f"the last row of {file.name} is cut off or damaged: left out" for file in _row_files(run) if torn(file)]
    if len(case.samples) == MOST:
        notes.append(f"only the newest {MOST} completions were looked at")
    return notes


def _no_rows(record: status.StatusRecord | None, document: dict[str, Any] | None) -> str:
    """Why nothing can be looked at: nothing was done yet, nothing was done at all, or what was recorded is gone."""
    steps = (document or {}).get("steps")
    if isinstance(steps, int) and steps > 0:
        ended = (document or {}).get("status")
        return f"metrics.jsonl has no rows, and result.json says {ended} after {steps} steps: the rows are gone"
    if record is not None and not record.status.ended:
        return f"the run has no rows yet: it has not ended ({record.status})"
    return "the run has no rows: it ended before its first step"


def _row_files(run: RunDir) -> tuple[Path, ...]:
    return run.metrics, run.samples


def _study_line(study: StudyDir) -> str:
    """That a study is not a run, and which of its runs to begin with."""
    runs = study.runs()
    line = f"{study.id} is a study; its {len(runs)} runs are diagnosed one by one"
    worst = _worst(runs)
    return f"{line}, the worst first: grpoctl diagnose {worst.id}" if worst else line


def _worst(runs: Sequence[RunDir]) -> RunDir | None:
    """The run that went wrong most plainly: failed before ended, then by its last evaluation; None where none ran."""
    ranked: list[tuple[bool, float, RunDir]] = []
    for run in runs:
        with suppress(GrpoError):
            result = read_json(run.result)
            if result is not None:
                fine = result.get("status") in UNDISTURBED
                reached = (result.get("final") or {}).get("eval/reward")
                ranked.append((fine, float(reached) if reached is not None else float("-inf"), run))
    return min(ranked, key=lambda entry: entry[:2])[2] if ranked else None
