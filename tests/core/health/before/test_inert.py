"""A knob that is called inert changes nothing, and what is said to make it act does.

A plateau that cannot come before its stage is over changes nothing; one that can may make another knob act.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch

from core.algorithms.advantages import advantages, candidate_weights
from core.algorithms.names import SurrogateKind
from core.algorithms.schedules import learning_rate, plateau_factor
from core.algorithms.surrogates import Trust, surrogate
from core.config import GrpoStage, RceStage, RunSpec, Schedule
from core.health.before.budget import least_value
from core.health.before.inert import READS, RULES, SCHEDULES, inert, inert_in_all
from core.health.before.pitfalls import warnings
from core.health.before.view import views
from core.training.outcome import Ending
from core.training.trainer import drive
from tests.core.health.before.conftest import BFLOAT16, DROPOUT, FAULT, STAGE, run_spec, view
from tests.fakes import PricedTask, Recorder, TabularPolicy, trainer_of

KINDS: tuple[SurrogateKind, ...] = get_args(SurrogateKind)
OTHER: dict[str, list[Any]] = {  # two values of each constant of the surrogates
    "epsilon": [1e-6, 0.9],
    "epsilon_high": [1e-6, 9.0],
    "dual_clip": [1.5, 10.0],
    "cispo_max_weight": [1.0, 10.0],
    "sapo_temperature_pos": [0.1, 7.0],
    "sapo_temperature_neg": [0.1, 7.0],
    "dppo_delta": [0.01, 0.9],
}


def named(spec: RunSpec) -> set[str]:
    return {knob.key.removeprefix("stages.grpo.") for knob in inert(spec)}


def keys(spec: RunSpec) -> set[str]:
    return {knob.key for knob in inert(spec)}


def reason(key: str, **stage: Any) -> str | None:
    return inert_in_all([run_spec(**stage)], f"stages.grpo.{key}")


def gradient(trust: Trust, moved: float) -> torch.Tensor:
    """Of the sum of a surrogate over a batch whose log-probs have moved by up to `moved` since it was sampled."""
    generator = torch.Generator().manual_seed(3)
    old = -3 * torch.rand(24, 5, generator=generator, dtype=torch.float64)
    new = (old + moved * torch.randn(24, 5, generator=generator, dtype=torch.float64)).requires_grad_()
    by_row = torch.randn(24, 1, generator=generator, dtype=torch.float64)
    mask = torch.rand(24, 5, generator=generator) > 0.2
    surrogate(new, old, by_row, mask, trust).values_NT.sum().backward()
    assert new.grad is not None
    return new.grad


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", OTHER)
def test_the_constants_of_a_surrogate(kind: SurrogateKind, key: str) -> None:
    low, high = (Trust(**{"kind": kind, "epsilon": 0.2, "epsilon_high": 0.2, key: value}) for value in OTHER[key])
    # One update per rollout: the ratio is 1, and every rule says so (cispo's bound acts at values below 1 only).
    assert reason(key, surrogate=kind) is not None
    assert torch.allclose(gradient(low, moved=0.0), gradient(high, moved=0.0), rtol=1e-12, atol=0)
    # Two updates: inert exactly where the surrogate does not read it.
    assert (reason(key, surrogate=kind, num_iterations=2) is None) == (key in READS[kind])
    assert torch.equal(gradient(low, moved=0.8), gradient(high, moved=0.8)) == (key not in READS[kind])


def test_all_surrogates_are_one_at_a_ratio_of_one() -> None:
    others = [kind for kind in KINDS if kind != "product_ratio"]
    gradients = [gradient(Trust(kind=kind, epsilon=0.2, epsilon_high=0.2), moved=0.0) for kind in others]
    assert all(torch.allclose(one, gradients[0], rtol=1e-12, atol=0) for one in gradients)
    assert "one gradient" in (reason("surrogate") or "")
    assert reason("surrogate", num_iterations=2) is None
    assert reason("surrogate", old_policy="reference") is None
    longer = gradient(Trust(kind="product_ratio", epsilon=0.2, epsilon_high=0.2), moved=0.0)
    assert not torch.allclose(longer, gradients[0])  # of sums over a row's factors, not of means
    assert reason("surrogate", surrogate="product_ratio") is None
    moved = [gradient(Trust(kind=kind, epsilon=0.2, epsilon_high=0.2), moved=0.8) for kind in KINDS]
    assert not any(torch.allclose(one, other) for one, other in itertools.combinations(moved, 2))


def test_below_one_cispos_bound_scales() -> None:
    half = Trust(kind="cispo", epsilon=0.2, epsilon_high=0.2, cispo_max_weight=0.5)
    whole = replace(half, cispo_max_weight=1.0)
    assert torch.allclose(gradient(half, moved=0.0), gradient(whole, moved=0.0) / 2)
    assert "cispo_max_weight" in named(run_spec(method="cispo", cispo_max_weight=2.0))
    assert named(run_spec(method="cispo", cispo_max_weight=0.5)) & {"surrogate", "cispo_max_weight"} == set()


def test_epsilon_is_inert_at_every_value_with_one_update_per_rollout() -> None:
    assert "one update per rollout" in (reason("epsilon") or "")
    assert reason("epsilon", minibatches=2) is None
    assert reason("epsilon", num_iterations=2) is None
    assert reason("epsilon.start", epsilon={"start": 0.3, "end": 0.1, "steps": 50}) is not None
    assert inert_in_all([run_spec()], "stages.other.epsilon") is None
    assert inert_in_all([run_spec()], "model.dtype") is None


def test_noise_and_faults_move_the_ratio() -> None:
    for run, word in ((DROPOUT, "lora_dropout 0.1"), (BFLOAT16, "bfloat16")):
        (knob,) = (one for one in inert(run_spec(run=run)) if one.key == "stages.grpo.epsilon")
        assert word in knob.reason
        assert not knob.exact
        # a bound inside the noise clips it: gspo's 3e-4
        assert not named(run_spec(run=run, method="gspo")) & {"epsilon", "epsilon_high", "surrogate"}
    assert {"epsilon", "epsilon_high", "surrogate"} <= named(run_spec(method="gspo"))
    assert not named(run_spec(run=FAULT, method="gspo", epsilon=0.1)) & {"epsilon", "epsilon_high", "surrogate"}
    # With a cap the trainer scores the old log-probs itself: neither a fault nor rounding moves the ratio any more.
    for run in (FAULT, BFLOAT16):
        assert "epsilon" in named(run_spec(run=run, method="gspo", importance_sampling_cap=2.0))
    (sound,) = (one for one in inert(run_spec()) if one.key == "stages.grpo.epsilon")
    assert sound.exact


# How the stage is set -> knob, two values that must give the same advantages, and a change that makes them differ.
ADVANTAGE: list[tuple[dict[str, Any], str, list[Any], dict[str, Any]]] = [
    ({"scale_rewards": "none"}, "ddof", [0, 1], {"scale_rewards": "group"}),
    ({"scale_rewards": "none"}, "eps", [1e-8, 0.5], {"scale_rewards": "group"}),
    ({"scale_rewards": "none"}, "std_floor", [0.0, 5.0], {"scale_rewards": "group"}),
    ({"std_floor": 2.0}, "ddof", [0, 1], {"std_floor": 0.0}),
    ({"scale_rewards": "running"}, "ddof", [0, 1], {"scale_rewards": "batch"}),
    ({}, "weighting", ["rows", "tokens"], {"scale_rewards": "batch_centred"}),
    ({"scale_rewards": "none"}, "weighting", ["rows", "tokens"], {"baseline": "batch"}),
]


def rewards_and_lengths(levels: tuple[float, ...], size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    picked = torch.randint(0, len(levels), (400, size), generator=generator)
    return torch.tensor(levels, dtype=torch.float64)[picked], torch.randint(1, 11, (400, size), generator=generator)


def computed(stage: GrpoStage, levels: tuple[float, ...]) -> torch.Tensor:
    rewards, lengths = rewards_and_lengths(levels, stage.num_generations)
    return torch.from_numpy(advantages(rewards, stage.advantage, lengths_PC=lengths))


def of(spec: RunSpec) -> GrpoStage:
    stage = spec.stages["grpo"]
    assert isinstance(stage, GrpoStage)
    return stage


@pytest.mark.parametrize(("how", "key", "values", "acting"), ADVANTAGE)
def test_an_inert_knob_of_the_advantage(
    how: dict[str, Any], key: str, values: list[Any], acting: dict[str, Any]
) -> None:
    levels = (0.0, 0.2, 0.4, 0.7, 1.0)
    assert reason(f"advantage.{key}", advantage=how) is not None
    one, other = (computed(of(run_spec(advantage={**how, key: value})), levels) for value in values)
    assert torch.equal(one, other)
    assert reason(f"advantage.{key}", advantage={**how, **acting}) is None
    one, other = (computed(of(run_spec(advantage={**how, **acting, key: value})), levels) for value in values)
    assert not torch.allclose(one, other, rtol=1e-6)


def test_a_clip_above_the_largest_advantage() -> None:
    # K = 4, ddof 1: at most 3 / sqrt(4) = 1.5, a little less with eps
    for clip, expected in ((1.5, True), (1.4, False)):
        spec = run_spec(advantage={"clip": clip})
        assert ("advantage.clip" in named(spec)) == expected
        free = run_spec(advantage={"clip": None})
        assert torch.equal(computed(of(spec), (0.0, 1.0)), computed(of(free), (0.0, 1.0))) == expected
    # Mean only, K = 4: at most 3/4, and a clip of just that does nothing
    assert "advantage.clip" in named(run_spec(advantage={"clip": 0.75, "scale_rewards": "none"}))
    assert "advantage.clip" not in named(run_spec(advantage={"clip": 50.0, "scale_rewards": "running"}))


def test_a_floor_below_every_live_std() -> None:
    # one 0.2 among four 0: std (divisor 3) sqrt(3/4 * 0.04 / 3) = 0.1
    for floor, expected in ((0.1, True), (0.11, False)):
        spec = run_spec(task="arithmetic", advantage={"std_floor": floor})
        assert ("advantage.std_floor" in named(spec)) == expected
        free = run_spec(task="arithmetic", advantage={"std_floor": 0.0})
        levels = (0.0, 0.2, 1.0)
        assert torch.allclose(computed(of(spec), levels), computed(of(free), levels), rtol=1e-9) == expected
    costly = {"task": {"name": "workflow-dsl", "operator_cost": 0.005}}
    assert "advantage.std_floor" not in named(run_spec(run=costly, advantage={"std_floor": 1e-6}))


@pytest.mark.parametrize("baseline", ["group", "leave_one_out"])
def test_ranks_of_two(baseline: str) -> None:
    levels = (0.0, 0.2, 0.4, 0.7, 1.0)
    for size, expected in ((2, True), (4, False)):
        how = {"baseline": baseline, "eps": 1e-9}
        assert (reason("advantage.transform", num_generations=size, advantage=how) is not None) == expected
        plain, ranks = (
            computed(of(run_spec(num_generations=size, advantage={**how, "transform": name})), levels)
            for name in ("none", "rank")
        )
        assert torch.allclose(plain, ranks, rtol=1e-6) == expected


def test_knobs_of_an_unused_part() -> None:
    assert reason("kl_estimator") is not None
    assert reason("kl_in") is not None
    assert reason("kl_estimator", beta=0.1) is None
    assert reason("kl_estimator", beta={"start": 0.0, "end": 0.1, "steps": 5}) is None
    threshold, proportional = ({"beta": 0.1, "adaptive_beta": {"rule": rule}} for rule in ("threshold", "proportional"))
    for key, rule in (("target", threshold), ("horizon", threshold), ("high", proportional), ("factor", proportional)):
        other = proportional if rule is threshold else threshold
        assert reason(f"adaptive_beta.{key}", **rule) is not None
        assert reason(f"adaptive_beta.{key}", **other) is None
    assert reason("advantage.running_decay") is not None
    assert reason("advantage.running_decay", advantage={"baseline": "running"}) is None
    assert reason("advantage.running_decay", advantage={"baseline": "running", "running_rule": "count"}) is not None
    assert reason("advantage.running_after", advantage={"running_after": 9}) is not None
    assert reason("advantage.running_after", advantage={"running_after": 9, "baseline": "running"}) is None
    assert reason("loss_rows", loss_rows="best") is not None
    assert reason("loss_rows", loss_rows="best", loss_weights={"penalty": 0.1}) is None
    assert reason("entropy_share") is not None
    assert reason("entropy_share", method="gtpo") is None
    assert reason("entropy_weighting", method="gtpo", entropy_share=0.0) is not None
    assert reason("gradient_accumulation_steps") is not None
    assert "gradient_accumulation_steps" not in named(run_spec(gradient_accumulation_steps=4))


def test_without_a_policy_term_no_knob_of_it_acts() -> None:
    off = {"policy_weight": 0.0, "num_iterations": 2}
    for key in ("epsilon", "surrogate", "advantage.ddof", "advantage.baseline", "entropy_share"):
        assert "policy_weight" in (reason(key, **off) or "")
    assert reason("epsilon", num_iterations=2) is None
    assert reason("learning_rate", **off) is None


def test_keeping_all_candidates() -> None:
    scores = torch.rand(20, 4, generator=torch.Generator().manual_seed(0))
    assert (candidate_weights(scores, tau=1.0, keep=4) == candidate_weights(scores, tau=1.0)).all()
    assert "keep_candidates" in named(run_spec(keep_candidates=4.0))
    assert "keep_candidates" not in named(run_spec(keep_candidates=3.0))
    assert "keep_candidates" not in named(run_spec(keep_candidates={"start": 2.0, "end": 8.0, "steps": 10}))


def test_a_warm_up_as_long_as_the_stage_hides_the_schedule() -> None:
    cut = {"max_steps": 20, "warmup_steps": 30, "lr_scheduler_steps": 50}
    whole = {**cut, "max_steps": 40}
    for stage, expected in ((cut, True), (whole, False)):
        assert (reason("lr_scheduler_type", **stage, lr_scheduler_type="cosine") is not None) == expected
        assert (reason("lr_scheduler_steps", **stage, lr_scheduler_type="cosine") is not None) == expected
        rates = {
            tuple(
                learning_rate(1.0, kind, index=i, warmup_steps=30, total_steps=total) for i in range(stage["max_steps"])
            )
            for kind, total in itertools.product(("constant", "cosine", "exponential"), (50, 90))
        }
        assert (len(rates) == 1) == expected
    # Ticks 0 to 30 end on the full rate, at which every schedule starts; tick 31 has left it.
    edge = {"warmup_steps": 30, "lr_scheduler_steps": 50, "lr_scheduler_type": "cosine"}
    assert reason("lr_scheduler_type", **edge, max_steps=31) is not None
    assert reason("lr_scheduler_type", **edge, max_steps=32) is None
    assert reason("lr_scheduler_type", **edge, max_steps=31, lr_clock="updates", num_iterations=2) is not None
    assert reason("lr_scheduler_steps") is not None  # constant
    assert reason("lr_clock") is not None
    assert reason("lr_clock", warmup_steps=5) is None


def test_too_few_evaluations_to_wait() -> None:
    # 100 steps, every 40: a stage's own are at 40 and 80, a run's also the start; the last one can change nothing.
    for patience, stages, runs in ((1, False, False), (2, True, False), (3, True, True)):
        run = {"evaluation": {"eval_steps": 40}, "early_stopping": {"patience": patience}}
        spec = run_spec(run=run, lr_plateau={"patience": patience}, early_stopping={"patience": patience})
        assert ({"stages.grpo.early_stopping", "stages.grpo.lr_plateau"} <= keys(spec)) == stages
        assert ("early_stopping" in keys(spec)) == runs
        factors = {
            plateau_factor(values, patience=patience, factor=0.5, min_delta=0.0)
            for values in itertools.product((0.0, 1.0), repeat=2)
        }
        assert (factors == {1.0}) == stages
    late = run_spec(run={"evaluation": {"eval_steps": 101}}, lr_plateau={"patience": 1})
    assert inert_in_all([late], "stages.grpo.lr_plateau.patience") is not None


def test_the_cap_of_equal_samplers() -> None:
    assert "importance_sampling_cap" in named(run_spec(importance_sampling_cap=2.0))
    assert "importance_sampling_cap" not in named(run_spec(importance_sampling_cap=0.5))
    assert "importance_sampling_cap" not in named(run_spec(importance_sampling_cap=2.0, run=FAULT))


def test_only_what_is_set_is_keys() -> None:
    assert named(run_spec()) == {"epsilon", "kl_estimator"}
    assert named(run_spec(num_iterations=2, beta=0.1)) == set()
    assert named(run_spec(method="rloo")) >= {"surrogate", "epsilon", "kl_estimator", "kl_in"}
    (knob,) = (one for one in inert(run_spec(epsilon_high=0.28)) if one.key.endswith("epsilon_high"))
    assert (knob.value, "num_iterations" in knob.acts) == (0.28, True)


def test_a_sweep_is_asked_about_its_points() -> None:
    key = "stages.grpo.advantage.clip"

    def points(*clips: float | None) -> list[RunSpec]:
        return [run_spec(advantage={"clip": clip}) for clip in clips]

    assert inert_in_all(points(None, 5.0, 9.0), key) is not None
    assert inert_in_all(points(None, 1.0, 9.0), key) is None
    assert inert_in_all(points(None), key) is None
    mixed = [run_spec(num_iterations=count, epsilon=eps) for count in (1, 2) for eps in (0.1, 0.3)]
    assert inert_in_all(mixed, "stages.grpo.epsilon") is None
    assert inert_in_all(mixed[:2], "stages.grpo.epsilon") is not None


def test_every_rule_is_about_a_setting_that_exists() -> None:
    adaptive = {"beta": 0.1, "adaptive_beta": {"rule": "threshold"}}
    parts = {"lr_plateau": {"patience": 1}, "early_stopping": {"patience": 1}}
    late = {"loss_rows": "best", "advantage": {"running_rule": "count", "running_after": 1}}  # at a default: left out
    late |= {"sync_ref_model": True, "ref_model_mixup_alpha": 0.5, "ref_model_sync_steps": 2}
    tree = of(run_spec(**adaptive, **parts, **late)).model_dump()
    for key in RULES:
        name, _, rest = key.partition(".")
        if rest == "plateau":  # of a schedule, which is a plain number where it has none
            assert name in SCHEDULES
            continue
        value: Any = tree
        for word in key.split("."):
            assert word in value, key
            value = value[word]


OFF_POLICY = {"num_iterations": 2}  # so that epsilon acts


def with_plateau(name: str, patience: int, every: int = 40, **run: Any) -> RunSpec:
    """100 steps, evaluated every 40: at 40 and 80 before the end."""
    number = {"start": 0.5, "end": 0.5, "plateau": {"patience": patience}}
    stage = {**STAGE, name: number, **({"kind": "rce"} if name == "tau" else OFF_POLICY)}
    return run_spec(run={"stages": {"one": stage}, "evaluation": {"eval_steps": every}, **run})


def test_every_schedule_with_a_name_of_ours_is_known() -> None:
    found = {
        name
        for kind in (GrpoStage, RceStage)
        for name, info in kind.model_fields.items()
        if "Schedule" in str(info.annotation) and "dict" not in str(info.annotation)  # a dict's keys are the policy's
    }
    assert found == set(SCHEDULES)


def test_a_plateau_of_the_policys_own_loss_needs_one_evaluation_more_than_its_patience() -> None:
    """100 steps, evaluated at 40 and 80 before the end."""
    key = "stages.one.loss_weights.distance.plateau"
    for patience, expected in ((1, False), (2, True)):
        weight = {"start": 0.5, "end": 0.5, "plateau": {"patience": patience}}
        stage = {**STAGE, "loss_weights": {"distance": weight, "shape": 0.1}}
        spec = run_spec(run={"stages": {"one": stage}, "evaluation": {"eval_steps": 40}})
        assert (key in keys(spec)) == expected
        assert (inert_in_all([spec], f"{key}.factor") is not None) == expected


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_plateau_needs_one_evaluation_more_than_its_patience(name: str) -> None:
    key = f"stages.one.{name}.plateau"
    assert key not in keys(with_plateau(name, 1))
    assert key in keys(with_plateau(name, 2))
    factor = f"{key}.factor"
    assert inert_in_all([with_plateau(name, 1), with_plateau(name, 2)], factor) is None  # at a patience of 1 it acts
    assert inert_in_all([with_plateau(name, 1, every=60)], factor) is not None  # one evaluation: at none


def test_a_budget_has_its_own_number_of_evaluations() -> None:
    # 24 completions are 3 steps of 8: at most two evaluations before the end, whatever max_steps says.
    key = "stages.one.temperature.plateau"
    assert key not in keys(with_plateau("temperature", 2, every=10))
    assert key in keys(with_plateau("temperature", 2, every=10, budget={"completions": 24}))
    assert key not in keys(with_plateau("temperature", 1, every=10, budget={"completions": 24}))


@pytest.mark.parametrize(("patience", "cuts"), [(1, 3), (2, 1), (3, 1), (4, 0)])
def test_the_least_value_is_that_of_a_run_that_never_gets_better(patience: int, cuts: int) -> None:
    """10 steps evaluated every 2: at 2, 4, 6 and 8 before the end; the first is what the others are held against."""
    temperature = {"start": 1.0, "end": 1.0, "plateau": {"patience": patience, "factor": 0.5}}
    stage = {**STAGE, "max_steps": 10, "temperature": temperature}
    spec = run_spec(run={"stages": {"grpo": stage}, "evaluation": {"eval_steps": 2}})
    found = least_value(next(views(spec)), Schedule.model_validate(temperature))
    assert found == 0.5**cuts
    flat = PricedTask(lambda prompt, output: 0.5)
    trainer = trainer_of(TabularPolicy(), flat, stages={"grpo": stage}, evaluation={"eval_steps": 2})
    recorder = Recorder()
    assert drive(trainer.steps(), recorder) == Ending(status="COMPLETED", message="all 10 steps done")
    assert min(value or 0.0 for value in recorder.column("temperature")) == found


def test_candidates_that_a_plateau_may_take_are_not_all_kept() -> None:
    kept = {"start": 4, "end": 4, "plateau": {"patience": 1, "factor": 0.5}}
    for keep, some in ((4, False), (kept, True), ({**kept, "plateau": {"patience": 20}}, False), ({**kept, "warmup": 9,
                       "plateau": None}, True)):  # fmt: skip
        spec = run_spec(keep_candidates=keep)
        assert ("stages.grpo.keep_candidates" not in keys(spec)) == some
        assert ("kept-candidates" in {found.id for found in warnings(spec)}) == some
    assert least_value(view(), Schedule.model_validate({"start": 4, "end": 4, "warmup": 1})) == 4


@pytest.mark.parametrize("key", ["sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps"])
def test_a_reference_that_never_moves(key: str) -> None:
    moving = {"beta": 0.1, "sync_ref_model": True, "ref_model_mixup_alpha": 0.5, "max_steps": 6}
    assert reason(key, **moving, ref_model_sync_steps=5) is None
    for late in (6, 7, 512):  # after the last step nothing is compared with it
        why = reason(key, **moving, ref_model_sync_steps=late)
        assert why is not None
        assert str(late) in why
    then = {"then": {**STAGE, "beta": 0.1}}  # in a stage before that, the next one is
    for late, acts in ((6, True), (7, False)):
        first = {**STAGE, **moving, "ref_model_sync_steps": late}
        spec = run_spec(run={"stages": {"grpo": first, **then}})
        assert (f"stages.grpo.{key}" not in keys(spec)) == acts
    still = run_spec(beta=0.1, ref_model_mixup_alpha=0.5, ref_model_sync_steps=2)
    assert {"ref_model_mixup_alpha", "ref_model_sync_steps"} <= named(still)
