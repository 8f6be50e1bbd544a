"""The rules while a run goes on: said once, in the log, and the run as if nobody looked."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from core.health.case import Case, case_of
from core.health.finding import Finding, Row
from core.training import callbacks
from core.training.callbacks import Watching, looks
from tests.fakes import PricedTask, TabularPolicy, ran, run_spec, trainer_of
from tests.logs import Logged

BROKEN = 2.0  # nats between what was drawn and what is scored: rounding explains 1e-4


def table(steps: int, broken_from: int) -> list[Row]:
    """Rows 0 to `steps`; from one of them on the sampler is at fault."""
    rows: list[Row] = [{"step": 0}]
    for step in range(1, steps + 1):
        gap = BROKEN if step >= broken_from else 1e-6
        rows.append({"step": step, "update": 1, "completions/valid": 0.9, "rollout/logprob_gap": gap})
    return rows


def said(logged: Logged, rows: list[Row]) -> list[tuple[int, str]]:
    """What is logged while the table grows step by step: (step, the finding's id)."""
    logged.records.clear()
    callback = Watching(run_spec())
    with logged.at_level(logging.WARNING, logger=callbacks.__name__):
        assert all(callback.after_step(rows[: step + 1]) is None for step in range(len(rows)))
    found = [record.getMessage().split(": ")[:2] for record in logged.records]
    return [(int(step.removeprefix("step ")), id_) for step, id_ in found]


def test_when_it_looks() -> None:
    # 25, then by 25 up to 100, then by a quarter of what there is: 100 + 25, 125 + 31, 156 + 39.
    assert looks(24) == []
    assert looks(25) == [25]
    assert looks(195) == [25, 50, 75, 100, 125, 156, 195]
    assert sum(looks(10_000)) < 10 * 10_000  # all looks together: some times the table, not its square


def test_a_finding_is_said_once_and_ends_nothing(logged: Logged) -> None:
    assert said(logged, table(130, broken_from=60)) == [(75, "rollout-integrity")]
    assert said(logged, table(130, broken_from=999)) == []


def test_completions_that_are_cut_off_are_told_on_the_way(logged: Logged) -> None:
    cut = [{**row, **({"completions/truncated": 0.4} if row["step"] else {})} for row in table(60, broken_from=999)]
    assert said(logged, cut) == [(25, "truncation")]


def test_what_a_resumed_run_says_is_what_the_undisturbed_one_says(logged: Logged) -> None:
    rows = table(130, broken_from=60)
    callback = Watching(run_spec())  # begins at step 90: nothing is remembered, and nothing is said again
    with logged.at_level(logging.WARNING, logger=callbacks.__name__):
        for step in range(90, 131):
            callback.after_step(rows[: step + 1])
    assert logged.records == []


def test_what_comes_and_goes_is_said_once(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning on the looks at 25, 75 and 125, and not on those between."""

    def flaps(case: Case) -> list[Finding]:
        odd = len(case.rows) in (26, 76, 126)
        return [Finding(id="always", severity="info", summary="."), *flapping[:odd]]

    flapping = [Finding(id="flaps", severity="warning", summary="bad")]
    monkeypatch.setattr(callbacks, "examine", flaps)
    assert said(logged, table(130, broken_from=999)) == [(25, "flaps")]
    assert logged.records[0].getMessage() == "step 25: flaps: bad (so far)"


def test_what_only_a_whole_run_can_show_is_not_said_on_the_way(logged: Logged) -> None:
    # 125 steps, the evaluation before them the best so far, the last as good: at the end two infos.
    rows = table(125, broken_from=999)
    for step in range(0, 126, 25):
        rows[step] = {**rows[step], "eval/reward": 0.4 if step % 125 else 0.5, "eval/reward_se": 0.05}
    assert {"noise", "missed-stop"} <= {one.id for one in callbacks.examine(case_of(run_spec(), rows))}
    with logged.at_level(logging.INFO, logger=callbacks.__name__):
        callback = Watching(run_spec())
        for step in range(126):
            callback.after_step(rows[: step + 1])
    assert not [message for message in logged.messages if "noise" in message or "missed-stop" in message]


@pytest.mark.parametrize("error", [ZeroDivisionError, AttributeError, RuntimeError])
def test_a_rule_that_fails_does_not_end_a_run(
    logged: Logged, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fails(case: object) -> list[object]:
        raise error

    monkeypatch.setattr(callbacks, "examine", fails)
    with logged.at_level(logging.INFO, logger=callbacks.__name__):
        assert Watching(run_spec()).after_step(table(25, broken_from=1)) is None
    assert f"could not be asked: {error.__name__}()" in "\n".join(logged.messages)


def test_a_watched_run_records_what_an_unwatched_one_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "FIRST", 2)  # looks at 2, 4, 6, ...

    def rows(*, watched: bool) -> Sequence[Row]:
        trainer = trainer_of(TabularPolicy(), PricedTask(lambda prompt, output: float(len(set(output)))))
        trainer.callbacks = [Watching(trainer.spec)] if watched else []
        return ran(trainer).rows

    assert rows(watched=True) == rows(watched=False)
