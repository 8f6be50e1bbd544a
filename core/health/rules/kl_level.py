"""How high the KL to the reference is, and where: on the first rows, along the run, and below zero.

What is here: what a level says by itself, so that it works on any trainer's log. What is not: what beta does with it
(kl), and how far sampler and trainer are apart (integrity).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import fmean, median

from core.health.case import UNFILTERED, Case, sampling_filters
from core.health.finding import Decider, Finding, RuledOut
from core.health.statistics import series, trend
from core.health.steps import number, reward_gain, spread, values_of

FIRST = 3  # rows, and steps, that count as the start: by then little can have been learned
HIGH = 0.1  # nats a token: no update or two of a usual rate moves a policy so far
WHOLE = 5.0  # nats a completion, where the log has only that
FAST = 1e-4  # a learning rate from which on two updates may well do it
HUGE_KL = 1.0  # nats a token: what forbidden or forced tokens give
CUT_OFF = 0.9  # share of completions: nearly all
GROWN = 10.0  # times its early level
FAR = 0.5  # nats a token: fewer are no runaway, however fast they grew, ...
NEAR = 0.2  # ... but where the reward is no higher than it was; fewer than this are none at all
FEWEST = 4  # values that show a course; fewer are told with little confidence
DOUBLED = 2.0  # times: enough where it is a nat away by then and the reward fell
FALLS = 3.0  # standard errors of a line
FLAT = 2.0  # times its least value: no more than this is no growth
SUSTAINED = 3  # of the last rows, all of them high: one spike is none
EXTREME = 10.0  # nats a token, as a batch's mean: not reached by learning what pays
LEFT = 5.0  # nats a token: so far away is another policy, whatever it earns
JUMP, BACK = 1.0, 0.1  # nats a token: a step far away, and the steps around it at home
JUMPED = 100.0  # times what the KL is on those
JUMPS, OFTEN = 2, 0.15  # so many of them, and such a share of the rows: a few single spikes are an estimator's tail
NEGATIVE = -1e-6  # an estimator that cannot be negative may be so by rounding
MANY, OFTEN_FAR = 8, 1 / 3  # rows after the first fifth, and the share of them that no scatter makes so far
_QUESTION = (
    "is it the reference or the sampling? Score one batch with both models before any update, drawn without top_p, "
    "top_k, min_p, a repetition penalty and constraints: a KL that is left is the reference's"
)
SPREAD = 2.0  # standard errors below zero, for one that can


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """The KL's column, and its (step, value) in order; `far` is what counts as far in its unit."""

    column: str
    points: tuple[tuple[int, float], ...]
    far: float
    unit: str

    @property
    def values(self) -> list[float]:
        """The values alone."""
        return [value for _, value in self.points]

    @property
    def climbs(self) -> bool:
        """Whether each of a few values is above the one before, and the last no spike."""
        values = self.values
        if not FEWEST <= len(values) < MANY or any(b <= a for a, b in pairwise(values)):
            return False
        return values[-1] <= GROWN * values[-2]

    @property
    def held(self) -> list[float]:
        """The last SUSTAINED values, of few half."""
        return self.values[-min(SUSTAINED, len(self.points) // 2) :]

    @property
    def last(self) -> list[float]:
        """What the level is by now: those, or the last alone where a few climb."""
        return self.values[-1:] if self.climbs else self.held


def kl_level(case: Case) -> Sequence[Finding]:
    """What the KL's level says: a start away from the reference, a run away from it, or an estimate that cannot be.

    ## reference-mismatch

    Severity: error (strong) from ten times the limit on, else info: moderate, or weak where rows have no step numbers,
    so that the first need not be the run's, and where each row is of many steps. Of eleven public logs with such a KL
    no author told it, and four were sound. Of a KL of 0: warning (moderate), info (weak) without a known `beta`.

    Means: the policy is not at its reference on the first rows, before anything could be learned: other weights (an
    adapter merged into one of the two, a wrong checkpoint, a quantised reference), another prompt template, or sampling
    is filtered (`top_p`, `top_k`, `min_p`, `repetition_penalty`, a temperature) and scoring is not. Or the policy is
    its own reference, and `beta` holds nothing.

    Looks at: `kl` (0.1 nats a token) or `kl/whole` (5 nats a completion) on the log's first three rows, where they are
    among the first three steps and of one step each (not in an excerpt, as its epochs tell). Of rows that are means of
    several steps: three times the limit on every row, and no growth (at most twice the least). And a KL of exactly 0 on
    every row after ten updates or more, while the reward rose, or entropy or length left their level (by a tenth and 4
    standard errors): a warning (moderate) where `beta` is known, else an info (weak), since a trainer may write 0 for a
    KL that it has not.

    Confounder: a learning rate of 1e-4 or more without warm-up may move a policy so far in two updates: only the first
    row counts then. A resumed run and an adapter that was trained before start away from the base model on purpose; no
    column tells, so the sentence names it.

    Rules out: `learning-rate`, where the KL was there on the run's first step.

    Do: score the same completions once with both models before the first update: the KL has to be 0.

    ## constrained-sampling

    Severity: error (moderate); warning (moderate) where each row is of many steps.

    Means: completions were drawn from another distribution than the one that is scored: guided decoding, a forbidden
    end token, forced tokens.

    Looks at: a KL of 1 nat a token or more on the first rows, and 90 % of the completions or more cut off.

    Confounder: a reference of other weights gives the KL, and a low `max_completion_length` the lengths; together they
    look the same, and the sentence names both.

    Do: sample without constraints once; or score with the same mask.

    ## kl-runaway

    Severity: error (strong) where the reward fell to half of its early level or less, else warning (strong; moderate
    without a reward; weak with two to seven values, each above the one before, and from 0.2 nats on); info (moderate)
    where the reward rose and the KL scatters a nat away; info (weak) of a log that does not begin with the run.

    Means: the KL grew by an order of magnitude or more, beyond what any gain pays for, while the reward stood or fell:
    the policy leaves the reference without being paid for it.

    Looks at: `kl` (`kl/whole`): the median of the last three values at least ten times that of the first fifth, at
    least 0.5 nats a token (25 a completion), each of the last three above that, or 0.2 (10) where the reward is no
    higher than it was; of four to seven values, each above the one before and the last at most ten times the one before
    it, the last against the first, 0.2 (10) where the reward gained no more than it scatters; and the reward, if it is
    there. A log that begins when the KL is high already: twice its early level, each of the last three at least 1 nat a
    token (50), and a reward on a line that falls by three standard errors or more.

    Where it scatters: a nat a token (50) or more on a third of the rows after the first fifth, eight or more, and of
    the last third of these; it began below 0.1 (5), and a reward is there. And whatever was paid: 10 nats a token (500)
    or more on three rows in a row of a run that began below 0.1, or on all of three or more. Of a log that does not
    begin with the run (its first step is not among the first three, or its epochs tell): 1 nat a token (50) or more on
    every row.

    Confounder: the KL of every run begins at 0, so no ratio counts without the level. One spike is none. A reward that
    rose by a tenth of its early level and of what was left to earn, beyond its scatter: then the policy was paid (and
    `reward-hacking` asks for what), unless each of the last three values is 5 nats a token (250 a completion) or more
    (warning, moderate): what is drawn there is no text of the reference any more; where it scatters a nat away, an
    info says what the gain cost.

    Rules out: nothing. Whether the learning rate or too small a beta is at fault no column tells.

    Do: a smaller `learning_rate`, or a `beta` that is not 0.

    ## negative-kl

    Severity: error (certain) for an estimator that cannot be negative (k2, k3); warning (moderate) where it is unknown.

    Means: a KL below zero. k1, the mean log ratio, is below zero on single batches by chance, never on the average.

    Looks at: `kl` or `kl/whole`, and `kl_estimator` where it is known. Unknown: the mean over four rows or more lies
    two standard errors below zero, or all rows are negative, half of three or more beyond 0.01 nats a token, or all of
    fewer beyond 0.05 (weak), or it begins at exactly 0 and each of a few rows is below the one before, to -0.01 (weak).

    Confounder: k1 around a KL of 0 scatters on both sides of it.

    Do: draw and score at one temperature and with one mask; take the end token and padding alike in both.
    """
    level = _level(case)
    if level is None:
        return ()
    negative = _negative(case, level)
    start = _start(case, level)
    jumps = _jumps(level)
    left = None if start or jumps else _runaway(case, level)
    told = [finding for finding in (negative, start, jumps, left) if finding is not None]
    return told or _far_in_an_excerpt(case, level)


def _level(case: Case) -> Level | None:
    rows = case.steps
    for column, far, unit in (("kl", 1.0, case.settings.per_factor), ("kl/whole", WHOLE / HIGH, "nats a completion")):
        points = tuple((int(row["step"] or 0), value) for row in rows if (value := number(row, column)) is not None)
        if points:
            return Level(column=column, points=points, far=far, unit=unit)
    return None


def _start(case: Case, level: Level) -> Finding | None:
    """What a KL that is high on the first rows says."""
    if case.settings.offline or case.settings.old_is_reference or case.excerpt:
        return None
    if case.averaged_over > 1:
        return _flat(case, level)
    rows = case.steps[:FIRST]
    fast = max([*values_of(rows, "learning_rate"), case.settings.learning_rate or 0.0]) >= FAST
    first = [value for step, value in level.points if step <= (1 if fast else FIRST)]
    high = HIGH * level.far
    if not first or min(first) < high or (level.values[0] < max(first) / GROWN):
        return None
    evidence: dict[str, float | str] = {"kl": fmean(first), "rows": len(first), "limit": high, "column": level.column}
    cut = values_of(rows, "completions/truncated")
    ruled = _was_there_before(level)
    decider = Decider(question=_QUESTION, overrides=UNFILTERED)
    if fmean(first) >= HUGE_KL * level.far and cut and fmean(cut) >= CUT_OFF:
        return Finding(
            id="constrained-sampling",
            severity="error",
            summary=(
                f"the KL is {fmean(first):.3g} {level.unit} from the first row on, and {fmean(cut):.0%} of completions "
                "are cut off: they were drawn under constraints that scoring does not have (guided decoding, a "
                "forbidden end token), or the reference has other weights"
            ),
            evidence={**evidence, "truncated": fmean(cut)},
            rules_out=ruled,
            advice="sample without constraints, or score with the same mask",
            confidence="moderate",
            decider=decider,
        )
    grave = fmean(first) >= HUGE_KL * level.far and case.numbered
    return Finding(
        id="reference-mismatch",
        severity="error" if grave else "info",
        summary=(
            f"the KL is {fmean(first):.3g} {level.unit} at the start ({len(first)} rows): the policy does "
            "not start at its reference (other weights, an adapter or a template in one of them), or sampling is "
            f"filtered and scoring is not{_filters(case)}; a policy that was trained before on purpose looks the same"
            f"{_blown_up(first, level)}"
            + ("" if case.numbered else " (if the log begins where the run does: its rows have no step numbers)")
        ),
        evidence=evidence,
        rules_out=ruled,
        advice="score one batch with both models before the first update: the KL has to be 0",
        confidence="strong" if grave else "moderate" if case.numbered else "weak",
        decider=decider,
    )


def _was_there_before(level: Level) -> tuple[RuledOut, ...]:
    """That no rate did it, where the first value is of the first step; a row without one may have moved the policy."""
    step, value = level.points[0]
    if step > 1:
        return ()
    return (RuledOut(id="learning-rate", why=f"the KL was {value:.3g} on the first row, before any update"),)


def _blown_up(first: Sequence[float], level: Level) -> str:
    """What else a mean is that no two models have: a few tokens make it."""
    if fmean(first) < EXTREME * level.far:
        return ""
    return "; so much is mostly an estimate that a few tokens blow up (exp of a large log ratio, or low precision)"


def _filters(case: Case) -> str:
    """The filters that the settings have, in brackets; nothing where none is known."""
    known = sampling_filters(case.settings)
    return f" ({', '.join(f'{name} {value:g}' for name, value in known.items())})" if known else ""


def _far_in_an_excerpt(case: Case, level: Level) -> Sequence[Finding]:
    """A hint where every row of a log that does not begin with the run is a nat away."""
    if not case.begins_later or min(level.values) < HUGE_KL * level.far:
        return ()
    return (
        Finding(
            id="kl-runaway",
            severity="info",
            summary=(
                f"the KL is {median(level.values):.3g} {level.unit} ({min(level.values):.3g} or more) on all "
                f"{len(level.values)} rows, and the log does not begin with the run: the policy is far from its "
                "reference, by what it learned or from the start on"
            ),
            evidence={"kl": median(level.values), "rows": len(level.values), "column": level.column},
            advice="look at the KL and the reward of the first steps",
            confidence="weak",
        ),
    )


def _flat(case: Case, level: Level) -> Finding | None:
    """A hint where no row is of the start, and the KL is as high on the first as on all others."""
    values = level.values
    if len(values) < FIRST or min(values) < 3 * HIGH * level.far or max(values) > FLAT * min(values):
        return None
    cut = values_of(case.steps, "completions/truncated")
    forced = min(values) >= HUGE_KL * level.far and cut and fmean(cut) >= CUT_OFF
    by = f", and {fmean(cut):.0%} of completions are cut off" if forced else ""
    return Finding(
        id="constrained-sampling" if forced else "reference-mismatch",
        severity="warning" if forced else "info",
        summary=(
            f"the KL is {fmean(values):.3g} {level.unit} on the first row as on the last ({len(values)} rows){by}: it "
            "did not grow, so the policy may never have been at its reference, or sampling is "
            + (
                "under constraints that scoring does not have"
                if forced
                else f"filtered and scoring is not{_filters(case)}"
            )
            + "; a fast start that is held since looks the same"
        ),
        evidence={"kl": fmean(values), "rows": len(values), "column": level.column},
        rules_out=(RuledOut(id="unsound-start", why="the KL tells why completions are cut off"),) if forced else (),
        advice="score one batch with both models before the first update: the KL has to be 0",
        confidence="moderate" if forced else "weak",
        decider=Decider(question=_QUESTION, overrides=UNFILTERED),
    )


def _jumps(level: Level) -> Finding | None:
    """Whether the KL goes far away on single rows and is back on the next ones: no weights do that."""
    values = level.values
    far = [at for at, value in enumerate(values) if value >= JUMP * level.far]
    near = [value for at, value in enumerate(values) if at not in far]
    if len(far) < max(JUMPS, OFTEN * len(values)) or len(near) < 2 * len(far):
        return None
    high = min(values[at] for at in far)
    if median(near) >= BACK * level.far or high < JUMPED * max(median(near), 0.0):
        return None
    if any(at + 1 in far or at == len(values) - 1 for at in far):
        return None  # it stayed there, or nothing tells that it came back
    return Finding(
        id="sampler-mismatch",
        severity="warning",
        summary=(
            f"the KL is {high:.3g} {level.unit} or more on {len(far)} of {len(values)} rows and back at "
            f"{median(near):.2g} on the next each time: weights do not go and come back, so on those rows completions "
            "were drawn from other weights than were scored (a sync that was left out or half done), or single tokens "
            "have an estimate of thousands (k3 of a token that the policy has all but given up)"
        ),
        evidence={
            "jumps": len(far),
            "rows": len(values),
            "kl_jump": high,
            "kl_between": median(near),
            "first_step": level.points[far[0]][0],
            "column": level.column,
        },
        rules_out=(RuledOut(id="kl-runaway", why="the KL comes back each time"),),
        advice="sync the sampler's weights after every update and check that they arrived; log the gap of log-probs",
        confidence="moderate",
        decider=Decider(
            question="on such a row, does the trainer give tokens the log-probs that they were drawn with?",
            overrides=("guards.rollout_integrity=stop",),
        ),
    )


def _runaway(case: Case, level: Level) -> Finding | None:
    """Whether the KL left its early level for good without being paid for it."""
    values = level.values
    few = len(values) < FEWEST
    if len(values) < 2 or (few and any(b < a for a, b in pairwise(values))):
        return None
    last = level.last
    early = median(values[: max(1, len(values) // 5)])
    gain = reward_gain(case.steps)
    rewards = {} if gain is None else {"reward_early": gain[0], "reward_late": gain[1]}
    before, after = rewards.get("reward_early", 0.0), rewards.get("reward_late", 0.0)
    paid = gain is not None and gain[2]
    scatter = spread(values_of(case.steps, "reward/mean"))
    stood = bool(rewards) and (after <= before or (level.climbs and after - before <= scatter))
    near = stood and min(last) < FAR * level.far
    often, extreme = _often_far(level, early), _extreme(level, early)
    left = _left(level, early, last, NEAR if near else FAR) or (bool(rewards) and often > 0) or extreme
    if not left and (few or not _fell(case, level, early, last)):
        return None
    at_a_price = paid and (few or min(last) < LEFT * level.far) and not extreme
    if at_a_price and not often:
        return None
    fell = after <= before / 2 and before > 0 and not few
    soon = level.climbs and min(level.held) < FAR * level.far
    unsure = few or soon or (near and not often and not extreme)
    how = f" while the reward went from {before:.3g} to {after:.3g}" if rewards else ""
    return Finding(
        id="kl-runaway",
        severity="error" if fell else "info" if at_a_price else "warning",
        summary=f"{_course(level, early, often, extreme)}{how}: {_what_of_it(extreme > 0, paid, at_a_price)}",
        evidence={
            "early": early, "late": median(last), "rows": len(values), "column": level.column,
            **rewards,
        },
        suggest=("beta=0.01",) if not case.settings.beta else (),
        advice="a smaller learning rate, or a KL weight that holds it: no column tells which of the two is at fault",
        confidence="weak" if unsure else "strong" if rewards and not paid else "moderate",
        decider=Decider(
            question="does the KL stay below 0.5 with a third of the learning rate at the same reward?",
            expects=(f"kl < {FAR}",),
            overrides=(f"learning_rate={case.settings.learning_rate / 3:.1g}",) if case.settings.learning_rate else (),
        ),
    )  # fmt: skip


def _course(level: Level, early: float, often: float, extreme: int) -> str:
    """How the KL went, from home to where it is."""
    values, last, far = level.values, level.last, HUGE_KL * level.far
    if extreme:
        beyond = f"{EXTREME * level.far:.1f} {level.unit} or more on {extreme} of {len(values)} rows"
        return f"the KL is {beyond}, up to {max(values):.4g}" + (f", and was {early:.3g}" if early < far else "")
    if often and min(last) < far:
        return f"the KL is {far:.1f} {level.unit} or more on {often:.0%} of the rows since it was {early:.3g}"
    return f"the KL grew from {early:.3g} to {median(last):.3g} {level.unit}"


def _what_of_it(extreme: bool, paid: bool, at_a_price: bool) -> str:
    if at_a_price:
        return "what is paid is learned, and much of the reference is given up for it"
    if extreme:
        return "tokens of the reference lost nearly all of their chance there, as after updates that are too large"
    return "so far away a reward is hardly of the task any more" if paid else "nothing pays for leaving"


def _left(level: Level, early: float, last: Sequence[float], least: float) -> bool:
    """Whether the KL is ten times its early level, and at least so far."""
    return median(last) >= GROWN * max(early, 0.0) and min(last) >= least * level.far


def _often_far(level: Level, early: float) -> float:
    """The share of the later rows that are a nat away or more; 0 where it is no third, or the KL was never at home."""
    later = level.values[len(level.values) // 5 :]
    far = [value >= HUGE_KL * level.far for value in later]
    if len(far) < MANY or early > HIGH * level.far:
        return 0.0
    share, to_the_end = fmean(far), fmean(far[-(len(far) // 3) :])
    return share if min(share, to_the_end) >= OFTEN_FAR else 0.0


def _extreme(level: Level, early: float) -> int:
    """How many rows have a KL that no text has, where it began at home or all have it; 0 where no three do in a row:
    one token can.
    """
    beyond = [value >= EXTREME * level.far for value in level.values]
    longest = max((len(list(part)) for is_so, part in groupby(beyond) if is_so), default=0)
    return sum(beyond) if longest >= SUSTAINED and (early <= HIGH * level.far or all(beyond)) else 0


def _fell(case: Case, level: Level, early: float, last: Sequence[float]) -> bool:
    """Whether a KL that is a nat away has doubled since the log began, and the reward fell clearly."""
    if median(last) < DOUBLED * early or min(last) < HUGE_KL * level.far:
        return False
    line = trend(series(case.steps, "reward/mean"))
    return line is not None and line.z <= -FALLS


def _sinks(level: Level) -> bool:
    """Whether a KL that began at exactly 0 is below it by more and more, on all of a few rows since."""
    at_home, *since = level.values
    below = bool(since) and max(since) < 0 and len(since) < MANY and all(b < a for a, b in pairwise(since))
    return at_home == 0 and below and len(since) > 1 and min(since) < -HIGH / 10 * level.far


def _negative(case: Case, level: Level) -> Finding | None:
    """Whether the KL is below zero beyond what its estimator can be."""
    kind, values = case.settings.kl_estimator, level.values
    below = [value for value in values if value < NEGATIVE]
    if not below:
        return None
    sure = kind in ("k2", "k3", "k3_ratio")
    centre = fmean(values)
    error = (sum((value - centre) ** 2 for value in values) / max(1, len(values) - 1) / len(values)) ** 0.5
    by_mean = len(values) >= 4 and centre < -SPREAD * error and centre < NEGATIVE * 100
    all_below = len(below) == len(values)
    by_all = all_below and (
        (len(values) >= SUSTAINED and median(values) < -HIGH / 10 * level.far) or max(values) < -HIGH / 2 * level.far
    )
    only_sinks = not (sure or by_mean or by_all)
    if only_sinks and not _sinks(level):
        return None
    beyond = "from 0 on lower on each" if only_sinks else "beyond the scatter of an unbiased estimate"
    why = f"{kind} cannot be negative" if sure else beyond
    return Finding(
        id="negative-kl",
        severity="error" if sure else "warning",
        summary=(
            f"the KL is below zero on {len(below)} of {len(values)} rows (mean {centre:.3g} {level.unit}), {why}: "
            "completions were not drawn from the policy that is scored (temperature, a mask, a forbidden end token)"
        ),
        evidence={
            "below": len(below),
            "rows": len(values),
            "mean": centre,
            "least": min(values),
            "column": level.column,
        },
        advice="draw and score at one temperature, with one mask, and count the end token in both",
        confidence="certain" if sure else "weak" if only_sinks or len(values) < SUSTAINED else "moderate",
        decider=Decider(
            question="is the KL of one batch 0 before the first update, at temperature 1 and without filters?"
        ),
    )
