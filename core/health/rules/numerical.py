"""Numbers that are none, gradients out of all proportion, and rounding taken for a signal."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from core.health.case import Case
from core.health.finding import Finding, Row, Severity
from core.health.statistics import series
from core.health.steps import acted, number, values_of

ENOUGH = 20  # steps with a gradient
# What no update may give. Rewards are not here: those of a step may all be missing.
WATCHED = (
    "loss", "policy/loss", "grad_norm", "kl", "kl_loss", "entropy", "rollout/logprob_gap", "policy/ratio_max",
    "supervised/loss", "consistency/loss", "rce/loss", "advantage/mean", "advantage/std", "advantage/max_abs",
)  # fmt: skip
NEEDED = ("loss", "policy/loss", "grad_norm")  # by an update: where one of them is no number, there is none
FIRST = 10  # steps: a float16 loss scaler halves its scale at each overflow, and has found it by then
SOUND_AFTER = 3  # steps that must follow the last number that was none
RARE = 0.2  # of the steps: more are no accident
SELDOM = 0.05  # of the steps: so few lost updates cost nothing
LEVEL = 20  # steps before and after whose rewards are compared
VALID = "completions/valid"
SPIKE = 30.0  # times the median: the largest of sound runs of ours is 9
MOSTLY = 0.9  # of the updates: then clipping is no exception but the rule
EQUAL = 1e-6  # a group's std against the size of its rewards: below it is float32's rounding
NONE = 1e-9
FELT = 0.01  # an advantage below this moves nothing: an eps of 1e-4 holds rounding at 2e-4 or so
Bad = tuple[Row, list[str]]  # a step, and its columns that are no number


def numerical(case: Case) -> Sequence[Finding]:
    """An error for NaNs that last, warnings for those that passed, spikes and rounding; infos for the harmless.

    ## numerical

    Severity: error.

    Means: a loss, gradient, KL, ratio or advantage is not a finite number, and it lasts, ends the run, or was followed
    by half the validity.

    Looks at: every watched column. Numbers of 1e100 or more count as not finite. A column that is not finite on any row
    was not measured (a KL of `beta` 0 in an export), unless an update needs it (loss, gradient).

    Confounder: an accident that passed: `isolated-nan`. A float16 loss scaler overflows by design within its first
    steps.

    Do: look at what came before it: a reward or an advantage without bound, a KL that grows, a sum in float16.

    ## isolated-nan

    Severity: warning; info (certain) where only gradients were not finite, on a twentieth of the steps at most (on a
    fifth, where all of these are among the first ten), no three in a row, and rewards after them are as before.

    Means: a number that is not finite on at most a fifth of the steps (or on one), with three finite steps or more
    after the last of them (one is enough where only the gradient was not finite): so many updates were lost.

    Looks at: the same columns as `numerical`.

    Confounder: a gradient alone, within the first ten steps or once in a while: a float16 loss scaler finds its scale
    that way.

    Do: nothing where a loss scaler is at work; else make sure that no such update is applied.
    """
    findings = (not_finite(case), _spikes(case), _always_clipped(case), _rounding(case))
    return [finding for finding in findings if finding is not None]


def not_finite(case: Case) -> Finding | None:
    """Recorded and no number: an error where it lasts or ends the run, a warning for single steps that did no harm."""
    rows = case.steps
    watched = _measured(rows)
    bad = [(row, names) for row in rows if (names := [n for n in watched if n in row and number(row, n) is None])]
    if not bad:
        return None
    first, names = bad[0]
    scaler = _scaler(rows, bad)
    passed = _passed(rows, bad, scaler)
    severity = _severity(case, rows, bad, scaler) if passed else "error"
    step, steps = int(first.get("step") or 0), len(bad)
    kept = "; the update was not applied" if first.get("update") == 0 else ""
    more = f" (and on {steps - 1} more of {len(rows)} steps)" if steps > 1 else ""
    rate = case.settings.learning_rate
    return Finding(
        id="isolated-nan" if passed else "numerical",
        severity=severity,
        summary=(
            f"step {step}: {', '.join(names)} {'is' if len(names) == 1 else 'are'} not a finite number"
            f"{kept}{more}{_after(bad, scaler) if passed else ''}"
        ),
        evidence={"step": step, "metric": names[0], "metrics": names, "steps": steps},
        suggest=() if rate is None or passed else (f"learning_rate={rate / 10:.1g}",),
        advice=(
            "nothing to do where a loss scaler is at work; else see that no such update is applied"
            if severity == "info" or (passed and scaler)
            else "see what came before it: a reward or an advantage without bound, a KL that grows, a sum in float16"
        ),
        confidence="certain",
    )


def _severity(case: Case, rows: Sequence[Row], bad: Sequence[Bad], scaler: bool) -> Severity:
    """Of what passed: an info where all it cost are single updates here and there, as a float16 loss scaler does."""
    only_gradients = all(names == ["grad_norm"] for _, names in bad)
    share = RARE if scaler else SELDOM
    seldom = len(bad) <= share * len(rows) and case.averaged_over <= FIRST
    lost = {id(row) for row, _ in bad}
    places = [place for place, row in enumerate(rows) if id(row) in lost]
    in_a_row = any(c - a == 2 for a, c in zip(places, places[2:], strict=False))
    before, since = (
        values_of(part, "reward/mean")
        for part in (rows[max(0, places[0] - LEVEL) : places[0]], rows[places[-1] + 1 :][:LEVEL])
    )
    fell = bool(before and since) and median(since) < 0.5 * median(before)
    return "info" if only_gradients and seldom and not in_a_row and not fell else "warning"


def _measured(rows: Sequence[Row]) -> list[str]:
    """The columns to watch: one that never was a number was not measured, unless an update needs it."""
    return [name for name in WATCHED if name in NEEDED or any(number(row, name) is not None for row in rows)]


def _scaler(rows: Sequence[Row], bad: Sequence[Bad]) -> bool:
    """Whether it can be a float16 loss scaler that finds its scale: gradients overflow at first, losses never do."""
    known = [row.get("step") or 0 for row in rows][:FIRST]
    return all(names == ["grad_norm"] and (row.get("step") or 0) in known for row, names in bad)


def _after(bad: Sequence[Bad], scaler: bool) -> str:
    """What is to say of steps that passed."""
    if scaler:
        return "; all is finite after that: a float16 loss scaler skips such steps"
    lost = sum(any(name in NEEDED for name in names) for _, names in bad)
    what = f"{lost} update{' was' if lost == 1 else 's were'} lost" if lost else "no update was lost"
    return f"; the steps after are finite, so {what}"


def _passed(rows: Sequence[Row], bad: Sequence[Bad], scaler: bool) -> bool:
    """Whether few steps were bad, sound ones followed the last of them, and validity and reward are what they were.

    Where only the gradient is none, one sound step after it is enough: had it been applied, no weight were a number.
    """
    last = max(row.get("step") or 0 for row, _ in bad)
    after = [row for row in rows if (row.get("step") or 0) > last]
    only_gradients = all(names == ["grad_norm"] for _, names in bad)
    if len(after) < (1 if only_gradients and not scaler else SOUND_AFTER):
        return False
    if not scaler and len(bad) > max(1, RARE * len(rows)):
        return False
    if any(all(number(row, name) is None for row in after) for _, names in bad for name in names):
        return False
    first = bad[0][0].get("step") or 0
    before = [value for _, value in series([row for row in rows if (row.get("step") or 0) <= first], VALID)]
    since = [value for _, value in series(after, VALID)]
    return not before or not since or median(since) >= 0.5 * median(before)


def _gradients(case: Case) -> list[tuple[int, float]]:
    """(step, norm) of the updates that had something to learn from: the gradients of rounding are no measure."""
    rows = [row for row in case.stage_rows if acted(row) and row.get("groups/dead") != 1]
    return [(int(row.get("step") or 0), norm) for row in rows if (norm := number(row, "grad_norm"))]


def _spikes(case: Case) -> Finding | None:
    """A warning where single steps have a gradient norm far above the usual one.

    ## grad-norm

    Severity: warning; info where `max_grad_norm` held it (moderate).

    Means: the gradient norm reached 30 times the median of steps with a live group, on at most a fifth of them.

    Looks at: `grad_norm`. The largest of sound runs of ours is 9 times the median.

    Confounder: steps without a live group, whose gradient is small: left out of the median.

    Do: read the samples of that step: one odd reward or one very long completion is the usual cause.
    """
    norms = _gradients(case)
    if len(norms) < ENOUGH:
        return None
    middle = median(norm for _, norm in norms)
    far = [(step, norm) for step, norm in norms if norm > SPIKE * middle]
    if not far or len(far) > 0.2 * len(norms):
        return None
    step, largest = max(far, key=lambda point: point[1])
    limit = case.settings.max_grad_norm
    held = limit is not None and limit <= SPIKE * middle
    return Finding(
        id="grad-norm",
        severity="info" if held else "warning",
        summary=(
            f"the gradient norm reached {largest:.3g} at step {step}, {largest / middle:.0f} times its median; "
            f"{len(far)} of {len(norms)} updates were over {SPIKE:g} times"
            f"{f', and max_grad_norm {limit:g} held them' if held else ''}"
        ),
        evidence={
            "largest": largest, "step": step, "median": middle, "spikes": len(far), "updates": len(norms),
            **({} if limit is None else {"max_grad_norm": limit}),
        },
        suggest=() if held else (f"max_grad_norm={4 * middle:.1g}",),
        advice="read the samples of that step: one odd reward or one very long completion is the usual cause",
        confidence="moderate",
    )  # fmt: skip


def _always_clipped(case: Case) -> Finding | None:
    """An info where nearly every gradient is clipped, so that every update has one length.

    ## always-clipped

    Severity: info (certain).

    Means: nine in ten gradients are above `max_grad_norm`: every update has the same length.

    Looks at: `grad_norm` and the setting.

    Confounder: none; whether it matters is another question, since Adam divides by the gradient's size anyway. What is
    lost is that uncertain steps are shorter.

    Do: nothing, or a larger `max_grad_norm`.
    """
    norms, limit = _gradients(case), case.settings.max_grad_norm
    if len(norms) < ENOUGH or limit is None:
        return None
    over = sum(norm > limit for _, norm in norms)
    if over < MOSTLY * len(norms):
        return None
    return Finding(
        id="always-clipped",
        severity="info",
        summary=(
            f"{over} of {len(norms)} gradients were above max_grad_norm {limit:g} (median "
            f"{median(norm for _, norm in norms):.3g}): every update has one length, whatever its gradient says"
        ),
        evidence={"clipped": over, "updates": len(norms), "max_grad_norm": limit},
        advice="Adam divides by the gradient's size anyway: what is lost is that uncertain steps are shorter",
        confidence="certain",
    )


def _rounding(case: Case) -> Finding | None:
    """Steps whose groups all had equal rewards, up to rounding, and whose advantages are not 0 all the same.

    ## rounding-as-signal

    Severity: warning from an advantage of 0.01 on, else info (certain).

    Means: all groups of a step had equal rewards up to a millionth, and advantages that are not 0: rounding divided by
    rounding.

    Looks at: `reward/group_std` (or `reward/std`) and the advantages.

    Confounder: rewards that really differ by less than a millionth of their size.

    Do: compute group statistics in float64, and set the advantages of a group of equal rewards to exactly 0;
    `advantage.eps=1e-4` keeps it harmless.

    Measured: sound TRL 1.16 runs have it: rewards of 0.2 in float32 give advantages of 1.5e-4 in groups of equal
    rewards, on 1 to 6 of 40 steps. Its eps of 1e-4 keeps that harmless; with an eps of 1e-8 it would not be.
    """
    baseline = case.settings.baseline_traits
    if case.settings.baseline is not None and (baseline is None or baseline.scope != "group"):
        return None
    if case.settings.reshaped:
        return None
    odd = [row for row in case.stage_rows if _is_rounding(row)]
    if not odd:
        return None
    row = max(odd, key=lambda row: number(row, "advantage/max_abs") or 0.0)
    step, largest = int(row.get("step") or 0), number(row, "advantage/max_abs") or 0.0
    eps, spread = case.settings.eps, number(row, "reward/group_std")
    return Finding(
        id="rounding-as-signal",
        severity="warning" if largest >= FELT else "info",
        summary=(
            f"on {len(odd)} steps the rewards of every group were equal and advantages reached {largest:.2g} (step "
            f"{step}{'' if spread is None else f', std inside the groups {spread:.1e}'}): rounding over rounding"
        ),
        evidence={
            "steps": len(odd), "step": step, "max_abs": largest,
            **({} if spread is None else {"group_std": spread}), **({} if eps is None else {"eps": eps}),
        },
        suggest=("advantage.eps=1e-4",) if eps is None or eps < 1e-4 else (),
        advice="compute group statistics in float64, and set the advantages of a group of equal rewards to exactly 0",
        confidence="certain",
    )  # fmt: skip


def _is_rounding(row: Row) -> bool:
    largest, spread, size = (number(row, name) for name in ("advantage/max_abs", "reward/group_std", "reward/mean"))
    if largest is None or largest <= NONE:
        return False
    if spread is not None:
        return spread <= EQUAL * max(abs(size or 0.0), 1e-3)
    return number(row, "groups/dead") == 1.0
