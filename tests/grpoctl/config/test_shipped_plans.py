"""What the plans of documents 000, 001 and 003 say, and that the experiments p29 to p39, staged and rce-only say it."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from core.config import RunSpec, Schedule
from core.config.stage import constant
from grpoctl.config import Library, load, plain
from grpoctl.config.layers import leaves

ONLY_SHIPPED = Library(user=Path("no-such-folder"))
SAID = {"name", "title", "question", "source", "expects", "recorded", "revision"}
GRPO = "stages.grpo."


def spec_of(name: str, profile: str = "full") -> RunSpec:
    return load(name, profile=profile, library=ONLY_SHIPPED).spec


def differences(one: str, other: str, profile: str = "full") -> dict[str, Any]:
    """What `other` sets and `one` does not, in what is run; keys of the grpo stage without their prefix."""
    a, b = (leaves(plain(spec_of(name, profile))) for name in (one, other))
    changed = {key for key in {*a, *b} if a.get(key) != b.get(key) and key.split(".", maxsplit=1)[0] not in SAID}
    return {key.removeprefix(GRPO): b.get(key) for key in changed}


PLANS = [
    ("p30", "p29", {"learning_rate": 2e-5}),
    ("p31", "p32", {"advantage.scale_rewards": "none", "advantage.clip": 2.0}),
    ("p31", "p33", {"advantage.baseline": "batch", "advantage.scale_rewards": "batch"}),
    ("p31", "p34", {"advantage.clip": 3.0}),
    ("p31", "p35", {"method": "gspo", "surrogate": "gspo", "epsilon": 3e-4, "epsilon_high": 4e-4, "num_iterations": 2}),
    ("p31", "p36", {"method": "gtpo", "entropy_weighting": "token", "reduction": "token_mean"}),
    (
        "p31",
        "p37",
        {
            "method": "dapo", "reduction": "token_mean", "beta": 0.0, "dynamic_sampling.max_attempts": 10,
            "overlong.buffer": 0.2, "overlong.weight": 1.0,
        },
    ),
    ("p31", "p38", {"method": "grpo_s", "entropy_weighting": "sequence", "surrogate": "mean_ratio"}),
]  # fmt: skip


@pytest.mark.parametrize(("control", "plan", "expected"), PLANS)
def test_a_plan_changes_what_its_document_changes(control: str, plan: str, expected: dict[str, Any]) -> None:
    assert differences(control, plan) == expected
    rate = {"learning_rate": 5e-3} if plan == "p29" else {}  # ten times p30's in every profile
    assert differences(control, plan, "tiny") == expected | rate


def test_p31_falls_back_to_four_completions() -> None:
    small, full = spec_of("p31", "small-memory"), spec_of("p31")
    assert (full.stages["grpo"].num_generations, small.stages["grpo"].num_generations) == (8, 4)
    assert small.stages["grpo"].prompts_per_step == full.stages["grpo"].prompts_per_step
    assert small.model == full.model


def advantages_of(name: str, rewards: list[list[float]], profile: str = "full") -> Any:
    """What a run of the experiment makes of these rewards, as a numpy array."""
    from core.algorithms.advantages import advantages

    return advantages(rewards, spec_of(name, profile).stages["grpo"].advantage)


REWARDS = [[1.0, 0.2, 0.7, 0.0, 0.4, 0.4, 0.2, 1.0], [0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.0]]


def test_plan_c_is_the_documents_line_of_numpy() -> None:
    import numpy as np

    all_rewards = np.array(REWARDS).flatten()
    literal = (all_rewards - np.mean(all_rewards)) / (np.std(all_rewards) + 1e-8)
    assert np.abs(advantages_of("p33", REWARDS).flatten() - literal).max() < 1e-12
    # It differs from the z-score of each group: the second prompt's best completions are below the step's mean.
    assert advantages_of("p33", REWARDS)[1].max() < 0 < advantages_of("p31", REWARDS)[1].max()


def test_plan_b_is_the_documents_line_and_its_clip_never_acts() -> None:
    import numpy as np

    rewards = np.array(REWARDS)
    literal = np.clip(rewards - rewards.mean(axis=1, keepdims=True), -2.0, 2.0)
    assert np.abs(advantages_of("p32", REWARDS) - literal).max() < 1e-12
    assert np.abs(advantages_of("p32", [[1.0] + 7 * [0.0]])).max() == 0.875  # 1 - 1/8, the most that [0, 1] allows


@pytest.mark.parametrize(("size", "inert"), [(2, True), (8, True), (10, True), (11, False)])
def test_plan_d_is_inert_up_to_ten_completions(size: int, inert: bool) -> None:
    import numpy as np

    # One success of K is the worst case: mean 1/K, std sqrt(K - 1) / K, so z = (1 - 1/K) / std = sqrt(K - 1).
    worst = [[1.0] + (size - 1) * [0.0]]
    if inert:
        assert np.array_equal(advantages_of("p34", worst), advantages_of("p31", worst))
        assert advantages_of("p34", worst).max() == pytest.approx(sqrt(size - 1), abs=1e-6)
    else:
        assert advantages_of("p34", worst).max() == 3.0 < advantages_of("p31", worst).max()


def test_staged_is_what_document_003_says() -> None:
    spec = spec_of("staged")
    assert [(name, stage.kind, stage.epochs) for name, stage in spec.stages.items()] == [
        ("supervised", "sft", 5), ("blended", "grpo", 20), ("full", "grpo", 25),
    ]  # fmt: skip
    for stage in spec.stages.values():
        assert (stage.learning_rate, stage.prompts_per_step, stage.max_grad_norm) == (5e-6, 1, 1.0)
    for name in ("blended", "full"):
        stage = spec.stages[name]
        assert (stage.num_generations, stage.beta, stage.epsilon) == (2, constant(0.01), constant(0.2))
        advantage = stage.advantage
        assert (advantage.baseline, advantage.scale_rewards, advantage.clip) == ("running", "running", 3.0)
    assert spec.stages["full"].supervised_weight == constant(0.0)


@pytest.mark.parametrize("profile", ["full", "tiny"])
def test_the_schedules_of_staged_and_rce_only_end_with_their_stage(profile: str) -> None:
    blended, rce = spec_of("staged", profile).stages["blended"], spec_of("rce-only", profile).stages["rce"]
    assert blended.supervised_weight == Schedule(start=0.5, end=0.0, steps=blended.max_steps)
    assert blended.policy_weight == Schedule(start=0.0, end=1.0, steps=blended.max_steps)
    assert rce.tau == Schedule(start=1.0, end=0.1, steps=rce.max_steps)


def test_tiny_keeps_the_proportions_of_document_003() -> None:
    steps = [stage.max_steps for stage in spec_of("staged", "tiny").stages.values()]
    assert [count / steps[0] for count in steps] == [1, 4, 5]  # as 5 to 20 to 25


def test_rce_only_is_what_document_001_says() -> None:
    spec = spec_of("rce-only")
    assert [(name, stage.kind, stage.epochs) for name, stage in spec.stages.items()] == [("rce", "rce", 10)]
    assert (spec.stages["rce"].learning_rate, spec.stages["rce"].num_generations) == (5e-5, 5)


def test_p39_has_p31s_budget_and_is_evaluated_as_it_is() -> None:
    mine, other = spec_of("p39"), spec_of("p31")
    assert (mine.max_steps, mine.stages["grpo"].rows_per_step) == (other.max_steps, other.stages["grpo"].rows_per_step)
    assert (mine.evaluation, mine.task) == (other.evaluation, other.task)
