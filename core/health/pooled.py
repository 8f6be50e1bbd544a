"""What several runs of one setup say together: findings of one id merged, collapses after updates counted over all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from core.health.case import Case, bounded
from core.health.examine import Rule, asked, examine, importance, ranked
from core.health.finding import Finding, Row, all_invalid
from core.health.rules.first_update import collapse_at_first_updates
from core.health.rules.rollout_mode import agrees, contrast_of, fisher_p, is_tied, pairs, rollout_finding, ruled_out

_SEEN_IN = ("completions/valid", "reward/mean", "reward/std", "completions/length", "entropy", "kl", "grad_norm")
_TOO_COMMON = 2  # columns of two steps that are equal: fewer may be equal by chance


def examine_runs(
    cases: Sequence[Case], ask: Callable[[Rule, Case], Sequence[Finding]] = asked, names: Sequence[str] = ()
) -> list[Finding]:
    """The findings of all runs as one list: for one run what `examine` gives, [] for none.

    Of an id that several runs have the most severe and certain finding stands, with `runs: "2 of 3"` in its evidence
    and `shown_by`: the name of the run that its numbers are of (by default `run 1`, ...). `rollout-mode` is judged on
    the steps of all: logs of a few steps each say more together than alone.
    """
    if len(cases) == 1:
        return examine(cases[0], ask)
    named = names or [f"run {number}" for number, _ in enumerate(cases, 1)]
    by_run = [examine(case, ask) for case in cases]
    merged = dict[str, Finding]()
    told = [_told_of(finding, name) for name, found in zip(named, by_run, strict=True) for finding in found]
    for finding in sorted(told, key=importance):
        merged.setdefault(finding.id, finding)
    together = _rollout_mode([bounded(case) for case in cases])
    if together is not None and (
        (alone := merged.get(together.id)) is None or importance(together) <= importance(alone)
    ):
        merged[together.id] = together
    return ranked([_counted(finding, by_run) for finding in merged.values()])


def _told_of(finding: Finding, name: str) -> Finding:
    return replace(finding, evidence={**finding.evidence, "shown_by": name})


def _counted(finding: Finding, by_run: Sequence[Sequence[Finding]]) -> Finding:
    runs = sum(any(one.id == finding.id for one in findings) for findings in by_run)
    return replace(finding, evidence={**finding.evidence, "runs": f"{runs} of {len(by_run)}"})


def _rollout_mode(cases: Sequence[Case]) -> Finding | None:
    """The contrast of all steps that follow each other, else what all first updates show; None where neither speaks."""
    usable = [case for case in cases if case.averaged_over == 1 and not _sampler_agrees(case)]
    followed = _once_each([pair for case in usable for pair in pairs(case.rows)])
    c = contrast_of(followed, all_invalid)
    if not is_tied(c):
        return next(iter(collapse_at_first_updates(_apart(usable))), None)
    p, healed = fisher_p(c), c.collapsed_and_skipped - c.still_collapsed
    alone = next(iter(collapse_at_first_updates(_apart(usable))), None)
    sure = alone is not None and bool(alone.evidence["at_lr_0"])
    return rollout_finding(
        usable[0],
        summary=(
            f"in {len(cases)} runs {c.collapsed_after_update} of {c.after_update} steps after an update were "
            f"all-invalid, {c.collapsed_after_skip} of {c.after_skip} after a skipped one (p = {p:.0e}), and {healed} "
            f"of {c.collapsed_and_skipped} healed without an update: the weights are sound and the rollout is not "
            "(sampling in train mode, a dropped KV cache)"
            + ("; a first update at a learning rate of exactly 0 was followed by a collapse too" if sure else "")
            + ("" if sure else ", or prompts come in a fixed order that does the same")
        ),
        evidence={**asdict(c), "healed": healed, "p": p},
        rules_out=ruled_out(usable[0], c, {}),
        sure=sure,
        grave=sure,
    )


def _sampler_agrees(case: Case) -> bool:
    return bool(agrees(case, filter(all_invalid, case.steps)))


def _once_each(followed: Sequence[tuple[Row, Row]]) -> list[tuple[Row, Row]]:
    """Pairs of steps without those that two logs of one run share."""
    different = dict[object, tuple[Row, Row]]()
    for index, pair in enumerate(followed):
        different.setdefault(_identity(pair) or index, pair)
    return list(different.values())


def _apart(cases: Sequence[Case]) -> list[Case]:
    """One case of each first update: logs that overlap show it twice, and the longest says most."""
    different = dict[object, Case]()
    for index, case in enumerate(sorted(cases, key=lambda case: -len(case.rows))):
        first = next((pair for pair in pairs(case.rows) if pair[0].get("update") == 1), None)
        different.setdefault((first and _identity(first)) or index, case)
    return list(different.values())


def _identity(pair: tuple[Row, Row]) -> tuple[object, ...] | None:
    """What tells two steps of one run from those of another with the same numbering; None where too little is known."""
    known = tuple((name, row[name]) for row in pair for name in _SEEN_IN if row.get(name) is not None)
    return (pair[0].get("step"), *known) if len(known) > 2 * _TOO_COMMON else None
