"""`grpoctl promote`: a study's winner as an experiment of one's own."""

from __future__ import annotations

from typing import Annotated

import typer

from grpoctl.cli.options import Json


def promote(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Study, or sweep (its newest study).")],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="The new experiment's name.")],
    trial: Annotated[int | None, typer.Option(help="This trial instead of the best.", min=0)] = None,
    json: Json = False,
) -> None:
    """Write a sweep's winner as a new experiment."""
    from grpoctl import console
    from grpoctl.analysis.outcome import gain_text
    from grpoctl.runs.run_dir import Home
    from grpoctl.sweeps.promote import Wanted
    from grpoctl.sweeps.promote import promote as write

    done = write(Wanted(study=study, name=name, trial=trial), Home.locate())
    winner = done.winner
    for note in done.notes:
        console.print_note(note)
    if json:
        document = {"file": str(done.file), "name": done.name, "study": winner.study, "trial": winner.number}
        document["stages"] = dict(winner.trial.get("stages") or {})
        console.print_json({"schema": 1, **document})
        return
    profile = winner.spec.profile
    console.print_text(f"{done.file}: trial {winner.number} of {winner.study}, {winner.score}")
    for stage, gain in (winner.trial.get("stages") or {}).items():
        console.print_text(f"stage {stage}: {gain_text(gain, winner.gain_metric)}")
    if winner.trial.get("stages"):
        console.print_text(winner.interval_kind)
    console.print_text(f"found with profile {profile}; not tested with any other")
    console.print_text(f"next: grpoctl run {done.name} --profile {profile} --seeds {_fresh(winner.trial['seeds'])}")


def _fresh(seeds: list[int]) -> str:
    """As many seeds that the study did not use."""
    first = max(seeds) + 1
    return ",".join(str(first + index) for index in range(len(seeds)))
