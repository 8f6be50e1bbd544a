"""docs/specs.md: its examples load, its errors are the real ones, its table of keys is complete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest

from core.config import Part, RunSpec, Schedule
from core.config.policy import BUILT_IN
from core.config.task import task_names
from core.errors import SpecError
from grpoctl.config import load
from grpoctl.config.layers import Keys, dotted
from grpoctl.config.schema import MISSING, allowed, fields, stage_kinds

DOCUMENT = (Path(__file__).parents[3] / "docs" / "specs.md").read_text(encoding="utf-8")
FAILING = re.findall(r"```yaml\n((?:[^`].*\n)*)```\n\n```text\n(.*)\n```", DOCUMENT)
OVERRIDES = re.findall(r"^\| `([a-z_.]+=\S*)` \| `(.*)` \|$", DOCUMENT, flags=re.MULTILINE)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "experiments").mkdir()
    monkeypatch.chdir(tmp_path)


def write(text: str) -> None:
    Path("experiments/mine.yaml").write_text(text)


def test_the_examples_were_found() -> None:
    assert len(FAILING) >= 6
    assert len(OVERRIDES) >= 5


def test_the_file_of_your_own_is_sound() -> None:
    write(DOCUMENT.split("```yaml\n", 2)[1].split("```")[0])
    tiny = load("mine", profile="tiny", overrides=["learning_rate=1e-4"]).spec.stages["grpo"]
    assert (tiny.num_generations, tiny.max_steps, tiny.learning_rate) == (4, 20, 1e-4)
    assert load("MINE").spec.stages["grpo"].max_steps == 96


@pytest.mark.parametrize(("text", "message"), FAILING)
def test_each_error_is_the_real_one(text: str, message: str) -> None:
    write(text)
    with pytest.raises(SpecError) as caught:
        load("mine")
    assert str(caught.value) == message


@pytest.mark.parametrize(("override", "message"), OVERRIDES)
def test_each_override_error_is_the_real_one(override: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load("p31", overrides=[override])
    assert str(caught.value) == message


def written(default: object) -> str:
    """The default as YAML writes it: `-` where the key must be set, nothing where the part's own keys have theirs."""
    if default is MISSING:
        return "-"
    if isinstance(default, Schedule):
        return str(default.start)
    if isinstance(default, Part):
        return ""
    if isinstance(default, (tuple, dict)):
        return str(dict(default) if isinstance(default, dict) else list(default)).replace("'", "")
    return {"None": "null", "True": "true", "False": "false", "": "''"}.get(str(default), str(default))


def told_once(path: Keys, found: Mapping[str, str]) -> bool:
    """What sft and rce stages have as grpo ones do; the keys of a schedule, but for the first there is."""
    if path[0] != "stages" or len(path) < 3 or path[2] == "kind":
        return False
    if len(path) > 3 and path[3] in Schedule.model_fields:
        return path[:3] != ("stages", "grpo", "temperature")
    return path[1] != "grpo" and dotted(("stages", "grpo", *path[2:])) in found


def rows() -> list[str]:
    """A row per key, the tasks one after another."""
    found: dict[str, str] = {}
    stages = {kind: {"kind": kind} for kind in stage_kinds()}
    for task, policy in product(task_names(), BUILT_IN):
        for path, field in fields({"task": {"name": task}, "policy": {"kind": policy}, "stages": stages}).items():
            if path in (("profile",), *(("stages", kind) for kind in stages)) or told_once(path, found):
                continue
            chosen = {("task", "name"): task_names(), ("policy", "kind"): BUILT_IN}.get(path)
            words = allowed(field) if chosen is None else f"one of {', '.join(chosen)}"
            found.setdefault(dotted(path), f"| `{dotted(path)}` | {words} | {written(field.default)} |")
    return sorted(found.values(), key=lambda row: [*RunSpec.model_fields].index(row[3:].split("`")[0].split(".")[0]))


def test_the_table_of_keys_is_complete() -> None:
    table = "\n".join(["| key | allowed | default |", "|---|---|---|", *rows()])
    assert table in DOCUMENT, f"docs/specs.md must end with this table:\n{table}"


def example(heading: str) -> str:
    return DOCUMENT.split(f"\n## {heading}\n", 1)[1].split("```yaml\n", 1)[1].split("```")[0]


def test_the_method_example_resolves_as_its_comments_say() -> None:
    write(example("method"))
    stage = load("mine").spec.stages["grpo"]
    assert (stage.method, stage.advantage.ddof, stage.advantage.eps) == ("gspo", 0, 1e-4)
    assert (stage.epsilon.start, stage.epsilon_high.start, stage.beta.start) == (3e-4, 4e-4, 0.005)
    assert load("p31", overrides=["method=gspo"]).spec.stages["grpo"].advantage.ddof == 1
    assert load("p31", overrides=["method=grpo"]).spec.stages["grpo"].epsilon_high is None


def test_the_stages_example_has_its_order() -> None:
    write(example("stages"))
    assert [(name, stage.kind) for name, stage in load("mine").spec.stages.items()] == [
        ("warm", "sft"),
        ("grpo", "grpo"),
    ]
