"""Writes grpoctl/diagnose/public_runs.csv: signs, looks and causes of the failed public cases, for `grpoctl diagnose`.

    python -m benchmarks.public_runs [FOLDER]

FOLDER: benchmarks/wild_cases, or another one that benchmarks/wild_cases.py wrote. Causes that are no finding's id
(`other:...`) are left out, and so is a case without any else.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.wild import WildCase, cases_of, readings_of
from core.health.likeness import PLACES, PublicRun, signs
from core.health.looks import looks_like
from grpoctl.diagnose.public_runs import TABLE, called

FOLDER = Path(__file__).parent / "wild_cases"
COLUMNS = ("source", "causes", "looks", "signs")


def runs_of(cases: Sequence[WildCase], folder: Path) -> Iterator[PublicRun]:
    """The failed cases; of several logs the first tells the signs."""
    for case in cases:
        causes = frozenset(cause for cause in case.causes if not cause.startswith("other:"))
        if not case.healthy and causes:
            first = readings_of(case, folder)[0].case
            looks = tuple(looks_like(first)[:PLACES])
            yield PublicRun(source=called(case.source), causes=causes, signs=signs(first), looks=looks)


def written(runs: Sequence[PublicRun]) -> list[dict[str, str]]:
    """The rows of the table."""
    return [
        {
            "source": run.source,
            "causes": ";".join(sorted(run.causes)),
            "looks": ";".join(run.looks),
            "signs": ";".join(sorted(run.signs)),
        }
        for run in runs
    ]


def main() -> None:
    """Write the table."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(written(list(runs_of(cases_of(folder / "cases.csv"), folder))))


if __name__ == "__main__":
    main()
