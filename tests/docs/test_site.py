"""The site: it builds strictly, fetches nothing from elsewhere, and its links follow the files.

Formulas are drawn, and no page is wider than a phone.
"""

import html
import importlib.util
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import subtree_attention as sta
from tests.docs.snippets import ROOT

PluginError = pytest.importorskip(
    "mkdocs.exceptions", reason='needs mkdocs: pip install ".[docs]"'
).PluginError


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def phones(browser: Any) -> Callable[[str], Any]:
    """A page of the size of a phone, by the colours that its owner likes."""
    size = {"width": 390, "height": 844}
    return lambda mode: browser.new_page(viewport=size, color_scheme=mode)


def module(name: str) -> ModuleType:
    """A helper of the site, which is no part of the package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def rewritten(markdown: str, source: str, uri: str) -> str:
    file = SimpleNamespace(abs_src_path=str(ROOT / source), src_uri=uri)
    return module("hooks").on_page_markdown(markdown, SimpleNamespace(file=file), None, None)


def test_pages_and_what_they_link_to_are_there(site: Path) -> None:
    for page in ("index", "tutorial", "pyg", "maths", "performance", "reproduction", "tables"):
        assert (site / f"{page}.html").is_file()
    for copy in ("results/bench-cuda.json", "results/reproduce/theorem.svg", "CITATION.cff"):
        assert (site / copy).read_bytes() == (ROOT / copy).read_bytes()
    source = (site / "src/subtree_attention/ops/definition.py.html").read_text()
    assert "def " in re.sub(r"<[^>]+>", "", source)


def test_a_bar_in_the_code_of_a_cell_has_no_backslash(site: Path) -> None:
    assert "<code>a|b</code>" in (site / "tables.html").read_text()


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        loaded = re.findall(r'<(?:script|img|link)\b[^>]*?(?:src|href)="([^"]+)"', page.read_text())
        assert loaded
        assert not [url for url in loaded if url.startswith(("http", "//"))], page.name


def test_the_api_has_every_public_name(site: Path) -> None:
    page, text = (site / "api.html").read_text(), (ROOT / "docs/api.md").read_text()
    for name in sta.__all__:
        assert re.search(rf"\b{name}\b", text), name
    assert ".. math::" not in page
    assert ":class:" not in page
    for argument in ("hidden_channels", "edge_weight", "unknown_ends", "checkpoint_seconds"):
        assert argument in page


@pytest.mark.parametrize(
    ("source", "uri", "link", "there"),
    [
        ("README.md", "index.md", "[t](docs/tables.md#nodes)", "[t](tables.md#nodes)"),
        ("docs/tables.md", "tables.md", "[a](../README.md)", "[a](index.md)"),
        ("docs/api.md", "api.md", "[m](../src/subtree_attention/ops/README.md)", "[m](maths.md)"),
        ("README.md", "index.md", "[`nn/`](src/subtree_attention/nn)", "`nn/`"),
        ("results/README.md", "results/README.md", "![p](bench-cpu.svg)", "![p](bench-cpu.svg)"),
        ("README.md", "index.md", "[x](https://arxiv.org/a)", "[x](https://arxiv.org/a)"),
        (
            "README.md",
            "index.md",
            '<picture>\n<source media="(prefers-color-scheme: dark)" '
            'srcset="docs/assets/subtree-dark.png">\n'
            '<img src="docs/assets/subtree-light.png" alt="a"></picture>',
            "![a](assets/subtree-light.png){ .on-light } ![a](assets/subtree-dark.png){ .on-dark }",
        ),
        (
            "README.md",
            "index.md",
            "[`g`](src/subtree_attention/graph.py)",
            "[`g`](src/subtree_attention/graph.py.md)",
        ),
    ],
)
def test_links_follow_the_files(source: str, uri: str, link: str, there: str) -> None:
    assert rewritten(f"see {link}.", source, uri) == f"see {there}."


def test_a_link_to_nothing_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        rewritten("[gone](docs/gone.md)", "README.md", "index.md")
    assert "README.md links to docs/gone.md, which is not there" in caplog.text


def test_docstrings_become_markdown() -> None:
    text = 'A :class:`Graph` of `"A paper"\n<https://a.b/c>`_.\n\n.. math::\n    a\n    b\n\nMore.'
    expected = 'A `Graph` of ["A paper"](https://a.b/c).\n\n```math\na\nb\n```\n\nMore.'
    assert module("docstrings").markdown(text) == expected
    assert module("docstrings").markdown(":math:`W_O\n x`") == "$W_O x$"


def test_formulas_are_drawn(site: Path) -> None:
    for page in ("maths", "api", "scale", "sampling", "deep"):
        assert "</math>" in (site / f"{page}.html").read_text()
    for page in site.rglob("*.html"):
        shown = re.sub(r"<(pre|code)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert not re.findall(r"\\[a-zA-Z]+|\$\$|arithmatex", shown), page.name


@pytest.mark.parametrize("tex", [r"\nosuchcommand x", r"\frac{a}{", r"a & b", r"\left( x"])
def test_a_formula_that_cannot_be_drawn_fails_the_build(tex: str) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="maths.md"))
    content = f'<span class="arithmatex">\\({html.escape(tex)}\\)</span>'
    with pytest.raises(PluginError, match=r"maths\.md: .*formula") as refused:
        module("formulas").on_page_content(content, page, None, None)
    assert tex in str(refused.value)


WIDER = """async () => {
  await document.fonts.ready
  const frame = () => new Promise((done) => requestAnimationFrame(done))
  await frame()
  await frame()  // what watches sizes is told between the two
  const width = document.documentElement.clientWidth
  const boxes = [...document.querySelectorAll(".wide, .highlight > pre")]
  return {
    sideways: document.documentElement.scrollWidth > width,
    scrolling: boxes.filter((box) => box.scrollWidth > box.clientWidth).length,
    reached: boxes.filter((box) => box.tabIndex === 0 && box.ariaLabel).length,
  }
}"""


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_no_page_is_wider_than_a_phone(site: Path, phones, mode: str) -> None:
    """What is wide scrolls in a box of its own, which the keyboard reaches and a name announces."""
    page, some = phones(mode), 0
    files = site.rglob("*.html") if mode == "light" else [site / "performance.html"]
    for file in files:
        page.goto(file.as_uri())
        found = page.evaluate(WIDER)
        assert not found["sideways"], file
        assert found["reached"] == found["scrolling"], file
        some += found["scrolling"]
    assert some > 3
    assert page.evaluate("document.documentElement.dataset.bsTheme") == mode
