"""TRL 1.16.0's own GRPOTrainer on a tiny random model, and one frozen batch that it scored.

Nothing of TRL is replaced: its rollout function and its reward function, both part of its interface, hand it the frozen
completions and rewards, and everything after them is its code. Importing it takes 5 seconds, building it 0.1.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

VOCABULARY = 32
GROUPS, SIZE, BUDGET = 3, 4, 8
PROMPT = [4, 5]
# One success; one row without a reward (None); a group equal but for rounding; graded rewards.
REWARDS = [1.0, 0.0, 0.0, None, 0.3, 0.3, 0.1 + 0.2, 0.3, 0.2, 0.9, 0.4, 1.0]
LENGTHS = [8, 3, 5, 1, 2, 8, 4, 4, 7, 6, 1, 3]


@dataclass(frozen=True, kw_only=True, slots=True)
class Frozen:
    """A rollout of 3 groups of 4 rows, off-policy by about 0.3 nats a token."""

    inputs: dict[str, Tensor]  # what TRL's _compute_loss takes
    mask_NT: Tensor  # bool
    old_NT: Tensor  # NaN off the mask: it must not matter
    reference_NT: Tensor  # NaN off the mask


class Trl:
    """A GRPOTrainer whose settings a test changes; `reset` puts back TRL's defaults."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.reset()

    def reset(self) -> None:
        """Two-sided clip of 0.2, no KL, one micro-batch."""
        self.set(
            loss_type="grpo", importance_sampling_level="token", beta=0.0, scale_rewards="group", num_generations=SIZE,
            epsilon_low=0.2, epsilon_high=0.2, current_gradient_accumulation_steps=1,
        )  # fmt: skip
        self.set_args(delta=None, use_bias_correction_kl=True, steps_per_generation=1)

    def set(self, **settings: Any) -> None:
        """Set what the trainer copied out of its configuration."""
        for name, value in settings.items():
            assert hasattr(self.trainer, name) or name == "current_gradient_accumulation_steps", name
            setattr(self.trainer, name, value)

    def set_args(self, **settings: Any) -> None:
        """Set what the trainer reads from its configuration each time."""
        for name, value in settings.items():
            assert hasattr(self.trainer.args, name), name
            setattr(self.trainer.args, name, value)

    def rollout(self, completions: list[list[int]], rewards: list[float | None]) -> dict[str, Tensor]:
        """TRL's own batch of these completions: padded ids, masks, advantages, the token count."""
        self.trainer.rollout_func = lambda prompts, trainer: {
            "prompt_ids": [PROMPT] * len(prompts), "completion_ids": completions, "logprobs": None
        }  # fmt: skip
        self.trainer.reward_funcs = [lambda prompts, **columns: rewards]
        prompts = [{"prompt": "w4 w5"}] * len(rewards)
        return dict(self.trainer._generate_and_score_completions(prompts))

    def loss(self, inputs: dict[str, Tensor]) -> Tensor:
        """TRL's loss of a batch."""
        return self.trainer._compute_loss(self.trainer.model, inputs)

    def logprobs(self, inputs: dict[str, Tensor]) -> Tensor:
        """Log-probs (N, T) of the completions from the model's logits, with a gradient, without TRL."""
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        width = inputs["completion_ids"].shape[1]
        logits = self.trainer.model(input_ids=ids, attention_mask=attention).logits[:, -width - 1 : -1]
        return logits.float().log_softmax(-1).gather(-1, ids[:, -width:].unsqueeze(-1)).squeeze(-1)

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a loss with respect to all weights of the model, as one row."""
        self.trainer.model.zero_grad()
        loss.backward()
        return torch.cat([weight.grad.flatten() for weight in self.trainer.model.parameters()])


@pytest.fixture(scope="session")
def _trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w3"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="w0", eos_token="w1", unk_token="w3", padding_side="left"
    )
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = Qwen2ForCausalLM(
        Qwen2Config(vocab_size=VOCABULARY, num_key_value_heads=2, max_position_embeddings=32, **shape)
    )
    config = GRPOConfig(
        output_dir=str(tmp_path_factory.mktemp("trl")),
        per_device_train_batch_size=GROUPS * SIZE,
        num_generations=SIZE,
        max_completion_length=BUDGET,
        use_cpu=True,
        bf16=False,
        report_to=[],
    )
    data = Dataset.from_list([{"prompt": "w4 w5"}] * GROUPS)
    trainer = GRPOTrainer(
        model, lambda prompts, **columns: [0.0] * len(prompts), config, train_dataset=data, processing_class=tokenizer
    )
    trainer.model.train()
    return trainer


@pytest.fixture
def trl(_trainer: Any) -> Trl:
    """TRL with its defaults."""
    return Trl(_trainer)


@pytest.fixture
def frozen(trl: Trl) -> Frozen:
    """The frozen batch."""
    generator = torch.Generator().manual_seed(8)
    completions = [torch.randint(4, VOCABULARY, (length,), generator=generator).tolist() for length in LENGTHS]
    inputs = trl.rollout(completions, REWARDS)
    mask_NT = inputs["completion_mask"].bool()
    new_NT = trl.logprobs(inputs).detach()
    old_NT = new_NT + 0.3 * torch.randn(new_NT.shape, generator=generator)
    reference_NT = new_NT + 0.5 * torch.randn(new_NT.shape, generator=generator)
    inputs |= {"old_per_token_logps": old_NT, "ref_per_token_logps": reference_NT}
    nan = float("nan")
    return Frozen(
        inputs=inputs,
        mask_NT=mask_NT,
        old_NT=old_NT.masked_fill(~mask_NT, nan),
        reference_NT=reference_NT.masked_fill(~mask_NT, nan),
    )
