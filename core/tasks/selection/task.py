"""ExampleSelectionTask: queries with candidates, the picks of a policy scored, and pick tuples stored beforehand.

numpy is imported where it is used: validating a spec builds the task, and loads nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

from core.config.task import ExampleSelectionTaskSpec, RewardMode
from core.errors import SpecError, TaskError
from core.tasks.base import Example, Outcome, Split, Table, Task
from core.tasks.selection.queries import PickTuple, SelectionData, StoredPicks

if TYPE_CHECKING:
    from core.tasks.selection.queries import Ints, Scores

Picks = tuple[int, ...]  # positions in an example's pool, in the order picked
MOST_PICKS = 4  # that baselines are told of: as many examples as the answerer is ever given
MOST_BESIDE = 4_000_000  # sets of all held-out queries: about a second


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A query as the task uses it; picks are positions in its pool."""

    place: int  # among the queries of the data
    example: Example
    stored: Mapping[Picks, StoredPicks]  # by positions; what `drop_wrong_below` leaves
    first_beam: Picks


class ExampleSelectionTask(Task):
    """Example selection; see core.tasks.base.Task. Makes or reads its data when they are first needed.

    An output is a tuple of positions in the example's pool, in the order picked; `inputs["ids"]` has global indices.
    """

    def __init__(self, spec: ExampleSelectionTaskSpec) -> None:
        self.spec = spec

    @cached_property
    def data(self) -> SelectionData:
        """The queries with their stored picks, generated or read. Raises SpecError for a file that is not sound."""
        spec, count = self.spec, self.spec.first_held_out + self.spec.eval_prompts
        if spec.data is not None:
            from core.tasks.selection.files import SelectionFiles

            return SelectionFiles(spec.data, spec)
        from core.tasks.selection.world import World

        assert spec.world is not None  # its settings see to it
        return World(spec.world, data_seed=spec.data_seed, count=count, shots=spec.shots)

    @cached_property
    def _entries(self) -> Mapping[str, Entry]:
        """By id, in the order of the ids: the training queries, then the held-out ones."""
        import numpy as np

        data, spec = self.data, self.spec
        pools = [query.pool for query in data.queries]
        if spec.pool == "all":
            occurring = {index for query in data.queries for index in query.pool}
            occurring |= {index for query in data.queries for stored in query.stored for index in stored.picks}
            pools = [tuple(sorted(occurring))] * len(pools)
        # By identity: a pool that queries share has thousands of candidates, and a tuple's hash reads them all.
        distinct = {id(pool): pool for pool in pools}
        embeddings = {key: data.candidate_embeddings[list(pool)] for key, pool in distinct.items()}
        positions = {key: {index: at for at, index in enumerate(pool)} for key, pool in distinct.items()}
        scores = self._scores_of([(place, one) for place, query in enumerate(data.queries) for one in query.stored])
        right_N, beam_score_N = scores.correct_N == 1, np.nan_to_num(scores.beam_score_N, nan=-np.inf)
        entries, end = {}, 0
        for place, (query, pool) in enumerate(zip(data.queries, pools, strict=True)):
            start, end = end, end + len(query.stored)
            right, beam_scores = right_N[start:end].tolist(), beam_score_N[start:end].tolist()
            position = positions[id(pool)]
            picks = [tuple(position[index] for index in one.picks) for one in query.stored]
            from_beam = [row for row, one in enumerate(query.stored) if one.source == "beam"] or range(len(picks))
            held_out = place >= spec.first_held_out
            entries[query.id] = Entry(
                place=place,
                example=Example(
                    id=query.id,
                    inputs={
                        "query": data.query_embeddings[place],
                        "candidates": embeddings[id(pool)],
                        "ids": pool,
                        **({"choices": tuple(picks)} if held_out and not data.complete else {}),
                    },
                    facts={"question": query.question, **query.facts, "has_positive": any(right)},
                ),
                stored={picks[row]: query.stored[row] for row in self._kept(right, beam_scores)},
                first_beam=picks[max(from_beam, key=beam_scores.__getitem__)],
            )
        return entries

    def _kept(self, right: Sequence[bool], beam_scores: Sequence[float]) -> list[int]:
        """The rows of a query's stored picks that `drop_wrong_below` leaves: never none, the best beam score stays.

        Rows without a beam score (-inf) stay too: nobody called them unlikely.
        """
        lowest, best = self.spec.drop_wrong_below, max(range(len(right)), key=beam_scores.__getitem__)
        return [
            row
            for row, score in enumerate(beam_scores)
            if lowest is None or right[row] or row == best or not -math.inf < score < lowest
        ]

    def _scores_of(self, stored: Sequence[tuple[int, StoredPicks]]) -> Scores:
        """The scores of (place of the query, stored picks), which all have `shots` picks."""
        import numpy as np

        return self.data.scores(np.array([place for place, _ in stored]), np.array([one.picks for _, one in stored]))

    @cached_property
    def _standard(self) -> tuple[float, float]:
        """What rewards are moved and divided by: (0, 1), or mean and std of the training queries' stored picks."""
        if not self.spec.reward_zscore:
            return 0.0, 1.0
        from core.tasks.selection.rewards import rewards

        training = [entry for entry in self._entries.values() if entry.place < self.spec.train_prompts]
        stored = [(entry.place, one) for entry in training for one in entry.stored.values()]
        rewards_N = rewards(self._scores_of(stored), self.spec)
        std = float(rewards_N.std(ddof=1)) if len(rewards_N) > 1 else 0.0
        if not std > 0:
            problem = "all stored picks of the training queries earn the same, so there is no z-score; allowed: false"
            raise SpecError(problem, key="task.reward_zscore")
        return float(rewards_N.mean()), std

    def examples(self, split: Split) -> Sequence[Example]:
        """All queries of a split by sorted id; it has no `test`. Raises SpecError where a file is not as it should be.

        Inputs: `query` (d,) and `candidates` (K, d), float32; `ids`, K global indices; `choices` of a held-out query
        where only stored picks can be scored: those. Facts: `question`, `has_positive` (some stored picks are right),
        and `topic` of a generated query or `answers` of a read one.
        """
        return self._splits.get(split, ())

    @cached_property
    def _splits(self) -> Mapping[Split, tuple[Example, ...]]:
        examples = tuple(entry.example for entry in self._entries.values())
        return {"train": examples[: self.spec.train_prompts], "eval": examples[self.spec.first_held_out :]}

    def score(
        self, examples: Sequence[Example], outputs: Sequence[Any], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """The reward of an output's first `shots` picks by `reward_mode`; `expected` is their accuracy, in every mode.

        Parts: `accuracy` and `correct`. Of an output with more picks instead `accuracy_1`, `accuracy_2`, ...: the
        expected accuracy of its first 1, 2, ... picks. What nobody has scored is NaN.
        Raises TaskError for an example of another task, and for picks that are none, outside the pool, or there twice.
        """
        import numpy as np

        by_length: dict[int, list[int]] = {}
        places, picks = [], []
        for row, (example, output) in enumerate(zip(examples, outputs, strict=True)):
            entry = self._entry(example)
            places.append(entry.place)
            picks.append(_global(entry.example, output))
            by_length.setdefault(len(picks[-1]), []).append(row)
        outcomes: dict[int, Outcome] = {}
        for rows in by_length.values():
            scored = self._outcomes(np.array([places[row] for row in rows]), np.array([picks[row] for row in rows]))
            outcomes |= zip(rows, scored, strict=True)
        return [outcomes[row] for row in range(len(outcomes))]

    def _outcomes(self, place_N: Ints, picks_NS: Ints) -> list[Outcome]:
        """Of picks of one length."""
        from core.tasks.selection.rewards import rewards

        picked, shots = picks_NS.shape[1], self.spec.shots
        scores, (mean, std) = self.data.scores(place_N, picks_NS[:, :shots]), self._standard
        parts = {"accuracy": scores.accuracy_N, "correct": scores.correct_N}
        if picked > shots:
            prefixes = ((count, self.data.scores(place_N, picks_NS[:, :count])) for count in range(1, picked + 1))
            parts = {f"accuracy_{count}": of.expected_N for count, of in prefixes}
        rewards_N = (rewards(scores, self.spec) - mean) / std
        rows = zip(*(values_N.tolist() for values_N in parts.values()), strict=True)
        return [
            Outcome(
                reward=reward,
                expected=expected,
                valid=True,
                parts=dict(zip(parts, row, strict=True)),
                right=correct == 1,
            )
            for reward, expected, correct, row in zip(
                rewards_N.tolist(), scores.expected_N.tolist(), scores.correct_N.tolist(), rows, strict=True
            )
        ]

    def _entry(self, example: Example) -> Entry:
        try:
            return self._entries[example.id]
        except KeyError:
            raise TaskError(f"example {example.id} is no query of this task") from None

    def stored(self, example: Example) -> Sequence[Picks]:
        """The picks that were scored beforehand, each set once, less those that `drop_wrong_below` leaves out."""
        return tuple(self._entry(example).stored)

    def target(self, example: Example) -> Picks:
        """The first beam: of the stored picks that beam search proposed, the ones with the highest beam score.

        Where a query has none of a beam, the highest beam score of all. `drop_wrong_below` does not matter here.
        """
        return self._entry(example).first_beam

    def beam_scores(self, examples: Sequence[Example], outputs: Sequence[Picks]) -> list[float]:
        """The beam scores of outputs of `shots` picks; NaN where there is none."""
        scores: list[float] = self._scores_of_outputs(examples, outputs).beam_score_N.tolist()
        return scores

    def rewards_by_mode(
        self, examples: Sequence[Example], outputs: Sequence[Picks]
    ) -> Mapping[RewardMode, list[float]]:
        """What outputs of `shots` picks earn under each reward mode, before any z-score; NaN where unknown."""
        from core.tasks.selection.rewards import rewards

        scores = self._scores_of_outputs(examples, outputs)
        modes: tuple[RewardMode, ...] = get_args(RewardMode)
        return {mode: rewards(scores, self.spec.model_copy(update={"reward_mode": mode})).tolist() for mode in modes}

    def _scores_of_outputs(self, examples: Sequence[Example], outputs: Sequence[Picks]) -> Scores:
        """Of outputs that all have one length."""
        import numpy as np

        entries = [self._entry(example) for example in examples]
        picks = [_global(entry.example, output) for entry, output in zip(entries, outputs, strict=True)]
        return self.data.scores(np.array([entry.place for entry in entries]), np.array(picks))

    def baselines(self) -> Mapping[str, Mapping[str, float]]:
        """`random`, `nearest` and `best_possible`: the accuracy at `shots` picks, and at 1 to 4 (`baselines_at`).

        At another number of picks than `shots` those are left out that would look at more than MOST_BESIDE sets.
        """
        held_out, shots = self.examples("eval"), self.spec.shots
        reached: dict[str, dict[str, float]] = {}
        for count in range(1, min(MOST_PICKS, *(len(_ids(example)) for example in held_out)) + 1):
            most_sets = None if count == shots else MOST_BESIDE // len(held_out)
            for name, accuracy in self.baselines_at(count, most_sets=most_sets).items():
                of_name = reached.setdefault("best_possible" if name == "best" else name, {})
                of_name |= {"eval/reward": accuracy} if count == shots else {}
                of_name[f"eval/rewards/accuracy_{count}"] = accuracy
        return {name: reached[name] for name in ("random", "nearest", "best_possible") if name in reached}

    def baselines_at(self, shots: int, *, most_sets: int | None = None) -> Mapping[str, float]:
        """Mean accuracy on the held-out queries of `shots` picks at `random`, the `nearest`, and the `best` there are.

        Exact expectations of generated data, where `best` is the most that any policy can reach. Of files: the same
        over the stored picks of that length, as only they were scored. A name is absent where it is not known, or where
        a pool has more than `most_sets` sets that it would take.
        """
        held_out = self.examples("eval")
        places = [self._entry(example).place for example in held_out]
        return self.data.baselines(places, [_ids(example) for example in held_out], shots, most_sets=most_sets)

    def record(self, output: Any) -> Mapping[str, object]:
        """The positions that were picked, in order."""
        return {"picks": [int(position) for position in output]}

    def shown(self, example: Example) -> str:
        """The question."""
        return str(example.facts["question"])

    def shown_output(self, sample: Mapping[str, object]) -> str:
        """The positions, in the order picked."""
        picks = sample["picks"]
        return f"picks {', '.join(map(str, picks))}" if isinstance(picks, Sequence) else str(picks)

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        """Accuracy and variety of the picks, a line for each quarter of the steps that were sampled on."""
        steps = sorted({int(str(row["step"])) for row in samples})
        lines = []
        for quarter in range(_QUARTERS):
            inside = set(steps[quarter * len(steps) // _QUARTERS : (quarter + 1) * len(steps) // _QUARTERS])
            rows = [row for row in samples if int(str(row["step"])) in inside]
            if not rows:
                continue
            parts: list[Any] = [row["rewards"] for row in rows if isinstance(row.get("rewards"), Mapping)]
            means = (
                [value for one in parts if not math.isnan(value := one.get(name, math.nan))]
                for name in ("accuracy", "correct")
            )
            sets = {(row["prompt_id"], *sorted(row["picks"])) for row in rows if isinstance(row["picks"], list)}
            lines.append(
                (
                    f"{min(inside)} to {max(inside)}",
                    str(len(rows)),
                    *(f"{100 * sum(values) / len(values):.1f} %" if values else "unknown" for values in means),
                    f"{100 * len(sets) / len(rows):.1f} %",
                )
            )
        columns = ("steps", "samples", "accuracy", "right", "sets that differ")
        return [Table(title="Picks over the steps", columns=columns, rows=tuple(lines))]


_QUARTERS = 4


def _ids(example: Example) -> PickTuple:
    ids = example.inputs["ids"]
    assert isinstance(ids, tuple)
    return ids


def _global(example: Example, picks: Any) -> PickTuple:
    """The global indices of positions. Raises TaskError."""
    ids = _ids(example)
    chosen = tuple(picks)
    if not chosen or len(set(chosen)) < len(chosen) or not all(position in range(len(ids)) for position in chosen):
        allowed = f"different positions from 0 to {len(ids) - 1}"
        raise TaskError(f"got the picks {chosen} for {example.id}; allowed: {allowed}")
    return tuple(ids[position] for position in chosen)
