"""What several tests look at: runs that end well, badly, or again and again. Each is made once, in the background."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grpoctl.runs.run_dir import RunDir
from tests.end_to_end.cli import Cli, Done, Zygote, eventually, step_of

Moment = Callable[[RunDir], object]

AWAY = Path(__file__).with_name("mlflow_away")  # for a mirror to import: nothing else that a run starts needs mlflow
PAIR = ("stages.grpo.max_steps=4", "task.eval_prompts=8")

ENDINGS = {  # how a run ends -> (exit code, its status, MLflow's status)
    "good": (0, "COMPLETED", "FINISHED"),
    "guard": (4, "INVALID_ROLLOUT", "FAILED"),
    "Ctrl-C": (130, "INTERRUPTED", "KILLED"),
    "SIGTERM": (130, "INTERRUPTED", "KILLED"),
    "kill -9": (-9, "INTERRUPTED", "KILLED"),
}
SIGNALS = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM, "kill -9": signal.SIGKILL}

# Checkpoints and evaluations at 4, 8 and 12, an evaluation at 0. An evaluation takes longer than a step without one.
RESUMED = (
    "run", "p31", "--json", "stages.grpo.max_steps=12", "checkpoints.save_steps=4", "evaluation.eval_steps=4",
    "evaluation.num_generations_eval=4", "task.eval_prompts=32",
)  # fmt: skip
MOMENTS: list[tuple[str, signal.Signals, Moment]] = [
    # metrics.jsonl is made before the evaluation of step 0 and gets its first row after it.
    ("in the first evaluation", signal.SIGKILL, lambda run: run.metrics.exists()),
    ("before the first checkpoint", signal.SIGKILL, lambda run: step_of(run) >= 1),
    # It is written as `writing-...`, for a few milliseconds; where that is missed it is killed just after.
    ("at a checkpoint", signal.SIGKILL, lambda run: any(run.checkpoints.glob("*step-000004"))),
    ("in a step that evaluates", signal.SIGKILL, lambda run: step_of(run) >= 7),
    ("by Ctrl-C", signal.SIGINT, lambda run: step_of(run) >= 9),
    ("by SIGTERM", signal.SIGTERM, lambda run: step_of(run) >= 10),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class FullRun:
    """A run of a shipped experiment as its author wrote it, in its tiny profile."""

    cli: Cli
    done: Done

    @property
    def dir(self) -> RunDir:
        """Its directory."""
        return self.cli.only_run


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """p30-sound and p31 over two seeds each, in one home."""

    cli: Cli
    done: dict[str, Done]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """Five runs, each ended in its own way; started together where there was no home."""

    cli: Cli
    done: dict[str, Done]

    def run(self, ending: str) -> RunDir:
        """The run that ended so."""
        return _with_seed(self.cli, list(ENDINGS).index(ending))


@dataclass(frozen=True, kw_only=True, slots=True)
class Undisturbed:
    """A run that nothing disturbed, though a second process tried to go on with it meanwhile."""

    cli: Cli
    done: Done
    second: Done
    attempts_after_second: int

    @property
    def dir(self) -> RunDir:
        """Its directory."""
        return self.cli.only_run


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One attempt that was ended from outside: how, how far it was, and what `grpoctl ls` then said."""

    name: str
    done: Done
    steps: int
    checkpoints: tuple[str, ...]
    listed: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    """One run that was ended at every moment of the table, gone on with each time, and let run to its end at last."""

    cli: Cli
    links: list[Link]
    last: Done


def without_mlflow(folder: Path, zygote: Zygote) -> Cli:
    """A user whose MLflow is away: it costs three seconds per run, and most tests do not ask it anything."""
    others = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    away = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "PYTHONPATH": os.pathsep.join([str(AWAY), *others])}
    return Cli(folder=folder, zygote=zygote, environment=away)


def p31(folder: Path, zygote: Zygote) -> FullRun:
    """`grpoctl run p31 --json`, from a shell."""
    cli = Cli(folder=folder, zygote=zygote)
    return FullRun(cli=cli, done=cli.launch("run", "p31", "--json").wait())


def p30(folder: Path, zygote: Zygote) -> FullRun:
    """`grpoctl run p30 --profile tiny --json`."""
    cli = without_mlflow(folder, zygote)
    return FullRun(cli=cli, done=cli.run("run", "p30", "--profile", "tiny", "--json"))


def p30_sound(folder: Path, zygote: Zygote) -> FullRun:
    """`grpoctl run p30-sound --profile tiny --json`, 24 of its 96 steps."""
    cli = without_mlflow(folder, zygote)
    return FullRun(cli=cli, done=cli.run("run", "p30-sound", "--profile", "tiny", "--json", "stages.grpo.max_steps=24"))


def pair(folder: Path, zygote: Zygote) -> Pair:
    """Two experiments over two seeds each, at the same time."""
    cli = without_mlflow(folder, zygote)
    started = {name: cli.start("run", name, "--seeds", "0,1", "--json", *PAIR) for name in ("P30-sound", "p31")}
    return Pair(cli=cli, done={name.lower(): process.wait() for name, process in started.items()})


def ended(folder: Path, zygote: Zygote) -> Ended:
    """A run for each ending; their seeds tell them apart."""
    cli = Cli(folder=folder, zygote=zygote)
    short = ("p31", "task.eval_prompts=4")
    commands = {
        "good": (*short, "stages.grpo.max_steps=3"),
        "guard": ("p30", "guards.rollout_integrity=stop"),
        **dict.fromkeys(SIGNALS, short),
    }
    started = {
        ending: cli.start("run", *commands[ending], "--json", "--seed", str(seed))
        for seed, ending in enumerate(ENDINGS)
    }
    for seed, ending in enumerate(ENDINGS):
        if ending in SIGNALS:
            eventually(lambda seed=seed: step_of(_with_seed(cli, seed)) >= 2, "it has steps")  # type: ignore[misc]
            started[ending].send(SIGNALS[ending])
    return Ended(cli=cli, done={ending: process.wait() for ending, process in started.items()})


def undisturbed(folder: Path, zygote: Zygote) -> Undisturbed:
    """The run that the others must equal."""
    cli = without_mlflow(folder, zygote)
    first = cli.start(*RESUMED)
    eventually(lambda: step_of(cli.first_run) >= 1, "the run has a step")
    second = cli.run(*RESUMED, "--resume")
    return Undisturbed(cli=cli, second=second, attempts_after_second=attempts(cli.only_run), done=first.wait())


def chain(folder: Path, zygote: Zygote) -> Chain:
    """Six attempts that are ended, and one that is not."""
    cli = without_mlflow(folder, zygote)
    links: list[Link] = []
    for name, number, moment in MOMENTS:
        arguments = (*RESUMED, "--resume") if links else RESUMED
        links.append(_ended_at(cli, arguments, name, number, moment))
    return Chain(cli=cli, links=links, last=cli.run(*RESUMED, "--resume"))


def _ended_at(cli: Cli, arguments: tuple[str, ...], name: str, number: signal.Signals, moment: Moment) -> Link:
    """Start an attempt, wait until it has written something and the moment is there, and end it."""
    before = _stamp(cli.first_run)
    process = cli.start(*arguments)
    # A resumed attempt cuts the file first, so that rows of the attempt before it are not taken for its own.
    eventually(lambda: _stamp(cli.first_run) != before and moment(cli.first_run), name)
    process.send(number)
    done, run = process.wait(), cli.only_run
    (listed,) = cli.run("ls", "--json").document["runs"]
    return Link(name=name, done=done, steps=step_of(run), checkpoints=checkpoints_of(run), listed=listed["status"])


def checkpoints_of(run: RunDir) -> tuple[str, ...]:
    """The folders in checkpoints/, oldest first."""
    return tuple(sorted(path.name for path in run.checkpoints.glob("*")))


def attempts(run: RunDir) -> int:
    """How often it was started."""
    return len(json.loads(run.provenance.read_text())["attempts"])


def _with_seed(cli: Cli, seed: int) -> RunDir:
    """The run with that seed; a directory that is not there before it has started."""
    runs = [run for run in cli.home.runs() if f"-s{seed}-" in run.id]
    return runs[0] if runs else RunDir(path=cli.home.runs_folder / "none yet")


def _stamp(run: RunDir) -> tuple[int, int] | None:
    """Size and time of the metrics; None before there are any."""
    if not run.metrics.exists():
        return None
    found = run.metrics.stat()
    return found.st_size, found.st_mtime_ns
