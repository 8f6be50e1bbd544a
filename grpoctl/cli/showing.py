"""What `grpoctl show` shows of experiments and runs, and what a name means. Imports no torch.

Sweeps are shown by showing_sweep.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from core.config import RunSpec
from core.errors import NotFoundError, SpecError, StorageError, UserError
from core.tasks import registry
from grpoctl import console
from grpoctl.analysis.methods import described
from grpoctl.cli.places import run_or_study
from grpoctl.cli.verdicts import print_result
from grpoctl.config import Library, dump, load, plain, read_resolved, spec_sha
from grpoctl.config.library import SUFFIX
from grpoctl.files import read_json, read_rows
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.listing import summaries, summary
from grpoctl.runs.profile import full_of, shown
from grpoctl.runs.run_dir import Home, RunDir, path_of
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sections import Line, Section, Tone
from grpoctl.sweeps.loading import kinds_of, sweep_library
from grpoctl.wording import label, metric_text


def meant(home: Home, name: str) -> Literal["experiment", "sweep"] | RunDir | StudyDir:
    """What a name stands for: a spec of one of the two kinds, a run or a study. An experiment comes before a sweep.

    Raises NotFoundError where it is nothing, or fits several.
    """
    path = path_of(name)
    if not RunDir(path=path).spec.is_file() and not StudyDir(path=path).spec.is_file():
        if name.lower().endswith(SUFFIX) or "@" in name:
            return "experiment" if "experiment" in kinds_of(name) else "sweep"
        if name.lower() in Library().files():
            return "experiment"
        if name.lower() in sweep_library().files():
            return "sweep"
    try:
        return run_or_study(home, name)
    except NotFoundError as error:
        if " fits " in str(error):
            raise
        raise NotFoundError(f"no experiment, sweep or run {name!r}; grpoctl ls shows what there is") from error


def experiment(home: Home, name: str, profile: str, overrides: Sequence[str], *, json: bool) -> None:
    """The resolved spec under a profile, and what the profile and overrides change."""
    revisions = revisions_of(home)
    profile, why = shown(profile, lambda: full_of(name, overrides, revisions))
    loaded = load(name, profile=profile, overrides=overrides, revisions=revisions)
    spec = loaded.spec
    runs = [entry for entry in summaries(home) if entry.get("experiment") == spec.name]
    if json:
        changes = {key: list(change) for key, change in loaded.applied.items()}
        document = {"schema": 1, "experiment": spec.name, "revision": spec.revision, "profile": profile}
        methods = described(spec)
        more = {"spec_sha": spec_sha(spec), "file": str(loaded.file), "profiles": list(loaded.profiles)}
        console.print_json({**document, **more, "changed": changes, "methods": methods,
                            "spec": plain(spec), "runs": runs})  # fmt: skip
        return
    console.print_text(f"{spec.name}@{spec.revision}  {spec.title}\n{spec.question}\nsource: {spec.source}")
    console.print_text(f"file: {loaded.file}   profiles: {', '.join(loaded.profiles)}   sha: {spec_sha(spec)[:8]}")
    console.print_text(f"profile: {profile} ({why})\n")
    console.print_text(dump(spec))
    _print_methods(spec)
    if loaded.applied:
        rows = [(key, str(change.base), str(change.value)) for key, change in loaded.applied.items()]
        console.print_table(f"Changed by profile {profile} and overrides", ("", "spec", "here"), rows)
    lines = [(r["run_id"], r["status"], console.short(r["eval/reward"])) for r in runs[:10]]
    console.print_table("Newest runs", ("run", "status", "eval/reward"), lines)


def _print_methods(spec: RunSpec) -> None:
    """The point that each stage's method stands for, and where the stage departs from it."""
    for stage, found in described(spec).items():
        over, axes = found["overridden"], found["axes"]
        title = f"Stage {stage}: method {found['method']} ({found['source']}): {found['title']}"
        rows = [(key, str(axes.get(key, "")), str(over[key][1]) if key in over else "") for key in {**axes, **over}]
        console.print_table(title, ("axis", found["method"], "here, where it differs"), rows)


def run(found: RunDir, *, json: bool) -> None:
    """How a run stands, or its verdict once it has ended."""
    result = read_json(found.result)
    entry = summary(found)
    if result is None or entry["status"] != result.get("status"):  # it runs, or was resumed and runs again
        document = {"schema": 1, **entry, "metrics": _last(found)}
        if json:
            console.print_json(document)
        else:
            console.print_sections(_standing(found, entry))
        return
    if json:
        console.print_json(result)
    else:
        print_result(result, read_resolved(found.spec).recorded)


def _standing(run: RunDir, entry: Mapping[str, Any]) -> list[Section]:
    """A run without a result: how it stands, the last value of each metric, what to do, and where its files are."""
    status = str(entry["status"])
    known = entry.get("recorded_as") is not None
    what = f"{label(entry)}, profile {entry['profile']}, seed {entry['seed']}" if known else run.id
    what += "" if entry["step"] is None else f": step {entry['step']}"
    message = str(entry.get("message") or "").partition("\n")[0]
    tone: Tone = "plain" if status == "RUNNING" else "warn" if status == "INTERRUPTED" else "bad"
    lines = [Line(label="Run", mark=status, tone=tone, text=what + (f"; {message}" if message else ""))]
    if status == "RUNNING":
        lines.append(Line(label="Next", text=f"follow it: grpoctl logs -f {run.id}", verbatim=True))
    elif known and run.path.parent == run.home.runs_folder:  # else its sweep goes on with it
        words = ["grpoctl", "run", str(entry["experiment"]), "-p", str(entry["profile"]), "--seed", str(entry["seed"])]
        command = shlex.join([*words, *(entry.get("overrides") or ()), "--resume"])
        lines.append(Line(label="Next", text=f"continue: {command}", verbatim=True))
    lines.append(Line(label="Files", text=str(run.path)))
    last: dict[str, float] = {}
    with suppress(StorageError):  # damaged rows: the run says so already
        for row in read_rows(run.metrics):
            last |= {name: value for name, value in row.items() if value is not None}
    rows = tuple((name, metric_text(name, value)) for name, value in last.items())
    return [Section(lines=tuple(lines)), *([Section(title="Last values", columns=("", ""), rows=rows)] if rows else [])]


def sample_tables(home: Home, name: str, *, json: bool) -> None:
    """What all samples of a run show, in the task's own tables."""
    found = _run_of(home, name)
    tables = registry.unread(read_resolved(found.spec).task).tables(_samples(found))
    if json:
        described = [{"title": t.title, "columns": list(t.columns), "rows": [list(r) for r in t.rows]} for t in tables]
        console.print_json({"schema": 1, "run_id": found.id, "tables": described})
        return
    for table in tables:
        console.print_table(table.title, table.columns, table.rows)


def step_samples(home: Home, name: str, step: int | None, worst: int | None, *, json: bool) -> None:
    """Prompt, completion, reward and advantage of a step's rows, the worst rewarded first where `worst` is given."""
    found = _run_of(home, name)
    rows = _samples(found)
    steps = sorted({int(row["step"]) for row in rows})
    step = steps[-1] if step is None else step
    if step not in steps:
        raise UserError(f"{found.id} has samples of steps {steps[0]} to {steps[-1]}, not of step {step}")
    chosen = [row for row in rows if row["step"] == step]
    if worst is not None:
        chosen = sorted(chosen, key=lambda row: (row["reward"] is not None, row["reward"] or 0.0))[:worst]
    task = registry.unread(read_resolved(found.spec).task)
    prompts = _prompts(found)
    described = [{**row, "prompt": prompts.get(row["prompt_id"])} for row in chosen]
    if json:
        console.print_json({"schema": 1, "run_id": found.id, "step": step, "samples": described})
        return
    cells = [
        (str(row["row"]), str(row["prompt"]), task.shown_output(row), str(row["valid"]), _number(row["reward"]),
         _number(row["advantage"]))
        for row in described
    ]  # fmt: skip
    console.print_table(
        f"{found.id}, step {step}", ("row", "prompt", "completion", "valid", "reward", "advantage"), cells
    )


def _prompts(found: RunDir) -> dict[str, str]:
    """The training prompts by their ids; none where the run's data are gone, with a note that says so."""
    try:
        task = registry.build(read_resolved(found.spec).task)
    except SpecError as error:
        console.print_note(f"the prompts cannot be shown: {error}")
        return {}
    return {example.id: task.shown(example) for example in task.examples("train")}


def _run_of(home: Home, name: str) -> RunDir:
    """The run of a name; an experiment's is its newest. Raises UserError for a study: its runs have samples."""
    found = run_or_study(home, name)
    if isinstance(found, StudyDir):
        raise UserError(f"{found.id} is a sweep; samples are its runs', for instance {found.run(0, 0).id}'s")
    return found


def _samples(run: RunDir) -> list[dict[str, Any]]:
    rows = read_rows(run.samples)
    if not rows:
        raise NotFoundError(f"{run.id} has no samples yet")
    return rows


def _last(run: RunDir) -> dict[str, Any]:
    rows = read_rows(run.metrics)
    return rows[-1] if rows else {}


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:.3f}"
