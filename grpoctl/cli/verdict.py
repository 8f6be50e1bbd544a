"""The verdict on one run as `grpoctl run` and `grpoctl show` print it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpoctl.analysis.baselines import beside_baselines
from grpoctl.analysis.outcome import beside_the_record, evaluations, legend_of, sentences
from grpoctl.console import print_line, print_sections, print_table, write
from grpoctl.sections import Line


def print_result(result: Mapping[str, Any], recorded: Mapping[str, float]) -> None:
    """Print how a run ended: gains, evaluations, expectations, findings, the record beside it, files."""
    lines = sentences(result)
    first = [line for line in lines if line.label in ("Run", "Reached", "Stage")]
    for line in first:
        print_line(line)
    rows = evaluations(result)
    if rows:
        write("")
        print_table("", ("", "start", "final", "best"), rows, note=legend_of(result))
    print_sections(beside_baselines(result))
    for line in lines[len(first) :]:
        print_line(line)
    if recorded:
        write("")
        print_table("The record and this run", ("", "record", "this run"), beside_the_record(result, recorded))
    print_line(Line(label="Files", text=str(result["run_dir"])))
