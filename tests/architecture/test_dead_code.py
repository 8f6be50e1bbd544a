"""No function, method, class or import of the packages that nobody in them uses. Tests do not count as users."""

from __future__ import annotations

from pathlib import Path

from vulture import Vulture

from grpoctl.app import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
# Not variables and attributes: a record's fields are often only written, as JSON.
KINDS = ("function", "method", "property", "class", "import", "unreachable_code")
CALLED_BY_OTHERS = ["@*_validator", "@*_serializer", "@app.*", "@*.setter"]
TEMPLATES = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "grpoctl").rglob("*.jinja"))
NAMED_BY_OTHERS = {
    "__call__",  # of a protocol: what it types is a function
    *("__getattr__", "__dir__"),  # of a module: Python calls them
    "get_code",  # of a loader: importlib calls it
    *("handle_starttag", "handle_endtag", "handle_data"),  # html.parser calls them
    *("on_train_begin", "on_step_begin", "on_pre_optimizer_step", "on_log", "on_save"),  # transformers calls them
    *(file for file, _ in COMMANDS.values()),  # a command's function has the name of its file
}


def mentioned(name: str) -> bool:
    """True where a table of names or a template has it."""
    return name in NAMED_BY_OTHERS or f".{name}" in TEMPLATES


def unused(*paths: Path, users: tuple[Path, ...] = ()) -> list[str]:
    """`file: name` of what is defined in the paths and mentioned neither there nor by the users."""
    finder = Vulture(ignore_decorators=CALLED_BY_OTHERS)
    finder.scavenge([str(path) for path in (*paths, *users)])
    return [
        f"{item.filename}: {item.name}"
        for item in finder.get_unused_code(min_confidence=60)
        if item.typ in KINDS and not mentioned(item.name) and any(map(item.filename.is_relative_to, paths))
    ]


def test_nothing_is_there_that_nobody_uses() -> None:
    assert unused(ROOT / "core", ROOT / "grpoctl", users=(ROOT / "benchmarks",)) == []


def test_a_function_that_nobody_calls_is_found(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("def called(): ...\n\n\ndef forgotten(): ...\n\n\ncalled()\n", encoding="utf-8")
    assert unused(tmp_path) == [f"{tmp_path / 'module.py'}: forgotten"]
