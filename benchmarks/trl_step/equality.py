"""Whether it is the same step: loss and gradient of one frozen batch, ours against TRL's and against our plain path."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.trl_step.ours import Frozen, close, frozen, own_trainer, policy_of
from benchmarks.trl_step.setting import Own, Setting
from benchmarks.trl_step.theirs import Start, Theirs, frozen_batch
from core.policies.savings import Savings
from core.tasks.text import prompt_of

LOSS, GRADIENT = 1e-4, 1e-3  # the most that may lie between them: absolute, and of the gradient's norm
UNCLIPPED = 1e9
SPREAD = 0.02  # of an adapter that is not at its start, where it says nothing and only half of it has a gradient
ALL = tuple(field.name for field in fields(Savings))


@dataclass(frozen=True, kw_only=True, slots=True)
class Equality:
    """The distances in fp32. `tokens` are those of the frozen batch."""

    prompt_tokens: int
    beta: float
    tokens: int
    loss: float
    loss_from_trl: float
    loss_from_plain: float
    gradient_from_trl: float
    gradient_from_plain: float

    @property
    def holds(self) -> bool:
        """Whether both are as near as they must be; NaN is not."""
        near = max(self.loss_from_trl, self.loss_from_plain) <= LOSS
        return near and max(self.gradient_from_trl, self.gradient_from_plain) <= GRADIENT

    def line(self) -> str:
        """One line that says so."""
        said = ", ".join(f"{name.replace('_', ' ')} {value:.1e}" for name, value in list(asdict(self).items())[4:])
        verdict = "equal" if self.holds else f"DIFFERENT (allowed: loss {LOSS:.0e}, gradient {GRADIENT:.0e})"
        return f"prompts of {self.prompt_tokens}, beta {self.beta:g}, fp32, {self.tokens} tokens: {verdict}: {said}"


def equality(setting: Setting, model: Path, data: Path) -> Equality:
    """Both compared on a rollout of ours with natural ends and a moved adapter: all savings, none, and TRL.

    Raises ValueError where TRL reads the prompts as other tokens.
    """
    setting = replace(setting, fixed=False)
    trainer = own_trainer(setting, Own(dtype="float32"), model, data, clipped_at=UNCLIPPED)
    adapter = moved(policy_of(trainer).state())
    trainer.policy.load(adapter)
    ours = frozen(trainer)
    close(trainer)
    trainer = own_trainer(setting, Own(dtype="float32", without=ALL), model, data, clipped_at=UNCLIPPED)
    trainer.policy.load(adapter)
    plain = frozen(trainer, ours.rollout)
    close(trainer)
    loss, gradient = _theirs(setting, model, ours, adapter)
    return Equality(
        prompt_tokens=setting.prompt_tokens,
        beta=setting.beta,
        tokens=int(ours.rollout.mask_NT.sum()),
        loss=ours.loss,
        loss_from_trl=abs(ours.loss - loss),
        loss_from_plain=abs(ours.loss - plain.loss),
        gradient_from_trl=distance(ours.gradient, gradient),
        gradient_from_plain=distance(ours.gradient, plain.gradient),
    )


def moved(adapter: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The adapter with numbers in place of the zeros it starts with."""
    generator = torch.Generator().manual_seed(0)
    noise = {name: torch.randn(weight.shape, generator=generator) for name, weight in sorted(adapter.items())}
    return {
        name: SPREAD * noise[name].to(weight) if "lora_B" in name else weight.clone()
        for name, weight in adapter.items()
    }


def distance(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    """|ours - theirs| / |theirs| over all weights together; infinite where the weights are not the same ones."""
    if set(ours) != set(theirs):
        return float("inf")
    names = sorted(ours)
    a, b = (torch.cat([one[name].detach().double().cpu().flatten() for name in names]) for one in (ours, theirs))
    return float((a - b).norm() / b.norm())


def _theirs(
    setting: Setting, model: Path, ours: Frozen, adapter: Mapping[str, Tensor]
) -> tuple[float, dict[str, Tensor]]:
    rollout = ours.rollout
    masks = rollout.actions["prompt_mask"].bool()
    prompt_ids = [ids[mask].tolist() for ids, mask in zip(rollout.actions["prompt_ids"], masks, strict=True)]
    asked = [prompt_of(rollout.prompts[index]).text for index in rollout.prompt_N.tolist()]
    with tempfile.TemporaryDirectory() as output:
        start = Start(model=model, questions=asked[:: setting.size], adapter=adapter, output=Path(output))
        theirs = Theirs(setting, "fp32", start, steps=1)
        return frozen_batch(theirs, asked, prompt_ids, [list(row) for row in rollout.tokens])
