"""Killed, interrupted, damaged, and gone on with: its files end as those of a run that nothing disturbed, byte by byte."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from grpoctl.runs.run_dir import RunDir
from tests.end_to_end.cli import Cli, Done, Zygote, eventually, rows_of, step_of, written
from tests.end_to_end.conftest import FullRun

pytestmark = pytest.mark.process

# Checkpoints and evaluations at 4, 8 and 12, and an evaluation at 0. An evaluation takes longer than a step without one.
RUN = (
    "run", "p31", "--json", "stages.grpo.max_steps=12", "checkpoints.save_steps=4", "evaluation.eval_steps=4",
    "evaluation.num_generations_eval=4", "task.eval_prompts=32",
)  # fmt: skip
RESUME = (*RUN, "--resume")
ROWS = ("metrics.jsonl", "samples.jsonl")


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
    """One attempt of a run that was ended from outside: how, and what was to be seen afterwards."""

    name: str
    done: Done
    steps: int
    checkpoints: tuple[str, ...]
    listed: str  # what `grpoctl ls` says of it


def a_run(cli: Cli) -> RunDir | None:
    """The run there is, once it has a spec."""
    return next(iter(cli.home.runs()), None)


def checkpoints_of(run: RunDir) -> tuple[str, ...]:
    """The folders in checkpoints/, oldest first."""
    return tuple(sorted(path.name for path in run.checkpoints.glob("*")))


def rows(run: RunDir) -> list[bytes]:
    """What must come out the same."""
    return [(run.path / name).read_bytes() for name in ROWS]


def attempts(run: RunDir) -> int:
    """How often it was started."""
    return len(json.loads(run.provenance.read_text())["attempts"])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Undisturbed:
    cli = Cli(folder=tmp_path_factory.mktemp("undisturbed"), zygote=zygote)
    first = cli.start(*RUN)
    run = eventually(lambda: a_run(cli), "the run has a directory")
    eventually(lambda: step_of(run) >= 1, "the run has a step")
    second = cli.run(*RESUME)
    return Undisturbed(cli=cli, second=second, attempts_after_second=attempts(run), done=first.wait())


MOMENTS: list[tuple[str, signal.Signals, Callable[[RunDir], object]]] = [
    # metrics.jsonl is made before the evaluation of step 0 and gets its first row after it.
    ("in the first evaluation", signal.SIGKILL, lambda run: run.metrics.exists()),
    ("before the first checkpoint", signal.SIGKILL, lambda run: step_of(run) >= 1),
    # It is written as `writing-...`, for a few milliseconds; where that is missed it is killed just after.
    ("at a checkpoint", signal.SIGKILL, lambda run: any(run.checkpoints.glob("*step-000004"))),
    ("in a step that evaluates", signal.SIGKILL, lambda run: step_of(run) >= 7),
    ("by Ctrl-C", signal.SIGINT, lambda run: step_of(run) >= 9),
    ("by SIGTERM", signal.SIGTERM, lambda run: step_of(run) >= 10),
]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> tuple[Cli, list[Link], Done]:
    """One run that is ended at every moment of the table, gone on with each time, and let run to its end at last."""
    cli = Cli(folder=tmp_path_factory.mktemp("chain"), zygote=zygote)
    links: list[Link] = []
    for name, number, moment in MOMENTS:
        links.append(_ended(cli, bool(links), name, number, moment))
    return cli, links, cli.run(*RESUME)


def _ended(cli: Cli, resumed: bool, name: str, number: signal.Signals, moment: Callable[[RunDir], object]) -> Link:
    """Start an attempt, wait until it has written something and the moment is there, and end it."""
    before = _stamp(cli.only_run) if resumed else None
    process = cli.start(*(RESUME if resumed else RUN))
    run = eventually(lambda: a_run(cli), "the run has a directory")
    # A resumed attempt cuts the file first, so that rows of the attempt before it are not taken for its own.
    eventually(lambda: _stamp(run) != before and moment(run), name)
    process.send(number)
    done = process.wait()
    (listed,) = cli.run("ls", "--json").document["runs"]
    found = checkpoints_of(run)
    return Link(name=name, done=done, steps=step_of(run), checkpoints=found, listed=listed["status"])


def _stamp(run: RunDir) -> tuple[int, int] | None:
    """Size and time of the metrics; None before there are any."""
    if not run.metrics.exists():
        return None
    found = run.metrics.stat()
    return found.st_size, found.st_mtime_ns


def test_a_run_that_was_ended_six_times_equals_one_that_was_not(
    undisturbed: Undisturbed, chain: tuple[Cli, list[Link], Done]
) -> None:
    cli, _, last = chain
    assert last.returncode == 0, last.stderr
    assert attempts(cli.only_run) == len(MOMENTS) + 1
    assert rows(cli.only_run) == rows(undisturbed.dir)
    own = ("run_id", "run_dir", "seconds")
    told = [{k: v for k, v in done.document.items() if k not in own} for done in (last, undisturbed.done)]
    assert told[0] == told[1]


def test_the_moments_were_those_that_were_meant(chain: tuple[Cli, list[Link], Done]) -> None:
    _, links, _ = chain
    by_name = {link.name: link for link in links}
    assert by_name["in the first evaluation"].steps == -1
    assert by_name["before the first checkpoint"].checkpoints == ()
    assert by_name["before the first checkpoint"].steps >= 1
    assert any(name.endswith("step-000004") for name in by_name["at a checkpoint"].checkpoints)
    assert by_name["in a step that evaluates"].steps >= 7


def test_every_end_was_told_truly(chain: tuple[Cli, list[Link], Done]) -> None:
    _, links, _ = chain
    killed, interrupted = [-signal.SIGKILL] * 4, [130] * 2
    assert [link.done.returncode for link in links] == killed + interrupted
    assert [link.listed for link in links] == ["INTERRUPTED"] * 6
    for link in links[4:]:  # these could speak
        assert link.done.document["status"] == "INTERRUPTED"
        assert "--resume" in link.done.document["message"]
        assert link.done.document["steps"] == link.steps


def test_a_second_process_is_refused_and_changes_nothing(undisturbed: Undisturbed) -> None:
    assert undisturbed.second.returncode == 2
    assert undisturbed.second.stdout == ""
    (line,) = undisturbed.second.stderr.splitlines()
    assert undisturbed.dir.id in line
    assert "in use" in line
    assert undisturbed.attempts_after_second == 1
    assert undisturbed.done.returncode == 0, undisturbed.done.stderr


@pytest.fixture
def copied(undisturbed: Undisturbed, tmp_path: Path) -> Cli:
    """A user with a copy of the undisturbed run."""
    cli = Cli(folder=tmp_path / "user", zygote=undisturbed.cli.zygote)
    shutil.copytree(undisturbed.cli.home.path, cli.home.path)
    return cli


def killed_before_its_last_word(run: RunDir) -> None:
    """The run as `kill -9` leaves it after its last checkpoint and before its adapter, result and status."""
    run.status.write_text(run.status.read_text().replace('"COMPLETED"', '"RUNNING"'))
    run.result.unlink()
    shutil.rmtree(run.adapter)


def damage(checkpoint: Path) -> None:
    """Change one byte of the weights."""
    weights = checkpoint / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)


@pytest.mark.parametrize("newest", [0, 1, None], ids=["none", "the newest", "all"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    copied: Cli, undisturbed: Undisturbed, newest: int | None
) -> None:
    run = copied.only_run
    killed_before_its_last_word(run)
    assert checkpoints_of(run)[-2:] == ("step-000008", "step-000012")
    damaged = checkpoints_of(run)[::-1][:newest]
    for name in damaged:
        damage(run.checkpoints / name)
    done = copied.run(*RESUME)
    assert done.returncode == 0, done.stderr
    notes = [line for line in done.errors if "is damaged" in line]
    assert [name for name, note in zip(damaged, notes, strict=True) if name not in note] == []
    assert rows(run) == rows(undisturbed.dir)
    adapters = [(one.adapter / "adapter_model.safetensors").read_bytes() for one in (run, undisturbed.dir)]
    assert adapters[0] == adapters[1]


def test_going_on_with_a_finished_run_gives_its_result_and_writes_nothing(
    copied: Cli, undisturbed: Undisturbed
) -> None:
    before = dict(written(copied.only_run))
    done = copied.run(*RESUME)
    assert done.returncode == 0
    assert done.document == undisturbed.done.document
    assert "nothing to resume" in done.stderr
    assert dict(written(copied.only_run)) == before


def test_rows_lost_with_the_power_are_written_again(copied: Cli, undisturbed: Undisturbed) -> None:
    run = copied.only_run
    killed_before_its_last_word(run)  # its checkpoints reached the disk, the last rows did not
    whole = run.metrics.read_bytes().splitlines(keepends=True)
    run.metrics.write_bytes(b"".join(whole[:11]) + whole[11][:40])
    assert copied.run(*RESUME).returncode == 0
    assert rows(run) == rows(undisturbed.dir)


def test_a_run_that_had_stopped_early_does_not_go_beyond_its_end(cli: Cli) -> None:
    stops = ("checkpoints.save_steps=2", "evaluation.eval_steps=2", "early_stopping={patience: 1, min_delta: 9}")
    first = cli.run(*RUN[:4], *stops)
    assert first.document["status"] == "STOPPED_EARLY"
    run = cli.only_run
    before = rows(run)
    run.status.write_text(run.status.read_text().replace('"STOPPED_EARLY"', '"RUNNING"'))
    run.result.unlink()
    again = cli.run(*RUN[:4], *stops, "--resume")
    assert (again.returncode, again.document["status"], again.document["steps"]) == (0, "STOPPED_EARLY", 2)
    assert rows(run) == before


def test_the_fault_is_resumed_too(cli: Cli, p30: FullRun) -> None:
    """The mode an update left the model in is part of the state: 20 steps with a kill are the first 20 of p30."""
    steps = ("run", "p30", "--json", "stages.grpo.max_steps=20")
    process = cli.start(*steps)
    run = eventually(lambda: a_run(cli), "the run has a directory")
    eventually(lambda: step_of(run) >= 13, "step 13 is done")  # checkpoint at 10
    process.send(signal.SIGKILL)
    process.wait()
    assert cli.run(*steps, "--resume").returncode == 0
    assert rows_of(run.metrics) == rows_of(p30.dir.metrics)[:21]
    assert rows_of(run.samples) == rows_of(p30.dir.samples)[: 20 * 6]


def test_without_anything_to_go_on_with_a_new_run_is_started(cli: Cli) -> None:
    done = cli.run("run", "p31", "--resume", "--json", "stages.grpo.max_steps=1", "task.eval_prompts=4")
    assert done.returncode == 0
    assert [line for line in done.errors if "starting a new one" in line]


def test_a_spec_edited_meanwhile_is_refused(copied: Cli) -> None:
    run = copied.only_run
    killed_before_its_last_word(run)
    run.spec.write_text(run.spec.read_text().replace("beta: 0.005", "beta: 0.5"))
    before = dict(written(run)) | {"status.json": b""}  # it now says INTERRUPTED, which is true
    done = copied.run(*RESUME)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "spec.yaml" in line
    assert dict(written(run)) | {"status.json": b""} == before
