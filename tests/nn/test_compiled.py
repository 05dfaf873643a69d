"""Layers and models under `torch.compile`: with a Graph, with an edge_index, over many batches."""

import pickle
from functools import partial

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from subtree_attention import STAGNN, Graph, STAConv
from tests.ops.cases import EDGES, assert_all_close, output_and_gradients

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo's own

EDGE, NODES = EDGES["directed"].index, EDGES["directed"].num_nodes


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()


@pytest.fixture
def x():
    return torch.randn(NODES, 6, dtype=torch.float64)


def compiled(module, **options):
    return torch.compile(module, backend="aot_eager", **options)


def results(module, parameters, *arguments):
    return output_and_gradients(module(*arguments), list(parameters))


@pytest.mark.parametrize(
    ("make", "held"),
    [
        (partial(STAConv, 6, 8), False),
        (partial(STAConv, 6, 8, aggregation="concat", global_attention=True), True),
        (partial(STAConv, 6, 8, heads=1, feature_map="softmax-features"), False),
        (partial(STAGNN, 6, 8, 3, aggregation="attention"), True),
        (partial(STAGNN, 6, 8, 3, smoothing=2), True),
    ],
)
def test_a_layer_on_a_graph_is_one_piece(x, make, held):
    model, graph = make().double(), Graph(EDGE, NODES)
    call = (lambda x: model(x, graph)) if held else model
    given = (x,) if held else (x, graph)
    actual = results(compiled(call, fullgraph=True), model.parameters(), *given)
    expected = results(call, model.parameters(), *given)
    assert_all_close(actual, expected, 1e-14)


def test_code_around_an_edge_index_is_compiled(x):
    model = STAGNN(6, 8, 3).double()
    actual = results(compiled(model), model.parameters(), x, EDGE)
    assert_all_close(actual, results(model, model.parameters(), x, EDGE), 1e-14)


def test_a_graph_may_be_made_in_compiled_code(x):
    conv = STAConv(6, 8).double()

    def call(x, edge_index):
        return conv(x, Graph(edge_index, x.size(0), transition="sym"))

    assert_all_close([compiled(call)(x, EDGE)], [call(x, EDGE)], 1e-14)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "a Graph is made of the values of its edges: make it before"),
        ({"feature_map": "softmax"}, "forms powers of the transition matrix outside torch"),
    ],
    ids=["edge_index", "softmax"],
)
def test_what_is_not_one_piece_says_why(x, options, reason):
    conv = STAConv(6, 8, **options).double()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=reason):
        compiled(conv, fullgraph=True)(x, Graph(EDGE, NODES) if options else EDGE)
    torch.compiler.reset()
    assert_all_close([compiled(conv)(x, EDGE)], [conv(x, EDGE)], 1e-14)


def test_global_attention_over_batches_is_one_piece_if_their_size_is_given():
    conv = STAConv(6, 8, global_attention=True)
    call = compiled(conv, fullgraph=True)
    for number, batch in enumerate(batches()):
        given = batch.x, Graph(batch.edge_index, batch.num_nodes), None, batch.batch + number
        size = {"batch_size": 3 + number}
        with torch.compiler.set_stance("default" if number < 3 else "fail_on_recompile"):
            torch.testing.assert_close(call(*given, **size), conv(*given, **size))
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="pass batch_size"):
        compiled(conv, fullgraph=True)(*given)
    torch.testing.assert_close(compiled(conv)(*given), conv(*given))


def batches():
    """Batches of graphs of which no two are alike."""
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for number in range(24):
        nodes, edges = 5 + number % 7, 9 + 2 * number
        index = torch.randint(0, nodes, (2, edges), generator=generator)
        graphs.append(Data(x=torch.randn(nodes, 6, generator=generator), edge_index=index))
    return DataLoader(graphs, batch_size=3)


GRAPHS = {
    "edge_index": lambda batch: batch.edge_index,
    "graph": lambda batch: Graph(batch.edge_index, batch.num_nodes),
    # As it comes from a DataLoader's worker.
    "pickled": lambda batch: pickle.loads(pickle.dumps(Graph(batch.edge_index, batch.num_nodes))),
    "subgraph": lambda batch: Graph(batch.edge_index, batch.num_nodes + 1).subgraph(
        torch.arange(batch.num_nodes)
    ),
}


@pytest.mark.parametrize(
    ("given", "training", "dynamic"),
    [
        ("edge_index", True, None),
        ("edge_index", False, True),
        ("graph", True, True),
        ("graph", False, None),
        ("pickled", True, None),
        ("subgraph", True, None),
    ],
)
def test_batches_are_compiled_for_once(given, training, dynamic):
    model = STAGNN(6, 8, 3, hops=2)
    step = compiled(model, dynamic=dynamic)
    with torch.set_grad_enabled(training):
        for number, batch in enumerate(batches()):
            graph = GRAPHS[given](batch)
            # The first is a number to torch, the second shows that it is any.
            stance = "default" if number < 3 else "fail_on_recompile"
            with torch.compiler.set_stance(stance):
                out = step(batch.x, graph)
                if training:
                    out.sum().backward()
            torch.testing.assert_close(out, model(batch.x, graph))
