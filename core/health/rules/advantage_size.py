"""Are advantages as large as the normaliser makes them? Impossible, small and off-centre ones.

A normaliser fixes the spread of a group's advantages before any training, by arithmetic alone for ranks and z-scores
(`Spread`; n rewards, population statistics with divisor n unless said otherwise). Not here: rewards of 0 and 1 under
any normaliser (core.health.before.advantages).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev, stdev

from core.health.case import Case, Settings
from core.health.finding import Decider, Finding, Row, RuledOut
from core.health.live_count import LiveCount, live_count
from core.health.statistics import chance_beyond, series
from core.health.steps import number

LIVE_STEPS = 5  # steps with a std over live groups, which small batches scatter
_COLUMNS = (
    "advantage/std_all", "advantage/group_std", "advantage/std", "advantage/max_abs", "advantage/max",
    "advantage/group_max", "groups/dead",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Bounds for one group's advantages.

    least, most: of their std where not all rewards are equal; least is 0 where a floor may press it down.
    of_equal: their std where all rewards are equal; None where the settings do not say. largest: no |A| is larger.
    """

    name: str
    least: float
    most: float
    largest: float
    of_equal: float | None = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageMeans:
    """Means over rows of what a log says of advantages; None where it says nothing.

    everyone: std over all advantages of a step, averaged over steps, or the mean over groups, dead ones 0, of the std
    inside (`grouped`, by n - 1): then, under a z-score, the share of live groups. live: std over those of live groups.
    """

    everyone: float | None
    live: float | None
    largest: float | None  # the largest of all rows
    mean_largest: float | None
    dead: float | None
    rows: Sequence[Row]
    grouped: bool = False

    def numbers(self) -> dict[str, float]:
        """What is known, as evidence."""
        values = {"std_all": self.everyone, "std": self.live, "mean_largest": self.mean_largest, "dead": self.dead}
        return {name: value for name, value in values.items() if value is not None}


def advantage_means(case: Case) -> AdvantageMeans:
    """Of the rows that the settings are of, without those that lack a reward: its 0 is no normaliser's."""
    whole = [row for row in case.stage_rows if not row.get("reward/missing")]
    columns = {name: [value for _, value in series(whole, name)] for name in _COLUMNS}
    largest = columns["advantage/max_abs"] or columns["advantage/max"] or columns["advantage/group_max"]
    grouped = bool(columns["advantage/group_std"]) and not (columns["advantage/std_all"] or columns["advantage/std"])
    everyone = columns["advantage/group_std"] if grouped else columns["advantage/std_all"]
    return AdvantageMeans(
        everyone=fmean(everyone) if everyone else None,
        live=fmean(columns["advantage/std"]) if len(columns["advantage/std"]) >= LIVE_STEPS else None,
        largest=max(largest, default=None),
        mean_largest=fmean(largest) if largest else None,
        dead=fmean(columns["groups/dead"]) if columns["groups/dead"] else None,
        rows=whole,
        grouped=grouped,
    )


def least_rank_std(n: int) -> float:
    """The least std of 1 - 2 rank / (n - 1) where equal rewards share their mean rank and not all are equal.

    1 / sqrt(n - 1), one against the rest: that one has rank 0 and the others n / 2, a distance of n / (n - 1) after
    scaling, so the std is n / (n - 1) * sqrt(n - 1) / n.
    """
    return 1.0 / math.sqrt(n - 1)


def sizes_of(settings: Settings) -> tuple[int, ...]:
    """The completions that a group may have: those chosen of it, or any up to `num_generations` if they were stored."""
    n = settings.num_generations
    if settings.group_sizes or n is None:
        return settings.group_sizes or ()
    return tuple(range(2, n + 1)) if settings.offline else (n,)


def spread_of(settings: Settings) -> Spread | None:
    """The spread that the settings fix; None where one that matters is unknown, or the normaliser is another one.

    Of groups of several sizes it has the bounds of all, which hold for means over them.
    """
    sizes = sizes_of(settings)
    if not sizes or min(sizes) < 2 or settings.reshaped:
        return None
    if settings.transform == "rank" and (settings.ranks_break_ties is not False or settings.scale_rewards is None):
        spreads = [_plain_ranks(n, settings) for n in sizes]
    elif settings.scale_rewards == "group" and settings.baseline in ("group", None):
        spreads = [_z_score(n, settings) for n in sizes]
    else:
        return None
    return replace(
        min(spreads, key=lambda spread: spread.least),
        most=max(spread.most for spread in spreads),
        largest=max(spread.largest for spread in spreads),
    )


def _plain_ranks(n: int, settings: Settings) -> Spread:
    """1 - 2 rank / (n - 1), clipped where a clip is known."""
    clip = math.inf if settings.advantage_clip is None else settings.advantage_clip
    values = [max(-clip, min(clip, 1.0 - 2.0 * rank / (n - 1))) for rank in range(n)]
    most, largest = pstdev(values), max(values)
    if settings.ranks_break_ties:
        return Spread(name="ranks", least=most, most=most, largest=largest, of_equal=most)
    least = least_rank_std(n) if clip >= 1.0 else 0.0
    return Spread(
        name="ranks", least=least, most=most, largest=largest, of_equal=None if settings.ranks_break_ties is None else 0
    )


def _z_score(n: int, settings: Settings) -> Spread:
    """(r - mean) / (max(std, floor) + eps): std 1 with ddof 0, sqrt((n - 1) / n) with ddof 1; of ranks or of rewards.

    The largest is sqrt(n - 1) of these stds (Samuelson 1968). eps is taken to be far below the rewards' std.
    """
    sample = math.sqrt((n - 1) / n)
    least, most = (1.0 if settings.ddof == 0 else sample), (sample if settings.ddof == 1 else 1.0)
    clip = math.inf if settings.advantage_clip is None else settings.advantage_clip
    largest = most * math.sqrt(n - 1)
    pressed = settings.std_floor != 0 or clip < largest
    return Spread(name="a z-score", least=0.0 if pressed else least, most=most, largest=min(clip, largest))


USUAL_FLOOR = 0.1  # of a z-score, where none is known: what the code around document 001 clamps its std to
FAR = 0.1  # of what the normaliser gives: below this the spread is no matter of rounding, eps or batch size
NO_EPS = 10.0  # times eps: rewards that differ by less are pressed by it too
ADVICE = (
    "make the rewards inside a group differ: a finer reward, more varied candidates, prompts that are neither solved "
    "nor hopeless; leave groups of equal rewards out. Log the std of the rewards inside groups first: without a floor "
    "the smallest difference counts as much as a large one, so it has to mean something"
)


def small_advantage(case: Case) -> Sequence[Finding]:
    """A warning where a z-score's advantages are far below 1: its floor presses them down, or few groups are live.

    Under a z-score's floor A = (r - mean) / floor, so a std of s means that rewards inside groups have s * floor. Or a
    share q of the groups lies above the floor: the advantages of a batch then have sqrt(q) u, u = sqrt((n - 1) / n) at
    least, and a log that averages over batches q u at least. Everything between the two is possible too.

    ## small-advantage

    Severity: warning (certain where the std floor is known, moderate where it is taken to be 0.1).

    Means: the std of z-scored advantages is a tenth of what a z-score has, or less. Either few groups are live: at most
    s / sqrt((n - 1) / n) of them, and over steps of one group, or as `advantage/group_std`, the std *is* their share.
    Or a std floor f presses: below it the advantage is (r - mean) / f, so the rewards inside all groups have a std of
    about s f. Or a mixture. With s = 0.0062, f = 0.1, n = 5: 0.7 % of the groups, or 0.0006. Rewards that come in
    levels further apart than that leave the first reading alone.

    Looks at: the same columns as `impossible-advantage`, under `scale_rewards: group`.

    Confounder: where the number of groups behind a row is known (`--set groups_per_row=640`), a count of live ones that
    fits both columns to their digits takes this finding's place: `few-live-groups`. Without a floor dead groups are the
    only reading left, and the finding is `dead-groups`. Silent where `groups/dead` is logged and explains the std.
    Ruled out are a small learning rate (it is no part of an advantage) and the KL's share of the loss
    (`kl-loss-share`).

    Do: `advantage.std_floor=0`, knowing that the smallest difference then counts as much as a large one; better, look
    at why rewards inside a group hardly differ: rewards, candidates, data.

    Measured: the arithmetic on drawn groups stands in the [case study](cases/lever-plus.md).
    """
    spread, seen = spread_of(case.settings), advantage_means(case)
    if spread is None or spread.name == "ranks":
        return ()  # nothing presses ranks down: impossible_advantage
    s = seen.live if seen.everyone is None else seen.everyone
    count = case.once(live_count)
    if s is None or s >= FAR * spread.most or (count is not None and count.exact):
        return ()  # few live groups, and as large an advantage in each as there is: core.health.rules.live_groups
    if seen.everyone is not None and seen.dead is not None and s >= FAR * spread.most * (1 - seen.dead):
        return ()  # dead groups are counted, and explain it
    if spread.least == 0:
        return (_pressed(case, s, seen),)
    of_all = seen.everyone is not None and seen.dead is None
    return (_few_live(case, s, s / spread.least),) if of_all else ()


def implied(case: Case, s: float) -> dict[str, float]:
    """The floor that is taken, the rewards' std inside groups under it, and the largest share of groups above it."""
    floor = case.settings.std_floor or USUAL_FLOOR
    n = case.settings.num_generations or 2
    unit = 1.0 if case.settings.ddof == 0 else math.sqrt((n - 1) / n)
    return {"std_floor": floor, "implied_reward_std": s * floor, "implied_live_share": min(1.0, s / unit)}


def suggested(case: Case) -> tuple[str, ...]:
    """Overrides: no floor, and samplings that find groups whose rewards differ, unless all were drawn in advance."""
    floor = () if case.settings.std_floor == 0 else ("advantage.std_floor=0.0",)
    if case.settings.offline:
        return floor
    larger = 2 * (case.settings.num_generations or 4)
    return (*floor, "dynamic_sampling.max_attempts=10", f"num_generations={larger}")


def no_causes(case: Case, rows: Sequence[Row]) -> tuple[RuledOut, ...]:
    """Causes that small advantages exclude as their own."""
    rate = RuledOut(
        id="small-learning-rate",
        why="no learning rate is part of an advantage; a larger one goes further along the same directions",
    )
    share = _kl_share(case, rows)
    if share is None:
        return (rate,)
    why = (
        f"the KL is {share:.0%} of the loss, and that says nothing: at a ratio near 1 advantages of mean 0 make the "
        "policy loss about 0 whatever its gradient is; compare gradient norms (grad_share/kl)"
    )
    return (rate, RuledOut(id="kl-share-of-loss", why=why))


def _kl_share(case: Case, rows: Sequence[Row]) -> float | None:
    """The weighted KL's mean share of |policy loss| + weighted KL; None where it is unknown, or below one half."""
    shares = []
    for row in rows:
        loss, weight, kl = row.get("policy/loss"), row.get("beta", case.settings.beta), row.get("kl")
        paid = row.get("kl_loss", None if kl is None or weight is None else weight * kl)
        if loss is not None and paid is not None and abs(loss) + abs(paid) > 0:
            shares.append(abs(paid) / (abs(loss) + abs(paid)))
    share = fmean(shares) if shares else 0.0
    return share if share >= 0.5 else None


def eps_matters(case: Case, seen: AdvantageMeans) -> bool:
    """Whether eps may be a floor by itself: rewards of live groups differ by hardly more, or nobody knows."""
    within = [value for _, value in series(seen.rows, "reward/group_std")]
    alive = 1.0 - (seen.dead or 0.0)
    return not within or alive <= 0 or fmean(within) / alive < NO_EPS * (case.settings.eps or 0.0)


def _pressed(case: Case, s: float, seen: AdvantageMeans) -> Finding:
    """A z-score whose floor, known or not, stands where the std of nearly equal rewards should."""
    small = implied(case, s)
    differ = (
        f"with a std floor of {small['std_floor']:g} the rewards inside all groups differ by about "
        f"{small['implied_reward_std']:.1g} only"
    )
    return Finding(
        id="small-advantage",
        severity="warning",
        summary=(
            f"advantages have a standard deviation of {s:.2g} where a z-score has 1: "
            + (differ if seen.everyone is None else f"{_live_reading(case, small)}, or {differ}")
        ),
        evidence={**seen.numbers(), **small, **_counted(case.once(live_count))},
        rules_out=no_causes(case, seen.rows),
        suggest=suggested(case),
        advice=ADVICE,
        confidence="certain" if case.settings.std_floor else "moderate",
        decider=Decider(
            question="Do the rewards of a group differ at all?",
            overrides=("advantage.std_floor=0.0",),
            expects=(f"reward/group_std < {2 * s:.2g}",),
        ),
    )


def _live_reading(case: Case, small: Mapping[str, float]) -> str:
    """The reading that few groups are live, with a number of them where one fits the std."""
    count = case.once(live_count)
    if count is None:
        return f"at most {small['implied_live_share']:.1%} of the groups are live"
    return f"{count.words} are live, as far as the std tells"


def _counted(count: LiveCount | None) -> dict[str, float]:
    """A number of live groups as evidence; {} where none is known."""
    return {} if count is None else {"live_at_least": count.least, "live_at_most": count.most, "groups": count.groups}


def _few_live(case: Case, s: float, share: float) -> Finding:
    return Finding(
        id="dead-groups",
        severity="warning",
        summary=(
            f"advantages have a standard deviation of {s:.2g} where a z-score has 1 in every group whose rewards "
            f"differ: at most {share:.1%} of the groups had anything to teach"
        ),
        evidence={"std_all": s, "implied_live_share": share},
        suggest=suggested(case),
        advice=ADVICE,
        confidence="certain",
    )


ROUNDING = 0.05  # relative: logs print few digits, and means over steps scatter
HALF = 0.5  # of the least a z-score gives: more than eps and a few small batches take off


def impossible_advantage(case: Case) -> Sequence[Finding]:
    """An error where the normaliser of the settings cannot give the advantages of the log.

    A normaliser fixes the spread of a group's advantages before any training (`Spread`). So a logged
    standard deviation says by itself whether this normaliser ran. One row is enough: this is arithmetic, not a test.

    ## impossible-advantage

    Severity: error (certain; strong where it is not known how ties are ranked); warning (moderate) for a largest
    z-score in another trainer's log.

    Means: the settings name a normaliser that cannot have produced the advantages of the log.

    Looks at: `advantage/std_all` (all completions of a step, averaged over steps) or our own `advantage/std` (live
    groups only), and `advantage/max` or `advantage/max_abs`. One row is enough: a normaliser fixes the spread of a
    group's advantages by arithmetic. It needs `num_generations`, and `transform: rank` or `scale_rewards: group`. For n
    completions, with the std over divisor n of a live group:

    - ranks 1 - 2 rank / (n - 1), ties broken (a double argsort): std sqrt((n + 1) / (3 (n - 1))), which is 1 at n = 2,
      0.707 at 5, 0.655 at 8 and never below 0.577; equal rewards get it too. Largest 1.
    - the same, ties share a rank: std from 1 / sqrt(n - 1) (one against the rest; 0.5 at n = 5) to the above; equal
      rewards get 0. Largest 1.
    - z-score, ddof 0: std 1; equal rewards get 0. Largest sqrt(n - 1).
    - z-score, ddof 1: std sqrt((n - 1) / n). Largest (n - 1) / sqrt(n).

    Groups of several sizes (`keep_candidates`; stored ones, of which a query may have fewer) have the bounds of all.
    A share q of live groups gives a std between q and sqrt(q) of a live one's: pooled over a batch it is the root, and
    the mean over one-group batches is q. `--set ranks_break_ties=true` says that ranks are by argsort.

    Confounder: something else that shapes advantages. Silent for steps with missing rewards, a virtual best sample,
    candidates kept of a sampled group, `positive_reward`, an overlong penalty, a KL in the reward, an eps that is not
    small against the rewards' spread, and batch or running statistics. "Certain" holds if the column is what its name
    says. A trainer of answers in several turns may count each turn as a row of the group: its largest z-score is then
    that of more rows than `num_generations`, hence a warning, which names it.

    Do: compute the advantages of one logged group again, by hand, from its rewards.

    Measured: document 001's table ([case study](cases/lever-plus.md)).
    """
    spread, seen = spread_of(case.settings), advantage_means(case)
    if spread is None:
        return ()
    finding = _too_large(case, spread, seen)
    if finding is None and spread.name == "ranks":
        finding = _no_ranks(case, spread, seen) if _are_no_ranks(spread, seen) else None
    elif finding is None:
        finding = _too_small(case, spread, seen)
    return () if finding is None else (finding,)


def _too_large(case: Case, spread: Spread, seen: AdvantageMeans) -> Finding | None:
    """More than the normaliser can give to any group; logs of one group a step may divide by n - 1."""
    least = min(sizes_of(case.settings))
    std, most, of_them = seen.live, spread.most, f"{spread.name} of {_sizes(case)} rewards at most"
    if seen.everyone is not None:
        std, most = seen.everyone, spread.most * math.sqrt(least / max(1, least - 1))
    if std is not None and std > (1 + ROUNDING) * most:
        return _other(f"a standard deviation of {std:.3g}", f"{of_them} {most:.3g}", std, most)
    if seen.largest is not None and seen.largest > (1 + ROUNDING) * spread.largest:
        limit = spread.largest
        found = _other(f"values up to {seen.largest:.3g}", f"{of_them} {limit:.3g}", seen.largest, limit)
        if spread.name == "ranks" or case.stages:
            return found
        return replace(found, severity="warning", confidence="moderate", summary=found.summary + _OR_MORE_ROWS)
    return None


def _sizes(case: Case) -> str:
    sizes = sizes_of(case.settings)
    return str(sizes[0]) if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"


def _too_small(case: Case, spread: Spread, seen: AdvantageMeans) -> Finding | None:
    """Less than a z-score without a floor gives where this share of the groups is live."""
    if spread.least == 0 or eps_matters(case, seen):
        return None
    if seen.everyone is None:
        s, least, where = seen.live, spread.least, "in a group whose rewards differ"
    elif seen.dead is not None:
        s, least, where = seen.everyone, (1 - seen.dead) * spread.least, "with this share of live groups"
    else:
        return None
    if s is None or s >= HALF * least:
        return None
    return _other(f"a standard deviation of {s:.3g}", f"{spread.name} at least {least:.3g} {where}", s, least)


_OR_MORE_ROWS = ", or a group has more rows than num_generations (an answer of several turns counts once a turn)"


def _other(has: str, gives: str, observed: float, limit: float) -> Finding:
    return Finding(
        id="impossible-advantage",
        severity="error",
        summary=f"advantages have {has}, and {gives}: rewards were not normalised as the settings say",
        evidence={"observed": observed, "limit": limit},
        advice="compute the advantages of one logged group again, by hand, from its rewards",
        confidence="certain",
    )


def _are_no_ranks(spread: Spread, seen: AdvantageMeans) -> bool:
    """Ranks give every group, or every group that is not all equal, a spread that no reward can change."""
    if seen.everyone is None:
        return False
    if spread.of_equal:
        return seen.everyone < (1 - ROUNDING) * spread.least
    alive = FAR if seen.dead is None else (1 - ROUNDING) * (1 - seen.dead)
    return seen.everyone < alive * spread.least


def _no_ranks(case: Case, spread: Spread, seen: AdvantageMeans) -> Finding:
    s = seen.everyone or 0.0
    floor, count = case.settings.std_floor or USUAL_FLOOR, case.once(live_count)
    small: Mapping[str, float] = {"std_floor": floor}
    suggest: tuple[str, ...]
    if count is not None and count.exact:
        gives, because = f"a z-score with {count.words} live does (few-live-groups)", "as few groups are live"
        suggest, advice = (), "see few-live-groups: nothing that is done to advantages makes a dead group live"
    else:
        suggest, advice = suggested(case), ADVICE
        small, because = implied(case, s), "few groups are live or the rewards inside groups hardly differ"
        gives = (
            f"a z-score with a std floor of {floor:g} does, where {_live_reading(case, small)}, or where the rewards "
            f"of all groups differ by about {small['implied_reward_std']:.1g}"
        )
    whatever, some = "whatever the rewards", f"or at least {spread.least:.3g} where some are equal and not all"
    of_ranks = spread.least if spread.of_equal else spread.most
    ranks = f"have {of_ranks:.3g} {whatever if spread.of_equal else some}"
    return Finding(
        id="impossible-advantage",
        severity="error",
        summary=(
            f"advantages have a standard deviation of {s:.2g}, and ranks of {_sizes(case)} completions {ranks}: "
            f"no rank normalisation made them; {gives}"
        ),
        evidence={
            **seen.numbers(), "rank_std": of_ranks, "least_rank_std": spread.least, "largest_rank": spread.largest,
            **small, **_counted(count), "predicted_std_of_z_score": s,
        },
        rules_out=(
            RuledOut(
                id="rank-normalisation",
                why=f"the standard deviation is {s:.2g}, and ranks of {_sizes(case)} {ranks}",
            ),
            *no_causes(case, seen.rows),
        ),
        suggest=suggest,
        advice=advice,
        confidence="certain" if spread.of_equal else "strong",
        decider=_without_ranks(floor, s, because),
    )  # fmt: skip


def _without_ranks(floor: float, s: float, because: str) -> Decider:
    return Decider(
        question=(
            f"Does switching ranks off change anything? A z-score with a std floor of {floor:g} is predicted to give "
            f"the same {s:.2g}, since {because}"
        ),
        overrides=(
            "advantage.transform=none",
            "advantage.scale_rewards=group",
            f"advantage.std_floor={floor:g}",
        ),
        expects=(f"reward/group_std < {2 * s:.2g}",),
    )


ENOUGH = 10  # steps
SIGNIFICANT = 1e-3
OFF = 0.05  # of the largest advantage: rounding is 1e-7 of it
SPREAD = (0.5, 2.0)  # around 1: outside of it a scale does not do what it is there for


def odd_advantages(case: Case) -> Sequence[Finding]:
    """A warning for a mean that a group's own baseline cannot leave, or a spread far from 1 under a moving scale.

    ## odd-advantages

    Severity: warning (strong for the mean; moderate or weak for the spread).

    Means: advantages are not centred although a group's baseline centres them (a mean beyond 5 % of the largest
    advantage), or their std lies outside 0.5 to 2 under a moving scale. Document 003's guide suggests global
    normalisation, other reward weights, a tighter clip.

    Looks at: `advantage/mean`, `advantage/std` and `advantage/max_abs` over ten steps or more.

    Confounder: a clip, which biases the mean; completions left out after the baseline. A group's own statistics cannot
    drift; global ones lag when rewards change. Dead groups, whose advantages are 0, make the std over all groups small:
    they are taken out where their share is known, and a small std says nothing where it is not.

    Do: for the mean, look at what stands between the baseline and the loss; for the spread,
    `advantage.scale_rewards=group`. A tighter clip hides outliers and biases the mean.
    """
    finding = _off_centre(case) or _spread(case)
    return () if finding is None else (finding,)


def _off_centre(case: Case) -> Finding | None:
    known, baseline = case.settings, case.settings.baseline_traits
    means = [value for _, value in series(case.stage_rows, "advantage/mean")]
    sizes = [
        abs(value) for name in ("advantage/max_abs", "advantage/max") for _, value in series(case.stage_rows, name)
    ]
    if known.baseline is None or baseline is None or not baseline.balanced or len(means) < ENOUGH:
        return None
    if known.advantage_clip is not None or known.reshaped:
        return None
    if not sizes or max(map(abs, means)) <= OFF * max(sizes):
        return None
    off, se = fmean(means), stdev(means) / math.sqrt(len(means))
    p, peak = chance_beyond(off / se) if se > 0 else 0.0, max(means, key=abs)
    return Finding(
        id="odd-advantages",
        severity="warning",
        summary=(
            f"advantages have a mean of up to {peak:+.3g} on a step, and {off:+.3g} (standard error {se:.1g}) over "
            f"{len(means)} steps: a {known.baseline.replace('_', '-')} baseline leaves 0 in every group"
        ),
        evidence={"mean": off, "se": se, "p": p, "largest": peak, "steps": len(means)},
        advice=(
            "something stands between the baseline and the loss: a clip, completions left out after it, groups "
            "of unequal size or in another order"
        ),
        confidence="strong",
        decider=Decider(question="do the samples' advantages of each group add up to 0?"),
    )


def _over_all(row: Row) -> bool:
    """Whether a row's std is of all its groups, and of live ones it has none."""
    return number(row, "advantage/std") is None and number(row, "advantage/std_all") is not None


def _std_of_live_groups(row: Row) -> float | None:
    """The std of a step's advantages, those of dead groups left out where their share is known; None where all died."""
    if not _over_all(row):
        return number(row, "advantage/std")
    over_all, dead = number(row, "advantage/std_all") or 0.0, number(row, "groups/dead") or 0.0
    return over_all / math.sqrt(1 - dead) if over_all > 0 and dead < 1 else None


def _spread(case: Case) -> Finding | None:
    """Under statistics that lag behind the rewards the spread may drift; under a group's own it cannot."""
    scale, unknown = case.settings.scale_traits, case.settings.scale_rewards is None
    if not unknown and (scale is None or scale.scope not in ("history", "batch")):
        return None
    stds = [std for row in case.stage_rows if (std := _std_of_live_groups(row)) is not None]
    imitated = any("rce/loss" in row for row in case.rows)  # its weights are no advantages
    if (count := case.once(live_count)) is not None and count.exact:
        return None  # the share of live groups: core.health.rules.live_groups
    if len(stds) < ENOUGH or (unknown and (imitated or case.settings.transform is not None)):
        return None
    middle, se = fmean(stds), stdev(stds) / math.sqrt(len(stds))
    low, high = SPREAD
    if low - 4 * se <= middle <= high + 4 * se:
        return None
    if middle < low and any(number(row, "groups/dead") is None for row in case.stage_rows if _over_all(row)):
        return None  # dead groups have advantages of 0, and it is not known how many there are
    return Finding(
        id="odd-advantages",
        severity="warning",
        summary=(
            f"advantages have a std of {middle:.3g} (standard error {se:.1g}) over {len(stds)} steps, far from the "
            f"1 that it is normalised for: updates are in effect {'smaller' if middle < low else 'larger'} by that"
        ),
        evidence={
            "std": middle,
            "se": se,
            "p": chance_beyond((middle - 1) / se) if se > 0 else 0.0,
            "steps": len(stds),
        },
        suggest=("advantage.scale_rewards=group",),
        advice=(
            "a global (running) scale is what document 003 advises, and is what lags when rewards change; other reward "
            "weights change what is learned, not the spread; a tighter clip hides the outliers and biases the mean"
        ),
        confidence="weak" if unknown else "moderate",
        decider=Decider(
            question="is it the scale?", overrides=("advantage.scale_rewards=group",), expects=("advantage/std > 0.9",)
        ),
    )
