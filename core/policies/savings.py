"""The one switch of all fast paths: what sampling, scoring and learning leave out because numbers are the same without.

All of it is on in every run. Switching one off is for measuring what it saves, and for tests that compare it with the
plain way. Each stands in the file named beside it: of core/policies/lm, of core/training where that is said.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Savings:
    """Each one True: the quick way, False: the plain one. Numbers are equal up to rounding unless it says otherwise."""

    shared_prefill: bool = True  # decoding.py: sampling runs a prompt once, not once for each of its completions
    lean_steps: bool = True  # fast/decoder_step.py, kv_cache.py: a drawn token in few operations of ours
    recorded_steps: bool = (
        True  # fast/decoder_step.py: a drawn token's operations are launched as one; the same numbers
    )
    finished_leave: bool = True  # decoding.py: a row that drew its end leaves the decode batch
    inverse_cdf: bool = True  # decoding.py: one uniform of the row's own; False: torch.multinomial, which draws others
    folded_adapter: bool = True  # fast/fused_layers.py: sampling from weights with the adapter added in
    shared_prompts: bool = True  # forward.py, fast/attention.py: scoring and learning run a prompt once
    grouped_heads: bool = True  # fast/attention.py: attention of short rows on the CPU as plain products
    one_product: bool = True  # fast/fused_layers.py: a LoRA layer in the dtype of its weights, tokens not cast
    fused_norms: bool = True  # fast/fused_layers.py: a norm is one operation for autograd, not eight
    fused_head: bool = True  # forward.py: log-probs from hidden states in chunks, logits of drawn tokens only
    pulling_rows: bool = True  # training/grpo.py: rows whose gradient is 0 by their numbers are not run
    by_length: bool = True  # batches.py: micro-batches within a budget of tokens, of groups of like length

    def without(self, *names: str) -> Savings:
        """These with the named ones off. Raises ValueError for a name that is none."""
        allowed = [field.name for field in fields(self)]
        for name in names:
            if name not in allowed:
                raise ValueError(f"got {name!r}, which is no saving; allowed: {', '.join(allowed)}")
        return replace(self, **dict.fromkeys(names, False))
