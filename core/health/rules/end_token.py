"""End tokens and the completion mask: completions that never end by themselves, tokens that the loss leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut, sampled

FIRST = 3  # steps, and the evaluation before them where it is known
ALL = 0.99
MOST = 0.95  # of all steps: training may teach a policy to be short
MANY = 100  # completions of which not one ended: most limits would have let one through
ACCEPTED = 0.5  # share of valid completions: the task takes texts that are cut off


def missing_eos(case: Case) -> Sequence[Finding]:
    """An error where every completion is cut off, from the first step on; a warning where the task accepts them so.

    From the first step on: a policy that collapses into endless text ends its completions at first
    (core.health.rules.policy_collapse, learning_rate). A limit that is too small lets a short answer through now and
    then, one that is far too small does not, and some tasks want texts of a fixed length: no count can tell these
    apart.

    ## missing-eos

    Severity: error (moderate); warning where most of the completions are valid as they are.

    Means: no completion ever ends by itself: the end token is not recognised while sampling, or the limit is far too
    small.

    Looks at: `completions/truncated` of the first three steps and of the evaluation before them (all cut off), and 95 %
    of the whole run.

    Confounder: a limit that is far too small, and texts that are meant to have a fixed length: counts cannot tell these
    apart, so never more than moderate. A limit that is merely too small lets a short answer through now and then (a
    `tiny` p31 with 8 tokens instead of 48 still ended an eighth to a quarter of its completions on most steps). A
    collapse into endless text ends its completions at first; it was so before any update, so `policy-collapse` and
    `learning-rate` are ruled out.

    Do: stop at the model's own end tokens: the tokenizer's and all of its generation config's. The deciding experiment
    is a limit four times as large.

    Measured: 10 of 10 planted faults.
    """
    rows = [row for row in case.steps if sampled(row)]
    cut = [share for row in rows if (share := row.get("completions/truncated")) is not None]
    start = [share for row in case.rows if not row.get("step") and (share := row.get("eval/truncated")) is not None]
    first = [*start, *cut[:FIRST]]
    if len(cut) < FIRST or min(first) < ALL or fmean(cut) < MOST:
        return ()
    limit, drawn = case.settings.max_completion_length, _drawn(case)
    sure = drawn is not None and drawn >= MANY and min(*start, *cut) == 1.0
    at = "" if limit is None else f" at {limit} tokens"
    valid = [share for row in rows if (share := row.get("completions/valid")) is not None]
    accepted = bool(valid) and fmean(valid) > ACCEPTED
    longer = () if limit is None else (f"max_completion_length={4 * limit}",)
    return (
        Finding(
            id="missing-eos",
            severity="warning" if accepted else "error",
            summary=(
                f"{f'all {drawn:g} completions' if sure else f'{fmean(cut):.1%} of the completions'} were cut off{at}, "
                "from the first step on and before any update: the end token is not recognised while sampling, or "
                + ("texts of a fixed length are meant" if accepted else "the limit is far too small")
            ),
            evidence={
                "truncated": fmean(cut), "truncated_first": min(first), "steps": len(cut),
                **({} if drawn is None else {"completions": drawn}),
                **({} if limit is None else {"max_completion_length": limit}),
            },
            rules_out=(
                RuledOut(id="policy-collapse", why="it was so before the first update: none made the texts endless"),
                RuledOut(id="learning-rate", why="it was so before the first update"),
            ),
            suggest=longer,
            advice="stop at the model's own end tokens: the tokenizer's and all of its generation config's",
            confidence="moderate",
            decider=Decider(
                question="do completions end when they may be four times as long? If none does, it is the end token",
                overrides=longer,
                expects=("completions/truncated < 0.95",),
            ),
        ),
    )  # fmt: skip


def _drawn(case: Case) -> float | None:
    """Completions of the whole run: as recorded, else by the settings."""
    recorded = case.rows[-1].get("completions")
    k, prompts = case.settings.num_generations, case.settings.prompts_per_step
    return recorded if recorded is not None or k is None or prompts is None else float(k * prompts * len(case.rows))


ROUNDING = 1e-6  # of a count: means over several optimiser steps


def completion_mask(case: Case) -> Sequence[Finding]:
    """An error where the loss counted other tokens than were drawn in the completions it learned from.

    A mask that is off by one loses the end token, or the first. Both counts are integers of the same completions, so
    any difference is a fault.

    ## completion-mask

    Severity: error (certain).

    Means: the loss learned from other tokens than were drawn: the completion mask is off.

    Looks at: `policy/tokens` (what the loss learned from) and `policy/tokens_drawn` (what was drawn in the same
    completions; those cut off are left out where `mask_truncated_completions` says so). Both are integers, so any
    difference is a fault.

    Confounder: none among sound runs. What it cannot see: a mask that is shifted at both ends (starts one token late
    and ends one late, or the other way round) counts the right number of wrong tokens; no other rule sees it either.

    Do: let the mask of a completion start at its first drawn token and end with its end token.

    Measured: 10 of 10 planted faults. A mask that starts one token late lost exactly 1 token a completion (327 of 343
    in 16 completions).
    """
    rows = [(int(row["step"] or 0), row.get("policy/tokens"), row.get("policy/tokens_drawn")) for row in case.steps]
    known = [(step, counted, drawn) for step, counted, drawn in rows if counted is not None and drawn is not None]
    odd = [step for step in known if abs(step[1] - step[2]) > ROUNDING * max(1.0, step[2])]
    if not odd:
        return ()
    step, counted, drawn = odd[0]
    missing = sum(d - c for _, c, d in odd) / len(odd)
    each, factor = _each(case, missing), case.settings.factor or "token"
    return (
        Finding(
            id="completion-mask",
            severity="error",
            summary=(
                f"the loss learned from {counted:g} {factor}s on step {step}, of {drawn:g} drawn, and was wrong on "
                f"{len(odd)} of {len(known)} steps{each}: its completion mask is off"
            ),
            evidence={"step": step, "counted": counted, "drawn": drawn, "odd_steps": len(odd), "steps": len(known),
                      "missing_a_step": missing},
            advice=f"the mask of a completion starts at its first drawn {factor} and ends with its "
            + ("end token" if factor == "token" else "last"),
            confidence="certain",
            decider=Decider(question=f"with one completion of known length, how many {factor}s does the loss count?"),
        ),
    )  # fmt: skip


def _each(case: Case, missing: float) -> str:
    k, prompts = case.settings.num_generations, case.settings.prompts_per_step
    return f" ({missing / (k * prompts):.2g} a completion)" if k and prompts else ""
