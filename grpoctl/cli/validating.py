"""Loads experiments and sweeps in every profile they have and collects what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.config.run import check_fit
from core.errors import UserError
from core.tasks.registry import check_task
from grpoctl.config import Library, load
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.sweeps.loading import kinds_of, load_sweep, sweep_library


def check(names: Sequence[str], overrides: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One entry per name (default: every experiment and sweep): kind, name, profiles, ok, error (the first found).

    A name that means both has an entry each. Overrides without a name are settings of experiments only.
    """
    if names:
        return [entry for name in names for entry in _check_named(name, overrides)]
    experiments = [_check_experiment(name, overrides) for name in Library().files()]
    return experiments if overrides else experiments + [_check_sweep(name) for name in sweep_library().files()]


def add_rewards(checked: Sequence[dict[str, Any]], overrides: Sequence[str], *, every: bool) -> None:
    """Run the rewards of each sound experiment and add what came of it; `every`: also of tasks that are not custom.

    Where one fails, the entry is not ok any more; `error` stays that of the spec itself.
    """
    from grpoctl.cli.trying_rewards import is_custom, try_rewards

    for entry in checked:
        if entry["kind"] == "experiment" and entry["ok"] and (every or is_custom(entry["name"])):
            entry["rewards"] = try_rewards(entry["name"], overrides)
            entry["ok"] = all(one["ok"] for one in entry["rewards"])


def verdict(entry: Mapping[str, Any]) -> str:
    """What a sound spec's line says: which file was checked, in which profiles, and what of its rewards is known."""
    from grpoctl.cli.trying_rewards import is_custom

    kind, profiles = "sweep" if entry["kind"] == "sweep" else "spec", entry["profiles"]
    line = f"{entry['name']}: {kind} valid in profile{'' if len(profiles) == 1 else 's'} {', '.join(profiles)}"
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
    try:
        profiles = load(name, overrides=overrides, revisions=revisions).profiles
        for profile in profiles:
            spec = load(name, profile=profile, overrides=overrides, revisions=revisions).spec
            check_fit(spec)
            check_task(spec)  # a task can refuse what a type cannot: more problems than there are
    except UserError as error:
        return _entry("experiment", name, profiles, error)
    return _entry("experiment", name, profiles)


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


def _entry(kind: str, name: str, profiles: Sequence[str], error: UserError | None = None) -> dict[str, Any]:
    told = None if error is None else str(error)
    return {"kind": kind, "name": name, "profiles": list(profiles), "ok": error is None, "error": told}
