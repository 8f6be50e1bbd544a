"""A collapse right after a run's first update: what a log of three steps says of the sampler, and several together.

Weights that an update at a learning rate of 0 left as they were are those that drew the sound completions before it, so
one such step decides what no other does. Counts over many updates: core.health.rules.rollout_mode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.health.case import Case
from core.health.finding import Finding, Row, RuledOut
from core.health.rules.rollout_mode import (
    COLUMNS,
    Contrast,
    Sees,
    agrees,
    degenerate,
    fisher_p,
    rollout_finding,
    updated,
)
from core.health.steps import number, values_of

ONCE = "cache-disabled-by-checkpointing"  # a line that a process prints once: when it first trains
UNLIKELY = 0.05  # p over prompts: three collapsed ones after three sound ones have 1 / C(6, 3)
SIGNIFICANT = 1e-3
NEARLY_ALWAYS = 0.9  # of the steps after an update: a mode that updates leave behind is left behind by all of them


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstUpdate:
    """The step of a run's first update, and what was drawn up to it and on the very next step."""

    metric: str
    step: int
    before: tuple[float, ...]  # the column up to that step
    after: float  # and on the next one
    at_rate_0: bool  # the update moved no weight
    lines: tuple[str, ...]  # what libraries printed of caches and checkpointing at that update and the next sampling
    healed: int  # collapsed steps without an update that a sound one followed
    repetitive: bool  # what the collapsed steps wrote repeats itself, and what others wrote does not
    completions: tuple[int, int] | None  # drawn up to the update, and on the next step
    prompts: Contrast | None  # prompts none of whose completions was valid: of the next step, and of those before

    @property
    def p(self) -> float | None:
        """Of so many collapsed prompts on that step by chance: with the weights the same, prompts are exchangeable."""
        return None if self.prompts is None else fisher_p(self.prompts)


def first_update(case: Case) -> FirstUpdate | None:
    """The first update where all was sound up to it and all collapsed right after, as after each later one.

    None where sampler and trainer were measured to agree on the collapsed steps, and where nothing speaks for the
    sampler: neither a rate of 0, nor a library's line just then, nor healing of text that repeats itself.
    """
    rows = case.steps
    at = next((i for i, row in enumerate(rows) if updated(row)), len(rows))
    if case.averaged_over > 1 or at + 1 >= len(rows) or _apart(rows[at], rows[at + 1]):
        return None
    for metric, sound, collapsed in COLUMNS:
        before = values_of(rows[: at + 1], metric)
        now = number(rows[at + 1], metric)
        if not before or now is None or not all(map(sound, before)) or not collapsed(now):
            continue
        pairs = [(one, two) for one, two in zip(rows[at:], rows[at + 1 :], strict=False) if not _apart(one, two)]
        after = [value for one, two in pairs if updated(one) and (value := number(two, metric)) is not None]
        broken = [row for row in rows[at + 1 :] if (value := number(row, metric)) is not None and collapsed(value)]
        if sum(map(collapsed, after)) < NEARLY_ALWAYS * len(after) or agrees(case, broken):
            continue
        known = FirstUpdate(
            metric=metric,
            step=int(rows[at]["step"] or 0),
            before=tuple(before),
            after=now,
            at_rate_0=_at_rate_0(case, rows, at),
            lines=_lines(case, rows[at]),
            healed=_healed(pairs, metric, sound, collapsed),
            repetitive=degenerate(case, broken),
            completions=_completions(case, rows, at),
            prompts=_prompts(case, rows, at),
        )
        return known if known.at_rate_0 or known.lines or (known.healed and known.repetitive) else None
    return None


def _apart(row: Row, later: Row) -> bool:
    """Whether steps may lie between two rows."""
    return (later.get("step") or 0) - (row.get("step") or 0) != 1


def _healed(pairs: Sequence[tuple[Row, Row]], metric: str, sound: Sees, collapsed: Sees) -> int:
    known = [(one.get("update"), number(one, metric), number(two, metric)) for one, two in pairs]
    return sum(
        update == 0 and one is not None and two is not None and collapsed(one) and sound(two)
        for update, one, two in known
    )


def _at_rate_0(case: Case, rows: Sequence[Row], at: int) -> bool:
    """Whether that update's rate was exactly 0: by its row, where others show that rates are not rounded, or by the
    settings, where it is known to be the first of its process.
    """
    rate = rows[at].get("learning_rate")
    if rate:
        return False
    said = {notice.step for notice in case.notices if notice.kind == ONCE}
    if case.settings.first_update_lr == 0.0 and (rows[0].get("step") == 1 or rows[at].get("step") in said):
        return True
    return rate == 0.0 and any(row.get("learning_rate") for row in rows[at + 1 :])


def _lines(case: Case, row: Row) -> tuple[str, ...]:
    """What was printed of caches and checkpointing at the first update; () where its process had trained before."""
    step = int(row.get("step") or 0)
    if not any(notice.kind == ONCE and notice.step == step for notice in case.notices):
        return ()
    return tuple(n.text for n in case.notices if "checkpointing" in n.kind and n.step in (step, step + 1))


def _completions(case: Case, rows: Sequence[Row], at: int) -> tuple[int, int] | None:
    by_settings = (case.settings.num_generations or 0) * (case.settings.prompts_per_step or 0)
    drawn = [number(row, "samples") or by_settings for row in rows[: at + 2]]
    return (round(sum(drawn[:-1])), round(drawn[-1])) if all(drawn) else None


def _prompts(case: Case, rows: Sequence[Row], at: int) -> Contrast | None:
    valid: defaultdict[tuple[int, str], list[bool]] = defaultdict(list)
    for sample in case.samples:
        if sample.group is not None and sample.valid is not None:
            valid[sample.step, sample.group].append(sample.valid)
    last = int(rows[at + 1].get("step") or 0)
    next_ = [not any(some) for (step, _), some in valid.items() if step == last]
    before = [not any(some) for (step, _), some in valid.items() if step < last]
    if not next_ or not before:
        return None
    return Contrast(
        after_update=len(next_),
        collapsed_after_update=sum(next_),
        after_skip=len(before),
        collapsed_after_skip=sum(before),
    )


def collapse_at_first_update(case: Case) -> Sequence[Finding]:
    """An error where completions collapsed right after an update that moved no weight, with anything beside it.

    A warning where only the rate says so, or only what libraries printed. Documented with `rollout-mode`.
    """
    seen = first_update(case)
    return () if seen is None else (_finding((case,), (seen,)),)


def collapse_at_first_updates(cases: Sequence[Case]) -> Sequence[Finding]:
    """The same of several runs of one setup, whose prompts and steps add up. No two cases are of the same steps."""
    known = [(case, seen) for case in cases if (seen := first_update(case)) is not None]
    return (_finding([case for case, _ in known], [seen for _, seen in known]),) if known else ()


def _finding(cases: Sequence[Case], seen: Sequence[FirstUpdate]) -> Finding:
    first, p, unmoved = seen[0], _pooled_p(seen), all(one.at_rate_0 for one in seen)
    lines, repetitive = any(one.lines for one in seen), any(one.repetitive for one in seen)
    healed = sum(one.healed for one in seen)
    unlikely = p is not None and p <= UNLIKELY
    grave = unmoved and (lines or repetitive or healed > 0 or unlikely)
    sure = unmoved and len(seen) > 1 and p is not None and p < SIGNIFICANT
    why = f"the first update (step {first.step}) had a learning rate of exactly 0 and moved no weight"
    of = "" if len(seen) == 1 else f"in each of {len(seen)} runs "
    counts = [one.completions for one in seen if one.completions is not None]
    drawn = (
        f" ({sum(after for _, after in counts)} completions, after {sum(before for before, _ in counts)} before it)"
        if len(counts) == len(seen)
        else ""
    )
    reading = "the rollout changed while the weights had not" if unmoved else "the rollout may have changed"
    finding = rollout_finding(
        cases[0],
        summary=(
            f"{of}{first.metric} was {min(min(one.before) for one in seen):.3g} or better up to the first update and "
            f"{max((one.after for one in seen), key=abs):.3g} on the very next step{drawn}"
            + (f"; {why}" if unmoved else "")
            + ("; libraries said then that checkpointing dropped the cache" if lines else "")
            + ("; what was written repeats itself" if repetitive else "")
            + (f"; {healed} such step{'s' * (healed > 1)} healed without an update" if healed else "")
            + f": {reading} (sampling in train mode, a dropped KV cache)"
            + ("" if unmoved else ", or the update's size broke the policy")
            + ("" if sure else ", or the prompts of that step are hard ones")
        ),
        evidence={
            "first_update_step": first.step,
            "metric": first.metric,
            "before": min(min(one.before) for one in seen),
            "after": first.after,
            "at_lr_0": float(unmoved),
            "healed": healed,
            "samples_share": "completions of one step share its prompts and weights: the unit of p is the prompt",
            **({} if p is None else {"p": p}),
            **({} if not counts else {
                "completions_before": sum(before for before, _ in counts),
                "completions_after": sum(after for _, after in counts),
            }),
        },
        rules_out=_ruled_out(cases[0], first, why) if unmoved else (),
        sure=sure,
        grave=grave,
    )  # fmt: skip
    return finding if grave or unmoved or lines else replace(finding, confidence="weak")


def _pooled_p(seen: Sequence[FirstUpdate]) -> float | None:
    """Over the prompts of all runs; None where those of one are not known."""
    known = [one.prompts for one in seen if one.prompts is not None]
    if len(known) < len(seen):
        return None
    return fisher_p(
        Contrast(
            after_update=sum(one.after_update for one in known),
            collapsed_after_update=sum(one.collapsed_after_update for one in known),
            after_skip=sum(one.after_skip for one in known),
            collapsed_after_skip=sum(one.collapsed_after_skip for one in known),
        )
    )


def _ruled_out(case: Case, seen: FirstUpdate, why: str) -> tuple[RuledOut, ...]:
    k = case.settings.num_generations
    there = f"{why}, and the collapse was there on step {seen.step + 1}"
    return (
        *(RuledOut(id=id_, why=there) for id_ in ("policy-collapse", "damaged-weights", "learning-rate", "dead-run")),
        RuledOut(
            id="group-size" if k is None else f"num_generations={k}",
            why=f"advantages act through the weights alone, and {there}",
        ),
    )
