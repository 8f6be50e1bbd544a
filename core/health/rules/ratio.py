"""The importance ratio: clips that never act, an "old" policy that never moves, exploding ratios, a rising loss.

core.health.before.inert says the first before a run, by its spec; here the log says it. Not here: a ratio that is off 1
although each rollout is learned from once (the sampler's fault, core.health.rules.integrity).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, stdev

from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut
from core.health.statistics import Trend, chance_above, series, shown_p, thirds, trend
from core.health.steps import number

ENOUGH = 10  # steps with an update
NEAR_ONE = 1e-3  # float32 rounds a ratio to 1 +- 3e-6, bfloat16 to 1 +- 0.3 at its worst token
FAR_FROM_ONE = 1.5  # bfloat16 moves a ratio of 1 by 0.3 at its worst token
ROUNDED = 0.1  # a bound on the ratio below this clips what bfloat16 rounds
CHANCE_CLIPS = 0.01  # of the tokens: as many are clipped by rounding
MUCH, MOST, FEWEST = 0.3, 0.4, 2  # of the tokens, on each row and on half of them; and rows
FAULT = 0.1  # nats a token between recorded and clean log-probs: beyond what bfloat16 rounds
EXPLODED = 10.0  # the largest ratio of a step; four updates a rollout give 1.9 at most in sound runs of ours
SIGNIFICANT = 1e-3
BOUNDLESS = ("reinforce", "sapo", "cispo")  # surrogates that do not clip a ratio from both sides


def inert_live(case: Case) -> Sequence[Finding]:
    """What never clips, what clips before anything is learned, an old policy that never moves, ratios that explode."""
    findings = (_never_clips(case), _clips_at_once(case) or _clips_most(case), _frozen_old(case), _explodes(case))
    return [finding for finding in findings if finding is not None]


def old_is_sampler(case: Case) -> bool:
    """False where the settings say that the ratio is over another policy's log-probs than the sampler's."""
    return not case.settings.old_is_reference and case.settings.old_policy in (None, "sampler")


def _clipped(case: Case) -> list[float]:
    """The share of clipped tokens of each step: of both sides, of the one that a log has, or as a trainer sums them."""
    shares = []
    for row in case.stage_rows:
        sides = [value for name in ("policy/clip_low", "policy/clip_high") if (value := number(row, name)) is not None]
        both = number(row, "policy/clip_share")
        if sides or both is not None:
            shares.append(sum(sides) if sides else both or 0.0)
    return shares


def _ratios(case: Case) -> list[tuple[float, float]]:
    return series(case.stage_rows, "policy/ratio_max")


def _never_clips(case: Case) -> Finding | None:
    """An info: it is no fault, but whoever sweeps epsilon sweeps nothing.

    ## inert-clip

    Severity: info (certain by construction, else strong).

    Means: not one token was clipped on any step, so epsilon and the surrogate change nothing: each rollout is learned
    from once, or the largest ratio stayed within 0.001 of 1.

    Looks at: `policy/clip_low` and `policy/clip_high`, else `policy/clip_share`, on ten steps with an update or more,
    `policy/ratio_max`, and the updates per rollout.

    Confounder: a surrogate that does not clip the ratio from both sides (`reinforce`, `sapo`, `cispo`); ratios beyond
    the bound where no advantage pushes further, as in dead groups: then nothing is said.

    Do: nothing is wrong. Do not sweep epsilon; `num_iterations=2` makes it act.

    Measured: `grpoctl run p31 --profile tiny`: 0 on 71 of 71 updates, the ratio within 4e-6 of 1; with
    `num_iterations=4` (seeds 100, 101): 0.5 % and 0.6 % of the tokens, ratios up to 1.9 and 2.4.
    """
    shares = _clipped(case)
    if len(shares) < ENOUGH or any(shares) or case.settings.surrogate in BOUNDLESS:
        return None
    furthest = max((abs(value - 1.0) for _, value in _ratios(case)), default=None)
    learned_once = case.settings.updates_per_rollout == 1 and old_is_sampler(case)
    built_in = learned_once or (furthest is not None and furthest < NEAR_ONE)
    if not built_in and furthest is not None and furthest > (case.settings.epsilon or furthest):
        return None  # ratios beyond the bound, of groups without an advantage that a clip could act on
    evidence: dict[str, float | str] = {"steps": len(shares), "clipped": 0.0}
    if furthest is not None:
        evidence["ratio_furthest_from_1"] = furthest
    if case.settings.epsilon is not None:
        evidence["epsilon"] = case.settings.epsilon
    why = "each rollout is learned from once, so old and new log-probs are equal and the ratio is 1"
    if not built_in:
        far = "" if furthest is None else f": the ratio is within {furthest:.2g} of 1"
        why = f"no ratio reached the bound{far}"
    return Finding(
        id="inert-clip",
        severity="info",
        summary=(
            f"not one {case.settings.factor or 'token'} was clipped in {len(shares)} steps"
            f"{' by construction' if built_in else ''}: {why}"
        ),
        evidence=evidence,
        rules_out=_no_trust_region(built_in),
        advice="epsilon and the surrogate change nothing here; nothing is wrong with that; do not sweep it",
        confidence="certain" if built_in else "strong",
        decider=Decider(
            question="does epsilon change anything once a rollout is learned from twice?",
            overrides=("num_iterations=2",),
            expects=("policy/clip_high > 0",),
        ),
    )


def _no_trust_region(built_in: bool) -> tuple[RuledOut, ...]:
    if not built_in:
        return ()
    return (RuledOut(id="clip-range", why="a clip that never acts neither stabilises a run nor holds it back"),)


def _clips_at_once(case: Case) -> Finding | None:
    """A warning where the first update already clips, or has a ratio far from 1: its old policy is not the sampler.

    ## first-step-clip

    Severity: warning (strong where the settings name another old policy or a dropout; moderate where they name none;
    weak where only a large clipped share of all rows says it).

    Means: at a run's first update nothing has been learned, so old and new log-probs are of the same weights and the
    ratio is 1. Where it is not, the "old" log-probs are not those of the policy that drew the samples and is updated: a
    reference that an earlier stage has left behind, an earlier checkpoint, log-probs taken without the update's
    dropout, or a sampler at fault. The clip then cuts off what had nothing to do with this update.

    Looks at: `policy/clip_low` and `policy/clip_high` (more than 1 % of the tokens) or `policy/ratio_max` (above 1.5)
    of the stage's first row with an update, where each rollout is learned from once; `old_policy`, `old_is_reference`,
    `lora_dropout` and `update_dropout` for the cause. Or, whatever a row stands for, two rows or more of which each has
    30 % of its tokens clipped (`policy/clip_share`, or both sides), half of them 40 %.

    Confounder: several updates per rollout, whose later ones move the ratio: silent, also where their number is unknown
    or a row stands for several steps. bfloat16 moves the ratio of its worst token by 0.3, which a bound below 0.1
    clips: silent there. A fresh adapter's dropout has nothing to drop before the first update. A sampler's fault has a
    finding of its own, `rollout-integrity`, and this one is silent where the recorded log-probs are known to be off.

    Do: `old_policy=sampler`; `old_policy=start_of_epoch` on stored groups; no dropout in updates.
    """
    known = case.settings
    first = next((row for row in case.stage_rows if row.get("update") != 0 and row.get("learning_rate") != 0), None)
    if first is None or known.updates_per_rollout != 1 or case.averaged_over > 1 or known.surrogate == "reinforce":
        return None
    sides = [value for name in ("policy/clip_low", "policy/clip_high") if (value := number(first, name)) is not None]
    share, largest = sum(sides), number(first, "policy/ratio_max")
    tight = known.epsilon is not None and known.epsilon < ROUNDED
    if (share <= CHANCE_CLIPS or tight) and (largest is None or largest <= FAR_FROM_ONE):
        return None
    dropout = known.lora_dropout or known.update_dropout
    same = old_is_sampler(case) or known.old_policy == "start_of_epoch"  # with whose weights the first epoch begins
    causes = [] if same else ["by the settings the old log-probs are another policy's"]
    causes += [f"a dropout of {dropout:g} acts in the new ones only"] if dropout else []
    if not causes and (number(first, "rollout/logprob_gap") or 0.0) > FAULT:
        return None  # core.health.rules.integrity
    why = " and ".join(causes) or (
        "the old log-probs are of a reference, of an earlier checkpoint or without the update's dropout, or the "
        "sampler is at fault"
    )
    evidence: dict[str, float | str] = {"step": float(first.get("step") or 0)}
    evidence |= {"clipped": share} if sides else {}
    evidence |= {"ratio_max": largest} if largest is not None else {}
    evidence |= {"dropout": dropout} if dropout else {}
    clips = f"{share:.1%} of the tokens are clipped" if share else f"the largest ratio is {largest:.3g}"
    suggest = [] if same else ["old_policy=start_of_epoch" if known.offline else "old_policy=sampler"]
    suggest += ["model.lora.lora_dropout=0"] if known.lora_dropout else []
    of_policy = dropout is not None and dropout > 0 and not known.lora_dropout  # its settings have names of their own
    also = "; the policy's own dropout has to be 0 for that, too" if of_policy else ""
    return Finding(
        id="first-step-clip",
        severity="warning",
        summary=(f"{clips} at the first update, where nothing is learned yet and the ratio should be 1: {why}"),
        evidence=evidence,
        suggest=tuple(suggest),
        advice=f"a ratio is of the policy that is updated over that which drew the samples, in the same mode{also}",
        confidence="strong" if causes else "moderate",
        decider=None
        if of_policy
        else Decider(
            question="is the ratio 1 at the first update once the old log-probs are of the same weights and mode?",
            overrides=tuple(suggest),
            expects=(f"policy/ratio_max < {FAR_FROM_ONE:g}",) if suggest else (),
        ),
    )


def _clips_most(case: Case) -> Finding | None:
    """A warning where a third of the tokens and more are clipped on all rows, the first as well as the last."""
    rows = case.stage_rows
    shares = [value for _, value in series(rows, "policy/clip_share")] or _clipped(case)
    epsilon = case.settings.epsilon
    if case.settings.old_is_reference:
        return None  # frozen-old-policy says why
    if len(shares) < FEWEST or min(shares) < MUCH or median(shares) < MOST or (epsilon or ROUNDED) < ROUNDED:
        return None
    return Finding(
        id="first-step-clip",
        severity="warning",
        summary=(
            f"{median(shares):.0%} of the {case.settings.factor or 'token'}s are clipped, on the first row "
            f"{shares[0]:.0%} ({len(shares)} rows): "
            "either the ratio is not 1 where a rollout's updates begin, so its old log-probs are of another policy, "
            "temperature or mask, or the updates are far too large"
        ),
        evidence={"clipped": median(shares), "first": shares[0], "least": min(shares), "rows": len(shares)},
        advice="log the ratio of the first update of a rollout: it has to be 1; if it is, a tenth of the learning rate",
        confidence="weak",
        decider=Decider(question="is the ratio 1 at the first update of a rollout?"),
    )


def _frozen_old(case: Case) -> Finding | None:
    """The ratio to a policy that never moves: it measures the way from the reference, and grows with it.

    ## frozen-old-policy

    Severity: info; warning (certain) where the largest ratio or the clipped share grows (p < 0.001).

    Means: the "old" log-probs are the reference's for the whole run, so the clip and the KL pull at the same thing.

    Looks at: the setting (`--set old_is_reference=true`), `policy/ratio_max` and the clipped share over steps.

    Confounder: offline data, where no other old policy exists; the finding then says so.

    Do: record the log-probs of the policy that drew the samples, and draw anew; or keep one of clip and KL.
    """
    known = case.settings
    if not known.old_is_reference:
        return None
    grows = _growth(case)
    offline = " to samples that were drawn in advance" if known.offline else ""
    text = "" if grows is None else f"; {grows[0]} ({shown_p(grows[1])})"
    p = {} if grows is None else {"p": grows[1]}
    return Finding(
        id="frozen-old-policy",
        severity="info" if grows is None else "warning",
        summary=(
            f'the "old" log-probs are the reference\'s for the whole run: the importance ratio{offline} is the one to '
            f"the reference, so the clip and the KL pull at the same thing{text}"
        ),
        evidence={"old_is_reference": 1, "offline": float(bool(known.offline)), **p},
        advice="record the log-probs of the policy that drew the samples, and draw anew; or keep one of clip and KL",
        confidence="certain",
    )  # fmt: skip


def _growth(case: Case) -> tuple[str, float] | None:
    """What grows with the distance from the old policy, and its p; None where nothing does, or it is unknown."""
    clipped = [(float(place), value) for place, value in enumerate(_clipped(case))]
    for name, points in (("the largest ratio", _ratios(case)), ("the clipped share", clipped)):
        line = trend(points)
        if line is not None and line.slope > 0 and (p := chance_above(line.z)) < SIGNIFICANT:
            return f"{name} grows from {points[0][1]:.3g} to {points[-1][1]:.3g}", p
    return None


def _explodes(case: Case) -> Finding | None:
    """A warning where a token's importance ratio exceeded EXPLODED on 5 % of the steps or more.

    ## ratio-explosion

    Severity: warning (moderate).

    Means: a token's importance ratio was above 10 on 5 % of the steps, where a rollout is learned from more than once:
    its last updates learn from a policy that is far away.

    Looks at: `policy/ratio_max`.

    Confounder: a ratio off 1 although the rollout is learned from once is the sampler's fault (`rollout-integrity`).

    Do: `num_iterations=1`, fewer updates a rollout, or a smaller learning rate; a clip bounds the objective and not the
    ratio.
    """
    points = _ratios(case)
    if case.settings.updates_per_rollout == 1 or not old_is_sampler(case):
        return None
    far = [(int(step), value) for step, value in points if value > EXPLODED]
    if len(points) < ENOUGH or len(far) < 0.05 * len(points):
        return None
    step, largest = max(far, key=lambda point: point[1])
    return Finding(
        id="ratio-explosion",
        severity="warning",
        summary=(
            f"the importance ratio of a {case.settings.factor or 'token'} exceeded {EXPLODED:g} on {len(far)} of "
            f"{len(points)} steps (largest {largest:.3g} at step {step}): the last updates of a rollout learn from a "
            "policy that is far away"
        ),
        evidence={"steps": len(points), "beyond": len(far), "limit": EXPLODED, "largest": largest, "at_step": step},
        suggest=("num_iterations=1",),
        advice="fewer updates a rollout, or a smaller learning rate; a clip bounds the objective and not the ratio",
        confidence="moderate",
        decider=Decider(
            question="is it the number of updates per rollout?",
            overrides=("num_iterations=1",),
            expects=("policy/ratio_max < 1.01",),
        ),
    )


LOSS_STEPS = 20  # steps
AGAINST = 0.01  # a policy loss at the end: of advantages about 1 less is nothing, and below 0 it is with them
RISEN = 1.0  # standard deviations around its line that it must have risen by, over the run
ABOUT_ONE = 0.01


def policy_loss(case: Case) -> Sequence[Finding]:
    """A warning where the policy's loss rises (p < 0.001); an info at a ratio of 1, where that means nothing.

    At a ratio of 1 the loss is minus the mean advantage: 0 where advantages are centred, whatever is learned.

    ## policy-loss

    Severity: warning (weak); info (certain) at a ratio of 1.

    Means: the policy's loss rises over the run. The value is a poor measure: at a ratio of 1 it is minus the mean
    advantage and says nothing of learning. Document 003's guide takes a rise for trouble (see the
    [glossary](glossary.md#documents)) and suggests the rate x 0.4, `max_grad_norm` and `epsilon` halved.

    Looks at: `policy/loss` over 20 steps or more: trend p < 0.001, risen by one standard deviation around its line, and
    0.01 or more in the last third (advantages are about 1): one that is below 0, or 0 but for rounding, is no trouble.

    Confounder: a ratio of 1 (one update per rollout): the rise is then noise of the mean advantage.

    Do: look at the reward and at `eval/reward`. Of the guide's changes the rate is the likeliest; under Adam a tighter
    norm changes little; epsilon acts only after a first update on a rollout.
    """
    points = series(case.stage_rows, "policy/loss")
    if len(points) < LOSS_STEPS or (line := trend(points)) is None or line.slope <= 0:
        return ()
    p, rise = chance_above(line.z), line.slope * (points[-1][0] - points[0][0])
    left = [value - line.slope * step for step, value in points]
    late = thirds([value for _, value in points])[1]
    if p >= SIGNIFICANT or rise < RISEN * stdev(left) or late < AGAINST:
        return ()
    return (_finding(case, points, line, p),)


def _at_ratio_one(case: Case) -> bool:
    ratios = [value for _, value in series(case.stage_rows, "policy/ratio_max")]
    if ratios:
        return max(abs(value - 1.0) for value in ratios) < ABOUT_ONE
    return case.settings.updates_per_rollout == 1 and old_is_sampler(case)


def _finding(case: Case, points: Sequence[tuple[float, float]], line: Trend, p: float) -> Finding:
    early, late = thirds([value for _, value in points])
    evidence = {"early": early, "late": late, "slope": line.slope, "se": line.se, "p": p, "steps": len(points)}
    text = f"the policy's loss rose from {early:.3g} to {late:.3g} over {len(points)} steps ({shown_p(p)})"
    if _at_ratio_one(case):
        why = "old and new log-probs are equal, so its value is minus the mean advantage, whatever is learned"
        return Finding(
            id="policy-loss",
            severity="info",
            summary=f"{text}, which is not informative: {why}",
            evidence=evidence,
            rules_out=(RuledOut(id="policy-loss-rising", why=why),),
            advice="look at the reward and at eval/reward instead",
            confidence="certain",
        )
    rate, norm = case.settings.learning_rate, case.settings.max_grad_norm
    suggest = [] if rate is None else [f"learning_rate={0.4 * rate:.1g}"]
    suggest += [f"max_grad_norm={0.5 * (norm or 1.0):g}", f"epsilon={0.5 * (case.settings.epsilon or 0.2):g}"]
    return Finding(
        id="policy-loss",
        severity="warning",
        summary=f"{text}: later updates push against its advantages, or its ratio is not what it should be",
        evidence=evidence,
        suggest=tuple(suggest),
        advice=(
            "in this order: the rate is the likeliest; a tighter max_grad_norm changes little under Adam, which "
            "divides by the gradient's own size; a tighter epsilon acts only after a first update on a rollout"
        ),
        confidence="weak",
        decider=Decider(
            question="does the reward rise where the loss does not?",
            overrides=tuple(suggest[:1]),
            expects=("policy/loss < 0.01",),
        ),
    )
