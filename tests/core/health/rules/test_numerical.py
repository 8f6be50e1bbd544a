"""What is no number, gradients out of proportion, and rounding as a signal."""

from __future__ import annotations

import pytest

from core.health.case import Case, Settings
from core.health.finding import Finding, Row
from core.health.rules.numerical import numerical

LIVE: Row = {"update": 1, "learning_rate": 0.1, "grad_norm": 1.0, "loss": 0.01, "groups/dead": 0.0}


def case(*changes: Row, steps: int = 30, **settings: float | str) -> Case:
    """Live steps, the first of them changed so."""
    padded = [*changes, *[{}] * (steps - len(changes))]
    rows: list[Row] = [{"step": i, **LIVE, **change} for i, change in enumerate(padded, 1)]
    return Case(rows=rows, settings=Settings(**settings))  # type: ignore[arg-type]


def ids(case: Case) -> list[str]:
    return [f"{one.id} {one.severity}" for one in numerical(case)]


def only(case: Case) -> Finding:
    (found,) = numerical(case)
    return found


NONE: Row = {"loss": None, "grad_norm": None, "update": 0}


def test_what_is_no_number_to_the_end() -> None:
    found = only(case(*[{}] * 20, *[NONE] * 10, learning_rate=1e-3))
    assert (found.id, found.severity, found.suggest) == ("numerical", "error", ("learning_rate=0.0001",))
    assert (found.evidence["step"], found.evidence["steps"]) == (21, 10)
    assert all(fact in found.summary for fact in ("step 21:", "loss, grad_norm", "not applied", "9 more"))
    assert ids(case({"reward/mean": None})) == []  # all rewards of a step may be missing
    assert ids(case()) == []


def test_single_steps_that_passed() -> None:
    found = only(case({"grad_norm": None}, {"grad_norm": None}, learning_rate=1e-3))
    assert (found.id, found.severity, found.suggest) == ("isolated-nan", "info", ())
    assert "a float16 loss scaler" in found.summary
    # A scaler makes gradients overflow at first, and nothing else.
    for odd, said in (({"loss": float("nan")}, "so 1 update was lost"), ({"kl": None}, "so no update was lost")):
        rows = [odd, *[{"kl": 0.1}] * 29]
        assert ids(case(*rows)) == ["isolated-nan warning"]
        assert said in only(case(*rows)).summary
        assert "scaler" not in only(case(*rows)).summary
    eighth: list[Row] = [{"loss": None} if step % 8 == 0 else {} for step in range(1, 101)]
    found = only(case(*eighth, steps=100))
    assert (found.id, found.severity, "so 12 updates were lost" in found.summary) == ("isolated-nan", "warning", True)
    assert "scaler" not in found.summary + found.advice
    for lost, severity in ((2, "info"), (3, "warning")):  # of 41 and of 42 steps
        late = case(*[{}] * 20, *[{"grad_norm": None}] * lost, *[{}] * 19, steps=39 + lost)
        assert ids(late) == [f"isolated-nan {severity}"]
    single = [{"grad_norm": None}, {}] * 3
    assert ids(case(*[{}] * 60, *single, *[{}] * 60, steps=126)) == ["isolated-nan info"]
    assert ids(case(*[{}] * 60, *[{"grad_norm": None}] * 3, *[{}] * 60, steps=123)) == ["isolated-nan warning"]
    fell = [{"reward/mean": 0.5}] * 60 + single + [{"reward/mean": 0.1}] * 60
    assert "isolated-nan warning" in ids(case(*fell, steps=126))
    late = only(case(*[{}] * 57, {"grad_norm": None}, steps=60))
    assert (found.id, "so 1 update was lost" in late.summary) == ("isolated-nan", True)
    assert ids(case({"grad_norm": None}, {"grad_norm": None}, steps=6)) == ["isolated-nan warning"]  # a third of all


def test_a_column_that_never_was_a_number_was_not_measured() -> None:
    # 80 rows of an export that writes null or NaN for a KL that beta 0 does not have.
    assert ids(case(*[{"kl": None}] * 80, steps=80)) == []
    assert ids(case(*[{"kl": 0.1}] * 40, *[{"kl": None}] * 40, steps=80)) == ["numerical error"]
    assert ids(case(*[{"loss": None}] * 80, steps=80)) == ["numerical error"]  # no update can have been made of that


@pytest.mark.parametrize(
    "changes",
    [
        [{}] * 29 + [NONE],  # it ended the run
        [{}] * 27 + [NONE, {}, {}],  # two sound steps are too few to tell
        [NONE] * 7,  # 7 of 30 are more than a fifth
        [{"completions/valid": 0.9}, {**NONE, "completions/valid": 0.9}] + [{"completions/valid": 0.4}] * 28,
        [{}, {"kl": 0.1}, {"kl": None}],  # the column never came back
    ],
)
def test_what_did_not_pass(changes: list[Row]) -> None:
    assert ids(case(*changes)) == ["numerical error"]


def test_a_gradient_out_of_proportion() -> None:
    found = only(case({"grad_norm": 31.0}))
    assert (found.id, found.severity, found.suggest) == ("grad-norm", "warning", ("max_grad_norm=4",))
    assert (found.evidence["largest"], found.evidence["median"], found.evidence["spikes"]) == (31.0, 1.0, 1)
    assert only(case({"grad_norm": 31.0}, max_grad_norm=5.0)).severity == "info"  # it was held
    assert ids(case({"grad_norm": 29.0})) == []
    assert ids(case(*[{"grad_norm": 31.0}] * 7)) == []  # 7 of 30 are no outliers
    assert ids(case({"grad_norm": 31.0}, steps=19)) == []
    # Steps without a signal have gradients of rounding: they are no measure.
    assert ids(case(*[{"grad_norm": 1e-6, "groups/dead": 1.0}] * 10)) == []


@pytest.mark.parametrize(("over", "found"), [(27, True), (26, False)])
def test_a_gradient_that_is_always_clipped(over: int, found: bool) -> None:
    # Nine tenths of 30 are 27.
    assert ids(case(*[{"grad_norm": 5.0}] * over, max_grad_norm=2.0)) == ["always-clipped info"] * found


def test_rounding_taken_for_a_signal() -> None:
    # Rewards 0.3: a std of 1e-8 is under a millionth of them.
    odd: Row = {"reward/mean": 0.3, "reward/group_std": 1e-8, "advantage/max_abs": 0.7}
    found = only(case({}, odd, {**odd, "advantage/max_abs": 0.2}, eps=1e-8))
    assert (found.id, found.severity, found.suggest) == ("rounding-as-signal", "warning", ("advantage.eps=1e-4",))
    assert (found.evidence["steps"], found.evidence["step"], found.evidence["max_abs"]) == (2, 2, 0.7)
    held = only(case({**odd, "advantage/max_abs": 1.5e-4}, eps=1e-4))  # as TRL's eps has it
    assert (held.severity, held.suggest) == ("info", ())
    assert ids(case({**odd, "advantage/max_abs": 0.0})) == []  # as it should be
    assert ids(case({**odd, "reward/group_std": 1e-3})) == []  # small, and real
    assert ids(case(odd, baseline="batch")) == []  # there a group of equal rewards does push
    assert ids(case({"groups/dead": 1.0, "advantage/max_abs": 0.7})) == ["rounding-as-signal warning"]
