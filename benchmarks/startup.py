"""How long `grpoctl --help` takes beside a script that only imports typer, rich, pydantic and ruamel.yaml.

    python benchmarks/startup.py

The two alternate, eleven times each; the ratio of the medians is what counts (promise: at most 1.5).
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

BASELINE = [sys.executable, "-c", "import typer, rich, pydantic, ruamel.yaml"]
HELP = [sys.executable, "-P", "-c", "import sys; sys.argv = ['grpoctl', '--help']; import grpoctl.app as a; a.main()"]
ROUNDS = 11


def seconds(command: list[str]) -> float:
    """Wall time of one process."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    """Print both medians and their ratio."""
    rounds = [(seconds(BASELINE), seconds(HELP)) for _ in range(ROUNDS)]
    baseline, shown = median(a for a, _ in rounds), median(b for _, b in rounds)
    print(f"imports alone {1e3 * baseline:.0f} ms, grpoctl --help {1e3 * shown:.0f} ms, ratio {shown / baseline:.2f}")


if __name__ == "__main__":
    main()
