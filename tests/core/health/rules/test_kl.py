"""Beta by its share of the gradient, the estimators, and what the share of the loss does not say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from core.health.case import Case, Settings
from core.health.finding import Finding, Row
from core.health.rules.kl import kl

KNOWN = Settings(beta=0.5, kl_in="loss", kl_estimator="k2")


def case(*shares: float, settings: Settings = KNOWN, **columns: float) -> Case:
    """A step for each share, measured on it; the columns are the same on all."""
    rows: list[Row] = [
        {"step": step, "update": 1, "beta": settings.beta, **columns, "grad_share/kl": share}
        for step, share in enumerate(shares, 1)
    ]
    return Case(rows=rows, settings=settings)


def only(case: Case) -> Finding:
    (found,) = kl(case)
    return found


def test_a_beta_that_pulls_hard() -> None:
    # At 0.0025 nats a share of 1/3: 0.5 times the rest; at 0.01 nats, four times the KL, twice that: 1.
    found = only(case(*[1 / 3] * 4, kl=0.0025))
    assert (found.id, found.severity, found.confidence) == ("kl-weight", "warning", "strong")
    assert found.evidence["pull"] == pytest.approx(1.0)
    assert found.suggest == ("beta=0.005",)  # 0.5 * 0.01 / 1
    # The same weight, measured where the policy had hardly moved: a share of 0.048 at 0.000025 nats.
    early = only(case(*[1 / 21] * 4, kl=0.000025))
    assert early.evidence["pull"] == pytest.approx(1.0)


def test_measurements_that_scatter_are_less_certain() -> None:
    # Pulls at 0.01 nats: 0.05, 0.2, 0.2, 3. Median 0.2; their logs are -1.28 on average with a se of 0.85.
    scattered = case(*[pull / (1 + pull) for pull in (0.05, 0.2, 0.2, 3.0)], kl=0.01)
    assert (only(scattered).confidence, only(scattered).evidence["pull"]) == ("moderate", pytest.approx(0.2))


@pytest.mark.parametrize(
    ("shares", "level"),
    [
        ((0.01, 0.01, 0.02, 0.01), 0.01),  # does something, and little
        ((0.05, 0.05, 0.05), 0.02),  # 0.0526 at 0.02 nats is 0.037 at 0.01
        ((0.5, 0.5), 0.01),  # too few
        ((0.5, 0.5, 0.5), 1e-7),  # rounding
        ((), 0.01),
    ],
)
def test_shares_that_say_nothing(shares: tuple[float, ...], level: float) -> None:
    assert list(kl(case(*shares, kl=level))) == []


def test_a_beta_that_does_nothing() -> None:
    found = only(case(0.0002, 0.0004, 0.0003, kl=0.01))
    assert (found.id, found.severity, found.suggest) == ("kl-idle", "info", ("beta=0",))
    assert list(kl(case(0.0002, 0.0004, 0.0003, kl=0.0001))) == []  # 0.003 at 0.01 nats
    assert list(kl(case(0.0, 0.0, 0.0, kl=0.01, settings=Settings(beta=0.0)))) == []  # there is none


def test_the_share_of_the_loss_is_ruled_out_where_it_would_have_said_something() -> None:
    # |0.5 * 0.02| = 0.01 against |1e-6|: 100 % of the loss. Against 0.09 it is 10 %: nothing to rule out.
    found = only(case(0.0, 0.3, 0.3, 0.3, kl=0.02, **{"policy/loss": 1e-6}))
    assert [ruled.id for ruled in found.rules_out] == ["kl-share-of-loss"]
    assert only(case(0.0, 0.3, 0.3, 0.3, kl=0.02, **{"policy/loss": 0.09})).rules_out == ()


def test_without_a_gradient_the_loss_gives_an_info_and_no_blame() -> None:
    # Document 001's figures: 0.012 of 0.0129, so 0.0009 of the policy: 93 %.
    rows: list[Row] = [{"step": i, "policy/loss": 0.0009, "kl_loss": 0.012} for i in range(1, 4)]
    found = only(Case(rows=rows, settings=Settings(beta=0.15)))
    assert (found.id, found.severity, found.confidence) == ("kl-loss-share", "info", "certain")
    assert found.evidence["share_of_loss"] == pytest.approx(0.93, abs=0.001)
    assert found.suggest == ()


def test_a_large_beta_and_a_policy_that_stays_is_a_hint() -> None:
    # A completion of 20 tokens may pay 1 / 5 = 0.2 nats, 0.01 a token; a tenth of that is 0.001.
    def pinned(level: float, beta: float = 5.0, factor: str | None = None) -> Sequence[Finding]:
        rows: list[Row] = [{"step": i, "kl": level, "completions/length": 20.0} for i in range(1, 31)]
        return kl(Case(rows=rows, settings=Settings(beta=beta, factor=factor)))

    assert [f"{one.id} {one.confidence}" for one in pinned(0.0009)] == ["kl-weight weak"]
    assert list(pinned(0.0011)) == []
    assert list(pinned(0.0, beta=0.4)) == []
    assert "0.0009 nats a pixel" in pinned(0.0009, factor="pixel")[0].summary


def plain_k3(share: float, level: float) -> Finding:
    settings = Settings(beta=0.5, kl_in="loss", kl_estimator="k3")
    found = kl(case(0.0, share, share, share, settings=settings, kl=level))
    return next(one for one in found if one.id == "kl-estimator")


def test_plain_k3_matters_by_the_kl_and_its_share() -> None:
    # At 0.02 nats the two gradients differ by sqrt(0.01) = 10 %; of a share of 0.3 that is 3 %, of one of 0.05 0.5 %.
    found = plain_k3(0.3, 0.02)
    assert (found.severity, found.confidence, found.suggest) == ("warning", "certain", ("kl_estimator=k3_ratio",))
    assert found.evidence["differs_by"] == pytest.approx(0.1)
    assert "3.0% of the whole gradient" in found.summary
    assert plain_k3(0.05, 0.02).severity == "info"
    # As TRL logs it: no share of the gradient, so nobody knows whether 16 % of the KL's own (0.05 nats) matter.
    rows: list[Row] = [{"step": i, "kl": 0.05} for i in range(1, 31)]
    (unmeasured,) = kl(Case(rows=rows, settings=Settings(beta=0.04, kl_in="loss", kl_estimator="k3")))
    assert (unmeasured.severity, "was not measured" in unmeasured.summary) == ("info", True)
    assert plain_k3(0.3, 0.0002).severity == "info"


def test_the_other_estimators() -> None:
    def of(kind: str, where: str = "loss") -> list[str]:
        settings = Settings(beta=0.5, kl_in=where, kl_estimator=kind)
        return [one.severity for one in kl(case(0.01, 0.01, settings=settings, kl=0.02)) if one.id == "kl-estimator"]

    assert of("k1") == ["warning"]
    assert of("k2") == of("k3_ratio") == of("k1_ratio") == []
    assert of("k1", "reward") == of("k3", "reward") == []
