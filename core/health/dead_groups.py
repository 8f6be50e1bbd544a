"""How many groups taught nothing, against what chance gives, why, and what would find groups that teach.

A group of K equal rewards has advantage 0. Prompts that are alike have a share p^K + (1 - p)^K of them; more means that
prompts differ, some always solved and some never, or that the completions of a prompt do not. What is not here: a
reward that is the same for everything (core.health.constant_reward), and simulated steps (core.health.simulation).

## dead-groups

Severity: warning where more than half of the groups had equal rewards; info where fewer had but far more than chance
gives, or where dynamic sampling refilled them. Strong with the contrast to chance, else moderate (certain by the
arithmetic of `small-advantage`).

Means: groups whose rewards are all equal have advantage 0 and teach nothing. More of them than chance gives means
that prompts differ (some always solved, some never), or that the completions of a prompt do not differ.

Looks at: rewards of whole groups in the samples, else `groups/dead` over steps. Its evidence:

- `share`: dead groups; `dead_right`, `dead_other`, `one_text`: shares of all groups that are dead at the best reward,
  dead at another, dead with the same text K times.
- `expected`: what chance gives at these rewards. If a step's completions were dealt to its groups at random, a group
  is dead with chance sum over reward levels of C(n_level, K) / C(n, K). For rewards of 0 and 1 and many completions
  that is p^K + (1 - p)^K. Without samples (a TRL log) and with rewards of 0 or 1 (variance m (1 - m)), p^K + (1 -
  p)^K with the step's own mean is used; that is too high on average, so the rule is silent too often rather than too
  rarely. With dynamic sampling there is no such contrast: its steps end when enough groups are live.
- `excess`, `excess_se`, `p`: mean over steps of dead minus expected, its standard error over steps, one-sided p.
- `likeness`: correlation of two completions of one prompt that explains the share; `dead_at_16`, ...: dead groups to
  expect at 2, 4 and 8 times the group size with that likeness (Dirichlet; of two levels: beta).
- `samplings_per_live_group`: 1 / (1 - share), what dynamic sampling pays; `dead_at_pass_rate_half`: 2 / 2^K, a
  curriculum's best.

Confounder: chance. 15 points more than chance and p < 0.001 are asked for before prompts are said to differ. A policy
that has become sure (entropy of the last third under a tenth of what the first five steps had) is named before
prompts and group size.

Do: where chance makes most of the dead groups, the smallest group size at which half of the groups teach; where
prompts differ, the prompts or the reward, by the kind of dead groups that prevails. Dynamic sampling is not
suggested: it makes steps alike, and a completion teaches no more for it ([simulation](simulation.md): worth 0.85 to
1.01 in 24 settings).

Measured: false alarms in 4,500 simulated runs of prompts that are alike (five shapes of K x B x steps, three pass
rates that rise by 0.3 during the run): 2 had p < 0.001, none of them with an excess of 15 points. Real runs and the
prediction for other K: [benchmarks](benchmarks.md#dead-groups).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from core.health.case import Case, Sample
from core.health.finding import Finding, Row
from core.health.foresight.dead_groups import dead_group
from core.health.group_outcomes import Group, dead_share, dealt, groups_of, level_shares, likeness_of
from core.health.onset import number
from core.health.trend import chance_above, shown_p

MANY = 0.5
ENOUGH = 10  # steps: fewer say nothing
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

    An info where fewer did and prompts differ, or where dynamic sampling refilled them: then they only cost samples.
    A larger group is suggested where chance makes the dead ones, and not where prompts or a policy without entropy do.
    """
    rows = [row for row in case.stage_rows if row.get("groups/dead") is not None]
    groups = groups_of(_of_stage(case))
    shares = [float(row["groups/dead"] or 0.0) for row in rows]
    if not shares and groups:
        shares = [fmean(group.dead for group in step) for step in _by_step(groups)]
    if len(shares) * case.averaged_over < ENOUGH:
        return ()
    refilled, found = bool(case.settings.dynamic_sampling), contrast(case, rows, groups)
    share = fmean(group.dead for group in groups) if groups else fmean(shares)
    differ = found is not None and found.p < SIGNIFICANT and found.excess >= EXCESS
    if share <= MANY and not differ:
        return ()
    numbers, still = _numbers(case, rows, groups, share), _without_entropy(case.stage_rows)
    evidence: dict[str, float | str] = {"share": share, "steps": len(shares) * case.averaged_over, **numbers, **still}
    wasted = share > MANY and not refilled
    if found is not None:
        evidence |= {"expected": found.expected, "excess": found.excess, "excess_se": found.se, "p": found.p}
    return (
        Finding(
            id="dead-groups",
            severity="warning" if wasted else "info",
            summary=(
                f"{share:.0%} of the groups had equal rewards and taught nothing{_words(numbers, found, differ)}"
                + _fell(still)
            ),
            evidence=evidence,
            suggest=_suggest(case, numbers) if wasted and not differ and not still else (),
            advice=_advice(numbers, share, still),
            confidence="strong" if found is not None else "moderate",
        ),
    )


def contrast(case: Case, rows: Sequence[Row], groups: Sequence[Group]) -> Contrast | None:
    """Dead groups against chance, a step at a time; None where rewards are not known well enough.

    Nor with dynamic sampling: its steps end when enough groups are live, which is no dealing at random.
    From samples: chance deals the step's completions to its groups. From rows of rewards 0 and 1: p^K + (1 - p)^K with
    the step's own mean as p, which is more than chance on average, so that it errs on the side of saying nothing.
    """
    if case.settings.dynamic_sampling:
        return None
    if groups:
        steps = _by_step(groups)
        if fmean(len(step) for step in steps) < 2:
            steps = [[group for step in some for group in step] for some in _runs(steps)]
        pairs = [(fmean(one.dead for one in step), dealt(step)) for step in steps if len(step) > 1]
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


def _runs(steps: Sequence[list[Group]]) -> list[Sequence[list[Group]]]:
    return [steps[start : start + TOGETHER] for start in range(0, len(steps), TOGETHER)]


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
    found = {"dead_right": right / len(groups), "dead_other": (len(dead) - right) / len(groups)}
    if any(group.texts for group in groups):
        found["one_text"] = fmean(group.dead and group.texts == 1 for group in groups)
    return found


def _words(numbers: dict[str, float], found: Contrast | None, differ: bool) -> str:
    """The rest of the sentence."""
    if not numbers:
        return ": a larger num_generations, more varied prompts or a finer reward would use the samples"
    kinds = f" ({numbers['dead_right']:.0%} all right, {numbers['dead_other']:.0%} all equal below that)"
    if found is None:
        return kinds
    chance = f"{found.expected:.0%} are chance at these rewards"
    why = (
        f", the other {found.excess:.0%} prompts that differ, or completions that do not ({shown_p(found.p)})"
        if differ
        else ""
    )
    return f"{kinds}; {chance}{why}"


def _of_stage(case: Case) -> list[Sample]:
    """The samples of the stage's rows; all where there are no rows."""
    steps = {int(row["step"] or 0) for row in case.stage_rows}
    return [one for one in case.samples if one.step in steps or not steps]


def _without_entropy(rows: Sequence[Row]) -> dict[str, float]:
    """The entropy at the start and in the last third, where it is less than a tenth: completions then hardly differ."""
    values = [value for row in rows if (value := number(row, "entropy")) is not None]
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
    sizes = [int(name.removeprefix("dead_at_")) for name, dead in numbers.items() if _size(name) and dead <= MANY]
    return (f"num_generations={min(sizes)}",) if sizes else ()


def _size(name: str) -> bool:
    return name.removeprefix("dead_at_").isdigit()


def _advice(numbers: dict[str, float], share: float, still: Mapping[str, float]) -> str:
    if still:
        return "completions of a prompt are alike: a higher temperature or an entropy bonus comes first"
    if not numbers:
        return ""
    half = f"prompts that are solved half of the time have {numbers['dead_at_pass_rate_half']:.1%} dead groups"
    if numbers.get("one_text", 0.0) >= MOSTLY * share:
        return "most dead groups are one text over and over: a higher temperature or an entropy bonus comes first"
    if numbers["dead_right"] >= MOSTLY * share:
        return f"most dead groups are all right: leave solved prompts out, or take harder ones; {half}"
    if numbers["dead_other"] >= MOSTLY * share:
        return f"most dead groups are not right: begin with easier prompts, a warm start or a finer reward; {half}"
    return f"prompts are too easy or too hard: choose them by their pass rate; {half}"
