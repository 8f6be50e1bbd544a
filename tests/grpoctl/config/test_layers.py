"""Merging, on paper."""

from __future__ import annotations

from typing import Any

import pytest

from grpoctl.config.layers import Keys, Layer, Place, dotted, leaves, merge

PARENT = Place(line=1)
CHILD = Place(line=2)


def layer(tree: dict[str, Any], place: Place) -> Layer:
    """A layer whose every node has the same place."""
    places: dict[Keys, Place] = {(): place}

    def note(value: object, path: Keys) -> None:
        places[path] = place
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, below in items:
            note(below, (*path, key))

    note(tree, ())
    return Layer(tree=tree, places=places)


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3, "z": 4}}, {"a": {"x": 1, "y": 3, "z": 4}}),
        ({"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"c": 9}}}, {"a": {"b": {"c": 9, "d": 2}}}),
        ({"a": [1, 2, 3]}, {"a": [9]}, {"a": [9]}),  # lists are replaced, never joined
        ({"a": [1]}, {"a": []}, {"a": []}),
        ({"a": {"x": 1}}, {"a": None}, {"a": None}),  # null replaces
        ({"a": None}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"a": {"x": 1}}, {"a": 2}, {"a": 2}),  # temperature: {start, end} -> 1.0
        ({"a": 2}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"a": {"x": 1}}, {"a": {}}, {"a": {"x": 1}}),
        # another task starts anew, the same one is merged
        ({"task": {"name": "w", "p": 1}}, {"task": {"name": "v"}}, {"task": {"name": "v"}}),
        ({"task": {"name": "w", "p": 1}}, {"task": {"name": "w"}}, {"task": {"name": "w", "p": 1}}),
        ({"task": {"name": "w", "p": 1}}, {"task": {"q": 2}}, {"task": {"name": "w", "p": 1, "q": 2}}),
        (
            {"profiles": {"t": {"task": {"p": 1}}}},
            {"profiles": {"t": {"task": {"name": "v"}}}},
            {"profiles": {"t": {"task": {"name": "v"}}}},
        ),
        ({"other": {"name": "w", "p": 1}}, {"other": {"name": "v"}}, {"other": {"name": "v", "p": 1}}),
        # a stage of another kind starts anew; one of the same kind is merged, `grpo` being the kind that is not said
        ({"stages": {"a": {"beta": 1}}}, {"stages": {"a": {"kind": "sft"}}}, {"stages": {"a": {"kind": "sft"}}}),
        (
            {"stages": {"a": {"beta": 1}}},
            {"stages": {"a": {"kind": "grpo"}}},
            {"stages": {"a": {"beta": 1, "kind": "grpo"}}},
        ),
        # a method sets aside the axes below it, and what its own row states (dapo: beta 0); nothing else
        (
            {"stages": {"a": {"reduction": "sequence_sum", "beta": 0.1, "max_steps": 3}}},
            {"stages": {"a": {"method": "gspo"}}},
            {"stages": {"a": {"beta": 0.1, "max_steps": 3, "method": "gspo"}}},
        ),
        (
            {"stages": {"a": {"advantage": {"ddof": 0}, "beta": 0.1}}},
            {"stages": {"a": {"method": "dapo", "advantage": {"clip": 2}}}},
            {"stages": {"a": {"method": "dapo", "advantage": {"clip": 2}}}},
        ),
        (
            {"profiles": {"t": {"stages": {"a": {"epsilon": 0.1}}}}},
            {"profiles": {"t": {"stages": {"a": {"method": "grpo"}}}}},
            {"profiles": {"t": {"stages": {"a": {"method": "grpo"}}}}},
        ),
    ],
)
def test_merge(base: dict[str, Any], over: dict[str, Any], merged: dict[str, Any]) -> None:
    before = repr((base, over))
    assert merge(layer(base, PARENT), layer(over, CHILD)).tree == merged
    assert repr((base, over)) == before, "merging must not touch its inputs"


@pytest.mark.parametrize(
    ("over", "order"),
    [
        (["c", "a", "b"], ["c", "a", "b"]),  # who names every stage says their order
        (["c", "a"], ["a", "b", "c"]),  # else they come as they were, and the new ones after them
        (["b", "a"], ["b", "a"]),
    ],
)
def test_the_order_of_stages(over: list[str], order: list[str]) -> None:
    base = layer({"stages": {"a": {"max_steps": 1}, "b": {"max_steps": 2}}}, PARENT)
    merged = merge(base, layer({"stages": {name: {} for name in over}}, CHILD))
    assert list(merged.tree["stages"]) == order  # type: ignore[call-overload]


def test_what_a_method_set_aside_has_no_place_left() -> None:
    base = layer({"stages": {"a": {"advantage": {"ddof": 0}, "max_steps": 3}}}, PARENT)
    merged = merge(base, layer({"stages": {"a": {"method": "gspo"}}}, CHILD))
    assert ("stages", "a", "advantage", "ddof") not in merged.places
    assert merged.place(("stages", "a", "max_steps")) == PARENT


def test_a_merged_value_knows_which_layer_it_is_from() -> None:
    merged = merge(layer({"a": {"x": 1, "y": [1, 2]}, "b": 1}, PARENT), layer({"a": {"y": [3]}}, CHILD))
    assert merged.place(("a", "x")) == PARENT
    assert merged.place(("b",)) == PARENT
    assert merged.place(("a", "y", 0)) == CHILD
    assert ("a", "y", 1) not in merged.places  # the second item went with the parent's list


def test_below_roots_a_profile() -> None:
    profile = layer({"profiles": {"tiny": {"a": {"x": 1}}}}, PARENT).below(("profiles", "tiny"), "in profile tiny")
    assert profile.tree == {"a": {"x": 1}}
    assert profile.place(("a", "x")) == Place(line=1, origin="in profile tiny")


def test_leaves_and_dotted() -> None:
    assert leaves({"a": {"b": 1, "c": []}, "d": {}, "e": None}) == {"a.b": 1, "a.c": [], "e": None}
    moving = {"start": 1.0, "end": 0.0, "steps": 3, "shape": "linear", "warmup": 0}
    for beta in (moving, {**moving, "plateau": None}, {**moving, "plateau": {"patience": 3, "factor": 0.5}}):
        assert leaves({"a": {"beta": beta}}) == {"a.beta": beta}  # a schedule is one value
    assert dotted(("stages", "grpo", "beta")) == "stages.grpo.beta"
    assert dotted(("expects", 0)) == "expects[0]"
