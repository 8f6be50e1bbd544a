"""Completions that went bad while the weights had hardly moved: then it is not the policy that collapsed.

By the KL to the start, where a log has one: a policy that is d nats a token away gives no event a chance that differs
by more than sqrt(d x length / 2) from what it was (Pinsker). Not here: collapses that follow updates and heal without
them (core.health.rollout_mode).
"""

from __future__ import annotations

import math
from statistics import fmean

from core.health.finding import Decider, Finding, RuledOut
from core.health.first_updates import NEAR, values_of
from core.health.lasting import Break

FIRST = 5  # steps of the collapse whose KL is asked
SHARES = ("completions/valid", "completions/truncated")  # limits on the chance of an event


def unmoved(one: Break, updates: int) -> Finding | None:
    """The error of a sampler that is not the policy; None where no KL says so, or the KL allows the collapse."""
    metric = one.limit.metric
    first = one.since[:FIRST]
    kls, lengths = values_of(first, "kl"), values_of(first, "completions/length")
    before, since = values_of(one.before, metric), values_of(first, metric)
    if metric not in SHARES or not kls or not before or max(kls) >= NEAR:
        return None
    change = abs(fmean(since) - fmean(before))
    allowed = math.sqrt(max(kls) * max(lengths, default=0.0) / 2)
    if change <= allowed:
        return None
    return Finding(
        id="rollout-mode",
        severity="error",
        summary=(
            f"{one}, after {updates} update{'' if updates == 1 else 's'}, while the policy is at most {max(kls):.2g} "
            f"nats a token away from its start: {metric} changed by {change:.2g}, and so small a KL allows "
            f"{allowed:.2g}; completions are not drawn from that policy, or the prompts changed there"
        ),
        evidence={"metric": metric, "first_step": one.first, "kl": max(kls), "change": change, "allowed": allowed},
        rules_out=tuple(
            RuledOut(id=cause, why=f"a KL of {max(kls):.2g} nats a token: the weights hardly moved")
            for cause in ("policy-collapse", "learning-rate", "damaged-weights")
        ),
        suggest=("guards.rollout_integrity=stop",),
        advice="compare the log-probs recorded while sampling with a clean forward; sample in eval mode, cache on",
        confidence="moderate",
        decider=Decider(
            question="is there a gap between sampler and trainer?", overrides=("guards.rollout_integrity=stop",)
        ),
    )
