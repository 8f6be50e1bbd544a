"""JSON files of metrics: rows, columns, aggregates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import NotFoundError
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.json_document import READER
from grpoctl.diagnose.readers.registry import open_source

ROWS = [{"step": 1, "reward": 0.25, "kl": 0.0}, {"step": 2, "reward": 0.5, "kl": 0.01}]


@pytest.mark.parametrize(
    "document",
    [
        ROWS,
        {"config": {"num_generations": 8}, "history": ROWS},
        {"step": [1, 2], "reward": [0.25, 0.5], "kl": [0.0, 0.01]},
        {"1": ROWS[0], "2": ROWS[1]},
        {
            "metadata": {"gpus": 1},
            "metrics": {
                "train/reward": [{"step": 1, "value": 0.25, "epoch": 0.1}, {"step": 2, "value": 0.5, "epoch": 0.2}],
                "kl": [{"step": 2, "value": 0.01}, {"step": 1, "value": 0.0}],
                "seeds": [1, 2],
            },
        },
        [{"_step": 1, "train": {"reward": 0.25, "kl": 0.0}}, {"_step": 2, "train": {"reward": 0.5, "kl": 0.01}}],
    ],
)
def test_rows(document: Any, tmp_path: Path) -> None:
    file = tmp_path / "metrics.json"
    file.write_text(json.dumps(document))
    reading = open_source(Source(name=str(file), path=file))
    assert reading.kind == "json"
    assert [(row["step"], row["reward/mean"], row["kl"]) for row in reading.case.rows] == [
        (1.0, 0.25, 0.0),
        (2.0, 0.5, 0.01),
    ]
    assert reading.case.settings.num_generations == (8 if isinstance(document, dict) and "config" in document else None)


def test_aggregates_are_one_row(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    file.write_text(json.dumps({"reward": {"mean": 0.1, "std": 0.0}, "kl": 3.5, "name": "run"}))
    reading = open_source(Source(name=str(file), path=file))
    (row,) = reading.case.rows
    assert (row["reward/mean"], row["reward/std"], row["kl"]) == (0.1, 0.0, 3.5)
    assert any("one row" in note for note in reading.notes)


@pytest.mark.parametrize(
    ("document", "rewards"),
    [
        ({"initial_reward": 0.1, "final_reward": 0.5, "kl": 0.1}, [0.1, 0.5]),
        ({"reward_before": 0.1, "reward_after": 0.5}, [0.1, 0.5]),
        ({"failure": {"mode": "adapter off", "first_step_reward": 0.1, "first_step_grad_norm": "NaN"}}, [0.1]),
        ({"reward": {"mean": 0.1}, "last_checkpoint": 40}, [0.1]),
        ({"reward": 0.5, "kl": 0.1, "final_reward": 0.6}, [0.5]),  # told in full
        ({"initial_reward": 0.1, "final_reward": 0.5, "final_lr": 0.0, "learning_rate": 1e-5}, [0.1, 0.5]),
    ],
)
def test_a_run_that_is_told_by_its_ends(document: Any, rewards: list[float], tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    file.write_text(json.dumps(document))
    reading = open_source(Source(name=str(file), path=file))
    assert [row["reward/mean"] for row in reading.case.rows] == rewards


@pytest.mark.parametrize(
    "document",
    [
        {"start_lr": 1e-6, "end_lr": 1e-7, "start_length": 128, "end_length": 512},  # schedules
        {"lr_start": 1e-5, "lr_end": 1e-6, "entropy_start": 0.1, "entropy_end": 0.01},
        {"initial_kl_coef": 0.2, "start_step": 0, "end_lr": 1e-7},
        {"1e-5": {"reward_before": 0.1, "reward_after": 0.5}, "1e-6": {"reward_before": 0.1, "reward_after": 0.2}},
    ],
)
def test_settings_at_both_ends_and_ends_of_several_runs_are_no_run(document: Any, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(document))
    with pytest.raises(NotFoundError):
        open_source(Source(name=str(file), path=file))


@pytest.mark.parametrize(("other", "held_out"), [("val", [0.9, 0.8]), ("seed2", [None, None])])
def test_curves_under_several_keys_are_not_mixed(other: str, held_out: list[float | None], tmp_path: Path) -> None:
    curve = [{"step": 1, "value": 0.1}, {"step": 2, "value": 0.2}]
    others = [{"step": 1, "value": 0.9}, {"step": 2, "value": 0.8}, {"step": 3, "value": 0.7}]
    file = tmp_path / "curves.json"
    file.write_text(json.dumps({"history": {"reward": curve}, other: {"reward": others}}))
    rows = open_source(Source(name=str(file), path=file)).case.rows
    assert [row["reward/mean"] for row in rows if "reward/mean" in row] == [0.1, 0.2]
    assert [row.get("eval/reward") for row in rows][:2] == held_out


def test_a_step_that_is_infinite_numbers_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('[{"step": 1e999, "reward": 0.5}, {"step": 2, "reward": 0.25}]')
    rows = open_source(Source(name=str(file), path=file)).case.rows
    assert [(row["step"], row["reward/mean"]) for row in rows] == [(1, 0.5), (2, 0.25)]


@pytest.mark.parametrize("text", ["[]", "{}", '{"a": 1}', "[1, 2]", "null", '{"reward": "high"}', "{'reward': 1}"])
def test_no_metrics(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    assert not READER.knows(Source(name="a.json", path=file))


def test_json_lines_are_no_document_and_are_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    monkeypatch.setattr("grpoctl.diagnose.readers.json_document.unpacked", lambda *_: pytest.fail("read whole"))
    assert not READER.knows(Source(name="history.jsonl", path=file))


def course(high: float) -> list[dict[str, float]]:
    return [{"step": step, "reward": high, "kl": 0.01} for step in (1, 2, 3)]


def columns(high: float) -> dict[str, list[float]]:
    return {"step": [1, 2, 3], "reward": [high] * 3, "kl": [0.01] * 3}


@pytest.mark.parametrize(
    "document",
    [
        {"config": {"num_generations": 8}, "a": course(0.25), "b": course(0.5)},
        {"runs": {"a": course(0.25), "b": course(0.5)}},
        {"a": columns(0.25), "b": columns(0.5)},
        {"runs": [{"name": "a", "history": course(0.25)}, {"name": "b", "history": course(0.5)}]},
        [{"run": run, **row} for run, high in (("a", 0.25), ("b", 0.5)) for row in course(high)],
    ],
)
def test_a_document_of_several_runs_is_each_of_them(document: Any, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps(document))
    first = open_source(Source(name=str(file), path=file))
    told = [(one.run, [row["reward/mean"] for row in one.case.rows]) for one in (first, *first.further)]
    assert told == [("a", [0.25] * 3), ("b", [0.5] * 3)]
    assert first.further[0].source == f"{file} (b)"
    if isinstance(document, dict) and "config" in document:
        assert {one.case.settings.num_generations for one in (first, *first.further)} == {8}


@pytest.mark.parametrize(
    "document",
    [
        {"train": course(0.25), "eval": course(0.5)},  # of one run
        {"epoch_1": course(0.25), "epoch_2": course(0.5)},
        {"rank0": course(0.25), "rank1": course(0.5)},
        {"log": course(0.25), "samples": course(0.5)},
        {"log": course(0.25), "rewards": [{"step": step, "reward": 0.5} for step in (1, 2)]},  # told again
        {"first": course(0.25), "second": [{"step": step, "reward": 0.5, "kl": 0.1} for step in (4, 5)]},  # goes on
        {"history": course(0.25), "best": {"step": 2, "reward": 0.25}},
        [{"seed": 1, **row} for row in course(0.25)],
        [{"seed": row["step"], **row} for row in course(0.25)],
        [{"rewards": {"format": 0.5}, **row} for row in course(0.25)],
    ],
)
def test_parts_of_one_run_are_no_runs(document: Any, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps(document))
    found = open_source(Source(name=str(file), path=file))
    assert (found.run, found.further, found.source) == ("", (), str(file))
    assert [row["reward/mean"] for row in found.case.rows] == [0.25] * 3


VALUES = (("reward", 1, 0.5), ("kl", 2, 0.1), ("reward", 2, 0.75), ("sys.gpu", 2, 9))
CURVES = {"reward": {"name": "reward", "x": [1, 2], "y": [0.5, 0.75]}, "kl": {"name": "kl", "x": [2], "y": [0.1]}}


@pytest.mark.parametrize(
    "document",
    [
        {"metrics": [{"key": name, "value": value, "timestamp": 17, "step": step} for name, step, value in VALUES]},
        [{"metricName": f"train/{name}", "metricValue": str(one), "step": step} for name, step, one in VALUES],
        {"train": CURVES, ":monitor:gpu": {"use": {"x": [0], "y": [9]}}},
    ],
)
def test_a_value_at_a_time(document: Any, tmp_path: Path) -> None:
    """What MLflow's server, Comet and ClearML give: an object for each value, or two lists for each metric."""
    file = tmp_path / "values.json"
    file.write_text(json.dumps(document))
    rows = READER.read(Source(name="values.json", path=file)).case.rows
    assert [(row["step"], row["reward/mean"], row.get("kl")) for row in rows] == [(1, 0.5, None), (2, 0.75, 0.1)]
