"""The tables of a report: what stands in which row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grpoctl.analysis.sweeps.document import CONCLUSIONS
from grpoctl.analysis.sweeps.findings import study_conclusions
from grpoctl.analysis.sweeps.report import head, progress_text, setup_text, text_report
from grpoctl.sections import Section
from tests.studies import advantage_study, collapse_study, ladder_study, study, trial


def section(document: dict[str, Any], title: str) -> Section:
    return next(one for one in text_report(document) if one.title.startswith(title))


def test_the_report_of_a_sweep() -> None:
    titles = [one.title.split(" (")[0] for one in text_report(advantage_study(), ["a.png"]) if one.title]
    assert titles == [
        "Ranking", "Not ranked", "Importances", "Main effects", "By value", "num_generations", "Health by region",
        "Findings by region",
        "num_generations",
    ]  # fmt: skip
    assert text_report(advantage_study(), ["a.png"])[-1].lines[0].text == "a.png"


def test_candidates_stand_beside_the_baselines_of_their_task() -> None:
    def reached(final: float) -> dict[str, dict[str, float]]:
        of_run = {"start": 0.1, "supervised": 0.3, "final": final}
        return {name: {"eval/reward": value} for name, value in {**of_run, "random": 0.2, "nearest": 0.4}.items()}

    trials = [trial(n, [n / 10], params={"a.lr": n}, baselines=reached(n / 10)) for n in (5, 6)]
    rows = section(study(trials), "Evaluation").rows
    assert rows == (
        ("#6 supervised", "0.300"), ("#6 final", "0.600"), ("#5 supervised", "0.300"), ("#5 final", "0.500"),
        ("random", "0.200"), ("nearest", "0.400"),
    )  # fmt: skip


def test_a_sweep_that_never_learned_says_that_it_was_random_search() -> None:
    trials = [trial(n, [n / 10], params={"a.lr": n}) for n in range(6)]

    def notes(**more: Any) -> list[str]:
        return [line.text for line in head(study(trials, **more))[0].lines if line.label == "Note"]

    (note,) = notes(startup=11)
    assert "first 11 trials" in note
    assert "has 6" in note
    assert notes(startup=5) == notes(startup=None) == notes() == []  # a study of an earlier version says nothing of it
    assert "first 11 trials" in setup_text(study(trials, startup=11))
    assert notes(startup=11, points=6) == []  # all are tried: nothing is left to choose
    assert notes(startup=11, allocation="adaptive", jobs=[]) == []  # the sampler has no say
    (note,) = notes(startup=11, points=8)
    assert note.endswith("there are 8 points: give it as many trials, or set sampler: random")  # 12 cannot be tried
    (note,) = notes(startup=11, points=12)
    assert "give it more than 11 trials" in note


def test_a_ranking_has_one_row_per_candidate_best_first() -> None:
    table = section(advantage_study(), "Ranking")
    assert table.columns[:3] == ("", "#", "num_generations")
    assert table.rows[0][:3] == ("=", "1", "8")
    assert len({len(row) for row in table.rows} | {len(table.columns)}) == 1
    assert "! a guard stopped some of its runs" in table.note
    short, crossing = head(advantage_study())[-2:]
    assert len(short.rows) == 10
    assert crossing.title.endswith("runs that collapsed, of all")  # where runs collapse belongs to the verdict
    assert "8 further candidates not shown" in short.note


def test_where_more_seeds_come_first_the_ranking_says_so() -> None:
    trials = [trial(0, [0.7]), trial(1, [0.6, 0.6]), trial(2, [0.5, 0.5])]  # #0 has the highest mean, of one seed
    table = section(study(trials, search={"believed": {"1": [0.6, 0.1, 0.9], "2": [0.5, 0.1, 0.1]}}), "Ranking")
    assert [row[1] for row in table.rows] == ["1", "2", "0"]
    assert table.note.startswith("those with all seeds of the last full round first, by their mean over these; ")
    assert "first" not in section(study(trials), "Ranking").note
    alike = study(trials[1:], search={"believed": {"1": [0.6, 0.1, 0.9], "2": [0.5, 0.1, 0.1]}})
    assert "first" not in section(alike, "Ranking").note  # all have as many: the best is first


def test_where_the_budget_ended_inside_a_round_the_order_is_that_of_the_round_before() -> None:
    """#0 is ahead over seeds 0 and 1, 0.60 to 0.59. Only #1 got a seed more, and is at 0.62 over its three."""
    trials = [trial(0, [0.59, 0.61]), trial(1, [0.58, 0.60, 0.68])]
    document = study(trials, search={"believed": {"0": [0.6, 0.1, 0.6], "1": [0.59, 0.1, 0.4]}})
    table = section(document, "Ranking")
    assert [row[1] for row in table.rows] == ["0", "1"]
    assert table.note.startswith("those with all seeds of the last full round first")
    lines = [(line.label, line.text) for line in head(document)[0].lines]
    (best,) = (text for label, text in lines if label == "Best")
    assert best.endswith(
        "; not significantly different: #1; a better mean, but over other seeds than those in common: #1"
    )
    (tie,) = (text for label, text in lines if label == "Next")
    assert "#0 and #1 differ by 0.020 (#1 is ahead over all its seeds)" in tie
    assert "ahead" not in str(head(study(trials))[0].lines)  # by the mean over all seeds #1 is first


def test_without_a_test_no_candidate_is_marked_as_alike() -> None:
    table = section(study([trial(0, [0.7]), trial(1, [0.6])]), "Ranking")
    assert [row[0] for row in table.rows] == ["", ""]
    assert table.note == "one seed per candidate: not tested"
    tested = section(study([trial(0, [0.7, 0.8]), trial(1, [0.7, 0.8])]), "Ranking")
    assert [row[0] for row in tested.rows] == ["=", "="]
    assert tested.note.startswith("= not significantly different from the best")


def test_parameters_that_never_vary_are_left_out() -> None:
    trials = [trial(n, [n / 10], params={"a.same": 1, "a.other": n}) for n in range(2)]
    assert section(study(trials), "Ranking").columns == ("", "#", "other", "eval/reward", "seeds", "status")


def test_pruned_and_failed_trials_say_why() -> None:
    table = section(advantage_study(), "Not ranked")
    rows = {row[0]: row for row in table.rows}
    assert table.columns == ("#", "candidate", "status", "spent of 3 runs", "last", "why")
    assert rows["5"][2:] == ("FAILED", "0%", "-", "MemoryError: 12 GB asked for")
    assert rows["9"][2:4] == ("PRUNED", "12%")  # 384 of 3 x 1,024 completions


def test_a_trial_that_was_set_aside_shows_the_last_score_that_it_had() -> None:
    curve = [[0, 0.25, 0.3], [0, 0.5, 0.4], [1, 0.25, 0.9]]  # seed 0 went on to half of its run, seed 1 did not
    aside = trial(0, [None, None], "PRUNED", curve=curve, completions=768)
    (row,) = section(study([aside, trial(1, [None], "FAILED"), trial(2, [0.5])]), "Not ranked").rows[:1]
    assert row[3:5] == ("38%", "0.400")  # 768 of 2 x 1,024
    scored = trial(0, [0.2], "PRUNED", curve=[[0, 0.5, 0.4]])  # its score is what it is worth, whatever it had shown
    assert section(study([scored, trial(1, [0.5])]), "Not ranked").rows[0][4] == "0.200"
    assert section(study([aside], budget={}), "Not ranked").columns[3] == "spent"  # counted in trials


def test_the_two_by_two_table_of_the_collapse_study() -> None:
    table = next(one for one in text_report(collapse_study()) if one.title.endswith("runs that collapsed, of all"))
    assert table.columns == ("", "[]", "[rollout-in-train-mode]")
    assert table.rows == (("2", "0/6", "6/6"), ("8", "0/6", "6/6"))


def test_a_ladder_rung_by_rung() -> None:
    table = section(ladder_study(), "Rungs")
    assert [(row[0], row[2], row[3]) for row in table.rows] == [
        ("A", "0.410", "not met"), ("A+B", "0.470", "not met"), ("C", "0.580", "met"),
    ]  # fmt: skip


def test_an_interrupted_study_says_how_to_go_on() -> None:
    document = {**advantage_study(), "status": "INTERRUPTED", "message": "its process died"}
    lines = {line.label: line for line in head(document)[0].lines}
    assert lines["Study"].mark == "INTERRUPTED"
    assert lines["Next"].text.endswith(f"grpoctl sweep {document['study']} --resume")


def test_what_was_asked_and_done() -> None:
    document = advantage_study()
    assert "24 trials x 3 seeds, 1,024 completions per run; sampler tpe" in setup_text(document)
    assert progress_text(document).startswith(
        "24 of 24 trials (15 COMPLETED, 1 FAILED, 5 PRUNED, 3 COLLAPSED); 57,216 compl"
    )


@pytest.mark.parametrize(
    ("shared", "facts"),
    [
        ({"runs": 6, "seconds": 41.23, "completions": 960}, ("6 runs", "41.2 s", "960 completions")),
        ({"runs": 1, "seconds": 2.0, "completions": 0}, ("1 run ", "2.0 s")),  # supervised steps sample none
    ],
)
def test_what_shared_stages_saved(shared: dict[str, float], facts: tuple[str, ...]) -> None:
    lines = {line.label: line.text for line in head({**advantage_study(), "shared": shared})[0].lines}
    assert all(fact in lines["Shared"] for fact in facts)
    assert ("completion" in lines["Shared"]) == bool(shared["completions"])
    assert "Shared" not in {line.label for line in head(advantage_study())[0].lines}


@pytest.mark.parametrize(
    "document",
    [
        study([]),
        study([trial(0, [0.5])]),
        study([trial(0, [None, None], "FAILED"), trial(1, [], "RUNNING")]),
        study([trial(0, [0.5], "INVALID_ROLLOUT", findings=[["rollout-integrity"]])], budget={}),
        {"schema": 1, "study": "x", "sweep": "x", "status": "RUNNING", "trials": []},
    ],
    ids=["empty", "one", "failed", "invalid", "bare"],
)
def test_odd_studies_have_a_report(document: dict[str, Any]) -> None:
    assert text_report(document)
    assert head(document)
    concluded = study_conclusions(document)
    assert set(concluded) == {"findings", *CONCLUSIONS}
    json.dumps(concluded, allow_nan=False)
