"""Document 003's experiments as their user runs them: killed and resumed, looked at, measured, and a study."""

from __future__ import annotations

import signal

import pytest
from PIL import Image

from tests.end_to_end.cli import Cli, eventually, rows_of, step_of

pytestmark = pytest.mark.process

SHORT = (
    "policy.width=4", "policy.heads=[1, 1, 1, 1]", "task.patch=16", "task.train_prompts=16", "task.eval_prompts=6",
    "stages.supervised.epochs=1", "stages.blend.epochs=0.5", "stages.full.epochs=0.5", "evaluation.eval_steps=14",
    "stages.supervised.warmup_steps=2", "checkpoints.save_steps=6",
)  # fmt: skip
STEPS = 16 + 8 + 4


def test_a_run_is_killed_resumed_shown_measured_and_looked_at(lone: Cli) -> None:
    started = lone.start("run", "p51", "-p", "tiny", "--quiet", *SHORT)
    eventually(lambda: step_of(lone.first_run) >= 18, "the stage with GRPO has begun")
    started.send(signal.SIGKILL)
    assert started.wait().returncode == -signal.SIGKILL
    broken = lone.first_run
    assert step_of(broken) < STEPS
    assert lone.run("run", "p51", "-p", "tiny", "--quiet", *SHORT, "--resume").returncode == 0
    assert lone.run("run", "p51", "-p", "tiny", "--quiet", *SHORT).returncode == 0
    whole = next(run for run in lone.home.runs() if run.path != broken.path)
    pictures = [f"pictures/{file.name}" for file in sorted(whole.pictures.iterdir())]
    assert pictures == [f"pictures/step-{step:06d}.png" for step in (0, 14, 16, 24, STEPS)]  # stages' ends, too
    for file in ("metrics.jsonl", "samples.jsonl", "problems.parquet", "greedy.jsonl", *pictures):
        assert (broken.path / file).read_bytes() == (whole.path / file).read_bytes(), file

    first, *steps = rows_of(whole.metrics)
    assert first["baseline/degraded.psnr"] > 10
    assert first["probe/rate_effect"] > 0
    assert {"eval/psnr", "eval/ssim", "eval/psnr/noise-25"} <= set(first)
    assert all(row["losses/supervised"] > 0 for row in steps)
    assert [row.get("weight/policy") for row in steps[14:18]] == [None, None, 1.0, 1.0]

    shown = lone.run("show", whole.id, "--samples")
    assert "noise-50" in shown.stdout
    measured = lone.run("eval", whole.id, "--prompts", "3", "--json")
    assert measured.document["measured"]["psnr"]["mean"] > 10
    assert lone.run("compare", broken.id, whole.id, "--json").returncode == 0
    page = lone.folder / "page.html"
    assert lone.run("diagnose", whole.id, "--html", str(page)).returncode in (0, 1)
    assert page.read_text().count("data:image/png;base64,") == 2

    Image.new("RGB", (37, 21), (200, 80, 40)).save(lone.folder / "photo.png")
    sampled = lone.run("sample", whole.id, "photo.png", "--degrade", "noise-25", "--json")
    (answer,) = sampled.document["completions"]
    assert sorted(answer["files"]) == ["degraded", "difference", "restored"]
    with Image.open(lone.folder / answer["files"]["restored"]) as restored:
        assert restored.size == (37, 21)
    assert answer["measured"]["psnr"] > 5
    as_it_is = lone.run("sample", whole.id, "photo.png", "--json").document["completions"][0]
    assert as_it_is["reward"] is None


def test_what_needs_trained_weights_is_refused_before_anything_is_written(cli: Cli) -> None:
    for command in (("run", "p51"), ("sweep", "restoration-study")):
        refused = cli.run(*command, "--profile", "full")
        assert refused.returncode == 2
        assert "policy.weights" in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1
    assert not cli.home.path.exists()


@pytest.mark.slow
def test_a_study_repeats_itself(cli: Cli) -> None:
    few = (
        "settings.policy.width=4", "settings.policy.heads=[1, 1, 1, 1]", "settings.task.patch=16",
        "settings.task.train_prompts=16", "settings.task.eval_prompts=6", "settings.stages.pretrain.epochs=0.5",
        "settings.stages.pretrain.warmup_steps=0", "settings.evaluation.eval_steps=8", "budget.completions=48",
        "trials=2", "seeds=[0]",
    )  # fmt: skip
    studies = []
    for _ in range(2):
        done = cli.run("sweep", "restoration-study", "-p", "tiny", "--quiet", "--json", "--parallel", "1", *few)
        assert done.returncode == 0, done.stderr
        studies.append([(trial["params"], trial["score"]) for trial in done.document["trials"]])
    assert studies[0] == studies[1]
    assert len(studies[0]) == 2
