"""Does the learning rate move the weights, and not too far? Rates too large, too small or 0, and runs without updates.

Also weights that a run was to start from and that did not fit it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from core.health.case import Case
from core.health.finding import Decider, Finding, Row, RuledOut, StepTable, steps_of
from core.health.rules.dead_run import dead_stretch
from core.health.rules.first_updates import (
    FAR,
    LARGE,
    NOT_BY_THE_RATE,
    SIGNIFICANT,
    WEIGHT,
    ColumnChange,
    DestructiveRate,
    KlJump,
    PolicyChange,
    destructive_rate,
    kl_jump,
    largest_rate,
    policy_change,
)
from core.health.rules.integrity import worst_integrity
from core.health.rules.rollout_mode import contrast
from core.health.rules.zero_kl import MOVES, courses
from core.health.rules.zero_loss import NONE as NO_LOSS
from core.health.rules.zero_loss import no_signal
from core.health.statistics import shown_p
from core.health.steps import HOLD, acted, number, reward_gain, values_of

AIM = 1e-4  # nats per token: what the suggested rate should give at first, since the KL goes with its square
CHANCE = 0.05  # a p above it shows nothing: one step before all others gives no less
HEALED = 3  # all-invalid steps without an update that must have been seen before one can say whether they heal
EACH, THROWN = 0.1, 0.5  # nats a token from the old policy to the updated one: the usual step of a run, or one of them
SELDOM = 0.02  # of the rows: a single step so far among more is a spike, which most long runs have
STILL = 20  # updates that must have acted before a policy can be said not to move
FULL_RATE = 0.5  # of the rate that the settings name: a warm-up that has not come so far tells nothing of it
UNMOVED = 1e-7  # nats per token, the largest of a run: no argmax and next to no draw is another
SHORTEST = 3e-7  # the sum of all rates: what Adam moves a weight by, at most 3.2 times it, no draw can show
HARDLY = 50  # updates from which on it is worth a word that nothing moves
HARDLY_FAR = 3e-4  # nats per token: kernels of a sampler and a trainer in bf16 differ by as much
GREW = 1.5  # times
SOLVED = 0.85  # of a reward up to 1: little is left to learn
MOVED = 1e-5  # nats per token: equal evaluations are then a solved task's


def learning_rate(case: Case) -> Sequence[Finding]:
    """An error for a rate that broke the policy, a warning for one that may have, or that moved nothing.

    Too large: the first updates made another policy, for good, and a worse one (core.health.rules.first_updates has the
    evidence of the curves and the arithmetic). Too small: evaluations that draw the same every time give the same
    texts, whatever was learned. Silent where the sampler is at fault: its samples tell nothing of the weights
    (core.health.rules.rollout_mode, integrity).

    ## learning-rate

    Severity: error (strong or moderate) where the first updates broke the policy; warning (moderate) where they threw
    it far or seem to have broken it (weak where one step before is all there is to compare with); warning (certain or
    moderate) where the rate is too small to move anything; info (weak) where hardly anything moves.

    Means: the learning rate is far too large, or too small.

    Looks at: of a rate that is too large, three kinds of evidence, of which one is enough. "The first updates" are
    those of this stage, ten at the largest rate; those of a warm-up count by their share of it, and an update under a
    tenth of that rate is blamed for nothing.

    1. The KL to the start, in nats a token, goes from under 0.01 to 0.1 in at most three updates. Measured on the
       built-in model: rate x1: 7e-6 to 2e-4 (4 updates a rollout: 9e-4 and 2e-3); x10: 4e-3 and 2e-2; x100: 0.2 to 0.7
       (8 runs).
    2. The steps after an update against all before it: two kinds of column left for good, one of them worse. Validity
       and reward are one kind, truncation and length are one, entropy is one. A column has left for good where four
       fifths of all later rows, to the end of the table, lie beyond every row before, the change is two of the run's
       own spreads between steps, half of it was there within five steps, and the level is another one: validity under
       half, reward lower by half of what the completions of a step differ by (differences, not ratios: rewards may be
       negative), truncation up by 0.4, length outside 0.5 to 1.6 times, entropy outside 0.3 to 3 times. p is Nelson's
       precedence test: were the order of the rows of no matter, the k lowest of m + n would all be among the later n
       with the chance C(m + n - k, m) / C(m + n, m); twice that, times the updates after which a change was looked for,
       and the larger of harm's and the second kind's. One step before the change gives 1 / (n + 1) at best, so it
       proves nothing.
    3. A rate of 0.01 or more, and one column worse on 4 of the 5 rows after the first such update and on four fifths of
       all since. Adam divides a mean of gradients by the root of a mean of their squares (Kingma and Ba 2015, section
       2.1): its first update moves each weight that has a gradient by the rate itself, whatever the gradient and
       whatever `max_grad_norm`; later ones move it by at most (1 - 0.9) / sqrt(1 - 0.999) = 3.2 times the rate. A
       transformer's weights begin with a standard deviation of 0.02 (`initializer_range` of GPT-2, Llama and Qwen): at
       a rate of 0.01 half of a typical weight is exchanged in one update. Full fine-tuning uses 1e-6 to 1e-5, a small
       model from scratch up to 3e-3. With LoRA the weights that count are scale x B A, scale = alpha / r. B begins at 0
       and A uniform with std 1 / sqrt(3 d) for d inputs, so one update makes each entry of the product scale x rate x
       sqrt(r) / sqrt(3 d): with alpha / r = 2, r = 16, d = 4096 and a rate of 1e-3 that is 7e-5, 0.4 % of 0.02; at 3e-2
       it is 11 %, in few directions, where it counts for more. A reward counts as worse here where it fell by twice
       what a step's completions differ by. Of rows that are means of several steps: the reward at its floor from the
       second row on, since the first has both in it. Of a log
       that does not begin with the run: the floor on every row (weak).

    Where nothing of that is found and a log says how far the updates of a rollout move the policy (`policy/kl_old`,
    verl's `ppo_kl`): 0.1 nats a token in the median of three rows or more (warning, moderate), or 0.5 on more than one
    row in fifty (warning, weak). Old log-probs of another engine give the same, and the sentence names them.

    Too small: at least three evaluations with one reward and one mean length to the last digit, after 20 updates or
    more (ours draw the same way every time, so their texts are the same; certain with a KL under 1e-5, moderate without
    one, nothing where the KL is larger or all rewards are one), or a KL that never reached 1e-7 (moderate; info, weak,
    where it is exactly 0 and no `beta` is known; silent where reward, entropy or length left their level, at a `beta`
    of 0, and for a KL of exactly 0 at 1e-4 or more), or rates whose sum is under 3e-7 (moderate: Adam moves no weight
    by more than 3.2 times that). Silent while a warm-up is below half of the rate that is known. An info (weak) where
    after 50 updates the KL is under 3e-4 nats, no more than half higher than in the first third of the rows, and the
    reward no higher: dead groups give the same.

    Grades of a rate that is too large:

    - Error (strong): the KL jumped, and validity or reward left for good, or all evaluations since (two or more) are
      worse by 4 standard errors or lost half of their validity.
    - Error (moderate): no KL jump, and two kinds left with the third evidence; or a row of several steps at such a
      rate, and nothing earned since; or p < 0.001 with validity or reward among them, and a KL that rose with it to
      0.01 or more and to ten times what it was; or the evaluations since are worse. Strong where all-invalid steps
      without an update stayed so.
    - Warning (moderate): the KL jumped and nothing is worse; or the third evidence alone; or two kinds left, validity,
      reward or truncation among them, and the start is too short to prove it, or no KL tells it from prompts that
      changed there.
    - Nothing: the reward rose clearly; a KL that jumped was under 0.01 again later; a KL measured since is under 0.01,
      or goes on as it did before the change; the evaluations since (two or more) are on average no worse; the KL
      before is not near 0 or not known; a row stands for several steps.

    Rows need no KL, no validity and no update marks: TRL's are enough, though a log without a KL that breaks within its
    first two or three steps is an error only with the third evidence.

    Confounder: prompts that became harder or longer at that step (told apart by the KL; a warning without one). Prompt
    vectors, tiny networks and wide-spread weights live with rates of 0.01, and SGD moves by its gradients: the rate
    alone is never reported, and nothing where the optimiser is known to be SGD, ASGD, Adadelta or Rprop (`--set
    optimizer=sgd`; `optim` is read), fewer than four prompts are known to have been answered before, the reward rose by
    half of what a step's completions differ by or more, or a KL since is under 0.01. Silent where the sampler is at
    fault (a log-prob gap, or collapses that heal without an update). `rollout-mode` is ruled out where all-invalid
    steps without an update stayed all-invalid.

    Do: the rate that gives a KL of 1e-4 an update (it goes with the square of the rate); without a KL a tenth of the
    rate. To see both: `grpoctl run p31 --profile tiny learning_rate=5e-2` and `learning_rate=5e-7`.

    Measured: p31 at rate x100: 10 of 10 errors; with a warm-up of 10 and of 30 steps: 3 of 3 errors; TRL 1.16 at 3e-2
    instead of 3e-4, no KL: 10 of 10 (7 errors, 3 warnings). Accused: none of 30 sound runs. A rate x10 is not found: in
    2 runs of 96 steps it reached the sound runs' reward and lost validity slowly, which is not the first updates'
    doing. A rate / 1000 was found in 3 of 3 runs; / 100 changed some draws and was not. Simulated runs in which nothing
    changes: [benchmarks](benchmarks.md#learning-rate).
    """
    if sampler_at_fault(case):
        return ()
    finding = case.once(too_large) or _dead_at_once(case) or _far_at_once(case) or _too_small(case)
    return () if finding is None else (finding,)


def sampler_at_fault(case: Case) -> bool:
    """Whether samples are not the policy's: a broken integrity, or collapses that heal without an update."""
    dtype = case.settings.dtype or "bfloat16"  # unknown: the coarser one accuses no sampler
    seen = contrast(case.rows)
    healed = seen.collapsed_and_skipped >= HEALED and seen.still_collapsed <= 0.1 * seen.collapsed_and_skipped
    return healed or worst_integrity(case.rows, dtype=dtype, override=case.guards.max_logprob_gap) is not None


def not_the_sampler(case: Case) -> tuple[RuledOut, ...]:
    """Damage of the weights, where all-invalid steps were seen not to heal although nothing was updated."""
    seen = contrast(case.rows)
    if seen.collapsed_and_skipped < HEALED or seen.still_collapsed < 0.9 * seen.collapsed_and_skipped:
        return ()
    why = (
        f"{seen.still_collapsed} of {seen.collapsed_and_skipped} all-invalid steps without an update were followed by "
        "another: the weights are damaged, a wrong mode would have healed"
    )
    return (RuledOut(id="rollout-mode", why=why),)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Signs:
    """What speaks for a rate that was too large; at least one of them."""

    far: KlJump | None
    other: PolicyChange | None
    hit: DestructiveRate | None

    @property
    def changes(self) -> tuple[ColumnChange, ...]:
        """The columns that left their start, by the evidence that asks the most."""
        first = next((evidence for evidence in (self.other, self.far, self.hit) if evidence is not None), None)
        return () if first is None else first.changes

    @property
    def evaluated(self) -> bool:
        """Whether the evaluations since are clearly worse."""
        return any(evidence is not None and evidence.evaluated for evidence in (self.far, self.other))

    @property
    def proven(self) -> bool:
        """Whether the curves, or curves and the size of an update, say that another policy came at once."""
        return self.other is not None and (self.other.proven or (self.hit is not None and self.hit.worse))

    @property
    def broke(self) -> bool:
        """Whether the policy was broken, as far as can be known."""
        return self.proven or (self.far is not None and self.far.harmed)


def too_large(case: Case) -> Finding | None:
    """The finding where the first updates went too far; its evidence has all that left its start."""
    signs = _Signs(far=kl_jump(case), other=policy_change(case), hit=destructive_rate(case))
    if signs.far is None and signs.other is None and (signs.hit is None or not signs.hit.worse):
        return None
    rate = _rate(case)
    change = () if rate is None else (f"learning_rate={_smaller(rate, signs.far):.1g}",)
    sure = signs.far is not None or bool(not_the_sampler(case))
    by_chance = signs.far is None and not signs.broke and signs.other is not None and signs.other.p > CHANCE
    return Finding(
        id="learning-rate",
        severity="error" if signs.broke else "warning",
        summary=(
            f"learning rate {_shown(rate)} {'is' if signs.far or signs.broke else 'may be'} too large: "
            + _why(signs, case.settings.per_factor)
        ),
        evidence=_evidence(rate, signs),
        rules_out=not_the_sampler(case),
        suggest=change,
        confidence="strong" if signs.broke and sure else "weak" if by_chance else "moderate",
        decider=Decider(
            question="does the same run stay itself at a smaller rate?",
            overrides=change,
            expects=(f"kl < {FAR}",) if signs.far is not None else (),
        ),
    )


def _why(signs: _Signs, per_factor: str) -> str:
    parts, far, other, hit = [], signs.far, signs.other, signs.hit
    if hit is not None:
        times = f"{hit.rate / WEIGHT:.2g} times what a transformer's weights begin with ({WEIGHT})"
        parts.append(f"an update of Adam moves a weight by about the rate, {times}")
    if far is not None:
        parts.append(f"the policy was {far.kl:.2g} {per_factor} away from its start after {counted(far.updates)}")
    if other is not None:
        before = f"the {other.before} before" if other.before > 1 else "the one before"
        open_ = "" if far or signs.proven else _open(other)
        parts.append(
            f"the {other.after} steps after {counted(other.updates)} are of another policy than {before} "
            f"({shown_p(other.p)}{open_})"
        )
    elif hit is not None and far is None:
        parts.append(f"with {counted(hit.updates)} and for good")
    if signs.changes:
        parts.append(
            ", ".join(f"{change.metric} went from {change.start:.3g} to {change.now:.3g}" for change in signs.changes)
        )
    if signs.evaluated:
        parts.append("the evaluations since are clearly worse")
    return "; ".join(parts)


def _open(other: PolicyChange) -> str:
    """What else it may be, where it is not proven."""
    return ": too few to prove it" if other.p >= SIGNIFICANT else ", or the prompts changed there"


def counted(count: int) -> str:
    """So many updates, in words."""
    return f"{count} update{'' if count == 1 else 's'}"


def _shown(rate: float | None) -> str:
    return "(unknown)" if rate is None else f"{rate:.3g}"


def _rate(case: Case) -> float | None:
    """The rate of the stage: the largest that was used, else what is known of its settings."""
    return largest_rate(case.stage_rows) or case.settings.learning_rate


def _evidence(rate: float | None, signs: _Signs) -> dict[str, float | str]:
    evidence: dict[str, float | str] = {} if rate is None else {"learning_rate": rate}
    if signs.hit is not None:
        evidence |= {"update_over_weight": signs.hit.rate / WEIGHT}
    if signs.far is not None:
        evidence |= {"kl": signs.far.kl, "after_updates": signs.far.updates, "kl_limit": FAR}
    if signs.other is not None:
        evidence |= {"steps_before": signs.other.before, "steps_after": signs.other.after, "p": signs.other.p}
    hit, far = signs.hit.changes if signs.hit else (), signs.far.changes if signs.far else ()
    for change in (*hit, *far, *signs.changes):
        evidence |= {f"{change.metric}_start": change.start, f"{change.metric}_since": change.now}
    return evidence


def _smaller(rate: float, far: KlJump | None) -> float:
    """By the KL, which goes with the square of the rate used until then; without one a tenth."""
    if far is None:
        return rate / 10.0
    return (far.rate or rate) / min(max(math.sqrt(far.kl / AIM), 10.0), 100.0)


def _far_at_once(case: Case) -> Finding | None:
    """A warning where the updates of one rollout throw the policy far from the one that the ratio is over."""
    values = values_of(case.steps, "policy/kl_old")
    sustained = len(values) >= HEALED and median(values) >= EACH
    thrown = [value for value in values if value >= THROWN]
    if not sustained and len(thrown) <= SELDOM * len(values):
        return None
    rate, far = _rate(case), max(values)
    unit = case.settings.per_factor
    how = f"{median(values):.2g} {unit} in the median" if sustained else f"up to {far:.2g} {unit}"
    return Finding(
        id="learning-rate",
        severity="warning",
        summary=(
            f"the updates of one rollout move the policy {how} away from where they began ({len(values)} rows), and "
            f"0.01 is usual: learning rate {_shown(rate)} is too large, there are too many updates a rollout, or the "
            "old log-probs are of another model (a sampler's)"
        ),
        evidence={"kl_old_median": median(values), "kl_old_max": far, "rows": len(values)},
        suggest=() if rate is None else (f"learning_rate={rate / 10:.1g}",),
        advice="a tenth of the rate, fewer updates a rollout; look at what scored the old log-probs",
        confidence="moderate" if sustained else "weak",
        decider=Decider(question="is it 0 at the first update of a rollout, before anything moved?"),
    )


def _dead_at_once(case: Case) -> Finding | None:
    """An error where a rate of LARGE or more stands beside a reward at its floor after a first row of steps.

    A warning where a log that does not begin with the run has nothing else. Single steps tell more
    (core.health.rules.first_updates), and a run that never earned anything had no first row that did.
    """
    rates, stretch = values_of(case.stage_rows[:1], "learning_rate"), dead_stretch(case)
    adam = not (case.settings.optimizer or "adam").startswith(NOT_BY_THE_RATE)
    if not adam or not rates or rates[0] < LARGE or stretch is None or stretch.paid_otherwise:
        return None
    if len(stretch.before) > 1:  # it went well for a while
        return None
    if not (stretch.whole if case.begins_later else case.averaged_over > 1 and stretch.p is not None):
        return None
    change = (f"learning_rate={rates[0] / 100:.1g}",)
    return Finding(
        id="learning-rate",
        severity="warning" if stretch.whole else "error",
        summary=(
            f"a learning rate of {rates[0]:.3g} moves a weight by half of what it begins with ({WEIGHT}) or more in an "
            + (
                "update, and nothing is earned in this log, which does not begin with the run"
                if stretch.whole
                else f"update, and nothing is earned from the second row on, {case.averaged_over} steps a row"
            )
        ),
        evidence={"learning_rate": rates[0], "rows": len(stretch.dead), "averaged_over": case.averaged_over},
        suggest=change,
        confidence="weak" if stretch.whole else "moderate",
        decider=Decider(question="does it earn anything at a hundredth of the rate?", overrides=change),
    )


def _too_small(case: Case) -> Finding | None:
    """A warning where no update showed: the same evaluations to the last digit, or no KL at all."""
    steps = case.stage_rows
    moved = sum(map(acted, steps))
    if moved < STILL or (rate := _rate(case)) is None:
        return None
    aim = case.settings.learning_rate or 0.0
    if rate < FULL_RATE * aim:
        return None  # still in its warm-up
    moved *= case.averaged_over
    kls = values_of(steps, "kl")
    same = _same_evaluations(case) if max(kls, default=0.0) < MOVED else 0
    zero = not any(kls)  # of which core.health.rules.zero_kl says more
    elsewhere = any(course.changed for course in courses(case)) or (zero and rate >= MOVES) or case.settings.beta == 0
    still = len(kls) >= STILL and max(map(abs, kls)) < UNMOVED and not elsewhere
    unsure = still and zero and not same and case.settings.beta is None
    rates = values_of(steps, "learning_rate")
    path = math.fsum(rates) * case.averaged_over
    tiny = len(rates) >= STILL and 0 < path < SHORTEST and max(kls, default=0.0) < MOVED
    if not same and not still and not tiny:
        return _hardly_moved(case, rate, moved, kls)
    kl = {"kl_max": max(kls)} if kls else {}
    text = (
        f"the last {same} evaluations gave the same texts"
        if same
        else "the KL to the start stayed below 1e-7 nats"
        if still
        else f"no weight moved by more than {3.2 * path:.1g} (3.2 times the sum of the rates, Adam's most)"
    )
    return Finding(
        id="learning-rate",
        severity="info" if unsure else "warning",
        summary=f"learning rate {rate:.3g} is too small to move anything: after {moved} updates {text}"
        + (", or no KL is computed" if unsure else ""),
        evidence={"learning_rate": rate, "updates": moved, "same_evaluations": same, **kl},
        suggest=(f"learning_rate={_larger(max(rate, aim), max(kls, default=0.0)):.1g}",),
        confidence="weak" if unsure else "certain" if same and kls and rate >= aim else "moderate",
        decider=Decider(
            question="does a larger rate move the evaluation?",
            overrides=(f"learning_rate={_larger(max(rate, aim), max(kls, default=0.0)):.1g}",),
            expects=("kl > 1e-5",) if kls else (),
        ),
    )


def _hardly_moved(case: Case, rate: float, moved: int, kls: Sequence[float]) -> Finding | None:
    """An info where the KL stayed where an update or two put it, and the reward, too: nothing says that it learns."""
    third = len(kls) // 3
    gain = reward_gain(case.stage_rows)
    if moved < HARDLY or third < HOLD or gain is None or gain[2] or gain[1] > gain[0] or min(kls) < 0:
        return None
    early, late = median(kls[:third]), median(kls[-third:])
    if max(kls) >= HARDLY_FAR or late > GREW * early or gain[0] >= SOLVED:
        return None
    change = (f"learning_rate={_larger(rate, max(kls)):.1g}",)
    return Finding(
        id="learning-rate",
        severity="info",
        summary=(
            f"the policy hardly moved: after {moved} updates at a rate of {rate:.3g} the KL is {late:.2g}, as it was "
            f"({early:.2g}), and the reward went from {gain[0]:.3g} to {gain[1]:.3g}: the rate is too small, or no "
            "group teaches anything"
        ),
        evidence={"learning_rate": rate, "updates": moved, "kl_early": early, "kl_late": late},
        suggest=change,
        confidence="weak",
        decider=Decider(question="does a larger rate move the KL and the reward?", overrides=change),
    )


def _larger(rate: float, kl: float) -> float:
    return rate * (10.0 if kl <= 0 else min(max(math.sqrt(AIM / kl), 10.0), 100.0))


def _same_evaluations(case: Case) -> int:
    """How many evaluations there were, where all have one reward and one mean length to the last digit; else 0.

    Ours draw the same way every time, so the texts are the same: no draw fell another way. Elsewhere draws are new, or
    greedy, and two equal mean lengths are no chance either. Rewards that are all one (a solved task) say nothing.
    """
    seen = [
        row for row in case.rows if number(row, "eval/length") is not None and number(row, "eval/reward") is not None
    ]
    done = [row for row in seen if (row.get("step") or 0) >= 1]
    equal = len({(row["eval/length"], row["eval/reward"], row.get("eval/valid")) for row in seen}) == 1
    solved = any(row.get("eval/reward_se") == 0 for row in seen)
    return len(seen) if equal and not solved and len(done) >= 2 and len(seen) >= 3 else 0


LAST_STEPS = 10  # steps at the end: a schedule's own last ones are fewer
SHARE = 0.1  # of the run


def rate_zero(case: Case) -> Sequence[Finding]:
    """A warning where the last tenth of a run or more, and at least ten steps, had a rate of exactly 0.

    ## rate-zero

    Severity: warning (strong).

    Means: the last tenth of the steps or more, and at least ten, had a learning rate of exactly 0: a schedule that is
    shorter than the run, or one that a resumed run took up with another length.

    Looks at: `learning_rate`.

    Confounder: a log that rounds small rates.

    Do: give the schedule the length of the run (`lr_scheduler_steps`, `max_steps`), or end the run there.
    """
    rows = [row for row in case.stage_rows if number(row, "learning_rate") is not None]
    used = [index for index, row in enumerate(rows) if row["learning_rate"]]
    if not used:
        return ()
    still = rows[used[-1] + 1 :]
    if len(still) * case.averaged_over < LAST_STEPS or len(still) < SHARE * len(rows):
        return ()
    first, last = int(still[0].get("step") or 0), rows[used[-1]]["learning_rate"] or 0.0
    return (
        Finding(
            id="rate-zero",
            severity="warning",
            summary=(
                f"the learning rate is exactly 0 from step {first} on ({len(still)} of {len(rows)} rows; {last:.2g} "
                "before): nothing was learned since. A schedule that is shorter than the run, one that a resumed run "
                "took up with another length, or a log that rounds small rates"
            ),
            evidence={"first_step": first, "rows": len(still), "of": len(rows), "last_rate": last},
            advice="give the schedule the length of the run (lr_scheduler_steps, max_steps), or end the run there",
            confidence="strong",
        ),
    )


ENOUGH, FEW_AT_ZERO = 10, 3  # steps
MOST = 0.5  # of them have a loss that is not 0
NONE = 1e-8  # a loss: below it lies rounding


def no_gradient(case: Case) -> Sequence[Finding]:
    """An error where the gradient is exactly 0 on every step, losses are not, and a KL says that nothing moved.

    A warning where no KL is known: some trainers do not log the norm and write 0. Silent where the KL grew: they do.

    ## no-gradient

    Severity: error (certain) where a KL that stays below 1e-7 agrees, on ten steps or more; else warning (moderate).

    Means: the gradient norm is exactly 0 on all steps and it should not be: the loss is not 0 (on half of ten steps or
    more), or rewards inside groups differ. No trained weight is reached, or the trainer has no norm and writes 0. Or
    the loss is 0, too, on all rows, and it is not known that rewards are equal: nothing was learned, for no group has
    two different rewards or because no weight is reached.

    Looks at: `grad_norm`, `loss`, `groups/dead` and `kl`; a loss of 0 is one of 1e-6 at most, as for `zero-loss`, on
    every row, and the norm is told on half of these or more. It rules out `learning-rate`: no rate moves a weight
    that has no gradient; and what `zero-loss` and `dead-groups` say of a gradient of 0.

    Confounder: trainers that have no norm and write 0: a warning only. Silent where the KL grew. Dead groups have no
    gradient either: rows count where some group is known to be live, or the loss is not 0. With a loss of 0 it is
    silent where every group or reward is known to be equal, which has findings of its own, and where the reward rose.

    Do: count the parameters that the optimiser holds, and look at one of them before and after a step.
    """
    rows = [row for row in case.stage_rows if number(row, "grad_norm") is not None]
    felt = [row for row in rows if abs(number(row, "loss") or 0.0) > NONE]
    live = [row for row in rows if (number(row, "groups/dead") or 0.0) < 1 and number(row, "groups/dead") is not None]
    steps = len(rows) * case.averaged_over
    by_loss = steps >= ENOUGH and len(felt) >= MOST * len(rows)
    kls = values_of(rows, "kl")
    if not rows or any(row["grad_norm"] for row in rows) or (kls and max(kls) > UNMOVED):
        return ()
    why = f"the gradient is exactly 0 on all {len(rows)} rows, so no rate moves anything"
    if not by_loss and len(live) < len(rows):
        return _neither_loss_nor_gradient(case, rows, live, why)
    sure = bool(kls) and steps >= ENOUGH
    beside = f"the loss is not (on {len(felt)})" if by_loss else "rewards inside groups differ"
    return (
        Finding(
            id="no-gradient",
            severity="error" if sure else "warning",
            summary=(
                f"the gradient norm is exactly 0 on all {len(rows)} rows while {beside}"
                + (f", and the KL to the start stays at {max(kls):.1g}" if kls else "")
                + ": no gradient reaches a weight that is trained (a frozen or unregistered adapter, a detached loss)"
                + ("" if sure else ", or the trainer has no norm and writes 0")
            ),
            evidence={
                "rows": len(rows),
                "with_loss": len(felt),
                "with_live_groups": len(live),
                **({"kl_max": max(kls)} if kls else {}),
            },
            rules_out=tuple(RuledOut(id=id_, why=why) for id_ in ("learning-rate", "zero-loss")),
            advice="count the parameters that the optimiser holds, and look at one of them before and after a step",
            confidence="certain" if sure else "moderate",
        ),
    )


def _neither_loss_nor_gradient(case: Case, rows: Sequence[Row], live: Sequence[Row], why: str) -> Sequence[Finding]:
    """The warning where loss and gradient are 0 on all rows; `rows` are those with a norm, `live` those of them with a
    live group. See no_gradient.
    """
    losses = values_of(case.stage_rows, "loss") or values_of(case.stage_rows, "policy/loss")
    kls, gain = values_of(case.stage_rows, "kl"), reward_gain(case.stage_rows)
    if not losses or max(map(abs, losses)) > NO_LOSS or len(rows) < MOST * len(losses):
        return ()
    if (kls and max(kls) > UNMOVED) or (gain is not None and gain[2]) or _nothing_differs(case.stage_rows):
        return ()
    causes = "no gradient reaches a weight that is trained (or the trainer writes 0 for both)"
    return (
        Finding(
            id="no-gradient",
            severity="warning",
            summary=(
                f"loss and gradient are {'exactly 0' if not any(losses) else '0 up to rounding'} on all {len(rows)} "
                "rows: nothing was learned; "
                + (
                    f"rewards inside groups differ on {len(live)}, so "
                    if live
                    else "no group has two different rewards, or "
                )
                + causes
            ),
            evidence={"rows": len(rows), "with_loss": 0, "with_live_groups": len(live)},
            rules_out=tuple(RuledOut(id=id_, why=why) for id_ in ("learning-rate", "zero-loss")),
            advice="print one group's rewards; where they differ, look at one trained weight before and after a step",
            confidence="moderate",
            decider=Decider(question="is the gradient 0 where a group has two different rewards?"),
        ),
    )


def _nothing_differs(rows: Sequence[Row]) -> bool:
    """Whether every reward is known to be one number, or those of each group."""
    means = values_of(rows, "reward/mean")
    return (len(means) > 1 and max(means) == min(means)) or no_signal(rows)


def no_updates(table: StepTable) -> Finding | None:
    """A warning where not one of the steps moved a weight, with what the steps had instead of a signal.

    None where a step does not say whether it did. An update at a learning rate of exactly 0 moves none.

    ## no-updates

    Severity: warning; info (weak) for a KL of 0 without a known `beta`.

    Means: no step made an update, or each had a learning rate of exactly 0: nothing moved. Or the updates reached other
    weights than those of the policy.

    Looks at: `update` and `learning_rate` of ten steps or more (three with a rate of 0, moderate), and what the steps
    had instead of a signal (dead or discarded groups). And a `kl` of exactly 0 on every row after 20 updates or more
    (ten: moderate) with a known `beta`, a rate of 1e-4 or more and gradients on half of the rows, while those of
    reward, entropy and length that are known stay (strong with two of them; info, weak, without a known `beta`).

    Confounder: a log that does not say whether a step made an update: silent; so where the reward rose at rates of 0,
    which are rounded then. With a KL of 0 a reference that is the
    policy itself looks the same until one of them moves (`reference-mismatch` then), so both are named; a rate below
    1e-4 explains it by itself (`learning-rate`); without a known `beta` nobody may have computed a KL.

    Do: see why every group was dead or left out (`dead-groups`, `positive_reward`, `dynamic_sampling`), or what the
    schedule did; look at one weight of the policy before and after a step.
    """
    rows = steps_of(table)
    few = FEW_AT_ZERO if all(row.get("learning_rate") == 0 for row in rows) else ENOUGH  # a warm-up begins with one
    if len(rows) < few or any(row.get("update") != 0 and row.get("learning_rate") != 0 for row in rows):
        return None
    discarded = [float(row["groups/discarded"] or 0.0) for row in rows if "groups/discarded" in row]
    dead = [float(row["groups/dead"] or 0.0) for row in rows if "groups/dead" in row]
    evidence: dict[str, float | str] = {"steps": len(rows)}
    why = "no optimiser step had a finite loss"
    at_zero = sum(row.get("update") == 1 for row in rows)
    gain = reward_gain(rows)
    if at_zero and gain is not None and gain[2]:
        return None  # something was learned, so the rates are rounded
    if dead:
        share = sum(dead) / len(dead)
        evidence |= {"dead": share, "discarded": sum(discarded)}
        why = f"{share:.0%} of the groups had equal rewards"
    if discarded and all(discarded):
        why = f"every step left groups out ({sum(discarded):.0f} in all: positive_reward, dynamic_sampling), and {why}"
    if at_zero:
        evidence["at_rate_0"] = at_zero
        why = f"{at_zero} of the updates had a learning rate of exactly 0 (a schedule that has ended?)"
    return Finding(
        id="no-updates",
        severity="warning",
        summary=f"no update moved anything on {len(rows)} rows: {why}"
        if at_zero
        else f"no update was made on {len(rows)} rows, so nothing was learned: {why}",
        evidence=evidence,
        confidence="moderate" if len(rows) < ENOUGH else "strong",
    )


_WHAT = {
    "init/missing": "of this policy were not there and kept their own start",
    "init/odd_shape": "had another shape there and kept their own start",
    "init/unknown": "of that run were left out, this policy has none of their name",
}


def initial_weights(table: StepTable) -> Finding | None:
    """A warning where init_from left something unmatched; None where all fitted or nothing was asked.

    ## init-from

    Severity: warning.

    Means: `init_from` found weights that this policy does not have, or did not find some that it has, or found another
    shape: those kept their own start.

    Looks at: `init/taken`, `init/missing`, `init/odd_shape` and `init/unknown`.

    Confounder: a deliberate change of the architecture or of the adapter's size.

    Do: compare the two specs' `model` if the counts are a surprise.
    """
    row = table[0] if table else {}
    counts = {name: int(row.get(name) or 0) for name in ("init/taken", *_WHAT)}
    odd = {name: count for name, count in counts.items() if name != "init/taken" and count}
    if not odd:
        return None
    parts = "; ".join(f"{count} {_WHAT[name]}" for name, count in odd.items())
    return Finding(
        id="init-from",
        severity="warning",
        summary=f"init_from gave {counts['init/taken']} weights; {parts}",
        evidence=dict(counts),
    )
