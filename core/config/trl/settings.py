"""A spec as the settings of TRL's GRPOConfig, with what differs in plain TRL; and a GRPOConfig as the keys of a spec.

`trl_settings` is what `trainer.kind: trl` runs and what `grpoctl export --to trl` writes; `spec_of_trl` is what
`grpoctl import trl` prints. What grpoctl adds around TRL's trainer, so that a run of `kind: trl` does not differ, is
not here (grpoctl.executors).
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.algorithms.names import OPTIMISERS
from core.config.grpo_stage import AdvantageSpec, GrpoStage
from core.config.run import RunSpec
from core.config.stage import Schedule, steps_of_epochs
from core.config.task import TaskConfig
from core.config.trl.fields import FIELDS, KEYS, SAME, STAGE, TRAINER_ARGUMENTS
from core.config.trl.fit import LOSSES, micro_rows, unfit
from core.config.trl.values import value_problem
from core.errors import SpecError

TRL_EPS = 1e-4  # what TRL adds to a standard deviation, of ddof 1
_SCHEDULERS = {"constant": "constant", "linear": "linear", "cosine": "cosine", "exponential": "constant"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A field of GRPOConfig, the key it comes from, and what differs in TRL all the same (empty: nothing)."""

    field: str
    value: Any
    key: str
    differs: str = ""


def grpo_stage_of(spec: RunSpec, trainer: str = "TRL's GRPOTrainer") -> tuple[str, GrpoStage]:
    """(name, stage) of the spec's GRPO stage. Raises SpecError where there is none, or no language model."""
    if spec.model is None:
        raise SpecError(f"got {spec.policy.kind}; {trainer} trains a causal language model", key="policy.kind")
    for name, stage in spec.stages.items():
        if isinstance(stage, GrpoStage):
            return name, stage
    raise SpecError(f"there is no GRPO stage, and {trainer} trains nothing else", key="stages")


def steps_of(spec: RunSpec, stage: GrpoStage) -> int:
    """Steps of ours that a run makes at most; a budget of completions says how many."""
    budget = spec.budget
    if budget is None:
        return stage.max_steps
    # of tokens each completion has one at least
    return max(1, math.ceil(budget.amount / stage.rows_per_step))


def trl_settings(spec: RunSpec) -> list[Setting]:
    """GRPOConfig's fields for a spec, one GRPO stage of it, in TRL's order; `trainer.args` come last, as they are."""
    name, stage = grpo_stage_of(spec)
    settings = [*_of_run(spec), *_of_sampling(stage, name), *_of_loss(stage, name), *_of_updates(spec, stage, name)]
    order = {field: number for number, field in enumerate(FIELDS)}
    ours = sorted(settings, key=lambda one: order[one.field])
    passed = {field: value for field, value in spec.trainer.args.items() if field not in TRAINER_ARGUMENTS}
    return [*ours, *(Setting(field=key, value=value, key=f"trainer.args.{key}") for key, value in passed.items())]


def not_in_trl(spec: RunSpec) -> dict[str, str]:
    """key -> why plain TRL cannot do it: what a script of TRL alone leaves out."""
    name, stage = grpo_stage_of(spec)
    adapter = spec.language_model.lora is not None
    unfitting = unfit(stage, spec.trainer.args, spec.trainer.processes, adapter=adapter)
    left = {f"stages.{name}.{key}": why for key, why in unfitting}
    others = [other for other in spec.stages if other != name]
    left |= {f"stages.{other}": KEYS[f"{STAGE}.kind"].note for other in others}
    for key, given in (("init_from", spec.init_from is not None), ("faults", bool(spec.faults))):
        if given:
            left[key] = KEYS[key].note
    return left


def _of_run(spec: RunSpec) -> Iterator[Setting]:
    model = spec.language_model
    yield Setting(field="seed", value=spec.seed, key="seed", differs="other draws: TRL samples by torch's generator")
    yield Setting(field="trust_remote_code", value=model.trust_remote_code, key="model.trust_remote_code")
    yield Setting(field="bf16", value=model.mixed_precision == "bf16", key="model.mixed_precision")
    yield Setting(
        field="gradient_checkpointing", value=model.gradient_checkpointing, key="model.gradient_checkpointing"
    )
    variables = dict(model.chat_template_kwargs) or None
    yield Setting(field="chat_template_kwargs", value=variables, key="model.chat_template_kwargs")
    own = "TRL evaluates its loss where eval_strategy asks it to; grpoctl asks the held-out problems"
    yield Setting(field="eval_steps", value=spec.evaluation.eval_steps, key="evaluation.eval_steps", differs=own)
    yield Setting(
        field="num_generations_eval",
        value=spec.evaluation.num_generations_eval,
        key="evaluation.num_generations_eval",
    )
    yield Setting(field="save_steps", value=spec.checkpoints.save_steps, key="checkpoints.save_steps")
    yield Setting(
        field="save_total_limit",
        value=spec.checkpoints.save_total_limit,
        key="checkpoints.save_total_limit",
        differs="the best checkpoint is not kept besides",
    )


def _of_sampling(stage: GrpoStage, name: str) -> Iterator[Setting]:
    at = f"stages.{name}"
    yield Setting(field="num_generations", value=stage.num_generations, key=f"{at}.num_generations")
    yield Setting(field="max_completion_length", value=stage.max_completion_length, key=f"{at}.max_completion_length")
    yield _at_start("temperature", stage.temperature, f"{at}.temperature")
    yield Setting(field="top_p", value=stage.top_p, key=f"{at}.top_p")
    yield Setting(field="top_k", value=stage.top_k, key=f"{at}.top_k")
    yield Setting(field="min_p", value=stage.min_p or None, key=f"{at}.min_p")
    for field_ in SAME:
        yield Setting(field=field_, value=getattr(stage, field_), key=f"{at}.{field_}")
    every = stage.ref_model_sync_steps * stage.updates_per_rollout
    yield Setting(field="ref_model_sync_steps", value=every, key=f"{at}.ref_model_sync_steps")
    if stage.importance_sampling_cap is not None:
        key = f"{at}.importance_sampling_cap"
        yield Setting(field="vllm_importance_sampling_mode", value="token_truncate", key=key)
        yield Setting(field="vllm_importance_sampling_clip_max", value=stage.importance_sampling_cap, key=key)


def _of_loss(stage: GrpoStage, name: str) -> Iterator[Setting]:
    at, pair = f"stages.{name}", (stage.surrogate, stage.reduction)
    known = pair in LOSSES
    loss, level = LOSSES.get(pair, ("grpo", "token"))
    differs = "" if known else f"TRL has no {stage.surrogate} with {stage.reduction}: this is another loss"
    yield Setting(field="loss_type", value=loss, key=f"{at}.reduction", differs=differs)
    yield Setting(field="importance_sampling_level", value=level, key=f"{at}.surrogate")
    yield _at_start("epsilon", stage.epsilon, f"{at}.epsilon")
    if stage.surrogate == "cispo":
        yield Setting(field="epsilon_high", value=stage.cispo_max_weight, key=f"{at}.cispo_max_weight")
    elif stage.epsilon_high is not None:
        yield _at_start("epsilon_high", stage.epsilon_high, f"{at}.epsilon_high")
    if stage.surrogate == "dual_clip":
        yield Setting(field="delta", value=stage.dual_clip, key=f"{at}.dual_clip")
    yield Setting(field="sapo_temperature_pos", value=stage.sapo_temperature_pos, key=f"{at}.sapo_temperature_pos")
    yield Setting(field="sapo_temperature_neg", value=stage.sapo_temperature_neg, key=f"{at}.sapo_temperature_neg")
    scale = stage.advantage.scale_rewards
    yield Setting(
        field="scale_rewards",
        value=scale if scale in ("group", "batch", "none") else "group",
        key=f"{at}.advantage.scale_rewards",
        differs="; ".join(advantage_differences(stage.advantage, stage.num_generations)),
    )
    yield _at_start("beta", stage.beta, f"{at}.beta")
    natively = stage.kl_estimator in ("k3", "k3_ratio") or not stage.beta.ever
    yield Setting(
        field="use_bias_correction_kl",
        value=stage.kl_estimator.endswith("_ratio"),
        key=f"{at}.kl_estimator",
        differs="" if natively else f"TRL has no {stage.kl_estimator}: this is k3",
    )
    yield Setting(
        field="mask_truncated_completions",
        value=stage.mask_truncated_completions,
        key=f"{at}.mask_truncated_completions",
        differs="TRL divides by the masked rows, too" if stage.mask_truncated_completions else "",
    )
    yield _at_start("entropy_coef", stage.entropy_coef, f"{at}.entropy_coef")
    if (rule := stage.adaptive_entropy) is not None:
        yield Setting(field="use_adaptive_entropy", value=True, key=f"{at}.adaptive_entropy")
        for field_, own in ADAPTIVE_ENTROPY.items():
            yield Setting(field=field_, value=getattr(rule, own), key=f"{at}.adaptive_entropy.{own}")


ADAPTIVE_ENTROPY = {
    "entropy_target": "target", "entropy_coef_delta": "delta", "entropy_coef_min": "min", "entropy_coef_max": "max",
}  # fmt: skip


def advantage_differences(advantage: AdvantageSpec, k: int) -> list[str]:
    """What plain TRL's advantages have otherwise: they are (r - mean) / (std + 1e-4), std of ddof 1."""
    default = AdvantageSpec()
    odd = [key for key in AdvantageSpec.model_fields if getattr(advantage, key) != getattr(default, key)]
    said = []
    if advantage.scale_rewards not in ("group", "batch", "none"):
        said.append(f"TRL has no scale {advantage.scale_rewards}: this is group")
    if "ddof" in odd and advantage.scale_rewards != "none":
        said.append(f"TRL's std has ddof 1, so its advantages are {math.sqrt((k - 1) / k):.3f} of ours")
    if "eps" in odd and advantage.scale_rewards != "none":
        said.append(f"TRL adds 1e-4 to the std, not {advantage.eps:g}")
    rest = [key for key in odd if key not in ("scale_rewards", "ddof", "eps")]
    if rest:
        said.append(f"TRL has no {', '.join(f'advantage.{key}' for key in rest)}")
    return said


def _of_updates(spec: RunSpec, stage: GrpoStage, name: str) -> Iterator[Setting]:
    at, processes = f"stages.{name}", spec.trainer.processes
    rows, count = micro_rows(stage, processes)
    steps = steps_of(spec, stage)
    yield Setting(field="per_device_train_batch_size", value=rows, key=f"{at}.prompts_per_step")
    yield Setting(field="gradient_accumulation_steps", value=count, key=f"{at}.gradient_accumulation_steps")
    yield Setting(
        field="steps_per_generation",
        value=count * stage.minibatches,
        key=f"{at}.minibatches",
        differs="TRL shuffles rows into them, groups are split" if stage.minibatches > 1 else "",
    )
    yield Setting(field="num_iterations", value=stage.num_iterations, key=f"{at}.num_iterations")
    of_tokens = spec.budget is not None and spec.budget.unit == "tokens"
    yield Setting(
        field="max_steps",
        value=(stage.max_steps if of_tokens else steps) * stage.updates_per_rollout,
        key=f"{at}.max_steps" if spec.budget is None else "budget",
        differs="TRL has no budget in tokens" if of_tokens else "",
    )
    yield Setting(
        field="learning_rate",
        value=stage.learning_rate,
        key=f"{at}.learning_rate",
        differs="TRL makes an update on steps without a signal, too" if stage.skip_without_signal else "",
    )
    shape, differs = stage.lr_scheduler_type, []
    scheduler = _SCHEDULERS[shape]
    if shape == "exponential":
        differs.append("TRL has no exponential one: this is constant")
    if scheduler == "constant" and stage.warmup_steps:
        scheduler = "constant_with_warmup"
    if shape != "constant" and (stage.lr_horizon != stage.max_steps or spec.budget is not None):
        differs.append(f"ends after max_steps here, and {stage.lr_horizon} steps in the spec")
    if stage.lr_clock == "updates":
        differs.append("ticks with steps, which are updates here")
    if stage.lr_plateau is not None:
        differs.append("TRL has no lr_plateau beside it")
    yield Setting(field="lr_scheduler_type", value=scheduler, key=f"{at}.lr_scheduler_type", differs="; ".join(differs))
    yield Setting(field="warmup_steps", value=stage.warmup_steps * stage.updates_per_rollout, key=f"{at}.warmup_steps")
    whole = "TRL leaves out norms and biases" if stage.weight_decay and spec.language_model.lora is None else ""
    yield Setting(field="weight_decay", value=stage.weight_decay, key=f"{at}.weight_decay", differs=whole)
    yield Setting(field="max_grad_norm", value=stage.max_grad_norm, key=f"{at}.max_grad_norm")


def _at_start(name: str, schedule: Schedule, key: str) -> Setting:
    if schedule.constant:
        return Setting(field=name, value=schedule.start, key=key)
    return Setting(field=name, value=schedule.start, key=key, differs="a schedule in the spec; TRL has one number")


# --- A GRPOConfig as a spec ------------------------------------------------------------------------------------------

# TRL 1.16's defaults: of what is mapped all of them, of the others those that are not null, false or empty.
DEFAULTS: Mapping[str, Any] = {
    "seed": 42, "trust_remote_code": False, "bf16": True, "gradient_checkpointing": True,
    "activation_checkpointing": None, "eval_steps": None,
    "num_generations_eval": None, "save_steps": 500, "save_total_limit": None, "num_generations": 8,
    "max_completion_length": 512, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "loss_type": "dapo",
    "importance_sampling_level": "token", "epsilon": 0.2, "epsilon_high": None, "delta": None,
    "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05, "scale_rewards": "group", "beta": 0.0,
    "use_bias_correction_kl": True, "mask_truncated_completions": False, "entropy_coef": 0.0,
    "use_adaptive_entropy": False, "entropy_target": 0.2, "entropy_coef_delta": 0.005, "entropy_coef_min": 0.0,
    "entropy_coef_max": 1.0, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1,
    "steps_per_generation": None, "generation_batch_size": None, "num_iterations": 1, "max_steps": -1,
    "num_train_epochs": 3.0, "learning_rate": 1e-6, "lr_scheduler_type": "linear", "warmup_steps": 0,
    "weight_decay": 0.0, "max_grad_norm": 1.0, "reward_weights": None, "adam_beta1": 0.9, "adam_beta2": 0.999,
    "adam_epsilon": 1e-8, "min_p": None, "repetition_penalty": 1.0, "chat_template_kwargs": None,
    "sync_ref_model": False, "ref_model_mixup_alpha": 0.6, "ref_model_sync_steps": 512,
    "optim": "adamw_torch_fused", "average_tokens_across_devices": True, "logging_strategy": "steps",
    "logging_steps": 10, "log_on_each_node": True, "logging_nan_inf_filter": True,
    "include_num_input_tokens_seen": "no", "log_level": "passive", "log_level_replica": "warning", "report_to": "none",
    "project": "huggingface", "eval_strategy": "no", "per_device_eval_batch_size": 8, "eval_do_concat_batches": True,
    "save_strategy": "steps", "hub_strategy": "every_save", "dataloader_pin_memory": True, "dataloader_in_order": True,
    "train_sampling_strategy": "random", "length_column_name": "length", "ddp_timeout": 1800,
    "skip_memory_metrics": True, "local_rank": -1, "ds3_gather_for_generation": True, "shuffle_dataset": True,
    "pad_to_multiple_of": "auto", "vllm_mode": "colocate", "vllm_model_impl": "vllm", "vllm_server_host": "0.0.0.0",
    "vllm_server_port": 8000, "vllm_server_timeout": 240.0, "vllm_group_port": 51216,
    "vllm_gpu_memory_utilization": 0.3, "vllm_tensor_parallel_size": 1, "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0,
    "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0, "multi_objective_aggregation": "sum_then_normalize",
    "top_entropy_quantile": 1.0, "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask", "vllm_importance_sampling_clip_max": 3.0, "log_multimodal": True,
}  # fmt: skip
# What TRL writes for these where nobody set them.
_WRITTEN: Mapping[str, Any] = {
    "report_to": [], "pad_to_multiple_of": None, "hub_token": "<HUB_TOKEN>", "dataloader_pin_memory": False,
    "accelerator_config": {
        "split_batches": False, "dispatch_batches": None, "even_batches": True, "use_seedable_sampler": True,
        "non_blocking": False, "gradient_accumulation_kwargs": None,
    },
}  # fmt: skip
# Of TRL's command line, beside GRPOConfig's own fields: what says the model and its adapter.
_OF_THE_MODEL = {
    "model_name_or_path": "model.source", "model_revision": "model.revision", "dtype": "model.dtype",
    "torch_dtype": "model.dtype", "lora_r": "model.lora.r", "lora_alpha": "model.lora.lora_alpha",
    "lora_dropout": "model.lora.lora_dropout", "lora_target_modules": "model.lora.target_modules",
}  # fmt: skip
_DAPO = ("clip", "token_mean")  # the surrogate and the reduction of TRL's default loss
_AT_LEAST_ONE = (
    "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation",
    "generation_batch_size", "num_iterations", "ref_model_sync_steps",
)  # fmt: skip
_DTYPE = "float32"  # of the weights, in TRL's ModelConfig and in a GRPOTrainer that is given a name
_LORA = {"lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.05}  # TRL's defaults
_LORA_TARGETS = ("q_proj", "v_proj")  # PEFT's for Llama, Qwen, Mistral and Gemma
_SWITCHES = {"use_peft"}
NOT_SAID = "builtin:tiny"
_TRAIN_PROMPTS = TaskConfig.model_fields["train_prompts"].default


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """What a GRPOConfig is as a spec's tree; `misread` are fields without a place, and what stands in for them;
    `assumed` is what it leaves open.
    """

    tree: dict[str, Any]
    misread: dict[str, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)


class _Reading:
    """The fields of a file, and what was not understood of them."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = dict(given)
        self.misread: dict[str, str] = {}

    def of(self, name: str, *kinds: type) -> Any:
        """The field's value; TRL's default where it is missing, null, or of another kind."""
        value = self.given.get(name)
        if value is None:
            return DEFAULTS[name]
        if isinstance(value, int) and not isinstance(value, bool) and float in kinds:
            value = float(value)
        if isinstance(value, float) and int in kinds and float not in kinds and value.is_integer():
            value = int(value)
        if name in _AT_LEAST_ONE and isinstance(value, int) and value < 1:
            return self.default(name, f"got {value}; allowed: 1 or more")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            return self.default(name, f"got {value!r}, which is no {' or '.join(kind.__name__ for kind in kinds)}")
        return value

    def default(self, name: str, why: str) -> Any:
        """TRL's default, in place of what the field says."""
        value = DEFAULTS[name]
        return self.instead(name, why, value if isinstance(value, str) else json.dumps(value), value)

    def instead(self, name: str, why: str, shown: object, value: Any) -> Any:
        """The value, in place of what the field says; `shown` is what it is called in the note."""
        self.misread[name] = f"{why}; used instead: {shown}"
        return value

    def in_steps(self, name: str, given: int, updates: int, steps: int) -> int:
        """The steps of the spec, each of so many updates, in place of TRL's number, which counts updates."""
        if given != steps * updates:
            why = f"got {given}: no whole number of steps, each of {updates} updates"
            self.instead(name, why, f"{steps * updates}, which are {steps} steps", steps)
        return steps


def spec_of_trl(name: str, given: Mapping[str, Any]) -> Imported:
    """The spec's tree of a GRPOConfig's fields, with `trainer.kind: trl`; what is left out has TRL's default."""
    read = _Reading(given)
    assumed: list[str] = []
    stage = _stage_of(read, assumed)
    lora = _lora_of(read, assumed)
    model = {
        "source": read.given.get("model_name_or_path") or NOT_SAID,
        **({"revision": read.given["model_revision"]} if read.given.get("model_revision") else {}),
        **({"trust_remote_code": True} if read.of("trust_remote_code", bool) else {}),
        "dtype": _dtype_of(read),
        "mixed_precision": "bf16" if read.of("bf16", bool) else "no",
        "gradient_checkpointing": _checkpointing(read),
        **({"chat_template_kwargs": variables} if (variables := read.of("chat_template_kwargs", dict)) else {}),
        **({"lora": lora} if lora else {}),
    }
    if "model_name_or_path" not in read.given:
        assumed.append(f"model.source: the file names no model; {NOT_SAID} stands in for it")
    assumed.append("task: a GRPOConfig names no data and no rewards; the task arithmetic stands in for them")
    args = {}
    for key, value in read.given.items():
        if key not in FIELDS and key not in _OF_THE_MODEL and key not in _SWITCHES:
            near = difflib.get_close_matches(key, [*FIELDS, *_OF_THE_MODEL], n=1)
            read.misread[key] = "no field of TRL 1.16's GRPOConfig" + (f"; did you mean {near[0]}?" if near else "")
        elif key in FIELDS and not _at_default(key, value):
            if FIELDS[key].how == "passed" and (problem := value_problem(key, value)) is not None:
                read.misread[key] = problem
            elif FIELDS[key].how == "passed":
                args[key] = value
            elif FIELDS[key].how == "refused":
                read.misread[key] = FIELDS[key].note
    save = read.of("save_total_limit", int)
    if save is not None and save < 2:
        save = read.instead("save_total_limit", f"got {save}; grpoctl keeps two checkpoints at least", 2, 2)
    evaluated = {
        "eval_steps": _whole(read, "eval_steps"), "num_generations_eval": read.of("num_generations_eval", int),
    }  # fmt: skip
    tree = {
        "name": name,
        "title": "Imported from a GRPOConfig of TRL",
        "seed": read.of("seed", int),
        "model": model,
        "task": {"name": "arithmetic"},
        "trainer": {"kind": "trl", **({"args": args} if args else {})},
        "stages": {"grpo": stage},
        **({"evaluation": set_ones} if (set_ones := {k: v for k, v in evaluated.items() if v}) else {}),
        "checkpoints": {"save_steps": _whole(read, "save_steps"), **({"save_total_limit": save} if save else {})},
    }
    _make_room(tree, stage)
    if read.given.get("reward_weights") is not None:
        read.misread["reward_weights"] = "weights belong to the rewards of a task: task.rewards"
    return Imported(tree=tree, misread=dict(sorted(read.misread.items())), assumed=assumed)


def _make_room(tree: dict[str, Any], stage: dict[str, Any]) -> None:
    """Give the task prompts for a step, and the learning rate the time that its warm-up takes."""
    train = max(_TRAIN_PROMPTS, int(stage["prompts_per_step"]))
    if train > _TRAIN_PROMPTS:
        tree["task"]["train_prompts"] = train
    steps = stage.get("max_steps") or steps_of_epochs(stage["epochs"], train, stage["prompts_per_step"])
    if stage["warmup_steps"] > steps:  # it never ends, in TRL neither
        stage["lr_scheduler_steps"] = stage["warmup_steps"]


def _checkpointing(read: _Reading) -> bool:
    """Under its newer name, which goes before, or the older one; TRL writes both."""
    newer = read.of("activation_checkpointing", bool)
    return bool(read.of("gradient_checkpointing", bool) if newer is None else newer)


def _at_default(name: str, value: Any) -> bool:
    """True where the field says what TRL does without it: a file that TRL wrote has all of them."""
    empty = value in (None, False, "", []) if name not in DEFAULTS else value == DEFAULTS[name]
    return empty or (name in _WRITTEN and value == _WRITTEN[name])


def _whole(read: _Reading, name: str) -> int | None:
    value = read.of(name, int, float)
    if value is not None and (value < 1 or not float(value).is_integer()):
        value = read.default(name, f"got {value:g}, a share of the steps; allowed: a whole number")
    return None if value is None else int(value)


def _dtype_of(read: _Reading) -> str:
    inside = read.given.get("model_init_kwargs")
    named = dict(inside) if isinstance(inside, Mapping) else {}
    dtype = next(
        (value for key in ("dtype", "torch_dtype") if (value := read.given.get(key, named.pop(key, None)))), None
    )
    if "revision" in named:
        read.given.setdefault("model_revision", named.pop("revision"))
    if inside is not None:
        if named:
            rest = ", ".join(sorted(named))
            read.misread["model_init_kwargs"] = f"{rest}: {FIELDS['model_init_kwargs'].note}"
        del read.given["model_init_kwargs"]
    if dtype is None:
        return _DTYPE
    if dtype not in ("auto", "float32", "bfloat16"):
        dtype = read.instead("dtype", f"got {dtype!r}; allowed: auto, float32, bfloat16", _DTYPE, _DTYPE)
    return str(dtype)


def _lora_of(read: _Reading, assumed: list[str]) -> dict[str, Any] | None:
    said = [key for key in read.given if key.startswith("lora_") and key in _OF_THE_MODEL]
    if not said and not read.given.get("use_peft"):
        return None
    targets = read.given.get("lora_target_modules")
    names = " and ".join(_LORA_TARGETS)
    if not targets:
        targets = list(_LORA_TARGETS)
        assumed.append(f"model.lora.target_modules: left to PEFT, which takes {names} of most models, not of all")
    targets = [targets] if isinstance(targets, str) else targets
    if not isinstance(targets, list) or not all(isinstance(name, str) for name in targets):
        why = f"got {targets!r}; allowed: a list of names"
        targets = read.instead("lora_target_modules", why, names, list(_LORA_TARGETS))
    numbers = {}
    for name, default in _LORA.items():
        value = read.given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            value = read.instead(name, f"got {value!r}, which is no number", default, default)
        numbers[name.removeprefix("lora_")] = value
    return {
        "r": int(numbers["r"]), "lora_alpha": float(numbers["alpha"]), "lora_dropout": float(numbers["dropout"]),
        "target_modules": targets,
    }  # fmt: skip


def _stage_of(read: _Reading, assumed: list[str]) -> dict[str, Any]:
    """The GRPO stage of the fields."""
    k, device = read.of("num_generations", int), read.of("per_device_train_batch_size", int)
    count = read.of("gradient_accumulation_steps", int)
    generation, per = read.of("generation_batch_size", int), read.of("steps_per_generation", int)
    per = per if per is not None else generation // device if generation is not None else count
    rows = device * per
    if rows % k:
        why = f"{rows} completions of a step on one process are no groups of {k}; used instead: {max(1, rows // k) * k}"
        read.misread.setdefault("num_generations", why)
    minibatches, prompts = max(1, per // count), max(1, rows // k)
    if per % count or minibatches > prompts:
        why = f"got {per}: no whole number of updates of {count} micro-batches"
        minibatches = read.instead("steps_per_generation", why, "one update of the whole rollout", 1)
    assumed.append("stages.grpo.prompts_per_step: counted for one process; multiply by the number of yours")
    iterations = read.of("num_iterations", int)
    updates = iterations * minibatches
    stage: dict[str, Any] = {
        **_length_of(read, updates, assumed),
        "num_generations": k,
        "prompts_per_step": prompts,
        "max_completion_length": read.of("max_completion_length", int),
        "temperature": read.of("temperature", float),
        "top_p": read.of("top_p", float),
        "top_k": read.of("top_k", int),
        "learning_rate": read.of("learning_rate", float),
        **_rate_of(read, updates),
        "weight_decay": read.of("weight_decay", float),
        "max_grad_norm": read.of("max_grad_norm", float),
        "gradient_accumulation_steps": count,
        **_loss_of(read),
        **_advantage_of(read),
        "beta": read.of("beta", float),
        "kl_estimator": "k3_ratio" if read.of("use_bias_correction_kl", bool) else "k3",
        "entropy_coef": read.of("entropy_coef", float),
        "mask_truncated_completions": read.of("mask_truncated_completions", bool),
        "num_iterations": iterations,
        "minibatches": minibatches,
        "skip_without_signal": False,  # TRL updates on every step
    }
    if read.of("use_adaptive_entropy", bool):
        stage["adaptive_entropy"] = {own: read.of(field_, float) for field_, own in ADAPTIVE_ENTROPY.items()}
    if (floor := read.of("min_p", float)) is not None:
        stage["min_p"] = floor
    for field_ in SAME:
        if read.given.get(field_) is not None:
            stage[field_] = read.of(field_, type(DEFAULTS[field_]))
    if stage.get("optim", "adamw_torch") not in OPTIMISERS:
        own = GrpoStage.model_fields["optim"].default
        why = f"got {stage['optim']}; allowed: {', '.join(OPTIMISERS)}"
        stage["optim"] = read.instead("optim", why, own, own)
    if "ref_model_sync_steps" in read.given:
        every = read.of("ref_model_sync_steps", int)
        stage["ref_model_sync_steps"] = read.in_steps("ref_model_sync_steps", every, updates, max(1, every // updates))
    return stage


def _length_of(read: _Reading, updates: int, assumed: list[str]) -> dict[str, Any]:
    steps = read.of("max_steps", int)
    if steps > 0:
        return {"max_steps": read.in_steps("max_steps", steps, updates, math.ceil(steps / updates))}
    epochs = read.of("num_train_epochs", float)
    assumed.append("stages.grpo.max_steps: by num_train_epochs of task.train_prompts")
    return {"epochs": epochs}


def _rate_of(read: _Reading, updates: int) -> dict[str, Any]:
    given, warmup = (
        str(read.given.get("lr_scheduler_type", DEFAULTS["lr_scheduler_type"])),
        read.of("warmup_steps", float),
    )
    known = {"constant": "constant", "constant_with_warmup": "constant", "linear": "linear", "cosine": "cosine"}
    if given not in known:
        given = read.default("lr_scheduler_type", f"got {given!r}; allowed: {', '.join(known)}")
    if 0 < warmup < 1:
        warmup = read.default("warmup_steps", f"got {warmup:g}, a share of the steps; allowed: a whole number")
    if given == "constant":
        warmup = 0  # TRL's has none
    steps = read.in_steps("warmup_steps", int(warmup), updates, int(warmup) // updates)
    return {"lr_scheduler_type": known[given], "warmup_steps": steps}


def _loss_of(read: _Reading) -> dict[str, Any]:
    loss, level = read.of("loss_type", str), read.of("importance_sampling_level", str)
    delta = read.of("delta", float)
    if loss == "bnpo":
        why = "bnpo: the mean is over the step's tokens here, over each micro-batch's in TRL"
        surrogate, reduction = read.instead("loss_type", why, "dapo", _DAPO)
    else:
        pairs = [pair for pair, theirs in LOSSES.items() if theirs == (loss, level) and pair[0] != "dual_clip"]
        if pairs:
            surrogate, reduction = pairs[0]
        else:
            why = f"got {loss} with importance_sampling_level {level}, which no surrogate is"
            surrogate, reduction = read.instead("loss_type", why, "dapo", _DAPO)
    high, keys = read.of("epsilon_high", float), {}
    if surrogate == "cispo":
        keys = {"cispo_max_weight": high if high is not None else read.of("epsilon", float)}
    elif high is not None:
        keys = {"epsilon_high": high}
    if delta is not None and surrogate == "clip":
        surrogate, keys = "dual_clip", {**keys, "dual_clip": delta}
    elif delta is not None:
        read.misread["delta"] = f"the surrogate {surrogate} has no such bound"
    sapo = {name: read.of(name, float) for name in ("sapo_temperature_pos", "sapo_temperature_neg")}
    return {"surrogate": surrogate, "epsilon": read.of("epsilon", float), **keys, **sapo, "reduction": reduction}


def _advantage_of(read: _Reading) -> dict[str, Any]:
    scale = read.of("scale_rewards", str, bool)
    scale = {True: "group", False: "none"}.get(scale, scale)
    if scale not in ("group", "batch", "none"):
        scale = read.default("scale_rewards", f"got {scale!r}; allowed: group, batch, none")
    return {"advantage": {"scale_rewards": scale, "ddof": 1, "eps": TRL_EPS}}
