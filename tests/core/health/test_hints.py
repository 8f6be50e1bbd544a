"""What a log hints at: each hint on a table that one can check by hand, and on a neighbour that hints at nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from core.health import hints as module
from core.health.case import Case, Settings
from core.health.finding import Finding, RuledOut
from core.health.hints import (
    HINTS,
    Hint,
    dead_groups_in_part,
    entropy_rises,
    form_earns_more,
    gained_little,
    gradients_are_rough,
    hints,
    kl_leaps,
    longer_for_nothing,
    lost_its_best,
    no_gradient_at_all,
    not_on_held_out_prompts,
    only_the_form,
    paid_for_another_shape,
    sampler_drifts,
    shorter_for_the_same,
    stuck_at_the_end,
    thrown_early,
    tools_die_out,
)
from core.health.statistics import trend

REWARD = "reward/mean"


def case(columns: Mapping[str, Sequence[float | None]], **known: object) -> Case:
    length = max(map(len, columns.values()))
    rows = [
        {"step": float(at + 1), **{name: values[at] for name, values in columns.items() if at < len(values)}}
        for at in range(length)
    ]
    return Case(rows=rows, **known)  # type: ignore[arg-type]


def noisy(level: Sequence[float], sd: float = 0.02, seed: int = 3) -> list[float]:
    draw = Random(seed)
    return [value + draw.gauss(0.0, sd) for value in level]


def test_a_hint_is_a_weak_info_that_says_what_to_look_at() -> None:
    (hint,) = hints([case({REWARD: [0.3, 0.0, 0.0], "loss": [0.0213, 0.0, 0.0147]})], [])[:1]
    assert (hint.severity, hint.confidence, hint.certainty) == ("info", "weak", "hint")
    assert hint.advice
    assert hint.decider is not None


def test_no_hint_on_what_a_finding_says_or_rules_out_or_of_a_run_of_ours() -> None:
    log = case({REWARD: [0.6, 0.5, 0.1], "grad_norm": [0.0, 0.0, 0.0]})
    given = [hint.id for hint in hints([log], [])]
    assert given == ["policy-collapse", "no-gradient"]
    found = Finding(id="policy-collapse", severity="warning", summary="it fell")
    assert [hint.id for hint in hints([log], [found])] == ["no-gradient"]
    excluded = Finding(
        id="rate-zero", severity="warning", summary="it is 0", rules_out=(RuledOut(id="no-gradient", why="it is 0"),)
    )
    assert [hint.id for hint in hints([log], [found, excluded])] == []
    ours = case({REWARD: [0.6, 0.5, 0.1]}, stages={"grpo": "grpo"})
    assert hints([ours], []) == []


@pytest.mark.parametrize("column", ["loss", "eval/loss", "rewards/chosen", "entropy"])
def test_no_hint_of_what_learns_from_no_samples(column: str) -> None:
    supervised = case({column: [0.5, 0.4, 0.1], "grad_norm": [0.0, 0.0, 0.0]})
    assert no_gradient_at_all(supervised) is not None
    assert hints([supervised], []) == []


def test_of_several_runs_only_what_all_of_them_hint_at() -> None:
    fell, still = case({REWARD: [0.6, 0.5, 0.1], "grad_norm": [0.0] * 3}), case({"kl": [0.1], "grad_norm": [0.0] * 3})
    assert [hint.id for hint in hints([fell, still], [])] == ["no-gradient"]
    assert hints([], []) == []


def test_a_hint_that_fails_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from grpoctl.diagnose.diagnosis import ask_or_say

    def broken(_: Case) -> Finding | None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "HINTS", (broken, no_gradient_at_all))
    given = hints([case({"kl": [0.1], "grad_norm": [0.0]})], [], ask_or_say)
    assert [hint.id for hint in given] == ["diagnosis-failed", "no-gradient"]
    assert "broken" in given[0].summary


@pytest.mark.parametrize("column", [REWARD, "eval/reward", "rewards/accuracy", "completions/valid"])
def test_what_was_learned_is_lost(column: str) -> None:
    rise_and_fall = [0.2, 0.3, 0.5, 0.5, 0.6, 0.6, 0.5, 0.4, 0.3, 0.3, 0.2, 0.2]
    hint = lost_its_best(case({column: rise_and_fall}))
    assert hint is not None
    assert (hint.id, hint.evidence["metric"]) == ("policy-collapse", column)
    assert hint.evidence["best"] == pytest.approx(0.6)
    assert hint.evidence["last"] == pytest.approx(0.2)
    assert lost_its_best(case({column: sorted(rise_and_fall)})) is None


def test_of_few_rows_half_has_to_be_lost() -> None:
    assert lost_its_best(case({REWARD: [0.6, 0.31]})) is None
    assert lost_its_best(case({REWARD: [0.6, 0.3]})) is not None
    assert lost_its_best(case({REWARD: [0.5, 0.1, 0.6, 0.2]})) is None  # it was lower before
    assert lost_its_best(case({REWARD: [0.11, 0.02, 0.007, 0.02]})) is not None  # and stays lost
    assert lost_its_best(case({REWARD: [0.11, 0.06, 0.007, 0.02]})) is None
    assert lost_its_best(case({REWARD: [0.65, 0.26, 0.29, 0.29, 0.30, 0.31]})) is not None
    assert lost_its_best(case({REWARD: [0.65, 0.26, 0.29, 0.60, 0.30, 0.31]})) is None  # it scatters
    right = [[0.0, 1.0][at % 5 == 0] for at in range(60)]  # a fifth, of one answer a row
    assert lost_its_best(case({REWARD: [*right[:20], 1.0, 1.0, *right[22:59], 0.0, 0.0]})) is None
    assert lost_its_best(case({REWARD: [-0.1, 0.6, 0.0]})) is None  # no share of such a reward means anything


def test_a_gradient_of_zero_on_every_row() -> None:
    assert no_gradient_at_all(case({"grad_norm": [0.0]})) is not None
    assert no_gradient_at_all(case({"grad_norm": [0.0, 1e-9]})) is None
    assert no_gradient_at_all(case({REWARD: [0.0]})) is None


def test_the_first_updates_go_far() -> None:
    hint = thrown_early(case({"kl": [0.0, 9.5, *[0.7] * 18]}))
    assert hint is not None
    assert (hint.id, hint.evidence["most"]) == ("learning-rate", 9.5)
    assert thrown_early(case({"kl": [*[0.01] * 10, 9.5]})) is None  # later
    assert thrown_early(case({"kl": [9.5, 0.7]}, numbered=False)) is None  # perhaps later
    assert thrown_early(case({"policy/kl_old": [1.0, 0.01]}, numbered=False)) is not None  # of one update, wherever
    assert thrown_early(case({"policy/kl_old": [0.2, 0.01]})) is None


def test_groups_that_are_dead_in_part() -> None:
    hint = dead_groups_in_part(case({"groups/dead": [0.1, 0.3, 0.35]}))
    assert hint is not None
    assert hint.evidence["dead"] == pytest.approx(0.25)
    assert dead_groups_in_part(case({"groups/dead": [0.1, 0.2, 0.2], "loss": [0.0, 0.1, 0.1]})) is None  # it is known


@pytest.mark.parametrize("column", ["reward/group_std", "reward/std", "advantage/std", "policy/loss", "loss"])
def test_rows_without_a_signal_among_others(column: str) -> None:
    hint = dead_groups_in_part(case({column: [0.0, 0.2113, 0.1147]}))
    assert hint is not None
    assert hint.summary.startswith(f"{column} is 0 on 1 of 3 rows")
    assert dead_groups_in_part(case({column: [0.0, 0.0, 0.0]})) is None  # of all, another rule speaks
    assert dead_groups_in_part(case({column: [0.0, *[0.2] * 6]})) is None  # one of seven


def test_a_loss_around_zero_is_no_sign_and_neither_is_the_first_step() -> None:
    assert dead_groups_in_part(case({"loss": [0.0, 1e-8, 0.0, 2e-8]})) is None
    assert dead_groups_in_part(case({"loss": [0.0, 0.0113, 0.0221], "kl": [0.0, 0.1, 0.2]})) is None
    assert dead_groups_in_part(case({"loss": [0.0, 0.0113, 0.0221], "kl": [0.1, 0.1, 0.2]})) is not None
    assert dead_groups_in_part(case({"grad_norm": [1e-6, 0.5, 0.4]})) is not None
    assert dead_groups_in_part(case({"grad_norm": [1e-2, 0.5, 0.4]})) is None


def test_one_mean_reward_on_half_of_the_rows() -> None:
    assert dead_groups_in_part(case({REWARD: [0.68] * 6 + [1.0, 0.7, 0.9, 0.8]})) is not None
    assert dead_groups_in_part(case({REWARD: [0.68] * 4 + [1.0, 0.7, 0.9, 0.8, 0.5, 0.4]})) is None
    assert dead_groups_in_part(case({REWARD: [0.68] * 10})) is None  # constant-reward


def test_a_reward_that_is_seldom_paid() -> None:
    seldom = [0.0, 0.1, 0.0, 0.1, 0.05]  # 0.05 in the mean: 0.95^8 = 66 % of groups of eight have none, 81 % of four
    hint = dead_groups_in_part(case({REWARD: seldom}))
    assert hint is not None
    assert "66% of the groups of 8" in hint.summary
    of_four = dead_groups_in_part(case({REWARD: seldom}, settings=Settings(num_generations=4)))
    assert of_four is not None
    assert "81% of the groups of 4" in of_four.summary
    assert dead_groups_in_part(case({REWARD: seldom}, settings=Settings(num_generations=16))) is None  # 44 %
    assert dead_groups_in_part(case({REWARD: seldom}, settings=Settings(baseline="none"))) is None
    assert dead_groups_in_part(case({REWARD: [0.0, 1.2, 0.0]})) is None  # none of 0 and 1


def test_an_entropy_that_rises() -> None:
    assert entropy_rises(case({"entropy": [0.3, 0.4, 0.8]})) is not None
    assert entropy_rises(case({"entropy": [0.3, 0.4, 0.55]})) is None
    assert entropy_rises(case({"entropy": [0.1, 0.2, 0.3]})) is None  # little, though three times as much
    assert entropy_rises(case({"entropy": [0.8, 0.4, 0.3]})) is None


def test_a_course_that_falls_to_nothing_in_turn_is_lost() -> None:
    falls = [0.03, 0.22, 0.37, 0.39, 0.46, 0.44, 0.27, 0.002]
    found = lost_its_best(case({REWARD: falls}))
    assert found is not None
    assert (found.id, found.evidence["best"], found.evidence["last"]) == ("policy-collapse", 0.46, 0.002)
    assert lost_its_best(case({REWARD: [*falls[:-1], 0.05]})) is None  # a tenth is left
    assert lost_its_best(case({REWARD: [*falls[:-2], 0.36, 0.002]})) is None  # one last row
    assert lost_its_best(case({REWARD: [*falls[:-3], 0.27, 0.27, 0.002]})) is None  # not lower each time
    assert lost_its_best(case({REWARD: [0.5] * 5 + [0.0]})) is None


def test_shorter_answers_for_the_same_reward() -> None:
    log = {"completions/length": [300.0, 200.0, 100.0], REWARD: [0.5, 0.5, 0.5]}
    assert shorter_for_the_same(case(log)) is not None
    assert shorter_for_the_same(case(log | {REWARD: [0.5, 0.5, 0.4]})) is None  # they earn less
    assert shorter_for_the_same(case(log | {"completions/length": [300.0, 200.0, 101.0]})) is None


def test_longer_answers_that_nothing_pays_for() -> None:
    lengths, rewards = [100.0, 100.0, 120.0, 150.0, 180.0, 180.0], [0.5, 0.6, 0.5, 0.5, 0.6, 0.5]
    log = {"completions/length": lengths, REWARD: rewards}
    found = longer_for_nothing(case(log))
    assert found is not None
    assert found.id == "truncation"
    assert "grew from 100 to 180 tokens while the reward went from 0.55 to 0.55" in found.summary
    assert longer_for_nothing(case(log | {REWARD: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]})) is None  # they are paid for
    assert longer_for_nothing(case(log | {REWARD: [0.1, 0.7, 0.2, 0.5, 0.3, 0.9]})) is None  # perhaps
    longer = {"completions/length": [length for length in lengths for _ in range(2)]}
    slowly = [100 + 0.4 * at + 0.1 * (at % 2) for at in range(12)]  # by less than a twentieth, and without a doubt
    assert longer_for_nothing(case(longer | {REWARD: [100.0, 100.1] * 6})) is not None
    assert longer_for_nothing(case(longer | {REWARD: slowly})) is None
    assert longer_for_nothing(case(log | {REWARD: [1.0] * 6})) is None  # solved
    assert longer_for_nothing(case({"completions/length": lengths})) is None  # that is not known
    assert longer_for_nothing(case({"completions/length": lengths[1:], REWARD: rewards[1:]})) is None  # five rows
    assert longer_for_nothing(case(log | {"completions/length": [0.0, 0.0, 0.0, 1.0, 9.0, 9.0]})) is None


def test_what_is_learned_on_training_prompts_only() -> None:
    log = {"rewards/accuracy": [0.5, 0.7, 0.9], "eval/reward": [0.5, 0.6, 0.65]}
    hint = not_on_held_out_prompts(case(log))
    assert hint is not None
    assert hint.id == "overfitting"
    assert not_on_held_out_prompts(case(log | {"eval/reward": [0.5, 0.6, 0.72]})) is None  # it rose by half as much
    assert not_on_held_out_prompts(case(log | {"rewards/accuracy": [0.5, 0.6, 0.8]})) is None
    assert not_on_held_out_prompts(case({REWARD: [1.5, 1.7, 1.9], "eval/reward": [0.5, 0.6]})) is None  # other scales


def test_a_reward_that_is_stuck_at_the_end() -> None:
    assert stuck_at_the_end(case({REWARD: [-1.25, 0.01, 0.0, 0.0]})) is not None
    assert stuck_at_the_end(case({REWARD: [-1.25, 0.01, 0.5, 0.5]})) is None  # neither 0 nor the least
    assert stuck_at_the_end(case({REWARD: [0.1, 0.2, 0.0]})) is None
    assert stuck_at_the_end(case({REWARD: [0.1] * 20 + [0.0] * 9})) is None
    assert stuck_at_the_end(case({REWARD: [0.1] * 20 + [0.0] * 10})) is not None


def of_a_form(answer: Sequence[float]) -> Case:
    """A tenth of the form and the answer, over forty rows; only the form has a column."""
    form = noisy([0.4 + 0.01 * at for at in range(40)], seed=1)
    reward = [0.1 * part + right for part, right in zip(form, answer, strict=True)]
    return case({"rewards/format": form, REWARD: reward})


def test_a_reward_that_rises_with_its_form_alone() -> None:
    hint = only_the_form(of_a_form(noisy([0.01] * 40, 0.001, seed=2)))
    assert hint is not None
    assert hint.id == "proxy-reward"
    assert hint.evidence["weight"] == pytest.approx(0.1, abs=0.01)
    assert only_the_form(of_a_form(noisy([0.01 + 0.002 * at for at in range(40)], 0.001, seed=2))) is None
    assert only_the_form(of_a_form([0.0] * 40)) is None  # the form is all there is


def test_a_form_that_earns_more_than_the_answer() -> None:
    log = {"rewards/format": [0.07, 0.1, 0.1, 0.1, 0.1], "rewards/correctness": [0.0, 0.0, 0.03, 0.05, 0.06]}
    hint = form_earns_more(case(log))
    assert hint is not None
    assert (hint.evidence["form"], hint.evidence["answer"]) == (0.1, 0.06)
    assert form_earns_more(case(log | {"rewards/correctness": [0.0, 0.0, 0.1, 0.2, 0.3]})) is None
    assert form_earns_more(case({"rewards/a": [0.1], "rewards/b": [0.9]})) is None  # nobody knows which is which


def test_the_best_reward_for_answers_of_another_shape() -> None:
    reward = [0.2, 0.3, 0.6, 0.8, 0.95, 0.97, 0.98, 0.98, 0.99]
    shorter = [300.0, 290.0, 280.0, 200.0, 150.0, 120.0, 100.0, 90.0, 80.0]
    hint = paid_for_another_shape(case({REWARD: reward, "completions/length": shorter}))
    assert hint is not None
    assert "completions/length went from 290 to 90" in hint.summary
    assert paid_for_another_shape(case({REWARD: reward, "completions/length": [300.0] * 9})) is None
    halved = [value / 2 for value in reward]
    assert paid_for_another_shape(case({REWARD: halved, "completions/length": shorter})) is None
    surer = [1.5, 1.4, 1.4, 1.0, 0.8, 0.6, 0.4, 0.3, 0.3]
    assert paid_for_another_shape(case({REWARD: reward, "entropy": surer})) is not None
    assert paid_for_another_shape(case({REWARD: reward, "entropy": surer[::-1]})) is None


def test_parts_of_a_run_that_earn_the_same_are_no_gain() -> None:
    def gained(rewards: list[float], **known: object) -> bool:
        return gained_little(case({REWARD: rewards}, **known)) is None

    assert not gained([0.331, 0.340, 0.344], averaged_over=5)  # early, mid, late
    assert gained([0.331, 0.340, 0.36], averaged_over=5)
    assert gained([0.98, 0.99], averaged_over=5)  # solved
    assert gained([0.331, 0.340, 0.344])  # three single steps say nothing


def test_evaluations_that_stand_are_no_gain() -> None:
    hint = gained_little(case({"eval/reward": [0.465, 0.470, 0.477]}))
    assert hint is not None
    assert hint.evidence["metric"] == "eval/reward"
    rising = case({"eval/reward": [0.465, 0.50, 0.53], REWARD: [0.3] * 3})
    assert gained_little(rising) is None  # whatever training says


def test_a_training_reward_that_rises_by_little() -> None:
    flat, steep = noisy([0.5] * 40, 0.1), noisy([0.2 + 0.01 * at for at in range(40)], 0.05)
    assert gained_little(case({REWARD: flat})) is not None
    assert gained_little(case({REWARD: steep})) is None
    assert gained_little(case({REWARD: noisy([0.97] * 40, 0.001)})) is None  # there is nothing left to gain
    assert gained_little(case({REWARD: [0.147, 0.139, 0.131, 0.133, 0.153, 0.139]})) is not None
    assert gained_little(case({REWARD: [0.10, 0.11, 0.2, 0.25, 0.3, 0.35]})) is None


def test_a_reward_that_rose_at_first_only() -> None:
    plateau = noisy([0.1] * 5 + [0.5] * 35, 0.03)
    hint = gained_little(case({REWARD: plateau}))
    assert hint is not None
    assert "since step 11" in hint.summary
    assert gained_little(case({REWARD: [0.3, 0.5, 0.7, 0.8, 0.9, *[1.0] * 35]})) is None  # it is solved


def test_a_kl_that_leaps() -> None:
    assert kl_leaps(case({"kl": [0.1, 0.1, 86.0, 0.1]})) is not None
    assert kl_leaps(case({"kl": [0.01, 0.02, 0.05, 0.1, 0.2, 0.4]})) is not None
    assert kl_leaps(case({"kl": [0.01, 0.02, 0.05, 0.06, 0.08, 0.1]})) is None
    assert kl_leaps(case({"kl": [0.5, 0.5, 2.0, 0.5]})) is None  # four times, and they are all large


def test_gradients_that_are_rough() -> None:
    assert gradients_are_rough(case({"grad_norm": [2.0, 3.0, 5.0, 9.0, 12.0, 19.0]})) is not None
    assert gradients_are_rough(case({"grad_norm": [2.0, 3.0, 5.0, 6.0, 7.0, 8.0]})) is None
    assert gradients_are_rough(case({"grad_norm": [0.02, 0.03, 0.05, 0.09, 0.12, 0.19]})) is None
    assert gradients_are_rough(case({"grad_norm": [2400.0] * 6})) is not None
    assert gradients_are_rough(case({"grad_norm": [24.0] * 6})) is None
    assert gradients_are_rough(case({"grad_norm": [3e9]})) is not None
    assert gradients_are_rough(case({"grad_norm": [3e9, 900.0]})) is None  # a spike
    assert gradients_are_rough(case({"grad_norm": []})) is None


def test_tools_that_are_called_no_more() -> None:
    calls, paid = [0.14, 0.09, 0.01, 0.0, 0.0, 0.0], [0.01, 0.02, 0.03, 0.06, 0.08, 0.09]
    hint = tools_die_out(case({"tools/calls": calls, REWARD: paid}))
    assert hint is not None
    assert (hint.id, hint.evidence["early"]) == ("reward-hacking", pytest.approx(0.115))
    assert tools_die_out(case({"tools/calls": calls, REWARD: paid[::-1]})) is None  # the whole policy went
    assert tools_die_out(case({"tools/calls": calls})) is None
    assert tools_die_out(case({"tools/calls": [0.14, 0.12, 0.1, 0.08, 0.04, 0.02], REWARD: paid})) is None  # fewer
    ends = tools_die_out(case({"tools/calls": [0.91, 0.13], REWARD: [None, 0.99]}))  # start and end
    assert ends is not None
    assert tools_die_out(case({"tools/calls": [0.91, 0.2], REWARD: [None, 0.99]})) is None
    assert tools_die_out(case({"tools/calls": [0.01, 0.01, 0.0, 0.0, 0.0, 0.0], REWARD: paid})) is None  # never many


@pytest.mark.parametrize("column", ["sampler/kl", "sampler/prob_gap", "rollout/logprob_gap"])
def test_a_sampler_that_drifts(column: str) -> None:
    drift = [0.002, 0.002, 0.003, 0.005, 0.006, 0.008, 0.012, 0.023, 0.014]
    hint = sampler_drifts(case({column: drift}))
    assert hint is not None
    assert (hint.id, hint.evidence["metric"]) == ("sampler-mismatch", column)
    assert sampler_drifts(case({column: [value / 2 for value in drift]})) is None  # within what engines differ by
    assert sampler_drifts(case({column: [0.02] * 9})) is None


def test_every_hint_takes_an_empty_and_a_strange_table() -> None:
    strange: list[float | None] = [None, 0.0, -1.0, 1e300, None, 5.0, 5.0, 5.0]
    names = (
        REWARD,
        "eval/reward",
        "rewards/accuracy",
        "rewards/format",
        "kl",
        "loss",
        "grad_norm",
        "entropy",
        "groups/dead",
    )
    for hint in HINTS:
        assert hint(Case(rows=[])) is None
        for only in names:
            hint(case({only: strange}))
        hint(case(dict.fromkeys(names, strange)))


def test_a_penalty_that_is_no_longer_paid_is_no_dead_run() -> None:
    assert stuck_at_the_end(case({REWARD: [-3.0, -1.0, 0.0, 0.0, 0.0]})) is None


def test_an_entropy_that_rises_with_the_reward_is_no_collapse() -> None:
    assert entropy_rises(case({"entropy": [0.3, 0.4, 0.8], REWARD: [0.3, 0.4, 0.3]})) is not None
    assert entropy_rises(case({"entropy": [0.3, 0.4, 0.8], REWARD: [0.3, 0.5, 0.8]})) is None


def test_answers_that_are_no_longer_cut_off_are_shorter() -> None:
    log = {"completions/length": [300.0, 200.0, 100.0], REWARD: [0.5, 0.5, 0.5]}
    assert shorter_for_the_same(case(log | {"completions/truncated": [0.8, 0.4, 0.0]})) is None
    assert shorter_for_the_same(case(log | {"completions/truncated": [0.05, 0.0, 0.0]})) is not None


def test_a_kl_of_the_first_row_leaps_nowhere() -> None:
    assert kl_leaps(case({"kl": [1.5, 0.1, 0.02, 0.01]})) is None
    grows = kl_leaps(case({"kl": [0.01, 0.02, 0.05, 0.1, 0.2, 0.4]}))
    assert grows is not None
    assert "it ended far higher" in grows.summary


def test_a_plateau_below_nobody_knows_what_is_none() -> None:
    plateau = noisy([0.1] * 5 + [1.9] * 35, 0.03)
    assert gained_little(case({REWARD: plateau})) is None
    assert gained_little(case({REWARD: plateau, "reward/max": [4.0] * 40})) is not None


def test_what_a_spread_denies_is_not_said_of_groups() -> None:
    same = [0.68] * 6 + [1.0, 0.7, 0.9, 0.8]
    assert dead_groups_in_part(case({REWARD: same, "reward/std": [0.3] * 10})) is None
    assert dead_groups_in_part(case({REWARD: [0.6] * 6 + [0.4, 0.5, 0.4, 0.5]})) is None  # one digit
    small = [0.03] * 5
    assert dead_groups_in_part(case({REWARD: small})) is not None
    assert dead_groups_in_part(case({REWARD: small, "reward/std": [0.006] * 5})) is None  # 0 and 1 would have 0.17
    assert dead_groups_in_part(case({REWARD: small, "reward/max": [0.12] * 5})) is None


def test_rows_far_apart_are_not_the_first_updates() -> None:
    rows = [{"step": 1.0, "kl": 0.0}, {"step": 500.0, "kl": 0.6}, {"step": 1000.0, "kl": 1.2}]
    assert thrown_early(Case(rows=rows)) is None
    assert thrown_early(Case(rows=[{"step": 1.0, "kl": 0.0}, {"step": 2.0, "kl": 1.2}])) is not None


def test_a_loss_of_three_decimals_is_rounded_to_zero() -> None:
    assert dead_groups_in_part(case({"policy/loss": [0.0, 0.002, 0.001, 0.0, 0.003]})) is None
    known = {"policy/loss": [0.0, 0.0213, 0.0147], "reward/std": [0.3, 0.3, 0.3]}
    assert dead_groups_in_part(case(known)) is None  # rewards differ


def test_evaluations_that_are_solved_or_rise_slowly_are_no_standstill() -> None:
    assert gained_little(case({"eval/reward": [0.98, 0.98, 0.98]})) is None
    assert gained_little(case({"eval/reward": [0.5 + 0.0004 * at for at in range(50)]})) is None


def test_training_that_fell_overfits_nothing() -> None:
    log = {"rewards/accuracy": [0.89, 0.87, 0.85], "eval/reward": [0.70, 0.60]}
    assert not_on_held_out_prompts(case(log)) is None
    assert not_on_held_out_prompts(case({"rewards/accuracy": [0.5, 0.7, 0.9], "eval/reward": [-5.0, -5.0]})) is None


def test_shorter_answers_that_earn_nothing_are_not_paid_for() -> None:
    assert shorter_for_the_same(case({"completions/length": [300.0, 200.0, 90.0], REWARD: [0.0] * 3})) is None


def ends(early: float, late: float, rows: int = 9) -> list[float]:
    """Two thirds on one level, the last third on another."""
    return [early] * (rows - rows // 3) + [late] * (rows // 3)


def seldom(rows: int, zeros: int) -> list[float]:
    return [0.0] * zeros + [0.2113] * (rows - zeros)


LOST_ROWS = {"inside": [0.5] * 6 + [0.29] * 6, "outside": [0.5] * 6 + [0.31] * 6}
LATER = [0.01] * 9 + [1.5] + [0.01] * 90


@pytest.mark.parametrize(
    ("hint", "inside", "outside"),
    [
        pytest.param(lost_its_best, {REWARD: LOST_ROWS["inside"]}, {REWARD: LOST_ROWS["outside"]}, id="LOST"),
        pytest.param(lost_its_best, {REWARD: LOST_ROWS["inside"]}, {REWARD: LOST_ROWS["inside"][1:]}, id="MANY"),
        pytest.param(  # 0.3 between the levels, and 3.3 or 2.8 standard errors
            lost_its_best, {REWARD: [0.435, 0.565] * 3 + [0.135, 0.265] * 3},
            {REWARD: [0.424, 0.576] * 3 + [0.124, 0.276] * 3}, id="CLEAR",
        ),
        pytest.param(entropy_rises, {"entropy": ends(0.5, 0.95)}, {"entropy": ends(0.5, 0.85)}, id="SURER"),
        pytest.param(entropy_rises, {"entropy": ends(0.2, 0.52)}, {"entropy": ends(0.2, 0.48)}, id="UNSURE"),
        pytest.param(thrown_early, {"kl": LATER}, {"kl": [0.01, *LATER[:-1]]}, id="FIRST"),
        pytest.param(thrown_early, {"kl": [0.01, 1.05, 0.01]}, {"kl": [0.01, 0.95, 0.01]}, id="FAR"),
        pytest.param(thrown_early, {"policy/kl_old": [0.32]}, {"policy/kl_old": [0.28]}, id="LEAP"),
        pytest.param(dead_groups_in_part, {"groups/dead": [0.21]}, {"groups/dead": [0.19]}, id="DEAD"),
        pytest.param(
            dead_groups_in_part, {"reward/std": seldom(100, 16)}, {"reward/std": seldom(100, 14)}, id="SILENT"
        ),
        pytest.param(
            dead_groups_in_part, {"grad_norm": [0.00095, 1.0, 1.0]}, {"grad_norm": [0.00105, 1.0, 1.0]}, id="SILENCE"
        ),
        pytest.param(
            dead_groups_in_part, {"loss": [0.0, 0.00105, 0.00105]}, {"loss": [0.0, 0.00095, 0.00095]},
            id="BY_CONSTRUCTION",
        ),
        pytest.param(dead_groups_in_part, {REWARD: [0.08] * 3}, {REWARD: [0.087] * 3}, id="HALF"),  # 0.51 and 0.48
        pytest.param(
            dead_groups_in_part, {REWARD: [0.61] * 5 + [0.52, 0.53, 0.54, 0.55, 0.56]},
            {REWARD: [0.61] * 5 + [0.52, 0.53, 0.54, 0.55, 0.56, 0.57]}, id="ALIKE",
        ),
        pytest.param(
            form_earns_more, {"rewards/format": [0.1] * 3, "rewards/correctness": [0.058] * 3},
            {"rewards/format": [0.1] * 3, "rewards/correctness": [0.062] * 3}, id="OUTDONE",
        ),
        pytest.param(
            form_earns_more, {"rewards/format": [1.0] * 3, "rewards/correctness": [0.29] * 3},
            {"rewards/format": [1.0] * 3, "rewards/correctness": [0.31] * 3}, id="RARE",
        ),
        pytest.param(
            paid_for_another_shape, {REWARD: ends(0.5, 0.95), "completions/length": ends(260.0, 100.0)},
            {REWARD: ends(0.5, 0.95), "completions/length": ends(240.0, 100.0)}, id="CHANGED",
        ),
        pytest.param(
            paid_for_another_shape, {REWARD: ends(0.5, 0.92), "completions/length": ends(260.0, 100.0)},
            {REWARD: ends(0.5, 0.88), "completions/length": ends(260.0, 100.0)}, id="BEST",
        ),
        pytest.param(
            not_on_held_out_prompts, {REWARD: ends(0.5, 0.9), "eval/reward": [0.6, 0.69]},
            {REWARD: ends(0.5, 0.9), "eval/reward": [0.6, 0.71]}, id="APART",
        ),
        pytest.param(
            longer_for_nothing, {REWARD: [0.5] * 9, "completions/length": ends(100.0, 185.0)},
            {REWARD: [0.5] * 9, "completions/length": ends(100.0, 175.0)}, id="LENGTHENED",
        ),
        pytest.param(
            longer_for_nothing,
            {REWARD: [0.4, 0.6, 0.5] * 2 + [0.42, 0.62, 0.52], "completions/length": ends(100.0, 200.0)},
            {REWARD: [0.4, 0.6, 0.5] * 2 + [0.43, 0.63, 0.53], "completions/length": ends(100.0, 200.0)}, id="MORE",
        ),
        pytest.param(gained_little, {REWARD: [0.94] * 12}, {REWARD: [0.96] * 12}, id="SOLVED"),
        pytest.param(  # the last third is 1.39 and 1.58 deviations above the first
            gained_little, {REWARD: [0.10, 0.20, 0.10, 0.20, 0.21, 0.31]},
            {REWARD: [0.10, 0.20, 0.10, 0.20, 0.25, 0.35]}, id="SCATTERS",
        ),
        pytest.param(
            gained_little, {REWARD: noisy([0.1] * 5 + [0.5] * 15, 0.02)}, {REWARD: noisy([0.1] * 4 + [0.5] * 15, 0.02)},
            id="PLATEAU",
        ),
        pytest.param(
            kl_leaps, {"kl": [0.2] * 5 + [2.1] + [0.2] * 5}, {"kl": [0.2] * 5 + [1.9] + [0.2] * 5}, id="GREW"
        ),
        pytest.param(
            kl_leaps, {"kl": [0.05] * 5 + [1.05] + [0.05] * 5}, {"kl": [0.05] * 5 + [0.95] + [0.05] * 5}, id="FAR-leap"
        ),
        pytest.param(kl_leaps, {"kl": ends(0.01, 0.32)}, {"kl": ends(0.01, 0.28)}, id="HIGH"),
        pytest.param(gradients_are_rough, {"grad_norm": ends(1.0, 4.2)}, {"grad_norm": ends(1.0, 3.8)}, id="ROUGHER"),
        pytest.param(gradients_are_rough, {"grad_norm": [105.0] * 6}, {"grad_norm": [95.0] * 6}, id="ROUGH"),
        pytest.param(gradients_are_rough, {"grad_norm": [105.0] * 6}, {"grad_norm": [105.0] * 5}, id="FEW"),
        pytest.param(sampler_drifts, {"sampler/kl": ends(0.01, 0.031)}, {"sampler/kl": ends(0.01, 0.029)}, id="DRIFTS"),
        pytest.param(
            sampler_drifts, {"sampler/kl": ends(0.001, 0.0105)}, {"sampler/kl": ends(0.001, 0.0095)}, id="SEEN"
        ),
    ],
)  # fmt: skip
def test_each_limit_is_where_it_is_said_to_be(
    hint: Hint, inside: Mapping[str, Sequence[float]], outside: Mapping[str, Sequence[float]]
) -> None:
    assert hint(case(inside)) is not None
    assert hint(case(outside)) is None


def test_the_tenth_step_is_soon_and_the_eleventh_is_not() -> None:
    def after(step: float) -> Case:
        return Case(rows=[{"step": 1.0, "kl": 0.01}, {"step": 5.0, "kl": 0.01}, {"step": step, "kl": 1.5}])

    assert thrown_early(after(10.0)) is not None
    assert thrown_early(after(11.0)) is None


def test_a_form_is_weighed_over_thirty_rows() -> None:
    answer = noisy([0.01] * 40, 0.001, seed=2)
    whole = of_a_form(answer)
    for rows, told in ((30, True), (29, False)):
        assert (only_the_form(Case(rows=whole.rows[:rows])) is not None) == told


@pytest.mark.parametrize(("z", "told"), [(3.3, True), (3.7, False)])
def test_a_rise_of_three_and_a_half_standard_errors_is_a_gain(z: float, told: bool) -> None:
    scatter = noisy([0.4] * 40, 0.05)
    flat = trend(list(enumerate(scatter, 1)))
    assert flat is not None
    rise = z * flat.se - flat.slope  # a line more leaves the residuals as they are
    rising = [value + rise * at for at, value in enumerate(scatter, 1)]
    assert (gained_little(case({REWARD: rising})) is not None) == told
