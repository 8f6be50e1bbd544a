"""RestorationTask: degraded patches of photographs, scored by how like the restored ones are to the clean ones.

What is heavy is imported where it is used: validating a spec builds the task, and loads nothing heavy.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from core.config.task import Degradation, RestorationTaskSpec
from core.errors import SpecError, TaskError
from core.tasks.base import Example, Outcome, Split, Table, Task
from core.tasks.restoration.patches import Patches
from core.tasks.restoration.pictures import Pictures, built_in, need, of_folder, read_picture

ROWS = 6  # of a sheet
QUARTERS = 4
SMALLEST = 16  # pixels of a side of a picture that is restored by itself: SSIM looks at 11


class RestorationTask(Task):
    """Image restoration; see core.tasks.base.Task.

    An output is a picture, float32 (H, W, 3), clipped to [0, 1] where it is scored, shown or named.
    """

    def __init__(self, spec: RestorationTaskSpec) -> None:
        self.spec = spec

    @cached_property
    def pictures(self) -> Pictures:
        """All pictures, held-out ones too; none is decoded yet. Raises SpecError."""
        folder, patch = self.spec.pictures, self.spec.patch
        pictures = built_in(patch) if folder is None else of_folder(Path(folder).expanduser(), patch)
        count = len(pictures.pictures)
        if self.spec.held_out >= count:
            got = f"got {self.spec.held_out} of {count} picture{'s' if count > 1 else ''}"
            allowed = f"at most {count - 1}" if count > 1 else "a folder of two pictures or more"
            raise SpecError(f"{got}, so that none is left to train on; allowed: {allowed}", key="task.held_out")
        return pictures

    @cached_property
    def _splits(self) -> dict[Split, Patches]:
        return {"train": Patches(self.pictures, self.spec, "train"), "eval": Patches(self.pictures, self.spec, "eval")}

    def examples(self, split: Split) -> Sequence[Example]:
        """All patches of a split, made when they are read; it has no `test`. Raises SpecError for a bad folder."""
        return () if split == "test" else self._splits[split]

    def make_ready(self) -> None:
        """Have the packages, and every file of the user's read to its end. Raises SpecError."""
        need("skimage")
        if self.spec.pictures is None:
            assert self.pictures
        else:
            self.pictures.check()

    def score(
        self, examples: Sequence[Example], outputs: Sequence[Any], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """The reward of each picture, clipped to [0, 1]; parts `psnr_term` and `ssim_term`, measured `psnr` and `ssim`.

        A picture with a value that is no number is not valid and its reward is missing. Raises TaskError for an example
        of another task, and for a picture of another size.
        """
        return [self._outcome(example, output) for example, output in zip(examples, outputs, strict=True)]

    def _outcome(self, example: Example, output: Any) -> Outcome:
        import numpy as np

        from core.tasks.restoration.reward import clipped, likeness

        if "clean" not in example.facts:
            raise TaskError(f"example {example.id} has no clean picture: it is no problem of restoration")
        clean, restored = np.asarray(example.facts["clean"]), clipped(output)
        if restored.shape != clean.shape:
            raise TaskError(f"got a picture of shape {restored.shape} for {example.id}; allowed: {clean.shape}")
        if not np.isfinite(np.asarray(output)).all():
            missing = dict.fromkeys(("psnr_term", "ssim_term"), math.nan)
            measured = dict.fromkeys(("psnr", "ssim"), math.nan)
            return Outcome(reward=math.nan, expected=math.nan, valid=False, parts=missing, measured=measured)
        like, (w_psnr, w_ssim) = likeness(clean, restored), self.spec.weights
        reward = w_psnr * like.psnr_term + w_ssim * like.ssim_term
        return Outcome(
            reward=reward,
            expected=reward,
            valid=True,
            parts={"psnr_term": like.psnr_term, "ssim_term": like.ssim_term},
            measured={"psnr": like.psnr, "ssim": like.ssim},
        )

    def target(self, example: Example) -> Any:
        """None: the clean picture is a loss of the policy, no action of it. Raises TaskError."""
        instead = "a grpo stage with policy_weight: 0 and loss_weights: {supervised: 1} learns from the clean pictures"
        raise TaskError(f"a restored picture is not imitated as an answer is; {instead}")

    def baselines(self) -> Mapping[str, Mapping[str, float]]:
        """`degraded`: the held-out patches as they are given, unrestored."""
        return {"degraded": self._degraded}

    @cached_property
    def _degraded(self) -> dict[str, float]:
        held_out = self.examples("eval")
        outcomes = [self._outcome(example, example.inputs["degraded"]) for example in held_out]
        count = len(outcomes)
        return {
            "eval/reward": sum(outcome.expected for outcome in outcomes) / count,
            **{f"eval/{name}": sum(one.measured[name] for one in outcomes) / count for name in ("psnr", "ssim")},
        }

    def record(self, output: Any) -> Mapping[str, object]:
        """The beginning of the sha256 of the picture in 8 bits: whether two are the same, never the picture."""
        from core.tasks.restoration.reward import clipped
        from core.tasks.restoration.sheets import eight_bits

        return {"image": hashlib.sha256(eight_bits(clipped(output)).tobytes()).hexdigest()[:12]}

    def shown(self, example: Example) -> str:
        """The photograph and what was done to it."""
        return f"{example.facts['picture']}, {example.facts['degradation']}"

    def shown_output(self, sample: Mapping[str, object]) -> str:
        """PSNR and SSIM where they were recorded, else the picture's hash."""
        return _measured([sample]) if isinstance(sample.get("measured"), Mapping) else f"image {sample['image']}"

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        """PSNR and SSIM by degradation, a column for each quarter of the steps that were sampled on."""
        steps = sorted({int(str(row["step"])) for row in samples})
        parts = [steps[at * len(steps) // QUARTERS : (at + 1) * len(steps) // QUARTERS] for at in range(QUARTERS)]
        quarters = [part for part in parts if part]
        by_name: dict[str, list[Mapping[str, object]]] = {}
        for row in samples:
            by_name.setdefault(_degradation(str(row["prompt_id"])), []).append(row)
        order: dict[str, int] = {name: place for place, name in enumerate(self.spec.degradations)}
        names = sorted(by_name, key=lambda name: (order.get(name, len(order)), name))
        lines = []
        for name in (*names, "all") if len(names) > 1 else names:
            rows = samples if name == "all" else by_name[name]
            inside = ([row for row in rows if int(str(row["step"])) in part] for part in map(set, quarters))
            lines.append((name, str(len(rows)), *map(_measured, inside)))
        spans = (f"steps {part[0]} to {part[-1]}" if len(part) > 1 else f"step {part[0]}" for part in quarters)
        columns = ("degradation", "samples", *spans)
        return [Table(title="PSNR (dB) and SSIM of the samples", columns=columns, rows=tuple(lines))]

    def from_file(self, file: Path, *, change: str | None = None, seed: int = 0) -> Example:
        """A user's picture in its own size, degraded first where `change` names how. Raises SpecError."""
        from core.tasks.restoration.degradations import degrade
        from core.tasks.restoration.patches import dice

        known: tuple[Degradation, ...] = get_args(Degradation)
        degradation = next((name for name in known if name == change), None)
        if change is not None and degradation is None:
            raise SpecError(f"got the degradation {change!r}; allowed: {', '.join(known)}")
        picture = read_picture(file)
        height, width = picture.shape[:2]
        if min(height, width) < SMALLEST:
            raise SpecError(f"has {width} x {height} pixels; allowed: at least {SMALLEST} a side", file=file)
        if degradation is None:
            return Example(
                id=file.name, inputs={"degraded": picture}, facts={"picture": file.name, "degradation": "as it is"}
            )
        return Example(
            id=file.name,
            inputs={"degraded": degrade(picture, degradation, dice(seed))},
            facts={"picture": file.name, "degradation": degradation, "clean": picture},
        )

    def drawn(self, example: Example, output: Any) -> Mapping[str, bytes]:
        """`degraded`, `restored` and `difference` of one picture."""
        from core.tasks.restoration.reward import clipped
        from core.tasks.restoration.sheets import difference, png

        degraded, restored = clipped(example.inputs["degraded"]), clipped(output)
        return {"degraded": png(degraded), "restored": png(restored), "difference": difference(degraded, restored)}

    def picture(self, examples: Sequence[Example], outputs: Sequence[Any]) -> bytes | None:
        """Degraded, restored and clean patches of up to ROWS problems, one of each degradation first."""
        from core.tasks.restoration.reward import clipped
        from core.tasks.restoration.sheets import Row, sheet

        first: dict[str, tuple[Example, Any]] = {}
        for example, output in zip(examples, outputs, strict=True):
            first.setdefault(example.id, (example, output))
        of_degradation = {str(example.facts["degradation"]): name for name, (example, _) in reversed(first.items())}
        chosen = [name for name in first if name in of_degradation.values()]
        chosen = [*chosen, *(name for name in first if name not in chosen)][:ROWS]
        rows = []
        for example, output in (first[name] for name in chosen):
            degraded: Any = example.inputs["degraded"]
            before, after = (self._outcome(example, image).measured["psnr"] for image in (degraded, output))
            rows.append(
                Row(
                    label=f"{self.shown(example)}: {before:.2f} dB, restored {after:.2f} dB",
                    pictures=(degraded, clipped(output), clipped(example.facts["clean"])),
                )
            )
        return sheet(("degraded", "restored", "clean"), rows) if rows else None


def _degradation(prompt_id: str) -> str:
    """`noise-25` of `train-noise-25-00012`."""
    return prompt_id.partition("-")[2].rpartition("-")[0] or "unknown"


def _measured(samples: Sequence[Mapping[str, object]]) -> str:
    """`27.93 dB / 0.842`: the means of what is known."""
    known: list[Any] = [row["measured"] for row in samples if isinstance(row.get("measured"), Mapping)]
    means = []
    for name in ("psnr", "ssim"):
        values = [float(one[name]) for one in known if one.get(name) is not None and math.isfinite(float(one[name]))]
        if not values:
            return "unknown" if samples else "-"
        means.append(sum(values) / len(values))
    return f"{means[0]:.2f} / {means[1]:.3f}"
