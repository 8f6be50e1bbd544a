"""Mean curves over seeds, and charts small enough to draw by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from grpoctl.analysis.collect import RunRecord
from grpoctl.analysis.curves import Curve, axis_of, chart, mean_curve


def run(*rows: Mapping[str, object]) -> RunRecord:
    return RunRecord(result={}, spec={}, rows=rows)


def evaluated(completions: int, reward: float | None) -> Mapping[str, object]:
    return {"completions": completions, "eval/reward": reward}


@pytest.mark.parametrize(
    ("runs", "curve"),
    [
        ([], ()),
        ([run(evaluated(0, 0.4), {"completions": 8}, evaluated(16, 0.6))], ((0, 0.4), (16, 0.6))),
        # The second seed has no evaluation at 16: read along its straight line there, 0.2 + (0.6 - 0.2) / 2 = 0.4.
        (
            [
                run(evaluated(0, 0.4), evaluated(16, 0.6), evaluated(32, 0.8)),
                run(evaluated(0, 0.2), evaluated(32, 0.6)),
            ],
            ((0, 0.3), (16, 0.5), (32, 0.7)),
        ),
        # The second seed collapsed and ended at 16: it keeps pulling the mean down with its 0.2.
        (
            [
                run(evaluated(0, 0.4), evaluated(16, 0.6), evaluated(32, 0.8)),
                run(evaluated(0, 0.4), evaluated(16, 0.2)),
            ],
            ((0, 0.4), (16, 0.4), (32, 0.5)),
        ),
        ([run(evaluated(0, None), evaluated(16, float("nan")))], ()),
    ],
)
def test_mean_curve(runs: list[RunRecord], curve: tuple[tuple[float, float], ...]) -> None:
    assert mean_curve(runs) == tuple((x, pytest.approx(y)) for x, y in curve)


def test_a_rising_and_a_falling_line() -> None:
    # 32 columns right of the axis for x = 0 to 31, four rows: y = 3x / 31 passes 0.5, 1.5 and 2.5 after x = 5, 15, 25.
    up = Curve(label="A up", points=((0, 0.0), (31, 3.0)))
    down = Curve(label="B down", points=((0, 3.0), (31, 0.0)))
    drawing = chart("reward", [up, down], width=41, height=4)
    assert drawing.splitlines() == [
        "reward",
        "         ── A up   ━━ B down   ══ both",
        "   3.00 ┤━━━━━━┓                   ╭─────",
        "        │      ┗━━━━━━━━━═─────────╯",
        "        │      ╭─────────═━━━━━━━━━┓",
        "   0.00 ┤──────╯                   ┗━━━━━",
        "        └────────────────────────────────",
        "         0              16             31",
        "                   completions",
    ]


def test_the_higher_value_is_drawn_higher() -> None:
    # The trap of a chart: rows count downwards.
    lines = chart("reward", [Curve(label="A", points=((0, 0.1), (10, 0.9)))], width=40).splitlines()[2:-3]
    assert lines[0].endswith("─")
    assert lines[0].index("╭") > lines[-1].index("╯")
    assert lines[0].startswith("  0.900 ┤")
    assert lines[-1].startswith("  0.100 ┤")


@pytest.mark.parametrize("width", [40, 80, 121])
@pytest.mark.parametrize("height", [4, 12])
def test_no_line_is_wider_than_asked(width: int, height: int) -> None:
    points = tuple((x * 123456.0, (x * 7919 % 13) / 1000) for x in range(20))
    curves = [Curve(label="A " + "long" * 30, points=points), Curve(label="B", points=points[:4])]
    drawing = chart("title", curves, width=width, height=height)
    assert max(map(len, drawing.splitlines())) <= width
    assert len(drawing.splitlines()) == height + 5


def test_a_curve_is_drawn_no_further_than_it_went() -> None:
    short, long = Curve(label="A", points=((0, 1.0), (10, 1.0))), Curve(label="B", points=((0, 0.0), (30, 0.0)))
    lines = chart("reward", [short, long], width=40, height=4).splitlines()
    assert lines[2].count("─") == 11  # columns 0 to 10 of 0 to 30
    assert lines[5].count("━") == 31


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, 1e-7])
def test_a_flat_line_has_room(value: float) -> None:
    lines = chart("reward", [Curve(label="A", points=((0, value), (10, value)))], width=40, height=5).splitlines()
    assert lines[4].count("─") == 31  # the middle row of five


def test_a_single_evaluation_at_the_start() -> None:
    assert "─" in chart("reward", [Curve(label="A", points=((0, 0.5),))], width=40, height=5).splitlines()[4]


def test_nothing_to_draw() -> None:
    assert chart("reward", [Curve(label="A", points=()), Curve(label="B", points=())]) == "reward: nothing to draw"


def test_a_third_curve_is_refused() -> None:
    with pytest.raises(ValueError, match="at most two"):
        chart("reward", [Curve(label=label, points=((0, 1.0),)) for label in "ABC"])


def test_evaluations_before_anything_was_drawn_are_shown_over_steps() -> None:
    def run(*rows: dict[str, float]) -> RunRecord:
        return RunRecord(result={}, spec={}, rows=rows, ended=0.0)

    start = {"step": 0.0, "completions": 0.0, "eval/reward": 0.1}
    sampled = run(start, {"step": 2, "completions": 8, "eval/reward": 0.2})
    supervised = run(start, {"step": 5, "completions": 0, "eval/reward": 0.4})
    assert axis_of([sampled, sampled]) == "completions"
    assert axis_of([sampled, supervised]) == "step"
    assert mean_curve([supervised], axis="step") == ((0.0, 0.1), (5.0, 0.4))
    assert "steps" in chart("t", [Curve(label="A", points=((0.0, 0.1), (5.0, 0.4)))], axis="step").splitlines()[-1]
