"""Who trains: grpoctl's own trainer, TRL's, or a command that starts anybody's; and the words of that command.

No shell ever sees the command: it is split into words as a shell would, then placeholders are filled in word by word,
so a value with spaces, quotes or newlines arrives as it is.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from core.config.part import LATE, Part, Positive, PositiveInt, refusal
from core.config.trl.fit import argument_problem
from core.config.trl.values import combination_problems
from core.errors import SpecError

Scalar = bool | int | float | str
_SCHEDULE = frozenset({"start", "end", "steps"})
OF_THE_RUN = ("run_dir", "name", "profile", "seed")
_OF_KIND = {
    "command": ("command", "resume_command", "metrics", "map", "params"),
    "trl": ("args", "processes", "accelerate_config"),
}


class TrainerSpec(Part):
    """`kind: trl` is TRL's GRPOTrainer, in `processes` processes that accelerate starts.

    `args` are further fields of its GRPOConfig, by name; `accelerate_config` is accelerate's file (FSDP, DeepSpeed).

    `kind: command` starts a program of your own, which learns its settings from its command line alone.
    `{learning_rate}` is the spec's value of the only key with that ending, `{run_dir}` where the run's files are; `{{`
    is a brace. `metrics` is the file or folder that is read while it runs, null: what it prints.
    """

    kind: Literal["grpoctl", "trl", "command"] = "grpoctl"
    args: Annotated[dict[str, Any], LATE] = Field(default_factory=dict)
    processes: Annotated[PositiveInt, LATE] = 1
    accelerate_config: Annotated[Annotated[str, Field(min_length=1)] | None, LATE] = None
    command: Annotated[str, Field(min_length=1)] | None = None
    resume_command: Annotated[str, Field(min_length=1)] | None = None  # goes on with a run; null: it begins again
    metrics: Annotated[str, Field(min_length=1)] | None = None
    map: dict[str, str] = Field(default_factory=dict)  # our metric -> what the log calls it
    params: dict[str, Scalar] = Field(default_factory=dict)  # settings that only the program knows
    grace: Positive = 10.0  # seconds between asking it to end and ending it

    @model_validator(mode="after")
    def _belongs_to_its_kind(self) -> TrainerSpec:
        for kind, keys in _OF_KIND.items():
            for key in keys:
                if kind != self.kind and getattr(self, key) != type(self).model_fields[key].get_default(
                    call_default_factory=True
                ):
                    raise refusal(key, f"belongs to kind: {kind}, and the kind is {self.kind}; leave it out")
        if self.kind == "command" and self.command is None:
            raise refusal("command", "is null; give the command line that starts the trainer")
        for name, value in self.args.items():
            if (problem := argument_problem(name, value)) is not None:
                raise refusal(f"args.{name}", problem)
        for name, problem in combination_problems(self.args):
            raise refusal(f"args.{name}", problem)
        return self


def unused_seed(trainer: TrainerSpec, seeds: int) -> str | None:
    """What to know before several seeds of a command that is not told its seed; None where there is nothing."""
    if seeds < 2 or trainer.command is None or "{seed}" in trainer.command:
        return None
    return "trainer.command has no {seed}: every seed starts the same command, and their spread says nothing; put it in"


def words(template: str, spec: Mapping[str, Any], run_dir: str, *, key: str = "trainer.command") -> list[str]:
    """The words of a command line, placeholders filled in from a spec (plain values, as spec.yaml has them).

    Raises SpecError for quotes that do not end, and for a placeholder that names nothing, several keys, or no scalar.
    """
    try:
        parts = shlex.split(template)
    except ValueError as error:
        raise SpecError(f"got {template!r}: {error}", key=key) from None
    if not parts:
        raise SpecError("got no word; give a command line", key=key)
    known = {**dict(_leaves(spec)), "run_dir": run_dir}
    filled = ["".join(_filled(part, known, key)) for part in parts]
    for word in filled:
        if "\0" in word:
            raise SpecError(f"got {word!r}: no program can be given the character U+0000", key=key)
    return filled


def _filled(word: str, known: Mapping[str, Any], key: str) -> Iterator[str]:
    try:
        fields = list(Formatter().parse(word))
    except ValueError as error:
        raise SpecError(f"got {word!r}: {error}; a brace that is meant is written twice", key=key) from None
    for text, name, form, conversion in fields:
        yield text
        if name is None:
            continue
        if form or conversion:
            raise SpecError(f"got {{{name}:{form}}}; allowed: {{{name}}} alone", key=key)
        yield text_of(_value(name, known, key))


def text_of(value: Scalar) -> str:
    """A value as a command line has it: floats so that they read back exactly, true and false."""
    return json.dumps(value) if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)


def _value(name: str, known: Mapping[str, Any], key: str) -> Scalar:
    """The value of a placeholder: a whole key, else the only one that ends so (`trainer.params` are keys, too)."""
    fitting = [name] if name in known else [path for path in known if path.endswith(f".{name}")]
    if len(fitting) > 1:
        raise SpecError(f"got {{{name}}}, which may be {' or '.join(fitting[:4])}; write one of them", key=key)
    if not fitting:
        endings = sorted({path.rpartition(".")[2] for path in known})
        near = difflib.get_close_matches(name, endings, n=1)
        hint = (
            f"did you mean {{{near[0]}}}?" if near else f"known, among others: {', '.join(OF_THE_RUN)}, learning_rate"
        )
        raise SpecError(f"got {{{name}}}, which is no key of the spec; {hint}", key=key)
    value = known[fitting[0]]
    if not isinstance(value, Scalar):
        got = "null" if value is None else "no single value"
        raise SpecError(f"got {{{name}}}, and {fitting[0]} is {got}; set it, or leave the placeholder out", key=key)
    return value


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value); a schedule that stays where it starts is its number."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and not (value.keys() >= _SCHEDULE and value["start"] == value["end"]):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value["start"] if isinstance(value, Mapping) else value
