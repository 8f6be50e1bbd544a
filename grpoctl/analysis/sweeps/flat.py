"""A study as one flat row per trial, for spreadsheets. Writing the lines is in grpoctl.console."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_FIRST = ("number", "name", "status", "rank", "score", "low", "high", "indistinguishable")
_LAST = ("attempts", "completions", "tokens", "seconds", "findings", "message", "runs")


def flat(document: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(columns, one row per trial by number): place, score, dotted parameters, the value of each seed, cost, paths.

    A parameter that was not active is empty; lists and mappings are written as JSON.
    """
    trials = document.get("trials") or ()
    keys = list(document.get("axes") or {})
    keys = list(dict.fromkeys([*keys, *(key for trial in trials for key in trial.get("params") or {})]))
    seeds = list(dict.fromkeys([*(document.get("seeds") or ()), *(s for trial in trials for s in trial["seeds"])]))
    columns = (*_FIRST, *keys, *(f"seed {seed}" for seed in seeds), *_LAST)
    ranks = {number: place for place, number in enumerate(document.get("ranking") or (), start=1)}
    alike = set(document.get("indistinguishable") or ())
    return columns, [_row(trial, (keys, seeds), ranks, alike) for trial in trials]


def _row(
    trial: Mapping[str, Any], names: tuple[list[str], list[int]], ranks: Mapping[int, int], alike: set[int]
) -> tuple[str, ...]:
    keys, seeds = names
    low, high = trial.get("interval") or (None, None)
    values = dict(zip(trial["seeds"], trial.get("values") or (), strict=False))
    rules = dict.fromkeys(rule for run in trial.get("findings") or () for rule in run)
    first = (
        trial["number"], trial.get("name"), trial["status"], ranks.get(trial["number"]), trial.get("score"), low, high,
        trial["number"] in alike if trial["number"] in ranks else None,
    )  # fmt: skip
    params = trial.get("params") or {}
    last = [trial.get(key) for key in ("attempts", "completions", "tokens", "seconds")]
    words = (" ".join(rules), trial.get("message"), " ".join(trial.get("runs") or ()))
    cells = [*first, *(params.get(key, "") for key in keys), *(values.get(seed) for seed in seeds), *last, *words]
    return tuple(map(_cell, cells))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
