"""The restoration network: a U of transformer blocks over channels, with three modules that look at frequencies.

Picture -> encoder at full size, 1/2, 1/4 -> latent at 1/8 -> decoder back to full size -> refinement -> picture + what
was learned. After the latent and after two levels of the decoder a frequency module splits features of the picture at
that size into low and high frequencies, by a box whose two sides are factors, and mixes them into the decoder's
features by two gates, which are factors too: four of each module, twelve in all, each with a Beta distribution.

Shape suffixes: P pictures, N rows (several of one picture), C channels, H and W at the size of a level, 3 colours.
The encoder and the latent come before the first factor, so they are computed once for all rows of a picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, gelu, normalize, softplus

from core.config.policy import RestorationConfig

MODULES, OF_MODULE = 3, 4  # frequency modules, and factors of each: r_h, r_w, g1, g2
FACTORS = MODULES * OF_MODULE
MULTIPLE = 8  # of both sides of a picture
START = 2.0  # every factor's distribution starts near Beta(2, 2): a bell over the middle
ADAPTED = ("queries_keys_values", "query", "keys_values", "project")  # 1x1 convolutions of the attentions
HEADS = ("rates.", "gates.")

Decide = Callable[[Tensor, int], Tensor]  # (alpha, beta) of a module's factors (N, 4, 2), its number -> (N, 4)


class RestorationNetwork(nn.Module):
    """Pictures -> the rows' restored pictures and the Beta parameters of their factors."""

    def __init__(self, settings: RestorationConfig) -> None:
        super().__init__()
        width, heads = settings.width, settings.heads

        def blocks(channels: int, level: int, count: int) -> nn.Sequential:
            return nn.Sequential(*(_Block(channels, heads[level], settings.expansion) for _ in range(count)))

        self.embed = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.encoder = nn.ModuleList(blocks(width << level, level, settings.blocks[level]) for level in range(3))
        self.down = nn.ModuleList(_down(width << level) for level in range(3))
        self.latent = blocks(width << 3, 3, settings.blocks[3])
        self.up = nn.ModuleList(_up(width << level) for level in (3, 2, 1))
        self.join = nn.ModuleList(nn.Conv2d(width << level + 1, width << level, 1, bias=False) for level in (2, 1))
        self.decoder = nn.ModuleList(blocks(width << level, level, settings.blocks[level]) for level in (2, 1))
        self.frequency = nn.ModuleList(FrequencyModule(width << level, heads[level]) for level in (3, 2, 1))
        self.finest = blocks(width << 1, 0, settings.blocks[0])  # full size: the skip is not reduced, as in the family
        self.refinement = blocks(width << 1, 0, settings.refinement)
        self.output = nn.Conv2d(width << 1, 3, 3, padding=1, bias=False)
        nn.init.xavier_uniform_(self.output.weight, gain=0.1)  # a fresh network leaves pictures about as they are

    def forward(
        self, pixels_P3HW: Tensor, place_N: Tensor, decide: Decide, modules: int | None = None
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """Pictures, and which of them each row is of -> (restored (N, 3, H, W), factors (N, T), Betas (N, T, 2)).

        `decide` gives a module's factors when their distributions are known. With `modules`, only so many are gone
        through and no picture is made: the distributions are all that a log-prob needs.
        """
        skips, y = [], self.embed(pixels_P3HW)
        for encoder, down in zip(self.encoder, self.down, strict=True):
            y = encoder(y)
            skips.append(y[place_N])
            y = down(y)
        y = self.latent(y)[place_N]
        factors, betas = [], []
        for number in range(MODULES if modules is None else modules):
            if number:
                y = self.join[number - 1](torch.cat([self.up[number - 1](y), skips[-number]], 1))
                y = self.decoder[number - 1](y)
            module = self.frequency[number]
            assert isinstance(module, FrequencyModule)
            features_PCHW = module.look(pixels_P3HW, y.shape[-2:])
            betas_N42 = torch.cat([module.rates(features_PCHW)[place_N], module.gates(y)], 1)
            factors_N4 = decide(betas_N42, number)
            betas.append(betas_N42)
            factors.append(factors_N4)
            if modules is None or number + 1 < modules:  # what comes after the last one asked for is not needed
                y = module(y, features_PCHW, place_N, factors_N4.to(y.dtype))
        restored_N3HW = None
        if modules is None:
            y = self.refinement(self.finest(torch.cat([self.up[2](y), skips[0]], 1)))
            restored_N3HW = self.output(y) + pixels_P3HW[place_N]
        return restored_N3HW, torch.cat(factors, 1), torch.cat(betas, 1)


class FrequencyModule(nn.Module):
    """The decoder's features with low and high frequencies of the picture mixed in, as far as four factors say."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.rates = BetaHead(channels)
        self.gates = BetaHead(channels)
        self.low = _CrossAttention(channels, heads)
        self.high = _CrossAttention(channels, heads)
        self.merge = nn.Conv2d(2 * channels, channels, 1, bias=False)
        self.para1 = nn.Parameter(torch.ones(channels, 1, 1))
        self.para2 = nn.Parameter(torch.full((channels, 1, 1), 2.0))  # at a gate's mean of .5 they pass as they are
        self.box: Callable[[Tensor, Tensor, int, int], Tensor] = low_pass

    def look(self, pixels_P3HW: Tensor, size: Sequence[int]) -> Tensor:
        """Features of the pictures at this size, (P, C, H, W)."""
        features_PCHW: Tensor = self.features(adaptive_avg_pool2d(pixels_P3HW, (int(size[0]), int(size[1]))))
        return features_PCHW

    def forward(self, y_NCHW: Tensor, features_PCHW: Tensor, place_N: Tensor, factors_N4: Tensor) -> Tensor:
        """The decoder's features after the module."""
        height, width = y_NCHW.shape[-2:]
        rate_h, rate_w, gate_1, gate_2 = factors_N4[..., None, None, None].unbind(1)
        x_NCHW = features_PCHW[place_N]
        plane = torch.fft.rfft2(features_PCHW)[place_N]
        low_NCHW = torch.fft.irfft2(plane * self.box(rate_h, rate_w, height, width), s=(height, width))
        low_NCHW, high_NCHW = self.low(low_NCHW, y_NCHW), self.high(x_NCHW - low_NCHW, y_NCHW)
        mixed_NCHW = self.merge(torch.cat([low_NCHW, high_NCHW], 1))
        return mixed_NCHW * self.para1 * gate_1 + y_NCHW * self.para2 * gate_2  # type: ignore[no-any-return]


def low_pass(rate_h: Tensor, rate_w: Tensor, height: int, width: int) -> Tensor:
    """The share of each bin of `rfft2` that lies inside a box of these rates, (N, 1, H, W/2 + 1); 1 is the whole plane.

    Its edges are soft: a bin is inside as far as the box covers it, so that a rate acts between any two of its values
    at any resolution.
    """

    def coverage(rate: Tensor, count: int, bins: Tensor) -> Tensor:
        return (rate * (count / 2 + 0.5) - bins.abs().to(rate) * count + 0.5).clamp(0.0, 1.0)

    rows = coverage(rate_h, height, torch.fft.fftfreq(height, device=rate_h.device).unsqueeze(-1))
    return rows * coverage(rate_w, width, torch.fft.rfftfreq(width, device=rate_w.device))


class BetaHead(nn.Module):
    """Pooled features -> (alpha, beta) of two factors, (N, 2, 2)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = max(4, channels // 8)
        self.squeeze = nn.Conv2d(channels, hidden, 1)
        self.give = nn.Conv2d(hidden, 4, 1)
        nn.init.constant_(_bias(self.give), math.log(math.expm1(START)))

    def forward(self, features_NCHW: Tensor) -> Tensor:
        """Each above 0."""
        pooled_NC11 = features_NCHW.mean((-2, -1), keepdim=True)
        return (softplus(self.give(gelu(self.squeeze(pooled_NC11)))) + 1e-4).view(-1, 2, 2)


class _Block(nn.Module):
    """A transformer block: attention over channels, then a gated feed-forward layer."""

    def __init__(self, channels: int, heads: int, expansion: float) -> None:
        super().__init__()
        self.before_attention, self.before_feed = _ChannelNorm(channels), _ChannelNorm(channels)
        self.attention = _SelfAttention(channels, heads)
        self.feed = _GatedFeedForward(channels, expansion)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        x_NCHW = x_NCHW + self.attention(self.before_attention(x_NCHW))
        return x_NCHW + self.feed(self.before_feed(x_NCHW))  # type: ignore[no-any-return]


class _ChannelNorm(nn.Module):
    """LayerNorm over the channels of each pixel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        centred_NCHW = x_NCHW - x_NCHW.mean(1, keepdim=True)
        scale_N1HW = centred_NCHW.square().mean(1, keepdim=True).add(1e-5).rsqrt()
        return centred_NCHW * scale_N1HW * self.weight + self.bias


class _SelfAttention(nn.Module):
    """Attention of each channel to the others of its head: its cost grows with the pixels, not with their square."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.queries_keys_values = nn.Conv2d(channels, 3 * channels, 1, bias=False)
        self.spread = _depthwise(3 * channels)
        self.project = nn.Conv2d(channels, channels, 1, bias=False)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        queries, keys, values = self.spread(self.queries_keys_values(x_NCHW)).chunk(3, 1)
        return self.project(_attend(queries, keys, values, self.temperature))  # type: ignore[no-any-return]


class _CrossAttention(nn.Module):
    """Frequencies, and what they attend to in the decoder's features added to them."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.query = nn.Conv2d(channels, channels, 1, bias=False)
        self.keys_values = nn.Conv2d(channels, 2 * channels, 1, bias=False)
        self.spread_query, self.spread_keys_values = _depthwise(channels), _depthwise(2 * channels)
        self.project = nn.Conv2d(channels, channels, 1, bias=False)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))

    def forward(self, x_NCHW: Tensor, y_NCHW: Tensor) -> Tensor:
        queries = self.spread_query(self.query(x_NCHW))
        keys, values = self.spread_keys_values(self.keys_values(y_NCHW)).chunk(2, 1)
        return x_NCHW + self.project(_attend(queries, keys, values, self.temperature))  # type: ignore[no-any-return]


def _attend(queries: Tensor, keys: Tensor, values: Tensor, temperature: Tensor) -> Tensor:
    """(N, C, H, W) each; channels of one head attend to each other by the cosine over pixels times the temperature."""
    count, channels, height, width = queries.shape

    def by_head(x_NCHW: Tensor) -> Tensor:
        return x_NCHW.reshape(count, len(temperature), -1, height * width)

    queries, keys = normalize(by_head(queries), dim=-1), normalize(by_head(keys), dim=-1)
    shares = (queries @ keys.transpose(-2, -1) * temperature).softmax(-1)
    return (shares @ by_head(values)).reshape(count, channels, height, width)


class _GatedFeedForward(nn.Module):
    """Channels widened and spread over neighbours twice; one half gates the other."""

    def __init__(self, channels: int, expansion: float) -> None:
        super().__init__()
        hidden = int(channels * expansion)
        self.widen = nn.Conv2d(channels, 2 * hidden, 1, bias=False)
        self.spread = _depthwise(2 * hidden)
        self.narrow = nn.Conv2d(hidden, channels, 1, bias=False)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        gate, values = self.spread(self.widen(x_NCHW)).chunk(2, 1)
        return self.narrow(gelu(gate) * values)  # type: ignore[no-any-return]


def _depthwise(channels: int) -> nn.Conv2d:
    return nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)


def _down(channels: int) -> nn.Sequential:
    """Half the size, twice the channels."""
    return nn.Sequential(nn.Conv2d(channels, channels // 2, 3, padding=1, bias=False), nn.PixelUnshuffle(2))


def _up(channels: int) -> nn.Sequential:
    """Twice the size, half the channels."""
    return nn.Sequential(nn.Conv2d(channels, channels * 2, 3, padding=1, bias=False), nn.PixelShuffle(2))


def _bias(layer: nn.Conv2d) -> Tensor:
    assert layer.bias is not None
    return layer.bias
