"""`provenance.json`: where a run came from (code, versions, machine, command), and what it reads besides its spec.

One entry per attempt; data and reward files are known by the sha256 of their content. Left out are environment
variables, which hold secrets, and passwords in URLs (grpoctl.credentials). Nothing here uses the network, imports the
packages it names, or fails: what cannot be read or found out in time is null.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

from core.config import RunSpec
from core.config.task import CustomTaskSpec, DataSpec, ExampleSelectionTaskSpec, Gsm8kTaskSpec, RestorationTaskSpec
from core.tasks.restoration.pictures import picture_files
from grpoctl.config.authored import is_file
from grpoctl.credentials import without_credentials
from grpoctl.files import read_json, replace_json
from grpoctl.runs.run_dir import RunDir

SCHEMA = 1
DIFF_LIMIT = 200_000  # bytes
GIT_SECONDS = 3.0  # for all questions to git together
PACKAGES = (
    "grpoctl", "torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers", "numpy", "pydantic",
    "ruamel.yaml", "optuna", "mlflow",
)  # fmt: skip
_SHOWN = 12  # digits of a hash in a note

# Without these, a repository's own configuration could run programs, ask for a password or fetch over the network, and
# a diff would rewrite the index of touched files: one that is given up then would leave its lock behind.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "color.ui=false", "-c", "diff.autoRefreshIndex=false", "--no-pager")
_COMMIT = ("rev-parse", "--verify", "--quiet", "HEAD")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules", "HEAD")
_REMOTE = ("config", "--get", "remote.origin.url")
_GIT_ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}


def start(run: RunDir, identity: Mapping[str, object]) -> None:
    """Write `provenance.json` of a new run: what it is, and no attempt yet. Raises StorageError."""
    replace_json(run.provenance, {"schema": SCHEMA, **identity, "attempts": []})


def record(run: RunDir, argv: Sequence[str], git: AskedGit) -> int:
    """Add one attempt to `provenance.json`, with what git answers; gives its number, from 1.

    What the run is (experiment, recorded_as, spec_sha, profile, seed) stands at the top of the file since `start`.
    Raises StorageError where the disk is full or read-only.
    """
    document = read_json(run.provenance) or {"schema": SCHEMA, "attempts": []}
    document["attempts"].append(collect(argv, git))
    replace_json(run.provenance, document)
    return len(document["attempts"])


def note_model(run: RunDir, origin: Mapping[str, object]) -> None:
    """Add to the newest attempt in `provenance.json` where its weights really came from. Raises StorageError."""
    _note_attempt(run, "model", dict(origin))


def note_pause(run: RunDir, where: str) -> None:
    """Add to the newest attempt in `provenance.json` on what it was computed, up to a checkpoint. StorageError."""
    _note_attempt(run, "paused_on", where)


def paused_on(run: RunDir) -> str | None:
    """What the attempt before the newest one noted where it paused; None where it did not, or there is none."""
    attempts: Sequence[Mapping[str, Any]] = (read_json(run.provenance) or {}).get("attempts") or []
    return attempts[-2].get("paused_on") if len(attempts) > 1 else None


def _note_attempt(run: RunDir, key: str, value: object) -> None:
    document = read_json(run.provenance)
    if document and document.get("attempts"):
        document["attempts"][-1][key] = value
        replace_json(run.provenance, document)


def note(run: RunDir, key: str, value: object) -> None:
    """Set what `provenance.json` says of the run as a whole; None takes the key away. Raises StorageError."""
    document = read_json(run.provenance) or {}
    if document.get(key) != value:
        changed = {**document, key: value}
        replace_json(run.provenance, {name: entry for name, entry in changed.items() if entry is not None})


def collect(argv: Sequence[str], git: AskedGit) -> dict[str, Any]:
    """One attempt: argv, started, hostname, pid, python, platform, versions, and what git answers."""
    return {
        "started": time.time(),
        "argv": [without_credentials(argument) for argument in argv],
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "executable": sys.executable,
        "platform": platform.platform(),
        "versions": dict(_versions_here()),
        "git": git.state(),
    }


@cache
def _versions_here() -> Mapping[str, str | None]:
    """Versions of PACKAGES, read once: what this process has imported stays as it is."""
    return versions(PACKAGES)


def versions(packages: Sequence[str]) -> dict[str, str | None]:
    """Package -> installed version, null where it is not installed; imports none of them."""
    by_package: dict[str, str | None] = {}
    for package in packages:
        try:
            by_package[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            by_package[package] = None
    return by_package


class AskedGit:
    """Questions to git about the repository of a folder, asked when this is made: each answers in some milliseconds.

    What has not answered `seconds` after its answer is wanted is given up, and so is all at the end of a `with` block.
    """

    def __init__(self, cwd: Path, seconds: float = GIT_SECONDS) -> None:
        self._cwd, self._seconds = cwd, seconds
        self._commit, self._diff = _ask_git(cwd, *_COMMIT), _ask_git(cwd, *_DIFF)
        self._remote = None if cwd in _remotes else _ask_git(cwd, *_REMOTE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in filter(None, (self._commit, self._diff, self._remote)):
            with process:  # waits for it, and closes its pipe
                process.kill()

    def state(self) -> dict[str, Any] | None:
        """commit, dirty, diff (against the commit, tracked files only), remote; None where there is no commit.

        A diff above DIFF_LIMIT bytes is cut and `diff_cut` says so. `dirty` and `diff` are null where git took too
        long.
        """
        deadline = time.monotonic() + self._seconds
        if not (commit := _answer(self._commit, deadline)):
            return None
        diff = _answer(self._diff, deadline)
        if remote := _answer(self._remote, deadline):
            _remotes[self._cwd] = without_credentials(remote.decode("utf-8", "replace").strip())
        return {
            "commit": commit.decode("ascii", "replace").strip(),
            "dirty": None if diff is None else bool(diff),
            "diff": None if diff is None else without_credentials(diff[:DIFF_LIMIT].decode("utf-8", "replace")),
            "diff_cut": diff is not None and len(diff) > DIFF_LIMIT,
            "remote": _remotes.get(self._cwd),
        }


def git_state(cwd: Path, seconds: float = GIT_SECONDS) -> dict[str, Any] | None:
    """What `AskedGit.state` says of the repository of `cwd`."""
    with AskedGit(cwd, seconds) as git:
        return git.state()


_remotes: dict[Path, str] = {}  # of this process, by the folder that was asked about: a repository does not move


def _ask_git(cwd: Path, *question: str) -> subprocess.Popen[bytes] | None:
    """git at work on the question; None where there is no git."""
    try:
        return subprocess.Popen(
            [*_GIT, *question],
            cwd=cwd,
            env={**os.environ, **_GIT_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None


def _answer(process: subprocess.Popen[bytes] | None, deadline: float) -> bytes | None:
    """What git answers, up to one byte above DIFF_LIMIT; None where it fails, is missing or is too slow."""
    if process is None:
        return None
    with process:
        answer = _read_bounded(process, deadline)
        if answer is None or len(answer) > DIFF_LIMIT:
            process.kill()
            return answer
        with contextlib.suppress(subprocess.TimeoutExpired):
            if process.wait(max(0.1, deadline - time.monotonic())) == 0:
                return answer
        process.kill()
    return None


def _read_bounded(process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """Its output, up to one byte above DIFF_LIMIT; None where the deadline passes first."""
    assert process.stdout is not None
    answer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(answer) <= DIFF_LIMIT:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                break
            answer += piece
    return answer[: DIFF_LIMIT + 1]


def record_inputs(run: RunDir, spec: RunSpec) -> list[str]:
    """Note in provenance.json what this attempt reads; gives a line for each input that changed since the first one.

    `inputs` at the top of the file are the first attempt's; an attempt that reads something else has its own. Raises
    StorageError.
    """
    now, document = inputs_of(spec), read_json(run.provenance)
    if document is None or not now:
        return []
    first = document.setdefault("inputs", now)
    if first != now and document["attempts"]:
        document["attempts"][-1]["inputs"] = now
    replace_json(run.provenance, document)
    return [
        f"{name} has changed since this run began ({_short(first.get(name))} -> {_short(now.get(name))}): "
        "steps before and after this one are not of the same task"
        for name in sorted({*first, *now})
        if first.get(name) != now.get(name)
    ]


def inputs_of(spec: RunSpec) -> dict[str, Any]:
    """path -> sha256 of each file; `hub:NAME` -> config, split and revision of a dataset of the hub."""
    task = spec.task
    if isinstance(task, Gsm8kTaskSpec):
        files = [] if task.path is None else [Path(task.path) / f"{name}.jsonl" for name in ("train", "test")]
        return {str(file): sha256(file) for file in files if file.exists()}
    if isinstance(task, ExampleSelectionTaskSpec) and (named := task.data) is not None:
        paths = (named.path, named.query_embeddings, named.candidate_embeddings)
        return {path: sha256(Path(path)) for path in paths}
    if isinstance(task, RestorationTaskSpec) and task.pictures is not None:
        with contextlib.suppress(OSError):  # a folder that is gone
            return {str(file): sha256(file) for file in picture_files(Path(task.pictures).expanduser())[0]}
    if not isinstance(task, CustomTaskSpec):
        return {}
    parts = (task.data, task.eval_data, task.test_data)
    data_files = {name: value for data in parts if data is not None for name, value in _data(data).items()}
    modules = [reward.function.rpartition(":")[0] for reward in task.rewards]
    return {**data_files, **{file: sha256(Path(file)) for file in modules if is_file(file)}}


def _data(data: DataSpec) -> dict[str, Any]:
    if data.path is not None:
        return {data.path: sha256(Path(data.path))}
    named = {"config": data.config, "split": data.split, "revision": data.revision}
    return {f"hub:{data.hub}[{data.split}]": named}


def sha256(file: Path) -> str | None:
    """64 hex digits over the file's bytes; None where they cannot be read."""
    digest = hashlib.sha256()
    try:
        with file.expanduser().open("rb") as stream:
            while piece := stream.read(1 << 20):
                digest.update(piece)
    except (OSError, RuntimeError):  # RuntimeError: the folder of a user there is not
        return None
    return digest.hexdigest()


def _short(value: str | Mapping[str, object] | None) -> str:
    return "not there" if value is None else value[:_SHOWN] if isinstance(value, str) else str(dict(value))
