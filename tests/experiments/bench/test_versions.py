"""The versions that are compared: all compute the same, and the bytes are counted right."""

import pytest
import torch
from torch_geometric.nn import GCN
from torch_geometric.utils import to_undirected

from experiments.baselines import DROPOUT, HIDDEN, PYG_MODELS, SparseGCN
from experiments.bench import attention, cases, epoch
from subtree_attention import STAGNN, Graph, tasks
from subtree_attention.train.step import Trainer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def case() -> cases.Case:
    return cases.from_shape("60,300,1200,3", CPU)  # sparse features


@pytest.fixture
def task(case: cases.Case) -> attention.Task:
    return attention.make_task(case.graph, 3, 2, 5, 4, 1e-5)


def test_every_operator_version_is_right(task):
    versions = {v.name: v for v in attention.versions(task, "torch")}
    assert next(iter(versions)) == "ours"
    assert {"library products", "edge-wise"} <= set(versions)
    for version in versions.values():
        assert version.error() < 1e-5  # float32


def test_the_needed_bytes_are_those_of_the_recurrence(task):
    edges, nodes, heads, keys, values = 300, 60, 2, 5, 4
    first_hop = edges * heads * (keys + values + 1)
    other_hop = edges * heads * keys * (values + 1)
    written = nodes * heads * keys * (values + 1)
    a_pass = first_hop + 2 * other_hop + 3 * written
    assert task.needed_bytes() == 3 * a_pass * 4
    assert attention.make_task(task.graph, 0, 2, 5, 4, 1e-5).needed_bytes() == 0


def test_every_epoch_version_runs_and_the_checked_ones_are_right(case):
    versions = epoch.versions(case, "torch")
    assert [v.name for v in versions[:3]] == ["ours", "library products", "edge-wise"]
    assert {v.name for v in versions[4:]} == set(PYG_MODELS)
    for version in versions:
        version.inputs()
        version.build()(1)
    for version in versions[:4]:
        assert version.error() < 1e-5  # float32


def test_an_epoch_of_ours_trains(case):
    model = STAGNN(1200, 64, 3)
    before = model.lin.weight.clone()
    config = case.config
    about = {"task": tasks.of(config.task), "outputs": 3, "fit": config.fit}
    trainer = Trainer(model, case.x, case.data.y, case.split, case.graph, **about)
    for _ in range(2):
        trainer.epoch()
    assert not torch.equal(model.lin.weight, before)


def test_gcn_on_our_parts_is_pygs_gcn(case):
    torch.manual_seed(0)
    ours, theirs = SparseGCN(1200, 3), GCN(1200, HIDDEN, 2, 3, dropout=DROPOUT)
    for index, conv in enumerate(theirs.convs):
        with torch.no_grad():
            torch.nn.init.normal_(conv.bias)
            ours.lins[index].weight.copy_(conv.lin.weight)
            ours.biases[index].copy_(conv.bias)
    edge_index = to_undirected(case.data.edge_index)
    graph = Graph(edge_index, 60, transition="sym", self_loops=True)
    ours.eval(), theirs.eval()
    expected = theirs(case.data.x.to_dense(), edge_index)
    torch.testing.assert_close(ours(case.data.x, graph), expected, rtol=1e-4, atol=1e-5)


def test_polynormer_has_its_global_attention(case):
    model = PYG_MODELS["PyG Polynormer"].build(12, 3)
    x, batch = torch.randn(60, 12), torch.zeros(60, dtype=torch.long)
    out = model(x, case.data.edge_index, batch)
    grads = torch.autograd.grad(out[:, 0].sum(), list(model.global_attn.parameters()))
    assert any(grad.abs().sum() > 0 for grad in grads)
