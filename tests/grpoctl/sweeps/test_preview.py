"""What a sweep is refused for, and what it is told: axes that cannot act, yardsticks that move, batches that differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import SpecError
from core.tasks import registry
from core.tasks.text import prompt_of
from grpoctl.config import load
from grpoctl.sweeps.loading import load_sweep
from grpoctl.sweeps.preview import described, notes
from tests.grpoctl.sweeps.mine import sweep, write


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


QUIET = "axes: {beta: [0.05, 0.1]}\nsettings: {eval_steps: 8}\nsampler: grid"


def test_nothing_is_said_of_a_sound_sweep() -> None:
    assert notes(sweep(QUIET)) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("axes: {epsilon: [0.1, 0.2]}", "epsilon: does nothing at any point: one update per rollout"),
        (
            "axes: {advantage.clip: [null, 3.0, 9.0]}",
            "clip: does nothing at any point: no |advantage| gets above 2.646",
        ),
        ("settings: {beta: 0}\naxes: {kl_estimator: [k2, k3]}", "kl_estimator: does nothing at any point: beta is 0"),
        ("axes: {beta: [0], kl_estimator: [k2, k3]}", "kl_estimator: does nothing at any point: beta is 0"),
        ("axes: {task.operator_cost: [0, 0.01]}", "changes what eval/reward measures"),
        ("axes: {task.domains: [{math: 1}, {math: 1, qa: 1}]}", "changes what eval/reward measures"),
        ("axes: {task.domains.math: [1, 2]}", "changes what eval/reward measures"),
        ("axes: {task.data_seed: [0, 1]}", "changes what eval/reward measures"),
        ("axes: {evaluation.temperature: [0.5, 1]}", "changes what eval/reward measures"),
        ("axes: {evaluation.eval_steps: [5, 10]}", "changes how often eval/reward is measured, not the run"),
    ],
)
def test_an_axis_that_compares_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        sweep(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("sweeps/mine.yaml: line ")


@pytest.mark.parametrize(
    "text",
    [
        "axes: {epsilon: [0.1, 0.2]}\nsettings: {num_iterations: 2}",  # the ratio moves
        "axes: {epsilon: [0.1, 0.2], num_iterations: [1, 2]}",  # ... at half the points
        "axes: {train_prompts: [64, 128]}",  # the held-out problems stay
        "axes: {task.prompt: [short, instruct]}",  # the same problems, asked in other words
        "axes: {evaluation.temperature: [0.5, 1]}\nmetric: collapse_rate",  # no evaluation is in it
        "candidates: {a: {epsilon: 0.1}, b: {task.operator_cost: 0.01}}",  # stated one by one: noted only
    ],
)
def test_what_may_act_is_not_refused(text: str) -> None:
    assert sweep(text).name == "mine"


def test_the_number_of_training_prompts_leaves_the_held_out_problems_alone() -> None:
    few, many = (
        registry.build(load("p31", profile="tiny", overrides=[f"train_prompts={n}"]).spec.task) for n in (8, 64)
    )
    assert [prompt_of(one).text for one in few.examples("eval")] == [
        prompt_of(one).text for one in many.examples("eval")
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{QUIET}\nseeds: [0]", "one seed: no interval"),
        (f"{QUIET}\ntrials: 5", "trials is 5, but there are only 2 points"),
        ("axes: {beta: [0.1]}\nsettings: {eval_steps: 8}", "stages.grpo.beta has one value: it belongs to settings"),
        # 2 x 2 points, beta 0 at two of them
        (
            "axes: {beta: [0, 0.1], kl_estimator: [k2, k3]}",
            "kl_estimator does nothing at 50 % of its points (beta is 0",
        ),
        ("axes: {prompts_per_step: [1, 2]}", "a step of grpo has 8, 16 completions"),
        (f"{QUIET}\nbudget: {{completions: 10}}", "10 completions are no whole number of steps of"),
        ("axes: {num_generations: [8, 16], scale_rewards: [group, batch]}", "one prompt (K = 16)"),
        ("axes: {guards.min_valid: [0.05, 0.1]}", "decides which runs count as collapsed"),
        # 96 steps, evaluated at 96 only: three runs, of which the last one's end saves nothing
        ("axes: {beta: [0.1, 0.2]}\nsettings: {eval_steps: 96}\ntrials: 9", "measured 2 times before its end"),
        ("axes: {beta: [0.1, 0.2]}\nsettings: {eval_steps: 96}\npruner: none", "only its start and its end"),
        ("axes: {beta: {low: 0.1, high: 1}}\ntrials: 2\nsettings: {eval_steps: 8}", "there are 2: it never acts"),
        ("candidates: {a: {epsilon: 0.1}}", "a: stages.grpo.epsilon does nothing: one update per rollout"),
        ("candidates: {a: {task.operator_cost: 0.01}}", "a: task.operator_cost changes what eval/reward measures"),
        ("candidates: {a: {}, b: {beta: 0.005}}", "b is a: the same run under two names"),
    ],
)
def test_what_is_noted(text: str, said: str) -> None:
    assert any(said in note for note in notes(sweep(text))), notes(sweep(text))


ADAPTIVE = f"{QUIET}\nallocation: adaptive\nstop: decided\n"


def test_a_confidence_that_nothing_reaches_is_told() -> None:
    """Right is the share of draws in which the choice is: it is 1 of no two candidates that are alike."""
    assert [note for note in notes(sweep(f"{ADAPTIVE}confidence: 1")) if note.startswith("confidence is 1")]
    assert notes(sweep(f"{ADAPTIVE}confidence: 0.99")) == []
    assert notes(sweep(f"{QUIET}\nallocation: adaptive\nconfidence: 1")) == []  # it spends its budget in any case


def test_a_condition_answers_the_note() -> None:
    spec = sweep("axes: {beta: [0, 0.1], kl_estimator: {values: [k2, k3], when: {beta: 0.1}}}\nsampler: grid")
    assert notes(spec) == []


def test_the_sweep_in_numbers() -> None:
    spec = sweep(
        "axes: {num_generations: [2, 8], beta: [0, 0.1]}\nsettings: {eval_steps: 16}\nbudget: {completions: 640}"
    )
    # 640 / 16 = 40 steps, evaluated at 16, 32 and 40
    assert described(spec) == {
        "points": 4, "trials": 4, "seeds": [0, 1, 2], "runs": 12, "budget": {"completions": 640, "tokens": None},
        "drawn_per_run": 640, "completions_per_step": 16, "evaluations": [3, 3],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "drawn"),
    [
        ("budget: {completions: 100}", 112),  # 7 steps of 16
        ("budget: {completions: 96}", 96),
        ("axes: {prompts_per_step: [2, 3]}\nbudget: {completions: 100}", 120),  # 5 steps of 24 are more than 7 of 16
        ("settings: {method: dapo}\nbudget: {completions: 100}", 259),  # 99, and a step of 16 sampled 10 times
        # 999, and a step of 16 completions of 64 tokens
        ("settings: {max_completion_length: 64}\nbudget: {tokens: 1000}", 2023),
    ],
)
def test_what_a_run_draws_is_whole_steps(more: str, drawn: int) -> None:
    axes = "" if "axes" in more else "axes: {beta: [0, 0.1]}\n"
    assert described(sweep(f"{axes}{more}"))["drawn_per_run"] == drawn


MOVED = "settings: {adaptive_beta: {rule: threshold}, eval_steps: 8}\nsampler: grid\n"


def test_starts_of_a_beta_that_moves_itself_are_no_study_of_beta() -> None:
    # 1.5^n reaches 0.15 / 0.12 = 1.25 at one move, and 0.15 / 0.05 = 3 at three: 1.5^2 = 2.25, 1.5^3 = 3.4.
    (near,) = notes(sweep(MOVED + "axes: {beta: [0.12, 0.15]}"))
    (far,) = notes(sweep(MOVED + "axes: {beta: [0.15, 0.12, 0.05]}"))
    assert near.startswith("stages.grpo.beta is only where an adaptive beta starts: 0.12 and 0.15 are 1 move ")
    assert "0.05 and 0.15 are 3 moves" in far
    assert "no study of beta" in near


def test_a_slow_rule_forgets_nothing() -> None:
    # Each step multiplies by at most 1 + 0.2 x N / 1e6: no start is forgotten in a run of 96 steps.
    slow = MOVED.replace("rule: threshold", "rule: proportional, horizon: 1000000")
    (note,) = notes(sweep(slow + "axes: {beta: [0.12, 0.15]}"))
    assert "only where an adaptive beta starts" in note
    assert "no study of beta" not in note
    candidates = "candidates: {a: {beta: 0.12}, b: {beta: 0.15}}\nsettings: {adaptive_beta: {rule: threshold}}"
    assert any("adaptive beta" in one for one in notes(sweep(candidates)))


def test_reward_modes_that_are_one_are_told() -> None:
    def of(modes: str) -> list[str]:
        write(
            f"axes: {{task.reward_mode: [{modes}]}}\nsampler: grid", head="name: mine\ntitle: Mine\nexperiment: p40\n"
        )
        return [note for note in notes(load_sweep("mine", profile="tiny").spec) if "separated" in note]

    assert len(of("separated, hard_plus_soft_v2")) == 1
    assert of("separated, hard_plus_soft") == []
