"""`grpoctl export`: an adapter as it is or merged, and what was written says the same as the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpoctl.runs.run_dir import Home, RunDir
from tests.grpoctl.cli.conftest import FEW, Grpoctl, untrained

pytestmark = pytest.mark.usefixtures("one_thread")


def test_export_copies_or_merges_and_what_it_wrote_says_the_same(
    grpoctl: Grpoctl, weights: RunDir, tmp_path: Path
) -> None:
    adapter = grpoctl("export", "p31", "adapter", "--json").document
    merged = grpoctl("export", weights.id, "merged", "--merged", "--json").document
    assert (adapter["format"], adapter["merged"], adapter["step"]) == ("peft", False, 2)
    assert (merged["format"], merged["merged"]) == ("transformers", True)
    assert {"adapter_model.safetensors", "tokenizer.json", "README.md"} <= set(adapter["files"])
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md"} <= set(merged["files"])
    assert merged["dir"] == str(tmp_path / "merged")
    own = grpoctl("eval", "p31", "--json").document["reward"]
    for folder in ("adapter", "./merged"):
        assert grpoctl("eval", folder, "p31", *FEW, "--json").document["reward"] == own
    assert "merged into it" in (tmp_path / "merged" / "README.md").read_text()
    assert grpoctl("export", "p31", "merged").code == 2  # nothing is written over
    assert {path.name for path in tmp_path.iterdir()} == {".grpoctl", "adapter", "merged"}


def test_weights_of_a_selector_are_whole_as_they_are(grpoctl: Grpoctl, home: Home, tmp_path: Path) -> None:
    run, _ = untrained(home, "p40", profile="tiny")
    said = grpoctl("export", run.id, str(tmp_path / "out"), "--merged", "--json")
    assert (said.document["format"], said.document["merged"]) == ("weights", False)
    assert "whole" in said.err
    assert (tmp_path / "out" / "weights.safetensors").is_file()
