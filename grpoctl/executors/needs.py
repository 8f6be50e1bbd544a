"""What the trainer of a spec needs of this machine before a run starts: a model, packages, files, programs, names.

As far as files tell: no user's module is imported, and no program is started. What of a spec fits its trainer at all is
core.config.run.check_fit's. Where workers are on other machines, those say what they lack.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, assert_never

from core.config import ModelSpec, RunSpec
from core.config.trainer import words
from core.config.trl.fields import TRAINER_ARGUMENTS
from core.config.trl.values import FILES
from core.errors import ModelError, SpecError, UserError
from core.models import catalogue
from core.models.sources import gguf_file, local
from core.tasks.rewards.worker import NotFound, check_reference
from grpoctl.config import plain
from grpoctl.config.documents import Kind, read_document

TRL = "1.16"  # whose private methods are overridden, as the extra of pyproject.toml says
_ACCELERATE = Kind(name="accelerate's configuration", holds="a mapping of its settings", file="a YAML or JSON file")
_WITH_TOOLS = "Qwen/Qwen2.5-1.5B-Instruct"
_RUN_DIR = "\x1a"  # stands for the run's directory, which is not there yet


def check_trainer(spec: RunSpec) -> None:
    """Raises SpecError, by the spec's key, for the first thing that the trainer cannot start without."""
    check_map(spec)
    match spec.trainer.kind:
        case "command":
            _check_programs(spec)
        case "trl":
            _check_model(spec)
            for key, problem in _lacking(spec):
                raise SpecError(problem, key=f"trainer.{key}")
        case "grpoctl":
            _check_model(spec)
        case other:
            assert_never(other)


def missing_package(spec: RunSpec) -> str:
    """The first package that the trainer needs and this machine lacks, and how to install it; "" for none."""
    return next((problem for _, problem in _packages(spec)), "") if spec.trainer.kind == "trl" else ""


def check_map(spec: RunSpec) -> None:
    """Raises SpecError where trainer.map names no metric."""
    if spec.trainer.map:
        from grpoctl.diagnose.readers.user_settings import columns_of

        columns_of(spec.trainer.map, "trainer.map")


def _check_model(spec: RunSpec) -> None:
    """Raises SpecError where the model is a path, and no model is there; one of the hub is looked for by the run."""
    if spec.model is None:
        return
    source = spec.model.source
    try:
        if gguf_file.claims(source):
            gguf_file.find(source)
        elif local.claims(source):
            local.find(source)
    except ModelError as error:
        raise SpecError(str(error), key="model.source") from None


def _check_programs(spec: RunSpec) -> None:
    for key in ("command", "resume_command"):
        if (template := getattr(spec.trainer, key)) is None:
            continue
        program = words(template, plain(spec), _RUN_DIR, key=f"trainer.{key}")[0]
        if _RUN_DIR not in program and shutil.which(program) is None:
            raise SpecError(f"got {program!r}: {_why_not(program)}", key=f"trainer.{key}")


def _why_not(program: str) -> str:
    """Why a program cannot be started."""
    if program.startswith("~"):
        return "no shell reads the command, so ~ is no folder; write the whole path"
    if "/" not in program:
        return "no such program in PATH"
    place = Path(program)
    if not place.exists():
        return f"no such file, seen from {Path.cwd()}"
    return "is a folder" if place.is_dir() else "is not executable (chmod +x)"


def _lacking(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """(key of the trainer, problem) of what TRL cannot start without."""
    args = spec.trainer.args
    yield from _packages(spec)
    if (file := spec.trainer.accelerate_config) is not None:
        problem = _file_problem(Path(file))
        if problem is not None:
            yield "accelerate_config", problem
    for name in FILES:
        if isinstance(value := args.get(name), str) and (problem := _json_problem(value)) is not None:
            yield f"args.{name}", problem
    yield from _unresolved(args)
    asked = next((name for name in ("tools", "environment_factory") if args.get(name)), None)
    if asked is not None and not _may_show_tools(spec.language_model):
        problem = f"the chat template of {spec.language_model.source!r} has no tool_calls, so it cannot show a call"
        yield f"args.{asked}", f"{problem}; give a model whose template has, such as {_WITH_TOOLS}"


def _may_show_tools(model: ModelSpec) -> bool:
    """Whether the model's chat template could write a tool call: one that does names tool_calls, or dumps messages.

    True where the files that say so are not on this machine.
    """
    if model.source.startswith("builtin:"):
        return False
    folder = None
    if not gguf_file.claims(model.source):
        with suppress(ModelError):  # of what can be no hub id, which the run says
            folder = catalogue.local_folder(model.source, model.revision)
    if folder is None:
        return True
    template = local.chat_template(folder)
    return "tool_calls" in template or "tojson" in template


def _packages(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """(key of the trainer, problem) of each package that is not here, or of another version."""
    args = spec.trainer.args
    if find_spec("trl") is None:
        yield "kind", "got trl, which is not installed: pip install 'grpoctl[trl]'"
    elif (version := metadata.version("trl")) != TRL and not version.startswith(f"{TRL}."):
        yield "kind", f"got trl, and TRL {version} is installed; allowed: {TRL}: pip install 'grpoctl[trl]'"
    for name, package, wanted in (
        ("use_vllm", "vllm", args.get("use_vllm")),
        ("deepspeed", "deepspeed", args.get("deepspeed")),
        ("use_liger_kernel", "liger_kernel", args.get("use_liger_kernel")),
    ):
        if wanted and find_spec(package) is None:
            pip = package.replace("_", "-")
            yield f"args.{name}", f"needs {package}, which is not installed: pip install {pip}"


def _unresolved(args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, problem) of each function of the user's that is not there."""
    for name in TRAINER_ARGUMENTS:
        given = args.get(name)
        places = [(f"args.{name}.{number}", one) for number, one in enumerate(given)] if isinstance(given, list) else []
        if isinstance(given, str):
            places = [(f"args.{name}", given)]
        for key, reference in places:
            try:
                check_reference(str(reference), Path.cwd())
            except NotFound as error:
                yield key, f"{reference}: {error}"


def _file_problem(file: Path) -> str | None:
    """Why accelerate cannot be started with this file."""
    try:
        read_document(file, _ACCELERATE)
    except UserError as error:
        return str(error)
    return None


def _json_problem(value: str) -> str | None:
    """Why a text is neither JSON nor the path of a file of it."""
    given = value.startswith("{")
    shown = value[:80] if given else value
    try:
        text = value if given else Path(os.path.expanduser(value)).read_text(encoding="utf-8")
        known = json.loads(text)
    except OSError as error:
        return f"got {value}: {error.strerror}; allowed: the path of a JSON file"
    except ValueError as error:
        return f"got {shown}: no JSON: {error}"
    return None if isinstance(known, dict) else f"got {shown}: no mapping at its top"
