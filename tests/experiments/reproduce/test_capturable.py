"""What is replayed as a CUDA graph never waits for the host: seen without a GPU, by its calls."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import subtree_attention as sta
from experiments.baselines import BASELINES
from experiments.field.rivals import RIVALS
from experiments.models import GlobalAttentionSettings
from experiments.reproduce.experiments import EDGEWISE, PaperJob
from experiments.reproduce.jobs import Job
from experiments.reproduce.records import OURS
from subtree_attention import datasets
from subtree_attention.datasets import Dataset
from subtree_attention.nn.features import Features, as_features
from subtree_attention.train.run import Material

CONFIG = sta.recipe("digits", hops=2, heads=2, dropout=0.5)
ALONE = replace(CONFIG, model=GlobalAttentionSettings.of(CONFIG.model))
VARIANTS = [
    {"global_attention": True},
    *({"aggregation": way} for way in ("sum", "concat", "attention")),
    *({"gate": way} for way in ("plain", "none")),
    {"head_mix": "sum"},
    {"feature_map": "softmax"},
]  # of Tables 2 and 3 and of the hop aggregations; the last cannot be captured
JOBS = [
    *(PaperJob("table1", "digits", name, "", 0, CONFIG) for name in (OURS, EDGEWISE)),
    *(PaperJob("table1", "digits", chosen.name, "", 0, CONFIG) for chosen in BASELINES.values()),
    PaperJob("table2", "digits", OURS, "GA only", 0, ALONE),
    *(PaperJob("table2", "digits", OURS, str(changes), 0, CONFIG.replace(**changes))
      for changes in VARIANTS),
    *(Job("field", "digits", settings.title, "", 0, replace(CONFIG, model=settings()))
      for settings in RIVALS),
]  # fmt: skip


class HostWaits(TorchDispatchMode):
    """Notes the calls whose result the host would have to wait for on a GPU."""

    ASKING = (
        "_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique", "equal", "bincount",
        "lift_fresh",  # numbers of the host that would have to be brought over
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        unsized = name == "repeat_interleave" and kwargs.get("output_size") is None
        if unsized or name.startswith(self.ASKING) or _by_mask(name, args):
            self.found.add(name)
        return func(*args, **kwargs)


def _by_mask(name: str, args: tuple) -> bool:
    """Whether elements are picked or put by a mask: their number is not known beforehand."""
    indices = args[1] if name.startswith(("index", "_index", "_unsafe_index")) else None
    if not isinstance(indices, list | tuple):
        return False
    return any(index is not None and index.dtype == torch.bool for index in indices)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return datasets.load("digits").encoded(CONFIG.data.encoding)


@pytest.fixture(params=["dense", "sparse"])
def x(request: pytest.FixtureRequest, data: Dataset) -> Features:
    return as_features(data.features if request.param == "dense" else data.features.to_sparse_csr())


@pytest.mark.parametrize("job", JOBS, ids=[f"{job.model} {job.variant}" for job in JOBS])
def test_an_epoch_that_can_be_captured_does_not_ask_the_host(job, data, x, monkeypatch):
    material = Material(data, job.training, torch.device("cpu"))
    material.x = x
    trainer = material.trainer(job.build(material), material.problem(0), capture=True)
    trainer.epoch()  # makes what is made once
    # Adam asks the host on a CPU only: on a GPU it is made to be captured.
    monkeypatch.setattr(trainer.optimizer, "step", lambda: None)
    with HostWaits() as waits:
        trainer.epoch()
    assert job.capturable == (not waits.found), waits.found


def test_what_asks_the_host_is_seen():
    x, counts = torch.rand(4), torch.tensor([1, 2])
    asking = [
        lambda: x.sum().item(),
        lambda: x[x > 0],
        lambda: x.masked_fill_(x > 0, 1).index_put_((x > 0,), x.new_zeros(())),
        lambda: x.nonzero(),
        lambda: x.masked_select(x > 0),
        lambda: x.unique(),
        lambda: torch.repeat_interleave(counts),
        lambda: x + torch.tensor([1.0]),
    ]
    for call in asking:
        with HostWaits() as waits:
            call()
        assert waits.found
    with HostWaits() as waits:
        torch.repeat_interleave(counts, output_size=3)
        x[counts].sum().add_(1)
    assert not waits.found


def test_the_edges_of_a_graph_do_not_ask_the_host(data):
    graph = sta.Graph(data.edge_index, data.num_nodes)
    with HostWaits() as waits:
        assert graph.edge_index.size(1) == graph.num_edges
    assert not waits.found


def test_the_published_formulation_prepares_its_edges_once(data, monkeypatch):
    material = Material(data, CONFIG, torch.device("cpu"))
    model, graph = JOBS[1].build(material), material.graph
    monkeypatch.setattr(sta.Graph, "edge_index", property(lambda _: pytest.fail("made again")))
    assert model(data.features, graph).shape == (data.num_nodes, 10)
