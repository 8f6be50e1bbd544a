"""Does no completion ever end by itself? Then the end token is not recognised, or nothing fits into the limit.

From the first step on: a policy that collapses into endless text ends its completions at first
(core.health.policy_collapse, learning_rate). A limit that is too small lets a short answer through now and then, one
that is far too small does not, and some tasks want texts of a fixed length: no count can tell these apart.

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

Do: stop at the model's own end tokens: the tokenizer's and all of its generation config's. The deciding experiment is
a limit four times as large.

Measured: 10 of 10 planted faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut, sampled, steps_of

FIRST = 3  # steps, and the evaluation before them where it is known
ALL = 0.99
MOST = 0.95  # of all steps: training may teach a policy to be short
MANY = 100  # completions of which not one ended: most limits would have let one through
ACCEPTED = 0.5  # share of valid completions: the task takes texts that are cut off


def missing_eos(case: Case) -> Sequence[Finding]:
    """An error where every completion is cut off, from the first step on; a warning where the task accepts them so."""
    rows = [row for row in steps_of(case.rows) if sampled(row)]
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
