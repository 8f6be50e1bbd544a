"""A diagnosis as one HTML page: nothing is fetched, no script runs, figures are part of it, foreign text is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from core.errors import StorageError
from core.health.finding import Finding
from core.text import harmless
from grpoctl.diagnose import rerun, wording
from grpoctl.diagnose.diagnosis import Diagnosis
from grpoctl.diagnose.figures import figure_svg
from grpoctl.diagnose.readers.base import Read
from grpoctl.diagnose.series import MOST, panels, updates
from grpoctl.files import replace_text
from grpoctl.version import __version__

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2125; --soft: #5b6570; --faint: #d9dee3; --page: #ffffff; --box: #f5f7f9;
  --train: #2f6fb3; --eval: #b3730c; --bad: #c8372d; --warn: #a86400; --good: #2b7a3d; --mark: #f0c9b8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --soft: #9aa4ae; --faint: #3a424b; --page: #15181b; --box: #1f2429;
    --train: #6aaef0; --eval: #eab04f; --bad: #ff7b6e; --warn: #f0b04a; --good: #6fcf86; --mark: #5c3a30; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0; } p { margin: .5rem 0; } ul { margin: .3rem 0; padding-left: 1.2rem; }
.soft, figcaption, dt { color: var(--soft); font-size: .9rem; }
.verdict { font-size: 1.05rem; margin: .8rem 0; }
.badge { display: inline-block; padding: 0 .5em; border: 1.5px solid currentColor; border-radius: .3em;
  font-weight: 600; font-size: .8rem; letter-spacing: .03em; margin-right: .4em; }
.error { color: var(--bad); } .warning, .unknown { color: var(--warn); } .info { color: var(--soft); }
.ok { color: var(--good); }
.finding { background: var(--box); border-left: 4px solid var(--faint); border-radius: .3rem; padding: .8rem 1rem;
  margin: .8rem 0; }
.finding.error { border-color: var(--bad); color: inherit; } .finding.warning { border-color: var(--warn);
  color: inherit; } .finding.info { color: inherit; }
dl { margin: .6rem 0 0; } dt { margin-top: .6rem; } dd { margin: 0; }
code, pre, .number { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .86rem; }
pre { background: var(--page); border: 1px solid var(--faint); border-radius: .3rem; padding: .4rem .6rem;
  margin: .2rem 0; white-space: pre-wrap; }
figure { margin: 1rem 0; } .scroll { overflow-x: auto; } svg { display: block; width: 100%; min-width: 34rem;
  height: auto; } svg * { stroke-linejoin: round; }
table { border-collapse: collapse; font-size: .9rem; } .columns { columns: 19rem; column-gap: 2rem; }
.columns table { width: 100%; } td { padding: .15rem .6rem .15rem 0; border-bottom: 1px solid var(--faint); }
td.number { text-align: right; padding-right: 0; } tr { break-inside: avoid; }
.entry { display: inline-block; margin-right: 1.2em; }
.key { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .4em; }
.key.mark { width: .25em; height: 1em; border-radius: 0; vertical-align: -.1em; }
.train { background: var(--train); } .eval { background: var(--eval); } .bad { background: var(--bad); }
.mark { background: var(--mark); }
"""
# Nothing but what stands in the page itself may be used: a log's text can then do nothing even if it were markup.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write_html(diagnosis: Diagnosis, file: Path) -> None:
    """Put the page in the place of `file`, whole or not at all. Raises StorageError."""
    text = page(diagnosis)
    try:
        replace_text(file, text, durable=False)
    except StorageError as error:  # without the advice that is meant for runs
        why = error.__cause__
        raise StorageError(f"cannot write {file}: {getattr(why, 'strerror', None) or why}") from why


def page(diagnosis: Diagnosis) -> str:
    """The page: verdict, figures, findings, facts, settings, notes."""
    read = diagnosis.read
    title = f"Diagnosis of {_text(read.source.rstrip('/').rsplit('/', 1)[-1])}"
    body = [
        f"<h1>{title}</h1>",
        f'<p class="soft">{_text(read.source)}, read as {_text(read.kind)} by grpoctl {_text(__version__)}</p>',
        _verdict(diagnosis),
        _figure(diagnosis),
        "<h2>Findings</h2>" if diagnosis.findings else "",
        *(_finding(read, finding) for finding in diagnosis.findings),
        _next(diagnosis),
        _table("Facts", wording.fact_rows(diagnosis)),
        _table("Settings that are known", wording.setting_rows(diagnosis)),
        _list("Notes of the reader", read.notes),
    ]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            *(part for part in body if part),
            "</body>\n</html>\n",
        ]
    )


def _next(diagnosis: Diagnosis) -> str:
    command, does = rerun.next_step(diagnosis) or ("", "")
    return _commands(f"This {does}", command)


def _text(text: str) -> str:
    """Foreign text: no markup, no control characters."""
    return escape(harmless(text))


def _prose(text: str) -> str:
    """A sentence, what is in backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", _text(text))


def _verdict(diagnosis: Diagnosis) -> str:
    return f'<p class="verdict">{_badge(wording.worst(diagnosis))} {_text(wording.verdict(diagnosis))}</p>'


def _badge(word: str) -> str:
    return f'<span class="badge {word}">{word.upper()}</span>'


def _figure(diagnosis: Diagnosis) -> str:
    rows = diagnosis.read.case.rows
    svg = figure_svg(rows)
    if not svg:
        return '<p class="soft">No figure: no column that would be drawn has two values.</p>'
    marks = len(updates(rows))
    said = {
        "train": "training",
        "eval": "evaluation" + (", with its standard error" if any(panel.errors for panel in panels(rows)) else ""),
        "bad": "all completions invalid",
        "mark": f"step with an update ({marks}); the others had none",
    }
    shown = {name: text for name, text in said.items() if f"var(--{name})" in svg}
    keys = "\n".join(
        f'<span class="entry"><span class="key {name}"></span>{text}</span>' for name, text in shown.items()
    )
    if len(rows) > MOST:
        keys += f'\n<span class="entry">({MOST} points, each the mean of neighbouring steps)</span>'
    return (
        f"<figure>\n<figcaption>{keys}</figcaption>\n"
        f'<div class="scroll" role="img" aria-label="Curves over the steps">\n{svg}\n</div>\n</figure>'
    )


def _finding(read: Read, finding: Finding) -> str:
    parts = []
    numbers, texts = wording.numbers(finding), wording.texts(finding)
    if numbers or texts:
        said = [f'<p class="number">{_text(numbers)}</p>'] if numbers else []
        said += [
            f"<p>{_text(key)}:{''.join(f'<br><code>{_text(line)}</code>' for line in lines)}</p>"
            for key, lines in texts
        ]
        parts.append(("Evidence", "".join(said)))
    if finding.rules_out:
        causes = [f"<b>{_text(one.id)}</b>: {_prose(one.why)}" for one in finding.rules_out]
        parts.append(("Ruled out", f"<ul>{''.join(f'<li>{cause}</li>' for cause in causes)}</ul>"))
    if finding.suggest:
        parts.append(("Try", f"<pre>{_text(rerun.command(read, finding.suggest))}</pre>"))
    if finding.advice:
        parts.append(("Advice", _prose(finding.advice)))
    if (decider := finding.decider) is not None:
        text = f"<p>{_prose(decider.question)}</p>"
        if decider.overrides:
            text += f"<pre>{_text(rerun.decider_command(read, decider))}</pre>"
        if decider.expects:
            text += f"<p>If it is right: <code>{_text(', '.join(decider.expects))}</code></p>"
        parts.append(("What would decide it", text))
    rest = "".join(f"<dt>{title}</dt><dd>{text}</dd>" for title, text in parts)
    head = f"{_badge(finding.severity)}{_text(finding.id)} <span class='soft'>({finding.confidence})</span>"
    return (
        f'<section class="finding {finding.severity}">\n<h3>{head}</h3>\n<p>{_prose(finding.summary)}</p>\n'
        f"<dl>{rest}</dl>\n</section>"
    )


def _commands(title: str, command: str) -> str:
    return f"<h2>{title}</h2>\n<pre>{_text(command)}</pre>" if command else ""


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    if not rows:
        return ""
    cells = "\n".join(f'<tr><td>{_text(a)}</td><td class="number">{_text(b)}</td></tr>' for a, b in rows)
    return f'<h2>{title}</h2>\n<div class="columns"><table>\n{cells}\n</table></div>'


def _list(title: str, said: Sequence[str]) -> str:
    return f"<h2>{title}</h2>\n<ul>{''.join(f'<li>{_prose(one)}</li>' for one in said)}</ul>" if said else ""
