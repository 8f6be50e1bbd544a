"""Groups of one completion, by the settings and by advantages that are the rewards themselves."""

from __future__ import annotations

import pytest

from core.health.case import Case, Settings
from core.health.finding import Row
from core.health.rules.group_of_one import group_of_one


def rows(*ends: tuple[float, float], shift: float = 0.0, scale: float = 1.0, **more: float) -> list[Row]:
    """Rewards from `low` to `high`, and advantages that are those, shifted and scaled."""
    return [
        {
            "step": i, "reward/min": low, "reward/max": high, "advantage/min": scale * (low + shift),
            "advantage/max": scale * (high + shift), **more,
        }
        for i, (low, high) in enumerate(ends, 1)
    ]  # fmt: skip


RAW = rows((0.0, 1.0), (0.1, 1.0), (0.0, 0.9))


def graded(table: list[Row], **settings: object) -> list[tuple[str, str]]:
    return [
        (one.severity, one.confidence)
        for one in group_of_one(Case(rows=table, settings=Settings(**settings)))  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize(
    ("table", "settings", "expected"),
    [
        (RAW, {}, [("warning", "moderate")]),  # or a method without a baseline
        (RAW, {"num_generations": 1}, [("warning", "strong")]),
        (RAW, {"num_generations": 1, "baseline": "group"}, [("warning", "certain")]),  # too short to say it stood
        (RAW, {"baseline": "none"}, []),  # by intent
        (RAW, {"num_generations": 1, "baseline": "running"}, []),
        (RAW, {"num_generations": 8, "baseline": "group"}, [("warning", "strong")]),  # each completion an id of its own
        ([{"step": 1}], {"num_generations": 1, "baseline": "group"}, [("warning", "certain")]),
        ([{"step": 1, "advantage/std_all": 0.0}], {"num_generations": 1, "baseline": "group"}, [("error", "certain")]),
        ([{"step": 1}], {"num_generations": 1}, [("warning", "strong")]),
        ([{"step": 1, "advantage/max_abs": 0.0}], {"num_generations": 1}, [("error", "strong")]),
        ([{"step": 1}], {"num_generations": 2, "baseline": "group"}, []),
        (rows((0.0, 1.0), shift=-0.5), {}, []),  # centred
        (rows((0.1, 1.0), scale=2.0), {}, []),
        (rows((-1.0, 1.0)), {}, []),  # halves of 1 and -1 are their own z-scores
        (rows((-1.0, 1.0), **{"advantage/mean": 0.5}), {}, [("warning", "moderate")]),  # not centred
        (rows((1.0, 1.0)), {}, []),  # the reward does not vary
        (RAW + rows((0.0, 1.0), shift=-0.5), {}, []),  # one row refutes it
    ],
)
def test_from_what_it_is_known(table: list[Row], settings: dict[str, object], expected: list[tuple[str, str]]) -> None:
    assert graded(table, **settings) == expected


def test_means_alone() -> None:
    """The mean advantage is the mean reward on three rows with different ones."""
    table: list[Row] = [{"step": i, "reward/mean": m, "advantage/mean": m} for i, m in enumerate((0.2, 0.3, 0.5), 1)]
    assert graded(table) == [("warning", "moderate")]
    assert graded(table[:2]) == []
    assert graded([{**row, "advantage/mean": 0.0} for row in table]) == []


def test_advantages_below_the_worst_reward_are_of_a_group_whatever_k_says() -> None:
    def rows(low: float) -> list[dict[str, float]]:
        ends = {"advantage/max": 1.0, "advantage/min": low, "reward/max": 1.0, "reward/min": 0.0}
        return [{"step": float(step), "update": 1.0, "reward/mean": 0.5, **ends} for step in range(1, 6)]

    settings = Settings(num_generations=1, baseline="group", scale_rewards="group")
    assert group_of_one(Case(rows=rows(-0.7), settings=settings)) == ()
    assert [one.severity for one in group_of_one(Case(rows=rows(0.0), settings=settings))] == ["warning"]


@pytest.mark.parametrize(("slope", "severity"), [(0.0, "error"), (0.01, "warning")])
def test_an_error_only_where_nothing_was_learned(slope: float, severity: str) -> None:
    """Rewards scatter by 0.1 around a line: one that rises is learned without a baseline, as verl's K=1 can."""
    table: list[Row] = [
        {"step": step, "update": 1.0, "reward/mean": 0.3 + slope * step + (0.05 if step % 2 else -0.05)}
        for step in range(1, 41)
    ]
    (finding,) = group_of_one(Case(rows=table, settings=Settings(num_generations=1, baseline="group")))
    assert (finding.severity, finding.confidence) == (severity, "certain")
