"""`SavedRun.what_if`: the same as if the tables had been so from the start."""

import json

import numpy as np
import pytest
import torch

import subtree_attention as sta
from subtree_attention.runs import WhatIf
from subtree_attention.show.changes import parse
from tests.samples import friends, people
from tests.show.made import made_run

COUNT = 70


def tables() -> tuple[dict[str, list], dict[str, list]]:
    nodes, edges = people(COUNT), friends(COUNT, 160)
    nodes["about"] = [
        f"{text} {'fish' if i % 3 else 'bird'}" for i, text in enumerate(nodes["about"])
    ]
    nodes["place"] = [[float(i % 7), float(i % 5)] for i in range(COUNT)]
    return nodes, edges


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> sta.SavedRun:
    data = sta.from_tables(*tables(), target="label", weight="strength")
    config = sta.recipe(data, runs=1, epochs=5, hops=2, heads=2)
    folder = sta.fit(config, tmp_path_factory.mktemp("own") / "out", device="cpu", data=data).folder
    return sta.open(folder, device="cpu")


def from_scratch(run: sta.SavedRun, nodes: dict, edges: dict, node: str) -> np.ndarray:
    """The probabilities of a node of other tables, whose columns are read as in training."""
    other = run.on(run.read_tables(nodes, edges)[0])
    return other.probabilities[other.dataset.find(node)]


def neighbour(edges: dict, node: str) -> str:
    pairs = zip(edges["source"], edges["target"], strict=True)
    return next(b if a == node else a for a, b in pairs if node in (a, b) and a != b)


class TestAsIfTheTablesWereSo:
    def same(self, run, node, nodes, edges, **changes) -> WhatIf:
        made = run.what_if(node, **changes)
        expected = from_scratch(run, nodes, edges, node)
        np.testing.assert_allclose(made.probabilities[1], expected, atol=1e-5)
        own = run.probabilities[run.dataset.find(node)]
        np.testing.assert_allclose(made.probabilities[0], own, atol=1e-5)
        assert not np.allclose(made.probabilities[0], made.probabilities[1], atol=1e-6)
        return made

    def test_without_a_node(self, run):
        nodes, edges = tables()
        gone = neighbour(edges, "p8")
        left = [i for i, id in enumerate(nodes["id"]) if id != gone]
        nodes = {name: [values[i] for i in left] for name, values in nodes.items()}
        pairs = list(zip(edges["source"], edges["target"], strict=True))
        left = [i for i, pair in enumerate(pairs) if gone not in pair]
        edges = {name: [values[i] for i in left] for name, values in edges.items()}
        made = self.same(run, "p8", nodes, edges, without=[gone])
        assert made.told == [f"without {gone}"]

    def test_without_an_edge_in_whatever_direction_it_was_given(self, run):
        nodes, edges = tables()
        other = neighbour(edges, "p8")
        pairs = list(zip(edges["source"], edges["target"], strict=True))
        left = [i for i, pair in enumerate(pairs) if {*pair} != {"p8", other}]
        edges = {name: [values[i] for i in left] for name, values in edges.items()}
        for cut in (("p8", other), (other, "p8")):
            self.same(run, "p8", nodes, edges, cut=[cut])

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("age", 71.5),
            ("age", None),
            ("city", "Rome"),
            ("about", "cat house"),
            ("tags", '["a", "b"]'),
            ("place", [3.0, 1.0]),
        ],
    )
    def test_another_value(self, run, column, value):
        nodes, edges = tables()
        nodes[column][nodes["id"].index("p7")] = value
        made = self.same(run, "p7", nodes, edges, values={column: value})
        assert "columns are scaled as in training" in made.kept

    def test_a_number_as_a_text(self, run):
        one, other = (run.what_if("p7", values={"age": age}) for age in (71.5, "71.5"))
        np.testing.assert_array_equal(one.probabilities, other.probabilities)

    def test_without_a_word(self, run):
        nodes, edges = tables()
        row = nodes["id"].index("p7")
        nodes["about"][row] = nodes["about"][row].replace("fish", "")
        self.same(run, "p7", nodes, edges, words=[("about", "fish")])

    def test_without_a_tag_or_a_category(self, run):
        nodes, edges = tables()
        row = nodes["id"].index("p7")
        tag, *others = dict.fromkeys(json.loads(nodes["tags"][row]))
        nodes["tags"][row], city = json.dumps(others), nodes["city"][row]
        nodes["city"][row] = None
        self.same(run, "p7", nodes, edges, words=[("tags", tag), ("city", city)])

    def test_all_at_once(self, run):
        nodes, edges = tables()
        row, other = nodes["id"].index("p7"), neighbour(edges, "p7")
        nodes["age"][row], nodes["about"][row] = 20.0, nodes["about"][row].replace("fish", "")
        pairs = list(zip(edges["source"], edges["target"], strict=True))
        left = [i for i, pair in enumerate(pairs) if {*pair} != {"p7", other}]
        edges = {name: [values[i] for i in left] for name, values in edges.items()}
        changes = parse(run, [f"edge:{other}>p7", "column:age=20", "word:about:fish"])
        made = self.same(run, "p7", nodes, edges, **changes)
        assert made.told == [f"without the edge {other} > p7", "age = 20", "about without 'fish'"]
        assert repr(made).startswith(f"WhatIf(without the edge {other} > p7; age = 20;")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "nothing is changed"),
        ({"without": ["p7"]}, "'p7' is the node asked about"),
        ({"without": ["p700"]}, r"there is no node 'p700' among 70 ids. Near: 'p70|'p7"),
        ({"cut": [("p7", "p7")]}, "there is no edge from 'p7' to 'p7'"),
        ({"values": {"agee": 3}}, r"there is no column 'agee' among the features. Near: age"),
        ({"values": {"age": "old"}}, "'age' cannot be 'old': column 'age' is a number"),
        ({"values": {"city": "Olso"}}, "'city' cannot be 'Olso': near are Oslo"),
        ({"values": {"label": "r"}}, "'label' is no feature of this model: it is what is learnt"),
        ({"values": {"id": "r"}}, "'id' is no feature of this model: it names the nodes"),
        ({"words": [("about", "horse")]}, "the node has no 'horse' in 'about'"),
        ({"words": [("about", "bird")]}, r"the node has no 'bird' in 'about'.* It has: "),
        ({"words": [("age", "40")]}, "'age' is a number and has no words"),
    ],
)
def test_a_mistake_is_told_in_words(run, changes, message):
    with pytest.raises(ValueError, match=message):
        run.what_if("p7", **changes)


def test_features_of_a_matrix_are_called_by_their_numbers():
    data = sta.Dataset(
        torch.randn(9, 16), torch.arange(8) + torch.tensor([[0], [1]]), torch.arange(9) % 3
    )
    run = made_run(sta.STAGNN(16, 8, 3), data)
    made = run.what_if("7", values={"12": 0.5, "feature 13": "0.25"})
    assert made.changes.columns == {12: 0.5, 13: 0.25}
    assert "columns are scaled as in training" not in made.kept
    for name, message in [("16", "there is no column '16'"), ("feature", "set one, such as")]:
        with pytest.raises(ValueError, match=message):
            run.what_if("7", values={name: 1})
    with pytest.raises(ValueError, match="'12' is a number, got 'x'"):
        run.what_if("7", values={"12": "x"})


class TestParse:
    def test_every_form(self, run):
        texts = ["p1", "node:p2", "edge:p3>p4", "word:about:fish", "column:city=", "column:age=3"]
        assert parse(run, texts) == {
            "without": ["p1", "p2"],
            "cut": [("p3", "p4")],
            "values": {"city": "", "age": "3"},
            "words": [("about", "fish")],
        }

    def test_signs_in_ids_and_names_are_no_signs_between(self, tmp_path):
        ids = ["a>b", "c", "edge:c>c", "d:e"]
        nodes = {"id": ids, "k:l=m": ["x", "y", "x", "y"], "label": ["0", "1", "0", "1"]}
        data = sta.from_tables(
            nodes, {"source": ids, "target": ids[::-1]}, target="label", features=["k:l=m"]
        )
        holder = type("Run", (), {"dataset": data})
        made = parse(holder, ["edge:a>b>c", "edge:c>c", "word:k:l=m:x", "column:k:l=m=y", "d:e"])
        assert made["cut"] == [("a>b", "c")]
        assert made["without"] == ["edge:c>c", "d:e"]  # nodes of that name are there
        assert (made["words"], made["values"]) == ([("k:l=m", "x")], {"k:l=m": "y"})

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("edge:3", "'3' is no edge: write edge:ID>ID"),
            ("word:about", "'about' names no word: write word:COLUMN:WORD"),
            ("column:age", "'age' sets no value: write age=VALUE"),
        ],
    )
    def test_half_a_change_is_refused(self, run, text, message):
        with pytest.raises(ValueError, match=message):
            parse(run, [text])
