"""What trainers call the metrics of a step, in our names: TRL, verl, OpenRLHF, slime, prime-rl, home-made ones.

What is here: tables of names and how a name is looked up in them. What is not: the files and lines they stand in, and
settings (trl_settings, log_settings).

TRL: reward_std is the deviation over the whole batch (reward/std) in TRL 1.16; versions that still log
`completion_length` or a single `clip_ratio` give the mean deviation inside groups there (reward/group_std).
sampling_logp_difference is the mean |log-prob the sampler recorded - log-prob of the trainer's forward| over the tokens
of the batch: the same quantity as our rollout/logprob_gap, over all rows instead of one group. verl: critic/score is
the reward as the function gave it, critic/rewards the same less the KL in the reward; actor/kl_loss is the estimator's
mean without its weight. Left out, since they are something else of ours: num_tokens (prompts included), step_time,
critic/advantages/mean (over tokens, so long completions count more).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from core.health.case import FOREIGN
from core.metrics import declared
from grpoctl.diagnose.readers.metric_words import is_share_of_live_groups, is_statistic, metric_by_words

Cells = Mapping[str, float | None]


def _table(rows: str) -> dict[str, str]:
    """theirs -> ours, of lines `theirs | ours`."""
    pairs = (line.split(" | ") for line in rows.strip().splitlines())
    return {theirs.strip(): ours.strip() for theirs, ours in pairs}


_TRL = _table(
    """
    reward | reward/mean
    reward_std | reward/std
    tools/call_frequency | tools/calls
    frac_reward_zero_std | groups/dead
    completions/mean_length | completions/length
    completion_length | completions/length
    completions/clipped_ratio | completions/truncated
    completions/min_length | completions/shortest
    completions/max_length | completions/longest
    completions/mean_terminated_length | completions/length_ended
    kl | kl
    entropy | entropy
    clip_ratio/low_mean | policy/clip_low
    clip_ratio/high_mean | policy/clip_high
    clip_ratio/region_mean | policy/clip_share
    policy_loss | policy/loss
    loss | loss
    grad_norm | grad_norm
    learning_rate | learning_rate
    sampling/sampling_logp_difference/mean | rollout/logprob_gap
    sampling/sampling_logp_difference/max | rollout/logprob_gap_max
    sampling/importance_sampling_ratio/mean | sampler/ratio_mean
    sampling/importance_sampling_ratio/min | sampler/ratio_min
    sampling/importance_sampling_ratio/max | sampler/ratio_max
    """
)
_VERL = _table(
    """
    critic/score/mean | reward/mean
    critic/score/max | reward/max
    critic/score/min | reward/min
    critic/advantages/max | advantage/max
    critic/advantages/min | advantage/min
    critic/vf_loss | critic/loss
    critic/vf_explained_var | critic/explained
    critic/kl | kl
    critic/kl_coeff | beta
    actor/reward_kl_penalty | kl
    actor/reward_kl_penalty_coeff | beta
    actor/kl_loss | kl
    actor/kl_coef | beta
    actor/entropy | entropy
    actor/entropy_loss | entropy
    actor/pg_loss | policy/loss
    actor/loss | loss
    actor/ppo_kl | policy/kl_old
    actor/pg_clipfrac | policy/clip_share
    actor/grad_norm | grad_norm
    actor/lr | learning_rate
    response_length/mean | completions/length
    response_length/max | completions/longest
    response_length/min | completions/shortest
    response_length/clip_ratio | completions/truncated
    training/rollout_probs_diff_mean | sampler/prob_gap
    training/rollout_probs_diff_max | sampler/prob_gap_max
    training/rollout_actor_probs_pearson_corr | sampler/correlation
    rollout_corr/kl | sampler/kl
    rollout_corr/rollout_is_mean | sampler/ratio_mean
    rollout_corr/rollout_is_min | sampler/ratio_min
    rollout_corr/rollout_is_max | sampler/ratio_max
    rollout_corr/rollout_rs_masked_fraction | sampler/masked
    mismatch/mismatch_kl | sampler/kl
    mismatch/rollout_is_mean | sampler/ratio_mean
    mismatch/rollout_is_min | sampler/ratio_min
    mismatch/rollout_is_max | sampler/ratio_max
    """
)
_OTHERS = _table(  # OpenRLHF, slime, prime-rl, tinker, TRL's PPO, open-instruct
    """
    actor_lr | learning_rate
    act_lr | learning_rate
    actor_grad_norm | grad_norm
    response_length | completions/length
    response_clip_ratio | completions/truncated
    truncated_ratio | completions/truncated
    pi_loss | policy/loss
    loss_pi | policy/loss
    v_loss | critic/loss
    loss_v | critic/loss
    vf_loss | critic/loss
    value_loss | critic/loss
    critic_loss | critic/loss
    cri_loss | critic/loss
    losses/value_loss | critic/loss
    losses/policy_loss | policy/loss
    loss/value | critic/loss
    loss/policy | policy/loss
    ppo/loss/value | critic/loss
    ppo/loss/total | loss
    value_function_loss | critic/loss
    loss/value_avg | critic/loss
    explained_variance | critic/explained
    vf_explained_var | critic/explained
    ppo_clip_ratio | policy/clip_share
    ppo_kl | policy/kl_old
    vllm_kl | sampler/kl
    mis_kl | sampler/kl
    train/mis_kl | sampler/kl
    group_reward_std | reward/group_std
    reward_group_std | reward/group_std
    group_std | reward/group_std
    grp_std | reward/group_std
    grpstd | reward/group_std
    GrpStd | reward/group_std
    mean_group_std | reward/group_std
    within_group_std | reward/group_std
    adv_std | advantage/std_all
    rollout/raw_reward | reward/mean
    rollout/response_lengths | completions/length
    rollout/response_len/mean | completions/length
    rollout/truncated | completions/truncated
    rollout/truncated_ratio | completions/truncated
    rollout/entropy | entropy
    train/kl_loss | kl
    train/entropy_loss | entropy
    train_rollout_logprob_abs_diff | rollout/logprob_gap
    optim/grad_norm | grad_norm
    grad_norm/total | grad_norm
    gradients/norm | grad_norm
    optim/lr | learning_rate
    optim/entropy | entropy
    optim/kl_sample_train_v1 | sampler/kl
    mismatch_kl/mean | sampler/kl
    sampling_importance_ratio | sampler/ratio_mean
    entropy/mean | entropy
    is_truncated/mean | completions/truncated
    seq_len/mean | completions/length
    env/all/reward/total | reward/mean
    env/all/ac_tokens_per_turn | completions/length
    env/all/by_group/frac_mixed | groups/dead
    frac_mixed | groups/dead
    env/all/correct | rewards/correct
    env/all/format | rewards/format
    env/all/format_eos | completions/truncated
    lr-pg_0 | learning_rate
    lr-Adam | learning_rate
    lr-AdamW | learning_rate
    lr-AdamW/pg1 | learning_rate
    lr-AdamW8bit | learning_rate
    lr-FusedAdam | learning_rate
    lr-DeepSpeedCPUAdam | learning_rate
    lr-Adafactor | learning_rate
    lr-Lion | learning_rate
    lr-SGD | learning_rate
    tool_call/mean | tools/calls
    kl_policy_base | kl
    kl_k1 | kl
    kl_k2 | kl
    kl_k3 | kl
    actor_train/grad_norm | grad_norm
    length/mean | completions/length
    length/cap_hit_rate | completions/truncated
    val/sequence_lengths | completions/length
    val/stop_rate | completions/truncated
    objective/kl_avg | kl
    entropy_loss | entropy
    generate/avg_num_tokens | completions/length
    env/reward_mean | reward/mean
    env/reward_std | reward/std
    objective/kl | kl/whole
    objective/scores | reward/mean
    ppo/mean_scores | reward/mean
    ppo/std_scores | reward/std
    policy/entropy_avg | entropy
    ppo/policy/entropy | entropy
    policy/approxkl_avg | policy/kl_old
    ppo/policy/approxkl | policy/kl_old
    policy/clipfrac_avg | policy/clip_share
    ppo/policy/clipfrac | policy/clip_share
    loss/policy_avg | policy/loss
    ppo/loss/policy | policy/loss
    token/response_length/mean | completions/length
    env/rollout/score | reward/mean
    env/rollout/success | rewards/accuracy
    actor/approxkl | policy/kl_old
    approx_policy_kls | policy/kl_old
    ppo_actor/no_eos_ratios/avg | completions/truncated
    ppo_actor/update/grad_norm | grad_norm
    ppo_actor/update/clip_ratio | policy/clip_share
    mean_gen_tokens_per_sample | completions/length
    baseline_reward/pct_mixed | groups/dead
    metrics/is_truncated | completions/truncated
    train_total_rewards_mean | reward/mean
    grouped_rewards_mean | reward/mean
    grouped_rewards_std | reward/group_std
    env_runners/episode_return_mean | reward/mean
    env_runners/episode_return_max | reward/max
    env_runners/episode_return_min | reward/min
    evaluation/env_runners/episode_return_mean | eval/reward
    learners/default_policy/mean_kl_loss | policy/kl_old
    learners/default_policy/policy_loss | policy/loss
    learners/default_policy/vf_loss | critic/loss
    learners/default_policy/vf_explained_var | critic/explained
    learners/default_policy/entropy | entropy
    learners/default_policy/gradients_default_optimizer_global_norm | grad_norm
    learners/default_policy/default_optimizer_learning_rate | learning_rate
    reward/evaluate_response/avg_total_reward | reward/mean
    generator/generate/avg_tokens_generated | completions/length
    rl_trainer/avg_loss | loss
    rl_trainer/learning_rate | learning_rate
    train_fraction_of_samples_properly_ended | completions/truncated
    train_init_policy_kl | kl
    rollout/zero_std/count_0 | groups/solved_none
    rollout/zero_std/count_1 | groups/solved_all
    progress/lr | learning_rate
    reward_score | reward/mean
    train_reward_score | reward/mean
    rollout_info/ep_rew | reward/mean
    rollout_info/ep_lens | completions/length
    rollout_info/kl_div_mean | kl
    """
)
_HOME_MADE = _table(  # in small letters, words joined by _
    """
    score | reward/mean
    mean_score | reward/mean
    avg_score | reward/mean
    mean_reward | reward/mean
    reward_mean | reward/mean
    rewards_mean | reward/mean
    mean_rewards | reward/mean
    avg_reward | reward/mean
    reward_avg | reward/mean
    average_reward | reward/mean
    train_reward | reward/mean
    total_reward | reward/mean
    rewards | reward/mean
    mean_r | reward/mean
    r_mean | reward/mean
    rbar | reward/mean
    r_std | reward/std
    std_reward | reward/std
    rewards_std | reward/std
    max_reward | reward/max
    reward_max | reward/max
    min_reward | reward/min
    reward_min | reward/min
    group_reward_std | reward/group_std
    grpstd | reward/group_std
    grp_std | reward/group_std
    kl_div | kl
    kl_divergence | kl
    mean_kl | kl
    kl_mean | kl
    avg_kl | kl
    approx_kl | policy/kl_old
    approxkl | policy/kl_old
    total_loss | loss
    train_loss | loss
    training_loss | loss
    mean_loss | loss
    avg_loss | loss
    pg_loss | policy/loss
    actor_loss | policy/loss
    act_loss | policy/loss
    policy_gradient_loss | policy/loss
    mean_entropy | entropy
    entropy_mean | entropy
    avg_entropy | entropy
    gradient_norm | grad_norm
    gnorm | grad_norm
    lr | learning_rate
    clip_frac | policy/clip_share
    clipfrac | policy/clip_share
    clip_fraction | policy/clip_share
    pg_clipfrac | policy/clip_share
    mean_completion_length | completions/length
    avg_completion_length | completions/length
    completion_len | completions/length
    mean_response_length | completions/length
    avg_response_length | completions/length
    response_len | completions/length
    gen_len | completions/length
    mean_length | completions/length
    avg_length | completions/length
    clipped_ratio | completions/truncated
    truncation_rate | completions/truncated
    frac_truncated | completions/truncated
    is_max_tokens | completions/truncated
    solve_none | groups/solved_none
    batch_solve_none | groups/solved_none
    all_wrong_groups | groups/solved_none
    all_wrong | groups/solved_none
    all_incorrect | groups/solved_none
    frac_all_wrong | groups/solved_none
    all_zero_group_rate | groups/solved_none
    all_one_group_rate | groups/solved_all
    all_right | groups/solved_all
    all_correct | groups/solved_all
    frac_all_correct | groups/solved_all
    env/all/by_group/frac_all_bad | groups/solved_none
    env/all/by_group/frac_all_good | groups/solved_all
    all_wrong_group_ratio | groups/solved_none
    all_correct_groups | groups/solved_all
    all_correct_group_ratio | groups/solved_all
    mixed_groups | groups/solved_some
    solve_all | groups/solved_all
    batch_solve_all | groups/solved_all
    solve_partial | groups/solved_some
    batch_solve_partial | groups/solved_some
    zero_std_ratio | groups/dead
    frac_zero_std | groups/dead
    dead_groups | groups/dead
    β | beta
    kl_coef | beta
    kl_coeff | beta
    kl_beta | beta
    beta_kl | beta
    accuracy | rewards/accuracy
    train_acc | rewards/accuracy
    train_accuracy | rewards/accuracy
    acc | rewards/accuracy
    advantage_std | advantage/std_all
    """
)
_EVAL = _table(
    """
    eval_reward | eval/reward
    val/total | eval/reward
    eval/total | eval/reward
    eval_loss | eval/loss
    eval_completions/mean_length | eval/length
    eval_completion_length | eval/length
    eval_completions/clipped_ratio | eval/truncated
    eval_sampling/sampling_logp_difference/mean | eval/logprob_gap
    """
)
# Shares of what is the other way round with us: live groups, completions that end.
_COMPLEMENTS = frozenset(
    {"env/all/by_group/frac_mixed", "frac_mixed", "baseline_reward/pct_mixed", "val/stop_rate", "env/all/format_eos",
     "train_fraction_of_samples_properly_ended"}
)  # fmt: skip
_SECOND = {  # where nothing else in the log is called so; a KL loss is nearly always the estimate before its weight
    "kl_loss": "kl", "critic/rewards/mean": "reward/mean", "critic/rewards/max": "reward/max",
    "critic/rewards/min": "reward/min", "rewards/reward/mean": "reward/mean", "rewards/reward": "reward/mean",
    "rewards/total/mean": "reward/mean", "rewards/total_mean": "reward/mean", "rewards/total": "reward/mean",
    "rewards/mean": "reward/mean", "rewards/std": "reward/std", "rewards/max": "reward/max",
    "rewards/min": "reward/min", "rewards/reward_mean": "reward/mean",
    "episode_reward": "reward/mean", "episode_rewards": "reward/mean", "episode_return": "reward/mean",
    "episode_returns": "reward/mean", "ep_rew_mean": "reward/mean", "train_loss": "loss",
}  # fmt: skip
KNOWN = _TRL | _VERL | _OTHERS | _EVAL | _SECOND
STEPS = (  # what numbers the rows
    "step", "_step", "global_step", "training/global_step", "trainer/global_step", "train/global_step", "iteration",
    "iter", "train_step", "training_step", "steps", "grpo_step", "rl_step", "training_iteration",
    "time/iterations", "global_steps", "optimizer_step", "optim_step", "opt_step", "update_step", "train_iter",
    "train_iteration", "gradient_step", "gradient_steps", "grad_step", "policy_step", "step_num", "step_number",
    "iteration_number", "iter_num", "training_steps", "checkpoint_step", "schritt", "paso", "passo", "étape", "etape",
    "pas", "шаг", "итерация",
)  # fmt: skip
RUNS = frozenset({  # what tells runs apart, where rows of several stand in one file
    "run", "run_name", "run_id", "run_uuid", "experiment", "experiment_name", "seed", "method", "algorithm", "variant",
    "arm", "condition", "model", "model_name", "config", "algo",
})  # fmt: skip
_LONGEST_RUN = 200  # characters of its name
ONE_VALUE = (  # what a line, or an object, for each value has: the metric's name, its step, the value
    ("metric", "metric_name", "metric.name", "metricname", "metric_key", "tag", "key", "variable", "name"),
    STEPS,
    ("value", "metric_value", "metric.value", "metricvalue"),
)
_OF_SETTINGS = re.compile(r"(?:.*\.)?(?:hparams|params|config)[./].*")  # run.hparams.beta, beside such a value
SPLITS = frozenset(
    {"train", "training", "eval", "evaluation", "val", "valid", "validation", "test", "dev", "held", "out"}
)
HELD_OUT = frozenset(
    {"eval", "evaluation", "evaluate", "val", "valid", "validation", "validate", "test", "dev", "heldout"}
)
_NAMES_A_SPLIT = frozenset({"subset", "split", "context", "phase", "set"})
TOTALS = frozenset({"all", "total", "overall", "mean", "average", "avg"})  # of slices, or of runs
# What says that a row is of TRL's GRPO trainer, and not of some other one that Hugging Face's Trainer drives.
OF_GRPO = [theirs for theirs, ours in _TRL.items() if ours in ("groups/dead", "completions/length")]
_OLDER = ("completion_length", "clip_ratio")  # versions whose reward_std is inside groups
# Known, and of no use to a rule: not worth a note that they were left out.
_ASIDE = re.compile(
    r"(eval_|train/|val/|eval/)?epoch|step|_.*|.*global_step|.*step_time.*|num_tokens|total_flos|num_input_tokens_seen|total_num_tokens|(cumulative_|total_)?generated_tokens"
    r"|eval_(runtime|num_tokens|step_time|.*_per_second)|train_(loss|epochs?|batch_size|samples?|tokens?|size|(max_|min_|seq_|max_seq_)?len(gth)?)|max_(completion|response)_length|max_new_tokens|profiling/.*|(eval_)?rewards?/.+/std|(eval_)?reward_std"
    r"|(eval_)?frac_reward_zero_std|(eval_)?entropy|eval_kl|(eval_)?completions/(min|max|mean_terminated|min_terminated|max_terminated)_length"
    r"|mean_token_accuracy|(eval_)?clip_ratio(/.+)?|eval_sampling/.+|sampling/.+|eval_completions/.+|total_length|return"
    r"|(perf|timing_s|timing_per_token_ms|timing|time|global_seqlen|prompt_length|num_turns|val-aux|memory|system|tool_call_counts)/.*"
    r"|critic/(returns|values|rewards|advantages|vf).*|actor/pg_clipfrac_lower|training/(epoch|.*)|response_length_non_aborted/.*|response/aborted_ratio|rollout_corr/.*|mismatch/.*"
    r"|.*\.py|.*(elapsed|remaining|runtime|seconds|per_second|throughput|time)(\(.*\))?|percentage|memory.*"
)
_HACKED = re.compile(  # not a part of the reward (`hack_reward`), nor percent, which would not be told from a count
    r"(?:train/)?(?:reward[ _])?hack(?:s|ed|ing)?[ _](?:rate|share|fraction|frac|ratio)"
    r"|hack|hacked|reward[ _]hacking|(?P<count>(?:(?:n|num|reward)[ _])?hacks)",
    re.IGNORECASE,
)
_REWARD = re.compile(r"(?P<eval>eval_|eval/)?rewards/(?P<name>.+?)(?P<what>[/_]mean|[/_]std)?")
_VALIDATION = re.compile(
    r"val-core/(?P<set>.+)/(?:acc|reward|score)/mean@\d+|val/test_score/(?P<old>.+)|eval[_/](?P<first>.+)_pass@?1"
)
_LONGEST = 1000  # characters of a name
_BESIDE_A_MEAN = re.compile(r"median|windowed|中位|中央値", re.IGNORECASE)
_BEHIND = re.compile(  # rewards/train, rewards/test
    r"(?P<name>(?!(?:eval|val|valid|test|train|training)/).+?)"
    r"(?:(?P<trained>(?:/train(?:ing)?)+)|(?<!^rewards)(?<!^reward)/(?:eval|val|valid|test))"
)
_OF_PROSE = frozenset({
    "the", "a", "an", "my", "our", "this", "that", "its", "of", "is", "and", "when", "while", "steps", "step", "so",
    "but", "with",
})  # fmt: skip
_WRAPPERS = ("data/", "metrics/", "logs/", "log/", "train/", "rollout/")  # objects around metrics, in this order
_AVERAGED = re.compile(
    r"(?:mean|avg\.?|average|Mean|Avg\.?|Average|平均|均值)\s+(?=\w+[_/]|[A-Z]\w*[a-z][A-Z])"
)  # mean frac_reward_zero_std
_UNDER_REWARD = re.compile(r"(?:rewards?_)?(?:reward|components?|parts?|breakdown)/(?P<name>[A-Za-z]\w{0,40})")
_BEHIND_REWARD = re.compile(r"(?:reward|rew)_(?P<name>[a-z]\w{0,40})")
_REWARDED = frozenset({  # what reward functions are called by, behind `reward_`
    "valid", "validity", "json", "xml", "keys", "required", "schema", "syntax", "format", "tags", "tag", "tool",
    "tools", "answer", "env", "interaction", "reasoning", "thinking", "think", "style", "quality", "compile",
    "compiles", "execution", "tests", "language", "repetition", "safety", "relevance", "coherence", "fluency",
    "outcome", "process", "action", "efficiency", "brevity", "conciseness", "citation", "citations", "search",
    "retrieval", "structure", "grounding", "faithfulness", "hallucination", "completeness", "specificity",
    "diversity", "consistency", "goal", "progress", "exploration", "penalty", "bonus", "code", "sql",
    "similarity", "semantic", "factuality",
})  # fmt: skip
_NO_REWARDS = frozenset({  # what such a name ends with that is of something else
    "id", "ids", "call", "calls", "query", "queries", "dim", "alpha", "beta", "pct", "percent", "violation",
    "violations",
})  # fmt: skip
_EVALUATED = frozenset({"eval", "val", "validation"})
_OF_PLACE = frozenset({  # words that say no part of a reward
    "initial", "final", "best", "first", "last", "start", "end", "mean", "avg", "average", "base", "baseline", "total",
    "overall", "greedy", "before", "after", "train", "set", "the", "median", "sample", "samples", "model",
})  # fmt: skip
_OF_SPREAD = frozenset({"max", "min", "std", "n", "count", "num", "var", "se"})
_ONE_REWARD = re.compile(r"(?P<name>[a-z]\w*?)_rew(?:ard)?(?:_func|_fn|_function)?")


def _is_name(value: object) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and value.is_integer())


def run_named(row: Mapping[str, object]) -> str:
    """What a row says of which run it is; "" where it says nothing."""
    said = [value for name, value in row.items() if name.lower() in RUNS]
    names = [f"{value:g}" if isinstance(value, float) else str(value) for value in said if _is_name(value)]
    return ", ".join(names)[:_LONGEST_RUN]


def is_setting(column: str) -> bool:
    """Whether a column is of what a run was started with, by its name."""
    return _OF_SETTINGS.fullmatch(column.lower()) is not None


def split_named(text: str) -> str:
    """The split that a cell names (`eval`, `{'subset': 'val'}`); "" where it says more, or nothing."""
    words = re.findall(r"[^\W_]+", text.lower())
    splits = [word for word in words if word in SPLITS]
    return splits[-1] if splits and set(words) <= SPLITS | _NAMES_A_SPLIT else ""


@lru_cache(maxsize=200_000)
def name_of(theirs: str) -> str | None:
    """Our metric of that name, ours or theirs; None where there is none.

    Names with spaces or capitals (`Training Loss`, `completions / mean_length`), or with `train/` before them, too.
    """
    if len(theirs) > _LONGEST or "`" in theirs:  # no name, or Markdown's marks around one
        return None if len(theirs) > _LONGEST else name_of(theirs.replace("`", ""))
    behind, exact = _BEHIND.fullmatch(theirs), _exact(theirs)
    if behind is not None and behind["trained"] and (exact is None or exact.startswith("rewards/")):
        return name_of(behind["name"])  # no function is called `train`
    if exact is not None or is_aside(theirs):  # timing_s/reward is a time
        return exact
    if is_share_of_live_groups(theirs):
        return "groups/dead"
    if behind is not None:
        return name_of(f"eval/{behind['name']}")
    return metric_by_words(theirs) or _one_reward(theirs) or _part_of_reward(theirs)


def _exact(theirs: str) -> str | None:
    """The metric whose own name or a trainer's name for it this is, or one that many scripts use."""
    for name in _spellings(theirs):
        if (known := KNOWN.get(name)) is not None:
            return known
        family = _of_family(name)  # rewards/total_std is no part
        if family is None and (name in FOREIGN or declared(name) is not None):
            return name
        if family is not None:
            return family
    if theirs == "R":
        return "reward/mean"  # a small r is LoRA's rank
    if (hacked := _HACKED.fullmatch(theirs.strip())) is not None:
        return "reward/hacks" if hacked["count"] else "reward/hacked"
    word = _joined(theirs)
    return _HOME_MADE.get(word) or _TRL.get(word)


def _spellings(theirs: str) -> list[str]:
    """The name, and what it is without the marks of tables and dashboards."""
    plain = re.sub(r"\s*/\s*", "/", theirs.strip())
    bare = plain
    for wrapper in _WRAPPERS:
        bare = bare.removeprefix(wrapper)
    names = [theirs, plain, bare, bare.removesuffix("/mean"), _AVERAGED.sub("", bare)]
    return list(dict.fromkeys(names))


def _of_family(name: str) -> str | None:
    """A reward function's mean or deviation, a validation set's score."""
    if match := _REWARD.fullmatch(name):
        word = re.sub(r"[^\w.-]", "_", match["name"])
        if match["what"] in ("/std", "_std"):
            return None if match["eval"] else f"reward/function_std/{word}"
        return f"eval/rewards/{word}" if match["eval"] else f"rewards/{word}"
    if match := _VALIDATION.fullmatch(name):
        return "eval/slices/" + re.sub(r"[^\w.-]", "_", match["set"] or match["old"] or match["first"])
    return None


def _joined(theirs: str) -> str:
    """The name's words joined by _, in small letters."""
    return re.sub(r"[\s./-]+", "_", theirs.strip().removeprefix("train/").lower())


def _one_reward(theirs: str) -> str | None:
    """A part of the reward that is called `NAME_reward`."""
    match = _ONE_REWARD.fullmatch(_joined(theirs))
    if match is None:
        return None
    words = match["name"].split("_")
    held_out = not _EVALUATED.isdisjoint(words)
    part = "_".join(word for word in words if word not in _EVALUATED | _OF_PLACE)
    if held_out and part in _OF_SPREAD:
        return None  # eval/max_reward, std_eval_reward
    under = theirs.lower().rpartition("/")[0]
    if held_out and len(words) > 1 and (under in _EVALUATED or not under):  # initial_eval_reward, eval/format_reward
        return f"eval/rewards/{part}" if part else "eval/reward"
    if not _OF_PROSE.isdisjoint(words):
        return None
    return None if match["name"] in ("eval", "val", "test", "best") else f"rewards/{match['name']}"


def _part_of_reward(theirs: str) -> str | None:
    """A part of the reward that stands under it or behind it: `reward/bleu`, `reward_valid_json`."""
    name = _spellings(theirs)[-1]
    match = _UNDER_REWARD.fullmatch(name)
    behind = _BEHIND_REWARD.fullmatch(name) if match is None else None
    words = behind["name"].split("_") if behind is not None else []
    if not _REWARDED.isdisjoint(words) and words[-1] not in _NO_REWARDS:
        match = behind
    return None if match is None or is_statistic(match["name"]) else f"rewards/{match['name']}"


def translated(row: Cells, *, older: bool = False) -> dict[str, float | None]:
    """The row's metrics in our names, what is not a finite number as None; what has no name of ours is left out."""
    theirs, ours, other_way = _columns(tuple(row))
    values: list[float | None] = list(map(row.__getitem__, theirs))
    if None in values or not math.isfinite(sum(values)):  # type: ignore[arg-type]
        values = [value if value is not None and math.isfinite(value) else None for value in values]
    metrics = dict(zip(ours, values, strict=True))
    if other_way:
        for column, name in zip(theirs, ours, strict=True):
            if (value := metrics[name]) is not None:
                metrics[name] = in_our_sense(column, value)
    if older and "reward/std" in metrics:
        metrics["reward/group_std"] = metrics.pop("reward/std")
    return metrics


def in_our_sense(theirs: str, value: float) -> float:
    """The value of their metric as that of ours: a share of live groups as that of dead ones."""
    return 1.0 - value if _is_the_other_way(theirs) else value


@lru_cache(maxsize=200_000)
def _is_the_other_way(theirs: str) -> bool:
    """Whether the name is of a share that is one less the share of ours."""
    return theirs in _COMPLEMENTS or (_exact(theirs) is None and is_share_of_live_groups(theirs))


@lru_cache(maxsize=1000)  # a log's rows have the same names, over and over
def _columns(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """A row's names that are metrics, what those are called here, and whether one is a share the other way round."""
    pairs = metrics_of(names)
    theirs = tuple(theirs for theirs, _ in pairs)
    return theirs, tuple(ours for _, ours in pairs), any(map(_is_the_other_way, theirs))


@lru_cache(maxsize=1000)
def metrics_of(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """(theirs, ours) of a row's names: of what is logged twice one, and a name by its words where no exact one is."""
    second_ones = {theirs for theirs in names if not _SECOND.keys().isdisjoint(_spellings(theirs))}
    exact = {ours for theirs in names if theirs not in second_ones and (ours := _exact(theirs)) is not None}
    pairs: dict[str, str] = {}  # ours -> theirs
    for theirs in sorted(names, key=lambda name: _BESIDE_A_MEAN.search(name) is not None):
        ours = name_of(theirs)
        second = theirs in second_ones or _exact(theirs) is None
        if ours is not None and ours not in ("step", "update") and not (second and (ours in exact or ours in pairs)):
            pairs[ours] = theirs
    return tuple((theirs, ours) for ours, theirs in pairs.items())


def is_older(names: Iterable[str]) -> bool:
    """Whether the columns are of a TRL whose reward_std is the mean deviation inside groups."""
    return any(name in _OLDER for name in names)


@lru_cache(maxsize=200_000)
def is_aside(name: str) -> bool:
    """Whether the name is known to be of no use to a rule: counters, times, what is told twice."""
    return _ASIDE.fullmatch(re.sub(r"\s*/\s*", "/", name.strip())) is not None


def left_out(names: Iterable[str]) -> list[str]:
    """The columns that have no name of ours and are not known to be of no use, sorted."""
    return sorted({name for name in names if name_of(name) is None and not is_aside(name) and name not in STEPS})


_WORDS = {  # of a metric's name -> the metric that is proposed for a name with such a word
    "reward": "reward", "rew": "reward", "r": "reward", "score": "reward", "kl": "kl", "entropy": "entropy",
    "ent": "entropy", "loss": "loss", "grad": "grad_norm", "gradnorm": "grad_norm", "lr": "learning_rate",
    "len": "completions/length", "length": "completions/length", "truncated": "completions/truncated",
    "clipped": "completions/truncated",
}  # fmt: skip
_OTHER_WORDS = frozenset(
    {"time", "sec", "max", "min", "std", "var", "total", "num", "count", "critic", "prompt", "warmup", "coef", "coeff"}
    | {"coefficient", "weight", "target", "ctrl", "threshold", "limit", "constant", "aborted", "scale", "deviation"}
    | {"best"}
)


def proposed(name: str) -> str | None:
    """The metric that a name nobody knows may mean, for a hint; None where no word of it says so."""
    words = [word for word in re.split(r"[^a-z]+", name.lower()) if word]
    if not _OTHER_WORDS.isdisjoint(words):
        return None
    return next((_WORDS[word] for word in words if word in _WORDS), None)
