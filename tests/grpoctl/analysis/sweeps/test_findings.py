"""The sentences about a study, and when each of them is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpoctl.analysis.sweeps.findings import study_conclusions
from grpoctl.analysis.sweeps.report import head, text_report
from tests.studies import LR, K, advantage_study, axis, ladder_study, study, trial


def of_study(document: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = study_conclusions(document)["findings"]
    return found


def texts(document: dict[str, Any]) -> dict[str, str]:
    return {found["id"]: found["text"] for found in of_study(document)}


def numbers(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {found["id"]: found["numbers"] for found in of_study(document)}


def test_a_whole_study() -> None:
    found = of_study(advantage_study())
    assert [one["id"] for one in found] == [
        "best", "selection-bias", "noise", "collapse", "axes", "importances", "more-budget", "cost", "pruned", "failed",
        "runs",
    ]  # fmt: skip
    assert all(set(one) == {"id", "text", "numbers"} for one in found)
    json.dumps(found, allow_nan=False)


def test_the_best_and_those_beside_it() -> None:
    tight = [trial(0, [0.50, 0.51, 0.52]), trial(1, [0.50, 0.51, 0.53]), trial(2, [0.10, 0.11, 0.12])]
    assert numbers(study(tight))["best"] | {"score": None} == {"number": 1, "score": None, "indistinguishable": [0]}
    assert texts(study(tight))["best"].endswith("#0")
    assert numbers(study(tight[1:]))["best"]["indistinguishable"] == []
    one_seed = study([trial(0, [0.5]), trial(1, [0.9])])
    assert numbers(one_seed)["best"] == {"number": 1, "score": 0.9, "indistinguishable": None}
    assert "noise" not in texts(one_seed)
    collapsed = study([trial(0, [0.9, 0.0], "COLLAPSED")])
    assert "COLLAPSED" in texts(collapsed)["best"]


def test_axes_that_nothing_can_be_said_of_are_a_line_with_the_reason() -> None:
    # Two values take two columns, and four free ones beside them are less than ten candidates.
    few = [trial(n, [n / 10], params={K: 2 + 6 * (n % 2)}) for n in range(7)]
    pruned = [trial(n, [0.5], "PRUNED", params={K: 2}) for n in range(7, 24)]
    document = study([*few, *pruned], axes={K: axis([2, 8])})
    assert texts(document)["axes"].startswith("not enough to judge: 7 of 24 candidates ranked, 10 are the least")
    assert [line.text for line in head(document)[0].lines if line.label == "Axes"] == [texts(document)["axes"]]
    assert numbers(document)["axes"] == {K: None}
    equal = study([trial(n, [0.5], params={K: 2 + 6 * (n % 2)}) for n in range(12)], axes={K: axis([2, 8])})
    assert texts(equal)["axes"] == "not enough to judge: all 12 ranked candidates have the same score"
    assert "axes" not in texts(study(few))  # nothing was to be varied


def test_nothing_has_ended() -> None:
    assert numbers(study([]))["best"] == {}
    assert texts(study([trial(0, [None], "FAILED", message="out of memory")]))["failed"].endswith("#0: out of memory")


def test_a_correction_is_said_with_its_size() -> None:
    # three candidates of two seeds: squares 3 x 0.02 over 3, sd 0.1414; two-sided t(3) at 0.95^(1/3) = 4.827
    text = texts(study([trial(0, [0.4, 0.6]), trial(1, [0.5, 0.7]), trial(2, [0.3, 0.5])]))["noise"]
    # the least significant difference is 4.827 * 0.1414 * sqrt(1/2 + 1/2)
    assert all(fact in text for fact in ("0.141", "3 df", "0.683", "t = 4.83", "Sidak over 3 pairs", "5 %"))


def test_an_evaluations_noise_is_said_and_no_difference_below_it_counts() -> None:
    """Seeds that agree to 0.001 by luck, where each evaluation is known to 0.02: the larger one is the measure."""
    trials = [trial(n, [0.5 + n / 100, 0.501 + n / 100], errors=[0.02, 0.02]) for n in range(2)]
    found = {one["id"]: one for one in of_study(study(trials, eval_prompts=64))}
    assert found["noise"]["numbers"]["evaluation"] == pytest.approx(0.02)
    assert found["noise"]["numbers"]["least"] == pytest.approx(4.3027 * 0.02, abs=1e-4)  # t(2), one pair
    assert found["best"]["numbers"]["indistinguishable"] == [0]


def test_seeds_that_agree_exactly() -> None:
    made = study([trial(0, [1.0, 1.0]), trial(1, [0.0, 0.0])])
    assert (numbers(made)["noise"], numbers(made)["best"]["indistinguishable"]) == ({"sd": 0.0}, None)
    said = texts(made)
    assert said["best"].endswith("; the seeds of each candidate gave the same numbers: no significance test")
    assert "selection-bias" not in said


def edge(best: float, spec: dict[str, Any]) -> str:
    """What is said where the best of three candidates has this learning rate."""
    trials = [trial(n, [n / 10, n / 10 + 0.001], params={LR: value}) for n, value in enumerate([2, 2, best])]
    return texts(study(trials, axes={LR: spec})).get("edge", "")


def test_a_best_at_the_end_of_its_axis() -> None:
    values = axis([0, 2, 3])
    assert "learning_rate" in edge(3, values)
    assert "upper bound, 3:" in edge(3, values)
    assert edge(2, values) == ""
    assert edge(0, values) == ""  # nothing lies below 0
    assert edge(3, axis([2, 3])) == ""  # of two values each is an end
    # the outer tenth of 1 to 100: by ratio from 10^1.8 = 63.1 on, else from 90.1 on
    assert "upper bound, 100:" in edge(64, axis(low=1, high=100, log=True, type="int"))
    assert edge(62, axis(low=1, high=100, log=True, type="int")) == ""
    assert edge(64, axis(low=1, high=100, type="int")) == ""
    assert "lower bound, 1:" in edge(1.5, axis(low=1, high=100, log=True))


def test_candidates_no_better_than_the_start(tmp_path: Path) -> None:
    """Of an older study, which does not say where GRPO began: the start of the best candidate's runs stands for all."""
    (tmp_path / "result.json").write_text(json.dumps({"start": {"eval/reward": 0.45}}))
    trials = [
        trial(0, [0.60, 0.61], params={K: 8}, runs=[str(tmp_path)] * 2),
        trial(1, [0.45, 0.46], params={K: 2}),
        trial(2, [0.40, 0.41], params={K: 2}),
    ]
    document = study(trials, axes={K: axis([2, 8])})
    found = numbers(document)["no-better-than-start"]
    assert (found["start"], found["trials"]) == (0.45, [1, 2])
    text = texts(document)["no-better-than-start"]
    assert all(fact in text for fact in ("2 of 3", "0.450", "#1 and #2", "num_generations=2"))


def begun(number: int, start: float, end: float, **more: Any) -> Any:
    """A candidate of two seeds whose GRPO stage went from `start` to `end`."""
    return trial(number, [end - 0.005, end + 0.005], starts=[start, start], **more)


def test_learning_is_told_from_where_grpo_begins_of_each_candidate_itself() -> None:
    """Both end at 0.6. The first one's supervised stage made all of that, the second one's GRPO."""
    trials = [begun(0, 0.6, 0.6), begun(1, 0.3, 0.6)]
    found = {one["id"]: one for one in of_study(study(trials))}
    assert found["no-better-than-start"]["numbers"]["trials"] == [0]
    noisy = [begun(n, 0.5, end, gain_errors=[0.028] * 2) for n, end in enumerate([0.55, 0.9])]
    found = {one["id"]: one for one in of_study(study(noisy, eval_prompts=64))}
    assert found["no-better-than-start"]["numbers"]["trials"] == [0]  # +0.05, known to 0.028


def test_where_nothing_was_learned_that_is_said_first() -> None:
    document = study([begun(0, 0.6, 0.601), begun(1, 0.6, 0.6)])
    findings = of_study(document)
    assert findings[0]["id"] == "nothing-learned"
    assert findings[0]["numbers"]["trials"] == [0, 1]
    line = text_report(document)[0].lines[0]
    assert (line.label, line.mark) == ("Learning", "WARNING")
    assert "0.600" in line.text
    assert "stop" in line.text
    assert "supervised" not in line.text
    (step,) = study_conclusions(document)["next"]  # and nothing else is advised
    assert (step["id"], step["command"]) == ("stop", "grpoctl diagnose study-t0000-s0")
    # Gains of two seeds differ by sd 0.00707 (2 df), so a mean by 0.005. One of two candidates is told from nothing at
    # the one-sided t(2) of 0.95^(1/2) = 0.97468: 0.94936 / sqrt(2 x 0.97468 x 0.02532) = 4.273; 4 of 5 studies find
    # what lies t(2) of 0.8 = 0.6 / sqrt(0.32) = 1.061 further: 0.005 x 5.334
    over = study_conclusions(document)["gain_over_start"]
    assert over["detectable"] == pytest.approx(0.02667, abs=2e-5)
    assert (over["beaten"], over["supervised"], over["seeds"]) == (False, [], 2)
    assert "0.027" in line.text


def test_one_seed_per_candidate_claims_no_gain_and_no_lack_of_one() -> None:
    """How far seeds differ is not known, which is not to say that they do not differ.

    Over 65 prompts #0 gained 0.001 +- 0.01 and #1 0.3 +- 0.01, which is all that its one run says.
    """

    def single(number: int, end: float) -> Any:
        return trial(number, [end], starts=[0.5], gain_errors=[0.01])

    document = study([single(0, 0.501), single(1, 0.8)], eval_prompts=65)
    found = {one["id"]: one for one in of_study(document)}
    assert not {"nothing-learned", "no-better-than-start"} & set(found)
    assert found["gain-not-tested"]["numbers"] == {"start": 0.5, "alone": [1]}
    assert "1 of 2 runs gained: #1" in found["gain-not-tested"]["text"]
    assert "4 of 5" not in found["gain-not-tested"]["text"]
    conclusions = study_conclusions(document)
    over = conclusions["gain_over_start"]
    assert (over["beaten"], over["unproven"], over["detectable"], over["seeds"]) == (None, None, None, 1)
    assert conclusions["next"][0]["id"] == "seeds"

    none = study([single(0, 0.501), single(1, 0.502)], eval_prompts=65)
    assert "none of 2 runs gained" in texts(none)["gain-not-tested"]
    assert "stop" not in texts(none)["gain-not-tested"]
    one = study([single(0, 0.501)], eval_prompts=65)
    assert [step["id"] for step in study_conclusions(one)["next"]] == ["seeds"]  # not: stop
    old = study([trial(n, [0.501], starts=[0.5]) for n in range(2)])  # its error over prompts is not known
    assert (
        texts(old)["gain-not-tested"] == "one seed per candidate: no test of a gain over the start (eval/reward 0.500)"
    )


def test_candidates_that_a_guard_stopped_all_are_no_gain_without_any_noise_to_judge_by() -> None:
    stopped = [trial(n, [0.0, 0.1], "COLLAPSED", starts=[0.5, 0.5]) for n in range(2)]
    found = {one["id"]: one for one in of_study(study(stopped))}
    assert found["nothing-learned"]["numbers"] == {"start": 0.5, "trials": [0, 1], "detectable": None}


@pytest.mark.parametrize("status", ["STOPPED", "INTERRUPTED", "FAILED"])
def test_a_study_that_was_not_finished_is_no_reason_to_stop(status: str) -> None:
    """Two of seven trials ended, and neither gained: what the others would do nobody knows."""
    document = study([begun(0, 0.6, 0.601), begun(1, 0.6, 0.6)], status=status, total=7)
    found = {one["id"]: one for one in of_study(document)}
    assert "nothing-learned" not in found
    assert found["no-better-than-start"]["numbers"]["trials"] == [0, 1]
    text = found["no-better-than-start"]["text"]
    assert text.startswith(
        "so far (of the 2 of 7 trials that ended) none of 2 ranked candidates has a significant gain"
    )
    assert "stop" not in text
    steps = [(step["id"], step["command"]) for step in study_conclusions(document)["next"]]
    resumed = ("resume", f"grpoctl sweep {document['study']} --resume")
    assert steps == ([] if status == "INTERRUPTED" else [resumed])  # the report itself says how to go on with such
    some = texts(study([begun(0, 0.6, 0.6), begun(1, 0.3, 0.6)], status=status, total=7))["no-better-than-start"]
    assert some.startswith("so far (of the 2 of 7 trials that ended) 1 of 2 ranked candidates show no significant gain")


def test_of_an_adaptive_study_so_far_is_what_it_spent() -> None:
    search = {"believed": {"0": [0.601, 0.1, 0.9], "1": [0.6, 0.1, 0.1]}, "runs": 4.25, "of": 14.0}
    document = study([begun(0, 0.6, 0.601), begun(1, 0.6, 0.6)], status="STOPPED", allocation="adaptive", search=search)
    assert texts(document)["no-better-than-start"].startswith("so far (4.2 of 14 runs' budgets spent) none of 2")


def staged(number: int, grpo: tuple[float, float]) -> Any:
    """A candidate whose supervised stage goes from 0.1 to 0.5 and whose GRPO stage gains about 0.01."""
    ends = {"supervised": (0.1, 0.5, (0.35, 0.45)), "grpo": (0.5, 0.51, grpo)}
    stages = {
        name: {"start": start, "end": end, "gain": end - start, "interval": list(interval)}
        for name, (start, end, interval) in ends.items()
    }
    return trial(number, [0.505, 0.515], starts=[0.5, 0.5], stages=stages)


def test_a_score_is_put_down_to_the_stages_that_made_it() -> None:
    found = numbers(study([staged(0, (-0.01, 0.03))]))["stages"]
    assert found["gained"] == ["supervised"]
    assert numbers(study([staged(0, (0.005, 0.015))]))["stages"]["gained"] == ["supervised", "grpo"]
    lower = study([staged(0, (-0.015, -0.005))], direction="minimize")  # where less is better, a fall is what was won
    assert numbers(lower)["stages"]["gained"] == ["grpo"]


def test_a_supervised_start_that_grpo_does_not_beat_is_called_that() -> None:
    document = study([staged(0, (-0.01, 0.03)), staged(1, (-0.01, 0.03))])
    assert study_conclusions(document)["gain_over_start"]["supervised"] == ["supervised"]
    assert "supervised start (eval/reward 0.500)" in text_report(document)[0].lines[0].text


def test_the_head_of_a_report_is_short() -> None:
    """The importance, the noise, the cost and what pruning saved are in the whole report."""
    labels = [line.label for line in head(advantage_study())[0].lines]
    assert len(labels) <= 12
    assert {"Best", "Winner", "Axes", "Budget", "Next"} <= set(labels)
    everything = [line.label for one in text_report(advantage_study()) for line in one.lines]
    assert {"Noise", "PED-ANOVA", "Cost", "Pruned"} <= set(everything) - set(labels)


def test_what_pruning_saved() -> None:
    # two trials of 1 seed and 1,000 completions; the pruned one spent 250: 750 of 2,000 saved
    trials = [trial(0, [0.5], completions=1000), trial(1, [0.3], "PRUNED", completions=250)]
    document = study(trials, budget={"completions": 1000, "tokens": None})
    assert numbers(document)["pruned"] == {"trials": 1, "saved": 750, "share": pytest.approx(0.375)}


def test_a_ladder_says_which_rung_ended_it() -> None:
    assert numbers(ladder_study())["ladder"] == {"met": "C", "left": 1}
    document = ladder_study()
    document["trials"].pop()
    assert numbers(document)["ladder"] == {"met": None}
    assert "A, A+B" in texts(document)["ladder"]


def test_the_rules_that_spoke_are_counted_over_runs() -> None:
    """Two runs have dead groups, one of them no update either: the most frequent rule first, with a run to look at."""
    trials = [
        trial(0, [0.4, 0.5], findings=[[], ["no-updates", "dead-groups"]]),
        trial(1, [0.4, 0.5], findings=[["dead-groups"], []]),
    ]
    found = next(one for one in of_study(study(trials)) if one["id"] == "runs")
    assert "dead-groups in 2, no-updates in 1" in found["text"]
    assert found["text"].endswith("grpoctl diagnose advantage-study-tiny-1a2b3c4d-1-t0000-s1")
    assert found["numbers"] == {"runs": 4, "rules": {"dead-groups": 2, "no-updates": 1}}
    assert "runs" not in texts(study([trial(0, [0.4, 0.5])]))
