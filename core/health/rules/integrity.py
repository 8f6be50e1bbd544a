"""Rollout integrity: do the log-probs recorded while sampling equal those of a clean forward, and if not, why?

One step beyond the limit of the dtype is what the live guard stops for (`rollout_integrity`), or two steps beyond the
run's own noise (`noise_integrity`). Over a run the pattern of the gaps says more: scoring noise, old weights in the
sampler, or a mode that an update leaves behind; a gap within the limit that grows with the updates is a sign of old
weights too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from core.health.case import Case
from core.health.finding import Decider, Finding, Row, RuledOut, StepTable, all_invalid, steps_of
from core.health.own_noise import excess, noise_factor, noise_of
from core.health.statistics import chance_above, shown_p

# Mean absolute gap in nats per token at temperature 1. Log-probs are of logits / temperature, so rounding can grow as
# 1 / T; measured it does not, since at a low temperature most drawn tokens are all but certain. The square root leaves
# room for the first, to T = 0.15 at least, and five times the distance to the fault.
MAX_GAP = {"float32": 1e-4, "bfloat16": 0.3}
COARSEST = max(MAX_GAP.values())  # where the dtype is not known: it accuses nobody of his rounding
# What an error of a whole run needs: a gap that is FAR above the limit, or SEVERAL, CLEAR of it at their median.
FAR, CLEAR = 10.0, 2.0  # times the limit
SEVERAL, SHARE = 3, 0.05  # steps, and of all
LOOK_BACK = 20  # steps: among so many a canary was scored, in the smallest model, too


def max_gap(dtype: str | None, temperature: float, override: float | None = None) -> float:
    """The largest mean gap that rounding explains at this dtype and temperature; of an unknown dtype the coarsest's."""
    if override is not None:
        return override
    return MAX_GAP.get(dtype or "", COARSEST) / math.sqrt(min(1.0, temperature))


def rollout_integrity(row: Row, *, dtype: str | None, override: float | None = None) -> Finding | None:
    """An error where this step's rollout has a gap that rounding does not explain, or none that is a number."""
    return _integrity(row, "rollout/logprob_gap", row.get("temperature"), max_gap_of(dtype, override), "")


def evaluation_integrity(row: Row, *, dtype: str | None, override: float | None = None) -> Finding | None:
    """The same of this step's evaluation: its rewards would tell of the sampler, not of the policy."""
    limit = max_gap_of(dtype, override)
    return _integrity(row, "eval/logprob_gap", row.get("eval/temperature"), limit, " (evaluation)")


def max_gap_of(dtype: str | None, override: float | None) -> Callable[[float], float]:
    """`max_gap` as a function of the temperature."""
    return lambda temperature: max_gap(dtype, temperature, override)


def worst_integrity(table: StepTable, *, dtype: str | None, override: float | None = None) -> Finding | None:
    """The finding of the first step with a gap, and how many steps have one; of an evaluation where no rollout has one.

    A warning where a few of many steps are above the limit, or many just above it; moderate then, and where the limit
    is a guess. A guard that looks at one step alone does not ask that.

    A sound sampler differs from the trainer's forward only by rounding: some 4e-6 nats per token in fp32, 0.045 in bf16
    (SmolLM2-135M, at temperatures 1 to 0.15). P30's fault gives 2.7 or more at each of them. docs/algorithms.md has the
    table that the thresholds were chosen by; benchmarks/integrity.py measures it.

    ## rollout-integrity

    Severity: error; warning (moderate) where the gaps are few or small, or the dtype is not known.

    Means: sampler and trainer disagree on the log-probs of drawn tokens, and the pattern over steps does not say why
    (`rollout-mode`, `scoring-noise` and `stale-sampler` are patterns). A sampler in a wrong mode has no gap before any
    update, 2 to 6 nats a token after an update, and none after a skipped one.

    Looks at: `rollout/logprob_gap` of every step and of the evaluation before step 1, against what rounding explains
    (1e-4 in fp32, 0.3 in bf16, a larger limit at temperatures below 1). A sound run of ours has 1e-7 in fp32. Where
    the run measured its own noise before step 1 (`rollout/noise`), also against that: `rollout/detectable_gap` is twice
    it (`guards.noise_factor`) on each step, more where few tokens are in doubt, and `canary/detectable_gap` the same
    for one fixed prompt with fixed tokens.
    Beyond it on average of two steps in a row is an error, and so is one step twice beyond it. A step beyond it is
    scored again by the trainer first, and what that differs by is noise as well. A start that is unsound does not
    become its own noise: at most ten times what two scorings of the same rows by the trainer differ by is.

    Confounder: rounding of another kind. A warning where fewer than three steps or a twentieth of them (and not half)
    are over the limit, or where the median is below twice the limit and none is ten times the limit. The live guard
    looks at one step and does not ask: it fires at the first gap above the limit.

    Do: sample in eval mode, with gradient checkpointing off and the KV cache on. `guards.max_logprob_gap` sets another
    limit for a model whose sound gap is larger.
    """
    steps = [row for row in steps_of(table) if "rollout/logprob_gap" in row]
    found = [f for row in steps if (f := rollout_integrity(row, dtype=dtype, override=override))]
    if not found:
        steps = [row for row in table if "eval/logprob_gap" in row]
        found = [f for row in steps if (f := evaluation_integrity(row, dtype=dtype, override=override))]
    if not found:
        return None
    first, near = found[0], _near(found, len(steps))
    more = f" (and on {len(found) - 1} more of {len(steps)} steps)" if len(found) > 1 else ""
    return replace(
        first,
        severity="warning" if near else "error",
        summary=first.summary + (f" (on {len(found)} of {len(steps)} steps, none far above it)" if near else more),
        evidence={**first.evidence, "steps": len(found)},
        confidence="moderate" if near or is_guess(dtype, override) else first.confidence,
    )


def is_guess(dtype: str | None, override: float | None) -> bool:
    """Whether the limit is that of another dtype, since the run's is not known."""
    return override is None and dtype not in MAX_GAP


def _near(found: Sequence[Finding], steps: int) -> bool:
    """Whether the gaps are so few or so small that rounding of another kind may have made them."""
    sizes = [(one.evidence["logprob_gap"], one.evidence["limit"]) for one in found]
    known = [(gap, limit) for gap, limit in sizes if isinstance(gap, int | float) and isinstance(limit, int | float)]
    if len(known) < len(found) or any(gap >= FAR * limit for gap, limit in known):
        return False
    few = len(found) < 0.5 * steps and len(found) < max(SEVERAL, SHARE * steps)
    return few or median(gap - CLEAR * limit for gap, limit in known) < 0


def noise_integrity(rows: Sequence[Row]) -> Finding | None:
    """An error where the gaps of the last two steps are, on average, beyond the run's own noise."""
    beyond = excess(rows)
    if beyond is None:
        return None
    canary = beyond.metric.startswith("canary/")
    tokens = any("completions/length" in row for row in rows)  # a length is recorded of tokens alone
    where = "on its fixed prompt" if canary else "a token" if tokens else "a factor"
    return Finding(
        id="rollout-integrity",
        severity="error",
        summary=(
            f"step {beyond.step}: the sampler no longer draws from the policy the trainer scores ({beyond.metric} "
            f"{beyond.gap:.3g} nats {where}, at most {beyond.limit:.3g} is this run's own noise; with the step before "
            f"{beyond.times:.1f} times that)" + _by_position(rows[-1])
        ),
        evidence={
            "step": beyond.step,
            "logprob_gap": rows[-1].get("rollout/logprob_gap") or 0.0,
            "limit": rows[-1].get("rollout/detectable_gap") or beyond.limit,
            "metric": beyond.metric,
            "times": beyond.times,
        },
    )


def _beyond_noise(table: StepTable) -> Finding | None:
    """The finding of the first step beyond the run's own noise, and how many steps are."""
    steps = [row for row in steps_of(table) if "rollout/logprob_gap" in row]
    parts = (steps[max(0, at - LOOK_BACK) : at + 1] for at in range(len(steps)))
    findings = [finding for part in parts if (finding := noise_integrity(part)) is not None]
    if not findings:
        return None
    more = f" (and on {len(findings) - 1} more of {len(steps)} steps)" if len(findings) > 1 else ""
    evidence = {**findings[0].evidence, "steps": len(findings)}
    return replace(findings[0], summary=findings[0].summary + more, evidence=evidence)


def _by_position(row: Row) -> str:
    """The gap of the halves of the completions: a cache that is lost on the way shows in the second."""
    early, late = row.get("rollout/logit_gap_early"), row.get("rollout/logit_gap_late")
    if early is None or late is None:
        return ""
    return f"; logits are {early:.2g} apart in the first half of the completions, {late:.2g} in the second"


def resumed_integrity(
    table: StepTable, again: Mapping[str, float], *, dtype: str | None, factor: float | None
) -> Finding | None:
    """An error where a resumed run's sampler and trainer are further apart than the run's own noise, before a step.

    What the machine that goes on rounds differently is known from the trainer's scores alone, and is allowed.
    """
    noise, gap = noise_of(table[0] if table else None, dtype, factor), again.get("rollout/noise_mean")
    if noise is None or gap is None:
        return None
    limit = noise.factor * max(noise.largest, again.get("rollout/rescoring_gap", 0.0))
    if gap <= limit:
        return None
    step = int(table[-1].get("step") or 0)
    return Finding(
        id="rollout-integrity",
        severity="error",
        summary=(
            f"resumed after step {step}: the sampler does not draw from the policy the trainer scores (logit gap "
            f"{gap:.3g} nats, at most {limit:.3g} is this run's own noise)"
        ),
        evidence={"step": step, "logprob_gap": gap, "limit": limit},
    )


def _integrity(
    row: Row, metric: str, temperature: float | None, limit_at: Callable[[float], float], what: str
) -> Finding | None:
    value = row.get(metric)
    gap = value if value is not None and math.isfinite(value) else None  # None once recorded, NaN before
    limit = limit_at(temperature or 1.0)
    if metric not in row or (gap is not None and gap <= limit):
        return None
    if gap is None and "entropy" in row and not math.isfinite(math.nan if row["entropy"] is None else row["entropy"]):
        return None  # the clean forward is no number either: the weights are at fault, core.health.rules.breaks says so
    step = int(row.get("step") or 0)
    return Finding(
        id="rollout-integrity",
        severity="error",
        summary=(
            f"step {step}{what}: the sampler did not draw from the policy the trainer scores (mean log-prob gap "
            f"{'NaN' if gap is None else f'{gap:.3g}'} nats, at most {limit:.3g} is rounding): train mode, stale "
            "weights or, in a language model, a dropped KV cache while sampling"
        ),
        evidence={"step": step, "logprob_gap": "NaN" if gap is None else gap, "limit": limit},
    )


ENOUGH = 6  # gaps after an update: fewer show no growth
SIGNIFICANT = 1e-3
LIKELY = 0.05  # of the growth, where a step without an update had the gap as well
GROWN = 3.0  # times, from the first third to the last: less is a drift, where the gap is not far above the limit
AT_ONE = 0.1  # of the gap: a ratio this near to 1 was computed from the sampler's own log-probs


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One measured gap, or NaN, and what had happened before it."""

    step: int
    updates: int  # before it
    after_update: bool  # whether the step right before it made one
    gap: float
    limit: float  # what rounding explains
    entropy: float  # of the same completions; 0 where unknown
    collapsed: bool

    @property
    def broken(self) -> bool:
        """Whether rounding does not explain the gap."""
        return not self.gap <= self.limit


def integrity(case: Case) -> Sequence[Finding]:
    """An error where sampler and trainer do not agree, by the pattern where there is one; near the limit a warning.

    What a log-prob gap that rounding does not explain tells by its pattern over steps: whose fault is it?

    From the start, before any update: the scoring is noisy (dropout), or sampler and trainer are not one model. After
    updates, and healed by a step without one: the mode the update left behind. After updates, and not healed or
    growing: the sampler keeps old weights. What fits none of these is told as what it is.
    """
    dtype, override = case.settings.dtype, case.guards.max_logprob_gap
    plain = worst_integrity(case.rows, dtype=dtype, override=override)
    if plain is None and noise_factor(case.guards) is not None:
        plain = _beyond_noise(case.rows)
    if plain is None:
        return ()
    seen = gaps(case)
    found = _from_the_start(case, plain, seen) or _healed(case, plain, seen) or _stale(case, seen) or plain
    guessed = is_guess(dtype, override) and found.confidence == "strong"
    return (replace(found, confidence="moderate") if guessed else found,)


def gaps(case: Case) -> list[Seen]:
    """The gaps of a run in order: of its steps, and first of its evaluation before step 1."""
    limit_at = max_gap_of(case.settings.dtype, case.guards.max_logprob_gap)
    found, updates, before = [], 0, 0
    for row in [*(row for row in case.rows if not row.get("step")), *case.steps]:
        metric, temperature = ("rollout/logprob_gap", "temperature") if row.get("step") else _OF_EVALUATION
        if metric in row:
            value = row[metric]
            gap = math.nan if value is None else value
            found.append(
                Seen(
                    step=int(row.get("step") or 0),
                    updates=updates,
                    after_update=before == 1,
                    gap=gap,
                    limit=min(limit_at(row.get(temperature) or 1.0), row.get("rollout/detectable_gap") or math.inf),
                    entropy=row.get("entropy") or 0.0,
                    collapsed=all_invalid(row),
                )
            )
        before = int(row.get("update") or 0)
        updates += before
    return found


_OF_EVALUATION = ("eval/logprob_gap", "eval/temperature")


def _from_the_start(case: Case, plain: Finding, seen: Sequence[Seen]) -> Finding | None:
    """Broken before any update, and mostly afterwards: the weights were equal, so something else is not.

    ## scoring-noise

    Severity: error (strong); warning (moderate) where the gaps are few or small.

    Means: the log-probs that the trainer scores are noisy (dropout), or sampler and trainer are not the same model. The
    gap has a size of about 0.01 nats a token, no trend.

    Looks at: `rollout/logprob_gap` (and `eval/logprob_gap` before step 1) on every step, against what rounding
    explains: 1e-4 nats a token in fp32, 0.3 in bf16 and where the dtype is not known. The gap is there before any
    update, after an update, and after a step without one. If `policy/ratio_max` is 1 (one optimiser step a rollout, no
    adapter dropout), the update's own forward agrees with the sampler, and the scoring is noisy; otherwise every
    scoring is, or the sampler has another model.

    Confounder: a sampler in a wrong mode, or with old weights. Neither was possible before the first update, so both
    are ruled out. Few or small gaps (fewer than three steps or a twentieth of them, and not half; or a median below
    twice the limit, and none ten times the limit) may be another kind of rounding: a warning. Where the dtype is not
    known nothing is more than moderate.

    Do: score in eval mode: old, reference and clean log-probs without dropout.

    Measured: 10 of 10 planted faults.
    """
    first = [one for one in seen if one.updates == 0]
    bad = [one for one in first if one.broken]
    share = fmean(one.broken for one in seen)
    if not bad or len(bad) < len(first) or share < 0.5 or any(one.collapsed or math.isnan(one.gap) for one in bad):
        return None
    agrees = _update_agrees(case, seen)
    where = {
        True: "the update's own forward agrees with the sampler, so it is the clean scoring that is noisy",
        False: "the update's forward does not agree with the sampler either: every scoring is noisy, or the sampler "
        "draws from another model",
        None: "the scoring is noisy (dropout), or the sampler draws from another model",
    }[agrees]
    evidence = {"first_gap": bad[0].gap, "gaps_before_an_update": len(bad), "median_gap": median(o.gap for o in seen)}
    return Finding(
        id="scoring-noise",
        severity=plain.severity,
        summary=(
            f"the log-probs of {sum(one.broken for one in seen)} of {len(seen)} rollouts differ from the scored ones "
            f"(median {evidence['median_gap']:.2g} {case.settings.per_factor}), {len(bad)} of them before any "
            f"update: {where}"
        ),
        evidence={**evidence, "share": share},
        rules_out=(
            RuledOut(id="stale-sampler", why="before the first update there are no older weights to draw from"),
            RuledOut(id="rollout-mode", why="before the first update no mode had been left behind"),
        ),
        suggest=("model.lora.lora_dropout=0",) if case.settings.lora_dropout else (),
        advice="score in eval mode: old, reference and clean log-probs without dropout",
        confidence="strong" if plain.severity == "error" and (agrees or len(bad) > 1) else "moderate",
        decider=Decider(
            question="is the gap there without an update, and gone without dropout?",
            overrides=("learning_rate=1e-12", "guards.rollout_integrity=stop"),
        ),
    )


def _update_agrees(case: Case, seen: Sequence[Seen]) -> bool | None:
    """Whether the first update of a rollout saw the sampler's log-probs: its ratio is 1. None where it cannot tell."""
    if case.settings.updates_per_rollout != 1 or case.settings.lora_dropout:
        return None
    gap_at = {one.step: one.gap for one in seen}
    pairs = [
        (abs(ratio - 1.0), gap_at[int(row["step"] or 0)])
        for row in case.stage_rows
        if (ratio := row.get("policy/ratio_max")) is not None and int(row["step"] or 0) in gap_at
    ]
    return median(away for away, _ in pairs) < AT_ONE * median(gap for _, gap in pairs) if pairs else None


def _healed(case: Case, plain: Finding, seen: Sequence[Seen]) -> Finding | None:
    """Broken after an update, sound after none: what the update leaves behind is a mode and not the weights."""
    later = [one for one in seen if one.updates]
    updated, skipped = ([one for one in later if one.after_update is way] for way in (True, False))
    broken, left = sum(one.broken for one in updated), sum(one.broken for one in skipped)
    if len(skipped) < 2 or not updated or broken <= 0.5 * len(updated) or left > 0.1 * len(skipped):
        return None
    counts = {"after_update": len(updated), "broken_after_update": broken}
    return replace(
        plain,
        summary=(
            f"the sampler did not draw from the policy the trainer scores on {broken} of {len(updated)} steps after "
            f"an update (first on step {plain.evidence['step']}, gap {_shown(plain.evidence['logprob_gap'])} "
            f"{case.settings.per_factor}), and on {left} of {len(skipped)} after a skipped one: updates leave the "
            "model in a mode that sampling does not reset (train mode, a dropped KV cache)"
        ),
        evidence={**plain.evidence, **counts, "after_skip": len(skipped), "broken_after_skip": left},
        rules_out=(
            RuledOut(id="stale-sampler", why=f"{len(skipped) - left} of {len(skipped)} healed without new weights"),
        ),
        advice="sample in eval mode, with gradient checkpointing off and the KV cache on, and put back what was found",
    )


def _stale(case: Case, seen: Sequence[Seen]) -> Finding | None:
    """Sound before any update, broken ever after, steps without an update included, or more with each: old weights.

    The adapter's own dropout in the scoring would look so too, having nothing to drop before the first update.

    ## stale-sampler

    Severity: error (strong; moderate with adapter dropout, which has nothing to drop before the first update); warning
    where the gap stays near the limit.

    Means: the sampler draws from old weights. The gap has a size of about 0.001 nats a token after one update, growing
    to 0.01 in 20.

    Looks at: the same gap. Sound before the first update, broken on four of five steps since, and one of two things:
    two or more steps after a skipped update are broken as well (a wrong mode would have healed), or the gap grows with
    the number of updates (rank correlation, Fisher's transform, p < 0.001, or 0.05 with one such step; in units of the
    entropy where it is known, because a policy that is sure of a token hides the gap).

    A sampler that never gets new weights needs many updates to reach the limit of a coarse dtype. So it is also a
    warning (moderate) where every gap after an update (12 or more) is within the limit, and the median of the last
    third is three times that of the first and a tenth of the limit, growing with the updates both in itself and in
    units of the entropy (p < 0.001 each).

    Confounder: rounding that grows as the policy moves. A warning where the gap of the last third is neither ten times
    the limit nor three times that of the first. Silent where the update's ratio is 1 all the same.

    Do: hand the sampler the trainer's weights after every update, and check that they arrived.

    Measured: 10 of 10 planted faults.
    """
    later = [one for one in seen if one.updates]
    kept = [one for one in later if not one.after_update]
    before = [one for one in seen if not one.updates]
    if len(later) < ENOUGH or not before or any(o.broken for o in before) or any(math.isnan(o.gap) for o in later):
        return None
    broken, lasting = sum(one.broken for one in later), sum(one.broken for one in kept)
    rho, p = growth(later)
    unhealed = bool(kept) and lasting >= 0.8 * len(kept) and not any(one.collapsed for one in later)
    grown = p < (LIKELY if unhealed else SIGNIFICANT)
    if broken < 0.8 * len(later) or not (grown or (unhealed and len(kept) > 1)) or _update_agrees(case, later):
        return None
    first, last, large = _sizes(later)
    sure = large and (p < SIGNIFICANT or len(kept) > 1) and not case.settings.lora_dropout
    said = [f"on {lasting} of {len(kept)} after a skipped update too"] if unhealed else []
    said += [f"and it grows with the updates (rank correlation {rho:.2f}, p = {p:.0e})"] if grown else []
    return Finding(
        id="stale-sampler",
        severity="error" if large else "warning",
        summary=(
            f"the sampler {'draws' if large else 'may draw'} from old weights: no gap before the first update, one on "
            f"{broken} of {len(later)} steps since, {', '.join(said)}; {first:.2g} {case.settings.per_factor} at "
            f"first, {last:.2g} "
            + ("in the end" if large else "in the end, near the limit of rounding all the time")
        ),
        evidence={
            "broken": broken, "steps": len(later), "first_third": first, "last_third": last, "rank_correlation": rho,
            "p": p, "after_skip": len(kept), "broken_after_skip": lasting,
        },
        rules_out=(*_mode_ruled_out(kept), RuledOut(id="scoring-noise", why="before the first update both agreed")),
        advice="hand the sampler the trainer's weights after every update, and check that they arrived",
        confidence="strong" if sure else "moderate",
        decider=Decider(
            question="does the gap stay at rounding while no update moves anything?",
            overrides=("learning_rate=1e-12", "guards.rollout_integrity=stop"),
        ),
    )  # fmt: skip


def _sizes(later: Sequence[Seen]) -> tuple[float, float, bool]:
    """The median gap of the first and the last third, and whether the last is far above the limit or has grown."""
    third = max(2, len(later) // 3)
    first, last = median(one.gap for one in later[:third]), median(one.gap for one in later[-third:])
    far = median(one.gap - FAR * one.limit for one in later[-third:]) >= 0
    return first, last, far or last >= GROWN * first


def growth(later: Sequence[Seen]) -> tuple[float, float]:
    """The rank correlation of the gap with the updates before it, and its one-sided p.

    In units of the entropy where it is known: where a policy is sure of a token, old and new weights agree.
    """
    unit = all(one.entropy > 0 for one in later)
    sizes = [one.gap / one.entropy if unit else one.gap for one in later]
    rho = rank_correlation([one.updates for one in later], sizes)
    # Fisher's transform, with the variance that Fieller, Hartley and Pearson (1957) give for ranks.
    return rho, chance_above(math.atanh(min(max(rho, -0.9999), 0.9999)) * math.sqrt((len(later) - 3) / 1.06))


def _mode_ruled_out(kept: Sequence[Seen]) -> tuple[RuledOut, ...]:
    broken = sum(one.broken for one in kept)
    if len(kept) < 2 or broken < 0.8 * len(kept):
        return ()
    why = f"{broken} of {len(kept)} steps after a skipped update had the gap too: it is no mode that an update leaves"
    return (RuledOut(id="rollout-mode", why=why),)


def rank_correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Spearman's: of the ranks, ties sharing theirs; 0 where either side has no spread."""
    a, b = _ranks(xs), _ranks(ys)
    mean_a, mean_b = fmean(a), fmean(b)
    both = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    spread = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
    return both / spread if spread > 0 else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks, at = [0.0] * len(values), 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for index in order[at : end + 1]:
            ranks[index] = (at + end) / 2
        at = end + 1
    return ranks


def _shown(gap: object) -> str:
    return f"{gap:.2g}" if isinstance(gap, float) else str(gap)


ENOUGH_TO_DRIFT = 12  # gaps after an update
DRIFTED = 3.0  # times, from the first third to the last: a line from 0 has five times
NEAR = 0.1  # of the limit, in the end: below it rounding is all there can be


def drifting_gap(case: Case) -> Sequence[Finding]:
    """A warning where the gap grew three times with the updates (p < 0.001), and not with the entropy alone."""
    later = [one for one in gaps(case) if one.updates]
    if len(later) < ENOUGH_TO_DRIFT or any(one.broken for one in later):
        return ()
    third = len(later) // 3
    first, last = (median(one.gap for one in part) for part in (later[:third], later[-third:]))
    limit = median(one.limit for one in later)
    if last < DRIFTED * first or last < NEAR * limit:
        return ()
    # Not in units of the entropy alone: that of a policy that gets surer grows by itself.
    as_they_are = [replace(one, entropy=0.0) for one in later]
    rho, p = max((growth(seen) for seen in (later, as_they_are)), key=lambda one: one[1])
    if p >= SIGNIFICANT:
        return ()
    return (
        Finding(
            id="stale-sampler",
            severity="warning",
            summary=(
                f"the gap between sampler and trainer grows with the updates, from {first:.2g} to {last:.2g} "
                f"{case.settings.per_factor} (rank correlation {rho:.2f}, {shown_p(p)}), each within what rounding "
                f"explains ({limit:.2g}): the sampler may draw from old weights, or rounding grows as the policy moves"
            ),
            evidence={"first_third": first, "last_third": last, "limit": limit, "rank_correlation": rho, "p": p},
            advice="hand the sampler the trainer's weights after every update, and check that they arrived",
            confidence="moderate",
            decider=Decider(
                question="does the gap stay where it is while no update moves anything?",
                overrides=("learning_rate=1e-12",),
            ),
        ),
    )
