"""A winner becomes an experiment: it runs as the trial ran, says where it comes from, and nothing is overwritten."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.config import RunSpec
from core.errors import NotFoundError, StorageError, UserError
from grpoctl.cli.validate import check_specs
from grpoctl.config import load, plain
from grpoctl.runs.run_dir import Home
from grpoctl.runs.status import TrialStatus
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sweeps.candidates import points
from grpoctl.sweeps.loading import load_sweep
from grpoctl.sweeps.promote import PromotionRequest, promote
from grpoctl.sweeps.state import TrialRecord, read_book
from grpoctl.sweeps.validation import some_points
from tests.promotable import LR, SCALE, SHIPPED, WINNER, K, ended_study, ran, swept

OWN = ("name", "revision", "title", "question", "source", "expects", "recorded", "seed")
Make = Callable[..., StudyDir]


def settings(spec: RunSpec) -> dict[str, Any]:
    """All of a spec but what names it."""
    return {key: value for key, value in plain(spec).items() if key not in OWN}


@pytest.fixture(autouse=True)
def _in_a_folder_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def study(home: Home) -> Make:
    """Makes an ended study, of advantage-study under profile tiny unless another is named."""

    def make(name: str = "advantage-study", profile: str = "tiny", **more: Any) -> StudyDir:
        sweep = swept(name, profile) if name in SHIPPED else load_sweep(name, profile=profile).spec
        return ended_study(home, sweep, **more)

    return make


def promoted(home: Home, study: StudyDir, name: str = "my-grpo", trial: int | None = None) -> Path:
    return promote(PromotionRequest(study=study.id, name=name, trial=trial), home).file


def test_the_winner_runs_as_its_trial_ran(home: Home, study: Make) -> None:
    made = study()
    file = promoted(home, made)
    assert file == Path("experiments/my-grpo.yaml")
    spec = load("my-grpo", profile="tiny").spec
    assert settings(spec) == settings(ran(swept("advantage-study", "tiny"), WINNER))
    assert (spec.name, spec.revision) == ("my-grpo", 1)
    assert spec.stages["grpo"].learning_rate == WINNER[LR]  # to the last digit
    assert spec.stages["grpo"].prompts_per_step == 4  # K x B stays 16
    assert spec.budget is not None
    assert spec.budget.completions == 1024


@pytest.mark.parametrize(
    ("sweep", "profile"), [*((name, "tiny") for name in SHIPPED), ("advantage-study", "full"), ("epochs-study", "full")]
)
def test_every_shipped_sweep_can_be_promoted(home: Home, study: Make, sweep: str, profile: str) -> None:
    spec = swept(sweep, profile)
    point = some_points(spec)[-1]
    promoted(home, study(sweep, profile, trials=[point]))
    found, trial = (settings(one) for one in (load("my-grpo", profile=profile, seed=5).spec, ran(spec, point, seed=5)))
    if sweep == "collapse-study":  # its guards only warn
        trial["guards"] = settings(load("p31", profile=profile).spec)["guards"]
    assert found == trial
    (entry,) = check_specs(["my-grpo"])
    assert entry["error"] is None
    assert profile in entry["profiles"]


def test_the_other_profiles_stay_the_bases(home: Home, study: Make) -> None:
    promoted(home, study())
    assert settings(load("my-grpo").spec) == settings(load("p31").spec)
    assert load("my-grpo").profiles == load("p31").profiles


def test_the_file_says_where_it_comes_from_and_what_was_not_tried(home: Home, study: Make) -> None:
    made = study(trials=[{**WINNER, K: 8}, {**WINNER, K: 16}, WINNER])
    text = promoted(home, made).read_text()
    head = text[: text.index("\nname:")]
    for part in (
        made.id, "2 of 3", "eval/reward 0.700 ± 0.050", "0, 1, 2", "1024 completions", "2023-11-14", K, SCALE,
        "not searched", "Profile full is p31's own", "from all others",
    ):  # fmt: skip
        assert part in head, part
    for line in (
        "num_generations: 4  # of 2, 4, 8, 16",
        "learning_rate: 0.0009530000000000001  # searched from 0.0001 to 0.003 (log)",
        "eval_steps: 16  # in every trial",
        "completions: 1024  # what every run could spend",
        "prompts_per_step: 4  # from num_generations, so that every trial samples as much in a step",
        "revision: 1",
        "extends: p31",
    ):
        assert f"{line}\n" in text, line
    assert max(map(len, text.splitlines())) <= 120


def test_guards_that_only_warned_in_the_study_stop_in_its_winner(home: Home, study: Make) -> None:
    """collapse-study lets them warn, so that a collapse is measured; a guard that it compares would be the winner's."""
    made = study("collapse-study", trials=[{K: 8, "faults": []}])
    text = promoted(home, made).read_text()
    guards = load("my-grpo", profile="tiny").spec.guards
    assert (guards.collapse, guards.rollout_integrity) == ("stop", "stop")
    assert "guards.collapse" in text[: text.index("\nname:")]  # it is said
    assert "warn" not in text[text.index("\nname:") :]


def test_one_seed_claims_no_interval(home: Home, study: Make) -> None:
    sweep = load_sweep("advantage-study", profile="tiny", overrides=["seeds=[3]"]).spec
    made = ended_study(home, sweep, [{**WINNER, K: 8}, WINNER])
    done = promote(PromotionRequest(study=made.id, name="my-grpo"), home)
    text = done.file.read_text()
    assert "±" not in text
    assert "95 %" not in text
    assert "one seed" in text
    assert any("one seed" in note for note in done.notes)


def test_a_trial_can_be_named(home: Home, study: Make) -> None:
    made = study(trials=[{**WINNER, K: 8}, WINNER])
    done = promote(PromotionRequest(study=made.id, name="second", trial=0), home)
    assert load("second", profile="tiny").spec.stages["grpo"].num_generations == 8  # type: ignore[union-attr]
    assert "Trial 0" in load("second").spec.title
    (note,) = done.notes
    assert all(fact in note for fact in ("trial 0 is not", "#1", "0.600 ± 0.050"))


def test_what_cannot_be_told_apart_is_said(home: Home, study: Make) -> None:
    made = study(trials=[{**WINNER, K: 8}, {**WINNER, K: 16}, WINNER])
    book = read_book(made.state)
    book.analysis["indistinguishable"] = [2, 0]
    book.save()
    done = promote(PromotionRequest(study=made.id, name="my-grpo"), home)
    (note,) = done.notes
    assert note.startswith("trial 2 ")
    assert note.endswith("#0")
    assert note in done.file.read_text()


def test_a_study_that_tested_nothing_has_no_winner_that_differs(home: Home, study: Make) -> None:
    made = study(trials=[{**WINNER, K: 8}, WINNER])
    book = read_book(made.state)
    book.analysis["indistinguishable"] = None  # as where the seeds of each candidate gave the same numbers
    book.save()
    (note,) = promote(PromotionRequest(study=made.id, name="my-grpo"), home).notes
    assert note == "the study had no noise to tell its candidates apart by: no significance test"


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (("PRUNED", "FAILED"), "the only trial that was ranked: no significance test"),
        (("PRUNED", "COMPLETED"), "different from all others that were ranked at 95 %"),
        ((), "the only trial: no significance test"),
    ],
)
def test_a_winner_is_different_from_those_that_were_ranked(
    home: Home, study: Make, others: tuple[str, ...], said: str
) -> None:
    made = study(trials=[*({**WINNER, K: k} for k, _ in zip((8, 16), others, strict=False)), WINNER])
    book = read_book(made.state)
    for number, status in enumerate(others):
        book.trials[number] = TrialRecord(**{**_fields(book.trials[number]), "status": TrialStatus[status]})
    book.analysis["ranking"] = [len(others), *(n for n, status in enumerate(others) if status == "COMPLETED")]
    book.save()
    text = promoted(home, made).read_text()
    assert f"# significance  {said}" in text


def test_a_rung_keeps_what_it_was_to_meet(home: Home, study: Make) -> None:
    made = study("p30-ladder", trials=points(swept("p30-ladder", "tiny"))[:2])
    book = read_book(made.state)
    wanted = {"expectation": "eval/reward > 0.5", "observed": 0.6, "met": True}
    book.trials[1] = TrialRecord(**{**_fields(book.trials[1]), "expects": (wanted,)})
    book.save()
    promoted(home, made)
    found = load("my-grpo", profile="tiny").spec
    assert (found.expects, load("my-grpo").chain[1].stem) == (("eval/reward > 0.5",), "p32")


def _fields(trial: TrialRecord) -> dict[str, Any]:
    return {name: getattr(trial, name) for name in TrialRecord.__dataclass_fields__}


def test_a_base_that_has_changed_since_changes_nothing(home: Home, study: Make) -> None:
    made = study()
    changed = "name: p31\nextends: p30-sound\ntitle: mine\nstages: {grpo: {num_generations: 2, max_grad_norm: 0.5}}\n"
    Path("experiments").mkdir()
    Path("experiments/p31.yaml").write_text(changed)
    file = promoted(home, made)
    assert "max_grad_norm: 1.0  # as the trial ran; p31 says otherwise today\n" in file.read_text()
    assert load("my-grpo", profile="tiny").spec.stages["grpo"].max_grad_norm == 1.0


def test_a_base_that_is_gone_is_refused(home: Home, study: Make) -> None:
    Path("experiments").mkdir()
    Path("experiments/mine.yaml").write_text("name: mine\nextends: p31\ntitle: mine\n")
    Path("sweeps").mkdir()
    text = "name: s\ntitle: t\nquestion: q\nexperiment: mine\naxes: {stages.grpo.num_generations: [2, 4]}\n"
    Path("sweeps/s.yaml").write_text(text + "metric: eval/reward\nseeds: [0]\n")
    made = study("s", trials=[{K: 2}])
    Path("experiments/mine.yaml").unlink()
    with pytest.raises(UserError, match="base experiment mine"):
        promoted(home, made)
    assert list(Path("experiments").iterdir()) == []


@pytest.mark.parametrize("name", ["p31", "P31", "P30-Sound", "mine", "MINE", "advantage-study"])
def test_a_name_that_is_taken_is_refused(home: Home, study: Make, name: str) -> None:
    Path("experiments").mkdir()
    Path("experiments/Mine.yaml").write_text("name: Mine\n")
    made = study()
    with pytest.raises(UserError, match="choose another name"):
        promoted(home, made, name)
    assert [file.name for file in Path("experiments").iterdir()] == ["Mine.yaml"]


@pytest.mark.parametrize("name", ["My-grpo", "", "a b", "../p", "x.yaml", "-x", "x" * 65, "é"])
def test_what_is_no_name_is_refused(home: Home, study: Make, name: str) -> None:
    made = study()
    with pytest.raises(UserError, match="lower-case letters, digits, - and _"):
        promoted(home, made, name)
    assert not Path("experiments").exists()


def test_a_study_without_a_finished_trial_is_refused(home: Home, study: Make) -> None:
    made = study(trials=[], status="INTERRUPTED")
    with pytest.raises(UserError, match="no finished trial to promote"):
        promoted(home, made)
    with pytest.raises(NotFoundError, match="no trial 3"):
        promoted(home, made, trial=3)


@pytest.mark.parametrize("status", ["COLLAPSED", "INVALID_ROLLOUT", "PRUNED", "FAILED", "RUNNING"])
def test_a_trial_without_an_end_of_its_own_is_refused(home: Home, study: Make, status: str) -> None:
    made = study(trials=[{**WINNER, K: 8}, WINNER])
    book = read_book(made.state)
    book.trials[1] = TrialRecord(**{**_fields(book.trials[1]), "status": TrialStatus(status)})
    book.save()
    with pytest.raises(UserError, match=rf"trial 1 is {status}.*--trial 0"):
        promoted(home, made)


def test_a_study_under_way_gives_its_best_so_far(home: Home, study: Make) -> None:
    made = study(status="RUNNING", ended=None)
    with made.hold():
        done = promote(PromotionRequest(study="advantage-study", name="my-grpo"), home)  # by the sweep's name
    assert done.notes[0].startswith(f"{made.id} is still running")


def test_a_folder_that_cannot_be_written_leaves_nothing(home: Home, study: Make) -> None:
    made = study()
    Path("experiments").write_text("a file")
    with pytest.raises(StorageError, match="experiments"):
        promoted(home, made)
    assert Path("experiments").read_text() == "a file"


def test_a_file_that_appears_meanwhile_is_not_overwritten(
    home: Home, study: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = study()

    def slower(source: object, target: Path) -> None:
        target.write_text("another's")
        real(source, target)

    real = os.link
    monkeypatch.setattr(os, "link", slower)
    with pytest.raises(UserError, match="is there already"):
        promoted(home, made)
    assert [(file.name, file.read_text()) for file in Path("experiments").iterdir()] == [("my-grpo.yaml", "another's")]
