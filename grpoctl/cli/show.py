"""`grpoctl show`: an experiment or a sweep as it would run, a run or a study as it went. Imports no torch or optuna."""

from __future__ import annotations

import csv
import io
import json as jsonlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from core.config import RunSpec
from core.errors import NotFoundError, SpecError, UserError
from core.tasks import registry
from grpoctl import console
from grpoctl.analysis.methods import described
from grpoctl.cli import check_sweep
from grpoctl.cli.lookup import run_or_study, spec_or_run
from grpoctl.cli.options import Json, Overrides, Profile
from grpoctl.cli.verdict import print_result
from grpoctl.config import dump, load, plain, read_resolved, spec_sha
from grpoctl.files import read_rows
from grpoctl.runs import liveness
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.listing import result_of, summaries, summary
from grpoctl.runs.profile import AUTO, full_of, resolve_or_full
from grpoctl.runs.run_dir import HeldDir, Home, RunDir
from grpoctl.runs.study_dir import StudyDir, find_study
from grpoctl.sections import Line, Section, Tone
from grpoctl.sweeps.loading import base_of, load_sweep
from grpoctl.wording import label, metric_text, setting_text


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Experiment, sweep, or run or study (id, path).")],
    overrides: Overrides = None,
    profile: Profile = "auto",
    samples: Annotated[bool, typer.Option("--samples", help="Tables of the run's samples.")] = False,
    step: Annotated[int | None, typer.Option(help="The samples of one step of the run.", min=1)] = None,
    worst: Annotated[int | None, typer.Option(help="Only the N lowest rewards of that step.", min=1)] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Of a sweep: one line per trial.")] = False,
    json: Json = False,
) -> None:
    home = Home.locate()
    liveness.reconcile(home)
    given = _given(overrides or (), profile)
    _check_samples_options(given or ("--csv" if as_csv else ""), samples, step, worst)
    if step is not None or worst is not None:
        show_step_samples(home, name, step, worst, json=json)
        return
    if samples:
        show_sample_tables(home, name, json=json)
        return
    entry = spec_or_run(home, name)
    if entry == "sweep" and not given:
        entry = newest_study(home, name) or "sweep"
    if isinstance(entry, HeldDir) and given:
        raise UserError(f"got {given}, but {entry.id} is shown as it was run; leave it out, or name its spec")
    if isinstance(entry, StudyDir):
        show_study(entry, json=json, as_csv=as_csv)
    elif entry == "sweep":
        if as_csv:
            raise UserError(f"{name} has no study yet, so no trials; start one with: grpoctl sweep {name}")
        show_sweep(home, name, profile, overrides or (), json=json)
    elif as_csv:
        raise UserError(f"{name} is no sweep; --csv lists a sweep's trials")
    elif isinstance(entry, RunDir):
        show_run(entry, json=json)
    else:
        show_experiment(home, name, profile, overrides or (), json=json)


def _given(overrides: Sequence[str], profile: str) -> str:
    """What is asked for that changes a spec, as it was given; empty where that is nothing."""
    return " ".join([*overrides, *([] if profile == AUTO else [f"--profile {profile}"])])


def _check_samples_options(beside: str, samples: bool, step: int | None, worst: int | None) -> None:
    """Raises UserError where samples are asked for in two ways, or beside what changes nothing of them."""
    of_step = "" if step is None and worst is None else "--worst" if step is None else "--step"
    if samples and of_step:
        raise UserError(f"got --samples and {of_step}; the one is tables of all samples, the other a step's: give one")
    if beside and (samples or of_step):
        asked = of_step or "--samples"
        raise UserError(f"got {asked} and {beside}; samples are a run's, as it went: leave out {beside}")


def show_experiment(home: Home, name: str, profile: str, overrides: Sequence[str], *, json: bool) -> None:
    """Print the resolved spec under a profile, and what the profile and overrides change."""
    revisions = revisions_of(home)
    profile, why = resolve_or_full(profile, lambda: full_of(name, overrides, revisions))
    loaded = load(name, profile=profile, overrides=overrides, revisions=revisions)
    spec = loaded.spec
    runs = [entry for entry in summaries(home) if entry.get("experiment") == spec.name]
    if json:
        changes = {key: list(change) for key, change in loaded.applied.items()}
        document = {"schema": 1, "experiment": spec.name, "revision": spec.revision, "profile": profile}
        more = {"spec_sha": spec_sha(spec), "file": str(loaded.file), "profiles": list(loaded.profiles)}
        console.print_json({**document, **more, "changed": changes, "methods": described(spec),
                            "spec": plain(spec), "runs": runs})  # fmt: skip
        return
    console.print_text(f"{spec.name}@{spec.revision}  {spec.title}\n{spec.question}\nsource: {spec.source}")
    console.print_text(f"file: {loaded.file}   profiles: {', '.join(loaded.profiles)}   sha: {spec_sha(spec)[:8]}")
    console.print_text(f"profile: {profile} ({why})\n")
    console.write(dump(spec))
    _print_methods(spec)
    if applied := loaded.applied:
        rows = [(key, setting_text(change.base), setting_text(change.value)) for key, change in applied.items()]
        console.print_table(f"Changed by profile {profile} and overrides", ("", "spec", "here"), rows)
    lines = [(r["run_id"], r["status"], console.short(r["eval/reward"])) for r in runs[:10]]
    console.print_table("Newest runs", ("run", "status", "eval/reward"), lines)


def _print_methods(spec: RunSpec) -> None:
    """The point that each stage's method stands for, and where the stage departs from it."""
    for stage, method in described(spec).items():
        over, axes = method["overridden"], method["axes"]
        title = f"Stage {stage}: method {method['method']} ({method['source']}): {method['title']}"
        rows = [
            (key, setting_text(axes.get(key, "")), setting_text(over[key][1]) if key in over else "")
            for key in {**axes, **over}
        ]
        console.print_table(title, ("axis", method["method"], "here, where it differs"), rows)


def show_run(run: RunDir, *, json: bool) -> None:
    """Print the verdict on a run, or how far it is where it has not ended."""
    result = result_of(run)
    entry = summary(run)
    if result is None or entry["status"] != result.get("status"):  # it runs, or was resumed and runs again
        rows = read_rows(run.metrics)
        if json:
            console.print_json({"schema": 1, **entry, "metrics": rows[-1] if rows else {}})
        else:
            console.print_sections(_progress_report(run, entry, rows))
    elif json:
        console.print_json(result)
    else:
        print_result(result, read_resolved(run.spec).recorded)


def _progress_report(run: RunDir, entry: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[Section]:
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
    for row in rows:
        last |= {name: value for name, value in row.items() if value is not None}
    if not last:
        return [Section(lines=tuple(lines))]
    cells = tuple((name, metric_text(name, value)) for name, value in last.items())
    return [Section(lines=tuple(lines)), Section(title="Last values", columns=("", ""), rows=cells)]


def show_sample_tables(home: Home, name: str, *, json: bool) -> None:
    """Print what all samples of a run show, in the task's own tables."""
    run, rows = _samples_of(home, name)
    tables = registry.build_without_data(read_resolved(run.spec).task).tables(rows)
    if json:
        documents = [{"title": t.title, "columns": list(t.columns), "rows": [list(r) for r in t.rows]} for t in tables]
        console.print_json({"schema": 1, "run_id": run.id, "tables": documents})
        return
    for table in tables:
        console.print_table(table.title, table.columns, table.rows)


def show_step_samples(home: Home, name: str, step: int | None, worst: int | None, *, json: bool) -> None:
    """Print prompt, completion, reward and advantage of a step's rows, or of its `worst` lowest rewards."""
    run, rows = _samples_of(home, name)
    steps = sorted({int(row["step"]) for row in rows})
    step = steps[-1] if step is None else step
    if step not in steps:
        raise UserError(f"{run.id} has samples of steps {steps[0]} to {steps[-1]}, not of step {step}")
    chosen = [row for row in rows if row["step"] == step]
    if worst is not None:
        chosen = sorted(chosen, key=lambda row: (row["reward"] is not None, row["reward"] or 0.0))[:worst]
    spec = read_resolved(run.spec)
    without_data = registry.build_without_data(spec.task)
    prompts: dict[str, str] = {}
    try:
        task = registry.build(spec.task)
    except SpecError as error:
        console.print_note(f"the prompts cannot be shown: {error}")
    else:
        prompts = {example.id: task.shown(example) for example in task.examples("train")}
    samples = [{**row, "prompt": prompts.get(row["prompt_id"])} for row in chosen]
    if json:
        console.print_json({"schema": 1, "run_id": run.id, "step": step, "samples": samples})
        return
    cells = [
        (str(row["row"]), str(row["prompt"]), without_data.shown_output(row), str(row["valid"]), _number(row["reward"]),
         _number(row["advantage"]))
        for row in samples
    ]  # fmt: skip
    columns = ("row", "prompt", "completion", "valid", "reward", "advantage")
    console.print_table(f"{run.id}, step {step}", columns, cells)


def _samples_of(home: Home, name: str) -> tuple[RunDir, list[dict[str, Any]]]:
    """The run of a name (an experiment's is its newest with a step) and its samples. Raises UserError for a study."""
    entry = run_or_study(home, name, begun=True)
    if isinstance(entry, StudyDir):
        raise UserError(f"{entry.id} is a sweep; samples are its runs', for instance {entry.run(0, 0).id}'s")
    rows = read_rows(entry.samples)
    if not rows:
        raise NotFoundError(f"{entry.id} has no samples{' yet' if entry.is_held() else ''}")
    return entry, rows


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:.3f}"


def newest_study(home: Home, name: str) -> StudyDir | None:
    """The newest study of the sweep of this name; None where it was not run yet."""
    try:
        study = find_study(home, name)
    except NotFoundError:
        return None
    return study if study.id.rsplit("-", 3)[0] == name.lower() else None  # not one whose id merely begins so


def show_study(study: StudyDir, *, json: bool, as_csv: bool) -> None:
    """Print a study's report, its sweep.json, or one line per trial."""
    from grpoctl.analysis.sweeps.document import read_study
    from grpoctl.analysis.sweeps.findings import study_conclusions
    from grpoctl.analysis.sweeps.report import text_report
    from grpoctl.analysis.sweeps.tables import flat

    document = read_study(study)
    if as_csv:
        columns, rows = flat(document)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        console.print_data(text.getvalue().removesuffix("\n"))
    elif json:
        missing = not document.get("findings") or "selection_bias" not in document  # under way, or of an older version
        known = {key: value for key, value in document.items() if key != "findings" or value}
        whole = {**study_conclusions(document), **known} if missing else document
        # It was read from JSON, so it holds nothing that JSON cannot write; looking for that costs a large study 0.2 s.
        console.print_json_text(jsonlib.dumps(whole, ensure_ascii=False))
    else:
        figures = [str(path) for path in sorted(study.figures.glob("*.png"))]
        console.print_sections(text_report(document, figures))


def show_sweep(home: Home, name: str, profile: str, overrides: Sequence[str], *, json: bool) -> None:
    """Print what a sweep that was not run yet would run."""
    revisions = revisions_of(home)
    profile, why = resolve_or_full(profile, lambda: base_of(name, overrides, revisions))
    loaded = load_sweep(name, profile=profile, overrides=overrides, revisions=revisions)
    sweep = loaded.spec
    document = check_sweep.document(sweep)
    if json:
        more = {"file": str(loaded.file), "profiles": list(loaded.profiles), "spec": plain(sweep)}
        console.print_json({"schema": 1, "sweep": sweep.name, **document, **more})
        return
    source = f"\nsource: {sweep.source}" if sweep.source else ""
    console.print_text(f"{sweep.title}\n{sweep.question}{source}")
    console.print_text(f"file: {loaded.file}   profiles: {', '.join(loaded.profiles)}")
    console.print_text(f"profile: {profile} ({why})\n")
    check_sweep.print_sweep(sweep, document)
    console.print_text(f"\nNot run yet under {home.path}; start it with: grpoctl sweep {name}")
