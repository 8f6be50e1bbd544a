"""What the user says of a source: --set KEY=VALUE -> typed fields of Settings, --map -> columns' metrics.

A key is a field's name or any ending of its key in a spec (beta, stages.grpo.beta, advantage.scale_rewards).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from core.config import GrpoStage
from core.config.grpo_stage import AdvantageSpec
from core.errors import SpecError
from core.health.case import FOREIGN, OF_STAGE, Settings
from core.metrics import METRICS, unknown_metric
from grpoctl.config.problems import ALIASES
from grpoctl.diagnose.readers.metric_names import KNOWN, STEPS, name_of

UNKNOWN = "null"  # takes a setting back that a reader found
_OF_MODEL = {"lora_dropout": "lora.lora_dropout", "gradient_checkpointing": "gradient_checkpointing", "dtype": "dtype"}
_PARTS = {"num_iterations": "updates_per_rollout", "minibatches": "updates_per_rollout"}
_COUNTS = (
    "num_generations", "prompts_per_step", "max_steps", "max_completion_length", "gradient_accumulation_steps",
    "updates_per_rollout", "eval_completions", "groups_per_row",
)  # fmt: skip
_RANGES: Mapping[str, tuple[float, float]] = dict.fromkeys(_COUNTS, (1.0, math.inf)) | dict.fromkeys(
    ("ddof", "top_p", "min_p", "lora_dropout", "update_dropout"), (0.0, 1.0)
)
_ALIKE = 0.8  # of a metric's name: what is so near to one was meant to be it
_FREE = ("lr_scheduler_type", "optimizer")  # words
_DTYPES = ("float32", "bfloat16")  # what a run computes in, as far as rules tell


def typed_settings(texts: Mapping[str, str]) -> dict[str, Any]:
    """Field of Settings -> value. Raises SpecError for an unknown key, with the nearest, or a value of another kind."""
    settings: dict[str, Any] = {}
    for key, text in texts.items():
        name = _field(key)
        if name in settings:
            raise SpecError("set twice", key=key)
        settings[name] = _typed(name, text.strip(), key)
    return settings


def columns_of(pairs: Mapping[str, str], given_by: str = "--map") -> dict[str, str]:
    """Name in the log -> metric of what --map pairs, in either order (`avg_r=reward`, `reward=avg_r`).

    Where both are names of metrics the second one is meant. Raises SpecError where neither is, with the nearest; of
    --map, whose metric stands behind, also where the second one is a metric's misspelt.
    """
    columns: dict[str, str] = {}
    for first, second in pairs.items():
        if not first.strip() or not second.strip():
            what = f"got {first!r} and {second!r}; allowed: a metric and a name in the log"
            raise SpecError(what, key=given_by)
        near = _nearest(second) if given_by == "--map" or _metric(first) is None else []
        column, metric = (second, _metric(first)) if _metric(second) is None and not near else (first, _metric(second))
        if metric is None:
            named = second if near or not _nearest(first) else first
            hint = f"did you mean {_nearest(named)[0]}?" if _nearest(named) else unknown_metric(named)
            raise SpecError(f"no metric {named!r}; {hint}", key=given_by)
        columns[column] = metric
    return columns


def _nearest(name: str) -> list[str]:
    return difflib.get_close_matches(name, [*METRICS, *FOREIGN, *KNOWN], n=1, cutoff=_ALIKE)


def _metric(name: str) -> str | None:
    metric = "step" if name in STEPS else name_of(name)
    slip = name.startswith("reward/") and (metric or "").startswith("rewards/") and _nearest(name)  # reward/maen
    return None if slip else metric


def _field(key: str) -> str:
    """The field that a key means. Raises SpecError."""
    of_spec = {path.removesuffix(".start"): name for name, path in (OF_STAGE | _OF_MODEL).items()}
    known = of_spec | {field.name: field.name for field in fields(Settings)}
    wanted = key.strip().lower().replace("-", "_")
    parts = wanted.split(".")
    tail = ".".join(parts[2:]) if parts[0] == "stages" and len(parts) > 2 else wanted
    tail = tail.removeprefix("model.").removesuffix(".start")
    if tail in known:
        return known[tail]
    if tail in _PARTS:
        raise SpecError("unknown setting; say updates_per_rollout, which is num_iterations x minibatches", key=key)
    elsewhere = ALIASES.get(tail)
    if elsewhere in known:
        raise SpecError(f"unknown setting; did you mean {known[elsewhere]}?", key=key)
    near = difflib.get_close_matches(tail, known, n=1)
    hint = (
        f"did you mean {known[near[0]]}?" if near else f"known: {', '.join(field.name for field in fields(Settings))}"
    )
    raise SpecError(f"unknown setting; {hint}", key=key)


def _typed(name: str, text: str, key: str) -> Any:
    if text == UNKNOWN:
        return None
    kind = get_args(get_type_hints(Settings)[name])[0]
    if kind is str:
        return _chosen(name, text, key)
    if get_origin(kind) is tuple:
        return _sizes(text, key)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise SpecError(f"got {text!r}; allowed: true, false, {UNKNOWN}", key=key)
        return text.lower() == "true"
    try:
        value = kind(text) if kind is float else _whole(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        what = "a whole number" if kind is int else "a number"
        raise SpecError(f"got {text!r}; allowed: {what} of at least 0, or {UNKNOWN}", key=key)
    low, high = _RANGES.get(name, (0, math.inf))
    if not low <= value <= high:
        allowed = f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"
        raise SpecError(f"got {text!r}; allowed: {allowed}, or {UNKNOWN}", key=key)
    return value


def _sizes(text: str, key: str) -> tuple[int, ...]:
    """Group sizes, with commas between them. Raises SpecError."""
    try:
        sizes = tuple(_whole(part) for part in text.split(","))
    except (ValueError, OverflowError):
        sizes = ()
    if not sizes or min(sizes) < 2:
        allowed = f"whole numbers of at least 2 with commas between them (3,5), or {UNKNOWN}"
        raise SpecError(f"got {text!r}; allowed: {allowed}", key=key)
    return sizes


def _whole(text: str) -> int:
    value = float(text)  # 1e3 is a thousand
    if not value.is_integer():
        raise ValueError(text)
    return int(value)


def _chosen(name: str, text: str, key: str) -> str:
    """The word, where the spec allows it; schedulers and optimisers of other trainers have names of their own."""
    if name in _FREE:
        return text
    allowed: tuple[object, ...] = _DTYPES
    if name != "dtype":
        setting = GrpoStage.model_fields.get(name) or AdvantageSpec.model_fields[name]
        allowed = get_args(setting.annotation) if get_origin(setting.annotation) is Literal else ()
    if text in allowed:
        return text
    raise SpecError(f"got {text!r}; allowed: {', '.join(map(str, allowed))}", key=key)
