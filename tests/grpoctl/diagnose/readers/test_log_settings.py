"""Settings from a log's own lines."""

from __future__ import annotations

from typing import Any

import pytest

from core.health.case import Settings
from grpoctl.diagnose.readers.log_settings import LogSettings, stated_settings

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
    settings = LogSettings()
    for line in text.splitlines():
        settings.look(line, before_metrics=True)
    return settings.known()


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
