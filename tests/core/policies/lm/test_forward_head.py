"""Log-probs and entropies from hidden states: by hand, and in value and gradient as logits that are all there give."""

from __future__ import annotations

import weakref
from math import log
from typing import Any

import pytest
import torch
from torch import Tensor

from core.policies.lm import forward
from core.policies.lm.forward import logit_scores, token_scores

V, H, M = 13, 5, 9


def linear(*, bias: bool = False, trained: bool = False) -> torch.nn.Linear:
    torch.manual_seed(0)
    layer = torch.nn.Linear(H, V, bias=bias)
    torch.nn.init.normal_(layer.weight)
    return layer.requires_grad_(trained)


def hidden() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(M, H, requires_grad=True), torch.randint(0, V, (M,))


def test_two_words_by_hand() -> None:
    # W = identity, h = (0, log 3): p = (1/4, 3/4). log p(1) = log 3/4, its gradient W[1] - (1/4, 3/4) = (-1/4, 1/4).
    # Entropy = (log 4)/4 + 3/4 log(4/3); its gradient -p (log p + entropy) in each of the two.
    layer = torch.nn.Linear(2, 2, bias=False).requires_grad_(False)
    layer.weight.data = torch.eye(2)
    h = torch.tensor([[0.0, log(3.0)]], requires_grad=True)
    logprob, entropy = token_scores(layer, h, torch.tensor([1]), temperature=1.0, entropy=True)
    expected = log(4.0) / 4 + 0.75 * log(4 / 3)
    assert logprob.item() == pytest.approx(log(0.75))
    assert entropy.item() == pytest.approx(expected)
    (by_logprob,) = torch.autograd.grad(logprob.sum(), h, retain_graph=True)
    assert by_logprob[0].tolist() == pytest.approx([-0.25, 0.25])
    (by_entropy,) = torch.autograd.grad(entropy.sum(), h)
    assert by_entropy[0].tolist() == pytest.approx([-(log(0.25) + expected) / 4, -0.75 * (log(0.75) + expected)])


@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_values_and_gradients_are_those_of_all_logits(
    bias: bool, trained: bool, entropy: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(forward.CHUNK_BYTES, "cpu", chunk * 4 * V)
    layer, (h, ids) = linear(bias=bias, trained=trained), hidden()
    pulls = torch.linspace(-1, 2, M)
    moved = [h, *(p for p in layer.parameters() if p.requires_grad)]

    def found(way: Any) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        values = way()
        total = sum((value * (pulls + place)).sum() for place, value in enumerate(values))
        assert isinstance(total, Tensor)
        return values, torch.autograd.grad(total, moved)

    values, gradients = found(lambda: token_scores(layer, h, ids, temperature=0.7, entropy=entropy))
    plain, expected = found(lambda: logit_scores(layer(h), ids, temperature=0.7, entropy=entropy))
    assert len(values) == len(plain) == 1 + entropy
    for one, other in zip((*values, *gradients), (*plain, *expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_no_more_than_a_chunk_of_logits_is_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forward.CHUNK_BYTES, "cpu", 3 * 4 * V)
    layer, (h, ids) = linear(), hidden()
    alive: list[weakref.ref[Tensor]] = []
    most = 0
    linear_of = torch.nn.functional.linear

    def watched(*args: Any) -> Tensor:
        nonlocal most
        made = linear_of(*args)
        alive.append(weakref.ref(made))
        most = max(most, sum(len(one) for ref in alive if (one := ref()) is not None))
        return made

    monkeypatch.setattr(torch.nn.functional, "linear", watched)
    (values,) = token_scores(layer, h, ids, temperature=1.0, entropy=False)
    kept = [one.numel() for node in nodes(values) for one in getattr(node, "saved_tensors", ())]
    assert most == 3
    assert kept == [3 * H] * 3  # for backward, one vector of each token


def nodes(values: Tensor) -> list[Any]:
    """The graph's nodes behind a concatenation."""
    assert values.grad_fn is not None
    return [node for node, _ in values.grad_fn.next_functions]


def test_a_certain_token_keeps_its_small_gradient_in_bfloat16() -> None:
    # p(0) = 1 - 2e-4. W[0] - sum p W rounds to 0 or to 2**-8 in bfloat16; (p - 1) W[0] + p(1) W[1] does not.
    layer = torch.nn.Linear(1, 2, bias=False, dtype=torch.bfloat16).requires_grad_(False)
    layer.weight.data = torch.tensor([[1.0], [-1.0]], dtype=torch.bfloat16)
    h = torch.tensor([[4.25]], dtype=torch.bfloat16, requires_grad=True)
    (logprob,) = token_scores(layer, h, torch.tensor([0]), temperature=1.0, entropy=False)
    logprob.sum().backward()
    assert h.grad is not None
    exact = 2 / (1 + torch.tensor(8.5).exp().item())  # d log sigmoid(2 h) / dh
    assert h.grad.item() == pytest.approx(exact, rel=0.01)


def test_no_tokens_are_no_values() -> None:
    layer = linear()
    found = token_scores(layer, torch.zeros(0, H), torch.zeros(0, dtype=torch.long), temperature=1.0, entropy=True)
    assert [one.shape for one in found] == [(0,), (0,)]
