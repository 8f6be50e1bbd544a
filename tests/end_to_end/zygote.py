"""A process that has imported torch, Optuna and MLflow and forks a child for each command: real ones, without imports.

It has also made the tables that every process makes once, a fifth of a second: the texts that name the built-in model
in the cache, and transformers' names of weights.

Started as `python -P zygote.py SOCKET`. A client connects, sends one line of JSON (argv, cwd, env, stdin, stdout,
stderr, and fsize: the largest file the child may write), and is sent `{"pid": N}` and, when the child has ended,
`{"returncode": N}` as subprocess has it. One that sends `{"stays": true}` is told the same: it will ask for more, and
when the last such connection is closed, this process ends. Nothing here runs a torch operation: threads would not
survive the fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
import traceback
from typing import Any

PRELOADED = (
    "core.assemble", "core.policies.lm.build", "core.training.trainer", "core.tasks.custom.task",
    "peft.utils.transformers_weight_conversion", "rich.progress",
    "grpoctl.app", "grpoctl.cli.run", "grpoctl.cli.run_session", "grpoctl.cli.validate",
    "grpoctl.diagnose.readers.run_dir", "grpoctl.diagnose.readers.text",
    "mlflow.store.tracking.sqlalchemy_store",
    "optuna.storages._rdb.models", "sqlalchemy.dialects.sqlite", "alembic.command", "alembic.config",
    "matplotlib.figure", "matplotlib.backends.backend_agg", "PIL.JpegImagePlugin", "PIL.GifImagePlugin",
    "grpoctl.cli.sweep", "grpoctl.cli.sweep_session", "grpoctl.sweeps.driver", "grpoctl.executors.jobs",
)  # fmt: skip


def serve(address: str) -> None:
    """Fork a child for every request until nobody is left who could make one."""
    importlib.import_module("grpoctl.tracking.store").prepare_environment()
    for name in PRELOADED:
        importlib.import_module(name)
    importlib.import_module("core.policies.lm.build").tiny_pairs()
    importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("qwen2")
    gc.freeze()  # what is here already need not be looked at, and so not be copied, by each child
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{address}.new")
    listening.listen(64)
    os.rename(f"{address}.new", address)  # between the two calls above nobody may find it: a client would be refused
    children: dict[int, socket.socket] = {}
    staying: set[socket.socket] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(4096)
                    _reap(children)
                elif key.fileobj in staying:  # it says nothing more: this is its end
                    selector.unregister(key.fileobj)
                    staying.remove(key.fileobj)
                    if not staying:
                        return
                else:
                    client, _ = listening.accept()
                    request = json.loads(client.makefile("rb").readline())
                    if "stays" in request:
                        selector.register(client, selectors.EVENT_READ)
                        staying.add(client)
                        _tell(client, {"stays": True})
                        continue
                    pid = os.fork()
                    if pid == 0:
                        _become(request)
                    _tell(client, {"pid": pid})
                    children[pid] = client


def _reap(children: dict[int, socket.socket]) -> None:
    """Tell the clients of all children that have ended."""
    while children:
        pid, state = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with children.pop(pid) as client:
            _tell(client, {"returncode": os.waitstatus_to_exitcode(state)})


def _tell(client: socket.socket, message: dict[str, Any]) -> None:
    client.sendall(json.dumps(message).encode() + b"\n")


def _become(request: dict[str, Any]) -> None:
    """Be `grpoctl ARGV` and nothing else; never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
            flags = os.O_RDONLY if name == "stdin" else os.O_WRONLY | os.O_CREAT | os.O_APPEND
            os.dup2(os.open(request[name], flags, 0o644), descriptor)
        os.closerange(3, 4096)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        if request["fsize"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["fsize"], request["fsize"]))
        sys.argv = ["grpoctl", *request["argv"]]
        from grpoctl.app import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  as the interpreter would show it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
