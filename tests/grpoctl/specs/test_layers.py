"""Merging, on paper."""

from __future__ import annotations

from typing import Any

import pytest

from grpoctl.specs.layers import Keys, Layer, Place, dotted, leaves, merge

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
    ],
)
def test_merge(base: dict[str, Any], over: dict[str, Any], merged: dict[str, Any]) -> None:
    before = repr((base, over))
    assert merge(layer(base, PARENT), layer(over, CHILD)).tree == merged
    assert repr((base, over)) == before, "merging must not touch its inputs"


def test_a_merged_value_knows_which_layer_it_is_from() -> None:
    merged = merge(layer({"a": {"x": 1, "y": [1, 2]}, "b": 1}, PARENT), layer({"a": {"y": [3]}}, CHILD))
    assert merged.place(("a", "x")) == PARENT
    assert merged.place(("b",)) == PARENT
    assert merged.place(("a", "y", 0)) == CHILD
    assert ("a", "y", 1) not in merged.places  # the second item went with the parent's list


def test_below_roots_a_profile() -> None:
    profile = layer({"profiles": {"tiny": {"a": {"x": 1}}}}, PARENT).below(("profiles", "tiny"), "in profile tiny")
    assert profile.tree == {"a": {"x": 1}}
    assert profile.place(("a", "x")) == Place(line=1, said="in profile tiny")


def test_leaves_and_dotted() -> None:
    assert leaves({"a": {"b": 1, "c": []}, "d": {}, "e": None}) == {"a.b": 1, "a.c": [], "e": None}
    assert dotted(("stages", "grpo", "beta")) == "stages.grpo.beta"
    assert dotted(("expects", 0)) == "expects[0]"
