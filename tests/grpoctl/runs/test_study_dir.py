"""Studies: their numbers, which one a name means, and the order of their runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.errors import AmbiguousNameError, BusyError, NotFoundError
from grpoctl.runs.run_dir import STUDIES, Home
from grpoctl.runs.study_dir import StudyDir, choose_study, create_study, find_study, studies


def begun(home: Home, stem: str, at: float) -> StudyDir:
    study = create_study(home, stem)
    study.spec.write_text("name: x\n")
    os.utime(study.spec, (at, at))
    return study


def test_numbers_go_on_from_the_highest(home: Home) -> None:
    assert [create_study(home, "lr-tiny-0123abcd").id[-2:] for _ in range(2)] == ["-1", "-2"]
    assert create_study(home, "lr-tiny-0123abcd", above=7).id.endswith("-8")  # the database knows seven
    assert create_study(home, "lr-tiny-0123abcd", above=3).id.endswith("-9")
    assert create_study(home, "lr-tiny").id == "lr-tiny-1"  # another stem, which the first one begins with
    (home.path / STUDIES / "kl-tiny-old").mkdir()
    assert create_study(home, "kl-tiny").id == "kl-tiny-1"


def test_the_one_begun_last_is_first_and_one_without_a_spec_is_none(home: Home) -> None:
    assert studies(home) == []
    old, new = begun(home, "lr-tiny-0123abcd", 100.0), begun(home, "kl-tiny-0123abcd", 200.0)
    create_study(home, "empty-tiny-0123abcd")
    assert [study.id for study in studies(home)] == [new.id, old.id]


def test_which_study_a_name_means(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = begun(home, "lr-tiny-0123abcd", 100.0), begun(home, "lr-tiny-0123abcd", 200.0)
    longer = begun(home, "lr-wide-tiny-0123abcd", 300.0)
    assert find_study(home, first.id.upper()).id == first.id
    assert find_study(home, "lr").id == second.id  # the sweep's name: its newest study, not one that begins so
    assert find_study(home, "lr-w").id == longer.id
    with pytest.raises(AmbiguousNameError, match="fits 2 studies"):
        find_study(home, "lr-t")
    with pytest.raises(NotFoundError):
        find_study(home, "kl")
    monkeypatch.chdir(home.path / STUDIES)
    assert find_study(home, f"./{first.id}").path == first.path.resolve()
    many = [StudyDir(path=tmp_path / f"a-{name}-tiny-0-1") for name in "bcdefg"]
    with pytest.raises(AmbiguousNameError, match=r"fits 6 studies .*a-e-tiny-0-1, \.\.\.\)"):
        choose_study("a-", many, home)


def test_runs_are_in_the_order_of_their_numbers(home: Home) -> None:
    study = begun(home, "lr-tiny-0123abcd", 100.0)
    assert study.runs() == []
    for trial, seed in (
        (10_000, 0),
        (2, 10),
        (2, 9),
        (3, 0),
    ):  # by name s10 comes before s9
        run = study.run(trial, seed)
        run.path.mkdir(parents=True)
        run.spec.write_text("name: x\n")
    study.run(1, 0).path.mkdir()  # no spec: never begun
    (study.path / "runs" / f"{study.run(2, 9).id}-damaged").mkdir()
    assert study.runs() == [study.run(2, 9), study.run(2, 10), study.run(3, 0), study.run(10_000, 0)]
    assert study.run(3, 0).id == f"{study.id}-t0003-s0"
    assert study.home == home


def test_one_driver_at_a_time(home: Home) -> None:
    study = begun(home, "lr-tiny-0123abcd", 100.0)
    assert not study.is_held()
    with study.hold():
        assert study.is_held()
        with pytest.raises(BusyError, match=study.id), study.hold(patience=0.0):
            pass
    assert not study.is_held()
