"""What of a spec TRL cannot do: each refusal names the key and says that TRL has no such thing."""

from __future__ import annotations

from typing import Any

import pytest

from core.config import GrpoStage
from core.config.run import check_fit
from core.config.trl.fit import LOSSES, argument_problem, micro_rows, unfit
from core.errors import SpecError
from grpoctl.config import load
from tests.fakes import grpo_stage

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"method": "gtpo"}, "entropy_weighting", "gtpo"),
    ({"method": "grpo_s"}, "entropy_weighting", "grpo_s"),
    ({"method": "dapo"}, "dynamic_sampling", "no dynamic sampling"),
    ({"method": "dppo"}, "surrogate", "dppo"),
    ({"method": "rloo"}, "kl_in", "loss alone"),
    ({"surrogate": "sapo", "reduction": "token_mean"}, "reduction", "sequence_mean"),
    ({"beta": 0.1, "adaptive_beta": {"rule": "threshold"}}, "adaptive_beta", "KL"),
    ({"beta": 0.1, "kl_estimator": "forward_k3"}, "kl_estimator", "forward_k3"),
    ({"supervised_weight": 0.1}, "supervised_weight", "0.1"),
    ({"policy_weight": {"start": 0, "end": 1, "steps": 4}}, "policy_weight", "schedule"),
    ({"keep_candidates": 2}, "keep_candidates", "every completion"),
    ({"positive_reward": 0.5}, "positive_reward", "every group"),
    ({"groups": "offline"}, "groups", "offline"),
    ({"old_policy": "reference"}, "old_policy", "sampled"),
    ({"early_stopping": {"patience": 2}}, "early_stopping", "one stage"),
    ({"importance_sampling_cap": 2.0}, "importance_sampling_cap", "use_vllm"),
    ({"optim": "radam"}, "optim", "radam"),
    ({"stop_strings": ("a",)}, "stop_strings", "tokenizer"),
    ({"stop_strings": ("a",)}, "stop_strings", "got [a]"),
    ({"entropy_coef": {"start": 0.1, "end": 0, "steps": 4}}, "entropy_coef", "one number"),
]


@pytest.mark.parametrize(("settings", "key", "says"), REFUSED)
def test_what_has_no_counterpart_is_refused(settings: dict[str, Any], key: str, says: str) -> None:
    problems = dict(unfit(grpo_stage(**settings), {}, 1))
    assert key in problems
    assert says in problems[key]


def test_a_reference_that_follows_an_adapter_is_refused() -> None:
    stage = grpo_stage(beta=0.1, sync_ref_model=True)
    assert list(dict(unfit(stage, {}, 1, adapter=True))) == ["sync_ref_model"]
    assert dict(unfit(stage, {}, 1)) == {}


def test_with_vllm_a_cap_has_a_counterpart() -> None:
    assert dict(unfit(grpo_stage(importance_sampling_cap=2.0), {"use_vllm": True}, 1)) == {}


def test_a_cap_is_said_once() -> None:
    args = {"use_vllm": True, "vllm_importance_sampling_mode": "token_mask"}
    assert "trainer.args" in dict(unfit(grpo_stage(importance_sampling_cap=2.0), args, 1))["importance_sampling_cap"]


@pytest.mark.parametrize("pair", LOSSES)
def test_what_has_a_counterpart_is_not_refused(pair: tuple[str, str]) -> None:
    surrogate, reduction = pair
    assert dict(unfit(grpo_stage(surrogate=surrogate, reduction=reduction, beta=0.1), {}, 1)) == {}


@pytest.mark.parametrize(
    ("k", "prompts", "minibatches", "accumulation", "processes", "expected"),
    [
        (8, 2, 1, 1, 1, (16, 1)),
        (8, 2, 1, 8, 1, (2, 8)),
        (2, 3, 1, 8, 1, (1, 6)),  # 6 rows in 8 micro-batches: one each
        (2, 3, 1, 4, 1, (2, 3)),  # of ceil(6 / 4) = 2 rows each: three of them
        (8, 2, 1, 3, 1, (4, 4)),  # ceil(16 / 3) = 6 rows: of 16 the next count that divides them is 4
        (8, 2, 2, 2, 2, (2, 2)),
    ],
)
def test_micro_batches_are_of_equal_size(
    k: int, prompts: int, minibatches: int, accumulation: int, processes: int, expected: tuple[int, int]
) -> None:
    stage: GrpoStage = grpo_stage(
        num_generations=k, prompts_per_step=prompts, minibatches=minibatches, gradient_accumulation_steps=accumulation
    )
    rows, count = micro_rows(stage, processes)
    assert rows * count * minibatches * processes == k * prompts
    assert (rows, count) == expected


@pytest.mark.parametrize(
    ("name", "says"),
    [("beta", "stages.grpo.beta"), ("output_dir", "folder"), ("bta", "beta"), ("hub_token", "HF_TOKEN")],
)
def test_arguments_that_cannot_be_passed(name: str, says: str) -> None:
    assert says in str(argument_problem(name, None))


def test_a_whole_spec() -> None:
    check_fit(load("p31", profile="tiny", overrides=["trainer.kind=trl"]).spec)
    for overrides, key in ((["method=gtpo"], "entropy_weighting"), (["faults=[missing-eos]"], "faults")):
        with pytest.raises(SpecError) as caught:
            check_fit(load("p31", profile="tiny", overrides=["trainer.kind=trl", *overrides]).spec)
        assert key in str(caught.value.key)
    with pytest.raises(SpecError) as caught:
        check_fit(load("g10", profile="tiny", overrides=["trainer.kind=trl"]).spec)
    assert caught.value.key == "stages.supervised"
    with pytest.raises(SpecError, match="causal language model"):
        check_fit(load("p40", profile="tiny", overrides=["trainer.kind=trl"]).spec)


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("trainer.args.beta=1", "trainer.args.beta"),
        ("trainer.args.vllm_mode=foo", "trainer.args.vllm_mode"),
        ("trainer.args={vllm_server_port: many}", "trainer.args.vllm_server_port"),
        ("trainer.args.dataloader_prefetch_factor=2", "trainer.args.dataloader_prefetch_factor"),
        ("trainer.processes=0", "trainer.processes"),
        ("trainer.command=x", "trainer.command"),
    ],
)
def test_a_trainers_settings_are_its_own(override: str, key: str) -> None:
    with pytest.raises(SpecError) as caught:
        load("p31", profile="tiny", overrides=["trainer.kind=trl", override])
    assert caught.value.key == key
    with pytest.raises(SpecError):
        load("p31", profile="tiny", overrides=["trainer.args.use_vllm=true"])
