"""How alike the policies are that two runs of the same seed came to: equal greedy outputs, and how far weights differ.

Of the weights at the end, not of the best evaluation's. By files alone, so that `compare` loads neither torch nor a
task for it: the run itself records its likeliest outputs (greedy.jsonl), and numpy subtracts the weights of the last
checkpoints. Language models are left out: they record no such outputs, and their weights are gigabytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core.config.policy import LM
from grpoctl.analysis.collect import RunRecord
from grpoctl.files import read_rows
from grpoctl.runs.run_dir import RunDir
from grpoctl.sections import Line
from grpoctl.wording import plural


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """By seed, of the pairs where it can be told: (equal, of) held-out problems, and the mean |a - b| of weights."""

    outputs: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    weights: Mapping[int, float] = field(default_factory=dict)

    @property
    def equal(self) -> int:
        """Problems with the same greedy output, over all seeds."""
        return sum(equal for equal, _ in self.outputs.values())

    @property
    def of(self) -> int:
        """Problems that were compared, over all seeds."""
        return sum(of for _, of in self.outputs.values())

    @property
    def weights_mean(self) -> float | None:
        """The mean over seeds of the mean absolute difference of weights; None where no pair has one."""
        return sum(self.weights.values()) / len(self.weights) if self.weights else None

    def document(self) -> dict[str, object]:
        """`picks_equal` and `weights_mean_abs_diff` as JSON has them, null where nothing can be told."""
        seeds = {str(seed): {"equal": equal, "of": of} for seed, (equal, of) in self.outputs.items()}
        differences = {str(seed): value for seed, value in self.weights.items()}
        return {
            "picks_equal": {"equal": self.equal, "of": self.of, "seeds": seeds} if seeds else None,
            "weights_mean_abs_diff": {"mean": self.weights_mean, "seeds": differences} if differences else None,
        }


def agreement(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> Agreement:
    """Of the seeds that both sides have. Raises StorageError where recorded outputs are damaged."""
    theirs = {run.seed: run for run in b}
    outputs, weights = {}, {}
    for run in sorted(a, key=lambda run: run.seed):
        other = theirs.get(run.seed)
        if other is None or LM in (run.policy, other.policy):
            continue
        if (equal := equal_outputs(run, other)) is not None:
            outputs[run.seed] = equal
        if (difference := weights_difference(run, other)) is not None:
            weights[run.seed] = difference
    return Agreement(outputs=outputs, weights=weights)


def agreement_lines(agreement: Agreement) -> list[Line]:
    """How many greedy outputs are the same at the end, and how far the trained weights differ, where that is known."""
    lines = []
    if agreement.of:
        share = f"{agreement.equal:,} of {agreement.of:,} held-out problems"
        seeds = f" (over {len(agreement.outputs)} seeds)" if len(agreement.outputs) > 1 else ""
        text = f"{share} get the same greedy output from both sides at the end{seeds}"
        lines.append(Line(label="Outputs", text=text))
    if agreement.weights_mean is not None:
        seeds = f" (mean over {plural(len(agreement.weights), 'seed')})" if len(agreement.weights) > 1 else ""
        text = f"mean absolute difference {agreement.weights_mean:.2g} between the trained weights at the end{seeds}"
        lines.append(Line(label="Weights", text=text))
    return lines


def equal_outputs(a: RunRecord, b: RunRecord) -> tuple[int, int] | None:
    """(equal, of): held-out problems with the same greedy output; None where one is unknown or the problems differ."""
    if a.path is None or b.path is None:
        return None
    rows_a, rows_b = (read_rows(RunDir(path=path).greedy) for path in (a.path, b.path))
    if not rows_a or [row["problem"] for row in rows_a] != [row["problem"] for row in rows_b]:
        return None
    return sum(one["output"] == other["output"] for one, other in zip(rows_a, rows_b, strict=True)), len(rows_a)


def weights_difference(a: RunRecord, b: RunRecord) -> float | None:
    """The mean |a - b| over all weights that either side trained, by the checkpoints of the last step.

    None where one has no such checkpoint, or the weights have other names or shapes.
    """
    folders = [folder for run in (a, b) if (folder := _last_checkpoint(run)) is not None]
    if len(folders) < 2:
        return None
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        weights = [load_file(folder / "weights.safetensors") for folder in folders]
        moments = [load_file(folder / "optimizer.safetensors") for folder in folders]
    except (OSError, SafetensorError, TypeError):  # damaged, or of a number format that numpy does not have
        return None
    # A checkpoint also holds weights that the policy keeps beside the trained ones; of those alone the optimiser has
    # moments, as `parameter.slot`.
    trained = sorted({key.rpartition(".")[0] for of_side in moments for key in of_side})
    shapes = [[of_side[name].shape if name in of_side else None for name in trained] for of_side in weights]
    if not trained or shapes[0] != shapes[1] or None in shapes[0]:
        return None
    gaps = [np.abs(weights[0][name].astype(np.float64) - weights[1][name]) for name in trained]
    return sum(float(gap.sum()) for gap in gaps) / sum(int(gap.size) for gap in gaps)


def _last_checkpoint(run: RunRecord) -> Path | None:
    """The folder of the checkpoint of the run's last step; None where there is none."""
    if run.path is None or not run.rows:
        return None
    folder = RunDir(path=run.path).checkpoints / f"step-{int(str(run.rows[-1]['step'])):06d}"
    return folder if folder.is_dir() else None
