"""`grpoctl check`: what a configuration can and cannot do, before it runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from grpoctl.cli.options import Json, Overrides, Profile


def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Experiment, sweep or .yaml file.")],
    overrides: Overrides = None,
    profile: Profile = "full",
    json: Json = False,
    data: Annotated[
        bool, typer.Option("--data", help="Inspect the task's problems, and sample the model on some.")
    ] = False,
    probe: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="With --data: problems to sample.  [default: 16]")
    ] = None,
    no_model: Annotated[bool, typer.Option("--no-model", help="With --data: do not load the model.")] = False,
    model_samples: Annotated[
        bool, typer.Option("--model-samples", help="With --data --json: include the model's completions.")
    ] = False,
    resources: Annotated[
        bool, typer.Option("--resources", help="Estimate memory, time and disk, and measure a step.")
    ] = False,
    memory: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="With --resources: memory to fit into; default: what is free here."),
    ] = None,
    no_probe: Annotated[
        bool, typer.Option("--no-probe", help="With --resources: estimate only, load no model.")
    ] = False,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Compare K, B, normaliser and filter in a simulated bandit.")
    ] = False,
    pass_rate: Annotated[
        list[float] | None, typer.Option(metavar="P", help="With --simulate: a prompt pass rate; may be repeated.")
    ] = None,
    rewards: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="With --simulate: rewards from a run or log that diagnose reads."),
    ] = None,
) -> None:
    """Check a spec before it runs. Shows advantages, dead groups, settings without effect, data and rewards."""
    from grpoctl import console
    from grpoctl.cli import checking, checking_data, checking_resources, checking_simulation, checking_sweep
    from grpoctl.runs.launch import revisions_of
    from grpoctl.runs.profile import full_of, shown
    from grpoctl.runs.run_dir import Home
    from grpoctl.sweeps.loading import base_of, kinds_of

    given, kinds = tuple(overrides or ()), kinds_of(name)
    revisions = revisions_of(Home.locate())
    base = (
        (lambda: full_of(name, given, revisions))
        if "experiment" in kinds
        else (lambda: base_of(name, given, revisions))
    )
    profile, _ = shown(profile, base)
    looked = checking_data.wanted(
        checking_data.Options(asked=data, probe=probe, no_model=no_model, model_samples=model_samples), kinds, name
    )
    options = checking_resources.Options(asked=resources, memory=memory, no_probe=no_probe)
    asked = checking_resources.wanted(options, kinds, name)
    chances = checking_simulation.wanted(
        checking_simulation.Options(asked=simulate, pass_rates=pass_rate or (), rewards=rewards), kinds, name
    )
    found: dict[str, Any] = {}
    if "experiment" in kinds:
        found = checking.check(name, profile, given, json=json)
    if looked is not None:
        found["data"] = checking_data.check(name, profile, given, looked, json=json)
    if asked is not None:
        found["resources"] = checking_resources.check(name, profile, given, asked, json=json)
    if chances is not None:
        found["simulation"] = checking_simulation.check(name, profile, given, chances, json=json)
    if "sweep" in kinds:
        found = {"schema": 1, **found, "sweep": checking_sweep.check(name, profile, given, json=json)}
    if json:
        console.print_json(found)
