"""The table of commands: each has a file, which is imported when the command is used and not before."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grpoctl.app import COMMANDS, app, main
from tests.architecture.source import ROOT

# The modules of grpoctl.cli that are loaded once main() has ended, after what it printed.
LOADED = """\
import json, sys
from grpoctl.app import main
try:
    main()
except SystemExit:
    print(json.dumps([name.removeprefix("grpoctl.cli.") for name in sys.modules if name.startswith("grpoctl.cli.")]))
"""


def loaded_by(*arguments: str, cwd: Path) -> set[str]:
    command = [sys.executable, "-P", "-c", LOADED, *arguments]
    process = subprocess.run(
        command, cwd=cwd, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(process.stdout.splitlines()[-1]))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_a_file_with_a_function_of_that_name(command: str) -> None:
    file, text = COMMANDS[command]
    tree = ast.parse((ROOT / "grpoctl" / "cli" / f"{file}.py").read_text(encoding="utf-8"))
    assert file in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert text


def test_no_two_commands_share_a_file() -> None:
    files = [file for file, _ in COMMANDS.values()]
    assert len(set(files)) == len(files)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_is_the_text_of_the_table(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: root {command} ")
    assert " ".join(COMMANDS[command][1].split()) in " ".join(result.output.split())


def test_help_lists_every_command_with_the_first_sentence_of_its_text() -> None:
    lines = CliRunner().invoke(app, ["--help"]).output.splitlines()
    listed = [line.split(maxsplit=1) for line in lines[lines.index("Commands:") + 1 :] if line.startswith("  ")]
    shown = dict(entry for entry in listed if entry[0] in COMMANDS)
    assert list(shown) == list(COMMANDS)
    assert all(COMMANDS[name][1].startswith(text) and text[-1] in ".?" for name, text in shown.items())


@pytest.mark.process
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("--nope",), ("shwo",), ()], ids=" ".join)
def test_what_needs_no_command_imports_none(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert loaded_by(*arguments, cwd=tmp_path) & {file for file, _ in COMMANDS.values()} == set()


@pytest.mark.process
def test_a_command_imports_its_file_and_no_other_command(tmp_path: Path) -> None:
    assert loaded_by("new", "--help", cwd=tmp_path) & {file for file, _ in COMMANDS.values()} == {"new"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "p31", "--learning-rate=3e-4"], "--learning-rate (a setting of the spec? learning_rate=VALUE); see"),
        (["run", "p31", "--sed", "3"], "--sed (Possible options: --seed, --seeds); see"),
        (["ls", "--learning-rate", "3"], "--learning-rate; see: grpoctl ls --help"),
    ],
)
def test_a_setting_given_as_an_option(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["grpoctl", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, says in capsys.readouterr().err) == (2, True)
