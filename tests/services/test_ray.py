"""Trials on a Ray cluster of two nodes on this machine, whose nodes, and whose driver, are killed and stopped.

Each node has a name of its own (GRPOCTL_HOST), so that its claims are judged as another machine's. What comes out must
equal, byte for byte, what the pool makes with as many slots.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from grpoctl.runs.claims import newest_claim
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir, studies
from tests.end_to_end.cli import rows_of

pytest.importorskip("ray", reason="Ray is not installed (tests/services/install.sh)")

pytestmark = [pytest.mark.services, pytest.mark.process]

GRPOCTL = str(Path(sys.executable).with_name("grpoctl"))
SWEEP = (
    "advantage-study", "--profile", "tiny", "--trials", "6", "--seeds", "0", "--parallel", "2", "--quiet",
    "budget.completions=256", "settings.evaluation.eval_steps=4", "settings.task.eval_prompts=8",
    "settings.checkpoints.save_steps=2",
)  # fmt: skip
SILENCE = 9.0  # seconds: a node that is stopped counts as gone after so long
PATIENCE = 240.0
NODES = ("node-1", "node-2")


def environment(home: Path) -> dict[str, str]:
    extra = {"GRPOCTL_HOME": str(home), "GRPOCTL_HOST": "driver", "GRPOCTL_SILENCE": str(SILENCE)}
    return {**os.environ, **extra, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def swept(home: Path, *options: str) -> StudyDir:
    """The study, once the command has ended well."""
    command = [GRPOCTL, "sweep", *options]
    done = subprocess.run(
        command, env=environment(home), capture_output=True, text=True, timeout=2 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (study,) = studies(Home(path=home))
    return study


def reached(study: StudyDir) -> dict[str, Any]:
    """What came out: of each trial parameters, status and score, and of each run the bytes that training wrote."""
    trials = json.loads(study.state.read_text())["trials"]
    files = [file for run in study.runs() for file in (run.metrics, run.samples, run.problems)]
    weights = [run.adapter / "adapter_model.safetensors" for run in study.runs()]
    return {
        "trials": [(t["number"], t["params"], t["status"], t["score"], t["seeds"]) for t in trials],
        **{str(file.relative_to(study.path)): file.read_bytes() for file in (*files, *weights)},
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the pool makes."""
    return reached(swept(tmp_path_factory.mktemp("pool"), *SWEEP))


class TwoNodes:
    """A head without a core, where the driver connects, and two nodes of one core each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        small = {"include_dashboard": False, "object_store_memory": 80 * 2**20}
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
        self.address = self._cluster.address
        self._nodes = {
            name: self._cluster.add_node(
                num_cpus=1,
                object_store_memory=small["object_store_memory"],
                env_vars={"GRPOCTL_HOST": name, "GRPOCTL_SILENCE": str(SILENCE), "HF_HUB_OFFLINE": "1"},
            )
            for name in NODES
        }

    def processes(self, name: str) -> list[int]:
        """The node's raylet, its workers, and what they started."""
        return descendants([info.process.pid for infos in self._nodes[name].all_processes.values() for info in infos])

    def signal(self, name: str, number: signal.Signals) -> list[int]:
        """Send it to all of the node; gives whom."""
        processes = self.processes(name)
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return processes

    def close(self) -> None:
        for name in NODES:
            self.signal(name, signal.SIGCONT)
        everything = [pid for name in NODES for pid in self.processes(name)]
        self._cluster.shutdown()
        for pid in everything:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(roots: list[int]) -> list[int]:
    """These processes and all that they have started and that live."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = list(roots)
    for pid in found:
        found += parents.get(pid, [])
    return found


@pytest.fixture
def nodes() -> Iterator[TwoNodes]:
    two = TwoNodes()
    yield two
    two.close()


class Driver:
    """`grpoctl sweep --executor ray`, under way."""

    def __init__(self, home: Path, address: str, log: Path, *options: str) -> None:
        self.home = home
        command = [GRPOCTL, "sweep", *(options or SWEEP), "--executor", "ray", "--address", address]
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, env=environment(home), stdout=output, stderr=output)

    def run_on(self, host: str, steps: int) -> RunDir:
        """A run that is under way on this node and has recorded so many steps."""

        def found() -> RunDir | None:
            known = studies(Home(path=self.home)) if (self.home / "sweeps").is_dir() else []
            for run in (run for study in known for run in study.runs()):
                claim = newest_claim(run.path)
                rows = len(rows_of(run.metrics)) if run.metrics.exists() else 0
                if claim is not None and claim.host == host and not claim.ended and steps <= rows < 13:
                    return run
            assert self.process.poll() is None
            return None

        return until(found, f"a run on {host} has {steps} steps")


def until(look: Any, what: str) -> Any:
    """What `look` gives once that is something."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.02)
    return found


def hosts(run: RunDir) -> list[str]:
    """Who claimed the run, attempt by attempt."""
    files = sorted((run.path / "claims").glob("attempt-*.json"), key=lambda file: int(file.stem.rpartition("-")[2]))
    return [json.loads(file.read_text())["host"] for file in files]


def finished(driver: Driver, log: Path) -> StudyDir:
    """The study, once its driver has ended well."""
    assert driver.process.wait(2 * PATIENCE) == 0, log.read_text()
    (study,) = studies(Home(path=driver.home))
    return study


def test_six_trials_give_what_the_pool_gives(nodes: TwoNodes, expected: dict[str, Any], tmp_path: Path) -> None:
    study = swept(tmp_path / "home", *SWEEP, "--executor", "ray", "--address", nodes.address)
    assert reached(study) == expected
    assert {host for run in study.runs() for host in hosts(run)} == set(NODES)


def test_a_node_that_is_killed_loses_nothing(nodes: TwoNodes, expected: dict[str, Any], tmp_path: Path) -> None:
    driver = Driver(tmp_path / "home", nodes.address, tmp_path / "log")
    run = driver.run_on("node-2", steps=4)
    nodes.signal("node-2", signal.SIGKILL)
    study = finished(driver, tmp_path / "log")
    assert reached(study) == expected
    assert hosts(run)[-1] == "node-1"


def test_a_node_that_was_stopped_for_a_minute_writes_nothing(
    nodes: TwoNodes, expected: dict[str, Any], tmp_path: Path
) -> None:
    driver = Driver(tmp_path / "home", nodes.address, tmp_path / "log")
    run = driver.run_on("node-2", steps=4)
    stopped, since = nodes.signal("node-2", signal.SIGSTOP), time.monotonic()
    until(lambda: hosts(run)[-1] == "node-1", "its run goes on elsewhere")
    until(lambda: time.monotonic() - since > 60, "a minute is over")
    nodes.signal("node-2", signal.SIGCONT)
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    study = finished(driver, tmp_path / "log")
    until(lambda: not any(is_worker(pid) for pid in stopped), "what was woken has ended")
    assert reached(study) == expected


def test_a_driver_that_is_killed_is_gone_on_with(nodes: TwoNodes, expected: dict[str, Any], tmp_path: Path) -> None:
    first = Driver(tmp_path / "home", nodes.address, tmp_path / "log")
    first.run_on("node-2", steps=4)
    first.process.kill()
    first.process.wait()
    (begun,) = studies(Home(path=tmp_path / "home"))
    second = Driver(tmp_path / "home", nodes.address, tmp_path / "log", begun.id, "--resume", "--parallel", "2")
    study = finished(second, tmp_path / "log")
    assert study == begun
    assert reached(study) == expected


def is_worker(pid: int) -> bool:
    """True for a worker process of ours that lives."""
    with suppress(OSError):
        return b"grpoctl.executors.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
