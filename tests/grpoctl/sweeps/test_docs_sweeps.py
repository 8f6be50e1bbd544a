"""docs/sweeps.md: its examples load, its errors are the real ones, its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.config import Part
from core.errors import SpecError
from grpoctl.config import sweep_library
from grpoctl.config.layers import dotted
from grpoctl.config.schema import MISSING
from grpoctl.sweeps import candidates
from grpoctl.sweeps.loading import load_sweep
from grpoctl.sweeps.problems import fields, words
from tests.grpoctl.sweeps.mine import write

DOCUMENT = (Path(__file__).parents[3] / "docs" / "sweeps.md").read_text(encoding="utf-8")
FAILING = re.findall(r"```yaml\n((?:[^`].*\n)*)```\n\n```text\n(.*)\n```", DOCUMENT)
FOLLOWS = {  # from other keys, where they are left out
    "experiment": "- (a ladder: its first rung's)",
    "ladder.*.experiment": "the sweep's",
    "ladder.*.expects": "its experiment's",
    "axes.*.type": "int where all numbers are",
    "sampler": "tpe; grid for candidates, ladder for a ladder",
    "pruner": "patient-median; none where there is no sampler or no curve",
    "direction": "the metric's",
    "worst": "0 or 1 for eval/reward and shares",
    "budget.completions": "the base's own",
    "budget.generation_batch_size": "the base's K x B",
    "trials": "all points",
    **dict.fromkeys(("pruner.patience", "pruner.warmup", "pruner.min_trials", "pruner.reduction"), "the pruner's"),
}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_file_of_your_own_is_sound() -> None:
    write(DOCUMENT.split("```yaml\n", 2)[1].split("```")[0], head="")
    full, tiny = (load_sweep("mine", profile=profile).spec for profile in ("full", "tiny"))
    rate = tiny.axes["stages.grpo.learning_rate"]
    assert (rate.low, rate.high, rate.log, tiny.budget.completions) == (1e-4, 2e-3, True, 512)
    assert (full.settings, full.budget.completions, full.trials) == ({"evaluation.eval_steps": 16}, 2048, 30)
    assert not candidates.active(full, {"stages.grpo.beta": 0}, "stages.grpo.kl_estimator")


def test_the_examples_were_found() -> None:
    assert len(FAILING) >= 6


@pytest.mark.parametrize(("text", "message"), FAILING)
def test_each_error_is_the_real_one(text: str, message: str) -> None:
    write(text, head="")
    with pytest.raises(SpecError) as caught:
        load_sweep("mine")
    assert str(caught.value) == message


def test_every_shipped_sweep_is_in_the_table() -> None:
    found = dict(re.findall(r"^\| `([a-z0-9-]+)` \| .* \| ([a-z0-9 ]+ x \d+) \|$", DOCUMENT, flags=re.MULTILINE))
    said = {name: size.removeprefix("up to ") for name, size in found.items()}
    specs = [load_sweep(name).spec for name in sweep_library().files()]
    assert said == {spec.name: f"{spec.trials} x {len(spec.seeds)}" for spec in specs}


def written(key: str, default: object) -> str:
    """The default as YAML writes it: `-` where the key must be set, nothing where the part's own keys have theirs."""
    if key in FOLLOWS:
        return FOLLOWS[key]
    if default is MISSING:
        return "-"
    if isinstance(default, Part):
        return ""
    if isinstance(default, (tuple, dict)):
        return str(default if isinstance(default, dict) else list(default))
    return {"None": "null", "True": "true", "False": "false", "": "''"}.get(str(default), str(default))


def test_the_table_of_keys_is_complete() -> None:
    rows = [
        f"| `{dotted(path)}` | {words(path)} | {written(dotted(path), field.default)} |"
        for path, field in fields().items()
    ]
    profiles = "| `profiles` | a mapping of profile names to overrides | {} |"
    table = "\n".join(["| key | allowed | default |", "|---|---|---|", *rows, profiles])
    assert table in DOCUMENT, f"docs/sweeps.md must end with this table:\n{table}"
