"""What is known of the configuration of TRL's GRPOTrainer (1.16): from its arguments, and from what its rows have.

What is not here: names of metrics (metric_names), and the files that settings stand in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from grpoctl.diagnose.readers.metric_names import OF_GRPO, Cells


def settings_of_rows(rows: Sequence[Cells], names: Set[str]) -> dict[str, Any]:
    """What rows of a GRPO trainer say of its configuration by the names they have: {} for rows of another trainer."""
    if names.isdisjoint(OF_GRPO):
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
    "min_p", "repetition_penalty", "max_grad_norm", "gradient_accumulation_steps", "gradient_checkpointing",
    "warmup_steps", "mask_truncated_completions",
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
        # SchedulerType.LINEAR, <SchedulerType.COSINE: 'cosine'>
        known["lr_scheduler_type"] = scheduler.partition(":")[0].rpartition(".")[2].lower()
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
