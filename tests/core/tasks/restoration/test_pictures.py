"""Files of every kind: read rightly, or refused by name in one line."""

from __future__ import annotations

import struct
import time
import tracemalloc
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import SpecError
from core.tasks.restoration import pictures
from core.tasks.restoration.pictures import BUILT_IN, as_floats, built_in, decoded, of_folder

RGB = np.random.default_rng(0).integers(0, 256, (40, 48, 3), dtype=np.uint8)
WHITE, BLACK = [255] * 3, [0] * 3


def save(file: Path, array: Any, mode: str | None = None, **how: Any) -> Path:
    image = Image.fromarray(array) if mode is None else Image.frombytes(mode, array.shape[1::-1], array.tobytes())
    image.save(file, **how)
    return file


def png(width: int, height: int, pixels: bytes = b"", bits: int = 8) -> bytes:
    """A PNG of RGB whose header says this size and whose checksums are right, whatever its pixels are."""
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0),
        b"IDAT": zlib.compress(pixels),
        b"IEND": b"",
    }
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def refusal(file: Path) -> str:
    """What is said of a folder with this file: it names it, in one line."""
    with pytest.raises(SpecError) as caught:
        of_folder(file.parent, 16).check()
    message = str(caught.value)
    assert file.name in message
    assert "\n" not in message
    return message


def test_colours_are_those_of_the_file(tmp_path: Path) -> None:
    assert np.array_equal(decoded(save(tmp_path / "rgb.png", RGB)), RGB)
    floats = as_floats(RGB)
    assert (floats.dtype, floats.min(), floats.max()) == (np.float32, 0, 1)
    assert floats[0, 0, 0] == pytest.approx(RGB[0, 0, 0] / 255)
    flat = save(tmp_path / "flat.jpg", np.full((16, 16, 3), (200, 100, 50), dtype=np.uint8), quality=95)
    assert np.abs(decoded(flat).astype(int) - (200, 100, 50)).max() <= 2


def test_grey_of_1_and_8_and_16_bits(tmp_path: Path) -> None:
    grey = RGB[..., 0]
    assert np.array_equal(decoded(save(tmp_path / "8.png", grey)), np.repeat(grey[..., None], 3, -1))
    assert np.array_equal(decoded(save(tmp_path / "1.png", grey > 127))[..., 2], np.where(grey > 127, 255, 0))
    deep = save(tmp_path / "16.png", np.array([[0, 1, 32768, 65535]] * 4, dtype=np.uint16))
    values = as_floats(decoded(deep))
    assert values.shape == (4, 4, 3)
    assert values[0, :, 1].tolist() == pytest.approx([0, 1 / 65535, 32768 / 65535, 1], rel=1e-6)


def test_colour_of_16_bits_has_its_upper_8(tmp_path: Path) -> None:
    row = b"\0" + struct.pack(">6H", 0x80FF, 0, 0xFFFF, 0x0100, 0x00FF, 0x1234)
    (tmp_path / "deep.png").write_bytes(png(2, 1, row, bits=16))
    assert decoded(tmp_path / "deep.png").tolist() == [[[0x80, 0, 0xFF], [0x01, 0x00, 0x12]]]


def test_what_is_transparent_is_laid_over_white(tmp_path: Path) -> None:
    """Half of black over white is grey: 255 x (1 - 128 / 255) = 127."""
    colours = np.array([[(0, 0, 0, 255), (0, 0, 0, 0), (0, 0, 0, 128), (255, 0, 0, 0)]], dtype=np.uint8)
    assert decoded(save(tmp_path / "rgba.png", colours))[0].tolist() == [BLACK, WHITE, [127] * 3, WHITE]
    grey = np.array([[(0, 0), (0, 255)]], dtype=np.uint8)
    assert decoded(save(tmp_path / "la.png", grey, "LA"))[0].tolist() == [WHITE, BLACK]
    one = save(tmp_path / "one.png", np.array([[(1, 2, 3), (4, 5, 6)]], dtype=np.uint8), transparency=(1, 2, 3))
    assert decoded(one)[0].tolist() == [WHITE, [4, 5, 6]]


def test_a_palette_has_its_colours(tmp_path: Path) -> None:
    image = Image.frombytes("P", (2, 1), bytes([1, 0]))
    image.putpalette([10, 20, 30, 200, 100, 0])
    image.save(tmp_path / "p.png")
    assert decoded(tmp_path / "p.png").tolist() == [[[200, 100, 0], [10, 20, 30]]]
    image.save(tmp_path / "t.png", transparency=1)
    assert decoded(tmp_path / "t.png").tolist() == [[WHITE, [10, 20, 30]]]


@pytest.mark.parametrize(
    ("ink", "colour"),  # 255 (1 - C)(1 - K), 255 (1 - M)(1 - K), 255 (1 - Y)(1 - K)
    [
        ((0, 0, 0, 0), (255, 255, 255)),
        ((255, 0, 0, 0), (0, 255, 255)),
        ((0, 0, 0, 255), (0, 0, 0)),
        ((0, 255, 255, 128), (127, 0, 0)),
    ],
)
def test_cmyk_is_ink(ink: tuple[int, ...], colour: tuple[int, ...], tmp_path: Path) -> None:
    inks = np.full((16, 16, 4), ink, dtype=np.uint8)
    pixels = decoded(save(tmp_path / "cmyk.jpg", inks, "CMYK", quality=95))
    assert np.abs(pixels.astype(int) - colour).max() <= 3


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_a_picture_is_turned_upright(suffix: str, tmp_path: Path) -> None:
    """Orientation 6: what is stored must be turned by 90 degrees clockwise, so that its left column is the top row."""
    stored = np.zeros((16, 32, 3), dtype=np.uint8)
    stored[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = decoded(save(tmp_path / f"turned.{suffix}", stored, exif=exif))
    assert pixels.shape == (32, 16, 3)
    assert pixels[:8].min() > 240
    assert pixels[8:].max() < 15


def test_damaged_exif_data_are_not_followed_and_nobody_is_warned(tmp_path: Path) -> None:
    exif = b"Exif\0\0II*\0\x08\0\0\0\x02\0\x12\x01\x03"  # two entries are announced, and the first is cut short
    file = save(tmp_path / "photo.jpg", np.full((16, 32, 3), 77, dtype=np.uint8), exif=exif)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decoded(file).shape == (16, 32, 3)


@pytest.mark.parametrize("name", ["short.png", "short.jpg"])
def test_a_file_that_is_cut_short_is_refused(name: str, tmp_path: Path) -> None:
    file = save(tmp_path / name, RGB)
    file.write_bytes(file.read_bytes()[:-700])
    assert "mend it or take it away" in refusal(file)


def test_a_copy_is_refused_since_it_could_be_in_both_splits(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        save(tmp_path / name, RGB)
    assert "b.png: is a copy of a.png" in refusal(tmp_path / "b.png")


def test_a_damaged_byte_is_seen(tmp_path: Path) -> None:
    file = save(tmp_path / "bit.png", RGB)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    refusal(file)


def test_pixels_that_are_not_all_there_are_refused_when_they_are_read(tmp_path: Path) -> None:
    """Every part is as its checksum says: only decoding shows it."""
    file = tmp_path / "few.png"
    file.write_bytes(png(64, 64, b"\0" * 50))
    of_folder(tmp_path, 16).check()
    with pytest.raises(SpecError, match=r"few\.png.*cannot be read"):
        decoded(file)


@pytest.mark.parametrize(
    "content", [b"once upon a time", b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a\1\0\1\0\0\0\0;", b"%!PS\n"]
)
def test_what_is_no_picture_is_refused_whatever_its_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_bytes(content)
    assert "take it away" in refusal(tmp_path / "text.png")


def test_a_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    file = tmp_path / "bomb.png"
    file.write_bytes(png(12_000, 12_000))  # Pillow would only warn
    assert "has 12000 x 12000 pixels" in refusal(file)
    file.write_bytes(png(50_000, 50_000))
    tracemalloc.start()
    started = time.perf_counter()
    message = refusal(file)
    seconds, (_, most) = time.perf_counter() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "has 2500000000 pixels; allowed: at most 100,000,000" in message
    assert seconds < 0.5
    assert most < 1_000_000
    with pytest.raises(SpecError, match=r"bomb\.png"):
        decoded(file)


@pytest.mark.parametrize("size", [(1, 1), (15, 40), (40, 15)])
def test_a_picture_that_is_smaller_than_a_patch_is_refused(size: tuple[int, int], tmp_path: Path) -> None:
    file = save(tmp_path / "small.png", np.zeros((size[1], size[0], 3), dtype=np.uint8))
    assert f"has {size[0]} x {size[1]} pixels" in refusal(file)


def test_what_lies_beside_the_pictures_is_left_alone_and_counted(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpeg", "c.JPG", ".d.png"):
        save(tmp_path / name, RGB if name < "c" else 255 - RGB)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "link.png").symlink_to(tmp_path / "b.PNG")
    there = of_folder(tmp_path, 16)
    assert [picture.name for picture in there.pictures] == ["a.jpeg", "b.PNG", "c.JPG"]
    assert there.ignored == 4
    there.check()


@pytest.mark.parametrize(
    ("place", "why"),
    [(".", "no PNG or JPEG file in"), ("gone", "No such file"), ("notes.txt", "Not a directory")],
)
def test_a_folder_without_pictures_is_refused(place: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(SpecError, match=f"{why}.*allowed: a folder") as caught:
        of_folder(tmp_path / place, 16)
    assert caught.value.key == "task.pictures"
    assert str(tmp_path / place) in str(caught.value)


def test_the_built_in_photographs_are_as_the_table_has_them() -> None:
    for picture in built_in(64).pictures:
        with Image.open(picture.path) as image:
            assert image.size == (picture.width, picture.height), picture.name
    assert len(BUILT_IN) == 16


def test_a_patch_that_the_smallest_photograph_does_not_have_is_refused() -> None:
    assert len(built_in(296).pictures) == 16  # chelsea is 300 pixels high
    with pytest.raises(SpecError, match=r"task\.patch: got 304.* at most 296"):
        built_in(304)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"Pillow is not installed: pip install 'grpoctl\[images\]'"):
        built_in(64)


def test_memory_holds_the_pictures_used_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.png", "b.png", "c.png"):
        save(tmp_path / name, RGB)
    there = of_folder(tmp_path, 16)
    monkeypatch.setattr(pictures, "MOST_BYTES", 2 * RGB.nbytes)
    a, b, c = there.pictures
    kept, gone = there.pixels(a), there.pixels(b)
    assert there.pixels(a) is kept
    there.pixels(c)
    assert there.pixels(a) is kept
    assert there.pixels(b) is not gone
