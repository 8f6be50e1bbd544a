"""A pydantic error -> one SpecError: file, line, key, what was got, what is allowed, the nearest known key.

What is here: how an error of any document is explained, the keys of a run's, and which known key an unknown one was
probably meant to be: by its place, its spelling, or what other projects call it. A sweep's keys are in
grpoctl.sweeps.problems.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from core.config.task import task_names
from core.config.trl.fields import hint_of_field, key_of_verl, names_elsewhere
from core.errors import SpecError
from core.plugins import MAY_LACK
from grpoctl.config.authored import OF_THE_FILE
from grpoctl.config.layers import Keys, Layer, dotted
from grpoctl.config.schema import Field, allowed, choices, fields, item_fields, item_of, keys_of, stage_kinds

Tree = Mapping[str, object]
_TASK: Keys = ("task", "name")

_LONGEST = 60  # characters of a text that an error shows
_CUTOFF = 0.7  # difflib's ratio of two words: learnin and learning 0.93, bta and beta 0.86, prompt and completion 0.38
_WHOLE = 0.9  # of two names without their underscores, where they have other words: learningrate
_ABBREVIATED = 3  # letters from which on a beginning stands for a word: grad for gradient

# Our key, as the end of a dotted key -> what it is called in the seeds and in OpenRLHF, and what people write for TRL's
# and verl's names (those are in core.config.trl). For messages only, never accepted: that would give one setting two
# names, and a spec two hashes.
_ELSEWHERE: dict[str, str] = {
    "beta": "kl_loss_coeff kl_beta grpo_beta_kl beta_kl grpo_kl_beta kl_coef kl_coeff init_kl_coef kl_penalty_coef "
    "kl_penalty_weight kl_weight kl_ctrl",
    "kl_estimator": "kl_type",
    "num_generations": "num_return_sequences_in_group num_return_sequences grpo_group group_size k rollout_n "
    "n_samples_per_prompt num_samples_per_prompt num_sequences num_beams grpo_group_size",
    "prompts_per_step": "rollout_batch_size batch_size b num_prompts_per_step num_unique_prompts_rollout",
    "learning_rate": "grpo_lr rl_lr initial_lr base_lr actor_learning_rate rce_lr sft_lr",
    "lr_scheduler_type": "lr_scheduler scheduler scheduler_type",
    "lr_scheduler_steps": "num_training_steps scheduler_steps lr_decay_steps t_max",
    "warmup_steps": "num_warmup_steps warmup_ratio",
    "epsilon": "clip_range cliprange grpo_clip_range clip_eps clip_epsilon ppo_clip eps_clip clip_range_low "
    "eps_clip_low epsilon_low",
    "epsilon_high": "clip_range_high cliprange_high eps_clip_high clip_higher",
    "max_completion_length": "max_new_tokens response_length response_max_length max_tokens generate_max_len "
    "max_output_length",
    "keep_candidates": "grpo_early_top_k grpo_late_top_k grpo_top_k grpo_topk",
    "positive_reward": "require_positive_query",
    "policy_weight": "grpo_lambda_pg lambda_pg grpo_warmup_epochs",
    "max_steps": "total_steps num_steps train_steps training_steps num_training_iterations",
    "max_grad_norm": "clip_grad clip_grad_norm gradient_clip grpo_max_grad_norm",
    "weight_decay": "wd",
    "optim": "optimizer optimiser optimizer_type optimizer_name optim_type",
    "adam_beta1": "beta1 beta_1 betas adam_betas",
    "adam_beta2": "beta2 beta_2",
    "adam_epsilon": "adam_eps optimizer_eps",
    "stop_strings": "stop stop_sequences stop_words stop_string",
    "repetition_penalty": "repeat_penalty rep_penalty",
    "gradient_accumulation_steps": "grad_accum grad_accum_steps gradient_accumulation accumulate_grad_batches",
    "skip_without_signal": "filter_zero_std_samples",
    "dynamic_sampling": "use_dynamic_sampling active_sampling dynamic_sample",
    "dynamic_sampling.max_attempts": "dynamic_sampling_max_gen_batches max_resample_times",
    "overlong": "soft_overlong_punishment",
    "overlong.buffer": "overlong_buffer_len soft_cache_length",
    "mask_truncated_completions": "overlong_filter overlong_filtering mask_truncated",
    "num_iterations": "num_ppo_epochs update_epochs",
    "minibatches": "num_minibatches num_mini_batches mini_batch_size",
    "importance_sampling_cap": "vllm_importance_sampling_cap vllm_importance_sampling_clip_max tis_imp_ratio_cap",
    "method": "advantage_estimator algorithm",
    "surrogate": "policy_loss_type",
    "kl_in": "kl_in_reward",
    "sync_ref_model": "sync_ref sync_reference update_reference",
    "ref_model_mixup_alpha": "mixup_alpha ref_mixup_alpha",
    "ref_model_sync_steps": "ref_sync_steps sync_steps",
    "adaptive_beta": "kl_ctrl_type adaptive_kl use_adaptive_kl",
    "entropy_coef": "entropy_loss_coef ent_coef",
    "adaptive_entropy": "use_adaptive_ent",
    "supervised_weight": "grpo_lambda_sup lambda_sup grpo_schedule_sup sft_loss_coef",
    "consistency_weight": "grpo_lambda_consistency lambda_consistency",
    "rewards": "reward_funcs reward_functions reward_funcs_names reward_fn",
    "data": "dataset dataset_name train_dataset train_file prompt_data",
    "eval_data": "eval_dataset validation_file valid_data",
    "system": "system_prompt",
    "prompt": "prompt_template",
    "init_from": "resume_ckpt init_checkpoint ckpt_path",
    "epochs": "num_epochs grpo_epochs rce_epochs sft_epochs",
    "reduction": "loss_aggregation",
    "advantage.scale_rewards": "norm_adv use_std normalize_rewards grpo_global_norm",
    "advantage.clip": "advantage_clip adv_clip grpo_adv_clip_max",
    "advantage.transform": "use_rank_advantage",
    "advantage.ddof": "std_unbiased",
    "advantage.eps": "advantage_eps adv_eps std_eps",
    "temperature": "temperature_schedule",
    "temperature.start": "initial_temperature temperature_initial",
    "temperature.end": "final_temperature temperature_final",
    "tau.start": "rce_temp_start rce_temperature_start",
    "tau.end": "rce_temp_end rce_temperature_end",
    "model.source": "base_model model_name model_name_or_path model_path pretrained_model",
    "model.dtype": "torch_dtype model_dtype precision fp16",
    "model.chat_template_kwargs": "template_kwargs apply_chat_template_kwargs enable_thinking thinking",
    "model.gradient_checkpointing": "activation_checkpointing",
    "model.lora.r": "lora_r rank",
    "model.lora.lora_alpha": "alpha",
    "model.lora.lora_dropout": "dropout",
    "model.lora.target_modules": "lora_target_modules",
    "task.domains": "domain_ratios domain_weights",
    "task.data_seed": "dataset_seed",
    "task.w_psnr": "grpo_w_psnr",
    "task.w_ssim": "grpo_w_ssim",
    "task.w_lpips": "grpo_w_lpips",
    "task.patch": "patch_size crop_size",
    "evaluation.eval_steps": "eval_every eval_interval eval_freq eval_frequency val_check_interval",
    "evaluation.num_generations_eval": "eval_num_generations",
    "checkpoints.save_steps": "save_every save_interval checkpoint_every",
    "checkpoints.save_total_limit": "max_to_keep keep_last",
    "early_stopping.patience": "early_stopping_patience",
    "early_stopping.min_delta": "early_stopping_threshold early_stopping_min_delta",
    "early_stopping.metric": "metric_for_best_model monitor",
    "guards.max_kl": "kl_threshold target_kl",
    "seed": "random_seed manual_seed rng_seed",
}

# Losses of the policy that restores pictures -> what document 003 calls their weights.
_OF_PICTURES = {
    "grpo_lambda_sup": "supervised", "lambda_sup": "supervised", "grpo_schedule_sup": "supervised",
    "grpo_lambda_consistency": "consistency", "lambda_consistency": "consistency", "lambda_cons": "consistency",
    "grpo_beta_kl": "penalty", "beta_kl": "penalty",
}  # fmt: skip

ALIASES: dict[str, str] = {
    **names_elsewhere(), **{theirs: ours for ours, names in _ELSEWHERE.items() for theirs in names.split()}
}  # fmt: skip


def hint(keys: Keys, tree: Tree) -> str:
    """`did you mean stages.grpo.beta?`, whose key it is instead, or which keys are known at that place."""
    known = _keys_of_a_file(tree, keys)
    name = str(keys[-1])
    elsewhere = fields(tree, all_tasks=True).get(keys)
    if keys[:-1] == ("task",) and elsewhere is not None:
        task = tree["task"]
        assert isinstance(task, Mapping)
        return f"{name} is a key of the task {elsewhere.task}, this one is {task.get('name')}"
    if (weight := _of_picture_loss(keys, known, tree)) is not None:
        return f"did you mean {dotted(weight)}?"
    of_verl = key_of_verl(".".join(map(str, keys)))
    wanted = keys if of_verl is None else tuple(of_verl.split("."))
    of_trl = None if name.lower() in ALIASES or _ending(name.lower(), keys, known) else hint_of_field(name.lower())
    if of_trl is not None:
        return of_trl
    if (meant := nearest(wanted, _of_kind(name, known, tree))) is not None:
        return f"did you mean {dotted(meant)}?"
    siblings = [str(path[-1]) for path in known if path[:-1] == keys[:-1]]
    return f"known here: {', '.join(siblings)}" if siblings else "`grpoctl show` prints the known keys"


def _of_picture_loss(keys: Keys, known: Mapping[Keys, Field], tree: Tree) -> Keys | None:
    """Where a spec of pictures weighs a loss by document 003's name; None of other names and tasks."""
    task = tree.get("task")
    loss = _OF_PICTURES.get(str(keys[-1]).lower())
    if loss is None or not isinstance(task, Mapping) or task.get("name") != "restoration":
        return None
    weights = _ending("loss_weights", keys, known)
    return None if weights is None else (*weights, loss)


def _of_kind(name: str, known: Mapping[Keys, Field], tree: Tree) -> Mapping[Keys, Field]:
    """The known keys less those of stages that a name is not of: `RCE_LR` is no key of a GRPO stage."""
    kind, stages = name.lower().split("_")[0], tree.get("stages")
    if kind not in stage_kinds() or not isinstance(stages, Mapping):
        return known
    others = {key for key, stage in stages.items() if isinstance(stage, Mapping) and stage.get("kind", kind) != kind}
    return {path: field for path, field in known.items() if path[0] != "stages" or others.isdisjoint(path[1:2])}


def _keys_of_a_file(tree: Tree, keys: Keys) -> dict[Keys, Field]:
    """The keys a file may hold: those of the spec, less the profile it is loaded with, and those of the loader."""
    items = item_fields(tree, keys)
    if items:  # what is written into a list's item belongs to it, whatever is called alike elsewhere
        return items
    known = {path: field for path, field in fields(tree).items() if path != ("profile",)}
    return {**known, ("extends",): Field(annotation=str), ("profiles",): Field(annotation=dict)}


def nearest(keys: Keys, known: Mapping[Keys, Field], aliases: Mapping[str, str] = ALIASES) -> Keys | None:
    """The known key nearest to an unknown one, or None. Of two of the same name, the one nearer by.

    `aliases` has what keys are called elsewhere -> our name, as the end of a dotted key.
    """
    name = str(keys[-1]).lower().replace("-", "_")
    if name in aliases:
        return _ending(aliases[name], keys, known)
    own = _ending(name, keys, known)
    if own is not None:
        return own
    pool = sorted({str(path[-1]) for path in known} | set(aliases))
    close = max(pool, key=lambda other: _likeness(name, other))
    return _ending(aliases.get(close, close), keys, known) if _likeness(name, close) else None


def _likeness(name: str, other: str) -> float:
    """How alike two names are, 0 to 1: word by word, since what differs in one word (min_p, top_p) is another thing."""

    def ratio(a: str, b: str) -> float:
        return difflib.SequenceMatcher(None, a, b).ratio()

    words, others = name.split("_"), other.split("_")
    if len(words) != len(others):
        whole = ratio("".join(words), "".join(others))
        return whole if whole >= _WHOLE else 0.0
    alike = 0.0
    for a, b in zip(words, others, strict=True):
        short, long = sorted((a, b), key=len)
        likeness = 1.0 if len(short) >= _ABBREVIATED and long.startswith(short) else ratio(a, b)
        if likeness < _CUTOFF:
            return 0.0
        alike += likeness
    return alike / len(words)


def _ending(ours: str, keys: Keys, known: Mapping[Keys, Field]) -> Keys | None:
    """The known key that ends in the dotted name `ours`; of several, the one whose path is most like `keys`."""
    tail = tuple(ours.split("."))
    # `rollout.name` is no misplaced name of the file or of the task: what is nested elsewhere is called like it only
    files = {_TASK, *((name,) for name in OF_THE_FILE)} if len(keys) > 1 else set[Keys]()
    alike = [p for p in known if p[-len(tail) :] == tail and (p not in files or p[:-1] == keys[:-1])]

    def shared(path: Keys) -> int:
        return next((n for n, pair in enumerate(zip(path, keys, strict=False)) if pair[0] != pair[1]), len(path))

    return max(alike, key=shared, default=None)


class Grammar(Protocol):
    """What a kind of document may hold, in words."""

    def location(self, item: Any, tree: Tree) -> list[str | int]:
        """The keys of pydantic's error, without the names of union members that stand in no document."""
        ...

    def knows(self, keys: Keys, tree: Tree) -> bool:
        """True when the document may have this key, whether it has it or not."""
        ...

    def hint(self, keys: Keys, tree: Tree) -> str:
        """What an unknown key was probably meant to be, or what is known at its place."""
        ...

    def allowed(self, keys: Keys, tree: Tree) -> str:
        """What a key may hold."""
        ...

    def allowed_name(self, keys: Keys, tree: Tree) -> str:
        """What a key may be called where the user names it."""
        ...

    def choices(self, keys: Keys, tree: Tree) -> Sequence[str]:
        """The texts that a key is chosen from; none where it is not such a key."""
        ...


def explain(error: ValidationError, layer: Layer, grammar: Grammar) -> SpecError:
    """The first problem, an unknown key before all others, and how many more there are."""
    first: dict[Keys, SpecError] = {}  # one problem per key: a number that is no schedule fails twice
    # a misspelled key is reported as missing and as unknown; only the second says what to do
    for item in sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden"):
        keys = _keys(grammar.location(item, layer.tree), layer.tree, grammar)
        first.setdefault(keys, refused(_what(item, keys, layer.tree, grammar), keys, layer))
    chosen, *others = first.values()
    if not others:
        return chosen
    more = f" (and {len(others)} more problem{'s' if len(others) > 1 else ''})"
    return SpecError(chosen.message + more, file=chosen.file, line=chosen.line, key=chosen.key)


def refused(message: str, keys: Keys, layer: Layer) -> SpecError:
    """The error about the value at `keys`, with its place."""
    place = layer.place(keys)
    layer_name = f" ({place.origin})" if place.origin else ""
    return SpecError(message + layer_name, file=place.file, line=place.line, key=dotted(keys) or None)


def _keys(location: Sequence[str | int], tree: Tree, grammar: Grammar) -> Keys:
    """The key at fault: the location, cut where the document ends. A word that nobody knows is a union member's."""
    node: object = tree
    for length, key in enumerate(location):
        known = length == len(location) - 1 or grammar.knows(tuple(location[: length + 1]), tree)
        if isinstance(node, Mapping) and isinstance(key, str) and (key in node or known):
            node = node.get(key)
        elif isinstance(node, (list, tuple)) and isinstance(key, int) and key < len(node):
            node = node[key]
        else:
            return tuple(location[:length])
    return tuple(location)


def _what(item: Any, keys: Keys, tree: Tree, grammar: Grammar) -> str:
    kind = item["type"]
    if kind == "extra_forbidden":
        return f"unknown key; {grammar.hint(keys, tree)}"
    if kind in ("cross_field", "value_error"):
        return str(item["ctx"].get("problem") or item["ctx"]["error"])
    if "[key]" in item["loc"]:
        return f"got the name {keys[-1]!r}; allowed: {grammar.allowed_name(keys, tree)}"
    if kind in ("missing", "union_tag_not_found"):
        return f"is missing; allowed: {grammar.allowed(keys, tree)}"
    value: object = tree
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(str(key))
        elif isinstance(value, (list, tuple)) and isinstance(key, int):
            value = value[key]
    options = grammar.choices(keys, tree)
    close = difflib.get_close_matches(value.lower(), options, n=1) if isinstance(value, str) else []
    hint = f"; did you mean {close[0]}?" if close else MAY_LACK if kind == "union_tag_invalid" and keys == _TASK else ""
    return f"{got(value)}; allowed: {grammar.allowed(keys, tree)}{hint}"


class RunGrammar:
    """The keys of a run's spec, read off its models."""

    def location(self, item: Any, tree: Tree) -> list[str | int]:
        """Pydantic's location less the discriminators' values; the key that a check of several names."""
        raw: list[str | int] = [key for key in item["loc"] if key != "[key]"]
        if len(raw) > 1 and raw[0] == "task" and raw[1] in task_names():
            del raw[1]
        if len(raw) > 2 and raw[0] == "stages" and raw[2] in stage_kinds():
            del raw[2]
        if item["type"] in ("union_tag_invalid", "union_tag_not_found"):
            raw.append("kind" if raw[0] == "stages" else "name")
        if item["type"] == "cross_field":
            raw.extend(key for key in item["ctx"]["key"].split(".") if key)
        return raw

    def knows(self, keys: Keys, tree: Tree) -> bool:
        """True for a key of the spec, or of an item of one of its lists."""
        return keys in fields(tree) or keys in item_fields(tree, keys)

    def hint(self, keys: Keys, tree: Tree) -> str:
        """By its place, its spelling, or its name elsewhere."""
        return hint(keys, tree)

    def allowed(self, keys: Keys, tree: Tree) -> str:
        """As the models have it."""
        field = self._field(keys, tree)
        return allowed(item_of(field) if keys and isinstance(keys[-1], int) else field)

    def allowed_name(self, keys: Keys, tree: Tree) -> str:
        """As the mapping around it has it."""
        return allowed(keys_of(self._field(keys[:-1], tree)))

    def choices(self, keys: Keys, tree: Tree) -> Sequence[str]:
        """The values of its Literal."""
        return choices(self._field(keys, tree))

    def _field(self, keys: Keys, tree: Tree) -> Field:
        """The key's field, or that of the nearest known key around it (an item's list, an entry's mapping)."""
        if keys == _TASK:
            return Field(annotation=Literal[*task_names()])  # of all tasks, not of the one the document names
        if len(keys) == 3 and keys[0] == "stages" and keys[2] == "kind":
            return Field(annotation=Literal[*stage_kinds()])
        known = {**fields(tree), **item_fields(tree, keys)}
        return next(known[keys[:length]] for length in range(len(keys), 0, -1) if keys[:length] in known)


def spec_error(error: ValidationError, layer: Layer) -> SpecError:
    """What is wrong with a run's document."""
    return explain(error, layer, RunGrammar())


def got(value: object) -> str:
    """`got the string '3'`, shortened: what a document holds, in YAML's words."""
    if isinstance(value, str):
        text = repr(value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "...")
        return f"got the string {text}{'; write it without quotes' if _is_number(value) else ''}"
    if isinstance(value, Mapping):
        return "got a mapping"
    if isinstance(value, list):
        return f"got a list of {len(value)}" if value else "got an empty list"
    if value is None or isinstance(value, bool):
        return f"got {'null' if value is None else str(value).lower()}"
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "an integer of more than 40 digits"
    return f"got {text}"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
