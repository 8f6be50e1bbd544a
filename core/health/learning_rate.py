"""Was the learning rate far too large, or too small to move anything?

Too large: the first updates made another policy, for good, and a worse one (core.health.first_updates has the
evidence of the curves, core.health.large_rate the arithmetic). Too small: evaluations that draw the same every time
give the same texts, whatever was learned. Silent where the sampler is at fault: its samples tell nothing of the weights
(core.health.rollout_mode, integrity).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut
from core.health.first_updates import FAR, SIGNIFICANT, Elsewhere, Jump, Left, elsewhere, jump, largest_rate
from core.health.integrity import worst_integrity
from core.health.large_rate import WEIGHT, Struck, struck
from core.health.onset import acted, number
from core.health.rollout_mode import contrast
from core.health.trend import shown_p

AIM = 1e-4  # nats per token: what the suggested rate should give at first, since the KL goes with its square
HEALED = 3  # all-invalid steps without an update that must have been seen before one can say whether they heal
STILL = 20  # updates that must have acted before a policy can be said not to move
FULL_RATE = 0.5  # of the rate that the settings name: a warm-up that has not come so far tells nothing of it
UNMOVED = 1e-7  # nats per token, the largest of a run: no argmax and next to no draw is another
MOVED = 1e-5  # nats per token: equal evaluations are then a solved task's


def learning_rate(case: Case) -> Sequence[Finding]:
    """An error for a rate that broke the policy, a warning for one that may have, or that moved nothing."""
    if sampler_at_fault(case):
        return ()
    found = case.once(too_large) or _too_small(case)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What speaks for a rate that was too large; at least one of them."""

    far: Jump | None
    other: Elsewhere | None
    hit: Struck | None

    @property
    def left(self) -> tuple[Left, ...]:
        """The columns that left their start, by the evidence that asks the most."""
        found = next((one for one in (self.other, self.far, self.hit) if one is not None), None)
        return () if found is None else found.left

    @property
    def evaluated(self) -> bool:
        """Whether the evaluations since are clearly worse."""
        return any(one is not None and one.evaluated for one in (self.far, self.other))

    @property
    def proven(self) -> bool:
        """Whether the curves, or curves and the size of an update, say that another policy came at once."""
        return self.other is not None and (self.other.proven or (self.hit is not None and self.hit.worse))

    @property
    def broke(self) -> bool:
        """Whether the policy was broken, as far as can be known."""
        return self.proven or (self.far is not None and self.far.harmed)


def too_large(case: Case) -> Finding | None:
    """The finding where the first updates went too far; its evidence has all that left its start."""
    seen = _Seen(far=jump(case), other=elsewhere(case), hit=struck(case))
    if seen.far is None and seen.other is None and (seen.hit is None or not seen.hit.worse):
        return None
    rate = _rate(case)
    change = () if rate is None else (f"learning_rate={_smaller(rate, seen.far):.1g}",)
    sure = seen.far is not None or bool(not_the_sampler(case))
    return Finding(
        id="learning-rate",
        severity="error" if seen.broke else "warning",
        summary=f"learning rate {_shown(rate)} {'is' if seen.far or seen.broke else 'may be'} too large: {_said(seen)}",
        evidence=_evidence(rate, seen),
        rules_out=not_the_sampler(case),
        suggest=change,
        confidence="strong" if seen.broke and sure else "moderate",
        decider=Decider(
            question="does the same run stay itself at a smaller rate?",
            overrides=change,
            expects=(f"kl < {FAR}",) if seen.far is not None else (),
        ),
    )


def _said(seen: _Seen) -> str:
    parts, far, other, hit = [], seen.far, seen.other, seen.hit
    if hit is not None:
        times = f"{hit.rate / WEIGHT:.2g} times what a transformer's weights begin with ({WEIGHT})"
        parts.append(f"an update of Adam moves a weight by about the rate, {times}")
    if far is not None:
        parts.append(f"the policy was {far.kl:.2g} nats a token away from its start after {counted(far.updates)}")
    if other is not None:
        before = f"the {other.before} before" if other.before > 1 else "the one before"
        open_ = "" if far or seen.proven else _open(other)
        parts.append(
            f"the {other.after} steps after {counted(other.updates)} are of another policy than {before} "
            f"({shown_p(other.p)}{open_})"
        )
    elif hit is not None and far is None:
        parts.append(f"with {counted(hit.updates)} and for good")
    if seen.left:
        parts.append(", ".join(f"{one.metric} went from {one.start:.3g} to {one.now:.3g}" for one in seen.left))
    if seen.evaluated:
        parts.append("the evaluations since are clearly worse")
    return "; ".join(parts)


def _open(other: Elsewhere) -> str:
    """What else it may be, where it is not proven."""
    return ": too few to prove it" if other.p >= SIGNIFICANT else ", or the prompts changed there"


def counted(count: int) -> str:
    """So many updates, in words."""
    return f"{count} update{'' if count == 1 else 's'}"


def _shown(rate: float | None) -> str:
    return "(unknown)" if rate is None else f"{rate:.3g}"


def _rate(case: Case) -> float | None:
    """The rate of the stage: the largest that was used, else what is known of its settings."""
    return largest_rate(case.stage_rows) or case.settings.learning_rate


def _evidence(rate: float | None, seen: _Seen) -> dict[str, float | str]:
    found: dict[str, float | str] = {} if rate is None else {"learning_rate": rate}
    if seen.hit is not None:
        found |= {"update_over_weight": seen.hit.rate / WEIGHT}
    if seen.far is not None:
        found |= {"kl": seen.far.kl, "after_updates": seen.far.updates, "kl_limit": FAR}
    if seen.other is not None:
        found |= {"steps_before": seen.other.before, "steps_after": seen.other.after, "p": seen.other.p}
    for one in (*(seen.hit.left if seen.hit else ()), *(seen.far.left if seen.far else ()), *seen.left):
        found |= {f"{one.metric}_start": one.start, f"{one.metric}_since": one.now}
    return found


def _smaller(rate: float, far: Jump | None) -> float:
    """By the KL, which goes with the square of the rate used until then; without one a tenth."""
    if far is None:
        return rate / 10.0
    return (far.rate or rate) / min(max(math.sqrt(far.kl / AIM), 10.0), 100.0)


def _too_small(case: Case) -> Finding | None:
    """A warning where no update showed: the same evaluations to the last digit, or no KL at all."""
    steps = case.stage_rows
    moved = sum(map(acted, steps))
    if moved < STILL or (rate := _rate(case)) is None:
        return None
    aim = case.settings.learning_rate or 0.0
    if rate < FULL_RATE * aim:
        return None  # still in its warm-up
    moved *= case.averaged_over
    kls = [value for row in steps if (value := number(row, "kl")) is not None]
    same = _same_evaluations(case) if max(kls, default=0.0) < MOVED else 0
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
        suggest=(f"learning_rate={_larger(max(rate, aim), max(kls, default=0.0)):.1g}",),
        confidence="certain" if same and kls and rate >= aim else "moderate",
        decider=Decider(
            question="does a larger rate move the evaluation?",
            overrides=(f"learning_rate={_larger(max(rate, aim), max(kls, default=0.0)):.1g}",),
            expects=("kl > 1e-5",) if kls else (),
        ),
    )


def _larger(rate: float, kl: float) -> float:
    return rate * (10.0 if kl <= 0 else min(max(math.sqrt(AIM / kl), 10.0), 100.0))


def _same_evaluations(case: Case) -> int:
    """How many evaluations there were, where all have one reward and one mean length to the last digit; else 0.

    Ours draw the same way every time, so the texts are the same: no draw fell another way. Elsewhere draws are new, or
    greedy, and two equal mean lengths are no chance either. Rewards that are all one (a solved task) say nothing.
    """
    seen = [
        row for row in case.rows if number(row, "eval/length") is not None and number(row, "eval/reward") is not None
    ]
    done = [row for row in seen if (row.get("step") or 0) >= 1]
    one = len({(row["eval/length"], row["eval/reward"], row.get("eval/valid")) for row in seen}) == 1
    solved = any(row.get("eval/reward_se") == 0 for row in seen)
    return len(seen) if one and not solved and len(done) >= 2 and len(seen) >= 3 else 0
