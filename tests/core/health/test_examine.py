"""Missing rewards, runs without an update, all rules over a whole table; and counts of a run, by hand."""

from __future__ import annotations

from random import Random
from time import process_time
from typing import Any

import pytest

from core.config import GuardSpec
from core.health.case import Case, Sample
from core.health.examine import AddedRule, examine, facts, name_of_rule
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
    assert finding is None or finding.id == "missing-rewards"
    assert finding is None or finding.severity == ("error" if found == 1.0 else "warning")
    assert [one.id for one in examine(Case(rows=rows, guards=GUARDS))] == ([] if finding is None else [finding.id])


def test_steps_are_the_rows_from_step_1_on() -> None:
    rows: list[Row] = [{"step": 0}, {"step": 1}, {"step": 2}, {"completions": 3}, {"step": None}]
    assert steps_of(rows) == rows[1:3]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], ""),
        ((Finding(id="x", severity="info", summary="s"),), ""),
        (None, "it gave None; allowed: a list of core.health.finding.Finding"),
        (Finding(id="x", severity="info", summary="s"), "it gave Finding"),
        (["x"], "allowed: a list of core.health.finding.Finding, empty for none"),
        (
            [Finding(id="x", severity="fatal", summary="s")],
            "x has the severity 'fatal'; allowed: one of error, warning",
        ),  # type: ignore[arg-type]
        ([Finding(id="x", severity="info", summary="s", confidence="high")], "x has the confidence 'high'"),  # type: ignore[arg-type]
    ],
)
def test_a_packages_rule_gives_findings_or_is_refused(given: Any, said: str) -> None:
    rule = AddedRule(called="mine of package red", rule=lambda case: given)
    assert name_of_rule(rule) == "mine of package red"
    if not said:
        assert rule(Case(rows=[])) == given
        return
    with pytest.raises((TypeError, ValueError), match=said):
        rule(Case(rows=[]))


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
        **({"kl": 0.01, "loss": 0.02, "grad_norm": 0.5} if step % 2 else {}),
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
        "advice": "", "confidence": "strong", "basis": "rule",
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


# Of steps 1 to 6 stand after an update 2, 5 and 6, after a skipped one 3 and 4.
UPDATE = (1, 0, 0, 1, 1, None)
VALID = (1.0, 0.0, 0.5, 1.0, 0.0, 0.0)  # all-invalid: 2, 5, 6, each after an update; 2 skipped, and 3 was sound


def rows() -> list[Row]:
    table: list[Row] = [{"step": 0, "eval/reward": 0.1}]
    for step, (update, valid) in enumerate(zip(UPDATE, VALID, strict=True), 1):
        table.append(
            {
                "step": step,
                "completions/valid": valid,
                "reward/mean": step / 10,
                **({} if update is None else {"update": update}),
            }
        )
    return table


def samples() -> tuple[Sample, ...]:
    """Two a step: both valid, one of them, or none."""
    return tuple(
        Sample(step=step, row=row, valid=row < 2 * valid) for step, valid in enumerate(VALID, 1) for row in (0, 1)
    )


def test_what_is_counted() -> None:
    # Valid: 2 + 0 + 1 + 2 + 0 + 0. After updates stand 2, 5, 6: six completions, none valid; after skips 3, 4: 1 of 4.
    assert facts(Case(rows=rows(), samples=samples())) == {
        "steps": 6, "last_step": 6, "updates": 3, "followed_updates": 3, "followed_skips": 2,
        "collapsed_after_update": 3, "collapsed_after_skip": 0, "collapsed_and_skipped": 1, "healed": 1,
        "samples": 12, "valid": 5, "samples_after_update": 6, "invalid_after_update": 6, "samples_after_skip": 4,
        "invalid_after_skip": 1, "reward/first": pytest.approx(0.2), "reward/last": pytest.approx(0.5),  # of three each
    }  # fmt: skip


def test_what_is_not_known_is_not_told() -> None:
    assert facts(Case(rows=[])) == facts(Case(rows=[{"step": 0, "eval/reward": 1.0}])) == {}
    assert facts(Case(rows=[{"step": 3}])) == {"steps": 1, "last_step": 3}
    assert facts(Case(rows=[{"step": 1, "update": 1}, {"step": 2, "update": 0}])) == {
        "steps": 2, "last_step": 2, "updates": 1  # of what followed them nothing is known
    }  # fmt: skip
    assert facts(Case(rows=[{"step": 1}], samples=(Sample(step=1),))) == {"steps": 1, "last_step": 1, "samples": 1}


def test_counts_are_whole_numbers() -> None:
    found = facts(Case(rows=[{"step": 10.0, "update": 1.0}, {"step": 20.0, "update": 1.0}], averaged_over=10))
    assert found == {"steps": 20, "last_step": 20, "updates": 20}  # every row says that all of its steps made one
    assert {type(value) for value in found.values()} == {int}


def test_rewards_are_means_of_ten_rows() -> None:
    table: list[Row] = [{"step": step, "reward/mean": float(step)} for step in range(1, 21)]
    found = facts(Case(rows=[*table, {"step": 21}]))
    assert (found["reward/first"], found["reward/last"]) == (5.5, 15.5)  # of 1 to 10 and of 11 to 20
    for count, ends in ((1, (1.0, 1.0)), (2, (1.0, 2.0)), (3, (1.0, 3.0)), (5, (1.5, 4.5)), (30, (5.5, 25.5))):
        few: list[Row] = [{"step": step, "reward/mean": float(step)} for step in range(1, count + 1)]
        assert (facts(Case(rows=few))["reward/first"], facts(Case(rows=few))["reward/last"]) == ends


def test_a_row_that_stands_for_several_steps_says_nothing_of_one() -> None:
    """TRL logs every ten steps: nothing follows an update there."""
    table: list[Row] = [{"step": 10 * i, "update": i % 2, "completions/valid": 0.0} for i in range(1, 6)]
    found = facts(Case(rows=table, averaged_over=10, samples=(Sample(step=11, valid=False),)))
    assert found == {"steps": 50, "last_step": 50, "samples": 1, "valid": 0}
