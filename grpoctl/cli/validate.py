"""`grpoctl validate`: is a spec sound, in every profile?"""

from __future__ import annotations

from typing import Annotated

import typer

from grpoctl.cli.options import Json


def validate(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]... [KEY=VALUE]...", help="Experiments, sweeps or .yaml files; default: all."),
    ] = None,
    rewards: Annotated[
        bool, typer.Option("--rewards", help="Also run the reward functions, on two rows and their gold answers.")
    ] = False,
    json: Json = False,
) -> None:
    """Check specs without starting anything. Your code runs only with --rewards."""
    from grpoctl import console
    from grpoctl.cli import exits
    from grpoctl.cli.validating import add_rewards, check, verdict

    given = names or []
    overrides = [text for text in given if "=" in text and not text.endswith(".yaml")]
    named = [name for name in given if name not in overrides]
    checked = check(named, overrides)
    if rewards:
        add_rewards(checked, overrides, every=bool(named))
    failed = [entry for entry in checked if not entry["ok"]]
    if json:
        console.print_json({"schema": 1, "ok": not failed, "specs": checked})
        raise typer.Exit(exits.USAGE if failed else exits.OK)
    for entry in checked:
        console.print_text(verdict(entry)) if entry["error"] is None else console.print_error(str(entry["error"]))
        if entry.get("rewards"):
            from grpoctl.cli.trying_rewards import print_tried

            print_tried(entry["name"], entry["rewards"])
    raise typer.Exit(exits.USAGE if failed else exits.OK)
