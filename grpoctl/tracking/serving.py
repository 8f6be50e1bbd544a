"""The command that serves MLflow's pages on a home's store; imports mlflow only to create the store."""

from __future__ import annotations

import sys

from grpoctl.runs.run_dir import Home
from grpoctl.tracking.store import open_client, store_uri


def command(home: Home, host: str, port: int) -> list[str]:
    """The process to become: `mlflow ui` with this interpreter (-P: nothing is imported from the current folder)."""
    return [
        sys.executable, "-P", "-m", "mlflow", "ui",
        "--backend-store-uri", store_uri(home), "--host", host, "--port", str(port),
    ]  # fmt: skip


def prepare(home: Home) -> None:
    """Create or migrate the store under its lock, so that the server does not race a run for it."""
    open_client(home)
