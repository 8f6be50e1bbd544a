"""A spec as overrides of verl's main_ppo: a key=value line each, a comment above where something differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from core.config import GrpoStage, RunSpec
from core.config.grpo_stage import AdvantageSpec
from core.config.stage import Schedule
from core.config.trl.fields import STAGE, VERL, VERL_VERSION
from core.config.trl.fit import micro_rows
from core.config.trl.settings import grpo_stage_of, steps_of
from grpoctl.version import __version__

_AGGREGATIONS = {
    "token_mean": "token-mean", "sequence_mean": "seq-mean-token-mean", "sequence_sum": "seq-mean-token-sum",
    "constant_length": "seq-mean-token-sum-norm",
}  # fmt: skip
_KL = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
_LOSSES = {"clip": "vanilla", "dual_clip": "vanilla", "gspo": "gspo", "sapo": "sapo", "cispo": "cispo"}
_OF_SEQUENCES = ("gspo", "sapo")  # losses of verl's that are always the mean of sequences' means
NO_DUAL_CLIP = 1000.0  # verl always bounds the ratio of negative advantages; this bound acts on none


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """An override: our key (empty: verl needs it all the same), verl's value, what differs, and verl's name."""

    key: str
    value: object
    differs: str = ""
    name: str = ""  # empty: the one of VERL

    @property
    def override(self) -> str:
        """`name=value`, one word."""
        return f"{self.name or VERL[self.key][0]}={_written(self.value)}"


def verl_overrides(spec: RunSpec) -> str:
    """The list, comments included. Raises SpecError where the spec has no GRPO stage, or no language model."""
    name, stage = grpo_stage_of(spec, "verl's main_ppo")
    lines = [
        f"# {spec.name} ({spec.profile}) as overrides of verl {VERL_VERSION}, written by grpoctl {__version__}:",
        "#   python -m verl.trainer.main_ppo $(grep -v '^#' FILE) data.train_files=TRAIN.parquet \\",
        "#     data.val_files=TEST.parquet custom_reward_function.path=REWARD.py",
        f"# Data and rewards are verl's own files: the task {spec.task.name} of the spec is not here.",
        "# Nor are guards, the log-prob gap and early stopping. `differs` says where verl does another thing.",
        f"# differs: seed {spec.seed}: verl draws by its own seeds",
    ]
    for line in [*_of_model(spec), *_of_stage(spec, stage), *_of_looking(spec), *_of_devices(spec, stage)]:
        ours = line.key.replace(STAGE, f"stages.{name}") or "needed by verl"
        lines.append(f"# {ours}{f'; differs: {line.differs}' if line.differs else ''}")
        lines.append(line.override)
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
    yield Line(key="model.source", value=model.source, differs=odd)
    yield Line(key="model.gradient_checkpointing", value=model.gradient_checkpointing)
    if (lora := model.lora) is not None:
        yield Line(key="model.lora.r", value=lora.r)
        yield Line(key="model.lora.lora_alpha", value=int(lora.lora_alpha))
        dropped = f"verl's adapter has no dropout, the spec's {lora.lora_dropout:g}" if lora.lora_dropout else ""
        yield Line(key="model.lora.target_modules", value=lora.targets, differs=dropped)


def _of_stage(spec: RunSpec, stage: GrpoStage) -> Iterator[Line]:
    yield Line(key=f"{STAGE}.prompts_per_step", value=stage.prompts_per_step)
    yield Line(key=f"{STAGE}.max_completion_length", value=stage.max_completion_length)
    yield Line(key=f"{STAGE}.num_generations", value=stage.num_generations)
    yield _at_start("temperature", stage.temperature)
    yield Line(key=f"{STAGE}.top_p", value=stage.top_p)
    yield Line(key=f"{STAGE}.top_k", value=stage.top_k or -1)
    yield from _of_updates(spec, stage)
    yield from _of_loss(spec, stage)
    yield from _of_kl(stage)
    yield _at_start("entropy_coef", stage.entropy_coef)
    estimator, other = _estimator(stage)
    yield Line(key=f"{STAGE}.method", value=estimator, differs=other)
    own = f"{STAGE}.advantage.scale_rewards"
    yield Line(key=own, value=stage.advantage.scale_rewards == "group", differs=_scale(stage))
    if (cap := stage.importance_sampling_cap) is not None:
        for field, value in (("rollout_is", "token"), ("rollout_is_threshold", cap)):
            name = f"algorithm.rollout_correction.{field}"
            yield Line(key=f"{STAGE}.importance_sampling_cap", value=value, name=name)
        name = "actor_rollout_ref.rollout.calculate_log_probs"
        yield Line(key=f"{STAGE}.importance_sampling_cap", value=True, name=name)


def _of_updates(spec: RunSpec, stage: GrpoStage) -> Iterator[Line]:
    rows, _ = micro_rows(stage, spec.trainer.processes)
    steps = steps_of(spec, stage)
    yield Line(key=f"{STAGE}.learning_rate", value=stage.learning_rate)
    shape, differs = stage.lr_scheduler_type, []
    if shape not in ("constant", "cosine"):
        differs.append(f"verl has no {shape} schedule")
    elif shape == "cosine" and stage.lr_horizon != steps:
        differs.append(f"verl's ends with the run, after {steps} steps, the spec's after {stage.lr_horizon}")
    if stage.lr_clock == "updates" and (stage.warmup_steps or shape != "constant"):
        differs.append("verl's ticks with steps, not with updates")
    value = "cosine" if shape == "cosine" else "constant"
    yield Line(key=f"{STAGE}.lr_scheduler_type", value=value, differs="; ".join(differs))
    yield Line(key=f"{STAGE}.warmup_steps", value=stage.warmup_steps)
    yield Line(key=f"{STAGE}.weight_decay", value=stage.weight_decay)
    betas = [stage.adam_beta1, stage.adam_beta2]
    yield Line(key=f"{STAGE}.adam_beta1", value=betas, name="actor_rollout_ref.actor.optim.betas")
    yield Line(key=f"{STAGE}.max_grad_norm", value=stage.max_grad_norm)
    prompts = max(1, stage.prompts_per_step // stage.minibatches)
    yield Line(key=f"{STAGE}.minibatches", value=prompts, differs="counted in prompts")
    yield Line(key=f"{STAGE}.gradient_accumulation_steps", value=rows, differs="rows of a micro-batch on each GPU")
    yield Line(key=f"{STAGE}.num_iterations", value=stage.num_iterations)
    yield Line(key=f"{STAGE}.max_steps", value=steps)
    # an epoch has one step at least: so many are never fewer than the steps, which end the run
    yield Line(key="", value=steps, name="trainer.total_epochs", differs="only total_training_steps ends the run")


def _of_loss(spec: RunSpec, stage: GrpoStage) -> Iterator[Line]:
    loss, (rows, count) = _LOSSES.get(stage.surrogate), micro_rows(stage, spec.trainer.processes)
    lacks = "" if loss else f"verl's main_ppo has no {stage.surrogate}"
    yield Line(key=f"{STAGE}.surrogate", value=loss or "vanilla", differs=lacks)
    if loss == "cispo":  # clamps the weight to 1 - low ... 1 + high, ours to 0 ... cispo_max_weight
        low, high = VERL[f"{STAGE}.epsilon"][0], VERL[f"{STAGE}.epsilon_high"][0]
        yield Line(key=f"{STAGE}.cispo_max_weight", value=1.0, name=low)
        yield Line(key=f"{STAGE}.cispo_max_weight", value=stage.cispo_max_weight - 1, name=high)
    else:
        yield _at_start("epsilon", stage.epsilon)
        yield _at_start("epsilon_high", stage.epsilon_high or stage.epsilon)
    if stage.surrogate == "dual_clip":
        yield Line(key=f"{STAGE}.dual_clip", value=stage.dual_clip)
    elif loss in ("vanilla", None):
        yield Line(key=f"{STAGE}.dual_clip", value=NO_DUAL_CLIP, differs="verl has no loss without this bound")
    if loss == "sapo":
        for end in ("pos", "neg"):
            key = f"sapo_temperature_{end}"
            yield Line(key=f"{STAGE}.{key}", value=getattr(stage, key), name=f"actor_rollout_ref.actor.tau_{end}")
    differs = ""
    if loss in _OF_SEQUENCES and stage.reduction != "sequence_mean":
        differs = f"verl's {loss} is always the mean of sequences' means"
    elif stage.reduction == "token_mean" and count > 1:
        differs = "verl's mean is of each micro-batch's tokens"
    yield Line(key=f"{STAGE}.reduction", value=_AGGREGATIONS[stage.reduction], differs=differs)
    if stage.reduction == "constant_length":  # verl adds a micro-batch's rows up and divides by this alone
        name = "actor_rollout_ref.actor.loss_scale_factor"
        yield Line(key=f"{STAGE}.reduction", value=stage.max_completion_length * rows, name=name)


def _of_kl(stage: GrpoStage) -> Iterator[Line]:
    """In the loss or in the reward, with the weight and the estimator of each."""
    in_loss = stage.beta.ever and stage.kl_in == "loss"
    in_reward = stage.beta.ever and stage.kl_in == "reward"
    other = "" if stage.kl_estimator in _KL or not stage.beta.ever else f"verl has no {stage.kl_estimator}"
    estimator = _KL.get(stage.kl_estimator, "low_var_kl")
    yield Line(key=f"{STAGE}.kl_in", value=in_loss)
    if in_reward:
        yield Line(key=f"{STAGE}.kl_in", value=True, name="algorithm.use_kl_in_reward")
        yield replace(_at_start("beta", stage.beta), name="algorithm.kl_ctrl.kl_coef")
        yield Line(key=f"{STAGE}.kl_estimator", value=estimator, differs=other, name="algorithm.kl_penalty")
        return
    yield _at_start("beta", stage.beta)
    yield Line(key=f"{STAGE}.kl_estimator", value=estimator, differs=other)


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
    evaluation = spec.evaluation
    yield Line(key="evaluation.eval_steps", value=evaluation.eval_steps)
    yield Line(key="evaluation.num_generations_eval", value=evaluation.num_generations_eval)
    yield Line(key="evaluation.temperature", value=evaluation.temperature)
    draws = "actor_rollout_ref.rollout.val_kwargs.do_sample"  # without it verl is greedy, whatever the temperature
    yield Line(key="evaluation.temperature", value=evaluation.temperature > 0, name=draws)
    yield Line(key="checkpoints.save_steps", value=spec.checkpoints.save_steps)
    kept = "the best one is not kept besides"
    yield Line(key="checkpoints.save_total_limit", value=spec.checkpoints.save_total_limit, differs=kept)


def _of_devices(spec: RunSpec, stage: GrpoStage) -> Iterator[Line]:
    """What verl asks for and no spec says: the sampler, its sizes, the GPUs, and no W&B account."""
    rows, _ = micro_rows(stage, spec.trainer.processes)
    rollout = "actor_rollout_ref.rollout"
    yield Line(key="", value="vllm", name=f"{rollout}.name", differs="or sglang")
    yield Line(key="", value=1, name=f"{rollout}.tensor_model_parallel_size")
    yield Line(key="", value=rows, name=f"{rollout}.log_prob_micro_batch_size_per_gpu")
    if stage.beta.ever:
        yield Line(key="", value=rows, name="actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu")
    if spec.language_model.lora is not None:
        yield Line(key="", value="safetensors", name=f"{rollout}.load_format")
    yield Line(key="", value=spec.trainer.processes, name="trainer.n_gpus_per_node")
    yield Line(key="", value=["console"], name="trainer.logger")


def _at_start(name: str, schedule: Schedule) -> Line:
    moving = "" if schedule.constant else "a schedule in the spec; verl has one number"
    return Line(key=f"{STAGE}.{name}", value=schedule.start, differs=moving)


def _left(spec: RunSpec, stage: GrpoStage, name: str) -> Iterator[tuple[str, str]]:
    if spec.faults:
        yield "faults", "mistakes are injected into grpoctl's own trainer alone"
    if spec.init_from is not None:
        yield "init_from", "export that run's weights and name their folder"
    default = GrpoStage.model_fields
    for key in (
        "entropy_weighting", "dynamic_sampling", "overlong", "adaptive_beta", "adaptive_entropy", "supervised_weight",
        "policy_weight", "keep_candidates", "positive_reward", "groups", "old_policy", "mask_truncated_completions",
        "lr_plateau", "loss_weights", "stop_strings", "min_p", "repetition_penalty", "sync_ref_model", "optim",
        "adam_epsilon",
    ):  # fmt: skip
        if getattr(stage, key) != default[key].get_default(call_default_factory=True):
            yield f"stages.{name}.{key}", "set in the spec"
    yield from _left_beside(spec, stage, name)
    for other in spec.stages:
        if other != name:
            yield f"stages.{other}", "main_ppo has one stage"


def _left_beside(spec: RunSpec, stage: GrpoStage, name: str) -> Iterator[tuple[str, str]]:
    """Of the advantages, beside what goes with the estimator, and of the model."""
    told = ("scale_rewards", "baseline", "ddof", "eps")  # beside the estimator
    for key, info in AdvantageSpec.model_fields.items():
        if key not in told and getattr(stage.advantage, key) != info.get_default(call_default_factory=True):
            yield f"stages.{name}.advantage.{key}", "set in the spec"
    model = spec.language_model
    for key, given in (("trainable", model.trainable is not None), ("load_in_4bit", model.load_in_4bit == "always")):
        if given:
            yield f"model.{key}", "set in the spec"
