"""`grpoctl diagnose`: what went wrong in a run, with evidence."""

from __future__ import annotations

from typing import Annotated

import typer

from grpoctl.cli.options import Json


def diagnose(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Run (id, experiment, directory), trainer_state.json or a folder with one, log (.gz too), .csv, "
            "mlflow.db, mlflow:[URI#]RUN_ID, - for standard input.",
        ),
    ],
    json: Json = False,
    md: Annotated[bool, typer.Option("--md", help="The report as Markdown on standard output.")] = False,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="The report with figures as one HTML file, too.")
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option("--fail-on", metavar="SEVERITY", help="error, warning or never: exit code 1 where there is one."),
    ] = "never",
    propose: Annotated[
        str | None,
        typer.Option("--propose", metavar="NAME", help="Write the deciding experiment to ./experiments/NAME.yaml."),
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option("--map", metavar="COLUMN=METRIC", help="A CSV's column is this metric.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the run that its log lacks.")
    ] = None,
) -> None:
    """Say what went wrong: findings with evidence, the causes it rules out, and the next experiment."""
    from grpoctl.cli import diagnosing, page_file

    form = diagnosing.form(json=json, md=md)
    read = diagnosing.named(source, columns or (), settings or ())
    wanted = diagnosing.Wanted(
        form=form, html=page_file.place(html), propose=propose, fail_on=diagnosing.limit(fail_on)
    )
    raise typer.Exit(diagnosing.run(read, wanted))
