"""The pointer network as a policy: sampled, replayed, scored, and the weights that it keeps beside the current ones.

It computes on the CPU: half a million weights and a query at a time are sooner done there than a GPU is told of them.
Shape suffixes as in network; N rows, T picks of an output, R some of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import pad

from core.config.policy import PointerConfig
from core.errors import TaskError
from core.policies.base import ENTROPY, Keep, Rollout, Sampling, Scores, Weights
from core.policies.network import KEPT, NetworkPolicy
from core.policies.pointer.network import BACKBONE, PointerNetwork, Projected, draw_picks, log_probs_of_picks
from core.randomness import INIT, RowKey, seeded, uniforms
from core.tasks.base import Example

Pool = np.ndarray[Any, np.dtype[np.float32]]  # (K, D) embeddings of a query's candidates
AT_ONCE = 1 << 24  # numbers of candidates' embeddings that are put together at once: 64 MB


class PointerPolicy(NetworkPolicy):
    """Picks S of a query's candidates without replacement; log pi is the sum of the picks' log-probs.

    Drawn greedily (top_k 1) it gives `shots` picks, the best one first, or the most probable of the example's `choices`
    where it has such.
    """

    canary_every = 1

    def __init__(self, settings: PointerConfig, *, seed: int) -> None:
        with seeded(RowKey(seed, INIT, 0, 0, 0)):
            network = PointerNetwork(settings)
        self.settings = settings
        self._kept_logits: dict[Keep, dict[str, Tensor]] = {}  # of queries by id: the weights stay, so they do too
        self._kept_pools: dict[Keep, tuple[Pool, Projected]] = {}  # and the candidates of the pool they share
        self._canary: tuple[Example, Tensor] | None = None
        super().__init__(network)

    def keep(self, which: Keep) -> None:
        """Let the weights as they are now be the reference, or those that an epoch began with."""
        super().keep(which)
        self._kept_logits[which] = {}
        self._kept_pools.pop(which, None)

    def sync_reference(self, alpha: float) -> None:
        """Move the reference's weights towards the current ones."""
        super().sync_reference(alpha)
        self._kept_logits["reference"] = {}

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """K outputs of each query; raises TaskError where a query has fewer candidates than picks."""
        greedy = how.top_k == 1
        size = self.settings.shots if greedy else self.settings.picks
        if short := next((query for query in prompts if len(_candidates(query)) < size), None):
            have = len(_candidates(short))
            raise TaskError(f"query {short.id} has {have} candidates; allowed: at least {size}, one for each pick")
        prompt_N = torch.arange(len(prompts)).repeat_interleave(k)
        with torch.no_grad():
            logits_PK = self._logits(prompts, "current")
            if greedy:
                picks = [_best(query, logits_K, size) for query, logits_K in zip(prompts, logits_PK, strict=True)]
                outputs = [output for output in picks for _ in range(k)]
            else:
                drawn_NT = draw_picks(logits_PK[prompt_N] / how.temperature, uniforms(keys, size))
                outputs = [tuple(row) for row in drawn_NT.tolist()]
            rollout = _rollout(prompts, prompt_N, outputs, how)
            drawn_NT, _ = log_probs_of_picks(logits_PK[prompt_N] / how.temperature, rollout.actions["picks"])
            canary_T = self._canary_scores(how.temperature) if how.canary else None
        return replace(rollout, drawn_NT=drawn_NT.masked_fill(~rollout.mask_NT, 0.0), canary_T=canary_T)

    def replay(self, prompts: Sequence[Example], outputs: Sequence[Any]) -> Rollout:
        """One row for each query with the picks that are given, positions among its candidates. Raises TaskError."""
        for query, output in zip(prompts, outputs, strict=True):
            if len(set(output)) < len(output) or not all(0 <= pick < len(_candidates(query)) for pick in output):
                allowed = f"positions below {len(_candidates(query))} that differ"
                raise TaskError(f"query {query.id}: got the picks {list(output)}; allowed: {allowed}")
        how = Sampling(temperature=1.0, max_completion_length=max(map(len, outputs), default=1))
        return _rollout(prompts, torch.arange(len(prompts)), outputs, how)

    def canary(self, example: Example) -> Rollout | None:
        """The query's first candidates as picks."""
        rollout = self.replay([example], [tuple(range(self.settings.picks))])
        self._canary = example, rollout.actions["picks"]
        return rollout

    def _canary_scores(self, temperature: float) -> Tensor | None:
        """(T,) log-probs of the canary's picks at the rollout's temperature, as the trainer scores them."""
        if self._canary is None:
            return None
        example, picks_1T = self._canary
        return log_probs_of_picks(self._logits([example], "current") / temperature, picks_1T)[0][0]

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        """Log-probs of the rows' picks; with dropout where gradients are enabled, one draw of it for a query's rows."""
        prompt_R = rollout.prompt_N[list(rows)]
        numbers, place_R = torch.unique(prompt_R, return_inverse=True)
        self.network.train(torch.is_grad_enabled() and weights == "current")
        try:
            logits_PK = self._logits([rollout.prompts[number] for number in numbers.tolist()], weights)
        finally:
            self.network.eval()
        log_probs_RT, entropies_RT = log_probs_of_picks(
            logits_PK[place_R] / rollout.how.temperature, rollout.actions["picks"][list(rows)]
        )
        return Scores(logprobs_NT=log_probs_RT, entropies_NT=entropies_RT if ENTROPY in wants else None)

    def trainable(self) -> Mapping[str, Parameter]:
        """Every weight, or without those of the frozen backbone."""
        frozen = BACKBONE if self.settings.frozen else ()
        return {name: weight for name, weight in self.network.named_parameters() if not name.startswith(frozen)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state()`. Raises CheckpointError where names or shapes differ."""
        super().load(state)
        self._kept_logits = {which: {} for which in KEPT}
        self._kept_pools.clear()

    def _logits(self, queries: Sequence[Example], weights: Weights) -> Tensor:
        """(P, K) logits over each query's candidates, -inf beyond those of a query with fewer."""
        if weights == "current":
            return self._logits_now(queries, weights)
        known = self._kept_logits[weights]
        for query in queries:
            if query.id not in known:  # alone, so that its rounding does not depend on which step asked first
                known[query.id] = self._logits_now([query], weights)[0].detach()
        logits = [known[query.id] for query in queries]
        widest = max(map(len, logits))
        return torch.stack([pad(logits_K, (0, widest - len(logits_K)), value=-math.inf) for logits_K in logits])

    def _logits_now(self, queries: Sequence[Example], weights: Weights) -> Tensor:
        """`_logits`, computed."""
        pools = [_candidates(query) for query in queries]
        if all(pool is pools[0] for pool in pools):
            query_1PD = torch.from_numpy(np.stack([_embedding(query) for query in queries])).unsqueeze(0)
            return self._of_pool(query_1PD, pools[0], weights)[0]
        widest = max(len(pool) for pool in pools)
        size = max(1, AT_ONCE // (widest * pools[0].shape[1]))
        parts = [self._batch(queries[start : start + size], widest, weights) for start in range(0, len(pools), size)]
        return torch.cat(parts)

    def _of_pool(self, query_1QD: Tensor, pool: Pool, weights: Weights) -> Tensor:
        """(1, Q, K) logits over one pool of candidates; kept weights project a pool once."""
        known, projected = (None, None) if weights == "current" else self._kept_pools.get(weights, (None, None))
        candidates = torch.from_numpy(pool).unsqueeze(0) if projected is None or known is not pool else projected
        logits_1QK, projected = self._forward(query_1QD, candidates, None, weights)
        if weights != "current":
            self._kept_pools[weights] = pool, Projected(*(part.detach() for part in projected))
        return logits_1QK

    def _batch(self, queries: Sequence[Example], widest: int, weights: Weights) -> Tensor:
        """`_logits` of queries with pools of their own, padded to `widest` candidates."""
        pools = [_candidates(query) for query in queries]
        candidates_PKD = torch.zeros(len(pools), widest, pools[0].shape[1])
        absent_PK = torch.ones(len(pools), widest, dtype=torch.bool)
        for row, pool in enumerate(pools):
            candidates_PKD[row, : len(pool)] = torch.from_numpy(pool)
            absent_PK[row, : len(pool)] = False
        query_P1D = torch.from_numpy(np.stack([_embedding(query) for query in queries])).unsqueeze(1)
        absent = absent_PK if bool(absent_PK.any()) else None
        return self._forward(query_P1D, candidates_PKD, absent, weights)[0].squeeze(1)

    def _forward(
        self, query: Tensor, candidates: Tensor | Projected, absent: Tensor | None, weights: Weights
    ) -> tuple[Tensor, Projected]:
        for given in (query, candidates):
            if isinstance(given, Tensor) and given.shape[-1] != self.settings.width:
                got = f"got embeddings of {given.shape[-1]} numbers, and policy.width is {self.settings.width}"
                raise TaskError(f"{got}; set it to the embeddings' width")
        answer: tuple[Tensor, Projected] = self.forward(weights, query, candidates, absent)
        return answer


def _best(query: Example, logits_K: Tensor, size: int) -> tuple[int, ...]:
    """The `size` best candidates in order, or the most probable of the query's choices; of equal ones the first."""
    choices: Any = query.inputs.get("choices")
    if choices is None:
        return tuple(logits_K.argsort(descending=True, stable=True)[:size].tolist())
    log_probs_CT, _ = log_probs_of_picks(logits_K.expand(len(choices), -1), torch.tensor(choices))
    best: tuple[int, ...] = choices[int(log_probs_CT.sum(-1).argmax())]
    return best


def _rollout(prompts: Sequence[Example], prompt_N: Tensor, outputs: Sequence[Any], how: Sampling) -> Rollout:
    """The rows as a rollout in which nothing was recorded; rows of fewer picks than the longest are filled up."""
    widest = max(map(len, outputs), default=1)
    lengths_N1 = torch.tensor([[len(output)] for output in outputs])
    mask_NT = torch.arange(widest) < lengths_N1
    picks_NT = torch.tensor([[*output, *_others(output, widest - len(output))] for output in outputs])
    return Rollout(
        prompts=prompts,
        prompt_N=prompt_N,
        actions={"picks": picks_NT},
        mask_NT=mask_NT,
        drawn_NT=None,
        outputs=[tuple(output) for output in outputs],
        truncated_N=torch.zeros(len(outputs), dtype=torch.bool),
        how=how,
    )


def _others(output: Sequence[int], count: int) -> list[int]:
    """The first `count` positions that are not among the picks."""
    return [position for position in range(len(output) + count) if position not in output][:count]


def _candidates(query: Example) -> Pool:
    candidates: Any = query.inputs["candidates"]
    return candidates  # type: ignore[no-any-return]


def _embedding(query: Example) -> np.ndarray[Any, np.dtype[np.float32]]:
    """(D,) the query's own."""
    embedding: Any = query.inputs["query"]
    return embedding  # type: ignore[no-any-return]
