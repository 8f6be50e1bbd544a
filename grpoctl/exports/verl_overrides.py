"""A spec as overrides of verl's main_ppo: a key=value line each, a comment above where something differs."""

from __future__ import annotations

import json
from collections.abc import Iterator

from core.config import GrpoStage, RunSpec
from core.config.stage import Schedule
from core.config.trl.fields import STAGE, VERL
from core.config.trl.fit import micro_rows
from core.config.trl.settings import grpo_stage_of, steps_of
from grpoctl.version import __version__

_AGGREGATIONS = {
    "token_mean": "token-mean", "sequence_mean": "seq-mean-token-mean", "sequence_sum": "seq-mean-token-sum",
    "constant_length": "seq-mean-token-sum-norm",
}  # fmt: skip
_KL = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
_LOSSES = {"clip": "vanilla", "dual_clip": "vanilla", "gspo": "gspo"}
NO_DUAL_CLIP = 1000.0  # verl always bounds the ratio of negative advantages; this bound acts on none
Line = tuple[str, object, str]  # our key, verl's value, what differs


def verl_overrides(spec: RunSpec) -> str:
    """The list, comments included. Raises SpecError where the spec has no GRPO stage, or no language model."""
    name, stage = grpo_stage_of(spec)
    lines = [
        f"# {spec.name} ({spec.profile}) as overrides of verl, written by grpoctl {__version__}:",
        "#   python -m verl.trainer.main_ppo $(grep -v '^#' FILE) data.train_files=TRAIN.parquet \\",
        "#     data.val_files=TEST.parquet custom_reward_function.path=REWARD.py",
        f"# Data and rewards are verl's own files: the task {spec.task.name} of the spec is not here.",
        "# Nor are guards, the log-prob gap and early stopping. `differs` says where verl does another thing.",
        f"# differs: seed {spec.seed}: verl draws by its own seeds",
    ]
    for key, value, differs in [*_of_model(spec), *_of_stage(spec, stage), *_of_looking(spec)]:
        ours = key.replace(STAGE, f"stages.{name}")
        lines.append(f"# {ours}{f'; differs: {differs}' if differs else ''}")
        lines.append(f"{VERL[key][0]}={_written(value)}")
    lines += [f"# left out, verl's main_ppo has no such thing: {key}: {why}" for key, why in _left(spec, stage, name)]
    return "\n".join(lines) + "\n"


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(str, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def _of_model(spec: RunSpec) -> Iterator[Line]:
    model = spec.language_model
    odd = "verl cannot load the built-in model" if model.source.startswith("builtin:") else ""
    yield "model.source", model.source, odd
    yield "model.gradient_checkpointing", model.gradient_checkpointing, ""
    if (lora := model.lora) is not None:
        yield "model.lora.r", lora.r, ""
        yield "model.lora.lora_alpha", int(lora.lora_alpha), ""
        dropped = f"verl's adapter has no dropout, the spec's {lora.lora_dropout:g}" if lora.lora_dropout else ""
        yield "model.lora.target_modules", list(lora.target_modules), dropped


def _of_stage(spec: RunSpec, stage: GrpoStage) -> Iterator[Line]:
    rows, _ = micro_rows(stage, spec.trainer.processes)
    steps = steps_of(spec, stage)
    yield f"{STAGE}.prompts_per_step", stage.prompts_per_step, ""
    yield f"{STAGE}.max_completion_length", stage.max_completion_length, ""
    yield f"{STAGE}.num_generations", stage.num_generations, ""
    yield f"{STAGE}.temperature", stage.temperature.start, _moving(stage.temperature)
    yield f"{STAGE}.top_p", stage.top_p, ""
    yield f"{STAGE}.top_k", stage.top_k or -1, ""
    yield f"{STAGE}.learning_rate", stage.learning_rate, ""
    shape = stage.lr_scheduler_type
    other = "" if shape in ("constant", "cosine") else f"verl has no {shape} schedule"
    yield f"{STAGE}.lr_scheduler_type", shape if not other else "constant", other
    yield f"{STAGE}.lr_scheduler_steps", stage.lr_horizon * stage.updates_per_rollout, ""
    yield f"{STAGE}.warmup_steps", stage.warmup_steps * stage.updates_per_rollout, ""
    yield f"{STAGE}.weight_decay", stage.weight_decay, ""
    yield f"{STAGE}.max_grad_norm", stage.max_grad_norm, ""
    prompts = max(1, stage.prompts_per_step // stage.minibatches)
    yield f"{STAGE}.minibatches", prompts, "counted in prompts"
    yield f"{STAGE}.gradient_accumulation_steps", rows, "rows of a micro-batch"
    yield f"{STAGE}.num_iterations", stage.num_iterations, ""
    yield f"{STAGE}.epsilon", stage.epsilon.start, _moving(stage.epsilon)
    high = stage.epsilon_high or stage.epsilon
    yield f"{STAGE}.epsilon_high", high.start, _moving(high)
    bound = stage.dual_clip if stage.surrogate == "dual_clip" else NO_DUAL_CLIP
    yield f"{STAGE}.dual_clip", bound, "" if stage.surrogate == "dual_clip" else "verl has no loss without this bound"
    loss = _LOSSES.get(stage.surrogate, "vanilla")
    yield f"{STAGE}.surrogate", loss, "" if stage.surrogate in _LOSSES else f"verl's main_ppo has no {stage.surrogate}"
    yield f"{STAGE}.reduction", _AGGREGATIONS[stage.reduction], ""
    with_kl = stage.beta.ever and stage.kl_in == "loss"
    yield (
        f"{STAGE}.kl_in",
        with_kl,
        "the KL is in the reward: set algorithm.use_kl_in_reward"
        if (stage.beta.ever and stage.kl_in == "reward")
        else "",
    )
    yield f"{STAGE}.beta", stage.beta.start, _moving(stage.beta)
    other = "" if stage.kl_estimator in _KL else f"verl has no {stage.kl_estimator}"
    yield f"{STAGE}.kl_estimator", _KL.get(stage.kl_estimator, "low_var_kl"), other
    yield f"{STAGE}.entropy_coef", stage.entropy_coef.start, _moving(stage.entropy_coef)
    yield f"{STAGE}.method", *_estimator(stage)
    yield f"{STAGE}.advantage.scale_rewards", stage.advantage.scale_rewards == "group", _scale(stage)
    yield f"{STAGE}.max_steps", steps, ""


def _estimator(stage: GrpoStage) -> tuple[str, str]:
    match stage.advantage.baseline:
        case "group":
            return "grpo", ""
        case "leave_one_out":
            return "rloo", ""
        case other:
            return "grpo", f"verl's grpo has the group's mean, not the baseline {other}"


def _scale(stage: GrpoStage) -> str:
    said = []
    if stage.advantage.scale_rewards not in ("group", "none"):
        said.append(f"verl's grpo has no scale {stage.advantage.scale_rewards}")
    if stage.advantage.scale_rewards == "group" and (stage.advantage.ddof, stage.advantage.eps) != (1, 1e-6):
        said.append("verl's std has ddof 1, and 1e-6 is added")
    return "; ".join(said)


def _of_looking(spec: RunSpec) -> Iterator[Line]:
    yield "evaluation.eval_steps", spec.evaluation.eval_steps, ""
    yield "evaluation.num_generations_eval", spec.evaluation.num_generations_eval, ""
    yield "evaluation.temperature", spec.evaluation.temperature, ""
    yield "checkpoints.save_steps", spec.checkpoints.save_steps, ""
    yield "checkpoints.save_total_limit", spec.checkpoints.save_total_limit, "the best one is not kept besides"


def _moving(schedule: Schedule) -> str:
    return "" if schedule.constant else "a schedule in the spec; verl has one number"


def _left(spec: RunSpec, stage: GrpoStage, name: str) -> Iterator[tuple[str, str]]:
    if spec.faults:
        yield "faults", "mistakes are injected into grpoctl's own trainer alone"
    if spec.init_from is not None:
        yield "init_from", "export that run's weights and name their folder"
    default = GrpoStage.model_fields
    for key in (
        "entropy_weighting", "dynamic_sampling", "overlong", "adaptive_beta", "adaptive_entropy", "supervised_weight",
        "policy_weight", "keep_candidates", "positive_reward", "groups", "old_policy", "mask_truncated_completions",
        "importance_sampling_cap", "lr_plateau", "loss_weights",
    ):  # fmt: skip
        if getattr(stage, key) != default[key].get_default(call_default_factory=True):
            yield f"stages.{name}.{key}", "set in the spec"
    for other in spec.stages:
        if other != name:
            yield f"stages.{other}", "main_ppo has one stage"
