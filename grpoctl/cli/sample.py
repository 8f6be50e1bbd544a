"""`grpoctl sample`: what a model, or what a run made of it, answers."""

from __future__ import annotations

from typing import Annotated

import typer

from grpoctl.cli.options import Json


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
    """Show what a run or a model answers to a prompt."""
    from grpoctl import console
    from grpoctl.cli import sampling

    asked = sampling.Asked(
        model=model, prompt=prompt, count=count, temperature=temperature, max_tokens=max_tokens, seed=seed
    )
    document = sampling.sample(asked)
    if json:
        console.print_json(document)
    else:
        sampling.say(document)
