"""What the page is told of a run."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from subtree_attention import Dataset, from_tables, open
from subtree_attention.config import STAGNNSettings
from subtree_attention.nn import build
from subtree_attention.show.explore import Views
from subtree_attention.show.explore.columns import Columns
from subtree_attention.show.explore.views import UnknownNode
from subtree_attention.show.subtree import MOST, NODES, STEP, share_out
from tests.show.explore.odd import HOSTILE, ODD
from tests.show.made import made_run


@pytest.fixture(scope="module")
def large():
    """A graph of which only a part can be drawn, with global attention beside."""
    torch.manual_seed(0)
    y = torch.randint(9, (400,))
    data = Dataset(torch.randn(400, 6), torch.randint(400, (2, 2400)), y, name="large")
    settings = STAGNNSettings(hidden_channels=16, hops=4, heads=4, global_attention=True)
    run = made_run(build(settings, 6, 9), data, temperature=1.7)
    return Views(run), run


@pytest.mark.parametrize("hops", [0, 2, 4])
@pytest.mark.parametrize("head", [None, 1, 4])
@pytest.mark.parametrize("by", ["attention", "contribution"])
def test_the_parts_add_up_to_the_models_logit(large, hops, head, by):
    views, run = large
    for cls in (None, "7"):
        view = views.node("33", hops, head, by, cls)
        parts, place = view["parts"], views.graph()["classes"].index(view["class"])
        names = ("others_contribution", "beyond", "other_heads", "bias")
        whole = sum(source["contribution"] for source in parts["sources"])
        whole += sum(parts[name] for name in names)
        assert whole == pytest.approx(run.logits[33, place], abs=1e-5)
        assert parts["logit"] == pytest.approx(whole, abs=1e-5)
        assert (parts["other_heads"] == 0) == (head is None)
        heads = sum(sum(level["heads"]) for level in view["levels"])
        assert heads + parts["bias"] == pytest.approx(whole, abs=1e-5)


@pytest.mark.parametrize("head", [None, 2])
def test_the_nodes_of_a_level_and_its_rest_are_the_level(large, head):
    view = large[0].node("5", 3, head)
    assert [level["hop"] for level in view["levels"] if level["rest"]] == [0, 1, 2, 3, "global"]
    for level in view["levels"]:
        if level["rest"] is None:
            continue
        drawn = [node for node in view["nodes"] if node["hop"] == level["hop"]]
        assert len(drawn) + level["rest"]["nodes"] == level["nodes"]
        for name, whole in (("attention", 1), ("contribution", level["contribution"])):
            told = sum(node[name] for node in drawn) + level["rest"][name]
            assert told == pytest.approx(whole, abs=1e-3)  # less what eps takes


def test_the_largest_are_drawn_and_linked_along_their_walks(large):
    view = large[0].node("5", 4, by="contribution")
    assert len(view["nodes"]) <= NODES
    for node in view["nodes"]:
        if node["hop"] in (0, "global"):
            assert node["parent"] is None
            continue
        assert (node["walk"][0], node["walk"][-1]) == (node["id"], "5")
        parent = view["nodes"][node["parent"]]
        assert node["walk"][node["hop"] - parent["hop"]] == parent["id"]
    level = [abs(node["contribution"]) for node in view["nodes"] if node["hop"] == 4]
    assert level == sorted(level, reverse=True)


def test_more_of_a_level_is_drawn_when_it_is_opened(large):
    views = large[0]
    first = {level["hop"]: level for level in views.node("5", 3)["levels"]}
    more = first[3]["rest"]["opened"]
    assert more == first[3]["nodes"] - first[3]["rest"]["nodes"] + STEP
    view = views.node("5", 3, opened={3: more, 1: 2})  # what is drawn anyway stays
    second = {level["hop"]: level for level in view["levels"]}
    assert second[3]["rest"]["nodes"] == first[3]["rest"]["nodes"] - STEP
    assert [second[hop] for hop in (0, 1, 2)] == [first[hop] for hop in (0, 1, 2)]
    last = views.node("5", 3, opened={3: 10**6, "global": 10**6})["levels"]
    assert (last[3]["rest"]["nodes"], last[-1]["rest"]["nodes"]) == (0, 400 - MOST)
    assert last[3]["rest"]["opened"] is last[-1]["rest"]["opened"] is None


def test_small_levels_are_drawn_whole():
    assert share_out([1, 4, 100, 1000], 60) == [1, 4, 27, 28]
    assert share_out([1, 2], 60) == [1, 2]
    assert share_out([1] * 70, 60) == [1] * 70


def test_probabilities_and_lists_are_the_runs(views, own_run):
    run = open(own_run)
    for node, id in enumerate(ODD):
        view = views.node(id)
        assert view["probabilities"] == run.probabilities[node].tolist()
        assert view["predicted"] == run.dataset.classes[run.probabilities[node].argmax()]
    sure = np.sort(run.probabilities.max(1))
    assert [node["probability"] for node in views.listed("confident")] == sure[::-1][:20].tolist()
    assert [node["probability"] for node in views.listed("uncertain")] == sure[:20].tolist()


def test_mistakes_are_wrong_and_the_surest_first(large):
    views, run = large
    mistakes = views.listed("mistakes")
    assert all(node["label"] != node["predicted"] for node in mistakes)
    sure = [node["probability"] for node in mistakes]
    assert sure == sorted(sure, reverse=True)
    wrong = run.logits.argmax(1) != run.dataset.y.numpy()
    counts = views.graph()["splits"][-1]
    assert (counts["name"], counts["known"] - counts["right"]) == ("all", int(wrong.sum()))
    assert sure[0] == run.probabilities.max(1)[wrong].max()


def test_a_node_without_a_label_is_no_mistake(views):
    assert views.node(ODD[5])["label"] is None
    assert ODD[5] not in [node["id"] for node in views.listed("mistakes")]


def test_columns_come_back_as_the_table_had_them(views):
    told = {"age": "21", "city": "Rome", "label": "yes", "degree": "6"}
    assert dict(views.node(ODD[1])["columns"]) == told
    told = dict(views.node(ODD[4])["columns"])
    assert told["city"] == HOSTILE
    assert dict(views.node(ODD[3])["columns"])["age"] == "missing"


def test_vectors_come_back():
    numbers = [[float(i + j) for j in range(6)] if i else None for i in range(4)]
    nodes = {"id": list("abcd"), "v": numbers, "p": [[0.5, 1 + i / 4] for i in range(4)]}
    told = from_tables(nodes, {"source": ["a"], "target": ["b"]})
    assert dict(Columns(told)(3)) == {
        "v": "[3.0,4.0,5.0,6.0,7.0,8.0]",
        "p": "[0.5,1.75]",
        "degree": "0",
    }
    columns = Columns(replace(told, told=None))
    assert dict(columns(0)) == {"v": "missing", "p": "0.5, 1", "degree": "1"}
    assert dict(columns(3))["v"] == "3, 4, 5, 6, …"


def test_without_tables_features_are_counted(large):
    [features, degree] = large[0].node("5")["columns"]
    assert features == ("features", "6 of 6 not zero")
    assert degree[0] == "degree"


def test_search_puts_the_exact_first_then_beginnings(views):
    found = [node["id"] for node in views.search("P1")]
    assert found[:2] == ["p1", "p10"]
    assert views.search("passwd")[0]["id"] == "../../etc/passwd"
    assert views.search("p3")[0]["id"] == "p3"
    assert views.search("nothing like it") == []


@pytest.mark.parametrize("id", ODD)
def test_odd_ids_are_nodes_like_others(views, id):
    view = views.node(id)
    assert view["id"] == view["nodes"][0]["id"] == id
    json.dumps(view, allow_nan=False)


def test_what_is_not_there_is_named(views):
    with pytest.raises(UnknownNode, match="there is no node 'p99'"):
        views.node("p99")
    with pytest.raises(ValueError, match="there is no head 3: heads are 1 to 2"):
        views.node("p1", head=3)
    with pytest.raises(ValueError, match="unknown class"):
        views.node("p1", cls="maybe")
    with pytest.raises(ValueError, match="unknown order"):
        views.node("p1", by="size")
    with pytest.raises(ValueError, match="unknown list"):
        views.listed("best")


def test_search_says_where_the_text_stands(views):
    first = views.search("rome")[0]
    assert (first["column"], first["excerpt"], first["name"]) == ("city", "Rome", None)
    assert [node["column"] for node in views.search("p1")[:2]] == [None, None]


def test_a_graph_of_tables_has_no_pictures_unless_it_brings_some(views):
    assert not views.graph()["pictures"]
    assert not views.search("p1")[0]["picture"]
    with pytest.raises(UnknownNode, match="no picture of the node 'p1'"):
        views.picture("p1")
    with pytest.raises(UnknownNode, match="there is no node 'p99'"):
        views.picture("p99")
