"""Studies as sweep.json has them, made up: fixed numbers from a model of what sweeps look like, no run behind them.

`python -m tests.studies HOME 2000` writes one of 2,000 trials into a home, to look at or to measure with.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpoctl.analysis.sweeps.ranking import ranked
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir

Document = dict[str, Any]

K = "stages.grpo.num_generations"
SCALE = "stages.grpo.advantage.scale_rewards"
LR = "stages.grpo.learning_rate"
BETA = "stages.grpo.beta"
KL = "stages.grpo.kl_estimator"
FAULT = "rollout-in-train-mode"
START = 0.40  # the reward before training
SHARES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)


def axis(values: Sequence[Any] | None = None, **spec: Any) -> Document:
    """An axis as the driver writes it down: every key there is."""
    kind = {"type": "float"} if "low" in spec else {}
    listed = None if values is None else list(values)
    empty = {"low": None, "high": None, "log": False, "step": None, "type": None, "when": {}}
    return {"values": listed, **empty, **kind, **spec}


AXES: dict[str, Any] = {
    K: axis([2, 4, 8, 16]),
    SCALE: axis(["group", "batch", "none"]),
    LR: axis(low=1e-4, high=2e-3, log=True),
    BETA: axis([0.0, 0.005, 0.05]),
    KL: axis(["k2", "k3"], when={BETA: [0.005, 0.05]}),
}


def trial(
    number: int, values: Sequence[float | None] = (0.5,), status: str = "COMPLETED", params: Any = None, **more: Any
) -> Document:
    """One trial with one run per value, all ended as the trial did."""
    seeds = list(range(len(values)))
    known = [value for value in values if value is not None]
    fixed: Document = {
        "number": number, "params": dict(params or {}), "seeds": seeds, "name": None, "status": status,
        "score": sum(known) / len(known) if known and status != "FAILED" else None, "values": list(values),
        "attempts": 1, "runs": [f"study-t{number:04d}-s{seed}" for seed in seeds], "statuses": [status] * len(values),
        "completions": 1024 * len(values), "tokens": 20_000 * len(values), "seconds": 9.0, "message": "", "curve": [],
        "findings": [[] for _ in values], "expects": [], "interval": None,
    }  # fmt: skip
    return {**fixed, **more}


def study(trials: Sequence[Document], *, axes: Any = None, **more: Any) -> Document:
    """A study of these trials with its ranking in it, as the driver would leave it."""
    found: Document = {
        "schema": 2, "study": "advantage-study-tiny-1a2b3c4d-1", "sweep": "advantage-study", "revision": 1,
        "sweep_sha": "1a2b3c4d" * 8, "profile": "tiny", "experiment": "p31", "title": "Which advantage learns most",
        "question": "Does K=8 with group scaling learn more than the others on the same completions?",
        "source": "made up", "status": "COMPLETED", "message": "", "started": 1.7e9, "ended": 1.7e9 + 330,
        "seconds": 330.0, "metric": "eval/reward", "direction": "maximize", "worst": 0.0, "take": "final",
        "sampler": "tpe", "pruner": {"name": "patient-median"}, "lag": 2, "study_seed": 0,
        "seeds": trials[0]["seeds"] if trials else [0, 1, 2], "budget": {"completions": 1024, "tokens": None},
        "total": len(trials), "storage": "sqlite:///study.db", "axes": axes or {}, "notes": [], "failures": 0,
    }  # fmt: skip
    found |= {**more, "trials": list(trials), "importances": more.get("importances", {}), "findings": []}
    ranking = ranked(found["trials"], direction=found["direction"], worst=found["worst"])
    for one in found["trials"]:
        interval = ranking.intervals.get(one["number"])
        one["interval"] = None if interval is None else list(interval)
    by_number = {one["number"]: one for one in found["trials"]}
    best = by_number.get(ranking.best)
    kept = ("number", "params", "score", "interval", "runs")
    return found | {"best": {key: best[key] for key in kept} if best else None, **ranking.document()}


def advantage_study(count: int = 24, *, seeds: int = 3) -> Document:
    """K x normalisation x learning rate x KL weight: peaks at K=8, group and a rate of 5e-4; large rates collapse."""
    draw = random.Random(7)
    trials = [_advantage_trial(number, draw, seeds) for number in range(count)]
    shares = {LR: 0.55, K: 0.21, SCALE: 0.14, BETA: 0.07, KL: 0.03}
    return study(trials, axes=AXES, importances=shares, failures=2 if count > 5 else 0)


def collapse_study(seeds: int = 6) -> Document:
    """K in {2, 8} x fault {off, on}: every run with the fault collapses, no other does."""
    draw = random.Random(3)
    axes = {K: axis([2, 8]), "faults": axis([[], [FAULT]])}
    trials = []
    for number, (k, faults) in enumerate([(2, []), (2, [FAULT]), (8, []), (8, [FAULT])]):
        rates = [round(draw.uniform(0.9, 1.0) if faults else 0.0, 3) for _ in range(seeds)]
        rules = ["rollout-mode", "rollout-integrity", "policy-collapse"] if faults else []
        trials.append(trial(number, rates, params={K: k, "faults": faults}, findings=[rules for _ in rates]))
    names = {"study": "collapse-study-tiny-5e6f7a8b-1", "sweep": "collapse-study", "title": "What collapsed P30"}
    more = {"metric": "collapse_rate", "direction": "minimize", "worst": 1.0, "sampler": "grid"}
    return study(trials, axes=axes, **names, **more, pruner={"name": "none"}, lag=None)


def ladder_study() -> Document:
    """Three rungs of four: the third meets what it is to meet, so the fourth was not tried."""
    wanted = "eval/reward > 0.5"
    trials = [
        trial(
            number,
            [score - 0.01, score, score + 0.01],
            name=name,
            expects=[{"expectation": wanted, "observed": score, "met": score > 0.5}],
        )
        for number, (name, score) in enumerate([("A", 0.41), ("A+B", 0.47), ("C", 0.58)])
    ]
    return study(trials, sweep="p30-ladder", study="p30-ladder-tiny-9c8d7e6f-1", sampler="ladder", total=4)


def write(home: Home, document: Document) -> StudyDir:
    """The study's directory in the home, with its sweep.json and a sweep.yaml that only says its name."""
    found = StudyDir(path=home.path / "sweeps" / document["study"])
    found.path.mkdir(parents=True)
    found.spec.write_text(f"name: {document['sweep']}\n", encoding="utf-8")
    trials = ",\n".join(json.dumps(one) for one in document["trials"])
    head = json.dumps({key: value for key, value in document.items() if key != "trials"})
    found.state.write_text(f'{head[:-1]},\n"trials": [\n{trials}\n]}}\n', encoding="utf-8")
    return found


def _advantage_trial(number: int, draw: random.Random, seeds: int) -> Document:
    params: Document = {
        K: draw.choice([2, 4, 8, 16]),
        SCALE: draw.choice(["group", "batch", "none"]),
        LR: round(math.exp(draw.uniform(math.log(1e-4), math.log(2e-3))), 7),
        BETA: draw.choice([0.0, 0.005, 0.05]),
    }
    if params[BETA]:
        params[KL] = draw.choice(["k2", "k3"])
    if number == 5:
        return trial(
            number, [None] * seeds, "FAILED", params, message="MemoryError: 12 GB asked for", runs=[], statuses=[],
            findings=[], completions=0, attempts=2,
        )  # fmt: skip
    far = abs(math.log(params[LR] / 5e-4))
    reach = 0.62 - 0.07 * far - 0.02 * abs(math.log2(params[K] / 8)) - (0.03 if params[SCALE] == "none" else 0.0)
    collapses = params[LR] > 1.4e-3 and params[BETA] < 0.05
    values, curve = [], []
    for seed in range(seeds):
        end = 0.0 if collapses and seed != 1 else reach + draw.gauss(0, 0.012)
        speed = 2 + params[LR] * 3e3
        for share in SHARES[: 3 if end == 0 else None]:
            level = START + (max(end, 0.3) - START) * (1 - math.exp(-speed * share)) / (1 - math.exp(-speed))
            curve.append([seed, share, round(level + draw.gauss(0, 0.008), 4)])
        values.append(round(end, 4))
    rules = [["policy-collapse"] if value == 0 else ["dead-groups"] if params[K] == 2 else [] for value in values]
    if reach < 0.5 and not collapses and number > 6:
        return trial(
            number, [curve[2][2]] + [None] * (seeds - 1), "PRUNED", params, curve=curve[:3], runs=["study-t0000-s0"],
            statuses=["PRUNED"], findings=[[]], completions=384, seconds=1.2, message="below the median 3 times",
        )  # fmt: skip
    ended = [("COLLAPSED" if value == 0 else "COMPLETED") for value in values]
    status = "COLLAPSED" if "COLLAPSED" in ended else "COMPLETED"
    return trial(number, values, status, params, curve=curve, statuses=ended, findings=rules)


if __name__ == "__main__":
    print(write(Home(path=Path(sys.argv[1])), advantage_study(int(sys.argv[2]))).path)
