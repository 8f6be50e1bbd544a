"""Which configuration is warned about what: each warning beside a setting that is free of it."""

from __future__ import annotations

from typing import Any

import pytest

from core.config import RunSpec
from core.config.task import RestorationTaskSpec
from core.health.before.pitfalls import deviations, warnings
from tests.core.health.before.conftest import BFLOAT16, DROPOUT, FAULT, STAGE, run_spec

FALLING = {"start": 1.0, "end": 0.0, "steps": 25}
# id, severity, what earns it, what does not, a word that must be said
CASES: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = [
    ("two-generations", "warning", {"num_generations": 2}, {"num_generations": 3}, "0.7070"),
    ("two-generations", "warning", {"num_generations": 2, "advantage": {"ddof": 0}}, {}, "+0.9998"),
    ("sampling-filter", "warning", {"top_p": 0.9}, {"top_p": 1.0, "top_k": 0}, "top_p 0.9"),
    ("sampling-filter", "warning", {"top_k": 35}, {}, "top_k 35"),
    ("sampling-filter", "warning", {"min_p": 0.05}, {"min_p": 0.0}, "min_p 0.05"),
    ("sampling-filter", "warning", {"repetition_penalty": 1.1}, {"repetition_penalty": 1.0}, "repetition_penalty 1.1"),
    ("dropout-in-ratio", "warning", {"run": DROPOUT}, {}, "0.1"),
    ("k3-is-forward", "warning", {"beta": 0.1, "kl_estimator": "k3"}, {"beta": 0.1}, "forward"),
    ("k3-is-forward", "warning", {"beta": 0.1, "kl_estimator": "k3"}, {"kl_estimator": "k3"}, "k2"),
    (
        "kl-reward-estimator", "warning", {"beta": 0.1, "kl_in": "reward", "kl_estimator": "k2"},
        {"beta": 0.1, "kl_in": "reward"}, "k1",
    ),
    (
        "kl-reward-scaled", "warning", {"beta": 0.1, "kl_in": "reward"},
        {"beta": 0.1, "kl_in": "reward", "advantage": {"scale_rewards": "none"}}, "beta",
    ),
    ("nothing-to-learn-from", "error", {"policy_weight": 0, "beta": 0.1}, {"supervised_weight": 1}, "0"),
    ("never-a-signal", "error", {"keep_candidates": 1}, {"keep_candidates": 3}, "advantage"),
    ("bf16-weights", "warning", {"run": BFLOAT16}, {}, "bfloat16"),
    ("gspo-never-clips", "warning", {"surrogate": "gspo"}, {"method": "gspo"}, "3e-4"),
    ("clips-rounding", "warning", {"method": "gspo", "run": BFLOAT16}, {"method": "gspo"}, "bfloat16"),
    ("clips-rounding", "warning", {"method": "gspo", "run": BFLOAT16}, {"run": BFLOAT16}, "chance"),
    ("cispo-scales", "warning", {"method": "cispo", "cispo_max_weight": 0.2}, {"method": "cispo"}, "0.2"),
    ("importance-scales", "warning", {"importance_sampling_cap": 0.5}, {"importance_sampling_cap": 2.0}, "0.5"),
    ("length-bias", "info", {}, {"reduction": "token_mean"}, "length"),
    ("faults", "warning", {"run": FAULT}, {}, "rollout-in-train-mode"),
    ("off-policy-reinforce", "warning", {"method": "rloo", "num_iterations": 2}, {"method": "rloo"}, "2 updates"),
    ("off-policy-reinforce", "warning", {"method": "rloo", "num_iterations": 2}, {"num_iterations": 2}, "ratio"),
    ("kept-candidates", "warning", {"keep_candidates": 2.0}, {"keep_candidates": 4.0}, "best"),
    ("unreachable-reward", "error", {"positive_reward": 1.5}, {"positive_reward": 1.0}, "at most 1"),
    ("difficulty-in-scale", "warning", {"method": "lite_ppo"}, {"method": "reinforce_pp_baseline"}, "0.516"),
    ("difficulty-in-advantage", "info", {"method": "reinforce_pp"}, {}, "batch"),
    ("leave-one-out", "info", {"method": "rloo"}, {"method": "dr_grpo"}, "1.333"),  # 4 / 3
    ("learning-rate-zero", "warning", {"learning_rate": 0.0}, {"learning_rate": 1e-9}, "0"),
    ("std-floor-squashes", "warning", {"advantage": {"std_floor": 0.2}}, {"advantage": {"std_floor": 0.1}}, "0.2"),
    ("std-floor-constant", "warning", {"advantage": {"std_floor": 1.0}}, {"advantage": {"std_floor": 0.1}}, "constant"),
    ("rank-forgets-gaps", "info", {"advantage": {"transform": "rank"}}, {}, "order"),
    ("weight-ends", "info", {"supervised_weight": FALLING}, {"supervised_weight": 1.0}, "25"),
    ("first-update-is-zero", "info", {"warmup_steps": 5}, {}, "exactly 0"),
    ("never-leaves-warmup", "warning", {"warmup_steps": 100, "lr_scheduler_steps": 500}, {"warmup_steps": 50}, "100"),
    ("schedule-cut", "info", {"temperature": {"start": 1.0, "end": 0.5, "steps": 200}}, {}, "temperature"),
    ("evaluation-noise", "info", {}, {"run": {"evaluation": {"num_generations_eval": 8}}}, "64 prompts x 2"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "severity", "bad", "good", "word"), CASES, ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_warning(name: str, severity: str, bad: dict[str, Any], good: dict[str, Any], word: str) -> None:
    found = {finding.id: finding for finding in warnings(run_spec(**bad))}
    assert found[name].severity == severity
    assert word in found[name].summary
    assert name == "evaluation-noise" or name not in {finding.id for finding in warnings(run_spec(**good))}


def test_the_most_severe_come_first() -> None:
    found = warnings(run_spec(positive_reward=2.0, top_p=0.9, warmup_steps=3))
    order = [("error", "warning", "info").index(finding.severity) for finding in found]
    assert order == sorted(order)
    assert found[0].id == "unreachable-reward"


def test_each_stage_is_named() -> None:
    own = {key: value for key, value in STAGE.items() if key != "num_generations"}
    stages = {"warm": {**own, "kind": "sft", "warmup_steps": 2}, "a": {**STAGE, "top_p": 0.9}, "b": STAGE}
    found = warnings(run_spec(run={"stages": stages}))
    said = {(finding.id, finding.evidence.get("stage")) for finding in found}
    assert {("first-update-is-zero", "warm"), ("sampling-filter", "a")} <= said
    assert ("sampling-filter", "b") not in said
    assert ("length-bias", "warm") not in said


def test_the_floor_says_what_is_left() -> None:
    # document 001: a floor of 0.1 and rewards that hardly differ; at a std of 0.01 the advantages have 0.01 / 0.1
    costly = {"task": {"name": "workflow-dsl", "operator_cost": 0.005}}  # without levels: any spread can be
    said = warnings(run_spec(run=costly, advantage={"std_floor": 0.1}))
    (found,) = (one for one in said if one.id == "std-floor-squashes")
    assert "at a std of 0.01 they have 0.0999" in found.summary  # eps 1e-4 beside the floor


def test_reward_modes_that_are_one_are_told() -> None:
    for mode, other in (("separated", "hard_plus_soft_v2"), ("hard_plus_soft_v2", "separated")):
        (found,) = (one for one in warnings(selection(mode)) if one.id == "equal-reward-modes")
        assert (found.severity, found.evidence) == ("info", {"reward_mode": mode, "equals": other})
    for mode in ("hard_plus_soft", "hard_plus_gtprob_plus_rel", "alpha_beta"):
        assert "equal-reward-modes" not in {one.id for one in warnings(selection(mode))}


@pytest.mark.parametrize(("w_psnr", "w_ssim", "said"), [(0.5, 0.3, ["lpips-left-out"]), (0.6, 0.4, [])])
def test_a_reward_without_the_documents_third_term_is_told(w_psnr: float, w_ssim: float, said: list[str]) -> None:
    spec = run_spec()
    task = RestorationTaskSpec(name="restoration", w_psnr=w_psnr, w_ssim=w_ssim)
    found = [*deviations(spec.model_copy(update={"task": task}))]
    assert [finding.id for finding in found] == said
    for finding in found:  # .5 and .3 of .8
        assert finding.severity == "info"
        assert finding.evidence == {"w_psnr": pytest.approx(0.625), "w_ssim": pytest.approx(0.375)}
    assert [*deviations(spec)] == []


def selection(mode: str) -> RunSpec:
    """A selector of examples that is rewarded in this mode."""
    stage = {key: value for key, value in STAGE.items() if key != "max_completion_length"}
    task = {"name": "example-selection", "reward_mode": mode}
    document = {"name": "s", "title": "s", "policy": {"kind": "pointer"}, "task": task, "stages": {"grpo": stage}}
    return RunSpec.model_validate(document)
