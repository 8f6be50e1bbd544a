"""The documentation: README.md stays short, every link leads somewhere, and docs/rules.md has every finding."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

from tests.architecture.source import ROOT

MOST_BYTES = {"README.md": 12_288, "docs/diagnosing.md": 12_288}
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
)


def _generator(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


rules, trl = _generator("generate_rules"), _generator("generate_trl")


def prose(text: str) -> str:
    """A page without its fenced blocks and inline code, in which `[a](b)` is no link and `# a` no heading."""
    without_blocks = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", without_blocks)


def slugs(text: str) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    found: dict[str, int] = {}
    anchors = set()
    for title in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), flags=re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()).strip().replace(" ", "-")
        anchors.add(f"{slug}-{found[slug]}" if slug in found else slug)
        found[slug] = found.get(slug, 0) + 1
    return anchors


def dead_links(page: Path) -> Iterator[str]:
    """The relative links of a page that lead to no file, or to no heading of it."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in slugs(target.read_text(encoding="utf-8"))):
            yield link


@pytest.mark.parametrize("page", MOST_BYTES)
def test_the_page_is_read_in_one_sitting(page: str) -> None:
    assert len((ROOT / page).read_bytes()) <= MOST_BYTES[page]


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: str) -> None:
    assert list(dead_links(ROOT / page)) == []


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# Two words: `x`\n\n```sh\n# no heading\n```\n## Two words: x\n")
    page = tmp_path / "a.md"
    page.write_text("[a](b.md) [b](b.md#two-words-x) [c](b.md#two-words-x-1) [d](#here) `[e](none.md)` <x>\n# Here\n")
    assert list(dead_links(page)) == []
    page.write_text("[a](c.md) [b](b.md#no-heading) [c](#there) [d](https://example.org/none)\n")
    assert list(dead_links(page)) == ["c.md", "b.md#no-heading", "#there"]


def test_the_page_of_rules_is_the_generated_one() -> None:
    assert rules.PAGE.read_text(encoding="utf-8") == rules.page(), "run: python docs/generate_rules.py"


def test_the_page_of_trl_is_the_generated_one() -> None:
    assert trl.PAGE.read_text(encoding="utf-8") == trl.page(), "run: python docs/generate_trl.py"


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("error (certain).", {"error": "always (certain)"}),
        ("info.", {"info": "always"}),
        (
            "error (strong) where nothing moved; warning (weak) for less, else info.",
            {"error": "(strong) where nothing moved", "warning": "(weak) for less", "info": "always"},
        ),
    ],
)
def test_when_a_finding_has_a_severity(text: str, when: dict[str, str]) -> None:
    assert rules.severities(text) == when


def test_every_finding_has_a_severity() -> None:
    assert all(rules.severities(section.field("Severity")) for section in rules.sections())


def test_every_finding_is_documented_once() -> None:
    documented = [section.id for section in rules.sections()]
    assert sorted(documented) == sorted(set(documented))
    assert set(documented) == rules.returned_ids()


@pytest.mark.parametrize("label", rules.LABELS)
def test_every_section_has_its_paragraphs(label: str) -> None:
    assert all(section.field(label) for section in rules.sections())


def test_a_severity_that_the_code_gives_is_documented() -> None:
    documented = {section.id: section.field("Severity") for section in rules.sections()}
    missing = [
        (file, name, severity)
        for file, tree in rules.modules().items()
        for name, severity in constant_severities(tree)
        if severity not in documented[name]
    ]
    assert missing == []


def constant_severities(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(id, severity) of the findings that state both as a text, or as one of two texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
            stated = {word.arg: word.value for word in node.keywords}
            names = [one.value for one in ast.walk(stated["id"]) if isinstance(one, ast.Constant)]
            severity = stated["severity"]
            choices = [severity.body, severity.orelse] if isinstance(severity, ast.IfExp) else [severity]
            for choice in choices:
                if len(names) == 1 and isinstance(choice, ast.Constant):
                    yield str(names[0]), str(choice.value)
