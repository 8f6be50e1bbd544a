"""grpoctl as its user starts it: a process of its own, its exit code, and what it wrote where."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpoctl.runs import status
from grpoctl.runs.run_dir import Home, RunDir

ROOT = Path(__file__).resolve().parents[2]
GRPOCTL = Path(sys.executable).with_name("grpoctl")
PATIENCE = 120.0  # seconds: only a test that fails waits so long


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """A process that has ended."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output; a second one, or anything else beside it, is an error."""
        document = json.loads(self.stdout)
        assert isinstance(document, dict)
        return document

    @property
    def errors(self) -> list[str]:
        """The lines of standard error that are errors or notes: neither header nor progress."""
        return [line for line in self.stderr.splitlines() if line.startswith(("error:", "note:", "Traceback"))]


def eventually(holds: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """What `holds` gives as soon as it is true; fails when it does not become so. For what another process does."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"did not come true in {seconds:g} s: {what}"
        time.sleep(0.005)
    return found


class Started:
    """A grpoctl process under way, and the files its output goes to."""

    def __init__(self, pid: int, wait: Callable[[], int], stdout: Path, stderr: Path) -> None:
        self.pid = pid
        self._wait = wait
        self._stdout, self._stderr = stdout, stderr
        self._done: Done | None = None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process only."""
        os.kill(self.pid, number)

    def wait(self) -> Done:
        """Wait for its end."""
        if self._done is None:
            code = self._wait()
            texts = [
                path.read_text(encoding="utf-8") if path.is_file() else "" for path in (self._stdout, self._stderr)
            ]
            self._done = Done(returncode=code, stdout=texts[0], stderr=texts[1])
        return self._done


class Zygote:
    """The client's side of zygote.py: one for all processes of tests that have the same folder."""

    def __init__(self, folder: Path) -> None:
        self._address = folder / "socket"
        self._server: subprocess.Popen[bytes] | None = None
        with (folder / "zygote.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            presence = self._joined()
            if presence is None:  # nobody was first, or all have left
                script = Path(__file__).with_name("zygote.py")
                # A new environment: settings of the tester come with each request, not with the zygote.
                self._server = subprocess.Popen(
                    [sys.executable, "-P", str(script), str(self._address)],
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    start_new_session=True,
                )
                presence = eventually(self._joined, "the zygote listens")
        self._presence: socket.socket = presence

    def _joined(self) -> socket.socket | None:
        """A connection for as long as we stay; None where no zygote listens."""
        client = socket.socket(socket.AF_UNIX)
        with suppress(OSError):
            client.connect(str(self._address))
            client.sendall(b'{"stays": true}\n')
            if client.recv(64):
                return client
        client.close()
        return None

    def start(self, request: Mapping[str, Any], stdout: Path, stderr: Path) -> Started:
        """Fork a child for the request."""
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self._address))
        lines = client.makefile("rwb")
        lines.write(json.dumps({**request, "stdout": str(stdout), "stderr": str(stderr)}).encode() + b"\n")
        lines.flush()
        pid = int(json.loads(lines.readline())["pid"])

        def wait() -> int:
            client.settimeout(PATIENCE)
            with client, lines:
                return int(json.loads(lines.readline())["returncode"])

        return Started(pid, wait, stdout, stderr)

    def close(self) -> None:
        """Leave it: it ends with the last to leave, and who started it waits. Its children end by themselves."""
        self._presence.close()
        if self._server is not None:
            self._server.wait()


@dataclass(frozen=True, kw_only=True, slots=True)
class Cli:
    """A user in a folder of their own. `home` is where their runs go."""

    folder: Path
    zygote: Zygote
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Home:
        """The home their commands use."""
        return Home(path=self.folder / "home")

    @property
    def only_run(self) -> RunDir:
        """The one run there is."""
        (run,) = self.home.runs()
        return run

    @property
    def first_run(self) -> RunDir:
        """The one run there is; a directory that is not there before it has started."""
        return next(iter(self.home.runs()), RunDir(path=self.home.runs_folder / "none yet"))

    @property
    def env(self) -> dict[str, str]:
        """The tester's environment without settings of grpoctl or MLflow, with this user's."""
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("GRPOCTL_", "MLFLOW_", "COLUMNS"))
        }
        # Without a CUDA device `--profile auto` is tiny, whatever the tester's machine has.
        return {**kept, "CUDA_VISIBLE_DEVICES": "", "GRPOCTL_HOME": str(self.home.path), **self.environment}

    def with_environment(self, **variables: str) -> Cli:
        """The same user with more variables set."""
        return Cli(folder=self.folder, zygote=self.zygote, environment={**self.environment, **variables})

    def start(self, *argv: str, tty: Path | None = None, fsize: int | None = None) -> Started:
        """Start a command. `tty` is a terminal for all its streams, `fsize` the largest file it may write, in bytes."""
        stdout, stderr = self._outputs()
        request = {"argv": argv, "cwd": str(self.folder), "env": self.env, "fsize": fsize}
        if tty is not None:
            stdout = stderr = tty
        return self.zygote.start({**request, "stdin": str(tty or os.devnull)}, stdout, stderr)

    def run(self, *argv: str, fsize: int | None = None) -> Done:
        """Run a command to its end."""
        return self.start(*argv, fsize=fsize).wait()

    def launch(self, *argv: str) -> Started:
        """Start a command from nothing, as a shell would: the console script, imports and all."""
        stdout, stderr = self._outputs()
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = subprocess.Popen(
                [str(GRPOCTL), *argv], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip
        return Started(process.pid, lambda: process.wait(PATIENCE), stdout, stderr)

    def _outputs(self) -> tuple[Path, Path]:
        self.folder.mkdir(exist_ok=True)
        number = sum(1 for _ in self.folder.glob("*.stdout"))
        stdout, stderr = self.folder / f"{number}.stdout", self.folder / f"{number}.stderr"
        stdout.touch(exist_ok=False)
        return stdout, stderr


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The whole rows of a JSONL file; none where there is no file yet."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def status_of(run: RunDir) -> str:
    """What status.json says, nothing before there is one."""
    record = status.read(run.status)
    return "" if record is None else record.status.value


def step_of(run: RunDir) -> int:
    """The last step recorded, -1 before any."""
    rows = rows_of(run.metrics)
    return int(rows[-1]["step"]) if rows else -1


def written(run: RunDir) -> Iterator[tuple[str, bytes]]:
    """Name and content of every file of a run that training wrote: without the mirror's and the locks."""
    for path in sorted(run.path.rglob("*")):
        if path.is_file() and path.name not in ("lock", "mirror.lock", "mirror.log", "mlflow.json"):
            yield str(path.relative_to(run.path)), path.read_bytes()
