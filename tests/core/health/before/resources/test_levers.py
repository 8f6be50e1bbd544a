"""What would make a run fit: each change alone, and as few as do together."""

from __future__ import annotations

import pytest

from core.health.before.resources.levers import Lever, Sharded, levers, sharded
from core.health.before.resources.memory import PROCESS, Place, Tokens, peak, phases
from core.health.before.resources.shapes import PUBLISHED
from tests.core.health.before.resources.paper import PAPER, run

TOKENS = Tokens(prompt=3, answer=4)
NOT_ALONE = ("weights", "reference", "moments", "gradients", "process")
LONG = {"max_completion_length": 64, "gradient_accumulation_steps": 1, "num_generations": 8, "beta": 0.1}


def cuda(beside: int, *, quantises: bool = False) -> Place:
    """A device with so many bytes beside the process's own."""
    return Place(device="cuda", memory=PROCESS["cuda"] + beside, quantises=quantises)


def needs(**changes: dict[str, object]) -> int:
    """The peak beside the process."""
    return peak(phases(run(**changes), PAPER, TOKENS, cuda(2**20))).bytes - PROCESS["cuda"]


def named(found: list[Lever]) -> list[str]:
    return [one.change for one in found]


def test_nothing_is_to_be_done_where_it_fits() -> None:
    assert list(levers(run(grpo=LONG), PAPER, TOKENS, cuda(2**30), {}).together) == []


def test_changes_are_taken_the_mildest_first_and_no_more_than_needed() -> None:
    # Process and weights beside, the update of 16 rows needs most; four micro-batches of 4 need a quarter of it.
    whole = run(grpo=LONG)
    all_of_it = peak(phases(whole, PAPER, TOKENS, cuda(2**20))).bytes
    room = all_of_it - PROCESS["cuda"] - 1
    found = levers(whole, PAPER, TOKENS, cuda(room), {})
    assert [one.fits for one in found.together][-1]
    assert all(not one.fits for one in found.together[:-1])
    sizes = [one.bytes for one in found.together]
    assert sizes == sorted(sizes, reverse=True)
    assert all(one.change.startswith(("model.gradient_check", "stages.grpo.gradient_acc")) for one in found.together)


def test_a_value_that_was_raised_twice_is_told_once() -> None:
    # The group's own scoring, 8 rows of 64 tokens, stays: room for a little more than that.
    scored = 8 * 64 * 100 * 12
    found = levers(run(grpo=LONG), PAPER, TOKENS, cuda(scored + 120_000), {}).together
    keys = [one.change.partition("=")[0] for one in found]
    assert len(keys) == len(set(keys))
    assert found[-1].fits


def test_where_nothing_suffices_nothing_is_promised() -> None:
    found = levers(run(grpo=LONG), PAPER, TOKENS, cuda(100), {})
    assert list(found.together) == []
    assert found.alone
    assert not any(one.fits for one in found.alone)


def test_only_changes_that_save_something_are_named() -> None:
    place = cuda(2**20)
    spec = run(grpo=LONG)
    now = peak(phases(spec, PAPER, TOKENS, place)).bytes - PROCESS["cuda"]
    assert all(one.bytes - PROCESS["cuda"] < 0.99 * now for one in levers(spec, PAPER, TOKENS, place, {}).alone)


@pytest.mark.parametrize(("quantises", "dtype"), [(True, "float32"), (True, "bfloat16"), (False, "bfloat16")])
def test_four_bits_are_named_where_they_can_be_had(quantises: bool, dtype: str) -> None:
    spec = run(model={"dtype": dtype})
    place = Place(device="cuda", memory=2**20, quantises=quantises)
    changes = named(list(levers(spec, PUBLISHED["Qwen/Qwen2.5-7B-Instruct"], TOKENS, place, {}).alone))
    assert ("model.load_in_4bit=always" in changes) is quantises
    assert ("model.dtype=bfloat16" in changes) is (dtype == "float32")


def test_full_fine_tuning_is_told_of_adapters() -> None:
    spec = run(model={"lora": None})
    found = levers(spec, PUBLISHED["Qwen/Qwen2.5-1.5B-Instruct"], TOKENS, cuda(2**32), {})
    (adapter,) = (one for one in found.alone if one.change.startswith("model.lora="))
    # 1.54e9 weights in fp32 with gradient, share, moments and reference, against the weights and a small adapter
    assert adapter.bytes < 0.25 * peak(phases(spec, PUBLISHED["Qwen/Qwen2.5-1.5B-Instruct"], TOKENS, cuda(0))).bytes


@pytest.mark.parametrize(("more", "devices"), [(52_000, 1), (26_000, 2), (25_999, 3), (13_000, 4), (1, 52_000)])
def test_full_fine_tuning_that_does_not_fit_is_shared_out(more: int, devices: int) -> None:
    # 2600 weights of 4 bytes, as many of the reference, two moments and a gradient: 5 * 10400, beside activations
    spec = run(model={"lora": None})
    alone = [
        sum(size for name, size in one.parts.items() if name not in NOT_ALONE)
        for one in phases(spec, PAPER, TOKENS, cuda(0))
    ]
    found = sharded(spec, PAPER, TOKENS, cuda(max(alone) + more))
    assert found == Sharded(trainer="trl", bytes=52_000, devices=devices)
    assert sharded(spec, PAPER, TOKENS, cuda(max(alone))) == Sharded(trainer="trl", bytes=52_000, devices=None)


def test_what_fits_or_trains_an_adapter_is_not_sent_away() -> None:
    assert sharded(run(model={"lora": None}), PAPER, TOKENS, cuda(2**40)) is None
    assert sharded(run(), PAPER, TOKENS, cuda(0)) is None


def test_another_profile_is_a_change() -> None:
    small = run(grpo={**LONG, "max_completion_length": 1})
    found = levers(run(grpo=LONG), PAPER, TOKENS, cuda(0), {"small": (small, PAPER)})
    (profile,) = (one for one in found.alone if one.change == "--profile small")
    assert profile.bytes == peak(phases(small, PAPER, TOKENS, cuda(0))).bytes


def test_what_cannot_be_made_smaller_is_left() -> None:
    # One row a micro-batch, two completions a group, short ones, rank 1, bf16, checkpointing: nothing is left.
    least = {"max_completion_length": 32, "gradient_accumulation_steps": 4}
    model = {
        "dtype": "bfloat16",
        "gradient_checkpointing": True,
        "lora": {"r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]},
    }
    assert list(levers(run(model=model, grpo=least), PAPER, TOKENS, cuda(0), {}).alone) == []
