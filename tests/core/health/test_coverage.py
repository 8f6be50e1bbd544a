"""What could be looked at: every rule says what it needs, and too little is no all-clear."""

from __future__ import annotations

import pytest

from core.health.case import FOREIGN, Case, Sample, Settings
from core.health.coverage import NEEDS, QUESTIONS, coverage, pooled
from core.health.examine import RULES
from core.metrics import declared


def row(step: int, **columns: float) -> dict[str, float]:
    return {"step": float(step), "update": 1.0, **columns}


def test_every_rule_says_what_it_needs_in_names_that_there_are() -> None:
    assert set(NEEDS) == set(RULES)
    names = [
        name for needs in [*NEEDS.values(), list(QUESTIONS.values())] for need in needs for name in need.split(" | ")
    ]
    settings = {name.removeprefix("settings.") for name in names if name.startswith("settings.")}
    assert settings <= set(Settings.__dataclass_fields__)
    plain = [name for name in names if not name.startswith("settings.") and not name.endswith("/*")]
    assert [name for name in plain if declared(name) is None and name not in (*FOREIGN, "samples")] == []


def test_a_rule_without_its_column_did_not_run() -> None:
    seen = coverage(Case(rows=[row(1, loss=0.5)]), ["numerical", "kl", "advantages"])
    assert (seen.rows, seen.columns, seen.rules) == (1, ("loss", "update"), ("numerical",))
    assert seen.missing["kl"] == ("kl | kl/whole", "beta | settings.beta")
    known = coverage(
        Case(rows=[row(1, kl=0.5)], settings=Settings(beta=0.1), samples=(Sample(step=1),)), ["kl", "advantages"]
    )
    assert (known.rules, known.missing) == (("kl", "advantages"), {})


def test_what_has_no_tokens_cannot_be_cut_off() -> None:
    text, actions = (
        coverage(Case(rows=[row(1, loss=0.5)], settings=Settings(factor=factor)), ["truncation", "numerical"])
        for factor in (None, "action")
    )
    assert "truncation" in text.missing
    assert (actions.rules, actions.missing) == (("numerical",), {})


def sound(steps: int, slope: float = 0.01) -> Case:
    noise = (0.01, -0.01, 0.0)
    columns = {"reward/std": 0.4, "kl": 0.01, "grad_norm": 0.3, "completions/length": 100.0, "eval/reward": 0.3}
    return Case(
        rows=[
            row(step, **columns, **{"reward/mean": 0.2 + slope * step + noise[step % 3]})
            for step in range(1, steps + 1)
        ]
    )


def test_enough() -> None:
    assert coverage(sound(20), ()).is_enough
    assert not coverage(sound(19), ()).is_enough  # steps
    assert not coverage(sound(40, slope=0.0), ()).is_enough  # nothing rose
    assert not coverage(sound(40, slope=-0.01), ()).is_enough
    assert coverage(Case(rows=sound(10).rows, averaged_over=5), ()).is_enough  # ten rows of fifty steps


def test_without_an_evaluation_nobody_knows_what_was_learned() -> None:
    rows = [{name: value for name, value in row.items() if name != "eval/reward"} for row in sound(40).rows]
    assert coverage(Case(rows=rows), ()).open_questions == ("it is not known what held-out prompts earn",)


def test_several_runs() -> None:
    parts = [coverage(sound(30), ["kl", "numerical"]), coverage(Case(rows=[row(1, loss=0.5)]), ["kl", "numerical"])]
    both = pooled(parts)
    assert (both.rows, both.rules, both.is_enough) == (31, ("numerical",), False)
    assert both.missing.keys() == {"kl"}  # beta is known of none
    assert pooled(parts[:1]) == parts[0]


@pytest.mark.parametrize(
    ("column", "level", "enough"),
    [("kl", 0.9, False), ("kl", 0.2, True), ("completions/truncated", 0.4, False), ("entropy", 0.3, True)],
)
def test_levels_that_nobody_would_call_sound(column: str, level: float, enough: bool) -> None:
    case = sound(40)
    assert coverage(Case(rows=[{**row, column: level} for row in case.rows]), ()).is_enough == enough
