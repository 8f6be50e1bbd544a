"""Signs of a run, the chances of causes among public runs with such signs, and the bets that are drawn from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from core.health.case import Case, Settings
from core.health.finding import Finding, RuledOut
from core.health.likeness import SMOOTHED, WEIGHED, WEIGHED_LOOKS, PublicRun, chances, signs
from core.health.likeness import leads as leads_of
from core.health.looks import looks_like


def run(causes: str, has: Iterable[str], source: str = "a/b") -> PublicRun:
    return PublicRun(source=source, causes=frozenset(causes.split()), signs=frozenset(has))


def leads(case: Case, runs: Sequence[PublicRun], findings: Sequence[Finding] = ()) -> list[Finding]:
    return leads_of(case, chances(case, runs), findings)


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


def test_a_chance_is_tempered_naive_bayes_of_signs_that_are_there_and_that_are_not() -> None:
    case = Case(rows=[{"step": 1, "kl": 0.5}])
    has = signs(case)
    assert "kl: above 0.1" in has
    # of four runs, two noisy ones: one with the sign; two others: none with it; all have "q", which the case has not
    runs = [run("noise", ["kl: above 0.1", "q"]), run("noise", ["q"]), run("no-gain", ["q"]), run("numerical", ["q"])]
    like = chances(case, runs)
    among, others = (1 + SMOOTHED / 4) / (2 + SMOOTHED), (0 + SMOOTHED / 4) / (2 + SMOOTHED)
    odds = 2.5 / 2.5 * (among / others) ** WEIGHED  # "q" is as usual among both
    assert like.of["noise"] == pytest.approx(odds / (1 + odds))
    assert like.odds("noise") == pytest.approx(odds)
    assert like.by["noise"] == ["kl: above 0.1"]  # the clearest of its column
    two = [run("noise", ["kl", "no reward", "kl: above 0.1"])] * 3 + [run("numerical", ["kl"])] * 3
    assert chances(case, two).by["noise"] == ["kl: above 0.1", "no reward"]  # by the clearest of each, in that order
    lacking = chances(Case(rows=[{"step": 1, "kl": 0.01}]), runs)
    odds = ((1 - among) / (1 - others)) ** WEIGHED
    assert lacking.of["noise"] == pytest.approx(odds / (1 + odds))
    assert (like.usual["noise"], like.runs, like.odds("truncation")) == (2, 4, 0.0)


def known(has: frozenset[str]) -> list[PublicRun]:
    """Ten runs like it: six with dead groups, five that gained nothing, one that was noisy; and ten unlike it."""
    causes = ["dead-groups no-gain"] * 3 + ["dead-groups"] * 3 + ["no-gain"] * 2 + ["noise"] + ["kl-runaway"]
    near = [PublicRun(source=f"a/{at}", causes=frozenset(cause.split()), signs=has) for at, cause in enumerate(causes)]
    return [*near, *(run("numerical", "qrs", f"b/{at}") for at in range(20))]


def test_leads_are_what_runs_like_it_failed_by() -> None:
    case = flat()
    found = leads(case, known(signs(case)))
    assert [(one.id, one.severity, one.certainty) for one in found] == [
        ("dead-groups", "info", "lead"), ("no-gain", "info", "lead")
    ]  # fmt: skip
    chance = chances(case, known(signs(case))).of["dead-groups"]
    assert found[0].summary == (
        f"if this run failed: about {chance:.0%} of failed public runs with such a log had this cause by what their "
        "authors say (6 of all 30, 20%); what speaks most for it: 20 rows or fewer, groups of 3 or 4, kl; nothing in "
        "this log says so itself"
    )
    assert found[0].evidence == {"chance": round(chance, 3), "runs": 30, "runs_with_this_cause": 6}


def test_leads_are_of_nothing_that_was_found() -> None:
    case, warning = flat(), Finding(id="truncation", severity="warning", summary="cut off")
    runs = known(signs(case))
    assert [one.id for one in leads(case, runs, [warning])] == ["dead-groups", "no-gain"]
    excluded = replace(warning, rules_out=(RuledOut(id="dead-groups", why="they live"),))
    assert "dead-groups" not in {one.id for one in leads(case, runs, [excluded])}
    named = replace(warning, id="dead-groups")
    assert leads(case, runs, [named])[0].id == "no-gain"


def test_the_place_among_the_looks_counts_with_half_of_its_evidence() -> None:
    case = flat()
    assert looks_like(case)[0] == "no-gain"
    runs = [replace(run(cause, signs(case)), looks=(cause,)) for cause in ("no-gain", "no-gain", "noise", "noise")]
    among, others = (2 + SMOOTHED / 2) / (2 + SMOOTHED), (0 + SMOOTHED / 2) / (2 + SMOOTHED)
    assert chances(case, runs).odds("no-gain") == pytest.approx((among / others) ** WEIGHED_LOOKS)
    last = [replace(one, looks=("numerical",)) for one in runs]
    assert chances(case, last).odds("no-gain") == pytest.approx(1.0)  # none of them looked like it
    second = [replace(one, looks=("numerical", *one.causes)) for one in runs]
    assert chances(case, second).odds("no-gain") == pytest.approx(1.0)  # none of them like it first


def test_the_likelier_cause_goes_before_the_more_usual_one() -> None:
    runs = [run("weak-reward", signs(flat()))] * 3 + [run("noise", "qrs")] * 4
    assert [one.id for one in leads(flat(), runs)] == ["weak-reward", "noise"]


def test_a_seldom_cause_is_no_lead() -> None:
    case = flat()
    unlike = [run("noise", signs(case), f"a/{at}") for at in range(60)]
    assert [one.id for one in leads(case, [*unlike, run("kl-runaway", signs(case))])] == ["noise"]
    assert [one.id for one in leads(case, [*unlike[:9], run("kl-runaway", signs(case))])] == ["noise", "kl-runaway"]
    assert leads(case, []) == []


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
    noisy, cut = (PublicRun(source="a", causes=frozenset({cause}), signs=has) for cause in ("noise", "truncation"))
    unlike = [run("noise", "x")] * 70 + [run("dead-run", "x")] * 5
    (lead,) = leads(flat(), [*[noisy] * 25, *unlike])
    assert "(95 of all 100, 95%)" in lead.summary
    found = {one.id: one for one in leads(flat(), [*[noisy] * 5, *[cut] * 5, *unlike[:70]])}
    assert "(75 of all 80, 94%, so no more often than usual); nothing" in found["noise"].summary
    assert "(5 of all 80, 6%); what speaks most for it: " in found["truncation"].summary
