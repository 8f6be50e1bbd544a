"""Every command and Python snippet of the README and of the tour in docs/cli.md runs as printed, in this order.

`make` is not run here: it is what runs the tests. One of the commands was run by others already, and those that train
for long are given a few words more: fewer steps, fewer trials.
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
PAGES = README + (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
MADE = {"grpoctl run p30"}  # by the fixture of this name, on a machine without a GPU; p31 by the one of its name
# The whole length is shown by test_run (p30-sound), test_wheel (my-task), core/training (dapo) and test_sweep.
SHORTER = {
    "grpoctl run p30-sound --seeds 0,1,2,3,4": "max_steps=4",
    "grpoctl run p31 --seeds 0,1,2,3,4": "max_steps=40",  # the tour looks at step 40
    "grpoctl run p31 method=dapo": "max_steps=2",
    "grpoctl run my-task": "stages.grpo.max_steps=2",
    "grpoctl sweep advantage-study": "--trials 2 --seeds 0 --parallel 1 budget.completions=64",
}


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, of the README and then of docs/cli.md."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """The shell lines, comments left out."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def test_the_readme_starts_with_two_commands() -> None:
    assert [words for words in commands() if words[0] == "make"] == [["make", "run"], ["make", "test"]]


@pytest.fixture
def reader(cli: Cli, p31: FullRun, p30: FullRun) -> Cli:
    """A user in whose folder p31 and p30 have run, and whose home is where grpoctl puts it."""
    for made in (p31, p30):
        shutil.copytree(made.dir.path, cli.folder / ".grpoctl" / "runs" / made.dir.id)
    return cli.with_environment(GRPOCTL_HOME="")


@pytest.mark.process
@pytest.mark.slow
def test_every_command_and_snippet_runs_as_printed(reader: Cli) -> None:
    lines = [words for words in commands() if words[0] != "make"]
    assert len(lines) > 30
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
