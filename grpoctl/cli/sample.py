"""`grpoctl sample`: what a model, or what a run made of it, answers."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.config import ModelSpec, RunSpec
from core.errors import MissingPackageError, NotFoundError, SpecError, UserError
from core.tasks import registry
from core.tasks.base import Example, Outcome, Task
from core.tasks.text import text_example
from grpoctl import console
from grpoctl.cli.lookup import Weights, find_weights, print_choice
from grpoctl.cli.options import Json
from grpoctl.files import replace_bytes, storage_errors
from grpoctl.runs.run_dir import Home
from grpoctl.wording import metric_text

if TYPE_CHECKING:
    from core.policies.lm.causal_lm import CausalLMPolicy

LONGEST = 256  # tokens, where neither the command nor a run says


def sample(
    model: Annotated[str, typer.Argument(metavar="RUN|MODEL", help="Run, builtin:tiny, small, folder, hub id.")],
    prompt: Annotated[
        str,
        typer.Argument(
            metavar="PROMPT", help="Prompt (- reads standard input); of no language model, a problem's id or a picture."
        ),
    ],
    count: Annotated[int, typer.Option("-n", help="Number of completions.", min=1, max=10_000, metavar="K")] = 1,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; 0 = greedy. Default: the run's, else 1.", min=0)
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Longest completion. Default: the run's, else 256.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Sampling seed.", min=0)] = 0,
    degrade: Annotated[
        str | None, typer.Option(metavar="NAME", help="Degrade the picture first, e.g. noise-25; then it is scored.")
    ] = None,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Where pictures are written.")] = Path(),
    json: Json = False,
) -> None:
    if temperature is not None and not math.isfinite(temperature):
        raise UserError(f"got --temperature {temperature}; allowed: 0 (greedy) or more")
    home = Home.locate()
    weights = find_weights(home, model, running_first=True)
    if weights.exported is not None:
        print_choice(home, model, weights.exported.run)
    spec = weights.spec
    if temperature is None:
        temperature = spec.evaluation.temperature if spec else 1.0
    if spec is not None and spec.model is None:
        if max_tokens is not None:
            raise UserError(f"got --max-tokens, and the policy {spec.policy.kind} draws no tokens; leave it out")
        draws = Draws(count=count, temperature=temperature, seed=seed)
        _answer_problem(weights, spec, Asked(problem=prompt, degrade=degrade, folder=to), draws, json=json)
        return
    if degrade is not None:
        raise UserError("got --degrade, and this is a language model; leave it out")
    limit = max_tokens or (spec.max_completion_length if spec else LONGEST)
    text = _prompt(prompt)
    policy = weights.language_model(weights.model(spec.language_model if spec else ModelSpec(source=weights.source)))
    from core.policies.base import Sampling
    from core.randomness import PREVIEW, RowKey

    example = _example(text, spec)
    _check_room(policy, example, limit)
    started = time.perf_counter()
    keys = [RowKey(seed, PREVIEW, 0, 0, row) for row in range(count)]
    rollout = policy.sample([example], count, Sampling.at(temperature, limit, spec.stop_strings if spec else ()), keys)
    seconds = time.perf_counter() - started
    logprobs = rollout.drawn_NT.double().sum(-1).tolist() if rollout.drawn_NT is not None else [None] * count
    rows = zip(rollout.outputs, rollout.tokens, logprobs, rollout.truncated_N.tolist(), strict=True)
    completions = [
        {"text": output, "tokens": len(ids), "logprob": logprob, "truncated": truncated}
        for output, ids, logprob, truncated in rows
    ]
    draws = Draws(count=count, temperature=temperature, seed=seed)
    if json:
        console.print_json(_document(weights, text, draws, completions, seconds, max_tokens=limit))
    else:
        print_completions(completions, limit)


@dataclass(frozen=True, kw_only=True, slots=True)
class Draws:
    """How many completions, at which temperature (0: greedy), from which seed."""

    count: int
    temperature: float
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A problem's id or a file, what is done to the file's picture first, and where pictures of answers go."""

    problem: str
    degrade: str | None
    folder: Path


def _document(
    weights: Weights,
    prompt: str,
    draws: Draws,
    completions: Sequence[Mapping[str, Any]],
    seconds: float,
    max_tokens: int | None,
) -> dict[str, Any]:
    return {
        "schema": 1,
        "model": weights.source,
        "adapter": None if weights.adapter is None else str(weights.adapter),
        "run_id": weights.run_id,
        "step": None if weights.exported is None else weights.exported.step,
        "prompt": prompt,
        "temperature": draws.temperature,
        "max_tokens": max_tokens,
        "seed": draws.seed,
        "completions": completions,
        "seconds": round(seconds, 3),
    }


def _answer_problem(weights: Weights, spec: RunSpec, asked: Asked, draws: Draws, *, json: bool) -> None:
    """Print what a policy that is no language model answers to a problem of its run's own task, and what that earns.

    Of a file that was not degraded here nobody knows the right answer, so nothing is scored. Pictures are written.
    """
    name = asked.problem
    if draws.temperature == 0 and not spec.policy.greedy:
        raise UserError(f"got a greedy choice, and the policy {spec.policy.kind} can only draw; give --temperature")
    with closing(registry.build_without_data(spec.task)) as task:
        example, scored = _problem(task, spec, asked, draws.seed)
        with _data_are_only_for_problems(name):
            task.make_ready()
        policy = weights.trained()
        from core.policies.base import Sampling
        from core.randomness import PREVIEW, RowKey

        started = time.perf_counter()
        keys = [RowKey(draws.seed, PREVIEW, 0, 0, row) for row in range(draws.count)]
        how = Sampling.at(draws.temperature, spec.max_completion_length)
        rollout = policy.sample([example], draws.count, how, keys)
        outcomes = task.score([example] * draws.count, rollout.outputs, rollout.tokens) if scored else []
        seconds = time.perf_counter() - started
        logprobs = rollout.drawn_NT.double().sum(-1).tolist() if rollout.drawn_NT is not None else [None] * draws.count
        completions: list[dict[str, Any]] = [
            {"output": dict(task.record(output)), "logprob": logprob}
            for output, logprob in zip(rollout.outputs, logprobs, strict=True)
        ]
        for completion, outcome in zip(completions, outcomes or [UNSCORED] * draws.count, strict=True):
            completion |= {
                "reward": outcome.reward,
                "expected": outcome.expected,
                "valid": outcome.valid,
                "rewards": dict(outcome.parts),
                **({"measured": dict(outcome.measured)} if outcome.measured else {}),
            }
        files = _write_pictures(task, example, rollout.outputs, asked)
        for completion, written in zip(completions, files, strict=True):
            completion.update({"files": written} if written else {})
        if json:
            console.print_json(_document(weights, name, draws, completions, seconds, max_tokens=None))
            return
        rows = [
            (
                task.shown_output({**one["output"], **({"measured": one["measured"]} if "measured" in one else {})}),
                console.short(one["logprob"]),
                *map(_score, (one["reward"], one["expected"])),
            )
            for one in completions
        ]
        console.print_table(f"{name}: {task.shown(example)}", ("output", "log-prob", "reward", "expected"), rows)
        for file in dict.fromkeys(file for written in files for file in written.values()):
            console.print_text(f"wrote {file}")


UNSCORED = Outcome(reward=math.nan, expected=math.nan, valid=True)


def _write_pictures(task: Task, example: Example, outputs: Sequence[Any], asked: Asked) -> list[dict[str, str]]:
    """The files of each output's pictures, by what they show: FOLDER/NAME-restored.png, of the second output -2.png.

    Raises StorageError where they cannot be written.
    """
    stem, written = Path(asked.problem).stem, []
    for number, output in enumerate(outputs, start=1):
        end = "" if number == 1 else f"-{number}"
        files = {}
        for what, image in task.drawn(example, output).items():
            file = asked.folder / f"{stem}-{what}{end}.png"
            replace_bytes(file, image)
            files[what] = str(file)
        written.append(files)
    return written


def _score(value: float) -> str:
    return "missing" if math.isnan(value) else metric_text("eval/reward", value)


def _problem(task: Task, spec: RunSpec, asked: Asked, seed: int) -> tuple[Example, bool]:
    """The training or held-out problem of this id, or the one that the file is; and whether answers can be scored.

    Raises NotFoundError, which says how ids look, UserError, and what the task raises of the file.
    """
    name, problems = asked.problem, list[Example]()
    with _data_are_only_for_problems(name):
        problems = [*task.examples("train"), *task.examples("eval")]
    example = next((problem for problem in problems if problem.id == name), None)
    if example is not None:
        if asked.degrade is not None:
            raise UserError(f"got --degrade with the problem {name}, which is degraded; give a picture's file")
        return example, True
    if os.path.isfile(name):  # unlike a Path's method it takes any text
        return task.from_file(Path(name), change=asked.degrade, seed=seed), asked.degrade is not None
    ids = f"a problem's id, {problems[0].id} to {problems[-1].id}"
    files = ", or a picture's file" if spec.task.scores == "image" else ""
    raise NotFoundError(f"the task {spec.task.name} of this run has no problem {name!r}; allowed: {ids}{files}")


@contextmanager
def _data_are_only_for_problems(name: str) -> Iterator[None]:
    """Lets a task's data be gone where `name` is a file of the user's own, which needs none of them."""
    try:
        yield
    except SpecError as error:
        if isinstance(error, MissingPackageError) or not os.path.isfile(name):
            raise


def print_completions(completions: Sequence[Mapping[str, Any]], limit: int) -> None:
    """Print the completions; several with a line before each."""
    for number, completion in enumerate(completions, start=1):
        if len(completions) > 1:
            console.print_text(f"--- {number}{' (cut off)' if completion['truncated'] else ''}")
        console.print_data(completion["text"])
    empty = sum(not completion["text"].strip() for completion in completions)
    if empty:
        some = "it is" if len(completions) == 1 else f"{empty} of {len(completions)} are"
        console.print_note(
            f"{some} empty: a run's model knows prompts as its task writes them: grpoctl show RUN --step 1"
        )
    truncated = sum(completion["truncated"] for completion in completions)
    if truncated:
        some = "it was" if len(completions) == 1 else f"{truncated} of {len(completions)} were"
        console.print_note(f"{some} cut off at {limit} tokens; --max-tokens allows more")


def _check_room(policy: CausalLMPolicy, example: Example, limit: int) -> None:
    """Raises UserError where prompt and completion together are longer than the model has positions."""
    from core.policies.lm.causal_lm import prompt_text

    text = prompt_text(policy.tokenizer, example, policy.chat_template_kwargs)
    tokens = len(policy.tokenizer([text], add_special_tokens=False)["input_ids"][0])
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
