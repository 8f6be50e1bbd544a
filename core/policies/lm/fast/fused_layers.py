"""Layers of a model run by fewer operations: LoRA adapters folded into weights to sample, LoRA layers and norms fused.

To sample, a LoRA layer is three small products and a sum for every token; added into the weights it costs nothing
(saving `folded_adapter`; in float32 equal up to some 1e-7 nats). It is done nowhere else: scoring and learning run the
adapter as it is, so that the integrity check compares two different ways through the model.

While a model is scored and learned from, autograd goes back through a norm one elementary operation at a time, each a
pass over all tokens in float32. PEFT runs an adapter of float32 on weights of bfloat16 by casting what comes in and
what goes out, of every token and of its gradient, and by five passes over them besides.

Gradient checkpointing runs a layer a second time in backward, when whatever it ran in the first time is over. What
must hold both times is therefore given as a context that can be entered again.
Not here: a token's walk through all layers (decoder_step.py).

Shape suffixes: M tokens, H hidden size, I inputs, O outputs, A rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

LayerContext = Callable[[], AbstractContextManager[None]]  # what can be entered as often as is wanted
NORMS = ("LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm")  # read in the tested transformers: the same three lines

_active: ContextVar[LayerContext] = ContextVar("the context that layers run in", default=nullcontext)


def replaced_forward(modules: Sequence[Any], forward: Callable[[Any, Tensor], Tensor]) -> LayerContext:
    """Each module runs `forward(module, x)`, afterwards its class's own again; it must not have one of its own now."""
    return partial(_replaced_forward, modules, forward)


@contextmanager
def _replaced_forward(modules: Sequence[Any], forward: Callable[[Any, Tensor], Tensor]) -> Iterator[None]:
    for module in modules:
        vars(module)["forward"] = partial(forward, module)  # setattr of a module takes ten times as long
    try:
        yield
    finally:
        for module in modules:
            del vars(module)["forward"]


@contextmanager
def layers_in(contexts: Sequence[LayerContext]) -> Iterator[None]:
    """All of these contexts, and once more for each layer in them that backward runs again."""
    every = partial(_all, contexts)
    token = _active.set(every)
    try:
        with every():
            yield
    finally:
        _active.reset(token)


def checkpoint_contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """What torch's `checkpoint` asks for as `context_fn`: what a layer runs in beside, and what it is run again in."""
    return nullcontext(), _Reentered(_active.get())


@contextmanager
def _all(contexts: Sequence[LayerContext]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context())
        yield


class _Reentered(AbstractContextManager[None]):
    """A context that is entered when it is wanted, twice where a graph is gone back through twice."""

    def __init__(self, context: LayerContext) -> None:
        self._context = context
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        entered = self._context()
        entered.__enter__()
        self._entered.append(entered)

    def __exit__(self, *error: Any) -> bool | None:
        return self._entered.pop().__exit__(*error)


def fused_norms(model: Any) -> LayerContext:
    """Saving `fused_norms`: RMSNorm as one differentiable operation, in fewer passes. Equal up to rounding."""
    return replaced_forward([module for module in model.modules() if _is_known_norm(module)], norm_forward)


def _is_known_norm(module: Any) -> bool:
    kind = type(module)
    known = kind.__name__ in NORMS and kind.__module__.startswith("transformers.models.")
    return known and "forward" not in vars(module)


def norm_forward(norm: Any, x: Tensor) -> Tensor:
    """A norm's output, (.., H) -> (.., H)."""
    if x.dtype != norm.weight.dtype:  # the product is then of another dtype than either
        plain: Tensor = type(norm).forward(norm, x)
        return plain
    y: Tensor = _Norm.apply(x, norm.weight, norm.variance_epsilon)  # type: ignore[no-untyped-call]
    return y


class _Norm(torch.autograd.Function):
    """y = w * x / sqrt(mean(x^2) + eps): (.., H), (H,), eps -> (.., H)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_H: Tensor, eps: float) -> Tensor:
        exact = x.to(torch.float32, copy=True)
        length = torch.linalg.vector_norm(exact, dim=-1, keepdim=True)
        rate = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, rate, weight_H)
        return exact.mul_(rate).to(x.dtype).mul_(weight_H)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # With n = x * rate: dx = rate * (w dy - n * mean(n * w dy)).
        x, rate, weight_H = ctx.saved_tensors
        exact, pull = x.to(torch.float32), grad.to(torch.float32, copy=True)
        of_weight = None
        if ctx.needs_input_grad[1]:
            of_weight = (pull * (exact * rate)).flatten(0, -2).sum(0).to(weight_H.dtype)
        if not ctx.needs_input_grad[0]:
            return None, of_weight, None
        pull.mul_(weight_H)
        along = torch.linalg.vecdot(pull, exact).unsqueeze(-1).mul_(rate.square()).div_(-x.shape[-1])
        return pull.addcmul_(exact, along).mul_(rate).to(x.dtype), of_weight, None


def is_plain_lora(module: Any) -> bool:
    """True for PEFT's own LoRA on an ordinary linear layer, without a variant or a bias of its own."""
    if not hasattr(module, "lora_A"):
        return False
    from peft.tuners.lora import Linear  # a second's import: who has such a layer has paid it

    plain = type(module) is Linear and type(module.get_base_layer()) is torch.nn.Linear
    return plain and not module.lora_variant and not any(module.lora_bias.values())


def one_product(model: Any) -> LayerContext:
    """Saving `one_product`: a LoRA layer as one product in the dtype of the weights it stands on. Equal up to rounding.

    The adapter's two small matrices are cast, not the tokens; the adapter, its gradient and its optimiser stay in
    float32, as under autocast. In the place of PEFT's forward where a layer's adapter is on, alone, without dropout.
    """
    casts = torch.is_autocast_enabled(model.device.type)
    layers = [] if casts else [module for module in model.modules() if _is_one_product(module)]
    return replaced_forward(layers, lora_forward)


def _is_one_product(module: Any) -> bool:
    if not is_plain_lora(module) or module.disable_adapters or module.merged or len(module.active_adapters) != 1:
        return False
    (name,) = module.active_adapters
    if name not in module.lora_A or module.get_base_layer().weight.requires_grad:
        return False
    dropout = module.lora_dropout[name]
    return not (module.training and getattr(dropout, "p", 0.0)) and "forward" not in vars(module)


def lora_forward(layer: Any, x: Tensor) -> Tensor:
    """A LoRA layer's output, (.., I) -> (.., O)."""
    (name,) = layer.active_adapters
    base = layer.get_base_layer()
    down, up = layer.lora_A[name].weight, layer.lora_B[name].weight
    y: Tensor = _Lora.apply(x, (base.weight, base.bias), down, up, layer.scaling[name])  # type: ignore[no-untyped-call]
    return y


class _Lora(torch.autograd.Function):
    """y = x W' + b + s (x D') U': (.., I), frozen (O, I) and (O,) or None, (A, I), (O, A), s -> (.., O)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, frozen: tuple[Tensor, Tensor | None], dcast_AI: Tensor, up_OA: Tensor, scaling: float
    ) -> Tensor:
        weight_OI, bias_O = frozen
        x_MI = x.reshape(-1, x.shape[-1])
        cast_AI, cast_OA = dcast_AI.to(weight_OI.dtype), (up_OA * scaling).to(weight_OI.dtype)
        low_MA = linear(x_MI, cast_AI)
        y_MO = linear(x_MI, weight_OI, bias_O).addmm_(low_MA, cast_OA.t())
        ctx.save_for_backward(x_MI, low_MA, weight_OI, cast_AI, cast_OA)
        ctx.scaling, ctx.dtypes = scaling, (dcast_AI.dtype, up_OA.dtype)
        return y_MO.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x_MI, low_MA, weight_OI, cast_AI, cast_OA = ctx.saved_tensors
        grad_MO = grad.reshape(-1, grad.shape[-1])
        low_grad_MA = grad_MO @ cast_OA
        down = (low_grad_MA.t() @ x_MI).to(ctx.dtypes[0])
        up = (grad_MO.t() @ low_MA).to(ctx.dtypes[1]).mul_(ctx.scaling)
        if not ctx.needs_input_grad[0]:
            return None, None, down, up, None
        x_grad = (grad_MO @ weight_OI).addmm_(low_grad_MA, cast_AI)
        return x_grad.view(*grad.shape[:-1], -1), None, down, up, None


@contextmanager
def folded_adapter(model: Any) -> Iterator[Any]:
    """The model under a PEFT model, its adapter merged into its weights; afterwards every weight has its old bits.

    Gives `model` as it is where merging could change more than rounding (see `foldable_layers`). Subtracting the
    adapter again would leave rounding behind in the base weights, so the weights that were there are put back instead.
    """
    # Under autocast a merged weight is rounded as a whole, and most of a small adapter would be rounded away.
    layers = [] if torch.is_autocast_enabled(model.device.type) else foldable_layers(model)
    if not layers:
        yield model
        return
    weights = [layer.get_base_layer().weight for layer in layers]
    originals = [weight.data for weight in weights]
    try:
        for layer, weight in zip(layers, weights, strict=True):
            weight.data = weight.data.clone()
            with torch.no_grad():
                layer.merge()
        yield model.get_base_model()
    finally:
        for layer, weight, data in zip(layers, weights, originals, strict=True):
            weight.data = data
            layer.merged_adapters.clear()


def foldable_layers(model: Any) -> list[Any]:
    """The LoRA layers of a PEFT model whose adapter may be merged; empty where not every adapter layer may be.

    Only plain LoRA on fp32 linear layers: bf16 weights would round the adapter away, a variant may need what only
    PEFT's own forward passes on, and a weight that two modules share would carry the adapter into the other one.
    """
    if getattr(model, "peft_config", None) is None:
        return []
    from peft import PeftModel  # importing peft costs a second: a model without an adapter does not pay it
    from peft.tuners.lora import Linear
    from peft.tuners.tuners_utils import BaseTunerLayer

    if not isinstance(model, PeftModel) or model.active_peft_config.is_prompt_learning:
        return []
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    owners = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    return layers if all(type(layer) is Linear and _takes_merging(layer, owners) for layer in layers) else []


def _takes_merging(layer: Any, owners: Counter[int]) -> bool:
    weight = layer.get_base_layer().weight
    unusual = layer.disable_adapters or layer.merged or layer.lora_variant or any(layer.lora_bias.values())
    return not unusual and weight.dtype == torch.float32 and owners[id(weight)] == 1
