"""Every command and Python snippet of the README runs as printed. `make` is not run here: it is what runs the tests.

Two of the commands were run by others already, and those that train for long are given one word more: fewer steps.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.cli import Cli
from tests.end_to_end.scenarios import FullRun

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MADE = {"grpoctl run p31", "grpoctl run p30"}  # by the fixtures of these names, on a machine without a GPU
# What comes of the whole length is shown by test_run (p30-sound), test_wheel (my-task) and core/training (dapo).
SHORTER = {
    "grpoctl run p30-sound --seeds 0,1": "max_steps=4",
    "grpoctl run p31 method=dapo": "max_steps=2",
    "grpoctl run my-task": "stages.grpo.max_steps=2",
}


def blocks(language: str) -> list[str]:
    """The README's fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """The shell lines, comments left out."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def test_the_readme_starts_with_two_commands() -> None:
    assert [words for words in commands() if words[0] == "make"] == [["make", "run"], ["make", "test"]]


@pytest.fixture
def reader(cli: Cli, p31: FullRun, p30: FullRun) -> Cli:
    """A user in whose folder the two commands of `MADE` have run, and whose home is where grpoctl puts it."""
    for made in (p31, p30):
        shutil.copytree(made.dir.path, cli.folder / ".grpoctl" / "runs" / made.dir.id)
    return cli.with_environment(GRPOCTL_HOME="")


@pytest.mark.process
def test_every_command_and_snippet_runs_as_printed(reader: Cli) -> None:
    lines = [words for words in commands() if words[0] != "make"]
    assert len(lines) > 10
    assert {shlex.join(words) for words in lines} >= MADE | SHORTER.keys()
    for words in lines:
        assert words[0] == "grpoctl", words
        if (line := shlex.join(words)) in MADE:
            continue
        done = reader.run(*words[1:], *SHORTER.get(line, "").split())
        assert done.returncode == 0, (words, done.stdout[-500:], done.stderr[-500:])
        assert done.stdout.strip(), words
    for snippet in blocks("python"):
        command = [sys.executable, "-P", "-c", snippet]
        subprocess.run(command, cwd=reader.folder, env=reader.env, check=True, timeout=60)


def test_every_inline_command_names_a_real_one() -> None:
    named = {words[1] for text in re.findall(r"`(grpoctl [^`]+)`", README) if (words := shlex.split(text))}
    assert named <= {
        "run", "sweep", "promote", "logs", "stop", "ls", "show", "validate", "check", "compare", "eval", "sample",
        "export", "new", "models", "ui", "doctor", "sync", "diagnose",
    }  # fmt: skip
