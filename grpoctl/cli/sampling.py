"""One `grpoctl sample`: the prompt as the model is given it, the draws, and how they are shown."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.config import ModelSpec, RunSpec
from core.errors import UserError
from core.tasks.base import Example
from core.tasks.text import text_example
from grpoctl import console
from grpoctl.cli.evaluating import sampling
from grpoctl.cli.places import print_choice
from grpoctl.cli.subjects import subject
from grpoctl.files import storage_errors
from grpoctl.runs.run_dir import Home

if TYPE_CHECKING:
    from core.policies.lm.causal_lm import CausalLMPolicy

LONGEST = 256  # tokens, where neither the command nor a run says


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the command line asked for; None where it did not say."""

    model: str
    prompt: str
    count: int = 1
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int = 0


def sample(asked: Asked) -> dict[str, Any]:
    """The JSON document of the draws. Raises UserError before anything heavy is loaded, later ModelError."""
    if asked.temperature is not None and not math.isfinite(asked.temperature):
        raise UserError(f"got --temperature {asked.temperature}; allowed: 0 (greedy) or more")
    home = Home.locate()
    weights = subject(home, asked.model, running_first=True)
    if weights.exported is not None:
        print_choice(home, asked.model, weights.exported.run)
    spec = weights.spec
    if spec is not None and spec.model is None:
        raise UserError(f"sample continues a text, and {weights.name} is of the policy {spec.policy.kind}; try eval")
    temperature = asked.temperature if asked.temperature is not None else spec.evaluation.temperature if spec else 1.0
    limit = asked.max_tokens or (spec.max_completion_length if spec else LONGEST)
    text = _prompt(asked.prompt)
    policy = weights.language_model(weights.model(spec.language_model if spec else ModelSpec(source=weights.source)))
    from core.randomness import PREVIEW, RowKey

    example = _example(text, spec)
    _check_room(policy, example, limit)
    started = time.perf_counter()
    keys = [RowKey(asked.seed, PREVIEW, 0, 0, row) for row in range(asked.count)]
    rollout = policy.sample([example], asked.count, sampling(temperature, limit), keys)
    seconds = time.perf_counter() - started
    drawn = rollout.drawn_NT.double().sum(-1).tolist() if rollout.drawn_NT is not None else [None] * asked.count
    rows = zip(rollout.outputs, rollout.tokens, drawn, rollout.truncated_N.tolist(), strict=True)
    return {
        "schema": 1,
        "model": weights.source,
        "adapter": None if weights.adapter is None else str(weights.adapter),
        "run_id": weights.run_id,
        "step": None if weights.exported is None else weights.exported.step,
        "prompt": text,
        "temperature": temperature,
        "max_tokens": limit,
        "seed": asked.seed,
        "completions": [
            {"text": output, "tokens": len(ids), "logprob": logprob, "truncated": cut}
            for output, ids, logprob, cut in rows
        ],
        "seconds": round(seconds, 3),
    }


def say(document: Mapping[str, Any]) -> None:
    """The completions on standard output; several with a line before each."""
    found = document["completions"]
    for number, one in enumerate(found, start=1):
        if len(found) > 1:
            console.print_text(f"--- {number}{' (cut off)' if one['truncated'] else ''}")
        console.print_data(one["text"])
    cut = sum(one["truncated"] for one in found)
    if cut:
        some = "it was" if len(found) == 1 else f"{cut} of {len(found)} were"
        console.print_note(f"{some} cut off at {document['max_tokens']} tokens; --max-tokens allows more")


def _check_room(policy: CausalLMPolicy, example: Example, limit: int) -> None:
    """Raises UserError where prompt and completion together are longer than the model has positions."""
    from core.policies.lm.causal_lm import prompt_text

    tokens = len(policy.tokenizer([prompt_text(policy.tokenizer, example)], add_special_tokens=False)["input_ids"][0])
    room = getattr(policy.model.config, "max_position_embeddings", None)
    if room is not None and tokens + limit > room:
        raise UserError(
            f"got a prompt of {tokens} tokens and {limit} to draw; this model has room for {room} together: "
            "shorten the prompt, or lower --max-tokens"
        )


def _prompt(given: str) -> str:
    """The prompt's text; `-` is standard input, less the line end that `echo` adds."""
    if given == "-":
        try:
            with storage_errors("read", Path("standard input")):
                text = sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            raise UserError(f"standard input is no UTF-8 at byte {error.start}; give the prompt as UTF-8") from None
    else:
        try:
            text = os.fsencode(given).decode(
                "utf-8"
            )  # in the C locale Python has read the bytes of an argument as ASCII
        except UnicodeDecodeError:
            raise UserError("the prompt is no UTF-8; give it as UTF-8") from None
    if not text.strip():
        raise UserError("the prompt is empty; give some text, or - to read it from standard input")
    return text


def _example(text: str, spec: RunSpec | None) -> Example:
    """The prompt as the run's own task gives prompts: through the chat template, after its system message."""
    task = None if spec is None else spec.task
    plain, system = not getattr(task, "chat_template", True), getattr(task, "system", None)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}] if system else None
    return text_example(id="prompt", prompt=text, messages=None if plain else messages, plain=plain)
