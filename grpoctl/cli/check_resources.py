"""`grpoctl check --resources`: what is known of an experiment, probed where that can be done, and printed.

The text has 80 columns, sizes in GiB or MiB, and seconds in what reads best.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
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
from grpoctl.config import Loaded, load
from grpoctl.resources import machine
from grpoctl.resources.model import KnownModel, Lengths, known_model, lengths
from grpoctl.resources.probe import Probe, measure
from grpoctl.resources.report import Inputs, document
from grpoctl.runs import dtype
from grpoctl.runs.run_dir import Home
from grpoctl.wording import plural

ASSUMED_OFF = 3  # core.health.before.resources.pace: an order of magnitude


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """`--resources` and the options that belong to it, as the command line has them."""

    resources: bool
    memory: float | None
    no_probe: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceOptions:
    """The settings of `--resources`: for `memory` GiB (None: what is free here), with a probe or without."""

    memory: float | None
    probe: bool


def options(arguments: Arguments, kinds: Collection[str], name: str) -> ResourceOptions | None:
    """The options of `--resources`, None without it. Raises UserError for what cannot be."""
    memory = arguments.memory
    if not arguments.resources:
        if memory is not None or arguments.no_probe:
            raise UserError("got --memory or --no-probe by itself; they belong to --resources: add it")
        return None
    if "experiment" not in kinds:
        raise UserError(f"--resources looks at an experiment, and {name!r} is a sweep; check the one it is over")
    if memory is not None and not 0 < memory < float("inf"):
        raise UserError(f"got --memory {memory:g}; allowed: a number of GiB above 0")
    return ResourceOptions(memory=memory, probe=not arguments.no_probe)


def require_language_model(spec: RunSpec) -> None:
    """Raises UserError for another kind of policy: what it needs is not known."""
    if spec.model is None:
        raise UserError(f"--resources knows language models, and the policy is {spec.policy.kind}; leave it out")


def check(
    name: str, loaded: Loaded, overrides: Sequence[str], options: ResourceOptions, *, json: bool
) -> dict[str, Any]:
    """The key `resources` of the JSON document; printed as text unless `json`.

    Raises SpecError, and ModelError where the shapes of the model's weights are not known.
    """
    spec = loaded.spec
    check_fit(spec)
    model, place = known_model(spec.language_model), machine.place(options.memory)
    if (text := dtype.why(spec, dtype.settled(spec))) is not None:
        console.print_note(text)
    if spec.trainer.kind != "grpoctl":
        console.print_note(
            f"memory and time are those of grpoctl's own trainer; those of {spec.trainer.kind} are not known"
        )
    spec = _as_loaded(dtype.settled(spec), model, place)
    token_lengths = lengths(spec, registry.build(spec.task), model.folder)
    resources = document(
        Inputs(
            spec=spec,
            model=model,
            lengths=token_lengths,
            place=place,
            memory_given=options.memory is not None,
            profiles=_other_profiles(name, loaded, overrides),
            probe=_probe(spec, model, token_lengths) if options.probe else Probe(why="--no-probe"),
            home=Home.locate().path,
        )
    )
    if not json:
        _print_memory(resources)
        _print_time(resources)
        _print_disk(resources)
        if resources["fits"] is False:
            _print_changes(resources["changes"], resources["memory_bytes"])
    return resources


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


def _other_profiles(name: str, loaded: Loaded, overrides: Sequence[str]) -> dict[str, tuple[RunSpec, Shape]]:
    """The spec under each other profile, where it loads with these overrides and its model's shapes are known."""
    specs: dict[str, tuple[RunSpec, Shape]] = {}
    for profile in loaded.profiles:
        if profile != loaded.spec.profile:
            with suppress(GrpoError):  # it is only a suggestion
                spec = dtype.settled(load(name, profile=profile, overrides=overrides).spec)
                specs[profile] = (spec, known_model(spec.language_model).shape)
    return specs


def _probe(spec: RunSpec, model: KnownModel, token_lengths: Lengths) -> Probe:
    """The probe, or why there is none: it runs where the model is at hand, and what it needs is there."""
    if not model.at_hand:
        return Probe(why=f"{model.source} is not on this machine")
    here: Place = machine.here()
    needed = peak(phases(spec, model.shape, token_lengths.tokens, here)).bytes
    if needed > here.memory:
        free = size(here.memory)
        return Probe(why=f"the probe would need {size(needed)}, and {free} are free on this machine")
    console.print_note("a step or two of each stage are made to measure; --no-probe leaves that out")
    group = spec.evaluation.num_generations_eval
    rows = max((stage.rows_per_step for stage in spec.stages.values()), default=0)
    return measure(spec, max(1, rows // group))


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


_FITS = {True: "fits into", False: "DOES NOT FIT into", None: "grpoctl's own trainer fits into"}


def _print_memory(resources: Mapping[str, Any]) -> None:
    model, probe = resources["model"], resources["probe"]
    measured = "measured by a step of each stage"
    if not probe["ran"] or probe["why_not"] is not None:
        measured = f"not measured: {probe['why_not']}"
    console.print_paragraph(
        f"Resources: {model['source']} ({model['parameters']:,} weights by {model['shapes_from']}), "
        f"{model['trainable']:,} trained ({model['trainable'] / model['parameters']:.2%}). Prompts of up to "
        f"{resources['prompt_tokens']} tokens, by {resources['tokens_from']}. Estimated from shapes, every completion "
        f"at its full length; {measured}."
    )
    console.print_text("")
    parts = [(p["name"], size(p["bytes"]), size(p["measured_bytes"]), p["phase"]) for p in resources["parts"]]
    console.print_table("Memory by part, peak of each", ("part", "estimated", "measured", "peak in"), parts)
    rows = [
        (
            f"{phase['stage']}: {phase['name']}" if phase["stage"] else str(phase["name"]),
            size(phase["bytes"]),
            size(phase["measured_bytes"]),
        )
        for phase in resources["phases"]
    ]
    console.print_table("Peak of each phase, total", ("phase", "estimated", "measured"), rows)
    if not model["exact"]:
        console.print_paragraph(f"{model['family']} is assumed to be Llama-like: a rough estimate.", "  ")
    measured_peak, memory = resources["measured_peak_bytes"], resources["memory_bytes"]
    needed = resources["peak_bytes"] if measured_peak is None else measured_peak
    method = "estimated" if measured_peak is None else "measured"
    whose = "given" if resources["memory_given"] else f"free on this machine's {resources['device'].upper()}"
    fits = _FITS[resources["fits"]]
    close = "; the estimate may be a quarter off, so measure before you rely on it" * resources["close"]
    open_ = "; whether the spec's trainer does is not known" * (resources["fits"] is None)
    console.print_paragraph(f"Peak {size(needed)} ({method}): {fits} the {size(memory)} {whose}{open_}{close}.")
    console.print_text("")


def _print_time(resources: Mapping[str, Any]) -> None:
    rows = []
    for name, stage in resources["stages"].items():
        measured, steps = stage["measured_seconds"], stage["steps"]
        drawn, full = (seconds["total"] if seconds else None for seconds in (measured["drawn"], measured["full"]))
        count = str(steps["most"]) if steps["least"] == steps["most"] else f"{steps['least']}-{steps['most']}"
        rows.append((name, count, span(stage["estimated_seconds"]["total"]), span(drawn), span(full)))
    evaluation = resources["evaluation"]
    estimated, measured = span(evaluation["estimated_seconds"]), span(evaluation["measured_seconds"])
    rows.append(("evaluations", str(evaluation["times"]), estimated, measured, "-"))
    console.print_table("Time of each", ("", "count", "estimated", "at current length", "at full length"), rows)
    hours = resources["hours"]
    if hours["measured"]:
        least, most = (span(3600 * hours[end]) for end in ("least", "most"))
        text = f"Whole run: about {least} at current completion length, {most} at full length."
    else:
        low, high = (span(3600 * hours["most"] * factor) for factor in (1 / ASSUMED_OFF, ASSUMED_OFF))
        text = (
            f"Whole run: {low} to {high}, from an assumed speed of this kind of machine, which may be {ASSUMED_OFF} "
            "times off either way; a probe would measure it."
        )
    console.print_paragraph(text, "  ")
    console.print_text("")


def _print_disk(resources: Mapping[str, Any]) -> None:
    disk = resources["disk"]
    parts = [f"checkpoints {size(disk['checkpoints'])} ({size(disk['checkpoint'])} each)"]
    parts += [f"export {size(disk['export'] + disk['merged'])}", f"records {size(disk['records'])}"]
    text = f"Disk: at most {size(disk['total'])}: {', '.join(parts)}."
    if disk["model_to_download"]:
        text += f" The model, {size(disk['model_to_download'])}, is not here yet."
    fits = "fits into" if disk["fits"] else "DOES NOT FIT into"
    console.print_paragraph(f"{text} That {fits} the {size(disk['free'])} free.")
    console.print_text("")


def _print_changes(changes: Mapping[str, Any], memory: int) -> None:
    """Print what would make a spec fit that does not."""
    if changes["together"]:
        console.print_text(f"It would fit with {plural(len(changes['together']), 'change')}:")
        for lever in changes["together"]:
            console.print_paragraph(f"{lever['change']}: then {size(lever['bytes'])}; {lever['cost']}.", "  ")
    else:
        console.print_text("No settings of this profile make it fit.")
    console.print_text("\nWhat helps, each change alone" + ("" if changes["alone"] else ": nothing"))
    for lever in changes["alone"]:
        fits = ", fits" if lever["fits"] else ""
        console.print_paragraph(f"{lever['change']}: {size(lever['bytes'])}{fits}; {lever['cost']}.", "  ")
    if (several := changes["sharded"]) is not None:
        enough = f"at least {plural(several['devices'], 'device')}" if several["devices"] else "no number of devices"
        console.print_text("")
        console.print_paragraph(
            f"All weights on several GPUs: trainer.kind={several['trainer']} with FSDP (by accelerate's own "
            f"configuration file) shares out {size(several['bytes'])} of weights, reference, moments and gradient: "
            f"{enough} of {size(memory)}."
        )
    console.print_text("")
