"""Pictures to look at: an evaluation's sheet, one picture by itself, and what a restoration changed.

The text is set by Pillow in its own typeface, so that a sheet needs no font of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from core.tasks.restoration.pictures import Floats

CELL = 192  # pixels of a patch in a sheet: a small one is enlarged by a whole number, its pixels left to be seen
MOST_GAIN = 64  # of a difference
_LINE, _GAP, _TEXT = 20, 8, 13  # pixels: a line of text, between pictures, the type


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A line of a sheet: pictures of one size in [0, 1], and what is said above them."""

    label: str
    pictures: Sequence[Floats]


def sheet(columns: Sequence[str], rows: Sequence[Row]) -> bytes:
    """A PNG of rows of pictures under the columns' names, each row with its label."""
    tiles = [[_tile(picture) for picture in row.pictures] for row in rows]
    width = _GAP + sum(tile.width + _GAP for tile in tiles[0])
    height = _LINE + sum(_LINE + line[0].height + _GAP for line in tiles)
    canvas = Image.new("RGB", (width, height), "white")
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(_TEXT)
    for place, name in enumerate(columns):
        draw.text((_GAP + place * (tiles[0][0].width + _GAP), 3), name, fill="black", font=font)
    top = _LINE
    for row, line in zip(rows, tiles, strict=True):
        draw.text((_GAP, top + 3), row.label, fill="black", font=font)
        left, top = _GAP, top + _LINE
        for tile in line:
            canvas.paste(tile, (left, top))
            left += tile.width + _GAP
        top += line[0].height + _GAP
    return _as_bytes(canvas)


def difference(degraded_HWC: Floats, restored_HWC: Floats) -> bytes:
    """A PNG of restored - degraded around a middle grey, under a line that says how much it is amplified.

    By the largest power of two, up to MOST_GAIN, at which 99 % of it still fits.
    """
    difference_HWC = restored_HWC - degraded_HWC
    largest = float(np.nanquantile(np.abs(difference_HWC), 0.99))
    gain = 1
    while gain < MOST_GAIN and 2 * gain * largest <= 0.5:
        gain *= 2
    image = Image.fromarray(eight_bits(0.5 + gain * difference_HWC))
    text, font = f"restored - degraded, x {gain}", ImageFont.load_default(_TEXT)
    canvas = Image.new("RGB", (max(image.width, round(font.getlength(text)) + 2 * _GAP), _LINE + image.height), "white")
    ImageDraw.Draw(canvas).text((_GAP, 3), text, fill="black", font=font)
    canvas.paste(image, (0, _LINE))
    return _as_bytes(canvas)


def png(picture_HWC: Floats) -> bytes:
    """A picture of [0, 1] as a PNG of 8 bits."""
    return _as_bytes(Image.fromarray(eight_bits(picture_HWC)))


def eight_bits(picture_HWC: Floats) -> NDArray[np.uint8]:
    """Rounded to 0 .. 255; what is no number is black."""
    whole: NDArray[np.uint8] = np.rint(np.nan_to_num(picture_HWC, nan=0.0).clip(0, 1) * 255).astype(np.uint8)
    return whole


def _tile(picture_HWC: Floats) -> Image.Image:
    image = Image.fromarray(eight_bits(picture_HWC))
    times = max(1, CELL // max(image.size))
    return image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)


def _as_bytes(image: Image.Image) -> bytes:
    stream = BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()
