"""What a rank learns from: its own rows of the features, and the outputs of all units that count.

Every rank computes the same loss and the same scores, of the outputs of all units with a target,
which are gathered; going back, each keeps the gradient of its own outputs. So a task needs to know
nothing of ranks, whatever its loss and its metric are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ...config import Config
from ...datasets import Split
from ...nn import Parallel, as_features, parallelize
from ...nn.features import Features
from ...partition import PartGraph, Ranks
from ...tasks import Problem
from ...tasks import of as task_of
from ..step import Trainer


class Counted(NamedTuple):
    """Units that are in some part of a split: L of all nodes, in the order of their numbers.

    Attributes:
        rows: [l], those among the owned nodes.
        own: [l], where these stand among the L.
        order: [L], where each of the L stands in what ranks gather, one after the other.
        most: rows that each rank gathers: as many as the one with the most of them has.
    """

    rows: Tensor
    own: Tensor
    order: Tensor
    most: int

    @staticmethod
    def of(counts: Tensor, owner: Tensor, ranks: Ranks, device: torch.device) -> Counted:
        """Of those that count, a mask [N], and the rank of each node, [N]."""
        by = owner[counts].long()  # [L]
        sizes = torch.bincount(by, minlength=ranks.size)
        most, first = int(sizes.max()), sizes.cumsum(0) - sizes
        place = torch.empty_like(by)
        place[by.argsort(stable=True)] = torch.arange(len(by))  # rank by rank, without gaps
        order = most * by + place - first[by]
        mine = owner == ranks.rank
        rows, own = counts[mine].nonzero().flatten(), (by == ranks.rank).nonzero().flatten()
        return Counted(rows.to(device), own.to(device), order.to(device), most)

    def gathered(self, values: Tensor, ranks: Ranks) -> Tensor:
        """Of values [n, ...] of the owned nodes, those of all units that count: [L, ...]."""
        return ranks.gathered(_padded(values[self.rows], self.most)).flatten(0, 1)[self.order]


def _padded(rows: Tensor, length: int) -> Tensor:
    """[l, ...] -> [length, ...]."""
    return torch.cat([rows, rows.new_zeros(length - len(rows), *rows.shape[1:])])


class _Gathered(torch.autograd.Function):
    """Outputs of all units that count; going back, the gradient of a rank's own."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, counted: Counted, ranks: Ranks) -> Tensor:
        ctx.counted, ctx.shape = counted, outputs.shape
        return counted.gathered(outputs, ranks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        given = grad.new_zeros(ctx.shape)
        return given.index_copy_(0, ctx.counted.rows, grad[ctx.counted.own]), None, None


class Gathering(nn.Module):
    """A parallel model that gives the outputs of all units that count, on every rank: [L, ...].

    `state_dict` is the model's own.
    """

    def __init__(self, parallel: Parallel, counted: Counted) -> None:
        super().__init__()
        self.parallel, self.counted = parallel, counted

    def forward(self, x: Features, graph: PartGraph, **inputs: Any) -> Tensor:
        outputs = self.parallel(x, graph, **inputs)
        return _Gathered.apply(outputs, self.counted, self.parallel.mesh.nodes)

    def no_weight_decay(self) -> Any:
        """Those of the model."""
        return self.parallel.no_weight_decay()

    def state_dict(self, *args: Any, **how: Any) -> Any:
        return self.parallel.state_dict(*args, **how)

    def load_state_dict(self, state_dict: Any, *args: Any, **how: Any) -> Any:
        return self.parallel.load_state_dict(state_dict, *args, **how)


@dataclass(frozen=True, eq=False)
class RankProblem(Problem):
    """What a run learns from, on every rank alike: target and split are of the units that count."""

    counted: Counted | None = None


class RankMaterial:
    """A rank's rows of a graph on its device, as all runs of a configuration share them.

    Args:
        config: what is trained.
        x: [n, F], features of the owned nodes.
        graph: what this rank walks on.
        about: what the task asks for targets and splits of all nodes: a `Dataset`, or an `Outline`.
    """

    def __init__(self, config: Config, x: Tensor, graph: PartGraph, about: Any) -> None:
        self.config, self.task, self.about = config, task_of(config.task), about
        self.device = graph.device
        self.x, self.graph = as_features(x.to(self.device)), graph
        self.sizes = {"in_channels": x.size(1), "out_channels": self.task.outputs(about)}

    @property
    def ranks(self) -> Ranks:
        """Those that share the nodes."""
        return self.graph.shared.mesh.nodes

    def problem(self, seed: int) -> RankProblem:
        """What the run of a seed learns from, if the task can be learnt on it."""
        whole = self.task.split(self.about, self.config.data.split, seed)
        counts, owner = torch.stack([*whole]).any(0), self.graph.partition.owner
        target, split = self.task.target(self.about)[counts], Split(*(m[counts] for m in whole))
        self.task.check(target, split, self.task.names(self.about))
        counted = Counted.of(counts, owner, self.ranks, self.device)
        there = target.to(self.device), split.to(self.device)
        return RankProblem(self.about, *there, {}, counted=counted)

    def leaning(self, problem: Problem, folder: Path, seed: int) -> Problem:
        """As it is: a model that stands on a reference is refused before."""
        return problem

    def network(self) -> nn.Module:
        """What is trained, with fresh weights."""
        return self.task.network(self.config.model, **self.sizes)

    def trainer(self, model: nn.Module, problem: Problem, capture: bool, seed: int = 0) -> Trainer:
        """What trains a model on a problem: gradients are added up before every step."""
        assert isinstance(problem, RankProblem)
        assert problem.counted is not None
        parallel = parallelize(model.to(self.device), self.graph, self.graph.shared.mesh)
        trainer = Trainer(
            Gathering(parallel, problem.counted),
            self.x,
            problem.target,
            problem.split,
            self.graph,
            task=self.task,
            outputs=self.sizes["out_channels"],
            fit=self.config.fit,
            capture=False,  # ranks wait for each other, which a replay cannot
        )
        trainer.optimizer.register_step_pre_hook(lambda *_: parallel.reduce_gradients())
        return trainer
