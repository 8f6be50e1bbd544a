"""Was the learning rate far too large, or too small to move anything?

Too large: right after the first updates the policy is another one, and no better. The KL to the start says how far an
update goes, in nats per token; without a KL the first steps after it are held against those before. Too small:
evaluations that draw the same every time give the same texts, whatever was learned.
Silent where the sampler is at fault: its samples tell nothing of the weights (core.health.rollout_mode, integrity).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from core.health.case import Case
from core.health.finding import Decider, Finding, Row, RuledOut, steps_of
from core.health.integrity import worst_integrity
from core.health.onset import Beyond, acted, number, parted, standard_errors
from core.health.rollout_mode import contrast
from core.health.trend import shown_p

FIRST = 10  # steps after the first update: what breaks later is not the first updates' doing
LEAST = 5  # of them: a run that was stopped has fewer than FIRST
GONE = 2  # columns that must have left their start on a step, for it to be another policy's
SOUND = 0.05  # of the steps of a sound run look so; measured: 30 of 4293 in 71 runs, never 2 of the first 10
SIGNIFICANT = 1e-4
FAR = 0.1  # nats per token after at most three updates; sound runs of ours have 7e-6 to 2e-3, a rate x100 0.2 to 0.7
AIM = 1e-4  # nats per token: what the suggested rate should give there, since the KL goes with its square
CLEAR = 4.0  # standard errors
HEALED = 3  # all-invalid steps without an update that must have been seen before one can say whether they heal
STILL = 20  # updates that must have acted before a policy can be said not to move
UNMOVED = 1e-7  # nats per token, the largest of a run: no argmax and next to no draw is another

# When a column has left its start, either way. Entropy is of one group in runs of ours, and noisy.
COLUMNS: tuple[tuple[str, Beyond], ...] = (
    ("completions/valid", lambda start, now: now < 0.5 * start),
    ("reward/mean", lambda start, now: now < 0.25 * start),
    ("entropy", lambda start, now: not 0.3 * start <= now <= 3.0 * start),
    ("completions/length", lambda start, now: not 0.5 * start <= now <= 1.6 * start),
    ("completions/truncated", lambda start, now: now > start + 0.4),
)
HARM = {"completions/valid", "reward/mean", "completions/truncated"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Elsewhere:
    """The first steps after the first update, and how many of them are of another policy than the start's."""

    steps: int
    gone: int
    p: float  # of so many by chance, were they a sound run's
    columns: dict[str, tuple[float, float]]  # those that left on half of the steps: at the start, median since

    def __str__(self) -> str:
        moved = ", ".join(f"{name} from {start:.3g} to {now:.3g}" for name, (start, now) in self.columns.items())
        return f"{self.gone} of the first {self.steps} steps after its first update are of another policy ({moved})"


def learning_rate(case: Case) -> Sequence[Finding]:
    """An error for a rate that broke the policy, a warning for one that only jumped or that moved nothing."""
    if sampler_at_fault(case):
        return ()
    found = too_large(case) or _too_small(case)
    return () if found is None else (found,)


def sampler_at_fault(case: Case) -> bool:
    """Whether samples are not the policy's: a broken integrity, or collapses that heal without an update."""
    dtype = case.settings.dtype or "bfloat16"  # unknown: the coarser one accuses no sampler
    seen = contrast(case.rows)
    healed = seen.collapsed_and_skipped >= HEALED and seen.still_collapsed <= 0.1 * seen.collapsed_and_skipped
    return healed or worst_integrity(case.rows, dtype=dtype, override=case.guards.max_logprob_gap) is not None


def not_the_sampler(case: Case) -> tuple[RuledOut, ...]:
    """Damage of the weights, where all-invalid steps were seen not to heal although nothing was updated."""
    seen = contrast(case.rows)
    if seen.collapsed_and_skipped < HEALED or seen.still_collapsed < 0.9 * seen.collapsed_and_skipped:
        return ()
    why = (
        f"{seen.still_collapsed} of {seen.collapsed_and_skipped} all-invalid steps without an update were followed by "
        "another: the weights are damaged, a wrong mode would have healed"
    )
    return (RuledOut(id="rollout-mode", why=why),)


def too_large(case: Case) -> Finding | None:
    """The finding where the first updates went too far; its evidence has all that left its start."""
    jump, elsewhere = _jump(case), _elsewhere(case)
    if jump is None and elsewhere is None:
        return None
    rate, parts = _rate(case), []
    worse = elsewhere is not None and bool(HARM & elsewhere.columns.keys())
    if jump is not None:
        parts.append(f"the policy was {jump[0]:.2g} nats a token away from its start after {_updates(jump[1])}")
    if elsewhere is not None:
        parts.append(f"{elsewhere}, {shown_p(elsewhere.p)}")
    change = () if rate is None else (f"learning_rate={_smaller(rate, jump):.1g}",)
    return Finding(
        id="learning-rate",
        severity="error" if worse else "warning",
        summary=f"learning rate {_shown(rate)} is too large: {'; '.join(parts)}",
        evidence=_evidence(rate, jump, elsewhere),
        rules_out=not_the_sampler(case),
        suggest=change,
        confidence="strong" if worse and (jump is not None or not_the_sampler(case)) else "moderate",
        decider=Decider(
            question="does the same run stay itself at a smaller rate?",
            overrides=change,
            expects=(f"kl < {FAR}",) if jump is not None else (),
        ),
    )


def _updates(count: int) -> str:
    return f"{count} update{'' if count == 1 else 's'}"


def _shown(rate: float | None) -> str:
    return "(unknown)" if rate is None else f"{rate:.3g}"


def _rate(case: Case) -> float | None:
    """The rate of the run: the largest that was used, else what is known of its settings."""
    used = [rate for row in steps_of(case.rows) if (rate := number(row, "learning_rate"))]
    return max(used) if used else case.settings.learning_rate


def _jump(case: Case) -> tuple[float, int] | None:
    """The largest KL after at most three updates, and after how many; None where it is not FAR."""
    _, after = parted(case.rows)
    seen = [(kl, count) for count, row in after if count <= 3 and (kl := number(row, "kl")) is not None]
    largest = max(seen, default=(0.0, 0), key=lambda one: (one[0], -one[1]))
    return largest if largest[0] >= FAR else None


def _elsewhere(case: Case) -> Elsewhere | None:
    """None where too few of the first steps look so, or where the reward rose clearly: then it was learned."""
    before, after = parted(case.rows)
    rows = [row for _, row in after[:FIRST]]
    starts = {metric: fmean(seen) for metric, _ in COLUMNS if (seen := _values(before, metric))}
    left = [
        [metric for metric, beyond in COLUMNS if metric in starts and _is_gone(row, metric, starts[metric], beyond)]
        for row in rows
    ]
    gone = sum(len(names) >= GONE for names in left)
    p = _chance(len(rows), gone)
    if len(rows) < LEAST or case.averaged_over > 1 or p >= SIGNIFICANT or _reward_rose(before, rows):
        return None
    most = [metric for metric in starts if 2 * sum(metric in names for names in left) >= len(rows)]
    columns = {metric: (starts[metric], median(_values(rows, metric))) for metric in most}
    return Elsewhere(steps=len(rows), gone=gone, p=p, columns=columns)


def _values(rows: Sequence[Row], metric: str) -> list[float]:
    return [value for row in rows if (value := number(row, metric)) is not None]


def _is_gone(row: Row, metric: str, start: float, beyond: Beyond) -> bool:
    value = number(row, metric)
    return value is not None and beyond(start, value)


def _chance(steps: int, gone: int) -> float:
    """P(at least `gone` of `steps`), each being so with probability SOUND."""
    return sum(math.comb(steps, k) * SOUND**k * (1 - SOUND) ** (steps - k) for k in range(gone, steps + 1))


def _reward_rose(before: Sequence[Row], rows: Sequence[Row]) -> bool:
    spread = max(_values(before, "reward/std"), default=0.0)
    return standard_errors(_values(before, "reward/mean"), _values(rows, "reward/mean"), least=spread / 2) >= CLEAR


def _evidence(
    rate: float | None, jump: tuple[float, int] | None, elsewhere: Elsewhere | None
) -> dict[str, float | str]:
    found: dict[str, float | str] = {} if rate is None else {"learning_rate": rate}
    if jump is not None:
        found |= {"kl": jump[0], "after_updates": jump[1], "kl_limit": FAR}
    if elsewhere is not None:
        found |= {"steps": elsewhere.steps, "gone": elsewhere.gone, "p": elsewhere.p}
        for name, (start, now) in elsewhere.columns.items():
            found |= {f"{name}_start": start, f"{name}_since": now}
    return found


def _smaller(rate: float, jump: tuple[float, int] | None) -> float:
    """By the KL, which goes with the square of the rate; without one a tenth."""
    return rate / (10.0 if jump is None else min(max(math.sqrt(jump[0] / AIM), 10.0), 100.0))


def _too_small(case: Case) -> Finding | None:
    """A warning where no update showed: the same evaluations to the last digit, or no KL at all."""
    steps = steps_of(case.rows)
    moved = sum(map(acted, steps))
    if moved < STILL or (rate := _rate(case)) is None:
        return None
    same = _same_evaluations(case)
    kls = [value for row in steps if (value := number(row, "kl")) is not None]
    still = len(kls) >= STILL and max(kls) < UNMOVED
    if not same and not still:
        return None
    kl = {"kl_max": max(kls)} if kls else {}
    said = f"the last {same} evaluations gave the same texts" if same else "the KL to the start stayed below 1e-7 nats"
    return Finding(
        id="learning-rate",
        severity="warning",
        summary=f"learning rate {rate:.3g} is too small to move anything: after {moved} updates {said}",
        evidence={"learning_rate": rate, "updates": moved, "same_evaluations": same, **kl},
        suggest=(f"learning_rate={_larger(rate, max(kls, default=0.0)):.1g}",),
        confidence="certain" if same else "moderate",
        decider=Decider(
            question="does a larger rate move the evaluation?",
            overrides=(f"learning_rate={_larger(rate, max(kls, default=0.0)):.1g}",),
            expects=("kl > 1e-5",) if kls else (),
        ),
    )


def _larger(rate: float, kl: float) -> float:
    return rate * (10.0 if kl <= 0 else min(max(math.sqrt(AIM / kl), 10.0), 100.0))


def _same_evaluations(case: Case) -> int:
    """How many evaluations there were, where all have one reward and one mean length to the last digit; else 0.

    Ours draw the same way every time, so the texts are the same: no draw fell another way. Elsewhere draws are new, or
    greedy, and two equal mean lengths are no chance either.
    """
    seen = [
        row for row in case.rows if number(row, "eval/length") is not None and number(row, "eval/reward") is not None
    ]
    done = [row for row in seen if (row.get("step") or 0) >= 1]
    one = len({(row["eval/length"], row["eval/reward"], row.get("eval/valid")) for row in seen}) == 1
    return len(seen) if one and len(done) >= 2 and len(seen) >= 3 else 0
