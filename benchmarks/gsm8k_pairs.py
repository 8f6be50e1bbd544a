"""Real data for the selector: pairs of worked GSM8K problems, scored by how SmolLM2-135M works another one after them.

    python -m benchmarks.gsm8k_pairs --data FOLDER --out pairs      # FOLDER has GSM8K's train.jsonl
    grpoctl check pairs/gsm8k-pairs.yaml --data
    grpoctl run pairs/gsm8k-pairs.yaml

**What a pair earns.** The model reads both worked problems, the question and the worked solution, whose every result of
a calculation (GSM8K marks them) it has to get right greedily, after the right text up to there. `vqa_acc_score` is the
share of results that it gets, `vqa_correct` whether it gets the last one, which is the answer; `logprob_score` is the
mean log-prob of a token of the solution, `vqa_gt_prob` its exp. So it is told every step and asked for the arithmetic
alone: by itself a model of this size solves about one problem in a hundred, and nearly every pair would be wrong.

**Embeddings** are of the question alone: the mean of the last hidden states over its tokens, less the mean over the
candidates, to length 1. States and not token embeddings, as those do not know the order of words; less the mean, as
without it any two questions have a cosine of .7 to .9.

All queries have the same candidates. A query's pairs are the nearest by cosine and then random ones, none twice. Of a
pair the one with the lower index is read first, so that pairs share what the model has read: with a cache of keys and
values only question and solution are computed for each. A row of rows.jsonl is written when it is scored; started again
with the same settings it goes on where it was killed.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
LONGEST = 800  # characters of a problem and its solution, which most do not reach: some 200 tokens
NEAREST = 0.25  # of a query's pairs
HELD_OUT = 1 / 3  # of the queries
_RESULT = re.compile(r"<<[^<>\n]*>>(-?[\d,]*\.?\d+)")
_MARKS = re.compile(r"<<[^<>\n]*>>")

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What the scores depend on: a folder that was begun with others is not gone on with."""

    queries: int
    candidates: int
    pairs_per_query: int
    seed: int
    model: str = MODEL


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkedProblem:
    """A problem of GSM8K: `results` are the places in the solution of what its calculations give, the answer last."""

    question: str
    solution: str
    answer: str
    results: tuple[tuple[int, int], ...]

    @property
    def shown(self) -> str:
        """It as an example before another question."""
        return f"{asking(self)}{self.solution}\n#### {self.answer}\n\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """How the model works a problem after two examples."""

    logprob: float  # mean of a token of the solution, in nats
    right: tuple[bool, ...]  # of each result


class Scorer(Protocol):
    """A language model as far as this needs one."""

    def embeddings(self, texts: Sequence[str]) -> Floats:
        """(texts, d)."""
        ...

    def score(self, examples: tuple[WorkedProblem, WorkedProblem], problem: WorkedProblem) -> Score:
        """How it works a problem after these examples, in this order."""
        ...


def asking(problem: WorkedProblem) -> str:
    """The question as the model is asked it."""
    return f"Question: {problem.question}\nAnswer: "


def worked_problem(question: str, worked: str) -> WorkedProblem | None:
    """A row of GSM8K; None where its last marked result is not its answer, or where it is long."""
    marked, _, answer = worked.rpartition("\n#### ")
    parts, results, end = [], [], 0
    length = 0
    for result in _RESULT.finditer(marked):
        plain = _MARKS.sub("", marked[end : result.start(1)])
        parts += [plain, result[1]]
        length += len(plain)
        results.append((length, length + len(result[1])))
        length += len(result[1])
        end = result.end()
    solution = "".join([*parts, _MARKS.sub("", marked[end:])])
    if not results or len(question) + len(solution) > LONGEST:
        return None
    last = solution[slice(*results[-1])]
    if last.replace(",", "") != answer.replace(",", ""):
        return None
    return WorkedProblem(question=question, solution=solution, answer=answer, results=tuple(results))


def chosen_problems(folder: Path, settings: Settings) -> tuple[list[WorkedProblem], list[WorkedProblem]]:
    """Candidates and queries, drawn by the seed from train.jsonl; more queries leave the first ones."""
    lines = (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    Random(settings.seed).shuffle(rows)
    usable = [problem for row in rows if (problem := worked_problem(row["question"], row["answer"])) is not None]
    wanted = settings.candidates + settings.queries
    if len(usable) < wanted:
        raise SystemExit(f"{folder} has {len(usable)} problems that can be used, and {wanted} are asked for")
    return usable[: settings.candidates], usable[settings.candidates : wanted]


def proposed_pairs(nearness_QK: Floats, settings: Settings) -> list[dict[Pair, str]]:
    """The pairs of each query and what proposed them: those with the largest sums of cosines, then random ones."""
    pairs = list(combinations(range(settings.candidates), 2))
    proposals = []
    for query, nearness_K in enumerate(nearness_QK):
        by_nearness = sorted(pairs, key=lambda pair: -float(nearness_K[pair[0]] + nearness_K[pair[1]]))
        nearest = by_nearness[: math.ceil(NEAREST * settings.pairs_per_query)]
        others = by_nearness[len(nearest) :]
        drawn = Random(f"{settings.seed}/{query}").sample(others, settings.pairs_per_query - len(nearest))
        proposals.append({**dict.fromkeys(nearest, "similarity"), **dict.fromkeys(drawn, "random")})
    return proposals


def whole_rows(file: Path) -> dict[tuple[int, Pair], Score]:
    """The rows that were written in full; what a kill left of a last one is cut off the file."""
    if not file.is_file():
        return {}
    written = file.read_bytes()
    whole = written[: written.rfind(b"\n") + 1]
    if len(whole) < len(written):
        file.write_bytes(whole)
    rows = (json.loads(line) for line in whole.splitlines())
    return {
        (row["query"], (row["pair"][0], row["pair"][1])): Score(logprob=row["logprob"], right=tuple(row["right"]))
        for row in rows
    }


def score_pairs(
    scorer: Scorer,
    problems: tuple[Sequence[WorkedProblem], Sequence[WorkedProblem]],
    proposals: Sequence[dict[Pair, str]],
    file: Path,
    watched: Callable[[list[tuple[Pair, int]]], Iterator[tuple[Pair, int]]] = iter,
) -> dict[tuple[int, Pair], Score]:
    """Score what `file` does not have yet, a line for each at once; all scores by query and pair.

    `problems` are candidates and queries; `watched` gives what is left one after another, and may show a bar.
    """
    candidates, queries = problems
    scores = whole_rows(file)
    left = sorted(
        (pair, query) for query, pairs in enumerate(proposals) for pair in pairs if (query, pair) not in scores
    )
    with file.open("a", encoding="utf-8") as stream:
        for pair, query in watched(left):
            score = scorer.score((candidates[pair[0]], candidates[pair[1]]), queries[query])
            scores[query, pair] = score
            row = {"query": query, "pair": pair, "logprob": score.logprob, "right": score.right}
            stream.write(json.dumps(row) + "\n")
            stream.flush()
    return scores


def write_files(
    out: Path,
    queries: Sequence[WorkedProblem],
    proposals: Sequence[dict[Pair, str]],
    scores: dict[tuple[int, Pair], Score],
    settings: Settings,
) -> None:
    """The task's JSON file and an experiment that reads it."""
    document: dict[str, Any] = {"_meta": asdict(settings)}
    for number, (problem, pairs) in enumerate(zip(queries, proposals, strict=True)):
        rows = []
        for pair, method in pairs.items():
            score = scores[number, pair]
            rows.append(
                {
                    "pointer": pair,
                    "gen_method": method,
                    "vqa_correct": int(score.right[-1]),
                    "vqa_acc_score": sum(score.right) / len(score.right),
                    "vqa_gt_prob": math.exp(score.logprob),
                    "logprob_score": score.logprob,
                }
            )
        document[f"query-{number:05d}"] = {
            "question": problem.question,
            "gt_answers_norm": [problem.answer],
            "candidate_pool_ids": list(range(settings.candidates)),
            "pointer_candidates": rows,
        }
    (out / "pairs.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


def cosines(queries_Qd: Floats, candidates_Kd: Floats) -> tuple[Floats, Floats]:
    """Both less the candidates' mean and of length 1: their products are the cosines."""
    import numpy as np

    mean_d = candidates_Kd.mean(0)
    queries_Qd, candidates_Kd = queries_Qd - mean_d, candidates_Kd - mean_d
    return (
        queries_Qd / np.linalg.norm(queries_Qd, axis=-1, keepdims=True),
        candidates_Kd / np.linalg.norm(candidates_Kd, axis=-1, keepdims=True),
    )


def make(folder: Path, out: Path, settings: Settings, scorer: Callable[[], Scorer], watched: Any = iter) -> None:
    """All files of `out`, gone on with where they were begun. SystemExit where they were begun with other settings."""
    from safetensors.numpy import load_file, save_file

    out.mkdir(parents=True, exist_ok=True)
    begun = out / "settings.json"
    if begun.is_file() and (before := json.loads(begun.read_text(encoding="utf-8"))) != asdict(settings):
        raise SystemExit(f"{out} was begun with {before}; allowed: the same, or another --out")
    candidates, queries = chosen_problems(folder, settings)
    model = scorer()
    begun.write_text(json.dumps(asdict(settings)), encoding="utf-8")
    files = [out / "query_embeddings.safetensors", out / "candidate_embeddings.safetensors"]
    if not all(file.is_file() for file in files):
        embeddings = cosines(*(model.embeddings([one.question for one in of]) for of in (queries, candidates)))
        for file, rows in zip(files, embeddings, strict=True):
            partial = file.with_suffix(".partial")
            save_file({"embeddings": rows}, partial)
            partial.replace(file)
    queries_Qd, candidates_Kd = (load_file(file)["embeddings"] for file in files)
    proposals = proposed_pairs(queries_Qd @ candidates_Kd.T, settings)
    scores = score_pairs(model, (candidates, queries), proposals, out / "rows.jsonl", watched)
    write_files(out, queries, proposals, scores, settings)
    held_out = round(HELD_OUT * settings.queries)
    train = settings.queries - held_out
    experiment = EXPERIMENT.format(
        folder=out.resolve(),
        train=train,
        held_out=held_out,
        width=queries_Qd.shape[1],
        rce_steps=5 * train,
        batch=min(16, train),
    )
    (out / "gsm8k-pairs.yaml").write_text(experiment, encoding="utf-8")


EXPERIMENT = """\
# p40 on real pairs: {train} queries to learn from, so steps and rates are those of its profile tiny.
name: gsm8k-pairs
revision: 1
extends: p40
title: The selector on pairs of GSM8K problems that SmolLM2-135M scored
question: What do three epochs of GRPO add where the scores are a real model's?
source: python -m benchmarks.gsm8k_pairs

policy: {{width: {width}, hidden: 64}}
task:
  train_prompts: {train}
  eval_prompts: {held_out}
  world: null
  data:
    path: {folder}/pairs.json
    query_embeddings: {folder}/query_embeddings.safetensors
    candidate_embeddings: {folder}/candidate_embeddings.safetensors
stages:
  sft: {{prompts_per_step: {batch}, learning_rate: 1.0e-3, warmup_steps: 4}}
  rce:
    learning_rate: 1.0e-3
    tau: {{start: 2.0, end: 0.5, steps: {rce_steps}}}
  grpo:
    learning_rate: 5.0e-5
    keep_candidates: {{start: 3, end: 5, steps: {train}, shape: step}}
evaluation: {{eval_steps: {train}}}
checkpoints: {{save_steps: {train}}}
recorded: {{}}
profiles: {{tiny: null}}
"""


class SmolScorer:
    """SmolLM2-135M-Instruct on one batch row, with the keys and values of examples that it has read kept."""

    def __init__(self) -> None:
        from core.config import ModelSpec
        from core.models.loading import load

        self._model, self._tokenizer = load(
            ModelSpec(source=MODEL, dtype="float32"), tuple
        )  # warm-up pairs are the built-in model's
        self._first: dict[str, Any] = {}  # by text: what the model keeps of an example that is read first
        self._pair: tuple[tuple[str, str], Any] | None = None  # of the latest pair, whose queries follow one another

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def embeddings(self, texts: Sequence[str]) -> Floats:
        """The mean of the last hidden states, one text after another."""
        import numpy as np
        import torch

        with torch.inference_mode():
            means = [
                self._model.model(torch.tensor([self._ids(text)])).last_hidden_state[0].mean(0).numpy()
                for text in texts
            ]
        return np.stack(means)

    def _read(self, examples: tuple[WorkedProblem, WorkedProblem]) -> Any:
        """The cache of both examples, which `score` gives back as it was."""
        import copy

        import torch
        from transformers import DynamicCache

        first, second = (example.shown for example in examples)
        if self._pair is None or self._pair[0] != (first, second):
            if first not in self._first:
                self._first[first] = DynamicCache()
                self._model.model(torch.tensor([self._ids(first)]), past_key_values=self._first[first])
            cache = copy.deepcopy(self._first[first])
            self._model.model(torch.tensor([self._ids(second)]), past_key_values=cache)
            self._pair = (first, second), cache
        return self._pair[1]

    def score(self, examples: tuple[WorkedProblem, WorkedProblem], problem: WorkedProblem) -> Score:
        """One pass over question and solution, after the examples' keys and values."""
        import torch

        question = self._ids(asking(problem))
        encoded = self._tokenizer(f"{problem.solution}\n", add_special_tokens=False, return_offsets_mapping=True)
        solution, places = encoded["input_ids"], encoded["offset_mapping"]
        with torch.inference_mode():
            cache = self._read(examples)
            logits_TV = self._model(
                torch.tensor([question + solution]), past_key_values=cache, logits_to_keep=len(solution) + 1
            ).logits[0, :-1]
            cache.crop(-len(question + solution))
            target_T = torch.tensor(solution)
            logprob_T = logits_TV.log_softmax(-1).gather(-1, target_T[:, None])[:, 0]
            best_T = logits_TV.argmax(-1)
        hit = (best_T == target_T).tolist()

        def got(start: int, end: int) -> bool:
            """Every token of the result, and no further digit after it."""
            tokens = [at for at, (left, right) in enumerate(places) if left < end and right > start]
            after = self._tokenizer.decode([int(best_T[tokens[-1] + 1])])
            return all(hit[at] for at in tokens) and not after[:1].isdigit()

        return Score(logprob=float(logprob_T.mean()), right=tuple(got(*place) for place in problem.results))


def with_bar(left: list[tuple[Pair, int]]) -> Iterator[tuple[Pair, int]]:
    """What is left, one after another, under a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), "pairs,", TimeElapsedColumn(), "left", TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        yield from bar.track(left)


def main(argv: Sequence[str] | None = None) -> None:
    """Make the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with GSM8K's train.jsonl")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=120)
    parser.add_argument("--candidates", type=int, default=24)
    parser.add_argument("--pairs-per-query", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(argv)
    if not 1 <= given.pairs_per_query <= math.comb(given.candidates, 2):
        parser.error(
            f"--pairs-per-query: allowed: 1 to {math.comb(given.candidates, 2)} of {given.candidates} candidates"
        )
    import torch

    torch.set_num_threads(given.threads)
    settings = Settings(
        queries=given.queries, candidates=given.candidates, pairs_per_query=given.pairs_per_query, seed=given.seed
    )
    make(given.data, given.out, settings, SmolScorer, with_bar)


if __name__ == "__main__":
    main()
