"""One optimiser step: what it moves, when it does not, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan, sqrt

import pytest
import torch

from core.errors import CheckpointError
from core.policies.base import Policy, Rollout, Sampling, Scores
from core.randomness import RowKey
from core.training.parallel import Alone, Machine
from core.training.update import LossParts, Update
from tests.fakes import PricedTask, TabularPolicy, batch_of, grpo_stage, small_policy

Loss = Callable[[Scores, Sequence[int]], LossParts]
KEY = RowKey(0, 3, 1, 0, 0)


def rollout_of(policy: Policy, n: int = 6) -> Rollout:
    prompts = PricedTask(lambda prompt, output: 0.0, prompts=2).examples("train")
    how = Sampling(temperature=1.0, max_completion_length=5)
    return policy.sample(prompts, n // 2, how, [RowKey(0, 0, 1, 0, row) for row in range(n)])


def likelihood(scores: Scores, rows: Sequence[int]) -> LossParts:
    """Minus the log-likelihood of the rows, each the row number times: it tells the rows apart."""
    weights = torch.tensor([float(row) for row in rows]).unsqueeze(-1)
    total = -(scores.logprobs_NT * weights).sum()
    return LossParts(total=total, sums={"rows": torch.tensor(float(len(rows)))}, maxima={"row": weights.max()})


def test_the_first_step_of_adamw_moves_by_the_learning_rate_against_the_sign() -> None:
    # AdamW's first step is lr * g / (|g| + 1e-8): the sign of the gradient times lr.
    policy = TabularPolicy()
    with torch.no_grad():
        policy.logits.copy_(torch.tensor([0.5, 0.0, 0.0, 0.0]))
    update = Update(policy, grpo_stage())

    def loss(scores: Scores, rows: Sequence[int]) -> LossParts:
        return LossParts(total=policy.logits[0] * 3.0 - policy.logits[1])

    metrics = update.apply([batch_of(rollout_of(policy), loss, 6)], learning_rate=0.1, key=KEY)
    assert policy.logits.tolist() == [pytest.approx(v) for v in (0.4, 0.1, 0.0, 0.0)]
    assert metrics == {
        "loss": pytest.approx(1.5),
        "grad_norm": pytest.approx(sqrt(10)),
        "learning_rate": 0.1,
        "update": 1.0,
    }


def test_weight_decay_is_the_specs() -> None:
    # Decoupled: the weight shrinks by lr * decay, whatever the gradient (here 0) is.
    policy = TabularPolicy()
    with torch.no_grad():
        policy.logits.fill_(1.0)
    update = Update(policy, grpo_stage(weight_decay=0.5))
    loss: Loss = lambda scores, rows: LossParts(total=policy.logits.sum() * 0.0)  # noqa: E731
    update.apply([batch_of(rollout_of(policy), loss, 6)], learning_rate=0.1, key=KEY)
    assert policy.logits.tolist() == [pytest.approx(0.95)] * 4


@pytest.mark.parametrize(("limit", "expected"), [(100.0, (3.0, 4.0)), (1.0, (0.6, 0.8))])
def test_the_gradient_is_clipped_to_the_norm_of_the_spec(limit: float, expected: tuple[float, float]) -> None:
    # The gradient is (3, 4): its norm is 5, reported before clipping. exp_avg after one step is 0.1 * gradient.
    policy = TabularPolicy(2)
    update = Update(policy, grpo_stage(max_grad_norm=limit))
    loss: Loss = lambda scores, rows: LossParts(total=policy.logits @ torch.tensor([3.0, 4.0]))  # noqa: E731
    metrics = update.apply([batch_of(rollout_of(policy), loss, 6)], learning_rate=0.1, key=KEY)
    assert metrics["grad_norm"] == pytest.approx(5.0)
    assert (10 * update.state()["logits.exp_avg"]).tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("micro_rows", [1, 2, 4, 6, 100])
def test_micro_batches_add_up_and_maxima_are_the_largest(micro_rows: int) -> None:
    reference, policy = TabularPolicy(), TabularPolicy()
    rollout = rollout_of(policy)
    whole, cut = Update(reference, grpo_stage()), Update(policy, grpo_stage())
    expected = whole.apply([batch_of(rollout_of(reference), likelihood, 6)], learning_rate=0.1, key=KEY)
    got = cut.apply([batch_of(rollout, likelihood, micro_rows)], learning_rate=0.1, key=KEY)
    assert got == {name: pytest.approx(number) for name, number in expected.items()}
    assert (got["rows"], got["row"]) == (6.0, 5.0)
    assert torch.allclose(policy.logits, reference.logits, atol=1e-7)


def nothing_finite(scores: Scores, rows: Sequence[int]) -> LossParts:
    return LossParts(total=scores.logprobs_NT.sum() * nan)


def finite_with_a_gradient_that_is_not(scores: Scores, rows: Sequence[int]) -> LossParts:
    return LossParts(total=(scores.logprobs_NT * 0.0).abs().sqrt().sum())  # sqrt at 0: inf * 0


def one_bad_row(scores: Scores, rows: Sequence[int]) -> LossParts:
    return LossParts(total=scores.logprobs_NT.sum() * (nan if 3 in rows else 1.0))


@pytest.mark.parametrize("loss", [nothing_finite, finite_with_a_gradient_that_is_not, one_bad_row])
def test_what_is_not_finite_makes_no_step(loss: Loss) -> None:
    policy = TabularPolicy()
    update = Update(policy, grpo_stage())
    rollout = rollout_of(policy)
    update.apply([batch_of(rollout, likelihood, 6)], learning_rate=0.1, key=KEY)
    weights, state = policy.state()["logits"], update.state()
    metrics = update.apply([batch_of(rollout, loss, 2)], learning_rate=0.1, key=KEY)
    assert metrics["update"] == 0.0
    assert torch.equal(policy.logits, weights)
    assert all(torch.equal(value, state[name]) for name, value in update.state().items())
    assert policy.logits.grad is None  # and nothing of it is left for the next one
    assert update.apply([batch_of(rollout, likelihood, 6)], learning_rate=0.1, key=KEY)["update"] == 1.0


def dropped_out(key: RowKey) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights after an update with dropout 0.5, and the global generator's state after it."""
    policy = small_policy(lora_dropout=0.5)
    rollout = rollout_of(policy)
    torch.manual_seed(11)
    for step in (1, 2):  # a fresh adapter's B is 0: its A (and so dropout's effect on it) moves from the second on
        loss: Loss = lambda scores, rows: LossParts(total=-scores.logprobs_NT[:, 0].sum())  # noqa: E731
        Update(policy, grpo_stage()).apply(
            [batch_of(rollout, loss, 4)], learning_rate=0.05, key=key._replace(step=key.step + step)
        )
    return torch.cat([value.flatten() for value in policy.state().values()]), torch.get_rng_state()


def test_dropout_belongs_to_the_key_and_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first, after = dropped_out(KEY)
    again, _ = dropped_out(KEY)
    other, _ = dropped_out(KEY._replace(seed=1))
    assert torch.equal(after, before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_optimisers_state_goes_out_and_comes_back() -> None:
    policy = TabularPolicy()
    update = Update(policy, grpo_stage())
    assert update.state() == {}
    rollout = rollout_of(policy)
    update.apply([batch_of(rollout, likelihood, 6)], learning_rate=0.1, key=KEY)
    state, weights = update.state(), policy.state()
    assert set(state) == {"logits.exp_avg", "logits.exp_avg_sq", "logits.step"}
    update.apply([batch_of(rollout, likelihood, 6)], learning_rate=0.1, key=KEY)
    expected = policy.state()["logits"]

    other = TabularPolicy()
    other.load(weights)
    resumed = Update(other, grpo_stage())
    resumed.load(state)
    resumed.apply([batch_of(rollout, likelihood, 6)], learning_rate=0.1, key=KEY)
    assert torch.equal(other.logits, expected)
    resumed.load({})  # back to before the first step
    assert resumed.state() == {}


def test_state_of_another_model_is_refused() -> None:
    update = Update(TabularPolicy(), grpo_stage())
    with pytest.raises(CheckpointError, match="unknown parameter 'stranger'"):
        update.load({"stranger.exp_avg": torch.zeros(1)})


class Third(Alone):
    """A world of one whose process says that it is the third."""

    rank = 2


def test_each_rank_drops_out_by_a_key_of_its_own() -> None:
    policy, seeds = TabularPolicy(), []
    rollout = rollout_of(policy)

    def loss(scores: Scores, rows: Sequence[int]) -> LossParts:
        seeds.append(torch.initial_seed())
        return likelihood(scores, rows)

    for world in (Alone(), Third(), Alone()):
        update = Update(policy, grpo_stage())
        batch = batch_of(rollout, loss, 6)
        update.apply([batch], learning_rate=0.1, key=KEY, machine=Machine(world=world))
    first, third, again = seeds
    assert first == again != third
