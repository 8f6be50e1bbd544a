"""Problems of the workflow task: splits, domains, difficulties, prompts and demonstrations."""

from __future__ import annotations

from collections import Counter

import pytest

from core.config.task import WorkflowDslTaskSpec
from core.tasks.text import prompt_of
from core.tasks.workflow_dsl.grammar import DslError, parse, structure
from core.tasks.workflow_dsl.problems import CONSTRUCTS, problem_texts
from core.tasks.workflow_dsl.task import WorkflowDslTask

ALL = {"math": 2.0, "qa": 1.0, "code": 1.0}


def task(**settings) -> WorkflowDslTask:
    return WorkflowDslTask(WorkflowDslTaskSpec(name="workflow-dsl", **settings))


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
