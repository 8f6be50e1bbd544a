"""Every command and Python snippet of the README runs as printed. `make` is not run here: it is what runs the tests."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GRPOCTL = Path(sys.executable).with_name("grpoctl")


def blocks(language: str) -> list[str]:
    """The README's fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """The shell lines, comments left out."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def test_the_readme_starts_with_two_commands() -> None:
    assert [words for words in commands() if words[0] == "make"] == [["make", "run"], ["make", "test"]]


@pytest.mark.process
def test_every_command_and_snippet_runs_as_printed(tmp_path: Path) -> None:
    environment = dict(os.environ)
    for name in ("GRPOCTL_HOME", "MLFLOW_TRACKING_URI"):
        environment.pop(name, None)
    lines = [words for words in commands() if words[0] != "make"]
    assert len(lines) > 10
    for words in lines:
        assert words[0] == "grpoctl", words
        done = subprocess.run(
            [str(GRPOCTL), *words[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (words, done.stdout[-500:], done.stderr[-500:])
        assert done.stdout.strip(), words
    for snippet in blocks("python"):
        subprocess.run([sys.executable, "-P", "-c", snippet], cwd=tmp_path, env=environment, check=True, timeout=60)


def test_every_inline_command_names_a_real_one() -> None:
    named = {words[1] for text in re.findall(r"`(grpoctl [^`]+)`", README) if (words := shlex.split(text))}
    assert named <= {
        "run", "sweep", "promote", "logs", "stop", "ls", "show", "validate", "check", "compare", "eval", "sample",
        "export", "new", "models", "ui", "doctor", "sync", "diagnose",
    }  # fmt: skip
