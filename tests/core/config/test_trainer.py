"""Who trains, and the words of a command line: every value arrives as it is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from core.config.trainer import TrainerSpec, words
from core.errors import SpecError

SPEC: dict[str, Any] = {
    "name": "mine",
    "seed": 3,
    "trainer": {"params": {"note": "a 'b' \"c\"\nd é", "flag": True, "lr": 7, "twice": 1}},
    "stages": {
        "sft": {"max_steps": 5},
        "grpo": {
            "learning_rate": 1e-05,
            "num_generations": 8,
            "max_steps": 20,
            "temperature": {"start": 0.7, "end": 0.7, "steps": 0},
            "beta": {"start": 0.1, "end": 0.0, "steps": 10},
            "top_p": None,
            "twice": 2,
        },
    },
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("python train.py --lr {learning_rate}", ["python", "train.py", "--lr", "1e-05"]),
        ("t --k={num_generations} --seed {seed}", ["t", "--k=8", "--seed", "3"]),
        ("t '{note}'", ["t", "a 'b' \"c\"\nd é"]),
        ("t {note}", ["t", "a 'b' \"c\"\nd é"]),  # one word, quoted or not: it is filled in after the split
        ("t 'two words' \"{run_dir}/x y\"", ["t", "two words", "/runs/1 2/x y"]),
        ("t {flag}", ["t", "true"]),
        ("t {lr}", ["t", "7"]),  # of params
        ("t {temperature}", ["t", "0.7"]),  # a schedule that stays where it starts
        ("t {beta.start}", ["t", "0.1"]),
        ("t {stages.grpo.beta.start}", ["t", "0.1"]),
        ("t {stages.sft.max_steps} {stages.grpo.max_steps}", ["t", "5", "20"]),
        ('t {{"a": {seed}}}', ["t", "{a:", "3}"]),  # a shell takes these quotes away, too
        ("t '{{\"a\": {seed}}}'", ["t", '{"a": 3}']),
        ("t $(id) `id` ; rm -rf *", ["t", "$(id)", "`id`", ";", "rm", "-rf", "*"]),  # nobody but the program reads it
    ],
)
def test_words(template: str, expected: list[str]) -> None:
    assert words(template, SPEC, "/runs/1 2") == expected


@pytest.mark.parametrize(
    ("template", "facts"),
    [
        ("t 'x", ["No closing quotation"]),
        ("  ", ["no word"]),
        ("t {learning_rat}", ["learning_rat", "{learning_rate}"]),
        ("t {twice}", ["trainer.params.twice", "stages.grpo.twice"]),  # a param does not shadow a setting
        ("t {max_steps}", ["stages.sft.max_steps", "stages.grpo.max_steps"]),
        ("t {top_p}", ["stages.grpo.top_p", "null"]),
        ("t {seed", ["{seed"]),
        ("t {seed:>4}", ["{seed}"]),
        ("t {seed.__class__}", ["seed.__class__"]),
    ],
)
def test_a_template_that_means_nothing_is_refused(template: str, facts: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        words(template, SPEC, "/runs/1")
    assert caught.value.key == "trainer.command"
    assert [fact for fact in facts if fact not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kind": "command"}, "give the command line"),
        ({"command": "x"}, "belongs to kind: command"),
        ({"params": {"a": 1}}, "belongs to kind: command"),
        ({"kind": "other"}, "'grpoctl'"),
        ({"kind": "command", "command": ""}, "at least 1 character"),
    ],
)
def test_settings_that_do_not_fit_their_kind(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        TrainerSpec.model_validate(settings)
