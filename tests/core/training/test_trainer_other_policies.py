"""Policies that are no language model: densities, given outputs without recorded log-probs, losses of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from core.assemble import assemble, open_checkpoints
from core.config.run import check_fit
from core.errors import SpecError
from core.policies.base import Policy, Rollout, Sampling
from core.randomness import RowKey
from core.tasks.base import Example
from core.training.outcome import baselines
from core.training.requests import Learn
from core.training.trainer import Trainer, drive
from tests.bandit import PACKAGE, bandit_spec
from tests.fakes import ConsistentPolicy, PricedTask, Recorder, ScriptedPolicy, asked, grpo_stage, ran, trainer_of


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PACKAGE)


def bandit(folder: Path, stage: dict[str, Any] | None = None, **changes: Any) -> Trainer:
    spec = bandit_spec(stage, **changes)
    return assemble(spec, open_checkpoints(spec, folder))


def rows(trainer: Trainer) -> list[dict[str, float | None]]:
    recorder = Recorder()
    assert drive(trainer.steps(), recorder).status == "COMPLETED"
    return recorder.rows


def test_a_density_is_scored_as_it_was_drawn_and_its_entropy_is_no_limit(tmp_path: Path) -> None:
    narrow = rows(bandit(tmp_path, policy={"kind": "gaussian-bandit", "sigma": 0.05}))
    # ln(0.05) + (1 + ln(2 pi)) / 2 = -1.58 nats an action: far below min_entropy, and no collapse.
    assert narrow[1]["differential_entropy"] == pytest.approx(
        math.log(0.05) + 0.5 * (1 + math.log(2 * math.pi)), abs=0.1
    )
    assert "entropy" not in narrow[1]
    assert all(float(row["rollout/logprob_gap"] or 0.0) < 1e-5 for row in narrow[1:])


def test_log_probs_above_0_give_the_ratio_1_and_its_gradient(tmp_path: Path) -> None:
    trainer = bandit(tmp_path, {"max_steps": 1}, policy={"kind": "gaussian-bandit", "sigma": 0.01})
    (row,) = rows(trainer)[1:]
    assert row["policy/ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert float(row["grad_norm"] or 0.0) > 0


class OfflinePolicy(ScriptedPolicy):
    """Its outputs were drawn by somebody else: no log-probs were recorded."""

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        return replace(super().sample(prompts, k, how, keys), drawn_NT=None)


def test_without_recorded_log_probs_the_old_ones_are_scored_and_no_gap_is_claimed() -> None:
    task, stage = PricedTask(lambda _, output: float(output == "2")), grpo_stage(max_steps=2, num_iterations=2)
    offline, drawn = (trainer_of(policy, task, stage) for policy in (OfflinePolicy(), ScriptedPolicy()))
    ours, theirs = ran(offline), ran(drawn)
    assert "rollout/logprob_gap" not in ours.rows[1]
    assert "rollout/logprob_gap" in theirs.rows[1]
    for name in ("policy/loss", "grad_norm", "policy/ratio_max"):
        assert ours.column(name) == pytest.approx(theirs.column(name), abs=1e-6), name
    assert offline.policy.state()["logits"].tolist() == pytest.approx(drawn.policy.state()["logits"].tolist())


class PenalisedPolicy(ConsistentPolicy):
    """Another loss beside the consistency: minus the logit of arm 0, so that its gradient is known."""

    def score(self, rollout: Rollout, rows: Sequence[int], **how: Any) -> Any:
        scores = super().score(rollout, rows, **how)
        penalty = -self.logits[0].expand(len(rows))
        return replace(scores, losses_N={**scores.losses_N, "penalty": penalty})


NOTHING_TO_LEARN = PricedTask(lambda *_: 0.5, answer="1")


@pytest.mark.parametrize("kind", ["grpo", "sft", "rce"])
def test_a_stage_of_any_kind_weighs_the_policys_own_losses(kind: str) -> None:
    sampling = {} if kind == "sft" else {"num_generations": 4}
    stage = {
        "kind": kind, "max_steps": 1, "prompts_per_step": 2, "learning_rate": 0.5, "lr_scheduler_type": "constant",
        "loss_weights": {"penalty": 2.0}, **sampling, **({"skip_without_signal": False} if kind == "grpo" else {}),
    }  # fmt: skip
    trainer = trainer_of(PenalisedPolicy(), NOTHING_TO_LEARN, stages={"only": stage})
    row = ran(trainer).rows[1]
    assert row["weight/penalty"] == 2.0
    assert row["losses/penalty"] == 0.0  # the logits start at 0
    assert trainer.policy.state()["logits"][0] > 0.4  # 2 x the penalty pulls arm 0 up by the whole rate
    unweighed = trainer_of(PenalisedPolicy(), NOTHING_TO_LEARN, stages={"only": {**stage, "loss_weights": {}}})
    assert "losses/penalty" not in ran(unweighed).rows[1]


def test_a_weight_of_0_asks_for_nothing_and_a_schedule_moves() -> None:
    falling = {"start": 1.0, "end": 0.0, "steps": 2}
    stage = grpo_stage(max_steps=3, loss_weights={"penalty": falling, "consistency": 0.0})
    trainer = trainer_of(PenalisedPolicy(), PricedTask(lambda _, output: float(output == "2")), stage)
    batches = [request.batches[0] for request, _ in asked(trainer) if isinstance(request, Learn)]
    weights = [batch.loss.numbers.own_losses for batch in batches]  # type: ignore[attr-defined]
    assert weights == [{"penalty": 0.5}, {}, {}]
    assert [batch.wants for batch in batches] == [frozenset({"penalty"}), frozenset(), frozenset()]


def test_a_policy_inherits_what_most_policies_share(tmp_path: Path) -> None:
    policy: Policy = bandit(tmp_path).policy
    prompts = [Example(id=str(n), inputs={"context": (0.1 * n, 0.0, 1.0)}) for n in range(3)]
    how = Sampling(temperature=1.0, max_completion_length=2)
    parts = [policy.sample(prompts[:1], 2, how, keys(0, 2)), policy.sample(prompts[1:], 2, how, keys(2, 6))]
    whole, joined = policy.sample(prompts, 2, how, keys(0, 6)), policy.join(parts)
    assert joined.outputs == whole.outputs
    assert torch.equal(joined.actions["contexts"], whole.actions["contexts"])
    assert joined.prompt_N.tolist() == [0, 0, 1, 1, 2, 2]
    assert [list(part) for part in policy.split(whole, range(5), 2)] == [[0, 1], [2, 3], [4]]
    turned = whole.reordered(torch.tensor([5, 4, 3, 2, 1, 0]))
    assert turned.outputs == whole.outputs[::-1]
    policy.export(tmp_path)
    assert (tmp_path / "weights.safetensors").is_file()


def keys(first: int, last: int) -> list[RowKey]:
    return [RowKey(0, 0, 1, 0, row) for row in range(first, last)]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"surrogate": "dppo"}, "stages.grpo.surrogate"),
        ({"entropy_weighting": "token"}, "stages.grpo.entropy_weighting"),
        ({"adaptive_entropy": {}}, "stages.grpo.adaptive_entropy"),
        ({"mask_truncated_completions": True}, "stages.grpo.mask_truncated_completions"),
        ({"overlong": {}}, "stages.grpo.overlong"),
        ({"top_p": 0.9}, "stages.grpo.top_p"),
        ({"min_p": 0.1}, "stages.grpo.min_p"),
        ({"repetition_penalty": 1.1}, "stages.grpo.repetition_penalty"),
        ({"stop_strings": ["x"]}, "stages.grpo.stop_strings"),
        ({"top_k": 5}, "stages.grpo.top_k"),
        ({"loss_weights": {"sharpness": 0.1}}, "stages.grpo.loss_weights.sharpness"),
        ({"loss_weights": {"consistency": 0.1}, "consistency_weight": 0.1}, "stages.grpo.loss_weights.consistency"),
    ],
)
def test_what_continuous_actions_do_not_have_is_refused(changes: Mapping[str, Any], key: str) -> None:
    check_fit(bandit_spec())
    with pytest.raises(SpecError) as caught:
        check_fit(bandit_spec(dict(changes)))
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"faults": ["missing-eos"]}, "faults"),
        ({"export": {"merged": True}}, "export.merged"),
        ({"budget": {"tokens": 100}}, "budget.tokens"),
    ],
)
def test_what_only_language_models_have_is_refused(changes: Mapping[str, Any], key: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_fit(bandit_spec(**changes))
    assert caught.value.key == key


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"source": "builtin:tiny"}},
        {"task": {"name": "arithmetic"}},
        {"policy": {"kind": "lm"}},
        {"policy": {"kind": "lm"}, "model": {"source": "builtin:tiny"}},
    ],
)
def test_policy_model_and_task_must_belong_together(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"model|scores"):
        bandit_spec(**changes)


def test_one_that_is_given_a_language_models_loss_still_says_so() -> None:
    spec = bandit_spec({"consistency_weight": 0.1}, policy={"kind": "lm"}, model={"source": "builtin:tiny"},
                       task={"name": "arithmetic"})  # fmt: skip
    with pytest.raises(SpecError, match="a causal language model has no consistency loss"):
        check_fit(spec)


class OwnLossPolicy(ScriptedPolicy):
    """Each row's own loss is the number of the arm it drew, times the logit of arm 0 plus 1."""

    def score(self, rollout: Rollout, rows: Sequence[int], **how: Any) -> Any:
        scores = super().score(rollout, rows, **how)
        arms_R = torch.tensor([float(rollout.outputs[row]) for row in rows])
        return replace(scores, losses_N={"supervised": arms_R * (1 + self.logits[0])})


@pytest.mark.parametrize("split", [1, 3])
def test_the_policys_own_losses_can_be_of_the_best_rows_alone(split: int) -> None:
    task = PricedTask(lambda _, output: -abs(float(output) - 1))  # arm 1 is the best, then 0 and 2
    stage = {"max_steps": 1, "loss_weights": {"supervised": 1.0}, "gradient_accumulation_steps": split}
    best, everything = (
        ran(trainer_of(OwnLossPolicy(), task, grpo_stage(**stage, loss_rows=of))) for of in ("best", "all")
    )
    groups: dict[str, list[tuple[float, float]]] = {}
    for sample in best.samples:
        group = groups.setdefault(str(sample["prompt_id"]), [])
        group.append((float(str(sample["reward"])), float(str(sample["text"]))))
    best_arms = [max(group, key=lambda pair: pair[0])[1] for group in groups.values()]
    assert best.rows[1]["losses/supervised"] == pytest.approx(sum(best_arms) / len(best_arms))
    arms = [arm for group in groups.values() for _, arm in group]
    assert everything.rows[1]["losses/supervised"] == pytest.approx(sum(arms) / len(arms))
    assert best.rows[1]["weight/supervised"] == 1.0


def test_groups_without_a_signal_still_learn_by_the_policys_own_losses() -> None:
    stage = grpo_stage(max_steps=1, loss_weights={"penalty": 2.0}, learning_rate=0.5)
    row = ran(trainer_of(PenalisedPolicy(), NOTHING_TO_LEARN, stage)).rows[1]
    assert (row["groups/dead"], row["update"], row["losses/penalty"]) == (1.0, 1, 0.0)


class MeasuredTask(PricedTask):
    """Its outputs have a signal-to-noise ratio of ten times the arm, and an evaluation can be looked at."""

    def score(self, *given: Any, **more: Any) -> Any:
        outcomes = super().score(*given, **more)
        return [replace(one, measured={"psnr": 10 * one.reward}) for one in outcomes]

    def picture(self, examples: Sequence[Example], outputs: Sequence[Any]) -> bytes:
        return f"{len(examples)} {len(outputs)}".encode()

    def baselines(self) -> dict[str, dict[str, float]]:
        return {"degraded": {"eval/reward": 0.1, "eval/psnr": 20.0}}


class ProbingPolicy(ScriptedPolicy):
    def probe(self, examples: Sequence[Example], key: RowKey) -> dict[str, float]:
        return {"effect": float(len(examples))}


def test_what_is_measured_probed_and_pictured_is_recorded() -> None:
    trainer = trainer_of(ProbingPolicy(), MeasuredTask(lambda _, output: float(output)), grpo_stage(max_steps=3))
    recorder = Recorder()
    drive(trainer.steps(), recorder)
    first, *others = recorder.rows
    assert first["probe/effect"] == 2.0  # of the first two held-out prompts
    assert first["baseline/degraded.psnr"] == 20.0
    assert all("probe/effect" not in row for row in others)
    evaluated = [row for row in recorder.rows if "eval/reward" in row]
    assert [row["eval/psnr"] for row in evaluated] == pytest.approx(
        [10 * (row["eval/reward"] or 0.0) for row in evaluated]
    )
    pictures = [kept is not None and kept.picture is not None for kept in recorder.evaluated]
    assert pictures == ["eval/psnr" in row for row in recorder.rows]
    assert all(sample["measured"] == {"psnr": 10 * float(str(sample["reward"]))} for sample in recorder.samples)
    named = baselines(recorder.rows, ["grpo"])
    assert named["degraded"]["eval/psnr"] == 20.0
    assert named["final"]["eval/psnr"] == evaluated[-1]["eval/psnr"]
