"""What every field of TRL's GRPOConfig (TrainingArguments' too) is to a spec, and every key of a spec to TRL.

FIELDS is of TRL 1.16 (77 fields of its own, 114 of transformers 5): mapped from a key of ours, passed on by name
(`trainer.args.NAME`), or refused, with the reason. KEYS is the other direction: mapped to a field, done by grpoctl
itself around TRL's trainer, or refused where it is set away from its default. VERL has verl's names of the same
settings. docs/trl.md is written from these tables, and the hints for unknown keys come from them. No TRL is imported;
how values are converted stands in settings.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

How = Literal["mapped", "passed", "refused"]
HowOfOurs = Literal["mapped", "grpoctl", "refused"]
STAGE = "stages.*"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrlField:
    """A field of TRL's configuration: `key` is ours that it is mapped from, `note` the conversion or the reason.

    `takes`: of a field that is passed on, the kinds of value that it has (values.py has their words).
    """

    name: str
    how: How
    key: str = ""
    note: str = ""
    takes: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnKey:
    """A key of a spec, or all below it: TRL's fields that it is mapped to, and what TRL lacks or grpoctl does."""

    key: str
    how: HowOfOurs
    fields: tuple[str, ...] = ()
    note: str = ""


_CAP = f"or {STAGE}.importance_sampling_cap"

# name | how | key of ours, or of what is passed on the values it takes | note
_GRPO = f"""
model_init_kwargs | refused | | grpoctl loads the model: model.source, model.revision and model.dtype say which
trust_remote_code | mapped | model.trust_remote_code |
router_aux_loss_coef | passed | number>=0, null |
disable_dropout | passed | bool |
cast_lm_head_to_fp32 | passed | bool |
num_generations | mapped | {STAGE}.num_generations |
num_generations_eval | mapped | evaluation.num_generations_eval | grpoctl evaluates by itself
max_completion_length | mapped | {STAGE}.max_completion_length |
ds3_gather_for_generation | passed | bool |
shuffle_dataset | refused | | prompts come in grpoctl's order, which the seed decides
pad_to_multiple_of | passed | int>=1, auto, null |
generation_batch_size | mapped | {STAGE}.prompts_per_step | x num_generations; said by steps_per_generation
steps_per_generation | mapped | {STAGE}.minibatches | minibatches x gradient_accumulation_steps
temperature | mapped | {STAGE}.temperature |
top_p | mapped | {STAGE}.top_p |
top_k | mapped | {STAGE}.top_k |
min_p | mapped | {STAGE}.min_p | 0 is null
generation_kwargs | passed | mapping, null |
chat_template_kwargs | mapped | model.chat_template_kwargs |
repetition_penalty | mapped | {STAGE}.repetition_penalty |
cache_implementation | passed | static, offloaded_static, dynamic, offloaded, quantized, null |
use_vllm | passed | bool |
vllm_mode | passed | server, colocate |
vllm_model_impl | passed | vllm, transformers, auto |
vllm_enable_sleep_mode | passed | bool |
vllm_structured_outputs_regex | passed | text, null |
vllm_server_base_url | passed | text, null |
vllm_server_host | passed | text |
vllm_server_port | passed | int 1..65535 |
vllm_server_timeout | passed | number>=0 |
vllm_group_port | passed | int 1..65535 |
vllm_gpu_memory_utilization | passed | number 0..1 |
vllm_max_model_length | passed | int>=1, null |
vllm_tensor_parallel_size | passed | int>=1 |
beta | mapped | {STAGE}.beta |
num_iterations | mapped | {STAGE}.num_iterations |
epsilon | mapped | {STAGE}.epsilon |
delta | mapped | {STAGE}.dual_clip | with surrogate: dual_clip
epsilon_high | mapped | {STAGE}.epsilon_high | with surrogate: cispo it is cispo_max_weight
sapo_temperature_neg | mapped | {STAGE}.sapo_temperature_neg |
sapo_temperature_pos | mapped | {STAGE}.sapo_temperature_pos |
vespo_k_pos | refused | | acts with loss_type: vespo alone, which no surrogate of a spec is
vespo_lambda_pos | refused | | acts with loss_type: vespo alone, which no surrogate of a spec is
vespo_k_neg | refused | | acts with loss_type: vespo alone, which no surrogate of a spec is
vespo_lambda_neg | refused | | acts with loss_type: vespo alone, which no surrogate of a spec is
importance_sampling_level | mapped | {STAGE}.surrogate | sequence: gspo
reward_weights | mapped | task.rewards | the weights of a task of your own
multi_objective_aggregation | refused | | advantages are of the weighted sum of the rewards
scale_rewards | mapped | {STAGE}.advantage.scale_rewards |
loss_type | mapped | {STAGE}.reduction | with the surrogate
mask_truncated_completions | mapped | {STAGE}.mask_truncated_completions |
sync_ref_model | mapped | {STAGE}.sync_ref_model |
ref_model_mixup_alpha | mapped | {STAGE}.ref_model_mixup_alpha |
ref_model_sync_steps | mapped | {STAGE}.ref_model_sync_steps | x num_iterations x minibatches: TRL counts updates
top_entropy_quantile | passed | number 0..1 |
entropy_coef | mapped | {STAGE}.entropy_coef |
use_adaptive_entropy | mapped | {STAGE}.adaptive_entropy |
entropy_coef_min | mapped | {STAGE}.adaptive_entropy.min |
entropy_coef_max | mapped | {STAGE}.adaptive_entropy.max |
entropy_coef_delta | mapped | {STAGE}.adaptive_entropy.delta |
entropy_target | mapped | {STAGE}.adaptive_entropy.target |
max_tool_calling_iterations | passed | int>=0, null |
vllm_importance_sampling_correction | passed | bool |
vllm_importance_sampling_mode | passed | token_truncate, token_mask, sequence_truncate, sequence_mask | {_CAP}
vllm_importance_sampling_clip_max | passed | number>=0, null | {_CAP}
vllm_importance_sampling_clip_min | passed | number>=0, null |
off_policy_mask_threshold | passed | number, null |
use_bias_correction_kl | mapped | {STAGE}.kl_estimator | true: k3_ratio, false: k3
log_completions | refused | | samples.jsonl has every completion
log_multimodal | passed | bool |
num_completions_to_print | refused | | samples.jsonl has every completion
log_unique_prompts | refused | | samples.jsonl has every completion
log_completions_hub_repo | refused | | samples.jsonl has every completion
use_transformers_continuous_batching | passed | bool |
transformers_continuous_batching_config | passed | mapping, null |
use_transformers_paged | refused | | given up by TRL; set trainer.args.use_transformers_continuous_batching
vllm_importance_sampling_cap | refused | | given up by TRL; set trainer.args.vllm_importance_sampling_clip_max
"""

_EVALUATES = "grpoctl evaluates by itself: evaluation.eval_steps says when"
_SAVES = "grpoctl says when a checkpoint is due: checkpoints.save_steps"
_RECORDS = "grpoctl records each step"
_ORDERS = "prompts come in grpoctl's order, which the seed decides"
_TRACKS = "grpoctl copies runs to MLflow"

_TRANSFORMERS = f"""
output_dir | refused | | grpoctl makes the run's folder
per_device_train_batch_size | mapped | {STAGE}.prompts_per_step | rows of a micro-batch on each process
num_train_epochs | mapped | {STAGE}.epochs | by max_steps
max_steps | mapped | {STAGE}.max_steps | x num_iterations x minibatches, of which a step of ours has so many updates
learning_rate | mapped | {STAGE}.learning_rate |
lr_scheduler_type | mapped | {STAGE}.lr_scheduler_type |
lr_scheduler_kwargs | refused | | the rate follows {STAGE}.lr_scheduler_type, lr_scheduler_steps and warmup_steps
warmup_steps | mapped | {STAGE}.warmup_steps |
optim | mapped | {STAGE}.optim |
optim_args | passed | text, null |
weight_decay | mapped | {STAGE}.weight_decay |
adam_beta1 | mapped | {STAGE}.adam_beta1 |
adam_beta2 | mapped | {STAGE}.adam_beta2 |
adam_epsilon | mapped | {STAGE}.adam_epsilon |
optim_target_modules | passed | text, texts, null |
gradient_accumulation_steps | mapped | {STAGE}.gradient_accumulation_steps |
average_tokens_across_devices | passed | bool |
max_grad_norm | mapped | {STAGE}.max_grad_norm |
label_smoothing_factor | refused | | a completion is no label: GRPO has none
bf16 | mapped | model.mixed_precision | bf16: true
fp16 | refused | | model.mixed_precision is no or bf16: the limits of the log-prob gap know no others
bf16_full_eval | refused | | {_EVALUATES}
fp16_full_eval | refused | | {_EVALUATES}
tf32 | passed | bool, null |
activation_checkpointing | mapped | model.gradient_checkpointing | the newer name
activation_checkpointing_kwargs | passed | mapping, null |
gradient_checkpointing | mapped | model.gradient_checkpointing |
gradient_checkpointing_kwargs | passed | mapping, null |
torch_compile | passed | bool |
torch_compile_backend | passed | text, null |
torch_compile_mode | passed | default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs, null |
use_liger_kernel | passed | bool |
liger_kernel_config | passed | mapping, null |
use_cache | passed | bool |
neftune_noise_alpha | passed | number, null |
torch_empty_cache_steps | passed | int>=1, null |
auto_find_batch_size | refused | | TRL refuses it for GRPO
logging_strategy | refused | | {_RECORDS}
logging_steps | refused | | {_RECORDS}
logging_first_step | refused | | {_RECORDS}
log_on_each_node | passed | bool |
logging_nan_inf_filter | refused | | guards must see what is not finite
include_num_input_tokens_seen | passed | bool, all, non_padding, no |
log_level | passed | detail, debug, info, warning, error, critical, passive |
log_level_replica | passed | detail, debug, info, warning, error, critical, passive |
disable_tqdm | refused | | grpoctl shows the progress
report_to | refused | | {_TRACKS}
run_name | refused | | {_TRACKS}
project | refused | | {_TRACKS}
trackio_space_id | refused | | {_TRACKS}
trackio_bucket_id | refused | | {_TRACKS}
trackio_static_space_id | refused | | {_TRACKS}
eval_strategy | refused | | {_EVALUATES}
eval_steps | mapped | evaluation.eval_steps | grpoctl evaluates by itself
eval_delay | refused | | {_EVALUATES}
per_device_eval_batch_size | refused | | {_EVALUATES}
prediction_loss_only | refused | | {_EVALUATES}
eval_on_start | refused | | grpoctl always evaluates before the first step
eval_do_concat_batches | refused | | {_EVALUATES}
eval_use_gather_object | refused | | {_EVALUATES}
eval_accumulation_steps | refused | | {_EVALUATES}
include_for_metrics | refused | | {_EVALUATES}
batch_eval_metrics | refused | | {_EVALUATES}
save_only_model | refused | | a run that goes on needs its optimiser
save_strategy | refused | | {_SAVES}
save_steps | mapped | checkpoints.save_steps |
save_on_each_node | passed | bool |
save_total_limit | mapped | checkpoints.save_total_limit | the best one is kept besides
enable_jit_checkpoint | refused | | {_SAVES}
push_to_hub | passed | bool |
hub_token | refused | | a secret belongs into the environment: HF_TOKEN
hub_private_repo | passed | bool, null |
hub_model_id | passed | text, null |
hub_strategy | passed | end, every_save, checkpoint, all_checkpoints |
hub_always_push | passed | bool |
hub_revision | passed | text, null |
load_best_model_at_end | refused | | grpoctl exports the best evaluation's weights
metric_for_best_model | refused | | the best evaluation is that of eval/reward
greater_is_better | refused | | the best evaluation is that of eval/reward
ignore_data_skip | refused | | a run that goes on must see the prompts it had not seen
restore_callback_states_from_checkpoint | refused | | what a run had reached stands in its metrics.jsonl
full_determinism | passed | bool |
seed | mapped | seed |
data_seed | refused | | {_ORDERS}
use_cpu | passed | bool |
accelerator_config | passed | mapping, file, null |
parallelism_config | refused | | accelerate makes it: trainer.accelerate_config has these settings
dataloader_drop_last | passed | bool |
dataloader_num_workers | passed | int>=0 |
dataloader_pin_memory | passed | bool |
dataloader_persistent_workers | passed | bool |
dataloader_prefetch_factor | passed | int>=1, null |
dataloader_multiprocessing_context | passed | fork, spawn, forkserver, null |
dataloader_in_order | passed | bool |
remove_unused_columns | refused | | the prompts' ids are a column of the data
label_names | refused | | a completion is no label: GRPO has none
train_sampling_strategy | refused | | {_ORDERS}
length_column_name | refused | | {_ORDERS}
ddp_find_unused_parameters | passed | bool, null |
ddp_bucket_cap_mb | passed | int>=1, null |
ddp_broadcast_buffers | passed | bool, null |
ddp_static_graph | passed | bool, null |
ddp_backend | passed | nccl, gloo, mpi, xccl, hccl, cncl, mccl, null |
ddp_timeout | passed | int>=1 |
fsdp | passed | bool, text, null | or in trainer.accelerate_config
fsdp_config | passed | mapping, file, null | or in trainer.accelerate_config
deepspeed | passed | mapping, file, null | or in trainer.accelerate_config
debug | passed | text, texts |
skip_memory_metrics | passed | bool |
do_train | refused | | a run trains
do_eval | refused | | {_EVALUATES}
do_predict | refused | | {_EVALUATES}
resume_from_checkpoint | refused | | grpoctl run --resume goes on with a run
local_rank | refused | | accelerate launch says which process is which
"""

# Fields whose name, value and meaning are the same under a key of the stage.
SAME = (
    "repetition_penalty", "sync_ref_model", "ref_model_mixup_alpha", "optim", "adam_beta1", "adam_beta2",
    "adam_epsilon",
)  # fmt: skip

_ADAPTIVE = "entropy_coef_min, entropy_coef_max, entropy_coef_delta, entropy_target"

_KEYS = f"""
name | grpoctl | | the run's own
revision | grpoctl | | the run's own
title | grpoctl | | the run's own
question | grpoctl | | the run's own
source | grpoctl | | the run's own
profile | grpoctl | | the run's own
expects | grpoctl | | the run's own
recorded | grpoctl | | the run's own
seed | mapped | seed | and the adapter's start, the order of the prompts, the draws of evaluations
policy | grpoctl | | TRL trains a causal language model: kind: lm
model.source | grpoctl | | loads the model and its tokenizer
model.revision | grpoctl | | loads the model
model.trust_remote_code | mapped | trust_remote_code |
model.dtype | grpoctl | | loads the model
model.mixed_precision | mapped | bf16 |
model.load_in_4bit | grpoctl | | loads the model
model.lora | grpoctl | | puts the adapter on, by peft
model.trainable | grpoctl | | freezes the others
model.gradient_checkpointing | mapped | gradient_checkpointing |
model.chat_template_kwargs | mapped | chat_template_kwargs |
task | grpoctl | | gives the prompts and scores the completions: the same data and reward functions
trainer | grpoctl | |
init_from | refused | | TRL's trainer starts from model.source: export that run's weights and name their folder
budget | grpoctl | | ends the run when it is spent
evaluation | grpoctl | eval_steps, num_generations_eval | asks held-out problems by its own sampler on TRL's model
checkpoints.save_steps | mapped | save_steps |
checkpoints.save_total_limit | mapped | save_total_limit |
export | grpoctl | | writes the weights of the best evaluation
early_stopping | grpoctl | |
guards | grpoctl | | look at every step, and end TRL's process
faults | refused | | mistakes are injected into grpoctl's own trainer alone
{STAGE}.kind | refused | | GRPOTrainer has one GRPO stage; leave the others out (stages.NAME=null)
{STAGE}.method | grpoctl | | names a point of the keys below
{STAGE}.max_steps | mapped | max_steps |
{STAGE}.epochs | mapped | max_steps |
{STAGE}.prompts_per_step | mapped | per_device_train_batch_size, generation_batch_size |
{STAGE}.max_completion_length | mapped | max_completion_length |
{STAGE}.learning_rate | mapped | learning_rate |
{STAGE}.lr_scheduler_type | mapped | lr_scheduler_type | each step's rate is grpoctl's
{STAGE}.lr_scheduler_steps | grpoctl | | each step's rate is grpoctl's
{STAGE}.lr_clock | grpoctl | | each step's rate is grpoctl's
{STAGE}.lr_plateau | grpoctl | | each step's rate is grpoctl's
{STAGE}.warmup_steps | mapped | warmup_steps |
{STAGE}.weight_decay | mapped | weight_decay | TRL leaves norms and biases out, which an adapter does not train
{STAGE}.max_grad_norm | mapped | max_grad_norm |
{STAGE}.gradient_accumulation_steps | mapped | gradient_accumulation_steps |
{STAGE}.loss_weights | refused | | TRL has no losses of the policy's own
{STAGE}.early_stopping | refused | | there is one stage; set early_stopping of the run
{STAGE}.num_generations | mapped | num_generations |
{STAGE}.temperature | mapped | temperature | a schedule is followed step by step
{STAGE}.top_p | mapped | top_p |
{STAGE}.top_k | mapped | top_k |
{STAGE}.min_p | mapped | min_p |
{STAGE}.repetition_penalty | mapped | repetition_penalty |
{STAGE}.stop_strings | refused | | GRPOConfig has no stop strings: TRL's generate call gets no tokenizer
{STAGE}.optim | mapped | optim |
{STAGE}.adam_beta1 | mapped | adam_beta1 |
{STAGE}.adam_beta2 | mapped | adam_beta2 |
{STAGE}.adam_epsilon | mapped | adam_epsilon |
{STAGE}.sync_ref_model | mapped | sync_ref_model |
{STAGE}.ref_model_mixup_alpha | mapped | ref_model_mixup_alpha |
{STAGE}.ref_model_sync_steps | mapped | ref_model_sync_steps | TRL counts updates
{STAGE}.advantage | mapped | scale_rewards | advantages are grpoctl's, computed of the rewards that TRL gathered
{STAGE}.entropy_weighting | refused | | TRL has no entropy-weighted rewards: no gtpo, no grpo_s
{STAGE}.entropy_share | grpoctl | | acts with entropy_weighting alone
{STAGE}.surrogate | mapped | loss_type, importance_sampling_level |
{STAGE}.epsilon | mapped | epsilon | a schedule is followed step by step
{STAGE}.epsilon_high | mapped | epsilon_high | a schedule is followed step by step
{STAGE}.dual_clip | mapped | delta |
{STAGE}.cispo_max_weight | mapped | epsilon_high |
{STAGE}.sapo_temperature_pos | mapped | sapo_temperature_pos |
{STAGE}.sapo_temperature_neg | mapped | sapo_temperature_neg |
{STAGE}.dppo_delta | grpoctl | | acts with surrogate: dppo alone, which TRL has not
{STAGE}.reduction | mapped | loss_type |
{STAGE}.beta | mapped | beta | a schedule is followed step by step
{STAGE}.kl_estimator | mapped | use_bias_correction_kl | k3, k3_ratio; grpoctl adds k2 and k1_ratio to its loss
{STAGE}.kl_in | refused | | TRL has the KL in the loss alone
{STAGE}.adaptive_beta | refused | | TRL's beta does not follow the KL
{STAGE}.entropy_coef | mapped | entropy_coef |
{STAGE}.adaptive_entropy | mapped | use_adaptive_entropy, {_ADAPTIVE} |
{STAGE}.policy_weight | refused | | TRL's policy term has the weight 1
{STAGE}.supervised_weight | refused | | TRL has no supervised term beside the policy's
{STAGE}.consistency_weight | refused | | TRL has no consistency loss
{STAGE}.loss_rows | refused | | TRL has no losses of the policy's own
{STAGE}.dynamic_sampling | refused | | TRL has no dynamic sampling
{STAGE}.overlong | grpoctl | | taken off the reward, as TRL's get_soft_overlong_punishment does
{STAGE}.mask_truncated_completions | mapped | mask_truncated_completions | TRL divides by masked rows, too
{STAGE}.positive_reward | refused | | TRL learns from every group
{STAGE}.keep_candidates | refused | | TRL learns from every completion of a group
{STAGE}.candidate_choice | refused | | TRL learns from every completion of a group
{STAGE}.groups | refused | | TRL samples what it learns from; offline outputs are none
{STAGE}.old_policy | refused | | TRL's old policy is the one that sampled
{STAGE}.num_iterations | mapped | num_iterations |
{STAGE}.minibatches | mapped | steps_per_generation | TRL shuffles rows into minibatches, grpoctl keeps groups whole
{STAGE}.importance_sampling_cap | mapped | vllm_importance_sampling_clip_max | with trainer.args.use_vllm, by token
{STAGE}.tau | refused | | belongs to a stage of kind rce, which TRL has not
{STAGE}.skip_without_signal | grpoctl | | takes the gradient away before the optimiser sees it
"""

VERL_VERSION = "0.8.0.dev of 2026-01-29"  # commit b178a3cd, with whose ppo_trainer.yaml the names were compared
# Our key -> verl's (main_ppo's overrides). The first name is the one that is exported; the others are hints alone.
VERL: Mapping[str, tuple[str, ...]] = {
    "model.source": ("actor_rollout_ref.model.path",),
    "model.gradient_checkpointing": ("actor_rollout_ref.model.enable_gradient_checkpointing",),
    "model.lora.r": ("actor_rollout_ref.model.lora_rank",),
    "model.lora.lora_alpha": ("actor_rollout_ref.model.lora_alpha",),
    "model.lora.target_modules": ("actor_rollout_ref.model.target_modules",),
    f"{STAGE}.prompts_per_step": ("data.train_batch_size",),
    f"{STAGE}.max_completion_length": ("data.max_response_length",),
    f"{STAGE}.num_generations": ("actor_rollout_ref.rollout.n",),
    f"{STAGE}.temperature": ("actor_rollout_ref.rollout.temperature",),
    f"{STAGE}.top_p": ("actor_rollout_ref.rollout.top_p",),
    f"{STAGE}.top_k": ("actor_rollout_ref.rollout.top_k",),
    f"{STAGE}.learning_rate": ("actor_rollout_ref.actor.optim.lr",),
    f"{STAGE}.lr_scheduler_type": ("actor_rollout_ref.actor.optim.lr_scheduler_type", "lr_warmup_style"),
    f"{STAGE}.lr_scheduler_steps": ("actor_rollout_ref.actor.optim.total_training_steps",),
    f"{STAGE}.warmup_steps": ("actor_rollout_ref.actor.optim.lr_warmup_steps", "lr_warmup_steps_ratio"),
    f"{STAGE}.weight_decay": ("actor_rollout_ref.actor.optim.weight_decay",),
    f"{STAGE}.max_grad_norm": ("actor_rollout_ref.actor.grad_clip",),
    f"{STAGE}.minibatches": ("actor_rollout_ref.actor.ppo_mini_batch_size",),
    f"{STAGE}.gradient_accumulation_steps": ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",),
    f"{STAGE}.num_iterations": ("actor_rollout_ref.actor.ppo_epochs",),
    f"{STAGE}.epsilon": ("actor_rollout_ref.actor.clip_ratio_low", "clip_ratio"),
    f"{STAGE}.epsilon_high": ("actor_rollout_ref.actor.clip_ratio_high",),
    f"{STAGE}.dual_clip": ("actor_rollout_ref.actor.clip_ratio_c",),
    f"{STAGE}.surrogate": ("actor_rollout_ref.actor.policy_loss.loss_mode",),
    f"{STAGE}.reduction": ("actor_rollout_ref.actor.loss_agg_mode",),
    f"{STAGE}.beta": ("actor_rollout_ref.actor.kl_loss_coef",),
    f"{STAGE}.kl_estimator": ("actor_rollout_ref.actor.kl_loss_type", "kl_penalty"),
    f"{STAGE}.kl_in": ("actor_rollout_ref.actor.use_kl_loss", "use_kl_in_reward"),
    f"{STAGE}.entropy_coef": ("actor_rollout_ref.actor.entropy_coeff",),
    f"{STAGE}.method": ("algorithm.adv_estimator",),
    f"{STAGE}.advantage.scale_rewards": ("algorithm.norm_adv_by_std_in_grpo",),
    f"{STAGE}.dynamic_sampling": ("filter_groups",),
    f"{STAGE}.dynamic_sampling.max_attempts": ("max_num_gen_batches",),
    f"{STAGE}.overlong": ("overlong_buffer",),
    f"{STAGE}.max_steps": ("trainer.total_training_steps",),
    f"{STAGE}.epochs": ("trainer.total_epochs",),
    "evaluation.eval_steps": ("trainer.test_freq",),
    "evaluation.num_generations_eval": ("actor_rollout_ref.rollout.val_kwargs.n", "val_n"),
    "evaluation.temperature": ("actor_rollout_ref.rollout.val_kwargs.temperature",),
    "checkpoints.save_steps": ("trainer.save_freq",),
    "checkpoints.save_total_limit": ("trainer.max_actor_ckpt_to_keep",),
    "task.data": ("train_files",),
    "task.eval_data": ("val_files",),
    "task.rewards": ("custom_reward_function",),
}


def _cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|", 3)] for line in table.strip().splitlines()]


def _field(name: str, how: str, key: str, note: str) -> TrlField:
    assert how in ("mapped", "passed", "refused"), name
    known = {"takes": key} if how == "passed" else {"key": key}
    return TrlField(name=name, how=how, note=note, **known)  # type: ignore[arg-type]


OWN_FIELDS = {cells[0]: _field(*cells) for cells in _cells(_GRPO)}
INHERITED_FIELDS = {cells[0]: _field(*cells) for cells in _cells(_TRANSFORMERS)}
FIELDS: Mapping[str, TrlField] = {**INHERITED_FIELDS, **OWN_FIELDS}


def _own_keys() -> dict[str, OwnKey]:
    keys = {}
    for key, how, names, note in _cells(_KEYS):
        assert how in ("mapped", "grpoctl", "refused"), key
        fields = tuple(name.strip() for name in names.split(",") if name.strip())
        keys[key] = OwnKey(key=key, how=how, fields=fields, note=note)  # type: ignore[arg-type]
    return keys


KEYS: Mapping[str, OwnKey] = _own_keys()
TRAINER_ARGUMENTS = ("tools", "environment_factory", "rollout_func")  # GRPOTrainer's own, by reference: ./tools.py:f


def own_key(key: str) -> OwnKey | None:
    """The row of a dotted key, or of the nearest part around it; a stage's name may be anything."""
    parts = key.split(".")
    if parts[0] == "stages" and len(parts) > 1:
        parts[1] = "*"
    rows = (KEYS.get(".".join(parts[:length])) for length in range(len(parts), 0, -1))
    return next((row for row in rows if row is not None), None)


def names_elsewhere() -> dict[str, str]:
    """What TRL and verl call a key of ours -> that key, as the end of a dotted key, but for names that we have, too."""
    ours = {key.rpartition(".")[2] for key in (*KEYS, *VERL)} | {"path"}  # where a task's file is
    known: dict[str, str] = {}
    for key, names in VERL.items():
        for name in names:
            known.setdefault(name.rpartition(".")[2], key.removeprefix(f"{STAGE}."))
    known |= {field.name: field.key.removeprefix(f"{STAGE}.") for field in FIELDS.values() if field.how == "mapped"}
    return {name: key for name, key in known.items() if name not in ours}


def key_of_verl(name: str) -> str | None:
    """Our key, as the end of a dotted key, of a whole key of verl's; None for what is none."""
    key = next((key for key, names in VERL.items() if name == names[0]), None)
    return None if key is None else key.removeprefix(f"{STAGE}.")


def hint_of_field(name: str) -> str | None:
    """What to say of a field of TRL's that is no key of ours: where it goes, or why nowhere; None for others."""
    field = FIELDS.get(name)
    if field is None or field.how == "mapped":
        return None
    if field.how == "passed":
        return f"{name} is a setting of TRL's trainer: with trainer.kind: trl it is trainer.args.{name}"
    return f"{name} is a setting of TRL's trainer that no spec has: {field.note}"
