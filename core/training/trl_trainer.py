"""TRL's GRPOTrainer with what a spec has and plain TRL lacks: grpoctl's advantages, KL estimators, skipped updates.

Sampling, loss, optimiser, devices and checkpoints are TRL's. Around them: each completion is scored by the spec's task,
advantages are those of core.algorithms, what was sampled is kept with the log-probs that the sampler saw, and one group
of each step is scored again in eval mode, so that the two can be compared. Written against TRL 1.16, whose private
methods it overrides: pyproject.toml has the range of versions. Not here: who says when to evaluate and to end
(grpoctl.executors).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList
from trl import GRPOTrainer

from core.algorithms.advantages import advantages
from core.algorithms.kl import k3, kl_loss
from core.algorithms.shaping import overlong_penalty
from core.config import GrpoStage
from core.models.sources.base import Origin
from core.policies.base import Rollout, Sampling, Scores
from core.tasks.base import Example, Outcome, Task
from core.training.requests import Groups


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """What all processes sampled and scored on a step, and the clean scores of some rows of this one."""

    groups: Groups
    advantages_PK: Tensor
    clean_rows: Sequence[int]
    clean: Scores | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """A completion on its way between processes."""

    example: int
    text: str
    ids: Sequence[int]
    outcome: Outcome
    drawn: Sequence[float] | None


class Draws(LogitsProcessor):  # type: ignore[misc]
    """Watches transformers' sampling: the log-prob, before any filter, of each token that was drawn."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature
        self._last: Tensor | None = None
        self._drawn: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The scores as they are."""
        self._note(input_ids[:, -1:])
        self._last = torch.log_softmax(scores.float() / self._temperature, dim=-1)
        return scores

    def rows(self, sequences: Tensor, completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """The log-probs of each completion's tokens; `sequences` is what generate gave."""
        self._note(sequences[:, -1:])
        table = torch.stack(self._drawn, dim=1).tolist()
        return [row[: len(ids)] for row, ids in zip(table, completions, strict=True)]

    def _note(self, tokens_N1: Tensor) -> None:
        if self._last is not None:
            self._drawn.append(self._last.gather(-1, tokens_N1).squeeze(-1))


class SpecTrainer(GRPOTrainer):  # type: ignore[misc]
    """A GRPOTrainer of a spec's stage and task; `examples` are what the data's column `row` counts."""

    beta: float  # TRL's own

    def __init__(self, stage: GrpoStage, task: Task, examples: Sequence[Example], **arguments: Any) -> None:
        self.stage, self.task, self.examples = stage, task, examples
        self.origin: Origin | None = None  # where the model's weights came from
        self.sampled: Sampled | None = None
        self.done = 0  # steps of ours
        self.updated = False  # whether the last optimiser step moved weights
        self.tried = False  # whether any optimiser step of the rollout had something to learn from
        self.kl_values: list[float] = []
        self.ratio_max = 0.0
        self._rows: list[_Row] = []
        self._extra: Tensor | None = None
        self._drawn: Sequence[Sequence[float]] | None = None
        self._signal = False
        self._scored_NT: Tensor | None = None
        self.rate = stage.learning_rate
        self._adds_kl = stage.kl_estimator not in ("k3", "k3_ratio")
        super().__init__(reward_funcs=[self.score], **arguments)

    def score(
        self,
        prompts: Any,
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        row: Sequence[int],
        **_: Any,
    ) -> list[float | None]:
        """The task's rewards, as TRL's reward function; None where one cannot be computed."""
        texts = [one if isinstance(one, str) else str(one[0]["content"]) for one in completions]
        examples = [self.examples[number] for number in row]
        self.task.begin_step(self.done)
        outcomes = self.task.score(examples, texts, completion_ids)
        drawn = self._drawn if self._drawn is not None and len(self._drawn) == len(texts) else None
        own = [
            _Row(example=number, text=text, ids=ids, outcome=outcome, drawn=None if drawn is None else drawn[at])
            for at, (number, text, ids, outcome) in enumerate(zip(row, texts, completion_ids, outcomes, strict=True))
        ]
        self._rows = gather_object(own)
        return [None if math.isnan(outcome.reward) else outcome.reward for outcome in outcomes]

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        rewards_NF: Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        # An environment's own rewards are further columns.
        self._extra = rewards_NF[:, 1:].nansum(dim=1).double().cpu() if rewards_NF.shape[1] > 1 else None
        return rewards_NF

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any, **named: Any) -> tuple[Any, Any]:
        self._drawn = None
        if self.use_vllm or self.use_transformers_continuous_batching:
            completions, drawn = super()._generate_single_turn(prompt_ids, *rest, **named)
            self._drawn = drawn
            return completions, drawn
        model = self.accelerator.unwrap_model(self.model_wrapped)
        temperature = float(self.generation_config.temperature or self.temperature)  # what the sampler itself has
        plain, draws, made = model.generate, Draws(temperature), list[Tensor]()

        def generate(**settings: Any) -> Tensor:
            sequences: Tensor = plain(**settings, logits_processor=LogitsProcessorList([draws]))
            made.append(sequences)
            return sequences

        model.generate = generate
        try:
            completions, logprobs = super()._generate_single_turn(prompt_ids, *rest, **named)
        finally:
            del model.generate
        self._drawn = draws.rows(made[0], completions)
        return completions, logprobs

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        groups = self._groups()
        rewards_PK = groups.rewards_PK
        if self.stage.overlong is not None:
            buffer = max(1, math.ceil(round(self.stage.overlong.buffer * self.stage.max_completion_length, 6)))
            lengths_N = groups.rollout.mask_NT.sum(-1)
            penalty_N = overlong_penalty(lengths_N, max_length=self.stage.max_completion_length, buffer=buffer)
            rewards_PK = rewards_PK + self.stage.overlong.weight * penalty_N.to(rewards_PK).view(rewards_PK.shape)
        lengths_PK = groups.rollout.mask_NT.sum(-1).view(rewards_PK.shape)
        of_all = advantages(rewards_PK.numpy(), self.stage.advantage, lengths_PC=lengths_PK.numpy())
        advantages_PK = torch.from_numpy(of_all)
        count, rank = len(output["completion_ids"]), self.accelerator.process_index
        own = advantages_PK.flatten()[rank * count : (rank + 1) * count]
        output["advantages"] = own.to(output["advantages"])
        rows, clean = self._clean(output, rank * count)
        self.sampled = Sampled(groups=groups, advantages_PK=advantages_PK, clean_rows=rows, clean=clean)
        return output

    def _groups(self) -> Groups:
        """The rows of all processes as groups."""
        rows, k = self._rows, int(self.stage.num_generations)
        width = max(len(row.ids) for row in rows)
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        drawn = [row.drawn for row in rows]
        recorded_NT = None
        if all(one is not None for one in drawn):
            recorded_NT = torch.tensor([[*(one or ()), *[0.0] * (width - len(one or ()))] for one in drawn])
        rewards_N = torch.tensor([row.outcome.reward for row in rows], dtype=torch.float64)
        if self._extra is not None:
            rewards_N = rewards_N + self._extra
        prompts = [self.examples[row.example] for row in rows[::k]]
        rollout = Rollout(
            prompts=prompts,
            prompt_N=torch.arange(len(prompts)).repeat_interleave(k),
            actions={},
            mask_NT=torch.arange(width) < torch.tensor([len(row.ids) for row in rows]).unsqueeze(-1),
            drawn_NT=recorded_NT,
            outputs=[row.text for row in rows],
            truncated_N=torch.tensor([row.ids[-1] not in ends for row in rows]),
            how=Sampling(temperature=self.temperature, max_completion_length=int(self.stage.max_completion_length)),
            tokens=[row.ids for row in rows],
        )
        return Groups(rollout=rollout, outcomes=[row.outcome for row in rows], rewards_PK=rewards_N.view(-1, k))

    def _clean(self, output: Mapping[str, Any], first: int) -> tuple[Sequence[int], Scores | None]:
        """TRL's own scores, in eval mode and without gradient, of one group of this process, and which rows it is."""
        if self.tools or output.get("tool_mask") is not None:
            return (), None
        count, k = len(output["completion_ids"]), int(self.stage.num_generations)
        start = k * (self.done % max(1, count // k)) if count >= k else 0
        rows = range(start, min(count, start + k))
        ids = torch.cat(
            [output["prompt_ids"][rows.start : rows.stop], output["completion_ids"][rows.start : rows.stop]], dim=1
        )
        mask = torch.cat(
            [output["prompt_mask"][rows.start : rows.stop], output["completion_mask"][rows.start : rows.stop]], dim=1
        )
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                logprobs_NT, entropies_NT, _ = self._get_per_token_logps_and_entropies(
                    self.model, ids, mask, output["completion_ids"].shape[1], compute_entropy=True
                )
        finally:
            self.model.train(training)
        width = max(len(row.ids) for row in self._rows)
        return [first + row for row in rows], Scores(
            logprobs_NT=_to_width(logprobs_NT, width), entropies_NT=_to_width(entropies_NT, width)
        )

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        scored = super()._get_per_token_logps_and_entropies(*arguments, **named)
        if torch.is_grad_enabled():
            self._scored_NT = scored[0]
        return scored

    def _compute_loss(self, model: Any, inputs: Mapping[str, Any]) -> Tensor:
        mask_NT = inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask_NT = mask_NT * inputs["tool_mask"]
        self._signal |= bool(((inputs["advantages"] != 0) & mask_NT.bool().any(-1)).any())
        beta: float = self.beta
        if beta == 0 or not self._adds_kl:
            loss: Tensor = super()._compute_loss(model, inputs)
            self._watch(inputs, mask_NT)
            return loss
        self.beta = 0.0
        try:
            loss = super()._compute_loss(model, inputs)
        finally:
            self.beta = beta
        self._watch(inputs, mask_NT)
        new_NT, reference_NT = self._scored_NT, inputs["ref_per_token_logps"]
        assert new_NT is not None
        kl_NT = kl_loss(new_NT, reference_NT, self.stage.kl_estimator, old_NT=inputs.get("old_per_token_logps"))
        total: Tensor = loss + beta * self._as_policy_term(kl_NT, mask_NT, inputs)
        return total

    def _watch(self, inputs: Mapping[str, Any], mask_NT: Tensor) -> None:
        """Note the KL to the reference, by k3, and the largest ratio of the micro-batch."""
        assert self._scored_NT is not None
        new_NT, tokens = self._scored_NT.detach(), mask_NT.bool()
        if (reference_NT := inputs.get("ref_per_token_logps")) is not None and bool(tokens.any()):
            self.kl_values.append(float(k3(new_NT, reference_NT)[tokens].mean()))
        old_NT = inputs.get("old_per_token_logps")
        ratio = 1.0 if old_NT is None or not bool(tokens.any()) else float((new_NT - old_NT)[tokens].max().exp())
        self.ratio_max = max(self.ratio_max, ratio)

    def _as_policy_term(self, values_NT: Tensor, mask_NT: Tensor, inputs: Mapping[str, Any]) -> Tensor:
        """The values summed as TRL sums the policy's term of this loss_type, one accumulation window of it."""
        steps = self.current_gradient_accumulation_steps
        sums_N = (values_NT * mask_NT).sum(-1)
        total: Tensor
        match self.loss_type:
            case "grpo" | "sapo":
                total = (sums_N / mask_NT.sum(-1).clamp(min=1.0)).mean() / steps
            case "dr_grpo":
                total = sums_N.sum() / (len(sums_N) * self.max_completion_length) / steps
            case "luspo":
                total = sums_N.mean() / steps
            case _:  # dapo, cispo
                tokens = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes
                total = sums_N.sum() / (tokens * steps / self.args.steps_per_generation)
        return total

    def before_optimiser(self) -> None:
        """Take the gradient away where no group of the update had a signal, and where it is not finite."""
        signal = torch.tensor([float(self._signal)], device=self.accelerator.device)
        signal = self.accelerator.reduce(signal, reduction="sum")
        self._signal = False
        weights = [weight for weight in self.model.parameters() if weight.grad is not None]
        finite = all(bool(torch.isfinite(weight.grad).all()) for weight in weights if weight.grad is not None)
        self.tried |= bool(signal > 0) or not self.stage.skip_without_signal
        self.updated = finite and (bool(signal > 0) or not self.stage.skip_without_signal)
        if not self.updated:
            for weight in weights:
                weight.grad = None

    def follow(self, values: Mapping[str, float]) -> None:
        """Set what a schedule gives for the next step: rate, temperature, beta and clip range."""
        self.rate = values["learning_rate"]
        self.temperature = values["temperature"]
        if getattr(self, "generation_config", None) is not None:
            self.generation_config.temperature = values["temperature"]
        if getattr(self, "vllm_generation", None) is not None:
            self.vllm_generation.temperature = values["temperature"]
        self.beta = values["beta"]
        self.epsilon_low, self.epsilon_high = values["epsilon"], values["epsilon_high"]

    def set_rate(self) -> None:
        """Give the optimiser the step's rate; TRL's schedule is constant."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate


def _to_width(values_NT: Tensor, width: int) -> Tensor:
    """On the CPU, cut or widened with zeros: other processes have other widths."""
    values_NT = values_NT.detach().float().cpu()[:, :width]
    return torch.nn.functional.pad(values_NT, (0, width - values_NT.shape[1]))
