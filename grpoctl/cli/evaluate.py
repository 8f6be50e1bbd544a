"""`grpoctl eval`: how well a model, or what a run made of it, does a task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grpoctl.cli.options import Json

Rest = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SPEC] [KEY=VALUE]...",
        help="Experiment whose task is measured (default for a run: its own), and settings.",
    ),
]
Samples = Annotated[Path | None, typer.Option(help="Write every completion to this JSONL file.", metavar="FILE")]


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL|RUN", help="Run, builtin:tiny, small, folder, hub id.")],
    rest: Rest = None,
    step: Annotated[
        int | None,
        typer.Option(help="Use a run's checkpoint of step N instead of its best weights.", min=0, metavar="N"),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", help="Profile of SPEC; default: the one that fits the model.", metavar="NAME"),
    ] = None,
    split: Annotated[str, typer.Option(help="eval, test or train.", metavar="SPLIT")] = "eval",
    prompts: Annotated[int | None, typer.Option(help="Only the first N prompts.", min=1)] = None,
    num_generations: Annotated[int | None, typer.Option(help="Completions per prompt.", min=1)] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature; 0 = greedy.", min=0)] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Greedy decoding, as --temperature 0.")] = False,
    seed: Annotated[int | None, typer.Option(help="Sampling seed; default: the spec's.", min=0)] = None,
    samples: Samples = None,
    json: Json = False,
) -> None:
    """Measure a model or a run on a task's problems, with intervals."""
    from grpoctl import console
    from grpoctl.cli import evaluating, exits

    asked = evaluating.Asked(
        model=model, rest=rest or (), profile=profile, split=split, prompts=prompts, k=num_generations,
        temperature=temperature, greedy=greedy, seed=seed, samples=samples, step=step,
    )  # fmt: skip
    document = evaluating.evaluate(asked)
    if json:
        console.print_json(document)
    else:
        evaluating.say(document)
    if document["reward"]["mean"] is None:  # nothing was measured: a script must not take it for a result
        raise typer.Exit(exits.FAILED)
