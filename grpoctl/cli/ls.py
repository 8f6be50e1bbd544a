"""`grpoctl ls`: experiments, sweeps, studies and runs."""

from __future__ import annotations

from grpoctl import console
from grpoctl.analysis.sweeps.document import study_row, study_summaries
from grpoctl.cli.options import Json
from grpoctl.config import experiments
from grpoctl.runs import liveness
from grpoctl.runs.listing import summaries, sweeps
from grpoctl.runs.run_dir import Home


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
    rows = [(e.name, e.problem or e.title, " ".join(e.profiles), e.origin) for e in known]
    console.print_table("Experiments", ("name", "title", "profiles", "from"), rows)
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
