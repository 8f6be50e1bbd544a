"""The command line: the table of commands, and what an error looks like. Each command is a file of grpoctl.cli."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from core.errors import GrpoError, StorageError, in_words
from core.text import tolerant
from grpoctl.cli import exits
from grpoctl.runs.log import keep_off_terminal
from grpoctl.version import __version__

UsageError: Any = typer.BadParameter.__base__  # click's; which click it is depends on the version of typer

# Name -> the file of grpoctl.cli, which has a function of the file's name, and the command's help: `grpoctl --help`
# shows its first sentence, `grpoctl NAME --help` all of it.
COMMANDS = {
    "run": ("run", "Train an experiment and report the result."),
    "sweep": ("sweep", "Try many configurations on a fair budget and rank them."),
    "sweep-edit": ("sweep_edit", "End a trial of a running sweep, or add a changed copy of one."),
    "promote": ("promote", "Write a sweep's winner as a new experiment."),
    "new": (
        "new",
        "Write a new experiment with rewards and data. It runs as it is: change it into a task of your own.",
    ),
    "ls": ("ls", "List experiments, sweeps and runs."),
    "show": ("show", "Show a spec as it would run, or the result of a run or sweep."),
    "validate": ("validate", "Check specs without starting anything. Your code runs only with --rewards."),
    "check": (
        "check",
        "Check a spec before it runs. Shows advantages, dead groups, settings without effect, data and rewards.",
    ),
    "compare": ("compare", "Is B better than A, or is that seed noise?"),
    "report": ("report", "Write results as one page to send to a colleague. Or print them, as Markdown or JSON."),
    "logs": ("logs", "Print the log of a run or a study."),
    "stop": ("stop", "Stop a running run or study; --resume continues it."),
    "gc": ("gc", "What can go from the disk, and how much that frees. Removes nothing without --yes."),
    "models": ("models", "List models that profiles use, and those on this machine."),
    "ui": ("ui", "Open the runs in MLflow's own web pages."),
    "doctor": ("doctor", "Check versions, devices, store and cache."),
    "sync": ("sync", "Copy missing results to MLflow and Optuna."),
    "eval": ("evaluate", "Measure a model or a run on a task's problems, with intervals."),
    "sample": ("sample", "Show what a run or a model answers to a prompt."),
    "export": ("export", "Copy a run's weights, or write its settings for TRL or verl."),
    "import": ("import_spec", "Make a spec of a configuration of TRL's."),
    "diagnose": (
        "diagnose",
        "Diagnose a run. Lists findings with evidence, causes ruled out, and the next experiment.",
    ),
    "watch": (
        "watch",
        "Diagnose a log or a run while it grows. A line when a finding appears or is taken back.",
    ),
}
# rich's help imports a markdown parser and doubles the time of --help.
PLAIN: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}


class TableCommand(TyperCommand):
    """A name and a help text of the table; the file with the command's options is imported when it is used."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The parsed arguments of the command in the file. Raises UsageError for arguments that it does not take."""
        file, text = COMMANDS[str(info_name)]
        alone = typer.Typer(**PLAIN)
        alone.command(info_name, help=text)(getattr(importlib.import_module(f"grpoctl.cli.{file}"), file))
        return typer.main.get_command(alone).make_context(info_name, args, parent, **extra)


app = typer.Typer(
    **PLAIN,
    invoke_without_command=True,
    help="Finds a GRPO configuration that works on your task, and tells you, with evidence, why the others did not.",
    epilog="Exit codes: 0 success, 1 finding at --fail-on severity, 2 bad usage or spec, 3 failed, "
    "4 stopped by a guard, 130 interrupted.",
)
for _name, (_, _help) in COMMANDS.items():
    app.command(_name, cls=TableCommand, help=_help)(lambda: None)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"grpoctl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[  # noqa: ARG001  its callback has printed it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if debug:
        os.environ["GRPOCTL_DEBUG"] = "1"
    keep_off_terminal()
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(exits.USAGE)


def _as_a_setting(error: Any, command: str) -> str:
    """How a spec's setting is given, where somebody gave it as an option (`--learning-rate 1e-4`)."""
    option = str(getattr(error, "option_name", "") or "")
    takes_settings = command.rsplit(maxsplit=1)[-1] in ("run", "sweep", "show", "validate", "check", "eval")
    near = bool(getattr(error, "possibilities", None))
    if not takes_settings or near or not option.startswith("--"):
        return ""
    return f" (a setting of the spec? {option[2:].replace('-', '_')}=VALUE)"


def main() -> None:
    """Run the command line; every error is one line and an exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller (`<&-`, `>&-`)
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  as long as the process lives
    tolerant(sys.stdout)
    try:
        sys.exit(app(standalone_mode=False))
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else "grpoctl"
        said = " ".join(error.format_message().split()).rstrip(".")
        _fail(f"{said}{_as_a_setting(error, command)}; see: {command} --help", exits.USAGE)
    except (GrpoError, OSError) as error:
        if os.environ.get("GRPOCTL_DEBUG"):
            raise
        _fail(in_words(error) if isinstance(error, OSError) else str(error), exits.exit_code_of_error(error))
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
    finally:
        sys.excepthook = _print_uncaught  # only now: typer sets its own at each call


def _fail(message: str, code: int) -> None:
    from grpoctl import console

    with suppress(StorageError):  # standard error may be on a full disk, too
        console.print_error(message)
    sys.exit(code)


def _print_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A traceback without the passwords that may stand in its messages."""
    from grpoctl import console

    console.print_uncaught(kind, error, trace)


if __name__ == "__main__":
    main()
