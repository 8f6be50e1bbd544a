"""`grpoctl ls`: experiments, sweeps, studies and runs."""

from __future__ import annotations

from collections.abc import Sequence

from grpoctl import console
from grpoctl.analysis.sweeps.document import study_row, study_summaries
from grpoctl.cli.options import Json
from grpoctl.config import experiments
from grpoctl.config.loading import Experiment
from grpoctl.runs import liveness
from grpoctl.runs.listing import summaries, sweeps
from grpoctl.runs.run_dir import Home

WIDE = 120  # columns from which on profiles have room beside titles


def ls(json: Json = False) -> None:
    home = Home.locate()
    liveness.reconcile(home)
    known, runs, specs, studies = experiments(), summaries(home), sweeps(), study_summaries(home)
    if json:
        fields = ("name", "title", "profiles", "origin", "problem")
        entries = [{**{f: getattr(e, f) for f in fields}, "file": str(e.file)} for e in known]
        document = {"schema": 1, "home": str(home.path), "experiments": entries}
        console.print_json({**document, "sweeps": specs, "studies": studies, "runs": runs})
        return
    rows = [(e.name, e.problem or e.title, e.origin, " ".join(e.profiles)) for e in known]
    narrow = (console.terminal_width() or WIDE) < WIDE  # titles would be four lines each
    shown, note = (3, _profiles(known)) if narrow else (4, "")
    columns = ("name", "title", "from", "profiles")[:shown]
    console.print_table("Experiments", columns, [row[:shown] for row in rows], note=note)
    console.print_table("Sweeps", ("name", "from"), [(sweep["name"], sweep["origin"]) for sweep in specs])
    if studies:
        console.print_table("Studies", ("study", "status", "trials", "best"), [study_row(entry) for entry in studies])
    lines = [
        (
            r["run_id"],
            f"{r['status']} on {r['host']}" if "host" in r else r["status"],
            "-" if r["step"] is None else str(r["step"]),
            console.short(r["eval/reward"]),
        )
        for r in runs
    ]
    console.print_table(f"Runs in {home.path}", ("run", "status", "step", "eval/reward"), lines)


def _profiles(known: Sequence[Experiment]) -> str:
    """Which experiments have which profiles, in a sentence."""
    named: dict[str, list[str]] = {}
    for entry in known:
        named.setdefault(" ".join(entry.profiles), []).append(entry.name)
    return "; ".join(f"profiles {profiles}: {', '.join(names)}" for profiles, names in named.items())
