"""Does this checkout train what another one trained? The same runs in both, their files compared byte for byte.

    python benchmarks/same_bytes.py record FOLDER [--grpoctl PATH/TO/grpoctl] [--only NAME ...]
    python benchmarks/same_bytes.py compare BEFORE AFTER

`record` runs p30 to p39, p30-sound, staged, rce-only (tiny, seed 0) and six trials of advantage-study, two at a time,
and keeps their metrics and samples; `compare` names the first line and key of every file that differs. On one machine:
another processor may round differently. Exits 1 where a file differs or is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path

EXPERIMENTS = ("p30", "p30-sound", *(f"p{number}" for number in range(31, 40)), "staged", "rce-only")
SWEEP = "advantage-study"
TRIALS = 6
FILES = ("metrics.jsonl", "samples.jsonl")


def main() -> int:
    """Record or compare; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--grpoctl", type=Path, default=Path(sys.executable).with_name("grpoctl"))
    recording.add_argument("--only", nargs="*", default=[*EXPERIMENTS, SWEEP])
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "record":
        record(options.folder, options.grpoctl.absolute(), options.only)
        return 0
    lines = list(differences(options.before, options.after))
    print(*lines, sep="\n", end="\n" if lines else "")
    print(f"{len(lines)} files differ of {sum(1 for _ in options.before.rglob('*.jsonl'))}")
    return int(bool(lines))


def record(folder: Path, grpoctl: Path, names: list[str]) -> None:
    """FOLDER/<experiment or trial>/{metrics,samples}.jsonl of every run."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: _record_one(folder.absolute(), grpoctl, name), names))


def _record_one(folder: Path, grpoctl: Path, name: str) -> None:
    work = folder / f"work-{name}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    command = ["run", name, "--seed", "0"] if name != SWEEP else ["sweep", name, "--trials", str(TRIALS), "--inline"]
    environment = {**os.environ, "GRPOCTL_HOME": str(work / "home"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(grpoctl), *command, "--profile", "tiny", "--quiet"],
        cwd=work, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(f"{name}: exit code {done.returncode}", flush=True)
    if done.returncode not in (0, 4):
        print(done.stderr, file=sys.stderr, flush=True)
    for run in sorted(metrics.parent for metrics in (work / "home").rglob("metrics.jsonl")):
        target = folder / run.name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for file in FILES:
            shutil.copy(run / file, target / file)
    shutil.rmtree(work)


def differences(before: Path, after: Path) -> Iterator[str]:
    """A line for every file of `before` that is not the same in `after`."""
    for path in sorted(before.rglob("*.jsonl")):
        name = path.relative_to(before)
        other = after / name
        if not other.is_file():
            yield f"{name}: not there"
        elif path.read_bytes() != other.read_bytes():
            yield f"{name}: {_first_difference(path, other)}"


def _first_difference(before: Path, after: Path) -> str:
    pairs = zip_longest(before.read_text().splitlines(), after.read_text().splitlines())
    for number, (old, new) in enumerate(pairs, start=1):
        if old is None or new is None:
            return f"line {number}: only {'after' if old is None else 'before'}"
        if old != new:
            was, now = json.loads(old), json.loads(new)
            keys = [key for key in {**was, **now} if was.get(key) != now.get(key)]
            shown = ", ".join(f"{key}: {was.get(key)!r} -> {now.get(key)!r}" for key in keys[:3])
            return f"line {number}: {shown or 'the same values, written otherwise'}"
    return "the same lines, other line ends"


if __name__ == "__main__":
    sys.exit(main())
