"""Do advantages follow the rewards? Recomputed from samples, or inferred from curves: a flipped sign, another order."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from statistics import fmean, pstdev, stdev

from core.algorithms.names import SCALES, BaselineTraits, ScaleTraits, scopes
from core.config import AdvantageSpec
from core.health.case import Case, Sample, Settings
from core.health.finding import Decider, Finding, Row, RuledOut, Severity
from core.health.rules.breaks import breaks
from core.health.rules.integrity import rank_correlation, worst_integrity
from core.health.rules.learning_rate import too_large
from core.health.statistics import chance_beyond, series, told_z, trend
from core.health.steps import acted, number, values_of

SAME = 1e-6  # of an advantage, and of a reward: what float32 leaves of their difference
TINY = 0.01  # an advantage that rounding over a tiny deviation can give: rounding-as-signal is about those
LIKELY = ("group", "none")  # scales that are tried where a log lacks it: a group's own advantages depend on no other
MOST = 200  # steps that are looked at, the first
ENOUGH = 3  # wrong steps that one explanation gives: no accident
MOST_ROWS = 4096  # completions of a step: more are not computed again


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """The completions of one step in their order, and the groups that they are of, by their places."""

    number: int
    rewards: Sequence[float | None]
    recorded: Sequence[float]
    groups: Sequence[Sequence[int]]


def advantage_mismatch(case: Case) -> Sequence[Finding]:
    """An error where the advantages are not the rewards', under the id of what was done to them.

    They are computed again from each step's samples. Where they differ: minus them (a sign is flipped), those of
    another grouping (rows and rewards are in different orders), or neither. Only where nothing but the run's normaliser
    stands between rewards and advantages, and its settings are known; running statistics are not followed. Where a log
    only lacks `scale_rewards`, a sign or an order that gives every step's advantages under one scale is found all the
    same, and nothing else is said.

    ## group-order

    Severity: error (certain from three steps on).

    Means: advantages were computed over the wrong groups, or handed to the wrong completions: rewards and rows are in
    different orders.

    Looks at: the advantages of every whole step, computed again from its samples' rewards with the run's normaliser (to
    1e-6, and what float32 loses of the rewards). Another grouping gives the recorded ones on every step: K neighbours,
    every P-th row, rows and columns exchanged, or the neighbour group's.

    Confounder: see `advantage-mismatch`.

    Do: look at what is between the rewards and the normaliser: the order of rows.

    Measured: 10 of 10 planted faults. TRL runs with advantages computed over every P-th completion: 10 of 10 healthy
    runs found, and of those at a learning rate x100, where hardly a group is live, 8 of 10 (10 of 10 with `--set
    scale_rewards=group`); 0 of 30 unchanged runs accused.

    ## advantage-mismatch

    Severity: error (certain or strong).

    Means: the recorded advantages are not those of the recorded rewards, and neither a flipped sign (`reward-sign`) nor
    another grouping (`group-order`) explains them.

    Looks at: the same recomputation as `group-order`. Where `scale_rewards` is not known, `group` and `none` are both
    tried; then only a sign or an order that gives every step's advantages is reported, from three wrong steps on. TRL's
    completions (`log_completions=True`) have what is needed where there is one reward function with weight 1 (the log's
    `reward` is its mean).

    Confounder: anything else that stands between rewards and advantages. Silent with shaping, KL in the reward,
    candidates left out, a virtual member, running statistics or weighting by tokens, and for logs whose normaliser is
    not known.

    Do: look at what is between the rewards and the loss, or check that the run used these settings.
    """
    guessed = case.settings.scale_rewards is None
    settings = [replace(case.settings, scale_rewards=scale) for scale in LIKELY] if guessed else [case.settings]
    normalisers = [how for known in settings if (how := _normaliser(known)) is not None]
    if not normalisers or case.settings.num_generations is None:
        return ()
    steps = _of_one_batch(case, whole_steps(case, case.settings.num_generations))
    wrong = {how: _not_own(steps, how) for how in normalisers}
    if not all(wrong.values()):
        return ()
    for how in normalisers:
        explained = next((e for e in _EXPLANATIONS if all(_gives(e, step, how) for step in steps)), None)
        if not guessed or (explained is not None and len(wrong[how]) >= ENOUGH):
            return (_finding(steps, wrong[how], explained, how),)
    return ()


def whole_steps(case: Case, k: int) -> list[Step]:
    """The steps of the settings' stage of which every completion is known: each prompt k times."""
    numbers = {int(row["step"] or 0) for row in case.stage_rows}
    samples = [sample for sample in case.samples if sample.step in numbers]
    steps: list[Step] = []
    for at, part in groupby(samples, key=lambda sample: sample.step):
        step = _whole(at, list(part), k) if len(steps) < MOST else None
        steps += [] if step is None else [step]
    return steps


def _of_one_batch(case: Case, steps: Sequence[Step]) -> Sequence[Step]:
    """The steps; over a batch those without an evaluation: TRL keeps its completions with the step's, two batches."""
    if all(traits is None or traits.scope != "batch" for traits in _traits(case.settings)):
        return steps
    evaluated = {int(row["step"] or 0) for row in case.stage_rows if "eval/reward" in row}
    return [step for step in steps if step.number not in evaluated]


def _whole(number: int, samples: Sequence[Sample], k: int) -> Step | None:
    if [sample.row for sample in samples] != list(range(len(samples))) or len(samples) > MOST_ROWS:
        return None
    places: dict[str | None, list[int]] = {}
    for place, sample in enumerate(samples):
        places.setdefault(sample.group, []).append(place)
    recorded = [sample.advantage for sample in samples if sample.advantage is not None]
    if None in places or any(len(rows) != k for rows in places.values()) or len(recorded) < len(samples):
        return None
    rewards = [sample.reward for sample in samples]
    if all(reward is None for reward in rewards):  # not earned, or not known: of several functions no sum is
        return None
    return Step(number=number, rewards=rewards, recorded=recorded, groups=list(places.values()))


def recomputed(rewards: Sequence[float | None], groups: Sequence[Sequence[int]], how: AdvantageSpec) -> list[float]:
    """The advantage of each completion: of its reward in its group, of which all have one size; 0 where it has none."""
    from core.algorithms.advantages import advantages

    known = [math.nan if reward is None else reward for reward in rewards]
    advantages_N = [0.0] * len(rewards)
    values_PK = advantages([[known[place] for place in group] for group in groups], how)
    for group, values in zip(groups, values_PK.tolist(), strict=True):
        for place, value in zip(group, values, strict=True):
            advantages_N[place] = value
    return advantages_N


@dataclass(frozen=True, kw_only=True, slots=True)
class _Explanation:
    """What was done instead, and the advantages that it gives."""

    id: str
    what: str
    gives: Callable[[Step, AdvantageSpec], Sequence[float]]


def _negated(step: Step, how: AdvantageSpec) -> Sequence[float]:
    return [-value for value in recomputed(step.rewards, step.groups, how)]


def _in_runs(step: Step, how: AdvantageSpec) -> Sequence[float]:
    k, n = len(step.groups[0]), len(step.rewards)
    return recomputed(step.rewards, [range(start, start + k) for start in range(0, n, k)], how)


def _strided(step: Step, how: AdvantageSpec) -> Sequence[float]:
    p, n = len(step.groups), len(step.rewards)
    return recomputed(step.rewards, [range(start, n, p) for start in range(p)], how)


def _transposed(step: Step, how: AdvantageSpec) -> Sequence[float]:
    """The right values in the wrong places: completion p * K + k has that of k * P + p."""
    own, p = recomputed(step.rewards, step.groups, how), len(step.groups)
    return [own[place] for first in range(p) for place in range(first, len(own), p)]


def _shifted(step: Step, how: AdvantageSpec) -> Sequence[float]:
    """Each group has those of the group before it."""
    own, advantages = recomputed(step.rewards, step.groups, how), [0.0] * len(step.rewards)
    for group, other in zip(step.groups, [step.groups[-1], *step.groups[:-1]], strict=True):
        for place, theirs in zip(group, other, strict=True):
            advantages[place] = own[theirs]
    return advantages


_MIXED = "the completions of different prompts are compared with each other"
_ELSEWHERE = "the right advantages are given to other completions"
_EXPLANATIONS = (
    _Explanation(
        id="reward-sign", what="they are minus what the rewards give: the policy learns to earn less", gives=_negated
    ),
    _Explanation(id="group-order", what=f"every K neighbours were taken for a group: {_MIXED}", gives=_in_runs),
    _Explanation(id="group-order", what=f"every P-th completion was taken for a group: {_MIXED}", gives=_strided),
    _Explanation(id="group-order", what=f"rows and columns are exchanged: {_ELSEWHERE}", gives=_transposed),
    _Explanation(id="group-order", what=f"each group has its neighbour's: {_ELSEWHERE}", gives=_shifted),
)


def _finding(
    steps: Sequence[Step], wrong: Sequence[Step], explained: _Explanation | None, how: AdvantageSpec
) -> Finding:
    first = wrong[0]
    values_N = recomputed(first.rewards, first.groups, how)
    place = max(range(len(values_N)), key=lambda at: abs(values_N[at] - first.recorded[at]))
    certain = explained is not None and len(wrong) >= ENOUGH
    return Finding(
        id="advantage-mismatch" if explained is None else explained.id,
        severity="error",
        summary=(
            f"on {len(wrong)} of {len(steps)} steps the advantages are not those of the recorded rewards (step "
            f"{first.number}, completion {place}: {first.recorded[place]:.4g}, and {values_N[place]:.4g} by its "
            "rewards)"
            + (f"; {explained.what}" if explained else "")
        ),
        evidence={
            "wrong_steps": len(wrong), "steps": len(steps), "step": first.number, "completion": place,
            "recorded": first.recorded[place], "recomputed": values_N[place],
        },
        rules_out=() if explained is None else _RULED_OUT[explained.id],
        advice=(
            "look at what is between the rewards and the normaliser: a sign, or the order of rows"
            if explained is not None
            else "look at what is between the rewards and the loss, or whether these are the settings that it ran with"
        ),
        confidence="certain" if certain else "strong",
    )  # fmt: skip


_FOLLOWS = "the policy follows its advantages, which ask for less reward"
_RULED_OUT = {
    "reward-sign": (RuledOut(id="reward-hacking", why=_FOLLOWS), RuledOut(id="overfitting", why=_FOLLOWS)),
    "group-order": (RuledOut(id="weak-reward", why="the rewards may be telling: they do not reach their completions"),),
}


def _normaliser(settings: Settings) -> AdvantageSpec | None:
    """The run's normaliser; None where it is not known, or where more than it makes the advantages."""
    names = ("transform", "baseline", "scale_rewards", "ddof", "eps", "std_floor")
    known = {name: getattr(settings, name) for name in names}
    followed = settings.weighting == "rows" and not settings.ranks_break_ties
    if None in known.values() or settings.reshaped is not False or not followed:
        return None
    used = {"unknown" if traits is None else traits.scope for traits in _traits(settings)}
    if used & {"unknown", "history"}:
        return None
    # Under a baseline and a scale of the group, one that is left out is dead, and its advantages are 0 in either case.
    baseline = settings.baseline_traits
    own = baseline is not None and baseline.scope == "group" and "batch" not in used
    if settings.dynamic_sampling and not own:
        return None
    return AdvantageSpec.model_validate({**known, "clip": settings.advantage_clip})


def _traits(settings: Settings) -> tuple[BaselineTraits | None, ScaleTraits | None]:
    return settings.baseline_traits, settings.scale_traits


def _not_own(steps: Sequence[Step], how: AdvantageSpec) -> list[Step]:
    """The steps whose advantages are not those of their rewards, up to float32's rounding."""
    expected = _of_all(steps, how)
    odd = [(step, own) for step, own in zip(steps, expected, strict=True) if not _equal(step, own, [0.0] * len(own))]
    return [step for step, own in odd if not _equal(step, own, _rounding(step, how))]


def _of_all(steps: Sequence[Step], how: AdvantageSpec) -> list[list[float]]:
    """`recomputed` for each step; at once where no group depends on another one."""
    if "batch" in scopes(how) or not steps:
        return [recomputed(step.rewards, step.groups, how) for step in steps]
    ends = list(accumulate(len(step.rewards) for step in steps))
    starts = [0, *ends[:-1]]
    groups = [
        [start + place for place in group] for step, start in zip(steps, starts, strict=True) for group in step.groups
    ]
    together = recomputed([reward for step in steps for reward in step.rewards], groups, how)
    return [together[start:end] for start, end in zip(starts, ends, strict=True)]


def _gives(explanation: _Explanation, step: Step, how: AdvantageSpec) -> bool:
    """Whether they are what the explanation makes of them; in its groups any deviation may be tiny."""
    return _equal(step, explanation.gives(step, how), [_slack(step.rewards, 0.0, how)] * len(step.rewards))


def _rounding(step: Step, how: AdvantageSpec) -> list[float]:
    """What rounding can make of each completion's advantage, in its own group."""
    errors = [0.0] * len(step.rewards)
    for group in step.groups:
        known = [reward for place in group if (reward := step.rewards[place]) is not None]
        slack = _slack(known, pstdev(known), how) if known else 0.0
        for place in group:
            errors[place] = slack
    return errors


def _slack(rewards: Sequence[float | None], std: float, how: AdvantageSpec) -> float:
    """The rounding of such rewards over such a std; bounded, since without eps equal rewards may have any size."""
    rounding = SAME * max(abs(reward) for reward in rewards if reward is not None)
    scale = SCALES[how.scale_rewards]
    if scale.scope == "none":
        return rounding
    unit = max(std if scale.standard else 0.0, how.std_floor) + how.eps  # another divisor may be far below the std
    return min(TINY, rounding / unit) if unit > 0 else TINY


def _equal(step: Step, expected: Sequence[float], slack: Sequence[float]) -> bool:
    return all(
        abs(a - b) <= SAME * max(1.0, abs(b)) + more for a, b, more in zip(step.recorded, expected, slack, strict=True)
    )


FIRST = 8  # steps whose reward is compared with the evaluation before them
LEAST = 4
COURSE = 3  # evaluations that fall while the reward that is paid rises
NEAR, APART = 3.0, 6.0  # standard errors
STEADY = 5.0  # standard errors of a slope
LOST = 0.1  # of the reward's own standard deviation inside a step, at least: less matters to nobody


_MINUS_THE_REWARD = tuple(
    RuledOut(id=cause, why="what rises is minus the reward") for cause in ("reward-hacking", "overfitting")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardPair:
    """An evaluation and the training reward of the steps next to it; `se`: of their sum, or their difference."""

    step: int
    evaluated: float
    paid: float
    se: float
    steps: int

    @property
    def mirrored(self) -> bool:
        """Whether one is minus the other, and they are not equal."""
        near, apart = abs(self.paid + self.evaluated), abs(self.paid - self.evaluated)
        return self.paid * self.evaluated < 0 and near <= NEAR * self.se and apart >= APART * self.se


def reward_sign(case: Case) -> Sequence[Finding]:
    """An error where evaluations fall along minus the reward that is paid; a warning where they only begin mirrored,
    or the reward falls steadily.

    By the curves alone; `advantage_mismatch` says it surely. Three pictures. Evaluations fall along minus what training
    pays, while that rises: a sign was flipped on the way to the trainer. The first steps are paid minus what the
    evaluation before them paid: perhaps, since prompts can differ so. Or the training reward falls steadily while the
    policy moves away from its start, soundly: it follows its gradient the wrong way.

    ## reward-sign

    Severity: error (certain) by the samples' advantages, (moderate) by curves alone; warning (moderate or weak) by
    curves that say less.

    Means: the policy is taught to earn less: a sign is flipped between the reward function and the loss.

    Looks at: the advantages computed again from the samples (`advantage-mismatch`): minus the recomputed ones on every
    step. By curves alone, one of three patterns:

    - Error (moderate): three or more evaluations, each minus what the steps around it were paid (3 standard errors),
      fall while that rises.
    - Warning (moderate): the first steps are paid minus what the evaluation before them was (within 3 standard errors,
      and 6 from being equal), with no update between.
    - Warning (weak): the training reward falls (slope below -5 standard errors, widened by sqrt((1 + rho) / (1 - rho))
      for the lag-1 correlation of its residuals) while the KL grows, the sampler is sound, evaluations do not rise, the
      learning rate did not break the policy and no guard's limit was broken for good.

    Confounder: training prompts that are harder than those of evaluation (second pattern), and prompts that get harder
    during the run (third pattern) look the same.

    Do: look for a minus between the reward function and the trainer: of the reward, of the advantage, or of the loss. A
    loss is no reward. Score an answer that is known to be good and a bad one.

    Measured: 10 of 10 planted faults; TRL runs with negated advantages as under `group-order`. False alarms of the
    third pattern on rewards that wander (1,000 simulated runs of 60 steps each, AR(1) with rho 0.8 and 0.9): 1 and 2.
    """
    return _course(case) or _mirrored(case) or _falling(case)


def _course(case: Case) -> Sequence[Finding]:
    """Several evaluations, minus what the steps around each were paid, and the two move apart."""
    line = trend(series(case.stage_rows, "reward/mean"))
    if case.averaged_over > 1 or line is None or line.z < STEADY:
        return ()
    evaluated = [row for row in case.rows if number(row, "eval/reward") is not None]
    trained = sorted(case.stage_rows, key=_step)
    points = [point for row in evaluated if (point := _around(trained, row)) is not None]
    if len(points) < max(COURSE, len(evaluated) - 1) or _slope_z(points) > -NEAR:
        return ()
    first, last = points[0], points[-1]
    whole = RewardPair(
        step=last.step,
        evaluated=fmean(point.evaluated for point in points),
        paid=fmean(point.paid for point in points),
        se=math.hypot(*(point.se for point in points)) / len(points),
        steps=sum(point.steps for point in points),
    )
    if not whole.mirrored or any(abs(point.paid + point.evaluated) > NEAR * point.se for point in points):
        return ()
    text = (
        f"{len(points)} evaluations fell from {first.evaluated:.3g} to {last.evaluated:.3g} while the steps around "
        f"them were paid {first.paid:.3g} to {last.paid:.3g}: minus the reward is what is learned from"
    )
    evidence = {"evaluations": float(len(points)), "paid_z": told_z(line.z), "evaluated_z": told_z(_slope_z(points))}
    return (_flipped(text, evidence | {"paid": whole.paid, "evaluated": whole.evaluated}, "error"),)


def _slope_z(points: Sequence[RewardPair]) -> float:
    """The slope of the evaluations over steps, in standard errors as each evaluation has its own."""
    mean = fmean(point.step for point in points)
    spread = math.fsum((point.step - mean) ** 2 for point in points)
    rise = math.fsum((point.step - mean) * point.evaluated for point in points)
    se = fmean(point.se for point in points) * math.sqrt(spread)
    return rise / se if se > 0 else 0.0


def _around(trained: Sequence[Row], row: Row) -> RewardPair | None:
    """The evaluation beside the steps next to it, on either side; None where there are too few. trained: by step."""
    step = _step(row)
    begin, end = bisect_left(trained, step - FIRST, key=_step), bisect_right(trained, step + FIRST, key=_step)
    near = sorted(trained[begin:end], key=lambda other: abs(_step(other) - step - 0.5))
    return _reward_pair(row, near[:FIRST])


def _step(row: Row) -> float:
    return row.get("step") or 0.0


def _reward_pair(row: Row, steps: Sequence[Row]) -> RewardPair | None:
    paid = [value for step in steps if (value := number(step, "reward/mean")) is not None]
    evaluated, own_se = number(row, "eval/reward"), number(row, "eval/reward_se") or 0.0
    if evaluated is None or len(paid) < LEAST:
        return None
    se = math.hypot(stdev(paid) / math.sqrt(len(paid)), own_se)
    return RewardPair(step=int(row.get("step") or 0), evaluated=evaluated, paid=fmean(paid), se=se, steps=len(paid))


def _mirrored(case: Case) -> Sequence[Finding]:
    """The first steps against the evaluation before them, with no update between: the same policy."""
    start = next((row for row in case.rows if number(row, "eval/reward") is not None), None)
    steps = case.stage_rows[:FIRST]
    if start is None or (start.get("step") or 0) > 0 or not steps:
        return ()
    if any(acted(row) for row in case.steps if (row["step"] or 0) < (steps[0]["step"] or 0)):
        return ()
    pair = _reward_pair(start, steps)
    if pair is None or not pair.mirrored:
        return ()
    text = (
        f"the first {pair.steps} steps were paid {pair.paid:.3g} on average and the evaluation before them "
        f"{pair.evaluated:.3g}: minus its reward, or prompts that differ so much"
    )
    near = (pair.paid + pair.evaluated) / pair.se if pair.se else 0.0
    evidence = {"paid": pair.paid, "evaluated": pair.evaluated, "se": pair.se, "sum_in_se": near}
    return (_flipped(text, evidence, "warning"),)


def _flipped(text: str, evidence: dict[str, float], severity: Severity) -> Finding:
    return Finding(
        id="reward-sign",
        severity=severity,
        summary=text,
        evidence=evidence,
        rules_out=_MINUS_THE_REWARD if severity == "error" else (),
        advice="look for a minus between the reward function and the trainer; a loss is no reward",
        confidence="moderate",
        decider=Decider(question="does a completion known to be good earn more than a bad one?"),
    )


def _falling(case: Case) -> Sequence[Finding]:
    """Silent where something else makes rewards fall: an unsound sampler, a rate that breaks the policy, a limit that
    was broken for good, prompts that get harder while evaluations rise.
    """
    rows = [row for row in case.stage_rows if number(row, "reward/mean") is not None]
    dtype, limit = case.settings.dtype, case.guards.max_logprob_gap
    if len(rows) < 4 * LEAST or worst_integrity(case.rows, dtype=dtype, override=limit) or case.once(too_large):
        return ()
    if case.once(breaks) or _rises([value for _, value in series(case.rows, "eval/reward")]):
        return ()
    points = [(row["step"] or 0.0, number(row, "reward/mean") or 0.0) for row in rows]
    line = trend(points)
    spread = fmean(values_of(rows, "reward/std") or [0.0])
    lost = -(line.slope * (points[-1][0] - points[0][0])) if line is not None else 0.0
    kls = [(row["step"] or 0.0, value) for row in rows if (value := number(row, "kl")) is not None]
    away = rank_correlation(*zip(*kls, strict=True)) if len(kls) > LEAST else 0.0
    z = line.z / _too_narrow(points, line.slope) if line is not None else 0.0
    if line is None or z > -STEADY or lost <= LOST * spread or away < 0.5:
        return ()
    return (
        Finding(
            id="reward-sign",
            severity="warning",
            summary=(
                f"the training reward falls steadily, by {lost:.3g} over {len(points)} steps "
                f"(z = {max(z, -99.0):.1f}), while the KL grows (rank correlation {away:.2f}): the policy learns in "
                "the wrong direction, or prompts get harder"
            ),
            evidence={
                "slope": line.slope,
                "z": told_z(z),
                "p": chance_beyond(z),
                "lost": lost,
                "kl_correlation": away,
            },
            advice="look for a flipped sign: of the reward, of the advantage, or of the loss",
            confidence="weak",
            decider=Decider(question="does the reward rise with the sign of the rewards turned round?"),
        ),
    )


def _rises(evaluations: Sequence[float]) -> bool:
    """Whether the later half of them is the better one."""
    half = len(evaluations) // 2
    return half > 0 and fmean(evaluations[-half:]) > fmean(evaluations[:half])


def _too_narrow(points: Sequence[tuple[float, float]], slope: float) -> float:
    """How many times too small a slope's standard error is, its points not being independent of their neighbours.

    sqrt((1 + rho) / (1 - rho)) of the lag-1 correlation of what the line leaves, which n points and a fitted line make
    too small by (2 + 4 rho) / n (Kendall 1954, with the slope's part); at least 1.
    """
    mean_x, mean_y, n = fmean(x for x, _ in points), fmean(y for _, y in points), len(points)
    residuals = [y - mean_y - slope * (x - mean_x) for x, y in points]
    spread = math.fsum(residual * residual for residual in residuals)
    rho = math.fsum(a * b for a, b in pairwise(residuals)) / spread if spread > 0 else 0.0
    rho = min(max(rho + (2 + 4 * rho) / n, 0.0), 0.98)
    return math.sqrt((1 + rho) / (1 - rho))
