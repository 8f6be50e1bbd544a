"""What the numbers of a failed run look like to somebody who has seen many: its causes, the likeliest first.

Each cause begins with points for how often authors tell it, and clues add to them or take from them: a plain condition
on courses of columns (a reward that fell from its peak, half of the completions cut off) and what it is worth. The
points were written down as a reader's judgement of which of several true things an author would call the cause, without
any label; how often its first two causes are right is measured (docs/diagnosing.md, docs/decisions/0039). What follows
for a report is a chance (likeness), never a finding by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from core.health.appearance import Holds, Look, falls_below, grew, is_never_paid, validity_fell
from core.health.case import Case
from core.health.rules.reward_parts import is_answer

USUAL = {  # cause -> points before any clue
    "no-gain": 2.0, "dead-groups": 1.45, "policy-collapse": 1.0, "noise": 0.6, "reward-hacking": 0.55,
    "learning-rate": 0.45, "truncation": 0.4, "weak-reward": 0.35, "dead-run": 0.2, "proxy-reward": 0.0,
    "overfitting": 0.0, "unsound-start": 0.0, "constant-reward": -0.2, "entropy-collapse": -0.3, "kl-runaway": -0.3,
    "grad-explosion": -0.5, "kl-weight": -0.5, "component-conflict": -0.7, "rollout-integrity": -0.7,
    "free-reward": -0.8, "missing-eos": -0.8, "no-gradient": -0.8, "numerical": -0.8, "sampler-mismatch": -0.8,
    "converged": -1.0, "inert-clip": -1.0, "zero-loss": -1.0, "few-live-groups": -1.2, "kl-idle": -1.2,
    "negative-kl": -1.2, "no-updates": -1.2, "small-groups": -1.2, "ratio-explosion": -1.4, "validity-fell": -1.4,
    "group-of-one": -1.5, "rate-zero": -1.6,
}  # fmt: skip
_OF_HURT = 1.15  # points for policy-collapse


class Clue(NamedTuple):
    """What is so of a run, and the points that it gives to causes."""

    holds: Holds
    points: Mapping[str, float]


def _clue(holds: Holds, /, **points: float) -> Clue:
    return Clue(holds, {cause.replace("_", "-"): worth for cause, worth in points.items()})


def _is_flat(it: Look) -> bool:
    return it.reward.count > 2 and not it.stands and (abs(it.rise) < 0.12 or not it.is_clear)


def _parts_from_its_aim(it: Look) -> bool:
    """Whether what the reward stands in for (reward/true) falls while it does not, or stands while it rises."""
    aim = it["reward/true"]
    stands = it.reward.count > 2 and it.reward.gain > -it.reward.error
    falls = stands and aim.peak - aim.late > max(0.05 * aim.size, 2 * aim.error)
    return aim.count > 1 and (falls or (it.rises and aim.gain <= 0))


def _only_form_rises(it: Look) -> bool:
    """Whether a part of the form rises, and none of the answer, though one is paid."""
    still = all(part.gain <= max(0.05 * part.size, part.error) for part in it.right)
    rising = any(is_answer(name) is False for name in it.rising)
    return len(it.parts) > 1 and bool(it.right) and not it.never_right and still and rising


def _is_at_a_limit(it: Look) -> bool:
    """Whether the longest completion of each row is at one limit."""
    longest = it["completions/longest"]
    at_one = max(sum(abs(length - limit) < 0.01 * limit for length in longest.values) for limit in it.limits)
    return longest.count > 0 and at_one > 0.9 * longest.count


def _narrows(it: Look, share: float, below: float) -> bool:
    entropy = it["entropy"]
    return entropy.count > 2 and entropy.most < 30 and entropy.late < min(share * entropy.early, below)


def _ends_broken(it: Look) -> bool:
    """Whether one of these columns is no number in the last eighth of the rows."""
    last = it.rows[-max(1, len(it.rows) // 8) :]
    return any(row.get(name, 0.0) is None for row in last for name in it.broken)


def _ends_long(it: Look) -> bool:
    """Whether completions come to nine tenths of the limit."""
    lengths = it["completions/length"]
    return lengths.count > 0 and lengths.late >= 0.9 * (it.settings.max_completion_length or math.inf)


def _grows_short(it: Look) -> bool:
    return it["completions/length"].count > 3 and falls_below(it["completions/length"], 0.45)


def _says_nothing(it: Look) -> bool:
    return it["completions/length"].count > 0 and it["completions/length"].mean < 3


def _has_no_rate(it: Look) -> bool:
    rates = it["learning_rate"]
    return (rates.count > 0 and rates.most == 0) or it.settings.learning_rate == 0


def _narrows_at_once(it: Look) -> bool:
    return it["entropy"].count == 2 and it["entropy"].most < 30 and falls_below(it["entropy"], 0.6)


def _is_narrow(it: Look) -> bool:
    return it["entropy"].count > 0 and it["entropy"].mean < 0.06


def _other_parts_rise(it: Look) -> bool:
    """Whether a part rises that does not judge the answer."""
    return any(not is_answer(name) for name in it.rising)


def _pays_form_alone(it: Look) -> bool:
    """Whether no answer is ever right, and a part that judges none pays or rises."""
    paid = any(part.late > 0.1 or part.gain > 0.1 * part.size for part in it.form)
    return len(it.parts) > 1 and it.never_right and (paid if it.form else _other_parts_rise(it))


def _gradients_are_huge(it: Look) -> bool:
    return it["grad_norm"].most > (1e4 if it["grad_norm"].count > 1 else 1e3)


def _gradients_spike(it: Look) -> bool:
    norms = it["grad_norm"]
    return norms.count > 5 and norms.most > max(20, 30 * max(norms.median, 1e-3))


def _gradients_grow(it: Look) -> bool:
    norms = it["grad_norm"]
    at_once = norms.count in (2, 3, 4) and norms.late > max(100, 8 * norms.early)
    return at_once or (norms.count > 3 and norms.late > max(3, 8 * norms.early))


_OF_GROUPS = (
    _clue(lambda it: it.dies(0.9), dead_groups=2.8),
    _clue(lambda it: it.dies(0.6, 0.9), dead_groups=2.2),
    _clue(lambda it: it.dies(0.4, 0.6), dead_groups=1.1),
    _clue(lambda it: it.dies(0.25, 0.4), dead_groups=0.4),
    _clue(lambda it: it.dies(-1, 0.25), dead_groups=-0.7),
    _clue(lambda it: it.dies(0.97), no_gain=-0.5, dead_run=0.3),
    _clue(lambda it: it.dies(0.7, 0.97), few_live_groups=0.8),
    _clue(lambda it: it.no_gradient >= 0.4 and not 0 <= it.no_loss < 0.4 and not it.dies(-1, 0.5), dead_groups=1.2),
    _clue(lambda it: it.no_gradient >= 0.95 and not 0 <= it.no_loss < 0.4, dead_groups=0.5, no_gradient=1.2),
    _clue(lambda it: it.no_gradient >= 0.95 and 0 <= it.no_loss < 0.5, no_gradient=3.2, dead_groups=-0.5),
    _clue(lambda it: it.no_gradient >= 0.95 and it.dies(-1, 0.5), no_gradient=2.0),
    _clue(lambda it: it.no_loss == 1 and 0 <= it.no_gradient < 0.3, zero_loss=1.2),
    _clue(lambda it: it["policy/clip_share"].count > 2 and it["policy/clip_share"].most == 0 and it.no_gradient < 0.5,
          inert_clip=0.5),
    _clue(lambda it: (it.settings.num_generations or 9) <= 2, small_groups=0.8),
    _clue(lambda it: it.settings.num_generations == 1, group_of_one=3.5),
)  # fmt: skip
_OF_A_REWARD_THAT_STANDS = (
    _clue(lambda it: it.at_floor, dead_groups=1.1, unsound_start=0.5),
    _clue(lambda it: it.at_floor and it.stands, dead_run=1.9),
    _clue(lambda it: it.at_floor and not it.stands, dead_run=0.9, no_gain=0.6),
    _clue(lambda it: it.at_floor and it["grad_norm"].mean > 0.02 and not it.dies(0.5), dead_run=-0.6),
    _clue(lambda it: it.stands and not it.at_floor, constant_reward=1.4, dead_groups=0.2 ),
    _clue(lambda it: it.stands and not it.at_floor and it.dead is None, dead_groups=0.7),
    _clue(lambda it: not it.stands and not it.at_floor and it.mostly_one, constant_reward=1.7, dead_groups=1.3),
    _clue(lambda it: it.at_top, dead_groups=0.5, reward_hacking=0.5, no_gain=-0.9),
    _clue(lambda it: it.at_top and it.reward.early >= 0.9, constant_reward=0.8, converged=1.2, dead_groups=0.5),
    _clue(_is_flat, no_gain=1.0),
    _clue(lambda it: _is_flat(it) and (it.reward.count <= 12 or it.unrest > 0.25), noise=0.5),
    _clue(lambda it: _is_flat(it) and it.reward.count >= 12 and it.unrest < 0.1 and not it.dies(0.5), weak_reward=0.2),
    _clue(lambda it: not _is_flat(it) and it.rises, no_gain=-0.5),
    _clue(lambda it: it.reward.count == 1 and not it.at_floor, no_gain=0.2),
    _clue(lambda it: not it.reward.count and not it.held_out.count, no_gain=-0.3),
    _clue(lambda it: it.reward.count > 1 and it.unrest > 0.35 and not it.evaluations_fell, noise=0.8),
    _clue(lambda it: (it.settings.prompts_per_step or 9) <= 1 and it.unrest > 0.2, noise=0.7),
    _clue(lambda it: it.reward.count > 4 and not it.stands and it.dead is None and not it.parts and it.unrest > 0.1
                     and not it["grad_norm"].count, noise=0.3),
)  # fmt: skip
_OF_EVALUATIONS = (
    _clue(lambda it: it.held_out.count > 1 and abs(it.learned) < 0.12, no_gain=0.8, noise=0.5, dead_groups=-0.4),
    _clue(lambda it: it.held_out.count > 2 and it.forgot < 0.3
                     and it.held_out.scatter > 0.1 * max(it.held_out.peak, 0.05), noise=0.9),
    _clue(lambda it: it.held_out.count > 1 and not it.reward.count, noise=0.4, dead_groups=-0.8),
    _clue(lambda it: it.rises and it.held_out.count > 1 and it.learned < 0.05,
          reward_hacking=1.2, overfitting=1.7, no_gain=0.3),
    _clue(lambda it: it.rises and it.held_out.count > 1 and it.learned < 0.05 and it.held_out.peak < 0.02,
          reward_hacking=0.8, overfitting=-0.6),
    _clue(lambda it: it.held_out.count > 2 and it.held_out.peak < 0.15 and it.forgot < 0.07 and it.rises,
          proxy_reward=1.6),
)  # fmt: skip
_OF_A_BREAK = (
    _clue(lambda it: it.hurt == 0 and it.reward.count > 2, policy_collapse=-0.6),
    _clue(lambda it: it.hurt >= 1.5, learning_rate=0.5),
    _clue(lambda it: it.hurt >= 1.5 and (it.held_out.count < 2 or it.evaluations_fell), no_gain=-0.4),
    _clue(lambda it: it.hurt >= 1.5 and not it.dies(0.4), dead_groups=-0.6),
    _clue(lambda it: it.hurt >= 1.5 and (it.settings.learning_rate or 0) >= 2e-5, learning_rate=0.5),
    _clue(validity_fell, validity_fell=1.2),
    _clue(lambda it: it["completions/valid"].count > 1 and it.rise > 0.1
                     and (validity_fell(it) or it["completions/valid"].late < 0.3),
          reward_hacking=1.0),
)  # fmt: skip
_OF_A_REWARD_THAT_RISES = (
    _clue(lambda it: it.rises, reward_hacking=0.8, overfitting=0.2),
    _clue(lambda it: it.rises and it.rise > 0.4 and not it.hurt, reward_hacking=0.5, no_gain=-0.4),
    _clue(lambda it: it.rises and not it.dies(0.4), dead_groups=-0.4),
    _clue(_parts_from_its_aim, reward_hacking=3.0),
    _clue(lambda it: it["reward/hacked"].late > 0.2, reward_hacking=2.5),
    _clue(lambda it: len(it.parts) == 1 and bool(it.form) and it.form[0].gain > 0.15
                     and it.reward.late < 0.5 * it.form[0].late, proxy_reward=2.2),
    _clue(lambda it: any(part.count == 2 and part.gain > 0.2 * part.size for part in it.form)
                     and any(part.count == 2 and part.gain < -0.3 * part.size for part in it.right),
          proxy_reward=2.0, reward_hacking=1.2, policy_collapse=0.6),
    _clue(_pays_form_alone, proxy_reward=2.7, weak_reward=0.3, unsound_start=0.5),
    _clue(lambda it: it.never_right and not it.form and _other_parts_rise(it), reward_hacking=0.9),
    _clue(_only_form_rises, proxy_reward=2.0, reward_hacking=0.9),
    _clue(lambda it: bool(it.rising and it.sinking), component_conflict=1.6, reward_hacking=0.6, proxy_reward=0.4),
    _clue(lambda it: it.rises and not any(map(is_never_paid, it.right))
                     and 0 < sum(0 <= part.late < 0.05 for part in it.parts.values()) < len(it.parts),
          reward_hacking=0.6, proxy_reward=1.2),
    _clue(lambda it: _grows_short(it) and it.rise > 0.03 and not it.hurt,
          reward_hacking=1.0),
    _clue(lambda it: it["completions/length"].early > 30 and falls_below(it["completions/length"], 0.25),
          reward_hacking=0.6),
    _clue(lambda it: falls_below(it["tools/calls"], 0.5) and it["tools/calls"].early > 0.3,
          reward_hacking=1.2, policy_collapse=0.3),
)  # fmt: skip
_OF_LENGTH = (
    _clue(lambda it: it.is_cut(0.8), truncation=3.2),
    _clue(lambda it: it.is_cut(0.5, 0.8), truncation=2.5),
    _clue(lambda it: it.is_cut(0.25, 0.5), truncation=1.6),
    _clue(lambda it: it.is_cut(0.12, 0.25), truncation=0.7),
    _clue(lambda it: it.is_cut(-1, 0.12), truncation=-0.6),
    _clue(lambda it: it.is_cut(0.8) and it["completions/truncated"].count > 1, missing_eos=0.2),
    _clue(lambda it: it.is_cut(0.97) and it["completions/truncated"].count > 1, missing_eos=0.4),
    _clue(lambda it: it["completions/truncated"].count > 2 and it["completions/truncated"].gain > 0.3,
          truncation=1.2, policy_collapse=0.3),
    _clue(lambda it: it["completions/truncated"].gain > 0.3 and it.rises, reward_hacking=0.9),
    _clue(lambda it: it.cut is None and _ends_long(it), truncation=1.6),
    _clue(lambda it: it.cut is None and not _ends_long(it) and _is_at_a_limit(it), truncation=1.0),
    _clue(lambda it: it.cut is None and grew(it["completions/length"], 1.8, 100.0), truncation=1.1),
    _clue(_says_nothing, rollout_integrity=1.5, free_reward=0.7),
)  # fmt: skip
_OF_ENTROPY = (
    _clue(lambda it: _narrows(it, 0.35, 1.0) and it["entropy"].late < 0.1, entropy_collapse=0.8),
    _clue(lambda it: _narrows(it, 0.35, 1.0), entropy_collapse=1.8),
    _clue(lambda it: _narrows(it, 0.35, 1.0) and it.hurt > 0, entropy_collapse=0.3),
    _clue(_narrows_at_once, entropy_collapse=2.6),
    _clue(lambda it: not _narrows(it, 0.35, 1.0) and not _narrows_at_once(it) and _is_narrow(it),
          entropy_collapse=1.2, dead_groups=0.3),
    _clue(lambda it: not _narrows(it, 0.35, 1.0) and not _is_narrow(it) and it["entropy"].count > 4
                     and _narrows(it, 0.5, 30.0), entropy_collapse=0.9),
    _clue(lambda it: it["completions/distinct"].count > 2 and falls_below(it["completions/distinct"], 0.5),
          entropy_collapse=2.0),
)  # fmt: skip
_OF_KL = (
    _clue(lambda it: it["kl"].most > 1e4, kl_runaway=4.5, numerical=1.5),
    _clue(lambda it: 50 < it["kl"].most <= 1e4 and not (it["kl"].count > 20 and it["kl"].early > 0.3 * it["kl"].peak),
          kl_runaway=3.4),
    _clue(lambda it: 5 < it["kl"].most <= 50 and (it["kl"].count < 4 or it["kl"].peak > 3 * it["kl"].early),
          kl_runaway=1.2),
    _clue(lambda it: 5 < it["kl"].most <= 50, kl_runaway=1.0),
    _clue(lambda it: 1 < it["kl"].most <= 5, kl_runaway=1.6),
    _clue(lambda it: 0.4 < it["kl"].most <= 1 and it["kl"].late > 20 * max(abs(it["kl"].early), 1e-4), kl_runaway=0.9),
    _clue(lambda it: it["kl"].share(lambda kl: kl < -0.003) >= 0.5, negative_kl=2.6),
    _clue(lambda it: it["kl"].share(lambda kl: kl < -0.003) >= 0.5 and it["kl"].least < -0.05, negative_kl=1.6),
    _clue(lambda it: it["kl"].count > 2 and it["kl"].size < 2e-3 and it.reward.count > 0 and not it.stands
                     and not it.dies(0.6) and not (it["kl"].most == 0 and it.settings.beta == 0),
          learning_rate=0.8, kl_idle=1.2, no_gain=0.3),
    _clue(lambda it: it["kl"].count > 0 and (it.settings.beta or 0) >= 0.2, kl_weight=1.2),
    _clue(lambda it: 0.5 < it["policy/kl_old"].most < 1e4, sampler_mismatch=2.0, ratio_explosion=0.8),
)  # fmt: skip
_OF_THE_UPDATE = (
    _clue(_has_no_rate, rate_zero=1.4, no_updates=1.0),
    _clue(lambda it: 0 < (it.settings.learning_rate or 1) <= 1e-7, learning_rate=2.0),
    _clue(lambda it: 1e-7 < (it.settings.learning_rate or 1) <= 5e-7, learning_rate=0.7),
    _clue(lambda it: 3e-5 <= (it.settings.learning_rate or 0) < 1e-4, learning_rate=0.3),
    _clue(lambda it: (it.settings.learning_rate or 0) >= 1e-4, learning_rate=0.6),
    _clue(lambda it: bool(it.broken), numerical=2.8),
    _clue(lambda it: bool(it.broken) and _ends_broken(it), numerical=1.2),
    _clue(lambda it: bool(it.broken) and _ends_broken(it) and not it.at_floor, policy_collapse=0.8),
    _clue(lambda it: any(it[name].missed and not it[name].count for name in ("grad_norm", "loss")),
          numerical=0.8, entropy_collapse=-0.8),
    _clue(_gradients_are_huge, grad_explosion=3.0),
    _clue(lambda it: not _gradients_are_huge(it) and _gradients_grow(it), grad_explosion=2.7),
    _clue(lambda it: not _gradients_are_huge(it) and not _gradients_grow(it) and _gradients_spike(it),
          grad_explosion=1.7),
    _clue(lambda it: not (_gradients_are_huge(it) or _gradients_grow(it) or _gradients_spike(it))
                     and it["grad_norm"].count > 3 and it["grad_norm"].mean > 100, grad_explosion=0.8),
    _clue(lambda it: it["sampler/kl"].most > 0.2 or (it["sampler/kl"].most > 0.02 and grew(it["sampler/kl"], 10, 0)),
          sampler_mismatch=3.4),
    _clue(lambda it: it["sampler/prob_gap"].most > 0.03, sampler_mismatch=1.8),
    _clue(lambda it: it["sampler/correlation"].count > 0 and it["sampler/correlation"].least < 0.95,
          sampler_mismatch=2.2),
    _clue(lambda it: it["sampler/ratio_max"].most > 5, sampler_mismatch=1.2, ratio_explosion=1.5),
)  # fmt: skip
CLUES: Sequence[Clue] = (
    *_OF_GROUPS, *_OF_A_REWARD_THAT_STANDS, *_OF_EVALUATIONS, *_OF_A_BREAK, *_OF_A_REWARD_THAT_RISES, *_OF_LENGTH,
    *_OF_ENTROPY, *_OF_KL, *_OF_THE_UPDATE,
)  # fmt: skip


def looks_like(case: Case) -> list[str]:
    """The causes that a failed run looks like, the likeliest first."""
    look = Look(case)
    points = {**USUAL, "policy-collapse": USUAL["policy-collapse"] + _OF_HURT * look.hurt}
    for clue in CLUES:
        if clue.holds(look):
            for cause, worth in clue.points.items():
                points[cause] += worth
    return sorted(points, key=lambda cause: -points[cause])
