"""Users, the process they share, and the scenarios, which are made in the background while other tests run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from core.models.sources import builtin
from core.policies.lm.build import tiny_pairs
from tests.end_to_end import scenarios
from tests.end_to_end.cli import Cli, Zygote
from tests.end_to_end.scenarios import Chain, Ended, FullRun, Pair, Undisturbed

# In the order in which tests ask for them.
SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        scenarios.pair, scenarios.p31, scenarios.p30, scenarios.ended, scenarios.undisturbed, scenarios.chain,
        scenarios.p30_sound,
    )
}  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def builtin_model() -> None:
    """The built-in model, made ready: who finds another process at it says so, and what is said is looked at here."""
    builtin.load(tiny_pairs())


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Zygote]:
    own = tmp_path_factory.getbasetemp()
    zygote = Zygote(own.parent if hasattr(request.config, "workerinput") else own)
    yield zygote
    zygote.close()


@pytest.fixture(scope="session")
def background(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote
) -> Iterator[dict[str, Future[Any]]]:
    """The scenarios that the chosen tests ask for, two at a time; begun by the first test that looks at one."""
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {
            name: pool.submit(make, tmp_path_factory.mktemp(name), zygote)
            for name, make in SCENARIOS.items()
            if name in asked
        }
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def cli(tmp_path: Path, zygote: Zygote) -> Cli:
    """A user with nothing in their folder."""
    return Cli(folder=tmp_path / "user", zygote=zygote)


@pytest.fixture
def lone(tmp_path: Path, zygote: Zygote) -> Cli:
    """A user with nothing in their folder, whose MLflow is away."""
    return scenarios.without_mlflow(tmp_path / "user", zygote)


@pytest.fixture(scope="session")
def p31(background: dict[str, Future[Any]]) -> FullRun:
    return background["p31"].result()  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def p30(background: dict[str, Future[Any]]) -> FullRun:
    return background["p30"].result()  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def p30_sound(background: dict[str, Future[Any]]) -> FullRun:
    return background["p30_sound"].result()  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def pair(background: dict[str, Future[Any]]) -> Pair:
    return background["pair"].result()  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def ended(background: dict[str, Future[Any]]) -> Ended:
    return background["ended"].result()  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def undisturbed(background: dict[str, Future[Any]]) -> Undisturbed:
    return background["undisturbed"].result()  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def chain(background: dict[str, Future[Any]]) -> Chain:
    return background["chain"].result()  # type: ignore[no-any-return]
