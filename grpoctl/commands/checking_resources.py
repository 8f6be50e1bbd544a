"""`grpoctl check --resources`: gathers what is known of an experiment, probes where that can be done, and says it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import GrpoError, UserError
from core.health.foresight.resources.memory import Place, peak, phases
from core.health.foresight.resources.shapes import Shape
from core.models import precision
from core.spec import RunSpec
from core.spec.fit import check_fit
from core.tasks import registry
from grpoctl import console
from grpoctl.resources import machine, wording
from grpoctl.resources.model import Known, known
from grpoctl.resources.probe import Probe, measure
from grpoctl.resources.report import Asked, document
from grpoctl.resources.tokens import Lengths, lengths
from grpoctl.runs import dtype
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.specs import load


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What the command line asks for: `memory` in GiB instead of the machine's, and no probe."""

    memory: float | None
    probe: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the command line says: whether `--resources` is there, and the two that belong to it."""

    asked: bool
    memory: float | None
    no_probe: bool


def wanted(options: Options, kinds: Collection[str], name: str) -> Wanted | None:
    """What to look at; None where nothing is asked. Raises UserError, before anything is said."""
    memory = options.memory
    if not options.asked:
        if memory is not None or options.no_probe:
            raise UserError("got --memory or --no-probe by itself; they belong to --resources: add it")
        return None
    if "experiment" not in kinds:
        raise UserError(f"--resources looks at an experiment, and {name!r} is a sweep; check the one it is over")
    if memory is not None and not 0 < memory < float("inf"):
        raise UserError(f"got --memory {memory:g}; allowed: a number of GiB above 0")
    return Wanted(memory=memory, probe=not options.no_probe)


def check(name: str, profile: str, overrides: Sequence[str], asked: Wanted, *, json: bool) -> dict[str, Any]:
    """The key `resources` of the JSON document; printed as text unless `json`. Raises what loading raises."""
    home = Home.locate()
    loaded = load(name, profile=profile, overrides=overrides, revisions=revisions_of(home))
    spec = loaded.spec
    if spec.model is None:
        raise UserError(f"--resources knows language models, and the policy is {spec.policy.kind}; leave it out")
    check_fit(spec)
    model, place = known(spec.language_model), machine.place(asked.memory)
    if (text := dtype.why(spec, dtype.settled(spec))) is not None:
        console.print_note(text)
    spec = _as_loaded(dtype.settled(spec), model, place)
    found = lengths(spec, registry.build(spec.task), model.folder)
    others = [other for other in loaded.profiles if other != profile]
    told = document(
        Asked(
            spec=spec,
            model=model,
            lengths=found,
            place=place,
            given=asked.memory is not None,
            profiles=_profiles(name, others, overrides),
            probe=_probed(spec, model, found, wanted=asked.probe),
            home=home.path,
        )
    )
    if not json:
        wording.say(told)
    return told


def _as_loaded(spec: RunSpec, model: Known, place: Place) -> RunSpec:
    """The spec with `load_in_4bit: auto` decided as a run would decide it there."""
    if spec.language_model.load_in_4bit != "auto":
        return spec
    room = precision.DeviceRoom(
        free=place.memory if place.device == "cuda" else None, bitsandbytes=precision.has_bitsandbytes()
    )
    held = precision.WeightsSize(count=model.shape.total, itemsize=2 if spec.language_model.dtype == "bfloat16" else 4)
    small = precision.use_4bit("auto", lora=spec.language_model.lora is not None, weights=held, room=room)
    return spec.model_copy(
        update={"model": spec.language_model.model_copy(update={"load_in_4bit": "always" if small else "never"})}
    )


def _profiles(name: str, others: Sequence[str], overrides: Sequence[str]) -> dict[str, tuple[RunSpec, Shape]]:
    """The spec under each other profile, where it loads with these overrides and its model's shapes are known."""
    found: dict[str, tuple[RunSpec, Shape]] = {}
    for other in others:
        try:
            spec = dtype.settled(load(name, profile=other, overrides=overrides).spec)
            found[other] = (spec, known(spec.language_model).shape)
        except GrpoError:
            continue  # it is only a suggestion
    return found


def _probed(spec: RunSpec, model: Known, found: Lengths, *, wanted: bool) -> Probe:
    """The probe, or why there is none: it runs where the model is at hand, and what it needs is there."""
    if not wanted:
        return Probe(why="--no-probe")
    if not model.at_hand:
        return Probe(why=f"{model.source} is not on this machine")
    here: Place = machine.here()
    needed = peak(phases(spec, model.shape, found.tokens, here)).bytes
    if needed > here.memory:
        free = wording.size(here.memory)
        return Probe(why=f"the probe would need {wording.size(needed)}, and {free} are free on this machine")
    console.print_note("a step or two of each stage are made to measure; --no-probe leaves that out")
    group = spec.evaluation.num_generations_eval
    rows = max((stage.rows_per_step for stage in spec.stages.values()), default=0)
    return measure(spec, max(1, rows // group))
