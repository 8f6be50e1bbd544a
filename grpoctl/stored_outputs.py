"""A task's stored outputs before anything learns from them: `grpoctl check SPEC --data` where a task has such.

How many queries there are and which repeat, what is stored for the training queries and how much of it is right, and
how many groups are live under each choice of candidates and each reward. numpy, no torch, no model.

Shape suffixes: Q training queries, C stored outputs of the one that has most (missing ones are NaN).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any, get_args

from core.algorithms.names import TRANSFORMS, CandidateChoice, scopes
from core.config import GrpoStage, RceStage, RunSpec
from core.health.finding import Finding, Severity
from core.tasks.base import Example, Outcome, Task, names_of
from core.tasks.selection.task import ExampleSelectionTask
from grpoctl.dataset import SHOWN, SPLITS
from grpoctl.wording import plural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

DRAWS = 10  # of the choices that draw
FEW_LIVE = 0.05  # of the groups: fewer are worth a warning
FEW_VALUES = 5  # a score with no more different values is counted, another one is told by quantiles
SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """The training queries with their stored outputs and what the task makes of them, query by query."""

    queries: Sequence[Example]
    outputs: Sequence[Sequence[Any]]
    outcomes: Sequence[Sequence[Outcome]]
    rights: Sequence[Sequence[bool]] | None  # None where the task does not say what is right

    @classmethod
    def of(cls, task: Task, queries: Sequence[Example]) -> Stored:
        """All of them scored. Raises TaskError."""
        outputs = [task.stored(query) for query in queries]
        rows = [query for query, its in zip(queries, outputs, strict=True) for _ in its]
        scored = iter(task.score(rows, [*chain.from_iterable(outputs)]))
        outcomes = [[next(scored) for _ in its] for its in outputs]
        known = all(outcome.right is not None for its in outcomes for outcome in its)
        rights = [[bool(outcome.right) for outcome in its] for its in outcomes] if known else None
        return cls(queries=queries, outputs=outputs, outcomes=outcomes, rights=rights)

    @property
    def rows(self) -> tuple[list[Example], list[Any]]:
        """Query and output of each stored output."""
        queries = [query for query, its in zip(self.queries, self.outputs, strict=True) for _ in its]
        return queries, [*chain.from_iterable(self.outputs)]

    def padded(self, values: Sequence[float]) -> Floats:
        """(Q, C) of one number for each stored output; NaN behind those of a query that has fewer."""
        import numpy as np

        counts = [len(its) for its in self.outputs]
        there_QC = np.arange(max(counts, default=0)) < np.array(counts)[:, None]
        table_QC = np.full(there_QC.shape, math.nan)
        table_QC[there_QC] = values
        return table_QC


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveGroups:
    """How many of the training queries' groups have rewards that differ, under one choice of candidates.

    Where a choice draws, both numbers are means over DRAWS draws.
    """

    reward_mode: str | None  # None: the task has one reward
    choice: CandidateChoice | None  # None where all candidates are kept
    keep: int | None
    live: float
    advantage_std: float | None  # `advantage/group_std` of the first GRPO stage; None where it is of more than a group
    missing: float  # share of the rewards that cannot be computed
    stages: tuple[str, ...]  # those that learn from these groups


def look(spec: RunSpec, task: Task) -> dict[str, Any]:
    """The key `data` of the JSON document but for its warnings. Raises what the task raises."""
    splits = {split: task.examples(split) for split in SPLITS}
    stored = Stored.of(task, splits["train"])
    table = live_groups(spec, task, stored)
    right = _right(stored)
    return {
        "splits": {split: _repeats(splits, split) for split in SPLITS},
        "leakage": {split: _repeats(splits, split, "train") for split in ("eval", "test")},
        "candidates": _candidates(task, stored),
        "right": right,
        "scores": _scores(task, stored),
        "draws": DRAWS,
        "seed": spec.seed,
        "live_groups": [asdict(row) for row in table],
        "conclusions": conclusions(spec, len(stored.queries), right, table),
        "baselines": _baselines(task),
    }


def findings(spec: RunSpec, document: Mapping[str, Any]) -> list[Finding]:
    """What of it is worth a warning; an error where a stage of GRPO has no group that teaches."""
    warnings = _dead_stages(spec, document)
    for split, leak in document["leakage"].items():
        if leak["examples"]:
            one = leak["examples"][0]
            text = (
                f"of {split} {leak['same_id']} ids and the inputs of {plural(leak['same_inputs'], 'problem')} are also"
            )
            summary = f"{text} in train (e.g. {one['id']} and {one['other']})"
            evidence = {"same_id": leak["same_id"], "same_inputs": leak["same_inputs"]}
            warnings.append(Finding(id="leakage", severity="warning", summary=summary, evidence=evidence))
    return warnings


def _dead_stages(spec: RunSpec, document: Mapping[str, Any]) -> list[Finding]:
    """An error for each stage of GRPO that keeps no group alive, a warning for one that keeps hardly any."""
    queries = document["splits"]["train"]["problems"]
    found = []
    for name, stage in spec.stages.items():
        rows = [row for row in document["live_groups"] if name in row["stages"]]
        if not rows or not isinstance(stage, GrpoStage) or TRANSFORMS[stage.advantage.transform].by_place:
            continue
        live = max(row["live"] for row in rows)
        if live >= FEW_LIVE * queries:
            continue
        kept = ", ".join("all" if row["keep"] is None else f"{row['choice']} {row['keep']}" for row in rows)
        text = f"stage {name} keeps {number(live)} of {queries} groups alive (candidates: {kept}): "
        text += "no group has rewards that differ, so none teaches" if live == 0 else "the others teach nothing"
        evidence = {"stage": name, "live": live, "queries": queries}
        severity: Severity = "error" if live == 0 else "warning"
        found.append(Finding(id="dead-groups", severity=severity, summary=text, evidence=evidence))
    return found


def _repeats(splits: Mapping[Any, Sequence[Example]], split: str, other: str | None = None) -> dict[str, Any]:
    """How many problems have the id, or the inputs, of an earlier one of their split, or of any of another split.

    What all problems are given alike, such as one pool of candidates, tells no two apart and is left out.
    """
    everyone = [*chain.from_iterable(splits.values())]
    common = set.intersection(*(set(example.inputs) for example in everyone))
    telling = [key for key in common if any(one.inputs[key] is not everyone[0].inputs[key] for one in everyone)]

    def names(example: Example) -> tuple[str, str]:
        return names_of(Example(id=example.id, inputs={key: example.inputs[key] for key in telling}))

    seen = {name: one.id for one in (splits[other] if other else ()) for name in names(one)}
    counts, pairs = Counter[int](), list[dict[str, str]]()
    for example in splits[split]:
        for which, name in enumerate(names(example)):
            if name in seen:
                counts[which] += 1
                pairs.append({"id": example.id, "other": seen[name]})
            if other is None:
                seen.setdefault(name, example.id)
    problems = {} if other else {"problems": len(splits[split])}
    return {**problems, "same_id": counts[0], "same_inputs": counts[1], "examples": pairs[:SHOWN]}


def _candidates(task: Task, stored: Stored) -> dict[str, Any]:
    """How many outputs are stored for a query, what dropped out as a duplicate, and which method proposed how many."""
    counts = [len(its) for its in stored.outputs]
    document: dict[str, Any] = {
        "total": sum(counts),
        "min": min(counts),
        "median": median(counts),
        "max": max(counts),
        "proposed": None,
        "duplicates": None,
        "filtered": None,
        "sources": None,
    }
    if isinstance(task, ExampleSelectionTask):
        queries = task.data.queries[: len(counts)]
        unique, proposed = sum(len(query.stored) for query in queries), sum(query.proposed for query in queries)
        sources = Counter(stored.source for query in queries for stored in query.stored)
        document |= {
            "proposed": proposed,
            "duplicates": proposed - unique,
            "filtered": unique - sum(counts),
            "sources": dict(sources.most_common()),
        }
    return document


def _right(stored: Stored) -> dict[str, Any] | None:
    """How much is right: of the stored outputs, and of the queries some, all or none of whose outputs are."""
    if stored.rights is None:
        return None
    queries, every = len(stored.rights), [*chain.from_iterable(stored.rights)]
    positive, all_right = sum(map(any, stored.rights)), sum(map(all, stored.rights))
    return {
        "share": sum(every) / len(every),
        "queries_with_right": positive / queries,
        "all_right": all_right,
        "all_wrong": queries - positive,
        "mixed": positive - all_right,
        "mixed_share": (positive - all_right) / queries,
    }


def _scores(task: Task, stored: Stored) -> dict[str, Any]:
    """The distribution of each score of the stored outputs, by name."""
    outcomes = [*chain.from_iterable(stored.outcomes)]
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.parts)
    values = {name: [outcome.parts.get(name, math.nan) for outcome in outcomes] for name in names}
    if isinstance(task, ExampleSelectionTask):
        values["beam_score"] = task.beam_scores(*stored.rows)
    return {name: _distribution(of_all) for name, of_all in {"reward": _rewards(stored), **values}.items()}


def _rewards(stored: Stored) -> list[float]:
    return [outcome.reward for outcome in chain.from_iterable(stored.outcomes)]


def _distribution(values: Sequence[float]) -> dict[str, Any]:
    """Each value with its share where there are few, else quantiles; `missing` is the share that is not known."""
    import numpy as np

    known = [value for value in values if not math.isnan(value)]
    counts = Counter(round(value, 12) for value in known)
    few = len(counts) <= FEW_VALUES
    quantiles = [] if few else np.quantile(known, SHARES).tolist()
    return {
        "missing": 1 - len(known) / len(values),
        "mean": sum(known) / len(known) if known else None,
        "values": [{"value": value, "share": counts[value] / len(known)} for value in sorted(counts)] if few else None,
        "quantiles": None
        if few
        else [{"share": at, "value": value} for at, value in zip(SHARES, quantiles, strict=True)],
    }


def live_groups(spec: RunSpec, task: Task, stored: Stored) -> list[LiveGroups]:
    """A row for each reward mode x choice x number of candidates kept, the spec's own mode first."""
    import numpy as np

    rewards, total = _rewards_by_mode(task, stored), sum(map(len, stored.outputs))
    rights = None if stored.rights is None else stored.padded([*chain.from_iterable(stored.rights)]) == 1
    used = _used(spec, most=max(map(len, stored.outputs)))
    keeps = sorted({keep for keep, _ in used if keep is not None})
    offline = [stage for stage in spec.stages.values() if isinstance(stage, GrpoStage) and stage.groups == "offline"]
    learns = offline[0] if offline else None
    rows = []
    for place, (mode, rewards_QC) in enumerate(rewards.items()):
        choices: list[tuple[int | None, CandidateChoice | None]] = [(None, None)]
        choices += [(keep, choice) for keep in keeps for choice in get_args(CandidateChoice)]
        for keep, choice in choices:
            if choice == "stratified" and rights is None:
                continue
            live, deviation = _counted(rewards_QC, rights, keep, choice, spec.seed, learns)
            own = used.get((keep, choice), ()) if place == 0 else ()
            rows.append(
                LiveGroups(
                    reward_mode=mode, choice=choice, keep=keep, live=live, advantage_std=deviation,
                    missing=1 - np.isfinite(rewards_QC).sum().item() / total, stages=tuple(own),
                )
            )  # fmt: skip
    return rows


def _counted(
    rewards_QC: Floats,
    right_QC: Flags | None,
    keep: int | None,
    choice: CandidateChoice | None,
    seed: int,
    stage: GrpoStage | None,
) -> tuple[float, float | None]:
    """Live groups, and the mean over groups of the std of their advantages; the mean over draws where one draws."""
    import numpy as np

    from core.algorithms.advantages import advantages, choice_scores, dead_groups, group_std, kept_counts

    draws = DRAWS if choice in ("random", "stratified") else 1
    of_groups = stage is not None and scopes(stage.advantage) <= {"group", "none"}
    live, deviations = [], []
    for draw in range(draws):
        members_QC = rewards_QC
        if keep is not None and choice is not None:
            dice = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, draw])))
            orders_QC = np.argsort(dice.random(rewards_QC.shape), axis=-1)
            scores_QC = choice_scores(rewards_QC, choice, orders_PK=orders_QC, right_PK=right_QC)
            kept_QC = kept_counts(scores_QC, keep) > 0
            front_QC = np.argsort(~kept_QC, axis=-1, kind="stable")[:, :keep]  # those that are kept, in their order
            members_QC = np.take_along_axis(np.where(kept_QC, rewards_QC, np.nan), front_QC, -1)
        live.append(int((~dead_groups(members_QC)).sum()))
        if of_groups and stage is not None:
            inside_QC = np.where(np.isnan(members_QC), np.nan, advantages(members_QC, stage.advantage))
            deviations.append(float(group_std(inside_QC, ddof=1).mean()))
    return sum(live) / draws, sum(deviations) / draws if deviations else None


def _rewards_by_mode(task: Task, stored: Stored) -> dict[str | None, Floats]:
    """(Q, C) rewards: the task's own first, then those of its other modes, before a z-score over the data.

    That changes neither which rewards are equal nor their order.
    """
    own = stored.padded(_rewards(stored))
    if not isinstance(task, ExampleSelectionTask):
        return {None: own}
    modes = task.rewards_by_mode(*stored.rows)
    mine = task.spec.reward_mode
    return {mine: own, **{mode: stored.padded(rewards) for mode, rewards in modes.items() if mode != mine}}


def _used(spec: RunSpec, most: int) -> dict[tuple[int | None, CandidateChoice | None], list[str]]:
    """(candidates kept, choice) -> the stages that learn from such groups; (None, None) where all are kept."""
    from core.algorithms.advantages import whole

    used: dict[tuple[int | None, CandidateChoice | None], list[str]] = {}
    for name, stage in spec.stages.items():
        if not isinstance(stage, (GrpoStage, RceStage)) or stage.groups != "offline":
            continue
        keep = stage.keep_candidates
        wanted = [stage.num_generations] if keep is None else [whole(keep.start), whole(keep.end)]
        for size in dict.fromkeys(min(one, int(stage.num_generations)) for one in wanted):
            key = (None, None) if size >= most else (size, stage.candidate_choice)
            used.setdefault(key, []).append(name)
    return used


def conclusions(spec: RunSpec, queries: int, right: Mapping[str, Any] | None, table: Sequence[LiveGroups]) -> list[str]:
    """What decides how many groups are live, in a sentence or three."""
    own_mode = table[0].reward_mode
    ceiling = next(row for row in table if row.keep is None)
    chosen = [row for row in table if row.reward_mode == own_mode and row.keep is not None]
    sentences = []
    under = "" if own_mode is None else f"under reward_mode {own_mode} "
    limit = f"{under}{ceiling.live:.0f} have rewards that differ, so no choice of candidates keeps more than that alive"
    if right is not None:
        mixed = f"{right['mixed']} of {queries} training queries are mixed (right and wrong candidates)"
        sentences.append(f"{mixed}; {limit}")
    else:
        sentences.append(f"of {queries} training queries {limit}")
    own = [row for row in chosen if any(isinstance(spec.stages[name], GrpoStage) for name in row.stages)]
    if own:
        least = min(own, key=lambda row: row.live)
        best = max((row for row in chosen if row.keep == least.keep), key=lambda row: row.live)
        text = f"stage {', '.join(least.stages)} keeps {number(least.live)} alive with the {_named(least)}"
        more = f"; the {_named(best)} would keep {number(best.live)}"
        same = ", and no other choice of as many keeps more"
        sentences.append(f"{text}{more if best.live > least.live else same}")
    for name, stage in spec.stages.items():
        if (
            isinstance(stage, GrpoStage)
            and stage.groups == "offline"
            and TRANSFORMS[stage.advantage.transform].by_place
        ):
            transform = stage.advantage.transform
            sentences.append(f"stage {name} has {transform}: equal rewards get advantages too, by their order alone")
    others = [row for row in table if row.keep is None and row.live > ceiling.live]
    if others:
        named = ", ".join(f"{row.reward_mode} {number(row.live)}" for row in others)
        text = "rewards that differ among equally right candidates keep more alive with all of them"
        sentences.append(f"{text} ({named}), but what they then compare is not who is right")
    return sentences


def _named(row: LiveGroups) -> str:
    return f"{row.choice} {row.keep}"


def number(value: float) -> str:
    """A count, or a mean of counts."""
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def _baselines(task: Task) -> dict[str, float] | None:
    """Accuracy on the held-out queries without a trained policy; None where the task knows of none."""
    if not isinstance(task, ExampleSelectionTask):
        return None
    return dict(task.baselines_at(task.spec.shots))
