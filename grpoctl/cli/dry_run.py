"""What `grpoctl run --dry-run` prints: the runs there would be, and the resolved spec. Writes nothing."""

from __future__ import annotations

from grpoctl import console
from grpoctl.cli.session import Asked, resolve
from grpoctl.config import dump, plain, run_stem, spec_sha
from grpoctl.runs.run_dir import Home


def print_plan(asked: Asked) -> None:
    """The plan, as text or JSON. Raises what resolving raises."""
    home = Home.locate()
    loaded, why = resolve(asked, home)
    if asked.json:
        runs = [{"run": run_stem(one.spec), "seed": one.spec.seed} for one in loaded]
        spec = loaded[0].spec
        document = {"schema": 1, "experiment": spec.name, "profile": spec.profile, "spec_sha": spec_sha(spec)}
        console.print_json({**document, "dry_run": True, "home": str(home.path), "runs": runs, "spec": plain(spec)})
        return
    console.print_text(dump(loaded[0].spec))
    for one in loaded:
        console.print_text(f"would run {run_stem(one.spec)}-N in {home.runs_folder}")
    stages, budget = loaded[0].spec.stages, loaded[0].spec.budget
    for name, stage in stages.items():
        label = f"stage {name}: " if len(stages) > 1 else ""
        text = f"{stage.max_steps} steps x {stage.rows_per_step} completions"
        if budget is not None and name == [*stages][-1]:
            text = f"steps x {stage.rows_per_step} completions until {budget.amount} {budget.unit} are spent"
        console.print_text(f"{label}{text}")
    console.print_text(f"profile {loaded[0].spec.profile} ({why}); nothing was written")
