"""Groups of stored outputs: which take part, what is counted, whose log-probs are old; documents 001's own numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from core.config import GrpoStage
from core.tasks.base import Example, Outcome
from core.training.requests import Learn, Score
from core.training.step import HeldOut
from core.training.trainer import Parts, Trainer
from tests.fakes import PricedTask, TabularPolicy, asked, grpo_stage, ran, run_spec, trainer_of


class StoredTask(PricedTask):
    """Each problem has stored outputs, arms of the table, with a reward for each; right is what earns 1 or more."""

    def __init__(self, rewards: Sequence[Sequence[float]]) -> None:
        super().__init__(lambda problem, output: [*rewards[problem], *[0.0] * 12][int(output)], prompts=len(rewards))
        self.rewards = rewards

    def stored(self, example: Example) -> Sequence[str]:
        return [str(arm) for arm in range(len(self.rewards[int(str(example.facts["n"]))]))]

    def score(
        self, examples: Sequence[Example], outputs: Sequence[Any], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        plain = super().score(examples, outputs, ids)
        return [Outcome(reward=o.reward, expected=o.reward, valid=True, right=o.reward >= 1) for o in plain]


def offline(**changes: Any) -> GrpoStage:
    return grpo_stage(**{"groups": "offline", "max_steps": 1, "num_generations": 5, **changes})


def stored_run(rewards: Sequence[Sequence[float]], **changes: Any) -> Trainer:
    stage = offline(prompts_per_step=len(rewards), **changes)
    task = {"name": "arithmetic", "train_prompts": len(rewards), "eval_prompts": 1}
    return trainer_of(TabularPolicy(arms=12), StoredTask(rewards), stage, task=task)


DOCUMENT = {"advantage": {"ddof": 1, "eps": 1e-8, "std_floor": 0.1, "clip": 5.0}}


@pytest.mark.parametrize(("keep", "std", "most"), [(3, 0.00625, 0.0072), (5, 0.00625, 0.0090)])
def test_four_live_groups_of_640_are_the_documents_numbers(keep: int, std: float, most: float) -> None:
    # Two queries with one right answer of twelve, two with two; all others all right or all wrong.
    one, two = [2.0, *[0.0] * 11], [2.0, 2.0, *[0.0] * 10]
    rewards = [one, one, two, two, *[[2.0] * 12] * 340, *[[0.0] * 12] * 296]
    row = ran(stored_run(rewards, num_generations=keep, keep_candidates=float(keep), **DOCUMENT)).rows[1]
    assert row["advantage/group_std"] == pytest.approx(std, abs=1e-7)
    assert row["advantage/group_max"] == pytest.approx(most, abs=5e-5)
    assert row["groups/dead"] == 636 / 640


def test_the_best_take_part_and_a_short_group_is_filled_up_with_what_is_no_output() -> None:
    rewards = [[0.0, 3.0, 1.0, 2.0], [5.0, 4.0]]
    recorder = ran(stored_run(rewards, num_generations=3))
    kept = {(sample["prompt_id"], sample["text"]) for sample in recorder.samples}
    assert kept == {("train-0", "1"), ("train-0", "2"), ("train-0", "3"), ("train-1", "0"), ("train-1", "1")}
    row = recorder.rows[1]
    assert row["completions"] == 0  # nothing is sampled
    assert row["reward/missing"] == 0
    assert row["reward/mean"] == pytest.approx((3 + 1 + 2 + 5 + 4) / 5)
    assert row["completions/valid"] == 1
    assert row["completions/distinct"] == 4 / 5  # arm 1 stands in both groups
    assert row["advantage/mean"] == pytest.approx(0.0, abs=1e-9)


def test_a_group_of_fewer_has_the_gradient_of_its_own_rows() -> None:
    """Padding is in no mean: a group of two beside one of three, against the same by hand."""
    stage = {"surrogate": "reinforce", "reduction": "sequence_sum", "advantage": {"scale_rewards": "none"}}
    made = stored_run([[0.0, 3.0, 1.0], [5.0, 4.0]], num_generations=3, **stage)
    before = made.policy.logits.detach().clone()  # type: ignore[attr-defined]
    update = next(request.update for request, _ in asked(made) if isinstance(request, Learn))
    assert update is not None
    advantages = {0: [-4 / 3, 5 / 3, -1 / 3], 1: [0.5, -0.5]}
    expected = torch.zeros(12)
    for group in advantages.values():
        for arm, advantage in enumerate(group):
            expected -= advantage / 5 * (torch.eye(12)[arm] - before.softmax(-1))
    moved = made.policy.logits.detach() - before  # type: ignore[attr-defined]
    # AdamW's first step is the sign of the gradient; of one that is 0 it is that of rounding, or nothing.
    told = expected.abs() > 1e-6
    assert told.tolist() == [True] * 3 + [False] * 9
    assert torch.equal(moved[told].sign(), -expected[told].sign())


def test_old_log_probs_are_the_trainers_own_unless_another_policy_is_named() -> None:
    def weights_scored(**changes: Any) -> list[str]:
        requests = [request for request, _ in asked(stored_run([[0.0, 3.0, 1.0], [5.0, 4.0]], **changes))]
        return [request.weights for request in requests if isinstance(request, Score) and request.name == "score"]

    # The first is the entropy's; nothing was recorded that could be compared.
    assert weights_scored() == ["current", "current"]
    assert weights_scored(old_policy="reference") == ["current", "reference"]
    assert weights_scored(old_policy="start_of_epoch") == ["current", "epoch"]
    assert weights_scored(old_policy="reference", beta=0.1) == ["current", "reference"]  # scored once


class Moving(TabularPolicy):
    """Counts when an epoch's weights are kept, and keeps them."""

    def __init__(self) -> None:
        super().__init__(arms=4)
        self.kept: list[torch.Tensor] = []

    def keep(self, which: Any) -> None:
        assert which == "epoch"
        self.kept.append(self.logits.detach().clone())


def test_an_epochs_weights_are_kept_where_it_begins() -> None:
    policy = Moving()
    stage = offline(old_policy="start_of_epoch", prompts_per_step=2, num_generations=2, max_steps=5)
    task = {"name": "arithmetic", "train_prompts": 4, "eval_prompts": 1}
    ran(trainer_of(policy, StoredTask([[0.0, 1.0]] * 4), stage, task=task))
    assert len(policy.kept) == 3  # before steps 1, 3 and 5
    assert not torch.equal(policy.kept[0], policy.kept[1])


def test_a_random_choice_is_of_the_step_and_a_stratified_one_has_both() -> None:
    rewards = [[2.0] * 9 + [0.0] + [2.0] * 2]  # one wrong of twelve: best of 3 never has it

    def texts(choice: str, steps: int = 6) -> list[list[float]]:
        made = stored_run(rewards, candidate_choice=choice, num_generations=3, max_steps=steps)
        found: dict[Any, list[float]] = {}
        for sample in ran(made).samples:
            found.setdefault(sample["step"], []).append(float(str(sample["reward"])))
        return list(found.values())

    assert all(rewards == [2.0, 2.0, 2.0] for rewards in texts("best"))
    assert all(sorted(rewards) == [0.0, 2.0, 2.0] for rewards in texts("stratified"))
    drawn = {
        tuple(str(s["text"]) for s in ran(stored_run(rewards, candidate_choice="random", num_generations=3)).samples)
        for _ in range(2)
    }
    assert len(drawn) == 1  # the same run draws the same
    steps = ran(stored_run(rewards, candidate_choice="random", num_generations=3, max_steps=6)).samples
    assert len({str(s["text"]) for s in steps}) > 3


def test_reward_weighted_imitation_of_stored_groups_weighs_each_group_one() -> None:
    stage = {"kind": "rce", "groups": "offline", "num_generations": 3, "prompts_per_step": 2, "learning_rate": 0.05}
    stages = {"rce": {**stage, "max_steps": 1, "tau": 1.0}}
    spec = run_spec(stages=stages, task={"name": "arithmetic", "train_prompts": 2, "eval_prompts": 1})
    task = StoredTask([[0.0, 1.0, 2.0], [1.0, 1.0]])
    row = ran(Trainer(Parts(spec=spec, policy=TabularPolicy(arms=4), task=task))).rows[1]
    # Uniform log-probs of log(1/4): each group's weights add up to 1, whatever its size.
    assert row["rce/loss"] == pytest.approx(math.log(4))


def test_a_held_out_problem_is_known_by_what_both_are_given() -> None:
    # Held-out queries of files offer choices beside their embeddings; training queries do not.
    def query(name: str, embedding: float, **more: object) -> Example:
        return Example(id=name, inputs={"query": embedding, **more})

    held_out = HeldOut([query("a", 0.5, choices=((0, 1),)), query("b", 0.25, choices=((0, 1),))])
    assert [held_out.has(one) for one in (query("c", 0.5), query("b", 1.0), query("d", 1.0))] == [True, True, False]
