"""What would make a run need less memory, each change by itself and as few as do together; the mildest first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.config import LoraSpec, RunSpec
from core.health.before.resources.memory import PROCESS, Place, Tokens, peak, phases
from core.health.before.resources.shapes import Shape

SHORTEST = 32  # tokens: no completion is made shorter than this
AS_LORA = LoraSpec(r=16, lora_alpha=32, target_modules=("q_proj", "k_proj", "v_proj", "o_proj"))
AS_LORA_TEXT = "model.lora={r: 16, lora_alpha: 32, target_modules: [q_proj, k_proj, v_proj, o_proj]}"
SHARED = ("weights", "reference", "moments")  # by FSDP, beside the gradient
WORTH = 0.01  # of the peak, the process itself left out: a change that saves less is none


@dataclass(frozen=True, kw_only=True, slots=True)
class Lever:
    """A change, as overrides of the command line, the peak it leads to, and what it costs."""

    change: str
    bytes: int
    cost: str
    fits: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Levers:
    """Each change alone; and the changes that fit together, in order (empty where none is needed or none suffices)."""

    alone: Sequence[Lever]
    together: Sequence[Lever]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharded:
    """Full fine-tuning that does not fit, shared out among devices as FSDP does it: what `trainer.kind: trl` can do.

    `bytes` are shared: weights, reference, moments and one gradient. `devices` of this place's memory take their
    shares beside what each needs by itself; None where no number of them does.
    """

    trainer: str
    bytes: int
    devices: int | None


def sharded(spec: RunSpec, shape: Shape, tokens: Tokens, place: Place) -> Sharded | None:
    """How many devices it takes; None where it fits, or where an adapter is trained, which has milder ways."""
    if spec.language_model.lora is not None:
        return None
    worst = peak(phases(spec, shape, tokens, place))
    if worst.bytes <= place.memory:
        return None
    learn = max((one for one in phases(spec, shape, tokens, place) if one.name == "learn"), key=lambda one: one.bytes)
    gradient = learn.parts["gradients"] // 2  # no device measures a term's share of it
    shared = sum(learn.parts.get(name, 0) for name in SHARED) + gradient
    own = max(
        sum(size for name, size in one.parts.items() if name not in (*SHARED, "gradients"))
        for one in phases(spec, shape, tokens, place)
    )
    left = place.memory - own
    return Sharded(trainer="trl", bytes=shared, devices=math.ceil(shared / left) if left > 0 else None)


Changed = tuple[str, RunSpec, str]  # overrides, the spec with them, their cost
Peak = Callable[[RunSpec], int]


def levers(
    spec: RunSpec, shape: Shape, tokens: Tokens, place: Place, profiles: Mapping[str, tuple[RunSpec, Shape]]
) -> Levers:
    """What helps. `profiles` are the spec's other profiles, with the shapes of their models."""

    def peak_of(changed: RunSpec) -> int:
        return peak(phases(changed, shape, tokens, place)).bytes

    now = peak_of(spec)
    worth = _worth(now, place)
    alone = [_lever(change, peak_of(changed), cost, place) for change, changed, cost in _changes(spec, place)]
    for name, (other, model) in profiles.items():
        alone.append(
            _lever(
                f"--profile {name}",
                peak(phases(other, model, tokens, place)).bytes,
                f"the profile of {other.language_model.source}",
                place,
            )
        )
    useful = [lever for lever in alone if lever.bytes < worth]
    return Levers(alone=useful, together=_together(spec, peak_of, place) if now > place.memory else ())


def _worth(now: int, place: Place) -> float:
    """Below this a change is worth naming."""
    return now - WORTH * (now - PROCESS[place.device])


def _lever(change: str, size: int, cost: str, place: Place) -> Lever:
    return Lever(change=change, bytes=size, cost=cost, fits=size <= place.memory)


def _together(spec: RunSpec, peak_of: Peak, place: Place) -> list[Lever]:
    """One change after another, each taken where it helps, the mildest for as long as they do; [] if all fall short."""
    changes: dict[str, Lever] = {}
    while True:
        worth = _worth(peak_of(spec), place)
        better = [(c, s, cost) for c, s, cost in _changes(spec, place) if peak_of(s) < worth]
        if not better:
            return []
        change, spec, cost = better[0]
        lever = _lever(change, peak_of(spec), cost, place)
        changes[change.partition("=")[0]] = lever  # of one setting the last value counts
        if lever.fits:
            return list(changes.values())


def _changes(spec: RunSpec, place: Place) -> Iterator[Changed]:
    model = spec.language_model
    if not model.gradient_checkpointing:
        yield _of_model(spec, "gradient_checkpointing", True, "same gradient; about a third more time to learn")
    yield from _of_stages(spec, "gradient_accumulation_steps", _finer, "same gradient")
    if model.dtype == "float32":
        yield _of_model(spec, "dtype", "bfloat16", "rounding; the integrity guard allows more")
    if model.lora is not None and model.load_in_4bit != "always" and place.quantises:
        yield _of_model(spec, "load_in_4bit", "always", "rounded weights; needs a CUDA device and bitsandbytes")
    if model.lora is None:
        adapter = spec.language_model.model_copy(update={"lora": AS_LORA, "trainable": None})
        yield AS_LORA_TEXT, spec.model_copy(update={"model": adapter}), "an adapter instead of the weights themselves"
    yield from _of_stages(spec, "max_completion_length", _shorter, "longer answers are cut off")
    yield from _of_stages(spec, "num_generations", _fewer, "smaller groups: a noisier advantage")
    if model.lora is not None and model.lora.r > 1:
        half = model.lora.model_copy(update={"r": model.lora.r // 2})
        changed = spec.model_copy(update={"model": model.model_copy(update={"lora": half})})
        yield f"model.lora.r={half.r}", changed, "an adapter of lower rank"


def _of_model(spec: RunSpec, key: str, value: Any, cost: str) -> Changed:
    changed = spec.model_copy(update={"model": spec.language_model.model_copy(update={key: value})})
    return f"model.{key}={str(value).lower() if isinstance(value, bool) else value}", changed, cost


def _of_stages(spec: RunSpec, key: str, step: Callable[[Any], int | None], cost: str) -> Iterator[Changed]:
    """The change in each stage by itself."""
    for name, stage in spec.stages.items():
        value = step(stage)
        if value is not None:
            stages = {**spec.stages, name: stage.model_copy(update={key: value})}
            yield f"stages.{name}.{key}={value}", spec.model_copy(update={"stages": stages}), cost


def _finer(stage: Any) -> int | None:
    """Twice the micro-batches, while one has more than a row."""
    rows = (stage.rows_per_step or stage.prompts_per_step) / getattr(stage, "minibatches", 1)
    return 2 * stage.gradient_accumulation_steps if stage.gradient_accumulation_steps < rows else None


def _shorter(stage: Any) -> int | None:
    half = stage.max_completion_length // 2
    return half if stage.rows_per_step and half >= SHORTEST else None


def _fewer(stage: Any) -> int | None:
    half = getattr(stage, "num_generations", 0) // 2
    return half if half >= 2 else None
