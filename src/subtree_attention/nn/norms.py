"""Batch norm over all nodes, wherever they are."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..partition import HERE, Ranks, Summed


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of `[N, channels]`; on a part of a graph, over the nodes of all ranks.

    torch's own synchronised one knows GPUs only.
    """

    def forward(self, x: Tensor) -> Tensor:
        part = HERE.part
        counts = self.training or self.running_mean is None
        if part is None or not counts or part.shared.mesh.nodes.alone:
            return super().forward(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        nodes, ranks = part.partition.num_nodes, part.shared.mesh.nodes
        if nodes < 2:
            raise ValueError(f"batch norm in training needs 2 nodes at least, got {nodes}")
        mean = _mean(wide, nodes, ranks)
        centred = wide - mean
        variance = _mean(centred.square(), nodes, ranks)
        self._note(mean.detach(), variance.detach() * (nodes / (nodes - 1)))
        out = centred * (variance + self.eps).rsqrt()
        if self.affine:
            out = out * self.weight + self.bias
        return out.to(x.dtype)

    @torch.no_grad()
    def _note(self, mean: Tensor, variance: Tensor) -> None:
        """Into the running statistics."""
        if not self.training or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:
            share = 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


def looks_at_all(model: nn.Module) -> bool:
    """Whether a batch norm of a model looks at all nodes, also in evaluation."""
    norms = (part for part in model.modules() if isinstance(part, BatchNorm))
    return any(norm.running_mean is None for norm in norms)


def _mean(x: Tensor, nodes: int, ranks: Ranks) -> Tensor:
    """Over all nodes: [n, c] -> [c]."""
    total: Tensor = Summed.apply(x.sum(0), ranks)
    return total / nodes
