"""Lines of files that are whole, cut off, packed, of other encodings, or no text at all."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from core.errors import StorageError
from grpoctl.diagnose.readers.text import CUT_OFF, LONGEST, Notices, head, is_text, notice_of, text_lines, unpacked

TEXT = "".join(f"line {number} {'x' * 50}\n" for number in range(1, 5001))


def texts(path: Path, notes: list[str] | None = None) -> list[str]:
    return [line.text for line in text_lines(path, notes)]


def test_lines_are_numbered_as_an_editor_does(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xef\xbb\xbfone\r\ntwo\x0cstill two\rand still\n\nfour")
    assert [(line.number, line.text) for line in text_lines(tmp_path / "log")] == [
        (1, "one"), (2, "two\x0cstill two\rand still"), (3, ""), (4, "four")
    ]  # fmt: skip


def test_a_gzip_reads_as_its_text(tmp_path: Path) -> None:
    (tmp_path / "log.gz").write_bytes(gzip.compress(TEXT.encode()) + gzip.compress(b"more\n"))
    notes: list[str] = []
    assert texts(tmp_path / "log.gz", notes) == [*TEXT.splitlines(), "more"]
    assert notes == []


def test_a_gzip_that_was_cut_off_gives_what_it_has(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT.encode())
    (tmp_path / "log.gz").write_bytes(packed[: len(packed) // 2])
    notes: list[str] = []
    found = texts(tmp_path / "log.gz", notes)
    assert 1000 < len(found) < 5000
    assert found[:-1] == TEXT.splitlines()[: len(found) - 1]
    assert notes == [CUT_OFF]


def test_a_gzip_that_is_damaged_is_told(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(TEXT.encode()))
    packed[20:40] = b"\xff" * 20
    (tmp_path / "log.gz").write_bytes(packed)
    notes: list[str] = []
    texts(tmp_path / "log.gz", notes)
    assert notes == [CUT_OFF]


def test_utf_16_and_what_no_encoding_explains(tmp_path: Path) -> None:
    (tmp_path / "wide").write_bytes("日志\nzwei\n".encode("utf-16"))
    (tmp_path / "odd").write_bytes(b"a\xff\xfeb\n")
    assert texts(tmp_path / "wide") == ["日志", "zwei"]
    assert texts(tmp_path / "odd") == ["a\ufffd\ufffdb"]
    assert is_text(tmp_path / "wide")


def test_a_line_without_an_end_comes_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * (2 * LONGEST + 10))
    lines = list(text_lines(tmp_path / "log"))
    assert [line.number for line in lines] == [1] * len(lines)
    assert max(len(line.text) for line in lines) <= LONGEST
    assert sum(len(line.text) for line in lines) == 2 * LONGEST + 10


def test_the_beginning_is_what_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "log.gz").write_bytes(gzip.compress(TEXT.encode()))
    assert head(tmp_path / "log.gz", 100_000) == TEXT.encode()[:100_000]
    assert head(tmp_path / "gone") == b""
    assert not is_text(tmp_path / "gone")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        texts(tmp_path)


def test_a_terminals_colours_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"\x1b[1;32mlr: 2e-06\x1b[0m\n\x1b]0;title\x07next\x1b[K")
    assert [line.text for line in text_lines(file)] == ["lr: 2e-06", "next"]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ kl 0.1", "link kl 0.1"),  # ended by an escape and a backslash
        ("kl 0.1 \x1b", "kl 0.1 \x1b"),  # cut off
        ("kl\x1b[0m 0.1 \x1b[", "kl 0.1 \x1b["),
        ("\x1b]0;title\x1b[31m\x07kl", "\x1b]0;title\x07kl"),  # no sequence holds another
    ],
)
def test_sequences_are_left_out_whatever_ends_them(text: str, plain: str, tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text(text)
    assert [line.text for line in text_lines(file)] == [plain]


def test_carriage_returns_alone_end_lines_where_there_are_no_newlines(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\rtwo\rthree")
    assert [tuple(line) for line in text_lines(file)] == [(1, "one"), (2, "two"), (3, "three")]
    file.write_bytes(b"1/2\r2/2\nend\n")  # a progress bar rewrites its line
    assert [line.text for line in text_lines(file)] == ["1/2\r2/2", "end"]


def test_all_bytes_are_bounded(tmp_path: Path) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(b"x" * 3_000_000))
    assert len(unpacked(file, 3_000_000)) == 3_000_000
    with pytest.raises(StorageError, match="larger than 2 MiB"):
        unpacked(file, 2 << 20)


DROPPED = "Caching is incompatible with gradient checkpointing in LlamaDecoderLayer. Setting `past_key_values=None`."


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.", "cache-disabled"),
        ("WARNING: use_cache=True is incompatible with gradient checkpointing.", "cache-disabled"),
        (DROPPED, "cache-dropped"),
        (f"[W 12:00] {DROPPED}", "cache-dropped"),
        ("checkpoint.py:85: UserWarning: None of the inputs have requires_grad=True. Gradients will be None",
         "checkpointing-without"),
        ("gradient checkpointing enabled", None),
        ("tensors with requires_grad=True: 12", None),
        ("", None),
    ],
)  # fmt: skip
def test_what_a_line_is(text: str, kind: str | None) -> None:
    found = notice_of(text, line=3, step=2)
    if kind is None:
        assert found is None
    else:
        assert found is not None
        assert found.kind.startswith(kind)
        assert (found.line, found.step) == (3, 2)


def test_a_citation_begins_where_the_sentence_does() -> None:
    found = notice_of(f"[W 12:00] {DROPPED}")
    assert found is not None
    assert found.text == DROPPED


def test_the_first_few_of_a_kind_are_kept() -> None:
    notices = Notices()
    for line in range(1, 100):
        notices.look(DROPPED, line, None)
    assert [one.line for one in notices.all()] == [1, 2, 3]
