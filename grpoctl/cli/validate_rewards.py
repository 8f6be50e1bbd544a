"""`grpoctl validate --rewards`: what a task's reward functions give for two of its problems, and what goes wrong."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from core.config import RunSpec
from core.errors import GrpoError, TaskError
from core.tasks import registry
from core.tasks.base import Example, Outcome, Task
from core.tasks.custom.task import CustomTask, outcomes_of
from grpoctl import console
from grpoctl.config import load, plain
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home

ROWS = 2
PLACEHOLDER = "a placeholder"  # scored where the spec has neither gold nor answer
_COUNTS = ("train_prompts", "eval_prompts", "data_seed")  # profiles that differ in these alone have the same rewards
_WIDEST = 48  # characters of a cell


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """The outcomes of one try, and why it failed: one line each, and the tracebacks."""

    outcomes: Sequence[Outcome]
    problems: Sequence[str] = ()
    details: Sequence[str] = ()


def is_custom(name: str) -> bool:
    """True where an experiment's task is the user's own."""
    return load(name, revisions=revisions_of(Home.locate())).spec.task.name == "custom"


def try_rewards(name: str, overrides: Sequence[str]) -> list[dict[str, Any]]:
    """One entry for each profile whose rewards differ: profile, ok, problems, details, rows with what they earned."""
    revisions = revisions_of(Home.locate())
    profiles = load(name, overrides=overrides, revisions=revisions).profiles
    entries: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    for profile in profiles:
        spec = load(name, profile=profile, overrides=overrides, revisions=revisions).spec
        task = {key: value for key, value in plain(spec.task).items() if key not in _COUNTS}
        if task not in tasks:
            tasks.append(task)
            entries.append({"profile": profile, **_try(spec)})
    return entries


def _try(spec: RunSpec) -> dict[str, Any]:
    """What the rewards of one spec give: ok, problems (a line each), details (tracebacks), rows."""
    try:
        task = registry.build(spec.task)
        with closing(task):
            task.make_ready()
            examples = list(task.examples("train")[:ROWS])
            kind, outputs = _answers(task, examples)
            scored = _scored(task, examples, outputs)
    except GrpoError as error:
        first, *rest = str(error).splitlines()
        return {"ok": False, "problems": [first], "details": ["\n".join(rest)] if rest else [], "rows": []}
    problems = [*scored.problems, *_poor_gold(spec, kind, examples, scored.outcomes)]
    rows = [
        {
            "prompt_id": example.id,
            "prompt": task.shown(example),
            "completion": output,
            "completion_is": kind,
            "reward": outcome.reward,
            "valid": outcome.valid,
            "rewards": dict(outcome.parts),
        }
        for example, output, outcome in zip(examples, outputs, scored.outcomes, strict=True)
    ]
    return {"ok": not problems, "problems": problems, "details": list(scored.details), "rows": rows}


def _answers(task: Task, examples: Sequence[Example]) -> tuple[str, list[str]]:
    """(gold, answer or placeholder; a completion for each example)."""
    if isinstance(task, CustomTask):
        gold = [text for example in examples if (text := task.gold(example)) is not None]
        if gold:
            return "gold", gold
    try:
        return "answer", [task.target(example) for example in examples]
    except TaskError:
        return "placeholder", [PLACEHOLDER for _ in examples]


def _scored(task: Task, examples: Sequence[Example], outputs: Sequence[str]) -> Scored:
    if not isinstance(task, CustomTask):
        return Scored(outcomes=task.score(examples, outputs))
    with _no_log():
        verdicts = task.verdicts(examples, outputs)
    failed = {label: error for label, verdict in verdicts.items() if (error := verdict.call_error) is not None}
    problems = [
        f"reward {label}: the call for {len(outputs)} rows failed (and for {verdicts[label].failed} of them when asked "
        f"for one by one): {_main_line(error)}"
        for label, error in failed.items()
    ]
    return Scored(
        outcomes=outcomes_of(task.spec.rewards, verdicts, outputs, task.spec.valid_above),
        problems=problems,
        details=[error for error in failed.values() if len(error.strip().splitlines()) > 1],
    )


@contextmanager
def _no_log() -> Iterator[None]:
    """Off: the notes of a run's log, which are printed as problems here."""
    log = logging.getLogger("core.tasks.rewards")
    log.disabled, before = True, log.disabled
    try:
        yield
    finally:
        log.disabled = before


def _poor_gold(spec: RunSpec, kind: str, examples: Sequence[Example], outcomes: Sequence[Outcome]) -> list[str]:
    """The gold answers that earn less than the spec says."""
    gold = getattr(spec.task, "gold", None)
    if kind != "gold" or gold is None:
        return []
    return [
        f"{example.id}: the gold answer earned {_number(outcome.reward)}, wanted at least {gold.at_least:g}"
        for example, outcome in zip(examples, outcomes, strict=True)
        if not outcome.reward >= gold.at_least
    ]


def _main_line(error: str) -> str:
    """A traceback's last line; of other texts the first."""
    lines = error.strip().splitlines() or [""]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def print_rewards(name: str, entries: Sequence[dict[str, Any]]) -> None:
    """Print a table of what each row earned, for each entry; what failed, and its tracebacks, on standard error."""
    for entry in entries:
        if rows := entry["rows"]:
            parts = list(rows[0]["rewards"])
            cells = [
                (row["prompt_id"], _cut(row["prompt"]), _cut(row["completion"]),
                 *(_number(row["rewards"][part]) for part in parts), _number(row["reward"]))
                for row in rows
            ]  # fmt: skip
            title = f"{name}, profile {entry['profile']}: what the rewards say"
            columns = ("row", "prompt", f"completion ({rows[0]['completion_is']})", *parts, "reward")
            console.print_table(title, columns, cells)
        for problem in entry["problems"]:
            console.print_error(f"{name}, profile {entry['profile']}: {problem}")
        for detail in entry["details"]:
            console.write(detail.strip(), sys.stderr)


def _cut(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 3]}..."


def _number(value: float | None) -> str:
    return "none" if value is None or math.isnan(value) else f"{value:g}"
