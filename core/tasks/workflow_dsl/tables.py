"""The tables of document 000, sections 3.1 to 3.4, for the rows of samples.jsonl.

Shares are of the valid workflows. "Workflows" in 3.3 counts the workflows that contain an operator, which is what the
document's column means: an operator that occurs twice in one is counted once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from core.tasks.base import Table
from core.tasks.workflow_dsl.ast import Workflow
from core.tasks.workflow_dsl.parser import DslError, parse
from core.tasks.workflow_dsl.printer import render
from core.tasks.workflow_dsl.structure import STRUCTURES, Structure, operators, structure

TOP = 10


def sample_tables(samples: Sequence[Mapping[str, object]]) -> list[Table]:
    """Totals, top patterns, operators and structure classes of the samples' `text`."""
    parsed: dict[str, Workflow | None] = {}
    patterns: Counter[Workflow] = Counter()
    for sample in samples:
        text = str(sample["text"])
        if text not in parsed:
            parsed[text] = _parsed(text)
        workflow = parsed[text]
        if workflow is not None:
            patterns[workflow] += 1
    return [_totals(len(samples), patterns), _top(patterns), _operators(patterns), _structures(patterns)]


def _parsed(text: str) -> Workflow | None:
    try:
        return parse(text)
    except DslError:
        return None


def _totals(count: int, patterns: Counter[Workflow]) -> Table:
    valid = patterns.total()
    return Table(
        title="3.1 DSL outputs",
        columns=("", "count", "share"),
        rows=(
            ("outputs", str(count), _share(count, count)),
            ("valid", str(valid), _share(valid, count)),
            ("fallback", str(count - valid), _share(count - valid, count)),
            ("distinct valid", str(len(patterns)), ""),
        ),
    )


def _top(patterns: Counter[Workflow]) -> Table:
    named = sorted(((-count, render(workflow)) for workflow, count in patterns.items()))[:TOP]
    return Table(
        title=f"3.2 Top {TOP} patterns",
        columns=("rank", "count", "share", "pattern"),
        rows=tuple(
            (str(rank), str(-minus), _share(-minus, patterns.total()), pattern)
            for rank, (minus, pattern) in enumerate(named, start=1)
        ),
    )


def _operators(patterns: Counter[Workflow]) -> Table:
    holding: Counter[str] = Counter()
    for workflow, count in patterns.items():
        for operator in set(operators(workflow)):
            holding[operator.value] += count
    return Table(
        title="3.3 Operators",
        columns=("operator", "workflows", "share"),
        rows=tuple(
            (operator, str(count), _share(count, patterns.total()))
            for operator, count in sorted(holding.items(), key=lambda item: (-item[1], item[0]))
        ),
    )


def _structures(patterns: Counter[Workflow]) -> Table:
    kinds: Counter[Structure] = Counter()
    occurrences: defaultdict[Structure, int] = defaultdict(int)
    for workflow, count in patterns.items():
        kinds[structure(workflow)] += 1
        occurrences[structure(workflow)] += count
    return Table(
        title="3.4 Structure classes",
        columns=("class", "kinds", "workflows", "share"),
        rows=tuple(
            (name, str(kinds[name]), str(occurrences[name]), _share(occurrences[name], patterns.total()))
            for name in STRUCTURES
        ),
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"
