"""The causal-LM policy: text in, text out, one factor per token; and the mode its model is in for each kind of work.

`transformers` drops the KV cache without an error when a model samples in train mode with gradient checkpointing on:
each decoding step then sees only the last token. That is what happened to P30. So no mode is left to the caller.
Not here: the decode loop (core.policies.lm.decoding), where weights come from (core.models).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from core.errors import CheckpointError, TaskError
from core.models.adapters import save, using_weights
from core.policies.base import ENTROPY, OF_REFERENCE, Keep, Policy, Rollout, Sampling, Scores, Weights, joined, mix_into
from core.policies.lm.batches import micro_batches, rows_at_once, sampling_budget, tokens_at_once
from core.policies.lm.decoding import decode, sampler_logprobs, stack_draws
from core.policies.lm.fast.fused_layers import checkpoint_contexts, folded_adapter
from core.policies.lm.forward import micro_batch, rows_by_prompt, score_rows
from core.policies.lm.stopping import Ends, StopStrings, text_to_stop
from core.policies.savings import Savings
from core.randomness import RowKey, uniforms
from core.tasks.base import Example
from core.tasks.text import prompt_of

CANARY_PROMPT, CANARY_TOKENS = 16, 8  # tokens: the end of a prompt is a prompt, too
# Steps from one canary to the next, of a model below LARGE parameters. It costs two forwards of the sampler, which read
# all weights however few their tokens are, and a step of a small model and short completions has a few dozen of those.
CANARY_EVERY, LARGE = 4, 1_000_000_000


class CausalLMPolicy(Policy):
    """A transformers causal LM and its tokenizer as a Policy.

    `reference` are the weights that the KL term compares with, copies of those that are trained; None where `model` is
    a PEFT model, whose reference is the same model with its adapter switched off. One that follows the policy
    (`reference_moves`) must be given. `mixed_precision` bf16: every forward runs under autocast.
    `chat_template_kwargs`: the chat template's variables. The attribute `sampling_mode`, where it is set, is the
    context a rollout runs in; it gives the model to draw from.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        reference: Mapping[str, Tensor] | None = None,
        checkpointing: bool = False,
        mixed_precision: Literal["no", "bf16"] = "no",
        chat_template_kwargs: Mapping[str, object] | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.reference = reference
        self.reference_moves = False  # where it follows the policy it is a part of the state
        self.savings = Savings()  # all, unless a measurement switches one off
        self.checkpointing = checkpointing
        self.sampling_mode: SamplingContext | None = None
        self.heeds_stop_strings = True  # a measurement of full lengths does not
        self.mixed_precision = mixed_precision
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        end = {tokenizer.eos_token_id, *_as_list(model.generation_config.eos_token_id)} - {None}
        # The tokenizer's own end comes first: it closes what is replayed and fills what is padded. Qwen's chat models
        # stop at a second one as well, which has the smaller number.
        ordered = sorted(end, key=lambda token: (token != tokenizer.eos_token_id, token))
        self.end_ids = torch.tensor(ordered)
        self._end = ordered[0]
        self.sampling_bytes = sampling_budget(model.device)
        self._itemsize = model.dtype.itemsize
        self._canary: Rollout | None = None
        self.canary_every = CANARY_EVERY if model.num_parameters() < LARGE else 1

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """K completions of each prompt, log-probs recorded; `keys` has P*K entries. Bounded batches draw the same."""
        ids_PS, mask_PS = self._encode(prompts)
        tokens = ids_PS.shape[1] + how.max_completion_length
        size = max(1, rows_at_once(self.model.config, self._itemsize, tokens, self.sampling_bytes) // k)
        heeded = how.stop_strings if self.heeds_stop_strings else ()
        ends = Ends(ids=self.end_ids, strings=StopStrings(self.tokenizer, heeded) if heeded else None)
        sampling_mode = self.sampling_mode or (folded_sampling if self.savings.folded_adapter else plain_sampling)
        with self._autocast(), sampling_mode(self.model) as model, torch.no_grad():
            parts = [
                decode(
                    model,
                    (ids_PS[first : first + size], mask_PS[first : first + size]),
                    how=how,
                    uniforms_NT=uniforms(keys[first * k : (first + size) * k], how.max_completion_length),
                    ends=ends,
                    savings=self.savings,
                )
                for first in range(0, len(prompts), size)
            ]
            due = how.canary and keys[0].row == 0  # of several pieces, and of several ranks, the first
            canary = self._canary if due else None
            canary_T = None if canary is None else sampler_logprobs(model, canary, how.temperature)
        draws = stack_draws(parts, end=self._end)
        prompt_N = torch.arange(len(prompts)).repeat_interleave(k)
        rows = _unpadded(draws.ids_NT, draws.mask_NT)
        texts = self.tokenizer.batch_decode(rows, skip_special_tokens=True)
        return Rollout(
            prompts=prompts,
            prompt_N=prompt_N,
            actions={"prompt_ids": ids_PS[prompt_N], "prompt_mask": mask_PS[prompt_N], "ids": draws.ids_NT},
            mask_NT=draws.mask_NT,
            drawn_NT=draws.logprobs_NT,
            outputs=[text_to_stop(text, heeded) for text in texts] if heeded else texts,
            truncated_N=draws.truncated_N,
            how=how,
            tokens=rows,
            canary_T=canary_T,
        )

    def keep(self, which: Keep) -> None:
        """Nothing: the reference of a language model stays what it was loaded as."""

    def sync_reference(self, alpha: float) -> None:
        """Move the reference's weights towards the current ones; of an adapter its two factors, each by itself."""
        assert self.reference is not None
        mix_into(self.reference, self.trainable(), alpha)

    def canary(self, example: Example) -> Rollout:
        """The end of the example's prompt, and its own first tokens as a completion: fixed, and few are certain."""
        ids_1S, mask_1S = (table[:, -CANARY_PROMPT:] for table in self._encode([example]))
        ids_1T = ids_1S[:, :CANARY_TOKENS]
        self._canary = Rollout(
            prompts=[example],
            prompt_N=torch.zeros(1, dtype=torch.long),
            actions={"prompt_ids": ids_1S, "prompt_mask": mask_1S, "ids": ids_1T},
            mask_NT=torch.ones_like(ids_1T, dtype=torch.bool),
            drawn_NT=None,
            outputs=[""],
            truncated_N=torch.zeros(1, dtype=torch.bool),
            how=Sampling(temperature=1.0, max_completion_length=ids_1T.shape[1]),
            tokens=ids_1T.tolist(),
        )
        return self._canary

    def replay(self, prompts: Sequence[Example], outputs: Sequence[str]) -> Rollout:
        """One row per (prompt, output), the end token included; scored at temperature 1."""
        ids_NS, prompt_mask_NS = self._encode(prompts)
        rows = [[*row, self._end] for row in self.tokenizer(list(outputs), add_special_tokens=False)["input_ids"]]
        width = max(len(row) for row in rows)
        lengths_N = torch.tensor([len(row) for row in rows])
        return Rollout(
            prompts=prompts,
            prompt_N=torch.arange(len(prompts)),
            actions={
                "prompt_ids": ids_NS,
                "prompt_mask": prompt_mask_NS,
                "ids": torch.tensor([row + [self._end] * (width - len(row)) for row in rows]),
            },
            mask_NT=torch.arange(width) < lengths_N.unsqueeze(-1),
            drawn_NT=None,
            outputs=list(outputs),
            truncated_N=torch.zeros(len(rows), dtype=torch.bool),
            how=Sampling(temperature=1.0, max_completion_length=width),
            tokens=rows,
        )

    def join(self, rollouts: Sequence[Rollout]) -> Rollout:
        """Prompts are padded on the left, completions on the right, to the widest."""
        padding = {"prompt_ids": self.tokenizer.pad_token_id, "ids": self._end}
        return joined(rollouts, padding=padding, left=frozenset({"prompt_ids", "prompt_mask"}))

    def split(self, rollout: Rollout, rows: Sequence[int], limit: int) -> list[Sequence[int]]:
        """Whole groups of like length as far as they fit, at most `limit` rows and a bounded number of tokens each."""
        if not self.savings.by_length:
            return [rows[start : start + limit] for start in range(0, len(rows), limit)]
        budget = tokens_at_once(self.model.config, self._itemsize, self.sampling_bytes)
        return list(micro_batches(rows_by_prompt(rollout, rows), limit=limit, budget=budget))

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        """Log-probs at the sampling temperature, (R, T). With gradients enabled: train mode, left so for backward."""
        learning = torch.is_grad_enabled() and weights == "current"
        if learning:
            update_mode(self.model, checkpointing=self.checkpointing)
        batch, entropy = micro_batch(rollout, rows), ENTROPY in wants
        with nullcontext() if learning else clean_mode(self.model), self._at(weights), self._autocast():
            scores = score_rows(self.model, batch, entropy=entropy, savings=self.savings)
        return Scores(logprobs_NT=scores[0], entropies_NT=scores[1] if entropy else None)

    def trainable(self) -> Mapping[str, Parameter]:
        """Parameters with requires_grad: the adapter's, or all."""
        return {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}

    def state(self) -> Mapping[str, Tensor]:
        """Copies of the trainable weights, by name, on the CPU; and of a reference that moves."""
        now = {name: parameter.detach().to("cpu", copy=True) for name, parameter in self.trainable().items()}
        if self.reference_moves and self.reference is not None:
            now |= {f"{OF_REFERENCE}{name}": weight.to("cpu", copy=True) for name, weight in self.reference.items()}
        return now

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Set the trainable weights, and a reference that moves. Raises CheckpointError where names or shapes differ.

        A state without a reference was taken before any stage that moves it: it stays as it was loaded.
        """
        trainable = dict[str, Tensor](self.trainable())
        if self.reference_moves and self.reference is not None and any(name.startswith(OF_REFERENCE) for name in state):
            trainable |= {f"{OF_REFERENCE}{name}": weight for name, weight in self.reference.items()}
        else:
            state = {name: weight for name, weight in state.items() if not name.startswith(OF_REFERENCE)}
        if set(trainable) != set(state):
            odd = sorted(set(trainable) ^ set(state))
            raise CheckpointError(f"weights do not fit this model: {len(odd)} names differ, first {odd[0]!r}")
        with torch.no_grad():
            for name, parameter in trainable.items():
                if parameter.shape != state[name].shape:
                    got, want = tuple(state[name].shape), tuple(parameter.shape)
                    raise CheckpointError(f"weights do not fit this model: {name!r} has shape {got}, expected {want}")
                parameter.copy_(state[name])

    def export(self, folder: Path) -> None:
        """A PEFT adapter, or a transformers model where weights of its own were trained; with the tokenizer."""
        save(self.model, folder)
        self.tokenizer.save_pretrained(folder)

    def _autocast(self) -> AbstractContextManager[object]:
        """The precision of every forward, sampling, scoring and learning alike; the log-softmax stays fp32."""
        if self.mixed_precision == "no":
            return nullcontext()
        return torch.autocast(self.model.device.type, dtype=torch.bfloat16)

    def _at(self, weights: Weights) -> AbstractContextManager[object]:
        """The context in which the model has these weights."""
        if weights == "current":
            return nullcontext()
        if self.reference is not None:
            return using_weights(self.model, self.reference)
        adapter_off: AbstractContextManager[object] = self.model.disable_adapter()
        return adapter_off

    def _encode(self, prompts: Sequence[Example]) -> tuple[Tensor, Tensor]:
        """Left-padded prompt ids and mask, (P, S)."""
        texts = [prompt_text(self.tokenizer, example, self.chat_template_kwargs) for example in prompts]
        rows = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        width = max(len(row) for row in rows)
        pad = self.tokenizer.pad_token_id
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        return ids, mask


def _unpadded(ids_NT: Tensor, mask_NT: Tensor) -> list[list[int]]:
    """The drawn tokens of each row, the end token included."""
    return [row[:length] for row, length in zip(ids_NT.tolist(), mask_NT.sum(-1).tolist(), strict=True)]


def prompt_text(tokenizer: Any, example: Example, variables: Mapping[str, object] | None = None) -> str:
    """What the model is given of an example: through the chat template, with its variables, where there is one.

    Raises TaskError where the example is a conversation and the tokenizer has none.
    """
    templated = bool(getattr(tokenizer, "chat_template", None))
    prompt = prompt_of(example)
    if prompt.messages is not None and not templated:
        raise TaskError(f"example {example.id} is a conversation, and this model has no chat template; give a prompt")
    if prompt.plain or not templated:
        return prompt.text
    chat = prompt.messages if prompt.messages is not None else [{"role": "user", "content": prompt.text}]
    text: str = tokenizer.apply_chat_template(
        list(chat), tokenize=False, add_generation_prompt=True, **(variables or {})
    )
    return text


def _as_list(value: int | list[int] | None) -> list[int | None]:
    return list(value) if isinstance(value, list) else [value]


class SamplingContext(Protocol):
    """Something that makes a model ready to be sampled from, gives what to call, and restores the mode it came in."""

    def __call__(self, model: Any, /) -> AbstractContextManager[Any]: ...


@contextmanager
def plain_sampling(model: Any) -> Iterator[Any]:
    """What to draw from, in clean mode: the model as it is, its adapter a product of its own."""
    with clean_mode(model):
        yield model


@contextmanager
def folded_sampling(model: Any) -> Iterator[Any]:
    """What to draw from, in clean mode: the model with its adapter in its weights where that folds, else `model`."""
    with clean_mode(model), folded_adapter(model) as drawn_from:
        yield drawn_from


@contextmanager
def clean_mode(model: Any) -> Iterator[None]:
    """Eval mode (dropout off), gradient checkpointing off, KV cache on, no gradients; restores what it found."""
    was_training, was_checkpointing = model.training, _checkpointing(model)
    cached = model.config.use_cache
    model.eval()
    if was_checkpointing:
        (getattr(model, "activation_checkpointing_disable", None) or model.gradient_checkpointing_disable)()
    model.config.use_cache = True
    try:
        with torch.no_grad():
            yield
    finally:
        model.config.use_cache = cached
        if was_checkpointing:
            enable_checkpointing(model)
        model.train(was_training)


def _checkpointing(model: Any) -> bool:
    """True when any layer recomputes its activations in backward."""
    # Switching it on sets it on the layer itself. Asking a module for what it lacks costs ten times as much.
    return any(vars(module).get("gradient_checkpointing", False) for module in model.modules())


def enable_checkpointing(model: Any) -> None:
    """Recompute activations in backward instead of keeping them; the cache is of no use in such a forward.

    What a forward runs its layers in is entered again for them (core.policies.lm.fast.fused_layers).
    """
    how = {"use_reentrant": False, "context_fn": checkpoint_contexts}
    # Renamed in transformers 5.23; the old name warns at every call.
    enable = getattr(model, "activation_checkpointing_enable", None)
    if enable is not None:
        enable(activation_checkpointing_kwargs=how)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)


def update_mode(model: Any, *, checkpointing: bool) -> None:
    """Train mode, checkpointing as asked, LEFT SO: backward recomputes layers in the mode their forward ran in."""
    model.train()
    if checkpointing and not _checkpointing(model):
        enable_checkpointing(model)
