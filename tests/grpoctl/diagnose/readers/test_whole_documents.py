"""Files that are one value throughout."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import NotFoundError
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import open_source
from grpoctl.diagnose.readers.whole_documents import document_of


def indented(deep: int) -> str:
    return "".join(f"{' ' * at}a:\n" for at in range(deep))


@pytest.mark.parametrize("text", ["[" * 30_000, "{a: " * 30_000, "- " * 30_000, "- " * 30_000 + "1", indented(1000)])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_yaml_that_is_too_deep_is_refused_before_it_is_parsed(
    text: str, encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ruamel.yaml.YAML.load", lambda *_: pytest.fail("parsed"))
    file = tmp_path / "a.yaml"
    file.write_text(text, encoding=encoding)
    with pytest.raises(ValueError, match="200 values inside each other"):
        document_of(file)


def test_a_deep_file_is_refused_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("[" * 30_000)
    with pytest.raises(NotFoundError) as refused:
        open_source(Source(name=str(file), path=file))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["a = " + "[" * 300 + "]" * 300, "a." * 300 + "b = 1", "[" + "a." * 300 + "b]"])
def test_toml_that_is_too_deep_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match="200 values inside each other"):
        document_of(file)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "[" * 200 + "]" * 200),
        ("a.yaml", indented(200)),
        ("a.yaml", "".join(f"- - [{at}]\n" for at in range(300))),  # one behind the other
        ("a.yaml", "a:\n  b:\n    - c\n\n   \n" + "".join(f"a{at}:\n  b:\n    - c\n" for at in range(300))),
        ("a.yaml", "- a:\n    b: [1]\n" * 300),
        ("a.yaml", "- ']'\n" * 300 + "- [1]\n"),
        ("a.toml", "[[a]]\nb.c = [1]\n" * 300),
        ("a.toml", "a = '" + "." * 300 + "'"),
    ],
)
def test_files_that_are_long_are_not_deep(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert document_of(file)


@pytest.mark.parametrize("text", ["[" * 201 + "]" * 201, indented(201), "- ']'\n" * 300 + "- " + "[" * 201 + "]" * 201])
def test_how_deep_is_too_deep(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match="inside each other"):
        document_of(file)
