"""A report as one HTML page that needs no other file: charts are drawn in it by Vega-Lite, numbers are part of it.

Prompts and answers are anybody's words. Every value becomes plain text where the page is made, data stands in blocks
that are no program, and the page's own policy lets nothing run but the four scripts whose hashes it names: no inline
handler, no address, no `eval` (Vega reads its expressions by an interpreter), and nothing from the network.

What the page looks like is in templates/page.html.jinja, page.css and page.js; vega/ has Vega as its makers publish it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from core.text import harmless
from grpoctl.diagnose.html import image_address, page_environment, replace_page
from grpoctl.report.document import Block, Chart, Pictures, Report
from grpoctl.sections import Section
from grpoctl.version import __version__

MOST_BYTES = 1_500_000  # of pictures in a page: it is to be sent by mail
LONG = 30  # rows from which on a table is folded
_SCRIPTS = ("vega/vega.min.js", "vega/vega-lite.min.js", "vega/vega-interpreter.min.js", "templates/page.js")
_HERE = Path(__file__).parent
_NUMBER = re.compile(r"[+-]?\d[\d.,e+\- ]*(?:±.*|\[.*)?$")  # a cell that is not broken into lines


def write_page(report: Report, file: Path) -> None:
    """Put the page in the place of `file`, whole or not at all. Raises StorageError."""
    replace_page(file, page(report))


def page(report: Report) -> str:
    """The page: verdicts first, then part by part what they rest on."""
    charts = {
        block.name: {**block.spec, "description": harmless(block.title)}
        for part in report.parts
        for block in part.blocks
        if isinstance(block, Chart)
    }
    scripts, style = _scripts(), _text("templates/page.css")
    return _template().render(
        report=report,
        version=__version__,
        rows=_rows,
        pictures=_addresses(report),
        policy=_policy(scripts, style),
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        data=embedded(report.document()),
        charts=embedded(charts),
        long=LONG,
    )


def embedded(value: Mapping[str, Any]) -> Markup:
    """JSON that ends no element, whatever stands in it: ASCII alone, and no sign that HTML knows.

    Half a surrogate pair, a NUL, signs that turn the direction of writing round: all are escapes of JSON.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _rows(blocks: Sequence[Block]) -> list[list[Block]]:
    """The blocks; small charts that follow each other share a row."""
    rows: list[list[Block]] = []
    for block in blocks:
        beside = rows and all(isinstance(one, Chart) and one.small for one in (block, *rows[-1]))
        if beside:
            rows[-1].append(block)
        elif not isinstance(block, Section) or block.lines or block.rows:
            rows.append([block])
    return rows


def _addresses(report: Report) -> dict[Path, str | None]:
    """Each picture as an address that holds all of it; None for those that there is no more room for."""
    blocks = [block for part in report.parts for block in part.blocks if isinstance(block, Pictures)]
    files = [one.file for block in blocks for one in block.pictures]
    left, addresses = MOST_BYTES, {}
    for file in dict.fromkeys(files):
        size = file.stat().st_size
        addresses[file] = image_address(file) if size <= left else None
        left -= size if size <= left else 0
    return addresses


def _policy(scripts: Sequence[str], style: str) -> str:
    """What the page may do: run these scripts, use this style, show images that stand in it. Nothing else."""
    runs = " ".join(_digest(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {runs}; style-src {_digest(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


@cache
def _scripts() -> tuple[str, ...]:
    """The scripts of the page, without what points to files that are not in it."""
    texts = (_text(name) for name in _SCRIPTS)
    return tuple("\n".join(line for line in text.split("\n") if not line.startswith("//# source")) for text in texts)


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def _template() -> jinja2.Template:
    environment = page_environment("grpoctl.report")
    environment.tests["number_text"] = lambda cell: _NUMBER.match(cell) is not None
    environment.tests["kind"] = lambda block, name: type(block).__name__ == name
    return environment.get_template("page.html.jinja")
