"""Training against held-out prompts: no evaluation, a missed early stop, overfitting, reward hacking, leaks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Final

from core.health.case import Case
from core.health.finding import Confidence, Decider, Finding, Row, RuledOut, StepTable
from core.health.rules.gains import Evaluation, evaluations
from core.health.rules.learning_rate import sampler_at_fault
from core.health.statistics import chance_above, series, shown_p, thirds, trend
from core.health.steps import ends_of, number, solved, values_of

LONG_RUN = 50  # steps: a shorter run may be a trial


def no_validation(case: Case) -> Sequence[Finding]:
    """An info where more than LONG_RUN steps were trained and no row has an evaluation.

    ## no-validation

    Severity: info (certain).

    Means: more than 50 steps and not one evaluation. P30's log is such a run.

    Looks at: whether any row has an `eval/` metric.

    Confounder: evaluations that were made and logged elsewhere.

    Do: keep prompts apart from training and evaluate on them every so many steps (`evaluation.eval_steps`).
    """
    rows = case.steps
    steps = len(rows) * case.averaged_over
    if steps <= LONG_RUN or any(name.startswith("eval/") for row in case.rows for name in row):
        return ()
    return (
        Finding(
            id="no-validation",
            severity="info",
            summary=(
                f"{steps} steps and no evaluation: whether anything was learned beyond the training prompts, and which "
                "checkpoint is the best, cannot be said"
            ),
            evidence={"steps": steps},
            suggest=("evaluation.eval_steps=10",),
            advice="keep prompts apart from training and evaluate on them every so many steps",
            confidence="certain",
        ),
    )


LEAST: Final = 3  # evaluations without a better one: a shorter patience is luck, known afterwards
WORTH = 0.2  # of the steps: less saved is not worth a word


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyStop:
    """Where a patience would have ended a run that kept its best evaluation."""

    patience: int
    best_step: int
    best: float
    stop_step: int
    last_step: int


def shortest_patience(rewards: Sequence[float]) -> int:
    """The least patience, at least LEAST, with which early stopping reaches the best of these evaluations."""
    best_index = rewards.index(max(rewards))
    waited, best = 0, rewards[0]
    longest = 0
    for reward in rewards[1 : best_index + 1]:
        waited, best = (0, reward) if reward > best else (waited + 1, best)
        longest = max(longest, waited)
    return max(LEAST, longest + 1)


def early_stop(table: StepTable) -> EarlyStop | None:
    """The stop that keeps the best evaluation of a table; None where it comes after the last one, or all are equal."""
    points = series(table, "eval/reward")
    rewards = [reward for _, reward in points]
    if not rewards or max(rewards) == min(rewards):
        return None
    best_index, patience = rewards.index(max(rewards)), shortest_patience(rewards)
    if best_index + patience >= len(points):
        return None
    return EarlyStop(
        patience=patience,
        best_step=int(points[best_index][0]),
        best=rewards[best_index],
        stop_step=int(points[best_index + patience][0]),
        last_step=max(int(row.get("step") or 0) for row in table),
    )


def missed_stop(case: Case) -> Sequence[Finding]:
    """An info where at least a fifth of the steps came after an early stop that loses nothing on eval/reward.

    ## missed-stop

    Severity: info (certain).

    Means: an early stop would have kept the best evaluation and saved a fifth of the steps or more.

    Looks at: the evaluations of the run. Evidence: `best_step`, `stop_step`, `steps_saved`, `completions_saved`.

    Confounder: hindsight. The patience is known afterwards: it says what the steps cost, and is no law.

    Do: the suggested `early_stopping.patience` is the shortest, and at least 3, with which the stop comes after the
    best evaluation; none is suggested where the best evaluation is the one before training.
    """
    stop = early_stop(case.rows)
    if stop is None or (saved := stop.last_step - stop.stop_step) < WORTH * stop.last_step:
        return ()
    evidence: dict[str, float | str] = {
        "best_step": stop.best_step, "best": stop.best, "patience": stop.patience, "stop_step": stop.stop_step,
        "last_step": stop.last_step, "steps_saved": saved, "share_saved": saved / stop.last_step,
    }  # fmt: skip
    completions = _completions(case.rows, stop.stop_step)
    if completions is not None:
        evidence["completions_saved"] = completions
    return (
        Finding(
            id="missed-stop",
            severity="info",
            summary=(
                f"no evaluation after step {stop.best_step} was better than {stop.best:.3g}: a patience of "
                f"{stop.patience} would have stopped at step {stop.stop_step} of {stop.last_step} and saved "
                f"{saved / stop.last_step:.0%} of the steps"
                + ("" if completions is None else f", {completions:,} completions")
            ),
            evidence=evidence,
            suggest=(f"early_stopping.patience={stop.patience}",) if stop.best_step > 0 else (),
            advice=""
            if stop.best_step > 0
            else "the best is the untrained model: there is nothing to stop at and keep",
            confidence="certain",
        ),
    )


def _completions(table: StepTable, stop_step: int) -> int | None:
    """Completions sampled after the step, where the table counts them."""
    counted = [(row.get("step") or 0, count) for row in table if (count := row.get("completions")) is not None]
    before = [count for step, count in counted if step <= stop_step]
    return int(max(count for _, count in counted) - max(before)) if before else None


SIGNIFICANT = 1e-3


def overfitting(case: Case) -> Sequence[Finding]:
    """A warning where, from the best evaluation on, eval/reward falls and reward/mean rises, both with p < 0.001.

    The fall is the last third of the evaluations against the best, and goes on. The best was chosen among M, which
    alone puts it above the others, so its p is taken M times. The rise is a regression on the steps after it.

    ## overfitting

    Severity: warning (moderate; weak with fewer than eight evaluations whose error is not known); info (weak) where
    evaluations only stand, warning (weak) where they stand at 0 far below what training pays.

    Means: from the best evaluation on, `eval/reward` falls while `reward/mean` rises: what is learned holds for the
    training prompts only.

    Looks at: both trends, each with p < 0.001. The fall: the last evaluation and the mean of the last third against the
    best, the later half since being the worse one; p times the number of evaluations (the best was chosen). Its
    standard error is that of two evaluations, or the standard deviation of the steps from one evaluation to the next
    since the best, where that is larger: weights wander between evaluations, and an evaluation's own error knows
    nothing of it. The rise: a regression of `reward/mean` on the steps after the best evaluation.
    Where no error of an evaluation is known: eight evaluations or more with a falling trend (p < 0.001), or three or
    more, each below the one before, or three and more all below 0.7 of two and more before, by 15 % and 0.04 in all,
    while the training reward rose by a tenth. And an info where eight evaluations or more stand (no trend of two
    standard errors, 0.02 and 5 % at most from the first third to the last) while `rewards/accuracy`, else
    `reward/mean`, rises by a tenth and four standard errors, or 90 % of the training answers are right and 0.25 fewer
    of the held-out ones; a warning (weak) where held-out rewards stand at 0.02 at most and the training reward ends 0.5
    above them.

    Confounder: a reward that is gamed on the training prompts looks the same. So does minus the reward, which rises
    while the policy earns less on every prompt: `reward-sign` rules this out.

    Do: keep the checkpoint of the best evaluation; train on more prompts or for fewer passes; read samples of the last
    steps. `early_stopping.patience` is suggested unless the best evaluation is the one before training.

    Measured: false alarms in 1 of 500 simulated runs whose `reward/mean` rises by 0.3 in 200 steps and whose 21
    evaluations are all equal but for noise; in 11 of 200 whose evaluations wander (AR(1) with rho 0.8, standard
    deviation 0.08, each measured to 0.02), where last against best alone found a quarter.
    """
    seen = evaluations(case)
    if len(seen) < 3:
        return ()
    best, last = max(seen, key=lambda evaluation: evaluation.reward), seen[-1]
    since = seen[seen.index(best) + 1 :]
    se = math.hypot(best.se, last.se)
    if last is best or se == 0 or not _falls_on(since):
        return ()
    se = max(se, _wander(since))
    third = seen[-max(2, len(seen) // 3) :]
    lost = best.reward - max(last.reward, fmean(evaluation.reward for evaluation in third))
    fall = min(1.0, len(seen) * chance_above(lost / se))
    trained = trend(series([row for row in case.stage_rows if (row["step"] or 0) > best.step], "reward/mean"))
    if trained is None or (rise := chance_above(trained.z)) >= SIGNIFICANT or fall >= SIGNIFICANT:
        return ()
    return (_finding(case, (best, last), (trained.slope, rise), (fall, se)),)


def _wander(since: Sequence[Evaluation]) -> float:
    """How far one evaluation is from the next, apart from their drift: weights wander, and its own error has no say."""
    return pstdev([b.reward - a.reward for a, b in pairwise(since)]) if len(since) > 2 else 0.0


def _falls_on(since: Sequence[Evaluation]) -> bool:
    """Whether the later half of what came after the best is the worse one."""
    half, rewards = len(since) // 2, [evaluation.reward for evaluation in since]
    return half > 0 and fmean(rewards[-half:]) < fmean(rewards[:half])


def _finding(
    case: Case, evals: tuple[Evaluation, Evaluation], trained: tuple[float, float], fallen: tuple[float, float]
) -> Finding:
    (best, last), (slope, rise), (fall, se) = evals, trained, fallen
    patience = shortest_patience([reward for _, reward in series(case.rows, "eval/reward")])
    return Finding(
        id="overfitting",
        severity="warning",
        summary=(
            f"eval/reward fell from {best.reward:.3g} (step {best.step}) to {last.reward:.3g} while reward/mean rose "
            f"by {100 * slope:.2g} in 100 steps: what is learned holds for the training prompts only"
        ),
        evidence={
            "best_step": best.step, "best": best.reward, "last_step": last.step, "last": last.reward,
            "se": se, "p_fall": fall, "rise_per_step": slope, "p_rise": rise,
        },
        suggest=(f"early_stopping.patience={patience}",) if best.step > 0 else (),  # else it keeps the untrained model
        advice=(
            "keep the checkpoint of the best evaluation, and train on more prompts or for fewer passes; a reward that "
            "is gained on training prompts alone may also be one that is gamed: read samples of the last steps"
        ),
        confidence="moderate",  # the errors are those of an evaluation; how far weights wander between two is not known
    )  # fmt: skip


ENOUGH = 20  # steps
LOST = 0.1  # of the completions: what validity must have lost to be worth a word


def reward_hacking(case: Case) -> Sequence[Finding]:
    """A warning where reward/mean rises while validity or the true reward falls (p < 0.001 each), or hacks are counted.

    ## reward-hacking

    Severity: warning (moderate; weak for three to seven rows of a true reward); info (weak) beside a warning
    `overfitting`, whose numbers are the same, and where the reward is 0.97 of the most there is at a KL of 0.5 nats a
    token or more (20 rows or more, which began below 0.05).

    Means: the reward rises while what it stands for falls, or completions are known to game it: it pays for what is not
    valid, or not wanted.

    Looks at: `reward/mean` rises and `completions/valid` falls over the steps of the last GRPO stage (20 or more), both
    with p < 0.001, and validity loses a tenth or more between the first and the last third. Where a log has a reward
    that nothing is trained on (`reward/true`: a gold, true or oracle reward beside the proxy), on eight rows or more:
    from the row after its best on it falls and the reward rises, both with p < 0.001; or over all rows the reward rises
    (p < 0.001) and the true one does not (less than two standard errors, and a tenth of what the reward gained; with
    two standard errors on top, less than half of it). Of three to seven rows: each reward above the one before, each
    true one below. And a detector's own share (`reward/hacked`, a twentieth) or count (`reward/hacks`, one a row) in
    the last third, which is no less than half of what it was in the first; an info where the count never falls: it may
    be of all rows so far.

    Confounder: two trends of one run also have other causes (prompts that change); the samples decide.

    Do: pay invalid completions less than any valid one, and read samples of the last steps.
    """
    if parted := _counted_hacks(case) or _parted_from_the_truth(case) or _best_and_far(case):
        return parted
    rows = case.stage_rows  # another stage may have other prompts and another reward
    rewards, valid = series(rows, "reward/mean"), series(rows, "completions/valid")
    up, down = trend(rewards), trend(valid)
    if min(len(rewards), len(valid)) < ENOUGH or up is None or down is None or sampler_at_fault(case):
        return ()
    p_up, p_down, third = chance_above(up.z), chance_above(-down.z), len(valid) // 3
    first, last = (fmean(value for _, value in part) for part in (valid[:third], valid[-third:]))
    if max(p_up, p_down) >= SIGNIFICANT or first - last < LOST or not math.isfinite(up.slope):
        return ()
    return (
        Finding(
            id="reward-hacking",
            severity="warning",
            summary=(
                f"the reward rises by {100 * up.slope:.2g} in 100 steps ({shown_p(p_up)}) while valid completions fall "
                f"from {first:.0%} to {last:.0%} ({shown_p(p_down)}): it pays for what is not valid"
            ),
            evidence={
                "reward_slope": up.slope, "p_reward": p_up, "valid_first": first, "valid_last": last,
                "valid_slope": down.slope, "p_valid": p_down, "steps": len(valid),
            },
            advice="pay invalid completions less than any valid one, and read samples of the last steps",
            confidence="moderate",
            decider=Decider(question="does the reward still rise where invalid completions earn nothing?"),
        ),
    )  # fmt: skip


def or_gamed(found: Sequence[Finding]) -> Sequence[Finding]:
    """The findings, and beside an `overfitting` that costs what else the numbers may say; see `reward-hacking`."""
    if ("overfitting", "warning") not in {(finding.id, finding.severity) for finding in found}:
        return found
    gamed = Finding(
        id="reward-hacking",
        severity="info",
        summary=(
            "what training pays does not show in held-out scores: no column tells prompts that were learned by heart "
            "from a reward that is gamed"
        ),
        evidence={},
        advice="read the last answers to training prompts: are those right that are paid?",
        confidence="weak",
        decider=Decider(question="are the training answers right that earn the most?"),
    )
    return [*found, gamed]


HOME, FAR, LASTING = 0.05, 0.5, 3  # nats a token, at the first row and on each of the last three
LINE, FEWEST = 8, 3  # rows for a line; and for an order
FLAT, SHARE = 2.0, 0.1  # standard errors, and of what the reward gained: less is no rise of the true one
BEST = 0.9  # of a share
MOST = 0.5  # of what the reward gained: where the true one may have gained so much within its error, it is too noisy


def _parted_from_the_truth(case: Case) -> Sequence[Finding]:
    """The warning where the reward rises and what it stands in for does not; documented with `reward-hacking`."""
    rows = [row for row in case.stage_rows if None not in (number(row, "reward/mean"), number(row, "reward/true"))]
    proxy, true = values_of(rows, "reward/mean"), values_of(rows, "reward/true")
    if FEWEST <= len(rows) < LINE:
        apart = all(b > a for a, b in pairwise(proxy)) and all(b < a for a, b in pairwise(true))
        return (_gamed(rows, "weak"),) if apart else ()
    if len(rows) < LINE or min(true) == max(true) != 0:
        return ()  # one number that is no 0 is no measure: `gold 72` is an answer
    since = rows[true.index(max(true)) + 1 :]
    for part in (since, rows):
        up, line = trend(series(part, "reward/mean")), trend(series(part, "reward/true"))
        if len(part) < LINE or up is None or line is None or chance_above(up.z) >= SIGNIFICANT:
            continue
        fell = line.z < 0 and chance_above(-line.z) < SIGNIFICANT
        most = line.slope + FLAT * line.se  # that it may have gained
        best = min(true) >= 0 and max(true) <= 1 and fmean(true) >= BEST  # nothing is left to gain
        stood = part is rows and not best and line.z < FLAT and line.slope < SHARE * up.slope and most < MOST * up.slope
        if fell or stood:
            return (_gamed(part, "moderate"),)
    return ()


GAMED = 0.05  # of the completions
CURED = 0.5  # of what it was: a detector that finds less and less


def _counted_hacks(case: Case) -> Sequence[Finding]:
    """What a detector in the log finds that games the reward; see `reward-hacking`."""
    shares, counts = (values_of(case.stage_rows, name) for name in ("reward/hacked", "reward/hacks"))
    values, least = (shares, GAMED) if shares else (counts, 1.0)
    if not values or min(values) < 0 or (shares and max(shares) > 1):  # percent, or a count: nobody says
        return ()
    was, now = thirds(values)
    if now < least or now < CURED * was:
        return ()
    told = [f"{value:.0%}" if shares else f"{value:.3g}" for value in (was, now)]
    total = not shares and all(b >= a for a, b in pairwise(values))  # a row's, or all so far
    return (
        Finding(
            id="reward-hacking",
            severity="info" if total else "warning",
            summary=(
                f"the log counts completions that game the reward: {told[0]} in the first third, {told[1]} in the last"
                + (" (a row's, or all so far)" if total else "")
            ),
            evidence={"hacked_first": was, "hacked_last": now, "rows": len(values)},
            advice="read those completions, and close what they use before the next run",
            confidence="moderate",
            decider=Decider(question="do the completions that were counted earn the reward without doing the task?"),
        ),
    )


def _best_and_far(case: Case) -> Sequence[Finding]:
    """An info where nearly all earn the most there is and the policy is far from its reference."""
    rows = case.stage_rows
    kls = values_of(rows, "kl")
    at_home = bool(kls) and kls[0] <= HOME and case.settings.factor is None and not case.settings.old_is_reference
    if len(kls) < ENOUGH or not at_home or min(kls[-LASTING:]) < FAR or not solved(rows):
        return ()
    reward = fmean(ends_of(rows, "reward/mean", least=2)[1])
    return (
        Finding(
            id="reward-hacking",
            severity="info",
            summary=(
                f"the reward is {reward:.3g}, nearly the most there is, and the KL to the reference is {kls[-1]:.2g} "
                "nats a token: other texts than the reference's earn it, and no column tells whether they are meant"
            ),
            evidence={"reward": reward, "kl": kls[-1], "kl_first": kls[0]},
            advice="read samples of the last steps; keep a checkpoint from where the reward came near its best",
            confidence="weak",
            decider=Decider(question="do the last samples earn the reward without doing what it is for?"),
        ),
    )


def _gamed(rows: Sequence[Row], confidence: Confidence) -> Finding:
    was, now = thirds(values_of(rows, "reward/mean"))
    true_was, true_now = thirds(values_of(rows, "reward/true"))
    first = int(rows[0].get("step") or 0)
    return Finding(
        id="reward-hacking",
        severity="warning",
        summary=(
            f"from step {first} on the reward rises from {was:.3g} in the first third to {now:.3g} in the last, and "
            f"the true reward goes from {true_was:.3g} to {true_now:.3g} ({len(rows)} rows): what is paid is no longer "
            "what is meant"
        ),
        evidence={
            "first_step": first, "rows": len(rows), "reward_first": was, "reward_last": now,
            "true_first": true_was, "true_last": true_now,
        },
        advice="keep the checkpoint of the best true reward, read samples of the last steps; a larger beta slows it",
        confidence=confidence,
        decider=Decider(question="do the last samples earn the reward without doing what it is for?"),
    )  # fmt: skip


MANY_LEAKED = 0.01  # of the prompts: from here on an error


def leakage(case: Case) -> Sequence[Finding]:
    """An error where prompts of evaluation were trained on, a warning where it was less than one in a hundred.

    A problem is the same by its id or by its text: our runs record the share of each step's prompts
    (`groups/held_out`); of other logs, ids are compared.

    ## leakage

    Severity: error from 1 % of the prompts on, or where only ids are compared; warning below (certain).

    Means: there is training on prompts of the evaluation, so its reward is not that of unseen problems.

    Looks at: `groups/held_out`, the share of a step's prompts that evaluation asks too, by id or by text. Of other logs
    ids are compared.

    Confounder: ids that are reused for other problems in a foreign log.

    Do: take these problems out of one of the two sets, by their text and not by their ids alone.

    Measured: 10 of 10 planted faults.
    """
    shares = [(row, share) for row in case.steps if (share := row.get("groups/held_out")) is not None]
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
            severity="error" if share >= MANY_LEAKED or not shares else "warning",
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
