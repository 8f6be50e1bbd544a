"""Attention where prompts and what follows each stand in one row: every product of a layer is then one for all tokens.

A layer's linear parts do not mind where a token stands. Only attention does: a prompt's tokens see those before them,
a completion's its prompt and those before them. The keys of a prompt are not repeated for its completions.
Not here: who builds such a row (core.policies.lm.forward); attention of rows side by side (attention.py).

Shape suffixes: P prompts, S tokens of each, R completions, K = R / P where each prompt has as many, W tokens of each,
M = P * S + R * W, G key/value heads, Q query heads of each, D size of a head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from core.models.devices import to_device
from core.policies.lm.fast.attention import MOST, attend, bias_of, centred

NAME = "branches"
CPU = torch.device("cpu")


class Branches:
    """What stands in the row: P left-padded prompts, then R completions of `width` tokens, those of a prompt adjacent.

    `grouped`: by plain products where that is quicker (see attention.py); else by torch's own kernels.
    """

    def __init__(
        self,
        mask_PS: Tensor,
        counts: Sequence[int],
        width: int,
        *,
        device: torch.device = CPU,
        grouped: bool = True,
        masked: bool = False,
    ) -> None:
        """`counts`: the completions of each prompt. The mask stands on the CPU, keys and values on `device`.

        `masked`: prompts have a mask of their own also where none has padding.
        """
        (self.prompts, self.size), self.rows = mask_PS.shape, sum(counts)
        self.width, self.grouped = width, grouped
        self.even = min(counts) == max(counts)
        self.counts = counts
        seen_P1S = to_device(mask_PS.bool(), device).unsqueeze(1)
        before, own = (_before(tokens, device) for tokens in (self.size, width))
        # None: no prompt has padding, each token sees what is before it, and flash attention will do.
        self.by_prompts: Tensor | None = None
        if masked or not bool(mask_PS.all()):
            # Padding sees itself: what sees nothing is NaN.
            itself = torch.eye(self.size, dtype=torch.bool, device=device)
            self.by_prompts = ((before & seen_P1S) | itself).unsqueeze(1)  # (P, 1, S, S)
        wide = seen_P1S.expand(-1, width, -1), own.expand(self.prompts, -1, -1)
        self.by_completions = torch.cat(wide, dim=-1).unsqueeze(1)  # (P, 1, W, S + W)
        self._bias: Tensor | None = None

    def split(self, heads_MD: Tensor) -> tuple[Tensor, Tensor]:
        """(1, heads, M, D) -> (P, heads, S, D) and (R, heads, W, D)."""
        (_, heads, _, size), border = heads_MD.shape, self.prompts * self.size
        return (
            heads_MD[0, :, :border].view(heads, self.prompts, self.size, size).transpose(0, 1),
            heads_MD[0, :, border:].view(heads, self.rows, self.width, size).transpose(0, 1),
        )

    def each(self, of_prompts: Tensor) -> Tensor:
        """What each prompt has, for every completion: (P, ..) -> (R, ..)."""
        if self.even:
            return of_prompts.repeat_interleave(self.rows // self.prompts, 0)
        # One by one, whose backward is a sum for each: an index's adds row by row, and rounds at each.
        each = zip(torch.split(of_prompts, 1), self.counts, strict=True)
        return torch.cat([one.expand(count, *one.shape[1:]) for one, count in each])

    def bias(self, dtype: torch.dtype) -> Tensor:
        """What is added to the scores of the completions, (P, 1, W, S + W); of every row where counts differ."""
        if self._bias is None or self._bias.dtype != dtype:
            seen = self.by_completions if self.even else self.each(self.by_completions)
            self._bias = bias_of(seen, dtype)
        return self._bias


@contextmanager
def branching(model: Any) -> Iterator[None]:
    """The model with this attention; its decoder is then called with `branches=` and no mask."""
    config = model.config
    found, config._attn_implementation = config._attn_implementation, NAME
    try:
        yield
    finally:
        config._attn_implementation = found


def attend_branches(
    module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: None, **how: Any
) -> tuple[Tensor, None]:
    """(1, heads, M, D) queries, (1, key/value heads, M, D) keys and values -> (1, M, heads, D), and None.

    `branches=`, among what a model hands to its attention, says what stands where.
    """
    branches: Branches = how.pop("branches")
    (q_P, q_R), (k_P, k_R), (v_P, v_R) = (branches.split(one) for one in (query, key, value))
    own = attend if branches.grouped else sdpa_attention_forward
    parts = [own(module, q_P, k_P, v_P, branches.by_prompts, **how)[0].flatten(0, 1)]
    if branches.width:
        large = 4 * q_R.shape[:3].numel() * (branches.size + branches.width) > MOST
        if large or not branches.grouped or how.get("dropout") or query.device.type != "cpu":
            keys, values = (torch.cat([branches.each(a), b], dim=2) for a, b in ((k_P, k_R), (v_P, v_R)))
            seen = branches.each(branches.by_completions)
            found = sdpa_attention_forward(module, q_R, keys, values, seen, **how)[0]
        else:
            scaling = how.get("scaling") or query.shape[-1] ** -0.5
            k_P, k_R = branches.split(centred(module, key))
            found = _by_prompts(q_R * scaling, (k_R, v_R), (k_P, v_P), branches)
        parts.append(found.flatten(0, 1))
    return torch.cat(parts).unsqueeze(0), None


def _by_prompts(query: Tensor, own: tuple[Tensor, Tensor], prompt: tuple[Tensor, Tensor], branches: Branches) -> Tensor:
    """The completions' part as plain products, (R, W, heads, D): one with its keys for all that follows a prompt.

    Where prompts have unequal numbers of completions, each of these has the prompt for itself.
    """
    (rows, heads, width, size), groups = query.shape, own[0].shape[1]
    prompt_keys, prompt_values = prompt if branches.even else (branches.each(prompt[0]), branches.each(prompt[1]))
    p, _, s, _ = prompt_keys.shape
    k, q = rows // p, heads // groups

    def by_prompt(one: Tensor) -> Tensor:
        """(R, heads, W, D) -> (P, G, K, heads / G * W, D)."""
        return one.reshape(p, k, groups, -1, size).transpose(1, 2)

    queries = by_prompt(query).reshape(p * groups, k * q * width, size)
    keys, values = (by_prompt(one).reshape(p * groups * k, width, size) for one in own)
    scores = torch.cat(
        [
            (queries @ prompt_keys.reshape(p * groups, s, size).transpose(1, 2)).view(p, -1, width, s),
            (queries.view(-1, q * width, size) @ keys.transpose(1, 2)).view(p, -1, width, width),
        ],
        dim=-1,
    )
    weights = scores.add_(branches.bias(scores.dtype)).softmax(-1)  # within it everything is float32
    over_prompt = weights[..., :s].reshape(p * groups, k * q * width, s)
    of_prompt = over_prompt @ prompt_values.reshape(p * groups, s, size)
    over_own = weights[..., s:].reshape(-1, q * width, width)
    found = torch.baddbmm(of_prompt.view(-1, q * width, size), over_own, values)
    return found.view(p, groups, k, q, width, size).permute(0, 2, 4, 1, 3, 5).reshape(rows, width, heads, size)


def _before(tokens: int, device: torch.device) -> Tensor:
    """(tokens, tokens): what each sees of them."""
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()


# With no function that makes masks for it transformers makes none: what is seen goes to attention with the branches.
AttentionInterface.register(NAME, attend_branches)
