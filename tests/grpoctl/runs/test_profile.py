"""What `--profile auto` stands for: never a toy by surprise on a machine with a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import UserError
from core.models.sources.wheel import SMOLLM2, SMOLLM2_WHEEL
from grpoctl.config import Loaded, load
from grpoctl.runs import profile

GIB = 2**30


def with_memory(monkeypatch: pytest.MonkeyPatch, free: int | None) -> None:
    """A machine whose CUDA device has so many bytes free; None: it has none."""
    monkeypatch.setattr(profile, "free_cuda_memory", lambda: free)


def local(folder: Path, size: int) -> Loaded:
    """p31 with a model in a local directory, its weight file of `size` bytes (a hole, not written)."""
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(size)
    return load("p31", overrides=[f"model.source={folder}"])


def test_without_a_device_it_is_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, None)
    assert profile.choose(load("p31")) == ("tiny", "no CUDA device")


def test_without_a_tiny_profile_it_is_the_spec_as_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text("name: plain\nextends: p31\nprofiles:\n  tiny: null\n")
    with_memory(monkeypatch, None)
    assert profile.choose(load(file))[0] == "full"


@pytest.mark.parametrize(
    ("size", "free", "fits"),
    [
        (10 * GIB, 16 * GIB, True),  # 10 x 1.6 = 16
        (10 * GIB, 16 * GIB - 1, False),
        (1, GIB, True),
    ],
)
def test_with_a_device_it_is_full_where_the_model_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, free: int, fits: bool
) -> None:
    loaded = local(tmp_path / "model", size)
    with_memory(monkeypatch, free)
    if fits:
        assert profile.choose(loaded)[0] == "full"
    else:
        with pytest.raises(UserError, match=r"needs about 16 GiB.*choose a profile \(full, tiny.*\)"):
            profile.choose(loaded)


def test_a_model_that_is_not_here_is_a_question_not_a_toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = tmp_path / "model"
    empty.mkdir()
    with_memory(monkeypatch, 100 * GIB)
    with pytest.raises(UserError, match=r"not on this machine.*choose a profile \(full, tiny.*\)"):
        profile.choose(load("p31", overrides=[f"model.source={empty}"]))


def test_a_model_of_the_hub_that_was_never_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 100 * GIB)
    with pytest.raises(UserError, match="'nobody/no-such-model' is not on this machine"):
        profile.choose(load("p31", overrides=["model.source=nobody/no-such-model"]))


def test_the_built_in_model_fits_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, GIB)
    assert profile.choose(load("p31", overrides=["model.source=builtin:tiny"]))[0] == "full"


def test_a_refusal_names_what_medium_is_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nextends: p31\nprofiles:\n  medium:\n    model: {source: Qwen/Qwen2.5-1.5B-Instruct}\n")
    with_memory(monkeypatch, GIB)
    with pytest.raises(UserError, match=r"hf download nobody/x\b.*medium.*24 GB"):
        profile.choose(load(file, overrides=["model.source=nobody/x"]))


def test_the_small_model_out_of_its_wheel_is_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "grpoctl" / f"gguf-{SMOLLM2_WHEEL.member_sha256[:16]}-float32"
    folder.mkdir(parents=True)
    (folder / "checksums.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"x")
    with_memory(monkeypatch, GIB)
    assert profile.choose(load("p31", overrides=[f"model.source={SMOLLM2}"]))[0] == "full"


@pytest.mark.parametrize(
    ("free", "bitsandbytes", "says"),
    [
        (16 * GIB, True, "a CUDA device with room for the model"),  # 5 Gi weights: 5 * 2 * 1.6 = 16
        (15 * GIB, True, "a CUDA device with room for the model in 4 bits"),  # 5 * (0.8 + 1.2) = 10
        (9 * GIB, True, "needs about 10 GiB in 4 bits, the CUDA device has 9 GiB free"),
        (15 * GIB, False, "needs about 16 GiB, the CUDA device has 15 GiB free"),
    ],
)
def test_4_bits_count_where_they_can_be_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, bitsandbytes: bool, says: str
) -> None:
    local(tmp_path / "model", 10 * GIB)
    loaded = load("p31", overrides=[f"model.source={tmp_path / 'model'}", "load_in_4bit=auto"])
    with_memory(monkeypatch, free)
    monkeypatch.setattr(profile.precision, "has_bitsandbytes", lambda: bitsandbytes)
    if says.startswith("a CUDA"):
        assert profile.choose(loaded) == ("full", says)
    else:
        with pytest.raises(UserError, match=says):
            profile.choose(loaded)
