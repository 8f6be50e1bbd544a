"""A rate that breaks a policy at once, one that moves nothing, one that ends, and a gradient that reaches no weight."""

from __future__ import annotations

import dataclasses
import random

import pytest

from core.health.case import Case, Settings
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.learning_rate import learning_rate, no_gradient, no_updates, rate_zero

RATE = 0.05
SOUND: Row = {
    "update": 1, "completions/valid": 0.8, "completions/length": 20.0, "completions/truncated": 0.0, "entropy": 0.5,
    "reward/mean": 0.6, "reward/std": 0.1, "learning_rate": RATE, "grad_norm": 0.2,
}  # fmt: skip


BROKEN: Row = {"completions/valid": 0.0, "entropy": 2.0, "reward/mean": 0.1}

MOVED: Row = {**BROKEN, "kl": 0.05}  # too little for a jump, and the policy is not the start's


def run(*changes: Row, steps: int = 30) -> Case:
    """A run whose first rows are changed so, the last change holding to the end."""
    rows: list[Row] = []
    for step in range(1, steps + 1):
        change = changes[min(step, len(changes)) - 1]
        rows.append({"step": step, **SOUND, **change})
    return Case(rows=rows)


def said(case: Case) -> str:
    """The severity of what is said, "" for nothing."""
    return "".join(found.severity for found in learning_rate(case))


def test_a_jump_of_the_kl_and_what_it_broke() -> None:
    # After one update 0.4 nats: the rate that gives 1e-4 is smaller by sqrt(0.4 / 1e-4) = 63: 0.05 / 63 = 8e-4.
    (found,) = learning_rate(run({"kl": 0.0}, {"kl": 0.4, **BROKEN, "rollout/logprob_gap": 1e-6}))
    assert (found.id, found.severity, found.confidence) == ("learning-rate", "error", "strong")
    assert (found.evidence["kl"], found.evidence["after_updates"], found.evidence["learning_rate"]) == (0.4, 1, RATE)
    assert found.suggest == ("learning_rate=0.0008",)
    broke = ("completions/valid went from 0.8 to 0", "reward/mean went from 0.6 to 0.1", "entropy went")
    assert [change in found.summary for change in broke] == [True] * 3


def test_a_jump_that_broke_nothing_is_a_warning() -> None:
    (found,) = learning_rate(run({"kl": 0.0}, {"kl": 0.4}))
    assert (found.severity, found.confidence) == ("warning", "moderate")
    assert said(run({"kl": 0.0}, {"kl": 0.4}, {"kl": 0.4, "reward/mean": 0.9})) == ""  # it was learned
    assert said(run({"kl": 0.0}, {"kl": 0.09})) == ""
    assert said(run({"kl": 0.0}, *[{"kl": 0.01}] * 3, {"kl": 3.0})) == ""  # far, but not within three updates
    assert said(run({"kl": 0.3}, {"kl": 0.4})) == ""  # it was away before: a log that was taken up later
    assert said(run({}, {"kl": 0.4})) == ""  # nobody knows
    assert said(dataclasses.replace(run({"kl": 0.0}, {"kl": 0.4, **BROKEN}), averaged_over=10)) == ""


def evaluated(case: Case, *rewards: float) -> Case:
    """The case with an evaluation before step 1, after 4, 8 ... of these rewards, each with an error of 0.02."""
    rows: list[Row] = [{"step": 0}, *case.rows]
    for index, reward in enumerate(rewards):
        rows[4 * index] = {**rows[4 * index], "eval/reward": reward, "eval/reward_se": 0.02}
    return dataclasses.replace(case, rows=rows)


def test_evaluations_of_the_same_prompts_show_what_noisy_steps_do_not() -> None:
    # 4 standard errors of a difference: 4 * 0.02 * sqrt(2) = 0.113.
    case = run({"kl": 0.0}, {"kl": 0.4})
    assert said(evaluated(case, 0.6, 0.48, 0.48)) == "error"
    assert said(evaluated(case, 0.6, 0.48, 0.49)) == "warning"  # not both
    assert said(evaluated(case, 0.6, 0.48)) == "warning"  # one
    short = run({}, BROKEN)  # one step before it, and no KL
    assert said(short) == "warning"
    assert [found.confidence for found in learning_rate(short)] == ["weak"]
    assert said(evaluated(short, 0.6, 0.1, 0.1)) == "error"


@pytest.mark.parametrize(
    ("sound", "severity"),
    [
        # s steps before, 30 - s after, all of them worse: p = 2 / C(30, s), times the places where a change was looked
        # for (10 updates, 11 rows after them). s = 3: 22 / 4060 = 5.4e-3; s = 4: 22 / 27405 = 8.0e-4.
        (1, "warning"),
        (3, "warning"),
        (4, "error"),
        (11, "error"),
        (13, ""),  # twelve updates had acted: another cause's doing
    ],
)
def test_several_steps_are_held_against_several(sound: int, severity: str) -> None:
    assert said(run(*[{}] * sound, MOVED)) == severity


def test_other_prompts_can_do_the_same_where_no_kl_says_that_the_policy_moved() -> None:
    # Six easy prompts, then hard ones: p = 22 / C(30, 6) = 4e-5 of rows whose order is of no matter.
    (found,) = learning_rate(run(*[{}] * 6, BROKEN))
    assert (found.severity, "or the prompts changed there" in found.summary) == ("warning", True)
    # A KL that grows on as it did, to 0.03 in the end: 0.006 before, 0.011 within five rows.
    smooth: list[Row] = [{"kl": 1e-3 * step, **(BROKEN if step > 6 else {})} for step in range(1, 31)]
    assert said(run(*smooth)) == ""
    assert said(run(*[{"kl": 1e-3}] * 6, *[{**BROKEN, "kl": 0.005}] * 10, {**BROKEN, "kl": 0.2})) == ""  # far, later
    case = run(*[{}] * 6, MOVED)
    assert said(case) == "error"
    risen = evaluated(case, 0.3, 0.32, 0.35, 0.4)  # after steps 0, 4, 8, 12
    assert said(risen) == ""
    assert said(evaluated(case, 0.3, 0.32, 0.2, 0.2)) == "error"


def test_a_warm_up_is_not_too_small_a_rate() -> None:
    still = [{"kl": 0.0, "learning_rate": 1e-6 * step, "eval/reward": 0.5, "eval/length": 9.0} for step in range(1, 31)]
    aim = Settings(learning_rate=1e-4, warmup_steps=100)
    assert said(dataclasses.replace(run(*still), settings=aim)) == ""  # 0.3 of it
    half = [{**row, "learning_rate": 2 * (row["learning_rate"] or 0.0)} for row in still]
    (found,) = learning_rate(dataclasses.replace(run(*half), settings=aim))
    assert (found.confidence, found.suggest) == ("moderate", ("learning_rate=0.001",))  # ten times what it aims at
    (found,) = learning_rate(run(*half))
    assert found.confidence == "certain"


def test_what_does_not_last_is_no_other_policy() -> None:
    # Of 24 rows after the sixth, four fifths must stay broken. At 20 the p is 22 * C(10, 6) / C(30, 6) = 7.8e-3.
    back: Row = {}
    assert said(run(*[{}] * 6, *[MOVED] * 24, back)) == "error"
    assert said(run(*[{}] * 6, *[MOVED] * 20, back)) == "warning"
    assert said(run(*[{}] * 6, *[MOVED] * 19, back)) == ""
    assert said(run(*[{}] * 6, MOVED, steps=11)) != ""
    assert said(run(*[{}] * 6, MOVED, steps=9)) == ""  # too few rows


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"entropy": 0.05},  # surer of what it writes: one column is not another policy
        {"entropy": 0.05, "completions/length": 8.0, "reward/mean": 0.95},  # learned
        {"entropy": 0.05, "completions/length": 8.0},  # briefer, no worse
        {"completions/valid": 0.0, "reward/mean": 0.0},  # one event: what is not valid is not paid
        {"completions/truncated": 1.0, "completions/length": 60.0},  # one event too
        {"entropy": 0.16, "completions/length": 10.5, "reward/mean": 0.56},  # each just within its bounds
        {**BROKEN, "kl": 1e-5},  # the KL says that the policy is the start's
    ],
)
def test_what_is_no_rates_doing(change: Row) -> None:
    assert said(run(*[{}] * 6, change)) == ""


def test_rewards_below_zero_are_held_against_their_spread() -> None:
    # -0.8 to -0.5, a rise; and -0.5 to -0.8, a fall by more than half of 0.1.
    long: Row = {"completions/length": 60.0}
    low, high = {"reward/mean": -0.8}, {"reward/mean": -0.5}
    assert said(run(*[low] * 6, {**high, **long})) == ""
    assert said(run(*[high] * 6, {**low, **long, "kl": 0.05})) == "error"
    assert said(run(*[high] * 6, {"reward/mean": -0.54, **long})) == ""  # 0.04 does not matter


def test_steps_that_vary_as_much_by_themselves() -> None:
    # 300 runs of 40 steps in which nothing changes: half of the prompts are never answered well, one prompt a step.
    found = [said(noisy(seed)) for seed in range(300)]
    assert found.count("error") == 0
    assert found.count("warning") <= 9  # 28 of 2000


def noisy(seed: int) -> Case:
    """Steps that all have one law."""
    draw = random.Random(seed)
    rows: list[Row] = []
    for step in range(1, 41):
        valid = 0.0 if draw.random() < 0.5 else draw.randint(4, 8) / 8
        change = {"completions/valid": valid, "reward/mean": valid * draw.random()}
        change |= {"entropy": draw.lognormvariate(-1, 0.8), "completions/length": draw.lognormvariate(4, 0.8)}
        rows.append({"step": step, **SOUND, **change})
    return Case(rows=rows)


def test_a_warm_up_counts_by_its_rates() -> None:
    # 30 steps to the full rate: the 14 updates before the change are worth (1 + ... + 14) / 30 = 3.5 full ones.
    rates: list[Row] = [{"learning_rate": RATE * step / 30} for step in range(1, 31)]
    changes = [{**rate, **(MOVED if step > 14 else {})} for step, rate in enumerate(rates, 1)]
    assert said(run(*changes, {**MOVED}, steps=60)) == "error"
    # The first update had 2 % of the largest rate: whatever broke then, that did not.
    first: list[Row] = [{"learning_rate": RATE / 50}, MOVED]
    assert said(run(*first)) == ""


def test_only_the_stage_at_hand_counts() -> None:
    # 30 supervised updates, then one step as it began, then 0.8 nats away.
    sft: list[Row] = [{"step": step, "stage": 0, "update": 1, "learning_rate": 1.0} for step in range(1, 31)]
    grpo = [
        {**row, "stage": 1, "step": 30 + (row["step"] or 0)} for row in run({"kl": 0.0}, {"kl": 0.8, **BROKEN}).rows
    ]
    (found,) = learning_rate(Case(rows=[*sft, *grpo], settings=Settings(stage=1)))
    assert (found.severity, found.evidence["after_updates"], found.evidence["learning_rate"]) == ("error", 1, RATE)


def test_a_log_without_validity_kl_and_update_marks() -> None:
    # As TRL's. Lengths 20 -> 48, in the limit; without a KL the suggestion is a tenth. Two steps prove nothing.
    names = {"step", "entropy", "completions/length", "completions/truncated", "reward/mean", "learning_rate"}
    gone = {"entropy": 2.0, "completions/length": 48.0, "completions/truncated": 1.0}
    rows = [{name: value for name, value in row.items() if name in names} for row in run({}, {}, gone).rows]
    (found,) = learning_rate(Case(rows=rows))
    assert (found.severity, found.suggest, found.confidence) == ("warning", ("learning_rate=0.005",), "moderate")
    assert (found.evidence["steps_before"], found.evidence["steps_after"]) == (2, 28)
    assert "too few to prove it" in found.summary
    assert said(Case(rows=rows, averaged_over=10)) == ""  # ten steps in a row: none is the first
    assert said(Case(rows=[{**row, "learning_rate": 0.0} for row in rows])) == ""  # no update acted


def test_where_the_sampler_is_at_fault_nothing_is_said_of_the_weights() -> None:
    assert learning_rate(run({"kl": 0.0}, {"kl": 0.4, **BROKEN, "rollout/logprob_gap": 3.0})) == ()
    # All-invalid after each update, healed after each skipped one: a wrong mode (core.health.rules.rollout_mode).
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


def test_equal_evaluations_of_a_solved_task_say_nothing() -> None:
    case = still()
    assert said(Case(rows=[{**row, "kl": 0.001 * (row["step"] or 0)} for row in case.rows])) == ""  # it moved
    assert said(Case(rows=[{**row, "kl": 1e-6} for row in case.rows])) == "warning"
    solved = [{**row, "kl": 1e-6, **({"eval/reward_se": 0.0} if "eval/reward" in row else {})} for row in case.rows]
    assert said(Case(rows=solved)) == ""
    unknown = [{name: value for name, value in row.items() if name != "kl"} for row in case.rows]
    assert learning_rate(Case(rows=unknown))[0].confidence == "moderate"


def test_too_few_updates_say_nothing() -> None:
    case = still()
    assert learning_rate(dataclasses.replace(case, rows=[{**row, "update": 0} for row in case.rows])) == ()
    assert learning_rate(Case(rows=[])) == ()
    assert learning_rate(Case(rows=[], settings=Settings(learning_rate=1e-9))) == ()


def test_the_kl_is_that_of_the_update_it_is_said_of() -> None:
    # 0.15 nats after one update, 0.36 after three.
    (found,) = learning_rate(run({"kl": 0.0}, {"kl": 0.15, **BROKEN}, {"kl": 0.25, **BROKEN}, {"kl": 0.36, **BROKEN}))
    assert (found.evidence["kl"], found.evidence["after_updates"]) == (0.15, 1)
    assert "0.15 nats" in found.summary
    assert "1 update" in found.summary
    assert "0.36" not in found.summary


def ending(used: int, still: int, **more: int) -> Case:
    rates = [1e-6] * used + [0.0] * still
    rows: list[Row] = [{"step": i, "update": 1, "learning_rate": rate} for i, rate in enumerate(rates, 1)]
    return Case(rows=rows, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("used", "still", "found"),
    [
        (50, 150, True),
        (50, 10, True),
        (50, 9, False),  # a schedule's own end
        (200, 20, False),  # 9 % of the run
        (180, 20, True),
        (0, 20, False),  # no-updates says that
    ],
)
def test_a_rate_that_ends(used: int, still: int, found: bool) -> None:
    assert bool(rate_zero(ending(used, still))) == found


def test_what_is_said() -> None:
    (found,) = rate_zero(ending(50, 150))
    assert (found.severity, found.evidence["first_step"], found.evidence["rows"]) == ("warning", 51, 150)
    assert "from step 51 on (150 of 200 rows; 1e-06 before)" in found.summary
    assert rate_zero(ending(5, 1, averaged_over=10))  # one row of ten steps


def test_a_rate_that_comes_back_is_a_schedule() -> None:
    rows = [*ending(20, 20).rows, {"step": 41, "update": 1, "learning_rate": 1e-6}]
    assert rate_zero(Case(rows=rows)) == ()


def without_gradient(steps: int = 20, **columns: float) -> Case:
    row: Row = {"update": 1, "learning_rate": 1e-6, "grad_norm": 0.0, "loss": 0.01, "kl": 0.0, **columns}
    return Case(rows=[{"step": step, **row} for step in range(1, steps + 1)])


def graded(without_gradient: Case) -> str:
    found = no_gradient(without_gradient)
    return f"{found[0].severity} {found[0].confidence}" if found else ""


def test_a_gradient_of_zero() -> None:
    assert graded(without_gradient()) == "error certain"
    assert graded(without_gradient(steps=9)) == ""
    assert graded(without_gradient(grad_norm=1e-9)) == ""
    assert graded(without_gradient(loss=0.0)) == "warning moderate"  # dead groups, or no weight is reached
    assert graded(without_gradient(kl=1e-4)) == ""  # the weights move: the log has no norm
    rows = without_gradient().rows
    assert graded(Case(rows=[{**row, "loss": 0.01 * (i < 9)} for i, row in enumerate(rows)])) == ""  # 9 of 20
    assert graded(Case(rows=[{**rows[0], "grad_norm": 0.1}, *rows[1:]])) == ""


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, "warning moderate"),
        ({"groups/dead": 1.0}, ""),  # dead-groups says that
        ({"reward/std": 0.0}, ""),  # constant-reward says that
        ({"reward/std": 0.1}, "warning moderate"),
        ({"reward/mean": 0.4}, ""),  # one reward throughout: constant-reward or dead-run says that
        ({"kl": 1e-4}, ""),  # the weights move: the log has neither
    ],
)
def test_neither_a_loss_nor_a_gradient(columns: dict[str, float], expected: str) -> None:
    columns = {"loss": 0.0, **columns}
    assert graded(without_gradient(**columns)) == expected
    assert graded(without_gradient(2, **columns)) == expected
    (*most, last) = without_gradient(**columns).rows
    assert graded(Case(rows=[*most, {name: value for name, value in last.items() if name != "loss"}])) == expected
    assert graded(Case(rows=[{**row, "policy/loss": 0.0} for row in most])) == expected
    told = [{name: value for name, value in row.items() if name != "loss"} for row in most]
    assert graded(Case(rows=[{**row, "policy/loss": 0.0} for row in told])) == expected


def test_some_groups_are_known_to_be_live() -> None:
    rows = [{**row, "groups/dead": step % 2} for step, row in enumerate(without_gradient(loss=0.0).rows)]
    (found,) = no_gradient(Case(rows=rows))
    assert (found.severity, {cause.id for cause in found.rules_out}) == ("warning", {"learning-rate", "zero-loss"})
    assert (found.evidence["with_live_groups"], "rewards inside groups differ on 10" in found.summary) == (10, True)


def test_a_norm_that_is_told_at_first_alone() -> None:
    first, *rest = without_gradient(loss=0.0).rows
    later: list[Row] = [{name: value for name, value in row.items() if name != "grad_norm"} for row in rest]
    assert graded(Case(rows=[first, *later])) == ""  # of most steps nobody says it
    assert graded(Case(rows=[first, *({**row, "loss": 0.001} for row in later)])) == ""
    assert graded(Case(rows=[first, *({**row, "kl": 0.02} for row in later)])) == ""
    assert graded(Case(rows=[first])) == "warning moderate"
    rises: list[Row] = [{**row, "reward/mean": 0.1 + step / 25} for step, row in enumerate([first, *rest])]
    assert graded(Case(rows=rises)) == ""  # the trainer writes 0 for both


def test_without_a_kl_the_log_may_have_no_norm() -> None:
    bare = [{name: value for name, value in row.items() if name != "kl"} for row in without_gradient().rows]
    (found,) = no_gradient(Case(rows=bare))
    assert (found.severity, found.confidence) == ("warning", "moderate")
    assert "writes 0" in found.summary


@pytest.mark.parametrize(("dead", "expected"), [(0.25, "warning moderate"), (1.0, "")])
def test_a_live_group_has_a_gradient_whatever_the_loss_is(dead: float, expected: str) -> None:
    assert graded(without_gradient(steps=2, loss=0.0, **{"groups/dead": dead})) == expected
    of_many = "error certain" if expected else ""  # with a KL that stays 0 no trainer is left that has no norm
    assert graded(without_gradient(steps=12, loss=0.0, **{"groups/dead": dead})) == of_many


def test_a_larger_rate_is_no_help() -> None:
    ids = [one.id for one in examine(without_gradient(steps=40))]
    assert "no-gradient" in ids
    assert "learning-rate" not in ids  # a KL of 0 would be a rate that is too small, were there a gradient


def walk(rate: float, kl: float, steps: int = 60, reward: float = 0.0, grows: float = 0.0) -> Case:
    rows = [
        {
            "step": float(i),
            "update": 1.0,
            "learning_rate": rate,
            "grad_norm": 0.3,
            "kl": kl * (1 + grows * i),
            "reward/mean": 0.3 + reward * i + 0.01 * (-1) ** i,
        }
        for i in range(1, steps + 1)
    ]
    return Case(rows=rows)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (walk(1e-9, 2e-6), "warning"),  # 60 x 1e-9: no weight moves by 2e-7
        (walk(1e-6, 2e-4), "info"),  # the KL is a kernel's rounding and stays
        (walk(1e-6, 2e-4, reward=0.005), None),  # it learns all the same
        (walk(1e-6, 1e-5, grows=1.0), None),  # it moves
        (walk(1e-6, 2e-4, steps=40), None),
    ],
)
def test_a_rate_that_moves_hardly_anything(case: Case, expected: str | None) -> None:
    found = learning_rate(case)
    assert [one.severity for one in found] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("far", "confidence"),
    [
        ([0.1, 0.15, 0.2], "moderate"),
        ([0.001, 0.9, 0.001, 0.001], "weak"),
        ([0.1, 0.2], None),  # two rows
        ([0.001] * 60 + [0.9] + [0.001] * 39, None),  # one spike of a hundred
        ([0.001, 0.04, 0.01, 0.02], None),
        ([-0.2, -0.3, -0.2], None),  # an estimate below 0
    ],
)
def test_updates_that_throw_the_policy_far_at_once(far: list[float], confidence: str | None) -> None:
    table: list[Row] = [{"step": i, "update": 1, "policy/kl_old": value} for i, value in enumerate(far, 1)]
    findings = learning_rate(Case(rows=table, settings=Settings(learning_rate=1e-5)))
    expected = [("learning-rate", "warning", confidence, ("learning_rate=1e-06",))] if confidence else []
    assert [(one.id, one.severity, one.confidence, one.suggest) for one in findings] == expected


@pytest.mark.parametrize("far", [[0.1, 0.15, 0.2], [0.001, 0.9, 0.001, 0.001]])
def test_how_far_is_in_the_unit_of_the_policy(far: list[float]) -> None:
    table: list[Row] = [{"step": i, "update": 1, "policy/kl_old": value} for i, value in enumerate(far, 1)]
    (found,) = learning_rate(Case(rows=table, settings=Settings(learning_rate=1e-5, factor="pixel")))
    assert "nats a pixel" in found.summary


def means(rate: float, first: float = 0.03) -> list[Row]:
    """Rows of ten steps: the first earns a little, all others nothing."""
    rewards = [first, *[0.0] * 11]
    return [{"step": 10 * i, "reward/mean": reward, "learning_rate": rate} for i, reward in enumerate(rewards, 1)]


def test_a_huge_rate_beside_a_run_that_is_dead_after_its_first_row_of_steps() -> None:
    (found,) = learning_rate(Case(rows=means(0.03), averaged_over=10))
    assert (found.severity, found.confidence, found.suggest) == ("error", "moderate", ("learning_rate=0.0003",))
    assert learning_rate(Case(rows=means(0.009), averaged_over=10)) == ()  # no such rate
    assert learning_rate(Case(rows=means(0.03))) == ()  # single steps: what an update did can be seen
    assert learning_rate(Case(rows=means(0.03, first=0.0), averaged_over=10)) == ()  # it never earned anything
    well = [{**row, "reward/mean": 0.3} if row["step"] in (20, 30, 40, 50) else row for row in means(0.03)]
    assert learning_rate(Case(rows=well, averaged_over=10)) == ()  # fifty steps at that rate went well
    twice = [{**row, "reward/mean": 0.3} if row["step"] == 20 else row for row in means(0.03)]
    assert learning_rate(Case(rows=twice, averaged_over=10)) == ()
    still = [{**row, "entropy": 0.8, "kl": 0.004} for row in means(0.03)]
    assert learning_rate(Case(rows=still, averaged_over=10)) == ()  # the policy went on: a judge that died
    sgd = Settings(optimizer="sgd")
    assert learning_rate(Case(rows=means(0.03), averaged_over=10, settings=sgd)) == ()
    dead = means(0.03)[1:]  # of a log that begins in the middle: it may have earned something before
    (found,) = learning_rate(Case(rows=dead, excerpt=True))
    assert (found.severity, found.confidence) == ("warning", "weak")
    assert learning_rate(Case(rows=[{**row, "step": row["step"] / 10} for row in dead[1:]])) == ()  # type: ignore[operator]
    later = [{**row, "step": 500 + i} for i, row in enumerate(dead)]
    assert [one.confidence for one in learning_rate(Case(rows=later))] == ["weak"]
    fell = [{**row, "step": i} for i, row in enumerate(means(0.03), 1)]
    assert learning_rate(Case(rows=fell, excerpt=True)) == ()  # it earned something in the first of single steps


def at_zero_kl(**more: float) -> list[Row]:
    """Thirty steps at 1e-6 with a KL of exactly 0."""
    known = {"learning_rate": 1e-6, "kl": 0.0, "entropy": 1.2, **more}
    return [{"step": i, "update": 1, "reward/mean": 0.3 + 0.02 * (-1) ** i, **known} for i in range(1, 31)]


def test_a_kl_of_exactly_zero_tells_of_a_small_rate_where_a_beta_says_that_there_is_one() -> None:
    def graded(rows: list[Row], beta: float | None) -> list[tuple[str, str]]:
        return [(one.severity, one.confidence) for one in learning_rate(Case(rows=rows, settings=Settings(beta=beta)))]

    assert graded(at_zero_kl(), 0.04) == [("warning", "moderate")]
    assert graded(at_zero_kl(), None) == [("info", "weak")]  # or nobody computes it
    assert graded(at_zero_kl(), 0.0) == []
    assert graded(at_zero_kl(kl=1e-9), None) == [("warning", "moderate")]  # it is computed
    moved: list[Row] = [{**row, "entropy": 1.2 - 0.02 * (row["step"] or 0.0)} for row in at_zero_kl()]
    assert graded(moved, 0.04) == []


def test_a_reward_that_rose_at_rates_of_zero_had_others_that_are_rounded_away() -> None:
    rows: list[Row] = [
        {"step": i, "update": 1, "learning_rate": 0.0, "reward/mean": 0.3 + 0.01 * i} for i in range(1, 31)
    ]
    assert no_updates(rows) is None
    assert no_updates([{**row, "reward/mean": 0.3} for row in rows]) is not None


@pytest.mark.parametrize(
    ("rates", "severity"),
    [((0.0, 0.0), None), ((0.0, 0.0, 0.0), "moderate"), ((0.0,) * 10, "strong"), ((0.0, 0.0, 1e-6), None)],
)
def test_a_rate_of_zero_on_every_row(rates: tuple[float, ...], severity: str | None) -> None:
    """Three rows are enough: a warm-up begins with one."""
    found = no_updates([{"step": i, "update": 1, "learning_rate": rate} for i, rate in enumerate(rates, 1)])
    assert (found and found.confidence) == severity
