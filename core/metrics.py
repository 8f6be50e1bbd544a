"""Every metric name, declared once: its unit, its meaning and which way is better.

What is here: the names that appear in `metrics.jsonl`, in `result.json`, in MLflow and in `expects`.
What is not: how a metric is computed (that stands where the value is at hand) or displayed.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import Literal

Better = Literal["higher", "lower", "neither"]
Kind = Literal["start", "step", "eval", "run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One declared metric: `kind` says where it lives (a step row, an evaluation, or the whole run)."""

    name: str
    unit: str
    meaning: str
    kind: Kind = "step"
    better: Better = "neither"


def _declare(kind: Kind, rows: str) -> list[Metric]:
    """Parse `name | unit | better | meaning` lines into metrics of one kind."""
    metrics = []
    for line in rows.strip().splitlines():
        name, unit, better, meaning = (cell.strip() for cell in line.split("|", 3))
        assert better in ("higher", "lower", "neither"), line
        metrics.append(Metric(name=name, unit=unit, better=better, meaning=meaning, kind=kind))  # type: ignore[arg-type]
    return metrics


STEP = _declare(
    "step",
    """
    step | count | neither | step number, from 1
    update | 0/1 | neither | 1 where the optimiser moved the weights on this step
    stage | count | neither | index of the stage the step belongs to, from 0
    completions | count | neither | completions sampled up to and including this step
    tokens | count | neither | tokens of those completions, their end tokens included
    reward/mean | reward | higher | mean reward of the step's completions, missing ones left out
    reward/std | reward | neither | standard deviation (ddof 0) over all the step's completions
    reward/group_std | reward | neither | mean over groups of the standard deviation inside the group (ddof 0)
    reward/running_mean | reward | neither | running mean that advantages are centred on; absent on a stage's first step
    reward/running_std | reward | neither | running standard deviation that they are divided by; absent as that is
    reward/truncated | reward | neither | mean reward of completions that hit max_completion_length; absent where none
    reward/missing | fraction | lower | share of completions whose reward could not be computed
    groups/discarded | count | lower | groups sampled on this step that nothing was learned from
    groups/held_out | fraction | lower | share of the step's prompts that evaluation asks too, by id or by text
    groups/dead | fraction | lower | share of groups whose rewards are all equal: no learning signal
    advantage/mean | 1 | neither | mean advantage over completions
    advantage/std | 1 | neither | std (ddof 0) of the advantages of live groups; absent where none is live
    advantage/max_abs | 1 | neither | largest absolute advantage
    advantage/group_std | 1 | neither | mean over groups of the std (ddof 1) of advantages inside, dead groups 0
    advantage/group_max | 1 | neither | mean over groups of the largest absolute advantage, dead groups 0
    completions/valid | fraction | higher | share of completions the task accepts as well-formed
    completions/length | tokens | neither | mean number of sampled tokens, the end token included
    completions/truncated | fraction | lower | share of completions that hit max_completion_length
    completions/distinct | fraction | neither | distinct completions over all completions of the step
    entropy | nats | neither | mean entropy of the next-token distribution, over one clean-scored group
    differential_entropy | nats | neither | the same of continuous actions; it may be below 0
    rollout/logprob_gap | nats | lower | mean |log-prob recorded while sampling - clean forward|, one whole group
    rollout/logprob_gap_max | nats | lower | the worst token of the same
    rollout/logit_gap | nats | lower | the same gaps over 1 - the tokens' probabilities: how far the logits are apart
    rollout/logit_gap_early | nats | lower | the same of the first half of each completion
    rollout/logit_gap_late | nats | lower | and of the second: a lost cache grows with position, old weights do not
    rollout/detectable_gap | nats | lower | the smallest rollout/logprob_gap that exceeds the run's own noise
    canary/logit_gap | nats | lower | rollout/logit_gap of one fixed prompt with fixed tokens, on steps it is scored
    canary/detectable_gap | nats | lower | the smallest canary/logit_gap that exceeds the run's own noise
    temperature | 1 | neither | sampling temperature of this step
    learning_rate | 1 | neither | learning rate the optimiser used on this step
    loss | 1 | neither | all weighted terms together, as differentiated
    policy/loss | 1 | neither | minus the surrogate; near 0 at ratio 1 whatever its gradient is
    policy/tokens | tokens | neither | tokens that the policy term learned from, of one optimiser step
    policy/tokens_drawn | tokens | neither | tokens drawn in those completions: as many, or the mask is off
    policy/ratio_max | 1 | neither | largest importance ratio pi_new / pi_old over tokens that are learned from
    policy/clip_low | fraction | neither | share of tokens clipped from below (advantage < 0)
    policy/clip_high | fraction | neither | share of tokens clipped from above (advantage > 0)
    kl | nats | neither | mean k3 estimate per token of KL(policy || reference)
    kl/whole | nats | neither | mean of forward_k3 over completions, where it is the estimator in the loss
    beta | 1 | neither | weight of the KL on this step; absent where it is 0
    weight/policy | 1 | neither | weight of the policy term in the step's update; this and the next four absent where 0
    weight/supervised | 1 | neither | the same of the supervised term; 1 in a supervised stage
    weight/entropy | 1 | neither | the same of the entropy bonus, as an adaptive rule applies it
    weight/consistency | 1 | neither | the same of the consistency term
    weight/rce | 1 | neither | the same of the reward-weighted term, which is 1
    supervised/loss | nats | lower | cross-entropy per token on the task's own answers
    rce/loss | nats | neither | reward-weighted cross-entropy per completion
    importance/weight_mean | 1 | neither | mean weight of truncated importance sampling over tokens
    importance/capped | fraction | lower | share of tokens whose weight reached the cap
    grad_norm | 1 | neither | gradient norm before clipping
    grad_share/policy | fraction | neither | the policy term's share of the summed gradient norms, where measured
    grad_share/kl | fraction | neither | the same of the KL term
    grad_share/supervised | fraction | neither | the same of the supervised term
    grad_share/entropy | fraction | neither | the same of the entropy bonus
    grad_share/consistency | fraction | neither | the same of the consistency term
    grad_share/rce | fraction | neither | the same of the reward-weighted term
    """,
)
START = _declare(
    "start",
    """
    init/taken | count | neither | weights taken from the run that init_from names
    init/missing | count | lower | weights of this policy which that run does not have
    init/odd_shape | count | lower | weights that have another shape there
    init/unknown | count | lower | weights of that run which this policy does not have
    rollout/noise | nats | neither | largest rollout/logit_gap of some held-out prompts before any update
    rollout/noise_mean | nats | neither | the same of all of them together
    rollout/rescoring_gap | nats | neither | the same between the trainer's scores of those rows together and each alone
    """,
)
# What the policy `restoration` measures of itself; other policies may have others.
PROBES = _declare(
    "start",
    """
    probe/rate_effect | 1 | neither | RMS change of a held-out picture when a frequency rate moves, of six the least
    probe/gate_effect | 1 | neither | the same of the gates behind the frequencies, of three the least
    probe/greedy_gap | 1 | lower | largest distance of a factor that a greedy sample used from its distribution's mean
    probe/score_z | 1 | lower | mean gradient of log pi over draws, which should be 0, in standard errors: the largest
    """,
)
EVAL = _declare(
    "eval",
    """
    eval/reward | reward | higher | expected reward on held-out prompts, free of task noise; absent where unsound
    eval/reward_se | reward | neither | its standard error over prompts
    eval/valid | fraction | higher | share of well-formed completions on held-out prompts
    eval/length | tokens | neither | mean sampled tokens on held-out prompts
    eval/temperature | 1 | neither | sampling temperature of the evaluation
    eval/logprob_gap | nats | lower | as rollout/logprob_gap, over some rows of the evaluation
    eval/truncated | fraction | lower | share of truncated completions on held-out prompts
    eval/psnr | dB | higher | mean peak signal-to-noise ratio of restored held-out pictures, values within 0 and 1
    eval/ssim | 1 | higher | mean structural similarity of restored held-out pictures (Gaussian window, sigma 1.5)
    """,
)
RUN = _declare(
    "run",
    """
    steps | count | neither | steps done
    updates | count | neither | steps on which the optimiser moved the weights
    collapsed_steps | count | lower | steps whose completions were all invalid
    collapsed_after_update | count | lower | all-invalid steps whose previous step ran an update
    collapsed_after_skip | count | lower | all-invalid steps whose previous step skipped its update
    followed_updates | count | neither | updates that were followed by another step
    followed_skips | count | neither | skipped updates that were followed by another step
    collapse_rate | fraction | lower | collapsed_after_update / followed_updates (the seed documents' definition)
    """,
)

MEASURED = ("eval/psnr", "eval/ssim")  # in units of their own: what a task may say of an output beside rewards

METRICS: dict[str, Metric] = {metric.name: metric for metric in [*START, *PROBES, *STEP, *EVAL, *RUN]}

# Metrics of which a run may have any number: what stands for `*` is a task's own word.
FAMILIES = [
    *_declare(
        "start",
        """
        baseline/* | reward | neither | eval/reward of one of the task's baselines; `*.<part>`: its eval/rewards/<part>
        probe/* | 1 | neither | what the policy measured of itself before step 1
        """,
    ),
    *_declare(
        "step",
        """
        losses/* | 1 | lower | mean of one of the policy's own losses over the rows learned from, unweighted
        weight/* | 1 | neither | weight of one of the policy's own losses on this step; absent where it is 0
        grad_share/* | fraction | neither | such a loss's share of the summed gradient norms, where measured
        rewards/* | reward | higher | mean of one of the task's own rewards or scores, unweighted, missing ones left out
        """,
    ),
    *_declare(
        "eval",
        """
        eval/rewards/* | reward | higher | the same on held-out prompts
        eval/gain_se/* | reward | neither | standard error over prompts of eval/reward's change since that stage began
        eval/slices/* | reward | higher | expected reward on the held-out prompts with one value of evaluation.slice_by
        eval/psnr/* | dB | higher | eval/psnr of the held-out pictures with one value of evaluation.slice_by
        eval/ssim/* | 1 | higher | eval/ssim of the same
        """,
    ),
]


_PATTERNS = [(re.compile(re.escape(metric.name).replace(r"\*", r"[\w.-]+")), metric) for metric in FAMILIES]


def declared(name: str) -> Metric | None:
    """The metric of that name, declared by itself or as one of a family; None where it is neither."""
    if (metric := METRICS.get(name)) is not None:
        return metric
    family = next((metric for pattern, metric in _PATTERNS if pattern.fullmatch(name)), None)
    return None if family is None else replace(family, name=name)


_BASELINE, _REWARD, _PART = "baseline/", "eval/reward", "eval/rewards/"


def baseline_metric(baseline: str, metric: str) -> str:
    """The name under which a baseline's `metric` of an evaluation is recorded: baseline/random.accuracy_1."""
    part = metric.removeprefix("eval/") if metric in MEASURED else metric.removeprefix(_PART)
    return f"{_BASELINE}{baseline}" + ("" if metric == _REWARD else f".{part}")


def baseline_of(name: str) -> tuple[str, str] | None:
    """(baseline, metric of an evaluation) of such a name; None of any other."""
    if not name.startswith(_BASELINE):
        return None
    baseline, _, part = name.removeprefix(_BASELINE).partition(".")
    if f"eval/{part}" in MEASURED:
        return baseline, f"eval/{part}"
    return baseline, f"{_PART}{part}" if part else _REWARD


def limits(name: str, reward_range: tuple[float, float] | None = None) -> tuple[float | None, float | None]:
    """(least, most) that a metric can be; None where it is open. `reward_range` is what the task's rewards can be."""
    metric = declared(name)
    if metric is None:
        return None, None
    if metric.unit == "fraction":
        return 0.0, 1.0
    if metric.unit == "reward" and not metric.name.startswith(("rewards/", "eval/rewards/", "reward/")):
        return reward_range or (None, None)  # parts and spreads of a reward have ranges of their own
    return (0.0, None) if metric.unit in ("count", "tokens") else (None, None)


# What document 003 calls metrics -> ours. For messages only: a second name would be a second column.
_ELSEWHERE = {
    "loss_pg": "policy/loss",
    "loss_sup": "losses/supervised",
    "loss_cons": "losses/consistency",
    "loss_kl": "losses/penalty",
    "advantages_mean": "advantage/mean",
    "advantages_std": "advantage/std",
    "rewards_mean": "reward/mean",
    "rewards_std": "reward/std",
    "lambda_sup": "weight/supervised",
    "lambda_pg": "weight/policy",
    "global_reward_mean": "reward/running_mean",
    "global_reward_std": "reward/running_std",
}


def unknown_metric(name: str) -> str:
    """What to say of a name that is no metric: what it is called here, the nearest one that is, or where to look."""
    if (ours := _ELSEWHERE.get(name.lower().rpartition("/")[2])) is not None:
        return f"did you mean {ours}?"
    near = difflib.get_close_matches(name, METRICS, n=1)
    return f"did you mean {near[0]}?" if near else f"{len(METRICS)} are declared, e.g. eval/reward"
