"""What stands between the numbers of a comparison and a conclusion: settings that differ, and what must be said.

What is here: which settings differ and which of them can have made no difference, which runs are left out, and the
notes, the heaviest first. What is not: the numbers (compare) and their intervals (contrasts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from core.config.policy import LM
from core.errors import GrpoError
from core.health.before.inert import inert_in_all
from core.health.finding import SEVERITIES
from core.health.statistics import mean
from grpoctl.analysis.collect import Leaves, RunRecord, number
from grpoctl.analysis.outcome import unsound_by
from grpoctl.config import read_resolved
from grpoctl.config.schema import fields
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import UNDISTURBED
from grpoctl.wording import metric_text, plural, setting_text

# What tells runs apart without changing what they do.
_IDENTITY = frozenset({"name", "title", "question", "source", "revision", "profile", "expects", "recorded", "seed"})
# Guards act by stopping a run only, checkpoints not at all: where every run ended by itself neither made a difference.
_INERT_UNLESS_STOPPED = ("guards.", "checkpoints.")
_RULERS = ("task.", "evaluation.")
# Keys that change what eval/* measures, and with it what a value is worth. What changes training only is not among
# them: train_prompts leaves the held-out problems alone, and overlong penalties stay out of evaluations.
_YARDSTICK = (
    "task.name", "task.data_seed", "task.eval_prompts", "task.domains", "task.operator_cost", "task.digits",
    "task.path", "task.score", "task.format_reward", "task.data", "task.eval_data", "task.rewards",
    "task.shots", "task.pool", "task.world",
    "task.pictures", "task.held_out", "task.patch", "task.degradations", "task.w_psnr", "task.w_ssim",
    "evaluation.num_generations_eval", "evaluation.temperature",
)  # fmt: skip
_EXACTNESS = ("task.eval_prompts", "evaluation.num_generations_eval")  # of them: how well it is measured
_HOW_OFTEN = "evaluation.eval_steps"  # the held-out draws are the same each time
_SCHEDULE = frozenset({"start", "end", "steps"})

Runs = Sequence[RunRecord]
Changed = Mapping[str, tuple[object, ...]]  # dotted key -> its value on each side


def changed_settings(*specs: Leaves) -> dict[str, tuple[object, ...]]:
    """Dotted key -> its value on each side, where they are not all equal; a setting that a side lacks is None there.

    A key that came later is not written while it stands at its default: then the side's value is that.
    """
    keys = sorted({key for spec in specs for key in spec if key.split(".", 1)[0] not in _IDENTITY})
    values = {key: tuple(_stated(key, spec) for spec in specs) for key in keys}
    return {key: of for key, of in values.items() if any(value != of[0] for value in of)}


def _stated(key: str, spec: Mapping[str, object]) -> object:
    """The value of a key, or the default of one that is not written in a part that is."""
    parent = key.rpartition(".")[0]
    if key in spec or not any(other.startswith(f"{parent}.") for other in spec):
        return spec.get(key)
    stages = {
        name.split(".")[1]: spec.get(".".join([*name.split(".")[:2], "kind"]), "grpo")
        for name in spec
        if name.startswith("stages.")
    }
    tree = {
        "task": {"name": spec.get("task.name")},
        "policy": {"kind": spec.get("policy.kind", LM)},
        "stages": {name: {"kind": kind} for name, kind in stages.items()},
    }
    field = fields(tree).get(tuple(key.split(".")))
    return field.default if field is not None and isinstance(field.default, (bool, int, float, str)) else None


def inert_settings(sides: Sequence[Runs], changed: Changed) -> dict[str, str]:
    """Why a setting that differs can have made no difference; none of those that may have."""
    reasons = {}
    if all(run.status in UNDISTURBED for side in sides for run in side):
        reasons = {
            key: "it acts by stopping or saving a run only, and no run was stopped"
            for key in changed
            if key.startswith(_INERT_UNLESS_STOPPED)
        }
    try:
        specs = [read_resolved(RunDir(path=side[0].path).spec) for side in sides if side[0].path is not None]
    except GrpoError:  # of another version: nothing is claimed
        return reasons
    if len(specs) == len(sides):
        reasons |= {key: why for key in changed if (why := inert_in_all(specs, key)) is not None}
    return reasons


def knobs(changed: Changed, *specs: Leaves) -> list[str]:
    """The changed settings, but a schedule's keys count as one, and so does a part that one side lacks altogether."""
    keys: dict[str, None] = {}
    for key in changed:
        parent, _, leaf = key.rpartition(".")
        schedule = leaf in _SCHEDULE and all(f"{parent}.{part}" in side for part in _SCHEDULE for side in specs)
        absent = any(side.get(parent, 0) is None for side in specs)
        keys.setdefault(parent if schedule or absent else key)
    return list(keys)


def unsound(run: RunRecord) -> str | None:
    """Why the numbers of a run are not those of the policy that it trained; None where nothing says so."""
    return unsound_by(run.result)


def finding_ids(run: RunRecord, severity: str) -> list[str]:
    """The ids of a run's findings of this severity."""
    entries = run.result.get("findings")
    entries = entries if isinstance(entries, list) else []
    return [str(entry["id"]) for entry in entries if entry.get("severity") == severity]


def findings_of(runs: Runs) -> dict[str, dict[str, Any]]:
    """Id of each finding of a side's runs -> its gravest `severity`, the ids of the runs that have it `at_severity`,
    and of all `runs` that have it.
    """
    findings: dict[str, dict[str, Any]] = {}
    found = [(severity, run, name) for severity in SEVERITIES for run in runs for name in finding_ids(run, severity)]
    for severity, run, name in found:
        entry = findings.setdefault(name, {"severity": severity, "at_severity": [], "runs": []})
        if run.run_id not in entry["runs"]:
            entry["runs"].append(run.run_id)
            if severity == entry["severity"]:
                entry["at_severity"].append(run.run_id)
    return findings


def how_many(entry: Mapping[str, Any], total: int) -> str:
    """How many of a side's runs have a finding of `findings_of`: `1 of 3` at its severity, and milder in others."""
    at, milder = len(entry["at_severity"]), len(entry["runs"]) - len(entry["at_severity"])
    return f"{at} of {total}" + (f" (milder in {milder})" if milder else "")


def notes(sides: Sequence[Runs], changed: Changed, inert: Mapping[str, str], judged: Sequence[int]) -> tuple[str, ...]:
    """What stands between the numbers and a conclusion about the sides that are `judged`, the heaviest first."""
    specs = [side[0].spec for side in sides]
    of_judged = [specs[place] for place in judged]
    return (
        *_fault(specs),
        *_errors(sides, judged),
        *_same_runs(sides, changed),
        *_attribution(of_judged, changed_settings(*of_judged), inert),
        *_adaptive_starts(specs, changed),
        *_ruler(changed),
        *_budget(sides),
        *_seeds(sides),
        *_endings(sides),
    )


def _named(letters: Sequence[str]) -> str:
    """`A`, `A and B`, `A, B and C`."""
    return " and ".join([", ".join(letters[:-1]), letters[-1]] if len(letters) > 1 else letters)


def _fault(specs: Sequence[Leaves]) -> list[str]:
    faults = [_listed(spec.get("faults")) for spec in specs]
    if not any(faults):
        return []
    if all(fault == faults[0] for fault in faults):
        everyone = "both" if len(specs) == 2 else "all"
        return [f"{everyone} sides ran with a fault switched on: {faults[0]}"]
    by_side = zip(ascii_uppercase, faults, strict=False)
    with_one = [f"{letter} with {fault}" for letter, fault in by_side if fault]
    without = [letter for letter, fault in zip(ascii_uppercase, faults, strict=False) if not fault]
    return [
        f"a fault was switched on: {' and '.join(with_one)}" + (f"; {_named(without)} without any" if without else "")
    ]


def _listed(faults: object) -> str:
    return setting_text(list(faults))[1:-1] if isinstance(faults, (list, tuple)) else ""


def _errors(sides: Sequence[Runs], judged: Sequence[int]) -> list[str]:
    """A side with an error: until it is explained, nothing about it can be attributed to the settings."""
    notes = []
    for place, side in enumerate(sides):
        with_error = [run for run in side if finding_ids(run, "error")]
        if with_error:
            names = ", ".join(dict.fromkeys(name for run in with_error for name in finding_ids(run, "error")))
            until = ": until it is explained, no difference can be attributed to the settings" * (place in judged)
            notes.append(
                f"{ascii_uppercase[place]} has an error in {len(with_error)} of {plural(len(side), 'run')} ({names})"
                f"{until}; evidence: grpoctl diagnose {with_error[0].run_id}"
            )
    return notes


def _same_runs(sides: Sequence[Runs], changed: Changed) -> list[str]:
    ids = [run.run_id for side in sides for run in side]
    common = sorted({name for name in ids if ids.count(name) > 1})
    if common:
        sides_text = "both sides" if len(sides) == 2 else "several sides"
        return [f"{', '.join(common)} {'is' if len(common) == 1 else 'are'} on {sides_text}"]
    return [] if changed else ["no setting differs: any difference is noise or a code change"]


def _attribution(specs: Sequence[Leaves], changed: Changed, inert: Mapping[str, str]) -> list[str]:
    weighing = {key: values for key, values in changed.items() if key not in inert}
    count = len(knobs(weighing, *specs))
    alone = "either alone" if count == 2 else "any one alone"
    return [f"{count} settings differ: a difference cannot be attributed to {alone}"] if count > 1 else []


def _adaptive_starts(specs: Sequence[Leaves], changed: Changed) -> list[str]:
    """A beta that differs and that a rule moves on all sides is no other KL weight but another start of one."""
    keys = sorted(key for key in changed if key.removesuffix(".start").endswith(".beta"))
    adaptive = [key for key in keys if all(f"{key.partition('.beta')[0]}.adaptive_beta.rule" in side for side in specs)]
    return [
        f"{key} is only where an adaptive beta starts: sides that end alike do not say that beta does nothing"
        for key in adaptive
    ]


def is_yardstick(key: str) -> bool:
    """Whether a setting changes what eval/* measures, and with it what a value is worth."""
    return key == "task" or any(key == known or key.startswith(f"{known}.") for known in _YARDSTICK)


def measured_by(changed: Changed) -> list[str]:
    """The settings that differ and that say what is measured: problems, rewards, how answers are drawn."""
    return [key for key in changed if is_yardstick(key) and key not in _EXACTNESS]


def _ruler(changed: Changed) -> list[str]:
    rulers = ", ".join(key for key in changed if key.startswith(_RULERS) and key != _HOW_OFTEN)
    return [f"the evaluations themselves differ ({rulers}): eval/* is not the same measure"] if rulers else []


def _budget(sides: Sequence[Runs]) -> list[str]:
    used = [_sampled(side) for side in sides]
    if None in used or all(count == used[0] for count in used):
        return []
    shown = [metric_text("completions", count) for count in used]
    plans = [_plan(side[0].spec) for side in sides]
    first = f"A sampled {shown[0]}"
    others = [f"{letter} {count}" for letter, count in zip(ascii_uppercase[1:], shown[1:], strict=False)]
    text = f"unequal completions: {', '.join([first, *others])} per run"
    if not all(plans):
        return [text]
    return [f"{text} (planned K x B x steps: {_named(plans)})"]


def _sampled(runs: Runs) -> float | None:
    counts = [count for count in (run.value("completions") for run in runs) if count is not None]
    return mean(counts) if counts else None


def _plan(spec: Leaves) -> str:
    """`8 x 2 x 200 = 3200`, one per stage; empty where the spec does not say."""
    stages = dict.fromkeys(key.split(".")[1] for key in spec if key.startswith("stages."))
    plans = []
    for stage in stages:
        keys = ("num_generations", "prompts_per_step", "max_steps")
        factors = [number(spec.get(f"stages.{stage}.{key}")) for key in keys]
        if any(factor is None for factor in factors):
            return ""
        k, b, steps = (int(factor or 0) for factor in factors)
        plans.append(f"{k} x {b} x {steps} = {k * b * steps}")
    return " + ".join(plans)


def _seeds(sides: Sequence[Runs]) -> list[str]:
    notes = []
    single = [letter for letter, side in zip(ascii_uppercase, sides, strict=False) if len(side) == 1]
    if single:
        verb = "has" if len(single) == 1 else "have"
        notes.append(f"{_named(single)} {verb} one seed: no interval, no significance test")
    seeds = [sorted(run.seed for run in side) for side in sides]
    if any(of != seeds[0] for of in seeds):
        shown = [f"{letter} {', '.join(map(str, of))}" for letter, of in zip(ascii_uppercase, seeds, strict=False)]
        notes.append(f"the seeds differ ({'; '.join(shown)}): the sides cannot be paired by seed")
    return notes


def _endings(sides: Sequence[Runs]) -> list[str]:
    notes = []
    for letter, side in zip(ascii_uppercase, sides, strict=False):
        odd = [run for run in side if run.status not in UNDISTURBED]
        if odd:
            runs = ", ".join(f"{run.run_id} {run.status}" for run in odd)
            notes.append(f"{letter}: {len(odd)} of {plural(len(side), 'run')} did not end normally: {runs}")
    return notes
