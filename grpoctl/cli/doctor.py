"""`grpoctl doctor`: what is installed, which devices there are, and whether the store and the cache are in order."""

from __future__ import annotations

import typer

from grpoctl.cli.options import Json


def doctor(json: Json = False) -> None:
    """Check versions, devices, store and cache."""
    from grpoctl import console
    from grpoctl.cli import exits
    from grpoctl.cli.examining import examination

    checks = examination()
    if json:
        console.print_json({"schema": 1, "ok": all(check["ok"] for check in checks), "checks": checks})
    else:
        rows = [("ok" if check["ok"] else "PROBLEM", check["name"], check["detail"]) for check in checks]
        console.print_table("", ("", "", ""), rows)
    raise typer.Exit(exits.OK if all(check["ok"] for check in checks) else exits.FAILED)
