"""`grpoctl run` to its end: exit codes, the JSON document, what stands in the run directory, and what was reached."""

from __future__ import annotations

import json
import math
import signal
from concurrent.futures import Future
from pathlib import Path

import pytest

import grpoctl
from core.metrics import MEASURED, METRICS, declared
from grpoctl.config import experiments, load, read_resolved, spec_sha
from tests.end_to_end.cli import Cli, eventually, rows_of
from tests.end_to_end.scenarios import Ended, FullRun

pytestmark = pytest.mark.process

KEYS = {
    "schema", "experiment", "revision", "spec_sha", "profile", "seed", "run_id", "run_dir", "status", "steps",
    "updates", "seconds", "start", "final", "best", "expects", "findings",
}  # fmt: skip
SMALL = ("task.eval_prompts=4",)


def test_p31_learns_in_under_a_minute(p31: FullRun) -> None:
    assert p31.done.returncode == 0, p31.done.stderr
    result = p31.done.document
    assert result.keys() >= KEYS
    assert (result["schema"], result["experiment"], result["revision"]) == (1, "p31", 2)
    assert (result["profile"], result["seed"], result["steps"]) == ("tiny", 0, 96)
    assert result["status"] in ("COMPLETED", "STOPPED_EARLY")
    start, final = result["start"], result["final"]
    noise = math.hypot(start["eval/reward_se"], final["eval/reward_se"])
    assert final["eval/reward"] > start["eval/reward"] + 2 * noise > start["eval/reward"]
    assert result["best"]["eval/reward"] >= final["eval/reward"]
    assert 0 < result["seconds"] < 60  # 8 on two idle cores; here other tests run beside it
    assert [entry["met"] for entry in result["expects"]] == [True, True, True]
    assert [line for line in p31.done.errors if not line.endswith("(so far)")] == []  # where it stood for a while


def test_the_result_is_what_the_files_say(p31: FullRun) -> None:
    result, run = p31.done.document, p31.dir
    assert json.loads(run.result.read_text()) == result
    assert (result["run_id"], result["run_dir"]) == (run.id, str(run.path))
    spec = read_resolved(run.spec)
    assert (spec.name, spec.profile, spec_sha(spec)) == ("p31", "tiny", result["spec_sha"])
    status = json.loads(run.status.read_text())
    assert (status["status"], status["step"]) == (result["status"], 96)
    assert status["started"] < status["ended"]
    rows = rows_of(run.metrics)
    assert [row["step"] for row in rows] == list(range(97))
    assert sum(row.get("update", 0) for row in rows) == result["updates"] > 0
    noise = {"rollout/noise", "rollout/noise_mean", "rollout/rescoring_gap"}
    evaluated = {name for name in METRICS if name.startswith("eval/")} - set(MEASURED)  # those are of pictures
    assert rows[0].keys() == {"step", "completions", "tokens"} | noise | evaluated
    assert rows[0]["eval/reward"] == result["start"]["eval/reward"]
    assert rows[-1]["completions"] == 96 * 8 * 2
    seconds = sum(row["total"] for row in rows_of(run.timings))
    assert result["seconds"] == pytest.approx(seconds, abs=1e-3)


def test_every_metric_that_is_written_is_declared(p31: FullRun, p30: FullRun) -> None:
    for run in (p31, p30):
        result = run.done.document
        written = {name for row in rows_of(run.dir.metrics) for name in row}
        reported = {name for part in ("start", "final", "best") for name in result[part]}
        assert {name for name in written | reported if declared(name) is None} == set()
        assert "eval/gain_se/grpo" in written
        assert {"loss", "kl", "reward/mean", "rollout/logprob_gap", "eval/reward"} <= written


def test_samples_are_k_completions_of_b_prompts_a_step(p31: FullRun) -> None:
    samples = rows_of(p31.dir.samples)
    assert all(
        sample.keys() == {"step", "row", "prompt_id", "text", "valid", "reward", "advantage"} for sample in samples
    )
    assert [(s["step"], s["row"]) for s in samples] == [(step, row) for step in range(1, 97) for row in range(16)]
    first = samples[:16]
    assert len({s["prompt_id"] for s in first[:8]}) == len({s["prompt_id"] for s in first[8:]}) == 1
    rewards = [s["reward"] for s in first]
    assert rows_of(p31.dir.metrics)[1]["reward/mean"] == pytest.approx(sum(rewards) / 16)
    # Inside a group, what earned more has the larger advantage, and a group's advantages add up to 0.
    for group in (first[:8], first[8:]):
        assert sum(s["advantage"] for s in group) == pytest.approx(0, abs=1e-9)
        by_reward = sorted(group, key=lambda s: s["reward"])
        assert [s["advantage"] for s in by_reward] == sorted(s["advantage"] for s in group)


def test_the_last_two_and_the_best_checkpoint_are_kept(p31: FullRun) -> None:
    kept = {int(folder.name.removeprefix("step-")) for folder in p31.dir.checkpoints.iterdir()}
    assert kept == {90, 96, p31.done.document["best"]["step"]}
    names = {file.name for folder in p31.dir.checkpoints.iterdir() for file in folder.iterdir()}
    assert names == {"weights.safetensors", "optimizer.safetensors", "state.json"}


def test_the_adapter_of_the_best_step_loads_with_peft(p31: FullRun) -> None:
    from peft import PeftModel
    from safetensors.torch import load_file

    from core.models import loading
    from core.policies.lm.build import tiny_pairs

    run = p31.dir
    base, _ = loading.load(read_resolved(run.spec).model, tiny_pairs)
    adapted = PeftModel.from_pretrained(base, run.adapter)
    loaded = {name: value for name, value in adapted.state_dict().items() if "lora_" in name}
    best = run.checkpoints / f"step-{p31.done.document['best']['step']:06d}"
    trained = load_file(best / "weights.safetensors")
    assert loaded.keys() == trained.keys()
    assert all(loaded[name].equal(value) for name, value in trained.items())
    assert any(value.abs().max() > 0 for name, value in trained.items() if "lora_B" in name)  # it starts as 0


def test_progress_goes_to_standard_error_where_json_goes_to_standard_output(p31: FullRun) -> None:
    lines = p31.done.stderr.splitlines()
    assert lines[0].startswith("p31")
    assert "profile tiny" in lines[0]
    assert any(str(p31.dir.path) in line for line in lines[:3])
    first = next(place for place, line in enumerate(lines) if line.startswith("step "))
    assert any("evaluating before step 1" in line for line in lines[2:first])  # nothing is silent before its end
    assert lines[-1].startswith("step 96/96")
    between = [line for line in lines[2:] if not line.startswith("step ")]
    assert all(
        line.startswith("evaluating") or line.endswith(("so far", "(so far)")) for line in between
    )  # what took seconds
    assert len(lines) - len(between) <= 24


def test_p30_shows_the_seed_projects_picture_and_names_the_fault(p30: FullRun) -> None:
    assert p30.done.returncode == 0, p30.done.stderr
    result = p30.done.document
    assert (result["status"], result["steps"]) == ("COMPLETED", 96)  # its guards only warn: it is a record
    final = result["final"]
    assert final["collapse_rate"] > 0.95  # 1.0 here; another CPU's rounding may write a valid line once (decision 4)
    assert final["collapsed_after_skip"] == 0
    assert min(final["followed_updates"], final["followed_skips"]) > 20
    assert [entry["met"] for entry in result["expects"]] == [True]
    first, *_ = result["findings"]
    assert (first["id"], first["severity"]) == ("rollout-mode", "error")
    assert first["evidence"]["collapsed_after_update"] == final["collapsed_after_update"]


def test_p30_is_shown_beside_its_record(p30: FullRun) -> None:
    shown = p30.cli.run("show", p30.dir.id).stdout
    table = [line.split() for line in shown.splitlines()]
    assert ["collapse_rate", "0.974", f"{p30.done.document['final']['collapse_rate']:.3f}"] in table
    assert ["followed_skips", "56", str(p30.done.document["final"]["followed_skips"])] in table


def test_the_integrity_guard_stops_p30_at_the_first_rollout_after_an_update(ended: Ended) -> None:
    done, run = ended.done["guard"], ended.run("guard")
    assert done.returncode == 4
    assert done.document["status"] == "INVALID_ROLLOUT"
    rows = rows_of(run.metrics)
    updated = [row["step"] for row in rows if row.get("update") == 1]
    assert updated == [rows[-1]["step"] - 1]  # the first update is followed by the last rollout, which taught nothing
    findings = done.document["findings"]
    assert [finding["id"] for finding in findings if finding["severity"] == "error"] == ["rollout-integrity"]


def test_k2_does_not_collapse_by_itself(p30_sound: FullRun) -> None:
    result = p30_sound.done.document
    assert (p30_sound.done.returncode, result["status"]) == (0, "COMPLETED")
    assert result["final"]["collapsed_steps"] == 0
    assert result["final"]["followed_updates"] > 5
    assert [entry["met"] for entry in result["expects"]] == [True]


def sums(folder: Path) -> list[str]:
    """The settings with which a GSM8K experiment learns from twelve problems of our own."""
    rows = [{"question": f"How much is {n} and {n}?", "answer": f"{n} + {n}\n#### {2 * n}"} for n in range(12)]
    (folder / "train.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return [f"task.path={folder}", "task.train_prompts=8"]


@pytest.mark.parametrize("name", [one.name for one in experiments()])
def test_every_shipped_experiment_runs_in_its_tiny_profile(
    lone: Cli, background: dict[str, Future[FullRun]], name: str, tmp_path: Path
) -> None:
    full = background.get(name.replace("-", "_"))
    spec = load(name, profile="tiny").spec
    two = [text for one in spec.stages for text in (f"stages.{one}.epochs=null", f"stages.{one}.max_steps=2")]
    two += [f"stages.{one}.warmup_steps=0" for one, stage in spec.stages.items() if stage.warmup_steps > 2]
    small = [*SMALL, *two, *(sums(tmp_path) if spec.task.name == "gsm8k" else ())]
    done = full.result().done if full else lone.run("run", name, "--profile", "tiny", "--json", *small)
    assert done.returncode == 0, done.stderr
    assert (done.document["experiment"], done.document["profile"]) == (name, "tiny")


def test_python_loads_the_newest_run(p31: FullRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPOCTL_HOME", str(p31.cli.home.path))
    run = grpoctl.load("P31")
    assert run.spec == read_resolved(p31.dir.spec)
    assert run.result == p31.done.document
    frame = run.metrics
    assert list(frame.index) == list(range(97))
    assert frame["eval/reward"].dropna().iloc[-1] == run.result["final"]["eval/reward"]
    assert frame.loc[0, ["loss"]].isna().all()


def test_two_runs_started_at_once_in_a_fresh_home_get_a_number_each(lone: Cli) -> None:
    started = [lone.start("run", "p31", "--json", *SMALL, "stages.grpo.max_steps=2") for _ in range(2)]
    documents = [process.wait().document for process in started]
    assert [document["status"] for document in documents] == ["COMPLETED", "COMPLETED"]
    assert sorted(document["run_id"][-2:] for document in documents) == ["-1", "-2"]
    one, other = (Path(document["run_dir"]) for document in documents)
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()


def test_a_run_is_seen_while_it_runs(lone: Cli) -> None:
    process = lone.start("run", "p31", "--json")
    eventually(lambda: len(rows_of(lone.first_run.metrics)) > 1, "the run has a step")
    shown = lone.run("show", "p31-tiny", "--json").document
    assert shown["status"] == "RUNNING"
    assert shown["metrics"]["step"] >= 1
    process.send(signal.SIGKILL)
    process.wait()
