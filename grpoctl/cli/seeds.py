"""`--seed 3` or `--seeds 0,1,2` -> the seeds to run."""

from __future__ import annotations

from core.errors import UserError


def seeds_of(seed: int | None, seeds: str | None) -> list[int | None]:
    """One entry per run; None leaves the spec's own seed. Raises UserError for both at once, junk, or repeats."""
    if seeds is None:
        return [seed]
    if seed is not None:
        raise UserError(f"got --seed {seed} and --seeds {seeds}; give one of them")
    parts = [part.strip() for part in seeds.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UserError(f"got --seeds {seeds!r}; expected whole numbers from 0 separated by commas, e.g. 0,1,2")
    numbers: list[int | None] = [int(part) for part in parts]
    if len(set(numbers)) != len(numbers):
        raise UserError(f"got --seeds {seeds!r}; each seed once: the same seed gives the same run")
    return numbers
