"""What of a spec TRL's GRPOTrainer cannot do: each key that is set away from its default and has no counterpart there.

Works on the parts of a spec, so that the spec itself can ask. How settings are converted stands in settings.py.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from core.algorithms.names import scopes
from core.config.grpo_stage import GrpoStage
from core.config.part import Part
from core.config.trl.fields import FIELDS, STAGE, TRAINER_ARGUMENTS, own_key
from core.config.trl.values import value_problem

# (surrogate, reduction) -> TRL's loss_type and importance_sampling_level; each is compared with TRL's own loss on one
# batch in tests/equivalence.
LOSSES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("clip", "sequence_mean"): ("grpo", "token"),
    ("clip", "token_mean"): ("dapo", "token"),
    ("clip", "constant_length"): ("dr_grpo", "token"),
    ("dual_clip", "sequence_mean"): ("grpo", "token"),
    ("dual_clip", "token_mean"): ("dapo", "token"),
    ("dual_clip", "constant_length"): ("dr_grpo", "token"),
    ("cispo", "token_mean"): ("cispo", "token"),
    ("sapo", "sequence_mean"): ("sapo", "token"),
    ("gspo", "sequence_mean"): ("grpo", "sequence"),
    ("gspo", "sequence_sum"): ("luspo", "sequence"),
}
NOT_TRANSFORMERS = ("adam", "adamax", "nadam", "radam", "adadelta", "asgd", "rprop")  # optimisers of ours that it lacks
_OF_THE_CAP = ("vllm_importance_sampling_mode", "vllm_importance_sampling_clip_max")
ESTIMATORS = ("k3", "k3_ratio", "k2", "k1_ratio")  # of the KL in the loss: TRL's two, and two that grpoctl adds


def argument_problem(name: str, value: Any) -> str | None:
    """Why `trainer.args` cannot have this name, or the name this value; None where it can."""
    if name in TRAINER_ARGUMENTS:
        return value_problem(name, value)
    field = FIELDS.get(name)
    if field is None:
        near = difflib.get_close_matches(name, [*FIELDS, *TRAINER_ARGUMENTS], n=1)
        hint = f"did you mean {near[0]}?" if near else "docs/trl.md lists its fields"
        return f"is no field of TRL's GRPOConfig; {hint}"
    match field.how:
        case "passed":
            return value_problem(name, value)
        case "mapped":
            return f"is set by {field.key.replace(STAGE, 'stages.grpo')}; set that"
        case "refused":
            return f"cannot be set: {field.note}"
        case _:
            assert_never(field.how)


def unfit(
    stage: GrpoStage, args: Mapping[str, Any], processes: int, *, adapter: bool = False
) -> Iterator[tuple[str, str]]:
    """(key of the stage, problem) of each setting that TRL has no counterpart of, or cannot do with the others.

    `adapter`: an adapter is trained.
    """
    yield from _without_counterpart(stage, stage.method)
    yield from _unfit_updates(stage, adapter)
    yield from _unfit_losses(stage)
    if "history" in scopes(stage.advantage):
        yield (
            "advantage",
            "got running statistics, which TRL's trainer does not carry on; allowed: of the group or batch",
        )
    if stage.entropy_coef.ever and not stage.entropy_coef.constant:
        yield "entropy_coef", "got a schedule; TRL's entropy_coef is one number"
    if stage.importance_sampling_cap is not None and args.get("use_vllm") is not True:
        yield "importance_sampling_cap", "TRL corrects by weights with vLLM alone: set trainer.args.use_vllm, or null"
    twice = [name for name in _OF_THE_CAP if name in args]
    if stage.importance_sampling_cap is not None and twice:
        yield "importance_sampling_cap", f"is also said by trainer.args.{twice[0]}; set one of them"
    if (rows := stage.rows_per_step // stage.minibatches) % processes:
        yield "prompts_per_step", f"an update has {rows} completions, which {processes} processes cannot share evenly"
    if stage.rows_per_step % stage.minibatches:
        yield "minibatches", f"got {stage.minibatches}; TRL's are of equal size: a divisor of {stage.rows_per_step}"


def _unfit_updates(stage: GrpoStage, adapter: bool) -> Iterator[tuple[str, str]]:
    """The optimiser, and a reference that moves."""
    if stage.optim in NOT_TRANSFORMERS:
        yield (
            "optim",
            f"got {stage.optim}, which transformers has not; allowed: adamw_torch, sgd, adagrad, rmsprop, 8-bit ones",
        )
    if stage.sync_ref_model and adapter:
        yield "sync_ref_model", "TRL's reference follows whole weights alone; allowed: false, or model.lora: null"


def _unfit_losses(stage: GrpoStage) -> Iterator[tuple[str, str]]:
    """The surrogate with its reduction, and the estimator of the KL."""
    if (stage.surrogate, stage.reduction) not in LOSSES:
        have = sorted({reduction for surrogate, reduction in LOSSES if surrogate == stage.surrogate})
        if have:
            yield (
                "reduction",
                f"got {stage.reduction}; TRL has the surrogate {stage.surrogate} with {' or '.join(have)}",
            )
        else:
            allowed = ", ".join(dict.fromkeys(surrogate for surrogate, _ in LOSSES))
            yield "surrogate", f"got {stage.surrogate}; TRL has no such loss; allowed: {allowed}"
    if stage.beta.ever and stage.kl_estimator not in ESTIMATORS:
        allowed = ", ".join(ESTIMATORS)
        yield "kl_estimator", f"got {stage.kl_estimator}; TRL has no such estimator; allowed: {allowed}"


def _without_counterpart(stage: GrpoStage, method: str) -> Iterator[tuple[str, str]]:
    """The keys of the stage that the table refuses, where they are not at their defaults."""
    for name, info in type(stage).model_fields.items():
        row, value = own_key(f"{STAGE}.{name}"), getattr(stage, name)
        if row is None or row.how != "refused" or name == "kind":
            continue
        default = info.get_default(call_default_factory=True)
        if value != default:
            named = f" (method: {method})" if method != "grpo" else ""
            yield name, f"got {_words(value)}{named}; {row.note}; allowed: {_words(default)}"


def _words(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    start = getattr(value, "start", None)
    if start is not None:
        return f"{start:g}" if getattr(value, "constant", False) else "a schedule"
    if isinstance(value, (Part, dict)):
        return "a mapping" if value else "nothing"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_words, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def micro_rows(stage: GrpoStage, processes: int) -> tuple[int, int]:
    """(rows of a micro-batch on each process, micro-batches of an update): as many as asked for, or the next divisor.

    TRL's micro-batches are of equal size, ours need not be; more and smaller ones change nothing but memory and time.
    """
    rows = stage.rows_per_step // stage.minibatches // processes
    wanted = min(rows, math.ceil(rows / max(1, math.ceil(rows / stage.gradient_accumulation_steps))))
    count = next(count for count in range(wanted, rows + 1) if rows % count == 0)
    return rows // count, count
