"""trainer_state.json: three that TRL 1.16 wrote (benchmarks/trl_runs.py, seed 0, 40 steps), and damaged ones.

tests/data/trl/healthy.json learns at 3e-4, lr-x100.json breaks at 3e-2, equal-reward.json pays 0.5 for everything.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import GrpoError
from core.health.examine import examine
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.trainer_state import READER, inferred_group_size, read_completions

DATA = Path(__file__).parents[3] / "data" / "trl"


def asked(path: Path) -> Source:
    return Source(name=str(path), path=path)


def written(folder: Path, *entries: dict[str, Any], name: str = "trainer_state.json", **more: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    state = {"global_step": 2, "max_steps": 2, "log_history": list(entries), **more}
    (folder / name).write_text(json.dumps(state))
    return folder / name


def test_a_run_of_trl_has_a_row_for_each_step() -> None:
    read = READER.read(asked(DATA / "healthy.json"))
    assert [row["step"] for row in read.case.rows] == list(range(1, 41))
    first, last = read.case.rows[0], read.case.rows[-1]
    assert first["reward/mean"] == pytest.approx(
        0.21875
    )  # 7 right of 32 at 1 would be that too: here 0.2 each for most
    assert (first["learning_rate"], first["update"], first["groups/dead"]) == (3e-4, 1.0, 0.0)
    assert (last["reward/mean"] or 0.0) > 0.3
    assert {"loss", "grad_norm", "entropy", "completions/length", "completions/truncated", "reward/std"} <= set(first)
    assert (read.kind, read.case.averaged_over, read.case.settings.beta) == ("trainer-state", 1, 0.0)
    assert read.case.settings.max_steps == 40


@pytest.mark.parametrize(
    ("kind", "found"),
    [("lr-x100", {"learning-rate", "policy-collapse"}), ("equal-reward", {"constant-reward", "dead-groups"})],
)
def test_a_planted_fault_is_found(kind: str, found: set[str]) -> None:
    findings = examine(READER.read(asked(DATA / f"{kind}.json")).case)
    assert findings[0].severity != "info"  # nothing but the log: two sound steps prove no cause
    assert found & {finding.id for finding in findings}


def test_a_healthy_run_is_not_accused() -> None:
    findings = examine(READER.read(asked(DATA / "healthy.json")).case)
    assert [finding.id for finding in findings if finding.severity == "error"] == []


def test_a_folder_is_read_by_its_own_state_else_by_its_last_checkpoint(tmp_path: Path) -> None:
    written(tmp_path / "checkpoint-9", {"step": 9, "loss": 0.9})
    written(tmp_path / "checkpoint-10", {"step": 10, "loss": 0.1})
    (tmp_path / "checkpoint-11").mkdir()  # was being written
    assert READER.knows(asked(tmp_path))
    assert [row["step"] for row in READER.read(asked(tmp_path)).case.rows] == [10.0]
    written(tmp_path, {"step": 12, "loss": 0.2})
    assert [row["step"] for row in READER.read(asked(tmp_path)).case.rows] == [12.0]


def test_numbers_as_text_and_no_numbers(tmp_path: Path) -> None:
    file = written(tmp_path, {"step": 1, "loss": "0.5", "grad_norm": float("nan"), "kl": None, "note": "text"})
    assert "NaN" in file.read_text()
    row = READER.read(asked(file)).case.rows[0]
    assert row == {"step": 1.0, "update": 1.0, "loss": 0.5, "grad_norm": None}  # null: nothing was measured


def test_what_stands_beside_it(tmp_path: Path) -> None:
    file = written(tmp_path, {"step": 1, "loss": 0.5, "reward": 0.1})
    (tmp_path / "adapter_config.json").write_text('{"lora_dropout": 0.05}')
    (tmp_path / "training_args.bin").write_bytes(b"\x80\x04cos\nsystem\n")
    read = READER.read(asked(file))
    assert read.case.settings.lora_dropout == 0.05
    assert any("training_args.bin is a pickle" in note and "--set" in note for note in read.notes)
    (tmp_path / "training_args.json").write_text('{"num_generations": 8, "learning_rate": 1e-06, "beta": 0.04}')
    read = READER.read(asked(file))
    assert (read.case.settings.num_generations, read.case.settings.beta) == (8, 0.04)
    assert not any("pickle" in note for note in read.notes)


def test_another_trainer_is_read_without_guesses_about_grpo(tmp_path: Path) -> None:
    file = written(tmp_path, {"step": 1, "loss": 2.5, "learning_rate": 1e-5}, {"step": 1, "eval_loss": 2.4})
    case = READER.read(asked(file)).case
    assert (case.settings.beta, case.settings.ddof) == (None, None)
    assert case.rows[0]["eval/loss"] == 2.4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"log_history": [', "damaged"),
        ('{"log_history": 3}', "no list log_history"),
        ('{"log_history": []}', "nothing was logged"),
        ('{"log_history": [1, "x", {"step": "y"}, {"step": 3, "junk": 1}]}', "nothing was"),
        ('{"log_history": [{"step": 1e400, "loss": 1}]}', "none a step that is a number"),
        ('{"log_history": ' + "[" * 100_000, "damaged"),
    ],
)
def test_a_damaged_one_is_one_line(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(content)
    assert READER.knows(asked(tmp_path))
    with pytest.raises(GrpoError, match=message) as caught:
        READER.read(asked(tmp_path))
    assert "\n" not in str(caught.value)


def test_it_does_not_know_other_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    assert not READER.knows(asked(tmp_path / "config.json"))
    assert not READER.knows(asked(tmp_path))
    assert not READER.knows(Source(name="x", path=None))


def test_a_gzipped_one_is_read(tmp_path: Path) -> None:
    file = tmp_path / "state.json.gz"
    file.write_bytes(gzip.compress((DATA / "healthy.json").read_bytes()))
    assert READER.knows(asked(file))
    assert len(READER.read(asked(file)).case.rows) == 40


def test_steps_as_text_are_steps_and_none_is_told(tmp_path: Path) -> None:
    file = written(tmp_path, {"step": "1", "loss": 0.5}, {"step": "2", "loss": 0.4})
    assert [row["step"] for row in READER.read(asked(file)).case.rows] == [1.0, 2.0]
    file = written(tmp_path, {"loss": 0.5}, {"step": "y", "loss": 0.4})
    with pytest.raises(GrpoError, match="2 entries have metrics, and none a step that is a number"):
        READER.read(asked(file))


def test_settings_of_grpo_are_asked_for_where_there_are_rewards(tmp_path: Path) -> None:
    supervised = READER.read(asked(written(tmp_path, {"step": 1, "loss": 0.5})))
    assert not any("--set" in note for note in supervised.notes)
    assert any("--set" in note for note in READER.read(asked(DATA / "healthy.json")).notes)


REWARDS = {"rewards/right/mean", "reward"}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A folder with two steps of two groups of two."""
    for step in (1, 2):
        kept(tmp_path, step)
    return tmp_path


def kept(folder: Path, step: int, **more: list[Any]) -> None:
    import pyarrow
    import pyarrow.parquet

    (folder / "completions").mkdir(exist_ok=True)
    table: dict[str, list[Any]] = {
        "step": [step] * 4,
        "prompt": ["1+1=", "1+1=", "2+2=", "2+2="],
        "completion": ["2", "3", "4", "4"],
        "right": [1.0, 0.0, 1.0, 1.0],
        "advantage": [0.7, -0.7, 0.0, 0.0],
        **more,
    }
    pyarrow.parquet.write_table(pyarrow.table(table), folder / "completions" / f"completions_{step:05d}.parquet")


def test_rows_become_samples(output: Path) -> None:
    samples, notes = read_completions(output, REWARDS)
    assert notes == []
    assert [sample.step for sample in samples] == [1] * 4 + [2] * 4
    one = samples[1]
    assert (one.row, one.group, one.text, one.reward, one.advantage, one.valid) == (1, "1+1=", "3", 0.0, -0.7, None)
    assert inferred_group_size(samples) == {"num_generations": 2}


def test_no_folder_is_no_samples(tmp_path: Path) -> None:
    assert read_completions(tmp_path, REWARDS) == ((), [])
    assert inferred_group_size(()) == {}


def test_a_conversation_is_its_last_message_and_a_long_prompt_has_a_short_name(tmp_path: Path) -> None:
    turn = [{"role": "user", "content": "Add. " * 40}]
    answer = [{"role": "assistant", "content": "2"}]
    kept(tmp_path, 1, prompt=[turn] * 4, completion=[answer] * 4)
    samples, _ = read_completions(tmp_path, REWARDS)
    assert {sample.text for sample in samples} == {"2"}
    (name,) = {sample.group for sample in samples}
    assert name is not None
    assert len(name) <= 81


def test_of_two_rewards_none_is_the_reward(tmp_path: Path) -> None:
    kept(tmp_path, 1, short=[1.0] * 4)
    samples, _ = read_completions(tmp_path, {*REWARDS, "rewards/short/mean"})
    assert {sample.reward for sample in samples} == {None}
    samples, _ = read_completions(tmp_path, REWARDS)  # `short` is then a column the user logged
    assert [sample.reward for sample in samples] == [1.0, 0.0, 1.0, 1.0]


def test_a_damaged_file_is_told_and_the_others_are_read(output: Path) -> None:
    (output / "completions" / "completions_00002.parquet").write_bytes(b"PAR1 no more")
    samples, notes = read_completions(output, REWARDS)
    assert len(samples) == 4
    (note,) = notes
    assert "1 of 2 files" in note


@pytest.mark.parametrize(
    "text", ['>>> json.load(f)["log_history"]\n', '[{"log_history": []}]', '{"say": "log_history"}']
)
def test_a_text_that_speaks_of_a_history_is_no_state(text: str, tmp_path: Path) -> None:
    (tmp_path / "paste.txt").write_text(text)
    assert not READER.knows(asked(tmp_path / "paste.txt"))


@pytest.mark.parametrize("text", ['\ufeff\n{"epoch": 1, "log_history" : [', '{"log_history":'])
def test_a_state_that_was_cut_off_is_one(text: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(text, encoding="utf-8")
    assert READER.knows(asked(tmp_path / "state.json"))
