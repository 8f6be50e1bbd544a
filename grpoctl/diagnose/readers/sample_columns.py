"""Columns of a step table that a log without them has in its completions: advantages, deviations, distinct texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import fmean, pstdev

from core.health.case import Sample

_DEAD = 1e-3  # an advantage of at most this is float32's rounding over eps = 1e-4


def columns_of(samples: Sequence[Sample]) -> dict[int, dict[str, float]]:
    """Step -> metric -> value, of the samples of each step. Rows of one group stand together, as TRL writes them."""
    ordered = sorted(samples, key=lambda one: one.step)
    return {step: _columns(list(rows)) for step, rows in groupby(ordered, key=lambda one: one.step)}


def _columns(rows: Sequence[Sample]) -> dict[str, float]:
    advantages = [one.advantage for one in rows if one.advantage is not None]
    found: dict[str, float] = {"samples": float(len(rows))}
    if advantages and len(advantages) == len(rows):
        live = [value for group in _groups(rows) for value in _advantages(group) if _is_live(group)]
        found |= {"advantage/mean": fmean(advantages), "advantage/max_abs": max(map(abs, advantages))}
        found |= {"advantage/std": pstdev(live)} if live else {}
    rewards = [[one.reward for one in group if one.reward is not None] for group in _groups(rows)]
    if rewards and all(rewards):
        found["reward/group_std"] = fmean(pstdev(group) for group in rewards)
    texts = [one.text for one in rows if one.text is not None]
    if texts and len(texts) == len(rows):
        found["completions/distinct"] = len(set(texts)) / len(texts)
    return found


def _groups(rows: Iterable[Sample]) -> list[list[Sample]]:
    return [list(group) for _, group in groupby(rows, key=lambda one: one.group)]


def _advantages(group: Iterable[Sample]) -> list[float]:
    return [one.advantage for one in group if one.advantage is not None]


def _is_live(group: Iterable[Sample]) -> bool:
    return any(abs(value) > _DEAD for value in _advantages(group))
