"""A run's part in what its study shares: what it takes, waits for, makes, and when it keeps out of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from core.training.checkpoint import Checkpoints, Progress, Snapshot
from core.training.outcome import Ending
from core.training.requests import Evaluated
from grpoctl.executors.recorder import Recorder
from grpoctl.executors.shared_stages import SharedStages, shared_stages
from grpoctl.files import read_json, read_rows
from grpoctl.runs import provenance
from grpoctl.runs.locks import hold_lock, is_locked
from grpoctl.runs.prefixes import Prefixes
from grpoctl.runs.run_dir import RunDir
from tests.conftest import metrics, sample

A, B = "a" * 64, "b" * 64
PRUNED = Ending(status="PRUNED", message="worse than others")


def goes_on(step: int) -> Ending | None:
    return None


def unexpected() -> None:
    raise AssertionError("it waits for nobody")


class Scene:
    """Runs of one study, and what they share: one stage's end after step 2, another's after step 4."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.there = Prefixes(folder=folder / "prefixes")
        self.there.want([A, B])

    def run(self, name: str) -> RunDir:
        run = RunDir(path=self.folder / name)
        if not run.path.exists():
            run.path.mkdir()
            provenance.start(run, {"seed": 0})
        return run

    def shared(self, name: str) -> SharedStages:
        return SharedStages(self.run(name), self.there, {1: A, 2: B}, self.there.wanted())

    def computes(self, name: str, shared: SharedStages, steps: range, *, best: int = 1) -> None:
        """Steps of a run, evaluated at odd ones; where a stage ends it publishes."""
        run = self.run(name)
        checkpoints = Checkpoints(run.checkpoints, keep=2)
        with Recorder(run, lambda row: None) as recorder:
            for step in steps:
                row = metrics(step) | ({"eval/reward": 0.1} if step % 2 else {})
                kept = Evaluated(problems=[{"step": step, "place": 0}], picture=b"png" if step == 1 else None)
                drawn = [sample(step, 0)] if step else []
                recorder.step_done(row, drawn, {"total": 0.5}, kept if step % 2 else None)
                at = Snapshot(
                    progress=Progress(step=step, stage=step // 2, best_step=best if step >= best else None),
                    weights={"w": torch.tensor([float(step)])},
                    optimizer={},
                )
                if step == best:
                    checkpoints.save(at)
                if step in (2, 4):
                    shared.made(step // 2, lambda at=at: at)

    def takes(
        self,
        name: str,
        shared: SharedStages,
        ask: Callable[[int], Ending | None] = goes_on,
        idle: Callable[[], None] = unexpected,
    ) -> Snapshot | None:
        run = self.run(name)
        with Recorder(run, lambda row: None) as recorder:
            return shared.take(Checkpoints(run.checkpoints, keep=2), recorder, ask, idle)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_one_run_makes_the_next_one_goes_on_from(scene: Scene) -> None:
    first = scene.shared("first")
    assert scene.takes("first", first) is None
    assert is_locked(scene.there.lock(A))
    scene.computes("first", first, range(3))
    assert not is_locked(scene.there.lock(A))
    assert is_locked(scene.there.lock(B))  # it is at that stage
    scene.computes("first", first, range(3, 5))
    asked: list[int] = []
    taken = scene.takes("next", scene.shared("next"), ask=asked.append)
    assert taken is not None
    assert (taken.progress.step, taken.weights["w"].item()) == (4, 4.0)
    assert asked == [1, 3]  # each evaluation after the start, in order
    ours, theirs = scene.run("next"), scene.run("first")
    for name in ("metrics.jsonl", "samples.jsonl", "timings.jsonl", "problems.jsonl"):
        assert (ours.path / name).read_bytes() == (theirs.path / name).read_bytes()
    assert ours.picture(1).read_bytes() == b"png"
    assert Checkpoints(ours.checkpoints, keep=2).steps() == [1, 4]  # the best one is exported in the end
    said = (read_json(ours.provenance) or {})["shared"]
    assert {key: said[key] for key in ("prefix", "stages", "step", "completions", "seconds", "run")} == {
        "prefix": B, "stages": 2, "step": 4, "completions": 0, "seconds": 2.5, "run": "first",
    }  # fmt: skip
    with Recorder(ours, lambda row: None) as recorder:
        recorder.step_done(metrics(5), [], {"total": 0.5})
    assert len(read_rows(RunDir(path=scene.there.path(B)).metrics)) == 5  # the prefix stays what it was


def test_a_run_waits_while_another_makes_what_it_needs(scene: Scene) -> None:
    first, looks = scene.shared("first"), list[int]()

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            scene.computes("first", first, range(5))

    assert scene.takes("first", first) is None
    taken = scene.takes("next", scene.shared("next"), idle=look)
    assert taken is not None
    assert (taken.progress.step, len(looks)) == (4, 3)


@pytest.mark.parametrize("reached", [0, 2])  # nothing was made, or the first stage
def test_where_its_maker_ends_before_the_next_run_makes_it(scene: Scene, reached: int) -> None:
    first = scene.shared("first")

    def ends() -> None:
        scene.computes("first", first, range(reached + 1))
        first.release()

    assert scene.takes("first", first) is None
    following = scene.shared("next")
    taken = scene.takes("next", following, idle=ends)
    assert (0 if taken is None else taken.progress.step) == reached
    assert is_locked(scene.there.lock(B))
    following.release()


def test_a_run_that_its_parent_ends_inside_takes_nothing(scene: Scene) -> None:
    first = scene.shared("first")
    scene.takes("first", first)
    scene.computes("first", first, range(5))
    asked: list[int] = []

    def pruned_at_3(step: int) -> Ending | None:
        asked.append(step)
        return PRUNED if step == 3 else None

    assert scene.takes("next", scene.shared("next"), ask=pruned_at_3) is None
    assert asked == [1, 3]
    assert [row["step"] for row in read_rows(scene.run("next").metrics)] == [0, 1, 2, 3]  # as it would have computed
    assert not scene.run("next").checkpoints.exists()
    assert "shared" not in (read_json(scene.run("next").provenance) or {})


def test_a_damaged_prefix_is_said_and_made_again(scene: Scene) -> None:
    first = scene.shared("first")
    scene.takes("first", first)
    scene.computes("first", first, range(5))
    weights = scene.there.path(B) / "checkpoints" / "step-000001" / "weights.safetensors"
    weights.unlink()  # the shorter prefix has the same file under a name of its own
    weights.write_bytes(b"")
    following = scene.shared("next")
    taken = scene.takes("next", following)
    assert taken is not None
    assert taken.progress.step == 2  # the shorter one is intact
    (note,) = following.notes
    assert B in note
    assert "step-000001/weights.safetensors" in note
    assert not scene.there.there(B)
    scene.computes("next", following, range(3, 5))
    assert scene.there.there(B)


def test_a_resumed_run_makes_what_it_began_to_make(scene: Scene) -> None:
    first = scene.shared("first")
    scene.takes("first", first)
    scene.computes("first", first, range(2))
    first.release()  # killed
    restart = Snapshot(progress=Progress(step=1, stage_step=1), weights={}, optimizer={})
    again = scene.shared("first")
    assert again.resume(restart) is restart
    scene.computes("first", again, range(2, 3))
    assert scene.there.shas() == [A]
    again.release()


def test_what_was_not_taken_to_its_end_is_not_said_to_be_shared(scene: Scene) -> None:
    """Killed between the best checkpoint and the stage's end, a run goes on from the first and computes the rest."""
    first = scene.shared("first")
    scene.takes("first", first)
    scene.computes("first", first, range(3))
    first.release()
    following = scene.shared("next")
    assert scene.takes("next", following) is not None
    following.release()
    for step, said in ((2, True), (1, False)):
        again = scene.shared("next")
        again.resume(
            Snapshot(progress=Progress(step=step, stage=step // 2, stage_step=step % 2), weights={}, optimizer={})
        )
        assert ("shared" in (read_json(scene.run("next").provenance) or {})) == said
        assert not is_locked(scene.there.lock(A))  # it is there already
        assert is_locked(scene.there.lock(B))
        again.release()


@pytest.mark.parametrize("known", [True, False])
def test_a_run_that_began_under_other_code_publishes_nothing(scene: Scene, known: bool) -> None:
    """Its first steps are of the code it began under; of a run begun before this was written nothing is known."""
    run = scene.run("first")
    if known:
        provenance.note(run, "prefixes", {"1": "c" * 64, "2": "d" * 64})
    shared = scene.shared("first")
    shared.resume(Snapshot(progress=Progress(step=1, stage_step=1), weights={}, optimizer={}))
    scene.computes("first", shared, range(5))
    assert scene.there.shas() == []
    assert not is_locked(scene.there.lock(A))


def test_nothing_is_published_that_nobody_wants_or_whose_best_checkpoint_is_gone(scene: Scene) -> None:
    first = scene.shared("first")
    scene.takes("first", first)
    scene.there.want([B])
    scene.computes("first", first, range(3))
    (scene.run("first").checkpoints / "step-000001" / "state.json").unlink()
    (scene.run("first").checkpoints / "step-000001").rename(scene.folder / "gone")
    scene.computes("first", first, range(3, 5))
    assert scene.there.shas() == []
    assert not is_locked(scene.there.lock(B))


def test_a_prefix_of_another_kind_of_device_is_left_alone(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    first = scene.shared("first")
    scene.takes("first", first)
    scene.computes("first", first, range(5))
    monkeypatch.setattr("grpoctl.executors.shared_stages.device", lambda: "NVIDIA H100")
    assert scene.takes("next", scene.shared("next")) is None
    assert scene.run("next").metrics.read_bytes() == b""


def test_a_lock_that_is_not_a_run_s_own_is_waited_for_without_holding_another(scene: Scene) -> None:
    with hold_lock(scene.there.lock(B), 0):
        shared = scene.shared("next")

        def look() -> None:
            assert not is_locked(scene.there.lock(A))
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            scene.takes("next", shared, idle=look)


def test_a_run_of_no_study_shares_nothing(tmp_path: Path) -> None:
    with shared_stages(RunDir(path=tmp_path / "home" / "runs" / "a"), None) as shared:  # type: ignore[arg-type]
        assert shared is None
