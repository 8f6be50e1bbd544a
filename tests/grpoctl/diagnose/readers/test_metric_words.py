"""Names that people give to columns: which metric their words mean, and which they do not."""

from __future__ import annotations

import pytest

from grpoctl.diagnose.readers.metric_names import name_of
from grpoctl.diagnose.readers.metric_words import metric_by_words, part_by_words


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("% emit `<tool_call>`", "tools/calls"),
        ("avg tool calls", "tools/calls"),
        ("mean_kl_sft", "kl"),
        ("exact @ t0.7", "rewards/accuracy"),
        ("NDCG@10", "eval/slices/accuracy"),
        ("avg reward", "reward/mean"),
        ("**Mean Reward**", "reward/mean"),
        ("平均奖励", "reward/mean"),
        ("last_f1 (the reward)", "reward/mean"),
        ("proxy reward", "reward/mean"),
        ("Gold reward", "reward/true"),
        ("oracle", "reward/true"),
        ("success rate", "rewards/accuracy"),
        ("acc", "rewards/accuracy"),
        ("Format reward", "rewards/format"),
        ("resp len", "completions/length"),
        ("Avg. length", "completions/length"),
        ("tokens/completion", "completions/length"),
        ("KL div", "kl"),
        ("KL (nats)", "kl"),
        ("median KL", "kl"),
        ("kl 中位", "kl"),
        ("KL (β)", "kl"),
        ("KL penalty (β)", "beta"),
        ("KL penalty β", "beta"),
        ("trajectory_score/mean", "reward/mean"),
        ("reward (beta)", "reward/mean"),
        ("KL from ref", "kl"),
        ("KL vs base", "kl"),
        ("POPE Acc", "eval/slices/pope"),
        ("MathVista", "eval/slices/mathvista"),
        ("format compliance", "rewards/format"),
        ("Mismatch KL", "sampler/kl"),
        ("Value Loss", "critic/loss"),
        ("critic loss", "critic/loss"),
        ("loss value", "loss"),
        ("Policy Loss", "policy/loss"),
        ("Expl Variance", "critic/explained"),
        ("val reward@1", "eval/reward"),
        ("held-out d4", "eval/slices/d4"),
        ("grad norm", "grad_norm"),
        ("LR", "learning_rate"),
        ("clip frac", "policy/clip_share"),
        ("truncated %", "completions/truncated"),
        ("截断比例", "completions/truncated"),
        ("zero-var groups", "groups/dead"),
        ("groups with zero reward spread", "groups/dead"),
        ("identical rewards %", "groups/dead"),
        ("Score/mean", "reward/mean"),
        ("cap hit rate", "completions/truncated"),
        ("unique_answer_rate", "completions/distinct"),
        ("reward std", "reward/std"),
        ("mean-of-k", "eval/slices/accuracy"),
        ("pass@k", "eval/slices/accuracy"),
        ("eval exact reward mean", "eval/slices/accuracy"),
        ("task completion rate", "rewards/accuracy"),
        ("Honest solves", "reward/true"),
        ("gold RM score", "reward/true"),
        ("proxy RM", "reward/mean"),
        ("Parse rate", "completions/valid"),
        ("valid JSON %", "completions/valid"),
        ("HotpotQA", "eval/slices/hotpotqa"),
        ("2Wiki", "eval/slices/2wiki"),
        ("eval reward", "eval/reward"),
        ("Avg@4", "eval/slices/accuracy"),
        ("GSM8K", "eval/slices/gsm8k"),
        ("Val acc", "eval/slices/accuracy"),
        ("reward (eval)", "eval/reward"),
        ("eval/pass_at_1", "eval/slices/accuracy"),
        ("policy/policy_entropy", "entropy"),
        ("ppo_actor/task_reward/avg", "reward/mean"),
        ("ppo_actor/update/grad_norm", "grad_norm"),
        ("ppo_actor/update/lr", "learning_rate"),
        ("ppo_actor/no_eos_ratios/avg", "completions/truncated"),
    ],
)
def test_words_that_mean_a_metric(name: str, metric: str) -> None:
    assert metric_by_words(name) == metric


@pytest.mark.parametrize(
    "name",
    [
        "d4",  # of nothing held out
        "critic kl",
        "vf clipfrac",
        "critic grad norm",
        "val value loss",
        "best reward",  # a maximum over the run
        "reward threshold",
        "KL coef",
        "entropy loss",  # minus the entropy, or the entropy
        "Δ reward",
        "correct/rollout",  # a count
        "prompt length",
        "critic/returns/mean",
        "answer",
        "reward reward std",  # two columns
        "loss 3",
        "RM",
        "honest rate",
        "nq em",  # of a set that is trained on, too
        "hotpotqa reward",
        "completion rate",  # of tasks, or of texts
        "KL from rollout",
        "KL vs step 0",
        "MMMU reward",
        "step time",
        "x" * 100,
        "avg ep len",
        "episode length",
    ],
)
def test_words_that_do_not(name: str) -> None:
    assert metric_by_words(name) is None


def test_times_and_counters_stay_aside() -> None:
    assert name_of("timing_s/reward") is None
    assert name_of("train_loss_time") is None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("strict acc", "rewards/strict_acc"),
        ("**tool reward**", "rewards/tool_reward"),
        ("recall proxy (pred/gt)", "rewards/recall_proxy"),
        ("最终答对", "rewards/最终答对"),
        ("p − precision", None),  # a difference
        ("best reward", None),
        ("val precision", "eval/slices/precision"),
        ("eval `edit_similarity`", "eval/slices/edit_similarity"),
        ("eval hack rate", None),
        ("eval samples", None),
        ("soft format", "rewards/soft_format"),
        ("notes", None),
    ],
)
def test_parts_of_a_reward(name: str, part: str | None) -> None:
    assert part_by_words(name) == part
