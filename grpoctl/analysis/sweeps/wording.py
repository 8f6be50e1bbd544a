"""Keys, values, scores and trials of a study as people read them. Colour and printing are in grpoctl.console."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grpoctl.analysis.collect import number
from grpoctl.wording import estimate_text, setting_text


def short_keys(keys: Iterable[str]) -> dict[str, str]:
    """Each dotted key -> its shortest ending that no other of them shares: num_generations."""
    keys = list(dict.fromkeys(keys))
    names: dict[str, str] = {}
    for key in keys:
        words = key.split(".")
        endings = [".".join(words[-count:]) for count in range(1, len(words) + 1)]
        others = [other for other in keys if other != key]
        names[key] = next((end for end in endings if not any(_ends(other, end) for other in others)), key)
    return names


def value_text(value: object) -> str:
    """A setting on one line; a number drawn from a range in four digits, what is spelled out in full."""
    if isinstance(value, bool) or value is None:
        return setting_text(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {value_text(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(value_text, value))}]"
    text = str(value)
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)[1:-1]


def random_search_text(total: int, startup: int | None, points: int | None = None) -> str | None:
    """That a sweep ends before its sampler learns from a result; None where it learns, or never meant to.

    `points` are all that there are, None of a continuous space. A sweep that tries all of them leaves none to choose.
    """
    if startup is None or total > startup or (points is not None and total >= points):
        return None
    few = f"there are {points} points: give it as many trials, or set sampler: random"
    more = f"give it more than {startup} trials, or list values and set sampler: grid"
    return (
        f"sampler tpe draws its first {startup} trials at random, and the sweep has {total}: this is random search; "
        f"{few if points is not None and points <= startup else more}"
    )


def params_text(params: Mapping[str, object], names: Mapping[str, str]) -> str:
    """`num_generations=8 learning_rate=0.0003`, by the short names given."""
    return " ".join(f"{names.get(key, key)}={value_text(value)}" for key, value in params.items())


def trial_text(trial: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """`#7 (lr-high) num_generations=8`."""
    name = f" ({trial['name']})" if trial.get("name") else ""
    params = params_text(trial.get("params") or {}, names)
    return f"#{trial['number']}{name} {params}".rstrip()


def score_text(metric: str, score: object, interval: Sequence[float] | None) -> str:
    """`0.612 ± 0.020`, as `estimate_text`; "-" where there is no score."""
    return estimate_text(metric, number(score), interval)


def trials_text(numbers: Sequence[int], most: int = 8) -> str:
    """`#3, #9 and #12`; from the ninth on a count."""
    words = [f"#{number}" for number in numbers[:most]]
    if len(numbers) > most:
        words.append(f"{len(numbers) - most} more")
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _ends(key: str, ending: str) -> bool:
    return key == ending or key.endswith(f".{ending}")
