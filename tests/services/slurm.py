"""Debian's SLURM in a folder of its own: a controller and two nodes on this machine, started and lost by a test."""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
from pathlib import Path

from tests.end_to_end.cli import eventually
from tests.services.daemons import Daemon, free_port, program

NODES = ("n1", "n2")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
# cred_expire: how long SLURM lets a job rest before it starts it once more, two minutes where nobody says otherwise.
CONFIGURATION = """\
ClusterName=grpoctl
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
SlurmdTimeout=20
KillWait=5
{nodes}
PartitionName=short Nodes={names} Default=YES MaxTime=60 State=UP
"""


def missing() -> str:
    """Why there can be no cluster here; empty where there can."""
    if os.geteuid() != 0:
        return "no SLURM: its daemons are started by root"
    lacking = [name for name in PROGRAMS if program(name) is None]
    return f"no SLURM: {', '.join(lacking)} missing; apt-get install slurm-wlm munge" if lacking else ""


class Cluster:
    """Two nodes of one core each, and what it takes to command them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.configuration = folder, folder / "slurm.conf"
        self._nodes: dict[str, Daemon] = {}
        self._daemons: list[Daemon] = []
        host = socket.gethostname().partition(".")[0]
        nodes = [f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=1" for name in NODES]
        text = CONFIGURATION.format(
            host=host, port=free_port(), folder=folder, nodes="\n".join(nodes), names=",".join(NODES)
        )
        self.configuration.write_text(text, encoding="utf-8")
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)

    @property
    def environment(self) -> dict[str, str]:
        """What a user of the cluster has in their environment."""
        return {"SLURM_CONF": str(self.configuration)}

    def start(self) -> None:
        """Start it, and wait until both nodes are idle."""
        munge = [
            *(f"--{name}-file={self.folder / f'munge.{name}'}" for name in ("key", "pid", "log", "seed")),
            f"--socket={self.folder / 'munge.socket'}",
        ]
        self._begin("munged", "--foreground", "--force", *munge)
        eventually((self.folder / "munge.socket").exists, "munged listens")
        self._begin("slurmctld", "-D", "-i")
        for name in NODES:
            self.start_node(name)
        eventually(lambda: self._alive() and self.states() == dict.fromkeys(NODES, "idle"), "both nodes are idle")

    def start_node(self, name: str) -> None:
        """Start the daemon of a node."""
        (self.folder / f"spool-{name}").mkdir(exist_ok=True)
        self._nodes[name] = self._begin("slurmd", "-D", "-N", name)

    def lose_node(self, name: str) -> None:
        """The node's power goes: its daemon and all that runs there are gone at once."""
        self._nodes.pop(name).kill()

    def stop(self) -> None:
        """End all of it, what still runs on the nodes first."""
        for daemon in reversed(self._daemons):
            daemon.kill()
        self._daemons.clear()

    def states(self) -> dict[str, str]:
        """Node -> how it stands; empty where the controller does not answer yet."""
        rows = self.ask("sinfo", "--noheader", "--Node", "--format=%N|%t").splitlines()
        return dict(row.split("|") for row in rows)  # type: ignore[misc]

    def jobs(self) -> list[str]:
        """The jobs that wait or run."""
        return self.ask("squeue", "--noheader", "--format=%i").split()

    def limit(self, job: str, minutes: int) -> None:
        """Set the time limit of a job, unless it has ended."""

        def known() -> bool:  # a controller that is busy is asked again
            self.ask("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}")
            shown = self.ask("scontrol", "show", "job", job)
            limited = f"TimeLimit={minutes // 60:02d}:{minutes % 60:02d}:00" in shown
            return limited or re.search("JobState=(COMPLETED|FAILED|CANCELLED)", shown) is not None

        eventually(known, f"job {job} has a limit of {minutes} minutes")

    def restarts(self, job: str) -> int:
        """How often a job was queued again."""
        match = re.search(r"Restarts=(\d+)", self.ask("scontrol", "show", "job", job))
        return int(match[1]) if match else 0

    def ask(self, *command: str) -> str:
        """What a command of SLURM's prints; empty where it fails."""
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env={**os.environ, **self.environment}
        )
        return done.stdout if done.returncode == 0 else ""

    def _begin(self, name: str, *arguments: str) -> Daemon:
        path = program(name)
        assert path is not None
        daemon = Daemon([path, *arguments], self.folder / f"{name}.log", self.environment)
        self._daemons.append(daemon)
        return daemon

    def _alive(self) -> bool:
        return all(daemon.alive() for daemon in self._daemons)
