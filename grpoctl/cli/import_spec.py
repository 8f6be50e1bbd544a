"""`grpoctl import`: a configuration of another trainer as a spec."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from core.config import RunSpec
from core.config.run import check_fit
from core.config.trl.settings import Imported, spec_of_trl
from core.errors import NotFoundError, SpecError, UserError
from grpoctl import console
from grpoctl.cli.options import Json
from grpoctl.config.documents import read_document
from grpoctl.config.layers import Layer
from grpoctl.config.new_file import create, fact_lines
from grpoctl.config.problems import spec_error
from grpoctl.config.resolved import block_yaml

_COLUMN = 32  # where the reasons begin


def import_spec(
    source: Annotated[str, typer.Argument(metavar="trl", help="The trainer whose configuration it is.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A GRPOConfig as YAML or JSON.")],
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
    text = _text(imported, file)
    if target is not None:
        create(target, text)
    if json:
        console.print_json(
            {
                "schema": 1,
                "spec": imported.tree,
                "file": None if target is None else str(target),
                "not_understood": imported.misread,
                "assumed": imported.assumed,
            }
        )
    elif target is None:
        console.write(text.removesuffix("\n"))
    else:
        console.print_text(f"{target}: {imported.tree['name']}; next: grpoctl validate {target}")
    for field, why in imported.misread.items():
        console.print_note(f"not understood: {field}: {why}")


def _fields(file: Path) -> dict[str, Any]:
    """The fields of the file. Raises NotFoundError, and SpecError for what is no mapping, or a pickle."""
    if not file.exists():
        raise NotFoundError(f"no file {file}")
    if file.is_file():
        with file.open("rb") as stream:
            begins = stream.read(4)
        # torch saves a zip archive, and a pickle of its own begins with its protocol's number
        if begins.startswith((b"PK\x03\x04", b"\x80")) or file.suffix in (".bin", ".pt", ".pkl", ".pickle"):
            why = "is a pickle, which can run code when it is read"
            instead = "write it with GRPOConfig.to_json_string() and give that"
            raise SpecError(f"{why}; allowed: YAML or JSON: {instead}", file=file)
    return dict(read_document(file).tree)


def _redirected() -> Path | None:
    """The .yaml file that standard output goes to, where it does: a spec must have the name of its file."""
    with suppress(OSError, ValueError):
        place = Path(os.readlink(f"/proc/self/fd/{sys.stdout.fileno()}"))
        if place.suffix == ".yaml":
            return place
    return None


def _name(file: Path) -> str:
    """A name of a spec made of the file's."""
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


def _text(imported: Imported, file: Path) -> str:
    """The YAML, with what is assumed and what was not understood above it."""
    lines = [f"Made of {file.name} by grpoctl import trl; what it leaves out has TRL 1.16's defaults."]
    lines += (
        ["Without the part `trainer` it is for grpoctl's own trainer."]
        if not imported.tree["trainer"].get("args")
        else []
    )
    if imported.assumed:
        facts = {f"  {fact.partition(': ')[0]}": fact.partition(": ")[2] for fact in imported.assumed}
        lines += ["Assumed:", *fact_lines(facts, _COLUMN)]
    if imported.misread:
        facts = {f"  {field}": why for field, why in imported.misread.items()}
        lines += ["Not understood, and not in this spec:", *fact_lines(facts, _COLUMN)]
    return "".join(f"# {line}\n" for line in lines) + block_yaml(imported.tree)
