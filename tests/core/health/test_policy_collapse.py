"""What went first in a collapse that does not heal."""

from __future__ import annotations

import pytest

from core.health.case import Case
from core.health.finding import Finding, Row
from core.health.policy_collapse import policy_collapse
from core.spec import GuardSpec

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


@pytest.mark.parametrize(
    ("changes", "kind", "suggests"),
    [
        ([(30, {"kl": 3.0}), (34, {"entropy": 0.01}), (40, INVALID)], "kl-runaway", "beta=0.05"),
        ([(30, {"entropy": 0.01}), (34, {"kl": 3.0}), (40, INVALID)], "entropy", "entropy_coef=0.01"),
        ([(30, {"completions/truncated": 0.9}), (40, INVALID)], "length-grows", "overlong.weight=1"),
        ([(30, {"completions/length": 3.0}), (40, INVALID)], "length-shrinks", "reduction=token_mean"),
        ([(40, INVALID), (50, {"kl": 3.0})], "unknown", ""),  # what comes after it was not its cause
        ([(40, {"kl": 20.0})], "kl-runaway", "beta=0.05"),  # the guard's own column
        ([(40, {"completions/length": 1.0})], "length-shrinks", "reduction=token_mean"),
    ],
)
def test_what_went_first(changes: list[tuple[int, Row]], kind: str, suggests: str) -> None:
    found = only(run(*changes))
    assert (found.id, found.severity, found.evidence["kind"]) == ("policy-collapse", "error", kind)
    assert found.suggest[:1] == ((suggests,) if suggests else ())
    assert found.evidence["updates_before"] == int(str(found.evidence["first_step"])) - 1


def test_a_rate_that_broke_it_at_once() -> None:
    # From step 3 on all is different: 9 of the first 10 steps after the first update.
    found = only(run((3, {**INVALID, "entropy": 3.0})))
    assert (found.evidence["kind"], found.suggest) == ("learning-rate", ("learning_rate=0.0001",))


def test_a_reward_that_paid_for_it() -> None:
    case = run((40, INVALID))
    rows = [{**row, "reward/mean": 0.5 + 0.005 * (row["step"] or 0)} for row in case.rows]
    assert only(Case(rows=rows, guards=GUARDS)).evidence["kind"] == "reward-hacking"
    rows = [{**row, "reward/mean": 0.5 - 0.005 * (row["step"] or 0)} for row in case.rows]
    assert only(Case(rows=rows, guards=GUARDS)).evidence["kind"] == "unknown"


def test_what_was_never_sound_did_not_collapse() -> None:
    assert only(run((1, INVALID))).id == "unsound-start"
    late = [{**row, "update": int((row["step"] or 0) > 20)} for row in run((2, INVALID)).rows]
    assert only(Case(rows=late, guards=GUARDS)).id == "unsound-start"  # it broke before any update
    assert only(run((5, INVALID))).id == "policy-collapse"


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
    assert policy_collapse(run((30, {"kl": None}))) == ()  # core.health.numerical says that
    assert policy_collapse(run((30, {**INVALID, "rollout/logprob_gap": 3.0}))) == ()  # the sampler is at fault
