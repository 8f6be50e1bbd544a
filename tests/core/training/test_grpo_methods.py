"""No method's name is decoration: what each does to one frozen batch, and that each learns, by the real GRPO step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

import core.training.grpo
from core.algorithms.surrogates import Surrogate, surrogate
from core.config import GrpoStage
from core.config.methods import METHODS
from core.policies.base import ENTROPY, Policy, Rollout, Sampling, Scores, Weights, joined
from core.randomness import RowKey
from core.tasks.base import Example
from core.training.requests import Learn
from core.training.trainer import Parts, Trainer, drive
from tests.fakes import PricedTask, Recorder, TabularPolicy, grpo_stage, run_spec, trainer_of

DOCUMENT = (Path(__file__).parents[3] / "docs" / "algorithms.md").read_text(encoding="utf-8")

# Six prompts of four completions: graded, all wrong, one right, all equal, graded, three right.
REWARDS = [
    [0.2, 0.4, 0.7, 1.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0],
    [0.3, 0.3, 0.1 + 0.2, 0.3], [0.0, 0.4, 0.4, 0.2], [1.0, 1.0, 0.0, 1.0],
]  # fmt: skip
LENGTHS = torch.tensor([[5, 1, 3, 2], [4, 4, 2, 5], [2, 5, 4, 1], [3, 3, 3, 3], [1, 2, 5, 5], [5, 2, 1, 4]])
P, K, T = 6, 4, 5


def random(low: float, high: float, seed: int) -> Tensor:
    """Fixed numbers, (P, K, T)."""
    uniforms = torch.rand(P, K, T, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return low + (high - low) * uniforms


NEW = random(-3.0, -0.1, seed=1)
# Ratios from 0.3 to 3, and in every row of a live group one token of 7.4, whose probability moved by more than 0.2 too.
OLD = (NEW + random(-1.2, 1.2, seed=2)).clamp(max=-0.05)
NEW[:, :, 0], OLD[:, :, 0] = -0.2, -2.2
REFERENCE = NEW + random(-0.8, 0.8, seed=3)
ENTROPIES = random(0.1, 2.0, seed=4)
TASK = PricedTask(lambda prompt, output: REWARDS[prompt][int(output)], prompts=P)


class FrozenPolicy(Policy):
    """Always the same K completions of a prompt, drawn by an older policy. Its parameters are their log-probs."""

    def __init__(self, old_PKT: Tensor) -> None:
        self.logprobs_PKT, self._old_PKT = Parameter(NEW.clone()), old_PKT

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        ids = torch.tensor([int(str(prompt.facts["n"])) for prompt in prompts])
        mask_NT = (torch.arange(T) < LENGTHS[ids][:, :k].unsqueeze(-1)).flatten(0, 1)
        return Rollout(
            prompts=prompts,
            prompt_N=torch.arange(len(prompts)).repeat_interleave(k),
            actions={"prompt_ids": ids.repeat_interleave(k), "ks": torch.arange(k).repeat(len(prompts))},
            mask_NT=mask_NT,
            drawn_NT=self._old_PKT[ids][:, :k].flatten(0, 1),
            outputs=[str(number) for _ in prompts for number in range(k)],
            truncated_N=torch.zeros(len(mask_NT), dtype=torch.bool),
            how=how,
        )

    def join(self, rollouts: Sequence[Rollout]) -> Rollout:
        return joined(rollouts, padding={})

    def split(self, rollout: Rollout, rows: Sequence[int], limit: int) -> list[Sequence[int]]:
        return [rows[start : start + limit] for start in range(0, len(rows), limit)]

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        index = (rollout.actions["prompt_ids"][list(rows)], rollout.actions["ks"][list(rows)])
        values_PKT = self.logprobs_PKT if weights == "current" else REFERENCE
        return Scores(logprobs_NT=values_PKT[index], entropies_NT=ENTROPIES[index] if ENTROPY in wants else None)

    def trainable(self) -> Mapping[str, Parameter]:
        return {"logprobs": self.logprobs_PKT}


@cache
def gradient(method: str, drawn: str, beta: float) -> Tensor:
    """What a run of the method would hand its optimiser first, as one row; `beta` where the method allows one."""
    settings = {
        "method": method, "max_steps": 1, "num_generations": K, "prompts_per_step": P, "max_completion_length": T,
        "learning_rate": 0.01, **({} if "beta" in METHODS[method].axes else {"beta": beta}),
    }  # fmt: skip
    policy = FrozenPolicy(NEW if drawn == "on-policy" else OLD)
    spec = run_spec(
        GrpoStage.model_validate(settings), task={"name": "arithmetic", "train_prompts": P, "eval_prompts": P}
    )
    steps = Trainer(Parts(spec=spec, policy=policy, task=TASK)).steps()
    request, answer = next(steps), None
    while not isinstance(request, Learn):
        answer = request.run() if hasattr(request, "run") else None
        request = steps.send(answer)
    for batch in request.batches:
        for rows in policy.split(batch.rollout, batch.rows, batch.micro_rows):
            scores = policy.score(batch.rollout, rows, wants=batch.wants, weights="current")
            batch.loss(scores, rows).total.backward()
    found = policy.logprobs_PKT.grad
    assert found is not None
    return found.flatten()


def distance(one: Tensor, other: Tensor) -> float:
    """How far apart two gradients are, relative to the larger one."""
    return float((one - other).norm() / torch.maximum(one.norm(), other.norm()))


def apart(one: Tensor, other: Tensor) -> float:
    """How far apart their directions are: AdamW takes a constant factor out."""
    return distance(one / one.norm(), other / other.norm())


PAIRS = list(combinations(METHODS, 2))


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_names_are_two_gradients(one: str, other: str) -> None:
    # Off-policy, with a KL: 5 % is the nearest pair (grpo and grpo_s, whose clips seldom disagree); rounding is 1e-15.
    assert distance(gradient(one, "off-policy", 0.05), gradient(other, "off-policy", 0.05)) > 0.03


def declared(heading: str) -> set[frozenset[str]]:
    """The sets of names that a list of docs/algorithms.md says to be one: its items, up to the first colon."""
    section = DOCUMENT.split(heading, 1)[1].split("\n\n", 2)[1]
    return {frozenset(re.findall(r"`(\w+)`", item.split(":")[0])) for item in section.split("\n- ")}


@pytest.mark.parametrize("drawn", ["on-policy", "off-policy"])
def test_names_that_are_one_in_some_setting_are_declared(drawn: str) -> None:
    found = {method: gradient(method, drawn, 0.0) for method in METHODS}
    same = {name: frozenset(other for other in found if apart(found[name], found[other]) < 1e-9) for name in found}
    assert {names for names in same.values() if len(names) > 1} == declared(f"**{drawn.capitalize()}, without a KL**")


BEST_IS_2 = PricedTask(lambda prompt, output: 1.0 if output == "2" else 0.1 * float(output))
WORST_IS_2 = PricedTask(lambda prompt, output: -1.0 if output == "2" else -0.1 * float(output))


def chance_of_the_best(method: str, seed: int, task: PricedTask = BEST_IS_2) -> float:
    """Of the best of four arms, 0.25 at first, after 12 rollouts of 2 x 8 that are used twice."""
    policy = TabularPolicy()
    settings = {"method": method, "max_steps": 12, "num_generations": 8, "learning_rate": 0.15, "num_iterations": 2}
    stage = grpo_stage(**settings)
    drive(trainer_of(policy, task, stage, seed=seed, evaluation={"eval_steps": 12}).steps(), Recorder())
    return policy.chance(2)


@pytest.mark.parametrize("method", METHODS)
def test_each_method_finds_the_best_arm_in_its_budget(method: str) -> None:
    assert min(chance_of_the_best(method, seed) for seed in range(3)) > 0.8


def _backwards(*batch: Tensor, **settings: Tensor) -> Surrogate:
    right = surrogate(*batch, **settings)  # type: ignore[arg-type]
    return replace(right, values_NT=-right.values_NT)


@pytest.mark.parametrize("method", METHODS)
def test_a_surrogate_of_the_wrong_sign_loses_it(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.training.grpo, "surrogate", _backwards)
    assert chance_of_the_best(method, seed=0) < 0.1


@pytest.mark.parametrize("method", METHODS)
def test_rewards_of_the_wrong_sign_lose_it(method: str) -> None:
    assert chance_of_the_best(method, seed=0, task=WORST_IS_2) < 0.1
