"""A subtree as a picture: what is in it, that it needs nothing else, and that data stays data."""

import re
from base64 import b64encode
from pathlib import Path
from xml.etree import ElementTree

import pytest

import subtree_attention as sta
from subtree_attention.show.layout import Node, place
from subtree_attention.show.subtree import Choice, of_run
from subtree_attention.show.subtree_svg import subtree_svg
from tests.show.conftest import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"
DATA = "data:image/png;base64,"
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def run(digits: Path) -> sta.SavedRun:
    return sta.open(digits, device="cpu")


def told(run: sta.SavedRun, node: int = 7, by: str = "attention", most: int = 20) -> dict:
    return of_run(run, run.explainer(node), Choice(2, None, by, 3), most)


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def test_all_nodes_captions_and_the_rest_are_drawn(run: sta.SavedRun) -> None:
    apart = told(run)
    drawn = parsed(subtree_svg(apart, classes=run.dataset.classes, look="light"))
    groups, texts = drawn.findall(f"{SVG}g"), [text.text for text in drawn.iter(f"{SVG}text")]
    rests = [level["rest"] for level in apart["levels"] if level["rest"]["nodes"]]
    assert len(groups) == len(apart["nodes"]) + len(rests)
    for level, rest in zip(apart["levels"][-len(rests) :], rests, strict=True):
        share = f"{100 * min(1 - rest['attention'], 0.99):.0f} %"
        assert f"{level['nodes'] - rest['nodes']} of {level['nodes']}, {share}" in texts
        assert f"+{rest['nodes']}" in texts
    titles = [group.find(f"{SVG}title").text for group in groups]
    first = apart["nodes"][0]
    assert titles[0].startswith(f"{first['id']}, predicted {first['predicted']}")
    assert first["id"] in texts
    assert {node["predicted"] for node in apart["nodes"]} <= set(texts)  # the key


def test_only_mistakes_are_ringed(run: sta.SavedRun) -> None:
    wrong = run.answers.mistakes(run.split.test.numpy())[0]
    for node, most in ((wrong, 1), (7, 1)):
        apart = of_run(run, run.explainer(node), Choice(0, None, "attention", 3), most)
        svg = subtree_svg(apart, classes=run.dataset.classes)
        ring = f'stroke="var(--class-{int(run.target[node])})"'  # as on the page: what it is
        assert (ring in svg) == ("wrong: ringed by what it is" in svg) == (node == wrong)


def test_alone_it_has_its_colours_and_no_style(run: sta.SavedRun) -> None:
    apart = told(run)
    for look in ("light", "dark"):
        svg = subtree_svg(apart, classes=run.dataset.classes, look=look)
        assert "var(" not in svg
        assert svg == subtree_svg(apart, classes=run.dataset.classes, look=look)
        for element in parsed(svg).iter():
            names = element.attrib.keys()
            assert not {"style", "class"} & names
            assert element.attrib.get("href", DATA).startswith(DATA)
            assert not [name for name in names if name.startswith("on")]
            assert element.tag.removeprefix(SVG) not in {"script", "style", "foreignObject"}
    assert "var(--class-" in subtree_svg(apart, classes=run.dataset.classes)


def test_texts_of_the_users_are_never_markup(run: sta.SavedRun) -> None:
    apart = told(run)
    for node in apart["nodes"]:
        node |= {"id": HOSTILE, "name": HOSTILE[::-1], "predicted": HOSTILE, "label": "\ud800"}
    svg = subtree_svg(apart, classes=[HOSTILE], label=HOSTILE)
    drawn = parsed(svg.encode())
    assert not [element for element in drawn.iter() if element.tag.endswith("script")]
    assert "\u202e" not in svg
    svg.encode("utf-8")


def test_a_picture_is_inside_of_its_node(run: sta.SavedRun) -> None:
    apart = told(run)
    drawn = parsed(subtree_svg(apart, classes=run.dataset.classes))
    assert next(drawn.iter(f"{SVG}image")).attrib["href"].startswith(DATA)
    for node in apart["nodes"]:
        node["picture"] = PNG if node["hop"] == 0 else None
    (image,) = parsed(subtree_svg(apart, classes=run.dataset.classes)).iter(f"{SVG}image")
    assert image.attrib["href"] == DATA + b64encode(PNG).decode()


def test_contributions_are_by_their_sign(run: sta.SavedRun) -> None:
    apart = told(run, by="contribution")
    svg = subtree_svg(apart, by="contribution", classes=run.dataset.classes)
    takes = sum(node["contribution"] < 0 for node in apart["nodes"])
    key = 1 if takes else 0
    assert svg.count('fill="var(--minus)"') == takes + key
    assert "%" not in " ".join(re.findall(r">(\d+ of [^<]*)<", svg))


def test_a_node_without_edges_is_said_to_be_alone() -> None:
    node = {"hop": 0, "parent": None, "id": "a", "attention": 1.0, "contribution": 1.0}
    rest = {"nodes": 0, "attention": 0.0, "contribution": 0.0}
    levels = [{"hop": 0, "nodes": 1, "rest": rest}, {"hop": 1, "nodes": 0, "rest": rest}]
    svg = subtree_svg({"nodes": [node], "levels": levels})
    assert "no edge leads here" in svg


def test_siblings_stand_apart_and_inside_of_their_parents_sector() -> None:
    nodes = [Node(0, None, 40), *(Node(1, 0, 20 + 3 * i) for i in range(7))]
    nodes += [Node(2, 1 + i % 4, 12) for i in range(30)]
    spots, rings = place(nodes, {1: 80, 2: 100})
    assert rings[1] < rings[2]
    for a, (one, node) in enumerate(zip(spots, nodes, strict=True)):
        for other, far in zip(spots[a + 1 :], nodes[a + 1 :], strict=True):
            apart = ((one.x - other.x) ** 2 + (one.y - other.y) ** 2) ** 0.5
            assert apart >= (node.size + far.size) / 2
    for at, node in enumerate(nodes):  # a caption stands free at the top
        if node.hop != 0:
            assert abs(spots[at].x) > 5 or spots[at].y > 0
