"""How long `grpoctl --help` takes beside a script that only imports typer, rich, pydantic and ruamel.yaml.

    python benchmarks/startup.py [STUDY]

The two alternate, eleven times each; the ratio of the medians is what counts (promise: at most 1.5). Named a study that
the current directory's home has, `grpoctl show STUDY` is a third (promise: one of 2,000 trials in under a second).
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

BASELINE = [sys.executable, "-c", "import typer, rich, pydantic, ruamel.yaml"]
ROUNDS = 11


def seconds(command: list[str]) -> float:
    """Wall time of one process."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    """Print the medians and their ratio to the first."""
    commands = {"imports alone": BASELINE, "grpoctl --help": _grpoctl("--help")}
    if len(sys.argv) > 1:
        commands[f"grpoctl show {sys.argv[1]}"] = _grpoctl("show", sys.argv[1])
    rounds = [[seconds(command) for command in commands.values()] for _ in range(ROUNDS)]
    medians = [median(times) for times in zip(*rounds, strict=True)]
    for name, middle in zip(commands, medians, strict=True):
        print(f"{name}: {1e3 * middle:.0f} ms, ratio {middle / medians[0]:.2f}")


def _grpoctl(*arguments: str) -> list[str]:
    code = f"import sys; sys.argv = ['grpoctl', *{list(arguments)!r}]; import grpoctl.app as a; a.main()"
    return [sys.executable, "-P", "-c", code]


if __name__ == "__main__":
    main()
