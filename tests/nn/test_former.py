"""STABlock and STAFormer: against the dense definition, and what a user does with them."""

import copy
import itertools

import pytest
import scipy.sparse
import torch
import torch.nn.functional as F
from torch_geometric.data import Batch, Data

import subtree_attention as sta
from subtree_attention import STAGNN, Graph, STABlock, STAFormer, feature_maps
from subtree_attention.config import MODELS, STAFormerSettings
from subtree_attention.datasets.features import from_scipy
from subtree_attention.nn import SparseFeatures, build, parameter_groups
from subtree_attention.nn.edges import LinearEdgeGate
from subtree_attention.ops import definition
from tests.ops.cases import EDGES, FLOAT64_ERROR, assert_all_close, output_and_gradients


@pytest.fixture
def edges():
    return EDGES["undirected"]


@pytest.fixture
def graph(edges):
    return Graph(edges.index, edges.num_nodes, transition="sym", self_loops=True)


@pytest.fixture
def x(graph):
    return torch.randn(graph.num_nodes, 6, dtype=torch.float64)


def former(**options) -> STAFormer:
    return STAFormer(6, 8, 3, **{"layers": 2, "key_channels": 3, **options}).double()


def dense_block(block: STABlock, x: torch.Tensor, transition: torch.Tensor) -> torch.Tensor:
    """A block as its docstring says, by the dense definition of its attention."""
    conv = block.conv
    query, key, value = (
        lin(x).unflatten(-1, (conv.heads, -1))
        for lin in (conv.lin_query, conv.lin_key, conv.lin_value)
    )
    similarity = definition.kernel_similarity(feature_maps.unit)
    how = transition, conv.hops, similarity, conv.eps
    levels = definition.subtree_attention(query, key, value, *how, beta=conv.readout())
    out = (levels * conv.hop_weights()[:, None, :, None]).sum(0).flatten(1)
    out = out if block.residual is None else out + block.residual(x)
    out = F.relu(block.norm(out))
    if block.feed_forward is not None:
        out = block.last_norm(out + block.feed_forward(out))
    return out


PARTS = {
    "norm": ["layer", "batch", "none"],
    "residual": ["linear", "identity", "none"],
    "feed_forward": [0, 2],
    "hops": [1, 3],
    "heads": [1, 2],
}


@pytest.mark.parametrize("parts", [dict(zip(PARTS, some, strict=True)) for some in (
    ("layer", "linear", 0, 1, 2), ("batch", "identity", 2, 3, 1), ("none", "none", 0, 3, 2),
    ("layer", "none", 2, 1, 1), ("batch", "linear", 0, 1, 2), ("none", "identity", 2, 3, 2),
)])  # fmt: skip
@pytest.mark.parametrize("jumping", ["last", "sum", "max", "concat"])
def test_it_is_what_its_formulas_say_with_every_gradient(graph, x, parts, jumping):
    net = former(jumping=jumping, **parts)
    transition, inputs = graph.dense(x.dtype), [x, *net.parameters()]

    def dense() -> torch.Tensor:
        outputs = list(itertools.accumulate(
            net.blocks, lambda hidden, block: dense_block(block, hidden, transition), initial=x
        ))[1:]  # fmt: skip
        joined = {
            "last": lambda: outputs[-1],
            "sum": lambda: outputs[0] + outputs[1],
            "max": lambda: torch.maximum(*outputs),
            "concat": lambda: torch.cat(outputs, 1),
        }[jumping]()
        return net.lin_out(joined)

    x.requires_grad_()
    found = output_and_gradients(net(x, graph), inputs)
    assert_all_close(found, output_and_gradients(dense(), inputs), 10 * FLOAT64_ERROR)


@pytest.mark.parametrize("option", [
    {"norm": "group"}, {"residual": "gated"}, {"jumping": "lstm"}, {"layers": 0},
    {"feed_forward": -1}, {"dropout": 1.0}, {"input_dropout": 2}, {"heads": 3}, {"hops": -1},
])  # fmt: skip
def test_what_cannot_be_is_refused_by_name(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        former(**option)


def test_many_graphs_in_a_batch_are_as_each_by_itself():
    torch.manual_seed(0)
    pieces = [
        Data(x=torch.randn(n, 6, dtype=torch.float64), edge_index=torch.randint(n, (2, 3 * n)))
        for n in (3, 7, 5)
    ]
    batch, net = Batch.from_data_list(pieces), former(global_attention=True)
    whole = net(batch.x, batch.edge_index, batch=batch.batch, batch_size=3)
    alone = torch.cat([net(piece.x, piece.edge_index) for piece in pieces])
    assert_all_close([whole], [alone], FLOAT64_ERROR)


@pytest.mark.parametrize("projected", [False, True])
def test_sparse_features_are_as_dense_ones(graph, projected):
    x = torch.randn(graph.num_nodes, 6).relu()
    net = former(input_projection=projected, input_dropout=0.3).float().eval()
    expected = net(x, graph)
    csr = from_scipy(scipy.sparse.csr_matrix(x.numpy()))
    for sparse in (csr, SparseFeatures(csr)):
        assert_all_close([net(sparse, graph)], [expected], 1e-5)
    net.train()
    assert not torch.allclose(net(csr, graph), net(csr, graph))  # other zeros each time


def test_a_block_adds_sparse_x_itself(graph):
    x = torch.randn(graph.num_nodes, 8).relu()
    block, csr = STABlock(8, 8, residual="identity"), from_scipy(scipy.sparse.csr_matrix(x.numpy()))
    assert_all_close([block(csr, graph)], [block(x, graph)], 1e-5)
    with pytest.raises(ValueError, match="residual='identity' needs in_channels"):
        STABlock(-1, 8, residual="identity")


def test_a_graph_that_it_does_not_walk_on_is_refused_with_the_one_it_does(edges, x):
    with pytest.raises(ValueError, match=r"transition='sym', self_loops=True\), or pass"):
        former()(x, Graph(edges.index, edges.num_nodes))


def test_dropout_acts_in_training_only(graph, x):
    net = former(dropout=0.5, input_dropout=0.5, input_projection=True)
    assert not torch.equal(net(x, graph), net(x, graph))
    net.eval()
    assert torch.equal(net(x, graph), net(x, graph))


def test_a_deep_stack_of_sums_stays_finite_and_has_gradients(graph, x):
    """What an unnormalised read-out of plain similarities does not: each block is cubic there."""
    torch.manual_seed(0)
    net = former(layers=64, norm="none", residual="none", readout="sum", hops=2)
    out = net(100 * x, graph)
    out.sum().backward()
    gradients = [p.grad for p in net.parameters() if p.grad is not None]
    assert out.isfinite().all()
    assert all(grad.isfinite().all() for grad in gradients)


def test_hop_weights_and_betas_are_not_decayed():
    net = former()
    decayed, kept = parameter_groups(net, 0.1)
    names = {id(p): name for name, p in net.named_parameters()}
    assert {names[id(p)].rpartition(".")[2] for p in kept["params"]} == {"table", "beta"}
    assert len(decayed["params"]) + len(kept["params"]) == len(names)


def test_it_copies_saves_and_resets(graph, x, tmp_path):
    net = former()
    assert torch.equal(copy.deepcopy(net)(x, graph), net(x, graph))
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    other = former()
    other.load_state_dict(torch.load(tmp_path / "weights.pt"))
    assert torch.equal(other(x, graph), net(x, graph))
    torch.manual_seed(0)
    other.reset_parameters()
    torch.manual_seed(0)
    net.reset_parameters()
    assert torch.equal(other(x, graph), net(x, graph))


def test_an_edge_index_is_as_good_as_a_graph(edges, graph, x):
    net = former()
    assert_all_close([net(x, edges.index, edges.weight)], [net(x, graph)], FLOAT64_ERROR)


def test_settings_build_it_and_name_what_does_not_fit():
    net = build(STAFormerSettings(layers=4, hidden_channels=12, heads=3, norm="batch"), 5, 2)
    assert repr(net) == "STAFormer(5, 12, 2, layers=4, hops=2, heads=3)"
    assert MODELS["staformer"] is STAFormerSettings
    with pytest.raises(ValueError, match="heads=5 do not divide hidden_channels=128"):
        STAFormerSettings(heads=5)
    config = sta.recipe("computer", model="staformer", layers=2)
    assert config.model.hidden_channels == 512
    assert config.walk["self_loops"]
    with pytest.raises(ValueError, match="layers is a setting of staformer"):
        sta.recipe("computer", layers=2)


def test_unit_features_have_length_one_and_their_gradient():
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    assert_all_close([feature_maps.unit(x).norm(dim=-1)], [torch.ones(5).double()], FLOAT64_ERROR)
    assert torch.autograd.gradcheck(feature_maps.unit, x)
    gone = torch.full((2, 4), -1e4, requires_grad=True)
    feature_maps.unit(gone).sum().backward()
    assert not feature_maps.unit(gone).any()
    assert gone.grad.isfinite().all()


def test_compiled_it_gives_the_same(graph):
    net, x = former().float(), torch.randn(graph.num_nodes, 6)
    torch._dynamo.reset()
    compiled, inputs = torch.compile(net, fullgraph=True, backend="aot_eager"), [*net.parameters()]
    found = output_and_gradients(compiled(x, graph), inputs)
    assert_all_close(found, output_and_gradients(net(x, graph), inputs), 1e-5)


@pytest.mark.parametrize("in_channels", [6, -1])
def test_a_quiet_start_is_the_plain_walk(graph, x, in_channels):
    quiet = {"readout": "sum", "norm": "none", "residual": "none", "activation": "none"}
    block = STABlock(in_channels, 8, hops=2, attention_start=0.0, **quiet).double()
    found, value = block(x, graph), block.conv.lin_value(x)
    transition = graph.dense(x.dtype)
    walked = value + transition @ value + transition @ transition @ value
    assert_all_close([found], [walked], FLOAT64_ERROR)


def test_one_block_behind_a_projection_is_the_papers_model(edges, x):
    """Here each head has as many value channels as there are classes, as in STAGNN."""
    paper = STAGNN(6, 8, 2, hops=3, heads=4).double()
    plain = {"norm": "none", "residual": "none", "activation": "none", "input_projection": True}
    same = {"readout": "mean", "feature_map": "elu", "gate": "softmax", "eps": paper.conv.eps}
    walk = {"transition": "rw", "self_loops": False, "key_channels": 2}
    block = STAFormer(6, 8, 2, layers=1, hops=3, heads=4, **plain, **same, **walk).double()
    for own, given in zip(block.parameters(), paper.parameters(), strict=True):
        own.data.copy_(given.data)
    assert_all_close([block(x, edges.index)], [paper(x, edges.index)], FLOAT64_ERROR)


def test_a_part_of_ones_own_is_one_for_each_block():
    gate = LinearEdgeGate(3, 2)
    model = STAFormer(8, 8, 3, layers=3, edge_dim=3, edge_gate=gate)
    gates = [block.conv.edge_gate for block in model.blocks]
    assert gates[0] is gate
    assert len({id(each) for each in gates}) == 3


def test_what_is_not_decayed_is_found_in_a_model_of_ones_own():
    torch.manual_seed(0)
    model = STAFormer(4, 8, 3, layers=2)
    groups = model.parameter_groups(0.1)
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    own = torch.nn.ModuleDict({"first": model.blocks[0], "second": model.blocks[1]})
    inner = {id(p) for block in model.blocks for p in block.no_weight_decay()}
    assert {id(p) for p in parameter_groups(own, 0.1)[1]["params"]} == inner
    assert sum(len(group["params"]) for group in groups) == len([*model.parameters()])
