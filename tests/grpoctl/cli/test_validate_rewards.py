"""`grpoctl validate --rewards`: the functions on two rows, and what is said of those that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpoctl.cli.new import write_files
from grpoctl.cli.validate import add_rewards, check_specs
from grpoctl.cli.validate_rewards import print_rewards, try_rewards
from tests.grpoctl.cli.conftest import Grpoctl

pytestmark = pytest.mark.process
BAD = """
def boom(completions, **kwargs):
    raise KeyError("colour")
def one(completions, **kwargs):
    return [1.0]
def half(completions, place, **kwargs):
    return [0.5 * (text.strip() == answer) for text, answer in zip(completions, place)]
def silent(completions, **kwargs):
    return [None for _ in completions]
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_files("mine", tmp_path)
    (tmp_path / "bad.py").write_text(BAD)


def tried(*functions: str, **more: str) -> dict[str, Any]:
    """The first profile's entry with these functions of bad.py."""
    rewards = ", ".join(f"{{function: './bad.py:{name}'}}" for name in functions)
    return try_rewards("mine", [f"task.rewards=[{rewards}]", *(f"{key}={value}" for key, value in more.items())])[0]


def test_gold_answers_earn_what_they_should() -> None:
    full, tiny = try_rewards("mine", [])  # small has the rewards and prompts of full
    assert (full["profile"], tiny["profile"]) == ("full", "tiny")
    assert full["ok"]
    assert full["problems"] == []
    assert [row["rewards"] for row in full["rows"]] == [{"right_place": 1.0, "one_word": 1.0}] * 2
    assert [row["reward"] for row in full["rows"]] == [1.2, 1.2]
    assert {row["completion_is"] for row in full["rows"]} == {"gold"}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("boom", "reward boom: the call for 2 rows failed (and for 2 of them when asked for one by one): KeyError"),
        ("one", "reward one: the call for 2 rows failed (and for 0 of them when asked for one by one): returned 1"),
        ("missing", "has no missing"),
        ("half", "train-00000: the gold answer earned 0.5, wanted at least 1.2"),
        ("silent", "train-00000: the gold answer earned none, wanted at least 1.2"),
    ],
)
def test_what_fails_is_told(function: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    entry = tried(function)
    assert not entry["ok"]
    assert message in entry["problems"][0]
    assert all("\n" not in problem for problem in entry["problems"])
    print_rewards("mine", [entry])
    assert f"error: mine, profile full: {entry['problems'][0]}" in " ".join(capsys.readouterr().err.split("\n"))


def test_a_traceback_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_rewards("mine", [tried("boom")])
    assert 'line 3, in boom\n    raise KeyError("colour")' in capsys.readouterr().err


def test_without_gold_the_answer_is_tried_and_without_both_a_placeholder() -> None:
    answered = tried("half", **{"task.gold": "null"})
    assert [(row["completion_is"], row["reward"]) for row in answered["rows"]] == [("answer", 0.5)] * 2
    bare = tried("half", **{"task.gold": "null", "task.answer": "null"})
    assert [(row["completion_is"], row["reward"]) for row in bare["rows"]] == [("placeholder", 0.0)] * 2
    assert bare["ok"]


def test_plain_validation_runs_no_code_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("open('ran', 'w')\ndef f(completions): return [0] * len(completions)")
    overrides = ["task.rewards=[{function: './bad.py:f'}]", "task.gold=null"]
    checked = check_specs(["mine"], overrides)
    assert checked[0]["ok"]
    assert not (tmp_path / "ran").exists()
    add_rewards(checked, overrides, every=True)
    assert checked[0]["ok"]
    assert (tmp_path / "ran").exists()


def test_without_names_only_tasks_of_the_users_own_are_tried() -> None:
    checked = check_specs(["mine", "p31"])
    add_rewards(checked, [], every=False)
    assert {entry["name"]: "rewards" in entry for entry in checked} == {"mine": True, "p31": False}


def test_a_task_of_ours_is_tried_with_its_own_answers() -> None:
    entry = try_rewards("p31", ["task.train_prompts=8"])[0]
    assert entry["ok"]
    assert [row["valid"] for row in entry["rows"]] == [True, True]


@pytest.mark.parametrize(
    ("reward", "code", "said"), [("rewards/mine.py:right_place", 0, "are sound"), ("bad.py:boom", 2, "fail")]
)
def test_a_spec_is_not_called_sound_for_its_rewards(grpoctl: Grpoctl, reward: str, code: int, said: str) -> None:
    """What was checked is named: the spec in which profiles; its rewards only where they were run."""
    changed = f"task.rewards=[{{function: './{reward}', weight: 1.2}}]"
    plain = grpoctl("validate", "mine", changed)
    assert (plain.code, "not run" in plain.out, "full, tiny, small" in plain.out) == (0, True, True)
    tried = grpoctl("validate", "mine", "--rewards", changed)
    (line,) = [line for line in tried.out.splitlines() if "profiles full" in line]
    assert (tried.code, said in line) == (code, True)
    assert "not run" not in line


def test_a_reward_function_that_is_not_there_needs_no_run_to_be_found(grpoctl: Grpoctl) -> None:
    said = grpoctl("validate", "mine", "task.rewards=[{function: './rewards/mine.py:right_plase'}]")
    assert said.code == 2
    assert "task.rewards.0.function" in said.err
    assert "did you mean right_place?" in said.err
