"""The command line: the list of commands, and what an error looks like. Each command is a file of grpoctl.commands."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from core.errors import GrpoError
from grpoctl import __version__, exits
from grpoctl.commands.compare import compare
from grpoctl.commands.doctor import doctor
from grpoctl.commands.ls import ls
from grpoctl.commands.run import run
from grpoctl.commands.show import show
from grpoctl.commands.sync import sync
from grpoctl.commands.ui import ui
from grpoctl.commands.validate import validate

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's help imports a markdown parser and doubles the time of --help
    help="Finds a GRPO configuration that works on your task, and tells you, with evidence, why the others did not.",
    epilog="Exit codes: 0 good, 2 bad usage or spec, 3 failed, 4 stopped by a guard, 130 interrupted.",
)
for command in (run, ls, show, validate, compare, ui, doctor, sync):
    app.command()(command)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"grpoctl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[  # noqa: ARG001  its callback has printed it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if debug:
        os.environ["GRPOCTL_DEBUG"] = "1"


def main() -> None:
    """Run the command line; every error of ours is one line and an exit code."""
    try:
        app()
    except GrpoError as error:
        if os.environ.get("GRPOCTL_DEBUG"):
            raise
        from grpoctl import console

        console.print_error(str(error))
        sys.exit(exits.exit_code_of_error(error))
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)


if __name__ == "__main__":
    main()
