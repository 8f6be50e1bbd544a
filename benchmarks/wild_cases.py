"""Numbers of other people's runs, as this repository keeps them: a CSV of metrics for each log, without its text.

    python benchmarks/wild_cases.py FOLDER=developed FOLDER=counted --out benchmarks/wild_cases

Each FOLDER has logs as benchmarks/wild.py reads them, and beside each log a case.json with the address that it is from.
Written are the columns and settings that the readers found, in six digits, rows of long logs as means of neighbours,
and cases.csv with the source, so that `python benchmarks/wild.py benchmarks/wild_cases` counts the same cases from the
repository alone. What is not judged as its log is (its texts decide) is left whole, and left out where that differs.
Halves of OUT that are not named stay as they are.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from benchmarks.wild import COLUMNS, WildCase, cases_of, judged, judged_readings, numbers_read
from core.errors import GrpoError, SpecError
from core.health.case import Case
from core.health.finding import StepTable
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.registry import open_source

MOST_ROWS = 300
DIGITS = 6
NO_SETTINGS = ("stage", "max_steps")  # a log's own bookkeeping


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A case as it is written: its files with their tables, and its row of cases.csv."""

    tables: Mapping[str, StepTable]
    row: Mapping[str, str]
    case: WildCase

    @property
    def readings(self) -> list[Reading]:
        """The files, read again."""
        return [numbers_read(self.case, place, rows) for place, rows in enumerate(self.tables.values())]


def kept_cases(folder: Path, half: str) -> Iterator[Kept]:
    """The cases of a folder whose numbers alone are judged as their logs are."""
    for case in cases_of(folder / "cases.csv"):
        readings = list(_readings(case, folder))
        if not readings:
            continue
        told = judged(case, folder).outcome
        for most in (MOST_ROWS, math.inf):
            kept = _kept(case, readings, folder, half=half, most=most)
            if judged_readings(kept.case, kept.readings).outcome == told:
                yield kept
                break


def _readings(case: WildCase, folder: Path) -> Iterator[tuple[str, Reading]]:
    """Each file's name and what it says, of one with several runs each of them."""
    for name in case.files:
        with suppress(GrpoError):
            first = open_source(Source(name=str(folder / name), path=None, settings=dict(case.settings)))
            for number, one in enumerate((first, *first.further), 1):
                yield (name if not first.further else _numbered(name, number)), one


def _numbered(name: str, run: int) -> str:
    path = Path(name)
    return str(path.with_name(f"{path.stem}-{run}{path.suffix}"))


def _kept(case: WildCase, readings: Sequence[tuple[str, Reading]], folder: Path, *, half: str, most: float) -> Kept:
    shortened = {name: _thinned(reading.case, most) for name, reading in readings}
    tables = {_file(name): _rounded(one.rows) for name, one in shortened.items()}
    known = json.loads((folder / case.files[0]).with_name("case.json").read_text(encoding="utf-8"))
    settings = _settings(list(shortened.values()))
    row = {
        "file": ";".join(tables),
        "cause": ";".join(case.causes),
        "healthy": "yes" if case.healthy else "no",
        "settings": ";".join(f"{name}={value}" for name, value in settings.items()),
        "trainer": case.trainer,
        "half": half,
        "source": str(known["url"]),
        "averaged_over": ";".join(str(one.averaged_over) for one in shortened.values()),
        "numbered": ";".join("yes" if one.numbered else "no" for one in shortened.values()),
    }
    spans = tuple((one.averaged_over, one.numbered) for one in shortened.values())
    again = replace(case, files=tuple(tables), settings=tuple(settings.items()), half=half, tables=spans)
    return Kept(tables=tables, row=row, case=again)


def _file(name: str) -> str:
    """`folder/log.txt` as `folder--log.csv`: one level of files."""
    return "--".join(Path(name).with_suffix(".csv").parts)


def _settings(cases: Sequence[Case]) -> dict[str, str]:
    """What is known of the settings, as --set takes it; of several logs those that agree."""
    shared: dict[str, str] = {}
    for name in asdict(cases[0].settings):
        values = {getattr(case.settings, name) for case in cases} - {None}
        if len(values) == 1 and name not in NO_SETTINGS:
            shared[name] = _text(values.pop())
    return shared


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _thinned(case: Case, most: float) -> Case:
    """The case with neighbours as their mean, where it has more rows than that."""
    size = 1 if len(case.rows) <= most else math.ceil(len(case.rows) / most)
    if size == 1:
        return case
    rows = [_mean(case.rows[begin : begin + size]) for begin in range(0, len(case.rows), size)]
    return replace(case, rows=rows, averaged_over=case.averaged_over * size)


def _mean(rows: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """A column's mean; what was no number once is none."""
    mean: dict[str, float | None] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if name in row]
        known = [value for value in values if value is not None]
        mean[name] = fmean(known) if len(known) == len(values) else None
    return {**mean, "step": rows[-1]["step"]}


def _rounded(rows: StepTable) -> StepTable:
    return [{name: _digits(value) for name, value in row.items()} for row in rows]


def _digits(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.{DIGITS}g}")


def write(kept: Sequence[Kept], out: Path) -> None:
    """The tables and cases.csv; of what the folder had before the halves that come again are replaced.

    Raises SpecError, and writes nothing, where two tables have one name: the same case, perhaps.
    """
    out.mkdir(parents=True, exist_ok=True)
    again = {one.row["half"] for one in kept}
    before = _rows_of(out / "cases.csv")
    others = {name for row in before if row["half"] not in again for name in row["file"].split(";")}
    counts = Counter([*others, *(name for one in kept for name in one.tables)])
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise SpecError(f"{', '.join(twice)}: another case has such a file; leave the case out, or rename its folder")
    for name in (name for row in before if row["half"] in again for name in row["file"].split(";")):
        (out / name).unlink(missing_ok=True)
    for one in kept:
        for name, rows in one.tables.items():
            columns = ["step", *sorted({column for row in rows for column in row} - {"step"})]
            with (out / name).open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows([_cell(row, column) for column in columns] for row in rows)
    with (out / "cases.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(row for row in before if row["half"] not in again)
        table.writerows(one.row for one in kept)


def _rows_of(table: Path) -> list[dict[str, str]]:
    if not table.exists():
        return []
    with table.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _cell(row: Mapping[str, float | None], column: str) -> str:
    """Empty where the row has no such number, `nan` where it was measured and is none."""
    if column not in row:
        return ""
    value = row[column]
    return "nan" if value is None else f"{value:.{DIGITS}g}"


def main() -> None:
    """Write the cases of all folders and say how many there are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", metavar="FOLDER=HALF")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    kept: list[Kept] = []
    for folder, half in (pair.rsplit("=", 1) for pair in arguments.folders):
        of_half = list(kept_cases(Path(folder), half))
        print(f"{half}: {len(of_half)} of {len(cases_of(Path(folder) / 'cases.csv'))} cases kept")
        kept += of_half
    write(kept, arguments.out)


if __name__ == "__main__":
    main()
