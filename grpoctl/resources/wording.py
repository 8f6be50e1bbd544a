"""`grpoctl check --resources` in words: 80 columns, sizes in GiB or MiB, seconds in what reads best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpoctl import console
from grpoctl.analysis.wording import plural
from grpoctl.commands.checking import wrapped


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
    console.print_table("Memory by part, each at its largest", ("part", "estimated", "measured", "largest in"), parts)
    rows = [(_where(phase), size(phase["bytes"]), size(phase["measured_bytes"])) for phase in found["phases"]]
    console.print_table("Peak of each phase, all that is held then", ("phase", "estimated", "measured"), rows)
    if not model["exact"]:
        console.print_text(wrapped("  ", f"{model['family']} is taken to be built like Llama: a rough estimate."))
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
    console.print_table("Time of one", ("", "times", "estimated", "as drawn now", "at full length"), rows)
    hours = found["hours"]
    most = span(3600 * hours["most"])
    if hours["measured"]:
        text = f"The run: about {span(3600 * hours['least'])} with completions as long as now, {most} at full length."
    else:
        text = f"The run: about {most}, by an assumed speed of this kind of machine; a probe would measure it."
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
