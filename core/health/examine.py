"""Every rule over a whole case, the most telling first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from core import plugins
from core.health.advantage_mismatch import advantage_mismatch
from core.health.bounds import bounded
from core.health.case import Case
from core.health.completion_mask import completion_mask
from core.health.consistency import consistency
from core.health.constant_reward import constant_reward
from core.health.dead_groups import dead_groups
from core.health.drifting_gap import drifting_gap
from core.health.finding import CONFIDENCES, SEVERITIES, Finding
from core.health.gains import by_stages, no_gain
from core.health.gap_pattern import integrity
from core.health.idle_reward import idle_reward
from core.health.impossible_advantage import impossible_advantage
from core.health.inert_live import inert_live
from core.health.initial import initial_weights
from core.health.kl import kl
from core.health.leakage import leakage
from core.health.learning_rate import learning_rate
from core.health.level_break import level_break
from core.health.lost_rewards import lost_rewards
from core.health.missed_stop import missed_stop
from core.health.missing_eos import missing_eos
from core.health.no_gradient import no_gradient
from core.health.no_validation import no_validation
from core.health.noise import noise
from core.health.numerical import numerical
from core.health.odd_advantages import odd_advantages
from core.health.overfitting import overfitting
from core.health.policy_collapse import policy_collapse
from core.health.policy_loss import policy_loss
from core.health.rate_zero import rate_zero
from core.health.reward_hacking import reward_hacking
from core.health.reward_sign import reward_sign
from core.health.rollout_mode import rollout_mode
from core.health.signal import missing_rewards, no_updates
from core.health.small_advantage import small_advantage
from core.health.small_groups import small_groups
from core.health.supervised_flat import supervised_flat
from core.health.truncation import truncation
from core.health.weak_reward import weak_reward

Rule = Callable[[Case], Sequence[Finding]]


def _one(found: Finding | None) -> Sequence[Finding]:
    return () if found is None else (found,)


# One rule a line, each with a name. Their order is that of findings that are equally severe and equally certain.
RULES: Mapping[str, Rule] = {
    "initial-weights": lambda case: _one(initial_weights(case.rows)),
    "rollout-mode": rollout_mode,
    "integrity": lambda case: integrity(case) or drifting_gap(case),
    "completion-mask": completion_mask,
    "advantages": lambda case: advantage_mismatch(case) or reward_sign(case),
    "leakage": leakage,
    "missing-eos": missing_eos,
    "no-gradient": no_gradient,
    "rate-zero": rate_zero,
    "learning-rate": learning_rate,
    "policy-collapse": policy_collapse,
    "level-break": level_break,
    "truncation": truncation,
    "numerical": numerical,
    "kl": kl,
    "reward-hacking": reward_hacking,
    "no-signal": lambda case: constant_reward(case) or _one(no_updates(case.rows)) or dead_groups(case),
    "missing-rewards": lambda case: _one(missing_rewards(case.rows)),
    "lost-rewards": lost_rewards,
    "idle-reward": idle_reward,
    "impossible-advantage": impossible_advantage,
    "odd-advantages": odd_advantages,
    "small-advantage": small_advantage,
    "overfitting": overfitting,
    "gain": lambda case: no_gain(case) if by_stages(case) else noise(case),
    "missed-stop": missed_stop,
    "no-validation": no_validation,
    "small-groups": small_groups,
    "weak-reward": weak_reward,
    "policy-loss": policy_loss,
    "supervised-flat": supervised_flat,
    "consistency": consistency,
    "inert-live": inert_live,
}


def rules() -> Sequence[Rule]:
    """Our rules in their order, then those that packages add. Raises SpecError where a name is there twice."""
    return (*RULES.values(), *_added_rules())


@cache  # a run is examined again and again
def _added_rules() -> Sequence[Rule]:
    return tuple(plugins.load_all("grpoctl.rules", RULES))


def examine(case: Case) -> list[Finding]:
    """The findings of all rules, the gravest first and of those the most certain; [] for a healthy run.

    A finding that another one, at least as certain, rules out by its id is left out.
    """
    bound = bounded(case)
    found = [finding for rule in rules() for finding in rule(bound)]
    excluded = {(ruled.id, CONFIDENCES.index(finding.confidence)) for finding in found for ruled in finding.rules_out}
    left = [
        one
        for one in found
        if not any(id_ == one.id and rank <= CONFIDENCES.index(one.confidence) for id_, rank in excluded)
    ]
    return sorted(left, key=lambda one: (SEVERITIES.index(one.severity), CONFIDENCES.index(one.confidence)))
