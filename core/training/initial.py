"""Another run's weights into this run's policy: what fits is taken, what does not is counted, never ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from core.errors import CheckpointError
from core.policies.base import Policy

SHOWN = 4  # names of weights in a line


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """Names of weights: found with their shape, not there, there in another shape, and only there."""

    taken: Sequence[str]
    missing: Sequence[str]
    odd_shape: Sequence[str]
    unknown: Sequence[str]

    def lines(self) -> list[str]:
        """What did not fit, a line for each way, with the first names; [] where all did."""
        odd = {
            "not there": self.missing,
            "there in another shape": self.odd_shape,
            "there, but not in this model": self.unknown,
        }
        return [
            f"init_from: {len(names)} weights {why}: {', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''}"
            for why, names in odd.items()
            if names
        ]


def fit(mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> Fit:
    """How the weights of another run fit."""
    shared = sorted(set(mine) & set(theirs))
    return Fit(
        taken=[name for name in shared if mine[name].shape == theirs[name].shape],
        missing=sorted(set(mine) - set(theirs)),
        odd_shape=[name for name in shared if mine[name].shape != theirs[name].shape],
        unknown=sorted(set(theirs) - set(mine)),
    )


def initial_weights(policy: Policy, theirs: Mapping[str, Tensor]) -> dict[str, float]:
    """Load what fits; counts for the row before step 1. Raises CheckpointError where nothing fits."""
    mine = policy.state()
    found = fit(mine, theirs)
    if not found.taken:
        raise CheckpointError(
            f"init_from: none of the {len(theirs)} weights fits this model: {_why(found, mine, theirs)}"
        )
    policy.load({name: theirs[name] if name in set(found.taken) else value for name, value in mine.items()})
    return {
        "init/taken": len(found.taken),
        "init/missing": len(found.missing),
        "init/odd_shape": len(found.odd_shape),
        "init/unknown": len(found.unknown),
    }


def _why(found: Fit, mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> str:
    """What is different, by the first example."""
    if found.odd_shape:
        name = found.odd_shape[0]
        return f"{name!r} has the shape {tuple(theirs[name].shape)} there and {tuple(mine[name].shape)} here"
    return f"that run has {min(theirs, default='none')!r}, this one {min(mine, default='none')!r}"
