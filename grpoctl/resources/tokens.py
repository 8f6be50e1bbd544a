"""How long prompts and answers get, in tokens: by the model's own tokenizer where its file is here, else guessed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.config import RunSpec
from core.health.before.resources.memory import Tokens
from core.tasks.base import Example, Task
from core.tasks.text import prompt_of

TOKENIZER = "tokenizer.json"
CHARACTERS = 3.0  # of a token, at least, where no tokenizer says: English has four and more, code and numbers three
TEMPLATE = 40  # tokens that a chat template adds around one message, with its usual system message


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """The longest prompt and answer; `whence`: who counted."""

    tokens: Tokens
    whence: str


def lengths(spec: RunSpec, task: Task, folder: Path | None) -> Lengths:
    """Of the task's training and held-out problems. Raises TaskError where a supervised stage finds no answers."""
    examples = [*task.examples("train"), *task.examples("eval")]
    supervised = any(not stage.rows_per_step or _blended(stage) for stage in spec.stages.values())
    answers = [task.target(example) for example in task.examples("train")] if supervised else []
    file = folder / TOKENIZER if folder is not None and (folder / TOKENIZER).is_file() else None
    counted = _counted(file, [_text(one) for one in examples], answers)
    template = TEMPLATE if file is None or _templated(file.parent) else 0
    template = 0 if spec.language_model.source.startswith("builtin:") else template
    if counted is not None:
        prompt, answer = counted
        return Lengths(tokens=Tokens(prompt=prompt + template, answer=answer + 1), whence="the model's tokenizer")
    prompt, answer = (_guessed(texts) for texts in ([_text(one) for one in examples], answers))
    tokens = Tokens(prompt=prompt + template, answer=answer + 1)
    return Lengths(tokens=tokens, whence=f"a guess, {CHARACTERS:g} characters to a token")


def _templated(folder: Path) -> bool:
    """Whether the tokenizer has a chat template: in a file of its own, or among its settings."""
    settings = folder / "tokenizer_config.json"
    with suppress(OSError, ValueError):
        return (folder / "chat_template.jinja").is_file() or '"chat_template"' in settings.read_text(encoding="utf-8")
    return False


def _blended(stage: object) -> bool:
    weight = getattr(stage, "supervised_weight", None)
    return weight is not None and weight.ever


def _text(example: Example) -> str:
    return prompt_of(example).words


def _counted(file: Path | None, prompts: Sequence[str], answers: Sequence[str]) -> tuple[int, int] | None:
    if file is None:
        return None
    from tokenizers import Tokenizer

    with suppress(Exception):  # the library raises nothing narrower for a file that is none; a guess will do
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        counts = [
            max((len(one) for one in tokenizer.encode_batch(list(texts), add_special_tokens=False)), default=0)
            for texts in (prompts, answers)
        ]
        return counts[0], counts[1]
    return None


def _guessed(texts: Sequence[str]) -> int:
    return max((round(len(text) / CHARACTERS) for text in texts), default=0)
