"""A rate that breaks a policy at once, one that moves nothing, and what looks like the first and is not."""

from __future__ import annotations

import dataclasses

import pytest

from core.health.case import Case
from core.health.examine import examine
from core.health.finding import Row
from core.health.learning_rate import learning_rate
from core.health.settings import Settings

RATE = 0.05
SOUND: Row = {
    "update": 1, "completions/valid": 0.8, "completions/length": 20.0, "completions/truncated": 0.0, "entropy": 0.5,
    "reward/mean": 0.6, "reward/std": 0.1, "learning_rate": RATE, "grad_norm": 0.2,
}  # fmt: skip


def run(*changes: Row, steps: int = 30) -> Case:
    """A run whose first rows are changed so, the last change holding to the end."""
    rows: list[Row] = []
    for step in range(1, steps + 1):
        change = changes[min(step, len(changes)) - 1]
        rows.append({"step": step, **SOUND, **change})
    return Case(rows=rows)


BROKEN: Row = {"completions/valid": 0.0, "entropy": 2.0, "reward/mean": 0.1}


def test_a_jump_of_the_kl_and_what_it_broke() -> None:
    # After one update 0.4 nats: the rate that gives 1e-4 is smaller by sqrt(0.4 / 1e-4) = 63: 0.05 / 63 = 8e-4.
    (found,) = learning_rate(run({"kl": 0.0}, {"kl": 0.4, **BROKEN, "rollout/logprob_gap": 1e-6}))
    assert (found.id, found.severity, found.confidence) == ("learning-rate", "error", "strong")
    assert (found.evidence["kl"], found.evidence["after_updates"], found.evidence["learning_rate"]) == (0.4, 1, RATE)
    assert found.suggest == ("learning_rate=0.0008",)
    assert "completions/valid from 0.8 to 0, reward/mean from 0.6 to 0.1, entropy from 0.5 to 2" in found.summary


def test_a_jump_that_broke_nothing_is_a_warning() -> None:
    (found,) = learning_rate(run({"kl": 0.0}, {"kl": 0.4}))
    assert (found.severity, found.confidence) == ("warning", "moderate")
    assert learning_rate(run({"kl": 0.0}, {"kl": 0.09})) == ()
    assert learning_rate(run({"kl": 0.0}, *[{"kl": 0.01}] * 3, {"kl": 3.0})) == ()  # far, but later


@pytest.mark.parametrize(
    ("broken", "of", "found"),
    [
        # Of 10 steps k look broken by chance with P(>= k) of B(10, 0.05): 4: 1.0e-3, 5: 6.4e-5.
        (10, 10, True),
        (5, 10, True),
        (4, 10, False),
        (4, 5, True),  # a run that was stopped: 3.0e-5
        (3, 5, False),  # 1.2e-3
        (4, 4, False),  # too few to say anything
    ],
)
def test_without_a_kl_the_first_steps_are_held_against_the_start(broken: int, of: int, found: bool) -> None:
    changes: list[Row] = [{}, *[BROKEN] * broken, *[{}] * (of - broken)]
    assert bool(learning_rate(run(*changes, steps=1 + of))) == found


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"entropy": 0.05},  # surer of what it writes: one column is not another policy
        {"entropy": 0.05, "completions/length": 8.0, "reward/mean": 0.95},  # learned
        {"entropy": 0.16, "completions/length": 10.5, "reward/mean": 0.16},  # each just within its bounds
    ],
)
def test_what_is_no_rates_doing(change: Row) -> None:
    assert learning_rate(run({}, change)) == ()


def test_what_breaks_later_is_another_causes_doing() -> None:
    assert learning_rate(run(*[{}] * 11, BROKEN)) == ()
    assert learning_rate(run(*[{}] * 4, BROKEN)) != ()


def test_a_log_without_validity_kl_and_update_marks() -> None:
    # As TRL's. Lengths 20 -> 48, in the limit; without a KL the suggestion is a tenth.
    names = (
        "step",
        "entropy",
        "completions/length",
        "completions/truncated",
        "reward/mean",
        "learning_rate",
        "grad_norm",
    )
    rows = [{name: row[name] for name in names} for row in run({}).rows]
    gone = {"completions/length": 48.0, "completions/truncated": 1.0}
    crashed = [{**row, **(gone if (row["step"] or 0) > 2 else {})} for row in rows]
    (found,) = learning_rate(Case(rows=crashed))
    assert (found.severity, found.suggest, found.confidence) == ("error", ("learning_rate=0.005",), "moderate")
    assert (found.evidence["gone"], found.evidence["steps"]) == (9, 10)
    assert learning_rate(Case(rows=crashed, averaged_over=10)) == ()  # ten steps in a row: none is the first
    quiet = [{**row, "learning_rate": 0.0} for row in crashed]
    assert learning_rate(Case(rows=quiet)) == ()  # no update acted


def test_where_the_sampler_is_at_fault_nothing_is_said_of_the_weights() -> None:
    assert learning_rate(run({"kl": 0.0}, {"kl": 0.4, **BROKEN, "rollout/logprob_gap": 3.0})) == ()
    # All-invalid after each update, healed after each skipped one: a wrong mode (core.health.rollout_mode).
    rows = [
        {"step": i, **SOUND, "update": int(i % 3 == 1), "kl": 0.4, "completions/valid": 0.0 if i % 3 == 2 else 0.8}
        for i in range(1, 40)
    ]
    assert learning_rate(Case(rows=rows)) == ()


def test_weights_that_are_damaged_rule_a_wrong_mode_out() -> None:
    # Steps 1 to 3 update, 4 to 30 skip. All-invalid from 2 on: of 4 to 30, 26 are followed by a step, as bad.
    first: Row = {"kl": 0.0}
    case = run(first, {"kl": 0.4, **BROKEN}, {"kl": 0.4, **BROKEN}, {**BROKEN, "update": 0})
    (found,) = learning_rate(case)
    assert [ruled.id for ruled in found.rules_out] == ["rollout-mode"]
    assert "26 of 26" in found.rules_out[0].why
    assert [one.id for one in examine(case)][:2] == ["learning-rate", "policy-collapse"]


EVALUATED: Row = {"eval/reward": 0.5, "eval/length": 20.5, "eval/valid": 0.8}


def still(**last: float) -> Case:
    """30 updates, the same evaluation before, after 15 and after 30; the last one changed so."""
    case = run({"kl": 1e-9})
    rows = [{"step": 0, **EVALUATED}, *case.rows]
    rows[15], rows[30] = {**rows[15], **EVALUATED}, {**rows[30], **EVALUATED, **last}
    return Case(rows=rows)


def test_a_rate_that_moves_nothing() -> None:
    (found,) = learning_rate(still())
    assert (found.severity, found.confidence) == ("warning", "certain")
    assert found.evidence["same_evaluations"] == 3
    # sqrt(1e-4 / 1e-9) = 316, and never more than 100 times: 5.
    assert found.suggest == ("learning_rate=5",)


def test_one_text_that_changed_is_enough_to_have_moved() -> None:
    # The KL is still below 1e-7: said with less certainty, and no longer where that has grown.
    assert learning_rate(still(**{"eval/length": 20.51}))[0].confidence == "moderate"
    rows = [{**row, "kl": 1e-5} for row in still(**{"eval/length": 20.51}).rows]
    assert learning_rate(Case(rows=rows)) == ()


def test_too_few_updates_say_nothing() -> None:
    case = still()
    assert learning_rate(dataclasses.replace(case, rows=[{**row, "update": 0} for row in case.rows])) == ()
    assert learning_rate(Case(rows=[])) == ()
    assert learning_rate(Case(rows=[], settings=Settings(learning_rate=1e-9))) == ()
