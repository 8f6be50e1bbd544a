"""A RunSpec <-> the resolved YAML a run directory holds. What is run is this file: it must come back exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

from core.config import Part, RunSpec
from grpoctl.config.documents import document_of, read_text
from grpoctl.config.layers import merge
from grpoctl.config.overrides import override_layer
from grpoctl.config.problems import spec_error


class _Representer(SafeRepresenter):
    """Texts with line breaks other than \\n in double quotes, where they are escaped: elsewhere they read as spaces."""

    def represent_str(self, data: Any) -> Any:
        exotic = any(letter in data for letter in "\r\x85\u2028\u2029\ufeff")
        return self.represent_scalar("tag:yaml.org,2002:str", data, style='"' if exotic else None)


_Representer.add_representer(str, _Representer.represent_str)


def dump(spec: RunSpec) -> str:
    """The spec as block-style YAML, every key present, in the order of the models: stable for equal specs."""
    # Key by key is the same text: a study's runs differ in one or two, and writing the rest again is most of the work.
    return "".join(_block_of(key, json.dumps(value)) for key, value in plain(spec).items())


@lru_cache(maxsize=128)
def _block_of(key: str, value: str) -> str:
    return block_yaml({key: json.loads(value)})


def block_yaml(tree: Mapping[str, object]) -> str:
    """Mappings, lists and scalars as block-style YAML, in their own order; `read_document` gives back the same."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 1_000_000  # a folded title would come back the same, but is no pleasure to read
    stream = StringIO()
    yaml.dump(dict(tree), stream)
    return stream.getvalue()


def read_resolved(path: Path, overrides: Sequence[str] = ()) -> RunSpec:
    """The spec of a file that `dump` wrote, with overrides where some are given.

    Raises NotFoundError, or SpecError naming file, line and key.
    """
    return _spec_of(read_text(path), path, tuple(overrides))


@lru_cache(maxsize=8)  # a run's is read for all that is written of it; a spec is never changed
def _spec_of(text: str, path: Path, overrides: tuple[str, ...]) -> RunSpec:
    document = document_of(text, path, generated=True)
    if overrides:
        document = merge(document, override_layer(overrides, document.tree))
    try:
        return RunSpec.model_validate(dict(document.tree))
    except ValidationError as error:
        raise spec_error(error, document) from None


def plain(spec: Part) -> dict[str, Any]:
    """The spec as mappings, lists and scalars: what JSON and YAML can hold."""
    tree = _plain(spec.model_dump(mode="python"))
    assert isinstance(tree, dict)
    return tree


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(below) for key, below in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value
