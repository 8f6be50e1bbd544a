"""Loads specs in every profile they have and collects what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.errors import UserError
from core.spec.fit import check_fit
from core.tasks import registry
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.specs import Library, load


def check(names: Sequence[str], overrides: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One entry per name (default: every experiment): name, profiles, ok, error (the first found)."""
    return [_check_one(name, overrides) for name in names or list(Library().files())]


def _check_one(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    revisions = revisions_of(Home.locate())
    profiles: tuple[str, ...] = ()
    try:
        profiles = load(name, overrides=overrides, revisions=revisions).profiles
        for profile in profiles:
            spec = load(name, profile=profile, overrides=overrides, revisions=revisions).spec
            check_fit(spec)
            registry.build(spec.task)  # a task can refuse what a type cannot: more problems than there are
    except UserError as error:
        return {"name": name, "profiles": list(profiles), "ok": False, "error": str(error)}
    return {"name": name, "profiles": list(profiles), "ok": True, "error": None}
