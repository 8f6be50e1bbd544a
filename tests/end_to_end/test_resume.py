"""Killed, interrupted, damaged, and gone on with: its files end as those of a run that nothing disturbed, each byte."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from grpoctl.runs.run_dir import RunDir
from tests.end_to_end.cli import Cli, eventually, rows_of, step_of, written
from tests.end_to_end.scenarios import (
    MOMENTS,
    RESUMED,
    Chain,
    FullRun,
    Undisturbed,
    attempts,
    checkpoints_of,
    without_mlflow,
)

pytestmark = pytest.mark.process

RESUME = (*RESUMED, "--resume")


def rows(run: RunDir) -> list[bytes]:
    """What must come out the same."""
    return [path.read_bytes() for path in (run.metrics, run.samples, run.problems)]


def test_a_run_that_was_ended_six_times_equals_one_that_was_not(undisturbed: Undisturbed, chain: Chain) -> None:
    assert chain.last.returncode == 0, chain.last.stderr
    run = chain.cli.only_run
    assert attempts(run) == len(MOMENTS) + 1
    assert rows(run) == rows(undisturbed.dir)
    own = ("run_id", "run_dir", "seconds")
    told = [{k: v for k, v in done.document.items() if k not in own} for done in (chain.last, undisturbed.done)]
    assert told[0] == told[1]


def test_the_moments_were_those_that_were_meant(chain: Chain) -> None:
    by_name = {link.name: link for link in chain.links}
    assert by_name["in the first evaluation"].steps == -1
    assert by_name["before the first checkpoint"].checkpoints == ()
    assert by_name["before the first checkpoint"].steps >= 1
    assert any(name.endswith("step-000004") for name in by_name["at a checkpoint"].checkpoints)
    assert by_name["in a step that evaluates"].steps >= 7


def test_every_end_was_told_truly(chain: Chain) -> None:
    links = chain.links
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
    cli = without_mlflow(tmp_path / "user", undisturbed.cli.zygote)
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
    here = str(copied.only_run.path)  # not where the run was before its home was copied
    assert done.document == {**undisturbed.done.document, "run_dir": here}
    assert "nothing to resume" in done.stderr
    assert dict(written(copied.only_run)) == before


def test_rows_lost_with_the_power_are_written_again(copied: Cli, undisturbed: Undisturbed) -> None:
    run = copied.only_run
    killed_before_its_last_word(run)  # its checkpoints reached the disk, the last rows did not
    whole = run.metrics.read_bytes().splitlines(keepends=True)
    run.metrics.write_bytes(b"".join(whole[:11]) + whole[11][:40])
    assert copied.run(*RESUME).returncode == 0
    assert rows(run) == rows(undisturbed.dir)


def test_a_run_that_had_stopped_early_does_not_go_beyond_its_end(lone: Cli) -> None:
    stops = ("checkpoints.save_steps=2", "evaluation.eval_steps=2", "early_stopping={patience: 1, min_delta: 9}")
    first = lone.run(*RESUMED[:4], *stops)
    assert first.document["status"] == "STOPPED_EARLY"
    run = lone.only_run
    before = rows(run)
    run.status.write_text(run.status.read_text().replace('"STOPPED_EARLY"', '"RUNNING"'))
    run.result.unlink()
    again = lone.run(*RESUMED[:4], *stops, "--resume")
    assert (again.returncode, again.document["status"], again.document["steps"]) == (0, "STOPPED_EARLY", 2)
    assert rows(run) == before


def test_the_fault_is_resumed_too(lone: Cli, p30: FullRun) -> None:
    """The mode an update left the model in is part of the state: 14 steps with a kill are the first 14 of p30."""
    steps = ("run", "p30", "--json", "stages.grpo.max_steps=14")
    process = lone.start(*steps)
    eventually(lambda: step_of(lone.first_run) >= 11, "step 11 is done")  # checkpoint at 10
    process.send(signal.SIGKILL)
    process.wait()
    assert lone.run(*steps, "--resume").returncode == 0
    run = lone.only_run
    assert rows_of(run.metrics)[:14] == rows_of(p30.dir.metrics)[:14]  # the last row has an evaluation besides
    assert rows_of(run.samples) == rows_of(p30.dir.samples)[: 14 * 6]


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
