"""Problems whose outputs are text: what a language model is given, and how texts are recorded and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.tasks.base import Example, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """What a language model is given.

    `messages` are a conversation (`role` and `content` each) that is given instead of `text`, which is then its last
    words. `plain`: the text is continued as it stands, without the tokenizer's chat template.
    """

    text: str
    messages: Sequence[Mapping[str, str]] | None = None
    plain: bool = False

    @property
    def words(self) -> str:
        """All that is said: the text, or every message of the conversation."""
        if self.messages is None:
            return self.text
        return "\n".join(str(message.get("content", "")) for message in self.messages)


def text_example(
    *,
    id: str,  # noqa: A002 - the name of the field
    prompt: str,
    facts: Mapping[str, object] | None = None,
    messages: Sequence[Mapping[str, str]] | None = None,
    plain: bool = False,
) -> Example:
    """A problem that a language model is given as text; `messages` and `plain` as in `Prompt`."""
    return Example(id=id, inputs={"prompt": Prompt(text=prompt, messages=messages, plain=plain)}, facts=facts or {})


def prompt_of(example: Example) -> Prompt:
    """What a language model is given of an example. Raises TypeError for one that is no text."""
    prompt = example.inputs.get("prompt")
    if not isinstance(prompt, Prompt):
        raise TypeError(f"example {example.id} has {', '.join(example.inputs)}, a language model needs a prompt")
    return prompt


class TextTask(Task):
    """What tasks with text outputs share."""

    def record(self, output: Any) -> Mapping[str, object]:
        """The text."""
        return {"text": output}

    def shown(self, example: Example) -> str:
        """The prompt's text."""
        return prompt_of(example).text

    def shown_output(self, sample: Mapping[str, object]) -> str:
        """The completion."""
        return str(sample["text"])
