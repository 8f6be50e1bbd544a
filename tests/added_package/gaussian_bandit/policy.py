"""Gaussian actions: each action is drawn around a linear function of the context.

Shape suffixes: P contexts, N rows, R some of them, C context numbers, T actions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from core.errors import CheckpointError
from core.policies.base import ENTROPY, Policy, Rollout, Sampling, Scores, Weights
from core.randomness import INIT, RowKey, uniforms
from core.tasks.base import Example
from gaussian_bandit.settings import GaussianBanditConfig


class GaussianBandit(Policy):
    """mean = W x + b and a standard deviation for each of T actions; a temperature multiplies the deviations."""

    def __init__(self, settings: GaussianBanditConfig, *, seed: int) -> None:
        start = uniforms([RowKey(seed, INIT, 0, 0, 0)], settings.context * settings.actions)
        self._weights = {
            "bias": Parameter(torch.zeros(settings.actions)),
            "log_sigma": Parameter(torch.full((settings.actions,), math.log(settings.sigma))),
            "map": Parameter(0.1 * (start.float().view(settings.actions, settings.context) - 0.5)),
        }
        self._reference = {name: weight.detach().clone() for name, weight in self._weights.items()}

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        contexts_NC = _contexts(prompts).repeat_interleave(k, 0)
        with torch.no_grad():
            mean_NT, log_sigma_T = self._distribution(contexts_NC, self._weights, how.temperature)
            noise_NT = torch.special.ndtri(uniforms(keys, mean_NT.shape[1]).clamp(1e-12, 1 - 1e-12)).float()
            drawn_NT = mean_NT + log_sigma_T.exp() * noise_NT
            logprobs_NT = _density(drawn_NT, mean_NT, log_sigma_T)
        prompt_N = torch.arange(len(prompts)).repeat_interleave(k)
        return self._rollout(prompts, prompt_N, contexts_NC, drawn_NT, how, logprobs_NT)

    def replay(self, prompts: Sequence[Example], outputs: Sequence[Any]) -> Rollout:
        given_NT = torch.tensor([list(output) for output in outputs], dtype=torch.float32)
        how = Sampling(temperature=1.0, max_completion_length=given_NT.shape[1])
        return self._rollout(prompts, torch.arange(len(prompts)), _contexts(prompts), given_NT, how, None)

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        index = list(rows)
        which = self._weights if weights == "current" else self._reference
        contexts_RC, actions_RT = rollout.actions["contexts"][index], rollout.actions["actions"][index]
        mean_RT, log_sigma_T = self._distribution(contexts_RC, which, rollout.how.temperature)
        losses = {"consistency": (actions_RT - mean_RT).square().mean(-1), "penalty": mean_RT.square().mean(-1)}
        entropy_T = log_sigma_T + 0.5 * math.log(2 * math.pi * math.e)
        return Scores(
            logprobs_NT=_density(actions_RT, mean_RT, log_sigma_T),
            entropies_NT=entropy_T.expand_as(mean_RT) if ENTROPY in wants else None,
            losses_N={name: loss for name, loss in losses.items() if name in wants},
        )

    def trainable(self) -> Mapping[str, Parameter]:
        return self._weights

    def state(self) -> Mapping[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self._weights.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        if set(state) != set(self._weights):
            raise CheckpointError(f"weights do not fit this policy: got {', '.join(sorted(state))}")
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(state[name])

    def _distribution(
        self, contexts_NC: Tensor, weights: Mapping[str, Tensor], temperature: float
    ) -> tuple[Tensor, Tensor]:
        return contexts_NC @ weights["map"].T + weights["bias"], weights["log_sigma"] + math.log(temperature)

    def _rollout(
        self,
        prompts: Sequence[Example],
        prompt_N: Tensor,
        contexts_NC: Tensor,
        actions_NT: Tensor,
        how: Sampling,
        drawn_NT: Tensor | None,
    ) -> Rollout:
        return Rollout(
            prompts=prompts,
            prompt_N=prompt_N,
            actions={"contexts": contexts_NC, "actions": actions_NT},
            mask_NT=torch.ones_like(actions_NT, dtype=torch.bool),
            drawn_NT=drawn_NT,
            outputs=[tuple(row) for row in actions_NT.tolist()],
            truncated_N=torch.zeros(len(actions_NT), dtype=torch.bool),
            how=how,
        )


def _contexts(prompts: Sequence[Example]) -> Tensor:
    return torch.tensor([prompt.inputs["context"] for prompt in prompts], dtype=torch.float32)


def _density(actions_NT: Tensor, mean_NT: Tensor, log_sigma_T: Tensor) -> Tensor:
    """Log-density of each action, (N, T); above 0 where sigma is below 0.4."""
    scaled_NT = (actions_NT - mean_NT) * torch.exp(-log_sigma_T)
    return -0.5 * scaled_NT.square() - log_sigma_T - 0.5 * math.log(2 * math.pi)
