"""Missing rewards, runs without an update, and all rules over a whole table."""

from __future__ import annotations

from random import Random
from time import process_time

import pytest

from core.config import GuardSpec
from core.health.case import Case
from core.health.examine import examine
from core.health.finding import Finding, Row, all_invalid, steps_of
from core.health.rules.learning_rate import no_updates
from core.health.rules.rewards import missing_rewards

GUARDS = GuardSpec(patience=3)


@pytest.mark.parametrize(
    ("shares", "found"),
    [
        ([0.0, 0.0], None),
        ([0.01, 0.01], None),  # one in a hundred is let pass
        ([0.0, 0.04], 0.02),  # (0 + 0.04) / 2
        ([1.0], 1.0),  # one step is enough
        ([None, 0.5], 0.5),  # a supervised step has no rewards
        ([None], None),
    ],
)
def test_missing_rewards(shares: list[float | None], found: float | None) -> None:
    rows: list[Row] = [{"step": step, "reward/missing": share} for step, share in enumerate(shares, start=1)]
    finding = missing_rewards([{"step": 0, "reward/missing": 1.0}, *rows])
    assert (None if finding is None else finding.evidence["share"]) == (None if found is None else pytest.approx(found))
    assert finding is None or (finding.id, finding.severity) == ("missing-rewards", "warning")
    assert [one.id for one in examine(Case(rows=rows, guards=GUARDS))] == ([] if finding is None else [finding.id])


def test_steps_are_the_rows_from_step_1_on() -> None:
    rows: list[Row] = [{"step": 0}, {"step": 1}, {"step": 2}, {"completions": 3}, {"step": None}]
    assert steps_of(rows) == rows[1:3]


@pytest.mark.parametrize(("row", "collapsed"), [({"completions/valid": 0.0}, True), ({"completions/valid": 0}, True)])
def test_collapsed_steps(row: Row, collapsed: bool) -> None:
    assert all_invalid(row)
    assert not all_invalid({"completions/valid": 0.01})
    assert not all_invalid({"completions/valid": None})
    assert not all_invalid({})


def healthy(step: int) -> Row:
    return {
        "step": step,
        "update": step % 2,
        "completions/valid": 0.9,
        "completions/length": 10.0,
        "completions/truncated": 0.0,
        "entropy": 0.6,
        "groups/dead": 0.4,
        "rollout/logprob_gap": 2e-6,
        "temperature": 1.0,
        **({"kl": 0.01, "loss": -2e-9, "grad_norm": 0.5} if step % 2 else {}),
    }


def ids(table: list[Row]) -> list[str]:
    return [finding.id for finding in examine(Case(rows=table, guards=GUARDS))]


def test_a_healthy_table_has_no_findings() -> None:
    rows: list[Row] = [{"step": 0, "completions": 0, "eval/reward": 0.5}, *map(healthy, range(1, 101))]
    assert examine(Case(rows=rows, guards=GUARDS)) == []
    assert examine(Case(rows=[], guards=GUARDS)) == []


def test_p30_in_small_shows_everything_and_the_most_telling_first() -> None:
    # Every update is followed by an all-invalid step with a gap of 5 nats; a skipped one by a healthy step.
    rows: list[Row] = []
    for step in range(1, 41):
        broken = bool(rows) and rows[-1]["update"] == 1
        rows.append(
            {
                **healthy(step),
                "update": step // 3 % 2,
                "groups/dead": 0.7,
                **({"completions/valid": 0.0, "rollout/logprob_gap": 5.0} if broken else {}),
            }
        )
    assert ids(rows) == ["rollout-mode", "rollout-integrity", "dead-groups"]  # and no policy-collapse: it is ruled out


def test_a_finding_goes_out_as_json() -> None:
    finding = Finding(id="a", severity="info", summary="b", evidence={"c": 1.0})
    assert finding.as_json() == {
        "id": "a", "severity": "info", "summary": "b", "evidence": {"c": 1.0}, "rules_out": [], "suggest": [],
        "advice": "", "confidence": "strong",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"update": 0, "groups/dead": 1.0, "groups/discarded": 0.0}] * 10, "100% of the groups had equal rewards"),
        ([{"update": 0, "groups/dead": 0.5, "groups/discarded": 2.0}] * 10, "left groups out (20 in all"),
        ([{"update": 0}] * 10, "finite loss"),
        ([{"update": 0, "groups/dead": 1.0}] * 9, None),  # too few steps to say
        ([{"update": 1, "learning_rate": 0.0}] * 10, "10 of the updates had a learning rate of exactly 0"),
        ([{"update": 1, "learning_rate": 0.0}] * 10 + [{"update": 1, "learning_rate": 1e-6}], None),
        ([{"groups/dead": 1.0}] * 10, None),  # nobody says which steps made an update
        ([{"update": 0, "groups/dead": 1.0}] * 10 + [{"groups/dead": 1.0}], None),
        ([{"update": 0, "groups/dead": 1.0}] * 10 + [{"update": 1, "groups/dead": 0.0}], None),
    ],
)
def test_a_run_that_learned_nothing_says_so(rows: list[Row], says: str | None) -> None:
    found = no_updates([{"step": i, **row} for i, row in enumerate(rows, 1)])
    assert (found is None) == (says is None)
    if found is not None:
        assert says in found.summary


def cpu_seconds(steps: int) -> float:
    draw = Random(0)
    rows = [
        {
            **healthy(step), "update": 1, "learning_rate": 1e-4, "kl": draw.random() * step / steps,
            "reward/mean": draw.random(), "entropy": draw.random(), "completions/valid": draw.random(),
        }
        for step in range(1, steps + 1)
    ]  # fmt: skip
    began = process_time()
    examine(Case(rows=rows, guards=GUARDS))
    return process_time() - began


def test_ten_times_the_steps_take_no_hundred_times_as_long() -> None:
    assert min(cpu_seconds(3000) for _ in range(2)) < 40 * min(cpu_seconds(300) for _ in range(3))
