"""What `grpoctl check --resources` says, as one JSON document: estimates, and beside them what a probe measured.

Bytes and seconds throughout. Not here: the arithmetic (core.health.before.resources), the words
(grpoctl.cli.check_resources).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.config import RunSpec
from core.health.before.resources.levers import Levers, levers, sharded
from core.health.before.resources.memory import Phase, Place, disk, peak, phases, weights
from core.health.before.resources.pace import evaluation_seconds, evaluations, paces, speed
from core.health.before.resources.shapes import Shape
from grpoctl.resources.machine import cores, disk_free
from grpoctl.resources.model import KnownModel, Lengths
from grpoctl.resources.probe import Probe

OFF = 1.25  # how far an estimate has been from what was measured (docs/benchmarks.md)
MEASURED = {"weights": "frozen", "adapter": "trainable", "reference": "reference", "process": "process"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """What is to be said: the spec, its model, its lengths, where it is to fit, its other profiles, and a probe."""

    spec: RunSpec
    model: KnownModel
    lengths: Lengths
    place: Place
    memory_given: bool  # the memory is the user's number, not the machine's
    profiles: Mapping[str, tuple[RunSpec, Shape]]
    probe: Probe
    home: Path


def document(inputs: Inputs) -> dict[str, Any]:
    """The key `resources` of `check --json`; docs/cli.md has the table."""
    spec, shape, tokens, place = inputs.spec, inputs.model.shape, inputs.lengths.tokens, inputs.place
    all_phases = phases(spec, shape, tokens, place)
    most, measured = peak(all_phases), inputs.probe.peak
    needed = most.bytes if measured is None else measured
    fits, own = needed <= place.memory, spec.trainer.kind == "grpoctl"
    return {
        "model": _model(inputs),
        "trainer": "grpoctl",
        "device": place.device,
        "memory_bytes": place.memory,
        "memory_given": inputs.memory_given,
        "prompt_tokens": tokens.prompt,
        "answer_tokens": tokens.answer,
        "tokens_from": inputs.lengths.whence,
        "parts": _parts(all_phases, inputs.probe),
        "phases": [_phase(phase, inputs.probe) for phase in all_phases],
        "peak_bytes": most.bytes,
        "peak_phase": {"stage": most.stage or None, "name": most.name},
        "measured_peak_bytes": measured,
        "fits": fits if own or not fits else None,
        "close": measured is None and needed / OFF < place.memory < needed * OFF,
        "stages": _stages(inputs),
        "evaluation": _evaluation(inputs),
        "hours": _hours(inputs),
        "disk": _disk(inputs),
        "changes": {
            **_changes(levers(spec, shape, tokens, place, inputs.profiles)),
            "sharded": None if (several := sharded(spec, shape, tokens, place)) is None else asdict(several),
        },
        "probe": {"ran": bool(inputs.probe.events), "why_not": inputs.probe.why},
    }


def _model(inputs: Inputs) -> dict[str, Any]:
    size = weights(inputs.spec, inputs.model.shape, inputs.place.device)
    return {
        "source": inputs.model.source,
        "family": inputs.model.shape.family,
        "exact": inputs.model.shape.exact,
        "parameters": size.total,
        "trainable": size.trainable,
        "shapes_from": inputs.model.whence,
        "at_hand": inputs.model.at_hand,
    }


def _parts(all_phases: Sequence[Phase], probe: Probe) -> list[dict[str, Any]]:
    """Each part at the largest it gets in any phase, in the order they come about."""
    loaded, rows = probe.first("loaded"), []
    for name in dict.fromkeys(name for phase in all_phases for name in phase.parts):
        largest = max(all_phases, key=lambda phase: phase.parts.get(name, 0))
        if size := largest.parts.get(name, 0):
            rows.append(
                {"name": name, "bytes": size, "measured_bytes": _measured(name, loaded, probe), "phase": largest.name}
            )
    return rows


def _measured(name: str, loaded: Mapping[str, Any], probe: Probe) -> int | None:
    if name == "moments":
        return max((int(event["moments"]) for event in probe.events if "moments" in event), default=None)
    if name == "weights" and "frozen" in loaded:
        whole = "reference" in loaded and loaded["reference"]  # all or part of the weights are trained themselves
        return int(loaded["frozen"]) + (int(loaded["trainable"]) if whole else 0)
    key = MEASURED.get(name)
    if key is None or key not in loaded or (key == "process" and loaded["device"] == "cuda"):
        return None
    return int(loaded[key])


def _phase(phase: Phase, probe: Probe) -> dict[str, Any]:
    event = probe.step(phase.stage, full=True) if phase.stage else {}
    return {
        "stage": phase.stage or None,
        "name": phase.name,
        "bytes": phase.bytes,
        "measured_bytes": event.get("peaks", {}).get(phase.name),
        "parts": dict(phase.parts),
    }


def _stages(inputs: Inputs) -> dict[str, Any]:
    assumed = speed(inputs.place.device, cores())
    stages = {}
    for pace in paces(inputs.spec, inputs.model.shape, inputs.lengths.tokens, assumed):
        drawn, full = (inputs.probe.step(pace.stage, full=whole) for whole in (False, True))
        stages[pace.stage] = {
            "steps": {"least": pace.least, "most": pace.most},
            "estimated_seconds": {**pace.seconds, "total": pace.step},
            "measured_seconds": {"drawn": drawn.get("seconds"), "full": full.get("seconds")},
            "completion_tokens": _mean_length(drawn),
            "max_completion_tokens": full.get("completion_tokens"),
        }
    return stages


def _mean_length(event: Mapping[str, Any]) -> float | None:
    """Tokens of a completion as it was drawn, the end included; None for a stage that draws none (supervised)."""
    return event["drawn"] / event["rows"] if event.get("drawn") and event.get("rows") else None


def _evaluation(inputs: Inputs) -> dict[str, Any]:
    """One evaluation. Measured: what sampling as many rows takes, at the pace of the last step that sampled."""
    spec = inputs.spec
    assumed = speed(inputs.place.device, cores())
    rows = spec.task.eval_prompts * spec.evaluation.num_generations_eval
    steps = [step for name in spec.stages if (step := inputs.probe.step(name, full=False)).get("drawn")]
    first = inputs.probe.first("evaluated")  # its first calls are slow: only where no step samples
    pace = (steps[-1]["seconds"]["sample"], steps[-1]["rows"]) if steps else None
    if pace is None and first.get("rows"):
        pace = first["seconds"]["total"], first["rows"]
    whole = pace[0] * rows / pace[1] if pace is not None else None
    return {
        "times": evaluations(spec),
        "completions": rows,
        "estimated_seconds": evaluation_seconds(spec, inputs.model.shape, inputs.lengths.tokens, assumed),
        "measured_seconds": whole,
    }


def _hours(inputs: Inputs) -> dict[str, Any]:
    """`least`: steps as they were drawn; `most`: completions at full length, by assumption where nothing was probed."""
    stages, evaluation = _stages(inputs), _evaluation(inputs)
    measured = all(stage["measured_seconds"]["full"] for stage in stages.values())
    each = evaluation["measured_seconds"] or evaluation["estimated_seconds"]
    sums = []
    for kind, count in (("drawn", "least"), ("full", "most")):
        seconds = [
            stage["steps"][count]
            * (stage["measured_seconds"][kind] if measured else stage["estimated_seconds"])["total"]
            for stage in stages.values()
        ]
        sums.append((sum(seconds) + evaluation["times"] * each) / 3600)
    return {"least": sums[0] if measured else None, "most": sums[1], "measured": measured}


def _disk(inputs: Inputs) -> dict[str, Any]:
    files = disk(inputs.spec, inputs.model.shape, inputs.place.device)
    free = disk_free(inputs.home)
    size = inputs.spec.language_model.itemsize
    download = 0 if inputs.model.at_hand else inputs.model.shape.total * size
    needed = files.total + download
    return {**asdict(files), "total": files.total, "model_to_download": download, "free": free, "fits": needed <= free}


def _changes(changes: Levers) -> dict[str, Any]:
    alone, together = ([asdict(lever) for lever in group] for group in (changes.alone, changes.together))
    return {"alone": alone, "together": together}
