"""TRL's names of metrics and settings in ours."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from core.health.case import FOREIGN, Settings
from core.metrics import METRICS, declared
from grpoctl.diagnose.readers.metric_names import KNOWN, Cells, left_out, name_of, proposed, translated
from grpoctl.diagnose.readers.trl_settings import settings_of_arguments, settings_of_rows

LOGGED = Path(__file__).parents[3] / "data" / "trl" / "healthy.json"


def test_every_name_it_gives_is_declared() -> None:
    assert [name for name in KNOWN.values() if declared(name) is None and name not in FOREIGN] == []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("reward", "reward/mean"),
        ("rewards/accuracy/mean", "rewards/accuracy"),
        ("rewards/my reward(2)/mean", "rewards/my_reward_2_"),
        ("eval_rewards/accuracy/mean", "eval/rewards/accuracy"),
        ("rewards/accuracy/std", "reward/function_std/accuracy"),
        ("rewards/accuracy_reward", "rewards/accuracy_reward"),  # TRL before 0.17
        ("frac_reward_zero_std", "groups/dead"),
        ("reward_std", "reward/std"),
        ("completions/mean_length", "completions/length"),
        ("completions/clipped_ratio", "completions/truncated"),
        ("clip_ratio/low_mean", "policy/clip_low"),
        ("clip_ratio/high_mean", "policy/clip_high"),
        ("clip_ratio/region_mean", "policy/clip_share"),
        ("policy_loss", "policy/loss"),
        ("sampling/sampling_logp_difference/mean", "rollout/logprob_gap"),
        ("sampling/sampling_logp_difference/max", "rollout/logprob_gap_max"),
        ("eval_reward", "eval/reward"),
        ("eval_completions/clipped_ratio", "eval/truncated"),
        ("reward/mean", "reward/mean"),  # ours stay
        ("num_tokens", None),
        ("format_reward", "rewards/format"),
        ("reward/bleu", "rewards/bleu"),
        ("train/reward/helpful", "rewards/helpful"),
        ("reward_components/format", "rewards/format"),
        ("reward_valid_json", "rewards/valid_json"),
        ("reward_env_interaction", "rewards/env_interaction"),
        ("reward_answer_exact", "rewards/answer_exact"),
        ("reward_answer_length", None),
        ("reward_tool_calls", None),
        ("reward_env_id", None),
        ("eval_n_gram_reward", "eval/rewards/n_gram"),
        ("reward_model_score", None),
        ("reward_threshold", None),
        ("eval/max_reward", None),  # of an evaluation's spread, and no part
        ("std_eval_reward", None),
        ("max_tile_reward", "rewards/max_tile"),
        ("eval/mean_reward", "eval/reward"),
        ("eval_format_reward", "eval/rewards/format"),
        ("eval/format_reward", "eval/rewards/format"),
        ("eval/model_reward", "eval/reward"),
        ("`train/kl` median", "kl"),
        ("pass_at_1", "eval/slices/accuracy"),
        ("pass_at_1_delta", None),
        ("syntax_valid_pct", "completions/valid"),
        ("reward/p90", None),  # how it was counted, and no part of it
        ("reward/num_zero", None),
        ("reward/latency_ms", None),
        ("reward/timeouts", None),
        ("reward/batch_size", None),
        ("reward/temperature", None),
        ("reward/frac_positive", None),
        ("components/entropy", None),
        ("reward/baseline_gap", None),
        ("train_acc", "rewards/accuracy"),
        ("train_answer_accuracy", "rewards/accuracy"),
        ("train_runtime", None),
        ("train_len", None),  # of a set of data, or a limit
        ("train_max_length", None),
        ("train_response_length", "completions/length"),
        ("rewards/reward_mean", "reward/mean"),
        ("rewards/mean", "reward/mean"),
        ("rewards/std", "reward/std"),
        ("rewards/total_mean", "reward/mean"),
        ("rewards/similarity_mean", "rewards/similarity"),
        ("rewards/similarity_std", "reward/function_std/similarity"),
        ("rewards/reward/mean", "reward/mean"),
        ("episode_rewards", "reward/mean"),
        ("response_length_non_aborted/mean", None),
        ("reward/math", "rewards/math"),
        ("group_std", "reward/group_std"),
        ("reward_group_std", "reward/group_std"),
        ("token/response_length/mean", "completions/length"),
        ("timing_s/reward", None),  # a time
        ("train_reward", "reward/mean"),
        ("β", "beta"),
        ("kl_coef", "beta"),
        ("hack", "reward/hacked"),
        ("hack_rate", "reward/hacked"),
        ("num_hacks", "reward/hacks"),
        ("hack_reward", "rewards/hack"),  # a part
        ("gaming_reward", "rewards/gaming"),
        ("hack_pct", None),  # a count, or percent
        ("all_wrong", "groups/solved_none"),
        ("frac_mixed", "groups/dead"),
        ("nonsense", None),
    ],
)
def test_a_name(theirs: str, ours: str | None) -> None:
    assert name_of(theirs) == ours


def test_everything_that_trl_logs_is_taken_or_known_to_be_of_no_use() -> None:
    names = {name for entry in json.loads(LOGGED.read_text())["log_history"] for name in entry}
    assert left_out(names) == []
    assert left_out({"my_metric", "loss"}) == ["my_metric"]


def test_no_number_is_none_and_older_deviations_are_inside_groups() -> None:
    assert translated({"loss": math.nan, "grad_norm": math.inf, "kl": None, "junk": 1.0}) == {
        "loss": None, "grad_norm": None, "kl": None
    }  # fmt: skip
    assert translated({"reward_std": 0.5}) == {"reward/std": 0.5}
    assert translated({"reward_std": 0.5}, older=True) == {"reward/group_std": 0.5}


def settings_of_row(row: Cells) -> dict[str, Any]:
    return settings_of_rows([row], row.keys())


def test_rows_say_that_beta_is_zero_only_where_trl_would_have_logged_a_kl() -> None:
    assert settings_of_row({"loss": 0.1}) == {}  # no GRPO trainer
    assert settings_of_row({"frac_reward_zero_std": 0.0})["beta"] == 0.0
    assert "beta" not in settings_of_row({"frac_reward_zero_std": 0.0, "kl": 0.1})
    of_vllm: Cells = {"frac_reward_zero_std": 0.0, "sampling/sampling_logp_difference/mean": 0.01}
    assert settings_of_row(of_vllm)["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("rewards", "reshaped"),
    [
        ({"reward": 0.5, "rewards/right/mean": 0.5}, False),
        ({"reward": 1.0, "rewards/right/mean": 0.5}, None),  # it counts twice
        ({"reward": 0.5, "rewards/right/mean": 0.3, "rewards/short/mean": 0.2}, None),
        ({"reward": 0.5}, None),
    ],
)
def test_one_reward_function_that_counts_once_is_the_reward(rewards: dict[str, float], reshaped: bool | None) -> None:
    assert settings_of_row({"frac_reward_zero_std": 0.0, **rewards}).get("reshaped") is reshaped


def test_arguments_become_settings() -> None:
    # 64 completions a generation are 8 prompts of 8; 2 iterations x 2 batches / 2 accumulated = 2 updates
    arguments = {
        "num_generations": 8, "generation_batch_size": 64, "steps_per_generation": 2, "gradient_accumulation_steps": 2,
        "num_iterations": 2, "learning_rate": 1e-6, "beta": 0.04, "bf16": True, "fp16": False, "scale_rewards": "group",
        "loss_type": "dapo", "max_steps": -1, "lr_scheduler_type": "SchedulerType.COSINE",
        "use_bias_correction_kl": False, "temperature": 0.9,
    }  # fmt: skip
    known = settings_of_arguments(arguments)
    wanted = {
        "num_generations": 8, "prompts_per_step": 8, "updates_per_rollout": 2, "learning_rate": 1e-6, "beta": 0.04,
        "dtype": "bfloat16", "scale_rewards": "group", "surrogate": "clip", "lr_scheduler_type": "cosine",
        "kl_estimator": "k3", "temperature": 0.9, "ddof": 1, "eps": 1e-4,
    }  # fmt: skip
    assert {name: known[name] for name in wanted} == wanted
    assert "max_steps" not in known
    assert Settings(**known)


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        ({"scale_rewards": True}, "scale_rewards", "group"),  # TRL before 0.22
        ({"scale_rewards": False}, "scale_rewards", "none"),
        ({"scale_rewards": "group", "multi_objective_aggregation": "normalize_then_sum"}, "scale_rewards", None),
        ({"loss_type": "grpo", "importance_sampling_level": "sequence"}, "surrogate", "gspo"),
        ({"loss_type": "vespo"}, "surrogate", None),
        ({"use_bias_correction_kl": True}, "kl_estimator", "k3_ratio"),
        ({"scale_rewards": "group"}, "reshaped", False),
        ({"scale_rewards": "group", "reward_weights": [1.0]}, "reshaped", False),
        ({"scale_rewards": "group", "reward_weights": [2.0]}, "reshaped", None),  # not in the completions' rewards
        ({"scale_rewards": "group", "multi_objective_aggregation": "normalize_then_sum"}, "reshaped", None),
        ({}, "weighting", "rows"),
        ({"bf16": False, "fp16": False}, "dtype", "float32"),
        ({"bf16": False, "fp16": True}, "dtype", "bfloat16"),
        ({"bf16": False, "fp16": False, "use_vllm": True}, "dtype", "bfloat16"),
    ],
)
def test_an_argument(arguments: dict[str, object], name: str, value: object) -> None:
    assert settings_of_arguments({"num_generations": 8, **arguments}).get(name) == value


def test_arguments_of_another_trainer_say_nothing() -> None:
    assert settings_of_arguments({"learning_rate": 1e-6}) == {}


def test_a_name_by_its_words_stands_back_behind_an_exact_one() -> None:
    row = {"rollout/rewards": 0.0, "rollout/raw_reward": 0.4, "task reward": 0.1}
    assert translated(row) == {"reward/mean": 0.4}
    assert translated({"task reward": 0.1}) == {"reward/mean": 0.1}


def test_prose_is_no_part_of_the_reward() -> None:
    assert name_of("cosine reward") == "rewards/cosine"
    assert name_of("steps the reward") is None


@pytest.mark.parametrize(
    ("theirs", "live"),
    [
        ("live_group_frac", True),
        ("frac_mixed_groups", True),
        ("Informative group ratio", True),
        ("frac_groups_nonzero_std", True),
        ("nonzero_adv_frac", True),
        ("baseline_reward/pct_mixed", True),
        ("frac_zero_adv", False),
        ("frac_reward_zero_std", False),
    ],
)
def test_a_share_of_live_groups_is_told_as_that_of_dead_ones(theirs: str, live: bool) -> None:
    assert name_of(theirs) == "groups/dead"
    assert translated({theirs: 0.25, "loss": 0.1})["groups/dead"] == (0.75 if live else 0.25)


@pytest.mark.parametrize("theirs", ["effective_groups", "live groups", "pct_mixed_groups", "live_frac"])
def test_counts_and_percentages_of_live_groups_are_not_guessed_at(theirs: str) -> None:
    assert name_of(theirs) is None


@pytest.mark.parametrize("name", ["kl_coef", "actor.kl_loss_coef", "target_kl", "reward_scale", "loss_weight"])
def test_settings_are_not_proposed_as_metrics(name: str) -> None:
    assert proposed(name) is None


def test_another_name_of_the_reward_counts_where_nothing_else_is_called_so() -> None:
    assert translated({"rewards/total_mean": 0.5, "loss": 0.1})["reward/mean"] == 0.5
    assert translated({"rewards/total_mean": 0.5, "reward": 0.25})["reward/mean"] == 0.25


def test_our_own_names_are_theirs() -> None:
    """No pattern of foreign names takes one of ours for another, `completions/valid` for an evaluation."""
    ours = [*METRICS, *FOREIGN]
    assert len(ours) > 100
    assert [name for name in ours if name_of(name) not in (name, None)] == ["kl_loss"]  # of others it is the KL
    assert name_of("completions/valid") == "completions/valid"
