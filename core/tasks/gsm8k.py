r"""Gsm8kTask: word problems whose answer is one number, how it is read out of a completion, and what that earns.

Paper: arXiv 2110.14168. Problems come from a folder with train.jsonl and test.jsonl, or from the hub's `openai/gsm8k`.
Held-out ones come out of the training file, by `data_seed`: the test file is what no run looks at.

A completion's answer is `#### 18`, `\boxed{18}`, or just the last number. An answer *in a form* is one number and at
most a unit after it: `$1,080.00`, `-3 %`, `\frac{3}{4}`, `18 eggs per day.`, `x = 18`. A list of numbers is no answer,
so a model cannot earn anything by naming many. Of several answers in a form the last counts. Reading is linear in the
text's length.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Literal, assert_never, get_args

from core.config.task import Gsm8kTaskSpec
from core.errors import SpecError, TaskError
from core.tasks.base import Example, Outcome, Split, Table
from core.tasks.custom.formats import Row, read_hub, read_jsonl
from core.tasks.text import TextTask, text_example

Form = Literal["hashes", "boxed"]

_LONGEST = 40  # characters of a number: int() of a hostile digit string is slow, then an error
_HASHES = re.compile(r"(?<!#)####(?!#)[ \t]*((?:(?!####)[^\n])*)")
_BRACES = re.compile(r"\\boxed[ \t]*\{|\\[{}]|[{}]")
_PLAIN = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,]*\d)|\d+(?:\.\d+)?|\.\d+"
# A mixed number, a fraction, or a plain number. Of `a/b` both are plain; `18/hour` is 18.
_UNSIGNED = rf"\d+ +\d+/\d+|(?:{_PLAIN})(?: ?/ ?\d+(?:\.\d+)?)?"
_WHOLE = re.compile(rf"[-+]? ?({_UNSIGNED})(?P<unit>.*)", re.DOTALL | re.ASCII)
_LOOSE = re.compile(rf"(?:(?<![\w)])-)?(?<![\w^])(?:{_UNSIGNED})", re.ASCII)
# What may not follow an answer: another number (the 2 of `m^2`, `m2` and `m^{2}` is none), an exponent, a range.
_MORE = re.compile(r"^ ?(?:\^ ?-?\d|[eE][-+]?\d|[.,:/*x-] ?\d)|(?<![A-Za-z^\d])\d")
_FRACTION = re.compile(r"\\[dtc]?frac *(?:\{([^{}]*)\} *\{([^{}]*)\}|(\d) *(\d))")
_NOISE = re.compile(r"\\(?:left|right|displaystyle|[!,;:()\[\]])|[$€£¥`]|(?<![\d*])\*+|\*+(?![\d*])")
_COMMAND = re.compile(r"(?<=[A-Za-z])(?=\{)")  # between a command that is left and what it holds: 18\sqrt{2} is not 18
_WRAPPER = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname|boxed) *(?=\{)")


def answer_in(text: str, form: Form) -> Fraction | None:
    r"""The last answer of `text` in the asked form, `#### N` or `\boxed{N}`; None where there is none."""
    places: Sequence[str]
    match form:
        case "hashes":
            places = _HASHES.findall(text)
        case "boxed":
            places = _boxes(text)
        case _:
            assert_never(form)
    return next((value for place in reversed(places) if (value := whole(place)) is not None), None)


def lenient_answer(text: str, form: Form) -> Fraction | None:
    """The answer in the asked form, else in another one, else the last number of the text; None without a number.

    So whatever counts exactly counts leniently.
    """
    for candidate in (form, *(other for other in get_args(Form) if other != form)):
        if (value := answer_in(text, candidate)) is not None:
            return value
    numbers = _LOOSE.findall(_plain(text))
    return _value(numbers[-1]) if numbers else None


def whole(text: str) -> Fraction | None:
    """The number that is all of `text` but for currency signs, a unit and LaTeX around it; None for anything else."""
    plain = _plain(text).strip()
    if "=" in plain:  # 2 + 3 = 5, x = 5
        plain = plain.rpartition("=")[2].strip()
    match = _WHOLE.fullmatch(plain)
    if match is None or _MORE.search(match["unit"]):
        return None
    return _value(plain[: match.start("unit")])


def _value(text: str) -> Fraction | None:
    """The value of `-1,080.50`, `3/4` or `1 1/2`; None for what has no value or more than 40 characters."""
    if len(text) > _LONGEST:
        return None
    negative, unsigned = text.lstrip().startswith("-"), text.lstrip(" +-").replace(",", "")
    first, _, divisor = unsigned.partition("/")
    try:
        parts = [Fraction(part) for part in first.split()]
        if len(parts) == 2:  # a mixed number
            value = parts[0] + parts[1] / Fraction(divisor.strip())
        else:
            value = parts[0] / Fraction(divisor.strip() or 1)
    except (ValueError, ZeroDivisionError, IndexError):
        return None
    return -value if negative else value


def written(value: Fraction) -> str:
    """The number as one writes it: `1080`, `0.5`, `1/3`."""
    if value.denominator == 1:
        return str(value.numerator)
    exact = f"{float(value):.10f}".rstrip("0")
    return exact if Fraction(exact) == value else f"{value.numerator}/{value.denominator}"


def _boxes(text: str) -> Sequence[str]:
    r"""What stands in each closed `\boxed{...}`, in the order they close; braces inside are matched."""
    opened: list[int | None] = []
    contents = []
    for brace in _BRACES.finditer(text):
        token = brace.group()
        if token.startswith("\\boxed"):
            opened.append(brace.end())
        elif token == "{":
            opened.append(None)
        elif token == "}" and opened and (start := opened.pop()) is not None:
            contents.append(text[start : brace.start()])
    return contents


def _plain(text: str) -> str:
    """The text without LaTeX's and Markdown's dressing: `\\$1{,}080\\text{ eggs}` -> `1,080 eggs`."""
    text = text.replace("\u2212", "-").replace("\u00a0", " ").replace("{,}", ",").replace("~", " ")
    text = text.replace("\\%", "%").replace("\\$", "$").replace("\\ ", " ")
    text = _FRACTION.sub(lambda f: f" {f[1] or f[3]}/{f[2] or f[4]}", _NOISE.sub("", _WRAPPER.sub("", text)))
    text = _COMMAND.sub(" ", text)
    return re.sub(r"[ \t]+", " ", text.replace("{", "").replace("}", ""))


HUB, CONFIG = "openai/gsm8k", "main"
KEY = "task.path"
_MARKS = re.compile(r"<<[^<>\n]*>>")  # the calculator's: 48/2 = <<48/2=24>>24


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A question, its worked solution without calculator marks and without the last line, and its answer."""

    question: str
    solution: str
    answer: Fraction

    @property
    def steps(self) -> int:
        """Lines of the solution: how many steps its writer took."""
        return len(self.solution.splitlines())


def problems(path: str | None, part: Literal["train", "test"]) -> tuple[Problem, ...]:
    """All problems of a part, in the order of its file. Raises SpecError naming the file and the line."""
    rows = _hub_rows(part) if path is None else _file_rows(Path(os.path.expanduser(path)), part)
    if not rows:
        raise SpecError(f"got no problem in {part}.jsonl; each line is one, with question and answer", key=KEY)
    return tuple(_problem(row) for row in rows)


def _problem(row: Row) -> Problem:
    question, worked = row.values.get("question"), row.values.get("answer")
    if not isinstance(question, str) or not isinstance(worked, str):
        got = ", ".join(row.values) or "nothing"
        raise row.refused(f"got {got}; a problem has question and answer, both text", key=KEY)
    worked = _MARKS.sub("", worked).strip()
    answer = answer_in(worked, "hashes")
    if answer is None or not question.strip():
        lacks = "a last line `#### N`, N being a number" if answer is None else "a question"
        raise row.refused(f"the problem lacks {lacks}", key=KEY)
    return Problem(question=question.strip(), solution=worked[: worked.rindex("####")].strip(), answer=answer)


def _file_rows(folder: Path, part: str) -> list[Row]:
    file = folder / f"{part}.jsonl"
    if not file.is_file():
        lacks = f"no {file.name} in {folder}" if folder.is_dir() else f"{folder}, which is no folder"
        raise SpecError(f"got {lacks}; allowed: a folder with train.jsonl and test.jsonl", key=KEY)
    try:
        return read_jsonl(file)
    except OSError as error:
        raise SpecError(f"cannot read {file}: {error.strerror or error}", key=KEY) from error


def _hub_rows(part: str) -> list[Row]:
    """The rows of the hub's dataset, from the local cache where the hub cannot be reached."""
    try:
        return read_hub(HUB, CONFIG, part, None)
    except SpecError as error:
        reason = error.message.rpartition("; ")[0]  # its advice is for another task
        advice = "give task.path=FOLDER, a folder with its train.jsonl and test.jsonl"
        raise SpecError(f"{reason}; {advice}", key=KEY) from None


# Both as their users know them: verl's prompt for GSM8K, and the one of Qwen2.5-Math's model cards.
ASKS = {
    "hashes": 'Let\'s think step by step and output the final answer after "####".',
    "boxed": "Please reason step by step, and put your final answer within \\boxed{}.",
}
_BLANKS = re.compile(r"\W+")


class Gsm8kTask(TextTask):
    """GSM8K; see core.tasks.base.Task. Reads its problems when they are first asked for."""

    def __init__(self, spec: Gsm8kTaskSpec) -> None:
        self.spec = spec

    def examples(self, split: Split) -> Sequence[Example]:
        """All problems of a split; ids `train-00000`, ..., facts `question`, `answer`, `solution`, `steps`.

        `steps` are the lines of the worked solution, something to slice evaluations by. Raises SpecError where the
        files are not what they should be, or hold fewer problems than are asked for.
        """
        return self._test if split == "test" else self._splits[split]

    @cached_property
    def _splits(self) -> dict[Split, tuple[Example, ...]]:
        pool, spec = problems(self.spec.path, "train"), self.spec
        rng = Random(f"gsm8k/{spec.data_seed}")
        keys = [rng.random() for _ in pool]
        order = [pool[index] for index in sorted(range(len(pool)), key=keys.__getitem__)]
        # Held out first: they stay the same whatever train_prompts is.
        held_out = order[: spec.eval_prompts]
        known = {normalised(problem.question) for problem in held_out}
        rest = [problem for problem in order[spec.eval_prompts :] if normalised(problem.question) not in known]
        if len(held_out) < spec.eval_prompts or len(rest) < spec.train_prompts:
            raise SpecError(
                f"train_prompts + eval_prompts = {spec.train_prompts + spec.eval_prompts}, but there are only "
                f"{len(held_out) + len(rest)} problems to learn from and hold out; ask for fewer",
                key="task",
            )
        return {"train": self._built("train", rest[: spec.train_prompts]), "eval": self._built("eval", held_out)}

    @cached_property
    def _test(self) -> tuple[Example, ...]:
        return self._built("test", problems(self.spec.path, "test"))

    def _built(self, split: Split, chosen: Sequence[Problem]) -> tuple[Example, ...]:
        return tuple(
            text_example(
                id=f"{split}-{index:05d}",
                prompt=f"{problem.question} {ASKS[self.spec.answer_form]}",
                facts={
                    "question": problem.question,
                    "answer": written(problem.answer),
                    "solution": problem.solution,
                    "steps": problem.steps,
                },
            )
            for index, problem in enumerate(chosen)
        )

    def score(
        self, examples: Sequence[Example], outputs: Sequence[str], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """1 for the right number as `spec.score` reads it, `format_reward` for a wrong one in the asked form, else 0.

        Parts: `exact` (right, and in the asked form), `lenient` (right as `lenient_answer` reads it), `format`
        (an answer in the asked form, whether right or wrong). Valid is an answer in the asked form; with a lenient
        score any number. Raises TaskError on an example of another task.
        """
        return [self._outcome(example, output) for example, output in zip(examples, outputs, strict=True)]

    def _outcome(self, example: Example, output: str) -> Outcome:
        if "answer" not in example.facts or "solution" not in example.facts:
            raise TaskError(f"example {example.id} has no answer and solution: it is no problem of gsm8k")
        gold, form = Fraction(str(example.facts["answer"])), self.spec.answer_form
        strict, lenient = answer_in(output, form), lenient_answer(output, form)
        match self.spec.score:
            case "exact":
                answer = strict
            case "lenient":
                answer = lenient
            case _:
                assert_never(self.spec.score)
        reward = 1.0 if answer == gold else self.spec.format_reward if strict is not None else 0.0
        return Outcome(
            reward=reward,
            expected=reward,
            valid=answer is not None,
            parts={
                "exact": float(strict == gold),
                "lenient": float(lenient == gold),
                "format": float(strict is not None),
            },
        )

    def target(self, example: Example) -> str:
        """The worked solution without calculator marks, and its answer in the asked form on a last line."""
        answer = example.facts["answer"]
        match self.spec.answer_form:
            case "hashes":
                last = f"#### {answer}"
            case "boxed":
                last = f"The answer is \\boxed{{{answer}}}."
            case _:
                assert_never(self.spec.answer_form)
        return f"{example.facts['solution']}\n{last}"

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        """Accuracy over the steps, and how answers fail."""
        return sample_tables(samples)


def normalised(text: str) -> str:
    """The text's words in lower case, one blank between them: what makes two questions one."""
    return _BLANKS.sub(" ", text.lower()).strip()


PARTS = ("exact", "lenient", "format")
_QUARTERS = 4
# A row is of the first kind whose part it has.
KINDS = {
    "exact": "right, in the asked form",
    "lenient": "right, not in the asked form",
    "format": "wrong, in the asked form",
    "": "wrong or none, not in the asked form",
}


def sample_tables(samples: Sequence[Mapping[str, object]]) -> list[Table]:
    """Two tables; rows without the task's scores are left out."""
    scored = [(int(str(row["step"])), _parts(row)) for row in samples]
    known = [(step, parts) for step, parts in scored if parts is not None]
    return [_over_steps(known), _kinds([parts for _, parts in known])]


def _parts(row: Mapping[str, object]) -> Mapping[str, float] | None:
    parts = row.get("rewards")
    return parts if isinstance(parts, Mapping) and all(name in parts for name in PARTS) else None


def _over_steps(rows: Sequence[tuple[int, Mapping[str, float]]]) -> Table:
    """A line for each quarter of the steps that were sampled on."""
    steps = sorted({step for step, _ in rows})
    lines = []
    for quarter in range(_QUARTERS):
        chosen = steps[quarter * len(steps) // _QUARTERS : (quarter + 1) * len(steps) // _QUARTERS]
        inside = [parts for step, parts in rows if chosen and chosen[0] <= step <= chosen[-1]]
        if inside:
            shares = (_share(parts[name] for parts in inside) for name in PARTS)
            lines.append((f"{chosen[0]} to {chosen[-1]}", str(len(inside)), *shares))
    return Table(title="Accuracy over the steps", columns=("steps", "samples", *PARTS), rows=tuple(lines))


def _kinds(rows: Sequence[Mapping[str, float]]) -> Table:
    counts = dict.fromkeys(KINDS, 0)
    for row in rows:
        counts[next(part for part in KINDS if row.get(part, 1.0) > 0)] += 1
    lines = tuple((KINDS[part], str(count), _share([count / max(1, len(rows))])) for part, count in counts.items())
    return Table(title="Answers", columns=("answer", "samples", "share"), rows=lines)


def _share(values: Iterable[float]) -> str:
    numbers = [*values]
    return f"{100 * sum(numbers) / len(numbers):.1f} %"
