"""Notebooks, HTML pages and LaTeX as lines of text: what was printed into them, their tables with tabs between cells.

Nothing of them is run. What is not here: what the lines mean (console_lines).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from core.errors import SpecError
from grpoctl.diagnose.readers.text import Line, head, unpacked

_LARGEST = 1 << 28  # bytes of a notebook or a page
_PAGE = re.compile(rb"<(?:!doctype html|html|table|div|tbody|tr)\b", re.IGNORECASE)
_TABLE = b"<table"
_LONGEST_TAG = 64  # bytes of a page's beginning
_SMALL = 1 << 22  # bytes of a text that has a table in it: a comment, not a log whose completions have one
_TABULAR = re.compile(r"\\begin\{(tabular[xy*]?|longtable)\}")
_LATEX = frozenset({".tex", ".md", ".markdown", ".rst", ".org"})  # suffixes of texts that may have a tabular in them
_MOST_NESTED = 8  # commands around a cell's text
_TABULAR_BEGINS = (rb"\begin{tabular", rb"\begin{longtable")
_COLUMN_TYPES = re.compile(r"\s*(?:\[[^\]]*\]|\{(?:[^{}]|\{[^{}]*\})*\})+")  # behind \begin{tabular}
_LATEX_ROW = re.compile(r"\\\\(?:\[[^\]]*\])?|\\tabularnewline\b")
_LATEX_RULE = re.compile(
    r"\\(?:toprule|midrule|bottomrule|hline|addlinespace|c(?:mid|line)rule|cline)\b(?:\([^)]*\))?(?:\{[^}]*\})?"
)
_LATEX_WRAPPED = re.compile(
    r"\\(?:textbf|textit|emph|texttt|textsc|underline|mathbf|mathrm|text|multirow\{[^}]*\}\{[^}]*\})\{([^{}]*)\}"
)
_LATEX_SPAN = re.compile(r"\\multicolumn\{(\d{1,2})\}\{[^}]*\}\{([^{}]*)\}")
_LATEX_COMMENT = re.compile(r"(?<!\\)%.*")
_LATEX_SIGNS = (
    (r"\rightarrow", "→"), (r"\to", "→"), (r"\pm", "±"), (r"\times", "×"), (r"\approx", "≈"), (r"\sim", "~"),
    (r"\beta", "β"), (r"\epsilon", "epsilon"), (r"\%", "%"), (r"\_", "_"), (r"\&", "and"), (r"\#", "#"), ("$", ""),
    ("~", " "), ("{", ""), ("}", ""), ("--", "-"),
)  # fmt: skip


def is_document(path: Path) -> bool:
    """Whether the file is a notebook (.ipynb), begins like a page of HTML, or is a small text with a table of HTML or
    LaTeX.
    """
    start = head(path)
    if _is_notebook(path, start) or _PAGE.match(start.lstrip()) is not None:
        return True
    suffix = path.suffix.lower()
    of_latex = suffix == ".tex" or (suffix in _LATEX and any(begin in start for begin in _TABULAR_BEGINS))
    return (of_latex or _TABLE in start.lower()) and path.stat().st_size <= _SMALL


def lines_of(path: Path) -> Iterator[Line]:
    """The lines that a reader of the document sees. Raises SpecError for a damaged notebook."""
    if not _is_notebook(path, head(path)):
        page = unpacked(path, _LARGEST).decode("utf-8", "replace")
        text = _without_latex(page) if path.suffix.lower() in _LATEX else page
        is_page = _PAGE.match(page.lstrip().encode()[:_LONGEST_TAG]) is not None or _TABLE.decode() in page.lower()
        text = text_of_html(text) if is_page else text
        yield from (Line(number, line) for number, line in enumerate(text.split("\n"), 1))
        return
    try:
        notebook = json.loads(unpacked(path, _LARGEST))
        texts = [text for cell in notebook.get("cells", ()) for text in _of_cell(cell)]
    except (ValueError, RecursionError, AttributeError, TypeError) as error:
        where = f" from line {error.lineno} on" if isinstance(error, json.JSONDecodeError) else ""
        raise SpecError(
            f"damaged notebook: no JSON of one{where}; save it again, or give the log by itself", file=path
        ) from None
    lines = "\n".join(texts).split("\n")
    yield from (Line(number, text) for number, text in enumerate(lines, 1))


def _is_notebook(path: Path, start: bytes) -> bool:
    return path.suffix.lower() == ".ipynb" and start.lstrip().startswith(b"{")


def _of_cell(cell: dict[str, object]) -> Iterator[str]:
    """What a cell says: its source (settings stand there), then what it printed and displayed."""
    yield _joined(cell.get("source"))
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        data = output.get("data") or {}
        if "text/html" in data:
            yield text_of_html(_joined(data["text/html"]))
        else:
            yield _joined(output.get("text") or data.get("text/plain"))


def _joined(text: object) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else text if isinstance(text, str) else ""


class _Rows(HTMLParser):
    """Text, with a table's row on a line of its own and tabs between its cells."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._cells: list[str] | None = None
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """A row begins, or a cell of it."""
        if tag in ("script", "style"):
            self._silent += 1
        elif tag == "tr":
            self._end_row()
            self._cells = []
        elif tag in ("td", "th") and self._cells is not None:
            self._cells.append("")
        elif tag in ("br", "p", "div", "pre", "li") and self._cells is None:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        """A row ends, with its table if need be."""
        if tag in ("script", "style"):
            self._silent = max(0, self._silent - 1)
        elif tag in ("tr", "table"):
            self._end_row()

    def handle_data(self, data: str) -> None:
        """Text of a cell, or between tables."""
        if self._silent:
            return
        if self._cells is None:
            self.parts.append(data)
        elif self._cells:
            self._cells[-1] += " ".join(data.split())

    def _end_row(self) -> None:
        if self._cells:
            self.parts.append("\n" + "\t".join(self._cells) + "\n")
        self._cells = None


def text_of_html(page: str) -> str:
    """What a reader of the page sees, a table's cells with tabs between them."""
    parser = _Rows()
    parser.feed(page)
    parser.close()
    return "".join(parser.parts)


def _without_latex(page: str) -> str:
    """The text with each table of LaTeX as lines with tabs between cells."""
    parts, at = [], 0
    while (begin := _TABULAR.search(page, at)) is not None:
        end = page.find(f"\\end{{{begin[1]}}}", begin.end())
        if end < 0:
            break
        parts += [page[at : begin.start()], "\n", _rows_of_latex(page[begin.end() : end]), "\n"]
        at = end + len(f"\\end{{{begin[1]}}}")
    return "".join([*parts, page[at:]])


def _rows_of_latex(body: str) -> str:
    """The rows of a tabular, without its rules and type."""
    types = _COLUMN_TYPES.match(body)
    body = _LATEX_COMMENT.sub("", body if types is None else body[types.end() :])
    rows = [_LATEX_RULE.sub(" ", row) for row in _LATEX_ROW.split(body)]
    cells = [[_plain_cell(cell) for cell in re.split(r"(?<!\\)&", row)] for row in rows if row.strip()]
    return "\n".join("\t".join(row) for row in cells if any(row))


def _plain_cell(cell: str) -> str:
    """A cell as it is read in print; one over several columns is followed by empty ones."""
    spans = _LATEX_SPAN.search(cell)
    cell = _LATEX_SPAN.sub(r"\2", cell)
    for _ in range(_MOST_NESTED):
        cell = _LATEX_WRAPPED.sub(r"\1", cell)
    for written, sign in _LATEX_SIGNS:
        cell = cell.replace(written, sign)
    return " ".join(cell.split()) + "\t" * (int(spans[1]) - 1 if spans else 0)
