"""What is said of a whole case: the findings of every rule, the most telling first, and its events counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import get_args

from core import plugins
from core.health.case import Case, bounded
from core.health.finding import CONFIDENCES, SEVERITIES, Basis, Finding, Row
from core.health.rules.advantage_sign import advantage_mismatch, reward_sign
from core.health.rules.advantage_size import impossible_advantage, odd_advantages, small_advantage
from core.health.rules.dead_run import dead_run, paid_otherwise
from core.health.rules.end_token import completion_mask, missing_eos
from core.health.rules.few_rows import (
    fell_in_few,
    held_out_fell,
    held_out_stood,
    reward_fell,
    reward_stood,
    valid_fell_in_few,
)
from core.health.rules.first_update import collapse_at_first_update
from core.health.rules.gains import by_stages, no_gain, noise
from core.health.rules.group_of_one import group_of_one
from core.health.rules.groups import batch_std, dead_groups, small_groups
from core.health.rules.integrity import drifting_gap, integrity
from core.health.rules.kl import kl
from core.health.rules.kl_level import kl_level
from core.health.rules.learning_rate import initial_weights, learning_rate, no_gradient, no_updates, rate_zero
from core.health.rules.level_break import level_break, lost_level
from core.health.rules.live_groups import few_live_groups, killed_by_choice
from core.health.rules.numerical import numerical
from core.health.rules.optimiser_step import clip_before_backward, frozen_log_probs
from core.health.rules.other_losses import consistency, supervised_flat
from core.health.rules.policy_collapse import policy_collapse
from core.health.rules.ratio import inert_live, policy_loss
from core.health.rules.reward_parts import component_conflict, free_reward, paid_for_nothing, proxy_reward
from core.health.rules.rewards import constant_reward, idle_reward, lost_rewards, missing_rewards, weak_reward
from core.health.rules.rollout_mode import contrast, rollout_mode
from core.health.rules.runaway import random_policy, runaway
from core.health.rules.sampler_mismatch import sampler_mismatch
from core.health.rules.self_probe import self_probe
from core.health.rules.truncation import truncation
from core.health.rules.validation import leakage, missed_stop, no_validation, or_gamed, overfitting, reward_hacking
from core.health.rules.zero_kl import zero_kl
from core.health.rules.zero_loss import zero_loss
from core.health.statistics import series

Rule = Callable[[Case], Sequence[Finding]]


def _list_of(finding: Finding | None) -> Sequence[Finding]:
    return () if finding is None else (finding,)


def fell_all_along(case: Case) -> Sequence[Finding]:
    """What `reward_fell` or `lost_level` says, unless the reward may have the wrong sign."""
    return () if reward_sign(case) else reward_fell(case) or lost_level(case)


# One rule a line, each with a name. Their order is that of findings that are equally severe and equally certain.
RULES: Mapping[str, Rule] = {
    "initial-weights": lambda case: _list_of(initial_weights(case.rows)),
    "rollout-mode": lambda case: rollout_mode(case) or collapse_at_first_update(case),
    "integrity": lambda case: integrity(case) or drifting_gap(case),
    "completion-mask": completion_mask,
    "self-probe": self_probe,
    "clip-before-backward": clip_before_backward,
    "frozen-log-probs": frozen_log_probs,
    "advantages": lambda case: advantage_mismatch(case) or reward_sign(case),
    "leakage": leakage,
    "missing-eos": missing_eos,
    "no-gradient": no_gradient,
    "zero-kl": zero_kl,
    "rate-zero": rate_zero,
    "learning-rate": learning_rate,
    "dead-run": dead_run,
    "policy-collapse": lambda case: case.once(policy_collapse),
    "level-break": lambda case: (
        level_break(case)
        or (
            ()
            if case.once(policy_collapse) or paid_otherwise(case)
            else fell_in_few(case) or valid_fell_in_few(case) or fell_all_along(case) or _list_of(random_policy(case))
        )
    ),
    "truncation": truncation,
    "numerical": numerical,
    "kl-level": kl_level,
    "sampler-mismatch": sampler_mismatch,
    "runaway": runaway,
    "kl": kl,
    "reward-hacking": reward_hacking,
    "no-signal": lambda case: constant_reward(case) or _list_of(no_updates(case.rows)) or dead_groups(case),
    "group-of-one": group_of_one,
    "missing-rewards": lambda case: _list_of(missing_rewards(case.rows)),
    "lost-rewards": lost_rewards,
    "idle-reward": idle_reward,
    "proxy-reward": proxy_reward,
    "component-conflict": component_conflict,
    "free-reward": lambda case: free_reward(case) or _list_of(paid_for_nothing(case)),
    "batch-std": batch_std,
    "few-live-groups": few_live_groups,
    "killed-by-choice": killed_by_choice,
    "impossible-advantage": impossible_advantage,
    "odd-advantages": odd_advantages,
    "small-advantage": small_advantage,
    "overfitting": lambda case: or_gamed(overfitting(case) or held_out_fell(case) or held_out_stood(case)),
    "gain": lambda case: no_gain(case) if by_stages(case) else noise(case),
    "reward-stood": reward_stood,
    "missed-stop": missed_stop,
    "no-validation": no_validation,
    "small-groups": small_groups,
    "weak-reward": weak_reward,
    "policy-loss": policy_loss,
    "zero-loss": zero_loss,
    "supervised-flat": supervised_flat,
    "consistency": consistency,
    "inert-live": inert_live,
}


# A run that goes on may still make progress, surpass its best evaluation, and be evaluated at all.
OF_WHOLE_RUNS = ("no-gain", "noise", "missed-stop", "no-validation")


def rules() -> Sequence[Rule]:
    """Our rules in their order, then those that packages add. Raises SpecError where a name is there twice."""
    return (*RULES.values(), *_added_rules())


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedRule:
    """A rule of a package. Raises what that raises, and TypeError or ValueError for what is no sequence of findings."""

    called: str
    rule: Rule

    def __call__(self, case: Case) -> Sequence[Finding]:
        """What the rule says of the case."""
        found: object = self.rule(case)
        if not isinstance(found, (list, tuple)) or not all(isinstance(one, Finding) for one in found):
            raise TypeError(f"it gave {found!r:.60}; allowed: a list of core.health.finding.Finding, empty for none")
        for one in found:
            for name, words in (("severity", SEVERITIES), ("confidence", CONFIDENCES), ("basis", get_args(Basis))):
                if (word := getattr(one, name)) not in words:
                    raise ValueError(f"{one.id} has the {name} {word!r}; allowed: one of {', '.join(words)}")
        return found


@cache  # a run is examined again and again
def _added_rules() -> Sequence[Rule]:
    added = plugins.load_all("grpoctl.rules", RULES)
    return tuple(AddedRule(called=one.called, rule=one.plugin) for one in added)


def asked(rule: Rule, case: Case) -> Sequence[Finding]:
    """What the rule says of the case. Raises what the rule raises."""
    return rule(case)


def name_of_rule(rule: Rule) -> str:
    """What the rule is called here, or by the package that adds it."""
    if isinstance(rule, AddedRule):
        return rule.called
    return next((name for name, ours in RULES.items() if ours is rule), getattr(rule, "__name__", repr(rule)))


def examine(case: Case, ask: Callable[[Rule, Case], Sequence[Finding]] = asked) -> list[Finding]:
    """The findings of all rules, the most severe first and of those the most certain; [] for a healthy run.

    A finding that another one, at least as certain, rules out by its id is left out. `ask` asks one rule.
    """
    bound = bounded(case)
    return ranked([finding for rule in rules() for finding in ask(rule, bound)])


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Findings without those that others rule out, the most severe first and of those the most certain."""
    causes = [(cause.id, finding.confidence) for finding in findings for cause in finding.rules_out]
    excluded = {(id_, CONFIDENCES.index(confidence)) for id_, confidence in causes}
    left = [
        finding
        for finding in findings
        if not any(id_ == finding.id and rank <= CONFIDENCES.index(finding.confidence) for id_, rank in excluded)
    ]
    return sorted(left, key=importance)


# Infos on what is so by construction, on how a run was watched, on clips and on rounding that change nothing: behind
# those on what happened in it.
ASIDE = (
    "inert-clip", "always-clipped", "rounding-as-signal", "no-validation", "missed-stop", "zero-loss", "grad-norm",
    "batch-std", "small-groups", "kl-loss-share", "kl-estimator", "kl-idle", "isolated-nan",
)  # fmt: skip


def importance(finding: Finding) -> tuple[int, bool, int]:
    """Its place among others: the most severe first, and of those the most certain."""
    aside = finding.severity == "info" and finding.id in ASIDE
    return SEVERITIES.index(finding.severity), aside, CONFIDENCES.index(finding.confidence)


SHOWN = 10  # rows that the first and the last reward are means of


def facts(case: Case) -> dict[str, float]:
    """Flat name -> number; a name whose number is not known is left out.

    steps, updates, last_step, reward/first and reward/last (means of ten rows, of fewer than twenty those of each
    half); after an update and after a skipped one (where validity is known): steps, all-invalid steps, completions,
    invalid ones; all-invalid steps that skipped their update, and those of them that were sound on the next step
    (healed).
    """
    rows = case.steps
    if not rows:
        return {}
    last = rows[-1]["step"] or 0
    counts: dict[str, float] = {"steps": len(rows), "last_step": int(last) if last == int(last) else last}
    updates = [row["update"] == 1 for row in rows if row.get("update") is not None]
    if case.averaged_over > 1:  # a row stands for several steps: nothing is known of one of them
        counts["steps"] = counts["last_step"]
        counts |= {"updates": counts["steps"]} if updates and all(updates) else {}
    elif updates:
        counts |= {"updates": sum(updates)} | _steps_after(rows)
    return counts | _samples(case, rows) | _rewards(rows)


def _steps_after(rows: Sequence[Row]) -> dict[str, float]:
    if not any(row.get("completions/valid") is not None for row in rows):
        return {}
    c = contrast(rows)
    return {
        "followed_updates": c.after_update,
        "followed_skips": c.after_skip,
        "collapsed_after_update": c.collapsed_after_update,
        "collapsed_after_skip": c.collapsed_after_skip,
        "collapsed_and_skipped": c.collapsed_and_skipped,
        "healed": c.collapsed_and_skipped - c.still_collapsed,
    }


def _samples(case: Case, rows: Sequence[Row]) -> dict[str, float]:
    """Completions and valid ones, and how many of them stand on a step after an update or a skipped one."""
    if not case.samples:
        return {}
    counts: dict[str, float] = {"samples": len(case.samples)}
    known = [sample for sample in case.samples if sample.valid is not None]
    if not known:
        return counts
    counts["valid"] = sum(sample.valid is True for sample in known)
    updates = {int(row["step"] or 0): row.get("update") for row in rows}
    for word, value in (("update", 1), ("skip", 0)):
        after = [sample for sample in known if updates.get(sample.step - 1) == value]
        if value in updates.values() and case.averaged_over == 1:
            counts[f"samples_after_{word}"] = len(after)
            counts[f"invalid_after_{word}"] = sum(sample.valid is False for sample in after)
    return counts


def _rewards(rows: Sequence[Row]) -> dict[str, float]:
    rewards = [reward for _, reward in series(rows, "reward/mean")]
    if not rewards:
        return {}
    part = min(SHOWN, max(1, len(rewards) // 2))
    return {f"reward/{which}": fmean(some) for which, some in (("first", rewards[:part]), ("last", rewards[-part:]))}
