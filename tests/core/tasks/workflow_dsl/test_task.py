"""The workflow task: its problems, its rewards, its tables."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from core.config.task import WorkflowDslTaskSpec
from core.errors import TaskError
from core.tasks.base import Example
from core.tasks.registry import build
from core.tasks.text import prompt_of, text_example
from core.tasks.workflow_dsl.grammar import DslError, parse, structure
from core.tasks.workflow_dsl.problems import CONSTRUCTS, problem_texts
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


def test_same_seed_same_problems_and_another_seed_others() -> None:
    assert task(data_seed=3).examples("train") == task(data_seed=3).examples("train")
    assert task(data_seed=3).examples("eval") != task(data_seed=4).examples("eval")
    # The very problems are part of what a spec's hash stands for: a changed generator must be noticed.
    first = task(domains=ALL).examples("train")[0]
    assert (first.id, prompt_of(first).text) == ("train-00000", "qa: who crossed the red castle in 14\nDSL: ")
    assert first.facts["difficulty"] == pytest.approx(0.1108010569711)


def test_a_longer_split_begins_with_the_shorter_one() -> None:
    short, long = task(train_prompts=20), task(train_prompts=600, eval_prompts=7)
    assert long.examples("train")[:20] == short.examples("train")
    assert len(long.examples("eval")) == 7


def test_the_order_of_the_domains_means_nothing() -> None:
    one = task(domains={"math": 2.0, "qa": 1.0})
    assert one.examples("train") == task(domains={"qa": 1.0, "math": 2.0}).examples("train")


def test_splits_and_demonstrations_are_disjoint_and_distinct() -> None:
    subject = task(train_prompts=5000, eval_prompts=2000, domains=ALL)
    train = [prompt_of(example).text for example in subject.examples("train")]
    held_out = [prompt_of(example).text for example in subject.examples("eval")]
    shown = [prompt for prompt, _ in subject.demonstrations(1500, seed=0)]
    assert len(set(train)) == 5000
    assert len({*train, *held_out, *shown}) == 5000 + 2000 + 1500
    other = {
        prompt_of(example).text for example in task(data_seed=9, train_prompts=5000, domains=ALL).examples("train")
    }
    assert not other & set(held_out)  # whatever the seeds


def test_more_problems_than_the_templates_have_are_still_produced() -> None:
    texts = problem_texts("qa", "eval", 0)
    drawn = [next(texts) for _ in range(20_000)]
    assert len(set(drawn)) == 20_000


def test_domains_come_by_their_weights() -> None:
    counted = Counter(e.facts["domain"] for e in task(train_prompts=3000).examples("train"))
    assert set(counted) == {"math", "qa"}
    assert counted["math"] / 3000 == pytest.approx(2 / 3, abs=0.03)  # 3.5 standard errors
    only = task(domains={"math": 0.0, "code": 1.0}).examples("train")
    assert {example.facts["domain"] for example in only} == {"code"}


def test_difficulties_are_uniform() -> None:
    drawn = sorted(e.facts["difficulty"] for e in task(train_prompts=2000).examples("train"))
    assert 0 < drawn[0] <= drawn[-1] < 1
    # Kolmogorov-Smirnov: 1.63 / sqrt(2000) = 0.036 at the 1 % level
    assert max(abs(u - (i + 0.5) / 2000) for i, u in enumerate(drawn)) < 0.036


def test_short_prompts_are_short_and_of_a_closed_vocabulary() -> None:
    subject = task(domains=ALL, train_prompts=2000)
    prompts = [prompt_of(example).text for example in subject.examples("train")]
    texts = [text for _, text in subject.free_text(2000, seed=0)]
    words = {word for text in [*prompts, *texts] for word in text.split() if not word.isdigit()}
    assert len(words) <= 110
    for prompt in prompts:
        first, second = prompt.split("\n")
        assert second == "DSL: "
        assert 5 <= len(first.split()) - 1 <= 8
        assert prompt.isascii()


def test_the_instruction_shows_every_construct_and_no_invalid_line() -> None:
    prompt = prompt_of(task(prompt="instruct").examples("train")[0]).text
    assert {structure(parse(line)) for line in CONSTRUCTS.values()} == {
        "single", "chain", "parallel", "conditional", "loop",
    }  # fmt: skip
    assert all(line in prompt for line in CONSTRUCTS.values())
    assert prompt.isascii()
    assert prompt.endswith("DSL:")


def test_demonstrations_are_valid_and_free_text_is_not() -> None:
    subject = task()
    assert all(parse(line) for _, line in subject.demonstrations(2000, seed=5))
    for _, text in subject.free_text(500, seed=5):
        with pytest.raises(DslError):
            parse(text)
    assert subject.demonstrations(50, seed=1) == subject.demonstrations(50, seed=1)
    assert subject.demonstrations(50, seed=1) != subject.demonstrations(50, seed=2)


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
