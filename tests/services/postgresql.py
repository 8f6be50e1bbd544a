"""Debian's PostgreSQL in a folder of its own: made, started, stopped and started again by a test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from tests.end_to_end.cli import eventually
from tests.services.daemons import Daemon, free_port, listens, program

PASSWORD = "PW77@x/secret"  # with what must be escaped in a URL
USER = "grpoctl"
UNPRIVILEGED = "postgres"  # PostgreSQL refuses to run as root; Debian's package makes this user


def installed() -> Path | None:
    """The folder of the server's programs, the newest version's; None where it is not installed."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parents[1].name))
    found = str(folders[-1]) if folders else program("initdb")
    return None if found is None else Path(found).parent


class PostgreSQL:
    """A server at a free port of this machine, with databases that only `USER` with `PASSWORD` may enter."""

    def __init__(self, folder: Path) -> None:
        binaries = installed()
        assert binaries is not None
        self._binaries, self._folder, self.port = binaries, folder, free_port()
        self._daemon: Daemon | None = None
        if os.geteuid() == 0:
            shutil.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
        password = folder / "password"
        password.write_text(PASSWORD, encoding="utf-8")
        password.chmod(0o644)
        self._run(
            "initdb", "-D", str(self._data), "-U", USER, "--auth=scram-sha-256", f"--pwfile={password}",
            "--no-sync", "--encoding=UTF8", "--locale=C",
        )  # fmt: skip

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def url(self, database: str) -> str:
        """What a user writes for this database, its password included."""
        return f"postgresql://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ("-p", str(self.port), "-k", str(self._folder), "-c", "listen_addresses=127.0.0.1")
        server = str(self._binaries / "postgres")
        daemon = Daemon(self._as_user(server, "-D", str(self._data), *options), self._folder / "server.log")
        self._daemon = daemon
        eventually(lambda: daemon.alive() and self._answers(), "PostgreSQL answers")

    def stop(self, *, crash: bool = False) -> None:
        """Away: no process listens at its port any more. `crash`: by SIGKILL, with what it had in hand."""
        if self._daemon is not None:
            (self._daemon.kill if crash else self._daemon.end)()
        self._daemon = None
        assert not listens(self.port)

    def pause(self) -> None:
        """Stop its processes where they are: it takes connections, and says nothing."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._daemon is not None
        for pid in self._daemon.descendants():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def make(self, database: str) -> str:
        """Make an empty database; gives its URL."""
        self.query(f"CREATE DATABASE {database}", "postgres")
        return self.url(database)

    def query(self, statement: str, database: str) -> list[list[str]]:
        """The rows of a statement, as PostgreSQL's own client prints them."""
        command = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement, self.url(database)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return [line.split("|") for line in done.stdout.splitlines()]

    def _answers(self) -> bool:
        command = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def _as_user(self, *command: str) -> tuple[str, ...]:
        if os.geteuid() != 0:
            return command
        user = (f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups")
        return ("setpriv", *user, *command)

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            self._as_user(str(self._binaries / name), *arguments),
            check=False, capture_output=True, text=True, cwd=self._folder,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
