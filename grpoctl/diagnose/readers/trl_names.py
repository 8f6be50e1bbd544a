"""What TRL's GRPOTrainer (1.16, and its forerunners) and Hugging Face's Trainer log, in our names.

What is here: names of metrics and of settings. What is not: the files they stand in (trainer_state, console,
mlflow_runs).

reward_std is the deviation over the whole batch (reward/std) in TRL 1.16; versions that still log `completion_length`
or a single `clip_ratio` give the mean deviation inside groups there (reward/group_std). sampling_logp_difference is the
mean |log-prob the sampler recorded - log-prob of the trainer's forward| over the tokens of the batch: the same quantity
as our rollout/logprob_gap, over all rows instead of one group. Left out, since they are something else of ours:
num_tokens (prompts included), step_time, rewards/*/std, importance_sampling_ratio (of sequences, by default).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.metrics import declared

Cells = Mapping[str, float | None]


def _table(rows: str) -> dict[str, str]:
    """theirs -> ours, of lines `theirs | ours`."""
    pairs = (line.split(" | ") for line in rows.strip().splitlines())
    return {theirs.strip(): ours.strip() for theirs, ours in pairs}


_STEP = _table(
    """
    reward | reward/mean
    reward_std | reward/std
    frac_reward_zero_std | groups/dead
    completions/mean_length | completions/length
    completion_length | completions/length
    completions/clipped_ratio | completions/truncated
    kl | kl
    entropy | entropy
    clip_ratio/low_mean | policy/clip_low
    clip_ratio/high_mean | policy/clip_high
    policy_loss | policy/loss
    loss | loss
    grad_norm | grad_norm
    learning_rate | learning_rate
    sampling/sampling_logp_difference/mean | rollout/logprob_gap
    sampling/sampling_logp_difference/max | rollout/logprob_gap_max
    """
)
_EVAL = _table(
    """
    eval_reward | eval/reward
    eval_loss | eval/loss
    eval_completions/mean_length | eval/length
    eval_completion_length | eval/length
    eval_completions/clipped_ratio | eval/truncated
    eval_sampling/sampling_logp_difference/mean | eval/logprob_gap
    """
)
OURS = _STEP | _EVAL
# What says that a row is of a GRPO trainer, and not of some other one that Hugging Face's Trainer drives.
OF_GRPO = [theirs for theirs, ours in _STEP.items() if ours in ("groups/dead", "completions/length")]
_OLDER = ("completion_length", "clip_ratio")  # versions whose reward_std is inside groups
# Known, and of no use to a rule: not worth a note that they were left out.
_ASIDE = re.compile(
    r"epoch|step|step_time|num_tokens|total_flos|num_input_tokens_seen|eval_(runtime|num_tokens|step_time|.*_per_second)"
    r"|train_.*|profiling/.*|(eval_)?rewards?/.+/std|(eval_)?reward_std|(eval_)?frac_reward_zero_std|(eval_)?entropy|eval_kl"
    r"|(eval_)?completions/(min|max|mean_terminated|min_terminated|max_terminated)_length|mean_token_accuracy"
    r"|(eval_)?clip_ratio(/.+)?|eval_sampling/.+|sampling/.+|eval_completions/.+"
)
_REWARD = re.compile(r"(?P<eval>eval_)?rewards/(?P<name>.+?)(/mean)?")


def name_of(theirs: str) -> str | None:
    """Our metric of that name, ours or theirs; None where there is none."""
    if (known := OURS.get(theirs)) is not None:
        return known
    match = _REWARD.fullmatch(theirs)
    if match and not theirs.endswith("/std"):
        word = re.sub(r"[^\w.-]", "_", match["name"])
        return f"eval/rewards/{word}" if match["eval"] else f"rewards/{word}"
    return theirs if declared(theirs) is not None else None


def translated(row: Cells, *, older: bool = False) -> dict[str, float | None]:
    """The row's metrics in our names, what is not a finite number as None; what has no name of ours is left out."""
    metrics: dict[str, float | None] = {}
    for theirs, value in row.items():
        name = name_of(theirs)
        if name is not None and name not in ("step", "update"):
            metrics[name] = value if value is not None and math.isfinite(value) else None
    if older and "reward/std" in metrics:
        metrics["reward/group_std"] = metrics.pop("reward/std")
    return metrics


def is_older(names: Iterable[str]) -> bool:
    """Whether the columns are of a TRL whose reward_std is the mean deviation inside groups."""
    return any(name in _OLDER for name in names)


def left_out(names: Iterable[str]) -> list[str]:
    """The columns that have no name of ours and are not known to be of no use, sorted."""
    return sorted({name for name in names if name_of(name) is None and not _ASIDE.fullmatch(name)})


def settings_of_rows(rows: Sequence[Cells]) -> dict[str, Any]:
    """What rows of a GRPO trainer say of its configuration by what they have: {} for rows of another trainer."""
    names = {name for row in rows for name in row}
    if not names.intersection(OF_GRPO):
        return {}
    known: dict[str, Any] = dict(_FIXED)
    if "kl" not in names:
        known["beta"] = 0.0  # TRL logs the KL exactly where beta is not 0
    if any(name.startswith("sampling/") for name in names):
        known["dtype"] = "bfloat16"  # another engine sampled: its rounding is not that of one fp32 forward
    return known | ({"reshaped": False} if _is_the_reward(rows, names) else {})


def _is_the_reward(rows: Sequence[Cells], names: Iterable[str]) -> bool:
    """Whether there is one reward function and it counts once: then the completions' rewards are the normaliser's."""
    functions = [name for name in names if re.fullmatch(r"rewards/.+/mean", name)]
    pairs = [(row.get("reward"), row.get(functions[0])) for row in rows] if len(functions) == 1 else []
    known = [(whole, part) for whole, part in pairs if whole is not None and part is not None]
    return bool(known) and all(math.isclose(*pair, rel_tol=1e-5, abs_tol=1e-9) for pair in known)


ARGUMENTS_OF_GRPO = "num_generations"  # what only such a configuration has
# What TRL's GRPO always does, whatever it is told (1.16; its advantage is (r - mean) / (std + 1e-4), std with ddof 1).
_FIXED: dict[str, Any] = {
    "transform": "none", "baseline": "group", "ddof": 1, "eps": 1e-4, "std_floor": 0.0, "kl_in": "loss",
    "dynamic_sampling": False, "supervised_weight": 0.0, "consistency_weight": 0.0, "skip_without_signal": False,
    "offline": False, "old_is_reference": False, "weighting": "rows",
}  # fmt: skip
_SAME = (
    "learning_rate", "num_generations", "max_completion_length", "temperature", "top_p", "top_k", "beta", "epsilon",
    "max_grad_norm", "gradient_accumulation_steps", "gradient_checkpointing", "warmup_steps",
    "mask_truncated_completions",
)  # fmt: skip
_SURROGATES = {"grpo": "clip", "bnpo": "clip", "dr_grpo": "clip", "dapo": "clip", "cispo": "cispo", "sapo": "sapo"}


def settings_of_arguments(args: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of Settings from a GRPOConfig's own (plain values); {} where it is no GRPOConfig."""
    if ARGUMENTS_OF_GRPO not in args:
        return {}
    known = {**_FIXED, **{name: args[name] for name in _SAME if args.get(name) is not None}}
    if isinstance(steps := args.get("max_steps"), int) and steps > 0:
        known["max_steps"] = steps
    if isinstance(scheduler := args.get("lr_scheduler_type"), str):
        known["lr_scheduler_type"] = scheduler.rpartition(".")[2].lower()  # SchedulerType.LINEAR
    if isinstance(optimizer := args.get("optim"), str):
        known["optimizer"] = optimizer.rpartition(".")[2].lower()  # OptimizerNames.ADAMW_TORCH
    if "use_bias_correction_kl" in args:
        known["kl_estimator"] = "k3_ratio" if args["use_bias_correction_kl"] else "k3"
    known |= _scaling(args) | _batches(args) | _precision(args)
    surrogate = _SURROGATES.get(str(args.get("loss_type")))
    if args.get("importance_sampling_level") == "sequence" and surrogate == "clip":
        surrogate = "gspo"
    return known | ({"surrogate": surrogate} if surrogate else {})


def _scaling(args: Mapping[str, Any]) -> dict[str, Any]:
    scale = {True: "group", False: "none"}.get(args["scale_rewards"]) if isinstance(
        args.get("scale_rewards"), bool
    ) else args.get("scale_rewards")  # fmt: skip
    alone = args.get("multi_objective_aggregation", "sum_then_normalize") == "sum_then_normalize"
    if not alone or scale not in ("group", "batch", "none"):
        return {}
    weights = args.get("reward_weights")
    plain = weights is None or (isinstance(weights, list) and all(weight == 1 for weight in weights))
    return {"scale_rewards": scale, "reshaped": False if plain else None}  # None: no completion tells its weight


def _batches(args: Mapping[str, Any]) -> dict[str, Any]:
    """Prompts a step, and optimiser steps that learn from one generation."""
    known: dict[str, Any] = {}
    size, group = args.get("generation_batch_size"), args.get("num_generations")
    spans, accumulation = args.get("steps_per_generation"), args.get("gradient_accumulation_steps")
    iterations = args.get("num_iterations") or 1
    if isinstance(size, int) and isinstance(group, int) and group > 0:
        known["prompts_per_step"] = size // group
    if isinstance(spans, int) and isinstance(accumulation, int) and accumulation > 0:
        known["updates_per_rollout"] = max(1, iterations * spans // accumulation)
    return known


def _precision(args: Mapping[str, Any]) -> dict[str, Any]:
    """fp16 counts as bfloat16: rules ask how much rounding explains, and the coarser of the two accuses nobody."""
    if args.get("bf16") is None:
        return {}
    coarse = args["bf16"] or args.get("fp16") or args.get("use_vllm")
    return {"dtype": "bfloat16" if coarse else "float32"}
