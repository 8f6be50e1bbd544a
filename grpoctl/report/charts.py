"""The charts of a report as Vega-Lite specs, drawn from tables under names of ours.

Nothing of anybody's data is ever a field's name, an expression or an address here: data stands in the tables, and a
title of an axis is a plain text. Colours are variables of the page, which says what they are in the light and in the
dark; so scales that mix colours are not used.

What is not here: filling the tables (series, sides, study).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.text import harmless

Spec = dict[str, Any]

SIDES = 8  # colours that can be told apart; from there on they come again, dashed
MOST_LABEL = 46  # characters of a label beside a row
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2])
_STEP = 22  # pixels of a row
BEST, WORSE, UNTESTED, STOPPED = (
    "best, or not told apart",
    "significantly worse",
    "not tested",
    "some stopped by a guard",
)
STATES = {
    BEST: "var(--blue)",
    WORSE: "var(--grey)",
    UNTESTED: "var(--s4)",
    STOPPED: "var(--red)",
}  # of a candidate -> its colour
_SHAPES = {BEST: "circle", WORSE: "square", UNTESTED: "circle", STOPPED: "cross"}


def shortened(text: str, most: int = MOST_LABEL) -> str:
    """The text on one line, cut with an ellipsis where it is longer."""
    flat = " ".join(harmless(text).split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def distinct(labels: Sequence[str], most: int = MOST_LABEL) -> list[str]:
    """The labels cut to fit, those that are then alike told apart by a number."""
    seen: dict[str, int] = {}
    made = []
    for label in (shortened(text, most) for text in labels):
        seen[label] = seen.get(label, 0) + 1
        made.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return made


def by_side(names: Sequence[str], colours: Sequence[str] = ()) -> Mapping[str, Spec]:
    """The encodings that tell sides apart: by colour and, from the ninth on, by dashes."""
    domain = [shortened(name) for name in names]
    colours = colours or [f"var(--s{place % SIDES})" for place in range(len(names))]
    dashes = [_DASHES[place // SIDES % len(_DASHES)] for place in range(len(names))]
    # A legend of one entry says nothing.
    legend = {
        "title": None, "orient": "top", "columns": 1, "symbolOpacity": 1, "symbolStrokeWidth": 3,
    } if len(names) > 1 else None  # fmt: skip
    return {
        "color": {
            "field": "side", "type": "nominal", "scale": {"domain": domain, "range": colours}, "legend": legend,
        },
        "strokeDash": {
            "field": "side", "type": "nominal", "scale": {"domain": domain, "range": dashes}, "legend": legend,
        },
    }  # fmt: skip


def curves(
    x: str,
    titles: tuple[str, str],
    sides: Mapping[str, Spec],
    tables: tuple[str, str],
    *,
    limits: tuple[float, float] | None = None,
    many: bool = False,
) -> Spec:
    """Every seed thin, the mean of each side thick; `tables` are those of the seeds and of the means.

    `titles` are of x and y, `limits` those of y where data do not say; of `many` runs each is fainter.
    """
    x_title, y_title = titles
    scale = {"zero": False, **({} if limits is None else {"domain": list(limits), "nice": False})}
    seeds, means = tables
    shared = {
        "x": {"field": "x", "type": "quantitative", "title": x_title, "axis": {"tickCount": 5}},
        "y": {"field": "value", "type": "quantitative", "title": y_title, "scale": scale},
    }
    there = {"filter": {"field": "axis", "equal": x}}
    tooltip = [
        {"field": "side", "title": "side"}, {"field": "seed", "title": "seed"},
        {"field": "x", "title": x_title, "format": ",.4~g"}, {"field": "value", "title": y_title, "format": ".4f"},
    ]  # fmt: skip
    thin = {"color": sides["color"], "strokeDash": sides["strokeDash"], "detail": {"field": "run"}}
    return {
        "height": 240,
        "layer": [
            {
                "data": {"name": seeds}, "transform": [there],
                "mark": {"type": "line", "strokeWidth": 1, "opacity": 0.2 if many else 0.5},
                "encoding": {**shared, **thin, "tooltip": tooltip},
            },
            {
                "data": {"name": means}, "transform": [there],
                "mark": {"type": "line", "strokeWidth": 3},
                "encoding": {**shared, "color": sides["color"], "strokeDash": sides["strokeDash"],
                             "tooltip": [tooltip[0], *tooltip[2:]]},
            },
        ],
    }  # fmt: skip


def forest(table: str, rows: Sequence[str], x_title: str, *, zero: bool = False, seeds: str | None = None,
           states: Sequence[str] = ()) -> Spec:  # fmt: skip
    """One row per label: its mean as a dot, its interval as a bar, small ticks for seeds; a rule at 0 for differences.

    The table has `label` (as in `rows`), `mean`, `low`, `high`, that of the seeds `label` and `value`; where there are
    `states`, also `state`, which is one of them.
    """
    order = list(rows)
    y = {
        "field": "label", "type": "nominal", "title": None, "sort": order,
        "scale": {"domain": order},
        "axis": {"grid": True, "ticks": False, "domain": False, "labelPadding": 10},
    }  # fmt: skip
    x = {
        "field": "mean", "type": "quantitative", "title": x_title, "scale": {"zero": False}, "axis": {"tickCount": 7},
    }  # fmt: skip
    tooltip = [
        {"field": "label", "title": " "}, {"field": "mean", "title": "mean", "format": ".4f"},
        {"field": "low", "title": "from", "format": ".4f"}, {"field": "high", "title": "to", "format": ".4f"},
    ]  # fmt: skip
    colour: Spec = {"value": "var(--blue)"}
    shape: Spec = {"value": "circle"}
    if states:
        domain = [state for state in STATES if state in states]
        colours, shapes = [STATES[state] for state in domain], [_SHAPES[state] for state in domain]
        legend = {"title": None, "orient": "top", "columns": 1}
        colour = {
            "field": "state",
            "type": "nominal",
            "scale": {"domain": domain, "range": colours},
            "legend": legend,
        }
        shape = {"field": "state", "type": "nominal", "scale": {"domain": domain, "range": shapes}, "legend": legend}
    layers: list[Spec] = []
    if zero:
        layers.append({
            "data": {"values": [{"zero": 0}]},
            "mark": {"type": "rule", "color": "var(--ink)", "strokeDash": [4, 3]},
            "encoding": {"x": {"field": "zero", "type": "quantitative"}},
        })  # fmt: skip
    layers.append({
        "data": {"name": table},
        "transform": [{"filter": {"field": "low", "valid": True}}],
        "mark": {"type": "rule", "strokeWidth": 3},
        "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colour, "tooltip": tooltip},
    })  # fmt: skip
    if seeds is not None:
        layers.append({
            "data": {"name": seeds},
            "mark": {"type": "tick", "thickness": 1.5, "size": 13, "color": "var(--soft)"},
            "encoding": {"y": y, "x": {**x, "field": "value"},
                         "tooltip": [{"field": "seed", "title": "seed"},
                                     {"field": "value", "title": "value", "format": ".4f"}]},
        })  # fmt: skip
    layers.append({
        "data": {"name": table},
        "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
        "encoding": {"y": y, "x": x, "color": colour, "shape": shape, "tooltip": tooltip},
    })  # fmt: skip
    return {"height": _STEP * max(1, len(order)), "layer": layers}


def scatter(table: str, x_title: str, y_title: str, limits: tuple[float, float]) -> Spec:
    """A dot for each problem: the first side's mean reward across, the second one's up; equal on the diagonal."""
    low, high = limits
    scale = {"domain": [low, high], "nice": True}
    return {
        "width": 330, "height": 330,
        "layer": [
            {
                "data": {"values": [{"a": low, "b": low}, {"a": high, "b": high}]},
                "mark": {"type": "line", "color": "var(--soft)", "strokeDash": [4, 3]},
                "encoding": {"x": {"field": "a", "type": "quantitative", "scale": scale},
                             "y": {"field": "b", "type": "quantitative", "scale": scale}},
            },
            {
                "data": {"name": table},
                "mark": {"type": "point", "filled": True, "size": 55, "opacity": 0.7},
                "encoding": {
                    "x": {"field": "a", "type": "quantitative", "title": x_title, "scale": scale,
                          "axis": {"tickCount": 6}},
                    "y": {"field": "b", "type": "quantitative", "title": y_title, "scale": scale,
                          "axis": {"tickCount": 6}},
                    "color": {
                        "field": "became", "type": "nominal",
                        "scale": {"domain": ["better", "equal", "worse"],
                                  "range": ["var(--blue)", "var(--grey)", "var(--red)"]},
                        "legend": {"title": None, "orient": "top"},
                    },
                    "shape": {
                        "field": "became", "type": "nominal",
                        "scale": {"domain": ["better", "equal", "worse"],
                                  "range": ["triangle-up", "circle", "triangle-down"]},
                        "legend": {"title": None, "orient": "top"},
                    },
                    "tooltip": [{"field": "prompt", "title": "problem"},
                                {"field": "a", "title": x_title, "format": ".3f"},
                                {"field": "b", "title": y_title, "format": ".3f"}],
                },
            },
        ],
    }  # fmt: skip


def heat(table: str, axes: tuple[str, str], levels: tuple[Sequence[str], Sequence[str]], *, title: str,
         domain: tuple[float, float]) -> Spec:  # fmt: skip
    """A square for each pair of levels, darker for more, with its number. The table has row, column, value, text."""
    rows, columns = (list(of) for of in levels)
    wide = min(220, max(110, 8 * max(map(len, columns))))  # pixels of a column: its longest label fits
    shared = {
        "x": {"field": "column", "type": "nominal", "title": axes[1], "sort": columns, "scale": {"domain": columns},
              "axis": {"labelAngle": 0, "ticks": False, "domain": False, "labelLimit": wide - 8}},
        "y": {"field": "row", "type": "nominal", "title": axes[0], "sort": rows, "scale": {"domain": rows},
              "axis": {"ticks": False, "domain": False, "labelLimit": 160, "titleAngle": 0, "titleAlign": "right",
                       "titleX": -6, "titleY": -12}},
    }  # fmt: skip
    return {
        "width": wide * len(columns), "height": 40 * len(rows),
        "data": {"name": table},
        "layer": [
            {
                "mark": {"type": "rect", "stroke": "var(--page)", "strokeWidth": 2},
                "encoding": {
                    **shared,
                    "color": {
                        "field": "value", "type": "quantitative", "title": title,
                        "scale": {"type": "quantize", "range": [f"var(--h{step})" for step in range(5)],
                                  "domain": list(domain)},
                        "legend": None,  # the numbers stand in the squares
                    },
                    "tooltip": [{"field": "row", "title": axes[0]}, {"field": "column", "title": axes[1]},
                                {"field": "text", "title": title}],
                },
            },
            {
                "mark": {"type": "text", "fontSize": 12},
                "encoding": {
                    **shared,
                    "text": {"field": "text", "type": "nominal"},
                    # The numbers on the two darkest squares are written in the page's colour.
                    "color": {"field": "value", "type": "quantitative", "legend": None,
                              "scale": {"type": "quantize",
                                        "range": ["var(--ink)"] * 3 + ["var(--page)"] * 2, "domain": list(domain)}},
                },
            },
        ],
        "resolve": {"scale": {"color": "independent"}},
    }  # fmt: skip
