"""WorkflowDslTask: the problems of a spec, and what a completion earns on one.

Each problem has one latent difficulty, shared by its whole group; it picks the level from the pattern's distribution
(the same quantile for every pattern). So two equal lines on one problem always earn the same, as fallback pairs mostly
did in P30's log (104 of the 116 pairs that ran); independent draws would give such a group a signal that is pure noise.

The tables are those of document 000, sections 3.1 to 3.4. Shares are of the valid workflows. "Workflows" in 3.3 counts
the workflows that contain an operator, which is what the document's column means: an operator that occurs twice in one
is counted once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Literal, assert_never

from core.config.task import Domain, WorkflowDslTaskSpec
from core.errors import TaskError
from core.tasks.base import Example, Outcome, Split, Table
from core.tasks.text import TextTask, text_example
from core.tasks.workflow_dsl import problems
from core.tasks.workflow_dsl.grammar import (
    STRUCTURES,
    DslError,
    Structure,
    Workflow,
    operators,
    parse,
    render,
    structure,
)
from core.tasks.workflow_dsl.problems import problem_texts, prompt_text, unit
from core.tasks.workflow_dsl.rewards import DOMAINS, Distribution, fallback, outcomes


class WorkflowDslTask(TextTask):
    """Write one line of workflow DSL; see core.tasks.base.Task."""

    def __init__(self, spec: WorkflowDslTaskSpec) -> None:
        self.spec = spec

    def examples(self, split: Split) -> Sequence[Example]:
        """All problems of a split; ids `train-00000`, ..., facts `domain`, `difficulty` (in (0, 1), 1 is hardest).

        It has no `test`.
        """
        match split:
            case "train":
                return self._train
            case "eval":
                return self._eval
            case "test":
                return ()
            case _:
                assert_never(split)

    @cached_property
    def _train(self) -> tuple[Example, ...]:
        return self._built("train", self.spec.train_prompts)

    @cached_property
    def _eval(self) -> tuple[Example, ...]:
        return self._built("eval", self.spec.eval_prompts)

    def _built(self, split: Literal["train", "eval"], count: int) -> tuple[Example, ...]:
        return _problems(split, count, self.spec.data_seed, self.spec.prompt, tuple(self.spec.domains.items()))

    def score(
        self, examples: Sequence[Example], outputs: Sequence[str], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """The reward of each output on its problem: level minus cost, at least 0.

        Raises TaskError on an example of another task.
        """
        return [self._outcome(example, output) for example, output in zip(examples, outputs, strict=True)]

    def _outcome(self, example: Example, output: str) -> Outcome:
        domain, difficulty = example.facts.get("domain"), example.facts.get("difficulty")
        if domain not in DOMAINS or not isinstance(difficulty, float):
            raise TaskError(f"example {example.id} has no domain and difficulty: it is no problem of workflow-dsl")
        distribution, count, valid = _distribution(DOMAINS[DOMAINS.index(domain)], output)
        cost = self.spec.operator_cost * count
        reward = max(0.0, distribution.quantile(1 - difficulty) - cost)
        return Outcome(reward=reward, expected=distribution.expected(cost), valid=valid)

    def target(self, example: Example) -> str:
        """One of the domain's common lines that pay more than a fallback, at the log's frequencies."""
        lines = self._good_lines[DOMAINS[DOMAINS.index(example.facts["domain"])]]
        left = unit("target", self.spec.data_seed, example.id) * sum(lines.values())
        for line, weight in lines.items():
            left -= weight
            if left < 0:
                return line
        return next(iter(lines))

    @cached_property
    def _good_lines(self) -> Mapping[Domain, Mapping[str, int]]:
        """The domain's common lines whose expected reward is above the fallback's."""
        good: dict[Domain, dict[str, int]] = {}
        for domain in DOMAINS:
            floor = fallback(domain).expected(self.spec.operator_cost)
            lines = problems.DOMINANT[domain]
            good[domain] = {line: n for line, n in lines.items() if self._expected(domain, line) > floor} or dict(lines)
        return good

    def _expected(self, domain: Domain, line: str) -> float:
        distribution, count, _ = _distribution(domain, line)
        return distribution.expected(self.spec.operator_cost * count)

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        """The tables of document 000, sections 3.1 to 3.4."""
        return sample_tables(samples)

    def demonstrations(self, count: int, seed: int) -> list[tuple[str, str]]:
        """`count` (short prompt, valid line) pairs over all domains, whatever the spec's weights and prompt style."""
        return problems.demonstrations(count, seed)

    def free_text(self, count: int, seed: int) -> list[tuple[str, str]]:
        """`count` (short prompt, English sentence) pairs, none of them valid."""
        return problems.free_text(count, seed)


def _distribution(domain: Domain, text: str) -> tuple[Distribution, int, bool]:
    """The distribution, the number of operators to pay for, and whether `text` is a workflow."""
    try:
        workflow = parse(text)
    except DslError:
        return fallback(domain), 1, False  # the seed then ran a lone Custom
    return outcomes(domain, workflow), len(operators(workflow)), True


TOP = 10


def sample_tables(samples: Sequence[Mapping[str, object]]) -> list[Table]:
    """Totals, top patterns, operators and structure classes of the samples' `text`."""
    parsed: dict[str, Workflow | None] = {}
    patterns: Counter[Workflow] = Counter()
    for sample in samples:
        text = str(sample["text"])
        if text not in parsed:
            parsed[text] = _parse_or_none(text)
        workflow = parsed[text]
        if workflow is not None:
            patterns[workflow] += 1
    return [_totals(len(samples), patterns), _top(patterns), _operators(patterns), _structures(patterns)]


def _parse_or_none(text: str) -> Workflow | None:
    try:
        return parse(text)
    except DslError:
        return None


def _totals(count: int, patterns: Counter[Workflow]) -> Table:
    valid = patterns.total()
    return Table(
        title="3.1 DSL outputs",
        columns=("", "count", "share"),
        rows=(
            ("outputs", str(count), _share(count, count)),
            ("valid", str(valid), _share(valid, count)),
            ("fallback", str(count - valid), _share(count - valid, count)),
            ("distinct valid", str(len(patterns)), ""),
        ),
    )


def _top(patterns: Counter[Workflow]) -> Table:
    named = sorted(((-count, render(workflow)) for workflow, count in patterns.items()))[:TOP]
    return Table(
        title=f"3.2 Top {TOP} patterns",
        columns=("rank", "count", "share", "pattern"),
        rows=tuple(
            (str(rank), str(-minus), _share(-minus, patterns.total()), pattern)
            for rank, (minus, pattern) in enumerate(named, start=1)
        ),
    )


def _operators(patterns: Counter[Workflow]) -> Table:
    holding: Counter[str] = Counter()
    for workflow, count in patterns.items():
        for operator in set(operators(workflow)):
            holding[operator.value] += count
    return Table(
        title="3.3 Operators",
        columns=("operator", "workflows", "share"),
        rows=tuple(
            (operator, str(count), _share(count, patterns.total()))
            for operator, count in sorted(holding.items(), key=lambda item: (-item[1], item[0]))
        ),
    )


def _structures(patterns: Counter[Workflow]) -> Table:
    kinds: Counter[Structure] = Counter()
    occurrences: defaultdict[Structure, int] = defaultdict(int)
    for workflow, count in patterns.items():
        kinds[structure(workflow)] += 1
        occurrences[structure(workflow)] += count
    return Table(
        title="3.4 Structure classes",
        columns=("class", "kinds", "workflows", "share"),
        rows=tuple(
            (name, str(kinds[name]), str(occurrences[name]), _share(occurrences[name], patterns.total()))
            for name in STRUCTURES
        ),
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


@lru_cache(maxsize=8)  # runs that follow one another in a process mostly have the same ones
def _problems(
    split: Literal["train", "eval"],
    count: int,
    seed: int,
    style: problems.Style,
    weights: tuple[tuple[str, float], ...],
) -> tuple[Example, ...]:
    texts, weight_of = {domain: problem_texts(domain, split, seed) for domain in DOMAINS}, dict(weights)
    examples = []
    for index in range(count):
        domain = _domain(unit("domain", seed, split, index), weight_of)
        problem = prompt_text(style, domain, next(texts[domain]))
        facts = {"domain": domain, "difficulty": unit("difficulty", seed, split, index)}
        examples.append(text_example(id=f"{split}-{index:05d}", prompt=problem, facts=facts))
    return tuple(examples)


def _domain(u: float, weights: Mapping[str, float]) -> Domain:
    """The domain at `u` of the weights. Walked in a fixed order: the order of the keys in a spec means nothing."""
    weighted = [domain for domain in DOMAINS if weights.get(domain, 0.0) > 0]
    left = u * sum(weights[domain] for domain in weighted)
    for domain in weighted:
        left -= weights[domain]
        if left < 0:
            return domain
    return weighted[-1]  # rounding
