"""Every kind of bad value: file, line, key, what was got, what is allowed, what was probably meant."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from core.config.run import Fault
from core.errors import SpecError
from grpoctl.config import Library, load
from grpoctl.config.problems import ALIASES, nearest
from grpoctl.config.schema import fields


def refusal(tmp_path: Path, text: str) -> SpecError:
    """The error of `text`, which starts in line 3 of a file that extends p31."""
    (tmp_path / "x.yaml").write_text(f"name: x\nextends: p31\n{text}\n")
    with pytest.raises(SpecError) as caught:
        load("x", library=Library(user=tmp_path))
    assert caught.value.file == tmp_path / "x.yaml"
    assert "\n" not in str(caught.value)
    return caught.value


STAGE = "{max_steps: 1, num_generations: 2, prompts_per_step: 1, learning_rate: 1}"
G = "stages:\n  grpo:\n    "
VALUES = [
    (
        G + "learning_rate: '3'",
        5,
        "stages.grpo.learning_rate",
        "got the string '3'; write it without quotes; allowed: a number >= 0",
    ),
    (G + "learning_rate: true", 5, "stages.grpo.learning_rate", "got true; allowed: a number >= 0"),
    (G + "learning_rate: -1", 5, "stages.grpo.learning_rate", "got -1; allowed: a number >= 0"),
    (G + "learning_rate: null", 5, "stages.grpo.learning_rate", "got null; allowed: a number >= 0"),
    (G + "learning_rate: [1]", 5, "stages.grpo.learning_rate", "got a list of 1; allowed: a number >= 0"),
    (G + "learning_rate: {a: 1}", 5, "stages.grpo.learning_rate", "got a mapping; allowed: a number >= 0"),
    (G + "learning_rate: 2e-6x", 5, "stages.grpo.learning_rate", "got the string '2e-6x'; allowed: a number >= 0"),
    (G + "learning_rate: .nan", 5, "stages.grpo.learning_rate", "got .nan; allowed: finite numbers"),
    (G + "max_steps: 1.0", 5, "stages.grpo.max_steps", "got 1.0; allowed: an integer >= 1"),
    (G + "max_steps: true", 5, "stages.grpo.max_steps", "got true; allowed: an integer >= 1"),
    (G + "num_generations: 1", 5, "stages.grpo.num_generations", "got 1; allowed: an integer >= 2 and <= 1024"),
    (G + "top_p: 1.5", 5, "stages.grpo.top_p", "got 1.5; allowed: a number > 0 and <= 1"),
    (G + "epsilon_high: 0", 5, "stages.grpo.epsilon_high", "got 0; allowed: a number > 0"),
    (
        G + "temperature: -1",
        5,
        "stages.grpo.temperature",
        "got -1; allowed: a number > 0, or a mapping with start, end and steps",
    ),
    (G + "temperature: {start: 0}", 5, "stages.grpo.temperature.start", "got 0; allowed: a number > 0"),
    (
        G + "skip_without_signal: no",
        5,
        "stages.grpo.skip_without_signal",
        "got the string 'no'; allowed: true or false",
    ),
    (
        G + "reduction: token_meen",
        5,
        "stages.grpo.reduction",
        "got the string 'token_meen'; allowed: one of sequence_mean, token_mean, constant_length, sequence_sum; "
        "did you mean token_mean?",
    ),
    (G + "advantage: {ddof: 2}", 5, "stages.grpo.advantage.ddof", "got 2; allowed: one of 0, 1"),
    (G + "advantage: {ddof: true}", 5, "stages.grpo.advantage.ddof", "got true; allowed: one of 0, 1"),
    (
        G + "warmup_steps: 501",
        5,
        "stages.grpo.warmup_steps",
        "got 501; allowed: at most the learning rate's horizon, lr_scheduler_steps = 500",
    ),
    (
        G + "prompts_per_step: 9999",
        5,
        "stages.grpo.prompts_per_step",
        "got 9999; allowed: at most task.train_prompts = 6324",
    ),
    ("stages: null", 3, "stages", "got null; allowed: a mapping"),
    (
        f"stages:\n  Grpo: {STAGE}",
        4,
        "stages.Grpo",
        "got the name 'Grpo'; allowed: a name of lower-case letters, digits, - and _ (at most 64)",
    ),
    (
        "task: {name: workflows-dsl}",
        3,
        "task.name",
        "got the string 'workflows-dsl'; allowed: one of workflow-dsl, arithmetic, gsm8k, custom, example-selection, "
        "restoration, external; did you mean workflow-dsl?",
    ),
    (
        "task: {name: reach}",
        3,
        "task.name",
        "got the string 'reach'; allowed: one of workflow-dsl, arithmetic, gsm8k, custom, example-selection, "
        "restoration, external; if a package adds it, that package is not installed here",
    ),
    (
        "policy: {kind: slots}",
        3,
        "policy.kind",
        "got 'slots'; allowed: one of lm, pointer, restoration, external; "
        "if a package adds it, that package is not installed here",
    ),
    (
        "task: 3",
        3,
        "task",
        "got 3; allowed: a mapping that names its task "
        "(name: workflow-dsl or arithmetic or gsm8k or custom or example-selection or restoration "
        "or external)",
    ),
    ("task: {domains: {maths: 1}}", 3, "task.domains.maths", "got the name 'maths'; allowed: one of math, qa, code"),
    (
        "task: {domains: {math: x}}",
        3,
        "task.domains.math",
        "got the string 'x'; allowed: a non-empty mapping of one of math, qa, code to a number >= 0",
    ),
    (
        "task: {domains: {math: 0, qa: 0}}",
        3,
        "task.domains",
        "every weight is 0; at least one domain needs a weight above 0",
    ),
    ("model: {source: ''}", 3, "model.source", "got the string ''; allowed: text that is not empty"),
    (
        "model: {dtype: float16}",
        3,
        "model.dtype",
        "got the string 'float16'; allowed: one of auto, float32, bfloat16; did you mean bfloat16?",
    ),
    (
        "model:\n  lora:\n    target_modules:\n      - q_proj\n      - 3",
        7,
        "model.lora.target_modules[1]",
        "got 3; allowed: text",
    ),
    (
        "model: {lora: {target_modules: []}}",
        3,
        "model.lora.target_modules",
        "got an empty list; allowed: a non-empty list of text",
    ),
    (
        "model: {lora: {target_modules: q_proj}}",
        3,
        "model.lora.target_modules",
        "got the string 'q_proj'; allowed: a non-empty list of text",
    ),
    (
        "evaluation: null",
        3,
        "evaluation",
        "got null; allowed: a mapping with eval_steps, num_generations_eval, temperature, slice_by",
    ),
    ("checkpoints: {save_total_limit: 1}", 3, "checkpoints.save_total_limit", "got 1; allowed: an integer >= 2"),
    ("early_stopping: {min_delta: 1}", 3, "early_stopping.patience", "is missing; allowed: an integer >= 1"),
    ("guards: {collapse: no}", 3, "guards.collapse", "got the string 'no'; allowed: one of stop, warn, off"),
    (
        "faults: [rollout-in-train]",
        3,
        "faults[0]",
        f"got the string 'rollout-in-train'; allowed: one of {', '.join(get_args(Fault))}; "
        "did you mean rollout-in-train-mode?",
    ),
    (
        "expects: [kl < 1, advantage/sdt > 1]",
        3,
        "expects[1]",
        "unknown metric 'advantage/sdt'; did you mean advantage/std?",
    ),
    (
        "recorded: {updates: many}",
        3,
        "recorded.updates",
        "got the string 'many'; allowed: a mapping of text to a number",
    ),
    ("revision: 0", 3, "revision", "got 0; allowed: an integer >= 1"),
    ("seed: 1.5", 3, "seed", "got 1.5; allowed: an integer >= 0"),
    ("title: 3", 3, "title", "got 3; allowed: text"),
]


@pytest.mark.parametrize(("text", "line", "key", "message"), VALUES)
def test_a_bad_value(text: str, line: int, key: str, message: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, text)
    assert (error.line, error.key, error.message) == (line, key, message)
    assert str(error) == f"{tmp_path / 'x.yaml'}: line {line}: {key}: {message}"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("kl_loss_coef: 1", "stages.grpo.beta"),  # document 000, at the wrong place too
        (G + "kl_loss_coef: 1", "stages.grpo.beta"),
        (G + "optimizer: sgd", "stages.grpo.optim"),
        (G + "beta1: 0.9", "stages.grpo.adam_beta1"),
        (G + "adam_eps: 0.1", "stages.grpo.adam_epsilon"),
        (G + "stop_sequences: [x]", "stages.grpo.stop_strings"),
        (G + "repeat_penalty: 1.1", "stages.grpo.repetition_penalty"),
        (G + "grpo_beta_kl: 1", "stages.grpo.beta"),  # document 003
        (G + "num_return_sequences_in_group: 8", "stages.grpo.num_generations"),
        (G + "rollout_batch_size: 2", "stages.grpo.prompts_per_step"),
        (G + "per_device_train_batch_size: 2", "stages.grpo.prompts_per_step"),
        (G + "lr: 1", "stages.grpo.learning_rate"),
        (G + "LR: 1", "stages.grpo.learning_rate"),
        (G + "max-steps: 1", "stages.grpo.max_steps"),
        (G + "clip_ratio_high: 1", "stages.grpo.epsilon_high"),
        (G + "delta: 4", "stages.grpo.dual_clip"),  # TRL's two-sided clip: min(rho, delta) A where A < 0
        (G + "max_new_tokens: 1", "stages.grpo.max_completion_length"),
        (G + "scale_rewards: group", "stages.grpo.advantage.scale_rewards"),
        (G + "loss_type: dapo", "stages.grpo.reduction"),
        (G + "learnin_rate: 1", "stages.grpo.learning_rate"),
        (G + "kl_los_coef: 1", "stages.grpo.beta"),  # a misspelled alias
        ("learning_rate: 1", "stages.grpo.learning_rate"),
        ("evaluation: {temprature: 1}", "evaluation.temperature"),  # the sibling, not the stage's
        (G + "advantage: {temperature: 1}", "stages.grpo.temperature"),  # not evaluation.temperature, which is farther
        ("guards: {max_step: 1}", "stages.grpo.max_steps"),  # not its sibling max_kl
        ("lora_rank: 8", "model.lora.r"),
        ("model: {lora_r: 8}", "model.lora.r"),
        ("eval_every: 1", "evaluation.eval_steps"),
        ("guard: {collapse: stop}", "guards"),
        ("extend: p30", "extends"),
        ("task: {nam: arithmetic}", "task.name"),
        (G + "max_gradient_norm: 1", "stages.grpo.max_grad_norm"),
        (G + "learningrate: 1", "stages.grpo.learning_rate"),
        ("profils: {}", "profiles"),
    ],
)
def test_an_unknown_key_names_the_one_that_was_meant(text: str, meant: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, text)
    assert error.message == f"unknown key; did you mean {meant}?"
    assert error.line == 3 + text.count("\n")


def test_an_unknown_key_like_no_other_lists_what_is_known_there(tmp_path: Path) -> None:
    known = "unknown key; known here: eval_steps, num_generations_eval, temperature, slice_by"
    assert refusal(tmp_path, "evaluation: {zzz: 1}").message == known


@pytest.mark.parametrize(
    "key",
    [
        *("typical_p", "max_tool_calling_iterations", "HARD_WEIGHT", "reward_alpha", "sgd_momentum", "log_completions"),
        *("use_liger_loss", "max_prompt_length", "min_new_tokens", "eval_reward", "reward_clip", "hard_ratio"),
        *("rollout.name", "trainer.name", "actor_rollout_ref.rollout.name"),
    ],
)
def test_a_name_of_something_else_is_given_no_key_of_ours(key: str) -> None:
    with pytest.raises(SpecError) as caught:
        load("p31", overrides=[f"{key}=4"])
    assert caught.value.key == key
    assert "did you mean" not in caught.value.message


@pytest.mark.parametrize(
    ("experiment", "key", "meant"),
    [
        ("staged", "USE_RANK_ADVANTAGE", "stages.blended.advantage.transform"),
        ("staged", "GRPO_LR", "stages.blended.learning_rate"),
        ("staged", "sft_lr", "stages.supervised.learning_rate"),
        ("staged", "KL_BETA", "stages.blended.beta"),
        ("staged", "grpo_epochs", "stages.blended.epochs"),
        ("staged", "grpo_top_k", "stages.blended.keep_candidates"),
        ("rce-only", "RCE_LR", "stages.rce.learning_rate"),
        ("rce-only", "RCE_TEMP_START", "stages.rce.tau.start"),
        ("rce-only", "rce_temp_end", "stages.rce.tau.end"),
        ("rce-only", "RCE_EPOCHS", "stages.rce.epochs"),
        ("staged", "RCE_LR", None),  # it has no such stage
        ("p40", "REWARD_MODE", "task.reward_mode"),
        ("p40", "HARD_WEIGHT", "task.hard_weight"),
        ("p40", "REWARD_BETA", "task.reward_beta"),
        ("p40", "GRPO_LR", "stages.grpo.learning_rate"),
    ],
)
def test_the_names_of_documents_001_and_004(experiment: str, key: str, meant: str | None) -> None:
    with pytest.raises(SpecError) as caught:
        load(experiment, overrides=[f"{key}=3"])
    assert caught.value.message.startswith("unknown key; did you mean ") == (meant is not None)
    assert f"did you mean {meant}?" in caught.value.message or meant is None


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("GRPO_GROUP", "stages.grpo.num_generations"),
        ("grpo_lambda_sup", "stages.grpo.loss_weights.supervised"),
        ("grpo_schedule_sup", "stages.grpo.loss_weights.supervised"),
        ("GRPO_LAMBDA_CONSISTENCY", "stages.grpo.loss_weights.consistency"),
        ("grpo_beta_kl", "stages.grpo.loss_weights.penalty"),
        ("stages.grpo.lambda_sup", "stages.grpo.loss_weights.supervised"),
        ("grpo_warmup_epochs", "stages.grpo.policy_weight"),
        ("grpo_global_norm", "stages.grpo.advantage.scale_rewards"),
        ("grpo_clip_range", "stages.grpo.epsilon"),
        ("grpo_adv_clip_max", "stages.grpo.advantage.clip"),
        ("grpo_max_grad_norm", "stages.grpo.max_grad_norm"),
        ("grpo_w_psnr", "task.w_psnr"),
        ("grpo_w_ssim", "task.w_ssim"),
        ("task.w_psnrr", "task.w_psnr"),
    ],
)
def test_the_names_of_document_003(key: str, meant: str) -> None:
    with pytest.raises(SpecError) as caught:
        load("p31", overrides=["task.name=restoration", f"{key}=0.3"])
    assert caught.value.message.startswith(f"unknown key; did you mean {meant}?")


def test_every_name_from_elsewhere_leads_to_a_key_there_is() -> None:
    known = fields({"stages": {"grpo": {"kind": "grpo"}, "rce": {"kind": "rce"}}}, all_tasks=True)
    for theirs in ALIASES:
        found = nearest(("stages", "grpo", theirs), known)
        assert found is not None, theirs
        assert ".".join(map(str, found)).endswith(ALIASES[theirs])
        own = {path for path in known if path[-1] == theirs}
        # TRL's delta is another thing than the key of adaptive_entropy, which is known where it stands
        assert own == ({("stages", "grpo", "adaptive_entropy", "delta")} if theirs == "delta" else set()), theirs


def test_the_first_of_several_problems_is_told_and_the_others_counted(tmp_path: Path) -> None:
    two = refusal(tmp_path, G + "learning_rate: x\n    beta: x")
    assert ("'x'" in two.message, two.message.endswith("(and 1 more problem)")) == (True, True)
    three = refusal(tmp_path, "seed: x\n" + G + "bta: 1\n    epsilon: -2")
    # unknown keys first
    assert ("stages.grpo.beta" in three.message, three.message.endswith("(and 2 more problems)")) == (True, True)


def test_a_long_value_is_shortened(tmp_path: Path) -> None:
    assert len(str(refusal(tmp_path, f"seed: {'x' * 9000}").message)) < 120


@pytest.mark.parametrize(
    ("stage", "key", "says"),
    [
        ("kind: sfft", "kind", "got the string 'sfft'; allowed: one of grpo, sft, rce; did you mean sft?"),
        ("kind: sft, max_steps: 2, prompts_per_step: 1", "learning_rate", "is missing; allowed: a number >= 0"),
        (f"kind: rce, tau: 0, {STAGE[1:-1]}", "tau", "got 0; allowed: a number > 0"),
        ("kind: sft, beta: 0.1", "beta", "unknown key; did you mean stages.grpo.beta? (and 3 more problems)"),
    ],
)
def test_a_problem_of_a_stage_of_another_kind(stage: str, key: str, says: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, f"stages: {{warm: {{{stage}}}}}")
    assert (error.key, error.message) == (f"stages.warm.{key}", says)
