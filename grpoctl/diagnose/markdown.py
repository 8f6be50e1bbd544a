"""A diagnosis as Markdown. What comes from logs stays text there: nothing of it becomes a heading, a mark or HTML.

What the report looks like is in templates/report.md.jinja.
"""

from __future__ import annotations

import re
from functools import cache, partial

import jinja2
from markupsafe import Markup

from core.text import harmless
from grpoctl.diagnose import rerun
from grpoctl.diagnose.diagnosis import Diagnosis, evidence_numbers, evidence_texts

_SPECIAL = re.compile(r"[\\`*\[\]<>|~&]|(?<!\w)_|_(?!\w)|^[#+=-]")
_CODE = re.compile(r"(`[^`]+`)")


def markdown(diagnosis: Diagnosis) -> str:
    """The whole report: verdict, findings, facts, settings and notes."""
    reading = diagnosis.reading
    text = _template().render(
        diagnosis=diagnosis,
        command=partial(rerun.command, reading),
        decider_command=partial(rerun.decider_command, reading),
        next_step=rerun.next_step(diagnosis),
    )
    return text.rstrip("\n")


def plain(text: str) -> str:
    """The text on one line, with what Markdown would read as marks escaped; what is in backquotes stays code."""
    parts = _CODE.split(" ".join(harmless(text).split()))
    return "".join(
        part if _CODE.fullmatch(part) else _SPECIAL.sub(lambda match: f"\\{match[0]}", part) for part in parts
    )


def code(text: str) -> str:
    """The text in backquotes, on one line."""
    flat = " ".join(harmless(text).split())
    longest = max((len(run) for run in re.findall("`+", flat)), default=0)
    mark = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{mark}{space}{flat}{space}{mark}"


@cache
def _template() -> jinja2.Template:
    """The report's template; a name that it does not get is an error, and every value in it becomes plain text.

    What is Markdown already is `Markup`: a macro's text, code, and a command inside its fence.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("grpoctl.diagnose"),
        autoescape=True,  # Markdown's marks, by `finalize`, in the place of HTML's
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else Markup(plain(str(value))),
    )
    environment.filters |= {"evidence_numbers": evidence_numbers, "evidence_texts": evidence_texts}
    environment.filters["code"] = lambda text: Markup(code(text))
    environment.filters["verbatim"] = lambda text: Markup(harmless(text))
    return environment.get_template("report.md.jinja")
