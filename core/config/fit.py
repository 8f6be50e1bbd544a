"""What a spec asks of its policy and its task, beyond what each of its parts allows."""

from __future__ import annotations

from collections.abc import Iterator

from core.config.grpo_stage import GrpoStage
from core.config.policy import LmPolicyConfig, PolicyConfig, policy_kinds
from core.config.run import IN_A_LANGUAGE_MODEL, RunSpec
from core.config.stage import SftStage, StageBase
from core.config.task import CustomTaskSpec, task_names
from core.errors import SpecError


def check_fit(spec: RunSpec) -> None:
    """Raises SpecError for the first setting that asks of the policy, or of the task, what it does not have.

    And where a package adds a policy or task under a name that another, or grpoctl itself, has.
    """
    policy_kinds()
    task_names()
    unanswered = isinstance(spec.task, CustomTaskSpec) and spec.task.answer is None
    for name, stage in spec.stages.items():
        imitates = isinstance(stage, SftStage) or (isinstance(stage, GrpoStage) and stage.supervised_weight.ever)
        if unanswered and imitates:
            raise SpecError(
                f"is null, and stage {name} imitates it; give a template, e.g. '{{answer}}'", key="task.answer"
            )
        for key, problem in _unfit(spec, stage):
            raise SpecError(problem, key=f"stages.{name}.{key}")
    if isinstance(spec.policy, LmPolicyConfig):
        return
    kind = spec.policy.kind
    if faults := [fault for fault in spec.faults if fault in IN_A_LANGUAGE_MODEL]:
        raise SpecError(f"got {faults[0]}, a fault of language models, and the policy is {kind}", key="faults")
    if spec.export.merged:
        raise SpecError(f"got true, and the policy {kind} has no adapter to merge; allowed: false", key="export.merged")
    if spec.budget is not None and spec.budget.tokens is not None and not spec.policy.tokens:
        raise SpecError(f"the policy {kind} draws no tokens; allowed: budget.completions", key="budget.tokens")


def _unfit(spec: RunSpec, stage: StageBase) -> Iterator[tuple[str, str]]:
    """(key of the stage, problem) for every setting that needs what the policy does not have."""
    policy = spec.policy
    for loss in [loss for loss, weight in stage.loss_weights.items() if weight.ever and loss not in policy.losses]:
        have = f"one of {', '.join(sorted(policy.losses))}" if policy.losses else "none"
        yield f"loss_weights.{loss}", f"the policy {policy.kind} has no loss of this name; allowed: {have}"
    if isinstance(stage, GrpoStage):
        yield from _unfit_losses(policy, stage)
        yield from _unfit_entropies(policy, stage)
        yield from _unfit_lengths(policy, stage)


def _unfit_losses(policy: PolicyConfig, stage: GrpoStage) -> Iterator[tuple[str, str]]:
    if stage.consistency_weight.ever and "consistency" not in policy.losses:
        whose = "a causal language model" if isinstance(policy, LmPolicyConfig) else f"the policy {policy.kind}"
        yield "consistency_weight", f"{whose} has no consistency loss; allowed: 0"
    if stage.consistency_weight.ever and "consistency" in stage.loss_weights:
        yield "loss_weights.consistency", "is set by consistency_weight too; allowed: one of the two"
    if policy.density and stage.surrogate == "dppo":
        yield "surrogate", f"got dppo, which compares probabilities; the policy {policy.kind} has densities"


def _unfit_entropies(policy: PolicyConfig, stage: GrpoStage) -> Iterator[tuple[str, str]]:
    """What weighs by entropies, or aims at one, needs those of choices: a density's may be below 0."""
    if policy.entropies and not policy.density:
        return
    why = f"the entropies of the policy {policy.kind} " + ("may be below 0" if policy.entropies else "are not known")
    if stage.entropy_weighting != "none":
        yield "entropy_weighting", f"{why}; allowed: none"
    if stage.adaptive_entropy is not None:
        yield "adaptive_entropy", f"{why}; allowed: null"
    if stage.entropy_coef.ever and not policy.entropies:
        yield "entropy_coef", f"{why}; allowed: 0"


def _unfit_lengths(policy: PolicyConfig, stage: GrpoStage) -> Iterator[tuple[str, str]]:
    if policy.tokens:
        return
    drawn = (
        ("overlong", stage.overlong is not None, "null"),
        ("mask_truncated_completions", stage.mask_truncated_completions, "false"),
        ("top_p", stage.top_p < 1, "1"),
        ("top_k", stage.top_k > 0, "0"),
    )
    for key, used, allowed in drawn:
        if used:
            yield key, f"the policy {policy.kind} draws no tokens; allowed: {allowed}"
