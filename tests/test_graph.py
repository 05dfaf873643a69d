"""`Graph`: every form of adjacency, every transition, and what it refuses."""

import copy
import pickle
import warnings
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor

from subtree_attention import Graph, subtree_attention
from subtree_attention import compressed as matrices
from subtree_attention import graph as graph_module
from subtree_attention.ops.kernels.cuda import schedule
from tests.ops.cases import EDGES, FLOAT64_ERROR, Edges, assert_all_close, random_inputs

# PyTorch says this once per process, whoever makes the first CSR matrix.

EDGE = torch.tensor([[0, 1, 2], [1, 2, 0]])


def _torch_coo(edges: Edges) -> torch.Tensor:
    size = (edges.num_nodes, edges.num_nodes)
    return torch.sparse_coo_tensor(
        edges.index.flip(0), edges.weight, size, check_invariants=True
    )  # rows receive


def _scipy(edges: Edges, kind) -> object:
    source, target = edges.index.numpy()
    size = (edges.num_nodes, edges.num_nodes)
    return kind((edges.weight.numpy(), (source, target)), shape=size)  # rows send


def _edge_index(index: torch.Tensor) -> Graph:
    def build(edges: Edges) -> Graph:
        return Graph(index(edges), edges.num_nodes, edges.weight)

    return build


FORMS = {
    "int64": _edge_index(lambda e: e.index),
    "int32": _edge_index(lambda e: e.index.int()),
    "EdgeIndex": _edge_index(lambda e: EdgeIndex(e.index, sparse_size=(13, 13))),
    "torch-coo": lambda e: Graph(_torch_coo(e)),
    "torch-csr": lambda e: Graph(_torch_coo(e).to_sparse_csr()),
    "torch-csc": lambda e: Graph(_torch_coo(e).to_sparse_csc()),
    "scipy-coo-array": lambda e: Graph(_scipy(e, sp.coo_array)),
    "scipy-csr-array": lambda e: Graph(_scipy(e, sp.csr_array)),
    "scipy-csr-matrix": lambda e: Graph(_scipy(e, sp.csr_matrix)),
    "SparseTensor": pytest.param(
        lambda e: Graph(
            SparseTensor(row=e.index[1], col=e.index[0], value=e.weight, sparse_sizes=(13, 13))
        ),
        marks=pytest.mark.skipif(not WITH_TORCH_SPARSE, reason="needs torch_sparse"),
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of torch, about our own input
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_of_adjacency_is_the_same_graph(form):
    edges = EDGES["directed-weighted"]
    dense = edges.dense()
    expected = dense / dense.sum(0).clamp(min=1e-30)  # A D^-1
    graph = form(edges)
    assert graph.num_nodes == edges.num_nodes
    # A matrix adds parallel edges up in the weights' float32, ours and theirs.
    assert_all_close([graph.dense()], [expected], 4 * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize(
    "form",
    [
        lambda e: e.index,
        lambda e: EdgeIndex(e.index, sparse_size=(11, 11)).sort_by("col").values,
        lambda e: _torch_coo(e).to_sparse_csr(),
    ],
    ids=["edge_index", "EdgeIndex", "torch-csr"],
)
def test_one_hop_flows_as_in_pyg(form):
    # No parallel edges: for PyG a matrix holds their sum as one neighbour.
    index = EDGES["directed"].index.unique(dim=1).contiguous()
    adjacency, value = form(Edges(index, 11, torch.ones(index.size(1)))), torch.randn(11, 4)
    expected = SimpleConv(aggr="mean")(value, adjacency)
    key = torch.ones(11, 1)  # equal keys: attention is the transition itself
    out = subtree_attention(key, key, value, Graph(adjacency, 11, transition="mean"), 1, eps=0.0)
    assert_all_close([out[1]], [expected], 1e-6)  # float32 sums of a few terms


def _dense_transition(adjacency: torch.Tensor, transition: str | None) -> torch.Tensor:
    sends, receives = adjacency.sum(0), adjacency.sum(1)

    def power(degree, exponent):
        return torch.where(degree > 0, degree**exponent, 0.0)

    return {
        "rw": adjacency * power(sends, -1.0)[None, :],
        "mean": adjacency * power(receives, -1.0)[:, None],
        "sym": adjacency * power(receives, -0.5)[:, None] * power(sends, -0.5)[None, :],
        None: adjacency,
    }[transition]


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("transition", ["rw", "mean", "sym", None])
@pytest.mark.parametrize("name", list(EDGES))
def test_transitions_equal_their_dense_formula(name, transition, self_loops):
    edges = EDGES[name]
    adjacency = edges.dense()
    if self_loops:
        adjacency += torch.diag((adjacency.diagonal() == 0).double())
    graph = edges.graph(transition, self_loops=self_loops)
    expected = _dense_transition(adjacency, transition)
    assert_all_close([graph.dense()], [expected], FLOAT64_ERROR)


@pytest.mark.parametrize("name", list(EDGES))
def test_the_transpose_is_the_transpose(name):
    graph = EDGES[name].graph()
    matrix, transpose = graph.matrix(torch.float64), graph.transpose(torch.float64)

    def entries(csr, flip: bool):
        rows = torch.repeat_interleave(csr.rowptr.diff().long())
        pair = (csr.col.long(), rows) if flip else (rows, csr.col.long())
        out = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
        return out.index_put_(pair, csr.weight, accumulate=True)

    assert torch.equal(entries(matrix, False), entries(transpose, True))
    assert matrix.rowptr.dtype == matrix.col.dtype == torch.int32


def test_columns_ascend_within_a_row_and_equal_graphs_are_equal_in_every_order():
    edges = EDGES["directed-weighted"]
    order = torch.randperm(edges.index.size(1))
    shuffled = Edges(edges.index[:, order], edges.num_nodes, edges.weight[order])
    source, target = edges.graph().edge_index
    assert torch.equal((target * 13 + source).sort().values, target * 13 + source)
    assert torch.equal(edges.graph().edge_index, shuffled.graph().edge_index)


def test_parallel_edges_add_up():
    parallel = Graph(torch.tensor([[0, 0, 1], [2, 2, 2]]), 3, transition="mean")
    weighted = Graph(torch.tensor([[0, 1], [2, 2]]), 3, torch.tensor([2.0, 1.0]), "mean")
    assert torch.equal(parallel.dense(), weighted.dense())


def test_self_loops_go_to_nodes_without_one_only():
    graph = Graph(torch.tensor([[0, 0], [0, 1]]), 3, torch.tensor([5.0, 1.0]), None, True)
    assert graph.num_edges == 4
    assert graph.dense().diagonal().tolist() == [5, 1, 1]


@pytest.mark.parametrize(
    ("adjacency", "num_nodes", "expected"),
    [
        (EDGE, None, 3),
        (EDGE, 7, 7),
        (EdgeIndex(EDGE, sparse_size=(6, 6)), None, 6),
        (torch.eye(4).to_sparse(), None, 4),
        (torch.eye(4).to_sparse(), 5, 5),
        (sp.eye_array(4), None, 4),
        (torch.empty(2, 0, dtype=torch.long), None, 0),
    ],
)
def test_number_of_nodes_is_given_or_implied(adjacency, num_nodes, expected):
    assert Graph(adjacency, num_nodes).num_nodes == expected


def test_weights_are_rounded_once_from_float64():
    graph = EDGES["directed-weighted"].graph("sym")
    assert torch.equal(graph.matrix().weight, graph.matrix(torch.float64).weight.float())
    assert graph.matrix().weight is graph.matrix().weight  # and kept


def test_scipy_values_of_any_kind_are_weights():
    dense = np.array([[0, 2], [1, 0]])
    expected = torch.from_numpy(dense.T).double()
    assert torch.equal(Graph(sp.csr_array(dense), transition=None).dense(), expected)
    booleans = Graph(sp.csr_array(dense.astype(bool)), transition=None)
    assert torch.equal(booleans.dense(), expected.bool().double())


def test_to_the_same_device_is_itself():
    graph = EDGES["directed"].graph()
    assert graph.to("cpu") is graph
    assert graph.to(torch.device("cpu")) is graph


def test_to_another_device_moves_a_copy():
    graph = EDGES["directed-weighted"].graph("sym", self_loops=True)
    moved = graph.to("meta")
    assert (moved.device.type, graph.device.type) == ("meta", "cpu")
    assert repr(moved) == repr(graph)
    assert moved.self_loops
    if torch.cuda.is_available():
        on_gpu = graph.to("cuda")
        assert on_gpu.to("cuda") is on_gpu
        assert torch.equal(on_gpu.dense().cpu(), graph.dense())


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))]
)
@pytest.mark.parametrize("used", [False, True])
def test_copies_and_pickles_are_the_same_graph(copied, used):
    graph = EDGES["directed-weighted"].graph("sym")
    inputs = random_inputs(graph.num_nodes)
    if used:  # so that caches are filled
        subtree_attention(*inputs.all(), graph, 2, feature_map="softmax")
    twin = copied(graph)
    assert repr(twin) == repr(graph)
    out, expected = (subtree_attention(*inputs.all(), g, 2) for g in (twin, graph))
    assert torch.equal(out, expected)


def test_repr_names_size_and_transition():
    expected = "Graph(num_nodes=3, num_edges=3, transition='rw')"
    assert repr(Graph(torch.tensor([[0, 1, 1], [1, 0, 2]]))) == expected


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_nodes": 2}, "num_nodes=2, but the adjacency has index 2"),
        ({"edge_index": EDGE - 1}, "negative index -1"),
        ({"edge_index": EDGE.t()}, r"shape \[2, E\], got \[3, 2\]"),
        ({"edge_index": EDGE[0]}, r"shape \[2, E\], got \[3\]"),
        ({"num_nodes": -3}, "num_nodes must be at least 0, got -3"),
        ({"edge_weight": ones(2)}, r"edge_weight must have shape \[3\].* got \[2\]"),
        ({"edge_weight": ones(3, 1)}, r"edge_weight must have shape \[3\].* got \[3, 1\]"),
        ({"edge_weight": ones(3) * torch.nan}, "edge_weight must be finite, but 3 of 3"),
        ({"edge_weight": torch.tensor([1, 1, torch.inf])}, "must be finite, but 1 of 3"),
        ({"edge_weight": -ones(3)}, "'rw' needs non-negative edge weights, got -1.0"),
        ({"edge_weight": ones(3).requires_grad_()}, r"edge_weight.detach\(\)"),
        ({"transition": "maen"}, "unknown transition 'maen'. Did you mean 'mean'"),
        ({"edge_index": ones(2, 3).to_sparse()}, r"must be square, got \[2, 3\]"),
        ({"edge_index": torch.eye(3).to_sparse(), "num_nodes": 2}, "num_nodes=2, but the adjac"),
        ({"edge_index": torch.eye(3).to_sparse(), "edge_weight": ones(3)}, "its own weights"),
        ({"edge_index": sp.eye_array(3), "edge_weight": ones(3)}, "its own weights"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_values_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Graph(**{"edge_index": EDGE, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edge_index": EDGE.float()}, "must hold integers, got torch.float32"),
        ({"edge_index": EDGE.bool()}, "must hold integers, got torch.bool"),
        ({"edge_index": [[0], [1]]}, "edge_index tensor of shape .* got list"),
        ({"edge_index": EDGE.numpy()}, "got ndarray"),
        ({"edge_index": Graph(EDGE)}, "a Graph already"),
        ({"edge_weight": EDGE[0]}, "edge_weight must hold floating-point .* got torch.int64"),
        ({"edge_weight": [1.0, 1.0, 1.0]}, "edge_weight must be a torch.Tensor, got list"),
        ({"num_nodes": 3.0}, "num_nodes must be an integer, got 3.0"),
        ({"transition": 1}, "transition must be one of rw, sym, mean, got 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_types_are_refused(arguments, message):
    with pytest.raises(TypeError, match=message):
        Graph(**{"edge_index": EDGE, **arguments})


def test_negative_weights_are_taken_as_they_are_without_a_transition():
    weight = torch.tensor([-1.0, 2.0, 0.5])
    assert Graph(EDGE, edge_weight=weight, transition=None).dense().sum() == 1.5


def test_a_graph_made_or_used_in_inference_mode_can_still_train():
    query = torch.randn(3, 2, requires_grad=True)
    with torch.inference_mode():
        made = Graph(torch.tensor([[0, 1, 2], [1, 2, 0]]))
        subtree_attention(query, query, query, made, 2)
    subtree_attention(query, query, query, made, 2).sum().backward()
    assert query.grad is not None


def test_data_with_a_transposed_adjacency_will_do():
    edge_index, weight = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([1.0, 2, 3])
    plain = Data(edge_index=edge_index, edge_weight=weight, num_nodes=3)
    turned = torch.sparse_coo_tensor(edge_index.flip(0), weight, (3, 3), check_invariants=True)
    wanted = Graph.from_data(plain, transition=None).dense()
    assert torch.equal(Graph.from_data(Data(adj_t=turned), transition=None).dense(), wanted)


def test_data_moves_a_graph_along():
    data = Data(graph=Graph(torch.tensor([[0, 1], [1, 0]])))
    assert data.to("meta").graph.device.type == "meta"


def test_sparse_tensor_rows_are_targets():
    """The class itself may not be installed; this stands in for it."""

    class SparseTensor:
        def coo(self):
            return torch.tensor([1, 2]), torch.tensor([0, 1]), torch.tensor([2.0, 3.0])

        def sparse_sizes(self):
            return (3, 3)

    graph = Graph(SparseTensor(), transition=None)
    assert graph.edge_index.tolist() == [[0, 1], [1, 2]]
    assert graph.matrix().weight.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("transition", ["rw", "sym", "mean", None])
@pytest.mark.parametrize("name", ["directed-weighted", "parallel-edges", "no-edges", "no-nodes"])
def test_compressed_rows_are_the_same_graph(name, transition):
    wanted = EDGES[name].graph(transition)
    pattern = EDGES[name].graph(None)
    rowptr, col, weight = pattern.matrix(torch.float64)
    made = Graph.from_csr(rowptr, col, weight, transition)
    assert repr(made) == repr(wanted)
    assert_all_close([made.dense()], [wanted.dense()], 1e-7)  # weights came in float32
    for one, other in ((made.matrix(), wanted.matrix()), (made.transpose(), wanted.transpose())):
        assert torch.equal(one.rowptr, other.rowptr)
        assert torch.equal(one.col, other.col)


NAMES = ["directed-weighted", "parallel-edges", "no-edges", "no-nodes"]


def _compressed(name, transition, self_loops=False):
    """A graph from compressed rows."""
    pattern = EDGES[name].graph(None)
    weight = pattern._receive.edge_weight
    return Graph.from_csr(
        pattern._receive.rowptr, pattern._receive.col, weight, transition, self_loops
    )


@pytest.mark.parametrize("entries", [3, 2**22])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("transition", ["rw", "sym", "mean", None])
@pytest.mark.parametrize("name", NAMES)
def test_compressed_rows_have_the_bits_of_the_edges(
    name, transition, self_loops, entries, monkeypatch
):
    edges = EDGES[name]
    given = edges.index, edges.num_nodes, edges.weight, transition, self_loops
    wanted = Graph(*given)
    _ = wanted.matrix(), wanted.transpose()
    monkeypatch.setattr(matrices, "ENTRIES", entries)
    made = _compressed(name, transition, self_loops)
    _same_bits(made, wanted)
    _same_bits(_compressed(name, transition).with_self_loops(), Graph(*given[:4], True))
    assert (made.given_edges, made.self_loops) == (wanted.given_edges, self_loops)
    came = torch.arange(wanted.given_edges + 1)[_compressed(name, transition).edge_order]
    walked = wanted.edge_order < wanted.given_edges
    assert torch.equal(made.edge_order < made.given_edges, walked)
    assert torch.equal(made.edge_order[walked], came)


def _same_bits(one, other):
    for dtype in (torch.float32, torch.float64):
        ours, theirs = ([*g.matrix(dtype), *g.transpose(dtype)] for g in (one, other))
        assert [part.dtype for part in ours] == [part.dtype for part in theirs]
        assert all(map(torch.equal, ours, theirs))
    assert all(map(torch.equal, one.rowptrs, other.rowptrs))
    assert one.entry_counts == other.entry_counts


@pytest.mark.parametrize("transition", ["rw", "sym", "mean", None])
def test_the_transpose_of_compressed_rows_is_made_when_it_is_asked_for(transition, monkeypatch):
    monkeypatch.setattr(graph_module, "_ASKED_BY_COMPILERS", {})  # by the tests before
    graph, sorts, by_column = _compressed("directed-weighted", transition), [], matrices._by_column
    monkeypatch.setattr(matrices, "_by_column", lambda *a: sorts.append(1) or by_column(*a))
    copied = pickle.loads(pickle.dumps(graph))
    for each in (graph, copied, copy.deepcopy(graph)):
        each.matrix(), each.matrix(torch.float64), each.entry_counts, each.edge_index
        assert not sorts
    for _ in range(2):
        copied.transpose()
        assert len(sorts) == 1
    assert "send" not in str([*copied.__getstate__()])  # it can be made again


def test_compressed_rows_are_not_copied():
    rowptr, col = (
        torch.tensor([0, 1, 2], dtype=torch.int32),
        torch.tensor([1, 0], dtype=torch.int32),
    )
    graph = Graph.from_csr(rowptr, col)
    assert graph.matrix().col.data_ptr() == col.data_ptr()
    assert graph.rowptrs[0].data_ptr() == rowptr.data_ptr()


def test_a_pickle_of_before_the_transpose_could_come_later_is_read():
    state = EDGES["directed-weighted"].graph("rw").__getstate__()
    state["_send"] = state.pop("_sent")
    old = object.__new__(Graph)
    old.__setstate__(state)
    _same_bits(old, EDGES["directed-weighted"].graph("rw"))


@pytest.mark.parametrize("transition", ["rw", None])
def test_a_subgraph_is_the_graph_of_its_own_edges(transition):
    edges, nodes = EDGES["directed-weighted"], torch.tensor([7, 2, 11, 3, 0])
    adjacency = edges.dense()[nodes][:, nodes]
    graph = edges.graph(transition)
    part = graph.subgraph(nodes)
    expected = _dense_transition(adjacency, transition)  # of the degrees within it
    assert_all_close([part.dense()], [expected], FLOAT64_ERROR)
    mask = torch.zeros(13, dtype=torch.bool).index_fill(0, nodes, True)
    by_mask, sorted_nodes = graph.subgraph(mask), nodes.sort().values
    assert torch.equal(by_mask.dense(), graph.subgraph(sorted_nodes).dense())
    assert graph.subgraph(nodes[:0]).num_nodes == 0
    assert edges.graph(self_loops=True).subgraph(nodes).dense().diagonal().all()


@pytest.mark.parametrize(
    ("nodes", "message"),
    [([0, 13], "between 0 and 12, got 0 to 13"), ([-1], "got -1 to -1"), ([3, 3], "there twice")],
)
def test_nodes_that_make_no_subgraph_are_refused(nodes, message):
    with pytest.raises(ValueError, match=message):
        EDGES["directed-weighted"].graph().subgraph(torch.tensor(nodes))


@pytest.mark.parametrize("name", list(EDGES))
def test_to_scipy_is_the_matrix_with_parallel_edges_added_up(name):
    graph = EDGES[name].graph()
    matrix = graph.to_scipy()
    assert_all_close([torch.from_numpy(matrix.toarray())], [graph.dense()], FLOAT64_ERROR)
    assert matrix.has_canonical_format
    assert matrix.nnz == int((graph.dense() != 0).sum())


def _host_count(graph: Graph) -> tuple[torch.Tensor]:
    made.append(graph)
    return (torch.full((int(graph.matrix().rowptr[-1]),), 2.0),)


made: list[Graph] = []


def test_what_is_derived_from_a_graph_is_made_once_for_it_also_while_compiling():
    made.clear()
    graphs = [EDGES[name].graph() for name in ("directed", "parallel-edges")]

    def total(graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return (x * graph.cached("count", _host_count)[0]).sum()

    compiled, x = torch.compile(total, fullgraph=True, backend="aot_eager"), torch.ones(())
    for graph in [*graphs, *graphs]:
        assert float(compiled(graph, x)) == float(total(graph, x)) == 2 * graph.num_edges
    assert made == graphs


def test_a_graph_is_read_from_anything_with_edges():
    class Dataset:
        edge_index, edge_weight, num_nodes = EDGE, torch.tensor([1.0, 2, 3]), 4

    wanted = Graph(EDGE, 4, Dataset.edge_weight, None)
    assert torch.equal(Graph.from_data(Dataset(), transition=None).dense(), wanted.dense())


@pytest.mark.parametrize(
    ("nodes", "error", "message"),
    [
        (torch.ones(3, dtype=torch.bool), ValueError, "a mask of 3 nodes, but there are 4"),
        (torch.tensor([1.7, 2.2]), TypeError, "whole numbers .*, got torch.float32"),
        (torch.zeros(1, 2, dtype=torch.long), TypeError, r"got torch.int64 \[1, 2\]"),
        ([0, 9], ValueError, "nodes must be between 0 and 3, got 0 to 9"),
        ([1, 1], ValueError, "one is there twice"),
    ],
)
def test_what_is_no_choice_of_nodes_is_refused(
    nodes: object, error: type[Exception], message: str
) -> None:
    graph = Graph(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)
    with pytest.raises(error, match=message):
        graph.subgraph(nodes)  # type: ignore[arg-type]


def test_nodes_may_be_a_list() -> None:
    graph = Graph(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)
    assert graph.subgraph([1, 2]).num_edges == 1  # type: ignore[arg-type]


class Distant(torch.Tensor):
    """A tensor as on a GPU: whatever makes the host wait for its values is counted."""

    asked: ClassVar[list[str]] = []
    asks = ("cpu", "tolist", "item", "__int__", "__bool__", "nonzero", "masked_select", "unique")

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name, kwargs = function.__name__, kwargs or {}
        if name in cls.asks and any(isinstance(each, Distant) for each in args):
            cls.asked.append(name)
        if name == "repeat_interleave" and kwargs.get("output_size") is None:
            cls.asked.append(name)
        if name in ("__getitem__", "__setitem__") and not isinstance(args[1], Distant):
            places = args[1] if isinstance(args[1], tuple) else (args[1],)
            assert not any(isinstance(place, torch.Tensor) for place in places)
        elif name in ("__getitem__", "__setitem__") and args[1].dtype == torch.bool:
            cls.asked.append(name)
        result = super().__torch_function__(function, types, args, kwargs)
        return result.as_subclass(torch.Tensor) if name == "cpu" else result


@pytest.fixture
def distant(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Graphs are built and scheduled as on a GPU; -> what the host was asked, as it comes."""
    read = graph_module.read_adjacency

    def read_far(*arguments):
        edges, weight, implied = read(*arguments)
        weight = None if weight is None else weight.as_subclass(Distant)
        return edges.as_subclass(Distant), weight, implied

    monkeypatch.setattr(graph_module, "read_adjacency", read_far)
    monkeypatch.setitem(graph_module.SURVEYS, "cpu", graph_module.SURVEYS["cuda"])
    monkeypatch.setattr(Distant, "asked", [])
    return Distant.asked


def with_hubs() -> torch.Tensor:
    """Edges of 200 nodes of which some send and some receive a lot, [2, 1500]."""
    edges = torch.randint(0, 200, (2, 1500), generator=torch.Generator().manual_seed(0))
    edges[0, :400] %= 3
    edges[1, 300:900] %= 2
    return edges


def prepared(walked: Graph) -> list[torch.Tensor]:
    """All that a GPU needs for training."""
    parts = [*walked.matrix(), *walked.transpose()]
    for transpose in (False, True):
        parts += schedule.graph_schedule(walked, transpose)
    return parts


BUILDS = {
    "rw": {},
    "sym-loops": {"transition": "sym", "self_loops": True},
    "mean-weighted-loops": {
        "edge_weight": torch.rand(1500),
        "transition": "mean",
        "self_loops": True,
    },
    "weighted": {"edge_weight": torch.rand(1500), "transition": None},
}


@pytest.mark.parametrize("options", BUILDS.values(), ids=BUILDS)
def test_a_build_asks_a_device_once(options, distant):
    got = prepared(Graph(with_hubs(), 200, **options))
    assert distant == ["cpu"]
    assert any(isinstance(tensor, Distant) for tensor in got)  # it was watched to the end


@pytest.mark.parametrize("options", BUILDS.values(), ids=BUILDS)
def test_what_a_build_asks_on_the_way_changes_nothing(options, distant, monkeypatch):
    got = prepared(Graph(with_hubs(), 200, **options))
    monkeypatch.undo()  # then schedules ask for themselves
    for one, other in zip(got, prepared(Graph(with_hubs(), 200, **options)), strict=True):
        assert torch.equal(one.as_subclass(torch.Tensor), other)
    assert got[-1].numel()  # there are hubs


def test_a_build_that_counts_nodes_asks_once_more(distant):
    prepared(Graph(with_hubs()))
    assert distant == ["tolist", "cpu"]


def test_an_empty_graph_is_built_as_on_a_gpu(distant):
    empty = torch.empty(2, 0, dtype=torch.long)
    for nodes in (0, 3):
        assert Graph(empty, nodes, self_loops=True).num_edges == nodes
        prepared(Graph(empty, nodes))


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("bad", [-1, -(2**62), 200, 2**40, 2**62])
def test_no_index_is_used_before_it_is_checked(bad, self_loops, distant):
    edges = with_hubs()
    edges[:, 7] = bad
    with pytest.raises(ValueError, match=r"negative index|has index|holds the index"):
        Graph(edges, 200, torch.rand(1500), self_loops=self_loops)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@needs_gpu
@pytest.mark.parametrize("options", BUILDS.values(), ids=BUILDS)
def test_a_gpu_makes_the_host_wait_once_for_the_same_graph(options):
    edges, there = with_hubs().cuda(), dict(options)
    if "edge_weight" in there:
        there["edge_weight"] = there["edge_weight"].cuda()
    prepared(Graph(edges, 200, **there))  # so that modules are loaded
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            got = prepared(Graph(edges, 200, **there))
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert sum("called a synchronizing" in str(each.message) for each in waits) == 1
    wanted = prepared(Graph(with_hubs(), 200, **options))
    for one, other in zip(got, wanted, strict=True):  # sums of weights may round differently
        assert torch.allclose(one.cpu().double(), other.double(), rtol=1e-6, atol=0)


@needs_gpu
@pytest.mark.parametrize("bad", [-1, 200, 2**62])
def test_a_gpu_survives_a_wrong_index(bad):
    edges = with_hubs()
    edges[:, 7] = bad
    with pytest.raises(ValueError, match=r"negative index|has index|holds the index"):
        Graph(edges.cuda(), 200, self_loops=True)
    assert torch.ones(2, device="cuda").sum() == 2


# --------------------------------------------------------------------------- the order of edges


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("name", EDGES)
def test_edges_know_where_they_stood(name, self_loops):
    edges = EDGES[name]
    graph = Graph(edges.index, edges.num_nodes, self_loops=self_loops)
    order, given = graph.edge_order, edges.index.size(1)
    assert graph.given_edges == given
    came = order < given
    assert order[came].sort().values.tolist() == list(range(given))  # each of them once
    assert torch.equal(edges.index[:, order[came]], graph.edge_index[:, came])
    source, target = graph.edge_index[:, ~came]
    assert torch.equal(source, target)
    assert (order[~came] == given).all()
    assert self_loops or came.all()


def test_parallel_edges_stay_in_their_order():
    graph = Graph(torch.tensor([[2, 0, 2, 0], [1, 1, 1, 1]]))
    assert graph.edge_order.tolist() == [1, 3, 0, 2]


def test_the_order_stays_through_copies_subgraphs_and_matrices():
    edges = EDGES["directed"]
    graph = edges.graph(self_loops=True)
    again = pickle.loads(pickle.dumps(graph))
    assert torch.equal(again.edge_order, graph.edge_order)
    nodes = torch.tensor([4, 1, 9, 7])
    part = graph.subgraph(nodes)
    came = part.edge_order < part.given_edges
    there = edges.index[:, part.edge_order[came]]
    assert torch.equal(nodes[part.edge_index[:, came]], there)
    rowptr, col, _ = graph.matrix()
    assert Graph.from_csr(rowptr, col).edge_order.tolist() == list(range(graph.num_edges))


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("transition", ["rw", "sym", "mean", None])
def test_entries_of_other_weights_are_those_of_a_graph_with_them(transition, self_loops):
    edges = EDGES["directed-weighted"]
    how = {"transition": transition, "self_loops": self_loops}
    weighted = Graph(edges.index, edges.num_nodes, edges.weight, **how)
    assert torch.equal(weighted.entries(torch.float64), weighted.matrix(torch.float64).weight)
    for graph in (Graph(edges.index, edges.num_nodes, **how), weighted):
        for dtype in (torch.float32, torch.float64):
            found = graph.entries(dtype, edges.weight)
            assert torch.equal(found, weighted.matrix(dtype).weight)
        weight = edges.weight.double().requires_grad_()
        of_graph = partial(graph.entries, torch.float64)
        assert torch.autograd.gradcheck(of_graph, weight)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil"])
def test_entries_of_a_scipy_matrix_are_known_by_rows_and_coalesced(kind):
    """What is known of edges goes by that order, whatever kind of matrix it was."""
    source, target = np.array([2, 0, 2, 1, 0]), np.array([0, 2, 0, 1, 1])
    matrix = sp.coo_array((np.arange(1.0, 6.0), (source, target)), (3, 3)).asformat(kind)
    graph = Graph(matrix, transition=None)
    assert graph.given_edges == 4
    by_rows = sp.csr_array(matrix)
    by_rows.sum_duplicates()
    assert graph.matrix().weight.tolist() == [
        by_rows.data[number] for number in graph.edge_order.tolist()
    ]
