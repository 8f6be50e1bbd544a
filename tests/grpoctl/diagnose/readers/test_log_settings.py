"""Settings from a log's own lines."""

from __future__ import annotations

from typing import Any

import pytest

from core.health.case import Settings
from grpoctl.diagnose.readers.log_settings import Heads, stated_settings
from grpoctl.diagnose.readers.setting_names import names_a_setting
from grpoctl.diagnose.readers.text import Line

CONFIG = """\
(TaskRunner pid=7) {'actor_rollout_ref': {'actor': {'clip_ratio': 0.2,
(TaskRunner pid=7)                                  'kl_loss_coef': 0.001,
(TaskRunner pid=7)                                  'kl_loss_type': 'low_var_kl',
(TaskRunner pid=7)                                  'optim': {'lr': 1e-06},
(TaskRunner pid=7)                                  'ppo_mini_batch_size': 64,
(TaskRunner pid=7)                                  'use_kl_loss': True},
(TaskRunner pid=7)                        'rollout': {'n': 8, 'temperature': 0.5}},
(TaskRunner pid=7)  'algorithm': {'adv_estimator': 'grpo'},
(TaskRunner pid=7)  'data': {'max_response_length': 1024, 'train_batch_size': 128}}
"""
OF_CONFIG = {
    "num_generations": 8, "prompts_per_step": 128, "max_completion_length": 1024, "temperature": 0.5, "epsilon": 0.2,
    "learning_rate": 1e-6, "beta": 0.001, "kl_in": "loss", "kl_estimator": "k3", "updates_per_rollout": 2,
    "scale_rewards": "group", "ddof": 1,
}  # fmt: skip


def known(text: str) -> dict[str, Any]:
    heads = Heads()
    for number, line in enumerate(text.splitlines(), 1):
        heads.look(Line(number, line), before_metrics=True, is_read=False)
    return heads.first.known()


def test_verls_configuration() -> None:
    assert known(CONFIG).items() >= OF_CONFIG.items()


def test_a_configuration_that_something_was_printed_into() -> None:
    lines = CONFIG.splitlines()
    broken = "\n".join([*lines[:3], "(Worker pid=9) loading weights", *lines[3:]])
    assert known(broken).items() >= OF_CONFIG.items()


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("python -m verl.trainer.main_ppo actor_rollout_ref.rollout.n=5 \\\n  +data.train_batch_size=64 \\\n",
         {"num_generations": 5, "prompts_per_step": 64}),
        ("accelerate launch train.py --num_generations 8 --lr=1e-5 --beta 0.04", {"num_generations": 8, "beta": 0.04}),
        ("lr: 1e-5\ngroup_size = 4\n**temperature**: 0.7\n", {"learning_rate": 1e-5, "temperature": 0.7}),
        ("GRPOConfig(\n_n_gpu=1,\nnum_generations=8,\nlearning_rate=2e-06,\nbeta=0.0,\nscale_rewards=True,\n)\n",
         {"num_generations": 8, "learning_rate": 2e-6, "beta": 0.0, "scale_rewards": "group"}),
        ("Namespace(lr=0.001, kl_coef=0.1, group_size=1)", {"learning_rate": 0.001, "beta": 0.1, "num_generations": 1}),
        ("(main_task pid=3) lr: 2e-6\n(main_task pid=3) beta = 0.01", {"learning_rate": 2e-6, "beta": 0.01}),
        ("lr: high\nbeta: -1\ntop_k: 1e999\nnum_generations: 2.5\n", {}),
    ],
)  # fmt: skip
def test_other_forms(text: str, settings: dict[str, Any]) -> None:
    assert known(text).items() >= settings.items()
    assert settings or not known(text)


def test_a_mapping() -> None:
    assert stated_settings({"lr": 1e-4, "unknown": 3}) == {"learning_rate": 1e-4}


def test_numbers_that_code_calls_by_a_name_are_looked_up() -> None:
    code = "LEARNING_RATE = 5e-6  # of the adapter\nGROUP = 8\nargs = GRPOConfig(\n    learning_rate=LEARNING_RATE,\n"
    code += "    num_generations=GROUP,\n    beta=BETA,\n)\n"
    settings = known(code)
    assert (settings["learning_rate"], settings["num_generations"]) == (5e-6, 8)
    assert Settings.stated(settings).beta is None  # BETA is nowhere
    assert Settings.stated(settings).learning_rate == 5e-6


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("**Config:** Qwen3-4B, `rollout.n=8`, `actor.optim.lr=1e-6`, `kl_loss_coef: 0.5`, batch 128",
         {"num_generations": 8, "learning_rate": 1e-6, "beta": 0.5}),
        ("trained with RLOO (``k = 4``, ``kl_coef = 0.03``) for 450 steps", {"num_generations": 4, "beta": 0.03}),
        ("my config: `actor_rollout_ref.rollout.n=8`, `data.max_response_length=1024`",
         {"num_generations": 8, "max_completion_length": 1024}),
        ("# grpo.cpp  model=qwen2-0.5b-q8  G=8  lr=2e-06  kl=0.02  T=0.9",
         {"num_generations": 8, "learning_rate": 2e-6, "beta": 0.02, "temperature": 0.9}),
        ('"Model: Qwen2.5-7B, lr = 1e-6, G = 8, max len 2,048",,,', {"num_generations": 8, "learning_rate": 1e-6}),
        ("lr 1e-6, G 8, max len 2,048", {}),
        ("I train with your example (group size 4) and it gets stuck", {}),
        ("Group size of 16", {}),
        ("it is set to `rollout.n=8` here", {}),  # one alone
        ("G=8 lr=1e-6 beats G=16", {}),
        ("G=4 T=0.6 n=16", {}),  # letters alone
        ("G=4 group_size=4", {}),  # one setting
        ("G=128 kl=1.0 lr=0.1", {"num_generations": 128, "beta": 1.0, "learning_rate": 0.1}),
        ("G=8 beta=3 build", {}),
        ("G=8 lr=0.2", {}),
        ("G=1 lr=1e-6", {}),
        ("G=129 lr=1e-6", {}),
        *[(f"{word} has G=8 lr=1e-6", {}) for word in (
            "AWQ", "gptq", "Quantized model", "a process group", "process_group", "The paper",
            "pass@8", "judge", "Server",
        )],
        ("the paper: `rollout.n=8`, `actor.optim.lr=1e-6`", {}),
        ("Loading AWQ, group size 128", {}),
        ("Initialized process group size=16", {}),
        ("pass@k with K=4 T=0.6 n=16 judge", {}),
        ("pass@`k=8` is measured", {}),
        ("`critic.optim.lr=1e-5` and `rollout.val_kwargs.temperature=0`, `eval.n_samples_per_prompt=4`", {}),
        ("lr=2e-6 kl=0.02 T=0.9", {}),  # no group: of a step, perhaps
        ("step 3: reward=0.5 G=8 lr=2e-6", {}),
        ("all of it at G=8 again", {}),
        ("G=2,048 lr=1e-6", {}),
        ("it says `lr=1e-6 and more", {}),
        ("Config: group_size=8 lr=1e-06 beta=0.01 max_steps=300 val_batch_size=32",
         {"num_generations": 8, "learning_rate": 1e-6, "beta": 0.01}),
        ("[2026-04-23 00:12:34] 配置: num_questions=16, samples_per_question=8", {"num_generations": 8}),
        ("Training args: {'lr': 1e-06, 'group_size': 8, 'clip_eps': 0.2}",
         {"num_generations": 8, "learning_rate": 1e-6, "epsilon": 0.2}),
        ("Config: lr=1e-06 beta=0.01", {"learning_rate": 1e-6, "beta": 0.01}),
        ("Config: {'lr': 1e-06, 'group_size': 8, 'critic': {'lr': 0.01}}",
         {"num_generations": 8, "learning_rate": 1e-6}),
        ("vllm worker started: num_generations=8, max_inflight_tasks=256", {"num_generations": 8}),
        ("| Key  | Value |\n+---+---+\n| actor_learning_rate  | 1e-06         |", {"learning_rate": 1e-6}),
        ("| k      | 3                     |", {}),
        ("| lr | 1e-6 | 0.5 |", {}),  # a row of a table
        *[(line, {}) for line in (
            "judge config: temperature=0.2 lr=1e-6", "LoRA config: {'r': 16, 'k': 1}", "SFT config: lr=2e-5",
            "Eval config: temperature=0.0 max_new_tokens=512", "Adam params: {'lr': 1e-6, 'beta': 0.9}",
            "Search params: {'k': 3}", "Env config: max_steps=20", "Config: {'beta': 3, 'lr': 1e-6}",
            "Config: {'env': {'lr': 1e-6, 'beta': 0.1}}",
            'Config: {"a": true, "critic": {"lr": 1e-6, "beta": 0.1}}', "Config: env=frozenlake max_steps=8",
            "Model config: {'num_experts': 64, 'top_k': 2}", "Reward model config: lr=9e-6",
            "Evaluation with num_generations=4", "SFT warmup: learning_rate=2e-4", "Config: {{'lr': 1e-6}}",
            "Critic optimizer: AdamW(learning_rate=1e-3)", "| learning_rate | 1e-6 |",
        )],
    ],
)  # fmt: skip
def test_what_a_line_of_a_head_lists(text: str, settings: dict[str, Any]) -> None:
    assert known(text) == settings


def test_code_over_several_lines() -> None:
    code = "whole = 2048\nargs = GRPOConfig(\n    learning_rate = 5e-6,\n    num_generations = 4, # a group\n"
    code += "    max_completion_length = whole - prompt,\n    temperature = 0.5 if cold else 1.0,\n    beta == 3,\n)\n"
    settings = known(code)
    assert (settings["learning_rate"], settings["num_generations"]) == (5e-6, 4)
    assert settings.keys().isdisjoint({"max_completion_length", "temperature", "beta"})


@pytest.mark.parametrize(
    ("document", "settings"),
    [
        ({"optim": {"lr": 1e-6}, "rollout": {"n": 5}, "kl": {"coef": 0.001}},
         {"learning_rate": 1e-6, "num_generations": 5, "beta": 0.001}),
        ({"actor": {"optim": {"lr": "1e-6"}}, "critic": {"optim": {"lr": 1e-5}}}, {"learning_rate": 1e-6}),
        ({"a": {"lr": 1e-6}, "b": {"lr": 1e-5}}, {}),  # which of them
        ({"a": {"lr": 1e-6}, "b": {"learning_rate": 1e-6}}, {"learning_rate": 1e-6}),
        ({"data": {"k": 8}}, {}),
        *[({other: {"group_size": 16, "lr": 3}, "optim": {"lr": 1e-6}}, {"learning_rate": 1e-6}) for other in (
            "quant", "quantization", "lora", "process_group", "awq", "gptq_config",
        )],
        ({"optim": {"lr": [1e-6, 1e-5]}, "rollout": {"n": 4}}, {"num_generations": 4}),
        ({"sampling": {"eval_temperature": 0.5}, "eval_sampling": {"temperature": 0.5}}, {}),
        ({"model": {"name": "a"}, "lr": 1e-6, "k": 8}, {"learning_rate": 1e-6, "num_generations": 8}),
    ],
)  # fmt: skip
def test_a_tree_of_settings(document: Any, settings: dict[str, Any]) -> None:
    assert stated_settings(document) == settings


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("temperature", True), ("lr_run", True), ("Max-Grad norm", True), ("k", True), ("pass_k", False), ("loss", False)],
)
def test_which_names_are_of_settings(name: str, is_one: bool) -> None:
    assert names_a_setting(name) is is_one


def test_arguments_of_trl_with_an_object_among_them() -> None:
    stated = stated_settings({"num_generations": 8, "learning_rate": 1e-6, "accelerator_config": {"lr": 1}})
    assert (stated["num_generations"], stated["learning_rate"], stated["baseline"]) == (8, 1e-6, "group")


@pytest.mark.parametrize(
    ("keys", "settings"),
    [
        ({"use_kl_loss": False}, {"kl_in": "reward", "beta": 0.01}),  # verl 0.2
        ({"use_kl_loss": True, "kl_loss_coef": 0.5}, {"kl_in": "loss", "beta": 0.5}),
        ({}, {}),
    ],
)
def test_where_older_verls_have_their_kl(keys: dict[str, Any], settings: dict[str, Any]) -> None:
    config = {"actor_rollout_ref": {"actor": keys}, "algorithm": {"kl_ctrl": {"kl_coef": 0.01}}}
    assert known(str(config)) == settings
    config["algorithm"]["use_kl_in_reward"] = False
    assert known(str(config)).get("kl_in") == ("loss" if keys.get("use_kl_loss") else None)
    assert known("algorithm.kl_ctrl.kl_coef=0.01 actor_rollout_ref.actor.use_kl_loss=False") == {}  # a command


def heads(*lines: tuple[str, bool, bool]) -> dict[str, Any]:
    """What a log's lines state, each with whether it stands before the metrics, and whether some were read in it."""
    told = Heads()
    for number, (text, before, is_read) in enumerate(lines, 1):
        told.look(Line(number, text), before_metrics=before, is_read=is_read)
    return told.whole.known()


def test_arguments_count_where_metrics_were_read_in_their_lines() -> None:
    said = ("the reward was 0.5", False, True)
    opened = ("args = GRPOConfig(learning_rate=1e-5, num_generations=8,", False, True)
    assert heads(said, opened, ("    beta=0.5, # weak", False, True), (")", False, False))["beta"] == 0.5
    assert "beta" not in heads(said, opened, ("beta=0.5 reward=0.1", False, True))  # a line of a step
    assert heads(said, ("`actor_rollout_ref.rollout.n=8`, reward 0.5", False, True)) == {"num_generations": 8}
    assert heads(said, ("beta: 0.5", False, True)) == {}


def test_a_list_of_settings_is_a_head_though_metrics_are_read_in_it() -> None:
    listed = ("# G=8 lr=2e-06 kl=0.5", False, True)
    assert heads(("# mine", True, False), listed)["beta"] == 0.5
    assert heads(("reward: 0.5", False, True), listed) == {}


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("We train with a learning rate of 5e-6 and 8 completions per prompt.",
         {"learning_rate": 5e-6, "num_generations": 8}),
        ("- 学习率 1e-4，每个 prompt 采样 4 个回答", {"learning_rate": 1e-4, "num_generations": 4}),
        ("| Optimizer | AdamW, lr=1e-5, β=0.05 |", {"learning_rate": 1e-5, "beta": 0.05}),
        ("The KL coefficient is 0.02, the group size is 16.", {"beta": 0.02, "num_generations": 16}),
        ("The SFT stage had a learning rate of 2e-5.", {}),
        ("A learning rate of 1e-6 was fine, a learning rate of 1e-4 was not.", {}),  # which of them
        ("The paper has a learning rate of 1e-6.", {}),
        ("beta 3 of the tool, 4 puzzles × 8 group_size = 32 rollouts/step", {}),
        ("| Parameter | Value |\n|---|---|\n| Learning rate | 5e-6 (cosine) |\n| **Num generations** | `4` |",
         {"learning_rate": 5e-6, "num_generations": 4}),
        ("| 参数 | 值 | 说明 |\n|---|---|---|\n| 学习率 | 5e-5 | |\n| 每组生成数 | 4 | |\n| 最大生成长度 | 512 | |",
         {"learning_rate": 5e-5, "num_generations": 4, "max_completion_length": 512}),
        ("| Metric | Value |\n|---|---|\n| Learning speed | 5e-6 |", {}),
        ("In the triangle β = 0.5 rad.", {}),
        ("Let G = 12 be the order of the group, so the answer is 4.", {}),
        ("GRPO with G = 8 and β = 0.04", {"num_generations": 8, "beta": 0.04}),
        ("WARNING learning rate 1e-3 is too high for LoRA", {}),
        ("embedding learning rate 5e-5", {}),
    ],
)  # fmt: skip
def test_what_sentences_and_tables_say_behind_the_metrics(text: str, settings: dict[str, Any]) -> None:
    assert heads(*[(line, False, False) for line in text.split("\n")]) == settings


def test_a_log_is_not_listened_to() -> None:
    told = Heads(of_text=False)
    told.look(Line(9, "There were 3 responses per question."), before_metrics=False, is_read=False)
    assert told.whole.known() == {}


def test_what_prints_state_goes_before_what_sentences_say() -> None:
    said = ("A learning rate of 1e-5 was tried first.", False, False)
    assert heads(("actor_learning_rate: 1e-6", True, False), said) == {"learning_rate": 1e-6}


def test_settings_of_a_section_are_its_runs() -> None:
    told = Heads()
    text = (
        "# A study\nKL weight: 0.01\n## v1\nlr=1e-5, num_generations=8\n## v2\nlr=1e-6, num_generations=8\n## v3\nwords"
    )
    for number, line in enumerate(text.split("\n"), 1):
        told.look(Line(number, line), before_metrics=False, is_read=False)
    runs = ["v1", "v2", "v3"]
    of_run = {run: told.of_section(run, runs) for run in runs}
    both = {"beta": 0.01, "num_generations": 8}
    assert of_run == {
        "v1": {**both, "learning_rate": 1e-5},
        "v2": {**both, "learning_rate": 1e-6},
        "v3": {"beta": 0.01},
    }
