"""A whole epoch: one training step and one evaluation forward over the whole graph.

Ours is run as `sta train` runs it, the metrics of every epoch included. The others are eager
loops as their users write them (boolean masks, Adam, no metrics); PyG's models and the published
formulation get dense features.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import cycle, islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.attentions import EdgewiseAttention, LibraryAttention, STAGNNBy, edge_tensor_bytes
from experiments.baselines import PYG_MODELS, PyGModel, SparseGCN, dense_features
from experiments.bench.attention import OURS
from experiments.bench.cases import Case
from experiments.bench.measure import Run, Version, relative_error
from subtree_attention import tasks
from subtree_attention.graph import Graph
from subtree_attention.nn import STAGNN
from subtree_attention.nn.features import Features
from subtree_attention.train.jobs import TOGETHER
from subtree_attention.train.step import EAGER_EPOCHS, Trainer

LR, WEIGHT_DECAY = 0.01, 5e-4  # of PyG's models

Loss = Callable[[Tensor, Tensor], Tensor]
Start = Callable[[nn.Module, Features], Run]
Answer = tuple[Tensor, Tensor]  # logits [N, C], gradient [number of parameters]


def _binary(logits: Tensor, labels: Tensor) -> Tensor:
    target = F.one_hot(labels, logits.size(-1)).to(logits)
    return F.binary_cross_entropy_with_logits(logits, target)


_MASKED_LOSSES: dict[str, Loss] = {"cross_entropy": F.cross_entropy, "binary": _binary}


def versions(case: Case, backend: str) -> list[Version]:
    """Ours, STAGNN by other attentions, GCN on our parts, and PyG's models."""
    dense = cache(lambda: dense_features(case.data.features))  # x [N, F] as PyG's models take it
    return [
        *_stagnn_versions(case, backend, dense),
        _sparse_gcn_version(case),
        *(_pyg_version(name, model, case, dense) for name, model in PYG_MODELS.items()),
    ]


def dense_bytes(case: Case) -> int:
    """The size of the features as a dense float32 matrix."""
    return 4 * case.data.num_nodes * case.data.num_features


# ------------------------------------------------------------------------------- running an epoch


def _our_way(case: Case, graph: Graph, together: int = 1) -> Start:
    """Epochs as `sta train` runs them, of several runs in turns; the features are the case's."""

    def start(model: nn.Module, x: Features) -> Run:
        trainers = []
        for _ in range(together):
            given = deepcopy(model), case.x, case.data.y, case.split, graph
            task, fit = tasks.of(case.config.task), case.config.fit
            trainers.append(Trainer(*given, task=task, outputs=case.classes, fit=fit))
            for _ in range(EAGER_EPOCHS):  # captured before the clock starts
                trainers[-1].epoch()
        in_turns = cycle(trainers)

        def advance(epochs: int) -> None:
            for trainer in islice(in_turns, epochs):
                trainer.epoch()

        return advance

    return start


def _eagerly(case: Case, adjacency: Any, loss: Loss, *more: Tensor) -> Start:
    """The loop that everybody writes around `model(x, adjacency, *more)`."""
    y, mask = case.data.y, case.split.train

    def start(model: nn.Module, x: Features) -> Run:
        optimizer = _optimizer(model, case)

        def advance(epochs: int) -> None:
            for _ in range(epochs):
                model.train()
                optimizer.zero_grad()
                out = model(x, adjacency, *more)
                loss(out[mask], y[mask]).backward()
                optimizer.step()
                model.eval()
                with torch.no_grad():
                    model(x, adjacency, *more)

        return advance

    return start


def _optimizer(model: nn.Module, case: Case) -> torch.optim.Optimizer:
    """Adam by the graph's recipe for STAGNN, by the usual settings for PyG's models."""
    if isinstance(model, STAGNN):
        fit = case.config.fit
        return torch.optim.Adam(model.parameter_groups(fit.weight_decay), lr=fit.lr)
    return torch.optim.Adam(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)


# ------------------------------------------------------------------------------ what is compared


def _stagnn_versions(case: Case, backend: str, dense: Callable[[], Tensor]) -> list[Version]:
    """The same weights under three attentions: ours, library products, edge by edge."""
    config, graph = case.config, case.graph
    sizes = {"in_channels": case.data.num_features, "out_channels": case.classes}
    settings = {**sizes, **asdict(config.model)}
    same = _SameWeights(case, graph, partial(STAGNN, **settings, backend="torch"))
    eagerly = _eagerly(case, graph, _MASKED_LOSSES[config.task.loss])
    library = partial(STAGNNBy, LibraryAttention(graph), **settings)
    edgewise = partial(STAGNNBy, EdgewiseAttention(graph), **settings)
    edge_tensors = edge_tensor_bytes(graph, config.model.heads, case.key_channels, case.classes)
    ours = partial(STAGNN, **settings, backend=backend)
    versions = [
        same.version(OURS, ours, _our_way(case, graph)),
        same.version("library products", library, eagerly),
        same.version("edge-wise", edgewise, eagerly, dense, edge_tensors + dense_bytes(case)),
    ]
    if graph.device.type == "cuda":
        name = f"ours, {TOGETHER} runs at once"
        at_once = same.version(name, ours, _our_way(case, graph, TOGETHER))
        versions.insert(1, replace(at_once, batch_of=TOGETHER))
    return versions


def _sparse_gcn_version(case: Case) -> Version:
    """GCN with our sparse features and our epoch: what is left when the operator costs nothing."""
    graph = Graph(case.data.edge_index, case.data.num_nodes, transition="sym", self_loops=True)
    graph.matrix(), graph.transpose()  # inputs, as those of the other graph are
    build = partial(SparseGCN, case.data.num_features, case.classes)
    name = f"GCN on our parts, {'captured' if graph.device.type == 'cuda' else 'eager'}"
    return _SameWeights(case, graph, build).version(name, build, _our_way(case, graph))


def _pyg_version(name: str, model: PyGModel, case: Case, dense: Callable[[], Tensor]) -> Version:
    """A model of PyG, which is its own definition: there is no error to tell."""
    edge_index = case.data.edge_index
    batch = [torch.zeros_like(case.data.y)] if model.takes_batch else []

    def build() -> Run:
        torch.manual_seed(0)
        built = model.build(case.data.num_features, case.classes).to(edge_index.device)
        return _eagerly(case, edge_index, model.loss, *batch)(built, dense())

    return Version(name, build, inputs=dense, needs_bytes=3 * dense_bytes(case))


class _SameWeights:
    """Versions of a model that all have the same weights; float64 says what is right.

    Args:
        case, graph: what they run on.
        build: makes the model that is taken to be right.
    """

    def __init__(self, case: Case, graph: Graph, build: Callable[[], nn.Module]) -> None:
        self.case, self.graph = case, graph
        torch.manual_seed(0)
        self.weights = build().state_dict()
        self.truth = self._answer(self._placed(build).double(), case.data.features.double())

    def version(
        self,
        name: str,
        build: Callable[[], nn.Module],
        start: Start,
        features: Callable[[], Features] | None = None,
        needs_bytes: int = 0,
    ) -> Version:
        """A version whose logits and gradients are compared."""

        def inputs() -> Features:
            return self.case.x if features is None else features()

        def error() -> float:
            return relative_error(self._answer(self._placed(build), inputs()), self.truth)

        def run() -> Run:
            torch.manual_seed(0)
            return start(self._placed(build), inputs())

        return Version(name, run, error, inputs=inputs, needs_bytes=needs_bytes)

    def _placed(self, build: Callable[[], nn.Module]) -> nn.Module:
        """A model with the weights, where the graph is."""
        model = build()
        model.load_state_dict(self.weights)
        return model.to(self.graph.device)

    def _answer(self, model: nn.Module, x: Features) -> Answer:
        """Logits [N, C] without dropout, and the gradient of the loss for all parameters."""
        case, logits = self.case, model.eval()(x, self.graph)
        loss = tasks.of(case.config.task).loss(model, case.data.y, case.split.train, case.classes)
        grads = torch.autograd.grad(loss(logits), list(model.parameters()))
        return logits.detach(), torch.cat([grad.flatten() for grad in grads])
