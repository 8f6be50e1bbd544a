"""Fault injections in a policy: mistakes reproduced on purpose, so that guards and rules can be shown to work.

Only a spec can switch one on. Guards and rules see rollouts, never the flag. Others: core.tasks.faulty,
core.training.faulty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from core.policies.base import Policy, Rollout, Sampling, Scores, Weights
from core.policies.lm.causal_lm import CausalLMPolicy
from core.policies.lm.modes import update_mode
from core.randomness import DROPOUT, TRAIN, RowKey, seeded
from core.tasks.base import Example

_TRAINING = "fault.training"  # in a checkpoint: the mode the model was left in
_STALE = "fault.stale."  # in a checkpoint: before the name of a weight, what the sampler has of it
NOISE = 0.1  # dropout of the token embeddings while scoring
NEVER = -1  # no token has this id


class _Wrapped:
    """The policy that is wrapped, in everything that a fault leaves alone."""

    def __init__(self, policy: CausalLMPolicy) -> None:
        self._policy = policy

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """As the wrapped policy."""
        return self._policy.sample(prompts, k, how, keys)

    def replay(self, prompts: Sequence[Example], outputs: Sequence[str]) -> Rollout:
        """As the wrapped policy."""
        return self._policy.replay(prompts, outputs)

    def join(self, rollouts: Sequence[Rollout]) -> Rollout:
        """As the wrapped policy."""
        return self._policy.join(rollouts)

    def split(self, rollout: Rollout, rows: Sequence[int], limit: int) -> list[Sequence[int]]:
        """As the wrapped policy."""
        return self._policy.split(rollout, rows, limit)

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        """As the wrapped policy."""
        return self._policy.score(rollout, rows, wants=wants, weights=weights)

    def trainable(self) -> Mapping[str, Parameter]:
        """As the wrapped policy."""
        return self._policy.trainable()

    def state(self) -> Mapping[str, Tensor]:
        """As the wrapped policy."""
        return self._policy.state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """As the wrapped policy."""
        self._policy.load(state)

    def export(self, folder: Path) -> None:
        """As the wrapped policy."""
        self._policy.export(folder)


@contextmanager
def mode_as_found(model: Any) -> Iterator[Any]:
    """No mode at all: the model samples in whatever mode was left behind, its adapter's dropout included."""
    yield model


class RolloutInTrainMode(_Wrapped):
    """P30's fault: an update leaves train mode and gradient checkpointing on, and sampling does not notice.

    As in the seed's code, `eval()` is called (for good) only where the old log-probs of a training rollout are
    computed, so a step that skips its update leaves the model healthy for the next rollout.
    """

    def __init__(self, policy: CausalLMPolicy) -> None:
        super().__init__(policy)
        policy.sampling_mode = mode_as_found
        policy.checkpointing = True
        self._training: frozenset[str] = frozenset()  # ids of the last training rollout's prompts

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """A rollout in the mode the last update or scoring left; its dropout is drawn from the first row's key."""
        with seeded(keys[0]._replace(purpose=DROPOUT, attempt=1)):  # attempt 0 is the update's own dropout
            rollout = self._policy.sample(prompts, k, how, keys)
        if keys[0].purpose == TRAIN:
            self._training = frozenset(example.id for example in prompts)
        return rollout

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        """As the wrapped policy; scoring the training rollout leaves eval mode behind, as the seed's code did."""
        # By its prompts: what was sampled in parts, here or by several ranks, is scored as a rollout of its own.
        if not torch.is_grad_enabled() and any(example.id in self._training for example in rollout.prompts):
            self._policy.model.eval()
        return self._policy.score(rollout, rows, wants=wants, weights=weights)

    def state(self) -> Mapping[str, Tensor]:
        """As the wrapped policy, and the mode that was left behind: the next rollout depends on it."""
        return {**self._policy.state(), _TRAINING: torch.tensor(self._policy.model.training)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """As the wrapped policy; leaves the mode behind that was left when the state was taken."""
        self._policy.load({name: value for name, value in state.items() if name != _TRAINING})
        if bool(state.get(_TRAINING, False)):
            update_mode(self._policy.model, checkpointing=True)
        else:
            self._policy.model.eval()


class StaleSamplerWeights(_Wrapped):
    """The sampler keeps the weights that the run starts from: whatever should hand it the new ones does not."""

    def __init__(self, policy: CausalLMPolicy) -> None:
        super().__init__(policy)
        self._stale = policy.state()

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """A rollout of the first weights, whichever stand there now."""
        now = self._policy.state()
        self._policy.load(self._stale)
        try:
            return self._policy.sample(prompts, k, how, keys)
        finally:
            self._policy.load(now)

    def state(self) -> Mapping[str, Tensor]:
        """As the wrapped policy, and the sampler's weights."""
        return {**self._policy.state(), **{_STALE + name: value.clone() for name, value in self._stale.items()}}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """As the wrapped policy; the sampler gets its own weights back, or these where there are none of its own."""
        fresh = {name: value for name, value in state.items() if not name.startswith(_STALE)}
        self._policy.load(fresh)
        stale = {name.removeprefix(_STALE): value for name, value in state.items() if name.startswith(_STALE)}
        self._stale = stale or self._policy.state()


class DropoutInScoring(_Wrapped):
    """Scoring without gradients is not clean: a tenth of each embedding is dropped out, sampling and updates aside."""

    def __init__(self, policy: CausalLMPolicy) -> None:
        super().__init__(policy)
        self._key = RowKey(0, DROPOUT, 0, 1, 0)
        self._scored = 0  # since the last rollout: each scoring has noise of its own

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """As the wrapped policy; what is scored next draws its noise from the first row's key."""
        self._key, self._scored = keys[0]._replace(purpose=DROPOUT, attempt=1), 0
        return self._policy.sample(prompts, k, how, keys)

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        """As the wrapped policy, through dropped-out embeddings where no gradient is asked for."""
        if torch.is_grad_enabled():
            return self._policy.score(rollout, rows, wants=wants, weights=weights)
        self._scored += 1
        hook = self._policy.model.get_input_embeddings().register_forward_hook(_dropped)
        try:
            with seeded(self._key._replace(row=self._scored)):
                return self._policy.score(rollout, rows, wants=wants, weights=weights)
        finally:
            hook.remove()


class MissingEos(_Wrapped):
    """The sampler does not know the end token: it draws on behind it until the completion is cut off."""

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """A rollout in which no row ends."""
        known = self._policy.end_ids
        self._policy.end_ids = torch.full_like(known, NEVER)
        try:
            return self._policy.sample(prompts, k, how, keys)
        finally:
            self._policy.end_ids = known


def _dropped(_module: object, _inputs: object, embedded: Tensor) -> Tensor:
    return torch.nn.functional.dropout(embedded, NOISE)


FAULTS: Mapping[str, Callable[[CausalLMPolicy], Policy]] = {
    "rollout-in-train-mode": RolloutInTrainMode,
    "stale-sampler-weights": StaleSamplerWeights,
    "dropout-in-scoring": DropoutInScoring,
    "missing-eos": MissingEos,
}
