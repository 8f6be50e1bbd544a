"""What a CUDA graph does, on the CPU: operations are written down with their tensors, and done again on those tensors.

As with a graph, nothing of Python happens in a replay: a number, a shape or a branch stays what it was when the
function was recorded, and the outputs are the recorded tensors, filled anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Written(TorchDispatchMode):
    """Writes down each operation, with what it was given and what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, list[Tensor]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = function(*args, **kwargs)
        if function in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            raise RuntimeError(f"{function} asks the device for a number: that cannot be recorded")
        self.operations.append((function, args, kwargs, [one for one in tree_leaves(found) if isinstance(one, Tensor)]))
        return found


def replayed(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """What does again all that `run` did, and gives the tensor that it gave."""
    run()
    with _Written() as written:
        result = run()

    def replay() -> Tensor:
        with torch.no_grad(), torch._C.DisableTorchFunction():  # tensors say no more what they pretend to be
            for function, args, kwargs, outputs in written.operations:
                found = [one for one in tree_leaves(function(*args, **kwargs)) if isinstance(one, Tensor)]
                for old, new in zip(outputs, found, strict=True):
                    if old.data_ptr() != new.data_ptr():  # else a view, or written in place
                        old.copy_(new)
        return result

    return replay
