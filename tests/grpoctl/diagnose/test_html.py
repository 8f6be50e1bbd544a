"""The report as one page: whole in itself, safe whatever a log holds, and drawn by a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from core.errors import StorageError
from core.health.case import Settings
from core.health.finding import Finding, RuledOut
from grpoctl.diagnose.figures import figure_svg
from grpoctl.diagnose.html import page, write_html
from tests.grpoctl.diagnose.conftest import GRAVE, MILD, ROWS, Diagnosed

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
EVIL = "<script>document.title='taken'</script><img src=x onerror=alert(1)>\x1b[2J\u202e]]>"
LOADS = {"src", "srcset", "data", "action", "poster", "background"}  # attributes that fetch


class Tags(HTMLParser):
    """The tags of a page, its attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_whole_page(diagnosed: Diagnosed) -> None:
    found = Tags(page(diagnosed(GRAVE, MILD, settings=Settings(beta=0.1), notes=("cut off",))))
    for said in (
        "1 error, 1 warning", "3 of 3 steps after an update", "p 1.25e-09", "line 7: `use_cache=True`",
        "policy-collapse", "it healed: without an update",
        "grpoctl run NAME guards.rollout_integrity=stop",
        "Is it the sampler?",
        "collapse_rate < 0.05", "half were dead", "updates", "beta", "cut off", "step with an update (3)",
        "all completions invalid", "Reward", "Valid completions", "KL to the reference",
    ):  # fmt: skip
        assert said in found.text, said
    assert [tag for tag, _ in found.tags].count("svg") == 1


def test_nothing_is_fetched(diagnosed: Diagnosed) -> None:
    text = page(diagnosed(GRAVE))
    tags = Tags(text).tags
    assert not {"script", "link", "iframe", "object", "embed", "base", "img", "image"} & {tag for tag, _ in tags}
    names = {name for _, attributes in tags for name in attributes}
    assert not {name for name in names if name in LOADS or name.startswith("on")}
    links = [value for _, attributes in tags for name, value in attributes.items() if name.endswith("href")]
    assert links
    assert all(str(link).startswith("#") for link in links)
    assert "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    assert "default-src 'none'" in text


def test_a_log_is_text_whatever_it_holds(diagnosed: Diagnosed) -> None:
    finding = Finding(
        id=EVIL, severity="error", summary=EVIL, evidence={EVIL: [EVIL, f"`{EVIL}`"], "k": EVIL}, suggest=(EVIL,),
        rules_out=(RuledOut(id=EVIL, why=f"`{EVIL}`"),), advice=EVIL,
    )  # fmt: skip
    text = page(diagnosed(finding, source=EVIL, notes=(EVIL,), kind=EVIL))
    assert not {"script", "img"} & {tag for tag, _ in Tags(text).tags}
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_figure_takes_the_colours_of_the_page() -> None:
    """And names nothing of a page twice: it is the only figure there."""
    svg = figure_svg(ROWS)
    assert svg.startswith("<svg")
    assert svg.endswith("</svg>")
    assert not re.findall(r"#0[0-9a-f]{5}|<metadata|<style|font-family", svg)
    assert {"ink", "faint", "train", "eval", "bad", "mark"} == set(re.findall(r"var\(--(\w+)\)", svg))
    names = re.findall(r' id="([^"]*)"', svg)
    assert len(names) == len(set(names))
    assert svg == figure_svg(ROWS)  # equal runs have equal figures


def test_without_a_curve_there_is_no_figure(diagnosed: Diagnosed) -> None:
    assert figure_svg([{"step": 1, "kl": 0.5}]) == ""
    assert "No figure" in page(diagnosed(rows=({"step": 1},)))


def test_the_legend_names_what_is_drawn(diagnosed: Diagnosed) -> None:
    """No evaluation has an error, no step is marked, and 1,000 steps are thinned out."""
    rows = [{"step": step, "update": 1, "reward/mean": 0.5 + step, "eval/reward": 0.5} for step in range(1, 1001)]
    text = page(diagnosed(rows=tuple(rows)))
    legend = Tags(text[text.index("<figcaption>") : text.index("</figcaption>")]).text.strip().split("\n")
    assert legend == ["training", "evaluation", "(400 points, each the mean of neighbouring steps)"]


def test_odd_curves_are_drawn() -> None:
    """All equal, from 1e-8 to 1, and a single evaluation among many steps."""
    rows = [{"step": step, "reward/mean": 0.5, "kl": 10.0**-step, "completions/valid": 1.0} for step in range(1, 9)]
    svg = figure_svg([*rows, {"step": 9, "eval/reward": 1.0}])
    assert "1e-08" in svg.replace("\N{MINUS SIGN}", "-")
    assert "$" not in svg


def test_a_file_is_replaced_whole_or_not_at_all(diagnosed: Diagnosed, tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    file.write_text("old")
    write_html(diagnosed(GRAVE), file)
    assert file.read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(StorageError, match=r"cannot write .*No such file or directory"):
        write_html(diagnosed(GRAVE), tmp_path / "no-folder" / "a.html")
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_a_real_browser_shows_it(diagnosed: Diagnosed, tmp_path: Path) -> None:
    """Built as it was written, no script of a log has run, nothing was complained of, and it is not blank."""
    file, shot = tmp_path / "a.html", tmp_path / "a.png"
    evil = Finding(id="a", severity="warning", summary=EVIL, evidence={"k": [EVIL]})
    write_html(diagnosed(GRAVE, evil), file)
    dom = browse(file, "--dump-dom", tmp_path)
    assert "<title>Diagnosis of old.log</title>" in dom.stdout
    assert "3 of 3 steps after an update were all-invalid" in dom.stdout
    assert dom.stdout.count("<svg") == 1
    assert "CONSOLE" not in dom.stderr, dom.stderr
    browse(file, f"--screenshot={shot}", tmp_path)
    assert colours(shot) > 50  # a blank page has one


def browse(file: Path, what: str, home: Path) -> subprocess.CompletedProcess[str]:
    """A headless browser on the file that can reach no network: every name and proxy leads nowhere."""
    assert BROWSER is not None
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr"]
    offline = [
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--proxy-server=127.0.0.1:9",
        f"--user-data-dir={home / 'profile'}",
    ]
    command = [BROWSER, *quiet, *offline, "--window-size=900,1600", what, file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


def colours(picture: Path) -> int:
    """How many colours a picture has."""
    from matplotlib.image import imread

    pixels = imread(picture)[:, :, :3].reshape(-1, 3)
    return len({tuple(pixel) for pixel in pixels.tolist()})


def test_pictures_of_a_run_stand_in_the_page_itself(diagnosed: Diagnosed, tmp_path: Path) -> None:
    files = (tmp_path / "step-000000.png", tmp_path / "step-000090.png")
    for file in files:
        file.write_bytes(bytes(range(9)))
    found = Tags(page(diagnosed(pictures=files)))
    images = [attributes for tag, attributes in found.tags if tag == "img"]
    assert [image["src"] for image in images] == ["data:image/png;base64,AAECAwQFBgcI"] * 2
    assert "step 000000" in found.text
    assert "step 000090" in found.text
    with pytest.raises(StorageError, match="gone"):
        page(diagnosed(pictures=(tmp_path / "gone.png",)))
