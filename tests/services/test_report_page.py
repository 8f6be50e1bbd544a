"""The report's page in a real browser: charts are drawn, nothing is fetched, no word of a prompt does anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grpoctl.cli.report import report_of
from grpoctl.report.page import page, write_page
from grpoctl.runs.run_dir import Home, RunDir
from tests import reported, studies
from tests.conftest import Recorded
from tests.services.browser import Browser, Tab, program, started

pytestmark = pytest.mark.services

Page = Callable[..., Path]
CHARTS = "[...document.querySelectorAll('[data-chart]')]"
FOCUS = (
    "(() => { const at = document.activeElement; const looks = getComputedStyle(at);"
    " return [at.tagName, at.className, looks.outlineStyle, at.getAttribute('aria-label')]; })()"
)
MARKS = f"{CHARTS}.map((one) => one.querySelectorAll('svg path, svg line').length)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = program()
    if path is None:
        pytest.skip("no Chromium here: its tests are skipped")
    with started(path, tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def made() -> list[str]:
    """The page, once a test has made it."""
    return []


@pytest.fixture
def paged(home: Home, recorded: Recorded, tmp_path: Path, made: list[str]) -> Page:
    """Writes the page of two sides with three seeds each and of two studies; `more` is added to its end as it is."""

    def make(more: str = "") -> Path:
        if not made:
            runs: list[RunDir] = reported.two_sides(recorded)
            studies.write(home, studies.advantage_study())
            studies.write(home, studies.collapse_study())
            names = [*(run.id for run in runs), "advantage-study", "collapse-study"]
            made.append(page(report_of(home, names)))
        file = tmp_path / "report.html"
        file.write_text(made[0].replace("</body>", f"{more}</body>"), encoding="utf-8")
        return file

    return make


def sound(tab: Tab) -> bool:
    return not tab.complaints() and not tab.requests()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_every_chart_is_drawn_and_nothing_is_fetched(browser: Browser, paged: Page, width: int, dark: bool) -> None:
    with browser.tab(paged(), width=width, dark=dark) as tab:
        drawn = tab.value(MARKS)
        assert len(drawn) >= 12
        assert min(drawn) > 3
        assert tab.value("document.querySelectorAll('.failed').length") == 0
        assert tab.complaints() == []
        assert tab.requests() == []
        # Nothing but tables and commands, which scroll by themselves, is wider than the window.
        assert tab.value("document.documentElement.scrollWidth") <= width
        assert tab.value(f"Math.max(...{CHARTS}.map((one) => one.getBoundingClientRect().right))") <= width
        colour = tab.value("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", colour))) < 200) == dark
        ink = tab.value("getComputedStyle(document.querySelector('svg text')).fill")
        assert (sum(map(int, re.findall(r"\d+", ink))) > 400) == dark  # the charts follow the page


def test_words_of_prompts_do_nothing(browser: Browser, paged: Page) -> None:
    with browser.tab(paged()) as tab:
        assert sound(tab)
        assert tab.value("document.title").startswith("Report on ")
        assert tab.value("document.querySelectorAll('img, iframe, object, embed, link, base').length") == 0
        shown = tab.value("[...document.querySelectorAll('pre')].map((one) => one.textContent).join('\\n')")
        assert "<script>document.title='taken'</script>" in shown
        assert tab.value("/[\\u202a-\\u202e\\u2066-\\u2069\\0]/.test(document.documentElement.innerText)") is False
        # A prompt that a mark of a chart tells by pointing at it is a text, too.
        assert tab.value("document.querySelectorAll('svg a, svg image, svg foreignObject').length") == 0


@pytest.mark.parametrize(
    "evil",
    [
        "<script>document.title='taken'</script>",
        "<img src=x onerror=\"document.title='taken'\">",
        "<img src='http://127.0.0.1:9/x.png'>",
        "<style>body { display: none }</style>",
        "<iframe src='http://127.0.0.1:9/'></iframe>",
        "<script src='http://127.0.0.1:9/x.js'></script>",
        "<a id=link href=\"javascript:document.title='taken'\">x</a>",
        "<base href='http://127.0.0.1:9/'>",
    ],
)
def test_markup_that_came_in_all_the_same_is_stopped_by_the_policy(browser: Browser, paged: Page, evil: str) -> None:
    with browser.tab(paged(evil)) as tab:
        tab.value("document.getElementById('link') && document.getElementById('link').click()")
        tab.value("new Promise((done) => setTimeout(done, 50))")
        assert tab.value("document.title").startswith("Report on ")
        assert tab.value("getComputedStyle(document.body).display") == "block"
        assert tab.value("document.baseURI").startswith("file:")
        assert [text for text in tab.complaints() if "Content Security Policy" in text]
        received = [event for event in browser.events if event.get("method") == "Network.responseReceived"]
        assert [one for one in received if "127.0.0.1" in json.dumps(one)] == []


def test_numbers_can_be_taken_as_csv_and_json(browser: Browser, paged: Page) -> None:
    def content(tab: Tab, selector: str) -> tuple[str, str]:
        link = f"document.querySelector({selector!r})"
        assert tab.value(f"{link}.hidden") is False
        text: str = tab.value(
            f"new Promise((done) => {{ const all = {link}.href; taken.get(all).text().then(done); }})"
        )
        return tab.value(f"{link}.download"), text

    file = paged()
    text = file.read_text(encoding="utf-8")
    with browser.tab(file) as tab:
        # What a link holds cannot be fetched under the page's policy, so it is seen where it is made.
        tab.call(
            "Page.addScriptToEvaluateOnNewDocument",
            source="window.taken = new Map(); const make = URL.createObjectURL;"
            "URL.createObjectURL = (blob) => { const url = make(blob); taken.set(url, blob); return url; };",
        )
        tab.call("Page.reload")
        tab.wait("window.taken && document.documentElement.dataset.drawn === 'yes'")
        name, csv = content(tab, "a.csv[data-table=p0-problems]")
        assert name == "p0-problems.csv"
        lines = csv.split("\r\n")
        assert lines[0] == "problem,prompt,a,b,became"
        assert len(lines) == 6  # four problems, and the end of the last line
        formula = next(line for line in lines if line.startswith("e3"))
        assert formula.startswith("e3,\"'=HYPERLINK(")  # a spreadsheet takes it for a text
        name, whole = content(tab, "a.json")
        assert name == "report.json"
        assert json.loads(whole) == json.loads(text.split('id="report-data">')[1].split("</script>")[0])


def test_it_can_be_read_by_keys_alone(browser: Browser, paged: Page) -> None:
    with browser.tab(paged()) as tab:
        seen = []
        for _ in range(60):
            tab.press("Tab")
            seen.append(tab.value(FOCUS))
        assert seen[0][:2] == ["A", "skip"]
        assert {"A", "DIV", "PRE"} <= {one[0] for one in seen}
        assert all(outline == "solid" for _, _, outline, _ in seen)  # where one is can be seen
        assert all(label for tag, _, _, label in seen if tag == "DIV")
        unlabelled = tab.value(f"{CHARTS}.filter((one) => !one.getAttribute('aria-label')).length")
        assert unlabelled == 0


def test_it_can_be_printed(browser: Browser, paged: Page) -> None:
    with browser.tab(paged(), dark=True) as tab:
        folded = "document.querySelectorAll('details:not([open])').length"
        before = tab.value(folded)
        tab.value("dispatchEvent(new Event('beforeprint'))")
        assert tab.value(folded) == 0
        tab.value("dispatchEvent(new Event('afterprint'))")
        assert tab.value(folded) == before
        tab.call("Emulation.setEmulatedMedia", media="print", features=[])
        assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"  # paper is white
        assert tab.value("getComputedStyle(document.querySelector('.tools')).display") == "none"
        assert tab.printed().startswith(b"%PDF-")
        assert tab.complaints() == []


def test_without_scripts_tables_and_texts_are_there(browser: Browser, paged: Page) -> None:
    with browser.tab(paged()) as tab:
        tab.call("Emulation.setScriptExecutionDisabled", value=True)
        tab.call("Page.reload")
        text = ""
        while "Charts need JavaScript" not in text:
            text = tab.value("document.body ? document.body.innerText : ''")
        assert "Settings that differ" in text
        assert "e3" in text


def test_a_study_of_72_runs_is_sent_by_mail(browser: Browser, home: Home, recorded: Recorded, tmp_path: Path) -> None:
    """72 run directories with curves of 100 steps, their evaluations recorded: under 3 MB, and drawn."""
    document: dict[str, Any] = studies.advantage_study(24)
    study = studies.write(home, document)
    model = reported.run(recorded)
    rows = [
        {"step": step, "stage": 0, "update": 1, "completions": 16 * step, "groups/dead": (step % 5) / 5,
         **({"eval/reward": 0.4 + step / 1000} if step % 10 == 0 else {})}
        for step in range(101)
    ]  # fmt: skip
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    for trial in document["trials"]:
        for seed in trial["seeds"]:
            run = study.run(trial["number"], seed)
            run.path.mkdir(parents=True)
            for file in (model.spec, model.provenance, model.problems, model.timings, model.status):
                (run.path / file.name).write_bytes(file.read_bytes())
            result = {**json.loads(model.result.read_text(encoding="utf-8")), "run_id": run.id, "seed": seed}
            run.result.write_text(json.dumps(result), encoding="utf-8")
            run.metrics.write_text(lines, encoding="utf-8")
    file = tmp_path / "study.html"
    write_page(report_of(home, [study.id]), file)
    assert file.stat().st_size < 3_000_000
    with browser.tab(file) as tab:
        assert sound(tab)
        assert min(tab.value(MARKS)) > 3
        part = "JSON.parse(document.getElementById('report-data').textContent).parts[0]"
        runs = f"{part}.tables['p0-curves-seeds'].rows.map((row) => row[2])"
        assert tab.value(f"new Set({runs}).size") == 3 * sum(
            trial["status"] != "FAILED" and trial["number"] in document["ranking"] for trial in document["trials"]
        )


def test_a_table_wider_than_the_window_says_so(browser: Browser, paged: Page) -> None:
    wider = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1)"
    for width, some in ((380, True), (1600, False)):
        with browser.tab(paged(), width=width) as tab:
            hinted = tab.value("document.querySelectorAll('.scroll.more').length")
            assert hinted == tab.value(f"{wider}.length")
            assert (hinted > 0) == some
            shown = "getComputedStyle(document.querySelector('.scroll.more'), '::before').content"
            assert "scroll" in tab.value(shown) if some else True
