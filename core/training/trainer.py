"""The loop of a run, readable top to bottom: the stages one after another, each step recorded, evaluated and looked at.

`Trainer.steps()` yields what it needs computed and is sent the answers (`drive` does that).
Not here: what a step does (grpo, imitation), how anything is computed (requests, update), what is written (who
receives StepDone), what went wrong (health).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from core.config import RunSpec, Stage
from core.errors import CheckpointError, ModelError, TaskError
from core.health.finding import Row
from core.health.own_noise import noise_factor, noise_of
from core.health.rules.integrity import evaluation_integrity
from core.metrics import MEASURED, baseline_metric
from core.models.sources.base import Origin
from core.policies.base import ENTROPY, Policy, Rollout, Sampling, Scores
from core.policies.savings import Savings
from core.randomness import EVALUATE, PROBE, RowKey
from core.tasks.base import Task
from core.training.callbacks import Callback
from core.training.checkpoint import Progress, Snapshot
from core.training.clock import clock, wait
from core.training.grpo import grpo_step
from core.training.imitation import rce_step, sft_step
from core.training.metrics import (
    HeldOutNames,
    evaluation_metrics,
    gain_errors,
    integrity_metrics,
    noise_metrics,
    problem_rows,
    prompt_rewards,
)
from core.training.outcome import Ending
from core.training.parallel import Machine
from core.training.requests import Evaluated, Probe, Request, Reward, Sample, Score, StepDone
from core.training.step import NOTHING, HeldOut, StepContext, StepResult, StepRun
from core.training.update import Update

# Of an unsound evaluation these would tell of the sampler.
OF_THE_POLICY = ("eval/reward", "eval/gain_se/", "eval/slices/", *MEASURED)
EVALUATION_CHECKED = 8  # rows of an evaluation that are scored to see whether its rollout is sound
CALIBRATED_ON = 16  # held-out prompts, a row of each, that the run's own noise is measured on
EMPTY_IN_A_ROW = 10  # steps none of whose completions had a reward: then the run ends
PROBED = 2  # held-out prompts that a policy may measure itself on
STEPS: Mapping[str, Callable[[StepContext], StepRun]] = {"grpo": grpo_step, "sft": sft_step, "rce": rce_step}
Steps = Generator[Request, Any, Ending]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What a trainer is put together from. `start` are metrics of the row before step 1 (what `init_from` found);
    `origin` is where a model's weights came from, for the record.
    """

    spec: RunSpec
    policy: Policy
    task: Task
    start: Mapping[str, float] = field(default_factory=dict)
    origin: Origin | None = None


class Trainer:
    """One run: its stages in order."""

    def __init__(self, parts: Parts) -> None:
        self.spec, self.task, self.policy = parts.spec, parts.task, parts.policy
        self.origin = parts.origin
        self.callbacks: Sequence[Callback] = ()
        self.savings = Savings()  # a measurement switches some off
        self.progress = Progress()
        self.recalibrates = True  # whether a resumed run asks if sampler and trainer agree on this machine, too
        self.table: list[Row] = []
        self._restored = 0  # rows that an earlier process made
        self._start = parts.start
        self._canary: Rollout | None = None
        self._prompt_rewards: Sequence[float | None] | None = None  # each held-out prompt's, where just evaluated
        self._evaluation: Evaluated | None = None  # the one just made
        self._stages: Sequence[Stage] = list(parts.spec.stages.values())
        self.update = Update(self.policy, self._stages[0])
        self._held_out = parts.task.examples("eval")
        self._names = HeldOutNames.of(self._held_out, parts.spec.task.clusters)
        if self._names.count not in (None, parts.spec.task.independent_eval_prompts):
            said = f"the task says {parts.spec.task.independent_eval_prompts} independent held-out problems"
            own = f"by their {parts.spec.task.clusters} there are {self._names.count} clusters"
            raise TaskError(f"{said}, and {own}; its settings' independent_eval_prompts has to be that number")
        self._evaluated = HeldOut(self._held_out)

    def steps(self) -> Steps:
        """The whole run; returns how it ended. Starts where `progress` stands."""
        if self.progress.step == 0:
            beside = {
                baseline_metric(name, metric): value
                for name, reached in self.task.baselines().items()
                for metric, value in reached.items()
            }
            evaluated = yield from self._evaluate(done=0)
            key = RowKey(self.spec.seed, PROBE, 0, 0, 0)
            probed = yield Probe(policy=self.policy, examples=self._held_out[:PROBED], key=key)
            of_itself = {f"probe/{name}": value for name, value in probed.items()}
            row = {"step": 0, "completions": 0, "tokens": 0, **self._start, **beside, **evaluated, **of_itself}
            self._begin_stage()
            yield from self._finish_step(row, StepResult(row={}))
        elif (ending := self._ask(lambda callback: callback.after_step(self.table))) is not None:
            return ending  # the run was over at its last checkpoint, and killed before it could say so
        elif not self.over():
            if self.recalibrates:
                noise = yield from self._resample()
                if (ending := self._ask(lambda callback: callback.resumed(self.table, noise))) is not None:
                    return ending
            self._tell_of_stage()
        self._canary = self.policy.canary(self._held_out[0]) if self._held_out else None
        while not self.over():
            ending = yield from self._step(self._stages[self.progress.stage])
            if ending is not None:
                return ending
        return self._ending()

    def over(self) -> bool:
        """True when every stage has finished."""
        return self.progress.stage == len(self._stages)

    def _step(self, stage: Stage) -> Generator[Request, Any, Ending | None]:
        """One step of a stage, and the evaluation that is due after it. Raises TaskError where nothing was rewarded."""
        self._check_rewarded()
        now = clock(self.spec, self.progress, self.table)
        context = StepContext(
            spec=self.spec,
            stage=stage,
            policy=self.policy,
            task=self.task,
            update=self.update,
            progress=self.progress,
            table=self._stage_rows(),
            look=lambda row: self._ask(lambda callback: callback.before_update(row, self.table)),
            clock=now,
            held_out=self._evaluated,
            savings=self.savings,
            canary=self._canary,
            noise=noise_of(self.table[0], self.spec.computes_in, noise_factor(self.spec.guards)),
        )
        self._prompt_rewards = self._evaluation = None
        done = yield from STEPS[stage.kind](context)
        row = {
            "step": context.step,
            "update": 0,
            "stage": self.progress.stage,
            "completions": self.progress.completions + done.spent.completions,
            "tokens": int(self.table[-1].get("tokens") or 0) + done.spent.tokens,
            **done.row,
        }
        row["update"] = int(row["update"])
        if done.ending is None and now.due(done.spent):
            row |= yield from self._evaluate(done=context.step)
        return (yield from self._finish_step(row, done))

    def _check_rewarded(self) -> None:
        """Raises TaskError where no completion of the last steps had a reward: no step can have taught anything."""
        begin = max(self._restored, len(self.table) - EMPTY_IN_A_ROW)  # what a resume may have mended is tried first
        rows = self.table[begin:]
        if len(rows) == EMPTY_IN_A_ROW and all(row.get("reward/missing") == 1 for row in rows):
            raise TaskError(
                f"no completion had a reward, {EMPTY_IN_A_ROW} steps in a row: the task or its reward functions gave a "
                "number to none; mend that, then continue with --resume"
            )

    def measured(self, *, done: int) -> tuple[dict[str, float], Evaluated | None, Sequence[float | None]]:
        """An evaluation alone, for who makes the steps otherwise: metrics, what it came to, each prompt's reward."""
        answer: Any = None
        requests = self._evaluate(done=done)
        while True:
            try:
                request = requests.send(answer)
            except StopIteration as stop:
                metrics: dict[str, float] = stop.value
                return metrics, self._evaluation, self._prompt_rewards or ()
            assert not isinstance(request, StepDone)
            answer = request.run(Machine())

    def _evaluate(self, *, done: int) -> Generator[Request, Any, dict[str, float]]:
        """Held-out prompts, the same draws every time, after so many steps."""
        evaluation, policy = self.spec.evaluation, self.policy
        how = self._evaluated_how(evaluation.temperature)
        k = evaluation.num_generations_eval
        keys = [RowKey(self.spec.seed, EVALUATE, 0, 0, row) for row in range(len(self._held_out) * k)]
        rollout = yield Sample(policy=policy, prompts=self._held_out, k=k, how=how, keys=keys, name="evaluate")
        groups = yield Reward(task=self.task, rollout=rollout, step=done, name="evaluate")
        kind = self.spec.policy
        clusters = self._names.clusters
        metrics = evaluation_metrics(groups, evaluation.slice_by, tokens=kind.tokens, clusters=clusters)
        self._prompt_rewards = prompt_rewards(groups)
        best = self.spec.task.reward_range
        problems = problem_rows(groups, self.task, asked=self._names, step=done, reward_range=best, tokens=kind.tokens)
        self._evaluation = Evaluated(problems=problems, picture=self.task.picture(self._held_out, rollout.outputs[::k]))
        metrics |= gain_errors(self.progress.begun, self._prompt_rewards, clusters)
        rows = list(range(min(len(rollout), EVALUATION_CHECKED)))
        wants = frozenset({ENTROPY}) if kind.entropies else NOTHING
        clean = yield Score(policy=policy, rollout=rollout, rows=rows, wants=wants, name="evaluate")
        if kind.entropies and clean.entropies_NT is None:
            why = "an entropy term would do nothing; return them where they are wanted, or set `entropies` to False"
            raise ModelError(f"policy {kind.kind} says that it has entropies and scored without them: {why}")
        gap = integrity_metrics(rollout, rows, clean).get("rollout/logprob_gap")
        metrics |= {"eval/temperature": evaluation.temperature} | ({} if gap is None else {"eval/logprob_gap": gap})
        if done == 0:
            metrics |= yield from self._noise(rollout, range(0, len(rollout), k)[:CALIBRATED_ON])
        guards, dtype = self.spec.guards, self.spec.computes_in
        if evaluation_integrity(metrics, dtype=dtype, override=guards.max_logprob_gap):
            metrics = {name: value for name, value in metrics.items() if not name.startswith(OF_THE_POLICY)}
            self._prompt_rewards = self._evaluation = None
        return metrics

    def _resample(self) -> Generator[Request, Any, dict[str, float]]:
        """The noise again, on the machine that goes on with a run: a completion of each of some held-out prompts."""
        prompts, evaluation = self._held_out[:CALIBRATED_ON], self.spec.evaluation
        how = self._evaluated_how(evaluation.temperature)
        keys = [RowKey(self.spec.seed, EVALUATE, 0, 0, row) for row in range(len(prompts))]
        rollout = yield Sample(policy=self.policy, prompts=prompts, k=1, how=how, keys=keys, name="calibrate")
        return (yield from self._noise(rollout, range(len(prompts))))

    def _noise(self, rollout: Rollout, rows: Sequence[int]) -> Generator[Request, Any, dict[str, float]]:
        """How far sampler and trainer are apart on these rows, one of each prompt.

        The trainer scores them twice, together and each alone, which differs by rounding whatever the sampler does.
        """
        if rollout.drawn_NT is None or not rows:
            return {}
        together = yield Score(policy=self.policy, rollout=rollout, rows=rows, name="calibrate")
        alone: dict[int, Scores] = {}
        for row in rows:
            alone[row] = yield Score(policy=self.policy, rollout=rollout, rows=[row], name="calibrate")
        return noise_metrics(rollout, rows, together, list(alone.values()), density=self.spec.policy.density)

    def _finish_step(self, row: Mapping[str, float], done: StepResult) -> Generator[Request, Any, Ending | None]:
        """Record the step, move on, then ask the callbacks. The row before step 1 is of no stage."""
        recorded: Row = {name: value if math.isfinite(value) else None for name, value in row.items()}
        self.table.append(recorded)
        before, step, update = self.progress, int(row["step"]), int(row.get("update", 0))
        self.progress = replace(
            before,
            step=step,
            updates=before.updates + update,
            completions=int(row["completions"]),
            stage_step=before.stage_step + (step > 0),
            stage_updates=before.stage_updates + update,
            prompts=before.prompts + done.prompts,
            carried=done.carried,
        )
        value = recorded.get("eval/reward") if step > 0 else None  # the start is nothing that was trained
        if value is not None and (before.best_value is None or value > before.best_value):
            self.progress = replace(self.progress, best_step=step, best_value=value)
        self._leave_stage()
        yield StepDone(row=recorded, samples=done.samples, evaluated=self._evaluation)
        ending = done.ending or self._ask(lambda callback: callback.after_step(self.table))
        if ending is None and not self.over():
            self._tell_of_stage()
        return ending

    def _evaluated_how(self, temperature: float) -> Sampling:
        """How held-out completions are drawn: unfiltered, as long as any stage allows, ending as any stage's end."""
        return Sampling.at(temperature, self.spec.max_completion_length, self.spec.stop_strings)

    def greedy_records(self) -> list[dict[str, object]]:
        """The likeliest output of the weights as they are now, of every held-out problem, as the task records it."""
        prompts, how = self._held_out, self._evaluated_how(0.0)
        keys = [RowKey(self.spec.seed, EVALUATE, 0, 0, row) for row in range(len(prompts))]
        outputs = self.policy.sample(prompts, 1, how, keys).outputs
        return [
            {
                "prompt_id": prompt.id,
                "problem": sha,
                "output": dict(self.task.record(output)),
            }
            for prompt, sha, output in zip(prompts, self._names.shas, outputs, strict=True)
        ]

    def _ask(self, question: Callable[[Callback], Ending | None]) -> Ending | None:
        """Ask every callback; the first one's verdict counts, None where none ends the run."""
        endings = [question(callback) for callback in self.callbacks]
        return next((ending for ending in endings if ending is not None), None)

    def _tell_of_stage(self) -> None:
        """Tell the callbacks where the run stands between two stages."""
        if self.progress.stage > 0 and self.progress.stage_step == 0:
            for callback in self.callbacks:
                callback.after_stage(self.progress.stage, self.snapshot)

    def snapshot(self) -> Snapshot:
        """What a checkpoint after the last finished step holds."""
        begins = self.progress.stage_step == 0 and not self.over()  # whoever goes on from here has its own optimiser
        optimizer = {} if begins else self.update.state()
        return Snapshot(progress=self.progress, weights=self.policy.state(), optimizer=optimizer)

    def restore(self, snapshot: Snapshot, table: Sequence[Row]) -> None:
        """Stand where the snapshot was taken; `table` has the recorded rows up to its step.

        Raises CheckpointError where rows are missing: plateaus and patience are counted in them.
        """
        recorded = [row.get("step") for row in table]
        if snapshot.progress.step and recorded != list(range(snapshot.progress.step + 1)):
            raise CheckpointError(f"the recorded steps are not 0 to {snapshot.progress.step}: metrics.jsonl lost rows")
        self.policy.load(snapshot.weights)
        self.progress = snapshot.progress
        self.update = Update(self.policy, self._stages[min(self.progress.stage, len(self._stages) - 1)])
        if snapshot.optimizer:
            self.update.load(snapshot.optimizer)
        self.table, self._restored = list(table), len(table)

    def _leave_stage(self) -> None:
        """Where the stage is over, stand at the next one's start; where the budget is spent, at the end."""
        progress, stage = self.progress, self._stages[self.progress.stage]
        rule = stage.early_stopping
        waiting = wait(self._stage_rows(), rule) if rule is not None else None
        flat = rule is not None and waiting is not None and waiting.waited >= rule.patience
        now = clock(self.spec, progress, self.table)
        if not (now.ended or flat):
            return
        if stage.kind == "sft":
            self.policy.keep("reference")
        after = len(self._stages) if now.spent_all else progress.stage + 1
        self.progress = replace(progress, stage=after, stage_step=0, stage_updates=0, carried={})
        if after < len(self._stages):
            self.update = Update(self.policy, self._stages[after])  # its moments are of another loss
            self._begin_stage()

    def _begin_stage(self) -> None:
        """Note what the stage that begins now has its gain measured against."""
        if self._prompt_rewards is not None:
            name = list(self.spec.stages)[self.progress.stage]
            self.progress = replace(self.progress, begun={**self.progress.begun, name: self._prompt_rewards})

    def _ending(self) -> Ending:
        """How a run ended whose stages are over: by its rows, so that it says the same when it is resumed."""
        name, last = list(self.spec.stages.items())[-1]
        budget, steps = self.spec.budget, self.progress.step
        if budget is not None and int(self.table[-1].get(budget.unit) or 0) >= budget.amount:
            message = f"the budget of {budget.amount} {budget.unit} is spent, after {steps} steps"
            return Ending(status="COMPLETED", message=message)
        done = sum(row.get("stage") == len(self._stages) - 1 for row in self.table)
        if budget is not None or done < last.max_steps:
            return Ending(status="STOPPED_EARLY", message=f"stage {name} stopped improving")
        return Ending(status="COMPLETED", message=f"all {steps} steps done")

    def _stage_rows(self) -> list[Row]:
        """The rows of the current stage, after the evaluation it started from."""
        return self.table[self.progress.step - self.progress.stage_step + 1 :]  # row i is of step i


class Observer(Protocol):
    """Whoever records steps."""

    def step_done(
        self,
        row: Mapping[str, float | None],
        samples: Sequence[Mapping[str, object]],
        timings: Mapping[str, float],
        evaluated: Evaluated | None = None,
    ) -> None:
        """Called once a step; what it raises ends the run."""
        ...


def drive(
    steps: Steps, observer: Observer, machine: Machine | None = None, *, begins: Callable[[str], None] | None = None
) -> Ending:
    """Run one trainer's generator to its end. `timings` are seconds per kind of request, and `total` for the step.

    `begins` is told the kind of each request before it is computed.
    On several ranks each drives a trainer of its own; whoever is not rank 0 has an observer that records nothing.
    """
    machine = machine or Machine()
    answer: Any = None
    timings: dict[str, float] = {}
    started = time.perf_counter()
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            ending: Ending = stop.value
            return ending
        began = time.perf_counter()
        if isinstance(request, StepDone):
            total, started = began - started, began  # so recording a step counts towards the next one
            observer.step_done(request.row, request.samples, {**timings, "total": total}, request.evaluated)
            answer, timings = None, {}
            continue
        if begins is not None:
            begins(request.name)
        answer = request.run(machine)
        timings[request.name] = timings.get(request.name, 0.0) + time.perf_counter() - began
