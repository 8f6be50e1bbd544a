"""What other projects call our keys: the seeds, TRL, verl, OpenRLHF. Used in error messages only, never accepted.

Accepting them would give one setting two names, and a spec two hashes.
"""

from __future__ import annotations

# our key, as the end of a dotted key -> what it is called elsewhere
_ELSEWHERE: dict[str, str] = {
    "beta": "kl_loss_coef kl_loss_coeff kl_beta grpo_beta_kl beta_kl grpo_kl_beta kl_coef kl_coeff init_kl_coef "
    "kl_penalty_coef kl_penalty_weight kl_weight kl_ctrl",
    "kl_estimator": "kl_loss_type kl_type kl_penalty use_bias_correction_kl",
    "num_generations": "num_return_sequences_in_group num_return_sequences grpo_group group_size n k rollout_n "
    "n_samples_per_prompt num_samples_per_prompt num_sequences num_beams grpo_group_size",
    "prompts_per_step": "rollout_batch_size per_device_train_batch_size train_batch_size batch_size b "
    "generation_batch_size num_prompts_per_step num_unique_prompts_rollout",
    "learning_rate": "lr grpo_lr rl_lr initial_lr base_lr actor_learning_rate",
    "lr_scheduler_type": "lr_scheduler scheduler scheduler_type lr_warmup_style",
    "lr_scheduler_steps": "num_training_steps total_training_steps scheduler_steps lr_decay_steps t_max",
    "warmup_steps": "lr_warmup_steps num_warmup_steps lr_warmup_steps_ratio warmup_ratio",
    "epsilon": "clip_ratio clip_range cliprange grpo_clip_range clip_eps clip_epsilon ppo_clip eps_clip clip_ratio_low "
    "clip_range_low eps_clip_low epsilon_low",
    "epsilon_high": "clip_ratio_high clip_range_high cliprange_high eps_clip_high clip_higher",
    "max_completion_length": "max_new_tokens response_length max_response_length response_max_length max_tokens "
    "generate_max_len max_output_length",
    "keep_candidates": "grpo_early_top_k grpo_late_top_k",
    "positive_reward": "require_positive_query",
    "max_steps": "total_steps num_steps train_steps training_steps num_training_iterations",
    "max_grad_norm": "grad_clip clip_grad clip_grad_norm gradient_clip grpo_max_grad_norm",
    "weight_decay": "wd",
    "gradient_accumulation_steps": "grad_accum grad_accum_steps gradient_accumulation accumulate_grad_batches",
    "skip_without_signal": "filter_zero_std_samples",
    "dynamic_sampling": "filter_groups use_dynamic_sampling active_sampling dynamic_sample",
    "dynamic_sampling.max_attempts": "max_num_gen_batches dynamic_sampling_max_gen_batches max_resample_times",
    "overlong": "overlong_buffer soft_overlong_punishment",
    "overlong.buffer": "overlong_buffer_len soft_cache_length",
    "mask_truncated_completions": "overlong_filter overlong_filtering mask_truncated",
    "num_iterations": "ppo_epochs num_ppo_epochs update_epochs",
    "minibatches": "num_minibatches num_mini_batches ppo_mini_batch_size mini_batch_size",
    "importance_sampling_cap": "vllm_importance_sampling_cap vllm_importance_sampling_clip_max tis_imp_ratio_cap",
    "method": "adv_estimator advantage_estimator algorithm",
    "surrogate": "policy_loss_type loss_mode importance_sampling_level",
    "dual_clip": "clip_ratio_c delta",
    "kl_in": "use_kl_in_reward kl_in_reward use_kl_loss",
    "adaptive_beta": "kl_ctrl_type adaptive_kl use_adaptive_kl",
    "entropy_coef": "entropy_coeff entropy_loss_coef ent_coef",
    "adaptive_entropy": "use_adaptive_entropy use_adaptive_ent",
    "supervised_weight": "grpo_lambda_sup lambda_sup sft_loss_coef",
    "consistency_weight": "grpo_lambda_consistency lambda_consistency",
    "rewards": "reward_funcs reward_functions reward_funcs_names reward_fn custom_reward_function",
    "data": "dataset dataset_name train_dataset train_files train_file prompt_data",
    "eval_data": "eval_dataset val_files validation_file valid_data",
    "system": "system_prompt",
    "prompt": "prompt_template",
    "init_from": "resume_ckpt init_checkpoint ckpt_path",
    "epochs": "num_train_epochs total_epochs num_epochs grpo_epochs rce_epochs sft_epochs",
    "reduction": "loss_type loss_agg_mode loss_aggregation",
    "advantage.scale_rewards": "norm_adv_by_std_in_grpo norm_adv use_std normalize_rewards",
    "advantage.clip": "advantage_clip adv_clip grpo_adv_clip_max",
    "advantage.transform": "use_rank_advantage",
    "advantage.ddof": "std_unbiased",
    "advantage.eps": "advantage_eps adv_eps std_eps",
    "temperature": "temperature_schedule",
    "temperature.start": "initial_temperature temperature_initial",
    "temperature.end": "final_temperature temperature_final",
    "model.source": "base_model model_name model_name_or_path model_path pretrained_model",
    "model.dtype": "torch_dtype model_dtype precision bf16 fp16",
    "model.gradient_checkpointing": "enable_gradient_checkpointing activation_checkpointing",
    "model.lora.r": "lora_rank lora_r rank",
    "model.lora.lora_alpha": "alpha",
    "model.lora.lora_dropout": "dropout",
    "model.lora.target_modules": "lora_target_modules",
    "task.domains": "domain_ratios domain_weights",
    "task.data_seed": "dataset_seed",
    "evaluation.eval_steps": "eval_every eval_interval eval_freq eval_frequency test_freq val_check_interval",
    "evaluation.num_generations_eval": "eval_num_generations val_n",
    "checkpoints.save_steps": "save_every save_freq save_interval checkpoint_every",
    "checkpoints.save_total_limit": "max_to_keep keep_last max_actor_ckpt_to_keep",
    "early_stopping.patience": "early_stopping_patience",
    "early_stopping.min_delta": "early_stopping_threshold early_stopping_min_delta",
    "early_stopping.metric": "metric_for_best_model monitor",
    "guards.max_kl": "kl_threshold target_kl",
    "seed": "random_seed manual_seed rng_seed",
}

ALIASES: dict[str, str] = {theirs: ours for ours, names in _ELSEWHERE.items() for theirs in names.split()}
