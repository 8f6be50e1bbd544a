"""What a log hints at where no rule says so: weak infos on logs of others, for whoever knows that the run failed.

A rule speaks where the numbers leave little else. Whoever bets on less names the cause more often, and suspects sound
runs, too: so a hint is an observation that is true of the log, an info, and weak. It is left out where a finding has
its id or rules it out. Runs of ours measure what the rules ask for, and get none. How often each hint was right about
public logs is in docs/diagnosing.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from statistics import fmean, median

from core.health.case import Case, bounded
from core.health.examine import Rule, asked
from core.health.finding import Decider, Finding
from core.health.rules.reward_parts import is_answer, parts_of
from core.health.statistics import sample_sd, series, shown_z, thirds, told_z, trend
from core.health.steps import best_and_last_level, held_out_rose, learns_from_samples, number, spread, values_of

FEW, MANY = 6, 12  # rows: of fewer than the first the ends are single rows, from the second on there are levels
CLEAR = 3.0  # standard errors
SOLVED = 0.95  # of the most there is: little is left to gain


Hint = Callable[[Case], Finding | None]


def hints(
    cases: Sequence[Case],
    findings: Sequence[Finding],
    ask: Callable[[Rule, Case], Sequence[Finding]] = asked,
) -> list[Finding]:
    """The hints that every run of one setup gives, in their order; none on an id that a finding has or rules out.

    None of runs of ours, and none where a log is of no policy that learns from its own completions.
    """
    settled = {one.id for one in findings} | {cause.id for one in findings for cause in one.rules_out}
    if not cases or any(case.stages or not learns_from_samples(case.rows) for case in cases):
        return []
    given, *others = [_hints_of(bounded(case), ask) for case in cases]
    return [hint for id_, hint in given.items() if id_ not in settled and all(id_ in other for other in others)]


def _hints_of(case: Case, ask: Callable[[Rule, Case], Sequence[Finding]]) -> Mapping[str, Finding]:
    found: dict[str, Finding] = {}
    for hint in HINTS:
        for finding in ask(_as_rule(hint), case):
            found.setdefault(finding.id, finding)
    return found


def _as_rule(hint: Hint) -> Rule:
    @wraps(hint)
    def rule(case: Case) -> Sequence[Finding]:
        finding = hint(case)
        return () if finding is None else (finding,)

    return rule


def _hint(id_: str, summary: str, *, look: str, decides: str, **evidence: float | str) -> Finding:
    return Finding(
        id=id_,
        severity="info",
        summary=summary,
        evidence=evidence,
        advice=look,
        confidence="weak",
        basis="hint",
        decider=Decider(question=decides),
    )


def _reward_rises(case: Case) -> bool:
    """Whether the training reward rises: three standard errors of a line, of few rows a tenth."""
    points = series(case.stage_rows, "reward/mean")
    if not points:
        return False
    line, (early, late) = trend(points), thirds([value for _, value in points])
    return line.z >= CLEAR if line is not None else late - early > 0.1 * abs(early)


def _is_solved(case: Case, values: Sequence[float]) -> bool:
    """Whether little is left to earn; above 1 only `reward/max` tells what there is."""
    most = max([1.0, *values_of(case.stage_rows, "reward/max")])
    return max(values) <= most and fmean(values) >= SOLVED * most


LOST, FEW_LOST = 0.6, 0.5  # of the best level, at most, is left; of few rows
FALLEN, NOTHING = 0.75, 0.1  # of the best is left on the last row but one and on the last, where each is lower


def lost_its_best(case: Case) -> Finding | None:
    """policy-collapse: evaluations, the reward, or the share of right or valid answers end far below their best level.

    Levels are means of a sixth of the rows, two at least: 0.6 or less is left (half of fewer than twelve rows), three
    standard errors lie between. Or half of a single best row is lost: of two to five rows on the last, which is the
    least of them, or on each of several since; of six to eleven on each of three and more since; or of those each row
    since is lower than the one before, the last but one below 0.75 and the last below a tenth of the best.
    """
    for column in ("eval/reward", "reward/mean", "rewards/accuracy", "completions/valid"):
        values = values_of(case.rows if column.startswith("eval/") else case.stage_rows, column)
        if len(values) < 2 or min(values) < 0 or max(values) == 0:
            continue
        best, last, sure = _best_and_last(values)
        if sure and last <= (LOST if len(values) >= MANY else FEW_LOST) * best:
            return _hint(
                "policy-collapse",
                f"{column} was {best:.3g} at its best and is {last:.3g} at the end: the policy lost what it could, or "
                "the prompts became harder",
                look="read samples of the best and of the last step; see what KL, entropy and lengths did in between",
                decides="do the same prompts earn less at the end than at the best step?",
                metric=column, best=best, last=last, rows=len(values),
            )  # fmt: skip
    return None


def _best_and_last(values: Sequence[float]) -> tuple[float, float, bool]:
    """The best level and the last, and whether more than noise is between them."""
    single = max(values[:-1])
    since = values[values.index(single) + 1 :]
    if len(values) < FEW:
        stays = len(since) > 1 and max(since) <= FEW_LOST * single
        return single, values[-1], stays or values[-1] == min(values)
    if len(values) < MANY and len(since) > 2 and max(since) <= FEW_LOST * single:
        return single, fmean(since), True
    falls = len(since) > 2 and all(b < a for a, b in pairwise(since)) and since[-2] <= FALLEN * single
    if len(values) < MANY and falls and since[-1] <= NOTHING * single:
        return single, since[-1], True
    best, last = best_and_last_level(values)
    error = math.sqrt(((sample_sd(best) or 0.0) ** 2 + (sample_sd(last) or 0.0) ** 2) / len(last))
    return fmean(best), fmean(last), fmean(best) - fmean(last) > CLEAR * error


def no_gradient_at_all(case: Case) -> Finding | None:
    """no-gradient: the gradient norm is 0 on every row there is."""
    values = values_of(case.stage_rows, "grad_norm")
    if not values or max(values) > 0:
        return None
    return _hint(
        "no-gradient",
        f"the gradient norm is 0 on {'the only row' if len(values) == 1 else f'all {len(values)} rows'}",
        look="see whether rewards differ inside a group, and whether anything requires a gradient",
        decides="is it 0 where a group has two different rewards?",
        rows=len(values),
    )


SURER, UNSURE = 1.8, 0.3  # times, nats a token: what the entropy rose by


def entropy_rises(case: Case) -> Finding | None:
    """policy-collapse: the entropy of the last third is 1.8 times the first's, 0.3 nats above, the reward no higher."""
    values = values_of(case.stage_rows, "entropy")
    if len(values) < 3 or case.settings.factor is not None or _reward_rises(case):
        return None
    early, late = thirds(values)
    if early <= 0 or late < SURER * early or late - early < UNSURE:
        return None
    return _hint(
        "policy-collapse",
        f"the entropy grew from {early:.3g} to {late:.3g} nats a token: the policy becomes random, or a bonus "
        "for entropy is large",
        look="read the completions of the last step; see what is paid for entropy, and what the KL does",
        decides="does it stay where it was with a third of the learning rate and no bonus?",
        early=early, late=late, rows=len(values),
    )  # fmt: skip


FIRST, SOON = 0.1, 10  # of the rows and steps; steps that are always soon
FAR, LEAP = 1.0, 0.3  # nats a token: from the reference, and in one update


def thrown_early(case: Case) -> Finding | None:
    """learning-rate: in the first tenth of the rows the KL is a nat or more, or an update moved the policy by 0.3.

    Three rows at least, and none behind the first tenth of the steps or the tenth step.
    """
    rows = case.stage_rows
    first = rows[: max(3, math.ceil(FIRST * len(rows)))]
    soon = max(SOON, FIRST * (rows[-1]["step"] or 0)) if rows else 0
    first = [row for row in first if not case.numbered or (row["step"] or 0) <= soon]
    begins = not case.begins_later and (case.numbered or len(rows) >= FEW)
    for column, limit, where in (("kl", FAR, first if begins else []), ("policy/kl_old", LEAP, first)):
        values = values_of(where, column)
        if values and max(values) >= limit:
            return _hint(
                "learning-rate",
                f"{column} is {max(values):.3g} nats in the first rows: the first updates are too large"
                + ("" if values[0] == 0 else ", or the policy does not begin at its reference"),
                look="run the first steps with a third of the learning rate, or with a warmup",
                decides="is it there before the first update?",
                metric=column, most=max(values), rows=len(first),
            )  # fmt: skip
    return None


DEAD = 0.2  # of the groups
SILENT = 0.15  # of the rows
SILENCE = 1e-3  # of the median: a gradient that is as good as none
BY_CONSTRUCTION = 1e-3  # a loss below it is 0 at a ratio of 1, whatever the groups earn
LAST = 3  # decimals of a loss that may be rounded to 0
ALIKE, ENOUGH = 0.5, 10  # of the rows have one mean reward; rows
HALF, USUAL = 0.5, 8  # of the groups; completions of a group, where nobody says
SIGNALS = ("reward/group_std", "reward/std", "advantage/std", "grad_norm", "policy/loss", "loss")


def dead_groups_in_part(case: Case) -> Finding | None:
    """dead-groups: a fifth of the groups or more; where that is not known, rows without a signal among others.

    Without a signal: a spread or a loss of exactly 0 (a loss only where others are above 0.001), a gradient norm below
    a thousandth of the median, on 15 % of the rows or more and not on all; or one mean reward on half of ten rows. Or a
    reward between 0 and 1 so seldom paid that half of the groups (of `num_generations`, else 8) have none by chance. A
    spread that is logged speaks for itself: of losses, and of means that are alike, nothing is said then.
    """
    dead = values_of(case.stage_rows, "groups/dead")
    if case.settings.beyond_the_group or (dead and fmean(dead) < DEAD):
        return None
    if dead:
        what = f"{fmean(dead):.0%} of the groups had equal rewards and taught nothing"
    else:
        rewards = values_of(case.stage_rows, "reward/mean")
        what = next(_silences(case), "") or _one_reward(case, rewards) or _seldom_paid(case, rewards)
    if not what:
        return None
    return _hint(
        "dead-groups",
        what,
        look=("" if dead else "log the share of groups with equal rewards; ")
        + "see whether prompts are too easy, too hard, or answers alike",
        decides="do fewer groups have equal rewards with other prompts, or with twice as many completions each?"
        if dead
        else "do the rewards of such a step differ inside a group?",
        rows=len(case.stage_rows),
        **({"dead": fmean(dead)} if dead else {}),
    )


def _silences(case: Case) -> Iterator[str]:
    """What columns say of rows without any signal, in words."""
    is_spread = any(values_of(case.stage_rows, column) for column in SIGNALS[:3])
    for column in SIGNALS:
        rows = [row for row in case.stage_rows if number(row, column) is not None]
        if rows and column == "loss" and number(rows[0], "kl") == 0:
            rows = rows[1:]  # nothing has moved yet
        values = [abs(value) for value in values_of(rows, column)]
        heard = [value for value in values if value > 0]
        if not heard or (column in ("loss", "policy/loss") and (is_spread or _says_nothing(values, heard))):
            continue
        limit = SILENCE * median(heard) if column == "grad_norm" else 0.0
        silent = sum(value <= limit for value in values)
        if SILENT * len(values) <= silent < len(values) and silent:
            yield (
                f"{column} is {'nearly 0' if limit else '0'} on {silent} of {len(values)} rows and not on the others: "
                "no group of those rows had two different rewards, or nothing came of it"
            )


def _says_nothing(losses: Sequence[float], heard: Sequence[float]) -> bool:
    """Whether a loss of 0 is one by construction, or a small one that was rounded."""
    return median(heard) < BY_CONSTRUCTION or all(round(loss, LAST) == loss for loss in losses)


def _one_reward(case: Case, values: Sequence[float]) -> str:
    """What a mean reward says that hardly varies, in words; nothing where a spread is logged, or one digit of it."""
    spread_is_known = any(values_of(case.stage_rows, column) for column in SIGNALS[:2])
    if len(values) < ENOUGH or len(set(values)) < 2 or spread_is_known or all(round(one, 1) == one for one in values):
        return ""
    value, count = Counter(values).most_common(1)[0]
    if count < ALIKE * len(values):
        return ""
    return (
        f"the mean reward is {value:.4g} on {count} of {len(values)} rows: where rewards differ inside groups, "
        "means are hardly ever the same"
    )


def _seldom_paid(case: Case, values: Sequence[float]) -> str:
    """What a low mean of rewards of 0 and 1 says of groups, in words: of prompts that are alike (1 - m)^K are dead."""
    most, spreads = values_of(case.stage_rows, "reward/max"), values_of(case.stage_rows, "reward/std")
    if len(values) < 3 or min(values) < 0 or max(values) > 1 or (most and max(most) < 1):
        return ""
    mean, size = fmean(values), case.settings.num_generations or USUAL
    if spreads and fmean(spreads) < HALF * math.sqrt(mean * (1 - mean)):  # of rewards of 0 and 1 it is the root
        return ""
    none = (1 - mean) ** size
    if none < HALF:
        return ""
    return (
        f"the mean reward is {mean:.3g}: where rewards are 0 or 1, {none:.0%} of the groups of {size} have none by "
        "chance, and more where prompts differ"
    )


def stuck_at_the_end(case: Case) -> Finding | None:
    """dead-run: the last ten rows have one reward, the least there was or 0; of fewer than six the last two have 0."""
    values = values_of(case.stage_rows, "reward/mean")
    stuck = next((at for at, value in enumerate(reversed(values)) if value != values[-1]), len(values))
    if stuck == len(values) or stuck < (2 if len(values) < FEW else ENOUGH):
        return None
    at_zero = values[-1] == 0 and max(values) > 0
    if not at_zero and (len(values) < FEW or values[-1] > min(values)):  # of few rows another number may be rounded
        return None
    return _hint(
        "dead-run",
        f"the reward is {values[-1]:.3g} on the last {stuck} of {len(values)} rows: nothing is learned any more",
        look="read the completions of the last row, and score one that is right by hand",
        decides="does any completion of the last step earn more?",
        reward=values[-1], stuck=stuck, rows=len(values),
    )  # fmt: skip


WEIGHED = 30  # rows: fewer do not tell what a part weighs
EXACT = 1e-12  # of a slope's error: nothing is left of the reward but its part of form


def only_the_form(case: Case) -> Finding | None:
    """proxy-reward: what is left of a rising reward without its part of form does not rise.

    The weight of the part is what the reward changes by with it from row to row (least squares over 30 rows or more).
    """
    rows, names = case.stage_rows, parts_of(case.stage_rows)
    if len(names) != 1 or is_answer(names[0]) is not False:
        return None
    form = names[0]
    pairs = [
        (row["step"] or 0.0, part, reward)
        for row in rows
        if (part := number(row, form)) is not None and (reward := number(row, "reward/mean")) is not None
    ]
    moves = [(b[1] - a[1], b[2] - a[2]) for a, b in pairwise(pairs)]
    square = math.fsum(part * part for part, _ in moves)
    if len(pairs) < WEIGHED or square == 0:
        return None
    weight = math.fsum(part * reward for part, reward in moves) / square
    error = math.sqrt(math.fsum((reward - weight * part) ** 2 for part, reward in moves) / len(moves) / square)
    whole = trend([(step, reward) for step, _, reward in pairs])
    shaped = trend([(step, part) for step, part, _ in pairs])
    left = trend([(step, reward - weight * part) for step, part, reward in pairs])
    if whole is None or shaped is None or left is None or min(whole.z, shaped.z) < CLEAR or left.se < EXACT:
        return None
    z = left.slope / math.hypot(left.se, error * shaped.slope)
    if z >= 2 or weight < CLEAR * error:
        return None
    return _hint(
        "proxy-reward",
        f"the reward rises with {form}, which it has {weight:.2g} times; what is left of it does not (trend "
        f"{shown_z(z)} over {len(pairs)} rows): the form is learned and the answer is not, so far",
        look="log the share of right answers by itself",
        decides="does the share of right answers rise?",
        weight=weight, rest_z=told_z(z), rows=len(pairs),
    )  # fmt: skip


OUTDONE, RARE = 0.6, 0.3  # of what the form earns; of a reward


def form_earns_more(case: Case) -> Finding | None:
    """proxy-reward: in the last third the parts that judge the answer earn 0.3 at most and 0.6 of those of the form."""
    names = parts_of(case.stage_rows)
    late = {name: thirds(values_of(case.stage_rows, name))[1] for name in names}
    answer = [late[name] for name in names if is_answer(name)]
    form = [late[name] for name in names if is_answer(name) is False and late[name] > 0]
    if not answer or not form or not 0 <= sum(answer) <= min(OUTDONE * sum(form), RARE):
        return None
    return _hint(
        "proxy-reward",
        f"at the end the form earns {sum(form):.3g} and the answer {sum(answer):.3g}: groups are told apart by the "
        "form, as long as hardly an answer is right",
        look="follow the answer's part by itself; pay less for all of the form than for one right answer",
        decides="in how many groups do completions differ in the answer's part?",
        answer=sum(answer), form=sum(form), rows=len(case.stage_rows),
    )  # fmt: skip


SHRANK = 3.0  # times


def shorter_for_the_same(case: Case) -> Finding | None:
    """reward-hacking: completions of the last third are a third as long as those of the first, and earn no less.

    Not where fewer are cut off at the end: what was cut off is long.
    """
    lengths, rewards = (values_of(case.stage_rows, name) for name in ("completions/length", "reward/mean"))
    if len(lengths) < 3 or len(rewards) < 3:
        return None
    (long, short), (early, late) = thirds(lengths), thirds(rewards)
    cut = values_of(case.stage_rows, "completions/truncated")
    cured = len(cut) > 1 and cut[0] - cut[-1] > 0.1  # what is no longer cut off is shorter
    if short * SHRANK > long or late < early or late <= 0 or cured:
        return None
    return _hint(
        "reward-hacking",
        f"completions shrank from {long:.3g} to {short:.3g} tokens and earn {late:.3g} ({early:.3g} before): what the "
        "reward does not ask for is left out",
        look="read completions of the first and of the last step: is what is wanted still in them?",
        decides="would you have paid for the short ones?",
        length_first=long, length_last=short, rows=len(lengths),
    )  # fmt: skip


LENGTHENED, MORE = 1.8, 0.05  # times; of the reward


def longer_for_nothing(case: Case) -> Finding | None:
    """truncation: completions of the last third are 1.8 times as long as those of the first, and earn no more.

    They head for the limit of tokens, whether they reach it yet or not. Not of fewer than six rows.
    """
    lengths, rewards = (values_of(case.stage_rows, name) for name in ("completions/length", "reward/mean"))
    if len(lengths) < FEW or len(rewards) < FEW or _reward_rises(case):
        return None
    (short, long), (early, late) = thirds(lengths), thirds(rewards)
    earns_more = late - early > MORE * abs(early) or _is_solved(case, rewards[-(len(rewards) // 3) :])
    if long < LENGTHENED * short or short <= 0 or earns_more:
        return None
    return _hint(
        "truncation",
        f"completions grew from {short:.3g} to {long:.3g} tokens while the reward went from {early:.3g} to {late:.3g}: "
        "they head for the limit of tokens, and nothing pays for it",
        look="read the longest completions: do they repeat themselves or miss their end? What of the loss favours long "
        "ones (an entropy bonus, tokens weighted by their row, a missing end token)?",
        decides="does the length stand still with that term off?",
        length_first=short, length_last=long, rows=len(lengths),
    )  # fmt: skip


CHANGED = 2.5  # times, either way
BEST = 0.9  # of the most there is


def paid_for_another_shape(case: Case) -> Finding | None:
    """reward-hacking: the reward rose to its best while answers became another length, or alike."""
    rows = case.stage_rows
    values = values_of(rows, "reward/mean")
    if len(values) < FEW or min(values) < 0:
        return None
    early, late = thirds(values)
    most = max([*values, *([1.0] if max(values) <= 1 else []), *values_of(rows, "reward/max")])
    words = [
        f"{column} went from {was:.3g} to {now:.3g}"
        for column in ("completions/length", "entropy")
        if (seen := values_of(rows, column))
        for was, now in [thirds(seen)]
        if was > 0 and (0 <= now * CHANGED <= was or (now >= CHANGED * was and column != "entropy"))
    ]
    if late < BEST * most or late < 1.1 * early or not words:
        return None
    return _hint(
        "reward-hacking",
        f"the reward rose from {early:.3g} to {late:.3g}, nearly the most of the log, while {' and '.join(words)}: "
        "answers of another shape are paid, whether they are better a reader has to say",
        look="read ten completions of the last step",
        decides="would you have paid for them?",
        early=early, late=late, rows=len(values),
    )  # fmt: skip


CALLED, DIED_OUT = 0.02, 0.2  # calls a completion; of the early ones, at most, are left


def tools_die_out(case: Case) -> Finding | None:
    """reward-hacking: tools are called no more (a fifth of the early calls at most) while the reward did not fall."""
    values, rewards = (values_of(case.stage_rows, name) for name in ("tools/calls", "reward/mean"))
    if len(values) < 2 or not rewards:
        return None
    (early, late), (was, now) = thirds(values), thirds(rewards)
    if early < CALLED or late > DIED_OUT * early or now < was:
        return None
    return _hint(
        "reward-hacking",
        f"tools are called no more: {early:.2g} calls a completion in the first third, {late:.2g} in the last, while "
        f"the reward went from {was:.3g} to {now:.3g}: answers without the tool are paid as well",
        look="read ten completions of the last step; see what the reward pays for a call, and for one that fails",
        decides="do they come back where an answer without a call earns nothing?",
        early=early, late=late, rows=len(values),
    )  # fmt: skip


APART = 0.2  # of what there is to earn


def not_on_held_out_prompts(case: Case) -> Finding | None:
    """overfitting: training ends 0.2 above evaluation, which rose by less than half as much."""
    held_out = [value for _, value in series(case.rows, "eval/reward")]
    trained = values_of(case.stage_rows, "rewards/accuracy") or values_of(case.stage_rows, "reward/mean")
    if len(held_out) < 2 or len(trained) < 3 or min(*trained, *held_out) < 0 or max(*trained, *held_out) > 1:
        return None
    early, late = thirds(trained)
    first, last = held_out[0], held_out[-1]
    if late - last < APART or late <= early or 2 * (last - first) >= late - early:
        return None
    return _hint(
        "overfitting",
        f"training went from {early:.3g} to {late:.3g} and evaluation from {first:.3g} to {last:.3g}: what is learned "
        "shows on training prompts",
        look="see whether both are scored alike, and how many training prompts there are",
        decides="do training prompts that are asked as the evaluation asks earn what training says?",
        trained=late,
        held_out=last,
    )


DOUBTFUL = 3.5  # standard errors of a training reward's rise: rows are not quite independent
SCATTERS = 1.5  # times the spread of a few values
PLATEAU = 5  # rows of the first quarter


def gained_little(case: Case) -> Finding | None:
    """no-gain: evaluations stand; without any the training reward rose by little, or only at first.

    By little: less than 3.5 standard errors of its trend, of four to seven rows by less than they scatter. Of
    evaluations: the last is not 0.02 and a twentieth above the first, and no line through them rises. Only at first:
    three quarters of twenty rows or more have no rising trend, and their mean is below 0.95 of the most there is, where
    that is known. Of two or three rows that are parts of a run: the last is no more above the first than that. Nothing
    is said of what is solved.
    """
    evaluated = series(case.rows, "eval/reward")
    if len(evaluated) > 1:
        held_out, line = [value for _, value in evaluated], trend(evaluated)
        first, last = held_out[0], held_out[-1]
        solved = min(held_out) >= 0 and max(held_out) <= 1 and fmean(held_out) >= SOLVED
        stands = not held_out_rose(first, last) and not solved and (line is None or line.z < CLEAR)
        return _little("eval/reward", first, last, f"over {len(held_out)} evaluations") if stands else None
    few = values_of(case.stage_rows, "reward/mean")
    if 1 < len(few) < 4 and case.averaged_over > 1 and not _is_solved(case, few):  # parts of a run, of many steps each
        stands = not held_out_rose(few[0], few[-1])
        return _little("reward/mean", few[0], few[-1], f"over {len(few)} parts of the run") if stands else None
    column = next((name for name in ("reward/mean", "rewards/accuracy") if len(series(case.stage_rows, name)) > 3), "")
    points = series(case.stage_rows, column)
    values = [value for _, value in points]
    if not points or _is_solved(case, values):
        return None
    (early, late), line = thirds(values), trend(points)
    if line is None or line.z < DOUBTFUL:
        how = "" if line is None else f" (trend {shown_z(line.z)})"
        little = line is not None or late - early <= SCATTERS * spread(values)
        return _little(column, early, late, f"in {len(values)} rows{how}") if little else None
    rest = points[len(points) // 4 :]
    (early, late), line = thirds([value for _, value in rest]), trend(rest)
    most_is_known = min(values) >= 0 and (max(values) <= 1 or bool(values_of(case.stage_rows, "reward/max")))
    solved = not most_is_known or _is_solved(case, [value for _, value in rest])
    if len(points) // 4 < PLATEAU or line is None or line.z >= 2 or solved:
        return None
    return _little(column, early, late, f"since step {rest[0][0]:g}, three quarters of the log")


def _little(column: str, early: float, late: float, where: str) -> Finding:
    return _hint(
        "no-gain",
        f"{column} went from {early:.3g} to {late:.3g} {where}: "
        + ("nothing was gained" if late <= early else "no gain that one run tells from chance"),
        look="evaluate on held-out prompts before and after, and run two more seeds",
        decides="is it there with another seed?",
        metric=column, early=early, late=late,
    )  # fmt: skip


GREW, HIGH = 10.0, 0.3  # times; nats a token


def kl_leaps(case: Case) -> Finding | None:
    """kl-runaway: a KL of a nat or more that is ten times its median, or ends ten times higher, at 0.3 or more.

    A largest KL on the first row is no leap.
    """
    values = values_of(case.stage_rows, "kl")
    if len(values) < 3 or min(values) < 0:
        return None
    most, middle, (early, late) = max(values), median(values), thirds(values)
    leaps, grows = most >= max(FAR, GREW * middle) and values[0] < most, late >= max(HIGH, GREW * early)
    if not leaps and not grows:
        return None
    return _hint(
        "kl-runaway",
        f"the KL is {most:.3g} nats at its highest (median {middle:.3g}, {early:.2g} in the first third, {late:.2g} in "
        "the last): "
        + ("single steps or tokens took the policy far from its reference" if leaps else "it ended far higher"),
        look="read the completions of that step; lower the learning rate, or clip the log ratio that the KL is of",
        decides="does it come back with a third of the learning rate?",
        most=most, median=middle, early=early, late=late, rows=len(values),
    )  # fmt: skip


def _median_thirds(values: Sequence[float]) -> tuple[float, float]:
    """The medians of the first third and of the last."""
    third = max(1, len(values) // 3)
    return median(values[:third]), median(values[-third:])


ROUGHER, ROUGH, ROUGHEST = 4.0, 100.0, 1000.0  # times; a gradient norm; one that says so on a single row


def gradients_are_rough(case: Case) -> Finding | None:
    """grad-explosion: the median gradient norm is 100 or more, or that of the last third four times the first's, and 1.

    Of fewer than six rows: 1000 or more on each. Of a norm of 100 that is clipped to `max_grad_norm` 1 a hundredth is
    left.
    """
    values = values_of(case.stage_rows, "grad_norm")
    if not values or (len(values) < FEW and min(values) < ROUGHEST):
        return None
    early, late = _median_thirds(values)
    rough = median(values) >= ROUGH
    if late < max(1.0, ROUGHER * early) and not rough:
        return None
    return _hint(
        "grad-explosion",
        f"the gradient norm is {median(values):.3g} in the median ({early:.3g} in the first third, {late:.3g} in the "
        "last): " + ("an update is hardly more than a direction" if rough else "updates become rougher"),
        look="see what the loss is summed over, which terms of it are large, and whether what is masked is consistent",
        decides="is it as large at a third of the learning rate, and on the first step?",
        median=median(values), early=early, late=late, rows=len(values),
    )  # fmt: skip


DRIFTS = 3.0  # times
SEEN = 0.01  # of a probability, or nats a token


def sampler_drifts(case: Case) -> Finding | None:
    """sampler-mismatch: what sampler and trainer differ by is three times as large in the last third, and 0.01."""
    for column in ("sampler/kl", "sampler/prob_gap", "rollout/logprob_gap"):
        values = values_of(case.stage_rows, column)
        if len(values) < FEW:
            continue
        early, late = _median_thirds(values)
        if late >= max(SEEN, DRIFTS * early):
            return _hint(
                "sampler-mismatch",
                f"{column} grew from {early:.2g} to {late:.2g}: the sampler moves away from what is trained",
                look="see which weights reach the sampler after an update, and which do not (embeddings, norms, heads)",
                decides="does it stop where no update moves anything?",
                metric=column, early=early, late=late, rows=len(values),
            )  # fmt: skip
    return None


# One hint a line, in the order in which they are shown.
HINTS: tuple[Hint, ...] = (
    lost_its_best,
    sampler_drifts,
    stuck_at_the_end,
    entropy_rises,
    no_gradient_at_all,
    thrown_early,
    dead_groups_in_part,
    only_the_form,
    form_earns_more,
    paid_for_another_shape,
    tools_die_out,
    shorter_for_the_same,
    longer_for_nothing,
    not_on_held_out_prompts,
    gained_little,
    kl_leaps,
    gradients_are_rough,
)
