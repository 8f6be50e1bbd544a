"""The table of TRL's fields against the installed classes, and of a spec's keys against RunSpec."""

from __future__ import annotations

import dataclasses

import pytest

from core.config.trl.fields import FIELDS, INHERITED_FIELDS, KEYS, OWN_FIELDS, STAGE, VERL, hint_of_field, own_key
from core.config.trl.fit import LOSSES
from core.config.trl.settings import DEFAULTS
from tests.architecture.test_spec_is_read import LEAVES


def defaults(kind: type) -> dict[str, object]:
    """Field -> default of a dataclass."""
    return {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(kind)
    }


def test_every_field_of_the_installed_classes_is_in_the_table_and_nothing_else() -> None:
    from transformers import TrainingArguments
    from trl import GRPOConfig

    ours, theirs = defaults(GRPOConfig), defaults(TrainingArguments)
    assert set(OWN_FIELDS) == set(ours) - set(theirs)
    assert set(INHERITED_FIELDS) == set(theirs)
    assert (len(OWN_FIELDS), len(INHERITED_FIELDS)) == (77, 114)
    # bf16 is None there, which is true where fp16 is not set
    assert {name: value for name, value in DEFAULTS.items() if ours[name] != value} == {"bf16": True}


def test_what_is_mapped_has_a_default_and_a_key_that_there_is() -> None:
    mapped = {name: field.key for name, field in FIELDS.items() if field.how == "mapped"}
    assert set(mapped) <= set(DEFAULTS)
    stars = {leaf.replace("stages.*", STAGE) for leaf in LEAVES}
    parts = {".".join(leaf.split(".")[:n]) for leaf in stars for n in range(1, 6)}
    assert [name for name, key in mapped.items() if key not in parts] == []
    assert [key for key in (*KEYS, *VERL) if key not in parts] == []


def test_what_is_not_passed_has_its_reason_or_its_key() -> None:
    assert [name for name, field in FIELDS.items() if field.how == "refused" and not field.note] == []
    assert [name for name, field in FIELDS.items() if field.how == "mapped" and not field.key] == []


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_key_of_a_spec_is_in_the_table(leaf: str) -> None:
    row = own_key(leaf)
    assert row is not None
    assert row.how != "refused" or row.note
    assert set(row.fields) <= set(FIELDS)


def test_a_field_that_is_mapped_is_named_by_the_key_that_it_is_mapped_from() -> None:
    for name, field in FIELDS.items():
        if field.how == "mapped":
            row = own_key(field.key)
            assert row is not None, name
            assert row.how != "refused", name


def test_every_pair_of_losses_is_one_of_trl() -> None:
    from typing import get_args

    from core.algorithms.names import Reduction, SurrogateKind

    assert {surrogate for surrogate, _ in LOSSES} <= set(get_args(SurrogateKind))
    assert {reduction for _, reduction in LOSSES} <= set(get_args(Reduction))


def test_where_a_field_goes_that_is_no_key() -> None:
    assert "trainer.args.use_vllm" in str(hint_of_field("use_vllm"))
    assert str(FIELDS["output_dir"].note) in str(hint_of_field("output_dir"))
    assert hint_of_field("beta") is None
    assert hint_of_field("nothing") is None
