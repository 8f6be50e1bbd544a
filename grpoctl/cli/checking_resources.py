"""`grpoctl check --resources`: what is known of an experiment, probed where that can be done, and printed.

The text has 80 columns, sizes in GiB or MiB, and seconds in what reads best.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.config import RunSpec
from core.config.run import check_fit
from core.errors import GrpoError, UserError
from core.health.before.resources.memory import Place, peak, phases
from core.health.before.resources.shapes import Shape
from core.models import precision
from core.tasks import registry
from grpoctl import console
from grpoctl.cli.checking import wrapped
from grpoctl.config import load
from grpoctl.resources import machine
from grpoctl.resources.model import KnownModel, Lengths, known_model, lengths
from grpoctl.resources.probe import Probe, measure
from grpoctl.resources.report import Inputs, document
from grpoctl.runs import dtype
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.wording import plural


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
    model, place = known_model(spec.language_model), machine.place(asked.memory)
    if (text := dtype.why(spec, dtype.settled(spec))) is not None:
        console.print_note(text)
    spec = _as_loaded(dtype.settled(spec), model, place)
    found = lengths(spec, registry.build(spec.task), model.folder)
    others = [other for other in loaded.profiles if other != profile]
    told = document(
        Inputs(
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
        say(told)
    return told


def _as_loaded(spec: RunSpec, model: KnownModel, place: Place) -> RunSpec:
    """The spec with `load_in_4bit: auto` decided as a run would decide it there."""
    if spec.language_model.load_in_4bit != "auto":
        return spec
    room = precision.DeviceRoom(
        free=place.memory if place.device == "cuda" else None, bitsandbytes=precision.has_bitsandbytes()
    )
    held = precision.WeightsSize(count=model.shape.total, itemsize=spec.language_model.itemsize)
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
            found[other] = (spec, known_model(spec.language_model).shape)
        except GrpoError:
            continue  # it is only a suggestion
    return found


def _probed(spec: RunSpec, model: KnownModel, found: Lengths, *, wanted: bool) -> Probe:
    """The probe, or why there is none: it runs where the model is at hand, and what it needs is there."""
    if not wanted:
        return Probe(why="--no-probe")
    if not model.at_hand:
        return Probe(why=f"{model.source} is not on this machine")
    here: Place = machine.here()
    needed = peak(phases(spec, model.shape, found.tokens, here)).bytes
    if needed > here.memory:
        free = size(here.memory)
        return Probe(why=f"the probe would need {size(needed)}, and {free} are free on this machine")
    console.print_note("a step or two of each stage are made to measure; --no-probe leaves that out")
    group = spec.evaluation.num_generations_eval
    rows = max((stage.rows_per_step for stage in spec.stages.values()), default=0)
    return measure(spec, max(1, rows // group))


def say(found: Mapping[str, Any]) -> None:
    """The document as text on standard output."""
    _say_memory(found)
    _say_time(found)
    _say_disk(found)
    _say_changes(found)


def size(value: float | None) -> str:
    """Bytes as `1.5 GiB` or `12 MiB`."""
    if value is None:
        return "-"
    if value >= 1000 * 2**20:
        return f"{value / 2**30:.1f} GiB"
    mib = value / 2**20
    return f"{mib:.0f} MiB" if mib >= 10 else f"{mib:.2g} MiB"


def span(seconds: float | None) -> str:
    """Seconds as `0.05 s`, `12 s`, `3.5 min` or `2.1 h`."""
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def _say_memory(found: Mapping[str, Any]) -> None:
    model = found["model"]
    console.print_text(wrapped("", _head(found)))
    console.print_text("")
    parts = [(p["name"], size(p["bytes"]), size(p["measured_bytes"]), p["phase"]) for p in found["parts"]]
    console.print_table("Memory by part, peak of each", ("part", "estimated", "measured", "peak in"), parts)
    rows = [(_where(phase), size(phase["bytes"]), size(phase["measured_bytes"])) for phase in found["phases"]]
    console.print_table("Peak of each phase, total", ("phase", "estimated", "measured"), rows)
    if not model["exact"]:
        console.print_text(wrapped("  ", f"{model['family']} is assumed to be Llama-like: a rough estimate."))
    console.print_text(wrapped("", _verdict(found)))
    console.print_text("")


def _head(found: Mapping[str, Any]) -> str:
    model, probe = found["model"], found["probe"]
    share = model["trainable"] / model["parameters"]
    text = (
        f"Resources: {model['source']} ({model['parameters']:,} weights by {model['shapes_from']}), "
        f"{model['trainable']:,} trained ({share:.2%}). Prompts of up to {found['prompt_tokens']} tokens, by "
        f"{found['tokens_from']}."
    )
    if probe["ran"] and probe["why_not"] is None:
        return f"{text} Estimated from shapes, every completion at its full length; measured by a step of each stage."
    return f"{text} Estimated from shapes, every completion at its full length; not measured: {probe['why_not']}."


def _where(phase: Mapping[str, Any]) -> str:
    return f"{phase['stage']}: {phase['name']}" if phase["stage"] else str(phase["name"])


def _verdict(found: Mapping[str, Any]) -> str:
    measured, memory = found["measured_peak_bytes"], found["memory_bytes"]
    needed = found["peak_bytes"] if measured is None else measured
    how = "estimated" if measured is None else "measured"
    of = "given" if found["memory_given"] else f"free on this machine's {found['device'].upper()}"
    word = "fits into" if found["fits"] else "DOES NOT FIT into"
    close = "; the estimate may be a quarter off, so measure before you rely on it" * found["close"]
    return f"Peak {size(needed)} ({how}): {word} the {size(memory)} {of}{close}."


def _say_time(found: Mapping[str, Any]) -> None:
    rows = []
    for name, stage in found["stages"].items():
        measured, steps = stage["measured_seconds"], stage["steps"]
        drawn, full = (one["total"] if one else None for one in (measured["drawn"], measured["full"]))
        count = str(steps["most"]) if steps["least"] == steps["most"] else f"{steps['least']}-{steps['most']}"
        rows.append((name, count, span(stage["estimated_seconds"]["total"]), span(drawn), span(full)))
    whole = found["evaluation"]
    rows.append(
        ("evaluations", str(whole["times"]), span(whole["estimated_seconds"]), span(whole["measured_seconds"]), "-")
    )
    console.print_table("Time of each", ("", "count", "estimated", "at current length", "at full length"), rows)
    hours = found["hours"]
    most = span(3600 * hours["most"])
    if hours["measured"]:
        text = f"Whole run: about {span(3600 * hours['least'])} at current completion length, {most} at full length."
    else:
        text = f"Whole run: about {most}, from an assumed speed of this kind of machine; a probe would measure it."
    console.print_text(wrapped("  ", text))
    console.print_text("")


def _say_disk(found: Mapping[str, Any]) -> None:
    disk = found["disk"]
    parts = [f"checkpoints {size(disk['checkpoints'])} ({size(disk['checkpoint'])} each)"]
    parts += [f"export {size(disk['export'] + disk['merged'])}", f"records {size(disk['records'])}"]
    text = f"Disk: at most {size(disk['total'])}: {', '.join(parts)}."
    if disk["model_to_download"]:
        text += f" The model, {size(disk['model_to_download'])}, is not here yet."
    word = "fits into" if disk["fits"] else "DOES NOT FIT into"
    console.print_text(wrapped("", f"{text} That {word} the {size(disk['free'])} free."))
    console.print_text("")


def _say_changes(found: Mapping[str, Any]) -> None:
    changes = found["changes"]
    if found["fits"]:
        return
    if changes["together"]:
        console.print_text(f"It would fit with {plural(len(changes['together']), 'change')}:")
        for one in changes["together"]:
            console.print_text(wrapped("  ", f"{one['change']}: then {size(one['bytes'])}; {one['cost']}."))
    else:
        console.print_text("No settings of this profile make it fit.")
    console.print_text("\nWhat helps, each change alone" + ("" if changes["alone"] else ": nothing"))
    for one in changes["alone"]:
        fits = ", fits" if one["fits"] else ""
        console.print_text(wrapped("  ", f"{one['change']}: {size(one['bytes'])}{fits}; {one['cost']}."))
    console.print_text("")
