"""The pointer network: how well each candidate suits a query, as logits.

Query and candidates share a projection; the query attends to the candidates once; both sides are projected again and
compared by their cosine. Numbers of the documents' network: 525,824 weights at a width of 512.
Shape suffixes: P queries, K candidates each, D the embeddings' width, H the hidden width; C pools of candidates (P, or
1 where all queries have the same), Q queries of a pool.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear, normalize

from core.config.policy import PointerConfig

BACKBONE = ("shared.", "query_map.", "candidate_map.")  # what `frozen` leaves as it is: attention and norm are trained
JITTER = 0.01  # of the two maps' start around the identity


class Projected(NamedTuple):
    """Candidates after their own part of the network: as attention sees them, and as queries are compared with them."""

    candidates_CKH: Tensor
    direction_CKH: Tensor


class PointerNetwork(nn.Module):
    """Embeddings of queries and candidates -> logits over each query's candidates."""

    def __init__(self, settings: PointerConfig) -> None:
        super().__init__()
        hidden = settings.hidden
        self.sharpness = 1.0 / settings.cosine_temperature
        self.shared = nn.Linear(settings.width, hidden, bias=False)
        self.attention = nn.MultiheadAttention(hidden, 1, dropout=settings.attention_dropout, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(settings.dropout)
        self.query_map = nn.Linear(hidden, hidden, bias=False)
        self.candidate_map = nn.Linear(hidden, hidden, bias=False)
        with torch.no_grad():
            for layer in (self.query_map, self.candidate_map):
                layer.weight.copy_(torch.eye(hidden) + JITTER * torch.randn(hidden, hidden))

    def forward(
        self, query_CQD: Tensor, candidates: Tensor | Projected, absent_CK: Tensor | None
    ) -> tuple[Tensor, Projected]:
        """(C, Q, D), (C, K, D) -> logits (C, Q, K), and the projected candidates, which may be given again.

        Logits are -inf where `absent_CK` says that a pool has no such candidate. What is given again is of the same
        weights, and has their draw of dropout.
        """
        query_CQH = self.shared(query_CQD)
        candidates_CKH = self.shared(candidates) if isinstance(candidates, Tensor) else candidates.candidates_CKH
        attended_CQH = self._attend(query_CQH, candidates_CKH, absent_CK)
        query_CQH = self.query_map(self.dropout(self.norm(query_CQH + attended_CQH)))
        if isinstance(candidates, Tensor):
            mapped_CKH = self.candidate_map(self.dropout(candidates_CKH))
            candidates = Projected(candidates_CKH, normalize(mapped_CKH, dim=-1))
        cosine_CQK = normalize(query_CQH, dim=-1) @ candidates.direction_CKH.transpose(-1, -2)
        logits_CQK: Tensor = self.sharpness * cosine_CQK
        if absent_CK is not None:
            logits_CQK = logits_CQK.masked_fill(absent_CK.unsqueeze(1), -math.inf)
        return logits_CQK, candidates

    def _attend(self, query_CQH: Tensor, candidates_CKH: Tensor, absent_CK: Tensor | None) -> Tensor:
        """What `self.attention` gives for the query over the candidates, with one head.

        The projections of keys and values are taken to the query's side, (W_k c) q = c (W_k' q): there are many
        candidates and few queries. The bias of the keys shifts all scores of a query alike and drops out.
        """
        hidden = query_CQH.shape[-1]
        of_query, of_key, of_value = self.attention.in_proj_weight.chunk(3)
        query_bias, _, value_bias = self.attention.in_proj_bias.chunk(3)
        asked_CQH = linear(query_CQH, of_query, query_bias) @ of_key / math.sqrt(hidden)
        scores_CQK = asked_CQH @ candidates_CKH.transpose(-1, -2)
        if absent_CK is not None:
            scores_CQK = scores_CQK.masked_fill(absent_CK.unsqueeze(1), -math.inf)
        shares_CQK = dropout(scores_CQK.softmax(-1), self.attention.dropout, self.training)
        mixed_CQH = linear(shares_CQK @ candidates_CKH, of_value) + shares_CQK.sum(-1, keepdim=True) * value_bias
        attended_CQH: Tensor = self.attention.out_proj(mixed_CQH)
        return attended_CQH


def log_probs_of_picks(logits_NK: Tensor, picks_NT: Tensor) -> tuple[Tensor, Tensor]:
    """Log-prob and entropy of each pick, (N, T) each: a picked candidate cannot be picked again, all else stays.

    logits (N, K), picks (N, T) positions that differ within a row. float32, in nats.
    """
    log_probs, entropies = [], []
    for picks_N1 in picks_NT.unsqueeze(-1).unbind(1):
        log_NK = logits_NK.log_softmax(-1)
        log_probs.append(log_NK.gather(-1, picks_N1))
        # A candidate that cannot be picked has log-prob -inf, and no part in the entropy.
        entropies.append(-(log_NK.exp() * log_NK.masked_fill(log_NK == -math.inf, 0.0)).sum(-1, keepdim=True))
        logits_NK = logits_NK.scatter(-1, picks_N1, -math.inf)
    return torch.cat(log_probs, -1), torch.cat(entropies, -1)


def draw_picks(logits_NK: Tensor, uniforms_NT: Tensor) -> Tensor:
    """T picks for each row, one after another without replacement: logits (N, K), uniforms in [0, 1) -> (N, T).

    By the inverse of the cumulative distribution, in float64: a row's picks depend on its own uniforms only.
    """
    picks = []
    for uniform_N1 in uniforms_NT.double().unsqueeze(-1).unbind(1):
        cumulative_NK = logits_NK.double().softmax(-1).cumsum(-1)
        # The whole is 1 but for rounding; nothing lies above it, and what cannot be picked has no width.
        picks_N1 = torch.searchsorted(cumulative_NK, uniform_N1 * cumulative_NK[:, -1:], right=True)
        picks.append(picks_N1)
        logits_NK = logits_NK.scatter(-1, picks_N1, -math.inf)
    return torch.cat(picks, -1)
