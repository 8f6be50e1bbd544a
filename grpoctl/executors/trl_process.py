"""One process of a run that TRL trains: `accelerate launch -m grpoctl.executors.trl_process RUN [CHECKPOINT]`.

It builds what RUN/spec.yaml says and trains with TRL's GRPOTrainer. After each step the first process tells the run's
own process what came out (RUN/trl/said.jsonl), and waits for what to do next (RUN/trl/asked.json): evaluate, go on with
these schedules' values, save a checkpoint, end. The others do as the first. The records of both files stand in
grpoctl.executors.trl.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from datasets import Dataset, disable_progress_bars
from transformers import TrainerCallback
from trl import GRPOConfig
from trl.models.utils import unwrap_model_for_generation

from core.config import GrpoStage, RunSpec
from core.config.trl.fields import TRAINER_ARGUMENTS
from core.config.trl.settings import steps_of, trl_settings
from core.models import adapters, loading
from core.models.messages import no_progress_bars
from core.policies.lm.build import tiny_pairs
from core.policies.lm.causal_lm import CausalLMPolicy
from core.randomness import ORDER, RowKey, permutation
from core.tasks import registry
from core.tasks.base import Example, Task
from core.tasks.rewards.worker import put_first, resolve
from core.tasks.text import prompt_of
from core.training.metrics import integrity_metrics, rollout_metrics, sample_rows
from core.training.step import HeldOut
from core.training.trainer import Parts, Trainer
from core.training.trl_trainer import SpecTrainer
from grpoctl.config import read_resolved
from grpoctl.executors.trl import MOST_STEPS, STEP_NOTE, Channel
from grpoctl.files import replace_json
from grpoctl.runs.log import log_to_stderr
from grpoctl.runs.run_dir import RunDir

# Our metric -> what TRL logs: of the sampler, where vLLM is it, and of an update.
SAMPLER = {
    "rollout/logprob_gap": "sampling/sampling_logp_difference/mean",
    "rollout/logprob_gap_max": "sampling/sampling_logp_difference/max",
}
UPDATE = {
    "grad_norm": "grad_norm", "policy/clip_low": "clip_ratio/low_mean", "policy/clip_high": "clip_ratio/high_mean",
}  # fmt: skip
OWNED = ("eval_steps", "num_generations_eval", "save_steps", "save_total_limit", "warmup_steps", "lr_scheduler_type")


def main(path: Path, checkpoint: Path | None) -> None:
    """Train the run to its end, or to where its own process says."""
    log_to_stderr()
    disable_progress_bars()
    run = RunDir(path=path)
    spec = read_resolved(run.spec)
    stage = next(one for one in spec.stages.values() if isinstance(one, GrpoStage))
    task = registry.build(spec.task)
    task.make_ready()
    with no_progress_bars(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of names that transformers gave up and TRL still says
        trainer = build_trainer(spec, stage, task, run)
    steps = _Steps(spec, stage, task, trainer, Channel(run, follower=True))
    trainer.add_callback(steps)
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    finally:
        task.close()


def build_trainer(spec: RunSpec, stage: GrpoStage, task: Task, run: RunDir) -> SpecTrainer:
    """The trainer of a spec, its model loaded and its adapter where that of our own trainer starts."""
    model_spec = spec.language_model
    settings = _config(spec, stage, run)  # first: it says which device is this process's
    sharded = any(os.environ.get(f"ACCELERATE_USE_{name}") == "true" for name in ("FSDP", "DEEPSPEED"))
    loaded = loading.load_with_origin(model_spec, tiny_pairs, on="cpu" if sharded else None)
    model, tokenizer = loaded.model, loaded.tokenizer
    if model_spec.trainable is not None:
        model = adapters.train_only(model, model_spec.trainable)
    if model_spec.lora is not None:
        adapters.check_targets(model, model_spec.lora)
    examples = task.examples("train")
    trainer = SpecTrainer(
        stage,
        task,
        examples,
        model=model,
        args=settings,
        train_dataset=Dataset.from_list(_rows(spec, stage, examples, tokenizer)),
        processing_class=tokenizer,
        peft_config=None if model_spec.lora is None else adapters.lora_config(model_spec.lora),
        **_references(spec),
    )
    if model_spec.lora is not None:
        adapters.restart_lora(trainer.model, seed=spec.seed)
    trainer.origin = loaded.origin
    return trainer


def _config(spec: RunSpec, stage: GrpoStage, run: RunDir) -> GRPOConfig:
    """The spec's settings, and what grpoctl does itself switched off."""
    settings = {one.field: one.value for one in trl_settings(spec) if one.field not in OWNED}
    steps = min(steps_of(spec, stage), MOST_STEPS)
    own: dict[str, Any] = {
        "output_dir": str(run.path / "trl"),
        "max_steps": steps * stage.updates_per_rollout,
        "lr_scheduler_type": "constant",
        "beta": max(stage.beta.start, stage.beta.end),  # a reference there is from the beginning
        "report_to": "none",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "disable_tqdm": True,
        "save_strategy": "no",
        "shuffle_dataset": False,
    }
    if not torch.cuda.is_available():
        own["use_cpu"] = True
    return GRPOConfig(**{**settings, **own})


def _rows(spec: RunSpec, stage: GrpoStage, examples: Any, tokenizer: Any) -> list[dict[str, Any]]:
    """The prompts of all steps in the order in which our own trainer asks them, a row each."""
    count = min(steps_of(spec, stage), MOST_STEPS) * stage.prompts_per_step
    orders: dict[int, list[int]] = {}
    rows = []
    for position in range(count):
        epoch, place = divmod(position, len(examples))
        if epoch not in orders:
            orders[epoch] = permutation(RowKey(spec.seed, ORDER, epoch, 0, 0), len(examples))
        row = orders[epoch][place]
        rows.append({"prompt": _prompt(examples[row], tokenizer), "row": row})
    return rows


def _prompt(example: Example, tokenizer: Any) -> Any:
    """A conversation where the tokenizer has a template for one, else text."""
    prompt = prompt_of(example)
    if prompt.plain or not getattr(tokenizer, "chat_template", None):
        return prompt.text
    messages = prompt.messages if prompt.messages is not None else [{"role": "user", "content": prompt.text}]
    return [dict(message) for message in messages]


def _references(spec: RunSpec) -> dict[str, Any]:
    """GRPOTrainer's own arguments: functions and classes by reference."""
    given = {name: value for name, value in spec.trainer.args.items() if name in TRAINER_ARGUMENTS}
    here = Path.cwd()
    if given:
        put_first(here)  # as for reward functions: a module of the current folder is found
    return {
        name: [resolve(one, here) for one in value]
        if isinstance(value, list)
        else resolve(str(value), here, classes=name == "environment_factory")
        for name, value in given.items()
    }


class _Steps(TrainerCallback):  # type: ignore[misc]
    """Tells of each step, and does what is asked; on every process alike."""

    def __init__(self, spec: RunSpec, stage: GrpoStage, task: Task, trainer: SpecTrainer, channel: Channel) -> None:
        self._spec, self._stage, self._task = spec, stage, task
        self._trainer, self._channel = trainer, channel
        self._first = trainer.accelerator.is_main_process
        self._held_out = HeldOut(task.examples("eval"))
        self._logs: list[Mapping[str, float]] = []
        self._updates: list[bool] = []
        self._started = time.perf_counter()
        self._evaluator: Trainer | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say that the model is there; then the first evaluation, and the first step's values."""
        self._trainer.done = state.global_step // self._stage.updates_per_rollout
        processes = self._trainer.accelerator.num_processes
        origin = None if self._trainer.origin is None else self._trainer.origin.as_json()
        ready = {"kind": "ready", "step": self._trainer.done, "processes": processes, "model": origin}
        self._follow(self._exchange(ready), control)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The rate of the step."""
        self._trainer.set_rate()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Skip what has no signal."""
        self._trainer.before_optimiser()
        self._updates.append(self._trainer.updated)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **_: Any) -> Any:
        """After the last update of a rollout: tell, and do what is asked."""
        if "loss" not in logs:
            return control
        self._logs.append(dict(logs))
        if state.global_step % self._stage.updates_per_rollout:
            return control
        self._trainer.done += 1
        said = self._step() if self._first else {}
        self._logs, self._updates = [], []
        self._trainer.kl_values, self._trainer.ratio_max, self._trainer.tried = [], 0.0, False
        self._follow(self._exchange(said), control)
        self._started = time.perf_counter()
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A checkpoint is whole once it says which step it is of."""
        if self._first:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            replace_json(folder / STEP_NOTE, {"schema": 1, "step": self._trainer.done})

    def _exchange(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Say this, and what is then asked: the first process does, the others hear of it."""
        asked: list[Any] = [self._channel.say_and_wait(said) if self._first else None]
        return dict(broadcast_object_list(asked)[0]) if self._trainer.accelerator.num_processes > 1 else dict(asked[0])

    def _follow(self, asked: Mapping[str, Any], control: Any) -> None:
        """Evaluate as often as that is asked; then set values, or stop."""
        while asked["do"] == "evaluate":
            asked = self._exchange(self._evaluated())
        control.should_save = bool(asked.get("save"))
        if asked["do"] == "end":
            control.should_training_stop = True
        else:
            self._trainer.follow(asked["values"])

    def _evaluated(self) -> Mapping[str, Any]:
        """An evaluation by grpoctl's own sampler on TRL's model; the first process asks all problems."""
        trainer = self._trainer
        gathered = unwrap_model_for_generation(
            trainer.model_wrapped, trainer.accelerator, gather_deepspeed3_params=trainer.args.ds3_gather_for_generation
        )
        with gathered as model:
            if not self._first:
                return {}
            began = time.perf_counter()
            if self._evaluator is None:
                policy = CausalLMPolicy(
                    model, trainer.processing_class, mixed_precision=self._spec.language_model.mixed_precision
                )
                self._evaluator = Trainer(Parts(spec=self._spec, policy=policy, task=self._task))
            metrics, evaluated, rewards = self._evaluator.measured(done=trainer.done)
            # The noise is that of grpoctl's sampler; steps are sampled by TRL's.
            kept = {name: value for name, value in metrics.items() if not name.startswith("rollout/")}
            return {
                "kind": "evaluated",
                "step": trainer.done,
                "metrics": kept,
                "problems": [] if evaluated is None else list(evaluated.problems),
                "rewards": list(rewards),
                "seconds": time.perf_counter() - began,
            }

    def _step(self) -> Mapping[str, Any]:
        """The step's row, samples and seconds."""
        trainer, sampled = self._trainer, self._trainer.sampled
        assert sampled is not None
        groups, rollout = sampled.groups, sampled.groups.rollout
        records = [self._task.record(output) for output in rollout.outputs]
        members_PK = ~groups.rewards_PK.isnan()
        row = rollout_metrics(
            groups, sampled.advantages_PK, records=records, members_PK=members_PK,
            virtual_best=self._stage.advantage.virtual_best,
        )  # fmt: skip
        row |= {
            "groups/discarded": 0,
            "groups/held_out": fmean(self._held_out.has(prompt) for prompt in rollout.prompts),
            "temperature": trainer.temperature,
            "update": float(any(self._updates)),
        }
        if sampled.clean is not None:
            row |= integrity_metrics(rollout, list(sampled.clean_rows), sampled.clean)
        row |= self._of_trl(SAMPLER)
        if trainer.tried:  # what nothing was to be learned from has no loss
            row |= self._of_update()
        return {
            "kind": "row",
            "step": trainer.done,
            "row": row,
            "completions": len(rollout),
            "tokens": int(rollout.mask_NT.sum()),
            "samples": sample_rows(groups, records, sampled.advantages_PK, trainer.done),
            "seconds": time.perf_counter() - self._started,
        }

    def _of_update(self) -> dict[str, float]:
        """The step's loss and what goes with it."""
        trainer = self._trainer
        row = {
            "learning_rate": trainer.rate,
            "weight/policy": 1.0,
            "loss": fmean(logs["loss"] for logs in self._logs),
            "policy/ratio_max": trainer.ratio_max,
            **self._of_trl(UPDATE),
        }
        if trainer.beta:
            row["beta"] = trainer.beta
        if trainer.kl_values:
            row["kl"] = fmean(trainer.kl_values)
        return row

    def _of_trl(self, names: Mapping[str, str]) -> dict[str, float]:
        """What TRL logs of the step's updates, under our names."""
        row = {}
        for ours, theirs in names.items():
            values = [float(logs[theirs]) for logs in self._logs if logs.get(theirs) is not None]
            if values:
                row[ours] = fmean(values)
        return row


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
