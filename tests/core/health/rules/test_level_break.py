"""A level that breaks in the middle of a run, and what looks like it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.health.case import Case
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.level_break import level_break, lost_level

SOUND: Row = {"update": 1, "learning_rate": 1e-4, "reward/mean": 0.6, "kl": 0.02, "entropy": 0.4,
              "completions/length": 120.0, "completions/truncated": 0.05}  # fmt: skip
LATE: Row = {"reward/mean": 0.0, "kl": 3.0, "entropy": 6.0, "completions/truncated": 0.9}  # the limit is 0.95


def run(change: Row, *, at: int = 31, steps: int = 60, without: str = "", **sound: float) -> Case:
    """Rewards that wobble by 0.05; from step `at` on all is changed so."""
    rows: list[Row] = []
    for step in range(1, steps + 1):
        row = {"step": step, **SOUND, **sound, **(change if step >= at else {})}
        wobble = 0.05 if step % 2 else -0.05
        row["reward/mean"] = (row["reward/mean"] or 0.0) + wobble
        rows.append({name: value for name, value in row.items() if name != without})
    return Case(rows=rows)


def said(case: Case) -> str:
    found = level_break(case)
    return f"{found[0].severity} {found[0].confidence}" if found else ""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (LATE, "error moderate"),
        ({"reward/mean": 0.1, "completions/length": 12.0, "kl": 1.0}, "error moderate"),  # short and wrong
        ({"reward/mean": 0.1, "entropy": 0.02, "kl": 1.0}, "error moderate"),
        ({"reward/mean": 0.1, "kl": 0.11}, "error moderate"),  # 5.5 times 0.02, and above 0.1
        ({"reward/mean": 0.1, "kl": 0.09}, ""),  # harder prompts: the policy is where it was
        ({"reward/mean": 0.1, "entropy": 1.6, "kl": 0.02}, ""),
        ({"reward/mean": 0.54, "kl": 3.0}, ""),  # 0.06 of a range of 0.16
        ({"kl": 3.0}, ""),  # nobody was harmed
    ],
)
def test_what_broke(change: Row, expected: str) -> None:
    assert said(run(change)) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (LATE, "warning moderate"),
        ({"reward/mean": 0.1, "completions/length": 400.0}, "warning moderate"),  # harder prompts look like it too
        ({"reward/mean": 0.1, "completions/length": 300.0}, ""),  # 2.5 times
        ({"reward/mean": 0.1, "entropy": 1.3}, "warning moderate"),  # 3.25 times
        ({"reward/mean": 0.1}, ""),
    ],
)
def test_without_a_kl_it_may_be_the_prompts(change: Row, expected: str) -> None:
    case = run(change, without="kl")
    assert said(case) == expected
    if expected:
        (found,) = level_break(case)
        assert "or the prompts changed" in found.summary
        assert found.suggest == ()


def test_what_is_said() -> None:
    (found,) = level_break(run(LATE))
    assert (found.id, found.evidence["first_step"], found.evidence["updates_before"]) == ("policy-collapse", 31, 30)
    facts = ("reward/mean fell from 0.6 to 0", "step 31", "KL jumped to 3 ", "entropy from 0.4 to 6",
             "completions/truncated from 0.05")  # fmt: skip
    assert [fact in found.summary for fact in facts] == [True] * 5
    assert found.suggest == ("learning_rate=5e-05",)
    assert [one.id for one in found.rules_out] == ["reward-sign"]
    assert [one.id for one in examine(run(LATE)) if one.id in ("policy-collapse", "reward-sign")] == ["policy-collapse"]


def test_validity_that_falls_to_a_sixth() -> None:
    # The guard's limit is 0.05. Whatever the reward did: it has a range of its own.
    broken: Row = {"completions/valid": 0.15, "kl": 0.5}
    (found,) = level_break(run(broken, at=15, **{"completions/valid": 0.9}))
    assert (found.severity, found.evidence["metric"], found.evidence["first_step"]) == (
        "error", "completions/valid", 15
    )  # fmt: skip
    assert said(run({**broken, "completions/valid": 0.5}, at=15, **{"completions/valid": 0.9})) == ""  # over a half


def test_validity_that_falls_while_the_policy_stays_where_it_was() -> None:
    (found,) = level_break(run({"completions/valid": 0.2}, **{"completions/valid": 0.9}))
    assert (found.id, found.severity, found.confidence) == ("validity-fell", "warning", "moderate")
    assert all(fact in found.summary for fact in ("from 0.9 to 0.2", "step 31", "KL", "0.02"))
    bare = run({"completions/valid": 0.2}, without="kl", **{"completions/valid": 0.9})
    assert level_break(bare) == ()  # nothing else changed, and no KL is known: harder prompts, or anything


def test_what_came_back_and_what_came_slowly() -> None:
    rows = list(run(LATE).rows)
    back = [*rows[:45], *run({}).rows[45:]]  # 15 of the 30 steps since
    assert said(Case(rows=back)) == ""
    slope: list[Row] = [{"step": i, **SOUND, "reward/mean": 0.9 - 0.014 * i, "kl": 1e-3 * i} for i in range(1, 61)]
    assert said(Case(rows=slope)) == ""


def test_another_rules_matter() -> None:
    assert said(run({**LATE, "completions/truncated": 0.97})) == ""  # a guard's limit: policy-collapse says it
    assert said(run({**LATE, "rollout/logprob_gap": 3.0})) == ""
    evaluated = list(run(LATE).rows)
    for step, reward in ((20, 0.5), (50, 0.55)):
        evaluated[step] = {**evaluated[step], "eval/reward": reward}
    assert said(Case(rows=evaluated)) == ""  # evaluations are no worse: other prompts
    evaluated[50] = {**evaluated[50], "eval/reward": 0.1}
    assert said(Case(rows=evaluated)) == "error moderate"
    assert said(Case(rows=[{**row, "update": 0} for row in run(LATE).rows])) == ""  # no update, no policy's


def foreign(column: str, values: list[float]) -> Case:
    return Case(rows=[{"step": float(step), column: value} for step, value in enumerate(values, 1)])


def test_evaluations_that_lost_half_of_their_best() -> None:
    course = [0.28, 0.29, 0.3, 0.3, 0.22, 0.2, 0.1, 0.11, 0.09, 0.08, 0.1, 0.09]
    (finding,) = lost_level(foreign("eval/reward", course))
    assert (finding.id, finding.severity, finding.confidence) == ("policy-collapse", "warning", "strong")
    assert (finding.evidence["best"], finding.evidence["last"]) == (pytest.approx(0.3), pytest.approx(0.095))
    (of_rewards,) = lost_level(foreign("reward/mean", course))
    assert of_rewards.confidence == "moderate"  # prompts may have become harder
    assert "policy-collapse" in {one.id for one in examine(foreign("eval/reward", course))}


@pytest.mark.parametrize(
    ("column", "course"),
    [
        ("eval/reward", [0.3] * 20 + [0.16] * 6),  # more than half is left
        ("eval/reward", [0.3, 0.3, 0.1, 0.1, 0.1]),  # few
        ("eval/reward", [0.3, 0.3, 0.3, 0.3, 0.25, 0.05]),  # one of the last two is not
        ("eval/reward", [0.3] * 20 + [0.21, 0.1, 0.05, 0.05]),  # two thirds are there once
        ("eval/reward", [0.1, 0.5, 0.1, 0.1, 0.1, 0.1]),  # a spike
        ("reward/mean", [0.3, 0.3, 0.3, 0.3, 0.3, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]),  # eleven rewards
        ("reward/mean", [-0.3] * 6 + [-0.9] * 6),
        ("reward/mean", [0.0, 0.1, 0.1, 0.0, 0.1, 0.3, 0.0, 0.0, 0.4, 0.4, 0.5, 0.5, 0.5, 0.4, 0.3, 0.3, 0.1]),  # noise
        ("reward/mean", [0.1] * 6 + [0.5] * 6),
    ],
)
def test_what_is_no_lost_level(column: str, course: list[float]) -> None:
    assert lost_level(foreign(column, course)) == ()


def test_a_run_of_ours_has_limits_for_it() -> None:
    course = foreign("eval/reward", [0.3] * 6 + [0.05] * 6)
    assert lost_level(course)
    assert lost_level(replace(course, stages={"grpo": "grpo"})) == ()


def test_evaluations_that_hold_say_that_prompts_got_harder() -> None:
    rewards = foreign("reward/mean", [0.8] * 10 + [0.6] * 10 + [0.3] * 10)
    assert lost_level(rewards)
    held = [
        {**row, **({"eval/reward": 0.3 + (row["step"] or 0) / 100} if (row["step"] or 0) % 5 == 0 else {})}
        for row in rewards.rows
    ]
    assert lost_level(Case(rows=held)) == ()
