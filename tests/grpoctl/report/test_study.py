"""What a report says of a study: the numbers of its own report, the map of collapse, what is not there."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import NotFoundError
from grpoctl.analysis.sweeps.document import digest
from grpoctl.analysis.sweeps.findings import study_conclusions
from grpoctl.cli.report import report_of
from grpoctl.report.charts import BEST, STOPPED, UNTESTED
from grpoctl.report.document import Chart, Part, Report
from grpoctl.report.provenance import study_command
from grpoctl.report.study import part_of
from grpoctl.runs.run_dir import Home
from grpoctl.sections import Section
from tests import studies
from tests.grpoctl.report.test_sides import rows


def reported(home: Home, document: studies.Document) -> tuple[Part, dict[str, Any]]:
    part = part_of(studies.write(home, document), "p0")
    (numbers,) = Report(title="", made="", parts=(part,)).document()["parts"]
    return part, numbers


def test_candidates_axes_and_conclusions_are_those_of_the_study(home: Home) -> None:
    document = studies.advantage_study()
    part, numbers = reported(home, document)
    of = digest(document)
    drawn = rows(numbers, "p0-candidates")
    assert [row["number"] for row in drawn] == list(of.ranking.order)
    assert [(row["mean"], row["low"], row["high"]) for row in drawn[:3]] == [
        (of.ranking.scores[index], *(of.ranking.intervals[index] or ())) for index in of.ranking.order[:3]
    ]
    assert [row["number"] for row in drawn if row["state"] == STOPPED] == list(of.ranking.flagged)
    best = sum(row["state"] == BEST for row in drawn)
    assert best == len(set(of.ranking.indistinguishable) - set(of.ranking.flagged))
    assert sum(len(effect.values) for effect in of.effects) == len(rows(numbers, "p0-effects"))
    assert numbers["findings"] == study_conclusions(document)["findings"]
    (axes,) = (block for block in part.blocks if getattr(block, "title", "") == "Settings that differ")
    assert (studies.LR, "0.0001 to 0.002, log scale", "") in axes.rows
    assert (studies.K, "2, 4, 8, 16", "") in axes.rows
    assert part.verdict[0].label == "Best"  # what came out is said before what was asked
    assert "runs" not in numbers["trials"][0]  # paths


def test_a_map_of_where_runs_collapse(home: Home) -> None:
    _, numbers = reported(home, studies.collapse_study())
    cells = {(row["row"], row["column"]): (row["value"], row["text"]) for row in rows(numbers, "p0-collapse")}
    # Every one of the six seeds collapses with the fault and none without it, at K=2 as at K=8.
    assert sorted(cells.values()) == [(0.0, "0 of 6")] * 2 + [(1.0, "6 of 6")] * 2
    assert all(
        (value == 1.0) == (studies.FAULT[:10] in f"{row} {column}") for (row, column), (value, _) in cells.items()
    )


def test_what_is_not_there_is_said_or_left_out(home: Home) -> None:
    made, numbers = reported(home, studies.ladder_study())
    said = [line.text for block in made.blocks for line in getattr(block, "lines", ())]
    assert [text for text in said if "none collapsed" in text]
    assert [text for text in said if "directories of its runs are not there" in text]
    assert [text for text in said if "No axis varies" in text]
    assert [block.name for block in made.blocks if isinstance(block, Chart)] == ["p0-candidates"]
    assert numbers["answers"] == []


def test_the_chart_of_candidates_says_what_they_are_ordered_by(home: Home) -> None:
    trials = [studies.trial(0, [0.7]), studies.trial(1, [0.6, 0.6])]
    believed = {"search": {"believed": {"1": [0.6, 0.1, 0.9]}}}
    for number, (more, title) in enumerate([
        ({}, "Candidates, best first"),
        (believed, "Candidates, those with all seeds of the last full round first, by their mean over these"),
    ]):  # fmt: skip
        made, _ = reported(home, studies.study(trials, study=f"mine-tiny-1a2b3c4d-{number}", **more))
        assert [block.title for block in made.blocks if isinstance(block, Chart)] == [title]


def test_too_few_candidates_for_a_model_of_axes_are_counted(home: Home) -> None:
    few = [studies.trial(n, [n / 10], params={studies.K: 2 + 6 * (n % 2)}) for n in range(7)]
    made, _ = reported(home, studies.study(few, axes={studies.K: studies.axis([2, 8])}, total=24))
    (axes,) = (block for block in made.blocks if getattr(block, "title", "") == "What each axis does")
    assert isinstance(axes, Section)
    assert axes.lines[0].text.startswith("Not enough to judge: 7 of 24 candidates ranked, 10 are the least")


def test_a_study_without_a_trial_that_ended_has_nothing_to_report(home: Home) -> None:
    study = studies.write(home, studies.study([studies.trial(0, (None,), "RUNNING")], status="RUNNING"))
    with pytest.raises(NotFoundError, match=study.id):
        part_of(study, "p0")


def test_a_study_whose_trials_failed_says_so(home: Home) -> None:
    made, _ = reported(home, studies.study([studies.trial(0, (None,), "FAILED", message="MemoryError: 12 GB")]))
    assert [block for block in made.blocks if isinstance(block, Chart)] == []
    assert any("MemoryError" in line.text for line in made.verdict)


def test_one_seed_tells_nothing_apart(home: Home) -> None:
    made, numbers = reported(home, studies.advantage_study(seeds=1))
    (chart,) = (block for block in made.blocks if isinstance(block, Chart) and block.name == "p0-candidates")
    assert "nothing can be told apart" in chart.reads
    assert {row["low"] for row in rows(numbers, "p0-candidates")} == {None}
    assert {row["state"] for row in rows(numbers, "p0-candidates")} <= {UNTESTED, STOPPED}


def test_a_name_may_be_the_study_s_or_the_sweep_s(home: Home) -> None:
    study = studies.write(home, studies.advantage_study())
    made = report_of(home, ["advantage-study", study.id])  # the same once more
    assert [part.kind for part in made.parts] == ["study"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "grpoctl sweep lr-study -p tiny budget.completions=512 --seeds 0,1"),
        (
            {"budget": {"completions": None, "tokens": 900}},
            "grpoctl sweep lr-study -p tiny budget.tokens=900 --seeds 0,1",
        ),
        ({"sweep": "a b", "budget": None}, "grpoctl sweep 'a b' -p tiny --seeds 0,1"),
        (
            {"asked": {"name": "other/lr.yaml", "overrides": ["beta=0.02"], "seeds": None, "trials": 3}},
            "grpoctl sweep other/lr.yaml -p tiny beta=0.02 budget.completions=512 --trials 3 --seeds 0,1",
        ),
        (  # a path of the machine is none of the reader's
            {"asked": {"name": "/somewhere/else/lr.yaml"}},
            "grpoctl sweep lr.yaml -p tiny budget.completions=512 --seeds 0,1",
        ),
    ],
)
def test_the_command_that_runs_a_study_again(changes: dict[str, Any], line: str) -> None:
    document = {"sweep": "lr-study", "profile": "tiny", "seeds": [0, 1], "budget": {"completions": 512}}
    assert study_command({**document, **changes}) == line
