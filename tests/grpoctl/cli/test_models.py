"""`grpoctl models`: what there is, in words and as a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.models.catalogue import KNOWN
from tests.grpoctl.cli.conftest import Grpoctl

FIELDS = {"name", "source", "cached", "path", "bytes", "origin", "note"}


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a cache of ours."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))


def test_the_document_has_every_profiles_model(grpoctl: Grpoctl, tmp_path: Path) -> None:
    said = grpoctl("models", "--json")
    assert (said.code, said.err) == (0, "")
    assert said.document["schema"] == 1
    assert said.document["cache"] == str(tmp_path / "xdg" / "grpoctl")
    models = said.document["models"]
    assert all(model.keys() == FIELDS for model in models)
    assert [model["name"] for model in models][: len(KNOWN)] == ["tiny", "small", "medium", "full"]
    assert models[0]["cached"] is False
    assert models[0]["path"] is None
    assert not (tmp_path / "xdg").exists()  # looking makes nothing


def test_what_is_here_has_its_folder_and_its_size(grpoctl: Grpoctl, tmp_path: Path) -> None:
    folder = tmp_path / "xdg" / "grpoctl" / "builtin-tiny-0123"
    folder.mkdir(parents=True)
    (folder / "checksums.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(999_998))
    tiny = grpoctl("models", "--json").document["models"][0]
    assert (tiny["cached"], tiny["path"], tiny["bytes"], tiny["origin"]) == (True, str(folder), 1_000_000, "builtin")
    words = grpoctl("models").out
    assert "1.0 MB" in words
    assert str(folder) in words
    for known in KNOWN:
        assert known.source in words
