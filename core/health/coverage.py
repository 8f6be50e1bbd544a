"""What of a run could be looked at: which rules had what they need, and whether that is enough to call a run sound.

What is here: the least that each rule cannot do without, by the rule's name in examine.RULES. What is not: what a rule
then says. A rule that has its columns may still be silent for want of rows; an all-clear needs rows, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import median

from core.health.case import Case
from core.health.statistics import series, trend
from core.health.steps import values_of

ROWS = 10  # of training: fewer are an excerpt
STEPS = 20  # that those rows stand for
LEARNED = 2.0  # standard errors of a trend: below it the reward may have stood still

_REWARDS = "reward/mean | rewards/*"
_GAP = "rollout/logprob_gap | sampler/prob_gap | sampler/kl | sampler/correlation | sampler/ratio_mean"
_SPREAD = "groups/dead | reward/group_std | reward/std | reward/function_std/* | advantage/std | advantage/std_all"
_KL = "kl | kl/whole"
_TRUNCATED = "completions/truncated"
# All that a rule needs; one of the names between bars is enough. `settings.x` is a setting, `samples` completions.
NEEDS: Mapping[str, Sequence[str]] = {
    "initial-weights": ("init/taken",),
    "rollout-mode": ("completions/valid | completions/truncated", "update | learning_rate"),
    "integrity": (_GAP,),
    "sampler-mismatch": (
        "sampler/prob_gap | sampler/correlation | sampler/kl | sampler/masked | sampler/ratio_mean | policy/loss",
    ),
    "completion-mask": ("policy/tokens", "policy/tokens_drawn"),
    "self-probe": ("probe/*",),
    "clip-before-backward": ("grad_norm", "grad_share/*"),
    "frozen-log-probs": ("policy/ratio_max", "settings.updates_per_rollout"),
    "advantages": ("samples",),
    "leakage": ("groups/held_out | samples",),
    "missing-eos": (_TRUNCATED,),
    "no-gradient": ("grad_norm",),
    "zero-kl": ("kl", "grad_norm"),
    "rate-zero": ("learning_rate",),
    "learning-rate": ("kl | entropy | reward/mean | completions/valid", "learning_rate | settings.learning_rate"),
    "dead-run": ("reward/mean",),
    "policy-collapse": ("completions/valid | entropy | completions/truncated | completions/length",),
    "level-break": ("reward/mean | completions/valid | completions/length",),
    "truncation": (_TRUNCATED,),
    "numerical": ("loss | grad_norm | kl | policy/loss | reward/mean",),
    "kl": (_KL, "beta | settings.beta"),
    "kl-level": (_KL,),
    "runaway": ("entropy | grad_norm | policy/loss | loss",),
    "reward-hacking": (
        "reward/mean",
        "eval/reward | completions/valid | rewards/* | reward/true | reward/hacked | reward/hacks",
    ),
    "no-signal": (_SPREAD,),
    "group-of-one": ("settings.num_generations | advantage/max",),
    "missing-rewards": ("reward/missing",),
    "lost-rewards": ("reward/mean",),
    "idle-reward": ("rewards/*",),
    "proxy-reward": ("rewards/*",),
    "component-conflict": ("rewards/*",),
    "free-reward": (_REWARDS,),
    "batch-std": ("reward/std", "groups/dead"),
    "few-live-groups": ("advantage/group_std | advantage/std_all", "settings.group_sizes | advantage/group_max"),
    "killed-by-choice": ("settings.group_sizes", "groups/dead"),
    "impossible-advantage": ("advantage/std | advantage/std_all", "settings.scale_rewards"),
    "odd-advantages": ("advantage/mean", "advantage/max_abs"),
    "small-advantage": ("advantage/std | advantage/std_all", "settings.scale_rewards"),
    "overfitting": ("eval/reward", "reward/mean"),
    "gain": ("eval/reward",),
    "reward-stood": ("reward/mean",),
    "missed-stop": ("eval/reward",),
    "no-validation": ("reward/mean",),
    "small-groups": ("settings.num_generations",),
    "weak-reward": ("reward/mean", "reward/std | reward/group_std"),
    "policy-loss": ("policy/loss",),
    "zero-loss": ("loss | policy/loss",),
    "supervised-flat": ("supervised/loss",),
    "consistency": ("consistency/loss | losses/consistency",),
    "inert-live": ("policy/clip_low | policy/clip_high | policy/clip_share",),
}
# What has to be known before the absence of findings says something: what was asked, and a column that answers it.
QUESTIONS: Mapping[str, str] = {
    "what the reward is": "reward/mean | eval/reward",
    "whether rewards inside a group differ": f"{_SPREAD} | advantage/max",
    "how far the policy moves": f"{_KL} | policy/kl_old | policy/ratio_max | {_GAP} | eval/reward",
    "whether gradients are sound": "grad_norm",
    "what completions look like": (
        "completions/length | completions/truncated | completions/valid | entropy | differential_entropy"
    ),
    "what held-out prompts earn": "eval/*",
}


# (column, whether it is of tokens) -> (a level that few sound runs end at, whether more is worse). No rule accuses for
# it, since some do; an all-clear is another matter.
LEVELS: Mapping[tuple[str, bool], tuple[float, bool]] = {
    ("kl", True): (0.5, True),
    ("completions/truncated", True): (0.3, True),
    ("groups/dead", False): (0.8, True),
    ("entropy", True): (0.01, False),
    ("grad_norm", False): (1e3, True),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """What was looked at. `missing`: what rules that could not run lack. `open_questions`: why silence says little."""

    rows: int
    columns: tuple[str, ...]
    rules: tuple[str, ...]
    missing: Mapping[str, tuple[str, ...]]
    open_questions: tuple[str, ...]

    @property
    def is_enough(self) -> bool:
        """Whether a run without findings may be called sound."""
        return not self.open_questions


def coverage(case: Case, rules: Sequence[str]) -> Coverage:
    """What of the case these rules could look at; a rule without a row in NEEDS counts as run."""
    rows = case.steps
    present = {name for row in case.rows for name in row} - {"step"}
    known = {
        f"settings.{name}"
        for name in (field.name for field in fields(case.settings))
        if getattr(case.settings, name) is not None
    }
    has = present | known | ({"samples"} if case.samples else set())

    def there(alternatives: str) -> bool:
        return any(_is_there(name, has) for name in alternatives.split(" | "))

    of_tokens = case.settings.factor is None  # else nothing can be cut off, and no rule on that is missed
    rules = [rule for rule in rules if of_tokens or _TRUNCATED not in NEEDS.get(rule, ())]
    lacks = {rule: tuple(need for need in NEEDS.get(rule, ()) if not there(need)) for rule in rules}
    return Coverage(
        rows=len(rows),
        columns=tuple(sorted(present)),
        rules=tuple(rule for rule in rules if not lacks[rule]),
        missing={rule: what for rule, what in lacks.items() if what},
        open_questions=tuple(_open(case, [question for question, answer in QUESTIONS.items() if not there(answer)])),
    )


def pooled(parts: Sequence[Coverage]) -> Coverage:
    """What of several runs was looked at: a rule ran where one of them had what it needs; enough is enough of each."""
    if len(parts) == 1:
        return parts[0]
    ran = tuple(dict.fromkeys(rule for part in parts for rule in part.rules))
    lacks = {rule: what for part in parts for rule, what in part.missing.items() if rule not in ran}
    return Coverage(
        rows=sum(part.rows for part in parts),
        columns=tuple(sorted({column for part in parts for column in part.columns})),
        rules=ran,
        missing=lacks,
        open_questions=tuple(dict.fromkeys(question for part in parts for question in part.open_questions)),
    )


def _is_there(name: str, has: set[str]) -> bool:
    return any(known.startswith(name[:-1]) for known in has) if name.endswith("/*") else name in has


def _open(case: Case, unanswered: Sequence[str]) -> list[str]:
    """What is not known of the run, in words; nothing where its silence says something."""
    rows = len(case.steps)
    steps = rows * case.averaged_over
    said = []
    if is_excerpt(case):
        said.append(f"{rows} rows of {steps} steps are an excerpt: {ROWS} rows of {STEPS} steps are the least")
    said += [f"it is not known {question}" for question in unanswered]
    if not said and not learned(case):
        said.append("the reward did not rise beyond noise, and nothing says why")
    return said or _unusual(case)


def _unusual(case: Case) -> list[str]:
    """What no finding names and nobody would call sound: levels at the end of the run that need a look."""
    said = []
    for (name, of_tokens), (limit, more) in LEVELS.items():
        values = values_of(case.stage_rows, name)
        if not values or (of_tokens and case.settings.factor is not None):
            continue
        level = median(values[-max(1, len(values) // 5) :])
        if level > limit if more else level < limit:
            said.append(f"{name} is {level:.3g} at the end, {'above' if more else 'below'} what sound runs have")
    return said


def is_excerpt(case: Case) -> bool:
    """Whether the case is too short to show that a reward stands still."""
    rows = len(case.steps)
    return rows < ROWS or rows * case.averaged_over < STEPS


def learned(case: Case) -> bool:
    """Whether the reward rose, in training or on held-out prompts, by more than noise."""
    for column in ("reward/mean", "eval/reward"):
        line = trend(series(case.steps, column))
        if line is not None and line.z > LEARNED:
            return True
    held_out = series(case.rows, "eval/reward")
    errors = [error for _, error in series(case.rows, "eval/reward_se")]
    if len(held_out) < 2 or len(errors) < 2:
        return False
    return held_out[-1][1] - held_out[0][1] > LEARNED * math.hypot(errors[0], errors[-1])
