"""GGUF files: dequantised once into the cache, the numbers the file holds, and one line for what is no such file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gguf
import pytest
import torch
from safetensors.torch import load_file

from core.config import ModelSpec
from core.errors import ModelError, StorageError
from core.models import loading
from core.models.cache import intact
from core.models.sources import gguf_file
from tests.core.models import ggufs

WHOLE = 58_048  # 2 ends of 260 x 64, q and o and three of ffn of 64 x 64, k and v of 32 x 64, 3 norms of 64


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "grpoctl"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return ggufs.write(tmp_path / "model.gguf")


def entries(cache: Path) -> list[str]:
    """What is in the cache besides locks."""
    return sorted(one.name for one in cache.iterdir() if one.suffix != ".lock") if cache.exists() else []


def test_what_is_in_a_file_is_counted(file: Path, tmp_path: Path) -> None:
    assert gguf_file.read_content(file) == gguf_file.GGUFContent(parameters=WHOLE, tensor_type="Q8_0")
    assert gguf_file.read_content(file).quantised == "8-bit (Q8_0), dequantised"
    plain = ggufs.write(tmp_path / "plain.gguf", held_as=ggufs.F32)
    assert gguf_file.read_content(plain).quantised is None


@pytest.mark.parametrize(
    ("tensor_type", "says"),
    [
        ("Q4_1", "4-bit (Q4_1), dequantised"),
        ("Q6_K", "6-bit (Q6_K), dequantised"),
        ("IQ2_XXS", "2-bit (IQ2_XXS), dequantised"),
        ("BF16", None),
    ],
)
def test_how_rounding_is_told(tensor_type: str, says: str | None) -> None:
    assert gguf_file.GGUFContent(parameters=1, tensor_type=tensor_type).quantised == says


def test_a_file_is_loaded_as_the_numbers_it_holds(file: Path, own_cache: Path) -> None:
    loaded = loading.load_with_origin(ModelSpec(source=str(file)), list)
    for name, place in (("token_embd", "model.embed_tokens"), ("blk.0.ffn_down", "model.layers.0.mlp.down_proj")):
        held = gguf.quants.dequantize(gguf.quants.quantize(ggufs.matrices()[name], ggufs.Q8_0), ggufs.Q8_0)
        assert torch.equal(loaded.model.get_parameter(f"{place}.weight"), torch.from_numpy(held))
    assert not hasattr(loaded.model.config, "quantization_config")
    assert loaded.tokenizer.padding_side == "left"
    assert loaded.tokenizer.pad_token == "</s>"  # it has none of its own
    assert loaded.origin.kind == "gguf"
    assert loaded.origin.path.parent == own_cache
    assert loaded.origin.quantised == "8-bit (Q8_0), dequantised"
    assert loaded.model.name_or_path == str(loaded.origin.path)


def test_it_is_dequantised_once_for_a_content_whatever_its_name(file: Path, own_cache: Path) -> None:
    first = loading.locate(ModelSpec(source=str(file)), list)
    before = (first.path / "model.safetensors").stat().st_mtime_ns
    moved = file.rename(file.with_name("we ird (x).GGUF"))
    again = loading.locate(ModelSpec(source=str(moved)), list)
    assert again.path == first.path
    assert (again.path / "model.safetensors").stat().st_mtime_ns == before
    assert entries(own_cache) == [first.path.name]


def test_another_precision_is_another_entry(file: Path, own_cache: Path) -> None:
    model, _ = loading.load(ModelSpec(source=str(file), dtype="bfloat16"), list)
    assert model.dtype is torch.bfloat16
    (name,) = entries(own_cache)
    assert name.endswith("-bfloat16")
    assert load_file(own_cache / name / "model.safetensors")["model.norm.weight"].dtype is torch.bfloat16


def test_a_damaged_entry_is_made_again(file: Path) -> None:
    folder = loading.locate(ModelSpec(source=str(file)), list).path
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert not intact(folder, gguf_file.FILES)
    assert loading.locate(ModelSpec(source=str(file)), list).path == folder
    assert intact(folder, gguf_file.FILES)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (b"", "is not a GGUF file; give a .gguf file, a folder of model files, or a hub id"),
        (b"hello", "is not a GGUF file"),
        (b"GGUF", "is not a whole GGUF file"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 7 + b"\x7f" + b"\xff\xff\xff\xff\0\0\0\0", "is not a whole GGUF file"),
        (100, "is not a whole GGUF file .*; download it again"),  # cut inside its head
        (30_000, "is not a whole GGUF file .*; download it again"),  # cut inside its weights
        (-1, "is not a whole GGUF file .*; download it again"),
    ],
)
def test_what_is_not_a_whole_file_is_told_in_one_line_and_leaves_nothing(
    file: Path, own_cache: Path, damage: bytes | int, says: str
) -> None:
    file.write_bytes(damage if isinstance(damage, bytes) else file.read_bytes()[:damage])
    with pytest.raises(ModelError, match=says) as caught:
        loading.load(ModelSpec(source=str(file)), list)
    assert "\n" not in str(caught.value)
    assert entries(own_cache) == []


def test_a_kind_that_transformers_cannot_read_is_named_and_leaves_nothing(tmp_path: Path, own_cache: Path) -> None:
    file = ggufs.write(tmp_path / "odd.gguf", arch="madeup")
    with pytest.raises(ModelError, match=r"cannot read .*odd\.gguf: .*madeup.*; give safetensors instead"):
        loading.load(ModelSpec(source=str(file)), list)
    assert entries(own_cache) == []


def test_a_disk_that_fills_up_leaves_nothing(file: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModelSpec(source=str(file))
    with monkeypatch.context() as small:
        small.setattr("core.models.cache.shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
        with pytest.raises(StorageError, match=r"0\.03 GiB.*0\.00 GiB.*XDG"):
            loading.load(spec, list)
    assert entries(own_cache) == []
    assert loading.load(spec, list)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ModelError, match=r"got the model 'none\.gguf', and there is no such file"):
        loading.load(ModelSpec(source="none.gguf"), list)
