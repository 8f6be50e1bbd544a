"""A user's scored picks (JSON, documents 001 and 004) and embeddings (.npy, .safetensors) -> queries and their scores.

    {"_meta": ..., "17": {"question": ..., "candidate_pool_ids": [...], "pointer_candidates": [
        {"pointer": [120, 44], "gen_method": "beam", "beam_score": -1.2, "vqa_correct": 1, "vqa_acc_score": 0.6, ...}]}}

Everything that is wrong is a SpecError of one line with file, query id and field. Nothing is loaded that can run code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core.config.task import ExampleSelectionTaskSpec, SelectionFilesSpec
from core.errors import SpecError
from core.tasks.selection.queries import SOURCES, PickTuple, Query, Scores, StoredPicks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from core.tasks.selection.queries import Floats, Ints

NOT_SCORED = ("fallback", "error")  # a vqa_eval_mode whose row is left out
_MOST_PICKS = 4
_MISSING = object()


class _Twice(dict[str, Any]):
    """A JSON object that has a key twice, which a dict would hide."""

    key: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    names = [name for name, _ in pairs]
    twice = _Twice(values)
    twice.key = next(name for name in names if names.count(name) > 1)
    return twice


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _are_ints(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_int, value))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fields:
    """An object of the file and where it stands: reads its fields, or says what is wrong with one."""

    values: Mapping[str, Any]
    file: Path
    where: str

    @classmethod
    def of(cls, value: object, file: Path, where: str) -> _Fields:
        if not isinstance(value, dict):
            raise SpecError(f"{where}: got {_shown(value)}; allowed: an object", file=file)
        if isinstance(value, _Twice):
            raise SpecError(f"{where}: {value.key}: stands there twice; allowed: once", file=file)
        return cls(values=value, file=file, where=where)

    def refused(self, field: str, problem: str) -> SpecError:
        return SpecError(f"{self.where}: {field}: {problem}", file=self.file)

    def read(self, field: str, fits: Callable[[Any], bool], allowed: str) -> Any:
        value = self.values.get(field, _MISSING)
        if value is _MISSING:
            raise self.refused(field, f"missing; allowed: {allowed}")
        if not fits(value):
            raise self.refused(field, f"got {_shown(value)}; allowed: {allowed}")
        return value

    def number(self, field: str, *, needed: bool) -> float:
        """NaN where it is null or absent and nobody needs it."""
        if not needed and self.values.get(field) is None:
            return math.nan
        return float(self.read(field, _is_number, "a number"))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """One scored pick tuple of the file."""

    picks: PickTuple
    source: str
    scores: tuple[float, float, float, float, float]  # h, s, g, r, beam score


class SelectionFiles:
    """The queries of a file, sorted by id, as many as a spec asks for; see core.tasks.selection.queries.SelectionData.

    All of the file is checked, also queries that are not used. `known` has the scores of every set of picks of a query.
    """

    def __init__(self, files: SelectionFilesSpec, spec: ExampleSelectionTaskSpec) -> None:
        self._spec, self._file = spec, Path(files.path).expanduser()
        objects = _queries_of(self._file)
        rows_Qd = _embeddings(files.query_embeddings, "query_embeddings", [f"query {name}" for name in objects])
        self.candidate_embeddings = _embeddings(files.candidate_embeddings, "candidate_embeddings")
        if rows_Qd.shape[1] != self.candidate_embeddings.shape[1]:
            widths = f"the queries are {rows_Qd.shape[1]} wide, the candidates {self.candidate_embeddings.shape[1]}"
            raise SpecError(f"{widths}; allowed: one width", file=Path(files.query_embeddings), key="query_embeddings")
        read = {name: self._query(fields) for name, fields in objects.items()}
        occurring = tuple(sorted({index for pool, rows in read.values() for index in _indices(pool, rows)}))
        wanted = spec.first_held_out + spec.eval_prompts
        if wanted > len(read):
            where = "train_prompts" if spec.held_out_from is None else "held_out_from"
            problem = f"{where} + eval_prompts = {wanted}, but there are only {len(read)} queries; ask for fewer"
            raise SpecError(problem, file=self._file, key="task")
        order = sorted(range(len(read)), key=list(read).__getitem__)[:wanted]
        self.query_embeddings = rows_Qd[order]
        queries = []
        self._known: list[dict[PickTuple, _Row]] = []
        for name in (list(read)[place] for place in order):
            pool, rows = read[name]
            known: dict[PickTuple, _Row] = {}
            for row in sorted(rows, key=lambda row: _rank(row.source)):  # stable: of one source the first stays
                known.setdefault(tuple(sorted(row.picks)), row)
            stored = [row for row in known.values() if len(row.picks) == spec.shots]
            if not stored:
                problem = f"no row of {spec.shots} picks is left without those that failed; allowed: one or more"
                raise objects[name].refused("pointer_candidates", problem)
            answers = objects[name].values.get("gt_answers_norm")
            queries.append(
                Query(
                    id=name,
                    question=objects[name].values["question"],
                    pool=occurring if pool is None else pool,
                    stored=tuple(StoredPicks(picks=row.picks, source=row.source) for row in stored),
                    proposed=sum(len(row.picks) == spec.shots for row in rows),
                    facts={"answers": tuple(map(str, answers))} if isinstance(answers, list) else {},
                )
            )
            self._known.append(known)
        self.queries: Sequence[Query] = queries

    @property
    def complete(self) -> bool:
        """False: what is not in the file was never scored."""
        return False

    def _query(self, fields: _Fields) -> tuple[PickTuple | None, list[_Row]]:
        """The query's own pool (None: it names none) and its rows, less those that were not scored."""
        fields.read("question", lambda value: isinstance(value, str), "text")
        bank, pool = len(self.candidate_embeddings), None
        if fields.values.get("candidate_pool_ids") is not None:
            pool = tuple(fields.read("candidate_pool_ids", _are_ints, "a list of whole numbers"))
            if strangers := [index for index in pool if not 0 <= index < bank]:
                raise fields.refused("candidate_pool_ids", f"got {strangers[0]}; allowed: 0 to {bank - 1}")
            if len(set(pool)) < len(pool):
                raise fields.refused("candidate_pool_ids", "has an index twice; allowed: once")
        rows = []
        candidates = fields.read("pointer_candidates", lambda value: isinstance(value, list), "a list")
        for number, value in enumerate(candidates):
            row = _Fields.of(value, self._file, f"{fields.where}: pointer_candidates[{number}]")
            if row.values.get("eval_failed") is True or row.values.get("vqa_eval_mode") in NOT_SCORED:
                continue
            rows.append(self._row(row, pool))
        return pool, rows

    def _row(self, row: _Fields, pool: PickTuple | None) -> _Row:
        spec = self._spec
        hybrid = spec.reward_mode == "hard_plus_gtprob_plus_rel"
        by_beam = (spec.reward_mode == "alpha_beta" and spec.reward_alpha > 0) or spec.drop_wrong_below is not None
        correct = row.read("vqa_correct", lambda value: value in (0, 1), "0 or 1")
        accuracy = row.read("vqa_acc_score", lambda value: _is_number(value) and 0 <= value <= 1, "0 to 1")
        score = "beam_score" if row.values.get("beam_score") is not None else "logprob_score"
        if by_beam and row.values.get(score) is None:
            raise row.refused("beam_score", "missing, and so is logprob_score; allowed: a number in one of them")
        return _Row(
            picks=self._picks(row, pool),
            source=_source(row.read("gen_method", lambda value: isinstance(value, str), "text")),
            scores=(
                float(correct),
                float(accuracy),
                row.number("vqa_gt_prob", needed=hybrid and spec.soft_weight > 0),
                row.number("vqa_rel_score", needed=hybrid and spec.rel_weight > 0),
                row.number(score, needed=False),
            ),
        )

    def _picks(self, row: _Fields, pool: PickTuple | None) -> PickTuple:
        """The global indices of a row: `pointer` as it stands, or `pointer_pos` through the query's pool."""
        told, by_position = (row.values.get(name) is not None for name in ("pointer", "pointer_pos"))
        field = "pointer_pos" if by_position and not told else "pointer"
        chosen = self._in_bank(row, pool) if field == "pointer" else _through_pool(row, pool)
        if told and by_position and pool is not None and (other := _through_pool(row, pool)) != chosen:
            problem = f"means the picks {_shown(other)}, and pointer says {_shown(chosen)}; allowed: one of the two"
            raise row.refused("pointer_pos", problem)
        if not 1 <= len(chosen) <= _MOST_PICKS or len(set(chosen)) < len(chosen):
            raise row.refused(field, f"got {_shown(chosen)}; allowed: 1 to {_MOST_PICKS} different picks")
        return tuple(chosen)

    def _in_bank(self, row: _Fields, pool: PickTuple | None) -> list[int]:
        """What `pointer` says. Raises SpecError for an index that is none of the bank's, or not of the query's pool."""
        field, bank = "pointer", len(self.candidate_embeddings)
        chosen: list[int] = row.read(
            field, _are_ints, "global indices, or pointer_pos, positions in candidate_pool_ids"
        )
        if strangers := [index for index in chosen if not 0 <= index < bank]:
            raise row.refused(field, f"got {strangers[0]}, outside the bank; allowed: 0 to {bank - 1}")
        if self._spec.pool == "query" and pool is not None and (strangers := sorted({*chosen} - {*pool})):
            allowed = "one of candidate_pool_ids, or pool: all"
            raise row.refused(field, f"got {strangers[0]}, outside the query's pool; allowed: {allowed}")
        return chosen

    def scores(self, query_N: Ints, picks_NS: Ints) -> Scores:
        """The file's scores of equal sets; NaN for picks that it does not have."""
        unknown = (math.nan,) * 5
        found = [
            row.scores if (row := self._known[query].get(tuple(sorted(picks)))) is not None else unknown
            for query, picks in zip(query_N.tolist(), picks_NS.tolist(), strict=True)
        ]
        h, s, g, r, beam = np.array(found, dtype=np.float64).reshape(-1, 5).T
        return Scores(correct_N=h, accuracy_N=s, gt_prob_N=g, rel_N=r, beam_score_N=beam, expected_N=s)

    def baselines(
        self, query_Q: Sequence[int], pools: Sequence[PickTuple], shots: int, *, most_sets: int | None = None
    ) -> Mapping[str, float]:
        """`random`, `nearest` (largest sum of cosines) and `best` among the file's own picks of this length.

        Queries that have none are left out; no baseline where no query has any.
        """
        found: dict[str, list[float]] = {"best": [], "nearest": [], "random": []}
        unit_Bd = _unit(self.candidate_embeddings)
        for query in query_Q:
            rows = [row for row in self._known[query].values() if len(row.picks) == shots]
            if not rows:
                continue
            accuracies = [row.scores[1] for row in rows]
            nearness_B = unit_Bd @ _unit(self.query_embeddings[query])
            nearest = max(range(len(rows)), key=lambda at: float(nearness_B[list(rows[at].picks)].sum()))
            found["best"].append(max(accuracies))
            found["nearest"].append(accuracies[nearest])
            found["random"].append(sum(accuracies) / len(accuracies))
        return {name: sum(values) / len(values) for name, values in found.items() if values}


def _through_pool(row: _Fields, pool: PickTuple | None) -> list[int]:
    """The global indices that `pointer_pos` means. Raises SpecError where there is no pool, or no such position."""
    field = "pointer_pos"
    positions: list[int] = row.read(field, _are_ints, "positions in candidate_pool_ids")
    if pool is None:
        raise row.refused(field, "the query has no candidate_pool_ids that it counts in; allowed: pointer")
    if strangers := [position for position in positions if not 0 <= position < len(pool)]:
        raise row.refused(field, f"got {strangers[0]}, outside the pool; allowed: 0 to {len(pool) - 1}")
    return [pool[position] for position in positions]


def _unit(rows: NDArray[np.float32]) -> Floats:
    unit: Floats = rows / np.maximum(np.linalg.norm(rows.astype(np.float64), axis=-1, keepdims=True), 1e-12)
    return unit


def _indices(pool: PickTuple | None, rows: Sequence[_Row]) -> set[int]:
    return {*(pool or ()), *(index for row in rows for index in row.picks)}


def _source(method: str) -> str:
    """beam, sample, random or similarity where a method's name begins so (`sample_t1.3`), else the name."""
    return next((source for source in SOURCES if method.startswith(source)), method)


def _rank(source: str) -> int:
    return SOURCES.index(source) if source in SOURCES else len(SOURCES)


def _queries_of(file: Path) -> dict[str, _Fields]:
    """The objects of the queries by id, in the order of the file."""
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"), object_pairs_hook=_object)
    except OSError as error:
        raise SpecError(f"cannot read it: {error.strerror or error}", file=file, key="task.data.path") from None
    except (ValueError, RecursionError) as error:
        raise SpecError(f"is no JSON: {error}", file=file, key="task.data.path") from None
    if isinstance(document, _Twice):
        raise SpecError(f"query {document.key}: stands there twice; allowed: ids that differ", file=file)
    if not isinstance(document, dict) or not set(document) - {"_meta"}:
        raise SpecError("has no query; allowed: an object of queries by id", file=file, key="task.data.path")
    return {name: _Fields.of(value, file, f"query {name}") for name, value in document.items() if name != "_meta"}


def _embeddings(name: str, field: str, owners: Sequence[str] | None = None) -> NDArray[np.float32]:
    """(rows, d) float32 of a file; `owners` say whose the rows are, where their number is known."""
    file, key = Path(name).expanduser(), f"task.data.{field}"
    try:
        rows = _tensor(file)
    except OSError as error:
        raise SpecError(f"cannot read it: {error.strerror or error}", file=file, key=key) from None
    except (ValueError, TypeError, KeyError, EOFError, SyntaxError, MemoryError) as error:
        reason = " ".join(str(error).split())
        raise SpecError(f"cannot read it as embeddings: {reason}", file=file, key=key) from None
    if rows.dtype not in (np.float16, np.float32, np.float64) or rows.ndim != 2 or 0 in rows.shape:
        got = f"{rows.dtype} of shape {rows.shape}"
        raise SpecError(f"got {got}; allowed: rows of float16, float32 or float64", file=file, key=key)
    if owners is not None and len(rows) != len(owners):
        raise SpecError(f"got {len(rows)} rows; allowed: {len(owners)}, one for each query", file=file, key=key)
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float32)
    if len(bad := np.flatnonzero(~np.isfinite(rows).all(-1))):
        whose = f"row {bad[0]}" if owners is None else f"{owners[bad[0]]}: row {bad[0]}"
        raise SpecError(f"{whose}: got NaN or an infinite number; allowed: finite ones", file=file, key=key)
    return rows


def _tensor(file: Path) -> NDArray[Any]:
    if file.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            tensors = load_file(file)
        except SafetensorError as error:
            raise ValueError(str(error)) from None
        if len(tensors) != 1 and "embeddings" not in tensors:
            raise ValueError(f"has the tensors {', '.join(sorted(tensors)) or 'none'}; one, or one called embeddings")
        array: NDArray[Any] = tensors["embeddings"] if "embeddings" in tensors else next(iter(tensors.values()))
        return array
    if file.suffix != ".npy":
        raise ValueError("its name ends in neither .npy nor .safetensors")
    with file.open("rb") as stream:  # not numpy's load, which opens archives and pickles too
        loaded: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return loaded
