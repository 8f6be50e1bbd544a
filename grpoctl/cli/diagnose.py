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
    md: Annotated[bool, typer.Option("--md", help="Print the report as Markdown.")] = False,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Also write the report with figures as one HTML file.")
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="SEVERITY",
            help="Exit code 1 on a finding of this severity or worse: error, warning or never.",
        ),
    ] = "never",
    propose: Annotated[
        str | None,
        typer.Option("--propose", metavar="NAME", help="Write the deciding experiment to ./experiments/NAME.yaml."),
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option("--map", metavar="COLUMN=METRIC", help="Read a CSV column as this metric.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting that the log does not contain.")
    ] = None,
) -> None:
    """Diagnose a run. Lists findings with evidence, causes ruled out, and the next experiment."""
    from grpoctl.cli import diagnosing, page_file

    form = diagnosing.form(json=json, md=md)
    read = diagnosing.named(source, columns or (), settings or ())
    wanted = diagnosing.Wanted(
        form=form, html=page_file.place(html), propose=propose, fail_on=diagnosing.limit(fail_on)
    )
    raise typer.Exit(diagnosing.run(read, wanted))
