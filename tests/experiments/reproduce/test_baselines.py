"""Every baseline: shapes, symmetry, depth, and that our trainer trains it."""

import copy

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import models as pyg

import subtree_attention as sta
from experiments.baselines import BASELINES, baseline
from subtree_attention import tasks
from subtree_attention.datasets import Split
from subtree_attention.nn import as_features, parameter_groups
from subtree_attention.tasks.metrics import LOSSES
from subtree_attention.train.step import Trainer

NODES, FEATURES, CLASSES = 48, 10, 3
NAMES = list(BASELINES)
DEEP = ["gcn", "gat", "appnp"]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """On tensors this small, threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data() -> Data:
    """Three planted classes: features and neighbours tell them; one loop, one lonely node."""
    draw = torch.Generator().manual_seed(3)
    y = torch.arange(NODES) % CLASSES
    pairs = torch.randint(NODES - 1, (2, 400), generator=draw)
    alike = pairs[:, (y[pairs[0]] == y[pairs[1]]) & (pairs[0] != pairs[1])]
    edge_index = torch.cat([alike, alike.flip(0), torch.tensor([[0], [0]])], 1).unique(dim=1)
    x = torch.rand(NODES, FEATURES, generator=draw)
    x = x * (torch.rand(x.shape, generator=draw) < 0.4)
    x[torch.arange(NODES), y] += 1
    part = torch.arange(NODES) // CLASSES % 3
    masks = {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    return Data(x=x, y=y, edge_index=edge_index, num_nodes=NODES, **masks)


@pytest.fixture(scope="module")
def graph(data: Data) -> sta.Graph:
    return sta.Graph(data.edge_index, NODES)


def make(name: str, **settings) -> torch.nn.Module:
    torch.manual_seed(1)
    return BASELINES[name].build(FEATURES, CLASSES, settings)


def make_trainer(
    model, name: str, data: Data, graph: sta.Graph, capture: bool = False, **changes
) -> Trainer:
    settings = BASELINES[name].settings
    config = sta.recipe("digits", lr=settings["lr"], weight_decay=settings["weight_decay"])
    config = config.replace(**changes)
    split, task = Split(data.train_mask, data.val_mask, data.test_mask), tasks.of(config.task)
    about = {"task": task, "outputs": CLASSES, "fit": config.fit, "capture": capture}
    return Trainer(model, as_features(data.x), data.y, split, graph, **about)


def advance(trainer: Trainer, epochs: int) -> None:
    for _ in range(epochs):
        trainer.epoch()


@pytest.mark.parametrize("name", NAMES)
def test_dense_and_sparse_features_give_the_same_logits(name, data, graph):
    model = make(name).eval()
    dense, sparse = model(data.x, graph), model(data.x.to_sparse_csr(), graph)
    assert dense.shape == (NODES, CLASSES)
    torch.testing.assert_close(sparse, dense, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "steps"), [*((n, 0) for n in NAMES), ("polynormer", 1000)])
def test_renumbered_nodes_give_renumbered_logits(name, steps, data, graph):
    model = make(name).eval()
    if steps:  # the second phase
        model.steps += steps
    order = torch.randperm(NODES)
    place = order.argsort()
    before = model(data.x, graph)
    after = model(data.x[order], sta.Graph(place[data.edge_index], NODES))
    # Sums over edges and nodes come in another order; float32.
    torch.testing.assert_close(after, before[order], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", NAMES)
def test_the_trainer_trains_it(name, sparse, data, graph):
    data = data.clone()
    data.x = data.x.to_sparse_csr() if sparse else data.x
    model = make(name)
    trainer = make_trainer(model, name, data, graph, lr=0.01)
    advance(trainer, 25)
    losses = torch.tensor(trainer.read(0))[:, 0]
    assert losses.isfinite().all()
    assert losses[-5:].mean() < 0.9 * losses[:3].mean()
    other = make(name)
    other.load_state_dict(trainer.best_weights)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_taken_up_again_goes_on_as_before(name, data, graph):
    changes = {"local_epochs": 2} if name == "polynormer" else {}
    trainers = [make_trainer(make(name, **changes), name, data, graph) for _ in range(3)]
    whole, first, second = trainers
    advance(whole, 6)
    advance(first, 3)
    second.load_state({key: tensor.clone() for key, tensor in first.state().items()})
    advance(second, 3)
    assert second.read(3) == whole.read(3)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_prepared_is_kept_for_the_same_graph_only(name, data, graph):
    model = make(name).eval()
    with torch.inference_mode():
        model(data.x, graph)  # must leave nothing behind that cannot be trained on
    kept = model.edges(graph)
    assert model.edges(graph) is kept
    model.train()(data.x, graph).sum().backward()
    fresh = copy.deepcopy(model).eval()
    assert fresh.edges.last is None
    other = sta.Graph(data.edge_index[:, ::3], NODES)
    assert torch.equal(model.eval()(data.x, other), fresh(data.x, other))
    assert not torch.allclose(model(data.x, other), model(data.x, graph))


@pytest.mark.parametrize("depth", [3, 30, 100])
@pytest.mark.parametrize("name", DEEP)
def test_depth_up_to_a_hundred_is_finite(name, depth, data, graph):
    settings = BASELINES[name].at_depth(depth)
    model = BASELINES[name].build(FEATURES, CLASSES, settings)
    logits = model(data.x, graph)
    LOSSES["cross_entropy"](data.y, data.train_mask, CLASSES)(logits).backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    deep = model.propagate.K if name == "appnp" else len(model.convs)
    assert deep == depth


@pytest.mark.parametrize("name", NAMES)
def test_depth_is_a_setting_of_all(name):
    chosen = baseline(name)
    changed = {key for key, value in chosen.at_depth(77).items() if value != chosen.settings[key]}
    assert changed <= {"hops", "layers"}
    assert len(changed) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", NAMES)
def test_it_trains_on_a_gpu(name, sparse, data):
    data = data.clone()
    data.x = data.x.to_sparse_csr() if sparse else data.x
    data = data.to("cuda")
    model = make(name).cuda()
    graph = sta.Graph(data.edge_index, NODES)
    trainer = make_trainer(model, name, data, graph, lr=0.01, capture=BASELINES[name].capturable)
    advance(trainer, 25)
    losses = torch.tensor(trainer.read(0))[:, 0]
    assert (trainer.replay is not None) == BASELINES[name].capturable
    assert losses[-5:].mean() < 0.9 * losses[:3].mean()


class TestPolynormer:
    def test_the_global_attention_comes_in_after_the_local_epochs(self, data, graph):
        model = make("polynormer", local_epochs=3)
        trainer = make_trainer(model, "polynormer", data, graph)
        before = {name: weight.clone() for name, weight in model.state_dict().items()}

        def moved(part: str) -> bool:
            now = model.state_dict()
            return any(not torch.equal(now[k], before[k]) for k in before if part in k)

        advance(trainer, 2)  # a trainer is one step ahead: these were steps 1 to 3
        assert not model.attends_globally
        assert moved("local_convs")
        assert not moved("global_attn")
        advance(trainer, 1)
        assert model.attends_globally
        assert moved("global_attn")
        advance(trainer, 5)
        assert torch.tensor(trainer.read(0)).isfinite().all()

    def test_the_best_weights_know_their_phase(self, data, graph):
        model = make("polynormer", local_epochs=3)
        trainer = make_trainer(model, "polynormer", data, graph)
        advance(trainer, 8)
        rows = torch.tensor(trainer.read(0), dtype=torch.float64)
        best = int(rows[:, 2].argmax())
        model.load_state_dict(trainer.best_weights)
        assert int(model.steps) == best + 1
        scores = trainer.scores_of(model.eval()(data.x, graph))
        assert torch.equal(scores, rows[best, 1:])

    def test_each_phase_is_pygs(self, data, graph):
        model = make("polynormer", local_epochs=3).eval()
        batch = torch.zeros(NODES, dtype=torch.long)
        theirs = pyg.Polynormer(FEATURES, 64, CLASSES).eval()
        theirs.load_state_dict(model.model.state_dict())
        for steps, attends in ((3, False), (4, True)):
            model.steps.fill_(steps)
            theirs._global = attends
            expected = theirs(data.x, data.edge_index, batch)
            torch.testing.assert_close(model(data.x, graph).log_softmax(-1), expected)


def test_sgformer_is_pygs(data, graph):
    model = make("sgformer").eval()
    theirs = pyg.SGFormer(FEATURES, 64, CLASSES).eval()
    theirs.load_state_dict(model.model.state_dict())
    expected = theirs(data.x, data.edge_index, torch.zeros(NODES, dtype=torch.long))
    torch.testing.assert_close(model(data.x, graph).log_softmax(-1), expected)


def test_gcn_and_gat_are_pygs(data, graph):
    # PyG's model GAT concatenates every layer but the last, too.
    for name, options in (("gcn", {}), ("gat", {"heads": 8})):
        model = make(name, layers=3).eval()
        act = "relu" if name == "gcn" else "elu"
        theirs = getattr(pyg, name.upper())(FEATURES, 64, 3, CLASSES, act=act, **options)
        if name == "gat":
            theirs.convs[-1] = theirs.init_conv(64, CLASSES, heads=1, concat=False)
        weights = model.state_dict()
        theirs.load_state_dict({key.replace(".conv.", "."): weights[key] for key in weights})
        expected = theirs.eval()(data.x, data.edge_index)
        torch.testing.assert_close(model(data.x, graph), expected, rtol=1e-4, atol=1e-6)


def test_appnp_is_gprgnn_at_its_start(data, graph):
    appnp, gprgnn = make("appnp").eval(), make("gprgnn").eval()
    gprgnn.mlp.load_state_dict(appnp.mlp.state_dict())
    torch.testing.assert_close(gprgnn(data.x, graph), appnp(data.x, graph), rtol=1e-5, atol=1e-6)


def test_only_the_hop_weights_of_gprgnn_are_not_decayed():
    decayed, kept = parameter_groups(make("gprgnn"), 5e-4)
    assert [p.numel() for p in kept["params"]] == [11]
    assert kept["weight_decay"] == 0
    assert decayed["weight_decay"] == 5e-4
    for name in set(NAMES) - {"gprgnn"}:
        model = make(name)
        (group,) = parameter_groups(model, 5e-4)
        assert len(group["params"]) == len(list(model.parameters()))


def test_jknet_may_take_the_maximum(data, graph):
    assert make("jknet", jump="max")(data.x, graph).shape == (NODES, CLASSES)


def test_errors_say_what_is_known():
    with pytest.raises(ValueError, match=r"unknown baseline 'gcm'\. Did you mean 'gcn'"):
        baseline("gcm")
    with pytest.raises(ValueError, match=r"unknown setting of GCN 'layer'\. Did you mean 'layers'"):
        make("gcn", layer=3)
    with pytest.raises(ValueError, match="layers must be at least 1, got 0"):
        make("gcn", layers=0)
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1"):
        make("gcn", dropout=1.5)
    with pytest.raises(ValueError, match="hidden=60 must be a multiple of heads=8"):
        make("gat", hidden=60)
    with pytest.raises(ValueError, match="unknown jump 'mean'"):
        make("jknet", jump="mean")
