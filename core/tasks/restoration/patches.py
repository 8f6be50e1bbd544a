"""The problems of a split: patches that are cut out of photographs and degraded when somebody asks for them.

Each is a function of (data_seed, split, index) alone, whichever others are made before it. A split costs no memory: an
example knows its id, and makes its arrays when they are read; the last few stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, overload

from core.config.task import Degradation, RestorationTaskSpec
from core.tasks.base import Example
from core.tasks.restoration.pictures import Picture, Pictures, as_floats

if TYPE_CHECKING:
    import numpy as np

    from core.tasks.restoration.pictures import Floats

PatchSplit = Literal["train", "eval"]
_SPLITS: tuple[PatchSplit, ...] = ("train", "eval")
_HELD_OUT, _WHERE, _DEGRADE = range(3)  # purposes: which pictures are held out, what is cut out, what is done to it
KEPT = 64  # patches that stay in memory
FLAT = 0.02  # standard deviation of a patch that is nearly one colour, such as a black corner: another one is drawn
DRAWS = 8  # at most, then the last is taken


@dataclass(frozen=True, kw_only=True, slots=True)
class Patch:
    """A patch before and after: float32 (H, W, 3) in [0, 1]."""

    picture: str
    clean: Floats
    degraded: Floats


def dice(seed: int, *key: int) -> np.random.Generator:
    """The stream of a seed and a key: purpose, split, index."""
    import numpy as np

    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *key])))


def by_split(pictures: Sequence[Picture], spec: RestorationTaskSpec) -> dict[PatchSplit, list[Picture]]:
    """Which pictures are trained on, and which `held_out` of them by `data_seed` are not; each in order of names."""
    order = [int(place) for place in dice(spec.data_seed, _HELD_OUT, 0, 0).permutation(len(pictures))]
    held_out = set(order[: spec.held_out])
    return {
        "train": [picture for place, picture in enumerate(pictures) if place not in held_out],
        "eval": [picture for place, picture in enumerate(pictures) if place in held_out],
    }


class Patches(Sequence[Example]):
    """All problems of a split, lazily: inputs `degraded`, facts `degradation`, `picture`, `clean`.

    They take the degradations in turn. A training patch is of a picture drawn by its own key and may be turned and
    mirrored; the held-out ones take the held-out pictures in turn, upright.
    """

    def __init__(self, pictures: Pictures, spec: RestorationTaskSpec, split: PatchSplit) -> None:
        self._pictures, self._spec, self._split = pictures, spec, split
        self._patch = lru_cache(maxsize=KEPT)(self._make)

    def __len__(self) -> int:
        return self._spec.train_prompts if self._split == "train" else self._spec.eval_prompts

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Example, ...]: ...
    def __getitem__(self, index: int | slice) -> Example | tuple[Example, ...]:
        """An example, its arrays not made yet."""
        places = range(len(self))[index]
        return self._example(places) if isinstance(places, int) else tuple(map(self._example, places))

    def _example(self, index: int) -> Example:
        degradation = self._degradation(index)
        facts: dict[str, Callable[[], object]] = {
            "degradation": lambda: degradation,
            "picture": lambda: self._patch(index).picture,
            "clean": lambda: self._patch(index).clean,
        }
        return Example(
            id=f"{self._split}-{degradation}-{index:05d}",
            inputs=_Lazy({"degraded": lambda: self._patch(index).degraded}),
            facts=_Lazy(facts),
        )

    @cached_property
    def _pool(self) -> list[Picture]:
        return by_split(self._pictures.pictures, self._spec)[self._split]

    def _degradation(self, index: int) -> Degradation:
        return self._spec.degradations[index % len(self._spec.degradations)]

    def _make(self, index: int) -> Patch:
        """The patch of this index. Raises SpecError where its picture cannot be read."""
        from core.tasks.restoration.degradations import degrade

        spec, split = self._spec, _SPLITS.index(self._split)
        where = dice(spec.data_seed, _WHERE, split, index)
        pool = self._pool
        if self._split == "train":
            picture = pool[int(where.integers(len(pool)))]
        else:
            turn, which = divmod(index, len(spec.degradations))
            picture = pool[(turn + which) % len(pool)]  # each degradation of each, and neighbours of different ones
        clean = self._cut(self._pictures.pixels(picture), where)
        degraded = degrade(clean, self._degradation(index), dice(spec.data_seed, _DEGRADE, split, index))
        return Patch(picture=picture.name, clean=clean, degraded=degraded)

    def _cut(self, pixels_HWC: Any, where: np.random.Generator) -> Floats:
        """A patch of the picture; one that is nearly one colour is drawn again."""
        import numpy as np

        size, (height, width) = self._spec.patch, pixels_HWC.shape[:2]
        for _ in range(DRAWS):
            top, left = int(where.integers(height - size + 1)), int(where.integers(width - size + 1))
            clean: Floats = as_floats(pixels_HWC[top : top + size, left : left + size])
            if clean.std() >= FLAT:
                break
        if self._split == "train":
            turns, mirrored = int(where.integers(4)), bool(where.integers(2))
            clean = np.ascontiguousarray(np.rot90(clean[:, ::-1] if mirrored else clean, turns))
        return clean


class _Lazy(Mapping[str, object]):
    """Values by name, each made when it is read."""

    def __init__(self, made: Mapping[str, Callable[[], object]]) -> None:
        self._made = made

    def __getitem__(self, name: str) -> object:
        return self._made[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
