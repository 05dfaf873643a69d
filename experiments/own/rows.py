"""The models of the table: ours, and what an analyst would use instead."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from experiments import baselines
from subtree_attention.config import MODELS, Config, Settings, option
from subtree_attention.datasets import Dataset
from subtree_attention.graph import Graph
from subtree_attention.nn import BUILDERS, Linear
from subtree_attention.nn.features import Features
from subtree_attention.nn.smoothing import walked
from subtree_attention.references import Comparison
from subtree_attention.tasks.metrics import Metric
from subtree_attention.train.fit import fit
from subtree_attention.train.portfolio import fit_portfolio
from subtree_attention.train.watch import Watch

OURS = "sta"
GCN, SAGE = "GCN, 64", "GraphSAGE, 64, correct and smooth"
REFERENCES = {
    "logistic_neighbours": "logistic regression + neighbours + labels",
    "trees_neighbours": "boosted trees + neighbours + labels",
    "propagation": "label propagation",
}
"""Those that stand beside every run of ours, and are rows of the table."""
ROWS = (OURS, *REFERENCES.values(), GCN, SAGE)
EPOCHS, PATIENCE = 500, 100
"""Of the GCN and GraphSAGE."""


@dataclass(frozen=True)
class Found:
    """How a model did on one split: scores, its processor time (of references the time that went
    by), and what is told of it."""

    model: str
    val: float
    test: float
    seconds: float
    epochs: int = 0
    best_epoch: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


class _Clock(Watch):
    """Knows the processor time at which the references were done."""

    def __init__(self) -> None:
        self.references_done = time.process_time()

    def compared(self, found: Comparison, metric: Metric) -> None:
        self.references_done = time.process_time()


def ours(dataset: Dataset, seed: int) -> Iterator[Found]:
    """What `sta train` does with tables: the references, and the portfolio, chosen by validation
    nodes, whose time is without theirs."""
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder:
        result = fit_portfolio(
            dataset,
            Path(folder) / "run",
            graph=dataset.name,
            device="cpu",
            seed=seed,
            references=True,
            watch=clock,
        )
        seconds = time.process_time() - clock.references_done
    assert result.portfolio is not None
    assert result.references is not None
    config, run, beside = result.config.to_dict(), result.runs[0], result.references.references
    for one in beside:
        if one.name in REFERENCES:
            title = REFERENCES[one.name]
            yield Found(title, one.val, one.test, one.seconds, settings={"note": one.note})
    told = {
        "won": result.portfolio.won,
        "tried": [vars(one) for one in result.portfolio.tried],
        "references": {one.name: one.val for one in beside},
    }
    scores = run.val, run.test, seconds, run.epochs, run.best_epoch
    yield Found(OURS, *scores, settings=told, config=config)


def rival(dataset: Dataset, seed: int, title: str) -> Found:
    """A network of two layers, as people write it; GraphSAGE with correct and smooth behind it."""
    model = {GCN: GCNSettings.name, SAGE: SAGESettings.name}[title]
    config = Config.of(
        dataset.name,
        model=model,
        split="own",
        encoding=0,
        seed=seed,
        epochs=EPOCHS,
        patience=PATIENCE,
        correct=title == SAGE,
    )
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        result = fit(config, Path(folder) / "run", data=dataset, device="cpu", keep_graph=False)
        seconds = time.process_time() - started
    run = result.runs[0]
    return Found(
        title, run.val, run.test, seconds, run.epochs, run.best_epoch, {}, config.to_dict()
    )


# ------------------------------------------------------------------------------------ the rivals


class SAGELayers(nn.Module):
    """Two layers of a map of the neighbours' mean and one of the node: dropout before each."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int, dropout: float
    ) -> None:
        super().__init__()
        self.dropout = dropout
        widths = [(in_channels, hidden_channels), (hidden_channels, out_channels)]
        self.near = nn.ModuleList(Linear(*pair, dropout=dropout) for pair in widths)
        self.self = nn.ModuleList(Linear(*pair, dropout=dropout) for pair in widths)

    def forward(self, x: Features, graph: Graph) -> Tensor:
        """Logits [N, out_channels]."""
        mean = graph.cached("means", _means)
        hidden: Any = x
        for place in range(2):
            hidden = F.relu(hidden) if place else hidden
            hidden = walked(self.near[place](hidden), mean) + self.self[place](hidden)
        return hidden


def _means(graph: Graph) -> Graph:
    return Graph(graph.edge_index, graph.num_nodes, transition="mean")


@dataclass(frozen=True)
class GCNSettings(Settings):
    """The options of `baselines.GCN`."""

    name: ClassVar[str] = "plain-gcn"
    title: ClassVar[str] = GCN
    hidden_channels: int = option(64, "Width of the hidden layer.", least=1)
    dropout: float = option(0.5, "Dropout before each layer.", below=1)


@dataclass(frozen=True)
class SAGESettings(GCNSettings):
    """The options of `SAGELayers`."""

    name: ClassVar[str] = "plain-sage"
    title: ClassVar[str] = SAGE


def _gcn(in_channels: int, out_channels: int, hidden_channels: int, dropout: float) -> nn.Module:
    return baselines.GCN(in_channels, out_channels, hidden_channels, 2, dropout)


MODELS[GCNSettings.name], BUILDERS[GCNSettings.name] = GCNSettings, _gcn
MODELS[SAGESettings.name], BUILDERS[SAGESettings.name] = SAGESettings, SAGELayers
