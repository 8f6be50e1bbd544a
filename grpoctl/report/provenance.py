"""Where the numbers of a report come from, and the commands that make them again.

Left out is what tells of a machine and its user and not of the numbers: host names, paths, environment variables.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from grpoctl.analysis.collect import RunRecord
from grpoctl.analysis.sweeps.advice import again
from grpoctl.credentials import without_credentials
from grpoctl.files import read_json
from grpoctl.report.document import Commands
from grpoctl.runs.run_dir import RunDir
from grpoctl.sections import Section
from grpoctl.wording import plural

_PACKAGES = ("grpoctl", "torch", "transformers", "numpy")
_SHORT = 12  # digits of a hash


def provenance_of(run: RunRecord) -> dict[str, Any]:
    """run, ended (UTC), spec (sha), commit, dirty, python, model, attempts and packages; null where not recorded."""
    document = None if run.path is None else read_json(RunDir(path=run.path).provenance)
    attempts: Sequence[Mapping[str, Any]] = (document or {}).get("attempts") or ()
    attempt = attempts[-1] if attempts else {}
    git, model, versions = (attempt.get(key) or {} for key in ("git", "model", "versions"))
    return {
        "run": run.run_id,
        "ended": None if run.ended == 0 else _minute(run.ended),
        "spec": str(run.result.get("spec_sha") or "")[:_SHORT] or None,
        "commit": git.get("commit"),
        "dirty": git.get("dirty"),
        "python": attempt.get("python"),
        "model": None if model.get("source") is None else _without_folders(str(model["source"])),
        "attempts": len(attempts) or None,
        "packages": {name: versions.get(name) for name in _PACKAGES if versions.get(name)},
    }


def _without_folders(source: str) -> str:
    """A model's name; of a path on somebody's disk the last word of it."""
    return PurePath(source).name if PurePath(source).is_absolute() else source


def _minute(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def provenance(runs: Sequence[RunRecord]) -> Section:
    """A row for all runs that come from the same spec, code, versions and model."""
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        source = provenance_of(run)
        commit = str(source["commit"] or "")[:_SHORT]
        code = f"{commit}{', with changes' if source['dirty'] else ''}" if commit else "not in a repository"
        versions = ", ".join(f"{name} {version}" for name, version in source["packages"].items())
        facts = (run.result.get("recorded_as"), source["spec"], code, source["python"], versions, source["model"])
        key = tuple(str(fact or "-") for fact in facts)
        alike.setdefault(key, []).append(source)
    rows = []
    for key, sources in alike.items():
        ends = sorted(str(source["ended"]) for source in sources if source["ended"])
        span = "-" if not ends else ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"
        names = (
            str(sources[0]["run"]) if len(sources) == 1 else f"{plural(len(sources), 'run')}: {sources[0]['run']}, …"
        )
        rows.append((names, *key, span))
    columns = ("runs", "recorded as", "spec", "commit", "Python", "packages", "model", "ended (UTC)")
    return Section(title="Where the numbers come from", columns=columns, rows=tuple(rows))


def run_command(runs: Sequence[RunRecord]) -> str:
    """`grpoctl run p31 -p tiny --seeds 0,1,2 K=V`: the runs of one spec once more."""
    result = runs[0].result
    seeds = ",".join(str(run.seed) for run in runs)
    words = ["grpoctl", "run", str(result["experiment"]), *_profile(result), "--seeds", seeds]
    return _line([*words, *map(str, _overrides(result))])


def study_command(document: Mapping[str, Any]) -> str:
    """`grpoctl sweep lr-study -p tiny`: the study once more, as it was asked for, on its seeds and budget."""
    words = again(document, seeds=",".join(map(str, document.get("seeds") or ())))
    return _line([PurePath(word).name if PurePath(word).is_absolute() else word for word in words])


def repeat(commands: Sequence[tuple[str, str]]) -> Commands:
    """The block of commands."""
    return Commands(title="The commands that repeat it", commands=tuple(commands))


def command(*words: str) -> str:
    """A grpoctl command for a shell."""
    return _line(["grpoctl", *words])


def _line(words: Sequence[str]) -> str:
    return shlex.join(without_credentials(word) for word in words)


def _profile(result: Mapping[str, Any]) -> list[str]:
    profile = result.get("profile")
    return [] if profile is None else ["-p", str(profile)]


def _overrides(result: Mapping[str, Any]) -> Sequence[object]:
    listed = result.get("overrides")
    return listed if isinstance(listed, (list, tuple)) else ()
