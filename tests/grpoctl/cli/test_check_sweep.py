"""`grpoctl check` and `grpoctl validate` of sweeps, through the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grpoctl.config import sweep_library
from grpoctl.files import replace_json
from grpoctl.runs import profile
from grpoctl.runs.run_dir import Home
from grpoctl.runs.status import TrialStatus
from grpoctl.runs.study_dir import create_study
from grpoctl.sweeps.loading import load_sweep, sweep_sha
from grpoctl.sweeps.state import TrialRecord
from grpoctl.sweeps.study import Terms, new_study
from tests.grpoctl.cli.conftest import Grpoctl


def own(text: str, folder: str = "sweeps", name: str = "mine") -> None:
    Path(folder).mkdir(exist_ok=True)
    Path(folder, f"{name}.yaml").write_text(f"name: {name}\ntitle: Mine\n{text}", encoding="utf-8")


def test_a_sweep_is_checked_in_numbers_and_notes(grpoctl: Grpoctl) -> None:
    document = grpoctl("check", "advantage-study", "--profile", "tiny", "--json").document
    assert document.keys() == {"schema", "sweep"}
    found = document["sweep"]
    spec = load_sweep("advantage-study", profile="tiny").spec
    assert (found["name"], found["profile"], found["sweep_sha"]) == ("advantage-study", "tiny", sweep_sha(spec))
    assert (found["experiment"], found["points"], found["trials"], found["runs"]) == ("p31", None, 24, 72)
    assert (found["budget"], found["evaluations"]) == ({"completions": 1024, "tokens": None}, [4, 4])
    assert [note for note in found["notes"] if "K = 16" in note]


RANGE = "experiment: p31\naxes: {learning_rate: {low: 1.0e-4, high: 1.0e-3}}\n"


def test_an_adaptive_sweep_says_that_trials_and_runs_are_only_what_it_may_spend(grpoctl: Grpoctl) -> None:
    how = "allocation adaptive, until decided at 90%: screened on one seed, the best raced on more"
    for asked in (("check", "advantage-study"), ("sweep", "advantage-study", "--dry-run")):
        said = " ".join(grpoctl(*asked, "--profile", "tiny").out.split())
        assert f"({how})" in said
        assert re.search(r"73,728( completions| in total) at most", said)  # 24 trials x 3 seeds x 1,024
        fixed = " ".join(
            grpoctl(*asked, "--profile", "tiny", "allocation=fixed", "pruner=none", "stop=budget").out.split()
        )
        assert "adaptive" not in fixed
        assert "at most" not in fixed
    found = grpoctl("check", "advantage-study", "--profile", "tiny", "--json").document["sweep"]
    assert found["allocation"] == "adaptive"


def test_what_is_drawn_at_most_is_a_bound(grpoctl: Grpoctl) -> None:
    """7 steps of 16 completions for a budget of 100: 6 runs draw 672."""
    own("experiment: p31\naxes: {beta: [0, 0.1]}\npruner: none\nbudget: {completions: 100}\n")
    plan = ("sweep", "mine", "--profile", "tiny", "--dry-run")
    assert "100 completions each (a run may draw 112): 672 completions at most" in grpoctl(*plan).out
    assert grpoctl(*plan, "--json").document["completions"] == 672
    said = " ".join(grpoctl("check", "mine", "--profile", "tiny").out.split())
    assert "100 completions per run (a run may draw 112), 672 in total at most" in said


def test_a_sweep_that_ends_before_its_sampler_learns_is_told_so(grpoctl: Grpoctl) -> None:
    own(f"{RANGE}trials: 10\n")
    found = grpoctl("check", "mine", "--json").document["sweep"]
    assert found["startup"] == 10
    (note,) = [note for note in found["notes"] if "random search" in note]
    assert "first 10 trials" in note
    assert "has 10" in note
    assert "random search" in " ".join(grpoctl("check", "mine").out.split())
    assert not [n for n in grpoctl("check", "mine", "trials=11", "--json").document["sweep"]["notes"] if "random" in n]
    drawn = grpoctl("check", "mine", "sampler=random", "--json").document["sweep"]
    assert drawn["startup"] is None
    assert not [note for note in drawn["notes"] if "random search" in note]


def test_random_search_is_told_where_more_trials_would_change_it(grpoctl: Grpoctl) -> None:
    """Both points are tried by any sampler; and where candidates are screened the sampler has no say."""
    own("experiment: p31\naxes: {num_generations: [2, 8]}\n")
    adaptive = ("check", "mine", "allocation=adaptive", "sampler=tpe", "--json")
    for asked in (("check", "mine", "--json"), adaptive, ("sweep", "mine", "--profile", "tiny", "--dry-run", "--json")):
        document = grpoctl(*asked).document
        notes = document["notes"] if "notes" in document else document["sweep"]["notes"]
        assert not [note for note in notes if "random search" in note]
    found = grpoctl(*adaptive).document["sweep"]
    assert found["startup"] is None
    assert [note for note in found["notes"] if "sampler tpe has no say" in note]


def test_a_budget_that_full_has_no_room_for_is_fine_under_the_profile_that_is_chosen(
    grpoctl: Grpoctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 completions are 4 steps: tiny has no warm-up, full's of 10 does not fit."""
    monkeypatch.setattr(profile, "free_cuda_memory", lambda: None)
    short = ("sweep", "kl-study", "budget.completions=64", "--dry-run")
    assert (grpoctl(*short, "--json").code, grpoctl(*short, "--json").document["profile"]) == (0, "tiny")
    for name in ("full", "tiny"):
        said = grpoctl(*short, "warmup_steps=10", "--profile", name)
        assert (said.code, said.out) == (2, "")
        assert f"(profile {name})" in said.err
        assert "max_steps = 4" in said.err
    assert "(profile tiny)" in grpoctl(*short, "warmup_steps=10").err  # chosen for the user, who must hear of it
    assert "(profile full)" in grpoctl("check", "kl-study", "settings.warmup_steps=999").err
    mine = grpoctl("run", "p39", "max_steps=5", "--dry-run", "--json")  # 10 steps of warm-up in full
    assert (mine.code, mine.document["profile"]) == (0, "tiny")
    wrong = grpoctl("run", "p39", "lr=5", "--dry-run")
    assert (wrong.code, wrong.out) == (2, "")
    assert "learning_rate" in wrong.err


def test_a_plan_counts_the_workers(grpoctl: Grpoctl) -> None:
    """With three at a time, two more trials begin before the tenth result is there."""
    own(f"{RANGE}trials: 12\n")
    for workers, trials, startup, said in [(1, 12, 10, 0), (3, 12, 12, 1), (3, 13, 12, 0), (1, 6, 10, 1)]:
        asked = ("sweep", "mine", "--dry-run", "--parallel", str(workers), "--trials", str(trials), "--json")
        plan = grpoctl(*asked).document
        assert plan["startup"] == startup
        notes = [note for note in plan["notes"] if "random search" in note]
        assert len(notes) == said
        assert all(f"first {startup} trials" in note and f"has {trials}" in note for note in notes)


def test_a_plan_ends_with_what_is_run_how_long_it_takes_and_its_command(grpoctl: Grpoctl, home: Home) -> None:
    asked = ("sweep", "lr-study", "-p", "tiny", "--parallel", "2", "--dry-run")
    what, time, command = grpoctl(*asked).out.splitlines()[-3:]
    assert ("5 trials x 3 seeds = 15 runs, 2 at a time" in what, "15,360 completions" in what) == (True, True)
    assert "at most" not in f"{what}{time}"  # nothing prunes here: all of it is spent
    assert time.startswith("time unknown")
    assert command == "nothing was written; start it: grpoctl sweep lr-study -p tiny --parallel 2"
    study = create_study(home, "lr-study-tiny-0123abcd")
    study.spec.write_text("name: lr-study\n")
    known = {"schema": 2, "experiment": "p31", "profile": "tiny", "trials": [{"completions": 7680}]}
    replace_json(study.state, {**known, "seconds": 60.0, "workers": 2})  # half of it took two workers a minute
    document = grpoctl(*asked, "--json").document
    low, high = document["hours_interval"]
    assert document["hours"] * 3600 == pytest.approx(120)
    assert (low * 3600 < 60, high * 3600 > 240) == (True, True)
    assert "at most" in grpoctl("sweep", "advantage-study", "-p", "tiny", "--dry-run").out  # what may be left out


def test_a_plan_of_a_study_that_goes_on_takes_no_trial_back(grpoctl: Grpoctl, home: Home) -> None:
    """Of 12 trials 3 were begun, and 2 of those have ended."""
    own(f"{RANGE}trials: 12\n")
    opened = new_study(load_sweep("mine", profile="tiny").spec, home, (), Terms(slots=2))
    ended = {
        number: TrialRecord(number=number, params={}, seeds=(0,), status=TrialStatus.COMPLETED) for number in (0, 1)
    }
    opened.book.trials |= {**ended, 2: TrialRecord(number=2, params={}, seeds=(0,))}
    opened.book.save()
    asked = ("sweep", "mine", "-p", "tiny", "--resume", "--dry-run")
    for trials, total in (("1", 3), ("3", 3), ("5", 5)):
        assert grpoctl(*asked, "--json", "--trials", trials).document["trials"] == total
    said = grpoctl(*asked, "--trials", "1").out
    assert f"note: {opened.study.id}: 3 trials were begun and none is taken back; got 1, so it has 3\n" in said
    assert f"{opened.study.id} would be continued, 2 of these trials have ended" in said
    assert "mine, profile tiny: 12 trials x 3 seeds" in grpoctl(*asked).out  # without a word: as it began


def test_and_in_words(grpoctl: Grpoctl) -> None:
    said = grpoctl("check", "collapse-study", "-p", "tiny", "seeds=[0]")
    assert said.code == 0
    assert '[], ["rollout-in-train-mode"]' in said.out
    assert "4 points (grid, pruner none) x 1 seed = 4 runs" in " ".join(said.out.split())
    assert "one seed: " in said.out
    ladder = grpoctl("check", "p30-ladder").out
    assert "Rungs, in order" in ladder
    assert "experiment=" in ladder
    assert "planned" in grpoctl("check", "epochs-study").out


def test_a_name_that_means_both_is_checked_as_both(grpoctl: Grpoctl) -> None:
    own("experiment: p31\naxes: {beta: [0, 0.1]}\n")
    own("extends: p31\n", "experiments")
    document = grpoctl("check", "mine", "--json").document
    assert (document["experiment"], document["sweep"]["name"]) == ("mine", "mine")
    specs = grpoctl("validate", "mine", "--json").document["specs"]
    assert [(entry["kind"], entry["ok"]) for entry in specs] == [("experiment", True), ("sweep", True)]
    assert specs[1]["profiles"] == ["full"]


def test_what_is_wrong_with_a_sweep_is_one_line_and_exit_code_2(grpoctl: Grpoctl) -> None:
    own("experiment: p31\naxes:\n  epsilon: [0.1, 0.2]\n")
    for command in ("check", "validate"):
        said = grpoctl(command, "mine")
        assert said.code == 2
        assert "sweeps/mine.yaml: line 5: axes.stages.grpo.epsilon: does nothing at any point" in said.err
    assert grpoctl("validate", "sweeps/mine.yaml").code == 2
    assert "no sweep 'advantage-stud'; did you mean advantage-study?" in grpoctl("check", "advantage-stud").err


def test_validate_without_a_name_takes_the_sweeps_too(grpoctl: Grpoctl) -> None:
    own("experiment: p31\naxes: {bta: [0]}\n", name="a-bad-one")
    said = grpoctl("validate", "--json")
    assert said.code == 2
    entries = {entry["name"]: entry for entry in said.document["specs"] if entry["kind"] == "sweep"}
    assert set(entries) == set(sweep_library().files())
    assert [name for name, entry in entries.items() if not entry["ok"]] == ["a-bad-one"]
    assert entries["advantage-study"]["profiles"] == ["full", "tiny"]
