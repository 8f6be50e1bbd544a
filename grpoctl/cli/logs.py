"""`grpoctl logs`: what a run or a study printed."""

from __future__ import annotations

from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(metavar="NAME", help="Run or study: id, its beginning, name or directory.")]


def logs(
    name: Name,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until it ends.")] = False,
    lines: Annotated[int | None, typer.Option("--lines", "-n", help="Only the last N lines so far.", min=0)] = None,
) -> None:
    """Print the log of a run or a study."""
    from itertools import chain

    from grpoctl import console
    from grpoctl.cli.following import exit_code, followed, lines_until_the_end
    from grpoctl.cli.places import print_choice, run_or_study
    from grpoctl.runs import liveness
    from grpoctl.runs.run_dir import Home

    home = Home.locate()
    liveness.reconcile(home)
    place = run_or_study(home, name, running_first=True)
    print_choice(home, name, place)
    source = followed(place)
    if source.note:
        console.print_note(source.note)
    so_far = source.new_lines()
    shown = so_far if lines is None else so_far[len(so_far) - min(lines, len(so_far)) :]
    for line in chain(shown, lines_until_the_end(source) if follow else ()):
        console.print_text(line)
    if follow:
        ended, message = source.standing()
        console.print_text(f"{source.id}: {ended}{f', {message}' if message else ''}")
        raise typer.Exit(exit_code(ended))
