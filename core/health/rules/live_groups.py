"""Few live groups, where a log has no count of them: what its means over groups say (core.health.live_count).

And live groups that a choice of candidates kills. Not here: dead groups that are counted (core.health.rules.groups).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from core.health.case import Case
from core.health.finding import Confidence, Decider, Finding, RuledOut
from core.health.live_count import LiveCount, live_count, live_std
from core.health.rules.advantage_size import FAR, advantage_means, least_rank_std, no_causes
from core.health.statistics import chance_above, shown_p
from core.health.steps import number

WHY = (
    "why is not in these columns, and there are two readings: the candidates that take part are chosen by reward, and "
    "the best of a group are equal; or a group's candidates are all right or all wrong, and no choice would help"
)
DECIDES = (
    "What share of the groups is mixed over all candidates, before any are chosen? `grpoctl check --data` counts it: "
    "a share far above the live one convicts the choice, the same share the queries"
)


SHOWN = 4  # sums of a sentence; the evidence has all
ENOUGH = 10  # steps
SIGNIFICANT = 1e-3
KILLED = 0.5  # of the live groups: fewer that a choice kills are no finding


def few_live_groups(case: Case) -> Sequence[Finding]:
    """An error where printed means over groups leave one number of live groups, and that is under a tenth of them.

    ## few-live-groups

    Severity: error (certain under a z-score, and where ranks are stated that cannot be; moderate where no normaliser
    is known).

    Means: so many groups were live, and all others taught nothing. A mean over groups of what is 1 in a live group and
    0 in a dead one *is* the share of live groups. A z-score's std is such a number: 1 in a group whose rewards differ
    by more than the floor, whatever they are. So a mean of 0.0062 over 640 groups says 4 / 640 = 0.00625, and not that
    advantages are small.

    Looks at: `advantage/group_std` and `advantage/group_max`; or `advantage/std_all` with `advantage/max_abs` or
    `advantage/max` where `prompts_per_step` is 1. It needs the number of groups behind a row (`--set
    groups_per_row=640`), and `num_generations` or the numbers of candidates that take part (`--set group_sizes=3,5`).
    Of live groups with two reward levels the largest |A| is known too: (K - j) / K over the std of j of K. The rule
    looks for a whole number of live groups whose std and largest |A| agree with both columns to their last printed
    digit, row by row, for each ddof that is possible. `chance` is that such columns fit some whole number by accident:
    each number's printed range as a part of all that is possible.

    Confounder: digits too few, or groups too many, for one whole number: then `chance` is above 0.3 %, nothing is said
    here, and `small-advantage` or `impossible-advantage` names a number that fits the std as one reading. Silent where
    `groups/dead` is logged, and where something else shapes advantages.

    Rules out: rank normalisation (ranks have about 0.7 to 0.8 in every group, or at least 0.5 in every group whose
    rewards differ), a small learning rate, and the KL's share of the loss.

    Do: count the mixed groups over all candidates, before any are chosen (`grpoctl check --data`). Many: choose others
    (`candidate_choice=stratified`). As few: other queries, more varied candidates or a finer reward.

    Measured: document 001's table: 4 of 640 ([case study](cases/lever-plus.md)). False alarms in 42,000 simulated logs
    of groups that are all live and all pressed by a floor (32 to 640 groups of 3 to 8, one to three rows, 3 to 5
    digits): 22.
    """
    count, seen, known = case.once(live_count), advantage_means(case), case.settings
    if count is None or not count.exact or count.most >= FAR * count.groups or seen.dead is not None:
        return ()
    if known.baseline not in (None, "group") or known.scale_rewards not in (None, "group"):
        return ()
    certain: Confidence = "certain" if known.scale_rewards is not None or known.transform == "rank" else "moderate"
    share = count.least / count.groups
    where = f" in each of {count.rows} rows" if count.rows > 1 else ""
    return (
        Finding(
            id="few-live-groups",
            severity="error",
            summary=(
                f"{count.words} were live{where}, and the other {1 - share:.1%} taught nothing: a z-score's std is 1 "
                "in a live group and 0 in a dead one, so its mean over groups is the share of live ones "
                f"({'; '.join(count.arithmetic[:SHOWN])}); {WHY}"
            ),
            evidence={
                "live": count.least,
                "groups": count.groups,
                "share": share,
                "rows": count.rows,
                "group_sizes": ", ".join(map(str, count.sizes)),
                "arithmetic": count.arithmetic,
                "chance": count.chance,
                **seen.numbers(),
            },
            rules_out=(_no_ranks(count), *no_causes(case, seen.rows)),
            advice=(
                "of many mixed groups keep some of each kind (candidate_choice=stratified); where few are mixed, other "
                "queries, more varied candidates or a finer reward; no learning rate, beta or normaliser helps"
            ),
            confidence=certain,
            decider=Decider(question=DECIDES),
        ),
    )


def _no_ranks(count: LiveCount) -> RuledOut:
    """Ranks cannot be why an advantage is small: what they give a group is fixed."""
    size = max(count.sizes)
    population = math.sqrt((size + 1) / (3 * (size - 1)))
    sample = population * math.sqrt(size / (size - 1))
    why = (
        f"ranks of {size} have a std of {population:.3g} (by n; {sample:.3g} by n - 1) in every group whatever its "
        f"rewards are, and at least {least_rank_std(size):.2g} in every live one where equal rewards share a rank: "
        "they make no advantage small"
    )
    return RuledOut(id="rank-normalisation", why=why)


def killed_by_choice(case: Case) -> Sequence[Finding]:
    """A warning where groups are live over all candidates and dead among those that take part.

    ## killed-by-choice

    Severity: warning (strong).

    Means: the rewards of a group differ, and those of its best candidates do not: what `keep_candidates` leaves of the
    group teaches nothing. Of 12 candidates of which 7 are right the best 5 are all right.

    Looks at: `groups/dead`, which is over all candidates, and `advantage/group_std`, which under a z-score without a
    floor is the share of groups that are live among the candidates that take part; on ten steps or more, p < 0.001 for
    their difference, and at least half of the live groups lost.

    Confounder: stored groups (`groups: offline`), whose `groups/dead` is over those that take part: silent, and
    `grpoctl check --data` counts both.

    Do: `candidate_choice=stratified`, which keeps a right and a wrong one where there are both; or keep all.
    """
    known = case.settings
    sizes, everyone = known.group_sizes, known.num_generations
    z_score = known.scale_rewards == "group" and known.baseline == "group" and not known.std_floor
    if not sizes or everyone is None or min(sizes) >= everyone or known.offline or not z_score:
        return ()
    rows = [row for row in case.stage_rows if not row.get("reward/missing")]
    unit = max(live_std(size, known.ddof if known.ddof is not None else 1, 1) for size in sizes if size > 1)
    pairs = [
        (1.0 - dead, std / unit)
        for row in rows
        if (dead := number(row, "groups/dead")) is not None and (std := number(row, "advantage/group_std")) is not None
    ]
    if len(pairs) < ENOUGH:
        return ()
    before, after = (fmean(values) for values in zip(*pairs, strict=True))
    lost = [live - left for live, left in pairs]
    se = stdev(lost) / math.sqrt(len(lost))
    p = chance_above(fmean(lost) / se) if se > 0 else float(fmean(lost) <= 0)
    if p >= SIGNIFICANT or after > KILLED * before:
        return ()
    return (
        Finding(
            id="killed-by-choice",
            severity="warning",
            summary=(
                f"{before:.0%} of the groups are live over all candidates and {after:.0%} among those that take part "
                f"({shown_p(p)}): the choice of candidates leaves equal rewards"
            ),
            evidence={"live_before": before, "live_after": after, "p": p, "steps": len(pairs)},
            suggest=("candidate_choice=stratified",),
            advice="keep a right and a wrong candidate where a group has both, or keep all",
            confidence="strong",
            decider=Decider(
                question="is it the choice?",
                overrides=("candidate_choice=stratified",),
                expects=(f"advantage/group_std > {0.8 * before * unit:.2g}",),
            ),
        ),
    )
