"""What a report says of runs: the numbers of `compare`, the curves, the problems side by side, where it comes from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from grpoctl.analysis.collect import load_run
from grpoctl.analysis.compare import compare
from grpoctl.cli.report import named, report_of
from grpoctl.files import read_json, read_rows, replace_json, replace_rows
from grpoctl.report.document import Answers, Chart, Problem
from grpoctl.report.series import ENDED
from grpoctl.runs.run_dir import Home, RunDir
from tests import reported
from tests.conftest import Recorded


def rows(part: dict[str, Any], name: str) -> list[dict[str, Any]]:
    table = part["tables"][name]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def documents(home: Home, runs: list[RunDir]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = report_of(home, [run.id for run in runs]).document()["parts"]
    return parts


@pytest.fixture
def compared(home: Home, recorded: Recorded) -> dict[str, Any]:
    (part,) = documents(home, reported.two_sides(recorded))
    return part


def test_single_runs_of_one_spec_are_one_side(home: Home, recorded: Recorded) -> None:
    runs = reported.two_sides(recorded, seeds=(0, 1))
    again = reported.run(recorded, 1)  # the same seed of the same spec once more
    sides, studies = named(home, [*(run.id for run in runs), again.id, runs[0].id], None)
    assert [[run.seed for run in side] for side in sides] == [[0, 1], [0, 1], [1]]
    assert studies == []


def test_an_experiment_stands_for_its_finished_runs(home: Home, recorded: Recorded) -> None:
    for seed in (0, 1):
        reported.run(recorded, seed)
    reported.run(recorded, 0, k=2)  # an override: not what p31 says
    sides, _ = named(home, ["p31"], None)
    assert [[run.run_id.rsplit("-", 2)[0] for run in side] for side in sides] == [["p31-tiny-s0", "p31-tiny-s1"]]


def test_the_numbers_are_those_of_compare(home: Home, recorded: Recorded) -> None:
    runs = reported.two_sides(recorded)
    (part,) = documents(home, runs)
    records = [load_run(run.path) for run in runs]
    comparison = compare(records[:3], records[3:])
    assert part["kind"] == "comparison"
    assert part["comparison"] == json.loads(json.dumps(comparison.document()))
    assert part["verdict"] == [comparison.verdict, *comparison.would_change]
    gap = comparison.places[-1].contrasts[0, 1]
    last = rows(part, "p0-differences")[-1]
    assert gap.family is not None
    assert (last["mean"], last["low"], last["high"]) == (gap.mean, *gap.family)
    assert last["mean"] == pytest.approx(0.475 - 0.5)  # B less A


def test_curves_over_what_was_drawn_updated_and_spent(compared: dict[str, Any]) -> None:
    # B's seed 0: evaluations after steps 0 and 4; 8 completions a step, no update in step 2, half a second a step.
    points = [row for row in rows(compared, "p0-curves-seeds") if row["side"].startswith("B") and row["seed"] == 0]
    drawn = {
        axis: [row["x"] for row in points if row["axis"] == axis] for axis in ("completions", "updates", "seconds")
    }
    assert drawn == {"completions": [0, 32], "updates": [0, 3], "seconds": [0.5, 2.5]}
    assert [row["value"] for row in points] == pytest.approx([0.5, 0.475] * 3)
    means = [row["value"] for row in rows(compared, "p0-curves-means") if row["axis"] == "updates"]
    assert means == pytest.approx([0.5, 0.51, 0.5, 0.485])  # A's, then B's: seeds add 0, 1 and 2 hundredths at the end


def test_evaluations_that_curves_leave_out_are_counted(home: Home, recorded: Recorded) -> None:
    """Four evaluations, in one of which no completion was valid: it has no reward. Of whole curves nothing is said."""
    run = reported.run(recorded)

    def said() -> list[str]:
        (part,) = report_of(home, [run.id]).parts
        lines = [line.text for block in part.blocks for line in getattr(block, "lines", ())]
        return [text for text in lines if "left out: no completion" in text]

    assert said() == []
    first, *steps = read_rows(run.metrics)
    steps[0] |= {"eval/valid": 0.0}
    steps[1] |= {"eval/reward": 0.5, "eval/valid": 1.0}
    replace_rows(run.metrics, [first, *steps])
    (text,) = said()
    assert text.endswith(" 1 of 4 evaluations left out: no completion could be scored, so no eval/reward.")


def test_dead_groups_over_time(compared: dict[str, Any]) -> None:
    means = [(row["x"], row["value"]) for row in rows(compared, "p0-dead-means") if row["side"].startswith("B")]
    assert means == [(8, 0.25), (16, 0.5), (24, 0.75), (32, 1.0)]


def test_a_run_that_ended_early_goes_on_in_the_mean_and_the_page_says_so(home: Home, recorded: Recorded) -> None:
    whole, short = reported.run(recorded, 0), reported.run(recorded, 1)
    replace_rows(short.metrics, read_rows(short.metrics)[:3])  # before any step, and two of four steps
    made = report_of(home, [whole.id, short.id])
    means = [(row["x"], row["value"]) for row in rows(made.document()["parts"][0], "p0-dead-means")]
    assert means == [(8, 0.25), (16, 0.5), (24, (0.75 + 0.5) / 2), (32, (1.0 + 0.5) / 2)]
    (part,) = made.parts
    said = [line.text for block in part.blocks for line in getattr(block, "lines", ())]
    (dead,) = (block.reads for block in part.blocks if isinstance(block, Chart) and block.name == "p0-dead")
    assert ENDED in dead
    assert [text for text in said if ENDED in text and text.startswith("Thin: ")]


def test_regressions_come_first_and_the_worst_of_them_first(compared: dict[str, Any]) -> None:
    (answers,) = compared["answers"]
    changes = [(one["id"], round(one["change"], 3)) for one in answers["problems"]]
    assert changes == [("e3", -0.4), ("e0", -0.1), ("e1", 0.4), ("e2", 0.0)]
    worst = answers["problems"][0]
    assert worst["reward"] == pytest.approx([0.51, 0.11])  # means over the three seeds
    assert [answer["who"] for answer in worst["answers"][0]] == ["seed 0", "seed 1", "seed 2"]
    assert worst["answers"][1][2]["reward"] == pytest.approx(0.12)
    assert [side[0]["text"][:1] for side in worst["answers"]] == ["A", "B"]
    became = {row["problem"]: row["became"] for row in rows(compared, "p0-problems")}
    assert became == {"e0": "worse", "e1": "better", "e2": "equal", "e3": "worse"}


def test_one_side_is_set_against_its_own_start(home: Home, recorded: Recorded) -> None:
    (part,) = documents(home, [reported.run(recorded, seed) for seed in (0, 1)])
    assert part["kind"] == "runs"
    assert "0.500 -> 0.480" in part["verdict"][0]  # 0.475 and 0.485
    (answers,) = part["answers"]
    assert answers["sides"] == ["before training", "at the end"]
    assert answers["problems"][0]["reward"] == pytest.approx([0.5, 0.105])
    assert [run["run_id"][:11] for run in part["runs"]] == ["p31-tiny-s0", "p31-tiny-s1"]


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ((2, 2), ("the mean over 2 runs a side, 1 draw each;", "first draw of each run, ")),
        ((5, 5), ("the mean over 5 runs a side, 1 draw each;", "first draw of 3 of 5 runs a side, ")),
        ((5, 2), ("the mean over 5 and 2 runs a side, ", "first draw of 3 of 5 runs and 2 of 2 runs a side, ")),
    ],
)
def test_what_a_reward_is_the_mean_over_and_how_many_answers_are_shown(
    home: Home, recorded: Recorded, seeds: tuple[int, int], words: tuple[str, ...]
) -> None:
    runs = [reported.run(recorded, seed) for seed in range(seeds[0])]
    runs += [reported.run(recorded, seed, k=2) for seed in range(seeds[1])]
    (part,) = report_of(home, [run.id for run in runs]).parts
    (answers,) = (block for block in part.blocks if isinstance(block, Answers))
    assert all(text in answers.reads for text in words)
    shown = sorted(len(side) for side in answers.problems[0].answers)
    assert shown == sorted(min(number, 3) for number in seeds)


def test_runs_without_recorded_answers_say_so(home: Home, recorded: Recorded) -> None:
    run = reported.run(recorded)
    run.problems.unlink()
    made = report_of(home, [run.id])
    assert made.document()["parts"][0]["answers"] == []
    texts = [line.text for block in made.parts[0].blocks for line in getattr(block, "lines", ())]
    assert any("not recorded" in text.lower() for text in texts)


def test_an_unsound_run_has_no_verdict(home: Home, recorded: Recorded) -> None:
    run = reported.run(recorded)
    replace_json(run.result, {**(read_json(run.result) or {}), "status": "INVALID_ROLLOUT"})
    (part,) = documents(home, [run])
    assert part["verdict"][0].startswith("no verdict")


def test_evaluations_that_are_next_to_equal_draw_no_curve(home: Home, recorded: Recorded) -> None:
    run = reported.run(recorded, ends=(0.5000001, 0.5, 0.5, 0.5))
    (part,) = report_of(home, [run.id]).parts
    (curve,) = (block for block in part.blocks if isinstance(block, Chart) and block.name == "p0-curves-updates")
    low, high = curve.spec["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert (low, high) == pytest.approx((0.45, 0.55), abs=1e-3)


def test_the_commands_make_the_runs_again(compared: dict[str, Any]) -> None:
    assert compared["commands"][:2] == [
        "grpoctl run p31 -p tiny --seeds 0,1,2 num_generations=2",
        "grpoctl run p31 -p tiny --seeds 0,1,2",
    ]


def test_nothing_tells_of_the_machine(home: Home, recorded: Recorded, tmp_path: Path) -> None:
    run = reported.run(recorded)
    secret = {"started": 1.0, "argv": [], "hostname": "adas-laptop", "executable": "/home/ada/python",
              "git": {"commit": "0123456789abcdef", "dirty": True, "remote": "git@example.org:ada/secret.git"},
              "versions": {"torch": "2.13.0"}, "model": {"source": "/home/ada/models/mine"}}  # fmt: skip
    replace_json(run.provenance, {**(read_json(run.provenance) or {}), "attempts": [secret]})
    text = json.dumps(report_of(home, [run.id]).document())
    assert not [word for word in (str(tmp_path), "adas-laptop", "/home/ada", "secret.git") if word in text]
    assert '"commit": "0123456789abcdef", "dirty": true' in text
    assert '"model": "mine"' in text


def test_runs_of_two_tasks_are_two_parts(home: Home, recorded: Recorded) -> None:
    first = reported.run(recorded)
    other = reported.run(recorded, 1)
    spec = other.spec.read_text(encoding="utf-8")
    other.spec.write_text(re.sub(r"(?ms)^(task:.*?^  name:) \S+", r"\1 arithmetic", spec), encoding="utf-8")
    result = {**(read_json(other.result) or {}), "spec_sha": "another"}
    replace_json(other.result, result)
    assert [part["kind"] for part in documents(home, [first, other])] == ["runs", "runs"]


def test_a_run_that_drew_nothing_is_drawn_over_steps(home: Home, recorded: Recorded) -> None:
    run = reported.run(recorded)
    replace_rows(
        run.metrics,
        [{"step": step, "stage": 0, "update": 1, "completions": 0, "eval/reward": step / 10} for step in range(3)],
    )
    (part,) = documents(home, [run])
    assert {row["axis"] for row in rows(part, "p0-curves-seeds")} == {"step", "updates", "seconds"}


@pytest.mark.parametrize(("after", "text"), [(0.5, "0.000"), (0.4999, "0.000"), (0.499, "-0.001"), (0.9, "+0.400")])
def test_a_change_that_is_none_has_no_sign(after: float, text: str) -> None:
    assert Problem(id="e", prompt="", before=0.5, after=after, became="equal", answers=((), ())).change_text == text
