"""What is watched while a run goes on, and what happens when it trips: stop, warn or off."""

from __future__ import annotations

from typing import Literal, assert_never

from core.config.part import Fraction, NonNegative, Part, Positive, PositiveInt

Action = Literal["stop", "warn", "off"]


def stops(action: Action) -> bool:
    """Whether a guard that trips ends the run; what it saw is said of the run in either case."""
    match action:
        case "stop":
            return True
        case "warn" | "off":
            return False
        case _:
            assert_never(action)


class GuardSpec(Part):
    """`collapse` trips after `patience` steps in a row beyond a limit (null: not watched), and at once on a NaN."""

    rollout_integrity: Action = "stop"
    max_logprob_gap: Positive | None = None  # null: by dtype and temperature, core.health.rules.integrity
    collapse: Action = "stop"
    patience: PositiveInt = 5
    min_valid: Fraction | None = 0.05
    min_entropy: NonNegative | None = 1e-3
    max_truncated: Fraction | None = 0.95
    min_length: NonNegative | None = 1.01  # tokens, the end token included: below this everything is empty
    max_kl: Positive | None = 10.0
