"""Which reader a source belongs to, and what is said of one that nobody knows."""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.errors import NotFoundError, SpecError, UserError
from grpoctl.diagnose.readers import registry
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.registry import READERS, AddedReader, open_source

ROOT = Path(__file__).parents[4]
TRL = ROOT / "tests" / "data" / "trl"
LINES = "{'loss': 0.5, 'reward': 0.25}\n{'loss': 0.4, 'reward': 0.5}\n"


def asked(name: object, **more: object) -> Source:
    return Source(name=str(name), path=None, **more)  # type: ignore[arg-type]


def test_every_reader_says_what_it_looks_for() -> None:
    names = [reader.name for reader in READERS]
    assert names == ["mlflow", "trainer-state", "grpoctl", "tensorboard", "csv", "seed-log", "json", "console"]
    assert all(reader.looks_for for reader in READERS)


def test_each_format_goes_to_its_reader(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(LINES)
    (tmp_path / "run.csv").write_text("step,loss\n1,0.5\n2,0.4\n")
    assert open_source(asked(TRL / "healthy.json")).kind == "trainer-state"
    assert open_source(asked(tmp_path / "run.log")).kind == "console"
    assert open_source(asked(tmp_path / "run.csv")).kind == "csv"


class Failing:
    """A package's reader: its `knows` fails on all but its own files, its `read` on those."""

    name = "failing"
    looks_for = "a file that ends in .own"

    def knows(self, source: Source) -> bool:
        if source.path is not None and source.path.suffix == ".own":
            return True
        raise KeyError("no such column")

    def read(self, source: Source) -> Reading:
        if source.path is not None and source.path.stem == "nothing":
            return None  # type: ignore[return-value]
        raise KeyError("no such column")


def test_a_packages_reader_that_fails_is_named_and_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = AddedReader(called="failing of package red", reader=Failing())
    monkeypatch.setattr(registry, "_added_readers", lambda: (added,))
    for name, text in (("run.log", LINES), ("poem.log", "roses are red\n"), ("a.own", "1"), ("nothing.own", "1")):
        (tmp_path / name).write_text(text)
    looked = (
        "the reader failing of package red failed to look at this (KeyError: 'no such column'); the others were asked"
    )
    found = open_source(asked(tmp_path / "run.log"))
    assert (found.kind, len(found.case.rows), found.notes[-1]) == ("console", 2, looked)
    assert looked not in open_source(asked(TRL / "healthy.json")).notes  # of a trainer's state no package is asked
    with pytest.raises(NotFoundError) as unknown:
        open_source(asked(tmp_path / "poem.log"))
    assert str(unknown.value).endswith(f"; {looked}")
    said = r"the reader failing of package red failed on .*a\.own \(KeyError: 'no such column'\)$"
    with pytest.raises(UserError, match=said):
        open_source(asked(tmp_path / "a.own"))
    with pytest.raises(UserError, match=r"nothing\.own: it gave None; allowed: a grpoctl"):
        open_source(asked(tmp_path / "nothing.own"))


def test_cycles_are_searched_for_behind_a_log_as_before_it(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(LINES)
    (tmp_path / "bad.csv").write_text("step,loss\n1,0.5,3\n")
    usual = gc.get_threshold()
    try:
        for threshold in ((700, 10, 10), (0, 10, 10), (100_000, 10, 10)):
            gc.set_threshold(*threshold)
            open_source(asked(tmp_path / "run.log"))
            assert gc.get_threshold() == threshold
            with pytest.raises(SpecError):
                open_source(asked(tmp_path / "bad.csv"))
            assert gc.get_threshold() == threshold
    finally:
        gc.set_threshold(*usual)


def test_a_folder_stands_for_the_one_log_in_it(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(LINES)
    (tmp_path / "train.py").write_text("log({'loss': 0.5, 'reward': 0.25})\n")
    (tmp_path / "README.md").write_text("{'loss': 0.5, 'reward': 0.25}\n")
    (tmp_path / "prices.csv").write_text("item,price\nbread,1\n")
    (tmp_path / ".train.log").write_text(LINES)
    for name in ("tokenizer.json", "generation_config.json", "all_results.json", "vocab.json"):
        (tmp_path / name).write_text('{"train_loss": 0.5, "reward": 0.1}')  # beside every run of Hugging Face's
    found = open_source(asked(tmp_path))
    assert (found.kind, found.source, len(found.case.rows)) == ("console", str(tmp_path / "train.log"), 2)
    (tmp_path / "more.log").write_text(LINES)
    with pytest.raises(NotFoundError, match=r"several logs; name one of them: more\.log, train\.log$"):
        open_source(asked(tmp_path))


def test_a_trainers_folder_says_which_logs_are_not_read_with_its_state(tmp_path: Path) -> None:
    state = {"log_history": [{"step": 1, "reward": 0.5, "loss": 0.1}], "global_step": 1}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert not any("other logs" in note for note in open_source(asked(tmp_path)).notes)
    (tmp_path / "train.log").write_text(LINES)
    (tmp_path / "all_results.json").write_text('{"train_loss": 0.5}')
    notes = open_source(asked(tmp_path)).notes
    assert any("not read with it: train.log;" in note for note in notes)


@pytest.mark.parametrize("files", [0, 1])
def test_a_folder_without_a_log_says_so_and_which_folders_are_read(files: int, tmp_path: Path) -> None:
    for number in range(files):
        (tmp_path / f"train{number}.py").write_text("log({'loss': 0.5, 'reward': 0.25})\n")
    with pytest.raises(NotFoundError, match=r"without a log; what is read is .*trainer_state.json"):
        open_source(asked(tmp_path))


def test_a_log_behind_many_other_files_is_found(tmp_path: Path) -> None:
    for number in range(250):
        (tmp_path / f"a{number}.py").touch()
    (tmp_path / "z.LOG").write_text(LINES)
    assert len(open_source(asked(tmp_path)).case.rows) == 2
    for number in range(250):  # more than are looked at: that there is one log only is not known
        (tmp_path / f"b{number}.txt").write_text("nothing\n")
    with pytest.raises(NotFoundError, match=r"without a log among its first 200 files"):
        open_source(asked(tmp_path))
    (tmp_path / "b.log").write_text(LINES)
    with pytest.raises(NotFoundError, match=r"several logs; name one of them: b\.log and more$"):
        open_source(asked(tmp_path))


def test_a_name_of_two_lines_makes_no_line_more(tmp_path: Path) -> None:
    for name in ("a\nb.log", "c.log"):
        (tmp_path / name).write_text(LINES)
    with pytest.raises(NotFoundError, match=r"several logs") as caught:
        open_source(asked(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["run.csv", "run.tsv", "run.csv.gz"])
def test_a_log_that_is_called_a_table_is_a_log(tmp_path: Path, name: str) -> None:
    text = "Loading: 100%|###| 2/2 [00:01<00:00, 200it/s]\n" + LINES
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    found = open_source(asked(tmp_path / name))
    assert (found.kind, len(found.case.rows)) == ("console", 2)
    seed = tmp_path / "seed.csv"
    seed.write_text("初始化GRPO训练器\n")
    with pytest.raises(NotFoundError, match="ends before its first step"):  # known for what it is
        open_source(asked(seed))
    # A known header makes it a table, whatever stands in its cells; and so does --map.
    table = tmp_path / "table.csv"
    table.write_text("step,loss,said\n1,0.5,\"{'loss': 0.1, 'reward': 1}\"\n")
    assert open_source(asked(table)).kind == "csv"
    table.write_text("A;B\n0.5;\"{'loss': 0.1, 'reward': 1}\"\n")
    assert open_source(asked(table, columns={"A": "loss"})).kind == "csv"
    table.write_text("neither a table\nnor a log\n")
    with pytest.raises(SpecError):
        open_source(asked(table))


def test_values_that_cannot_be_are_left_out_of_any_source(tmp_path: Path) -> None:
    lines = ["{'loss': 0.5, 'reward': 0.5, 'completions/clipped_ratio': 87, 'kl': -0.1}",
             "{'loss': -0.5, 'reward': -1, 'completions/clipped_ratio': 0.5, 'grad_norm': -1}"]  # fmt: skip
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    found = open_source(asked(tmp_path / "run.log"))
    first, second = found.case.rows
    assert "completions/truncated" not in first
    assert (first["kl"], second["completions/truncated"], second["loss"]) == (-0.1, 0.5, -0.5)
    assert "grad_norm" not in second
    assert "completions/truncated: 1 of 2 values left out: a share is between 0 and 1: write 87% or 0.87" in found.notes
    assert any(note.startswith("grad_norm: 1 of 1 values left out: it cannot be negative") for note in found.notes)


def test_a_log_with_a_value_function_has_no_baseline_of_groups(tmp_path: Path) -> None:
    file = tmp_path / "ppo.log"
    lines = "".join(
        f"step:{step} - critic/score/mean:0.1 - critic/vf_loss:0.2 - critic/vf_explained_var:0.5\n"
        for step in (1, 2, 3)
    )
    file.write_text(lines)
    found = open_source(Source(name=str(file), path=None))
    assert found.case.settings.baseline == "none"
    assert any("value function" in note for note in found.notes)
    assert (
        open_source(Source(name=str(file), path=None, settings={"baseline": "group"})).case.settings.baseline == "group"
    )
    file.write_text(lines.replace("\n", " - groups/dead:0.7\n"))  # it tells of groups
    assert open_source(Source(name=str(file), path=None)).case.settings.baseline is None
    file.write_text(lines.replace("critic/vf", "other/vf"))
    assert open_source(Source(name=str(file), path=None)).case.settings.baseline is None


def test_standard_input_is_read_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(LINES.encode())))
    read = open_source(asked("-"))
    assert (read.kind, read.source) == ("console", "standard input")
    assert [row["reward/mean"] for row in read.case.rows] == [0.25, 0.5]


def test_a_pipe_with_a_name_is_read_once(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_text, args=(LINES,))
    writer.start()
    read = open_source(asked(fifo))
    writer.join()
    assert (read.kind, read.source, len(read.case.rows)) == ("console", str(fifo), 2)


def test_what_the_user_says_goes_over_what_was_found() -> None:
    source = TRL / "healthy.json"
    assert open_source(asked(source)).case.settings.beta == 0.0  # TRL logs no kl there
    read = open_source(asked(source, settings={"beta": "0.04", "learning_rate": "3e-4", "max_steps": "null"}))
    assert (read.case.settings.beta, read.case.settings.learning_rate) == (0.04, 3e-4)
    assert read.case.settings.max_steps is None


def test_a_wrong_setting_is_told_before_anything_is_read() -> None:
    with pytest.raises(SpecError, match="did you mean num_generations"):
        open_source(asked("no-such-file.json", settings={"num_generation": "8"}))


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no such file: .*gone\.log"):
        open_source(asked(tmp_path / "gone.log"))


def test_a_name_that_is_no_run_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPOCTL_HOME", str(tmp_path / "home"))
    with pytest.raises(NotFoundError, match=r"no run 'p99' in .*; and there is no file of that name"):
        open_source(asked("p99"))


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "~nobody-of-that-name/x"])
def test_a_name_that_no_path_can_have(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPOCTL_HOME", str(tmp_path / "home"))
    with pytest.raises(NotFoundError):
        open_source(asked(name))


@pytest.mark.parametrize("content", [b"nothing here\n", b"\x7fELF\0\0\1\2" * 50, b"{}", b"[]"])
def test_an_unknown_format_names_what_was_looked_for(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "thing").write_bytes(content)
    with pytest.raises(NotFoundError) as caught:
        open_source(asked(tmp_path / "thing"))
    message = str(caught.value)
    assert "\n" not in message
    assert all(reader.name in message for reader in READERS)


def test_a_log_of_names_that_nobody_knows_says_how_to_map_one(tmp_path: Path) -> None:
    (tmp_path / "own.log").write_text("iteration=1 spin=0.2 charge=3\niteration=2 spin=0.3 charge=3\n")
    with pytest.raises(NotFoundError, match=r"numbers are called charge, spin: --map NAME=METRIC takes one in"):
        open_source(asked(tmp_path / "own.log"))
    (tmp_path / "near.log").write_text("pace=1 avg_r=0.2 foo=3\n")
    with pytest.raises(NotFoundError, match=r"called avg_r, foo, pace: --map reward=avg_r takes one in"):
        open_source(asked(tmp_path / "near.log"))
    mapped = open_source(replace(asked(tmp_path / "near.log"), columns={"avg_r": "reward"}))
    assert mapped.case.rows[0]["reward/mean"] == 0.2


def test_the_only_reward_is_the_whole_of_it(tmp_path: Path) -> None:
    def reward(text: str) -> float | None:
        (tmp_path / "table.csv").write_text(text)
        return open_source(asked(tmp_path / "table.csv")).case.rows[0].get("reward/mean")

    assert reward("step,reach_reward,kl\n1,0.25,0.1\n2,0.5,0.1\n") == 0.25
    assert reward("step,reach_reward,grasp_reward\n1,0.25,0.1\n2,0.5,0.1\n") is None  # which are its parts
    assert reward("step,reach_reward,reward\n1,0.25,0.75\n2,0.5,0.75\n") == 0.75
    assert reward("step,length_penalty_reward,kl\n1,-0.1,0.1\n2,-0.5,0.1\n") is None
    assert reward("step,reach_reward,eval_reward\n1,0.25,0.1\n2,0.5,0.2\n") is None  # a log tells another
    assert reward("step,accuracy\n1,0.25\n2,0.5\n") is None  # as like as not an evaluation


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    with pytest.raises(NotFoundError, match=r"empty.log is empty"):
        open_source(asked(tmp_path / "empty.log"))


@pytest.mark.process
def test_reading_loads_nothing_heavy() -> None:
    heavy = "torch transformers optuna pandas mlflow pyarrow numpy matplotlib"
    code = (
        "import sys; from grpoctl.diagnose.readers.base import Source; "
        "from grpoctl.diagnose.readers.registry import open_source; "
        f"open_source(Source(name={str(TRL / 'healthy.json')!r}, path=None)); "
        f"print([name for name in '{heavy}'.split() if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_a_source_without_a_name_is_refused() -> None:
    with pytest.raises(NotFoundError, match="the source has no name"):
        open_source(asked(""))


def test_a_map_is_refused_where_there_are_no_columns(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(LINES)
    with pytest.raises(SpecError, match=r"run\.log.*--map.*'a'.*there are"):  # a log's names are its columns
        open_source(asked(tmp_path / "run.log", columns={"a": "loss"}))
    with pytest.raises(SpecError, match=r"did you mean reward/mean"):
        open_source(asked(tmp_path / "run.log", columns={"loss": "reward/maen"}))


def test_an_error_in_standard_input_names_no_file_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for data, columns in ((b"a,b\n", {"a": "loss"}), (gzip.compress(b'{"log_history": ['), {})):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        with pytest.raises(SpecError, match=r"^standard input: "):
            open_source(asked("-", columns=columns))


@pytest.mark.parametrize("name", ["run.log", "run.csv"])
def test_a_log_that_grows_may_not_have_what_is_mapped_yet(tmp_path: Path, name: str) -> None:
    """An evaluation's name comes hundreds of steps after the first row: until then rows are rows all the same."""
    text = {"run.log": "step: 1 - qux: 0.5\nstep: 2 - qux: 0.6\n", "run.csv": "step,qux\n1,0.5\n2,0.6\n"}[name]
    (tmp_path / name).write_text(text)
    columns = {"reward/mean": "qux", "eval/reward": "held_out"}
    found = open_source(asked(tmp_path / name, columns=columns, live=True))
    assert [row["reward/mean"] for row in found.case.rows] == [0.5, 0.6]
    with pytest.raises(SpecError, match="held_out"):  # of a log that is whole it is a mistake
        open_source(asked(tmp_path / name, columns=columns))


@pytest.mark.parametrize(("live", "word"), [(True, "trainer.map"), (False, "--map")])
def test_messages_speak_of_what_mapped(tmp_path: Path, live: bool, word: str) -> None:
    (tmp_path / "run.log").write_text("step: 1 - rewrd: 0.5 - loss: 1\nstep: 2 - rewrd: 0.6 - loss: 1\n")
    (tmp_path / "run.csv").write_text("step,qux\n1,0.5\n")
    with pytest.raises(SpecError) as caught:
        open_source(asked(tmp_path / "run.csv", columns={"reward/meen": "qux"}, live=live))
    assert caught.value.key == word
    with pytest.raises(SpecError) as caught:
        open_source(asked(TRL / "healthy.json", columns={"reward/mean": "qux"}, live=live))
    assert word in str(caught.value)
    if live:
        notes = open_source(asked(tmp_path / "run.log", columns={"reward/mean": "rewd"}, live=True)).notes
        assert [note for note in notes if "trainer.map" in note and "rewd" in note and "did you mean 'rewrd'" in note]
