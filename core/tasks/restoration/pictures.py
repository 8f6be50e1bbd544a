"""Photographs as RGB numbers: a user's PNG and JPEG files, read safely, and those that two packages ship.

A picture is refused by name, in one line: what is no PNG or JPEG, cut short, smaller than a patch, or larger than any
photograph (by the header, before anything is decoded). Colours are those of the file, its colour profile ignored.

| file | read as |
|---|---|
| greyscale, 1 to 8 bits | three equal channels |
| greyscale, 16 bits | the same, all 16 bits |
| colour, 16 bits | the upper 8 bits, which is what Pillow decodes |
| palette | its colours |
| alpha, or one transparent colour | over white |
| CMYK, YCCK | (1 - C)(1 - K), and so on |
| EXIF orientation | turned upright |
| animated | the first picture |

Pillow and numpy are imported where they are used: validating a spec looks at the built-in photographs' table alone.
"""

from __future__ import annotations

import hashlib
import struct
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import MissingPackageError, SpecError, in_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Whole = NDArray[np.uint8] | NDArray[np.uint16]  # of a picture in memory: a quarter of its floats

SUFFIXES = (".png", ".jpg", ".jpeg")
MOST_PIXELS = 100_000_000
MOST_BYTES = 1 << 30  # of pictures that are held in memory; those beyond are decoded again when they are needed

# name -> package, file below it, width, height. Left out of what the packages ship: drawings, masks, a second view of
# the motorcycle, a detail of the retina, two scans of text, and a photograph that is blurred on purpose.
BUILT_IN: dict[str, tuple[str, str, int, int]] = {
    "astronaut": ("skimage", "data/astronaut.png", 512, 512),
    "brick": ("skimage", "data/brick.png", 512, 512),
    "camera": ("skimage", "data/camera.png", 512, 512),
    "chelsea": ("skimage", "data/chelsea.png", 451, 300),
    "china": ("sklearn", "datasets/images/china.jpg", 640, 427),
    "coffee": ("skimage", "data/coffee.png", 600, 400),
    "coins": ("skimage", "data/coins.png", 384, 303),
    "flower": ("sklearn", "datasets/images/flower.jpg", 640, 427),
    "grass": ("skimage", "data/grass.png", 512, 512),
    "gravel": ("skimage", "data/gravel.png", 512, 512),
    "hubble_deep_field": ("skimage", "data/hubble_deep_field.jpg", 1000, 872),
    "ihc": ("skimage", "data/ihc.png", 512, 512),
    "moon": ("skimage", "data/moon.png", 512, 512),
    "motorcycle": ("skimage", "data/motorcycle_left.png", 741, 500),
    "retina": ("skimage", "data/retina.jpg", 1411, 1411),
    "rocket": ("skimage", "data/rocket.jpg", 640, 427),
}
_PACKAGES = {"PIL": "Pillow", "skimage": "scikit-image", "sklearn": "scikit-learn"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A file with a picture, as its header describes it before an EXIF orientation is followed."""

    name: str  # of a user's the file's name, of a built-in one a word
    path: Path
    width: int
    height: int


class Pictures:
    """Pictures that are decoded when they are asked for, and held as far as memory allows."""

    def __init__(self, pictures: Sequence[Picture], ignored: int = 0) -> None:
        self.pictures = tuple(pictures)
        self.ignored = ignored  # entries of a user's folder that are no PNG or JPEG file
        self._decoded: OrderedDict[str, Whole] = OrderedDict()

    def pixels(self, picture: Picture) -> Whole:
        """(H, W, 3) whole numbers, upright. Raises SpecError with the file's name."""
        if picture.name in self._decoded:
            self._decoded.move_to_end(picture.name)
        else:
            self._decoded[picture.name] = decoded(picture.path)
        while len(self._decoded) > 1 and sum(one.nbytes for one in self._decoded.values()) > MOST_BYTES:
            self._decoded.popitem(last=False)
        return self._decoded[picture.name]

    def check(self) -> None:
        """Read every file to its end. Raises SpecError with the name of one that is damaged, or a copy of another.

        A copy could be trained on while the other is held out.
        """
        first: dict[str, str] = {}
        for picture in self.pictures:
            with _opened(picture.path) as image:
                with picture.path.open("rb") as stream:
                    other = first.setdefault(hashlib.file_digest(stream, "sha256").hexdigest(), picture.name)
                if other != picture.name:
                    raise SpecError(f"is a copy of {other}; take one of them away", file=picture.path)
                if image.format == "PNG":
                    image.verify()  # the checksums of all its parts
                else:
                    image.draft("RGB", (1, 1))  # an eighth of the size: all of the file is read, in less time
                    image.load()


def built_in(patch: int) -> Pictures:
    """The photographs of scikit-image and scikit-learn, from where the packages lie. Raises SpecError."""
    folders = need("skimage", "sklearn")
    smallest = min(min(width, height) for _, _, width, height in BUILT_IN.values())
    if patch > smallest:
        allowed = f"allowed: at most {smallest // 8 * 8}, or a folder of larger pictures (task.pictures)"
        raise SpecError(
            f"got {patch}, and the smallest built-in photograph has {smallest} pixels; {allowed}", key="task.patch"
        )
    pictures = []
    for name, (package, file, width, height) in BUILT_IN.items():
        path = folders[package] / file
        if not path.is_file():
            raise SpecError(f"the photograph {name} is not there; pip install 'grpoctl[images]' again", file=path)
        pictures.append(Picture(name=name, path=path, width=width, height=height))
    return Pictures(pictures)


def of_folder(folder: Path, patch: int) -> Pictures:
    """The pictures of a user's folder by name, their headers looked at. Raises SpecError."""
    need("skimage")
    key = "task.pictures"
    try:
        files, ignored = picture_files(folder)
    except OSError as error:
        raise SpecError(f"{in_words(error)}; allowed: a folder with PNG or JPEG files", key=key) from None
    if not files:
        others = f" ({ignored} other entries; links and folders are not followed)" if ignored else ""
        raise SpecError(f"no PNG or JPEG file in {folder}{others}; allowed: a folder with some", key=key)
    pictures = []
    for file in files:
        with _opened(file) as image:
            width, height = image.size
        if min(width, height) < patch:
            size = f"has {width} x {height} pixels, and patches have {patch} x {patch}"
            raise SpecError(f"{size}; take it out of the folder, or lower task.patch", file=file)
        pictures.append(Picture(name=file.name, path=file, width=width, height=height))
    return Pictures(pictures, ignored)


def picture_files(folder: Path) -> tuple[list[Path], int]:
    """A folder's PNG and JPEG files by name, and how many other entries it has. Raises OSError.

    Links are not followed, folders inside not entered, and hidden files (a Mac's `._photo.jpg`) left alone.
    """
    entries = sorted(folder.iterdir())
    named = (entry for entry in entries if entry.suffix.lower() in SUFFIXES and not entry.name.startswith("."))
    files = [entry for entry in named if not entry.is_symlink() and entry.is_file()]
    return files, len(entries) - len(files)


def need(*packages: str) -> dict[str, Path]:
    """The folders of Pillow and other packages, none of them imported. Raises MissingPackageError."""
    folders = {}
    for package in ("PIL", *packages):
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            what = f"{_PACKAGES[package]} is not installed: pip install 'grpoctl[images]'"
            raise MissingPackageError(what, key="task.name")
        folders[package] = Path(spec.origin).parent
    return folders


def read_picture(path: Path) -> Floats:
    """One PNG or JPEG file as (H, W, 3) float32 in [0, 1]. Raises SpecError with its name."""
    need()
    return as_floats(decoded(path))


def as_floats(pixels: Whole) -> Floats:
    """Whole numbers as float32 in [0, 1]."""
    import numpy as np

    floats: Floats = (pixels / np.float32(np.iinfo(pixels.dtype).max)).astype(np.float32)
    return floats


def decoded(path: Path) -> Whole:
    """(H, W, 3), upright: 8 bits, or 16 where the file has a grey of 16. Raises SpecError with the file's name."""
    import numpy as np
    from PIL import Image, ImageOps

    with _opened(path) as image:
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I"):  # I;16, and I in older versions of Pillow
            grey_HW = np.asarray(upright).astype(np.uint16)
            return np.repeat(grey_HW[..., None], 3, axis=-1)
        if "A" in upright.getbands() or "transparency" in upright.info:
            over = upright.convert("RGBA")
            upright = Image.alpha_composite(Image.new("RGBA", over.size, "white"), over)
        return np.array(upright.convert("RGB"))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The picture with its header read; what is wrong with it, then or while it is decoded inside, is a SpecError."""
    from PIL import Image, UnidentifiedImageError

    try:
        # Pillow warns of what is refused here, and of EXIF data that are damaged and then not followed.
        with warnings.catch_warnings(action="ignore"), Image.open(path, formats=("PNG", "JPEG")) as image:
            if image.width * image.height > MOST_PIXELS:
                raise _too_large(path, f"{image.width} x {image.height}")
            yield image
    except Image.DecompressionBombError as error:
        raise _too_large(path, next(word for word in str(error).replace("(", " ").split() if word.isdigit())) from None
    except UnidentifiedImageError:
        raise SpecError("is no PNG or JPEG picture, whatever its name says; take it away", file=path) from None
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error) as error:
        damage = in_words(error) if isinstance(error, OSError) and error.filename else f"cannot be read: {error}"
        raise SpecError(f"{damage}; mend it or take it away", file=path) from None


def _too_large(path: Path, got: str) -> SpecError:
    return SpecError(f"has {got} pixels; allowed: at most {MOST_PIXELS:,} in all", file=path)
