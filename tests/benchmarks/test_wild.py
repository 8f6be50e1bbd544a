"""The count of causes named, missed and falsely accused over other people's logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.wild import WildCase, cases_of, judged, outcome, table

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
