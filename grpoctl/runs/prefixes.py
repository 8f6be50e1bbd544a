"""What runs of a study share: how one of them stood at the end of a stage, kept under a hash of all that led there.

    STUDY/prefixes/wanted.json   the hashes that several runs of the study have; its driver writes it, its runs read it
    STUDY/prefixes/<sha>.lock    held by the one run that is about to make that prefix
    STUDY/prefixes/<sha>/        prefix.json (what it is, and a checksum of each file), metrics.jsonl, samples.jsonl,
                                 timings.jsonl, problems.jsonl, pictures/, checkpoints/ (the stage's end, and the best
                                 one so far)

What is here: the hash, and the folder whole or not there. What is not: when a run makes or takes one
(grpoctl.executors.shared_stages), and which ones a study wants (grpoctl.sweeps.prefixes).
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import core
from core.config import RunSpec
from core.config.policy import BUILT_IN as POLICIES
from core.config.policy import RestorationConfig
from core.config.task import BUILT_IN as TASKS
from core.config.task import CustomTaskSpec
from core.errors import StorageError
from grpoctl.config import canonical, plain
from grpoctl.config.authored import is_file
from grpoctl.fence import fence_of
from grpoctl.files import folder_in_place_of, read_json, remove, replace_json, storage_errors
from grpoctl.host import host_name
from grpoctl.runs.provenance import PACKAGES, inputs_of, sha256, versions
from grpoctl.runs.run_dir import RunDir

SCHEMA = 1
# What of a spec no step reads: what it is called, and what is done, or looked at, when the run is over. Of how often
# checkpoints are written nothing depends; the best one is always there. A new key counts until it is named here.
AFTERWARDS = frozenset(
    {"name", "revision", "title", "question", "source", "profile", "checkpoints", "export", "expects", "recorded"}
)
_ROWS = ("metrics.jsonl", "samples.jsonl", "timings.jsonl", "problems.jsonl")
_CHECKPOINTS, _PICTURES, _NOTE = "checkpoints", "pictures", "prefix.json"


def prefix_sha(spec: RunSpec, stages: int, around: Mapping[str, object]) -> str | None:
    """sha256 (64 hex digits) over all that a run's rows and weights depend on until its first `stages` stages are over.

    That is the seed, the first stages, and every other part of the spec but AFTERWARDS; and of what comes later the
    name of the next stage (which the checkpoint has), and the longest completion of any stage, which evaluations
    allow. The budget counts whole: it may end a stage. `around` is what no spec says (`surroundings`).

    None where there is no such end (0, or the run's own), and where code that no hash covers takes part: a policy or
    task that a package adds, which may read the whole spec, and reward functions of an installed module.
    """
    names, task = list(spec.stages), spec.task
    if not 0 < stages < len(names) or spec.policy.kind not in POLICIES or spec.trainer.kind != "grpoctl":
        return None
    if isinstance(task, CustomTaskSpec):
        if not all(is_file(reward.function.rpartition(":")[0]) for reward in task.rewards):
            return None
    elif task.name not in TASKS:
        return None
    tree = plain(spec)
    content = {
        "spec": {key: value for key, value in tree.items() if key not in AFTERWARDS and key != "stages"},
        "stages": [[name, tree["stages"][name]] for name in names[:stages]],
        "next": names[stages],
        "max_completion_length": spec.max_completion_length,
        "around": dict(around),
    }
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def surroundings(spec: RunSpec, source: str | None) -> dict[str, object]:
    """What a run depends on besides its spec: the content of its files, code, versions, machine.

    `source` is the directory of the run that `init_from` means.
    """
    return {"files": _files(spec), "init_from": None if source is None else _checkpoints_of(Path(source)), **machine()}


def _files(spec: RunSpec) -> dict[str, Any]:
    """path -> sha256 of data, reward functions and trained weights; of a model's folder sizes and times."""
    files = inputs_of(spec)
    if isinstance(spec.policy, RestorationConfig) and spec.policy.weights is not None:
        files[spec.policy.weights] = sha256(Path(spec.policy.weights))
    model = None if spec.model is None else Path(spec.model.source).expanduser()
    if model is not None and model.exists():
        parts = sorted(model.rglob("*")) if model.is_dir() else [model]
        files[str(model)] = [[str(part), part.stat().st_size, part.stat().st_mtime_ns] for part in parts]
    return files


def _checkpoints_of(source: Path) -> dict[str, str | None]:
    """step -> sha256 of its state, which has the weights' checksums: while that run goes on, its best is another."""
    states = sorted(RunDir(path=source).checkpoints.glob("step-*/state.json"))
    return {state.parent.name: sha256(state) for state in states}


@cache
def machine() -> dict[str, object]:
    """Code and machine: a study may be gone on with elsewhere, or after an upgrade, and floats then differ."""
    digest, root = hashlib.sha256(), Path(core.__file__).parent
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return {
        "code": digest.hexdigest(),
        "versions": versions(PACKAGES),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hostname": host_name(),
    }


def shas_of(spec: RunSpec, around: Mapping[str, object]) -> dict[int, str]:
    """stages that are over -> the hash of that prefix, for each that can be shared."""
    shas = {stages: prefix_sha(spec, stages, around) for stages in range(1, len(spec.stages))}
    return {stages: sha for stages, sha in shas.items() if sha is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """What a prefix is: `stages` are over after `step`, and `run` computed that in `seconds` on `device`."""

    stages: int
    step: int
    completions: int
    tokens: int
    seconds: float
    device: str
    run: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Prefixes:
    """The folder of a study's prefixes."""

    folder: Path

    def wanted(self) -> frozenset[str]:
        """The hashes that several runs of the study have; none where nothing is shared."""
        with suppress(StorageError):
            return frozenset((read_json(self.folder / "wanted.json") or {}).get("wanted") or ())
        return frozenset()

    def want(self, shas: Sequence[str]) -> None:
        """Say which hashes several runs have. Raises StorageError."""
        with storage_errors("write", self.folder):
            self.folder.mkdir(exist_ok=True)
        replace_json(self.folder / "wanted.json", {"schema": SCHEMA, "wanted": sorted(shas)}, durable=False)

    def lock(self, sha: str) -> Path:
        """Held by the run that is about to make the prefix."""
        return self.folder / f"{sha}.lock"

    def path(self, sha: str) -> Path:
        """Where the prefix is, or would be."""
        return self.folder / sha

    def there(self, sha: str) -> bool:
        """True when it was made; whether it is intact `read` says."""
        return self.path(sha).is_dir()

    def shas(self) -> list[str]:
        """Those that are there."""
        names = [path.name for path in self.folder.glob("*/")] if self.folder.is_dir() else []
        return sorted(name for name in names if len(name) == 64)

    def read(self, sha: str) -> Made:
        """What the prefix is. Raises StorageError naming what is damaged or missing."""
        folder = self.path(sha)
        document = read_json(folder / _NOTE)
        try:
            if document is None or document["schema"] != SCHEMA or document["sha"] != sha:
                raise StorageError(f"{folder} is damaged: {_NOTE} is missing or of another prefix")
            for name, checksum in document["files"].items():
                if sha256(folder / name) != checksum:
                    raise StorageError(f"{folder} is damaged: {name} does not match its checksum")
            return Made(**{field.name: document[field.name] for field in fields(Made)})
        except (KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{folder} is damaged: {_NOTE} ({type(error).__name__}: {error})") from error

    def draft(self, sha: str, run: RunDir | None = None) -> RunDir:
        """An empty folder to put a prefix of this run together in, as a run's directory; with the right to write into
        the run goes the one to publish it. Raises StorageError.
        """
        fence = None if run is None else fence_of(run.path)
        draft = self.folder / f"writing-{sha}" if fence is None else fence.draft(f"prefix-{sha}")
        with storage_errors("write", draft):
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
        return RunDir(path=draft)

    def publish(self, sha: str, draft: RunDir, made: Made) -> None:
        """Make the draft the prefix, in one stroke and when all of it is on the disk. Raises StorageError."""
        files = sorted(path for path in draft.path.rglob("*") if path.is_file())
        checksums = {str(path.relative_to(draft.path)): sha256(path) for path in files}
        with storage_errors("write", draft.path):
            for path in files:
                _sync(path)
            replace_json(draft.path / _NOTE, {"schema": SCHEMA, "sha": sha, **asdict(made), "files": checksums})
            for folder in (*{path.parent for path in files}, draft.path):
                _sync(folder)
            draft.path.rename(self.path(sha))
            _sync(self.folder)

    def remove(self, sha: str) -> None:
        """Take the prefix away."""
        with suppress(StorageError):
            remove(self.path(sha))


def copy_records(source: RunDir, target: RunDir) -> None:
    """The rows and pictures of a run, whose last step they end with. Raises StorageError.

    Rows are copied, since they are appended to; pictures are only ever replaced.
    """
    with storage_errors("copy", source.path):
        for name in _ROWS:
            if name == source.problem_rows.name and not source.problem_rows.exists():
                continue  # begun by an older version
            shutil.copyfile(source.path / name, target.path / name)
        for picture in sorted(source.pictures.glob("step-*.png")):
            target.pictures.mkdir(exist_ok=True)
            _link(picture, target.pictures / picture.name)


def copy_checkpoint(source: RunDir, target: RunDir, step: Path) -> bool:
    """The checkpoint of a folder's name, whole or not at all; False where the source has none. Raises StorageError.

    A checkpoint's files are never written again, only removed: both runs may name the same ones.
    """
    there, place = source.checkpoints / step.name, target.checkpoints / step.name
    if not there.is_dir():
        return False
    with storage_errors("copy", there), folder_in_place_of(place) as draft:
        for file in there.iterdir():
            _link(file, draft / file.name)
    return True


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
