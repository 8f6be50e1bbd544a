"""Groups that teach nothing because their rewards are equal, and groups so small that only a sign is left.

Shares are of groups; a reward's level is the reward to nine digits. Not here: a reward that is the same for everything
(core.health.rules.rewards), and simulated steps (core.health.simulation).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from core.health.before.advantages import dead_group
from core.health.case import Case, Sample
from core.health.dataset import MOST_ALIKE, all_of
from core.health.finding import Decider, Finding, Row
from core.health.rules.reward_parts import component_conflict
from core.health.rules.rollout_mode import tied_to_updates
from core.health.statistics import chance_above, shown_p
from core.health.steps import number, solved, values_of

DIGITS = 9
EQUAL = 1e-6  # relative: a deviation that is rounding


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The rewards of one prompt's completions on one step."""

    step: int
    levels: tuple[float, ...]
    texts: int  # different ones; 0 where one of them is not known

    @property
    def dead(self) -> bool:
        """All equal."""
        return len(set(self.levels)) == 1


def groups_of(samples: Iterable[Sample]) -> list[Group]:
    """The groups of the usual size, in order; a group that lacks a reward is left out, and so are samples of none."""
    members_of: defaultdict[tuple[int, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.group is not None:
            members_of[(sample.step, sample.group)].append(sample)
    sizes = Counter(len(members) for members in members_of.values())
    size = max(sizes, key=lambda k: (sizes[k], k), default=0)
    rewards = {sample.reward for members in members_of.values() for sample in members if sample.reward is not None}
    level = {reward: round(reward, DIGITS) for reward in rewards}  # there are few, and rounding costs
    return [
        Group(
            step=step,
            levels=tuple(level[sample.reward] for sample in members if sample.reward is not None),
            texts=len({sample.text for sample in members}) if all(sample.text is not None for sample in members) else 0,
        )
        for (step, _), members in members_of.items()
        if len(members) == size > 1 and all(sample.reward is not None for sample in members)
    ]


def level_shares(groups: Sequence[Group]) -> dict[float, float]:
    """How often a completion earned each reward."""
    counts = Counter(level for group in groups for level in group.levels)
    total = sum(counts.values())
    return {level: count / total for level, count in counts.items()}


def dealt(groups: Sequence[Group]) -> float:
    """The share of dead groups to expect if the completions of all these groups were dealt to them at random.

    Sum over levels of C(n_level, K) / C(n, K): what exchangeable completions, prompts that are alike, have on average.
    """
    size = len(groups[0].levels)
    counts = Counter(level for group in groups for level in group.levels)
    return sum(math.comb(count, size) for count in counts.values()) / math.comb(size * len(groups), size)


def dead_share(shares: Iterable[float], size: int, likeness: float = 0.0) -> float:
    """The chance that all rewards of a group of this size are equal, if levels have these shares.

    likeness: the correlation of two completions of one prompt; 0 where prompts are alike, and the sum of share^size.
    Shares of a prompt are then taken to be Dirichlet: of two levels the beta law of core.health.dataset.
    """
    if likeness <= 0:
        return sum(share**size for share in shares)
    strength = 1.0 / likeness - 1.0
    return sum(all_of(share * strength, strength, size) for share in shares)


def likeness_of(shares: Mapping[float, float] | Sequence[float], size: int, dead: float) -> float:
    """The likeness at which groups of this size have this dead share; 0 where chance alone has as many."""
    values = list(shares.values()) if isinstance(shares, Mapping) else list(shares)
    low, high = 0.0, MOST_ALIKE
    if dead_share(values, size) >= dead:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if dead_share(values, size, middle) < dead else (low, middle)
    return (low + high) / 2


MANY = 0.5
ENOUGH = 10  # steps: fewer say it with less confidence, where all of them do
FEWEST = 3  # rows, each with most of its groups dead
LARGE = 4  # completions of a group: chance leaves one in eight of them dead at a pass rate of a half
NOT_BY_CHANCE = 0.4  # of such groups: what a foreign log is told of, though half of them live
QUIET = 0.01  # a gradient norm: a step with a live group has far more
BESIDE = 50.0  # times: so much more
NEARLY_ALL = 0.9  # of the groups: then one row is a hint
SIGNIFICANT = 1e-3
EXCESS = 0.15  # more dead groups than chance gives, as a share of all: less is not worth a word
MOSTLY = 2 / 3  # of the dead groups: they are of one kind
TOGETHER = 5  # steps of one group each are looked at together
LARGEST = 128
START, GONE = 5, 0.1  # steps of the start; of its entropy: less, and completions of a prompt hardly differ
YES_OR_NO = (0.9, 1.35)  # variance over m (1 - m) of rewards that are 0 or 1, by n or by n - 1 of a small batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """Dead groups of a step less those that chance gives, over `units` steps (or runs of TOGETHER steps)."""

    expected: float
    excess: float
    se: float
    units: int

    @property
    def p(self) -> float:
        """One-sided: so many more dead groups, if prompts were alike."""
        return chance_above(self.excess / self.se) if self.se > 0 else float(self.excess <= 0)


def dead_groups(case: Case) -> Sequence[Finding]:
    """A warning where more than half of all groups taught nothing.

    An info where fewer did and prompts differ, or where dynamic sampling refilled them: then they only cost samples. A
    larger group is suggested where chance makes the dead ones, and not where prompts or a policy without entropy do.

    A group of K equal rewards has advantage 0. Prompts that are alike have a share p^K + (1 - p)^K of them; more means
    that prompts differ, some always solved and some never, or that the completions of a prompt do not.

    ## dead-groups

    Severity: warning where more than half of the groups had equal rewards; info where fewer had but far more than
    chance gives (in a log of another trainer 40 % of groups of four or more), where dynamic sampling refilled them, or
    where the prompts are solved (by rows alone: the last rewards are 0.97 of the most there is, which above 1 only
    `reward/max` tells). Strong with the contrast to chance, else moderate (certain by the arithmetic of
    `small-advantage`).

    Means: groups whose rewards are all equal have advantage 0 and teach nothing. More of them than chance gives means
    that prompts differ (some always solved, some never), or that the completions of a prompt do not differ.

    Looks at: rewards of whole groups in the samples, else `groups/dead` over steps, else rows in which a spread of the
    rewards or of the advantages is 0 (all groups dead; other rows count as none, so the share is one at least). Fewer
    than ten steps: from three on where more than half of the groups of each were dead (moderate), or of all but the
    first third (info, weak); one or two where nine tenths were (weak). Where no share is known: half of ten rows or
    more with a `grad_norm` of 0.01 at most and a fiftieth of the others' (info, weak): the KL's gradient alone. Its
    evidence:

    - `share`: dead groups; `dead_right`, `dead_other`, `one_text`: shares of all groups that are dead at the best
      reward, dead at another, dead with the same text K times.
    - `expected`: what chance gives at these rewards. If a step's completions were dealt to its groups at random, a
      group is dead with chance sum over reward levels of C(n_level, K) / C(n, K). For rewards of 0 and 1 and many
      completions that is p^K + (1 - p)^K. Without samples (a TRL log) and with rewards of 0 or 1 (variance m (1 - m)),
      p^K + (1 - p)^K with the step's own mean is used; that is too high on average, so the rule is silent too often
      rather than too rarely. With dynamic sampling there is no such contrast: its steps end when enough groups are
      live.
    - `excess`, `excess_se`, `p`: mean over steps of dead minus expected, its standard error over steps, one-sided p.
    - `likeness`: correlation of two completions of one prompt that explains the share; `dead_at_16`, ...: dead groups
      to expect at 2, 4 and 8 times the group size with that likeness (Dirichlet; of two levels: beta).
    - `samplings_per_live_group`: 1 / (1 - share), what dynamic sampling pays; `dead_at_pass_rate_half`: 2 / 2^K, a
      curriculum's best.

    Confounder: chance. 15 points more than chance and p < 0.001 are asked for before prompts are said to differ. A
    policy that has become sure (entropy of the last third under a tenth of what the first five steps had) is named
    before prompts and group size. A value function in another trainer's log: advantages are by it, and equal rewards
    have some: silent. So it is where most completions have no reward: `missing-rewards` says that.

    Do: where chance makes most of the dead groups, the smallest group size at which half of the groups teach; where
    prompts differ, the prompts or the reward, by the kind of dead groups that prevails. Dynamic sampling is not
    suggested: it makes steps alike, and a completion teaches no more for it ([simulation](simulation.md): worth 0.85 to
    1.01 in 24 settings).

    Measured: false alarms in 4,500 simulated runs of prompts that are alike (five shapes of K x B x steps, three pass
    rates that rise by 0.3 during the run): 2 had p < 0.001, none of them with an excess of 15 points. Real runs and the
    prediction for other K: [benchmarks](benchmarks.md#dead-groups).
    """
    if not case.stages and case.settings.baseline == "none":
        return ()
    if _without_rewards(case.stage_rows):
        return ()  # which missing-rewards says
    rows = [row for row in case.stage_rows if row.get("groups/dead") is not None]
    groups = groups_of(_of_stage(case))
    shares = [float(row["groups/dead"] or 0.0) for row in rows]
    if not shares and groups:
        shares = [fmean(group.dead for group in step) for step in _by_step(groups)]
    elif not shares:
        shares = [dead for row in case.stage_rows if (dead := _dead_by_spread(row)) is not None]
    if not groups and len(shares) < MANY * sum(number(row, "reward/mean") is not None for row in case.stage_rows):
        shares, rows = [], []  # only where all were equal is it known: that tells nothing of the others
    steps = len(shares) * case.averaged_over
    growing = bool(shares) and steps >= FEWEST and fmean(shares) > MANY and min(shares[len(shares) // 3 :]) > MANY
    few = steps < ENOUGH and not (shares and min(shares) > (MANY if steps >= FEWEST else NEARLY_ALL - 1e-9))
    if few and not growing:
        return _quiet_gradients(case)
    refilled, comparison = bool(case.settings.dynamic_sampling), contrast(case, rows, groups)
    share = fmean(group.dead for group in groups) if groups else fmean(shares)
    differ = comparison is not None and comparison.p < SIGNIFICANT and comparison.excess >= EXCESS
    unlike = not case.stages and (case.settings.num_generations or 0) >= LARGE and share >= NOT_BY_CHANCE
    if share <= MANY and not differ and not unlike:
        return _quiet_gradients(case)
    numbers, still = _numbers(case, rows, groups, share), _without_entropy(case.stage_rows)
    evidence: dict[str, float | str] = {"share": share, "steps": steps, **numbers, **still}
    done = not groups and solved(case.stage_rows)  # as far as the sum tells
    best = done and not case.once(component_conflict)
    wasted = share > MANY and not refilled and not done
    if comparison is not None:
        evidence |= {
            "expected": comparison.expected,
            "excess": comparison.excess,
            "excess_se": comparison.se,
            "p": comparison.p,
        }
    return (
        Finding(
            id="dead-groups",
            severity="warning" if wasted and not few else "info",
            summary=(
                f"{share:.0%} of the groups had equal rewards and taught nothing"
                + (_SOLVED if best else f"{_words(numbers, comparison, differ)}{_fell(still)}")
            ),
            evidence=evidence,
            suggest=_suggest(case, numbers) if wasted and not differ and not still else (),
            advice=_HARDER if best else OF_STORED if case.settings.offline else _advice(numbers, share, still),
            confidence="strong" if comparison is not None else "moderate" if steps >= FEWEST and not few else "weak",
        ),
    )


def _without_rewards(rows: Sequence[Row]) -> bool:
    """Whether most completions of a run had no reward at all: groups without any are not equal, but empty."""
    missing = values_of(rows, "reward/missing")
    return bool(missing) and fmean(missing) > MANY


_SOLVED = ": nearly all rewards are the best there is, so the prompts are solved"
_HARDER = "harder prompts teach more; with these the run is done"


def _quiet_gradients(case: Case) -> Sequence[Finding]:
    """An info where the gradient of most steps is next to nothing beside that of the others, and no share is known."""
    rows = case.stage_rows
    norms = values_of(rows, "grad_norm")
    loud = [norm for norm in norms if norm > QUIET]
    if (
        case.stages
        or len(loud) < 2
        or len(norms) < ENOUGH
        or any(number(row, "groups/dead") is not None for row in rows)
    ):
        return ()
    limit = min(QUIET, median(loud) / BESIDE)
    quiet = [norm for norm in norms if norm <= limit]
    if len(quiet) < MANY * len(norms):
        return ()
    return (
        Finding(
            id="dead-groups",
            severity="info",
            summary=(
                f"on {len(quiet)} of {len(norms)} rows the gradient norm is at most {max(quiet):.2g}, on the others "
                f"{median(loud):.2g}: on most steps no group taught anything, and what is left is the KL's gradient"
            ),
            evidence={"quiet": len(quiet), "rows": len(norms), "quiet_most": max(quiet), "loud": median(loud)},
            advice="log the share of groups with equal rewards; take prompts that are solved now and then",
            confidence="weak",
            decider=Decider(question="are the rewards of a group all equal on the quiet steps?"),
        ),
    )


_SPREADS = ("reward/group_std", "reward/std", "advantage/std_all", "advantage/max_abs", "advantage/group_max")


def _dead_by_spread(row: Row) -> float | None:
    """1 where a spread of 0 says that all groups of a row are dead, 0 where none does; None where none is known."""
    known = [value for name in _SPREADS if (value := number(row, name)) is not None]
    return float(min(known) <= EQUAL * max(1.0, abs(number(row, "reward/mean") or 0.0))) if known else None


def batch_std(case: Case) -> Sequence[Finding]:
    """An info where all groups are dead and the deviation of the rewards is not 0.

    ## batch-std

    Severity: info (certain).

    Means: the deviation of the rewards is over the whole batch, and groups are dead: prompts differ from each other,
    and the completions of a prompt do not. The deviation says nothing of a signal.

    Looks at: `reward/std` above 0 on nine rows of ten or more, on which `groups/dead` is 1 or `reward/group_std` is 0.

    Confounder: `advantage.scale_rewards=batch` (TRL: `scale_rewards="batch"`), which divides by that deviation: the
    numerator is still a completion's reward less its group's mean, so dead groups have advantage 0 there, too. A batch
    baseline gives dead groups an advantage: silent where the settings say so. A log that calls a group's deviation of 0
    by another name has no such rows. Said once, where the whole log is so; single steps are chance.

    Do: look at `groups/dead` and `reward/group_std` for the signal; what makes groups dead is `dead-groups`.
    """
    if case.stages or case.settings.beyond_the_group:
        return ()
    rows = [row for row in case.stage_rows if number(row, "reward/std") is not None]
    dead = [
        row
        for row in rows
        if (number(row, "reward/std") or 0.0) > EQUAL
        and (number(row, "groups/dead") == 1 or number(row, "reward/group_std") == 0)
    ]
    if not dead or len(dead) < NEARLY_ALL * len(rows):
        return ()
    largest = max(number(row, "reward/std") or 0.0 for row in dead)
    return (
        Finding(
            id="batch-std",
            severity="info",
            summary=(
                f"the rewards' deviation is up to {largest:.3g} and all groups are dead on {len(dead)} of {len(rows)} "
                "rows: it is the batch's, over prompts that differ, and the completions of each prompt earn the same"
            ),
            evidence={"rows": len(dead), "of": len(rows), "reward_std_max": largest},
            advice="the deviation inside groups and the share of dead ones tell of a signal, this one does not",
            confidence="certain",
        ),
    )


def contrast(case: Case, rows: Sequence[Row], groups: Sequence[Group]) -> Contrast | None:
    """Dead groups against chance, a step at a time; None where rewards are not known well enough.

    Nor with dynamic sampling: its steps end when enough groups are live, which is no dealing at random. From samples:
    chance deals the step's completions to its groups. From rows of rewards 0 and 1: p^K + (1 - p)^K with the step's own
    mean as p, which is more than chance on average, so that it errs on the side of saying nothing.
    """
    if case.settings.dynamic_sampling:
        return None
    if groups:
        steps = _by_step(groups)
        if fmean(len(step) for step in steps) < 2:
            runs = [steps[start : start + TOGETHER] for start in range(0, len(steps), TOGETHER)]
            steps = [[group for step in run for group in step] for run in runs]
        pairs = [(fmean(group.dead for group in step), dealt(step)) for step in steps if len(step) > 1]
    else:
        size = case.settings.num_generations
        if size is None or case.averaged_over > 1 or not yes_or_no(rows):
            return None
        pairs = [(float(row["groups/dead"] or 0), dead_group(float(row["reward/mean"] or 0), size)) for row in rows]
    if len(pairs) < ENOUGH:
        return None
    more = [dead - chance for dead, chance in pairs]
    return Contrast(
        expected=fmean(chance for _, chance in pairs),
        excess=fmean(more),
        se=stdev(more) / math.sqrt(len(more)),
        units=len(more),
    )


def yes_or_no(rows: Sequence[Row]) -> bool:
    """Whether all rows' rewards are 0 or 1, by their variance: m (1 - m)."""
    pairs = [(row.get("reward/mean"), row.get("reward/std")) for row in rows]
    known = [(mean, std) for mean, std in pairs if mean is not None and std is not None]
    if not known or len(known) < len(rows) or not all(-1e-9 <= mean <= 1 + 1e-9 for mean, _ in known):
        return False
    most = math.fsum(mean * (1 - mean) for mean, _ in known)
    low, high = YES_OR_NO
    return most > 0 and low * most <= math.fsum(std * std for _, std in known) <= high * most


def _by_step(groups: Sequence[Group]) -> list[list[Group]]:
    steps: defaultdict[int, list[Group]] = defaultdict(list)
    for group in groups:
        steps[group.step].append(group)
    return [steps[step] for step in sorted(steps)]


def _numbers(case: Case, rows: Sequence[Row], groups: Sequence[Group], share: float) -> dict[str, float]:
    """What is known of the rewards, of the kinds of dead groups, and of larger groups; {} where nothing is."""
    if groups:
        shares, size = level_shares(groups), len(groups[0].levels)
        kinds, rate, levels = _kinds(groups, max(shares)), shares[max(shares)], list(shares.values())
    elif (size := case.settings.num_generations or 0) > 1 and yes_or_no(rows):
        rate = fmean(float(row["reward/mean"] or 0.0) for row in rows)
        levels = [rate, 1.0 - rate]
        right = min(share, max(0.0, rate - (1 - share) / 2))  # live groups are half right, between 1 / K and 1 - 1 / K
        kinds = {"dead_right": right, "dead_other": share - right}
    else:
        return {}
    like = likeness_of(levels, size, share)
    larger = {f"dead_at_{n}": dead_share(levels, n, like) for n in (2 * size, 4 * size, 8 * size) if n <= LARGEST}
    refills = {"samplings_per_live_group": 1 / (1 - share)} if share < 1 else {}
    curriculum = {"dead_at_pass_rate_half": dead_group(0.5, size)}
    return {"group_size": size, "pass_rate": rate, **kinds, "likeness": like, **larger, **refills, **curriculum}


def _kinds(groups: Sequence[Group], best: float) -> dict[str, float]:
    """Shares of all groups: dead and right, dead and not; dead with one text over and over, where texts are known."""
    dead = [group for group in groups if group.dead]
    several = len({level for group in groups for level in group.levels}) > 1  # else none is known to be the best
    right = sum(several and group.levels[0] == best for group in dead)
    shares = {"dead_right": right / len(groups), "dead_other": (len(dead) - right) / len(groups)}
    if any(group.texts for group in groups):
        shares["one_text"] = fmean(group.dead and group.texts == 1 for group in groups)
    return shares


def _words(numbers: dict[str, float], comparison: Contrast | None, differ: bool) -> str:
    """The rest of the sentence."""
    if not numbers:
        return ": a larger num_generations, more varied prompts or a finer reward would use the samples"
    kinds = f" ({numbers['dead_right']:.0%} at the best reward, {numbers['dead_other']:.0%} at a lower one)"
    if comparison is None:
        return kinds
    chance = f"{kinds}; {comparison.expected:.0%} expected by chance"
    if not differ:
        return chance
    return (
        f"{chance}, excess {100 * comparison.excess:.0f} points: prompts differ in difficulty, or completions do not "
        f"differ ({shown_p(comparison.p)})"
    )


def _of_stage(case: Case) -> list[Sample]:
    """The samples of the stage's rows; all where there are no rows."""
    steps = {int(row["step"] or 0) for row in case.stage_rows}
    return [sample for sample in case.samples if sample.step in steps or not steps]


def _without_entropy(rows: Sequence[Row]) -> dict[str, float]:
    """The entropy at the start and in the last third, where it is less than a tenth: completions then hardly differ."""
    values = values_of(rows, "entropy")
    if len(values) < ENOUGH:
        return {}
    start, now = fmean(values[:START]), median(values[-(len(values) // 3) :])
    return {"entropy_start": start, "entropy_last": now} if now < GONE * start else {}


def _fell(still: Mapping[str, float]) -> str:
    if not still:
        return ""
    return (
        f"; entropy fell from {still['entropy_start']:.2g} to {still['entropy_last']:.2g}: the policy hardly tries "
        "anything else"
    )


def _suggest(case: Case, numbers: dict[str, float]) -> tuple[str, ...]:
    """The smallest size at which half of the groups teach; nothing where completions are given.

    Not dynamic sampling: refills make steps alike, and a completion teaches no more for them (docs/simulation.md).
    """
    if case.settings.offline or not numbers:
        return ()
    larger = {name.removeprefix("dead_at_"): dead for name, dead in numbers.items()}  # and pass_rate_half, no size
    sizes = [int(size) for size, dead in larger.items() if size.isdigit() and dead <= MANY]
    return (f"num_generations={min(sizes)}",) if sizes else ()


OF_STORED = "nothing is sampled here: another candidate_choice, or outputs to store that are not all alike, come first"


def _advice(numbers: dict[str, float], share: float, still: Mapping[str, float]) -> str:
    if still:
        return "completions of a prompt are alike: a higher temperature or an entropy bonus comes first"
    if not numbers:
        return ""
    half = f"prompts that are solved half of the time have {numbers['dead_at_pass_rate_half']:.1%} dead groups"
    if numbers.get("one_text", 0.0) >= MOSTLY * share:
        return "most dead groups are one text over and over: a higher temperature or an entropy bonus comes first"
    if numbers["dead_right"] >= MOSTLY * share:
        return f"most dead groups are at the best reward: leave solved prompts out, or take harder ones; {half}"
    if numbers["dead_other"] >= MOSTLY * share:
        return (
            f"most dead groups are at a lower reward: begin with easier prompts, a warm start or a finer reward; {half}"
        )
    return f"prompts are too easy or too hard: choose them by their pass rate; {half}"


TOO_FEW = 3  # completions of a group whose advantages have no size of their own
_SMALL = 1e-4  # an eps or floor of at most this changes an advantage by 2 % where two rewards differ by 0.01


def small_groups(case: Case) -> Sequence[Finding]:
    """A warning at two completions a group with a group's z-score, an info at three; silent for four and more.

    An info, too, where the dead groups that so few make are a warning already.

    A z-score of two is +a and -a, whatever they earned. Arithmetic, not a contrast: (r1 - mean) / std of two rewards
    has the size 1 with the population standard deviation and 0.707 with the sample one.

    ## small-groups

    Severity: warning with K=2, info with K=3 (certain), and with K=2 where `dead-groups` is a warning: that measures
    what is lost by it. Silent from 4 on.

    Means: with `num_generations=2` and a group's z-score every advantage is 0 or ±1 (population standard deviation,
    `ddof=0`) or ±0.7071 (`ddof=1`), whatever the two rewards were: of how much better a completion was, nothing is
    left. This is a weakness, not a cause of collapse; where `rollout-mode` holds it says so.

    Looks at: `num_generations`, `advantage.baseline` and `advantage.scale_rewards`, both `group`, and no floor.

    Confounder: advantages made in another way than the settings say: a size in the log that does not fit silences it.

    Do: `num_generations=8`, or `advantage.scale_rewards=none`, which keeps the size of the difference.

    Measured: with sound rollouts (a prototype of this tool, 150 steps, three seeds) K=2 had no all-invalid step after
    447 updates at learning rates of 1e-4 and 3e-4, and 20 after 406 at 1e-3, where K=8 had 1 after 446.
    """
    k = case.settings.num_generations
    if k is None or not 2 <= k <= TOO_FEW or not case.steps or not _is_z_score(case):
        return ()
    ddof, seen = case.settings.ddof, _largest(case)
    # The size of both advantages of a pair, for each standard deviation that may have been meant.
    sizes = [math.sqrt((k - correction) / k) for correction in ((0, 1) if ddof is None else (ddof,))]
    if k == 2 and seen is not None and not any(0.95 * size < seen < 1.05 * size for size in sizes):
        return ()  # the settings do not tell all: these advantages were made in another way
    dead = [float(share) for row in case.steps if (share := row.get("groups/dead")) is not None]
    evidence: dict[str, float | str] = {"num_generations": k, "dead_at_pass_rate_half": 0.5 ** (k - 1)}
    evidence |= {"ddof": ddof} if ddof is not None else {}
    evidence |= {"dead": sum(dead) / len(dead)} if dead else {}
    evidence |= {"size": sizes[0]} if k == 2 and len(sizes) == 1 else {}
    evidence |= {"largest_seen": seen} if seen is not None else {}
    tied = tied_to_updates(case) is not None
    found = case.once(dead_groups)
    larger = next((override for finding in found for override in finding.suggest), "num_generations=8")
    evidence |= {"explains_the_collapse": "no: see rollout-mode"} if tied else {}
    return (
        Finding(
            id="small-groups",
            severity="info" if k > 2 or any(one.severity == "warning" for one in found) else "warning",
            summary=_summary(k, sizes) + ("; a weakness, and not what made the steps collapse" if tied else ""),
            evidence=evidence,
            suggest=(larger,),
            advice=(
                "advantage.scale_rewards=none keeps the size of the difference; at equal completions fewer prompts "
                "with larger groups have fewer dead groups and a less noisy direction"
            ),
            confidence="certain",
            decider=Decider(
                question="does a larger group learn more from as many completions? `grpoctl sweep advantage-study`",
                overrides=(larger,),
                expects=(f"groups/dead < {sum(dead) / len(dead):.3g}",) if dead and any(dead) else (),
            ),
        ),
    )


def _is_z_score(case: Case) -> bool:
    """Whether the advantages are known to be the group's z-score, nothing floored that matters."""
    known = case.settings
    scaled = known.scale_rewards == "group" and known.baseline == "group"
    bare = (known.std_floor or 0.0) <= _SMALL and (known.eps or 0.0) <= _SMALL
    return scaled and bare


def _largest(case: Case) -> float | None:
    """The largest advantage of the run, None where there is none or it is not known."""
    rows = case.steps
    return max((float(size) for row in rows if (size := row.get("advantage/max_abs"))), default=None)


def _summary(k: int, sizes: Sequence[float]) -> str:
    if k == 2:
        size = " (or ".join(f"±{size:.4g}" for size in sizes) + ")" * (len(sizes) - 1)
        return (
            f"num_generations=2: every advantage is 0 or {size}, whatever the two rewards were, so a difference of "
            "0.01 pushes as hard as one of 1"
        )
    return (
        "num_generations=3: of a group's three advantages one number is free, and where two rewards are equal, as with "
        "right and wrong, none is: how much better a completion was is lost"
    )
