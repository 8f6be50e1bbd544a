"""What MLflow shows of runs, studies and experiments in words and tables: notes, findings, data sets, samples.

What is here: pure functions of our files; imports no mlflow. What is not: sending any of it (attachments).
"""

from __future__ import annotations

import getpass
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from pwd import getpwuid
from typing import Any

from core.metrics import METRICS, Metric
from grpoctl.tracking.payload import TAG_LENGTH, cut, digest, tag_texts
from grpoctl.wording import BEST, gain_text, met_text, metric_text, plural

NOTE_TAG = "mlflow.note.content"  # MLflow's own: its pages show it as the description, Markdown
WRITTEN_TAG = "grpoctl.note"  # stands for the note as we wrote it, so that one that a person changed is left alone
TABLES_TAG = "mlflow.loggedArtifacts"  # MLflow's own: which artifacts its pages show as tables
FINDING = "grpoctl.finding."  # + id -> severity
SAMPLES, PROBLEMS = "samples.json", "problems.json"
MOST_ROWS = 500  # of a table
NOTE_LENGTH = 4900  # of an experiment's: older servers take 5,000 characters
_READ_FIRST = ("step", "prompt", "output", "text", "reward")  # columns: pages show four at a time
_FIRST = (
    "reward/mean",
    "groups/dead",
    "kl",
    "entropy",
    "completions/valid",
    "completions/length",
    "rollout/logprob_gap",
)


def owner(path: Path) -> str:
    """Who ran it: the owner of its directory, for whoever copies it may be somebody else."""
    uid = path.stat().st_uid
    try:
        return getpwuid(uid).pw_name
    except KeyError:  # a container without that user
        return getpass.getuser() if uid == Path("/proc/self").stat().st_uid else str(uid)


def end_row(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is known at the end only, as rows: `best/*` at the best evaluation's step, run metrics at the last one."""
    best, final, last = result.get("best") or {}, result.get("final") or {}, int(result.get("steps") or 0)
    of_run = {name: final[name] for name, metric in METRICS.items() if metric.kind == "run" and name in final}
    gain = (result.get("gain") or {}).get("gain")
    rows = [{"step": last, **of_run, "seconds": result.get("seconds"), "gain": gain}]
    if "step" in best:
        at_best = {f"{BEST}{name}": value for name, value in best.items() if name.startswith("eval/")}
        rows.append({"step": int(best["step"]), **at_best})
    return rows


def ending_tags(result: Mapping[str, Any]) -> dict[str, str]:
    """The verdict, the expectations and the findings of a run that has ended; each finding by its id, too."""
    findings, expects = result.get("findings") or (), result.get("expects") or ()
    met = sum(entry.get("met") is True for entry in expects)
    return tag_texts(
        {
            "grpoctl.verdict": _verdict(result) or None,
            "grpoctl.expected": f"{met} of {len(expects)} met" if expects else None,
            "grpoctl.findings": ", ".join(f"{entry['severity']} {entry['id']}" for entry in findings) or "none",
            **{f"{FINDING}{entry['id']}": entry["severity"] for entry in findings},
        }
    )


def _verdict(result: Mapping[str, Any]) -> str:
    """What a run came to, and the errors that stand between that and a conclusion; nothing where there is neither."""
    errors = [str(entry["id"]) for entry in result.get("findings") or () if entry.get("severity") == "error"]
    known = [gain_text(result["gain"])] if result.get("gain") else []
    return "; but ".join([*known, *([f"error {', '.join(errors)}"] if errors else [])])


def run_note(run_id: str, spec: Mapping[str, Any], provenance: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """A run's description: what it is, and once it has ended what came out."""
    overrides = " ".join(provenance.get("overrides") or [])
    of = f"trial {provenance['trial']} of {provenance['study']}, " if provenance.get("study") else ""
    lines = [f"**{spec.get('title') or spec.get('name')}**"]
    if result:  # what came out comes first: MLflow's pages fold all but the first lines
        verdict = _verdict(result)
        lines += [f"{result.get('status')}" + (f": {verdict}" if verdict else "")]
    lines.append(
        f"{of}{provenance.get('recorded_as') or spec.get('name')}, profile {spec.get('profile')}, "
        f"seed {spec.get('seed')}" + (f", with `{overrides}`" if overrides else "")
    )
    if result:
        lines += [str(result["message"])] if result.get("message") else []
        lines += _list("Expected", (_expectation(entry) for entry in result.get("expects") or ()))
        lines += _list(
            "Findings", (f"{e['severity']} `{e['id']}`: {e['summary']}" for e in result.get("findings") or ())
        )
    lines.append(f"Evidence: `grpoctl diagnose {run_id}`")
    return cut("\n\n".join(lines), TAG_LENGTH)


def study_note(document: Mapping[str, Any], sweep: Mapping[str, Any]) -> str:
    """A study's description: what is searched for, over which axes, and the best trial so far."""
    metric, best = str(document.get("metric")), document.get("best") or {}
    axes = [f"`{key}`: {_axis(axis)}" for key, axis in (sweep.get("axes") or {}).items()]
    lines = [f"**{sweep.get('title') or document.get('sweep')}**"]
    lines += [str(sweep["question"])] if sweep.get("question") else []
    trials = plural(int(document.get("total") or 0), "trial")
    lines.append(
        f"{document.get('direction')} `{metric}` ({unit_text(metric)}), {trials}, profile {document.get('profile')}; "
        "each trial's child runs have it as `score`"
    )
    lines += _list("Axes", axes)
    if best:
        lines.append(f"best so far: trial {best.get('number')}, {metric} {metric_text(metric, best.get('score'))}")
    lines.append(f"Report: `grpoctl show {document.get('study')}`")
    return cut("\n\n".join(lines), TAG_LENGTH)


def experiment_note(spec: Mapping[str, Any]) -> str:
    """An experiment's description: its title and question, and what its metrics mean, in which unit, which way."""
    head = [f"**{spec.get('title') or spec.get('name')}**", *([str(spec["question"])] if spec.get("question") else [])]
    table = ["| metric | unit | better | meaning |", "|---|---|---|---|"]
    known = sorted(METRICS.values(), key=_order)
    text = "\n\n".join(head) + "\n\n" + "\n".join(table)
    for metric in known:
        row = f"\n| {metric.name} | {metric.unit} | {metric.better} | {metric.meaning.replace('|', '&#124;')} |"
        if len(text) + len(row) > NOTE_LENGTH:
            break
        text += row
    return text


def unit_text(name: str) -> str:
    """`reward, higher is better`."""
    metric = METRICS.get(name)
    if metric is None:
        return "unit unknown"
    return f"{metric.unit}, {metric.better} is better" if metric.better != "neither" else metric.unit


def dataset(spec: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, str]:
    """name, digest, source_type, source and profile of the data of the run's task, as MLflow has data sets.

    The digest is of the contents of the task's files, where it reads any, and of its settings: another split or another
    seed of problems is another data set.
    """
    task = spec.get("task") or {}
    attempts = provenance.get("attempts") or [{}]
    inputs = attempts[-1].get("inputs") or provenance.get("inputs") or {}
    hub = any(str(name).startswith("hub:") for name in inputs)
    kind = "hub" if hub else "local" if inputs else "code"
    source = {"files": inputs} if inputs else {"task": task.get("name")}
    return {
        "name": str(task.get("name") or "data")[:500],
        "digest": digest([task, inputs]),
        "source_type": kind,
        "source": cut(json.dumps(source, ensure_ascii=False), 65_000),
        "profile": json.dumps({"eval_prompts": task.get("eval_prompts")}),
    }


def table(rows: Iterable[Mapping[str, Any]]) -> str | None:
    """The rows as MLflow writes tables (log_table): columns and data, what is read first in front; None for none."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    columns = [*(name for name in _READ_FIRST if name in names), *(name for name in names if name not in _READ_FIRST)]
    if not rows:
        return None
    data = [[_cell(row.get(column)) for column in columns] for row in rows]
    return json.dumps({"columns": columns, "data": data}, ensure_ascii=False, allow_nan=False)


def logged_tables(names: Sequence[str]) -> str:
    """The tag that has MLflow's pages show these artifacts as tables."""
    return json.dumps([{"path": name, "type": "table"} for name in names])


def problem_rows(rows: Sequence[Mapping[str, Any]], best: int | None) -> list[Mapping[str, Any]]:
    """The held-out answers before training and at the best evaluation (else the last one), problem beside problem."""
    steps = sorted({int(row["step"]) for row in rows})
    if not steps:
        return []
    wanted = {steps[0], best if best in steps else steps[-1]}
    kept = [row for row in rows if int(row["step"]) in wanted]
    return sorted(kept, key=lambda row: (row["place"], row["draw"], row["step"]))[:MOST_ROWS]


def _cell(value: object) -> object:
    """What JSON has a word for."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else json.dumps(value, ensure_ascii=False)


def _expectation(entry: Mapping[str, Any]) -> str:
    return f"{met_text(entry)}: {entry.get('expectation')}"


def _axis(axis: object) -> str:
    """The values of an axis, or what else is set of it."""
    if not isinstance(axis, Mapping):
        return str(axis)
    settings = {key: value for key, value in axis.items() if value not in (None, False, {})}
    shown = settings["values"] if settings.keys() == {"values"} else settings
    return json.dumps(shown, ensure_ascii=False, default=str)


def _list(title: str, entries: Iterable[str]) -> list[str]:
    shown = [f"- {entry}" for entry in entries]
    return ["\n".join([f"{title}:", "", *shown])] if shown else []


def _order(metric: Metric) -> tuple[int, int]:
    """Evaluations, whole runs, the steps' main ones, then the others as they are declared."""
    first = {"eval": 0, "run": 1}.get(metric.kind, 2 if metric.name in _FIRST else 3)
    return first, list(METRICS).index(metric.name)
