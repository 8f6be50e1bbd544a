"""Small real things to test with: a policy that is a table, its task, and a Qwen2 of two layers x 32 with an alphabet.

Nothing here is a mock: the table is a Policy, the letters are a Task, and the Qwen2 is transformers' own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import pad
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from core.config import GrpoStage, LoraSpec, RunSpec, Schedule
from core.models import adapters
from core.policies.base import ENTROPY, Policy, Rollout, Sampling, Scores, Weights
from core.policies.lm.causal_lm import CausalLMPolicy
from core.policies.lm.decoding import inverse_cdf_draw
from core.randomness import INIT, RowKey, seeded, uniforms
from core.tasks.base import Example, Outcome, Split
from core.tasks.text import TextTask, text_example
from core.training.clock import at
from core.training.grpo import GrpoLoss, numbers
from core.training.requests import Evaluated, StepDone
from core.training.trainer import Parts, Trainer, drive
from core.training.update import Batch, Loss

MISSING = math.nan


class TabularPolicy(Policy):
    """A softmax over a handful of arms: the output is the arm's number, in one factor. The reference is uniform."""

    def __init__(self, arms: int = 4) -> None:
        self.logits = Parameter(torch.zeros(arms))
        self.samplings: list[Sampling] = []

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        self.samplings.append(how)
        n = len(prompts) * k
        logprobs_A = (self.logits.detach() / how.temperature).log_softmax(-1)
        ids_N = self.arms(prompts, k, logprobs_A, keys)
        return Rollout(
            prompts=prompts,
            prompt_N=torch.arange(len(prompts)).repeat_interleave(k),
            actions={"ids": ids_N},
            mask_NT=torch.ones(n, 1, dtype=torch.bool),
            drawn_NT=logprobs_A[ids_N].unsqueeze(-1),
            outputs=[str(arm) for arm in ids_N.tolist()],
            truncated_N=torch.full((n,), how.max_completion_length == 1),  # one factor fills it
            how=how,
        )

    def arms(self, prompts: Sequence[Example], k: int, logprobs_A: Tensor, keys: Sequence[RowKey]) -> Tensor:
        """The arm of each row."""
        return inverse_cdf_draw(logprobs_A.exp().expand(len(keys), -1), uniforms(keys, 1)[:, 0])

    def replay(self, prompts: Sequence[Example], outputs: Sequence[str]) -> Rollout:
        n = len(prompts)
        return Rollout(
            prompts=prompts,
            prompt_N=torch.arange(n),
            actions={"ids": torch.tensor([int(output) for output in outputs])},
            mask_NT=torch.ones(n, 1, dtype=torch.bool),
            drawn_NT=None,
            outputs=list(outputs),
            truncated_N=torch.zeros(n, dtype=torch.bool),
            how=Sampling(temperature=1.0, max_completion_length=1),
        )

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        logits = self.logits if weights == "current" else torch.zeros_like(self.logits)
        logprobs_A = (logits / rollout.how.temperature).log_softmax(-1)
        entropy = -(logprobs_A.exp() * logprobs_A).sum().expand(len(rows), 1)
        return Scores(
            logprobs_NT=logprobs_A[rollout.actions["ids"][list(rows)]].unsqueeze(-1),
            entropies_NT=entropy if ENTROPY in wants else None,
        )

    def trainable(self) -> Mapping[str, Parameter]:
        return {"logits": self.logits}

    def state(self) -> Mapping[str, Tensor]:
        return {"logits": self.logits.detach().clone()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            self.logits.copy_(state["logits"])

    def export(self, folder: Path) -> None:
        raise NotImplementedError("a table has no form that other tools load")

    def chance(self, arm: int) -> float:
        """The probability of an arm at temperature 1."""
        return float(self.logits.detach().softmax(-1)[arm])


class ScriptedPolicy(TabularPolicy):
    """Its groups are arms 0, 1, 2, ... in turn, however likely each is: rewards that can be worked by hand."""

    def arms(self, prompts: Sequence[Example], k: int, logprobs_A: Tensor, keys: Sequence[RowKey]) -> Tensor:
        return torch.arange(len(prompts) * k) % k % len(logprobs_A)


class ConsistentPolicy(TabularPolicy):
    """Has a loss of its own beside the log-probs: the spread of its logits, the same for every row."""

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        scores = super().score(rollout, rows, wants=wants, weights=weights)
        return replace(scores, losses_N={"consistency": self.logits.square().mean().expand(len(rows))})


class LongPolicy(ScriptedPolicy):
    """Arm a is a + 1 factors long: the choice, then factors that are certain. At the longest allowed it is cut off."""

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        rollout = super().sample(prompts, k, how, keys)
        assert rollout.drawn_NT is not None
        arms_N, width = rollout.actions["ids"], len(self.logits)
        return replace(
            rollout,
            mask_NT=torch.arange(width) <= arms_N.unsqueeze(-1),
            drawn_NT=pad(rollout.drawn_NT, (0, width - 1)),
            truncated_N=arms_N + 1 >= how.max_completion_length,
        )

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        scores, width = super().score(rollout, rows, wants=wants, weights=weights), len(self.logits)
        entropies = None if scores.entropies_NT is None else pad(scores.entropies_NT, (0, width - 1))
        return replace(scores, logprobs_NT=pad(scores.logprobs_NT, (0, width - 1)), entropies_NT=entropies)


class PricedTask(TextTask):
    """`prompts` problems a split; what an output earns is `price(problem's number, output)`. Valid unless told not."""

    def __init__(
        self,
        price: Callable[[int, str], float],
        *,
        prompts: int = 4,
        valid: Callable[[str], bool] = lambda _: True,
        answer: str = "0",
    ) -> None:
        self._price, self._prompts, self._valid, self._answer = price, prompts, valid, answer

    def examples(self, split: Split) -> Sequence[Example]:
        # Prompts of different lengths, so that a batch of them is padded.
        return [
            text_example(id=f"{split}-{i}", prompt="abcdefg"[: i % 7 + 1], facts={"n": i}) for i in range(self._prompts)
        ]

    def score(
        self, examples: Sequence[Example], outputs: Sequence[str], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        rewards = [self._price(int(str(e.facts["n"])), o) for e, o in zip(examples, outputs, strict=True)]
        return [
            Outcome(reward=reward, expected=reward, valid=self._valid(output))
            for reward, output in zip(rewards, outputs, strict=True)
        ]

    def target(self, example: Example) -> str:
        return self._answer


class LetterTokenizer:
    """One token a letter: 0 pads, 1 ends, 2... are a, b, c, ..."""

    pad_token_id, eos_token_id, chat_template = 0, 1, None

    def __call__(self, texts: Sequence[str], add_special_tokens: bool = True) -> dict[str, list[list[int]]]:
        return {"input_ids": [[ord(letter) - ord("a") + 2 for letter in text] for text in texts]}

    def batch_decode(self, rows: Sequence[Sequence[int]], skip_special_tokens: bool) -> list[str]:
        return ["".join(chr(i - 2 + ord("a")) for i in row if i > 1 or not skip_special_tokens) for row in rows]

    def save_pretrained(self, folder: Path) -> None:
        (folder / "letters.txt").write_text("a is 2")


VOCABULARY = 40


SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "bos_token_id": None,
}


def small_qwen2(seed: int = 0) -> Any:
    """A random Qwen2, 2 layers x 32, in eval mode; wide weights, so that what it says depends on all it has seen."""
    with seeded(RowKey(seed, INIT, 0, 0, 0)):
        return Qwen2ForCausalLM(Qwen2Config(**SMALL, tie_word_embeddings=False)).eval()


def small_llama(*, tied: bool = False) -> Any:
    """A random Llama of the same size; `tied`: its head is its embedding."""
    with seeded(RowKey(0, INIT, 0, 0, 0)):
        return LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=tied)).eval()


def small_policy(*, lora_dropout: float | None = None, checkpointing: bool = False, seed: int = 0) -> CausalLMPolicy:
    """The small Qwen2 as a policy: every weight trained, or a LoRA adapter where a dropout is given."""
    model = small_qwen2(seed)
    if lora_dropout is None:
        return CausalLMPolicy(
            model, LetterTokenizer(), reference=adapters.frozen_copy(model), checkpointing=checkpointing
        )
    lora = LoraSpec(r=4, lora_alpha=8.0, lora_dropout=lora_dropout, target_modules=("q_proj", "v_proj"))
    return CausalLMPolicy(adapters.with_lora(model, lora, seed=seed), LetterTokenizer(), checkpointing=checkpointing)


def with_moving_reference(policy: CausalLMPolicy) -> CausalLMPolicy:
    """The policy with a reference that starts where it stands and follows it, as a spec's `sync_ref_model` asks."""
    policy.reference, policy.reference_moves = adapters.frozen_copy(policy.model), True
    return policy


def grpo_stage(**changes: object) -> GrpoStage:
    """A stage of 10 steps with 2 prompts x 4 completions, whatever is not changed at its default."""
    plain: dict[str, object] = {
        "max_steps": 10,
        "num_generations": 4,
        "prompts_per_step": 2,
        "max_completion_length": 8,
        "learning_rate": 0.05,
        "lr_scheduler_type": "constant",
    }
    return GrpoStage.model_validate(plain | changes)


def run_spec(stage: GrpoStage | None = None, **changes: object) -> RunSpec:
    """A spec around a stage. Its model and task are placeholders: the fakes stand in for both."""
    plain: dict[str, object] = {
        "name": "fake",
        "title": "a test",
        "model": {"source": "builtin:tiny"},
        "task": {"name": "arithmetic", "train_prompts": 4, "eval_prompts": 4},
        "stages": {"grpo": stage or grpo_stage()},
    }
    return RunSpec.model_validate(plain | changes)


def loss_of(stage: GrpoStage, *, entropy_coef: float = 0.0, step: int = 1, **fields: Any) -> GrpoLoss:
    """The loss of a stage's step, nothing adapted."""

    def now(schedule: Schedule) -> float:
        return at(schedule, step)

    return GrpoLoss(stage=stage, numbers=numbers(stage, now, beta=now(stage.beta), entropy_coef=entropy_coef), **fields)


def batch_of(rollout: Rollout, loss: Loss, micro_rows: int = 99) -> Batch:
    """The whole rollout as one batch of an update."""
    return Batch(rollout=rollout, rows=range(len(rollout)), loss=loss, micro_rows=micro_rows)


def trainer_of(policy: Any, task: Any, stage: GrpoStage | None = None, /, **changes: object) -> Trainer:
    """A trainer of these parts, without callbacks. Several stages come as `stages`."""
    spec = run_spec(stage, **changes)
    return Trainer(Parts(spec=spec, policy=policy, task=task))


class Recorder:
    """Keeps what it is told; `stop_at` plays the part of `kill -9`, after that step was recorded."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.rows: list[dict[str, float | None]] = []
        self.samples: list[dict[str, object]] = []
        self.timings: list[dict[str, float]] = []
        self.evaluated: list[Evaluated | None] = []
        self._stop_at = stop_at

    def step_done(
        self,
        row: Mapping[str, float | None],
        samples: Sequence[Mapping[str, object]],
        timings: Mapping[str, float],
        evaluated: Evaluated | None = None,
    ) -> None:
        self.rows.append(dict(row))
        self.samples += [dict(sample) for sample in samples]
        self.timings.append(dict(timings))
        self.evaluated.append(evaluated)
        if row["step"] == self._stop_at:
            raise KeyboardInterrupt

    def column(self, metric: str) -> list[float | None]:
        """A metric over the training steps."""
        return [copy.copy(row.get(metric)) for row in self.rows if row["step"]]


def ran(trainer: Trainer) -> Recorder:
    """What a run records that goes on to its end."""
    recorder = Recorder()
    assert drive(trainer.steps(), recorder).status == "COMPLETED"
    return recorder


def asked(trainer: Trainer) -> list[tuple[Any, Any]]:
    """Everything a run asks for, in order, each with the answer it was sent."""
    found: list[tuple[Any, Any]] = []
    steps, answer = trainer.steps(), None
    while True:
        try:
            request: Any = steps.send(answer)
        except StopIteration:
            return found
        answer = None if isinstance(request, StepDone) else request.run()
        found.append((request, answer))
