"""The policy protocol: what can be sampled from, scored and trained.

Shape suffixes, here and everywhere in core:
    P  prompts      K  completions of one prompt      N = P*K  rows, the K rows of a group adjacent
    T  factors of one output (tokens, picks, action factors)      V  vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import pad

from core.errors import CheckpointError
from core.randomness import RowKey
from core.tasks.base import Example

Keep = Literal["reference", "epoch"]  # weights that a policy may keep beside those that are trained
Weights = Literal["current", "reference", "epoch"]
ENTROPY = "entropy"
OF_REFERENCE = "reference."  # before the names of a reference's weights in a policy's state
WEIGHTS = "weights.safetensors"  # in an exported folder, of whatever is no language model


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How to draw. Log-probs are recorded and scored at `temperature`; the filters only act on what is drawn.

    The filters are top_p, top_k, min_p and the repetition penalty.
    """

    temperature: float
    max_completion_length: int
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop_strings: tuple[str, ...] = ()  # a text ends with the first of them
    canary: bool = False  # whether the policy's canary is run as well (Policy.canary)

    @classmethod
    def at(cls, temperature: float, limit: int, stop_strings: tuple[str, ...] = ()) -> Sampling:
        """Draws at a temperature, of at most `limit` tokens; at 0 the likeliest each time, its log-prob taken at 1."""
        greedy = temperature == 0
        return cls(
            temperature=1.0 if greedy else temperature,
            max_completion_length=limit,
            top_k=1 if greedy else 0,
            stop_strings=stop_strings,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """Sampled or given outputs: N rows of T factors, on the CPU whatever the policy runs on.

    A row without a single factor is no output: it fills up a group that has fewer than the others (`present`).
    """

    prompts: Sequence[Example]  # P
    prompt_N: Tensor  # index into prompts
    actions: Mapping[str, Tensor]  # private to the policy; first dimension N
    mask_NT: Tensor  # bool: this factor was drawn
    drawn_NT: Tensor | None  # log-probs recorded while sampling; None: offline data
    outputs: Sequence[Any]  # N, what a task scores: texts, indices, vectors, images
    truncated_N: Tensor  # bool: cut off at max_completion_length
    how: Sampling
    tokens: Sequence[Sequence[int]] = ()  # N, the tokens of each output; empty where outputs are not made of tokens
    canary_T: Tensor | None = None  # what the sampler says of the canary's factors; None where it was not asked

    def __len__(self) -> int:
        return len(self.outputs)

    @property
    def present(self) -> Tensor:
        """(N,) bool: the rows that are outputs."""
        return self.mask_NT.any(-1)

    def reordered(self, order_N: Tensor) -> Rollout:
        """The same rows in another order: (N,) numbers of rows."""
        order = order_N.tolist()
        return replace(
            self,
            prompt_N=self.prompt_N[order_N],
            actions={name: rows[order_N] for name, rows in self.actions.items()},
            mask_NT=self.mask_NT[order_N],
            drawn_NT=None if self.drawn_NT is None else self.drawn_NT[order_N],
            outputs=[self.outputs[row] for row in order],
            truncated_N=self.truncated_N[order_N],
            tokens=[self.tokens[row] for row in order] if self.tokens else (),
        )


def joined(
    rollouts: Sequence[Rollout], *, padding: Mapping[str, int] | None = None, left: frozenset[str] = frozenset()
) -> Rollout:
    """The rows of all rollouts one after another, all sampled in the same way.

    Masks, log-probs and actions of several columns are widened to the widest, on the right; the actions named in `left`
    on the left. `padding` is what fills an action (0 where it has none).
    """
    if len(rollouts) == 1:
        return rollouts[0]
    offsets = [sum(len(rollout.prompts) for rollout in rollouts[:index]) for index in range(len(rollouts))]
    drawn = [rollout.drawn_NT for rollout in rollouts if rollout.drawn_NT is not None]
    return replace(
        rollouts[0],
        prompts=[prompt for rollout in rollouts for prompt in rollout.prompts],
        prompt_N=torch.cat([rollout.prompt_N + offset for rollout, offset in zip(rollouts, offsets, strict=True)]),
        actions={
            name: _stacked([rollout.actions[name] for rollout in rollouts], (padding or {}).get(name, 0), name in left)
            for name in rollouts[0].actions
        },
        mask_NT=_stacked([rollout.mask_NT for rollout in rollouts], 0),
        drawn_NT=_stacked(drawn, 0) if len(drawn) == len(rollouts) else None,
        canary_T=next((rollout.canary_T for rollout in rollouts if rollout.canary_T is not None), None),
        outputs=[output for rollout in rollouts for output in rollout.outputs],
        truncated_N=torch.cat([rollout.truncated_N for rollout in rollouts]),
        tokens=[row for rollout in rollouts for row in rollout.tokens],
    )


def _stacked(parts: Sequence[Tensor], fill: int, left: bool = False) -> Tensor:
    """The (N, width, ...) tensors under each other, widened to the widest; (N,) tensors as they are."""
    if parts[0].dim() == 1:
        return torch.cat(list(parts))
    width = max(part.shape[1] for part in parts)
    rest = [0, 0] * (parts[0].dim() - 2)
    gaps = [(width - part.shape[1], 0) if left else (0, width - part.shape[1]) for part in parts]
    return torch.cat([pad(part, (*rest, *gap), value=fill) for part, gap in zip(parts, gaps, strict=True)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What a policy says of the rows it was asked about (R of the rollout's N, in the order asked), on its device.

    Log-probs are of tokens or picks (at most 0), or densities of continuous actions (any number). `losses_N` are the
    policy's own differentiable losses, by name: those that `wants` names, one number a row.
    """

    logprobs_NT: Tensor
    entropies_NT: Tensor | None = None
    losses_N: Mapping[str, Tensor] = field(default_factory=dict)

    def cut(self, rows: int, width: int) -> Scores:
        """Log-probs and entropies of so many first rows, (rows, width): those of a rollout others were joined to."""
        entropies_NT = None if self.entropies_NT is None else self.entropies_NT[:rows, :width]
        return Scores(logprobs_NT=self.logprobs_NT[:rows, :width], entropies_NT=entropies_NT)


def read_weights(file: Path) -> Mapping[str, Tensor]:
    """The weights of a file that `Policy.export` wrote. Raises CheckpointError where it cannot be read."""
    try:
        weights: Mapping[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read the weights of {file}: {error}") from error
    return weights


def mix_into(reference: Mapping[str, Tensor], current: Mapping[str, Tensor], alpha: float) -> None:
    """reference <- alpha current + (1 - alpha) reference, in place, weight by weight (TR-DPO, arXiv 2404.09656)."""
    with torch.no_grad():
        for name, weight in reference.items():
            weight.mul_(1 - alpha).add_(current[name], alpha=alpha)


class Policy(Protocol):
    """A trainable distribution over outputs: text, picks among candidates, vectors, images.

    A subclass inherits the methods that have a body; what its kind can do, its settings say (core.config.policy).
    """

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """K outputs for each prompt; `keys` has one entry per row (P*K)."""
        ...

    def replay(self, prompts: Sequence[Example], outputs: Sequence[Any]) -> Rollout:
        """One row for each prompt with a given output, as if it had been drawn: supervised targets, offline data.

        Nothing was recorded while sampling: `drawn_NT` is None.
        """
        ...

    def sync_reference(self, alpha: float) -> None:
        """Move the reference's weights towards the current ones: reference <- alpha current + (1 - alpha) reference.

        Only where its settings say `syncs`; its state then has the reference.
        """
        raise NotImplementedError

    def keep(self, which: Keep) -> None:
        """Let the weights as they are now be the reference, or those that an epoch began with.

        Called after a supervised stage, after another run's weights were loaded, and where an epoch of a stage begins
        whose old policy is that. A language model's reference stays what it was loaded as; it keeps no others.
        """
        return

    canary_every: int = 1  # steps: more where a row more is no small part of a step

    def canary(self, example: Example) -> Rollout | None:
        """One row with fixed factors, which `sample` from now on runs through the sampler as well where it is asked to.

        What the sampler says of them is the rollout's `canary_T`; the trainer's score must be the same. None where a
        policy has no such row: then only what was drawn is compared.
        """
        return None

    def probe(self, examples: Sequence[Example], key: RowKey) -> Mapping[str, float]:
        """What it measures of itself on some held-out problems before a run's first step, as metrics `probe/<name>`.

        Whether what it draws acts, for one: no table of rewards can tell that. Nothing here.
        """
        return {}

    def join(self, rollouts: Sequence[Rollout]) -> Rollout:
        """The rollouts one after another as one; all were sampled in the same way."""
        return joined(rollouts)

    def split(self, rollout: Rollout, rows: Sequence[int], limit: int) -> list[Sequence[int]]:
        """The rows in micro-batches of at most `limit` rows each."""
        return [rows[start : start + limit] for start in range(0, len(rows), limit)]

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        """Log-probs of the drawn factors. With gradients enabled this is the update's forward, without a clean one."""
        ...

    def trainable(self) -> Mapping[str, Parameter]:
        """The parameters an optimiser moves, by name."""
        ...

    def state(self) -> Mapping[str, Tensor]:
        """What a checkpoint must hold to restore this policy: detached copies."""
        ...

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state()`. Raises CheckpointError where names or shapes differ."""
        ...

    def export(self, folder: Path) -> None:
        """Write the trained part in a form that other tools load; here `state()` as safetensors.

        Where a policy is not a language model, `weights.safetensors` must be among the files: `eval` loads it.
        """
        save_file(dict(self.state()), folder / WEIGHTS)
