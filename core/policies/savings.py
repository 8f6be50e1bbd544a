"""What a step leaves out because its numbers are the same without it.

All of it is on in every run. Switching one off is for measuring what it saves, and for tests that compare it with the
plain way. Not here: how each is done (core.policies.lm.decoding, core.policies, core.training).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Savings:
    """Each one True: the quick way, False: the plain one. They change rounding at most, but for `inverse_cdf`."""

    shared_prefill: bool = True  # sampling runs a prompt once, not once for each of its completions
    lean_steps: bool = True  # a drawn token runs through few operations of ours, not through the model's own modules
    recorded_steps: bool = True  # on a GPU a drawn token's operations are recorded once and launched as one
    finished_leave: bool = True  # a row that drew its end leaves the decode batch
    inverse_cdf: bool = True  # a token is drawn by one uniform of its row's own; False: torch.multinomial, other draws
    folded_adapter: bool = True  # sampling from weights with the adapter added in, where that is exact up to rounding
    shared_prompts: bool = True  # scoring and learning run a prompt once
    grouped_heads: bool = True  # attention of short rows on the CPU as plain products
    one_product: bool = True  # a LoRA layer in the dtype of its weights, its adapter not cast token by token
    fused_norms: bool = True  # a norm is one operation for autograd, not eight
    fused_head: bool = True  # log-probs from hidden states in chunks, logits of drawn tokens only, never all at once
    pulling_rows: bool = True  # rows whose gradient is 0 by their numbers are not run
    by_length: bool = True  # micro-batches within a budget of tokens, of groups of like length

    def without(self, *names: str) -> Savings:
        """These with the named ones off. Raises ValueError for a name that is none."""
        allowed = [field.name for field in fields(self)]
        for name in names:
            if name not in allowed:
                raise ValueError(f"got {name!r}, which is no saving; allowed: {', '.join(allowed)}")
        return replace(self, **dict.fromkeys(names, False))


PLAIN = Savings(**{field.name: False for field in fields(Savings)})
