"""verl's lines: a settled layout is read by a pattern, and what does not fit it as any other line."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from grpoctl.diagnose.readers.metric_names import name_of
from grpoctl.diagnose.readers.verl_lines import VerlLines

MANY = 120  # lines: more than settle a layout


def is_known(name: str) -> bool:
    return name_of(name) is not None


def reader() -> tuple[VerlLines, set[str]]:
    unknown: set[str] = set()
    return VerlLines(is_known, unknown.update), unknown


def usual(step: int) -> str:
    return (
        f"(TaskRunner pid=7) step:{step} - actor/entropy:{step / 8} - timing_s/gen:3.5 - actor/kl_loss:{step / 16}"
        " - perf/mfu:0.4 - timing_s/step:9.0"
    )


def expected(step: int) -> dict[str, float | None]:
    return {"step": step, "actor/entropy": step / 8, "actor/kl_loss": step / 16}


def after_many(*lines: str) -> list[dict[str, float | None] | None]:
    """What the lines say behind many usual ones."""
    verl, _ = reader()
    assert [verl.cells_of(usual(step)) for step in range(1, MANY + 1)] == [*map(expected, range(1, MANY + 1))]
    return [verl.cells_of(line) for line in lines]


@pytest.mark.parametrize(
    ("line", "more"),
    [
        (usual(8) + " - actor/grad_norm:0.5", {"actor/grad_norm": 0.5}),  # behind the last metric
        (usual(8).replace("actor/kl", "actor/grad_norm:0.5 - actor/kl"), {"actor/grad_norm": 0.5}),
        (usual(8).replace("step:8 - ", "step:8 - actor/grad_norm:0.5 - "), {"actor/grad_norm": 0.5}),
        (usual(8).replace(" - perf/mfu:0.4", ""), {}),
        (usual(8).replace("gen:3.5", "gen:3.5 s"), {}),
        (usual(8).replace("0.5 -", "np.float64(0.5) -"), {}),
        (usual(8).replace("1.0 -", "np.float32(1.0) -"), {}),
    ],
)
def test_a_line_of_another_layout_behind_many(line: str, more: dict[str, float]) -> None:
    told, again = after_many(line, usual(9))
    assert told == {**expected(8), **more}
    assert again == expected(9)


def test_parts_in_another_order_and_fewer() -> None:
    assert after_many("step:3 - actor/kl_loss:0.25 - actor/entropy:0.5 - timing_s/gen:1 - a/b:1 - c/d:1") == [
        {"step": 3, "actor/kl_loss": 0.25, "actor/entropy": 0.5}
    ]
    assert after_many("step:3 - actor/entropy:0.5", "no line of verl, step: 3") == [
        {"step": 3, "actor/entropy": 0.5},
        None,
    ]


def test_a_metric_in_another_parts_place_behind_the_last_is_found_some_lines_later() -> None:
    other = [usual(step).replace("perf/mfu:0.4", "actor/grad_norm:0.5") for step in range(1, MANY + 1)]
    told = [cells or {} for cells in after_many(*other)]
    assert told[0] == expected(1)  # as many parts as before: not looked at
    assert told[-1] == {**expected(MANY), "actor/grad_norm": 0.5}


def test_a_part_whose_value_has_a_colon_is_called_by_what_stands_before_it() -> None:
    first, second = after_many(
        usual(8).replace("gen:3.5", "gen:12:30"), usual(9).replace("actor/entropy:", "actor/entropy:x:")
    )
    assert first == expected(8)
    assert second == {"step": 9, "actor/kl_loss": 9 / 16}  # of `actor/entropy:x` nothing is known


def test_two_lines_in_one_and_a_step_without_end() -> None:
    line = "step:1 - actor/lr:0.000 - actor/kl_loss:0.5"
    assert after_many(f"{line}(TaskRunner pid=1) {line}", f"step:{'1' * 400} - actor/kl_loss:0.5") == [
        {"step": 1, "actor/kl_loss": 0.5},
        None,
    ]


def test_numbers_that_are_none_and_none_at_all() -> None:
    nan, absent = after_many(usual(8).replace("entropy:1.0", "entropy:nan"), usual(8).replace("1.0", "None"))
    assert nan is not None
    assert math.isnan(nan["actor/entropy"] or 0.0)
    assert absent == {**expected(8), "actor/entropy": None}


def numpys(steps: Iterable[int]) -> list[str]:
    return [
        f"step:{step} - actor/entropy:np.float64({step / 8}) - actor/lr:0.000 - actor/kl_loss:0.5" for step in steps
    ]


def test_a_value_with_a_word_behind_it_is_no_number_also_behind_many() -> None:
    assert after_many(usual(8).replace("kl_loss:0.5", "kl_loss:0.5 nats")) == [{**expected(8), "actor/kl_loss": None}]


def test_numpys_numbers_and_rates_of_too_few_decimals() -> None:
    verl, unknown = reader()
    told = [verl.cells_of(line) for line in numpys(range(1, MANY))]
    assert told == [{"step": step, "actor/entropy": step / 8, "actor/kl_loss": 0.5} for step in range(1, MANY)]
    assert verl.cells_of("step:8 - actor/entropy:1.0 - actor/lr:0.5 - actor/kl_loss:np.float64(0.25)") == {
        "step": 8, "actor/entropy": 1.0, "actor/lr": 0.5, "actor/kl_loss": 0.25
    }  # fmt: skip
    cut_off = verl.cells_of("step:9 - actor/entropy:np.float64(1 - actor/lr:0.5 - actor/kl_loss:0.5")
    assert cut_off == {"step": 9, "actor/entropy": None, "actor/lr": 0.5, "actor/kl_loss": 0.5}
    assert unknown == set()


@pytest.mark.parametrize("lines", [[*map(usual, range(1, MANY))], numpys(range(1, MANY))], ids=["plain", "numpy"])
def test_a_settled_layout_is_read_by_its_pattern(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    verl, _ = reader()
    for line in lines:
        verl.cells_of(line)
    monkeypatch.setattr(VerlLines, "_values_of", None)
    monkeypatch.setattr("grpoctl.diagnose.readers.verl_lines.value_of", None)  # floats are made at once
    assert (verl.cells_of(lines[7]) or {})["actor/entropy"] == 1.0


def test_a_log_without_a_metric_that_is_known_tells_its_steps() -> None:
    verl, unknown = reader()
    assert [verl.cells_of(f"step:{step} - mine/a:1 - mine/b:2") for step in range(MANY)] == [
        {"step": step} for step in range(MANY)
    ]
    assert unknown == {"mine/a", "mine/b"}
