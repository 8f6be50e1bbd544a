"""JSON files of metrics: rows, columns, aggregates."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from core.errors import NotFoundError
from grpoctl.diagnose.readers.base import Reading, Source
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


def test_columns_keep_their_order(tmp_path: Path) -> None:
    """Of a set they come in another order in each process."""
    lists = {"reward": [0.1, 0.2], "kl": [0.0, 0.1], "loss": [0.3, 0.1], "grad_norm": [1.0, 2.0], "entropy": [2.0, 1.0]}
    file = tmp_path / "metrics.json"
    file.write_text(json.dumps({**lists, "learning_rate": [1e-5, 1e-5], "step": [1, 2]}))
    (first, *_) = open_source(Source(name=str(file), path=file)).case.rows
    assert [name for name in first if name != "update"][:5] == ["reward/mean", "kl", "loss", "grad_norm", "entropy"]


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
        ({"grpo": {"updates": 9, "first_200": {"reward": 0.1}, "last_200": {"reward": 0.5}}}, [0.1, 0.5]),
        ({"last": {"reward": 0.5, "kl_k3": 0.1}, "first": {"reward": 0.1, "kl_k3": 0.0}}, [0.1, 0.5]),
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
    monkeypatch.setattr("grpoctl.diagnose.readers.whole_documents.unpacked", lambda *_: pytest.fail("read whole"))
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


def written(tmp_path: Path, document: Any, name: str = "metrics.json") -> Reading:
    """What is read of a document, or of a text."""
    file = tmp_path / name
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return open_source(Source(name=str(file), path=file))


def told(reading: Reading, *names: str) -> list[tuple[float | None, ...]]:
    return [tuple(row.get(name) for name in names) for row in reading.case.rows]


def test_rows_of_micro_batches_are_one_step(tmp_path: Path) -> None:
    batches = [(1, 0.0, 0.5, 9), (1, 0.5, 1.0, 8), (3, 1.0, 1.0, 7), (3, 0.0, 0.5, 6)]
    rows = [
        {"step": step, "reward": mean, "reward_max": most, "reward_min": -least} for step, mean, most, least in batches
    ]
    reading = written(tmp_path, rows)
    assert told(reading, "step", "reward/mean", "reward/max", "reward/min") == [(1, 0.25, 1.0, -9), (3, 0.5, 1.0, -7)]
    assert any(note.startswith("2 rows a step") for note in reading.notes)


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ([1, *range(1, 12)], list(range(1, 13))),  # one step has more rows than the others
        ([1, 1, 2, 2, 3], [1, 2, 3, 4, 5]),
        ([2, 2, 1, 1, 2, 2], [1, 2, 3, 4, 5, 6]),
        ([1, 2, 1, 2], [1, 2, 3, 4]),  # not one behind the other
    ],
)
def test_rows_of_one_step_that_are_no_parts_of_it_are_counted(
    steps: list[int], kept: list[int], tmp_path: Path
) -> None:
    rows = [{"step": step, "reward": step / 10 + at / 100} for at, step in enumerate(steps)]
    reading = written(tmp_path, rows)
    assert [row["step"] for row in reading.case.rows] == kept
    assert not any("rows a step" in note for note in reading.notes)


def pairs(**columns: Any) -> list[dict[str, Any]]:
    """Two rows a step, of three steps; columns: for both of them, for all six, or for each pair."""
    rows = [{"step": step, "reward": reward} for step in (1, 2, 3) for reward in (0.0, 1.0)]
    for name, values in columns.items():
        for at, row in enumerate(rows):
            row[name] = values[at % len(values)]
    return rows


@pytest.mark.parametrize(
    "rows",
    [
        pairs(name=["a", "b"]),
        pairs(temperature=[0.5, 1.0]),
        pairs(temperature=["0.5", "1.0"]),
        pairs(lr_run=[1e-6, 1e-5]),
        pairs(lr=[1e-6, 1e-5]),
        pairs(run_seed=[1, 2]),
        pairs(is_baseline=[True, False]),
        pairs(config=[{"optimizer": "adam"}, {"optimizer": "sgd"}]),
        pairs(name=["a", "b"])[:2],  # one step
        {"history": pairs(name=["a", "b"])},
    ],
)
def test_rows_of_arms_have_no_mean(rows: Any, tmp_path: Path) -> None:
    reading = written(tmp_path, rows)
    assert [row["reward/mean"] for row in reading.case.rows] in ([0.0, 1.0] * 3, [0.0, 1.0])
    assert not any("rows a step" in note for note in reading.notes)


@pytest.mark.parametrize(
    "rows",
    [
        pairs(time=["9:00", "9:01", "9:02", "9:03", "9:04", "9:05"]),
        pairs(text=["up", "up"], seed=[1, 1], temperature=[0.5, 0.5, 0.6, 0.6, 0.5, 0.5]),
        pairs(completion=["4", "5"]),
        pairs(kl=[0.1, 0.2], tokens=[10, 20], note=["0.1", "0.2"]),  # numbers that say nothing of a run
    ],
)
def test_rows_of_micro_batches_may_have_texts(rows: Any, tmp_path: Path) -> None:
    assert told(written(tmp_path, rows), "step", "reward/mean") == [(1, 0.5), (2, 0.5), (3, 0.5)]


def test_an_evaluation_beside_its_step_is_of_that_step(tmp_path: Path) -> None:
    rows = [{"step": 10, "reward": 0.1}, {"step": 20, "reward": 0.2}, {"step": 20, "eval_reward": 0.3}]
    reading = written(tmp_path, rows)
    assert told(reading, "step", "reward/mean", "eval/reward") == [(10, 0.1, None), (20, 0.2, 0.3)]
    assert not any("rows a step" in note for note in reading.notes)


PHASES = {
    "train": {"reward": {"mean": 0.5, "std": 0.25}, "kl": 0.01},
    "val": {"reward": {"mean": 0.25}, "pass@1": 0.125},
}


@pytest.mark.parametrize(
    ("document", "steps"),
    [
        ({"epoch_2": PHASES, "epoch_1": PHASES, "best": {"epoch": 2, "val_reward": 0.9}}, [1, 2]),
        ({"epoch_10": PHASES, "epoch_5": PHASES}, [1, 2]),  # in their order
        ({"step 20": PHASES, "step 10": PHASES}, [10, 20]),
        ({"config": {"lr": 1e-6}, "summary": {"best_reward": 0.9}, "steps": {"20": PHASES, "10": PHASES}}, [10, 20]),
        ({"config": {"lr": 1e-6}, "20": PHASES, "10": PHASES}, [10, 20]),
    ],
)
def test_rows_by_the_name_of_their_step(document: Any, steps: list[int], tmp_path: Path) -> None:
    reading = written(tmp_path, document)
    backwards = {"step_3": {"reward": 0.3}, "step_1": {"reward": 0.1}, "step_2": {"reward": 0.2}}
    assert told(written(tmp_path, backwards), "step", "reward/mean") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    epochs = {"epoch_3": {"reward": 0.3}, "epoch_1": {"reward": 0.1}, "epoch_2": {"reward": 0.2}}
    assert told(written(tmp_path, epochs), "step", "reward/mean") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    names = ("step", "reward/mean", "reward/std", "kl", "eval/reward", "eval/slices/accuracy")
    assert told(reading, *names) == [(step, 0.5, 0.25, 0.01, 0.25, 0.125) for step in steps]
    assert reading.case.settings.learning_rate == (1e-6 if "config" in document else None)


@pytest.mark.parametrize(
    "document",
    [
        {"seeds": {"1": {"reward": 0.5}, "2": {"reward": 0.25}}},
        {"val": {"step_1": {"score": 0.5}, "step_2": {"score": 0.25}}},
        {"a": 1, "steps": {"1": {"reward": 0.5}, "best": {"reward": 0.25}}},
        {"val": {"reward": [0.25, 0.5]}},
    ],
)
def test_what_is_numbered_otherwise_is_no_course(document: Any, tmp_path: Path) -> None:
    file = tmp_path / "metrics.json"
    file.write_text(json.dumps(document))
    if READER.knows(Source(name=str(file), path=file)):
        assert all("reward/mean" not in row for row in READER.read(Source(name=str(file), path=file)).case.rows)


SAMPLES = [{"prompt": "2+2?", "completion": "4", "reward": 1.0}, {"prompt": "2+3?", "completion": "4", "reward": 0.0}]


def test_columns_in_an_object_beside_samples(tmp_path: Path) -> None:
    history = {
        "iteration": [0, 1, 2, 3], "mean_reward": [0.1, 0.2, 0.3, 0.4], "loss": [0.5, 0.5, 0.5], "kl": [0.1, 0.2],
        "eval_iterations": [1, 3], "eval_reward": [0.6, 0.7], "eval_accuracy": [0.9],
    }  # fmt: skip
    reading = written(tmp_path, {"config": {"group_size": 6}, "metrics_history": history, "final_samples": SAMPLES})
    assert told(reading, "step", "reward/mean", "loss", "kl", "eval/reward", "eval/slices/accuracy") == [
        (0, 0.1, 0.5, None, None, None),
        (1, 0.2, 0.5, None, 0.6, None),
        (2, 0.3, 0.5, None, None, None),
        (3, 0.4, None, None, 0.7, None),
    ]
    assert reading.case.settings.num_generations == 6


@pytest.mark.parametrize("document", [{"sweep": {"lr": [1e-6, 1e-5]}}, {"sweep": {"lr": [1e-6, 1e-5], "beta": [0, 1]}}])
def test_lists_of_settings_are_no_course(document: Any, tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(document))
    assert not READER.knows(Source(name="sweep.json", path=file))


def test_evaluations_at_other_steps_than_the_rows_are_left_out(tmp_path: Path) -> None:
    columns = {
        "step": [10, 20, 30, 40],
        "reward": [0.1, 0.2, 0.3, 0.4],
        "eval_steps": [1, 2],
        "eval_reward": [0.6, 0.7],
    }
    assert told(written(tmp_path, columns), "step", "eval/reward") == [(step, None) for step in (10, 20, 30, 40)]


def test_columns_of_more_rows_than_the_reward_are_of_others(tmp_path: Path) -> None:
    reading = written(tmp_path, {"reward": [0.1, 0.2, 0.3], "loss": [0.5] * 6, "kl": [0.01] * 4})
    assert told(reading, "reward/mean", "loss", "kl")[:3] == [(0.1, None, 0.01), (0.2, None, 0.01), (0.3, None, 0.01)]


def test_single_completions_are_no_course(tmp_path: Path) -> None:
    file = tmp_path / "samples.json"
    file.write_text(json.dumps({"name": "run", "samples": SAMPLES}))
    assert not READER.knows(Source(name="samples.json", path=file))
    file.write_text(json.dumps({"history": [{"step": 1, **SAMPLES[0]}, {"step": 2, **SAMPLES[1]}]}))
    assert READER.knows(Source(name="samples.json", path=file))  # one a step


@pytest.mark.parametrize("text", ["prompt", "output", "response"])
@pytest.mark.parametrize("place", ["epoch", "episode"])
def test_rows_by_epoch_with_a_completion_each_are_a_course(text: str, place: str, tmp_path: Path) -> None:
    places = (1, 2, 2, 3, 4)
    rows = [{place: at, text: "p", "reward": number / 10, "kl": 0.1} for number, at in enumerate(places)]
    assert told(written(tmp_path, {"history": rows}), "reward/mean") == [(0.0,), (0.1,), (0.2,), (0.3,), (0.4,)]


@pytest.mark.parametrize("epochs", [(1, 1, 1, 1, 1), (1, 1, 1, 2, 2), (1, 3, 2, 5, 4), (1, 2, 3, 4, None)])
def test_single_completions_of_an_epoch_are_no_course(epochs: tuple[float | None, ...], tmp_path: Path) -> None:
    file = tmp_path / "samples.json"
    file.write_text(json.dumps({"samples": [{"epoch": epoch, "prompt": "p", "reward": 1.0} for epoch in epochs]}))
    assert not READER.knows(Source(name="samples.json", path=file))


def test_many_evaluations_are_found_quickly(tmp_path: Path) -> None:
    columns = {
        "steps": list(range(100_000)), "reward": [0.5] * 100_000,
        "eval_steps": list(range(1, 100_000, 2))[:50_000], "eval_reward": [0.25] * 50_000,
    }  # fmt: skip
    file = tmp_path / "metrics.json"
    file.write_text(json.dumps(columns))
    begun = time.process_time()
    rows = READER.read(Source(name="metrics.json", path=file)).case.rows
    assert time.process_time() - begun < 10  # each looked up in a list of all: minutes
    assert [row.get("eval/reward") for row in rows[:4]] == [None, 0.25, None, 0.25]


def test_rows_of_evaluations_in_a_list_of_their_own(tmp_path: Path) -> None:
    course = [{"step": 10, "reward": 0.1}, {"step": 20, "reward": 0.2}]
    reading = written(
        tmp_path, {"eval": [{"step": 20, "eval_reward": 0.4}, {"step": 10, "avg@8": 0.3}], "history": course}
    )
    assert told(reading, "step", "reward/mean", "eval/reward") == [(10, 0.1, 0.3), (20, 0.2, 0.4)]


def test_a_trial_run_is_no_evaluation(tmp_path: Path) -> None:
    reading = written(tmp_path, {"test_run": [{"step": 1, "reward": 0.1}, {"step": 2, "reward": 0.2}]})
    assert told(reading, "reward/mean") == [(0.1,), (0.2,)]


def test_lines_of_one_value_each(tmp_path: Path) -> None:
    lines = [{"metric": name, "step": step, "value": value} for name, step, value in VALUES]
    lines.append({"metric": "reward", "step": 2, "value": 0.25, "split": "val"})
    reading = written(tmp_path, "\n".join(map(json.dumps, lines)) + "\nstopped\n", "metrics.jsonl")
    assert told(reading, "step", "reward/mean", "kl", "eval/reward") == [(1, 0.5, None, None), (2, 0.75, 0.1, 0.25)]


YAML = """\
finished: 2026-02-20T18:22:03Z
config:
  optim: {lr: 1.0e-06}
  rollout: {n: 5, max_new_tokens: 64}
  kl: {coef: 0.001}
  critic: {optim: {lr: 1.0e-05}}
summary: {best_reward: 0.9}
steps:
  10: {reward: {mean: 0.25, std: 0.5}, kl: 0.0}
  20: {reward: {mean: 0.5, std: 0.5}, kl: 1e-3, val: {pass@1: 0.75}}
"""
TOML = """\
[trainer.optim]
lr = 1e-6
[orchestrator]
rollouts_per_example = 5
[[history]]
step = 10
time = 2026-03-01T00:15:00Z
"reward/mean" = 0.25
[[history]]
step = 20
"reward/mean" = 0.5
[[eval]]
step = 20
"avg@8" = 0.75
"""


@pytest.mark.parametrize(("name", "text"), [("a.yaml", YAML), ("a.yml", YAML), ("a.toml", TOML)])
def test_yaml_and_toml(name: str, text: str, tmp_path: Path) -> None:
    reading = written(tmp_path, text, name)
    assert told(reading, "step", "reward/mean", "eval/reward") == [(10, 0.25, None), (20, 0.5, 0.75)]
    assert reading.kind == ("toml" if text is TOML else "yaml")
    settings = reading.case.settings
    assert (settings.learning_rate, settings.num_generations) == (1e-6, 5)
    assert settings.beta == (None if text is TOML else 0.001)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("spec.yaml", "learning_rate: 1e-6\nbeta: 0.04\nkl: 0.1\n"),
        ("spec.yaml", "stages:\n  - {learning_rate: 1e-6}\n  - {learning_rate: 1e-7}\n"),
        ("bad.yaml", "steps: [1\n10: {reward: 0.5}\n"),
        ("bad.toml", "reward = \n"),
        ("empty.yaml", "\n"),
        ("deep.yaml", "&a {reward: 0.5, b: *a}\n"),
    ],
)
def test_settings_and_damaged_files_are_not_taken_for_a_course(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert not READER.knows(Source(name=name, path=file))


def test_aliases_that_stand_for_too_many_values_are_not_followed(tmp_path: Path) -> None:
    lines = [
        "a: &a [1, 1]",
        *(f"{chr(97 + n)}: &{chr(97 + n)} [{', '.join([f'*{chr(96 + n)}'] * 9)}]" for n in range(1, 20)),
    ]
    file = tmp_path / "a.yaml"
    file.write_text("\n".join([*lines, "reward: 0.5"]))
    assert not READER.knows(Source(name="a.yaml", path=file))
