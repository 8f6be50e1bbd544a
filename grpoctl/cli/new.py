"""`grpoctl new`: an experiment with data and rewards of your own, from grpoctl.scaffold, to be changed."""

from __future__ import annotations

from importlib.resources import files as resources
from pathlib import Path
from typing import Annotated

import typer

from core.errors import UserError
from grpoctl import console, scaffold
from grpoctl.cli.options import Json
from grpoctl.config import Library
from grpoctl.config.authored import NAME
from grpoctl.config.documents import read_value
from grpoctl.files import storage_errors


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The experiment's name: a-z, 0-9, - and _.")],
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    json: Json = False,
) -> None:
    files = write_files(name, Path.cwd(), force=force)
    if json:
        console.print_json({"schema": 1, "name": name, "files": [str(file) for file in files]})
        return
    for file, what in zip(files, ("the experiment", "its rewards", "its data"), strict=True):
        console.print_text(f"{file.relative_to(Path.cwd())}: {what}")
    console.print_text(f"next: grpoctl validate {name} --rewards, then grpoctl run {name}")


def write_files(name: str, folder: Path, *, force: bool = False) -> tuple[Path, Path, Path]:
    """Write the experiment, the rewards and the data below `folder`, and give their paths.

    Raises UserError for a name that is none or is taken, and where one of the files is there and `force` is not given
    (then none is written); StorageError where the disk does not take them.
    """
    _check_name(name)
    module = name.replace("-", "_")
    written = name if isinstance(read_value(name), str) else f'"{name}"'  # 123, null and true are names too
    texts = {
        folder / "experiments" / f"{name}.yaml": "experiment.yaml",
        folder / "rewards" / f"{module}.py": "rewards.txt",
        folder / "data" / f"{name}.jsonl": "problems.jsonl",
    }
    existing = [str(file.relative_to(folder)) for file in texts if file.exists() or file.is_symlink()]
    if existing and not force:
        raise UserError(f"{', '.join(existing)} exists already; choose another name, or --force to replace it")
    for file in texts:  # all the folders before the first file: where one cannot be had, nothing is written
        with storage_errors("write", file):
            file.parent.mkdir(parents=True, exist_ok=True)
    for file, source in texts.items():
        text = (resources(scaffold) / source).read_text(encoding="utf-8")
        # The data know no names; "x" keeps what another process has written in the meantime.
        with storage_errors("write", file), file.open("w" if force else "x", encoding="utf-8", newline="") as stream:
            stream.write(text.replace("name: NAME", f"name: {written}").replace("NAME", name).replace("MODULE", module))
    experiment, rewards, data = texts
    return experiment, rewards, data


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        better = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name.lower()).strip("-")
        hint = f"; for instance {better}" if NAME.fullmatch(better) else ""
        raise UserError(f"got the name {name!r}; allowed: at most 64 lower-case letters, digits, - and _{hint}")
    shipped = Library().files().get(name)
    if shipped is not None and shipped[1] == "shipped":
        raise UserError(f"{name} is an experiment that comes with grpoctl; choose another name")
