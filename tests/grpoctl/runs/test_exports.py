"""Folders of exported weights: whole or not there, and which of them a name means."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import NotFoundError, StorageError, UserError
from grpoctl.runs import exports
from grpoctl.runs.records import read_json
from grpoctl.runs.run_dir import Home, RunDir
from tests.conftest import Recorded


def export(run: RunDir, step: int = 2) -> None:
    """What the end of a run leaves, with a word in the place of the weights."""
    with exports.whole_folder(run.adapter) as draft:
        (draft / "weights").write_text(f"of step {step}")
        exports.note(draft, run, step)


def broken_off(target: Path) -> None:
    """An export that fails when half of it is written."""
    with exports.whole_folder(target) as draft:
        (draft / "a").write_text("half")
        raise ZeroDivisionError


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with pytest.raises(ZeroDivisionError):
        broken_off(target)
    assert list(target.parent.iterdir()) == []
    with exports.whole_folder(target) as draft:
        (draft / "a").write_text("1")
        assert not target.exists()
    with pytest.raises(ZeroDivisionError):
        broken_off(target)
    assert (target / "a").read_text() == "1"  # what was there stays
    with exports.whole_folder(target) as draft:
        (draft / "b").write_text("2")
    assert [file.name for file in target.iterdir()] == ["b"]  # nothing of the old one is left in the new
    assert [file.name for file in target.parent.iterdir()] == ["out"]


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"), exports.whole_folder(tmp_path / "file" / "out"):
        pass


def test_the_note_names_run_and_model_but_no_path(recorded: Recorded) -> None:
    run, of_path = recorded(), recorded(**{"model.source": "/home/alice/mine"})
    for one in (run, of_path):
        export(one)
    assert read_json(run.adapter / exports.NOTE) == {
        "schema": 1, "run_id": run.id, "experiment": "p31", "profile": "tiny", "step": 2, "source": "builtin:tiny"
    }  # fmt: skip
    assert exports.noted_source(run.adapter) == "builtin:tiny"
    assert exports.noted_source(of_path.adapter) is None
    (run.adapter / exports.NOTE).write_text("{")
    assert exports.noted_source(run.adapter) is None


def test_what_is_loaded_is_the_base_under_the_adapter_or_the_folder_itself(recorded: Recorded) -> None:
    run, whole = recorded(), recorded(**{"model.lora": "null"})
    assert exports.exported(run) is None
    for one in (run, whole):
        export(one)
    adapter, model = exports.exported(run), exports.exported(whole)
    assert adapter is not None
    assert model is not None
    assert (adapter.format, adapter.adapter, adapter.model().source) == ("peft", run.adapter, "builtin:tiny")
    assert (model.format, model.adapter, model.model().source) == ("transformers", None, str(whole.adapter))


def test_an_experiment_means_its_newest_run_that_has_weights(recorded: Recorded, home: Home) -> None:
    with_weights, without = recorded(seed=0), recorded(seed=1, ended="FAILED")
    export(with_weights)
    assert home.find("p31").id == without.id  # it was started later
    assert exports.find_exported(home, home.find("p31"), "p31").run.id == with_weights.id
    with pytest.raises(NotFoundError, match=r"\(FAILED\) has exported no weights.*--resume"):
        exports.find_exported(home, without, without.id)


def test_nothing_that_is_there_is_touched(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    exports.check_target(tmp_path / "new")
    exports.check_target(tmp_path / "empty")
    for name in ("full", "full/a", "link"):
        with pytest.raises(UserError, match="is there already"):
            exports.check_target(tmp_path / name)


def test_a_copy_has_every_file_and_a_card_that_says_how_it_ended(recorded: Recorded, tmp_path: Path) -> None:
    run = recorded()
    export(run)
    exports.write_card(run, run.adapter, merged=False)
    found = exports.exported(run)
    assert found is not None
    exports.copy(found, tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"README.md", "grpoctl.json", "weights"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "ended COMPLETED after 3 steps; these are the weights of step 2." in card
    assert "| `eval/reward` | 0.500 ± 0.020 | 0.600 ± 0.020 | 0.600 ± 0.020 |" in card
