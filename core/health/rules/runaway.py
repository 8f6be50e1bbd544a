"""A column that leaves its range for good: entropy that is used up, gradients that explode.

What is here: what a log without limits of ours says by its numbers alone. What is not: a run's own guards
(policy_collapse), single spikes and gradients that are not finite (numerical).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from core.health.case import Case
from core.health.finding import Decider, Finding, Row, Severity
from core.health.rules.zero_loss import NONE as NO_LOSS
from core.health.statistics import chance_above, series, thirds, trend
from core.health.steps import ends_of, held_out_rose, number, reward_gain, solved, values_of

ROWS = 6  # fewer show no course, but for one that is clear
USED_UP = 0.05  # nats: hardly a token is still drawn
OF_START = 0.2  # of the entropy at the start: a policy that began as sure is not one that lost it
EXPLODED = 100.0  # times the gradient norm's early level
SHRUNK, SHRANK = 1 / 3, 0.3  # of the entropy at the start, and nats: less is left, more was lost
ALIKE = 0.4  # of the entropy at the start, where groups died with it
SIGNIFICANT, LASTING = 1e-3, 3
SURE, OF_FIRST = 0.1, 0.1  # nats; and of the entropy at the start
APART, ONE_LENGTH, A_LABEL = 3.0, 1.3, 8  # the longest over the shortest completion, at the start and the end; tokens
RIGHT = 0.75  # of the answers: the same text for every prompt does not come so far
DIED, HALF = 0.3, 0.5  # of the groups: more than before, and at the end
A_TEXT, ANY_TOKEN = 2.0, 5.0  # nats a token: what models that write texts begin with at most, and what none writes by
ABSOLUTE = 10.0  # a gradient norm below that is no explosion, however small it began
ENORMOUS, TENFOLD = 1000.0, 10.0  # a gradient norm that no clip's usual 1 is near, where it grew so many times


def runaway(case: Case) -> Sequence[Finding]:
    """The findings of entropy and of gradients, one each at most.

    ## entropy-collapse

    Severity: error (strong) where the reward fell to half or less as well; warning (strong), moderate without a reward,
    weak with two to five rows. Where up to a third of the start is left and more than 0.05 nats: warning (weak) where
    the reward is known not to have risen, info (weak) where it is not known.

    Means: the policy got sure of its tokens before it learned: groups become equal, nothing is left to compare.

    Looks at: `entropy` at the end (a fifth of the rows; of two to five rows the last, none above the one before) below
    0.05 nats and below a fifth of its start, or below 0.4 of it (weak) while `groups/dead` went up by 0.3 to half of
    the groups or more; and `reward/mean` rose by less than a tenth of its early level and of what was left to earn, or
    not beyond its scatter. Rewards count up to where the entropy is known: what came later tells nothing of them. And
    an entropy that fell by 0.3 nats or more to a third of its start or less: over six rows or more on a line that goes
    down (p < 0.001), or where each of the last fifth, three at least, is that low; over fewer where all go one way.
    And, whatever was paid (moderate): the entropy fell to a tenth and below 0.1 nats while the longest completion of a
    step came to within 1.3 times the shortest, from three times it or more, in step after step: about one answer for
    every prompt. Silent where 75 % of the answers are right at the end (`rewards/accuracy`, `eval/reward`): answers of
    a fixed form. Fewer than 8 tokens may be a label, and completions that are cut off have one length: silent, too.

    Confounder: a policy that solves its task gets sure of it as well: with a reward that rose, or is 0.97 of the most
    there is, nothing is said. One that was as sure from the start lost nothing.

    Do: a smaller learning rate, a higher `epsilon_high` (DAPO), an entropy bonus; data it cannot solve yet.

    ## grad-explosion

    Severity: error (strong; moderate with two to five rows where the reward fell to half or less); warning (weak) with
    as few rows otherwise, and (moderate) by the loss alone; info (weak) with as few rows where the reward rose.

    Means: gradients grew by two orders of magnitude and stayed there (`numerical`: they ended in no number).

    Looks at: the median `grad_norm` of the last fifth of the rows against the first, at least 100 times it and at least
    10; of two to five rows the last against the first, none below the one before (ten times it where that is 1000).
    Where no norm is told, likewise the size of `policy/loss` (else `loss`) on six rows or more that are not 0; silent
    where the reward, an evaluation or the share of right answers rose, little is left to earn, or none is told.

    Confounder: single spikes (`grad-norm`); a norm that began at nearly 0 and is now usual; a stage with another loss,
    whose gradient has another size: only the rows of the stage that the settings are of count. A loss may hold a value
    function's, which grows with what is earned: where there is one, only `policy/loss` counts.

    Do: a smaller learning rate, `max_grad_norm`; look at the first row that left: what else changed there?
    """
    rows = case.steps
    findings = (_entropy(rows) or _one_answer(case), _gradient(case.stage_rows) or _loss(case))
    return [finding for finding in findings if finding is not None]


def _course(rows: Sequence[Row], metric: str, sign: int) -> tuple[list[float], list[float], bool]:
    """The ends of a column, and whether that is all: of fewer rows than show a course, those that go one way."""
    start, end = ends_of(rows, metric, least=2)
    values = values_of(rows, metric)
    few = len(values) < ROWS
    in_order = all(sign * (b - a) >= 0 for a, b in pairwise(values))
    return ([], [], few) if few and not in_order else (start, end, few)


def _entropy(rows: Sequence[Row]) -> Finding | None:
    start, end, few = _course(rows, "entropy", -1)
    if not start:
        return None
    used_up = median(end) < min(USED_UP, OF_START * median(start))
    alike = median(end) < ALIKE * median(start) and _groups_died(rows)
    shrunk = not used_up and not alike and _shrank(rows, start, end, few=few)
    if not used_up and not alike and not shrunk:
        return None
    known = [at for at, row in enumerate(rows) if number(row, "reward/mean") is not None]
    past = sum(number(row, "entropy") is not None for row in rows[known[-1] + 1 if known else 0 :])
    gain = None if past >= max(2, len(end)) else reward_gain(rows)
    if gain is not None and (gain[2] or solved(rows)):
        return None
    early, late = (0.0, 0.0) if gain is None else gain[:2]
    fell = early > 0 and late <= early / 2 and not few
    reward = "" if gain is None else f", and the reward went from {early:.3g} to {late:.3g}"
    return Finding(
        id="entropy-collapse",
        severity="info" if shrunk and gain is None else "error" if fell and not shrunk else "warning",
        summary=f"the entropy fell from {median(start):.3g} to {median(end):.3g} nats{reward}: completions get equal",
        evidence={
            "entropy_start": median(start), "entropy_end": median(end),
            **({} if gain is None else {"reward_start": early, "reward_end": late}),
        },
        advice="a smaller learning rate or a higher upper clip keeps it; more of the same steps cannot bring it back",
        confidence="weak" if few or not used_up else "moderate" if gain is None else "strong",
        decider=Decider(question="does it stay with a third of the learning rate?", expects=("entropy > 0.1",)),
    )  # fmt: skip


def _one_answer(case: Case) -> Finding | None:
    """A warning where completions of all prompts came to have about one length while the entropy went."""
    rows = case.stage_rows
    start, end, few = _course(rows, "entropy", -1)
    if few or not start or median(end) >= min(SURE, OF_FIRST * median(start)):
        return None
    known = [
        row for row in rows if None not in (number(row, "completions/longest"), number(row, "completions/shortest"))
    ]
    fifth = len(known) // 5
    if fifth < LASTING:
        return None
    (long_was, long_now), (short_was, short_now) = (
        (median(values_of(known[:fifth], name)), median(values_of(known[-fifth:], name)))
        for name in ("completions/longest", "completions/shortest")
    )
    lengths, cut = (values_of(known[-fifth:], f"completions/{name}") for name in ("length", "truncated"))
    one_length = short_now >= A_LABEL and long_now <= ONE_LENGTH * short_now and long_was >= APART * max(short_was, 1.0)
    in_all_steps = bool(lengths) and max(lengths) <= ONE_LENGTH * min(lengths) and max(cut, default=0.0) < HALF
    right = _are_right(rows, "rewards/accuracy") or _are_right(case.rows, "eval/reward")
    if not one_length or not in_all_steps or right:
        return None
    gain = reward_gain(rows)
    paid = "" if gain is None or not gain[2] else "; the reward rose with it, so it pays for that answer"
    return Finding(
        id="entropy-collapse",
        severity="warning",
        summary=(
            f"at the end completions of all prompts have {short_now:.0f} to {long_now:.0f} tokens ({short_was:.0f} to "
            f"{long_was:.0f} at the start), and the entropy fell from {median(start):.3g} to {median(end):.3g} nats: "
            f"about one answer for every prompt, unless answers of this task are of one length{paid}"
        ),
        evidence={
            "entropy_start": median(start), "entropy_end": median(end), "shortest": short_now, "longest": long_now,
        },
        advice="read the last answers to five different prompts; a reward that pays one text for all of them is gamed",
        confidence="moderate",
        decider=Decider(question="are the answers to different prompts the same text?"),
    )  # fmt: skip


def _are_right(rows: Sequence[Row], metric: str) -> bool:
    """Whether most answers are right at the end, by shares of 0 to 1: one text is hardly right for most prompts."""
    _, late = ends_of(rows, metric, least=2)
    return bool(late) and fmean(late) >= RIGHT and max(values_of(rows, metric)) <= 1


def _shrank(rows: Sequence[Row], start: Sequence[float], end: Sequence[float], *, few: bool) -> bool:
    """Whether the entropy lost two thirds on a course that goes down."""
    was, now = median(start), median(end)
    if now > SHRUNK * was or was - now < SHRANK:
        return False
    line = trend(series(rows, "entropy"))
    clear = line is not None and chance_above(-line.z) < SIGNIFICANT
    return few or clear or (len(end) >= LASTING and max(end) <= SHRUNK * min(start))


def random_policy(case: Case) -> Finding | None:
    """A warning where the entropy grew to that of a policy that draws any token; not of runs of ours."""
    values = values_of(case.stage_rows, "entropy")
    if len(values) < ROWS or case.stages or case.settings.factor is not None or not 0 < values[0] <= A_TEXT:
        return None
    late, gain = min(values[-max(LASTING, len(values) // 3) :]), reward_gain(case.stage_rows)
    if late < ANY_TOKEN or (gain is not None and gain[2]):
        return None
    return Finding(
        id="policy-collapse",
        severity="warning",
        summary=(
            f"the entropy grew from {values[0]:.3g} to {median(values[-LASTING:]):.3g} nats a token, {late:.3g} or "
            "more on the last third of the rows: completions are hardly a text any more"
        ),
        evidence={"entropy_start": values[0], "entropy_end": median(values[-LASTING:]), "rows": len(values)},
        advice="a smaller learning rate, and no bonus for entropy, or a far smaller one; read a completion of the end",
        confidence="strong",
        decider=Decider(question="does it stay without the bonus, and with a third of the learning rate?"),
    )


def _may_have_learned(case: Case) -> bool:
    """Whether what is earned, evaluated or right rose, little is left to earn, or none of these is told."""
    gain = reward_gain(case.stage_rows)
    told = [
        values
        for values in (values_of(case.rows, "eval/reward"), values_of(case.stage_rows, "rewards/accuracy"))
        if values
    ]
    rose = any(held_out_rose(*thirds(values)) for values in told)
    return rose or solved(case.stage_rows) or (gain[2] if gain is not None else not told)


def _groups_died(rows: Sequence[Row]) -> bool:
    """Whether most groups have equal rewards at the end, and clearly fewer had at the start."""
    early, late = ends_of(rows, "groups/dead", least=2)
    return bool(early) and fmean(late) >= HALF and fmean(late) - fmean(early) >= DIED


def _gradient(rows: Sequence[Row]) -> Finding | None:
    start, end, few = _course(rows, "grad_norm", 1)
    if not start:
        return None
    enormous = few and median(end) >= max(ENORMOUS, TENFOLD * median(start))
    if not enormous and median(end) < max(ABSOLUTE, EXPLODED * median(start)):
        return None
    far = (TENFOLD if enormous else EXPLODED) * median(start)
    norms = [(int(row["step"] or 0), norm) for row in rows if (norm := number(row, "grad_norm")) is not None]
    first = next((step for step, norm in norms if norm >= far and norm > median(start)), 0)
    early, late = ends_of(rows, "reward/mean", least=2)
    fell = bool(early) and fmean(late) <= fmean(early) / 2
    gain = reward_gain(rows)
    of_few: Severity = "error" if fell else "info" if gain is not None and gain[2] else "warning"
    return Finding(
        id="grad-explosion",
        severity=of_few if few else "error",
        summary=f"the gradient norm grew from {median(start):.3g} to {median(end):.3g} for good from step {first}",
        evidence={"grad_norm_start": median(start), "grad_norm_end": median(end), "first_step": first},
        advice="a smaller learning rate, and max_grad_norm; what else changed on that step names the cause",
        confidence="strong" if not few else "moderate" if fell else "weak",
        decider=Decider(question="do gradients stay with a third of the learning rate?", expects=("grad_norm < 10",)),
    )


def _loss(case: Case) -> Finding | None:
    """What the size of the loss says of gradients where no norm is told."""
    rows = case.stage_rows
    column = "policy/loss" if values_of(rows, "policy/loss") else "loss"
    sizes: list[Row] = [{**row, column: abs(loss)} for row in rows if abs(loss := number(row, column) or 0.0) > NO_LOSS]
    of_values = column == "loss" and (values_of(rows, "critic/loss") or values_of(rows, "critic/explained"))
    if len(sizes) < ROWS or values_of(rows, "grad_norm") or of_values or _may_have_learned(case):
        return None
    start, end = (median(values) for values in ends_of(sizes, column, least=2))
    far = max(ABSOLUTE, EXPLODED * start)
    if end < far:
        return None
    first = next(int(row["step"] or 0) for row in sizes if (row[column] or 0.0) >= far)
    return Finding(
        id="grad-explosion",
        severity="warning",
        summary=(
            f"the {column} grew from {start:.3g} to {end:.3g} in size, {far:.3g} or more first on step {first}: the "
            "ratio to the policy that drew is out of bounds, or gradients are; no norm is told"
        ),
        evidence={"loss_start": start, "loss_end": end, "first_step": first, "column": column},
        advice="log grad_norm and the largest ratio; a smaller learning rate, max_grad_norm, fewer updates a rollout",
        confidence="moderate",
        decider=Decider(question="does the loss stay with a third of the learning rate?"),
    )
