"""The restoration network as a policy: twelve factors of a picture drawn from Beta distributions, scored, and probed.

A factor is a number in (0, 1): how far a frequency box reaches, or how much of a branch is let through. log pi of a
picture is the sum of twelve log densities, so it may be above 0. Later modules see features that earlier factors have
changed: to score given factors the network is run once with them in their places.
Shape suffixes as in network; T factors, R some of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor
from torch.nn.functional import pad

from core.config.policy import RestorationConfig
from core.errors import ModelError, TaskError
from core.models.adapters import adapt_layers
from core.models.devices import to_device
from core.policies.base import ENTROPY, Rollout, Sampling, Scores, Weights, read_weights
from core.policies.network import KEPT, NetworkPolicy
from core.policies.restoration.network import (
    ADAPTED,
    FACTORS,
    HEADS,
    MODULES,
    MULTIPLE,
    OF_MODULE,
    Decide,
    RestorationNetwork,
)
from core.randomness import INIT, RowKey, seeded, uniforms
from core.tasks.base import Example

EDGE = 1e-4  # factors stay this far from 0 and 1: there a Beta with a parameter below 1 has no finite density
MOVED = 0.2, 0.8  # a factor, to see what it does
PROBE_DRAWS = 512  # of one picture
RATES, GATES = (0, 1, 4, 5, 8, 9), (2, 6, 10)  # among the factors: the sides of the boxes, and the gates behind them
WITH_PICTURES = frozenset({"supervised", "consistency", "penalty"})

Image = np.ndarray[Any, np.dtype[np.float32]]  # (H, W, 3)


class RestorationPolicy(NetworkPolicy):
    """Pictures restored under twelve drawn factors each; greedily under the means of their distributions.

    `greedy_factors` and `given_factors` say what inference uses in the place of a draw, and what the trainer scores.
    """

    def __init__(self, settings: RestorationConfig, *, seed: int, device: torch.device | None = None) -> None:
        with seeded(RowKey(seed, INIT, 0, 0, 0)):
            network = RestorationNetwork(settings)
            if settings.lora is not None:
                adapt_layers(network, settings.lora, ADAPTED)
                for name, weight in network.named_parameters():
                    weight.requires_grad_(weight.requires_grad or any(f".{head}" in name for head in HEADS))
        if settings.weights is not None:
            load_trained(network, Path(settings.weights).expanduser())
        self.device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.greedy_factors: Callable[[Tensor], Tensor] = means
        self.given_factors: Callable[[Tensor, Tensor], Tensor] = as_given
        super().__init__(network.to(self.device))

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """K restored pictures of each; a row's factors depend on its own key, and on its batch only by rounding."""
        if len({_degraded(example).shape for example in prompts}) > 1:
            rows = range(0, len(keys), k)
            pairs = zip(prompts, rows, strict=True)
            return self.join([self.sample([one], k, how, keys[row : row + k]) for one, row in pairs])
        uniforms_NT = None if how.top_k == 1 else uniforms(keys, FACTORS)

        def decide(betas_NT2: Tensor, module: int) -> Tensor:
            if uniforms_NT is None:
                return self.greedy_factors(betas_NT2)
            return draw(betas_NT2, uniforms_NT[:, of_module(module)])

        prompt_N = torch.arange(len(prompts)).repeat_interleave(k)
        with torch.no_grad():
            pixels_P3HW, size = self._pixels(prompts)
            restored_N3HW, factors_NT, betas_NT2 = self.forward("current", pixels_P3HW, prompt_N, decide)
            drawn_NT = log_densities(factors_NT, betas_NT2)
        pictures = _cropped(restored_N3HW, size).permute(0, 2, 3, 1).contiguous().cpu().numpy()
        return Rollout(
            prompts=prompts,
            prompt_N=prompt_N,
            actions={"factors": factors_NT.cpu()},
            mask_NT=torch.ones(len(prompt_N), FACTORS, dtype=torch.bool),
            drawn_NT=drawn_NT.cpu(),
            outputs=list(pictures),
            truncated_N=torch.zeros(len(prompt_N), dtype=torch.bool),
            how=how,
        )

    def replay(self, prompts: Sequence[Example], outputs: Sequence[Any]) -> Rollout:
        """Raises TaskError: a picture has no factors."""
        instead = "use a grpo stage with policy_weight 0 and loss_weights.supervised"
        raise TaskError(f"got pictures to imitate, and no factors of the policy follow from a picture; {instead}")

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        """Log densities of the rows' factors, and the losses of their pictures where they are asked for.

        Both pictures that `consistency` and `penalty` compare are learned from: the sampled one, and the deterministic
        one, which so moves the means of the factors towards what was drawn.
        """
        prompt_R = rollout.prompt_N[list(rows)]
        numbers, place_R = torch.unique(prompt_R, return_inverse=True)
        prompts = [rollout.prompts[number] for number in numbers.tolist()]
        given_RT = to_device(rollout.actions["factors"][list(rows)], self.device)
        count, beside = len(given_RT), len(prompts) if wants & {"consistency", "penalty"} else 0

        def decide(betas_NT2: Tensor, module: int) -> Tensor:
            """Of the rows what is given, of the deterministic pictures behind them the means."""
            given = self._given(given_RT)(betas_NT2[:count], module)
            return torch.cat([given, means(betas_NT2[count:])]) if beside else given

        pixels_P3HW, size = self._pixels(prompts)
        place_N = torch.cat([place_R, torch.arange(beside)]).to(self.device)
        modules = None if wants & WITH_PICTURES else MODULES
        restored_N3HW, factors_NT, betas_NT2 = self.forward(weights, pixels_P3HW, place_N, decide, modules)
        losses_R = {}
        if restored_N3HW is not None:
            restored_N3HW = _cropped(restored_N3HW, size)
            sampled_R3HW = restored_N3HW[:count]
            if "supervised" in wants:
                clean_P3HW = self._stacked([_clean(example) for example in prompts])
                losses_R["supervised"] = (sampled_R3HW - clean_P3HW[place_R]).abs().mean((1, 2, 3))
            if beside:
                apart_R3HW = sampled_R3HW - restored_N3HW[count:][place_R]
                both = {"consistency": apart_R3HW.abs(), "penalty": apart_R3HW.square()}
                losses_R |= {name: both[name].mean((1, 2, 3)) for name in sorted(wants & set(both))}
        betas_RT2 = betas_NT2[:count]
        return Scores(
            logprobs_NT=log_densities(factors_NT[:count], betas_RT2),
            entropies_NT=entropies(betas_RT2) if ENTROPY in wants else None,
            losses_N=losses_R,
        )

    def probe(self, examples: Sequence[Example], key: RowKey) -> Mapping[str, float]:
        """Whether factors act, whether greedy draws are the means, whether log pi is differentiated as a score.

        `rate_effect` and `gate_effect`: the root mean square change of the picture when a rate, or a gate of the
        frequencies, goes from .2 to .8, all others at a half: of the one that changes least. `greedy_gap`: the largest
        distance of a factor that a greedy sample used from the mean the trainer computes. `score_z`: the mean gradient
        of log pi over many draws, in standard errors, of the parameter that is furthest from the 0 it should be.
        """
        with torch.no_grad():
            return {
                "rate_effect": min(self._effect(examples, factor) for factor in RATES),
                "gate_effect": min(self._effect(examples, factor) for factor in GATES),
                "greedy_gap": self._greedy_gap(examples, key),
                "score_z": self._score_z(examples[0], key),
            }

    def _effect(self, examples: Sequence[Example], factor: int) -> float:
        """The RMS change of the examples' pictures when this factor moves."""
        count = len(examples)
        moved_NT = torch.full((2 * count, FACTORS), 0.5, device=self.device)
        moved_NT[:count, factor], moved_NT[count:, factor] = MOVED
        pixels_P3HW, size = self._pixels(examples)
        place_N = torch.arange(count).repeat(2)
        restored_N3HW, *_ = self.forward("current", pixels_P3HW, place_N, self._given(moved_NT))
        low_P3HW, high_P3HW = _cropped(restored_N3HW, size).double().chunk(2)
        return float((high_P3HW - low_P3HW).square().mean().sqrt())

    def _greedy_gap(self, examples: Sequence[Example], key: RowKey) -> float:
        rollout = self.sample(examples, 1, Sampling.at(0.0, FACTORS), [key] * len(examples))
        used_NT = rollout.actions["factors"].to(self.device)
        pixels_P3HW, _ = self._pixels(examples)
        _, _, betas_NT2 = self.forward("current", pixels_P3HW, rollout.prompt_N, self._given(used_NT), MODULES)
        return float((used_NT - means(betas_NT2)).abs().max())

    def _score_z(self, example: Example, key: RowKey) -> float:
        """Of the first module's parameters on a log scale, whose gradients have lighter tails; draws of one picture.

        Without the factors one of whose draws lay at an edge.
        """
        pixels_1, _ = self._pixels([example])
        keys = [key._replace(row=row) for row in range(PROBE_DRAWS)]
        place_N, uniforms_NT = torch.zeros(PROBE_DRAWS, dtype=torch.long), uniforms(keys, OF_MODULE)
        _, factors_NT, _ = self.forward("current", pixels_1, place_N, lambda betas, _: draw(betas, uniforms_NT), 1)
        first: list[Tensor] = []

        def decide(betas_NT2: Tensor, module: int) -> Tensor:
            first.append(betas_NT2)
            return self._given(factors_NT)(betas_NT2, module)

        with torch.enable_grad():
            _, scored_NT, betas_NT2 = self.forward("current", pixels_1, place_N, decide, 1)
            if not betas_NT2.requires_grad:  # nothing before the factors is trained
                return 0.0
            (slopes_NT2,) = torch.autograd.grad(log_densities(scored_NT, betas_NT2).sum(), first)
        inside_T = ((factors_NT > EDGE) & (factors_NT < 1 - EDGE)).all(0)  # what is kept off an edge moves the mean
        slopes_NT2 = (slopes_NT2 * betas_NT2.detach()).double()[:, inside_T]
        errors_T2 = slopes_NT2.std(0) / math.sqrt(PROBE_DRAWS)
        return float((slopes_NT2.mean(0) / errors_T2).abs().max()) if bool(inside_T.any()) else 0.0

    def _given(self, factors_NT: Tensor) -> Decide:
        """The rows' factors as the trainer takes them, whatever their distributions are now."""
        return lambda betas_NT2, module: self.given_factors(betas_NT2, factors_NT[:, of_module(module)])

    def _pixels(self, prompts: Sequence[Example]) -> tuple[Tensor, tuple[int, int]]:
        """The degraded pictures (P, 3, H, W), their sides filled up to a multiple of 8, and the size they have."""
        pixels_P3HW = self._stacked([_degraded(example) for example in prompts])
        height, width = pixels_P3HW.shape[-2:]
        below, right = -height % MULTIPLE, -width % MULTIPLE
        if below or right:  # a picture smaller than what is missing has nothing to reflect
            mode = "reflect" if below < height and right < width else "replicate"
            pixels_P3HW = pad(pixels_P3HW, (0, right, 0, below), mode=mode)
        return pixels_P3HW, (height, width)

    def _stacked(self, pictures: Sequence[Image]) -> Tensor:
        """(P, 3, H, W) on the policy's device."""
        pixels_PHW3 = torch.from_numpy(np.stack(pictures))
        return to_device(pixels_PHW3.permute(0, 3, 1, 2).contiguous(), self.device)


def of_module(number: int) -> slice:
    """Where a module's factors stand among all."""
    return slice(number * OF_MODULE, (number + 1) * OF_MODULE)


def draw(betas_NT2: Tensor, uniforms_NT: Tensor) -> Tensor:
    """Factors by the inverse of each Beta's cumulative distribution, in float64; detached: no gradient flows through.

    They are kept off 0 and 1, where a density need not be finite.
    """
    alpha_NT, beta_NT = (part.numpy() for part in betas_NT2.detach().double().cpu().unbind(-1))
    factors_NT = torch.from_numpy(betaincinv(alpha_NT, beta_NT, uniforms_NT.numpy())).clamp(EDGE, 1 - EDGE)
    return factors_NT.to(betas_NT2)


def means(betas_NT2: Tensor) -> Tensor:
    """The mean of each Beta."""
    return betas_NT2[..., 0] / betas_NT2.sum(-1)


def as_given(_betas_NT2: Tensor, factors_NT: Tensor) -> Tensor:
    """The factors as they were drawn, whatever their distributions are now."""
    return factors_NT


def log_densities(factors_NT: Tensor, betas_NT2: Tensor) -> Tensor:
    """log of each Beta's density at its factor, (N, T) float32; in float64 until then, since lgammas cancel."""
    (alpha, beta), factors_NT = betas_NT2.double().unbind(-1), factors_NT.double()
    whole = torch.lgamma(alpha + beta) - torch.lgamma(alpha) - torch.lgamma(beta)
    return (whole + (alpha - 1) * factors_NT.log() + (beta - 1) * torch.log1p(-factors_NT)).float()


def entropies(betas_NT2: Tensor) -> Tensor:
    """The differential entropy of each Beta, in nats, (N, T) float32: 0 of the uniform one, below it of all others."""
    alpha, beta = betas_NT2.double().unbind(-1)
    both = alpha + beta
    volume = torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(both)
    bends = (alpha - 1) * torch.digamma(alpha) + (beta - 1) * torch.digamma(beta)
    return (volume - bends + (both - 2) * torch.digamma(both)).float()


def load_trained(network: RestorationNetwork, file: Path) -> None:
    """Start from the weights of a file that `export` wrote, or of a network without an adapter. Raises ModelError."""
    weights = read_weights(file)
    kept = tuple(f"{which}." for which in KEPT)
    given = {name: weight for name, weight in weights.items() if not name.startswith(kept)}
    own = dict(network.named_parameters())
    for name in own:  # under an adapter a layer goes by another name; a fresh adapter is in no file
        if (plain := name.replace(".base_layer.", ".")) in given:
            given[name] = given.pop(plain)
    expected = {name for name in own if ".lora_" not in name or name in given}
    if odd := next(iter(sorted(expected ^ set(given))), None):
        raise ModelError(f"{file} is not of this network: {odd!r} is missing or unknown; set policy.width and the like")
    if odd := next((name for name in sorted(expected) if own[name].shape != given[name].shape), None):
        have, want = tuple(given[odd].shape), tuple(own[odd].shape)
        raise ModelError(
            f"{file} is not of this network: {odd!r} is {have}, and policy.width and the like make it {want}"
        )
    with torch.no_grad():
        for name in expected:
            own[name].copy_(given[name])


def _cropped(pixels_N3HW: Tensor, size: tuple[int, int]) -> Tensor:
    return pixels_N3HW[..., : size[0], : size[1]]


def _degraded(example: Example) -> Image:
    """(H, W, 3) what is to be restored."""
    picture: Any = example.inputs["degraded"]
    return picture  # type: ignore[no-any-return]


def _clean(example: Example) -> Image:
    """(H, W, 3) what it was. Raises TaskError where nobody knows."""
    picture: Any = example.facts.get("clean")
    if picture is None:
        raise TaskError(f"picture {example.id} has no clean one, which the loss supervised compares with")
    return picture  # type: ignore[no-any-return]
