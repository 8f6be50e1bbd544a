"""YAML 1.2 as specs read it: tables of scalars, lines and refusals."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from core.errors import NotFoundError, SpecError
from grpoctl.config.documents import MAX_BYTES, read_document, read_value


def refusal(tmp_path: Path, content: str | bytes) -> SpecError:
    file = tmp_path / "x.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SpecError) as caught:
        read_document(file)
    assert caught.value.file == file
    assert "\n" not in str(caught.value)
    return caught.value


SCALARS: list[tuple[str, object]] = [
    ("2e-6", 2e-6),  # YAML 1.1 reads a string
    ("1e3", 1000.0),
    ("2.0e-6", 2e-6),
    (".5", 0.5),
    ("1.", 1.0),
    ("3", 3),
    ("-3", -3),
    ("010", 10),  # YAML 1.1 reads 8
    ("0o10", 8),
    ("0x1F", 31),
    ("no", "no"),  # YAML 1.1 reads false
    ("off", "off"),
    ("yes", "yes"),
    ("true", True),
    ("False", False),
    ("null", None),
    ("~", None),
    ("2025-12-05", "2025-12-05"),  # YAML 1.1 reads a date
    ("12:30:45", "12:30:45"),  # YAML 1.1 reads 45045
    ("=", "="),
    ("'3'", "3"),
    ('"no"', "no"),
    ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
    ("builtin:tiny", "builtin:tiny"),
    ("[a, 1]", ["a", 1]),
    ("{a: 1}", {"a": 1}),
    ("[]", []),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_a_value_reads_the_same_in_a_file_and_in_an_override(text: str, value: object, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(f"key: {text}\n")
    read = read_document(tmp_path / "x.yaml").tree["key"]
    assert (read, type(read)) == (value, type(value))
    assert (read_value(text), type(read_value(text))) == (value, type(value))


@pytest.mark.parametrize("text", ["a: b # c", "!x", "&x", "*x", "- a", "? x", "%x", "@x", "> x", "| x", "a, b", "#3"])
def test_an_override_that_opens_no_bracket_or_quote_is_taken_whole(text: str) -> None:
    assert read_value(f" {text} ") == text


@pytest.mark.parametrize("text", ["", "  ", "[1", "{a: 1", "'x", "[1] 2", ".inf", ".nan", "[.nan]", "{a: 1, a: 2}"])
def test_a_broken_override_value_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        read_value(text)


def test_every_value_knows_its_line(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("# a comment\na: 1\nb:\n  c:\n    - x\n    - y\n  d: {e: 2}\n")
    layer = read_document(file)
    lines = {path: place.line for path, place in layer.places.items()}
    assert lines == {
        (): 2,
        ("a",): 2,
        ("b",): 3,
        ("b", "c"): 4,
        ("b", "c", 0): 5,
        ("b", "c", 1): 6,
        ("b", "d"): 7,
        ("b", "d", "e"): 7,
    }
    assert layer.place(("b", "c", "nothing", "there")).line == 4  # the nearest around it


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        ("", None, "empty"),
        ("# only a comment\n", None, "empty"),
        ("- a\n", 1, "list at the top"),
        ("\n3\n", 2, "single value at the top"),
        ("a:\n\tb: 1\n", 2, "indent with spaces"),
        ("a: [1,\n", 2, "not valid YAML"),
        ("a: 1\nb: c: d\n", 2, "mapping values are not allowed"),
        ("a: 1\nb: 2\na: 3\n", 3, "a: duplicate key; it is first set in line 1"),
        ("a:\n  b: 1\n  b: 1\n", 3, "a.b: duplicate key"),
        ("a: 1\nb: !!python/object/apply:os.system [ls]\n", 2, "b: got the tag !!python/object/apply:os.system"),
        ("a: !!binary aGk=\n", 1, "tag"),
        ("a: !mine 3\n", 1, "tag"),
        ("a: 1\nb: .nan\n", 2, "b: got .nan; allowed: finite"),
        ("a: -.inf\n", 1, "finite"),
        ("a: 1e999\n", 1, "finite"),
        (f"a: {'9' * 5000}\n", 1, "no number"),  # more digits than Python converts
        ("a: {1: 2}\n", 1, "keys are names"),
        ("? [a]\n: 1\n", 1, "keys are names"),
        ("<<: {a: 1}\n", 1, "extends"),
        ("a: 1\n---\nb: 1\n", 2, "another document"),
        ("%YAML 1.1\n---\na: no\n", 1, "YAML 1.2"),
        ("a: *nowhere\n", 1, "undefined alias"),
        ("a: 1\nb: &b [*b]\n", 2, "b[0]: an alias"),
        ("a: 1\nb: \x07\n", 2, "U+0007"),
        ('a: "\\ud800"\n', 1, "surrogate"),
        (b"a: 1\nb: \xe9\n", 2, "not UTF-8 text (byte 0xe9)"),
        ("a: 1\n".encode("utf-16"), 1, "not UTF-8"),
        ("[" * 1000, None, "nested too deeply"),
        ("a: " + "x" * 5_000_000, None, f"larger than {MAX_BYTES // 1024} KiB"),
    ],
)
def test_what_is_no_spec_is_refused_in_one_line(
    content: str | bytes, line: int | None, says: str, tmp_path: Path
) -> None:
    error = refusal(tmp_path, content)
    assert error.line == line
    assert says in str(error)


def test_an_alias_bomb_is_refused(tmp_path: Path) -> None:
    # nine doublings by ten: 10**9 values in 400 bytes
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "holds more than 10000 values" in str(refusal(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize(("copies", "accepted"), [(97, True), (100, False)])
def test_expanded_values_are_counted(copies: int, accepted: bool, tmp_path: Path) -> None:
    # a list and its 100 items, `copies` + 1 times: 98 * 101 = 9898 and 101 * 101 = 10201
    text = f"a: &a [{', '.join(['x'] * 100)}]\nb: [{', '.join(['*a'] * copies)}]\n"
    if not accepted:
        assert "holds more than 10000 values" in str(refusal(tmp_path, text))
        return
    (tmp_path / "x.yaml").write_text(text)
    assert len(read_document(tmp_path / "x.yaml").tree) == 2


def test_a_plain_alias_is_fine(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: &a [1]\nb: *a\n")
    assert read_document(tmp_path / "x.yaml").tree == {"a": [1], "b": [1]}


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbfname: x\n")
    assert read_document(tmp_path / "x.yaml").tree == {"name": "x"}


def test_directories_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").mkdir()
    with pytest.raises(SpecError, match="is a directory"):
        read_document(tmp_path / "d.yaml")
    with pytest.raises(NotFoundError, match=r"no file .*nothing\.yaml"):
        read_document(tmp_path / "nothing.yaml")
    with pytest.raises(SpecError, match="special file"):
        read_document(Path("/dev/null"))


def test_floats_are_read_exactly(tmp_path: Path) -> None:
    values = [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, 1 / 3, 1e16, 1e22, math.pi * 1e-7]
    for value in values:
        assert read_value(repr(value)) == value
