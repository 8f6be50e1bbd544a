"""`grpoctl import`: a configuration of another trainer as a spec."""

from __future__ import annotations

import json as json_module
import os
import pickletools
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from core.algorithms.names import OPTIMISERS
from core.config import RunSpec
from core.config.run import check_fit
from core.config.trl.settings import NOT_SAID, Imported, spec_of_trl
from core.errors import NotFoundError, SpecError, UserError
from grpoctl import console
from grpoctl.cli.options import Json
from grpoctl.config.documents import MAX_BYTES, Kind, document_of, read_text, text_of
from grpoctl.config.layers import Layer
from grpoctl.config.new_file import create, fact_lines
from grpoctl.config.problems import spec_error
from grpoctl.config.resolved import block_yaml
from grpoctl.files import storage_errors

_COLUMN = 32  # where the reasons begin
STANDARD_INPUT = "-"
_CONFIG = Kind(name="a GRPOConfig", holds="a mapping of its fields", file="a YAML or JSON file")
_STEPS, _TOKENS = 4, 32  # of a try on the built-in model


def import_spec(
    source: Annotated[str, typer.Argument(metavar="trl", help="The trainer whose configuration it is.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A GRPOConfig as YAML or JSON; -: standard input.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the spec here, a new file.")] = None,
    json: Json = False,
) -> None:
    if source != "trl":
        raise UserError(f"got {source!r}; allowed: trl")
    file = Path(os.path.expanduser(file))
    target = None if out is None else Path(os.path.expanduser(out))
    if target is not None and target.suffix != ".yaml":
        raise UserError(f"got --out {out}; a spec is a .yaml file")
    if target is not None and _name(target) != target.stem:
        names = "small letters, digits, - and _, 64 at most"
        raise UserError(f"got --out {out}; a spec has its file's name: {names}, e.g. {_name(target)}.yaml")
    imported = spec_of_trl(_name(target or _redirected() or file), _fields(file))
    _check(imported.tree, file)
    tree = {**imported.tree, "profiles": {"tiny": tiny_profile(imported.tree)}}
    text = _text(imported, tree, file)
    if target is not None:
        create(target, text)
    if json:
        console.print_json(
            {
                "schema": 1,
                "spec": tree,
                "file": None if target is None else str(target),
                "not_understood": imported.misread,
                "assumed": imported.assumed,
            }
        )
    elif target is None:
        console.write(text.removesuffix("\n"))
    else:
        console.print_text(f"{target}: {tree['name']}; try it: grpoctl run {target} -p tiny")
    for field, why in imported.misread.items():
        console.print_note(f"not understood: {field}: {why}")


def _fields(file: Path) -> dict[str, Any]:
    """The fields of the file, or of standard input. Raises NotFoundError, and SpecError for what is no mapping."""
    if str(file) == STANDARD_INPUT:
        data, called = sys.stdin.buffer.read(MAX_BYTES + 1), Path("standard input")
    elif file.is_file():
        data, called = _bytes(file), file
    else:
        read_text(file, _CONFIG)  # says what it is instead
        raise NotFoundError(f"no file {file}")
    if _is_pickle(data) or file.suffix in (".bin", ".pt", ".pkl", ".pickle"):
        why = "is a pickle, which can run code when it is read"
        instead = "write it with GRPOConfig.to_json_string() and give that"
        raise SpecError(f"{why}; allowed: YAML or JSON: {instead}", file=called)
    text = text_of(data, called, _CONFIG)
    if file.suffix == ".json" and text.strip():
        try:
            json_module.loads(text)
        except ValueError as error:
            line = error.lineno if isinstance(error, json_module.JSONDecodeError) else None
            raise SpecError(f"not valid JSON: {error}", file=called, line=line) from None
    return dict(document_of(text, called, _CONFIG).tree)


def _bytes(file: Path) -> bytes:
    with storage_errors("read", file), file.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _is_pickle(data: bytes) -> bool:
    """True for a zip archive (torch saves one) and for what reads as pickle's opcodes to its end; nothing is run."""
    if data.startswith((b"PK\x03\x04", b"\x80")):
        return True
    try:
        return sum(1 for _ in pickletools.genops(data)) > 1  # of the protocol 0, which is text
    except (ValueError, LookupError, ArithmeticError):
        return False


def _redirected() -> Path | None:
    """The .yaml file that standard output goes to, where it does: a spec must have the name of its file."""
    with suppress(OSError, ValueError):
        place = Path(os.readlink(f"/proc/self/fd/{sys.stdout.fileno()}"))
        if place.suffix == ".yaml":
            return place
    return None


def _name(file: Path) -> str:
    """A name of a spec made of the file's; of standard input it is `imported`."""
    name = re.sub(r"[^a-z0-9_-]+", "-", file.stem.lower()).strip("-_")[:64]
    return name or "imported"


def _check(tree: dict[str, Any], file: Path) -> None:
    """Raises SpecError where the fields make no valid spec, by the key of the spec."""
    try:
        check_fit(RunSpec.model_validate(tree))
    except ValidationError as error:
        problem = spec_error(error, Layer(tree=tree, places={}))
        raise SpecError(problem.message, file=file, key=problem.key) from None
    except SpecError as error:
        raise SpecError(error.message, file=file, key=error.key) from None


# Fields that are passed on and need packages, devices or a hub -> what TRL does without them.
_LARGE = {
    "use_vllm": False, "deepspeed": None, "fsdp": None, "fsdp_config": None, "use_liger_kernel": False, "tf32": None,
    "torch_compile": False, "push_to_hub": False, "ddp_backend": None,
}  # fmt: skip


def tiny_profile(tree: dict[str, Any]) -> dict[str, Any]:
    """A profile that tries the spec on any machine in a minute: the built-in model, four short steps."""
    stage, model, args = tree["stages"]["grpo"], tree["model"], tree["trainer"].get("args", {})
    unlike = {"epochs": None, "warmup_steps": 0, "lr_scheduler_steps": None}
    small: dict[str, Any] = {
        "max_steps": _STEPS,
        "max_completion_length": min(_TOKENS, stage["max_completion_length"]),
        "prompts_per_step": stage["minibatches"] * min(2, stage["prompts_per_step"] // stage["minibatches"]),
        **{key: value for key, value in unlike.items() if stage.get(key)},
    }
    if OPTIMISERS[stage.get("optim", "adamw_torch")].eight_bit:
        small["optim"] = "adamw_torch"
    loaded = {"revision": None, "trust_remote_code": False, "dtype": "float32"}
    built_in: dict[str, Any] = {
        "source": NOT_SAID,
        "mixed_precision": "no",
        "gradient_checkpointing": False,
        **{key: value for key, value in loaded.items() if model.get(key, value) != value},
    }
    if "lora" in model:
        built_in["lora"] = {"target_modules": ["q_proj", "v_proj"]}
    large = {name: value for name, value in _LARGE.items() if args.get(name)}
    return {
        "model": built_in,
        "task": {"train_prompts": max(16, small["prompts_per_step"]), "eval_prompts": 8},
        **({"trainer": {"args": large}} if large else {}),
        "stages": {"grpo": small},
        "evaluation": {"eval_steps": _STEPS},
    }


def _text(imported: Imported, tree: dict[str, Any], file: Path) -> str:
    """The YAML, with what is assumed and what was not understood above it."""
    called = "standard input" if str(file) == STANDARD_INPUT else file.name
    lines = [f"Made of {called} by grpoctl import trl; what it leaves out has TRL 1.16's defaults."]
    lines += (
        ["Without the part `trainer` it is for grpoctl's own trainer."]
        if not imported.tree["trainer"].get("args")
        else []
    )
    lines += ["Profile tiny tries it in a minute, on any machine with TRL: the built-in model, four short steps."]
    if imported.assumed:
        facts = {f"  {fact.partition(': ')[0]}": fact.partition(": ")[2] for fact in imported.assumed}
        lines += ["Assumed:", *fact_lines(facts, _COLUMN)]
    if imported.misread:
        facts = {f"  {field}": why for field, why in imported.misread.items()}
        lines += ["Not understood: not in this spec, or replaced as said:", *fact_lines(facts, _COLUMN)]
    return "".join(f"# {line}\n" for line in lines) + block_yaml(tree)
