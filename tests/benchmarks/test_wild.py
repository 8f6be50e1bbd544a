"""The count of causes named, missed and falsely accused over other people's logs."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from benchmarks.wild import WildCase, cases_of, judged, outcome, table
from benchmarks.wild_cases import kept_cases, write
from core.errors import SpecError

FAILED = WildCase(files=("a.log",), causes=("dead-run", "truncation"), healthy=False, settings=(), trainer="t")
HEALTHY = WildCase(files=("b.log",), causes=(), healthy=True, settings=(), trainer="t")


@pytest.mark.parametrize(
    ("case", "verdict", "findings", "result"),
    [
        (FAILED, "findings", (("dead-run", "error"),), "named first"),
        (FAILED, "findings", (("kl", "error"), ("truncation", "warning")), "named"),
        (FAILED, "findings", (("a", "error"), ("b", "error"), ("dead-run", "error")), "late"),
        (FAILED, "findings", (("kl", "error"),), "missed"),
        (FAILED, "unknown", (), "missed"),
        (FAILED, "sound", (), "false all-clear"),
        (HEALTHY, "sound", (("noise", "info"),), "clean"),
        (HEALTHY, "findings", (("a", "warning"),), "clean"),
        (HEALTHY, "findings", (("a", "warning"), ("b", "warning")), "falsely accused"),
        (HEALTHY, "findings", (("a", "error"),), "falsely accused"),
    ],
)
def test_an_outcome(case: WildCase, verdict: str, findings: tuple[tuple[str, str], ...], result: str) -> None:
    assert outcome(case, verdict, findings) == result


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        "".join(f"{{'reward': 0.0, 'reward_std': 0.0, 'step': {n}}}\n" for n in range(1, 13))
    )
    (tmp_path / "cases.csv").write_text(
        "file,cause,healthy,settings,trainer\na.log,dead-run;truncation,no,num_generations=8,TRL\ngone.log,dead-run,no,,x\n"
    )
    first, second = cases_of(tmp_path / "cases.csv")
    assert first.settings == (("num_generations", "8"),)
    results = [judged(first, tmp_path), judged(second, tmp_path)]
    assert [one.outcome for one in results] == ["named first", "not read"]
    assert table(results, markdown=True).splitlines()[-1] == "1 named first, 1 not read"


def test_a_case_without_a_cause(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("file,cause,healthy\na.log,,no\n")
    with pytest.raises(ValueError, match="neither healthy nor has a cause"):
        cases_of(tmp_path / "cases.csv")


def test_numbers_that_are_kept_are_judged_as_their_logs(tmp_path: Path) -> None:
    logs, numbers = tmp_path / "logs", tmp_path / "numbers"
    for name, rewards in (("dead", [0.0] * 700), ("nan", [0.5, 0.6, math.nan, math.nan])):
        (logs / name).mkdir(parents=True)
        lines = [f"{{'loss': {0.1 * reward}, 'reward': {reward}, 'kl': 0.01}}\n" for reward in rewards]
        (logs / name / "log.txt").write_text("".join(lines))
        (logs / name / "case.json").write_text('{"url": "https://example.org/issues/1"}')
    (logs / "cases.csv").write_text(
        "file,cause,healthy,settings,trainer\ndead/log.txt,dead-run,no,num_generations=8;beta=0.1,TRL\n"
        "nan/log.txt,lost-rewards;numerical,no,,TRL\ngone/log.txt,dead-run,no,,x\n"
    )
    kept = list(kept_cases(logs, "developed"))
    write(kept, numbers)
    assert sorted(file.name for file in numbers.iterdir()) == ["cases.csv", "dead--log.csv", "nan--log.csv"]
    assert len((numbers / "dead--log.csv").read_text().splitlines()) <= 301
    cases = cases_of(numbers / "cases.csv")
    assert dict(cases[0].settings)["beta"] == "0.1"
    assert cases[0].tables == ((3, False),)
    again = [judged(case, numbers) for case in cases]
    assert [one.outcome for one in again] == ["named first", "named first"]
    assert table(again, markdown=False).splitlines()[-1] == "developed: 2 named first"


def test_the_kept_cases_are_read_and_name_their_source() -> None:
    folder = Path("benchmarks/wild_cases")
    cases = cases_of(folder / "cases.csv")
    later = (
        "second",
        "third",
        "fourth",
        "fifth",
        "sixth",
        "seventh",
        "eighth",
        "ninth",
        "tenth",
        "eleventh",
        "twelfth",
        "thirteenth",
        "fourteenth",
        "fifteenth",
        "sixteenth",
        "seventeenth",
        "eighteenth",
        "nineteenth",
        "twentieth",
        "twentyfirst",
        "twentysecond",
        "twentythird",
        "twentyfourth",
        "twentyfifth",
    )
    measured = {"measured", *(f"measured {which}" for which in later)}
    assert {case.half for case in cases} == {"developed", "counted", "columns seen", "repository known"} | measured
    assert all(one.outcome != "not read" for one in (judged(case, folder) for case in cases))
    with (folder / "cases.csv").open(newline="", encoding="utf-8") as file:
        sources = {row["file"]: row["source"] for row in csv.DictReader(file)}
    by_title = ("a Markdown file on GitHub, found by its text: ", "a file on GitHub, found by its text: ")
    assert all(source.startswith(("https://", *by_title)) for source in sources.values())  # else no address was told


def test_a_half_that_is_written_again_leaves_the_others(tmp_path: Path) -> None:
    for half, reward in (("one", 0.1), ("two", 0.2), ("one", 0.3)):
        logs = tmp_path / f"logs-{half}-{reward}"
        (logs / "run").mkdir(parents=True)
        (logs / "run" / f"log{reward}.txt").write_text(f"{{'reward': {reward}, 'kl': 0.01}}\n" * 3)
        (logs / "run" / "case.json").write_text('{"url": "https://example.org"}')
        (logs / "cases.csv").write_text(f"file,cause,healthy,settings,trainer\nrun/log{reward}.txt,,yes,,x\n")
        write(list(kept_cases(logs, half)), tmp_path / "out")
    cases = cases_of(tmp_path / "out" / "cases.csv")
    assert {case.half: case.files for case in cases} == {"one": ("run--log0.3.csv",), "two": ("run--log0.2.csv",)}
    assert len(list((tmp_path / "out").glob("*.csv"))) == 3
    there = {file: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    with pytest.raises(SpecError, match=r"run--log0\.2\.csv: another case has such a file"):
        write(list(kept_cases(tmp_path / "logs-two-0.2", "three")), tmp_path / "out")
    one = list(kept_cases(tmp_path / "logs-one-0.1", "three"))
    with pytest.raises(SpecError, match=r"run--log0\.1\.csv: another case has such a file"):
        write([*one, *kept_cases(tmp_path / "logs-one-0.1", "four")], tmp_path / "out")
    assert {file: file.read_bytes() for file in (tmp_path / "out").iterdir()} == there
