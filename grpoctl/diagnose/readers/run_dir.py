"""Our own runs: a run directory -> a case. `case_of_run` is also what a run's own result.json is judged by.

What is here: rows, samples and the log of one run, each value of the kind it must be. What is not: where runs are
(grpoctl.runs), and lines that are no JSON (grpoctl.files). A study is refused: its trials are diagnosed one by one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from core.errors import GrpoError, NotFoundError, StorageError
from core.health.case import Case, Notice, Sample, case_of
from core.health.examine import OF_WHOLE_RUNS
from core.health.finding import StepTable
from grpoctl.config import read_resolved
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.text import Notices, text_lines
from grpoctl.files import Row, read_json, read_rows
from grpoctl.runs import liveness, status
from grpoctl.runs.launch import identity_of
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import UNDISTURBED
from grpoctl.runs.study_dir import StudyDir, find_study

_MOST = 100_000  # samples that are looked at, the newest
_LINES = 10_000  # of log.txt
_TAIL = 1 << 22  # bytes in which the last line of a file is looked for
_SHOWN = 40  # characters of a wrong value
_FILES = ("metrics.jsonl", "samples.jsonl", "result.json", "spec.yaml")  # a run may be named by one of them


def case_of_run(run: RunDir, rows: Sequence[Row] | None = None) -> Case:
    """The run as far as it has come; torn last lines are left out. `rows` are metrics.jsonl's where they were read.

    Raises StorageError for a damaged file, SpecError for a spec of another version.
    """
    spec = read_resolved(run.spec)
    case = case_of(spec, _metric_rows(run.metrics, rows), _sample_rows(run.samples))
    held_out = frozenset(f"eval-{number:05d}" for number in range(spec.task.eval_prompts))  # as every task calls them
    return replace(case, notices=_notices(run), eval_groups=held_out)


class _RunDirectory:
    """A run of ours by its directory, a file in it, its id or its experiment's name."""

    name = "grpoctl"
    looks_for = "a run of ours"

    def knows(self, source: Source) -> bool:
        """By its spec.yaml; a name is looked up in the home."""
        with suppress(GrpoError, OSError, ValueError, RuntimeError):
            return _place(source) is not None
        return False

    def read(self, source: Source) -> Reading:
        """The case; a run that has not ended is read as far as it is."""
        place = _place(source)
        if isinstance(place, StudyDir):
            raise NotFoundError(_study_message(place))
        assert place is not None  # knows() came first
        case = case_of_run(place)
        document: dict[str, Any] | None = None
        with suppress(GrpoError):
            document = read_json(place.result)
        experiment, identity = None, None  # which a run without a result was started as
        with suppress(GrpoError):
            experiment = (read_json(place.provenance) or {}).get("experiment")
        with suppress(GrpoError):
            identity = identity_of(place)
        record = None
        with suppress(GrpoError):
            record = liveness.standing(place)
        return Reading(
            case=case,
            kind=self.name,
            whole=record is None or not record.status.resumable,
            source=str(place.path),
            spec=str(experiment) if experiment else None,
            notes=tuple(_notes(place, case, document)),
            document=document or identity,
            pictures=_first_and_last(sorted(place.pictures.glob("step-*.png"))),
        )


READER = _RunDirectory()


def _first_and_last(files: Sequence[Path]) -> tuple[Path, ...]:
    return (*files[:1], *files[1:][-1:])


def _place(source: Source) -> RunDir | StudyDir | None:
    """The run or study that was named; None where there is none. Raises GrpoError where a name fits several."""
    if source.path is not None:
        folder = (source.path.parent if source.path.name in _FILES else source.path).resolve()
        by_path: list[RunDir | StudyDir] = [RunDir(path=folder), StudyDir(path=folder)]
        place = next((place for place in by_path if place.spec.is_file()), None)
        if place is not None or not source.path.is_dir():
            return place
    if "/" in source.name or source.name.startswith("-"):
        return None
    home = Home.locate()
    with suppress(NotFoundError):
        return home.find(source.name, begun=True)
    with suppress(NotFoundError):
        return find_study(home, source.name)
    return None


def _notices(run: RunDir) -> tuple[Notice, ...]:
    """What libraries said in the run's log."""
    if not run.log.is_file():
        return ()
    notices = Notices()
    for line in islice(text_lines(run.log), _LINES):
        notices.look(line.text, line.number, None)
    return notices.all()


def _notes(run: RunDir, case: Case, document: dict[str, Any] | None) -> list[str]:
    notes = []
    with suppress(GrpoError):
        record = liveness.standing(run)
        step = int(case.rows[-1].get("step") or 0) if case.rows else 0
        if not case.rows:
            notes.append(_no_rows(record, document))
        elif record is not None and not record.status.ended:
            notes.append(f"the run has not ended ({record.status}): read to step {step}")
        elif record is not None and record.status.resumable:
            later = ", ".join(OF_WHOLE_RUNS)
            notes.append(f"the run did not come to its end ({record.status}): {later} are not looked at")
        elif document is None and run.result.is_file():
            notes.append(f"result.json is damaged: read from its rows, to step {step}")
        elif document is None:
            notes.append(f"the run has no result.json: read from its rows, to step {step}")
    notes += [
        f"the last row of {file.name} is cut off or damaged: left out"
        for file in (run.metrics, run.samples)
        if _torn(file)
    ]
    if len(case.samples) == _MOST:
        notes.append(f"only the newest {_MOST} completions were looked at")
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


def _study_message(study: StudyDir) -> str:
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


def _metric_rows(path: Path, rows: Sequence[Row] | None = None) -> StepTable:
    """The step table; a NaN is None. `rows` are the file's where it was read already.

    Raises StorageError for text where a number belongs and for a row without step.
    """
    table = []
    for number, row in enumerate(read_rows(path) if rows is None else rows, 1):
        where = f"{path}: row {number}"
        if not _is_whole(row.get("step")):
            raise StorageError(f"{where} has no step; move that run away, or mend the row")
        table.append({name: _number(row, name, where) for name in row})
    return table


def _sample_rows(path: Path) -> tuple[Sample, ...]:
    """The newest samples. Raises StorageError for a value of another kind than its field's."""
    numbered = list(enumerate(read_rows(path), 1))[-_MOST:]
    where = f"{path}: row "
    return tuple(_sample(row, f"{where}{number}") for number, row in numbered if _is_whole(row.get("step")))


def _torn(path: Path) -> bool:
    """Whether the file's last line is half a row or damaged, so that it was left out."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            data = file.read()
    except OSError:
        return False
    if not data.endswith(b"\n"):
        return bool(data)
    with suppress(ValueError):
        return not isinstance(json.loads(data[:-1].rpartition(b"\n")[2]), dict)
    return True


def _sample(row: Mapping[str, Any], where: str) -> Sample:
    return Sample(
        step=int(row["step"]),
        row=_typed(row, "row", int, where),
        group=_typed(row, "prompt_id", str, where),
        text=_typed(row, "text", str, where),
        valid=_typed(row, "valid", bool, where),
        reward=_number(row, "reward", where),
        advantage=_number(row, "advantage", where),
    )


def _number(row: Mapping[str, Any], name: str, where: str) -> float | None:
    value = row.get(name)
    if value is None:
        return None
    if type(value) is float and math.isfinite(value):  # nearly all are
        return value
    if isinstance(value, (int, float)):
        with suppress(OverflowError):
            return value if math.isfinite(value) else None
    raise StorageError(f"{where}: {name}: got {_shown(value)}; a number belongs there")


def _typed(row: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = row.get(name)
    if value is None or type(value) is kind:
        return value
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise StorageError(f"{where}: {name}: got {_shown(value)}; {kind.__name__} belongs there")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 10**15


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text[:_SHOWN] + ("…" if len(text) > _SHOWN else "")
