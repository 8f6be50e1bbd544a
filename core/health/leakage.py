"""Is there training on what evaluation asks? Then its reward tells how well the problems were learned by heart.

A problem is the same by its id or by its text: our runs record the share of each step's prompts (`groups/held_out`); of
other logs, ids are compared.

## leakage

Severity: error from 1 % of the prompts on, or where only ids are compared; warning below (certain).

Means: there is training on prompts of the evaluation, so its reward is not that of unseen problems.

Looks at: `groups/held_out`, the share of a step's prompts that evaluation asks too, by id or by text. Of other logs
ids are compared.

Confounder: ids that are reused for other problems in a foreign log.

Do: take these problems out of one of the two sets, by their text and not by their ids alone.

Measured: 10 of 10 planted faults.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut, steps_of

MANY = 0.01  # of the prompts: from here on an error


def leakage(case: Case) -> Sequence[Finding]:
    """An error where prompts of evaluation were trained on, a warning where it was less than one in a hundred."""
    shares = [(row, share) for row in steps_of(case.rows) if (share := row.get("groups/held_out")) is not None]
    evidence: dict[str, float | str | Sequence[str]] = {}
    if shares:
        share, hit = sum(share for _, share in shares) / len(shares), [row for row, share in shares if share > 0]
        evidence |= {"share": share, "steps": len(shares), "steps_with_some": len(hit)}
        evidence |= {"first_step": float(hit[0]["step"] or 0)} if hit else {}
    drawn = dict.fromkeys(sample.group for sample in case.samples if sample.group is not None and sample.step > 0)
    common = [group for group in drawn if group in case.eval_groups]
    if common:
        evidence |= {"prompts": common[:3], "prompts_in_both": len(common), "prompts_trained_on": len(drawn)}
    share = float(str(evidence.get("share", len(common) / max(1, len(drawn)))))
    if not share and not common:
        return ()
    return (
        Finding(
            id="leakage",
            severity="error" if share >= MANY or not shares else "warning",
            summary=(
                f"{share:.1%} of the prompts that were trained on are prompts of the evaluation"
                + (f", {common[0]} the first" if common else ", by their text")
                + ": its reward is not that of unseen problems"
            ),
            evidence=evidence,
            rules_out=(RuledOut(id="generalisation", why="a rising evaluation may be recall"),),
            advice="take these problems out of one of the two sets, by their text and not by their ids alone",
            confidence="certain",
            decider=Decider(question="how does the run do on problems of neither set (grpoctl eval on a test split)?"),
        ),
    )
