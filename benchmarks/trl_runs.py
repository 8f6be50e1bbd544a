"""Real runs of TRL's GRPOTrainer on the built-in tiny model, sound ones and with a planted fault: what is found?

    python benchmarks/trl_runs.py [--seeds 10] [--first 0] [--steps 40] [--kinds healthy lr-x100 ...] [--out FOLDER]

Every run writes what TRL writes (OUTPUT/checkpoint-N/trainer_state.json, completions, an MLflow run in OUT/mlflow.db)
and is diagnosed from its folder and from MLflow. Needs trl (the dev extra); one run takes some 10 seconds on one core.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.tasks.text import prompt_of

RATE = 3e-4  # sound for the tiny model: the reward rises, and stays there
GROUP, PROMPTS, LENGTH = 8, 4, 6
PRINTED = "train.log"  # what the trainer prints

Reward = Callable[..., list[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A way to run: what is wrong with it, and the findings that are right, of which one is enough."""

    found_as: tuple[str, ...] = ()
    rate: float = RATE
    equal: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)  # settings of GRPOConfig


# One of each is enough: the cause, or what it did.
KINDS = {
    "healthy": Kind(),
    "healthy-kl": Kind(more={"beta": 0.04, "lr_scheduler_type": "linear"}),
    "healthy-batch-scale": Kind(more={"scale_rewards": "batch", "loss_type": "grpo", "temperature": 0.9}),
    "healthy-two-epochs": Kind(more={"num_iterations": 2, "logging_steps": 2}, rate=RATE / 2),
    "lr-x100": Kind(rate=100 * RATE, found_as=("learning-rate", "policy-collapse")),
    "equal-reward": Kind(equal=True, found_as=("constant-reward", "dead-groups")),
}


def train(kind: Kind, output: Path, *, seed: int, steps: int, log_every: int = 1) -> None:
    """One run of TRL's own trainer, as its documentation has it; MLflow is told where MLFLOW_TRACKING_URI says."""
    import torch
    from datasets import Dataset, disable_progress_bars
    from trl import GRPOConfig, GRPOTrainer

    from core.config.task import ArithmeticTaskSpec
    from core.models.sources import builtin
    from core.policies.lm.build import tiny_pairs
    from core.tasks.arithmetic import ArithmeticTask

    disable_progress_bars()
    torch.set_num_threads(1)
    task = ArithmeticTask(ArithmeticTaskSpec(name="arithmetic", digits=1, train_prompts=64, eval_prompts=16))
    problems = {prompt_of(example).text: example for example in (*task.examples("train"), *task.examples("eval"))}

    def right_sum(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        outcomes = task.score([problems[prompt] for prompt in prompts], completions)
        return [0.5 if kind.equal else outcome.reward for outcome in outcomes]

    model, tokenizer = builtin.load(tiny_pairs())
    settings = {
        "output_dir": str(output), "run_name": output.name, "seed": seed, "max_steps": steps,
        "logging_steps": log_every, "save_steps": steps, "learning_rate": kind.rate, "lr_scheduler_type": "constant",
        "per_device_train_batch_size": GROUP * PROMPTS, "num_generations": GROUP, "max_completion_length": LENGTH,
        "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "log_completions": True,
        "num_completions_to_print": 0, "disable_tqdm": True,
        "report_to": ["mlflow"] if os.environ.get("MLFLOW_TRACKING_URI") else [],
    }  # fmt: skip
    config = GRPOConfig(**{**settings, **kind.more})
    data = Dataset.from_list([{"prompt": prompt_of(example).text} for example in task.examples("train")])
    trainer = GRPOTrainer(model, right_sum, config, train_dataset=data, processing_class=tokenizer)
    output.mkdir(parents=True, exist_ok=True)
    with (output / PRINTED).open("w", encoding="utf-8") as log, redirect_stdout(log):
        trainer.train()


def found(source: str) -> list[str]:
    """The findings of a source, `id severity` each, as `grpoctl diagnose` has them."""
    from core.health.examine import examine
    from grpoctl.diagnose.readers.base import Source
    from grpoctl.diagnose.readers.registry import open_source

    return [f"{one.id} {one.severity}" for one in examine(open_source(Source(name=source, path=None)).case)]


def judged(kind: Kind, findings: Sequence[str]) -> bool:
    """Whether the findings are right: the planted fault among them, or no error where there is none."""
    ids = [line.split()[0] for line in findings]
    if kind.found_as:
        return any(name in ids for name in kind.found_as)
    return not any(line.endswith(" error") for line in findings)


def main() -> None:
    """Train, diagnose, and print a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--out", type=Path, default=None, help="kept, and what is there already is not trained again")
    asked = parser.parse_args()
    out = asked.out or Path(tempfile.mkdtemp(prefix="trl-runs-"))
    out.mkdir(parents=True, exist_ok=True)
    store = f"sqlite:///{out.resolve() / 'mlflow.db'}"
    os.environ |= {"HF_HUB_OFFLINE": "1", "MLFLOW_TRACKING_URI": store, "MLFLOW_EXPERIMENT_NAME": "trl-runs"}
    print("| kind | seeds | judged right from its folder | from MLflow | from what it printed | findings (runs) |")
    print("|---|---|---|---|---|---|")
    for name in asked.kinds:
        print(_row(name, out, store, range(asked.first, asked.first + asked.seeds), asked.steps), flush=True)


def _row(name: str, out: Path, store: str, seeds: range, steps: int) -> str:
    kind, right, right_mlflow, right_printed = KINDS[name], 0, 0, 0
    counts: dict[str, int] = {}
    for seed in seeds:
        output = out / f"{name}-{seed}"
        if not output.exists():
            train(kind, output, seed=seed, steps=steps)
        findings = found(str(output))
        right += judged(kind, findings)
        right_mlflow += judged(kind, found(f"mlflow:{store}#{output.name}"))
        right_printed += judged(kind, found(str(output / PRINTED)))
        for line in findings:
            counts[line] = counts.get(line, 0) + 1
    said = ", ".join(f"{line} ({count})" for line, count in counts.items()) or "none"
    return f"| {name} | {len(seeds)} | {right} | {right_mlflow} | {right_printed} | {said} |"


if __name__ == "__main__":
    main()
