"""Pages of one file in a real browser: on a desk, on a phone and on paper, in light and dark."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from subtree_attention.show.report import compare, gather, render, render_comparison

WAYS = {
    "desk": {"viewport": {"width": 1280, "height": 800}},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}},
    "paper": {"viewport": {"width": 703, "height": 1000}},  # A4 less its margins, at 96 per inch
}
OURS = ("file:", "data:")
CUT = """() => [...document.querySelectorAll("body, .wide, section, div, figure, p, td, th")]
    .filter((element) => element.scrollWidth > element.clientWidth + 1 && element.clientWidth)
    .map((element) => element.outerHTML.slice(0, 80))"""
OVERLAPS = """() => [...document.querySelectorAll(".mistake svg")].flatMap((svg) => {
    const boxes = [...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect());
    const apart = (a, b) => a.right < b.left + 1 || a.bottom < b.top + 3;
    return boxes.flatMap((a, i) => boxes.slice(i + 1)
        .filter((b) => !apart(a, b) && !apart(b, a)).map((b) => [a.x, a.y, b.x, b.y]));
})"""


@pytest.fixture(scope="module")
def files(own: Path, digits: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The reports of two runs, and runs with hostile names side by side."""
    folder = tmp_path_factory.mktemp("pages")
    again = shutil.copytree(own, folder / "again")
    made = {
        "own": render(gather(own, device="cpu")),
        "digits": render(gather(digits, device="cpu")),
        "compared": render_comparison(compare([own, again], device="cpu")),
    }
    for name, page in made.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture(params=list(WAYS))
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page whose every complaint fails the test."""
    page = browser.new_page(**WAYS[request.param])
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request", lambda asked: asked.url[:5] in ("file:", "data:") or complaints.append(asked)
    )
    if request.param == "paper":
        page.emulate_media(media="print")
    yield page
    page.close()
    assert complaints == []


@pytest.mark.parametrize("name", ["own", "digits", "compared"])
def test_nothing_is_cut_off_and_no_names_meet(
    page: Page, name: str, files: dict[str, Path]
) -> None:
    page.goto(files[name].as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(CUT) == []
    assert page.evaluate(OVERLAPS) == []


def test_dark_is_dark_and_paper_is_white(browser: Browser, files: dict[str, Path]) -> None:
    colours = []
    for way in ({"color_scheme": "light"}, {"color_scheme": "dark"}):
        page = browser.new_page(**way)
        page.goto(files["digits"].as_uri())
        look = "getComputedStyle(document.querySelector('{}')).{}"
        asked = (
            ("body", "backgroundColor"),
            (".mistake svg g circle, .mistake svg polygon", "fill"),
        )
        colours.append([page.evaluate(look.format(*one)) for one in asked])
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate(look.format("body", "backgroundColor")) == "rgb(255, 255, 255)"
        page.close()
    assert colours[0][0] == "rgb(253, 253, 252)"
    assert colours[1][0] == "rgb(21, 24, 28)"
    assert colours[0][1] != colours[1][1]


def test_it_prints_on_few_sheets(browser: Browser, files: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(files["digits"].as_uri())
    sheets = page.pdf(format="A4").count(b"/Type /Page\n")
    page.close()
    assert 3 <= sheets <= 14
