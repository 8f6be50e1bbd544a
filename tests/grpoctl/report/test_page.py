"""The page as a document: whole in itself, nothing of anybody's words is markup, its policy lets nothing else run.

How a real browser takes it is in tests/services/test_report_page.py.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from core.errors import StorageError
from grpoctl.cli.report import report_of
from grpoctl.report.document import Part, Picture, Pictures, Report
from grpoctl.report.markdown import markdown
from grpoctl.report.page import MOST_BYTES, embedded, page, write_page
from grpoctl.runs.run_dir import Home
from grpoctl.sections import Line, Section
from tests import reported
from tests.architecture.source import ROOT
from tests.conftest import Recorded

LOADS = {
    "src",
    "srcset",
    "data",
    "action",
    "poster",
    "background",
    "href",
    "formaction",
}  # attributes that fetch or lead


class Tags(HTMLParser):
    """The tags of a page with their attributes, and the text of each script and of all else."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = tag == "script"
        if self._script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._script = self._script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[-1] += data
        else:
            self.text += data

    def of(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.fixture
def made(home: Home, recorded: Recorded) -> Report:
    return report_of(home, [run.id for run in reported.two_sides(recorded, seeds=(0, 1))])


def block(block: Any) -> Report:
    return Report(title="one", made="now", parts=(Part(kind="runs", title="part", verdict=(), blocks=(block,)),))


def test_what_runs_is_ours_and_named_by_its_hash(made: Report) -> None:
    found = Tags(page(made))
    kinds = [attributes.get("type") for attributes in found.of("script")]
    assert kinds == ["application/json"] * 2 + [None] * 4
    (policy,) = (str(one["content"]) for one in found.of("meta") if one.get("http-equiv") == "Content-Security-Policy")
    allowed = dict(part.split(maxsplit=1) for part in policy.split("; "))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in found.scripts[2:]]
    assert allowed["script-src"].split() == [f"'sha256-{one}'" for one in hashes]
    assert allowed["default-src"] == "'none'"
    assert allowed["img-src"] == "data:"
    assert "unsafe" not in policy


def test_vega_is_what_its_makers_published() -> None:
    folder = ROOT / "grpoctl" / "report" / "vega"
    stated = dict(re.findall(r"^\| `([\w.-]+)` .*`([0-9a-f]{64})` \|$", (folder / "README.md").read_text(), flags=re.M))
    assert stated == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.js")}
    assert len(stated) == 3


def test_nothing_is_fetched_and_nothing_leads_out(made: Report) -> None:
    found = Tags(page(made))
    assert not {"link", "iframe", "object", "embed", "base", "img", "form"} & {tag for tag, _ in found.tags}
    leading = {value for _, attributes in found.tags for name, value in attributes.items() if name in LOADS}
    assert {value for value in leading if value is None or not value.startswith("#")} == set()
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on") or name == "style"]


def test_words_of_others_stay_words(made: Report) -> None:
    text = page(made)
    found = Tags(text)
    assert "<script>document.title='taken'</script>" in found.text  # as text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert r"\u202egnp.exe" in found.text
    assert "{{ 7 * 7 }}" in found.text
    assert text.encode("utf-8")  # half a surrogate pair would not be UTF-8


def test_the_numbers_are_in_the_page(made: Report) -> None:
    data, charts = (json.loads(text) for text in Tags(page(made)).scripts[:2])
    assert data == json.loads(json.dumps(made.document()))
    known = {name for part in data["parts"] for name in part["tables"]}
    drawn = set(re.findall(r'"name": "(p0-[\w-]+)"', json.dumps(charts)))
    assert len(charts) >= 6
    assert drawn == known


def test_no_word_of_others_is_in_a_chart_s_fields_or_expressions(made: Report) -> None:
    charts = json.loads(Tags(page(made)).scripts[1])

    def walked(value: Any, key: str = "") -> list[tuple[str, str]]:
        if isinstance(value, dict):
            return [one for name, of in value.items() for one in walked(of, name)]
        if isinstance(value, list):
            return [one for of in value for one in walked(of, key)]
        return [(key, value)] if isinstance(value, str) else []

    strings = walked(charts)
    assert not [value for key, value in strings if key in ("expr", "signal", "test", "calculate", "url", "href")]
    assert {value for key, value in strings if key == "field"} <= {
        "axis", "side", "run", "seed", "x", "value", "label", "mean", "low", "high", "a", "b", "became", "prompt",
        "zero",
    }  # fmt: skip


@pytest.mark.parametrize("evil", reported.EVIL)
def test_embedded_json_ends_no_element_and_reads_back(evil: str) -> None:
    text = str(embedded({evil: [evil]}))
    assert text.isascii()
    assert not re.search(r"[<>&\x00-\x1f]", text)
    assert json.loads(text) == {evil: [evil]}


def test_pictures_stand_in_the_page_until_there_is_no_more_room(tmp_path: Path) -> None:
    small, large = tmp_path / "pictures" / "step-000000.png", tmp_path / "pictures" / "step-000009.png"
    small.parent.mkdir()
    small.write_bytes(b"\x89PNG small")
    large.write_bytes(b"\x89PNG" + bytes(MOST_BYTES))
    shown = tuple(Picture(title=f"<b>{file.stem}</b>", file=file) for file in (large, small))
    found = Tags(page(block(Pictures(title="Pictures", reads="", pictures=shown))))
    address = "data:image/png;base64," + base64.b64encode(small.read_bytes()).decode()
    assert [image["src"] for image in found.of("img")] == [address]
    assert "pictures/step-000009.png" in found.text
    assert str(tmp_path) not in found.text


def test_long_tables_are_folded_and_tables_can_be_reached_by_key() -> None:
    long = Section(title="long", columns=("a",), rows=tuple((str(at),) for at in range(31)))
    short = replace(long, rows=long.rows[:30])
    assert len(Tags(page(block(long))).of("details")) == 1
    found = Tags(page(block(short)))
    assert found.of("details") == []
    assert [one["tabindex"] for one in found.of("div") if one.get("class") == "scroll"] == ["0"]


def test_the_page_takes_the_place_of_an_older_one_or_says_why_not(made: Report, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("old", encoding="utf-8")
    write_page(made, file)
    assert file.read_text(encoding="utf-8") == page(made)
    with pytest.raises(StorageError, match="No such file"):
        write_page(made, tmp_path / "absent" / "report.html")


def test_markdown_has_the_same_and_no_markup_of_others(made: Report) -> None:
    text = markdown(made)
    assert text.startswith("# Report on ")
    for title in (
        "### Settings that differ", "### Findings and integrity", "### Differences of eval/reward",
        "### Dead groups over time", "### The same prompts side by side", "### The commands that repeat it",
    ):  # fmt: skip
        assert title in text
    words = re.sub(r"(`+).*?\1", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL))  # what is no code
    assert "<script" not in re.sub(r"\\.", "", words)
    assert "](javascript" not in re.sub(r"\\.", "", words)
    assert "\u202e" not in text
    assert text.index("e3: reward 0.505 → 0.105") < text.index("e0: reward 0.505 → 0.405")
    table = [line for line in text.splitlines() if line.startswith("| stages.grpo.num_generations")]
    assert table == ["| stages.grpo.num_generations | 2 | 8 |"]


def test_a_command_stays_as_it_is() -> None:
    line = Line(label="Next", text="grpoctl run 'a_b*' K=<2>", verbatim=True)
    assert "- Next: `grpoctl run 'a_b*' K=<2>`" in markdown(block(Section(lines=(line,))))
