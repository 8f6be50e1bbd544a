"""A report as Markdown. What comes from prompts and logs stays text there: nothing of it becomes a mark or HTML.

Charts are tables where those are short; what the report looks like is in templates/report.md.jinja.
"""

from __future__ import annotations

from functools import cache

import jinja2
from markupsafe import Markup

from core.text import harmless
from grpoctl.diagnose.markdown import code, plain
from grpoctl.report.document import Cell, Report

_SHORT = 40  # rows of a table that stands for a chart


def markdown(report: Report) -> str:
    """The whole report: verdicts, tables, the same prompts side by side, commands."""
    return _template().render(report=report, short=_SHORT).rstrip("\n")


def cell_text(value: Cell) -> str:
    """A number of a chart's table in four digits."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@cache
def _template() -> jinja2.Template:
    """The report's template; every value in it becomes plain text but for what is code or a command in its fence."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("grpoctl.report"),
        autoescape=True,  # Markdown's marks, by `finalize`, in the place of HTML's
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else Markup(plain(str(value))),
    )
    environment.filters |= {
        "code": lambda text: Markup(code(str(text))),
        "verbatim": lambda text: Markup(harmless(str(text))),
        "cell": cell_text,
    }
    environment.tests["kind"] = lambda block, name: type(block).__name__ == name
    return environment.get_template("report.md.jinja")
