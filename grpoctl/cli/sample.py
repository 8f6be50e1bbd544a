"""`grpoctl sample`: what a model, or what a run made of it, answers."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.config import ModelSpec, RunSpec
from core.errors import UserError
from core.tasks.base import Example
from core.tasks.text import text_example
from grpoctl import console
from grpoctl.cli.lookup import find_weights, print_choice
from grpoctl.cli.options import Json
from grpoctl.files import storage_errors
from grpoctl.runs.run_dir import Home

if TYPE_CHECKING:
    from core.policies.lm.causal_lm import CausalLMPolicy

LONGEST = 256  # tokens, where neither the command nor a run says


def sample(
    model: Annotated[str, typer.Argument(metavar="RUN|MODEL", help="Run, builtin:tiny, small, folder, hub id.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The prompt; - reads standard input.")],
    count: Annotated[int, typer.Option("-n", help="Number of completions.", min=1, max=10_000, metavar="K")] = 1,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; 0 = greedy. Default: the run's, else 1.", min=0)
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Longest completion. Default: the run's, else 256.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Sampling seed.", min=0)] = 0,
    json: Json = False,
) -> None:
    if temperature is not None and not math.isfinite(temperature):
        raise UserError(f"got --temperature {temperature}; allowed: 0 (greedy) or more")
    home = Home.locate()
    weights = find_weights(home, model, running_first=True)
    if weights.exported is not None:
        print_choice(home, model, weights.exported.run)
    spec = weights.spec
    if spec is not None and spec.model is None:
        raise UserError(f"sample continues a text, and {weights.name} is of the policy {spec.policy.kind}; try eval")
    if temperature is None:
        temperature = spec.evaluation.temperature if spec else 1.0
    limit = max_tokens or (spec.max_completion_length if spec else LONGEST)
    text = _prompt(prompt)
    policy = weights.language_model(weights.model(spec.language_model if spec else ModelSpec(source=weights.source)))
    from core.policies.base import Sampling
    from core.randomness import PREVIEW, RowKey

    example = _example(text, spec)
    _check_room(policy, example, limit)
    started = time.perf_counter()
    keys = [RowKey(seed, PREVIEW, 0, 0, row) for row in range(count)]
    rollout = policy.sample([example], count, Sampling.at(temperature, limit), keys)
    seconds = time.perf_counter() - started
    logprobs = rollout.drawn_NT.double().sum(-1).tolist() if rollout.drawn_NT is not None else [None] * count
    rows = zip(rollout.outputs, rollout.tokens, logprobs, rollout.truncated_N.tolist(), strict=True)
    completions = [
        {"text": output, "tokens": len(ids), "logprob": logprob, "truncated": truncated}
        for output, ids, logprob, truncated in rows
    ]
    document = {
        "schema": 1,
        "model": weights.source,
        "adapter": None if weights.adapter is None else str(weights.adapter),
        "run_id": weights.run_id,
        "step": None if weights.exported is None else weights.exported.step,
        "prompt": text,
        "temperature": temperature,
        "max_tokens": limit,
        "seed": seed,
        "completions": completions,
        "seconds": round(seconds, 3),
    }
    if json:
        console.print_json(document)
    else:
        _print(completions, limit)


def _print(completions: Sequence[Mapping[str, Any]], limit: int) -> None:
    """Print the completions; several with a line before each."""
    for number, completion in enumerate(completions, start=1):
        if len(completions) > 1:
            console.print_text(f"--- {number}{' (cut off)' if completion['truncated'] else ''}")
        console.print_data(completion["text"])
    truncated = sum(completion["truncated"] for completion in completions)
    if truncated:
        some = "it was" if len(completions) == 1 else f"{truncated} of {len(completions)} were"
        console.print_note(f"{some} cut off at {limit} tokens; --max-tokens allows more")


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


def _prompt(argument: str) -> str:
    """The prompt's text; `-` is standard input, less the line end that `echo` adds."""
    if argument == "-":
        try:
            with storage_errors("read", Path("standard input")):
                text = sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            raise UserError(f"standard input is no UTF-8 at byte {error.start}; give the prompt as UTF-8") from None
    else:
        try:
            # In the C locale Python has read the bytes of an argument as ASCII.
            text = os.fsencode(argument).decode("utf-8")
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
