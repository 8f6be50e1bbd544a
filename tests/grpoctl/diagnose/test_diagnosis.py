"""A case judged: facts, settings and findings in one JSON document without a number that JSON lacks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from core.health import examine
from core.health.case import Case, Settings
from core.health.examine import RULES, AddedRule
from core.health.finding import Finding
from core.health.likeness import PublicRun, signs
from grpoctl.diagnose.diagnosis import diagnose, evidence_numbers, evidence_texts, number_text
from grpoctl.diagnose.html import page
from grpoctl.diagnose.public_runs import public_runs
from grpoctl.diagnose.readers.base import Reading
from grpoctl.diagnose.report import report
from tests.grpoctl.diagnose.conftest import GRAVE, MILD, ROWS, Diagnosed

KEYS = [
    "schema", "source", "kind", "verdict", "looked_at", "not_looked_at", "open_questions", "not_understood", "facts",
    "settings", "notes", "findings",
]  # fmt: skip


def test_facts_of_the_format_stand_beside_those_of_every_source() -> None:
    read = Reading(case=Case(rows=ROWS), kind="csv", source="a.csv", extra={"beams": 4.0})
    found = diagnose(read)
    assert (found.facts["updates"], found.facts["collapsed_after_update"], found.facts["beams"]) == (3, 3, 4.0)
    assert found.name == "a.csv"
    assert diagnose(read, name="-").name == "-"


def test_numbers_beyond_all_training_are_noted() -> None:
    rows = [{"step": step, "reward/mean": 1e308, "loss": 0.5} for step in range(1, 11)]
    found = diagnose(Reading(case=Case(rows=rows), kind="csv", source="a.csv", notes=("a guess",)))
    assert found.reading.notes[0] == "a guess"
    assert found.reading.notes[1].startswith("10 numbers are of 1e+100 or more")
    assert "lost-rewards" in {one.id for one in found.findings}
    assert "reward/first" not in found.facts


def test_the_document(diagnosed: Diagnosed) -> None:
    document = diagnosed(GRAVE, MILD, settings=Settings(num_generations=2, beta=0.0), notes=("a guess",)).as_json()
    assert list(document) == KEYS
    assert document["settings"] == {"num_generations": 2, "beta": 0.0}  # what is not known is not there; 0 is known
    assert (document["schema"], document["source"], document["kind"]) == (2, "old.log", "console")
    assert document["notes"] == ["a guess"]
    assert [one["id"] for one in document["findings"]] == ["rollout-mode", "dead-groups"]
    assert document["findings"][0]["decider"]["expects"] == ["collapse_rate < 0.05"]


def test_a_number_that_is_none_becomes_null(diagnosed: Diagnosed) -> None:
    odd = Finding(id="numerical", severity="error", summary="NaN", evidence={"loss": float("nan"), "lines": ["a", "b"]})
    text = json.dumps(diagnosed(odd).as_json(), allow_nan=False)
    assert json.loads(text)["findings"][0]["evidence"] == {"loss": None, "lines": ["a", "b"]}


def test_severities_are_counted_gravest_first(diagnosed: Diagnosed) -> None:
    assert list(diagnosed(MILD, GRAVE, MILD).counts().items()) == [("error", 1), ("warning", 2)]
    assert diagnosed().counts() == {}


def test_verdict(diagnosed: Diagnosed) -> None:
    info = Finding(id="noise", severity="info", summary="a note")
    worst = diagnosed(GRAVE, MILD, MILD, info).verdict
    assert worst.startswith("1 error, 2 warnings, 1 info; ")
    assert worst.endswith("rollout-mode (strong)")
    assert diagnosed(MILD, info).worst == "warning"
    # What was looked at: nine steps of update, reward/mean, completions/valid, kl, eval/reward and its error.
    assert "9 rows, 6 columns" in diagnosed().verdict
    assert diagnosed(info).verdict.endswith("noise (strong)")
    assert diagnosed(info).worst == diagnosed().worst == "unknown"  # nine rows are an excerpt
    assert (diagnosed(GRAVE).outcome, diagnosed().outcome) == ("findings", "unknown")


def test_enough_was_looked_at(diagnosed: Diagnosed) -> None:
    noise = (0.02, -0.01, 0.0, 0.01, -0.02)
    rows = tuple(
        {"step": step, "reward/mean": 0.3 + 0.005 * step + noise[step % 5], "reward/std": 0.4, "kl": 0.001 * step,
         "grad_norm": 0.3, "completions/length": 200.0, "eval/valid": 0.9}
        for step in range(1, 41)
    )  # fmt: skip
    sound = diagnosed(rows=rows)
    assert (sound.outcome, sound.worst) == ("sound", "ok")
    document = sound.as_json()
    assert document["verdict"] == "sound"
    doubt = Finding(id="proxy-reward", severity="info", summary="the form alone rose", confidence="weak")
    assert diagnosed(doubt, rows=rows).outcome == "unknown"  # a hint is too much for an all-clear
    assert document["looked_at"]["rows"] == 40
    assert {"reward/mean", "kl"} <= set(document["looked_at"]["columns"])
    assert "numerical" in document["looked_at"]["rules"]
    lacking = {entry["rule"]: entry["lacks"] for entry in document["not_looked_at"]}
    assert "grad_norm" not in lacking.get("numerical", ())
    assert lacking["zero-loss"] == ["loss | policy/loss"]
    # Each of these alone is too little for an all-clear, and says why.
    flat = tuple({**row, "reward/mean": 0.3 + noise[int(row["step"]) % 5]} for row in rows)
    for fewer in (
        rows[:9],
        flat,
        *(tuple({k: v for k, v in row.items() if k != name} for row in rows) for name in rows[0] if name != "step"),
    ):
        few = diagnosed(rows=fewer)
        assert few.outcome == "unknown"
        assert few.as_json()["open_questions"]
        assert few.verdict.startswith("not enough to judge")


@pytest.mark.parametrize("rows", [(), ({"step": 0, "eval/reward": 0.5},)])
def test_without_a_step_nothing_is_fine(diagnosed: Diagnosed, rows: tuple[dict[str, float], ...]) -> None:
    info = Finding(id="noise", severity="info", summary="a note")
    for found in (diagnosed(rows=rows), diagnosed(info, rows=rows)):
        assert found.worst == "unknown"
        assert report(found)[0].lines[0].mark == "UNKNOWN"
        assert 'class="badge unknown"' in page(found)
    assert diagnosed(GRAVE, rows=rows).worst == "error"


@pytest.mark.parametrize(
    ("value", "text"),
    [(38, "38"), (38.0, "38"), (0.0, "0"), (1.949e-25, "1.949e-25"), (0.82461, "0.8246"), (2e-6, "2e-06"),
     (1e300, "1e+300"), (float("nan"), "nan"), (float("-inf"), "-inf"), (True, "true")],
)  # fmt: skip
def test_number_text(value: float, text: str) -> None:
    assert number_text(value) == text


def test_evidence_is_numbers_on_a_line_and_texts_of_their_own() -> None:
    assert evidence_numbers(GRAVE) == "after_update 3, p 1.25e-09, metric completions/valid"
    assert evidence_texts(GRAVE) == [("warnings", ["line 7: `use_cache=True`", "b"])]


def test_long_and_many_texts_are_cut() -> None:
    many = Finding(
        id="a", severity="info", summary="b", evidence={"x": ["y\n z" * 100, *map(str, range(9))], "none": []}
    )
    ((key, texts),) = evidence_texts(many)
    assert (key, texts[-1], len(texts)) == ("x", "and 2 more", 9)
    assert texts[0].endswith("…")
    assert len(texts[0]) == 160
    assert "\n" not in texts[0]


def test_facts_and_settings(diagnosed: Diagnosed) -> None:
    known = diagnosed(settings=Settings(beta=0.04, dynamic_sampling=False))
    assert known.setting_rows() == [("beta", "0.04"), ("dynamic_sampling", "false")]
    assert known.fact_rows() == [("steps", "9"), ("updates", "3")]
    assert known.main_facts() == "steps 9, updates 3"


def test_sources_that_tell_different_metrics_are_tables_of_one_run() -> None:
    def read(name: str, *rows: dict[str, float]) -> Reading:
        return Reading(case=Case(rows=list(rows)), kind="console", source=name)

    rewards = read("reward.md", {"step": 1, "reward/mean": 0.5}, {"step": 2, "reward/mean": 0.6})
    held_out = read("eval.md", {"step": 2, "eval/reward": 0.4})
    together = diagnose(rewards, others=[held_out])
    assert together.others == ()
    assert together.reading.case.rows == [
        {"step": 1, "reward/mean": 0.5},
        {"step": 2, "reward/mean": 0.6, "eval/reward": 0.4},
    ]
    assert len(diagnose(rewards, others=[rewards]).others) == 1  # another run: it tells the same metric


def test_a_rule_that_fails_costs_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(case: Case) -> list[Finding]:
        raise TypeError("'>=' not supported")

    monkeypatch.setitem(RULES, "integrity", failing)
    rows = [{"step": step, "reward/mean": 1e308, "loss": 0.5} for step in range(1, 11)]
    findings = {one.id: one for one in diagnose(Reading(case=Case(rows=rows), kind="csv", source="a.csv")).findings}
    assert findings.keys() >= {"lost-rewards", "diagnosis-failed"}
    assert findings["diagnosis-failed"].severity == "warning"
    assert "integrity" in findings["diagnosis-failed"].summary
    assert str(findings["diagnosis-failed"].evidence["at"]).startswith("test_diagnosis.py:")


def test_a_packages_rule_that_gives_nothing_costs_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    added = AddedRule(called="mine of package red", rule=lambda case: None)  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(examine, "_added_rules", lambda: (added,))
    rows = [{"step": step, "reward/mean": 1e308, "loss": 0.5} for step in range(1, 11)]
    findings = {one.id: one for one in diagnose(Reading(case=Case(rows=rows), kind="csv", source="a.csv")).findings}
    assert findings.keys() >= {"lost-rewards", "diagnosis-failed"}
    assert (
        "the rule mine of package red failed on this log (TypeError: it gave None"
        in findings["diagnosis-failed"].summary
    )


def foreign(**known: Any) -> Reading:
    """Twelve steps of somebody else's, of which nothing can be said."""
    rows = [{"step": step, "reward/mean": 0.1 + 0.05 * step, "kl": 0.01} for step in range(1, 13)]
    return Reading(case=Case(rows=rows, **known), kind="console", source="a.log")


def test_leads_are_of_logs_of_others_that_are_whole() -> None:
    like = [PublicRun(source="a/b", causes=frozenset({"truncation"}), signs=signs(foreign().case))]
    assert [(one.id, one.basis) for one in diagnose(foreign(), public=like).findings] == [("truncation", "lead")]
    assert diagnose(foreign(), public=like, with_hints=False).findings == ()
    assert all(one.basis == "rule" for one in diagnose(foreign(stages={"grpo": "grpo"}), public=like).findings)
    empty = Reading(case=Case(rows=[]), kind="console", source="a.log")
    assert diagnose(empty, public=like).findings == ()
    assert diagnose(foreign()).findings[-1].evidence["runs"] == len(public_runs())


def sound() -> Reading:
    """Thirty steps that rise, on held-out prompts as well."""
    rows = [
        {
            "step": step, "reward/mean": 0.2 + 0.02 * step, "reward/std": 0.3, "kl": 0.001 * step, "grad_norm": 0.5,
            "completions/length": 100.0, "eval/reward": 0.2 + 0.02 * step, "groups/dead": 0.05,
        }
        for step in range(1, 31)
    ]  # fmt: skip
    return Reading(case=Case(rows=rows), kind="console", source="sound.log")


def test_what_is_sound_has_no_leads() -> None:
    like = [PublicRun(source="a/b", causes=frozenset({"truncation"}), signs=signs(sound().case))]
    found = diagnose(sound(), public=like)
    assert (found.outcome, [one.basis for one in found.findings if one.basis == "lead"]) == ("sound", [])
    both = diagnose(sound(), others=[replace(sound(), source="b.log")], public=like)
    assert [one.id for one in both.findings if one.basis == "lead"] == []


def test_leads_of_several_logs_are_of_those_that_are_not_sound() -> None:
    like = [PublicRun(source="a/b", causes=frozenset({"weak-reward"}), signs=signs(foreign().case))]
    for logs in ((sound(), foreign()), (foreign(), sound())):
        found = diagnose(logs[0], others=[logs[1]], public=like)
        assert [one.id for one in found.findings if one.basis == "lead"] == ["weak-reward"]
    other = [replace(one, causes=frozenset({"noise"}), signs=signs(sound().case)) for one in like]
    chance = diagnose(foreign(), public=[*like, *other]).findings[0].evidence["chance"]
    assert diagnose(sound(), others=[foreign()], public=[*like, *other]).findings[0].evidence["chance"] == chance


def test_a_lead_of_several_logs_is_of_all_of_them() -> None:
    cut = Reading(
        case=Case(rows=[{**row, "completions/truncated": 0.0} for row in foreign().case.rows]), kind="", source="b"
    )
    like = [PublicRun(source="a/b", causes=frozenset({"truncation", "weak-reward"}), signs=signs(foreign().case))]
    assert [one.id for one in diagnose(foreign(), others=[foreign()], public=like).findings] == [
        "truncation",
        "weak-reward",
    ]
    assert [one.id for one in diagnose(foreign(), others=[cut], public=like).findings] == ["weak-reward"]


def test_infos_stand_by_their_odds_which_count_twice_where_a_hint_says_it() -> None:
    rewards = (0.1, 0.2, 0.9, 0.3, 0.25, 0.2, 0.21, 0.2)
    rows = [{"step": step, "reward/mean": reward, "kl": 0.01} for step, reward in enumerate(rewards, 1)]
    read = Reading(case=Case(rows=rows), kind="console", source="a.log")
    hints = [(one.id, one.basis) for one in diagnose(read, public=[]).findings]
    assert hints == [("policy-collapse", "hint"), ("no-gain", "hint")]
    truncation = ("truncation", "lead")

    def found(*told: str) -> list[tuple[str, str]]:
        like = [PublicRun(source="a/b", causes=frozenset(causes.split()), signs=signs(read.case)) for causes in told]
        return [(one.id, one.basis) for one in diagnose(read, public=like).findings]

    both = "policy-collapse no-gain"
    assert found(*[both] * 6, *["truncation"] * 4) == hints  # leads behind the second place are not shown
    assert found("no-gain", *[both] * 5, *["truncation"] * 4) == hints[::-1]
    assert found(*[both] * 2, *["truncation"] * 8) == [truncation, *hints]
    assert found(*["policy-collapse"] * 4, *["truncation"] * 5) == [hints[0], truncation, hints[1]]


def test_of_several_logs_a_finding_names_the_one_it_is_of() -> None:
    def cut_off(name: str, share: float) -> Reading:
        rows = [{"step": step, "reward/mean": 0.5, "completions/truncated": share} for step in range(1, 31)]
        return Reading(case=Case(rows=rows), kind="console", source=name)

    found = {one.id: one for one in diagnose(cut_off("a.log", 0.0), others=[cut_off("b.log", 0.75)]).findings}
    assert found["truncation"].evidence["shown_by"] == "b.log"


def test_a_source_of_several_runs_is_several_sources() -> None:
    def of(run: str, share: float) -> Reading:
        rows = [{"step": step, "reward/mean": 0.5, "completions/truncated": share} for step in range(1, 31)]
        return Reading(case=Case(rows=rows), kind="csv", source=f"a.csv ({run})", run=run, notes=("a guess",))

    found = diagnose(replace(of("p31", 0.0), further=(of("p30\x1b", 0.75),)))
    assert [one.source for one in found.readings] == ["a.csv (p31)", "a.csv (p30\x1b)"]
    assert {one.id: one for one in found.findings}["truncation"].evidence["runs"] == "1 of 2"
    several = "2 runs (p31, p30\\x1b), each judged by itself: shown_by says whose numbers a finding tells"
    assert found.notes == [several, "a guess"]  # once


def test_runs_of_one_file_that_tell_different_metrics_stay_apart() -> None:
    def of(run: str, metric: str, notes: tuple[str, ...] = ()) -> Reading:
        rows = [{"step": step, metric: 0.5} for step in range(1, 31)]
        return Reading(case=Case(rows=rows), kind="csv", source=f"a.csv ({run})", run=run, notes=("both", *notes))

    found = diagnose(replace(of("a", "reward/mean"), further=(of("b", "eval/reward", ("its own",)),)))
    assert [one.run for one in found.readings] == ["a", "b"]
    assert found.notes[1:] == ["both", "its own (b)"]
    assert len(diagnose(of("", "reward/mean"), others=[of("", "eval/reward")]).readings) == 1  # two tables of one run
