"""Where runs collapse, and which setting decides it: counted on paper."""

from __future__ import annotations

import math
from typing import Any

import pytest

from grpoctl.analysis.sweeps.axes import axes_of, varied
from grpoctl.analysis.sweeps.document import digest
from grpoctl.analysis.sweeps.findings import study_conclusions
from grpoctl.analysis.sweeps.regions import crossed, regions, run_facts, separations
from tests.studies import FAULT, K, axis, collapse_study, study, trial

AXES: dict[str, Any] = {K: axis([2, 8]), "faults": axis([[], [FAULT]])}


def of_study(document: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = study_conclusions(document)["findings"]
    return found


def four(ends: dict[tuple[int, bool], list[str]]) -> dict[str, Any]:
    """A study of K x fault; `ends` has the statuses of each cell's runs."""
    trials = [
        trial(
            number,
            [0.0 if end == "COLLAPSED" else 0.5 for end in statuses],
            "COLLAPSED" if "COLLAPSED" in statuses else "COMPLETED",
            {K: k, "faults": [FAULT] if fault else []},
            statuses=statuses,
        )
        for number, ((k, fault), statuses) in enumerate(ends.items())
    ]
    return study(trials, axes=AXES)


def numbers(document: dict[str, Any], id_: str = "collapse") -> dict[str, Any]:
    """The numbers of the finding of this id; {} where there is none."""
    return next((found["numbers"] for found in of_study(document) if found["id"] == id_), {})


GOOD, BAD = ["COMPLETED"] * 3, ["COLLAPSED"] * 3


def test_the_setting_that_decides_is_named_and_the_one_that_does_not() -> None:
    document = four({(2, False): GOOD, (2, True): BAD, (8, False): GOOD, (8, True): BAD})
    assert numbers(document) == {
        "runs": 12,
        "hits": 6,
        "counts": {"faults": {"[]": [0, 6], f"[{FAULT}]": [6, 6]}, K: {"2": [3, 6], "8": [3, 6]}},
        "decides": ["faults"],
    }
    (text,) = [found["text"] for found in of_study(document) if found["id"] == "collapse"]
    assert all(fact in text for fact in ("6/6", FAULT, "0/6", "num_generations", "2: 3/6, 8: 3/6"))


@pytest.mark.parametrize(
    ("runs", "said"),
    [(1, "`faults` goes with collapse: 2/2"), (2, "`faults` determines collapse: 4/4")],
)
def test_a_split_that_few_runs_have_by_chance_determines_nothing(runs: int, said: str) -> None:
    # One of two axes splits 2 of 4 runs so in 2 of 6 cases, 4 of 8 in 2 of 70.
    good, bad = ["COMPLETED"] * runs, ["COLLAPSED"] * runs
    document = four({(2, False): good, (2, True): bad, (8, False): good, (8, True): bad})
    (text,) = [found["text"] for found in of_study(document) if found["id"] == "collapse"]
    assert text.startswith(said)
    assert ("probability 0.33" in text) == (runs == 1)


def test_the_other_way_round_it_is_the_other_setting() -> None:
    document = four({(2, False): BAD, (2, True): BAD, (8, False): GOOD, (8, True): GOOD})
    assert numbers(document)["decides"] == [K]
    assert numbers(document)["counts"]["faults"] == {"[]": [3, 6], f"[{FAULT}]": [3, 6]}


def test_where_both_are_needed_none_decides_alone() -> None:
    document = four({(2, False): GOOD, (2, True): BAD, (8, False): GOOD, (8, True): ["COMPLETED", *BAD[:2]]})
    # 5 of 12; fault: 0 of 6 and 5 of 6, K: 3 of 6 and 2 of 6
    found = numbers(document)
    assert (found["hits"], found["runs"], found["decides"]) == (5, 12, [])
    assert next(iter(found["counts"].items())) == ("faults", {"[]": [0, 6], f"[{FAULT}]": [5, 6]})  # it tells more


def test_all_or_none_leave_nothing_to_decide() -> None:
    cells = [(2, False), (2, True), (8, False), (8, True)]
    assert numbers(four(dict.fromkeys(cells, BAD))) == {"runs": 12, "hits": 12}
    assert numbers(four(dict.fromkeys(cells, GOOD))) == {}


def test_a_collapse_rate_counts_where_no_guard_stops_a_run() -> None:
    document = collapse_study(seeds=3)
    for one in document["trials"]:
        one["findings"] = [[] for _ in one["findings"]]
    assert (numbers(document)["decides"], numbers(document)["hits"]) == (["faults"], 6)
    assert numbers(collapse_study(), "invalid-rollout")["decides"] == ["faults"]


def test_a_table_of_two_axes_counts_runs() -> None:
    document = four({(2, False): GOOD, (2, True): BAD, (8, False): GOOD, (8, True): ["COMPLETED", *BAD[:2]]})
    of = digest(document)
    k, faults = of.axes
    assert crossed("collapsed", (k, faults), of.facts) == [[(0, 3), (3, 3)], [(0, 3), (2, 3)]]


def test_shares_and_rules_by_level() -> None:
    trials = [
        trial(0, [0.4, 0.5], params={K: 2}, findings=[["no-updates"], ["dead-groups"]]),
        trial(1, [0.4, 0.5], params={K: 8}, findings=[["dead-groups"], []]),
    ]
    document = study(trials, axes={K: AXES[K]})
    (axis,) = axes_of(document)
    few, many = regions(axis, run_facts(document))
    assert (few.label, few.runs, few.events["learned nothing"]) == ("2", 2, 1)
    assert few.rules == {"no-updates": 1, "dead-groups": 1}
    assert (many.events["learned nothing"], many.rules) == (0, {"dead-groups": 1})


def test_runs_without_an_end_of_their_own_do_not_count() -> None:
    one = trial(0, [0.5, None, None], "FAILED", statuses=["COMPLETED", "FAILED", "RUNNING"], params={K: 2})
    assert [fact.seed for fact in run_facts(study([one]))] == [0]


def test_a_runs_seed_is_its_directorys() -> None:
    one = trial(0, [None, 0.9], "COLLAPSED", runs=["x-t0000-s1"], statuses=["COMPLETED"], findings=[["numerical"]])
    (fact,) = run_facts({**study([one]), "metric": "collapse_rate"})
    assert (fact.seed, fact.events) == (1, frozenset({"collapsed"}))


def test_what_tells_more_comes_first() -> None:
    document = four({(2, False): GOOD, (2, True): BAD, (8, False): GOOD, (8, True): ["COMPLETED", *BAD[:2]]})
    found = separations("collapsed", varied(axes_of(document)), run_facts(document))
    assert [one.axis.name for one in found] == ["faults", "num_generations"]
    # entropy of 5 in 12 less the half of entropy of 5 in 6 (the other half has none)
    h = lambda p: -p * math.log(p) - (1 - p) * math.log(1 - p)  # noqa: E731
    assert found[0].information == pytest.approx(h(5 / 12) - h(5 / 6) / 2)
