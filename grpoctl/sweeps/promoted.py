"""What a promoted spec looks like: where it comes from, and each value beside what the study tried.

Pure text from records; that it loads as what the trial ran is settled by its caller (promote).
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from core.spec import RunSpec
from grpoctl.analysis.sweeps.wording import score_text, trials_text, value_text
from grpoctl.specs.authored import FULL
from grpoctl.specs.resolved import block_yaml
from grpoctl.sweeps.spec import SweepSpec

WIDTH = 112
_INDENT = "  "
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_LOOKS_OTHERWISE = ("null", "true", "false")


@dataclass(frozen=True, kw_only=True, slots=True)
class Winner:
    """The trial that is promoted: its study as sweep.json has it, what it ran as, and the keys its sweep sets."""

    study: str
    status: str  # of the study
    document: Mapping[str, Any]
    trial: Mapping[str, Any]
    spec: RunSpec
    settings: tuple[str, ...]
    sweep: SweepSpec

    @property
    def number(self) -> int:
        """The trial's."""
        return int(self.trial["number"])

    @property
    def score(self) -> str:
        """`eval/reward 0.612 ± 0.020`."""
        metric = str(self.document["metric"])
        return f"{metric} {score_text(metric, self.trial.get('score'), self.trial.get('interval'))}"

    @property
    def alike(self) -> tuple[int, ...]:
        """The other trials that the study cannot tell apart from its best, where this is one of them."""
        together = [int(one) for one in self.document.get("indistinguishable") or []]
        return tuple(one for one in together if one != self.number) if self.number in together else ()

    @property
    def is_best(self) -> bool:
        """Whether it ranks first."""
        return bool((self.document.get("best") or {}).get("number") == self.number)


def not_apart(winner: Winner) -> str | None:
    """One sentence where the study does not say that this trial is better than all others; None where it does."""
    best = winner.document.get("best") or {}
    if winner.alike:
        return f"on these seeds trial {winner.number} cannot be told apart from {trials_text(winner.alike)}"
    if not winner.is_best and best:
        better = score_text(winner.document["metric"], best.get("score"), best.get("interval"))
        return f"trial {winner.number} is not the study's best: that is {trials_text([best['number']])} with {better}"
    return None


def text_of(winner: Winner, name: str, chosen: Mapping[str, object], dropped: Sequence[str] = ()) -> str:
    """The file: `chosen` are dotted keys and values that stand under the study's profile; `dropped` profiles go."""
    profile, base = winner.spec.profile, winner.spec.name
    said = _comments(winner, chosen)
    own = {"name": name, "revision": 1, "extends": base, "title": _title(winner), "question": _question(winner)}
    lines = [*_header(winner), *block_yaml({**own, "source": _source(winner)}).splitlines(), ""]
    if expects := [one["expectation"] for one in winner.trial.get("expects") or []]:
        lines += [*block_yaml({"expects": expects}).splitlines(), ""]
    tree = _nested(chosen)
    if profile == FULL:
        lines += _mapping(tree, "", said, 0)
        if dropped:
            lines += ["", "profiles:"]
    else:
        start = f"{_INDENT}{profile}:" if tree else f"{_INDENT}{profile}: {{}}"  # a profile of null is none
        lines += ["profiles:", start, *_mapping(tree, "", said, 2)]
    lines += [f"{_INDENT}{one}: null  # {base}'s own does not fit these settings" for one in dropped]
    return "\n".join(lines) + "\n"


def _title(winner: Winner) -> str:
    what = "The winner" if winner.is_best else f"Trial {winner.number}"
    return f"{what} of {winner.document['sweep']}: {winner.score} under profile {winner.spec.profile}"


def _question(winner: Winner) -> str:
    seeds = ", ".join(map(str, winner.trial["seeds"]))
    return f"Does what {winner.document['sweep']} found on seeds {seeds} hold on others?"


def _source(winner: Winner) -> str:
    return f"study {winner.study}, trial {winner.number}"


def _header(winner: Winner) -> list[str]:
    """Comment lines: the evidence, what was searched, and what was not."""
    document, trial, profile, base = winner.document, winner.trial, winner.spec.profile, winner.spec.name
    ended = document.get("ended")
    when = datetime.fromtimestamp(ended, UTC).date().isoformat() if ended else "not ended"
    named = f" ({trial['name']})" if trial.get("name") else ""
    unit = next((key for key, value in (document.get("budget") or {}).items() if value), None)
    spent = f"{document['budget'][unit]} {unit} for each run" if unit else "the steps of each run"
    searched = ", ".join(document.get("axes") or ()) or "named candidates"
    facts = {
        "study": f"{winner.study}, {winner.status}, {when} (UTC)",
        "trial": f"{winner.number}{named} of {len(document['trials'])}: {winner.score} (95 % interval of the mean)",
        "seeds": ", ".join(map(str, trial["seeds"])),
        "budget": spent,
        "searched": searched,
        "not searched": f"everything else: it is {base}'s, and its values below are the same in every trial",
        "told apart": not_apart(winner) or "from all others, at 95 %",
    }
    lines = ["Written by grpoctl promote. Yours to change; raise the revision when you do.", ""]
    for label, text in facts.items():
        lines += textwrap.wrap(
            f"{label:<14}{_harmless(text)}", WIDTH, subsequent_indent=" " * 14, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
    return [f"# {line}".rstrip() for line in [*lines, "", *_untested(profile, base)]]


def _untested(profile: str, base: str) -> list[str]:
    if profile == FULL:
        return [f"Found under profile full. {base}'s other profiles still scale it, and are untested."]
    text = (
        f"Found under profile {profile}, where the values stand. Profile full is {base}'s own: nothing of this was "
        "tried there, and a learning rate found on a small model is none for a large one."
    )
    return textwrap.wrap(text, WIDTH)


def _comments(winner: Winner, chosen: Mapping[str, object]) -> dict[str, str]:
    """Dotted key, of a leaf or of a part that is varied as a whole -> what the study says of it."""
    params, axes = winner.trial["params"], winner.document.get("axes") or {}
    said = {key: _of_axis(axes[key]) if key in axes else _of_point(winner) for key in params}
    said |= {key: "in every trial" for key in winner.settings if key not in said}
    for key in chosen:
        if not any(key == one or key.startswith(f"{one}.") for one in said):
            said[key] = _of_rest(winner, key)
    return said


def _of_axis(axis: Mapping[str, Any]) -> str:
    if axis.get("values") is not None:
        words = "of " + ", ".join(value_text(value) for value in axis["values"])
    else:
        how = " (log)" if axis.get("log") else f" by {value_text(axis['step'])}" if axis.get("step") else ""
        words = f"searched from {value_text(axis['low'])} to {value_text(axis['high'])}{how}"
    when = axis.get("when") or {}
    conditions = [f"{key} is {', '.join(value_text(value) for value in values)}" for key, values in when.items()]
    return f"{words}; only where {' and '.join(conditions)}" if conditions else words


def _of_point(winner: Winner) -> str:
    name = winner.trial.get("name")
    return f"what {name} stands for" if name else "the trial's own"


def _of_rest(winner: Winner, key: str) -> str:
    last = key.rsplit(".", 1)[-1]
    if key.startswith("budget"):
        return "what every run could spend"
    if last == "prompts_per_step":
        return "from num_generations, so that every trial samples as much in a step"
    if last in ("max_steps", "epochs"):
        return "from the budget"
    return f"as the trial ran; {winner.spec.name} says otherwise today"


def _nested(flat: Mapping[str, object]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *parts, last = key.split(".")
        node = tree
        for part in parts:
            node = node.setdefault(part, {})
        node[last] = value
    return tree


def _mapping(tree: Mapping[str, Any], at: str, said: Mapping[str, str], depth: int) -> list[str]:
    """The lines of a mapping; a part that has a comment of its own stands on one line."""
    lines = []
    for key, value in tree.items():
        here = f"{at}.{key}" if at else key
        comment = f"  # {_harmless(said[here])}" if here in said else ""
        start = f"{_INDENT * depth}{key}:"
        if isinstance(value, Mapping) and value and not comment:
            lines += [start, *_mapping(value, here, said, depth + 1)]
        else:
            lines.append(f"{start} {_flow(value)}{comment}")
    return lines


def _flow(value: object) -> str:
    """The value on one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(below)}" for key, below in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _LOOKS_OTHERWISE
        return value if plain else json.dumps(value)
    return block_yaml({"x": value}).removeprefix("x:").strip()


def _harmless(text: str) -> str:
    """The text on one line, nothing in it that ends a comment or drives a terminal."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
