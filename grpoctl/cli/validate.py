"""`grpoctl validate`: is a spec sound, in every profile?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from core.config.run import check_fit
from core.errors import MissingPackageError, UserError
from core.tasks.registry import check_task
from grpoctl import console
from grpoctl.cli import exits
from grpoctl.cli.options import Json
from grpoctl.cli.validate_rewards import is_custom, print_rewards, try_rewards
from grpoctl.config import Library, load, sweep_library
from grpoctl.executors.needs import check_map, missing_package
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.sweeps.loading import kinds_of, load_sweep


def validate(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]... [KEY=VALUE]...", help="Experiments, sweeps or .yaml files; default: all."),
    ] = None,
    rewards: Annotated[
        bool, typer.Option("--rewards", help="Also run the reward functions, on two rows and their gold answers.")
    ] = False,
    json: Json = False,
) -> None:
    words = names or []
    overrides = [word for word in words if "=" in word and not (word.endswith(".yaml") and Path(word).exists())]
    specs = [word for word in words if word not in overrides]
    entries = check_specs(specs, overrides)
    if rewards:
        add_rewards(entries, overrides, every=bool(specs))
    ok = all(entry["ok"] for entry in entries)
    if json:
        console.print_json({"schema": 1, "ok": ok, "specs": entries})
        raise typer.Exit(exits.OK if ok else exits.USAGE)
    for entry in entries:
        if entry["error"] is None:
            console.print_text(verdict(entry))
        else:
            said = str(entry["error"])
            console.print_error(said if entry["name"] in said else f"{entry['name']}: {said}")
        if entry.get("rewards"):
            print_rewards(entry["name"], entry["rewards"])
    raise typer.Exit(exits.OK if ok else exits.USAGE)


def check_specs(names: Sequence[str], overrides: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One entry per name (default: every experiment and sweep): kind, name, profiles, ok, error (the first).

    A name that means both has an entry each. Overrides without a name are settings of experiments only.
    """
    if names:
        return [entry for name in names for entry in _check_named(name, overrides)]
    experiments = [_check_experiment(name, overrides) for name in Library().files()]
    return experiments if overrides else experiments + [_check_sweep(name) for name in sweep_library().files()]


def add_rewards(entries: Sequence[dict[str, Any]], overrides: Sequence[str], *, every: bool) -> None:
    """Run the rewards of each sound experiment and add what came of it; `every`: also of tasks that are not custom.

    Where one fails, the entry is not ok any more; `error` stays that of the spec itself.
    """
    for entry in entries:
        if entry["kind"] == "experiment" and entry["ok"] and (every or is_custom(entry["name"])):
            entry["rewards"] = try_rewards(entry["name"], overrides)
            entry["ok"] = all(trial["ok"] for trial in entry["rewards"])


def verdict(entry: Mapping[str, Any]) -> str:
    """The line of a sound spec: which file was checked, in which profiles, and what of its rewards is known."""
    kind, profiles = "sweep" if entry["kind"] == "sweep" else "spec", entry["profiles"]
    line = f"{entry['name']}: {kind} valid in profile{'' if len(profiles) == 1 else 's'} {', '.join(profiles)}"
    if entry["not_tried"]:
        line += f"; its task was not tried: {entry['not_tried']}"
    if entry["trainer_not_tried"]:
        line += f"; its trainer was not tried: {entry['trainer_not_tried']}"
    if entry.get("rewards"):
        return f"{line}; its rewards {'were tried and are sound' if entry['ok'] else 'fail'}"
    return f"{line}; its rewards were not run (--rewards)" if kind == "spec" and is_custom(entry["name"]) else line


def _check_named(name: str, overrides: Sequence[str]) -> list[dict[str, Any]]:
    try:
        kinds = kinds_of(name)
    except UserError as error:
        return [_entry("experiment", name, (), error)]
    check = {"experiment": _check_experiment, "sweep": _check_sweep}
    return [check[kind](name, overrides) for kind in kinds]


def _check_experiment(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    revisions = revisions_of(Home.locate())
    profiles: tuple[str, ...] = ()
    missing, trainer_missing = "", ""
    try:
        profiles = load(name, overrides=overrides, revisions=revisions).profiles
        for profile in profiles:
            spec = load(name, profile=profile, overrides=overrides, revisions=revisions).spec
            check_fit(spec)
            check_map(spec)
            trainer_missing = missing_package(spec) or trainer_missing
            try:
                check_task(spec)  # a task can refuse what a type cannot: more problems than there are
            except MissingPackageError as error:  # which another machine may have
                missing = error.message
    except UserError as error:
        return _entry("experiment", name, profiles, error)
    return _entry("experiment", name, profiles, not_tried=missing, trainer_not_tried=trainer_missing)


def _check_sweep(name: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    revisions = revisions_of(Home.locate())
    profiles: tuple[str, ...] = ()
    try:
        profiles = load_sweep(name, overrides=overrides, revisions=revisions).profiles
        for profile in profiles[1:]:
            load_sweep(name, profile=profile, overrides=overrides, revisions=revisions)
    except UserError as error:
        return _entry("sweep", name, profiles, error)
    return _entry("sweep", name, profiles)


def _entry(
    kind: str,
    name: str,
    profiles: Sequence[str],
    error: UserError | None = None,
    *,
    not_tried: str = "",
    trainer_not_tried: str = "",
) -> dict[str, Any]:
    text = None if error is None else str(error)
    known = {"kind": kind, "name": name, "profiles": list(profiles), "ok": error is None, "error": text}
    return {**known, "not_tried": not_tried or None, "trainer_not_tried": trainer_not_tried or None}
