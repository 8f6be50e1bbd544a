"""Collapses that the rollout's mode explains: broken after an update, sound after a step without one.

Or broken ever since an update at a learning rate of 0, which cannot have moved the weights (`standstill`): a run that
skips no step shows no healing, and a warm-up that begins at 0 shows as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import comb
from statistics import fmean, median

from core.health.case import Case
from core.health.finding import Decider, Finding, Row, RuledOut, StepTable, all_invalid, sampled, steps_of
from core.health.rules.integrity import max_gap_of
from core.health.steps import acted, number, values_of

NEARLY = 0.1  # share of valid completions: below it a few were rescued
LASTING = 5  # collapsed steps, at least
MOST = 0.95  # of the steps since
Sees = Callable[[float], bool]

COLUMNS: tuple[tuple[str, Sees, Sees], ...] = (  # column, whether a step is sound by it, whether it is collapsed
    ("completions/valid", lambda share: share >= 0.5, lambda share: share < NEARLY),
    ("completions/truncated", lambda share: share <= 0.5, lambda share: share >= MOST),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Standstill:
    """The step whose update moved nothing, and a column up to it (mean) and since (median)."""

    metric: str
    lr_0_step: int
    before: float
    since: float
    collapsed: int  # of the steps since
    steps_since: int


def standstill(case: Case) -> Standstill | None:
    """Where nothing but an update at a learning rate of 0 lies between sound steps and a lasting collapse.

    None where sampler and trainer were measured to agree on the collapsed steps.
    """
    rows = case.steps
    at = next((i for i, row in enumerate(rows) if updated(row)), len(rows))
    if case.averaged_over > 1 or at + 1 >= len(rows) or not _moved_nothing(case, rows, at):
        return None
    for metric, sound, collapsed in COLUMNS:
        before = values_of(rows[: at + 1], metric)
        since = [(row, value) for row in rows[at + 1 :] if (value := number(row, metric)) is not None]
        broken = [row for row, value in since if collapsed(value)]
        if not before or not all(map(sound, before)) or len(broken) < max(LASTING, MOST * len(since)):
            continue
        if any(sound(value) for _, value in since):
            continue  # now one and then the other: prompts that differ
        if broken[0] is rows[at + 1] and not agrees(case, broken):
            return Standstill(
                metric=metric,
                lr_0_step=int(rows[at]["step"] or 0),
                before=fmean(before),
                since=median(value for _, value in since),
                collapsed=len(broken),
                steps_since=len(since),
            )
    return None


def agrees(case: Case, rows: Iterable[Row]) -> bool | None:
    """Whether sampler and trainer agreed on most of these steps; None where that was not measured."""
    limit_at = max_gap_of(case.settings.dtype or "bfloat16", case.guards.max_logprob_gap)  # unknown: accuse no sampler
    known = [row for row in rows if "rollout/logprob_gap" in row]
    sound = [
        (gap := number(row, "rollout/logprob_gap")) is not None and gap <= limit_at(row.get("temperature") or 1.0)
        for row in known
    ]
    return sum(sound) > len(known) / 2 if known else None


def updated(row: Row) -> bool:
    """Whether the step made an update; in a log without such marks every step with a learning rate did."""
    return row["update"] == 1 if "update" in row else "learning_rate" in row


def _moved_nothing(case: Case, rows: Sequence[Row], at: int) -> bool:
    """Whether the first update's rate was exactly 0, and the step right after it shows that rates are not rounded."""
    if (rows[at + 1]["step"] or 0) - (rows[at]["step"] or 0) != 1:
        return False
    rate = rows[at].get("learning_rate")
    if rate is None and rows[0].get("step") == 1:
        return case.settings.first_update_lr == 0.0
    return rate == 0.0 and acted(rows[at + 1])


SIGNIFICANT = 1e-3
SEEN = 3
WORDS = 6  # of a text: fewer show no repetition

Collapsed = Callable[[Row], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """Steps that follow an update or a skipped one, and how many of each were all-invalid."""

    after_update: int
    collapsed_after_update: int
    after_skip: int
    collapsed_after_skip: int
    collapsed_and_skipped: int = 0  # all-invalid steps that skipped their update, and were followed by a step
    still_collapsed: int = 0  # ... by another all-invalid one


def pairs(table: StepTable) -> Iterator[tuple[Row, Row]]:
    """Each step that sampled something, behind the step right before it: a supervised step cannot collapse."""
    for before, after in pairwise(steps_of(table)):
        if sampled(after) and (after["step"] or 0) - (before["step"] or 0) == 1:
            yield before, after


def nearly_all_invalid(row: Row) -> bool:
    """Whether less than a tenth of a step's completions were valid."""
    valid = number(row, "completions/valid")
    return valid is not None and valid < NEARLY


def contrast(table: StepTable, collapsed: Collapsed = all_invalid) -> Contrast:
    """Counts over consecutive steps of the table. A step that does not say whether it made an update counts nowhere."""
    return contrast_of(list(pairs(table)), collapsed)


def contrast_of(followed: Sequence[tuple[Row, Row]], collapsed: Collapsed) -> Contrast:
    """The same over such pairs of steps, of one run or of several."""
    after_update = [after for before, after in followed if before.get("update") == 1]
    after_skip = [after for before, after in followed if before.get("update") == 0]
    after_collapse = [after for before, after in followed if before.get("update") == 0 and collapsed(before)]
    return Contrast(
        after_update=len(after_update),
        collapsed_after_update=sum(map(collapsed, after_update)),
        after_skip=len(after_skip),
        collapsed_after_skip=sum(map(collapsed, after_skip)),
        collapsed_and_skipped=len(after_collapse),
        still_collapsed=sum(map(collapsed, after_collapse)),
    )


def fisher_p(c: Contrast) -> float:
    """One-sided Fisher exact p: collapse at least this concentrated after updates if the update did not matter."""
    total, collapsed = c.after_update + c.after_skip, c.collapsed_after_update + c.collapsed_after_skip
    ways, tail, k = comb(total, collapsed), 0, c.collapsed_after_update
    term = comb(c.after_update, k) * comb(c.after_skip, collapsed - k)
    while term:  # exact: each term from the one before, since thousands of binomials would take seconds
        tail += term
        term = term * (c.after_update - k) * (collapsed - k) // ((k + 1) * (c.after_skip - collapsed + k + 1))
        k += 1
    return tail / ways


def tied_to_updates(case: Case) -> Contrast | None:
    """The contrast where it says that the rollout is at fault: all-invalid steps follow updates (p < 0.001) and heal.

    Healing must have been seen: at least three all-invalid steps that skipped their update, at most a tenth of them
    followed by another all-invalid step. A collapse that is updated at every step proves nothing about the weights.
    Steps with less than a tenth valid count as all-invalid where exactly 0 shows nothing. None where the gap between
    sampler and trainer was measured on the collapsed steps, and is rounding: their prompts are at fault then.
    """
    evidence = _tied(case)
    return None if evidence is None else evidence[0]


def _tied(case: Case) -> tuple[Contrast, Collapsed] | None:
    if case.averaged_over > 1:
        return None
    for collapsed in (all_invalid, nearly_all_invalid):
        c = contrast(case.rows, collapsed)
        if is_tied(c):
            return None if agrees(case, filter(collapsed, case.steps)) else (c, collapsed)
    return None


def is_tied(c: Contrast) -> bool:
    """Whether collapses follow updates (p < 0.001) and heal without one."""
    healed = c.collapsed_and_skipped >= SEEN and c.still_collapsed <= 0.1 * c.collapsed_and_skipped
    return bool(c.after_update and c.after_skip) and healed and fisher_p(c) < SIGNIFICANT


def rollout_mode(case: Case) -> Sequence[Finding]:
    """An error where steps collapse after updates and heal without one: sampler and trainer do not agree.

    A warning where the counts alone say so: prompts in a fixed order may do the same. A gap that was measured, an
    update at a learning rate of 0 that a collapse followed, what libraries printed, or text that repeats itself
    supports them. None of these proves anything by itself: a sound run can print the same.

    Damaged weights do not heal on a step that changes nothing. So the contrast "all-invalid after an update / after a
    skipped one" tells a rollout in the wrong mode from a policy that collapsed. The unit is the step: samples of a step
    are not independent. Prompts in a fixed order can look the same: a gap between sampler and trainer that was measured
    decides, in either direction. Where no step was skipped, `standstill` looks for an update that moved nothing.

    ## rollout-mode

    Severity: error (strong); warning (moderate) where the step counts are the only evidence.

    Means: completions were not drawn from the policy that was trained: train mode, dropout, a KV cache that gradient
    checkpointing dropped, or stale weights in the sampler.

    Looks at: `update` and `completions/valid` of consecutive steps. A step is collapsed when all its completions are
    invalid. Where too few steps are entirely invalid, less than a tenth valid counts as collapsed (a fallback may
    rescue some).

    1. Collapsed steps after an update against collapsed steps after a skipped one: Fisher's exact test, one-sided, p <
       0.001. Seven collapses after seven updates and none after six skipped ones are enough (p = 1 / C(13, 6) = 6e-4).
    2. Healing: at least three collapsed steps skipped their own update, and at most one in ten of the steps that
       followed them was collapsed. Weights that nothing changed do not mend themselves, so the weights were sound.
    3. What followed an update at a learning rate of exactly 0, where one is known (the first one of a warm-up): it
       moved nothing.
    4. What transformers and torch printed about caches and checkpointing, by line. Support only: a sound run prints it
       too.
    5. Whether most of what collapsed steps wrote repeats itself (half of the words came before), and what others wrote
       does not.

    Without healing (2) the rule is silent, however small p is: a policy that really collapsed stays collapsed. Two
    other patterns are enough by themselves:

    - No step was skipped, and the first update had a learning rate of exactly 0: sound up to that step (at least half
      valid, or at most half cut off), collapsed on the very next one and on 95 % of all since (less than a tenth valid,
      or 95 % cut off), none of them sound. The weights had not moved. Moderate; strong with 4. A TRL log suffices
      (`completions/clipped_ratio`, `learning_rate`).
    - The KL is too small. A policy that is d nats a token away from its start changes the probability of any event by
      at most sqrt(d x length / 2) (Pinsker). Where validity or truncation broke a guard's limit for good, by more than
      the KL of those first five steps allows, and that KL is under 0.01, it was not the policy. Moderate ("or the
      prompts changed there").

    A log of a few steps (core.health.rules.first_update) is judged by its first update: sound up to it, collapsed on
    the very next step and after every later update. An update at a rate of exactly 0 is decisive even once, since the
    weights that drew both are the same: an error (moderate) with the library lines of 4, with 5, with a step that
    healed, or where the prompts of that step were no chance (Fisher's exact test over prompts, p <= 0.05: three that
    collapsed after three that did not). Completions of one step are not independent given its prompts, so they are
    counted and the p is over prompts. The rate counts as 0 where its row says so and later rows are not 0, or where the
    schedule is known to begin at 0 and the update is the first of its process: the log begins at step 1, or the line
    "`use_cache=True` is incompatible with gradient checkpointing", printed once a process, stands in that step. Without
    any of these the same table is a warning where the library's lines stand there, and nothing otherwise. Several logs
    of one setup add up (core.health.pooled): strong from p < 0.001 over the prompts of all, steps that two logs share
    counted once.

    Confounder: prompts in a fixed order, with one hard prompt after each update, give the counts of 1 and 2 as well. So
    the rule is silent where `rollout/logprob_gap` was measured on the collapsed steps and is rounding; without a broken
    gap, 3 or 5 it names the order of prompts too and stays a warning. 4 does not help, and 3 excludes the weights but
    not the order of prompts.

    Rules out: `policy-collapse`, damaged weights, the learning rate, and the group size (advantages act through the
    weights alone).

    Do: `guards.rollout_integrity=stop`. In a trainer of your own: sample in eval mode, with gradient checkpointing off
    and the KV cache on. The deciding experiment is the same configuration with sound rollouts; `grpoctl sweep
    collapse-study` crosses the fault with the group size.

    Measured: 10 of 10 planted faults. `grpoctl run p30 -p tiny`, which injects the fault: 35 of 35 steps after an
    update, 0 of 60 after a skipped one, 35 of 35 healed, p = 8e-27. False alarms: 2,000 random runs of 96 steps for
    each of four collapse rates (5, 10, 30, 50 %), the collapse independent of updates: 0, 1, 1 and 0. 2,000 runs whose
    collapse begins after an update and lasts (nine in ten steps): 0. 20,000 runs of 96 steps with 6 or 16 completions,
    2 to 30 % of them valid, and updates more likely where one is: 1 warning. 2,000 that learn (3 to 93 % valid) and
    update ever less: 20 warnings, no error; time is a third reading of the counts. The pattern without skips, of 2,000
    runs whose prompts can never be solved in 80 or 90 % of cases, with one prompt and 8 completions a step: 0 and 10
    errors; with three prompts: none. The KL pattern, on `grpoctl run p30 -p tiny max_steps=20 skip_without_signal=false
    guards.rollout_integrity=warn guards.collapse=warn` read without its gap column: validity changed by 1 where a KL of
    0.0012 allows 0.13. A real collapse does not heal: with sound rollouts and a learning rate of 3e-3, 196 of 216 steps
    after a skipped update were all-invalid (a prototype of this tool, a tiny policy, K=2).
    """
    evidence = _tied(case)
    if evidence is None:
        return _unmoved(case)
    c, collapsed = evidence
    p, healed, zero = fisher_p(c), c.collapsed_and_skipped - c.still_collapsed, _at_rate_zero(case, collapsed)
    sure = bool(zero.get("collapsed_after_lr_0")) or _supported(case, collapsed)
    word = "all-invalid" if collapsed is all_invalid else f"less than {NEARLY:.0%} valid"
    cause = "the rollout is not (sampling in train mode, a dropped KV cache)"
    return (
        rollout_finding(
            case,
            summary=(
                f"{c.collapsed_after_update} of {c.after_update} steps after an update were {word}, "
                f"{c.collapsed_after_skip} of {c.after_skip} after a skipped one (p = {p:.0e}), and "
                f"{healed} of {c.collapsed_and_skipped} healed without an update: the weights are sound and {cause}"
                + ("" if sure else ", or prompts come in a fixed order that does the same")
            ),
            evidence={**asdict(c), "healed": healed, "p": p, **zero},
            rules_out=ruled_out(case, c, zero),
            sure=sure,
            grave=sure,
        ),
    )


def rollout_finding(
    case: Case,
    *,
    summary: str,
    evidence: Mapping[str, float | str | Sequence[str]],
    rules_out: tuple[RuledOut, ...],
    sure: bool,
    grave: bool,
) -> Finding:
    """The finding, with what libraries printed and what collapsed steps wrote put beside its evidence."""
    warnings = [_cited(notice.line, notice.text) for notice in case.notices if "checkpointing" in notice.kind]
    texts = [_cited(notice.line, notice.text) for notice in case.notices if notice.kind == "unparsed-output"]
    cited = {name: lines for name, lines in (("warnings", warnings), ("texts", texts)) if lines}
    return Finding(
        id="rollout-mode",
        severity="error" if grave else "warning",
        summary=summary,
        evidence={**evidence, **cited},
        rules_out=rules_out,
        suggest=("guards.rollout_integrity=stop",),
        advice=(
            "sample in eval mode, with gradient checkpointing off and the KV cache on, and put back what was found "
            "there; or sample with an engine of its own whose weights are known to be the trainer's"
        ),
        confidence="strong" if sure else "moderate",
        decider=_decider(case),
    )


def _supported(case: Case, collapsed: Collapsed) -> bool:
    """Whether anything beyond the counts speaks for the sampler: a broken gap or repetitive text.

    What a library says of caches does not: every run with gradient checkpointing prints it, a sound one too.
    """
    broken = [row for row in case.steps if collapsed(row)]
    return agrees(case, broken) is False or degenerate(case, broken)


def degenerate(case: Case, broken: Sequence[Row]) -> bool:
    """Whether most texts of these steps repeat themselves, and those of the other steps do not."""
    steps = {int(row["step"] or 0) for row in broken}
    here = [notice.text for notice in case.notices if notice.kind == "unparsed-output"]
    here += [
        sample.text for sample in case.samples if sample.step in steps and sample.valid is not True and sample.text
    ]
    there = [sample.text for sample in case.samples if sample.step not in steps and sample.text]
    return _repetitive(here) > 0.5 and _repetitive(there) < 0.25


def _repetitive(texts: Iterable[str]) -> float:
    """The share of the longer texts in which at least half of the words came before."""
    words = [tokens for text in texts if len(tokens := text.split()) >= WORDS]
    return sum(2 * len(set(tokens)) <= len(tokens) for tokens in words) / len(words) if words else 0.0


def _unmoved(case: Case) -> Sequence[Finding]:
    """An error where a run without skipped steps collapsed while its weights had not moved."""
    evidence = standstill(case)
    if evidence is None:
        return ()
    metric, step, k = evidence.metric, evidence.lr_0_step, case.settings.num_generations
    unmoved = f"the first update (step {step}) had a learning rate of exactly 0 and moved no weight"
    why = f"{unmoved}, and the collapse was there on step {step + 1}"
    alone = f"advantages act through the weights alone, and {why}"
    return (
        rollout_finding(
            case,
            summary=(
                f"{metric} was {evidence.before:.3g} up to step {step}; {unmoved}; {evidence.collapsed} of "
                f"{evidence.steps_since} steps since are collapsed ({metric} {evidence.since:.3g}): the rollout "
                "changed while the weights had not (sampling in train mode, a dropped KV cache)"
            ),
            evidence=asdict(evidence),
            rules_out=(
                *(RuledOut(id=id_, why=why) for id_ in ("policy-collapse", "damaged-weights", "learning-rate")),
                RuledOut(id="unsound-start", why=f"{metric} was sound up to step {step}"),
                RuledOut(id="group-size" if k is None else f"num_generations={k}", why=alone),
            ),
            sure=any("checkpointing" in notice.kind for notice in case.notices),
            grave=True,
        ),
    )


def _at_rate_zero(case: Case, collapsed: Collapsed) -> dict[str, float]:
    """Updates at a learning rate of exactly 0 that a step followed, and what became of it: they moved nothing.

    `lr_0_step` is the first of them that a collapse followed, where there is one.
    """
    followed = [(before, after) for before, after in pairs(case.rows) if before.get("update") == 1]
    still = [(before, after) for before, after in followed if before.get("learning_rate") == 0.0]
    steps = case.steps
    first = next((row for row in steps if row.get("update") == 1), None)
    if not still and case.settings.first_update_lr == 0.0 and steps[0].get("step") == 1:
        still = [pair for pair in followed if pair[0] is first]
    if not still:
        return {}
    broke = [before for before, after in still if collapsed(after)]
    step = float((broke or [still[0][0]])[0]["step"] or 0)
    counts = {"lr_0_step": step, "updates_at_lr_0": len(still), "collapsed_after_lr_0": len(broke)}
    return {"first_update_step": float((first or {}).get("step") or 0), **counts}


def ruled_out(case: Case, c: Contrast, zero: Mapping[str, float]) -> tuple[RuledOut, ...]:
    """What the contrast excludes, most of all when an update that moved nothing was followed by a collapse too."""
    healed = f"{c.collapsed_and_skipped - c.still_collapsed} of {c.collapsed_and_skipped}"
    lasting = f"{healed} all-invalid steps were followed by a sound one with nothing updated between"
    unmoved = ""
    if zero.get("collapsed_after_lr_0"):
        step, first = zero["lr_0_step"], zero["lr_0_step"] == zero["first_update_step"]
        which = f"the first update (step {step:.0f})" if first else f"the update of step {step:.0f}"
        unmoved = (
            f"{which} had a learning rate of exactly 0, moved no weight, and was followed by an all-invalid step too"
        )
    k = case.settings.num_generations
    return (
        RuledOut(id="policy-collapse", why=f"{lasting}: a policy that collapsed would stay so"),
        RuledOut(id="damaged-weights", why=unmoved or f"{lasting}: damage does not heal by itself"),
        RuledOut(id="learning-rate", why=unmoved or f"{lasting}: what too large a step broke would stay broken"),
        RuledOut(
            id="group-size" if k is None else f"num_generations={k}",
            why=(
                f"advantages act through the weights alone, and {unmoved or lasting}; a larger group would have "
                "collapsed in the same way"
            ),
        ),
    )


def _decider(case: Case) -> Decider:
    """The same run with its rollouts sound; the sweep crosses that with the size of the group."""
    k = case.settings.num_generations
    same = () if k is None else (f"num_generations={k}",)
    return Decider(
        question=(
            "is it the sampler or the group size? The same configuration with sound rollouts tells; `grpoctl sweep "
            "collapse-study` crosses both (2 or 8 completions, fault off or on)"
        ),
        overrides=(*same, "guards.rollout_integrity=stop"),
        expects=("collapse_rate < 0.05",),
    )


def _cited(line: int | None, text: str) -> str:
    return text if line is None else f"line {line}: {text}"
