"""`grpoctl compare`: is B really better than A, or is that seed noise?"""

from __future__ import annotations

from typing import Annotated

import typer

from grpoctl.cli.options import Json


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Experiment (its finished runs, one per seed) or run.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Experiment or run to compare with A.")],
    profile: Annotated[str | None, typer.Option("--profile", "-p", help="Only runs of this profile.")] = None,
    json: Json = False,
) -> None:
    """Is B better than A, or is that seed noise?"""
    from grpoctl import console
    from grpoctl.analysis import compare as comparing
    from grpoctl.analysis.collect import sides
    from grpoctl.cli.verdicts import print_comparison
    from grpoctl.runs import liveness
    from grpoctl.runs.run_dir import Home

    home = Home.locate()
    liveness.reconcile(home)
    comparison = comparing.compare(*sides(home, a, b, profile))
    if json:
        console.print_json(comparison.document())
    else:
        print_comparison(comparison)
