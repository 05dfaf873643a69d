"""The site: it builds strictly, fetches nothing from elsewhere, and its links follow the files."""

import importlib.util
import logging
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import subtree_attention as sta
from tests.docs.snippets import ROOT

pytest.importorskip("mkdocs", reason='needs mkdocs: pip install ".[docs]"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


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
    for copy in ("results/bench-cuda.json", "results/reproduce/theorem.png", "CITATION.cff"):
        assert (site / copy).read_bytes() == (ROOT / copy).read_bytes()
    source = (site / "src/subtree_attention/ops/definition.py.html").read_text()
    assert "def " in re.sub(r"<[^>]+>", "", source)


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
        ("results/README.md", "results/README.md", "![p](bench-cpu.png)", "![p](bench-cpu.png)"),
        ("README.md", "index.md", "[x](https://arxiv.org/a)", "[x](https://arxiv.org/a)"),
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
    expected = 'A `Graph` of ["A paper"](https://a.b/c).\n\n```latex\na\nb\n```\n\nMore.'
    assert module("docstrings").markdown(text) == expected
