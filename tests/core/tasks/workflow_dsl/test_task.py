"""The workflow task: its rewards and its tables."""

from __future__ import annotations

from collections import defaultdict

import pytest

from core.config.task import WorkflowDslTaskSpec
from core.errors import TaskError
from core.tasks.base import Example
from core.tasks.registry import build
from core.tasks.text import text_example
from core.tasks.workflow_dsl.rewards import DOMAINS, fallback
from core.tasks.workflow_dsl.task import WorkflowDslTask

ALL = {"math": 2.0, "qa": 1.0, "code": 1.0}


def task(**settings) -> WorkflowDslTask:
    return WorkflowDslTask(WorkflowDslTaskSpec(name="workflow-dsl", **settings))


def problem(domain: str, difficulty: float) -> Example:
    return text_example(id="x", prompt="", facts={"domain": domain, "difficulty": difficulty})


def test_the_registry_builds_it() -> None:
    assert isinstance(build(WorkflowDslTaskSpec(name="workflow-dsl")), WorkflowDslTask)


def test_equal_lines_on_one_problem_earn_the_same() -> None:
    subject = task(domains=ALL)
    for example in subject.examples("train")[:50]:
        spaced, plain = subject.score([example, example], ["Programmer->Custom", "Programmer -> Custom\n"])
        assert spaced == plain
        junk, other_junk = subject.score([example, example], ["### Step 1: Analyze", ""])
        assert junk == other_junk  # every invalid text is the same fallback
        assert not junk.valid


def test_fallback_pairs_tie_as_in_the_log(outcome_rows: list[dict[str, str]]) -> None:
    pairs: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in outcome_rows:
        pairs[row["step"], row["sample"].split("-")[0]].append(row)
    both = [p for p in pairs.values() if all(r["fallback"] == "true" and r["executed"] == "true" for r in p)]
    ties = sum(first["reward"] == second["reward"] for first, second in both)
    assert (ties, len(both)) == (104, 116)
    # Independent draws would tie far less often than the log's 0.90: math (4² + 78² + 28² + 58²) / 168² = 0.36.
    independent = sum(p * p for p in fallback("math").probabilities)
    assert independent == pytest.approx(0.363, abs=1e-3)
    # Ours tie always; what is left of the log's difference is the judge's own noise, which is not modelled.
    subject = task(domains=ALL)
    examples = [example for example in subject.examples("train") for _ in range(2)]
    rewards = [outcome.reward for outcome in subject.score(examples, ["no", "workflow"] * (len(examples) // 2))]
    assert all(a == b for a, b in zip(rewards[::2], rewards[1::2], strict=True))


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("text", ["Programmer -> Custom", "Custom -> Review ? Revise : done", "Test", "not a workflow"])
def test_a_harder_problem_never_earns_more(domain: str, text: str) -> None:
    subject = task()
    examples = [problem(domain, (i + 0.5) / 200) for i in range(200)]
    rewards = [outcome.reward for outcome in subject.score(examples, [text] * 200)]
    assert rewards == sorted(rewards, reverse=True)
    assert rewards[0] > rewards[-1]


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize(
    "text", ["Programmer -> Custom", "Review ? Revise : done", "[Custom, Custom] -> MdEnsemble -> Format", "nonsense"]
)
@pytest.mark.parametrize("cost", [0.0, 0.005, 0.05])
def test_expected_is_the_mean_over_the_difficulty(domain: str, text: str, cost: float) -> None:
    # A step function of five levels on a grid of 4000 midpoints: off by at most 1 / 4000.
    subject = task(operator_cost=cost)
    size = 4000
    examples = [problem(domain, (i + 0.5) / size) for i in range(size)]
    scored = subject.score(examples, [text] * size)
    assert sum(outcome.reward for outcome in scored) / size == pytest.approx(scored[0].expected, abs=1e-3)
    assert min(outcome.reward for outcome in scored) >= 0


def test_reward_is_level_minus_cost() -> None:
    # math, Programmer -> Custom: 7 of 28 at 0.2, 2 at 0.4, 19 at 1.0: the easiest 19/28 = 0.679 of problems are right.
    subject = task(operator_cost=0.01)
    examples = [problem("math", difficulty) for difficulty in (0.67, 0.69, 0.74, 0.76)]
    rewards = [outcome.reward for outcome in subject.score(examples, ["Programmer -> Custom"] * 4)]
    assert rewards == pytest.approx([0.98, 0.38, 0.38, 0.18])
    # The fallback pays for one operator; qa fallback is 0 on its 35 hardest of 76, and the reward stops there.
    hard, easy = subject.score([problem("qa", 0.9), problem("qa", 0.1)], ["?", "?"])
    assert (hard.reward, easy.reward) == pytest.approx((0.0, 0.99))


def test_a_foreign_example_is_refused() -> None:
    with pytest.raises(TaskError, match="no problem of workflow-dsl"):
        task().score([text_example(id="y", prompt="1+1=", facts={"answer": 2})], ["Custom"])


def test_tables_of_document_000() -> None:
    texts = [
        "Custom -> Custom -> Review ? Revise : done",
        "Custom->Custom->Review?Revise:done",  # the same workflow, spelled otherwise
        "Custom",
        "(Review -> Revise) * 2",
        "[Custom, Test] -> ScEnsemble",
        "### Step 1: Analyze",
        "Custom -> Review -> Revise *",
        "",
    ]
    totals, top, used, classes = task().tables([{"text": text} for text in texts])
    assert [row[1:] for row in totals.rows] == [("8", "100.0 %"), ("5", "62.5 %"), ("3", "37.5 %"), ("4", "")]
    assert top.rows[0] == ("1", "2", "40.0 %", "Custom -> Custom -> Review ? Revise : done")
    assert len(top.rows) == 4
    # Custom is called six times in four workflows: the document counts workflows.
    assert {row[0]: row[1] for row in used.rows} == {
        "Custom": "4", "Review": "3", "Revise": "3", "Test": "1", "ScEnsemble": "1",
    }  # fmt: skip
    assert classes.rows == (
        ("single", "1", "1", "20.0 %"),
        ("chain", "0", "0", "0.0 %"),
        ("conditional", "1", "2", "40.0 %"),
        ("parallel", "1", "1", "20.0 %"),
        ("loop", "1", "1", "20.0 %"),
    )


def test_tables_of_nothing() -> None:
    totals, top, used, classes = task().tables([])
    assert totals.rows[1] == ("valid", "0", "-")
    assert top.rows == used.rows == ()
    assert len(classes.rows) == 5
