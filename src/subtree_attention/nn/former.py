"""STAFormer: STA blocks, one upon the other, from features to outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import _check
from ..graph import Graph
from ..ops.kernels.cuda import fills_gpu
from . import memory as memory_of
from .block import STABlock
from .features import Features, as_features, dropped
from .linear import Linear
from .parts import parameter_groups, reset_children

JUMPS: dict[str, Callable[[Sequence[Tensor]], Tensor]] = {
    "last": lambda blocks: blocks[-1],
    "sum": lambda blocks: torch.stack([*blocks]).sum(0),
    "max": lambda blocks: torch.stack([*blocks]).amax(0),
    "concat": lambda blocks: torch.cat([*blocks], -1),
}
"""Jumping connections: what the last map sees of the blocks' outputs [N, hidden]."""


class STAFormer(nn.Module):
    r"""A deep network of subtree attention: L blocks of K hops see L K hops far.

    .. math::
        H_0 = X \ \mathrm{or}\ \mathrm{dropout}(\mathrm{relu}(X W)), \qquad
        H_l = \mathrm{STABlock}(H_{l-1}), \qquad
        O = \mathrm{jump}(H_1, \ldots, H_L) W_O + b

    Args:
        in_channels: columns of x; -1 takes them from the first x that comes.
        hidden_channels: width of the blocks; heads must divide it.
        out_channels: columns of the result: classes, or whatever is predicted.
        layers: L, the number of blocks.
        hops: K, of each block.
        heads: H, of each block.
        dropout: in the blocks.
        input_dropout: on what the first block sees.
        input_projection: a linear map with ReLU before the first block. A wide x then is read once
            instead of by every map of the first block.
        jumping: `"last"`, `"sum"`, `"max"` or `"concat"` of the blocks' outputs.
        transition: how messages walk, as in :class:`Graph`, like `self_loops`.
        memory: a bound for all that a call takes, backward pass included, beside x, its Graph and
            the weights, as in :class:`STAConv`; :meth:`memory_plan` says what is done.
        options: any other of :class:`STABlock`, and of the :class:`STAConv` in it.

    Shapes:
        - x: `[N, in_channels]`, dense or sparse (`torch.sparse_csr`, :class:`SparseFeatures`)
        - result: `[N, out_channels]`
    """

    blocks: Any  # a ModuleList of STABlocks

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        layers: int = 3,
        hops: int = 2,
        heads: int = 2,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        input_projection: bool = False,
        jumping: str = "last",
        transition: str | None = "sym",
        self_loops: bool = True,
        memory: str | int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        width = _check.integer("hidden_channels", hidden_channels, 1)
        count = _check.integer("layers", layers, 1, _check.MOST_LAYERS)
        self.input_dropout = _check.number("input_dropout", input_dropout, below=1)
        self.jumping = _check.known("jumping", jumping, JUMPS)
        projected = _check.flag("input_projection", input_projection)
        self.lin_in = Linear(in_channels, width) if projected else None
        widths = [width if projected else in_channels, *[width] * (count - 1)]
        how = {"transition": transition, "self_loops": self_loops, "dropout": dropout, **options}
        self.blocks = nn.ModuleList()
        for each in widths:
            self.blocks.append(STABlock(each, width, hops, heads, **how))
            how = {name: _another(part) for name, part in how.items()}
        last = count * width if jumping == "concat" else width
        self.lin_out = Linear(last, out_channels)
        first = self.blocks[0].conv
        self.budget = memory_of.check(memory, first.feature_map, first.edge_dim)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Groups for an optimiser: hop weights, gates of heads and betas are not decayed."""
        return parameter_groups(self, weight_decay)

    def reset_parameters(self) -> None:
        """Back to fresh initial values."""
        reset_children(self)

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        """Hop weights, gates of heads and betas: not to be decayed."""
        for block in self.blocks:
            yield from block.no_weight_decay()

    def fills_gpu(self, graph: Graph) -> bool:
        """Whether a hop over this graph fills a GPU: then nothing gains by running beside it."""
        conv = self.blocks[-1].conv
        channels = conv.heads * conv.key_channels
        return fills_gpu(graph.num_edges, channels, conv.value_channels)

    def inputs(self, x: Features) -> Features:
        """What the first block sees, before dropout: x, or its projection."""
        x = as_features(x)
        return x if self.lin_in is None else F.relu(self.lin_in(x))

    def hidden(self, x: Features, edge_index: Any, *rest: Any, **more: Any) -> Tensor:
        """What the last map sees, [N, hidden_channels] (L times as wide with `"concat"`);
        arguments as in :meth:`forward`."""
        return self._stacked(self.inputs(x), edge_index, *rest, **more)

    def through(self, inputs: Features, edge_index: Any, *rest: Any, **more: Any) -> Tensor:
        """Outputs [N, out_channels] of what the first block sees."""
        return self.lin_out(self._stacked(inputs, edge_index, *rest, **more))

    def _stacked(self, inputs: Features, edge_index: Any, *rest: Any, **more: Any) -> Tensor:
        outputs: list[Any] = [dropped(inputs, self.input_dropout, self.training)]
        for block in self.blocks:
            outputs.append(block(outputs[-1], edge_index, *rest, **more))
        return JUMPS[self.jumping](outputs[1:])

    def forward(
        self,
        x: Features,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Outputs [N, out_channels]; arguments as in :meth:`STAConv.forward`."""
        along = edge_weight, batch, batch_size, edge_attr
        if self.budget is not None:
            x, conv = as_features(x), self.blocks[0].conv
            graph = conv.as_graph(edge_index, edge_weight, x)
            self.budget.settle(self, x, graph, batch is not None)
        return self.through(self.inputs(x), edge_index, *along)

    def memory_plan(self, x: Features, edge_index: Any) -> memory_of.Plan:
        """What a call with this x does to keep to `memory`; printed, it is a line of words."""
        x = as_features(x)
        return memory_of.plan(self, x, self.blocks[0].conv.as_graph(edge_index, None, x))

    def __repr__(self) -> str:
        first = self.blocks[0].conv
        sizes = first.lin_query.in_channels, first.out_channels, self.lin_out.out_channels
        if self.lin_in is not None:
            sizes = self.lin_in.in_channels, *sizes[1:]
        return (
            f"{type(self).__name__}({', '.join(map(str, sizes))}, layers={len(self.blocks)}, "
            f"hops={first.hops}, heads={first.heads})"
        )


def _another(part: Any) -> Any:
    """An option for one more block: a module of somebody's own is not shared among blocks."""
    return copy.deepcopy(part) if isinstance(part, nn.Module) else part
