"""Every setting there is, one by one: an override of it arrives, and it changes the hash. None may be forgotten."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import ValidationError

from core.config import RunSpec
from core.errors import SpecError
from grpoctl.config import Library, dump, load, plain, read_resolved, run_stem, spec_sha
from grpoctl.config.authored import OF_THE_FILE, read_authored
from grpoctl.config.layers import dotted, merge
from grpoctl.config.overrides import override_layer
from grpoctl.config.schema import Field, allowed, fields
from tests.grpoctl.config.parts import has_parts

LIBRARY = Library()
EVERYTHING = Path(__file__).with_name("everything.yaml")
LOADED = load(EVERYTHING, library=LIBRARY)
AUTHORED = read_authored(EVERYTHING, LIBRARY)
ALL = fields(LOADED.authored)
# One choice, the keys below change with it, or another key must go for it: tested elsewhere.
ONLY_VALUE = {
    "task.name", "policy.kind", "stages.grpo.kind", "stages.grpo.groups", "budget.tokens", "model.trainable",
    "stages.grpo.importance_sampling_cap",
}  # fmt: skip
CONSTANT = ("stages.grpo.beta", "stages.grpo.entropy_coef")  # what adapts starts from a plain number
LEAVES = {
    dotted(path): field
    for path, field in ALL.items()
    if not has_parts(field)
    and dotted(path) not in ONLY_VALUE
    and not dotted(path).startswith(tuple(f"{key}." for key in (*CONSTANT, "trainer")))  # a command's: test_trainer
}
SPECIAL: dict[str, Any] = {
    "faults": ["rollout-in-train-mode"],
    "expects": ["kl < 1"],
    "task.domains": {"code": 1.0, "math": 2.0, "qa": 1.0},  # merged: an override adds `code`
    "recorded": {"steps": 96.0, "updates": 38.0},  # merged too
    "model.lora.target_modules": ["q_proj"],
    "task.operator_cost": 0.01,
    "init_from": "p30",
    "stages.grpo.epochs": 0.0303,  # of 6324 prompts, two a step: the 96 steps that max_steps says
    "stages.grpo.kl_estimator": "k3",  # k1 is refused in a loss
    "stages.grpo.adaptive_beta.factor": 2.5,
    "stages.grpo.candidate_choice": "stratified",  # best is the default, which is not written
    "stages.grpo.old_policy": "start_of_epoch",
    "stages.grpo.optim": "radam",
    "stages.grpo.stop_strings": ["END"],
    "model.chat_template_kwargs": {"enable_thinking": False, "effort": "low"},  # merged too
}


LEFT_OUT = {  # at these, of two values
    "stages.grpo.loss_rows": "all", "stages.grpo.advantage.running_rule": "decay", "stages.grpo.sync_ref_model": False,
}  # fmt: skip


def value_of(key: str, spec: RunSpec) -> Any:
    node: Any = plain(spec)
    for name in key.split("."):
        if name not in node and key in LEFT_OUT:
            return LEFT_OUT[key]
        node = node[name]
    return node


def another(key: str, field: Field) -> Any:
    """A value the key allows and does not have."""
    old = value_of(key, LOADED.spec)
    if key in SPECIAL:
        return SPECIAL[key]
    if get_origin(field.annotation) is Literal:
        return next(choice for choice in get_args(field.annotation) if choice != old)
    if old is None:  # a limit that is not watched: any number turns it on, and every optional number takes this one
        said = allowed(field)
        return 3 if "an integer" in said else 0.5 if "a number" in said else "domain"
    if isinstance(old, bool):
        return not old
    if isinstance(old, (int, float)):
        return old + 1 if isinstance(old, int) else old / 2 or 0.01
    return f"{old} too"


MUTANTS = {key: another(key, field) for key, field in LEAVES.items()}
OVERRIDABLE = [key for key in MUTANTS if key.split(".", maxsplit=1)[0] not in OF_THE_FILE]


@cache
def changed(key: str) -> RunSpec:
    """The spec with one leaf changed, without the loader."""
    return RunSpec.model_validate(with_leaf(key, LOADED.spec))


def with_leaf(key: str, spec: RunSpec) -> Any:
    """The document of the spec with one leaf changed."""
    tree: Any = plain(spec)
    node = tree
    *path, last = key.split(".")
    for name in path:
        node = node[name]
    node[last] = MUTANTS[key] if key not in OF_THE_FILE or key == "revision" else "another"
    return tree


def written(tree: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The path of everything in the resolved document that is no mapping."""
    if not isinstance(tree, dict):
        return [at]
    return [path for key, below in tree.items() for path in written(below, (*at, key))]


def test_the_table_covers_the_whole_spec() -> None:
    counted = {dotted(path) for path in written(plain(LOADED.spec))}
    covered = {key for leaf in [*LEAVES, *ONLY_VALUE] for key in counted if key == leaf or key.startswith(f"{leaf}.")}
    assert counted - covered == set(CONSTANT)
    assert len(LEAVES) > 100


@cache
def with_override(key: str, name: str) -> RunSpec:
    """The spec with the leaf `key` overridden under `name`, its neighbours as they are; the files are read once."""
    base = AUTHORED.base
    layer = merge(base, override_layer([f"{name}={json.dumps(MUTANTS[key])}"], base.tree))
    return RunSpec.model_validate({**layer.tree, "profile": "full"})


@pytest.mark.parametrize("key", OVERRIDABLE)
def test_an_override_of_each_leaf_arrives(key: str) -> None:
    arrived = value_of(key, with_override(key, key))
    assert (arrived, type(arrived)) == (MUTANTS[key], type(MUTANTS[key]))


@pytest.mark.parametrize("key", OVERRIDABLE)
def test_every_ending_of_a_key_means_it_or_is_refused(key: str) -> None:
    parts = key.split(".")
    for start in range(1, len(parts)):
        ending = ".".join(parts[start:])
        meant = [dotted(path) for path in ALL if f".{dotted(path)}".endswith(f".{ending}")]
        if ending in OVERRIDABLE:
            assert with_override(ending, ending) != LOADED.spec  # a key of its own, which it then means
        elif len(meant) > 1 or ending in OF_THE_FILE:
            with pytest.raises(SpecError, match=r"ambiguous|belongs to the file"):
                with_override(key, ending)
        else:
            assert with_override(key, ending) == with_override(key, key)


@pytest.mark.parametrize("key", LEAVES)
def test_each_leaf_changes_the_hash_but_the_seed(key: str) -> None:
    spec = changed(key)
    assert spec != LOADED.spec
    if key == "seed":
        assert spec_sha(spec) == spec_sha(LOADED.spec)
    else:
        assert spec_sha(spec) != spec_sha(LOADED.spec)
    assert run_stem(spec) != run_stem(LOADED.spec)


def test_no_two_of_all_these_specs_share_a_run_stem() -> None:
    stems = [run_stem(changed(key)) for key in LEAVES]
    assert len(set(stems)) == len(stems)


def changed_together(keys: Sequence[str]) -> tuple[RunSpec, list[str]]:
    """The spec with the first of these leaves changed and each further one that leaves the others so; the keys left."""
    spec, left = changed(keys[0]), []
    for key in keys[1:]:
        tree = with_leaf(key, spec)
        try:
            both = RunSpec.model_validate(tree)
        except ValidationError:
            left.append(key)
            continue
        if plain(both) == tree:
            spec = both
        else:
            left.append(key)
    return spec, left


def test_each_leaf_survives_the_resolved_file(tmp_path: Path) -> None:
    left, file = list(LEAVES), tmp_path / "spec.yaml"
    while left:  # as many in one file as go together
        spec, left = changed_together(left)
        file.write_text(dump(spec), encoding="utf-8")
        assert read_resolved(file) == spec
