"""Users, the process they share, and the runs that several tests look at: each is made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from grpoctl.runs.run_dir import RunDir
from tests.end_to_end.cli import Cli, Done, Zygote

User = Callable[[], Cli]


@dataclass(frozen=True, kw_only=True, slots=True)
class FullRun:
    """A run of a shipped experiment as its author wrote it, in its tiny profile."""

    cli: Cli
    done: Done

    @property
    def dir(self) -> RunDir:
        """Its directory."""
        return self.cli.only_run


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    zygote = Zygote(tmp_path_factory.mktemp("zygote"))
    yield zygote
    zygote.close()


@pytest.fixture
def cli(tmp_path: Path, zygote: Zygote) -> Cli:
    """A user with nothing in their folder."""
    return Cli(folder=tmp_path / "user", zygote=zygote)


@pytest.fixture(scope="session")
def full_runs(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Iterator[dict[str, Future[FullRun]]]:
    """The shipped experiments at full length, two at a time: `p31` from a shell, the others from the zygote."""

    def full(name: str, *settings: str) -> FullRun:
        cli = Cli(folder=tmp_path_factory.mktemp(name), zygote=zygote)
        arguments = ("run", name, "--json", "--profile", "tiny", *settings)
        return FullRun(cli=cli, done=(cli.launch if name == "p31" else cli.start)(*arguments).wait())

    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {
            "p31": pool.submit(full, "p31"),
            "p30": pool.submit(full, "p30"),
            "p30-sound": pool.submit(full, "p30-sound", "stages.grpo.max_steps=40"),
        }


@pytest.fixture(scope="session")
def p31(full_runs: dict[str, Future[FullRun]]) -> FullRun:
    """`grpoctl run p31 --json`."""
    return full_runs["p31"].result()


@pytest.fixture(scope="session")
def p30(full_runs: dict[str, Future[FullRun]]) -> FullRun:
    """`grpoctl run p30 --json`."""
    return full_runs["p30"].result()


@pytest.fixture(scope="session")
def p30_sound(full_runs: dict[str, Future[FullRun]]) -> FullRun:
    """`grpoctl run p30-sound --json`, 40 of its 96 steps."""
    return full_runs["p30-sound"].result()
