"""extends, profiles, overrides and seeds, each on a small tree of files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from core.config import ArithmeticTaskSpec, LoraSpec, Schedule
from core.errors import SpecError
from grpoctl.config import Change, Library, Loaded, load
from grpoctl.config.layers import dotted
from grpoctl.config.schema import fields
from tests.grpoctl.config.parts import has_parts

BASE = """
name: base
revision: 7
title: The base
model: {source: builtin:tiny, lora: {r: 4, lora_alpha: 8, target_modules: [q_proj, v_proj]}}
task: {name: workflow-dsl, prompt: instruct}
stages:
  grpo:
    max_steps: 20
    num_generations: 2
    prompts_per_step: 3
    learning_rate: 1e-3
    temperature: {start: 0.3, end: 0.15, steps: 100}
expects: [kl < 1]
recorded: {updates: 38}
profiles:
  tiny:
    task: {prompt: short}
    stages: {grpo: {max_steps: 5, temperature: 1.0}}
"""
Write = Callable[..., Library]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes base.yaml and the files given as name=text; the library of them alone."""

    def files(**texts: str) -> Library:
        for name, text in {"base": BASE, **texts}.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return Library(user=tmp_path, shipped=tmp_path / "none")

    return files


def refusal(library: Library, name: str, **how: object) -> str:
    with pytest.raises(SpecError) as caught:
        load(name, library=library, **how)  # type: ignore[arg-type]
    return str(caught.value)


def test_a_child_inherits_all_but_its_history(write: Write) -> None:
    loaded = load("c", library=write(c="name: c\nextends: base\n"))
    base = load("base", library=write())
    same = {"name": "c", "revision": 1, "recorded": {}}  # a revision and a record tell of one file
    assert loaded.spec == base.spec.model_copy(update=same)
    assert [file.stem for file in loaded.chain] == ["c", "base"]
    assert loaded.file.stem == "c"


def test_three_generations_merge_in_order(write: Write) -> None:
    library = write(
        b="name: b\nextends: base\nstages: {grpo: {max_steps: 30, beta: 0.1}}\n"
        "model: {lora: {target_modules: [o_proj]}}\n",
        c="name: c\nextends: B\nstages: {grpo: {beta: 0.2}}\n",
    )
    spec = load("c", library=library).spec
    assert (spec.stages["grpo"].max_steps, spec.stages["grpo"].beta.start) == (30, 0.2)
    assert isinstance(spec.model.lora, LoraSpec)
    assert spec.model.lora.target_modules == ("o_proj",)  # a list is replaced
    assert spec.model.lora.r == 4  # its neighbours stay


def test_null_takes_a_part_away(write: Write) -> None:
    assert load("c", library=write(c="name: c\nextends: base\nmodel: {lora: null}\n")).spec.model.lora is None


def test_profiles_merge_from_parent_to_child(write: Write) -> None:
    library = write(c="name: c\nextends: base\nprofiles: {tiny: {stages: {grpo: {max_steps: 6}}}, big: {seed: 3}}\n")
    tiny = load("c", library=library, profile="tiny")
    stage = tiny.spec.stages["grpo"]
    assert (stage.max_steps, stage.temperature) == (6, Schedule(start=1.0, end=1.0))
    assert tiny.spec.profile == "tiny"
    assert tiny.profiles == ("full", "tiny", "big")
    assert load("c", library=library, profile="big").spec.seed == 3


def test_a_child_can_take_a_profile_away(write: Write) -> None:
    library = write(c="name: c\nextends: base\nprofiles: {tiny: null}\n")
    assert load("c", library=library).profiles == ("full",)
    assert "no profile 'tiny'; There are: full" in refusal(library, "c", profile="tiny")


def test_full_is_the_spec_as_written(write: Write) -> None:
    loaded = load("base", library=write())
    assert (loaded.spec.profile, loaded.spec.stages["grpo"].max_steps, loaded.applied) == ("full", 20, {})


def test_an_unknown_profile_lists_those_there_are(write: Write) -> None:
    said = refusal(write(), "base", profile="tyny")
    assert said.endswith("base.yaml: profiles: no profile 'tyny'; did you mean tiny? There are: full, tiny")


def test_applied_names_what_profile_and_overrides_changed(write: Write) -> None:
    loaded = load("base", library=write(), profile="tiny", overrides=["max_steps=6", "beta=0.0", "seed=4"])
    falling = {"start": 0.3, "end": 0.15, "steps": 100, "shape": "linear", "warmup": 0, "plateau": None}
    assert dict(loaded.applied) == {
        "task.prompt": Change("instruct", "short"),
        "stages.grpo.max_steps": Change(20, 6),
        "stages.grpo.temperature": Change(falling, 1.0),
    }  # beta is 0.0 anyway, and a seed is no setting
    assert loaded.spec.seed == 4


def test_authored_is_the_merged_document_before_profile_and_overrides(write: Write) -> None:
    library = write(c="name: c\nextends: base\n")
    plain, scaled = load("c", library=library), load("c", library=library, profile="tiny", overrides=["beta=1"], seed=3)
    assert plain.authored == scaled.authored
    assert plain.authored["name"] == "c"
    assert set(plain.authored["profiles"]) == {"tiny"}  # type: ignore[call-overload]
    assert "extends" not in plain.authored


@pytest.mark.parametrize(
    ("overrides", "key", "value"),
    [
        (["learning_rate=1e-5"], "learning_rate", 1e-5),
        (["stages.grpo.learning_rate=1"], "learning_rate", 1.0),
        (["grpo.learning_rate=1e-5"], "learning_rate", 1e-5),
        ([" learning_rate = 1e-5 "], "learning_rate", 1e-5),
        (["epsilon_high=0.28"], "epsilon_high", Schedule(start=0.28, end=0.28)),
        (["temperature.start=0.5"], "temperature", Schedule(start=0.5, end=0.15, steps=100)),
        (["grpo.temperature=0.5"], "temperature", Schedule(start=0.5, end=0.5)),
        (["grpo.temperature={start: 1, end: 0.5, steps: 3}"], "temperature", Schedule(start=1, end=0.5, steps=3)),
    ],
)
def test_an_override_may_be_shortened(overrides: list[str], key: str, value: object, write: Write) -> None:
    stage = load("base", library=write(), overrides=overrides).spec.stages["grpo"]
    assert getattr(stage, key) == value


def test_overrides_reach_parts_that_are_not_set(write: Write) -> None:
    loaded = load("base", library=write(), overrides=["early_stopping.patience=3", "lora=null", "faults=[]"])
    assert loaded.spec.early_stopping is not None
    assert loaded.spec.early_stopping.patience == 3
    assert loaded.spec.model.lora is None


@pytest.mark.parametrize(
    ("override", "full", "others"),
    [
        ("delta=4", "stages.grpo.adaptive_entropy.delta", ["stages.grpo.dual_clip", "stages.grpo.dppo_delta"]),
        ("weight=0.5", "stages.grpo.overlong.weight", ["stages.grpo.policy_weight", "stages.grpo.weight_decay"]),
        ("buffer=0.5", "stages.grpo.overlong.buffer", []),
        ("min=0.1", "stages.grpo.adaptive_entropy.min", ["guards.min_valid"]),
        ("max=1", "stages.grpo.adaptive_entropy.max", ["guards.max_kl"]),
        ("rule=threshold", "stages.grpo.adaptive_beta.rule", []),
        ("horizon=9", "stages.grpo.adaptive_beta.horizon", []),
        ("high=1", "stages.grpo.adaptive_beta.high", ["stages.grpo.epsilon_high"]),
        ("low=0.1", "stages.grpo.adaptive_beta.low", []),
        ("max_attempts=4", "stages.grpo.dynamic_sampling.max_attempts", []),
        ("completions=64", "budget.completions", []),
        ("buffer=null", "stages.grpo.overlong.buffer", []),  # null of a part that is null is no less a surprise
    ],
)
def test_an_ending_switches_nothing_on(override: str, full: str, others: list[str], write: Write) -> None:
    library = write()
    said = refusal(library, "base", overrides=[override])
    assert said.startswith(f"{override.partition('=')[0]}: {full.rpartition('.')[0]} is null; ")
    assert "\n" not in said
    for key in (full, *others):
        assert key in said


def test_no_ending_of_any_key_switches_a_part_on(write: Write) -> None:
    """Every key of every part that base.yaml leaves null, under every ending that does not name the part."""
    library = write()
    loaded = load("base", library=library)
    parts = [path for path, field in fields(loaded.authored).items() if field.default is None and has_parts(field)]
    assert {("budget",), ("stages", "grpo", "overlong"), ("stages", "grpo", "temperature", "plateau")} <= set(parts)
    for path in fields(loaded.authored):
        for part in [part for part in parts if part == path[: len(part)] and part != ("model", "lora")]:
            for start in range(len(part), len(path)):
                assert refusal(library, "base", overrides=[f"{dotted(path[start:])}=1"])


def test_a_part_that_is_named_or_on_is_reached(write: Write) -> None:
    library = write()

    def stage(*overrides: str) -> Any:
        return load("base", library=library, overrides=overrides).spec.stages["grpo"]

    assert stage("overlong.weight=0.5").overlong.weight == 0.5
    assert stage("stages.grpo.adaptive_entropy.delta=0.01").adaptive_entropy.delta == 0.01
    assert stage("overlong={buffer: 0.5}").overlong.buffer == 0.5
    assert stage("overlong.buffer=0.5", "weight=2").overlong.weight == 2  # named beside it
    assert stage("method=dapo", "max_attempts=4").dynamic_sampling.max_attempts == 4  # the method has it
    on = write(c="name: c\nextends: base\nstages: {grpo: {overlong: {weight: 0.5}}}\n")
    assert load("c", library=on, overrides=["weight=2"]).spec.stages["grpo"].overlong.weight == 2


def test_entries_of_a_free_mapping(write: Write) -> None:
    library = write()
    assert load("base", library=library, overrides=["recorded.steps=96"]).spec.recorded == {"updates": 38, "steps": 96}
    both = load("base", library=library, overrides=["domains={code: 1}", "recorded.steps=96"]).spec
    assert both.model_dump()["task"]["domains"] == {"code": 1.0}  # base.yaml sets no domains: the default is replaced


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["lr=1e-5"], "lr: unknown key; did you mean stages.grpo.learning_rate?"),
        (
            ["patience=3"],
            "patience: ambiguous; write one of early_stopping.patience, guards.patience, "
            "stages.grpo.lr_plateau.patience, stages.grpo.early_stopping.patience (9 more)",
        ),
        (["temperature=1"], "temperature: ambiguous; write one of evaluation.temperature, stages.grpo.temperature"),
        (["max_steps"], "got 'max_steps', expected key=value"),
        (["=3"], "got '=3', expected key=value"),
        (["max_steps="], "max_steps: nothing after '='"),
        (["max_steps=[1"], "max_steps: not valid YAML"),
        (
            ["max_steps=1", "grpo.max_steps=2"],
            "stages.grpo.max_steps: set twice, by max_steps=1 and by grpo.max_steps=2",
        ),
        (["lora=null", "lora.r=2"], "model.lora.r: set twice"),
        (["name=other"], "name: belongs to the file and is not overridden; did you mean task.name?"),
        (["source=builtin:tiny"], "did you mean model.source?"),  # not the file's own words on where it is from
        (["revision=2"], "revision: belongs to the file"),
        (["profile=tiny"], "profile: belongs to the file"),
        (["profiles.tiny.seed=1"], "profiles.tiny.seed: belongs to the file"),
        (["stages.sft.max_steps=1"], "stages.sft.max_steps: unknown key; did you mean stages.grpo.max_steps?"),
        (
            ["learning_rate=abc"],
            "stages.grpo.learning_rate: got the string 'abc'; allowed: a number >= 0 (in the override",
        ),
        (["learning_rate='1'"], "got the string '1'; write it without quotes; allowed: a number >= 0"),
        (
            ["learning_rate=.nan"],
            "learning_rate: got .nan; allowed: finite numbers (in the override learning_rate=.nan)",
        ),
        (["max_steps=1.0"], "stages.grpo.max_steps: got 1.0; allowed: an integer >= 1"),
        (["domains.maths=1"], "task.domains.maths: got the name 'maths'; allowed: one of math, qa, code"),
    ],
)
def test_a_wrong_override_is_refused_in_one_line(overrides: list[str], says: str, write: Write) -> None:
    said = refusal(write(), "base", overrides=overrides)
    assert says in said
    assert "\n" not in said


def test_the_seed(write: Write) -> None:
    library = write()
    assert load("base", library=library, seed=5).spec.seed == 5
    assert load("base", library=library, overrides=["seed=6"]).spec.seed == 6
    assert "set twice" in refusal(library, "base", seed=5, overrides=["seed=5"])
    assert "seed: got -1; allowed: an integer >= 0 (given as seed=-1)" in refusal(library, "base", seed=-1)


@pytest.mark.parametrize("overrides", [["task.name=arithmetic", "digits=3"], ["task.digits=3", "task.name=arithmetic"]])
def test_another_task_by_override_starts_anew(overrides: list[str], write: Write) -> None:
    task = load("base", library=write(), overrides=overrides).spec.task
    assert task == ArithmeticTaskSpec(name="arithmetic", digits=3)


def test_keys_of_the_old_task_are_named_as_such(write: Write) -> None:
    library = write(
        a="name: a\nextends: base\ntask: {name: arithmetic}\n",
        b="name: b\nextends: base\nprofiles: {sums: {task: {name: arithmetic, prompt: short}}}\n",
    )
    said = "task.prompt: unknown key; prompt is a key of the task workflow-dsl, this one is arithmetic"
    assert said in refusal(library, "base", overrides=["task.name=arithmetic", "task.prompt=short"])
    assert said in refusal(library, "base", overrides=["task.prompt=short", "task.name=arithmetic"])
    assert f"line 3: {said} (in profile sums)" in refusal(library, "b", profile="sums")
    # a child of another task does not inherit what the parent's profiles say of the old one
    assert load("a", library=library, profile="tiny").spec.task == ArithmeticTaskSpec(name="arithmetic")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"c": "name: c\nextends: c\n"}, "line 2: extends: a spec cannot extend itself: c -> c"),
        (
            {"c": "name: c\nextends: d\n", "d": "name: d\nextends: e\n", "e": "name: e\nextends: D\n"},
            "e.yaml: line 2: extends: a spec cannot extend itself: c -> d -> e -> d",
        ),
        ({"c": "name: c\nextends: bose\n"}, "line 2: extends: no experiment 'bose'; did you mean base?"),
        ({"c": "name: c\nextends: [base]\n"}, "extends: got ['base']; allowed: the name of one experiment"),
        ({"c": "name: c\nextends: base.yaml\n"}, "allowed: the name of one experiment"),
        ({"c": "extends: base\n"}, "'name' is missing; it is the file's own: 'name: c'"),
        ({"c": "name: d\nextends: base\n"}, "line 1: name: got 'd', but the file is called c.yaml"),
        ({"c": "name: c\nextends: d\n", "d": "name: x\n"}, "d.yaml: line 1: name: got 'x'"),
        ({"c": "name: c\nextends: base\nprofile: tiny\n"}, "line 3: profile: is chosen when a run starts"),
        ({"c": "name: c\nextends: base\nprofiles: [tiny]\n"}, "line 3: profiles: must be a mapping"),
        ({"c": "name: c\nextends: base\nprofiles: {tiny: 1}\n"}, "profiles.tiny: must be a mapping"),
        ({"c": "name: c\nextends: base\nprofiles: {full: {}}\n"}, "profiles.full: 'full' is the spec as it is written"),
        ({"c": "name: c\nextends: base\nprofiles: {auto: {}}\n"}, "profiles.auto: 'auto' lets the command line choose"),
        ({"c": "name: c\nextends: base\nprofiles: {A b: {}}\n"}, "got the name 'A b'"),
        ({"c": "name: c\nextends: base\nprofiles: {t: {name: d}}\n"}, "profiles.t.name: belongs to the file"),
    ],
)
def test_files_that_do_not_fit_are_named(files: Mapping[str, str], says: str, write: Write) -> None:
    assert says in refusal(write(**files), "c")


def test_the_base_must_stand_on_its_own(write: Write) -> None:
    library = write(c="name: c\nextends: base\nseed: x\nprofiles: {tiny: {seed: 1}}\n")
    assert "line 3: seed: got the string 'x'" in refusal(library, "c", profile="tiny")


def test_loading_imports_nothing_heavy(write: Write) -> None:
    assert isinstance(load("base", library=write()), Loaded)
    heavy = {"torch", "transformers", "mlflow", "optuna", "pandas"}
    ours = [module for name, module in sys.modules.items() if name.startswith(("grpoctl.config", "core.config"))]
    assert len(ours) > 15
    for module in ours:  # a test of what a fresh process imports is in tests/architecture
        assert not heavy & set(vars(module)), module.__name__
