"""Every experiment that is shipped, in every profile, and the facts they must state."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.config import GrpoStage
from core.config.expectation import parse
from core.config.stage import constant
from core.errors import SpecError
from core.health.before.inert import inert
from core.training.clock import at
from grpoctl.config import Library, dump, experiments, load, read_resolved, shipped_folder, spec_sha
from grpoctl.config.documents import read_document

ONLY_SHIPPED = Library(user=Path("no-such-folder"))
SHIPPED = [(item.name, profile) for item in experiments(ONLY_SHIPPED) for profile in item.profiles]
NAMES = sorted({name for name, _ in SHIPPED})
RESTORATIONS = {*(f"p{n}" for n in range(50, 57)), "p51-supervised", "p52-supervised"}
SELECTORS = {
    *(f"p{n}" for n in range(40, 50)), "p40-ranks", "p45-5-8", "p45-5-6-8", "p48-short", "p48-plan1",
}  # fmt: skip


def test_there_are_some() -> None:
    texts = {"p30", "p30-sound", "staged", "rce-only", *(f"p{n}" for n in range(29, 40)), "g10", "g11", "g12"}
    assert texts | SELECTORS | RESTORATIONS == set(NAMES)


@pytest.mark.parametrize(("name", "profile"), SHIPPED)
def test_it_loads_comes_back_and_hashes_stably(name: str, profile: str, tmp_path: Path) -> None:
    loaded = load(name, profile=profile, library=ONLY_SHIPPED)
    (tmp_path / "spec.yaml").write_text(dump(loaded.spec), encoding="utf-8")
    read = read_resolved(tmp_path / "spec.yaml")
    assert read == loaded.spec
    assert spec_sha(read) == spec_sha(load(name.upper(), profile=profile, library=ONLY_SHIPPED, seed=7).spec)


def test_no_two_share_a_hash() -> None:
    hashes = [spec_sha(load(name, profile=profile, library=ONLY_SHIPPED).spec) for name, profile in SHIPPED]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_hypothesis_with_a_source(name: str) -> None:
    own = read_document(shipped_folder() / f"{name}.yaml").tree
    assert {"name", "revision", "title", "question", "source", "expects"} <= set(own)  # its own, not its parent's
    spec = load(name, library=ONLY_SHIPPED).spec
    assert all(parse(text) for text in spec.expects)
    assert spec.expects


@pytest.mark.parametrize("name", NAMES)
def test_tiny_needs_no_download(name: str) -> None:
    spec = load(name, profile="tiny", library=ONLY_SHIPPED).spec
    if name in SELECTORS:
        assert (spec.model, spec.policy.kind, spec.task.data) == (None, "pointer", None)
    elif name in RESTORATIONS:
        policy = spec.policy
        assert (spec.model, policy.kind, policy.weights, spec.task.pictures) == (None, "restoration", None, None)
    else:
        assert spec.model.source == "builtin:tiny"


def test_p30_is_what_document_000_and_the_log_say() -> None:
    spec = load("p30", library=ONLY_SHIPPED).spec
    stage, lora = spec.stages["grpo"], spec.model.lora
    assert lora is not None
    assert (stage.num_generations, stage.prompts_per_step, stage.max_steps) == (2, 3, 96)
    assert (stage.learning_rate, stage.lr_scheduler_type, stage.warmup_steps, stage.lr_scheduler_steps) == (
        2e-6, "cosine", 100, 500,
    )  # fmt: skip
    assert (stage.lr_clock, stage.gradient_accumulation_steps, stage.beta) == ("updates", 8, constant(0.005))
    assert (stage.epsilon, stage.epsilon_high) == (constant(0.2), constant(0.28))
    assert (stage.weight_decay, stage.max_grad_norm) == (0.01, 1.0)
    assert (lora.r, lora.lora_alpha, lora.lora_dropout) == (64, 64, 0.05)
    assert lora.target_modules == ("q_proj", "k_proj", "v_proj", "o_proj")
    assert (stage.temperature.start, stage.temperature.end, stage.temperature.steps) == (0.3, 0.15, 100)
    assert (stage.top_p, stage.top_k, stage.advantage.ddof) == (0.9, 35, 0)
    assert (spec.model.source, spec.model.dtype) == ("Qwen/Qwen2.5-7B-Instruct", "bfloat16")
    assert spec.model.gradient_checkpointing
    assert spec.faults == ("rollout-in-train-mode",)
    assert (spec.guards.rollout_integrity, spec.guards.collapse) == ("warn", "warn")


def test_what_p30_records_adds_up() -> None:
    recorded = load("p30", library=ONLY_SHIPPED).spec.recorded
    assert round(recorded["collapsed_after_update"] / recorded["updates"], 3) == recorded["collapse_rate"]  # 37 / 38
    assert recorded["steps"] == load("p30", library=ONLY_SHIPPED).spec.stages["grpo"].max_steps


SAID = {"name", "title", "question", "source", "expects", "recorded", "revision"}


def differences(one: str, other: str, profile: str) -> set[str]:
    from grpoctl.config import plain
    from grpoctl.config.layers import leaves

    a, b = (leaves(plain(load(name, profile=profile, library=ONLY_SHIPPED).spec)) for name in (one, other))
    return {key for key in {*a, *b} if a.get(key) != b.get(key) and key.split(".", maxsplit=1)[0] not in SAID}


@pytest.mark.parametrize("profile", ["full", "tiny"])
def test_controls_differ_from_what_they_control_in_what_they_say(profile: str) -> None:
    run = {key for key in differences("p30", "p30-sound", profile) if not key.startswith("guards.")}  # these only watch
    outlasts = {"stages.grpo.warmup_steps"} if profile == "full" else set()
    assert run == {"faults", "stages.grpo.top_p", "stages.grpo.top_k"} | outlasts
    assert differences("p30-sound", "p31", profile) == {"stages.grpo.num_generations", "stages.grpo.prompts_per_step"}


@pytest.mark.parametrize("profile", ["full", "medium", "small", "tiny"])
def test_the_gsm8k_experiments_differ_in_what_they_ask(profile: str) -> None:
    assert differences("g10", "g11", profile) == {"stages.grpo.dynamic_sampling.max_attempts"}
    assert differences("g10", "g12", profile) == {"stages.grpo.num_generations", "stages.grpo.prompts_per_step"}
    a, b = (load(name, profile=profile, library=ONLY_SHIPPED).spec.stages["grpo"] for name in ("g10", "g12"))
    assert a.num_generations * a.prompts_per_step == b.num_generations * b.prompts_per_step


def test_the_selectors_differ_in_what_they_say() -> None:
    stage = "stages.grpo"
    assert differences("p40", "p41", "full") == differences("p40", "p41", "tiny") == {f"{stage}.beta"}
    assert differences("p40", "p42", "full") == {f"{stage}.learning_rate"}
    assert differences("p40", "p43", "full") == {
        f"{stage}.{key}" for key in ("learning_rate", "beta", "epochs", "max_steps")
    }
    assert differences("p40", "p44", "full") == {f"{stage}.beta"}
    assert differences("p40", "p45", "full") == {"task.reward_mode", "task.soft_weight"}  # rel_weight is read now
    assert differences("p45-5-8", "p45-5-6-8", "full") == {f"{stage}.beta"}
    assert differences("p40", "p49", "full") == {f"{stage}.candidate_choice"}
    ranks = {"transform", "baseline", "scale_rewards", "std_floor", "ddof", "eps"}
    assert differences("p40", "p40-ranks", "full") <= {f"{stage}.advantage.{key}" for key in ranks}


def test_p40_is_what_the_code_says() -> None:
    spec = load("p40", library=ONLY_SHIPPED).spec
    sft, rce, grpo = spec.stages.values()
    assert (sft.max_steps, rce.max_steps, grpo.max_steps) == (200, 3200, 1920)  # 20, 5 and 3 epochs of 640 queries
    assert (sft.learning_rate, rce.learning_rate, grpo.learning_rate) == (1e-4, 1e-4, 5e-6)
    assert (spec.policy.width, spec.policy.hidden, spec.policy.picks, spec.policy.dropout) == (512, 256, 2, 0.5)
    assert (grpo.groups, grpo.old_policy, grpo.surrogate, grpo.kl_estimator) == (
        "offline", "reference", "product_ratio", "forward_k3",
    )  # fmt: skip
    keep = grpo.keep_candidates
    assert keep is not None
    assert [round(at(keep, tick)) for tick in (1, 640, 641, 1920)] == [3, 3, 5, 5]
    beta = grpo.adaptive_beta
    assert beta is not None
    assert (beta.low, beta.high, beta.factor, beta.min_beta, beta.max_beta) == (0.01, 0.1, 1.5, 0.001, 10.0)
    assert (grpo.advantage.std_floor, grpo.advantage.clip, grpo.advantage.ddof) == (0.1, 5.0, 1)


def test_gsm8k_uses_the_whole_training_file() -> None:
    task = load("g10", library=ONLY_SHIPPED).spec.task
    assert task.train_prompts + task.eval_prompts == 7473  # the whole training file


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("p29", "p30")])
def test_rollouts_are_sound_from_p30_sound_on(name: str) -> None:
    spec = load(name, library=ONLY_SHIPPED).spec
    assert spec.faults == ()
    filters = [(stage.top_p, stage.top_k) for stage in spec.stages.values() if isinstance(stage, GrpoStage)]
    assert all(found == (1.0, 0) for found in filters)  # sft draws nothing, rce has no filters
    assert (spec.guards.rollout_integrity, spec.guards.collapse) == ("stop", "stop")


@pytest.mark.parametrize(("name", "profile"), [pair for pair in SHIPPED if pair[0] not in ("p29", "p30")])
def test_a_rate_is_reached_long_before_its_stage_ends(name: str, profile: str) -> None:
    spec = load(name, profile=profile, library=ONLY_SHIPPED).spec
    assert all(stage.warmup_steps <= stage.max_steps / 5 for stage in spec.stages.values())


def test_p30_stays_the_record_whose_warm_up_outlasts_it() -> None:
    stage = load("p30", library=ONLY_SHIPPED).spec.stages["grpo"]
    assert stage.warmup_steps > stage.max_steps
    assert load("p30", library=ONLY_SHIPPED).spec.revision == load("p29", library=ONLY_SHIPPED).spec.revision == 1


@pytest.mark.parametrize(("name", "profile"), SHIPPED)
def test_early_stopping_is_set_where_it_can_act(name: str, profile: str) -> None:
    """In no profile is its patience all the evaluations there are; where they are many, it is there."""
    spec = load(name, profile=profile, library=ONLY_SHIPPED).spec
    rules = {"": spec.early_stopping, **{name: stage.early_stopping for name, stage in spec.stages.items()}}
    found = {where for where, rule in rules.items() if rule is not None}
    assert not [knob.key for knob in inert(spec) if "early_stopping" in knob.key]
    wanted = {"p39": "", "g10": "", "g11": "", "g12": "", "staged": "full", "p48-plan1": "grpo"}
    looks = sum(stage.max_steps for stage in spec.stages.values()) / spec.evaluation.eval_steps
    assert found == ({wanted[name]} if name in wanted and looks >= 9 else set())
    for where in found:
        steps = spec.stages[where].max_steps if where else spec.max_steps
        rule = rules[where]
        assert rule is not None
        assert 2 <= rule.patience <= steps / spec.evaluation.eval_steps / 1.9  # half of what there is, at the most


def test_an_unknown_profile_is_no_profile() -> None:
    with pytest.raises(SpecError, match="There are: full, "):
        load("p31", profile="enormous", library=ONLY_SHIPPED)
