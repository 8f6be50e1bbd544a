"""What is known of a spec's model without loading it: its shapes, whether its weights are here, and how long prompts
and answers get in its tokens. No torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.config import ModelSpec, RunSpec
from core.errors import ModelError
from core.health.before.resources.memory import Tokens
from core.health.before.resources.shapes import PUBLISHED, Shape, from_config
from core.models import catalogue
from core.models.sources.local import chat_template
from core.tasks.base import Example, Task
from core.tasks.text import prompt_of

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
CHARACTERS = 3.0  # of a token, at least, where no tokenizer says: English has four and more, code and numbers three
TEMPLATE = 40  # tokens that a chat template adds around one message, with its usual system message
_KEYS = {  # a GGUF file's names for what a config.json says
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "intermediate_size": "feed_forward_length",
    "head_dim": "attention.key_length",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownModel:
    """A model by its shapes. `whence`: what says so; `folder`: its weights on this machine, None where not here."""

    source: str
    shape: Shape
    whence: str
    folder: Path | None

    @property
    def at_hand(self) -> bool:
        """Whether it can be loaded without downloading anything; the built-in one is built where it is not there."""
        return self.folder is not None or self.source.startswith("builtin:")


def known_model(spec: ModelSpec) -> KnownModel:
    """Raises ModelError where nothing on this machine says what the model is like."""
    source, file = spec.source, Path(os.path.expanduser(spec.source))
    if file.is_file():
        return KnownModel(source=source, shape=_from_gguf(file), whence=f"{file.name} itself", folder=file.parent)
    folder = catalogue.local_folder(source, spec.revision)
    config = _config(folder, spec)
    if config is not None:
        return KnownModel(source=source, shape=from_config(_read(config), source), whence=CONFIG, folder=folder)
    if source in PUBLISHED:
        return KnownModel(source=source, shape=PUBLISHED[source], whence="its published shapes", folder=folder)
    if source.startswith(("builtin:", ".", "/", "~")):
        raise ModelError(
            f"got model.source {source!r}, and there is no {CONFIG}; allowed: builtin:tiny, a model's folder"
        )
    raise ModelError(
        f"the shapes of {source!r} are not known here: download its configuration (hf download {source} {CONFIG}), "
        "or give a local directory as model.source"
    )


def _config(folder: Path | None, spec: ModelSpec) -> Path | None:
    """The model's config.json, also where the hub's cache holds nothing else of it."""
    if folder is not None:
        return folder / CONFIG if (folder / CONFIG).is_file() else None
    if spec.source.startswith((".", "/", "~", "builtin:")):
        return None
    from huggingface_hub import try_to_load_from_cache

    file = try_to_load_from_cache(spec.source, CONFIG, revision=spec.revision)
    return Path(file) if isinstance(file, str) else None


def _read(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {file}: {error}; download the model again") from error
    if not isinstance(config, dict):
        raise ModelError(f"{file} is no model's configuration: it holds no mapping; download the model again")
    nested = config.get("text_config")  # of a model that also sees
    return {**config, **nested} if isinstance(nested, dict) else config


def _from_gguf(file: Path) -> Shape:
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer")}
        names = {tensor.name: tensor.shape for tensor in reader.tensors}
        family = str(fields["general.architecture"])
        config = {ours: fields.get(f"{family}.{theirs}") for ours, theirs in _KEYS.items()}
        vocabulary = int(max(names["token_embd.weight"]))
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelError(f"{file} is not a whole GGUF file ({error}); download it again") from error
    tied = "output.weight" not in names
    return from_config(
        {**config, "vocab_size": vocabulary, "model_type": family, "tie_word_embeddings": tied}, str(file)
    )


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
    counted = _counted(file, [_text(example) for example in examples], answers)
    template = TEMPLATE if file is None or chat_template(file.parent) else 0
    template = 0 if spec.language_model.source.startswith("builtin:") else template
    if counted is not None:
        prompt, answer = counted
        return Lengths(tokens=Tokens(prompt=prompt + template, answer=answer + 1), whence="the model's tokenizer")
    prompt, answer = (_guessed(texts) for texts in ([_text(example) for example in examples], answers))
    tokens = Tokens(prompt=prompt + template, answer=answer + 1)
    return Lengths(tokens=tokens, whence=f"a guess, {CHARACTERS:g} characters to a token")


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
            max(
                (len(encoding) for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)), default=0
            )
            for texts in (prompts, answers)
        ]
        return counts[0], counts[1]
    return None


def _guessed(texts: Sequence[str]) -> int:
    return max((round(len(text) / CHARACTERS) for text in texts), default=0)
