"""How a function is found, and what is said where there is none: one line with what was got and what is near."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.config.task import RewardSpec
from core.errors import SpecError, TaskError
from core.tasks.rewards.judge import Judge
from tests.core.tasks.rewards.judging import Judging

pytestmark = pytest.mark.process

MINE = """
import math
N = 3
class Scorer:
    def __call__(self, completions): return [1.0]
def accuracy(completions, answer, **kwargs): return [1.0]
def nameless(completions, /): return [1.0]
"""


def checked(folder: Path, *functions: str) -> None:
    judge = Judge([RewardSpec(function=one, name=f"r{n}") for n, one in enumerate(functions)], base=folder)
    try:
        judge.check()
    finally:
        judge.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pack" / "inner").mkdir(parents=True)
    for name in ("pack/__init__.py", "pack/inner/__init__.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "pack" / "scores.py").write_text(MINE)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("def f(:\n    pass\n")
    (tmp_path / "needs.py").write_text("import math\nimport not_there_at_all\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(4)\n")
    (tmp_path / "dies.py").write_text("import os\nos._exit(4)\n")
    (tmp_path / "notes.txt").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "function", ["./mine.py:accuracy", "mine:accuracy", "pack.scores:accuracy", "pack/scores.py:accuracy"]
)
def test_it_is_found(folder: Path, function: str) -> None:
    checked(folder, function, "shutil:which", f"{folder}/mine.py:accuracy")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("./mine.py:acuracy", "{}/mine.py has no acuracy; did you mean accuracy?"),
        ("./mine.py:zz", "{}/mine.py has no zz; callables in it: Scorer, accuracy, nameless"),
        ("./mine.py:N", "N in {}/mine.py is of type int; allowed: a function"),
        ("./mine.py:Scorer", "Scorer in {}/mine.py is a class; allowed: a function, or an instance that can be called"),
        ("./mine.py:nameless", "completions is positional-only"),
        ("./main.py:f", "{}/main.py: no such file; did you mean mine.py?"),
        ("./none/main.py:f", "{}/none/main.py: no such file; Python files in {}/none: none"),
        ("./pack:f", "{}/pack: is a folder; Python files in {}:"),
        ("./notes.txt:f", "{}/notes.txt: not a Python file; allowed: one that ends in .py"),
        ("packk.scores:f", "no module packk (of packk.scores): neither installed nor in {}; did you mean pack?"),
        ("pack.score:f", "no module pack.score: neither installed nor in {}; did you mean scores?"),
        (
            "zebra:f",
            "modules in {}: broken, dies, exits, mine, needs, pack; a file is given as ./path/file.py:function",
        ),
        ("pack.scores:acuracy", "did you mean accuracy?"),
        ("./broken.py:f", "SyntaxError: invalid syntax ({}/broken.py line 1)"),
        ("needs:f", "ModuleNotFoundError: No module named 'not_there_at_all' ({}/needs.py line 2)"),
        ("./needs.py:f", "ModuleNotFoundError: No module named 'not_there_at_all' ({}/needs.py line 2)"),
        ("./exits.py:f", "SystemExit: 4 ({}/exits.py line 2)"),
        ("./dies.py:f", "its process ended with exit code 4"),
    ],
)
def test_what_is_said_where_it_is_not(folder: Path, function: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        checked(folder, "shutil:which", function)
    assert says.format(folder, folder) in str(caught.value)
    assert function in str(caught.value)
    assert str(caught.value).startswith("task.rewards")
    assert "\n" not in str(caught.value)


def test_an_argument_that_nobody_gives(judging: Judging) -> None:
    judge = judging(MINE, "accuracy")
    judge.check(columns=["question", "answer"])
    with pytest.raises(SpecError, match=r"`answer`.*did you mean answers"):
        judge.check(columns=["question", "answers"])
    with pytest.raises(TaskError, match="`answer`"):
        judge.judge(["p"], ["c"], [], {})


def test_a_first_scoring_without_a_check_says_the_same(folder: Path) -> None:
    judge = Judge([RewardSpec(function="./mine.py:acuracy")], base=folder)
    for _ in range(2):
        with pytest.raises(SpecError, match="did you mean accuracy"):
            judge.judge(["p"], ["c"], [], {})


def test_two_rewards_of_one_name_are_refused() -> None:
    rewards = [RewardSpec(function="./a.py:f"), RewardSpec(function="./b.py:g", name="f")]
    with pytest.raises(SpecError, match=r"task.rewards: two rewards are called f; give one of them a `name`"):
        Judge(rewards)


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="cannot be started in"):
        Judge([RewardSpec(function="shutil:which")], base=tmp_path / "gone").check()


def test_rows_of_different_numbers_are_refused(judging: Judging) -> None:
    with pytest.raises(ValueError, match="answer has 1 rows, completions 2"):
        judging(MINE, "accuracy").judge(["p", "p"], ["c", "c"], [], {"answer": ["4"]})


def test_a_column_that_is_no_json(judging: Judging) -> None:
    with pytest.raises(TaskError, match=r"cannot be handed to a reward function as JSON: .*set"):
        judging(MINE, "accuracy").judge(["p"], ["c"], [], {"answer": [{1, 2}]})
