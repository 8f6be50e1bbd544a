"""Reading runs from files, and which of them stand for an experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import AmbiguousNameError, NotFoundError, StorageError
from grpoctl.analysis.collect import RunRecord, flatten, load_run, number, shared_profile, side, sides
from grpoctl.files import read_json, replace_json
from grpoctl.runs.run_dir import Home
from tests.conftest import Recorded
from tests.promotable import ended_study, swept

SPEC = "name: p31\nmodel:\n  lora: null\nstages:\n  grpo:\n    learning_rate: 2e-6\nfaults: [rollout-in-train-mode]\n"


def write_run(home: Path, name: str, ended: float, **result: Any) -> Path:
    """A run directory with the three files a comparison reads, and the status that says when it ended."""
    path = home / name
    path.mkdir()
    document = {
        "experiment": "p31",
        "recorded_as": "p31@1",
        "spec_sha": "aaaa",
        "profile": "tiny",
        "seed": 0,
        "run_id": name,
        "status": "COMPLETED",
        "final": {"eval/reward": 0.5},
    } | result
    status = {"schema": 1, "status": document["status"], "pid": 1, "started": 0.0, "step": 1, "message": ""}
    (path / "result.json").write_text(json.dumps(document), encoding="utf-8")
    (path / "status.json").write_text(json.dumps(status | {"ended": ended}), encoding="utf-8")
    (path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    (path / "metrics.jsonl").write_text('{"step": 0, "completions": 0}\n{"step": 1, "completions": 16}\n')
    return path


def test_load_run(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, "one", ended=7.0, seed=3))
    assert (run.run_id, run.seed, run.status, run.ended) == ("one", 3, "COMPLETED", 7.0)
    assert run.spec == {
        "name": "p31",
        "model.lora": None,
        "stages.grpo.learning_rate": 2e-6,  # YAML 1.1 would read a text here
        "faults": ["rollout-in-train-mode"],
    }
    assert [row["step"] for row in run.rows] == [0, 1]


@pytest.mark.parametrize(
    ("file", "content", "error", "says"),
    [
        ("result.json", None, NotFoundError, "has not ended"),
        ("result.json", "{", StorageError, "damaged"),
        ("spec.yaml", "a: [1", StorageError, "damaged"),
        ("spec.yaml", "- 1", StorageError, "mapping"),
        ("spec.yaml", None, StorageError, "spec.yaml"),
        ("metrics.jsonl", "{]\n{}\n", StorageError, "damaged"),
    ],
)
def test_a_file_that_cannot_be_used(
    tmp_path: Path, file: str, content: str | None, error: type[Exception], says: str
) -> None:
    path = write_run(tmp_path, "one", ended=7.0)
    (path / file).unlink()
    if content is not None:
        (path / file).write_text(content, encoding="utf-8")
    with pytest.raises(error, match=says):
        load_run(path)


def test_the_newest_spec_and_of_each_seed_the_newest_finished_run(tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path, "other-spec", ended=5, spec_sha="bbbb", seed=4),
        write_run(tmp_path, "other-experiment", ended=99, experiment="p30", recorded_as="p30@1"),
        write_run(tmp_path, "seed1", ended=6, seed=1),
        write_run(tmp_path, "seed0-old", ended=7),
        write_run(tmp_path, "seed0-new", ended=8),
        write_run(tmp_path, "seed0-failed", ended=9, status="FAILED"),
        write_run(tmp_path, "seed2-collapsed", ended=3, seed=2, status="COLLAPSED"),
    ]
    assert [run.run_id for run in side(paths, "P31")] == ["seed0-new", "seed1", "seed2-collapsed"]
    assert [run.run_id for run in side(paths, "p31@1")] == ["seed0-new", "seed1", "seed2-collapsed"]


def test_a_run_without_a_result_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "running").mkdir()
    paths = [tmp_path / "running", write_run(tmp_path, "done", ended=1)]
    assert [run.run_id for run in side(paths, "p31")] == ["done"]


def test_the_profile_asked_for_or_else_the_newest_runs(tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path, "tiny", ended=1),
        write_run(tmp_path, "small", ended=2, profile="small", spec_sha="bbbb"),
    ]
    assert [run.run_id for run in side(paths, "p31")] == ["small"]
    assert [run.run_id for run in side(paths, "p31", profile="tiny")] == ["tiny"]
    with pytest.raises(NotFoundError, match=r"p31 under profile full.*grpoctl run p31"):
        side(paths, "p31", profile="full")


def test_shared_profile(tmp_path: Path) -> None:
    p30 = {"experiment": "p30", "recorded_as": "p30@1"}
    paths = [
        write_run(tmp_path, "a", ended=1, **p30),
        write_run(tmp_path, "b-old", ended=2),
        write_run(tmp_path, "b-new", ended=3, profile="full"),
    ]
    assert shared_profile(paths, ["p30", "p31"]) == "tiny"  # B's newest is full, which A has not
    assert shared_profile(paths[1:], ["p30", "p31"]) is None


def test_flatten() -> None:
    assert flatten({"a": {"b": {"c": 1}, "d": [1, 2]}, "e": {}, "f": None}) == {"a.b.c": 1, "a.d": [1, 2], "f": None}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1.0), (0.5, 0.5), (None, None), (True, None), ("1", None), (float("nan"), None), (float("inf"), None)],
)
def test_number(value: object, expected: float | None) -> None:
    assert number(value) == expected


def test_value_looks_in_final_then_in_the_run_then_in_its_last_row() -> None:
    run = RunRecord(
        result={"updates": 7, "final": {"eval/reward": 0.5}, "best": {"eval/reward": 0.6}},
        spec={},
        rows=({"completions": 16}, {"completions": 32}),
    )
    assert run.value("eval/reward") == 0.5
    assert run.value("eval/reward", "best") == 0.6
    assert run.value("updates") == 7
    assert run.value("completions") == 32
    assert run.value("updates", "best") is None
    assert run.value("eval/reward", "start") is None


def test_a_damaged_result_hides_no_other_run(tmp_path: Path) -> None:
    broken = write_run(tmp_path, "broken", ended=3.0)
    (broken / "result.json").write_text("[", encoding="utf-8")
    sound = write_run(tmp_path, "sound", ended=2.0)
    assert [run.run_id for run in side([broken, sound], "p31")] == ["sound"]


def test_a_name_means_the_experiment_without_overrides(tmp_path: Path) -> None:
    plain = write_run(tmp_path, "plain", ended=1.0)
    other = write_run(tmp_path, "other", ended=2.0, spec_sha="bbbb", overrides=["learning_rate=1e-3"])
    assert [run.run_id for run in side([plain, other], "p31")] == ["plain"]
    assert [run.run_id for run in side([other], "p31")] == ["other"]  # where there is no other


def test_the_order_of_stages_and_the_source_of_the_weights_are_settings(tmp_path: Path) -> None:
    runs = []
    for name, order in (("x", ("a", "b")), ("y", ("b", "a"))):
        path = write_run(tmp_path, name, 1.0)
        stages = "".join(f"  {stage}: {{max_steps: 1}}\n" for stage in order)
        (path / "spec.yaml").write_text(f"init_from: p31\nstages:\n{stages}")
        (path / "provenance.json").write_text(json.dumps({"init_from": f"/somewhere/runs/p31-{name}"}))
        runs.append(load_run(path).spec)
    differ = {key: (runs[0][key], runs[1][key]) for key in runs[0] if runs[0][key] != runs[1][key]}
    assert differ == {"init_from": ("p31-x", "p31-y"), "stages": (["a", "b"], ["b", "a"])}


def test_a_side_is_all_seeds_of_a_spec_by_its_hash_or_of_a_trial(home: Home, recorded: Recorded) -> None:
    plain = [recorded(seed=seed) for seed in (0, 1)]
    changed = [recorded(seed=seed, learning_rate=5e-3) for seed in (0, 1, 2)]
    sha = changed[0].id.split("-")[-2]
    for name in (f"p31-{sha}", f"P31-TINY-{sha}", sha, sha[:6]):
        both = sides(home, ["p31", name], None)
        assert [[run.run_id for run in side] for side in both] == [[r.id for r in plain], [r.id for r in changed]]
    with pytest.raises(NotFoundError):
        sides(home, ["p31", f"p30-{sha}"], None)
    short = f"no experiment, run or trial 'p31-{sha[:5]}'; {sha[:5]} begins a spec's hash, of which 6 digits or more"
    with pytest.raises(NotFoundError, match=short):
        sides(home, ["p31", f"p31-{sha[:5]}"], None)
    for name in ("p31", plain[0].id):  # nor does a run of another profile stand in
        with pytest.raises(NotFoundError):
            sides(home, [name, "p31"], "full")
    study = ended_study(home, swept("advantage-study", "tiny"))
    run = study.run(0, 0)
    replace_json(run.result, {**(read_json(plain[0].result) or {}), "run_id": run.id})
    run.metrics.write_text('{"step": 0}\n')
    (only,) = sides(home, [f"{study.id}-t0000"], None)
    assert [record.run_id for record in only] == [run.id]
    assert only[0].trial == f"{study.id}-t0000"
    assert both[0][0].trial is None
    with pytest.raises(NotFoundError, match="no run of trial 7"):
        sides(home, [f"{study.id}-t0007"], None)
    for name in (study.id, "advantage-study"):  # its trials can be compared, it cannot
        with pytest.raises(NotFoundError, match=f"{study.id}-t0000"):
            sides(home, ["p31", name], None)


def test_a_hash_that_several_specs_begin_with_is_refused_and_a_name_comes_first(tmp_path: Path) -> None:
    first = write_run(tmp_path, "one", ended=1.0, spec_sha="abcdef01" + "0" * 56)
    second = write_run(tmp_path, "two", ended=2.0, spec_sha="abcdef02" + "0" * 56)
    named = write_run(tmp_path, "three", ended=3.0, experiment="abcdef", recorded_as="abcdef@1", spec_sha="1" * 64)
    with pytest.raises(AmbiguousNameError, match=r"2 specs \(p31-tiny-abcdef01"):
        side([first, second], "p31-abcdef")
    assert [run.run_id for run in side([first, second, named], "abcdef")] == ["three"]
    assert [run.run_id for run in side([first, second], "abcdef01")] == ["one"]
