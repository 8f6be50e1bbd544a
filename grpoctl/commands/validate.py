"""`grpoctl validate`: is a spec sound, in every profile?"""

from __future__ import annotations

from typing import Annotated

import typer

from grpoctl.commands.options import Json


def validate(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]... [KEY=VALUE]...", help="Experiments, sweeps or .yaml files; all."),
    ] = None,
    json: Json = False,
) -> None:
    """Check specs without starting anything."""
    from grpoctl import console, exits
    from grpoctl.commands.validating import check

    given = names or []
    overrides = [text for text in given if "=" in text and not text.endswith(".yaml")]
    checked = check([name for name in given if name not in overrides], overrides)
    failed = [entry for entry in checked if not entry["ok"]]
    if json:
        console.print_json({"schema": 1, "ok": not failed, "specs": checked})
    else:
        for entry in checked:
            kind = "sweep " if entry["kind"] == "sweep" else ""
            good = f"{kind}{entry['name']}: sound in {', '.join(entry['profiles'])}"
            console.print_text(good) if entry["ok"] else console.print_error(str(entry["error"]))
    raise typer.Exit(exits.USAGE if failed else exits.OK)
