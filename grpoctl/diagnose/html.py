"""A diagnosis as one HTML page: nothing is fetched, no script runs, figures are part of it, foreign text is escaped.

What the page looks like is in templates/page.html.jinja and page.css.
"""

from __future__ import annotations

import base64
import re
from functools import cache, partial
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from core.errors import StorageError
from core.text import harmless
from grpoctl.diagnose import rerun
from grpoctl.diagnose.diagnosis import Diagnosis, evidence_numbers, evidence_texts
from grpoctl.diagnose.figures import MOST, figure_svg, panels, updates
from grpoctl.files import replace_text, storage_errors
from grpoctl.version import __version__

_MOST_FIGURES = 6  # sources that are drawn


def write_html(diagnosis: Diagnosis, file: Path) -> None:
    """Put the page in the place of `file`, whole or not at all. Raises StorageError."""
    replace_page(file, page(diagnosis))


def replace_page(file: Path, text: str) -> None:
    """Put a page's text in the place of `file`, whole or not at all. Raises StorageError."""
    try:
        replace_text(file, text, durable=False)
    except StorageError as error:  # without the advice that is meant for runs
        why = error.__cause__
        reason = getattr(why, "strerror", None) or why
        raise StorageError(f"cannot write {file}: {reason}; name a file in a folder of yours: --html FILE") from why


def page(diagnosis: Diagnosis) -> str:
    """The page: verdict, figure, findings, facts, settings, notes."""
    reading = diagnosis.reading
    drawn = {one.source: one.case.rows for one in diagnosis.readings[:_MOST_FIGURES]}
    figures = [(source, svg) for source, rows in drawn.items() if (svg := figure_svg(rows))]
    shown = "".join(svg for _, svg in figures)
    has_errors = any(panel.errors for rows in drawn.values() for panel in panels(rows))
    updated = sum(len(updates(rows)) for rows in drawn.values())
    legend = {  # class of the key -> what is drawn so
        "train": "training",
        "eval": "evaluation" + (", with its standard error" if has_errors else ""),
        "bad": "all completions invalid",
        "mark": f"step with an update ({updated}); the others had none",
    }
    return _template().render(
        diagnosis=diagnosis,
        version=__version__,
        figures=[(source, Markup(svg)) for source, svg in figures],
        not_drawn=[one.source for one in diagnosis.readings[_MOST_FIGURES:]],
        legend={key: text for key, text in legend.items() if f"var(--{key})" in shown},
        thinned_to=MOST if any(len(rows) > MOST for rows in drawn.values()) else None,
        pictures=[(file.stem.replace("-", " "), image_address(file)) for file in reading.pictures],
        command=partial(rerun.command, reading),
        decider_command=partial(rerun.decider_command, reading),
        next_step=rerun.next_step(diagnosis),
    )


def image_address(file: Path) -> str:
    """A PNG image as an address that holds all of it, so that the page needs no other file. Raises StorageError."""
    with storage_errors("read", file):
        return f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode('ascii')}"


@cache
def _template() -> jinja2.Template:
    environment = page_environment("grpoctl.diagnose")
    environment.filters |= {"evidence_numbers": evidence_numbers, "evidence_texts": evidence_texts}
    return environment.get_template("page.html.jinja")


def page_environment(package: str) -> jinja2.Environment:
    """Of the pages in a package's `templates`: a name that a page does not get is an error, every value plain text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else harmless(str(value)),
    )
    environment.filters["prose"] = prose
    return environment


def prose(text: str) -> Markup:
    """A sentence, what is in backquotes as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(harmless(text)))))
