"""Signs of a run, its nearest public runs, and the bets that are drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.health.case import Case, Settings
from core.health.finding import Finding, RuledOut
from core.health.likeness import PublicRun, alike, nearest, signs
from core.health.likeness import leads as leads_of


def run(causes: str, has: str, source: str = "a/b") -> PublicRun:
    return PublicRun(source=source, causes=frozenset(causes.split()), signs=frozenset(has))


def leads(
    case: Case, runs: Sequence[PublicRun], findings: Sequence[Finding] = (), aside: Sequence[str] = ()
) -> list[Finding]:
    return leads_of(case, alike(case, runs), findings, aside)


def flat(rows: int = 12) -> Case:
    return Case(
        rows=[{"step": at, "reward/mean": 0.05 + 0.01 * (at % 2), "kl": 0.2} for at in range(1, rows + 1)],
        settings=Settings(num_generations=4, learning_rate=1e-6),
    )


def test_the_signs_of_a_flat_run() -> None:
    assert signs(flat()) == {
        "20 rows or fewer", "groups of 3 or 4", "learning rate 1e-6 or less",
        "reward/mean", "reward/mean: between 0 and 1", "reward/mean: low", "reward/mean: flat", "kl", "kl: above 0.1",
    }  # fmt: skip


def test_few_rows_have_no_line() -> None:
    rose = Case(rows=[{"step": 1, "reward/mean": 0.1}, {"step": 2, "reward/mean": 1.2}])
    assert {"reward/mean: rose in few rows", "3 rows or fewer", "8 rows or fewer"} <= signs(rose)
    assert "reward/mean: between 0 and 1" not in signs(rose)
    nothing = signs(Case(rows=[{"step": 1, "loss": 0.1}]))
    assert {"no reward", "loss"} <= nothing


def test_the_nearest_share_the_most_of_their_signs() -> None:
    runs = [run("x", "ab"), run("y", "abcd"), run("z", "efgh"), run("w", "abc", "c/d")]
    near = nearest(frozenset("abc"), runs, 3)
    assert [(round(likeness, 3), set(other.causes)) for likeness, other in near] == [
        (1.0, {"w"}), (0.75, {"y"}), (0.667, {"x"})
    ]  # fmt: skip


def known(has: frozenset[str]) -> list[PublicRun]:
    """Ten runs like it: six with dead groups, five that gained nothing, one that was noisy; and ten unlike it."""
    causes = ["dead-groups no-gain"] * 3 + ["dead-groups"] * 3 + ["no-gain"] * 2 + ["noise"] + ["kl-runaway"]
    near = [PublicRun(source=f"a/{at}", causes=frozenset(cause.split()), signs=has) for at, cause in enumerate(causes)]
    return [*near, *(run("numerical", "qrs", f"b/{at}") for at in range(20))]


def test_leads_are_what_runs_like_it_failed_by() -> None:
    case = flat()
    found = leads(case, known(signs(case))[:10])
    assert [(one.id, one.severity, one.certainty) for one in found] == [
        ("dead-groups", "info", "lead"), ("no-gain", "info", "lead")
    ]  # fmt: skip
    assert found[0].summary.startswith("if this run failed: of the 10 failed public runs")
    assert found[0].evidence == {
        "alike": 10, "alike_with_this_cause": 6, "runs": 10, "runs_with_this_cause": 6
    }  # fmt: skip


def test_leads_fill_up_what_is_found() -> None:
    case = flat()
    runs = known(signs(case))[:10]
    warning = Finding(id="truncation", severity="warning", summary="cut off")
    assert [one.id for one in leads(case, runs, [warning], ())] == ["dead-groups"]
    excluded = Finding(
        id="truncation", severity="warning", summary="cut off", rules_out=(RuledOut(id="dead-groups", why="they live"),)
    )
    assert [one.id for one in leads(case, runs, [excluded], ())] == ["no-gain"]
    aside = Finding(id="zero-loss", severity="info", summary="by construction")
    assert len(leads(case, runs, [aside, warning], ("zero-loss",))) == 1
    assert len(leads(case, runs, [aside, warning], ())) == 0


def test_a_cause_that_few_of_them_had_is_no_lead() -> None:
    case = flat()
    runs = [run("noise", "x")] * 19 + [run("kl-runaway", "x")]
    near = [PublicRun(source=f"a/{at:02}", causes=one.causes, signs=signs(case)) for at, one in enumerate(runs)]
    assert [one.id for one in leads(case, near)] == ["noise"]
    assert [one.id for one in leads(case, near[10:])] == ["noise", "kl-runaway"]  # one of ten
    assert leads(case, []) == []


def test_causes_of_runs_that_are_more_alike_go_first() -> None:
    has = signs(flat())
    near = [PublicRun(source=f"a/{at}", causes=frozenset({"weak-reward"}), signs=has) for at in range(3)]
    further = [PublicRun(source=f"b/{at}", causes=frozenset({"noise"}), signs=has | {*"abcdefghi"}) for at in range(4)]
    # nine signs of eighteen: four times a half are less than three times 1
    assert [one.id for one in leads(flat(), [*near, *further])] == ["weak-reward", "noise"]


def test_a_supervised_log_has_no_leads() -> None:
    supervised = Case(rows=[{"step": 1, "loss": 0.5, "eval/loss": 0.4, "grad_norm": 1.0}])
    assert leads(supervised, known(signs(supervised))) == []
    preferences = Case(rows=[{"step": 1, "rewards/chosen": 0.5, "rewards/rejected": 0.1}])
    assert leads(preferences, known(signs(preferences))) == []


@pytest.mark.parametrize(
    ("cause", "column", "against", "consistent"),
    [
        ("dead-groups", "groups/dead", 0.1, 0.3),
        ("kl-runaway", "kl", 0.01, 0.3),
        ("truncation", "completions/truncated", 0.02, 0.3),
        ("no-gradient", "grad_norm", 0.5, 0.0),
        ("grad-explosion", "grad_norm", 0.5, 80.0),
        ("entropy-collapse", "entropy", 0.6, 0.05),
    ],
)
def test_what_the_log_speaks_against_is_no_lead(cause: str, column: str, against: float, consistent: float) -> None:
    for value, found in ((against, []), (consistent, [cause])):
        case = Case(rows=[{"step": at, "reward/mean": 0.1, column: value} for at in range(1, 11)])
        near = [PublicRun(source="a/b", causes=frozenset({cause, "numerical"}), signs=signs(case))]
        assert [one.id for one in leads(case, near)] == found


def test_what_rose_was_not_lost() -> None:
    rising = Case(rows=[{"step": at, "reward/mean": 0.05 * at} for at in range(1, 13)])
    near = [PublicRun(source="a/b", causes=frozenset({"policy-collapse", "no-gain"}), signs=signs(rising))]
    (lead,) = leads(rising, near)  # nobody knows of held-out prompts
    assert (lead.id, "held-out" in lead.summary) == ("no-gain", True)
    held_out = Case(rows=[{**row, "eval/reward": 0.05 * (row["step"] or 0)} for row in rising.rows])
    assert leads(held_out, near) == []


def test_dead_groups_are_of_a_baseline_of_groups() -> None:
    near = [PublicRun(source="a/b", causes=frozenset({"dead-groups"}), signs=signs(flat()))]
    assert leads(flat(), near)
    assert leads(replace(flat(), settings=Settings(baseline="none")), near) == []


def test_a_reward_below_zero_rises_towards_it() -> None:
    for values, way in (((-2.0, -1.0), "rose"), ((-1.0, -1.2), "fell"), ((-1.0, -1.05), "stood")):
        few = Case(rows=[{"step": at, "reward/mean": value} for at, value in enumerate(values, 1)])
        assert f"reward/mean: {way} in few rows" in signs(few)


def test_a_lead_says_how_usual_its_cause_is() -> None:
    has = signs(flat())
    near = [PublicRun(source=f"a/{at}", causes=frozenset({"noise"}), signs=has) for at in range(25)]
    unlike = [run("noise", "x", f"b/{at}") for at in range(70)] + [run("dead-run", "x", f"c/{at}") for at in range(5)]
    (lead,) = leads(flat(), [*near, *unlike])
    assert "25 had this cause" in lead.summary
    assert "(95 of all 100)" in lead.summary
    near = [
        PublicRun(source=f"a/{at}", causes=frozenset({"noise" if at < 5 else "truncation"}), signs=has)
        for at in range(25)
    ]
    (lead,) = [one for one in leads(flat(), [*near, *unlike]) if one.id == "noise"]
    assert "(75 of all 100, so no more often than usual)" in lead.summary
