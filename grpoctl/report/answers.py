"""The same held-out problems on two sides: a scatter of what each earned, and the texts, worst regressions first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from core.health.rules.gains import HEADLINE
from grpoctl.analysis.problems import COLUMNS, Answered, Answers
from grpoctl.report import document
from grpoctl.report.charts import scatter, shortened
from grpoctl.report.document import Answer, Chart, Problem, Table
from grpoctl.wording import plural

NOT_RECORDED = "not recorded: these runs are of an older version, or were trained by another program"
_WORST, _BEST, _SAME = 20, 5, 3  # problems whose answers are shown
_SEEDS = 3  # runs of a side whose answers are shown
_LONGEST = 1200  # characters of a prompt or an answer
_EQUAL = 1e-3  # of the range of all rewards: a change that is no larger is called none


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated:
    """One side: its name, and one evaluation of each of its runs with who answered it."""

    name: str
    evaluations: tuple[tuple[str, Answered], ...]


def at_the_end(name: str, runs: Sequence[Answers]) -> Evaluated | None:
    """What runs answered at their end; None where one did not record it."""
    last = [(f"seed {one.run.seed}", one.last) for one in runs]
    return _evaluated(name, [(who, of) for who, of in last if of is not None], len(runs))


def at_the_start(name: str, runs: Sequence[Answers]) -> Evaluated | None:
    """What runs answered before any step; None where one did not record it, or recorded nothing later."""
    first = [(f"seed {one.run.seed}", one.of_step(0)) for one in runs if len(one.steps) > 1 and one.steps[0] == 0]
    return _evaluated(name, first, len(runs))


def _evaluated(name: str, evaluations: Sequence[tuple[str, Answered]], of: int) -> Evaluated | None:
    same = len({answered.problems for _, answered in evaluations}) == 1
    scored = all(COLUMNS[HEADLINE] in answered.columns for _, answered in evaluations)
    return Evaluated(name=name, evaluations=tuple(evaluations)) if len(evaluations) == of and same and scored else None


def side_by_side(name: str, first: Evaluated | None, second: Evaluated | None) -> list[Chart | document.Answers]:
    """The scatter and the texts; none where a side did not record its answers or was asked other problems."""
    if first is None or second is None or first.evaluations[0][1].problems != second.evaluations[0][1].problems:
        return []
    problems = _problems(first, second)
    return [_scatter(name, first, second, problems), _texts(first, second, problems)] if problems else []


def _problems(first: Evaluated, second: Evaluated) -> list[Problem]:
    """Every problem whose reward is known on both sides."""
    asked = first.evaluations[0][1]
    before, after = _means(first), _means(second)
    known = [place for place in range(len(asked.problems)) if not math.isnan(after[place] - before[place])]
    rewards = [of_side[place] for place in known for of_side in (before, after)] or [0.0]
    equal = _EQUAL * (max(rewards) - min(rewards))
    return [
        Problem(
            id=asked.prompt_ids[place],
            prompt=_cut(asked.prompts[place] or asked.prompt_ids[place]),
            before=before[place],
            after=after[place],
            became=_became(after[place] - before[place], equal),
            answers=(_answers(first, place), _answers(second, place)),
        )
        for place in known
    ]


def _became(change: float, equal: float) -> Literal["worse", "better", "equal"]:
    if abs(change) <= equal:
        return "equal"
    return "better" if change > 0 else "worse"


def _means(side: Evaluated) -> list[float]:
    import numpy as np

    rewards_SM = np.stack([answered.columns[COLUMNS[HEADLINE]] for _, answered in side.evaluations])
    return [float(value) for value in rewards_SM.mean(0)]


def _answers(side: Evaluated, place: int) -> tuple[Answer, ...]:
    """The first draw of each of the first runs; what it earned is the mean over its draws."""
    answers = []
    for who, answered in side.evaluations[:_SEEDS]:
        reward = float(answered.columns[COLUMNS[HEADLINE]][place])
        known = None if math.isnan(reward) else reward
        answers.append(Answer(who=who, reward=known, text=_cut(answered.outputs[place][0])))
    return tuple(answers)


def _scatter(name: str, first: Evaluated, second: Evaluated, problems: Sequence[Problem]) -> Chart:
    rows = tuple(
        (problem.id, shortened(problem.prompt, 90), problem.before, problem.after, problem.became)
        for problem in problems
    )
    rewards = [value for problem in problems for value in (problem.before, problem.after)]
    counts = {word: sum(row[-1] == word for row in rows) for word in ("worse", "better", "equal")}
    return Chart(
        name=name,
        title=f"Each problem: {shortened(first.name)} against {shortened(second.name)}",
        reads=(
            "A dot is one held-out problem, its reward the mean over "
            f"{plural(len(first.evaluations), 'run')} and their draws. Above the diagonal the second side "
            f"earns more. {_counts_text(counts)}"
        ),
        spec=scatter(name, f"reward, {shortened(first.name, 30)}", f"reward, {shortened(second.name, 30)}",
                     (min(rewards), max(rewards))),
        tables={name: Table(columns=("problem", "prompt", "a", "b", "became"), rows=rows)},
    )  # fmt: skip


def _counts_text(counts: dict[str, int]) -> str:
    return f"{plural(counts['worse'], 'problem')} got worse, {counts['better']} better, {counts['equal']} stayed equal."


def _texts(first: Evaluated, second: Evaluated, problems: Sequence[Problem]) -> document.Answers:
    """The worst regressions, then the largest gains, then some that stayed equal."""
    order = sorted(problems, key=lambda problem: problem.change)
    worst = [problem for problem in order if problem.became == "worse"][:_WORST]
    best = [problem for problem in reversed(order) if problem.became == "better"][:_BEST]
    same = [problem for problem in order if problem.became == "equal"][:_SAME]
    shown = [
        *([f"the {plural(len(worst), 'worst regression')}, worst first"] if worst else []),
        *([f"the {plural(len(best), 'largest gain')}"] if best else []),
        *([f"{len(same)} that stayed equal"] if same else []),
    ]
    reads = (
        f"{'' if worst else 'No problem got worse. '}Shown: {'; '.join(shown)}. {_means_text(first, second)} "
        "What one problem changed by is mostly chance: read these to see how answers differ, not how many do."
    )
    return document.Answers(
        title="The same prompts side by side",
        reads=reads,
        sides=(first.name, second.name),
        problems=(*worst, *best, *same),
    )


def _means_text(first: Evaluated, second: Evaluated) -> str:
    """What a problem's reward is the mean over, and which of the answers behind it are shown."""
    runs = [len(side.evaluations) for side in (first, second)]
    draws = [side.evaluations[0][1].draws for side in (first, second)]
    of = "each run"
    if max(runs) > _SEEDS:
        shown = dict.fromkeys(f"{min(_SEEDS, number)} of {plural(number, 'run')}" for number in runs)
        of = f"{' and '.join(shown)} a side"
    return (
        f"The reward beside a problem is the mean over {_of_sides(runs, 'run')} a side, {_of_sides(draws, 'draw')} "
        f"each; below stands the first draw of {of}, with the mean over that run's draws."
    )


def _of_sides(numbers: Sequence[int], what: str) -> str:
    """`5 runs`; where the sides differ `5 and 3 runs`."""
    *others, last = dict.fromkeys(numbers)
    return " and ".join([*map(str, others), plural(last, what)])


def _cut(text: str) -> str:
    """The text, or its beginning and how much more there is."""
    more = len(text) - _LONGEST
    return text if more <= 0 else f"{text[:_LONGEST]}… ({more:,} more characters)"
