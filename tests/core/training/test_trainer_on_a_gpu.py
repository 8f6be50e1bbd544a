"""Runs on a pretended GPU: all that meets is where it must be, the numbers are the CPU's, and who waits is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from core.config.run import IN_A_RESTORATION
from core.faults import IN_THE_POLICY
from core.models import adapters
from core.policies.lm.causal_lm import CausalLMPolicy
from core.policies.lm.fast import decoder_step
from core.policies.lm.fast.decoder_step import Launch
from core.training.trainer import Trainer, drive
from tests.fakes import PricedTask, Recorder, grpo_stage, ran, small_policy, trainer_of
from tests.pretended_gpu import moved, pretended_gpu
from tests.replayed import replayed

Row = Mapping[str, float | None]
TASK = PricedTask(lambda _, output: sum(map(ord, output)) % 7, answer="abc")
STAGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "kl and entropy": {"beta": 0.1, "entropy_coef": 0.01},
    "kl in the reward, weighted by entropy": {"beta": 0.1, "kl_in": "reward", "entropy_weighting": "token"},
    "several updates, importance weights": {
        "num_iterations": 2, "minibatches": 2, "gradient_accumulation_steps": 2, "importance_sampling_cap": 2.0,
    },
    "dynamic sampling, blended": {
        "dynamic_sampling": {"max_attempts": 3}, "mask_truncated_completions": True,
        "supervised_weight": 0.5, "overlong": {"buffer": 0.5},
    },
    "long enough to be recorded": {"max_completion_length": 30},
}  # fmt: skip


def policy(*, lora: bool, gpu: bool, checkpointing: bool = False) -> CausalLMPolicy:
    made = small_policy(lora_dropout=0.0 if lora else None, checkpointing=checkpointing)
    if not gpu:
        return made
    model = moved(made.model)
    reference = None if lora else adapters.frozen_copy(model)
    return CausalLMPolicy(model, made.tokenizer, reference=reference, checkpointing=checkpointing)


def rows(
    kind: str, *, gpu: bool, lora: bool = True, checkpointing: bool = False, fault: str | None = None
) -> list[Row]:
    """What a run of two steps records."""
    stages: dict[str, Any] = {"grpo": grpo_stage(max_steps=2, **STAGES.get(kind, {}))}
    if kind == "stages":
        # Adam turns a gradient of rounding alone into a whole step: larger rates make other draws of it on some CPUs.
        small = {"max_steps": 1, "prompts_per_step": 2, "max_completion_length": 8, "learning_rate": 0.001}
        rce = small | {"kind": "rce", "num_generations": 4, "tau": 0.5}
        grpo = grpo_stage(max_steps=2, learning_rate=0.001)
        stages = {"sft": small | {"kind": "sft"}, "rce": rce, "grpo": grpo}
    made: Any = policy(lora=lora, gpu=gpu, checkpointing=checkpointing)
    wrapped = made if fault is None else IN_THE_POLICY[fault](made)
    return list(ran(trainer_of(wrapped, TASK, stages=stages)).rows)


def assert_same(one: list[Row], other: list[Row]) -> None:
    assert [set(row) for row in one] == [set(row) for row in other]
    for row, theirs in zip(one, other, strict=True):
        for name, value in row.items():
            assert value == pytest.approx(theirs[name], rel=1e-3, abs=1e-5, nan_ok=True), name


@pytest.mark.parametrize(
    ("kind", "lora"),
    [
        *((kind, True) for kind in [*STAGES, "stages"] if kind != "kl in the reward, weighted by entropy"),
        ("plain", False),
        pytest.param("kl in the reward, weighted by entropy", True, marks=pytest.mark.slow),
        pytest.param("stages", False, marks=pytest.mark.slow),
    ],
)
def test_a_run_records_what_it_does_on_the_cpu(kind: str, lora: bool) -> None:
    expected = rows(kind, gpu=False, lora=lora)
    with pretended_gpu():
        assert_same(rows(kind, gpu=True, lora=lora), expected)
    assert any(row.get("update") for row in expected)


# One fault in the policy stands for the others, which wrap it as this one does.
@pytest.mark.parametrize(
    ("fault", "checkpointing"),
    [
        (None, True),
        *(
            pytest.param(fault, False, marks=() if fault == "rollout-in-train-mode" else pytest.mark.slow)
            for fault in IN_THE_POLICY
            if fault not in IN_A_RESTORATION  # which is no language model
        ),
    ],
)
def test_neither_checkpointing_nor_a_fault_forgets_a_tensor(fault: str | None, checkpointing: bool) -> None:
    expected = rows("kl and entropy", gpu=False, checkpointing=checkpointing, fault=fault)
    with pretended_gpu():
        assert_same(rows("kl and entropy", gpu=True, checkpointing=checkpointing, fault=fault), expected)


def test_a_checkpoint_of_one_device_goes_on_with_the_other() -> None:
    def trainer(gpu: bool) -> Trainer:
        return trainer_of(policy(lora=True, gpu=gpu), TASK, grpo_stage(max_steps=3))

    expected = list(ran(trainer(gpu=False)).rows)
    first, killed = trainer(gpu=False), Recorder(stop_at=1)
    with pytest.raises(KeyboardInterrupt):
        drive(first.steps(), killed)
    with pretended_gpu():
        second, kept = trainer(gpu=True), Recorder()
        second.restore(first.snapshot(), killed.rows)
        drive(second.steps(), kept)
        assert_same([*killed.rows, *kept.rows], expected)


def waits(**stage: Any) -> Counter[str]:
    """Where two steps wait for the GPU, and how often, evaluations among them."""
    with pretended_gpu() as gpu:
        made = policy(lora=True, gpu=True)
        gpu.waits.clear()
        ran(trainer_of(made, TASK, grpo_stage(max_steps=2, beta=0.1, **stage), evaluation={"eval_steps": 100}))
    return gpu.waits


def test_micro_batches_are_launched_without_waiting_for_the_one_before() -> None:
    # One optimiser step of one micro-batch, and of eight: its numbers are read once.
    whole = waits(prompts_per_step=4)
    assert waits(prompts_per_step=4, gradient_accumulation_steps=8) == whole
    assert whole["core/training/update.py numbers_of: tolist"] == 2 + 1  # of each update, and of the shares of the last
    # References; integrity of steps and evaluations, entropies too; the noise of four prompts.
    assert whole["core/training/requests.py _in_order: to the CPU"] == 2 + 2 * 4 + (1 + 4)
    assert sum(whole.values()) < 80


def test_a_drawn_token_is_asked_for_its_end_every_eighth_time_and_waits_for_nothing_else() -> None:
    short, long = waits(max_completion_length=8), waits(max_completion_length=40)
    more = long - short
    assert set(more) == {"core/policies/lm/decoding.py decode: tolist"}
    rollouts = 2 + 2  # two steps, the start's evaluation and the end's
    assert more.total() <= rollouts * (40 - 8) // 8


def test_nothing_waits_while_a_step_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_step, "MIN_RECORDED", 0)
    recorded = []
    with pretended_gpu() as gpu:

        def strict(run: Launch) -> Launch:
            before = gpu.waits.total()
            replay = replayed(run)
            assert gpu.waits.total() == before
            recorded.append(run)
            return replay

        monkeypatch.setitem(decoder_step.RECORDERS, "cuda", strict)
        found = rows("plain", gpu=True, lora=True)
    assert recorded
    assert_same(found, rows("plain", gpu=False, lora=True))


def test_the_pretended_gpu_refuses_what_a_real_one_would_and_counts_what_waits() -> None:
    with pretended_gpu() as gpu:
        there = torch.ones(3, device="cuda")
        assert (there.device.type, torch.ones(3).device.type) == ("cuda", "cpu")
        assert (there + 1).is_cuda
        with pytest.raises(RuntimeError, match="same device"):
            there + torch.ones(3)
        assert gpu.waits.total() == 0
        for wait in (
            lambda: there.sum().item(),
            there.cpu,
            lambda: there[there > 0],
            lambda: there[[0, 1]],
            lambda: torch.tensor([1.0], device="cuda"),
            lambda: torch.ones(3).to("cuda"),
            lambda: bool(there.any()),
        ):
            before = gpu.waits.total()
            wait()
            assert gpu.waits.total() == before + 1
