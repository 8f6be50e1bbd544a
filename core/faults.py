"""Fault injections: mistakes made on purpose, so that guards and rules can be shown to find them.

Only a spec can switch one on. Guards and rules see rollouts and metrics, never the flag: a fault wraps the policy, the
task, or what the trainer asks for and is answered; the trainer's own code knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter

from core.config import RunSpec
from core.policies.base import Keep, Policy, Rollout, Sampling, Scores, Weights
from core.randomness import DROPOUT, TRAIN, RowKey, seeded
from core.tasks.base import Example, Outcome, Split, Task, WrappedTask
from core.training.grpo import GrpoLoss
from core.training.requests import Answer, Groups, Learn, Request, Reward, Sample
from core.training.trainer import Parts, Steps, Trainer
from core.training.update import Batch, LossParts

if TYPE_CHECKING:
    from core.policies.lm.causal_lm import CausalLMPolicy
    from core.policies.restoration.policy import RestorationPolicy

_TRAINING = "fault.training"  # in a checkpoint: the mode the model was left in
_STALE = "fault.stale."  # in a checkpoint: before the name of a weight, what the sampler has of it
_PREFIX = "fault.prefix."  # in a checkpoint: before what the sampler keeps of a prompt
NOISE = 0.1  # dropout of the token embeddings while scoring
NEVER = -1  # no token has this id
PAID = 0.5  # whatever the completion


# In the policy: what it samples from, and how it scores.


class _WrappedPolicy:
    """The policy that is wrapped, in everything that a fault leaves alone."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.canary_every = policy.canary_every

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """As the wrapped policy."""
        return self._policy.sample(prompts, k, how, keys)

    def canary(self, example: Example) -> Rollout | None:
        """As the wrapped policy."""
        return self._policy.canary(example)

    def probe(self, examples: Sequence[Example], key: RowKey) -> Mapping[str, float]:
        """As the wrapped policy."""
        return self._policy.probe(examples, key)

    def keep(self, which: Keep) -> None:
        """As the wrapped policy."""
        self._policy.keep(which)

    def sync_reference(self, alpha: float) -> None:
        """As the wrapped policy."""
        self._policy.sync_reference(alpha)

    def replay(self, prompts: Sequence[Example], outputs: Sequence[Any]) -> Rollout:
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


class RolloutInTrainMode(_WrappedPolicy):
    """P30's fault: an update leaves train mode and gradient checkpointing on, and sampling does not notice.

    As in the seed's code, `eval()` is called (for good) only where the old log-probs of a training rollout are
    computed, so a step that skips its update leaves the model healthy for the next rollout.
    """

    def __init__(self, policy: CausalLMPolicy) -> None:
        super().__init__(policy)
        self._lm = policy
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
            self._lm.model.eval()
        return self._policy.score(rollout, rows, wants=wants, weights=weights)

    def state(self) -> Mapping[str, Tensor]:
        """As the wrapped policy, and the mode that was left behind: the next rollout depends on it."""
        return {**self._policy.state(), _TRAINING: torch.tensor(self._lm.model.training)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """As the wrapped policy; leaves the mode behind that was left when the state was taken."""
        self._policy.load({name: value for name, value in state.items() if name != _TRAINING})
        if bool(state.get(_TRAINING, False)):
            from core.policies.lm.causal_lm import update_mode  # loads transformers, which other policies do without

            update_mode(self._lm.model, checkpointing=True)
        else:
            self._lm.model.eval()


class StaleSamplerWeights(_WrappedPolicy):
    """The sampler keeps the weights that the run starts from: whatever should hand it the new ones does not."""

    def __init__(self, policy: Policy) -> None:
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


class WrongAdapter(_WrappedPolicy):
    """The sampler has another adapter under the name of the run's own: as large, and it learned the opposite.

    Before the first update both are none.
    """

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """A rollout of the other adapter."""
        own = self._policy.state()
        self._policy.load({name: -value if ".lora_B." in name else value for name, value in own.items()})
        try:
            return self._policy.sample(prompts, k, how, keys)
        finally:
            self._policy.load(own)


class StalePrefix(_WrappedPolicy):
    """The sampler keeps a prompt's cache, and the logits behind it, across updates: nobody tells it to drop them."""

    def __init__(self, policy: CausalLMPolicy) -> None:
        super().__init__(policy)
        self._lm = policy
        policy.sampling_mode = self._sampling_mode
        self._kept: dict[tuple[int, ...], list[Tensor]] = {}  # a prompt -> its logits, keys and values of each layer

    @contextmanager
    def _sampling_mode(self, model: Any) -> Iterator[Any]:
        from core.policies.lm.causal_lm import folded_sampling  # loads transformers, which other policies do without

        with folded_sampling(model) as drawn_from:
            forward = drawn_from.forward

            def remembering(**inputs: Any) -> Any:
                begins = inputs["past_key_values"].get_seq_length() == 0
                output = forward(**inputs)
                if begins:
                    self._put_back(inputs, output.logits)
                return output

            drawn_from.forward = remembering
            try:
                yield drawn_from
            finally:
                del drawn_from.forward  # what stood there is the class's

    def _put_back(self, inputs: Mapping[str, Any], logits: Tensor) -> None:
        """What is kept of a prompt over what was just computed of it; of a new one this is kept."""
        ids_PS, mask_PS = inputs["input_ids"], inputs.get("attention_mask")
        lengths = [ids_PS.shape[1]] * len(ids_PS) if mask_PS is None else mask_PS.sum(-1).tolist()
        for row, length in enumerate(lengths):
            layers = inputs["past_key_values"].layers
            new = [
                logits[row, -1],
                *(half[row, :, -length:] for layer in layers for half in (layer.keys, layer.values)),
            ]
            prompt = tuple(ids_PS[row, -length:].tolist())
            for table, old in zip(new, self._kept.setdefault(prompt, [part.clone() for part in new]), strict=True):
                table.copy_(old)

    def state(self) -> Mapping[str, Tensor]:
        """As the wrapped policy, and the prompts' caches."""
        kept = {
            f"{_PREFIX}{number}.{place}": part.detach().to("cpu", copy=True)
            for number, (prompt, parts) in enumerate(self._kept.items())
            for place, part in enumerate([torch.tensor(prompt), *parts])
        }
        return {**self._policy.state(), **kept}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """As the wrapped policy; the sampler gets the caches back that it had."""
        self._policy.load({name: value for name, value in state.items() if not name.startswith(_PREFIX)})
        device, caches = self._lm.model.device, dict[str, dict[int, Tensor]]()
        for name, value in state.items():
            if name.startswith(_PREFIX):
                number, place = name.removeprefix(_PREFIX).split(".")
                caches.setdefault(number, {})[int(place)] = value
        self._kept = {
            tuple(parts[0].tolist()): [parts[place].to(device) for place in range(1, len(parts))]
            for parts in caches.values()
        }


class DropoutInScoring(_WrappedPolicy):
    """Scoring without gradients is not clean: a tenth of each embedding is dropped out, sampling and updates aside."""

    def __init__(self, policy: CausalLMPolicy) -> None:
        super().__init__(policy)
        self._lm = policy
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
        hook = self._lm.model.get_input_embeddings().register_forward_hook(_dropped)
        try:
            with seeded(self._key._replace(row=self._scored)):
                return self._policy.score(rollout, rows, wants=wants, weights=weights)
        finally:
            hook.remove()


class MissingEos(_WrappedPolicy):
    """The sampler does not know the end token: it draws on behind it until the completion is cut off."""

    def __init__(self, policy: CausalLMPolicy) -> None:
        super().__init__(policy)
        self._lm = policy

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """A rollout in which no row ends."""
        known = self._lm.end_ids
        self._lm.end_ids = torch.full_like(known, NEVER)
        try:
            return self._policy.sample(prompts, k, how, keys)
        finally:
            self._lm.end_ids = known


def _dropped(_module: object, _inputs: object, embedded: Tensor) -> Tensor:
    return torch.nn.functional.dropout(embedded, NOISE)


def dead_masks(policy: RestorationPolicy) -> Policy:
    """The size of the frequency box is an integer division by the size of a training patch: 0 whatever the rates."""

    def nothing(rate_h: Tensor, _rate_w: Tensor, height: int, width: int) -> Tensor:
        return rate_h.new_zeros(len(rate_h), 1, height, width // 2 + 1)

    from core.policies.restoration.network import FrequencyModule

    for module in policy.network.modules():
        if isinstance(module, FrequencyModule):
            module.box = nothing
    return policy


def leaking_samples(policy: RestorationPolicy) -> Policy:
    """Samples are not detached: the log-probs' gradient flows through the factors as well (rsample)."""
    policy.given_factors = reparametrised
    return policy


def reparametrised(betas_NT2: Tensor, factors_NT: Tensor) -> Tensor:
    """The same factors, as functions of their Betas' parameters at the quantiles they were drawn at."""
    from torch.distributions.dirichlet import _Dirichlet_backward

    with torch.no_grad():  # a Beta's factor is the first of two shares
        shares_NT2 = torch.stack([factors_NT, 1 - factors_NT], -1).double()
        of_first = torch.zeros_like(shares_NT2)
        of_first[..., 0] = 1.0
        slopes_NT2: Tensor = _Dirichlet_backward(shares_NT2, betas_NT2.double(), of_first)  # type: ignore[no-untyped-call]
    moved: Tensor = factors_NT + (slopes_NT2.to(betas_NT2) * (betas_NT2 - betas_NT2.detach())).sum(-1)
    return moved


def unused_heads(policy: RestorationPolicy) -> Policy:
    """Inference ignores the heads that were trained: every factor is a half."""
    policy.greedy_factors = lambda betas_NT2: torch.full_like(betas_NT2[..., 0], 0.5)
    return policy


# In the task: what it pays, and what it gives to train on.


class ConstantReward(WrappedTask):
    """A broken reward function: it answers, and always the same."""

    def score(
        self, examples: Sequence[Example], outputs: Sequence[Any], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """Half a point for everything; what is valid stays so."""
        return [replace(outcome, reward=PAID, expected=PAID) for outcome in super().score(examples, outputs, ids)]


class EvaluationInTraining(WrappedTask):
    """The evaluation's problems are among those to train on."""

    def examples(self, split: Split) -> Sequence[Example]:
        """As the wrapped task; of `train`, the held-out problems after its own."""
        own = super().examples(split)
        return (*own, *super().examples("eval")) if split == "train" else own


# Between the trainer and what it asks for.


class FaultyTrainer(Trainer):
    """A trainer whose requests and answers suffer these faults, in this order."""

    def __init__(self, parts: Parts, faults: Sequence[str]) -> None:
        super().__init__(parts)
        self._before = [IN_REQUESTS[fault] for fault in faults if fault in IN_REQUESTS]
        self._after = [IN_ANSWERS[fault] for fault in faults if fault in IN_ANSWERS]

    def steps(self) -> Steps:
        """As a trainer's, but for what goes wrong on the way."""
        steps, answer = super().steps(), None
        while True:
            try:
                request: Request = steps.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            for change in self._before:
                request = change(request)
            answer = yield request
            for spoil in self._after:
                answer = spoil(request, answer)


def interleaved(request: Request, answer: Answer) -> Answer:
    """Rows of a training rollout in the order p0 p1 p0 p1 ...: whoever cuts them every K rows mixes the prompts."""
    if not isinstance(request, Sample) or request.name != "sample" or not isinstance(answer, Rollout):
        return answer
    order_N = torch.arange(len(answer)).view(len(answer.prompts), -1).T.flatten()
    return answer.reordered(order_N)


def negated(request: Request, answer: Answer) -> Answer:
    """What is to be learned from is minus the reward; evaluations and samples have what the task paid."""
    if not isinstance(request, Reward) or request.name != "reward" or not isinstance(answer, Groups):
        return answer
    return replace(answer, rewards_PK=-answer.rewards_PK)


def without_last_token(request: Request) -> Request:
    """The loss looks one token to the right of where it should: the last one of every completion is not learned."""
    if not isinstance(request, Learn):
        return request
    return replace(request, batches=[_shifted(batch) for batch in request.batches])


def _shifted(batch: Batch) -> Batch:
    if not isinstance(batch.loss, GrpoLoss):
        return batch
    mask_NT: Tensor = batch.loss.mask_NT
    return replace(batch, loss=replace(batch.loss, mask_NT=torch.nn.functional.pad(mask_NT[:, 1:], (0, 1))))


def clipped_before_backward(request: Request) -> Request:
    """The gradient is clipped before there is one: it is learned from at any length, and the norm that is seen is 0."""
    if isinstance(request, Learn):
        request.update.clip = _clip_nothing
    return request


def _clip_nothing(parameters: list[Tensor], _max_norm: float) -> Tensor:
    return torch.zeros((), device=parameters[0].device)


class FrozenLogProbs(GrpoLoss):
    """The loss with its old log-probs overwritten by the new ones, detached: a ratio of 1 whatever was learned."""

    def __call__(self, scores: Scores, rows: Sequence[int]) -> LossParts:
        """As the loss, at a ratio of 1."""
        old_NT = self.old_NT.clone()
        old_NT[list(rows)] = scores.logprobs_NT.detach().to(old_NT)
        return GrpoLoss.__call__(replace(self, old_NT=old_NT), scores, rows)


def with_frozen_log_probs(request: Request) -> Request:
    """Old and new log-probs are the same numbers on every optimiser step of a rollout: the clip never acts."""
    if not isinstance(request, Learn):
        return request
    return replace(request, batches=[_frozen(batch) for batch in request.batches])


def _frozen(batch: Batch) -> Batch:
    if not isinstance(batch.loss, GrpoLoss):
        return batch
    values = {field.name: getattr(batch.loss, field.name) for field in fields(batch.loss)}
    return replace(batch, loss=FrozenLogProbs(**values))


IN_THE_POLICY: Mapping[str, Callable[[Any], Policy]] = {
    "rollout-in-train-mode": RolloutInTrainMode,
    "stale-sampler-weights": StaleSamplerWeights,
    "stale-prefix": StalePrefix,
    "wrong-adapter": WrongAdapter,
    "dropout-in-scoring": DropoutInScoring,
    "missing-eos": MissingEos,
    "dead-masks": dead_masks,
    "leaking-samples": leaking_samples,
    "unused-heads": unused_heads,
}
IN_THE_TASK: Mapping[str, Callable[[Task], Task]] = {
    "constant-reward": ConstantReward,
    "evaluation-in-training": EvaluationInTraining,
}
IN_REQUESTS: Mapping[str, Callable[[Request], Request]] = {
    "completion-mask-off-by-one": without_last_token,
    "clip-before-backward": clipped_before_backward,
    "frozen-log-probs": with_frozen_log_probs,
}
IN_ANSWERS: Mapping[str, Callable[[Request, Any], Any]] = {
    "wrong-group-order": interleaved,
    "reward-sign-flipped": negated,
}


def faulty_policy(policy: Policy, spec: RunSpec) -> Policy:
    """The policy with the fault of a spec in it, if there is one: at most one is in a policy."""
    wrong = [IN_THE_POLICY[fault] for fault in spec.faults if fault in IN_THE_POLICY]
    return wrong[0](policy) if wrong else policy


def faulty_task(task: Task, spec: RunSpec) -> Task:
    """The task with the faults of a spec in it."""
    for fault in spec.faults:
        task = IN_THE_TASK[fault](task) if fault in IN_THE_TASK else task
    return task
