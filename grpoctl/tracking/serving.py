"""MLflow's own pages on a home's store. Its address goes by the environment: a command line is for all to see."""

from __future__ import annotations

import os
import shlex

from core.errors import UserError
from grpoctl.children import python_module
from grpoctl.credentials import TRACKING_VARIABLE
from grpoctl.runs.run_dir import Home
from grpoctl.tracking.store import check_typed, open_client, store_name, store_uri

ADDRESS = "MLFLOW_BACKEND_STORE_URI"  # mlflow's own name for --backend-store-uri
# Two processes instead of fourteen: four workers and seven job queues are more than one person's pages need.
_ENVIRONMENT = {"MLFLOW_WORKERS": "1", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def command(host: str, port: int) -> list[str]:
    """The process to become: `mlflow ui` with this interpreter (-P: nothing is imported from the current folder)."""
    return python_module("mlflow", "ui", "--host", host, "--port", str(port))


def shell_line(home: Home, host: str, port: int) -> str:
    """What a shell takes to do the same, its environment included; a store that was named keeps its secrets in there.

    Raises UserError where the store is a server.
    """
    _check_pages(home)
    variables = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    named = bool(os.environ.get(TRACKING_VARIABLE, "").strip())
    address = f'"${TRACKING_VARIABLE}"' if named else shlex.quote(store_uri(home))
    words = [*(f"{name}={value}" for name, value in variables.items()), f"{ADDRESS}={address}"]
    return " ".join(["env", *words, shlex.join(command(host, port))])


def environment(home: Home) -> dict[str, str]:
    """The environment it needs; creates or migrates the store first, so that the server does not race a run for it.

    Raises UserError where the store is a server: that has pages of its own. Raises StorageError.
    """
    _check_pages(home)
    open_client(home)
    return {**_ENVIRONMENT, **os.environ, ADDRESS: store_uri(home)}


def _check_pages(home: Home) -> None:
    check_typed(store_uri(home))
    if store_uri(home).startswith(("http://", "https://", "databricks")):
        raise UserError(f"the runs are in a tracking server: open {store_name(home)} in a browser")
