"""From a file, a profile and overrides to a resolved sweep; and the texts of what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import NotFoundError, SpecError
from grpoctl.config import Library, sweep_library
from grpoctl.sweeps.loading import dump_sweep, kinds_of, load_sweep, read_sweep, study_stem, sweep_sha
from tests.grpoctl.sweeps.mine import HEAD, loaded, specs, sweep, write

BETA, LR, K = "stages.grpo.beta", "stages.grpo.learning_rate", "stages.grpo.num_generations"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_keys_are_stored_in_full_however_they_are_written() -> None:
    spec = sweep(
        "settings: {eval_steps: 4, stages: {grpo: {weight_decay: 0.1}}, task.train_prompts: 32}\n"
        "axes: {beta: [0, 0.1], kl_estimator: {values: [k2, k3], when: {beta: 0.1}}}"
    )
    assert spec.settings == {"evaluation.eval_steps": 4, "stages.grpo.weight_decay": 0.1, "task.train_prompts": 32}
    assert list(spec.axes) == [BETA, "stages.grpo.kl_estimator"]
    assert spec.axes["stages.grpo.kl_estimator"].when == {BETA: (0.1,)}


def test_candidates_and_rungs_have_full_keys_too() -> None:
    spec = sweep("candidates: {a: {beta: 0.1}, b: {}}")
    assert spec.candidates == {"a": {BETA: 0.1}, "b": {}}
    spec = sweep("ladder: [{name: A, settings: {beta: 0.1}}, {name: B, experiment: p32}]")
    assert [(rung.experiment, rung.settings) for rung in spec.ladder] == [("p31", {BETA: 0.1}), ("p32", {})]


@pytest.mark.parametrize(
    "text",
    [
        "axes: {weight: [0.5, 1]}",
        "axes: {beta: [0, 0.1], weight: {values: [0.5, 1], when: {beta: 0.1}}}",
        "settings: {weight: 0.5}\naxes: {beta: [0, 0.1]}",
        "candidates: {a: {weight: 0.5}, b: {}}",
        "ladder: [{name: A, settings: {weight: 0.5}}, {name: B}]",
        "axes: {beta: [0, 0.1]}\nprofiles: {tiny: {settings: {weight: 0.5}}}",
    ],
)
def test_an_ending_switches_nothing_on(text: str) -> None:
    with pytest.raises(SpecError, match=r"weight: stages.grpo.overlong is null; write stages.grpo.overlong.weight"):
        sweep(text)


def test_an_ending_of_a_part_that_the_settings_switch_on_is_fine() -> None:
    spec = sweep("settings: {overlong: {buffer: 0.5}}\naxes: {weight: [0.5, 1]}")
    assert spec.settings == {"stages.grpo.overlong.buffer": 0.5}
    assert list(spec.axes) == ["stages.grpo.overlong.weight"]


def test_a_profile_is_a_layer_on_top_by_full_keys() -> None:
    text = """\
settings: {eval_steps: 8}
axes:
  learning_rate: {low: 1.0e-6, high: 1.0e-5, log: true}
  beta: [0, 0.1]
  num_generations: [2, 4]
trials: 9
profiles:
  tiny:
    settings: {evaluation.eval_steps: 2}
    axes:
      stages.grpo.learning_rate: {low: 1.0e-4, high: 1.0e-3}
      stages.grpo.beta: null
      num_generations: [8]
"""
    full, tiny = sweep(text, profile="full"), sweep(text)
    assert (full.profile, tiny.profile) == ("full", "tiny")
    assert list(full.axes) == [LR, BETA, K]
    assert list(tiny.axes) == [LR, K]
    assert (tiny.axes[LR].low, tiny.axes[LR].log, tiny.axes[K].values) == (1e-4, True, (8,))
    assert (full.settings, tiny.settings) == ({"evaluation.eval_steps": 8}, {"evaluation.eval_steps": 2})
    assert loaded(text).profiles == ("full", "tiny")


def test_a_profile_of_the_base_will_do() -> None:
    spec = sweep("axes: {beta: [0, 0.1]}", profile="small-memory")
    assert spec.profile == "small-memory"
    assert spec.budget.completions == 96 * 4 * 2  # what p31 samples under it
    with pytest.raises(SpecError, match="no profile 'tyni' of p31; there are: full, tiny, small, medium, small-memory"):
        sweep("axes: {beta: [0, 0.1]}", profile="tyni")
    text = "axes: {beta: [0, 0.1]}\nprofiles: {quick: {trials: 1}}"
    with pytest.raises(
        SpecError, match="no profile 'quick' of p31; there are: full, tiny, small, medium, small-memory, quick"
    ):
        sweep(text, profile="quick")


def test_overrides_are_the_sweeps_keys_or_settings_of_the_base() -> None:
    spec = sweep(
        "axes: {beta: [0, 0.1]}",
        "trials=1", "budget.completions=64", "seeds=[5]", "eval_steps=3", "pruner=none", "axes.learning_rate=[1e-4]",
    )  # fmt: skip
    assert (spec.trials, spec.budget.completions, spec.seeds, spec.pruner.name) == (1, 64, (5,), "none")
    assert spec.settings == {"evaluation.eval_steps": 3}
    assert spec.axes[LR].values == (1e-4,)


def test_an_override_can_name_another_base() -> None:
    spec = sweep("axes: {beta: [0, 0.1]}", "experiment=p32")
    assert (spec.experiment, list(spec.bases)) == ("p32", ["p32"])
    assert [run.spec.name for run in specs(spec, {BETA: 0.1})] == ["p32", "p32", "p32"]
    with pytest.raises(SpecError, match=r"^experiment: no experiment 'p99'; .*\(in the override experiment=p99\)$"):
        sweep("axes: {beta: [0, 0.1]}", "experiment=p99")


@pytest.mark.parametrize(
    ("text", "override", "place"),
    [
        ("settings: {max_steps: 10}", (), "sweeps/mine.yaml: line 5: "),
        ("", ("max_steps=10",), ""),
    ],
)
def test_a_length_that_the_budget_rules_is_blamed_on_the_setting(
    text: str, override: tuple[str, ...], place: str
) -> None:
    with pytest.raises(SpecError) as caught:
        sweep(f"axes: {{num_generations: [2, 8]}}\n{text}\nbudget: {{completions: 96}}", *override)
    said = "settings.stages.grpo.max_steps: the budget says how long the last stage is (profile tiny)"
    assert str(caught.value) == f"{place}{said}{' (in the override max_steps=10)' if override else ''}"


@pytest.mark.parametrize(
    ("settings", "own", "said"),
    [
        ("settings: {max_steps: 10}", "beta: 0.1", "settings.stages.grpo.max_steps: the budget says"),
        ("settings: {max_steps: 10}", "max_steps: 20", "ladder[0]: no valid run: stages.grpo.max_steps: the budget"),
        ("", "max_steps: 20", "ladder[0]: no valid run: stages.grpo.max_steps: the budget"),
    ],
)
def test_a_rung_is_not_blamed_for_a_setting_of_the_sweep(settings: str, own: str, said: str) -> None:
    rung = f"{{name: a, settings: {{{own}}}, expects: [eval/reward gain > 0]}}"
    with pytest.raises(SpecError) as caught:
        sweep(f"ladder: [{rung}]\n{settings}\nbudget: {{completions: 96}}")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("name=other", "name: belongs to the file"),
        ("trials", "expected key=value"),
        ("beta=0.1", "axes.stages.grpo.beta: is set by settings too"),
        (
            "trials=many",
            r"trials: got the string 'many'; allowed: an integer >= 1, or null \(in the override trials=many\)",
        ),
        ("lr=1", "settings.lr: unknown key; did you mean stages.grpo.learning_rate"),
        ("samplr=tpe", r"unknown key; did you mean sampler\?"),
        ("trails=6", r"settings.trails: unknown key; did you mean trials\? \(in the override trails=6\)"),
        ("batch_size=4", r"did you mean stages.grpo.prompts_per_step, or budget.generation_batch_size of the sweep\?"),
        ("budgt.completions=4", r"did you mean budget.completions\?"),
    ],
)
def test_overrides_that_are_refused(override: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        sweep("axes: {beta: [0, 0.1]}", override)
    with pytest.raises(SpecError, match="set twice"):
        sweep("axes: {beta: [0, 0.1]}", "trials=1", "trials=2")


def test_what_is_left_out_is_taken_from_the_base() -> None:
    spec = sweep("axes: {beta: [0, 0.1]}")
    assert (spec.budget.completions, spec.trials) == (96 * 16, 2)
    assert set(spec.bases) == {"p31"}


def test_written_and_read_back_it_is_the_same() -> None:
    text = """\
axes:
  num_generations: [2, 8]
  faults: [[], [rollout-in-train-mode]]
  overlong: [null, {buffer: 0.5, weight: 1.0}]
  learning_rate: {low: 1.0e-5, high: 1, log: true}
  kl_estimator: {values: [k2, k3], when: {num_generations: [2, 8]}}
settings: {beta: 0.1}
trials: 5
"""
    spec = sweep(text)
    Path("sweep.yaml").write_text(dump_sweep(spec), encoding="utf-8")
    assert read_sweep(Path("sweep.yaml")) == spec
    assert dump_sweep(read_sweep(Path("sweep.yaml"))) == dump_sweep(spec)
    Path("sweep.yaml").write_text(dump_sweep(spec).replace("tpe", "cma"), encoding="utf-8")
    with pytest.raises(SpecError, match=r"sweep\.yaml: line \d+: sampler: got the string 'cma'"):
        read_sweep(Path("sweep.yaml"))


def test_the_hash_is_of_what_is_compared() -> None:
    text = "axes: {beta: [0, 0.1], weight_decay: [0, 0.1]}"
    sha = sweep_sha(sweep(text))
    assert sha == sweep_sha(sweep(f"# a comment\n{text}\ntrials: 3\nmax_hours: 1"))  # it may go on for longer
    assert sha == sweep_sha(sweep("axes: {beta: [0.0, 0.1], weight_decay: [0, 0.1]}"))
    others = [
        "axes: {weight_decay: [0, 0.1], beta: [0, 0.1]}",  # the same points in another order are other trials
        "axes: {beta: [0.1, 0], weight_decay: [0, 0.1]}",
        f"{text}\nseeds: [0]",
        f"{text}\nstudy_seed: 1",
        f"{text}\nbudget: {{completions: 16}}",
    ]
    shas = [sha, *(sweep_sha(sweep(other)) for other in others), sweep_sha(sweep(text, profile="full"))]
    assert len(set(shas)) == len(shas)
    assert study_stem(sweep(text)) == f"mine-tiny-{sha[:8]}"


def test_a_changed_base_is_another_study(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    base = tmp_path / "experiments" / "base.yaml"
    shas = []
    for decay in ("0.1", "0.2"):
        base.write_text(f"name: base\nextends: p31\ntitle: B\nstages: {{grpo: {{weight_decay: {decay}}}}}\n")
        write("axes: {beta: [0, 0.1]}", "name: mine\ntitle: Mine\nexperiment: base\n")
        shas.append(sweep_sha(load_sweep("mine", profile="tiny").spec))
    assert shas[0] != shas[1]


def test_the_users_sweeps_come_first() -> None:
    shipped = load_sweep("lr-study", profile="tiny")
    assert (shipped.origin, shipped.spec.experiment) == ("shipped", "p31")
    write("axes: {beta: [0]}", HEAD)
    Path("sweeps/mine.yaml").rename("sweeps/lr-study.yaml")
    own = Path("sweeps/lr-study.yaml")
    own.write_text(own.read_text().replace("name: mine", "name: lr-study"))
    assert load_sweep("LR-Study").origin == "user"
    assert load_sweep("sweeps/lr-study.yaml").file == own
    with pytest.raises(NotFoundError, match=r"no sweep 'lr-studi'; did you mean lr-study\?"):
        load_sweep("lr-studi")


def test_what_a_name_means() -> None:
    assert kinds_of("p31") == ("experiment",)
    assert kinds_of("LR-study") == ("sweep",)
    file = write("axes: {beta: [0]}")
    assert kinds_of(str(file)) == ("sweep",)
    file.write_text("not: [a sweep")
    assert kinds_of(str(file)) == ("sweep",)  # by its folder: what is wrong with it is said as of a sweep
    Path("experiments").mkdir()
    Path("experiments/lr-study.yaml").write_text("name: lr-study\nextends: p31\ntitle: T\n")
    assert kinds_of("lr-study") == ("experiment", "sweep")
    assert kinds_of("experiments/lr-study.yaml") == ("experiment",)
    Path("experiments/lr-study.yaml").unlink()
    with pytest.raises(NotFoundError, match="no sweep 'lr-stud'; did you mean"):
        kinds_of("lr-stud")
    with pytest.raises(NotFoundError, match="no experiment 'zzz'"):
        kinds_of("zzz")


# what stands under the three lines of HEAD -> line, key and problem
WRONG: list[tuple[str, str]] = [
    ("axis: {beta: [0]}", "line 4: axis: unknown key; did you mean axes?"),
    ("axes: {beta: [0, -1]}", "line 4: axes.stages.grpo.beta: no valid run with -1: got -1; allowed: a number >= 0"),
    ("axes:\n  beta: [0]\n  top_p: {low: -1, high: 1}", "line 6: axes.stages.grpo.top_p: no valid run with -1: got -1"),
    ("axes: {bta: [0, 1]}", "line 4: axes.bta: unknown key; did you mean stages.grpo.beta?"),
    ("axes: {patience: [1]}", "line 4: axes.patience: ambiguous; write one of"),
    ("axes: {name: [a, b]}", "line 4: axes.name: belongs to the file and is not overridden"),
    ("axes: {profile: [a, b]}", "line 4: axes.profile: belongs to the file"),
    ("axes: {seed: [0, 1]}", "line 4: axes.seed: is not set by a trial; seeds says it"),
    ("axes: {title: [a, b]}", "line 4: axes.title: is not set by a trial"),
    ("axes: {budget: [1, 2]}", "line 4: axes.budget: is not set by a trial; budget says it"),
    ("axes: {budget.completions: [1, 2]}", "line 4: axes.budget.completions: is not set by a trial"),
    ("axes: {beta: [0]}\nsettings:\n  seed: 1", "line 6: settings.seed: is not set by a trial"),
    ("axes: {beta: [0, 0.0]}", "line 4: axes.stages.grpo.beta: got 0 twice"),
    ("axes: {beta: 3}", "line 4: axes.stages.grpo.beta: got 3; allowed: a list of values, or a mapping"),
    ("axes: {beta: {low: 0.1, hgh: 1}}", "line 4: axes.stages.grpo.beta.hgh: unknown key; did you mean"),
    ("settings: {beta: 0.1}\naxes: {stages.grpo.beta: [0]}", "line 5: axes.stages.grpo.beta: is set by settings too"),
    ("axes: {beta: [0], stages.grpo.beta: [1]}", "line 4: axes.stages.grpo.beta: is set twice"),
    ("axes: {advantage.clip: [1], advantage: [{}]}", "axes.stages.grpo.advantage: is set by the axis"),
    ("axes: {minibatches: [1, 2], num_generations: [2, 16]}", 'no valid run at {"stages.grpo.minibatches":2,'),
    ("axes: {beta: [0]}\nsampler: gird", "line 5: sampler: got the string 'gird'; allowed: one of grid, random, tpe"),
    ("axes: {beta: [0]}\nn_trials: 3", "line 5: n_trials: unknown key; did you mean trials?"),
    ("axes: {beta: [0]}\npruner: median", "line 5: pruner: got the string 'median'; allowed: one of none, patient-"),
    ("axes: {beta: {low: 0.1, high: 1}}", "line 1: trials: is missing"),
    ("axes: {beta: {low: 0.1, high: 1}}\nsampler: grid", "line 4: axes: stages.grpo.beta is a range of real numbers"),
    ("candidates: {a: {beta: 0}, b: {beta: 0.0}}", "line 4: candidates.b: sets the same as a"),
    ("candidates:\n  a: {beta: x}", "line 5: candidates.a: no valid run: stages.grpo.beta: got the string 'x'"),
    ("candidates: {a b: {}}", "line 4: candidates.a b: got the name 'a b'; allowed: letters"),
    ("ladder: [{name: A, experiment: p99}]", "line 4: ladder[0].experiment: no experiment 'p99'; did you mean p49?"),
    ("ladder: [{nme: A}]", "line 4: ladder[0].nme: unknown key; did you mean ladder[0].name?"),
    ("extends: p31\naxes: {beta: [0]}", "line 4: extends: a sweep has no parent"),
    ("axes: {beta: [0]}\nprofiles: {tiny: {axes: {bta: [1]}}}", "line 5: axes.bta: unknown key; did you mean stages."),
    ("axes: {beta: [0]}\nprofiles: {tiny: {axes: {bta: [1]}}}", "stages.grpo.beta? (in profile tiny)"),
    ("axes: {faults: [[x]]}", 'line 4: axes.faults: no valid run with ["x"]: faults[0]: got the string'),
    ("settings: 3\naxes: {beta: [0]}", "line 4: settings: got 3; allowed: a mapping of keys"),
    ("axes: {stages: [null]}", "line 4: axes.stages: no valid run with null"),
    ("axes: {train_prompts: [1, 4]}", "axes.task.train_prompts: no valid run with 1: stages.grpo.prompts_per_step"),
    ("axes: {consistency_weight: [0, 1]}", "axes.stages.grpo.consistency_weight: no valid run with 1: a causal"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_errors_name_line_key_and_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        sweep(text)
    message = str(caught.value)
    assert message.startswith("sweeps/mine.yaml: ")
    assert said in message
    assert "\n" not in message


def test_the_experiment_must_be_named_and_there() -> None:
    write("axes: {beta: [0]}", "name: mine\ntitle: Mine\n")
    with pytest.raises(SpecError, match="'experiment' is missing"):
        load_sweep("mine")
    write("axes: {beta: [0]}", "name: mine\ntitle: Mine\nexperiment: p30-sond\n")
    with pytest.raises(SpecError, match=r"line 3: experiment: no experiment 'p30-sond'; did you mean p30-sound\?"):
        load_sweep("mine")


def test_a_library_of_ones_own(tmp_path: Path) -> None:
    file = write("axes: {beta: [0]}")
    own = Library(user=tmp_path / "sweeps", shipped=tmp_path / "nothing", kind="sweep")
    assert load_sweep("mine", library=own).file.resolve() == file.resolve()
    assert list(own.files()) == ["mine"]
    assert "mine" in sweep_library().files()
