"""Cross-entropy on chosen outputs: the loss by hand, and a reward-weighted step's weights, candidates and filters."""

from __future__ import annotations

from math import exp, inf, log, nan
from typing import Any

import pytest
import torch

from core.policies.base import Scores
from core.training.imitation import ImitationLoss
from core.training.requests import Learn, StepDone
from tests.fakes import LongPolicy, PricedTask, ScriptedPolicy, TabularPolicy, asked, ran, trainer_of

# Rows of 3, 1 and 2 factors. Mean log-probs: -2, -3 and -1.
MASK = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
LOGPROBS = torch.tensor([[-1.0, -2.0, -3.0], [-3.0, nan, inf], [-0.5, -1.5, nan]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (None, (2 + 3 + 1) / 3),
        ([1.0, 1.0, 1.0], 2.0),
        ([3.0, 0.0, 0.0], 2.0),
        ([0.5, 2.0, 0.5], (1.0 + 6.0 + 0.5) / 3),
    ],
)
def test_the_loss_worked_by_hand(weights: list[float] | None, expected: float) -> None:
    weights_N = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    parts = ImitationLoss(mask_NT=MASK, weights_N=weights_N)(Scores(logprobs_NT=LOGPROBS), range(3))
    assert float(parts.total) == pytest.approx(expected)
    assert float(parts.sums["supervised/loss"]) == pytest.approx(expected)
    assert float(parts.terms["supervised"]) == pytest.approx(expected)


def test_the_scale_is_of_the_gradient_and_not_of_the_metric() -> None:
    logprobs = LOGPROBS.clone().requires_grad_()
    parts = ImitationLoss(mask_NT=MASK, scale=0.5, name="rce")(Scores(logprobs_NT=logprobs), range(3))
    assert parts.total.item() == parts.terms["rce"].item() == pytest.approx(1.0)
    assert float(parts.sums["rce/loss"]) == pytest.approx(2.0)
    parts.total.backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    # Descending raises what is imitated: half of 1 / (3 rows x length), and nothing of the padding.
    assert (-6 * logprobs.grad).tolist() == [
        pytest.approx(row) for row in ([1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0])
    ]


@pytest.mark.parametrize("cut", [[[0], [1], [2]], [[2, 0], [1]]])
def test_the_shares_of_micro_batches_add_up(cut: list[list[int]]) -> None:
    loss = ImitationLoss(mask_NT=MASK, weights_N=torch.tensor([0.5, 2.0, 0.5]))
    shares = [float(loss(Scores(logprobs_NT=LOGPROBS[rows]), rows).total) for rows in cut]
    assert sum(shares) == pytest.approx(2.5)


BY_ARM = PricedTask(lambda prompt, output: float(output))
BEST_IS_2 = PricedTask(lambda prompt, output: 1.0 if output == "2" else 0.0)


def rce(policy: Any, task: Any, **changes: object) -> Any:
    stage = {
        "kind": "rce", "max_steps": 3, "num_generations": 4, "prompts_per_step": 2, "learning_rate": 0.1,
        "lr_scheduler_type": "constant",
    }  # fmt: skip
    return trainer_of(policy, task, stages={"rce": stage | changes})


def weights_of(trainer: Any) -> list[list[list[float]]]:
    """The weights of each update's groups, each group's summing to 1."""
    found = []
    for request, _ in asked(trainer):
        if isinstance(request, Learn):
            (batch,) = request.batches
            weights_N = batch.loss.weights_N[list(batch.rows)] / 4  # type: ignore[attr-defined]
            found.append(weights_N.view(-1, 4).tolist())
    return found


def softmax(*values: float) -> list[float]:
    powers = [exp(value) for value in values]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize("tau", [0.5, 1.0, 4.0])
def test_weights_are_a_softmax_of_the_rewards(tau: float) -> None:
    expected = softmax(0.0, 1 / tau, 2 / tau, 3 / tau)
    assert sum(expected) == pytest.approx(1.0)
    for groups in weights_of(rce(ScriptedPolicy(), BY_ARM, tau=tau)):
        assert groups == [[pytest.approx(weight) for weight in expected]] * 2


def test_tau_moves_with_the_step() -> None:
    # 3 before step 1, down to 1 over two steps: 2, 1, 1.
    found = weights_of(rce(ScriptedPolicy(), BY_ARM, tau={"start": 3.0, "end": 1.0, "steps": 2}))
    for groups, tau in zip(found, (2.0, 1.0, 1.0), strict=True):
        assert groups[0] == [pytest.approx(weight) for weight in softmax(0.0, 1 / tau, 2 / tau, 3 / tau)]


def test_without_temperature_only_the_best_is_imitated() -> None:
    policy = ScriptedPolicy()
    for groups in weights_of(rce(policy, BY_ARM, tau=1e-3)):
        assert groups == [[0.0, 0.0, 0.0, 1.0]] * 2
    # Only arm 3 is pulled: the others fall all alike, by the softmax.
    *others, best = policy.logits.tolist()
    assert best > 0.2
    assert others == [pytest.approx(others[0])] * 3


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (2, [[0.0, 0.0, *softmax(2.0, 3.0)]] * 3),
        (1, [[0.0, 0.0, 0.0, 1.0]] * 3),
        (
            {"start": 1, "end": 3, "steps": 2},  # 2, 3, 3: few candidates early, more later
            [[0.0, 0.0, *softmax(2.0, 3.0)], *[[0.0, *softmax(1.0, 2.0, 3.0)]] * 2],
        ),
    ],
)
def test_only_the_best_candidates_are_kept(keep: object, expected: list[list[float]]) -> None:
    found = weights_of(rce(ScriptedPolicy(), BY_ARM, keep_candidates=keep))
    assert [groups[0] for groups in found] == [[pytest.approx(weight) for weight in step] for step in expected]


def test_a_missing_reward_is_not_imitated() -> None:
    task = PricedTask(lambda prompt, output: nan if output == "3" else float(output))
    for groups in weights_of(rce(ScriptedPolicy(), task)):
        assert groups[0] == [*(pytest.approx(weight) for weight in softmax(0.0, 1.0, 2.0)), 0.0]
    trainer = rce(ScriptedPolicy(), PricedTask(lambda prompt, output: nan))
    assert ran(trainer).column("update") == [0] * 3  # a gradient of 0 would let the momentum move the weights
    assert trainer.policy.logits.tolist() == [0.0] * 4


def test_equal_rewards_do_not_teach_to_end_early() -> None:
    # Each arm is drawn once, arm a with a + 1 factors. Every weight is 1/4, so under the sum of a row's log-probs the
    # pulls e_a - p cancel; under their mean, arm 0 would pull four times as hard as arm 3.
    trainer = rce(LongPolicy(), PricedTask(lambda prompt, output: 1.0))
    assert ran(trainer).column("update") == [1] * 3
    assert trainer.policy.logits.tolist() == [pytest.approx(0.0, abs=1e-6)] * 4


def test_it_raises_what_was_rewarded() -> None:
    policy = TabularPolicy()
    recorder = ran(rce(policy, BEST_IS_2, max_steps=60, num_generations=8, tau=0.3))
    assert policy.chance(2) > 0.75
    assert recorder.column("rce/loss")[0] == pytest.approx(log(4))  # uniform, and the weights of a group sum to 1
    assert recorder.column("update") == [1] * 60
    assert recorder.column("completions")[-1] == 60 * 16


def test_groups_without_a_positive_sample_are_left_out_and_counted() -> None:
    # Prompts 1 and 3 pay by arm, the others at most 0.5: those are sampled and scored, and not learned from.
    task = PricedTask(lambda prompt, output: float(output) if prompt % 2 else 0.5)
    found = asked(rce(ScriptedPolicy(), task, max_steps=8, prompts_per_step=3, positive_reward=1.0))
    rows = [request.row for request, _ in found if isinstance(request, StepDone)][1:]
    done = [request for request, _ in found if isinstance(request, StepDone)][1:]
    learned = {request.key.step: request for request, _ in found if isinstance(request, Learn)}
    for step, (row, finished) in enumerate(zip(rows, done, strict=True), start=1):
        odd = [int(str(s["prompt_id"])[-1]) % 2 for s in finished.samples][::4]
        assert row["groups/discarded"] == odd.count(0)
        assert row["completions"] == 12 * step
        (batch,) = learned[step].batches
        assert list(batch.rows) == [group * 4 + k for group in range(3) if odd[group] for k in range(4)]
        # What is left out does not water the others down: it has no part in the denominator.
        loss: Any = batch.loss
        assert loss.mask_NT.any(-1).tolist() == [bool(n) for n in odd for _ in range(4)]
    assert {row["groups/discarded"] for row in rows} == {1, 2}
    assert rows[0]["rce/loss"] == pytest.approx(log(4), rel=1e-5)


def test_where_no_group_is_positive_nothing_is_learned() -> None:
    trainer = rce(ScriptedPolicy(), PricedTask(lambda prompt, output: 0.1), positive_reward=1.0)
    recorder = ran(trainer)
    assert recorder.column("update") == [0] * 3
    assert recorder.column("groups/discarded") == [2] * 3
    assert recorder.column("completions") == [8, 16, 24]
    assert trainer.update.state() == {}
