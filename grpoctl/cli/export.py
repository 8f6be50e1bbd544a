"""`grpoctl export`: a run's weights in a folder of one's own, or a spec as the settings of another trainer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from core.config import RunSpec
from core.errors import UserError
from grpoctl import console
from grpoctl.analysis.outcome import no_better_than_start
from grpoctl.cli.lookup import exported_run, print_choice, spec_or_run
from grpoctl.cli.options import Json
from grpoctl.config import load, read_resolved
from grpoctl.config.authored import FULL
from grpoctl.exports import weights
from grpoctl.exports.trl_script import trl_script
from grpoctl.exports.verl_overrides import verl_overrides
from grpoctl.files import create_text, read_json
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home, RunDir


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run (id, directory), or experiment (its newest run).")],
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR|FILE] [KEY=VALUE]...", help="A new or empty folder; with --to a new file, and settings."
        ),
    ] = None,
    merged: Annotated[bool, typer.Option("--merged", help="Merge the adapter into the weights of its base.")] = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="trl|verl", help="Not weights: the settings, as a script of TRL or overrides of verl."
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", metavar="NAME", help="With --to: the experiment's profile.")
    ] = None,
    json: Json = False,
) -> None:
    place, overrides = _place_and_overrides(rest or ())
    if to is not None:
        wanted = _Wanted(name=run, to=to, profile=profile, overrides=overrides)
        _export_settings(wanted, place, merged=merged, json=json)
        return
    if profile is not None:
        raise UserError("--profile belongs to --to; weights are those of a run")
    if overrides:
        raise UserError(f"got {overrides[0]}; settings belong to --to, weights are those of a run; a folder: ./NAME")
    if place is None:
        raise UserError("missing argument DIR: where the weights are to go, a new or empty folder")
    _export_weights(run, place, merged=merged, json=json)


def _place_and_overrides(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The folder or file among the words, and the others: KEY=VALUE, which a path with a / before the = is not."""
    overrides = [word for word in words if "=" in word and "/" not in word.partition("=")[0]]
    places = [word for word in words if word not in overrides]
    if len(places) > 1:
        raise UserError(f"got {places[0]} and {places[1]}; allowed: one folder or file, and settings as KEY=VALUE")
    return (Path(os.path.expanduser(places[0])) if places else None), overrides


def _export_weights(run: str, folder: Path, *, merged: bool, json: bool) -> None:
    """Copy the weights of a run to a folder, or merge them there."""
    home = Home.locate()
    exported = exported_run(home, run)
    print_choice(home, run, exported.run)
    weights.check_target(folder)
    run_id = exported.run.id
    warning = no_better_than_start(read_json(exported.run.result) or {}, exported.step)
    if warning is not None:
        console.print_note(f"{run_id}: {warning}")
    if merged and exported.format != "peft":
        console.print_note(f"{run_id} trained weights of its own: they are a whole model already")
    merges = merged and exported.format == "peft"
    if merges:
        weights.merge(exported, folder)
    else:
        weights.copy(exported, folder)
    what = "merged weights" if merges else "adapter" if exported.format == "peft" else "weights"
    if json:
        document = {
            "schema": 1,
            "run_id": run_id,
            "step": exported.step,
            "dir": str(folder.absolute()),
            "format": "transformers" if merges else exported.format,
            "what": what,
            "merged": merges,
            "base_model": exported.spec.starts_from,
            "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.is_file()},
            "warning": warning,
        }
        console.print_json(document)
        return
    console.print_text(f"{folder.absolute()}: {what} of {run_id}, step {exported.step}")
    if exported.spec.model is not None:  # only a language model's folder says by itself what it is
        console.print_text(f'next: grpoctl sample {folder.absolute()} "..."')


_WRITERS = {"trl": trl_script, "verl": verl_overrides}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    """Whose settings, for which trainer, in which profile, with what changed."""

    name: str
    to: str
    profile: str | None
    overrides: Sequence[str]


def _export_settings(wanted: _Wanted, target: Path | None, *, merged: bool, json: bool) -> None:
    """Print the settings of an experiment or a run for another trainer, or write them to a new file."""
    name, to = wanted.name, wanted.to
    if to not in _WRITERS:
        raise UserError(f"got --to {to!r}; allowed: {', '.join(_WRITERS)}")
    if merged:
        raise UserError("--merged is about weights, and --to writes settings; give one of them")
    text = _WRITERS[to](_spec_of(wanted))
    if target is not None and not create_text(target, text):
        raise UserError(f"{target} is there already; choose another name")
    if json:
        where = None if target is None else str(target.absolute())
        console.print_json({"schema": 1, "to": to, "name": name, "file": where, "text": text})
    elif target is None:
        console.write(text.removesuffix("\n"))
    else:
        console.print_text(
            f"{target}: {'a script of TRL' if to == 'trl' else 'overrides of verl'} with {name}'s settings"
        )


def _spec_of(wanted: _Wanted) -> RunSpec:
    """The spec of an experiment in this profile with these overrides, or of a run. Raises UserError for a sweep."""
    home, name, profile, overrides = Home.locate(), wanted.name, wanted.profile, wanted.overrides
    kind = spec_or_run(home, name)
    if kind == "experiment":
        return load(name, profile=profile or FULL, overrides=overrides, revisions=revisions_of(home)).spec
    if not isinstance(kind, RunDir):
        raise UserError(f"{name} is a sweep; allowed: an experiment or a run")
    if profile is not None:
        raise UserError(f"{name} is a run, which has its profile; leave --profile out")
    if overrides:
        raise UserError(f"{name} is a run, which has its settings; leave {overrides[0]} out")
    return read_resolved(kind.spec)
