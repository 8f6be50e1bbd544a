"""What scripts call the settings that rules read, in our fields' names, and which names of a table's axis are settings.

What is not here: the lines that state settings (log_settings), TRL's arguments (trl_settings), what a user types
(user_settings).
"""

from __future__ import annotations

import re

from grpoctl.diagnose.readers.metric_names import HELD_OUT
from grpoctl.diagnose.readers.several_runs import words_of

_OF_OTHERS = HELD_OUT | {  # words of a path whose end is no setting of the policy's training
    "critic", "ref", "reference", "reward", "rm", "value", "teacher", "judge", "sft", "draft", "warmup", "pretrain",
    "quant", "quantization", "quantize", "awq", "gptq", "bnb", "lora", "process",
}  # fmt: skip
SETTINGS = {  # what scripts call them, in small letters with _: our field
    "num_generations": "num_generations", "group_size": "num_generations", "n_samples_per_prompt": "num_generations",
    "num_samples_per_prompt": "num_generations", "samples_per_prompt": "num_generations", "k": "num_generations",
    "num_rollouts_per_prompt": "num_generations", "rollouts_per_prompt": "num_generations",
    "completions_per_prompt": "num_generations", "generations_per_prompt": "num_generations",
    "samples_per_question": "num_generations", "n_generations": "num_generations",
    "rollout_n": "num_generations", "g": "num_generations",
    "learning_rate": "learning_rate", "lr": "learning_rate", "actor_learning_rate": "learning_rate",
    "beta": "beta", "kl_coef": "beta", "kl_coeff": "beta", "init_kl_coef": "beta", "kl_beta": "beta",
    "kl_loss_coef": "beta", "β": "beta", "kl_weight": "beta", "kl_coefficient": "beta", "kl_penalty_coef": "beta",
    "kl_loss_weight": "beta", "responses_per_prompt": "num_generations", "samples_per_group": "num_generations",
    "completions_per_group": "num_generations",
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
    "repetition_penalty": "repetition_penalty", "epsilon": "epsilon", "clip_eps": "epsilon",
    "clip_range": "epsilon", "cliprange": "epsilon", "eps_clip": "epsilon",
    "max_completion_length": "max_completion_length", "max_new_tokens": "max_completion_length",
    "generate_max_len": "max_completion_length", "rollouts_per_example": "num_generations",
    "max_response_length": "max_completion_length", "max_grad_norm": "max_grad_norm", "grad_clip": "max_grad_norm",
    "warmup_steps": "warmup_steps", "max_steps": "max_steps", "rollout_max_response_len": "max_completion_length",
    "学习率": "learning_rate", "学習率": "learning_rate", "학습률": "learning_rate", "温度": "temperature",
    "采样温度": "temperature", "온도": "temperature", "组大小": "num_generations", "每组采样数": "num_generations",
    "每组生成数": "num_generations", "组内采样数": "num_generations", "그룹_크기": "num_generations",
    "グループサイズ": "num_generations", "kl系数": "beta", "kl_系数": "beta", "kl权重": "beta", "kl_权重": "beta",
    "kl係数": "beta", "kl_계수": "beta", "最大生成长度": "max_completion_length",
    "最大回复长度": "max_completion_length", "最大输出长度": "max_completion_length",
    "最大响应长度": "max_completion_length", "最大步数": "max_steps",
}  # fmt: skip
_NO_FIELDS = frozenset({  # that no rule reads, and runs are compared over
    "batch_size", "lora_rank", "lora_r", "loss_type", "scale_rewards", "clip_ratio", "optimizer", "scheduler",
    "dropout", "entropy_coef", "clip_higher", "epsilon_high", "clip_epsilon", "normalization", "reward_scale",
})  # fmt: skip
_OF_SAMPLING = frozenset({"k", "temperature", "top_p", "top_k", "min_p"})  # evaluations of one model differ in them


def setting_named(path: str) -> str | None:
    """The name below that a path of a configuration ends in (`rollout.n`, `actor.optim.lr`); None where it ends in
    none, or is of something beside the policy that is trained.
    """
    *before, last = path.lower().split(".")
    if not _OF_OTHERS.isdisjoint(re.findall(r"[a-z]+", " ".join(before).replace("_", " "))):
        return None
    both = f"{before[-1]}_{last}" if before else last
    return both if both in SETTINGS else last if last in SETTINGS and (len(last) > 1 or not before) else None


def names_a_setting(name: str) -> bool:
    """Whether a name is one of the settings below, or has one in it as a word: `temperature`, `lr_run`."""
    words = words_of(name)
    return "_".join(words) in SETTINGS or any(len(word) > 1 and word in SETTINGS for word in words)


def is_an_axis(name: str) -> bool:
    """Whether a table's column is of a setting that its rows are compared over: `lr`, `Group size`, `epsilon`."""
    word = "_".join(words_of(name))
    return (word in SETTINGS or word in _NO_FIELDS) and word not in _OF_SAMPLING
