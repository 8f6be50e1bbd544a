"""Made-up logs of one cause each, and of none, in four forms: is the cause named, and is anybody accused?

    python benchmarks/made_up_logs.py [--sound 40]

A run of 3, 5, 8 or 30 rows in which one thing is wrong is written as verl's console, TRL's dictionaries, a script's
lines and a Markdown table, and diagnosed from that text. The same with sound runs of eight kinds, and with the ways in
which a run can earn nothing on 20 of 30 steps while all completions are cut off and the KL is 1. What a form has no
column for is not asked of it.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random

from core.health.finding import Finding
from grpoctl.diagnose.diagnosis import diagnose
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import open_source

Row = dict[str, float]
Change = Callable[["At"], Row]  # what is otherwise there

ROWS = (3, 5, 8, 30)
# What each form calls a column; what it lacks is not written.
VERL = {
    "reward": "critic/score/mean", "most": "critic/score/max", "least": "critic/score/min",
    "advantage_most": "critic/advantages/max", "advantage_least": "critic/advantages/min", "kl": "actor/kl_loss",
    "entropy": "actor/entropy", "grad": "actor/grad_norm", "rate": "actor/lr", "length": "response_length/mean",
    "cut": "response_length/clip_ratio", "gap": "training/rollout_probs_diff_mean",
    "correlation": "training/rollout_actor_probs_pearson_corr", "loss": "actor/pg_loss",
    "held_out": "val-core/gsm8k/acc/mean@1",
}  # fmt: skip
TRL = {
    "reward": "reward", "std": "reward_std", "dead": "frac_reward_zero_std", "kl": "kl", "entropy": "entropy",
    "grad": "grad_norm", "rate": "learning_rate", "length": "completions/mean_length",
    "cut": "completions/clipped_ratio", "loss": "loss", "ratio": "sampling/importance_sampling_ratio/mean",
    "gap": "sampling/sampling_logp_difference/mean", "held_out": "eval_reward",
    "form": "rewards/format_reward/mean", "answer": "rewards/accuracy_reward/mean",
    "form_std": "rewards/format_reward/std", "answer_std": "rewards/accuracy_reward/std",
}  # fmt: skip
SCRIPT = {
    "reward": "reward", "std": "reward std", "kl": "kl", "entropy": "entropy", "grad": "grad norm", "rate": "lr",
    "length": "len", "cut": "trunc", "loss": "loss", "sampler_kl": "mismatch kl", "held_out": "val reward",
    "form": "format", "answer": "acc", "dead": "zero-std groups",
}  # fmt: skip
MARKDOWN = {
    "reward": "avg reward", "kl": "KL", "entropy": "entropy", "grad": "grad norm", "length": "resp len",
    "cut": "truncated %", "sampler_kl": "mismatch KL", "held_out": "val acc", "form": "format", "answer": "acc",
}  # fmt: skip


def usual(count: int, chance: Random) -> list[Row]:
    """A sound run: the reward rises, the KL grows a little."""
    rows = []
    for place in range(count):
        far = place / max(1, count - 1)
        rows.append({
            "reward": 0.3 + 0.25 * far + chance.gauss(0, 0.03), "std": 0.4 + chance.gauss(0, 0.02),
            "dead": max(0.0, 0.2 + chance.gauss(0, 0.05)), "kl": 0.0005 + 0.02 * far * abs(1 + chance.gauss(0, 0.1)),
            "entropy": 0.6 - 0.15 * far + chance.gauss(0, 0.01), "grad": abs(0.3 + chance.gauss(0, 0.05)), "rate": 1e-6,
            "length": 300 + chance.gauss(0, 15), "cut": max(0.0, 0.03 + chance.gauss(0, 0.01)),
            "loss": chance.gauss(0, 0.01),
        })  # fmt: skip
    return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class At:
    """A place in a run."""

    far: float  # 0 at its first row, 1 at its last
    chance: Random

    def noisy(self, level: float, sd: float = 0.03) -> float:
        """The level with noise."""
        return level + self.chance.gauss(0, sd)


def _kl_runaway(at: At) -> Row:
    return {"kl": 0.002 * 10 ** (4 * at.far), "reward": at.noisy(0.4 - 0.05 * at.far), "grad": 0.3 + 3 * at.far}


def _reference(at: At) -> Row:
    return {"kl": at.noisy(0.5), "reward": at.noisy(0.3)}


def _negative_kl(at: At) -> Row:
    return {"kl": at.noisy(-0.05, 0.008)}


def _sampler(at: At) -> Row:
    gaps = {"gap": at.noisy(0.15, 0.01), "correlation": at.noisy(0.7, 0.02), "ratio": 0.05}
    return {**gaps, "sampler_kl": at.noisy(0.4, 0.02), "reward": at.noisy(0.3)}


def _constrained(at: At) -> Row:
    return {"kl": at.noisy(3.0, 0.2), "cut": 1.0, "length": 512.0, "reward": abs(at.noisy(0.05, 0.02))}


def _conflict(at: At) -> Row:
    form, answer = at.noisy(0.1 + 0.85 * at.far, 0.01), at.noisy(0.4 - 0.3 * at.far, 0.01)
    return {"form": form, "answer": answer, "reward": form + answer}


def _proxy(at: At) -> Row:
    form = at.noisy(0.2 + 0.7 * at.far, 0.02)
    return {"form": form, "answer": 0.0, "reward": form}


def _free(at: At) -> Row:
    answer = at.noisy(0.2)
    return {"form": 0.5, "form_std": 0.0, "answer": answer, "answer_std": 0.4, "reward": 0.5 + answer}


def _truncation(at: At) -> Row:
    return {"cut": at.noisy(0.6 + 0.1 * at.far, 0.02), "length": at.noisy(900, 20)}


def _entropy(at: At) -> Row:
    return {"entropy": 0.8 * 10 ** (-2 * at.far), "reward": at.noisy(0.3, 0.02), "dead": 0.2 + 0.6 * at.far}


def _gradients(at: At) -> Row:
    if at.far < 0.4:
        return {"grad": 0.3, "kl": 0.01, "reward": at.noisy(0.35, 0.02)}
    return {"grad": 300 * (1 + at.far), "kl": 0.01 + 0.5 * at.far, "reward": 0.05}


def _numbers(at: At) -> Row:
    first = {"grad": math.nan, "loss": math.nan} if at.far >= 0.5 else {}
    return {**first, **({"kl": math.nan, "entropy": math.nan, "reward": 0.0} if at.far > 0.6 else {})}


def _dead(at: At) -> Row:
    return {"reward": 0.0, "std": 0.0, "dead": 1.0, "loss": 0.0, "grad": at.chance.choice([0.0, 1e-4]), "kl": 0.0005}


def _collapse(at: At) -> Row:
    if at.far < 0.5:
        return {}
    broken = {"reward": abs(at.noisy(0.02, 0.01)), "kl": at.noisy(4, 0.5), "length": 1024.0}
    return {**broken, "cut": 0.98, "entropy": at.noisy(3, 0.1)}


def _one(at: At) -> Row:
    return {"reward": at.noisy(0.4), "most": 1.0, "least": 0.0, "advantage_most": 1.0, "advantage_least": 0.0}


def _held_out(at: At) -> Row:
    return {"reward": at.noisy(0.3 + 0.5 * at.far, 0.02), "held_out": at.noisy(0.5 - 0.25 * at.far, 0.01)}


# Findings that name the cause -> what it changes, and the columns without which nobody can name it.
CAUSES: Mapping[tuple[str, ...], tuple[Change, tuple[str, ...]]] = {
    ("kl-runaway",): (_kl_runaway, ()),
    ("reference-mismatch",): (_reference, ()),
    ("negative-kl",): (_negative_kl, ()),
    ("sampler-mismatch",): (_sampler, ()),
    ("constrained-sampling",): (_constrained, ()),
    ("component-conflict",): (_conflict, ("form", "answer")),
    ("proxy-reward",): (_proxy, ("form", "answer")),
    ("free-reward",): (_free, ("form_std",)),
    ("truncation",): (_truncation, ()),
    ("entropy-collapse",): (_entropy, ()),
    ("grad-explosion",): (_gradients, ()),
    ("numerical",): (_numbers, ("loss",)),
    ("dead-run",): (_dead, ()),
    ("policy-collapse", "kl-runaway", "learning-rate"): (_collapse, ()),
    ("group-of-one",): (_one, ("advantage_most",)),
    ("reward-hacking", "overfitting"): (_held_out, ("held_out",)),
}


def verl(rows: Sequence[Row]) -> str:
    """`step:1 - key:value` behind Ray's prefix."""
    lines = [" - ".join(f"{VERL[k]}:{v:.6g}" for k, v in row.items() if k in VERL) for row in rows]
    return "\n".join(f"(TaskRunner pid=123) step:{place} - {line}" for place, line in enumerate(lines, 1))


def trl(rows: Sequence[Row]) -> str:
    """A dictionary a step."""
    return "\n".join(str({TRL[k]: float(f"{v:.6g}") for k, v in row.items() if k in TRL}) for row in rows)


def script(rows: Sequence[Row]) -> str:
    """`[step 1] reward 0.3 | kl 0.01`."""
    lines = [" | ".join(f"{SCRIPT[k]} {v:.6g}" for k, v in row.items() if k in SCRIPT) for row in rows]
    return "\n".join(f"[step {place}] {line}" for place, line in enumerate(lines, 1))


def markdown(rows: Sequence[Row]) -> str:
    """A table with a row every 25 steps."""
    names = [name for name in MARKDOWN if all(name in row for row in rows)]
    lines = [f"| step | {' | '.join(MARKDOWN[name] for name in names)} |", "|---" * (len(names) + 1) + "|"]
    for place, row in enumerate(rows, 1):
        cells = [f"{100 * row[name]:.0f}" if name == "cut" else f"{row[name]:.3g}" for name in names]
        lines.append(f"| {25 * place} | {' | '.join(cells)} |")
    return "\n".join(lines)


FORMS: Mapping[str, tuple[Callable[[Sequence[Row]], str], Mapping[str, str]]] = {
    "verl": (verl, VERL), "TRL": (trl, TRL), "script": (script, SCRIPT), "Markdown": (markdown, MARKDOWN),
}  # fmt: skip
ONE_COMPLETION = "actor_rollout_ref.rollout.n=1 algorithm.adv_estimator=grpo\n"


def findings(text: str, folder: Path) -> tuple[Finding, ...]:
    """What `grpoctl diagnose` finds in a file with that text."""
    file = folder / "log.txt"
    file.write_text(text, encoding="utf-8")
    return diagnose(open_source(Source(name=str(file), path=file))).findings


def failed(folder: Path) -> Iterator[tuple[str, str, int, str]]:
    """(cause, form, rows, named first / named / late / missed) of every log with a cause."""
    for (causes, (change, needed)), count, (form, (write, columns)) in product(CAUSES.items(), ROWS, FORMS.items()):
        if not set(needed) <= set(columns):
            continue
        chance = Random(0)
        rows = [
            {**row, **change(At(far=place / (count - 1), chance=chance))}
            for place, row in enumerate(usual(count, chance))
        ]
        ids = [one.id for one in findings((ONE_COMPLETION if change is _one else "") + write(rows), folder)]
        place = min((ids.index(cause) for cause in causes if cause in ids), default=None)
        yield causes[0], form, count, "missed" if place is None else ("named first", "named", "late")[min(place, 2)]


def lost(folder: Path) -> Iterator[tuple[str, bool]]:
    """(form, whether dead-run or learning-rate is the first finding, an error) of runs lost in each way."""
    ways = product(
        range(4), ("late", "scattered", "two of three"), ("from row 1", "from row 2", "grows"), (None, 1e-6, 2e-4)
    )
    for (seed, where, course, rate), spread, form in product(ways, (True, False), ("verl", "TRL", "script")):
        chance = Random(seed)
        at = At(far=0.0, chance=chance)
        chosen = {
            "late": set(range(10, 30)), "scattered": set(chance.sample(range(1, 30), 20)),
            "two of three": {place for place in range(30) if place % 3},
        }[where]  # fmt: skip
        rows: list[Row] = []
        for place in range(30):
            kl = {"from row 1": 1.0, "from row 2": 1.0 if place else 0.001, "grows": min(1.2, 0.02 * 1.3**place)}[
                course
            ]
            row = {"cut": 1.0, "length": 256.0, "kl": abs(kl * at.noisy(1, 0.1)), "loss": 0.04}
            row |= {"reward": 0.0 if place in chosen else chance.choice([0.0625, 0.125, 0.1875, 0.25])}
            row |= {"grad": abs(at.noisy(1, 0.3))} | ({} if rate is None else {"rate": rate})
            rows.append(row | ({"std": 0.25 * bool(row["reward"])} if spread else {}))
        first = next(iter(findings(FORMS[form][0](rows), folder)), None)
        yield form, first is not None and first.id in ("dead-run", "learning-rate") and first.severity == "error"


KINDS = ("usual", "hard", "easy", "longer", "parts", "noisy", "resumed", "evaluated")


def sound(seed: int, count: int) -> tuple[str, list[Row]]:
    """A sound run: its kind, and rows whose rewards are means of yes-or-no answers."""
    chance = Random(seed)
    kind, batch, group = chance.choice(KINDS), chance.choice([16, 32, 64, 256]), chance.choice([4, 8, 16])
    start, gain, end = chance.uniform(0.05, 0.6), chance.uniform(0, 0.35), chance.choice([0.002, 0.02, 0.1, 0.3])
    length, sure = chance.uniform(100, 2000), chance.uniform(0.2, 1.2)
    rate, form, answer = chance.choice([5e-7, 1e-6, 5e-6, 2e-5]), chance.uniform(0.1, 0.9), chance.uniform(0.05, 0.5)
    rows = []
    for place in range(count):
        far = (place + 1) / max(count, 15)
        at = At(far=far, chance=chance)
        p = {"hard": 0.03 + 0.05 * far, "easy": 0.9 + 0.08 * far}.get(kind, min(0.98, start + gain * far))
        reward = sum(chance.random() < p for _ in range(batch)) / batch
        dead = sum(chance.random() < p**group + (1 - p) ** group + 0.2 for _ in range(batch // group)) / (
            batch // group
        )
        longer = kind == "longer"
        row = {
            "reward": reward, "std": (reward * (1 - reward)) ** 0.5, "dead": min(1.0, dead),
            "kl": abs(end * far * at.noisy(1, 0.2)) + 1e-5 + (0.05 if kind == "resumed" else 0.0),
            "entropy": max(0.02, at.noisy(sure * (1 - 0.4 * far))), "grad": abs(at.noisy(0.4, 0.2)) + 0.02,
            "rate": rate, "length": at.noisy(length * (1 + (1.5 if longer else 0.1) * far), length / 20),
            "cut": min(0.29, max(0.0, at.noisy(0.05 + 0.2 * far if longer else 0.03, 0.02))),
            "loss": at.noisy(end * far * 0.04, 0.02),
        }  # fmt: skip
        if kind == "parts":
            row["form"] = min(1.0, at.noisy(form + (1 - form) * min(1.0, 2 * far), 0.02))
            row["answer"] = sum(chance.random() < answer + 0.2 * far for _ in range(batch)) / batch
            row["reward"] = row["form"] + row["answer"]
        if kind == "noisy":
            row |= {"grad": abs(chance.gauss(1, 2)) + 0.05, "kl": row["kl"] * (abs(chance.gauss(1, 0.6)) + 0.1)}
        if kind == "evaluated":
            row["held_out"] = min(1.0, at.noisy(start + 0.5 * gain * far, 0.015))
        rows.append(row)
    return kind, rows


def accused(seeds: int, folder: Path) -> Iterator[tuple[str, str]]:
    """(kind, what is wrong with it by the diagnosis) of every log of a sound run; "" where it is not accused."""
    for seed, count, (form, (write, _)) in product(range(seeds), (2, 3, 5, 9, 30, 80), FORMS.items()):
        kind, rows = sound(100 * seed + count, count)
        severe = [one for one in findings(write(rows), folder) if one.severity != "info"]
        errors = [one.id for one in severe if one.severity == "error"]
        told = errors or ([one.id for one in severe] if len(severe) > 1 else [])
        yield f"{kind}, {form}, {count} rows", ", ".join(told)


def main() -> None:
    """Print what is named, and who is accused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sound", type=int, default=40, help="seeds of sound runs, each in 24 logs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        outcomes = list(failed(folder))
        for cause, form, count, outcome in outcomes:
            if outcome in ("late", "missed"):
                print(f"{cause}, {form}, {count} rows: {outcome}")
        print(f"causes in {len(outcomes)} logs: {dict(Counter(outcome for *_, outcome in outcomes))}")
        rights = [right for _, right in lost(folder)]
        print(f"lost runs: {sum(rights)} of {len(rights)} are an error of dead-run or learning-rate first")
        told = list(accused(arguments.sound, folder))
        for which, what in told:
            if what:
                print(f"sound ({which}): {what}")
        print(f"sound runs: {sum(bool(what) for _, what in told)} of {len(told)} logs are accused")


if __name__ == "__main__":
    main()
