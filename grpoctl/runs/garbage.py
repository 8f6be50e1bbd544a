"""What of a home can go without anything being lost that a command could still ask for, and taking it away.

Kept, always: everything of a run that goes on or may go on, the best and the last checkpoint of every run (what
`eval`, `export`, `compare`, `init_from` and a study read), and what an unfinished study shares. What is taken away is
first renamed, so that a kill in the middle leaves either all of it or something that the next `gc` takes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.errors import BusyError, StorageError
from grpoctl.files import read_json, storage_errors
from grpoctl.files import remove as remove_file
from grpoctl.host import host_tag
from grpoctl.runs import status
from grpoctl.runs.claims import left_by_attempts
from grpoctl.runs.liveness import study_status
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import StudyStatus
from grpoctl.runs.study_dir import StudyDir, studies

Kind = Literal["checkpoint", "unfinished write", "shared stage", "damaged run", "rows kept twice", "old MLflow store"]
KINDS: dict[Kind, str] = {
    "checkpoint": "checkpoints of ended runs that are neither their best nor their last",
    "unfinished write": "files and folders that a killed process was writing",
    "shared stage": "stages that runs of completed studies shared",
    "damaged run": "damaged runs that a study moved aside and ran again",
    "rows kept twice": "rows of problems that are in problems.parquet, too",
    "old MLflow store": "MLflow's store as it was before a migration",
}
_STEP = re.compile(r"step-(\d+)")
_REMOVING = ".removing-"
# grpoctl.files writes them: the machine (of older versions: this one) and the process. Whether a process of another
# machine still writes cannot be known here: those are left to that machine's gc.
_DRAFT = re.compile(r"\..+?(?:\.([0-9a-f]{8}))?\.(\d+)\.tmp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Garbage:
    """A file or folder that can go. `owner` is the run or study it is of, which is held while it is removed."""

    kind: Kind
    path: Path
    size: int  # bytes that removing it frees
    owner: RunDir | StudyDir | None

    def document(self) -> dict[str, object]:
        """As JSON has it."""
        of = None if self.owner is None else self.owner.id
        return {"kind": self.kind, "path": str(self.path), "bytes": self.size, "of": of}


def find(home: Home, owners: Sequence[RunDir | StudyDir] = ()) -> list[Garbage]:
    """What can go, of these runs and studies, or of the whole home. What cannot be read is left alone."""
    found: list[Garbage] = []
    if owners:
        known = [owner for owner in owners if isinstance(owner, StudyDir)]
        runs = [owner for owner in owners if isinstance(owner, RunDir)]
    else:
        known, runs = studies(home), home.runs()
        old = sorted(home.path.glob("mlflow.db.before-migration*"))
        found += [Garbage(kind="old MLflow store", path=path, size=size_of(path), owner=None) for path in old]
    for run in runs:
        found += _of_run(run)
    for study in known:
        found += _of_study(study)
    return found


def remove(garbage: Garbage) -> None:
    """Take it away. Raises BusyError where its run or study is in use, StorageError where the disk refuses."""
    if garbage.owner is None:
        _remove(garbage.path)
        return
    with garbage.owner.hold():  # which by itself clears up after earlier attempts
        remove_file(garbage.path)


def _remove(path: Path) -> None:
    with storage_errors("remove", path):
        if path.is_dir() and not path.is_symlink():
            aside = path if path.name.startswith(_REMOVING) else path.with_name(f"{_REMOVING}{path.name}")
            path.rename(aside)
            shutil.rmtree(aside)
        else:
            path.unlink(missing_ok=True)


def _of_run(run: RunDir) -> Iterator[Garbage]:
    """Of a run that is over; nothing of one that is held, goes on, or says nothing that can be read."""
    with suppress(StorageError, BusyError):
        record = status.read(run.status)
        if record is None or record.status.resumable or run.is_held():
            return
        yield from (Garbage(kind="checkpoint", path=path, size=size_of(path), owner=run) for path in _spare(run))
        folders = (run.path, run.checkpoints, run.pictures)
        for path in (*(path for folder in folders for path in _half_written(folder)), *left_by_attempts(run.path)):
            yield Garbage(kind="unfinished write", path=path, size=size_of(path), owner=run)
        if run.problems.exists() and run.problem_rows.exists():
            yield Garbage(kind="rows kept twice", path=run.problem_rows, size=size_of(run.problem_rows), owner=run)


def _of_study(study: StudyDir) -> Iterator[Garbage]:
    """Of its runs that are over, and what they shared, once it is completed."""
    with suppress(StorageError):
        if study.is_held() or study_status(study)[0] is StudyStatus.RUNNING:
            return
        for run in study.runs():
            yield from _of_run(run)
        for aside in sorted(study.path.glob("runs/*.damaged-*")):
            yield Garbage(kind="damaged run", path=aside, size=size_of(aside), owner=study)
        for path in (*_half_written(study.path), *left_by_attempts(study.path)):
            yield Garbage(kind="unfinished write", path=path, size=size_of(path), owner=study)
        if study_status(study)[0] is StudyStatus.COMPLETED and study.prefixes.is_dir():
            yield Garbage(kind="shared stage", path=study.prefixes, size=size_of(study.prefixes), owner=study)


def _spare(run: RunDir) -> list[Path]:
    """The checkpoints that nothing asks for: all but the last one and the best. None where the last is damaged."""
    there = {int(match[1]): path for path in run.checkpoints.glob("step-*") if (match := _STEP.fullmatch(path.name))}
    if len(there) < 2:
        return []
    last = max(there)
    state = read_json(there[last] / "state.json")
    progress = (state or {}).get("progress")
    if not isinstance(progress, dict):
        return []
    kept = {last, progress.get("best_step")}
    best = (read_json(run.result) or {}).get("best") or {}
    kept |= {int(best["step"])} if best.get("step") else set()
    return [path for step, path in sorted(there.items()) if step not in kept]


def _half_written(folder: Path) -> list[Path]:
    """What a process that is no more was writing, or taking away, in this folder."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if path.name.startswith(("writing-", _REMOVING))]
    drafts = ((path, match) for path in folder.iterdir() if (match := _DRAFT.fullmatch(path.name)))
    here = ((path, match[2]) for path, match in drafts if match[1] in (None, host_tag()))
    return sorted([*found, *(path for path, process in here if not Path(f"/proc/{process}").exists())])


def size_of(path: Path) -> int:
    """The bytes on disk that go with it: a file that has other names, too, frees nothing."""
    with suppress(OSError):
        files = (
            [path] if not path.is_dir() or path.is_symlink() else [file for file in path.rglob("*") if file.is_file()]
        )
        seen: dict[tuple[int, int], tuple[int, int, int]] = {}
        for file in files:
            entry = file.lstat()
            known = seen.get((entry.st_dev, entry.st_ino), (0, entry.st_nlink, entry.st_blocks * 512))
            seen[entry.st_dev, entry.st_ino] = (known[0] + 1, *known[1:])
        return sum(size for names, links, size in seen.values() if names >= links)
    return 0
