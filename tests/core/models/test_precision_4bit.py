"""When base weights are loaded in 4 bits. Loading itself needs a CUDA device and bitsandbytes: not tried here."""

from __future__ import annotations

import pytest

from core.errors import SpecError
from core.models.precision import DeviceRoom, WeightsSize, lora_run_bytes, use_4bit

B = 10**9
SEVEN = WeightsSize(count=7 * B, itemsize=2)  # 14 GB in bfloat16; with what stands beside it 14 * 1.6 = 22.4


def room(free: float | None, bitsandbytes: bool = True) -> DeviceRoom:
    return DeviceRoom(free=None if free is None else round(free * B), bitsandbytes=bitsandbytes)


@pytest.mark.parametrize(
    ("wish", "lora", "weights", "machine", "answer"),
    [
        ("never", True, SEVEN, room(10), False),
        ("auto", True, SEVEN, room(22.3), True),  # 22.4 do not fit
        ("auto", True, SEVEN, room(22.4), False),  # they just do
        ("auto", True, SEVEN, room(10, bitsandbytes=False), False),  # it fails for want of memory, not in silence
        ("auto", False, SEVEN, room(10), False),  # 4-bit weights cannot be trained
        ("auto", True, SEVEN, room(None), False),
        ("auto", True, WeightsSize(count=None, itemsize=2), room(10), False),
        ("auto", True, WeightsSize(count=7 * B, itemsize=4), room(40), True),  # float32: 28 * 1.6 = 44.8
        ("always", True, SEVEN, room(80), True),
    ],
)
def test_4_bits_are_taken_where_nothing_else_fits(
    wish: str, lora: bool, weights: WeightsSize, machine: DeviceRoom, answer: bool
) -> None:
    assert use_4bit(wish, lora=lora, weights=weights, room=machine) is answer  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        (
            room(80, bitsandbytes=False),
            r"bitsandbytes is not installed; pip install bitsandbytes, or set never or auto",
        ),
        (room(None), r"there is no CUDA device; set never or auto"),
    ],
)
def test_4_bits_that_are_demanded_and_cannot_be_had_are_an_error(machine: DeviceRoom, says: str) -> None:
    with pytest.raises(SpecError, match=says) as caught:
        use_4bit("always", lora=True, weights=SEVEN, room=machine)
    assert caught.value.key == "model.load_in_4bit"


def test_what_a_run_takes_is_estimated_from_its_weights() -> None:
    # 7e9 * 2 * 1.6; quantised 0.8 bytes each, and beside them 0.6 of what bfloat16 weights would be: 0.8 + 1.2 = 2
    assert lora_run_bytes(7 * B, 2) == 22_400_000_000
    assert lora_run_bytes(7 * B, 2, quantised=True) == 14_000_000_000
