"""All that is known of a spec before it runs, as records: `grpoctl check` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from core.algorithms.names import scopes
from core.config import GrpoStage, RunSpec
from core.health.before.advantages import (
    AdvantageRow,
    DeadGroups,
    advantage_table,
    dead_group,
    dead_groups_table,
    kept,
    largest,
    most_kept,
)
from core.health.before.budget import Budget, budget
from core.health.before.inert import Inert, inert
from core.health.before.pitfalls import warnings
from core.health.before.view import StageView, views
from core.health.finding import Finding

# Document 000, section 4.1: what it says of K, each end of its ranges by itself
SAID_OF_K: Mapping[int, str] = {
    2: "P30: severely too few",
    4: "lowest advised; OpenRLHF: from",
    8: "typical minimum",
    16: "typical maximum",
    32: "OpenRLHF: to",
    64: "DeepSeekMath: large scale",
}
K_PASS_RATES = (0.5, 0.75, 0.95)  # at p and at 1 - p as many groups are dead


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSize:
    """A group size in place of the stage's own: what is said of it, and what is exact for rewards of 0 and 1."""

    num_generations: int
    said: str  # empty where the document is silent
    dead_groups: list[tuple[float, float]]  # (pass rate, chance)
    max_advantage: float | None  # for any rewards, after the clip; None where nothing bounds it


@dataclass(frozen=True, kw_only=True, slots=True)
class StageForesight:
    """One stage. The tables are empty, and `largest_advantage` is None, where its kind has no advantages.

    `dead_groups` and `group_sizes` are empty too where a group is not the best of num_generations samples.
    """

    view: StageView
    budget: Budget
    advantages: list[AdvantageRow]
    largest_advantage: float | None  # after the clip; None also where nothing bounds it
    note: str  # what the table of advantages takes for granted
    dead_groups: list[DeadGroups]
    group_sizes: list[GroupSize]  # those of document 000 and the stage's own


@dataclass(frozen=True, kw_only=True, slots=True)
class Foresight:
    """A spec's stages in order, its inert knobs and its warnings, the most severe first."""

    stages: list[StageForesight]
    inert: list[Inert]
    warnings: list[Finding]


def foresee(spec: RunSpec) -> Foresight:
    """What the configuration can and cannot do."""
    return Foresight(stages=[_stage(view) for view in views(spec)], inert=inert(spec), warnings=warnings(spec))


def _stage(view: StageView) -> StageForesight:
    stage = view.grpo
    sizes = sorted({*SAID_OF_K, stage.num_generations}) if stage and is_best_of_sampled(stage) else []
    return StageForesight(
        view=view,
        budget=budget(view),
        advantages=advantage_table(_taking_part(stage)) if stage else [],
        largest_advantage=_clipped(view) if stage else None,
        note=_note(view) if stage else "",
        dead_groups=dead_groups_table(stage) if stage and is_best_of_sampled(stage) else [],
        group_sizes=[_group_size(view, size) for size in sizes],
    )


def is_best_of_sampled(stage: GrpoStage) -> bool:
    """Whether a group is the best of num_generations samples, as the chances of a dead group take it to be."""
    chosen = stage.keep_candidates is not None and stage.candidate_choice != "best"
    return stage.groups == "online" and not chosen


def _taking_part(stage: GrpoStage) -> GrpoStage:
    """The stage whose groups are those that take part, where they are not the best of num_generations samples."""
    if is_best_of_sampled(stage):
        return stage
    return stage.model_copy(update={"num_generations": kept(stage), "keep_candidates": None})


def _group_size(view: StageView, size: int) -> GroupSize:
    assert view.grpo is not None
    stage = view.grpo.model_copy(update={"num_generations": size})
    virtual, keep = stage.advantage.virtual_best, kept(stage)
    return GroupSize(
        num_generations=size,
        said=SAID_OF_K.get(size, ""),
        dead_groups=[(rate, dead_group(rate, size, virtual, keep)) for rate in K_PASS_RATES],
        max_advantage=_clipped(replace(view, stage=stage)),
    )


def _clipped(view: StageView) -> float | None:
    assert view.grpo is not None
    bounds = [bound for bound in (largest(view), view.grpo.advantage.clip) if bound is not None]
    return min(bounds, default=None)


def _note(view: StageView) -> str:
    assert view.grpo is not None
    how = view.grpo.advantage
    used = scopes(how)
    notes = []
    if kept(view.grpo) < view.num_generations:
        best = "best " if view.grpo.candidate_choice == "best" else ""
        later = "" if (most := most_kept(view.grpo)) == kept(view.grpo) else f", and of {most} later for the bound"
        notes.append(f"of the {best}{kept(view.grpo)} that keep_candidates lets take part at the stage's start{later}")
    if "batch" in used:
        notes.append("depends on the other groups: all are taken to have as many successes")
    if "history" in used:
        notes.append("depends on the steps before: these are the first step's")
    if how.weighting == "tokens" and "batch" in used:
        notes.append("all completions are taken to be equally long")
    return "; ".join(notes)
