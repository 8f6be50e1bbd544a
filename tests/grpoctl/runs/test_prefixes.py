"""What the hash of a prefix depends on, and the folder that is whole, or not used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core.config import RunSpec
from core.errors import StorageError
from grpoctl.config import load
from grpoctl.files import replace_json
from grpoctl.runs.prefixes import AFTERWARDS, Made, Prefixes, copy_checkpoint, copy_records, prefix_sha, surroundings
from grpoctl.runs.run_dir import RunDir
from tests.conftest import Recorded

HERE = {"code": "1"}
MADE = Made(stages=1, step=3, completions=6, tokens=0, seconds=2.0, device="cpu", run="a-run")


def staged(*overrides: str, seed: int = 0) -> RunSpec:
    """Three stages: supervised, blended, full."""
    return load("staged", profile="tiny", overrides=overrides, seed=seed).spec


# What is set -> whether it changes the prefix of one stage, and that of two.
CHANGES = {
    "stages.supervised.learning_rate=0.1": (True, True),
    "stages.supervised.epochs=2": (True, True),
    "stages.blended.learning_rate=0.1": (False, True),
    "stages.blended.num_generations=4": (False, True),
    "stages.blended.early_stopping={patience: 3}": (False, True),
    "stages.full.learning_rate=0.1": (False, False),
    "stages.full.num_generations=4": (False, False),
    "stages.full.beta=0": (False, False),
    "stages.full.epochs=9": (False, False),
    "stages.full.max_completion_length=40": (False, False),  # 48 is still the longest
    "stages.full.max_completion_length=64": (True, True),  # evaluations allow it from the start on
    "budget.completions=500": (True, True),
    "evaluation.eval_steps=7": (True, True),
    "evaluation.temperature=0.9": (True, True),
    "early_stopping={patience: 3}": (True, True),
    "guards.patience=9": (True, True),
    "task.eval_prompts=9": (True, True),
    "task.train_prompts=8": (True, True),
    "model.lora.r=4": (True, True),
    "faults=[dropout-in-scoring]": (True, True),
    "checkpoints.save_steps=3": (False, False),
    "export.merged=true": (False, False),
    "title=Another": (False, False),
    "expects=[eval/reward > 0.1]": (False, False),
    "recorded={updates: 3}": (False, False),
}


@pytest.mark.parametrize(("override", "changes"), CHANGES.items())
def test_what_a_stage_s_end_depends_on_changes_its_hash(override: str, changes: tuple[bool, bool]) -> None:
    before, after = staged(), staged(override)
    assert before != after
    assert tuple(prefix_sha(before, n, HERE) != prefix_sha(after, n, HERE) for n in (1, 2)) == changes


def test_the_seed_the_next_stage_s_name_and_the_surroundings_count() -> None:
    spec = staged()
    names = dict(zip(("supervised", "blended", "last"), spec.stages.values(), strict=True))
    renamed = spec.model_copy(update={"stages": names})
    for n, same in ((1, True), (2, False)):  # a checkpoint says which stage begins there
        assert (prefix_sha(spec, n, HERE) == prefix_sha(renamed, n, HERE)) is same
        assert prefix_sha(spec, n, HERE) != prefix_sha(staged(seed=1), n, HERE)
        assert prefix_sha(spec, n, HERE) != prefix_sha(spec, n, {"code": "2"})
    assert prefix_sha(spec, 1, HERE) != prefix_sha(spec, 2, HERE)


def test_every_key_of_a_spec_counts_unless_it_is_read_afterwards() -> None:
    """A key that somebody adds counts by itself: what does not is a list, and each of it is looked at above."""
    tried = {text.partition("=")[0].partition(".")[0] for text in CHANGES} | {"seed"}
    of_the_policy = {"policy", "init_from"}  # another policy is another spec altogether; init_from is tried below
    of_the_trainer = {"trainer"}  # a command has no stages of ours, and nothing of it is shared
    named_only = {"name", "revision", "question", "source", "profile"}
    assert set(RunSpec.model_fields) == tried | of_the_policy | of_the_trainer | named_only
    assert named_only < AFTERWARDS
    assert {text.partition("=")[0] for text, changes in CHANGES.items() if changes == (False, False)} >= {"title"}


def test_what_no_hash_covers_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert prefix_sha(staged(), 0, HERE) is None
    assert prefix_sha(staged(), 3, HERE) is None  # the run's own end
    task = {"name": "custom", "data": {"path": "rows.jsonl"}, "prompt": "{q}", "answer": "{a}"}
    for function, shared in (("./mine.py:score", True), ("package.module:score", False)):
        own = RunSpec.model_validate(
            staged().model_dump() | {"task": {**task, "rewards": [{"function": function}], "train_prompts": 12}}
        )
        assert (prefix_sha(own, 1, HERE) is not None) is shared


def test_surroundings_are_the_content_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "run"
    state = source / "checkpoints" / "step-000004" / "state.json"
    state.parent.mkdir(parents=True)
    state.write_text("{}")
    model = tmp_path / "model"
    model.mkdir()
    spec = staged(f"model.source={model}")
    said = [surroundings(spec, str(source))]
    state.write_text('{"step": 8}')  # the run that is started from went on
    said.append(surroundings(spec, str(source)))
    (model / "weights").write_text("w")
    said.append(surroundings(spec, str(source)))
    assert len({prefix_sha(spec, 1, around) for around in said}) == 3
    assert surroundings(spec, str(source)) == said[-1]


SHA = "a" * 64


@pytest.fixture
def published(tmp_path: Path, recorded: Recorded) -> Prefixes:
    """A prefix of three steps, its checkpoint two files."""
    run, there = recorded(), Prefixes(folder=tmp_path / "prefixes")
    for name in ("weights.safetensors", "state.json"):
        file = run.checkpoints / "step-000003" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    run.pictures.mkdir()
    run.picture(0).write_bytes(b"png")
    draft = there.draft(SHA)
    copy_records(run, draft)
    assert copy_checkpoint(run, draft, Path("step-000003"))
    assert not copy_checkpoint(run, draft, Path("step-000002"))
    assert not there.there(SHA)
    there.publish(SHA, draft, MADE)
    return there


def test_a_prefix_is_there_as_a_whole(published: Prefixes) -> None:
    assert (published.shas(), published.read(SHA)) == ([SHA], MADE)
    assert published.wanted() == frozenset()
    published.want([SHA])
    assert published.wanted() == {SHA}
    rows = RunDir(path=published.path(SHA)).metrics
    assert rows.stat().st_nlink == 1  # a run appends to its own
    published.remove(SHA)
    assert published.shas() == []


DAMAGE: dict[str, Callable[[RunDir], object]] = {
    "a byte of the weights": lambda run: (run.checkpoints / "step-000003" / "weights.safetensors").write_text("X"),
    "a lost checkpoint": lambda run: (run.checkpoints / "step-000003" / "state.json").unlink(),
    "lost rows": lambda run: run.metrics.write_bytes(run.metrics.read_bytes()[:-10]),
    "no samples": lambda run: run.samples.unlink(),
    "no note": lambda run: (run.path / "prefix.json").unlink(),
    "half a note": lambda run: (run.path / "prefix.json").write_text("{"),
    "another's note": lambda run: replace_json(run.path / "prefix.json", {"schema": 1, "sha": "b" * 64, "files": {}}),
    "an empty note": lambda run: replace_json(run.path / "prefix.json", {"schema": 1, "sha": SHA, "files": {}}),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_prefix_is_none(published: Prefixes, damage: Callable[[RunDir], object]) -> None:
    damage(RunDir(path=published.path(SHA)))
    with pytest.raises(StorageError, match=SHA[:8]):
        published.read(SHA)
