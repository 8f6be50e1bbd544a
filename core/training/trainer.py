"""The loop, readable top to bottom: sample K completions for B prompts -> score -> advantages -> loss -> update.

`Trainer.steps()` yields what it needs computed and is sent the answers (core.training.drive does that for one trainer).
Not here: how anything is computed (policy, update), what is written (who receives StepDone), what went wrong (health).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from core.algorithms.advantages import group_advantages
from core.algorithms.schedules import learning_rate, linear
from core.health.finding import Row
from core.health.integrity import evaluation_integrity
from core.policies.base import ENTROPY, Policy, Rollout, RowKey, Sampling
from core.rollout.collect import Groups, collect
from core.rollout.uniforms import DROPOUT, EVALUATE, ORDER, TRAIN, permutation
from core.spec import GrpoStage, RunSpec
from core.tasks.base import Example, Task
from core.training.callbacks.base import Callback, Ending
from core.training.checkpoint import Progress, Snapshot
from core.training.evaluate import evaluation_metrics
from core.training.grpo_loss import GrpoLoss
from core.training.requests import Learn, Request, Sample, Score, StepDone
from core.training.step_metrics import has_signal, integrity_metrics, rollout_metrics, sample_rows
from core.training.update import Update

EVALUATION_CHECKED = 8  # rows of an evaluation that are scored to see whether its rollout is sound
Steps = Generator[Request, Any, Ending]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What a trainer is put together from."""

    spec: RunSpec
    stage: GrpoStage
    policy: Policy
    task: Task
    update: Update


class Trainer:
    """One run of one GRPO stage."""

    def __init__(self, parts: Parts) -> None:
        self.spec, self.stage, self.task = parts.spec, parts.stage, parts.task
        self.policy, self.update = parts.policy, parts.update
        self.callbacks: Sequence[Callback] = ()
        self.progress = Progress()
        self.table: list[Row] = []
        self._train = parts.task.examples("train")
        self._held_out = parts.task.examples("eval")
        self._epoch: tuple[int, list[int]] = (-1, [])

    def steps(self) -> Steps:
        """The whole run; returns how it ended. Starts where `progress` stands."""
        if self.progress.step == 0:
            yield from self._finish_step({"step": 0, "completions": 0, **(yield from self._evaluate())}, [])
        elif (ending := self._asked()) is not None:
            return ending  # the run was over at its last checkpoint, and killed before it could say so
        while self.progress.step < self.stage.max_steps:
            ending = yield from self._step(self.progress.step + 1)
            if ending is not None:
                return ending
        return Ending(status="COMPLETED", message=f"all {self.stage.max_steps} steps done")

    def _step(self, step: int) -> Generator[Request, Any, Ending | None]:
        """Sample, score, look, learn, evaluate: one step."""
        stage = self.stage
        rollout = yield self._sample(self._batch(step), stage.num_generations, self._how(step), TRAIN, step)
        groups = collect(self.task, rollout)
        advantages_PK = group_advantages(
            groups.rewards_PK,
            scale=stage.advantage.scale_rewards,
            ddof=stage.advantage.ddof,
            eps=stage.advantage.eps,
        )
        group = self._group(step)
        clean = yield Score(policy=self.policy, rollout=rollout, rows=group, wants=frozenset({ENTROPY}))
        row: dict[str, float] = {
            "step": step,
            "update": 0,
            "completions": self.progress.completions + len(rollout),
            **rollout_metrics(groups, advantages_PK),
            **integrity_metrics(rollout, group, clean),
            "temperature": rollout.how.temperature,
        }
        ending = self._first_ending(callback.before_update(row) for callback in self.callbacks)
        if ending is None and (has_signal(groups.rewards_PK) or not stage.skip_without_signal):
            row |= yield from self._learn(step, groups, advantages_PK.flatten())
        if ending is None and (step % self.spec.evaluation.eval_steps == 0 or step == stage.max_steps):
            row |= yield from self._evaluate()
        row["update"] = int(row["update"])
        return (yield from self._finish_step(row, sample_rows(groups, advantages_PK, step), ending))

    def _learn(self, step: int, groups: Groups, advantages_N: Any) -> Generator[Request, Any, Mapping[str, float]]:
        """One optimiser step on the rollout. On-policy: the old log-probs are those recorded while sampling."""
        stage, rollout = self.stage, groups.rollout
        assert rollout.drawn_NT is not None
        micro_rows = math.ceil(len(rollout) / stage.gradient_accumulation_steps)
        reference_NT = None
        if stage.beta > 0:
            reference_NT = yield from self._reference(rollout, micro_rows)
        loss = GrpoLoss(
            stage=stage,
            mask_NT=rollout.mask_NT,
            old_NT=rollout.drawn_NT,
            advantages_N=advantages_N.to(rollout.mask_NT.device),
            reference_NT=reference_NT,
        )
        metrics: Mapping[str, float] = yield Learn(
            update=self.update,
            rollout=rollout,
            loss=loss,
            learning_rate=self._learning_rate(step),
            micro_rows=micro_rows,
            key=RowKey(self.spec.seed, DROPOUT, step, 0, 0),
        )
        return metrics

    def _reference(self, rollout: Rollout, micro_rows: int) -> Generator[Request, Any, Tensor]:
        """Log-probs of every row under the reference, (N, T); in micro-batches: it costs memory as the update does."""
        parts = []
        for rows in self.policy.split(rollout, range(len(rollout)), micro_rows):
            scores = yield Score(policy=self.policy, rollout=rollout, rows=rows, weights="reference")
            parts.append(scores.logprobs_NT)
        return torch.cat(parts)

    def _evaluate(self) -> Generator[Request, Any, dict[str, float]]:
        """Held-out prompts, the same draws every time."""
        evaluation = self.spec.evaluation
        how = Sampling(temperature=evaluation.temperature, max_completion_length=self.stage.max_completion_length)
        rollout = yield self._sample(self._held_out, evaluation.num_generations_eval, how, EVALUATE, 0)
        metrics = evaluation_metrics(collect(self.task, rollout))
        rows = list(range(min(len(rollout), EVALUATION_CHECKED)))
        clean = yield Score(policy=self.policy, rollout=rollout, rows=rows, wants=frozenset({ENTROPY}), name="evaluate")
        gap = integrity_metrics(rollout, rows, clean).get("rollout/logprob_gap")
        metrics |= {"eval/temperature": how.temperature} | ({} if gap is None else {"eval/logprob_gap": gap})
        guards, dtype = self.spec.guards, self.spec.model.dtype
        if evaluation_integrity(metrics, dtype=dtype, override=guards.max_logprob_gap):
            del metrics["eval/reward"], metrics["eval/reward_se"]  # they would tell of the sampler, not of the policy
        return metrics

    def _finish_step(
        self, row: dict[str, float], samples: Sequence[Mapping[str, object]], ending: Ending | None = None
    ) -> Generator[Request, Any, Ending | None]:
        """Record the step, move on, then ask the callbacks."""
        recorded: Row = {name: value if math.isfinite(value) else None for name, value in row.items()}
        self.table.append(recorded)
        self.progress = self._advanced(recorded)
        yield StepDone(row=recorded, samples=samples)
        return ending or self._asked()

    def _asked(self) -> Ending | None:
        """What the callbacks say of the table as it stands."""
        return self._first_ending(callback.after_step(self.table) for callback in self.callbacks)

    def snapshot(self) -> Snapshot:
        """What a checkpoint after the last finished step holds."""
        return Snapshot(progress=self.progress, weights=self.policy.state(), optimizer=self.update.state())

    def restore(self, snapshot: Snapshot, table: Sequence[Row]) -> None:
        """Stand where the snapshot was taken; `table` has the recorded rows up to its step."""
        self.policy.load(snapshot.weights)
        self.update.load(snapshot.optimizer)
        self.progress = snapshot.progress
        self.table = list(table)

    def _advanced(self, row: Row) -> Progress:
        progress = replace(
            self.progress,
            step=int(row["step"] or 0),
            updates=self.progress.updates + int(row.get("update") or 0),
            completions=int(row["completions"] or 0),
        )
        value = row.get("eval/reward") if progress.step > 0 else None  # the start is nothing that was trained
        if value is not None and (progress.best_value is None or value > progress.best_value):
            progress = replace(progress, best_step=progress.step, best_value=value)
        return progress

    def _sample(self, prompts: Sequence[Example], k: int, how: Sampling, purpose: int, step: int) -> Sample:
        keys = [RowKey(self.spec.seed, purpose, step, 0, row) for row in range(len(prompts) * k)]
        name = "sample" if purpose == TRAIN else "evaluate"
        return Sample(policy=self.policy, prompts=prompts, k=k, how=how, keys=keys, name=name)

    def _batch(self, step: int) -> list[Example]:
        """The step's B prompts: consecutive in an order that is shuffled anew each epoch."""
        size, n = self.stage.prompts_per_step, len(self._train)
        picked = []
        for position in range((step - 1) * size, step * size):
            epoch, place = divmod(position, n)
            if self._epoch[0] != epoch:
                self._epoch = (epoch, permutation(RowKey(self.spec.seed, ORDER, epoch, 0, 0), n))
            picked.append(self._train[self._epoch[1][place]])
        return picked

    def _group(self, step: int) -> list[int]:
        """The rows of the group whose integrity is checked on this step: each group takes its turn."""
        k = self.stage.num_generations
        first = (step - 1) % self.stage.prompts_per_step * k
        return list(range(first, first + k))

    def _how(self, step: int) -> Sampling:
        t, stage = self.stage.temperature, self.stage
        return Sampling(
            temperature=linear(t.start, t.end, t.steps, step),
            max_completion_length=stage.max_completion_length,
            top_p=stage.top_p,
            top_k=stage.top_k,
        )

    def _learning_rate(self, step: int) -> float:
        stage = self.stage
        return learning_rate(
            stage.learning_rate,
            stage.lr_scheduler_type,
            index=self.progress.updates if stage.lr_clock == "updates" else step - 1,
            warmup_steps=stage.warmup_steps,
            total_steps=stage.lr_scheduler_steps or stage.max_steps,
        )

    @staticmethod
    def _first_ending(endings: Any) -> Ending | None:
        """The first callback's verdict, all of them having been asked."""
        return next((ending for ending in list(endings) if ending is not None), None)
