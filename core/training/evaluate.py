"""Held-out prompts -> eval/* metrics. The draws are the same at every evaluation, so differences are the policy's."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from core.training.groups import Groups
from core.training.step_metrics import lengths

SLUG = re.compile(r"[^\w.-]+")  # what a of a slice may not stand in a metric's name


def evaluation_metrics(groups: Groups, slice_by: str | None = None, *, tokens: bool = True) -> dict[str, float]:
    """`eval/*` of one evaluation: expected reward with its standard error over prompts (not over completions).

    Lengths only where outputs are made of `tokens`. Parts, too, are means over prompts. `slice_by` is a fact of the
    prompts; `eval/slices/<value>` is then the mean over the prompts with that value.
    """
    k = groups.rewards_PK.shape[1]
    means = [reward for reward in prompt_rewards(groups) if reward is not None]
    return {
        "eval/reward": fmean(means) if means else math.nan,
        "eval/reward_se": stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 0.0,
        "eval/valid": fmean(outcome.valid for outcome in groups.outcomes),
        **(lengths("eval", groups.rollout) if tokens else {}),
        **_parts(groups, k),
        **(_slices(groups, slice_by) if slice_by is not None else {}),
    }


def prompt_rewards(groups: Groups) -> list[float | None]:
    """The mean expected reward of each held-out prompt, in their order; None for one whose rewards are all missing."""
    return _by_prompt([outcome.expected for outcome in groups.outcomes], groups.rewards_PK.shape[1])


def gain_errors(begun: Mapping[str, Sequence[float | None]], now: Sequence[float | None]) -> dict[str, float]:
    """`eval/gain_se/<stage>`: the standard error over prompts of the change since each stage began.

    Paired by prompt: both evaluations ask the same prompts with the same draws, so what makes a prompt hard cancels.
    """
    errors = {}
    for stage, before in begun.items():
        pairs = zip(before, now, strict=True)
        changes = [new - old for old, new in pairs if old is not None and new is not None]
        if len(changes) > 1:
            errors[f"eval/gain_se/{stage}"] = stdev(changes) / math.sqrt(len(changes))
    return errors


def _slices(groups: Groups, slice_by: str) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    k = groups.rewards_PK.shape[1]
    for index, example in enumerate(groups.rollout.prompts):
        name = SLUG.sub("_", str(example.facts.get(slice_by)))
        expected = [outcome.expected for outcome in groups.outcomes[index * k : (index + 1) * k]]
        values.setdefault(name, []).extend(_prompt_means(expected, k))
    return {f"eval/slices/{name}": fmean(found) if found else math.nan for name, found in sorted(values.items())}


def _parts(groups: Groups, k: int) -> dict[str, float]:
    names = dict.fromkeys(name for outcome in groups.outcomes for name in outcome.parts)
    values = {name: [outcome.parts.get(name, math.nan) for outcome in groups.outcomes] for name in names}
    means = {name: _prompt_means(found, k) for name, found in values.items()}
    return {f"eval/rewards/{name}": fmean(found) if found else math.nan for name, found in means.items()}


def _prompt_means(values: Sequence[float], k: int) -> list[float]:
    """The mean of each prompt's k values, a prompt that lacks them all left out."""
    return [mean for mean in _by_prompt(values, k) if mean is not None]


def _by_prompt(values: Sequence[float], k: int) -> list[float | None]:
    """The mean of each prompt's k values; what is missing is left out, and None stands for a prompt without any."""
    present = ([v for v in values[start : start + k] if not math.isnan(v)] for start in range(0, len(values), k))
    return [fmean(found) if found else None for found in present]
