"""spec.yaml: what is written is what is read, exactly."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from core.config import RunSpec
from core.errors import NotFoundError, SpecError
from grpoctl.config import dump, load, plain, read_resolved
from grpoctl.config.documents import document_of
from grpoctl.config.resolved import block_yaml

SPEC = load("p31", overrides=["early_stopping={patience: 3}"]).spec


def back(spec: RunSpec, tmp_path: Path) -> RunSpec:
    file = tmp_path / "spec.yaml"
    file.write_text(dump(spec), encoding="utf-8")
    return read_resolved(file)


def with_rate(rate: float) -> RunSpec:
    tree: Any = plain(SPEC)
    tree["stages"]["grpo"]["learning_rate"] = rate
    return RunSpec.model_validate(tree)


def hard_floats() -> list[float]:
    """Edges of float64, and random bit patterns."""
    edges = [
        5e-324,
        2.2250738585072014e-308,
        1.7976931348623157e308,
        0.1,
        1 / 3,
        2e-6,
        1e15,
        1e16,
        1e17,
        1e22,
        2.0**53 + 2,
    ]
    bits = random.Random(0)
    drawn = [struct.unpack("d", bits.randbytes(8))[0] for _ in range(40)]
    return edges + [abs(value) for value in drawn if math.isfinite(value) and value != 0]


def test_floats_come_back_bit_for_bit(tmp_path: Path) -> None:
    for rate in hard_floats():
        read = back(with_rate(rate), tmp_path)
        assert struct.pack("d", read.stages["grpo"].learning_rate) == struct.pack("d", rate)


# each reads as something else where it is written without quotes
HARD = (
    "no | null | ~ | true | 1e5 | 0x1F | 1_000 | 010 | 2025-12-05 | 12:30 | = | << | - | - a | ? | a: b | a # b | # | "
    "'single' \"double\" | \\ | %x | @x | `x` | !x | &x | *x | {x} | [x] | > | é 崩溃 😀"
)
MORE = [
    "", " ", "two\nlines", "\n", "a\n\n\nb", "trailing \n", "\ttab", "\r\n", " leading", "trailing ", "|", "\u2028",
    "\x85", "\ufeff", "a\x85\u2029b", "\r", "\x00", "\x07", "\x7f", "x" * 5000, "word " * 500,
]  # fmt: skip
HARD_TEXTS = [*HARD.split(" | "), *MORE]


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_texts_come_back(text: str, tmp_path: Path) -> None:
    spec = RunSpec.model_validate({**plain(SPEC), "title": text, "source": text})
    assert back(spec, tmp_path) == spec


def test_big_integers_and_zeros_come_back(tmp_path: Path) -> None:
    tree: Any = {**plain(SPEC), "seed": 2**64, "recorded": {"updates": -0.0, "steps": 1e300}}
    spec = RunSpec.model_validate(tree)
    assert back(spec, tmp_path) == spec


def test_the_file_is_block_style_complete_and_stable(tmp_path: Path) -> None:
    text = dump(SPEC)
    assert text == dump(back(SPEC, tmp_path))
    lines = text.splitlines()
    assert lines[0] == "name: p31"
    assert "    learning_rate: 2e-06" in lines
    assert "  max_logprob_gap: null" in lines  # defaults are written too: the file needs no other
    written = [line.partition(":")[0] for line in lines if line[0] not in " -"]
    late = ("policy", "trainer")  # left out while they are lm and grpoctl
    assert written == [name for name in RunSpec.model_fields if name not in late]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: x\n", "spec.yaml: line 1: title: is missing"),
        ("name: x\nnmae: y\n", "spec.yaml: line 2: nmae: unknown key; did you mean name?"),
        ("[]\n", "spec.yaml: line 1: got a list at the top"),
        ("a: [b\n", "spec.yaml: line 2: not valid YAML: while parsing a flow sequence"),
        ("a: " + "[" * 100_000, "spec.yaml: not valid YAML: nested too deeply"),
        ("".join(f"{' ' * depth}a:\n" for depth in range(700)), "spec.yaml: "),
        ("- " * 100_000 + "a\n", "spec.yaml: "),
        ("? " * 100_000 + "a\n", "spec.yaml: "),
        ("x:\r" + "- " * 100_000, "spec.yaml: not valid YAML: nested too deeply"),
        ("x:\u2028" + "- " * 100_000, "spec.yaml: not valid YAML: nested too deeply"),
        ("\ufeff\ufeff" + "- " * 100_000, "spec.yaml: "),
        ("a: " + "[" * 500 + "]" * 500, "spec.yaml: not valid YAML: nested too deeply"),
    ],
)
def test_a_damaged_resolved_file_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        read_resolved(tmp_path / "spec.yaml")
    assert says in str(caught.value)
    with pytest.raises(NotFoundError):
        read_resolved(tmp_path / "nothing.yaml")


def test_key_by_key_is_the_whole() -> None:
    for title in HARD_TEXTS:
        spec = RunSpec.model_validate({**plain(SPEC), "title": title, "seed": 2**64, "recorded": {"updates": -0.0}})
        assert dump(spec) == block_yaml(plain(spec))


def test_both_parsers_see_the_same_in_what_is_dumped(tmp_path: Path) -> None:
    pytest.importorskip("_ruamel_yaml")
    for title in HARD_TEXTS:
        text = dump(RunSpec.model_validate({**plain(SPEC), "title": title}))
        quick, exact = (document_of(text, tmp_path, generated=quickly) for quickly in (True, False))
        assert (quick.tree, quick.places) == (exact.tree, exact.places)
