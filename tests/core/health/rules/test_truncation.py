"""Training completions that were cut off: from which share on, their cost, what they earned, and who is not meant."""

from __future__ import annotations

import pytest

from core.health.case import Case, Settings
from core.health.examine import examine
from core.health.finding import Finding, Row
from core.health.rules.policy_collapse import policy_collapse, unsound_start
from core.health.rules.truncation import truncation

K, PROMPTS, LIMIT = 8, 2, 100  # 16 completions a step


def rows(*shares: float, ended: float = 40.0, begin: int = 1, **more: float) -> list[Row]:
    """Steps with these shares cut off at LIMIT; the others took `ended` tokens."""
    return [
        {
            "step": step, "update": 1, "learning_rate": 1e-3, "completions": 16.0 * step,
            "completions/truncated": share, "completions/length": share * LIMIT + (1 - share) * ended, **more,
        }
        for step, share in enumerate(shares, start=begin)
    ]  # fmt: skip


def paid(table: list[Row], cut: float, ended: float) -> list[Row]:
    """The same, with what both kinds earned: by turns 0.1 more and less."""
    found = []
    for index, row in enumerate(table):
        share, wave = row["completions/truncated"] or 0.0, 0.1 * (-1) ** index
        one = {"reward/mean": share * (cut + wave) + (1 - share) * (ended - wave)}
        found.append({**row, **one, **({"reward/truncated": cut + wave} if share else {})})
    return found


def case(table: list[Row], **settings: object) -> Case:
    known: dict[str, object] = {"num_generations": K, "prompts_per_step": PROMPTS, "max_completion_length": LIMIT}
    return Case(rows=table, settings=Settings(**{**known, **settings}))  # type: ignore[arg-type]


def only(of: Case) -> Finding:
    (found,) = truncation(of)
    assert found.id == "truncation"
    return found


@pytest.mark.parametrize(
    ("shares", "found"),
    [
        ([0.3] * 10, True),
        ([0.25] * 10, False),
        ([0.75, 0.5, 1.0] * 4, True),
        ([0.5] * 2, True),
        ([0.25], False),
        ([0.9] * 6 + [0.1] * 4, False),  # it learned to stop
        ([0.9] * 6 + [0.5] * 4, True),  # ... not yet
        ([0.0] * 12 + [0.9] * 6, True),  # 0.3 of all: it grew, and no limit of a guard was broken
    ],
)
def test_from_which_share_on(shares: list[float], found: bool) -> None:
    assert bool(truncation(case(rows(*shares)))) == found


@pytest.mark.parametrize(("steps", "confidence"), [(1, "moderate"), (2, "moderate"), (3, "certain")])
def test_a_row_or_two_are_said_with_less_confidence(steps: int, confidence: str) -> None:
    bare: list[Row] = [{"step": i, "completions/truncated": 0.6, "reward/mean": 0.2} for i in range(1, steps + 1)]
    found = only(Case(rows=bare))
    assert (found.severity, found.confidence) == ("warning", confidence)


def test_it_says_that_it_grows_and_what_rows_with_more_of_them_earn() -> None:
    """Ten rows from 0.3 to 0.75; the reward is 1 minus the share."""
    shares = [0.3 + 0.05 * i for i in range(10)]
    table: list[Row] = [
        {"step": i, "completions/truncated": share, "reward/mean": 1 - share + 0.001 * (-1) ** i}
        for i, share in enumerate(shares, 1)
    ]
    found = only(Case(rows=table))
    assert "it grows, from 35% to 70%" in found.summary
    assert "earned less" in found.summary
    level = only(Case(rows=[{**row, "completions/truncated": 0.5} for row in table]))
    assert "grows" not in level.summary
    assert "earned" not in level.summary
    up = only(Case(rows=[{**row, "reward/mean": row["completions/truncated"]} for row in table]))
    assert "earned more" in up.summary


def test_lengths_tell_the_share_where_no_column_does() -> None:
    """Mean 70 with those that ended at 40 and a limit of 100: (70 - 40) / (100 - 40) = 0.5."""
    ended: list[Row] = [{"step": i, "completions/length": 70.0, "completions/length_ended": 40.0} for i in range(1, 5)]
    found = only(Case(rows=ended, settings=Settings(max_completion_length=100)))
    assert found.evidence["truncated"] == pytest.approx(0.5)
    near: list[Row] = [{"step": i, "completions/length": 97.0} for i in range(1, 3)]
    found = only(Case(rows=near, settings=Settings(max_completion_length=100)))
    assert (found.confidence, found.evidence["share_of_limit"]) == ("moderate", pytest.approx(0.97))
    for limit in (None, 200):  # unknown, or far away
        assert truncation(Case(rows=near, settings=Settings(max_completion_length=limit))) == ()


def test_what_it_costs() -> None:
    """10 steps of 16: 80 of 160 cut off, 80 x 100 tokens of 80 x 100 + 80 x 25."""
    found = only(case(rows(*[0.5] * 10, ended=25.0)))
    assert (found.severity, found.confidence) == ("warning", "certain")
    cost = {name: found.evidence[name] for name in ("truncated", "completions", "completions_cut")}
    assert cost == {"truncated": 0.5, "completions": 160, "completions_cut": 80}
    assert found.evidence["tokens"] == pytest.approx(0.8)
    assert found.evidence["ended_length"] == pytest.approx(25.0)
    assert all(word in found.summary for word in ("50%", "80 of 160", "100 tokens", "80% of the tokens"))


def test_without_a_limit_or_a_count_only_the_share_is_said() -> None:
    """A foreign log: no cumulated completions, nothing known of K and of the limit."""
    bare = [{"step": one["step"], "completions/truncated": one["completions/truncated"]} for one in rows(*[0.5] * 10)]
    found = only(Case(rows=bare))
    assert set(found.evidence) == {"truncated", "truncated_first", "truncated_last", "first_step", "last_step"}
    assert found.suggest == ()
    assert found.decider is not None
    assert found.decider.overrides == ()


def test_a_limit_that_the_lengths_contradict_makes_no_token_count() -> None:
    found = only(case(rows(*[0.5] * 10), max_completion_length=400))
    assert "tokens" not in found.evidence


@pytest.mark.parametrize(
    ("cut", "ended", "said"),
    [(0.1, 0.9, "pays less"), (0.5, 0.5, "does not tell them apart"), (0.9, 0.1, "pays more")],
)
def test_what_the_reward_pays_for_them(cut: float, ended: float, said: str) -> None:
    found = only(case(paid(rows(*[0.5] * 10), cut, ended)))
    assert found.evidence["reward_cut"] == pytest.approx(cut)
    assert found.evidence["reward_ended"] == pytest.approx(ended)
    assert said in found.summary
    assert f"{cut:.3g}" in found.summary


def test_steps_of_one_kind_tell_without_a_column_of_their_own() -> None:
    """Where all were cut off, or none, the mean reward is that kind's; a mixed step says nothing."""
    table = rows(*[1.0, 0.0, 0.5] * 5)
    foreign = [
        {**row, "reward/mean": {1.0: 0.2, 0.0: 0.6, 0.5: 99.0}[row["completions/truncated"] or 0.0]} for row in table
    ]
    found = only(case(foreign))
    assert (found.evidence["reward_cut"], found.evidence["reward_ended"]) == (pytest.approx(0.2), pytest.approx(0.6))


@pytest.mark.parametrize(
    "more", [{}, {"reward/mean": 0.5}, {"reward/mean": 0.5, "reward/missing": 0.1, "reward/truncated": 0.1}]
)
def test_a_log_that_does_not_tell_them_apart_says_no_reward(more: dict[str, float]) -> None:
    found = only(case(rows(*[0.5] * 10, **more)))
    assert not {"reward_cut", "reward_ended"} & set(found.evidence)


@pytest.mark.parametrize(
    ("ended", "cut", "settings", "suggest"),
    [
        (70.0, 0.5, {}, ("max_completion_length=200",)),  # those that end need nearly as much
        (20.0, 0.5, {}, ("overlong.weight=1",)),  # they need far less, and the reward does not mind
        (20.0, 0.5, {"overlong": True}, ()),
        (20.0, 0.1, {}, ()),  # the reward pays less for them already
    ],
)
def test_what_is_suggested(ended: float, cut: float, settings: dict[str, object], suggest: tuple[str, ...]) -> None:
    table = paid(rows(*[0.5] * 10, ended=ended), cut, 0.5)
    assert only(case(table, **settings)).suggest == suggest


def test_masked_ones_teach_nothing() -> None:
    assert "nothing was learned from them" in only(case(rows(*[0.5] * 10), mask_truncated_completions=True)).summary


def test_each_stage_is_counted_by_itself() -> None:
    """The limit known is that of the last one; the supervised steps before them have no completions."""
    supervised: list[Row] = [{"step": step, "stage": 0.0, "update": 1, "completions": 0.0} for step in range(1, 6)]
    first, second = rows(*[0.0] * 10, begin=6, stage=1.0), rows(*[0.5] * 5, begin=16, stage=2.0)
    found = only(case([*supervised, *first, *second], stage=2))
    assert (found.evidence["first_step"], found.evidence["truncated"]) == (16, 0.5)
    assert found.evidence["max_completion_length"] == LIMIT
    (early,) = truncation(case([*supervised, *rows(*[0.5] * 5, begin=6, stage=1.0), *second[:0]], stage=2))
    assert "max_completion_length" not in early.evidence
    both = truncation(case([*rows(*[0.5] * 5, stage=0.0), *rows(*[0.6] * 5, begin=6, stage=1.0)], stage=1))
    assert [(one.evidence["first_step"], one.evidence["last_step"]) for one in both] == [(1, 5), (6, 10)]


# What looks alike.


def test_texts_that_fill_the_limit_may_be_meant() -> None:
    """All but one in twenty are cut off and valid; or those that are cut off are valid and earn more."""
    assert only(case(rows(*[0.97] * 20, **{"completions/valid": 1.0}))).severity == "info"
    valid = rows(*[0.6] * 20, **{"completions/valid": 0.9})  # 0.9 + 0.6 - 1 = 0.5 of 0.6 are cut off and valid
    meant = only(case(paid(valid, 0.9, 0.1)))
    assert (meant.severity, meant.suggest) == ("info", ())
    assert meant.evidence["cut_valid_at_least"] == pytest.approx(0.5 / 0.6)
    assert only(case(paid(valid, 0.5, 0.5))).severity == "warning"
    unsound = rows(*[0.6] * 20, **{"completions/valid": 0.5})  # at least 0.1 of 0.6: the others may be the valid ones
    assert only(case(paid(unsound, 0.9, 0.1))).severity == "warning"


def test_unsound_start_is_left_out_where_it_says_the_same() -> None:
    """Nearly all are cut off, and nothing is known of their validity: that is one thing to say, and not two."""
    of: Case = Case(rows=[{"step": step, "update": 1, "completions/truncated": 0.97} for step in range(1, 13)])
    (start,) = unsound_start(of)
    assert (start.severity, start.evidence["metric"]) == ("warning", "completions/truncated")
    assert [one.id for one in examine(of)] == ["truncation"]


def test_evaluations_are_not_counted() -> None:
    evaluated: list[Row] = [{**row, "eval/truncated": 0.9} for row in rows(*[0.1] * 10)]
    assert truncation(case(evaluated)) == ()


def test_every_one_from_the_first_step_on_is_for_missing_eos() -> None:
    found = [one.id for one in examine(case(rows(*[1.0] * 10, **{"completions/valid": 0.0})))]
    assert "missing-eos" in found
    assert "truncation" not in found


def test_a_policy_that_broke_is_not_told_twice() -> None:
    """Sound for ten steps, then cut off for good while the reward falls: the collapse says it."""
    sound = rows(*[0.05] * 10, **{"completions/valid": 1.0, "reward/mean": 0.8, "reward/truncated": 0.1})
    broken = rows(*[1.0] * 20, begin=11, **{"completions/valid": 0.0, "reward/mean": 0.0, "reward/truncated": 0.0})
    found = [one.id for one in examine(case([*sound, *broken]))]
    assert "policy-collapse" in found
    assert "truncation" not in found


def test_a_reward_that_pays_for_length_is_told_by_truncation_and_not_as_a_broken_limit() -> None:
    """Completions ended at first; the reward rises as they are cut off, so no harm is seen and nothing else broke."""
    shares = [0.0, 0.0, 0.1, 0.3, 0.6, 0.8, *[1.0] * 24]
    table = [{**row, "reward/mean": 0.3 + 0.7 * share} for row, share in zip(rows(*shares), shares, strict=True)]
    known = Case(rows=table, settings=Settings(max_completion_length=LIMIT))
    assert [one.id for one in policy_collapse(known)] == ["limit-broken"]
    told = {one.id: one for one in examine(known)}
    assert "limit-broken" not in told
    assert "the reward pays more for them" in told["truncation"].summary


def test_cut_off_completions_beside_another_broken_limit_are_its_consequence() -> None:
    shares = [0.0, 0.0, 0.1, 0.3, 0.6, 0.8, *[1.0] * 24]
    table = [{**row, "completions/valid": 1 - share} for row, share in zip(rows(*shares), shares, strict=True)]
    assert truncation(case(table)) == ()
