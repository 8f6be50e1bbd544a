"""`grpoctl promote`: a study's winner as an experiment of one's own."""

from __future__ import annotations

from typing import Annotated

import typer

from grpoctl import console
from grpoctl.analysis.outcome import gain_text
from grpoctl.cli.options import Json
from grpoctl.runs.run_dir import Home
from grpoctl.sweeps.promote import PromotionRequest
from grpoctl.sweeps.promote import promote as write_experiment


def promote(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Study, or sweep (its newest study).")],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="The new experiment's name.")],
    trial: Annotated[int | None, typer.Option(help="This trial instead of the best.", min=0)] = None,
    json: Json = False,
) -> None:
    promoted = write_experiment(PromotionRequest(study=study, name=name, trial=trial), Home.locate())
    winner = promoted.winner
    for note in promoted.notes:
        console.print_note(note)
    if json:
        document = {"file": str(promoted.file), "name": promoted.name, "study": winner.study, "trial": winner.number}
        document["stages"] = dict(winner.trial.get("stages") or {})
        console.print_json({"schema": 1, **document})
        return
    profile = winner.spec.profile
    console.print_text(f"{promoted.file}: trial {winner.number} of {winner.study}, {winner.score}")
    for stage, gain in (winner.trial.get("stages") or {}).items():
        console.print_text(f"stage {stage}: {gain_text(gain, winner.gain_metric)}")
    if winner.trial.get("stages"):
        console.print_text(winner.interval_kind)
    console.print_text(f"found with profile {profile}; not tested with any other")
    seeds = winner.trial["seeds"]
    fresh = ",".join(str(max(seeds) + 1 + index) for index in range(len(seeds)))  # as many that the study did not use
    console.print_text(f"next: grpoctl run {promoted.name} --profile {profile} --seeds {fresh}")
