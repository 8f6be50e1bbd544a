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


@pytest.mark.parametrize("text", ["a: !!bool x\n", 'a: !!int ""\n', 'a: !!float ""\n', "a: !!timestamp x\n"])
def test_yaml_whose_tags_fit_nothing_is_refused_with_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(NotFoundError, match="no metric of a training run is known in it"):
        open_source(Source(name=str(file), path=file))


TOML = "[[history]]\nstep = {0}\nreward = 0.{0}\n"
JSON = '{"step": 1, "reward": 0.1}, {"step": 2, "reward": 0.2}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "a.yaml",
            "lr: 1e-5\nbeta: 0.04\nnum_generations: 8\nhistory:\n- {step: 1, reward: 0.1}\n- {step: 2, reward: 0.2}",
        ),
        ("a.toml", "lr = 1e-5\nbeta = 0.04\nnum_generations = 8\n" + TOML.format(1) + TOML.format(2)),
        ("a.json", f'{{"lr": 1e-5, "beta": 0.04, "num_generations": 8, "history": [{JSON}]}}'),
    ],
)
def test_numbers_beside_a_history_are_settings(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    found = open_source(Source(name=str(file), path=file)).case
    assert (found.settings.learning_rate, found.settings.beta, found.settings.num_generations) == (1e-5, 0.04, 8)
    assert [row["reward/mean"] for row in found.rows] == [0.1, 0.2]
