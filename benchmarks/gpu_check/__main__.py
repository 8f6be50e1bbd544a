"""What the CUDA paths must do, tried on this machine's first CUDA device, part by part, in 10 minutes at most.

    make gpu                                 installs what is missing, runs this; writes docs/gpu.md and gpu.json
    make gpu ARGS=--rehearse                 every part on the CPU with tiny shapes: does it run? writes into build/
    make gpu ARGS="--only graphs resume"     some parts; verifies nothing, writes into build/

Each part is a process of its own with a time limit, and the next one follows whatever becomes of it. Exit code 0 where
no part failed, 1 where one did, 2 without a CUDA device (make itself turns 1 into 2). Where all that is needed passes,
this kind of device is recorded as verified: in the user's cache for this machine, and in the list that ships.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.gpu_check.parts import DEVICE, PARTS, ROOT, Done, Outcome, Part, Place, run_part
from benchmarks.gpu_check.report import HEAD, Report
from grpoctl.resources import verified
from grpoctl.runs.provenance import PACKAGES, git_state, versions

PAGE = ROOT / "docs" / "gpu.md"
REHEARSAL, ONLY = ROOT / "build" / "gpu-rehearsal", ROOT / "build" / "gpu-some"
Run = Callable[[Part, Place], Done]


def main(argv: Sequence[str] | None = None, run: Run = run_part) -> int:
    """The exit code. `run` runs one part."""
    parser = argparse.ArgumentParser(
        prog="make gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, with tiny shapes; verifies nothing")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS], help="some parts; verifies nothing")
    parser.add_argument("--page", type=Path, default=None, help="default: docs/gpu.md")
    parser.add_argument("--json", type=Path, default=None, help="default: beside the page")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        device: Mapping[str, object] = {}
        if not options.rehearse:
            found = run(DEVICE, Place(folder=Path(name) / DEVICE.name, rehearsed=False)).outcome
            if found.status != "PASS":
                print(
                    f"no CUDA device here ({found.figure}): nothing was checked; make gpu ARGS=--rehearse goes through "
                    "every part on the CPU", file=sys.stderr,
                )  # fmt: skip
                return 2
            device = found.details
    page = options.page or (REHEARSAL / "gpu.md" if options.rehearse else ONLY / "gpu.md" if options.only else PAGE)
    parts = [part for part in PARTS if options.only is None or part.name in options.only]
    folder = (ROOT / "build" / "gpu" if page == PAGE else page.absolute().parent) / "gpu-parts"
    git = git_state(ROOT) or {}
    report = Report(
        done=_run_all(parts, folder, rehearsed=options.rehearse, run=run), device=device,
        versions={name: versions([name])[name] for name in (*PACKAGES, "trl")},
        git=git, rehearsed=options.rehearse, whole=options.only is None,
    )  # fmt: skip
    _write(report, page, options.json or page.with_suffix(".json"))
    if not options.rehearse:
        _record(report, ships=page == PAGE)
    return 1 if report.failed else 0


def _run_all(parts: Sequence[Part], folder: Path, *, rehearsed: bool, run: Run) -> list[Done]:
    """Each part after the other, a line for each as it ends."""
    shutil.rmtree(folder, ignore_errors=True)
    done = []
    for number, part in enumerate(parts, start=1):
        print(f"{number}/{len(parts)} {part.title} (at most {part.limit(rehearsed=rehearsed):.0f} s)", flush=True)
        done.append(run(part, Place(folder=folder / part.name, rehearsed=rehearsed)))
        outcome: Outcome = done[-1].outcome
        print(f"    {outcome.status}: {outcome.figure} ({done[-1].seconds:.0f} s)", flush=True)
    return done


def _write(report: Report, page: Path, file: Path) -> None:
    for path, text in ((page, report.page()), (file, json.dumps(report.document(), indent=1) + "\n")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    rows = [HEAD, *report.rows()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    print()
    for title, result, figure, seconds, limit in rows:
        print(f"{title:<{widths[0]}}  {result:<{widths[1]}}  {seconds:>7}  {limit:>5}  {figure}")
    print(f"\n{report.verdict()}\n{page}\n{file}", flush=True)


def _record(report: Report, *, ships: bool) -> None:
    """Write down what passed, and take back what failed: for this machine, and where the page is the shipped one's."""
    own, record = verified.own_records(), report.record()
    files = [own, *([verified.SHIPPED] if ships else [])]
    if report.verifies:
        for file in files:
            verified.write_record(record, file)
        print(f"recorded for this machine in {own}")
        if ships:
            print(f"for everybody: commit docs/gpu.md, docs/gpu.json and {verified.SHIPPED}")
    elif report.failed:
        for file in files:
            verified.withdraw_record(record, file)


if __name__ == "__main__":
    sys.exit(main())
