"""Which directory a launch gets, and what stands in it before the first step."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import NotFoundError, StorageError
from grpoctl.runs.launch import Launch, identity_of, prepare, revisions_of
from grpoctl.runs.records import read_json, replace_json
from grpoctl.runs.run_dir import Home
from grpoctl.specs import Loaded, load, read_resolved, spec_sha
from tests.conftest import Recorded


def tiny(seed: int = 0, *overrides: str) -> Loaded:
    return load("p31", profile="tiny", seed=seed, overrides=overrides)


def test_a_new_run_has_its_resolved_spec_and_what_it_is(home: Home) -> None:
    loaded = tiny(3, "beta=0.01")
    prepared = prepare(Launch(loaded=loaded, overrides=["beta=0.01"]), home)
    assert (prepared.finished, prepared.notes) == (False, ())
    run = prepared.run
    assert run.id == f"p31-tiny-s3-{spec_sha(loaded.spec)[:8]}-1"
    assert read_resolved(run.spec) == loaded.spec
    assert identity_of(run) == {
        "experiment": "p31",
        "revision": 1,
        "recorded_as": "p31@1",
        "spec_sha": spec_sha(loaded.spec),
        "profile": "tiny",
        "seed": 3,
        "overrides": ["beta=0.01"],
    }
    assert (read_json(run.provenance) or {})["attempts"] == []
    assert sorted(path.name for path in run.path.iterdir()) == ["provenance.json", "spec.yaml"]


def test_each_launch_is_a_run_of_its_own(home: Home) -> None:
    runs = [prepare(Launch(loaded=loaded), home).run.id for loaded in (tiny(), tiny(), tiny(1), tiny(0, "beta=0.01"))]
    assert [run[-2:] for run in runs] == ["-1", "-2", "-1", "-1"]
    assert len({run.rpartition("-")[0] for run in runs}) == 3


@pytest.mark.parametrize("ended", ["RUNNING", "INTERRUPTED", "FAILED"])
def test_resume_goes_on_with_what_did_not_come_to_its_end(home: Home, recorded: Recorded, ended: str) -> None:
    run = recorded(ended=ended)
    prepared = prepare(Launch(loaded=tiny(), resume=True), home)
    assert (prepared.run, prepared.finished, prepared.notes) == (run, False, ())
    assert prepare(Launch(loaded=tiny()), home).run != run  # only when asked


@pytest.mark.parametrize("ended", ["COMPLETED", "STOPPED_EARLY", "PRUNED", "COLLAPSED", "INVALID_ROLLOUT"])
def test_resume_hands_back_what_has_ended(home: Home, recorded: Recorded, ended: str) -> None:
    run = recorded(ended=ended)
    prepared = prepare(Launch(loaded=tiny(), resume=True), home)
    assert (prepared.run, prepared.finished) == (run, True)
    assert prepared.notes == (f"{run.id} had ended already: nothing to resume",)


def test_resume_takes_the_newest_unfinished_run_though_a_newer_one_has_ended(home: Home, recorded: Recorded) -> None:
    recorded(ended="INTERRUPTED")
    second = recorded(ended="INTERRUPTED")
    recorded(ended="COMPLETED")
    assert prepare(Launch(loaded=tiny(), resume=True), home).run == second


def test_resume_never_takes_a_run_of_another_spec_or_seed(home: Home, recorded: Recorded) -> None:
    others = {recorded(ended="INTERRUPTED", seed=1).id, recorded(ended="INTERRUPTED", beta=0.5).id}
    prepared = prepare(Launch(loaded=tiny(), resume=True), home)
    assert prepared.run.id not in others
    assert not prepared.finished
    (note,) = prepared.notes
    assert "starting a new one" in note


def test_a_run_that_was_prepared_and_never_started_is_resumed(home: Home) -> None:
    first = prepare(Launch(loaded=tiny()), home).run
    assert prepare(Launch(loaded=tiny(), resume=True), home).run == first


def test_a_directory_without_a_spec_is_not_resumed(home: Home) -> None:
    first = prepare(Launch(loaded=tiny()), home).run
    first.spec.unlink()  # killed before it was complete
    assert prepare(Launch(loaded=tiny(), resume=True), home).run.id.endswith("-2")


def test_a_spec_that_changed_under_its_revision_is_told_and_the_first_one_kept(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nextends: p31\ntitle: first\n")
    prepare(Launch(loaded=load(file)), home)
    file.write_text("name: mine\nextends: p31\ntitle: second\n")
    prepared = prepare(Launch(loaded=load(file)), home)
    label = str(identity_of(prepared.run)["recorded_as"])
    assert label.startswith("mine@1+")
    (note,) = prepared.notes
    assert label in note
    assert load("mine@1", revisions=revisions_of(home)).spec.title == "first"
    assert load(label, revisions=revisions_of(home)).spec.title == "second"


def test_a_home_that_is_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        prepare(Launch(loaded=tiny()), Home(path=tmp_path / "file"))


@pytest.mark.parametrize("left", [None, {"schema": 1}, {"schema": 1, "experiment": "p31", "seed": 0}])
def test_a_run_without_an_identity_says_so(recorded: Recorded, left: dict[str, object] | None) -> None:
    run = recorded()
    run.provenance.unlink()
    if left is not None:
        replace_json(run.provenance, left)
    with pytest.raises(NotFoundError, match=r"provenance\.json"):
        identity_of(run)
