"""Folders of exported weights: whole or not there, and which of them a name means."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from core.errors import NotFoundError, StorageError, UserError
from grpoctl.config.new_file import create
from grpoctl.exports import weights
from grpoctl.files import read_json, replace_text
from grpoctl.runs.run_dir import Home, RunDir
from tests.conftest import Recorded


def export(run: RunDir, step: int = 2) -> None:
    """What the end of a run leaves, with a word in the place of the weights."""
    with weights.whole_folder(run.adapter) as draft:
        (draft / "weights").write_text(f"of step {step}")
        weights.note(draft, run, step)


def broken_off(target: Path) -> None:
    """An export that fails when half of it is written."""
    with weights.whole_folder(target) as draft:
        (draft / "a").write_text("half")
        raise ZeroDivisionError


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with pytest.raises(ZeroDivisionError):
        broken_off(target)
    assert list(target.parent.iterdir()) == []
    with weights.whole_folder(target) as draft:
        (draft / "a").write_text("1")
        assert not target.exists()
    with pytest.raises(ZeroDivisionError):
        broken_off(target)
    assert (target / "a").read_text() == "1"  # what was there stays
    with weights.whole_folder(target) as draft:
        (draft / "b").write_text("2")
    assert [file.name for file in target.iterdir()] == ["b"]  # nothing of the old one is left in the new
    assert [file.name for file in target.parent.iterdir()] == ["out"]


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"), weights.whole_folder(tmp_path / "file" / "out"):
        pass


def test_the_note_names_run_and_model_but_no_path(recorded: Recorded) -> None:
    run, of_path = recorded(), recorded(**{"model.source": "/home/alice/mine"})
    for one in (run, of_path):
        export(one)
    assert read_json(run.adapter / weights.NOTE) == {
        "schema": 1, "run_id": run.id, "experiment": "p31", "profile": "tiny", "step": 2, "source": "builtin:tiny"
    }  # fmt: skip
    assert weights.noted_source(run.adapter) == "builtin:tiny"
    assert weights.noted_source(of_path.adapter) is None
    (run.adapter / weights.NOTE).write_text("{")
    assert weights.noted_source(run.adapter) is None


@pytest.mark.parametrize(
    ("source", "revision"),
    [("builtin:tiny", None), ("Qwen/Qwen2.5-1.5B-Instruct", "main"), ("/models/mine", None), ("/m/a.gguf", None)],
)
def test_an_adapter_names_the_base_that_the_user_named(recorded: Recorded, source: str, revision: str | None) -> None:
    """PEFT names the folder it loaded, which is one of a cache; the hub's id is what another machine can load."""
    run = recorded(**{"model.source": source, "model.revision": "null" if revision is None else revision})
    with weights.whole_folder(run.adapter) as draft:
        text = '{"base_model_name_or_path": "/root/.cache/grpoctl/x", "r": 16, "revision": null}'
        (draft / "adapter_config.json").write_text(text)
        weights.note(draft, run, 2)
    said = read_json(run.adapter / "adapter_config.json") or {}
    assert (said["base_model_name_or_path"], said["revision"], said["r"]) == (source, revision, 16)


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_files_get_the_umasks_mode(tmp_path: Path, umask: int) -> None:
    """Those of safetensors, copied ones, and new experiments."""
    before = os.umask(umask)
    try:
        with weights.whole_folder(tmp_path / "out") as draft:
            save_file({"w": torch.zeros(1)}, draft / "w.safetensors")
            (draft / "deep").mkdir()
            (draft / "deep" / "b").write_text("")
            (draft / "deep" / "b").chmod(0o600)
        create(tmp_path / "new.yaml", "name: new")
        replace_text(tmp_path / "page.html", "<html>")
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666 & ~umask}


def test_what_is_loaded_is_the_base_under_the_adapter_or_the_folder_itself(recorded: Recorded) -> None:
    run, whole = recorded(), recorded(**{"model.lora": "null"})
    assert weights.exported(run) is None
    for one in (run, whole):
        export(one)
    adapter, model = weights.exported(run), weights.exported(whole)
    assert adapter is not None
    assert model is not None
    assert (adapter.format, adapter.adapter, adapter.model().source) == ("peft", run.adapter, "builtin:tiny")
    assert (model.format, model.adapter, model.model().source) == ("transformers", None, str(whole.adapter))


def test_an_experiment_means_its_newest_run_that_has_weights(recorded: Recorded, home: Home) -> None:
    with_weights, without = recorded(seed=0), recorded(seed=1, ended="FAILED")
    export(with_weights)
    assert home.find("p31").id == without.id  # it was started later
    assert weights.find_exported(home, home.find("p31"), "p31").run.id == with_weights.id
    with pytest.raises(NotFoundError, match=r"\(FAILED\) has exported no weights.*--resume"):
        weights.find_exported(home, without, without.id)


def test_nothing_that_is_there_is_touched(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    weights.check_target(tmp_path / "new")
    weights.check_target(tmp_path / "empty")
    for name in ("full", "full/a", "link"):
        with pytest.raises(UserError, match="is there already"):
            weights.check_target(tmp_path / name)


def test_a_copy_has_every_file_and_a_card_that_says_how_it_ended(recorded: Recorded, tmp_path: Path) -> None:
    run = recorded()
    export(run)
    weights.write_card(run, run.adapter, merged=False)
    found = weights.exported(run)
    assert found is not None
    weights.copy(found, tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"README.md", "grpoctl.json", "weights"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "ended COMPLETED after 3 steps; these are the weights of step 2." in card
    assert "| `eval/reward` | 0.500 ± 0.020 | 0.600 ± 0.020 | 0.600 ± 0.020 |" in card


def test_a_copy_to_a_full_disk_is_one_line_and_leaves_nothing(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded()
    export(run)
    found = weights.exported(run)
    assert found is not None

    def full(source: Path, place: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(place))

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(StorageError) as caught:
        weights.copy(found, tmp_path / "out")
    where = f"cannot write {tmp_path / 'out'}"
    assert str(caught.value) == f"{where}: No space left on device; free some space, then try again"
    assert not (tmp_path / "out").exists()


def test_the_newest_checkpoint_of_a_run_under_way_outlives_the_run_dropping_it(recorded: Recorded) -> None:
    run = recorded()
    for step in (20, 40):
        folder = run.checkpoints / f"step-{step:06d}"
        folder.mkdir(parents=True)
        (folder / "weights.safetensors").write_text(str(step))
    found = weights.newest_kept(run)
    assert found is not None
    shutil.rmtree(run.checkpoints)
    assert (found.step, (found.folder / "weights.safetensors").read_text()) == (40, "40")
    assert weights.newest_kept(run) is None
