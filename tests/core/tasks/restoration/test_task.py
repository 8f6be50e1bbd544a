"""The task over the built-in photographs: problems, scores, what is recorded and shown."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from core.config.task import RestorationTaskSpec
from core.errors import SpecError, TaskError
from core.tasks.base import Example, names_of
from core.tasks.registry import build
from core.tasks.restoration.task import RestorationTask

SPLITS: tuple[Literal["train", "eval"], ...] = ("train", "eval")


def task(**changes: Any) -> RestorationTask:
    spec = {"name": "restoration", "train_prompts": 30, "eval_prompts": 12, "patch": 32, **changes}
    built = build(RestorationTaskSpec.model_validate(spec))
    assert isinstance(built, RestorationTask)
    return built


TASK = task()
TRAIN, HELD_OUT = TASK.examples("train"), TASK.examples("eval")
FIRST = TRAIN[0]


def arrays(example: Example) -> tuple[Any, Any]:
    return example.inputs["degraded"], example.facts["clean"]


def test_an_example_has_a_degraded_patch_and_a_clean_one() -> None:
    degraded, clean = arrays(TRAIN[7])
    assert (degraded.shape, degraded.dtype, clean.shape, clean.dtype) == ((32, 32, 3), np.float32) * 2
    assert all(image.min() >= 0 and image.max() <= 1 for image in (degraded, clean))
    assert (TRAIN[7].id, TRAIN[7].facts["degradation"]) == ("train-noise-25-00007", "noise-25")
    assert set(TRAIN[7].facts) == {"degradation", "picture", "clean"}
    assert 255 * float(np.std(degraded - clean)) == pytest.approx(25, rel=0.2)  # less where it was clipped


def test_a_patch_is_the_same_whatever_was_made_before_it() -> None:
    forwards = [image.tobytes() for example in task().examples("train") for image in arrays(example)]
    fewer = task(train_prompts=8, eval_prompts=3).examples("train")
    backwards = [image.tobytes() for place in reversed(range(8)) for image in reversed(arrays(fewer[place]))]
    assert forwards[:16] == backwards[::-1]
    assert len(set(forwards)) == 60
    assert arrays(task(data_seed=1).examples("train")[0])[0].tobytes() not in forwards


def test_every_degradation_has_an_equal_share() -> None:
    names = [example.facts["degradation"] for example in TRAIN]
    assert names[:4] == ["noise-15", "noise-25", "noise-50", "noise-15"]
    assert {names.count(name) for name in names} == {10}


def test_no_picture_is_in_both_splits() -> None:
    for seed in range(4):
        seeded = task(data_seed=seed, held_out=6, eval_prompts=18)
        trained, held_out = ({example.facts["picture"] for example in seeded.examples(split)} for split in SPLITS)
        assert len(held_out) == 6
        assert trained.isdisjoint(held_out)
        pairs = {(example.facts["picture"], example.facts["degradation"]) for example in seeded.examples("eval")}
        assert len(pairs) == 18  # each held-out picture with each degradation
    assert {names_of(example)[1] for example in TRAIN}.isdisjoint(names_of(example)[1] for example in HELD_OUT)
    assert TASK.examples("test") == ()


@pytest.mark.parametrize(
    ("prompts", "degradations", "held_out"),
    [
        (12, ("noise-15", "noise-25", "noise-50"), 4),
        (12, ("noise-15",), 3),
        (3, ("noise-15", "noise-25"), 4),
        (3, ("noise-15", "noise-25", "rain"), 4),
        (1, ("rain",), 4),
    ],
)
def test_how_many_held_out_pictures_patches_are_of(prompts: int, degradations: tuple[str, ...], held_out: int) -> None:
    built = task(eval_prompts=prompts, degradations=degradations, held_out=held_out)
    pictures = {example.facts[str(built.spec.clusters)] for example in built.examples("eval")}
    assert built.spec.independent_eval_prompts == len(pictures)


def test_a_split_is_as_long_as_it_says_and_can_be_cut() -> None:
    assert (len(TRAIN), len(HELD_OUT)) == (30, 12)
    assert [example.id for example in TRAIN[-2:]] == ["train-noise-25-00028", "train-noise-50-00029"]
    assert TRAIN[-1].id == "train-noise-50-00029"
    with pytest.raises(IndexError):
        TRAIN[30]
    assert len(task(train_prompts=10_000_000).examples("train")) == 10_000_000  # none of them is made


def test_the_reward_weighs_psnr_and_ssim() -> None:
    degraded, clean = arrays(FIRST)
    like, same, beyond = TASK.score([FIRST] * 3, [degraded, clean, np.where(clean == 1, 9, clean)])
    assert like.reward == pytest.approx(0.625 * like.parts["psnr_term"] + 0.375 * like.parts["ssim_term"])
    assert (like.expected, like.valid, like.right) == (like.reward, True, None)
    assert like.measured["psnr"] == pytest.approx(20 * math.log10(255 / 15), abs=1)  # a little more where clipped
    assert (same.reward, same.measured["psnr"]) == (pytest.approx(1), 100)
    assert beyond == same  # whiter than white is white


@pytest.mark.parametrize(
    ("w_psnr", "w_ssim", "weights"), [(0.5, 0.3, (0.625, 0.375)), (0.6, 0.4, (0.6, 0.4)), (0.4, 0.0, (1, 0))]
)
def test_what_the_weights_leave_of_1_is_spread(w_psnr: float, w_ssim: float, weights: tuple[float, float]) -> None:
    spec = RestorationTaskSpec(name="restoration", w_psnr=w_psnr, w_ssim=w_ssim)
    assert spec.weights == pytest.approx(weights)
    assert spec.reward_range == (0, 1)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"w_lpips": 0.2}, "got 0.2, and LPIPS needs pretrained weights"),
        ({"w_psnr": 0.8, "w_ssim": 0.3}, "together above 0 and at most 1"),
        ({"w_psnr": 0.0, "w_ssim": 0.0}, "together above 0"),
        ({"degradations": ["blur", "blur"]}, "got blur twice"),
        ({"degradations": []}, "at least 1"),
        ({"patch": 60}, "multiple of 8"),
        ({"patch": 8}, "greater than or equal to 16"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        RestorationTaskSpec.model_validate({"name": "restoration", **changes})


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_picture_that_is_no_number_has_no_reward(bad: float) -> None:
    broken = arrays(FIRST)[1].copy()
    broken[3, 4, 1] = bad
    (outcome,) = TASK.score([FIRST], [broken])
    assert all(map(math.isnan, (outcome.reward, outcome.expected, *outcome.parts.values(), *outcome.measured.values())))
    assert not outcome.valid
    assert TASK.record(broken)["image"]
    assert TASK.picture([FIRST], [broken])


def test_what_is_no_picture_of_this_problem_is_refused() -> None:
    with pytest.raises(TaskError, match=r"shape \(16, 32, 3\)"):
        TASK.score([FIRST], [arrays(FIRST)[1][:16]])
    with pytest.raises(TaskError, match="no problem of restoration"):
        TASK.score([Example(id="other", inputs={})], [arrays(FIRST)[1]])


def test_clean_pictures_are_learnt_from_by_a_loss_and_not_imitated() -> None:
    with pytest.raises(TaskError, match=r"policy_weight: 0 and loss_weights: \{supervised: 1\}"):
        TASK.target(FIRST)


def test_the_baseline_is_the_held_out_patches_unrestored() -> None:
    outcomes = TASK.score(HELD_OUT, [example.inputs["degraded"] for example in HELD_OUT])
    assert TASK.baselines()["degraded"] == {
        "eval/reward": pytest.approx(np.mean([one.expected for one in outcomes])),
        "eval/psnr": pytest.approx(np.mean([one.measured["psnr"] for one in outcomes])),
        "eval/ssim": pytest.approx(np.mean([one.measured["ssim"] for one in outcomes])),
    }


def test_a_record_says_whether_two_pictures_are_the_same() -> None:
    degraded, clean = arrays(FIRST)
    assert TASK.record(clean) == TASK.record(clean + np.float32(0.0005)) != TASK.record(degraded)  # of 8 bits
    assert len(str(TASK.record(clean)["image"])) == 12
    assert TASK.shown(FIRST) == f"{FIRST.facts['picture']}, noise-15"
    assert TASK.shown_output({"image": "ab12"}) == "image ab12"
    assert TASK.shown_output({"image": "ab12", "measured": {"psnr": 27.934, "ssim": 0.8421}}) == "27.93 / 0.842"


def test_tables_have_psnr_and_ssim_by_degradation_and_quarter() -> None:
    def row(step: int, name: str, psnr: float | None, ssim: float | None) -> dict[str, object]:
        return {"step": step, "prompt_id": f"train-{name}-00001", "measured": {"psnr": psnr, "ssim": ssim}}

    rows = [row(step, "noise-50", 20 + step, 0.5) for step in range(1, 9)]
    rows += [row(1, "low-light", 30, 0.9), row(1, "low-light", None, None), row(8, "low-light", 32, 0.7)]
    (table,) = TASK.tables(rows)
    assert table.columns == ("degradation", "samples", "steps 1 to 2", "steps 3 to 4", "steps 5 to 6", "steps 7 to 8")
    noise, low, both = table.rows
    assert noise == ("noise-50", "8", "21.50 / 0.500", "23.50 / 0.500", "25.50 / 0.500", "27.50 / 0.500")
    assert low == ("low-light", "3", "30.00 / 0.900", "-", "-", "32.00 / 0.700")
    assert both[:3] == ("all", "11", "24.33 / 0.633")  # (21 + 22 + 30) / 3 dB, (.5 + .5 + .9) / 3
    assert TASK.tables([])[0].rows == ()


def test_a_sheet_has_a_row_for_each_degradation_first() -> None:
    """Under a line of 20 pixels: rows with 20 of text, patches of 32 enlarged six times, and a gap of 8."""
    only_50 = [example for example in HELD_OUT if example.facts["degradation"] == "noise-50"]
    examples = [example for example in (*only_50, *HELD_OUT[:2]) for _ in range(2)]  # two outputs of each
    content = TASK.picture(examples, [arrays(example)[1] for example in examples])
    assert content is not None
    with Image.open(io.BytesIO(content)) as sheet:
        assert sheet.format == "PNG"
        pixels = np.asarray(sheet)
    assert pixels.shape == (20 + 6 * (20 + 192 + 8), 8 + 3 * (192 + 8), 3)
    for place, example in enumerate((only_50[0], *HELD_OUT[:2], *only_50[1:])):
        top = 40 + 220 * place
        restored, clean = pixels[top : top + 192, 208:400], pixels[top : top + 192, 408:600]
        assert np.array_equal(restored, clean)
        assert np.array_equal(clean[::6, ::6], np.rint(255 * arrays(example)[1]).astype(np.uint8))
    assert TASK.picture([], []) is None


def test_a_folder_of_the_users_own(tmp_path: Path) -> None:
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    own = task(pictures=str(tmp_path), held_out=1)
    own.make_ready()
    assert len({example.facts["picture"] for example in own.examples("train")}) == 2
    with pytest.raises(SpecError, match=r"task\.held_out: got 3 of 3 pictures.* at most 2"):
        task(pictures=str(tmp_path), held_out=3)
    with pytest.raises(SpecError, match=r"0\.png: has 48 x 40 pixels"):
        task(pictures=str(tmp_path), held_out=1, patch=48)


def test_a_patch_of_one_colour_is_drawn_again_and_a_flat_picture_has_nothing_else(tmp_path: Path) -> None:
    half = np.zeros((64, 64, 3), dtype=np.uint8)
    half[40:, 40:] = 255  # a patch of 32 is black where it begins in the first 9 rows or columns of 33: in 47 of 100
    Image.fromarray(half).save(tmp_path / "half.png")
    Image.fromarray(np.zeros_like(half)).save(tmp_path / "flat.png")
    own = task(pictures=str(tmp_path), held_out=1)
    seen: dict[object, list[float]] = {"half.png": [], "flat.png": []}
    for example in (*own.examples("train"), *own.examples("eval")):
        seen[example.facts["picture"]].append(float(arrays(example)[1].std()))
    assert min(seen["half.png"]) > 0  # else one in 420 would be
    assert set(seen["flat.png"]) == {0.0}


def test_a_spec_is_looked_at_without_anything_heavy() -> None:
    code = (
        "import sys; from core.config.task import RestorationTaskSpec as S; from core.tasks.registry import build; "
        "task = build(S(name='restoration')); task.make_ready(); ids = [e.id for e in task.examples('train')]; "
        "task.shown_output({'image': 'x'}); task.tables([]); "
        "print(sorted({'numpy', 'torch', 'PIL', 'skimage', 'sklearn', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_file_of_the_users_is_a_problem_of_its_own_size(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (41, 50, 3), dtype=np.uint8)
    file = tmp_path / "photo.png"
    Image.fromarray(pixels).save(file)
    plain = TASK.from_file(file)
    assert np.array_equal(np.rint(255 * np.asarray(plain.inputs["degraded"])), pixels)
    assert "clean" not in plain.facts
    assert TASK.shown(plain) == "photo.png, as it is"
    noisy, same, other = (TASK.from_file(file, change="noise-25", seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(arrays(noisy)[1], np.asarray(plain.inputs["degraded"]))
    assert arrays(noisy)[0].tobytes() == arrays(same)[0].tobytes() != arrays(other)[0].tobytes()
    assert TASK.score([noisy], [arrays(noisy)[1]])[0].reward == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [("dot.png", None, "dot.png: has 1 x 1 pixels"), ("text.png", None, "text.png: is no PNG or JPEG"),
     ("gone.png", None, "gone.png"), ("dot.png", "snow", "got the degradation 'snow'; allowed: noise-15, ")],
)  # fmt: skip
def test_a_file_that_cannot_be_restored_is_refused(name: str, change: str | None, why: str, tmp_path: Path) -> None:
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    (tmp_path / "text.png").write_text("text")
    with pytest.raises(SpecError, match=why):
        TASK.from_file(tmp_path / name, change=change)


def test_what_a_restoration_changed_is_drawn_amplified() -> None:
    """A change of +.11, and of -.06 in a tenth of the picture: x 4 is the most that keeps .11 within .5."""
    degraded = np.full((200, 200, 3), 0.5, dtype=np.float32)
    restored = degraded + np.float32(0.11)
    restored[:20] = 0.44
    drawn = TASK.drawn(Example(id="x", inputs={"degraded": degraded}), restored)
    images = {name: np.asarray(Image.open(io.BytesIO(content))) for name, content in drawn.items()}
    assert list(images) == ["degraded", "restored", "difference"]
    assert np.array_equal(images["restored"], np.rint(255 * restored).astype(np.uint8))
    difference = images["difference"]
    assert difference.shape == (220, 200, 3)  # 20 pixels of text
    assert difference[20 + 100, 100].tolist() == [240] * 3  # 255 x (.5 + 4 x .11) = 239.7
    assert difference[20 + 10, 100].tolist() == [66] * 3  # 255 x (.5 - 4 x .06) = 66.3
    small = TASK.drawn(FIRST, arrays(FIRST)[1])["difference"]
    assert Image.open(io.BytesIO(small)).width > 100  # the text has its place
