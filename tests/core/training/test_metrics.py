"""A step's rollout -> its metrics and its lines of samples."""

from __future__ import annotations

from dataclasses import replace
from math import exp, isnan, nan, sqrt

import pytest
import torch

from core.errors import TaskError
from core.health.own_noise import Noise
from core.metrics import METRICS
from core.policies.base import Rollout, Sampling, Scores
from core.tasks.base import Outcome
from core.tasks.text import text_example
from core.training.metrics import (
    HeldOutNames,
    canary_metrics,
    effective_tokens,
    evaluation_metrics,
    gain_errors,
    integrity_metrics,
    noise_metrics,
    problem_rows,
    problem_sha,
    prompt_rewards,
    rollout_metrics,
    sample_rows,
)
from core.training.requests import Groups
from tests.fakes import PricedTask

# Two prompts x three completions of 2, 1, 3 / 3, 3, 1 tokens; the fourth and fifth were cut off.
LENGTHS = torch.tensor([2, 1, 3, 3, 3, 1])
ROLLOUT = Rollout(
    prompts=[text_example(id="p", prompt="p"), text_example(id="q", prompt="q")],
    prompt_N=torch.tensor([0, 0, 0, 1, 1, 1]),
    actions={},
    mask_NT=torch.arange(3) < LENGTHS.unsqueeze(-1),
    drawn_NT=torch.full((6, 3), -1.0),
    outputs=["a", "b", "a", "c", "c", "c"],
    truncated_N=torch.tensor([False, False, False, True, True, False]),
    how=Sampling(temperature=1.0, max_completion_length=3),
)

RECORDS = [PricedTask(lambda *_: 0.0).record(output) for output in ROLLOUT.outputs]


def groups(*rewards: float, expected: tuple[float, ...] = ()) -> Groups:
    expected = expected or rewards
    outcomes = [Outcome(reward=r, expected=e, valid=r > 0) for r, e in zip(rewards, expected, strict=True)]
    return Groups(rollout=ROLLOUT, outcomes=outcomes, rewards_PK=torch.tensor(rewards, dtype=torch.float64).view(2, 3))


def test_the_metrics_of_a_step_worked_by_hand() -> None:
    # Rewards 0 1 2 | 1 1 1: mean 1, variance (1 + 0 + 1 + 0 + 0 + 0) / 6; inside the groups sqrt(2/3) and 0.
    advantages = torch.tensor([[-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    got = rollout_metrics(groups(0.0, 1.0, 2.0, 1.0, 1.0, 1.0), advantages, records=RECORDS)
    assert got == {
        "reward/mean": 1.0,
        "reward/std": pytest.approx(sqrt(1 / 3)),
        "reward/group_std": pytest.approx(sqrt(2 / 3) / 2),
        "reward/truncated": 1.0,  # of the fourth and the fifth
        "reward/missing": 0.0,
        "groups/dead": 0.5,
        "advantage/mean": 0.0,
        "advantage/std": pytest.approx(sqrt(2 / 3)),  # of the live group alone
        "advantage/max_abs": 1.0,
        "completions/valid": pytest.approx(5 / 6),
        "completions/length": pytest.approx(13 / 6),
        "completions/truncated": pytest.approx(2 / 6),
        "completions/distinct": pytest.approx(3 / 6),  # a, b and c
    }
    assert set(got) <= set(METRICS)


def test_missing_rewards_are_left_out() -> None:
    got = rollout_metrics(groups(0.0, nan, 2.0, nan, nan, 1.0), torch.zeros(2, 3, dtype=torch.float64), records=RECORDS)
    assert (got["reward/mean"], got["reward/missing"], got["groups/dead"]) == (1.0, 0.5, 0.5)
    assert "reward/truncated" not in got  # both that were cut off have none
    assert got["reward/group_std"] == pytest.approx(0.5)  # 1 in the first group, 0 in the second
    nothing = rollout_metrics(groups(*[nan] * 6), torch.zeros(2, 3, dtype=torch.float64), records=RECORDS)
    assert isnan(nothing["reward/mean"])
    assert nothing["reward/missing"] == nothing["groups/dead"] == 1.0
    assert not {"advantage/std", "reward/truncated"} & set(nothing)


def test_a_virtual_best_sample_makes_a_group_live_that_is_all_below_it() -> None:
    advantages = torch.tensor([[-0.5, -0.5, -0.5], [0.0, 0.0, 0.0]], dtype=torch.float64)
    same = groups(0.25, 0.25, 0.25, 1.0, 1.0, 1.0)
    assert rollout_metrics(same, advantages, records=RECORDS)["groups/dead"] == 1.0
    got = rollout_metrics(
        same, advantages, records=RECORDS, virtual_best=1.0
    )  # the second group is as good as the virtual sample
    assert got["groups/dead"] == 0.5
    assert got["advantage/std"] == 0.0  # of the three equal ones alone


def test_noise_is_the_gap_over_doubt_of_prompts_together_and_of_the_worst() -> None:
    # Rows 0 and 2 have 2 and 3 tokens, recorded as -1. Scored -1 and -1.5; -1, -1 and -0.5, and again a tenth lower.
    # Doubt is 1 - e^score. Gaps: 1/2 of the first row, 1/2 of the second.
    sure, less, more = 1 - exp(-1.0), 1 - exp(-1.5), 1 - exp(-0.5)
    together = torch.tensor([[-1.0, -1.5, 99.0], [-1.0, -1.0, -0.5]])
    alone = [Scores(logprobs_NT=row.unsqueeze(0) - 0.1) for row in together]
    got = noise_metrics(ROLLOUT, [0, 2], Scores(logprobs_NT=together), alone, density=False)
    doubt = 3 * sure + less + more
    assert got == {
        "rollout/noise": pytest.approx(max(0.5 / (sure + less), 0.5 / (2 * sure + more))),
        "rollout/noise_mean": pytest.approx(1.0 / doubt),
        "rollout/rescoring_gap": pytest.approx(5 * 0.1 / doubt),
    }
    assert set(got) <= set(METRICS)
    offline = replace(ROLLOUT, drawn_NT=None)
    assert noise_metrics(offline, [0, 2], Scores(logprobs_NT=together), alone, density=False) == {}
    # A density is no probability: its gap stays what it is.
    as_density = noise_metrics(ROLLOUT, [0, 2], Scores(logprobs_NT=together), alone, density=True)
    assert as_density["rollout/noise_mean"] == pytest.approx(1.0 / 5)


def test_a_certain_token_has_a_hundredth_of_doubt() -> None:
    scored = torch.tensor([0.0, -1e-9])
    got = canary_metrics(torch.tensor([-1e-6, 0.0]), scored, 1.0, density=False, noise=None)
    assert got == {"canary/logit_gap": pytest.approx(1e-6 / 0.02, rel=1e-2)}


NOISE = Noise(largest=0.02, mean=0.015, most=1.0, temperature=1.0, factor=3.0)


def test_the_canarys_gap() -> None:
    # |-1 - -1.5| + |-2 - -2| over the doubt of the trainer's scores. At temperature 0.5 noise is twice as much, and
    # 1.5 times a group's is the canary's. Of two tokens in doubt it is 0.015 * (1 + 2.5 / sqrt(2)) and some.
    one, two = 1 - exp(-1.5), 1 - exp(-2.0)
    scored = torch.tensor([-1.5, -2.0])
    got = canary_metrics(torch.tensor([-1.0, -2.0]), scored, 0.5, density=False, noise=NOISE)
    tokens = (one + two) ** 2 / (one**2 + two**2)
    assert got == {
        "canary/logit_gap": pytest.approx(0.5 / (one + two)),
        "canary/detectable_gap": pytest.approx(1.5 * 3 * 2 * 0.015 * (1 + 2.5 / sqrt(tokens))),
    }


@pytest.mark.parametrize(
    ("doubt", "expected"),
    [([0.5, 0.5, 0.5], 3.0), ([0.9, 0.0], 1.0), ([0.3], 1.0), ([0.8, 0.2, 0.2], 2.0)],  # 1.2^2 / 0.72
)
def test_the_effective_number_of_tokens(doubt: list[float], expected: float) -> None:
    assert effective_tokens(torch.tensor(doubt, dtype=torch.float64)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("scores", "noise"),
    [
        # Three tokens of p = 1/2: the noise is 0.015 * (1 + 2.5 / sqrt(3)), half of that a gap of log-probs.
        ([0.5, 0.5, 0.5], 0.015 * (1 + 2.5 / sqrt(3))),
        # One that is drawn at p = 1/10^6 and two that are certain (doubt 0.01): it is as if there were that one alone.
        ([1e-6, 1.0, 1.0], 0.015 * (1 + 2.5 / sqrt(1.02**2 / 1.0002))),
    ],
)
def test_the_smallest_gap_beyond_the_noise_grows_as_fewer_tokens_are_in_doubt(
    scores: list[float], noise: float
) -> None:
    row = Scores(logprobs_NT=torch.tensor([scores], dtype=torch.float64).log())
    got = integrity_metrics(ROLLOUT, [2], row, noise=NOISE)
    doubt = sum(max(0.01, 1 - score) for score in scores) / 3
    assert got["rollout/detectable_gap"] == pytest.approx(3 * noise * doubt, rel=1e-5)


def test_the_gap_is_a_mean_over_the_drawn_tokens_of_the_rows_that_were_scored() -> None:
    # Rows 0 and 2 have 2 and 3 tokens; recorded -1 everywhere. Gaps 0 and 1/2 of the first, 0, 0 and 1/2 of the second.
    # Doubt: 1 - e^-1 where the score is -1 (three tokens), 1 - e^-1.5, 1 - e^-0.5. Early are tokens 1; 1 and 2.
    sure, less, more = 1 - exp(-1.0), 1 - exp(-1.5), 1 - exp(-0.5)
    clean = torch.tensor([[-1.0, -1.5, 99.0], [-1.0, -1.0, -0.5]])
    entropies = torch.tensor([[1.0, 1.0, 99.0], [2.0, 2.0, 4.0]])
    got = integrity_metrics(ROLLOUT, [0, 2], Scores(logprobs_NT=clean, entropies_NT=entropies))
    assert got == {
        "rollout/logprob_gap": pytest.approx(1.0 / 5),
        "rollout/logprob_gap_max": pytest.approx(0.5),
        "rollout/logit_gap": pytest.approx(1.0 / (3 * sure + less + more)),
        "rollout/logit_gap_early": 0.0,
        "rollout/logit_gap_late": pytest.approx(1.0 / (less + more)),
        "entropy": pytest.approx(10.0 / 5),
    }
    assert set(got) <= set(METRICS)


def test_offline_outputs_have_no_gap() -> None:
    offline = replace(ROLLOUT, drawn_NT=None)
    clean = Scores(logprobs_NT=torch.zeros(1, 3), entropies_NT=torch.full((1, 3), 2.0))
    assert integrity_metrics(offline, [0], clean) == {"entropy": 2.0}
    assert integrity_metrics(offline, [0], Scores(logprobs_NT=torch.zeros(1, 3))) == {}


def test_the_entropy_of_a_density_goes_by_another_name() -> None:
    clean = Scores(logprobs_NT=torch.full((1, 3), -1.0), entropies_NT=torch.full((1, 3), -2.0))
    got = integrity_metrics(ROLLOUT, [0], clean, density=True)
    assert got["differential_entropy"] == -2.0
    assert "entropy" not in got


def test_a_record_may_not_have_a_key_of_the_line() -> None:
    records = [{"text": "a"}] * 5 + [{"digits": "7", "step": 1, "reward": 5.0}]
    with pytest.raises(TaskError, match="the task records reward, step of an output, which each line"):
        sample_rows(groups(*[1.0] * 6), records, torch.zeros(2, 3), step=7)


def test_sample_rows() -> None:
    advantages = torch.tensor([[-1.0, 0.0, 1.0], [0.0, 0.5, -0.5]], dtype=torch.float64)
    rows = sample_rows(groups(0.0, 1.0, 2.0, 1.0, 2.0, 0.5), RECORDS, advantages, step=7)
    assert rows[0] == {
        "step": 7,
        "row": 0,
        "prompt_id": "p",
        "text": "a",
        "valid": False,
        "reward": 0.0,
        "advantage": -1.0,
    }
    assert [(row["row"], row["prompt_id"], row["text"], row["reward"], row["advantage"]) for row in rows[3:]] == [
        (3, "q", "c", 1.0, 0.0),
        (4, "q", "c", 2.0, 0.5),
        (5, "q", "c", 0.5, -0.5),
    ]


def test_an_evaluation_is_of_the_expectation_with_an_error_over_prompts() -> None:
    # Prompt means of the expectation: 0.2 and 0.6. Mean 0.4; std (ddof 1) 0.4 / sqrt 2; error / sqrt 2 = 0.2.
    got = evaluation_metrics(groups(*[1.0] * 5, 0.0, expected=(0.1, 0.2, 0.3, 0.6, 0.5, 0.7)))
    assert got == {
        "eval/reward": pytest.approx(0.4),
        "eval/reward_se": pytest.approx(0.2),
        "eval/valid": pytest.approx(5 / 6),
        "eval/length": pytest.approx(13 / 6),
        "eval/truncated": pytest.approx(2 / 6),
    }
    assert set(got) <= set(METRICS)


def test_an_expectation_that_is_missing_is_left_out_of_the_evaluation() -> None:
    got = evaluation_metrics(groups(*[1.0] * 6, expected=(nan, 0.2, 0.4, nan, nan, nan)))
    assert got["eval/reward"] == pytest.approx(0.3)
    assert got["eval/reward_se"] == 0.0  # of one prompt there is none
    assert isnan(evaluation_metrics(groups(*[1.0] * 6, expected=(nan,) * 6))["eval/reward"])


def test_a_gains_error_is_paired_by_prompt() -> None:
    """Prompt p rose by 0.2, q by 0.6: mean 0.4, std (ddof 1) 0.4 / sqrt 2, error / sqrt 2 = 0.2."""
    found = prompt_rewards(groups(*[1.0] * 6, expected=(0.1, 0.2, 0.3, 0.8, 0.7, 0.9)))
    assert found == [pytest.approx(0.2), pytest.approx(0.8)]
    errors = gain_errors({"sft": [0.0, 0.2], "grpo": found}, found)
    assert errors == {"eval/gain_se/sft": pytest.approx(0.2), "eval/gain_se/grpo": 0.0}


def test_errors_are_over_clusters_where_prompts_are_not_independent() -> None:
    """Four prompts of two pictures: 0.1 and 0.3, 0.5 and 0.7. Means 0.2 and 0.6, sd 0.4 / sqrt 2, error 0.2."""
    before, now, pictures = [0.0] * 4, [0.1, 0.3, 0.5, 0.7], ["a", "a", "b", "b"]
    assert gain_errors({"grpo": before}, now, pictures) == {"eval/gain_se/grpo": pytest.approx(0.2)}
    assert gain_errors({"grpo": before}, now)["eval/gain_se/grpo"] == pytest.approx(0.2581989 / 2)  # sd 0.258 of four
    assert gain_errors({"grpo": before}, now, ["a"] * 4) == {}  # one picture has no spread
    assert gain_errors({"grpo": [None, *before[1:]]}, now, pictures)  # what is missing is left out with its cluster
    found = groups(*[1.0] * 6, expected=(0.1, 0.2, 0.3, 0.8, 0.7, 0.9))
    assert evaluation_metrics(found, clusters=["a", "b"])["eval/reward_se"] == pytest.approx(0.3)  # 0.2 and 0.8
    assert evaluation_metrics(found, clusters=["a", "a"])["eval/reward_se"] == 0.0


def test_a_prompt_without_a_reward_is_in_no_pair() -> None:
    found = prompt_rewards(groups(*[1.0] * 6, expected=(nan, nan, nan, 0.8, nan, 0.6)))
    assert found == [None, pytest.approx(0.7)]
    assert gain_errors({"grpo": [0.5, 0.5]}, found) == {}  # one pair has no spread


def test_parts_and_slices_of_an_evaluation_are_means_over_prompts() -> None:
    # One prompt lost two of its three values: it still counts as much as the other. 1 and 0 give 0.5, not 1 / 4.
    values = (1.0, nan, nan, 0.0, 0.0, 0.0)
    outcomes = [Outcome(reward=v, expected=v, valid=True, parts={"exact": v}) for v in values]
    prompts = [text_example(id=name, prompt=name, facts={"kind": "all"}) for name in "pq"]
    found = replace(groups(*values), outcomes=outcomes, rollout=replace(ROLLOUT, prompts=prompts))
    got = evaluation_metrics(found, slice_by="kind")
    assert (got["eval/reward"], got["eval/rewards/exact"], got["eval/slices/all"]) == (0.5, 0.5, 0.5)


def test_the_problems_of_an_evaluation_one_row_for_each_completion() -> None:
    # Two problems x three completions; the best reward there is is 2, and the last one's is missing.
    task, shas = PricedTask(lambda *_: 0.0), [problem_sha(example) for example in ROLLOUT.prompts]
    scored = groups(0.0, 1.0, 2.0, 1.0, 1.0, nan)
    rows = problem_rows(
        scored, task, asked=HeldOutNames(shas=shas, clusters=None), step=0, reward_range=(0.0, 2.0), tokens=True
    )
    assert [(row["place"], row["draw"], row["right"], row["length"], row["truncated"]) for row in rows] == [
        (0, 0, False, 2, False), (0, 1, False, 1, False), (0, 2, True, 3, False),
        (1, 0, False, 3, True), (1, 1, False, 3, True), (1, 2, None, 1, False),
    ]  # fmt: skip
    assert [row["reward"] for row in rows[:5]] == [0.0, 1.0, 2.0, 1.0, 1.0]
    assert [row["prompt_id"] for row in rows] == ["p"] * 3 + ["q"] * 3
    assert [row["problem"] for row in rows] == [shas[0]] * 3 + [shas[1]] * 3
    assert shas[0] != shas[1]
    assert rows[0]["prompt"] == task.shown(ROLLOUT.prompts[0])
    later = problem_rows(
        scored, task, asked=HeldOutNames(shas=shas, clusters=None), step=4, reward_range=None, tokens=False
    )
    assert {"prompt", "length", "truncated"}.isdisjoint(later[0])
    assert {row["right"] for row in later} == {None}  # nobody knows what is best
    said = replace(scored, outcomes=[replace(outcome, right=True) for outcome in scored.outcomes])
    told = problem_rows(
        said, task, asked=HeldOutNames(shas=shas, clusters=None), step=4, reward_range=(0.0, 2.0), tokens=False
    )
    assert {row["right"] for row in told} == {True}  # the task knows
    assert "cluster" not in told[0]
    names = HeldOutNames.of([replace(one, facts={"picture": "x"}) for one in ROLLOUT.prompts], "picture")
    assert names == HeldOutNames(shas=shas, clusters=["x", "x"])
    clustered = problem_rows(scored, task, asked=names, step=4, reward_range=None, tokens=False)
    assert [row["cluster"] for row in clustered] == ["x"] * 6
