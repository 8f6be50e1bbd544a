"""A spec as TRL's settings and back: what differs is said, and what was not understood is listed."""

from __future__ import annotations

from typing import Any

import pytest
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
from trl import ModelConfig

from core.config import RunSpec
from core.config.run import check_fit
from core.config.trl.settings import not_in_trl, spec_of_trl, trl_settings
from core.errors import SpecError
from grpoctl.config import experiments, load
from tests.fakes import grpo_stage

OVERRIDES = [
    [],
    ["method=cispo", "cispo_max_weight=4.0"],
    ["method=gspo"],
    ["method=sapo"],
    ["method=dr_grpo"],
    ["surrogate=dual_clip", "dual_clip=2.5"],
    ["minibatches=2", "num_iterations=3", "gradient_accumulation_steps=4"],
    ["kl_estimator=k3_ratio", "adaptive_entropy={target: 0.3}"],
    ["model.mixed_precision=bf16", "lr_scheduler_type=constant", "warmup_steps=5"],
    ["budget={completions: 320}"],
    ["optim=adamw_8bit", "adam_beta1=0.8", "adam_beta2=0.95", "adam_epsilon=1e-7"],
    ["min_p=0.1", "repetition_penalty=1.1", "model.chat_template_kwargs={enable_thinking: false}"],
    ["model.lora=null", "beta=0.1", "sync_ref_model=true", "ref_model_mixup_alpha=0.5", "ref_model_sync_steps=3"],
    ["method=gtpo"],  # left out, and the same again after it
]


def config_of(spec: RunSpec) -> dict[str, Any]:
    return {setting.field: setting.value for setting in trl_settings(spec)}


@pytest.mark.parametrize("overrides", OVERRIDES, ids=" ".join)
def test_there_and_back(overrides: list[str]) -> None:
    config = config_of(load("p31", profile="tiny", overrides=overrides).spec)
    imported = spec_of_trl("back", config)
    assert imported.misread == {}
    spec = RunSpec.model_validate(imported.tree)
    check_fit(spec)
    assert config_of(spec) == config


def test_every_shipped_language_model_goes_there_and_back() -> None:
    seen = 0
    for experiment in experiments():
        for profile in experiment.profiles:
            spec = load(experiment.name, profile=profile).spec
            if spec.model is None or all(stage.kind != "grpo" for stage in spec.stages.values()):
                continue
            config = config_of(spec)
            assert config_of(RunSpec.model_validate(spec_of_trl("back", config).tree)) == config, experiment.name
            seen += 1
    assert seen > 20


def said(overrides: list[str]) -> dict[str, str]:
    spec = load("p31", profile="tiny", overrides=overrides).spec
    return {setting.field: setting.differs for setting in trl_settings(spec)}


@pytest.mark.parametrize(
    ("overrides", "field", "says"),
    [
        ([], "scale_rewards", "0.935"),  # sqrt(7 / 8): ddof 0 of eight rewards
        (["advantage.ddof=1", "advantage.eps=1e-4"], "scale_rewards", ""),
        (["advantage.clip=2"], "scale_rewards", "advantage.clip"),
        (["advantage.scale_rewards=batch_centred"], "scale_rewards", "batch_centred"),
        ([], "use_bias_correction_kl", "k2"),
        (["kl_estimator=k3"], "use_bias_correction_kl", ""),
        (["skip_without_signal=false"], "learning_rate", ""),
        (["stages.grpo.temperature={start: 1.0, end: 0.5, steps: 9}"], "temperature", "schedule"),
        (["lr_scheduler_type=exponential"], "lr_scheduler_type", "exponential"),
        (["model.lora=null"], "weight_decay", "norms"),
        (["minibatches=2"], "steps_per_generation", "split"),
    ],
)
def test_what_differs_is_said(overrides: list[str], field: str, says: str) -> None:
    differs = said(overrides)[field]
    assert says in differs
    assert bool(differs) == bool(says)


def test_the_loss_of_each_surrogate() -> None:
    config = config_of(load("p31", profile="tiny", overrides=["method=cispo", "cispo_max_weight=4.0"]).spec)
    # TRL's epsilon_high is there the bound of the weight itself
    assert (config["loss_type"], config["epsilon_high"]) == ("cispo", 4.0)
    config = config_of(load("p31", profile="tiny", overrides=["surrogate=dual_clip", "dual_clip=2.5"]).spec)
    assert (config["loss_type"], config["delta"]) == ("grpo", 2.5)
    config = config_of(load("p31", profile="tiny", overrides=["minibatches=2", "num_iterations=3"]).spec)
    # a step of ours is 6 updates of 8 rows, 96 steps of them
    assert (config["max_steps"], config["per_device_train_batch_size"], config["steps_per_generation"]) == (576, 8, 2)


def test_what_is_left_out_is_named() -> None:
    spec = load("g10", profile="small", overrides=["dynamic_sampling={max_attempts: 3}"]).spec
    assert set(not_in_trl(spec)) == {"stages.supervised", "stages.grpo.dynamic_sampling"}
    with pytest.raises(SpecError, match="language model"):
        trl_settings(load("p40", profile="tiny").spec)


def test_trls_defaults_fill_what_a_file_leaves_out() -> None:
    tree = spec_of_trl("x", {}).tree
    stage = tree["stages"]["grpo"]
    assert (stage["num_generations"], stage["prompts_per_step"], stage["learning_rate"]) == (8, 1, 1e-6)
    assert (stage["reduction"], stage["beta"], stage["epochs"]) == ("token_mean", 0.0, 3.0)
    assert stage["advantage"] == {"scale_rewards": "group", "ddof": 1, "eps": 1e-4}
    check_fit(RunSpec.model_validate(tree))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"loss_type": "vespo"}, "loss_type"),
        ({"loss_type": "bnpo"}, "loss_type"),
        ({"report_to": "wandb"}, "report_to"),
        ({"foo": 1}, "foo"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"lr_scheduler_type": "polynomial"}, "lr_scheduler_type"),
        ({"save_total_limit": 1}, "save_total_limit"),
        ({"model_init_kwargs": {"attn_implementation": "sdpa", "dtype": "bfloat16"}}, "model_init_kwargs"),
        ({"delta": 2.0, "loss_type": "sapo"}, "delta"),
        ({"num_generations": 3, "per_device_train_batch_size": 8}, "num_generations"),
        ({"shuffle_dataset": False}, "shuffle_dataset"),
        ({"optim": "adafactor"}, "optim"),
        ({"num_generations": 0}, "num_generations"),
        ({"per_device_train_batch_size": 0}, "per_device_train_batch_size"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps"),
        ({"generation_batch_size": 0}, "generation_batch_size"),
        ({"num_iterations": -1}, "num_iterations"),
        ({"use_peft": True, "lora_r": "abc"}, "lora_r"),
        ({"use_peft": True, "lora_target_modules": 3}, "lora_target_modules"),
        ({"min_p": "low"}, "min_p"),
        ({"vllm_server_port": "many"}, "vllm_server_port"),
        ({"ref_model_sync_steps": 3, "num_iterations": 2}, "ref_model_sync_steps"),
    ],
)
def test_what_was_not_understood_is_listed_and_the_rest_is_valid(given: dict[str, Any], field: str) -> None:
    imported = spec_of_trl("x", given)
    assert list(imported.misread) == [field]
    check_fit(RunSpec.model_validate(imported.tree))


@pytest.mark.parametrize(
    ("given", "field", "instead", "mapped"),
    [
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "lr_scheduler_type", "linear", {"lr_scheduler_type": "linear"}),
        ({"warmup_steps": 0.1}, "warmup_steps", "0", {"warmup_steps": 0}),
        # steps of two updates each: 5 of warm-up are two whole steps, 101 of training are in 51
        ({"warmup_steps": 5}, "warmup_steps", "4, which are 2 steps", {"warmup_steps": 2}),
        ({"max_steps": 101}, "max_steps", "102, which are 51 steps", {"max_steps": 51}),
        ({"ref_model_sync_steps": 3}, "ref_model_sync_steps", "2, which are 1 steps", {"ref_model_sync_steps": 1}),
        ({"optim": "adafactor"}, "optim", "adamw_torch", {"optim": "adamw_torch"}),
        ({"loss_type": "vespo"}, "loss_type", "dapo", {"surrogate": "clip", "reduction": "token_mean"}),
        ({"num_generations": 3}, "num_generations", "6", {"prompts_per_step": 2}),
        ({"epsilon_high": "x"}, "epsilon_high", "null", {}),
    ],
)
def test_what_stands_in_for_a_misread_field_is_said(
    given: dict[str, Any], field: str, instead: str, mapped: dict[str, Any]
) -> None:
    imported = spec_of_trl("x", {"num_iterations": 2, **given})
    assert imported.misread[field].partition("; used instead: ")[2] == instead
    stage = imported.tree["stages"]["grpo"]
    assert {key: stage[key] for key in mapped} == mapped
    whole = spec_of_trl("x", {"num_iterations": 2, "warmup_steps": 6, "max_steps": 100})
    assert whole.misread == {}


def test_a_misread_field_says_what_was_got_and_a_misspelt_one_what_is_near() -> None:
    misread = spec_of_trl("x", {"num_generations": "eight", "per_device_train_batch_size": 6}).misread
    assert "'eight'" in misread["num_generations"]
    assert spec_of_trl("x", {"learning_rat": 1e-6}).misread["learning_rat"].endswith("did you mean learning_rate?")


def test_modules_of_an_adapter_that_a_file_does_not_name_are_pefts() -> None:
    """PEFT's own mapping for Llama, Qwen and Mistral; it is not known of which kind a model of the hub is."""
    imported = spec_of_trl("x", {"use_peft": True})
    for kind in ("llama", "qwen2", "qwen3", "mistral"):
        mapped = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING[kind]
        assert imported.tree["model"]["lora"]["target_modules"] == mapped
    assert any(line.startswith("model.lora.target_modules") for line in imported.assumed)
    told = spec_of_trl("x", {"use_peft": True, "lora_target_modules": ["o_proj"]})
    assert not any(line.startswith("model.lora.target_modules") for line in told.assumed)


def test_weights_are_in_float32_where_a_file_names_no_dtype() -> None:
    """As TRL's ModelConfig and GRPOTrainer have it; `auto` would be bfloat16 on many a GPU."""
    named = {"model_name_or_path": "a/b", "use_peft": True}
    for given, expected in (({}, ModelConfig.dtype), ({"dtype": "auto"}, "auto"), ({"dtype": "float16"}, "float32")):
        imported = spec_of_trl("x", {**named, **given})
        assert imported.tree["model"]["dtype"] == expected
        assert RunSpec.model_validate(imported.tree).language_model.dtype == expected
    assert ModelConfig.dtype == "float32"


def test_what_is_passed_on_and_what_stands_for_a_model() -> None:
    given = {"use_vllm": True, "vllm_mode": "server", "lora_r": 8, "model_name_or_path": "a/b", "dtype": "bfloat16"}
    imported = spec_of_trl("x", given)
    assert imported.misread == {}
    assert imported.tree["trainer"] == {"kind": "trl", "args": {"use_vllm": True, "vllm_mode": "server"}}
    model = imported.tree["model"]
    assert (model["source"], model["dtype"], model["lora"]["r"]) == ("a/b", "bfloat16", 8)


def test_checkpointing_goes_by_its_newer_name_first() -> None:
    for given, expected in (
        ({}, True),
        ({"gradient_checkpointing": False}, False),
        ({"gradient_checkpointing": False, "activation_checkpointing": True}, True),
    ):
        imported = spec_of_trl("x", given)
        assert imported.misread == {}
        assert imported.tree["model"]["gradient_checkpointing"] is expected


def test_rows_of_several_updates_are_one_step() -> None:
    given = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4}
    stage = spec_of_trl("x", {**given, "num_generations": 4, "num_iterations": 2, "max_steps": 8}).tree["stages"][
        "grpo"
    ]
    # 16 rows are 4 groups; 4 micro-batches are two updates of 2, done twice: 8 updates are 2 steps
    assert (stage["prompts_per_step"], stage["minibatches"], stage["max_steps"]) == (4, 2, 2)
    assert grpo_stage(num_iterations=2, minibatches=2).updates_per_rollout == 4


def test_a_reference_moves_after_as_many_updates_as_steps_have() -> None:
    overrides = ["model.lora=null", "beta=0.1", "sync_ref_model=true", "ref_model_sync_steps=3", "num_iterations=4"]
    config = config_of(load("p31", profile="tiny", overrides=overrides).spec)
    assert config["ref_model_sync_steps"] == 12  # TRL counts updates
