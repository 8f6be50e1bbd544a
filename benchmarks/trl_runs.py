"""Real runs of TRL's GRPOTrainer on the built-in tiny model, sound ones and with a planted fault: what is found?

    python benchmarks/trl_runs.py [--seeds 10] [--first 0] [--steps 40] [--log-every 1] [--kinds NAME ...] [--out PATH]

Every run writes what TRL writes (OUTPUT/checkpoint-N/trainer_state.json, completions, an MLflow run in OUT/mlflow.db)
and is diagnosed from its folder and from MLflow. Needs trl (the dev extra); one run takes some 10 seconds on one core.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from core.tasks.text import prompt_of

RATE = 3e-4  # sound for the tiny model: the reward rises, and stays there
GROUP, PROMPTS, LENGTH = 8, 4, 6
PRINTED = "train.log"  # what the trainer prints
NEAR = 2  # a fault is named by one of that many findings, and a sound run may have one warning

Reward = Callable[..., list[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A way to run: what is wrong with it, and the findings that are right, of which one is enough.

    rewards: names of functions below; change: what is done to the trainer before it trains.
    """

    found_as: tuple[str, ...] = ()
    rate: float = RATE
    digits: int = 1
    rewards: tuple[str, ...] = ("right_sum",)
    more: Mapping[str, Any] = field(default_factory=dict)  # settings of GRPOConfig
    change: Callable[[Any], None] | None = None


def _other_reference(trainer: Any) -> None:
    """The reference is another model than the policy begins with."""
    import torch

    torch.manual_seed(1)
    with torch.no_grad():
        for weights in trainer.ref_model.parameters():
            weights.add_(torch.randn_like(weights), alpha=0.1)


def _lost_weights(trainer: Any) -> None:
    """The optimizer holds copies: gradients are there, and the policy never moves."""
    import torch

    copies = [weights.detach().clone().requires_grad_() for weights in trainer.model.parameters()]
    trainer.optimizer = torch.optim.AdamW(copies, lr=RATE)


def _frozen(trainer: Any) -> None:
    """Only the first layer's norm is trained."""
    for name, weights in trainer.model.named_parameters():
        weights.requires_grad_("layers.0.input_layernorm" in name)


def _own_reference(trainer: Any) -> None:
    """The reference is the policy itself."""
    trainer.ref_model = trainer.model


def _late_rate(trainer: Any) -> None:
    """The learning rate is three hundred times as large from the middle of the run on."""
    from transformers import TrainerCallback

    class Later(TrainerCallback):  # type: ignore[misc]  # transformers has no types
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.global_step == args.max_steps // 2:
                more["lr_scheduler"].base_lrs = [300 * RATE for _ in more["lr_scheduler"].base_lrs]

    trainer.add_callback(Later())


def _endless(trainer: Any) -> None:
    """The token that ends a completion is one that the model never writes."""
    trainer.eos_token_ids = [trainer.processing_class.vocab_size - 1]
    trainer.generation_config.eos_token_id = trainer.eos_token_ids


# One of each is enough: the cause, or what it did.
_TOO_FAST = ("learning-rate", "policy-collapse", "entropy-collapse", "kl-runaway", "grad-explosion")
_GAMED = ("reward-hacking", "component-conflict", "proxy-reward")
KINDS = {
    "healthy": Kind(),
    "healthy-kl": Kind(more={"beta": 0.04, "lr_scheduler_type": "linear"}),
    "healthy-batch-scale": Kind(more={"scale_rewards": "batch", "loss_type": "grpo", "temperature": 0.9}),
    "healthy-two-epochs": Kind(more={"num_iterations": 2, "logging_steps": 2}, rate=RATE / 2),
    "healthy-two-parts": Kind(rewards=("right_sum", "short")),
    "lr-x100": Kind(rate=100 * RATE, found_as=_TOO_FAST),
    "lr-x20-kl": Kind(rate=20 * RATE, more={"beta": 1e-3}, found_as=_TOO_FAST),
    "lr-tiny": Kind(rate=RATE / 1e5, found_as=("learning-rate", "no-gain")),
    "lr-zero": Kind(rate=0.0, found_as=("rate-zero", "no-updates")),
    "equal-reward": Kind(rewards=("equal",), found_as=("constant-reward", "dead-groups")),
    "never-paid": Kind(rewards=("never",), found_as=("dead-run", "constant-reward")),
    "free-part": Kind(rewards=("never", "equal"), found_as=("free-reward", "constant-reward", "dead-groups")),
    "random-reward": Kind(rewards=("random_number",), found_as=("weak-reward", "noise", "no-gain")),
    "one-infinite": Kind(rewards=("once_infinite",), found_as=("lost-rewards", "numerical", "isolated-nan")),
    "short-pays": Kind(
        rewards=("short", "right_sum"), more={"reward_weights": [1.0, 0.0]}, rate=3 * RATE,
        found_as=_GAMED,
    ),
    "conflict": Kind(
        rewards=("short", "right_sum"), more={"reward_weights": [3.0, 1.0]}, rate=3 * RATE,
        found_as=_GAMED,
    ),
    "beta-x250": Kind(more={"beta": 10.0}, found_as=("kl-weight", "no-gain")),
    "other-reference": Kind(more={"beta": 0.04}, change=_other_reference, found_as=("reference-mismatch",)),
    "lost-weights": Kind(more={"beta": 0.04}, change=_lost_weights, found_as=("no-gradient", "kl-idle", "no-updates")),
    "frozen": Kind(more={"beta": 0.04}, change=_frozen, found_as=("no-gradient", "kl-idle", "no-gain")),
    "endless": Kind(change=_endless, found_as=("truncation", "missing-eos", "dead-run")),
    "endless-masked": Kind(
        change=_endless, more={"mask_truncated_completions": True}, found_as=("truncation", "missing-eos", "dead-run"),
    ),
    "own-reference": Kind(more={"beta": 0.04}, change=_own_reference, found_as=("reference-mismatch", "no-updates")),
    "late-rate": Kind(change=_late_rate, found_as=_TOO_FAST),
    "dead-judge": Kind(rewards=("right_at_first",), found_as=("dead-run", "lost-rewards")),
    "long-pays": Kind(rewards=("long",), rate=3 * RATE, found_as=("reward-hacking", "truncation")),
    "one-answer": Kind(rewards=("seven",), rate=3 * RATE, found_as=("reward-hacking", "truncation")),
    "negative-beta": Kind(more={"beta": -0.5}, found_as=("kl-runaway", "kl-weight", "policy-collapse")),
    "hot": Kind(more={"temperature": 6.0}, found_as=("truncation", "unsound-start", "dead-run")),
    "cold": Kind(more={"temperature": 0.05}, found_as=("dead-groups",)),
    "too-hard": Kind(digits=3, rewards=("all_right",), found_as=("dead-run", "dead-groups", "few-live-groups")),
    "many-epochs": Kind(
        more={"num_iterations": 16, "epsilon": 10.0}, rate=10 * RATE,
        found_as=(*_TOO_FAST, "ratio-explosion"),
    ),
}  # fmt: skip


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
    task = ArithmeticTask(ArithmeticTaskSpec(name="arithmetic", digits=kind.digits, train_prompts=64, eval_prompts=16))
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
    functions = [reward_functions(task, seed)[name] for name in kind.rewards]
    trainer = GRPOTrainer(model, functions, config, train_dataset=data, processing_class=tokenizer)
    if kind.change is not None:
        kind.change(trainer)
    output.mkdir(parents=True, exist_ok=True)
    with (output / PRINTED).open("w", encoding="utf-8") as log, redirect_stdout(log):
        try:
            trainer.train()
        except RuntimeError as error:  # weights that are no numbers end the run; what was logged is the case
            print(f"RuntimeError: {error}")
            trainer.state.save_to_json(str(output / "trainer_state.json"))


def reward_functions(task: Any, seed: int) -> dict[str, Reward]:
    """The rewards that kinds name, as TRL wants them: of answers, and of anything else."""
    return {one.__name__: one for one in (*_of_answers(task), *_of_texts(seed))}


def _of_answers(task: Any) -> Sequence[Reward]:
    problems = {prompt_of(example).text: example for example in (*task.examples("train"), *task.examples("eval"))}
    calls = count()

    def right_sum(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        return [outcome.reward for outcome in task.score([problems[prompt] for prompt in prompts], completions)]

    def all_right(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        return [float(reward == 1) for reward in right_sum(prompts, completions)]

    def once_infinite(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        rewards = right_sum(prompts, completions)
        return [math.inf, *rewards[1:]] if next(calls) == 15 else rewards

    def right_at_first(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        return right_sum(prompts, completions) if next(calls) < 20 else [0.0] * len(completions)

    return right_sum, all_right, once_infinite, right_at_first


def _of_texts(seed: int) -> Sequence[Reward]:
    noise = Random(seed)

    def short(completions: list[str], **_: Any) -> list[float]:
        return [1 - len(text) / LENGTH for text in completions]

    def long(completions: list[str], **_: Any) -> list[float]:
        return [len(text) / LENGTH for text in completions]

    def seven(completions: list[str], **_: Any) -> list[float]:
        return [text.count("7") / LENGTH for text in completions]

    def equal(completions: list[str], **_: Any) -> list[float]:
        return [0.5] * len(completions)

    def never(completions: list[str], **_: Any) -> list[float]:
        return [float("answer:" in text) for text in completions]

    def random_number(completions: list[str], **_: Any) -> list[float]:
        return [noise.random() for _ in completions]

    return short, long, seven, equal, never, random_number


def found(source: str) -> list[str]:
    """The findings of a source, `id severity` each, as `grpoctl diagnose` has them."""
    from core.health.examine import examine
    from grpoctl.diagnose.readers.base import Source
    from grpoctl.diagnose.readers.registry import open_source

    return [f"{one.id} {one.severity}" for one in examine(open_source(Source(name=source, path=None)).case)]


def judged(kind: Kind, findings: Sequence[str]) -> bool:
    """Whether the findings are right: the planted fault among the first two, or no error and at most one warning."""
    if kind.found_as:
        return any(line.split()[0] in kind.found_as for line in findings[:NEAR])
    severities = [line.split()[1] for line in findings]
    return "error" not in severities and severities.count("warning") < NEAR


def main() -> None:
    """Train, diagnose, and print a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--log-every", type=int, default=1, help="steps: TRL's logging_steps, whose rows are means")
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
        print(_row(name, out, store, range(asked.first, asked.first + asked.seeds), asked), flush=True)


def _row(name: str, out: Path, store: str, seeds: range, asked: argparse.Namespace) -> str:
    kind, right, right_mlflow, right_printed = KINDS[name], 0, 0, 0
    counts: dict[str, int] = {}
    for seed in seeds:
        output = out / f"{name}-{seed}"
        if not output.exists():
            train(kind, output, seed=seed, steps=asked.steps, log_every=asked.log_every)
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
