"""Explanations in a notebook: what they show, that nothing in it acts, and the page behind them."""

import json
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from urllib.request import urlopen

import pytest
import torch

import subtree_attention as sta
from subtree_attention.show.pages import serving
from subtree_attention.show.text import visible
from tests.show.conftest import HOSTILE

# What is left of SVG where HTML of others is cleaned, as on GitHub (nbconvert has such a list).
TAGS = {"svg", "g", "title", "circle", "rect", "polygon", "line", "text", "p", "table", "tr"}
ATTRIBUTES = {
    *("xmlns", "viewbox", "width", "height", "role", "aria-label", "font-family", "font-size"),
    *("font-weight", "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray"),
    *(
        "stroke-linejoin",
        "text-anchor",
        "x",
        "y",
        "x1",
        "y1",
        "x2",
        "y2",
        "cx",
        "cy",
        "r",
        "points",
    ),
}


class Seen(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def run(own: Path) -> sta.SavedRun:
    return sta.open(own, device="cpu")


def test_a_what_if_shows_before_and_after(run: sta.SavedRun) -> None:
    node, other = (run.dataset.id(node) for node in (7, 3))
    made = run.what_if(node, without=[other])
    seen = Seen(made._repr_html_())
    assert seen.tags <= {"p", "table", "tr", "th", "td"}
    assert not seen.attributes
    text = " ".join(seen.words)
    assert visible(f"without {other}") in text
    for share in made.probabilities.flatten():
        assert f"{100 * share:.1f} %" in text


def test_it_shows_itself_with_ids_and_classes_and_nothing_acts(run: sta.SavedRun) -> None:
    node = run.dataset.id(run.answers.mistakes(run.split.test.numpy())[0])
    text = run.explain(node)._repr_html_()
    said = repr(run.explain(node))
    assert said.startswith(f"Explanation(root={node!r}")
    assert f"predicted={run.answers.told(run.dataset.find(node))!r}, nodes=" in said
    seen = Seen(text)
    assert seen.tags <= TAGS | {"td", "th"}
    assert seen.attributes <= ATTRIBUTES
    assert "var(" not in text
    assert len(text) < 60_000
    shown = HOSTILE.replace("\u202e", "\N{REPLACEMENT CHARACTER}")
    assert f"node {shown}" in seen.text
    assert "(the node itself)" in seen.text
    assert "it is " in seen.text
    assert "\u202e" not in text


def test_the_rows_add_up_to_the_logit(run: sta.SavedRun) -> None:
    from subtree_attention.show.notebook import _output, _rows

    why = run.explain(run.dataset.id(3))
    *parts, (_, whole) = _rows(why, _output(why, None))
    assert sum(adds for _, adds in parts) == pytest.approx(whole, abs=1e-4)
    assert whole == pytest.approx(float(why.logits.max()), abs=1e-6)


def test_a_bare_model_has_numbers_and_no_page(run: sta.SavedRun) -> None:
    why = sta.explain(run.model, run.dataset.features, run.graph, root=5)
    seen = Seen(why._repr_html_())
    assert f"node 5: the logit of class {why.predicted}" in seen.text
    assert "5 (the node itself)" in seen.text
    with pytest.raises(ValueError, match="of a bare model"):
        why.show()


def test_an_attribution_has_a_table_only() -> None:
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    torch.manual_seed(0)
    model = sta.STAFormer(4, 8, 3, hops=2, heads=2, layers=2).eval()
    why = sta.explain(model, torch.randn(4, 4), edges, root=1)
    seen = Seen(why._repr_html_())
    assert "svg" not in seen.tags
    assert "missing" in seen.text
    with pytest.raises(ValueError, match="no single level of attention to draw"):
        sta.as_svg(why)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"by": "size"}, "order"), ({"look": "grey"}, "look")],
)
def test_mistakes_are_plain(given: dict, message: str, run: sta.SavedRun) -> None:
    with pytest.raises(ValueError, match=message):
        sta.as_svg(run.explain(run.dataset.id(0)), **given)


def test_show_opens_the_page_at_the_root(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(serving, "open_browser", opened.append)
    run = sta.open(digits, device="cpu")
    page = run.explain("12").show()
    assert opened == [page]
    assert unquote(page).endswith("/#/node/12")
    start = sta.explore(run, browser=False)
    assert page.startswith(start)  # served once
    assert len(opened) == 1
    with urlopen(f"{start}api/node?id=12") as answer:
        assert json.load(answer)["id"] == "12"


def test_only_nodes_are_explained(tmp_path: Path, run: sta.SavedRun) -> None:
    with pytest.raises(ValueError, match="there is no node"):
        run.explain("nobody")
