"""`Graph.of`, and what STAConv makes of a raw edge_index: one Graph for the same tensors."""

import copy
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric import EdgeIndex

from subtree_attention import Graph, STAConv, graph
from subtree_attention._remembered import Remembered

NODES = 6


def ring() -> torch.Tensor:
    """Edges of a tensor of its own, [2, 6]."""
    return torch.stack([torch.arange(NODES), torch.arange(1, NODES + 1) % NODES])


def same(one: Graph, other: Graph) -> bool:
    return torch.equal(one.dense(), other.dense())


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The Graphs that are built, as they come."""
    made, init = [], Graph.__init__

    def counted(self: Graph, *arguments: object, **options: object) -> None:
        init(self, *arguments, **options)
        made.append(weakref.ref(self))

    monkeypatch.setattr(Graph, "__init__", counted)
    return made


def test_layers_that_share_an_edge_index_build_one_graph(built):
    layers, edges = [STAConv(4, 4, hops=2, heads=2) for _ in range(3)], ring()
    for _ in range(2):
        x = torch.randn(NODES, 4)
        for layer in layers:
            x = layer(x, edges)
        x.sum().backward()
    assert len(built) == 1


def test_the_remembered_graph_gives_what_a_new_one_gives():
    layer, edges, x = STAConv(4, 4, hops=2, heads=2), ring(), torch.randn(NODES, 4)
    weight = torch.rand(NODES)
    for options in ({}, {"edge_weight": weight}):
        first, second = layer(x, edges, **options), layer(x, edges, **options)
        wanted = layer(x, Graph(edges, NODES, **options))
        assert torch.equal(first, wanted)
        assert torch.equal(second, wanted)


@pytest.mark.parametrize("change", ["edges", "view", "resized"])
def test_a_change_in_place_that_torch_counts_is_seen(change):
    edges = ring()
    before = Graph.of(edges, NODES)
    if change == "edges":
        edges[1, 0] = 3
    elif change == "view":
        edges[0].add_(1).remainder_(NODES)
    else:
        edges.resize_(2, 3)
    after = Graph.of(edges, NODES)
    assert same(after, Graph(edges, NODES))
    assert not same(after, before)
    assert Graph.of(edges, NODES) is after


def test_a_change_of_weights_in_place_is_seen():
    edges, weight = ring(), torch.ones(NODES)
    before = Graph.of(edges, NODES, weight, None)
    assert Graph.of(edges, NODES, weight, None) is before
    before = weakref.ref(before)
    weight.mul_(2)
    assert same(Graph.of(edges, NODES, weight, None), Graph(edges, NODES, weight, None))
    assert before() is None  # the new one took its place


def test_a_change_behind_the_back_of_torch_is_not_seen():
    """As the documentation says."""
    for change in (
        lambda edges: edges.data.fill_(0),
        lambda edges: np.copyto(edges.numpy(), 0),
    ):
        edges = ring()
        before = Graph.of(edges, NODES)
        change(edges)
        assert Graph.of(edges, NODES) is before


def test_everything_that_a_graph_is_made_of_belongs_to_the_key():
    edges, weights = ring(), [torch.rand(NODES), torch.rand(NODES)]
    calls = [
        {},
        {"num_nodes": 9},
        {"transition": "sym"},
        {"transition": None},
        {"self_loops": True},
        {"edge_weight": weights[0]},
        {"edge_weight": weights[1]},
    ]
    graphs = [Graph.of(edges, **{"num_nodes": NODES, **call}) for call in calls]
    for call, made in zip(calls, graphs, strict=True):
        assert same(made, Graph(edges, **{"num_nodes": NODES, **call}))
        assert Graph.of(edges, **{"num_nodes": NODES, **call}) is made
    assert len({id(made) for made in graphs}) == len(calls)
    assert Graph.of(ring(), NODES) is not graphs[0]  # another tensor


@pytest.mark.parametrize("who", ["edges", "weight"])
def test_memory_goes_with_either_tensor(who):
    tensors = {"edges": ring(), "weight": torch.ones(NODES)}
    made = weakref.ref(Graph.of(tensors["edges"], NODES, tensors["weight"]))
    entries = [weakref.ref(t) for t in made()._receive[:2]]
    gc.collect()
    assert made() is not None
    del tensors[who]  # at once, not when the garbage is collected
    assert made() is None
    assert all(entry() is None for entry in entries)


def test_memory_goes_also_after_training():
    """Whatever layers derived from the graph, they keep it with it."""
    layer, edges = STAConv(4, 4, hops=2, heads=2), ring()
    for _ in range(2):
        layer(torch.randn(NODES, 4), edges).sum().backward()
    made = weakref.ref(Graph.of(edges, NODES))
    del edges
    gc.collect()
    assert made() is None


def test_nothing_is_left_of_tensors_that_died():
    gc.collect()
    before = len(graph._GRAPHS)
    for _ in range(50):
        Graph.of(ring(), NODES, torch.ones(NODES))  # likely at an address that was in use before
    gc.collect()
    assert len(graph._GRAPHS) == before


def test_another_tensor_at_the_address_of_a_dead_one_is_another_tensor():
    addresses = set()
    for shift in range(20):
        edges = (ring() + shift) % NODES if shift % 2 else ring().flip(0)
        weight = torch.full((NODES,), float(shift + 1))
        addresses.add(id(edges))
        assert same(Graph.of(edges, NODES, weight, None), Graph(edges, NODES, weight, None))
    assert len(addresses) < 20


def test_a_tensor_with_many_graphs_keeps_the_last_few():
    edges, most = ring(), graph._GRAPHS.most
    graphs = [weakref.ref(Graph.of(edges, NODES + extra)) for extra in range(2 * most)]
    assert [made() is not None for made in graphs] == [False] * most + [True] * most


def test_many_tensors_do_not_pile_up():
    memory: Remembered[list[int]] = Remembered(most=2, most_tensors=3)
    tensors = [torch.zeros(1) for _ in range(5)]
    things = [memory(lambda: [0], tensor) for tensor in tensors]
    found = [
        memory(lambda: [1], tensor) is thing for tensor, thing in zip(tensors, things, strict=True)
    ]
    assert (len(memory), found[2:]) == (3, [False, False, False])  # the first took their place
    assert memory(lambda: [2], tensors[-1]) == [1]


def test_changes_at_every_step_leave_one_graph_behind():
    edges, graphs = ring(), []
    for _ in range(5):
        edges.add_(1).remainder_(NODES)
        graphs.append(weakref.ref(Graph.of(edges, NODES)))
    assert [made() is not None for made in graphs] == [False] * 4 + [True]


def test_tensors_of_an_inference_mode_are_not_remembered():
    """Torch does not count their changes."""
    layer = STAConv(4, 4)
    with torch.inference_mode():
        edges, weight, x = ring(), torch.rand(NODES), torch.randn(NODES, 4)
        assert edges.is_inference()
        first = Graph.of(edges, NODES)
        assert Graph.of(edges, NODES) is not first
        edges[1] = 0
        assert torch.equal(layer(x, edges), layer(x, Graph(edges, NODES)))
    usual = ring()
    assert Graph.of(usual, NODES, weight) is not Graph.of(usual, NODES, weight)


def test_a_usual_tensor_is_remembered_in_inference_mode_too():
    edges, layer = ring(), STAConv(4, 4, hops=2)
    with torch.inference_mode():
        made = Graph.of(edges, NODES)
        edges[1, 0] = 3  # counted there as well
        assert Graph.of(edges, NODES) is not made
    x = torch.randn(NODES, 4, requires_grad=True)
    layer(x, edges).sum().backward()  # what was made there can still train
    assert x.grad is not None


def test_weights_that_learn_are_refused_also_if_they_were_known():
    edges, weight = ring(), torch.ones(NODES)
    Graph.of(edges, NODES, weight)
    weight.requires_grad_()
    with pytest.raises(ValueError, match=r"edge_weight.detach\(\)"):
        Graph.of(edges, NODES, weight)


def test_what_is_wrong_is_refused_every_time():
    edges, layer = ring(), STAConv(4, 4)
    layer(torch.randn(NODES, 4), edges)
    for _ in range(2):
        with pytest.raises(ValueError, match="num_nodes=3, but the adjacency has index 5"):
            layer(torch.randn(3, 4), edges)
        with pytest.raises(ValueError, match="unknown transition"):
            Graph.of(edges, NODES, transition="wr")


def test_an_edge_index_of_pyg_is_remembered_and_its_changes_are_seen():
    plain = ring()
    edges = EdgeIndex(plain)
    for change in (lambda: edges.add_(1).remainder_(NODES), lambda: plain.fill_(0)):
        made = Graph.of(edges, NODES)
        assert Graph.of(edges, NODES) is made
        change()
        assert same(Graph.of(edges, NODES), Graph(edges, NODES))
    assert Graph.of(edges).num_nodes == 1
    edges.sparse_resize_(9, 9)
    assert Graph.of(edges).num_nodes == 9


def test_matrices_are_read_anew():
    """The tensors that a matrix was made of may be changed without its knowledge."""
    values = torch.ones(NODES)
    coo = torch.sparse_coo_tensor(ring(), values, (NODES, NODES), check_invariants=True)
    for matrix in (coo, coo.to_sparse_csr()):
        assert Graph.of(matrix) is not Graph.of(matrix)
    before = Graph.of(coo, transition=None)
    values.mul_(3)
    assert not same(Graph.of(coo, transition=None), before)


def test_a_graph_itself_is_passed_on_by_a_layer():
    made, layer, x = Graph(ring(), NODES), STAConv(4, 4), torch.randn(NODES, 4)
    assert layer.as_graph(made, None, x) is made


def test_a_layer_is_copied_without_graphs():
    layer, edges, x = STAConv(4, 4), ring(), torch.randn(NODES, 4)
    size = len(pickle.dumps(layer))
    out = layer(x, edges)
    assert len(pickle.dumps(layer)) == size
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x, edges), out)
    twin = copy.deepcopy(edges)
    assert not vars(twin)  # tensors stay as they are
    assert Graph.of(twin, NODES) is not Graph.of(edges, NODES)


def test_a_layer_with_a_cache_keeps_the_first_graph_as_in_pyg(built):
    layer, x = STAConv(4, 4, cached=True), torch.randn(NODES, 4)
    first = layer(x, ring())
    gc.collect()
    assert torch.equal(layer(x, ring().flip(0)), first)
    assert len(built) == 1
    assert built[0]() is not None


def test_threads_that_come_at_a_time_get_right_graphs():
    shared, wrong = ring(), []

    def work(seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        for _ in range(100):
            edges = torch.randint(0, NODES, (2, 9), generator=random)
            for tensor in (edges, shared):
                if not same(Graph.of(tensor, NODES), Graph(tensor, NODES)):
                    wrong.append(tensor)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_is_remembered_while_tensors_stand_for_others():
    edges = ring()
    made = Graph.of(edges, NODES)
    with FlopCounterMode(display=False):
        assert Graph.of(edges, NODES) is not made
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(edges)
        with pytest.raises(DataDependentOutputException):
            Graph.of(fake, NODES)
    assert Graph.of(edges, NODES) is made

    def of_batch(x: torch.Tensor) -> torch.Tensor:
        assert Graph.of(edges, NODES) is not made
        return x

    torch.func.vmap(of_batch)(torch.zeros(2))
    with pytest.raises(ValueError, match="holds no values"):
        Graph.of(edges.to("meta"), NODES)


def test_compiled_layers_go_on_after_the_graph(built):
    """It is built outside of the compiled code, and remembered there."""
    torch.compiler.reset()
    layer, edges = STAConv(4, 4, hops=2, heads=2, backend="torch"), ring()
    compiled = torch.compile(layer, backend="aot_eager")
    for nodes in (NODES, NODES, NODES + 2, NODES + 3):
        x = torch.randn(nodes, 4)
        assert torch.allclose(compiled(x, edges), layer(x, edges))
    assert len(built) == 3
    edges[1, 0] = 3
    x = torch.randn(NODES, 4)
    assert torch.allclose(compiled(x, edges), layer(x, Graph(edges, NODES)))


def test_a_tensor_that_got_other_memory_is_another_graph(built):
    layer, edges, x = STAConv(4, 4, hops=2, heads=2), ring(), torch.randn(NODES, 4)
    layer(x, edges)
    edges.data = ring()[:, :3].clone()
    torch.testing.assert_close(layer(x, edges), layer(x, Graph(edges, NODES)))
    assert len(built) == 3


def test_a_captured_graph_is_not_given_edges_that_may_go(monkeypatch):
    class OnAGPU(torch.Tensor):
        is_cuda = True

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="make a Graph before"):
        Graph.of(ring().as_subclass(OnAGPU), NODES)
