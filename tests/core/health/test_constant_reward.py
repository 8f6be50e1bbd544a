"""A reward that is the same for everything, and runs whose equal rewards are right."""

from __future__ import annotations

import pytest

from core.health.case import Case, Sample, Settings
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.rewards import constant_reward


def rows(steps: int = 20, *, mean: float = 0.5, std: float = 0.0, **more: float) -> list[Row]:
    return [
        {"step": step, "update": 0, "reward/mean": mean, "reward/std": std, "groups/dead": 1.0, **more}
        for step in range(1, steps + 1)
    ]


def found(table: list[Row], **case: object) -> bool:
    return bool(constant_reward(Case(rows=table, **case)))  # type: ignore[arg-type]


def test_it_is_found_as_itself() -> None:
    findings = examine(Case(rows=rows(**{"completions/valid": 0.7, "completions/distinct": 0.5})))
    assert [one.id for one in findings] == ["constant-reward"]  # neither dead groups nor a run without updates
    (finding,) = findings
    assert (finding.severity, finding.confidence) == ("error", "strong")
    assert "every completion of 20 steps earned 0.5, valid or not" in finding.summary
    assert "the reward does not depend on the completion" in finding.summary


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (rows(), True),
        (rows(std=3e-8), True),  # fp32's std of equal rewards
        (rows(9), False),
        (rows(std=0.01), False),
        (rows()[:-1] + rows(1, mean=0.6), False),  # one step paid another reward
        (rows(mean=0.0), True),
        (rows(mean=0.0, **{"completions/valid": 0.0}), False),  # nothing valid: the policy, not the reward
        (rows(mean=1.0, **{"completions/valid": 1.0}), True),
        (rows(**{"completions/valid": 0.5})[:-1] + rows(1, **{"completions/valid": 0.0}), True),  # one step invalid
    ],
)
def test_constant(table: list[Row], expected: bool) -> None:
    assert found(table) == expected


def test_a_row_of_ten_steps_is_ten_steps() -> None:
    assert found(rows(1), averaged_over=10)


def test_completions_that_are_all_the_same_earn_the_same() -> None:
    settings = Settings(num_generations=8, prompts_per_step=2)
    assert not found(rows(**{"completions/distinct": 1 / 16}), settings=settings)
    assert found(rows(**{"completions/distinct": 2 / 16}), settings=settings)


def test_texts_that_differ_do_not_make_it_sure() -> None:
    pairs = tuple(
        Sample(step=step, group="p", reward=0.5, text=text)
        for step in range(1, 21)
        for text in (f"a{step}", f"b{step}")
    )
    (finding,) = constant_reward(Case(rows=rows(), samples=pairs))
    assert finding.evidence["varied_groups"] == 20
    # All may have the form that is paid for, and none the answer.
    assert (finding.severity, finding.confidence) == ("warning", "moderate")
    assert "only a part is earned that every completion gets" in finding.summary
    assert constant_reward(Case(rows=rows()))[0].confidence == "moderate"
    other = (*pairs, Sample(step=20, group="q", reward=0.5), Sample(step=20, group="q", reward=0.7))
    assert constant_reward(Case(rows=rows(), samples=other)) == ()


@pytest.mark.parametrize(
    ("mean", "severity"), [(0.0, "warning"), (1.0, "warning"), (-1.0, "warning"), (2.0, "warning"), (0.4, "error")]
)
def test_an_end_of_the_scale_may_be_the_prompts(mean: float, severity: str) -> None:
    """Valid or not: where no prompt can be solved, a valid answer earns no more than an invalid one."""
    for more, expected in (({}, "warning"), ({"completions/valid": 0.7}, severity)):
        (finding,) = constant_reward(Case(rows=rows(mean=mean, **more)))
        assert finding.severity == expected
        assert ("all prompts are solved (or none is" in finding.summary) == (expected == "warning")
        assert bool(finding.rules_out) == (expected == "error")
        if expected == "warning":
            assert finding.confidence == "moderate"


@pytest.mark.parametrize(("reward", "still"), [(0.5, True), (0.3, False), (float("nan"), True)])
def test_an_evaluation_with_another_reward_refutes_it(reward: float, still: bool) -> None:
    for step in (0, 21):
        evaluated: Row = {"step": step, "eval/reward": reward}
        table = [evaluated, *rows()] if step == 0 else [*rows(), evaluated]
        assert found(table) == still


def test_a_completion_with_another_reward_refutes_it() -> None:
    assert not found(rows(), samples=(Sample(step=1, reward=0.5), Sample(step=1, reward=0.7)))


def test_a_part_that_differs_and_is_not_paid_for() -> None:
    # rewards/correct was 0.2 on the first step and 0.3 later, the reward 0.4 throughout: it does not count.
    table = rows(mean=0.4, **{"rewards/correct": 0.3, "rewards/format": 0.1})
    table[0] = {**table[0], "rewards/correct": 0.2}
    (finding,) = constant_reward(Case(rows=table))
    assert (finding.severity, "whatever its rewards/correct was" in finding.summary) == ("error", True)
    # The form is paid for, and no answer is right: each part is constant.
    (finding,) = constant_reward(Case(rows=rows(mean=0.1, **{"rewards/correct": 0.0, "rewards/format": 0.1})))
    assert (finding.severity, finding.rules_out) == ("warning", ())


def test_a_training_reward_that_is_constant_while_evaluations_differ() -> None:
    evaluated: list[Row] = [{"step": step, "eval/reward": 0.3 + 0.005 * step} for step in (0, 20)]
    (finding,) = constant_reward(Case(rows=[evaluated[0], *rows(mean=0.37), evaluated[1]]))
    assert (finding.severity, finding.confidence, finding.rules_out) == ("warning", "moderate", ())
    assert "20 training steps earned 0.37, and evaluations 0.3 to 0.4" in finding.summary
    # All training prompts are solved, and those of evaluation are not: dead groups, and no broken reward.
    assert not found([evaluated[0], *rows(mean=1.0), evaluated[1]])
