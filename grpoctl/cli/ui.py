"""`grpoctl ui`: MLflow's own pages on our store."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from grpoctl import console
from grpoctl.runs.run_dir import Home
from grpoctl.tracking.store import pages_command, pages_environment, pages_shell_line, store_name


def ui(
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to serve on.", min=1, max=65535)] = 5000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command instead of running it.")] = False,
) -> None:
    home = Home.locate()
    if dry_run:
        console.write(pages_shell_line(home, host, port))
        return
    line = pages_command(host, port)
    variables = pages_environment(home)
    console.print_text(f"serving {store_name(home)} on http://{host}:{port} (Ctrl-C ends it)")
    os.execve(line[0], line, variables)
