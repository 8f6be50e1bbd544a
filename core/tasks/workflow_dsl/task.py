"""WorkflowDslTask: the problems of a spec, and what a completion earns on one.

Each problem has one latent difficulty, shared by its whole group; it picks the level from the pattern's distribution
(the same quantile for every pattern). So two equal lines on one problem always earn the same, as fallback pairs mostly
did in P30's log (104 of the 116 pairs that ran); independent draws would give such a group a signal that is pure noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal, assert_never

from core.config.task import Domain, WorkflowDslTaskSpec
from core.errors import TaskError
from core.tasks.base import Example, Outcome, Split, Table
from core.tasks.text import TextTask, text_example
from core.tasks.workflow_dsl import demonstrations
from core.tasks.workflow_dsl.distribution import Distribution
from core.tasks.workflow_dsl.outcomes import DOMAINS, fallback, outcomes
from core.tasks.workflow_dsl.parser import DslError, parse
from core.tasks.workflow_dsl.problems import problem_texts, unit
from core.tasks.workflow_dsl.prompts import prompt_text
from core.tasks.workflow_dsl.structure import operators
from core.tasks.workflow_dsl.tables import sample_tables


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
        seed = self.spec.data_seed
        texts = {domain: problem_texts(domain, split, seed) for domain in DOMAINS}
        examples = []
        for index in range(count):
            domain = self._domain(unit("domain", seed, split, index))
            prompt = prompt_text(self.spec.prompt, domain, next(texts[domain]))
            facts = {"domain": domain, "difficulty": unit("difficulty", seed, split, index)}
            examples.append(text_example(id=f"{split}-{index:05d}", prompt=prompt, facts=facts))
        return tuple(examples)

    def _domain(self, u: float) -> Domain:
        """The domain at `u` of the weights. Walked in a fixed order: the order of the keys in a spec means nothing."""
        weighted = [domain for domain in DOMAINS if self.spec.domains.get(domain, 0.0) > 0]
        left = u * sum(self.spec.domains[domain] for domain in weighted)
        for domain in weighted:
            left -= self.spec.domains[domain]
            if left < 0:
                return domain
        return weighted[-1]  # rounding

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
        distribution, count, valid = _judged(DOMAINS[DOMAINS.index(domain)], output)
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
            lines = demonstrations.DOMINANT[domain]
            good[domain] = {line: n for line, n in lines.items() if self._expected(domain, line) > floor} or dict(lines)
        return good

    def _expected(self, domain: Domain, line: str) -> float:
        distribution, count, _ = _judged(domain, line)
        return distribution.expected(self.spec.operator_cost * count)

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        """The tables of document 000, sections 3.1 to 3.4."""
        return sample_tables(samples)

    def demonstrations(self, count: int, seed: int) -> list[tuple[str, str]]:
        """`count` (short prompt, valid line) pairs over all domains, whatever the spec's weights and prompt style."""
        return demonstrations.demonstrations(count, seed)

    def free_text(self, count: int, seed: int) -> list[tuple[str, str]]:
        """`count` (short prompt, English sentence) pairs, none of them valid."""
        return demonstrations.free_text(count, seed)


def _judged(domain: Domain, text: str) -> tuple[Distribution, int, bool]:
    """The distribution, the number of operators to pay for, and whether `text` is a workflow."""
    try:
        workflow = parse(text)
    except DslError:
        return fallback(domain), 1, False  # the seed then ran a lone Custom
    return outcomes(domain, workflow), len(operators(workflow)), True
