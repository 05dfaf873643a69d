"""How the benchmark calls the code that it is about: the operator, and whole epochs."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from ..graph import Graph
from ..ops import backends
from ..train.config import Config
from ..train.loop import evaluate
from ..train.metrics import LOSSES


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hop_weights: Tensor,
    graph: Graph,
    hops: int,
    eps: float,
    backend: str,
) -> Tensor:
    """The operator on phi(q), phi(k) [N, H, d], value [N, H, c], weights [K + 1, H]: [N, H, c]."""
    return backends.run(query, key, value, hop_weights, graph, hops, eps, backend)


class Trainer(Protocol):
    """Runs whole epochs: training step, evaluation, metrics, and the best weights kept."""

    def advance(self, epochs: int) -> object: ...


def trainer(model: nn.Module, data: Data, graph: Graph, config: Config) -> Trainer:
    """What `sta train` runs epochs of `model(data.x, graph)` with."""
    return _EagerTrainer(model, data, graph, config)


def captures(device: torch.device) -> bool:
    """Whether `trainer` replays a captured graph of the device's work there."""
    return False


class _EagerTrainer:
    """The loop of `train/loop.py` without its files."""

    def __init__(self, model: Any, data: Data, graph: Graph, config: Config) -> None:
        self.model, self.data, self.graph, self.config = model, data, graph, config
        groups = model.parameter_groups(config.weight_decay)
        self.optimizer = torch.optim.Adam(groups, lr=config.lr)
        self.best, self.best_weights = -1.0, dict[str, Tensor]()

    def advance(self, epochs: int) -> None:
        for _ in range(epochs):
            self._step()
            _, val, _ = evaluate(self.model, self.data, self.graph, self.config.metric)
            if val > self.best:
                weights = self.model.state_dict()
                self.best = val
                self.best_weights = {name: tensor.clone() for name, tensor in weights.items()}

    def _step(self) -> float:
        self.model.train()
        self.optimizer.zero_grad()
        mask = self.data.train_mask
        logits = self.model(self.data.x, self.graph)
        loss = LOSSES[self.config.loss](logits[mask], self.data.y[mask])
        loss.backward()
        self.optimizer.step()
        return loss.item()
