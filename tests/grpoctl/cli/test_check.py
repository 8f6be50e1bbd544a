"""`grpoctl check`: what a spec can and cannot do, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpoctl.config import load, spec_sha
from tests.bandit import PACKAGE
from tests.grpoctl.cli.conftest import Grpoctl


def test_p30_has_advantages_of_exactly_one(grpoctl: Grpoctl) -> None:
    document = grpoctl("check", "p30", "--json").document
    spec = load("p30").spec
    assert (document["schema"], document["experiment"], document["profile"]) == (1, "p30", "full")
    assert document["spec_sha"] == spec_sha(spec)
    stage = document["stages"]["grpo"]
    rows = [(row["successes"], row["success"], row["failure"]) for row in stage["advantages"]]
    one = pytest.approx(1.0, abs=1e-7)  # eps is 1e-8
    assert rows == [(0, None, 0.0), (1, one, pytest.approx(-1.0, abs=1e-7)), (2, 0.0, None)]
    assert stage["max_advantage"] == one
    (half,) = (row for row in stage["dead_groups"] if row["pass_rate"] == 0.5)
    assert half == {"pass_rate": 0.5, "group": 0.5, "step": 0.125}
    assert stage["learning_rate"]["first"] == 0.0  # its first update moved nothing
    counts = ("num_generations", "prompts_per_step", "completions_per_step", "updates_per_step", "max_updates")
    assert [stage[key] for key in counts] == [2, 3, 6, 1, 96]
    warned = {finding["id"] for finding in document["warnings"]}
    assert {"faults", "two-generations", "sampling-filter", "dropout-in-ratio", "never-leaves-warmup"} <= warned
    # its fault moves the ratio, so its epsilon is not called inert
    assert "stages.grpo.epsilon" not in {knob["key"] for knob in document["inert"]}


def test_the_document_on_k_stands_beside_what_is_exact(grpoctl: Grpoctl) -> None:
    rows = {
        row["num_generations"]: row
        for row in grpoctl("check", "p30", "--json").document["stages"]["grpo"]["group_sizes"]
    }
    assert list(rows) == [2, 4, 8, 16, 32, 64]  # document 000, section 4.1: 2, 4, 8-16, 64, 4-32
    for size, row in rows.items():
        # all right or all wrong at p = 1/2; a z-score of population stds is at most sqrt(K - 1)
        assert row["dead_groups"][0] == {"pass_rate": 0.5, "group": pytest.approx(2 * 0.5**size)}
        assert row["max_advantage"] == pytest.approx((size - 1) ** 0.5, abs=1e-5)
        assert row["said"]
    words = grpoctl("check", "p30").out
    for fact in ("severely too few", "OpenRLHF", "DeepSeekMath", "0.3203", "2.6458"):  # 0.75^4 + 0.25^4, sqrt(7)
        assert fact in words
    own = grpoctl("check", "p31", "num_generations=12", "prompts_per_step=1", "--json").document["stages"]["grpo"]
    (mine,) = (row for row in own["group_sizes"] if row["num_generations"] == 12)
    assert mine["said"] == ""


def test_kept_candidates_are_in_the_column_of_dead_groups(grpoctl: Grpoctl) -> None:
    stage = grpoctl("check", "p31", "keep_candidates=2", "--json").document["stages"]["grpo"]
    (half,) = (row for row in stage["dead_groups"] if row["pass_rate"] == 0.5)
    assert half["group"] == pytest.approx(1 - 8 / 256)  # alive with exactly one right of eight
    assert half["step"] == pytest.approx((1 - 8 / 256) ** 2)
    assert "best 2" in grpoctl("check", "p31", "keep_candidates=2").out


def test_p30_sound_has_an_epsilon_that_does_nothing(grpoctl: Grpoctl) -> None:
    document = grpoctl("check", "p30-sound", "--profile", "tiny", "--json").document
    (knob,) = (knob for knob in document["inert"] if knob["key"] == "stages.grpo.epsilon")
    assert (knob["value"], knob["exact"]) == (0.2, True)
    assert "one update per rollout" in knob["reason"]
    assert "num_iterations" in knob["acts"]


def test_overrides_are_what_is_checked(grpoctl: Grpoctl) -> None:
    said = grpoctl("check", "p31", "advantage.ddof=1", "advantage.clip=3", "num_iterations=2", "--json")
    assert said.code == 0
    stage = said.document["stages"]["grpo"]
    # K = 8, ddof 1: at most 7 / sqrt(8) = 2.4749, so a clip of 3 does nothing
    assert stage["max_advantage"] == pytest.approx(2.4749, abs=1e-4)
    assert (stage["updates_per_step"], stage["max_updates"]) == (2, 192)
    assert {knob["key"] for knob in said.document["inert"]} >= {"stages.grpo.advantage.clip"}
    assert "stages.grpo.epsilon" not in {knob["key"] for knob in said.document["inert"]}


def test_dynamic_sampling_has_its_cost(grpoctl: Grpoctl) -> None:
    stage = grpoctl("check", "p31", "method=dapo", "--json").document["stages"]["grpo"]
    assert stage["method"] == "dapo"
    (half,) = (row for row in stage["dead_groups"] if row["pass_rate"] == 0.5)
    assert half["samples"] == pytest.approx(16 / (1 - 2 / 256))  # ten attempts are as good as endless here
    assert half["short"] < 1e-20
    assert stage["max_completions_with_refills"] == 10 * stage["max_completions"]


def test_in_words_it_fits_80_columns(grpoctl: Grpoctl) -> None:
    kept = ("p31", "keep_candidates=4", "num_generations=12")
    for argv in (("p30",), ("p31",), ("p31", "method=dapo", "num_generations=64"), kept):
        said = grpoctl("check", *argv)
        assert (said.code, said.err) == (0, "")
        assert max(map(len, said.out.splitlines())) <= 80
    assert "+1.0000" in grpoctl("check", "p30").out
    assert grpoctl("check", "p31", "num_iterations=2", "warmup_steps=0", "--json").document["inert"] == []


def test_a_bad_spec_is_no_warning(grpoctl: Grpoctl) -> None:
    said = grpoctl("check", "p31", "num_generations=1")
    assert (said.code, said.out) == (2, "")
    assert "num_generations" in said.err
    assert grpoctl("check", "p13").code == 2
    assert grpoctl("check", "p31", "task.name=arithmetic", "task.train_prompts=20000").code == 2


STAGES = """\
name: blend
extends: p31
stages:
  warm: {kind: sft, max_steps: 5, prompts_per_step: 4, learning_rate: 0.001, warmup_steps: 2}
  weighted: {kind: rce, max_steps: 5, prompts_per_step: 4, num_generations: 4, learning_rate: 0.001, keep_candidates: 4}
"""


def test_every_kind_of_stage_is_counted(grpoctl: Grpoctl, tmp_path: Path) -> None:
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "blend.yaml").write_text(STAGES)
    document = grpoctl("check", "blend", "--json").document
    stages = document["stages"]
    assert {name: stage["kind"] for name, stage in stages.items()} == {"grpo": "grpo", "warm": "sft", "weighted": "rce"}
    assert (stages["warm"]["completions_per_step"], "num_generations" in stages["warm"]) == (0, False)
    assert (stages["weighted"]["max_completions"], "advantages" in stages["weighted"]) == (80, False)
    assert "stages.weighted.keep_candidates" in {knob["key"] for knob in document["inert"]}
    words = grpoctl("check", "blend").out
    assert "Stage warm: sft. A step: 4 answers, 1 update" in words
    assert max(map(len, words.splitlines())) <= 80


def test_a_budget_says_how_many_steps_it_makes(grpoctl: Grpoctl) -> None:
    # p31 samples 16 a step: 1024 are 64 steps; with nine samplings more of each, 7 at least.
    argv = ("p31", "--profile", "tiny", "budget.completions=1024")
    document = grpoctl("check", *argv, "--json").document
    stage = document["stages"]["grpo"]
    assert (stage["min_steps"], stage["max_steps"], stage["max_completions"]) == (64, 64, 1024)
    assert "budget-is-the-clock" in {finding["id"] for finding in document["warnings"]}
    words = grpoctl("check", *argv, "method=dapo").out
    assert "7 to 64 steps: at most 64 updates, 1024 completions (1183 with refills)" in " ".join(words.split())
    assert max(map(len, words.splitlines())) <= 80


BANDIT = """\
name: bandit
title: Reach a point
policy: {kind: gaussian-bandit}
task: {name: reach, train_prompts: 16, eval_prompts: 8}
stages: {grpo: {max_steps: 6, num_generations: 8, prompts_per_step: 4, learning_rate: 0.03}}
"""


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        (("--data",), ("--data", "reach scores vector")),
        (("--data", "--no-model"), ("--data", "reach scores vector")),
        (("--resources", "--no-probe"), ("--resources", "gaussian-bandit")),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_a_part_that_is_about_language_models_is_refused_before_anything_is_printed(
    grpoctl: Grpoctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...],
    facts: tuple[str, ...], form: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.syspath_prepend(PACKAGE)
    (tmp_path / "bandit.yaml").write_text(BANDIT)
    assert grpoctl("check", "bandit.yaml", *form).code == 0
    said = grpoctl("check", "bandit.yaml", *argv, *form)
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert all(fact in said.err for fact in facts)


def test_a_simulation_without_a_grpo_stage_is_refused_before_anything_is_printed(grpoctl: Grpoctl) -> None:
    said = grpoctl("check", "rce-only", "--simulate")
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)


def test_groups_that_are_not_the_best_of_samples_have_no_chances_of_being_dead(grpoctl: Grpoctl) -> None:
    online = ("stages.rce=null", "stages.grpo.groups=online")
    for argv, rows in ((("p40",), 0), (("p49", *online), 0), (("p40", *online), 9)):
        stage = grpoctl("check", *argv, "--json").document["stages"]["grpo"]
        assert len(stage["dead_groups"]) == rows
        assert bool(stage["group_sizes"]) == bool(rows)
    # The three that take part, however many are stored: 2 / 3 over sqrt(1 / 3) is 1.1547.
    stage = grpoctl("check", "p40", "--json").document["stages"]["grpo"]
    assert [row["successes"] for row in stage["advantages"]] == [0, 1, 2, 3]
    assert [row["success"] for row in stage["advantages"][1:]] == pytest.approx([1.1547, 0.57735, 0], abs=1e-4)
    printed = grpoctl("check", "p40").out
    assert "Probability of a dead group" not in printed
    assert "--data" in printed


def test_a_setting_that_the_parent_has_already_is_without_effect(grpoctl: Grpoctl, tmp_path: Path) -> None:
    file = tmp_path / "again.yaml"
    file.write_text("name: again\nextends: p31\nstages: {grpo: {num_generations: 8, beta: 0.5}}\n")
    inert = {knob["key"]: knob for knob in grpoctl("check", str(file), "--json").document["inert"]}
    assert inert["stages.grpo.num_generations"]["value"] == 8
    assert "p31" in inert["stages.grpo.num_generations"]["reason"]
    assert "stages.grpo.beta" not in inert


def test_it_ends_with_yes_or_no_and_names_the_profile(grpoctl: Grpoctl) -> None:
    for argv, answer, profile in (
        (("p30",), "no", "full"),  # it injects a fault
        (("p30-sound",), "yes", "full"),
        (("p31", "-p", "tiny"), "yes", "tiny"),
    ):
        verdict = grpoctl("check", *argv, "--json").document["verdict"]
        assert verdict.startswith(answer)
        assert f"profile {profile} " in verdict
        assert " ".join(grpoctl("check", *argv).out.split()).endswith(f"Verdict {verdict}.")


def test_outputs_that_are_stored_are_not_counted_as_drawn(grpoctl: Grpoctl) -> None:
    """One query a step, of whose stored tuples at most 15 take part: an update of at most 15 rows."""
    stage = grpoctl("check", "p40", "--profile", "tiny", "--json").document["stages"]["rce"]
    assert (stage["completions_per_step"], stage["completions_per_update"], stage["micro_batch"]) == (0, 15, 15)
    words = " ".join(grpoctl("check", "p40", "--profile", "tiny").out.split())
    assert "A step: 1 prompt with at most 15 stored outputs each, none drawn, 1 update of at most 15" in words
    assert " completions, " not in words
    plan = grpoctl("run", "p40", "--profile", "tiny", "--dry-run").out
    assert "stage sft: 80 steps, stage rce: 320 steps on stored outputs, stage grpo: 192 steps on stored" in plan
    sweep = grpoctl("sweep", "selector-lr", "--profile", "tiny", "--dry-run", "--parallel", "2").out
    assert "= 81 runs, 2 at a time, which draw nothing: what they learn from is stored\n" in sweep
    assert "0 completions" not in sweep
