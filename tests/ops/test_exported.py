"""`torch.export`: the same numbers, from a file that is read where this package is not there."""

import copy
import shutil
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from subtree_attention import STAGNN, Graph, STAConv, feature_maps, subtree_attention
from subtree_attention.ops.definition import kernel_similarity
from subtree_attention.ops.exported import TracedGraph, walk
from tests.ops.cases import (
    EDGES,
    FLOAT64_ERROR,
    Edges,
    assert_all_close,
    output_and_gradients,
    random_edges,
    random_inputs,
    reference,
)

TRACED = random_edges(7, 19, seed=4, weighted=True)
"""What programs are traced with; they run on others."""

NODES, EDGE = Dim("nodes"), Dim("edges")
"""Open to every graph: named, so that x and batch have as many rows, and edges as many weights."""


class Holding(nn.Module):
    """A model that holds its graph, as somebody's who deploys one for one graph."""

    def __init__(self, model, graph, **options):
        super().__init__()
        self.model, self.graph, self.options = model, graph, options

    def forward(self, x):
        return self.model(x, self.graph, **self.options)


def arguments(edges: Edges, dtype=torch.float64, weighted=True):
    x = torch.randn(edges.num_nodes, 6, dtype=dtype)
    if not weighted:
        return x, edges.index
    weight = torch.ones(edges.index.size(1)) if edges.weight is None else edges.weight
    return x, edges.index, weight


def exported(model, strict=False, weighted=True, dtype=torch.float64):
    shapes = ({0: NODES}, {1: EDGE}, {0: EDGE})[: 3 if weighted else 2]
    example = arguments(TRACED, dtype, weighted)
    return torch.export.export(model, example, dynamic_shapes=shapes, strict=strict)


OPTIONS = [
    {},
    {"transition": "sym", "self_loops": True},
    {"transition": "mean", "aggregation": "concat", "self_loops": True},
    {"transition": None, "aggregation": "attention", "heads": 1},
    {"feature_map": "softmax-features", "global_attention": True},
    {"hops": 0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_program_of_an_edge_index_runs_on_every_graph(options):
    conv = STAConv(6, 8, **options).double().eval()
    program = exported(conv).module()
    for edges in EDGES.values():
        x, index, weight = arguments(edges)
        assert_all_close([program(x, index, weight)], [conv(x, index, weight)], 1e-12)


@pytest.mark.parametrize("strict", [False, True])
def test_a_program_of_a_model_that_holds_a_graph(strict):
    edges = EDGES["directed-weighted"]
    graph = edges.graph("sym", self_loops=True)
    model = Holding(STAGNN(6, 8, 3, hops=4), graph).double().eval()
    x = torch.randn(edges.num_nodes, 6, dtype=torch.float64)
    program = torch.export.export(model, (x,), strict=strict)  # before the graph was ever used
    x = torch.randn_like(x)
    assert_all_close([program.module()(x)], [model(x)], 1e-12)


def test_a_program_of_a_model_that_smooths_runs_on_every_graph():
    model = STAGNN(6, 8, 3, smoothing=2).double().eval()
    program = exported(model).module()
    for edges in EDGES.values():
        x, index, weight = arguments(edges)
        assert_all_close([program(x, index, weight)], [model(x, index, weight)], 1e-12)


def test_a_program_traced_by_dynamo_without_weights():
    conv = STAConv(6, 8).double().eval()
    program = exported(conv, strict=True, weighted=False).module()
    x, index = arguments(EDGES["hubs"], weighted=False)
    assert_all_close([program(x, index)], [conv(x, index)], 1e-12)


def test_float32_is_as_exact_as_without_export():
    conv = STAConv(6, 8, hops=10).eval()
    program, (x, index, weight) = exported(conv, dtype=torch.float32).module(), arguments(TRACED)
    expected = copy.deepcopy(conv).double()(x, index, weight)  # a program shares the parameters
    actual = program(x.float(), index, weight)
    # Twice what ten hops in float32 may differ by: the order of a sum's terms is another.
    torch.testing.assert_close(actual.double(), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize(
    ("transition", "self_loops"), [("rw", False), ("sym", True), ("mean", False), (None, True)]
)
@pytest.mark.parametrize("traced", [False, True])
def test_plain_torch_equals_the_definition_in_output_and_every_gradient(
    name, transition, self_loops, traced
):
    edges = EDGES[name]
    graph = edges.graph(transition, self_loops=self_loops)
    walked_on = graph
    if traced:
        how = edges.weight, transition, self_loops
        walked_on = TracedGraph(edges.index, edges.num_nodes, *how)
    inputs = random_inputs(graph.num_nodes, hops=3)
    mapped = feature_maps.elu(inputs.query), feature_maps.elu(inputs.key), inputs.value
    out = walk(*mapped, inputs.hop_weights, walked_on, 3, 1e-6)
    expected = reference(inputs, graph, 3, kernel_similarity(feature_maps.elu), 1e-6)
    assert_all_close(
        output_and_gradients(out, inputs.all()),
        output_and_gradients(expected, inputs.all()),
        FLOAT64_ERROR,
    )


def test_the_operator_itself_is_exported():
    graph = EDGES["directed-weighted"].graph()
    inputs = tuple(t.detach() for t in random_inputs(graph.num_nodes).all())

    class Operator(nn.Module):
        def forward(self, query, key, value):
            return subtree_attention(query, key, value, graph, 3)

    program = torch.export.export(Operator(), inputs)
    assert_all_close([program.module()(*inputs)], [Operator()(*inputs)], 1e-12)


def test_a_graph_that_was_exported_trains_on():
    """What it remembers has values, whoever asked for it first."""
    edges = EDGES["directed"]
    graph, conv = edges.graph(), STAConv(6, 8)
    x, _ = arguments(edges, torch.float32, weighted=False)
    torch.export.export(Holding(conv, graph), (x,))
    conv(x, graph).sum().backward()
    assert torch.equal(conv(x, graph), conv(x, edges.graph()))


def test_the_graphs_of_a_batch_may_be_any_number():
    conv = STAConv(6, 8, global_attention=True).double().eval()
    x, index = arguments(TRACED, weighted=False)
    shapes = {"x": {0: NODES}, "edge_index": {1: EDGE}, "edge_weight": None, "batch": {0: NODES}}
    program = torch.export.export(
        conv,
        (x, index, None, torch.arange(7) // 3),
        {"batch_size": 3},
        dynamic_shapes={**shapes, "batch_size": Dim.DYNAMIC},
    ).module()
    x, index = arguments(EDGES["undirected"], weighted=False)
    given = x, index, None, torch.arange(len(x)) // 2
    assert_all_close([program(*given, batch_size=5)], [conv(*given, batch_size=5)], 1e-12)


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"feature_map": "softmax"}, {}, "the exact softmax similarity cannot be exported"),
        ({}, {"x": torch.eye(7, 6).to_sparse()}, "dense features only, got torch.sparse_coo"),
        (
            {},
            {"edge_index": torch.eye(7).to_sparse()},
            r"edge_index \[2, E\].*got torch.sparse_coo",
        ),
        ({}, {"edge_index": TRACED.index[0]}, r"edge_index must have shape \[2, E\]"),
        ({}, {"edge_weight": torch.ones(3)}, r"edge_weight must have shape \[19\]"),
        ({"global_attention": True}, {"batch": torch.arange(7)}, "batch needs batch_size"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_exported_is_refused_in_words(options, arguments, message):
    arguments = {"x": torch.randn(7, 6), "edge_index": TRACED.index, **arguments}
    static = dict.fromkeys(arguments)
    with pytest.raises((TypeError, ValueError), match=message):
        torch.export.export(STAConv(6, 8, **options), (), arguments, dynamic_shapes=static)


def test_attention_weights_are_exported_in_the_order_of_the_edges():
    conv, x = STAConv(6, 8, self_loops=True), torch.randn(7, 6)
    arguments = {"x": x, "edge_index": TRACED.index, "return_attention_weights": True}
    static = dict.fromkeys(arguments)
    program = torch.export.export(conv, (), arguments, dynamic_shapes=static).module()

    def dense(result: Any) -> list[torch.Tensor]:
        out, ((source, target), weights) = result
        attention = torch.zeros(7, 7, weights.size(1))
        return [out, attention.index_put((target, source), weights, accumulate=True)]

    found = program(**arguments)
    assert torch.equal(found[1][0][:, : TRACED.index.size(1)], TRACED.index)
    assert_all_close(dense(found), dense(conv(**arguments)), 1e-5)


def test_a_graph_is_not_made_while_an_export_traces():
    class Making(STAConv):
        def forward(self, x, edge_index):
            return super().forward(x, Graph(edge_index, len(x)))

    with pytest.raises(TypeError, match="make it before, or give the edge_index to the layer"):
        torch.export.export(Making(6, 8), arguments(TRACED, torch.float32, weighted=False))


@pytest.mark.parametrize(
    ("conv", "edge_index", "message"),
    [
        (STAConv(6, 8), TRACED.graph(), "Unsupported input type.*Graph"),
        (STAConv(-1, 8), TRACED.index, "uninitialized parameter"),
    ],
)
def test_what_torch_itself_refuses(conv, edge_index, message):
    with pytest.raises(ValueError, match=message):
        torch.export.export(conv, (torch.randn(7, 6), edge_index))


# ----------------------------------------------------------------- where the package is not there

READER = """
import sys

class Nowhere:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("subtree_attention", "torch_geometric", "numba"):
            raise ImportError(name + " must not be needed")

sys.meta_path.insert(0, Nowhere())
import torch

for kind, path, answers in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3]):
    if kind == "aoti":
        program = torch._inductor.aoti_load_package(path)
    else:
        program = torch.export.load(path).module()
    for given, expected in torch.load(answers):
        torch.testing.assert_close(program(*given), expected, rtol=1e-5, atol=1e-6)
    print(kind, "read")
"""


def read_elsewhere(*files: object) -> str:
    """What a process without this package says after it has compared a program with its answers."""
    command = [sys.executable, "-I", "-W", "ignore", "-c", READER, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@torch.no_grad()
def answered(path, model, *arguments):
    torch.save([(given, model(*given)) for given in arguments], path)
    return path


def test_a_file_is_read_where_the_package_cannot_be_imported(tmp_path):
    graph = EDGES["hubs"].graph()
    edge_index, held = STAConv(6, 8).eval(), Holding(STAGNN(6, 8, 3), graph).eval()
    graphs = [arguments(edges, torch.float32) for edges in EDGES.values()]
    x = torch.randn(graph.num_nodes, 6)
    torch.export.save(exported(edge_index, dtype=torch.float32), tmp_path / "open.pt2")
    torch.export.save(torch.export.export(held, (x,)), tmp_path / "held.pt2")
    first = answered(tmp_path / "open.pt", edge_index, *graphs)
    second = answered(tmp_path / "held.pt", held, (x,), (x + 1,))
    files = "open", tmp_path / "open.pt2", first, "held", tmp_path / "held.pt2", second
    assert read_elsewhere(*files) == "open read\nheld read\n"


@pytest.mark.skipif(not shutil.which("c++"), reason="AOTInductor needs a C++ compiler")
@pytest.mark.skipif(
    torch.cuda.is_available(), reason="the loader of torch 2.11 for CUDA 13 crashes"
)
@pytest.mark.filterwarnings("ignore")  # inductor's own
def test_a_compiled_package_is_read_there_too(tmp_path):
    conv = STAConv(6, 8, heads=2, hops=2).eval()
    program = exported(conv, dtype=torch.float32, weighted=False)
    path = str(tmp_path / "conv.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    graphs = [arguments(edges, torch.float32, False) for edges in EDGES.values()]
    answers = answered(tmp_path / "conv.pt", conv, *graphs)
    assert read_elsewhere("aoti", path, answers) == "aoti read\n"


@pytest.mark.filterwarnings("ignore")  # onnxscript's own
def test_onnx_runs_on_every_graph(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    conv = STAConv(6, 8, transition="sym", self_loops=True, global_attention=True).eval()
    path = tmp_path / "conv.onnx"
    torch.onnx.export(exported(conv, dtype=torch.float32), dynamo=True, verbose=False).save(path)
    session = onnxruntime.InferenceSession(path)
    names = [given.name for given in session.get_inputs()]
    for edges in EDGES.values():
        given = arguments(edges, torch.float32)
        feed = {name: tensor.numpy() for name, tensor in zip(names, given, strict=True)}
        (out,) = session.run(None, feed)
        torch.testing.assert_close(torch.from_numpy(out), conv(*given), rtol=1e-5, atol=1e-6)
