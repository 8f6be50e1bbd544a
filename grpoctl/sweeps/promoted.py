"""What a promoted spec looks like: where it comes from, and each value beside what the study tried.

Pure text from records; that it loads as what the trial ran is settled by its caller (promote).
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from core.config import RunSpec
from core.health.rules.gains import gain_metric
from grpoctl.analysis.outcome import gain_text
from grpoctl.analysis.sweeps.wording import score_text, trials_text, value_text
from grpoctl.config.authored import FULL
from grpoctl.config.layers import leaves
from grpoctl.config.new_file import commented, nested, one_line
from grpoctl.config.resolved import block_yaml
from grpoctl.sweeps.spec import SweepSpec

WIDTH = 112
GUARDS = tuple(f"guards.{name}" for name in ("rollout_integrity", "collapse"))  # what they do: warn or stop
_INDENT = "  "


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
        """`eval/reward 0.612 ± 0.020`; of one seed without an interval, which would know nothing of others."""
        metric = str(self.document["metric"])
        return f"{metric} {score_text(metric, self.trial.get('score'), self.interval)}"

    @property
    def interval(self) -> Sequence[float] | None:
        """The interval of the trial's mean over its seeds; None where it has one seed."""
        return None if len(self.trial["seeds"]) < 2 else self.trial.get("interval")

    @property
    def interval_kind(self) -> str:
        """What the intervals of the trial are, in one line."""
        if len(self.trial["seeds"]) < 2:
            return "±, [ ]: over the prompts of one run alone; how far seeds differ is not known"
        return "±, [ ]: 95 % t interval; of the score as in the sweep, of gains over seeds and over prompts"

    @property
    def only_warned(self) -> tuple[str, ...]:
        """The guards that the sweep itself set to `warn`, so that a collapse is measured: no setting of a winner."""
        said = leaves(self.sweep.settings)
        return tuple(key for key in GUARDS if said.get(key) == "warn" and key not in self.trial["params"])

    @property
    def gain_metric(self) -> str:
        """What the gains of its stages are of."""
        return gain_metric(str(self.document["metric"]))

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
    if len(winner.trial["seeds"]) < 2:
        return f"trial {winner.number} has one seed: no significance test"
    if winner.alike:
        return f"trial {winner.number} is not significantly different from {trials_text(winner.alike)}"
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
    tree = nested(chosen)
    if profile == FULL:
        lines += commented(tree, "", said, 0)
        if dropped:
            lines += ["", "profiles:"]
    else:
        start = f"{_INDENT}{profile}:" if tree else f"{_INDENT}{profile}: {{}}"  # a profile of null is none
        lines += ["profiles:", start, *commented(tree, "", said, 2)]
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
        "trial": f"{winner.number}{named} of {len(document['trials'])}: {winner.score}"
        f" ({'no interval' if winner.interval is None else '95 % interval of the mean'})",
        "seeds": ", ".join(map(str, trial["seeds"])),
        **{f"stage {name}": gain_text(gain, winner.gain_metric) for name, gain in (trial.get("stages") or {}).items()},
        **({"intervals": winner.interval_kind.partition(": ")[2]} if trial.get("stages") else {}),
        "budget": spent,
        "searched": searched,
        "not searched": f"everything else: it is {base}'s, and its values below are the same in every trial",
        "significance": not_apart(winner)
        or ("different from all others at 95 %" if len(document["trials"]) > 1 else "no other"),
    }
    if winner.only_warned:
        facts["guards"] = f"{base}'s own: that {', '.join(winner.only_warned)} only warn was the study's, to measure"
    lines = ["Written by grpoctl promote. Yours to change; raise the revision when you do.", ""]
    for label, text in facts.items():
        lines += textwrap.wrap(
            f"{label:<13} {one_line(text)}", WIDTH, subsequent_indent=" " * 14, break_long_words=False,
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
