"""`grpoctl promote`: a study's winner as an experiment of one's own, and what it is worth on fresh seeds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from grpoctl import console
from grpoctl.analysis.sweeps.document import sign_of
from grpoctl.analysis.sweeps.selection import INTERVAL_KIND, Confirmation, confirmation, fresh_seeds
from grpoctl.cli import exits
from grpoctl.cli.options import Json
from grpoctl.runs.run_dir import Home
from grpoctl.runs.status import STOPPED_BY_GUARD
from grpoctl.runs.study_dir import find_study
from grpoctl.sections import Line
from grpoctl.sweeps.promote import Promotion, PromotionRequest, Winner
from grpoctl.sweeps.promote import promote as write_experiment
from grpoctl.wording import estimate_text, gain_text, metric_text, plural


def promote(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Study, or sweep (its newest study).")],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="The new experiment's name.")],
    trial: Annotated[int | None, typer.Option(help="This trial instead of the best.", min=0)] = None,
    confirm: Annotated[
        int | None, typer.Option("--confirm", help="Run it on N seeds that the study did not use.", min=1, metavar="N")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    json: Json = False,
) -> None:
    home = Home.locate()
    request = PromotionRequest(study=study, name=name, trial=trial, again=confirm is not None)
    if confirm is None:
        promoted = write_experiment(request, home)
        print_promotion(promoted, json=json)
        if json:
            console.print_json(promotion_document(promoted))
            return
        profile, fresh = promoted.winner.spec.profile, _listed(_fresh(promoted.winner))
        console.print_text(f"next: grpoctl run {promoted.name} --profile {profile} --seeds {fresh}")
        return
    with find_study(home, study).hold_for_confirmation():  # two at once would run the same seeds twice
        promoted = write_experiment(request, home)
        print_promotion(promoted, json=json)
        results = run_fresh(promoted, confirm, json=json, quiet=quiet)
    document, outcome = confirmed(promoted.winner, confirm, results)
    if json:
        console.print_json({**promotion_document(promoted), "confirm": document})
    else:
        for line in confirmation_lines(promoted.winner, document, outcome):
            console.print_line(line)
    raise typer.Exit(exits.worst_exit_code(result["status"] for result in results))


def print_promotion(promoted: Promotion, *, json: bool) -> None:
    """Print the notes, and unless a JSON document will say it the file, the trial's score and its stages' gains."""
    winner = promoted.winner
    for note in promoted.notes:
        console.print_note(note)
    if json:
        return
    console.print_text(f"{promoted.file}: trial {winner.number} of {winner.study}, {winner.score}")
    for stage, gain in (winner.trial.get("stages") or {}).items():
        console.print_text(f"stage {stage}: {gain_text(gain, winner.gain_metric)}")
    if winner.trial.get("stages"):
        console.print_text(winner.interval_kind)
    console.print_text(f"found with profile {winner.spec.profile}; not tested with any other")


def promotion_document(promoted: Promotion) -> dict[str, Any]:
    """The JSON of a promotion."""
    winner = promoted.winner
    document = {"file": str(promoted.file), "name": promoted.name, "study": winner.study, "trial": winner.number}
    return {"schema": 1, **document, "stages": dict(winner.trial.get("stages") or {})}


def run_fresh(promoted: Promotion, count: int, *, json: bool, quiet: bool) -> list[dict[str, Any]]:
    """The results of the promoted experiment on so many fresh seeds; what was run before is not run again."""
    from grpoctl.cli import run_session

    seeds = _fresh(promoted.winner, count)
    request = run_session.RunRequest(
        name=promoted.name, profile=promoted.winner.spec.profile, seeds=seeds, resume=True, brief=True, json=json,
        quiet=quiet, argv=sys.argv,
    )  # fmt: skip
    return run_session.run_all(request)


def confirmed(
    winner: Winner, asked: int, results: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], Confirmation | None]:
    """The JSON of a confirmation, and what its runs say of the score; None where no run came to its end."""
    values = [winner.value(result) for result in results]
    known = [value for value in values if value is not None]
    document: dict[str, Any] = {
        "asked": asked,
        "seeds": [result["seed"] for result in results],
        "runs": [str(result["run_dir"]) for result in results],
        "statuses": [str(result["status"]) for result in results],
    }
    if not known:
        return document, None
    outcome = confirmation(
        known, score=float(winner.trial["score"]), corrected=winner.corrected, sign=sign_of(winner.document),
        stopped=sum(result["status"] in STOPPED_BY_GUARD for result in results),
    )  # fmt: skip
    return {**document, **outcome.document(), "values": values}, outcome


def confirmation_lines(winner: Winner, document: Mapping[str, Any], outcome: Confirmation | None) -> list[Line]:
    """The score of the study beside the mean on fresh seeds, and what is still to be run."""
    lines = []
    asked, metric = int(document["asked"]), str(winner.document["metric"])
    if outcome is not None:
        fresh = estimate_text(metric, outcome.mean, outcome.interval)
        off = metric_text(metric, abs(outcome.observed_bias))
        side = "better" if outcome.observed_bias > 0 else "worse"
        text = f"{metric} {fresh} on {plural(len(outcome.values), 'fresh seed')}; "
        text += f"in the study {metric_text(metric, outcome.score)}, {off} {side}"
        if outcome.corrected is not None:
            where = {True: " lies inside", False: " lies outside", None: ""}[outcome.inside]
            text += f"; its estimate without the luck of being picked, {metric_text(metric, outcome.corrected)},"
            text = f"{text}{where}" if where else text.removesuffix(",")
        lines.append(Line(label="Confirm", text=text))
        if outcome.interval is not None:
            lines.append(Line(label="", text=f"±, [ ]: {INTERVAL_KIND}"))
        if outcome.stopped:
            runs = f"{outcome.stopped} of {plural(len(outcome.values), 'run')}"
            worst = metric_text(metric, float(winner.document.get("worst") or 0.0))
            text = f"{runs} stopped by a guard: counted as {worst}, as in the sweep"
            lines.append(Line(label="Collapse", mark="WARNING", tone="warn", text=text))
    ended = 0 if outcome is None else len(outcome.values)
    if ended < asked:
        text = f"{ended} of {plural(asked, 'seed')} came to their end; the same command goes on with the others"
        lines.append(Line(label="Next", text=text))
    return lines


def _fresh(winner: Winner, count: int | None = None) -> tuple[int, ...]:
    """So many seeds that the study did not use; without a word as many as the trial has."""
    return fresh_seeds(winner.document, len(winner.trial["seeds"]) if count is None else count)


def _listed(seeds: Sequence[int]) -> str:
    return ",".join(map(str, seeds))
