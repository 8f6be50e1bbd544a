"""Which directory a launch gets, and what stands in it before the first step."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import BusyError, NotFoundError, StorageError
from core.training.checkpoint import Checkpoints, Progress, Snapshot
from grpoctl.config import Loaded, load, read_resolved, spec_sha
from grpoctl.files import read_json, replace_json
from grpoctl.runs.launch import Launch, identity_of, initial_snapshot, prepare, prepare_in, revisions_of, source_of
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir, create_study
from tests.conftest import Recorded


def tiny(seed: int = 0, *overrides: str) -> Loaded:
    return load("p31", profile="tiny", seed=seed, overrides=overrides)


def test_a_run_that_repeats_one_under_way_says_so(home: Home) -> None:
    first = prepare(Launch(loaded=tiny(), overrides=[]), home).run
    with first.hold():
        (note,) = prepare(Launch(loaded=tiny(), overrides=[]), home).notes
        assert prepare(Launch(loaded=tiny(1), overrides=[]), home).notes == ()  # of another seed
    assert note == f"{first.id} is under way with this very spec and seed: this one repeats it"
    assert prepare(Launch(loaded=tiny(), overrides=[]), home).notes == ()


def test_a_new_run_has_its_resolved_spec_and_what_it_is(home: Home) -> None:
    loaded = tiny(3, "beta=0.01")
    prepared = prepare(Launch(loaded=loaded, overrides=["beta=0.01"]), home)
    assert (prepared.finished, prepared.notes) == (False, ())
    run = prepared.run
    assert run.id == f"p31-tiny-s3-{spec_sha(loaded.spec)[:8]}-1"
    assert read_resolved(run.spec) == loaded.spec
    assert identity_of(run) == {
        "experiment": "p31",
        "revision": 2,
        "recorded_as": "p31@2",
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


def study_of(home: Home) -> StudyDir:
    study = create_study(home, "demo-tiny-1a2b3c4d")
    study.spec.write_text("name: demo\n")
    return study


def prepared(study: StudyDir, loaded: Loaded, number: int = 7) -> tuple[RunDir, str | None]:
    run = study.run(number, loaded.spec.seed)
    return run, prepare_in(run, loaded, study=study.id, trial=number, overrides=["beta=0.01"])


def test_a_run_of_a_study_says_which_trial_it_is(home: Home) -> None:
    study, loaded = study_of(home), tiny(3, "beta=0.01")
    run, note = prepared(study, loaded)
    assert (run.id, note) == (f"{study.id}-t0007-s3", None)
    assert read_resolved(run.spec) == loaded.spec
    assert identity_of(run)["recorded_as"] == "p31@2"
    document = read_json(run.provenance) or {}
    assert (document["study"], document["trial"], document["overrides"]) == (study.id, 7, ["beta=0.01"])
    assert study.runs() == [run]
    assert revisions_of(home).labels() == ["p31@2"]  # in the home, not beside the run


def test_a_run_that_is_there_already_is_left_alone(home: Home) -> None:
    study, loaded = study_of(home), tiny()
    run, _ = prepared(study, loaded)
    run.metrics.write_text('{"step": 0}\n')
    before = {path: path.stat().st_mtime_ns for path in run.path.iterdir()}
    assert prepared(study, loaded) == (run, None)
    assert {path: path.stat().st_mtime_ns for path in run.path.iterdir()} == before


@pytest.mark.parametrize("left", [(), ("provenance.json",), ("lock", "provenance.json")])
def test_a_directory_that_was_hardly_begun_is_completed(home: Home, left: tuple[str, ...]) -> None:
    study, loaded = study_of(home), tiny()
    run = study.run(7, 0)
    run.path.mkdir(parents=True)
    for name in left:
        (run.path / name).write_text("{")
    assert prepared(study, loaded) == (run, None)
    assert identity_of(run)["seed"] == 0


def damage_spec(run: RunDir) -> None:
    run.spec.write_text("name: [")


def change_spec(run: RunDir) -> None:
    run.spec.write_text(run.spec.read_text().replace("num_generations: 8", "num_generations: 4"))


def lose_spec(run: RunDir) -> None:
    run.spec.unlink()
    run.metrics.write_text('{"step": 0}\n')


def lose_provenance(run: RunDir) -> None:
    run.provenance.unlink()


def damage_rows(run: RunDir) -> None:
    run.metrics.write_text('{"step": 0}\n###\n{"step": 2}\n')


def damage_status(run: RunDir) -> None:
    run.status.write_text("")


def become_a_file(run: RunDir) -> None:
    shutil.rmtree(run.path)
    run.path.write_text("no directory")


@pytest.mark.parametrize(
    "damage", [damage_spec, change_spec, lose_spec, lose_provenance, damage_rows, damage_status, become_a_file]
)
def test_a_damaged_directory_is_moved_aside_and_made_anew(home: Home, damage: Callable[[RunDir], None]) -> None:
    study, loaded = study_of(home), tiny()
    run, _ = prepared(study, loaded)
    for number in (1, 2):
        damage(run)
        _, note = prepared(study, loaded)
        assert note is not None
        assert note.startswith(f"{run.id} was restarted: ")
        assert note.endswith(f"{run.id}.damaged-{number}")
        assert run.path.with_name(f"{run.id}.damaged-{number}").exists()
        assert read_resolved(run.spec) == loaded.spec
        assert sorted(path.name for path in run.path.iterdir()) == ["provenance.json", "spec.yaml"]
    assert study.runs() == [run]


def test_a_directory_that_a_process_holds_is_not_moved_away_from_it(home: Home) -> None:
    study, loaded = study_of(home), tiny()
    run, _ = prepared(study, loaded)
    damage_spec(run)
    with run.hold(), pytest.raises(BusyError, match=run.id):
        prepared(study, loaded)
    assert run.spec.read_text() == "name: ["


def test_a_torn_last_row_is_no_damage(home: Home) -> None:
    study, loaded = study_of(home), tiny()
    run, _ = prepared(study, loaded)
    run.metrics.write_text('{"step": 0}\n{"ste')
    assert prepared(study, loaded)[1] is None


WANTED = load("p31", profile="tiny", overrides=["init_from=p31"])


def started(home: Home, name: str = "p31", seed: int = 0) -> RunDir:
    return prepare(Launch(loaded=load(name, profile="tiny", seed=seed)), home).run


def checkpoint(run: RunDir, step: int, best: int | None = None) -> None:
    import torch

    progress = Progress(step=step, best_step=best)
    weights = {"w": torch.full((2,), float(step))}
    Checkpoints(run.checkpoints, 2).save(Snapshot(progress=progress, weights=weights, optimizer={}))


def test_of_an_experiment_it_is_the_newest_run_with_a_checkpoint(home: Home) -> None:
    first = started(home)
    checkpoint(first, 3)
    started(home, seed=1)  # newer, and has nothing yet
    checkpoint(started(home, name="p30"), 3)
    assert source_of(WANTED.spec, home) == str(first.path)


def test_a_run_without_a_checkpoint_is_refused_before_anything_is_made(home: Home) -> None:
    started(home)
    with pytest.raises(NotFoundError, match=r"init_from: .* no checkpoint"):
        prepare(Launch(loaded=WANTED), home)
    with pytest.raises(NotFoundError, match="init_from: no run 'nope'"):
        prepare(Launch(loaded=load("p31", profile="tiny", overrides=["init_from=nope"])), home)
    assert len(home.runs()) == 1


def test_the_run_is_fixed_when_it_starts(home: Home) -> None:
    first = started(home)
    checkpoint(first, 3)
    run = prepare(Launch(loaded=WANTED), home).run
    later = started(home, seed=5)
    checkpoint(later, 9)
    assert (read_json(run.provenance) or {})["init_from"] == str(first.path)
    snapshot, whence = initial_snapshot(WANTED.spec, run)
    assert snapshot is not None
    assert snapshot.progress.step == 3
    assert first.id in whence


def test_the_best_checkpoint_is_taken_where_it_is_there(home: Home) -> None:
    first = started(home)
    checkpoint(first, 4, best=4)
    checkpoint(first, 8, best=4)
    snapshot, whence = initial_snapshot(WANTED.spec, prepare(Launch(loaded=WANTED), home).run)
    assert snapshot is not None
    assert snapshot.weights["w"].tolist() == [4.0, 4.0]
    assert "best checkpoint, step 4" in whence


def test_a_run_that_names_none_starts_from_the_model(home: Home) -> None:
    assert initial_snapshot(load("p31", profile="tiny").spec, started(home)) == (None, "")
