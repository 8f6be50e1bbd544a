"""Several runs of one setup: findings of one id as one, and collapses after updates counted over all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.health.case import Case, Sample, Settings
from core.health.examine import examine
from core.health.finding import Finding, Row
from core.health.pooled import examine_runs


def story(steps: str, first: int = 1, reward: float = 0.5) -> list[Row]:
    """s: sound, x: all invalid; a capital made an update."""
    return [
        {
            "step": i, "update": int(letter.isupper()), "completions/valid": float(letter in "sS"),
            "reward/mean": reward + 0.01 * i, "reward/std": 0.3, "entropy": 0.5 * reward,
        }
        for i, letter in enumerate(steps, first)
    ]  # fmt: skip


def run(steps: str, reward: float, lr: float | None = 0.0) -> Case:
    """Three prompts a step, two completions each."""
    rows = story(steps, reward=reward)
    samples = tuple(
        Sample(step=i, group=f"{i}-{prompt}", valid=letter in "sS", text="no")
        for i, letter in enumerate(steps, 1)
        for prompt in range(3)
        for _ in range(2)
    )
    return Case(rows=rows, samples=samples, settings=Settings(first_update_lr=lr))


def of_id(findings: list[Finding], id_: str) -> list[Finding]:
    return [finding for finding in findings if finding.id == id_]


def test_one_run_is_that_run() -> None:
    for case in (run("sSx", 0.5), Case(rows=story("sS" * 20)), Case(rows=[])):
        assert examine_runs([case]) == examine(case)
    assert examine_runs([]) == []


def test_short_logs_say_more_together() -> None:
    """Two times 3 collapsed prompts of 9: 1 / C(9, 3) each, 1 / C(18, 6) together."""
    cases = [run("sSx", 0.5), run("sSx", 0.7)]
    for case in cases:
        (alone,) = of_id(examine(case), "rollout-mode")
        assert (alone.severity, alone.confidence) == ("error", "moderate")
    (together,) = of_id(examine_runs(cases), "rollout-mode")
    assert (together.severity, together.confidence, together.evidence["runs"]) == ("error", "strong", "2 of 2")
    assert together.evidence["p"] == pytest.approx(1 / 18564)


def test_two_cuts_of_one_log_count_once() -> None:
    """Steps 1 to 3, and 2 to 3 of the same run: the same first update."""
    whole = run("sSx", 0.5)
    cut = replace(whole, rows=whole.rows[1:], samples=tuple(one for one in whole.samples if one.step > 1))
    moved = replace(cut, settings=Settings())
    (together,) = of_id(examine_runs([whole, moved]), "rollout-mode")
    assert together.confidence == "moderate"
    assert together.evidence["p"] == pytest.approx(1 / 84)


def test_healing_adds_up() -> None:
    """Three runs with one healed collapse each: 4 of 4 after an update, none of 6 after a skip."""
    cases = [run("SxSxsss", reward, lr=None) for reward in (0.5, 0.6, 0.7)]
    assert not any(of_id(examine(case), "rollout-mode") for case in cases)
    (together,) = of_id(examine_runs(cases), "rollout-mode")
    assert (together.severity, together.confidence) == ("warning", "moderate")  # prompts in an order do the same
    counts = [together.evidence[name] for name in ("after_update", "collapsed_after_update", "after_skip", "healed")]
    assert counts == [6, 6, 12, 6]
    assert together.evidence["p"] == pytest.approx(1 / 18564)  # C(18, 6)
    sound = [run("SsSxsss", reward, lr=None) for reward in (0.5, 0.6, 0.7)]
    assert of_id(examine_runs(sound), "rollout-mode") == []


def test_the_gravest_stands_and_runs_are_counted() -> None:
    dead: list[Row] = [{"step": i, "groups/dead": 0.9} for i in range(1, 5)]
    cases = [Case(rows=dead), Case(rows=dead[:1]), Case(rows=[{**row, "groups/dead": 0.1} for row in dead])]
    (finding,) = of_id(examine_runs(cases), "dead-groups")
    assert (finding.confidence, finding.evidence["runs"]) == ("moderate", "2 of 3")


def test_a_finding_of_several_runs_says_whose_numbers_it_tells() -> None:
    def cut_off(share: float) -> Case:
        rows: list[Row] = [{"step": step, "completions/truncated": share} for step in range(1, 31)]
        return Case(rows=rows)

    cases = [cut_off(0.0), cut_off(0.75)]
    (finding,) = of_id(examine_runs(cases, names=["a.log", "b.log"]), "truncation")
    assert (finding.evidence["shown_by"], finding.evidence["runs"]) == ("b.log", "1 of 2")
    (unnamed,) = of_id(examine_runs(cases), "truncation")
    assert unnamed.evidence["shown_by"] == "run 2"
    assert "shown_by" not in of_id(examine_runs(cases[1:]), "truncation")[0].evidence
