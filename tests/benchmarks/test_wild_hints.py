"""The counts of hints that were right, and of a blind reader's bets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.wild import WildCase, cases_of
from benchmarks.wild_hints import BETS, FOLDER, Bet, bet_table, bets_of, chance_table, earlier_table, hint_table
from core.health.case import Case
from core.health.likeness import PublicRun, signs


def case(file: str, *causes: str) -> WildCase:
    return WildCase(files=(file,), causes=causes, healthy=not causes, settings=(), trainer="", tables=((1, True),))


def test_bets_are_counted_by_what_was_read() -> None:
    cases = [case("a.csv", "no-gain", "noise"), case("b.csv", "kl-runaway"), case("c.csv")]
    bets = [
        Bet(file="a.csv", text=False, failed=True, causes=("dead-groups", "noise")),
        Bet(file="b.csv", text=False, failed=False, causes=("converged",)),
        Bet(file="c.csv", text=False, failed=True, causes=("no-gain",)),
        Bet(file="c.csv", text=True, failed=False, causes=()),
        Bet(file="elsewhere.csv", text=True, failed=True, causes=("noise",)),
    ]
    numbers, raw = list(bet_table(cases, bets))[2:]
    assert numbers.startswith("| numbers and settings | 2 | 1 (50%")
    assert numbers.endswith("| 1 | 1 |")
    assert raw == "| the raw log | 0 | 0 | 1 | 0 |"


def test_a_hint_is_counted_by_whether_it_was_told(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        (tmp_path / name).write_text("step,kl,grad_norm\n1,0.1,0\n")
    cases = [case("a.csv", "no-gradient"), case("b.csv", "noise"), case("c.csv")]
    assert list(hint_table(cases, tmp_path))[2:] == ["| no-gradient | 2 | 1 | 1 |"]


def test_chances_are_counted_by_what_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("step,reward/mean\n1,0.5\n")
    has = signs(Case(rows=[{"step": 1, "reward/mean": 0.5}]))
    runs = [PublicRun(source="x", causes=frozenset({cause}), signs=has) for cause in ("no-gain",) * 3 + ("noise",)]
    monkeypatch.setattr("benchmarks.wild_hints.elsewhere", lambda _: runs)
    rows = list(chance_table([case("a.csv", "no-gain"), case("b.csv")], tmp_path))[2:]
    assert rows == ["| from 30% | 1 | 30.0% | 0.0% |", "| from 60% | 1 | 70.0% | 100.0% |"]  # 1.5 / 5 and 3.5 / 5


def test_a_set_is_led_by_the_sets_before_it(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        (tmp_path / name).write_text("step,reward/mean,kl\n" + "".join(f"{n},0.{n},0.01\n" for n in range(1, 10)))
    told = [
        ("a.csv", "truncation", "developed"),
        ("b.csv", "truncation", "measured"),
        ("c.csv", "noise", "measured second"),
    ]
    cases = [replace(case(file, cause), half=half) for file, cause, half in told]
    assert list(earlier_table(cases, tmp_path))[2:] == ["| measured second | 1 | 0 | 0 |"]  # led to truncation
    cases[2] = replace(cases[2], causes=("truncation",))
    assert list(earlier_table(cases, tmp_path))[2:] == ["| measured second | 1 | 1 | 1 |"]


def test_every_bet_is_on_a_kept_case() -> None:
    files = {";".join(one.files) for one in cases_of(FOLDER / "cases.csv")}
    bets = bets_of(FOLDER / BETS)
    assert {bet.file for bet in bets} <= files
    assert len({(bet.file, bet.text) for bet in bets}) == len(bets) > 250
