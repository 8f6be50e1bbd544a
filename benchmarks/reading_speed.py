"""How long `grpoctl diagnose` takes to read a long log of verl's, beside a plain loop over its lines.

    python benchmarks/reading_speed.py [--steps 10000] [--times 9]      seconds, and how many times the loop's
    python benchmarks/reading_speed.py --steps 200000 --peak            the peak memory of reading it, too (1 GB of log)

Seconds are of the processor. The two are measured in turn, and the median of their ratios is told: what else the
machine does slows both.

The log is made up: `step:N - key:value - ...` with 80 metrics a line, of which the rules know twenty, 5 KB a step, and
every tenth line something else. The plain loop opens the file, decodes it and splits each line at its dashes.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import open_source

KNOWN = (
    "critic/score/mean", "critic/score/max", "critic/score/min", "critic/rewards/mean", "critic/advantages/max",
    "critic/advantages/min", "actor/kl_loss", "actor/entropy", "actor/pg_loss", "actor/ppo_kl", "actor/pg_clipfrac",
    "actor/grad_norm", "actor/lr", "response_length/mean", "response_length/max", "response_length/min",
    "response_length/clip_ratio", "training/rollout_probs_diff_mean", "training/rollout_probs_diff_max",
    "training/global_step",
)  # fmt: skip
OTHERS = tuple(f"timing_per_token_ms/some_longer_name_of_a_timing_{place:03}" for place in range(60))
MIB = 1 << 20


def write_log(file: Path, steps: int) -> None:
    """A log of so many steps."""
    noise = random.Random(0)
    with file.open("w", encoding="utf-8") as out:
        for step in range(1, steps + 1):
            values = {name: noise.random() for name in (*KNOWN, *OTHERS)}
            line = " - ".join(f"{name}:{value}" for name, value in values.items())
            out.write(f"\x1b[36m(TaskRunner pid=1234)\x1b[0m step:{step} - {line}\n")
            if step % 10 == 0:
                out.write(f"(WorkerDict pid=77) INFO 2026-01-01 saved a checkpoint of step {step}\n")


def plain_loop(file: Path) -> None:
    """What any reader has to do."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            line.rstrip("\n").split(" - ")


def seconds(work: Callable[[], object]) -> float:
    """The CPU time of it."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Print a line of Markdown's table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--peak", action="store_true", help="read it once, and say the most memory that took")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "verl.log"
        write_log(file, arguments.steps)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        source = Source(name=str(file), path=file)
        pairs = [
            (seconds(lambda: open_source(source)), seconds(lambda: plain_loop(file)))
            for _ in range(1 if arguments.peak else arguments.times)
        ]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        read, loop, ratio = median(r for r, _ in pairs), median(p for _, p in pairs), median(r / p for r, p in pairs)
        print("| steps | size | read | plain loop | times | peak memory (before reading) | torch imported |")
        print("|---|---|---|---|---|---|---|")
        print(
            f"| {arguments.steps} | {file.stat().st_size / MIB:.0f} MiB | {read:.2f} s | {loop:.2f} s "
            f"| {ratio:.1f} | {peak:.0f} MiB ({before:.0f}) | {'yes' if 'torch' in sys.modules else 'no'} |"
        )


if __name__ == "__main__":
    main()
