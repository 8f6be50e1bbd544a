"""What a request is computed with: the processes that share the work, and how much fits into memory at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.training.room import Room
from core.training.world import ALONE, World


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """One for a run: what `room` has learned holds to its end."""

    world: World = ALONE
    room: Room = field(default_factory=Room)
