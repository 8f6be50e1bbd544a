"""Entries that a trainer logged, as rows of steps."""

from __future__ import annotations

import math
from typing import Any

import pytest

from core.health.case import Sample
from core.health.finding import StepTable
from grpoctl.diagnose.readers.trainer_log import (
    NO_REWARDS,
    Entry,
    Known,
    case_of_entries,
    flat_numbers,
    number,
    plain_value,
    with_dead_groups,
)


def entry(step: int, **cells: float | None) -> Entry:
    return Entry(step=step, cells={name.replace("__", "/"): value for name, value in cells.items()})


def test_one_row_a_step_and_an_evaluation_stands_in_its_step() -> None:
    case, notes = case_of_entries(
        [
            entry(0, eval_reward=0.1),
            entry(1, loss=0.5, reward=0.2),
            entry(2, loss=0.4, reward=0.3),
            entry(2, eval_reward=0.35, eval_loss=0.1),
            entry(2, train_runtime=3.0, train_loss=0.45),
        ],
        Known(),
    )
    assert case.rows == [
        {"step": 0.0, "eval/reward": 0.1},
        {"step": 1.0, "update": 1.0, "loss": 0.5, "reward/mean": 0.2},
        {"step": 2.0, "update": 1.0, "loss": 0.4, "reward/mean": 0.3, "eval/reward": 0.35, "eval/loss": 0.1},
    ]
    assert notes == []


def test_a_summary_is_a_row_where_it_alone_tells_rewards() -> None:
    """TRL's log() adds the means since the last row to it: a run shorter than logging_steps has no other row."""
    totals = {"train_runtime": 9.5, "train_loss": 0.25, "train_steps_per_second": 0.5}
    summary = entry(5, **totals, reward=0.5, kl=0.1, completion_length=20.0)
    rows = rows_of(summary)
    assert [(row["step"], row["reward/mean"], row["completions/length"]) for row in rows] == [(5, 0.5, 20.0)]
    assert "loss" not in rows[0]  # a mean over the whole run
    assert [row["step"] for row in rows_of(entry(0, **totals, reward=0.5))] == [1]
    assert [row["reward/mean"] for row in rows_of(entry(3, reward=0.25), summary)] == [0.25]
    assert rows_of(entry(5, **totals)) == []


def rows_of(*entries: Entry) -> StepTable:
    return case_of_entries(entries, Known())[0].rows


def test_a_repeated_step_keeps_its_last_value_and_is_told() -> None:
    case, notes = case_of_entries([entry(1, loss=0.5), entry(2, loss=0.4), entry(2, loss=0.3)], Known())
    assert [row["loss"] for row in case.rows] == [0.5, 0.3]
    repeated, no_rewards = notes
    assert ("1 steps" in repeated, no_rewards) == (True, NO_REWARDS)


def test_rows_that_stand_for_several_steps() -> None:
    steps = (1, 10, 20, 30)  # logging_first_step, logging_steps = 10
    case, notes = case_of_entries([entry(step, loss=0.5, learning_rate=1e-6) for step in steps], Known())
    assert case.averaged_over == 10
    assert case.settings.first_update_lr is None
    assert "mean of 10 steps" in notes[0]


def test_the_first_rate_is_known_where_the_first_step_was_logged() -> None:
    case, _ = case_of_entries([entry(1, learning_rate=0.0), entry(2, learning_rate=1e-7)], Known())
    assert case.settings.first_update_lr == 0.0


def test_groups_equal_but_for_rounding_are_dead() -> None:
    """TRL 1.16 on eight rewards of float32(0.2): their deviation is 1.5e-8, above its tolerance of 1e-8."""
    case, notes = case_of_entries(
        [
            entry(1, reward=0.2, reward_std=1.5e-8, frac_reward_zero_std=0.0),
            entry(2, reward=0.2, reward_std=0.1, frac_reward_zero_std=0.25),
            entry(3, reward=0.0, reward_std=0.0, frac_reward_zero_std=1.0),
        ],
        Known(),
    )
    assert [row["groups/dead"] for row in case.rows] == [1.0, 0.25, 1.0]
    assert any(note.startswith("1 steps") and "rounding" in note for note in notes)


def test_dead_groups_of_an_older_log_are_known_only_where_all_are() -> None:
    case, _ = case_of_entries([entry(1, reward=0.5, reward_std=0.0), entry(2, reward=0.5, reward_std=0.0)], Known())
    assert [row["groups/dead"] for row in case.rows] == [1.0, 1.0]
    case, _ = case_of_entries([entry(1, reward=0.5, reward_std=0.0), entry(2, reward=0.5, reward_std=0.1)], Known())
    assert all("groups/dead" not in row for row in case.rows)  # a share of 1 on the rows that say so would be a lie


def test_all_or_nothing_is_no_share_of_dead_groups() -> None:
    entries = [entry(1, reward=0.5, reward_std=0.1, frac_reward_zero_std=0.0)]
    case, notes = case_of_entries(entries, Known(arguments={"num_generations": 8, "scale_rewards": "batch"}))
    assert "groups/dead" not in case.rows[0]
    assert any("scale_rewards=batch" in note for note in notes)


def test_completions_tell_what_the_log_does_not() -> None:
    # Two groups of two: advantages +-1, and a dead one's 0.0001 of rounding. The live deviation is 1; 3 of 4 texts.
    samples = tuple(
        Sample(step=1, group=group, text=text, reward=reward, advantage=advantage)
        for group, text, reward, advantage in [
            ("a", "x", 1.0, 1.0), ("a", "y", 0.0, -1.0), ("b", "z", 0.2, 1e-4), ("b", "z", 0.2, 1e-4)
        ]
    )  # fmt: skip
    case, _ = case_of_entries([entry(1, loss=0.0, reward=0.35)], Known(samples=samples))
    row = case.rows[0]
    assert row["advantage/std"] == 1.0
    assert row["advantage/max_abs"] == 1.0
    assert row["reward/group_std"] == 0.25  # (0.5 + 0) / 2
    assert row["completions/distinct"] == 0.75
    assert row["reward/mean"] == 0.35  # the log's own


def test_an_overflow_in_fp16_is_a_skipped_update() -> None:
    entries = [entry(1, loss=0.5, grad_norm=math.inf), entry(2, loss=0.5, grad_norm=1.0)]
    case, _ = case_of_entries(entries, Known(arguments={"fp16": True}))
    assert [(row["update"], row.get("grad_norm", "gone")) for row in case.rows] == [(0.0, "gone"), (1.0, 1.0)]
    case, _ = case_of_entries(entries, Known(arguments={"bf16": True}))
    assert case.rows[0]["grad_norm"] is None  # measured, and no number


def test_what_stays_as_it_is_stands_in_every_row_of_training() -> None:
    arguments = {"num_generations": 8, "beta": 0.04, "temperature": 0.5}
    case, _ = case_of_entries([entry(0, eval_reward=0.1), entry(1, loss=0.5)], Known(arguments=arguments))
    assert case.rows == [
        {"step": 0.0, "eval/reward": 0.1},
        {"step": 1.0, "update": 1.0, "loss": 0.5, "beta": 0.04, "temperature": 0.5},
    ]


def test_unknown_columns_are_named() -> None:
    _, notes = case_of_entries([entry(1, loss=0.5, my_metric=1.0, epoch=0.1, step_time=2.0)], Known())
    columns, no_rewards = notes
    assert (columns.endswith(": my_metric"), no_rewards) == (True, NO_REWARDS)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(1, 1.0), ("0.5", 0.5), ("1e-06", 1e-6), (True, None), ("text", None), ([1], None), (10**400, None)],
)
def test_a_number(value: object, wanted: float | None) -> None:
    assert number(value) == wanted


def test_no_number_at_all() -> None:
    assert math.isnan(number("nan") or 0.0)
    assert number("-inf") == -math.inf


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("True", True), ("None", None), ("8", 8), ("1e-06", 1e-6), ("1.0", 1.0), ("cosine", "cosine"), ("nan", None)],
)
def test_a_plain_value(text: str, wanted: object) -> None:
    found = plain_value(text)
    if text == "nan":
        assert math.isnan(found)
    else:
        assert found == wanted
        assert type(found) is type(wanted)


def test_a_log_without_rewards_is_said_to_be_no_grpo_run() -> None:
    assert NO_REWARDS in case_of_entries([entry(1, loss=0.5), entry(2, loss=0.4)], Known())[1]
    assert NO_REWARDS in case_of_entries([Entry(step=1, cells={"rewards/chosen": 0.5})], Known())[1]  # of DPO
    assert NO_REWARDS not in case_of_entries([entry(1, loss=0.5, reward=0.1)], Known())[1]


def test_a_step_logged_twice_is_one_step_with_rounded_rewards() -> None:
    equal = entry(1, reward=0.5, reward_std=1e-8, frac_reward_zero_std=0.0)
    notes = case_of_entries([equal, equal], Known())[1]
    assert any(note.startswith("1 steps") and "rounding" in note for note in notes)


@pytest.mark.parametrize(
    ("table", "prompts", "dead"),
    [
        ([(12.0, 4.0, None)], 32, [0.5]),
        ([(12.0, 4.0, 4.0)], None, [0.8]),
        ([(12.0, 4.0, None)], None, [None]),  # of how many nobody says
        ([(12.0, 4.0, None)], 8, [None]),  # of fewer there are not so many
        ([(12.0, None, None)], 32, [None]),
        ([(0.7, 0.25, None), (1.0, 0.0, None)], 32, [0.95, 1.0]),  # shares
        ([(1.0, 0.0, None), (0.0, 0.0, None)], 32, [None, None]),  # one prompt, or all of them
        ([(math.nan, 4.0, None), (12.0, 4.0, None)], 32, [None, 0.5]),
        ([(None, None, 0.75), (None, None, 1.0)], 32, [0.25, 0.0]),  # a share of groups with both
        ([(None, None, 3.0), (None, None, 1.0)], 32, [None, None]),  # a count, of how many nobody says
        ([(None, None, 1.0), (None, None, 0.0)], 32, [None, None]),
    ],
)
def test_prompts_that_none_or_all_solve_are_dead_groups(
    table: list[tuple[float | None, ...]], prompts: int | None, dead: list[float | None]
) -> None:
    names = ("groups/solved_none", "groups/solved_all", "groups/solved_some")
    rows: StepTable = [
        {name: value for name, value in zip(names, values, strict=True) if value is not None} for values in table
    ]
    found = [row.get("groups/dead") for row in with_dead_groups(rows, prompts)]
    assert found == [None if one is None else pytest.approx(one) for one in dead]
    own: StepTable = [{**row, "groups/dead": 0.1} for row in rows]
    assert with_dead_groups(own, prompts) == own


def test_a_spread_of_rewards_tells_of_rewards() -> None:
    _, notes = case_of_entries([entry(step, loss=0.5, reward_std=0.1) for step in (1, 2)], Known())
    assert NO_REWARDS not in notes


def row_of(**logged: Any) -> dict[str, float | None]:
    """What one logged object says, in our names."""
    (row,) = case_of_entries([Entry(step=1, cells=dict(flat_numbers(logged)))], Known())[0].rows
    return {name: value for name, value in row.items() if name not in ("step", "update")}


@pytest.mark.parametrize(
    ("key", "said", "metric"),
    [
        ("event", "eval", "eval/reward"),
        ("event", "validation_done", "eval/reward"),
        ("split", "val", "eval/reward"),
        ("event", "train_step", "reward/mean"),
        ("split", "train_val", "reward/mean"),
        ("event", "the test of it is over", "reward/mean"),  # a message
        ("name", "eval", "reward/mean"),
    ],
)
def test_an_object_that_says_that_it_is_of_an_evaluation(key: str, said: str, metric: str) -> None:
    assert row_of(**{key: said}, metrics={"reward": {"mean": 0.5}}) == {metric: 0.5}


def test_what_numbers_an_evaluation_stays_and_its_own_names_do() -> None:
    logged = {"event": "eval", "iteration": 3, "epoch": 0.5, "eval_loss": 0.25, "kl": 0.1}
    assert dict(flat_numbers(logged)) == {"iteration": 3, "epoch": 0.5, "eval_loss": 0.25, "eval/kl": 0.1}


def test_counts_beside_a_total_are_shares() -> None:
    assert row_of(groups={"total": 8, "zero_variance": 2}) == {"groups/dead": 0.25}
    assert row_of(metrics={"groups": {"total": 8, "zero_variance": 0.5}}) == {"groups/dead": 0.5}  # a share as it is
    assert row_of(rewards={"total": 4, "format": 3}) == {"reward/mean": 4, "rewards/format": 3}
    assert row_of(total=8, truncated=2, kl=0.1)["kl"] == 0.1  # not of an object of its own
    assert dict(flat_numbers({"total": 8, "truncated": 2}))["truncated"] == 2
    assert dict(flat_numbers({"groups": {"total": 2, "zero_variance": 3}}))["groups/zero_variance"] == 3


def test_the_reward_of_evaluations_goes_before_accuracies_of_them() -> None:
    assert row_of(val={"reward": {"mean": 0.5}, "exact_match": 0.25})["eval/reward"] == 0.5
    assert row_of(val={"exact_match": 0.25})["eval/reward"] == 0.25
