"""Which tasks are files of this machine, and what an evaluation may be cut by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from core.config.task import ArithmeticTaskSpec, CustomTaskSpec, Gsm8kTaskSpec
from core.errors import SpecError
from core.tasks.base import Example, Split
from core.tasks.registry import MOST_SLICES, check_cut, check_slices, check_task, is_local
from core.tasks.text import text_example
from grpoctl.config import load
from tests.fakes import PricedTask

HERE, HUB = {"path": "rows.jsonl"}, {"hub": "mine/rows"}


def custom(**data: Any) -> CustomTaskSpec:
    told = {"name": "custom", "prompt": "{question}", "rewards": [{"function": "json:dumps"}], **data}
    return CustomTaskSpec.model_validate(told)


def test_what_the_hub_has_is_not_looked_at_before_a_run() -> None:
    assert is_local(custom(data=HERE))
    assert is_local(custom(data=HERE, eval_data=HERE, test_data=HERE))
    assert not is_local(custom(data=HUB))
    assert not is_local(custom(data=HERE, test_data=HUB))  # one that is not is enough
    assert is_local(Gsm8kTaskSpec(name="gsm8k", path="folder"))
    assert not is_local(Gsm8kTaskSpec(name="gsm8k"))
    assert not is_local(ArithmeticTaskSpec(name="arithmetic"))  # no files at all


class Sides(PricedTask):
    """Held-out problems whose `side` takes so many values; `train` ones have another fact."""

    def __init__(self, values: int) -> None:
        super().__init__(lambda *_: 0.0)
        self._values = values

    def examples(self, split: Split) -> Sequence[Example]:
        name = "side" if split == "eval" else "other"
        return [text_example(id=f"{split}-{i}", prompt="a", facts={name: i % self._values}) for i in range(100)]


def test_an_evaluation_is_cut_by_what_its_problems_have() -> None:
    check_slices(Sides(2), None)
    check_slices(Sides(MOST_SLICES), "side")
    with pytest.raises(SpecError, match=r"got 'other'.*side") as error:
        check_slices(Sides(2), "other")
    assert error.value.key == "evaluation.slice_by"
    with pytest.raises(SpecError, match=f"{MOST_SLICES + 1} values among 100"):
        check_slices(Sides(MOST_SLICES + 1), "side")


def test_a_picture_is_nothing_to_cut_by() -> None:
    facts = {"degradation": "haze", "clean": np.zeros((2, 2, 3)), "level": np.float32(0.5)}
    example = Example(id="eval-0", inputs={}, facts=facts)
    for name in ("degradation", "level"):
        check_cut(example, name)
    with pytest.raises(SpecError, match=r"got 'clean'; this task's problems have: degradation, level$"):
        check_cut(example, "clean")


def test_embeddings_of_another_width_are_refused_before_a_run() -> None:
    check_task(load("p40", profile="tiny").spec)
    for override in ("policy.width=8", "task.world.width=8"):
        with pytest.raises(SpecError) as caught:
            check_task(load("p40", profile="tiny", overrides=[override]).spec)
        assert caught.value.key == "policy.width"
        assert {"8", "32"} <= set(caught.value.message.replace(",", "").replace(";", "").split())
