"""What a step takes at least, on paper; a machine without CUDA, and a rehearsal there."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.trl_step import on_device
from benchmarks.trl_step.floors import (
    SHAPES,
    Shape,
    arithmetic_floor,
    decoding_floor,
    passes_of_step,
    tokens_of_step,
)
from benchmarks.trl_step.setting import Setting

# Attention 2 * 4 * 4 + 2 * 4 * (4 / 2) * 1 = 48, the block's products 3 * 4 * 10 = 120; three layers: 504. Head 7 * 4.
SMALL = {"hidden": 4, "intermediate": 10, "layers": 3, "heads": 2, "kv_heads": 1, "vocabulary": 7}


@pytest.mark.parametrize(("tied", "parameters"), [(True, 532), (False, 560)])
def test_weights_of_a_shape(tied: bool, parameters: int) -> None:
    shape = Shape(**SMALL, tied=tied)
    assert (shape.products, shape.parameters) == (532, parameters)


@pytest.mark.parametrize(("name", "billions"), [("Qwen2.5-0.5B", 0.49), ("Qwen2.5-7B", 7.62)])
def test_the_shapes_have_as_many_weights_as_their_makers_say(name: str, billions: float) -> None:
    assert SHAPES[name].parameters / 1e9 == pytest.approx(billions, abs=0.005)


def test_a_shape_is_what_transformers_builds() -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = Shape(**SMALL, tied=False)
    config = {key: value for key, value in shape.config().items() if key != "model_type"}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **config))
    assert sum(weight.numel() for weight in model.parameters() if weight.dim() == 2) == shape.parameters


def test_floors() -> None:
    shape = Shape(**SMALL, tied=True)
    # 5 tokens x 532 weights x 2 bytes at 100 bytes a second.
    assert decoding_floor(shape, 5, 100.0) == pytest.approx(53.2)
    # 3 passes x 2 operations x 532 weights x 10 tokens at 1000 a second.
    assert arithmetic_floor(shape, 10, 1000.0, passes=3) == pytest.approx(31.92)
    assert tokens_of_step(groups=2, size=4, prompt=10, new=3) == 2 * 10 + 8 * 3
    assert (passes_of_step(beta=0.0), passes_of_step(beta=0.01)) == (3, 4)


def test_the_floors_of_a_setting() -> None:
    setting = Setting(prompt_tokens=10, new_tokens=3, groups=2, size=4, beta=0.01)
    floors = gpu.floors_of(Shape(**SMALL, tied=True), setting, gpu.Rates(bandwidth=100.0, arithmetic=1000.0))
    # Decoding 3 x 532 x 2 / 100; the step 4 passes x 2 x 532 x 44 / 1000.
    assert floors == pytest.approx({"decoding": 31.92, "step": 187.264})


@pytest.mark.skipif(torch.cuda.is_available(), reason="of a machine without CUDA")
def test_without_cuda_it_says_so_and_measures_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--json", str(tmp_path / "out.json")]) == 0
    assert capsys.readouterr().out == "no CUDA device here: nothing was measured\n"
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["schema"], found["cuda"], found["shapes"]) == (1, False, {})


@pytest.mark.slow
def test_a_rehearsal_on_the_cpu_goes_through_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks = {"prompt_tokens": 165, "beta": 0.0, "theirs": "x", "ours": "y", "theirs_bytes": 4, "ours_bytes": 2}
    monkeypatch.setattr(gpu, "both_peaks", lambda *_, **__: peaks)  # two processes more; test_peak has them
    monkeypatch.setattr(gpu, "memory_lines", lambda _: ["peaks"])
    words = ["--rehearse", "--new-tokens", "12", "--groups", "2", "--steps", "1", "--json", str(tmp_path / "out.json")]
    assert gpu.main(words) == 0
    said = capsys.readouterr().out
    assert "equal: loss from trl" in said
    assert "recorded steps and steps run anew: 0 of 192 tokens differ" in said
    found = json.loads((tmp_path / "out.json").read_text())["shapes"][gpu.REHEARSED]
    assert [own["how"] for own in found["run"]["ours"]] == ["bfloat16", "bfloat16 without recorded_steps"]
    assert found["floors"]["step"] > 0


def test_waits_are_counted_by_place_and_nothing_else_that_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def step() -> None:
        for _ in range(3):
            warnings.warn("called a synchronizing CUDA operation (function warn_or_error_on_sync)", stacklevel=1)
        warnings.warn("something else", stacklevel=1)

    (place,), (count,) = zip(*on_device.waits(step).items(), strict=True)
    assert place.startswith("test_gpu.py:")
    assert count == 3
    assert modes == ["warn", "default"]
