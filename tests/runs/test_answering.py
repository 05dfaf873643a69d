"""Answers from subtrees are those of the whole graph, of its nodes and of new ones; or refused."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import subtree_attention as sta
from subtree_attention import SavedRun
from subtree_attention.datasets import TableError
from subtree_attention.nn import subtrees as ways
from subtree_attention.runs.answering import UnknownNode
from tests.runs.untrained import tables, untrained
from tests.samples import friends, people

CLOSE = 1e-6
"""Sums of float32 in another order, in probabilities."""

NEW = people(5, seed=3, prefix="n")
ENDS = [
    ("n0", "p1"),  # of an old node, whose degree grows
    ("n0", "n1"),
    ("n1", "n1"),  # a loop
    ("p3", "n4"),
    ("p1", "p2"),  # between old nodes; some are there already
    ("p4", "p4"),
    *(("p5", f"p{i}") for i in range(20)),
]
WEIGHTS = [1.0, 7, 0.5, 2, 0.25, 0.1, *(0.3 * i + 0.1 for i in range(20))]
EDGES = {
    "source": [source for source, _ in ENDS],
    "target": [target for _, target in ENDS],
    "strength": WEIGHTS,
}


def rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def joined(run: SavedRun, nodes: Any = NEW, edges: Any = EDGES) -> tuple[SavedRun, int]:
    """The whole graph with new nodes, as `sta predict --join` has it, and where they begin."""
    new, start = run.read_tables(nodes, edges, join=True)
    return run.on(new, True), start


@pytest.fixture(scope="module")
def run() -> SavedRun:
    torch.manual_seed(0)
    return untrained(tables(), hops=2, heads=2)


def check(run: SavedRun, **how: Any) -> None:
    """Both kinds of questions, one by one and together."""
    answering = run.answering(**how)
    ids = run.dataset.node_ids
    said = answering.nodes(ids)
    np.testing.assert_allclose(said.probabilities, run.probabilities, atol=CLOSE)
    assert said.predicted == run.answers.predicted
    assert said.known == run.answers.known
    alone = answering.nodes([ids[7]]).probabilities[0]
    np.testing.assert_allclose(alone, run.probabilities[7], atol=CLOSE)

    whole, start = joined(run)
    new = answering.new(rows(NEW), rows(EDGES))
    assert new.ids == whole.unit_ids[start:] == NEW["id"]
    np.testing.assert_allclose(new.probabilities, whole.probabilities[start:], atol=CLOSE)
    assert new.known == whole.answers.known[start:]
    # Nothing of it is left.
    again = answering.nodes(ids).probabilities
    assert np.array_equal(again, said.probabilities)


class TestTheyAreThoseOfTheWholeGraph:
    @pytest.mark.parametrize(
        ("transition", "directed", "weight"),
        [*itertools.product(("rw", "sym", "mean"), (True, False), ("strength", None))],
    )
    def test_of_every_transition(self, transition: str, directed: bool, weight: str | None) -> None:
        data = tables(directed=directed, weight=weight)
        run = untrained(data, hops=3, heads=2, transition=transition)
        check(run)
        check(run, memory=0)  # without states

    @pytest.mark.parametrize(
        "settings",
        [
            {"hops": 0},
            {"hops": 1, "heads": 1},
            {"aggregation": "concat", "gate": "none"},
            {"aggregation": "attention", "head_mix": "sum"},
            {"feature_map": "softplus", "eps": 0.1},
            {"feature_map": "softmax"},
            {"smoothing": 2},
            {"smoothing": 1, "transition": "sym", "hops": 1},
            {"show_labels": 0.5},
            {"model": "staformer", "layers": 2},
            {"model": "staformer", "layers": 2, "jumping": "concat", "norm": "batch"},
            {"model": "staformer", "layers": 1, "show_labels": 0.5, "readout": "sum"},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("directed", [True, False])
    def test_of_every_kind_of_model(self, settings: dict[str, Any], directed: bool) -> None:
        check(untrained(tables(directed=directed), **{"hops": 2, "heads": 2, **settings}))

    def test_without_numba(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STA_BACKEND", "torch")
        answering = untrained(tables(), hops=3, heads=2).answering()
        assert answering._own.states is None  # type: ignore[union-attr]
        check(untrained(tables(), hops=3, heads=2))

    def test_of_sparse_features(self) -> None:
        sparse = sta.from_tables(
            {**people(60), "word": [f"w{i}" for i in range(60)]},
            friends(60, 150),
            target="label",
            features=["word:category", "about"],
        )
        assert sparse.x.layout == torch.sparse_csr
        new = {**NEW, "word": ["w1", "w2", "none", "w9", "w9"]}
        for settings in ({}, {"smoothing": 1}, {"model": "staformer", "layers": 1}):
            run = untrained(sparse, hops=2, heads=2, **settings)
            edges = {name: EDGES[name] for name in ("source", "target")}
            whole, start = joined(run, new, edges)
            said = run.answering().new(rows(new), rows(edges))
            want = whole.probabilities[start:]
            np.testing.assert_allclose(said.probabilities, want, atol=CLOSE)

    def test_of_numbers_and_of_labels(self) -> None:
        run = untrained(tables(target="age", task="regression"), task="regression", hops=2, heads=2)
        whole, start = joined(run)
        said, known = run.answering().new(rows(NEW), rows(EDGES)), run.answering().nodes(["p3"])
        np.testing.assert_allclose(said.predicted, whole.answers.predicted[start:], rtol=1e-5)
        assert known.answers.columns.keys() == {"low", "high"}
        np.testing.assert_allclose(known.predicted[0], run.answers.predicted[3], rtol=1e-5)

        run = untrained(tables(target="tags", task="multilabel"), task="multilabel", hops=2)
        whole, start = joined(run)
        said = run.answering().new(rows(NEW), rows(EDGES))
        np.testing.assert_allclose(said.probabilities, whole.probabilities[start:], atol=CLOSE)

    def test_with_other_answers_than_the_most_probable(self) -> None:
        from subtree_attention.tasks.deciding import Asked

        run = untrained(tables(), hops=2, heads=2).deciding(Asked(reject=0.4))
        said = run.answering().nodes(run.dataset.node_ids)
        sure = run.answers.sureness - run.found["least_sure"]  # type: ignore[attr-defined]
        pairs = zip(said.predicted, run.answers.predicted, abs(sure) > CLOSE, strict=True)
        assert all(one == other for one, other, clear in pairs if clear)
        assert None in said.predicted

    def test_of_a_trained_run_that_stands_on_a_reference(self, tmp_path: Path) -> None:
        data = tables()
        settings = {"epochs": 3, "hops": 2, "heads": 2, "reference": "logistic"}
        config = sta.recipe(data, graph="people", runs=1, show_labels=0.5, **settings)
        folder = sta.fit(config, tmp_path / "out", device="cpu", data=data).folder
        run = sta.open(folder, device="cpu")
        check(run)
        said = run.answering().new(rows(NEW), rows(EDGES))
        whole = sta.predict(folder, NEW, EDGES, join=True, device="cpu")
        np.testing.assert_allclose(said.probabilities, whole.probabilities, atol=CLOSE)

    @pytest.mark.parametrize("seed", range(12))
    def test_of_any_edges(self, seed: int) -> None:
        chance = np.random.default_rng(seed)
        data = tables(40, directed=bool(seed % 2), weight=("strength", None)[seed // 2 % 2])
        transition = ("rw", "sym", "mean")[seed % 3]
        run = untrained(data, hops=int(chance.integers(1, 5)), heads=2, transition=transition)
        names = [*NEW["id"], *run.dataset.node_ids]
        ends = chance.choice(names, (2, 40)).tolist()
        edges = {"source": ends[0], "target": ends[1], "strength": chance.random(40).tolist()}
        whole, start = joined(run, NEW, edges)
        said = run.answering(memory=None if seed % 4 else 0).new(rows(NEW), rows(edges))
        np.testing.assert_allclose(said.probabilities, whole.probabilities[start:], atol=CLOSE)


class TestQuestions:
    def test_new_nodes_without_edges(self, run: SavedRun) -> None:
        lonely = {name: [values[0]] for name, values in EDGES.items()}
        whole, start = joined(run, edges=lonely)
        said = run.answering().new(NEW)
        want = whole.probabilities[start + 1 :]  # all but the first have none there either
        np.testing.assert_allclose(said.probabilities[1:], want, atol=CLOSE)

    def test_edges_by_their_usual_names(self, run: SavedRun) -> None:
        usual = {"source": EDGES["source"], "target": EDGES["target"], "weight": WEIGHTS}
        answering = run.answering()
        same = [answering.new(rows(NEW), rows(edges)).probabilities for edges in (EDGES, usual)]
        assert np.array_equal(*same)

    def test_ids_may_be_numbers(self) -> None:
        nodes = {**people(60), "id": list(map(str, range(60)))}
        edges = {k: [str(v).strip("p") for v in vs] for k, vs in friends(60, 150).items()}
        run = untrained(sta.from_tables(nodes, edges, target="label"), hops=2, heads=2)
        assert run.dataset.ids is None
        answering = run.answering()
        np.testing.assert_allclose(
            answering.nodes(["59", "0"]).probabilities, run.probabilities[[59, 0]], atol=CLOSE
        )
        for wrong in ("60", "-1", "007", "1.0", "x", ""):
            with pytest.raises(UnknownNode, match="there is no node"):
                answering.nodes([wrong])

    def test_many_threads_may_ask(self, run: SavedRun) -> None:
        answering = run.answering()
        want = answering.nodes(["p1"]).probabilities, answering.new(NEW, EDGES).probabilities

        def ask(turn: int) -> bool:
            if turn % 2:
                return np.array_equal(answering.nodes(["p1"]).probabilities, want[0])
            return np.array_equal(answering.new(NEW, EDGES).probabilities, want[1])

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask, range(80)))

    @pytest.mark.parametrize(
        ("nodes", "edges", "words"),
        [
            ([{"id": "n0"}], [], "has no column 'age'"),
            ([], [], "has no rows"),
            (
                rows({**NEW, "id": ["p1", "a", "b", "c", "d"]}),
                [],
                "'p1' is in the graph of the run",
            ),
            (rows({**NEW, "id": ["a", "a", "b", "c", "d"]}), [], "ids must be different"),
            (rows(NEW), [{"source": "n0", "target": "zz", "weight": 1}], "an edge ends at 'zz'"),
            (rows(NEW), [{"source": "n0", "target": "p1"}], "has no column 'strength'"),
            (rows(NEW), [{"source": "n0", "target": "p1", "weight": -1}], "is negative"),
            (rows(NEW), [{"source": "n0", "weight": 1}], "has no column 'target'"),
        ],
    )
    def test_what_does_not_fit_is_refused(
        self, run: SavedRun, nodes: Any, edges: Any, words: str
    ) -> None:
        with pytest.raises(TableError, match=words):
            run.answering().new(nodes, edges)

    def test_unknown_ends_may_be_dropped(self, run: SavedRun) -> None:
        more = {name: [*values, values[0]] for name, values in EDGES.items()}
        more["target"][-1] = "zz"
        answering = run.answering()
        said = answering.new(NEW, more, unknown_ends="drop").probabilities
        assert np.array_equal(said, answering.new(NEW, EDGES).probabilities)

    def test_ids_are_a_list(self, run: SavedRun) -> None:
        with pytest.raises(TypeError, match="ids must be a list"):
            run.answering().nodes("p1")
        with pytest.raises(UnknownNode, match="there is no node 7"):
            run.answering().nodes([7])  # type: ignore[list-item]


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"global_attention": True}, "global attention .*: see 'sta predict --join'"),
            ({"correct": True}, "correct this run's answers .* or train with --no-correct"),
        ],
    )
    def test_what_looks_at_the_whole_graph_knows_its_own_nodes(
        self, settings: dict[str, Any], words: str
    ) -> None:
        run = untrained(tables(), hops=2, heads=2, **settings)
        if "correct" in settings:
            found = {"correct_reach": 0.3, "correct_scale": 1.0, "smooth_reach": 0.3}
            for name in found:
                object.__setattr__(run.result, name, found[name])
        answering = run.answering()
        np.testing.assert_allclose(
            answering.nodes(["p5"]).probabilities[0], run.probabilities[5], atol=CLOSE
        )
        with pytest.raises(ValueError, match=words):
            answering.new(NEW, EDGES)

    def test_pairs_have_no_single_nodes(self) -> None:
        run = untrained(tables(target=None, task="link"), task="link")
        with pytest.raises(ValueError, match="a model of pairs has no single nodes"):
            run.answering()

    def test_new_nodes_have_no_encoding(self) -> None:
        run = untrained(tables(), hops=2, heads=2, encoding=3)
        answering = run.answering()
        np.testing.assert_allclose(
            answering.nodes(["p5"]).probabilities[0], run.probabilities[5], atol=CLOSE
        )
        with pytest.raises(ValueError, match=r"no Laplacian eigenvectors \(--encoding\)"):
            answering.new(NEW, EDGES)

    def test_a_graph_without_tables_takes_no_new_nodes(self) -> None:
        run = untrained(sta.planted(50, 100, 3, 4), hops=2, heads=2)
        answering = run.answering()
        np.testing.assert_allclose(
            answering.nodes(["5"]).probabilities[0], run.probabilities[5], atol=CLOSE
        )
        with pytest.raises(ValueError, match="came from a table of nodes and one of edges"):
            answering.new(NEW, EDGES)

    def test_memory_is_a_size(self) -> None:
        run = untrained(tables(), hops=2, heads=2)
        with pytest.raises(ValueError, match="memory must be a size"):
            run.answering(memory="much")
        states = [run.answering(memory=size)._own.states for size in ("1GB", "10B", 0)]  # type: ignore[union-attr]
        assert [kept is None for kept in states] == [False, True, True]


def test_a_root_touches_its_subtree_only() -> None:
    """Of a long path, the features of nodes that are out of reach may be anything."""
    ids = [str(i) for i in range(200)]
    nodes = {"id": ids, "age": list(range(200)), "label": ["x", "y"] * 100}
    edges = {"source": ids[:-1], "target": ids[1:]}
    run = untrained(sta.from_tables(nodes, edges, target="label"), hops=3, heads=2)
    direct = run.answering()._own
    assert isinstance(direct, ways.Direct)
    want = direct.nodes(np.array([100]))
    far = np.r_[:96, 105:200]
    direct.rows[far] = np.nan
    assert direct.states is not None
    direct.states[far] = np.nan
    assert torch.equal(direct.nodes(np.array([100])), want)
