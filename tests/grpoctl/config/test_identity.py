"""Hashes, stems and recorded revisions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from core.errors import NotFoundError, SpecError, StorageError
from grpoctl.config import Library, RecordedAs, Revisions, authored_sha, canonical, load, run_stem, spec_sha
from grpoctl.config.loading import Loaded

TEXT = "name: mine\nextends: p31\ntitle: My own\nstages: {grpo: {learning_rate: 1e-5, num_generations: 4}}\n"


class Desk:
    """A folder of experiments and its recorded revisions."""

    def __init__(self, folder: Path) -> None:
        self.library = Library(user=folder / "experiments")
        self.library.user.mkdir()
        self.revisions = Revisions(folder / "home" / "revisions")

    def write(self, text: str) -> None:
        (self.library.user / "mine.yaml").write_text(text)

    def load(self, name: str = "mine", profile: str = "full") -> Loaded:
        return load(name, profile=profile, library=self.library, revisions=self.revisions)

    def record_again(self, name: str = "mine") -> RecordedAs:
        loaded = self.load(name)
        return self.revisions.recorded_as(loaded.spec, loaded.authored)

    def record(self, text: str) -> tuple[str, bool]:
        self.write(text)
        recorded = self.record_again()
        return recorded.label, recorded.changed


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [1.5, None, True, "é"]}, '{"a":[1.5,null,true,"é"],"b":1}'),
        ({"a": 1.0}, '{"a":1}'),  # 1.0 in one file and 1 in another are one number
        ({"a": -0.0}, '{"a":0}'),
        ({"a": 2e-6}, '{"a":2e-06}'),
        ({"a": 0.1 + 0.2}, '{"a":0.30000000000000004}'),
        ({"a": ("x", "y")}, '{"a":["x","y"]}'),
        ({"a": True}, '{"a":true}'),  # not 1
        ({"a": 1e300}, '{"a":1e+300}'),
    ],
)
def test_canonical(value: object, text: str) -> None:
    assert canonical(value) == text


def test_the_stem_reads_name_profile_seed_hash() -> None:
    spec = load("p30", profile="tiny", seed=3).spec
    assert re.fullmatch(r"p30-tiny-s3-[0-9a-f]{8}", run_stem(spec))
    assert run_stem(spec).endswith(spec_sha(spec)[:8])
    assert re.fullmatch(r"[0-9a-f]{64}", spec_sha(spec))
    assert spec_sha(load("p30", profile="tiny", seed=4).spec) == spec_sha(spec)


def test_the_way_a_file_is_written_does_not_matter(desk: Desk) -> None:
    desk.write(TEXT)
    first = desk.load()
    desk.write(
        "# a comment\nextends: P31\ntitle: 'My own'\nname: mine\n"
        "stages:\n  grpo:\n    num_generations: 4\n    learning_rate: 0.00001  # the same number\n"
    )
    assert authored_sha(desk.load().authored) == authored_sha(first.authored)
    assert spec_sha(desk.load().spec) == spec_sha(first.spec)


def test_a_first_run_is_recorded_and_a_changed_one_told_apart(desk: Desk) -> None:
    assert desk.record(TEXT) == ("mine@1", False)
    assert desk.record(TEXT + "# a comment\n") == ("mine@1", False)
    changed = TEXT.replace("1e-5", "3e-5")
    label, was_changed = desk.record(changed)
    assert was_changed
    assert label == f"mine@1+{authored_sha(desk.load().authored)[:6]}"
    assert desk.record(changed) == (label, True)  # again: the same label, nothing new
    assert desk.record(TEXT) == ("mine@1", False)  # and back
    assert desk.record("revision: 2\n" + changed) == ("mine@2", False)
    assert desk.revisions.labels("mine") == sorted(["mine@1", label, "mine@2"])


def test_a_change_of_the_parent_or_of_a_profile_is_a_change(desk: Desk) -> None:
    assert desk.record(TEXT) == ("mine@1", False)
    assert desk.record(TEXT + "profiles: {tiny: {seed: 1}}\n")[1]
    (desk.library.user / "p31.yaml").write_text("name: p31\nextends: p30-sound\nquestion: Another?\n")
    assert desk.record(TEXT)[1]


def test_a_recorded_spec_runs_again(desk: Desk) -> None:
    desk.record(TEXT)
    first = desk.load()
    label, _ = desk.record(TEXT.replace("1e-5", "3e-5"))
    second = desk.load()
    desk.write("broken: [")  # the current file does not matter
    assert desk.load("mine@1").spec == first.spec
    assert desk.load("MINE@1").spec == first.spec
    assert desk.load(label).spec == second.spec
    assert desk.load("mine@1", profile="tiny").spec.model.source == "builtin:tiny"
    assert desk.load("mine@1").authored == first.authored
    assert desk.record_again(label).label == label
    assert desk.record_again("mine@1").label == "mine@1"


@pytest.mark.parametrize(
    "reference", ["mine@2", "mine@1+abcdef", "other@1", "mine@", "mine@x", "mine@0", "mine@1+zz", "@1"]
)
def test_what_was_never_recorded_is_not_found(reference: str, desk: Desk) -> None:
    desk.record(TEXT)
    with pytest.raises(NotFoundError):
        desk.load(reference)


def test_not_found_names_what_is_recorded(desk: Desk) -> None:
    desk.record(TEXT)
    with pytest.raises(NotFoundError, match="mine@2 has not run here; recorded of mine: mine@1"):
        desk.load("mine@2")
    with pytest.raises(NotFoundError, match="nothing has been recorded here"):
        load("mine@1", library=desk.library)


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"sha": "0", "authored": {}}', "\xff", "[" * 10000])
def test_a_damaged_record_is_refused(damage: str, desk: Desk) -> None:
    desk.record(TEXT)
    (desk.revisions.folder / "mine@1.json").write_text(damage, encoding="latin-1")
    with pytest.raises(SpecError, match=r"mine@1\.json"):
        desk.load("mine@1")
    with pytest.raises(SpecError, match=r"mine@1\.json"):
        desk.record(TEXT)


def test_a_value_changed_inside_a_record_is_noticed(desk: Desk) -> None:
    desk.record(TEXT)
    file = desk.revisions.folder / "mine@1.json"
    content = json.loads(file.read_text())
    content["authored"]["stages"]["grpo"]["learning_rate"] = 1.0
    file.write_text(json.dumps(content))
    with pytest.raises(SpecError, match="damaged"):
        desk.load("mine@1")


def test_six_digits_that_collide_become_twelve(desk: Desk) -> None:
    desk.record(TEXT)
    desk.write(TEXT.replace("1e-5", "3e-5"))
    sha = authored_sha(desk.load().authored)
    other = json.loads((desk.revisions.folder / "mine@1.json").read_text())
    (desk.revisions.folder / f"mine@1+{sha[:6]}.json").write_text(json.dumps(other))
    assert desk.record_again().label == f"mine@1+{sha[:12]}"


def test_nothing_is_left_behind_and_nothing_overwritten(desk: Desk) -> None:
    desk.record(TEXT)
    before = (desk.revisions.folder / "mine@1.json").read_bytes()
    desk.record(TEXT.replace("1e-5", "3e-5"))
    assert (desk.revisions.folder / "mine@1.json").read_bytes() == before
    assert all(file.suffix == ".json" and not file.name.startswith(".") for file in desk.revisions.folder.iterdir())


def test_a_folder_that_cannot_be_made_is_a_storage_error(desk: Desk, tmp_path: Path) -> None:
    desk.write(TEXT)
    (tmp_path / "home").write_text("a file where a folder belongs")
    with pytest.raises(StorageError, match="cannot record"):
        desk.record_again()


SFT = "{kind: sft, max_steps: 2, prompts_per_step: 1, learning_rate: 1e-5}"


def staged(*names: str) -> str:
    stages = "".join(f"  {name}: {SFT}\n" for name in names)
    return f"name: mine\nextends: p31\ntitle: My own\nexpects: []\nstages:\n  grpo: null\n{stages}"


def test_the_order_of_stages_is_part_of_the_hash_and_of_the_revision(desk: Desk) -> None:
    assert desk.record(staged("a", "b"))[1] is False
    one = desk.load().spec
    assert desk.record(staged("b", "a"))[1] is True
    other = desk.load().spec
    assert (list(one.stages), list(other.stages)) == (["a", "b"], ["b", "a"])
    assert spec_sha(one) != spec_sha(other)
    assert list(desk.load("mine@1").spec.stages) == ["a", "b"]  # as it was recorded
