"""The command line: the list of commands, and what an error looks like. Each command is a file of grpoctl.cli."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import TracebackType
from typing import Annotated, Any

import typer

from core.errors import GrpoError, StorageError, in_words
from core.text import tolerant
from grpoctl.cli import exits
from grpoctl.cli.check import check
from grpoctl.cli.compare import compare
from grpoctl.cli.diagnose import diagnose
from grpoctl.cli.doctor import doctor
from grpoctl.cli.evaluate import evaluate
from grpoctl.cli.export import export
from grpoctl.cli.logs import logs
from grpoctl.cli.ls import ls
from grpoctl.cli.models import models
from grpoctl.cli.new import new
from grpoctl.cli.promote import promote
from grpoctl.cli.run import run
from grpoctl.cli.sample import sample
from grpoctl.cli.show import show
from grpoctl.cli.stop import stop
from grpoctl.cli.sweep import sweep
from grpoctl.cli.sync import sync
from grpoctl.cli.ui import ui
from grpoctl.cli.validate import validate
from grpoctl.runs.log import keep_off_terminal
from grpoctl.version import __version__

UsageError: Any = typer.BadParameter.__base__  # click's; which click it is depends on the version of typer

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's help imports a markdown parser and doubles the time of --help
    help="Finds a GRPO configuration that works on your task, and tells you, with evidence, why the others did not.",
    epilog="Exit codes: 0 success, 1 finding at --fail-on severity, 2 bad usage or spec, 3 failed, "
    "4 stopped by a guard, 130 interrupted.",
)
for command in (run, sweep, promote, new, ls, show, validate, check, compare, logs, stop, models, ui, doctor, sync):
    app.command()(command)
app.command("eval")(evaluate)
app.command()(sample)
app.command()(export)
app.command()(diagnose)


def _print_version(asked: bool) -> None:
    if asked:
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
        _fail(f"{' '.join(error.format_message().split()).rstrip('.')}; see: {command} --help", exits.USAGE)
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
