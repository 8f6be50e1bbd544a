"""The direction noise of real policy gradients, beside what `grpoctl check --simulate` says of the same rewards.

    python benchmarks/direction_noise.py          384 prompts x 16 completions of p31 in profile tiny, 3 minutes
    python benchmarks/direction_noise.py 64       fewer prompts

Weights are those before training. Every completion's own gradient of its mean log-prob is taken; groups of 2, 4, 8 and
16 are cut from the same completions, so that the settings differ by nothing else. Squared lengths of expectations are
estimated without bias, from pairs of different groups. Prints, for mean-only advantages and for z-scores: live groups
and the square of the signal to noise of 1,000 completions, relative to K=8, measured and simulated; and which bandit
(ways, sharing) has the measured noise. ± is a standard error over prompts (jackknife, 24 blocks).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from core.assemble import build_policy
from core.config import GrpoStage
from core.health.simulation.rewards import RewardModel, measured
from core.health.simulation.signal import Bandit, Groups, mean_of, signal_of, summed
from core.policies.base import Sampling
from core.randomness import RowKey
from core.tasks import registry
from core.training.requests import collect
from grpoctl.config import load

K, SIZES, BLOCKS, AT_ONCE = 16, (2, 4, 8, 16), 24, 16


def sampled(prompts: int) -> tuple[Tensor, Tensor]:
    """Rewards (P, K), and every completion's gradient (P, K, D)."""
    spec = load("p31", profile="tiny").spec
    task, policy = registry.build(spec.task), build_policy(spec)
    task.make_ready()
    parameters = [parameter for _, parameter in sorted(policy.trainable().items())]
    how = Sampling(temperature=1.0, max_completion_length=48)
    rewards, gradients = [], []
    pool = task.examples("train")[:prompts]
    for start in range(0, len(pool), AT_ONCE):
        some = pool[start : start + AT_ONCE]
        keys = [RowKey(5, 0, 0, start + index, row) for index in range(len(some)) for row in range(K)]
        rollout = policy.sample(some, K, how, keys)
        rewards.append(collect(task, rollout).rewards_PK)
        for row in range(len(rollout)):
            scores = policy.score(rollout, [row], wants=frozenset(), weights="current")
            mask = rollout.mask_NT[row : row + 1]
            mean = scores.logprobs_NT.masked_fill(~mask, 0.0).sum() / mask.sum()
            gradients.append(torch.cat([one.flatten() for one in torch.autograd.grad(mean, parameters)]))
    return torch.cat(rewards), torch.stack(gradients).view(len(pool), K, -1)


class Moments:
    """Of the gradients of groups of `size`, in blocks of prompts."""

    def __init__(self, rewards_PK: Tensor, gradients_PKD: Tensor, size: int, *, z_score: bool) -> None:
        cut = rewards_PK.view(len(rewards_PK), -1, size)
        advantages = cut - cut.mean(-1, keepdim=True)
        live = cut.amax(-1) - cut.amin(-1) > 1e-9
        if z_score:
            std = cut.std(-1, keepdim=True, unbiased=False)
            advantages = torch.where(live.unsqueeze(-1), advantages / std.clamp(min=1e-9), 0.0)
        self.size, self.groups, self.live = size, cut.shape[1], float(live.double().mean())
        parts = gradients_PKD.view(*cut.shape, -1)
        groups_PGD = torch.einsum("pgk,pgkd->pgd", advantages.float(), parts) / size
        means_PD = groups_PGD.mean(1).double()
        self.squares_P = groups_PGD.double().square().sum(-1).mean(1)
        self.means_P = means_PD.square().sum(-1)
        self.sums = [block.sum(0) for block in means_PD.chunk(BLOCKS)]
        self.blocks = torch.arange(len(cut)).chunk(BLOCKS)

    def of(self, left_out: int | None) -> tuple[float, float, float]:
        """E|g|^2, the mean over prompts of |E g|^2 (NaN with one group a prompt), |E g|^2 over all prompts."""
        kept = torch.cat([block for index, block in enumerate(self.blocks) if index != left_out])
        total = torch.stack([one for index, one in enumerate(self.sums) if index != left_out]).sum(0)
        squares, means, n, g = self.squares_P[kept].mean(), self.means_P[kept], len(kept), self.groups
        own = (g * means.mean() - squares) / (g - 1) if g > 1 else torch.tensor(math.nan)
        common = (total.square().sum() - means.sum()) / (n * (n - 1))
        return float(squares), float(own), float(common)

    def snr2(self, left_out: int | None = None) -> float:
        """The square of the signal to noise of 1,000 completions."""
        squares, _, common = self.of(left_out)
        return 1000 * common / (squares - common) / self.size


def with_error(value: Callable[[int | None], float]) -> str:
    """The value of all prompts, and its standard error."""
    without = [value(block) for block in range(BLOCKS)]
    mean = sum(without) / BLOCKS
    error = math.sqrt((BLOCKS - 1) / BLOCKS * sum((one - mean) ** 2 for one in without))
    return f"{value(None):.2f} ± {error:.2f}"


def against(one: Moments, other: Moments, left_out: int | None) -> float:
    """How much more a completion of one adds to the square of the signal to noise."""
    return one.snr2(left_out) / other.snr2(left_out)


def stages(z_score: bool) -> Iterator[GrpoStage]:
    """The stage of p31 at each size."""
    stage = load("p31", profile="tiny").spec.stages["grpo"]
    assert isinstance(stage, GrpoStage)
    how = stage.advantage.model_copy(update={"scale_rewards": "group" if z_score else "none", "ddof": 0})
    for size in SIZES:
        update = {"num_generations": size, "prompts_per_step": K // size, "advantage": how}
        yield stage.model_copy(update=update)


def bandit_of(moments: Moments, stage: GrpoStage, rewards: RewardModel) -> tuple[str, str]:
    """The ways and the sharing at which the bandit's gradients have the measured lengths."""
    prompts = summed(Groups(stage, rewards), rewards)
    means = mean_of(prompts)
    own = sum(part * part for one in prompts for part in one.vector) / len(prompts)
    common = sum(part * part for part in means.vector)

    def ways(left_out: int | None) -> float:
        squares, expected, _ = moments.of(left_out)
        return 1 + (squares / expected * own - means.squares) / means.across

    def sharing(left_out: int | None) -> float:
        _, expected, together = moments.of(left_out)
        return together / expected * own / common

    return with_error(ways), with_error(sharing)


def main(arguments: Sequence[str]) -> None:
    """Measure, simulate and print."""
    torch.set_num_threads(1)
    rewards_PK, gradients_PKD = sampled(int(arguments[0]) if arguments else 384)
    rewards = measured(rewards_PK.tolist(), "builtin:tiny")
    for z_score in (False, True):
        print("z-score" if z_score else "mean only")
        found = {size: Moments(rewards_PK, gradients_PKD, size, z_score=z_score) for size in SIZES}
        seen = {stage.num_generations: signal_of(stage, rewards, Bandit()) for stage in stages(z_score)}
        for size in SIZES:
            one, eight = found[size], found[8]
            ratio = with_error(partial(against, one, eight))
            simulated = (seen[size].per_1000 / seen[8].per_1000) ** 2
            print(
                f"  K={size:<2}  live {one.live:.3f}, simulated {1 - seen[size].dead:.3f};  snr^2 per 1,000 "
                f"{with_error(one.snr2)}, simulated {seen[size].per_1000 ** 2:.2f};  against K=8 {ratio}, "
                f"simulated {simulated:.2f}"
            )
        if not z_score:
            for stage in list(stages(z_score))[:2]:
                ways, sharing = bandit_of(found[stage.num_generations], stage, rewards)
                print(f"  bandit by groups of {stage.num_generations}: ways {ways}, sharing {sharing}")


if __name__ == "__main__":
    main(sys.argv[1:])
