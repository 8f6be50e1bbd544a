"""A GPU that is pretended: tensors of the CPU that say they are on `cuda:0`, meet no others, and count who waits.

Whatever asks a tensor for its device is told `cuda:0`, whatever makes one there gets one, and an operation over tensors
of both devices raises, as CUDA would. What would make the CPU wait for the GPU is written down with its place. So a
step of a machine without a GPU shows which tensors it forgot to move, and where it waits. It shows nothing of kernels,
memory or time. In a backward tensors come without their class: all of them say that they are there, and nothing is
checked.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.autograd import graph
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._pytree import tree_map_only

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
HERE = Path(__file__).resolve().parents[1]
CORE = f"{HERE / 'core'}{os.sep}"
MEMORY = 2**34
READS = {"item", "tolist", "numpy", "equal", "nonzero", "unique", "unique_consecutive", "masked_select", "is_nonzero",
         "__bool__", "__int__", "__float__", "__index__", "__contains__"}  # fmt: skip
MAKES = {"tensor", "as_tensor", "from_numpy", "arange", "zeros", "ones", "empty", "eye", "full", "linspace", "rand"}
FROM_LISTS = {"tensor", "as_tensor", "from_numpy"}
MAY_MEET = {"copy_", "__setitem__", "__getitem__", "__get__", "__set__", "backward"}  # a number, an index, a property


class OnGpu(Tensor):
    """A tensor that is there."""


class PretendedGpu(TorchFunctionMode):
    """While it is on, the device is there. `waits`: how often the CPU waited for it, by `file function: operation`."""

    def __init__(self) -> None:
        self.waits: Counter[str] = Counter()

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(function, "__name__", str(function))
        if function == Tensor.device.__get__:
            return GPU if isinstance(args[0], OnGpu) or _in_backward() else CPU
        if function == Tensor.is_cuda.__get__:
            return isinstance(args[0], OnGpu) or _in_backward()
        if name in ("pin_memory", "is_pinned"):
            return args[0] if name == "pin_memory" else False
        if name == "backward":
            root, one = args[0].as_subclass(Tensor), torch.ones_like(args[0]).as_subclass(Tensor)
            with self:  # a mode is off while it answers, and what checkpointing runs again asks for devices
                how = {"allow_unreachable": True, "accumulate_grad": True}
                return graph._engine_run_backward((root,), (one,), False, False, (), **how)
        call = _Call(name, args, dict(kwargs or {}))
        call.check()
        if (what := call.waits()) is not None:
            self.waits[f"{_place()}: {what}"] += 1
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*call.args, **call.kwargs)
        there = call.result_there()
        return result if there is None else _all_as(result, there)


class _Call:
    """One operation: what it is given, and where it is asked to put what it gives."""

    def __init__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensors = [*_tensors(args), *_tensors(kwargs)]
        self.name = name
        self.given = args
        self.theirs = [one for one in tensors if isinstance(one, OnGpu)]
        self.ours = [one for one in tensors if not isinstance(one, OnGpu)]
        wishes = [kwargs.get("device"), *(args[1:] if name in ("to", "type") else ())]
        named = [one for one in map(_device, wishes) if one is not None]
        self.asked: bool | None = named[0] if named else {"cpu": False, "cuda": True}.get(name)
        self.kwargs = {key: CPU if key == "device" and value is not None else value for key, value in kwargs.items()}
        self.args = tuple(CPU if not _is(one) and _device(one) is not None else one for one in args)

    def check(self) -> None:
        """Raises RuntimeError where tensors of both devices meet; a number of the CPU may stand beside any."""
        meet = self.theirs and any(one.dim() for one in self.ours) and self.asked is None
        if meet and self.name not in MAY_MEET and not _in_backward():
            raise RuntimeError(f"{self.name}: expected all tensors to be on the same device, got some of the CPU")

    def waits(self) -> str | None:
        """What of this call would make the CPU wait for the GPU."""
        if self.theirs and self.name in READS:
            return self.name
        if self.theirs and self.asked is False:
            return "to the CPU"
        if self.asked and (self.name in FROM_LISTS or self.ours) and not self.kwargs.get("non_blocking"):
            return "to the GPU"
        if self.theirs and self.name in ("__getitem__", "__setitem__"):
            return _indexed(self.given[1])
        if self.theirs and self.ours and self.name == "copy_" and any(one.dim() for one in self.ours):
            return "copied"
        counts = self.name == "repeat_interleave" and any(isinstance(one, OnGpu) for one in self.given[1:])
        return self.name if counts and "output_size" not in self.kwargs else None

    def result_there(self) -> bool | None:
        """Whether what it gives is there; None: as it comes."""
        if self.asked is not None:
            return self.asked
        if self.theirs and self.name not in ("tolist", "item", "numpy"):
            return True
        return False if self.name in MAKES else None


def moved(model: Any) -> Any:
    """The model, every weight and buffer of it there."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                there = torch.nn.Parameter(_as(weight.data, True), requires_grad=weight.requires_grad)
                module._parameters[name] = there
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else _as(buffer, True)
    return model


@contextmanager
def pretended_gpu() -> Iterator[PretendedGpu]:
    """The device, with properties to ask for."""
    with (
        patch.object(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=MEMORY)),
        # What gradient checkpointing compares of a tensor made again; where it is cannot be told in a backward.
        patch.dict(checkpoint._allowed_determinism_checks_to_fns, {"default": lambda one: (one.shape, one.dtype)}),
        PretendedGpu() as mode,
    ):
        yield mode


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


def _is(value: object) -> bool:
    return isinstance(value, Tensor)


def _tensors(value: object) -> Iterator[Tensor]:
    """Those in tuples, lists and mappings: what operations are given. torch's own walk takes several times as long."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _all_as(result: Any, there: bool) -> Any:
    """What an operation gives, a tensor or several, all its tensors there or all here."""
    if isinstance(result, Tensor):
        return _as(result, there)
    if next(_tensors(result), None) is None:  # a shape, which is no plain tuple
        return result
    return tree_map_only(Tensor, lambda one: _as(one, there), result)


def _as(tensor: Tensor, there: bool) -> Tensor:
    kind = OnGpu if there else Tensor
    return tensor if type(tensor) is kind or (there and isinstance(tensor, OnGpu)) else tensor.as_subclass(kind)


def _device(value: object) -> bool | None:
    """Whether this names the GPU; None: it names no device. A tensor names its own."""
    if isinstance(value, Tensor):
        return isinstance(value, OnGpu)
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return value.startswith("cuda") if isinstance(value, str) and value.startswith(("cuda", "cpu")) else None


def _indexed(index: object) -> str | None:
    """Why an index makes the CPU wait: it is a list, a mask, or stands on the CPU."""
    parts = index if isinstance(index, tuple) else (index,)
    tensors = [one for one in parts if isinstance(one, Tensor)]
    if any(isinstance(one, list | range) for one in parts):
        return "indexed by a list"
    if any(one.dtype == torch.bool for one in tensors):
        return "indexed by a mask"
    return "indexed by the CPU" if any(one.dim() and not isinstance(one, OnGpu) for one in tensors) else None


def _place() -> str:
    """The innermost function of the project that is being run, tests apart."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_filename.startswith(CORE):
            return f"{Path(frame.f_code.co_filename).relative_to(HERE)} {frame.f_code.co_name}"
        frame = frame.f_back
    return "elsewhere"
