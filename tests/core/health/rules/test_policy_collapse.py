"""What went first in a collapse that does not heal, and runs broken from the first step that drew completions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.config import GuardSpec
from core.health.case import Case, Settings
from core.health.finding import Finding, Row
from core.health.rules.policy_collapse import policy_collapse, unsound_start

GUARDS = GuardSpec(patience=3)
SOUND: Row = {
    "update": 1, "learning_rate": 1e-3, "completions/valid": 0.9, "completions/length": 20.0, "reward/mean": 0.5,
    "completions/truncated": 0.0, "entropy": 0.5, "kl": 0.01,
}  # fmt: skip


def run(*changes: tuple[int, Row], steps: int = 60) -> Case:
    """A sound run; each change holds from its step on."""
    rows: list[Row] = []
    for step in range(1, steps + 1):
        row: dict[str, float | None] = {"step": step, **SOUND}
        for start, change in changes:
            row |= change if step >= start else {}
        rows.append(row)
    return Case(rows=rows, guards=GUARDS)


def only(case: Case) -> Finding:
    (found,) = policy_collapse(case)
    return found


INVALID: Row = {"completions/valid": 0.0}
GAP: Row = {"rollout/logprob_gap": 1e-7}
POOR: Row = {"reward/mean": 0.1}


@pytest.mark.parametrize(
    ("changes", "kind", "suggests"),
    [
        ([(30, {"kl": 3.0}), (34, {"entropy": 0.01}), (40, INVALID)], "kl-runaway", "beta=0.05"),
        ([(30, {"entropy": 0.01}), (34, {"kl": 3.0}), (40, INVALID)], "entropy", "entropy_coef=0.01"),
        ([(30, {"completions/truncated": 0.9}), (40, INVALID)], "length-grows", "overlong.weight=1"),
        ([(30, {"completions/length": 3.0}), (40, INVALID)], "length-shrinks", "reduction=token_mean"),
        ([(40, INVALID), (50, {"kl": 3.0})], "unknown", ""),  # what comes after it was not its cause
        ([(40, {"kl": 20.0, **POOR})], "kl-runaway", "beta=0.05"),  # the guard's own column
        ([(40, {"completions/length": 1.0, **POOR})], "length-shrinks", "reduction=token_mean"),
        ([(40, {"entropy": 1e-4, **POOR})], "entropy", "entropy_coef=0.01"),
    ],
)
def test_what_went_first(changes: list[tuple[int, Row]], kind: str, suggests: str) -> None:
    found = only(run(*changes))
    assert (found.id, found.severity, found.evidence["kind"]) == ("policy-collapse", "error", kind)
    assert found.suggest[:1] == ((suggests,) if suggests else ())
    assert found.evidence["updates_before"] == int(str(found.evidence["first_step"])) - 1


def test_a_rate_that_broke_it_at_once() -> None:
    # From step 3 on all is different: 9 of the first 10 steps after the first update.
    broken = {**INVALID, "entropy": 3.0}
    found = only(run((1, GAP), (3, broken)))
    assert (found.evidence["kind"], found.suggest) == ("learning-rate", ("learning_rate=0.0001",))
    found = only(run((3, broken)))  # an update can leave a sampler in a wrong mode, and nobody measured the gap
    assert (found.evidence["kind"], found.suggest) == ("rate-or-sampler", ("guards.rollout_integrity=stop",))
    assert "broke it" not in found.summary
    rows = run((1, GAP), (3, broken)).rows
    found = only(Case(rows=rows, guards=GUARDS, averaged_over=10))  # two rows are twenty updates
    assert (found.evidence["kind"], found.evidence["updates_before"]) == ("unknown", 20)


def test_a_reward_that_paid_for_it() -> None:
    case = run((40, INVALID))
    rows = [{**row, "reward/mean": 0.5 + 0.005 * (row["step"] or 0)} for row in case.rows]
    assert only(Case(rows=rows, guards=GUARDS)).evidence["kind"] == "reward-hacking"
    rows = [{**row, "reward/mean": 0.5 - 0.005 * (row["step"] or 0)} for row in case.rows]
    assert only(Case(rows=rows, guards=GUARDS)).evidence["kind"] == "unknown"


@pytest.mark.parametrize("change", [{"kl": 20.0}, {"completions/length": 1.0}, {"completions/truncated": 1.0}])
def test_a_limit_that_was_broken_to_nobodys_harm(change: Row) -> None:
    found = only(run((40, change)))
    assert (found.id, found.severity) == ("limit-broken", "warning")


def test_a_limit_that_a_part_of_the_reward_was_paid_for_is_the_parts() -> None:
    """Completions shrink, one part of the reward rises and another falls: component-conflict says it."""
    rows: list[Row] = [
        {**row, "rewards/short": 0.2 + 0.02 * min(step, 30), "rewards/right": 0.9 - 0.03 * min(step, 30)}
        for row in run((40, {"completions/length": 1.0})).rows
        for step in (row["step"] or 0,)
    ]
    assert policy_collapse(Case(rows=rows, guards=GUARDS)) == ()


def test_a_policy_that_is_sure_of_what_is_right_has_converged() -> None:
    rows: list[Row] = [{**row, "completions/valid": 1.0} for row in run((40, {"entropy": 1e-4})).rows]
    for change, found in (({"reward/mean": 1.0}, ("converged", "info")), (POOR, ("policy-collapse", "error"))):
        since = [{**row, **(change if (row["step"] or 0) >= 40 else {})} for row in rows]
        assert [(one.id, one.severity) for one in policy_collapse(Case(rows=since, guards=GUARDS))] == [found]
    known = {"step", "update", "entropy"}
    bare = [{name: value for name, value in row.items() if name in known} for row in rows]
    assert only(Case(rows=bare, guards=GUARDS)).id == "limit-broken"  # whom it harmed nobody knows


def test_a_rate_that_was_still_rising_when_it_broke() -> None:
    # The rate of step s is s / 1000: at the last update before step 20 0.019, ten updates before that 0.010.
    rows = [{**row, "learning_rate": (row["step"] or 0) / 1000} for row in run((20, INVALID)).rows]
    found = only(Case(rows=rows, guards=GUARDS))
    assert (found.evidence["kind"], found.suggest) == ("learning-rate", ("learning_rate=0.002",))
    flat = [{**row, "learning_rate": min(row["learning_rate"] or 0.0, 0.009)} for row in rows]
    assert only(Case(rows=flat, guards=GUARDS)).evidence["kind"] == "unknown"


def test_a_grpo_stage_that_breaks_at_once_after_a_supervised_one() -> None:
    supervised: list[Row] = [{"step": step, "update": 1, "learning_rate": 1e-4} for step in range(1, 31)]
    later = [{**row, "step": (row["step"] or 0) + 30} for row in run((1, GAP), (2, INVALID)).rows]
    found = only(Case(rows=[*supervised, *later], guards=GUARDS))
    assert (found.evidence["kind"], found.evidence["updates_before"]) == ("learning-rate", 1)


def test_what_no_update_did_is_not_the_policys() -> None:
    assert only(run((1, INVALID))).id == "unsound-start"
    late = [{**row, "update": int((row["step"] or 0) > 20)} for row in run((2, INVALID)).rows]
    assert policy_collapse(Case(rows=late, guards=GUARDS)) == ()  # sound first, and broken without any update
    still = [{**row, "learning_rate": 1e-3 * ((row["step"] or 0) > 1)} for row in run((2, INVALID)).rows]
    assert policy_collapse(Case(rows=still, guards=GUARDS)) == ()  # the one before it was at a rate of 0
    assert only(run((5, INVALID))).id == "policy-collapse"


def test_what_a_number_that_is_none_broke_is_not_said_twice() -> None:
    assert policy_collapse(run((30, {"loss": None}), (32, INVALID))) == ()  # core.health.rules.numerical says that


def test_a_collapse_that_heals_without_an_update_is_not_the_policys() -> None:
    # Update, all-invalid three times; then a skip, after which all is well: a wrong mode.
    rows: list[Row] = []
    for step in range(1, 61):
        broken = step % 5 in (2, 3, 4)
        rows.append({"step": step, **SOUND, "update": int(step % 5 in (1, 2, 3)), **(INVALID if broken else {})})
    assert policy_collapse(Case(rows=rows, guards=GUARDS)) == ()
    # The same steps, but after the skip it stays broken.
    stays = [{**row, **(INVALID if (row["step"] or 0) > 1 else {})} for row in rows]
    found = only(Case(rows=stays, guards=GUARDS))
    assert [ruled.id for ruled in found.rules_out] == ["rollout-mode"]


def test_no_limit_broken_no_finding() -> None:
    assert policy_collapse(run()) == ()
    assert policy_collapse(run((59, INVALID))) == ()
    assert policy_collapse(run((30, {"kl": None}))) == ()  # core.health.rules.numerical says that
    assert policy_collapse(run((20, INVALID), (40, SOUND))) == ()  # it came back
    assert policy_collapse(run((30, {**INVALID, "rollout/logprob_gap": 3.0}))) == ()  # the sampler is at fault


@pytest.mark.parametrize(
    ("change", "found"),
    [
        # 20 tokens at 1e-4 nats: no chance may have changed by more than sqrt(20 * 1e-4 / 2) = 0.032, and validity did
        # by 0.9. At 0.009 sqrt(0.09) = 0.3. With 200 tokens sqrt(0.9) = 0.95: that policy can do it.
        ({"kl": 1e-4}, "rollout-mode"),
        ({"kl": 0.009}, "rollout-mode"),
        ({"kl": 0.009, "completions/length": 200.0}, "policy-collapse"),
        ({"kl": 0.02}, "policy-collapse"),
        ({"kl": 1e-4, "completions/length": None}, "policy-collapse"),  # of how many factors is not known: no bound
    ],
)
@pytest.mark.parametrize("start", [3, 30])
def test_a_collapse_of_weights_that_hardly_moved_is_the_samplers(start: int, change: Row, found: str) -> None:
    one = only(run((start, {**INVALID, **change})))
    assert (one.id, one.severity, one.confidence) == (found, "error", "moderate")
    if found == "rollout-mode":
        assert one.evidence["first_step"] == start
        assert [ruled.id for ruled in one.rules_out] == ["policy-collapse", "learning-rate", "damaged-weights"]
        assert "or the prompts changed there" in one.summary


def test_what_is_suggested_is_no_less_than_what_is_so() -> None:
    case = run((40, {"kl": 20.0, **POOR}))
    for settings, suggests in (
        (Settings(), ("beta=0.05", "num_iterations=1")),
        (Settings(beta=0.1, updates_per_rollout=1), ("beta=0.4",)),
        (Settings(beta=0.0, updates_per_rollout=4), ("beta=0.05", "num_iterations=1")),
        (Settings(beta=0.001), ("beta=0.05", "num_iterations=1")),
    ):
        assert only(replace(case, settings=settings)).suggest == suggests


def case(metric: str, *values: float, **more: float) -> Case:
    """Steps with these values of a column."""
    rows: list[Row] = [{"step": i, "update": 1, "reward/mean": 0.1, metric: v, **more} for i, v in enumerate(values, 1)]
    return Case(rows=rows, guards=GuardSpec(patience=3))


@pytest.mark.parametrize(
    ("valid", "found"),
    [
        ([0.0] * 9, True),
        ([0.0] * 20 + [0.2], True),
        ([0.3] + [0.0] * 9, False),  # the first step was sound
        ([0.0, 0.0, 0.3] + [0.0] * 9, False),  # not three in a row
        ([0.0] * 6 + [0.3] * 3, False),  # it healed
        ([0.0] * 40 + [0.3] * 8, False),  # in the end: 8 of the last third's 16
        ([0.0] * 2, False),
    ],
)
def test_from_the_first_step_to_the_last(valid: list[float], found: bool) -> None:
    assert bool(unsound_start(case("completions/valid", *valid))) == found


@pytest.mark.parametrize(
    ("metric", "value", "severity", "confidence"),
    [
        ("completions/valid", 0.0, "error", "strong"),
        ("completions/truncated", 0.96, "warning", "moderate"),  # what is valid is not known
        ("entropy", 1e-5, "warning", "moderate"),
        ("kl", 30.0, "warning", "moderate"),
    ],
)
def test_how_grave(metric: str, value: float, severity: str, confidence: str) -> None:
    (found,) = unsound_start(case(metric, *[value] * 9))
    assert (found.id, found.severity, found.confidence) == ("unsound-start", severity, confidence)
    assert ("it may be meant" in found.summary) == (severity == "warning")


def test_what_is_cut_off_and_hardly_valid() -> None:
    (found,) = unsound_start(case("completions/truncated", *[0.96] * 9, **{"completions/valid": 0.1}))
    assert (found.severity, found.evidence["metric"]) == ("error", "completions/truncated")


def test_what_is_odd_and_valid_is_by_design() -> None:
    # Continuations of a fixed length: all are cut off, and all are what was asked for.
    assert unsound_start(case("completions/truncated", *[0.96] * 9, **{"completions/valid": 1.0})) == ()


def test_what_missing_eos_says_is_not_said_twice() -> None:
    assert unsound_start(case("completions/truncated", *[1.0] * 9, **{"completions/valid": 0.0})) == ()


def test_a_supervised_stage_before_it_has_no_say() -> None:
    later = [{**row, "step": (row["step"] or 0) + 9} for row in case("completions/valid", *[0.0] * 9).rows]
    supervised: list[Row] = [{"step": step, "update": 1} for step in range(1, 10)]
    (found,) = unsound_start(Case(rows=[*supervised, *later]))
    assert found.evidence["first_step"] == 10


def test_a_few_valid_completions_all_the_time_may_be_a_hard_task() -> None:
    # 2 % of 32: none or one on most steps, two on some; next to nothing is a fifth of the limit of 5 %, 1 %.
    (hard,) = unsound_start(case("completions/valid", *[0.0, 0.031, 0.0, 0.031, 0.0, 0.0625, 0.0, 0.031, 0.0, 0.031]))
    assert (hard.severity, hard.confidence) == ("warning", "moderate")
    assert "too hard" in hard.summary
    assert "1.9%" in hard.summary
    (broken,) = unsound_start(case("completions/valid", *[0.0] * 19, 0.0625))
    assert (broken.severity, broken.confidence) == ("error", "strong")


@pytest.mark.parametrize(("change", "later"), [({}, False), ({"excerpt": True}, True), ({"first": 500}, True)])
def test_of_a_log_that_begins_later_nobody_knows_what_training_did(change: dict[str, int], later: bool) -> None:
    known = case("completions/valid", *[0.0] * 20)
    first = change.get("first", 1)
    rows = [{**row, "step": (row["step"] or 0.0) + first - 1} for row in known.rows]
    (found,) = unsound_start(replace(known, rows=rows, excerpt="excerpt" in change))
    assert ("training did not do it" in found.summary) != later
