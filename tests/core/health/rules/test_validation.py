"""Runs without an evaluation, a missed early stop, overfitting, reward hacking, and leaked prompts."""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest

from core.config import EarlyStoppingSpec
from core.health.case import Case, Sample, Settings
from core.health.finding import Row
from core.health.rules.validation import (
    early_stop,
    leakage,
    missed_stop,
    no_validation,
    overfitting,
    reward_hacking,
    shortest_patience,
)
from core.training.clock import wait


def steps_then(steps: int, **more: float) -> list[Row]:
    return [{"step": step, "reward/mean": 0.5} for step in range(1, steps)] + [{"step": steps, **more}]


@pytest.mark.parametrize(
    ("case", "steps"),
    [
        (Case(rows=steps_then(51)), 51),
        (Case(rows=steps_then(50)), None),
        (Case(rows=steps_then(6), averaged_over=10), 60),
        (Case(rows=steps_then(51, **{"eval/reward": 0.5})), None),
        (Case(rows=steps_then(51, **{"eval/loss": 0.5})), None),
        (Case(rows=[]), None),
    ],
)
def test_no_validation(case: Case, steps: int | None) -> None:
    findings = no_validation(case)
    assert [one.evidence["steps"] for one in findings] == ([] if steps is None else [steps])
    assert all((one.id, one.severity) == ("no-validation", "info") for one in findings)


def rows(*rewards: float, completions: bool = False) -> list[Row]:
    """An evaluation every 10 steps from step 0 on, 16 completions a step."""
    return [
        {"step": 10 * i, "eval/reward": reward, **({"completions": 160 * i} if completions else {})}
        for i, reward in enumerate(rewards)
    ]


@pytest.mark.parametrize(
    ("rewards", "patience"),
    [
        ([0.1, 0.2, 0.3], 3),  # never waited: at least 3
        ([0.1, 0.0, 0.0, 0.0, 0.2], 4),  # three in a row without, then the best
        ([0.2, 0.1, 0.1, 0.1, 0.1], 3),  # what comes after the best does not count
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.2], 5),  # equal is no better
        ([0.1, 0.0, 0.0, 0.0, 0.2, 0.1, 0.3], 4),
        ([0.5], 3),
    ],
)
def test_the_shortest_patience_that_reaches_the_best(rewards: list[float], patience: int) -> None:
    assert shortest_patience(rewards) == patience


@pytest.mark.parametrize(
    "rewards",
    [(0.1, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4), (0.1, 0.0, 0.0, 0.0, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1), (0.5, *[0.1] * 9)],
)
def test_training_with_that_patience_stops_there(rewards: tuple[float, ...]) -> None:
    found = early_stop(rows(*rewards))
    assert found is not None
    spec = EarlyStoppingSpec(patience=found.patience)
    stops = (
        end
        for end in range(1, len(rewards) + 1)
        if (w := wait(rows(*rewards[:end]), spec)) and w.waited >= spec.patience
    )
    assert 10 * (next(stops) - 1) == found.stop_step
    assert found.best == max(rewards)


def test_the_numbers_of_a_missed_stop() -> None:
    (finding,) = missed_stop(Case(rows=rows(0.1, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, completions=True)))
    # The best at step 10, three evaluations without a better one: step 40. Of 100 steps 60, 60 x 16 completions.
    assert (finding.id, finding.severity, finding.confidence) == ("missed-stop", "info", "certain")
    assert {name: finding.evidence[name] for name in ("best_step", "stop_step", "last_step", "steps_saved")} == {
        "best_step": 10, "stop_step": 40, "last_step": 100, "steps_saved": 60,
    }  # fmt: skip
    assert finding.evidence["completions_saved"] == 960
    assert finding.suggest == ("early_stopping.patience=3",)
    assert "60% of the steps, 960 completions" in finding.summary


@pytest.mark.parametrize(
    ("rewards", "found"),
    [
        ((0.1, 0.5, 0.4, 0.4, 0.4), False),  # it would stop at the last evaluation
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), False),  # the last is the best
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.1, 0.1, 0.1, 0.1), False),  # step 100 of 110: less than a fifth
        ((0.5, 0.4, 0.4, 0.4, 0.4), True),  # the start was the best; stop at 30 of 40: a quarter
        ((0.5,) * 9, False),  # no evaluation was the best one: the policy never moved, or the reward cannot tell
        ((0.5,), False),
        ((), False),
    ],
)
def test_what_is_worth_a_word(rewards: tuple[float, ...], found: bool) -> None:
    assert bool(missed_stop(Case(rows=rows(*rewards)))) == found


def test_a_run_that_goes_on_after_its_last_evaluation() -> None:
    (finding,) = missed_stop(Case(rows=[*rows(0.5, 0.4, 0.4, 0.4), {"step": 60}]))
    assert (finding.evidence["stop_step"], finding.evidence["steps_saved"]) == (30, 30)


def test_a_stop_that_would_keep_the_untrained_model_is_not_suggested() -> None:
    (finding,) = missed_stop(Case(rows=rows(0.5, *[0.4] * 9)))
    assert (finding.evidence["best_step"], finding.suggest) == (0, ())
    assert "untrained" in finding.advice


def run(train: float, evals: list[float], se: float = 0.02) -> Case:
    """100 steps whose reward/mean moves by `train` in all, around it a zigzag of 0.1; evaluations evenly between."""
    rows: list[Row] = [{"step": 0, "eval/reward": evals[0], "eval/reward_se": se}]
    for step in range(1, 101):
        row: dict[str, float | None] = {"step": step, "reward/mean": 0.4 + train * step / 100 + 0.1 * (-1) ** step}
        if step * (len(evals) - 1) % 100 == 0:
            row |= {"eval/reward": evals[step * (len(evals) - 1) // 100], "eval/reward_se": se}
        rows.append(row)
    return Case(rows=rows)


FALLS = [0.4, 0.6, 0.55, 0.5, 0.45]  # the best at step 25; 0.15 / (0.02 sqrt(2)) = 5.3 standard errors


@pytest.mark.parametrize(
    ("case", "found"),
    [
        (run(0.4, FALLS), True),
        (run(-0.4, FALLS), False),  # both fall: that is no overfitting
        (run(0.0, FALLS), False),
        (run(0.4, list(reversed(FALLS))), False),  # 0.45 ... 0.6 at step 75, then 0.4 on one evaluation: 25 steps
        (run(0.4, [0.4, 0.45, 0.5, 0.55, 0.6]), False),
        (run(0.4, [0.4, 0.6, 0.59, 0.58, 0.55]), False),  # 1.8 standard errors
        (run(0.4, FALLS, se=0.04), False),  # 2.7
        (run(0.4, [0.6, 0.4]), False),  # two evaluations show no turn
        (run(0.4, FALLS, se=0.0), False),
        (run(0.4, [0.4, 0.6, 0.45, 0.5, 0.55]), False),  # it comes back: (0.5 + 0.55) / 2 is above 0.45
        (run(0.4, [0.4, 0.65, 0.45, 0.5, 0.45, 0.45]), True),  # 0.475, then 0.45: lost 0.2; from one to the next 0.04
        # Evaluations that wander: from one to the next 0.1 up or down, however well each is measured.
        (run(0.4, [0.4, 0.6, 0.5, 0.4, 0.5, 0.4, 0.5, 0.4, 0.5, 0.4, 0.4]), False),
    ],
)
def test_overfitting(case: Case, found: bool) -> None:
    assert bool(overfitting(case)) == found


def test_the_numbers_of_overfitting() -> None:
    (finding,) = overfitting(run(0.4, FALLS))
    assert (finding.id, finding.severity, finding.confidence) == ("overfitting", "warning", "moderate")
    assert (finding.evidence["best_step"], finding.evidence["best"], finding.evidence["last"]) == (25, 0.6, 0.45)
    assert finding.evidence["rise_per_step"] == pytest.approx(0.004, rel=0.05)
    # Five evaluations to choose from. The last two have 0.475: 5 x P(Z > 0.125 / 0.0283 = 4.419) = 5 x 4.95e-6.
    assert finding.evidence["p_fall"] == pytest.approx(2.47e-5, rel=0.02)
    assert finding.suggest == ("early_stopping.patience=3",)


def test_an_untrained_model_is_not_kept_by_a_stop() -> None:
    (finding,) = overfitting(run(0.4, [0.7, 0.65, 0.6, 0.5, 0.45]))
    assert (finding.evidence["best_step"], finding.suggest) == (0, ())


def case(reward: float, valid: float, *, steps: int = 40, **more: float) -> Case:
    """Lines with these slopes per step, around which steps wobble by 0.05."""
    rows: list[Row] = []
    for step in range(1, steps + 1):
        wobble = 0.05 if step % 2 else -0.05
        row: Row = {"step": step, "reward/mean": 0.4 + reward * step + wobble}
        rows.append({**row, "completions/valid": 0.9 + valid * step + wobble, **more})
    return Case(rows=rows)


@pytest.mark.parametrize(
    ("reward", "valid", "found"),
    [
        (0.005, -0.01, True),
        (-0.005, -0.01, False),  # both fall: a policy that gets worse
        (0.005, 0.001, False),
        (0.005, -0.002, False),  # 0.054 lost between the first and the last third: under 0.1
        (0.0, -0.01, False),
    ],
)
def test_both_trends_are_needed(reward: float, valid: float, found: bool) -> None:
    assert bool(reward_hacking(case(reward, valid))) == found


def test_what_is_said() -> None:
    (found,) = reward_hacking(case(0.005, -0.01))
    assert (found.id, found.severity) == ("reward-hacking", "warning")
    # Thirds of 13 steps: 0.9 - 0.01 * 7 and 0.9 - 0.01 * 34, the wobble of one step left over in each.
    assert found.evidence["valid_first"] == pytest.approx(0.83, abs=0.005)
    assert found.evidence["valid_last"] == pytest.approx(0.56, abs=0.005)
    assert reward_hacking(case(0.005, -0.01, steps=19)) == ()
    assert reward_hacking(case(0.005, -0.01, **{"rollout/logprob_gap": 3.0})) == ()


def test_two_stages_are_not_one_trend() -> None:
    # Reward 0.3 and 95 % valid, then 0.8 and 75 %: other prompts, and no trend inside a stage.
    rows: list[Row] = []
    for step in range(1, 81):
        later, wobble = step > 40, 0.05 if step % 2 else -0.05
        row: Row = {"step": step, "stage": later, "reward/mean": (0.8 if later else 0.3) + wobble}
        rows.append({**row, "completions/valid": (0.75 if later else 0.95) + wobble})
    assert reward_hacking(Case(rows=rows, settings=Settings(stage=1))) == ()
    assert reward_hacking(Case(rows=rows))  # taken for one


HELD_OUT = frozenset({"eval-0", "eval-1"})


def shares(*values: float) -> list[Row]:
    return [{"step": 0}, *({"step": i, "groups/held_out": value} for i, value in enumerate(values, start=1))]


def samples(*groups: str) -> tuple[Sample, ...]:
    return tuple(Sample(step=1, row=row, group=group) for row, group in enumerate(groups))


def test_none_is_none() -> None:
    assert leakage(Case(rows=shares(0.0, 0.0), samples=samples("train-0"), eval_groups=HELD_OUT)) == ()
    assert leakage(Case(rows=[], samples=samples("eval-0"))) == ()  # what is held out is not known


def test_a_share_of_the_steps_prompts() -> None:
    case = Case(rows=shares(0.0, 0.5, 0.0, 0.5), samples=samples("train-0", "eval-1"), eval_groups=HELD_OUT)
    (finding,) = leakage(case)
    assert (finding.id, finding.severity, finding.confidence) == ("leakage", "error", "certain")
    assert finding.evidence == {
        "share": 0.25, "steps": 4, "steps_with_some": 2, "first_step": 2.0,
        "prompts": ["eval-1"], "prompts_in_both": 1, "prompts_trained_on": 2,
    }  # fmt: skip


def test_the_same_text_under_another_id_is_the_same_problem() -> None:
    (finding,) = leakage(Case(rows=shares(0.5), samples=samples("train-0"), eval_groups=HELD_OUT))
    assert "by their text" in finding.summary


def test_a_single_one_of_hundreds_is_a_warning() -> None:
    (finding,) = leakage(Case(rows=shares(*[0.0] * 199, 1.0)))  # 1 of 200: half of one per cent
    assert (finding.severity, finding.evidence["share"]) == ("warning", 0.005)


def test_ids_alone_where_the_share_was_not_recorded() -> None:
    (finding,) = leakage(Case(rows=[{"step": 1}], samples=samples("eval-0", "a", "b", "c"), eval_groups=HELD_OUT))
    assert (finding.severity, finding.evidence["prompts_in_both"]) == ("error", 1)
    assert finding.summary.startswith("25.0%")


def with_truth(proxy: list[float], true: list[float]) -> Case:
    table = zip(proxy, true, strict=True)
    return Case(rows=[{"step": i, "reward/mean": a, "reward/true": b} for i, (a, b) in enumerate(table, 1)])


WAVE = [0.02 * (-1) ** (i // 2) for i in range(40)]  # noise without a trend
RISES = [0.02 * i + WAVE[i] for i in range(40)]
HUMP = [0.4 - 0.001 * (i - 15) ** 2 + WAVE[i] / 4 for i in range(40)]


@pytest.mark.parametrize(
    ("case", "confidence"),
    [
        (with_truth(RISES, HUMP), "moderate"),  # it rises, then falls (Gao et al. 2023, figure 1)
        (with_truth(RISES, [0.3 + value for value in WAVE]), "moderate"),  # it stands
        (with_truth(RISES, RISES[::-1]), "moderate"),
        (with_truth(RISES, [0.0] * 40), "moderate"),
        (with_truth(RISES, [72.0] * 40), None),  # a gold answer
        (with_truth(RISES, [0.97 + value / 10 for value in WAVE]), None),  # nothing is left to gain
        (with_truth(RISES, [float(97 * i % 61) for i in range(40, 0, -1)]), None),  # gold answers
        (with_truth(RISES, [0.5 * value for value in RISES]), None),  # it rises with it
        (with_truth(HUMP, HUMP), None),  # both fall
        (with_truth(RISES, [0.02 * i + 60 * WAVE[i] for i in range(40)]), None),  # too noisy to say that it stands
        (with_truth(RISES, [0.004 * i + 0.18 * (-1) ** i for i in range(40)]), None),  # a fifth of it, and noisy
        (with_truth([0.3 + value for value in WAVE], RISES[::-1]), None),  # nothing was gained
        (with_truth([0.1, 0.4, 0.9], [0.5, 0.4, 0.2]), "weak"),
        (with_truth([0.1, 0.4, 0.9], [0.5, 0.2, 0.4]), None),
        (with_truth([0.1, 0.9], [0.5, 0.2]), None),
    ],
)
def test_a_reward_that_parts_from_what_it_stands_for(case: Case, confidence: str | None) -> None:
    findings = reward_hacking(case)
    assert [(one.id, one.confidence) for one in findings] == ([("reward-hacking", confidence)] if confidence else [])


@pytest.mark.parametrize(
    ("metric", "hacked", "severity"),
    [
        ("reward/hacked", [0.0, 0.0, 0.2, 0.5], "warning"),
        ("reward/hacked", [0.0, 0.0, 1.0, 1.0], "warning"),
        ("reward/hacked", [0.0, 0.0, 0.02, 0.04], None),
        ("reward/hacked", [0.6, 0.4, 0.2, 0.1], None),  # found less and less
        ("reward/hacked", [0.6, 0.5, 0.5, 0.4], "warning"),
        ("reward/hacked", [-1.0, 0.5, 0.5, 0.5], None),  # no share
        ("reward/hacked", [3.0, 3.0, 3.0, 2.0], None),  # percent, or a count
        ("reward/hacked", [], None),
        ("reward/hacks", [0.0, 3.0, 20.0, 19.0], "warning"),
        ("reward/hacks", [0.0, 1.0, 8.0, 8.0], "info"),  # a row's, or all so far
        ("reward/hacks", [0.0, 2.0, 0.0, 0.0], None),
        ("reward/hacks", [0.0, 0.0, 0.0, 1.0, 0.0, 1.0], None),  # one in a while
    ],
)
def test_hacks_that_the_log_counts(metric: str, hacked: list[float], severity: str | None) -> None:
    case = Case(rows=[{"step": i, "reward/mean": 0.5, metric: value} for i, value in enumerate(hacked, 1)])
    assert [(one.id, one.severity) for one in reward_hacking(case)] == (
        [("reward-hacking", severity)] if severity else []
    )


def test_from_where_on_it_is_no_longer_what_is_meant() -> None:
    (finding,) = reward_hacking(with_truth(RISES, HUMP))
    assert finding.evidence["first_step"] == HUMP.index(max(HUMP)) + 2
    third = (len(HUMP) - HUMP.index(max(HUMP)) - 1) // 3
    assert finding.evidence["true_last"] == fmean(HUMP[-third:])
    assert finding.evidence["reward_last"] == fmean(RISES[-third:])


def test_single_rows_of_noise_do_not_stand_for_the_ends() -> None:
    noisy = [value + (0.6 if i == 0 else -0.6 if i == 39 else 0.0) for i, value in enumerate(RISES)]
    (finding,) = reward_hacking(with_truth(noisy, RISES[::-1]))
    assert noisy[-1] < noisy[0]
    assert float(str(finding.evidence["reward_last"])) > float(str(finding.evidence["reward_first"]))


def test_a_true_reward_that_slowly_rises_in_noise_is_rarely_accused() -> None:
    """400 runs of 8 and 12 evaluations of 64 gold answers: both rewards rise, by 0.1 and by 0.08."""
    random = Random(5)
    accused = 0
    for run in range(400):
        count = 8 + 4 * (run % 2)
        proxy = [0.4 + 0.1 * i / count + random.gauss(0, 0.01) for i in range(count)]
        true = [sum(random.random() < 0.8 * value for _ in range(64)) / 64 for value in proxy]
        accused += bool(reward_hacking(with_truth(proxy, true)))
    assert accused <= 16  # without its error every sixth


def best_and_far(kl: float = 0.7, reward: float = 0.99, first: float = 0.0) -> Case:
    kls = [first, *[0.2] * 10, *[kl] * 10]
    rewards = [0.5, *[0.8] * 10, *[reward] * 10]
    table = zip(kls, rewards, strict=True)
    return Case(rows=[{"step": i, "kl": k, "reward/mean": r} for i, (k, r) in enumerate(table, 1)])


@pytest.mark.parametrize(
    ("case", "found"),
    [
        (best_and_far(), True),
        (best_and_far(kl=0.4), False),
        (best_and_far(reward=0.9), False),
        (best_and_far(reward=3.0), False),  # of how much nobody knows
        (best_and_far(first=0.6), False),  # it never was at home
    ],
)
def test_the_most_there_is_far_from_the_reference(case: Case, found: bool) -> None:
    expected = [("reward-hacking", "info", "weak")] if found else []
    assert [(one.id, one.severity, one.confidence) for one in reward_hacking(case)] == expected
