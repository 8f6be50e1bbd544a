"""What `grpoctl check --data` found, as text of 80 columns. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpoctl import console
from grpoctl.cli.checking import wrapped
from grpoctl.wording import plural


def say(found: Mapping[str, Any]) -> None:
    """The `data` of the document as tables and sentences on standard output."""
    console.print_table(
        f"\nProblems; lengths in {found['unit']}, median and longest",
        ("split", "problems", "repeats", "near", "prompt", "answer"),
        [_split_row(name, seen) for name, seen in found["splits"].items() if seen["problems"]],
    )
    if found["absent"]:
        _line(f"No test problems: {found['absent']}.")
    for split, seen in found["leakage"].items():
        if found["splits"][split]["problems"]:
            _line(_leak(split, seen))
    if found["answers_too_long"] is not None:
        _line(f"{_percent(found['answers_too_long'])} of the task's own answers are longer than a completion may be.")
    _say_sampling(found["sampling"])
    console.print_text("\nWarnings about the data" + ("" if found["warnings"] else ": none"))
    for warning in found["warnings"]:
        _line(f"{warning['severity']}: {warning['summary']}.")


def _split_row(name: str, seen: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (str(seen[key]) for key in ("problems", "duplicates", "near_duplicates"))
    sizes = (f"{seen[what]['median']}, {seen[what]['max']}" if seen[what] else "-" for what in ("prompt", "answer"))
    return (name, *counts, *sizes)


def _leak(split: str, seen: Mapping[str, Any]) -> str:
    text = f"{split}: {plural(seen['duplicates'], 'problem')} also in train, {seen['near_duplicates']} nearly so"
    pairs = ", ".join(f"{one['id']} and {one['other']} ({one['likeness']:.2f})" for one in seen["examples"])
    return f"{text}: {pairs}." if pairs else f"{text}."


def _say_sampling(seen: Mapping[str, Any]) -> None:
    if seen.get("skipped"):
        _line(f"What the model earns before training: left out, {seen['skipped']}.")
        return
    k = seen["num_generations"]
    console.print_text("")
    stages = f", stage {', '.join(seen['stages_before'])} included" if seen["stages_before"] else ""
    console.print_text(
        wrapped(
            "",
            f"Before training{stages}: {plural(seen['prompts'], 'problem')} x {k} completions at temperature "
            f"{seen['temperature']:g}, {seen['seconds']:.0f} s",
        )
    )
    reward, positive, rate = seen["reward"], seen["positive"], seen["pass_rate"]
    if reward["mean"] is not None:
        text = f"reward {reward['mean']:.4f}, standard deviation {reward['std']:.4f}, inside groups"
        _line(f"{text} {reward['group_std']:.4f}; valid {_percent(seen['valid'])}.")
        share = f"{_percent(positive['share'])} ({_percent(positive['low'])} to {_percent(positive['high'])})"
        _line(
            f"Problems with a positive sample: {share}; with nothing else: {_percent(seen['all_positive']['share'])}. "
            f"Pass rate {_percent(rate['mean'])} ({_percent(rate['low'])} to {_percent(rate['high'])})."
        )
        _line(f"Groups with equal rewards, which teach nothing: {_percent(seen['dead'])}.")
    cut, length = _percent(seen["truncated"]), seen["length"]
    missing = f"; rewards missing {_percent(seen['missing'])}" if seen["missing"] else ""
    _line(f"Mean length {length:.1f} tokens, cut off {cut}{missing}.")
    if seen["parts"]:
        rows = [(name, _number(part["mean"]), _percent(part["positive"])) for name, part in seen["parts"].items()]
        console.print_table("", ("score", "mean", "problems with one above 0"), rows)
    _say_needs(seen)


def _say_needs(seen: Mapping[str, Any]) -> None:
    """Groups that teach nothing, by K, for samples that are positive or not."""
    title = "Groups all positive or all not, by num_generations"
    if seen["needs_is"] == "at least":
        title += ", at the best"
    rows = [(str(row["num_generations"]), _percent(row["dead"])) for row in seen["needs"]]
    console.print_table(title, ("K", "dead"), rows)


def _line(text: str) -> None:
    console.print_text(wrapped("  ", text))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
