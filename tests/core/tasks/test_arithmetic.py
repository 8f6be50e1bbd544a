"""The arithmetic task: exact answers, splits of a finite set of problems."""

from __future__ import annotations

import pytest

from core.config.task import ArithmeticTaskSpec
from core.errors import SpecError, TaskError
from core.tasks.arithmetic import ArithmeticTask
from core.tasks.registry import build
from core.tasks.text import prompt_of, text_example

TWELVE_AND_SEVEN = text_example(id="x", prompt="12+7=", facts={"left": 12, "right": 7, "answer": 19})


def task(**settings) -> ArithmeticTask:
    return ArithmeticTask(ArithmeticTaskSpec(name="arithmetic", **({"digits": 2} | settings)))


def test_the_registry_builds_it() -> None:
    assert isinstance(build(ArithmeticTaskSpec(name="arithmetic", digits=2)), ArithmeticTask)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("19", 1.0),
        (" 19\n", 1.0),
        ("18", 0.2),
        ("0", 0.2),
        ("-19", 0.2),
        ("9" * 100_000, 0.2),  # a number: no int() of it, which would raise
        ("019", 0.0),
        ("-0", 0.0),
        ("+19", 0.0),
        ("19.0", 0.0),
        ("19 apples", 0.0),
        ("1 9", 0.0),
        ("", 0.0),
        ("Custom", 0.0),
        ("\u0661\u0669", 0.0),  # 19 in Arabic-Indic digits, which str.isdigit() takes
    ],
)
def test_rewards(text: str, reward: float) -> None:
    (outcome,) = task().score([TWELVE_AND_SEVEN], [text])
    assert (outcome.reward, outcome.expected, outcome.valid) == (reward, reward, reward > 0)


def test_a_foreign_example_is_refused() -> None:
    with pytest.raises(TaskError, match="no problem of arithmetic"):
        task().score([text_example(id="y", prompt="")], ["1"])


def test_prompts_and_facts_agree() -> None:
    for example in task().examples("train"):
        left, right = prompt_of(example).text.removesuffix("=").split("+")
        assert int(left) + int(right) == example.facts["answer"]
        assert max(int(left), int(right)) < 100


@pytest.mark.parametrize(("digits", "train", "held_out"), [(1, 60, 40), (2, 5000, 1000), (4, 3000, 100)])
def test_splits_are_disjoint_and_distinct(digits: int, train: int, held_out: int) -> None:
    subject = task(digits=digits, train_prompts=train, eval_prompts=held_out)
    prompts = [prompt_of(example).text for split in ("train", "eval") for example in subject.examples(split)]
    assert len(prompts) == len(set(prompts)) == train + held_out  # digits=1: all 100 problems there are


def test_one_problem_too_many_is_refused() -> None:
    with pytest.raises(SpecError, match=r"train_prompts \+ eval_prompts = 101, .* only 100 problems of 1 digit"):
        task(digits=1, train_prompts=61, eval_prompts=40)


def test_seeds() -> None:
    assert task().examples("eval") == task().examples("eval")
    assert task(data_seed=1).examples("eval") != task().examples("eval")
    assert task(train_prompts=9).examples("eval") == task().examples("eval")  # held out first
    assert task().examples("train")[0].id == "train-00000"


def test_demonstrations_have_their_share_of_wrong_answers_and_no_held_out_problem() -> None:
    subject = task()
    pairs = subject.demonstrations(3000, seed=0)
    wrong = 0
    for prompt, answer in pairs:
        left, right = prompt.removesuffix("=").split("+")
        assert int(answer) >= 0
        wrong += int(answer) != int(left) + int(right)
    assert wrong / 3000 == pytest.approx(0.4, abs=0.03)  # 3.3 standard errors
    known = {prompt_of(example).text for split in ("train", "eval") for example in subject.examples(split)}
    assert not known & {prompt for prompt, _ in pairs}
    assert all(int(a) == sum(map(int, p[:-1].split("+"))) for p, a in subject.demonstrations(200, 1, wrong_share=0))


def test_demonstrations_of_a_space_that_training_fills() -> None:
    subject = task(digits=1, train_prompts=60, eval_prompts=40)
    held_out = {prompt_of(example).text for example in subject.examples("eval")}
    assert not held_out & {prompt for prompt, _ in subject.demonstrations(500, seed=0)}


def test_no_problem_left_to_demonstrate() -> None:
    subject = task(digits=1, train_prompts=1, eval_prompts=99)
    assert len(subject.demonstrations(5, seed=0)) == 5


def test_accuracy_by_operand_size() -> None:
    subject = task(digits=2, train_prompts=9000, eval_prompts=10)
    small = next(e for e in subject.examples("train") if e.facts["left"] < 10 and e.facts["right"] < 10)
    large = next(e for e in subject.examples("train") if e.facts["left"] > 9)
    rows = [(small, str(small.facts["answer"])), (large, str(large.facts["answer"])), (large, "0"), (large, "no")]
    samples = [{"prompt_id": example.id, "text": text} for example, text in rows]
    (table,) = subject.tables([*samples, {"prompt_id": "train-99999", "text": "1"}])
    assert table.rows == (
        ("1", "1", "100.0 %", "100.0 %"),
        ("2", "3", "33.3 %", "66.7 %"),
        ("unknown problem", "1", "0.0 %", "0.0 %"),
    )
