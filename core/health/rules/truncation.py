"""How many training completions were cut off at the limit, what they cost, and what the reward pays for them.

Counted stage by stage, from SHARE of a stage's completions on. Not said twice, and not of what others explain: every
completion cut off from the first step on (core.health.rules.end_token), completions that grew into the limit when the
policy or the sampler broke (policy_collapse, learning_rate, rollout_mode). Evaluations are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import fmean

from core.health.case import Case
from core.health.finding import Decider, Finding, Row, RuledOut
from core.health.rules.end_token import missing_eos
from core.health.rules.learning_rate import sampler_at_fault, too_large
from core.health.rules.policy_collapse import policy_collapse, unsound_start
from core.health.rules.rewards import Gap, gap
from core.health.statistics import thirds, trend
from core.health.steps import number, parted, values_of

SHARE = 0.3  # of a stage's completions
FEWEST = 3  # steps: fewer are said with less confidence
ROWS_OF_A_LINE = 8
NEAR = 0.9  # of the limit: a mean length that is longer leaves few that ended long before it
NEARLY_ALL = 0.95  # cut off and accepted: texts that fill the limit are meant
CLEAR = 3  # standard errors between the rewards of both kinds
LONG = 0.5  # of the limit: where those that end are so long, others of their kind are cut off
UNCOUNTED = 100  # completions that a step stands for where a log does not count them: only shares are made of it
_BROKE = ("policy-collapse", "limit-broken")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Step:
    """One row that tells how many of its completions were cut off."""

    row: Row
    count: float  # completions
    share: float  # of them cut off

    @property
    def rewards(self) -> Iterator[tuple[bool, float]]:
        """(ended by itself, mean reward) of its completions, as far as the row tells the two kinds apart."""
        mean, cut = number(self.row, "reward/mean"), number(self.row, "reward/truncated")
        if mean is None or number(self.row, "reward/missing"):
            return
        if self.share in (0, 1):
            yield from [(self.share == 0, mean)] * round(self.count)
        elif cut is not None:
            ended = (mean - self.share * cut) / (1 - self.share)
            yield from [(False, cut)] * round(self.share * self.count)
            yield from [(True, ended)] * round((1 - self.share) * self.count)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stage:
    """The steps of one stage, and the limit where the settings are that stage's."""

    steps: Sequence[_Step]
    limit: int | None

    @property
    def share(self) -> float:
        """Of all its completions, how many were cut off."""
        return sum(step.share * step.count for step in self.steps) / sum(step.count for step in self.steps)

    @property
    def token_share(self) -> float | None:
        """Of the sampled tokens, how many are in completions that were cut off: each of those has `limit` of them."""
        return None if self._tokens is None else self._tokens[0] / (self._tokens[0] + self._tokens[1])

    @property
    def ended_length(self) -> float | None:
        """Mean tokens of the completions that ended by themselves."""
        ended = sum((1 - step.share) * step.count for step in self.steps)
        return None if self._tokens is None or not ended else self._tokens[1] / ended

    @property
    def _tokens(self) -> tuple[float, float] | None:
        """Tokens of completions that were cut off, and of the others; None where a row does not fit the limit."""
        lengths = [number(step.row, "completions/length") for step in self.steps]
        if self.limit is None or any(length is None for length in lengths):
            return None
        cut = [step.share * step.count * self.limit for step in self.steps]
        all_ = [(length or 0.0) * step.count for length, step in zip(lengths, self.steps, strict=True)]
        fits = all(part <= whole * (1 + 1e-6) for part, whole in zip(cut, all_, strict=True))
        return (sum(cut), max(0.0, sum(all_) - sum(cut))) if fits else None

    @property
    def valid_at_least(self) -> float | None:
        """Share of the cut-off completions that are valid, at least: of v valid and c cut off, v + c - 1 are both."""
        known = [(step, valid) for step in self.steps if (valid := number(step.row, "completions/valid")) is not None]
        cut = sum(step.share * step.count for step, _ in known)
        return sum(max(0.0, valid + step.share - 1) * step.count for step, valid in known) / cut if cut else None

    @property
    def paid(self) -> Gap | None:
        """What completions that ended earned more than those that were cut off; None where a log does not tell."""
        earned = {index: rewards for index, step in enumerate(self.steps) if (rewards := list(step.rewards))}
        kinds = {ended for rewards in earned.values() for ended, _ in rewards}
        return gap(earned) if len(kinds) == 2 and len(earned) >= FEWEST else None


def truncation(case: Case) -> Sequence[Finding]:
    """A warning for each stage with SHARE of its completions cut off; an info where such texts may be meant.

    Silent where the stage learned to end them: its last third is below SHARE.

    ## truncation

    Severity: warning (certain from three steps on, moderate before, and where only lengths say it); info (moderate)
    where the length may be meant.

    Means: 30 % or more of a stage's training completions were cut off at `max_completion_length`. It counts what that
    cost and what the reward pays for it, and names no cause.

    Looks at: `completions/truncated`; evaluations are not counted. Without that column the share follows from
    `completions/length_ended` and the limit ((length - ended) / (limit - ended)), and a mean length of 90 % of the
    limit or more is said as what it is. With the cumulated `completions` (or K and the prompts of a step) it says how
    many; with `max_completion_length` and `completions/length` which share of the sampled tokens (share cut off x limit
    / mean length). A limit that the lengths contradict is left out.

    What the reward pays: `reward/truncated` is the mean reward of a step's truncated completions, so that of the others
    is (mean - share x cut) / (1 - share). Logs without it tell only on the steps where all or none were cut off, or,
    over eight rows or more, by whether the mean reward falls where more are cut off. The standard error of the
    difference has the step as its unit, as in `weak-reward`; beyond three of them the reward "pays less" or "pays
    more", otherwise it "does not tell them apart".

    Confounder: the following look like it and are not accused.

    - A stage that begins cut off and learns to stop: silent where its last third is below 30 %.
    - Texts that are meant to fill the limit: info, where most of those cut off are valid (with v valid and c cut off in
      a step, at least v + c - 1 are both) and they are 95 % of all, or earn clearly more than the others.
    - Every completion from the first step on: `missing-eos` reports it, with its two causes.
    - Completions that ended until something broke: where less than 30 % were cut off before the first update acted, and
      `policy-collapse`, `limit-broken` (of another column), `learning-rate` or the sampler explains the rest.
    - A warning of `unsound-start` or `limit-broken` about the same completions says no more than this, and is left out.
    - An evaluation that is cut off while training is not (another temperature): silent.

    Do: twice the limit where the completions that end take half of it or more, or where that is not known; otherwise
    `overlong.weight=1`, unless there is such a penalty already or the reward pays less for them as it is. Read some of
    them first.

    Measured: `grpoctl run g10 -p tiny`: 298 of 320 cut off at 64 tokens, 96 % of the tokens; all earned 0.
    """
    every = list(_stages(case))
    stages = [stage for stage in every if _to_the_end(stage)]
    if missing_eos(case) or _something_broke(case):
        return ()
    if not every and (long := _near_the_limit(case)) is not None:
        return (long,)
    return tuple(_finding(case, stage, alone=len(stages) == 1) for stage in stages)


def _stages(case: Case) -> Iterator[_Stage]:
    """The stages whose steps drew completions, each with its rows that tell how many were cut off."""
    rows, known = case.steps, case.settings
    drawn = [0.0, *(number(row, "completions") for row in rows)]
    made = [None if before is None or now is None else now - before for before, now in pairwise(drawn)]
    by_settings = (known.num_generations or 0) * (known.prompts_per_step or 0) * case.averaged_over
    steps = [
        _Step(row=row, count=count if count and count > 0 else by_settings or UNCOUNTED, share=share)
        for row, count in zip(rows, made, strict=True)
        if (share := _share_of(row, known.max_completion_length)) is not None
    ]
    for index, own in groupby(steps, key=lambda step: step.row.get("stage")):
        judged = known.stage is None or index in (None, known.stage)
        yield _Stage(steps=tuple(own), limit=known.max_completion_length if judged else None)


def _share_of(row: Row, limit: int | None) -> float | None:
    """The share cut off: as the log has it, else by the mean lengths of all and of those that ended."""
    share = number(row, "completions/truncated")
    length, ended = number(row, "completions/length"), number(row, "completions/length_ended")
    if share is not None or limit is None or length is None or ended is None or ended >= limit:
        return share
    return min(max((length - ended) / (limit - ended), 0.0), 1.0)


def _near_the_limit(case: Case) -> Finding | None:
    """A warning where nothing counts them, and the mean length is nearly the limit."""
    limit = case.settings.max_completion_length
    lengths = values_of(case.stage_rows, "completions/length")
    if not lengths or limit is None:
        return None
    last = lengths[-max(1, len(lengths) // 3) :]
    share = fmean(last) / limit
    if not NEAR <= share <= 1 + 1e-6:
        return None
    return Finding(
        id="truncation",
        severity="warning",
        summary=(
            f"completions have {fmean(last):,.0f} tokens on average, {share:.0%} of the limit of {limit:,} (first row "
            f"{lengths[0]:,.0f}): most are cut off, or end just before it; nothing counts them here"
        ),
        evidence={
            "length": fmean(last), "length_first": lengths[0], "max_completion_length": limit, "share_of_limit": share,
            "rows": len(lengths),
        },
        suggest=(f"max_completion_length={2 * limit}",),
        advice="count the completions that have no end token, and read some of them",
        confidence="moderate",
        decider=Decider(
            question="what share of the completions has no end token?",
            overrides=(f"max_completion_length={2 * limit}",),
            expects=(f"completions/truncated < {SHARE}",),
        ),
    )  # fmt: skip


def _grows(stage: _Stage) -> str:
    """Whether the share rises over the stage, in words; "" where that is not clear."""
    shares = [step.share for step in stage.steps]
    line = trend([(float(step.row.get("step") or place), step.share) for place, step in enumerate(stage.steps)])
    in_order = len(shares) >= FEWEST and all(one < two for one, two in pairwise(shares)) and line is None
    if (line is not None and line.z > CLEAR) or in_order:
        first, last = thirds(shares)
        return f"; it grows, from {first:.0%} to {last:.0%}"
    return ""


def _across_rows(stage: _Stage) -> str:
    """Whether rows with more of them earned less or more, in words; "" where that is not clear."""
    pairs = [(step.share, reward) for step in stage.steps if (reward := number(step.row, "reward/mean")) is not None]
    line = trend(pairs)
    if len(pairs) < ROWS_OF_A_LINE or line is None or abs(line.z) <= CLEAR:
        return ""
    less = "less" if line.slope < 0 else "more"
    return f"rows with more of them earned {less} ({line.slope:+.2g} from none to all, standard error {line.se:.2g})"


def _to_the_end(stage: _Stage) -> bool:
    last = stage.steps[-max(FEWEST, len(stage.steps) // 3) :]
    return min(stage.share, fmean(step.share for step in last)) >= SHARE - 1e-9  # of counts: 0.3 is 0.3


def _something_broke(case: Case) -> bool:
    """Whether completions ended at first, and were cut off when the sampler, the rate or the policy broke."""
    before, _ = parted(case.rows)
    first = [share for row in before if (share := number(row, "completions/truncated")) is not None]
    if not first or fmean(first) >= SHARE:
        return False
    broke = any(finding.id in _BROKE and not _is_of_the_same(finding) for finding in case.once(policy_collapse))
    return broke or sampler_at_fault(case) or case.once(too_large) is not None


def _finding(case: Case, stage: _Stage, *, alone: bool) -> Finding:
    counted = all(number(step.row, "completions") is not None for step in stage.steps)
    drawn, steps = sum(step.count for step in stage.steps), len(stage.steps) * case.averaged_over
    first, last = (int(step.row.get("step") or 0) for step in (stage.steps[0], stage.steps[-1]))
    paid, meant = stage.paid, _may_be_meant(stage)
    limit, tokens, length = stage.limit, stage.token_share, stage.ended_length
    masked = case.settings.mask_truncated_completions if limit is not None else None
    summary = (
        f"{stage.share:.0%} of the training completions"
        + (f" ({stage.share * drawn:,.0f} of {drawn:,.0f})" if counted else "")
        + ("" if alone else f" of steps {first} to {last}")
        + " were cut off"
        + ("" if limit is None else f" at {limit:,} tokens")
        + ("" if tokens is None else f", {tokens:.0%} of the tokens sampled")
        + ("; nothing was learned from them" if masked else "; none has an end to learn from")
        + f"; {_pay(stage)}"
        + _grows(stage)
        + ("; texts that fill the limit may be meant" if meant else "")
    )
    longer = () if limit is None else (f"max_completion_length={2 * limit}",)
    return Finding(
        id="truncation",
        severity="info" if meant else "warning",
        summary=summary,
        evidence={
            "truncated": stage.share,
            "truncated_first": stage.steps[0].share,
            "truncated_last": stage.steps[-1].share,
            "first_step": first,
            "last_step": last,
            **({"completions": drawn, "completions_cut": round(stage.share * drawn)} if counted else {}),
            **({} if limit is None else {"max_completion_length": limit}),
            **({} if tokens is None else {"tokens": tokens}),
            **({} if length is None else {"ended_length": length}),
            **({} if stage.valid_at_least is None else {"cut_valid_at_least": stage.valid_at_least}),
            **({} if paid is None else {
                "reward_cut": paid.invalid, "reward_ended": paid.valid, "difference": paid.value, "se": paid.se,
            }),
        },
        suggest=() if meant else _suggested(case, stage, longer),
        advice=(
            "read some of them: one that is cut in the middle of its work wants a larger limit, one that rambles a "
            "reward that pays less for it, or a supervised stage on answers that end"
        ),
        confidence="moderate" if meant or steps < FEWEST else "certain",
        decider=Decider(
            question="do completions end when they may be twice as long? Else they want a reason to",
            overrides=longer,
            expects=(f"completions/truncated < {SHARE}",),
        ),
        rules_out=_same_said(case),
    )  # fmt: skip


def _same_said(case: Case) -> tuple[RuledOut, ...]:
    """`unsound-start` and `limit-broken` where they say the same: nearly all are cut off, and no harm is known."""
    same = {finding.id for finding in (*unsound_start(case), *case.once(policy_collapse)) if _is_of_the_same(finding)}
    return tuple(RuledOut(id=id_, why="that nearly all are cut off is all it says") for id_ in sorted(same))


def _is_of_the_same(finding: Finding) -> bool:
    harmless = finding.id == "limit-broken" or (finding.id == "unsound-start" and finding.severity == "warning")
    return harmless and finding.evidence["metric"] == "completions/truncated"


def _may_be_meant(stage: _Stage) -> bool:
    """Most of the cut-off completions are valid, and they are nearly all, or earn clearly more than the others."""
    valid, paid = stage.valid_at_least, stage.paid
    if valid is None or valid <= 0.5:
        return False
    return stage.share >= NEARLY_ALL or (paid is not None and -paid.value > CLEAR * paid.se)


def _pay(stage: _Stage) -> str:
    """What they earned, against the others; no more than the log tells."""
    paid = stage.paid
    if paid is None:
        earned = [reward for step in stage.steps for ended, reward in step.rewards if not ended]
        if earned and stage.share == 1:
            return f"they earned {fmean(earned):.3g}, and no other was there to compare with"
        return _across_rows(stage) or "what the reward pays for them is not told apart here"
    numbers = f"they earned {paid.invalid:.3g}, the others {paid.valid:.3g} (standard error {paid.se:.2g})"
    if paid.value > CLEAR * paid.se:
        return f"{numbers}: the reward pays less for them"
    if -paid.value > CLEAR * paid.se:
        return f"{numbers}: the reward pays more for them"
    return f"{numbers}: the reward does not tell them apart"


def _suggested(case: Case, stage: _Stage, longer: tuple[str, ...]) -> tuple[str, ...]:
    """A larger limit where completions that end come near it; else a price, where there is none yet."""
    length, paid = stage.ended_length, stage.paid
    if stage.limit is None or length is None or length >= LONG * stage.limit:
        return longer
    priced = case.settings.overlong or (paid is not None and paid.value > CLEAR * paid.se)
    return () if priced else ("overlong.weight=1",)
