"""What was measured, as lines of markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.trl_step.rows import Headline, Run, Samples

MIB = 2**20
HEAD = (
    "| prompt | beta | ends | tool | how | step, s | of TRL's | CPU, s | of TRL's "
    "| generated, tokens/s | trained, tokens/s | sample / score / learn, s |"
)


def table(runs: Sequence[Run], best: Sequence[Headline]) -> list[str]:
    """A row for each tool in each run, the ratio to the TRL of the same run; then the headlines."""
    lines = [HEAD, "|" + "---|" * 12]
    for run in runs:
        both = ([] if run.theirs is None else [run.theirs]) + list(run.ours)
        lines += [_row(run, one) for one in both]
    lines += ["", "Each tool at its fastest, medians of one run in which they took turns:", ""]
    lines += ["| prompt | beta | ends | TRL | ours | ours / TRL |", "|" + "---|" * 6] if best else []
    for one in best:
        setting, sides = one.setting, [f"{side.how}: {side.seconds:.2f} s" for side in (one.theirs, one.ours)]
        where = f"| {setting.prompt_tokens} | {setting.beta:g} | {_ends(setting.fixed)} "
        lines.append(f"{where}| {sides[0]} | {sides[1]} | {one.ratio:.2f} |")
    return lines


def memory_lines(peaks: Sequence[dict[str, Any]]) -> list[str]:
    """The peaks; no line where there are none."""
    if not peaks:
        return []
    lines = ["", "Peak memory, each in a process of its own:", ""]
    lines += ["| prompt | beta | TRL | ours | ours / TRL |", "|" + "---|" * 5]
    for one in peaks:
        sides = [f"{side['how']}: {side['bytes'] / MIB:.0f} MiB" for side in (one["theirs"], one["ours"])]
        lines.append(f"| {one['prompt_tokens']} | {one['beta']:g} | {sides[0]} | {sides[1]} | {one['ratio']:.2f} |")
    return lines


def _row(run: Run, one: Samples) -> str:
    ratio = cpu_ratio = ""
    if run.theirs is not None and one is not run.theirs:
        ratio, cpu_ratio = f"{one.seconds / run.theirs.seconds:.2f}", f"{one.cpu / run.theirs.cpu:.2f}"
    parts = " / ".join(f"{one.part(name):.2f}" for name in ("sample", "score", "learn")) if one.tool != "trl" else ""
    setting = run.setting
    return (
        f"| {setting.prompt_tokens} | {setting.beta:g} | {_ends(setting.fixed)} | {one.tool} | {one.how} "
        f"| {one.seconds:.2f} | {ratio} | {one.cpu:.1f} | {cpu_ratio} "
        f"| {one.generated_rate:.0f} | {one.trained_rate:.0f} | {parts} |"
    )


def _ends(fixed: bool) -> str:
    return "fixed" if fixed else "natural"
