"""A sweep whose workers are jobs of a real SLURM cluster: time limits, a lost node, a killed driver."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpoctl.runs.claims import claims_folder, newest_claim
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import studies
from tests.end_to_end.cli import Cli, Zygote, eventually, rows_of
from tests.services import workload
from tests.services.daemons import open_folder
from tests.services.slurm import Cluster, missing
from tests.services.workload import ended, meanwhile, study_in

pytestmark = [pytest.mark.services, pytest.mark.skipif(bool(missing()), reason=missing())]

SILENCE = "12"  # seconds instead of 30 until a worker counts as lost


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with open_folder("slurm") as folder:
        made = Cluster(folder)
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    made = Zygote(tmp_path_factory.mktemp("zygote"))
    yield made
    made.close()


@pytest.fixture
def user(tmp_path: Path, zygote: Zygote, cluster: Cluster) -> Cli:
    """Somebody with an account of the cluster, who has written the sweep."""
    workload.write(tmp_path / "user")
    environment = {**cluster.environment, "MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "GRPOCTL_SILENCE": SILENCE}
    return Cli(folder=tmp_path / "user", zygote=zygote, environment=environment)


def sweep(*more: str) -> tuple[str, ...]:
    return ("sweep", workload.NAME, "--json", "--parallel", "2", *more)


def runs_of(home: Home) -> list[RunDir]:
    study = study_in(home)
    return study.runs() if study.spec.exists() else []


def hosts(run: RunDir) -> list[str]:
    """The nodes that had a run, one for each attempt."""
    claims = sorted(claims_folder(run.path).glob("attempt-*.json"), key=lambda path: int(path.stem.rpartition("-")[2]))
    return [json.loads(claim.read_text())["host"] for claim in claims]


def at_work(home: Home, node: str) -> RunDir | None:
    """A run that is under way on the node, with a step behind it."""
    for run in runs_of(home):
        claim = newest_claim(run.path)
        if claim is not None and claim.host == node and not claim.ended and len(rows_of(run.metrics)) > 2:
            return run
    return None


def reached(found: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on where a study runs, or how often its workers are lost."""
    keys = ("number", "params", "status", "score", "interval", "values", "statuses", "completions", "tokens", "curve")
    trials = [{key: trial[key] for key in (*keys, "attempts", "message")} for trial in found["trials"]]
    return {"trials": trials, "ranking": found["ranking"], "failures": found["failures"]}


def written(home: Home) -> dict[str, bytes]:
    """Rows and samples of each run."""
    return {
        f"{run.id} {path.name}": path.read_bytes()
        for run in runs_of(home)
        for path in (run.spec, run.metrics, run.samples)
    }


def test_time_limits_and_a_lost_node_change_nothing_about_a_sweep(cluster: Cluster, user: Cli) -> None:
    elsewhere = Home(path=user.folder / "here")
    pool = ended(user.with_environment(GRPOCTL_HOME=str(elsewhere.path)).start(*sweep()), elsewhere)
    assert pool.returncode == 0, pool.stderr

    slow = user.folder / "slow"
    paced = user.with_environment(**{workload.PACE: "0.6", workload.SLOW: str(slow)})
    started = paced.start(*sweep("--executor", "slurm", "--slurm-partition", "short", "--slurm-time", "60"))
    meanwhile(user.home, lambda: at_work(user.home, "n1"), "a run is under way on n1")
    slow.touch()  # the signal finds this run under way: between two runs a worker would just end
    for job in cluster.jobs():
        cluster.limit(job, 3)  # SLURM then sends its signal within half a minute, two minutes before the limit
    meanwhile(user.home, lambda: any(len(hosts(run)) > 1 for run in runs_of(user.home)), "a run went on in another job")
    slow.unlink()
    assert any(cluster.restarts(job) for job in cluster.jobs())  # queued again, not submitted anew
    for job in cluster.jobs():
        cluster.limit(job, 60)
    lost = meanwhile(user.home, lambda: at_work(user.home, "n1"), "a run is under way on n1")
    cluster.lose_node("n1")
    meanwhile(user.home, lambda: hosts(lost)[-1] == "n2", "the run goes on on n2")
    cluster.start_node("n1")
    done = ended(started, user.home)

    assert done.returncode == 0, done.stderr
    assert reached(done.document) == reached(pool.document)
    assert written(user.home) == written(Home(path=user.folder / "here"))
    assert {host for run in runs_of(user.home) for host in hosts(run)} == {"n1", "n2"}
    eventually(lambda: cluster.jobs() == [], "no job is left behind")


def test_a_killed_driver_takes_its_workers_along_and_another_one_goes_on(cluster: Cluster, user: Cli) -> None:
    first = sweep("--executor", "slurm", "--trials", "2", "--slurm-args", "--comment=first")
    started = user.with_environment(**{workload.PACE: "0.6"}).start(*first)
    meanwhile(user.home, lambda: at_work(user.home, "n1") and at_work(user.home, "n2"), "both workers are at work")
    before = set(cluster.jobs())
    assert len(before) == 2
    started.send(signal.SIGKILL)
    meanwhile(user.home, lambda: not before & set(cluster.jobs()), "its workers have ended by themselves")
    claims = [claim for run in runs_of(user.home) if (claim := newest_claim(run.path)) is not None]
    assert all(claim.ended for claim in claims)
    done = ended(user.start(*sweep("--executor", "slurm", "--trials", "2", "--resume")), user.home)
    assert done.returncode == 0, done.stderr
    assert [trial["status"] for trial in done.document["trials"]] == ["COMPLETED", "COMPLETED"]
    for run in runs_of(user.home):
        steps = [row["step"] for row in rows_of(run.metrics)]
        assert steps == sorted(set(steps))
    eventually(lambda: cluster.jobs() == [], "no job is left behind")


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        (("--slurm-partition", "nosuch"), "nosuch"),
        (("--slurm-gpus", "1"), "generic resource"),
        (("--slurm-args", "--time=long"), "--time"),
        (("--slurm-args", "--no-such-option"), "--no-such-option"),
    ],
)
def test_what_sbatch_refuses_is_one_line_before_anything_is_written(
    user: Cli, options: tuple[str, ...], fact: str
) -> None:
    done = user.run(*sweep("--executor", "slurm", *options))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: sbatch")
    assert fact in line
    assert studies(user.home) == []
