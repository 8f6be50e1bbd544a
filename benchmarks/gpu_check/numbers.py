"""Parts that compare numbers: recorded steps with steps run anew, the device with the CPU, little memory with ample.

In a rehearsal both sides are the CPU. So that something is compared all the same, the device's side then takes the
plain path without savings, and running out of memory is pretended.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.gpu_check.parts import Outcome, Place
from benchmarks.trl_step.equality import ALL, UNCLIPPED, distance, moved
from benchmarks.trl_step.floors import Shape
from benchmarks.trl_step.on_device import agreement
from benchmarks.trl_step.ours import Frozen, close, frozen, own_trainer, policy_of
from benchmarks.trl_step.setting import Own, Setting, questions, write_questions
from benchmarks.trl_step.weights import random_model, tokenizer_of
from core.policies.base import Rollout, Scores
from core.policies.lm.causal_lm import CausalLMPolicy
from core.policies.lm.fast.decoder_step import RECORDERS, Launch, Record

TINY = Shape(hidden=128, intermediate=352, layers=3, heads=4, kv_heads=2, vocabulary=258, tied=True)
WIDE = Shape(hidden=512, intermediate=2048, layers=8, heads=8, kv_heads=2, vocabulary=32_000, tied=True)
PROMPT = 100  # tokens, which are bytes here
LOGPROBS = {"float32": 1e-4, "bfloat16": 5e-2}  # nats, the most between log-probs of one token drawn both ways
FROM_CPU = {"logprobs": 1e-4, "loss": 1e-4, "gradient": 1e-3, "update": 1e-2}  # nats, absolute, two of the norm
IN_FULL = {"loss": 1e-4, "gradient": 1e-3}
OTHER_ROWS = 0.01  # of the rows that may be drawn otherwise beside others: a draw on the edge between two tokens
ROOM = 0.5  # of what the step took above the weights at its peak


def recorded_graphs(place: Place) -> Outcome:
    """The same rows drawn by recorded steps and by steps run anew: not one token may differ, in fp32 and bf16."""
    setting = Setting(prompt_tokens=PROMPT, new_tokens=32, groups=2, size=4, cuda=not place.rehearsed)
    model, data = _prepared(place, TINY, setting)
    details: dict[str, Any] = {}
    with _counted_recordings() as recorded:
        for dtype, limit in LOGPROBS.items():
            found = agreement(setting, dtype, model, data)
            details[dtype] = {"tokens": found.tokens, "different": found.different, "gap": found.largest_gap}
            details[dtype]["holds"] = not found.different and found.largest_gap <= limit
    figure = "; ".join(
        f"{dtype}: {one['different']} of {one['tokens']} tokens differ, log-probs by {one['gap']:.1e} "
        f"(allowed {LOGPROBS[dtype]:.0e})"
        for dtype, one in details.items()
    )
    details["recordings"] = recorded.count
    if not recorded.count and not place.rehearsed:
        return Outcome(status="FAIL", figure=f"nothing was recorded as a CUDA graph; {figure}", details=details)
    holds = all(details[dtype]["holds"] for dtype in LOGPROBS)
    recordings = f", {recorded.count} recordings" if recorded.count else ", nothing is recorded on a CPU"
    return Outcome(status="PASS" if holds else "FAIL", figure=figure + recordings, details=details)


def against_cpu(place: Place) -> Outcome:
    """The CPU's rollout, scored and learned from on both: log-probs, loss, gradient, and one update."""
    setting = Setting(prompt_tokens=PROMPT, fixed=False, groups=2, size=4, cuda=not place.rehearsed)
    model, data = _prepared(place, TINY, setting)
    adapter: dict[str, Tensor] = {}

    def step(own: Own, rollout: Rollout | None) -> _Numbers:
        trainer = own_trainer(setting, own, model, data, clipped_at=UNCLIPPED)
        policy = policy_of(trainer)
        adapter.update(adapter or moved({name: weight.cpu() for name, weight in policy.state().items()}))
        policy.load(adapter)
        result = frozen(trainer, rollout)
        after = {name: weight.cpu() - adapter[name] for name, weight in policy.state().items()}
        policy.load(adapter)
        numbers = _Numbers(frozen=result, logprobs_NT=_logprobs(policy, result.rollout), update=after)
        close(trainer)
        return numbers

    with patch.object(torch.cuda, "is_available", lambda: False):
        cpu = step(Own(dtype="float32"), None)
    there = step(Own(dtype="float32", without=ALL if place.rehearsed else ()), cpu.frozen.rollout)
    mask_NT = cpu.frozen.rollout.mask_NT
    gaps = {
        "logprobs": float((cpu.logprobs_NT - there.logprobs_NT).abs()[mask_NT].max()),
        "loss": abs(cpu.frozen.loss - there.frozen.loss),
        "gradient": distance(there.frozen.gradient, cpu.frozen.gradient),
        "update": distance(there.update, cpu.update),
    }
    return _judged(gaps, FROM_CPU, f"{int(mask_NT.sum())} tokens")


def out_of_memory(place: Place) -> Outcome:
    """A step with room for half of what it takes: it must run out, take fewer rows at once, and be the same."""
    large = Setting(prompt_tokens=PROMPT, new_tokens=128, groups=4, size=16, cuda=True)
    small = Setting(prompt_tokens=PROMPT, new_tokens=16, groups=2, size=4)
    shape = TINY if place.rehearsed else WIDE
    setting = replace(small if place.rehearsed else large, fixed=False)
    model, data = _prepared(place, shape, setting)

    def step(rollout: Rollout | None, room: int | None) -> Frozen:
        trainer = own_trainer(setting, Own(dtype="float32"), model, data, clipped_at=UNCLIPPED)
        policy = policy_of(trainer)
        policy.load(moved(policy.state()))
        most = setting.size if place.rehearsed else None
        with nullcontext() if room is None else _little_room(policy, room, most):
            result = frozen(trainer, rollout)
        close(trainer)
        del trainer, policy
        _give_back()
        return result

    before = _allocated()
    ample = step(None, None)
    room = round(ROOM * (_peak() - before))
    with _warnings_of("core.training") as halvings:
        again = step(None, room)
        full = step(ample.rollout, room)
    gaps = {
        "loss": abs(full.loss - ample.loss),
        "gradient": distance(full.gradient, ample.gradient),
    }
    rows = len(ample.rollout)
    other = sum(list(a) != list(b) for a, b in zip(ample.rollout.tokens, again.rollout.tokens, strict=True))
    kinds = sorted({line.split(" with ")[0].removeprefix("out of memory while ") for line in halvings})
    said = f"ran out {len(halvings)} x ({', '.join(kinds)}); {other} of {rows} rows drawn otherwise"
    outcome = _judged(gaps, IN_FULL, said)
    details = {**outcome.details, "halvings": halvings, "other_rows": other, "room": room}
    if not any("learning" in kind for kind in kinds):
        return Outcome(status="FAIL", figure=f"learning did not run out of memory: {outcome.figure}", details=details)
    status = outcome.status if other <= OTHER_ROWS * rows else "FAIL"
    return replace(outcome, status=status, details=details)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Numbers:
    """Of one step on one device, all on the CPU."""

    frozen: Frozen
    logprobs_NT: Tensor
    update: dict[str, Tensor]


def _prepared(place: Place, shape: Shape, setting: Setting) -> tuple[Path, Path]:
    """A folder with random weights of this shape, and a file with its prompts."""
    place.weights.mkdir()
    model = random_model(shape.config(), place.weights / "model")
    return model, write_questions(questions(tokenizer_of(model), setting), place.weights)


def _judged(gaps: dict[str, float], allowed: dict[str, float], also: str) -> Outcome:
    """PASS where every gap is within what is allowed; NaN is not."""
    holds = all(gaps[name] <= limit for name, limit in allowed.items())
    figure = ", ".join(f"{name} {gap:.1e} (allowed {allowed[name]:.0e})" for name, gap in gaps.items())
    return Outcome(status="PASS" if holds else "FAIL", figure=f"{figure}; {also}", details={"gaps": gaps})


def _logprobs(policy: CausalLMPolicy, rollout: Rollout) -> Tensor:
    with torch.no_grad():
        scores = policy.score(rollout, range(len(rollout)), wants=frozenset(), weights="current")
    return scores.logprobs_NT.float().cpu()


class _Recordings:
    """How many CUDA graphs were recorded."""

    count = 0


@contextmanager
def _counted_recordings() -> Iterator[_Recordings]:
    """A recording that fails is not counted, and sampling goes on without: only the count shows it."""
    recordings = _Recordings()

    def counted(record: Record) -> Record:
        def counting(run: Launch) -> Launch:
            launch = record(run)
            recordings.count += 1
            return launch

        return counting

    with patch.dict(RECORDERS, {device: counted(record) for device, record in RECORDERS.items()}):
        yield recordings


@contextmanager
def _warnings_of(name: str) -> Iterator[list[str]]:
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(name).addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger(name).removeHandler(handler)


@contextmanager
def _little_room(policy: CausalLMPolicy, room: int, pretended: int | None) -> Iterator[None]:
    """So many bytes above what is reserved by now; on a CPU memory is pretended to suffice for so many rows."""
    if pretended is None:
        _give_back()
        limit = torch.cuda.memory_reserved() + room
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        return
    score = policy.score

    def scarce(rollout: Rollout, rows: Sequence[int], **how: Any) -> Scores:
        if len(rows) > pretended:
            raise torch.OutOfMemoryError("CUDA out of memory (pretended)")
        return score(rollout, rows, **how)

    with patch.object(policy, "score", scarce):
        yield


def _give_back() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _allocated() -> int:
    return int(torch.cuda.memory_allocated()) if torch.cuda.is_available() else 0


def _peak() -> int:
    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0
